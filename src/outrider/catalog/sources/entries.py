"""One configured server: what an entry of any client's file is read into, and the key its name becomes.

Decided here: the shape of an entry, when two entries are the same server, how names become keys, and which URLs and headers no
server can have. Not here: how a file's fields become an entry (`fields`), what placeholders become (`resolution`), which of several
entries wins (`configuration`).

Pure.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import msgspec

from outrider.catalog.sources.clients import Level
from outrider.catalog.sources.placeholders import Template, literal
from outrider.catalog.sources.wording import is_text, shown

__all__ = [
    "Ignored", "Origin", "Problem", "ServerEntry", "Transport", "assign_keys", "command_entry", "header_fault", "url_entry", "url_fault",
]  # fmt: skip

Transport = Literal["stdio", "http", "sse", "auto-http"]
"""How a server is reached; "auto-http" is Streamable HTTP first and the older HTTP+SSE if that is not spoken."""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where an entry stands.

    Attributes:
        client: id of the row it was read by; "code" and "command-line" for entries that no file holds.
        level: who the file speaks for.
        file: its path, or "".
        line: where the entry starts, from 1; 0 if unknown.
        pointer: JSON pointer (RFC 6901) to the entry within the file.
        workspace: what `${workspaceFolder}` stands for.
    """

    client: str
    level: Level
    file: str = ""
    line: int = 0
    pointer: str = ""
    workspace: str = ""

    def __str__(self) -> str:
        """`file:line`, or the client's id for an entry without a file."""
        return f"{self.file}:{self.line}" if self.file and self.line else self.file or self.client


class ServerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One server as configured, with its placeholders not filled in. Its `repr` shows no value that could be a secret.

    Attributes:
        key: id of the server: 1 to 48 characters of `a-z 0-9 - _`, unique in its configuration, safe as part of a file name.
        name: as written; any string.
        transport: "stdio" has a command; the others have a url.
        args: without the command.
        env: variables to set on top of the base environment; the placeholders of the entry's other fields see them too.
        copied_env: names of variables to take over from the caller's environment if they are set there.
        env_file: a file of further variables, which `env` overrides.
        cwd: None for the caller's own.
        disabled_because: why the server is not to be used, or "".
        allow_tools: the only tools to offer, or None for all.
        deny_tools: tools not to offer; wins over `allow_tools`.
        start_timeout_s: limit for getting the server ready, in seconds, or None.
        request_timeout_s: limit for one request, in seconds, or None.
        also_in: other places that define the same server.
        warnings: what was odd about the entry, one sentence each.
    """

    key: str
    name: str
    transport: Transport
    origin: Origin
    command: Template | None = None
    args: tuple[Template, ...] = ()
    env: dict[str, Template] = {}
    copied_env: tuple[str, ...] = ()
    env_file: Template | None = None
    cwd: Template | None = None
    url: Template | None = None
    headers: dict[str, Template] = {}
    disabled_because: str = ""
    allow_tools: tuple[str, ...] | None = None
    deny_tools: tuple[str, ...] = ()
    start_timeout_s: float | None = None
    request_timeout_s: float | None = None
    also_in: tuple[Origin, ...] = ()
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<ServerEntry {self.key} ({self.transport}) from {self.origin}>"

    @property
    def disabled(self) -> bool:
        """Whether the server is configured but not to be used."""
        return bool(self.disabled_because)

    def templates(self) -> Iterator[Template]:
        """Every string of the entry that can hold placeholders."""
        yield from (template for template in (self.command, self.env_file, self.cwd, self.url) if template is not None)
        yield from self.args
        yield from self.env.values()
        yield from self.headers.values()

    def identity(self) -> str:
        """A digest, equal for entries that start or call the same server in the same way, in whichever dialect they are written.

        Names, switches, tool lists and time limits do not count; the workspace does where a folder or a placeholder depends on it.
        """
        canonical: list[Any] = [
            "stdio" if self.transport == "stdio" else "http",
            [template.canonical if template else None for template in (self.command, self.env_file, self.cwd)],
            None if self.url is None else _same_url(self.url.canonical) if self.url.is_literal else self.url.canonical,
            [argument.canonical for argument in self.args],
            sorted((name, value.canonical) for name, value in self.env.items()),
            sorted(self.copied_env),
            sorted((name.lower(), value.canonical) for name, value in self.headers.items()),
        ]
        kinds = {reference.kind for template in self.templates() for reference in template.references()}
        if self.cwd is not None or kinds & {"place", "file"}:
            canonical.append(self.origin.workspace)
        return hashlib.sha256(json.dumps(canonical).encode()).hexdigest()


class Ignored(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that is not a server Outrider can use, or that another entry replaces."""

    name: str
    origin: Origin
    reason: str
    is_error: bool = False


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something to tell the user about a file.

    Attributes:
        severity: "error" if something that was asked for is missing because of it.
        source: "file", "file:line" or "file:line:column".
    """

    severity: Literal["error", "warning", "note"]
    message: str
    source: str = ""


_KEY: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_RESERVED: Final = frozenset(
    {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(1, 10))}
)
"""Names that are devices on Windows, with any extension."""


def assign_keys(names: Sequence[tuple[str, str]]) -> list[str]:
    """A unique, safe key for each (server name, client id), in order.

    A name that is a key already stays as it is. Another becomes its lower-case letters and digits with dashes between, if no other
    name wants the same; where several do, or nothing or too much is left, a digest of the name follows. Equal names (different
    servers, from different files) get the client's id, then a number: the first keeps the plain key. So a key depends on the name,
    and on other entries only where they clash.

    Spec: ours
    """
    wanted: dict[str, set[str]] = {}
    for name in {name for name, _ in names}:
        wanted.setdefault(_slug(name), set()).add(name)
    keys: dict[int, str] = {}
    taken: set[str] = set()
    # Names that are keys as they stand are served first, so that no derived key can take theirs.
    for index in sorted(range(len(names)), key=lambda index: names[index][0] != _slug(names[index][0])):
        name, client = names[index]
        slug = _slug(name)
        usable = bool(slug) and (slug == name or (len(wanted[slug]) == 1 and _is_faithful(name)))
        key = slug if usable and slug not in _RESERVED else _digested(slug, name)
        numbered = (f"{key[:40]}-{number}" for number in range(2, len(names) + 3))
        candidates = itertools.chain((key, f"{key[:32]}-{client}"[:48].rstrip("-_")), numbered)
        keys[index] = next(candidate for candidate in candidates if candidate not in taken)
        taken.add(keys[index])
    return [keys[index] for index in range(len(names))]


def _slug(name: str) -> str:
    """The nearest key to `name`, or "" if it has no letter or digit that a key can hold."""
    if _KEY.fullmatch(name):
        return name
    return re.sub(r"[^a-z0-9_]+", "-", name.casefold()).strip("-_")[:40].rstrip("-_")


def _is_faithful(name: str) -> bool:
    """Whether making a key of `name` loses only case, blanks and punctuation."""
    return len(name) <= 40 and name.isascii() and name.isprintable()


def _digested(slug: str, name: str) -> str:
    digest = hashlib.sha256(name.encode("utf-8", errors="surrogatepass")).hexdigest()[:8]
    return f"{slug[:31].rstrip('-_') or 'server'}-{digest}"


_HEADER_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def _same_url(url: str) -> str:
    """One spelling for URLs that lead to the same place: host in lower case, no default port, a path; what its path ends in counts."""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        return url
    user, _, _ = parts.netloc.rpartition("@")
    where = f"{user}@{host}" if user else host
    if port is not None and port != {"http": 80, "https": 443}.get(parts.scheme):
        where += f":{port}"
    return f"{parts.scheme}://{where}{parts.path or '/'}?{parts.query}"


def url_fault(url: str) -> str | None:
    """What makes `url` unusable for a server, as the end of a sentence that does not repeat it; None if nothing does."""
    if re.search(r"[\s\x00-\x1f\x7f]", url):
        return "contains blanks or control characters"
    if not is_text(url):
        return "contains bytes that are no text"
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return "is not a URL"
    if parts.scheme not in ("http", "https"):
        # "localhost:3000/mcp" and "example.com:443" have a scheme by the letter of the standard, and none by their writer's.
        without_scheme = (
            not parts.scheme or "." in parts.scheme or re.match(r"[a-z0-9.+-]+:\d+(?:[/?#]|$)", url.lower())
        )
        return (
            "has no http:// or https://"
            if without_scheme
            else f'is not an http or https URL (it starts with "{shown(parts.scheme, 20)}:")'
        )
    try:
        _ = parts.port
    except ValueError:
        return "has a port that is not a number from 0 to 65535"
    return None if host else "names no host"


def header_fault(name: str, value: str) -> str | None:
    """What is wrong with a header, as a sentence without its value; None if nothing is.

    Spec: ours (a line break would start another header, or another request)
    """
    if not _HEADER_NAME.fullmatch(name):
        return f'the header name "{shown(name, 40)}" is not possible'
    from outrider.client.target import FRAMING_HEADERS  # the client is needed only where there are headers

    if name.lower() in FRAMING_HEADERS:
        return f"the header {name} is set by HTTP itself; leave it out"
    if _CONTROL.search(value):
        return f"the value of the header {name} contains a line break or another control character"
    if any(ord(character) > 0xFF for character in value):
        return f"the value of the header {name} contains a character that headers cannot carry"
    return None


def command_entry(argv: Sequence[str], *, name: str = "", workspace: str = "") -> ServerEntry:
    """The entry for a command line, taken literally: a shell has seen it already.

    Raises:
        ValueError: `argv` is empty.
    """
    command, *args = argv
    origin = Origin(client="command-line", level="given", workspace=workspace)
    label = name or re.split(r"[\\/]", command)[-1]
    return ServerEntry(
        key=assign_keys([(label, origin.client)])[0],
        name=label,
        transport="stdio",
        origin=origin,
        command=literal(command),
        args=tuple(map(literal, args)),
    )


def url_entry(url: str, *, name: str = "", workspace: str = "") -> ServerEntry:
    """The entry for a URL, taken literally.

    Raises:
        ValueError: it is no URL a server can have; the text does not repeat it.
    """
    if fault := url_fault(url):
        raise ValueError(fault)
    origin = Origin(client="command-line", level="given", workspace=workspace)
    label = name or urlsplit(url).hostname or url
    return ServerEntry(
        key=assign_keys([(label, origin.client)])[0], name=label, transport="auto-http", origin=origin, url=literal(url)
    )
