"""The era decision: what the probe got, in; what it means and what to do next, out.

A dual-era client asks `server/discover` first. Most servers in the world predate it and answer in every way there is. This module holds
the one table that turns each such answer into a verdict; the first row that fits decides. It is driven by `client.opening`, which owns
clocks and sockets. Noise on stdout, unknown ids and notifications never reach it: they are not answers.

Spec: 2026-07-28 basic/versioning#backward-compatibility-with-initialization-based-versions, basic/transports/stdio#backward-compatibility,
basic/transports/streamable-http#backward-compatibility. The rows for authentication, outages and silence over HTTP are ours: the
specification leaves them open, and reading them as an era breaks servers that were merely away. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from outrider.errors import HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY, UNSUPPORTED_VERSION
from outrider.protocol.versions import VERSIONS, Era, pick_version

__all__ = ["ERA_TABLE", "Decision", "Kind", "Observed", "Row", "Step", "decide"]


class Kind(StrEnum):
    """What came back for a request that asks about the server: `server/discover`, or `initialize`."""

    DESCRIBED = "described"
    """A result of the right shape."""
    ERROR = "error"
    """A JSON-RPC error object, whatever its id and whatever HTTP status carried it."""
    ENDED = "ended"
    """stdio: the process ended, or closed its output, before it answered."""
    SILENT = "silent"
    """Nothing within the time allowed."""
    REJECTED = "rejected"
    """HTTP: a status without a usable JSON-RPC body, 2xx included."""
    DENIED = "denied"
    """HTTP: 401 or 403."""
    UNAVAILABLE = "unavailable"
    """HTTP: 429, 5xx, 408, 425; or no connection: DNS, TCP, TLS."""


class Observed(Struct, frozen=True, kw_only=True):
    """One observation.

    Attributes:
        kind: what came back.
        stdio: whether it came over a pipe; otherwise over HTTP.
        asked: the protocol version the request was made under.
        versions: what the server says it supports: `supportedVersions` of a result, `data.supported` of an error -32022.
        code: the JSON-RPC error code of an ERROR, or of the error body of a DENIED.
        status: the HTTP status, or None when there was none.
        credential_sent: whether the request carried a credential.
        repeated: whether this request is already the second of its kind, sent because of an earlier decision.
        ours: the versions we are willing to speak; fewer than all when the user pinned an era.
    """

    kind: Kind
    stdio: bool
    asked: str
    versions: tuple[str, ...] = ()
    code: int | None = None
    status: int | None = None
    credential_sent: bool = False
    repeated: bool = False
    ours: tuple[str, ...] = tuple(VERSIONS)

    def common(self, era: Era, *, excluding: str = "") -> str | None:
        """Our favourite among the versions of `era` that both sides speak."""
        return pick_version((v for v in self.versions if v in self.ours), era=era, excluding=(excluding,))


class Step(StrEnum):
    """What to do next."""

    USE = "use"
    """Speak modern under `version`; nothing more to ask."""
    PROBE_AGAIN = "probe again"
    """Send `server/discover` once more, under `version`."""
    INITIALIZE = "initialize"
    """Open with the legacy handshake, proposing `version`, on the same process or URL."""
    RESPAWN = "respawn and initialize"
    """End the process if it still runs, start it once more and open with the legacy handshake."""
    AUTHENTICATE = "authenticate"
    """Obtain a credential, then probe from the start."""
    RETRY = "retry"
    """Wait, then probe from the start, as long as the time allowed lasts."""
    FAIL = "fail"
    """Tell the user; nothing else can help."""


class Decision(Struct, frozen=True, kw_only=True):
    """A verdict and its consequence.

    Attributes:
        era: what the server is taken for, or None when the observation says nothing about it.
        step: what to do next.
        row: the table row that decided, for reports.
        version: the protocol version of that step, or "".
        storable: whether the verdict may be remembered once the step has succeeded: only if an answer backs it.
        then_sse: if the handshake is refused as well, whether the transport of 2024-11-05 (HTTP+SSE) is worth a try.
        keep_listening: whether a late answer to the probe still counts.
    """

    era: Era | None
    step: Step
    row: str = ""
    version: str = ""
    storable: bool = False
    then_sse: bool = False
    keep_listening: bool = False


class Row(Struct, frozen=True):
    """One row of the table: a name for reports, when it fits, and the decision it makes."""

    name: str
    fits: Callable[[Observed], bool]
    decide: Callable[[Observed], Decision]


def _modern(step: Step, version: str | None = "") -> Decision:
    return Decision(era=Era.MODERN, step=step, version=version or "", storable=True)


def _handshake(
    seen: Observed,
    *,
    era: Era | None = Era.LEGACY,
    step: Step = Step.INITIALIZE,
    then_sse: bool = False,
    keep_listening: bool = False,
) -> Decision:
    """Open with `initialize`, proposing the best legacy version the server named, else our best one."""
    version = seen.common(Era.LEGACY) or pick_version(seen.ours, era=Era.LEGACY)
    if version is None:  # The user pinned the modern era.
        return Decision(era=era, step=Step.FAIL)
    return Decision(
        era=era, step=step, version=version, storable=era is not None, then_sse=then_sse, keep_listening=keep_listening
    )


def _nothing_known(step: Step) -> Decision:
    return Decision(era=None, step=step)


_FALLBACK_STATUSES: Final = frozenset({400, 404, 405})
"""After these the older HTTP+SSE transport is tried. Spec: 2026-07-28 basic/transports/streamable-http#httpsse-transport-2024-11-05"""


