"""A function that is, or may become, a task: what it says and asks, and what its outcome makes of the task.

Decided here: the way of questions and answers, status messages, and the end. Not here: when a call becomes a task and what clients do to
it (`tasks`), and where it is kept (`task_store`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from outrider.errors import INTERNAL_ERROR, INVALID_PARAMS, StoreError
from outrider.protocol.tasks import Task, TaskStatus, moved
from outrider.server.context import Channel, RequestRejected, TaskChannel
from outrider.server.dispatch import Answer, Work
from outrider.server.inputs import Question
from outrider.server.registry import Principal
from outrider.server.task_store import STORE_RETRY_S, TaskOver, TaskRecord, TooManyTasks

if TYPE_CHECKING:
    from outrider.server.tasks import Tasks

__all__ = ["TaskRun", "owner_of"]

_log: Final = logging.getLogger("outrider.server")
_ID_BYTES: Final = 24
_MAX_MESSAGE_CHARS: Final = 1_000
_STORE_ATTEMPTS: Final = 10


class _Reply(Struct):
    result: Raw = Raw(b"")
    error: dict[str, Any] | None = None


_decode_reply: Final = msgspec.json.Decoder(_Reply).decode


def owner_of(principal: Principal | None) -> str | None:
    """Whose a principal's tasks are."""
    return None if principal is None else principal.id


