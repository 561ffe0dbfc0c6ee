"""Asking the client: input-required results, sealed states, and what a client may send back."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from outrider.server import (
    Context,
    Elicit,
    ElicitUrl,
    InputRequest,
    ListRoots,
    Principal,
    RequestRejected,
    Sample,
    Server,
    ServerOptions,
    WireQuestion,
)
from server.asgi import Caller

ALL: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}
KEY = "a state key for tests, long enough"


@dataclass
class Person:
    name: str
    age: int = 0


def server(**options: Any) -> Server:
    own = Server("s", version="1", options=ServerOptions(state_keys=(KEY,), **options))

    @own.tool
    async def greet(ctx: Context) -> str:
        answer = await ctx.elicit("Who are you?", Person, key="who")
        return f"Hello, {answer.content.name}" if answer.accepted else answer.action

    @own.tool
    def greet_from_thread(ctx: Context) -> str:
        answer = ctx.from_thread(ctx.elicit, "Who are you?", Person, key="who")
        return f"Hello, {answer.content.name}"

    @own.tool
    async def book(city: str, ctx: Context) -> str:
        ctx.state["runs"] = ctx.state.get("runs", 0) + 1
        day = await ctx.elicit("Which day?", {"type": "object", "properties": {"day": {"type": "string"}}}, key="day")
        seat = await ctx.elicit(
            "Which seat?", {"type": "object", "properties": {"seat": {"type": "string"}}}, key="seat"
        )
        return f"{city} {day.content['day']} {seat.content['seat']} after {ctx.state['runs']} runs"

    @own.tool
    async def many(ctx: Context) -> str:
        answers = await ctx.ask(
            {
                "form": Elicit("f", Person),
                "model": Sample("m", max_tokens=5),
                "roots": ListRoots(),
                "url": ElicitUrl("u", "https://x"),
            }
        )
        return f"{answers['form'].action} {answers['model'].text} {answers['roots'][0].uri} {answers['url'].action}"

    @own.tool
    async def grouped(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(ctx.elicit("Who are you?", Person, key="who"))
        return task.result().content.name

    @own.tool
    async def swallowing(ctx: Context) -> str:
        try:
            answer = await ctx.elicit("Who are you?", Person, key="who")
        except Exception:
            return "swallowed"
        return answer.action

    @own.tool
    def later(ctx: Context) -> str | InputRequest:
        turn = ctx.state.get("turn", 0)
        return f"turn {turn}" if turn else InputRequest(state={"turn": 1})

    @own.tool
    def silent() -> str:
        return "nothing asked"

    @own.prompt
    async def prepared(ctx: Context) -> str:
        return (await ctx.elicit("Who are you?", Person, key="who")).content.name

    @own.resource("x://form")
    async def form(ctx: Context) -> str:
        return (await ctx.elicit("Who are you?", Person, key="who")).content.name

    return own


def accept(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


class Client:
    """Calls tools with all capabilities."""

    def __init__(self, app: Any = None, **headers: str) -> None:
        self.caller = Caller(app or server().asgi())
        self.headers = headers

    async def result(self, name: str, arguments: Any = None, *, capabilities: Any = ALL, **params: Any) -> Any:
        own = {"name": name, **({} if arguments is None else {"arguments": arguments}), **params}
        return await self.caller.result("tools/call", own, capabilities=capabilities, headers=self.headers)

    async def error(self, name: str, arguments: Any = None, *, capabilities: Any = ALL, **params: Any) -> Any:
        own = {"name": name, **({} if arguments is None else {"arguments": arguments}), **params}
        return await self.caller.error("tools/call", own, capabilities=capabilities, headers=self.headers)


@pytest.mark.parametrize("tool", ["greet", "greet_from_thread"])
async def test_question_is_asked_and_its_answer_used(tool: str) -> None:
    """Spec: 2026-07-28 basic/patterns/mrtr#basic-workflow"""
    client = Client()
    asked = await client.result(tool)
    assert asked["resultType"] == "input_required"
    assert asked["inputRequests"] == {
        "who": {
            "method": "elicitation/create",
            "params": {
                "mode": "form",
                "message": "Who are you?",
                "requestedSchema": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "default": 0}},
                    "required": ["name"],
                },
            },
        }
    }
    # Interim results carry no caching hints. Spec: server/utilities/caching#cacheable-results
    assert not {"ttlMs", "cacheScope", "content"} & set(asked)
    done = await client.result(tool, inputResponses={"who": accept(name="Ann")})
    assert (done["resultType"], done["content"][0]["text"]) == ("complete", "Hello, Ann")


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_user_may_refuse(action: str) -> None:
    """Spec: 2026-07-28 client/elicitation#response-actions (MUST handle)"""
    result = await Client().result("greet", inputResponses={"who": {"action": action}})
    assert result["content"][0]["text"] == action


