"""Tasks of a server: when a call becomes one, what its function may do, who may see it, and where it is kept."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import outrider
from outrider import Elicited, FormRequest, InputHandlers
from outrider.protocol.tasks import Task, TaskStatus
from outrider.server import (
    Context,
    Elicit,
    InputRequest,
    MemoryTaskStore,
    Principal,
    RequestRejected,
    Sample,
    Server,
    ServerOptions,
    TaskOptions,
    TaskRecord,
    TaskSupport,
    ToolError,
    TooManyTasks,
    Unauthorized,
)
from outrider.server.stdio import StdioConnection
from peers.ours import EVERYTHING, OUTRIDER
from server.asgi import Caller
from server.serving import serving

EXTENSION = "io.modelcontextprotocol/tasks"
TAKES: dict[str, Any] = {"extensions": {EXTENSION: {}}, "elicitation": {"form": {}}}
DEADLINE_S = 30.0
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@dataclass
class Scene:
    """A server whose functions wait for the test, and callers of it."""

    store: MemoryTaskStore | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        tasks = TaskOptions(poll_interval_ms=7, store=self.store, **self.options)
        self.server = own = Server("s", version="1", options=ServerOptions(tasks=tasks, state_keys=("k" * 16,)))
        self.go = asyncio.Event()
        self.reached = asyncio.Event()
        self.ended: list[str] = []
        self.thread_go = threading.Event()

        @own.tool(task=True)
        async def work(ctx: Context) -> str:
            ctx.progress(1, 3)
            ctx.log("info", "not for tasks")
            self.reached.set()
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.ended.append("cancelled")
                raise
            return f"worked as {ctx.task_id is not None}"

        @own.tool(task="required")
        async def fail(how: str) -> str:
            if how == "tool":
                raise ToolError("no luck")
            if how == "request":
                raise RequestRejected(-32050, "not like this", {"a": 1})
            raise ZeroDivisionError("secret")

        @own.tool(task=True)
        async def ask(ctx: Context) -> str:
            first = await ctx.elicit("Who?", NAME, key="who")
            second = await ctx.elicit("Who else?", NAME, key="who")
            return f"{first.content['name']} and {second.content['name']}"

        @own.tool(task=True)
        async def ask_much(ctx: Context) -> str:
            answers = await ctx.ask({"a": Elicit("A?", NAME), "b": Elicit("B?", NAME)})
            return " ".join(answer.content["name"] for answer in answers.values())

        @own.tool(task=True)
        async def give_up(ctx: Context) -> str:
            question = asyncio.ensure_future(ctx.elicit("Who?", NAME))
            await self.go.wait()
            question.cancel()
            self.go.clear()
            await self.go.wait()
            return "went on"

        @own.tool(task=True)
        async def sample(ctx: Context) -> str:
            return (await ctx.ask({"m": Sample("?", max_tokens=1)}))["m"].text

        @own.tool(task=True)
        def returns_question(ctx: Context) -> str | InputRequest:
            if "who" in ctx.answers:
                return f"so {ctx.answers['who']['content']['name']}"
            return InputRequest({"who": Elicit("Who?", NAME)})

        @own.tool(task=TaskSupport(after_s=None))
        async def later(ctx: Context, how: str = "") -> str:
            answer = await ctx.elicit("Who?", NAME, key="who")
            became = await ctx.to_task()
            if how == "ask":
                answer = await ctx.elicit("Who really?", NAME)
            return f"{answer.content['name']} {became}"

        @own.tool(task=TaskSupport(after_s=60))
        async def quick(ctx: Context, how: str = "") -> str:
            if how == "ask":
                return (await ctx.elicit("Who?", NAME)).content["name"]
            if how == "wait":
                self.reached.set()
                await self.go.wait()
            return "quick"

        @own.tool(task=True)
        def in_thread(ctx: Context) -> str:
            ctx.status("in a thread")
            name = ctx.from_thread(ctx.elicit, "Who?", NAME).content["name"]
            self.thread_go.wait(DEADLINE_S)
            self.ended.append(f"cancelled {ctx.cancelled}")
            return name

        @own.tool
        async def plain(ctx: Context) -> str:
            ctx.status("nobody hears")
            return f"{await ctx.to_task()}"

        self.caller = Caller(own.asgi(authenticate=self.authenticate))

    @staticmethod
    def authenticate(scope: Any) -> Principal | None:
        name = dict(scope["headers"]).get(b"authorization", b"").decode()
        if name == "nobody":
            raise Unauthorized
        return Principal(name) if name else None

    async def call(self, tool: str, capabilities: Any = TAKES, who: str = "", **arguments: Any) -> Any:
        params = {"name": tool, "arguments": arguments}
        return await self.caller.result("tools/call", params, capabilities=capabilities, headers=heads(who))

    async def ask(self, method: str, task_id: str, who: str = "", **params: Any) -> Any:
        return await self.caller.result(
            f"tasks/{method}", {"taskId": task_id, **params}, capabilities=TAKES, headers=heads(who)
        )

    async def error(self, method: str, who: str = "", capabilities: Any = TAKES, **params: Any) -> Any:
        return await self.caller.error(method, params, capabilities=capabilities, headers=heads(who))

    async def until(self, task_id: str, fits: Callable[[Any], bool]) -> Any:
        """The task as `tasks/get` tells it, once it fits; woken by the store, not by a clock."""
        store = self.server.tasks.store
        async with asyncio.timeout(DEADLINE_S):
            while True:
                found = await store.read(task_id)
                task = await self.ask("get", task_id)
                if fits(task):
                    return task
                assert found is not None
                await store.changed(task_id, found[1])

    async def until_owned(self, task_id: str, who: str, fits: Callable[[Any], bool]) -> None:
        """The same for a task of somebody's."""
        store = self.server.tasks.store
        async with asyncio.timeout(DEADLINE_S):
            while (found := await store.read(task_id)) and not fits(await self.ask("get", task_id, who=who)):
                await store.changed(task_id, found[1])

    async def over(self, task_id: str) -> Any:
        return await self.until(task_id, lambda task: task["status"] in ("completed", "failed", "cancelled"))

    async def asking(self, task_id: str, *keys: str) -> Any:
        return await self.until(task_id, lambda task: set(task.get("inputRequests", ())) == set(keys))


