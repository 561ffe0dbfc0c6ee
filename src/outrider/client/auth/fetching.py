"""Fetching what untrusted parties point at: metadata documents and the answers of authorization servers.

Decided here: which addresses may be reached, which redirects are followed, how much is read and for how long. Not here: which URLs these
are (`steps`) and what the documents mean (`steps`, `flow`).

A server names the URLs that we fetch, so it could make us ask machines that only we can reach. Names are resolved here and every address is
looked at before it is connected to, so that no second look-up can give another. Private addresses are reached only if the MCP server that
sends us there is itself on such an address.

Spec: RFC 9728 7.7 (SSRF); 2026-07-28 basic/authorization/security-considerations#communication-security
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import aiohttp
import aiohttp.abc
import msgspec
from aiohttp.abc import ResolveResult

from outrider.client.auth.steps import origin_of, require_secure
from outrider.client.http import LocalhostResolver, proxy_for
from outrider.errors import ConnectFailed, SignInFailed, TimedOut
from outrider.redaction import show_url

__all__ = ["Answer", "Fetcher", "kind_of_address"]

_MAX_BYTES: Final = 256 * 1_024
_MAX_REDIRECTS: Final = 3
_TIMEOUT_S: Final = 15.0
_TRANSLATED: Final = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("2002::/16"))
"""NAT64 and 6to4: IPv6 addresses that stand for an IPv4 one."""


def kind_of_address(address: str) -> str:
    """What an address really leads to.

    Returns:
        "public", "private", "link-local", "loopback" or "never" (multicast, unspecified, reserved).
    """
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour
        if inner is None and ip in _TRANSLATED[0]:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return kind_of_address(str(inner))
    if ip.is_loopback:
        return "loopback"
    if ip.is_link_local:
        return "link-local"
    if ip.is_multicast or ip.is_unspecified or ip.is_reserved:
        return "never"
    return "public" if ip.is_global else "private"


class Answer(msgspec.Struct, frozen=True):
    """An answer that holds a JSON object: its status, and the object; {} if the body is none. `nonce` is its DPoP-Nonce, or ""."""

    status: int
    document: dict[str, Any]
    nonce: str = ""


class Fetcher:
    """A short-lived HTTP client for one sign-in at one MCP server: `async with Fetcher(server_url) as fetcher`.

    Args:
        server_url: the MCP server, on whose word everything is fetched.
        timeout_s: the limit for one exchange, redirects included, in seconds.
    """

    def __init__(self, server_url: str, *, timeout_s: float = _TIMEOUT_S) -> None:
        self._server_url = server_url
        self._timeout_s = timeout_s
        self._names = LocalhostResolver()
        self._allowed: frozenset[str] | None = None
        self._direct: aiohttp.ClientSession | None = None
        self._proxied: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Fetcher:
        """The fetcher itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections."""
        for session in (self._direct, self._proxied):
            if session is not None:
                await session.close()
        await self._names.close()

    async def get(self, url: str, what: str) -> Answer:
        """Fetch a document, following redirects within its origin.

        Args:
            url: an https URL, an http one of this machine, or one of the MCP server's own origin.
            what: what it is, for messages.

        Raises:
            SignInFailed: the URL may not be fetched, redirects elsewhere, or answers too much.
            TransportError: no answer.
        """
        if not self._is_own_origin(url):
            require_secure(url, what)
        async with self._within_time(url, what):
            for _ in range(_MAX_REDIRECTS + 1):
                status, location, answer = await self._exchange("GET", url, what, None, {"Accept": "application/json"})
                if not location:
                    return answer
                target = urljoin(url, location)
                if _origin(target) is None or _origin(target) != _origin(url):
                    raise SignInFailed(
                        f"{what} at {show_url(url)} redirects with {status} to {show_url(target)}: not followed"
                    )
                url = target
        raise SignInFailed(f"{what} at {show_url(url)} redirects more than {_MAX_REDIRECTS} times")

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], what: str) -> Answer:
        """Send something that may hold a secret; no redirect is followed.

        Raises:
            SignInFailed, TransportError: see `get`.
        """
        require_secure(url, what)
        async with self._within_time(url, what):
            status, location, answer = await self._exchange(
                "POST", url, what, body, {**headers, "Accept": "application/json"}
            )
        if location:
            raise SignInFailed(f"{what} at {show_url(url)} answers a redirect ({status}): not followed")
        return answer

    def _is_own_origin(self, url: str) -> bool:
        return _origin(url) is not None and _origin(url) == _origin(self._server_url)

    def _within_time(self, url: str, what: str) -> _Deadline:
        return _Deadline(self._timeout_s, f"{what} at {show_url(url)}")

    async def _exchange(
        self, method: str, url: str, what: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, str, Answer]:
        session, proxy = await self._session_for(url, what)
        try:
            async with session.request(
                method, url, data=body, headers=headers, allow_redirects=False, proxy=proxy
            ) as response:
                if 300 <= response.status < 400 and (location := response.headers.get("Location")):
                    return response.status, location, Answer(response.status, {})
                data = bytearray()
                async for chunk in response.content.iter_chunked(16_384):
                    data += chunk
                    if len(data) > _MAX_BYTES:
                        raise SignInFailed(f"{what} at {show_url(url)} is longer than {_MAX_BYTES} bytes")
                nonce = response.headers.get("DPoP-Nonce", "")
                return response.status, "", Answer(response.status, _read_object(bytes(data)), nonce)
        except aiohttp.InvalidURL as error:
            raise SignInFailed(f"{what} has an address that cannot be used: {show_url(url)}") from error
        except (aiohttp.ClientError, ValueError, OSError) as error:
            if isinstance(error.__cause__, _Unreachable):
                raise SignInFailed(
                    f"{what} at {show_url(url)} is at a private address, where {show_url(self._server_url)} must not send us"
                ) from error
            raise ConnectFailed(f"{what} at {show_url(url)} cannot be fetched: {type(error).__name__}") from error

    async def _session_for(self, url: str, what: str) -> tuple[aiohttp.ClientSession, str | None]:
        allowed = await self._allowed_kinds()
        host = urlsplit(url).hostname or ""
        try:
            literal: str | None = kind_of_address(host)
        except ValueError:
            literal = None
        # aiohttp does not ask a resolver for an address.
        if literal is not None and literal not in allowed:
            raise SignInFailed(
                f"{what} at {show_url(url)} is at a {literal} address, where {show_url(self._server_url)} must not send us"
            )
        proxy = None if literal == "loopback" or host.endswith("localhost") else proxy_for(url)
        if proxy is not None:
            # What a proxy may reach is the decision of whoever runs it; names are resolved there.
            self._proxied = self._proxied or _session(self._names)
            return self._proxied, proxy
        self._direct = self._direct or _session(_GuardedResolver(self._names, allowed))
        return self._direct, None

    async def _allowed_kinds(self) -> frozenset[str]:
        """Which kinds of addresses may be reached: public ones, the MCP server's own kind, and from this machine its network."""
        if self._allowed is None:
            host = urlsplit(self._server_url).hostname or ""
            try:
                own = {kind_of_address(host)}
            except ValueError:
                try:
                    found = await self._names.resolve(host, 0, socket.AF_UNSPEC)
                except OSError:
                    found = []
                own = {kind_of_address(entry["host"]) for entry in found}
            self._allowed = frozenset({"public", *own, *({"private"} if "loopback" in own else ())}) - {"never"}
        return self._allowed


