"""Streamable HTTP as the revisions 2025-03-26 to 2025-11-25 have it: sessions, the GET stream, DELETE, and streams that can be resumed.

Decided here: which session a request belongs to and when a session is over, what is kept of a stream for a client that comes back, and
HTTP statuses of that era. Not here: what messages mean (`session`), and who is let in (`outrider.server.door`).

Everything is bounded: sessions in number and idle time, what is kept of a session's streams in number and bytes. Sessions live in this
process.

Spec: 2025-11-25 basic/transports#streamable-http.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from outrider.errors import INVALID_REQUEST
from outrider.protocol.framing import KEEP_ALIVE, encode_event
from outrider.protocol.jsonrpc import (
    ErrorReply,
    Malformed,
    Notification,
    Request,
    RequestId,
    ResultReply,
)
from outrider.protocol.versions import LEGACY_VERSIONS
from outrider.server.dispatch import Answer, Dispatcher, Work, error_answer, id_bytes
from outrider.server.legacy.session import LegacySession, read_batch
from outrider.server.registry import Principal

if TYPE_CHECKING:
    from outrider.server.app import Server
    from outrider.server.http import HttpOptions
    from outrider.server.inputs import Question

__all__ = ["LegacyEndpoint"]

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]

_VERSION_HEADER: Final = b"mcp-protocol-version"
_SESSION_HEADER: Final = b"mcp-session-id"
_LAST_EVENT_HEADER: Final = b"last-event-id"
# A client of this revision understands an event with an id and no data, which lets it come back before the first message.
_PRIMED_VERSION: Final = "2025-11-25"
_MAX_KEPT_STREAMS: Final = 32
_MAX_KEPT_BYTES: Final = 4 * 1024 * 1024
_MAX_NOTIFICATIONS: Final = 1000
_DEFAULT_RETRY_MS: Final = 1000


class _Cancelled(msgspec.Struct, rename="camel"):
    request_id: int | str


_decode_cancelled: Final = msgspec.json.Decoder(_Cancelled).decode


class _Stream:
    """The messages that answer one request, kept so that a client can come back for those it missed."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.messages: list[bytes] = []
        self.expected = 1
        self.retry_ms: int | None = None
        self.changed = asyncio.Event()
        self.size = 0

    def put(self, message: bytes, *, final: bool = False) -> None:
        self.messages.append(message)
        self.size += len(message)
        if final:
            self.finish_one()
        self.changed.set()

    @property
    def is_done(self) -> bool:
        """Whether every answer that was expected is there, or will never be."""
        return self.expected <= 0

    def finish_one(self) -> None:
        self.expected -= 1
        self.changed.set()

    def event(self, position: int) -> bytes:
        return encode_event(self.messages[position], id=f"{self.number}-{position + 1}")


class _Channel:
    """What a function says while it works for a legacy client: into the stream that answers its request."""

    def __init__(self, session: LegacySession, stream: _Stream) -> None:
        self._session, self._stream = session, stream

    def notify(self, message: bytes) -> None:
        if len(self._stream.messages) < _MAX_NOTIFICATIONS:
            self._stream.put(message)

    async def request(self, question: Question) -> Any:
        return await self._session.request(question, self._stream.put)

    def begin_wait(self, task: asyncio.Task[Any]) -> None:
        # In this era a closed connection does not cancel.
        pass

    def end_wait(self) -> None:
        pass

    def release(self, retry_ms: int) -> None:
        self._stream.retry_ms = retry_ms
        self._stream.changed.set()


