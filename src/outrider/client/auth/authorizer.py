"""What the transports know of signing in: headers to send, and whom to ask when a server refuses a request.

Decided here: the border between requests and signing in. Not here: everything that happens behind it (`flow`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

__all__ = ["Authorizer", "Challenge", "token_mark"]


class Challenge(Struct, frozen=True):
    """A request was refused with 401 or 403.

    Attributes:
        status: 401 or 403.
        header: the values of `WWW-Authenticate`, joined by commas, or "".
        refused: the `token_mark` of the credential that was sent, or "" for none.
        nonce: what the next proof of possession must hold, or "". Spec: RFC 9449 9
    """

    status: int
    header: str = ""
    refused: str = ""
    nonce: str = ""


class Authorizer(Protocol):
    """Has credentials for servers, each named by its URL, and gets new ones. Methods may be called from many tasks at once.

    A configured `Authorization` header always goes before what an authorizer has.
    """

    def context(self, url: str) -> str:
        """What tells one identity's answers from another's, the same for as long as nobody signs in anew; "" for nobody."""
        ...

    async def headers(self, url: str, method: str = "POST") -> Mapping[str, str]:
        """The headers to send to `url` and to nobody else, with one request of that HTTP method; {} when there is no credential.

        A token that is about to expire is renewed first.

        Raises:
            TransportError: it has expired, and the authorization server cannot be reached.
        """
        ...

    async def on_challenge(self, url: str, challenge: Challenge) -> bool:
        """Whether there is another credential now, so that the same request may be sent once more. Asks no person.

        Raises:
            SignInFailed: one could not be had, and why.
        """
        ...

    async def sign_in(self, url: str, challenge: Challenge) -> bool:
        """Like `on_challenge`, but may ask a person and take as long as that takes; called outside all time limits.

        Raises:
            SignInFailed: nobody was signed in, and why.
        """
        ...


def token_mark(authorization: str) -> str:
    """A short digest that tells whether two `Authorization` values are the same, without being one; "" for ""."""
    return hashlib.sha256(authorization.encode()).hexdigest()[:16] if authorization else ""
