"""Tasks in a Valkey or Redis server, so that any process behind a balancer serves the tasks of all. Needs `outrider-mcp[valkey]`.

Decided here: keys, the two scripts, and how a change in one process wakes those who wait in others. Not here: what is kept (`task_store`)
and why it changes (`tasks`).

A record is a hash of its revision and its JSON, and expires by itself. Changes are published; whoever waits also looks by itself now and
then, so that a message that was lost costs seconds and nothing else.

Spec: ours
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable
from typing import Any, Final, TypeVar

import msgspec

from outrider.cache.valkey import redis_url
from outrider.errors import ConfigError, StoreError
from outrider.server.task_store import TaskRecord, TooManyTasks

__all__ = ["ValkeyTaskStore"]

_T = TypeVar("_T")
_PATIENCE_S: Final = 5.0
_RETRY_S: Final = 1.0
_CREATE: Final = """
if redis.call('EXISTS', KEYS[1]) == 1 then return -1 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 2, 3 do
  redis.call('ZREMRANGEBYSCORE', KEYS[i], '-inf', now)
  if redis.call('ZCARD', KEYS[i]) >= tonumber(ARGV[2 + i]) then return 0 end
end
redis.call('HSET', KEYS[1], 'revision', 0, 'record', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
for i = 2, 3 do
  redis.call('ZADD', KEYS[i], now + ARGV[2], ARGV[3])
  if redis.call('PTTL', KEYS[i]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[i], ARGV[2]) end
end
return 1
"""
_REPLACE: Final = """
if redis.call('HGET', KEYS[1], 'revision') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'revision', ARGV[1] + 1, 'record', ARGV[2])
redis.call('PUBLISH', ARGV[3], ARGV[4])
return 1
"""

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(TaskRecord).decode


class ValkeyTaskStore:
    """A `TaskStore` that processes share. Usable from one event loop.

    Args:
        url: `valkey://`, `valkeys://` (TLS), `redis://`, `rediss://` or `unix://`, with user, password and database as usual.
        prefix: what all keys begin with; servers that offer different things need different ones.
        max_tasks: how many are kept in all, finished ones included.
        max_per_owner: how many are kept for one owner.
        timeout_s: how long one operation may take, in seconds.

    Raises:
        ConfigError: the URL cannot be used, or the redis package is not installed.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "outrider-tasks",
        max_tasks: int = 100_000,
        max_per_owner: int = 1_000,
        timeout_s: float = 2.0,
    ) -> None:
        try:
            import redis.asyncio as redis
            from redis.exceptions import RedisError
        except ImportError as error:
            raise ConfigError(
                "a Valkey store needs the redis package", hint="pip install 'outrider-mcp[valkey]'"
            ) from error
        url = redis_url(url)
        try:
            self._client: Any = redis.Redis.from_url(url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s)
            self._listener: Any = redis.Redis.from_url(url, socket_connect_timeout=timeout_s)
        except ValueError as error:
            raise ConfigError("not a usable Valkey URL", hint="for example valkey://host:6379/0") from error
        self._failures = (RedisError, OSError, TimeoutError)
        self._create = self._client.register_script(_CREATE)
        self._replace = self._client.register_script(_REPLACE)
        # One hash tag: a cluster keeps all keys in one slot, and scripts may touch several.
        self._prefix = f"{{{prefix}}}"
        self._channel = f"{self._prefix}:changed"
        self._limits = (max_per_owner, max_tasks)
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._hearing: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Let go of the connections."""
        if self._hearing is not None:
            self._hearing.cancel()
            await asyncio.wait((self._hearing,))
        await self._client.aclose()
        await self._listener.aclose()

    async def _do(self, operation: Awaitable[_T]) -> _T:
        try:
            return await operation
        except self._failures as error:
            # The error's own text may quote the URL.
            raise StoreError(f"the store of tasks cannot be reached ({type(error).__name__})") from error

    def _key(self, task_id: str) -> str:
        return f"{self._prefix}:task:{task_id}"

    async def create(self, record: TaskRecord, *, keep_s: float) -> None:
        """See `TaskStore.create`."""
        task_id, owner = record.task.task_id, record.owner
        digest = "nobody" if owner is None else hashlib.sha256(owner.encode()).hexdigest()
        keys = [self._key(task_id), f"{self._prefix}:owner:{digest}", f"{self._prefix}:all"]
        arguments: list[Any] = [_encode(record), max(1, int(keep_s * 1000)), task_id, *self._limits]
        kept = await self._do(self._create(keys=keys, args=arguments))
        if kept == 0:
            raise TooManyTasks
        if kept < 0:
            raise ValueError("a task identifier is used once")

    async def read(self, task_id: str) -> tuple[TaskRecord, int] | None:
        """See `TaskStore.read`."""
        revision, record = await self._do(self._client.hmget(self._key(task_id), "revision", "record"))
        if revision is None or record is None:
            return None
        return _decode(record), int(revision)

    async def replace(self, record: TaskRecord, revision: int) -> bool:
        """See `TaskStore.replace`."""
        task_id = record.task.task_id
        arguments: list[Any] = [revision, _encode(record), self._channel, task_id]
        return bool(await self._do(self._replace(keys=[self._key(task_id)], args=arguments)))

    async def changed(self, task_id: str, revision: int) -> None:
        """See `TaskStore.changed`."""
        if self._hearing is None:
            self._hearing = asyncio.get_running_loop().create_task(self._hear(), name="outrider task changes")
        event = asyncio.Event()
        self._waiting.setdefault(task_id, set()).add(event)
        try:
            # Only now: what changes from here on is heard.
            found = await self._do(self._client.hget(self._key(task_id), "revision"))
            if found is not None and int(found) == revision:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_PATIENCE_S):
                        await event.wait()
        finally:
            waiting = self._waiting[task_id]
            waiting.discard(event)
            if not waiting:
                del self._waiting[task_id]

    async def _hear(self) -> None:
        """Wake those who wait, for as long as the store is open."""
        while True:
            try:
                async with self._listener.pubsub() as subscription:
                    await subscription.subscribe(self._channel)
                    async for message in subscription.listen():
                        if message["type"] == "message":
                            self._wake(message["data"].decode())
                        else:
                            # Subscribed, perhaps after a pause in which anything may have changed.
                            for task_id in list(self._waiting):
                                self._wake(task_id)
            except self._failures:
                await asyncio.sleep(_RETRY_S)

    def _wake(self, task_id: str) -> None:
        for event in self._waiting.get(task_id, ()):
            event.set()
