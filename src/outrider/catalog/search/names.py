"""Exact names: which tools a query, or a piece of it, names. Pure.

Decided here: when words of a query are meant as a name rather than as words. The whole query always may be one. A piece of it is
one if it looks like an identifier or is quoted, or if the query is a list of names and nothing else.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from .analysis import compact

__all__ = ["NameTable"]

LONGEST_NAME: Final = 256
"""Longer pieces are no names (the specification allows 128 characters, and a server's key may stand before it)."""
PIECES_LIMIT: Final = 1_000
LIST_WORDS: Final = 64
"""A query of more words is not looked at as a list of names written one after the other."""
NAME_WORDS: Final = 10
HEAD: Final = 4

_BETWEEN_NAMES: Final = re.compile(r"[,;|\n\t]+|\s+(?:and|or|then|&|\+)\s+")
_QUOTED: Final = re.compile(r"`([^`\n]{1,256})`|\"([^\"\n]{1,256})\"|'([^'\n]{1,256})'")
_INSIDE: Final = re.compile(r"\w[_\-./:#]+\w|[a-z0-9][A-Z]")
_TRIM: Final = "\"'`()[]{}<>.,;:!?*"


class NameTable:
    """Names of tools and servers, compared without regard to case, width and separators."""

    def __init__(self) -> None:
        self._tools: dict[str, list[tuple[str, int]]] = {}
        self._servers: dict[str, set[str]] = {}
        self._server_heads: dict[str, Counter[int]] = {}
        self._aliases: dict[str, list[int]] = {}

    def add_tool(self, server: str, name: str, aliases: Iterable[str], number: int) -> None:
        """Make tool `number` of `server` known as `name` and by its `aliases`."""
        self._tools.setdefault(compact(name), []).append((server, number))
        for key in {compact(alias) for alias in aliases}:
            self._aliases.setdefault(key, []).append(number)

    def remove_tool(self, server: str, name: str, aliases: Iterable[str], number: int) -> None:
        """Undo `add_tool` with the same arguments."""
        _remove(self._tools, compact(name), (server, number))
        for key in {compact(alias) for alias in aliases}:
            _remove(self._aliases, key, number)

    def add_server(self, server: str, title: str) -> None:
        """Make `server` known by its key and its title, as the first part of full names."""
        for key in {compact(server), compact(title)} - {""}:
            self._servers.setdefault(key, set()).add(server)
            self._server_heads.setdefault(key[:HEAD], Counter())[len(key)] += 1

    def remove_server(self, server: str, title: str) -> None:
        """Undo `add_server` with the same arguments."""
        for key in {compact(server), compact(title)} - {""}:
            self._servers[key].remove(server)
            lengths = self._server_heads[key[:HEAD]]
            lengths[len(key)] -= 1
            if not lengths[len(key)]:
                del lengths[len(key)]
            if not self._servers[key]:
                del self._servers[key]

    def find(self, text: str) -> list[tuple[str, list[int]]]:
        """Each name that `text` asks for, in order of the text, and the numbers of the tools that have it."""
        whole = self._named(text)
        if whole:
            return [(text, whole)]
        return self._list_of_names(text) or self._names_within(text)

    def _named(self, piece: str) -> list[int]:
        """The tools with this bare name, alias, or name after their server's."""
        key = compact(piece) if len(piece) <= LONGEST_NAME else ""
        if not key:
            return []
        tools, servers = self._tools, self._servers
        numbers = dict.fromkeys(self._aliases.get(key, ()))
        numbers.update(dict.fromkeys(number for _, number in tools.get(key, ())))
        # Not every cut of a long query is looked up, only those where a server's key with the same beginning ends.
        for length in range(1, HEAD + 1):
            for cut in self._server_heads.get(key[:length], ()):
                if (name := key[cut:]) in tools and (owners := servers.get(key[:cut])):
                    numbers.update(dict.fromkeys(number for server, number in tools[name] if server in owners))
        return list(numbers)

    def _list_of_names(self, text: str) -> list[tuple[str, list[int]]]:
        pieces = [piece for piece in _BETWEEN_NAMES.split(text) if piece.strip(_TRIM + " ")]
        if 2 <= len(pieces) <= PIECES_LIMIT:
            found = []
            for piece in pieces:
                name = piece.strip(_TRIM + " ")
                numbers = self._named(name)
                if not numbers:
                    break
                found.append((name, numbers))
            else:
                return found
        words = text.split(maxsplit=LIST_WORDS + 1)
        if not 2 <= len(words) <= LIST_WORDS:
            return []
        words = [word.strip(_TRIM) for word in words]
        # The fewest names that cover all words, each of at most NAME_WORDS words; almost always none covers the first.
        best: list[tuple[int, list[tuple[str, list[int]]], int] | None] = [None] * (len(words) + 1)
        best[0] = (0, [], 0)
        for start in range(len(words)):
            before = best[start]
            if before is None:
                continue
            for end in range(start + 1, min(start + NAME_WORDS, len(words)) + 1):
                current = best[end]
                if current is not None and current[0] <= before[0] + 1:
                    continue
                piece = " ".join(words[start:end])
                numbers = self._named(piece)
                if numbers:
                    plain = before[2] + (end - start == 1 and not _INSIDE.search(piece))
                    best[end] = (before[0] + 1, [*before[1], (piece, numbers)], plain)
        covered = best[-1]
        if covered is None:
            return []
        count, names, plain = covered
        # "search flights" are two words even where one tool is called "search" and another "flights".
        return names if plain * 2 <= count or count >= 5 else []

    def _names_within(self, text: str) -> list[tuple[str, list[int]]]:
        found = {piece: numbers for piece in _identifiers(text) if (numbers := self._named(piece))}
        return list(found.items())


def _identifiers(text: str) -> Iterator[str]:
    for quoted in _QUOTED.finditer(text):
        piece = quoted.group(1) or quoted.group(2) or quoted.group(3)
        # A single plain word in quotation marks is more often a value than a name; in backquotes it is code.
        if quoted.group(1) or _INSIDE.search(piece):
            yield piece
    for count, word in enumerate(text.split()):
        if count >= PIECES_LIMIT:
            return
        if word.isalpha() and word[1:].islower():
            continue  # most words of a long text: nothing is inside of them that only a name has
        piece = word.strip(_TRIM)
        if len(piece) <= LONGEST_NAME and _INSIDE.search(piece):
            yield piece


def _remove(table: dict[str, list], key: str, value: object) -> None:  # type: ignore[type-arg]
    table[key].remove(value)
    if not table[key]:
        del table[key]
