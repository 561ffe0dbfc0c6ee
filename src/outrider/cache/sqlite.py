"""A store in one SQLite file that any number of processes on one machine share.

Reads run on the event loop: in WAL mode they wait for nobody and take tens of microseconds, less than a hop to a
thread. Writes can wait for another process's lock or for the disk, so they run on one worker thread, in order.

A file that is damaged, of another schema, or replaced behind our back is set aside and begun anew: it is only a cache.

Spec: ours
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from outrider.cache.store import Address, Record, Summary, new_token, wall_ms
from outrider.errors import StoreError

__all__ = ["SqliteStore", "default_path"]

T = TypeVar("T")

_SCHEMA_VERSION: Final = 1
_SCHEMA: Final = """
CREATE TABLE entry (
    id INTEGER PRIMARY KEY,
    target TEXT NOT NULL, context TEXT NOT NULL, method TEXT NOT NULL, request TEXT NOT NULL,
    value BLOB NOT NULL, received_ms INTEGER NOT NULL, ttl_ms INTEGER NOT NULL, public INTEGER NOT NULL,
    tokens TEXT NOT NULL, keep_until_ms INTEGER NOT NULL, expired INTEGER NOT NULL, label TEXT NOT NULL,
    UNIQUE (target, context, method, request)
);
CREATE INDEX entry_by_receipt ON entry (received_ms);
CREATE TABLE mark (name TEXT PRIMARY KEY, token TEXT NOT NULL, made_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE lease (name TEXT PRIMARY KEY, holder TEXT NOT NULL, until_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE fact (name TEXT PRIMARY KEY, value BLOB NOT NULL, until_ms INTEGER NOT NULL) WITHOUT ROWID;
"""
_RECORD: Final = "value, received_ms, ttl_ms, public, tokens, keep_until_ms, expired, label"
_AT: Final = "target = ? AND context = ? AND method = ? AND request = ?"
_TOKEN: Final = "(SELECT token FROM mark WHERE name = ?)"

_LOCK_WAIT_MS: Final = 2_000  # for the writer thread; longer than any transaction of ours by orders of magnitude
_READ_WAIT_MS: Final = 20  # a reader waits only while another process recovers the file after a crash
_PAUSE_S: Final = 0.005  # between two tries for a lock that SQLite does not wait for
_MARK_LIFE_MS: Final = 90 * 86_400_000
_WRITES_BETWEEN_SWEEPS: Final = 500

# Error codes that say the file is beyond use, as opposed to busy, full or out of reach.
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switches to WAL, which processes that start together all do. SQLite's own waiting leaves this one lock out, so it is done here."""
    deadline = time.monotonic() + _LOCK_WAIT_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            # The lower eight bits: SQLite tells kinds of busy apart in the upper ones.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_S)


def default_path() -> Path:
    """Where the user's memory is kept: `memory-<schema>.sqlite3` in Outrider's cache folder."""
    import platformdirs

    # Two versions of Outrider with different schemas each have their own file, and do not rebuild each other's for
    # ever.
    return Path(platformdirs.user_cache_dir("outrider", appauthor=False)) / f"memory-{_SCHEMA_VERSION}.sqlite3"


class SqliteStore:
    """See `outrider.cache.store.Store`. Nothing is opened before the first use.

    Args:
        path: the file, created with mode 0600 in a folder created with 0700; None for `default_path()`.
        max_bytes: the most that values may take together; beyond it the entries received first are dropped.
        max_entries: the most entries.
        clock: the wall clock in milliseconds.
    """

    shared = True
    clock_skew_ms = 0

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        max_bytes: int = 256 * 2**20,
        max_entries: int = 100_000,
        clock: Callable[[], int] = wall_ms,
    ) -> None:
        self.path = Path(path) if path is not None else default_path()
        self._name = str(self.path)
        self.max_bytes, self.max_entries = max_bytes, max_entries
        self._clock = clock
        self._reader: sqlite3.Connection | None = None
        self._inode = 0
        self._writer: sqlite3.Connection | None = None
        self._writer_inode = 0
        self._thread: ThreadPoolExecutor | None = None
        self._writes = 0

    # --- connections
    # ---------------------------------------------------------------------------------------------------------

    def _connect(self, wait_ms: int) -> tuple[sqlite3.Connection, int]:
        """Opens the file, creating or rebuilding it as needed. Raises sqlite3.Error or OSError."""
        for attempt in (1, 2):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # SQLite gives its own files next to this one the same mode.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            connection = sqlite3.connect(
                self.path, timeout=_LOCK_WAIT_MS / 1000, isolation_level=None, check_same_thread=False
            )
            try:
                inode = self.path.stat().st_ino
                self._prepare(connection)
                connection.execute(f"PRAGMA busy_timeout = {wait_ms}")
                return connection, inode
            except sqlite3.Error as error:
                connection.close()
                if attempt == 2 or not _is_damage(error):
                    raise
                self._set_aside(inode)
            except BaseException:
                connection.close()
                raise
        raise AssertionError("unreachable")

    def _prepare(self, connection: sqlite3.Connection) -> None:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version == _SCHEMA_VERSION:
            connection.execute("PRAGMA synchronous = NORMAL")
            return
        # A list of tools is some tens of kB: with pages of 16 kB it is read in two steps instead of six.
        connection.execute("PRAGMA page_size = 16384")
        _use_wal(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("BEGIN EXCLUSIVE")
        try:
            if connection.execute("PRAGMA user_version").fetchone()[0] != _SCHEMA_VERSION:
                for kind in ("index", "table"):
                    names = connection.execute(
                        "SELECT name FROM sqlite_master WHERE type = ? AND name NOT LIKE 'sqlite_%'", (kind,)
                    ).fetchall()
                    for (name,) in names:
                        quoted = name.replace('"', '""')
                        connection.execute(f'DROP {kind.upper()} "{quoted}"')
                for statement in _SCHEMA.split(";"):
                    if statement.strip():
                        connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
            connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise

    def _set_aside(self, inode: int) -> None:
        """Removes the file if it still is the damaged one. Another process may have begun a new one already."""
        try:
            if self.path.stat().st_ino != inode:
                return
            for suffix in ("-wal", "-shm", ""):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{self.path}{suffix}")
        except FileNotFoundError:
            return

    def _current_inode(self) -> int:
        try:
            return os.stat(self._name).st_ino
        except FileNotFoundError:
            return 0

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        try:
            if self._reader is None or self._current_inode() != self._inode:
                # The user cleared the cache folder, or another process began anew: what we hold open is a file without
                # a name.
                self._close_reader()
                self._reader, self._inode = self._connect(_READ_WAIT_MS)
            yield self._reader
        except (sqlite3.Error, OSError) as error:
            self._close_reader()
            if _is_damage(error):
                self._set_aside(self._inode)
            raise _store_error(error, self.path) from error

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _close_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    async def _transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Runs `work` in one transaction on the worker thread; all of it happens or nothing."""

        def run() -> T:
            try:
                if self._writer is None or self._current_inode() != self._writer_inode:
                    self._close_writer()
                    self._writer, self._writer_inode = self._connect(_LOCK_WAIT_MS)
                writer = self._writer
                writer.execute("BEGIN IMMEDIATE")
                try:
                    result = work(writer)
                    writer.execute("COMMIT")
                    return result
                except BaseException:
                    with contextlib.suppress(sqlite3.Error):
                        writer.execute("ROLLBACK")
                    raise
            except (sqlite3.Error, OSError) as error:
                self._close_writer()
                if _is_damage(error):
                    self._set_aside(self._writer_inode)
                raise _store_error(error, self.path) from error

        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="outrider-memory")
        return await asyncio.get_running_loop().run_in_executor(self._thread, run)

    # --- the contract
    # --------------------------------------------------------------------------------------------------------

    async def read(
        self, addresses: Sequence[Address], marks: Sequence[str]
    ) -> tuple[list[Record | None], list[str | None]]:
        """See `Store.read`."""
        with self._reading() as reader:
            if len(addresses) == 1:
                # The usual case, as one statement: half the price of two, and one moment without a transaction.
                columns = ", ".join([_TOKEN] * len(marks))
                row = reader.execute(
                    f"SELECT {columns}, {_RECORD} FROM (SELECT 1) LEFT JOIN entry ON {_AT}", (*marks, *addresses[0])
                ).fetchone()
                tokens, rest = list(row[: len(marks)]), row[len(marks) :]
                return [None if rest[0] is None else _record(rest)], tokens
            reader.execute("BEGIN")
            try:
                found = [
                    reader.execute(f"SELECT {_RECORD} FROM entry WHERE {_AT}", address).fetchone()
                    for address in addresses
                ]
                tokens = _tokens(reader, marks)
            finally:
                reader.execute("COMMIT")
            return [None if row is None else _record(row) for row in found], tokens

    async def mark(self, marks: Sequence[str]) -> list[str]:
        """See `Store.mark`."""

        def work(writer: sqlite3.Connection) -> list[str]:
            made_ms = self._clock()
            writer.executemany(
                "INSERT OR IGNORE INTO mark VALUES (?, ?, ?)", [(mark, new_token(), made_ms) for mark in marks]
            )
            return [token or "" for token in _tokens(writer, marks)]

        return await self._transact(work)

    async def bump(self, marks: Sequence[str]) -> None:
        """See `Store.bump`."""

        def work(writer: sqlite3.Connection) -> None:
            made_ms = self._clock()
            writer.executemany(
                "INSERT OR REPLACE INTO mark VALUES (?, ?, ?)", [(mark, new_token(), made_ms) for mark in marks]
            )

        await self._transact(work)

    async def write(self, entries: Sequence[tuple[Address, Record]], marks: Sequence[str]) -> bool:
        """See `Store.write`."""

        def work(writer: sqlite3.Connection) -> bool:
            current = " ".join(token or "-" for token in _tokens(writer, marks))
            all_current = all(record.tokens == current for _, record in entries)
            verb = "REPLACE" if all_current else "IGNORE"
            writer.executemany(
                f"INSERT OR {verb} INTO entry (target, context, method, request, {_RECORD})"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [(*address, *record) for address, record in entries],
            )
            if self._writes % _WRITES_BETWEEN_SWEEPS == 0:
                self._sweep(writer)
            self._writes += 1
            return all_current

        return await self._transact(work)

    def _sweep(self, writer: sqlite3.Connection) -> None:
        """Drops what is of no more use, and the oldest beyond the bounds. Also by a process's first write: many are
        short-lived.
        """
        now_ms = self._clock()
        writer.execute("DELETE FROM entry WHERE keep_until_ms <= ?", (now_ms,))
        writer.execute("DELETE FROM fact WHERE until_ms <= ?", (now_ms,))
        writer.execute("DELETE FROM lease WHERE until_ms <= ?", (now_ms,))
        # Losing a mark makes what depends on it stale, never fresh.
        writer.execute("DELETE FROM mark WHERE made_ms <= ?", (now_ms - _MARK_LIFE_MS,))
        count, size = writer.execute("SELECT count(*), coalesce(sum(length(value)), 0) FROM entry").fetchone()
        if count <= self.max_entries and size <= self.max_bytes:
            return
        doomed = []
        for row_id, length in writer.execute("SELECT id, length(value) FROM entry ORDER BY received_ms"):
            # Down to nine tenths, so that it is not for every next write to do again.
            if count <= self.max_entries * 0.9 and size <= self.max_bytes * 0.9:
                break
            doomed.append((row_id,))
            count -= 1
            size -= length
        writer.executemany("DELETE FROM entry WHERE id = ?", doomed)

    async def expire(self, address: Address, received_ms: int) -> None:
        """See `Store.expire`."""
        await self._transact(
            lambda w: (
                w.execute(
                    f"UPDATE entry SET expired = 1 WHERE {_AT} AND received_ms = ?", (*address, received_ms)
                ).rowcount
            )
        )

    async def drop(self, target: str | None = None, *, context: str | None = None, method: str | None = None) -> int:
        """See `Store.drop`."""

        def work(writer: sqlite3.Connection) -> int:
            count = writer.execute(
                "DELETE FROM entry WHERE (?1 IS NULL OR target = ?1) AND (?2 IS NULL OR context = ?2)"
                " AND (?3 IS NULL OR method = ?3)",
                (target, context, method),
            ).rowcount
            if target is None:
                writer.execute("DELETE FROM fact")
                writer.execute("DELETE FROM mark")
            return count

        return await self._transact(work)

    async def lease(self, name: str, holder: str, duration_ms: int) -> bool:
        """See `Store.lease`."""

        def work(writer: sqlite3.Connection) -> bool:
            now_ms = self._clock()
            row = writer.execute("SELECT holder, until_ms FROM lease WHERE name = ?", (name,)).fetchone()
            # A lease that ends later than any could is a leftover from before the clock was set back.
            if row is not None and row[0] != holder and now_ms < row[1] <= now_ms + duration_ms:
                return False
            writer.execute("INSERT OR REPLACE INTO lease VALUES (?, ?, ?)", (name, holder, now_ms + duration_ms))
            return True

        return await self._transact(work)

    async def release(self, name: str, holder: str) -> None:
        """See `Store.release`."""
        await self._transact(
            lambda w: w.execute("DELETE FROM lease WHERE name = ? AND holder = ?", (name, holder)).rowcount
        )

    async def read_fact(self, name: str) -> bytes | None:
        """See `Store.read_fact`."""
        with self._reading() as reader:
            row = reader.execute(
                "SELECT value FROM fact WHERE name = ? AND until_ms > ?", (name, self._clock())
            ).fetchone()
            return None if row is None else bytes(row[0])

    async def write_fact(self, name: str, value: bytes, keep_ms: int) -> None:
        """See `Store.write_fact`."""
        until_ms = self._clock() + keep_ms
        await self._transact(
            lambda w: w.execute("INSERT OR REPLACE INTO fact VALUES (?, ?, ?)", (name, value, until_ms)).rowcount
        )

    async def drop_fact(self, name: str) -> None:
        """See `Store.drop_fact`."""
        await self._transact(lambda w: w.execute("DELETE FROM fact WHERE name = ?", (name,)).rowcount)

    async def newest_ms(self) -> int:
        """See `Store.newest_ms`."""
        with self._reading() as reader:
            newest: int = reader.execute("SELECT coalesce(max(received_ms), 0) FROM entry").fetchone()[0]
            return newest

    async def entries(self) -> list[Summary]:
        """See `Store.entries`."""
        with self._reading() as reader:
            rows = reader.execute(
                "SELECT target, context, method, request, received_ms, ttl_ms, public, length(value), label FROM entry"
            ).fetchall()
            return [Summary(Address(*row[:4]), row[4], row[5], bool(row[6]), row[7], row[8]) for row in rows]

    def watch(self, callback: Callable[[frozenset[str]], None]) -> None:
        """Nothing: a SQLite file cannot tell. Other processes see a change with their next read."""

    async def close(self) -> None:
        """See `Store.close`. Finishes what is being written."""
        self._close_reader()
        if self._thread is not None:
            thread, self._thread = self._thread, None
            await asyncio.get_running_loop().run_in_executor(thread, self._close_writer)
            thread.shutdown(wait=False)


def _record(row: Sequence[Any]) -> Record:
    value, received_ms, ttl_ms, public, tokens, keep_until_ms, expired, label = row
    return Record(value, received_ms, ttl_ms, bool(public), tokens, keep_until_ms, bool(expired), label)


def _tokens(connection: sqlite3.Connection, marks: Sequence[str]) -> list[str | None]:
    row = connection.execute("SELECT " + ", ".join([_TOKEN] * len(marks)), tuple(marks)).fetchone()
    return list(row)


def _is_damage(error: BaseException) -> bool:
    if not isinstance(error, sqlite3.DatabaseError):
        return False
    # Extended codes carry the primary one in their low byte. A missing table or column is a damaged schema.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in _DAMAGED or (isinstance(error, sqlite3.OperationalError) and str(error).startswith("no such "))


def _store_error(error: BaseException, path: Path) -> StoreError:
    return StoreError(
        f"the memory's file {path} cannot be used: {error}",
        hint="make its folder writable, or point to another place with the cache setting",
    )
