"""Signing in: from a refused request to a token, for people and for machines.

Decided here: when a token is asked for, renewed, given up or asked for anew, and for whom. Not here: where one signs in (`lookup`), the
OAuth messages (`messages`), what the documents mean and which step follows which (`steps`), what may be fetched (`fetching`), where
credentials are kept (`store`), how a person consents (`browser`).

Spec: 2026-07-28 basic/authorization
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
from msgspec.structs import replace

from outrider.client.auth.authorizer import Challenge, token_mark
from outrider.client.auth.lookup import Plan, fetcher_for, look_up_with, resource_metadata
from outrider.client.auth.messages import (
    PROOF_ALGORITHM,
    Messages,
    new_key,
    reason_told,
    require_libraries,
    require_token,
)
from outrider.client.auth.steps import (
    Pending,
    Registered,
    ServerMetadata,
    check_response,
    choose_auth_method,
    choose_registration,
    choose_scopes,
    is_loopback,
    origin_of,
    parse_bearer,
    registration_request,
    require_pkce,
    step_up,
)
from outrider.client.auth.store import CredentialStore, Grant, InMemoryStore
from outrider.errors import ConfigError, SignInFailed, StoreError, TransportError
from outrider.redaction import Redactor, show_url

if TYPE_CHECKING:
    from outrider.client.auth.fetching import Fetcher

__all__ = [
    "ClientCredentials",
    "EnterpriseManaged",
    "OAuth",
    "OAuthClient",
    "UserAgent",
    "WorkloadIdentity",
]

_JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"
_ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"
_EARLY_S: Final = 30.0
"""A token is renewed this long before it expires: a request under way must not outlive it."""
_MAX_STEP_UPS: Final = 3
"""How often in one process the scopes at one server are widened; a server that always wants more is given up."""


class UserAgent(Protocol):
    """Takes a person, or what stands for one, to a page and brings back where it ended; see `browser.Browser`."""

    async def start(self, preferred: str) -> str:
        """Get ready, and name the redirect URI: `preferred` if it is still to be had, or any if that is ""."""
        ...

    async def visit(self, url: str, state: str) -> str:
        """Go to `url`, and return the redirect URI with the response in its query. Responses with another `state` are ignored."""
        ...

    async def close(self) -> None:
        """Give back what `start` took."""
        ...


@dataclass(frozen=True, repr=False)
class OAuthClient:
    """Who we are at authorization servers.

    Attributes:
        client_id: given by an authorization server beforehand, or "".
        client_secret: its secret, or "".
        private_key_pem: the key for `private_key_jwt` instead of a secret, or "".
        signing_algorithm: of that key.
        issuer: who gave out the id; "" binds it to the first authorization server it is used at.
        metadata_url: the https URL of a Client ID Metadata Document about us, or "".
        scopes: asked for beside what servers name.
    """

    client_id: str = ""
    client_secret: str = ""
    private_key_pem: str = ""
    signing_algorithm: str = "ES256"
    issuer: str = ""
    metadata_url: str = ""
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ClientCredentials:
    """A machine that acts for itself, with a secret or a key. Extension: io.modelcontextprotocol/oauth-client-credentials"""


@dataclass(frozen=True, repr=False)
class WorkloadIdentity:
    """A machine that shows a token of the platform it runs on.

    Attributes:
        assertion: given the issuer it is for, returns a fresh JWT.
    """

    assertion: Callable[[str], Awaitable[str]]


@dataclass(frozen=True, repr=False)
class EnterpriseManaged:
    """A user whom an enterprise's identity provider already knows: its ID token is exchanged for a grant at each authorization server.

    Attributes:
        id_token: returns the user's ID token.
        token_endpoint: of the identity provider; trusted, as it is configured here.
        client_id: our client at the identity provider.
        client_secret: its secret, or "".

    Extension: io.modelcontextprotocol/enterprise-managed-authorization
    """

    id_token: Callable[[], Awaitable[str]]
    token_endpoint: str
    client_id: str
    client_secret: str = ""


Machine = ClientCredentials | WorkloadIdentity | EnterpriseManaged


@dataclass
class _State:
    """One server's share of an authorizer."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    # Apart from the other: who only needs a renewal does not wait for a person.
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    grant: Grant | None = None
    loaded: bool = False
    header: str = ""
    nonce: str = ""
    step_ups: int = 0


