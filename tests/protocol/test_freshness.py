"""The caching page of the specification, sentence by sentence, and what we add where it leaves the choice."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import (
    AuthRequired,
    ConnectionLost,
    PeerError,
    RemoteProtocolError,
    StoreError,
    TimedOut,
    peer_error,
)
from outrider.protocol.freshness import (
    CACHEABLE_METHODS,
    EVERYTHING,
    LIST_METHODS,
    Freshness,
    Policy,
    Scope,
    State,
    Timeline,
    aggregate,
    changed_marks,
    judge,
    marks_of,
    may_serve_stale,
    methods_changed_by,
    methods_doubted_by,
    poll_delay_ms,
    read_hints,
    request_key,
    uri_lineage,
)


def result(**members: Any) -> bytes:
    return json.dumps({"tools": [{"name": "a", "ttlMs": 5}], **members}).encode()


# --- hints
# -------------------------------------------------------------------------------------------------------------------


def test_valid_hints_are_read_as_they_are() -> None:
    """Spec server/utilities/caching#cacheable-model: ttlMs in milliseconds, cacheScope public or private."""
    hints = read_hints(result(resultType="complete", ttlMs=300_000, cacheScope="public"))
    assert hints == (300_000, Scope.PUBLIC, True, (), None)


@pytest.mark.parametrize(
    ("literal", "ttl_ms", "faulty"),
    [
        ("0", 0, False),
        ("1", 1, False),
        ("300000.0", 300_000, False),
        ("3e5", 300_000, False),
        ("-1", 0, True),
        ("-0", 0, False),
        ('"300000"', 0, True),
        ("1.5", 0, True),
        ("true", 0, True),
        ("null", 0, True),
        ("[60000]", 0, True),
        ("604800000", 604_800_000, False),
        ("604800001", 604_800_000, False),
        ("1e15", 604_800_000, False),
        ("1000000000000000", 604_800_000, False),
        ("1" + "0" * 30, 604_800_000, False),
        ("1e300", 604_800_000, False),
    ],
)
def test_ttl_is_read_in_the_way_that_does_no_harm(literal: str, ttl_ms: int, faulty: bool) -> None:
    """Spec server/utilities/caching#time-to-live-ttl-field (SHOULD): negative is 0. Case 66: wrong types are 0, absurd
    is capped."""
    hints = read_hints(b'{"cacheScope":"private","ttlMs":' + literal.encode() + b"}")
    assert hints.ttl_ms == ttl_ms
    assert bool(hints.faults) is faulty


def test_absent_hints_mean_stale_and_private() -> None:
    """Spec server/utilities/caching#time-to-live-ttl-field (SHOULD): absent is 0. Case 66: no resultType is
    complete."""
    hints = read_hints(b'{"tools":[]}')
    assert (hints.ttl_ms, hints.scope, hints.complete) == (0, Scope.PRIVATE, True)
    assert hints.faults == ("ttlMs is absent", "cacheScope is absent")


@pytest.mark.parametrize("scope", ["shared", "Public", "", None, True, 0, ["public"]])
def test_an_unknown_scope_is_private(scope: Any) -> None:
    """Case 66: the safe reading."""
    hints = read_hints(result(ttlMs=1, cacheScope=scope))
    assert hints.scope is Scope.PRIVATE
    assert hints.faults == ("cacheScope is neither public nor private",)


@pytest.mark.parametrize("result_type", ["input_required", "something_new", "", None, 7])
def test_only_complete_results_may_be_kept(result_type: Any) -> None:
    """Spec server/utilities/caching#cacheable-results: interim results are not cacheable and carry no hints to be
    missed."""
    hints = read_hints(result(resultType=result_type))
    assert not hints.complete
    assert hints.faults == ()


def test_an_empty_cursor_is_a_cursor() -> None:
    """Spec server/utilities/pagination#implementation-guidelines (MUST NOT): an empty string is not the end."""
    assert read_hints(result(nextCursor="")).next_cursor == ""
    assert read_hints(result(nextCursor=None)).next_cursor is None
    assert read_hints(result()).next_cursor is None


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"null", b"42", b'{"a":', b'{"nextCursor":7}', b'{"nextCursor":false}', b"\xff"]
)
def test_what_is_not_a_result_is_a_remote_error(raw: bytes) -> None:
    """Ours: nothing a peer sends raises anything else."""
    with pytest.raises(RemoteProtocolError):
        read_hints(raw)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        st.lists,
    )
)
def test_no_hint_makes_a_result_unusable(value: Any) -> None:
    """Ours: whatever stands there, the ttl is a whole number within the cap and the scope is known."""
    hints = read_hints(json.dumps({"ttlMs": value, "cacheScope": value, "resultType": value}).encode())
    assert 0 <= hints.ttl_ms <= Policy().max_ttl_ms
    assert hints.scope in Scope


