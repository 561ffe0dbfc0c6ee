"""Clocks that tests move, stores of all kinds, a real Valkey, and worker processes that share a store."""

from __future__ import annotations

import asyncio
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider.cache import InProcessStore, Store
from outrider.cache.answers import Clock
from outrider.cache.sqlite import SqliteStore
from outrider.cache.valkey import ValkeyStore
from peers.provision import VALKEY, Service

DEADLINE_S = 30.0


class HandClock:
    """A wall clock and a monotonic clock that move only by hand."""

    def __init__(self) -> None:
        self.wall_ms = 1_800_000_000_000
        self.mono_ms = 5_000

    def pass_time(self, ms: int) -> None:
        self.wall_ms += ms
        self.mono_ms += ms

    def jump(self, ms: int) -> None:
        """Sets the wall clock, as a user or NTP would."""
        self.wall_ms += ms

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.wall_ms, lambda: self.mono_ms)


@pytest.fixture
def hand_clock() -> HandClock:
    return HandClock()


# --- Valkey
# ------------------------------------------------------------------------------------------------------------------


class ValkeyServer:
    """A real server on a free port of 127.0.0.1 that keeps its data across restarts."""

    def __init__(self, program: str, folder: Path) -> None:
        self.program, self.folder = program, folder
        self.process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"valkey://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        for _ in range(5):
            if not self.port:
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", 0))
                    port = probe.getsockname()[1]
            else:
                port = self.port
            self.process = subprocess.Popen(
                [
                    *(self.program, "--port", str(port), "--bind", "127.0.0.1", "--daemonize", "no"),
                    *("--dir", str(self.folder), "--save", "", "--appendonly", "yes", "--appendfsync", "always"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            if self._is_ready():
                self.port = port
                return
            self.kill()
        raise RuntimeError("the Valkey server does not start")

    def _is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.stdout is not None
        deadline = time.monotonic() + DEADLINE_S
        output = b""
        # Unbuffered: select() knows nothing of what a buffer has already taken.
        while select.select([self.process.stdout], [], [], max(deadline - time.monotonic(), 0))[0]:
            chunk = os.read(self.process.stdout.fileno(), 65536)
            output += chunk
            if b"eady to accept connections" in output:
                return True
            if not chunk:
                break
        return False

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None


@pytest.fixture(scope="session")
def valkey_server(
    request: pytest.FixtureRequest, service: Callable[[Service], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ValkeyServer]:
    """One that stays up for all tests; each takes a prefix of its own."""
    server = ValkeyServer(service(VALKEY), tmp_path_factory.mktemp("valkey"))
    server.start()
    assert server.process is not None
    for plugin in request.config.pluginmanager.get_plugins():
        if hasattr(plugin, "KEPT_PROCESSES"):
            request.config.stash[plugin.KEPT_PROCESSES].add(server.process.pid)
    yield server
    server.kill()


@pytest.fixture
def own_valkey_server(service: Callable[[Service], str], tmp_path: Path) -> Iterator[ValkeyServer]:
    """One that the test may kill and start again."""
    server = ValkeyServer(service(VALKEY), tmp_path)
    server.start()
    yield server
    server.kill()


# --- stores
# ------------------------------------------------------------------------------------------------------------------

OpenStore = Callable[[], Store]


@pytest.fixture(params=["in-process", "sqlite", pytest.param("valkey", marks=pytest.mark.service)])
async def open_store(request: pytest.FixtureRequest, tmp_path: Path, hand_clock: HandClock) -> AsyncIterator[OpenStore]:
    """Opens a store of each kind; further ones share what the first has, where that kind can."""
    opened: list[Store] = []

    def wall_ms() -> int:
        return hand_clock.wall_ms

    def open_one() -> Store:
        store: Store
        if request.param == "in-process":
            store = InProcessStore(clock=wall_ms)
        elif request.param == "sqlite":
            store = SqliteStore(tmp_path / "m.sqlite3", clock=wall_ms)
        else:
            server: ValkeyServer = request.getfixturevalue("valkey_server")
            store = ValkeyStore(server.url, prefix=tmp_path.name, timeout_s=DEADLINE_S, clock=wall_ms)
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        await store.close()


# --- worker processes
# --------------------------------------------------------------------------------------------------------


class Upstream:
    """Stands in for an MCP server that many processes ask: counts requests, and answers when it is told to."""

    def __init__(self) -> None:
        self.requests = 0
        self.answer: dict[str, Any] = {"tools": [{"name": "a"}], "ttlMs": 600_000, "cacheScope": "private"}
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = asyncio.Condition()
        self.port = 0
        self._connections: set[asyncio.StreamWriter] = set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            await reader.readline()
            answer = json.dumps(self.answer)
            async with self.asked:
                self.requests += 1
                self.asked.notify_all()
            await self.gate.wait()
            writer.write(answer.encode() + b"\n")
            await writer.drain()
        except OSError:
            pass
        finally:
            self._connections.discard(writer)
            writer.close()

    async def wait_for_requests(self, count: int) -> None:
        async with asyncio.timeout(DEADLINE_S), self.asked:
            await self.asked.wait_for(lambda: self.requests >= count)

    async def __aenter__(self) -> Upstream:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.gate.set()
        self._server.close()
        for writer in list(self._connections):
            writer.close()
        await self._server.wait_closed()


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with Upstream() as server:
        yield server


class Worker:
    """A process with a memory of its own on a shared store; see worker.py for what it understands."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def tell(self, **command: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        await self.process.stdin.drain()

    async def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            line = await self.process.stdout.readline()
        assert line, "the worker ended"
        heard: dict[str, Any] = json.loads(line)
        return heard

    async def ask(self, **command: Any) -> dict[str, Any]:
        await self.tell(**command)
        return await self.hear()


StartWorker = Callable[..., Any]


@pytest.fixture
async def start_worker() -> AsyncIterator[StartWorker]:
    workers: list[Worker] = []

    async def start(location: str, port: int, *, prefix: str = "outrider", rlimit_fsize: int = 0) -> Worker:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(Path(__file__).with_name("worker.py")),
            location,
            str(port),
            prefix,
            str(rlimit_fsize),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=2**24,
        )
        worker = Worker(process)
        workers.append(worker)
        assert (await worker.hear())["ready"]
        return worker

    yield start
    for worker in workers:
        if worker.process.returncode is None:
            worker.process.kill()
        assert worker.process.stdin is not None
        worker.process.stdin.close()
        await worker.process.wait()
