"""Our own client against our own server, over both transports and in both eras. The halves share nothing but the protocol core."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import outrider
from outrider.client.target import ClientOptions, Pin
from server.serving import PROGRAM, serving

STDIO = [sys.executable, str(PROGRAM)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server over HTTP."""
    with serving() as served:
        yield served.url


@pytest.fixture(params=["stdio", "http"])
def target(request: pytest.FixtureRequest, url: str) -> Any:
    """Where the server is."""
    return STDIO if request.param == "stdio" else url


@pytest.mark.parametrize("pin", list(Pin))
async def test_everything_works_between_our_halves(target: Any, pin: Pin) -> None:
    """Ours: discover, all pages of a list, call, read, prompt, progress, listen."""
    async with asyncio.timeout(60), outrider.connect(target, options=ClientOptions(pin=pin)) as client:
        description = await client.discover()
        assert description.identity is not None
        assert description.identity.name == "program"
        assert description.instructions == "A server for tests."
        tools = await client.list_tools()
        assert len(tools) >= 26
        assert not tools.quarantined
        result = await client.call_tool("add", {"a": 2, "b": 3})
        assert (result.text, result.is_error) == ("5", False)
        wrong = await client.call_tool("add", {"a": "two", "b": 3})
        assert wrong.is_error
        read = await client.read_resource("memo://greeting")
        assert read.contents[0]["text"] == "Good day."
        prompt = await client.get_prompt("greet", {"name": "Ada"})
        assert prompt.messages[0].content.wire["text"] == "Greet Ada."
        seen: list[float] = []
        await client.call_tool("steps", {}, on_progress=lambda progress: seen.append(progress.progress))
        assert seen == [1, 2, 3, 4]
        async with client.listen(tools=True) as changes:
            await client.call_tool("change", {})
            change = await anext(aiter(changes))
            assert "tools" in change.what


async def test_report_of_our_server_has_nothing_to_complain_about(target: Any) -> None:
    """Ours: what discover learns of a server of ours is complete and without a warning."""
    report = await outrider.discover(target)
    assert report.failure is None
    assert report.protocol_version == "2026-07-28"
    assert len(report.tools or ()) >= 26
    assert not report.warnings
