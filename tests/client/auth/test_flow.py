"""Signing in at a real authorization server, and what follows."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

import outrider
from client.auth.conftest import Person, Protected
from fakes.oauth_server import MACHINE_ID, MACHINE_SECRET
from outrider.cache.memory import open_memory
from outrider.client.auth.flow import ClientCredentials, OAuth, OAuthClient
from outrider.client.auth.store import InMemoryStore, UserStore
from outrider.client.client import Client
from outrider.client.discover import discover
from outrider.client.target import ClientOptions, parse_target
from outrider.errors import AuthRequired, ConfigError, SignInFailed, StoreError

DEADLINE_S = 60.0


class Clock:
    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


def client_of(protected: Protected, auth: OAuth) -> Client:
    return outrider.connect(protected.mcp, options=ClientOptions(auth=auth))


async def test_person_signs_in_once_and_steps_up_when_a_call_needs_it(protected: Protected) -> None:
    """Spec: 2026-07-28 basic/authorization#authorization-flow-steps, #step-up-authorization-flow"""
    person = Person()
    async with client_of(protected, OAuth(agent=person)) as client:
        assert [tool.name for tool in (await client.list_tools()).items] == ["write"]
        assert (await client.call_tool("write")).text == "written"
        assert (await client.call_tool("write")).text == "written"
    first, second = (parse_qs(urlsplit(page).query) for page in person.visited)
    assert first["code_challenge_method"] == ["S256"]
    assert first["resource"] == second["resource"] == [protected.mcp]
    assert first["scope"] == ["files:read offline_access"]
    assert second["scope"] == ["files:read offline_access files:write"]
    assert first["state"] != second["state"]
    assert first["code_challenge"] != second["code_challenge"]
    assert len(protected.asked("register")) == 1
    assert {entry["resource"] for entry in protected.asked("token")} == {protected.mcp}
    assert person.open == 0


async def test_calls_that_need_the_same_scope_ask_the_person_once(protected: Protected) -> None:
    """Ours: whoever waited for the person goes on with the new token"""
    person = Person()
    async with client_of(protected, OAuth(agent=person)) as client:
        results = await asyncio.gather(*(client.call_tool("write") for _ in range(4)))
    assert [result.text for result in results] == ["written"] * 4
    assert len(person.visited) == 2


async def test_giving_up_on_a_person_keeps_nothing(protected: Protected) -> None:
    """Ours: cancelled while the page is open: no port stays open, no task, no grant"""
    arrived = asyncio.Event()

    class Slow(Person):
        async def visit(self, url: str, state: str) -> str:
            arrived.set()
            await asyncio.Event().wait()
            raise AssertionError

    person = Slow()
    auth = OAuth(agent=person)
    opening = asyncio.create_task(client_of(protected, auth).__aenter__())
    async with asyncio.timeout(DEADLINE_S):
        await arrived.wait()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
    assert person.open == 0
    assert auth.grant(protected.mcp) is None


async def test_token_is_renewed_before_it_expires(protected: Protected) -> None:
    """Spec: 2026-07-28 basic/authorization#refresh-tokens; ours: no request is refused for a token known to be old"""
    clock = Clock()
    auth = OAuth(agent=Person(), clock=clock)
    async with client_of(protected, auth) as client:
        before = auth.grant(protected.mcp)
        assert before is not None
        assert before.expires_at is not None
        clock.now = before.expires_at
        await asyncio.gather(*(client.request("tools/list", {}) for _ in range(5)))
    after = auth.grant(protected.mcp)
    assert after is not None
    assert (after.id, after.scopes) == (before.id, before.scopes)
    assert after.refresh_token != before.refresh_token
    grants = [entry["grant_type"] for entry in protected.asked("token")]
    assert grants == ["authorization_code", "refresh_token"]


async def test_revoked_token_is_renewed_and_the_request_sent_again(protected: Protected) -> None:
    """Ours: 401 with a token, renewed, and the same request once more; the person is not asked"""
    person = Person()
    async with client_of(protected, OAuth(agent=person)) as client:
        protected.order(revoke_access=True)
        await client.request("tools/list", {})
    assert len(person.visited) == 1
    assert [entry["grant_type"] for entry in protected.asked("token")] == ["authorization_code", "refresh_token"]


