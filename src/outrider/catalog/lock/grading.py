"""A server against a lock: every difference, the gravest first. Pure."""

from __future__ import annotations

from collections.abc import Callable

from outrider.catalog.lock.document import Lock
from outrider.catalog.lock.drift import Drift, Kind, Severity, compare_servers, in_order
from outrider.catalog.lock.imitation import find_imitations
from outrider.catalog.lock.pins import SERVER, ServerPins

__all__ = ["grade"]


def grade(
    lock: Lock, key: str, after: ServerPins, *, offers: Callable[[str], bool] = lambda name: True
) -> tuple[Drift, ...]:
    """How a server differs from what the lock says of it; () if it does not.

    Args:
        lock: what was approved.
        key: of the server.
        after: what it offers now.
        offers: which tools count; locked ones that the configuration leaves out are not missed.
    """
    before = lock.servers.get(key)
    others = {other: pins for other, pins in lock.servers.items() if other != key}
    if before is None:
        tools = len(after.items.get("tool", {}))
        message = f"is not in the lock file; it offers {tools:,} {'tool' if tools == 1 else 'tools'}"
        drifts = [Drift(key, Kind.NEW, Severity.UNREVIEWED, SERVER, "", "", message)]
    else:
        before = before.only(offers)
        drifts = compare_servers(key, before, after)
    return in_order([*drifts, *find_imitations(key, before, after, others)])
