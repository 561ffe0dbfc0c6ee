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
AUTH_SINCE_2025 = (
    "auth/basic-cimd",
    "auth/metadata-default",
    "auth/metadata-var1",
    "auth/metadata-var2",
    "auth/metadata-var3",
    "auth/pre-registration",
    "auth/scope-from-scopes-supported",
    "auth/scope-from-www-authenticate",
    "auth/scope-omitted-when-undefined",
    "auth/scope-retry-limit",
    "auth/scope-step-up",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-none",
    "auth/token-endpoint-auth-post",
)
AUTH_SINCE_2026 = (
    "auth/authorization-server-migration",
    "auth/iss-normalized",
    "auth/iss-not-advertised",
    "auth/iss-supported",
    "auth/iss-supported-missing",
    "auth/iss-unexpected",
    "auth/iss-wrong-issuer",
    "auth/metadata-issuer-mismatch",
    "auth/offline-access-not-supported",
    "auth/offline-access-scope",
    "auth/resource-mismatch",
)
# No version requires them.
AUTH_EXTENSIONS = (
    "auth/client-credentials-basic",
    "auth/client-credentials-jwt",
    "auth/dpop",
    "auth/dpop-nonce",
    "auth/enterprise-managed-authorization",
    "auth/wif-jwt-bearer",
)
# What the client promises: all that either version requires.
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
        *AUTH_SINCE_2025,
        *AUTH_SINCE_2026,
        *AUTH_EXTENSIONS,
    ),
    LEGACY: ("initialize", "tools_call", "sse-retry", "elicitation-sep1034-client-defaults", *AUTH_SINCE_2025),
}
CASES = [(version, name) for version, names in MET.items() for name in names]

pytestmark = pytest.mark.conformance


@pytest.fixture(autouse=True)
def _suite(environment: Callable[[Environment], Environment]) -> None:
    environment(NODE)


@pytest.mark.parametrize("version", MET)
def test_nothing_that_is_required_is_left_out(version: str) -> None:
    """Ours: a scenario that a newer suite requires is noticed."""
    known = required_scenarios("client", version) | unscored_scenarios("client", version)
    assert set(MET[version]) <= known
    assert not required_scenarios("client", version) - set(MET[version])


@pytest.mark.parametrize(("version", "scenario"), CASES, ids=lambda value: value)
def test_client_meets_scenario(version: str, scenario: str) -> None:
    """Ours: no check of the official suite fails or warns."""
    outcome = run_client_scenario(scenario, version, [sys.executable, str(EXAMPLE)])
    assert outcome.passed, outcome.explain()
