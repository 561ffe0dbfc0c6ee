"""Random histories of two processes, two contexts, one server, clocks and a failing store, against a simple reference.

The server numbers its answers. Whatever the interleaving: an answer for one context never reaches another, what was
declared changed is not given as if it were not, what has been seen stale is not fresh later, and nothing is fresh
beyond its time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cache.conftest import DEADLINE_S, HandClock
from outrider.cache import InProcessStore, Memory, Peer, Recalled, Source, Store
from outrider.cache.sqlite import SqliteStore
from outrider.errors import AuthRequired, OutriderError, StoreError, TimedOut
from outrider.protocol.freshness import Policy, State, request_key

# Longer than a store that failed is left alone, so that what was known before is still fresh afterwards.
TARGET, TTL_MS = "t" * 32, 100_000
KEY = request_key("tools/list")

processes = st.sampled_from([0, 1])
contexts = st.sampled_from(["ann", "ann", "ben"])
actions = st.one_of(
    st.tuples(st.just("ask"), processes, contexts, st.sampled_from(["ok", "ok", "ok", "fail", "denied"])),
    st.tuples(st.just("refresh"), processes, contexts),
    st.tuples(st.just("get"), processes, contexts),
    # More of these: what goes wrong goes wrong between a request and its answer.
    *[
        st.tuples(st.just("begin"), processes, contexts),
        st.tuples(
            st.just("finish"), st.integers(0, 5), st.sampled_from(["ok", "ok", "ok", "fail", "denied", "cancel"])
        ),
        st.tuples(st.just("change"), processes),
    ]
    * 3,
    st.tuples(st.just("change unannounced")),
    st.tuples(st.just("pass"), st.sampled_from([1, 500, 40_000, TTL_MS - 1, TTL_MS, 150_000])),
    st.tuples(st.just("jump"), st.sampled_from([-3_600_000, -120_000, -5_000, -800, 700, 5_000, 3_600_000])),
    st.tuples(st.just("restart"), processes),
    st.tuples(st.just("break"), processes),
    st.tuples(st.just("mend"), processes),
    st.tuples(st.just("relabel"), st.sampled_from(["private", "public"])),
)


class Brittle:
    """A store that fails when told to, and counts the invalidations that got through."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.broken = False
        self.bumps = 0
        self.drops = 0

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._store, name)
        if name in ("shared", "clock_skew_ms", "watch", "close"):
            return attribute

        async def call(*args: Any, **kwargs: Any) -> Any:
            if self.broken:
                raise StoreError("broken for the test")
            outcome = await attribute(*args, **kwargs)
            if name == "bump":
                self.bumps += 1
            if name == "drop":
                self.drops += 1
            return outcome

        return call