def heads(who: str) -> dict[str, str]:
    return {"authorization": who} if who else {}


def named(name: str) -> Any:
    return {"action": "accept", "content": {"name": name}}


def text_of(task: Any) -> str:
    return str(task["result"]["content"][0]["text"])


class TestAnnouncing:
    async def test_the_extension_is_announced_as_long_as_a_tool_can_be_a_task(self) -> None:
        """Spec #capability-negotiation; ours: capabilities follow from what is registered."""
        server = Server("s", version="1", options=ServerOptions(extensions={"com.example/own": {}}))
        server.tool(lambda: "x", name="plain")
        caller = Caller(server.asgi())

        async def announced() -> Any:
            return (await caller.result("server/discover"))["capabilities"]["extensions"]

        assert await announced() == {"com.example/own": {}}
        server.tool(lambda: "x", name="long", task=True)
        assert await announced() == {"com.example/own": {}, EXTENSION: {}}
        assert "tasks" not in (await caller.result("server/discover"))["capabilities"]
        server.remove_tool("long")
        assert await announced() == {"com.example/own": {}}

    async def test_a_server_without_tasks_does_not_know_the_methods(self) -> None:
        """Spec basic/index#error-codes: -32601, whether a header names the task or not."""
        server = Server("s", version="1")
        server.tool(lambda: "x", name="plain")
        for headers in ({}, {"mcp-name": None}):
            status, error = await Caller(server.asgi()).error(
                "tasks/get", {"taskId": "t"}, capabilities=TAKES, headers=headers
            )
            assert (status, error["code"]) == (404, -32601)

    async def test_legacy_clients_hear_nothing_of_tasks_and_wait(self) -> None:
        """Ours: those revisions have no extensions, whatever a client declares."""
        scene = Scene()
        scene.go.set()
        sent: list[Any] = []
        lines = asyncio.Event()

        def write(data: bytes) -> None:
            import json

            sent.extend(json.loads(line) for line in data.splitlines())
            lines.set()

        connection = StdioConnection(scene.server, write=write)

        async def ask(method: str, **params: Any) -> Any:
            import json

            count = len(sent)
            connection.feed(
                json.dumps({"jsonrpc": "2.0", "id": count + 1, "method": method, "params": params}).encode() + b"\n"
            )
            async with asyncio.timeout(DEADLINE_S):
                while len(sent) == count:
                    lines.clear()
                    await lines.wait()
            return sent[-1]

        info = {"name": "c", "version": "1"}
        hello = await ask("initialize", protocolVersion="2025-11-25", capabilities=TAKES, clientInfo=info)
        assert "extensions" not in hello["result"]["capabilities"]
        assert (await ask("tools/call", name="work"))["result"]["content"][0]["text"] == "worked as False"
        assert (await ask("tools/call", name="fail", arguments={"how": "tool"}))["error"]["code"] == -32021
        await connection.close()

    async def test_options_that_make_no_sense_are_refused(self) -> None:
        """Ours."""
        server = Server("s", version="1")
        with pytest.raises(ValueError, match="task is"):
            server.tool(lambda: "x", name="t", task="sometimes")  # type: ignore[call-overload]
        with pytest.raises(ValueError, match="at least"):
            TaskSupport(after_s=-1)
        with pytest.raises(ValueError, match="more than nothing"):
            Server("s", version="1", options=ServerOptions(tasks=TaskOptions(poll_interval_ms=0)))


