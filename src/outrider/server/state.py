"""`requestState`: what a server wants back with a client's answers, sealed so that a client can neither read nor change nor misuse it.

Decided here: the cipher, what a state is bound to, and when it is refused. Not here: what is put in (`context`). The clock and the random
source are the system's unless given.

A state is sealed with AES-256-GCM. Its binding (the caller, the method, the target and a digest of the arguments) is authenticated but not
carried, so that a state presented by somebody else or on another request does not open. It also expires. What this cannot give is use at
most once: an author who needs that keeps a record of their own.

Spec: 2026-07-28 basic/patterns/mrtr#server-requirements-basic-workflow (MUST verify; SHOULD bind to principal, expiry and request)
"""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final

import msgspec

from outrider.errors import LocalProtocolError

__all__ = ["StateRejected", "StateSeal"]

_VERSION: Final = b"\x01"
_NONCE_BYTES: Final = 12
_MIN_KEY_BYTES: Final = 16
_DRAWN_KEY_BYTES: Final = 32


class StateRejected(Exception):
    """A `requestState` that is not ours, was changed, belongs to another caller or request, or has expired."""


class StateSeal:
    """Seals and opens states.

    Args:
        keys: secrets of at least 16 bytes, the newest first: the first one seals, all of them open. None draws a key that lives as long as
            this object, so that a state opens in this process only.
        ttl_s: how long a state is accepted, in seconds.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        keys: Sequence[bytes | str] | None = None,
        *,
        ttl_s: float = 3600.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        secrets_given = [key.encode() if isinstance(key, str) else bytes(key) for key in keys or ()]
        if any(len(key) < _MIN_KEY_BYTES for key in secrets_given):
            raise ValueError(f"a state key needs at least {_MIN_KEY_BYTES} bytes of secret")
        self._secrets = secrets_given or [os.urandom(_DRAWN_KEY_BYTES)]
        self._ttl_s = ttl_s
        self._clock = clock

    @cached_property
    def _keys(self) -> list[bytes]:
        return [_derive(key) for key in self._secrets]

    def seal(self, payload: Any, binding: bytes) -> str:
        """The payload (any JSON value) as an opaque string that `open` accepts together with the same binding."""
        plain = msgspec.json.encode((self._clock() + self._ttl_s, payload))
        nonce = os.urandom(_NONCE_BYTES)
        sealed = _cipher(self._keys[0]).encrypt(nonce, plain, _VERSION + binding)
        return base64.urlsafe_b64encode(_VERSION + nonce + sealed).decode().rstrip("=")

    def open(self, state: str, binding: bytes) -> Any:
        """The payload of a state.

        Raises:
            StateRejected: it does not open under this binding, or its time is over.
        """
        from cryptography.exceptions import InvalidTag

        try:
            raw = base64.b64decode(state + "=" * (-len(state) % 4), altchars=b"-_", validate=True)
        except ValueError as error:
            raise StateRejected("requestState is not a state of this server") from error
        nonce, sealed = raw[1 : 1 + _NONCE_BYTES], raw[1 + _NONCE_BYTES :]
        if raw[:1] != _VERSION or len(sealed) < 16:
            raise StateRejected("requestState is not a state of this server")
        for key in self._keys:
            try:
                plain = _cipher(key).decrypt(nonce, sealed, _VERSION + binding)
            except InvalidTag:
                continue
            expiry, payload = msgspec.json.decode(plain)
            if self._clock() >= expiry:
                raise StateRejected("requestState has expired; make the request again without it")
            return payload
        raise StateRejected("requestState was changed, or belongs to another request or caller")


def _derive(key: bytes) -> bytes:
    import hmac  # As the cipher below: most servers never seal anything, and start without it.

    return hmac.digest(key, b"outrider requestState 1", "sha256")


def _cipher(key: bytes) -> Any:
    # Imported on first use, and an extra: most servers never ask a client for anything.
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise LocalProtocolError(
            "asking the client for input needs the cryptography package, which seals the state it sends back",
            hint="install outrider-mcp[server]",
        ) from error

    return AESGCM(key)
