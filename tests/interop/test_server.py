"""Outrider's server under clients that nobody here wrote: the official SDKs', in each of their modes, over stdio and HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from peers.clients import CLIENTS, RealClient, run_client
from peers.ours import EVERYTHING, OUTRIDER, serving_everything
from peers.provision import Environment

PLAN: list[dict[str, Any]] = [
    {"call": "test_simple_text"},
    {"read": "test://static-text"},
    {"read": "test://template/123/data"},
    {"prompt": "test_prompt_with_arguments", "arguments": {"arg1": "one", "arg2": "two"}},
    {"progress": "test_tool_with_progress"},
    {"listen": "test_trigger_tool_change"},
]

pytestmark = pytest.mark.interop


def judge(client: RealClient, report: dict[str, Any]) -> None:
    """Compares a client's report with what the example offers."""
    assert report["version"] == client.version
    assert {"test_simple_text", "test_tool_with_progress"} <= set(report["tools"])
    text, resource, template, prompt, progress, changed = report["answers"]
    assert text == "This is a simple text response for testing."
    assert resource == "This is the content of the static text resource."
    assert "123" in template
    assert "one" in prompt
    assert "two" in prompt
    # The TypeScript client drops progress that it reads in one piece with what follows.
    assert set(progress) <= {0, 50, 100}
    assert progress
    assert progress == [0, 50, 100] or client.id.startswith("typescript")
    assert changed is True


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving_everything() as running:
        yield running


@pytest.mark.parametrize("client", CLIENTS, ids=str)
async def test_real_client_uses_our_server_over_http(
    client: RealClient, environment: Callable[[Environment], Environment], url: str
) -> None:
    """Ours: discover or handshake, list, call, read, get a prompt, progress, and hear of a change."""
    environment(client.environment)
    judge(client, await run_client(client, [url], PLAN))


@pytest.mark.parametrize("client", CLIENTS, ids=str)
async def test_real_client_uses_our_server_over_stdio(
    client: RealClient, environment: Callable[[Environment], Environment]
) -> None:
    """Ours: discover or handshake, list, call, read, get a prompt, progress, and hear of a change."""
    environment(client.environment)
    judge(client, await run_client(client, [OUTRIDER, "run", EVERYTHING], PLAN))
