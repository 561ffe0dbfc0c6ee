"""Outrider's client against servers that nobody here wrote: every row of the table of peers."""

from __future__ import annotations

import pytest

import outrider
from peers.registry import HTTP_PEERS, STDIO_PEERS, Peer

pytestmark = pytest.mark.interop


async def holds(peer: Peer, target: str | list[str]) -> None:
    """Discovers a peer, then uses it, and compares both with its row."""
    report = await outrider.discover(target)
    assert report.failure is None, report.failure
    assert report.era == peer.era, report.attempts
    assert report.tools is not None
    assert report.tools.complete
    assert not report.tools.quarantined
    assert {tool.name for tool in report.tools} >= peer.tools
    async with outrider.connect(target) as client:
        assert {tool.name for tool in await client.list_tools()} >= peer.tools
        result = await client.call_tool(peer.call.tool, dict(peer.call.arguments))
        assert not result.is_error
        assert result.wire["content"][0]["text"] == peer.call.text
        if peer.prompt is not None:
            name, arguments = peer.prompt
            assert name in {prompt.name for prompt in await client.list_prompts()}
            assert (await client.get_prompt(name, dict(arguments))).messages
        if peer.resource is not None:
            assert peer.resource in {resource.uri for resource in await client.list_resources()}
            assert (await client.read_resource(peer.resource)).contents[0]["text"]


@pytest.mark.parametrize("peer", STDIO_PEERS, ids=str)
async def test_stdio_peer_is_discovered_and_used(peer: Peer, installed_peer: Peer) -> None:
    """Ours: the right era, all tools, one call, one prompt, one resource, and no process left behind."""
    await holds(peer, installed_peer.command)


@pytest.mark.parametrize("peer", HTTP_PEERS, ids=str)
async def test_http_peer_is_discovered_and_used(peer: Peer, peer_url: str) -> None:
    """Ours: the right era, all tools, one call, one prompt, one resource, over streamable HTTP and HTTP+SSE."""
    await holds(peer, peer_url)
