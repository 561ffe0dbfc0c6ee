"""Digests that stand for a target and for the credentials of a request, and the secret key they are made with.

A target's fingerprint covers everything that decides which server one talks to, so an edited configuration or an
upgraded program is a new target. An authorization context covers every credential a request carries. Both include
secrets, so both are keyed: from a digest alone nobody can test a guess.

Spec: 2026-07-28 server/utilities/caching#cache-scope-field (MUST NOT cross authorization contexts); the rest ours
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import msgspec

from outrider.errors import ConfigError

__all__ = ["Fingerprinter", "default_key_path"]

# A changed file with one of these endings is another program. Other files named in arguments (a database, a log) change
# in normal use.
_PROGRAM_SUFFIXES: Final = frozenset(
    {".py", ".pyz", ".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".rb", ".sh", ".bash", ".pl", ".php", ".lua", ".jar"}
    | {".wasm", ".exe", ".dll", ".ps1", ".bat", ".cmd", ".r", ".jl", ".ex", ".exs"}
)
_KEY_BYTES: Final = 32
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def default_key_path() -> Path:
    """Where the user's key is kept: `memory.key` in Outrider's folder for configuration."""
    import platformdirs

    return Path(platformdirs.user_config_dir("outrider", appauthor=False)) / "memory.key"


class Fingerprinter:
    """Makes digests with one secret key. Same key and input, same digest: on any machine, in any process.

    Args:
        key: at least 16 bytes. Give all instances that share a Valkey the same key, or they share nothing.

    Spec: ours
    """

    def __init__(self, key: bytes) -> None:
        if len(key) < 16:
            raise ConfigError("the memory key is shorter than 16 bytes", hint="generate one with: openssl rand -hex 32")
        # BLAKE2b takes keys of up to 64 bytes; a longer one is condensed rather than refused.
        self._key = key if len(key) <= 64 else hashlib.blake2b(key).digest()

    def __repr__(self) -> str:
        """Without the key."""
        return "Fingerprinter(key=…)"

    @classmethod
    def for_user(cls, path: Path | None = None) -> Fingerprinter:
        """With the user's own key, created on first use (mode 0600) by whichever process comes first.

        If no key can be kept (a read-only home), one is made for this process only: nothing is then remembered across
        restarts, and nothing else is lost.

        Args:
            path: the key file; None for `default_key_path()`.
        """
        return cls(_load_or_create_key(path or default_key_path()) or os.urandom(_KEY_BYTES))

    def context(self, credentials: Mapping[str, str] | Iterable[tuple[str, str]] = ()) -> str:
        """The authorization context of a request: 32 hex digits, for no credentials too.

        Args:
            credentials: every credential that the request carries, by kind: for example `{"header:authorization":
                "Bearer …", "env:API_KEY": "…", "client-certificate": "<digest>"}`. Names are compared without case;
                order makes no difference, repetition does.
        """
        pairs = credentials.items() if isinstance(credentials, Mapping) else credentials
        return self._digest("context", sorted([name.lower(), value] for name, value in pairs))

    def http(self, url: str, headers: Mapping[str, str] | Iterable[tuple[str, str]] = ()) -> str:
        """The fingerprint of a target reached over HTTP: 32 hex digits.

        Args:
            url: as configured, after expansion. Case of scheme and host, a default port and a fragment make no
                difference.
            headers: the configured ones, after expansion. Where credentials differ per user of one target (a gateway),
                leave them out here and put them in the context.
        """
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        return self._digest("http", [_plain_url(url), sorted([name.lower(), value.strip()] for name, value in pairs)])

    def stdio(
        self,
        command: str,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
    ) -> str:
        """The fingerprint of a target that is a command: 32 hex digits.

        Covers the command, its arguments, the configured environment, the folder, and the identity (resolved path,
        size, time of change, inode) of the command's file and of every argument that names an existing program file. A
        package that a runner such as npx or uvx resolves by itself cannot be seen here.

        Args:
            command: a path, or a name looked up in PATH (that of `env` if it has one).
            args: the arguments.
            env: the configured environment variables, after expansion; not the inherited ones.
            cwd: the folder it is started in, or None for the current one.
        """
        folder = os.path.abspath(cwd) if cwd is not None else os.getcwd()
        search = (env or {}).get("PATH", os.environ.get("PATH"))
        if os.path.dirname(command):
            found: str | None = os.path.join(folder, command)
        else:
            import shutil  # brings three compression libraries along

            found = shutil.which(command, path=search)
        files = [_file_identity(found) if found else None]
        files += [
            _file_identity(os.path.join(folder, arg))
            for arg in args
            if os.path.splitext(arg)[1].lower() in _PROGRAM_SUFFIXES
        ]
        return self._digest("stdio", [command, list(args), sorted((env or {}).items()), folder, files])

    def _digest(self, kind: str, value: Any) -> str:
        encoded = msgspec.json.encode(_encodable(value))
        return hashlib.blake2b(encoded, digest_size=16, key=self._key, person=kind.encode()).hexdigest()


def _encodable(value: Any) -> Any:
    """Undecodable bytes reach us from the operating system as lone surrogates, which JSON cannot carry: those go in as
    hex.
    """
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return ["", value.encode("utf-8", "surrogatepass").hex()]
        return value
    if isinstance(value, list | tuple):
        return [_encodable(item) for item in value]
    return value


def _plain_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return url  # not a URL that can be used; it will fail elsewhere, with a better message
    host = (parts.hostname or "").lower()
    if ":" in host:
        host = f"[{host}]"
    if port is not None and port != _DEFAULT_PORTS.get(parts.scheme.lower()):
        host = f"{host}:{port}"
    userinfo, at, _ = parts.netloc.rpartition("@")
    return urlunsplit((parts.scheme.lower(), userinfo + at + host, parts.path or "/", parts.query, ""))


def _file_identity(path: str) -> list[Any] | None:
    try:
        real = os.path.realpath(path)
        facts = os.stat(real)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(facts.st_mode):
        return None
    return [real, facts.st_size, facts.st_mtime_ns, facts.st_ino]


def _load_or_create_key(path: Path) -> bytes | None:
    """The key at `path`, created if there is none; None if that cannot be done."""
    for _ in range(2):
        try:
            key = path.read_bytes()
        except FileNotFoundError:
            key = b""
        except OSError:
            return None
        if len(key) == _KEY_BYTES:
            return key
        try:
            if key:
                # Cut short or not ours: useless either way, and what it protected is only a cache.
                path.unlink(missing_ok=True)
            _create_key(path)
        except OSError:
            return None
    return None


def _create_key(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Complete under another name first, then linked to its own: of several processes exactly one wins, and none can
    # read half a key.
    draft = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(os.urandom(_KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            return
        except OSError:
            # No hard links here (some network and FAT volumes): a rename is atomic too, and the last one wins. The
            # caller reads it back.
            os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
