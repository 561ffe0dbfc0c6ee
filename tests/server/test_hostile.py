"""Hostile input against a real process: it goes on serving, mixes nobody's data, and gives its memory back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outrider.server import Context, Server
from server.asgi import Caller, meta
from server.serving import STOP_TIMEOUT_S, Served, serving

DEADLINE_S = 300.0
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """One process for all of this."""
    with serving() as running:
        yield running
        assert running.process.poll() is None, running.errors
        assert not [line for line in running.errors if "Traceback" in line], running.errors


def http(body: bytes, *, method: str = "server/discover", name: str | None = None, extra: bytes = b"") -> bytes:
    """A whole HTTP request."""
    named = b"Mcp-Name: %s\r\n" % name.encode() if name else b""
    return (
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n"
        b"Mcp-Method: %s\r\n%s%sContent-Length: %d\r\nConnection: close\r\n\r\n%s"
        % (method.encode(), named, extra, len(body), body)
    )


def message(method: str = "server/discover", params: Any = None, **more: Any) -> bytes:
    own = {**(params or {}), "_meta": meta()}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": own, **more}).encode()


def exchange(served: Served, data: bytes, *, half_close: bool = False) -> bytes:
    """Send bytes as they are and read to the end."""
    with served.connect() as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(data)
            if half_close:
                connection.shutdown(socket.SHUT_WR)
        found = b""
        with contextlib.suppress(ConnectionError):
            while chunk := connection.recv(65536):
                found += chunk
        return found


def is_alive(served: Served) -> bool:
    return b'"supportedVersions"' in exchange(served, http(message()))


META = json.dumps(meta()).encode()
DISCOVER = http(message())
DEEP = 200_000
RAW_CASES = {
    "nothing": b"",
    "garbage": b"\x00\xff\x16\x03\x01" * 200,
    "not http": b"GET\r\n\r\n",
    "unknown method": b"BREW /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    "old http": b"POST /mcp HTTP/0.9\r\n\r\n",
    "half a head": DISCOVER[:60],
    "half a body": DISCOVER[:-20],
    "no length": DISCOVER.replace(b"Content-Length", b"X-Length"),
    "wrong length": DISCOVER.replace(b"Content-Length: ", b"Content-Length: 9"),
    "two lengths": DISCOVER.replace(b"Content-Length: ", b"Content-Length: 1\r\nContent-Length: "),
    "negative length": DISCOVER.replace(b"Content-Length: ", b"Content-Length: -"),
    "bad chunk": DISCOVER.replace(b"Content-Length", b"Transfer-Encoding: chunked\r\nX-Length"),
    "nul in a header": http(message(), extra=b"X: a\x00b\r\n"),
    "line end in a header": http(message(), extra=b"Mcp-Session-Id: a\rEvil: 1\r\n"),
    "huge header": http(message(), extra=b"X: " + b"a" * 1_000_000 + b"\r\n"),
    "many headers": http(message(), extra=b"".join(b"X-%d: 1\r\n" % n for n in range(3000))),
    "huge session id": http(message(), extra=b"Mcp-Session-Id: " + b"a" * 30_000 + b"\r\n"),
    "odd host": DISCOVER.replace(b"Host: localhost", b"Host: \xff\xfe"),
    "odd origin": http(message(), extra=b"Origin: \xff://\xfe\r\n"),
    "odd accept": DISCOVER.replace(b"Accept: ", b"Accept: ;;;q=,,/ "),
    "pipelined": DISCOVER.replace(b"Connection: close\r\n", b"") * 20 + DISCOVER,
}


@pytest.mark.parametrize("data", RAW_CASES.values(), ids=RAW_CASES)
def test_broken_http_costs_its_own_connection_only(data: bytes, served: Served) -> None:
    """Ours."""
    answer = exchange(served, data, half_close=True)
    assert b"HTTP/1.1 500" not in answer
    assert is_alive(served)


def params(text: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":' + META + b',"name":"add",' + text + b"}}"


BODY_CASES = {
    "empty": b"",
    "not utf-8": b"\xb0\xa1",
    "deep arrays": b"[" * DEEP,
    "deep objects": b'{"a":' * DEEP,
    "deep params": b'{"jsonrpc":"2.0","id":1,"method":"x","params":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}",
    "deep meta": b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":' + b"[" * DEEP + b"]" * DEEP + b"}}",
    "deep arguments": params(b'"arguments":{"a":' + b"[" * DEEP + b"]" * DEEP + b"}"),
    "deep unknown member": params(b'"other":' + b"[" * DEEP + b"]" * DEEP),
    "deep input responses": params(b'"inputResponses":{"a":' + b"[" * DEEP + b"]" * DEEP + b"}"),
    "arguments not utf-8": params(b'"arguments":{"a":"\xb0\xa1","b":1}'),
    "lone surrogate": params(b'"arguments":{"a":"\\ud800","b":1}'),
    "nan": params(b'"arguments":{"a":NaN,"b":1}'),
    "infinity": params(b'"arguments":{"a":1e999,"b":1}'),
    "integer beyond python": params(b'"arguments":{"a":' + b"9" * 5000 + b',"b":1}'),
    "id beyond python": b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"x"}',
    "duplicate keys": b'{"jsonrpc":"2.0","id":1,"id":2,"method":"x","method":"server/discover","params":{"_meta":' + META + b"}}",
    "duplicate arguments": params(b'"arguments":{"a":1,"a":"x","b":1}'),
    "many keys": params(b'"arguments":{' + b",".join(b'"k%d":1' % n for n in range(50_000)) + b"}"),
    "long key": params(b'"arguments":{"' + b"k" * 1_000_000 + b'":1}'),
    "long string": params(b'"arguments":{"a":"' + b"x" * 3_000_000 + b'","b":1}'),
    "long state": params(b'"requestState":"' + b"A" * 3_000_000 + b'"'),
    "long cursor": b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":' + META + b',"cursor":"' + b"A" * 3_000_000 + b'"}}',
    "many subscriptions": b'{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"_meta":' + META
    + b',"notifications":{"resourceSubscriptions":[' + b",".join(b'"x://%d"' % n for n in range(50_000)) + b"]}}}",
    "too large": b" " * (5 * 1024 * 1024),
    "batch": b"[" + b",".join([message()] * 1000) + b"]",
}  # fmt: skip


@pytest.mark.parametrize("body", BODY_CASES.values(), ids=BODY_CASES)
def test_hostile_body_gets_an_answer(body: bytes, served: Served) -> None:
    """Ours: an HTTP answer with a JSON-RPC error, or a tool error; never a broken connection, never a crash."""
    method = next((m for m in ("tools/call", "tools/list", "subscriptions/listen") if m.encode() in body), "x")
    answer = exchange(served, http(body, method=method, name="add" if method == "tools/call" else None))
    head, _, payload = answer.partition(b"\r\n\r\n")
    status = int(head.split()[1])
    assert status in (200, 400, 404, 413), head
    reply = json.loads(payload)
    assert "error" in reply or reply["result"]["isError"] is True
    assert len(answer) < 10_000
    assert is_alive(served)


def test_slow_bodies_hold_nothing_up(served: Served) -> None:
    """Ours: two hundred half requests are open; others are served meanwhile."""
    with contextlib.ExitStack() as stack:
        for number in range(200):
            connection = stack.enter_context(served.connect())
            connection.sendall(DISCOVER[: 50 + number])
        for _ in range(5):
            assert is_alive(served)


async def test_nobody_gets_anothers_answer(served: Served) -> None:
    """Ours: fifty clients call, interrupt and disconnect at random; every answer that arrives is the caller's own."""
    answered = 0

    async def client(number: int) -> None:
        nonlocal answered
        dice = random.Random(number)
        for turn in range(20):
            a, b = number * 1000 + turn, dice.randrange(10**9)
            body = json.dumps(
                {
                    "jsonrpc": "2.0",
                    "id": f"{number}-{turn}",
                    "method": "tools/call",
                    "params": {"name": "add", "arguments": {"a": a, "b": b}, "_meta": meta()},
                }
            ).encode()
            data = http(body, method="tools/call", name="add")
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            try:
                if dice.random() < 0.3:
                    writer.write(data[: dice.randrange(len(data))])
                    continue
                writer.write(data)
                if dice.random() < 0.2:
                    continue
                reply = json.loads((await reader.read()).partition(b"\r\n\r\n")[2])
                assert reply["id"] == f"{number}-{turn}"
                assert reply["result"]["structuredContent"] == a + b
                answered += 1
            finally:
                writer.transport.abort()

    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        for number in range(50):
            group.create_task(client(number))
    assert answered > 300


