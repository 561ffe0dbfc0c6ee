"""Where the official conformance suite checks the same rule, our verdict is the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from conformance.run import run_server_scenario
from outrider.checker.checks import Verdict
from outrider.checker.run import CheckOptions, check
from peers.ours import serving_everything
from peers.provision import NODE, Environment
from peers.registry import PEERS, serving

MODERN = "2026-07-28"
SCENARIOS = (
    "server-stateless",
    "caching",
    "dns-rebinding-protection",
    "sep-2164-resource-not-found",
    "http-header-validation",
)

SAME_RULE = {
    "sep-2575-request-meta-invalid-missing-meta": "meta.missing",
    "sep-2575-request-meta-invalid-missing-protocol-version": "meta.missing-version",
    "sep-2575-request-meta-invalid-missing-client-capabilities": "meta.missing-capabilities",
    "sep-2575-http-server-meta-invalid-400": "meta.status",
    "sep-2575-request-meta-client-info-optional": "discover.client-info-optional",
    "sep-2575-server-implements-discover": "discover.answers",
    "sep-2575-server-identifies-in-result-meta": "discover.identity",
    "sep-2575-server-unsupported-version-error": "version.unknown",
    "sep-2575-http-server-unsupported-version-400": "version.status",
    "sep-2575-http-server-header-mismatch-400": "http.version-header-mismatch",
    "sep-2575-http-server-method-not-found-404": "rpc.unknown-method-status",
    "sep-2575-http-server-error-jsonrpc-id": "rpc.error-id",
    "sep-2549-ttl-non-negative": "cache.list-ttl",
    "sep-2549-cache-scope-valid": "cache.list-scope",
    "sep-2549-resources-read-caching-hints": "cache.read-hints",
    "localhost-host-rebinding-rejected": "http.origin",
    "sep-2164-error-code": "resource.unknown",
    "sep-2243-header-name-case-insensitive": "http.header-names-case",
}
"""A check of the suite, and the requirement of ours that is the same rule."""

SERVERS = ("ours", *(peer.id for peer in PEERS if peer.transport == "http" and peer.era == "modern"))


@contextmanager
def running(name: str, environment: Callable[[Environment], Environment]) -> Iterator[str]:
    environment(NODE)
    if name == "ours":
        with serving_everything() as url:
            yield url
        return
    peer = next(peer for peer in PEERS if peer.id == name)
    environment(peer.environment)
    with serving(peer) as found:
        yield found.url


@pytest.mark.conformance
@pytest.mark.interop
@pytest.mark.parametrize("server", SERVERS)
async def test_verdicts_agree_with_the_official_suite(
    server: str, environment: Callable[[Environment], Environment]
) -> None:
    """Ours: the same rule, the same server, the same verdict."""
    with running(server, environment) as url:
        report = await check(url, options=CheckOptions(request_timeout_s=30, deadline_s=240))
        theirs: dict[str, bool] = {}
        for scenario in SCENARIOS:
            for verdict in run_server_scenario(scenario, MODERN, url).checks:
                # What it cannot test for want of a fixture is no verdict about the server.
                if verdict.id in SAME_RULE and verdict.status != "SKIPPED" and "Not testable" not in verdict.error:
                    theirs[verdict.id] = theirs.get(verdict.id, True) and verdict.status in ("SUCCESS", "INFO")
    ours = {name: report.finding(requirement_id).verdict is Verdict.PASS for name, requirement_id in SAME_RULE.items()}
    assert len(theirs) > 12
    assert {name: ours[name] for name in theirs} == theirs
