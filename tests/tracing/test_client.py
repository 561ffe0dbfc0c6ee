"""A client's spans, and one trace through client and server: real processes on both transports, in both eras."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

import outrider
from outrider.catalog.catalog import CatalogOptions
from outrider.client.target import ClientOptions, Pin, StdioTarget, parse_target
from outrider.errors import OutriderError, PeerError, TimedOut, TransportError
from outrider.tracing import UNTRACED, client_operation
from peers.provision import PYTHON_MODERN, Environment
from server.serving import serving
from tracing.recording import PROGRAM, SPAN_ID, TRACE_ID, TRACEPARENT, Recorded, Span, read_spans

DEADLINE_S = 60.0
SDK_SERVER = Path(__file__).with_name("sdk_server.py")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A traced server over HTTP, and the file with its spans."""
    path = tmp_path_factory.mktemp("spans") / "http"
    with serving(PROGRAM, environment={**os.environ, "SPANS": str(path)}) as running:
        yield running.url, path


@pytest.fixture(params=["stdio", "http"])
def target(request: pytest.FixtureRequest, served: tuple[str, Path], tmp_path: Path) -> tuple[Any, Path]:
    """Where a traced server is, and the file with its spans."""
    if request.param == "http":
        served[1].unlink(missing_ok=True)
        return parse_target(served[0]), served[1]
    return StdioTarget((sys.executable, str(PROGRAM)), {"SPANS": str(tmp_path / "spans")}), tmp_path / "spans"


def root_span() -> Any:
    return trace.get_tracer("app").start_as_current_span("app")


def ids(span: Any) -> tuple[str, str]:
    context = span.get_span_context()
    return format(context.trace_id, "032x"), format(context.span_id, "016x")


@pytest.mark.parametrize("pin", [Pin.MODERN, Pin.LEGACY])
async def test_client_and_server_give_one_trace(target: tuple[Any, Path], pin: Pin, recorded: Recorded) -> None:
    """Conventions for MCP: a client's span for each request, and the server's span for the same request as its child."""
    where, path = target
    options = ClientOptions(pin=pin)
    modern = pin is Pin.MODERN
    current: list[bool] = []
    with root_span() as root:
        async with asyncio.timeout(DEADLINE_S), outrider.connect(where, options=options) as client:
            await client.list_tools()
            await client.call_tool("add", {"a": 1, "b": 2})
            await client.call_tool("in_thread", {})
            assert (await client.call_tool("fail", {"secret": "hunter2"})).is_error
            await client.read_resource("book://Dune/text")
            await client.get_prompt("greet", {"name": "Ada"})
            with pytest.raises(PeerError):
                await client.get_prompt("missing", {})
            client.on_change = lambda _: current.append(trace.get_current_span().get_span_context().is_valid)
            async with client.listen(tools=True) as changes:
                await client.call_tool("change", {})
                await anext(aiter(changes))
    trace_id, root_id = ids(root)
    clients = [span for span in recorded.spans if span.kind == "CLIENT"]
    # The server is shared: a request that another test gave up on may end only now.
    servers = [span for span in read_spans(path) if span.kind == "SERVER" and span.trace_id == trace_id]
    # The id of a request tells it apart within a connection.
    by_id = {span.attributes["jsonrpc.request.id"]: span for span in servers}
    assert len(by_id) == len(clients) == len(servers)
    assert {span.trace_id for span in clients} == {trace_id}
    for span in clients:
        child = by_id[span.attributes["jsonrpc.request.id"]]
        # What the server does not have names no span there.
        assert (span.parent, child.parent, child.name) == (root_id, span.id, span.name.removesuffix(" missing"))
        assert child.status == span.status
        assert child.attributes.get("error.type") == span.attributes.get("error.type")
        assert child.attributes["mcp.method.name"] == span.attributes["mcp.method.name"]
    assert [span.name for span in clients] == [
        "server/discover" if modern else "initialize",
        "tools/list",
        "tools/call add",
        "tools/call in_thread",
        "tools/call fail",
        "resources/read",
        "prompts/get greet",
        *(["prompts/get missing", "subscriptions/listen"] if modern else ["prompts/get missing"]),
        "tools/call change",
    ]
    (own,) = (span for span in read_spans(path) if span.name == "work in a thread")
    assert own.parent == next(span.id for span in servers if span.name == "tools/call in_thread")
    assert not any("hunter2" in str(span) for span in [*clients, *servers])
    # What a server announces later, in whatever task it is read, is no part of the request that opened the connection.
    assert current == [False]
    check_ways(clients, servers, over_http=not isinstance(where, StdioTarget), modern=modern)


