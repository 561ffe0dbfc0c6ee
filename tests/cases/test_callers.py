"""What callers do: callbacks that fail, arguments that no JSON can hold, closing at odd moments, many tasks at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import outrider
from cases.expectations import OPTIONS, options
from fakes.running import FakeHttp, FakeStdio
from fakes.scripts import HANG, NOTHING, STREAM, Script, exit_with, gate, legacy, modern, notify, on
from outrider import LocalProtocolError, OutriderError

CHATTY = (
    notify("notifications/progress", progressToken="$token", progress=1),
    notify("notifications/tools/list_changed"),
    notify("notifications/message", level="info", data="x"),
)


@contextmanager
def troubles() -> Iterator[list[BaseException]]:
    """What the event loop's exception handler is told meanwhile."""
    loop = asyncio.get_running_loop()
    found: list[BaseException] = []
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _loop, context: found.append(context["exception"]))
    try:
        yield found
    finally:
        loop.set_exception_handler(before)


def fail(*_: object) -> None:
    raise ZeroDivisionError


class TestCallbacks:
    @pytest.mark.parametrize("transport", ["stdio", "http"])
    @pytest.mark.parametrize("era", ["modern", "legacy"])
    async def test_one_that_fails_harms_nobody(
        self, fake_stdio: FakeStdio, fake_http: FakeHttp, transport: str, era: str
    ) -> None:
        """Ours: the loop's handler is told; the call, the connection and other callers go on."""
        rules = modern() if era == "modern" else legacy()
        answer = [*([STREAM] if transport == "http" else []), *CHATTY, *rules[3].do]
        script = Script(on("tools/call", *answer), *rules)
        target: Any = fake_stdio(script).command if transport == "stdio" else fake_http(script).url
        client = outrider.connect(target, options=options(trace=fail))
        client.on_change = client.on_log = fail
        with troubles() as told:
            async with client:
                assert (await client.call_tool("add", on_progress=fail)).text == "called add"
                assert len(await client.list_tools()) == 2
        assert len(told) > 5
        assert all(isinstance(trouble, ZeroDivisionError) for trouble in told)


class TestArguments:
    @pytest.mark.parametrize("value", [object(), "\ud800", {1, object()}], ids=["object", "surrogate", "set"])
    @pytest.mark.parametrize("transport", ["stdio", "http"])
    async def test_what_no_json_can_hold(
        self, fake_stdio: FakeStdio, fake_http: FakeHttp, transport: str, value: object
    ) -> None:
        """Ours: our caller's mistake, said before anything is sent."""
        script = Script(*modern())
        fake = fake_stdio(script) if transport == "stdio" else fake_http(script)
        async with outrider.connect(fake.url or fake.command, options=OPTIONS) as client:
            with pytest.raises(LocalProtocolError):
                await client.call_tool("add", {"x": value})
            with pytest.raises(LocalProtocolError):
                await client.call_tool("\ud800")
            assert len(await client.list_tools()) == 2
        assert "tools/call" not in fake.methods()

    async def test_a_number_too_large_for_a_mirrored_header(self, fake_http: FakeHttp) -> None:
        """Spec streamable-http#value-encoding (MUST): outside of what every peer reads the same."""
        schema = {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}}
        fake = fake_http(Script(*modern(tools=[{"name": "add", "inputSchema": schema}])))
        async with outrider.connect(fake.url, options=OPTIONS) as client:
            await client.list_tools()
            with pytest.raises(LocalProtocolError):
                await client.call_tool("add", {"n": 2**53})
        assert "tools/call" not in fake.methods()

    async def test_a_client_that_is_not_open(self, fake_stdio: FakeStdio) -> None:
        """Ours: said in words; a call opens it, a closed one stays closed."""
        fake = fake_stdio(Script(*modern()))
        client = outrider.connect(fake.command, options=OPTIONS)
        with pytest.raises(LocalProtocolError):
            _ = client.era
        async with client:
            pass
        for attempt in (client.list_tools, client.discover, client.__aenter__):
            with pytest.raises(LocalProtocolError):
                await attempt()
        assert fake.spawns == 1

    async def test_a_subscription_to_nothing(self, fake_stdio: FakeStdio) -> None:
        """Ours."""
        fake = fake_stdio(Script(*modern()))
        async with outrider.connect(fake.command, options=OPTIONS) as client:
            with pytest.raises(LocalProtocolError):
                async with client.listen():
                    pytest.fail("nothing was asked for")