class TestLife:
    async def test_a_call_is_answered_with_a_task_that_can_be_asked_for_at_once(self) -> None:
        """Spec #task-creation (MUST be durable; flat; whole milliseconds), #task-polling."""
        scene = Scene()
        created = await scene.call("work")
        assert created["resultType"] == "task"
        assert re.fullmatch(r"[\w-]{32}", created["taskId"]), "192 bits that nobody guesses"
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", created["createdAt"])
        assert (created["ttlMs"], created["pollIntervalMs"]) == (4_200_000, 7)
        assert created.keys() == {
            *("resultType", "taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs", "_meta")
        }
        first = await scene.ask("get", created["taskId"])
        assert (first["resultType"], first["status"], first["taskId"]) == ("complete", "working", created["taskId"])
        told = await scene.until(created["taskId"], lambda task: "statusMessage" in task)
        assert told["statusMessage"] == "1 of 3"
        scene.go.set()
        over = await scene.over(created["taskId"])
        assert over["status"] == "completed"
        assert text_of(over) == "worked as True"
        assert over["createdAt"] == created["createdAt"]

    async def test_a_client_that_does_not_take_tasks_waits_or_is_refused(self) -> None:
        """Spec #capability-negotiation (MUST NOT; MUST -32021), #backwards-compatibility."""
        scene = Scene()
        scene.go.set()
        for capabilities in ({}, {"tasks": {"requests": {"tools": {"call": {}}}}}, {"extensions": {EXTENSION: None}}):
            assert (await scene.call("work", capabilities))["content"][0]["text"] == "worked as False"
            status, error = await scene.error("tools/call", capabilities=capabilities, name="fail")
            assert (status, error["code"]) == (400, -32021)
            assert error["data"] == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
            for method in ("get", "update", "cancel"):
                status, error = await scene.error(f"tasks/{method}", capabilities=capabilities, taskId="t")
                assert (status, error["code"]) == (400, -32021)

    async def test_the_parameter_of_older_tasks_means_nothing(self) -> None:
        """Spec #backwards-compatibility (MUST ignore)."""
        called = await Scene().caller.result("tools/call", {"name": "plain", "task": {"ttl": 1}}, capabilities=TAKES)
        assert called["content"][0]["text"] == "False"

    @pytest.mark.parametrize(
        ("how", "status"), [("tool", "completed"), ("unexpected", "completed"), ("request", "failed")]
    )
    async def test_only_a_protocol_error_fails_a_task(self, how: str, status: str) -> None:
        """Spec #task-execution-errors (MUST); what is unexpected stays as secret as in any call."""
        scene = Scene()
        over = await scene.over((await scene.call("fail", how=how))["taskId"])
        assert over["status"] == status
        if how == "request":
            assert over["error"] == {"code": -32050, "message": "not like this", "data": {"a": 1}}
            assert over["statusMessage"] == "not like this"
            assert "result" not in over
        else:
            assert over["result"]["isError"] is True
            assert "secret" not in str(over)

    async def test_arguments_that_do_not_fit_are_a_result_as_in_any_call(self) -> None:
        """Ours."""
        scene = Scene()
        over = await scene.over((await scene.call("fail", how=5))["taskId"])
        assert "Invalid arguments" in text_of(over)

    async def test_cancelling_stops_the_function_and_stays(self) -> None:
        """Spec #task-cancellation: an empty acknowledgement (MUST), again and again."""
        scene = Scene()
        task_id = (await scene.call("work"))["taskId"]
        await scene.reached.wait()
        for _ in range(2):
            assert (await scene.ask("cancel", task_id)).keys() == {"resultType", "_meta"}
        over = await scene.ask("get", task_id)
        assert (over["status"], over["statusMessage"]) == ("cancelled", "Cancelled by the client.")
        scene.go.set()
        async with asyncio.timeout(DEADLINE_S):
            while scene.server.tasks.running:
                await asyncio.wait(scene.server.tasks.running)
        assert scene.ended == ["cancelled"]
        assert (await scene.ask("get", task_id))["status"] == "cancelled"

    async def test_a_function_in_a_thread_asks_tells_and_learns_that_it_is_cancelled(self) -> None:
        """Ours: as in any call, `ctx.cancelled`; its result is dropped."""
        scene = Scene()
        task_id = (await scene.call("in_thread"))["taskId"]
        asking = await scene.asking(task_id, "input_1")
        assert asking["statusMessage"] == "in a thread"
        await scene.ask("update", task_id, inputResponses={"input_1": named("Ada")})
        await scene.ask("cancel", task_id)
        functions = set(scene.server.tasks.running)
        if functions:
            await asyncio.wait(functions)
        scene.thread_go.set()
        scene.server.close()
        assert (await scene.ask("get", task_id))["status"] == "cancelled"

    async def test_the_client_may_leave_once_there_is_a_task(self) -> None:
        """Ours: before, leaving cancels the function as in any call."""
        scene = Scene()
        exchange = scene.caller.begin("tools/call", {"name": "quick", "arguments": {"how": "wait"}}, capabilities=TAKES)
        await scene.reached.wait()
        await exchange.disconnect()
        if scene.server.tasks.running:
            await asyncio.wait(scene.server.tasks.running)
        assert len(scene.server.tasks.store) == 0  # type: ignore[arg-type]


