"""The official conformance suite against ``examples/everything_server.py``, one process for both eras."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import pytest

from conformance.run import (
    Outcome,
    required_scenarios,
    run_server_extensions,
    run_server_scenarios,
    unscored_scenarios,
)
from peers.ours import serving_everything
from peers.provision import NODE, Environment

MODERN, LEGACY = "2026-07-28", "2025-11-25"

IN_BOTH_VERSIONS = (
    "completion-complete",
    "dns-rebinding-protection",
    "prompts-get-embedded-resource",
    "prompts-get-simple",
    "prompts-get-with-args",
    "prompts-get-with-image",
    "prompts-list",
    "resources-list",
    "resources-read-binary",
    "resources-read-text",
    "resources-templates-read",
    "server-sse-multiple-streams",
    "tools-call-audio",
    "tools-call-embedded-resource",
    "tools-call-error",
    "tools-call-image",
    "tools-call-mixed-content",
    "tools-call-simple-text",
    "tools-call-with-progress",
    "tools-list",
)
REQUIRED = {
    MODERN: (
        *IN_BOTH_VERSIONS,
        "caching",
        "input-required-result-basic-elicitation",
        "input-required-result-basic-list-roots",
        "input-required-result-basic-sampling",
        "input-required-result-capability-check",
        "input-required-result-ignore-extra-params",
        "input-required-result-missing-input-response",
        "input-required-result-multi-round",
        "input-required-result-multiple-input-requests",
        "input-required-result-non-tool-request",
        "input-required-result-request-state",
        "input-required-result-result-type",
        "input-required-result-tampered-state",
        "input-required-result-unsupported-methods",
        "input-required-result-validate-input",
        "sep-2164-resource-not-found",
        "server-stateless",
    ),
    LEGACY: (
        *IN_BOTH_VERSIONS,
        "elicitation-sep1034-defaults",
        "elicitation-sep1330-enums",
        "logging-set-level",
        "ping",
        "resources-subscribe",
        "resources-unsubscribe",
        "server-initialize",
        "tools-call-elicitation",
        "tools-call-sampling",
        "tools-call-with-logging",
    ),
}
# The suite requires these of nobody; we meet them all the same.
EXTRA = {
    MODERN: ("http-custom-header-server-validation", "http-header-validation", "json-schema-2020-12"),
    LEGACY: ("json-schema-2020-12", "server-session-lifecycle", "server-sse-polling"),
}
# Extensions belong to no version, and the suite requires them of nobody.
EXTENSIONS = (
    "tasks-capability-negotiation",
    "tasks-dispatch-and-envelope",
    "tasks-lifecycle",
    "tasks-mrtr-composition",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-request-state-removal",
    "tasks-required-task-error",
    "tasks-wire-fields",
)
# The suite itself skips it, until it is written for listen streams.
SKIPPED_BY_THE_SUITE = "tasks-status-notifications"
CASES = [(version, name) for version in REQUIRED for name in (*REQUIRED[version], *EXTRA[version])]

pytestmark = pytest.mark.conformance


@pytest.fixture(scope="module")
def url(environment: Callable[[Environment], Environment]) -> Iterator[str]:
    environment(NODE)
    with serving_everything() as running:
        yield running


@pytest.fixture(scope="module")
def outcomes(url: str) -> Callable[[str], dict[str, Outcome]]:
    """A function that returns what came of every scenario at a version; the suite runs once for each."""
    return cache(lambda version: run_server_scenarios(version, url))


@pytest.fixture(scope="module")
def extension_outcomes(url: str) -> dict[str, Outcome]:
    """What came of every scenario of an extension, by its name."""
    return run_server_extensions(url)


@pytest.mark.parametrize("version", REQUIRED)
def test_no_required_scenario_is_left_out(version: str, environment: Callable[[Environment], Environment]) -> None:
    """Ours: the lists above are the suite's own."""
    environment(NODE)
    assert set(REQUIRED[version]) == required_scenarios("server", version)
    unscored = {*EXTENSIONS, SKIPPED_BY_THE_SUITE, *EXTRA[MODERN]} if version == MODERN else set(EXTRA[LEGACY])
    assert unscored_scenarios("server", version) <= unscored


@pytest.mark.parametrize(("version", "scenario"), CASES, ids=lambda value: value)
def test_server_meets_scenario(version: str, scenario: str, outcomes: Callable[[str], dict[str, Outcome]]) -> None:
    """Ours: no check of the official suite fails or warns."""
    found = outcomes(version)
    assert scenario in found, f"the suite did not finish it; it finished {', '.join(sorted(found)) or 'nothing'}"
    assert found[scenario].passed, found[scenario].explain()


@pytest.mark.parametrize("scenario", EXTENSIONS)
def test_server_meets_scenario_of_an_extension(scenario: str, extension_outcomes: dict[str, Outcome]) -> None:
    """Ours: no check of the official suite fails or warns."""
    assert extension_outcomes[scenario].passed, extension_outcomes[scenario].explain()


def test_a_scenario_that_the_suite_skips_is_noticed_when_it_no_longer_does(
    extension_outcomes: dict[str, Outcome],
) -> None:
    """Ours: it moves up to the others then."""
    assert [check.status for check in extension_outcomes[SKIPPED_BY_THE_SUITE].checks] == ["SKIPPED"]
