"""How long, for whom and under which key a result may be remembered.

Decided here: which requests and results are cacheable, what the server's hints mean (also malformed ones), what the key
consists of, when an entry is fresh, what a notification invalidates, when a stale answer may stand in for an error. Not
here: where entries are kept and how concurrent askers share one request (`outrider.cache`).

Times are integers in milliseconds that the caller passes in. Pure.

Spec: 2026-07-28 server/utilities/caching
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from outrider.errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MODERN_CODES,
    UNSUPPORTED_VERSION,
    AuthRequired,
    PeerError,
    RemoteProtocolError,
    TransportError,
)

__all__ = [
    "CACHEABLE_METHODS",
    "EVERYTHING",
    "LIST_METHODS",
    "MARK_SEPARATOR",
    "MAX_TTL_MS",
    "Freshness",
    "Hints",
    "Policy",
    "RequestKey",
    "Scope",
    "State",
    "Timeline",
    "aggregate",
    "changed_marks",
    "hints_of",
    "judge",
    "marks_of",
    "may_serve_stale",
    "methods_changed_by",
    "methods_doubted_by",
    "poll_delay_ms",
    "read_hints",
    "request_key",
    "uri_lineage",
]

LIST_METHODS: Final = frozenset({"tools/list", "prompts/list", "resources/list", "resources/templates/list"})
"""The paginated ones. Spec: 2026-07-28 server/utilities/pagination#operations-supporting-pagination"""

CACHEABLE_METHODS: Final = LIST_METHODS | {"server/discover", "resources/read"}
"""Spec: 2026-07-28 server/utilities/caching#cacheable-results"""


# --- the server's hints
# ------------------------------------------------------------------------------------------------------


class Scope(StrEnum):
    """Who may be served a remembered result. Spec: 2026-07-28 server/utilities/caching#cache-scope-field"""

    PUBLIC = "public"
    """Anyone, as far as the server is concerned."""
    PRIVATE = "private"
    """The same authorization context only."""


class Hints(NamedTuple):
    """What one result says about its own reuse, made safe."""

    ttl_ms: int
    """How long the result counts as fresh, >= 0; 0 if the server gave no usable value."""
    scope: Scope
    complete: bool
    """False for an interim result (`input_required` or a `resultType` we do not know), which must not be kept."""
    faults: tuple[str, ...]
    """One sentence for each hint that is missing or malformed; () if the server did as it should."""
    next_cursor: str | None
    """Where the next page begins; "" is a cursor like any other, None is the end."""


MAX_TTL_MS: Final = 7 * 86_400_000
"""The longest `ttlMs` believed unless somebody says otherwise: a week."""


class _HintMembers(msgspec.Struct):
    """Only these members are decoded; the rest of a result is skipped over, whatever its size."""

    result_type: Any = msgspec.field(default="complete", name="resultType")
    ttl_ms: Any = msgspec.field(default=msgspec.UNSET, name="ttlMs")
    cache_scope: Any = msgspec.field(default=msgspec.UNSET, name="cacheScope")
    next_cursor: Any = msgspec.field(default=None, name="nextCursor")


_hint_decoder = msgspec.json.Decoder(_HintMembers)


def read_hints(result: bytes, *, max_ttl_ms: int = MAX_TTL_MS) -> Hints:
    """Reads the caching hints of one result, and how it continues.

    Nothing a server writes here makes a result unusable: whatever is absent or malformed is read in the way that can do
    no harm. A `ttlMs` that is absent, negative, or not a whole number is 0 (300000.0 and 3e5 are whole numbers: JSON
    has one number type; true and "300000" are not numbers); one above `max_ttl_ms` is cut to it; an unknown
    `cacheScope` is private. An absent `resultType` is "complete".

    Args:
        result: the raw JSON of the `result` member.
        max_ttl_ms: the longest time to believe.

    Raises:
        RemoteProtocolError: the result is not a JSON object, or `nextCursor` is neither a string nor null.

    Spec: 2026-07-28 server/utilities/caching#time-to-live-ttl-field (SHOULD), #cache-scope-field (MUST NOT share
    private); the cap and the reading of malformed values: ours
    """
    try:
        members = _hint_decoder.decode(result)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError("the result is not a JSON object", rule="basic/index#responses") from error
    return _hints(members, max_ttl_ms)


