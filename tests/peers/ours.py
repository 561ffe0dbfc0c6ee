"""Our own server as the peers see it: a process started the way a user would start it."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OUTRIDER = str(Path(sys.executable).with_name("outrider"))
EVERYTHING = str(ROOT / "examples" / "everything_server.py")

START_TIMEOUT_S = 60.0


class ServerFailed(Exception):
    """The server ended, or did not listen in time."""


@contextmanager
def serving_everything() -> Iterator[str]:
    """Runs ``outrider run examples/everything_server.py --http`` on a free port of the loopback interface; gives its URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [OUTRIDER, "run", EVERYTHING, "--http", f"127.0.0.1:{port}"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL) as process:
        try:
            _wait_until_it_listens(process, port)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.terminate()
            try:
                process.wait(START_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


def _wait_until_it_listens(process: subprocess.Popen[bytes], port: int) -> None:
    """Returns when the port accepts connections. What it waits for in between is the process's end."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=START_TIMEOUT_S).close()
        except ConnectionRefusedError:
            try:
                process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
            raise ServerFailed(f"the server ended with exit code {process.returncode} before it listened") from None
        else:
            return
    raise ServerFailed(f"the server did not listen within {START_TIMEOUT_S:g} s")
