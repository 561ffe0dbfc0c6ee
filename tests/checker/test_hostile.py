"""Whatever a server answers, the check comes to an end with a verdict for every requirement."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.running import FakeHttp, FakeStdio
from fakes.scripts import Script, discover_result, initialize_result, on, result
from outrider.checker.report import CheckReport
from outrider.checker.requirements import REQUIREMENTS
from outrider.checker.run import CheckOptions, check

QUICK = CheckOptions(request_timeout_s=5, skip=frozenset({"http.large-body"}), call=(("a", {}),))

DEEP: Any = []
for _ in range(60):
    DEEP = [DEEP]

ODD: dict[str, Any] = {
    "null": None,
    "text": "text",
    "list": [1, "two", None],
    "empty": {},
    "wrong types": {
        "supportedVersions": "2026-07-28",
        "capabilities": [],
        "_meta": 7,
        "instructions": {},
        "ttlMs": "soon",
        "cacheScope": [],
        "resultType": None,
        "tools": {"a": 1},
        "prompts": 7,
        "resources": "none",
        "resourceTemplates": None,
        "nextCursor": {},
        "contents": 1,
        "content": {},
    },
    "odd items": {
        "tools": [None, 7, [], {}, {"name": 7}, {"name": "a", "inputSchema": 7, "outputSchema": [], "annotations": 1}],
        "prompts": [{"name": "p", "arguments": {"a": 1}}, {"name": None, "arguments": [None]}, "p"],
        "resources": [{"uri": 7}, {"uri": ":", "name": []}, None],
        "resourceTemplates": [{"uriTemplate": "{", "name": "t"}, 7],
        "resultType": {"complete": True},
        "_meta": {"": 1, "io.modelcontextprotocol/serverInfo": [1], "a/b/c": {}},
        "ttlMs": 1.5,
        "cacheScope": None,
    },
    "odd schemas": {
        "tools": [
            {"name": "a", "inputSchema": {"type": ["object", 7], "properties": [], "$ref": 7, "$schema": {}}},
            {"name": "b", "inputSchema": {"type": "object", "properties": {"x": {"$ref": "#/properties/x"}}}},
            {"name": "c", "inputSchema": {"type": "object", "allOf": [{"$ref": "#"}], "patternProperties": {"(": {}}}},
            {"name": "d", "inputSchema": {"type": "object", "x-mcp-header": 7, "$defs": None}, "outputSchema": True},
            {"name": "e", "inputSchema": {"type": "object", "properties": {"n": {"minimum": "x", "enum": 7}}}},
        ]
    },
    "deep": {"tools": DEEP, "_meta": {"a": DEEP}, "contents": DEEP},
}


def judged(report: CheckReport) -> bool:
    return report.failure is not None or len(report.findings) == len(REQUIREMENTS)


@pytest.mark.parametrize("name", ODD)
async def test_odd_results_of_lists_are_judged(name: str, fake_http: FakeHttp) -> None:
    """Ours: a modern server that describes itself well and answers everything else with the same odd value."""
    capabilities = {"tools": {"listChanged": True}, "prompts": {}, "resources": {}, "completions": {}}
    fake = fake_http(
        Script(on("server/discover", result(discover_result(capabilities=capabilities))), on(None, result(ODD[name])))
    )
    report = await check(fake.url, options=QUICK)
    assert judged(report)
    assert report.failure is None
    assert report.broken()


@pytest.mark.parametrize("name", ODD)
async def test_odd_results_of_everything_are_judged(name: str, fake_http: FakeHttp) -> None:
    """Ours: a server that answers everything with the same odd value, whatever era that may be."""
    fake = fake_http(Script(on(None, result(ODD[name]))))
    assert judged(await check(fake.url, options=CheckOptions(start_timeout_s=10, request_timeout_s=5, skip=QUICK.skip)))


@pytest.mark.parametrize("name", ODD)
async def test_odd_results_of_a_legacy_process_are_judged(name: str, fake_stdio: FakeStdio) -> None:
    """Ours: as above, over stdio and after a sound handshake."""
    capabilities = {"tools": {}, "prompts": {}, "resources": {}}
    handshake = on("initialize", result(initialize_result("2025-11-25", capabilities=capabilities)))
    fake = fake_stdio(
        Script(
            on("server/discover", {"error": {"code": -32601, "message": "no"}}), handshake, on(None, result(ODD[name]))
        )
    )
    report = await check(fake.command, options=CheckOptions(start_timeout_s=20, request_timeout_s=2))
    assert judged(report)
    assert report.failure is None
