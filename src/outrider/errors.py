"""Every exception Outrider raises, the JSON-RPC error codes, and the HTTP status each code travels with.

Decided here: what kinds of failure there are and which facts each carries. Not here: when to raise them. Pure; the bottom layer.

An error is read by a person. `str(error)` is one sentence that holds no secret; facts are fields; `hint` says what to do next.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = [
    "AuthRequired",
    "ConfigError",
    "ConnectFailed",
    "ConnectionLost",
    "HeaderMismatch",
    "HttpRejected",
    "InputNeeded",
    "LimitExceeded",
    "LocalProtocolError",
    "MissingClientCapability",
    "NoCommonVersion",
    "NotApproved",
    "Offline",
    "OutriderError",
    "PeerError",
    "RemoteProtocolError",
    "SignInFailed",
    "StoreError",
    "StreamEnded",
    "TaskCancelled",
    "TimedOut",
    "TransportError",
    "Unavailable",
    "UnsupportedVersion",
    "http_status",
    "named_versions",
    "peer_error",
]

# JSON-RPC 2.0 codes. Spec: 2026-07-28 basic/index#error-codes
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
# Codes that MCP itself defines, in its reserved range -32020…-32099. Spec: 2026-07-28 basic/index#error-codes
HEADER_MISMATCH: Final = -32020
MISSING_CLIENT_CAPABILITY: Final = -32021
UNSUPPORTED_VERSION: Final = -32022
# Codes of earlier revisions: read from legacy servers, never emitted by a modern one. Spec: 2026-07-28 basic/index#error-codes
LEGACY_RESOURCE_NOT_FOUND: Final = -32002
LEGACY_URL_ELICITATION_REQUIRED: Final = -32042

MODERN_CODES: Final = frozenset({HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY, UNSUPPORTED_VERSION})
"""The codes that only a modern server sends: any of them is proof of the era."""

_HTTP_STATUS: Final = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CLIENT_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
    INTERNAL_ERROR: 500,
}


def http_status(code: int) -> int:
    """The HTTP status a modern server answers with when the body carries JSON-RPC error `code`.

    A code that the specification does not map (an application's own) travels with 200: the request was understood and answered.

    Spec: 2026-07-28 basic/transports/streamable-http#protocol-version-header and #server-validation (MUST)
    """
    return _HTTP_STATUS.get(code, 200)


class OutriderError(Exception):
    """The root: catch this to catch everything Outrider raises on purpose.

    Attributes:
        hint: one sentence about what the user can do next, or "".
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class LocalProtocolError(OutriderError):
    """Our own caller asked for something the protocol forbids; nothing was sent."""


class RemoteProtocolError(OutriderError):
    """The peer broke the protocol.

    Attributes:
        rule: the rule that was broken, with its place in the specification where there is one.
        excerpt: at most 200 characters of what the peer sent, redacted, or "".
    """

    def __init__(self, message: str, *, rule: str = "", excerpt: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.rule = rule
        self.excerpt = excerpt[:200]


class LimitExceeded(RemoteProtocolError):
    """The peer sent more, deeper or longer than a configured limit allows."""


class PeerError(OutriderError):
    """The peer answered with a JSON-RPC error.

    Attributes:
        code: the JSON-RPC error code.
        message: the peer's own text, unredacted; treat it as untrusted.
        data: the error's `data` member, decoded, or None.
        status: the HTTP status that carried it, or None.
    """

    status: int | None = None

    def __init__(self, code: int, message: str, data: Any = None, *, hint: str = "") -> None:
        super().__init__(f"the server answered error {code}: {message[:500]}", hint=hint)
        self.code = code
        self.message = message
        self.data = data


class HeaderMismatch(PeerError):
    """-32020: HTTP headers and body disagree, or a required header did not arrive."""


class MissingClientCapability(PeerError):
    """-32021: the request needs a capability this client did not declare.

    Attributes:
        required: the missing capabilities, in the shape of ClientCapabilities.
    """

    def __init__(self, code: int, message: str, data: Any = None, *, hint: str = "") -> None:
        super().__init__(code, message, data, hint=hint)
        required = data.get("requiredCapabilities") if isinstance(data, dict) else None
        self.required: dict[str, Any] = required if isinstance(required, dict) else {}
        if self.required and not hint:
            names = ", ".join(str(name)[:40] for name in list(self.required)[:8])
            self.hint = f"the server serves only clients with the capability {names}; give a handler for it"


class UnsupportedVersion(PeerError):
    """-32022: the server does not implement the requested protocol version.

    Attributes:
        requested: the version the server says was asked for, or "".
        supported: the versions the server says it supports; () if it names none.
    """

    def __init__(self, code: int, message: str, data: Any = None, *, hint: str = "") -> None:
        super().__init__(code, message, data, hint=hint)
        facts = data if isinstance(data, dict) else {}
        requested, supported = facts.get("requested"), facts.get("supported")
        self.requested = requested if isinstance(requested, str) else ""
        self.supported = named_versions(supported)


def named_versions(value: object) -> tuple[str, ...]:
    """The versions in `data.supported` of an error: those of a list; whatever else is there names none."""
    return tuple(version for version in value if isinstance(version, str)) if isinstance(value, list) else ()


_PEER_ERRORS: Final[dict[int, type[PeerError]]] = {
    HEADER_MISMATCH: HeaderMismatch,
    MISSING_CLIENT_CAPABILITY: MissingClientCapability,
    UNSUPPORTED_VERSION: UnsupportedVersion,
}


def peer_error(code: int, message: str, data: Any = None) -> PeerError:
    """The exception for a JSON-RPC error answer, with its own class where the code has one."""
    return _PEER_ERRORS.get(code, PeerError)(code, message, data)


class InputNeeded(OutriderError):
    """The server wants input before it can finish, and nobody here can give it.

    Attributes:
        input_requests: what it asks, `{"method": str, "params": {…}}` under keys of its own.
        request_state: an opaque string to send back unchanged with the answers, or None.
    """

    def __init__(self, method: str, input_requests: dict[str, Any], request_state: str | None) -> None:
        kinds = ", ".join(sorted({str(request.get("method")) for request in input_requests.values()}))
        super().__init__(
            f"the server asks for input before it answers {method}: {kinds or 'nothing but a second try'}",
            hint="declare the capability and give a handler for it",
        )
        self.input_requests = input_requests
        self.request_state = request_state


class TaskCancelled(OutriderError):
    """A task that was waited for was cancelled: by somebody else, or by the server.

    Attributes:
        task_id: the task.
        status_message: why, in the server's words, or "": untrusted.
    """

    def __init__(self, task_id: str, status_message: str) -> None:
        said = f": {status_message[:500]}" if status_message else ""
        super().__init__(f"the task was cancelled{said}", hint="call the tool again if its result is still wanted")
        self.task_id = task_id
        self.status_message = status_message


class NoCommonVersion(OutriderError):
    """Both sides were understood, but no protocol version is spoken by both.

    Attributes:
        ours: the versions this client speaks.
        theirs: the versions the server names.
    """

    def __init__(self, ours: tuple[str, ...], theirs: tuple[str, ...]) -> None:
        super().__init__(
            f"no common protocol version: this client speaks {', '.join(ours) or 'none'}, the server {', '.join(theirs) or 'names none'}"
            + (" after a handshake, which that version does not have" if set(ours) & set(theirs) else ""),
            hint="upgrade whichever side is older",
        )
        self.ours = ours
        self.theirs = theirs


class TransportError(OutriderError):
    """The bytes did not get through: no statement about what the peer is."""


class Offline(TransportError):
    """The server was not asked, because only what is remembered was wanted."""


class ConnectFailed(TransportError):
    """No connection or process could be had: name resolution, TCP, TLS, proxy, or the command did not start."""


class ConnectionLost(TransportError):
    """The connection or process ended while an answer was awaited.

    Attributes:
        exit_code: the process's exit code (negative: the signal that ended it), or None for a network connection.
        stderr_tail: the last lines the process wrote to stderr, redacted.
    """

    def __init__(
        self, message: str, *, exit_code: int | None = None, stderr_tail: tuple[str, ...] = (), hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = exit_code
        self.stderr_tail = stderr_tail


class StreamEnded(ConnectionLost):
    """An event stream ended in good order, without the answer that it was for."""


class TimedOut(TransportError):
    """No answer within the time allowed.

    Attributes:
        phase: what was being waited for: "start", "request", "list" or "task".
        timeout_s: the limit that passed, in seconds.
    """

    def __init__(self, message: str, *, phase: str = "request", timeout_s: float = 0.0, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.phase = phase
        self.timeout_s = timeout_s


class AuthRequired(TransportError):
    """HTTP 401 or 403: the server wants a credential, or another one. Never evidence about the era.

    Attributes:
        status: 401 or 403.
        challenge: the `WWW-Authenticate` header's value, or "".
        credential_sent: whether the request carried one.
        code: the JSON-RPC error code in the body, or None when it holds none.
        refused: a digest of the token that was refused, or "".
        issuer: where one signs in, or "" while that is not known.
        scopes: what one would be asked to allow, as far as known.
    """

    issuer: str = ""
    scopes: tuple[str, ...] = ()

    def __init__(
        self,
        message: str,
        *,
        status: int,
        challenge: str = "",
        credential_sent: bool = False,
        code: int | None = None,
        refused: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.challenge = challenge
        self.credential_sent = credential_sent
        self.code = code
        self.refused = refused


class SignInFailed(AuthRequired):
    """Signing in was tried and did not succeed: what the servers say does not fit together, or access was not granted."""

    def __init__(self, message: str, *, status: int = 401, hint: str = "") -> None:
        super().__init__(message, status=status, hint=hint)


class HttpRejected(TransportError):
    """An HTTP answer without a JSON-RPC body that could be used.

    Attributes:
        status: the HTTP status.
        excerpt: at most 200 characters of the body, redacted.
        location: where a redirect points that was not followed, without its query, or "".
    """

    def __init__(self, message: str, *, status: int, excerpt: str = "", location: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.excerpt = excerpt[:200]
        self.location = location


class Unavailable(TransportError):
    """HTTP 408, 425, 429 or 5xx: the server, or what stands before it, cannot answer now. Never evidence about the era.

    Attributes:
        status: the HTTP status.
        retry_after_s: how long the server asks to wait, in seconds, or None.
    """

    def __init__(self, message: str, *, status: int, retry_after_s: float | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.retry_after_s = retry_after_s


class NotApproved(OutriderError):
    """Something differs from what the lock file says, and the lock is enforced: nothing was sent.

    The message is of our words alone, so that it may reach a model.

    Attributes:
        detail: what differs, for a person; it may repeat what a server wrote.
    """

    def __init__(self, message: str, *, detail: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.detail = detail


class StoreError(OutriderError):
    """A cache backend failed. Callers inside Outrider degrade to a miss and report it once."""


class ConfigError(OutriderError):
    """A configuration file or option cannot be used.

    Attributes:
        source: "file:line" or the option's name, or "".
    """

    def __init__(self, message: str, *, source: str = "", hint: str = "") -> None:
        super().__init__(f"{source}: {message}" if source else message, hint=hint)
        self.source = source
