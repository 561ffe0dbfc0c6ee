"""The handshake era over HTTP: sessions, old methods and codes, questions to the client, streams that are resumed."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import pytest

from outrider.server import (
    Contents,
    Context,
    ElicitUrl,
    HttpOptions,
    InputRequest,
    ListRoots,
    Principal,
    ResourceReply,
    Sample,
    Server,
    ServerOptions,
)
from server.asgi import DEADLINE_S, Caller, Exchange, Response


@dataclass
class Person:
    name: str


def make(**options: Any) -> Server:
    server = Server("s", version="1", instructions="Hello.", options=ServerOptions(**options))

    @server.tool
    def number() -> int:
        return 3

    @server.tool
    def person() -> Person:
        return Person("Ann")

    @server.tool
    async def steps(ctx: Context) -> str:
        ctx.log("debug", "quiet")
        ctx.log("info", "loud")
        ctx.progress(1, 2)
        return "done"

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Who?", Person)
        return answer.content.name if answer.accepted else answer.action

    @server.tool
    async def ask_all(ctx: Context) -> str:
        answers = await ctx.ask({"m": Sample("hi", max_tokens=3), "r": ListRoots(), "u": ElicitUrl("u", "https://x")})
        return f"{answers['m'].text} {len(answers['r'])} {answers['u'].action}"

    @server.tool
    async def wait(ctx: Context) -> str:
        await asyncio.Event().wait()
        return "never"

    @server.tool
    async def poll(ctx: Context) -> str:
        ctx.progress(1)
        ctx.let_client_poll(retry_ms=250)
        ctx.progress(2)
        await gate.wait()
        ctx.progress(3)
        return "polled"

    gate = asyncio.Event()
    server.gate = gate  # type: ignore[attr-defined]

    @server.resource("x://watched", subscribable=True)
    def watched() -> ResourceReply:
        return ResourceReply([Contents("x://watched", text="w")], ttl_ms=5)

    server.prompt(lambda: "p", name="p")
    return server


class Session:
    """A legacy client."""

    def __init__(self, app: Any, version: str = "2025-11-25", **headers: str) -> None:
        self.caller, self.version, self.headers = Caller(app), version, dict(headers)
        self._next = 10

    async def open(self, capabilities: Any = None) -> dict[str, Any]:
        params = {
            "protocolVersion": self.version,
            "capabilities": capabilities or {},
            "clientInfo": {"name": "c", "version": "1"},
        }
        response = await self.send({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        assert response.status == 200
        self.headers["mcp-session-id"] = response.headers["mcp-session-id"]
        initialized = await self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert (initialized.status, initialized.body) == (202, b"")
        result: dict[str, Any] = response.json["result"]
        return result

    async def send(self, message: Any, **headers: str | None) -> Response:
        return await self.caller.send(message, {**self.headers, **{k.replace("_", "-"): v for k, v in headers.items()}})

    def begin(self, method: str, params: Any = None, *, id: Any = ...) -> Exchange:
        self._next += 1
        message = {"jsonrpc": "2.0", "id": self._next if id is ... else id, "method": method, "params": params or {}}
        return self.caller.start(json.dumps(message).encode(), headers=self.headers)

    async def call(self, method: str, params: Any = None) -> Response:
        return await self.begin(method, params).finish()

    async def result(self, method: str, params: Any = None) -> Any:
        return (await self.call(method, params)).last["result"]

    def get(self, **headers: str) -> Exchange:
        own = {**self.headers, **{k.replace("_", "-"): v for k, v in headers.items()}}
        return self.caller.start(b"", method="GET", headers=own)

    async def reply(self, request_id: Any, **members: Any) -> Response:
        return await self.send({"jsonrpc": "2.0", "id": request_id, **members})


async def opened(server: Server | None = None, capabilities: Any = None, **options: Any) -> Session:
    session = Session((server or make()).asgi(**options))
    await session.open(capabilities)
    return session


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
async def test_handshake_agrees_on_the_clients_version(version: str) -> None:
    """Spec: 2025-11-25 basic/lifecycle#version-negotiation (MUST be the same if supported)"""
    session = Session(make().asgi(), version)
    result = await session.open()
    assert result == {
        "protocolVersion": version,
        "capabilities": {
            "logging": {},
            "prompts": {"listChanged": True},
            "resources": {"subscribe": True, "listChanged": True},
            "tools": {"listChanged": True},
        },
        "serverInfo": {"name": "s", "version": "1"},
        "instructions": "Hello.",
    }
    assert session.headers["mcp-session-id"].isascii()
    assert session.headers["mcp-session-id"].isprintable()


