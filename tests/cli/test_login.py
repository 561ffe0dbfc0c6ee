"""`outrider login`, `whoami`, `logout`, and the other commands in between."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from client.auth.conftest import Protected, protected

__all__ = ["protected"]

DEADLINE_S = 90.0


class NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def consent(page: str) -> str:
    """Press the button in the consent page; the address that the browser would go to."""
    form = urlencode({**dict(parse_qsl(urlsplit(page).query)), "allow": "yes"}).encode()
    opener = urllib.request.build_opener(NoRedirects)
    with pytest.raises(urllib.error.HTTPError) as raised:
        opener.open(page.partition("?")[0], data=form, timeout=DEADLINE_S)
    with raised.value as response:
        return str(response.headers["Location"])


class Terminal:
    """A user with a home of their own.

    Attributes:
        written: everything that any command wrote.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.written = ""
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "VIRTUAL_ENV") if name in os.environ}
        self.env = {
            **kept,
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_CACHE_HOME": str(home / "cache"),
        }

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "outrider", *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=self.env, cwd=self.home)

    def run(self, *arguments: str) -> tuple[int, str, str]:
        with self.start(*arguments) as running:
            try:
                out, err = running.communicate(timeout=DEADLINE_S)
            finally:
                running.kill()
        self.written += out + err
        return running.returncode, out, err

    def log_in(self, url: str, *, paste: bool) -> tuple[int, str]:
        with self.start("login", url, "--no-browser") as running:
            try:
                assert running.stderr is not None
                page = next(line.strip() for line in running.stderr if re.match(r"\s+https?://", line))
                answer = consent(page)
                if paste:
                    out, err = running.communicate(answer + "\n", timeout=DEADLINE_S)
                else:
                    urllib.request.urlopen(answer, timeout=DEADLINE_S).close()
                    out, err = running.communicate(timeout=DEADLINE_S)
            finally:
                running.kill()
        self.written += out + err
        return running.returncode, out


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


@pytest.mark.parametrize("paste", [True, False], ids=["pasted", "by the browser"])
def test_who_signed_in_is_signed_in_for_every_command(protected: Protected, terminal: Terminal, paste: bool) -> None:
    """Ours: login once, and discover, tools and call work; logout gives everything back; no token is ever written"""
    url = protected.mcp
    code, out, err = terminal.run("discover", url)
    assert code == 4, err
    assert f"outrider login {url}" in out
    assert protected.issuer in out
    code, out = terminal.log_in(url, paste=paste)
    assert code == 0
    assert f"Signed in at {url} with {protected.issuer}" in out
    code, out, err = terminal.run("discover", url, "--json")
    assert code == 0, err
    assert json.loads(out)["era"] == "modern"
    assert terminal.run("tools", url, "-v")[0] == 0
    code, out, _ = terminal.run("whoami", url, "--json")
    assert code == 0
    [entry] = json.loads(out)["signedIn"]
    assert (entry["target"], entry["issuer"], entry["renewable"]) == (url, protected.issuer, True)
    secrets = protected.secrets
    assert secrets
    kept = b"".join(file.read_bytes() for file in (terminal.home / "cache").rglob("*") if file.is_file())
    for secret in secrets:
        assert secret not in terminal.written
        assert secret.encode() not in kept
    code, out, _ = terminal.run("logout", url)
    assert (code, protected.live) == (0, 0)
    assert terminal.run("whoami", url)[0] == 4
    assert terminal.run("discover", url, "--refresh")[0] == 4


def test_call_that_needs_more_says_how_to_get_it(protected: Protected, terminal: Terminal) -> None:
    """Ours: a command never opens a browser by itself; exit code 4 and what to do"""
    terminal.log_in(protected.mcp, paste=True)
    code, _, err = terminal.run("call", "write", "--target", protected.mcp)
    assert code == 4, err
    assert "--scope files:write" in err


def test_header_in_the_way_is_told(terminal: Terminal) -> None:
    """Ours: a sign-in that would never be used is not made"""
    entry = {"url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": "Bearer secret-1"}}
    (terminal.home / ".mcp.json").write_text(json.dumps({"mcpServers": {"remote": entry}}))
    code, out, err = terminal.run("login", "remote")
    assert code == 2
    assert "Authorization" in err
    assert "secret-1" not in out + err


def test_command_cannot_be_signed_in_at(terminal: Terminal) -> None:
    """Spec: 2026-07-28 basic/authorization#protocol-requirements: stdio servers take credentials from the environment"""
    (terminal.home / ".mcp.json").write_text(json.dumps({"mcpServers": {"local": {"command": "cat"}}}))
    code, _, err = terminal.run("login", "local")
    assert code == 2
    assert "environment" in err
