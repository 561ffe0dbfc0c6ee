"""Clients that nobody here wrote, and our own, against a server of ours: over HTTP and stdio, in both eras."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from peers.clients import CLIENTS, ClientFailed, RealClient, run_client
from peers.provision import Environment
from server.serving import OUTRIDER, PROGRAM, serving

pytestmark = pytest.mark.interop

PLAN: list[dict[str, Any]] = [
    {"call": "add", "arguments": {"a": 2, "b": 3}},
    {"read": "memo://greeting"},
    {"prompt": "greet", "arguments": {"name": "Ada"}},
    {"progress": "steps", "arguments": {}},
    {"listen": "change"},
]
ANSWERS = ["5", "Good day.", "Greet Ada.", [1, 2, 3, 4], True]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server for all clients, one after the other."""
    with serving() as served:
        yield served.url


def check(report: dict[str, Any], client: RealClient) -> None:
    assert report["version"] == client.version
    assert report["server"] == (None if client.id == "python-sdk2-pinned" else "program")
    # The Python programs ask for the first page only.
    assert ("filler_19" in report["tools"]) or len(report["tools"]) == 5
    assert report["answers"] == ANSWERS


@pytest.mark.parametrize("client", CLIENTS, ids=str)
async def test_client_is_served_over_http(
    client: RealClient, environment: Callable[[Environment], Environment], url: str
) -> None:
    """Ours: discover, list through all pages, call, read, prompt, progress and listen work for every client."""
    environment(client.environment)
    check(await run_client(client, [url], PLAN), client)


@pytest.mark.parametrize("client", CLIENTS, ids=str)
async def test_client_is_served_over_stdio(
    client: RealClient, environment: Callable[[Environment], Environment]
) -> None:
    """Ours: as over HTTP."""
    environment(client.environment)
    check(await run_client(client, [sys.executable, str(PROGRAM)], PLAN), client)


@pytest.mark.parametrize("client", [client for client in CLIENTS if client.mode == "legacy"], ids=str)
async def test_legacy_client_learns_what_a_modern_server_speaks(
    client: RealClient, environment: Callable[[Environment], Environment]
) -> None:
    """Spec: 2026-07-28 basic/versioning (SHOULD). Case 141: the name of the version is in the client's own error.

    Over stdio: some clients show nothing of an HTTP answer but its status.
    """
    environment(client.environment)
    with pytest.raises(ClientFailed, match="2026-07-28"):
        await run_client(client, [OUTRIDER, "run", str(PROGRAM), "--modern-only"])
