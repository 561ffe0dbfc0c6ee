"""A store in a Valkey or Redis server that any number of machines share. Needs the extra `outrider-mcp[valkey]`.

One round trip per operation. Invalidations are also published, so that other instances drop their copies and can tell
their own clients (`watch`). What was read is kept in the process as well, and believed only while the subscription is
known to be alive.

All keys share one prefix with a hash tag, so that a cluster keeps them in one slot and scripts may touch several.

Spec: ours
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from outrider.cache.store import Address, Record, Summary, new_token, summary_of, wall_ms
from outrider.errors import ConfigError, StoreError

__all__ = ["ValkeyStore", "redis_url"]

T = TypeVar("T")

_MARK_LIFE_MS: Final = 90 * 86_400_000
_NEAR_TRUST_S: Final = 1.0
_SEPARATOR: Final = "|"

_WRITE: Final = """
local marks = tonumber(ARGV[1])
local tokens = {}
for i = 1, marks do tokens[i] = redis.call('GET', KEYS[i]) or '-' end
local current = table.concat(tokens, ' ') == ARGV[2]
local index, targets = KEYS[marks + 1], KEYS[marks + 2]
for i = marks + 3, #KEYS do
  local at = 5 + (i - marks - 3) * 2
  if current or redis.call('EXISTS', KEYS[i]) == 0 then
    redis.call('SET', KEYS[i], ARGV[at], 'PX', ARGV[at + 1])
    redis.call('SADD', index, KEYS[i])
  end
end
redis.call('SADD', targets, ARGV[3])
redis.call('PEXPIRE', index, ARGV[4])
return current and 1 or 0
"""
_EXPIRE: Final = """
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL') end
"""
_LEASE: Final = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
_RELEASE: Final = """
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
"""

_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Record)


class _Notice(msgspec.Struct, array_like=True):
    """What is published when something was declared stale or dropped."""

    sender: str
    marks: list[str]
    targets: list[str]
    """Targets of which entries were dropped; "*" for all."""


class _Near:
    """Copies of what was read, bounded; an entry counts only together with all its marks."""

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self._max_entries, self._max_bytes = max_entries, max_bytes
        self._records: OrderedDict[Address, Record] = OrderedDict()
        self._tokens: dict[str, str] = {}
        self._bytes = 0
        self.changes = 0
        """Counts what was taken out, so that an answer that was under way meanwhile is not put in."""

    def get(
        self, addresses: Sequence[Address], marks: Sequence[str], now_ms: int
    ) -> tuple[list[Record | None], list[str | None]] | None:
        tokens: list[str | None] = []
        for mark in marks:
            token = self._tokens.get(mark)
            if token is None:
                return None
            tokens.append(token)
        current = " ".join(token for token in tokens if token is not None)
        found: list[Record | None] = []
        for address in addresses:
            record = self._records.get(address)
            # A copy that is no longer fresh is no use: another instance may have stored a newer one.
            if record is None or record.expired or record.tokens != current:
                return None
            if now_ms >= record.received_ms + record.ttl_ms:
                return None
            self._records.move_to_end(address)
            found.append(record)
        return found, tokens

    def put(
        self,
        addresses: Sequence[Address],
        records: Iterable[Record | None],
        marks: Sequence[str],
        tokens: Iterable[str | None],
    ) -> None:
        if len(self._tokens) > 4 * self._max_entries:
            self.clear()
        for mark, token in zip(marks, tokens, strict=True):
            if token is not None:
                self._tokens[mark] = token
        for address, record in zip(addresses, records, strict=True):
            self.drop(address)
            if record is not None and len(record.value) <= self._max_bytes // 8:
                self._records[address] = record
                self._bytes += len(record.value)
        while self._records and (len(self._records) > self._max_entries or self._bytes > self._max_bytes):
            self.drop(next(iter(self._records)))

    def drop(self, address: Address) -> None:
        record = self._records.pop(address, None)
        if record is not None:
            self._bytes -= len(record.value)

    def forget(self, marks: Iterable[str], targets: Iterable[str]) -> None:
        self.changes += 1
        for mark in marks:
            self._tokens.pop(mark, None)
        for target in targets:
            if target == "*":
                self.clear()
            for address in [a for a in self._records if a.target == target]:
                self.drop(address)

    def clear(self) -> None:
        self.changes += 1
        self._records.clear()
        self._tokens.clear()
        self._bytes = 0


def redis_url(url: str) -> str:
    """`url` in the words of the redis package, which knows Valkey's schemes under their older names only."""
    scheme, _, rest = url.partition("://")
    return {"valkey": "redis", "valkeys": "rediss"}.get(scheme, scheme) + "://" + rest


