"""Servers that answer a call with a task, and what may go wrong until it is over, against scripted servers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import outrider
from cases.expectations import options
from fakes.running import Fake, FakeHttp, FakeStdio
from fakes.scripts import (
    CALLED,
    HANG_UP,
    Rule,
    Script,
    discover_result,
    error,
    gate,
    legacy,
    modern,
    on,
    respond,
    result,
)
from outrider import Elicited, FormRequest, InputHandlers, InputNeeded
from outrider.cache.memory import open_memory
from outrider.client.client import Client
from outrider.client.target import parse_target
from outrider.errors import (
    LocalProtocolError,
    PeerError,
    RemoteProtocolError,
    TaskCancelled,
    TimedOut,
)
from outrider.protocol.freshness import Policy
from outrider.protocol.results import ToolResult
from outrider.protocol.tasks import Task

EXTENSION = "io.modelcontextprotocol/tasks"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
TAKES_TASKS = {"tools": {}, "extensions": {EXTENSION: {}}}
FORM = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "Who?",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string", "default": "Ada"}}},
    },
}


def task(status: str = "working", result_type: str = "complete", **members: Any) -> dict[str, Any]:
    """A task on the wire; it wants to be asked as often as may be."""
    times = {"createdAt": "2026-07-28T10:00:00Z", "lastUpdatedAt": "2026-07-28T10:00:00Z", "ttlMs": 60_000}
    return {"resultType": result_type, "taskId": "t-1", "status": status, **times, "pollIntervalMs": 1, **members}


CREATED = on("tools/call", result(task(result_type="task")))
DONE = on("tasks/get", result(task("completed", result={"content": [{"type": "text", "text": "done"}]})))
CANCEL = on("tasks/cancel", result({"resultType": "complete"}))
UPDATE = on("tasks/update", result({"resultType": "complete"}))


def get(status: str = "working", *, times: int | None = 1, **members: Any) -> Rule:
    return on("tasks/get", result(task(status, **members)), times=times)


def script(*rules: Rule) -> Script:
    """A modern server that announces tasks."""
    return Script(*rules, CREATED, DONE, CANCEL, UPDATE, *modern(capabilities=TAKES_TASKS))


async def fill_in(form: FormRequest) -> Elicited:
    return Elicited("accept", form.defaults())


def connect(fake: Fake, **changes: Any) -> Client:
    return outrider.connect(fake.url or fake.command, options=options(**changes))


def declared(message: Mapping[str, Any]) -> Any:
    """The extensions that a request declares."""
    return message["params"]["_meta"][CAPABILITIES_KEY].get("extensions")


class TestDeclaring:
    async def test_a_server_that_announces_tasks_is_told_with_each_call_and_with_nothing_else(
        self, fake_http: FakeHttp
    ) -> None:
        """Spec #capability-negotiation: in the capabilities of the request; ours: of those that can become one."""
        fake = fake_http(script())
        async with connect(fake) as client:
            await client.list_tools()
            assert (await client.call_tool("add")).text == "done"
        for message in fake.messages():
            takes = message["method"] in ("tools/call", "tasks/get")
            assert declared(message) == ({EXTENSION: {}} if takes else None), message["method"]

    async def test_further_extensions_of_the_users_stay(self, fake_http: FakeHttp) -> None:
        """Ours: declaring one takes none away."""
        fake = fake_http(script())
        own = {"extensions": {"com.example/own": {"a": 1}}}
        async with connect(fake, capabilities=own) as client:
            await client.call_tool("add")
        assert declared(fake.messages("tools/call")[0]) == {"com.example/own": {"a": 1}, EXTENSION: {}}

    @pytest.mark.parametrize(("capabilities", "tasks"), [({"tools": {}}, True), (TAKES_TASKS, False)])
    async def test_without_both_sides_nothing_is_declared_and_a_task_is_an_invalid_answer(
        self, fake_http: FakeHttp, capabilities: dict[str, Any], tasks: bool
    ) -> None:
        """Spec #capability-negotiation (MUST NOT return a task)."""
        fake = fake_http(Script(CREATED, DONE, *modern(capabilities=capabilities)))
        async with connect(fake, tasks=tasks) as client:
            with pytest.raises(RemoteProtocolError, match="did not allow"):
                await client.call_tool("add")
            with pytest.raises(LocalProtocolError, match="no tasks"):
                await client.tasks.get("t-1")
        assert declared(fake.messages("tools/call")[0]) is None
        assert not fake.messages("tasks/get")

    async def test_a_server_that_has_come_to_announce_tasks_is_asked_again_when_it_requires_them(
        self, fake_http: FakeHttp
    ) -> None:
        """Spec #capability-negotiation, -32021: the call was refused unread, so it may be sent again, once."""
        missing = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        refused = on(
            "tools/call", error(-32021, "Missing required client capability", data=missing, status=400), times=1
        )
        before = on("server/discover", result(discover_result()), times=1)
        fake = fake_http(script(before, refused))
        async with connect(fake) as client:
            assert (await client.call_tool("add")).text == "done"
        assert [declared(message) for message in fake.messages("tools/call")] == [None, {EXTENSION: {}}]

    async def test_legacy_servers_hear_nothing_of_tasks(self, fake_stdio: FakeStdio) -> None:
        """Ours: the tasks of 2025-11-25 are another protocol, whatever a server of that time announces."""
        fake = fake_stdio(Script(*legacy(capabilities={**TAKES_TASKS, "tasks": {"requests": {"tools": {"call": {}}}}})))
        async with connect(fake) as client:
            assert (await client.call_tool("add")).text == "called add"
        assert "task" not in str(fake.messages("tools/call"))

    async def test_only_tool_calls_may_be_answered_with_a_task(self, fake_http: FakeHttp) -> None:
        """Spec #capability-negotiation: of an unsupported request it is an invalid response (MUST)."""
        fake = fake_http(script(on("prompts/get", result(task(result_type="task")))))
        async with connect(fake) as client:
            with pytest.raises(RemoteProtocolError, match="did not allow"):
                await client.get_prompt("p")