def hints_of(result: Mapping[str, Any], *, max_ttl_ms: int = MAX_TTL_MS) -> Hints:
    """`read_hints` for a result that has been decoded."""
    return _hints(msgspec.convert(result, _HintMembers), max_ttl_ms)


def _hints(members: _HintMembers, max_ttl_ms: int) -> Hints:
    if members.next_cursor is not None and not isinstance(members.next_cursor, str):
        raise RemoteProtocolError("nextCursor is not a string", rule="server/utilities/pagination#response-format")
    faults: list[str] = []
    ttl = members.ttl_ms
    if isinstance(ttl, float) and ttl.is_integer():
        ttl = int(ttl)
    if ttl is msgspec.UNSET:
        ttl = 0
        faults.append("ttlMs is absent")
    elif isinstance(ttl, bool) or not isinstance(ttl, int):
        ttl = 0
        faults.append("ttlMs is not an integer")
    elif ttl < 0:
        ttl = 0
        faults.append("ttlMs is negative")
    scope = Scope.PRIVATE
    if members.cache_scope is msgspec.UNSET:
        faults.append("cacheScope is absent")
    elif members.cache_scope == "public":
        scope = Scope.PUBLIC
    elif members.cache_scope != "private":
        faults.append("cacheScope is neither public nor private")
    complete = members.result_type == "complete"
    return Hints(min(ttl, max_ttl_ms), scope, complete, tuple(faults) if complete else (), members.next_cursor)


# --- the key
# -----------------------------------------------------------------------------------------------------------------


class RequestKey(NamedTuple):
    """What identifies a request towards one target in one authorization context."""

    method: str
    digest: str
    """32 hex digits over every parameter that affects the result."""
    uri: str | None = None
    """The resource, for `resources/read`."""
    cursor: str | None = None
    """The page, for a list; None is the first."""


@lru_cache(maxsize=512)
def _plain_key(method: str, cursor: str | None, version: str) -> RequestKey:
    params = {} if cursor is None else {"cursor": cursor}
    return RequestKey(method, _digest([params, version, {}]), None, cursor)


def _digest(value: object) -> str:
    return hashlib.blake2b(msgspec.json.encode(value, order="deterministic"), digest_size=16).hexdigest()


def request_key(
    method: str,
    params: Mapping[str, Any] | None = None,
    *,
    version: str = "",
    capabilities: Mapping[str, Any] | None = None,
) -> RequestKey | None:
    """The key under which the answer to a request may be remembered, or None if it must not be.

    Every parameter counts, known to us or not, except `_meta`. Of what travels there, the protocol version and the
    client's capabilities can change the answer, so the caller passes them if they do.

    Args:
        method: the JSON-RPC method.
        params: the request's params as sent; `_meta` is ignored. A `cursor` of None is no cursor.
        version: the protocol version spoken, or "" where it makes no difference.
        capabilities: the ClientCapabilities declared, or None where they make no difference.

    Returns:
        None for a method that is not cacheable, and for the retry of an input-required request.

    Spec: 2026-07-28 server/utilities/caching#cache-key (MUST NOT); version and capabilities in it: ours
    """
    if method not in CACHEABLE_METHODS:
        return None
    if not params and not capabilities:
        return _plain_key(method, None, version)
    params = params or {}
    if "inputResponses" in params or "requestState" in params:
        return None
    cursor, uri = params.get("cursor"), params.get("uri")
    kept = {k: v for k, v in params.items() if k != "_meta" and not (k == "cursor" and v is None)}
    return RequestKey(
        method,
        _digest([kept, version, capabilities or {}]),
        uri if isinstance(uri, str) else None,
        cursor if isinstance(cursor, str) else None,
    )


