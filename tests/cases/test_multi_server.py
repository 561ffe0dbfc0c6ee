"""Many servers and long lists, as far as one client meets them: pages, changes, subscriptions, patience."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import outrider
from cases.expectations import OPTIONS, assert_found, look_at, options, tool_names
from fakes.running import Fake, FakeHttp, FakeStdio, header
from fakes.scripts import (
    HANG,
    HANG_UP,
    NOTHING,
    RESET,
    STREAM,
    Action,
    Rule,
    Script,
    complete,
    defer,
    error,
    exit_with,
    gate,
    legacy,
    modern,
    notify,
    on,
    respond,
    result,
    run,
    tool,
)
from outrider import Change, OutriderError, PeerError, TimedOut, TransportError

CHANGED = "notifications/tools/list_changed"


def pages(*rules: Rule) -> Script:
    """A modern server with its own `tools/list`."""
    return Script(*rules, *modern())


def page(*names: str, **members: Any) -> Action:
    """One page of tools."""
    return result(complete(tools=[tool(name) for name in names], **members))


def at(cursor: str | None, *actions: Action, **conditions: Any) -> Rule:
    """The page at a cursor."""
    return on("tools/list", *actions, params=None if cursor is None else {"cursor": cursor}, **conditions)


class TestPages:
    async def test_every_page_is_read(self, fake_stdio: FakeStdio) -> None:
        """Case 48: 50 + 50 + 1."""
        names = [f"t{n:03}" for n in range(101)]
        fake = fake_stdio(
            pages(
                at("p2", page(*names[50:100], nextCursor="p3")),
                at("p3", page(names[100])),
                at(None, page(*names[:50], nextCursor="p2")),
            )
        )
        report = await look_at(fake.command)
        assert_found(report, "modern", *names)
        assert report.tools is not None
        assert report.tools.complete
        assert [message["params"].get("cursor") for message in fake.messages("tools/list")] == [None, "p2", "p3"]

    async def test_the_same_page_for_ever(self, fake_stdio: FakeStdio) -> None:
        """Case 49: stopped soon; what was gathered is kept, each tool once, with a warning."""
        fake = fake_stdio(pages(at(None, page("a", "b", nextCursor="8"))))
        report = await look_at(fake.command)
        assert_found(report, "modern", "a", "b")
        assert report.tools is not None
        assert not report.tools.complete
        assert any("anything new" in warning for warning in report.warnings)
        assert len(fake.received("tools/list")) <= 7

    @pytest.mark.parametrize("cursors", [("B", "A"), ("B", "C", "A")], ids=["two", "three"])
    async def test_cursors_in_a_circle(self, fake_stdio: FakeStdio, cursors: tuple[str, ...]) -> None:
        """Case 49: A, B, A …."""
        rules = [
            at(at_cursor, page(f"at-{at_cursor}", nextCursor=to))
            for at_cursor, to in zip(("A", *cursors), cursors, strict=False)
        ]
        fake = fake_stdio(pages(*rules, at(None, page("first", nextCursor="A"))))
        report = await look_at(fake.command)
        assert report.tools is not None
        assert tool_names(report)[0] == "first"
        assert len(set(tool_names(report))) == len(tool_names(report)) == len(cursors) + 1
        assert len(fake.received("tools/list")) <= 12

    async def test_a_fresh_cursor_for_ever(self, fake_stdio: FakeStdio) -> None:
        """Case 49: pages without anything new are no progress, whatever their cursor says."""
        fake = fake_stdio(pages(at(None, page("a", nextCursor="random-$count"))))
        report = await look_at(fake.command)
        assert_found(report, "modern", "a")
        assert len(fake.received("tools/list")) <= 12

    async def test_new_tools_for_ever(self, fake_stdio: FakeStdio) -> None:
        """Case 49: the caps on pages and items hold."""
        fake = fake_stdio(pages(at(None, page("tool-$count", "more-$count", nextCursor="page-$count"))))
        report = await look_at(fake.command, max_list_pages=20)
        assert report.tools is not None
        assert len(report.tools) == 40
        assert not report.tools.complete
        assert any("20 pages" in warning for warning in report.warnings)
        report = await look_at(fake.command, max_list_items=15)
        assert report.tools is not None
        assert len(report.tools) == 15

    async def test_a_list_that_takes_for_ever(self, fake_stdio: FakeStdio) -> None:
        """Case 49: the cap on time; what was gathered is kept."""
        fake = fake_stdio(pages(at("p2", NOTHING), at(None, page("a", nextCursor="p2"))))
        report = await look_at(fake.command, list_timeout_s=0.5)
        assert_found(report, "modern", "a")
        assert report.tools is not None
        assert not report.tools.complete

    async def test_an_empty_cursor_is_a_cursor(self, fake_stdio: FakeStdio) -> None:
        """Case 51 (a): MUST NOT be taken for the end."""
        fake = fake_stdio(pages(at("", page("b")), at(None, page("a", nextCursor=""))))
        assert_found(await look_at(fake.command), "modern", "a", "b")
        assert [message["params"].get("cursor") for message in fake.messages("tools/list")] == [None, ""]

    async def test_an_empty_cursor_that_means_the_end(self, fake_stdio: FakeStdio) -> None:
        """Case 51 (b): bounded like any list that brings nothing new."""
        fake = fake_stdio(pages(at(None, page("a", "b", nextCursor=""))))
        assert_found(await look_at(fake.command), "modern", "a", "b")
        assert len(fake.received("tools/list")) <= 7

    async def test_an_empty_page_in_the_middle(self, fake_stdio: FakeStdio) -> None:
        """Spec pagination#implementation-guidelines: only a missing cursor is the end."""
        fake = fake_stdio(
            pages(at("p2", page(nextCursor="p3")), at("p3", page("b")), at(None, page("a", nextCursor="p2")))
        )
        report = await look_at(fake.command)
        assert_found(report, "modern", "a", "b")
        assert report.tools is not None
        assert report.tools.complete

    @pytest.mark.parametrize("cursor", [True, {}, [], 1.5], ids=str)
    async def test_a_cursor_that_is_no_text(self, fake_stdio: FakeStdio, cursor: object) -> None:
        """Case 31, case 48: the list ends there, with a warning, and is not taken for complete."""
        fake = fake_stdio(pages(at(None, page("a", nextCursor=cursor))))
        report = await look_at(fake.command)
        assert_found(report, "modern", "a")
        assert any("nextCursor" in warning for warning in report.warnings)
        assert report.tools is not None
        assert not report.tools.complete

    @pytest.mark.parametrize("end", [0, False, None], ids=str)
    async def test_a_cursor_that_is_a_number(self, fake_stdio: FakeStdio, end: object) -> None:
        """Case 48: servers that count pages exist; their tools are no fewer. Zero and false are their end."""
        fake = fake_stdio(pages(at("2", page("b", nextCursor=end)), at(None, page("a", nextCursor=2))))
        report = await look_at(fake.command)
        assert_found(report, "modern", "a", "b")
        assert report.tools is not None
        assert report.tools.complete

    async def test_a_cursor_that_became_invalid(self, fake_stdio: FakeStdio) -> None:
        """Case 111: -32602 for a cursor: all pages are read again from the start, once."""
        fake = fake_stdio(
            pages(
                at("p2", error(-32602, "Invalid cursor"), times=1),
                at("p2", page("b")),
                at(None, page("old", nextCursor="p2"), times=1),
                at(None, page("a", nextCursor="p2")),
            )
        )
        report = await look_at(fake.command)
        assert_found(report, "modern", "a", "b")
        assert report.tools is not None
        assert report.tools.complete

    @pytest.mark.parametrize("failure", [error(-32603, "Internal error"), error(-32602, "Invalid cursor"), result(7)])
    async def test_a_page_that_fails_leaves_an_incomplete_list(self, fake_stdio: FakeStdio, failure: Action) -> None:
        """Case 111: what came before is kept and marked; never taken for the whole."""
        fake = fake_stdio(pages(at("p2", failure), at(None, page("a", nextCursor="p2"))))
        report = await look_at(fake.command)
        assert_found(report, "modern", "a")
        assert report.tools is not None
        assert not report.tools.complete
        assert report.warnings

    async def test_a_tool_listed_twice_is_kept_once(self, fake_stdio: FakeStdio) -> None:
        """Case 49: the first counts."""
        fake = fake_stdio(pages(at("p2", page("b", "a")), at(None, page("a", nextCursor="p2"))))
        report = await look_at(fake.command)
        assert_found(report, "modern", "a", "b")
        assert any("twice" in warning for warning in report.warnings)


