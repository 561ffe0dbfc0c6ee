"""The SQLite store in bad circumstances: it degrades to a miss, says so once, and recovers."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cache.conftest import DEADLINE_S, HandClock, StartWorker
from outrider.cache import Memory, Peer, Source
from outrider.cache.sqlite import SqliteStore
from outrider.errors import StoreError
from outrider.protocol.freshness import request_key

PEER, KEY = Peer("t" * 32, "c"), request_key("tools/list")


async def load() -> bytes:
    return b'{"tools":[{"name":"a"}],"ttlMs":600000}'


async def source_of_second_fetch(memory: Memory) -> Source:
    await memory.fetch(PEER, KEY, load)
    return (await memory.fetch(PEER, KEY, load)).source


async def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    """Ours: mode 0600 for the file and what SQLite puts beside it, 0700 for the folder."""
    path = tmp_path / "cache" / "m.sqlite3"
    old = os.umask(0)
    try:
        async with Memory(SqliteStore(path)) as memory:
            assert await source_of_second_fetch(memory) is Source.MEMORY
            modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in path.parent.iterdir()}
    finally:
        os.umask(old)
    assert modes == {"m.sqlite3": 0o600, "m.sqlite3-wal": 0o600, "m.sqlite3-shm": 0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def nonsense(path: Path) -> None:
    path.write_bytes(b"this is no database" * 1000)


def half_nonsense(path: Path) -> None:
    # Keeps the header, so that opening succeeds and only reading does not.
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xee" * (path.stat().st_size - 4096))


def other_schema(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.executescript("DROP TABLE entry; CREATE TABLE entry (other TEXT); PRAGMA user_version = 99")
    connection.close()


def lost_table(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE mark")
    connection.close()


def deleted(path: Path) -> None:
    path.unlink()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("spoil", [nonsense, half_nonsense, other_schema, lost_table, deleted, emptied])
async def test_a_file_that_is_no_use_is_begun_anew(tmp_path: Path, hand_clock: HandClock, spoil: Any) -> None:
    """Ours: damaged, of another schema, or gone: at most the next few answers are asked for again."""
    path = tmp_path / "m.sqlite3"
    async with Memory(SqliteStore(path)) as memory:
        await source_of_second_fetch(memory)
    spoil(path)
    troubles: list[StoreError] = []
    async with Memory(SqliteStore(path), clock=hand_clock.clock, on_trouble=troubles.append) as memory:
        assert (await memory.fetch(PEER, KEY, load)).source is Source.NETWORK
        hand_clock.pass_time(31_000)
        assert await source_of_second_fetch(memory) is Source.MEMORY
    assert len(troubles) <= 1


def test_a_file_is_begun_by_many_at_once(tmp_path: Path) -> None:
    """Ours: whoever comes second waits until the file is there, and none goes on without it."""
    count, rounds = 8, 12
    together = threading.Barrier(count, timeout=DEADLINE_S)

    async def begin(round_number: int) -> list[str]:
        store = SqliteStore(tmp_path / f"{round_number}.sqlite3")
        try:
            return await store.mark(["a mark"])
        finally:
            await store.close()

    def work(_: int) -> list[list[str]]:
        made = []
        for round_number in range(rounds):
            together.wait()
            made.append(asyncio.run(begin(round_number)))
        return made

    with ThreadPoolExecutor(count) as threads:
        seen = list(threads.map(work, range(count)))
    assert all(marks == seen[0] for marks in seen), "the first one's mark is everybody's"


async def test_a_file_deleted_under_our_hands_is_begun_anew(tmp_path: Path) -> None:
    """Ours: the user clears the cache folder while agents run; they share the new file, not the one without a name."""
    path = tmp_path / "m.sqlite3"
    async with Memory(SqliteStore(path)) as one, Memory(SqliteStore(path)) as two:
        await source_of_second_fetch(one)
        await source_of_second_fetch(two)
        for entry in tmp_path.iterdir():
            entry.unlink()
        assert await one.get(PEER, KEY) is None
        await one.fetch(PEER, KEY, load)
        found = await two.get(PEER, KEY)
        assert found is not None
        await one.invalidate(PEER.target, "tools/list")
        found = await two.get(PEER, KEY)
        assert found is not None
        assert not found.freshness.fresh


async def test_a_folder_that_cannot_be_used_costs_speed_only(tmp_path: Path, hand_clock: HandClock) -> None:
    """Ours: each answer is asked for, and the trouble is reported once, not each time."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    troubles: list[StoreError] = []
    async with Memory(SqliteStore(blocked / "m.sqlite3"), clock=hand_clock.clock, on_trouble=troubles.append) as memory:
        for _ in range(5):
            assert (await memory.fetch(PEER, KEY, load)).source is Source.NETWORK
            await memory.invalidate(PEER.target, "tools/list")
            assert await memory.era(PEER.target) is None
            hand_clock.pass_time(60_000)
        with pytest.raises(StoreError):
            await memory.entries()
    assert len(troubles) == 1
    assert str(blocked) in str(troubles[0])
    assert troubles[0].hint


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.name != "posix", reason="file modes are for POSIX systems")
async def test_a_read_only_folder_costs_speed_only(tmp_path: Path) -> None:
    """Ours: in a process that the modes apply to, which root is not."""
    folder = tmp_path / "ro"
    folder.mkdir()
    folder.chmod(0o555)
    store = SqliteStore(folder / "m.sqlite3")
    if os.geteuid() == 0:
        # Root may write anywhere; what is left to it is a folder of the kernel's that takes no files.
        store = SqliteStore("/proc/self/m.sqlite3")
    troubles: list[StoreError] = []
    async with Memory(store, on_trouble=troubles.append) as memory:
        assert await source_of_second_fetch(memory) is Source.NETWORK
    assert len(troubles) == 1


