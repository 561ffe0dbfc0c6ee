"""A server's spans, over an ASGI app in this process."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry import baggage, trace

from outrider.server import Context, Server, ServerOptions
from outrider.server.context import RequestRejected
from server.asgi import VERSION, Caller
from tracing.program import fail, greet, in_loop, in_thread, text
from tracing.recording import SPAN_ID, TRACE_ID, TRACEPARENT, Recorded

HTTP = {"network.transport": "tcp", "network.protocol.name": "http"}
COMMON = {**HTTP, "mcp.protocol.version": VERSION, "jsonrpc.request.id": "1"}
TOOL = {"gen_ai.operation.name": "execute_tool"}


def author() -> Caller:
    """A client of a server with everything."""
    server = Server("s", version="1", options=ServerOptions(offers=["completions"]))
    for tool in (in_thread, in_loop, fail):
        server.tool(tool)
    server.tool(add, inline=True)
    server.prompt(greet)
    server.resource("book://{title}/text")(text)
    return Caller(server.asgi())


def add(a: int, b: int) -> int:
    return a + b


ANSWERED: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("server/discover", {}, "server/discover", {}),
    ("tools/list", {}, "tools/list", {}),
    ("resources/templates/list", {}, "resources/templates/list", {}),
    (
        "tools/call",
        {"name": "add", "arguments": {"a": 1, "b": 2}},
        "tools/call add",
        {**TOOL, "gen_ai.tool.name": "add"},
    ),
    (
        "prompts/get",
        {"name": "greet", "arguments": {"name": "Ada"}},
        "prompts/get greet",
        {"gen_ai.prompt.name": "greet"},
    ),
    ("resources/read", {"uri": "book://Dune/text"}, "resources/read", {"mcp.resource.uri": "book://Dune/text"}),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "A"}},
        "completion/complete greet",
        {"gen_ai.prompt.name": "greet"},
    ),
]


@pytest.mark.parametrize(("method", "params", "name", "attributes"), ANSWERED, ids=[row[0] for row in ANSWERED])
async def test_each_method_has_one_span(
    recorded: Recorded, method: str, params: dict[str, Any], name: str, attributes: dict[str, Any]
) -> None:
    """Conventions for MCP: span name, kind and attributes of a request that succeeds, and nothing of its arguments."""
    await author().result(method, params)
    (span,) = recorded.spans
    assert (span.name, span.kind, span.status, span.parent) == (name, "SERVER", "UNSET", "")
    assert span.attributes == {**COMMON, "mcp.method.name": method, **attributes}


REFUSED: list[tuple[str, dict[str, Any], str, int, dict[str, Any]]] = [
    ("nobody/knows", {}, "_OTHER", -32601, {}),
    ("tools/call", {"name": "missing"}, "tools/call", -32602, {**TOOL, "gen_ai.tool.name": "missing"}),
    ("tools/list", {"cursor": "invented"}, "tools/list", -32602, {}),
    ("resources/read", {"uri": "none://x"}, "resources/read", -32602, {"mcp.resource.uri": "none://x"}),
]


@pytest.mark.parametrize(("method", "params", "name", "code", "attributes"), REFUSED, ids=[row[0] for row in REFUSED])
async def test_refusal_is_an_error_with_its_code(
    recorded: Recorded, method: str, params: dict[str, Any], name: str, code: int, attributes: dict[str, Any]
) -> None:
    """Conventions for MCP: error.type and rpc.response.status_code are the JSON-RPC code, the description its message.

    Ours: what a peer makes up names no span and no time series.
    """
    _, error = await author().error(method, params)
    (span,) = recorded.spans
    assert (span.name, span.status, span.message) == (name, "ERROR", error["message"])
    failure = {"error.type": str(code), "rpc.response.status_code": str(code)}
    assert span.attributes == {**COMMON, "mcp.method.name": method, **attributes, **failure}
    ((labels, count),) = recorded.series("mcp.server.operation.duration")
    assert (labels, count) == ({**HTTP, "mcp.method.name": name, **failure}, 1)


async def test_tool_that_fails_is_a_tool_error_without_its_text(recorded: Recorded) -> None:
    """Conventions for MCP: `isError` becomes error.type tool_error. Ours: neither arguments nor results are recorded."""
    await author().result("tools/call", {"name": "fail", "arguments": {"secret": "hunter2"}})
    (span,) = recorded.spans
    assert (span.status, span.message, span.attributes["error.type"]) == ("ERROR", None, "tool_error")
    assert "rpc.response.status_code" not in span.attributes
    assert "hunter2" not in str(span)
    ((labels, count),) = recorded.series("mcp.server.operation.duration")
    assert (labels["gen_ai.tool.name"], labels["error.type"], count) == ("fail", "tool_error", 1)
    assert "jsonrpc.request.id" not in labels


async def test_error_of_a_function_is_recorded(recorded: Recorded) -> None:
    """Conventions for MCP, for an error that a function answers with."""

    def tea() -> str:
        raise RequestRejected(-31000, "Out of tea")

    server = Server("s", version="1")
    server.tool(tea)
    await Caller(server.asgi()).error("tools/call", {"name": "tea"})
    (span,) = recorded.spans
    assert (span.name, span.attributes["error.type"], span.message) == ("tools/call tea", "-31000", "Out of tea")
    ((labels, _),) = recorded.series("mcp.server.operation.duration")
    assert labels["error.type"] == labels["rpc.response.status_code"] == "_OTHER"


@pytest.mark.parametrize(("tool", "own"), [("in_thread", "work in a thread"), ("in_loop", "work on the loop")])
async def test_spans_of_a_function_are_inside(recorded: Recorded, tool: str, own: str) -> None:
    """Conventions for MCP: the context in `_meta` is the parent; ours: a function's own spans nest, in a thread too."""
    await author().result("tools/call", {"name": tool}, traceparent=TRACEPARENT, tracestate="a=b", baggage="k=v")
    inner, outer = recorded.spans
    assert (inner.name, outer.name) == (own, f"tools/call {tool}")
    assert (inner.parent, outer.parent) == (outer.id, SPAN_ID)
    assert inner.trace_id == outer.trace_id == TRACE_ID
    assert not trace.get_current_span().get_span_context().is_valid


