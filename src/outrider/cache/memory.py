"""What was discovered, remembered: the one object through which the client recalls, fetches, invalidates.

Decided here: when an answer comes from the store, from the network or, stale, from the store after all; who waits for
whom; what happens when the store fails. Not here: the rules of freshness (`outrider.protocol.freshness`) and the
keeping (`outrider.cache.store` and its kin).

Spec: 2026-07-28 server/utilities/caching
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from outrider.cache.answers import Clock, Counts, EraVerdict, Peer, Recalled, RecalledList, Source
from outrider.cache.flight import SingleFlight
from outrider.cache.store import Address, InProcessStore, Record, Store, Summary, new_token, tokens_of
from outrider.errors import INVALID_PARAMS, AuthRequired, LimitExceeded, PeerError, RemoteProtocolError, StoreError
from outrider.protocol.digest import Difference, difference, read_items
from outrider.protocol.freshness import (
    CACHEABLE_METHODS,
    EVERYTHING,
    LIST_METHODS,
    MARK_SEPARATOR,
    Freshness,
    Hints,
    Policy,
    RequestKey,
    Scope,
    State,
    Timeline,
    changed_marks,
    judge,
    marks_of,
    may_serve_stale,
    methods_changed_by,
    methods_doubted_by,
    read_hints,
    request_key,
)
from outrider.protocol.versions import Era

__all__ = ["Memory", "open_memory"]

T = TypeVar("T")

_log = logging.getLogger("outrider.cache")


class _Resting(StoreError):
    """The store failed a moment ago and is left alone."""


_UNKNOWN: Final = Freshness(State.EXPIRED, 0)


class _Sight(msgspec.Struct):
    """What one look at the store showed."""

    tokens: str | None = None
    record: Record | None = None
    freshness: Freshness = _UNKNOWN
    shared: bool = False
    """Whether a copy for everyone exists."""


_Drop = tuple[str, str, str | None]


class _Owed:
    """What the store must be told before it is believed again. A debt that grows while it is being paid remains a
    debt.
    """

    def __init__(self) -> None:
        self._serial = 0
        self._debts: dict[str | _Drop, int] = {}

    def __bool__(self) -> bool:
        return bool(self._debts)

    def add(self, debts: Iterable[str | _Drop]) -> None:
        self._serial += 1
        for debt in debts:
            self._debts[debt] = self._serial

    async def pay(self, store: Store) -> None:
        debts = dict(self._debts)
        if marks := sorted(debt for debt in debts if isinstance(debt, str)):
            await store.bump(marks)
        for debt in debts:
            if not isinstance(debt, str):
                target, context, method = debt
                await store.drop(target, context=context, method=method)
        # Not reached if cancelled or failed: whether it arrived is unknown then, and telling it twice does no harm.
        for debt, serial in debts.items():
            if self._debts[debt] == serial:
                del self._debts[debt]


Load = Callable[[], Awaitable[bytes]]
LoadPage = Callable[[str | None], Awaitable[bytes]]

_REST_FIRST_MS: Final = 1_000
_REST_LONGEST_MS: Final = 30_000


class Memory:
    """Answers, remembered within the rules.

    All methods may be called concurrently from one event loop. A store that fails is reported once per episode (to the
    log, and `on_trouble`) and costs speed only: none of the methods raises `StoreError`, except those whose purpose is
    the store itself (`forget`, `entries`).

    Args:
        store: where to keep; None for a bounded store in this process.
        policy: where the specification leaves the choice; each call may bring its own.
        clock: the clocks.
        on_trouble: called with the first error of an episode.

    Spec: 2026-07-28 server/utilities/caching
    """

    def __init__(
        self,
        store: Store | None = None,
        *,
        policy: Policy | None = None,
        clock: Clock | None = None,
        on_trouble: Callable[[StoreError], None] | None = None,
    ) -> None:
        self.policy = policy or Policy()
        self.counts = Counts()
        self._clock = clock or Clock()
        self.store: Store = store if store is not None else InProcessStore(clock=self._clock.wall_ms)
        self._on_trouble = on_trouble
        self._timeline = Timeline()
        self._flights: SingleFlight[Any] = SingleFlight()
        self._owed = _Owed()
        self._paying = asyncio.Lock()
        self._started = False
        self._rest_ms = 0
        self._rest_until_ms = 0
        self._doubted_ms: dict[str, int] = {}
        self._watchers: list[Callable[[str, str], None]] = []
        self.store.watch(self._tell)

    async def __aenter__(self) -> Memory:
        """Returns itself; `close` follows at the end."""
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Closes."""
        await self.close()

    async def close(self) -> None:
        """Cancels what is under way and closes the store. Idempotent."""
        await self._flights.close()
        await self.store.close()

    # --- recall and fetch
    # ----------------------------------------------------------------------------------------------------

    async def get(self, peer: Peer, key: RequestKey | None, *, policy: Policy | None = None) -> Recalled | None:
        """What is remembered, fresh or stale, without asking the server; None if nothing is."""
        if key is None:
            return None
        policy = policy or self.policy
        sight = await self._look(peer, key, policy)
        if sight.record is None:
            return None
        if sight.freshness.fresh:
            self.counts.hits += 1
        else:
            self.counts.stale += 1
            await self._note_expired(peer, key, sight, policy)
        return _recalled(sight.record, sight.freshness)

    async def fetch(
        self, peer: Peer, key: RequestKey | None, load: Load, *, policy: Policy | None = None, refresh: bool = False
    ) -> Recalled:
        """The answer to one request: from memory if fresh, else asked for, once for all who want it at the same time.

        Args:
            peer: the server and the authorization context that `load` will use.
            key: from `request_key`; None (not cacheable) always loads.
            load: makes the request and returns the raw JSON of the result. Runs in a task of its own; raises what
                `outrider.errors` has.
            policy: instead of the memory's own.
            refresh: ask even if a fresh answer is remembered.

        Raises:
            Whatever `load` raises, if no stale answer may stand in for it.
            RemoteProtocolError: the result is not a JSON object.

        Cancelling it cancels the request only if nobody else waits for it.
        """
        policy = policy or self.policy
        if key is None:
            return self._unkept(await load())
        sight = await self._look(peer, key, policy)
        if not refresh and sight.record is not None:
            if sight.freshness.fresh:
                self.counts.hits += 1
                return _recalled(sight.record, sight.freshness)
            if self._may_revalidate_later(sight.freshness, policy):
                self._flights.start(
                    self._flight_key(peer, key, policy, sight), lambda: self._load_one(peer, key, load, policy, sight)
                )
                self.counts.stale += 1
                await self._note_expired(peer, key, sight, policy)
                return _recalled(sight.record, sight.freshness)
        self.counts.misses += 1
        try:
            answer: Recalled = await self._flights.run(
                self._flight_key(peer, key, policy, sight),
                lambda: self._load_one(peer, key, load, policy, sight, refresh=refresh),
            )
            return answer
        except Exception as error:
            await self._note_expired(peer, key, sight, policy)
            if sight.record is None or not may_serve_stale(
                error, sight.freshness, now_ms=self._now_ms(), policy=policy
            ):
                raise
            self.counts.stale += 1
            return _recalled(sight.record, sight.freshness, error=error)

    async def get_list(
        self,
        peer: Peer,
        method: str,
        *,
        version: str = "",
        capabilities: Mapping[str, Any] | None = None,
        policy: Policy | None = None,
    ) -> RecalledList | None:
        """A whole list as remembered, fresh or stale, without asking the server; None if any page is missing."""
        policy = policy or self.policy
        known = await self._look_list(peer, method, version, capabilities, policy)
        if not known:
            return None
        recalled = _recalled_list(method, known)
        if recalled.freshness.fresh:
            self.counts.hits += 1
        else:
            self.counts.stale += 1
            first = _list_key(method, None, version, capabilities)
            await self._note_list_expired(
                _ListPlan(peer, method, _no_page, version, capabilities, policy, first, known, known[0])
            )
        return recalled

    async def fetch_list(
        self,
        peer: Peer,
        method: str,
        load_page: LoadPage,
        *,
        version: str = "",
        capabilities: Mapping[str, Any] | None = None,
        policy: Policy | None = None,
        refresh: bool = False,
    ) -> RecalledList:
        """A whole list: from memory if every page is fresh, else asked for from the beginning, page by page.

        The pages replace the known ones together, after the last has arrived: a failure half way leaves the known list
        as it was, and that may then stand in. A cursor that the server refuses drops all pages and starts again, once.
        If nothing changed, the known items keep their bytes and order.

        Args:
            peer: as in `fetch`.
            method: one of `LIST_METHODS`.
            load_page: requests one page (None: the first) and returns the raw JSON of its result.
            version: the protocol version spoken, see `request_key`.
            capabilities: the client capabilities declared, see `request_key`.
            policy: instead of the memory's own.
            refresh: ask even if all is fresh.

        Raises:
            Whatever `load_page` raises, if no stale list may stand in for it.
            RemoteProtocolError: a page is not what a list's page is, or a cursor leads in a circle.
            LimitExceeded: more than `Policy.max_pages` pages.

        Spec: 2026-07-28 server/utilities/caching#interaction-with-pagination
        """
        policy = policy or self.policy
        first = _list_key(method, None, version, capabilities)
        known = await self._look_list(peer, method, version, capabilities, policy)
        if known and not refresh:
            recalled = _recalled_list(method, known)
            if recalled.freshness.fresh:
                self.counts.hits += 1
                return recalled
        sight = known[0] if known else await self._look(peer, first, policy)
        plan = _ListPlan(peer, method, load_page, version, capabilities, policy, first, known, sight)
        if (
            known
            and not refresh
            and all(self._may_revalidate_later(s.freshness, policy) or s.freshness.fresh for s in known)
        ):
            self._flights.start(self._flight_key(peer, first, policy, sight, "list"), lambda: self._load_list(plan))
            self.counts.stale += 1
            await self._note_list_expired(plan)
            return _recalled_list(method, known)
        self.counts.misses += 1
        try:
            answer: RecalledList = await self._flights.run(
                self._flight_key(peer, first, policy, sight, "list"), lambda: self._load_list(plan, refresh=refresh)
            )
            return answer
        except Exception as error:
            await self._note_list_expired(plan)
            if not known:
                raise
            recalled = _recalled_list(method, known, error=error)
            if not may_serve_stale(error, recalled.freshness, now_ms=self._now_ms(), policy=policy):
                raise
            self.counts.stale += 1
            return recalled

    # --- invalidation
    # --------------------------------------------------------------------------------------------------------

    async def invalidate(self, target: str, method: str, uri: str | None = None) -> None:
        """Declares the remembered answers of `target` to `method` stale at once: all pages, all contexts, all
        processes.

        Args:
            target: the fingerprint.
            method: a cacheable method.
            uri: for `resources/read`, only this resource and what encloses it; None for all.
        """
        await self._bump(changed_marks(target, method, uri))

    async def notified(
        self, target: str, notification: str, params: Mapping[str, Any] | None = None
    ) -> tuple[str, ...]:
        """Takes note of a notification from the server.

        Returns:
            The methods whose answers are stale now; () for a notification that is about something else.

        Spec: 2026-07-28 server/utilities/caching#interaction-with-notifications
        """
        methods = methods_changed_by(notification)
        if methods:
            uri = (params or {}).get("uri") if notification == "notifications/resources/updated" else None
            uri = uri if isinstance(uri, str) else None
            await self._bump([mark for method in methods for mark in changed_marks(target, method, uri)])
        return methods

    async def doubt(self, target: str, method: str, code: int, *, policy: Policy | None = None) -> tuple[str, ...]:
        """Takes note that a request failed in a way that makes remembered answers doubtful.

        Args:
            target: the fingerprint.
            method: the request that failed, such as `tools/call`.
            code: the JSON-RPC error code.
            policy: instead of the memory's own.

        Returns:
            The methods whose answers are stale now; () if there is no reason, or was one a moment ago.

        Spec: 2026-07-28 server/utilities/caching#freshness-calculation (MAY)
        """
        policy = policy or self.policy
        now_ms = self._clock.mono_ms()
        doubtful = []
        for doubted in methods_doubted_by(method, code, codes=policy.early_refetch_codes):
            mark = changed_marks(target, doubted)[0]
            last_ms = self._doubted_ms.get(mark)
            if last_ms is None or now_ms - last_ms >= policy.early_refetch_interval_ms:
                if len(self._doubted_ms) > 10_000:
                    self._doubted_ms.clear()
                self._doubted_ms[mark] = now_ms
                doubtful.append(doubted)
        if doubtful:
            await self._bump([changed_marks(target, m)[0] for m in doubtful])
        return tuple(doubtful)

    def watch(self, callback: Callable[[str, str], None]) -> None:
        """Calls `callback(target, method)` whenever answers are declared stale, here or (with Valkey) in another
        process.
        """
        self._watchers.append(callback)

    async def _bump(self, marks: Iterable[str]) -> None:
        bumped = frozenset(marks)
        # Who asks from now on must not be given the answer to a request that began before. This holds even if the store
        # is out of order.
        self._flights.detach(lambda key: not bumped.isdisjoint(_marks_in(key)))
        self._owed.add(bumped)
        with contextlib.suppress(_Resting):
            try:
                await self._settle()
            except StoreError as error:
                self._failed(error)
        self._tell(bumped)

    def _tell(self, marks: frozenset[str]) -> None:
        if not self._watchers:
            return
        for target, method in sorted({tuple(mark.split(MARK_SEPARATOR)[:2]) for mark in marks if mark != EVERYTHING}):
            for callback in self._watchers:
                callback(target, method)

    # --- eras
    # ----------------------------------------------------------------------------------------------------------------

    async def era(self, target: str, *, policy: Policy | None = None) -> EraVerdict | None:
        """The remembered era of `target`, or None. If its `due` is true, use it but ask the server again on this
        occasion.

        Spec: 2026-07-28 basic/versioning#backward-compatibility-with-initialization-based-versions (MAY persist)
        """
        policy = policy or self.policy
        now_ms = self._now_ms()
        try:
            await self._settle()
            raw = await self.store.read_fact(_era_fact(target))
        except StoreError as error:
            self._failed(error)
            return None
        if raw is None:
            return None
        try:
            verdict = msgspec.json.decode(raw, type=EraVerdict)
        except msgspec.MsgspecError:
            return None  # written by another version of Outrider
        age_ms = now_ms - verdict.learned_ms
        too_old = age_ms >= policy.legacy_horizon_ms or age_ms < -self.store.clock_skew_ms
        return msgspec.structs.replace(verdict, due=verdict.era is Era.LEGACY and too_old)

    async def remember_era(self, target: str, verdict: EraVerdict, *, policy: Policy | None = None) -> bool:
        """Keeps a verdict, if an answer backs it; dated now. One that contradicts what was known replaces it and makes
        all else stale.

        Returns:
            Whether it was kept: False for evidence that is no answer, or while the store fails.

        Spec: 2026-07-28 basic/versioning#backward-compatibility-with-initialization-based-versions (MAY persist); which
        evidence: ours
        """
        if not verdict.evidence.is_answer:
            return False
        policy = policy or self.policy
        before = await self.era(target)
        verdict = msgspec.structs.replace(verdict, learned_ms=self._now_ms(), due=False)
        try:
            await self._settle()
            await self.store.write_fact(_era_fact(target), msgspec.json.encode(verdict), policy.keep_ms)
        except StoreError as error:
            self._failed(error)
            return False
        if before is not None and before.era is not verdict.era:
            await self._bump([changed_marks(target, method)[0] for method in CACHEABLE_METHODS])
        return True

    async def forget_era(self, target: str) -> None:
        """Drops the verdict on `target`, as when it turned out wrong and nothing better is known yet."""
        try:
            await self._settle()
            await self.store.drop_fact(_era_fact(target))
        except StoreError as error:
            self._failed(error)

    # --- upkeep
    # --------------------------------------------------------------------------------------------------------------

    async def forget(self, target: str | None = None) -> int:
        """Forgets everything about `target`, or everything; returns how many answers that were.

        Raises:
            StoreError: the store could not be changed.
        """
        if target is not None:
            await self.store.bump([changed_marks(target, method)[0] for method in sorted(CACHEABLE_METHODS)])
            await self.store.drop_fact(_era_fact(target))
        self._flights.detach(lambda key: True)
        return await self.store.drop(target)

    async def entries(self) -> list[Summary]:
        """Everything that is remembered, without content, sorted.

        Raises:
            StoreError: the store could not be read.
        """
        return sorted(await self.store.entries())

    # --- inside
    # --------------------------------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        now_ms, broke = self._timeline.observe(self._clock.wall_ms(), self._clock.mono_ms())
        if broke:
            self._owed.add((EVERYTHING,))
        return now_ms

    async def _settle(self) -> None:
        """Brings the store up to date with what it missed, or raises StoreError: then it must not be read."""
        if self._rest_ms and self._clock.mono_ms() < self._rest_until_ms:
            raise _Resting("the store failed a moment ago")
        if not self._started:
            # The clock was set back while nobody was looking: nobody knows how old anything is.
            if await self.store.newest_ms() > self._now_ms() + self.store.clock_skew_ms:
                self._owed.add((EVERYTHING,))
            self._started = True
        if self._owed:
            # Whoever comes meanwhile waits here: what is being declared stale must not be read as fresh one last time.
            async with self._paying:
                while self._owed:
                    await self._owed.pay(self.store)
        if self._rest_ms:
            self._rest_ms = 0
            _log.info("the memory's store works again")

    def _failed(self, error: StoreError) -> None:
        if isinstance(error, _Resting):
            return
        self.counts.failures += 1
        first = self._rest_ms == 0
        self._rest_ms = _REST_FIRST_MS if first else min(self._rest_ms * 2, _REST_LONGEST_MS)
        self._rest_until_ms = self._clock.mono_ms() + self._rest_ms
        if first:
            _log.warning("going on without the memory's store: %s", error)
            if self._on_trouble is not None:
                self._on_trouble(error)

    async def _look(self, peer: Peer, key: RequestKey, policy: Policy) -> _Sight:
        own = Address(peer.target, peer.context, key.method, key.digest)
        addresses = (own, own._replace(context="")) if policy.share_public else (own,)
        now_ms = self._now_ms()  # before anything is read: notices a clock that was set back
        try:
            if self._owed or self._rest_ms or not self._started:
                await self._settle()
            records, current = await self.store.read(addresses, marks_of(peer.target, key))
        except StoreError as error:
            self._failed(error)
            return _Sight()
        tokens = tokens_of(current)
        sight = _Sight(tokens)
        for address, record in zip(addresses, records, strict=True):
            if record is None:
                continue
            if address is not own:
                sight.shared = True
                if not record.public:
                    continue
            if record.received_ms > now_ms:
                now_ms = self._now_ms()  # it has arrived while the store was read
            if record.keep_until_ms <= now_ms:
                continue
            freshness = judge(
                received_ms=record.received_ms,
                lifetime_ms=policy.lifetime_ms(key.method, record.ttl_ms),
                now_ms=now_ms,
                # Something owed by now: the clock was set back, or a notice came while the store was read.
                current=record.tokens == tokens and not self._owed,
                seen_expired=record.expired,
                clock_skew_ms=self.store.clock_skew_ms,
            )
            best = sight.record
            if best is None or (freshness.fresh, record.received_ms) > (sight.freshness.fresh, best.received_ms):
                sight.record, sight.freshness = record, freshness
        return sight

    async def _look_list(
        self, peer: Peer, method: str, version: str, capabilities: Mapping[str, Any] | None, policy: Policy
    ) -> list[_Sight]:
        """Every page in order, or [] if one is missing."""
        pages: list[_Sight] = []
        cursor: str | None = None
        for _ in range(policy.max_pages):
            sight = await self._look(peer, _list_key(method, cursor, version, capabilities), policy)
            if sight.record is None:
                return []
            pages.append(sight)
            cursor = read_hints(sight.record.value).next_cursor
            if cursor is None:
                return pages
        return []

    def _may_revalidate_later(self, freshness: Freshness, policy: Policy) -> bool:
        if freshness.state is not State.EXPIRED or policy.stale_while_revalidate_ms <= 0:
            return False
        return self._now_ms() - freshness.at_ms <= policy.stale_while_revalidate_ms

    def _flight_key(self, peer: Peer, key: RequestKey, policy: Policy, sight: _Sight, kind: str = "one") -> Hashable:
        # The tokens are in it so that nobody joins a request that began before another process's invalidation.
        return (marks_of(peer.target, key), peer.context, key.digest, kind, policy.share_public, sight.tokens)

    async def _load_one(
        self, peer: Peer, key: RequestKey, load: Load, policy: Policy, sight: _Sight, *, refresh: bool = False
    ) -> Recalled:
        marks = marks_of(peer.target, key)
        # Fixed before the request begins: what is declared changed from now on will not match.
        tokens = sight.tokens or await self._mark(marks)

        async def look() -> Recalled | None:
            nonlocal tokens
            seen = await self._look(peer, key, policy)
            tokens = seen.tokens or tokens
            if seen.record is None or not _is_news(sight, seen):
                return None
            return _recalled(seen.record, seen.freshness, Source.NETWORK)

        async def attempt() -> Recalled:
            began = tokens
            value = await self._load(peer, key, load)
            hints = read_hints(value, max_ttl_ms=policy.max_ttl_ms)
            if not hints.complete:
                return self._unkept(value)
            # A page on its own is never shared: only the whole list shows whether the server calls all of it public.
            public = hints.scope is Scope.PUBLIC
            share = policy.share_public and public and key.cursor is None
            record = self._record(peer, value, hints, began or "", policy)
            if sight.shared and not public:
                await self._drop(peer.target, "", key.method)
            address = Address(peer.target, "" if share else peer.context, key.method, key.digest)
            current = await self._write([(address, record)], marks, policy)
            return _recalled(record, self._judge_new(key.method, record, current, policy), Source.NETWORK)

        if refresh or tokens is None:
            return await attempt()
        return await self._exclusively(_lease_name(peer, key, "one", tokens), policy, look, attempt)

    async def _load_list(self, plan: _ListPlan, *, refresh: bool = False) -> RecalledList:
        peer, policy = plan.peer, plan.policy
        marks = marks_of(peer.target, plan.first)
        tokens = plan.sight.tokens or await self._mark(marks)

        async def look() -> RecalledList | None:
            nonlocal tokens
            first = await self._look(peer, plan.first, policy)
            tokens = first.tokens or tokens
            if not _is_news(plan.sight, first):
                return None
            pages = await self._look_list(peer, plan.method, plan.version, plan.capabilities, policy)
            return _recalled_list(plan.method, pages, Source.NETWORK) if pages else None

        async def attempt() -> RecalledList:
            began = tokens
            keys, records = await self._load_pages(plan, began or "")
            before = _recalled_list(plan.method, plan.known) if plan.known else None
            fetched = _as_list(plan.method, records)
            change: Difference | None = None
            if before is not None:
                change = difference(before.listing, fetched.listing)
                if not change:
                    keys, records = _carried_on(plan, records)
            public = all(record.public for record in records)
            records = [record._replace(public=public) for record in records]
            share = policy.share_public and public
            if plan.sight.shared and not public:
                await self._drop(peer.target, "", plan.method)
            context = "" if share else peer.context
            entries = [
                (Address(peer.target, context, plan.method, key.digest), record)
                for key, record in zip(keys, records, strict=True)
            ]
            current = await self._write(entries, marks, policy)
            pages = tuple(
                _recalled(record, self._judge_new(plan.method, record, current, policy), Source.NETWORK)
                for record in records
            )
            return RecalledList(plan.method, pages, Source.NETWORK, change)

        if refresh or tokens is None:
            return await attempt()
        return await self._exclusively(_lease_name(peer, plan.first, "list", tokens), policy, look, attempt)

    async def _load_pages(self, plan: _ListPlan, tokens: str) -> tuple[list[RequestKey], list[Record]]:
        keys: list[RequestKey] = []
        records: list[Record] = []
        cursor: str | None = None
        seen: set[str] = set()
        restarted = False
        while True:
            key = _list_key(plan.method, cursor, plan.version, plan.capabilities)
            try:
                value = await self._load(plan.peer, key, functools.partial(plan.load_page, cursor))
            except PeerError as error:
                if error.code != INVALID_PARAMS or cursor is None or restarted:
                    raise
                # The list changed under our hands, or the server has forgotten where we were. `_load` has dropped the
                # pages.
                restarted = True
                keys, records, cursor, seen = [], [], None, set()
                continue
            hints = read_hints(value, max_ttl_ms=plan.policy.max_ttl_ms)
            if not hints.complete:
                raise RemoteProtocolError(
                    f"{plan.method} answered with an interim result", rule="basic/patterns/mrtr#supported-requests"
                )
            read_items(
                plan.method, value
            )  # a page whose items are no list spoils the list now, not when it is recalled
            keys.append(key)
            records.append(self._record(plan.peer, value, hints, tokens, plan.policy))
            cursor = hints.next_cursor
            if cursor is None:
                return keys, records
            if cursor in seen:
                raise RemoteProtocolError(
                    f"the cursors of {plan.method} lead in a circle", rule="server/utilities/pagination"
                )
            if len(keys) >= plan.policy.max_pages:
                raise LimitExceeded(
                    f"{plan.method} has more than {plan.policy.max_pages} pages", rule="Policy.max_pages"
                )
            seen.add(cursor)

    async def _load(self, peer: Peer, key: RequestKey, load: Load) -> bytes:
        self.counts.loads += 1
        try:
            return await load()
        except AuthRequired as error:
            # This context may have lost its right to what is kept for it. 401: to everything; 403: to what was asked
            # for.
            await self._drop(peer.target, peer.context, None if error.status == 401 else key.method)
            raise
        except PeerError as error:
            if error.code == INVALID_PARAMS and key.cursor is not None:
                await self._drop(peer.target, peer.context, key.method)
                if self.policy.share_public:
                    await self._drop(peer.target, "", key.method)
            raise

    async def _exclusively(
        self,
        name: str,
        policy: Policy,
        look: Callable[[], Awaitable[T | None]],
        attempt: Callable[[], Awaitable[T]],
    ) -> T:
        """Runs `attempt` while no other process does, or returns what `look` finds that another has brought
        meanwhile.
        """
        store = self.store
        if not store.shared or self._rest_ms:
            return await attempt()
        loop = asyncio.get_running_loop()
        holder = new_token()
        give_up = loop.time() + policy.lease_wait_ms / 1000
        pause_s = 0.01
        held = False
        try:
            while not (held := await store.lease(name, holder, policy.lease_ms)) and loop.time() < give_up:
                # Random, so that those who wait do not come all at once.
                await asyncio.sleep(pause_s * (0.75 + os.urandom(1)[0] / 512))
                pause_s = min(pause_s * 1.5, 0.1)
                if (answer := await look()) is not None:
                    return answer
        except StoreError as error:
            self._failed(error)
        if not held:
            return await attempt()
        renewal = loop.create_task(self._renew(name, holder, policy.lease_ms))
        try:
            # Another may have finished between our first look and our lease.
            answer = await look()
            return answer if answer is not None else await attempt()
        finally:
            renewal.cancel()
            with contextlib.suppress(StoreError):
                # If the store fails or this is cut short, the lease ends by itself.
                await store.release(name, holder)

    async def _renew(self, name: str, holder: str, lease_ms: int) -> None:
        with contextlib.suppress(StoreError):
            while True:
                await asyncio.sleep(lease_ms / 3000)
                await self.store.lease(name, holder, lease_ms)

    def _record(self, peer: Peer, value: bytes, hints: Hints, tokens: str, policy: Policy) -> Record:
        now_ms = self._now_ms()
        return Record(
            bytes(value),
            now_ms,
            hints.ttl_ms,
            hints.scope is Scope.PUBLIC,
            tokens,
            now_ms + max(hints.ttl_ms, policy.floor_ms) + policy.keep_ms,
            label=peer.label,
        )

    def _judge_new(self, method: str, record: Record, current: bool, policy: Policy) -> Freshness:
        return judge(
            received_ms=record.received_ms,
            lifetime_ms=policy.lifetime_ms(method, record.ttl_ms),
            now_ms=self._now_ms(),
            current=current,
        )

    def _unkept(self, value: bytes) -> Recalled:
        now_ms = self._now_ms()
        return Recalled(value, Source.NETWORK, Freshness(State.EXPIRED, now_ms), Scope.PRIVATE, now_ms)

    async def _mark(self, marks: Sequence[str]) -> str | None:
        try:
            await self._settle()
            return " ".join(await self.store.mark(marks))
        except StoreError as error:
            self._failed(error)
            return None

    async def _write(self, entries: Sequence[tuple[Address, Record]], marks: Sequence[str], policy: Policy) -> bool:
        """Whether the tokens are still current, as far as can be known."""
        if not entries[0][1].tokens or any(len(record.value) > policy.max_entry_bytes for _, record in entries):
            return True
        try:
            await self._settle()
            return await self.store.write(entries, marks)
        except StoreError as error:
            self._failed(error)
            return True

    async def _drop(self, target: str, context: str, method: str | None) -> None:
        self._owed.add(((target, context, method),))
        try:
            await self._settle()
        except StoreError as error:
            self._failed(error)

    async def _note_expired(self, peer: Peer, key: RequestKey, sight: _Sight, policy: Policy) -> None:
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
                await self.store.expire(Address(peer.target, context, key.method, key.digest), record.received_ms)
        except StoreError as error:
            self._failed(error)

    async def _note_list_expired(self, plan: _ListPlan) -> None:
        for key, sight in zip(_page_keys(plan), plan.known, strict=True):
            await self._note_expired(plan.peer, key, sight, plan.policy)


