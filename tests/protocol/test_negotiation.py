"""The era decision: the whole table, its precedence, and that nothing falls through it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY, MODERN_CODES, UNSUPPORTED_VERSION
from outrider.protocol.negotiation import ERA_TABLE, Decision, Kind, Observed, Step, decide
from outrider.protocol.versions import LEGACY_VERSIONS, MODERN_VERSIONS, VERSIONS, Era

MODERN, LEGACY, FUTURE = "2026-07-28", "2025-11-25", "2027-03-01"


def seen(kind: Kind, *, stdio: bool = True, **facts: Any) -> Observed:
    return Observed(kind=kind, stdio=stdio, asked=MODERN, **facts)


def http(kind: Kind, status: int | None = None, **facts: Any) -> Observed:
    return seen(kind, stdio=False, status=status, **facts)


def error(code: int, *versions: str, stdio: bool = True, **facts: Any) -> Observed:
    return seen(Kind.ERROR, stdio=stdio, code=code, versions=versions, **facts)


# What the probe got; the verdict; the next step; the version it is taken with.
TABLE = [
    # Valid DiscoverResult with a mutual modern version: modern, use it.
    (seen(Kind.DESCRIBED, versions=(MODERN,)), Era.MODERN, Step.USE, MODERN),
    (seen(Kind.DESCRIBED, versions=(FUTURE, MODERN)), Era.MODERN, Step.USE, MODERN),
    (seen(Kind.DESCRIBED, versions=(LEGACY, MODERN)), Era.MODERN, Step.USE, MODERN),
    (http(Kind.DESCRIBED, 200, versions=(MODERN,)), Era.MODERN, Step.USE, MODERN),
    # DiscoverResult, only legacy versions in common: legacy, `initialize` with the highest common one.
    (seen(Kind.DESCRIBED, versions=("2025-03-26", "2025-06-18")), Era.LEGACY, Step.INITIALIZE, "2025-06-18"),
    (seen(Kind.DESCRIBED, versions=(FUTURE, LEGACY)), Era.LEGACY, Step.INITIALIZE, LEGACY),
    # DiscoverResult without anything in common: modern; `initialize` cannot help.
    (seen(Kind.DESCRIBED, versions=(FUTURE,)), Era.MODERN, Step.FAIL, ""),
    (seen(Kind.DESCRIBED), Era.MODERN, Step.FAIL, ""),
    # -32022, only legacy versions that we speak: legacy by the server's own list.
    (error(UNSUPPORTED_VERSION, LEGACY, "2025-06-18"), Era.LEGACY, Step.INITIALIZE, LEGACY),
    (error(UNSUPPORTED_VERSION, "2025-03-26", stdio=False, status=400), Era.LEGACY, Step.INITIALIZE, "2025-03-26"),
    # -32022 otherwise: modern; report, and no `initialize`.
    (error(UNSUPPORTED_VERSION), Era.MODERN, Step.FAIL, ""),
    (error(UNSUPPORTED_VERSION, FUTURE), Era.MODERN, Step.FAIL, ""),
    # -32022 that names the very version it refuses: once more, as behind a balancer in the middle of an upgrade.
    (error(UNSUPPORTED_VERSION, MODERN), Era.MODERN, Step.PROBE_AGAIN, MODERN),
    (error(UNSUPPORTED_VERSION, MODERN, LEGACY), Era.MODERN, Step.PROBE_AGAIN, MODERN),
    (error(UNSUPPORTED_VERSION, MODERN, LEGACY, repeated=True), Era.MODERN, Step.FAIL, ""),
    # -32020: modern; once more, then something on the way is to blame. -32021: modern; report.
    (error(HEADER_MISMATCH, stdio=False, status=400), Era.MODERN, Step.PROBE_AGAIN, MODERN),
    (error(HEADER_MISMATCH, stdio=False, status=400, repeated=True), Era.MODERN, Step.FAIL, ""),
    (error(MISSING_CLIENT_CAPABILITY), Era.MODERN, Step.FAIL, ""),
    # stdio: any other error object: legacy, the same process.
    *((error(code), Era.LEGACY, Step.INITIALIZE, LEGACY) for code in (-32601, -32602, -32600, -32603, -32000, 0, 1)),
    # stdio: end before an answer: once more from the start, `initialize` first.
    (seen(Kind.ENDED), Era.LEGACY, Step.RESPAWN, LEGACY),
    # stdio: silence until the limit: the same process, and the late answer still counts.
    (seen(Kind.SILENT), Era.LEGACY, Step.INITIALIZE, LEGACY),
    # HTTP 400/404/405/406/415 or 2xx without a usable body: legacy.
    *(
        (http(Kind.REJECTED, status), Era.LEGACY, Step.INITIALIZE, LEGACY)
        for status in (200, 202, 400, 404, 405, 406, 410, 415, 418, 422)
    ),
    # HTTP: an error in the body that is no modern one.
    (error(-32600, stdio=False, status=400), Era.LEGACY, Step.INITIALIZE, LEGACY),
    (error(-32601, stdio=False, status=200), Era.LEGACY, Step.INITIALIZE, LEGACY),
    # HTTP 401/403 without a credential: authenticate, then probe again.
    (http(Kind.DENIED, 401), None, Step.AUTHENTICATE, ""),
    (http(Kind.DENIED, 403), None, Step.AUTHENTICATE, ""),
    # HTTP 401/403 with a credential: `initialize` once.
    (http(Kind.DENIED, 401, credential_sent=True), None, Step.INITIALIZE, LEGACY),
    (http(Kind.DENIED, 403, credential_sent=True), None, Step.INITIALIZE, LEGACY),
    # HTTP: no answer until the limit: `initialize` once.
    (http(Kind.SILENT), None, Step.INITIALIZE, LEGACY),
    # HTTP 429/5xx, TCP, TLS, DNS: back off and retry.
    *((http(Kind.UNAVAILABLE, status), None, Step.RETRY, "") for status in (429, 500, 502, 503, None)),
    # Redirects, and a host check: nothing about the era.
    *((http(Kind.REJECTED, status), None, Step.FAIL, "") for status in (301, 302, 307, 308, 421)),
]


@pytest.mark.parametrize(("observed", "era", "step", "version"), TABLE)
def test_the_table(observed: Observed, era: Era | None, step: Step, version: str) -> None:
    """Spec versioning#backward-compatibility-with-initialization-based-versions and the transports' own sections; outages, denials
    and silence over HTTP are ours.
    """
    decision = decide(observed)
    assert (decision.era, decision.step, decision.version) == (era, step, version)
    assert decision.row


def test_a_refused_version_with_another_modern_one_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spec versioning#protocol-version-negotiation: once there are two modern revisions."""
    newer = {FUTURE: Era.MODERN, **VERSIONS}
    monkeypatch.setattr("outrider.protocol.versions.VERSIONS", newer)
    facts: dict[str, Any] = {
        "asked": FUTURE,
        "ours": tuple(newer),
        "stdio": True,
        "kind": Kind.ERROR,
        "code": UNSUPPORTED_VERSION,
    }
    first = decide(Observed(versions=(FUTURE, MODERN), **facts))
    assert (first.era, first.step, first.version) == (Era.MODERN, Step.PROBE_AGAIN, MODERN)
    again = decide(Observed(versions=(FUTURE, MODERN), repeated=True, **facts))
    assert (again.era, again.step) == (Era.MODERN, Step.FAIL)
    described = decide(Observed(versions=(MODERN, FUTURE), **{**facts, "kind": Kind.DESCRIBED, "code": None}))
    assert (described.step, described.version) == (Step.USE, FUTURE)