class TestFollowing:
    async def test_a_task_is_polled_to_its_end_and_told(self, fake_http: FakeHttp) -> None:
        """Spec #task-polling; the identifier stands in a header as well (MUST)."""
        fake = fake_http(script(get(), get(statusMessage="half"), get(statusMessage="half")))
        told: list[tuple[str, str]] = []
        async with connect(fake) as client:
            outcome = await client.call_tool("add", on_task=lambda t: told.append((t.status.value, t.status_message)))
        assert outcome.text == "done"
        assert told == [("working", ""), ("working", "half"), ("completed", "")]
        assert len(fake.messages("tasks/get")) == 4
        assert all(message["params"]["taskId"] == "t-1" for message in fake.messages("tasks/get"))
        assert all(["Mcp-Name", "t-1"] in record["headers"] for record in fake.received("tasks/get"))

    async def test_a_call_may_still_be_answered_at_once(self, fake_stdio: FakeStdio) -> None:
        """Spec #capability-negotiation: MUST be prepared for either."""
        fake = fake_stdio(script(on("tools/call", result({"resultType": "complete", **CALLED}))))
        async with connect(fake) as client:
            assert isinstance(await client.start_tool("add"), ToolResult)

    async def test_questions_come_before_a_task_and_during_it(self, fake_http: FakeHttp) -> None:
        """Spec #task-creation: first by results, then by the task; each key is answered once (SHOULD)."""
        asking = result({"resultType": "input_required", "inputRequests": {"first": FORM}})
        fake = fake_http(
            script(
                on("tools/call", asking, times=1),
                get("input_required", inputRequests={"a": FORM}, times=2),
                get("input_required", inputRequests={"a": FORM, "b": FORM}),
                get(),
            )
        )
        asked: list[str] = []

        async def fill(form: FormRequest) -> Elicited:
            asked.append(form.message)
            return Elicited("accept", form.defaults())

        async with connect(fake, inputs=InputHandlers(form=fill)) as client:
            assert (await client.call_tool("add")).text == "done"
        assert len(asked) == 3
        answer = {"action": "accept", "content": {"name": "Ada"}}
        assert [m["params"]["inputResponses"] for m in fake.messages("tasks/update")] == [{"a": answer}, {"b": answer}]

    async def test_a_tools_own_error_is_a_result(self, fake_http: FakeHttp) -> None:
        """Spec #task-execution-errors: completed, with isError."""
        failed = {"content": [{"type": "text", "text": "no luck"}], "isError": True}
        fake = fake_http(script(get("completed", result=failed)))
        async with connect(fake) as client:
            outcome = await client.call_tool("add")
        assert (outcome.is_error, outcome.text) == (True, "no luck")

    async def test_a_failed_task_is_the_error_that_the_call_would_have_had(self, fake_http: FakeHttp) -> None:
        """Spec #task-execution-errors. Nothing is left to cancel."""
        fake = fake_http(script(get("failed", error={"code": -32099, "message": "limit", "data": {"a": 1}})))
        async with connect(fake) as client:
            with pytest.raises(PeerError, match="limit") as caught:
                await client.call_tool("add")
        assert (caught.value.code, caught.value.data) == (-32099, {"a": 1})
        assert not fake.messages("tasks/cancel")

    async def test_a_task_that_others_cancelled_is_told_as_such(self, fake_http: FakeHttp) -> None:
        """Ours: no result, and no error of the tool's."""
        fake = fake_http(script(get("cancelled", statusMessage="by the operator")))
        async with connect(fake) as client:
            with pytest.raises(TaskCancelled, match="by the operator") as caught:
                await client.call_tool("add")
        assert caught.value.task_id == "t-1"

    async def test_a_task_that_is_over_when_it_is_created_is_asked_for_at_once(self, fake_http: FakeHttp) -> None:
        """Spec #task-creation: the seed state need not be working; the result stands in tasks/get only."""
        created = on("tools/call", result(task("completed", result_type="task", pollIntervalMs=300_000)))
        async with connect(fake_http(script(created))) as client:
            assert (await client.call_tool("add")).text == "done"


