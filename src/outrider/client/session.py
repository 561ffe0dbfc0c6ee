"""An opened server: requests and notifications of one era over one channel.

Decided here: what a modern request carries, how its answer is unwrapped, where notifications go, how a change subscription lives. The
legacy counterpart with the same surface is `legacy_session`. Not here: how the era became known (`opening`), lists and retries (`client`).

Spec: 2026-07-28 basic/index#_meta, basic/patterns/subscriptions
"""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from functools import cached_property
from typing import Any, Final, Protocol

import msgspec
from msgspec import Raw, Struct

from outrider.client.channel import Channel, Incoming, Outgoing, Reply, call_back
from outrider.client.target import ClientOptions
from outrider.errors import ConnectionLost, LocalProtocolError, OutriderError, peer_error
from outrider.protocol import tasks
from outrider.protocol.headers import standard_headers
from outrider.protocol.jsonrpc import ErrorReply, Notification, RequestId, decode_value
from outrider.protocol.meta import PROGRESS_TOKEN, SUBSCRIPTION_ID, render_request_meta
from outrider.protocol.model import LIST_KINDS, ServerDescription
from outrider.protocol.versions import Era
from outrider.tracing import UNTRACED, Operation, outside

__all__ = ["Change", "ModernSession", "Progress", "ProgressCallback", "Session", "Subscription", "Wanted"]

_LISTEN: Final = "subscriptions/listen"
_RESOURCE_UPDATED: Final = "notifications/resources/updated"
_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_CANCELLED: Final = "notifications/cancelled"
_CHANGE_OF: Final = {kind.changed: kind.member for kind in LIST_KINDS if kind.member != "resourceTemplates"}
_MAX_PENDING_CHANGES: Final = 10_000


class Progress(Struct, frozen=True):
    """How far a request has come: `progress` out of `total` (None: unknown), and a message for people, or ""."""

    progress: float
    total: float | None
    message: str


Trace = Callable[[str, Mapping[str, Any]], Operation]
"""From a request's method and params to what traces it."""

ProgressCallback = Callable[[Progress], None]
"""Called for every progress notification of one request; must not block."""


class Change(Struct, frozen=True):
    """Something changed at the server.

    Attributes:
        what: "tools", "prompts", "resources" for a list, "resource" for the contents of one, "task" for a task.
        uri: the resource's URI, or the task's identifier, or "".
    """

    what: str
    uri: str = ""


class Wanted(Struct, frozen=True):
    """Which changes to listen for: lists by name, resources by URI, and tasks by identifier.

    Spec: 2026-07-28 basic/patterns/subscriptions#notification-filter
    """

    tools: bool = False
    prompts: bool = False
    resources: bool = False
    uris: tuple[str, ...] = ()
    task_ids: tuple[str, ...] = ()

    def as_filter(self) -> dict[str, Any]:
        """The filter as it goes on the wire."""
        asked: dict[str, Any] = {}
        for kind, wanted in zip(LIST_KINDS, (self.tools, self.prompts, self.resources), strict=False):
            if wanted:
                asked[kind.listen] = True
        if self.uris:
            asked["resourceSubscriptions"] = list(self.uris)
        if self.task_ids:
            asked["taskIds"] = list(self.task_ids)
        return asked

    @classmethod
    def from_filter(cls, granted: object) -> Wanted:
        """What an acknowledgment grants; anything unreadable in it is not granted."""
        if not isinstance(granted, dict):
            return cls()
        tools, prompts, resources = (granted.get(kind.listen) is True for kind in LIST_KINDS[:3])
        uris, task_ids = (
            tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()
            for names in (granted.get("resourceSubscriptions"), granted.get("taskIds"))
        )
        return cls(tools, prompts, resources, uris, task_ids)