@pytest.mark.parametrize("version", ["2026-07-28", "1999-01-01", ""])
async def test_handshake_for_another_version_gets_the_latest_legacy_one(version: str) -> None:
    """Spec: as above (MUST respond with one it supports): a handshake never agrees on a modern version."""
    result = await Session(make().asgi(), version).open()
    assert result["protocolVersion"] == "2025-11-25"


@pytest.mark.parametrize("params", [{}, {"protocolVersion": 5}, {"protocolVersion": "2025-11-25", "capabilities": []}])
async def test_malformed_handshake_opens_no_session(params: Any) -> None:
    """Ours."""
    response = await Caller(make().asgi()).send({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    assert response.json["error"]["code"] == -32602
    assert "mcp-session-id" not in response.headers


async def test_results_have_the_old_shape() -> None:
    """Spec: 2025-11-25: no resultType, no caching hints, structured content only as an object."""
    session = await opened()
    assert await session.result("ping") == {}
    assert await session.result("logging/setLevel", {"level": "error"}) == {}
    tools = await session.result("tools/list")
    assert set(tools) == {"tools"}
    by_name = {tool["name"]: tool for tool in tools["tools"]}
    assert "outputSchema" not in by_name["number"]
    assert by_name["person"]["outputSchema"]["type"] == "object"
    number = await session.result("tools/call", {"name": "number"})
    assert number == {"content": [{"type": "text", "text": "3"}], "isError": False}
    person = await session.result("tools/call", {"name": "person"})
    assert person["structuredContent"] == {"name": "Ann"}
    read = await session.result("resources/read", {"uri": "x://watched"})
    assert set(read) == {"contents"}


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("none/such", {}, -32601),
        ("server/none", {}, -32601),
        ("completion/complete", {}, -32601),
        ("tools/call", {"name": "missing"}, -32602),
        ("tools/list", {"cursor": "forged"}, -32602),
        ("tools/list", {"cursor": 5}, -32602),
        ("logging/setLevel", {"level": "loud"}, -32602),
        ("resources/read", {"uri": "x://none"}, -32002),
        ("resources/subscribe", {"uri": "x://none"}, -32002),
        ("resources/subscribe", {}, -32602),
    ],
)
async def test_errors_have_the_old_codes_and_status_200(method: str, params: Any, code: int) -> None:
    """Spec: 2025-11-25 server/resources#error-handling; JSON-RPC errors are HTTP successes in this era."""
    response = await (await opened()).call(method, params)
    assert (response.status, response.json["error"]["code"]) == (200, code)


