"""What goes into the search and what comes out of it: plain frozen values. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

__all__ = ["MatchKind", "SearchHit", "SearchResult", "TermMatch", "ToolDocument"]


class ToolDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one tool that a search may look at.

    The index keeps the very object it was given and hands it back in each hit, so a caller may compare by identity.

    Attributes:
        server: key of the server that offers the tool; also what `servers=` filters by.
        name: the tool's name as the server spells it.
        title: its display name, or "".
        description: its description, or "".
        input_schema: the JSON Schema of its arguments, or None. Only names, descriptions and enumerated values are read;
            nothing is dereferenced.
        aliases: other full names under which an exact query finds the tool, such as the name that a model is shown.
        server_title: display name of the server, or "".
        server_description: what the server says it is for, or "". Long texts such as instructions are cut.
        tags: other words the tool should be found by.

    Spec: ours
    """

    server: str
    name: str
    title: str = ""
    description: str = ""
    input_schema: dict[str, Any] | None = None
    aliases: tuple[str, ...] = ()
    server_title: str = ""
    server_description: str = ""
    tags: tuple[str, ...] = ()


class MatchKind(StrEnum):
    """Why a tool is in the result."""

    EXACT = "exact"
    """The query, or a piece of it, is the tool's bare or full name."""
    TERMS = "terms"
    """Words of the query occur in the tool's texts."""
    MEANING = "meaning"
    """No word is shared, but the semantic ranker found the meaning close."""
    SUBSTRING = "substring"
    """The query has no word the catalog knows, but occurs literally in the tool's name or description."""
    LISTED = "listed"
    """The query was empty: the tools are listed in order of server and name."""


class TermMatch(msgspec.Struct, frozen=True):
    """One word of the query that a tool has.

    Attributes:
        query: the word, as asked, folded.
        found: the word in the tool's texts that it was matched with; differs in inflection, or by one repaired typo.
        fields: where it occurs: "name", "title", "description", "parameters", "server" or "tags", in this order.

    Spec: ours
    """

    query: str
    found: str
    fields: tuple[str, ...]


class SearchHit(msgspec.Struct, frozen=True):
    """One tool of a result.

    Attributes:
        document: the document as it was given to the index.
        score: 0 to 1, how sure the search is that the tool serves the query. Exact names have 1.
        kind: why the tool is here.
        matched: the words it shares with the query, those that weigh most first. Empty for some kinds.

    Spec: ours
    """

    document: ToolDocument
    score: float
    kind: MatchKind
    matched: tuple[TermMatch, ...] = ()

    @property
    def why(self) -> str:
        """The reason in one line, such as `create in name, issues→issue in name and description`."""
        if self.kind is MatchKind.EXACT:
            return "its name was asked for"
        if self.kind is MatchKind.SUBSTRING:
            return "contains the text of the query"
        if self.kind is MatchKind.LISTED:
            return "everything is listed"
        parts = [
            f"{match.query if match.query == match.found else f'{match.query}→{match.found}'} in {_and(match.fields)}"
            for match in self.matched
        ]
        if self.kind is MatchKind.MEANING or not parts:
            parts.insert(0, "close in meaning")
        return ", ".join(parts)


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a search found.

    Attributes:
        hits: best first; empty when `nothing_fits`.
        nothing_fits: True if the query asks for something and no tool reached the threshold.
        nearest: when nothing fits, the best tools below the threshold, for a "did you mean"; otherwise empty.
        nearest_servers: when nothing fits, keys of the servers that are closest to the query, best first.
        total: how many tools could be paged through: every tool for an empty query, otherwise how many were considered.

    Spec: ours
    """

    hits: tuple[SearchHit, ...] = ()
    nothing_fits: bool = False
    nearest: tuple[SearchHit, ...] = ()
    nearest_servers: tuple[str, ...] = ()
    total: int = 0


def _and(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