class TestQuestions:
    async def test_questions_and_answers_go_through_the_task(self) -> None:
        """Spec #task-update-requests: a key is used once (MUST); what is not asked is ignored (SHOULD)."""
        scene = Scene()
        task_id = (await scene.call("ask"))["taskId"]
        first = await scene.asking(task_id, "who")
        assert first["status"] == "input_required"
        assert first["inputRequests"]["who"]["method"] == "elicitation/create"
        answers = {"who": named("Ada"), "never": named("x")}
        assert (await scene.ask("update", task_id, inputResponses=answers)).keys() == {"resultType", "_meta"}
        await scene.asking(task_id, "who-2")
        await scene.ask("update", task_id, inputResponses={"who": named("again")})
        assert (await scene.ask("get", task_id))["status"] == "input_required"
        await scene.ask("update", task_id, inputResponses={"who-2": named("Grace")})
        assert text_of(await scene.over(task_id)) == "Ada and Grace"
        assert (await scene.ask("update", task_id, inputResponses={"who-2": named("late")}))["resultType"] == "complete"

    async def test_answers_may_come_one_by_one(self) -> None:
        """Spec #task-update-requests (MAY accept a part; stays input_required)."""
        scene = Scene()
        task_id = (await scene.call("ask_much"))["taskId"]
        await scene.asking(task_id, "a", "b")
        await scene.ask("update", task_id, inputResponses={"b": named("B")})
        left = await scene.ask("get", task_id)
        assert (left["status"], list(left["inputRequests"])) == ("input_required", ["a"])
        await scene.ask("update", task_id, inputResponses={"a": named("A")})
        assert text_of(await scene.over(task_id)) == "A B"

    @pytest.mark.parametrize(
        "bad", [5, {}, {"action": "maybe"}, {"action": "accept"}, {"action": "accept", "content": {}}]
    )
    async def test_an_answer_that_does_not_fit_is_refused_and_the_question_stays(self, bad: Any) -> None:
        """Ours: a slip of the client's must not cost the task."""
        scene = Scene()
        task_id = (await scene.call("ask_much"))["taskId"]
        await scene.asking(task_id, "a", "b")
        status, error = await scene.error("tasks/update", taskId=task_id, inputResponses={"a": bad, "b": named("B")})
        assert (status, error["code"]) == (400, -32602)
        assert "'a' is invalid" in error["message"]
        assert set((await scene.ask("get", task_id))["inputRequests"]) == {"a", "b"}
        scene.server.close()

    async def test_a_question_that_nobody_waits_for_is_taken_back(self) -> None:
        """Spec #task-polling: inputRequests are those outstanding."""
        scene = Scene()
        task_id = (await scene.call("give_up"))["taskId"]
        await scene.asking(task_id, "input_1")
        scene.go.set()
        await scene.until(task_id, lambda task: task["status"] == "working")
        scene.go.set()
        assert text_of(await scene.over(task_id)) == "went on"

    async def test_what_the_client_did_not_declare_is_not_asked(self) -> None:
        """Spec basic/index#_meta (MUST): the task fails with -32021."""
        scene = Scene()
        over = await scene.over((await scene.call("sample"))["taskId"])
        assert (over["status"], over["error"]["code"]) == ("failed", -32021)

    async def test_a_question_that_is_returned_is_asked_and_the_function_runs_again(self) -> None:
        """Ours: as for legacy clients."""
        scene = Scene()
        task_id = (await scene.call("returns_question"))["taskId"]
        await scene.asking(task_id, "who")
        await scene.ask("update", task_id, inputResponses={"who": named("Ada")})
        assert text_of(await scene.over(task_id)) == "so Ada"

    async def test_a_function_may_ask_first_and_become_a_task_then(self) -> None:
        """Spec #task-creation (SHOULD resolve exchanges before), with no state left in the task."""
        scene = Scene()
        asking = await scene.call("later", how="ask")
        assert (asking["resultType"], "taskId" in asking) == ("input_required", False)
        params = {"name": "later", "arguments": {"how": "ask"}, "inputResponses": {"who": named("Ada")}}
        created = await scene.caller.result("tools/call", params, capabilities=TAKES)
        assert created["resultType"] == "task"
        assert "requestState" not in created
        await scene.asking(created["taskId"], "input_2")
        await scene.ask("update", created["taskId"], inputResponses={"input_2": named("Grace")})
        assert text_of(await scene.over(created["taskId"])) == "Grace True"

    async def test_the_same_function_serves_clients_without_tasks(self) -> None:
        """Ours: `to_task` says no, and all goes on."""
        params = {"name": "later", "inputResponses": {"who": named("Ada")}}
        called = await Scene().caller.result("tools/call", params, capabilities={"elicitation": {}})
        assert called["content"][0]["text"] == "Ada False"

    async def test_what_is_done_soon_is_no_task_unless_it_asks(self) -> None:
        """Spec #capability-negotiation: the server decides by request."""
        scene = Scene()
        assert (await scene.call("quick"))["content"][0]["text"] == "quick"
        created = await scene.call("quick", how="ask")
        assert created["resultType"] == "task"
        await scene.asking(created["taskId"], "input_1")


