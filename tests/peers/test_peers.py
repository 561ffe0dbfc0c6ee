"""The table of peers is true, judged by bare JSON-RPC over their own transport, without a line of Outrider's client.

When one of these fails, a peer changed; when they pass and an interop test fails, we did.
"""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from peers.registry import HTTP_PEERS, PEERS, STDIO_PEERS, Peer

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
META = {
    "_meta": {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "0"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
}
INITIALIZE = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "tests", "version": "0"}}
TIMEOUT_S = 60.0

pytestmark = pytest.mark.interop

# Sends a request and returns its whole answer.
Ask = Callable[[str, dict[str, Any]], dict[str, Any]]


def test_peer_ids_are_unique() -> None:
    """Ours: a peer's id names one row."""
    assert len({peer.id for peer in PEERS}) == len(PEERS)


@pytest.fixture
def stdio_ask(installed_peer: Peer) -> Iterator[Ask]:
    with subprocess.Popen(
        installed_peer.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
            request = {"jsonrpc": "2.0", "method": method, "params": params}
            if not method.startswith("notifications/"):
                request["id"] = method
            stdin.write(json.dumps(request).encode() + b"\n")
            stdin.flush()
            while "id" in request:
                line = stdout.readline()
                assert line, f"the peer closed its output instead of answering {method}"
                message: dict[str, Any] = json.loads(line)
                if message.get("id") == method and "method" not in message:
                    return message
            return {}

        yield ask
        stdin.close()
        process.wait(TIMEOUT_S)


@pytest.fixture
def http_ask(peer_url: str) -> Ask:
    session: dict[str, str] = {}

    def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        if not method.startswith("notifications/"):
            message["id"] = method
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **session}
        if "_meta" in params:
            headers |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
            if "name" in params:
                headers["Mcp-Name"] = params["name"]
        request = urllib.request.Request(peer_url, json.dumps(message).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                if identifier := response.headers.get("Mcp-Session-Id"):
                    session.update({"Mcp-Session-Id": identifier, "MCP-Protocol-Version": LEGACY})
                if response.headers.get_content_type() == "text/event-stream":
                    return next(json.loads(data) for data in events(response) if method in data)
                body = response.read()
        except urllib.error.HTTPError as refused:
            body = refused.read()
        return json.loads(body) if body else {}

    return ask


def events(response: Any) -> Iterator[str]:
    """The data of each event of a stream whose events have one line of data, as these peers send them."""
    for line in response:
        if line.startswith(b"data: ") and line[6:].strip():
            yield line[6:].decode()


def holds(peer: Peer, ask: Ask) -> None:
    """Checks one peer against its row, in the era in which a client that probes would speak to it."""
    probe = ask("server/discover", META)
    found = "modern" if MODERN in probe.get("result", {}).get("supportedVersions", []) else "legacy"
    assert found == peer.era, probe
    common = META if peer.era == "modern" else {}
    if peer.era == "legacy":
        assert ask("initialize", INITIALIZE)["result"]["protocolVersion"] == LEGACY
        ask("notifications/initialized", {})
    listed = ask("tools/list", dict(common))["result"]["tools"]
    assert {tool["name"] for tool in listed} == peer.tools
    answer = ask("tools/call", {"name": peer.call.tool, "arguments": peer.call.arguments, **common})
    assert answer["result"]["content"][0]["text"] == peer.call.text
    if peer.prompt is not None:
        name, arguments = peer.prompt
        assert ask("prompts/get", {"name": name, "arguments": arguments, **common})["result"]["messages"]


@pytest.mark.parametrize("peer", STDIO_PEERS, ids=str)
def test_stdio_peer_is_what_its_row_says(peer: Peer, stdio_ask: Ask) -> None:
    """Ours: era, tools, call and prompt of the table are what the server answers."""
    holds(peer, stdio_ask)


@pytest.mark.parametrize("peer", [peer for peer in HTTP_PEERS if peer.transport == "http"], ids=str)
def test_http_peer_is_what_its_row_says(peer: Peer, http_ask: Ask) -> None:
    """Ours: era, tools, call and prompt of the table are what the server answers."""
    holds(peer, http_ask)


@pytest.mark.parametrize("peer", [peer for peer in HTTP_PEERS if peer.transport == "sse"], ids=str)
def test_sse_peer_refuses_a_post_and_names_an_endpoint(peer: Peer, peer_url: str) -> None:
    """Spec: 2024-11-05 basic/transports#http-with-sse (MUST): the stream starts with an endpoint event."""
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(peer_url, b"{}"), timeout=TIMEOUT_S)
    assert refused.value.code in {404, 405}
    refused.value.close()
    request = urllib.request.Request(peer_url, headers={"Accept": "text/event-stream"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
        assert response.readline().strip() == b"event: endpoint"
