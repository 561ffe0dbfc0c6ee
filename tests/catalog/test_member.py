"""When one server is asked, watched, tried again and put to rest, against scripted servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fakes.running import FakeHttp, FakeStdio
from fakes.scripts import (
    HANG,
    NOTHING,
    STREAM,
    Script,
    complete,
    error,
    exit_with,
    gate,
    legacy,
    modern,
    on,
    respond,
    result,
    send,
    tool,
)
from outrider.cache.memory import open_memory
from outrider.catalog import member as module
from outrider.catalog.catalog import Catalog, CatalogOptions
from outrider.catalog.member import Member, ServerConfig
from outrider.catalog.snapshot import ServerState, ServerView
from outrider.client.target import ClientOptions, parse_target

DEADLINE_S = 90.0
CLIENT = ClientOptions(
    start_timeout_s=20.0, probe_timeout_s=5.0, request_timeout_s=20.0, list_timeout_s=20.0, shutdown_timeout_s=5.0
)
ANNOUNCES = {"tools": {"listChanged": True}}
SUBSCRIPTION = {"_meta": {"io.modelcontextprotocol/subscriptionId": "$id"}}
ACKNOWLEDGED = send(
    {
        "jsonrpc": "2.0",
        "method": "notifications/subscriptions/acknowledged",
        "params": {**SUBSCRIPTION, "notifications": {"toolsListChanged": True}},
    }
)
CHANGED = send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": SUBSCRIPTION})


class Watched:
    """A member, and everything that it has published."""

    def __init__(self) -> None:
        self.views: list[ServerView] = []
        self.member: Member
        self._changed = asyncio.Event()

    def publish(self, view: ServerView) -> None:
        self.views.append(view)
        self._changed.set()

    async def until(self, fits: Callable[[ServerView], bool], count: int = 1) -> None:
        """Wait until so many of the published views fit."""
        while sum(map(fits, self.views)) < count:
            self._changed.clear()
            await self._changed.wait()

    @property
    def names(self) -> list[str]:
        return [tool.name for tool in self.member.view.tools]


@asynccontextmanager
async def member(target: str | list[str], *, client: ClientOptions = CLIENT, **how: Any) -> AsyncIterator[Watched]:
    """One server with a memory of its own; every wait ends."""
    watched = Watched()
    settings = {"idle_s": 1000.0, "watch": True, "poll_s": None, **how}
    async with asyncio.timeout(DEADLINE_S), open_memory("memory:") as memory:
        watched.member = Member(
            ServerConfig("a", lambda: parse_target(target)),
            client,
            memory,
            gate=asyncio.Semaphore(1),
            publish=watched.publish,
            **settings,
        )
        try:
            yield watched
        finally:
            await watched.member.close()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long whoever listens would pause; it does not. Chance always takes the longest."""
    asked: list[float] = []
    really = asyncio.sleep

    async def sleep(delay_s: float, result: Any = None) -> Any:
        task = asyncio.current_task()
        if task is not None and task.get_name().startswith("outrider watch"):
            asked.append(delay_s)
            delay_s = 0
        return await really(delay_s, result)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(module, "random", SimpleNamespace(uniform=lambda low, high: high, random=lambda: 0.5))
    return asked


def changing(*first: Any) -> Script:
    """A modern server that announces changes; its list is another one from the second time on."""
    return Script(
        *first,
        on("tools/list", result(complete(tools=[tool("before")])), times=1),
        *modern(tools=[tool("after")], capabilities=ANNOUNCES),
    )


class TestLists:
    async def test_a_list_that_could_not_be_had_anew_is_kept_and_marked(self, fake_http: FakeHttp) -> None:
        """Case 67: what was remembered stays, as stale and with the reason; the server itself has not failed."""
        listed = on("tools/list", result(complete(tools=[tool("before")])), times=1)
        fake = fake_http(Script(listed, on("tools/list", error(-32603, "db down")), *modern()))
        async with member(fake.url, watch=False) as watched:
            await watched.member.refresh_soon()
            assert watched.names == ["before"]
            await watched.member.refresh_soon(force=True)
            view = watched.member.view
            assert (watched.names, view.state, view.failure) == (["before"], ServerState.REMEMBERED, None)
            assert view.warnings == (
                "tools/list failed: the server answered error -32603: db down; what is remembered is shown",
            )
            assert view.report is not None
            assert view.report.source == "stale"


