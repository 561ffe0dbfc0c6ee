"""Where credentials are kept between runs: in the system's keyring when there is one, else in files that only their owner can read.

Decided here: what is kept under which name, how it is written so that no reader sees half of it, and how processes take turns. Not here:
what is worth keeping (`flow`).

One entry is one authorization context: one user at one MCP server. Clients are kept apart from grants, one for each authorization server
that gave them out, as they are good nowhere else. With a keyring, a file of the same name says that there is an entry: nobody's keyring is
asked, and perhaps opened with a password, for servers at which nobody signed in.

Spec: 2026-07-28 basic/authorization/security-considerations#token-theft (MUST store securely),
client-registration#authorization-server-binding (MUST)
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import msgspec
from msgspec import Struct

from outrider.client.auth.steps import Registered
from outrider.errors import StoreError

__all__ = ["CredentialStore", "Grant", "InMemoryStore", "UserStore", "default_folder"]

_SERVICE: Final = "outrider"
_LOCK_PAUSE_S: Final = 0.05
_LOCK_PATIENCE_S: Final = 30.0
_MAX_BYTES: Final = 1_000_000

S = TypeVar("S", bound=Struct)


class Grant(Struct, frozen=True):
    """What a user, or a machine, was allowed at one MCP server.

    Attributes:
        url: the MCP server.
        resource: the identifier that the token was asked for.
        issuer: the authorization server.
        client: our client there.
        id: random, new with each sign-in and kept through renewals: it tells identities apart without being a credential.
        scopes: what was asked for.
        granted: what was granted, if the server says so.
        token_endpoint: where the token is renewed.
        revocation_endpoint: where it is given back, or "".
        access_token: the token, or "".
        refresh_token: what renews it, or "".
        expires_at: when the token expires, in seconds since 1970, or None if that is not known.
        key: the private key that the token is bound to, as a JWK in JSON, or "" for a Bearer token.
    """

    url: str
    resource: str
    issuer: str
    client: Registered
    id: str
    scopes: tuple[str, ...]
    token_endpoint: str
    revocation_endpoint: str = ""
    granted: tuple[str, ...] = ()
    access_token: str = ""
    refresh_token: str = ""
    expires_at: float | None = None
    key: str = ""

    def __repr__(self) -> str:
        """Without a token."""
        return f"Grant(url={self.url!r}, issuer={self.issuer!r})"


class CredentialStore(Protocol):
    """Keeps grants by server and clients by issuer.

    Every method raises `StoreError` for what the system refuses.
    """

    def grant(self, url: str) -> Grant | None:
        """The grant for a server, or None."""
        ...

    def keep_grant(self, grant: Grant) -> None:
        """Keep a grant in the place of the one there was."""
        ...

    def forget_grant(self, url: str) -> bool:
        """Forget a grant; whether there was one."""
        ...

    def client(self, issuer: str) -> Registered | None:
        """Our client at an authorization server, or None."""
        ...

    def keep_client(self, client: Registered) -> None:
        """Keep a client that registered itself."""
        ...

    def forget_client(self, issuer: str) -> None:
        """Forget a client, for example when its server does not know it any more."""
        ...

    def turn(self, url: str) -> Any:
        """An async context in which no other process changes the grant for `url`: a refresh token may work only once."""
        ...


class InMemoryStore:
    """A `CredentialStore` that lives as long as the process; for machines that sign in by themselves, and for tests."""

    def __init__(self) -> None:
        self._grants: dict[str, Grant] = {}
        self._clients: dict[str, Registered] = {}

    def grant(self, url: str) -> Grant | None:
        """See `CredentialStore.grant`."""
        return self._grants.get(url)

    def keep_grant(self, grant: Grant) -> None:
        """See `CredentialStore.keep_grant`."""
        self._grants[grant.url] = grant

    def forget_grant(self, url: str) -> bool:
        """See `CredentialStore.forget_grant`."""
        return self._grants.pop(url, None) is not None

    def client(self, issuer: str) -> Registered | None:
        """See `CredentialStore.client`."""
        return self._clients.get(issuer)

    def keep_client(self, client: Registered) -> None:
        """See `CredentialStore.keep_client`."""
        self._clients[client.issuer] = client

    def forget_client(self, issuer: str) -> None:
        """See `CredentialStore.forget_client`."""
        self._clients.pop(issuer, None)

    @asynccontextmanager
    async def turn(self, url: str) -> AsyncIterator[None]:
        """See `CredentialStore.turn`: there is no other process."""
        yield


def default_folder() -> Path:
    """Where credentials are kept: `credentials` in Outrider's folder for configuration."""
    import platformdirs

    return Path(platformdirs.user_config_dir("outrider", appauthor=False)) / "credentials"