class _ListPlan(NamedTuple):
    peer: Peer
    method: str
    load_page: LoadPage
    version: str
    capabilities: Mapping[str, Any] | None
    policy: Policy
    first: RequestKey
    known: list[_Sight]
    sight: _Sight


def _list_key(method: str, cursor: str | None, version: str, capabilities: Mapping[str, Any] | None) -> RequestKey:
    key = request_key(
        method, None if cursor is None else {"cursor": cursor}, version=version, capabilities=capabilities
    )
    if key is None or method not in LIST_METHODS:
        raise ValueError(f"{method} is not a list")
    return key


def _recalled(
    record: Record, freshness: Freshness, source: Source | None = None, *, error: BaseException | None = None
) -> Recalled:
    if source is None:
        source = Source.MEMORY if freshness.fresh else Source.STALE
    scope = Scope.PUBLIC if record.public else Scope.PRIVATE
    return Recalled(record.value, source, freshness, scope, record.received_ms, error)


def _recalled_list(
    method: str, sights: Iterable[_Sight], source: Source | None = None, *, error: BaseException | None = None
) -> RecalledList:
    pages = tuple(_recalled(s.record, s.freshness, source, error=error) for s in sights if s.record is not None)
    if source is None:
        source = Source.MEMORY if all(page.freshness.fresh for page in pages) else Source.STALE
    return RecalledList(method, pages, source, error=error)


