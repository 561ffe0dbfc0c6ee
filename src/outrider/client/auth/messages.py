"""The OAuth messages that ask for tokens, made with authlib and joserfc.

Decided here: how our client shows who it is, how a request is bound to a key, and what an answer must be to hold a token. Not here: when a
token is asked for and kept (`flow`), and what may be fetched (`fetching`). authlib and joserfc are loaded when a message is made.

Spec: RFC 6749, RFC 7523, RFC 9449
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit, urlunsplit

import msgspec
from msgspec.structs import replace

from outrider.client.auth.steps import Registered, parse_scopes
from outrider.client.auth.store import Grant
from outrider.errors import ConfigError, SignInFailed
from outrider.redaction import Redactor, show_url

if TYPE_CHECKING:
    from outrider.client.auth.fetching import Answer, Fetcher

__all__ = ["PROOF_ALGORITHM", "Messages", "new_key", "reason_told", "require_libraries", "require_token"]

PROOF_ALGORITHM: Final = "ES256"
"""What tokens are bound with. Spec: RFC 9449 5.1"""
_ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_ASSERTION_LIFE_S: Final = 120
_FORM: Final = {"Content-Type": "application/x-www-form-urlencoded"}


class Messages:
    """Makes requests for tokens, and reads the answers.

    Args:
        private_key_pem: what signs for our client where that is how it shows who it is, or "".
        signing_algorithm: of that key.
        clock: the time, in seconds since 1970.
    """

    def __init__(self, private_key_pem: str, signing_algorithm: str, clock: Callable[[], float]) -> None:
        self._private_key_pem = private_key_pem
        self._signing_algorithm = signing_algorithm
        self._clock = clock

    async def post_form(
        self, fetcher: Fetcher, url: str, client: Registered, fields: Mapping[str, str], what: str, *, key: str = ""
    ) -> Answer:
        """Send a form as our client.

        Args:
            fetcher: sends it.
            url: the endpoint.
            client: who we are there.
            fields: the form.
            what: the endpoint's name for people.
            key: what the tokens are to be bound to, or "".

        Raises:
            SignInFailed: the endpoint wants a way of authentication that we do not know.
            ConfigError: packages are missing, or the private key cannot sign.
            TransportError: no answer came.
        """
        require_libraries()
        from authlib.common.urls import add_params_to_qs
        from authlib.oauth2.auth import ClientAuth

        body, headers = add_params_to_qs("", list(fields.items())), dict(_FORM)
        if client.auth_method == "private_key_jwt":
            assertion = self._client_assertion(client)
            extra = {
                "client_id": client.client_id,
                "client_assertion_type": _ASSERTION_TYPE,
                "client_assertion": assertion,
            }
            body = add_params_to_qs(body, list(extra.items()))
        else:
            # In the Basic header id and secret are form-encoded, which authlib leaves to its callers. Spec: RFC 6749 2.3.1
            encode: Callable[[str], str] = quote if client.auth_method == "client_secret_basic" else str
            keeper = ClientAuth(encode(client.client_id), encode(client.client_secret), client.auth_method)
            try:
                _, headers, body = keeper.prepare("POST", url, headers, body)
            except TypeError as error:
                raise SignInFailed(
                    f"the authorization server wants an unknown way of authentication: {client.auth_method[:50]}"
                ) from error
        if not key:
            return await fetcher.post(url, body.encode(), headers, what)
        answer = await fetcher.post(url, body.encode(), {**headers, "DPoP": self.proof(key, "POST", url)}, what)
        if answer.document.get("error") != "use_dpop_nonce" or not answer.nonce:
            return answer
        proof = self.proof(key, "POST", url, answer.nonce)  # Spec: RFC 9449 8
        return await fetcher.post(url, body.encode(), {**headers, "DPoP": proof}, what)

    def proof(self, key: str, method: str, url: str, nonce: str = "", token: str = "") -> str:
        """The proof that one request comes from whoever has the key. Spec: RFC 9449 4.2"""
        from joserfc import jwt
        from joserfc.jwk import ECKey

        private = ECKey.import_key(msgspec.json.decode(key))
        claims: dict[str, Any] = {
            "jti": secrets.token_urlsafe(16),
            "htm": method,
            "htu": urlunsplit((*urlsplit(url)[:3], "", "")),
            "iat": int(self._clock()),
        }
        if nonce:
            claims["nonce"] = nonce
        if token:
            digest = hashlib.sha256(token.encode()).digest()
            claims["ath"] = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        header = {"typ": "dpop+jwt", "alg": PROOF_ALGORITHM, "jwk": private.as_dict(private=False)}
        return jwt.encode(header, claims, private, algorithms=[PROOF_ALGORITHM])

    def _client_assertion(self, client: Registered) -> str:
        """Spec: RFC 7523 2.2, with the issuer as the audience, as its revision demands."""
        require_libraries()
        from joserfc import jwt
        from joserfc.errors import JoseError
        from joserfc.jwk import ECKey, OKPKey, RSAKey

        algorithm = self._signing_algorithm
        kinds: dict[str, Any] = {"ES": ECKey, "RS": RSAKey, "PS": RSAKey, "Ed": OKPKey}
        kind = kinds.get(algorithm[:2], ECKey)
        now = int(self._clock())
        claims = {
            "iss": client.client_id,
            "sub": client.client_id,
            "aud": client.issuer,
            "jti": secrets.token_urlsafe(16),
            "iat": now,
            "exp": now + _ASSERTION_LIFE_S,
        }
        try:
            key = kind.import_key(self._private_key_pem)
            return jwt.encode({"alg": algorithm, "typ": "JWT"}, claims, key, algorithms=[algorithm])
        except (ValueError, TypeError, JoseError):
            # Without its cause: the words of a parser may quote what it could not read.
            raise ConfigError(f"the private key cannot sign with {algorithm}") from None

    def granted(self, grant: Grant, answer: Answer) -> Grant:
        """A grant with the tokens of an answer. Spec: RFC 6749 5.1, 6"""
        document = answer.document
        token = require_token(answer, grant.token_endpoint, (), bound=bool(grant.key))
        life = document.get("expires_in")
        try:
            life_s = float(life) if isinstance(life, int | float | str) else None
        except ValueError:
            life_s = None
        refresh = document.get("refresh_token")
        return replace(
            grant,
            access_token=token,
            key=grant.key if str(document.get("token_type")).lower() == "dpop" else "",
            refresh_token=refresh if isinstance(refresh, str) and refresh else grant.refresh_token,
            expires_at=self._clock() + life_s if life_s is not None and 0 <= life_s < 1e10 else None,
            granted=parse_scopes(document.get("scope")) or grant.granted or grant.scopes,
        )


def new_key() -> str:
    """A new key to bind tokens to, as a JWK."""
    require_libraries()
    from joserfc.jwk import ECKey

    return msgspec.json.encode(ECKey.generate_key("P-256").as_dict(private=True)).decode()


def require_libraries() -> None:
    """Raises ConfigError if the packages that make OAuth messages are not installed."""
    try:
        import authlib  # noqa: F401
        import joserfc  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "signing in needs packages that are not installed",
            hint="install them with: pip install 'outrider-mcp[auth]'",
        ) from error


def require_token(answer: Answer, endpoint: str, told_them: Sequence[str], *, bound: bool = False) -> str:
    """The access token of an answer that can be used; one that is bound to a key, only if we have that. Spec: RFC 6749 5.1, RFC 9449 5"""
    token, kind = answer.document.get("access_token"), answer.document.get("token_type")
    if answer.status not in (200, 201) or not isinstance(token, str) or not token:
        told = Redactor(part for part in told_them if part)(reason_told(answer))
        raise SignInFailed(f"{show_url(endpoint)} gives no token: {told}", hint="sign in again")
    if not isinstance(kind, str) or kind.lower() not in (("bearer", "dpop") if bound else ("bearer",)):
        raise SignInFailed(f"{show_url(endpoint)} gives a token of a type that was not asked for")
    if not (token.isascii() and token.isprintable() and " " not in token):
        raise SignInFailed(f"{show_url(endpoint)} gives a token that cannot be sent")
    return token


def reason_told(answer: Answer) -> str:
    """The reason an authorization server gives, for people."""
    parts = (answer.document.get(name) for name in ("error", "error_description"))
    text = " ".join(" ".join(part.split()) for part in parts if isinstance(part, str))
    return text[:200] or f"it answered {answer.status}"