class Subscription:
    """A running subscription: iterate over it to receive changes; leave its context to end it.

    Changes that arrive faster than they are taken are merged, so a storm costs neither memory nor repeated work.

    Attributes:
        granted: what the server agreed to send, which may be less than what was asked.
        graceful: after the end: whether the server closed it in good order.
    """

    def __init__(self, close: Callable[[], object]) -> None:
        self.granted = Wanted()
        self.graceful = False
        self._close = close
        self._pending: OrderedDict[Change, None] = OrderedDict()
        self._wake = asyncio.Event()
        self._ended = False
        self._failure: OutriderError | None = None

    def feed(self, change: Change) -> None:
        """A change arrived."""
        if len(self._pending) < _MAX_PENDING_CHANGES:
            self._pending[change] = None
            self._wake.set()

    def end(self, failure: OutriderError | None = None, *, graceful: bool = False) -> None:
        """The stream is over, by the server's decision or with `failure`."""
        if not self._ended:
            self._ended = True
            self._failure = failure
            self.graceful = graceful
            self._wake.set()

    def __aiter__(self) -> AsyncIterator[Change]:
        """Changes until the stream ends; see `__anext__`."""
        return self

    async def __anext__(self) -> Change:
        """The next change.

        Raises:
            StopAsyncIteration: the server ended the stream in good order, or the subscription was closed here.
            TransportError: the stream broke; subscribe again, and refetch what may have changed in between.
        """
        while not self._pending:
            if self._ended:
                if self._failure is not None:
                    raise self._failure
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        change, _ = self._pending.popitem(last=False)
        return change

    async def __aenter__(self) -> Subscription:
        """The subscription itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the subscription."""
        self.close()

    def close(self) -> None:
        """End the subscription; the server is told in the way of the transport. Any number of times."""
        self.end()
        self._close()


class Session(Protocol):
    """What both eras offer to `Client`.

    Attributes:
        era: which one it is.
        version: the protocol version in use.
        description: what the server said of itself, or None when the era was remembered and it has not been asked.
        channel: what carries it.
        session_id: of a legacy HTTP session, else "".
        on_change: called for every change the server announces, subscribed or not; must not block.
        trace: called for each request that the session makes of its own accord, to subscribe; gives what traces it.
        takes_tasks: whether tool calls declare that they may be answered with a task.
    """

    era: Era
    version: str
    session_id: str
    description: ServerDescription | None
    channel: Channel
    on_change: Callable[[Change], None]
    on_log: Callable[[Mapping[str, Any]], None]
    trace: Trace

    @property
    def takes_tasks(self) -> bool:
        """See above."""
        ...

    async def call(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        headers: Mapping[str, str] | None = None,
        meta: Mapping[str, Any] | None = None,
        on_progress: ProgressCallback | None = None,
        on_sent: Callable[[RequestId], None] | None = None,
    ) -> Raw:
        """Send a request, return its result's JSON bytes; `on_sent` is told the id it goes out under.

        Raises:
            PeerError: the server answered an error.
            TransportError, RemoteProtocolError: see `Channel.request`.
        """
        ...

    async def subscribe(self, wanted: Wanted) -> Subscription:
        """Ask for changes; returns once the server has agreed to what it will send."""
        ...

    async def close(self) -> None:
        """Close session and channel; from any task, any number of times."""
        ...


class ProgressRouter:
    """Finds the request that a progress notification belongs to: its token is the request's id."""

    def __init__(self) -> None:
        self._callbacks: dict[RequestId, ProgressCallback] = {}

    def register(self, request_id: RequestId, callback: ProgressCallback) -> None:
        """From now on, progress of `request_id` goes to `callback`."""
        self._callbacks[request_id] = callback

    def forget(self, request_id: RequestId) -> None:
        """The request is over."""
        self._callbacks.pop(request_id, None)

    def deliver(self, params: Mapping[str, Any]) -> None:
        """Hand a notification's params to the request's callback; malformed or unknown ones are ignored."""
        token, progress, total, message = (
            params.get(name) for name in (PROGRESS_TOKEN, "progress", "total", "message")
        )
        callback = self._callbacks.get(token) if isinstance(token, int | str) else None
        if callback is not None and isinstance(progress, int | float):
            known_total = total if isinstance(total, int | float) else None
            call_back(callback, Progress(progress, known_total, message if isinstance(message, str) else ""))