def _as_list(method: str, records: Iterable[Record]) -> RecalledList:
    """A list for its items and digests only."""
    return RecalledList(method, tuple(_recalled(record, _UNKNOWN) for record in records), Source.NETWORK)


def _carried_on(plan: _ListPlan, fetched: Sequence[Record]) -> tuple[list[RequestKey], list[Record]]:
    """The known pages, byte for byte, with the lifetime that the fetched ones have together."""
    received_ms = min(record.received_ms for record in fetched)
    ttl_ms = min(record.ttl_ms for record in fetched)
    template = fetched[0]._replace(received_ms=received_ms, ttl_ms=ttl_ms)
    return _page_keys(plan), [template._replace(value=s.record.value) for s in plan.known if s.record is not None]


def _page_keys(plan: _ListPlan) -> list[RequestKey]:
    """The keys of the known pages."""
    keys: list[RequestKey] = []
    cursor: str | None = None
    for sight in plan.known:
        keys.append(_list_key(plan.method, cursor, plan.version, plan.capabilities))
        cursor = read_hints(sight.record.value).next_cursor if sight.record is not None else None
    return keys


async def _no_page(cursor: str | None) -> bytes:
    raise AssertionError("what is only recalled asks for nothing")


def _is_news(before: _Sight, after: _Sight) -> bool:
    """Whether another process has stored an answer since `before` that is good for whoever was waiting then."""
    if after.record is None or after.freshness.state in (State.INVALIDATED, State.CLOCK):
        return False
    return before.record is None or after.record._replace(expired=before.record.expired) != before.record