class ValkeyStore:
    """See `outrider.cache.store.Store`. Nothing is connected before the first use. For one event loop.

    Args:
        url: `valkey://`, `valkeys://` (TLS), `redis://`, `rediss://` or `unix://`, with user, password and database as
            usual.
        prefix: begins every key; instances share what they share the prefix with.
        timeout_s: the longest that one operation may take.
        clock_skew_ms: by how much the machines' wall clocks may differ.
        near_entries, near_bytes: bounds of the copies kept in the process; 0 entries for none.
        clock: the wall clock in milliseconds.

    Raises:
        ConfigError: the extra is not installed, or the URL is not usable.
    """

    shared = True

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "outrider",
        timeout_s: float = 1.0,
        clock_skew_ms: int = 1_000,
        near_entries: int = 2_000,
        near_bytes: int = 16 * 2**20,
        clock: Callable[[], int] = wall_ms,
    ) -> None:
        try:
            import redis.asyncio as redis
            from redis.backoff import NoBackoff
            from redis.exceptions import RedisError
        except ImportError as error:
            raise ConfigError(
                "a Valkey store needs the redis package", hint="pip install 'outrider-mcp[valkey]'"
            ) from error
        from redis.asyncio.retry import Retry

        self.clock_skew_ms = clock_skew_ms
        self._errors = (RedisError, OSError, TimeoutError)
        self._clock = clock
        self._prefix = f"{{{prefix}:1}}:"
        self._channel = self._prefix + "changes"
        self._sender = new_token()
        self._timeout_s = timeout_s
        url = redis_url(url)
        parts = urlsplit(url)
        self._where = parts.hostname or parts.path or "?"
        try:
            # One immediate second try, for pooled connections that a restarted server has closed.
            self._client: Any = redis.Redis.from_url(
                url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s, retry=Retry(NoBackoff(), 1)
            )
            # Never a silent reconnection here: what was published meanwhile would be missed without a trace.
            self._listener: Any = redis.Redis.from_url(
                url, socket_connect_timeout=timeout_s, retry=Retry(NoBackoff(), 0)
            )
        except ValueError as error:
            raise ConfigError("not a usable Valkey URL", hint="for example valkey://host:6379/0") from error
        self._scripts: dict[str, Any] = {
            s: self._client.register_script(s) for s in (_WRITE, _EXPIRE, _LEASE, _RELEASE)
        }
        self._near = _Near(near_entries, near_bytes) if near_entries > 0 else None
        self._watchers: list[Callable[[frozenset[str]], None]] = []
        self._listening: asyncio.Task[None] | None = None
        self._closing = False
        self._subscription: Any = None
        self._heard_s: float | None = None
        self._pinging: asyncio.Task[None] | None = None

    async def _do(self, operation: Awaitable[T]) -> T:
        try:
            # The client's own time-outs are per read; this one is for the whole.
            async with asyncio.timeout(2 * self._timeout_s):
                return await operation
        except self._errors as error:
            raise StoreError(
                f"the Valkey server at {self._where} failed: {type(error).__name__}",
                hint="is it running and reachable?",
            ) from error

    def _entry_key(self, address: Address) -> str:
        return f"{self._prefix}e:{_SEPARATOR.join(address)}"

    def _mark_keys(self, marks: Iterable[str]) -> list[str]:
        return [f"{self._prefix}m:{mark}" for mark in marks]

    def _index_key(self, target: str) -> str:
        return f"{self._prefix}i:{target}"

    # --- listening
    # -----------------------------------------------------------------------------------------------------------

    def _listen_from_now_on(self) -> None:
        if self._listening is None and (self._near is not None or self._watchers):
            self._listening = asyncio.get_running_loop().create_task(self._listen(), name="outrider invalidations")

    async def _listen(self) -> None:
        pause_s = 0.05
        while not self._closing:
            subscription = self._listener.pubsub()
            try:
                await subscription.subscribe(self._channel)
                while True:
                    message = await subscription.get_message(timeout=30.0)
                    if message is None:
                        await subscription.ping()
                        continue
                    if message["type"] == "subscribe":
                        self._subscription = subscription
                        pause_s = 0.05
                        if self._near is not None:
                            self._near.clear()
                    self._heard_s = asyncio.get_running_loop().time()
                    if message["type"] == "message":
                        self._take(message["data"])
            except self._errors:
                pass
            finally:
                self._subscription = self._heard_s = None
                if self._near is not None:
                    self._near.clear()
                with contextlib.suppress(*self._errors):
                    await subscription.aclose()
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))
            pause_s = min(pause_s * 2, 5.0)

    def _take(self, payload: bytes) -> None:
        try:
            notice = msgspec.json.decode(payload, type=_Notice)
        except msgspec.MsgspecError:
            return  # not ours
        if self._near is not None:
            self._near.forget(notice.marks, notice.targets)
        if notice.sender != self._sender and notice.marks:
            for callback in self._watchers:
                callback(frozenset(notice.marks))

    def _near_is_trusted(self) -> bool:
        """Whether no invalidation can have been missed; asks for proof in time."""
        if self._near is None or self._subscription is None or self._heard_s is None:
            return False
        silence_s = asyncio.get_running_loop().time() - self._heard_s
        if silence_s > _NEAR_TRUST_S / 2 and (self._pinging is None or self._pinging.done()):
            self._pinging = asyncio.get_running_loop().create_task(self._ping(self._subscription))
        return silence_s <= _NEAR_TRUST_S

    async def _ping(self, subscription: Any) -> None:
        with contextlib.suppress(*self._errors):
            await subscription.ping()

    def watch(self, callback: Callable[[frozenset[str]], None]) -> None:
        """See `Store.watch`. Begins with the first operation."""
        self._watchers.append(callback)

    # --- the contract
    # --------------------------------------------------------------------------------------------------------

    async def read(
        self, addresses: Sequence[Address], marks: Sequence[str]
    ) -> tuple[list[Record | None], list[str | None]]:
        """See `Store.read`."""
        self._listen_from_now_on()
        near = self._near
        if near is not None and self._near_is_trusted() and (copy := near.get(addresses, marks, self._clock())):
            return copy
        changes = near.changes if near is not None else 0
        values = await self._do(
            self._client.mget([self._entry_key(address) for address in addresses] + self._mark_keys(marks))
        )
        records = [_record(value) for value in values[: len(addresses)]]
        tokens = [None if value is None else value.decode() for value in values[len(addresses) :]]
        if near is not None and near.changes == changes and self._near_is_trusted():
            near.put(addresses, records, marks, tokens)
        return records, tokens

    async def mark(self, marks: Sequence[str]) -> list[str]:
        """See `Store.mark`."""
        async with self._client.pipeline(transaction=True) as pipe:
            for key in self._mark_keys(marks):
                pipe.set(key, new_token(), nx=True, px=_MARK_LIFE_MS)
            pipe.mget(self._mark_keys(marks))
            results = await self._do(pipe.execute())
        return [value.decode() for value in results[-1]]

    async def bump(self, marks: Sequence[str]) -> None:
        """See `Store.bump`."""
        if self._near is not None:
            self._near.forget(marks, ())
        async with self._client.pipeline(transaction=True) as pipe:
            for key in self._mark_keys(marks):
                pipe.set(key, new_token(), px=_MARK_LIFE_MS)
            pipe.publish(self._channel, self._notice(marks, ()))
            await self._do(pipe.execute())
        if self._near is not None:
            self._near.forget(marks, ())

    def _notice(self, marks: Iterable[str], targets: Iterable[str]) -> bytes:
        return msgspec.json.encode(_Notice(self._sender, list(marks), list(targets)))

    async def write(self, entries: Sequence[tuple[Address, Record]], marks: Sequence[str]) -> bool:
        """See `Store.write`."""
        now_ms = self._clock()
        target = entries[0][0].target
        keys = [*self._mark_keys(marks), self._index_key(target), self._prefix + "targets"]
        longest_ms = max(record.keep_until_ms for _, record in entries) - now_ms
        arguments: list[Any] = [len(marks), entries[0][1].tokens, target, max(longest_ms, 1)]
        for address, record in entries:
            keys.append(self._entry_key(address))
            arguments += [_encode(record), max(record.keep_until_ms - now_ms, 1)]
        current = await self._do(self._scripts[_WRITE](keys=keys, args=arguments))
        if self._near is not None:
            self._near.changes += 1
            for address, _ in entries:
                self._near.drop(address)
        return bool(current)

    async def expire(self, address: Address, received_ms: int) -> None:
        """See `Store.expire`."""
        key = self._entry_key(address)
        value = await self._do(self._client.get(key))
        record = _record(value)
        if record is None or record.received_ms != received_ms:
            return
        if self._near is not None:
            self._near.drop(address)
        await self._do(self._scripts[_EXPIRE](keys=[key], args=[value, _encode(record._replace(expired=True))]))

    async def drop(self, target: str | None = None, *, context: str | None = None, method: str | None = None) -> int:
        """See `Store.drop`."""
        if target is None:
            doomed = [key async for key in self._scan()]
            count: int = sum(key.startswith(self._prefix.encode() + b"e:") for key in doomed)
            index = None
        else:
            index = self._index_key(target)
            members = await self._do(self._client.smembers(index))
            doomed = [
                key
                for key in members
                if (address := self._address(key)) is not None
                and context in (None, address.context)
                and method in (None, address.method)
            ]
            count = len(doomed)
        if self._near is not None:
            self._near.forget((), (target or "*",))
        async with self._client.pipeline(transaction=True) as pipe:
            if doomed:
                pipe.unlink(*doomed)
                if index is not None:
                    pipe.srem(index, *doomed)
            pipe.publish(self._channel, self._notice((), (target or "*",)))
            await self._do(pipe.execute())
        return count

    async def _scan(self) -> Any:
        # The whole key space of the server: only for clearing everything, which a person asks for.
        cursor = 0
        pattern = "".join(f"\\{c}" if c in "*?[]\\" else c for c in self._prefix) + "*"
        while True:
            cursor, keys = await self._do(self._client.scan(cursor, match=pattern, count=1000))
            for key in keys:
                yield key
            if not cursor:
                return

    def _address(self, key: bytes) -> Address | None:
        parts = key.decode(errors="replace").removeprefix(self._prefix + "e:").split(_SEPARATOR)
        return Address(*parts) if len(parts) == 4 else None

    async def lease(self, name: str, holder: str, duration_ms: int) -> bool:
        """See `Store.lease`."""
        return bool(await self._do(self._scripts[_LEASE](keys=[f"{self._prefix}l:{name}"], args=[holder, duration_ms])))

    async def release(self, name: str, holder: str) -> None:
        """See `Store.release`."""
        await self._do(self._scripts[_RELEASE](keys=[f"{self._prefix}l:{name}"], args=[holder]))

    async def read_fact(self, name: str) -> bytes | None:
        """See `Store.read_fact`."""
        value: bytes | None = await self._do(self._client.get(f"{self._prefix}f:{name}"))
        return value

    async def write_fact(self, name: str, value: bytes, keep_ms: int) -> None:
        """See `Store.write_fact`."""
        await self._do(self._client.set(f"{self._prefix}f:{name}", value, px=max(keep_ms, 1)))

    async def drop_fact(self, name: str) -> None:
        """See `Store.drop_fact`."""
        await self._do(self._client.delete(f"{self._prefix}f:{name}"))

    async def newest_ms(self) -> int:
        """0: what other machines' clocks said is no evidence about this one's."""
        return 0

    async def entries(self) -> list[Summary]:
        """See `Store.entries`."""
        summaries: list[Summary] = []
        targets = await self._do(self._client.smembers(self._prefix + "targets"))
        for target in targets:
            index = self._index_key(target.decode())
            keys = list(await self._do(self._client.smembers(index)))
            values = await self._do(self._client.mget(keys)) if keys else []
            gone = []
            for key, value in zip(keys, values, strict=True):
                record, address = _record(value), self._address(key)
                if record is None or address is None:
                    gone.append(key)
                else:
                    summaries.append(summary_of(address, record))
            if gone:
                await self._do(self._client.srem(index, *gone))
            if len(gone) == len(keys):
                await self._do(self._client.srem(self._prefix + "targets", target))
        return summaries

    async def close(self) -> None:
        """See `Store.close`."""
        self._closing = True
        for task in (self._listening, self._pinging):
            # The client library can turn a cancellation that meets its own time-out into the time-out's error.
            while task is not None and not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=0.1)
        self._listening = self._pinging = None
        with contextlib.suppress(*self._errors):
            await self._client.aclose()
            await self._listener.aclose()
        self._closing = False  # the next operation, if there is one, connects again


def _record(value: bytes | None) -> Record | None:
    if value is None:
        return None
    try:
        return _decoder.decode(value)
    except msgspec.MsgspecError:
        return None  # written by another version of Outrider