class TestListening:
    KEY = "io.modelcontextprotocol/subscriptionId"

    async def test_a_listener_hears_how_a_task_stands_and_each_change(self) -> None:
        """Spec #task-status-notifications: the whole task; only those agreed to; no progress and no log messages (MUST NOT)."""
        scene = Scene()
        task_id = (await scene.call("ask_much", who="ada"))["taskId"]
        other = (await scene.call("work", who="eve"))["taskId"]
        await scene.until_owned(task_id, "ada", lambda task: len(task.get("inputRequests", ())) == 2)
        wanted = {"notifications": {"taskIds": [task_id, other, "none", task_id]}}
        stream = scene.caller.begin("subscriptions/listen", wanted, capabilities=TAKES, headers=heads("ada"), id=9)
        acknowledged = (await stream.until(lambda response: len(response.events) >= 1)).events[0]
        assert acknowledged["params"]["notifications"] == {"taskIds": [task_id]}
        first = (await stream.until(lambda response: len(response.events) >= 2)).events[1]
        assert first["method"] == "notifications/tasks"
        assert first["params"]["_meta"] == {self.KEY: 9}
        told = await scene.ask("get", task_id, who="ada")
        shown = {key: value for key, value in told.items() if key not in ("_meta", "resultType")}
        assert {key: value for key, value in first["params"].items() if key != "_meta"} == shown
        answers = {"a": named("A"), "b": named("B")}
        await scene.ask("update", task_id, who="ada", inputResponses=answers)
        done = await stream.until(lambda response: response.events[-1]["params"].get("status") == "completed")
        assert done.events[-1]["params"]["result"]["content"][0]["text"] == "A B"
        assert {event["method"] for event in done.events[1:]} == {"notifications/tasks"}
        await stream.disconnect()
        assert len(scene.server.subscriptions) == 0
        scene.server.close()

    async def test_who_does_not_take_tasks_cannot_listen_to_them(self) -> None:
        """Spec #task-status-notifications (MUST -32021)."""
        scene = Scene()
        wanted = {"notifications": {"taskIds": ["t"], "toolsListChanged": True}}
        status, error = await scene.caller.error("subscriptions/listen", wanted)
        assert (status, error["code"]) == (400, -32021)
        assert error["data"] == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}

    @pytest.mark.parametrize("count", [100, 101])
    async def test_the_tasks_of_a_stream_are_bounded(self, count: int) -> None:
        """Ours: at the limit, and one above it."""
        wanted = {"notifications": {"taskIds": [str(number) for number in range(count)]}}
        stream = Scene().caller.begin("subscriptions/listen", wanted, capabilities=TAKES)
        if count > 100:
            assert (await stream.finish()).json["error"]["code"] == -32602
        else:
            await stream.until(lambda response: len(response.events) == 1)
            await stream.disconnect()

    async def test_a_server_without_tasks_agrees_to_none(self) -> None:
        """Spec basic/patterns/subscriptions#acknowledgment: what is not supported is left out."""
        server = Server("s", version="1")
        server.tool(lambda: "x", name="plain")
        wanted = {"notifications": {"taskIds": ["t"], "toolsListChanged": True}}
        stream = Caller(server.asgi()).begin("subscriptions/listen", wanted)
        first = (await stream.until(lambda response: len(response.events) == 1)).events[0]
        assert first["params"]["notifications"] == {"toolsListChanged": True}
        await stream.disconnect()