def check_ways(clients: list[Span], servers: list[Span], *, over_http: bool, modern: bool) -> None:
    """The attributes that say how requests travelled."""
    client, server = clients[2].attributes, next(s for s in servers if s.name == "tools/call add").attributes
    assert (
        client["mcp.protocol.version"] == server["mcp.protocol.version"] == ("2026-07-28" if modern else "2025-11-25")
    )
    if not over_http:
        assert client["network.transport"] == server["network.transport"] == "pipe"
        assert not {"server.address", "client.address", "network.protocol.name", "mcp.session.id"} & {*client, *server}
        return
    assert (client["network.transport"], client["network.protocol.name"]) == ("tcp", "http")
    assert (client["server.address"], isinstance(client["server.port"], int)) == ("127.0.0.1", True)
    assert (server["network.transport"], server["network.protocol.version"]) == ("tcp", "1.1")
    assert (server["client.address"], isinstance(server["client.port"], int)) == ("127.0.0.1", True)
    assert client.get("mcp.session.id") == server.get("mcp.session.id")
    assert ("mcp.session.id" in client) is not modern


async def test_each_round_of_a_question_is_a_request(served: tuple[str, Path], recorded: Recorded) -> None:
    """Ours: an input-required result is no failure, and the request that brings the answers has a span of its own."""

    async def fill_in(request: outrider.FormRequest) -> outrider.Elicited:
        return outrider.Elicited("accept", {"day": "Monday"})

    options = ClientOptions(inputs=outrider.InputHandlers(form=fill_in))
    with root_span():
        async with outrider.connect(served[0], options=options) as client:
            recorded.take()
            assert (await client.call_tool("ask", {})).text == "Monday"
    first, second, _ = recorded.spans
    assert (first.name, second.name) == ("tools/call ask", "tools/call ask")
    assert (first.status, second.status) == ("UNSET", "UNSET")
    assert first.attributes["jsonrpc.request.id"] != second.attributes["jsonrpc.request.id"]


async def test_a_task_belongs_to_the_trace_of_its_call(target: tuple[Any, Path], recorded: Recorded) -> None:
    """Ours: the call and each look at the task are requests; the function goes on in the trace, and below the span, of the call."""
    where, path = target
    with root_span() as root:
        async with asyncio.timeout(DEADLINE_S), outrider.connect(where) as client:
            assert (await client.call_tool("slow", {})).text == "done at last"
    calls = [span for span in recorded.spans if span.attributes.get("mcp.method.name") in ("tools/call", "tasks/get")]
    assert [span.name for span in calls][:2] == ["tools/call slow", "tasks/get"]
    assert {(span.parent, span.status) for span in calls} == {(ids(root)[1], "UNSET")}
    theirs = {span.name: span for span in read_spans(path)}
    assert theirs["tools/call slow"].parent == calls[0].id
    assert theirs["work in a task"].parent == theirs["tools/call slow"].id
    assert theirs["tasks/get"].trace_id == ids(root)[0]


