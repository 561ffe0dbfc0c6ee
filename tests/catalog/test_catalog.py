"""Many servers as one, against scripted servers in processes of their own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fakes.running import FakeHttp, FakeStdio
from fakes.scripts import (
    HANG,
    LINGER,
    STREAM,
    Script,
    complete,
    error,
    exit_with,
    gate,
    legacy,
    modern,
    notify,
    on,
    result,
    send,
    tool,
)
from outrider.catalog.catalog import Catalog, CatalogOptions
from outrider.catalog.member import ServerConfig
from outrider.catalog.snapshot import ServerState, UnknownTool
from outrider.client.target import ClientOptions, parse_target
from outrider.errors import ConfigError, LocalProtocolError

DEADLINE_S = 60.0
CLIENT = ClientOptions(
    start_timeout_s=20.0, probe_timeout_s=1.0, request_timeout_s=20.0, list_timeout_s=20.0, shutdown_timeout_s=1.0
)


@asynccontextmanager
async def opened(servers: Any, path: Path | str = "memory:", **options: Any) -> AsyncIterator[Catalog]:
    """A catalog whose every wait ends; `options` are CatalogOptions."""
    async with asyncio.timeout(DEADLINE_S):
        async with Catalog(servers, options=CatalogOptions(**{"client": CLIENT, "memory": path, **options})) as catalog:
            yield catalog


async def changed(catalog: Catalog, fits: Any) -> None:
    """Wait until a snapshot fits."""
    seen = asyncio.Event()
    stop = catalog.watch(lambda _: seen.set())
    try:
        while not fits(catalog.snapshot):
            seen.clear()
            await seen.wait()
    finally:
        stop()


def names(catalog: Catalog) -> list[str]:
    return [str(tool.id) for tool in catalog.tools]


class TestIsolation:
    async def test_a_silent_and_a_dead_server_delay_and_hide_nothing(self, fake_stdio: FakeStdio) -> None:
        """Case 23: partial results, and a state with a reason for each server."""
        good, silent, dead = (
            fake_stdio(Script(*modern())),
            fake_stdio(Script(start=[LINGER])),
            fake_stdio(Script(start=[exit_with(1)])),
        )
        async with opened({"good": good.command, "silent": silent.command, "dead": dead.command}) as catalog:
            await changed(catalog, lambda snapshot: snapshot.servers["good"].state is ServerState.READY)
            assert names(catalog) == ["good/add", "good/echo"]
            assert catalog.servers["silent"].state is ServerState.CONNECTING
            await changed(catalog, lambda snapshot: snapshot.servers["dead"].state is ServerState.FAILED)
            failure = catalog.servers["dead"].failure
            assert failure is not None
            assert failure.kind == "ended"
            assert failure.exit_code == 1
        for fake in (good, silent, dead):
            fake.assert_nothing_runs()

    async def test_same_tool_name_on_two_servers_reaches_the_right_one(self, fake_stdio: FakeStdio) -> None:
        """Case 24: routed by server key and original name."""
        a, b = (fake_stdio(Script(*modern(tools=[tool("search")]))) for _ in range(2))
        async with opened({"a": a.command, "b": b.command}) as catalog:
            await catalog.ready()
            await catalog.call("b/search", {"q": 1})
        assert len(b.messages("tools/call")) == 1
        assert not a.messages("tools/call")

    async def test_names_that_differ_only_in_punctuation_get_keys_of_their_own(self, fake_stdio: FakeStdio) -> None:
        """Case 77."""
        a, b = (fake_stdio(Script(*modern(tools=[tool("x")]))) for _ in range(2))
        async with opened({"a-b": a.command, "a_b": b.command}) as catalog:
            await catalog.ready()
            assert names(catalog) == ["a-b/x", "a_b/x"]
            await catalog.call("a_b/x")
        assert len(b.messages("tools/call")) == 1
        assert not a.messages("tools/call")

    async def test_one_malformed_tool_is_quarantined_by_name(self, fake_stdio: FakeStdio) -> None:
        """Case 30."""
        good = [tool(f"t{number}") for number in range(9)]
        fake = fake_stdio(Script(*modern(tools=[*good, {"name": "bad", "inputSchema": None}])))
        async with opened({"a": fake.command}) as catalog:
            await catalog.ready()
            assert len(catalog.tools) == 9
            assert any("bad" in warning for warning in catalog.servers["a"].warnings)

    async def test_denied_tools_are_neither_shown_nor_called(self, fake_stdio: FakeStdio) -> None:
        """Ours: allow and deny lists of the configuration hold for calls too."""
        fake = fake_stdio(Script(*modern()))
        config = ServerConfig(
            "a", lambda: parse_target(fake.command), allow=("add", "echo", "Echo"), deny=("add", "ad")
        )
        async with opened([config]) as catalog:
            await catalog.ready()
            assert names(catalog) == ["a/echo"]
            for name in ("a/add", "add"):
                with pytest.raises(
                    UnknownTool, match="the tool lists of the configuration or the lock file withhold it"
                ):
                    await catalog.call(name)
            with pytest.raises(UnknownTool) as caught:
                await catalog.call("a/none")
            assert caught.value.unseen == ""
            assert catalog.servers["a"].warnings == (
                "the configuration names 'Echo' as a tool to offer, and the server has none of that name",
                "the configuration names 'ad' as a tool to leave out, and the server has none of that name",
            )
        assert not fake.messages("tools/call")


@pytest.mark.parametrize("target", [[], (), None, 5, b"x", {}, "", [["x"]], {"url": "nonsense"}], ids=str)
def test_what_is_no_server_in_code_is_a_configuration_error(target: Any) -> None:
    """Ours: it names the server, whatever was given for it."""
    with pytest.raises(ConfigError, match="the server 'a' cannot be used: it"):
        Catalog({"a": target})


class TestMemory:
    async def test_a_second_start_starts_no_process(self, fake_stdio: FakeStdio, tmp_path: Path) -> None:
        """Ours: what is remembered and fresh is there at once, of both eras."""
        fakes = {"a": fake_stdio(Script(*modern())), "b": fake_stdio(Script(*legacy()))}
        servers = {key: fake.command for key, fake in fakes.items()}
        async with opened(servers, tmp_path / "m.db") as catalog:
            await catalog.ready()
            first = names(catalog)
        async with opened(servers, tmp_path / "m.db") as catalog:
            assert names(catalog) == first != []
            assert {view.state for view in catalog.servers.values()} == {ServerState.REMEMBERED}
            assert not catalog.snapshot.pending
        assert [fake.spawns for fake in fakes.values()] == [1, 1]

    async def test_a_remembered_server_is_started_by_a_call(self, fake_stdio: FakeStdio, tmp_path: Path) -> None:
        """Ours: found while stopped, started when called."""
        fake = fake_stdio(Script(*legacy()))
        async with opened({"a": fake.command}, tmp_path / "m.db") as catalog:
            await catalog.ready()
        async with opened({"a": fake.command}, tmp_path / "m.db") as catalog:
            assert (await catalog.call("a/echo")).text == "called echo"
        assert fake.spawns == 2
        assert fake.messages("server/discover") == fake.messages("server/discover")[:1], "the era was known"
        fake.assert_nothing_runs()

    async def test_a_server_that_is_down_is_still_known(self, fake_http: FakeHttp, tmp_path: Path) -> None:
        """Case 67: the last good list is kept, marked with why."""
        fake = fake_http(Script(*modern()))
        async with opened({"a": fake.url}, tmp_path / "m.db", floor_s=0) as catalog:
            await catalog.ready()
        fake.stop()
        async with opened({"a": fake.url}, tmp_path / "m.db", floor_s=0) as catalog:
            assert names(catalog) == ["a/add", "a/echo"]
            await catalog.ready()
            assert names(catalog) == ["a/add", "a/echo"]
            report = catalog.servers["a"].report
            assert report is not None
            assert report.source == "stale"

    async def test_an_edited_configuration_is_another_server(self, fake_http: FakeHttp, tmp_path: Path) -> None:
        """Case 114: nothing of the old target is shown for the new one."""
        old = fake_http(Script(*modern(tools=[tool("old")])))
        new = fake_http(Script(*modern(tools=[tool("new")])))
        async with opened({"a": old.url}, tmp_path / "m.db") as catalog:
            await catalog.ready()
            await catalog.reconfigure("a", new.url)
            await catalog.ready()
            assert names(catalog) == ["a/new"]


class TestChanges:
    async def test_an_announced_change_rebuilds_list_and_search(self, fake_stdio: FakeStdio) -> None:
        """Case 27, case 64: also when the server never said that it would announce changes."""
        fake = fake_stdio(
            Script(
                on("tools/list", result({"tools": [tool("before")]}), times=1),
                on("tools/call", notify("notifications/tools/list_changed"), result({"content": []})),
                *legacy(tools=[tool("after")]),
            )
        )
        async with opened({"a": fake.command}) as catalog:
            await catalog.ready()
            assert [hit.document.name for hit in catalog.search("before").hits] == ["before"]
            await catalog.call("a/before")
            await changed(catalog, lambda snapshot: [t.id.name for t in snapshot.tools] == ["after"])
            assert [hit.document.name for hit in catalog.search("after").hits] == ["after"]
            assert not [hit for hit in catalog.search("before").hits if hit.document.name == "before"]

    async def test_a_modern_server_is_listened_to(self, fake_http: FakeHttp) -> None:
        """Case 28: one listen stream, whose acknowledgment comes first."""
        capabilities = {"tools": {"listChanged": True}}
        acknowledged = send(
            {
                "jsonrpc": "2.0",
                "method": "notifications/subscriptions/acknowledged",
                "params": {
                    "_meta": {"io.modelcontextprotocol/subscriptionId": "$id"},
                    "notifications": {"toolsListChanged": True},
                },
            }
        )
        change = send(
            {
                "jsonrpc": "2.0",
                "method": "notifications/tools/list_changed",
                "params": {"_meta": {"io.modelcontextprotocol/subscriptionId": "$id"}},
            }
        )
        fake = fake_http(
            Script(
                on("subscriptions/listen", STREAM, acknowledged, gate("change"), change, HANG),
                on("tools/list", result(complete(tools=[tool("before")])), times=1),
                *modern(tools=[tool("after")], capabilities=capabilities),
            )
        )
        async with opened({"a": fake.url}) as catalog:
            await catalog.ready()
            await fake.wait_for("received", "subscriptions/listen")
            assert names(catalog) == ["a/before"]
            fake.open_gate("change")
            await changed(catalog, lambda snapshot: [t.id.name for t in snapshot.tools] == ["after"])

    async def test_a_server_that_cannot_deliver_what_it_announces_stays_usable(self, fake_http: FakeHttp) -> None:
        """Case 117: the refused subscription is not tried again and again."""
        fake = fake_http(
            Script(
                on("subscriptions/listen", error(-32601, "Method not found", status=404)),
                *modern(capabilities={"tools": {"listChanged": True}}),
            )
        )
        async with opened({"a": fake.url}) as catalog:
            await catalog.ready()
            await fake.wait_for("received", "subscriptions/listen")
            assert (await catalog.call("a/add")).text == "called add"
            assert catalog.servers["a"].state is ServerState.READY
        assert len(fake.messages("subscriptions/listen")) == 1

    async def test_a_storm_of_announcements_costs_few_lists(self, fake_stdio: FakeStdio) -> None:
        """Ours: one refresh at a time, and one more for whatever came meanwhile."""
        storm = [notify("notifications/tools/list_changed")] * 300
        fake = fake_stdio(Script(on("tools/call", *storm, result({"content": []})), *legacy()))
        async with opened({"a": fake.command}) as catalog:
            await catalog.ready()
            await catalog.call("a/echo")
            await catalog.refresh()
        assert len(fake.messages("tools/list")) < 10

    async def test_polling_finds_what_nobody_announces(self, fake_stdio: FakeStdio) -> None:
        """Spec server/utilities/caching#freshness-calculation: only if a caller asks for it."""
        fake = fake_stdio(
            Script(on("tools/list", result({"tools": [tool("before")]}), times=1), *legacy(tools=[tool("after")]))
        )
        async with opened({"a": fake.command}, poll_s=0.05) as catalog:
            await changed(catalog, lambda snapshot: [t.id.name for t in snapshot.tools] == ["after"])

    async def test_an_old_snapshot_never_changes(self, fake_stdio: FakeStdio) -> None:
        """Ours: a reader keeps a consistent world."""
        fake = fake_stdio(
            Script(on("tools/list", result({"tools": [tool("before")]}), times=1), *legacy(tools=[tool("after")]))
        )
        async with opened({"a": fake.command}) as catalog:
            old = await catalog.ready()
            new = await catalog.refresh()
            assert [t.id.name for t in old.tools] == ["before"]
            assert [t.id.name for t in new.tools] == ["after"]
            assert new.generation > old.generation