def unwrap(reply: Reply) -> Raw:
    """The result of a reply.

    Raises:
        PeerError: the reply is an error.
    """
    message = reply.message
    if isinstance(message, ErrorReply):
        error = peer_error(message.code, message.message, message.decoded_data())
        error.status = reply.status
        raise error
    return message.result


def read_params(message: Notification) -> dict[str, Any]:
    """A notification's params as a dict; {} for anything that cannot be read as one."""
    params = decode_value(message.params)
    return params if isinstance(params, dict) else {}


def change_of(method: str, params: Mapping[str, Any]) -> Change | None:
    """The change that a notification announces, or None when it announces none."""
    if method == _RESOURCE_UPDATED:
        uri = params.get("uri")
        return Change("resource", uri) if isinstance(uri, str) else None
    if method == tasks.NOTIFICATION:
        task_id = params.get("taskId")
        return Change("task", task_id) if isinstance(task_id, str) else None
    what = _CHANGE_OF.get(method)
    return Change(what) if what is not None else None


class ModernSession:
    """See `Session`."""

    era = Era.MODERN
    session_id = ""

    def __init__(
        self,
        channel: Channel,
        options: ClientOptions,
        version: str,
        description: ServerDescription | None,
        ids: itertools.count[int],
    ) -> None:
        self.channel = channel
        self.version = version
        self.description = description
        self.on_change: Callable[[Change], None] = lambda _: None
        self.on_log: Callable[[Mapping[str, Any]], None] = lambda _: None
        self.trace: Trace = lambda *_: UNTRACED
        self._options = options
        self._ids = ids
        self._progress = ProgressRouter()
        self._subscriptions: dict[RequestId, _OpenSubscription] = {}
        # Most requests carry the same _meta: it is encoded once.
        self._plain_meta = Raw(msgspec.json.encode(self._meta(None)))
        channel.on_incoming = self._take

    @cached_property
    def _plain_task_meta(self) -> Raw:
        return Raw(msgspec.json.encode(self._meta(None, takes_tasks=True)))

    @property
    def takes_tasks(self) -> bool:
        """See `Session.takes_tasks`: the user allows it, and the server has announced the extension."""
        announced = self.description is not None and tasks.declares(self.description.capabilities)
        return self._options.tasks and announced

    def _meta(self, extra: Mapping[str, Any] | None, *, takes_tasks: bool = False) -> dict[str, Any]:
        capabilities = self._options.declared_capabilities()
        if takes_tasks:
            extensions = capabilities.get("extensions")
            known = extensions if isinstance(extensions, Mapping) else {}
            capabilities = {**capabilities, "extensions": {**known, tasks.EXTENSION: {}}}
        return render_request_meta(self.version, self._options.client_info, capabilities, extra=extra)

    def _outgoing(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        headers: Mapping[str, str] | None = None,
        meta: Mapping[str, Any] | None = None,
        wants_progress: bool = False,
    ) -> Outgoing:
        request_id = next(self._ids)
        if wants_progress:
            meta = {**(meta or {}), PROGRESS_TOKEN: request_id}
        # Only the requests that the extension is about declare it, so that what is remembered of the others does not depend on it.
        takes_tasks = (
            method in tasks.METHODS
            or (method in tasks.TASK_METHODS and self.takes_tasks)
            or (method == _LISTEN and "taskIds" in params["notifications"])
        )
        plain = self._plain_task_meta if takes_tasks else self._plain_meta
        full = {**params, "_meta": self._meta(meta, takes_tasks=takes_tasks) if meta else plain}
        if self.channel.stdio:
            return Outgoing(request_id, method, full)
        standard = standard_headers(method, params, self.version)
        return Outgoing(request_id, method, full, {**standard, **headers} if headers else standard)

    async def call(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        headers: Mapping[str, str] | None = None,
        meta: Mapping[str, Any] | None = None,
        on_progress: ProgressCallback | None = None,
        on_sent: Callable[[RequestId], None] | None = None,
    ) -> Raw:
        """See `Session.call`."""
        outgoing = self._outgoing(method, params, headers=headers, meta=meta, wants_progress=on_progress is not None)
        if on_sent is not None:
            on_sent(outgoing.id)
        if on_progress is None:
            return unwrap(await self.channel.request(outgoing))
        self._progress.register(outgoing.id, on_progress)
        try:
            return unwrap(await self.channel.request(outgoing))
        finally:
            self._progress.forget(outgoing.id)

    async def subscribe(self, wanted: Wanted) -> Subscription:
        """See `Session.subscribe`. Spec: 2026-07-28 basic/patterns/subscriptions#opening-a-stream"""
        asked = wanted.as_filter()
        if not asked:
            raise LocalProtocolError("a subscription must ask for at least one kind of change")
        params = {"notifications": asked}
        # It is over for the trace when the server has agreed: the stream itself may last for days.
        with self.trace(_LISTEN, params) as operation:
            outgoing = self._outgoing(_LISTEN, params, meta=operation.meta())
            operation.sent(outgoing.id)
            opened = _OpenSubscription(self, outgoing)
            self._subscriptions[outgoing.id] = opened
            try:
                await opened.acknowledged()
            except BaseException:
                opened.subscription.close()
                raise
            return opened.subscription

    def forget_subscription(self, request_id: RequestId) -> None:
        """A subscription is over."""
        self._subscriptions.pop(request_id, None)

    def _take(self, message: Incoming) -> None:
        if not isinstance(message, Notification):
            if len(self.channel.warnings) < 20:
                self.channel.warnings.append(
                    f"a request of the server's ({message.method[:60]}) was ignored: modern servers send none"
                )
            return
        params = read_params(message)
        if message.method == "notifications/progress":
            self._progress.deliver(params)
            return
        if message.method == "notifications/message":
            self.on_log(params)
            return
        meta = params.get("_meta")
        subscription_id = meta.get(SUBSCRIPTION_ID) if isinstance(meta, dict) else None
        if message.method == _CANCELLED:
            subscription_id = params.get("requestId")
        opened = self._subscriptions.get(subscription_id) if isinstance(subscription_id, int | str) else None
        if opened is not None:
            opened.take(message.method, params)
        # A list change counts even when it comes unasked: it costs one list, and missing it costs the truth.
        change = change_of(message.method, params)
        if change is not None and change.what != "task":
            self.on_change(change)

    async def close(self) -> None:
        """See `Session.close`."""
        for opened in list(self._subscriptions.values()):
            opened.subscription.close()
        await self.channel.close()