async def test_span_of_the_transport_is_linked_or_else_the_parent(recorded: Recorded) -> None:
    """Conventions for MCP: the ambient context is linked when `_meta` names a parent; without one it is the parent."""
    caller = author()
    with trace.get_tracer("http").start_as_current_span("POST") as transport:
        await caller.result("tools/list", {}, traceparent=TRACEPARENT)
        await caller.result("tools/list", {}, baggage="k=v")
    linked, nested, _ = recorded.spans
    ambient = format(transport.get_span_context().span_id, "016x")
    assert (linked.trace_id, linked.parent, linked.links) == (TRACE_ID, SPAN_ID, (ambient,))
    assert (nested.parent, nested.links) == (ambient, ())


@pytest.mark.parametrize(
    "invalid",
    [
        "",
        "00-1-1-00",
        f"00-{'0' * 32}-{SPAN_ID}-01",
        f"00-{TRACE_ID}-{'0' * 16}-01",
        f"ff-{TRACE_ID}-{SPAN_ID}-01",
        f"00-{TRACE_ID}-{SPAN_ID}-01-more",
        f"00-{TRACE_ID.upper()}-{SPAN_ID}-01",
        f" {TRACEPARENT}",
        f"{TRACEPARENT}\n",
        "x" * 100_000,
        5,
        ["a"],
        {"b": 1},
        None,
    ],
    ids=lambda value: repr(value)[:30],
)
async def test_invalid_trace_context_is_ignored(recorded: Recorded, invalid: object) -> None:
    """W3C Trace Context 4.3: what cannot be read is as if it were not there; ours: it never costs the request."""
    caller = author()
    await caller.result("tools/call", {"name": "in_loop"}, traceparent=invalid, tracestate="\x00", baggage=7)
    await caller.result("tools/list", {}, traceparent=invalid, tracestate=["x"] * 100, baggage="x" * 100_000)
    assert [span.parent for span in recorded.spans if span.kind == "SERVER"] == ["", ""]
    assert TRACE_ID not in {span.trace_id for span in recorded.spans}