ERA_TABLE: Final = (
    Row(
        "described, a modern version in common",
        lambda seen: seen.kind is Kind.DESCRIBED and seen.common(Era.MODERN) is not None,
        lambda seen: _modern(Step.USE, seen.common(Era.MODERN)),
    ),
    Row(
        "described, only legacy versions in common",
        lambda seen: seen.kind is Kind.DESCRIBED and seen.common(Era.LEGACY) is not None,
        _handshake,
    ),
    Row(
        "described, no version in common",
        lambda seen: seen.kind is Kind.DESCRIBED,
        lambda seen: _modern(Step.FAIL),
    ),
    Row(
        "version refused, another modern version in common",
        lambda seen: (
            seen.code == UNSUPPORTED_VERSION
            and not seen.repeated
            and seen.common(Era.MODERN, excluding=seen.asked) is not None
        ),
        lambda seen: _modern(Step.PROBE_AGAIN, seen.common(Era.MODERN, excluding=seen.asked)),
    ),
    Row(
        "version refused, and named as supported",
        # Contradictory, as behind a balancer in the middle of an upgrade: asking once more costs one request.
        lambda seen: seen.code == UNSUPPORTED_VERSION and not seen.repeated and seen.common(Era.MODERN) is not None,
        lambda seen: _modern(Step.PROBE_AGAIN, seen.common(Era.MODERN)),
    ),
    Row(
        "version refused, only legacy versions in common",
        lambda seen: (
            seen.code == UNSUPPORTED_VERSION and seen.common(Era.MODERN) is None and seen.common(Era.LEGACY) is not None
        ),
        _handshake,
    ),
    Row(
        "version refused, no other version in common",
        lambda seen: seen.code == UNSUPPORTED_VERSION,
        lambda seen: _modern(Step.FAIL),
    ),
    Row(
        "headers refused",
        # Once more, since one proxy of several may have lost them; twice means that something on the way always does.
        lambda seen: seen.code == HEADER_MISMATCH,
        lambda seen: _modern(Step.FAIL) if seen.repeated else _modern(Step.PROBE_AGAIN, seen.asked),
    ),
    Row(
        "client capability missing",
        lambda seen: seen.code == MISSING_CLIENT_CAPABILITY,
        lambda seen: _modern(Step.FAIL),
    ),
    Row(
        "denied without a credential",
        lambda seen: seen.kind is Kind.DENIED and not seen.credential_sent,
        lambda seen: _nothing_known(Step.AUTHENTICATE),
    ),
    Row(
        "denied with a credential",
        # A gateway's allow-list may know `initialize` and not `server/discover`.
        lambda seen: seen.kind is Kind.DENIED,
        lambda seen: _handshake(seen, era=None),
    ),
    Row(
        "unavailable",
        lambda seen: seen.kind is Kind.UNAVAILABLE,
        lambda seen: _nothing_known(Step.RETRY),
    ),
    Row(
        "redirected, or not the host it was taken for",
        lambda seen: (
            seen.kind is Kind.REJECTED and seen.status is not None and (300 <= seen.status < 400 or seen.status == 421)
        ),
        lambda seen: _nothing_known(Step.FAIL),
    ),
    Row(
        "any other error",
        lambda seen: seen.kind is Kind.ERROR,
        lambda seen: _handshake(seen, then_sse=seen.status in _FALLBACK_STATUSES),
    ),
    Row(
        "no usable body",
        lambda seen: seen.kind is Kind.REJECTED,
        lambda seen: _handshake(seen, then_sse=seen.status in _FALLBACK_STATUSES),
    ),
    Row(
        "process ended",
        # The respawned process answers `initialize`, and that answer backs the verdict.
        lambda seen: seen.kind is Kind.ENDED,
        lambda seen: _handshake(seen, step=Step.RESPAWN),
    ),
    Row(
        "silent on a pipe",
        lambda seen: seen.kind is Kind.SILENT and seen.stdio,
        lambda seen: _handshake(seen, keep_listening=True),
    ),
    Row(
        "silent over HTTP",
        lambda seen: seen.kind is Kind.SILENT,
        lambda seen: _handshake(seen, era=None),
    ),
)
"""Rows in order of precedence; the first that fits decides. Every observation fits one of them."""


def decide(seen: Observed) -> Decision:
    """The decision of the first row that fits what was observed in answer to `server/discover`."""
    for row in ERA_TABLE:
        if row.fits(seen):
            return replace(row.decide(seen), row=row.name)
    raise AssertionError(f"the era table has no row for {seen}")  # pragma: no cover - every Kind has a last row