class TestManyServers:
    async def test_a_dead_or_silent_one_costs_the_others_nothing(self, fake_stdio: FakeStdio) -> None:
        """Case 23: A is there while B has not answered; C's failure is C's."""
        good = fake_stdio(Script(*modern()))
        silent = fake_stdio(Script(on(None, NOTHING)))
        broken = fake_stdio(Script(start=[exit_with(1)]))
        waiting = asyncio.create_task(look_at(silent.command, start_timeout_s=80.0, probe_timeout_s=40.0))
        first, third = await asyncio.gather(look_at(good.command), look_at(broken.command))
        assert not waiting.done()
        assert_found(first, "modern")
        assert third.failure is not None
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        silent.assert_nothing_runs()

    async def test_twenty_at_once(self, fake_http: FakeHttp) -> None:
        """Case 23: one of them dead."""
        fake = fake_http(Script(*modern()))
        dead = "http://127.0.0.1:1/mcp"
        reports = await asyncio.gather(*(look_at(url) for url in [*[fake.url] * 19, dead]))
        assert [report.ok for report in reports] == [True] * 19 + [False]

    async def test_each_server_has_its_own_era(self, fake_http: FakeHttp) -> None:
        """Case 119: nothing of one conversation reaches another."""
        old, new = fake_http(Script(*legacy(session="s-1"))), fake_http(Script(*modern()))
        reports = await asyncio.gather(look_at(old.url), look_at(new.url))
        assert [report.era for report in reports] == ["legacy", "modern"]
        assert header(new.received("tools/list")[0], "MCP-Protocol-Version") == "2026-07-28"
        assert header(new.received("tools/list")[0], "Mcp-Session-Id") is None
        assert header(old.received("tools/list")[0], "MCP-Protocol-Version") == "2025-11-25"


