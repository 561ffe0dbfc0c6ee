"""Who listens for changes, and what each listener has yet to hear.

Decided here: which change reaches which listener, coalescing, the bound on listeners, and the orderly end. Not here: writing to a
connection: a transport gives every listener a `wake` that comes for the messages when it can write.

A listener keeps a set of what changed and not a queue, so that a reader who has stopped reading costs what one message costs.

Spec: 2026-07-28 basic/patterns/subscriptions.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from outrider.protocol.jsonrpc import encode_notification
from outrider.protocol.meta import SUBSCRIPTION_ID
from outrider.protocol.model import PROMPTS, RESOURCES, TOOLS, ListKind
from outrider.protocol.tasks import NOTIFICATION as TASK_CHANGED
from outrider.server.dispatch import ListenFilter

__all__ = ["Listener", "Subscriptions", "closing_result"]

_UPDATED: Final = "notifications/resources/updated"
_encode: Final = msgspec.json.Encoder().encode


class Listener:
    """One stream of change notifications.

    Attributes:
        accepted: what it hears of; of resources, those in `uris`.
        is_ending: set when the server ends the stream.
        watcher: what brings news of tasks, or None; it ends with the stream.
    """

    __slots__ = (
        "_loop",
        "_meta",
        "_pending_kinds",
        "_pending_tasks",
        "_pending_uris",
        "_thread",
        "_wake",
        "accepted",
        "is_ending",
        "uris",
        "watcher",
    )

    def __init__(self, accepted: ListenFilter, *, wake: Callable[[], None], subscription_id: bytes | None) -> None:
        """Make a listener of the running loop.

        Args:
            accepted: the filter that was acknowledged.
            wake: called on the loop when there is something to `take`, or the stream is to end; at most once until then.
            subscription_id: the id of the listen request as JSON, or None for a legacy session.
        """
        self.accepted = accepted
        self.uris = set(accepted.resource_subscriptions or ())
        self.is_ending = False
        self._wake = wake
        self._meta = None if subscription_id is None else {SUBSCRIPTION_ID: msgspec.Raw(subscription_id)}
        self._pending_kinds: dict[str, None] = {}
        self._pending_uris: dict[str, None] = {}
        self._pending_tasks: dict[str, Mapping[str, Any]] = {}
        self.watcher: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def _run(self, function: Callable[..., None], *args: Any) -> None:
        if threading.get_ident() == self._thread:
            function(*args)
        else:
            self._loop.call_soon_threadsafe(function, *args)

    def note_list(self, notification: str) -> None:
        """A list changed. From any thread."""
        self._run(self._note, self._pending_kinds, notification)

    def note_resource(self, uri: str) -> None:
        """A resource changed. From any thread."""
        self._run(self._note, self._pending_uris, uri)

    def note_task(self, task_id: str, task: Mapping[str, Any]) -> None:
        """A task changed; `task` is what it is now, in wire names. On the loop."""
        self._note(self._pending_tasks, task_id, task)

    def _note(self, pending: dict[str, Any], key: str, value: Any = None) -> None:
        idle = not self.has_due
        pending[key] = value
        if idle:
            self._loop.call_soon(self._wake)

    def end(self) -> None:
        """End the stream in an orderly way. From any thread."""
        self._run(self._end)

    def _end(self) -> None:
        if not self.is_ending:
            self.is_ending = True
            self._loop.call_soon(self._wake)

    @property
    def has_due(self) -> bool:
        """Whether there is something to take."""
        return bool(self._pending_kinds or self._pending_uris or self._pending_tasks)

    def take(self) -> list[bytes]:
        """The notifications that are due, which are then no longer due."""
        if not self.has_due:
            return []
        kinds, self._pending_kinds = self._pending_kinds, {}
        uris, self._pending_uris = self._pending_uris, {}
        tasks, self._pending_tasks = self._pending_tasks, {}
        meta: dict[str, Any] = {} if self._meta is None else {"_meta": self._meta}
        found = [encode_notification(kind, meta or None) for kind in kinds]
        found += [encode_notification(_UPDATED, {**meta, "uri": uri}) for uri in uris]
        found += [encode_notification(TASK_CHANGED, {**meta, **task}) for task in tasks.values()]
        return found

    def acknowledgement(self) -> bytes:
        """The first message of a modern stream. Spec: basic/patterns/subscriptions#acknowledgment (MUST)"""
        agreed: dict[str, Any] = {kind.listen: True for kind in (TOOLS, PROMPTS, RESOURCES) if self.hears(kind)}
        if self.accepted.resource_subscriptions is not None:
            agreed["resourceSubscriptions"] = sorted(self.uris)
        if self.accepted.task_ids is not None:
            agreed["taskIds"] = self.accepted.task_ids
        return encode_notification(
            "notifications/subscriptions/acknowledged", {"_meta": self._meta or {}, "notifications": agreed}
        )

    def hears(self, kind: ListKind) -> bool:
        """Whether a change of this list is for this listener; templates count as resources."""
        accepted = self.accepted
        if kind.listen == TOOLS.listen:
            return accepted.tools_list_changed
        return accepted.prompts_list_changed if kind.listen == PROMPTS.listen else accepted.resources_list_changed


