"""Tasks as the extension has them: the table of statuses, what is read of a server's task, and how often it is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.errors import LimitExceeded, LocalProtocolError, RemoteProtocolError
from outrider.protocol.headers import standard_headers
from outrider.protocol.results import read_result
from outrider.protocol.tasks import (
    MAX_INPUT_REQUESTS,
    MAX_POLL_MS,
    MAX_TASK_ID_CHARS,
    MAX_TTL_MS,
    TRANSITIONS,
    Task,
    TaskStatus,
    declares,
    moved,
    poll_delay_s,
    read_task,
    render_task,
)

WORKING, ASKING, COMPLETED, FAILED, CANCELLED = TaskStatus
FORM = {"method": "elicitation/create", "params": {"mode": "form", "message": "?", "requestedSchema": {}}}
WIRE = {
    "taskId": "t",
    "status": "working",
    "createdAt": "2026-07-28T10:00:00Z",
    "lastUpdatedAt": "2026-07-28T10:00:01Z",
    "ttlMs": 60_000,
    "pollIntervalMs": 5_000,
}
BROUGHT: dict[TaskStatus, dict[str, Any]] = {
    WORKING: {},
    ASKING: {"inputRequests": {"who": FORM}},
    COMPLETED: {"result": {"content": []}},
    FAILED: {"error": {"code": -32000, "message": "no"}},
    CANCELLED: {},
}


def read(status: TaskStatus = WORKING, **members: Any) -> Task:
    return read_task({**WIRE, "status": status.value, **BROUGHT[status], **members}, "the task", detailed=True)


class TestStatuses:
    def test_the_table_is_the_state_diagram(self) -> None:
        """Spec #task-status: working and input_required lead to each other and to the ends; from an end leads nothing."""
        assert set(TRANSITIONS) == set(TaskStatus)
        for status in (WORKING, ASKING):
            assert TRANSITIONS[status] == set(TaskStatus)
            assert not status.is_terminal
        for status in (COMPLETED, FAILED, CANCELLED):
            assert TRANSITIONS[status] == set()
            assert status.is_terminal

    @pytest.mark.parametrize("before", TaskStatus)
    @pytest.mark.parametrize("after", TaskStatus)
    def test_a_task_moves_as_the_table_says(self, before: TaskStatus, after: TaskStatus) -> None:
        """Ours: one place knows the table."""
        task = Task(task_id="t", status=before, last_updated_at="then")
        if after in TRANSITIONS[before]:
            assert moved(task, after, "now").last_updated_at == "now"
        else:
            with pytest.raises(LocalProtocolError, match=f"{before} does not become {after}"):
                moved(task, after, "now")

    def test_questions_end_with_the_status_that_asks_them(self) -> None:
        """Spec #task-polling: inputRequests belong to input_required."""
        asking = Task(task_id="t", status=ASKING, input_requests={"who": FORM})
        assert moved(asking, WORKING, "now").input_requests == {}


