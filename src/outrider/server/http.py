"""The ASGI app: Streamable HTTP of the modern era, and the door to the legacy adapter.

Decided here: which HTTP requests are taken (path, method, media types, size, time), when an answer is JSON and when it is an event stream,
keep-alive, and that a closed connection cancels the work. Not here: which hosts and origins are let in (`door`), what a message means
(`dispatch`), and sessions (`legacy`).

A request that is answered from bytes costs one `receive`, one decoding pass and two `send`s; one that runs a function runs it in the
task that the ASGI server made. More tasks exist only while a function is waiting or a stream is open.

Spec: 2026-07-28 basic/transports/streamable-http.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from outrider.errors import INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND
from outrider.protocol.framing import KEEP_ALIVE, encode_event
from outrider.server.dispatch import Answer, Legacy, Listen, Notified, Work, error_answer, reply_bytes
from outrider.server.door import Door, is_json
from outrider.server.registry import Principal
from outrider.server.spans import arrived_over_http, dispatch_traced, note_listen
from outrider.server.subscriptions import Listener, closing_result
from outrider.tracing import is_recording

if TYPE_CHECKING:
    from outrider.server.app import Server
    from outrider.server.inputs import Question
    from outrider.server.legacy.http import LegacyEndpoint

__all__ = ["Authenticate", "Endpoint", "HttpOptions", "Unauthorized"]

_log: Final = logging.getLogger("outrider.server")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Authenticate = Callable[[Scope], "Principal | Awaitable[Principal | None] | None"]
"""From an ASGI scope to the caller. Raise `Unauthorized` to refuse; None is a caller who is nobody in particular."""

_MAX_QUEUED_NOTIFICATIONS: Final = 1000
_JSON: Final = (b"content-type", b"application/json")
STREAM_HEADERS: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    # nginx and its relatives would otherwise hold events back. Spec: streamable-http#receiving-messages (SHOULD)
    (b"x-accel-buffering", b"no"),
)


class Unauthorized(Exception):
    """Raised by an `authenticate` function to refuse a request.

    Attributes:
        status: 401 when a credential is missing or bad, 403 when a good one does not suffice.
        challenge: the `WWW-Authenticate` value, such as `Bearer resource_metadata="https://…"`.
    """

    def __init__(self, challenge: str = "Bearer", *, status: int = 401) -> None:
        super().__init__(f"HTTP {status}")
        self.challenge, self.status = challenge, status


class Refused:
    """Stands for a caller whose request has been answered with a refusal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """How the HTTP endpoint behaves.

    Attributes:
        allowed_hosts: `Host` values that are let in, without a port for any port. Empty: on a loopback address only loopback names, which
            is what keeps web sites from reaching a local server by DNS rebinding; elsewhere any.
        allowed_origins: `Origin` values of web pages that may call, such as "https://app.example.com"; "*" for any. Empty: loopback
            origins on a loopback address; elsewhere none, unless the origin is one of `allowed_hosts`.
        listen: whether change notifications are offered. Turn it off where responses cannot stay open.
        health_path: answers GET with 200 for balancers, or None for no such path.
        max_body_bytes: the largest request body.
        body_timeout_s: how long a client may take to send it, in seconds.
        keep_alive_s: seconds of silence on a stream before a comment is sent; a function that works longer than this is answered with
            a stream.
        max_sessions: legacy sessions; the longest idle one ends when there are more.
        session_idle_s: seconds without a request after which a legacy session ends.
    """

    allowed_hosts: Sequence[str] = ()
    allowed_origins: Sequence[str] = ()
    listen: bool = True
    health_path: str | None = "/health"
    max_body_bytes: int = 4 * 1024 * 1024
    body_timeout_s: float = 30.0
    keep_alive_s: float = 15.0
    max_sessions: int = 1000
    session_idle_s: float = 1800.0