class TestListening:
    async def test_a_stream_that_is_cut_each_time_is_opened_ever_more_rarely(
        self, fake_http: FakeHttp, pauses: list[float]
    ) -> None:
        """Case 115: back-off up to a cap; the list is fetched after the gap; the server stays usable."""
        fake = fake_http(changing(on("subscriptions/listen", STREAM, ACKNOWLEDGED)))
        async with member(fake.url) as watched:
            await watched.member.refresh_soon()
            await fake.wait_for("received", "subscriptions/listen", count=11)
            assert pauses[:10] == [3, 6, 12, 24, 48, 96, 192, 384, 450, 450]
            await watched.until(lambda view: [tool.name for tool in view.tools] == ["after"])
            answer = await watched.member.use(lambda client: client.call_tool("after", {}))
            assert answer.text == "called after"
        assert not [view for view in watched.views if view.state is ServerState.FAILED]

    async def test_a_stream_that_lived_long_is_opened_again_soon(
        self, fake_http: FakeHttp, pauses: list[float], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Case 115: a balancer that cuts each stream for its age is no reason to listen more rarely."""
        monkeypatch.setattr(module, "_LASTING_STREAM_S", -1.0)
        fake = fake_http(changing(on("subscriptions/listen", STREAM, ACKNOWLEDGED)))
        async with member(fake.url) as watched:
            await watched.member.refresh_soon()
            await fake.wait_for("received", "subscriptions/listen", count=6)
            assert pauses[:5] == [3] * 5

    @pytest.mark.parametrize(
        "second",
        [(respond(503),), (STREAM, ACKNOWLEDGED, result({"resultType": "complete", **SUBSCRIPTION}))],
        ids=["503", "graceful close"],
    )
    async def test_one_refusal_or_a_graceful_end_is_not_the_end(
        self, fake_http: FakeHttp, pauses: list[float], second: tuple[Any, ...]
    ) -> None:
        """Case 115, subscriptions#graceful-closure: the third stream tells the change."""
        fake = fake_http(
            Script(
                on("subscriptions/listen", STREAM, ACKNOWLEDGED, times=1),
                on("subscriptions/listen", *second, times=1),
                on("subscriptions/listen", STREAM, ACKNOWLEDGED, gate("change"), CHANGED, HANG),
                on("tools/list", gate("more"), result(complete(tools=[tool("last")])), after="tools/call"),
                *modern(capabilities=ANNOUNCES),
            )
        )
        async with member(fake.url) as watched:
            await watched.member.refresh_soon()
            await fake.wait_for("received", "subscriptions/listen", count=3)
            await watched.member.use(lambda client: client.call_tool("add", {}))
            fake.open_gate("more", 20)
            fake.open_gate("change")
            await watched.until(lambda view: [tool.name for tool in view.tools] == ["last"])
            assert watched.member.view.state is not ServerState.FAILED
        assert len(fake.messages("subscriptions/listen")) == 3


class TestTryingAgain:
    async def test_failures_are_tried_again_ever_more_rarely(
        self, fake_stdio: FakeStdio, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Case 40: the wait doubles up to a cap, and a view says how long it is."""
        monkeypatch.setattr(module, "_FIRST_RETRY_S", 0.001)
        monkeypatch.setattr(module, "_LAST_RETRY_S", 0.004)
        monkeypatch.setattr(module, "random", SimpleNamespace(uniform=lambda low, high: 1.0))
        fake = fake_stdio(Script(start=[exit_with(3)]))
        async with member(fake.command) as watched:
            watched.member.refresh_soon()
            await watched.until(lambda view: view.state is ServerState.FAILED, count=5)
        waits = [view.next_try_s for view in watched.views if view.state is ServerState.FAILED]
        assert waits[:5] == [0.001, 0.002, 0.004, 0.004, 0.004]

    async def test_a_refresh_by_hand_does_not_wait_for_the_next_try(
        self, fake_stdio: FakeStdio, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Ours: and closing ends the waiting; nothing is started afterwards."""
        monkeypatch.setattr(module, "_FIRST_RETRY_S", 10_000.0)
        fake = fake_stdio(Script(start=[exit_with(3)]))
        async with member(fake.command) as watched:
            await watched.member.refresh_soon()
            spawns = fake.spawns
            await watched.member.refresh_soon(force=True)
            assert fake.spawns == 2 * spawns
            assert watched.member.view.next_try_s is not None
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert fake.spawns == 2 * spawns

    async def test_a_missing_credential_is_not_tried_again(self, fake_http: FakeHttp) -> None:
        """Case 40: only a person can help."""
        fake = fake_http(Script(on(None, respond(401, headers={"WWW-Authenticate": "Bearer"}))))
        async with member(fake.url) as watched:
            await watched.member.refresh_soon()
            assert watched.member.view.state is ServerState.FAILED
            assert watched.member.view.next_try_s is None

    async def test_a_list_that_was_late_is_asked_for_again(
        self, fake_stdio: FakeStdio, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Case 34: the server is ready meanwhile, and does not stay without tools for ever."""
        monkeypatch.setattr(module, "_FIRST_RETRY_S", 0.001)
        fake = fake_stdio(Script(on("tools/list", NOTHING, times=1), *legacy()))
        limits = ClientOptions(list_timeout_s=0.5, probe_timeout_s=5.0, start_timeout_s=20.0)
        async with member(fake.command, client=limits) as watched:
            await watched.member.refresh_soon()
            assert watched.member.view.state is ServerState.READY
            assert any("tools/list" in warning for warning in watched.member.view.warnings)
            await watched.until(lambda view: len(view.tools) == 2)
        assert fake.spawns == 1

    async def test_a_list_that_is_late_once_does_not_hide_what_is_known(self, fake_stdio: FakeStdio) -> None:
        """Case 34: the tools of before stay, with a warning."""
        fake = fake_stdio(
            Script(
                on("tools/list", result({"tools": [tool("known")]}), times=1),
                on("tools/list", NOTHING),
                *legacy(),
            )
        )
        limits = ClientOptions(list_timeout_s=0.5, probe_timeout_s=5.0, start_timeout_s=20.0)
        async with member(fake.command, client=limits) as watched:
            await watched.member.refresh_soon()
            await watched.member.refresh_soon(force=True)
            assert watched.names == ["known"]


class TestPolling:
    async def test_polls_are_rarer_while_nothing_changes(
        self, fake_stdio: FakeStdio, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Spec server/utilities/caching#freshness-calculation (MUST): a change starts it anew."""
        rounds: list[int] = []

        def delay(interval_ms: int, *, quiet_rounds: int, spread: float) -> int:
            assert interval_ms == 7000
            assert 0 <= spread < 1
            rounds.append(quiet_rounds)
            return 0

        monkeypatch.setattr(module, "poll_delay_ms", delay)
        fake = fake_stdio(
            Script(on("tools/list", result({"tools": [tool("before")]}), times=3), *legacy(tools=[tool("after")]))
        )
        async with member(fake.command, poll_s=7.0) as watched:
            watched.member.refresh_soon()
            await fake.wait_for("received", "tools/list", count=6)
            assert watched.names == ["after"]
        assert rounds[:5] == [0, 1, 2, 0, 1]

    async def test_nobody_polls_unasked(self, fake_stdio: FakeStdio, monkeypatch: pytest.MonkeyPatch) -> None:
        """Ours."""

        def delay(*_: Any, **__: Any) -> int:
            raise AssertionError("polled")

        monkeypatch.setattr(module, "poll_delay_ms", delay)
        async with member(fake_stdio(Script(*modern())).command) as watched:
            await watched.member.refresh_soon()
            assert watched.member.view.state is ServerState.READY


class TestResting:
    async def test_a_process_in_use_is_never_put_to_rest(self, fake_stdio: FakeStdio) -> None:
        """Ours: however short the idle time; the next use starts it anew."""
        fake = fake_stdio(Script(on("tools/call", gate("go"), result({"content": []})), *legacy()))
        async with member(fake.command, idle_s=0.0) as watched:
            await watched.member.refresh_soon()
            await watched.until(lambda view: view.state is ServerState.REMEMBERED)
            await fake.wait_for("eof")
            call = asyncio.create_task(watched.member.use(lambda client: client.call_tool("add", {})))
            await fake.wait_for("received", "tools/call")
            # A short use beside the long one ends, and its idle clock runs out.
            await watched.member.use(lambda client: client.discover())
            assert len(fake.log("eof")) == 1
            fake.open_gate("go")
            await call
            await fake.wait_for("eof", count=2)
            assert watched.names == ["add", "echo"]
        assert fake.spawns == 2

    async def test_resting_ends_the_listening_too(self, fake_http: FakeHttp) -> None:
        """Ours: a stream that nobody needs is closed, and it is not opened again."""
        fake = fake_http(
            Script(on("subscriptions/listen", STREAM, ACKNOWLEDGED, HANG), *modern(capabilities=ANNOUNCES))
        )
        async with member(fake.url, idle_s=0.5) as watched:
            await watched.member.refresh_soon()
            await watched.until(lambda view: view.state is ServerState.REMEMBERED)
            assert len(fake.messages("subscriptions/listen")) <= 1
            assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("outrider watch")]


class TestBackEndsThatComeLate:
    async def test_tools_that_come_after_the_first_list_are_found(self, fake_stdio: FakeStdio, tmp_path: Path) -> None:
        """Case 29: two tools at first, thirty later, nothing announced, ttl 0: listed again at the next use."""
        early, late = [tool("status"), tool("login")], [tool(f"real_{number}") for number in range(30)]
        fake = fake_stdio(
            Script(on("tools/list", result(complete(tools=early)), spawn=1, times=1), *modern(tools=late))
        )
        options = CatalogOptions(client=CLIENT, memory=tmp_path / "m.db", floor_s=0)
        async with asyncio.timeout(DEADLINE_S):
            async with Catalog({"a": fake.command}, options=options) as catalog:
                await catalog.ready()
                assert len(catalog.tools) == 2
                assert (await catalog.call("a/real_7")).text == "called real_7"
                assert len(catalog.tools) == 30
        again = fake_stdio(Script(on("tools/list", result(complete(tools=early)), spawn=1), *modern(tools=late)))
        async with asyncio.timeout(DEADLINE_S):
            async with Catalog({"b": again.command}, options=options) as catalog:
                await catalog.ready()
            async with Catalog({"b": again.command}, options=options) as catalog:
                assert len(catalog.tools) == 2, "what is remembered is there at once"
                await catalog.ready()
                assert len(catalog.tools) == 30
