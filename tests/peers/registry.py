"""The table of peer servers: what each is, how it is started, and what it must answer.

A test that should hold against every implementation is parametrized over ``PEERS`` (or ``STDIO_PEERS``, ``HTTP_PEERS``) and takes the
fixtures of ``tests/conftest.py``::

    @pytest.mark.interop
    @pytest.mark.parametrize("peer", STDIO_PEERS, ids=str)
    async def test_something(peer: Peer, installed_peer: Peer) -> None: ...
        # start installed_peer.command

    @pytest.mark.interop
    @pytest.mark.parametrize("peer", HTTP_PEERS, ids=str)
    async def test_something(peer: Peer, peer_url: str) -> None: ...
        # connect to peer_url

The eras are what the servers were seen to do. Those on the modern SDKs also serve ``initialize``; their answer to
``server/discover`` names modern versions only, so a client that probes finds them modern.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from peers.provision import NODE, PYTHON_LEGACY, PYTHON_MODERN, Environment

SERVERS = Path(__file__).resolve().parent / "servers"
NPM = NODE.path / "node_modules" / "@modelcontextprotocol"
# What the filesystem server may see. Nothing is written there.
SHOWN_DIRECTORY = Path(__file__).resolve().parent / "node"

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
# A port that was free a moment ago can be taken when the peer binds it.
PORT_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call and the text of the first content item in its answer."""

    tool: str
    arguments: Mapping[str, object]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One way to start one server.

    Attributes:
        id: Unique, and readable in a test's name.
        environment: Where it is installed.
        era: What a client that probes it should conclude.
        transport: ``stdio``, ``http`` (streamable HTTP) or ``sse`` (HTTP+SSE of 2024-11-05).
        arguments: What follows the interpreter on its command line.
        tools: The names of its tools, complete for a client that declares no capabilities (some servers offer more to others).
        call: A call that works without preparation.
        prompt: The name of a prompt and its arguments, or None if it has no prompts.
        resource: The URI of a resource, or None if it has no resources.
        path: For those that cannot choose a port themselves: the path of the URL. They get the port in ``PORT``.
    """

    id: str
    environment: Environment
    era: Literal["modern", "legacy"]
    transport: Literal["stdio", "http", "sse"]
    arguments: tuple[str, ...]
    tools: frozenset[str]
    call: Call
    prompt: tuple[str, Mapping[str, str]] | None = None
    resource: str | None = None
    path: str | None = None

    @property
    def command(self) -> list[str]:
        """The command that starts it; over stdio, this is the server."""
        interpreter = self.environment.node if self.environment is NODE else self.environment.python
        return [str(interpreter), *self.arguments]

    def __str__(self) -> str:
        return self.id


def _sample(
    name: str,
    environment: Environment,
    era: Literal["modern", "legacy"],
    transport: Literal["stdio", "http", "sse"],
    *program: str,
) -> Peer:
    """One of the servers beside this file, which all offer the same."""
    return Peer(
        id=f"{name}-{transport}",
        environment=environment,
        era=era,
        transport=transport,
        arguments=(*program, transport),
        tools=frozenset({"add", "echo"}),
        call=Call("add", {"a": 2, "b": 3}, "5"),
        prompt=("greet", {"name": "Ada"}),
        resource="memo://greeting",
    )


def _python(file: str) -> str:
    return str(SERVERS / file)


EVERYTHING_TOOLS = frozenset(
    {
        "echo",
        "get-annotated-message",
        "get-env",
        "get-resource-links",
        "get-resource-reference",
        "get-structured-content",
        "get-sum",
        "get-tiny-image",
        "gzip-file-as-resource",
        "simulate-research-query",
        "toggle-simulated-logging",
        "toggle-subscriber-updates",
        "trigger-long-running-operation",
    }
)
FILESYSTEM_TOOLS = frozenset(
    {
        "create_directory",
        "directory_tree",
        "edit_file",
        "get_file_info",
        "list_allowed_directories",
        "list_directory",
        "list_directory_with_sizes",
        "move_file",
        "read_file",
        "read_media_file",
        "read_multiple_files",
        "read_text_file",
        "search_files",
        "write_file",
    }
)
MEMORY_TOOLS = frozenset(
    {
        "add_observations",
        "create_entities",
        "create_relations",
        "delete_entities",
        "delete_observations",
        "delete_relations",
        "open_nodes",
        "read_graph",
        "search_nodes",
    }
)


def _everything(transport: Literal["stdio", "http", "sse"], mode: str, path: str | None = None) -> Peer:
    return Peer(
        id=f"npm-everything-{transport}",
        environment=NODE,
        era="legacy",
        transport=transport,
        arguments=(str(NPM / "server-everything" / "dist" / "index.js"), mode),
        tools=EVERYTHING_TOOLS,
        call=Call("echo", {"message": "hello"}, "Echo: hello"),
        prompt=("simple-prompt", {}),
        resource="demo://resource/static/document/features.md",
        path=path,
    )


TYPESCRIPT = (str(SERVERS / "typescript_sdk2.mjs"), str(NODE.path))

PEERS: tuple[Peer, ...] = (
    _sample("python-sdk2-high", PYTHON_MODERN, "modern", "stdio", _python("python_sdk2_high.py")),
    _sample("python-sdk2-high", PYTHON_MODERN, "modern", "http", _python("python_sdk2_high.py")),
    _sample("python-sdk2-high", PYTHON_MODERN, "legacy", "sse", _python("python_sdk2_high.py")),
    _sample("python-sdk2-low", PYTHON_MODERN, "modern", "stdio", _python("python_sdk2_low.py")),
    _sample("python-sdk2-low", PYTHON_MODERN, "modern", "http", _python("python_sdk2_low.py")),
    _sample("fastmcp4", PYTHON_MODERN, "modern", "stdio", _python("fastmcp_server.py")),
    _sample("fastmcp4", PYTHON_MODERN, "modern", "http", _python("fastmcp_server.py")),
    _sample("python-sdk1", PYTHON_LEGACY, "legacy", "stdio", _python("python_sdk1.py")),
    _sample("python-sdk1", PYTHON_LEGACY, "legacy", "http", _python("python_sdk1.py")),
    _sample("python-sdk1", PYTHON_LEGACY, "legacy", "sse", _python("python_sdk1.py")),
    _sample("fastmcp3", PYTHON_LEGACY, "legacy", "stdio", _python("fastmcp_server.py")),
    _sample("fastmcp3", PYTHON_LEGACY, "legacy", "http", _python("fastmcp_server.py")),
    _sample("typescript-sdk2", NODE, "modern", "stdio", *TYPESCRIPT),
    _sample("typescript-sdk2", NODE, "modern", "http", *TYPESCRIPT),
    _everything("stdio", "stdio"),
    _everything("http", "streamableHttp", "/mcp"),
    _everything("sse", "sse", "/sse"),
    Peer(
        id="npm-filesystem-stdio",
        environment=NODE,
        era="legacy",
        transport="stdio",
        arguments=(str(NPM / "server-filesystem" / "dist" / "index.js"), str(SHOWN_DIRECTORY)),
        tools=FILESYSTEM_TOOLS,
        call=Call("list_allowed_directories", {}, f"Allowed directories:\n{SHOWN_DIRECTORY}"),
    ),
    Peer(
        id="npm-memory-stdio",
        environment=NODE,
        era="legacy",
        transport="stdio",
        arguments=(str(NPM / "server-memory" / "dist" / "index.js"),),
        tools=MEMORY_TOOLS,
        call=Call("read_graph", {}, '{\n  "entities": [],\n  "relations": []\n}'),
    ),
    Peer(
        id="npm-sequential-thinking-stdio",
        environment=NODE,
        era="legacy",
        transport="stdio",
        arguments=(str(NPM / "server-sequential-thinking" / "dist" / "index.js"),),
        tools=frozenset({"sequentialthinking"}),
        call=Call(
            "sequentialthinking",
            {"thought": "One.", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1},
            '{\n  "thoughtNumber": 1,\n  "totalThoughts": 1,\n  "nextThoughtNeeded": false,\n  "branches": [],\n'
            '  "thoughtHistoryLength": 1\n}',
        ),
    ),
)

STDIO_PEERS: tuple[Peer, ...] = tuple(peer for peer in PEERS if peer.transport == "stdio")
HTTP_PEERS: tuple[Peer, ...] = tuple(peer for peer in PEERS if peer.transport != "stdio")


@dataclass(slots=True)
class RunningPeer:
    """A peer that serves HTTP, as a process of its own group."""

    url: str
    process: subprocess.Popen[str]
    output: deque[str] = field(default_factory=lambda: deque(maxlen=200))
    reader: threading.Thread | None = None


class PeerFailed(Exception):
    """A peer did not start; the text has its output."""


@contextmanager
def serving(peer: Peer) -> Iterator[RunningPeer]:
    """Runs an HTTP peer on a free port of the loopback interface until the block ends.

    Raises PeerFailed if it does not say that it listens within ``START_TIMEOUT_S``.
    """
    attempts = PORT_ATTEMPTS if peer.path is not None else 1
    for attempt in range(1, attempts + 1):
        try:
            running = _start(peer)
        except PeerFailed:
            if attempt == attempts:
                raise
        else:
            break
    try:
        yield running
    finally:
        _stop(running)


def _start(peer: Peer) -> RunningPeer:
    environment = dict(os.environ)
    url = ""
    if peer.path is not None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        environment["PORT"] = str(port)
        url = f"http://127.0.0.1:{port}{peer.path}"
    process = subprocess.Popen(
        peer.command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    running = RunningPeer(url, process)
    ready = threading.Event()

    def read() -> None:
        """Keeps the pipe empty for as long as the peer lives, so that it never blocks on its own logging."""
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                running.output.append(line)
                if announced := re.search(r"listening on (http://\S+)", line):
                    running.url = announced[1]
                    ready.set()
                elif re.search(r"(listening|running) on port", line):
                    ready.set()
        ready.set()

    running.reader = threading.Thread(target=read, name=f"output of {peer.id}", daemon=True)
    running.reader.start()
    if not ready.wait(START_TIMEOUT_S) or not running.url or process.poll() is not None:
        _stop(running)
        raise PeerFailed(f"{peer.id} did not start: {' '.join(peer.command)}\n{''.join(running.output)}")
    return running


def _stop(running: RunningPeer) -> None:
    """Ends a peer and whatever it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(running.process.pid, number)
            running.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            pass
        break
    running.process.wait()
    if running.reader is not None:
        running.reader.join(STOP_TIMEOUT_S)