# --- keys
# --------------------------------------------------------------------------------------------------------------------


def test_the_cacheable_methods_are_the_six_of_the_specification() -> None:
    """Spec server/utilities/caching#cacheable-results."""
    assert {
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
    } == CACHEABLE_METHODS
    assert CACHEABLE_METHODS - {"server/discover", "resources/read"} == LIST_METHODS


@pytest.mark.parametrize(
    "method", ["tools/call", "prompts/get", "completion/complete", "initialize", "ping", "", "Tools/List"]
)
def test_other_methods_have_no_key(method: str) -> None:
    """Spec server/utilities/caching#cacheable-results."""
    assert request_key(method) is None
    assert request_key(method, {"name": "a"}) is None


@pytest.mark.parametrize(
    "retry", [{"inputResponses": {}}, {"requestState": "s"}, {"inputResponses": None, "requestState": None}]
)
def test_input_required_retries_have_no_key(retry: dict[str, Any]) -> None:
    """Spec server/utilities/caching#cache-key (MUST NOT)."""
    assert request_key("resources/read", {"uri": "file:///a", **retry}) is None


def test_every_parameter_but_meta_is_in_the_key() -> None:
    """Spec server/utilities/caching#cache-key (MUST NOT). Case 112: the cursor is part of it."""
    keys = [
        request_key("tools/list"),
        request_key("prompts/list"),
        request_key("tools/list", {"cursor": ""}),
        request_key("tools/list", {"cursor": "2"}),
        request_key("tools/list", {"cursor": "2", "extension/filter": "x"}),
        request_key("tools/list", {"extension/filter": "x"}),
        request_key("resources/read", {"uri": "file:///a"}),
        request_key("resources/read", {"uri": "file:///b"}),
        request_key("tools/list", version="2026-07-28"),
        request_key("tools/list", version="2025-11-25"),
        request_key("tools/list", capabilities={"elicitation": {}}),
    ]
    assert None not in keys
    assert len(set(keys)) == len(keys)


def test_meta_spelling_and_order_are_not_in_the_key() -> None:
    """Ours: `_meta` carries ids and trace context that differ per request; a null cursor is no cursor."""
    plain = request_key("tools/list")
    assert request_key("tools/list", {}) == plain
    assert request_key("tools/list", {"_meta": {"progressToken": 1}}) == plain
    assert request_key("tools/list", {"cursor": None}) == plain
    assert request_key("tools/list", capabilities={}) == plain
    assert request_key("tools/list", {"a": 1, "b": {"c": 2, "d": 3}}) == request_key(
        "tools/list", {"b": {"d": 3, "c": 2}, "a": 1}
    )


# --- freshness
# ---------------------------------------------------------------------------------------------------------------


def test_fresh_while_now_is_before_receipt_plus_ttl() -> None:
    """Spec server/utilities/caching#freshness-calculation: now < t_received + ttlMs, at the limit and on both sides."""

    def at(now_ms: int) -> Freshness:
        return judge(received_ms=1_000, lifetime_ms=100, now_ms=now_ms, current=True)

    assert at(1_000) == (State.FRESH, 1_100)
    assert at(1_099).fresh
    assert at(1_100) == (State.EXPIRED, 1_100)
    assert at(10_000) == (State.EXPIRED, 1_100)


def test_ttl_zero_is_never_fresh() -> None:
    """Spec server/utilities/caching#time-to-live-ttl-field (SHOULD): 0 is immediately stale."""
    assert not judge(received_ms=1_000, lifetime_ms=0, now_ms=1_000, current=True).fresh


def test_an_invalidated_entry_is_stale_although_its_time_runs() -> None:
    """Spec server/utilities/caching#interaction-with-notifications."""
    assert judge(received_ms=0, lifetime_ms=100, now_ms=1, current=False).state is State.INVALIDATED


def test_an_entry_from_the_future_is_stale_beyond_the_skew() -> None:
    """Ours: of two machines one may be a little ahead; more than that means the clock was set back."""
    assert judge(received_ms=1_000, lifetime_ms=100, now_ms=999, current=True).state is State.CLOCK
    assert judge(received_ms=1_000, lifetime_ms=100, now_ms=990, current=True, clock_skew_ms=10).fresh
    assert judge(received_ms=1_000, lifetime_ms=100, now_ms=989, current=True, clock_skew_ms=10).state is State.CLOCK


