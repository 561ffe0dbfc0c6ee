"""Many who want the same thing cause one attempt."""

from __future__ import annotations

import asyncio

import pytest

from cache.conftest import DEADLINE_S
from outrider.cache import SingleFlight


class Attempt:
    def __init__(self) -> None:
        self.starts = 0
        self.cancelled = 0
        self.began = asyncio.Event()
        self.release = asyncio.Event()

    async def __call__(self) -> str:
        self.starts += 1
        self.began.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return f"result {self.starts}"


async def test_the_last_to_leave_cancels_the_attempt() -> None:
    """Ours: nobody owns it, but work that nobody waits for is not done."""
    flights, attempt = SingleFlight[str](), Attempt()
    async with asyncio.timeout(DEADLINE_S):
        askers = [asyncio.create_task(flights.run("k", attempt)) for _ in range(3)]
        await attempt.began.wait()
        for asker in askers[:2]:
            asker.cancel()
        await asyncio.wait(askers[:2])
        assert attempt.cancelled == 0
        askers[2].cancel()
        await asyncio.wait(askers)
        while not attempt.cancelled:
            await asyncio.sleep(0)
    assert (attempt.starts, len(flights)) == (1, 0)


async def test_who_comes_after_the_last_has_left_starts_anew() -> None:
    """Ours: an attempt that is being cancelled cannot be joined."""
    flights, attempt = SingleFlight[str](), Attempt()
    async with asyncio.timeout(DEADLINE_S):
        first = asyncio.create_task(flights.run("k", attempt))
        await attempt.began.wait()
        first.cancel()
        second = asyncio.create_task(flights.run("k", attempt))
        attempt.release.set()
        assert await second == "result 2"
    assert first.cancelled()


async def test_keys_do_not_wait_for_each_other() -> None:
    """Ours."""
    flights, slow, quick = SingleFlight[str](), Attempt(), Attempt()
    quick.release.set()
    async with asyncio.timeout(DEADLINE_S):
        waiting = asyncio.create_task(flights.run("slow", slow))
        await slow.began.wait()
        assert await flights.run("quick", quick) == "result 1"
        slow.release.set()
        assert await waiting == "result 1"


async def test_a_result_is_not_kept() -> None:
    """Ours: remembering is for the memory."""
    flights, attempt = SingleFlight[str](), Attempt()
    attempt.release.set()
    assert [await flights.run("k", attempt) for _ in range(2)] == ["result 1", "result 2"]


async def test_a_detached_attempt_is_finished_and_not_joined() -> None:
    """Case 68: who already waits gets its result, who comes later does not."""
    flights, old, new = SingleFlight[str](), Attempt(), Attempt()
    new.release.set()
    async with asyncio.timeout(DEADLINE_S):
        waiting = asyncio.create_task(flights.run("k", old))
        await old.began.wait()
        flights.detach(lambda key: key == "k")
        assert await flights.run("k", new) == "result 1"
        old.release.set()
        assert await waiting == "result 1"
    assert (old.starts, new.starts, old.cancelled) == (1, 1, 0)


async def test_a_background_attempt_outlives_those_who_join_it() -> None:
    """Ours: revalidation goes on when the asker who joined has left; its failure disturbs nobody."""
    flights, attempt = SingleFlight[str](), Attempt()
    async with asyncio.timeout(DEADLINE_S):
        flights.start("k", attempt)
        flights.start("k", attempt)
        await attempt.began.wait()
        joined = asyncio.create_task(flights.run("k", attempt))
        await asyncio.sleep(0)
        joined.cancel()
        await asyncio.wait({joined})
        assert (attempt.starts, attempt.cancelled) == (1, 0)
        await flights.close()
    assert attempt.cancelled == 1


async def test_a_failure_is_given_to_each_and_then_forgotten() -> None:
    """Case 152."""
    flights = SingleFlight[str]()
    failures = 0

    async def fail() -> str:
        nonlocal failures
        failures += 1
        raise ValueError("no")

    outcomes = await asyncio.gather(*(flights.run("k", fail) for _ in range(5)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ValueError] * 5
    assert failures == 1
    with pytest.raises(ValueError, match="no"):
        await flights.run("k", fail)
    assert failures == 2
