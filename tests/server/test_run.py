"""`outrider run`: finding the server, binding, shutting down."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from outrider.errors import ConfigError
from outrider.server.run import load_server, parse_address
from server.asgi import meta
from server.serving import OUTRIDER, PROGRAM, STOP_TIMEOUT_S, Served, serving


def post(served: Served, method: str, params: Any = None, *, close: bool = True) -> socket.socket:
    """A request on a connection of its own, which is returned for reading."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {**(params or {}), "_meta": meta()}})
    connection = served.connect()
    name = f"Mcp-Name: {params['name']}\r\n" if params and "name" in params else ""
    connection.sendall(
        f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
        f"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n{name}Content-Length: {len(body)}\r\n"
        f"{'Connection: close' if close else 'X: y'}\r\n\r\n{body}".encode()
    )
    return connection


def read_until(connection: socket.socket, marker: bytes | None) -> bytes:
    """What arrives up to and including a marker, or to the end."""
    found = b""
    while marker is None or marker not in found:
        chunk = connection.recv(65536)
        if not chunk:
            assert marker is None, found
            break
        found += chunk
    return found


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8000", ("127.0.0.1", 8000)),
        (":9000", ("127.0.0.1", 9000)),
        ("9000", ("127.0.0.1", 9000)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),
        ("[::1]:8080", ("::1", 8080)),
        ("localhost", ("localhost", 8000)),
        ("", ("127.0.0.1", 8000)),
    ],
)
def test_address_is_loopback_unless_told_otherwise(text: str, address: tuple[str, int]) -> None:
    """Spec: 2026-07-28 streamable-http#security--endpoint (SHOULD bind only to localhost)"""
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["a:b", "host:99999", "host:-1"])
def test_nonsense_is_no_address(text: str) -> None:
    """Ours."""
    with pytest.raises(ConfigError, match="--http"):
        parse_address(text)


def write(tmp_path: Path, text: str, name: str = "served_file.py") -> str:
    path = tmp_path / name
    path.write_text(f"from outrider.server import Server\n{text}\n")
    return str(path)


def test_server_is_found_by_name_or_alone(tmp_path: Path) -> None:
    """Ours: `FILE.py` when there is one, `FILE.py:NAME` when there are several."""
    assert load_server(write(tmp_path, "x = Server('only', version='1')\nalias = x")).name == "only"
    two = write(tmp_path, "a = Server('a', version='1')\nb = Server('b', version='1')")
    assert load_server(f"{two}:b").name == "b"
    with pytest.raises(ConfigError, match="it has a, b"):
        load_server(two)


def test_neighbours_can_be_imported_and_annotations_resolve(tmp_path: Path) -> None:
    """Ours: as with `python FILE.py`."""
    write(tmp_path, "LIMIT = 5", "neighbour_of_it.py")
    text = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\nfrom neighbour_of_it import LIMIT\n"
        "@dataclass\nclass P:\n    x: int\ns = Server('s', version=str(LIMIT))\n@s.tool\ndef f(p: P) -> P:\n    return p\n"
    )
    path = tmp_path / "served_with_neighbour.py"
    path.write_text(
        text.replace(
            "from __future__ import annotations\n",
            "from __future__ import annotations\nfrom outrider.server import Server\n",
        )
    )
    assert load_server(str(path)).registry.identity["version"] == "5"


def test_file_called_like_a_library_does_not_replace_it(tmp_path: Path) -> None:
    """Ours."""
    import uvicorn

    assert load_server(write(tmp_path, "s = Server('s', version='1')", "uvicorn.py")).name == "s"
    assert sys.modules["uvicorn"] is uvicorn


@pytest.mark.parametrize(
    ("text", "suffix", "words"),
    [
        ("", "", "it has none"),
        ("x = 1", ":x", "no Server named x"),
        ("x = 1", ":y", "no Server named y"),
        ("raise ValueError('boom')", "", "ValueError: boom"),
        ("import nothing_of_that_name", "", "ModuleNotFoundError"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, text: str, suffix: str, words: str) -> None:
    """Ours: one sentence, no traceback."""
    with pytest.raises(ConfigError, match=words):
        load_server(write(tmp_path, text) + suffix)


@pytest.mark.parametrize(
    "arguments",
    [["missing.py"], [str(PROGRAM) + ":nobody"], [str(PROGRAM), "--http", "nonsense:x"], [str(PROGRAM.parent)]],
)
def test_command_explains_and_exits_with_2(arguments: list[str]) -> None:
    """Ours: usage and configuration errors are exit code 2, never a traceback, nothing on standard output."""
    done = subprocess.run(
        [OUTRIDER, "run", *arguments], capture_output=True, text=True, timeout=STOP_TIMEOUT_S, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_port_in_use_is_said() -> None:
    """Ours."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = subprocess.run(
            [OUTRIDER, "run", str(PROGRAM), "--http", address],
            capture_output=True,
            text=True,
            timeout=STOP_TIMEOUT_S,
            check=False,
        )
    assert done.returncode == 2
    assert "cannot listen on" in done.stderr


def test_command_speaks_stdio_without_an_address() -> None:
    """Ours: the default transport."""
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta()}})
    done = subprocess.run(
        [OUTRIDER, "run", str(PROGRAM)],
        input=line + "\n",
        capture_output=True,
        text=True,
        timeout=STOP_TIMEOUT_S,
        check=True,
    )
    assert json.loads(done.stdout)["result"]["instructions"] == "A server for tests."


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_shutdown_ends_streams_properly_and_lets_work_finish(name: str) -> None:
    """Ours: at the signal, listen streams end with their result, a running call gets its answer, the process ends by itself."""
    with serving() as served:
        filter_ = {"notifications": {"toolsListChanged": True}}
        with (
            post(served, "subscriptions/listen", filter_, close=False) as listening,
            post(served, "tools/call", {"name": "wait", "arguments": {"seconds": 0.5}}) as working,
            served.connect() as health,
        ):
            read_until(listening, b"acknowledged")
            health.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert b'{"status":"ok"}' in read_until(health, None)
            served.process.send_signal(getattr(signal, name))
            assert b'"resultType":"complete"' in read_until(listening, None)
            assert b'"text":"waited"' in read_until(working, None)
            served.process.wait(STOP_TIMEOUT_S)
    assert not [line for line in served.errors if "Traceback" in line], served.errors


def test_imports_of_a_stdio_server_are_light() -> None:
    """Ours: a stdio server loads no HTTP transport, no cipher and no schema validator before it needs them."""
    script = (
        "import json, sys\nfrom outrider.server import Server\ns = Server('s', version='1')\n"
        "@s.tool\ndef f(a: int) -> int:\n    return a\n"
        "import outrider.server.stdio\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    loaded = set(json.loads(done.stdout))
    foreign = {"uvicorn", "cryptography", "jsonschema_rs", "aiohttp", "click", "pydantic"}
    slow = {"secrets", "random", "hashlib", "difflib"}
    assert not loaded & {*foreign, *slow, "outrider.client", "outrider.server.http"}
