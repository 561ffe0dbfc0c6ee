"""Servers that point elsewhere, lie about who they are, or want tokens that are not theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web
from msgspec import structs

import outrider
from client.auth.conftest import Person, Protected, Site
from outrider.client.auth.authorizer import Challenge
from outrider.client.auth.fetching import Fetcher, kind_of_address
from outrider.client.auth.flow import OAuth, OAuthClient
from outrider.client.auth.lookup import look_up
from outrider.client.auth.steps import Registered
from outrider.client.auth.store import Grant, InMemoryStore
from outrider.client.target import ClientOptions
from outrider.errors import AuthRequired, OutriderError, SignInFailed, TimedOut

DEADLINE_S = 60.0
PUBLIC = "https://93.184.216.34/mcp"


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("93.184.216.34", "public"),
        ("2606:2800:220:1::1", "public"),
        ("10.0.0.1", "private"),
        ("172.16.0.1", "private"),
        ("192.168.1.1", "private"),
        ("100.64.0.1", "private"),
        ("fd00::1", "private"),
        ("169.254.169.254", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("127.0.0.1", "loopback"),
        ("127.9.9.9", "loopback"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("::ffff:169.254.169.254", "link-local"),
        ("64:ff9b::a9fe:a9fe", "link-local"),
        ("2002:7f00:1::", "loopback"),
        ("0.0.0.0", "never"),
        ("::", "never"),
        ("224.0.0.1", "never"),
        ("ff02::1", "never"),
        ("255.255.255.255", "never"),
    ],
)
def test_addresses_are_known_for_what_they_lead_to(address: str, kind: str) -> None:
    """Ours: an IPv4 address in the clothes of an IPv6 one stays what it is"""
    assert kind_of_address(address) == kind


@pytest.mark.parametrize(
    "place",
    [
        "https://169.254.169.254/latest/meta-data",
        "https://10.0.0.1/admin",
        "https://127.0.0.1:1/admin",
        "https://[::ffff:127.0.0.1]/admin",
        "https://0.0.0.0/",
        "https://localhost:1/admin",
        "https://printer.localhost/admin",
        "https://2130706433/admin",
        "https://127.1/admin",
        "https://0x7f000001/admin",
        "http://169.254.169.254/latest",
        "http://93.184.216.34/clear-text",
        "file:///etc/passwd",
        "gopher://127.0.0.1/",
        "https://user:password@as.example/",
    ],
)
async def test_public_server_cannot_send_us_to_our_own_network(place: str) -> None:
    """Spec: RFC 9728 7.7 (SSRF): no private, link-local or loopback address on the word of a public server"""
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(SignInFailed) as raised:
            await look_up(PUBLIC, f'Bearer resource_metadata="{place}"')
        assert "password" not in str(raised.value)
        async with Fetcher(PUBLIC) as fetcher:
            with pytest.raises(SignInFailed):
                await fetcher.post(place, b"secret", {}, "the token endpoint")


async def test_name_that_leads_to_a_private_address_is_not_followed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours: what a name resolves to is looked at where it is connected to, so rebinding it gains nothing"""
    import socket

    port = int(site.url.rpartition(":")[2])
    system = socket.getaddrinfo

    def rebound(host: Any, *rest: Any, **how: Any) -> Any:
        return system("127.0.0.1" if host == "rebound.example" else host, *rest, **how)

    monkeypatch.setattr(socket, "getaddrinfo", rebound)
    with pytest.raises(SignInFailed, match="private"):
        await look_up(PUBLIC, f'Bearer resource_metadata="https://rebound.example:{port}/x"')
    assert site.requests == []


async def test_local_server_may_use_its_own_machine_but_not_the_link(site: Site) -> None:
    """Ours: a server on this machine may have its authorization server here too; the cloud's metadata address stays out of reach"""
    site.protect()
    assert (await look_up(f"{site.url}/mcp")).server.issuer == site.url
    with pytest.raises(SignInFailed):
        await look_up(f"{site.url}/mcp", 'Bearer resource_metadata="https://169.254.169.254/x"')


async def test_metadata_does_not_follow_redirects_elsewhere(site: Site, make_site: Callable[[], Any]) -> None:
    """Ours: a redirect to another origin is not followed, one within the origin is, a few times"""
    other: Site = await make_site()
    other.protect()
    place = "/.well-known/oauth-protected-resource/mcp"
    site.protect()
    good = site.pages[place]
    site.pages[place] = lambda _: web.Response(status=302, headers={"Location": f"{other.url}{place}"})
    with pytest.raises(SignInFailed, match="not followed"):
        await look_up(f"{site.url}/mcp")
    assert other.requests == []
    site.pages[place] = lambda _: web.Response(status=302, headers={"Location": "/moved"})
    site.pages["/moved"] = good
    assert (await look_up(f"{site.url}/mcp")).resource.resource == f"{site.url}/mcp"
    site.pages["/moved"] = site.pages[place]
    with pytest.raises(SignInFailed, match="more than"):
        await look_up(f"{site.url}/mcp")


