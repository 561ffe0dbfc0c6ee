"""A whole list, page by page: its pages are kept one by one and replaced together.

Decided here: which keys pages have, what spoils a list, what happens when a cursor is refused, and that an unchanged list keeps its bytes
and order. Not here: what one answer takes (`errands`), and what an item is (`protocol.digest`).

Spec: 2026-07-28 server/utilities/caching#interaction-with-pagination, server/utilities/pagination
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from outrider.cache.answers import Peer, Recalled, RecalledList, Source
from outrider.cache.entries import Entries, recalled
from outrider.cache.errands import Errand, Load, Page
from outrider.cache.store import Record
from outrider.errors import INVALID_PARAMS, LimitExceeded, PeerError, RemoteProtocolError
from outrider.protocol.digest import Listing, difference, read_items
from outrider.protocol.freshness import LIST_METHODS, Policy, RequestKey, read_hints, request_key

__all__ = ["ListRequest", "WholeList"]

_Fetched: TypeAlias = tuple[RequestKey, Record]


class ListRequest(NamedTuple):
    """Which list, and all that changes what a server answers.

    Attributes:
        method: one of `LIST_METHODS`.
        version: the protocol version spoken, see `request_key`.
        capabilities: the client capabilities declared, see `request_key`.
    """

    method: str
    version: str
    capabilities: Mapping[str, Any] | None

    def key(self, cursor: str | None) -> RequestKey:
        """The key of the page at `cursor`; None for the first.

        Raises:
            ValueError: the method does not answer with a list.
        """
        params = None if cursor is None else {"cursor": cursor}
        key = request_key(self.method, params, version=self.version, capabilities=self.capabilities)
        if key is None or self.method not in LIST_METHODS:
            raise ValueError(f"{self.method} is not a list")
        return key


class WholeList(Errand[RecalledList]):
    """All pages of one list."""

    kind = "list"

    def __init__(
        self, entries: Entries, peer: Peer, policy: Policy, asked: ListRequest, pages: Sequence[Page], *, is_whole: bool
    ) -> None:
        key, sight = pages[0]
        super().__init__(entries, peer, policy, key, sight, pages if is_whole else ())
        self._asked = asked

    @classmethod
    async def of(cls, entries: Entries, peer: Peer, policy: Policy, asked: ListRequest) -> WholeList:
        """Looks what is known of it."""
        pages, is_whole = await _look(entries, peer, policy, asked)
        return cls(entries, peer, policy, asked, pages, is_whole=is_whole)

    def answer(self, pages: tuple[Recalled, ...]) -> RecalledList:
        """All pages together."""
        is_fresh = all(page.freshness.fresh for page in pages)
        return RecalledList(self.key.method, pages, Source.MEMORY if is_fresh else Source.STALE)

    async def look_again(self) -> tuple[str | None, RecalledList | None]:
        """See `Errand`."""
        first = await self.entries.look(self.peer, self.key, self.policy)
        if not first.is_news_after(self.sight):
            return first.tokens, None
        pages, is_whole = await _look(self.entries, self.peer, self.policy, self._asked)
        if not is_whole:
            return first.tokens, None
        answers = [recalled(s.record, s.freshness, Source.NETWORK) for _, s in pages if s.record is not None]
        return first.tokens, RecalledList(self.key.method, tuple(answers), Source.NETWORK)

    async def ask(self, load: Load, tokens: str) -> RecalledList:
        """See `Errand`. If nothing changed, the known items keep their bytes and order.

        Raises:
            RemoteProtocolError: a page is not what a list's page is, or a cursor leads in a circle.
            LimitExceeded: more than `Policy.max_pages` pages.
        """
        method = self.key.method
        fetched = await self._all_pages(load, tokens)
        change = None
        if self.known is not None:
            items = [item for _, record in fetched for item in read_items(method, record.value)]
            change = difference(self.known.listing, Listing.of(method, items))
            if not change:
                fetched = self._carried_on(fetched)
        return RecalledList(method, await self.keep(fetched), Source.NETWORK, change)

    async def _all_pages(self, load: Load, tokens: str) -> list[_Fetched]:
        method, policy = self.key.method, self.policy
        fetched: list[_Fetched] = []
        cursor: str | None = None
        seen: set[str] = set()
        restarted = False
        while True:
            key = self._asked.key(cursor)
            try:
                value = await self.request(key, load)
            except PeerError as error:
                if error.code != INVALID_PARAMS or cursor is None or restarted:
                    raise
                # The list changed under our hands, or the server has forgotten where we were. `request` has dropped
                # the pages.
                fetched, cursor, seen, restarted = [], None, set(), True
                continue
            hints = read_hints(value, max_ttl_ms=policy.max_ttl_ms)
            if not hints.complete:
                raise RemoteProtocolError(
                    f"{method} answered with an interim result", rule="basic/patterns/mrtr#supported-requests"
                )
            read_items(method, value)  # a page whose items are no list spoils the list now, not when it is recalled
            fetched.append((key, self.entries.record(self.peer, value, hints, tokens, policy)))
            cursor = hints.next_cursor
            if cursor is None:
                return fetched
            if cursor in seen:
                raise RemoteProtocolError(
                    f"the cursors of {method} lead in a circle", rule="server/utilities/pagination"
                )
            if len(fetched) >= policy.max_pages:
                raise LimitExceeded(f"{method} has more than {policy.max_pages} pages", rule="Policy.max_pages")
            seen.add(cursor)

    def _carried_on(self, fetched: Sequence[_Fetched]) -> list[_Fetched]:
        """The known pages, byte for byte, with the lifetime that the fetched ones have together."""
        records = [record for _, record in fetched]
        template = records[0]._replace(
            received_ms=min(record.received_ms for record in records), ttl_ms=min(record.ttl_ms for record in records)
        )
        return [
            (key, template._replace(value=sight.record.value)) for key, sight in self.pages if sight.record is not None
        ]


async def _look(entries: Entries, peer: Peer, policy: Policy, asked: ListRequest) -> tuple[list[Page], bool]:
    """The pages that are known, from the first on, which is there in any case; and whether they are the whole list."""
    pages: list[Page] = []
    cursor: str | None = None
    while True:
        key = asked.key(cursor)
        sight = await entries.look(peer, key, policy)
        pages.append((key, sight))
        if sight.record is None:
            return pages, False
        cursor = read_hints(sight.record.value).next_cursor
        if cursor is None or len(pages) >= policy.max_pages:
            return pages, cursor is None
