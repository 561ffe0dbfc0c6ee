"""The lock file as text: one fact a line, sorted, each with its digest; and back. Pure.

Decided here: how the file is written and what is wrong with a broken one. Lines stand for themselves, in any order, so that git merges
them like any list: two branches that add different tools do not disturb each other, and `merge=union` is safe, because a line that is
missing, doubled or mixed up does not match the digest of its definition.

A line is a JSON array: `[server, "server", part, value, digest]` or `[server, kind, name, part, value, digest]`; without part and value
it is the digest of the whole definition. Characters that hide are written as escapes, so that a review shows them.

Spec: ours
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from outrider.catalog.lock.pins import KINDS, SERVER, Definition, ServerPins
from outrider.characters import is_hidden
from outrider.errors import ConfigError
from outrider.protocol.digest import canonical_json, digest_json

__all__ = ["FORMAT", "Lock"]

FORMAT: Final = 1
_HEADER: Final = '{"format":"outrider.lock/%d"}'
_PREFACE: Final = """\
# What MCP servers offered when somebody approved it. `outrider verify` compares, `outrider lock --update NAME` approves anew.
# One fact a line: server, kind, name, part, value, digest. In .gitattributes: outrider.lock merge=union
"""
_FORMAT_LINE: Final = re.compile(r"outrider\.lock/(\d{1,9})")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_ORDER: Final = {kind: number for number, kind in enumerate((SERVER, *KINDS))}
_FIRST: Final = {
    part: number
    for number, part in enumerate(
        ("target", "era", "versions", "name", "title", "description", "inputSchema", "outputSchema", "annotations")
    )
}
_CONFLICT: Final = ("<<<<<<<", "=======", ">>>>>>>", "|||||||")
_MIXED: Final = "run `outrider lock --update {}` to look at what it offers and approve it anew"

Address = tuple[str, str, str]
"""Server, kind and name of a definition; the name is "" for the server itself."""


class Lock(Struct, frozen=True):
    """What was approved, by server key."""

    servers: dict[str, ServerPins] = {}

    @classmethod
    def load(cls, path: str | Path) -> Lock:
        """Read a lock file.

        Raises:
            ConfigError: there is none, or it cannot be used; `source` says where.
        """
        from outrider.catalog.lock.files import read_lock

        return read_lock(Path(path))

    @classmethod
    def parse(cls, text: str, *, source: str = "outrider.lock") -> Lock:
        """Read the text of a lock file.

        Raises:
            ConfigError: it is broken, edited, of a newer format, or has unresolved conflicts of a merge.
        """
        return _Reader(source).read(text)

    def render(self) -> str:
        """The text of the lock file: same content, same bytes."""
        lines = [_PREFACE + _HEADER % FORMAT]
        for server, pins in sorted(self.servers.items()):
            lines.append("")
            lines += _lines((server, SERVER), pins.facts)
            for kind in KINDS:
                for name, definition in sorted(pins.items.get(kind, {}).items()):
                    lines.append("")
                    lines += _lines((server, kind, name), definition)
        return "\n".join(lines) + "\n"

    def replaced(self, changes: Mapping[str, ServerPins | None]) -> Lock:
        """The lock with other pins for some servers; None takes a server out."""
        servers = {**self.servers, **changes}
        return Lock({key: pins for key, pins in servers.items() if pins is not None})


def _lines(address: tuple[str, ...], definition: Definition) -> Iterator[str]:
    yield _line(*address, definition.digest)
    for part in sorted(definition.parts, key=lambda part: (_FIRST.get(part, len(_FIRST)), part)):
        yield _line(*address, part, definition.parts[part], definition.digests[part])


def _line(*values: Any) -> str:
    text = ", ".join(canonical_json(value).decode() for value in values)
    if not (text.isascii() and text.isprintable()):
        text = "".join(_escape(character) if is_hidden(character) else character for character in text)
    return f"[{text}]"


def _escape(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


class _Reader:
    """Reads a lock file line by line, then puts the definitions together and checks each against its digests."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._parts: dict[Address, dict[str, tuple[Any, str, int]]] = {}
        self._wholes: dict[Address, tuple[str, int]] = {}
        self._has_header = False

    def read(self, text: str) -> Lock:
        for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
            line = line.strip(" \t\r")
            if line.startswith(_CONFLICT):
                raise self._error(
                    number,
                    "there is an unresolved conflict of a merge",
                    "keep the lines of both sides if they are of different tools, and approve the others anew",
                )
            if line and not line.startswith("#"):
                self._take(line, number)
        if not self._has_header:
            raise self._error(1, "is not a lock file: its first line does not name the format")
        return self._lock()

    def _error(self, number: int, message: str, hint: str = "") -> ConfigError:
        return ConfigError(message, source=f"{self._source}:{number}", hint=hint)

    def _take(self, line: str, number: int) -> None:
        try:
            fact: Any = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise self._error(number, f"is not JSON: {error}") from error
        if not self._has_header:
            self._take_header(fact, number)
            return
        if isinstance(fact, dict) and fact == msgspec.json.decode(_HEADER % FORMAT):
            return  # A merge may keep it twice.
        if not isinstance(fact, list) or len(fact) < 3 or not isinstance(fact[0], str) or fact[1] not in _ORDER:
            raise self._error(number, "is not a fact of a kind that is known here")
        names = 2 if fact[1] == SERVER else 3
        name: Any = fact[2] if names == 3 else ""
        rest, digest = fact[names:-1], fact[-1]
        is_named = isinstance(name, str) and (not rest or (len(rest) == 2 and isinstance(rest[0], str)))
        if not is_named or not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise self._error(number, "does not have the parts of a fact")
        address: Address = (fact[0], fact[1], name)
        if rest:
            self._take_part(address, rest[0], rest[1], digest, number)
        else:
            known = self._wholes.setdefault(address, (digest, number))
            self._require_same(known[0] == digest, _shown(address), known[1], number, address)

    def _take_header(self, fact: Any, number: int) -> None:
        named = fact.get("format") if isinstance(fact, dict) else None
        match = _FORMAT_LINE.fullmatch(named) if isinstance(named, str) else None
        if match is None:
            raise self._error(number, "is not a lock file: its first line does not name the format")
        if int(match[1]) != FORMAT:
            raise self._error(
                number,
                f"has the format {match[1]}, and this Outrider reads {FORMAT}",
                "use a newer Outrider, or make the file anew with `outrider lock`",
            )
        self._has_header = True

    def _take_part(self, address: Address, part: str, value: Any, digest: str, number: int) -> None:
        if digest_json(value) != digest:
            raise self._error(
                number,
                f"{part} of {_shown(address)} does not match its digest: it was edited, or a merge has mixed two versions",
                _MIXED.format(address[0][:60]),
            )
        known = self._parts.setdefault(address, {}).setdefault(part, (value, digest, number))
        self._require_same(known[1] == digest, f"{part} of {_shown(address)}", known[2], number, address)

    def _require_same(self, is_same: bool, what: str, first: int, number: int, address: Address) -> None:
        if not is_same:
            raise self._error(
                number,
                f"{what} stands here and in line {first}, with different values: a merge has kept both",
                _MIXED.format(address[0][:60]),
            )

    def _lock(self) -> Lock:
        facts: dict[str, Definition] = {}
        items: dict[str, dict[str, dict[str, Definition]]] = {}
        for address in sorted(self._parts.keys() | self._wholes.keys()):
            server, kind, name = address
            definition = self._definition(address)
            if kind == SERVER:
                facts[server] = definition
            else:
                items.setdefault(server, {}).setdefault(kind, {})[name] = definition
        for server, kinds in items.items():
            if server not in facts:
                kind, names = next(iter(kinds.items()))
                number = self._wholes[server, kind, next(iter(names))][1]
                raise self._error(
                    number, f"the facts of the server {server[:60]!r} are missing", _MIXED.format(server[:60])
                )
        return Lock(
            {s: ServerPins(f, {kind: items.get(s, {}).get(kind, {}) for kind in KINDS}) for s, f in facts.items()}
        )

    def _definition(self, address: Address) -> Definition:
        parts = self._parts.get(address, {})
        digests = {part: digest for part, (_, digest, _) in sorted(parts.items())}
        whole, number = self._wholes.get(address, ("", 0))
        if whole != digest_json(digests):
            number = number or next(iter(parts.values()))[2]
            raise self._error(
                number,
                f"{_shown(address)} is not whole: lines of it are missing, or a merge has mixed two versions",
                _MIXED.format(address[0][:60]),
            )
        return Definition({part: parts[part][0] for part in digests}, digests, whole)


def _shown(address: Address) -> str:
    server, kind, name = (word[:80] for word in address)
    return f"the server {server!r}" if kind == SERVER else f"the {kind} {name!r} of {server!r}"