async def test_requests_before_the_handshake_are_refused() -> None:
    """Spec: 2025-11-25 basic/transports#session-management (SHOULD 400 without a session id)"""
    caller = Caller(make().asgi())
    headers = {"mcp-protocol-version": "2025-11-25"}
    response = await caller.send({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, headers)
    assert response.status == 400


async def test_unknown_session_is_404_also_for_get_and_delete() -> None:
    """Spec: 2025-11-25 basic/transports#session-management (MUST 404)"""
    session = Session(make().asgi())
    session.headers["mcp-session-id"] = "unknown"
    for message in (
        {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
    ):
        assert (await session.send(message)).status == 404
    for method in ("GET", "DELETE"):
        assert (await session.caller.start(b"", method=method, headers=session.headers).finish()).status == 404


async def test_unsupported_version_header_is_refused() -> None:
    """Spec: 2025-11-25 basic/transports#protocol-version-header (MUST 400)"""
    session = await opened()
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    assert (await session.send(message, mcp_protocol_version="1999-01-01")).status == 400
    assert (await session.send(message, mcp_protocol_version="2025-11-25")).status == 200


async def test_deleted_session_is_over() -> None:
    """Spec: 2025-11-25 basic/transports#session-management; its running requests are stopped."""
    server = make()
    session = await opened(server)
    running = session.begin("tools/call", {"name": "wait"})
    listening = session.get()
    await listening.until(lambda response: response.status)
    response = await session.caller.start(b"", method="DELETE", headers=session.headers).finish()
    assert response.status == 204
    assert (await session.call("tools/list")).status == 404
    await running.finish()
    await listening.finish()
    assert len(server.subscriptions) == 0


async def test_session_belongs_to_who_opened_it() -> None:
    """Ours: a session id that leaks is of no use to somebody else."""
    server = make()
    app = server.asgi(authenticate=lambda scope: Principal(dict(scope["headers"]).get(b"x-who", b"?").decode()))
    session = Session(app, **{"x-who": "ann"})
    await session.open()
    assert (await session.call("tools/list")).status == 200
    session.headers["x-who"] = "bob"
    assert (await session.call("tools/list")).status == 404


async def test_session_sees_what_its_caller_may_see_now() -> None:
    """Ours: scopes are those of each request, not those of the day the session was opened; refreshed tokens keep a session."""
    server = make()
    server.tool(lambda: "x", name="admin", visible_to=lambda who: who is not None and "admin" in who.scopes)
    scopes = {"admin"}
    app = server.asgi(authenticate=lambda scope: Principal("ann", frozenset(scopes), {"issued": len(scopes)}))
    session = Session(app)
    await session.open()

    async def names() -> set[str]:
        return {tool["name"] for tool in (await session.result("tools/list"))["tools"]}

    assert "admin" in await names()
    scopes.clear()
    assert "admin" not in await names()
    assert (await session.call("tools/call", {"name": "admin"})).json["error"]["code"] == -32602


async def test_sessions_are_bounded_in_number() -> None:
    """Ours: the one that was idle longest ends; at the limit and one above."""
    app = make().asgi(options=HttpOptions(max_sessions=3))
    sessions = [Session(app) for _ in range(4)]
    for session in sessions[:3]:
        await session.open()
    assert (await sessions[0].call("tools/list")).status == 200
    await sessions[3].open()
    assert [(await session.call("tools/list")).status for session in sessions] == [200, 404, 200, 200]


async def test_idle_sessions_end() -> None:
    """Ours: idle time is measured by the loop's clock."""
    server = make()
    app = server.asgi(options=HttpOptions(session_idle_s=0.0))
    sessions = [Session(app) for _ in range(20)]
    for session in sessions:
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}
        await session.send({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
    assert len(app._legacy) <= 1  # type: ignore[arg-type]
    assert len(server.subscriptions) <= 1


async def test_log_level_belongs_to_the_session() -> None:
    """Spec: 2025-11-25 server/utilities/logging#setting-log-level"""
    session = await opened()

    async def logged() -> list[Any]:
        events = (await session.call("tools/call", {"name": "steps"})).events
        return [event["params"]["data"] for event in events if event and event.get("method") == "notifications/message"]

    assert await logged() == ["loud"]
    await session.result("logging/setLevel", {"level": "debug"})
    assert await logged() == ["quiet", "loud"]
    await session.result("logging/setLevel", {"level": "error"})
    response = await session.call("tools/call", {"name": "steps"})
    assert response.headers["content-type"] == "application/json"


async def test_progress_goes_to_the_request_that_asked() -> None:
    """Spec: 2025-11-25 basic/utilities/progress"""
    session = await opened()
    await session.result("logging/setLevel", {"level": "error"})
    response = await session.call("tools/call", {"name": "steps", "_meta": {"progressToken": "t"}})
    primer, note, reply = response.events
    assert primer is None
    assert note["params"] == {"progressToken": "t", "progress": 1, "total": 2}
    assert reply["result"]["content"][0]["text"] == "done"


async def questions(exchange: Exchange, count: int) -> list[Any]:
    def asked(response: Response) -> list[Any]:
        return [event for event in response.events if event and "method" in event and "id" in event]

    return asked(await exchange.until(lambda response: len(asked(response)) >= count))


async def test_question_is_a_request_and_its_answer_a_post() -> None:
    """Spec: 2025-11-25 client/elicitation: the same call of the author as in the modern era."""
    session = await opened(capabilities={"elicitation": {}})
    exchange = session.begin("tools/call", {"name": "ask"})
    (question,) = await questions(exchange, 1)
    assert question["method"] == "elicitation/create"
    assert question["params"]["requestedSchema"]["properties"] == {"name": {"type": "string"}}
    answered = await session.reply(question["id"], result={"action": "accept", "content": {"name": "Bob"}})
    assert (answered.status, answered.body) == (202, b"")
    assert (await exchange.finish()).events[-1]["result"]["content"][0]["text"] == "Bob"


async def test_questions_run_side_by_side() -> None:
    """Ours: `ctx.ask` sends them together; a URL has the id that 2025-11-25 wants."""
    session = await opened(capabilities={"elicitation": {"url": {}}, "sampling": {}, "roots": {}})
    exchange = session.begin("tools/call", {"name": "ask_all"})
    by_method = {question["method"]: question for question in await questions(exchange, 3)}
    assert by_method["elicitation/create"]["params"]["elicitationId"]
    answers = {
        "roots/list": {"roots": [{"uri": "file:///a"}]},
        "elicitation/create": {"action": "cancel"},
        "sampling/createMessage": {"role": "assistant", "content": {"type": "text", "text": "yo"}, "model": "m"},
    }
    for method, answer in answers.items():
        await session.reply(by_method[method]["id"], result=answer)
    assert (await exchange.finish()).events[-1]["result"]["content"][0]["text"] == "yo 1 cancel"


@pytest.mark.parametrize(
    "reply", [{"error": {"code": -1, "message": "no"}}, {"result": 5}, {"result": {"action": "x"}}]
)
async def test_bad_answer_to_a_question_is_an_error_of_the_request(reply: Any) -> None:
    """Ours: and not a hanging request."""
    session = await opened(capabilities={"elicitation": {}})
    exchange = session.begin("tools/call", {"name": "ask"})
    (question,) = await questions(exchange, 1)
    await session.reply(9999, result={"action": "accept", "content": {"name": "nobody asked"}})
    await session.reply(str(question["id"]), result={"action": "accept", "content": {"name": "wrong type of id"}})
    await session.reply(question["id"], **reply)
    assert "error" in (await exchange.finish()).events[-1]


async def test_returned_question_is_asked_by_request_and_the_function_runs_again() -> None:
    """Ours: what a function returns as a question works for legacy clients too, with its state in between."""
    server = Server("s", version="1")

    @server.tool
    def f(ctx: Context) -> str | InputRequest:
        if "k" not in ctx.answers:
            return InputRequest({"k": Sample("hi", max_tokens=1)}, state={"round": 1})
        return f"{ctx.answers['k']['content']['text']} {ctx.state}"

    session = await opened(server, capabilities={"sampling": {}})
    exchange = session.begin("tools/call", {"name": "f"})
    (question,) = await questions(exchange, 1)
    await session.reply(
        question["id"], result={"role": "assistant", "content": {"type": "text", "text": "yo"}, "model": "m"}
    )
    assert (await exchange.finish()).events[-1]["result"]["content"][0]["text"] == "yo {'round': 1}"


async def test_question_that_the_client_cannot_answer_is_not_sent() -> None:
    """Spec: 2025-11-25 basic/lifecycle#operation (only negotiated capabilities, MUST)"""
    response = await (await opened()).call("tools/call", {"name": "ask"})
    assert response.json["error"]["code"] == -32021


async def test_changes_arrive_on_the_get_stream() -> None:
    """Spec: 2025-11-25 basic/transports#listening-for-messages-from-the-server; changes before it opened are not lost."""
    server = make()
    session = await opened(server)
    server.tool(lambda: "x", name="new")
    assert await session.result("resources/subscribe", {"uri": "x://watched"}) == {}
    stream = session.get()
    await stream.until(lambda response: len(response.events) >= 1)
    server.resource_updated("x://watched")
    found = (await stream.until(lambda response: len(response.events) >= 2)).events
    assert found == [
        {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"},
        {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "x://watched"}},
    ]
    assert await session.result("resources/unsubscribe", {"uri": "x://watched"}) == {}
    server.resource_updated("x://watched")
    server.remove_prompt("p")
    found = (await stream.until(lambda response: len(response.events) >= 3)).events
    assert found[2]["method"] == "notifications/prompts/list_changed"
    await stream.disconnect()


async def test_newer_get_stream_takes_the_place_of_the_older() -> None:
    """Spec: 2025-11-25 basic/transports#multiple-connections (MUST NOT broadcast)"""
    server = make()
    session = await opened(server)
    first = session.get()
    await first.until(lambda response: response.body)
    second = session.get()
    await second.until(lambda response: response.body)
    assert (await first.finish()).is_complete
    server.remove_tool("number")
    await second.until(lambda response: len(response.events) == 1)
    await second.disconnect()


async def test_get_needs_accept() -> None:
    """Spec: 2025-11-25 basic/transports#listening-for-messages-from-the-server"""
    session = await opened()
    assert (await session.get(accept="application/json").finish()).status == 406


async def test_cancellation_stops_the_request() -> None:
    """Spec: 2025-11-25 basic/utilities/cancellation (SHOULD stop, not respond)"""
    session = await opened()
    exchange = session.begin("tools/call", {"name": "wait"}, id="w")
    sent = asyncio.create_task(exchange.until(lambda response: response.status))
    await asyncio.sleep(0)
    for params in ({}, {"requestId": []}, {"requestId": "other"}, {"requestId": "w"}):
        cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
        assert (await session.send(cancelled)).status == 202
    response = await exchange.finish()
    await sent
    assert response.body == b""


async def test_lost_connection_does_not_cancel_and_the_result_is_fetched() -> None:
    """Spec: 2025-11-25 basic/transports#sending-messages-to-the-server, #resumability-and-redelivery"""
    server = make()
    session = await opened(server)
    exchange = session.begin("tools/call", {"name": "poll", "_meta": {"progressToken": 1}})
    response = await exchange.finish()
    assert response.is_complete
    blocks = response.body.decode().split("\n\n")
    assert blocks[0].split("\n") == ["id: 1-0", "retry: 250", "data: "]
    assert [event["params"]["progress"] for event in response.events if event] == [1, 2]
    assert "retry: 250" in blocks[-2]
    resumed = session.get(last_event_id="1-1")
    await resumed.until(lambda response: len(response.events) == 1)
    server.gate.set()  # type: ignore[attr-defined]
    events = (await resumed.finish()).events
    assert [event["params"]["progress"] for event in events[:-1]] == [2, 3]
    assert events[-1]["result"]["content"][0]["text"] == "polled"
    # Resumed again after the end: the same messages, from the log.
    again = (await session.get(last_event_id="1-3").finish()).events
    assert [event.get("id") for event in again] == [events[-1]["id"]]


@pytest.mark.parametrize("last_event_id", ["", "x", "1", "99-1", "1-99", "-", "1-", "²-²", "9" * 500 + "-1"])
async def test_unknown_event_id_opens_the_ordinary_stream(last_event_id: str) -> None:
    """Ours: nothing of another stream is replayed for a forged id."""
    session = await opened()
    stream = session.get(last_event_id=last_event_id)
    await stream.until(lambda response: response.body)
    assert stream.response.events == []
    await stream.disconnect()


async def test_both_eras_share_one_endpoint() -> None:
    """Spec: 2026-07-28 basic/versioning (MAY serve both eras concurrently): discovery pins nothing."""
    server = make()
    session = await opened(server)
    for _ in range(2):
        modern = await session.caller.result("server/discover", headers=session.headers)
        assert modern["supportedVersions"][0] == "2026-07-28"
        assert "resultType" not in await session.result("tools/list")
    assert (await session.caller.result("tools/list"))["resultType"] == "complete"


async def test_modern_only_server_has_no_sessions() -> None:
    """Spec: 2026-07-28 basic/versioning (SHOULD name its versions). Case 141."""
    caller = Caller(make().asgi(legacy=False))
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}
    response = await caller.send({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    assert (response.status, response.json["error"]["code"]) == (400, -32022)
    assert response.json["error"]["data"]["supported"] == ["2026-07-28"]
    headers = {"mcp-session-id": "x"}
    assert (await caller.start(b"", method="GET", headers=headers).finish()).status == 405


async def test_batch_of_the_version_that_had_them_is_answered() -> None:
    """Spec: 2025-03-26 basic#batching (a server MUST take them): an array when all is ready, a stream when a function runs."""
    session = Session(make().asgi(), "2025-03-26")
    await session.open()

    def numbered(*methods: str) -> list[Any]:
        return [{"jsonrpc": "2.0", "id": n, "method": m, "params": {"name": "number"}} for n, m in enumerate(methods)]

    note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "none"}}
    ready = await session.send([*numbered("ping", "initialize", "none/such"), note, 5])
    assert sorted((reply.get("id", -1), "error" in reply) for reply in ready.json) == [
        (-1, True), (0, False), (1, True), (2, True)
    ]  # fmt: skip
    working = await session.send(numbered("tools/call", "ping", "tools/call"))
    assert {event["id"] for event in working.events} == {0, 1, 2}
    assert (await session.send([note])).status == 202
    for bad in ([], numbered("ping") * 101):
        assert (await session.send(bad)).json["error"]["code"] == -32600


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18"])
async def test_batch_of_another_version_is_refused(version: str) -> None:
    """Spec: 2025-06-18 removed batches; 2026-07-28 has none."""
    session = Session(make().asgi(), version)
    await session.open()
    response = await session.send([{"jsonrpc": "2.0", "id": 1, "method": "ping"}])
    assert (response.status, response.json["error"]["code"]) == (400, -32600)
    without = await session.caller.send([{"jsonrpc": "2.0", "id": 1, "method": "ping"}])
    assert without.status == 400


async def test_id_in_use_is_refused_and_enormous_ids_are_ids() -> None:
    """Spec: 2025-11-25 basic/index#requests (MUST NOT have been used before)"""
    session = await opened()
    first = session.begin("tools/call", {"name": "wait"}, id=10**30)
    await asyncio.sleep(0)
    second = await session.begin("tools/call", {"name": "wait"}, id=10**30).finish()
    assert (second.status, second.json["id"], second.json["error"]["code"]) == (400, 10**30, -32600)
    await session.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 10**30}})
    await first.finish()


async def test_sessions_that_end_leave_nothing_behind() -> None:
    """Ours."""
    server = make()
    app = server.asgi()
    for _ in range(50):
        session = await opened(server)
        session.caller.app = session.caller.app
        await session.call("tools/call", {"name": "steps", "_meta": {"progressToken": 1}})
        await session.caller.start(b"", method="DELETE", headers=session.headers).finish()
    assert len(server.subscriptions) == 0
    assert len(app._legacy) == 0  # type: ignore[arg-type]
    async with asyncio.timeout(DEADLINE_S):
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0)
