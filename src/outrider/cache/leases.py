"""Single flight across processes: while one asks a server, the others wait for what it brings.

Decided here: who asks, how long the others wait, and what happens when the one who asks dies. Not here: sharing within a process
(`flight`), or what is asked (`errands`).

Spec: ours
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

from outrider.cache.guarded import GuardedStore
from outrider.cache.store import Store, new_token
from outrider.errors import StoreError
from outrider.protocol.freshness import Policy

__all__ = ["exclusively"]

T = TypeVar("T")


async def exclusively(
    guarded: GuardedStore,
    name: str,
    policy: Policy,
    look: Callable[[], Awaitable[T | None]],
    attempt: Callable[[], Awaitable[T]],
) -> T:
    """Runs `attempt` while no other process does, or returns what `look` finds that another has brought meanwhile."""
    store = guarded.store
    if not store.shared or guarded.is_resting:
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
        guarded.failed(error)
    if not held:
        return await attempt()
    renewal = loop.create_task(_renew(store, name, holder, policy.lease_ms))
    try:
        # Another may have finished between our first look and our lease.
        answer = await look()
        return answer if answer is not None else await attempt()
    finally:
        renewal.cancel()
        with contextlib.suppress(StoreError):
            # If the store fails or this is cut short, the lease ends by itself.
            await store.release(name, holder)


async def _renew(store: Store, name: str, holder: str, lease_ms: int) -> None:
    with contextlib.suppress(StoreError):
        while True:
            await asyncio.sleep(lease_ms / 3000)
            await store.lease(name, holder, lease_ms)