# --- what invalidates what
# ---------------------------------------------------------------------------------------------------

MARK_SEPARATOR: Final = "|"
EVERYTHING: Final = "*"
"""The mark that every entry of every target depends on."""

_CHANGES: Final[dict[str, tuple[str, ...]]] = {
    "notifications/tools/list_changed": ("tools/list",),
    "notifications/prompts/list_changed": ("prompts/list",),
    "notifications/resources/list_changed": ("resources/list", "resources/templates/list"),
    "notifications/resources/updated": ("resources/read",),
}

# What a request looked up beforehand, and may therefore have been wrong about.
_BASIS: Final[dict[str, tuple[str, ...]]] = {
    "tools/call": ("tools/list",),
    "prompts/get": ("prompts/list",),
    "resources/read": ("resources/list", "resources/templates/list"),
    "completion/complete": ("prompts/list", "resources/templates/list"),
}


def methods_changed_by(notification: str) -> tuple[str, ...]:
    """The cacheable methods whose answers a notification declares stale; () if it is not about any.

    Spec: 2026-07-28 server/utilities/caching#interaction-with-notifications
    """
    return _CHANGES.get(notification, ())


def methods_doubted_by(method: str, code: int, *, codes: frozenset[int]) -> tuple[str, ...]:
    """The cacheable methods whose remembered answers an unexpected error makes doubtful; () if it does not.

    Args:
        method: the request that failed.
        code: the JSON-RPC error it failed with.
        codes: which codes are a reason for doubt (`Policy.early_refetch_codes`).

    Spec: 2026-07-28 server/utilities/caching#freshness-calculation (MAY)
    """
    if code not in codes:
        return ()
    if code == UNSUPPORTED_VERSION:
        return tuple(sorted(CACHEABLE_METHODS))
    # A method that the server no longer knows at all puts its capabilities in doubt, too.
    return _BASIS.get(method, ()) + (("server/discover",) if code == METHOD_NOT_FOUND else ())


def uri_lineage(uri: str) -> tuple[str, ...]:
    """`uri` and everything that contains it, nearest first: without fragment and query, then each enclosing path.

    An update may name a part of the resource that was subscribed to, so reads of what encloses it are stale, too. At
    most 64.

    Spec: 2026-07-28 schema#ResourceUpdatedNotificationParams
    """
    lineage = [uri]
    for separator in "#?":
        head, found, _ = lineage[-1].partition(separator)
        if found:
            lineage.append(head)
    path_start = lineage[-1].find("://")
    floor = path_start + 3 if path_start >= 0 else lineage[-1].find(":") + 1
    rest = lineage[-1]
    while len(lineage) < 64:
        cut = rest.rfind("/", floor)
        if cut < 0:
            break
        # Both spellings of the enclosing path are in use: "file:///a/" and "file:///a".
        rest = rest[:cut]
        lineage.extend(u for u in (rest + "/", rest) if u not in lineage)
    return tuple(lineage)


