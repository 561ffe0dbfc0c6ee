"""Calling tools, prompts, resources and completions: what functions get, return and raise."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import threading
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from outrider.server import (
    Annotations,
    Audio,
    Contents,
    Context,
    Embedded,
    HttpOptions,
    Image,
    Link,
    Message,
    Principal,
    PromptReply,
    RequestRejected,
    ResourceReply,
    Server,
    ServerOptions,
    Text,
    ToolError,
    ToolReply,
    WireResult,
)
from server.asgi import Caller

IDENTITY = {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1"}}
LOG_LEVEL = "io.modelcontextprotocol/logLevel"


def serving(function: Any, *, server_options: ServerOptions | None = None, **options: Any) -> Caller:
    """A client of a server whose only tool is `f`."""
    server = Server("s", version="1", options=server_options)
    server.tool(function, name="f", **options)
    return Caller(server.asgi())


async def call(function: Any, arguments: Any = None, **options: Any) -> Any:
    params = {"name": "f"} if arguments is None else {"name": "f", "arguments": arguments}
    return await serving(function).result("tools/call", params, **options)


@dataclass
class Sum:
    total: int


@dataclass
class Returned:
    annotation: Any
    value: Any
    content: Any
    structured: Any = ...


PNG = Image(b"\x89PNG", "image/png")
CASES = {
    "text": Returned(str, "hi", [{"type": "text", "text": "hi"}]),
    "nothing": Returned(None, None, []),
    "integer": Returned(int, 3, [{"type": "text", "text": "3"}], 3),
    "null in a union": Returned(int | None, None, [{"type": "text", "text": "null"}], None),
    "dataclass": Returned(Sum, Sum(5), [{"type": "text", "text": '{"total":5}'}], {"total": 5}),
    "list": Returned(list[int], [1, 2], [{"type": "text", "text": "[1,2]"}], [1, 2]),
    "undeclared": Returned(Any, {"a": 1}, [{"type": "text", "text": '{"a":1}'}]),
    "image": Returned(
        Image, PNG, [{"type": "image", "data": base64.b64encode(b"\x89PNG").decode(), "mimeType": "image/png"}]
    ),
    "audio": Returned(
        Audio, Audio(b"RIFF", "audio/wav"), [{"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"}]
    ),
    "link": Returned(Link, Link("x://a", "a"), [{"type": "resource_link", "uri": "x://a", "name": "a"}]),
    "embedded": Returned(
        Embedded,
        Embedded(Contents("x://a", "text/plain", text="t")),
        [{"type": "resource", "resource": {"uri": "x://a", "mimeType": "text/plain", "text": "t"}}],
    ),
    "blocks": Returned(
        list[Text | str],
        [Text("a", Annotations(priority=0.5)), "b"],
        [{"type": "text", "text": "a", "annotations": {"priority": 0.5}}, {"type": "text", "text": "b"}],
    ),
    "reply": Returned(
        ToolReply, ToolReply("shown", structured={"a": 1}), [{"type": "text", "text": "shown"}], {"a": 1}
    ),
    "reply without content": Returned(ToolReply, ToolReply(structured=[1]), [{"type": "text", "text": "[1]"}], [1]),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_returned_value_becomes_content_and_structure(case: Returned) -> None:
    """Spec: 2026-07-28 server/tools#tool-result, #structured-content (SHOULD repeat it as text)"""

    def f() -> Any:
        return case.value

    f.__annotations__ = {"return": case.annotation}
    result = await call(f)
    assert result["resultType"] == "complete"
    assert result["content"] == case.content
    assert result.get("structuredContent", ...) == case.structured
    assert result["isError"] is False
    assert result["_meta"] == IDENTITY


async def test_reply_can_be_an_error_and_bring_meta() -> None:
    """Spec: 2026-07-28 server/tools#error-handling; `_meta` of the author and identity stand side by side."""

    def f() -> ToolReply:
        return ToolReply("no", is_error=True, meta={"com.example/k": 1})

    result = await call(f)
    assert (result["isError"], result["_meta"]) == (True, {"com.example/k": 1, **IDENTITY})