async def test_token_request_follows_no_redirect(site: Site, make_site: Callable[[], Any]) -> None:
    """Ours: code and secret go to the token endpoint and nowhere else"""
    other: Site = await make_site()
    site.protect()
    site.pages["/authorize"] = consent(site)
    site.pages["/token"] = lambda _: web.Response(status=307, headers={"Location": f"{other.url}/token"})
    with pytest.raises(SignInFailed, match="redirect"):
        await signed_in(site, Person())
    assert other.requests == []


@pytest.mark.parametrize("kind", ["long", "endless", "deep", "no JSON", "a list", "compressed"])
async def test_huge_and_looping_metadata_ends(site: Site, kind: str) -> None:
    """Ours: 256 KiB and no more, whatever the form; what is no object counts as no metadata"""
    import gzip

    site.protect()

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b" " * 65_536)
        except (ConnectionError, OSError):
            return response

    bomb = gzip.compress(b" " * 20_000_000)
    pages: dict[str, Any] = {
        "long": {"resource": "x" * 300_000},
        "endless": endless,
        "deep": lambda _: web.Response(body=b"[" * 100_000, content_type="application/json"),
        "no JSON": lambda _: web.Response(body=b"<html>", content_type="text/html"),
        "a list": [1, 2, 3],
        "compressed": lambda _: web.Response(body=bomb, headers={"Content-Encoding": "gzip"}),
    }
    place = f"{site.url}/metadata"
    site.pages["/metadata"] = pages[kind]
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(SignInFailed):
            await look_up(f"{site.url}/mcp", f'Bearer resource_metadata="{place}"')


async def test_silent_metadata_is_given_up(site: Site) -> None:
    """Ours: each document has a time limit"""
    never = asyncio.Event()

    async def silent(_: web.Request) -> web.Response:
        await never.wait()
        return web.Response()

    site.pages["/metadata"] = silent
    async with Fetcher(site.url, timeout_s=0.2) as fetcher:
        with pytest.raises(TimedOut):
            await fetcher.get(f"{site.url}/metadata", "it")
    never.set()


async def test_report_on_a_server_with_hostile_metadata_still_comes(site: Site) -> None:
    """Case 14; ours: that nobody can find out where to sign in is no failure of its own"""
    site.protect()
    site.pages["/mcp"] = site.challenge("https://169.254.169.254/latest")
    report = await outrider.discover(f"{site.url}/mcp")
    assert report.failure is not None
    assert (report.failure.kind, report.failure.issuer) == ("auth", "")


def consent(site: Site, **extra: str) -> Callable[[web.Request], web.Response]:
    """An authorization endpoint that consents at once."""
    from urllib.parse import urlencode

    async def page(request: web.Request) -> web.Response:
        form = dict(await request.post()) if request.method == "POST" else dict(request.query)
        query = urlencode({"code": "code-1", "state": str(form["state"]), **extra})
        if request.method == "GET":
            return web.Response(text="consent")
        return web.Response(status=302, headers={"Location": f"{form['redirect_uri']}?{query}"})

    return page  # type: ignore[return-value]


async def signed_in(site: Site, person: Person, store: InMemoryStore | None = None, **how: Any) -> OAuth:
    """Somebody signs in at a site's MCP server; what is not protected there answers 404."""
    auth = OAuth(store, agent=person, **how)
    await auth.sign_in(f"{site.url}/mcp", Challenge(401))
    return auth


async def test_code_of_another_issuer_reaches_no_token_endpoint(site: Site) -> None:
    """Spec: 2026-07-28 basic/authorization#authorization-response-validation (MUST, before transmitting the code)"""
    site.protect()
    site.pages["/authorize"] = consent(site, iss="https://honest.example")
    with pytest.raises(SignInFailed, match="does not come from"):
        await signed_in(site, Person())
    assert "POST /token" not in site.requests


async def test_metadata_under_another_name_is_not_used(site: Site, make_site: Callable[[], Any]) -> None:
    """Spec: authorization-server-discovery#authorization-server-metadata-discovery (MUST be rejected)"""
    honest: Site = await make_site()
    honest.protect()
    site.protect()
    site.pages["/.well-known/oauth-authorization-server"] = honest.pages["/.well-known/oauth-authorization-server"]
    with pytest.raises(SignInFailed, match="another issuer"):
        await signed_in(site, Person())
    assert "POST /register" not in site.requests + honest.requests