class TestWhoMaySee:
    async def test_a_task_exists_for_its_owner_only(self) -> None:
        """Spec #security-considerations (MUST); ours: others cannot even tell that it exists."""
        scene = Scene()
        task_id = (await scene.call("ask", who="ada"))["taskId"]
        unknown = await scene.error("tasks/get", who="eve", taskId="no-such-task")
        for who in ("eve", ""):
            for method, more in (("get", {}), ("cancel", {}), ("update", {"inputResponses": {"who": named("Eve")}})):
                found = await scene.error(f"tasks/{method}", who=who, taskId=task_id, **more)
                assert found == unknown == (400, {"code": -32602, "message": unknown[1]["message"]})
        assert (await scene.ask("get", task_id, who="ada"))["status"] in ("working", "input_required")
        scene.server.close()

    async def test_each_request_is_authenticated(self) -> None:
        """Spec #security-considerations (MUST): an identifier is no credential."""
        scene = Scene()
        task_id = (await scene.call("work", who="ada"))["taskId"]
        response = await scene.caller.call(
            "tasks/get", {"taskId": task_id}, capabilities=TAKES, headers=heads("nobody")
        )
        assert response.status == 401
        scene.server.close()

    @pytest.mark.parametrize("params", [{}, {"taskId": 5}, {"taskId": None}, {"taskId": ""}, {"taskId": "x" * 9000}])
    async def test_a_task_that_is_none_is_invalid_params(self, params: Any) -> None:
        """Spec #protocol-errors (MUST)."""
        scene = Scene()
        name = params.get("taskId")
        headers = {"mcp-name": name if isinstance(name, str) else None}
        for method in ("get", "update", "cancel"):
            status, error = await scene.caller.error(f"tasks/{method}", params, capabilities=TAKES, headers=headers)
            assert (status, error["code"]) == (400, -32602)

    @pytest.mark.parametrize("responses", [None, [], "x", 5])
    async def test_answers_that_are_none_are_invalid_params(self, responses: Any) -> None:
        """Spec #task-update-requests."""
        scene = Scene()
        task_id = (await scene.call("ask"))["taskId"]
        status, error = await scene.error("tasks/update", taskId=task_id, inputResponses=responses)
        assert (status, error["code"]) == (400, -32602)
        scene.server.close()

    async def test_the_header_names_the_task(self) -> None:
        """Spec #streamable-http-routing-headers; streamable-http#server-validation (MUST reject)."""
        scene = Scene()
        task_id = (await scene.call("work"))["taskId"]
        for method in ("get", "update", "cancel"):
            for header in ("another", None):
                status, error = await scene.caller.error(
                    f"tasks/{method}", {"taskId": task_id}, capabilities=TAKES, headers={"mcp-name": header}
                )
                assert (status, error["code"]) == (400, -32020)
        scene.server.close()