class TestPatience:
    async def test_a_cancelled_list_is_told_to_the_server_over_a_pipe(self, fake_stdio: FakeStdio) -> None:
        """Case 34: by notification; the late answer is dropped and the next list is right."""
        fake = fake_stdio(
            Script(
                on("tools/list", defer("late", page("late")), times=1),
                on("notifications/cancelled", run("late")),
                *modern(),
            )
        )
        async with outrider.connect(fake.command, options=OPTIONS) as client:
            with pytest.raises(TimedOut) as passed:
                await client.list_tools(timeout_s=1.0)
            assert passed.value.phase == "list"
            assert len(await client.list_tools()) == 2
        (cancelled,) = fake.messages("notifications/cancelled")
        assert cancelled["params"]["requestId"] == fake.messages("tools/list")[0]["id"]
        assert "id" not in cancelled

    async def test_a_cancelled_call_too(self, fake_stdio: FakeStdio) -> None:
        """Spec cancellation: whoever cancels the task cancels the request."""
        fake = fake_stdio(Script(on("tools/call", NOTHING), *legacy()))
        async with outrider.connect(fake.command, options=OPTIONS) as client:
            call = asyncio.create_task(client.call_tool("add"))
            await fake.wait_for("received", "tools/call")
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await fake.wait_for("received", "notifications/cancelled")
        (cancelled,) = fake.messages("notifications/cancelled")
        assert cancelled["params"]["requestId"] == fake.messages("tools/call")[0]["id"]

    async def test_over_modern_http_the_response_is_closed(self, fake_http: FakeHttp) -> None:
        """Case 34: and no notification is sent. Spec basic/patterns/cancellation."""
        fake = fake_http(Script(on("tools/call", HANG), *modern()))
        async with outrider.connect(fake.url, options=OPTIONS) as client:
            with pytest.raises(TimedOut):
                await client.call_tool("add", timeout_s=1.0)
            (closed,) = await fake.wait_for("closed")
            assert closed["request"] == fake.received("tools/call")[0]["request"]
            assert len(await client.list_tools()) == 2
        assert "notifications/cancelled" not in fake.methods()

    async def test_over_legacy_http_a_notification_is_sent(self, fake_http: FakeHttp) -> None:
        """Spec 2025-11-25 transports: closing the stream is not cancelling there."""
        fake = fake_http(Script(on("tools/call", HANG), *legacy(session="s-1")))
        async with outrider.connect(fake.url, options=OPTIONS) as client:
            with pytest.raises(TimedOut):
                await client.call_tool("add", timeout_s=1.0)
            await fake.wait_for("received", "notifications/cancelled")
        (cancelled,) = fake.messages("notifications/cancelled")
        assert cancelled["params"]["requestId"] == fake.messages("tools/call")[0]["id"]

    async def test_lists_and_requests_have_limits_of_their_own(self, fake_stdio: FakeStdio) -> None:
        """Case 34: a list that needs longer than a request may."""
        fake = fake_stdio(Script(on("tools/list", gate("ready"), page("slow")), *modern()))
        async with outrider.connect(
            fake.command, options=options(request_timeout_s=0.2, list_timeout_s=60.0)
        ) as client:
            listing = asyncio.create_task(client.list_tools())
            await asyncio.wait([listing], timeout=0.5)
            assert not listing.done()
            fake.open_gate("ready")
            assert [item.name for item in (await listing).items] == ["slow"]

    async def test_progress_is_patience(self, fake_stdio: FakeStdio) -> None:
        """Spec cancellation#timeouts (MAY): each report restarts the clock; they reach the caller in order."""
        step = notify("notifications/progress", progressToken="$token", progress=1, total=2, message="half")
        fake = fake_stdio(
            Script(
                on(
                    "tools/call",
                    step,
                    notify("notifications/progress", progressToken="other", progress=9),
                    step,
                    *modern()[3].do,
                ),
                *modern(),
            )
        )
        heard: list[outrider.Progress] = []
        async with outrider.connect(fake.command, options=OPTIONS) as client:
            assert (await client.call_tool("add", on_progress=heard.append)).text == "called add"
        assert [(progress.progress, progress.total, progress.message) for progress in heard] == [(1, 2, "half")] * 2

    async def test_progress_over_http(self, fake_http: FakeHttp) -> None:
        """Spec progress: in the stream of the response."""
        step = notify("notifications/progress", progressToken="$token", progress=0.5)
        fake = fake_http(Script(on("tools/call", STREAM, step, *modern()[3].do), *modern()))
        heard: list[outrider.Progress] = []
        async with outrider.connect(fake.url, options=OPTIONS) as client:
            await client.call_tool("add", on_progress=heard.append)
        assert [progress.progress for progress in heard] == [0.5]


