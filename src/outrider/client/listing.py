"""Whole lists: read page by page, each item once, malformed items set aside, and cut off when a list never ends.

Decided here: when a list is complete, when it is endless, and what a failing page costs. Not here: how a page is asked for (`client`) and
what an item is (`protocol.model`).

Spec: 2026-07-28 server/utilities/pagination#implementation-guidelines
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import Struct

from outrider.cache.answers import RecalledList, Source
from outrider.client.target import ClientOptions
from outrider.errors import INVALID_PARAMS, OutriderError, PeerError
from outrider.protocol.model import (
    Item,
    ListKind,
    ListPage,
    Quarantined,
    read_page,
)

__all__ = ["CutOff", "Gathering", "Listing"]

T = TypeVar("T", bound=Item)

_MAX_STALLED_PAGES: Final = 5
_MAX_NAMED: Final = 8
"""So many pages in a row may bring nothing new before a list counts as endless: a server that filters may send an empty one."""


class Listing(Struct, Generic[T], frozen=True):
    """A whole list, read through all its pages.

    Attributes:
        items: the sound items in the server's order, each once.
        complete: False if it was cut off: by a limit, by a page that failed, or by a server that pages for ever.
        quarantined: malformed items and parts of items, with reasons.
        warnings: what else was wrong with the list.
        pages: the pages as they came, without their items: caching hints, `_meta`.
        source: "network", "memory" (remembered and fresh) or "stale" (remembered, and no longer fresh).
        received_ms: when the oldest page came, in milliseconds since 1970; 0 if it came just now.
    """

    items: tuple[T, ...]
    complete: bool
    quarantined: tuple[Quarantined, ...]
    warnings: tuple[str, ...]
    pages: tuple[dict[str, Any], ...]
    source: Source = Source.NETWORK
    received_ms: int = 0

    def __iter__(self) -> Any:
        """The items, in order."""
        return iter(self.items)

    def __len__(self) -> int:
        """How many items there are."""
        return len(self.items)


class CutOff(OutriderError):
    """A list ends here, before its end; what came so far is kept, and nothing is remembered."""

    def __init__(self) -> None:
        super().__init__("the list was cut off")


class Gathering:
    """One list while its pages come in.

    Cursors are opaque and "" is a cursor like any other, so a list that never ends is recognized by its pages bringing nothing new, and
    in the last resort by the limits. Spec: 2026-07-28 server/utilities/pagination#implementation-guidelines (MUST)
    """

    def __init__(self, kind: ListKind, options: ClientOptions) -> None:
        self._kind = kind
        self._options = options
        self._complete = True
        self._warnings: list[str] = []
        self._quarantined: list[Quarantined] = []
        self._seen_cursors: set[str] = set()
        self._stalled = 0
        self._doubles: set[str] = set()
        self._next_cursor: str | None = None
        self.items: dict[str, Item] = {}
        self.pages: list[dict[str, Any]] = []

    def listing(self) -> Listing[Any]:
        """What has been gathered."""
        return Listing(
            tuple(self.items.values()),
            self._complete,
            tuple(self._quarantined),
            tuple(self._warnings),
            tuple(self.pages),
        )

    def recalled(self, recalled: RecalledList) -> Listing[Any]:
        """The listing that remembered pages make."""
        again = Gathering(self._kind, self._options)
        for page in recalled.pages:
            again._take(read_page(self._kind, page.value), None)
        again._warnings = [*self._warnings, *(warning for warning in again._warnings if warning not in self._warnings)]
        source = recalled.source
        if recalled.error is not None:
            source = Source.STALE  # whatever its age: it was to be asked for anew
            reason = str(recalled.error)[:300] or type(recalled.error).__name__
            again._warnings.append(f"{self._kind.method} failed: {reason}; what is remembered is shown")
        return msgspec.structs.replace(
            again.listing(), source=source, received_ms=min(p.received_ms for p in recalled.pages)
        )

    def cut_off(self, why: str) -> None:
        """The list ends here, before its end."""
        self._complete = False
        self._warnings.append(why)

    async def read_all(self, ask: Callable[[str | None], Awaitable[bytes]]) -> None:
        """Read page after page."""
        read, restarted = self.reading(ask), False
        cursor: str | None = None
        while True:
            try:
                await read(cursor)
            except PeerError as error:
                if cursor is None or error.code != INVALID_PARAMS:
                    raise
                # The list changed under our feet. Spec: 2026-07-28 server/utilities/caching#interaction-with-pagination (SHOULD)
                if restarted:
                    self.cut_off(f"page {len(self.pages) + 1} of {self._kind.method} failed again: {error}")
                    return
                restarted, cursor = True, None
                continue
            cursor = self._next_cursor
            if cursor is None:
                return

    def reading(self, ask: Callable[[str | None], Awaitable[bytes]]) -> Callable[[str | None], Awaitable[bytes]]:
        """A function that asks for one page and adds it.

        It raises `CutOff` where the list must end before its end, and lets through a refused cursor, after which the caller begins again.
        """

        async def read(cursor: str | None) -> bytes:
            if cursor is None and self.pages:
                self._start_over()
            try:
                payload = await ask(cursor)
                page = read_page(self._kind, payload)
            except OutriderError as error:
                if cursor is None or (isinstance(error, PeerError) and error.code == INVALID_PARAMS):
                    raise
                self.cut_off(f"page {len(self.pages) + 1} of {self._kind.method} failed: {error}")
                raise CutOff from error
            self._take(page, cursor)
            if self._next_cursor is None and not self._complete:
                raise CutOff
            return payload

        return read

    def _start_over(self) -> None:
        self.items.clear()
        self.pages.clear()
        self._quarantined.clear()
        self._seen_cursors.clear()
        self._warnings.append(f"a cursor of {self._kind.method} became invalid; the list was read again from the start")

    def _take(self, page: ListPage, cursor: str | None) -> None:
        """Add a page, and set where the next begins: None at the end, or where it is cut off."""
        self._next_cursor = None
        self.pages.append(page.meta)
        before = len(self.items)
        for item in page.items:
            identity = item.identity
            if identity in self.items:
                if len(self._doubles) < _MAX_NAMED:
                    self._doubles.add(identity[:100])
            elif len(self.items) >= self._options.max_list_items:
                self.cut_off(f"more than {self._options.max_list_items} {self._kind.label}; the rest was left out")
                return
            else:
                self.items[identity] = item
        self._quarantined.extend(page.quarantined)
        if page.is_cut:
            self.cut_off(f"{self._kind.method} has more pages, and names the next one in a way that nobody can ask for")
        if page.next_cursor is None:
            if self._doubles:
                self._warnings.append(
                    f"{self._kind.label} listed twice or more, of which the first counts: {', '.join(sorted(self._doubles))}"
                )
            return
        has_news = len(self.items) > before
        self._stalled = 0 if has_news else self._stalled + 1
        is_known = page.next_cursor in self._seen_cursors or page.next_cursor == cursor
        self._seen_cursors.add(page.next_cursor)
        if (not has_news and is_known) or self._stalled >= _MAX_STALLED_PAGES:
            self.cut_off(
                f"{self._kind.method} pages on without bringing anything new; stopped after {len(self.pages)} pages"
            )
        elif len(self.pages) >= self._options.max_list_pages:
            self.cut_off(
                f"{self._kind.method} has more than {self._options.max_list_pages} pages; the rest was left out"
            )
        else:
            self._next_cursor = page.next_cursor
