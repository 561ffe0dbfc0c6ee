"""The handshake as a table: what each answer to `initialize` means, when a session is over, what a client owes a legacy server."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import INVALID_PARAMS, METHOD_NOT_FOUND, MODERN_CODES, UNSUPPORTED_VERSION
from outrider.protocol.legacy import (
    LEGACY_RULES,
    after_initialize,
    answer_server_request,
    initialize_params,
    is_session_over,
)
from outrider.protocol.negotiation import Kind, Observed, Step
from outrider.protocol.versions import LEGACY_VERSIONS, MODERN_VERSIONS, VERSIONS, Era

ASKED, MODERN = "2025-11-25", "2026-07-28"


def seen(kind: Kind, *, stdio: bool = True, **facts: Any) -> Observed:
    return Observed(kind=kind, stdio=stdio, asked=ASKED, **facts)


def refused(code: int, *versions: str, **facts: Any) -> Observed:
    return seen(Kind.ERROR, code=code, versions=versions, **facts)


class TestVersions:
    @pytest.mark.parametrize("version", LEGACY_VERSIONS)
    def test_the_server_may_choose_any_legacy_version_we_speak(self, version: str) -> None:
        """Spec 2025-11-25 lifecycle#version-negotiation (MUST)."""
        decision = after_initialize(seen(Kind.DESCRIBED, versions=(version,)), answered_version=version)
        assert (decision.era, decision.step, decision.version, decision.storable) == (
            Era.LEGACY,
            Step.USE,
            version,
            True,
        )

    @pytest.mark.parametrize("version", [MODERN, "2027-03-01", "1999-01-01", ""])
    def test_nor_a_modern_or_unknown_one(self, version: str) -> None:
        """Spec versioning#backward-compatibility-with-initialization-based-versions: a handshake cannot choose a modern version."""
        decision = after_initialize(seen(Kind.DESCRIBED, versions=(version,)), answered_version=version)
        assert (decision.era, decision.step) == (Era.LEGACY, Step.FAIL)

    def test_a_pinned_era_is_kept(self) -> None:
        """Ours."""
        decision = after_initialize(seen(Kind.DESCRIBED, ours=MODERN_VERSIONS), answered_version=ASKED)
        assert decision.step is Step.FAIL

    def test_another_version_is_proposed_once(self) -> None:
        """Spec 2025-11-25 lifecycle#error-handling: the server names what it supports."""
        for code in (UNSUPPORTED_VERSION, INVALID_PARAMS):
            decision = after_initialize(refused(code, "2024-11-05", "2025-03-26"))
            assert (decision.step, decision.version) == (Step.INITIALIZE, "2025-03-26")
            assert after_initialize(refused(code, "2024-11-05", repeated=True)).step is Step.FAIL
            assert after_initialize(refused(code, ASKED)).step is Step.FAIL
            assert after_initialize(refused(code)).step is Step.FAIL

    def test_every_legacy_version_has_its_rules(self) -> None:
        """Spec of each revision, basic/transports."""
        assert tuple(LEGACY_RULES) == LEGACY_VERSIONS
        assert not LEGACY_RULES["2024-11-05"].streamable
        assert [version for version, rules in LEGACY_RULES.items() if rules.version_header] == [
            "2025-11-25",
            "2025-06-18",
        ]

    def test_what_initialize_says(self) -> None:
        """Spec 2025-11-25 lifecycle#initialization (MUST)."""
        assert initialize_params(ASKED, {"name": "t", "version": "0"}, {}) == {
            "protocolVersion": ASKED,
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "0"},
        }


class TestModernServers:
    def test_a_refusal_that_names_a_modern_version_proves_the_era(self) -> None:
        """Case 9, case 39."""
        decision = after_initialize(refused(UNSUPPORTED_VERSION, MODERN))
        assert (decision.era, decision.step, decision.version) == (Era.MODERN, Step.PROBE_AGAIN, MODERN)

    @pytest.mark.parametrize("kind", [Kind.ERROR, Kind.REJECTED])
    def test_any_refusal_before_the_probe_was_answered_leads_to_it(self, kind: Kind) -> None:
        """Case 39: the era was only remembered."""
        decision = after_initialize(seen(kind, code=-32601, status=404), probed=False)
        assert (decision.era, decision.step, decision.version) == (None, Step.PROBE_AGAIN, MODERN)
        assert after_initialize(seen(kind, code=-32601, status=404), probed=True).step is Step.FAIL
        assert after_initialize(seen(kind, code=-32601, ours=LEGACY_VERSIONS), probed=False).step is Step.FAIL

    def test_a_process_that_ended_on_an_unanswered_probe_is_started_again(self) -> None:
        """Case 2, case 33: it was still starting when the handshake was offered."""
        decision = after_initialize(seen(Kind.ENDED), probed=False)
        assert (decision.step, decision.version) == (Step.RESPAWN, ASKED)
        assert after_initialize(seen(Kind.ENDED), probed=True).step is Step.FAIL


