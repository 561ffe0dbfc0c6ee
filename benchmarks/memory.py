"""What remembering costs: get and put per store, against a dict and against diskcache, in one run on one machine.

    python benchmarks/memory.py [--size BYTES] [--rounds N]

Each figure is the median of the time per operation over several batches. Valkey is started on a free port if it is
installed. diskcache is the peer: `pip install diskcache`. "memory" is the whole way that the client goes (judging,
counting, single flight); "store" is the store alone."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from outrider.cache import Address, InProcessStore, Memory, Peer, Record, Store
from outrider.cache.sqlite import SqliteStore
from outrider.cache.valkey import ValkeyStore
from outrider.protocol.freshness import RequestKey, marks_of, request_key

BATCHES = 9
KEPT = 200  # entries in each store: a person's fifty servers with four lists each


def answer(size: int) -> bytes:
    return json.dumps(
        {"tools": [{"name": "a", "description": "x" * size}], "ttlMs": 86_400_000, "cacheScope": "private"}
    ).encode()


def per_call(operation: Callable[[int], Any], rounds: int) -> float:
    times = []
    for _ in range(BATCHES):
        began = time.perf_counter()
        for n in range(rounds):
            operation(n % KEPT)
        times.append((time.perf_counter() - began) / rounds)
    return statistics.median(times) * 1e6


async def per_await(operation: Callable[[int], Awaitable[Any]], rounds: int) -> float:
    times = []
    for _ in range(BATCHES):
        began = time.perf_counter()
        for n in range(rounds):
            await operation(n % KEPT)
        times.append((time.perf_counter() - began) / rounds)
    return statistics.median(times) * 1e6


def target(n: int) -> str:
    return f"{n:032x}"


async def of_store(store: Store, value: bytes, rounds: int) -> dict[str, float]:
    memory = Memory(store)
    found_key = request_key("tools/list", version="2026-07-28")
    assert found_key is not None
    key: RequestKey = found_key
    peers = [Peer(target(n), "c" * 32) for n in range(KEPT)]

    async def load() -> bytes:
        return value

    for peer in peers:
        await memory.fetch(peer, key, load)
    addresses = [Address(peer.target, peer.context, key.method, key.digest) for peer in peers]
    marks = [marks_of(peer.target, key) for peer in peers]
    records: list[Record] = []
    for n in range(KEPT):
        [record], _ = await store.read([addresses[n]], marks[n])
        assert record is not None
        records.append(record)
    figures = {
        "store get": await per_await(lambda n: store.read([addresses[n]], marks[n]), rounds),
        "store put": await per_await(
            lambda n: store.write([(addresses[n], records[n])], marks[n]), max(rounds // 10, 20)
        ),
        "memory hit": await per_await(lambda n: memory.fetch(peers[n], key, load), rounds),
        "memory load and put": await per_await(
            lambda n: memory.fetch(peers[n], key, load, refresh=True), max(rounds // 10, 20)
        ),
        "invalidate": await per_await(lambda n: memory.invalidate(peers[n].target, key.method), max(rounds // 10, 20)),
    }
    await memory.close()
    return figures


def of_dict(value: bytes, rounds: int) -> dict[str, float]:
    entries = {target(n): value for n in range(KEPT)}
    keys = list(entries)

    def put(n: int) -> None:
        entries[keys[n]] = value

    return {"store get": per_call(lambda n: entries.get(keys[n]), rounds), "store put": per_call(put, rounds)}


def of_diskcache(value: bytes, rounds: int, folder: Path) -> dict[str, float] | None:
    try:
        import diskcache
    except ImportError:
        return None
    with diskcache.Cache(str(folder)) as cache:
        for n in range(KEPT):
            cache.set(target(n), value, expire=86_400)
        return {
            "store get": per_call(lambda n: cache.get(target(n)), rounds),
            "store put": per_call(lambda n: cache.set(target(n), value, expire=86_400), max(rounds // 10, 20)),
        }


def start_valkey(folder: Path) -> tuple[subprocess.Popen[bytes], int] | None:
    program = shutil.which("valkey-server") or shutil.which("redis-server")
    if program is None:
        return None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    server = subprocess.Popen(
        [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)],
        stdout=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", port)) == 0:
                return server, port
        time.sleep(0.05)
    server.kill()
    server.wait()
    return None


async def measure(size: int, rounds: int, folder: Path) -> dict[str, dict[str, float]]:
    value = answer(size)
    table = {"dict": of_dict(value, rounds * 10), "in process": await of_store(InProcessStore(), value, rounds)}
    table["SQLite"] = await of_store(SqliteStore(folder / "memory.sqlite3"), value, rounds)
    if (peer := of_diskcache(value, rounds, folder / "diskcache")) is not None:
        table["diskcache"] = peer
    if (started := start_valkey(folder)) is not None:
        server, port = started
        try:
            url = f"valkey://127.0.0.1:{port}"
            table["Valkey"] = await of_store(ValkeyStore(url, prefix="far", near_entries=0), value, rounds)
            table["Valkey, near copy"] = await of_store(ValkeyStore(url, prefix="near"), value, rounds)
        finally:
            server.kill()
            server.wait()
    return table


COUNTING = """import os, runpy, sys
os.write(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), b"started\\n")
sys.argv = sys.argv[2:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Notes its own start, then becomes the program it is given: a process that was started cannot go uncounted."""


def of_second_start(servers: int, folder: Path) -> dict[str, float]:
    """`outrider discover` of so many stdio servers, each time from a new process: first unknown, then remembered."""
    program, notes, config = folder / "counting.py", folder / "started", folder / "servers.json"
    program.write_text(COUNTING)
    notes.touch()
    root = Path(__file__).resolve().parents[1]
    sdk = root / ".dev" / "python-modern" / "bin" / "python"
    is_sdk = sdk.exists()
    python = str(sdk) if is_sdk else sys.executable
    sample = root / "src" / "outrider" / "samples" / "servers.py"
    command = [root / "tests" / "peers" / "servers" / "python_sdk2_high.py", "stdio"] if is_sdk else [sample, "modern"]
    entries = {
        f"server-{n}": {"command": python, "args": [str(program), str(notes), *map(str, command)], "env": {"N": str(n)}}
        for n in range(servers)
    }
    config.write_text(json.dumps({"mcpServers": entries}))
    home = folder / "home"
    home.mkdir()
    environment = {**os.environ, "HOME": str(home)}
    outrider = [sys.executable, "-m", "outrider", "discover", "--config", str(config), "--json"]
    figures: dict[str, float] = {"built with the official SDK": float(is_sdk)}
    for name in ("first", "second", "third", "fourth"):
        before = len(notes.read_text().splitlines())
        began = time.perf_counter()
        done = subprocess.run(outrider, env=environment, capture_output=True, check=False)
        figures[f"{name} start, s"] = time.perf_counter() - began
        figures[f"{name} start, processes"] = len(notes.read_text().splitlines()) - before
        reports = json.loads(done.stdout)["reports"]
        figures[f"{name} start, discovered"] = sum(report["ok"] for report in reports)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description="Get and put per store.")
    parser.add_argument("--size", type=int, default=20_000, help="bytes of one answer (a list of some fifty tools)")
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--servers", type=int, default=50, help="stdio servers for the second start; 0 leaves it out")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = asyncio.run(measure(arguments.size, arguments.rounds, Path(folder)))
    columns = ["store get", "store put", "memory hit", "memory load and put", "invalidate"]
    print(
        f"microseconds per operation, {arguments.size} byte answers, Python {platform.python_version()}, {sys.platform}"
    )
    print(f"{'':18}" + "".join(f"{column:>21}" for column in columns))
    for name, figures in table.items():
        print(f"{name:18}" + "".join(f"{figures[c]:>21.1f}" if c in figures else f"{'':>21}" for c in columns))
    if "diskcache" in table:
        ours, theirs = table["SQLite"], table["diskcache"]
        gets, puts = theirs["store get"] / ours["store get"], theirs["store put"] / ours["store put"]
        print(f"SQLite against diskcache: get {gets:.2f} times as fast, put {puts:.2f} times as fast")
    if arguments.servers:
        with tempfile.TemporaryDirectory() as folder:
            figures = of_second_start(arguments.servers, Path(folder))
        print(f"\n`outrider discover` of {arguments.servers} stdio servers, each time a new process")
        for name, figure in figures.items():
            print(f"  {name:32}{figure:10.2f}")


if __name__ == "__main__":
    main()