async def test_later_version_of_the_header_is_understood(recorded: Recorded) -> None:
    """W3C Trace Context 3.2.4: a higher version is read as far as version 00 goes."""
    await author().result("tools/list", {}, traceparent=f"cc{TRACEPARENT[2:]}-what.the.future-brings")
    assert [(span.trace_id, span.parent) for span in recorded.spans] == [(TRACE_ID, SPAN_ID)]


async def test_what_a_peer_names_is_bounded_and_printable(recorded: Recorded) -> None:
    """Ours: names are cut, control characters and what may be secret in a URI are left out."""
    caller = author()
    await caller.call("tools/call", {"name": "a\n" + "x" * 100_000})
    await caller.call("resources/read", {"uri": "db://ann:pw@host/t?token=s3cret#f"}, id="i" * 10_000)
    tool, resource = recorded.spans
    assert len(tool.attributes["gen_ai.tool.name"]) == 256
    assert tool.attributes["gen_ai.tool.name"].startswith("a x")
    assert resource.attributes["mcp.resource.uri"] == "db://host/t"
    assert len(resource.attributes["jsonrpc.request.id"]) == 256
    assert not any(word in str(recorded.spans) for word in ("s3cret", "ann:pw"))


async def test_stream_of_changes_is_recorded_when_it_begins(recorded: Recorded) -> None:
    """Ours: a stream may last for days, so its span covers the request and the acknowledgement; a refusal is an error."""
    server = Server("s", version="1", options=ServerOptions(max_listeners=1))
    server.tool(add)
    caller = Caller(server.asgi())
    filter_ = {"notifications": {"toolsListChanged": True}}
    stream = caller.begin("subscriptions/listen", filter_, traceparent=TRACEPARENT)
    await stream.until(lambda response: response.events)
    (span,) = recorded.take()
    assert (span.name, span.parent, span.status) == ("subscriptions/listen", SPAN_ID, "UNSET")
    await caller.call("subscriptions/listen", filter_)
    (refused,) = recorded.take()
    assert refused.attributes["error.type"] == "-32603"
    await stream.disconnect()
    assert not recorded.spans


async def test_cancelled_request_is_recorded_as_such(recorded: Recorded) -> None:
    """Ours: a client that leaves is no error of the code's, and still told apart."""
    import asyncio

    started = asyncio.Event()

    async def wait() -> str:
        started.set()
        await asyncio.Event().wait()
        return "never"

    server = Server("s", version="1")
    server.tool(wait)
    exchange = Caller(server.asgi()).begin("tools/call", {"name": "wait"})
    async with asyncio.timeout(30):
        await started.wait()
    await exchange.disconnect()
    (span,) = recorded.spans
    assert (span.name, span.attributes["error.type"]) == ("tools/call wait", "cancelled")


async def test_what_is_no_request_has_no_span(recorded: Recorded) -> None:
    """Ours: notifications, and bodies that are no JSON-RPC, are not traced."""
    caller = author()
    await caller.start(b"{").finish()
    await caller.start(b"[]").finish()
    await caller.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
    assert not recorded.spans


async def test_context_goes_on_where_nothing_is_recorded() -> None:
    """Ours: without an SDK, what a function asks of others still belongs to its caller's trace, with the caller's baggage."""
    seen: list[tuple[str, object]] = []

    def look(ctx: Context) -> None:
        current = trace.get_current_span().get_span_context()
        seen.append((format(current.trace_id, "032x"), baggage.get_baggage("k")))

    server = Server("s", version="1")
    server.tool(look)
    await Caller(server.asgi()).result("tools/call", {"name": "look"}, traceparent=TRACEPARENT, baggage="k=v")
    assert seen == [(TRACE_ID, "v")]
    assert not trace.get_current_span().get_span_context().is_valid
