"""Who is let in over HTTP: Host and Origin, and what a client says that it takes.

Decided here: which hosts and origins may call, what browsers are told of that, and which media types mean JSON or an event stream.
Not here: who the caller is (the author's own function), and the request itself (`http`). No I/O.

Spec: 2026-07-28 basic/transports/streamable-http#security--endpoint
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from outrider.errors import INVALID_REQUEST
from outrider.server.dispatch import error_answer

__all__ = ["CallerVerdict", "Door", "is_json"]

_K = TypeVar("_K")
_V = TypeVar("_V")

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]
CallerVerdict: TypeAlias = tuple[tuple[int, bytes] | None, Headers]
"""A refusal as status and body, or None; and the headers that every answer to this caller has."""

_LOOPBACK_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_LOOPBACK_ADDRESSES: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_MAX_REMEMBERED: Final = 256
_MAX_REMEMBERED_CHARS: Final = 500
_CORS_REQUEST_HEADERS: Final = (
    "accept",
    "authorization",
    "content-type",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
)


class Door:
    """Lets callers in or not. Verdicts on header values that repeat from request to request are remembered.

    Args:
        hosts: `Host` values that are let in, as in `HttpOptions`.
        origins: `Origin` values that are let in, as in `HttpOptions`.
    """

    def __init__(self, hosts: Iterable[str], origins: Iterable[str]) -> None:
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)
        self._known_callers: dict[tuple[bytes | None, bytes | None, str | None], CallerVerdict] = {}
        self._known_accepts: dict[bytes | None, tuple[bool, bool]] = {}

    def judge(self, address: Sequence[Any] | None, header_map: Mapping[bytes, bytes]) -> CallerVerdict:
        """Host and Origin of a request that came in at `address`.

        Spec: 2026-07-28 streamable-http#security--endpoint (MUST)
        """
        key = (header_map.get(b"host"), header_map.get(b"origin"), address[0] if address else None)
        verdict = self._known_callers.get(key)
        if verdict is None:
            verdict = _remember(self._known_callers, key, self._judge_caller(*key))
        return verdict

    def _judge_caller(self, host: bytes | None, origin: bytes | None, address: str | None) -> CallerVerdict:
        is_local = address in _LOOPBACK_ADDRESSES
        if not self._allows_host(host, is_local):
            text = "this Host is not served here; the server's operator can allow it"
            return (421, error_answer(None, INVALID_REQUEST, text).body), ()
        if origin is None:
            return None, ()
        if not self._allows_origin(origin, host, is_local):
            text = "this Origin may not call this server; the server's operator can allow it"
            return (403, error_answer(None, INVALID_REQUEST, text).body), ()
        return None, (
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", b"mcp-session-id, www-authenticate"),
            (b"vary", b"origin"),
        )

    def _allows_host(self, host: bytes | None, is_local: bool) -> bool:
        text = (host or b"").decode("latin-1").lower()
        name = _without_port(text)
        if self._hosts:
            return text in self._hosts or name in self._hosts
        return not is_local or name in _LOOPBACK_HOSTS

    def _allows_origin(self, origin: bytes, host: bytes | None, is_local: bool) -> bool:
        text = origin.decode("latin-1").lower()
        if text in self._origins or "*" in self._origins:
            return True
        scheme, separator, authority = text.partition("://")
        if not separator or scheme not in ("http", "https"):
            return False
        if self._origins:
            return False
        if self._hosts:
            return authority == (host or b"").decode("latin-1").lower()
        return is_local and _without_port(authority) in _LOOPBACK_HOSTS

    def accepts(self, accept: bytes | None) -> tuple[bool, bool]:
        """Whether JSON and an event stream are acceptable. No header accepts both, as HTTP has it."""
        known = self._known_accepts.get(accept)
        if known is None:
            known = _remember(self._known_accepts, accept, _media_types(accept))
        return known

    @staticmethod
    def preflight(methods: bytes, mirrored: Iterable[str]) -> Headers:
        """What a browser may send. Every header that a client may need is in it, or modern calls would fail where legacy ones work."""
        return (
            (b"access-control-allow-methods", methods),
            (
                b"access-control-allow-headers",
                ", ".join((*_CORS_REQUEST_HEADERS, *(name.lower() for name in mirrored))).encode(),
            ),
            (b"access-control-max-age", b"600"),
        )


def _remember(known: dict[_K, _V], key: _K, verdict: _V) -> _V:
    if len(known) >= _MAX_REMEMBERED:
        known.clear()
    # A client could fill the memory with long headers that never come again.
    if len(repr(key)) <= _MAX_REMEMBERED_CHARS:
        known[key] = verdict
    return verdict


def _without_port(authority: str) -> str:
    if authority.startswith("["):
        return authority.partition("]")[0] + "]"
    return authority.partition(":")[0]


def is_json(content_type: bytes) -> bool:
    """Whether a `Content-Type` says JSON."""
    return content_type.partition(b";")[0].strip().lower() == b"application/json"


def _media_types(accept: bytes | None) -> tuple[bool, bool]:
    if accept is None:
        return True, True
    wanted: dict[str, bool] = {}
    for entry in accept.decode("latin-1").lower().split(","):
        media_type, *parameters = (part.strip() for part in entry.split(";"))
        refused = any(p.startswith("q=") and p[2:].rstrip("0").rstrip(".") in ("", "0") for p in parameters)
        wanted[media_type] = not refused

    def is_accepted(media_type: str) -> bool:
        for candidate in (media_type, media_type.partition("/")[0] + "/*", "*/*"):
            if candidate in wanted:
                return wanted[candidate]
        return False

    return is_accepted("application/json"), is_accepted("text/event-stream")
