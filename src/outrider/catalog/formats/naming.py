"""The names that models see, and the way back to a server's tool.

Decided here: how a server key and a tool's own name become one name that every vendor takes, and which tool a name in a call means.
Not here: the names of parameters (`adaptation`). Pure.

A shown name is a function of the tool alone: not of the vendor, not of the other tools, not of the order in which servers answer. So
a conversation can move to another vendor, and a prompt cache survives a new server. It is never parsed: the table knows the way back.

Spec: ours. Vendors' alphabets are in docs/models.md.
"""

from __future__ import annotations

import base64
import difflib
import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from outrider.catalog.reference import OWN_SERVER, ToolRef

__all__ = ["MAX_NAME_CHARS", "Aliases", "ToolRef", "UnknownTool", "shorten", "shown_name"]

MAX_NAME_CHARS: Final = 64
"""Characters of a shown name: the least that any vendor takes."""

_SEPARATOR: Final = "__"
_DIGEST_CHARS: Final = 9  # a 9, which base 32 has not and words seldom begin with, and 40 bits of base 32
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_REFUSED: Final = re.compile(r"[^A-Za-z0-9_-]+")
_WORD: Final = re.compile(r"[a-z0-9]+")
_MAX_COMPARED: Final = 500
_WRAPPING: Final = re.compile(
    r"^(?:functions?|tools?|default_api|mcp)(?:[.:/]|__)|:\d{1,4}$|\(.{0,20}\)$", re.IGNORECASE
)
# A plain name of this look could be built to pass for another tool's digest name; it gets a digest of its own.
_LOOKS_DIGESTED: Final = re.compile(r"_9[a-z2-7]{8}\Z")


class UnknownTool(Struct, frozen=True):
    """A name in a call that means no tool, or more than one.

    Attributes:
        name: as the model wrote it.
        near: shown names it may have meant, best first; all candidates if it is ambiguous.
        is_ambiguous: the name without its server belongs to several tools.
    """

    name: str
    near: tuple[str, ...] = ()
    is_ambiguous: bool = False

    def __str__(self) -> str:
        name = self.name if len(self.name) <= 100 else self.name[:99] + "…"
        if self.is_ambiguous:
            return f"Several tools are called {name!r}. Use one of these names: {', '.join(self.near)}."
        hint = f" Did you mean {', '.join(self.near)}?" if self.near else ""
        return f"There is no tool {name!r}.{hint}"


def shown_name(ref: ToolRef) -> str:
    """The name under which models see a tool: `server__tool` where both are plain, else cut to shape and with a digest.

    Matches `[A-Za-z_][A-Za-z0-9_-]{0,63}`, which every vendor takes. Outrider's own tools go by their bare names: no other name is
    without `__`.
    """
    if ref.server == OWN_SERVER:
        return ref.name
    plain = f"{ref.server}{_SEPARATOR}{ref.name}"
    # Two plain names never meet: a plain server key has no separator in it and does not end in a part of one.
    if (
        len(plain) <= MAX_NAME_CHARS
        and _NAME.fullmatch(plain)
        and ref.server
        and ref.name
        and _SEPARATOR not in ref.server
        and not ref.server.endswith("_")
        and not ref.name.startswith("_")
        and not _LOOKS_DIGESTED.search(plain)
    ):
        return plain
    server = shorten(ref.server, 20)
    rest = MAX_NAME_CHARS - len(server) - len(_SEPARATOR) - 1 - _DIGEST_CHARS
    return f"{server}{_SEPARATOR}{shorten(ref.name, rest)}_{_digest(ref.server, ref.name)}"


def shorten(text: str, max_chars: int) -> str:
    """`text` in letters, digits, `_` and `-`, starting with a letter or `_`, at most `max_chars` long; "x" if nothing is left."""
    folded = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    name = _REFUSED.sub("_", folded).strip("_-")
    if not name or not (name[0].isalpha() or name[0] == "_"):
        name = f"x{name}"
    return name[:max_chars].rstrip("_-")


def _digest(*parts: str) -> str:
    """40 bits of the parts as a 9 and 8 lower-case letters and digits, the same on every machine."""
    hash_ = hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=5)
    return "9" + base64.b32encode(hash_.digest()).decode().lower()


def _folded(name: str) -> str:
    """`name` without case and punctuation, so that `createIssue` is `create_issue`; "" for a name of nothing else."""
    return re.sub(r"[\W_]+", "", name.casefold())


def _unwrapped(name: str) -> Iterator[str]:
    """`name`, and without what models are known to leave around it: `functions.x:0`, `default_api.x`, `x<|channel|>json`."""
    name = name[:200].partition("<|")[0].strip()
    yield name
    yield _WRAPPING.sub("", name)


class Aliases(Mapping[str, ToolRef]):
    """Shown names to tools, for the tools that a model may call.

    Args:
        refs: the tools. The same table comes out for every order.

    Attributes:
        refused: tools that have no entry, because another tool's name came out the same. All of them are refused, never one at
            random. With honest servers this does not happen.
    """

    def __init__(self, refs: Iterable[ToolRef]) -> None:
        found: dict[str, set[ToolRef]] = {}
        for ref in refs:
            found.setdefault(shown_name(ref), set()).add(ref)
        self._refs = {name: next(iter(claims)) for name, claims in sorted(found.items()) if len(claims) == 1}
        self.refused = tuple(sorted(ref for claims in found.values() if len(claims) > 1 for ref in claims))
        self._by_own_name: dict[str, list[str]] = {}
        self._by_folded_name: dict[str, set[str]] = {}
        for name, ref in self._refs.items():
            self._by_own_name.setdefault(ref.name, []).append(name)
            for spelling in (name, ref.name, f"{ref.server}/{ref.name}"):
                self._by_folded_name.setdefault(_folded(spelling), set()).add(name)

    def __getitem__(self, name: str) -> ToolRef:
        return self._refs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._refs)

    def __len__(self) -> int:
        return len(self._refs)

    def resolve(self, name: str) -> ToolRef | UnknownTool:
        """The tool that `name` means: a shown name, or a tool's own name where only one server has it.

        Where neither is there, case, punctuation and what some models wrap around a name do not count, if then it means one tool.
        """
        if (ref := self._refs.get(name)) is not None:
            return ref
        candidates = self._by_own_name.get(name, [])
        if len(candidates) == 1:
            return self._refs[candidates[0]]
        if candidates:
            return UnknownTool(name, tuple(candidates), is_ambiguous=True)
        for spelling in _unwrapped(name):
            meant = sorted(self._by_folded_name.get(folded, ())) if (folded := _folded(spelling)) else []
            if len(meant) == 1:
                return self._refs[meant[0]]
            if meant:
                return UnknownTool(name, tuple(meant), is_ambiguous=True)
        return UnknownTool(name, tuple(self._near(name)))

    def _near(self, name: str) -> list[str]:
        wanted = name[:200].lower()
        words = {word for word in _WORD.findall(wanted) if len(word) > 2}
        # Comparing letter by letter is slow, so only names with a word in common are compared, and not all of a huge catalog.
        likely = [shown for shown in self._refs if any(word in shown.lower() for word in words)][:_MAX_COMPARED]
        by_own_name = {self._refs[shown].name: shown for shown in likely}
        near = difflib.get_close_matches(wanted, likely, n=3, cutoff=0.6)
        own = difflib.get_close_matches(wanted, by_own_name, n=3, cutoff=0.6)
        return list(dict.fromkeys([*near, *(by_own_name[match] for match in own)]))[:5]