class TestBounds:
    async def test_one_owner_cannot_keep_all_tasks(self) -> None:
        """Ours: refused as busy; others are still served."""
        scene = Scene(options={"max_per_principal": 2, "max_tasks": 3})
        scene.go.set()
        for _ in range(2):
            await scene.call("work", who="ada")
        for who in ("ada", "eve", "eve"):
            if who == "eve" and len(scene.server.tasks.store) < 3:  # type: ignore[arg-type]
                await scene.call("work", who="eve")
                continue
            status, error = await scene.error("tools/call", who=who, name="work")
            assert (status, error["code"]) == (503, -32603)
            assert "too many tasks" in error["message"]

    async def test_no_more_functions_run_than_allowed(self) -> None:
        """Ours: tasks that are over make room."""
        scene = Scene(options={"max_running": 1})
        task_id = (await scene.call("work"))["taskId"]
        status, _ = await scene.error("tools/call", name="work")
        assert status == 503
        scene.go.set()
        await scene.over(task_id)
        if scene.server.tasks.running:
            await asyncio.wait(scene.server.tasks.running)
        assert (await scene.call("work"))["resultType"] == "task"

    async def test_a_function_that_takes_too_long_is_stopped_with_a_result(self) -> None:
        """Ours: a tool's own limit goes before that of tasks; the result is still kept for a while."""
        scene = Scene()

        @scene.server.tool(task=True, timeout_s=0.01)
        async def endless() -> str:
            await asyncio.Event().wait()
            return ""

        created = await scene.call("endless")
        assert created["ttlMs"] == 600_010
        over = await scene.over(created["taskId"])
        assert over["result"]["isError"] is True
        assert "limit of 0.01 s" in text_of(over)

    async def test_a_server_that_stops_says_so(self) -> None:
        """Ours: for a store that outlives the process, a task does not stay open for ever."""
        scene = Scene()
        task_id = (await scene.call("work"))["taskId"]
        await scene.reached.wait()
        scene.server.close()
        over = await scene.over(task_id)
        assert (over["status"], over["statusMessage"]) == ("failed", "the server stopped before the task was done")

    async def test_two_processes_with_one_store_serve_the_same_tasks(self) -> None:
        """Ours: get, update and cancel need not reach the process that runs the function."""
        store = MemoryTaskStore()
        one, other = Scene(store), Scene(store)
        task_id = (await one.call("ask_much"))["taskId"]
        await other.asking(task_id, "a", "b")
        await other.ask("update", task_id, inputResponses={"a": named("A")})
        await one.ask("update", task_id, inputResponses={"b": named("B")})
        assert text_of(await other.over(task_id)) == "A B"
        task_id = (await one.call("work"))["taskId"]
        await one.reached.wait()
        await other.ask("cancel", task_id)
        if one.server.tasks.running:
            await asyncio.wait(one.server.tasks.running)
        assert one.ended == ["cancelled"]

    async def test_a_task_whose_process_is_gone_has_failed(self) -> None:
        """Ours: nobody waits for it in vain; one whose process was heard of lately is left alone."""
        scene = Scene(MemoryTaskStore())
        for name, alive_until in (("gone", 1.0), ("lives", 1e12)):
            task = Task(task_id=name, status=TaskStatus.WORKING, created_at="then", last_updated_at="then")
            kept = TaskRecord(task=task, owner=None, alive_until=alive_until)
            await scene.server.tasks.store.create(kept, keep_s=60)
        over = await scene.ask("get", "gone")
        assert (over["status"], over["error"]["code"]) == ("failed", -32603)
        assert over["statusMessage"] == "the process that worked on the task is gone"
        assert (await scene.ask("get", "lives"))["status"] == "working"
        assert (await scene.ask("cancel", "gone"))["resultType"] == "complete"

    async def test_a_process_says_that_it_lives(self) -> None:
        """Ours: where others could tell; nobody who listens hears of it."""
        scene = Scene(MemoryTaskStore())
        scene.server.tasks.beat_s = 0.01
        task_id = (await scene.call("ask_much"))["taskId"]
        await scene.asking(task_id, "a", "b")
        store, seen = scene.server.tasks.store, []
        async with asyncio.timeout(DEADLINE_S):
            while len(seen) < 3:
                found = await store.read(task_id)
                assert found is not None
                if found[0].alive_until not in seen:
                    seen.append(found[0].alive_until)
                await store.changed(task_id, found[1])
        assert seen == sorted(seen)
        assert (await scene.ask("get", task_id))["status"] == "input_required"
        scene.server.close()
        await scene.over(task_id)
        alone = Scene()
        record = await alone.server.tasks.store.read((await alone.call("work"))["taskId"])
        assert record is not None
        assert record[0].alive_until is None
        alone.server.close()


