"""The conformance harness tells a pass from a failure, a scenario that did not run, and a client that does not start."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from conformance.run import (
    Check,
    Outcome,
    required_scenarios,
    run_client_scenario,
    run_server_scenario,
    run_server_scenarios,
    unscored_scenarios,
)
from peers.provision import NODE, Environment
from peers.registry import PEERS, Peer

pytestmark = pytest.mark.conformance


@pytest.fixture(autouse=True)
def _suite(environment: Callable[[Environment], Environment]) -> None:
    environment(NODE)


@pytest.fixture
def peer() -> Peer:
    """A server that offers some of what the suite asks for."""
    return next(peer for peer in PEERS if peer.id == "typescript-sdk2-http")


def test_requirements_are_those_of_the_pinned_suite() -> None:
    """Ours: a newer suite that requires more is noticed here, not passed over."""
    assert len(required_scenarios("server", "2026-07-28")) == 37
    assert len(required_scenarios("server", "2025-11-25")) == 30
    assert len(required_scenarios("client", "2026-07-28")) == 32
    assert len(required_scenarios("client", "2025-11-25")) == 18
    assert "server-sse-polling" in unscored_scenarios("server", "2025-11-25")


def test_scenario_that_a_server_meets_passes(peer_url: str) -> None:
    """Ours: a passing scenario has checks and no objection."""
    outcome = run_server_scenario("tools-list", "2026-07-28", peer_url)
    assert outcome.passed, outcome.explain()
    assert "checks passed" in outcome.explain()


def test_scenario_that_a_server_does_not_meet_fails_with_the_reason(peer_url: str) -> None:
    """Ours: the explanation names the check and what was seen."""
    outcome = run_server_scenario("tools-call-image", "2026-07-28", peer_url)
    assert not outcome.passed
    assert [check.id for check in outcome.objections] == ["tools-call-image"]
    assert "FAILURE tools-call-image" in outcome.explain()


def test_all_scenarios_in_one_run_give_the_same_verdicts(peer_url: str) -> None:
    """Ours: running everything at once is only faster."""
    outcomes = run_server_scenarios("2026-07-28", peer_url)
    assert required_scenarios("server", "2026-07-28") <= outcomes.keys()
    assert outcomes["tools-list"].passed, outcomes["tools-list"].explain()
    assert not outcomes["tools-call-image"].passed


def test_scenario_outside_its_versions_is_no_pass(peer_url: str) -> None:
    """Ours: the suite exits with 0 when it skips, which must not count."""
    outcome = run_server_scenario("server-stateless", "2025-11-25", peer_url)
    assert outcome.exit_code == 0
    assert not outcome.passed
    assert "did not run" in outcome.explain()


def test_client_that_says_nothing_fails_with_its_output() -> None:
    """Ours: a client's own words are part of the explanation."""
    script = "import sys; sys.exit('cannot be bothered')"
    outcome = run_client_scenario("tools_call", "2026-07-28", [sys.executable, "-c", script])
    assert not outcome.passed
    assert "cannot be bothered" in outcome.explain()


def test_warning_is_an_objection() -> None:
    """Ours: what the specification says SHOULD be, we do."""
    met = Check("x", "X", "SUCCESS", "d", "", None)
    warned = Check("y", "Y", "WARNING", "d", "", None)
    assert Outcome("s", "v", (met,), 0, "").passed
    assert not Outcome("s", "v", (met, warned), 0, "").passed
    assert not Outcome("s", "v", (met,), None, "").passed