class _OpenSubscription:
    """The listen request behind a `Subscription`: a request that stays unanswered as long as the stream lives."""

    def __init__(self, session: ModernSession, outgoing: Outgoing) -> None:
        self._session = session
        self._id = outgoing.id
        self._acknowledged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with outside():
            self._task = asyncio.create_task(self._run(session.channel, outgoing), name="outrider listen")
        self.subscription = Subscription(self._task.cancel)

    async def acknowledged(self) -> None:
        """Wait until the server has agreed, or raise why it has not."""
        await asyncio.wait([self._acknowledged, self._task], return_when=asyncio.FIRST_COMPLETED)
        if not self._acknowledged.done():
            await self._task
            raise ConnectionLost("the server ended the subscription before acknowledging it")

    async def _run(self, channel: Channel, outgoing: Outgoing) -> None:
        try:
            unwrap(await channel.request(outgoing))
            self.subscription.end(graceful=True)
        except OutriderError as error:
            if not self._acknowledged.done():
                raise
            self.subscription.end(error)
        finally:
            self._session.forget_subscription(self._id)

    def take(self, method: str, params: Mapping[str, Any]) -> None:
        """A notification of this subscription."""
        if method == _ACKNOWLEDGED:
            self.subscription.granted = Wanted.from_filter(params.get("notifications"))
            if not self._acknowledged.done():
                self._acknowledged.set_result(None)
        elif method == _CANCELLED:
            self.subscription.end(ConnectionLost("the server tore the subscription down"))
            self._task.cancel()
        elif (change := change_of(method, params)) is not None:
            self.subscription.feed(change)
