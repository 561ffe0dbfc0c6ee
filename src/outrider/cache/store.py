"""The contract that every store keeps, and the store that lives in the process.

A store keeps entries, marks (random tokens that entries depend on), leases and facts. It knows no freshness rule: it
returns an entry with the tokens that are current now, and `outrider.cache.memory` judges. Nothing a store does is worth
an exception to whoever wants an answer: `Memory` catches `StoreError` and goes on without.

Spec: ours
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

__all__ = ["Address", "InProcessStore", "Record", "Store", "Summary", "new_token", "wall_ms"]


def wall_ms() -> int:
    """The wall clock in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def new_token() -> str:
    """A token no store has ever held: 16 hex digits of randomness."""
    return os.urandom(8).hex()


class Address(NamedTuple):
    """Where an entry is kept. Holds digests and a method's name only, nothing secret."""

    target: str
    """The target's fingerprint."""
    context: str
    """The authorization context's digest; "" for what is shared by all."""
    method: str
    request: str
    """`RequestKey.digest`."""


class Record(NamedTuple):
    """One remembered answer."""

    value: bytes
    """The raw JSON of the result."""
    received_ms: int
    """When it arrived, wall clock."""
    ttl_ms: int
    """What the server said, after `read_hints`."""
    public: bool
    tokens: str
    """The tokens of its marks when its request began, in order, joined by spaces."""
    keep_until_ms: int
    """When even a stale copy is of no more use."""
    expired: bool = False
    """Whether it has been found expired once."""
    label: str = ""
    """How a person calls the target; redacted."""


class Summary(NamedTuple):
    """An entry without its content, for people and for maintenance."""

    address: Address
    received_ms: int
    ttl_ms: int
    public: bool
    size_bytes: int
    label: str


class Store(Protocol):
    """What `Memory` needs from a store. Every method may raise `StoreError`, and nothing else.

    Cancelling a call leaves the store usable; whether the call took effect is then unknown.
    """

    shared: bool
    """Whether other processes use it too, so that leases are worth their price."""
    clock_skew_ms: int
    """By how much the wall clocks of those who use it may differ."""

    async def read(
        self, addresses: Sequence[Address], marks: Sequence[str]
    ) -> tuple[list[Record | None], list[str | None]]:
        """The entries at `addresses` and the tokens of `marks`, each None if there is none, as of one moment."""
        ...

    async def mark(self, marks: Sequence[str]) -> list[str]:
        """The tokens of `marks`, creating those that do not exist."""
        ...

    async def bump(self, marks: Sequence[str]) -> None:
        """Gives each mark a new token: every entry that depends on one is stale from now on, for everyone."""
        ...

    async def write(self, entries: Sequence[tuple[Address, Record]], marks: Sequence[str]) -> bool:
        """Stores all entries or none, unless what they would replace is newer than they are.

        Args:
            entries: all with the same `tokens`.
            marks: the marks that the tokens belong to.

        Returns:
            Whether the tokens are still current. If not, an entry is stored only where there was none: it is stale from
            birth, and may still be of use when the server is down.
        """
        ...

    async def expire(self, address: Address, received_ms: int) -> None:
        """Notes that the entry received at `received_ms` was found expired. A newer one at the same address is left
        alone.
        """
        ...

    async def drop(self, target: str | None = None, *, context: str | None = None, method: str | None = None) -> int:
        """Forgets entries for good; returns how many, as far as known. None means any; with no target, everything incl.
        facts and marks.
        """
        ...

    async def lease(self, name: str, holder: str, duration_ms: int) -> bool:
        """Takes or renews the lease `name` for `holder`; False if another holds it. A lease ends by itself after
        `duration_ms`.
        """
        ...

    async def release(self, name: str, holder: str) -> None:
        """Ends a lease early, if `holder` still has it."""
        ...

    async def read_fact(self, name: str) -> bytes | None:
        """A small value that is not an answer, such as an era verdict."""
        ...

    async def write_fact(self, name: str, value: bytes, keep_ms: int) -> None:
        """Stores a fact for `keep_ms`."""
        ...

    async def drop_fact(self, name: str) -> None:
        """Forgets a fact."""
        ...

    async def newest_ms(self) -> int:
        """When the newest entry was received, or 0 if there is none or the store is shared by machines with clocks of
        their own.
        """
        ...

    async def entries(self) -> list[Summary]:
        """All entries, in no particular order."""
        ...

    def watch(self, callback: Callable[[frozenset[str]], None]) -> None:
        """Calls `callback` with marks that *another* process has bumped, where the store can tell without being
        asked.
        """
        ...

    async def close(self) -> None:
        """Frees connections, files and threads. Idempotent."""
        ...


_ENTRY_OVERHEAD_BYTES: Final = 512  # a rough figure for the address, the record and the dictionary slot


