"""Running scripted servers, and asking what they received.

Tests use the fixtures ``fake_stdio`` and ``fake_http``; both take a `Script` and return a `Fake`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.scripts import Script

PROGRAM = Path(__file__).resolve().parent / "server.py"
DEADLINE_S = 30.0
"""Long enough for a machine on which a dozen other things run; only a test that fails waits for it."""

Record = dict[str, Any]


class Recorder:
    """Reads the log of a scripted server as it grows. A thread of its own does, so that no server ever waits for a test."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        # Open for reading and writing, so that the pipe has no end while servers come and go.
        self._descriptor = os.open(path, os.O_RDWR)
        self._records: list[Record] = []
        self._marks = 0
        self._marks_seen = 0
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, name=f"log {path}", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        pending = b""
        while chunk := os.read(self._descriptor, 65_536):
            *lines, pending = (pending + chunk).split(b"\n")
            records = [record for line in lines if (record := _record(line)) is not None]
            with self._changed:
                for record in records:
                    if record["kind"] == "stop":
                        return
                    if record["kind"] == "mark":
                        self._marks_seen += 1
                    else:
                        self._records.append(record)
                self._changed.notify_all()

    def _write(self, kind: str) -> None:
        os.write(self._descriptor, f'\n{{"kind":"{kind}"}}\n'.encode())

    def everything(self) -> list[Record]:
        """All records written before this call."""
        with self._changed:
            self._marks += 1
            wanted = self._marks
            self._write("mark")
            assert self._changed.wait_for(lambda: self._marks_seen >= wanted, DEADLINE_S), "the log is not read"
            return list(self._records)

    def wait_for(self, fits: Callable[[Record], bool], count: int = 1) -> list[Record]:
        """Waits until so many records fit, and returns them."""

        def found() -> list[Record]:
            return [record for record in self._records if fits(record)]

        with self._changed:
            enough = self._changed.wait_for(lambda: len(found()) >= count, DEADLINE_S)
            assert enough, f"waited in vain; the log holds {json.dumps(self._records)[:2000]}"
            return found()

    def close(self) -> None:
        self._write("stop")
        self._thread.join(DEADLINE_S)
        os.close(self._descriptor)


def _record(line: bytes) -> Record | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and "kind" in record else None


