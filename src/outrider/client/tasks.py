"""Tasks from the client's side: asking how one stands until it is over, answering what it asks, and cancelling it.

Decided here: when a task is asked for again, which failures on the way are outlived, which of its questions are answered, and what its end
means for the caller. Not here: what a task is (`protocol.tasks`), when the extension is declared (`session`), and the call that a task
comes from (`client`).

Spec: io.modelcontextprotocol/tasks (SEP-2663)
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from outrider.client.channel import call_back
from outrider.errors import (
    INVALID_PARAMS,
    ConnectFailed,
    ConnectionLost,
    LocalProtocolError,
    OutriderError,
    PeerError,
    RemoteProtocolError,
    TaskCancelled,
    TimedOut,
    Unavailable,
    peer_error,
)
from outrider.protocol.results import ToolResult, read_tool_result
from outrider.protocol.tasks import CANCEL, GET, TRANSITIONS, UPDATE, Task, TaskStatus, poll_delay_s, read_task

if TYPE_CHECKING:
    from outrider.client.client import Client

__all__ = ["TaskCallback", "Tasks"]

TaskCallback = Callable[[Task], None]
"""Called with a task when it was created, and whenever its status or message has changed; must not block."""

_MAX_FAILED_POLLS: Final = 5
"""In a row. A task is there to outlive a connection; who cannot reach its server for longer is told."""
_RULE: Final = "io.modelcontextprotocol/tasks"


class Tasks:
    """The tasks of one server: `client.tasks`.

    `client.call_tool` follows a task by itself. This is for those who keep a task's identifier: to let go of a call and come back for its
    result, also from another process.
    """

    def __init__(self, client: Client) -> None:
        """Made by the client."""
        self._client = client

    async def get(self, task_id: str, *, timeout_s: float | None = None) -> Task:
        """How a task stands: `tasks/get`.

        Raises:
            PeerError: -32602 when the server has no such task, or has it no more.

        Spec: #task-polling
        """
        answer = await self._ask(GET, {"taskId": task_id}, timeout_s)
        task = read_task(answer, f"the answer to {GET}", detailed=True)
        if task.task_id != task_id:
            raise RemoteProtocolError(f"{GET} was answered with another task", rule=_RULE)
        return task

    async def update(self, task_id: str, responses: Mapping[str, Any], *, timeout_s: float | None = None) -> None:
        """Answer what a task asks: `tasks/update`.

        Args:
            task_id: the task.
            responses: the answers by the keys of its `input_requests`, in wire shape; some may come later.
            timeout_s: how long to wait, in seconds.

        Spec: #task-update-requests
        """
        await self._ask(UPDATE, {"taskId": task_id, "inputResponses": dict(responses)}, timeout_s)

    async def cancel(self, task_id: str, *, timeout_s: float | None = None) -> None:
        """Tell the server that a task's result is no longer wanted: `tasks/cancel`. Whether it stops the work is up to it.

        Spec: #task-cancellation
        """
        await self._ask(CANCEL, {"taskId": task_id}, timeout_s)

    async def wait(
        self, task: Task | str, *, timeout_s: float | None = None, on_task: TaskCallback | None = None
    ) -> ToolResult:
        """Follow a task to its end, answering what it asks with the options' `inputs`.

        Whoever stops waiting, by a time limit or by being cancelled, leaves the task as it is: wait again, or `cancel` it.

        Args:
            task: the task, or its identifier.
            timeout_s: how long to wait, in seconds; None for the options' `task_timeout_s`.
            on_task: see `TaskCallback`.

        Raises:
            PeerError: the task failed, or the server has it no more (-32602).
            TaskCancelled: the task was cancelled.
            InputNeeded: it asks what nobody here can answer.
            TimedOut: the time is over.
        """
        return _outcome(await self._follow(task, timeout_s, on_task))

    async def finish(
        self, task: Task, *, timeout_s: float | None = None, on_task: TaskCallback | None = None
    ) -> ToolResult:
        """As `wait`, for a task that nobody else knows of: it is cancelled if waiting ends before it does."""
        try:
            ended = await self._follow(task, timeout_s, on_task)
        except BaseException:
            await self._abandon(task.task_id)
            raise
        return _outcome(ended)

    async def _ask(self, method: str, params: Mapping[str, Any], timeout_s: float | None) -> dict[str, Any]:
        if not await self._client.takes_tasks():
            raise LocalProtocolError(
                "this server and this client have no tasks",
                hint="the server has to announce the extension, and `tasks` to be on",
            )
        # All three may be sent twice: a second answer to the same question, or a second cancellation, changes nothing.
        payload = await self._client.request(method, params, timeout_s=timeout_s, is_safe=True)
        try:
            answer = msgspec.json.decode(payload)
        except (msgspec.DecodeError, RecursionError) as error:
            raise RemoteProtocolError(f"the answer to {method} cannot be decoded: {error}", rule=_RULE) from error
        if not isinstance(answer, dict) or answer.get("resultType", "complete") not in (None, "complete"):
            raise RemoteProtocolError(f"the answer to {method} is no complete result", rule="basic/index#resulttype")
        return answer

    async def _abandon(self, task_id: str) -> None:
        """Cancel a task as far as that is possible; whoever waits has another error, or another reason, to hear of."""
        with contextlib.suppress(OutriderError, TimeoutError):
            async with asyncio.timeout(self._client.options.shutdown_timeout_s):
                await self.cancel(task_id)

    async def _follow(self, task: Task | str, timeout_s: float | None, on_task: TaskCallback | None) -> Task:
        limit = self._client.options.task_timeout_s if timeout_s is None else timeout_s
        following = _Following(self, self._client, on_task)
        try:
            async with asyncio.timeout(limit) as clock:
                return await following.to_the_end(task)
        except TimeoutError as error:
            if not clock.expired():
                raise
            shown = following.told_status or "not known"
            raise TimedOut(
                f"the task was not over within {limit:g} s; its status is {shown}",
                phase="task",
                timeout_s=limit,
                hint="allow more time, or keep the task's identifier and wait for it again",
            ) from error


class _Following:
    """One wait for one task."""

    def __init__(self, tasks: Tasks, client: Client, on_task: TaskCallback | None) -> None:
        self._tasks, self._client, self._on_task = tasks, client, on_task
        self._told: tuple[TaskStatus, str] | None = None
        self._answered: set[str] = set()
        self._rounds = 0
        self._polls = 0

    @property
    def told_status(self) -> str:
        """The last status that was seen, or ""."""
        return self._told[0].value if self._told is not None else ""

    async def to_the_end(self, task: Task | str) -> Task:
        """Poll until the task is over."""
        if isinstance(task, Task):
            known: Task | None = task
            task_id = task.task_id
            self._tell(task)
        else:
            known, task_id = None, task
        # What a task asks or has given stands only in the answer to a poll.
        may_wait = known is not None and known.status is TaskStatus.WORKING
        while True:
            if may_wait and known is not None:
                await asyncio.sleep(poll_delay_s(known.poll_interval_ms, self._polls))
            may_wait = True
            latest = await self._poll(task_id)
            if known is not None and latest.status is not known.status:
                if latest.status not in TRANSITIONS[known.status]:
                    raise RemoteProtocolError(f"a task that was {known.status} became {latest.status}", rule=_RULE)
                self._polls = 0
            self._tell(latest)
            if latest.status.is_terminal:
                return latest
            if latest.status is TaskStatus.INPUT_REQUIRED:
                await self._answer(latest)
            known = latest

    async def _poll(self, task_id: str) -> Task:
        """One poll, and more if the server cannot be reached."""
        for failed in range(_MAX_FAILED_POLLS + 1):
            self._polls += 1
            try:
                return await self._tasks.get(task_id)
            except (ConnectFailed, ConnectionLost, TimedOut, Unavailable) as error:
                if failed == _MAX_FAILED_POLLS:
                    error.hint = (
                        error.hint or "the task may still run: wait for it again when the server can be reached"
                    )
                    raise
                wanted = error.retry_after_s if isinstance(error, Unavailable) else None
                await asyncio.sleep(poll_delay_s(int(wanted * 1000) if wanted else None, failed))
            except PeerError as error:
                if error.code == INVALID_PARAMS:
                    error.hint = (
                        "the server has no such task (any more): its time is over, or it was lost with its process"
                    )
                raise
        raise AssertionError("unreachable")

    async def _answer(self, task: Task) -> None:
        """Answer the questions that have not been answered. Spec: #task-update-requests (SHOULD track keys)"""
        new = {key: request for key, request in task.input_requests.items() if key not in self._answered}
        if not new:
            return
        limit = self._client.options.max_input_rounds
        if self._rounds >= limit:
            raise RemoteProtocolError(f"the task still asks for input after {limit} rounds", rule=_RULE)
        self._rounds += 1
        responses = await self._client.options.inputs.answer_all("tools/call", new, None, self._client.target.label)
        await self._tasks.update(task.task_id, responses)
        self._answered |= new.keys()

    def _tell(self, task: Task) -> None:
        news = (task.status, task.status_message)
        if news != self._told:
            self._told = news
            if self._on_task is not None:
                call_back(self._on_task, task)


def _outcome(task: Task) -> ToolResult:
    """What a task's end means to whoever made the call. Spec: #task-execution-errors"""
    if task.status is TaskStatus.COMPLETED:
        return read_tool_result(task.result)
    if task.error is not None:
        raise peer_error(task.error["code"], task.error["message"], task.error.get("data"))
    raise TaskCancelled(task.task_id, task.status_message)