class Request:
    """One that is under way."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()


class World:
    def __init__(self, open_store: Callable[[HandClock], Store], share: bool) -> None:
        self.clock = HandClock()
        self.open_store, self.share = open_store, share
        self.stores: list[Brittle] = []
        self.memories: list[Memory] = []
        self.version = 0  # of the server's list
        self.scope = "private"
        self.answers = 0  # numbered
        self.received: dict[int, int] = {}  # answer -> true time of receipt
        self.receiver: dict[int, Memory] = {}
        self.order: dict[int, int] = {}  # answer -> when it arrived, in steps
        self.seen_stale: set[int] = set()
        self.floor = 0  # the version that everyone must know of
        self.own_floor = [0, 0]  # the version that one process has been told of
        self.denied: dict[str, int] = {}  # the last step at which the context was turned away, as everyone must know
        self.own_denied: list[dict[str, int]] = [{}, {}]  # the same, as one process knows
        self.clock_was_set = False
        self.step = 0
        self.under_way: list[tuple[Request, asyncio.Task[None]]] = []

    def open(self, process: int) -> None:
        store = Brittle(self.open_store(self.clock))
        policy = Policy(lease_wait_ms=0, share_public=self.share)
        memory = Memory(store, policy=policy, clock=self.clock.clock)  # type: ignore[arg-type]
        self.stores[process : process + 1] = [store]
        self.memories[process : process + 1] = [memory]

    async def close(self) -> None:
        for request, task in self.under_way:
            request.outcome.cancel()
            task.cancel()
        ended = await asyncio.gather(*(task for _, task in self.under_way), return_exceptions=True)
        for memory in self.memories:
            await memory.close()
        for error in ended:
            if isinstance(error, AssertionError):
                raise error

    def loader(self, process: int, context: str, request: Request) -> Callable[[], Any]:
        async def load() -> bytes:
            # The server answers with what holds when the request arrives, and the answer may take its time.
            self.answers += 1
            number, version, scope = self.answers, self.version, self.scope
            request.began.set()
            match await request.outcome:
                case "fail":
                    raise TimedOut("late")
                case "denied":
                    self.own_denied[process][context] = self.step
                    self.stores[process].drops = 0
                    raise AuthRequired("no", status=401)
            self.received[number] = self.clock.mono_ms
            self.receiver[number] = self.memories[process]
            self.order[number] = self.step
            return json.dumps(
                {
                    "tools": [],
                    "number": number,
                    "version": version,
                    "for": context,
                    "ttlMs": TTL_MS,
                    "cacheScope": scope,
                }
            ).encode()

        return load

    def check(self, process: int, context: str, answer: Recalled, floor: int) -> None:
        value = json.loads(answer.value)
        number = value["number"]
        if not (self.share and value["cacheScope"] == "public"):
            assert value["for"] == context, "a private answer reached another context"
            if answer.source is not Source.NETWORK:
                denied = max(self.denied.get(context, -1), self.own_denied[process].get(context, -1))
                assert self.order[number] > denied, "an answer outlived the right to it"
        if answer.source is Source.STALE:
            self.seen_stale.add(number)
            assert not answer.freshness.fresh
            return
        assert value["version"] >= floor, "an invalidation was lost"
        if answer.source is Source.MEMORY:
            assert answer.freshness.fresh
            assert number not in self.seen_stale, "a stale answer became fresh again"
            # Who received it has lived since and cannot be fooled; others can be by a clock that was set while they did
            # not look.
            if not self.clock_was_set or self.receiver[number] is self.memories[process]:
                assert self.clock.mono_ms - self.received[number] < TTL_MS, "an answer was fresh beyond its time"

    async def fetch(self, process: int, context: str, request: Request, *, refresh: bool = False) -> None:
        floor = self.known_floor(process)
        with contextlib.suppress(OutriderError):
            answer = await self.memories[process].fetch(
                Peer(TARGET, context), KEY, self.loader(process, context, request), refresh=refresh
            )
            self.check(process, context, answer, floor)
        self.settle_floor(process)

    def known_floor(self, process: int) -> int:
        """The oldest version that a process may still give: while its store fails it hears nothing of the others."""
        shared = 0 if self.stores[process].broken else self.floor
        return max(shared, self.own_floor[process])

    def settle_floor(self, process: int) -> None:
        """What a process was told while its store failed reaches the others as soon as the store has been told."""
        if self.own_floor[process] and self.stores[process].bumps:
            self.floor = max(self.floor, self.own_floor[process])
            self.own_floor[process] = 0
        if self.stores[process].drops:
            for context, step in self.own_denied[process].items():
                self.denied[context] = max(self.denied.get(context, -1), step)
            self.own_denied[process].clear()

    async def act(self, action: tuple[Any, ...]) -> None:
        self.step += 1
        match action:
            case ("ask", process, context, outcome):
                request = Request()
                request.outcome.set_result(outcome)
                # May join a request that is under way and stays so: that one is left for later.
                task = asyncio.create_task(self.fetch(process, context, request))
                await self.until_it_waits(task, request, joins=True)
            case ("refresh", process, context):
                request = Request()
                request.outcome.set_result("ok")
                task = asyncio.create_task(self.fetch(process, context, request, refresh=True))
                await self.until_it_waits(task, request, joins=True)
            case ("get", process, context):
                floor = self.known_floor(process)
                found = await self.memories[process].get(Peer(TARGET, context), KEY)
                if found is not None:
                    self.check(process, context, found, floor)
                self.settle_floor(process)
            case ("begin", process, context):
                request = Request()
                task = asyncio.create_task(self.fetch(process, context, request))
                await self.until_it_waits(task, request)
            case ("finish", index, outcome) if self.under_way:
                request, task = self.under_way.pop(index % len(self.under_way))
                if outcome == "cancel":
                    task.cancel()
                    await asyncio.wait({task})
                elif not request.outcome.done():
                    request.outcome.set_result(outcome)
                    # If another asker's request is the one under way, this one goes on waiting for that.
                    await self.until_it_waits(task, request, joins=not request.began.is_set())
                await self.collect()
            case ("change", process):
                self.version += 1
                self.stores[process].bumps = 0
                await self.memories[process].notified(TARGET, "notifications/tools/list_changed")
                if self.stores[process].bumps:
                    self.floor = self.version
                else:
                    self.own_floor[process] = self.version
            case ("change unannounced",):
                self.version += 1
            case ("pass", ms):
                self.clock.pass_time(ms)
            case ("jump", ms):
                self.clock_was_set = True
                self.clock.jump(ms)
            case ("restart", process):
                await self.memories[process].close()
                await self.collect()
                # What it was told while its store failed dies with it.
                self.own_floor[process] = 0
                self.own_denied[process].clear()
                self.open(process)
            case ("break", process):
                self.stores[process].broken = True
            case ("mend", process):
                self.stores[process].broken = False
                self.clock.pass_time(31_000)  # the store is left alone for a while after it has failed
            case ("relabel", scope):
                self.scope = scope

    async def until_it_waits(self, task: asyncio.Task[None], request: Request, *, joins: bool = False) -> None:
        """Returns when the task has ended, or waits for an outcome that is not decided yet."""
        began = asyncio.create_task(request.began.wait())
        waiting: set[asyncio.Task[Any]] = {task, began}
        async with asyncio.timeout(DEADLINE_S):
            while not task.done():
                await asyncio.wait(
                    waiting, return_when=asyncio.FIRST_COMPLETED, timeout=0.02 if self.under_way or joins else None
                )
                if began.done():
                    if not request.outcome.done():
                        break
                    waiting = {task}
                elif self.under_way and not task.done():
                    break  # it has joined one of those
        began.cancel()
        if task.done():
            task.result()
        else:
            self.under_way.append((request, task))

    async def collect(self) -> None:
        """Lets those end that had joined a request which has ended now, and looks at what became of them."""
        for _ in range(3):
            await asyncio.sleep(0)
        for request, task in list(self.under_way):
            if task.done():
                self.under_way.remove((request, task))
                if not task.cancelled():
                    task.result()


async def live_through(history: list[tuple[Any, ...]], open_store: Callable[[HandClock], Store], share: bool) -> None:
    world = World(open_store, share)
    for process in (0, 1):
        world.open(process)
    try:
        for action in history:
            await world.act(action)
        for process in (0, 1):
            for context in ("ann", "ben"):
                await world.act(("mend", process))
                await world.act(("get", process, context))
    finally:
        await world.close()


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(actions, min_size=4, max_size=30), st.booleans())
def test_no_history_breaks_a_promise_in_one_process(history: list[tuple[Any, ...]], share: bool) -> None:
    """Ours: two memories on one store in the process."""

    async def run() -> None:
        clocks: list[HandClock] = []
        store = InProcessStore(clock=lambda: clocks[-1].wall_ms)

        def open_store(clock: HandClock) -> Store:
            clocks.append(clock)
            return store

        await live_through(history, open_store, share)

    asyncio.run(run())


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(actions, min_size=4, max_size=30), st.booleans())
def test_no_history_breaks_a_promise_across_processes(history: list[tuple[Any, ...]], share: bool) -> None:
    """Ours: two memories, each with its own connection to one SQLite file, as two processes have."""
    with tempfile.TemporaryDirectory() as folder:

        def open_store(clock: HandClock) -> Store:
            return SqliteStore(f"{folder}/m.sqlite3", clock=lambda: clock.wall_ms)

        asyncio.run(live_through(history, open_store, share))


HISTORIES: dict[str, list[tuple[Any, ...]]] = {
    "overtaken": [("begin", 0, "ann"), ("change", 1), ("finish", 0, "ok"), ("get", 0, "ann"), ("get", 1, "ann")],
    "not joined": [("begin", 0, "ann"), ("change", 0), ("ask", 0, "ann", "ok"), ("finish", 0, "ok"), ("get", 1, "ann")],
    "told while broken": [
        *(("ask", 0, "ann", "ok"), ("break", 0), ("change", 0), ("mend", 0), ("get", 0, "ann"), ("get", 1, "ann")),
    ],
    "set back over a restart": [
        *(("ask", 0, "ann", "ok"), ("pass", 150_000), ("ask", 0, "ann", "fail"), ("restart", 0), ("restart", 1)),
        *(("jump", -120_000), ("get", 0, "ann"), ("jump", -3_600_000), ("get", 1, "ann"), ("jump", 3_600_000)),
        ("get", 1, "ann"),
    ],
    "set back": [("ask", 0, "ann", "ok"), ("pass", 150_000), ("jump", -120_000), ("get", 0, "ann"), ("get", 1, "ann")],
    "denied": [
        *(("ask", 0, "ann", "ok"), ("pass", 150_000), ("ask", 1, "ann", "denied"), ("ask", 0, "ann", "fail")),
        *(("ask", 1, "ben", "ok"), ("get", 0, "ann")),
    ],
    "label withdrawn": [
        *(("relabel", "public"), ("ask", 0, "ann", "ok"), ("relabel", "private"), ("refresh", 1, "ann")),
        *(("get", 0, "ben"), ("get", 1, "ben")),
    ],
}


@pytest.mark.parametrize("share", [False, True], ids=["apart", "sharing"])
@pytest.mark.parametrize("name", HISTORIES)
async def test_known_histories_keep_their_promises(name: str, share: bool, tmp_path: Any) -> None:
    """Case 65, 67, 68: the interleavings that others got wrong, each as a history of its own."""
    await live_through(
        HISTORIES[name], lambda clock: SqliteStore(tmp_path / "m.sqlite3", clock=lambda: clock.wall_ms), share
    )


def test_the_reference_would_notice() -> None:
    """Ours: the checks have teeth: each kind of broken answer fails them."""

    def answer(**members: Any) -> Recalled:
        value = {"number": 1, "version": 1, "for": "ann", "cacheScope": "private", **members}
        from outrider.protocol.freshness import Freshness, Scope

        return Recalled(json.dumps(value).encode(), Source.MEMORY, Freshness(State.FRESH, 0), Scope.PRIVATE, 0)

    def world() -> World:
        new = World(lambda clock: InProcessStore(), share=False)
        new.received[1], new.order[1] = new.clock.mono_ms, 1
        return new

    world().check(0, "ann", answer(), floor=1)
    with pytest.raises(AssertionError, match="another context"):
        world().check(0, "ben", answer(), floor=1)
    with pytest.raises(AssertionError, match="lost"):
        world().check(0, "ann", answer(), floor=2)
    aged = world()
    aged.clock.pass_time(TTL_MS)
    with pytest.raises(AssertionError, match="beyond its time"):
        aged.check(0, "ann", answer(), floor=1)
    revived = world()
    revived.seen_stale.add(1)
    with pytest.raises(AssertionError, match="fresh again"):
        revived.check(0, "ann", answer(), floor=1)
    turned_away = world()
    turned_away.own_denied[0]["ann"] = 1
    with pytest.raises(AssertionError, match="outlived"):
        turned_away.check(0, "ann", answer(), floor=1)