class TestSearchAndCalls:
    async def test_a_search_during_the_start_waits_and_says_who_is_missing(self, fake_stdio: FakeStdio) -> None:
        """Case 60: "no such tool" is never said of a server that has not answered."""
        slow = fake_stdio(Script(on("tools/list", gate("go"), result(complete(tools=[tool("late_tool")]))), *modern()))
        async with opened({"slow": slow.command}) as catalog:
            found, snapshot = await catalog.find("late tool", wait_s=0.2)
            assert not found.hits
            assert snapshot.pending == ("slow",)
            slow.open_gate("go")
            found, snapshot = await catalog.find("late tool", wait_s=DEADLINE_S)
            assert [hit.document.name for hit in found.hits] == ["late_tool"]
            assert not snapshot.pending

    async def test_a_tool_that_has_appeared_since_is_found_by_its_name(self, fake_stdio: FakeStdio) -> None:
        """Case 120: unknown names are looked for once more."""
        fake = fake_stdio(
            Script(
                on("tools/list", result({"tools": [tool("old")]}), times=1),
                *legacy(tools=[tool("old"), tool("brand_new")]),
            )
        )
        async with opened({"a": fake.command}) as catalog:
            await catalog.ready()
            assert (await catalog.call("a/brand_new")).text == "called brand_new"

    async def test_a_disabled_server_is_shown_and_not_started(self, fake_stdio: FakeStdio) -> None:
        """Ours: configured and switched off is a state of its own."""
        fake = fake_stdio(Script(*modern()))
        command, *args = fake.command
        async with opened({"a": {"command": command, "args": args, "disabled": True}}) as catalog:
            await catalog.ready()
            assert catalog.servers["a"].state is ServerState.DISABLED
            with pytest.raises(LocalProtocolError, match="disabled"):
                await catalog.read_resource("a", "x://y")
        assert fake.spawns == 0

    async def test_a_missing_variable_costs_its_own_server_only(
        self, fake_stdio: FakeStdio, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Case 41: named in the message."""
        monkeypatch.delenv("OUTRIDER_TEST_UNSET", raising=False)
        fake = fake_stdio(Script(*modern()))
        needy = {"command": "x", "env": {"K": "${OUTRIDER_TEST_UNSET}"}}
        async with opened({"good": fake.command, "needy": needy}) as catalog:
            await catalog.ready()
            failure = catalog.servers["needy"].failure
            assert failure is not None
            assert "OUTRIDER_TEST_UNSET" in failure.message
            assert len(catalog.tools) == 2

    async def test_an_unknown_server_is_answered_with_near_names(self, fake_stdio: FakeStdio) -> None:
        """Ours."""
        fake = fake_stdio(Script(*modern()))
        async with opened({"weather": fake.command}) as catalog:
            with pytest.raises(ConfigError) as caught:
                await catalog.read_resource("wether", "x://y")
            assert "weather" in caught.value.hint


class TestLife:
    async def test_an_idle_process_ends_and_its_tools_stay(self, fake_stdio: FakeStdio) -> None:
        """Ours: nobody pays for fifty idle processes."""
        fake = fake_stdio(Script(*modern()))
        async with opened({"a": fake.command}, idle_s=0.1) as catalog:
            await catalog.ready()
            await fake.wait_for("eof")
            await changed(catalog, lambda snapshot: snapshot.servers["a"].state is ServerState.REMEMBERED)
            assert len(catalog.tools) == 2
            assert (await catalog.call("a/add")).text == "called add"
        assert fake.spawns == 2

    async def test_a_first_start_that_fails_is_tried_again(self, fake_stdio: FakeStdio) -> None:
        """Case 40: a transient failure is retried within seconds, without being asked."""
        failing = on("server/discover", exit_with(1), spawn=1)
        failing_too = on("initialize", exit_with(1), spawn=2)
        fake = fake_stdio(Script(failing, failing_too, *modern()))
        async with opened({"a": fake.command}) as catalog:
            await changed(catalog, lambda snapshot: snapshot.servers["a"].state is ServerState.FAILED)
            assert catalog.servers["a"].next_try_s is not None
            await changed(catalog, lambda snapshot: snapshot.servers["a"].state is ServerState.READY)

    async def test_a_missing_command_is_not_tried_again(self) -> None:
        """Case 40: permanent failures wait for a refresh by hand."""
        async with opened({"a": ["outrider-test-no-such-command"]}) as catalog:
            await catalog.ready()
            view = catalog.servers["a"]
            assert view.state is ServerState.FAILED
            assert view.next_try_s is None

    async def test_servers_come_and_go_while_open(self, fake_stdio: FakeStdio) -> None:
        """Ours: add and remove are live, and a removed server's process ends."""
        a, b = fake_stdio(Script(*modern())), fake_stdio(Script(*modern(tools=[tool("other")])))
        async with opened({"a": a.command}) as catalog:
            await catalog.ready()
            await catalog.add("b", b.command)
            await catalog.ready()
            assert names(catalog) == ["a/add", "a/echo", "b/other"]
            await catalog.remove("a")
            assert names(catalog) == ["b/other"]
            a.assert_nothing_runs()

    async def test_closing_from_another_task_in_the_middle_of_everything(self, fake_stdio: FakeStdio) -> None:
        """Case 132: errors are values, close is idempotent, nothing is left."""
        fakes = [fake_stdio(Script(on("tools/list", LINGER), *modern())) for _ in range(4)]
        servers = {f"s{number}": fake.command for number, fake in enumerate(fakes)}
        before = len(asyncio.all_tasks())
        async with opened(servers) as catalog:
            for fake in fakes:
                await fake.wait_for("received", "tools/list")
            await asyncio.gather(catalog.close(), catalog.close())
        assert len(asyncio.all_tasks()) == before
        for fake in fakes:
            fake.assert_nothing_runs()

    async def test_openings_and_closings_leave_no_descriptor(self, fake_stdio: FakeStdio) -> None:
        """Case 54: counted, not believed."""
        fake = fake_stdio(Script(*modern()))
        async with opened({"a": fake.command}) as catalog:
            await catalog.ready()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            async with opened({"a": fake.command}) as catalog:
                await catalog.ready()
        assert len(os.listdir("/proc/self/fd")) <= before + 1
        fake.assert_nothing_runs()