async def test_question_of_a_legacy_server_is_a_request_the_other_way(
    target: tuple[Any, Path], recorded: Recorded
) -> None:
    """Conventions for MCP: the server's span is the client's, and the other way round; the handler's own spans are inside."""
    where, path = target
    seen: list[str] = []

    async def fill_in(request: outrider.FormRequest) -> outrider.Elicited:
        seen.append(ids(trace.get_current_span())[1])
        if len(seen) > 1:
            raise RuntimeError("asked too often")
        return outrider.Elicited("accept", {"day": "Monday"})

    options = ClientOptions(pin=Pin.LEGACY, inputs=outrider.InputHandlers(form=fill_in))
    with root_span() as root:
        async with asyncio.timeout(DEADLINE_S), outrider.connect(where, options=options) as client:
            assert (await client.call_tool("ask", {})).text == "Monday"
            with pytest.raises(PeerError):
                await client.call_tool("ask", {})
    answering, failing = (span for span in recorded.spans if span.kind == "SERVER")
    theirs = read_spans(path)
    asking, refused = (span for span in theirs if (span.name, span.kind) == ("elicitation/create", "CLIENT"))
    working = next(span for span in theirs if span.name == "tools/call ask")
    assert (answering.name, answering.parent, seen[0]) == ("elicitation/create", asking.id, answering.id)
    assert asking.parent == working.id
    assert {answering.trace_id, asking.trace_id, working.trace_id} == {ids(root)[0]}
    assert answering.attributes["jsonrpc.request.id"] == asking.attributes["jsonrpc.request.id"] == "1"
    assert answering.attributes["network.transport"] == asking.attributes["network.transport"]
    assert (asking.status, answering.status) == ("UNSET", "UNSET")
    assert (refused.attributes["error.type"], failing.attributes["error.type"]) == ("-32603", "builtins.RuntimeError")


async def test_failures_of_the_way_are_told_apart(served: tuple[str, Path], recorded: Recorded) -> None:
    """Conventions, recording errors: error.type is one of few words: timeout, cancelled, a status, or the exception's name."""
    async with outrider.connect(served[0]) as client:
        with pytest.raises(TimedOut):
            await client.call_tool("wait", {}, timeout_s=0.2)
        task = asyncio.create_task(client.call_tool("wait", {}))
        async with asyncio.timeout(DEADLINE_S):
            while not task.done():
                await asyncio.sleep(0)
                task.cancel()
    elsewhere = served[0].replace("/mcp", "/nothing-here")
    with pytest.raises(OutriderError):
        await outrider.connect(elsewhere, options=ClientOptions(pin=Pin.MODERN)).__aenter__()
    with pytest.raises(TransportError):
        await outrider.connect("http://127.0.0.1:1/mcp", options=ClientOptions(pin=Pin.MODERN)).__aenter__()
    failed = [(span.name, span.attributes["error.type"]) for span in recorded.spans if span.status == "ERROR"]
    assert failed[0] == ("tools/call wait", "timeout")
    assert failed[1] == ("tools/call wait", "cancelled")
    assert failed[2] == ("server/discover", "-32601")
    assert set(failed[3:]) == {("server/discover", "outrider.errors.ConnectFailed")}
    series = recorded.series("mcp.client.operation.duration")
    assert {labels.get("error.type") for labels, _ in series} >= {None, "timeout", "cancelled", "-32601"}


async def test_catalog_passes_the_context_on(served: tuple[str, Path], recorded: Recorded) -> None:
    """Ours: a call through the catalog, a model's too, belongs to the trace of whoever makes it, whatever opened the server."""
    options = CatalogOptions(memory="memory:")
    asked = {"id": "c1", "type": "function", "function": {"name": "seen", "arguments": "{}"}}
    async with asyncio.timeout(DEADLINE_S), outrider.Catalog({"traced": served[0]}, options=options) as catalog:
        await catalog.ready()
        catalog.tools_for("openai")
        with root_span() as root:
            own = await catalog.call("seen", {})
            messages = await catalog.call({"role": "assistant", "tool_calls": [asked]})
    trace_id, root_id = ids(root)
    assert f"00-{trace_id}-" in own.structured_content["trace"]["traceparent"]
    assert f"00-{trace_id}-" in str(messages)
    calls = [span for span in recorded.spans if span.name == "tools/call seen"]
    assert [span.parent for span in calls] == [root_id, root_id]