class _HttpSession:
    """A session, its streams and its running requests."""

    def __init__(self, session: LegacySession) -> None:
        self.session = session
        self.streams: OrderedDict[int, _Stream] = OrderedDict()
        self.tasks: dict[RequestId, asyncio.Task[None]] = {}
        self.used_at = 0.0
        self.connections = 0
        self.woken = asyncio.Event()
        self.listening: asyncio.Task[Any] | None = None
        self._next_stream = 1

    def open_stream(self) -> _Stream:
        stream = _Stream(self._next_stream)
        self._next_stream += 1
        self.streams[stream.number] = stream
        self.trim()
        return stream

    def trim(self) -> None:
        """Forget the oldest finished streams beyond the bounds."""
        size = sum(stream.size for stream in self.streams.values())
        for number, stream in list(self.streams.items()):
            if len(self.streams) <= _MAX_KEPT_STREAMS and size <= _MAX_KEPT_BYTES:
                return
            if stream.is_done:
                size -= stream.size
                del self.streams[number]

    @property
    def is_busy(self) -> bool:
        return bool(self.connections or self.tasks)

    def close(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        if self.listening is not None:
            self.listening.cancel()
        self.session.close()


class LegacyEndpoint:
    """The legacy half of an HTTP endpoint."""

    def __init__(self, server: Server, dispatcher: Dispatcher, options: HttpOptions) -> None:
        self._server, self._dispatcher, self._options = server, dispatcher, options
        self._sessions: OrderedDict[str, _HttpSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def _find(self, header_map: Mapping[bytes, bytes], principal: Principal | None) -> _HttpSession | None:
        """The session of a request. One that another caller opened does not exist for this one."""
        self._expire()
        session_id = header_map.get(_SESSION_HEADER, b"").decode("latin-1")
        found = self._sessions.get(session_id)
        if found is None or _identity(found.session.principal) != _identity(principal):
            return None
        # The same caller may by now have other scopes.
        found.session.principal = principal
        found.used_at = asyncio.get_running_loop().time()
        self._sessions.move_to_end(session_id)
        return found

    def _expire(self) -> None:
        oldest = asyncio.get_running_loop().time() - self._options.session_idle_s
        for session_id, session in list(self._sessions.items()):
            if session.used_at > oldest and len(self._sessions) <= self._options.max_sessions:
                return
            if session.is_busy and len(self._sessions) <= self._options.max_sessions:
                continue
            del self._sessions[session_id]
            session.close()

    async def serve_post(
        self,
        message: Request | Notification | ResultReply | ErrorReply,
        header_map: Mapping[bytes, bytes],
        principal: Principal | None,
        receive: Receive,
        send: Send,
        headers_out: Headers,
        takes_stream: bool,
    ) -> None:
        """Answer a legacy message that came by POST."""
        if isinstance(message, Request) and message.method == "initialize":
            await self._initialize(message, principal, send, headers_out)
            return
        held = self._find(header_map, principal)
        if held is None:
            if _SESSION_HEADER in header_map:
                # Spec: 2025-11-25 basic/transports#session-management (MUST 404)
                await _refuse(send, 404, "the session is unknown or over; initialize again", message, headers_out)
            elif isinstance(message, Request):
                text = "an Mcp-Session-Id header is required; initialize first"
                await _refuse(send, 400, text, message, headers_out)
            else:
                await _answer(send, 202, b"", headers_out)
            return
        version = header_map.get(_VERSION_HEADER)
        if version is not None and version.decode("latin-1") not in LEGACY_VERSIONS:
            text = f"this MCP-Protocol-Version is not supported; supported are {', '.join(LEGACY_VERSIONS)}"
            await _refuse(send, 400, text, message, headers_out)
            return
        if isinstance(message, Notification):
            if message.method == "notifications/cancelled":
                self._cancel(held, message)
            else:
                held.session.notified(message)
            await _answer(send, 202, b"", headers_out)
            return
        answer = held.session.receive(message)
        if answer is None:
            await _answer(send, 202, b"", headers_out)
        elif type(answer) is Answer:
            await _answer(send, 200, answer.body, headers_out)
        elif type(answer) is Work:
            await self._serve_work(held, answer, receive, send, headers_out, takes_stream)

    async def serve_batch(
        self,
        body: bytes,
        refusal: Answer,
        header_map: Mapping[bytes, bytes],
        principal: Principal | None,
        receive: Receive,
        send: Send,
        headers_out: Headers,
    ) -> None:
        """Answer a batch of 2025-03-26: at once as a JSON array, or as a stream when a function runs; `refusal` for all others."""
        held = self._find(header_map, principal)
        messages = None if held is None else read_batch(body, held.session.version)
        if held is None or messages is None:
            await _answer(send, refusal.status, refusal.body, headers_out)
            return
        ready: list[bytes] = []
        works: list[Work] = []
        for message in messages:
            if isinstance(message, Malformed):
                ready.append(error_answer(None, message.code, f"Invalid message: {message.reason}").body)
            elif isinstance(message, Notification):
                if message.method == "notifications/cancelled":
                    self._cancel(held, message)
            elif isinstance(message, Request) and message.method == "initialize":
                ready.append(error_answer(id_bytes(message.id), INVALID_REQUEST, "initialize stands alone").body)
            elif type(answer := held.session.receive(message)) is Answer:
                ready.append(answer.body)
            elif type(answer) is Work:
                works.append(answer)
        if not works:
            await _answer(send, 200 if ready else 202, b"[" + b",".join(ready) + b"]" if ready else b"", headers_out)
            return
        stream = held.open_stream()
        for reply in ready:
            stream.put(reply)
        stream.expected = len(works)
        for work in works:
            self._start(held, work, stream)
        await self._follow(held, stream, 0, receive, send, headers_out, is_resumed=False)

    async def _initialize(
        self, message: Request, principal: Principal | None, send: Send, headers_out: Headers
    ) -> None:
        session = LegacySession(self._server, self._dispatcher, principal=principal)
        held = _HttpSession(session)
        answer = session.receive(message)
        body = answer.body if isinstance(answer, Answer) else b""
        if not session.version:
            await _answer(send, 200, body, headers_out)
            return
        if not session.open_listener(held.woken.set):
            await _refuse(send, 503, "too many sessions; try again later", message, headers_out)
            return
        session_id = secrets.token_urlsafe(24)
        held.used_at = asyncio.get_running_loop().time()
        self._sessions[session_id] = held
        self._expire()
        await _answer(send, 200, body, (*headers_out, (_SESSION_HEADER, session_id.encode())))

    @staticmethod
    def _cancel(held: _HttpSession, message: Notification) -> None:
        try:
            request_id = _decode_cancelled(message.params).request_id
        except (msgspec.DecodeError, RecursionError):
            return
        task = held.tasks.pop(request_id, None)
        if task is not None:
            task.cancel()

    async def _serve_work(
        self, held: _HttpSession, work: Work, receive: Receive, send: Send, headers_out: Headers, takes_stream: bool
    ) -> None:
        """Run it in a task of its own: in this era a lost connection does not cancel. Spec: basic/transports#sending-messages"""
        if work.id in held.tasks:
            text = "this id is in use by a request in progress"
            await _answer(send, 400, error_answer(work.id_json, INVALID_REQUEST, text).body, headers_out)
            return
        stream = held.open_stream()
        self._start(held, work, stream)
        await self._follow(held, stream, 0, receive, send, headers_out, is_resumed=False, takes_stream=takes_stream)

    def _start(self, held: _HttpSession, work: Work, stream: _Stream) -> None:
        channel = _Channel(held.session, stream)

        async def perform() -> None:
            try:
                answer = await self._server.runner.perform(work, channel, held.session.principal)
                stream.put(held.session.translate(answer).body, final=True)
            except asyncio.CancelledError:
                stream.finish_one()
                raise
            finally:
                held.tasks.pop(work.id, None)

        held.tasks[work.id] = asyncio.get_running_loop().create_task(perform())

    async def _follow(
        self,
        held: _HttpSession,
        stream: _Stream,
        position: int,
        receive: Receive,
        send: Send,
        headers_out: Headers,
        *,
        is_resumed: bool,
        takes_stream: bool = True,
    ) -> None:
        """Write what a stream has and gets, until it is done, released, or nobody listens."""
        gone = asyncio.get_running_loop().create_task(_disconnect(receive))
        held.connections += 1
        started = False
        try:
            while True:
                stream.changed.clear()
                if not started and stream.is_done and not is_resumed and (len(stream.messages) < 2 or not takes_stream):
                    # The answer alone is there: JSON. After a cancellation there is none.
                    body = stream.messages[-1] if stream.messages else b""
                    await _answer(send, 200 if body else 202, body, headers_out)
                    held.streams.pop(stream.number, None)
                    return
                pending = stream.messages[position:]
                if takes_stream and not started and (pending or stream.retry_ms is not None or is_resumed):
                    started = True
                    await send(_stream_start(headers_out))
                    if held.session.version == _PRIMED_VERSION and not is_resumed:
                        retry_ms = stream.retry_ms or _DEFAULT_RETRY_MS
                        await send(_body(encode_event(b"", id=f"{stream.number}-0", retry_ms=retry_ms)))
                if started:
                    for index in range(position, position + len(pending)):
                        await send(_body(stream.event(index)))
                    position += len(pending)
                    if stream.is_done and position >= len(stream.messages):
                        await send({"type": "http.response.body", "body": b"", "more_body": False})
                        held.trim()
                        return
                    if stream.retry_ms is not None:
                        # The client is asked to come back for the rest. Spec: basic/transports#sending-messages (SHOULD send retry)
                        retry_ms, stream.retry_ms = stream.retry_ms, None
                        last = encode_event(b"", id=f"{stream.number}-{position}", retry_ms=retry_ms)
                        await send({"type": "http.response.body", "body": last, "more_body": False})
                        return
                changed = asyncio.ensure_future(stream.changed.wait())
                try:
                    await asyncio.wait(
                        (changed, gone),
                        timeout=self._options.keep_alive_s if takes_stream else None,
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                    silent = not changed.done() and not gone.done()
                finally:
                    changed.cancel()
                if gone.done():
                    return
                if silent and takes_stream:
                    if not started:
                        started = True
                        await send(_stream_start(headers_out))
                    await send(_body(KEEP_ALIVE))
        finally:
            held.connections -= 1
            held.used_at = asyncio.get_running_loop().time()
            gone.cancel()

    async def serve_stream_or_end(
        self,
        method: str,
        header_map: Mapping[bytes, bytes],
        principal: Principal | None,
        receive: Receive,
        send: Send,
        headers_out: Headers,
    ) -> None:
        """GET opens or resumes a stream; DELETE ends the session."""
        if method == "GET" and b"text/event-stream" not in header_map.get(b"accept", b""):
            await _refuse(send, 406, "GET opens an event stream: Accept must list text/event-stream", None, headers_out)
            return
        if _SESSION_HEADER not in header_map:
            # A client of the modern era has no business here. Spec: 2026-07-28 streamable-http#earlier-streamable-http-revisions
            allow = (b"allow", b"POST, OPTIONS")
            await _refuse(send, 405, "without a session the MCP endpoint takes POST", None, (*headers_out, allow))
            return
        held = self._find(header_map, principal)
        if held is None:
            await _refuse(send, 404, "the session is unknown or over; initialize again", None, headers_out)
        elif method == "DELETE":
            session_id = header_map[_SESSION_HEADER].decode("latin-1")
            del self._sessions[session_id]
            held.close()
            await _answer(send, 204, b"", headers_out)
        else:
            resumed = self._resumed(held, header_map.get(_LAST_EVENT_HEADER))
            if resumed is not None:
                stream, position = resumed
                await self._follow(held, stream, position, receive, send, headers_out, is_resumed=True)
            else:
                await self._serve_notifications(held, receive, send, headers_out)

    @staticmethod
    def _resumed(held: _HttpSession, last_event_id: bytes | None) -> tuple[_Stream, int] | None:
        number, dash, position = (last_event_id or b"").decode("latin-1").partition("-")
        if not (dash and number.isdecimal() and position.isdecimal() and len(number) < 10 and len(position) < 10):
            return None
        stream = held.streams.get(int(number))
        return None if stream is None or int(position) > len(stream.messages) else (stream, int(position))

    async def _serve_notifications(
        self, held: _HttpSession, receive: Receive, send: Send, headers_out: Headers
    ) -> None:
        """The stream for what no request asked for: list and resource changes. A newer one takes the place of an older one."""
        if held.listening is not None:
            held.listening.cancel()
        task = held.listening = asyncio.current_task()
        loop = asyncio.get_running_loop()
        gone = loop.create_task(_disconnect(receive))
        held.connections += 1
        try:
            await send(_stream_start(headers_out))
            await send(_body(KEEP_ALIVE))
            while not gone.done() and not held.session.listener.is_ending:
                held.woken.clear()
                for message in held.session.listener.take():
                    await send(_body(encode_event(message)))
                woken = loop.create_task(held.woken.wait())
                try:
                    done, _ = await asyncio.wait(
                        (woken, gone), timeout=self._options.keep_alive_s, return_when=asyncio.FIRST_COMPLETED
                    )
                finally:
                    woken.cancel()
                if not done:
                    await send(_body(KEEP_ALIVE))
            if not gone.done():
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except asyncio.CancelledError:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            if held.listening is task and held in self._sessions.values():
                raise
        finally:
            held.connections -= 1
            held.used_at = loop.time()
            if held.listening is task:
                held.listening = None
            gone.cancel()


def _identity(principal: Principal | None) -> str | None:
    return None if principal is None else principal.id


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _stream_start(headers_out: Headers) -> MutableMapping[str, Any]:
    from outrider.server.http import STREAM_HEADERS

    return {"type": "http.response.start", "status": 200, "headers": [*STREAM_HEADERS, *headers_out]}


def _body(event: bytes) -> MutableMapping[str, Any]:
    return {"type": "http.response.body", "body": event, "more_body": True}


async def _answer(send: Send, status: int, body: bytes, headers_out: Headers) -> None:
    from outrider.server.http import send_reply

    await send_reply(send, status, body, headers_out)


async def _refuse(send: Send, status: int, text: str, message: Any, headers_out: Headers) -> None:
    id_json = id_bytes(message.id) if isinstance(message, Request) else None
    await _answer(send, status, error_answer(id_json, INVALID_REQUEST, text).body, headers_out)
