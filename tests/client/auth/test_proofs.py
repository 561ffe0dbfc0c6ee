"""Tokens bound to a key (DPoP): each request proves anew that it comes from whoever has the key."""

from __future__ import annotations

import asyncio
import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web
from joserfc import jwt
from joserfc.jwk import ECKey

import outrider
from client.auth.conftest import Person, Site
from client.auth.test_hostile import consent
from outrider.client.auth.authorizer import Challenge
from outrider.client.auth.flow import OAuth
from outrider.client.auth.store import UserStore
from outrider.client.target import ClientOptions

DEADLINE_S = 60.0


def read(proof: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A proof's header and claims, its signature checked with the key that it names."""
    import json
    from base64 import urlsafe_b64decode

    header = json.loads(urlsafe_b64decode(proof.split(".")[0] + "=="))
    return header, jwt.decode(proof, ECKey.import_key(header["jwk"]), algorithms=["ES256"]).claims


class Bound:
    """An MCP server at a site that takes bound tokens only, and a nonce if it has one."""

    def __init__(self, site: Site, nonce: str = "") -> None:
        self.site, self.nonce = site, nonce
        self.proofs: list[tuple[dict[str, Any], dict[str, Any]]] = []
        site.protect()
        site.pages["/.well-known/oauth-authorization-server"]["dpop_signing_alg_values_supported"] = ["RS256", "ES256"]
        site.pages["/authorize"] = consent(site)
        site.pages["/token"] = self.token
        site.pages["/mcp"] = self.mcp

    def token(self, request: web.Request) -> web.Response:
        header, claims = read(request.headers["DPoP"])
        self.proofs.append((header, claims))
        if self.nonce and claims.get("nonce") != "of the issuer":
            return web.json_response({"error": "use_dpop_nonce"}, status=400, headers={"DPoP-Nonce": "of the issuer"})
        return web.json_response({"access_token": "token-1", "token_type": "DPoP", "refresh_token": "refresh-1"})

    async def mcp(self, request: web.Request) -> web.Response:
        place = f"{self.site.url}/.well-known/oauth-protected-resource/mcp"
        challenge = {"WWW-Authenticate": f'DPoP resource_metadata="{place}"'}
        if request.headers.get("Authorization") != "DPoP token-1":
            return web.Response(status=401, headers=challenge)
        header, claims = read(request.headers["DPoP"])
        self.proofs.append((header, claims))
        if self.nonce and claims.get("nonce") != self.nonce:
            return web.Response(
                status=401, headers={"WWW-Authenticate": 'DPoP error="use_dpop_nonce"', "DPoP-Nonce": self.nonce}
            )
        message = await request.json()
        result = {"supportedVersions": ["2026-07-28"], "capabilities": {}, "resultType": "complete", "tools": []}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})


@pytest.mark.parametrize("nonce", ["", "nonce-1"])
async def test_every_request_carries_a_fresh_proof(site: Site, nonce: str) -> None:
    """Spec: RFC 9449 4.2, 7.1, 8, 9"""
    bound = Bound(site, nonce)
    url = f"{site.url}/mcp?tenant=secret-tenant"
    auth = OAuth(agent=Person())
    async with asyncio.timeout(DEADLINE_S):
        async with outrider.connect(url, options=ClientOptions(auth=auth)) as client:
            await client.request("tools/list", {}, is_safe=True)
            bound.nonce = "nonce-2" if nonce else ""
            await client.request("tools/list", {}, is_safe=True)
    assert len({claims["jti"] for _, claims in bound.proofs}) == len(bound.proofs) >= 4
    keys = {header["jwk"]["x"] for header, _ in bound.proofs}
    assert len(keys) == 1
    assert all("d" not in header["jwk"] and header["typ"] == "dpop+jwt" for header, _ in bound.proofs)
    last = bound.proofs[-1][1]
    assert (last["htm"], last["htu"]) == ("POST", f"{site.url}/mcp")
    assert last["ath"] == urlsafe_b64encode(hashlib.sha256(b"token-1").digest()).rstrip(b"=").decode()
    assert last.get("nonce") == (bound.nonce or None)


async def test_key_is_kept_with_its_token_and_shown_to_nobody(site: Site, tmp_path: Any) -> None:
    """Ours: the next process goes on with the same key"""
    bound = Bound(site)
    url = f"{site.url}/mcp"
    first = OAuth(UserStore(tmp_path, keyring=False), agent=Person())
    assert await first.sign_in(url, Challenge(401, 'DPoP algs="ES256"'))
    grant = first.grant(url)
    assert grant is not None
    assert '"d"' in grant.key
    assert grant.key not in repr(grant)
    async with outrider.connect(url, options=ClientOptions(auth=OAuth(UserStore(tmp_path, keyring=False)))):
        pass
    assert len({header["jwk"]["x"] for header, _ in bound.proofs}) == 1


async def test_no_key_is_made_for_a_server_that_takes_bearer_tokens(site: Site, make_site: Callable[[], Any]) -> None:
    """Ours: bound tokens are for servers that ask for them, at authorization servers that make them"""
    bound = Bound(site)
    bound.site.pages["/token"] = {"access_token": "token-1", "token_type": "Bearer"}
    auth = OAuth(agent=Person())
    await auth.sign_in(f"{site.url}/mcp", Challenge(401, "Bearer"))
    grant = auth.grant(f"{site.url}/mcp")
    assert grant is not None
    assert grant.key == ""
    assert await auth.headers(f"{site.url}/mcp") == {"Authorization": "Bearer token-1"}
