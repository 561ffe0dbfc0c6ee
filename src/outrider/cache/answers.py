"""What a memory gives back: answers with where they come from, era verdicts with what they rest on, and who asked.

Decided here: the shapes, and which evidence is good enough for a verdict. Not here: how they come about (`memory`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Final, NamedTuple

import msgspec

from outrider.cache.store import wall_ms
from outrider.protocol.digest import Difference, Listing, read_items
from outrider.protocol.freshness import Freshness, Scope, aggregate
from outrider.protocol.versions import Era

__all__ = ["Clock", "Counts", "EraVerdict", "Evidence", "Peer", "Recalled", "RecalledList", "Source"]


class Clock(NamedTuple):
    """The two clocks a memory reads, in milliseconds."""

    wall_ms: Callable[[], int] = wall_ms
    mono_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000


class Peer(NamedTuple):
    """A server as seen with certain credentials: whose answers, and for whom."""

    target: str
    """From `Fingerprinter.http` or `Fingerprinter.stdio`."""
    context: str
    """From `Fingerprinter.context`."""
    label: str = ""
    """How a person calls it, without secrets; shown by `outrider cache list`, never compared."""


class Source(StrEnum):
    """Where an answer comes from."""

    NETWORK = "network"
    """Asked for now, by this or another asker."""
    MEMORY = "memory"
    """Remembered and fresh."""
    STALE = "stale"
    """Remembered and stale: `freshness` says why and since when, `error` what it stands in for."""


class Recalled(msgspec.Struct, frozen=True):
    """One answer, with where it comes from."""

    value: bytes
    """The raw JSON of the result."""
    source: Source
    freshness: Freshness
    scope: Scope
    received_ms: int
    error: BaseException | None = None
    """The failed refetch that a stale answer stands in for."""

    def standing_in_for(self, error: BaseException) -> Recalled:
        """The same answer, given because asking again failed."""
        return msgspec.structs.replace(self, error=error)


@dataclass(frozen=True)
class RecalledList:
    """All pages of one list, with where they come from."""

    method: str
    pages: tuple[Recalled, ...]
    source: Source
    difference: Difference | None = None
    """After a refetch: how the list differs from the one known before; None if none was, or nothing was fetched."""
    error: BaseException | None = None
    """The failed refetch that a stale list stands in for."""

    def standing_in_for(self, error: BaseException) -> RecalledList:
        """The same list, given because asking again failed."""
        return replace(self, pages=tuple(page.standing_in_for(error) for page in self.pages), error=error)

    @cached_property
    def items(self) -> list[msgspec.Raw]:
        """The items of all pages, byte for byte."""
        return [item for page in self.pages for item in read_items(self.method, page.value)]

    @cached_property
    def listing(self) -> Listing:
        """The digests of the items and of the list."""
        return Listing.of(self.method, self.items)

    @property
    def freshness(self) -> Freshness:
        """That of the worst page: stale if any is, fresh until the first ceases to be."""
        return min((page.freshness for page in self.pages), key=lambda f: (f.fresh, f.at_ms))

    def hints(self, now_ms: int) -> tuple[int, Scope]:
        """(remaining milliseconds, scope) of the list as a whole, to pass on. Spec: ours, see `freshness.aggregate`."""
        return aggregate((p.freshness.at_ms - now_ms if p.freshness.fresh else 0, p.scope) for p in self.pages)


class Evidence(StrEnum):
    """What an era verdict rests on. Only an answer is evidence; silence, refusal of entry and failure are not."""

    DISCOVER_RESULT = "discover-result"
    MODERN_ERROR = "modern-error"
    """-32020, -32021 or -32022: codes that only modern servers know."""
    OTHER_ERROR = "other-error"
    """Any other JSON-RPC error in answer to a modern request."""
    HTTP_REFUSAL = "http-refusal"
    """A 4xx other than 401, 403, 408 and 429 without a modern error in its body."""
    HANDSHAKE = "handshake"
    """An answer to `initialize`: also settles the era of a server that ignored the probe."""
    SILENCE = "silence"
    EXIT = "exit"
    AUTHENTICATION = "authentication"
    SERVER_FAILURE = "server-failure"
    """5xx, 408, 429."""
    NO_CONNECTION = "no-connection"

    @property
    def is_answer(self) -> bool:
        """Whether a verdict may be kept on the strength of it."""
        return self in _ANSWERS


_ANSWERS: Final = frozenset(
    {
        Evidence.DISCOVER_RESULT,
        Evidence.MODERN_ERROR,
        Evidence.OTHER_ERROR,
        Evidence.HTTP_REFUSAL,
        Evidence.HANDSHAKE,
    }
)


class EraVerdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which era a target speaks, why we think so, and since when."""

    era: Era
    evidence: Evidence
    version: str = ""
    """The protocol version that was agreed on, or ""."""
    detail: str = ""
    """One line for people, redacted."""
    learned_ms: int = 0
    """When, wall clock. Set by `Memory.remember_era`."""
    due: bool = False
    """Old enough that the server should be asked again at the next occasion. Set by `Memory.era`."""


class Counts(msgspec.Struct):
    """What a memory has done since it was opened."""

    hits: int = 0
    """Answers given fresh from the store."""
    stale: int = 0
    """Answers given stale from the store."""
    misses: int = 0
    """Answers that had to be waited for."""
    loads: int = 0
    """Requests made for that; fewer than misses where askers shared one."""
    failures: int = 0
    """Failed store operations."""