async def test_a_trace_of_the_callers_own_goes_unchanged(served: tuple[str, Path], recorded: Recorded) -> None:
    """Ours: whoever writes `traceparent` into `_meta` means it; nothing is put in its place or beside it."""
    own = {"traceparent": TRACEPARENT, "tracestate": "a=b"}
    with root_span():
        async with outrider.connect(served[0]) as client:
            result = await client.call_tool("seen", {}, meta=own)
    assert result.structured_content["trace"] == own


async def test_context_goes_on_without_an_sdk(served: tuple[str, Path]) -> None:
    """Ours: with the API alone nothing is recorded, but the trace that this process was called in goes on to its servers."""
    remote = SpanContext(int(TRACE_ID, 16), int(SPAN_ID, 16), is_remote=True, trace_flags=TraceFlags(1))
    from opentelemetry import context

    async with outrider.connect(served[0]) as client:
        assert (await client.call_tool("seen", {})).structured_content["trace"] == {}
        token = context.attach(set_span_in_context(NonRecordingSpan(remote)))
        try:
            result = await client.call_tool("seen", {})
        finally:
            context.detach(token)
    assert result.structured_content["trace"] == {"traceparent": TRACEPARENT}
    assert client_operation("tools/list", {}, {}) is UNTRACED


WITHOUT = f"""
import asyncio, json, sys
if {{blocked}}:
    sys.modules["opentelemetry"] = None
import outrider

async def main():
    async with outrider.connect([sys.executable, {str(PROGRAM)!r}]) as client:
        plain = (await client.call_tool("seen", {{{{}}}})).structured_content
        own = (await client.call_tool("seen", {{{{}}}}, meta={{{{"traceparent": {TRACEPARENT!r}}}}})).structured_content
    print(json.dumps([plain, own, "opentelemetry.trace" in sys.modules]))

asyncio.run(main())
"""


@pytest.mark.parametrize("blocked", [True, False])
def test_nothing_happens_unless_the_process_uses_opentelemetry(blocked: bool) -> None:
    """Ours: not installed, or installed and not used: no key in `_meta`, no import; a caller's own context is passed on."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(blocked=blocked)],
        env=environment,
        capture_output=True,
        check=False,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    plain, own, loaded = json.loads(done.stdout)
    assert (plain, loaded) == ({"trace": {}, "loaded": False}, False)
    assert own["trace"] == {"traceparent": TRACEPARENT}


def test_a_provider_that_is_named_in_the_environment_is_used() -> None:
    """Ours: OpenTelemetry loads such a provider when it is first asked for one, so it must be asked."""
    script = (
        "from outrider.tracing import client_operation; print(sorted(client_operation('tools/list', {}, {}).meta()))"
    )
    named = {**os.environ, "OTEL_PYTHON_TRACER_PROVIDER": "sdk_tracer_provider"}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=named, capture_output=True, check=True, text=True, timeout=DEADLINE_S)
    assert done.stdout.strip() == "['traceparent']"


@pytest.mark.interop
async def test_the_official_server_continues_our_trace(
    environment: Callable[[Environment], Environment], recorded: Recorded
) -> None:
    """SEP-414: the official Python SDK takes the parent of its span from the `_meta` that we send."""
    python = environment(PYTHON_MODERN).python
    with root_span() as root:
        async with asyncio.timeout(DEADLINE_S), outrider.connect([str(python), str(SDK_SERVER)]) as client:
            recorded.take()
            result = await client.call_tool("parent", {})
    (span, *_) = recorded.spans
    assert span.trace_id == ids(root)[0]
    assert result.text == f"{span.trace_id}-{span.id}"