class OAuth:
    """An `Authorizer` that signs in with OAuth 2.1.

    Without `agent` and `machine` it only uses and renews what `store` holds: what commands do for a user who has signed in before.

    Args:
        store: where credentials are kept; None for memory.
        client: who we are.
        agent: takes a person to the authorization server; None if nobody is there.
        machine: how a machine signs in by itself, instead of a person.
        start_anew: look away from stored grants, and sign in again.
        clock: the time, in seconds since 1970.

    Raises:
        ConfigError: a machine needs a client id, or the client's metadata URL is not https with a path.
    """

    def __init__(
        self,
        store: CredentialStore | None = None,
        *,
        client: OAuthClient | None = None,
        agent: UserAgent | None = None,
        machine: Machine | None = None,
        start_anew: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store: CredentialStore = store if store is not None else InMemoryStore()
        self._client = client or OAuthClient()
        self._agent = agent
        self._machine = machine
        self._start_anew = start_anew
        self._clock = clock
        self._messages = Messages(self._client.private_key_pem, self._client.signing_algorithm, clock)
        self._states: dict[str, _State] = {}
        self._bound: str = self._client.issuer
        if machine is not None and not self._client.client_id:
            raise ConfigError("a machine that signs in by itself needs a client id")
        document = self._client.metadata_url
        if document and not (document.startswith("https://") and document.partition("://")[2].partition("/")[2]):
            raise ConfigError("the URL of a Client ID Metadata Document must be https and have a path")

    # -- Authorizer ----------------------------------------------------------------------------------------------------------------

    def context(self, url: str) -> str:
        """See `Authorizer.context`."""
        if self._machine is not None:
            return f"{type(self._machine).__name__}:{self._client.client_id}"
        grant = self._state(url).grant
        return grant.id if grant is not None and (grant.access_token or grant.refresh_token) else ""

    async def headers(self, url: str, method: str = "POST") -> Mapping[str, str]:
        """See `Authorizer.headers`."""
        state = self._state(url)
        if state.grant is None or not (state.grant.access_token or state.grant.refresh_token):
            return {}
        if self._is_stale(state.grant):
            async with state.turn:
                if self._is_stale(state.grant):
                    await self._renew(state, url)
        grant = state.grant
        if not grant.access_token:
            return {}
        if not grant.key:
            return {"Authorization": f"Bearer {grant.access_token}"}
        proof = self._messages.proof(grant.key, method, url, state.nonce, grant.access_token)
        return {"Authorization": f"DPoP {grant.access_token}", "DPoP": proof}

    async def on_challenge(self, url: str, challenge: Challenge) -> bool:
        """See `Authorizer.on_challenge`."""
        state = self._state(url)
        async with state.turn:
            if self._has_another(state, challenge):
                return True
            if challenge.nonce and challenge.nonce != state.nonce and state.grant is not None and state.grant.key:
                state.nonce = challenge.nonce  # Spec: RFC 9449 9
                return True
            if self._machine is not None:
                return await self._admit_machine(state, url, challenge)
            if challenge.status != 401 or state.grant is None or not challenge.refused:
                return False
            # The server may have moved to another authorization server: then renewing at the old one helps nobody.
            if await self._has_moved(state.grant, url, challenge):
                self._drop(state, url)
                return False
            return await self._renew(state, url)

    async def sign_in(self, url: str, challenge: Challenge) -> bool:
        """See `Authorizer.sign_in`. When cancelled, nothing is kept and the agent is closed."""
        if self._agent is None or self._machine is not None:
            return False
        state = self._state(url)
        async with state.asking:
            if self._has_another(state, challenge):
                return True
            if challenge.status == 403:
                before = state.grant.scopes if state.grant is not None else ()
                wider = step_up(before, parse_bearer(challenge.header))
                if wider is None or state.step_ups >= _MAX_STEP_UPS:
                    return False
                state.step_ups += 1
            async with fetcher_for(url) as fetcher:
                await self._admit_person(state, url, challenge, fetcher, self._agent)
        return True

    async def sign_out(self, url: str) -> bool:
        """Forget the grant for `url`, and give its tokens back to the authorization server as far as that works.

        Returns:
            Whether there was one.
        """
        state = self._state(url)
        async with state.turn:
            grant, state.grant = state.grant, None
            known = self._store.forget_grant(url)
        if grant is not None and grant.revocation_endpoint:
            for token in filter(None, (grant.refresh_token, grant.access_token)):
                try:
                    async with fetcher_for(url) as fetcher:
                        await self._messages.post_form(
                            fetcher,
                            grant.revocation_endpoint,
                            grant.client,
                            {"token": token},
                            "the revocation endpoint",
                        )
                except TransportError:
                    pass  # It is forgotten here in any case, and expires there.
        return known or grant is not None

    def grant(self, url: str) -> Grant | None:
        """The present grant for a server, or None."""
        return self._state(url).grant

    # -- what is held --------------------------------------------------------------------------------------------------------------

    def _state(self, url: str) -> _State:
        state = self._states.setdefault(url, _State())
        if not state.loaded:
            state.loaded = True
            try:
                grant = None if self._start_anew else self._store.grant(url)
            except StoreError:
                grant = None  # As good as none: whoever signs in then is told why it cannot be kept.
            # A token in clear text on the way is everybody's token.
            if grant is not None and (origin_of(url)[0] == "https" or is_loopback(url)):
                state.grant = grant
        return state

    def _is_stale(self, grant: Grant | None) -> bool:
        if grant is None or not grant.access_token:
            return grant is not None and bool(grant.refresh_token)
        return grant.expires_at is not None and grant.expires_at - _EARLY_S < self._clock()

    def _has_another(self, state: _State, challenge: Challenge) -> bool:
        """Whether another task has got a new token while this one waited for its turn."""
        if state.grant is None or not state.grant.access_token:
            return False
        scheme = "DPoP" if state.grant.key else "Bearer"
        return token_mark(f"{scheme} {state.grant.access_token}") != challenge.refused

    def _drop(self, state: _State, url: str) -> None:
        """The tokens are good for nothing any more. What was asked for is remembered for the next time, in this process."""
        if state.grant is not None:
            state.grant = replace(state.grant, access_token="", refresh_token="", expires_at=None)
        if not self._start_anew:
            self._store.forget_grant(url)

    def _keep(self, state: _State, grant: Grant) -> None:
        state.grant = grant
        self._store.keep_grant(grant)

    async def _has_moved(self, grant: Grant, url: str, challenge: Challenge) -> bool:
        async with fetcher_for(url) as fetcher:
            resource = await resource_metadata(fetcher, url, parse_bearer(challenge.header))
        return resource is not None and grant.issuer not in resource.authorization_servers

    async def _renew(self, state: _State, url: str) -> bool:
        """Renew the token; whether there is a usable one now. Without one, and no outage to blame, the grant is given up."""
        if self._machine is not None:
            return await self._admit_machine(state, url, Challenge(401, state.header))
        async with self._store.turn(url):
            ours, stored = state.grant, self._store.grant(url)
            if ours is None:
                return False
            # Another process may have had its turn before us, and used up the refresh token that we know.
            if stored is not None and stored.access_token != ours.access_token and not self._is_stale(stored):
                state.grant = stored
                return True
            grant = stored if stored is not None and stored.id == ours.id else ours
            if not grant.refresh_token:
                self._drop(state, url)
                return False
            fields = {"grant_type": "refresh_token", "refresh_token": grant.refresh_token, "resource": grant.resource}
            async with fetcher_for(url) as fetcher:
                answer = await self._messages.post_form(
                    fetcher, grant.token_endpoint, grant.client, fields, "the token endpoint", key=grant.key
                )
            if answer.status >= 500 or answer.status == 429:
                raise TransportError(
                    f"the token endpoint at {show_url(grant.token_endpoint)} answered {answer.status}",
                    hint="try again later",
                )
            if answer.status != 200 or "access_token" not in answer.document:
                self._drop(state, url)
                return False
            try:
                self._keep(state, self._messages.granted(grant, answer))
            except StoreError:
                pass  # This process can go on; the next one has to sign in.
            return True

    # -- people --------------------------------------------------------------------------------------------------------------------

    async def _admit_person(
        self, state: _State, url: str, challenge: Challenge, fetcher: Fetcher, agent: UserAgent
    ) -> None:
        require_libraries()
        from authlib.oauth2.rfc6749.parameters import prepare_grant_uri
        from authlib.oauth2.rfc7636 import create_s256_code_challenge

        _require_safe_way(url)
        before = state.grant
        plan = await look_up_with(
            fetcher, url, challenge.header, self._bound, before.issuer if before is not None else ""
        )
        server = plan.server
        require_pkce(server)
        if not server.authorization_endpoint:
            raise SignInFailed(f"{show_url(server.issuer)} names no authorization endpoint")
        scopes = choose_scopes(
            plan.challenge,
            plan.resource,
            server,
            wanted=self._client.scopes,
            before=before.scopes if before is not None else (),
            offline=True,
        )
        try:
            client = await self._become_client(fetcher, server, scopes, agent)
            redirect_uri = client.redirect_uri
            pending = Pending(
                secrets.token_urlsafe(32), secrets.token_urlsafe(48), server.issuer, redirect_uri, server.sends_issuer
            )
            page = prepare_grant_uri(
                server.authorization_endpoint,
                client.client_id,
                "code",
                redirect_uri=redirect_uri,
                scope=list(scopes),
                state=pending.state,
                code_challenge=create_s256_code_challenge(pending.verifier),
                code_challenge_method="S256",
                resource=plan.resource.resource,
            )
            try:
                response = await agent.visit(page, pending.state)
            except BaseException:
                # Perhaps its server does not know our client any more, and told only the person: the next time we register anew.
                if client.dynamic:
                    self._store.forget_client(server.issuer)
                raise
            code = check_response(pending, response)
        finally:
            await agent.close()
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": pending.verifier,
            "resource": plan.resource.resource,
        }
        grant = _new_grant(url, plan, client, scopes)
        answer = await self._messages.post_form(
            fetcher, server.token_endpoint, client, fields, "the token endpoint", key=grant.key
        )
        if answer.document.get("error") == "invalid_client" and client.dynamic:
            self._store.forget_client(server.issuer)  # It does not know us any more; the next time we register anew.
        require_token(
            answer, server.token_endpoint, (code, pending.verifier, client.client_secret), bound=bool(grant.key)
        )
        self._keep(state, self._messages.granted(grant, answer))

    async def _become_client(
        self, fetcher: Fetcher, server: ServerMetadata, scopes: Sequence[str], agent: UserAgent
    ) -> Registered:
        """Our client at a server, with the redirect URI at which the agent waits.

        Spec: 2026-07-28 basic/authorization/client-registration#authorization-server-binding (MUST)
        """
        ours = self._client
        match choose_registration(server, client_id=ours.client_id, metadata_url=ours.metadata_url):
            case "given":
                return replace(self._given_client(server), redirect_uri=await agent.start(""))
            case "document":
                return Registered(server.issuer, ours.metadata_url, redirect_uri=await agent.start(""))
        known = self._store.client(server.issuer)
        redirect_uri = await agent.start(known.redirect_uri if known is not None else "")
        if known is not None and known.redirect_uri == redirect_uri:
            return known
        body = msgspec.json.encode(registration_request(server, redirect_uri, scopes))
        answer = await fetcher.post(
            server.registration_endpoint, body, {"Content-Type": "application/json"}, "the registration endpoint"
        )
        client_id, secret = answer.document.get("client_id"), answer.document.get("client_secret")
        if answer.status not in (200, 201) or not isinstance(client_id, str) or not client_id:
            raise SignInFailed(
                f"{show_url(server.issuer)} does not register this client: {reason_told(answer)}",
                hint="register a client there by hand, and give its id with --client-id",
            )
        secret = secret if isinstance(secret, str) else ""
        told = answer.document.get("token_endpoint_auth_method")
        method = choose_auth_method(
            server.auth_methods, has_secret=bool(secret), told=told if isinstance(told, str) else ""
        )
        client = Registered(server.issuer, client_id, secret, method, redirect_uri, dynamic=True)
        self._store.keep_client(client)
        return client

    def _given_client(self, server: ServerMetadata) -> Registered:
        ours = self._client
        self._bound = self._bound or server.issuer
        method = choose_auth_method(
            server.auth_methods, has_secret=bool(ours.client_secret), has_key=bool(ours.private_key_pem)
        )
        return Registered(server.issuer, ours.client_id, ours.client_secret, method)

    # -- machines ------------------------------------------------------------------------------------------------------------------

    async def _admit_machine(self, state: _State, url: str, challenge: Challenge) -> bool:
        _require_safe_way(url)
        before = state.grant
        header = state.header = challenge.header
        if challenge.status == 403:
            wider = step_up(before.scopes if before is not None else (), parse_bearer(header))
            if wider is None or state.step_ups >= _MAX_STEP_UPS:
                return False
            state.step_ups += 1
        async with fetcher_for(url) as fetcher:
            plan = await look_up_with(fetcher, url, header, self._bound, before.issuer if before is not None else "")
            client = self._given_client(plan.server)
            scopes = choose_scopes(
                plan.challenge,
                plan.resource,
                plan.server,
                wanted=self._client.scopes,
                before=before.scopes if before is not None else (),
            )
            fields = {"resource": plan.resource.resource, **({"scope": " ".join(scopes)} if scopes else {})}
            match self._machine:
                case WorkloadIdentity(assertion):
                    fields |= {"grant_type": _JWT_BEARER, "assertion": await assertion(plan.server.issuer)}
                case EnterpriseManaged() as enterprise:
                    fields |= {"grant_type": _JWT_BEARER, "assertion": await self._exchange(enterprise, plan, scopes)}
                case _:
                    fields |= {"grant_type": "client_credentials"}
            grant = _new_grant(url, plan, client, scopes)
            endpoint = plan.server.token_endpoint
            answer = await self._messages.post_form(
                fetcher, endpoint, client, fields, "the token endpoint", key=grant.key
            )
        require_token(answer, endpoint, (client.client_secret, fields.get("assertion", "")), bound=bool(grant.key))
        # Machines get no refresh token that would be worth keeping: they can always ask anew.
        state.grant = replace(self._messages.granted(grant, answer), refresh_token="")
        return True

    async def _exchange(self, enterprise: EnterpriseManaged, plan: Plan, scopes: Sequence[str]) -> str:
        """The user's ID token for a grant that is good at one authorization server and for one resource."""
        id_token = await enterprise.id_token()
        fields = {
            "grant_type": _TOKEN_EXCHANGE,
            "requested_token_type": _ID_JAG,
            "audience": plan.server.issuer,
            "resource": plan.resource.resource,
            "subject_token": id_token,
            "subject_token_type": _ID_TOKEN,
            **({"scope": " ".join(scopes)} if scopes else {}),
        }
        method = "client_secret_basic" if enterprise.client_secret else "none"
        client = Registered("", enterprise.client_id, enterprise.client_secret, method)
        async with fetcher_for(enterprise.token_endpoint) as fetcher:
            answer = await self._messages.post_form(
                fetcher, enterprise.token_endpoint, client, fields, "the identity provider"
            )
        token = answer.document.get("access_token")
        if answer.status != 200 or not isinstance(token, str) or answer.document.get("issued_token_type") != _ID_JAG:
            told = Redactor((id_token, enterprise.client_secret))(reason_told(answer))
            raise SignInFailed(f"the identity provider at {show_url(enterprise.token_endpoint)} gives no grant: {told}")
        return token


def _new_grant(url: str, plan: Plan, client: Registered, scopes: tuple[str, ...]) -> Grant:
    # A server that asks for bound tokens says so in its challenge; both sides must be able to.
    bound = plan.challenge.bound and PROOF_ALGORITHM in plan.server.proof_algorithms
    return Grant(
        url,
        plan.resource.resource,
        plan.server.issuer,
        client,
        secrets.token_urlsafe(16),
        scopes,
        plan.server.token_endpoint,
        plan.server.revocation_endpoint,
        key=new_key() if bound else "",
    )


def _require_safe_way(url: str) -> None:
    """Spec: OAuth 2.1 1.5, RFC 6750 5.3 (MUST use TLS)"""
    if origin_of(url)[0] != "https" and not is_loopback(url):
        raise SignInFailed(
            f"{show_url(url)} is reached without encryption: a token would be there for everybody to read",
            hint="use https",
        )