class TestClosing:
    @pytest.mark.parametrize("transport", ["stdio", "http"])
    async def test_while_it_is_being_opened(self, fake_stdio: FakeStdio, fake_http: FakeHttp, transport: str) -> None:
        """Ours: closing does not wait for an opening that may take minutes; the opener is told why it failed."""
        script = Script(on(None, NOTHING if transport == "stdio" else HANG))
        fake = fake_stdio(script) if transport == "stdio" else fake_http(script)
        client = outrider.connect(fake.url or fake.command, options=options(start_timeout_s=85.0, probe_timeout_s=85.0))
        openers = [asyncio.create_task(client.__aenter__()) for _ in range(3)]
        await fake.wait_for("received")
        async with asyncio.timeout(30):
            await client.close()
            for opener in openers:
                with pytest.raises(LocalProtocolError):
                    await opener

    async def test_an_opener_that_is_cancelled_leaves_the_client_usable(self, fake_stdio: FakeStdio) -> None:
        """Ours: whoever was waiting as well opens it."""
        fake = fake_stdio(Script(*modern(), start=[gate("go")]))
        client = outrider.connect(fake.command, options=options(probe_timeout_s=60.0, start_timeout_s=80.0))
        first, second = asyncio.create_task(client.list_tools()), asyncio.create_task(client.list_tools())
        await fake.wait_for("spawned")
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        fake.open_gate("go", 2)
        assert len(await second) == 2
        await client.close()
        assert fake.spawns == 2

    async def test_many_tasks_open_it_once(self, fake_stdio: FakeStdio) -> None:
        """Ours: a client may be shared."""
        fake = fake_stdio(Script(*modern()))
        client = outrider.connect(fake.command, options=OPTIONS)
        lists = await asyncio.gather(*(client.list_tools() for _ in range(20)))
        assert [len(listing) for listing in lists] == [2] * 20
        await client.close()
        assert fake.spawns == 1

    async def test_many_tasks_lose_it_together(self, fake_stdio: FakeStdio) -> None:
        """Spec stdio#unexpected-termination: one new process serves all of them; no call is repeated."""
        fake = fake_stdio(Script(on("tools/call", exit_with(1), params={"name": "die"}), *modern()))
        async with outrider.connect(fake.command, options=OPTIONS) as client:
            lists = [asyncio.create_task(client.list_tools()) for _ in range(10)]
            with pytest.raises(OutriderError):
                await client.call_tool("die")
            assert [len(listing) for listing in await asyncio.gather(*lists)] == [2] * 10
            assert len(await client.list_tools()) == 2
        assert fake.spawns == 2
        assert len(fake.received("tools/call")) == 1

    async def test_closing_ends_a_subscription_and_its_reader(self, fake_stdio: FakeStdio) -> None:
        """Ours: nobody is left waiting."""
        meta = {"io.modelcontextprotocol/subscriptionId": "$id"}
        agreed = notify(
            "notifications/subscriptions/acknowledged", _meta=meta, notifications={"toolsListChanged": True}
        )
        fake = fake_stdio(Script(on("subscriptions/listen", agreed), *modern()))
        client = await outrider.connect(fake.command, options=OPTIONS).__aenter__()

        async def read() -> list[outrider.Change]:
            async with client.listen(tools=True) as changes:
                listening.set()
                return [change async for change in changes]

        listening = asyncio.Event()
        reader = asyncio.create_task(read())
        await listening.wait()
        await client.close()
        outcome = (await asyncio.gather(reader, return_exceptions=True))[0]
        assert outcome == [] or isinstance(outcome, OutriderError)