class InProcessStore:
    """A store in the process, bounded by bytes and by entries; what was used least recently goes first.

    Args:
        max_bytes: the most that values may take together, counted with a fixed overhead per entry.
        max_entries: the most entries.
        clock: the wall clock in milliseconds.

    Spec: ours
    """

    shared = False
    clock_skew_ms = 0

    def __init__(
        self, *, max_bytes: int = 64 * 2**20, max_entries: int = 10_000, clock: Callable[[], int] = wall_ms
    ) -> None:
        self.max_bytes, self.max_entries = max_bytes, max_entries
        self._clock = clock
        self._entries: OrderedDict[Address, Record] = OrderedDict()
        self._bytes = 0
        self._marks: OrderedDict[str, str] = OrderedDict()
        self._leases: dict[str, tuple[str, int]] = {}
        self._facts: OrderedDict[str, tuple[bytes, int]] = OrderedDict()

    async def read(
        self, addresses: Sequence[Address], marks: Sequence[str]
    ) -> tuple[list[Record | None], list[str | None]]:
        """See `Store.read`."""
        entries = self._entries
        found: list[Record | None] = []
        for address in addresses:
            record = entries.get(address)
            if record is not None:
                entries.move_to_end(address)
            found.append(record)
        return found, [self._marks.get(mark) for mark in marks]

    async def mark(self, marks: Sequence[str]) -> list[str]:
        """See `Store.mark`."""
        tokens = []
        for mark in marks:
            if mark not in self._marks:
                self._set_mark(mark)
            tokens.append(self._marks[mark])
        return tokens

    def _set_mark(self, mark: str) -> None:
        self._marks[mark] = new_token()
        self._marks.move_to_end(mark)
        # A mark that is forgotten makes what depends on it stale, so bounding them is safe. Several per entry is
        # plenty.
        while len(self._marks) > 4 * self.max_entries:
            self._marks.popitem(last=False)

    async def bump(self, marks: Sequence[str]) -> None:
        """See `Store.bump`."""
        for mark in marks:
            self._set_mark(mark)

    async def write(self, entries: Sequence[tuple[Address, Record]], marks: Sequence[str]) -> bool:
        """See `Store.write`."""
        current = " ".join(self._marks.get(mark, "-") for mark in marks)
        all_current = True
        for address, record in entries:
            if record.tokens != current:
                all_current = False
                if address in self._entries:
                    continue
            self._remove(address)
            self._entries[address] = record
            self._bytes += len(record.value) + _ENTRY_OVERHEAD_BYTES
        while self._entries and (self._bytes > self.max_bytes or len(self._entries) > self.max_entries):
            self._remove(next(iter(self._entries)))
        return all_current

    def _remove(self, address: Address) -> bool:
        record = self._entries.pop(address, None)
        if record is None:
            return False
        self._bytes -= len(record.value) + _ENTRY_OVERHEAD_BYTES
        return True

    async def expire(self, address: Address, received_ms: int) -> None:
        """See `Store.expire`."""
        record = self._entries.get(address)
        if record is not None and record.received_ms == received_ms:
            self._entries[address] = record._replace(expired=True)

    async def drop(self, target: str | None = None, *, context: str | None = None, method: str | None = None) -> int:
        """See `Store.drop`."""
        if target is None:
            self._facts.clear()
            self._marks.clear()
        doomed = [
            a
            for a in self._entries
            if (target is None or a.target == target)
            and (context is None or a.context == context)
            and (method is None or a.method == method)
        ]
        return sum(self._remove(address) for address in doomed)

    async def lease(self, name: str, holder: str, duration_ms: int) -> bool:
        """See `Store.lease`."""
        now_ms = self._clock()
        other, until_ms = self._leases.get(name, ("", 0))
        # A lease that ends later than any could is a leftover from before the clock was set back.
        if other not in ("", holder) and now_ms < until_ms <= now_ms + duration_ms:
            return False
        self._leases[name] = (holder, now_ms + duration_ms)
        return True

    async def release(self, name: str, holder: str) -> None:
        """See `Store.release`."""
        if self._leases.get(name, ("", 0))[0] == holder:
            del self._leases[name]

    async def read_fact(self, name: str) -> bytes | None:
        """See `Store.read_fact`."""
        value, until_ms = self._facts.get(name, (None, 0))
        return value if self._clock() < until_ms else None

    async def write_fact(self, name: str, value: bytes, keep_ms: int) -> None:
        """See `Store.write_fact`."""
        self._facts[name] = (value, self._clock() + keep_ms)
        self._facts.move_to_end(name)
        while len(self._facts) > self.max_entries:
            self._facts.popitem(last=False)

    async def drop_fact(self, name: str) -> None:
        """See `Store.drop_fact`."""
        self._facts.pop(name, None)

    async def newest_ms(self) -> int:
        """See `Store.newest_ms`."""
        return max((record.received_ms for record in self._entries.values()), default=0)

    async def entries(self) -> list[Summary]:
        """See `Store.entries`."""
        return [summary_of(address, record) for address, record in self._entries.items()]

    def watch(self, callback: Callable[[frozenset[str]], None]) -> None:
        """Nobody else uses this store, so there is nothing to tell."""

    async def close(self) -> None:
        """See `Store.close`. What was remembered stays readable."""


def summary_of(address: Address, record: Record) -> Summary:
    """`record` without its content."""
    return Summary(address, record.received_ms, record.ttl_ms, record.public, len(record.value), record.label)


def tokens_of(current: Sequence[str | None]) -> str | None:
    """The tokens in the form a record keeps them, or None if any mark has none: then no record can match."""
    return None if None in current else " ".join(current)  # type: ignore[arg-type]  # None is not in it
