"""A process with a memory on a shared store. Reads one JSON command per line, writes one JSON line per outcome.

Arguments: the store (a SQLite path or a Valkey URL), the upstream's port, the Valkey prefix, a limit on file sizes in
bytes (0 for none)."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from typing import Any

from outrider.cache import EraVerdict, Evidence, Memory, Peer, Store
from outrider.cache.sqlite import SqliteStore
from outrider.cache.valkey import ValkeyStore
from outrider.protocol.freshness import Policy, request_key
from outrider.protocol.versions import Era

TARGET = "t" * 32


def say(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


async def main(location: str, port: int, prefix: str, rlimit_fsize: int) -> None:
    if rlimit_fsize:
        resource.setrlimit(resource.RLIMIT_FSIZE, (rlimit_fsize, rlimit_fsize))
    store: Store = ValkeyStore(location, prefix=prefix) if "://" in location else SqliteStore(location)
    memory = Memory(store, on_trouble=lambda error: say(trouble=str(error)))
    key = request_key("tools/list")

    async def load() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
        writer.write(b"list\n")
        try:
            return await reader.readuntil(b"\n")
        finally:
            writer.close()

    announcing = False
    lease = store.lease

    async def announced_lease(name: str, holder: str, duration_ms: int) -> bool:
        nonlocal announcing
        held = await lease(name, holder, duration_ms)
        if announcing:
            announcing = False
            say(held=held)
        return held

    store.lease = announced_lease  # type: ignore[method-assign]

    async def obey(command: dict[str, Any]) -> None:
        nonlocal announcing
        announcing = command.get("announce", False)
        peer = Peer(TARGET, command.get("context", "c"))
        policy = Policy(**command.get("policy", {}))
        match command["do"]:
            case "fetch":
                answer = await memory.fetch(peer, key, load, policy=policy, refresh=command.get("refresh", False))
                say(source=answer.source, state=answer.freshness.state, value=json.loads(answer.value))
            case "get":
                found = await memory.get(peer, key)
                say(found=found is not None, state=found.freshness.state if found else None)
            case "hits":
                # Until the answer is no longer fresh; then the moment at which that was seen.
                hits = 0
                while (found := await memory.get(peer, key)) is not None and found.freshness.fresh:
                    hits += 1
                    if hits == 1:
                        say(watching=True)
                    await asyncio.sleep(0)
                say(hits=hits, seen_ns=time.monotonic_ns())
            case "watch":
                memory.watch(lambda target, method: say(target=target, method=method, seen_ns=time.monotonic_ns()))
                await memory.get(peer, key)
                say(watching=True)
            case "invalidate":
                await memory.invalidate(TARGET, "tools/list")
                say(done_ns=time.monotonic_ns())
            case "remember":
                kept = await memory.remember_era(TARGET, EraVerdict(era=Era.LEGACY, evidence=Evidence.HANDSHAKE))
                say(kept=kept)
            case "fill":
                # Writes for as long as it lives.
                say(filling=True)
                number = 0
                while True:
                    number += 1
                    filler = json.dumps({"tools": [{"name": f"{number}", "d": "x" * 20_000}], "ttlMs": 600_000})

                    async def loaded(text: str = filler) -> bytes:
                        return text.encode()

                    await memory.fetch(
                        peer, request_key("tools/list", {"cursor": str(number % 50)}), loaded, refresh=True
                    )
                    if number % 20 == 0:
                        say(written=number)

    loop = asyncio.get_running_loop()
    commands = asyncio.StreamReader(limit=2**20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    say(ready=True)
    async with asyncio.TaskGroup() as tasks:
        while line := await commands.readline():
            tasks.create_task(obey(json.loads(line)))
    await memory.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
