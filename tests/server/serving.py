"""Starts `outrider run` as a user would, over HTTP, and stops it."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

OUTRIDER = str(Path(sys.executable).with_name("outrider"))
PROGRAM = Path(__file__).with_name("program.py")
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0


@dataclass
class Served:
    """A server process.

    Attributes:
        url: Its MCP endpoint.
        process: The process.
        errors: What it has written to standard error so far, line by line.
    """

    url: str
    process: subprocess.Popen[str]
    errors: list[str]

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.url.rpartition(":")[2].partition("/")[0])

    def connect(self) -> socket.socket:
        """A plain connection to it."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=STOP_TIMEOUT_S)


@contextmanager
def serving(
    target: Path = PROGRAM, *options: str, port: int = 0, environment: Mapping[str, str] | None = None
) -> Iterator[Served]:
    """A running server, on a free port unless one is given."""
    command = [OUTRIDER, "run", str(target), "--http", f"127.0.0.1:{port}", *options]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stderr is not None
        stream = process.stderr
        errors: list[str] = []
        listening = threading.Event()

        def read() -> None:
            for line in stream:
                errors.append(line.rstrip())
                if " serves MCP at " in line:
                    listening.set()
            listening.set()

        reader = threading.Thread(target=read)
        reader.start()
        try:
            assert listening.wait(START_TIMEOUT_S), "the server did not start in time"
            found = re.search(r"http://\S+", "\n".join(errors))
            assert found, "\n".join(errors)
            yield Served(found[0], process, errors)
        finally:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise
            finally:
                reader.join()
