"""stdio: one connection in this process, and real processes with real pipes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from outrider.server import Context, Server, ServerOptions
from outrider.server.stdio import StdioConnection
from server.asgi import DEADLINE_S, meta

SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"


def make(**options: Any) -> Server:
    server = Server("s", version="1", options=ServerOptions(**options))
    gate = asyncio.Event()
    server.gate = gate  # type: ignore[attr-defined]

    @server.tool(inline=True)
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def wait(ctx: Context) -> str:
        ctx.progress(1)
        await gate.wait()
        ctx.progress(2)
        return "waited"

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("?", {"type": "object", "properties": {}}, key="k")
        return answer.action

    server.resource("x://w", lambda: "w", name="w", subscribable=True)
    return server


class Peer:
    """The client's end of one connection."""

    def __init__(self, server: Server, *, legacy: bool = True) -> None:
        self.lines: list[Any] = []
        self._changed = asyncio.Condition()
        self._raw = b""
        self.connection = StdioConnection(server, write=self._write, legacy=legacy)

    def _write(self, data: bytes) -> None:
        assert data.endswith(b"\n")
        self.lines += [json.loads(line) for line in data.splitlines()]
        asyncio.get_running_loop().create_task(self._notify())

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def send(self, *messages: Any) -> None:
        self.connection.feed(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    async def until(self, count: int) -> list[Any]:
        async with asyncio.timeout(DEADLINE_S), self._changed:
            await self._changed.wait_for(lambda: len(self.lines) >= count)
        return self.lines


def request(method: str, params: Any = None, *, id: Any = 1, **more: Any) -> Any:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": {**(params or {}), "_meta": meta(**more)}}


def call(name: str, arguments: Any = None, **options: Any) -> Any:
    return request("tools/call", {"name": name, "arguments": arguments or {}}, **options)


def cancelled(request_id: Any) -> Any:
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}}


async def test_requests_are_answered_in_one_write_per_chunk() -> None:
    """Ours: what is answered from bytes is answered while the chunk is read."""
    writes: list[bytes] = []
    connection = StdioConnection(make(), write=writes.append)
    chunk = b"".join(json.dumps(request("server/discover", id=n)).encode() + b"\n" for n in range(100))
    connection.feed(chunk)
    (written,) = writes
    assert [json.loads(line)["id"] for line in written.splitlines()] == list(range(100))


async def test_any_chunking_gives_the_same_answers() -> None:
    """Ours: down to single bytes, with CRLF, empty lines and a byte order mark."""
    peer = Peer(make())
    data = b"\xef\xbb\xbf" + b"\r\n\n".join(
        json.dumps(message).encode() for message in (request("server/discover"), call("add", {"a": 1, "b": 2}, id="é"))
    )
    for position in range(len(data)):
        peer.connection.feed(data[position : position + 1])
    peer.connection.feed(b"\n")
    assert [line["id"] for line in peer.lines] == [1, "é"]


async def test_bad_lines_cost_themselves_only() -> None:
    """Ours: every line that is no message gets its error, and the next one is served."""
    peer = Peer(make())
    peer.connection.feed(b'\xff\n{"a"\n[]\n42\n   \n' + b"x" * (17 * 1024 * 1024) + b"\n")
    peer.send(request("server/discover", id=7))
    assert [line.get("id") for line in peer.lines] == [None, None, None, None, None, 7]
    assert [line["error"]["code"] for line in peer.lines[:5]] == [-32700, -32700, -32600, -32600, -32700]


async def test_requests_overlap() -> None:
    """Spec: 2026-07-28 basic/transports/stdio: messages share one channel and are told apart by id."""
    server = make()
    peer = Peer(server)
    peer.send(call("wait", id="slow", progressToken="t"), call("add", {"a": 1, "b": 2}, id="fast"))
    await peer.until(2)
    assert {line.get("id") for line in peer.lines} == {"fast", None}
    server.gate.set()  # type: ignore[attr-defined]
    lines = await peer.until(4)
    assert lines[-1]["id"] == "slow"
    assert [line["params"]["progress"] for line in lines if line.get("method")] == [1, 2]


@pytest.mark.parametrize("request_id", [1, 0, "x", ""])
async def test_cancelled_request_is_stopped_and_never_answered(request_id: Any) -> None:
    """Spec: 2026-07-28 basic/transports/stdio#cancellation (MUST NOT send any further messages)"""
    server = make()
    peer = Peer(server)
    peer.send(call("wait", id=request_id, progressToken=1))
    await peer.until(1)
    peer.send(*map(cancelled, ["other", 999, None, [], request_id, request_id]))
    peer.send({"jsonrpc": "2.0", "method": "notifications/cancelled"})
    server.gate.set()  # type: ignore[attr-defined]
    await peer.connection.close()
    assert len(peer.lines) == 1
    peer.send(call("add", {"a": 1, "b": 1}, id=request_id))
    assert peer.lines[-1]["result"]["structuredContent"] == 2