class TestTrouble:
    """Each ends with an error that says what happened, and with a task that is cancelled."""

    async def fails(self, fake: Fake, expected: type[Exception], match: str, **changes: Any) -> None:
        async with connect(fake, **changes) as client:
            with pytest.raises(expected, match=match):
                await client.call_tool("add", timeout_s=changes.pop("timeout_s", None))
        assert [m["params"]["taskId"] for m in fake.messages("tasks/cancel")] == ["t-1"]

    async def test_a_task_without_end(self, fake_http: FakeHttp) -> None:
        """Ours: a time limit for all of it."""
        fake = fake_http(script(get(times=None)))
        await self.fails(fake, TimedOut, "working", task_timeout_s=0.4)

    async def test_a_task_that_wants_to_be_asked_next_year(self, fake_http: FakeHttp) -> None:
        """Ours: the limit holds whatever the server wants."""
        created = on("tools/call", result(task(result_type="task", pollIntervalMs=10**12, ttlMs=10**30)))
        fake = fake_http(script(created))
        await self.fails(fake, TimedOut, "working", task_timeout_s=0.2)
        assert not fake.messages("tasks/get")

    async def test_an_unknown_status(self, fake_http: FakeHttp) -> None:
        """Ours: nobody can tell whether it will ever be over."""
        await self.fails(fake_http(script(get("paused"))), RemoteProtocolError, "unknown status 'paused'")

    async def test_another_task(self, fake_http: FakeHttp) -> None:
        """Ours: what is asked for is what is read."""
        await self.fails(fake_http(script(get(taskId="t-2"))), RemoteProtocolError, "another task")

    async def test_a_task_that_comes_back_from_its_end(self, fake_http: FakeHttp) -> None:
        """Spec #task-status: nothing follows a terminal status."""
        created = on("tools/call", result(task("completed", result_type="task")))
        await self.fails(fake_http(script(created, get())), RemoteProtocolError, "completed became working")

    async def test_a_completed_task_without_a_result(self, fake_http: FakeHttp) -> None:
        """Spec #task-polling (MUST)."""
        await self.fails(fake_http(script(get("completed"))), RemoteProtocolError, "without a result")

    async def test_a_result_that_is_a_task_again(self, fake_http: FakeHttp) -> None:
        """Spec #polymorphic-results (MUST NOT)."""
        async with connect(fake_http(script(get("completed", result=task(result_type="task"))))) as client:
            with pytest.raises(RemoteProtocolError, match="task"):
                await client.call_tool("add")

    async def test_a_task_that_has_vanished(self, fake_http: FakeHttp) -> None:
        """Spec #protocol-errors: -32602."""
        fake = fake_http(script(get(), on("tasks/get", error(-32602, "Task not found", status=400))))
        await self.fails(fake, PeerError, "Task not found")

    async def test_a_question_that_nobody_can_answer(self, fake_http: FakeHttp) -> None:
        """Ours: as with any call."""
        fake = fake_http(script(get("input_required", inputRequests={"a": FORM})))
        await self.fails(fake, InputNeeded, "elicitation/create")

    async def test_a_task_that_asks_for_ever(self, fake_http: FakeHttp) -> None:
        """Ours: rounds are bounded, as with any call."""
        asking = [get("input_required", inputRequests={str(number): FORM}) for number in range(3)]
        fake = fake_http(script(*asking))
        await self.fails(fake, RemoteProtocolError, "2 rounds", inputs=InputHandlers(form=fill_in), max_input_rounds=2)

    async def test_an_answer_that_is_refused(self, fake_http: FakeHttp) -> None:
        """Ours: the server's own words."""
        refused = on("tasks/update", error(-32602, "not like that", status=400))
        fake = fake_http(script(refused, get("input_required", inputRequests={"a": FORM})))
        await self.fails(fake, PeerError, "not like that", inputs=InputHandlers(form=fill_in))

    async def test_a_server_that_cannot_be_reached_for_a_moment_is_asked_again(self, fake_http: FakeHttp) -> None:
        """Ours: a task is there to outlive a connection."""
        busy = on("tasks/get", respond(503, text="later"), times=1)
        fake = fake_http(script(busy, on("tasks/get", HANG_UP, times=1)))
        async with connect(fake) as client:
            assert (await client.call_tool("add")).text == "done"

    async def test_a_server_that_stays_away_is_given_up(self, fake_http: FakeHttp) -> None:
        """Ours: the time limit holds while it is away; what may still run is said."""
        fake = fake_http(script(on("tasks/get", respond(503, text="later"))))
        await self.fails(fake, TimedOut, "not over within 1 s", task_timeout_s=1.0)