class TestReading:
    @pytest.mark.parametrize("status", TaskStatus)
    def test_what_is_rendered_is_read_again(self, status: TaskStatus) -> None:
        """Ours: both halves mean the same."""
        task = read(status, statusMessage="so far")
        assert render_task(task, detailed=True) == {
            **WIRE,
            "status": status.value,
            "statusMessage": "so far",
            **BROUGHT[status],
        }

    @pytest.mark.parametrize("status", TaskStatus)
    def test_the_answer_that_creates_a_task_has_nothing_of_what_its_status_brings(self, status: TaskStatus) -> None:
        """Spec #task-creation: Result & Task."""
        members = render_task(read(status), detailed=False)
        assert members == {**WIRE, "status": status.value}
        assert read_task(members, "the task", detailed=False).status is status

    @pytest.mark.parametrize("status", [ASKING, COMPLETED, FAILED])
    def test_a_status_without_what_it_brings_cannot_be_acted_on(self, status: TaskStatus) -> None:
        """Spec #task-polling (MUST)."""
        with pytest.raises(RemoteProtocolError):
            read_task({**WIRE, "status": status.value}, "the task", detailed=True)

    @pytest.mark.parametrize("status", ["", "done", "WORKING", None, 5, ["working"], {"a": 1}])
    def test_an_unknown_status_is_no_status(self, status: Any) -> None:
        """Ours: nobody can tell whether it will ever be over."""
        with pytest.raises(RemoteProtocolError, match="unknown status"):
            read_task({**WIRE, "status": status}, "the task", detailed=True)

    @pytest.mark.parametrize("task_id", ["", None, 5, {}])
    def test_a_task_has_a_name(self, task_id: Any) -> None:
        """Spec #tasks."""
        with pytest.raises(RemoteProtocolError, match="taskId"):
            read(taskId=task_id)

    def test_a_name_fits_into_a_header(self) -> None:
        """Ours: at the limit, and one above it."""
        assert read(taskId="x" * MAX_TASK_ID_CHARS)
        with pytest.raises(LimitExceeded):
            read(taskId="x" * (MAX_TASK_ID_CHARS + 1))

    def test_questions_are_bounded(self) -> None:
        """Ours: at the limit, and one above it."""
        many = {str(number): FORM for number in range(MAX_INPUT_REQUESTS)}
        assert len(read(ASKING, inputRequests=many).input_requests) == MAX_INPUT_REQUESTS
        with pytest.raises(LimitExceeded):
            read(ASKING, inputRequests={**many, "more": FORM})

    @pytest.mark.parametrize("requests", [[], {"a": 1}, {"a": {}}, {"a": {"method": 5}}, "x", None])
    def test_questions_that_cannot_be_read_are_an_error(self, requests: Any) -> None:
        """Spec #task-update-requests."""
        with pytest.raises(RemoteProtocolError, match="input"):
            read(ASKING, inputRequests=requests)

    @pytest.mark.parametrize("error", [None, "no", {}, {"message": "no"}, {"code": "x"}, {"code": True}])
    def test_a_failure_has_a_code(self, error: Any) -> None:
        """Spec #task-execution-errors (MUST)."""
        with pytest.raises(RemoteProtocolError, match="error"):
            read(FAILED, error=error)

    @pytest.mark.parametrize(
        ("sent", "read_as"),
        [
            (None, None),
            (0, 0),
            (5_000, 5_000),
            (5_000.0, 5_000),
            (-1, None),
            ("5", None),
            (True, None),
            (float("nan"), None),
            (float("inf"), MAX_TTL_MS),
            (10**400, MAX_TTL_MS),
        ],
    )
    def test_a_time_that_is_absurd_is_capped_or_absent(self, sent: Any, read_as: int | None) -> None:
        """Ours: what a server says overflows no clock."""
        assert read(ttlMs=sent).ttl_ms == read_as

    def test_a_poll_interval_is_capped(self) -> None:
        """Ours: a server's word is good for five minutes."""
        assert read(pollIntervalMs=10**12).poll_interval_ms == MAX_POLL_MS

    def test_texts_that_are_none_read_as_absent(self) -> None:
        """Ours: what is for people stops nothing."""
        task = read(statusMessage=5, createdAt=None, lastUpdatedAt={}, ttlMs="x", pollIntervalMs=[])
        assert (task.status_message, task.created_at, task.last_updated_at) == ("", "", "")
        assert (task.ttl_ms, task.poll_interval_ms) == (None, None)


class TestAnswers:
    PAYLOAD = b'{"resultType":"task","taskId":"t","status":"working"}'

    def test_a_call_that_allows_it_may_be_answered_with_a_task(self) -> None:
        """Spec #polymorphic-results."""
        task = read_result("tools/call", self.PAYLOAD, may_be_task=True)
        assert isinstance(task, Task)

    @pytest.mark.parametrize(
        ("method", "allowed"), [("tools/call", False), ("prompts/get", True), ("resources/read", True)]
    )
    def test_a_task_that_nobody_asked_for_is_an_invalid_answer(self, method: str, allowed: bool) -> None:
        """Spec #capability-negotiation (MUST NOT send; MUST interpret as invalid)."""
        with pytest.raises(RemoteProtocolError, match="did not allow"):
            read_result(method, self.PAYLOAD, may_be_task=allowed)

    @pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
    def test_requests_about_a_task_carry_its_name_in_a_header(self, method: str) -> None:
        """Spec #streamable-http-routing-headers (MUST)."""
        assert standard_headers(method, {"taskId": "täsk"}, "2026-07-28")["Mcp-Name"] == "=?base64?dMOkc2s=?="


@pytest.mark.parametrize(
    ("capabilities", "declared"),
    [
        ({"extensions": {"io.modelcontextprotocol/tasks": {}}}, True),
        ({"extensions": {"io.modelcontextprotocol/tasks": {"more": 1}}}, True),
        ({"extensions": {"io.modelcontextprotocol/tasks": None}}, False),
        ({"extensions": {"com.example/tasks": {}}}, False),
        ({"extensions": []}, False),
        ({"tasks": {"requests": {}}}, False),
        ({}, False),
        (None, False),
    ],
)
def test_only_the_extension_counts_as_declared(capabilities: Any, declared: bool) -> None:
    """Spec #backwards-compatibility: the capability of 2025-11-25 does not (MUST)."""
    assert declares(capabilities) is declared


@pytest.mark.parametrize(
    ("interval_ms", "polls", "delay_s"),
    [
        (5_000, 0, 5.0),
        (5_000, 50, 5.0),
        (1, 0, 0.1),
        (100, 0, 0.1),
        (10**9, 0, 300.0),
        (None, 0, 0.5),
        (0, 0, 0.5),
        (None, 1, 0.75),
        (None, 100, 10.0),
        (0, 10**9, 10.0),
    ],
)
def test_polls_are_as_far_apart_as_the_server_wants_within_bounds(
    interval_ms: int | None, polls: int, delay_s: float
) -> None:
    """Spec #task-polling (SHOULD respect); ours: without an interval, less and less often."""
    assert poll_delay_s(interval_ms, polls) == delay_s