async def test_answers_of_earlier_rounds_come_back_in_the_state() -> None:
    """Ours: a client sends only the newest answers; the others travel sealed, with the author's own state."""
    client = Client()
    arguments = {"city": "Rome"}
    first = await client.result("book", arguments)
    assert list(first["inputRequests"]) == ["day"]
    second = await client.result(
        "book", arguments, requestState=first["requestState"], inputResponses={"day": accept(day="Monday")}
    )
    assert list(second["inputRequests"]) == ["seat"]
    assert second["requestState"] != first["requestState"]
    third = await client.result(
        "book", arguments, requestState=second["requestState"], inputResponses={"seat": accept(seat="1A")}
    )
    assert third["content"][0]["text"] == "Rome Monday 1A after 3 runs"


async def test_other_process_with_the_same_key_goes_on() -> None:
    """Spec: 2026-07-28 basic/index#statelessness (MUST NOT rely on prior requests)"""
    first = await Client().result("book", {"city": "Rome"})
    other = Client(server().asgi())
    second = await other.result(
        "book", {"city": "Rome"}, requestState=first["requestState"], inputResponses={"day": accept(day="Friday")}
    )
    assert list(second["inputRequests"]) == ["seat"]


async def test_several_questions_are_asked_at_once_and_missing_ones_again() -> None:
    """Spec: 2026-07-28 basic/patterns/mrtr#error-handling (SHOULD ask again for what is missing)"""
    client = Client()
    asked = await client.result("many")
    assert {key: request["method"] for key, request in asked["inputRequests"].items()} == {
        "form": "elicitation/create",
        "model": "sampling/createMessage",
        "roots": "roots/list",
        "url": "elicitation/create",
    }
    assert asked["inputRequests"]["url"]["params"] == {"mode": "url", "message": "u", "url": "https://x"}
    sampled = {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"}
    part = {"form": accept(name="Ann"), "model": sampled, "unasked": 5}
    again = await client.result("many", inputResponses=part)
    assert set(again["inputRequests"]) == {"roots", "url"}
    rest = {"roots": {"roots": [{"uri": "file:///a"}]}, "url": {"action": "accept"}}
    done = await client.result("many", requestState=again["requestState"], inputResponses=rest)
    assert done["content"][0]["text"] == "accept hi file:///a accept"


@pytest.mark.parametrize(
    "responses",
    [
        {"who": 12345},
        {"who": None},
        {"who": {"action": "maybe"}},
        {"who": {"action": "accept"}},
        {"who": accept(age=5)},
        {"who": accept(name=5)},
        {"who": {"action": "accept", "content": "Ann"}},
    ],
)
async def test_malformed_answer_is_invalid_params(responses: Any) -> None:
    """Spec: 2026-07-28 basic/patterns/mrtr#error-handling (SHOULD validate)"""
    status, error = await Client().error("greet", inputResponses=responses)
    assert (status, error["code"]) == (400, -32602)


async def test_state_that_is_not_ours_is_refused_by_every_function() -> None:
    """Spec: 2026-07-28 basic/patterns/mrtr#server-requirements-basic-workflow (MUST reject)"""
    client = Client()
    state = (await client.result("book", {"city": "Rome"}))["requestState"]
    for tool in ("book", "silent", "greet"):
        arguments = {"city": "Rome"} if tool == "book" else None
        for forged in ("", "x", state[:-4], state + "-TAMPERED", state[::-1]):
            assert (await client.error(tool, arguments, requestState=forged))[1]["code"] == -32602


@pytest.mark.parametrize(
    ("tool", "arguments"), [("book", {"city": "Oslo"}), ("greet", None), ("book", {"city": "Rome", "x": 1})]
)
async def test_state_does_not_fit_another_request(tool: str, arguments: Any) -> None:
    """Spec: as above (SHOULD bind to the request)"""
    client = Client()
    state = (await client.result("book", {"city": "Rome"}))["requestState"]
    assert (await client.error(tool, arguments, requestState=state))[1]["code"] == -32602


async def test_order_of_argument_members_does_not_matter_to_the_state() -> None:
    """Ours: a client that comes back need not write its arguments in the same order."""
    own = Server("s", version="1")

    @own.tool
    async def f(a: int, b: int, ctx: Context) -> str:
        ctx.state["x"] = 1
        return (await ctx.elicit("?", Person, key="k")).content.name

    client = Client(own.asgi())
    state = (await client.result("f", {"a": 1, "b": 2}))["requestState"]
    done = await client.result("f", {"b": 2, "a": 1}, requestState=state, inputResponses={"k": accept(name="Ann")})
    assert done["content"][0]["text"] == "Ann"


async def test_state_does_not_fit_another_caller() -> None:
    """Spec: as above (SHOULD bind to the authenticated principal)"""
    app = server().asgi(authenticate=lambda scope: Principal(dict(scope["headers"])[b"x-who"].decode()))
    ann, bob = Client(app, **{"x-who": "ann"}), Client(app, **{"x-who": "bob"})
    state = (await ann.result("book", {"city": "Rome"}))["requestState"]
    assert (await bob.error("book", {"city": "Rome"}, requestState=state))[1]["code"] == -32602
    assert (await ann.result("book", {"city": "Rome"}, requestState=state))["resultType"] == "input_required"


async def test_state_expires() -> None:
    """Spec: as above (SHOULD have a short expiry)"""
    client = Client(server(state_ttl_s=0).asgi())
    state = (await client.result("book", {"city": "Rome"}))["requestState"]
    assert "expired" in (await client.error("book", {"city": "Rome"}, requestState=state))[1]["message"]


@pytest.mark.parametrize(
    ("tool", "capabilities", "required"),
    [
        ("greet", {}, {"elicitation": {"form": {}}}),
        ("greet", {"elicitation": {"url": {}}}, {"elicitation": {"form": {}}}),
        ("many", {"elicitation": {}, "sampling": {}, "roots": {}}, {"elicitation": {"url": {}}}),
        ("many", {"elicitation": {"form": {}, "url": {}}, "roots": {}}, {"sampling": {}}),
        ("many", {"elicitation": {"form": {}, "url": {}}, "sampling": {}}, {"roots": {}}),
    ],
)
async def test_what_the_client_cannot_do_is_not_asked(tool: str, capabilities: Any, required: Any) -> None:
    """Spec: 2026-07-28 basic/index#_meta (MUST -32021, HTTP 400, with what is missing)"""
    status, error = await Client().error(tool, capabilities=capabilities)
    assert (status, error["code"], error["data"]) == (400, -32021, {"requiredCapabilities": required})


async def test_bare_elicitation_capability_means_forms() -> None:
    """Spec: 2026-07-28 client/elicitation#capabilities (equivalent to form)"""
    assert (await Client().result("greet", capabilities={"elicitation": {}}))["resultType"] == "input_required"


async def test_question_inside_a_task_group_leaves_through_it() -> None:
    """Ours: authors may ask from within structured concurrency."""
    client = Client()
    assert (await client.result("grouped"))["resultType"] == "input_required"
    assert (await client.result("grouped", inputResponses={"who": accept(name="Ann")}))["content"][0]["text"] == "Ann"


async def test_question_passes_an_authors_except_clause() -> None:
    """Ours: `except Exception` around a question does not swallow it."""
    assert (await Client().result("swallowing"))["resultType"] == "input_required"


async def test_questions_of_another_server_are_passed_on() -> None:
    """Ours: a gateway forwards questions as they came, keeps the other server's state in its own, and hands the raw answers back."""
    own = Server("s", version="1")
    wire = {
        "method": "elicitation/create",
        "params": {"message": "?", "x-new": 1, "requestedSchema": {"type": "object"}},
    }

    async def call(arguments: dict[str, Any], ctx: Context) -> Any:
        if "theirs" not in ctx.state:
            return InputRequest({"k": WireQuestion(**wire)}, state={"theirs": "opaque"})
        return f"{ctx.state['theirs']} {ctx.answers['k']}"

    own.add_tool_definition({"name": "f", "inputSchema": {"type": "object"}}, call)
    client = Client(own.asgi())
    asked = await client.result("f")
    assert asked["inputRequests"] == {"k": wire}
    done = await client.result("f", requestState=asked["requestState"], inputResponses={"k": {"any": "thing"}})
    assert done["content"][0]["text"] == "opaque {'any': 'thing'}"


async def test_returned_question_that_the_client_cannot_answer_is_not_sent() -> None:
    """Spec: 2026-07-28 basic/patterns/mrtr (MUST NOT), whichever way a function asks."""
    own = Server("s", version="1")

    @own.tool
    def f(ctx: Context) -> InputRequest:
        return InputRequest({"k": Sample("hi", max_tokens=1)})

    status, error = await Client(own.asgi()).error("f", capabilities={"elicitation": {}})
    assert (status, error["code"], error["data"]) == (400, -32021, {"requiredCapabilities": {"sampling": {}}})


@pytest.mark.parametrize(
    ("method", "params", "needs", "enough", "lacking"),
    [
        ("elicitation/create", {}, {"elicitation": {"form": {}}}, {"elicitation": {}}, {"elicitation": {"url": {}}}),
        (
            "elicitation/create",
            {"mode": "url"},
            {"elicitation": {"url": {}}},
            {"elicitation": {"url": {}}},
            {"elicitation": {}},
        ),
        ("sampling/createMessage", {}, {"sampling": {}}, {"sampling": {}}, {}),
        (
            "sampling/createMessage",
            {"tools": []},
            {"sampling": {"tools": {}}},
            {"sampling": {"tools": {}}},
            {"sampling": {}},
        ),
        ("roots/list", {}, {"roots": {}}, {"roots": {}}, {"roots": True}),
    ],
)
def test_passed_on_question_knows_what_it_needs(
    method: str, params: Any, needs: Any, enough: Any, lacking: Any
) -> None:
    """Spec: 2026-07-28 basic/patterns/mrtr (MUST NOT send what is not declared), for forwarded questions too."""
    question = WireQuestion(method, params)
    assert question.capability == needs
    assert question.is_supported(enough)
    assert not question.is_supported(lacking)
    with pytest.raises(ValueError, match="no request that a client answers"):
        WireQuestion("tools/call", {})


async def test_state_alone_can_be_handed_out() -> None:
    """Spec: 2026-07-28 basic/patterns/mrtr (at least one of inputRequests and requestState, MUST)"""
    client = Client()
    asked = await client.result("later")
    assert (asked["resultType"], "inputRequests" in asked) == ("input_required", False)
    assert (await client.result("later", requestState=asked["requestState"]))["content"][0]["text"] == "turn 1"


async def test_prompts_and_resources_ask_too() -> None:
    """Spec: 2026-07-28 basic/patterns/mrtr#supported-requests"""
    caller = Client().caller
    for method, params in (("prompts/get", {"name": "prepared"}), ("resources/read", {"uri": "x://form"})):
        asked = await caller.result(method, params, capabilities=ALL)
        assert asked["resultType"] == "input_required"
        answered = {**params, "inputResponses": {"who": accept(name="Ann")}}
        assert "Ann" in str(await caller.result(method, answered, capabilities=ALL))


async def test_completions_cannot_ask() -> None:
    """Spec: 2026-07-28 basic/patterns/mrtr#supported-requests (MUST NOT on others): lists and completions never ask."""
    caller = Client().caller
    for method in ("tools/list", "prompts/list", "server/discover"):
        answered = {"inputResponses": {}, "requestState": "x"}
        assert (await caller.result(method, answered, capabilities=ALL))["resultType"] == "complete"


async def test_worker_thread_cannot_block_the_loop() -> None:
    """Ours: `from_thread` on the loop would wait for itself; it says so instead."""
    own = Server("s", version="1")

    @own.tool
    async def f(ctx: Context) -> str:
        with pytest.raises(RuntimeError, match="await the method"):
            ctx.from_thread(ctx.list_roots)
        return "ok"

    assert (await Client(own.asgi()).result("f"))["content"][0]["text"] == "ok"


@pytest.mark.parametrize(
    "form", [dict[str, int], list[int], int, {"type": "object", "properties": {"a": {"type": "object"}}}]
)
def test_form_must_be_a_flat_object(form: Any) -> None:
    """Spec: 2026-07-28 client/elicitation#requested-schema"""
    with pytest.raises(TypeError):
        Elicit("?", form)


def test_questions_read_only_what_they_asked_for() -> None:
    """Ours: each answer has its own shape."""
    from outrider.server.inputs import InvalidAnswer

    for question, answer in (
        (Sample("m", max_tokens=1), {"role": "assistant"}),
        (ListRoots(), {"roots": [{}]}),
        (ListRoots(), 5),
    ):
        with pytest.raises(InvalidAnswer):
            question.read(answer)
    assert RequestRejected(1, "x").data is None