class TestCancelling:
    @pytest.mark.parametrize("refused", [False, True])
    async def test_who_gives_up_a_call_cancels_its_task(self, fake_http: FakeHttp, refused: bool) -> None:
        """Spec #task-cancellation; that it is refused changes nothing for who gives up."""
        rules = [on("tasks/cancel", error(-32603, "no", status=500))] if refused else []
        fake = fake_http(script(*rules, get(times=None)))
        async with connect(fake) as client:
            working = asyncio.Event()
            call = asyncio.create_task(client.call_tool("add", on_task=lambda _: working.set()))
            await working.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        assert len(fake.messages("tasks/cancel")) == 1
        assert not fake.messages("notifications/cancelled")

    async def test_a_server_that_does_not_answer_a_cancellation_holds_nobody(self, fake_http: FakeHttp) -> None:
        """Ours: the grace of a shutdown, no more."""
        fake = fake_http(script(on("tasks/cancel", gate("never")), get(times=None)))
        async with connect(fake, shutdown_timeout_s=0.2) as client:
            with pytest.raises(TimedOut):
                await client.call_tool("add", timeout_s=0.2)
        assert len(fake.messages("tasks/cancel")) == 1

    async def test_a_task_that_is_kept_is_left_alone(self, fake_http: FakeHttp) -> None:
        """Ours: its owner decides, and may come back for it, also from another client."""
        fake = fake_http(script(get(), get(), get()))
        async with connect(fake) as client:
            started = await client.start_tool("add")
            assert isinstance(started, Task)
            with pytest.raises(TimedOut):
                await client.tasks.wait(started, timeout_s=0.15)
        async with connect(fake) as client:
            assert (await client.tasks.get(started.task_id)).status == "working"
            assert (await client.tasks.wait(started.task_id)).text == "done"
            await client.tasks.cancel(started.task_id)
        assert len(fake.messages("tasks/cancel")) == 1

    async def test_a_cancellation_that_is_refused_is_told_to_who_asks_for_it(self, fake_http: FakeHttp) -> None:
        """Ours: `tasks.cancel` is a request like any other."""
        async with connect(fake_http(script(on("tasks/cancel", error(-32603, "busy", status=500))))) as client:
            with pytest.raises(PeerError, match="busy"):
                await client.tasks.cancel("t-1")


async def test_tasks_over_stdio_are_those_over_http(fake_stdio: FakeStdio) -> None:
    """Ours: the transports differ in nothing that a caller sees."""
    fake = fake_stdio(script(get(), get("input_required", inputRequests={"a": FORM})))
    async with connect(fake, inputs=InputHandlers(form=fill_in)) as client:
        assert (await client.call_tool("add")).text == "done"
    assert [m["params"]["taskId"] for m in fake.messages("tasks/update")] == ["t-1"]


async def test_a_server_opened_from_memory_is_asked_what_it_announces(fake_http: FakeHttp, tmp_path: Path) -> None:
    """Ours: a remembered era says nothing of extensions."""
    fake = fake_http(script())
    async with open_memory(tmp_path / "memory.db", policy=Policy()) as memory:
        for _ in range(2):
            client = Client(parse_target(fake.url), options(), memory=memory)
            try:
                assert (await client.call_tool("add")).text == "done"
            finally:
                await client.close()
    assert all(declared(message) == {EXTENSION: {}} for message in fake.messages("tools/call"))
