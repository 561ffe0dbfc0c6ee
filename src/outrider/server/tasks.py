"""Tasks: calls that are answered with a handle at once, while the tool's function goes on, asks, is answered, or is cancelled.

Decided here: when a call becomes a task, who may see it, what clients may do to it, who hears of it, and what becomes of one whose process
is gone. Not here: what a function that is a task says and asks (`task_run`), statuses and shapes (`protocol.tasks`), keeping
(`task_store`), running the function itself (`running`), and which tools may be tasks (`registry`).

The function runs in a loop task of its own, which outlives the request. Everything a client can see or do passes through the store, so a
`tasks/get`, `tasks/update` or `tasks/cancel` may be served by any process that shares it.

Spec: io.modelcontextprotocol/tasks (SEP-2663)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from outrider.errors import INTERNAL_ERROR, INVALID_PARAMS, MISSING_CLIENT_CAPABILITY, StoreError
from outrider.protocol.tasks import (
    CANCEL,
    EXTENSION,
    GET,
    RESULT_TYPE,
    UPDATE,
    Task,
    TaskStatus,
    declares,
    moved,
    render_task,
    required_capabilities,
)
from outrider.server.context import Channel, Context, RequestRejected
from outrider.server.dispatch import Answer, Listen, Work, error_answer, reply_bytes
from outrider.server.inputs import InvalidAnswer
from outrider.server.registry import Principal, Registry, TaskSupport
from outrider.server.running import Runner
from outrider.server.state import StateSeal
from outrider.server.subscriptions import Listener
from outrider.server.task_run import TaskRun, owner_of
from outrider.server.task_store import STORE_RETRY_S, MemoryTaskStore, TaskOver, TaskRecord, TaskStore

__all__ = ["TaskOptions", "Tasks"]

_log: Final = logging.getLogger("outrider.server")
_encode: Final = msgspec.json.Encoder().encode
_BEAT_S: Final = 30.0
_MISSED_BEATS: Final = 3
_MAX_ATTEMPTS: Final = 1_000
"""At one change of a record. Somebody always succeeds, so only a store that is broken comes here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """How a server keeps and runs tasks.

    Attributes:
        timeout_s: the longest that a task's function may take, waiting for answers included, in seconds; a tool's own limit goes before it.
        keep_s: how long at least a finished task can be asked for, in seconds.
        poll_interval_ms: how often clients are told to ask, in milliseconds; a tool's own interval goes before it.
        max_running: tasks whose functions run in this process at the same time; more are refused as busy.
        max_tasks: tasks kept by the store in memory, finished ones included.
        max_per_principal: the same for one principal. Callers who are nobody in particular count as one.
        worker_threads: threads for the synchronous functions of tasks, apart from those of other calls.
        store: where tasks are kept; None for this process's memory. Processes behind one balancer need one that they share.
    """

    timeout_s: float = 3600.0
    keep_s: float = 600.0
    poll_interval_ms: int = 1_000
    max_running: int = 1_000
    max_tasks: int = 10_000
    max_per_principal: int = 1_000
    worker_threads: int = 40
    store: TaskStore | None = None


