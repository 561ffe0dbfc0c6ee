"""Where tasks are kept: what is kept of one, what a store must be able to do, and the store in this process's memory.

Decided here: the contract that lets several processes serve the same tasks, and the bounds of the store in memory. Not here: what
happens to a task (`tasks`), and its shape on the wire (`protocol.tasks`).

A record changes by comparison: whoever changes one says which revision it has seen, and reads again if another was faster. So a process
that takes a client's answer and the process that runs the function need nothing of each other but the store.
"""

from __future__ import annotations

import asyncio
import heapq
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from msgspec import Struct

from outrider.protocol.tasks import Task

__all__ = ["STORE_RETRY_S", "MemoryTaskStore", "TaskOver", "TaskRecord", "TaskStore", "TooManyTasks"]

STORE_RETRY_S: Final = 1.0
"""How long those wait who go on without a store that fails, in seconds."""


class TaskRecord(Struct, frozen=True, kw_only=True):
    """What is kept of a task. All of it is JSON once encoded with msgspec.

    Attributes:
        task: the task as clients see it.
        owner: the identifier of the principal that it belongs to, or None for callers who are nobody in particular.
        answers: the client's answers that the function has not had yet, by the key of the question.
        alive_until: until when the process that runs the function has said that it lives, in seconds since the epoch; None where the
            task cannot outlive it.
    """

    task: Task
    owner: str | None
    answers: Mapping[str, Any] = {}
    alive_until: float | None = None


class TaskOver(Exception):
    """The task has come to its end, or its time is over."""


class TooManyTasks(Exception):
    """The store keeps as many tasks as it may, in all or for this owner."""


class TaskStore(Protocol):
    """What keeps tasks. For several processes behind one balancer, give all of them a store that they share.

    A store that fails raises `StoreError`: a call is then refused as busy, and what runs is told later.
    """

    async def create(self, record: TaskRecord, *, keep_s: float) -> None:
        """Keep a new task for `keep_s` seconds. Returns only when a `read` anywhere would find it.

        Raises:
            TooManyTasks: nothing was kept.

        Spec: io.modelcontextprotocol/tasks#task-creation (MUST be durable before the client hears of it)
        """
        ...

    async def read(self, task_id: str) -> tuple[TaskRecord, int] | None:
        """The task and its revision, or None when there is none, or its time is over."""
        ...

    async def replace(self, record: TaskRecord, revision: int) -> bool:
        """Put the record in the place of the one with this revision; False when that is gone or has been replaced."""
        ...

    async def changed(self, task_id: str, revision: int) -> None:
        """Return when the task has another revision than this, or is gone. May return early; the caller reads again."""
        ...


class _Kept:
    __slots__ = ("expires_at", "record", "revision", "waiting")

    def __init__(self, record: TaskRecord, expires_at: float) -> None:
        self.record, self.expires_at = record, expires_at
        self.revision = 0
        self.waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def wake(self) -> None:
        waiting, self.waiting = self.waiting, []
        for loop, event in waiting:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)


class MemoryTaskStore:
    """Keeps tasks in this process: right for stdio and for one worker. Usable from any thread and loop.

    Args:
        max_tasks: how many are kept in all, finished ones included.
        max_per_owner: how many are kept for one owner.
        clock: seconds, never going back.
    """

    def __init__(
        self, *, max_tasks: int = 10_000, max_per_owner: int = 1_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_tasks, self._max_per_owner, self._clock = max_tasks, max_per_owner, clock
        self._kept: dict[str, _Kept] = {}
        self._expiries: list[tuple[float, str]] = []
        self._owned: Counter[str | None] = Counter()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def _find(self, task_id: str) -> _Kept | None:
        """What is kept under the id, after everything whose time is over has gone. With the lock held."""
        now = self._clock()
        while self._expiries and self._expiries[0][0] <= now:
            kept = self._kept.pop(heapq.heappop(self._expiries)[1])
            self._owned[kept.record.owner] -= 1
            if not self._owned[kept.record.owner]:
                del self._owned[kept.record.owner]
            kept.wake()
        return self._kept.get(task_id)

    async def create(self, record: TaskRecord, *, keep_s: float) -> None:
        """See `TaskStore.create`."""
        task_id = record.task.task_id
        with self._lock:
            if self._find(task_id) is not None:
                raise ValueError("a task identifier is used once")
            if len(self._kept) >= self._max_tasks or self._owned[record.owner] >= self._max_per_owner:
                raise TooManyTasks
            kept = self._kept[task_id] = _Kept(record, self._clock() + keep_s)
            self._owned[record.owner] += 1
            heapq.heappush(self._expiries, (kept.expires_at, task_id))

    async def read(self, task_id: str) -> tuple[TaskRecord, int] | None:
        """See `TaskStore.read`."""
        with self._lock:
            kept = self._find(task_id)
            return None if kept is None else (kept.record, kept.revision)

    async def replace(self, record: TaskRecord, revision: int) -> bool:
        """See `TaskStore.replace`."""
        with self._lock:
            kept = self._find(record.task.task_id)
            if kept is None or kept.revision != revision:
                return False
            kept.record = record
            kept.revision += 1
            kept.wake()
            return True

    async def changed(self, task_id: str, revision: int) -> None:
        """See `TaskStore.changed`. What ends a task's time is noticed with the next call of any method."""
        event = asyncio.Event()
        with self._lock:
            kept = self._find(task_id)
            if kept is None or kept.revision != revision:
                return
            kept.waiting.append(entry := (asyncio.get_running_loop(), event))
        try:
            await event.wait()
        finally:
            with self._lock:
                if entry in kept.waiting:
                    kept.waiting.remove(entry)
