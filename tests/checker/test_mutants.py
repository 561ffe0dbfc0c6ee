"""The mutation table: a correct server with one rule broken at a time, and the check that finds exactly that one."""

from __future__ import annotations

import pytest

from outrider.checker.checks import Verdict
from outrider.checker.requirements import REQUIREMENTS, Applies, find_requirement
from outrider.checker.run import CheckOptions, check

WITHOUT_MUTANT = {
    "discover.versions-true": "there is one modern revision; a server that refuses it is not taken for a modern one",
    "legacy.initialize": "a server that refuses both server/discover and initialize cannot be checked at all",
    "cache.public-varies": "needs a credential; see test_check.py",
}
"""Requirements that no mutant can break, and why."""

CONSEQUENCES: dict[str, set[str]] = {}
"""What else is found, unavoidably, when a rule is broken: nothing so far."""

PLACES = {
    Applies.MODERN: ("modern", "http"),
    Applies.MODERN_HTTP: ("modern", "http"),
    Applies.HTTP: ("modern", "http"),
    Applies.ANY: ("modern", "http"),
    Applies.MODERN_STDIO: ("modern", "stdio"),
    Applies.STDIO: ("modern", "stdio"),
    Applies.LEGACY: ("legacy", "http"),
    Applies.LEGACY_HTTP: ("legacy", "http"),
    Applies.LEGACY_STDIO: ("legacy", "stdio"),
}
"""Which flavour of the model a rule is broken in, and over which transport."""

OWN_PLACES = {
    "rpc.deep-json": ("modern", "stdio"),
    "dual.independent": ("dual", "stdio"),
    "dual.same-tools": ("dual", "http"),
    "legacy.version": ("dual", "http"),
}

MUTANTS = [requirement.id for requirement in REQUIREMENTS if requirement.id not in WITHOUT_MUTANT]


TIMED = {"discover.latency", "stdio.start-time", "stdio.eof"}
"""What a machine that is busy with something else may break by itself."""


def options_for(mutation: str) -> CheckOptions:
    """Patience for a server on this machine that never waits; the one check that moves megabytes only where it is meant."""
    return CheckOptions(
        request_timeout_s=10,
        skip=frozenset({"http.large-body"} - {mutation}),
        call=(("add", {"a": 1, "b": 2}),),
    )


def target_of(mutation: str, flavour: str, transport: str, command: list[str], url: str) -> str | list[str]:
    return f"{url}/{flavour}/{mutation}" if transport == "http" else [*command, "stdio", flavour, mutation]


@pytest.mark.parametrize("transport", ["http", "stdio"])
@pytest.mark.parametrize("flavour", ["modern", "legacy", "dual"])
async def test_correct_server_breaks_no_rule(
    flavour: str, transport: str, model_command: list[str], model_url: str
) -> None:
    """Ours: nothing is found where nothing is wrong, at no level."""
    target = target_of("none", flavour, transport, model_command, model_url)
    report = await check(target, options=options_for("none"))
    assert report.failure is None
    found = {finding.requirement.id: finding.message for finding in report.broken()}
    assert set(found) <= TIMED, found
    assert report.eras == (("modern", "legacy") if flavour == "dual" else (flavour,))
    doubts = {f.requirement.id for f in report.of(Verdict.NOT_VERIFIABLE)}
    # A server of both eras leaves open what the specification leaves open to it.
    assert doubts - {"http.large-body"} <= ({"meta.missing"} if flavour == "dual" and transport == "stdio" else set())


@pytest.mark.parametrize("mutation", MUTANTS)
async def test_broken_rule_is_found_and_nothing_else(mutation: str, model_command: list[str], model_url: str) -> None:
    """Ours: one rule broken, that rule found, and only what follows from it unavoidably."""
    requirement = find_requirement(mutation)
    assert requirement is not None
    flavour, transport = OWN_PLACES.get(mutation, PLACES[requirement.applies])
    target = target_of(mutation, flavour, transport, model_command, model_url)
    report = await check(target, options=options_for(mutation))
    assert report.failure is None, report.failure
    found = {finding.requirement.id: finding.message for finding in report.broken()}
    assert mutation in found
    assert set(found) - {mutation} - TIMED == CONSEQUENCES.get(mutation, set()), found


def test_every_requirement_has_a_mutant_or_a_reason() -> None:
    """Ours: the reasons name requirements that exist, and are reasons."""
    known = {requirement.id for requirement in REQUIREMENTS}
    assert set(WITHOUT_MUTANT) <= known
    assert all(WITHOUT_MUTANT.values())
    assert set(OWN_PLACES) | set(CONSEQUENCES) <= known
