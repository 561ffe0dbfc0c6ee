"""The legacy counterpart of `session`: sessions, subscriptions by request, and answers to the server's own requests.

Decided here: how a handshake is carried out on an open channel, how an expired HTTP session is renewed, and what is retried then. Not here:
whether a server is legacy (`opening`), what the handshake's answers mean (`protocol.legacy`).

Spec: 2025-11-25 basic/lifecycle, basic/transports
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from msgspec import Raw

from outrider.client.channel import Channel, Incoming, Outgoing, Reply, SessionChannel
from outrider.client.inputs import UnfitRequest
from outrider.client.session import (
    Change,
    ProgressCallback,
    ProgressRouter,
    Subscription,
    Trace,
    Wanted,
    change_of,
    read_params,
    unwrap,
)
from outrider.client.spans import answer_span, with_trace
from outrider.client.target import ClientOptions
from outrider.errors import (
    INTERNAL_ERROR,
    HttpRejected,
    OutriderError,
    PeerError,
    RemoteProtocolError,
    TransportError,
    Unavailable,
)
from outrider.protocol.headers import PROTOCOL_VERSION, SESSION_ID
from outrider.protocol.jsonrpc import (
    Request,
    RequestId,
    decode_value,
    encode_error,
    encode_notification,
    encode_result,
)
from outrider.protocol.legacy import (
    INITIALIZE,
    INITIALIZED,
    LEGACY_RULES,
    answer_server_request,
    initialize_params,
    is_session_over,
)
from outrider.protocol.meta import PROGRESS_TOKEN
from outrider.protocol.model import ServerDescription, read_initialize
from outrider.protocol.versions import Era
from outrider.tracing import UNTRACED, outside

__all__ = ["LegacySession"]

_log = logging.getLogger("outrider.client")

_REFUSED_UNEXECUTED: Final = frozenset({400, 404, 410})
"""Statuses with which a server refuses a session before it looks at the request."""


class LegacySession:
    """See `Session`. `initialize_request` and `confirm` carry out the handshake; nothing else may be sent before.

    `label` is the target as it may be shown to whoever answers the server's requests.
    """

    era = Era.LEGACY
    takes_tasks = False

    def __init__(self, channel: Channel, options: ClientOptions, ids: itertools.count[int], label: str) -> None:
        self.channel = channel
        self.version = ""
        self.description: ServerDescription | None = None
        self.on_change: Callable[[Change], None] = lambda _: None
        self.on_log: Callable[[Mapping[str, Any]], None] = lambda _: None
        self.trace: Trace = lambda *_: UNTRACED
        self._options = options
        self._ids = ids
        self._label = label
        self._progress = ProgressRouter()
        self._subscriptions: set[Subscription] = set()
        self.session_id = ""
        self._headers: dict[str, str] = {}
        self._renewing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        channel.on_incoming = self._take

    def initialize_request(self, version: str) -> Outgoing:
        """The `initialize` request that proposes `version`."""
        info = self._options.client_info or {"name": "outrider", "version": "0"}
        return Outgoing(
            next(self._ids),
            INITIALIZE,
            initialize_params(version, info, self._options.declared_capabilities()),
            cancellable=False,
        )

    async def confirm(self, version: str, description: ServerDescription, reply: Reply) -> None:
        """Finish the handshake: adopt the negotiated version and session, and say `notifications/initialized`.

        Raises:
            TransportError: it could not be sent.
        """
        self.version, self.description = version, description
        self.session_id = reply.headers.get(SESSION_ID, "") if not self.channel.stdio else ""
        rules = LEGACY_RULES[version]
        self.channel.batches = rules.batches
        self._headers = {PROTOCOL_VERSION: version} if rules.version_header else {}
        if self.session_id:
            self._headers[SESSION_ID] = self.session_id
        if isinstance(self.channel, SessionChannel):
            self.channel.resumable = rules.polling
        try:
            await self.channel.send(encode_notification(INITIALIZED), self._headers)
        except HttpRejected as error:
            # Some refuse what they have no answer for, and serve all the same. One that does not says so to the next request.
            self.channel.warnings.append(f"{INITIALIZED} was refused: {error}")
        # The server's own messages need a stream to come on: its announcements, and what it may ask of us.
        if isinstance(self.channel, SessionChannel) and (
            self._announces_changes() or self._options.inputs.capabilities()
        ):
            self._spawn(self.channel.listen_get, self._headers)

    def _announces_changes(self) -> bool:
        capabilities = self.description.capabilities if self.description else {}
        return any(isinstance(c, dict) and (c.get("listChanged") or c.get("subscribe")) for c in capabilities.values())

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
        """See `Session.call`. A session that the server no longer knows is renewed once, invisibly.

        The request is sent again only when it is safe: any request but `tools/call`, and that one when the server refused the session
        before it looked at the request.
        """
        session_id = self.session_id
        try:
            return unwrap(await self._request(method, params, meta, on_progress, on_sent))
        except (HttpRejected, Unavailable, PeerError) as error:
            status = error.status or 0
            text = error.excerpt if isinstance(error, HttpRejected) else str(error)
            if not is_session_over(status, text, had_session=bool(session_id)):
                raise
            await self._renew(session_id)
            if method == "tools/call" and status not in _REFUSED_UNEXECUTED:
                raise
            return unwrap(await self._request(method, params, meta, on_progress, on_sent))

    async def _request(
        self,
        method: str,
        params: Mapping[str, Any],
        meta: Mapping[str, Any] | None,
        on_progress: ProgressCallback | None,
        on_sent: Callable[[RequestId], None] | None,
    ) -> Reply:
        request_id = next(self._ids)
        if on_sent is not None:
            on_sent(request_id)
        if on_progress is not None:
            meta = {**(meta or {}), PROGRESS_TOKEN: request_id}
            self._progress.register(request_id, on_progress)
        full = {**params, "_meta": meta} if meta else params
        try:
            return await self.channel.request(Outgoing(request_id, method, full, self._headers))
        except asyncio.CancelledError:
            if not self.channel.stdio:
                # Over legacy HTTP, closing the stream does not cancel. Spec: 2025-11-25 basic/transports#sending-messages-to-the-server
                cancelled = encode_notification("notifications/cancelled", {"requestId": request_id})
                self._spawn(self.channel.send, cancelled, self._headers)
            raise
        finally:
            if on_progress is not None:
                self._progress.forget(request_id)

    async def _renew(self, expired: str) -> None:
        """Open a new session in place of `expired`, unless another task already has.

        Spec: 2025-11-25 basic/transports#session-management
        """
        async with self._renewing:
            if self.session_id != expired:
                return
            self.session_id, self._headers = "", {}
            outgoing = self.initialize_request(self.version)
            with self.trace(outgoing.method, outgoing.params) as operation:
                reply = await self.channel.request(with_trace(outgoing, operation))
            version, description = read_initialize(unwrap(reply))
            if version not in LEGACY_RULES:
                raise RemoteProtocolError(f"the renewed session has the unknown version {version[:40]!r}")
            await self.confirm(version, description, reply)

    async def subscribe(self, wanted: Wanted) -> Subscription:
        """See `Session.subscribe`: resources by `resources/subscribe`; list changes come without asking where the server announces them."""
        subscription = Subscription(lambda: self._unsubscribe(subscription))
        capabilities = self.description.capabilities if self.description else {}

        def has(capability: str, flag: str) -> bool:
            settings = capabilities.get(capability)
            return isinstance(settings, dict) and settings.get(flag) is True

        uris = tuple(wanted.uris) if has("resources", "subscribe") else ()
        subscription.granted = Wanted(
            wanted.tools and has("tools", "listChanged"),
            wanted.prompts and has("prompts", "listChanged"),
            wanted.resources and has("resources", "listChanged"),
            uris,
        )
        # Listening begins before asking: the first update may follow the server's consent at once.
        self._subscriptions.add(subscription)
        try:
            for uri in uris:
                await self._call_traced("resources/subscribe", {"uri": uri})
        except BaseException:
            subscription.close()
            raise
        return subscription

    def _unsubscribe(self, subscription: Subscription) -> None:
        if subscription not in self._subscriptions:
            return
        self._subscriptions.discard(subscription)
        still_wanted = {uri for other in self._subscriptions for uri in other.granted.uris}
        for uri in subscription.granted.uris:
            if uri not in still_wanted:
                self._spawn(self._call_quietly, "resources/unsubscribe", {"uri": uri})

    async def _call_traced(self, method: str, params: Mapping[str, Any]) -> None:
        with self.trace(method, params) as operation:
            await self.call(method, params, meta=operation.meta(), on_sent=operation.sent)

    async def _call_quietly(self, method: str, params: Mapping[str, Any]) -> None:
        try:
            await self._call_traced(method, params)
        except OutriderError:
            pass

    def _take(self, message: Incoming) -> None:
        if isinstance(message, Request):
            self._spawn(self._answer, message)
            return
        params = read_params(message)
        if message.method == "notifications/progress":
            self._progress.deliver(params)
        elif message.method == "notifications/message":
            self.on_log(params)
        elif (change := change_of(message.method, params)) is not None:
            for subscription in self._subscriptions:
                granted = subscription.granted
                if change.uri in granted.uris if change.what == "resource" else getattr(granted, change.what):
                    subscription.feed(change)
            self.on_change(change)

    async def _answer(self, request: Request) -> None:
        """Answer a request of the server's. The two directions number their requests independently."""
        inputs = self._options.inputs
        if not inputs.can_answer(request.method):
            answer = answer_server_request(request.method)
            reply = (
                encode_error(request.id, *answer) if isinstance(answer, tuple) else encode_result(request.id, answer)
            )
        else:
            decoded = decode_value(request.params)
            params = decoded if isinstance(decoded, dict) else {}
            with answer_span(
                request.id, request.method, params, stdio=self.channel.stdio, version=self.version
            ) as span:
                try:
                    reply = encode_result(request.id, await inputs.answer(request.method, params, self._label))
                except UnfitRequest as error:
                    span.refused(error.code, str(error))
                    reply = encode_error(request.id, error.code, str(error))
                except OutriderError as error:
                    span.failed(error)
                    reply = encode_error(request.id, INTERNAL_ERROR, str(error))
                except (
                    Exception
                ) as error:  # A caller's handler; the server waits for an answer, whatever went wrong in it.
                    span.failed(error)
                    _log.exception("the handler for %s failed", request.method)
                    reply = encode_error(request.id, INTERNAL_ERROR, "the client's handler failed")
        await self.channel.send(reply, self._headers)

    def _spawn(self, work: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        async def quietly() -> None:
            try:
                # Called only here: a coroutine made earlier would never be awaited if the session closes before the first step.
                await work(*arguments)
            except TransportError:
                pass

        with outside():
            task = asyncio.create_task(quietly(), name="outrider legacy session")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """See `Session.close`. An HTTP session is ended with DELETE, for at most the shutdown time."""
        for subscription in list(self._subscriptions):
            subscription.end()
        self._subscriptions.clear()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self.session_id and isinstance(self.channel, SessionChannel):
            headers, self.session_id = self._headers, ""
            try:
                async with asyncio.timeout(self._options.shutdown_timeout_s):
                    await self.channel.delete(headers)
            except TimeoutError:
                pass
        await self.channel.close()
