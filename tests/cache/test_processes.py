"""Several real processes on one store: what one learns the others have, and a hundred starters do not stampede."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cache.conftest import StartWorker, Upstream, ValkeyServer


@pytest.fixture(params=["sqlite", pytest.param("valkey", marks=pytest.mark.service)])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "m.sqlite3")
    server: ValkeyServer = request.getfixturevalue("valkey_server")
    return server.url


@pytest.fixture
def start(location: str, start_worker: StartWorker, upstream: Upstream, tmp_path: Path) -> StartWorker:
    async def start_one() -> Any:
        return await start_worker(location, upstream.port, prefix=tmp_path.name)

    return start_one


async def test_what_one_process_learned_the_other_has(start: StartWorker, upstream: Upstream) -> None:
    """Ours: shared hits; and an invalidation in one is seen by the other's next read."""
    one, two = await asyncio.gather(start(), start())
    assert (await one.ask(do="fetch"))["source"] == "network"
    assert (await two.ask(do="fetch"))["source"] == "memory"
    assert (await two.ask(do="get", context="another"))["found"] is False
    await one.ask(do="invalidate")
    assert (await two.ask(do="get"))["state"] == "invalidated"
    assert (await two.ask(do="fetch"))["source"] == "network"
    assert (await one.ask(do="fetch"))["source"] == "memory"
    assert upstream.requests == 2


@pytest.mark.parametrize("ttl_ms", [600_000, 0])
async def test_processes_that_start_together_cause_one_request(
    start: StartWorker, upstream: Upstream, ttl_ms: int
) -> None:
    """Ours: the lease; also for an answer that is stale at once, which those who waited for it may still have."""
    upstream.answer["ttlMs"] = ttl_ms
    workers = await asyncio.gather(*(start() for _ in range(6)))
    upstream.gate.clear()
    for worker in workers:
        # A long lease: on a busy machine a holder may be kept from renewing a short one, and another then rightly takes over.
        await worker.tell(do="fetch", announce=True, policy={"lease_wait_ms": 600_000, "lease_ms": 120_000})
    held = [(await worker.hear())["held"] for worker in workers]
    assert sorted(held) == [False] * 5 + [True]
    upstream.gate.set()
    answers = [await worker.hear() for worker in workers]
    assert [answer["value"]["tools"] for answer in answers] == [[{"name": "a"}]] * 6
    assert upstream.requests == 1


async def test_a_crashed_holder_blocks_nobody(start: StartWorker, upstream: Upstream) -> None:
    """Ours: its lease runs out, and the next one asks."""
    holder, waiter = await asyncio.gather(start(), start())
    upstream.gate.clear()
    await holder.tell(do="fetch")
    await upstream.wait_for_requests(1)
    policy = {"lease_ms": 2_000, "lease_wait_ms": 60_000}
    assert not (await waiter.ask(do="fetch", announce=True, policy=policy))["held"]
    holder.process.kill()
    await holder.process.wait()
    await upstream.wait_for_requests(2)
    upstream.gate.set()
    assert (await waiter.hear())["source"] == "network"


async def test_a_holder_that_takes_long_blocks_nobody_for_longer_than_they_will_wait(
    start: StartWorker, upstream: Upstream
) -> None:
    """Ours: after `lease_wait_ms` one asks for oneself, while the holder's lease is still renewed."""
    holder, waiter = await asyncio.gather(start(), start())
    upstream.gate.clear()
    await holder.tell(do="fetch")
    await upstream.wait_for_requests(1)
    await waiter.tell(do="fetch", policy={"lease_wait_ms": 100})
    await upstream.wait_for_requests(2)
    upstream.gate.set()
    assert (await holder.hear())["source"] == "network"
    assert (await waiter.hear())["source"] == "network"


async def test_who_asks_after_an_invalidation_does_not_wait_for_who_asked_before(
    start: StartWorker, upstream: Upstream
) -> None:
    """Case 68, across processes: the lease belongs to what was current when the request began."""
    early, late = await asyncio.gather(start(), start())
    upstream.gate.clear()
    await early.tell(do="fetch")
    await upstream.wait_for_requests(1)
    await late.ask(do="invalidate")
    upstream.answer["tools"] = [{"name": "new"}]
    await late.tell(do="fetch", policy={"lease_wait_ms": 600_000})
    await upstream.wait_for_requests(2)
    upstream.gate.set()
    assert (await early.hear())["state"] == "invalidated"
    assert (await late.hear())["value"]["tools"] == [{"name": "new"}]
    assert (await early.ask(do="fetch"))["value"]["tools"] == [{"name": "new"}]
    assert upstream.requests == 2


async def test_an_era_learned_by_one_process_is_known_to_the_next(
    start: StartWorker, location: str, tmp_path: Path
) -> None:
    """Spec basic/versioning#backward-compatibility-with-initialization-based-versions (MAY persist)."""
    from outrider.cache import Memory
    from outrider.cache.sqlite import SqliteStore
    from outrider.cache.valkey import ValkeyStore

    assert (await (await start()).ask(do="remember"))["kept"]
    store = ValkeyStore(location, prefix=tmp_path.name) if "://" in location else SqliteStore(location)
    async with Memory(store) as memory:
        known = await memory.era("t" * 32)
    assert known is not None
    assert known.evidence.is_answer