class TestStore:
    @staticmethod
    def record(name: str, owner: str | None = None) -> TaskRecord:
        return TaskRecord(task=Task(task_id=name, status=TaskStatus.WORKING), owner=owner)

    async def test_what_is_kept_is_there_until_its_time_is_over(self) -> None:
        """Spec #tasks, ttlMs: not discarded before."""
        now = 0.0
        store = MemoryTaskStore(clock=lambda: now)
        await store.create(self.record("a"), keep_s=10)
        await store.create(self.record("b"), keep_s=5)
        now = 9.999
        assert await store.read("a") is not None
        assert await store.read("b") is None
        now = 10.0
        assert await store.read("a") is None
        assert len(store) == 0

    async def test_expired_tasks_make_room(self) -> None:
        """Ours: at the limit, and one above it, in all and for one owner."""
        now = 0.0
        store = MemoryTaskStore(max_tasks=3, max_per_owner=2, clock=lambda: now)
        await store.create(self.record("a", "x"), keep_s=10)
        await store.create(self.record("b", "x"), keep_s=10)
        with pytest.raises(TooManyTasks):
            await store.create(self.record("c", "x"), keep_s=10)
        await store.create(self.record("c", "y"), keep_s=20)
        with pytest.raises(TooManyTasks):
            await store.create(self.record("d", "z"), keep_s=10)
        now = 10.0
        await store.create(self.record("d", "x"), keep_s=10)
        assert len(store) == 2

    async def test_a_change_takes_effect_once(self) -> None:
        """Ours: whoever was slower reads again."""
        store = MemoryTaskStore()
        await store.create(self.record("a"), keep_s=10)
        found = await store.read("a")
        assert found is not None
        assert await store.replace(found[0], found[1])
        assert not await store.replace(found[0], found[1])
        assert not await store.replace(self.record("b"), 0)

    async def test_who_waits_for_a_change_is_woken_from_any_thread(self) -> None:
        """Ours: one server may be served by several loops."""
        store = MemoryTaskStore()
        await store.create(self.record("a"), keep_s=10)
        waiting = asyncio.create_task(store.changed("a", 0))
        await asyncio.to_thread(lambda: asyncio.run(store.replace(self.record("a"), 0)))
        async with asyncio.timeout(DEADLINE_S):
            await waiting
            await store.changed("a", 0)
            await store.changed("none", 0)


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_our_client_follows_our_tasks(transport: str) -> None:
    """Ours: questions, status messages, errors, cancelling, both transports; the halves share nothing but the protocol core."""

    async def fill_in(form: FormRequest) -> Elicited:
        properties = form.schema["properties"]
        return Elicited("accept", {k: rule["type"] == "boolean" or "Ada" for k, rule in properties.items()})

    async def follow(target: Any) -> None:
        options = outrider.ClientOptions(inputs=InputHandlers(form=fill_in))
        async with asyncio.timeout(60), outrider.connect(target, options=options) as client:
            assert client.server.extensions == {EXTENSION: {}}
            told: list[str] = []
            result = await client.call_tool(
                "confirm_delete", {"filename": "x"}, on_task=lambda t: told.append(t.status)
            )
            assert (result.text, told) == ("Deleted x", ["working", "input_required", "completed"])
            assert (await client.call_tool("test_tool_with_task")).text == "Done for Ada"
            assert (await client.call_tool("failing_job")).is_error
            with pytest.raises(outrider.PeerError, match="intentionally breaks"):
                await client.call_tool("protocol_error_job")
            started = await client.start_tool("slow_compute", {"seconds": 60})
            assert isinstance(started, Task)
            async with client.listen(task_ids=[started.task_id, "none"]) as changes:
                assert changes.granted.task_ids == (started.task_id,)
                assert await anext(changes) == outrider.Change("task", started.task_id)
                await client.tasks.cancel(started.task_id)
                while (await client.tasks.get((await anext(changes)).uri)).status != "cancelled":
                    pass

    if transport == "stdio":
        await follow([OUTRIDER, "run", EVERYTHING])
    else:
        with serving(Path(EVERYTHING)) as served:
            await follow(served.url)