async def test_response_is_believed_once(protected: Protected) -> None:
    """Spec: security-considerations#open-redirection: state belongs to one request, and an old answer to none"""
    first = Person()
    auth = OAuth(agent=first)
    await auth.sign_in(protected.mcp, Challenge(401))
    again = OAuth(agent=Person(alter=lambda _: first.answers[0]))
    with pytest.raises(SignInFailed, match="another request"):
        await again.sign_in(protected.mcp, Challenge(401))
    assert len(protected.asked("token")) == 1


async def test_token_goes_to_its_own_server_only(protected: Protected, site: Site) -> None:
    """Spec: 2026-07-28 basic/authorization#token-handling (MUST NOT send elsewhere)"""
    auth = OAuth(agent=Person())
    async with outrider.connect(protected.mcp, options=ClientOptions(auth=auth)):
        pass
    assert await auth.headers(protected.mcp)
    assert await auth.headers(f"{protected.mcp}/other") == {}
    site.pages["/mcp"] = lambda _: web.Response(status=307, headers={"Location": protected.mcp})
    with pytest.raises(OutriderError):
        async with outrider.connect(f"{site.url}/mcp", options=ClientOptions(auth=auth)):
            pass
    assert all("Authorization" not in headers for headers in site.headers)


async def test_token_is_not_carried_over_a_redirect_to_another_origin(site: Site, make_site: Callable[[], Any]) -> None:
    """Ours: the MCP server itself may redirect, and the token stays"""
    thief: Site = await make_site()
    url = f"{site.url}/mcp"
    store = InMemoryStore()
    store.keep_grant(grant_for(url, site.url))
    site.pages["/mcp"] = lambda _: web.Response(status=307, headers={"Location": f"{thief.url}/mcp"})
    with pytest.raises(OutriderError):
        async with outrider.connect(url, options=ClientOptions(auth=OAuth(store))):
            pass
    assert site.headers[0]["Authorization"] == "Bearer token-1"
    assert thief.requests == []


@pytest.mark.parametrize("how", ["refused", "forbidden", "unavailable", "error", "result", "rejected"])
async def test_server_that_repeats_the_token_shows_it_to_nobody(site: Site, how: str) -> None:
    """Case 69; ours: what a server makes of our token is masked in errors, reports and transcripts"""
    url, token = f"{site.url}/mcp", "token-that-is-secret"
    store = InMemoryStore()
    store.keep_grant(structs.replace(grant_for(url, site.url), access_token=token))
    site.protect()

    async def repeat(request: web.Request) -> web.Response:
        sent = request.headers.get("Authorization", "nothing")
        message = await request.json()
        challenge = {"WWW-Authenticate": f'Bearer error="{sent}"'}
        error = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32000, "message": f"you sent {sent}"}}
        answers = {
            "refused": web.Response(status=401, text=f"you sent {sent}", headers=challenge),
            "forbidden": web.Response(status=403, text=f"you sent {sent}", headers=challenge),
            "unavailable": web.Response(status=503, text=f"you sent {sent}"),
            "error": web.json_response(error),
            "result": web.json_response({"jsonrpc": "2.0", "id": sent, "result": {}}),
            "rejected": web.Response(status=404, text=f"<p>{sent}"),
        }
        return answers[how]

    site.pages["/mcp"] = repeat
    lines: list[str] = []
    options = ClientOptions(
        auth=OAuth(store), trace=lambda direction, line: lines.append(direction + line), start_timeout_s=5.0
    )
    report = await outrider.discover(url, options=options)
    assert not report.ok
    assert site.headers[0]["Authorization"] == f"Bearer {token}"
    assert token not in "\n".join([*lines, str(report.as_json())])


async def test_token_is_not_sent_without_encryption() -> None:
    """Spec: RFC 6750 5.3 (MUST use TLS)"""
    store = InMemoryStore()
    store.keep_grant(grant_for("http://mcp.example/mcp", "https://as.example"))
    assert await OAuth(store).headers("http://mcp.example/mcp") == {}
    with pytest.raises(SignInFailed, match="without encryption"):
        await OAuth(agent=Person()).sign_in("http://mcp.example/mcp", Challenge(401))


def grant_for(url: str, issuer: str, client_id: str = "client") -> Grant:
    client = Registered(issuer, client_id, dynamic=True)
    return Grant(
        url, url, issuer, client, "id-1", ("x",), f"{issuer}/token", access_token="token-1", refresh_token="refresh-1"
    )


