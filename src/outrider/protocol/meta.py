"""`_meta`: the reserved keys, what every modern request and result carries there, and the rules for key names.

Decided here: how a client renders its per-request fields, how either side reads the other's, which key names are well-formed, and which
trace context can be used. Not here: spans (`outrider.tracing`), what a server answers when a field is missing (`server.dispatch`) and
negotiation (`negotiation`).

Spec: 2026-07-28 basic/index#_meta. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import UNSET, Raw, Struct, UnsetType, field

__all__ = [
    "CLIENT_CAPABILITIES",
    "CLIENT_INFO",
    "LOG_LEVEL",
    "LOG_LEVELS",
    "PROGRESS_TOKEN",
    "PROTOCOL_VERSION",
    "SERVER_INFO",
    "SUBSCRIPTION_ID",
    "TRACE_KEYS",
    "RequestMeta",
    "check_extension_id",
    "check_key",
    "is_reserved_key",
    "render_request_meta",
    "trace_context",
    "trace_context_of",
]

PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
CLIENT_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
PROGRESS_TOKEN: Final = "progressToken"
TRACE_KEYS: Final = ("traceparent", "tracestate", "baggage")

LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""Logging levels, least severe first. Spec: 2026-07-28 server/utilities/logging#log-levels"""

_TRACE_IDS: Final = r"-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
# A later version may have more fields behind those of version 00; version ff is no version.
_TRACEPARENT: Final = re.compile(rf"00{_TRACE_IDS}|(?!00|ff)[0-9a-f]{{2}}{_TRACE_IDS}(?:-[!-~]*)?")
_PRINTABLE: Final = re.compile(r"[ -~\t]+")
_MAX_TRACE_CHARS: Final = 8192
"""Of each of the three values. Spec: W3C Baggage 3.3.2 (a baggage-string of 8192 bytes MUST be passed on)"""
_LABEL: Final = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_PREFIX: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


class RequestMeta(Struct, frozen=True, gc=False):
    """The protocol's own fields of a request's `_meta`, in one decoding pass.

    A field that the request lacks is UNSET, so that "absent" and "null" stay apart: a modern server owes -32602 for the required two.
    Trace context may be anything: what is wrong with it is no reason to refuse a request; see `trace_context`.
    """

    protocol_version: str | UnsetType = field(default=UNSET, name=PROTOCOL_VERSION)
    client_capabilities: dict[str, Any] | UnsetType = field(default=UNSET, name=CLIENT_CAPABILITIES)
    client_info: Raw | UnsetType = field(default=UNSET, name=CLIENT_INFO)
    log_level: str | None = field(default=None, name=LOG_LEVEL)
    progress_token: int | str | None = field(default=None, name=PROGRESS_TOKEN)
    traceparent: Any = None
    tracestate: Any = None
    baggage: Any = None


def render_request_meta(
    protocol_version: str,
    client_info: Mapping[str, Any] | None,
    client_capabilities: Mapping[str, Any],
    *,
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The `_meta` of a modern request.

    Args:
        protocol_version: the version this request is made under.
        client_info: the client's Implementation (`name`, `version`, …), or None to send none.
        client_capabilities: what the client can do for this very request, `{}` for nothing.
        extra: further keys, such as `progressToken` or trace context; they never override the protocol's own.

    Spec: 2026-07-28 basic/index#_meta, per-request protocol fields (MUST)
    """
    meta = dict(extra) if extra else {}
    meta[PROTOCOL_VERSION] = protocol_version
    if client_info is not None:
        meta[CLIENT_INFO] = client_info
    meta[CLIENT_CAPABILITIES] = client_capabilities
    return meta


def trace_context(meta: RequestMeta) -> dict[str, str]:
    """The trace context of a request, as far as it is well-formed: some of `traceparent`, `tracestate`, `baggage`.

    A receiver that cannot read `traceparent` goes on as if there were none, and then `tracestate` means nothing. What is in `tracestate`
    and `baggage` is left to whoever reads them; here they are only bounded.

    Spec: 2026-07-28 basic/index#_meta (MUST follow W3C); W3C Trace Context 3.2, 4.3
    """
    found: dict[str, str] = {}
    parent, state, baggage = meta.traceparent, meta.tracestate, meta.baggage
    if isinstance(parent, str) and len(parent) <= _MAX_TRACE_CHARS and _TRACEPARENT.fullmatch(parent):
        found["traceparent"] = parent
        if _is_bounded_text(state):
            found["tracestate"] = state
    if _is_bounded_text(baggage):
        found["baggage"] = baggage
    return found


def trace_context_of(members: Mapping[str, Any]) -> dict[str, str]:
    """The same for a `_meta` that was decoded as an object."""
    parent, state, baggage = (members.get(key) for key in TRACE_KEYS)
    return trace_context(RequestMeta(traceparent=parent, tracestate=state, baggage=baggage))


def _is_bounded_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _MAX_TRACE_CHARS and _PRINTABLE.fullmatch(value) is not None


def check_key(key: str) -> str | None:
    """What is wrong with a `_meta` key's name, or None when it is well-formed.

    Spec: 2026-07-28 basic/index#_meta, key name format (MUST)
    """
    prefix, slash, name = key.rpartition("/")
    if slash and not _PREFIX.fullmatch(prefix):
        return f"the prefix {prefix!r} is not labels of letters, digits and inner hyphens, joined by dots, each starting with a letter"
    if name and not _NAME.fullmatch(name):
        return f"the name {name!r} is not letters, digits, inner hyphens, underscores and dots"
    if not slash and not name:
        return "the key is empty"
    return None


def is_reserved_key(key: str) -> bool:
    """Whether the key's prefix belongs to MCP: its second label is `modelcontextprotocol` or `mcp`.

    Spec: 2026-07-28 basic/index#_meta, prefix
    """
    prefix, slash, _ = key.rpartition("/")
    labels = prefix.split(".")
    return bool(slash) and len(labels) > 1 and labels[1] in ("modelcontextprotocol", "mcp")


def check_extension_id(identifier: str) -> str | None:
    """What is wrong with an extension's identifier, or None when it is well-formed: a `_meta` key whose prefix is mandatory.

    Spec: 2026-07-28 basic/versioning#extension-negotiation (MUST)
    """
    if "/" not in identifier:
        return "an extension identifier needs a prefix, such as com.example/"
    return check_key(identifier)
