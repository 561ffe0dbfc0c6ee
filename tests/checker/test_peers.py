"""Real servers: ours, where nothing may be found, and those of others, where each finding is confirmed in docs/findings.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.checker.checks import Verdict
from outrider.checker.requirements import Level
from outrider.checker.run import CheckOptions, check
from peers.ours import EVERYTHING, OUTRIDER, serving_everything
from peers.registry import PEERS, Peer, serving

FINDINGS = Path(__file__).resolve().parents[2] / "docs" / "findings.md"
PATIENT = CheckOptions(start_timeout_s=120, request_timeout_s=30, deadline_s=240)

CONFIRMED: dict[str, set[str]] = {
    "python-sdk2-high-stdio": {"list.invalid-cursor", "prompt.unknown"},
    "python-sdk2-high-http": {"list.invalid-cursor", "prompt.unknown"},
    "python-sdk2-low-stdio": {"list.invalid-cursor", "prompt.unknown", "resource.unknown"},
    "python-sdk2-low-http": {"list.invalid-cursor", "prompt.unknown", "resource.unknown"},
    "fastmcp4-stdio": {"list.invalid-cursor"},
    "fastmcp4-http": {"list.invalid-cursor", "http.origin"},
    "python-sdk1-stdio": {"list.invalid-cursor", "legacy.unknown-method"},
    "python-sdk1-http": {"list.invalid-cursor", "legacy.unknown-method", "rpc.error-id"},
    "fastmcp3-stdio": {"list.invalid-cursor", "legacy.unknown-method"},
    "fastmcp3-http": {"list.invalid-cursor", "legacy.unknown-method", "rpc.error-id", "http.origin"},
    "typescript-sdk2-stdio": {"list.invalid-cursor", "version.unknown", "version.legacy-in-meta", "version.odd-values"},
    "typescript-sdk2-http": {"list.invalid-cursor"},
    "npm-everything-stdio": {"list.invalid-cursor"},
    "npm-everything-http": {"list.invalid-cursor", "http.origin", "legacy.session-ended"},
    "npm-filesystem-stdio": {"list.invalid-cursor"},
    "npm-memory-stdio": {"list.invalid-cursor"},
    "npm-sequential-thinking-stdio": {"list.invalid-cursor"},
}
"""What breaks a MUST or a SHOULD; rules of quality may depend on how busy the machine is."""

CHECKED = [peer for peer in PEERS if peer.transport != "sse"]


async def test_our_server_breaks_no_rule_over_stdio() -> None:
    """Ours: at no level but those that measure time, which a busy machine may break."""
    report = await check([OUTRIDER, "run", EVERYTHING], options=PATIENT)
    assert report.failure is None
    broken = {finding.requirement.id: finding.message for finding in report.broken()}
    assert set(broken) <= {"discover.latency", "stdio.start-time"}, broken
    assert report.of(Verdict.NOT_VERIFIABLE) == []
    assert report.eras == ("modern", "legacy")


async def test_our_server_breaks_no_rule_over_http() -> None:
    """Ours: as above."""
    with serving_everything() as url:
        report = await check(url, options=PATIENT)
    assert report.failure is None
    broken = {finding.requirement.id: finding.message for finding in report.broken()}
    assert set(broken) <= {"discover.latency"}, broken
    assert report.of(Verdict.NOT_VERIFIABLE) == []
    assert len(report.of(Verdict.PASS)) > 100


@pytest.mark.interop
@pytest.mark.parametrize("peer", CHECKED, ids=str)
async def test_findings_on_a_peer_are_the_confirmed_ones(peer: Peer, installed_peer: Peer) -> None:
    """Ours: no finding of a MUST or a SHOULD that nobody has looked at, and none that has gone unnoticed."""
    if peer.transport == "stdio":
        report = await check(installed_peer.command, options=PATIENT)
    else:
        with serving(installed_peer) as running:
            report = await check(running.url, options=PATIENT)
    assert report.failure is None, report.failure
    found = {finding.requirement.id: finding.message for finding in report.broken(Level.SHOULD)}
    assert set(found) == CONFIRMED[peer.id], found


def test_every_finding_is_written_down() -> None:
    """Ours: each peer and each of its findings has its place in the document."""
    assert {peer.id for peer in CHECKED} == set(CONFIRMED)
    document = FINDINGS.read_text(encoding="utf-8")
    for peer_id, requirements in CONFIRMED.items():
        assert f"`{peer_id}`" in document, peer_id
        for requirement_id in requirements:
            section = document.split(f"## {requirement_id}\n")[1].split("\n## ")[0]
            assert f"`{peer_id}`" in section or "all peers" in section, (peer_id, requirement_id)