class _Unreachable(OSError):
    """A name leads to an address that may not be reached."""


class _GuardedResolver(aiohttp.abc.AbstractResolver):
    """Names to addresses, of the kinds allowed. What is returned is what is connected to."""

    def __init__(self, names: LocalhostResolver, allowed: frozenset[str]) -> None:
        self._names = names
        self._allowed = allowed

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """See `AbstractResolver.resolve`."""
        found = await self._names.resolve(host, port, family)
        kept = [entry for entry in found if kind_of_address(entry["host"]) in self._allowed]
        if not kept:
            raise _Unreachable
        return kept

    async def close(self) -> None:
        """See `AbstractResolver.close`; the names belong to the fetcher."""


class _Deadline:
    """`asyncio.timeout` that tells what took so long."""

    def __init__(self, timeout_s: float, what: str) -> None:
        self._timeout = asyncio.timeout(timeout_s)
        self._timeout_s = timeout_s
        self._what = what

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError as late:
            raise TimedOut(
                f"{self._what} got no answer within {self._timeout_s:g} s", timeout_s=self._timeout_s
            ) from late


def _session(resolver: aiohttp.abc.AbstractResolver) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        cookie_jar=aiohttp.DummyCookieJar(),
        connector=aiohttp.TCPConnector(limit=4, use_dns_cache=False, resolver=resolver),
        timeout=aiohttp.ClientTimeout(total=None),
        headers={"User-Agent": "outrider"},
    )


def _origin(url: str) -> tuple[str, str, int] | None:
    try:
        found = origin_of(url)
    except ValueError:
        return None
    return found if found[1] else None


def _read_object(data: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return {}
    return value if isinstance(value, dict) else {}