class UserStore:
    """The user's own `CredentialStore`, shared by all processes.

    Args:
        folder: where the files are; None for `default_folder()`.
        keyring: keep secrets in the system's keyring if there is one; else in files of mode 0600.
    """

    def __init__(self, folder: Path | None = None, *, keyring: bool = True) -> None:
        self._folder = folder or default_folder()
        self._wants_keyring = keyring
        self._keyring: Any = None

    def grant(self, url: str) -> Grant | None:
        """See `CredentialStore.grant`."""
        found = self._read(_name("grant", url), Grant)
        return found if found is not None and found.url == url else None

    def keep_grant(self, grant: Grant) -> None:
        """See `CredentialStore.keep_grant`."""
        self._write(_name("grant", grant.url), grant)

    def forget_grant(self, url: str) -> bool:
        """See `CredentialStore.forget_grant`."""
        return self._delete(_name("grant", url))

    def client(self, issuer: str) -> Registered | None:
        """See `CredentialStore.client`."""
        found = self._read(_name("client", issuer), Registered)
        return found if found is not None and found.issuer == issuer else None

    def keep_client(self, client: Registered) -> None:
        """See `CredentialStore.keep_client`."""
        self._write(_name("client", client.issuer), client)

    def forget_client(self, issuer: str) -> None:
        """See `CredentialStore.forget_client`."""
        self._delete(_name("client", issuer))

    def grants(self) -> list[Grant]:
        """All grants, by URL."""
        names = [path.stem for path in self._folder.glob("grant-*.json")] if self._folder.is_dir() else []
        found = [grant for name in names if (grant := self._read(name, Grant)) is not None]
        return sorted(found, key=lambda grant: grant.url)

    @asynccontextmanager
    async def turn(self, url: str) -> AsyncIterator[None]:
        """See `CredentialStore.turn`. After half a minute without a turn it goes on without: a hanging process must not stop the rest."""
        descriptor = self._open_lock(_name("grant", url))
        try:
            loop = asyncio.get_running_loop()
            deadline = loop.time() + _LOCK_PATIENCE_S
            # Who holds the lock is another process: there is no event to wait for.
            while descriptor is not None and not _try_lock(descriptor) and loop.time() < deadline:  # noqa: ASYNC110
                await asyncio.sleep(_LOCK_PAUSE_S)
            yield
        finally:
            if descriptor is not None:
                os.close(descriptor)

    # -- files and the keyring -----------------------------------------------------------------------------------------------------

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    def _read(self, name: str, kind: type[S]) -> S | None:
        try:
            data = self._path(name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"the stored credentials cannot be read: {error.strerror}") from error
        try:
            if data == _IN_KEYRING:
                secret = self._system_keyring().get_password(_SERVICE, name)
                if secret is None:
                    return None
                data = secret.encode()
            return msgspec.json.decode(data, type=kind)
        except msgspec.DecodeError:
            return None  # Written by another version, or damaged: as good as none.
        except Exception as error:
            raise StoreError(f"the system's keyring does not answer: {type(error).__name__}") from error

    def _write(self, name: str, value: Struct) -> None:
        data = msgspec.json.encode(value)
        if (ring := self._system_keyring()) is not None:
            try:
                ring.set_password(_SERVICE, name, data.decode())
                data = _IN_KEYRING
            except Exception:
                pass  # A locked or a small keyring; the file is the other place.
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=self._folder, prefix=".new-")  # Mode 0600 from the start.
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, self._path(name))
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise StoreError(f"the credentials cannot be kept in {self._folder}: {error.strerror}") from error

    def _delete(self, name: str) -> bool:
        path = self._path(name)
        try:
            in_keyring = path.read_bytes() == _IN_KEYRING
            path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StoreError(f"the stored credentials cannot be removed: {error.strerror}") from error
        if in_keyring and (ring := self._system_keyring()) is not None:
            try:
                ring.delete_password(_SERVICE, name)
            except Exception as error:
                raise StoreError(f"the system's keyring keeps the credentials: {type(error).__name__}") from error
        return True

    def _system_keyring(self) -> Any:
        """The `keyring` package, if it is installed and has a real keyring behind it, else None."""
        if not self._wants_keyring:
            return None
        if self._keyring is None:
            self._wants_keyring = False
            try:
                import keyring
                from keyring.backends import fail, null

                backend = keyring.get_keyring()
                if not isinstance(backend, fail.Keyring | null.Keyring) and backend.priority > 0:
                    self._keyring, self._wants_keyring = keyring, True
            except Exception:  # Not installed, or its backend is broken: both mean that there is none.
                return None
        return self._keyring

    def _open_lock(self, name: str) -> int | None:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.open(self._folder / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:
            return None  # A read-only home: others cannot write there either.


_IN_KEYRING: Final = b'{"in":"keyring"}'


def _name(kind: str, key: str) -> str:
    return f"{kind}-{hashlib.sha256(key.encode()).hexdigest()[:32]}"


def _try_lock(descriptor: int) -> bool:
    try:
        if os.name == "nt":  # pragma: no cover - no Windows here
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