async def test_wire_result_is_passed_on_whole() -> None:
    """Ours: what another server answered goes through, unknown members included. Case 118."""
    wire = {"content": [{"type": "hologram", "x": 1}], "isError": True, "x-new": [1], "_meta": {"a/b": 1}}

    def f() -> WireResult:
        return WireResult(dict(wire))

    assert await call(f) == {**wire, "resultType": "complete", "_meta": {"a/b": 1, **IDENTITY}}


async def test_value_that_breaks_its_promise_is_an_internal_error() -> None:
    """Spec: 2026-07-28 server/tools#output-schema (MUST conform): what does not conform is not sent."""

    def f() -> int:
        return "three"  # type: ignore[return-value]

    status, error = await serving(f).error("tools/call", {"name": "f"})
    assert (status, error["code"]) == (500, -32603)
    assert "three" not in error["message"]


async def test_value_without_a_json_form_is_an_internal_error() -> None:
    """Ours: and not a broken connection."""

    def f() -> Any:
        return threading.Lock()

    assert (await serving(f).error("tools/call", {"name": "f"}))[1]["code"] == -32603


@pytest.mark.parametrize("how", ["async", "thread", "inline", "partial", "lambda"])
async def test_functions_of_every_kind_are_called(how: str) -> None:
    """Ours: sync functions in a worker thread, async ones on the loop, inline ones on the loop."""
    loop_thread = threading.get_ident()
    seen: list[bool] = []

    def plain(a: int) -> int:
        seen.append(threading.get_ident() == loop_thread)
        return a + 1

    async def waiting(a: int) -> int:
        await asyncio.sleep(0)
        return plain(a)

    function: Any = {
        "async": waiting, "thread": plain, "inline": plain, "partial": partial(waiting), "lambda": lambda a: waiting(a)
    }[how]  # fmt: skip
    result = await serving(function, inline=how == "inline").result("tools/call", {"name": "f", "arguments": {"a": 1}})
    assert result["content"][0]["text"] == "2"
    assert seen == [how != "thread"]


async def test_wrong_arguments_are_a_tool_error_that_a_model_can_act_on() -> None:
    """Spec: 2026-07-28 server/tools#error-handling (input validation errors are tool execution errors)"""

    def f(count: int) -> int:
        return count

    result = await call(f, {"count": "many", "counts": 1})
    assert result["isError"] is True
    assert result["content"][0]["text"] == (
        'Invalid arguments for f: argument `count`: expected an integer, got "many"; '
        "unknown argument `counts`: did you mean `count`?"
    )


async def test_tool_error_reaches_the_model() -> None:
    """Spec: 2026-07-28 server/tools#error-handling"""

    def f() -> str:
        raise ToolError("Try another city")

    result = await call(f)
    assert (result["isError"], result["content"][0]["text"]) == (True, "Try another city")