def resident_bytes(served: Served) -> int:
    return int(Path(f"/proc/{served.process.pid}/statm").read_text().split()[1]) * PAGE_BYTES


async def _flood(served: Served, count: int) -> None:
    """Open `count` listen streams on connections of their own, and leave without a word."""
    params = {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["memo://greeting"]}}
    data = http(message("subscriptions/listen", params), method="subscriptions/listen")
    writers: list[asyncio.StreamWriter] = []
    gate = asyncio.Semaphore(200)

    async def one() -> None:
        async with gate:
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writers.append(writer)
            writer.write(data)
            await reader.readuntil(b"acknowledged")

    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(one())
    for writer in writers:
        writer.transport.abort()


async def _settle(served: Served) -> None:
    """Until the server has noticed that everybody has left: it offers all its places again."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(DISCOVER)
            await reader.read()
            writer.close()
            if _open_sockets(served) <= 4:
                return


def _open_sockets(served: Served) -> int:
    return sum(
        os.readlink(entry).startswith("socket:")
        for entry in Path(f"/proc/{served.process.pid}/fd").iterdir()
        if entry.is_symlink()
    )


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
async def test_memory_comes_back_after_ten_thousand_listeners() -> None:
    """Ours: the first wave may grow the heap; further waves find everything free again."""
    with serving() as served:
        await _flood(served, 10_000)
        await _settle(served)
        after_first = resident_bytes(served)
        for _ in range(2):
            await _flood(served, 10_000)
            await _settle(served)
        growth = resident_bytes(served) - after_first
        assert growth < 20 * 1024 * 1024, f"{growth / 2**20:.1f} MiB more after two more waves"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(["tools/call", "prompts/get", "resources/read", "completion/complete"]),
    st.dictionaries(
        st.sampled_from(["name", "uri", "arguments", "inputResponses", "requestState", "ref", "argument", "context"]),
        JSON
        | st.sampled_from(["f", "x://r", {"a": 1}, {"type": "ref/prompt", "name": "f"}, {"name": "a", "value": ""}]),
    ),
    st.dictionaries(st.sampled_from(["progressToken", "io.modelcontextprotocol/logLevel", "traceparent"]), JSON),
)
def test_any_params_get_exactly_one_answer(method: str, params: dict[str, Any], more: dict[str, Any]) -> None:
    """Ours: whatever the parameters, the caller gets one reply with its id, and no internal error."""
    server = Server("s", version="1")

    @server.tool
    async def f(ctx: Context, a: int = 0) -> str:
        answer = await ctx.elicit("?", {"type": "object", "properties": {}}, key="k")
        return answer.action

    server.prompt(lambda a="": a, name="f")
    server.resource("x://r", lambda: "r", name="r")
    server.completion("f", "a", lambda value: [value])

    async def run() -> None:
        capabilities = {"elicitation": {}}
        response = await Caller(server.asgi()).call(method, params, id="me", capabilities=capabilities, **more)
        reply = response.last
        assert reply["id"] == "me"
        assert ("result" in reply) != ("error" in reply)
        assert reply.get("error", {}).get("code") != -32603

    asyncio.run(run())


def test_server_stops_at_once_after_all_this() -> None:
    """Ours: connections that do nothing do not delay the end."""
    with serving() as served:
        idle = [served.connect() for _ in range(20)]
        for connection in idle[:10]:
            connection.sendall(DISCOVER[:40])
        assert is_alive(served)
        served.process.terminate()
        served.process.wait(STOP_TIMEOUT_S)
        for connection in idle:
            connection.close()