def stream_of(*actions: Action, granted: dict[str, Any] | None = None) -> tuple[Action, ...]:
    """A subscription: acknowledged, then these actions."""
    meta = {"io.modelcontextprotocol/subscriptionId": "$id"}
    agreed = {"toolsListChanged": True} if granted is None else granted
    acknowledged = notify("notifications/subscriptions/acknowledged", _meta=meta, notifications=agreed)
    return (acknowledged, *actions)


def change(method: str = CHANGED, **params: Any) -> Action:
    """A notification of the subscription that is being answered."""
    return notify(method, _meta={"io.modelcontextprotocol/subscriptionId": "$id"}, **params)


ENDED = result({"resultType": "complete", "_meta": {"io.modelcontextprotocol/subscriptionId": "$id"}})


class TestChanges:
    @pytest.mark.parametrize("announced", [True, False])
    async def test_a_legacy_server_that_changes_its_list(self, fake_stdio: FakeStdio, announced: bool) -> None:
        """Case 27: the change is heard, announced or not, and the next list is the new one."""
        fake = fake_stdio(
            Script(
                on("tools/call", notify(CHANGED), *legacy()[3].do),
                on("tools/list", result({"tools": [tool("a"), tool("b")]}), after="tools/call"),
                *legacy(capabilities={"tools": {"listChanged": announced}}, tools=[tool("a")]),
            )
        )
        heard: asyncio.Queue[Change] = asyncio.Queue()
        async with outrider.connect(fake.command, options=OPTIONS) as client:
            client.on_change = heard.put_nowait
            assert len(await client.list_tools()) == 1
            await client.call_tool("a")
            assert await heard.get() == Change("tools")
            assert len(await client.list_tools()) == 2

    async def test_legacy_changes_reach_a_listener(self, fake_stdio: FakeStdio) -> None:
        """Case 27: in the same shape as modern ones, resources by URI included."""
        fake = fake_stdio(
            Script(
                on(
                    "resources/subscribe",
                    result({}),
                    notify("notifications/resources/updated", uri="memo://a"),
                    notify(CHANGED),
                ),
                on("resources/unsubscribe", result({})),
                *legacy(capabilities={"tools": {"listChanged": True}, "resources": {"subscribe": True}}),
            )
        )
        async with outrider.connect(fake.command, options=OPTIONS) as client:
            async with client.listen(tools=True, prompts=True, uris=["memo://a"]) as changes:
                assert (changes.granted.tools, changes.granted.prompts, changes.granted.uris) == (
                    True,
                    False,
                    ("memo://a",),
                )
                heard = [await anext(changes), await anext(changes)]
            await fake.wait_for("received", "resources/unsubscribe")
        assert set(heard) == {Change("resource", "memo://a"), Change("tools")}

    async def test_the_standing_stream_of_legacy_http(self, fake_http: FakeHttp) -> None:
        """Case 27: over legacy HTTP, changes come on a GET stream of the session."""
        fake = fake_http(
            Script(
                on(None, STREAM, notify(CHANGED), HANG, http="GET"),
                *legacy(capabilities={"tools": {"listChanged": True}}, session="s-1"),
            )
        )
        heard: asyncio.Queue[Change] = asyncio.Queue()
        client = outrider.connect(fake.url, options=OPTIONS)
        client.on_change = heard.put_nowait
        async with client:
            assert await heard.get() == Change("tools")
        (stream,) = [record for record in fake.received() if record["http"] == "GET"]
        assert header(stream, "Mcp-Session-Id") == "s-1"
        assert header(stream, "Accept") == "text/event-stream"

    @pytest.mark.parametrize("transport", ["stdio", "http"])
    async def test_a_modern_server_is_asked_to_tell(
        self, fake_stdio: FakeStdio, fake_http: FakeHttp, transport: str
    ) -> None:
        """Case 28: one `subscriptions/listen`; the acknowledgment may be narrower than the request; changes follow it."""
        listen = stream_of(change(), change("notifications/resources/updated", uri="memo://a"), ENDED)
        fake, target = serve(
            fake_stdio, fake_http, transport, Script(on("subscriptions/listen", *opened(transport, *listen)), *modern())
        )
        async with outrider.connect(target, options=OPTIONS) as client:
            async with client.listen(tools=True, prompts=True, uris=["memo://a"]) as changes:
                assert (changes.granted.tools, changes.granted.prompts, changes.granted.uris) == (True, False, ())
                heard = [found async for found in changes]
            assert changes.graceful
        assert heard[0] == Change("tools")
        (asked,) = fake.messages("subscriptions/listen")
        assert asked["params"]["notifications"] == {
            "toolsListChanged": True,
            "promptsListChanged": True,
            "resourceSubscriptions": ["memo://a"],
        }

    @pytest.mark.parametrize("transport", ["stdio", "http"])
    async def test_leaving_the_block_ends_the_subscription(
        self, fake_stdio: FakeStdio, fake_http: FakeHttp, transport: str
    ) -> None:
        """Spec subscriptions#cancellation: over a pipe by notification, over HTTP by closing the stream."""
        silent = stream_of(*([HANG] if transport == "http" else []))
        fake, target = serve(
            fake_stdio, fake_http, transport, Script(on("subscriptions/listen", *opened(transport, *silent)), *modern())
        )
        async with outrider.connect(target, options=OPTIONS) as client:
            async with client.listen(tools=True):
                pass
            await fake.wait_for(
                "closed" if transport == "http" else "received",
                None if transport == "http" else "notifications/cancelled",
            )
            assert len(await client.list_tools()) == 2
        if transport == "stdio":
            (cancelled,) = fake.messages("notifications/cancelled")
            assert cancelled["params"]["requestId"] == fake.messages("subscriptions/listen")[0]["id"]

    async def test_two_subscriptions_on_one_pipe(self, fake_stdio: FakeStdio) -> None:
        """Spec subscriptions#multiple-concurrent-subscriptions (MUST): told apart by subscription id."""
        fake = fake_stdio(
            Script(
                on("subscriptions/listen", *stream_of(defer("first", change())), times=1),
                on(
                    "subscriptions/listen",
                    *stream_of(
                        change("notifications/prompts/list_changed"), run("first"), granted={"promptsListChanged": True}
                    ),
                ),
                *modern(),
            )
        )
        async with (
            outrider.connect(fake.command, options=OPTIONS) as client,
            client.listen(tools=True) as tools,
            client.listen(prompts=True) as prompts,
        ):
            assert await anext(prompts) == Change("prompts")
            assert await anext(tools) == Change("tools")

    @pytest.mark.parametrize("ending", [HANG_UP, RESET], ids=["hang-up", "reset"])
    async def test_a_stream_that_is_cut_is_an_error_of_the_stream_only(
        self, fake_http: FakeHttp, ending: Action
    ) -> None:
        """Case 115: the server stays usable; whoever listens can subscribe again, and is not reconnected in a loop."""
        fake = fake_http(Script(on("subscriptions/listen", STREAM, *stream_of(change(), ending)), *modern()))
        async with outrider.connect(fake.url, options=OPTIONS) as client:
            for _ in range(2):
                async with client.listen(tools=True) as changes:
                    assert await anext(changes) == Change("tools")
                    with pytest.raises(TransportError):
                        await anext(changes)
                    assert not changes.graceful
                assert len(await client.list_tools()) == 2
        assert len(fake.received("subscriptions/listen")) == 2

    async def test_a_subscription_that_ends_with_its_process(self, fake_stdio: FakeStdio) -> None:
        """Case 115, stdio#unexpected-termination: an error for the listener, a new process for the next request."""
        fake = fake_stdio(Script(on("subscriptions/listen", *stream_of(exit_with(1))), *modern()))
        async with outrider.connect(fake.command, options=OPTIONS) as client:
            async with client.listen(tools=True) as changes:
                with pytest.raises(TransportError):
                    await anext(changes)
            assert len(await client.list_tools()) == 2
        assert fake.spawns == 2

    @pytest.mark.parametrize(
        "answer",
        [error(-32601, "Method not found", status=404), respond(503), respond(404), respond(401), respond(200)],
    )
    async def test_a_server_that_cannot_be_listened_to(self, fake_http: FakeHttp, answer: Action) -> None:
        """Case 117, case 86: an error for whoever wanted to listen; server, era and lists stay."""
        fake = fake_http(
            Script(on("subscriptions/listen", answer), *modern(capabilities={"tools": {"listChanged": True}}))
        )
        async with outrider.connect(fake.url, options=OPTIONS) as client:
            with pytest.raises(OutriderError):
                async with client.listen(tools=True):
                    pytest.fail("there is no stream")
            assert len(await client.list_tools()) == 2
            assert client.era == "modern"

    async def test_a_stream_that_is_never_acknowledged(self, fake_http: FakeHttp, fake_stdio: FakeStdio) -> None:
        """Case 28: the wait for the acknowledgment has a limit."""
        for target in (
            fake_http(Script(on("subscriptions/listen", STREAM, HANG), *modern())).url,
            fake_stdio(Script(on("subscriptions/listen", NOTHING), *modern())).command,
        ):
            async with outrider.connect(target, options=OPTIONS) as client:
                with pytest.raises(TimedOut):
                    async with client.listen(tools=True, timeout_s=1.0):
                        pytest.fail("nobody agreed")
                assert len(await client.list_tools()) == 2

    async def test_a_storm_of_changes_is_merged(self, fake_stdio: FakeStdio) -> None:
        """Ours: a thousand changes of one list are one reason to read it."""
        storm = [change() for _ in range(1_000)]
        fake = fake_stdio(Script(on("subscriptions/listen", *stream_of(*storm, ENDED)), *modern()))
        async with outrider.connect(fake.command, options=OPTIONS) as client, client.listen(tools=True) as changes:
            await client.call_tool("add")  # Answered after the storm.
            assert [found async for found in changes] == [Change("tools")]