@pytest.mark.parametrize("code", sorted(MODERN_CODES))
@pytest.mark.parametrize("status", [401, 403])
def test_a_modern_error_in_a_denial_is_still_a_modern_error(code: int, status: int) -> None:
    """Ours: precedence; a recognized modern error proves the era under whatever status it travels."""
    assert decide(http(Kind.DENIED, status, code=code)).era is Era.MODERN


@pytest.mark.parametrize(
    ("status", "worth"), [(400, True), (404, True), (405, True), (406, False), (415, False), (200, False)]
)
def test_the_oldest_transport_is_tried_only_where_the_specification_says(status: int, worth: bool) -> None:
    """Spec streamable-http#httpsse-transport-2024-11-05."""
    assert decide(http(Kind.REJECTED, status)).then_sse is worth
    assert decide(error(-32600, stdio=False, status=status)).then_sse is worth


def test_a_late_answer_counts_only_after_silence_on_a_pipe() -> None:
    """Case 9."""
    assert decide(seen(Kind.SILENT)).keep_listening
    assert [row.name for row in ERA_TABLE if decide_by(row).keep_listening] == ["silent on a pipe"]


def decide_by(row: Any) -> Decision:
    """The decision of a row about some observation that it decides."""
    return next(
        (decide(observed) for observed, *_ in TABLE if decide(observed).row == row.name),
        Decision(era=None, step=Step.FAIL),
    )