async def test_after_signing_out_nothing_is_kept_on_either_side(protected: Protected) -> None:
    """Ours: the tokens are given back"""
    store = InMemoryStore()
    auth = OAuth(store, agent=Person())
    async with client_of(protected, auth):
        pass
    assert protected.live == 1
    assert await auth.sign_out(protected.mcp)
    assert protected.live == 0
    assert store.grant(protected.mcp) is None
    assert await auth.headers(protected.mcp) == {}
    assert not await auth.sign_out(protected.mcp)


async def test_refused_consent_is_told(protected: Protected) -> None:
    """Spec: RFC 6749 4.1.2.1"""
    with pytest.raises(SignInFailed, match="access_denied"):
        async with client_of(protected, OAuth(agent=Person(allow=False))):
            pass


async def test_client_that_brought_nobody_back_is_registered_anew(protected: Protected) -> None:
    """Ours: a server that has forgotten our client tells only the person in the browser"""

    class Puzzled(Person):
        async def visit(self, url: str, state: str) -> str:
            raise SignInFailed("nobody came back")

    store = InMemoryStore()
    for _ in range(2):
        with pytest.raises(SignInFailed, match="nobody came back"):
            async with client_of(protected, OAuth(store, agent=Puzzled())):
                pass
    assert len(protected.asked("register")) == 2
    async with client_of(protected, OAuth(store, agent=Person())):
        pass
    async with client_of(protected, OAuth(store, agent=Person(), start_anew=True)):
        pass
    assert len(protected.asked("register")) == 3


async def test_store_that_fails_is_told_before_a_person_is_asked(protected: Protected, tmp_path: Path) -> None:
    """Ours: without a sign-in nothing can be read, and nothing needs to be; with one it is told at once"""
    (tmp_path / "file").write_text("")
    person = Person()
    auth = OAuth(UserStore(tmp_path / "file" / "folder", keyring=False), agent=person)
    assert await auth.headers(protected.mcp) == {}
    with pytest.raises(StoreError):
        async with client_of(protected, auth):
            pass
    assert not person.visited


async def test_machine_signs_in_by_itself_and_steps_up(protected: Protected) -> None:
    """Spec: 2026-07-28 basic/authorization#step-up-authorization-flow; RFC 6749 2.3.1 (form-encoded id and secret), 4.4"""
    auth = OAuth(client=OAuthClient(MACHINE_ID, MACHINE_SECRET), machine=ClientCredentials())
    async with client_of(protected, auth) as client:
        assert (await client.call_tool("write")).text == "written"
    assert [entry["scope"] for entry in protected.asked("token")] == ["files:read", "files:read files:write"]