async def test_id_in_use_is_refused() -> None:
    """Spec: 2026-07-28 basic/index#requests (MUST NOT reuse an id that is in use)"""
    server = make()
    peer = Peer(server)
    listen = request("subscriptions/listen", {"notifications": {}}, id="l")
    peer.send(call("wait", id=1), listen, call("wait", id=1), listen)
    await peer.until(3)
    assert [line["error"]["code"] for line in peer.lines if "error" in line] == [-32600, -32600]
    server.gate.set()  # type: ignore[attr-defined]
    await peer.connection.close()


async def test_several_streams_share_the_pipe() -> None:
    """Spec: 2026-07-28 basic/patterns/subscriptions: correlated by subscription id; cancelled by notification."""
    server = make()
    peer = Peer(server)
    everything = {"toolsListChanged": True, "resourceSubscriptions": ["x://w"]}
    peer.send(
        request("subscriptions/listen", {"notifications": everything}, id=1),
        request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id="two"),
    )
    assert [line["method"] for line in peer.lines] == ["notifications/subscriptions/acknowledged"] * 2
    server.remove_tool("ask")
    server.resource_updated("x://w")
    await peer.until(5)
    assert sorted(
        (line["method"].rpartition("/")[2], str(line["params"]["_meta"][SUBSCRIPTION_ID])) for line in peer.lines[2:]
    ) == [("list_changed", "1"), ("list_changed", "two"), ("updated", "1")]
    peer.send(cancelled(1))
    server.remove_tool("add")
    lines = await peer.until(6)
    assert lines[-1]["params"]["_meta"][SUBSCRIPTION_ID] == "two"
    assert len(server.subscriptions) == 1
    await peer.connection.close()


async def test_server_ends_streams_in_an_orderly_way() -> None:
    """Spec: 2026-07-28 basic/patterns/subscriptions#graceful-closure (SHOULD), basic/patterns/cancellation (MUST notify)"""
    server = make()
    peer = Peer(server)
    peer.send(request("subscriptions/listen", {"notifications": {}}, id="l"))
    server.close_streams()
    _, result, cancellation = await peer.until(3)
    assert (result["id"], result["result"]["_meta"][SUBSCRIPTION_ID]) == ("l", "l")
    assert (cancellation["method"], cancellation["params"]) == ("notifications/cancelled", {"requestId": "l"})
    assert len(server.subscriptions) == 0


async def test_stream_with_an_enormous_id_ends_in_order_too() -> None:
    """Spec: 2026-07-28 basic/index#requests: an id is a string or any integer."""
    server = make()
    peer = Peer(server)
    peer.send(request("subscriptions/listen", {"notifications": {}}, id=10**30))
    server.close_streams()
    _, result, cancellation = await peer.until(3)
    assert result["id"] == cancellation["params"]["requestId"] == 10**30


async def test_streams_beyond_the_limit_are_refused() -> None:
    """Ours."""
    peer = Peer(make(max_listeners=1))
    for number in range(2):
        peer.send(request("subscriptions/listen", {"notifications": {}}, id=number))
    assert peer.lines[1]["error"]["code"] == -32603


def initialize(version: str = "2025-11-25", capabilities: Any = None) -> Any:
    params = {
        "protocolVersion": version,
        "capabilities": capabilities or {},
        "clientInfo": {"name": "c", "version": "1"},
    }
    return {"jsonrpc": "2.0", "id": 100, "method": "initialize", "params": params}


async def test_discovery_pins_nothing() -> None:
    """Ours: a client may discover, be refused, discover again and then initialize on the same pipe; both eras go on side by side."""
    peer = Peer(make())
    peer.send(
        request("server/discover", id=1),
        request("server/discover", id=2, version="1999-01-01"),
        request("server/discover", id=3),
        {"jsonrpc": "2.0", "id": 4, "method": "tools/list"},
        initialize(),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 5, "method": "tools/list"},
        request("tools/list", id=6),
        {"jsonrpc": "2.0", "id": 7, "method": "ping"},
    )
    by_id = {line["id"]: line for line in peer.lines}
    assert by_id[1]["result"]["supportedVersions"][0] == "2026-07-28"
    assert by_id[2]["error"]["code"] == -32022
    assert by_id[4]["error"]["code"] == -32602
    assert by_id[100]["result"]["protocolVersion"] == "2025-11-25"
    assert "resultType" not in by_id[5]["result"]
    assert by_id[6]["result"]["resultType"] == "complete"
    assert by_id[7]["result"] == {}