@pytest.mark.parametrize("exposed", [False, True])
async def test_unexpected_exception_is_logged_and_not_told(exposed: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Ours: an exception's text may name internals; the log has it, the client only if the author says so."""

    async def f() -> str:
        raise RuntimeError("password=hunter2")

    caller = serving(f, server_options=ServerOptions(expose_errors=exposed))
    with caplog.at_level(logging.ERROR, "outrider.server"):
        result = await caller.result("tools/call", {"name": "f"})
    assert result["isError"] is True
    assert ("hunter2" in result["content"][0]["text"]) == exposed
    assert "hunter2" in caplog.text


async def test_function_can_answer_with_a_protocol_error() -> None:
    """Ours: an own code travels with HTTP 200, as the request was understood."""

    def f() -> str:
        raise RequestRejected(-31000, "Out of tea", {"kind": "green"})

    status, error = await serving(f).error("tools/call", {"name": "f"})
    assert (status, error) == (200, {"code": -31000, "message": "Out of tea", "data": {"kind": "green"}})


async def test_context_tells_what_the_request_says() -> None:
    """Spec: 2026-07-28 basic/index#_meta; trace context is handed on."""
    seen: list[Context] = []

    def f(ctx: Context) -> None:
        seen.append(ctx)

    server = Server("s", version="1")
    server.tool(f)
    caller = Caller(server.asgi(authenticate=lambda scope: Principal("ann")))
    info = {"name": "client", "version": "2"}
    await caller.result(
        "tools/call",
        {"name": "f"},
        id="request-7",
        capabilities={"sampling": {}},
        traceparent="00-a-b-01",
        **{"io.modelcontextprotocol/clientInfo": info},
    )
    (ctx,) = seen
    assert (ctx.request_id, ctx.method, ctx.principal) == ("request-7", "tools/call", Principal("ann"))
    assert (ctx.client_capabilities, ctx.client_info) == ({"sampling": {}}, info)
    assert ctx.trace == {"traceparent": "00-a-b-01"}
    assert ctx.protocol_version == "2026-07-28"


async def test_progress_is_sent_only_when_asked_for_and_only_increases() -> None:
    """Spec: 2026-07-28 basic/patterns/progress#behavior-requirements (MUST)"""

    async def f(ctx: Context) -> str:
        for progress in (1, 1, 0.5, 2.5, 2):
            ctx.progress(progress, 4, "step")
        return "done"

    caller = serving(f)
    silent = await caller.call("tools/call", {"name": "f"})
    assert silent.headers["content-type"] == "application/json"
    for token in ("t", 7, 0, ""):
        response = await caller.call("tools/call", {"name": "f"}, progressToken=token)
        *notes, reply = response.events
        assert [note["params"] for note in notes] == [
            {"progressToken": token, "progress": p, "total": 4, "message": "step"} for p in (1, 2.5)
        ]
        assert {note["method"] for note in notes} == {"notifications/progress"}
        assert reply["result"]["content"][0]["text"] == "done"


async def test_log_messages_are_sent_only_when_asked_for_and_from_that_level_on() -> None:
    """Spec: 2026-07-28 server/utilities/logging#per-request-log-level (MUST NOT without it)"""

    async def f(ctx: Context) -> str:
        for level in ("debug", "info", "warning", "emergency"):
            ctx.log(level, {"said": level}, logger="me")
        return "done"

    caller = serving(f)
    assert (await caller.call("tools/call", {"name": "f"})).headers["content-type"] == "application/json"
    response = await caller.call("tools/call", {"name": "f"}, **{LOG_LEVEL: "warning"})
    *notes, _ = response.events
    assert [note["params"] for note in notes] == [
        {"level": level, "logger": "me", "data": {"said": level}} for level in ("warning", "emergency")
    ]


async def test_worker_thread_may_report_progress() -> None:
    """Ours: the context is safe from any thread, and order is kept."""

    def f(ctx: Context) -> str:
        for step in range(50):
            ctx.progress(step)
        return "done"

    *notes, _ = (await serving(f).call("tools/call", {"name": "f"}, progressToken=1)).events
    assert [note["params"]["progress"] for note in notes] == list(range(50))


async def test_unknown_log_level_is_the_authors_mistake() -> None:
    """Ours: told in the log of the server, whoever listens."""

    async def f(ctx: Context) -> str:
        with pytest.raises(ValueError, match="not a log level"):
            ctx.log("loud", "x")
        return "done"

    assert (await call(f))["isError"] is False


async def test_client_that_takes_no_stream_gets_json_without_notifications() -> None:
    """Ours: `Accept: application/json` alone is enough where no stream is needed."""

    async def f(ctx: Context) -> str:
        ctx.progress(1)
        return "done"

    response = await serving(f).call(
        "tools/call", {"name": "f"}, progressToken=1, headers={"accept": "application/json"}
    )
    assert response.json["result"]["content"][0]["text"] == "done"


async def test_closed_connection_cancels_the_work() -> None:
    """Spec: 2026-07-28 basic/transports/streamable-http#cancellation (MUST). Nothing more is sent."""
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def f(ctx: Context) -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "never"

    exchange = serving(f).begin("tools/call", {"name": "f"})
    async with asyncio.timeout(30):
        await started.wait()
    response = await exchange.disconnect()
    assert cancelled.is_set()
    assert response.status == 0


async def test_worker_thread_learns_of_the_closed_connection() -> None:
    """Ours: a thread cannot be stopped, but it can look."""
    loop = asyncio.get_running_loop()
    started, seen = asyncio.Event(), asyncio.Event()

    def f(ctx: Context) -> str:
        loop.call_soon_threadsafe(started.set)
        while not ctx.cancelled:
            threading.Event().wait(0.001)
        loop.call_soon_threadsafe(seen.set)
        return "late"

    exchange = serving(f).begin("tools/call", {"name": "f"})
    async with asyncio.timeout(30):
        await started.wait()
        await exchange.disconnect()
        await seen.wait()


@pytest.mark.parametrize("own_limit", [None, 0.01])
async def test_function_that_takes_too_long_is_stopped(own_limit: float | None) -> None:
    """Ours: a time limit for all, or one of its own, ends in an error that a model understands."""

    async def f() -> str:
        await asyncio.Event().wait()
        return "never"

    caller = serving(
        f, timeout_s=own_limit, server_options=ServerOptions(request_timeout_s=None if own_limit else 0.01)
    )
    result = await caller.result("tools/call", {"name": "f"})
    assert result["isError"] is True
    assert "longer than the limit of 0.01 s" in result["content"][0]["text"]


async def test_more_requests_than_allowed_are_refused_as_busy() -> None:
    """Ours: at the limit and one above; when one ends, the next is let in."""
    gate = asyncio.Event()
    started = asyncio.Semaphore(0)

    async def f() -> str:
        started.release()
        await gate.wait()
        return "done"

    caller = serving(f, server_options=ServerOptions(max_concurrent=2))
    running = [caller.begin("tools/call", {"name": "f"}) for _ in range(2)]
    async with asyncio.timeout(30):
        await started.acquire()
        await started.acquire()
    busy = await caller.call("tools/call", {"name": "f"})
    assert (busy.status, busy.json["error"]["code"], busy.headers["retry-after"]) == (503, -32603, "1")
    assert (await caller.result("server/discover"))["resultType"] == "complete"
    gate.set()
    for exchange in running:
        assert (await exchange.finish()).status == 200
    assert (await caller.call("tools/call", {"name": "f"})).status == 200


async def test_silent_work_is_kept_alive_as_a_stream() -> None:
    """Ours: after the keep-alive time the answer becomes a stream with comments, so that no proxy gives up on it."""
    gate = asyncio.Event()

    async def f() -> str:
        await gate.wait()
        return "done"

    server = Server("s", version="1")
    server.tool(f)
    caller = Caller(server.asgi(options=HttpOptions(keep_alive_s=0.01)))
    exchange = caller.begin("tools/call", {"name": "f"})
    await exchange.until(lambda response: response.body.count(b":\n\n") >= 2)
    gate.set()
    response = await exchange.finish()
    assert response.headers["x-accel-buffering"] == "no"
    assert [event["result"]["content"][0]["text"] for event in response.events] == ["done"]


async def test_flood_of_notifications_loses_notifications_but_never_the_answer() -> None:
    """Ours: a bound on what is queued for one client."""

    def f(ctx: Context) -> str:
        for step in range(5000):
            ctx.progress(step)
        return "done"

    response = await serving(f, inline=True).call("tools/call", {"name": "f"}, progressToken=1)
    *notes, reply = response.events
    assert 0 < len(notes) <= 1000
    assert reply["result"]["content"][0]["text"] == "done"


# Prompts, resources, completions


def library() -> Server:
    server = Server("s", version="1")

    @server.prompt
    def review(code: str, strict: bool = False) -> str:
        """Review code.

        Args:
            code: what to review
        """
        return f"{code} {strict}"

    @server.prompt
    async def chat() -> PromptReply:
        return PromptReply([Message.user("hi"), Message.assistant(PNG)], "A chat")

    @server.resource("doc://intro", mime_type="text/markdown", ttl_ms=5000, scope="public")
    def intro() -> str:
        """The introduction."""
        return "# Hi"

    @server.resource("doc://page/{number}{?lang}")
    async def page(number: int, lang: str = "en") -> dict[str, Any]:
        return {"number": number, "lang": lang}

    @server.resource("doc://many")
    def many() -> ResourceReply:
        return ResourceReply([Contents("doc://1", text="a"), Contents("doc://2", blob=b"b")], ttl_ms=9, scope="public")

    server.add_resource("doc://fixed", b"\x00\x01", mime_type="application/x-b")

    @server.completion("review", "code")
    def suggest(value: str) -> list[str]:
        return [value + str(n) for n in range(150)]

    @server.completion("doc://page/{number}{?lang}", "lang")
    async def languages(value: str, arguments: dict[str, str]) -> list[str]:
        return [f"{value}-{arguments.get('number')}"]

    return server


async def test_prompt_is_listed_and_rendered() -> None:
    """Spec: 2026-07-28 server/prompts"""
    caller = Caller(library().asgi())
    listed = {prompt["name"]: prompt for prompt in (await caller.result("prompts/list"))["prompts"]}
    assert listed["review"] == {
        "name": "review",
        "description": "Review code.",
        "arguments": [
            {"name": "code", "description": "what to review", "required": True},
            {"name": "strict", "required": False},
        ],
    }
    result = await caller.result("prompts/get", {"name": "review", "arguments": {"code": "x", "strict": "true"}})
    assert result["messages"] == [{"role": "user", "content": {"type": "text", "text": "x True"}}]
    assert result["description"] == "Review code."
    chat = await caller.result("prompts/get", {"name": "chat"})
    assert [message["role"] for message in chat["messages"]] == ["user", "assistant"]
    assert chat["description"] == "A chat"


@pytest.mark.parametrize(
    "params",
    [
        {"name": "missing"},
        {"name": "review"},
        {"name": "review", "arguments": {"code": 5}},
        {"name": "review", "arguments": {"code": "x", "strict": "perhaps"}},
        {"name": "review", "arguments": {"code": "x", "other": "y"}},
        {"name": "review", "arguments": []},
    ],
)
async def test_bad_prompt_request_is_invalid_params(params: Any) -> None:
    """Spec: 2026-07-28 server/prompts#error-handling"""
    status, error = await Caller(library().asgi()).error("prompts/get", params)
    assert (status, error["code"]) == (400, -32602)


@pytest.mark.parametrize(
    ("uri", "contents", "ttl_ms", "scope"),
    [
        ("doc://intro", [{"uri": "doc://intro", "mimeType": "text/markdown", "text": "# Hi"}], 5000, "public"),
        ("doc://page/7", [{"mimeType": "application/json", "text": '{"number":7,"lang":"en"}'}], 0, "private"),
        ("doc://page/7?lang=de", [{"text": '{"number":7,"lang":"de"}'}], 0, "private"),
        ("doc://many", [{"uri": "doc://1", "text": "a"}, {"uri": "doc://2", "blob": "Yg=="}], 9, "public"),
        ("doc://fixed", [{"mimeType": "application/x-b", "blob": "AAE="}], 300_000, "public"),
    ],
)
async def test_resource_is_read_with_caching_hints(uri: str, contents: Any, ttl_ms: int, scope: str) -> None:
    """Spec: 2026-07-28 server/resources#reading-resources, server/utilities/caching (MUST)"""
    result = await Caller(library().asgi()).result("resources/read", {"uri": uri})
    assert (result["ttlMs"], result["cacheScope"]) == (ttl_ms, scope)
    for piece, expected in zip(result["contents"], contents, strict=True):
        assert {key: piece[key] for key in expected} == expected


@pytest.mark.parametrize("uri", ["doc://none", "doc://page/seven", "doc://page/1/2", "doc://page/7?x=1", "", "é"])
async def test_resource_that_does_not_exist_is_an_error(uri: str) -> None:
    """Spec: 2026-07-28 server/resources#error-handling (MUST -32602, never empty contents)"""
    headers = {"mcp-name": "=?base64?w6k=?="} if uri == "é" else None
    status, error = await Caller(library().asgi()).error("resources/read", {"uri": uri}, headers=headers)
    assert (status, error["code"], error["data"]) == (400, -32602, {"uri": uri})


async def test_completions_are_bounded_and_know_the_other_arguments() -> None:
    """Spec: 2026-07-28 server/utilities/completion#completion-results (at most 100)"""
    caller = Caller(library().asgi())
    ref = {"type": "ref/prompt", "name": "review"}
    result = await caller.result("completion/complete", {"ref": ref, "argument": {"name": "code", "value": "a"}})
    completion = result["completion"]
    assert (len(completion["values"]), completion["total"], completion["hasMore"]) == (100, 150, True)
    template = {"type": "ref/resource", "uri": "doc://page/{number}{?lang}"}
    argument = {"name": "lang", "value": "e"}
    context = {"arguments": {"number": "4"}}
    params = {"ref": template, "argument": argument, "context": context}
    assert (await caller.result("completion/complete", params))["completion"]["values"] == ["e-4"]
    unknown = {"ref": ref, "argument": {"name": "strict", "value": ""}}
    assert (await caller.result("completion/complete", unknown))["completion"]["values"] == []


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"ref": {"type": "ref/prompt", "name": "missing"}, "argument": {"name": "a", "value": ""}},
        {"ref": {"type": "ref/other"}, "argument": {"name": "a", "value": ""}},
        {"ref": {"type": "ref/prompt", "name": "review"}},
        {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "a", "value": 5}},
        {"ref": "review", "argument": {"name": "a", "value": ""}},
    ],
)
async def test_bad_completion_request_is_invalid_params(params: Any) -> None:
    """Spec: 2026-07-28 server/utilities/completion#error-handling"""
    assert (await Caller(library().asgi()).error("completion/complete", params))[1]["code"] == -32602


