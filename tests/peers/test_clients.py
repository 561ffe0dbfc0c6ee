"""The real clients work, shown on servers that nobody here wrote, so that a failure against a server of ours is ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from peers.clients import CLIENTS, MODERN, ClientFailed, RealClient, run_client
from peers.provision import Environment
from peers.registry import PEERS, Peer

pytestmark = pytest.mark.interop

BY_ID = {peer.id: peer for peer in PEERS}
PLAN: list[dict[str, Any]] = [
    {"call": "add", "arguments": {"a": 2, "b": 3}},
    {"read": "memo://greeting"},
    {"prompt": "greet", "arguments": {"name": "Ada"}},
]
ANSWERS = ["5", "Good day.", "Greet Ada."]


@pytest.fixture
def peer(request: pytest.FixtureRequest) -> Peer:
    return BY_ID[request.param]


@pytest.mark.parametrize("peer", ["typescript-sdk2-http"], indirect=True)
@pytest.mark.parametrize("client", CLIENTS, ids=str)
async def test_client_carries_out_a_plan_over_http(
    client: RealClient, environment: Callable[[Environment], Environment], peer_url: str
) -> None:
    """Ours: version, tools and answers are reported."""
    environment(client.environment)
    report = await run_client(client, [peer_url], PLAN)
    assert report["version"] == client.version
    assert set(report["tools"]) == {"add", "echo"}
    assert report["answers"] == ANSWERS


@pytest.mark.parametrize("peer", ["python-sdk2-low-stdio"], indirect=True)
@pytest.mark.parametrize("client", CLIENTS, ids=str)
async def test_client_carries_out_a_plan_over_stdio(
    client: RealClient, environment: Callable[[Environment], Environment], installed_peer: Peer
) -> None:
    """Ours: version, tools and answers are reported."""
    environment(client.environment)
    report = await run_client(client, installed_peer.command, PLAN)
    assert report["version"] == client.version
    # The Python client that insists on a version asks nobody who the server is.
    assert report["server"] == (None if client.id == "python-sdk2-pinned" else "python-sdk2-low")
    assert report["answers"] == ANSWERS


@pytest.mark.parametrize("peer", ["python-sdk1-stdio"], indirect=True)
async def test_client_that_insists_on_a_version_fails_where_it_is_not_spoken(
    environment: Callable[[Environment], Environment], installed_peer: Peer
) -> None:
    """Ours: a failure carries the client's own words."""
    client = next(client for client in CLIENTS if client.id == "typescript-sdk2-pinned")
    environment(client.environment)
    with pytest.raises(ClientFailed, match=MODERN):
        await run_client(client, installed_peer.command)
