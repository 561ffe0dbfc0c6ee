"""What was discovered, remembered: the one object through which the client recalls, fetches, invalidates.

Decided here: when an answer comes from the store, from the network or, stale, from the store after all; who joins a
request under way; what is declared stale, and which era a target speaks. Not here: the rules of freshness
(`outrider.protocol.freshness`), what getting an answer takes (`errands`, `lists`), a store that fails (`guarded`), and
the keeping (`outrider.cache.store` and its kin).

Spec: 2026-07-28 server/utilities/caching
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from outrider.cache.answers import Clock, Counts, EraVerdict, Peer, Recalled, RecalledList
from outrider.cache.entries import Entries
from outrider.cache.errands import Errand, FlightKey, Load, OneAnswer, R
from outrider.cache.flight import SingleFlight
from outrider.cache.guarded import GuardedStore
from outrider.cache.leases import exclusively
from outrider.cache.lists import ListRequest, WholeList
from outrider.cache.store import InProcessStore, Store, Summary
from outrider.errors import StoreError
from outrider.protocol.freshness import (
    CACHEABLE_METHODS,
    EVERYTHING,
    MARK_SEPARATOR,
    Policy,
    RequestKey,
    changed_marks,
    may_serve_stale,
    methods_changed_by,
    methods_doubted_by,
)
from outrider.protocol.versions import Era

__all__ = ["Memory", "open_memory"]


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
        self._guarded = GuardedStore(self.store, self._clock, self.counts, on_trouble)
        self._entries = Entries(self._guarded, self.counts)
        self._flights: SingleFlight[Any] = SingleFlight()
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
        return await self._recall(await OneAnswer.of(self._entries, peer, policy or self.policy, key))

    async def fetch(
        self,
        peer: Peer,
        key: RequestKey | None,
        load: Callable[[], Awaitable[bytes]],
        *,
        policy: Policy | None = None,
        refresh: bool = False,
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
        if key is None:
            return self._entries.unkept(await load())
        errand = await OneAnswer.of(self._entries, peer, policy or self.policy, key)
        return await self._fetch(errand, lambda _: load(), refresh=refresh)

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
        asked = ListRequest(method, version, capabilities)
        return await self._recall(await WholeList.of(self._entries, peer, policy or self.policy, asked))

    async def fetch_list(
        self,
        peer: Peer,
        method: str,
        load_page: Load,
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
        asked = ListRequest(method, version, capabilities)
        errand = await WholeList.of(self._entries, peer, policy or self.policy, asked)
        return await self._fetch(errand, load_page, refresh=refresh)

    async def _recall(self, errand: Errand[R]) -> R | None:
        known = errand.known
        if known is None:
            return None
        if known.freshness.fresh:
            self.counts.hits += 1
        else:
            self.counts.stale += 1
            await errand.note_expired()
        return known

    async def _fetch(self, errand: Errand[R], load: Load, *, refresh: bool) -> R:
        known, policy, now_ms = errand.known, errand.policy, self._guarded.now_ms
        if known is not None and not refresh:
            if known.freshness.fresh:
                self.counts.hits += 1
                return known
            if errand.may_be_late(now_ms()):
                self._flights.start(errand.flight_key, lambda: self._load(errand, load, refresh=False))
                self.counts.stale += 1
                await errand.note_expired()
                return known
        self.counts.misses += 1
        try:
            answer: R = await self._flights.run(errand.flight_key, lambda: self._load(errand, load, refresh=refresh))
            return answer
        except Exception as error:
            await errand.note_expired()
            if known is None or not may_serve_stale(error, known.freshness, now_ms=now_ms(), policy=policy):
                raise
            self.counts.stale += 1
            return known.standing_in_for(error)

    async def _load(self, errand: Errand[R], load: Load, *, refresh: bool) -> R:
        # Fixed before the request begins: what is declared changed from now on will not match.
        tokens = errand.sight.tokens or await self._entries.mark(errand.marks)
        if refresh or tokens is None:
            return await errand.ask(load, tokens or "")

        async def look() -> R | None:
            nonlocal tokens
            current, answer = await errand.look_again()
            tokens = current or tokens
            return answer

        async def attempt() -> R:
            return await errand.ask(load, tokens or "")

        return await exclusively(self._guarded, errand.lease_name(tokens), errand.policy, look, attempt)

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
        self._flights.detach(lambda key: isinstance(key, FlightKey) and not bumped.isdisjoint(key.marks))
        await self._guarded.tell(bumped)
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
        now_ms = self._guarded.now_ms()
        raw = await self._guarded.ask(lambda store: store.read_fact(_era_fact(target)), None)
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
        raw = msgspec.json.encode(msgspec.structs.replace(verdict, learned_ms=self._guarded.now_ms(), due=False))

        async def write(store: Store) -> bool:
            await store.write_fact(_era_fact(target), raw, policy.keep_ms)
            return True

        if not await self._guarded.ask(write, False):
            return False
        if before is not None and before.era is not verdict.era:
            await self._bump([changed_marks(target, method)[0] for method in CACHEABLE_METHODS])
        return True

    async def forget_era(self, target: str) -> None:
        """Drops the verdict on `target`, as when it turned out wrong and nothing better is known yet."""
        await self._guarded.ask(lambda store: store.drop_fact(_era_fact(target)), None)

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
