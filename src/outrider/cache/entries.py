"""Single answers in a store: what one look shows, and how a new one is put there.

Decided here: which of the copies that may be used is the best, for how long one is kept, and what is noted of one that was found expired.
Not here: the rules of freshness (`protocol.freshness`), a store that fails (`guarded`), and asking the server (`errands`).

Spec: 2026-07-28 server/utilities/caching
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from outrider.cache.answers import Counts, Peer, Recalled, Source
from outrider.cache.guarded import GuardedStore
from outrider.cache.store import Address, Record, tokens_of
from outrider.errors import StoreError
from outrider.protocol.freshness import Freshness, Hints, Policy, RequestKey, Scope, State, judge, marks_of

__all__ = ["Entries", "Sight", "recalled"]

_UNKNOWN: Final = Freshness(State.EXPIRED, 0)


class Sight(msgspec.Struct):
    """What one look at the store showed.

    Attributes:
        tokens: the tokens that are current, or None if the store could not be read or has lost one.
        record: the best copy that may be used, or None.
        freshness: of `record`.
        shared: whether a copy for everyone exists.
    """

    tokens: str | None = None
    record: Record | None = None
    freshness: Freshness = _UNKNOWN
    shared: bool = False

    def is_news_after(self, before: Sight) -> bool:
        """Whether another process has stored an answer since `before` that is good for whoever was waiting then."""
        if self.record is None or self.freshness.state in (State.INVALIDATED, State.CLOCK):
            return False
        return before.record is None or self.record._replace(expired=before.record.expired) != before.record


def recalled(record: Record, freshness: Freshness, source: Source | None = None) -> Recalled:
    """A record as an answer; `source` None for one that is remembered."""
    if source is None:
        source = Source.MEMORY if freshness.fresh else Source.STALE
    scope = Scope.PUBLIC if record.public else Scope.PRIVATE
    return Recalled(record.value, source, freshness, scope, record.received_ms)


class Entries:
    """The answers of all servers, one by one.

    Args:
        guarded: where they are kept.
        counts: where requests are counted.
    """

    def __init__(self, guarded: GuardedStore, counts: Counts) -> None:
        self._guarded = guarded
        self.counts = counts

    async def look(self, peer: Peer, key: RequestKey, policy: Policy) -> Sight:
        """What is known of one answer."""
        guarded = self._guarded
        own = Address(peer.target, peer.context, key.method, key.digest)
        addresses = (own, own._replace(context="")) if policy.share_public else (own,)
        now_ms = guarded.now_ms()  # before anything is read: notices a clock that was set back
        try:
            await guarded.settle()
            records, current = await guarded.store.read(addresses, marks_of(peer.target, key))
        except StoreError as error:
            guarded.failed(error)
            return Sight()
        tokens = tokens_of(current)
        sight = Sight(tokens)
        for address, record in zip(addresses, records, strict=True):
            if record is None:
                continue
            if address is not own:
                sight.shared = True
                if not record.public:
                    continue
            if record.received_ms > now_ms:
                now_ms = guarded.now_ms()  # it has arrived while the store was read
            if record.keep_until_ms <= now_ms:
                continue
            freshness = judge(
                received_ms=record.received_ms,
                lifetime_ms=policy.lifetime_ms(key.method, record.ttl_ms),
                now_ms=now_ms,
                # Something owed by now: the clock was set back, or a notice came while the store was read.
                current=record.tokens == tokens and not guarded.owes,
                seen_expired=record.expired,
                clock_skew_ms=guarded.store.clock_skew_ms,
            )
            best = sight.record
            if best is None or (freshness.fresh, record.received_ms) > (sight.freshness.fresh, best.received_ms):
                sight.record, sight.freshness = record, freshness
        return sight

    async def mark(self, marks: Sequence[str]) -> str | None:
        """The tokens that are current, made where there were none; None while the store fails."""
        tokens = await self._guarded.ask(lambda store: store.mark(marks), None)
        return None if tokens is None else " ".join(tokens)

    def record(self, peer: Peer, value: bytes, hints: Hints, tokens: str, policy: Policy) -> Record:
        """An answer that has just arrived, to a request that began when `tokens` were current."""
        now_ms = self._guarded.now_ms()
        return Record(
            bytes(value),
            now_ms,
            hints.ttl_ms,
            hints.scope is Scope.PUBLIC,
            tokens,
            now_ms + max(hints.ttl_ms, policy.floor_ms) + policy.keep_ms,
            label=peer.label,
        )

    async def keep(
        self, entries: Sequence[tuple[Address, Record]], marks: Sequence[str], policy: Policy
    ) -> tuple[Recalled, ...]:
        """Keeps answers that have just arrived, all or none; returns them, stale from birth if they were overtaken."""
        current = True  # as far as can be known
        if entries[0][1].tokens and all(len(record.value) <= policy.max_entry_bytes for _, record in entries):
            current = await self._guarded.ask(lambda store: store.write(entries, marks), True)
        answers = []
        for address, record in entries:
            freshness = judge(
                received_ms=record.received_ms,
                lifetime_ms=policy.lifetime_ms(address.method, record.ttl_ms),
                now_ms=self._guarded.now_ms(),
                current=current,
            )
            answers.append(recalled(record, freshness, Source.NETWORK))
        return tuple(answers)

    def unkept(self, value: bytes) -> Recalled:
        """An answer that has just arrived and is for this asker only."""
        now_ms = self._guarded.now_ms()
        return Recalled(value, Source.NETWORK, Freshness(State.EXPIRED, now_ms), Scope.PRIVATE, now_ms)

    async def drop(self, target: str, context: str, method: str | None) -> None:
        """Drops what is kept of a target for a context, of one method or all."""
        await self._guarded.tell([(target, context, method)])

    async def note_expired(self, peer: Peer, key: RequestKey, sight: Sight, policy: Policy) -> None:
        """Makes it last that an entry was found expired, where no newer answer replaces it. Spec: ours, against clocks
        set back.
        """
        record = sight.record
        if record is None or record.expired or sight.freshness.state is not State.EXPIRED:
            return
        if policy.lifetime_ms(key.method, record.ttl_ms) == 0:
            return  # never was fresh under this policy, and may be under another
        try:
            for context in (peer.context, "") if policy.share_public else (peer.context,):
                address = Address(peer.target, context, key.method, key.digest)
                await self._guarded.store.expire(address, record.received_ms)
        except StoreError as error:
            self._guarded.failed(error)
