"""From an entry to something that can be started or called: placeholders filled in, at the moment of use.

Decided here: what a server needs that is not there, and what a filled-in value may not be. A server with a missing variable is the
only one that suffers, and is told which. Values exist in the result alone: not in messages, not in its `repr`, not on disk. Not here:
the base environment of a process, on top of which `env` is laid (PATH, HOME and the like), which is the stdio transport's.
"""

from __future__ import annotations

import errno
import hashlib
import json
import ntpath
import posixpath
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from outrider.catalog.sources.documents import decode_text
from outrider.catalog.sources.entries import ServerEntry, Transport, header_fault, url_fault
from outrider.catalog.sources.placeholders import Scope
from outrider.catalog.sources.places import Surroundings
from outrider.catalog.sources.wording import shown
from outrider.errors import ConfigError
from outrider.redaction import unfilled

if TYPE_CHECKING:
    from outrider.client.target import Target

__all__ = ["ResolvedTarget", "resolve"]

_MAX_FILE_BYTES: Final = 65_536
"""For the contents of `{file:…}` and of an environment file: a key or a certificate chain, not a document."""
_ASSIGNMENT: Final = re.compile(
    r"""^[ \t]*(?:export[ \t]+)?([A-Za-z_][\w.]*)[ \t]*=[ \t]*(?:'([^']*)'|"((?:\\.|[^"\\])*)"|([^\n]*?))[ \t]*(?:[ \t]\#[^\n]*)?$""",
    re.MULTILINE | re.DOTALL,
)
_KNOWN_TO_ALL: Final = (
    "HOME",
    "USERPROFILE",
    "USER",
    "USERNAME",
    "LOGNAME",
    "PATH",
    "PWD",
    "SHELL",
    "TMPDIR",
    "TEMP",
    "TMP",
    "LANG",
)
"""Variables whose values are no secret anywhere: folders and names that every program of the user sees."""
_ESCAPES: Final = {"n": "\n", "r": "\r", '"': '"'}
"""Those of the dotenv libraries; no others, for Windows paths stand there too."""


class ResolvedTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A server with every placeholder filled in. Holds secrets: its `repr` shows none, and nothing else should.

    Attributes:
        env: variables to lay over the base environment of the process.
        cwd: absolute, or None for the caller's own.
        filled: the values that stand for placeholders, each with its placeholder, but for those that every server sees in its environment.
    """

    key: str
    name: str
    transport: Transport
    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = {}
    start_timeout_s: float | None = None
    request_timeout_s: float | None = None
    filled: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<ResolvedTarget {self.key} ({self.transport})>"

    @property
    def fingerprint(self) -> str:
        """A digest of all that decides what is started or called: command, arguments, variables and their values, folder, URL, headers.

        An entry that is edited, or a variable that changes, gives another one. For comparing within this process; it is not keyed, so it
        is not to be stored (`cache.fingerprint` makes those that are).
        """
        kind = "stdio" if self.transport == "stdio" else "http"
        called = sorted((name.lower(), value) for name, value in self.headers.items())
        parts = (kind, self.command, self.args, sorted(self.env.items()), self.cwd, self.url, called)
        # In ASCII: variables and arguments may hold bytes that are no text, which Python keeps as lone surrogates.
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def target(self) -> Target:
        """The same server as the client's kind of target.

        Raises:
            ConfigError: the client's own checks refuse it; the message holds no value.
        """
        from outrider.client.target import HttpTarget, StdioTarget, parse_target

        if self.url is not None:
            return parse_target(HttpTarget(self.url, self.headers, sse=self.transport == "sse", filled=self.filled))
        return StdioTarget((self.command or "", *self.args), self.env, self.cwd, filled=self.filled)


def resolve(entry: ServerEntry, where: Surroundings, *, inputs: Mapping[str, str] | None = None) -> ResolvedTarget:
    """Fill in the placeholders of one entry.

    Args:
        entry: disabled or not: the caller decides whether to use it.
        where: variables, folders, and the disk for files that the entry refers to.
        inputs: answers to `${input:id}` by id; a variable OUTRIDER_INPUT_ID answers too.

    Raises:
        ConfigError: something has no value, or a value is not possible where it stands. The message names variables, inputs and files,
            never a value; `.source` is where the entry stands; `.hint` says what to set.

    Spec: ours
    """
    folders = _Folders(entry, where)
    scope = Scope(
        where.env,
        workspace=folders.workspace,
        home=where.home,
        windows=where.windows,
        inputs=inputs,
        read_file=folders.read_reference,
    )
    env: dict[str, str] = {}
    for name in entry.copied_env:
        if (value := scope.variable(name)) is not None:
            env[name] = value
    if entry.env_file is not None:
        env |= _variables_in(folders, scope, scope.fill(entry.env_file))
    env |= {name: scope.fill(template) for name, template in entry.env.items()}
    # An argument or a header that names one of the entry's own variables means that one: `mcp-remote --header "X: ${TOKEN}"`.
    scope.define(env)
    command = None if entry.command is None else folders.expand_home(scope.fill(entry.command))
    args = tuple(scope.fill(argument) for argument in entry.args)
    cwd = None if entry.cwd is None else folders.absolute(scope.fill(entry.cwd), folders.workspace)
    url = None if entry.url is None else scope.fill(entry.url)
    headers = {name: scope.fill(template) for name, template in entry.headers.items()}
    # A header that consists of an unset optional variable is not sent, rather than sent empty.
    headers = {name: value for name, value in headers.items() if value or entry.headers[name].is_literal}
    if scope.missing:
        raise _error(entry, f"needs {_listed(scope.missing)}", "; ".join(scope.hints))
    if url is not None:
        env = {}
    _check(entry, command, args, env, cwd, url, headers)
    return ResolvedTarget(
        key=entry.key,
        name=entry.name,
        transport=entry.transport,
        command=command,
        args=args,
        env=env,
        cwd=cwd,
        url=url,
        headers=headers,
        start_timeout_s=entry.start_timeout_s,
        request_timeout_s=entry.request_timeout_s,
        filled={value: written for value, written in scope.filled.items() if not _is_known_to_all(value, where)},
    )


def _is_known_to_all(value: str, where: Surroundings) -> bool:
    return any(where.env.get(name) == value for name in _KNOWN_TO_ALL)


def _listed(things: list[str]) -> str:
    return things[0] if len(things) == 1 else f"{', '.join(things[:-1])} and {things[-1]}"


def _error(entry: ServerEntry, fault: str, hint: str = "") -> ConfigError:
    return ConfigError(f'the server "{shown(entry.name)}" {fault}', source=str(entry.origin), hint=hint)


def _check(
    entry: ServerEntry,
    command: str | None,
    args: tuple[str, ...],
    env: Mapping[str, str],
    cwd: str | None,
    url: str | None,
    headers: Mapping[str, str],
) -> None:
    """Refuse what only the values show."""
    if url is not None and (fault := url_fault(url)):
        raise _error(entry, f"has a URL that, filled in, {fault}")
    if command is not None and not command.strip():
        raise _error(entry, "has a command that, filled in, is empty")
    for name, value in headers.items():
        if fault := header_fault(name, value):
            raise _error(entry, f"cannot be called: {fault}")
    if any("\0" in text for text in (command or "", cwd or "", *args, *env.values())):
        raise _error(entry, "has a value with a NUL character, which no process can be given")


class _Folders:
    """Paths of an entry: relative to its workspace, or to the file it stands in."""

    def __init__(self, entry: ServerEntry, where: Surroundings) -> None:
        self._path = ntpath if where.windows else posixpath
        self._where = where
        self.workspace = entry.origin.workspace or where.cwd
        self._beside = self._path.dirname(entry.origin.file) or self.workspace

    def expand_home(self, path: str) -> str:
        """`path` with a leading "~" replaced: no program starts with one, and no shell is there to replace it."""
        if path == "~" or path.startswith(("~/", "~\\")):
            return self._where.home + path[1:]
        return path

    def absolute(self, path: str, folder: str) -> str:
        """`path` as seen from `folder`."""
        full: str = self._path.normpath(self._path.join(folder, self.expand_home(path)))
        return full

    def read_reference(self, path: str) -> str:
        """The text of a file that a placeholder names, relative to the config file."""
        return self.read(self.absolute(path, self._beside)).strip()

    def read(self, path: str) -> str:
        """The text of the file at `path`; OSError if it cannot be had."""
        try:
            return decode_text(self._where.files.read(path, _MAX_FILE_BYTES), source=path)
        except ConfigError as error:
            raise OSError(errno.EILSEQ, "is not a text file") from error


def _variables_in(folders: _Folders, scope: Scope, path: str) -> dict[str, str]:
    """The variables in an environment file: NAME=value lines, `export` allowed, `#` starts a comment.

    Quotes may go over several lines; in double quotes `\\n` is a line break.
    """
    try:
        text = folders.read(folders.absolute(path, folders.workspace))
    except OSError as error:
        scope.missing.append(
            f"the environment file {shown(unfilled(path, scope.filled))} ({(error.strerror or 'cannot be read').lower()})"
        )
        scope.hints.append("check the path")
        return {}
    env: dict[str, str] = {}
    for name, literal, escaped, plain in _ASSIGNMENT.findall(text.replace("\r\n", "\n")):
        value = re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[0]), escaped, flags=re.DOTALL)
        env[name] = literal or value or plain
    return env