def _uri_mark(target: str, uri: str) -> str:
    digest = hashlib.blake2b(uri.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
    return MARK_SEPARATOR.join((target, "resources/read", digest))


def marks_of(target: str, key: RequestKey) -> tuple[str, ...]:
    """The marks that an entry depends on: it is current only while all of them are what they were when its request
    began.
    """
    method_mark = target + MARK_SEPARATOR + key.method
    if key.uri is None:
        return (EVERYTHING, method_mark)
    return (EVERYTHING, method_mark, _uri_mark(target, key.uri))


def changed_marks(target: str, method: str, uri: str | None = None) -> tuple[str, ...]:
    """The marks to replace when the answers to `method` have changed: all pages, or for one resource it and what
    encloses it.
    """
    if uri is None:
        return (target + MARK_SEPARATOR + method,)
    return tuple(_uri_mark(target, u) for u in uri_lineage(uri))


# --- policy and judgement
# ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a client does where the specification leaves it free. The defaults are the specification's strictest
    reading.

    Spec: ours, within 2026-07-28 server/utilities/caching
    """

    floor_ms: int = 0
    """How long discovery and lists count as fresh if the server says 0 or nothing. 0: they never do."""
    max_ttl_ms: int = MAX_TTL_MS
    """The longest `ttlMs` believed: a week."""
    stale_if_error_ms: int = 30 * 86_400_000
    """How long after it went stale an answer may stand in for a failed refetch; 0 never. Never after 401 or 403."""
    stale_while_revalidate_ms: int = 0
    """How long after its time ran out an answer is given at once while it is fetched again. Never for one that was
    declared changed."""
    keep_ms: int = 30 * 86_400_000
    """How long a stale entry is kept at all, for offline use."""
    max_entry_bytes: int = 8 * 2**20
    """A larger result is passed on but not remembered."""
    max_pages: int = 1_000
    """The most pages a list may have."""
    share_public: bool = False
    """Whether a result that its server calls public is given to other authorization contexts. Servers get this wrong
    (many label everything public by default), so it is for whoever operates this client to say."""
    early_refetch_codes: frozenset[int] = frozenset(
        {METHOD_NOT_FOUND, INVALID_PARAMS, HEADER_MISMATCH, UNSUPPORTED_VERSION}
    )
    """JSON-RPC errors that make what was remembered doubtful before its time."""
    early_refetch_interval_ms: int = 60_000
    """At most one doubt per target and method in this time: a model that keeps calling wrongly must not cause a refetch
    each time."""
    legacy_horizon_ms: int = 86_400_000
    """How old the verdict "legacy" grows before the server is asked again: a day. A modern verdict has no horizon: any
    use tests it."""
    lease_ms: int = 2_000
    """How long a crashed process can keep others waiting for the request it had begun."""
    lease_wait_ms: int = 5_000
    """How long to wait for another process's request before asking oneself."""

    def lifetime_ms(self, method: str, ttl_ms: int) -> int:
        """How long after receipt an answer counts as fresh. The floor is not for `resources/read`: content is not
        discovery.
        """
        if ttl_ms <= 0:
            return self.floor_ms if method != "resources/read" else 0
        return min(ttl_ms, self.max_ttl_ms)


class State(StrEnum):
    """What may be done with an entry, and why."""

    FRESH = "fresh"
    EXPIRED = "expired"
    """Its time ran out."""
    INVALIDATED = "invalidated"
    """The server said that it changed, or nobody can tell any more whether it did."""
    CLOCK = "clock"
    """It was received in what is now the future: its age is unknown."""


class Freshness(NamedTuple):
    """The judgement on one entry at one moment."""

    state: State
    at_ms: int
    """Fresh: when it stops being so. Expired: since when. Otherwise: when it was received."""

    @property
    def fresh(self) -> bool:
        """Whether the entry may be used without asking the server."""
        return self.state is State.FRESH


def judge(
    *,
    received_ms: int,
    lifetime_ms: int,
    now_ms: int,
    current: bool,
    seen_expired: bool = False,
    clock_skew_ms: int = 0,
) -> Freshness:
    """Judges one entry: fresh while `now < received + lifetime`, nothing was invalidated, and the clock makes sense.

    Args:
        received_ms: when the answer arrived, by the wall clock of whoever asked.
        lifetime_ms: how long it may count as fresh, >= 0.
        now_ms: the wall clock now.
        current: whether all its marks are what they were when its request began.
        seen_expired: whether it has been found expired before; no clock makes that undone.
        clock_skew_ms: by how much the clocks of those who share a store may differ.

    Spec: 2026-07-28 server/utilities/caching#freshness-calculation; clocks: ours
    """
    if not current:
        return Freshness(State.INVALIDATED, received_ms)
    if now_ms < received_ms - clock_skew_ms:
        return Freshness(State.CLOCK, received_ms)
    end_ms = received_ms + lifetime_ms
    if seen_expired or now_ms >= end_ms:
        return Freshness(State.EXPIRED, end_ms)
    return Freshness(State.FRESH, end_ms)


# Statements about the request, the era or the capability: an older answer is no substitute for them.
_DEFINITE_CODES: Final = frozenset({INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS}) | MODERN_CODES


def may_serve_stale(error: BaseException, freshness: Freshness, *, now_ms: int, policy: Policy) -> bool:
    """Whether a stale answer may stand in for `error`.

    It may for whatever says nothing about the answer: a lost connection, a time-out, garbage, a server's internal
    error. It may not for 401 and 403 (this context may have lost its right to the data), nor for an error that is
    itself the answer.

    Spec: 2026-07-28 server/utilities/caching#freshness-calculation (MAY); the exceptions: ours
    """
    if isinstance(error, AuthRequired):
        return False
    if isinstance(error, PeerError):
        if error.code in _DEFINITE_CODES:
            return False
    elif not isinstance(error, TransportError | RemoteProtocolError | TimeoutError | ConnectionError):
        return False
    return policy.stale_if_error_ms > 0 and now_ms - freshness.at_ms <= policy.stale_if_error_ms


def aggregate(parts: Iterable[tuple[int | None, Scope]]) -> tuple[int, Scope]:
    """The hints of a list made of many lists or pages: the shortest remaining time, and private if any part is.

    Args:
        parts: for each part the milliseconds for which it remains fresh (not the server's original value; None if
            unknown, for example because the server is still connecting) and its scope. A part that was fetched with a
            user's credentials is private here.

    Returns:
        (ttl_ms, scope); (0, private) for no parts at all.

    Spec: ours, from 2026-07-28 server/utilities/caching#cache-scope-field
    """
    ttl_ms: int | None = None
    scope = Scope.PUBLIC
    for remaining_ms, part_scope in parts:
        known_ms = max(remaining_ms or 0, 0)
        ttl_ms = known_ms if ttl_ms is None else min(ttl_ms, known_ms)
        if part_scope is not Scope.PUBLIC:
            scope = Scope.PRIVATE
    return (0, Scope.PRIVATE) if ttl_ms is None else (ttl_ms, scope)


def poll_delay_ms(interval_ms: int, *, quiet_rounds: int, spread: float, max_ms: int = 3_600_000) -> int:
    """How long a caller that insists on polling waits before the next round.

    Doubles with every round that brought nothing new (or failed), and is spread over 80 to 120 percent so that many
    clients do not ask in step.

    Args:
        interval_ms: the shortest wait, > 0.
        quiet_rounds: how many rounds in a row brought nothing new.
        spread: a random number, 0 <= spread < 1.
        max_ms: the longest wait before spreading.

    Spec: 2026-07-28 server/utilities/caching#freshness-calculation (MUST)
    """
    return int(min(interval_ms << min(quiet_rounds, 20), max(max_ms, interval_ms)) * (0.8 + 0.4 * spread))


class Timeline:
    """The present, from a wall clock that may jump and a monotonic clock that may not. One per process.

    The time it gives never goes back while the wall clock lags by at most `tolerance_ms` (two clocks are never read at
    quite the same moment, and small corrections are normal); beyond that the wall clock was set back: the new time is
    taken and the break is reported, so that everything dated before it can be put out of use.

    Spec: ours
    """

    __slots__ = ("_mono_ms", "_now_ms", "tolerance_ms")

    def __init__(self, *, tolerance_ms: int = 1_000) -> None:
        self.tolerance_ms = tolerance_ms
        self._now_ms: int | None = None
        self._mono_ms = 0

    def observe(self, wall_ms: int, mono_ms: int) -> tuple[int, bool]:
        """Takes one reading of both clocks; returns the time to use and whether the wall clock was set back since the
        last reading.
        """
        broke = False
        if self._now_ms is None:
            now_ms = wall_ms
        else:
            expected_ms = self._now_ms + max(mono_ms - self._mono_ms, 0)
            broke = wall_ms < expected_ms - self.tolerance_ms
            now_ms = wall_ms if broke else max(wall_ms, expected_ms)
        self._now_ms, self._mono_ms = now_ms, mono_ms
        return now_ms, broke
