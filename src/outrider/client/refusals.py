"""What an HTTP answer that is no reply says to people: one sentence about what came, and what to do next.

Decided here: how a body is quoted, which hint goes with which status, how long a busy server asks to wait. Not here: what a status says
about the era (`protocol.negotiation`), and when which of these is raised (`http`, `sse`).

Every text of the server's passes through the target's `redact` first: bodies repeat tokens. Pure.
"""

from __future__ import annotations

import email.utils
import html
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from outrider.client.auth.steps import parse_bearer
from outrider.errors import AuthRequired, HttpRejected, Unavailable

__all__ = ["EXCERPT_BYTES", "TRANSIENT_STATUSES", "denied", "quoted", "rejected", "retry_after_s", "unavailable"]

EXCERPT_BYTES: Final = 4_096
"""How much of a body is looked at for people."""
TRANSIENT_STATUSES: Final = frozenset({408, 425, 429})
"""The statuses below 500 that speak of the moment, not of the server."""
_QUOTED_CHARACTERS: Final = 200
_MAX_WAIT_S: Final = 3_600.0
_WEB_PAGE: Final = re.compile(
    r"\s*(?:<!--.*?-->\s*)*<(?:!doctype html|html|head|body|title)\b", re.IGNORECASE | re.DOTALL
)
_TITLE: Final = re.compile(r"<(title|h1)\b[^>]{0,200}>(.{0,500}?)</\1", re.IGNORECASE | re.DOTALL)
_TAG: Final = re.compile(r"<(?:script|style)\b.*?(?:</(?:script|style)|$)|<[^>]{0,1000}>", re.IGNORECASE | re.DOTALL)

Redact = Callable[[str], str]


def quoted(data: bytes, redact: Redact) -> str:
    """The start of a body in one line: a web page by its title, anything else as it is; "" for none."""
    text = redact(data[:EXCERPT_BYTES].decode(errors="replace"))
    if not _WEB_PAGE.match(text):
        return " ".join(text.split())[:_QUOTED_CHARACTERS]
    title = _TITLE.search(text)
    words = " ".join(html.unescape(title[2] if title else _TAG.sub(" ", text)).split())
    return f"a web page: {words[:100]}" if words else "a web page"


def _clause(data: bytes, redact: Redact) -> str:
    text = quoted(data, redact)
    return f": {text}" if text else ""


_CHECK_URL: Final = "is this the URL of an MCP endpoint? They often end in /mcp or /sse"
_HINTS: Final[Mapping[int, str]] = {
    404: _CHECK_URL,
    405: _CHECK_URL,
    410: _CHECK_URL,
    407: "the proxy wants a user and a password: put them into its URL, http://USER:PASSWORD@HOST",
    421: "the server does not go by this host name; use the one that it expects",
    431: "the headers are too long for the server; is one of yours very long?",
}


def rejected(label: str, status: int, reason: str, data: bytes, redact: Redact) -> HttpRejected:
    """The error for an answer without a JSON-RPC reply; `reason` says what came in the reply's place."""
    is_page = bool(_WEB_PAGE.match(data[:EXCERPT_BYTES].decode(errors="replace")))
    return HttpRejected(
        f"{label} answered {status} with {reason}{_clause(data, redact)}",
        status=status,
        excerpt=redact(data[:EXCERPT_BYTES].decode(errors="replace")),
        hint=_HINTS.get(status, _CHECK_URL if is_page and status < 400 else ""),
    )


def unavailable(label: str, status: int, headers: Mapping[str, Any], data: bytes, redact: Redact) -> Unavailable:
    """The error for an answer that speaks of the moment only."""
    wait_s = retry_after_s(headers)
    return Unavailable(
        f"{label} answered {status}{_clause(data, redact)}",
        status=status,
        retry_after_s=wait_s,
        hint=f"try again in {wait_s:.0f} s, as the server asks" if wait_s else "try again later",
    )


def denied(
    label: str,
    status: int,
    data: bytes,
    redact: Redact,
    *,
    challenge: str,
    refused: str,
    credential_sent: bool,
    signs_in: bool,
    code: int | None,
) -> AuthRequired:
    """The error for 401 and 403: `signs_in` says whether credentials come from signing in, the rest is as in `AuthRequired`."""
    wanted = parse_bearer(challenge)
    hint = "sign in with `outrider login`, or give a credential, for example with --header 'Authorization: Bearer …'"
    if credential_sent:
        hint = "the credential that was sent is not accepted"
        if wanted.error == "insufficient_scope" and wanted.scopes and signs_in:
            scopes = " ".join(f"--scope {scope}" for scope in wanted.scopes)
            hint = f"more must be allowed than was; sign in again with: outrider login {label} {scopes}"[:500]
    elif re.match(r"\s*basic\b", challenge, re.IGNORECASE):
        hint = "it wants a user and a password: put them into the URL, as in https://USER:PASSWORD@HOST/mcp"
    elif status == 403 and not challenge:
        hint = f"it asks for no credential: a firewall or an allow-list may be what refuses; if not, {hint}"
    return AuthRequired(
        f"{label} answered {status}{_clause(data, redact)}",
        status=status,
        challenge=redact(challenge),
        credential_sent=credential_sent,
        refused=refused,
        code=code,
        hint=redact(hint),
    )


def retry_after_s(headers: Mapping[str, Any]) -> float | None:
    """How long a server asks to wait, in seconds, at most an hour; None if it does not say so in a readable way.

    Spec: RFC 9110 10.2.3 (seconds, or a date)
    """
    value = str(headers.get("Retry-After", "")).strip()
    if value.isascii() and value.isdecimal() and len(value) < 10:
        return min(float(value), _MAX_WAIT_S)
    try:
        moment = email.utils.parsedate_to_datetime(value).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(moment - time.time(), 0.0), _MAX_WAIT_S)
