"""Where credentials are kept."""

from __future__ import annotations

import asyncio
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.backends import fail, null
from keyring.errors import KeyringLocked

from outrider.client.auth.steps import Registered
from outrider.client.auth.store import Grant, UserStore
from outrider.errors import StoreError

URL = "https://mcp.example/mcp"
DEADLINE_S = 60.0


def grant(url: str = URL, token: str = "token-1") -> Grant:
    client = Registered("https://as.example", "client", "secret-1")
    return Grant(url, url, "https://as.example", client, "id", ("a",), "https://as.example/token", access_token=token)


def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    """Spec: security-considerations#token-theft (MUST store securely)"""
    store = UserStore(tmp_path / "credentials", keyring=False)
    store.keep_grant(grant())
    store.keep_client(Registered("https://as.example", "client"))
    files = [file for file in (tmp_path / "credentials").iterdir() if file.suffix == ".json"]
    assert len(files) == 2
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert stat.S_IMODE((tmp_path / "credentials").stat().st_mode) == 0o700
    assert all("mcp.example" not in file.name for file in files)


def test_what_is_kept_comes_back_and_is_forgotten(tmp_path: Path) -> None:
    """Ours: one entry per server, clients apart"""
    store = UserStore(tmp_path, keyring=False)
    assert store.grant(URL) is None
    store.keep_grant(grant())
    store.keep_grant(grant(f"{URL}/other", "token-2"))
    store.keep_grant(grant(token="token-3"))
    assert store.grant(URL) == grant(token="token-3")
    assert [each.url for each in store.grants()] == [URL, f"{URL}/other"]
    assert store.forget_grant(URL)
    assert not store.forget_grant(URL)
    assert store.grant(URL) is None
    store.keep_client(Registered("https://as.example", "client"))
    assert store.client("https://as.example") == Registered("https://as.example", "client")
    assert store.client("https://as.example/") is None
    store.forget_client("https://as.example")
    assert store.client("https://as.example") is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"url": 1}', b"\xff" * 100])
def test_damaged_entry_is_as_good_as_none(tmp_path: Path, content: bytes) -> None:
    """Ours: sign in again, no traceback"""
    store = UserStore(tmp_path, keyring=False)
    store.keep_grant(grant())
    next(tmp_path.glob("*.json")).write_bytes(content)
    assert store.grant(URL) is None
    assert store.grants() == []


def test_entry_of_another_server_is_not_used(tmp_path: Path) -> None:
    """Ours: a renamed file does not send a token elsewhere"""
    store = UserStore(tmp_path, keyring=False)
    store.keep_grant(grant())
    file = next(tmp_path.glob("*.json"))
    store.keep_grant(grant("https://evil.example/mcp", "token-2"))
    other = next(path for path in tmp_path.glob("*.json") if path != file)
    other.write_bytes(file.read_bytes())
    assert store.grant("https://evil.example/mcp") is None


def test_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """Ours: a StoreError that names the folder and no secret"""
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError) as raised:
        UserStore(tmp_path / "file" / "credentials", keyring=False).keep_grant(grant())
    assert "token-1" not in str(raised.value)


WRITER = """
import sys
from pathlib import Path
from outrider.client.auth.store import UserStore
sys.path.insert(0, sys.argv[2])
from client.auth.test_store import grant
store = UserStore(Path(sys.argv[1]), keyring=False)
for number in range(200):
    store.keep_grant(grant(token=f"token-{number}" + "x" * 5000))
"""


def test_no_reader_sees_half_of_an_entry(tmp_path: Path) -> None:
    """Ours: several processes write and read the same entry"""
    tests = str(Path(__file__).resolve().parents[2])
    store = UserStore(tmp_path, keyring=False)
    store.keep_grant(grant())
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), tests]) for _ in range(2)]
    try:
        while any(writer.poll() is None for writer in writers):
            assert store.grant(URL) is not None
        assert [writer.returncode for writer in writers] == [0, 0]
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
    assert not list(tmp_path.glob(".new-*"))


HOLDER = """
import asyncio, sys
from pathlib import Path
from outrider.client.auth.store import UserStore
async def main():
    async with UserStore(Path(sys.argv[1]), keyring=False).turn(sys.argv[2]):
        print("mine", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
asyncio.run(main())
"""


async def test_processes_take_turns(tmp_path: Path) -> None:
    """Ours: a refresh token works once, so one process at a time renews"""
    store = UserStore(tmp_path, keyring=False)
    holder = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        HOLDER,
        str(tmp_path),
        URL,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        assert await asyncio.wait_for(holder.stdout.readline(), DEADLINE_S) == b"mine\n"
        held: list[str] = []

        async def wait_for_turn() -> None:
            async with store.turn(URL):
                held.append("ours")

        waiting = asyncio.create_task(wait_for_turn())
        async with store.turn(f"{URL}/other"):
            pass  # Another server's turn is another's.
        assert not held
        holder.stdin.write(b"\n")
        await asyncio.wait_for(waiting, DEADLINE_S)
        assert held == ["ours"]
    finally:
        if holder.returncode is None:
            holder.stdin.close()
            await holder.wait()


class MemoryKeyring(KeyringBackend):
    """A backend of the real `keyring` package that keeps nothing on the machine of whoever runs the tests."""

    priority = 5  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[str, str], str] = {}
        self.locked = False

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        if self.locked:
            raise KeyringLocked
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.kept[service, username]


@pytest.fixture
def ring() -> Iterator[MemoryKeyring]:
    before, found = keyring.get_keyring(), MemoryKeyring()
    keyring.set_keyring(found)
    yield found
    keyring.set_keyring(before)


@pytest.mark.parametrize("backend", [null.Keyring, fail.Keyring])
def test_without_a_real_keyring_files_are_used(
    tmp_path: Path, ring: MemoryKeyring, backend: type[KeyringBackend]
) -> None:
    """Ours: a backend that keeps nothing is none"""
    keyring.set_keyring(backend())
    UserStore(tmp_path).keep_grant(grant())
    assert UserStore(tmp_path).grant(URL) == grant()


def test_keyring_holds_the_secrets_where_there_is_one(tmp_path: Path, ring: MemoryKeyring) -> None:
    """Ours: the file only says that there is an entry"""
    store = UserStore(tmp_path)
    store.keep_grant(grant())
    assert b"token-1" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert store.grant(URL) == grant()
    assert UserStore(tmp_path).grants() == [grant()]
    assert store.forget_grant(URL)
    assert not ring.kept


def test_locked_keyring_leaves_the_file(tmp_path: Path, ring: MemoryKeyring) -> None:
    """Ours: a keyring that refuses costs nobody the sign-in"""
    ring.locked = True
    UserStore(tmp_path).keep_grant(grant())
    assert UserStore(tmp_path).grant(URL) == grant()
