"""The legacy handshake and what else differs before 2026-07-28, as functions and tables.

Decided here: what `initialize` says, what each answer to it means, which of the older revisions' HTTP rules a version has, when a session
is over, and what a client owes to a server's own requests. Driven by `client.opening` and `client.session`. Nothing modern depends on
this module: it could be deleted together with its callers in `client`.

Spec: 2025-11-25 basic/lifecycle, basic/transports. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from outrider.errors import INVALID_PARAMS, METHOD_NOT_FOUND, UNSUPPORTED_VERSION
from outrider.protocol.negotiation import Decision, Kind, Observed, Step
from outrider.protocol.versions import Era, era_of, pick_version

__all__ = [
    "INITIALIZE",
    "INITIALIZED",
    "LEGACY_RULES",
    "LegacyRules",
    "after_initialize",
    "answer_server_request",
    "initialize_params",
    "is_echo",
    "is_session_over",
]

INITIALIZE: Final = "initialize"
INITIALIZED: Final = "notifications/initialized"


class LegacyRules(Struct, frozen=True):
    """How one legacy revision uses HTTP.

    Attributes:
        streamable: it has the Streamable HTTP transport; otherwise only HTTP+SSE.
        version_header: after the handshake every request carries `MCP-Protocol-Version`.
        polling: a server may close a response stream early and expect the client back, with `Last-Event-ID`, after `retry`.
        batches: several messages may come as one JSON array, over any transport.
    """

    streamable: bool
    version_header: bool
    polling: bool
    batches: bool = False


LEGACY_RULES: Final = {
    "2025-11-25": LegacyRules(streamable=True, version_header=True, polling=True),
    "2025-06-18": LegacyRules(streamable=True, version_header=True, polling=True),
    "2025-03-26": LegacyRules(streamable=True, version_header=False, polling=True, batches=True),
    "2024-11-05": LegacyRules(streamable=False, version_header=False, polling=False),
}
"""One row per legacy revision. Spec: the basic/transports page of each."""


def initialize_params(version: str, client_info: Mapping[str, Any], capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """The params of `initialize`. Spec: 2025-11-25 basic/lifecycle#initialization (MUST)"""
    return {"protocolVersion": version, "capabilities": capabilities, "clientInfo": client_info}


def after_initialize(seen: Observed, *, answered_version: str = "", probed: bool = True) -> Decision:
    """What an answer to `initialize` means.

    Args:
        seen: the observation; `asked` is the version that was proposed, `versions` what an error's data lists.
        answered_version: the `protocolVersion` of a DESCRIBED answer.
        probed: whether `server/discover` has been answered before. If it has not (the era was remembered, or the process ended first),
            a refusal leads to the probe. From a repeated handshake nothing leads back to it: two halves that contradict each other would
            go on for ever.

    Returns:
        USE with the negotiated version when the handshake is done but for `notifications/initialized`; INITIALIZE to propose another
        version, once; PROBE_AGAIN when the server turns out to be modern; otherwise FAIL, RETRY or AUTHENTICATE as in the era table.

    Spec: 2025-11-25 basic/lifecycle#version-negotiation
        and 2026-07-28 basic/versioning#backward-compatibility-with-initialization-based-versions
    """
    if seen.kind is Kind.DESCRIBED:
        if answered_version in seen.ours and era_of(answered_version) is Era.LEGACY:
            return Decision(
                row="handshake done", era=Era.LEGACY, step=Step.USE, version=answered_version, storable=True
            )
        # A handshake cannot choose a modern version, nor one we do not implement.
        return Decision(row="handshake chose a version we cannot use", era=Era.LEGACY, step=Step.FAIL)
    modern = seen.common(Era.MODERN)
    if seen.kind is Kind.ERROR and seen.code == UNSUPPORTED_VERSION and modern and not seen.repeated:
        return Decision(
            row="handshake refused by a modern server",
            era=Era.MODERN,
            step=Step.PROBE_AGAIN,
            version=modern,
            storable=True,
        )
    if seen.kind is Kind.ERROR and seen.code in (UNSUPPORTED_VERSION, INVALID_PARAMS) and not seen.repeated:
        other = seen.common(Era.LEGACY, excluding=seen.asked)
        if other:
            return Decision(
                row="handshake refused, another version in common",
                era=Era.LEGACY,
                step=Step.INITIALIZE,
                version=other,
                storable=True,
            )
    ours = pick_version(seen.ours, era=Era.MODERN)
    if seen.kind in (Kind.ERROR, Kind.REJECTED) and not probed and ours and not seen.repeated:
        # The server may be modern only: upgraded since its era was remembered, or it ended before it could answer the probe.
        return Decision(
            row="handshake refused, the probe not yet answered", era=None, step=Step.PROBE_AGAIN, version=ours
        )
    if seen.kind is Kind.DENIED:
        return Decision(
            row="handshake denied", era=None, step=Step.AUTHENTICATE if not seen.credential_sent else Step.FAIL
        )
    if seen.kind is Kind.UNAVAILABLE:
        return Decision(row="unavailable", era=None, step=Step.RETRY)
    if seen.kind is Kind.ENDED and not probed:
        # It may be the probe that ended it: a server that was still starting reads it only now.
        return Decision(
            row="process ended, the probe not yet answered",
            era=None,
            step=Step.RESPAWN,
            version=seen.asked,
            storable=True,
        )
    if seen.kind is Kind.SILENT and seen.stdio and not seen.repeated:
        # A process that the probe has confused may still be a good server when asked nothing else first.
        return Decision(row="handshake unanswered", era=None, step=Step.RESPAWN, version=seen.asked, storable=True)
    return Decision(row="handshake failed", era=None, step=Step.FAIL)


_SESSION_STATUSES: Final = frozenset({200, 400, 409, 422, 503})
_SESSION_GONE: Final = re.compile(r"session|not (?:yet )?initiali[sz]ed", re.IGNORECASE)


def is_session_over(status: int, message: str, *, had_session: bool) -> bool:
    """Whether an HTTP answer says that the session is no longer known, so that a new `initialize` is due.

    Args:
        status: the HTTP status.
        message: the JSON-RPC error's message, or the start of the body.
        had_session: whether the request carried a session id; without one nothing can be over.

    The specification says 404, which servers take for 410. Servers that say it otherwise do so with a text that names the session, or
    say that the handshake, which they have forgotten, is yet to come.

    Spec: 2025-11-25 basic/transports#session-management (MUST for 404); the rest is ours.
    """
    if not had_session:
        return False
    return status in (404, 410) or (status in _SESSION_STATUSES and _SESSION_GONE.search(message) is not None)


_OURS: Final = re.compile(r"initialize|server/discover|(?:tools|prompts|resources|completion|logging|subscriptions)/.*")


def is_echo(method: str) -> bool:
    """Whether a request that came from a server is one that only clients make: then it sends back, or logs, what it receives."""
    return _OURS.fullmatch(method) is not None


def answer_server_request(method: str) -> dict[str, Any] | tuple[int, str]:
    """What a client without handlers answers to a legacy server's own request: a result, or an error's code and message.

    Spec: 2025-11-25 basic/utilities/ping (MUST answer); basic/lifecycle#operation (only negotiated capabilities)
    """
    if method == "ping":
        return {}
    return METHOD_NOT_FOUND, f"this client does not offer {method[:100]}"
