"""MCP's own order of steps for signing in: what to look for where, what to believe, what to ask for. Pure.

Decided here: every rule of the authorization pages that a client follows, as functions from documents to decisions. Not here: fetching
(`fetching`), keeping (`store`), the OAuth messages themselves (`flow`, with authlib).

Spec: 2026-07-28 basic/authorization
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from msgspec import Struct

from outrider.errors import SignInFailed
from outrider.redaction import show_url

__all__ = [
    "Bearer",
    "Pending",
    "Registered",
    "ResourceMetadata",
    "ServerMetadata",
    "canonical_url",
    "check_response",
    "choose_auth_method",
    "choose_issuer",
    "choose_registration",
    "choose_scopes",
    "is_loopback",
    "origin_of",
    "parse_bearer",
    "parse_scopes",
    "read_resource_metadata",
    "read_server_metadata",
    "registration_request",
    "require_secure",
    "resource_metadata_urls",
    "server_metadata_urls",
    "step_up",
]

OFFLINE_ACCESS: Final = "offline_access"
_MAX_HEADER: Final = 8_192
_MAX_SCOPES: Final = 200
_PARAMETER: Final = re.compile(r"""\s*([\w!#$%&'*+.^`|~-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]*))\s*(,|$|(?=\s))""")
_SCHEME: Final = re.compile(r"\s*,?\s*([A-Za-z][\w!#$%&'*+.^`|~-]*)(?:\s+|\s*(?=,|$))")
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,200}")


# -- URLs ----------------------------------------------------------------------------------------------------------------------------


def origin_of(url: str) -> tuple[str, str, int]:
    """Scheme, host and port of a URL, lower-case, with the default port filled in. Raises ValueError for what is not a URL."""
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    return scheme, (parts.hostname or "").lower(), parts.port or {"https": 443, "http": 80}.get(scheme, 0)


def is_loopback(url: str) -> bool:
    """Whether a URL's host is this machine, by its name or its address."""
    host = (urlsplit(url).hostname or "").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def require_secure(url: object, what: str) -> str:
    """`url` if it is an absolute https URL, or an http one of this machine.

    Raises:
        SignInFailed: it is not.

    Spec: 2026-07-28 basic/authorization/security-considerations#communication-security (MUST)
    """
    try:
        text = url if isinstance(url, str) else ""
        scheme, host, _ = origin_of(text)
    except ValueError:
        text, scheme, host = "", "", ""
    sound = bool(host) and not re.search(r"[\x00-\x20\x7f\\]", text) and urlsplit(text).username is None
    if sound and (scheme == "https" or (scheme == "http" and is_loopback(text))):
        return text
    raise SignInFailed(f"{what} is not an https URL{f': {show_url(text)}' if sound else ''}")


def canonical_url(url: str) -> str:
    """The identifier of a server as a resource: lower-case scheme and host, no query, no fragment, no bare slash at the end.

    Spec: 2026-07-28 basic/authorization#canonical-server-uri
    """
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    netloc = f"[{host}]" if ":" in host else host
    if parts.port and parts.port != {"https": 443, "http": 80}.get(parts.scheme.lower()):
        netloc += f":{parts.port}"
    return urlunsplit((parts.scheme.lower(), netloc, "" if parts.path == "/" else parts.path, "", ""))


# -- the challenge -------------------------------------------------------------------------------------------------------------------


class Bearer(Struct, frozen=True):
    """What a challenge for a token says; every member is "" or () when it is not said.

    Attributes:
        resource_metadata: where the protected-resource metadata is.
        scopes: what the refused request needs.
        error: the reason, such as "invalid_token" or "insufficient_scope".
        bound: the server wants tokens bound to a key (DPoP).
    """

    resource_metadata: str = ""
    scopes: tuple[str, ...] = ()
    error: str = ""
    bound: bool = False


def parse_bearer(header: str) -> Bearer:
    """The first Bearer or DPoP challenge of a `WWW-Authenticate` header; an empty `Bearer` if there is none.

    Several challenges may share one header, parameters may be quoted or not, in any case, in any order; of a repeated parameter the first
    counts. Never raises.

    Spec: RFC 9110 11.6.1, RFC 9728 5.1, RFC 6750 3, RFC 9449 7.1
    """
    for scheme, parameters in _challenges(header[:_MAX_HEADER]):
        if scheme.lower() in ("bearer", "dpop"):
            return Bearer(
                parameters.get("resource_metadata", ""),
                parse_scopes(parameters.get("scope")),
                parameters.get("error", ""),
                scheme.lower() == "dpop",
            )
    return Bearer()


def _challenges(header: str) -> Iterable[tuple[str, dict[str, str]]]:
    position = 0
    while position < len(header):
        scheme = _SCHEME.match(header, position)
        if scheme is None or header[scheme.end() : scheme.end() + 1] == "=":
            return
        position = scheme.end()
        parameters: dict[str, str] = {}
        while (match := _PARAMETER.match(header, position)) is not None:
            value = re.sub(r"\\(.)", r"\1", match[2]) if match[2] is not None else match[3]
            parameters.setdefault(match[1].lower(), value)
            position = match.end()
        yield scheme[1], parameters
        # A token68 such as that of Negotiate, or rubbish: on to the next comma.
        if not parameters and (comma := header.find(",", position)) >= 0:
            position = comma + 1
        elif not parameters:
            return


def parse_scopes(text: object) -> tuple[str, ...]:
    """The scopes of a space-separated string or a list, in order, once each; what is no scope is left out.

    Spec: RFC 6749 3.3
    """
    parts = text.split() if isinstance(text, str) else text if isinstance(text, list | tuple) else ()
    sound = (part for part in parts if isinstance(part, str) and _SCOPE.fullmatch(part))
    return tuple(dict.fromkeys(sound))[:_MAX_SCOPES]


# -- metadata ------------------------------------------------------------------------------------------------------------------------


def resource_metadata_urls(server_url: str, challenge: Bearer) -> tuple[str, ...]:
    """Where to look for the protected-resource metadata, in order: the challenge's place, else the two well-known ones.

    Spec: 2026-07-28 basic/authorization/authorization-server-discovery#protected-resource-metadata-discovery-requirements (MUST)
    """
    if challenge.resource_metadata:
        return (challenge.resource_metadata,)
    parts = urlsplit(server_url)
    root = f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource"
    path = parts.path.rstrip("/")
    return (f"{root}{path}", root) if path else (root,)


class ResourceMetadata(Struct, frozen=True):
    """What a server says of itself as a protected resource.

    Attributes:
        resource: its identifier, which tokens are asked for.
        authorization_servers: the issuers it accepts, in its order.
        scopes: the scopes it names, or None if it names none.
    """

    resource: str
    authorization_servers: tuple[str, ...]
    scopes: tuple[str, ...] | None = None


def read_resource_metadata(document: Mapping[str, Any], server_url: str) -> ResourceMetadata:
    """The metadata, if it is about the server that was meant.

    The resource must be the server's URL or one that contains it: the same origin, and a path that its path starts with. Else a server
    could have tokens made out that are good at another.

    Raises:
        SignInFailed: it names another resource, or no authorization server.

    Spec: RFC 9728 3.3 (MUST); 2026-07-28 basic/authorization/authorization-server-discovery#authorization-server-location (MUST)
    """
    resource, issuers = document.get("resource"), document.get("authorization_servers")
    if not isinstance(resource, str) or not _contains(resource, server_url):
        named = show_url(resource) if isinstance(resource, str) else "none"
        raise SignInFailed(
            f"the protected-resource metadata of {show_url(server_url)} is about another resource: {named}",
            hint="the server is configured wrongly, or something stands in between",
        )
    found = tuple(i for i in issuers if isinstance(i, str)) if isinstance(issuers, list) else ()
    if not found:
        raise SignInFailed(f"the protected-resource metadata of {show_url(server_url)} names no authorization server")
    scopes = document.get("scopes_supported")
    return ResourceMetadata(resource, found[:20], parse_scopes(scopes) if isinstance(scopes, list) else None)


def _contains(resource: str, server_url: str) -> bool:
    try:
        same_origin = origin_of(resource) == origin_of(server_url)
        outer, inner = urlsplit(resource), urlsplit(server_url)
    except ValueError:
        return False
    if not same_origin or outer.fragment or outer.username is not None:
        return False
    if outer.query and outer.query != inner.query:
        return False
    path = outer.path.rstrip("/")
    return inner.path.rstrip("/") == path or inner.path.startswith(f"{path}/")


def choose_issuer(listed: Sequence[str], *, bound: str = "", known: str = "") -> str:
    """The authorization server to use: the one our client was registered with beforehand, the one used last, or the first.

    Raises:
        SignInFailed: the client is registered with a server that is not listed any more.

    Spec: 2026-07-28 basic/authorization/client-registration#authorization-server-binding (SHOULD surface an error)
    """
    if bound:
        if bound not in listed:
            raise SignInFailed(
                f"the client is registered with {show_url(bound)}, but the server now uses {show_url(listed[0])}",
                hint="register the client there, and give its new id",
            )
        return bound
    return known if known in listed else listed[0]


def server_metadata_urls(issuer: str) -> tuple[str, ...]:
    """Where to look for an authorization server's metadata, in order.

    Spec: 2026-07-28 basic/authorization/authorization-server-discovery#authorization-server-metadata-discovery (MUST)
    """
    parts = urlsplit(issuer)
    root, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    oauth, openid = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"
    if not path:
        return f"{root}{oauth}", f"{root}{openid}"
    return f"{root}{oauth}{path}", f"{root}{openid}{path}", f"{root}{path}{openid}"


class ServerMetadata(Struct, frozen=True):
    """What an authorization server says of itself, checked.

    Attributes:
        issuer: who it is, to the letter.
        token_endpoint: where tokens are had.
        authorization_endpoint: where people consent, or "".
        registration_endpoint: where clients register themselves, or "".
        revocation_endpoint: where tokens are given back, or "".
        challenge_methods: the PKCE methods it names.
        auth_methods: how clients may authenticate at the token endpoint.
        scopes: the scopes it names.
        takes_metadata_documents: a client id may be the URL of a document about the client.
        sends_issuer: its authorization responses carry `iss`.
        proof_algorithms: how proofs of possession may be signed; () where it binds no token to a key.
    """

    issuer: str
    token_endpoint: str
    authorization_endpoint: str = ""
    registration_endpoint: str = ""
    revocation_endpoint: str = ""
    challenge_methods: tuple[str, ...] = ()
    auth_methods: tuple[str, ...] = ("client_secret_basic",)
    scopes: tuple[str, ...] = ()
    takes_metadata_documents: bool = False
    sends_issuer: bool = False
    proof_algorithms: tuple[str, ...] = ()


def read_server_metadata(document: Mapping[str, Any], issuer: str) -> ServerMetadata:
    """The metadata, if it is that of `issuer` and can be used.

    Raises:
        SignInFailed: the issuer differs by so much as a slash, or an endpoint is not secure.

    Spec: RFC 8414 3.3, 2026-07-28 basic/authorization/authorization-server-discovery#authorization-server-metadata-discovery (MUST NOT use)
    """
    if "?" in issuer or "#" in issuer:
        raise SignInFailed(f"the issuer {show_url(issuer)} has a query or a fragment")
    named = document.get("issuer")
    if named != issuer:
        shown = show_url(named) if isinstance(named, str) else "no issuer"
        raise SignInFailed(f"the metadata of {show_url(issuer)} names another issuer, {shown}: it is not believed")

    def endpoint(name: str) -> str:
        value = document.get(name)
        if value is None:
            return ""
        found = require_secure(value, f"the {name} of {show_url(issuer)}")
        # A browser would be sent to this machine's own services, with a query of somebody else's.
        if is_loopback(found) and not is_loopback(issuer):
            raise SignInFailed(f"the {name} of {show_url(issuer)} is on this machine, and its issuer is not")
        return found

    token_endpoint = endpoint("token_endpoint")
    if not token_endpoint:
        raise SignInFailed(f"the metadata of {show_url(issuer)} names no token endpoint")
    return ServerMetadata(
        issuer,
        token_endpoint,
        endpoint("authorization_endpoint"),
        endpoint("registration_endpoint"),
        endpoint("revocation_endpoint"),
        _texts(document, "code_challenge_methods_supported"),
        _texts(document, "token_endpoint_auth_methods_supported") or ("client_secret_basic",),
        parse_scopes(document.get("scopes_supported")),
        document.get("client_id_metadata_document_supported") is True,
        document.get("authorization_response_iss_parameter_supported") is True,
        _texts(document, "dpop_signing_alg_values_supported"),
    )


def _texts(document: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = document.get(name)
    return tuple(v for v in value if isinstance(v, str)) if isinstance(value, list) else ()


def require_pkce(server: ServerMetadata) -> None:
    """Raises SignInFailed unless the server says that it does PKCE with S256.

    Spec: 2026-07-28 basic/authorization/security-considerations#authorization-code-protection (MUST refuse)
    """
    if "S256" not in server.challenge_methods:
        raise SignInFailed(
            f"{show_url(server.issuer)} does not say that it supports PKCE with S256: it is not safe to sign in there"
        )


# -- the client ----------------------------------------------------------------------------------------------------------------------


class Registered(Struct, frozen=True):
    """Our client at one authorization server.

    Attributes:
        issuer: where it is registered; good nowhere else, unless `client_id` is the URL of a metadata document.
        client_id: its id.
        client_secret: its secret, or "".
        auth_method: how it authenticates at the token endpoint.
        redirect_uri: the one it was registered with, or "" for any.
        dynamic: it registered itself, and may do so again.
    """

    issuer: str
    client_id: str
    client_secret: str = ""
    auth_method: str = "none"
    redirect_uri: str = ""
    dynamic: bool = False

    def __repr__(self) -> str:
        """Without the secret."""
        return f"Registered(issuer={self.issuer!r}, client_id={self.client_id!r})"


def choose_registration(server: ServerMetadata, *, client_id: str, metadata_url: str) -> str:
    """How to become a client: "given", "document" or "dynamic".

    Raises:
        SignInFailed: none of them is possible.

    Spec: 2026-07-28 basic/authorization/client-registration (SHOULD, in this order)
    """
    if client_id:
        return "given"
    if metadata_url and server.takes_metadata_documents:
        return "document"
    if server.registration_endpoint:
        return "dynamic"
    raise SignInFailed(
        f"{show_url(server.issuer)} lets no client register itself",
        hint="register a client there by hand, and give its id with --client-id",
    )


def choose_auth_method(offered: Sequence[str], *, has_secret: bool, has_key: bool = False, told: str = "") -> str:
    """How a client authenticates at the token endpoint: as the server told it at registration, else the best that both can."""
    if told:
        return told
    if has_key:
        return "private_key_jwt"
    if not has_secret:
        return "none"
    return next(
        (m for m in ("client_secret_basic", "client_secret_post", "none") if m in offered), "client_secret_basic"
    )


def registration_request(server: ServerMetadata, redirect_uri: str, scopes: Sequence[str]) -> dict[str, Any]:
    """The metadata a client registers itself with: a native application that also wants refresh tokens.

    Spec: 2026-07-28 basic/authorization/client-registration#application-type-and-redirect-uri-constraints (MUST)
    """
    preferred = ("none", "client_secret_basic", "client_secret_post")
    method = next((m for m in preferred if m in server.auth_methods), "none")
    request: dict[str, Any] = {
        "client_name": "Outrider",
        "application_type": "native",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
    }
    if scopes:
        request["scope"] = " ".join(scopes)
    return request


# -- scopes --------------------------------------------------------------------------------------------------------------------------


def choose_scopes(
    challenge: Bearer,
    resource: ResourceMetadata,
    server: ServerMetadata,
    *,
    wanted: Sequence[str] = (),
    before: Sequence[str] = (),
    offline: bool = False,
) -> tuple[str, ...]:
    """What to ask for: what the challenge names and the caller wants; without both, all that the resource names, or nothing.

    Args:
        challenge: the refused request's.
        resource: the resource's metadata.
        server: the authorization server's metadata.
        wanted: the caller's own choice.
        before: what was asked for last time: it is asked for again, so that nothing is lost.
        offline: also ask for refresh tokens, where the server knows that scope and others are named too. Alone it would take the place
            of the server's default.

    Spec: 2026-07-28 basic/authorization#scope-selection-strategy, #refresh-tokens
    """
    now = (*challenge.scopes, *wanted) or resource.scopes or ()
    scopes = tuple(dict.fromkeys((*before, *now)))
    if offline and scopes and OFFLINE_ACCESS in server.scopes and OFFLINE_ACCESS not in scopes:
        scopes = (*scopes, OFFLINE_ACCESS)
    return scopes


def step_up(before: Sequence[str], challenge: Bearer) -> tuple[str, ...] | None:
    """The scopes to ask for after 403, or None when asking again is of no use.

    Nothing is gained if the challenge names nothing that was not asked for already: the server would refuse for ever.

    Spec: 2026-07-28 basic/authorization#step-up-authorization-flow
    """
    if challenge.error != "insufficient_scope" or set(challenge.scopes) <= set(before):
        return None
    return tuple(dict.fromkeys((*before, *challenge.scopes)))


# -- the response --------------------------------------------------------------------------------------------------------------------


class Pending(Struct, frozen=True):
    """One authorization request under way; its response is believed once.

    Attributes:
        state: random, ties the response to the request.
        verifier: the PKCE code verifier.
        issuer: from the validated metadata, recorded before the browser was sent away.
        redirect_uri: where the response arrives.
        sends_issuer: the server promises `iss` in its response.
    """

    state: str
    verifier: str
    issuer: str
    redirect_uri: str
    sends_issuer: bool


def check_response(pending: Pending, response_url: str) -> str:
    """The authorization code in a response.

    State and issuer come first: of a response that is not for us nothing is shown, its error neither.

    Args:
        pending: the request.
        response_url: the redirect URI as the browser came to it, with the response in its query.

    Raises:
        SignInFailed: the response belongs to another request or comes from another server, or it says that consent was refused.

    Spec: 2026-07-28 basic/authorization#authorization-response-validation (MUST), security-considerations#open-redirection
    """
    try:
        pairs = parse_qsl(urlsplit(response_url).query, keep_blank_values=True, max_num_fields=100)
    except ValueError as error:
        raise SignInFailed("the authorization response cannot be read") from error
    answer = dict(pairs)
    if len(answer) != len(pairs):
        raise SignInFailed("the authorization response repeats a parameter")
    if answer.get("state") != pending.state:
        raise SignInFailed("the authorization response belongs to another request", hint="sign in again")
    issuer = answer.get("iss")
    if issuer is None and pending.sends_issuer:
        raise SignInFailed("the authorization response does not say who sent it, though its server promised to")
    if issuer is not None and issuer != pending.issuer:
        raise SignInFailed(f"the authorization response does not come from {show_url(pending.issuer)}")
    if "error" in answer:
        told = " ".join(f"{answer['error']} {answer.get('error_description', '')}".split())[:200]
        raise SignInFailed(f"{show_url(pending.issuer)} did not grant access: {told}", hint="sign in again")
    code = answer.get("code", "")
    if not code:
        raise SignInFailed("the authorization response holds no code")
    return code