async def test_missing_packages_are_named(protected: Protected, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: signing in needs an extra; the error says which"""
    import sys

    monkeypatch.setitem(sys.modules, "authlib", None)
    with pytest.raises(ConfigError) as raised:
        async with client_of(protected, OAuth(agent=Person())):
            pass
    assert "outrider-mcp[auth]" in raised.value.hint


def test_using_a_stored_token_loads_no_http_stack() -> None:
    """Ours: what is answered from memory stays quick for those who are signed in"""
    import subprocess
    import sys

    script = "import sys, outrider.client.auth.flow; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True).stdout.split()
    assert not {"aiohttp", "authlib", "joserfc", "keyring"} & set(loaded)


async def test_machine_with_a_wrong_secret_asks_once(protected: Protected) -> None:
    """Ours: what was refused is not asked for again and again"""
    auth = OAuth(client=OAuthClient(MACHINE_ID, "wrong"), machine=ClientCredentials())
    with pytest.raises(SignInFailed, match="invalid_client") as raised:
        async with client_of(protected, auth):
            pass
    assert "wrong" not in str(raised.value)
    assert len(protected.asked("token")) == 1


async def test_protected_server_without_sign_in_is_reported_and_its_era_not_stored(protected: Protected) -> None:
    """Case 14"""
    async with open_memory("memory:") as memory:
        report = await discover(protected.mcp, memory=memory)
        assert report.failure is not None
        assert report.failure.kind == "auth"
        assert report.failure.issuer == protected.issuer
        assert report.failure.scopes == ("files:read",)
        assert "outrider login" in report.failure.hint
        assert report.era is None
        client = Client(parse_target(protected.mcp), ClientOptions(), memory=memory)
        assert client.remembering is not None
        assert await client.remembering.known_era() is None
    assert [entry["method"] for entry in protected.asked("mcp")] == ["server/discover"]


async def test_what_one_identity_saw_is_not_remembered_for_another(protected: Protected) -> None:
    """Spec: 2026-07-28 server/utilities/caching#cache-scope-field (MUST NOT cross authorization contexts)"""
    async with open_memory("memory:") as memory:
        options = ClientOptions(auth=OAuth(agent=Person()))
        report = await discover(protected.mcp, options=options, memory=memory)
        assert report.ok
        again = await discover(protected.mcp, options=options, memory=memory)
        assert again.source == "memory"
        stranger = await discover(protected.mcp, memory=memory)
        assert not stranger.ok
        other = await discover(protected.mcp, options=ClientOptions(auth=OAuth(agent=Person())), memory=memory)
        assert other.source == "network"


async def test_configured_header_goes_before_any_token(protected: Protected) -> None:
    """Ours: what the user configured is what is sent"""
    auth = OAuth(agent=Person())
    with pytest.raises(AuthRequired):
        async with outrider.connect(
            protected.mcp, headers={"Authorization": "Bearer mine"}, options=ClientOptions(auth=auth)
        ):
            pass
    assert auth.grant(protected.mcp) is None


async def test_no_token_in_what_is_shown_or_remembered(protected: Protected, tmp_path: Path) -> None:
    """Ours: no token in any transcript, error, report or cache, even if the server repeats it. Case 69"""
    lines: list[str] = []
    person = Person()
    options = ClientOptions(auth=OAuth(agent=person), trace=lambda direction, line: lines.append(direction + line))
    async with open_memory(tmp_path / "memory.sqlite3") as memory:
        report = await discover(protected.mcp, options=options, memory=memory)
        assert report.ok
        protected.order(echo_token=True, revoke_access=True)
        person.alter = lambda address: address.replace("code=", "code=x")
        shown = [str(report.as_json()), repr(options.auth)]
        auth = options.auth
        assert isinstance(auth, OAuth)
        shown.append(repr(auth.grant(protected.mcp)))
        await auth.sign_out(protected.mcp)
        with pytest.raises(SignInFailed) as raised:
            async with outrider.connect(protected.mcp, options=options):
                pass
        shown.append(f"{raised.value!r} {raised.value.hint} {raised.value.__cause__!r}")
    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    secrets = protected.secrets
    assert len(secrets) >= 3
    for secret in secrets:
        assert secret not in "\n".join([*lines, *shown])
        assert secret.encode() not in kept


async def test_two_processes_do_not_use_up_one_refresh_token_twice(protected: Protected, tmp_path: Path) -> None:
    """Ours: a refresh token works once; its second use would end both. Spec: OAuth 2.1 4.3.1"""
    clock = Clock()
    async with client_of(protected, OAuth(UserStore(tmp_path, keyring=False), agent=Person())):
        pass
    # Each has read the store before either renews: as two processes do.
    ours = [OAuth(UserStore(tmp_path, keyring=False), clock=clock) for _ in range(2)]
    for auth in ours:
        grant = auth.grant(protected.mcp)
        assert grant is not None
        assert grant.expires_at is not None
    clock.now = grant.expires_at
    for auth in ours:
        async with client_of(protected, auth) as client:
            await client.request("tools/list", {})
    assert [entry["grant_type"] for entry in protected.asked("token")].count("refresh_token") == 1
    assert protected.live == 2