async def test_modern_only_pipe_names_its_versions() -> None:
    """Spec: 2026-07-28 basic/versioning (SHOULD). Case 141."""
    peer = Peer(make(), legacy=False)
    peer.send(initialize("2024-11-05"))
    error = peer.lines[0]["error"]
    assert (error["code"], error["data"]) == (-32022, {"supported": ["2026-07-28"], "requested": "2024-11-05"})


async def test_legacy_client_is_asked_by_request_and_told_by_notification() -> None:
    """Spec: 2025-11-25 client/elicitation, server/tools#list-changed-notification"""
    server = make()
    peer = Peer(server)
    peer.send(initialize(capabilities={"elicitation": {}}))
    peer.send({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "ask"}})
    question = (await peer.until(2))[1]
    assert question["method"] == "elicitation/create"
    server.remove_tool("add")
    assert (await peer.until(3))[2] == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    peer.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})
    assert (await peer.until(4))[3]["result"]["content"][0]["text"] == "decline"
    peer.send({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "wait"}})
    peer.send({"jsonrpc": "2.0", "id": 4, "method": "resources/read", "params": {"uri": "x://none"}})
    assert (await peer.until(5))[4]["error"]["code"] == -32002
    peer.send(cancelled(3))
    await peer.connection.close()
    assert len(server.subscriptions) == 0


async def test_batch_is_for_the_version_that_had_them() -> None:
    """Spec: 2025-03-26 basic#batching (MUST take them), gone since."""
    batch = [{"jsonrpc": "2.0", "id": n, "method": "ping"} for n in range(3)]
    for version, ids in (("2025-03-26", [0, 1, 2]), ("2025-11-25", [None])):
        peer = Peer(make())
        peer.send(initialize(version), batch)
        assert [line.get("id") for line in peer.lines[1:]] == ids


# Real processes

PROGRAM = """
    import asyncio, os, subprocess, sys, threading, time
    from outrider.server import Context, Server
    server = Server("s", version="1")

    @server.tool
    def noisy() -> str:
        print("printed")
        os.write(1, b"written\\n")
        subprocess.run([sys.executable, "-c", "print('from a child')"])
        return repr(sys.stdin.readline())

    @server.tool
    async def wait() -> str:
        await asyncio.sleep(3600)
        return "never"

    @server.tool
    async def soon() -> str:
        await asyncio.sleep(0.05)
        return "x" * 100_000

    @server.tool
    def stuck() -> str:
        while True:
            time.sleep(0.01)

    server.run()
"""


@contextlib.asynccontextmanager
async def running(tmp_path: Path, **options: Any) -> AsyncIterator[asyncio.subprocess.Process]:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(program), stdin=pipe, stdout=pipe, stderr=pipe, limit=2**26, **options
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def encode(*messages: Any) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


async def test_only_messages_reach_standard_output(tmp_path: Path) -> None:
    """Spec: 2026-07-28 basic/transports/stdio (MUST NOT write anything else): prints, raw writes and children go to standard error."""
    async with running(tmp_path) as process, asyncio.timeout(DEADLINE_S):
        out, err = await process.communicate(encode(call("noisy")))
    (line,) = out.splitlines()
    assert json.loads(line)["result"]["content"][0]["text"] == "''"
    assert {b"printed", b"written", b"from a child"} <= set(err.splitlines())


async def test_process_ends_when_its_input_ends_and_answers_what_it_was_asked(tmp_path: Path) -> None:
    """Spec: 2026-07-28 basic/transports/stdio#shutdown (SHOULD exit promptly); running requests get a moment."""
    messages = [call("soon", id=n) for n in range(50)] + [
        request("subscriptions/listen", {"notifications": {}}, id="l")
    ]
    async with running(tmp_path) as process, asyncio.timeout(DEADLINE_S):
        out, _ = await process.communicate(encode(*messages))
        assert process.returncode == 0
    answers = {json.loads(line).get("id"): json.loads(line) for line in out.splitlines()}
    assert len(answers[49]["result"]["content"][0]["text"]) == 100_000
    assert set(range(50)) <= set(answers)
    assert answers["l"]["result"]["resultType"] == "complete"