class Fake:
    """A scripted server, whether it runs already (HTTP) or is to be started by the client (stdio).

    Attributes:
        command: how it is started; over stdio, the target.
        url: its URL over HTTP, otherwise "".
        directory: a directory of its own, for what a test wants to leave there.
    """

    def __init__(self, script: Script, http: dict[str, Any] | None = None) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="outrider-fake-"))
        self.url = ""
        self._recorder = Recorder(self.directory / "log")
        (self.directory / "script.json").write_text(json.dumps(script.as_json(http)), encoding="utf-8")
        self._gates: dict[str, int] = {}
        for name in script.gates():
            path = self.directory / f"gate-{name}"
            os.mkfifo(path)
            self._gates[name] = os.open(path, os.O_RDWR)
        # Isolated and without site packages: the program is up in a fraction of the time.
        self.command = [sys.executable, "-I", "-S", str(PROGRAM), str(self.directory)]
        self._process: subprocess.Popen[bytes] | None = None

    # -- life ------------------------------------------------------------------------------------------------------------------------

    def serve(self, host: str, path: str, scheme: str = "http") -> None:
        """Starts it as an HTTP server."""
        assert self._process is None, "it is already running"
        started = len([record for record in self.log() if record["kind"] == "listening"])
        self._process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL)
        port = self._recorder.wait_for(lambda record: record["kind"] == "listening", started + 1)[-1]["port"]
        self.port: int = port
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{scheme}://{shown}:{port}{path}"

    def stop(self) -> None:
        """Ends the HTTP server."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        self.stop()
        self._kill_survivors()
        for descriptor in self._gates.values():
            os.close(descriptor)
        self._recorder.close()
        shutil.rmtree(self.directory)

    def _kill_survivors(self) -> None:
        """After a test that failed: nothing that it started outlives it. A process id alone may be somebody else's by now."""
        commands = {record["child"]: record["command"] for record in self.log("child")}
        for pid in self.pids():
            command = commands.get(pid, self.command)
            try:
                runs = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1] == [
                    part.encode() for part in command
                ]
            except OSError:
                continue
            if runs:
                os.kill(pid, signal.SIGKILL)

    def open_gate(self, name: str, times: int = 1) -> None:
        """Lets the script go on behind a gate; ``times`` for several passages."""
        os.write(self._gates[name], b"." * times)

    # -- what happened -----------------------------------------------------------------------------------------------------------------

    def log(self, kind: str | None = None) -> list[Record]:
        """Everything that has happened, or all of one kind: ``spawned``, ``received``, ``eof``, ``closed``, ``note``, ``exit`` …."""
        return [record for record in self._recorder.everything() if kind in (None, record["kind"])]

    def received(self, method: str | None = None) -> list[Record]:
        """What came in, all of it or with one JSON-RPC method: ``line``, ``message``, and over HTTP ``http``, ``path``, ``headers``."""
        return [record for record in self.log("received") if method in (None, _method(record))]

    def messages(self, method: str | None = None) -> list[Any]:
        """The messages of `received`, decoded."""
        return [record["message"] for record in self.received(method) if record["message"] is not None]

    def methods(self) -> list[str]:
        """The methods of all requests and notifications that came in, in order."""
        return [method for record in self.received() if (method := _method(record)) is not None]

    def notes(self) -> list[Any]:
        """What the script noted."""
        return [record["note"] for record in self.log("note")]

    @property
    def spawns(self) -> int:
        """How many processes were started."""
        return len(self.log("spawned"))

    async def wait_for(self, kind: str, method: str | None = None, *, count: int = 1) -> list[Record]:
        """Waits until something has happened, and returns its records."""

        def fits(record: Record) -> bool:
            return record["kind"] == kind and method in (None, _method(record))

        return await asyncio.to_thread(self._recorder.wait_for, fits, count)

    def pids(self) -> set[int]:
        """Every process that was started for it, children of children included."""
        children = {record["child"] for record in self.log("child")}
        return {record["pid"] for record in self.log("spawned")} | children

    def assert_nothing_runs(self) -> None:
        """Every process that was started for it is gone, or goes within the deadline."""
        left = running(self.pids(), DEADLINE_S)
        assert not left, f"still running: {left}"


def _method(record: Record) -> str | None:
    message = record.get("message")
    method = message.get("method") if isinstance(message, dict) else None
    return method if isinstance(method, str) else None


def header(record: Record, name: str) -> str | None:
    """A header of a received HTTP request, or None; several of one name are joined."""
    values = [value for key, value in record["headers"] if key.lower() == name.lower()]
    return ", ".join(values) if values else None


def running(pids: set[int], deadline_s: float) -> set[int]:
    """Which of some processes, children of ours or not, still run when the deadline passes."""
    end = time.monotonic() + deadline_s
    left: set[int] = set()
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            # Readable when the process has ended.
            if not select.select([descriptor], [], [], max(0.0, end - time.monotonic()))[0]:
                left.add(pid)
        finally:
            os.close(descriptor)
    return left


FakeStdio = Callable[[Script], Fake]
FakeHttp = Callable[..., Fake]


@pytest.fixture
def fake_stdio() -> Iterator[FakeStdio]:
    """A function that makes a scripted stdio server: connect to its ``command``. After the test none of its processes may run."""
    with contextlib.ExitStack() as stack:
        fakes: list[Fake] = []

        def make(script: Script) -> Fake:
            fake = Fake(script)
            stack.callback(fake.close)
            fakes.append(fake)
            return fake

        yield make
        for fake in fakes:
            fake.assert_nothing_runs()


@pytest.fixture
def fake_http() -> Iterator[FakeHttp]:
    """A function that starts a scripted HTTP server: connect to its ``url``.

    Options: ``host``, ``path``, ``port``, and ``certificate``, a file with a certificate and its key, for TLS.
    """
    with contextlib.ExitStack() as stack:

        def make(
            script: Script,
            *,
            host: str = "127.0.0.1",
            path: str = "/mcp",
            port: int = 0,
            certificate: Path | None = None,
        ) -> Fake:
            fake = Fake(script, {"host": host, "port": port, "certificate": certificate and str(certificate)})
            stack.callback(fake.close)
            fake.serve(host, path, "http" if certificate is None else "https")
            return fake

        yield make
