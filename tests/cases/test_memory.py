"""Cases of remembering, end to end: a client with a memory against scripted servers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import outrider
from cases.expectations import OPTIONS, assert_found, options
from fakes.running import FakeHttp, FakeStdio
from fakes.scripts import NOTHING, Script, complete, error, exit_with, legacy, modern, notify, on, respond, result, tool
from outrider import DiscoveryReport, Era
from outrider.cache.memory import Memory, open_memory
from outrider.client.client import Client
from outrider.client.target import parse_target
from outrider.protocol.freshness import Policy

WITH_FLOOR = Policy(floor_ms=600_000)


@asynccontextmanager
async def remembering(path: Path, policy: Policy | None = None) -> AsyncIterator[Memory]:
    """A memory on a file, as a process of its own would open it."""
    async with open_memory(path / "memory.db", policy=policy or Policy()) as memory:
        yield memory


async def look(
    target: Any, path: Path, *, policy: Policy | None = None, refresh: bool = False, **changes: Any
) -> DiscoveryReport:
    """One discovery by a process that remembers."""
    async with remembering(path, policy) as memory:
        return await outrider.discover(target, memory=memory, refresh=refresh, options=options(**changes))


class TestEraMemory:
    async def test_a_legacy_server_is_upgraded_to_modern_only(self, fake_http: FakeHttp, tmp_path: Path) -> None:
        """Case 39: the remembered handshake is refused, the server is probed again, and the era corrected."""
        fake = fake_http(Script(*legacy()))
        assert_found(await look(fake.url, tmp_path), "legacy")
        fake.stop()
        upgraded = fake_http(Script(*modern(tools=[tool("new")])), port=fake.port)
        assert_found(await look(fake.url, tmp_path), "modern", "new")
        assert_found(await look(fake.url, tmp_path), "modern", "new")
        assert len(upgraded.messages("initialize")) == 1, "the correction was remembered"

    async def test_a_modern_server_is_downgraded_to_legacy(self, fake_http: FakeHttp, tmp_path: Path) -> None:
        """Case 39, the other way round."""
        fake = fake_http(Script(*modern()))
        assert_found(await look(fake.url, tmp_path), "modern")
        fake.stop()
        fake_http(Script(*legacy(tools=[tool("old")])), port=fake.port)
        assert_found(await look(fake.url, tmp_path), "legacy", "old")

    async def test_a_change_of_era_while_connected_is_corrected_for_safe_requests(
        self, fake_http: FakeHttp, tmp_path: Path
    ) -> None:
        """Case 39: invisibly to whoever lists."""
        fake = fake_http(Script(*modern()))
        async with remembering(tmp_path) as memory:
            client = Client(parse_target(fake.url), OPTIONS, memory=memory)
            try:
                assert len(await client.list_tools()) == 2
                fake.stop()
                missing = error(-32600, "Bad Request: Missing session ID", status=400)
                has_no_session = {"mcp-session-id": None}
                fake_http(
                    Script(
                        on("tools/list", missing, headers=has_no_session),
                        *legacy(tools=[tool("old")], session="s-1"),
                    ),
                    port=fake.port,
                )
                assert [item.name for item in (await client.list_tools()).items] == ["old"]
                assert client.era is Era.LEGACY
            finally:
                await client.close()

    async def test_the_second_contact_with_a_silent_server_asks_nothing_it_will_not_answer(
        self, fake_stdio: FakeStdio, tmp_path: Path
    ) -> None:
        """Ours: silence is waited for once; the answer to the handshake is what is remembered."""
        fake = fake_stdio(Script(on("server/discover", NOTHING), *legacy()))
        assert_found(await look(fake.command, tmp_path, probe_timeout_s=0.5), "legacy")
        assert_found(await look(fake.command, tmp_path, refresh=True), "legacy")
        assert len(fake.messages("server/discover")) == 1
        assert len(fake.messages("initialize")) == 2

    @pytest.mark.parametrize("answer", [respond(503), respond(401), respond(429)])
    async def test_what_is_no_answer_leaves_no_verdict(self, fake_http: FakeHttp, tmp_path: Path, answer: Any) -> None:
        """Case 39: nothing is remembered from an outage or a denial."""
        fake = fake_http(Script(on(None, answer, http="POST")))
        assert (await look(fake.url, tmp_path, start_timeout_s=2.0)).failure is not None
        async with remembering(tmp_path) as memory:
            client = Client(parse_target(fake.url), OPTIONS, memory=memory)
            assert client.remembering is not None
            assert await memory.era(client.remembering.peer.target) is None

    async def test_a_failed_first_start_is_not_remembered(self, fake_stdio: FakeStdio, tmp_path: Path) -> None:
        """Case 40: the second discovery tries, and finds the healthy server."""
        fake = fake_stdio(
            Script(on("server/discover", exit_with(1), spawn=1), on("initialize", exit_with(1), spawn=2), *modern())
        )
        assert (await look(fake.command, tmp_path)).failure is not None
        assert_found(await look(fake.command, tmp_path), "modern")


class TestAnswers:
    async def test_fresh_lists_cost_no_request(self, fake_http: FakeHttp, tmp_path: Path) -> None:
        """Ours, within server/utilities/caching#freshness-calculation."""
        fresh = {"ttlMs": 600_000, "cacheScope": "private"}
        fake = fake_http(
            Script(
                on("server/discover", result({**modern()[0].do[0]["result"], **fresh})),
                on("tools/list", result(complete(tools=[tool("a")], **fresh) | fresh)),
            )
        )
        assert (await look(fake.url, tmp_path)).source == "network"
        before = len(fake.received())
        again = await look(fake.url, tmp_path)
        assert_found(again, "modern", "a")
        assert again.source == "memory"
        assert len(fake.received()) == before

    async def test_a_server_that_says_nothing_is_asked_every_time_without_a_floor(
        self, fake_http: FakeHttp, tmp_path: Path
    ) -> None:
        """Case 66: ttlMs 0 or absent is stale at once; a floor is the caller's choice."""
        fake = fake_http(Script(*modern()))
        await look(fake.url, tmp_path)
        assert (await look(fake.url, tmp_path)).source == "network"
        await look(fake.url, tmp_path, policy=WITH_FLOOR)
        assert (await look(fake.url, tmp_path, policy=WITH_FLOOR)).source == "memory"

    async def test_another_credential_sees_nothing_of_the_first(self, fake_http: FakeHttp, tmp_path: Path) -> None:
        """Case 65: token A, then B, then none."""
        fake = fake_http(
            Script(
                on("tools/list", result(complete(tools=[tool("of_a")])), headers={"authorization": "Bearer A"}),
                on("tools/list", result(complete(tools=[tool("of_b")])), headers={"authorization": "Bearer B"}),
                on("tools/list", result(complete(tools=[tool("of_nobody")]))),
                *modern(),
            )
        )
        seen = []
        async with remembering(tmp_path, WITH_FLOOR) as memory:
            for headers in (
                {"Authorization": "Bearer A"},
                {"Authorization": "Bearer B"},
                {},
                {"Authorization": "Bearer A"},
            ):
                report = await outrider.discover(fake.url, headers=headers, memory=memory, options=OPTIONS)
                assert report.tools is not None
                seen.append(report.tools.items[0].name)
        assert seen == ["of_a", "of_b", "of_nobody", "of_a"]
        assert b"Bearer" not in (tmp_path / "memory.db").read_bytes()

    async def test_a_list_that_pages_for_ever_is_shown_and_not_remembered(
        self, fake_http: FakeHttp, tmp_path: Path
    ) -> None:
        """Case 49, case 111: what was cut off is no whole list."""
        fake = fake_http(Script(on("tools/list", result(complete(tools=[tool("a")], nextCursor="8"))), *modern()))
        for _ in range(2):
            report = await look(fake.url, tmp_path, policy=WITH_FLOOR)
            assert report.tools is not None
            assert not report.tools.complete
            assert [item.name for item in report.tools.items] == ["a"]
        assert len(fake.messages("tools/list")) >= 4, "asked again, because nothing was kept"

    async def test_a_failing_third_page_leaves_no_half_list(self, fake_http: FakeHttp, tmp_path: Path) -> None:
        """Case 111: partial lists are not stored as complete, and the next reading has all of it."""
        fake = fake_http(
            Script(
                on("tools/list", error(-32603, "later", status=500), params={"cursor": "p3"}, times=1),
                on("tools/list", result(complete(tools=[tool("c")])), params={"cursor": "p3"}),
                on("tools/list", result(complete(tools=[tool("b")], nextCursor="p3")), params={"cursor": "p2"}),
                on("tools/list", result(complete(tools=[tool("a")], nextCursor="p2"))),
                *modern(),
            )
        )
        first = await look(fake.url, tmp_path, policy=WITH_FLOOR)
        second = await look(fake.url, tmp_path, policy=WITH_FLOOR)
        third = await look(fake.url, tmp_path, policy=WITH_FLOOR)
        names = [[item.name for item in report.tools.items] for report in (first, second, third) if report.tools]
        assert names == [["a", "b"], ["a", "b", "c"], ["a", "b", "c"]]
        assert third.source == "memory"

    async def test_offline_shows_what_is_remembered_and_asks_nobody(
        self, fake_stdio: FakeStdio, tmp_path: Path
    ) -> None:
        """Ours: also what is stale, and says so."""
        fake = fake_stdio(Script(*legacy()))
        await look(fake.command, tmp_path)
        report = await look(fake.command, tmp_path, offline=True)
        assert_found(report, "legacy")
        assert report.source == "stale"
        assert fake.spawns == 1

    async def test_a_change_during_a_list_is_not_lost(self, fake_stdio: FakeStdio, tmp_path: Path) -> None:
        """Case 68: the old answer is returned, and the next one is asked for."""
        old = on("tools/list", notify("notifications/tools/list_changed"), result({"tools": [tool("old")]}), times=1)
        fake = fake_stdio(Script(old, *legacy(tools=[tool("new")])))
        async with remembering(tmp_path, WITH_FLOOR) as memory:
            client = Client(parse_target(fake.command), OPTIONS, memory=memory)
            try:
                assert [item.name for item in (await client.list_tools()).items] == ["old"]
                assert client.remembering is not None
                await client.remembering.settle()
                assert [item.name for item in (await client.list_tools()).items] == ["new"]
            finally:
                await client.close()