async def test_process_ends_as_any_other_when_its_threads_are_idle(tmp_path: Path) -> None:
    """Ours: what the program registered for its end runs, although a worker thread was used."""
    program = tmp_path / "ending.py"
    program.write_text(
        textwrap.dedent(PROGRAM).replace(
            "server.run()", "import atexit\natexit.register(os.write, 2, b'ended')\nserver.run()"
        )
    )
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, str(program), stdin=pipe, stdout=pipe, stderr=pipe)
    async with asyncio.timeout(DEADLINE_S):
        _, err = await process.communicate(encode(call("noisy")))
    assert err.endswith(b"ended")


async def test_process_ends_although_a_thread_is_stuck(tmp_path: Path) -> None:
    """Ours: a function that ignores its cancellation does not outlive its client."""
    async with running(tmp_path) as process, asyncio.timeout(DEADLINE_S):
        await process.communicate(encode(call("stuck"), call("wait", id=2)))
        assert process.returncode == 0


async def test_process_ends_when_nobody_reads(tmp_path: Path) -> None:
    """Ours: a broken pipe is an end, not a traceback."""
    async with running(tmp_path) as process, asyncio.timeout(DEADLINE_S):
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdout._transport.close()  # type: ignore[attr-defined]
        with contextlib.suppress(ConnectionError):
            while process.returncode is None:
                process.stdin.write(encode(*[request("server/discover", id=n) for n in range(200)]))
                await process.stdin.drain()
        await process.wait()
        assert b"Traceback" not in await process.stderr.read()


async def test_slow_reader_gets_every_answer(tmp_path: Path) -> None:
    """Ours: 20 MB of answers through a pipe that is read late: reading pauses, nothing is lost."""
    async with running(tmp_path) as process, asyncio.timeout(DEADLINE_S * 2):
        assert process.stdin
        assert process.stdout
        count = 50_000
        feeding = asyncio.create_task(_feed(process.stdin, count))
        for number in range(count):
            line = await process.stdout.readline()
            assert line.startswith(b'{"jsonrpc":"2.0","id":%d,' % number)
        await feeding


async def _feed(stdin: asyncio.StreamWriter, count: int) -> None:
    for start in range(0, count, 500):
        stdin.write(encode(*[request("server/discover", id=n) for n in range(start, start + 500)]))
        await stdin.drain()
    stdin.close()


def test_files_work_as_standard_streams(tmp_path: Path) -> None:
    """Ours: `program < requests > answers`."""
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    (tmp_path / "in").write_bytes(encode(request("server/discover"), call("soon", id=2)).rstrip(b"\n"))
    with (tmp_path / "in").open("rb") as stdin, (tmp_path / "out").open("wb") as stdout:
        subprocess.run([sys.executable, str(program)], stdin=stdin, stdout=stdout, check=True, timeout=DEADLINE_S)
    answers = [json.loads(line)["id"] for line in (tmp_path / "out").read_bytes().splitlines()]
    assert answers == [1, 2]


@pytest.mark.skipif(os.name != "posix", reason="a POSIX shell")
@pytest.mark.parametrize("streams", ["</dev/null", "<&-", "<&- >&-", "<&- >&- 2>&-", "</dev/null >/dev/null"])
def test_nothing_to_read_is_the_end(tmp_path: Path, streams: str) -> None:
    """Ours: a server that was started with no input, as a service manager or a container does, ends at once and without a word."""
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    command = ["sh", "-c", f'exec "$0" "$1" {streams}', sys.executable, str(program)]
    done = subprocess.run(command, capture_output=True, check=True, timeout=DEADLINE_S)
    assert (done.stdout, done.stderr) == (b"", b"")


@pytest.mark.skipif(os.name != "posix", reason="a POSIX shell")
def test_closed_output_costs_the_answers_only(tmp_path: Path) -> None:
    """Ours: the requests are still not read from the wrong descriptor."""
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    command = ["sh", "-c", 'exec "$0" "$1" >&-', sys.executable, str(program)]
    requests = encode(call("noisy"))
    done = subprocess.run(command, input=requests, capture_output=True, check=True, timeout=DEADLINE_S)
    assert done.stdout == b""
    assert b"written" in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
async def test_signal_ends_the_process(tmp_path: Path, name: str) -> None:
    """Ours: without waiting for anything."""
    async with running(tmp_path) as process, asyncio.timeout(DEADLINE_S):
        assert process.stdin
        assert process.stdout
        process.stdin.write(encode(request("server/discover")))
        await process.stdout.readline()
        process.send_signal(getattr(signal, name))
        assert await process.wait() != 0