async def test_server_that_moves_gets_a_new_client_and_no_old_secret(site: Site, make_site: Callable[[], Any]) -> None:
    """Spec: client-registration#authorization-server-binding (MUST NOT reuse, MUST re-register)"""
    old: Site = await make_site()
    new: Site = await make_site()
    old.protect()
    new.protect()
    new.pages["/authorize"] = consent(new)
    new.pages["/token"] = {"access_token": "token-2", "token_type": "Bearer"}
    site.protect(new.url)
    url = f"{site.url}/mcp"
    store = InMemoryStore()
    store.keep_client(Registered(old.url, "old-client", dynamic=True, redirect_uri="http://127.0.0.1:33418/callback"))
    store.keep_grant(grant_for(url, old.url, "old-client"))
    person = Person()
    auth = OAuth(store, agent=person)
    with pytest.raises(AuthRequired):
        async with outrider.connect(url, options=ClientOptions(auth=auth)):
            pass
    assert "old-client" not in person.visited[0]
    assert "POST /register" in new.requests
    assert "POST /token" not in old.requests
    grant = auth.grant(url)
    assert grant is not None
    assert grant.issuer == new.url


async def test_client_registered_beforehand_is_not_shown_to_another_server(site: Site) -> None:
    """Spec: client-registration#authorization-server-binding (SHOULD surface an error)"""
    site.protect()
    client = OAuthClient("mine", "my-secret", issuer="https://as.example")
    with pytest.raises(SignInFailed, match="registered with") as raised:
        await signed_in(site, Person(), client=client)
    assert "my-secret" not in f"{raised.value!r}"
    assert not [request for request in site.requests if request.startswith("POST")]


@pytest.mark.parametrize(
    "answer",
    [
        {"access_token": "t", "token_type": "mac"},
        {"access_token": "t", "token_type": "DPoP"},
        {"access_token": "t"},
        {"access_token": "a\r\nX-Evil: 1", "token_type": "Bearer"},
        {"access_token": "tökën", "token_type": "Bearer"},
        {"access_token": "", "token_type": "Bearer"},
        {"access_token": 7, "token_type": "Bearer"},
        {"token_type": "Bearer"},
        [],
    ],
)
async def test_token_that_cannot_be_sent_is_refused(site: Site, answer: Any) -> None:
    """Spec: RFC 6749 5.1, RFC 6750 2.1; ours: no header is built from what a server likes to put into one"""
    site.protect()
    site.pages["/authorize"] = consent(site)
    site.pages["/token"] = answer
    with pytest.raises(SignInFailed):
        await signed_in(site, Person())


async def test_server_that_always_wants_more_is_given_up(site: Site) -> None:
    """Spec: index#step-up-authorization-flow (SHOULD limit)"""
    site.protect()
    site.pages["/authorize"] = consent(site)
    site.pages["/token"] = {"access_token": "token-1", "token_type": "Bearer"}
    asked = 0

    def more(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        if "Authorization" not in request.headers:
            return site.challenge()(request)  # type: ignore[no-any-return]
        return web.Response(
            status=403, headers={"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="scope-{asked}"'}
        )

    site.pages["/mcp"] = more
    person = Person()
    with pytest.raises(AuthRequired):
        async with outrider.connect(f"{site.url}/mcp", options=ClientOptions(auth=OAuth(agent=person))):
            pass
    assert len(person.visited) <= 3


async def test_refused_method_with_a_good_token_is_tried_the_old_way_once(site: Site) -> None:
    """Case 15: 401 to server/discover only, although the token is good"""
    store = InMemoryStore()
    url = f"{site.url}/mcp"
    store.keep_grant(grant_for(url, site.url))
    site.protect()
    methods: list[str] = []
    tokens = iter(range(2, 100))
    site.pages["/token"] = lambda _: web.json_response(
        {"access_token": f"token-{next(tokens)}", "token_type": "Bearer", "refresh_token": "refresh-1"}
    )

    async def gateway(request: web.Request) -> web.Response:
        message = await request.json()
        methods.append(message["method"])
        if message["method"] == "server/discover":
            body = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "Method not found"}}
            return web.json_response(body, status=401, headers={"WWW-Authenticate": "Bearer"})
        if "id" not in message:
            return web.Response(status=202)
        result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "old", "version": "1"}}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})

    site.pages["/mcp"] = gateway
    async with outrider.connect(url, options=ClientOptions(auth=OAuth(store))) as client:
        assert client.era.value == "legacy"
        assert not client.trail.storable
    assert methods[:3] == ["server/discover", "server/discover", "initialize"]
