"""What it takes to get an answer anew: the request, who may have the answer, and what a refusal costs.

Decided here: which answer may be shared, what is dropped after a refusal, and what one answer takes. Not here: what a whole list takes
(`lists`), when anything is asked for at all (`memory`), and how answers are put into the store (`entries`).

Spec: 2026-07-28 server/utilities/caching
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, Generic, NamedTuple, TypeAlias, TypeVar

from outrider.cache.answers import Peer, Recalled, RecalledList, Source
from outrider.cache.entries import Entries, Sight, recalled
from outrider.cache.store import Address, Record
from outrider.errors import INVALID_PARAMS, AuthRequired, PeerError
from outrider.protocol.freshness import (
    MARK_SEPARATOR,
    Policy,
    RequestKey,
    State,
    marks_of,
    read_hints,
)

__all__ = ["Errand", "FlightKey", "Load", "OneAnswer", "Page"]

R = TypeVar("R", Recalled, RecalledList)

Load: TypeAlias = Callable[[str | None], Awaitable[bytes]]
"""Makes the request for the page at a cursor; returns the raw JSON of its result."""
Page: TypeAlias = tuple[RequestKey, Sight]


class FlightKey(NamedTuple):
    """Who shares a request: those who want the same, for the same context, and by the same tokens.

    With the tokens, nobody joins a request that began before another process's invalidation.
    """

    marks: tuple[str, ...]
    context: str
    digest: str
    kind: str
    share_public: bool
    tokens: str | None


class Errand(ABC, Generic[R]):
    """An answer, or a list of them, that may have to be got anew.

    Args:
        entries: where answers are kept.
        peer: whose answer, and for whom.
        policy: where the specification leaves the choice.
        key: of the answer, or of the list's first page.
        sight: what a look at `key` showed.
        pages: everything that is known, in order; nothing if any part is missing.

    Attributes:
        known: what is remembered, fresh or stale; None if nothing is.
    """

    kind: ClassVar[str]

    def __init__(
        self, entries: Entries, peer: Peer, policy: Policy, key: RequestKey, sight: Sight, pages: Sequence[Page]
    ) -> None:
        self.entries, self.peer, self.policy = entries, peer, policy
        self.key, self.sight, self.pages = key, sight, pages
        known = tuple([recalled(sight.record, sight.freshness) for _, sight in pages if sight.record is not None])
        self.known: R | None = self.answer(known) if known else None

    @abstractmethod
    def answer(self, pages: tuple[Recalled, ...]) -> R:
        """Pages that are remembered, as what is asked for."""

    @abstractmethod
    async def look_again(self) -> tuple[str | None, R | None]:
        """The tokens that are current, and what another process has brought since the first look, or None."""

    @abstractmethod
    async def ask(self, load: Load, tokens: str) -> R:
        """Asks the server, and keeps what it answers.

        Args:
            load: makes a request.
            tokens: those that were current when the errand began, or "" if that is not known.
        """

    @property
    def marks(self) -> tuple[str, ...]:
        """What the answer depends on."""
        return marks_of(self.peer.target, self.key)

    @property
    def flight_key(self) -> FlightKey:
        """Who shares the request within the process."""
        return FlightKey(
            self.marks, self.peer.context, self.key.digest, self.kind, self.policy.share_public, self.sight.tokens
        )

    def lease_name(self, tokens: str) -> str:
        """Who shares the request among processes. Whoever asks after an invalidation does not wait for an older request."""
        peer, key = self.peer, self.key
        return MARK_SEPARATOR.join((self.kind, peer.target, peer.context, key.method, key.digest, tokens))

    def may_be_late(self, now_ms: int) -> bool:
        """Whether what is known may be given once more, while it is asked for again behind."""
        grace_ms = self.policy.stale_while_revalidate_ms
        return grace_ms > 0 and all(
            sight.freshness.fresh
            or (sight.freshness.state is State.EXPIRED and now_ms - sight.freshness.at_ms <= grace_ms)
            for _, sight in self.pages
        )

    async def note_expired(self) -> None:
        """Makes it last that what is known was found expired."""
        for key, sight in self.pages:
            await self.entries.note_expired(self.peer, key, sight, self.policy)

    async def request(self, key: RequestKey, load: Load) -> bytes:
        """What the server answers to one request; a refusal costs what was kept."""
        self.entries.counts.loads += 1
        try:
            return await load(key.cursor)
        except AuthRequired as error:
            # This context may have lost its right to what is kept for it. 401: to everything; 403: to what was asked
            # for.
            await self.entries.drop(self.peer.target, self.peer.context, None if error.status == 401 else key.method)
            raise
        except PeerError as error:
            if error.code == INVALID_PARAMS and key.cursor is not None:
                for context in (self.peer.context, "") if self.policy.share_public else (self.peer.context,):
                    await self.entries.drop(self.peer.target, context, key.method)
            raise

    async def keep(self, fetched: Sequence[tuple[RequestKey, Record]]) -> tuple[Recalled, ...]:
        """Keeps what was fetched, for everyone if the server calls all of it public and the operator agrees."""
        public = all(record.public for _, record in fetched)
        if self.sight.shared and not public:
            await self.entries.drop(self.peer.target, "", self.key.method)
        # A page on its own is never shared: only the whole list shows whether the server calls all of it public.
        is_shared = self.policy.share_public and public and self.key.cursor is None
        context = "" if is_shared else self.peer.context
        entries = [
            (Address(self.peer.target, context, key.method, key.digest), record._replace(public=public))
            for key, record in fetched
        ]
        return await self.entries.keep(entries, self.marks, self.policy)


class OneAnswer(Errand[Recalled]):
    """The answer to one request."""

    kind = "one"

    @classmethod
    async def of(cls, entries: Entries, peer: Peer, policy: Policy, key: RequestKey) -> OneAnswer:
        """Looks what is known of it."""
        sight = await entries.look(peer, key, policy)
        return cls(entries, peer, policy, key, sight, [(key, sight)])

    def answer(self, pages: tuple[Recalled, ...]) -> Recalled:
        """The only page."""
        return pages[0]

    async def look_again(self) -> tuple[str | None, Recalled | None]:
        """See `Errand`."""
        seen = await self.entries.look(self.peer, self.key, self.policy)
        if seen.record is None or not seen.is_news_after(self.sight):
            return seen.tokens, None
        return seen.tokens, recalled(seen.record, seen.freshness, Source.NETWORK)

    async def ask(self, load: Load, tokens: str) -> Recalled:
        """See `Errand`. An interim result is passed on and not kept."""
        value = await self.request(self.key, load)
        hints = read_hints(value, max_ttl_ms=self.policy.max_ttl_ms)
        if not hints.complete:
            return self.entries.unkept(value)
        (answer,) = await self.keep([(self.key, self.entries.record(self.peer, value, hints, tokens, self.policy))])
        return answer
