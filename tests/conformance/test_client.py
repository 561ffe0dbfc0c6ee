"""The official conformance suite against ``examples/conformance_client.py``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.run import required_scenarios, run_client_scenario, unscored_scenarios
from peers.provision import NODE, Environment

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "conformance_client.py"

MODERN, LEGACY = "2026-07-28", "2025-11-25"
# What the client promises so far. Everything else that the suite requires of a client concerns signing in, or answering a server's
# questions.
MET = {
    MODERN: (
        "tools_call",
        "request-metadata",
        "http-standard-headers",
        "http-custom-headers",
        "http-invalid-tool-headers",
        "json-schema-ref-no-deref",
        "json-schema-2020-12-preservation",
        "sep-2322-client-request-state",
    ),
    LEGACY: ("initialize", "tools_call", "sse-retry", "elicitation-sep1034-client-defaults"),
}
CASES = [(version, name) for version, names in MET.items() for name in names]

pytestmark = pytest.mark.conformance


@pytest.fixture(autouse=True)
def _suite(environment: Callable[[Environment], Environment]) -> None:
    environment(NODE)


@pytest.mark.parametrize("version", MET)
def test_only_signing_in_and_answering_are_left_out(version: str) -> None:
    """Ours: a scenario that a newer suite requires is noticed."""
    known = required_scenarios("client", version) | unscored_scenarios("client", version)
    left_out = required_scenarios("client", version) - set(MET[version])
    assert set(MET[version]) <= known
    assert {name for name in left_out if not name.startswith("auth/")} <= {
        "elicitation-sep1034-client-defaults",
        "sep-2322-client-request-state",
    }


@pytest.mark.parametrize(("version", "scenario"), CASES, ids=lambda value: value)
def test_client_meets_scenario(version: str, scenario: str) -> None:
    """Ours: no check of the official suite fails or warns."""
    outcome = run_client_scenario(scenario, version, [sys.executable, str(EXAMPLE)])
    assert outcome.passed, outcome.explain()
