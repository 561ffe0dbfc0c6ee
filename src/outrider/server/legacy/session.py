"""One legacy client: what its handshake agreed on, and its messages in the modern shape.

Decided here: the answer to `initialize`, the methods that only the handshake era has, which errors differ, and requests of the server to
the client. Not here: running functions (`running`), and how messages travel (`stdio`, `http`).

Spec: 2025-11-25 basic/lifecycle, server/utilities/logging, server/resources#subscriptions, basic/utilities/ping.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw

from outrider.errors import INVALID_PARAMS, INVALID_REQUEST, LEGACY_RESOURCE_NOT_FOUND
from outrider.protocol.jsonrpc import (
    ErrorReply,
    Message,
    Notification,
    Request,
    ResultReply,
    decode_message,
    decode_value,
    encode_request,
)
from outrider.protocol.meta import LOG_LEVELS, RequestMeta
from outrider.protocol.model import LIST_KINDS
from outrider.protocol.versions import LEGACY_VERSIONS
from outrider.server.context import RequestRejected
from outrider.server.dispatch import (
    Answer,
    Dispatcher,
    ListenFilter,
    Params,
    Work,
    decode_params,
    error_answer,
    id_bytes,
    reply_bytes,
)
from outrider.server.inputs import ElicitUrl, Question
from outrider.server.registry import Principal
from outrider.server.spans import note_answer, question_span
from outrider.server.subscriptions import Listener
from outrider.tracing import is_recording

if TYPE_CHECKING:
    from outrider.server.app import Server

__all__ = ["LegacySession", "read_batch"]

_log: Final = logging.getLogger("outrider.server")
_encode: Final = msgspec.json.Encoder().encode
_LISTS: Final = frozenset(kind.method for kind in LIST_KINDS)
_DEFAULT_LOG_LEVEL: Final = "info"
_MAX_SUBSCRIPTIONS: Final = 1000
_MAX_PENDING: Final = 100
_MAX_BATCH: Final = 100
_BATCH_VERSION: Final = "2025-03-26"


class _Initialize(msgspec.Struct, rename="camel"):
    protocol_version: str
    capabilities: dict[str, Any] = {}
    client_info: Any = None


_decode_initialize: Final = msgspec.json.Decoder(_Initialize).decode
_decode_batch: Final = msgspec.json.Decoder(list[Raw]).decode


def read_batch(body: bytes, version: str) -> list[Message] | None:
    """The messages of a batch, or None when it is not one, is empty or too long, or the session's version has none.

    Only 2025-03-26 had batches, and a server of that version must take them. Spec: 2025-03-26 basic#batching (MUST receive)
    """
    if version != _BATCH_VERSION:
        return None
    try:
        entries = _decode_batch(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    return [decode_message(bytes(entry)) for entry in entries] if 0 < len(entries) <= _MAX_BATCH else None


class LegacySession:
    """A client of the handshake era.

    Attributes:
        version: the negotiated protocol version, "" before the handshake.
        principal: who opened it.
        listener: hears of changes for this client.
    """

    def __init__(self, server: Server, dispatcher: Dispatcher, *, principal: Principal | None) -> None:
        """Start a session; the first message for it is `initialize`, or on stdio perhaps `ping`."""
        self._server = server
        self._dispatcher = dispatcher
        self.principal = principal
        self.version = ""
        self._capabilities: dict[str, Any] = {}
        self._client_info: Any = None
        self._log_level = _DEFAULT_LOG_LEVEL
        self._pending: dict[int, asyncio.Future[ResultReply | ErrorReply]] = {}
        self._next_id = 1
        self.listener: Listener

    def open_listener(self, wake: Callable[[], None]) -> bool:
        """Hear of changes; `wake` is called when the listener has something. False when the server has too many listeners."""
        everything = ListenFilter(tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True)
        self.listener = Listener(everything, wake=wake, subscription_id=None)
        return self._server.subscriptions.add(self.listener)

    def close(self) -> None:
        """Forget the client; its unanswered questions fail."""
        self._server.subscriptions.remove(self.listener)
        for future in self._pending.values():
            future.cancel()
        self._pending.clear()

    def receive(self, message: Request | ResultReply | ErrorReply) -> Answer | Work | None:
        """Handle a request or a reply of the client. Work is for `Runner.perform`; None needs no answer."""
        if not isinstance(message, Request):
            self._resolve(message)
            return None
        if not is_recording():
            return self._decide(message)
        started = time.perf_counter_ns()
        outcome = self._decide(message)
        if type(outcome) is Answer:
            note_answer(message.id, message.method, message.params, outcome, started, version=self.version)
        elif type(outcome) is Work:
            outcome.is_traced = True
        return outcome

    def _decide(self, message: Request) -> Answer | Work:
        id_json = id_bytes(message.id)
        try:
            params = decode_params(message.params) if message.params else Params()
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            if message.method != "initialize":
                return _refuse(id_json, INVALID_PARAMS, f"Invalid params: {str(error)[:300]}")
            params = Params()
        method = message.method
        if method == "initialize":
            return self._initialize(id_json, message.params)
        if method == "ping":
            return Answer(reply_bytes(id_json, b"{}"))
        if not self.version:
            return _refuse(id_json, INVALID_REQUEST, "the session is not initialized")
        if method in _LISTS and self._server.registry.offers_list(method):
            page = self._server.registry.page(method, params.cursor, self.principal, legacy=True)
            if page is None:
                return _refuse(id_json, INVALID_PARAMS, "the cursor is not one of this server's")
            return Answer(reply_bytes(id_json, page))
        if method == "logging/setLevel" and "logging" in self._server.registry.capabilities(listen=False):
            if params.level not in LOG_LEVELS:
                return _refuse(id_json, INVALID_PARAMS, f"the level is one of {', '.join(LOG_LEVELS)}")
            self._log_level = params.level or _DEFAULT_LOG_LEVEL
            return Answer(reply_bytes(id_json, b"{}"))
        if method in ("resources/subscribe", "resources/unsubscribe") and self._dispatcher.listen:
            return self._subscribe(id_json, method, params)
        work = Work(message.id, id_json, method, None, params, self._meta(params), self.version, legacy=True)
        refused = self._dispatcher.find_target(work, self.principal, b'{"params":' + (message.params or b"{}") + b"}")
        if refused is None:
            return work
        return self.translate(refused)

    def _meta(self, params: Params) -> RequestMeta:
        own = params.meta
        return RequestMeta(
            protocol_version=self.version,
            client_capabilities=self._capabilities,
            client_info=Raw(_encode(self._client_info)),
            log_level=self._log_level,
            progress_token=None if own is msgspec.UNSET else own.progress_token,
            traceparent=None if own is msgspec.UNSET else own.traceparent,
            tracestate=None if own is msgspec.UNSET else own.tracestate,
            baggage=None if own is msgspec.UNSET else own.baggage,
        )

    @staticmethod
    def translate(answer: Answer) -> Answer:
        """An error of the modern era as the legacy revisions know it: their code for a missing resource, and HTTP 200."""
        if b'"Resource not found"' in answer.body:
            body = answer.body.replace(b'"code":%d' % INVALID_PARAMS, b'"code":%d' % LEGACY_RESOURCE_NOT_FOUND, 1)
            return Answer(body)
        return Answer(answer.body)

    def _initialize(self, id_json: bytes, raw: Raw) -> Answer:
        try:
            wanted = _decode_initialize(raw if raw else b"{}")
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            return _refuse(id_json, INVALID_PARAMS, f"Invalid params of initialize: {str(error)[:300]}")
        # A version we do not have gets our latest; the client decides whether that will do. Spec: lifecycle#version-negotiation (MUST)
        self.version = wanted.protocol_version if wanted.protocol_version in LEGACY_VERSIONS else LEGACY_VERSIONS[0]
        self._capabilities, self._client_info = wanted.capabilities, wanted.client_info
        registry = self._server.registry
        result: dict[str, Any] = {
            "protocolVersion": self.version,
            "capabilities": registry.capabilities(listen=self._dispatcher.listen, legacy=True),
            "serverInfo": registry.identity,
        }
        if registry.instructions is not None:
            result["instructions"] = registry.instructions
        return Answer(reply_bytes(id_json, _encode(result)))

    def _subscribe(self, id_json: bytes, method: str, params: Params) -> Answer:
        uri = params.uri
        if uri is msgspec.UNSET:
            return _refuse(id_json, INVALID_PARAMS, "params.uri is missing")
        subscriptions = self._server.subscriptions
        if method == "resources/unsubscribe":
            subscriptions.unsubscribe(self.listener, uri)
        elif not self._server.registry.can_subscribe(uri, self.principal):
            return _refuse(
                id_json, LEGACY_RESOURCE_NOT_FOUND, "there is no such resource to subscribe to", {"uri": uri}
            )
        elif len(self.listener.uris) >= _MAX_SUBSCRIPTIONS:
            return _refuse(id_json, INVALID_PARAMS, f"at most {_MAX_SUBSCRIPTIONS} subscriptions per session")
        else:
            subscriptions.subscribe(self.listener, uri)
        return Answer(reply_bytes(id_json, b"{}"))

    def notified(self, message: Notification) -> None:
        """Handle a notification other than a cancellation: nothing depends on any of them."""

    async def request(self, question: Question, send: Callable[[bytes], None]) -> Any:
        """Send a question as a request and wait for the client's result.

        Raises:
            RequestRejected: the client answered with an error.
        """
        if len(self._pending) >= _MAX_PENDING:
            raise RequestRejected(INVALID_REQUEST, "too many questions to this client are open")
        params = question.params()
        if isinstance(question, ElicitUrl):
            params["elicitationId"] = question.elicitation_id or secrets.token_urlsafe(16)
        request_id, self._next_id = self._next_id, self._next_id + 1
        future: asyncio.Future[ResultReply | ErrorReply] = asyncio.get_running_loop().create_future()
        self._pending[request_id] = future
        try:
            with question_span(question.method, self.version) as operation:
                operation.sent(request_id)
                carried = operation.meta()
                send(encode_request(request_id, question.method, {**params, "_meta": carried} if carried else params))
                reply = await future
                if isinstance(reply, ErrorReply):
                    operation.refused(reply.code, reply.message)
                    text = f"the client answered error {reply.code}: {reply.message[:200]}"
                    raise RequestRejected(INVALID_REQUEST, text)
                return decode_value(reply.result)
        finally:
            self._pending.pop(request_id, None)

    def _resolve(self, reply: ResultReply | ErrorReply) -> None:
        future = self._pending.get(reply.id) if type(reply.id) is int else None
        if future is None or future.done():
            return
        future.set_result(reply)


def _refuse(id_json: bytes, code: int, message: str, data: Any = None) -> Answer:
    return Answer(error_answer(id_json, code, message, data).body)
