"""A real authorization server, a browser's part in it, and a place for hostile metadata."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import aiohttp
import pytest
from aiohttp import web

from fakes import process

PROGRAM = Path(process.__file__).resolve().parent / "oauth_server.py"


class Protected:
    """The running servers.

    Attributes:
        issuer: the authorization server's URL.
        mcp: the MCP server's.
    """

    def __init__(self, issuer: str, mcp: str) -> None:
        self.issuer, self.mcp = issuer, mcp

    def _control(self, **orders: Any) -> dict[str, Any]:
        body = json.dumps(orders).encode() if orders else None
        request = urllib.request.Request(
            f"{self.issuer}/control", data=body, headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            found: dict[str, Any] = json.load(response)
        return found

    def order(self, **orders: Any) -> None:
        """Tell the servers how to behave."""
        self._control(**orders)

    def asked(self, at: str) -> list[dict[str, Any]]:
        """What was asked at one endpoint, in order."""
        return [entry for entry in self._control()["log"] if entry["at"] == at]

    @property
    def secrets(self) -> list[str]:
        """Every token and code that was given out."""
        found: list[str] = self._control()["secrets"]
        return found

    @property
    def live(self) -> int:
        """How many tokens are good."""
        return int(self._control()["live"])


@pytest.fixture
def protected() -> Iterator[Protected]:
    """An authlib authorization server and the MCP server that it protects, in a process of their own."""
    with subprocess.Popen([sys.executable, str(PROGRAM)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as running:
        assert running.stdout is not None
        try:
            yield Protected(**json.loads(running.stdout.readline()))
        finally:
            running.kill()


class Person:
    """A `UserAgent` that presses the button in the consent page.

    Attributes:
        visited: the pages it was sent to.
        alter: changes the address that the browser ends at; a test's way to play tricks.
    """

    def __init__(self, alter: Callable[[str], str] = lambda address: address, *, allow: bool = True) -> None:
        self.visited: list[str] = []
        self.answers: list[str] = []
        self.alter = alter
        self.open = 0
        self._allow = "yes" if allow else "no"

    async def start(self, preferred: str) -> str:
        self.open += 1
        return preferred or "http://127.0.0.1:33418/callback"

    async def visit(self, url: str, state: str) -> str:
        self.visited.append(url)
        form = {**dict(parse_qsl(urlsplit(url).query)), "allow": self._allow}
        async with aiohttp.ClientSession() as session:
            async with session.get(url) as page:
                assert page.status == 200, await page.text()
            async with session.post(url.partition("?")[0], data=form, allow_redirects=False) as response:
                self.answers.append(self.alter(response.headers["Location"]))
        return self.answers[-1]

    async def close(self) -> None:
        self.open -= 1


class Site:
    """A web server whose pages a test decides.

    Attributes:
        url: its origin.
        pages: what each path answers: a JSON value, a response, or a function of the request.
        requests: the method and path of everything asked so far.
    """

    def __init__(self) -> None:
        self.url = ""
        self.pages: dict[str, Any] = {}
        self.requests: list[str] = []
        self.headers: list[dict[str, str]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(f"{request.method} {request.path}")
        self.headers.append(dict(request.headers))
        page = self.pages.get(request.path)
        page = page(request) if callable(page) else page
        if hasattr(page, "__await__"):
            page = await page
        if page is None:
            return web.Response(status=404)
        return page if isinstance(page, web.StreamResponse) else web.json_response(page)

    def challenge(self, place: str = "") -> Callable[[web.Request], web.Response]:
        """A page that refuses everybody."""
        where = place or f"{self.url}/.well-known/oauth-protected-resource/mcp"
        return lambda _: web.Response(
            status=401, headers={"WWW-Authenticate": f'Bearer resource_metadata="{where}", scope="x"'}
        )

    def protect(self, issuer: str = "") -> None:
        """Make it a protected MCP server at /mcp that is its own authorization server, or uses another."""
        self.pages["/mcp"] = self.challenge()
        self.pages["/.well-known/oauth-protected-resource/mcp"] = {
            "resource": f"{self.url}/mcp",
            "authorization_servers": [issuer or self.url],
        }
        self.pages["/.well-known/oauth-authorization-server"] = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
        }
        self.pages["/register"] = lambda _: web.json_response({"client_id": f"client of {self.url}"}, status=201)


@pytest.fixture
async def make_site() -> AsyncIterator[Callable[[], Any]]:
    """A function that starts a `Site`."""
    runners: list[web.AppRunner] = []

    async def make() -> Site:
        site = Site()
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", site.answer)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        runners.append(runner)
        listener = web.TCPSite(runner, "127.0.0.1", 0)
        await listener.start()
        site.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return site

    yield make
    for runner in runners:
        await runner.cleanup()


@pytest.fixture
async def site(make_site: Callable[[], Any]) -> Site:
    """One `Site`."""
    made: Site = await make_site()
    return made