class TestFailures:
    def test_silence_on_a_pipe_gets_a_fresh_process_once(self) -> None:
        """Case 11."""
        assert after_initialize(seen(Kind.SILENT)).step is Step.RESPAWN
        assert after_initialize(seen(Kind.SILENT, repeated=True)).step is Step.FAIL
        assert after_initialize(seen(Kind.SILENT, stdio=False)).step is Step.FAIL

    def test_denials_and_outages_are_no_verdict(self) -> None:
        """Case 14, case 15, case 19."""
        for sent, step in ((False, Step.AUTHENTICATE), (True, Step.FAIL)):
            decision = after_initialize(seen(Kind.DENIED, stdio=False, status=401, credential_sent=sent))
            assert (decision.era, decision.step) == (None, step)
        decision = after_initialize(seen(Kind.UNAVAILABLE, stdio=False, status=503))
        assert (decision.era, decision.step) == (None, Step.RETRY)

    @given(
        st.builds(
            Observed,
            kind=st.sampled_from(Kind),
            stdio=st.booleans(),
            asked=st.sampled_from(LEGACY_VERSIONS),
            versions=st.lists(st.sampled_from([*VERSIONS, "x"]), max_size=3).map(tuple),
            code=st.none() | st.sampled_from([-32601, -32602, *MODERN_CODES]),
            status=st.none() | st.integers(100, 599),
            credential_sent=st.booleans(),
            repeated=st.booleans(),
            ours=st.sampled_from([tuple(VERSIONS), LEGACY_VERSIONS]),
        ),
        st.sampled_from([*VERSIONS, "", "x"]),
        st.booleans(),
    )
    def test_every_observation_leads_somewhere_and_no_two_halves_go_on_for_ever(
        self, observed: Observed, answered: str, probed: bool
    ) -> None:
        """Ours: a version for each step that needs one, of the right era; a repeated handshake never leads back to the probe."""
        decision = after_initialize(observed, answered_version=answered, probed=probed)
        assert decision.row
        if decision.step in (Step.USE, Step.INITIALIZE, Step.RESPAWN):
            assert decision.version in observed.ours
            assert VERSIONS[decision.version] is Era.LEGACY
        if decision.step is Step.PROBE_AGAIN:
            assert VERSIONS[decision.version] is Era.MODERN
        if observed.repeated:
            assert decision.step not in (Step.PROBE_AGAIN, Step.INITIALIZE)


class TestSessions:
    @pytest.mark.parametrize(
        ("status", "text", "over"),
        [
            (404, "", True),
            (404, "whatever", True),
            (400, "Bad Request: No valid session ID provided", True),
            (400, "Invalid params", False),
            (410, "Session gone", True),
            (410, "", True),
            (409, "session conflict", True),
            (422, "invalid session", True),
            (422, "field required", False),
            (200, "Server not initialized", True),
            (400, "Bad Request: Server not initialized", True),
            (400, "not yet initialised", True),
            (403, "session", False),
            (503, "session lost", True),
            (503, "maintenance", False),
            (200, "session expired", True),
            (200, "Method not found", False),
            (500, "session", False),
            (401, "session expired", False),
        ],
    )
    def test_when_a_session_is_over(self, status: int, text: str, over: bool) -> None:
        """Spec 2025-11-25 transports#session-management (MUST for 404); case 96 for the rest."""
        assert is_session_over(status, text, had_session=True) is over
        assert not is_session_over(status, text, had_session=False)


class TestServerRequests:
    def test_what_a_client_without_handlers_answers(self) -> None:
        """Case 102; spec 2025-11-25 utilities/ping (MUST)."""
        assert answer_server_request("ping") == {}
        for method in ("roots/list", "sampling/createMessage", "elicitation/create", "x" * 10_000, ""):
            answer = answer_server_request(method)
            assert isinstance(answer, tuple)
            assert answer[0] == METHOD_NOT_FOUND
            assert len(answer[1]) < 200