async def test_another_process_that_holds_the_lock_costs_speed_only(tmp_path: Path, hand_clock: HandClock) -> None:
    """Ours: reads go on; what cannot be written is not remembered, but an invalidation is owed and arrives later."""
    path = tmp_path / "m.sqlite3"
    troubles: list[StoreError] = []
    async with Memory(SqliteStore(path), clock=hand_clock.clock, on_trouble=troubles.append) as memory:
        await memory.fetch(PEER, KEY, load)
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        found = await memory.get(PEER, KEY)
        assert found is not None
        assert found.freshness.fresh
        await memory.invalidate(PEER.target, "tools/list")
        assert len(troubles) == 1
        assert (await memory.fetch(PEER, KEY, load)).source is Source.NETWORK
        assert await memory.get(PEER, KEY) is None
        holder.execute("ROLLBACK")
        holder.close()
        hand_clock.pass_time(31_000)
        found = await memory.get(PEER, KEY)
        assert found is not None
        assert not found.freshness.fresh
        assert await source_of_second_fetch(memory) is Source.MEMORY


async def test_the_event_loop_runs_on_while_a_write_waits(tmp_path: Path) -> None:
    """Ours: writes are on a thread of their own."""
    path = tmp_path / "m.sqlite3"
    store = SqliteStore(path)
    await store.mark(["*"])
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    writing = asyncio.create_task(store.bump(["*"]))
    for _ in range(100):
        await asyncio.sleep(0)
        await store.read_fact("f")
    assert not writing.done()
    holder.execute("ROLLBACK")
    holder.close()
    async with asyncio.timeout(DEADLINE_S):
        await writing
    await store.close()


async def test_a_full_disk_costs_speed_only(tmp_path: Path, start_worker: StartWorker, upstream: Any) -> None:
    """Ours: a real process whose files may not grow; answers arrive, and the trouble is reported once."""
    worker = await start_worker(str(tmp_path / "m.sqlite3"), upstream.port, rlimit_fsize=100_000)
    upstream.answer = {"tools": [{"name": "a", "description": "x" * 200_000}], "ttlMs": 600_000}
    await worker.tell(do="fetch")
    heard = [await worker.hear(), await worker.hear()]
    assert sorted("trouble" in one for one in heard) == [False, True]
    [answer] = [one for one in heard if "source" in one]
    assert len(answer["value"]["tools"]) == 1
    assert (await worker.ask(do="fetch"))["source"] == "network"
    upstream.answer = {"tools": [], "ttlMs": 600_000}
    assert (await worker.ask(do="fetch"))["value"] == {"tools": [], "ttlMs": 600_000}


async def test_kill_9_in_the_middle_of_writing_loses_nothing_that_was_written(
    tmp_path: Path, start_worker: StartWorker, upstream: Any
) -> None:
    """Ours: again and again; the file stays sound, and what the killed process had stored is read by the next."""
    path = tmp_path / "m.sqlite3"
    for _ in range(5):
        worker = await start_worker(str(path), upstream.port)
        await worker.tell(do="fill")
        assert (await worker.hear())["filling"]
        assert (await worker.hear())["written"] == 20
        worker.process.kill()
        await worker.process.wait()
        async with Memory(SqliteStore(path)) as memory:
            found = await memory.get(PEER, request_key("tools/list", {"cursor": "7"}))
            assert found is not None
            assert len(json.loads(found.value)["tools"][0]["d"]) == 20_000
            assert await source_of_second_fetch(memory) is Source.MEMORY
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


async def test_no_secret_is_in_the_file(tmp_path: Path) -> None:
    """Case 65, 69: neither a credential nor an address with one; only digests and what the server sent."""
    from outrider.cache import Fingerprinter

    prints = Fingerprinter(b"k" * 32)
    path = tmp_path / "m.sqlite3"
    async with Memory(SqliteStore(path)) as memory:
        targets = [
            prints.http("https://u:SECRET1@h/mcp?key=SECRET2", {"X": "SECRET3"}),
            prints.stdio("c", ["--token=SECRET4"], {"T": "SECRET5"}),
        ]
        for target in targets:
            await memory.fetch(
                Peer(target, prints.context({"header:authorization": "Bearer SECRET6"}), "demo"), KEY, load
            )
            await memory.notified(target, "notifications/resources/updated", {"uri": "https://h/?SECRET7"})
        content = b"".join(entry.read_bytes() for entry in tmp_path.iterdir())
    assert b"demo" in content
    assert b"SECRET" not in content