class TaskRun(TaskChannel):
    """One function that is, or may become, a task: what it says and asks goes to the request's channel before, and to the store after.

    It is the `Channel` of the function's context.
    """

    def __init__(self, tasks: Tasks, work: Work, channel: Channel, principal: Principal | None) -> None:
        import secrets  # Slow to import, and most servers run no tasks.

        tool = work.item
        self.task_id = secrets.token_urlsafe(_ID_BYTES)
        self.asks_first = tool.task.after_s is None
        self.task: Task | None = None
        self.begun = asyncio.Event()
        self.function: asyncio.Task[Any] | None = None
        self.questions: dict[str, Question] = {}
        self._tasks, self._channel = tasks, channel
        self._owner = owner_of(principal)
        self._timeout_s: float = tool.timeout_s or tasks.options.timeout_s
        self._poll_interval_ms = tool.task.poll_interval_ms or tasks.options.poll_interval_ms
        self._beginning = asyncio.Lock()
        self._watchers: list[asyncio.Task[Any]] = []
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self._used_keys: set[str] = set()
        self._message: str | None = None
        self._writer: asyncio.Task[Any] | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def has_begun(self) -> bool:
        """Whether there is a task."""
        return self.task is not None

    def stop(self) -> None:
        """Cancel the function. From any thread."""
        if self.function is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.function.cancel)

    async def begin(self) -> None:
        """Make the task, if there is none yet.

        Raises:
            RequestRejected: too many are kept already.
        """
        async with self._beginning:
            if self.task is not None:
                return
            now = self._tasks.now()
            keep_s = self._timeout_s + self._tasks.options.keep_s
            task = Task(
                task_id=self.task_id,
                status=TaskStatus.WORKING,
                created_at=now,
                last_updated_at=now,
                ttl_ms=int(keep_s * 1000),
                poll_interval_ms=self._poll_interval_ms,
            )
            record = TaskRecord(task=task, owner=self._owner, alive_until=self._tasks.alive_until())
            try:
                await self._tasks.store.create(record, keep_s=keep_s)
            except TooManyTasks as error:
                text = "too many tasks are kept already; wait until some have expired"
                raise RequestRejected(INTERNAL_ERROR, text) from error
            except StoreError as error:
                _log.error("a task could not be kept: %s", error)
                raise RequestRejected(INTERNAL_ERROR, "tasks cannot be kept now; try again later") from error
            self.task = task
            self._watchers.append(self._tasks.spawn(self._watch(), "outrider task watch"))
            if record.alive_until is not None:
                self._watchers.append(self._tasks.spawn(self._beat(), "outrider task heartbeat"))
            self.begun.set()

    async def _watch(self) -> None:
        """Bring the client's answers to the function, and stop it when the task has been ended."""
        async for record in self._tasks.news(self.task_id):
            for key, answer in record.answers.items():
                waiting = self._waiting.get(key)
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)
        self.stop()

    async def _beat(self) -> None:
        """Tell the other processes now and then that this one lives."""

        def beat(record: TaskRecord) -> TaskRecord:
            return replace(record, alive_until=self._tasks.alive_until())

        while True:
            await asyncio.sleep(self._tasks.beat_s)
            try:
                await self._tasks.change(self.task_id, beat)
            except StoreError:
                continue
            except TaskOver:
                return

    async def ask(self, questions: Mapping[str, Question]) -> dict[str, Any]:
        """Put questions into the task and wait for the raw answers.

        Spec: #task-update-requests (a key MUST be used once in a task's life)
        """
        keys = {key: self._mint(key) for key in questions}
        asked = {keys[key]: question for key, question in questions.items()}
        if not asked:
            return {}
        requests = {key: {"method": question.method, "params": question.params()} for key, question in asked.items()}
        self.questions |= asked
        self._waiting |= {key: self._loop.create_future() for key in asked}
        waiting = {key: self._waiting[key] for key in asked}

        def ask(record: TaskRecord) -> TaskRecord:
            task = record.task
            outstanding = {**task.input_requests, **requests}
            task = moved(task, TaskStatus.INPUT_REQUIRED, self._tasks.now(), input_requests=outstanding)
            open_answers = {key: answer for key, answer in record.answers.items() if key in self._waiting}
            return replace(record, task=task, answers=open_answers)

        try:
            await self._change(ask)
            answers = await asyncio.gather(*waiting.values())
        finally:
            open_keys = {key for key, answer in waiting.items() if not answer.done() or answer.cancelled()}
            for key in asked:
                del self.questions[key], self._waiting[key]
            if open_keys:
                self._tasks.spawn(self._withdraw(open_keys), "outrider task question")
        return dict(zip(questions, answers, strict=True))

    def _mint(self, key: str) -> str:
        minted, number = key, 1
        while minted in self._used_keys:
            number += 1
            minted = f"{key}-{number}"
        self._used_keys.add(minted)
        return minted

    async def _withdraw(self, keys: set[str]) -> None:
        """Questions whose answer nobody waits for any more are no longer asked."""

        def withdraw(record: TaskRecord) -> TaskRecord:
            task = record.task
            left = {key: request for key, request in task.input_requests.items() if key not in keys}
            if len(left) == len(task.input_requests):
                return record
            status = TaskStatus.INPUT_REQUIRED if left else TaskStatus.WORKING
            return replace(record, task=moved(task, status, self._tasks.now(), input_requests=left))

        try:
            await self._tasks.change(self.task_id, withdraw)
        except (TaskOver, StoreError):
            return

    async def _change(self, step: Callable[[TaskRecord], TaskRecord]) -> None:
        try:
            await self._tasks.change(self.task_id, step)
        except TaskOver:
            raise RequestRejected(INVALID_PARAMS, "the task is over") from None

    def say(self, message: str) -> None:
        """Tell what is going on; the latest message counts. On the loop."""
        self._message = message[:_MAX_MESSAGE_CHARS]
        if self._writer is None or self._writer.done():
            self._writer = self._tasks.spawn(self._write_message(), "outrider task status")

    async def _write_message(self) -> None:
        while self._message is not None:
            message, self._message = self._message, None

            def say(record: TaskRecord, message: str = message) -> TaskRecord:
                task = record.task
                if task.status_message == message:
                    return record
                kept = {"status_message": message, "input_requests": task.input_requests}
                return replace(record, task=moved(task, task.status, self._tasks.now(), **kept))

            try:
                await self._tasks.change(self.task_id, say)
            except (TaskOver, StoreError):
                return

    async def finish(self, answer: Answer, attempts: int = _STORE_ATTEMPTS) -> None:
        """The function is done; what it gave is the task's result, or its error. A store that fails is tried so often."""
        if self.task is None:
            return
        for watcher in self._watchers:
            watcher.cancel()
        reply = _decode_reply(answer.body)
        changes: dict[str, Any]
        if reply.error is not None:
            message = str(reply.error.get("message"))[:_MAX_MESSAGE_CHARS]
            status, changes = TaskStatus.FAILED, {"error": reply.error, "status_message": message}
        else:
            status, changes = TaskStatus.COMPLETED, {"result": reply.result, "status_message": ""}

        def finish(record: TaskRecord) -> TaskRecord:
            return replace(record, task=moved(record.task, status, self._tasks.now(), **changes), answers={})

        for attempt in range(attempts):
            if attempt:
                await asyncio.sleep(STORE_RETRY_S)
            try:
                await self._tasks.change(self.task_id, finish)
            except TaskOver:
                return
            except StoreError as error:
                _log.error("the outcome of a task could not be kept: %s", error)
            else:
                return

    # The channel

    def notify(self, message: bytes) -> None:
        """Progress and log messages belong to the request, and end with it. Spec: #task-status-notifications (not supported on tasks)"""
        if self.task is None:
            self._channel.notify(message)

    async def request(self, question: Question) -> Any:
        """Tasks are of the modern era, which has no requests to clients."""
        raise RuntimeError("a modern request asks for input in its result")

    def begin_wait(self, task: asyncio.Task[Any]) -> None:
        """Nothing: whether the client is still there does not matter to the function."""

    def end_wait(self) -> None:
        """Nothing."""

    def release(self, retry_ms: int) -> None:
        """Nothing: only legacy HTTP has streams to come back to."""
