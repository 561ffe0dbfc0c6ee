"""A person's browser: shown the authorization server's page, and heard when it comes back to this machine.

Decided here: where the answer arrives (a port of the loopback interface, open only while somebody signs in), and what is shown there. Not
here: whether the answer is believed (`steps.check_response`).

Spec: 2026-07-28 basic/authorization/security-considerations#communication-security (redirect URIs); RFC 8252 7.3
"""

from __future__ import annotations

import asyncio
import hmac
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import parse_qs, urlsplit

from outrider.errors import SignInFailed

__all__ = ["Browser", "open_system_browser"]

_PATH: Final = "/callback"
_MAX_REQUEST: Final = 16_384
_MAX_CONNECTIONS: Final = 32
_READ_TIMEOUT_S: Final = 10.0
_PAGE: Final = (
    "<!doctype html><meta charset=utf-8><title>Outrider</title>"
    "<body style='font:16px/1.5 system-ui;margin:4em auto;max-width:32em'><h1>{title}</h1><p>{text}</p>"
)


def open_system_browser(url: str) -> bool:
    """Open a page in the user's browser; whether there is one that shows itself. A terminal's text browser is none."""
    import webbrowser

    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    try:
        return webbrowser.open(url)
    except (webbrowser.Error, OSError):
        return False


class Browser:
    """A `UserAgent` for a person at a terminal.

    Args:
        show: called once with the page's URL and whether a browser was opened there; tells the person what to do.
        open_page: opens a page and returns whether that worked; None to leave it to the person.
        paste: waits for the address that the browser ended at, for browsers on another machine; None for none. It may be cancelled.
        timeout_s: how long a person may take, in seconds.
    """

    def __init__(
        self,
        show: Callable[[str, bool], None],
        *,
        open_page: Callable[[str], bool] | None = open_system_browser,
        paste: Callable[[], Awaitable[str]] | None = None,
        timeout_s: float = 600.0,
    ) -> None:
        self._show = show
        self._open_page = open_page
        self._paste = paste
        self._timeout_s = timeout_s
        self._server: asyncio.Server | None = None
        self._redirect_uri = ""
        self._state = ""
        self._answer: asyncio.Future[str] | None = None
        self._connections = 0

    async def start(self, preferred: str) -> str:
        """See `UserAgent.start`: listen on a port of 127.0.0.1, the preferred one if it is free."""
        port = 0
        if preferred:
            parts = urlsplit(preferred)
            port = parts.port or 0 if (parts.hostname, parts.path) == ("127.0.0.1", _PATH) else 0
        try:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, limit=_MAX_REQUEST)
        except OSError:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_MAX_REQUEST)
        self._redirect_uri = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}{_PATH}"
        return self._redirect_uri

    async def visit(self, url: str, state: str) -> str:
        """See `UserAgent.visit`.

        Raises:
            SignInFailed: the person did not come back in time.
        """
        self._state = state
        self._answer = asyncio.get_running_loop().create_future()
        opened = self._open_page is not None and await asyncio.to_thread(self._open_page, url)
        self._show(url, opened)
        pasted = asyncio.ensure_future(self._pasted()) if self._paste is not None else None
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._answer
        except TimeoutError as error:
            raise SignInFailed(
                f"nobody came back from the browser within {self._timeout_s:g} s", hint="sign in again"
            ) from error
        finally:
            if pasted is not None:
                pasted.cancel()
                await asyncio.wait([pasted])

    async def close(self) -> None:
        """See `UserAgent.close`: stop listening."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _pasted(self) -> None:
        assert self._paste is not None
        while True:
            text = (await self._paste()).strip()
            if text and self._is_ours(text):
                self._take(text)
                return

    def _is_ours(self, address: str) -> bool:
        """Whether an answer carries our state; anybody on this machine can knock at the port, and must not end the waiting."""
        try:
            states = parse_qs(urlsplit(address).query, max_num_fields=100).get("state", [])
        except ValueError:
            return False
        return bool(self._state) and len(states) == 1 and hmac.compare_digest(states[0].encode(), self._state.encode())

    def _take(self, address: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(address)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections <= _MAX_CONNECTIONS:
                async with asyncio.timeout(_READ_TIMEOUT_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._respond(head))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass
        finally:
            self._connections -= 1
            writer.close()

    def _respond(self, head: bytes) -> bytes:
        method, _, rest = head.decode("latin-1").partition(" ")
        target = rest.partition(" ")[0]
        path, _, query = target.partition("?")
        if method != "GET" or path != _PATH:
            return _page("404 Not Found", "Not here", "Nothing is to be seen at this address.")
        address = f"{self._redirect_uri}?{query}"
        if not self._is_ours(address):
            return _page("400 Bad Request", "Not expected", "This answer belongs to no sign-in that is under way.")
        self._take(address)
        # Whether it holds is decided in the terminal; nothing of the answer is repeated in the page.
        return _page("200 OK", "Back to the terminal", "You can close this window; the terminal tells how it went.")


def _page(status: str, title: str, text: str) -> bytes:
    body = _PAGE.format(title=title, text=text).encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n"
        "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