async def test_method_of_an_extension_is_called_with_its_params() -> None:
    """Spec: 2026-07-28 basic/versioning#extension-negotiation: an extension's methods are served beside the core's."""
    server = Server("s", version="1", options=ServerOptions(extensions={"com.example/tasks": {}}))

    @server.method("tasks/get")
    def get(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
        return {"taskId": params["taskId"], "resultType": "task"}

    caller = Caller(server.asgi())
    result = await caller.result("tasks/get", {"taskId": "t1"})
    assert (result["taskId"], result["resultType"]) == ("t1", "task")
    assert (await caller.error("tasks/list"))[0] == 404


async def test_definitions_from_elsewhere_are_served_whole() -> None:
    """Ours: what a gateway needs: prompts, resources and templates in wire form, results passed on, hints added where they must be."""
    server = Server("s", version="1")
    prompt = {"name": "p", "x-new": 1, "arguments": [{"name": "a", "required": True}]}
    resource = {"uri": "up://one", "name": "one", "x-new": 2}
    template = {"uriTemplate": "up://{+rest}", "name": "rest", "x-new": 3}
    server.add_prompt_definition(prompt, lambda arguments, ctx: f"{ctx.method} {arguments}")

    async def read(uri: str, ctx: Context) -> WireResult:
        return WireResult({"contents": [{"uri": uri, "text": "t", "x-new": 4}], "x-new": 5})

    server.add_resource_definition(resource, read, ttl_ms=7)
    server.add_resource_definition(template, read, scope="public")
    server.completion("p", "anything", lambda value: [value])
    caller = Caller(server.asgi())
    assert (await caller.result("prompts/list"))["prompts"] == [prompt]
    assert (await caller.result("resources/list"))["resources"] == [resource]
    assert (await caller.result("resources/templates/list"))["resourceTemplates"] == [template]
    got = await caller.result("prompts/get", {"name": "p", "arguments": {"a": "b"}})
    assert got["messages"][0]["content"]["text"] == "prompts/get {'a': 'b'}"
    for uri, ttl_ms, scope in (("up://one", 7, "private"), ("up://x/../y", 0, "public")):
        found = await caller.result("resources/read", {"uri": uri})
        assert found == {
            "resultType": "complete",
            "contents": [{"uri": uri, "text": "t", "x-new": 4}],
            "x-new": 5,
            "ttlMs": ttl_ms,
            "cacheScope": scope,
            "_meta": IDENTITY,
        }
    assert "logging" in (await caller.result("server/discover"))["capabilities"]


@pytest.mark.parametrize("uri", ["no-scheme", "", "ha ha:x", "/etc/passwd"])
def test_resource_needs_an_absolute_uri(uri: str) -> None:
    """Spec: 2026-07-28 server/resources#common-uri-schemes (RFC 3986, MUST)"""
    with pytest.raises(ValueError, match="not an absolute URI"):
        Server("s", version="1").resource(uri, lambda: "x", name="x")


def test_template_and_parameters_must_agree() -> None:
    """Ours: said at registration."""
    with pytest.raises(TypeError, match="differ in id, other"):
        Server("s", version="1").resource("x://{id}", lambda other: "x", name="x")


def test_completion_needs_an_argument_that_exists() -> None:
    """Ours: said at registration."""
    with pytest.raises(ValueError, match="no prompt or template"):
        library().completion("review", "colour", lambda value: [])


async def test_answers_are_valid_json_for_any_text() -> None:
    """Ours: quotes, control characters and non-BMP characters survive."""

    def f(text: str) -> str:
        return text

    text = '"\\\n\t\u0000\u2028😀 </script>'
    assert (await call(f, {"text": text}))["content"][0]["text"] == text
    assert json.loads(json.dumps(text)) == text