class Endpoint:
    """The ASGI app of a server. Made by `Server.asgi`."""

    def __init__(
        self,
        server: Server,
        *,
        path: str,
        legacy: bool,
        authenticate: Authenticate | None,
        options: HttpOptions,
    ) -> None:
        """See `Server.asgi`."""
        self._server = server
        self._path = "/" + path.strip("/")
        self._authenticate = authenticate
        self._options = options
        self._dispatcher = server.dispatcher(legacy=legacy, listen=options.listen)
        self._legacy: LegacyEndpoint | None = None
        if legacy:
            from outrider.server.legacy.http import LegacyEndpoint

            self._legacy = LegacyEndpoint(server, self._dispatcher, options)
        self._door = Door(options.allowed_hosts, options.allowed_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http":
            await self._serve_other(scope, receive, send)
            return
        headers: Sequence[tuple[bytes, bytes]] = scope["headers"]
        header_map = dict(headers)
        method = scope["method"]
        if scope["path"] != self._path or method != "POST":
            done, headers_out = await self._serve_exceptional(scope, header_map, receive, send)
            if done:
                return
        else:
            refusal, headers_out = self._door.judge(scope.get("server"), header_map)
            if refusal is not None:
                await send_reply(send, *refusal, headers_out)
                return
        content_type = header_map.get(b"content-type", b"")
        if content_type != b"application/json" and not is_json(content_type):
            await send_reply(send, 415, _error(INVALID_REQUEST, "Content-Type must be application/json"), headers_out)
            return
        takes_json, takes_stream = self._door.accepts(header_map.get(b"accept"))
        if not takes_json:
            # Whether an answer becomes a stream is decided while it is worked on. Spec: streamable-http#sending-messages (MUST list both)
            text = "Accept must list application/json and text/event-stream"
            await send_reply(send, 406, _error(INVALID_REQUEST, text), headers_out)
            return
        principal: Principal | None = None
        if self._authenticate is not None:
            caller = await self._identify(scope, send, headers_out)
            if isinstance(caller, Refused):
                return
            principal = caller
        # The usual body comes in one piece, without a coroutine of its own.
        message = await receive()
        body: bytes | None = message.get("body", b"")
        if message.get("more_body", False) or not body or len(body) > self._options.max_body_bytes:
            body = await self._read_body(message, header_map, receive, send, headers_out)
            if body is None:
                return
        dispatch = self._dispatcher.dispatch
        if is_recording():
            arrived_over_http(scope, header_map)
            dispatch = partial(dispatch_traced, dispatch)
        outcome = dispatch(
            body,
            headers=headers,
            header_map=header_map,
            principal=principal,
            in_session=b"mcp-session-id" in header_map,
        )
        if type(outcome) is Answer:
            if outcome.status == 400 and self._legacy is not None and body.lstrip()[:1] == b"[":
                await self._legacy.serve_batch(body, outcome, header_map, principal, receive, send, headers_out)
            else:
                await send_reply(send, outcome.status, outcome.body, headers_out)
        elif type(outcome) is Work:
            await self._serve_work(outcome, principal, receive, send, headers_out, takes_stream)
        elif type(outcome) is Listen:
            if not takes_stream:
                text = "subscriptions/listen needs an Accept header with text/event-stream"
                await send_reply(send, 406, _error(INVALID_REQUEST, text, outcome.id_json), headers_out)
            else:
                outcome = await self._server.tasks.admit(outcome, principal)
                await self._serve_listen(outcome, receive, send, headers_out)
        elif type(outcome) is Notified:
            await send_reply(send, 202, b"", headers_out)
        elif type(outcome) is Legacy and self._legacy is not None:
            await self._legacy.serve_post(
                outcome.message, header_map, principal, receive, send, headers_out, takes_stream
            )

    # Who is let in

    async def _identify(
        self, scope: Scope, send: Send, headers_out: Sequence[tuple[bytes, bytes]]
    ) -> Principal | Refused | None:
        """The caller, as the author's function says; a refusal is answered here."""
        if self._authenticate is None:
            return None
        try:
            found = self._authenticate(scope)
            return await found if isinstance(found, Awaitable) else found
        except Unauthorized as refused:
            challenge = (b"www-authenticate", refused.challenge.encode("latin-1"))
            await send_reply(send, refused.status, _error(INVALID_REQUEST, "not authorized"), (*headers_out, challenge))
            return Refused()

    async def _serve_exceptional(
        self, scope: Scope, header_map: Mapping[bytes, bytes], receive: Receive, send: Send
    ) -> tuple[bool, tuple[tuple[bytes, bytes], ...]]:
        """Anything but a POST to the endpoint's exact path; (False, headers) when it is one after all."""
        path = scope["path"]
        root = scope.get("root_path", "")
        if root and path.startswith(root):
            path = path[len(root) :]
        method = scope["method"]
        if (path.rstrip("/") or "/") != self._path:
            if path == self._options.health_path and method in ("GET", "HEAD"):
                await send_reply(send, 200, b'{"status":"ok"}' if method == "GET" else b"")
            else:
                await send_reply(send, 404, _error(METHOD_NOT_FOUND, "there is no MCP endpoint at this path"))
            return True, ()
        refusal, headers_out = self._door.judge(scope.get("server"), header_map)
        if refusal is not None:
            await send_reply(send, *refusal, headers_out)
            return True, ()
        if method == "POST":
            return False, headers_out
        if method == "OPTIONS":
            await send_reply(send, 204, b"", (*headers_out, *self._preflight(headers_out)))
        elif self._legacy is not None and method in ("GET", "DELETE"):
            principal = await self._identify(scope, send, headers_out)
            if not isinstance(principal, Refused):
                await self._legacy.serve_stream_or_end(method, header_map, principal, receive, send, headers_out)
        else:
            text = "the MCP endpoint takes POST"
            await send_reply(send, 405, _error(INVALID_REQUEST, text), (*headers_out, (b"allow", self._methods())))
        return True, ()

    def _methods(self) -> bytes:
        return b"POST, OPTIONS" if self._legacy is None else b"POST, GET, DELETE, OPTIONS"

    def _preflight(self, headers_out: Sequence[tuple[bytes, bytes]]) -> tuple[tuple[bytes, bytes], ...]:
        """The answer to a browser that asks whether it may call."""
        if not headers_out:
            return ((b"allow", self._methods()),)
        return self._door.preflight(self._methods(), self._server.registry.mirrored_headers)

    async def _read_body(
        self,
        message: MutableMapping[str, Any],
        header_map: Mapping[bytes, bytes],
        receive: Receive,
        send: Send,
        headers_out: Sequence[tuple[bytes, bytes]],
    ) -> bytes | None:
        """The rest of a body that did not come in one acceptable piece; a refusal is answered here, and None."""
        limit = self._options.max_body_bytes
        declared = header_map.get(b"content-length")
        too_large = declared is not None and declared.isdigit() and int(declared[:20]) > limit
        body: bytes = b""
        if message["type"] == "http.disconnect":
            return None
        if not too_large:
            body = message.get("body", b"")
            if message.get("more_body", False):
                parts = bytearray(body)
                try:
                    async with asyncio.timeout(self._options.body_timeout_s):
                        while message.get("more_body", False) and len(parts) <= limit:
                            message = await receive()
                            if message["type"] == "http.disconnect":
                                return None
                            parts += message.get("body", b"")
                except TimeoutError:
                    text = "the request body took too long to arrive"
                    await send_reply(
                        send, 408, _error(INVALID_REQUEST, text), (*headers_out, (b"connection", b"close"))
                    )
                    return None
                body = bytes(parts)
            too_large = len(body) > limit
        if too_large:
            text = f"the request body is larger than {limit} bytes"
            await send_reply(send, 413, _error(INVALID_REQUEST, text), (*headers_out, (b"connection", b"close")))
            return None
        return body

    # Answers that take time

    async def _serve_work(
        self,
        work: Work,
        principal: Principal | None,
        receive: Receive,
        send: Send,
        headers_out: Sequence[tuple[bytes, bytes]],
        takes_stream: bool,
    ) -> None:
        exchange = _Exchange(receive, send, headers_out, takes_stream, self._options.keep_alive_s)
        try:
            answer = await self._server.runner.perform(work, exchange, principal)
        except asyncio.CancelledError:
            if exchange.is_gone:
                return
            raise
        await exchange.finish(answer)

    async def _serve_listen(
        self, listen: Listen, receive: Receive, send: Send, headers_out: Sequence[tuple[bytes, bytes]]
    ) -> None:
        """One task per stream, waiting for the client to leave; what is due is written by short-lived tasks."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        timer: asyncio.TimerHandle | None = None
        pump: asyncio.Task[None] | None = None
        keep_alive_s = self._options.keep_alive_s
        wrote_at = loop.time()

        async def write() -> None:
            nonlocal wrote_at
            while due := listener.take():
                await send(_event_body(b"".join(map(encode_event, due))))
            if loop.time() - wrote_at >= keep_alive_s:
                await send(_event_body(KEEP_ALIVE))
            wrote_at = loop.time()

        def wake() -> None:
            nonlocal pump
            if listener.is_ending and task is not None:
                task.cancel()
            elif pump is None or pump.done():
                pump = loop.create_task(write())
                pump.add_done_callback(lambda _: listener.has_due and loop.call_soon(wake))

        def tick() -> None:
            nonlocal timer
            timer = loop.call_later(keep_alive_s, tick)
            wake()

        listener = Listener(listen.accepted, wake=wake, subscription_id=listen.id_json)
        is_accepted = self._server.subscriptions.add(listener)
        if is_recording():
            note_listen(listen, is_accepted=is_accepted)
        if not is_accepted:
            text = "too many open streams; try again later"
            await send_reply(
                send, 503, _error(INTERNAL_ERROR, text, listen.id_json), (*headers_out, (b"retry-after", b"10"))
            )
            return
        timer = loop.call_later(keep_alive_s, tick)
        try:
            await _start_stream(send, headers_out)
            await send(_event_body(encode_event(listener.acknowledgement())))
            self._server.tasks.watch(listener)
            while (await receive())["type"] != "http.disconnect":
                pass
        except asyncio.CancelledError:
            # Whoever ends us, we or the ASGI server at its shutdown: the client learns that the end was meant.
            self._server.subscriptions.remove(listener)
            if pump is not None and not pump.done():
                await asyncio.wait((pump,))
            result = closing_result(listen.id_json, self._server.registry.identity_meta)
            body = encode_event(reply_bytes(listen.id_json, result))
            await send({"type": "http.response.body", "body": body, "more_body": False})
            if not listener.is_ending:
                raise
        finally:
            self._server.subscriptions.remove(listener)
            if timer is not None:
                timer.cancel()
            if pump is not None:
                pump.cancel()

    async def _serve_other(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            while True:
                message = await receive()
                if message["type"] == "lifespan.startup":
                    await send({"type": "lifespan.startup.complete"})
                elif message["type"] == "lifespan.shutdown":
                    self._server.close()
                    await send({"type": "lifespan.shutdown.complete"})
                    return
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1003})


class _Exchange:
    """One request that runs a function: the channel for what it says meanwhile, and the watch over the connection."""

    __slots__ = (
        "_headers",
        "_is_streaming",
        "_keep_alive_s",
        "_queue",
        "_receive",
        "_send",
        "_takes_stream",
        "_task",
        "_timer",
        "_watch",
        "_writer",
        "is_gone",
    )

    def __init__(
        self,
        receive: Receive,
        send: Send,
        headers_out: Sequence[tuple[bytes, bytes]],
        takes_stream: bool,
        keep_alive_s: float,
    ) -> None:
        self._receive, self._send, self._headers = receive, send, headers_out
        self._takes_stream, self._keep_alive_s = takes_stream, keep_alive_s
        self._task: asyncio.Task[Any] | None = None
        self._queue: list[bytes] = []
        self._is_streaming = False
        self._watch: asyncio.Task[None] | None = None
        self._writer: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.is_gone = False

    def begin_wait(self, task: asyncio.Task[Any]) -> None:
        """Start to look for a disconnect, and to keep the connection alive."""
        self._task = task
        loop = task.get_loop()
        self._watch = loop.create_task(self._wait_for_disconnect())
        if self._takes_stream:
            self._timer = loop.call_later(self._keep_alive_s, self._keep_alive)

    async def _wait_for_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        # The client closed its stream: that cancels the request. Spec: streamable-http#cancellation (MUST)
        self.is_gone = True
        if self._task is not None:
            self._task.cancel()

    def end_wait(self) -> None:
        """Stop both."""
        if self._watch is not None:
            self._watch.cancel()
        if self._timer is not None:
            self._timer.cancel()

    def _keep_alive(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._keep_alive_s, self._keep_alive)
        if not self._queue:
            self._enqueue(KEEP_ALIVE)

    def notify(self, message: bytes) -> None:
        """Write a notification as an event; the first one makes the answer a stream."""
        if self._takes_stream and len(self._queue) < _MAX_QUEUED_NOTIFICATIONS:
            self._enqueue(encode_event(message))

    def _enqueue(self, event: bytes) -> None:
        self._queue.append(event)
        if self._writer is None or self._writer.done():
            self._writer = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        if not self._is_streaming:
            self._is_streaming = True
            await _start_stream(self._send, self._headers)
        while self._queue:
            due, self._queue = b"".join(self._queue), []
            await self._send(_event_body(due))

    async def request(self, question: Question) -> Any:
        """There are no requests to clients in the modern era."""
        raise RuntimeError("a modern request asks for input in its result")

    def release(self, retry_ms: int) -> None:
        """Nothing: only legacy HTTP has streams to come back to."""

    async def finish(self, answer: Answer) -> None:
        """Send the answer, as the last event if a stream was started."""
        if self._writer is not None:
            await self._writer
        if self._is_streaming:
            body = encode_event(answer.body)
            await self._send({"type": "http.response.body", "body": body, "more_body": False})
        else:
            later = ((b"retry-after", b"1"),) if answer.status == 503 else ()
            await send_reply(self._send, answer.status, answer.body, (*self._headers, *later))


async def _start_stream(send: Send, headers_out: Sequence[tuple[bytes, bytes]]) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [*STREAM_HEADERS, *headers_out]})


def _event_body(event: bytes) -> MutableMapping[str, Any]:
    return {"type": "http.response.body", "body": event, "more_body": True}


async def send_reply(send: Send, status: int, body: bytes, headers_out: Sequence[tuple[bytes, bytes]] = ()) -> None:
    """Send a whole answer; a body is JSON."""
    length = (b"content-length", b"%d" % len(body))
    if status == 204:
        headers = [*headers_out]
    elif body:
        headers = [_JSON, length, *headers_out]
    else:
        headers = [length, *headers_out]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _error(code: int, text: str, id_json: bytes | None = None) -> bytes:
    return error_answer(id_json, code, text).body