def serve(fake_stdio: FakeStdio, fake_http: FakeHttp, transport: str, script: Script) -> tuple[Fake, Any]:
    """A fake over either transport, and the target that names it."""
    if transport == "http":
        fake = fake_http(script)
        return fake, fake.url
    fake = fake_stdio(script)
    return fake, fake.command


def opened(transport: str, *actions: Action) -> tuple[Action, ...]:
    """The actions, in an event stream over HTTP."""
    return (STREAM, *actions) if transport == "http" else actions


class TestOtherCalls:
    @pytest.mark.parametrize("era", ["modern", "legacy"])
    async def test_prompts_resources_and_completions(self, fake_stdio: FakeStdio, era: str) -> None:
        """Ours: the same calls, the same shapes, in both eras."""
        everything = {"tools": {}, "prompts": {}, "resources": {}, "completions": {}}
        rules = modern(capabilities=everything) if era == "modern" else legacy(capabilities=everything)
        fake = fake_stdio(
            Script(
                on(
                    "prompts/list",
                    result({"prompts": [{"name": "greet", "arguments": [{"name": "who", "required": True}]}]}),
                ),
                on(
                    "resources/list",
                    result({"resources": [{"uri": "memo://a", "name": "a", "mimeType": "text/plain"}]}),
                ),
                on(
                    "resources/templates/list",
                    result({"resourceTemplates": [{"uriTemplate": "memo://{x}", "name": "x"}]}),
                ),
                on(
                    "prompts/get",
                    result(
                        {"description": "d", "messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}]}
                    ),
                ),
                on("resources/read", result({"contents": [{"uri": "memo://a", "text": "t"}]})),
                on("completion/complete", result({"completion": {"values": ["x", "y"], "total": 5, "hasMore": True}})),
                *rules,
            )
        )
        async with outrider.connect(fake.command, options=OPTIONS) as client:
            assert client.era == era
            (prompt,) = await client.list_prompts()
            (resource,) = await client.list_resources()
            (template,) = await client.list_resource_templates()
            filled = await client.get_prompt(prompt.name, {"who": "Ada"})
            read = await client.read_resource(resource.uri)
            completion = await client.complete({"type": "ref/prompt", "name": "greet"}, "who", "A", context={"x": "1"})
        assert prompt.arguments == ({"name": "who", "required": True},)
        assert (resource.mime_type, template.uri_template) == ("text/plain", "memo://{x}")
        assert [(message.role, message.content.text) for message in filled.messages] == [("user", "hi")]
        assert read.contents[0]["text"] == "t"
        assert (completion.values, completion.total, completion.has_more) == (("x", "y"), 5, True)
        asked = fake.messages("completion/complete")[0]["params"]
        assert asked["argument"] == {"name": "who", "value": "A"}
        assert asked["context"] == {"arguments": {"x": "1"}}

    async def test_an_error_answer_is_a_value_with_its_facts(self, fake_http: FakeHttp) -> None:
        """Ours: code, text, data and status."""
        fake = fake_http(Script(on("tools/call", error(-32603, "boom", data={"why": 1}, status=500)), *modern()))
        async with outrider.connect(fake.url, options=OPTIONS) as client:
            with pytest.raises(PeerError) as answered:
                await client.call_tool("add")
        failure = answered.value
        assert (failure.code, failure.message, failure.data, failure.status) == (-32603, "boom", {"why": 1}, 500)
