"""The browser's way back to this machine, at last with a real browser."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

import outrider
from client.auth.conftest import Protected
from outrider.client.auth.browser import Browser
from outrider.client.auth.flow import OAuth
from outrider.client.target import ClientOptions
from outrider.errors import SignInFailed
from peers.provision import CHROMIUM, Service

DEADLINE_S = 60.0


async def get(url: str) -> tuple[int, str, dict[str, str]]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text(), dict(response.headers)


async def test_only_the_expected_answer_ends_the_waiting() -> None:
    """Ours: whoever knocks at the port with another state, or at another path, changes nothing; nothing is repeated in the page"""
    shown: asyncio.Queue[str] = asyncio.Queue()
    browser = Browser(lambda url, opened: shown.put_nowait(url), open_page=None)
    redirect = await browser.start("")
    visiting = asyncio.create_task(browser.visit("https://as.example/authorize", "state-1"))
    async with asyncio.timeout(DEADLINE_S):
        assert await shown.get() == "https://as.example/authorize"
        for address, status in (
            (f"{redirect}?code=c&state=other", 400),
            (f"{redirect}?code=c", 400),
            (f"{redirect}?code=c&state=state-1&state=state-1", 400),
            (redirect.replace("/callback", "/favicon.ico"), 404),
            (redirect.replace("/callback", "/callback/../x?state=state-1"), 404),
        ):
            assert (await get(address))[0] == status
        assert not visiting.done()
        status, page, headers = await get(f"{redirect}?code=secret-code&state=state-1&iss=<script>")
        assert status == 200
        assert "secret-code" not in page
        assert "script" not in page
        assert headers["Cache-Control"] == "no-store"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert (await visiting).startswith(f"{redirect}?code=secret-code&")
    await browser.close()
    with pytest.raises(aiohttp.ClientError):
        await get(redirect)


async def test_port_of_the_registration_is_used_again_or_another() -> None:
    """Ours: a redirect URI is registered with its port; when that is taken, the client registers anew"""
    first, second = Browser(lambda *_: None, open_page=None), Browser(lambda *_: None, open_page=None)
    address = await first.start("")
    other = await second.start(address)
    assert other != address
    await first.close()
    await second.close()
    assert await first.start(address) == address
    await first.close()
    assert urlsplit(await first.start("https://elsewhere.example:443/callback")).hostname == "127.0.0.1"
    await first.close()


async def test_pasted_address_serves_as_well() -> None:
    """Ours: a browser on another machine cannot come back here; what does not fit is asked for again"""
    lines = iter(
        ["", "nonsense", "http://127.0.0.1:9/callback?code=c&state=other", " http://x/callback?code=c&state=s \n"]
    )

    async def paste() -> str:
        return next(lines)

    browser = Browser(lambda *_: None, open_page=None, paste=paste)
    await browser.start("")
    async with asyncio.timeout(DEADLINE_S):
        assert await browser.visit("https://as.example", "s") == "http://x/callback?code=c&state=s"
    await browser.close()


async def test_nobody_is_waited_for_without_end() -> None:
    """Ours: the person has a time limit"""
    browser = Browser(lambda *_: None, open_page=None, timeout_s=0.05)
    await browser.start("")
    with pytest.raises(SignInFailed, match="nobody came back"):
        await browser.visit("https://as.example", "s")
    await browser.close()


class Chromium:
    """A headless Chromium, told what to do over its debugging protocol."""

    def __init__(self, program: str, folder: Path) -> None:
        self._folder = folder
        command = [
            program,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
        ]
        self._process = subprocess.Popen(
            [*command, "--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def endpoint(self) -> str:
        """Where it can be told what to do; it says so when it is up."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if b"DevTools listening on " in line:
                return line.decode().partition("listening on ")[2].strip()
        raise AssertionError("the browser did not start")

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


async def consent_in(endpoint: str, page: str) -> str:
    """Open a page, press its button, and return the text of where that leads."""
    async with aiohttp.ClientSession() as session, session.ws_connect(endpoint, max_msg_size=0) as socket:
        numbers = iter(range(1, 1_000))
        events: list[str] = []

        async def tell(method: str, session_id: str = "", **params: object) -> dict[str, Any]:
            number = next(numbers)
            extra = {"sessionId": session_id} if session_id else {}
            await socket.send_json({"id": number, "method": method, "params": params, **extra})
            while (answer := await socket.receive_json()).get("id") != number:
                events.append(answer.get("method", ""))
            found: dict[str, Any] = answer.get("result", {})
            return found

        async def loaded() -> None:
            while "Page.loadEventFired" not in events:
                events.append((await socket.receive_json()).get("method", ""))
            events.clear()

        async def run(script: str) -> Any:
            return (await tell("Runtime.evaluate", attached, expression=script))["result"].get("value")

        target = (await tell("Target.createTarget", url="about:blank"))["targetId"]
        attached = str((await tell("Target.attachToTarget", targetId=target, flatten=True))["sessionId"])
        await tell("Page.enable", attached)
        events.clear()
        await tell("Page.navigate", attached, url=page)
        await loaded()
        await run("document.getElementById('allow').click()")
        await loaded()
        assert await run("location.pathname") == "/callback"
        return str(await run("document.body.innerText"))


@pytest.mark.service
async def test_real_browser_signs_in(protected: Protected, service: Callable[[Service], str]) -> None:
    """Spec: 2026-07-28 basic/authorization#authorization-flow-steps, with nobody's part played by us but the person's click"""
    program = service(CHROMIUM)
    pages: asyncio.Queue[str] = asyncio.Queue()
    with tempfile.TemporaryDirectory(prefix="outrider-chromium-", ignore_cleanup_errors=True) as folder:
        chromium = Chromium(program, Path(folder))
        try:
            endpoint = await asyncio.to_thread(chromium.endpoint)
            auth = OAuth(agent=Browser(lambda url, opened: pages.put_nowait(url), open_page=None))

            async def person() -> str:
                return await consent_in(endpoint, await pages.get())

            async with asyncio.timeout(2 * DEADLINE_S):
                clicking = asyncio.create_task(person())
                async with outrider.connect(protected.mcp, options=ClientOptions(auth=auth)) as client:
                    assert [tool.name for tool in (await client.list_tools()).items] == ["write"]
                assert "Back to the terminal" in await clicking
        finally:
            await asyncio.to_thread(chromium.stop)
    grant = auth.grant(protected.mcp)
    assert grant is not None
    assert grant.issuer == protected.issuer
