"""Single flight: many who want the same thing at once cause one attempt to get it.

Decided here: who shares an attempt and when it is cancelled. Not here: what is kept afterwards (nothing is).

Spec: ours
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["SingleFlight"]

T = TypeVar("T")


class _Flight(Generic[T]):
    __slots__ = ("task", "waiters")

    def __init__(self, task: asyncio.Task[T]) -> None:
        self.task = task
        self.waiters = 0


class SingleFlight(Generic[T]):
    """Runs at most one attempt per key at a time, in a task that no asker owns.

    A result, or an exception, reaches everyone who waits for it and is then forgotten. An asker's cancellation is its
    own; only when the last one has gone is the attempt cancelled, too.
    """

    def __init__(self) -> None:
        self._flights: dict[Hashable, _Flight[T]] = {}
        self._tasks: set[asyncio.Task[T]] = set()

    def __len__(self) -> int:
        """How many attempts others can still join."""
        return len(self._flights)

    async def run(self, key: Hashable, attempt: Callable[[], Awaitable[T]]) -> T:
        """Joins the attempt under way for `key`, or starts one.

        Raises:
            Whatever the attempt raises, to each who waits.
            asyncio.CancelledError: the caller was cancelled, or `close` was called.
        """
        flight = self._flights.get(key)
        if flight is None or flight.task.done():
            flight = self._start(key, attempt)
        flight.waiters += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiters -= 1
            if flight.waiters == 0 and not flight.task.done():
                # Nobody may join an attempt that is being cancelled.
                if self._flights.get(key) is flight:
                    del self._flights[key]
                flight.task.cancel()

    def start(self, key: Hashable, attempt: Callable[[], Awaitable[T]]) -> None:
        """Makes sure an attempt is under way without waiting for it; what it raises is dropped unless someone joins."""
        flight = self._flights.get(key)
        if flight is None or flight.task.done():
            # It waits for itself, so that it outlives those who join and leave again.
            self._start(key, attempt).waiters += 1

    def _start(self, key: Hashable, attempt: Callable[[], Awaitable[T]]) -> _Flight[T]:
        async def fly() -> T:
            return await attempt()

        task = asyncio.get_running_loop().create_task(fly(), name="outrider single flight")
        flight = _Flight(task)
        self._flights[key] = flight
        self._tasks.add(task)

        def landed(task: asyncio.Task[T]) -> None:
            self._tasks.discard(task)
            if self._flights.get(key) is flight:
                del self._flights[key]
            if not task.cancelled():
                task.exception()  # retrieved, also if everyone who waited has left

        task.add_done_callback(landed)
        return flight

    def detach(self, matches: Callable[[Hashable], bool]) -> None:
        """From now on nobody joins the attempts whose key matches; who already waits still gets their result."""
        for key in [key for key in self._flights if matches(key)]:
            del self._flights[key]

    async def close(self) -> None:
        """Cancels all attempts and waits until they have ended."""
        self._flights.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