class Tasks:
    """The tasks of one server. Made by `Server`.

    Args:
        options: see `TaskOptions`.
        registry: what the server says about itself.
        seal: for the states of questions that are asked before there is a task.
        expose_errors: as for `Runner`.
        clock: the time of day.
    """

    def __init__(
        self,
        options: TaskOptions,
        registry: Registry,
        seal: StateSeal,
        *,
        expose_errors: bool = False,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        if options.timeout_s <= 0 or options.keep_s <= 0 or options.poll_interval_ms < 1:
            raise ValueError("a task's times are more than nothing")
        self.options = options
        own = MemoryTaskStore(max_tasks=options.max_tasks, max_per_owner=options.max_per_principal)
        self.store: TaskStore = own if options.store is None else options.store
        # Its limits and threads are not those of other calls, so that long work leaves short calls alone.
        self._runner = Runner(
            registry,
            seal,
            max_concurrent=options.max_running,
            request_timeout_s=options.timeout_s,
            worker_threads=options.worker_threads,
            expose_errors=expose_errors,
            traced=False,
        )
        self._clock = clock
        self.beat_s = _BEAT_S
        """How often a process says that it lives, in seconds."""
        self._runs: dict[str, TaskRun] = {}
        self._loop_tasks: set[asyncio.Task[Any]] = set()

    @property
    def methods(self) -> dict[str, Callable[[dict[str, Any], Context], Any]]:
        """The request methods of the extension."""
        return {GET: self.get, UPDATE: self.update, CANCEL: self.cancel}

    @property
    def running(self) -> list[asyncio.Task[Any]]:
        """The functions that run, in this process."""
        return [run.function for run in self._runs.values() if run.function is not None]

    def now(self) -> str:
        """The time as tasks carry it."""
        return self._clock().astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def alive_until(self) -> float | None:
        """Until when a task whose function runs here counts as worked on, unless something is heard; None if nobody else could tell."""
        return None if self.options.store is None else self._clock().timestamp() + _MISSED_BEATS * self.beat_s

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run something beside the request that asked for it."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._loop_tasks.add(task)
        task.add_done_callback(self._loop_tasks.discard)
        return task

    def close(self) -> None:
        """Stop all functions that run; what they would have given is lost."""
        for run in list(self._runs.values()):
            run.stop()
        self._runner.close()

    # Calls that may become tasks

    async def call(self, work: Work, channel: Channel, principal: Principal | None) -> Answer:
        """Answer a call of a client that takes tasks: with a task, or as any other call if the tool is done, or asks, before it is one.

        Cancelling this cancels the function as long as there is no task.
        """
        support: TaskSupport = work.item.task
        if len(self._runs) >= self.options.max_running:
            busy = error_answer(work.id_json, INTERNAL_ERROR, "too many tasks run already; try again later")
            return Answer(busy.body, 503)
        run = TaskRun(self, work, channel, principal)
        try:
            if support.after_s == 0:
                await run.begin()
            function = self.spawn(self._perform(work, run, principal), "outrider task")
            run.function = function
            self._runs[run.task_id] = run
            function.add_done_callback(lambda _: self._runs.pop(run.task_id, None))
            if not run.has_begun:
                await self._wait(run, function, channel, support.after_s)
        except RequestRejected as rejected:
            return Answer(error_answer(work.id_json, rejected.code, rejected.message).body, 503)
        if run.task is None:
            answer: Answer = await function
            return answer
        members = {"resultType": RESULT_TYPE, **render_task(run.task, detailed=False)}
        if identity := self._runner.registry.identity_meta:
            members["_meta"] = identity
        return Answer(reply_bytes(work.id_json, _encode(members)))

    async def _wait(
        self, run: TaskRun, function: asyncio.Task[Answer], channel: Channel, after_s: float | None
    ) -> None:
        """Until the function is done or has become a task, which it does at the latest after `after_s` seconds."""
        beginning = asyncio.ensure_future(run.begun.wait())
        current = asyncio.current_task()
        if current is not None:
            channel.begin_wait(current)
        try:
            done, _ = await asyncio.wait((function, beginning), timeout=after_s, return_when="FIRST_COMPLETED")
            if not done:
                await run.begin()
        except BaseException:
            function.cancel()
            raise
        finally:
            beginning.cancel()
            channel.end_wait()

    async def _perform(self, work: Work, run: TaskRun, principal: Principal | None) -> Answer:
        try:
            answer = await self._runner.perform(replace(work, as_task=False), run, principal)
            await run.finish(answer)
            return answer
        except asyncio.CancelledError:
            # By the client, which has ended the task already, or because the server stops.
            stopped = error_answer(work.id_json, INTERNAL_ERROR, "the server stopped before the task was done")
            await run.finish(stopped, attempts=1)
            raise

    # The extension's methods

    async def get(self, params: dict[str, Any], ctx: Context) -> Mapping[str, Any]:
        """`tasks/get`. Spec: #task-polling"""
        record, _ = await self.find(params, ctx)
        return render_task(record.task, detailed=True)

    async def update(self, params: dict[str, Any], ctx: Context) -> Mapping[str, Any]:
        """`tasks/update`: answers to what is asked; those to anything else are ignored. Spec: #task-update-requests (SHOULD ignore)

        Raises:
            RequestRejected: the task or the answers are missing, or an answer does not fit its question (-32602), which stays open.
        """
        responses = params.get("inputResponses")
        record, _ = await self.find(params, ctx)
        if not isinstance(responses, dict):
            raise RequestRejected(INVALID_PARAMS, "params.inputResponses is missing or not an object")
        run = self._runs.get(record.task.task_id)
        for key, answer in responses.items():
            question = run.questions.get(key) if run is not None else None
            if question is not None:
                try:
                    question.read(answer)
                except InvalidAnswer as error:
                    text = f"the input response {key[:100]!r} is invalid: {error}"
                    raise RequestRejected(INVALID_PARAMS, text) from error

        def answered(record: TaskRecord) -> TaskRecord:
            task = record.task
            given = {key: responses[key] for key in task.input_requests if key in responses}
            if not given:
                return record
            left = {key: request for key, request in task.input_requests.items() if key not in given}
            status = TaskStatus.INPUT_REQUIRED if left else TaskStatus.WORKING
            task = moved(task, status, self.now(), input_requests=left)
            return replace(record, task=task, answers={**record.answers, **given})

        await self._change_unless_over(record.task.task_id, answered)
        return {}

    async def cancel(self, params: dict[str, Any], ctx: Context) -> Mapping[str, Any]:
        """`tasks/cancel`: the task is cancelled at once, and its function is told; a task that is over stays as it is.

        Spec: #task-cancellation (MUST acknowledge)
        """
        record, _ = await self.find(params, ctx)

        def cancelled(record: TaskRecord) -> TaskRecord:
            task = moved(record.task, TaskStatus.CANCELLED, self.now(), status_message="Cancelled by the client.")
            return replace(record, task=task, answers={})

        await self._change_unless_over(record.task.task_id, cancelled)
        return {}

    async def find(self, params: dict[str, Any], ctx: Context) -> tuple[TaskRecord, int]:
        """The task that a request is about, if it is the caller's.

        Raises:
            RequestRejected: the client did not declare the extension (-32021), or has no such task (-32602). That a task is somebody
                else's is not told.

        Spec: #protocol-errors (MUST), #security-considerations (MUST)
        """
        if not declares(ctx.client_capabilities):
            raise RequestRejected(
                MISSING_CLIENT_CAPABILITY,
                f"this request needs the client capability {EXTENSION}",
                required_capabilities(),
            )
        task_id = params.get("taskId")
        if not isinstance(task_id, str):
            raise RequestRejected(INVALID_PARAMS, "params.taskId is missing or not a text")
        found = await self._read(task_id)
        if found is None or found[0].owner != owner_of(ctx.principal):
            raise RequestRejected(INVALID_PARAMS, "Task not found: it never was, or its time is over")
        return found

    # Listening

    async def admit(self, listen: Listen, principal: Principal | None) -> Listen:
        """The request without the tasks that are not the caller's. Spec: #task-status-notifications (those agreed to)"""
        if listen.accepted.task_ids is None:
            return listen
        owner, known = owner_of(principal), []
        try:
            for task_id in listen.accepted.task_ids:
                found = await self.store.read(task_id)
                if found is not None and found[0].owner == owner:
                    known.append(task_id)
        except StoreError as error:
            _log.warning("tasks cannot be listened to for now: %s", error)
        return replace(listen, accepted=replace(listen.accepted, task_ids=known))

    def watch(self, listener: Listener) -> None:
        """Bring news of a listener's tasks from now on, beginning with how each stands, so that nothing falls between call and stream."""
        if listener.accepted.task_ids:
            listener.watcher = self.spawn(self._watch(listener, listener.accepted.task_ids), "outrider task listener")

    async def _watch(self, listener: Listener, task_ids: list[str]) -> None:
        async def watch(task_id: str) -> None:
            told: Task | None = None
            async for record in self.news(task_id):
                if record.task != told:
                    told = record.task
                    listener.note_task(task_id, render_task(told, detailed=True))

        await asyncio.gather(*(watch(task_id) for task_id in task_ids))

    async def news(self, task_id: str) -> AsyncIterator[TaskRecord]:
        """A task as it is and after each change, its end included, until it is gone. Outlives a store that fails for a while."""
        seen: int | None = None
        while True:
            try:
                found = await self._read(task_id)
                if found is None:
                    return
                record, revision = found
                if revision != seen:
                    seen = revision
                    yield record
                if record.task.status.is_terminal:
                    return
                await self.store.changed(task_id, revision)
            except StoreError as error:
                _log.warning("a task cannot be followed for now: %s", error)
                await asyncio.sleep(STORE_RETRY_S)

    async def _read(self, task_id: str) -> tuple[TaskRecord, int] | None:
        """What the store has; a task that no living process works on has failed. Spec: #task-status, failed"""
        found = await self.store.read(task_id)
        if found is None or not self._is_orphan(found[0]):
            return found

        def fail(record: TaskRecord) -> TaskRecord:
            if not self._is_orphan(record):
                return record
            text = "the process that worked on the task is gone"
            error = {"code": INTERNAL_ERROR, "message": text}
            task = moved(record.task, TaskStatus.FAILED, self.now(), error=error, status_message=text)
            return replace(record, task=task, answers={})

        await self._change_unless_over(task_id, fail)
        return await self.store.read(task_id)

    def _is_orphan(self, record: TaskRecord) -> bool:
        task = record.task
        if task.status.is_terminal or record.alive_until is None or task.task_id in self._runs:
            return False
        return record.alive_until < self._clock().timestamp()

    # Changing what is kept

    async def change(self, task_id: str, step: Callable[[TaskRecord], TaskRecord]) -> TaskRecord:
        """Change a task, again and again until nobody else was faster.

        Raises:
            TaskOver: it has ended.
        """
        for _ in range(_MAX_ATTEMPTS):
            found = await self.store.read(task_id)
            if found is None or found[0].task.status.is_terminal:
                raise TaskOver
            record = step(found[0])
            if record is found[0] or await self.store.replace(record, found[1]):
                return record
        raise RuntimeError("the store of tasks takes no change")

    async def _change_unless_over(self, task_id: str, step: Callable[[TaskRecord], TaskRecord]) -> None:
        try:
            await self.change(task_id, step)
        except TaskOver:
            return