def test_once_found_expired_no_clock_revives_it() -> None:
    """Ours: a clock that goes backwards never makes a stale entry fresh."""
    assert judge(received_ms=0, lifetime_ms=100, now_ms=50, current=True, seen_expired=True).state is State.EXPIRED


def test_the_floor_is_for_zero_only_and_not_for_content() -> None:
    """Ours: a documented setting for servers that say 0, off by default."""
    assert Policy().lifetime_ms("tools/list", 0) == 0
    policy = Policy(floor_ms=60_000, max_ttl_ms=1_000_000)
    assert policy.lifetime_ms("tools/list", 0) == 60_000
    assert policy.lifetime_ms("server/discover", 0) == 60_000
    assert policy.lifetime_ms("tools/list", 5) == 5
    assert policy.lifetime_ms("resources/read", 0) == 0
    assert policy.lifetime_ms("resources/read", 2_000_000) == 1_000_000


def test_a_wall_clock_that_steps_back_is_noticed_and_taken() -> None:
    """Ours: the break is reported once, then time goes on from the new clock."""
    timeline = Timeline()
    assert timeline.observe(10_000, 0) == (10_000, False)
    assert timeline.observe(15_000, 5_000) == (15_000, False)
    assert timeline.observe(4_000, 6_000) == (4_000, True)
    assert timeline.observe(5_000, 7_000) == (5_000, False)


def test_time_never_goes_back_within_the_tolerance() -> None:
    """Ours: small corrections are normal, and must not make anything younger."""
    timeline = Timeline(tolerance_ms=1_000)
    timeline.observe(10_000, 0)
    assert timeline.observe(9_000, 0) == (10_000, False)
    assert timeline.observe(8_999, 0) == (8_999, True)
    assert timeline.observe(50_000, 1) == (50_000, False)


@given(st.lists(st.tuples(st.integers(-5_000, 5_000), st.integers(0, 5_000)), min_size=1))
def test_time_goes_back_only_if_it_says_so(steps: list[tuple[int, int]]) -> None:
    """Ours: for any pair of clocks, the time given is monotonic between reported breaks and at least as fast as the
    monotonic clock."""
    timeline, wall, mono = Timeline(), 1_000_000, 0
    last, _ = timeline.observe(wall, mono)
    for wall_step, mono_step in steps:
        wall, mono = wall + wall_step, mono + mono_step
        now, broke = timeline.observe(wall, mono)
        assert broke or now >= last + mono_step
        assert now >= wall
        last = now


# --- invalidation
# ------------------------------------------------------------------------------------------------------------


def test_each_change_notification_is_about_its_own_lists() -> None:
    """Spec server/utilities/caching#interaction-with-notifications; a resource list covers its templates as well."""
    assert methods_changed_by("notifications/tools/list_changed") == ("tools/list",)
    assert methods_changed_by("notifications/prompts/list_changed") == ("prompts/list",)
    assert methods_changed_by("notifications/resources/list_changed") == ("resources/list", "resources/templates/list")
    assert methods_changed_by("notifications/resources/updated") == ("resources/read",)
    assert methods_changed_by("notifications/message") == ()


def test_one_change_reaches_every_page() -> None:
    """Case 111: all pages of a list depend on the mark that its change replaces."""
    changed = set(changed_marks("t", "tools/list"))
    for params in ({}, {"cursor": ""}, {"cursor": "p2"}, {"cursor": "p3", "x": 1}):
        key = request_key("tools/list", params)
        assert key is not None
        assert changed <= set(marks_of("t", key))
        assert EVERYTHING in marks_of("t", key)
    other = request_key("prompts/list")
    assert other is not None
    assert changed.isdisjoint(marks_of("t", other))
    assert changed.isdisjoint(marks_of("another", other))


@pytest.mark.parametrize(
    ("read", "updated", "stale"),
    [
        ("file:///a/b.txt", "file:///a/b.txt", True),
        ("file:///a/", "file:///a/b.txt", True),
        ("file:///a", "file:///a/b.txt", True),
        ("file:///a/b.txt", "file:///a/b.txt#L3", True),
        ("db://x/t", "db://x/t?row=1#c", True),
        ("file:///a/b.txt", "file:///a/c.txt", False),
        ("file:///a/b", "file:///a/bc", False),
        ("file:///a/b.txt", "file:///a/", False),
        ("urn:x:1", "urn:x:1", True),
        ("note", "note", True),
        ("", "", True),
    ],
)
def test_an_update_makes_the_resource_and_what_encloses_it_stale(read: str, updated: str, stale: bool) -> None:
    """Spec schema#ResourceUpdatedNotificationParams: the URI may be a sub-resource of the one subscribed to."""
    key = request_key("resources/read", {"uri": read})
    assert key is not None
    assert bool(set(marks_of("t", key)) & set(changed_marks("t", "resources/read", updated))) is stale
    assert set(changed_marks("t", "resources/read")) <= set(marks_of("t", key))


