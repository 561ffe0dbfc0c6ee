"""A store that may fail and a clock that may jump: neither costs more than speed.

Decided here: what happens when a store fails (it is reported once an episode and left alone for a moment), what it must
be told before it is believed again, and what a clock that was set back means. Not here: what is kept, and when it is
fresh (`entries`).

Spec: ours
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeAlias, TypeVar

from outrider.cache.answers import Clock, Counts
from outrider.cache.store import Store
from outrider.errors import StoreError
from outrider.protocol.freshness import EVERYTHING, Timeline

__all__ = ["Drop", "GuardedStore"]

T = TypeVar("T")
U = TypeVar("U")

_log = logging.getLogger("outrider.cache")

Drop: TypeAlias = tuple[str, str, str | None]
"""Target, context and method of entries to drop; None for every method."""

_REST_FIRST_MS: Final = 1_000
_REST_LONGEST_MS: Final = 30_000


class _Resting(StoreError):
    """The store failed a moment ago and is left alone."""


class GuardedStore:
    """A store, read only while it is up to date with everything it must know.

    Args:
        store: the store.
        clock: the clocks.
        counts: where failures are counted.
        on_trouble: called with the first error of an episode.
    """

    def __init__(
        self, store: Store, clock: Clock, counts: Counts, on_trouble: Callable[[StoreError], None] | None
    ) -> None:
        self.store = store
        self._clock = clock
        self._counts = counts
        self._on_trouble = on_trouble
        self._timeline = Timeline()
        self._owed = _Owed()
        self._paying = asyncio.Lock()
        self._started = False
        self._rest_ms = 0
        self._rest_until_ms = 0

    @property
    def owes(self) -> bool:
        """Whether the store is not up to date: what it says is current may not be."""
        return bool(self._owed)

    @property
    def is_resting(self) -> bool:
        """Whether the store's last answer was a failure."""
        return self._rest_ms > 0

    def now_ms(self) -> int:
        """The wall clock; when it was set back, the age of everything kept is unknown from now on."""
        now_ms, broke = self._timeline.observe(self._clock.wall_ms(), self._clock.mono_ms())
        if broke:
            self._owed.add((EVERYTHING,))
        return now_ms

    async def settle(self) -> None:
        """Brings the store up to date with what it missed.

        Raises:
            StoreError: it could not be, or the store is left alone: then it must not be read. Pass it to `failed`.
        """
        if self._started and not self._owed and not self._rest_ms:
            return
        if self._rest_ms and self._clock.mono_ms() < self._rest_until_ms:
            raise _Resting("the store failed a moment ago")
        if not self._started:
            # The clock was set back while nobody was looking: nobody knows how old anything is.
            if await self.store.newest_ms() > self.now_ms() + self.store.clock_skew_ms:
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

    def failed(self, error: StoreError) -> None:
        """Takes note of a failure: the store is left alone for a moment, for longer each time."""
        if isinstance(error, _Resting):
            return
        self._counts.failures += 1
        first = self._rest_ms == 0
        self._rest_ms = _REST_FIRST_MS if first else min(self._rest_ms * 2, _REST_LONGEST_MS)
        self._rest_until_ms = self._clock.mono_ms() + self._rest_ms
        if first:
            _log.warning("going on without the memory's store: %s", error)
            if self._on_trouble is not None:
                self._on_trouble(error)

    async def ask(self, request: Callable[[Store], Awaitable[T]], otherwise: U) -> T | U:
        """What the store, once it is up to date, answers to `request`; `otherwise` while it fails."""
        try:
            await self.settle()
            return await request(self.store)
        except StoreError as error:
            self.failed(error)
            return otherwise

    async def tell(self, news: Iterable[str | Drop]) -> None:
        """Has marks replaced and entries dropped: now, or else before anything is read again."""
        self._owed.add(news)
        try:
            await self.settle()
        except StoreError as error:
            self.failed(error)


class _Owed:
    """What the store must be told before it is believed again. A debt that grows while it is being paid remains a
    debt.
    """

    def __init__(self) -> None:
        self._serial = 0
        self._debts: dict[str | Drop, int] = {}

    def __bool__(self) -> bool:
        return bool(self._debts)

    def add(self, debts: Iterable[str | Drop]) -> None:
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