def _marks_in(flight_key: Hashable) -> frozenset[str]:
    return frozenset(flight_key[0]) if isinstance(flight_key, tuple) else frozenset()


def _lease_name(peer: Peer, key: RequestKey, kind: str, tokens: str) -> str:
    # With the tokens: whoever asks after an invalidation does not wait for a request that began before it.
    return MARK_SEPARATOR.join((kind, peer.target, peer.context, key.method, key.digest, tokens))


def _era_fact(target: str) -> str:
    return "era" + MARK_SEPARATOR + target


def open_memory(
    location: str | Path | None = None,
    *,
    policy: Policy | None = None,
    on_trouble: Callable[[StoreError], None] | None = None,
) -> Memory:
    """Opens a memory where the operator wants it.

    Args:
        location: None for a SQLite file in the user's cache folder; a path for a SQLite file there; "memory:" for this
            process only; a URL (`valkey://`, `valkeys://`, `redis://`, `rediss://`, `unix://`) for a Valkey or Redis
            server, which needs the extra `outrider-mcp[valkey]`.
        policy: see `Policy`.
        on_trouble: called with the first error of each episode in which the store fails.

    Raises:
        ConfigError: a Valkey URL without the extra installed, or not a usable URL.
    """
    text = str(location) if location is not None else ""
    store: Store
    if text == "memory:":
        store = InProcessStore()
    elif text.partition("://")[0] in {"valkey", "valkeys", "redis", "rediss", "unix"} and "://" in text:
        from outrider.cache.valkey import ValkeyStore

        store = ValkeyStore(text)
    else:
        from outrider.cache.sqlite import SqliteStore

        store = SqliteStore(Path(text) if text else None)
    return Memory(store, policy=policy, on_trouble=on_trouble)