@given(st.text())
def test_a_lineage_is_bounded_and_begins_with_the_resource(uri: str) -> None:
    """Ours: whatever a server calls a URI."""
    lineage = uri_lineage(uri)
    assert lineage[0] == uri
    assert len(lineage) <= 66
    assert all(uri.startswith(part.rstrip("/")) for part in lineage)


@pytest.mark.parametrize(
    ("method", "code", "doubted"),
    [
        ("tools/call", -32602, ("tools/list",)),
        ("tools/call", -32601, ("tools/list", "server/discover")),
        ("tools/call", -32020, ("tools/list",)),
        ("prompts/get", -32602, ("prompts/list",)),
        ("tools/call", -32022, tuple(sorted(CACHEABLE_METHODS))),
        ("tools/call", -32603, ()),
        ("tools/call", -32000, ()),
        ("ping", -32602, ()),
    ],
)
def test_unexpected_errors_cast_doubt_on_what_the_request_was_based_on(
    method: str, code: int, doubted: tuple[str, ...]
) -> None:
    """Spec server/utilities/caching#freshness-calculation (MAY): method not found and invalid params are the examples
    given."""
    assert methods_doubted_by(method, code, codes=Policy().early_refetch_codes) == doubted


# --- stale answers
# -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "may"),
    [
        (ConnectionLost("gone"), True),
        (TimedOut("late"), True),
        (TimeoutError(), True),
        (ConnectionRefusedError(), True),
        (RemoteProtocolError("garbage"), True),
        (peer_error(-32603, "internal"), True),
        (peer_error(-32000, "busy"), True),
        (AuthRequired("who?", status=401), False),
        (AuthRequired("no", status=403), False),
        (peer_error(-32601, "no such method"), False),
        (peer_error(-32602, "bad cursor"), False),
        (peer_error(-32022, "version"), False),
        (PeerError(-32020, "header"), False),
        (StoreError("disk"), False),
        (ValueError("a bug"), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_a_stale_answer_stands_in_for_failures_only(error: BaseException, may: bool) -> None:
    """Spec server/utilities/caching#freshness-calculation (MAY). Case 67: never after 401 and 403."""
    stale = Freshness(State.EXPIRED, 1_000)
    assert may_serve_stale(error, stale, now_ms=1_000, policy=Policy()) is may


def test_the_stale_window_has_an_end() -> None:
    """Ours: `stale_if_error_ms`, at the limit and one above; 0 is never."""
    stale, error = Freshness(State.EXPIRED, 1_000), TimedOut("late")
    policy = Policy(stale_if_error_ms=500)
    assert may_serve_stale(error, stale, now_ms=1_500, policy=policy)
    assert not may_serve_stale(error, stale, now_ms=1_501, policy=policy)
    assert not may_serve_stale(error, stale, now_ms=1_000, policy=Policy(stale_if_error_ms=0))


# --- aggregates
# --------------------------------------------------------------------------------------------------------------


def test_an_aggregate_is_as_short_lived_and_as_private_as_its_worst_part() -> None:
    """Case 151: minimum of what remains, private if any is, 0 if any is unknown."""
    assert aggregate([(600_000, Scope.PUBLIC), (0, Scope.PRIVATE), (None, Scope.PRIVATE)]) == (0, Scope.PRIVATE)
    assert aggregate([(600_000, Scope.PUBLIC), (20, Scope.PUBLIC)]) == (20, Scope.PUBLIC)
    assert aggregate([(600_000, Scope.PUBLIC), (None, Scope.PUBLIC)]) == (0, Scope.PUBLIC)
    assert aggregate([(600_000, Scope.PUBLIC), (20, Scope.PRIVATE)]) == (20, Scope.PRIVATE)
    assert aggregate([(-5, Scope.PUBLIC)]) == (0, Scope.PUBLIC)
    assert aggregate([]) == (0, Scope.PRIVATE)


def test_polling_backs_off_and_is_spread() -> None:
    """Spec server/utilities/caching#freshness-calculation (MUST): jitter and back-off."""
    assert poll_delay_ms(1_000, quiet_rounds=0, spread=0.5) == 1_000
    assert poll_delay_ms(1_000, quiet_rounds=3, spread=0.5) == 8_000
    assert poll_delay_ms(1_000, quiet_rounds=3, spread=0.0) < poll_delay_ms(1_000, quiet_rounds=3, spread=0.9)
    assert poll_delay_ms(1_000, quiet_rounds=10**9, spread=0.5) == 3_600_000