def closing_result(subscription_id: bytes, identity: Mapping[str, Any]) -> bytes:
    """The result that ends a stream in an orderly way. Spec: basic/patterns/subscriptions#graceful-closure (SHOULD)"""
    meta = {**identity, SUBSCRIPTION_ID: msgspec.Raw(subscription_id)}
    return _encode({"resultType": "complete", "_meta": meta})


class Subscriptions:
    """All listeners of one server, on whatever loops they live."""

    def __init__(self, max_listeners: int) -> None:
        self._max_listeners = max_listeners
        self._listeners: dict[Listener, None] = {}
        self._by_uri: dict[str, dict[Listener, None]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._listeners)

    def add(self, listener: Listener) -> bool:
        """Let it hear from now on; False when there are too many already."""
        with self._lock:
            if len(self._listeners) >= self._max_listeners:
                return False
            self._listeners[listener] = None
            for uri in listener.uris:
                self._by_uri.setdefault(uri, {})[listener] = None
        return True

    def remove(self, listener: Listener) -> None:
        """Forget it."""
        if listener.watcher is not None:
            listener.watcher.cancel()
        with self._lock:
            self._listeners.pop(listener, None)
            for uri in listener.uris:
                self._forget(listener, uri)

    def _forget(self, listener: Listener, uri: str) -> None:
        heard = self._by_uri.get(uri)
        if heard is not None:
            heard.pop(listener, None)
            if not heard:
                del self._by_uri[uri]

    def subscribe(self, listener: Listener, uri: str) -> None:
        """Add a resource to a legacy session's listener."""
        with self._lock:
            listener.uris.add(uri)
            if listener in self._listeners:
                self._by_uri.setdefault(uri, {})[listener] = None

    def unsubscribe(self, listener: Listener, uri: str) -> None:
        """Take a resource away from a legacy session's listener."""
        with self._lock:
            listener.uris.discard(uri)
            self._forget(listener, uri)

    def list_changed(self, kind: ListKind) -> None:
        """Tell those who listen for this list. From any thread."""
        for listener in self._snapshot(self._listeners):
            if listener.hears(kind):
                listener.note_list(kind.changed)

    def resource_updated(self, uri: str) -> None:
        """Tell those who watch this resource. From any thread."""
        for listener in self._snapshot(self._by_uri.get(uri, {})):
            listener.note_resource(uri)

    def end_all(self) -> None:
        """End every stream in an orderly way. From any thread."""
        for listener in self._snapshot(self._listeners):
            listener.end()

    def _snapshot(self, listeners: Iterable[Listener]) -> list[Listener]:
        with self._lock:
            return list(listeners)
