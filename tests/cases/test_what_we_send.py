"""Everything the client sends is what the official SDK's types say it should be."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fakes
import outrider
from cases.expectations import OPTIONS
from fakes.running import Fake, FakeHttp, FakeStdio, header
from fakes.scripts import (
    NOTHING,
    STREAM,
    Script,
    error,
    legacy,
    modern,
    notify,
    on,
    result,
    send,
    tool,
)
from outrider import OutriderError
from peers.provision import PYTHON_MODERN, Environment

JUDGE = Path(fakes.__file__).with_name("judge.py")
EVERYTHING = {
    "tools": {"listChanged": True},
    "prompts": {},
    "resources": {"subscribe": True},
    "completions": {},
    "logging": {},
}
LEGACY_VERSIONS = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]

pytestmark = pytest.mark.interop


def judge(version: str, messages: list[Any]) -> list[str]:
    """What is wrong with each of some messages, in order."""
    lines = "".join(json.dumps({"version": version, "message": message}) + "\n" for message in messages)
    done = subprocess.run(
        [PYTHON_MODERN.python, JUDGE], input=lines, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.split("\n")[:-1]


def assert_valid(version: str, fake: Fake) -> None:
    """All messages that a fake received are sound."""
    messages = fake.messages()
    assert len(messages) > 5
    complaints = judge(version, messages)
    assert len(complaints) == len(messages)
    assert not any(complaints), [found for found in zip(complaints, messages, strict=True) if found[0]]


LISTS = (
    on("prompts/list", result({"prompts": [{"name": "p"}]})),
    on("resources/list", result({"resources": [{"uri": "memo://a", "name": "a"}], "nextCursor": "2"}), times=1),
    on("resources/list", result({"resources": []})),
    on("resources/templates/list", result({"resourceTemplates": []})),
    on("prompts/get", result({"messages": []})),
    on("resources/read", result({"contents": []})),
    on("completion/complete", result({"completion": {"values": []}})),
    on("resources/subscribe", result({})),
    on("resources/unsubscribe", result({})),
    on("subscriptions/listen", error(-32601, "Method not found")),
    on("tools/call", NOTHING, params={"name": "slow"}),
    on("notifications/initialized", send({"jsonrpc": "2.0", "id": 1, "method": "ping"})),
    on(None, send({"jsonrpc": "2.0", "id": "q", "method": "roots/list"}), has="result", times=1),
)


async def use_everything(fake: Fake, target: Any) -> None:
    """Makes the client send one of everything."""
    async with outrider.connect(target, options=OPTIONS) as client:
        await client.discover()
        for read in (client.list_tools, client.list_prompts, client.list_resources, client.list_resource_templates):
            await read()
        await client.call_tool(
            "add", {"a": 1, "b": [None]}, meta={"traceparent": "00-1-1-00"}, on_progress=lambda _: None
        )
        await client.call_tool("echo")
        await client.get_prompt("p")
        await client.get_prompt("p", {"a": "b"})
        await client.read_resource("memo://a")
        await client.complete({"type": "ref/prompt", "name": "p"}, "a", "b")
        await client.complete({"type": "ref/resource", "uri": "memo://{x}"}, "x", "", context={"y": "1"})
        with pytest.raises(OutriderError):
            await client.call_tool("slow", timeout_s=0.2)
        if client.era == "legacy":
            async with client.listen(tools=True, uris=["memo://a"]):
                pass
            await fake.wait_for("received", "resources/unsubscribe")
        else:
            with pytest.raises(OutriderError):
                async with client.listen(tools=True, prompts=True, resources=True, uris=["memo://a"]):
                    pytest.fail("there is no stream")


@pytest.fixture(autouse=True)
def _sdk(environment: Callable[[Environment], Environment]) -> None:
    environment(PYTHON_MODERN)


async def test_modern_messages_over_a_pipe(fake_stdio: FakeStdio) -> None:
    """Spec 2026-07-28 schema, by the SDK's own types."""
    fake = fake_stdio(Script(*LISTS, *modern(capabilities=EVERYTHING)))
    await use_everything(fake, fake.command)
    assert_valid("2026-07-28", fake)
    assert "notifications/cancelled" in fake.methods()


async def test_modern_messages_over_http(fake_http: FakeHttp) -> None:
    """Spec 2026-07-28 schema."""
    mirrored = tool(
        "add", inputSchema={"type": "object", "properties": {"a": {"type": "integer", "x-mcp-header": "A"}}}
    )
    fake = fake_http(
        Script(
            on("tools/call", STREAM, notify("notifications/message", level="info", data=1), *modern()[3].do, times=1),
            *LISTS,
            *modern(capabilities=EVERYTHING, tools=[mirrored]),
        )
    )
    await use_everything(fake, fake.url)
    assert_valid("2026-07-28", fake)
    assert header(fake.received("tools/call")[0], "Mcp-Param-A") == "1"


@pytest.mark.parametrize("version", LEGACY_VERSIONS)
async def test_legacy_messages_over_a_pipe(fake_stdio: FakeStdio, version: str) -> None:
    """Spec of each revision's schema; what came before the handshake was the probe, which is modern."""
    fake = fake_stdio(Script(*LISTS, *legacy(capabilities=EVERYTHING, version=version)))
    await use_everything(fake, fake.command)
    probe, *rest = fake.messages()
    assert judge("2026-07-28", [probe]) == [""]
    complaints = judge(version, rest)
    assert not any(complaints), [found for found in zip(complaints, rest, strict=True) if found[0]]
    assert {"initialize", "notifications/initialized", "resources/subscribe", "notifications/cancelled"} <= set(
        fake.methods()
    )
    assert next(message for message in rest if "method" not in message)["result"] == {}


async def test_the_judge_finds_fault() -> None:
    """Ours: an oracle that accepts everything would prove nothing."""
    bad = [
        {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}},
        {"jsonrpc": "2.0", "id": 1, "method": "server/discover"},
        {"jsonrpc": "2.0", "id": 1, "method": "no/such"},
        {"jsonrpc": "2.0", "id": None, "method": "server/discover"},
        {"jsonrpc": "1.0", "id": 1, "method": "server/discover"},
    ]
    complaints = await asyncio.to_thread(judge, "2026-07-28", bad)
    assert all(complaints)
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    unknown = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta, "cursors": "x"}}
    assert "cursors" in (await asyncio.to_thread(judge, "2026-07-28", [unknown]))[0]