def test_every_row_is_needed() -> None:
    """Ours: no row that never decides; the one about two modern versions has its own test."""
    decided = {decide(observed).row for observed, *_ in TABLE}
    assert {row.name for row in ERA_TABLE} - decided == {"version refused, another modern version in common"}


observations = st.builds(
    Observed,
    kind=st.sampled_from(Kind),
    stdio=st.booleans(),
    asked=st.sampled_from([*MODERN_VERSIONS, FUTURE]),
    versions=st.lists(st.sampled_from([*VERSIONS, FUTURE, "x"]), max_size=4).map(tuple),
    code=st.none() | st.sampled_from([-32601, -32602, 0, *MODERN_CODES]),
    status=st.none() | st.integers(100, 599),
    credential_sent=st.booleans(),
    repeated=st.booleans(),
    ours=st.sampled_from([tuple(VERSIONS), MODERN_VERSIONS, LEGACY_VERSIONS]),
)


class TestEveryObservation:
    @given(observations)
    def test_fits_a_row(self, observed: Observed) -> None:
        """Ours: whatever comes back, there is a decision, and it can be carried out."""
        decision = decide(observed)
        assert decision.row in {row.name for row in ERA_TABLE}
        assert bool(decision.version) == (decision.step in (Step.USE, Step.PROBE_AGAIN, Step.INITIALIZE, Step.RESPAWN))

    @given(observations)
    def test_leads_only_to_versions_we_are_willing_to_speak(self, observed: Observed) -> None:
        """Ours: a pinned era is kept."""
        decision = decide(observed)
        if decision.step is not Step.PROBE_AGAIN:
            assert decision.version in ("", *observed.ours)
        if decision.step in (Step.INITIALIZE, Step.RESPAWN):
            assert VERSIONS[decision.version] is Era.LEGACY
        if decision.step is Step.USE:
            assert VERSIONS[decision.version] is Era.MODERN

    @given(observations)
    def test_is_stored_only_with_evidence(self, observed: Observed) -> None:
        """Case 39: never from a denial, an outage or silence over HTTP."""
        decision = decide(observed)
        assert decision.storable <= (decision.era is not None)
        if observed.code not in MODERN_CODES and (
            observed.kind in (Kind.DENIED, Kind.UNAVAILABLE) or (observed.kind is Kind.SILENT and not observed.stdio)
        ):
            assert decision.era is None
            assert not decision.storable

    @given(observations)
    def test_modern_codes_lead_to_a_handshake_only_by_the_servers_own_list(self, observed: Observed) -> None:
        """Case 85, case 83."""
        if observed.code in MODERN_CODES and observed.kind is Kind.ERROR:
            decision = decide(observed)
            if decision.step is Step.INITIALIZE:
                assert observed.code == UNSUPPORTED_VERSION
                assert decision.version in observed.versions

    @given(observations.filter(lambda observed: observed.repeated))
    def test_nothing_is_probed_a_third_time(self, observed: Observed) -> None:
        """Ours: no loop."""
        assert decide(observed).step is not Step.PROBE_AGAIN
