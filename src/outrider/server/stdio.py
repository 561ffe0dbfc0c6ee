"""The stdio loop: one message per line, both eras on one pipe.

Decided here: reading and writing without blocking, one task per running request, cancellation by notification, what happens when either
pipe closes, and that nothing but messages reaches standard output. Not here: what a message means (`dispatch`, `legacy`).

Requests that are answered from bytes are answered while the chunk they came in is being read, and all their replies are written at once.

Spec: 2026-07-28 basic/transports/stdio.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import stat
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from outrider.errors import INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR
from outrider.protocol.framing import LineDecoder, Overflow
from outrider.protocol.jsonrpc import Malformed, Notification, RequestId, encode_notification
from outrider.server.dispatch import Answer, Legacy, Listen, Notified, Work, error_answer, id_bytes, reply_bytes
from outrider.server.spans import dispatch_traced, note_listen
from outrider.server.subscriptions import Listener, closing_result
from outrider.tracing import is_recording

if TYPE_CHECKING:
    from outrider.server.app import Server
    from outrider.server.inputs import Question
    from outrider.server.legacy.session import LegacySession

__all__ = ["StdioConnection", "run_stdio"]

_log: Final = logging.getLogger("outrider.server")
_GRACE_S: Final = 5.0
_THREAD_GRACE_S: Final = 1.0
_MAX_LINE_BYTES: Final = 16 * 1024 * 1024
_MAX_UNSENT_BYTES: Final = 1024 * 1024
_READ_BYTES: Final = 256 * 1024


class _Cancelled(msgspec.Struct, rename="camel"):
    request_id: int | str
    reason: str | None = None


_decode_cancelled: Final = msgspec.json.Decoder(_Cancelled).decode


class StdioConnection:
    """One client on a byte stream. Feed it what arrives; it calls `write` with what to send.

    Usable over any reliable byte stream. Spec: 2026-07-28 basic/transports#custom-transports
    """

    def __init__(self, server: Server, *, write: Callable[[bytes], None], legacy: bool = True) -> None:
        """Serve one connection.

        Args:
            server: what to serve.
            write: takes whole lines; must not block.
            legacy: whether clients of the handshake revisions are served too.
        """
        self._server = server
        self._dispatcher = server.dispatcher(legacy=legacy, listen=True)
        self._write = write
        self._lines = LineDecoder(max_line_bytes=_MAX_LINE_BYTES)
        self._tasks: dict[RequestId, asyncio.Task[None]] = {}
        self._listeners: dict[RequestId, Listener] = {}
        self._session: LegacySession | None = None
        self._due: list[bytes] | None = None
        # A client that reads too slowly loses notifications, never a reply.
        self.is_congested = False

    def feed(self, chunk: bytes) -> None:
        """Handle what has arrived; replies that are ready are written in one piece."""
        self._due = due = []
        try:
            for line in self._lines.feed(chunk):
                if isinstance(line, Overflow):
                    text = f"Invalid message: longer than {line.limit} bytes"
                    due.append(error_answer(None, PARSE_ERROR, text).body)
                elif line and not line.isspace():
                    self._receive(line, due)
        finally:
            self._due = None
            if due:
                due.append(b"")
                self._write(b"\n".join(due))

    def _send(self, message: bytes) -> None:
        due = self._due
        if due is not None:
            due.append(message)
        else:
            self._write(message + b"\n")

    def _receive(self, line: bytes, due: list[bytes]) -> None:
        dispatch = self._dispatcher.dispatch
        if is_recording():
            dispatch = partial(dispatch_traced, dispatch)
        outcome = dispatch(line, in_session=self._session is not None)
        if type(outcome) is Answer:
            if self._session is not None and line.lstrip()[:1] == b"[":
                self._receive_batch(line, outcome)
            else:
                due.append(outcome.body)
        elif type(outcome) is Work:
            self._start(outcome)
        elif type(outcome) is Listen:
            if outcome.accepted.task_ids is None or outcome.id in self._tasks:
                self._listen(outcome)
            else:
                self._tasks[outcome.id] = asyncio.get_running_loop().create_task(self._listen_to_tasks(outcome))
        elif type(outcome) is Notified:
            self._notified(outcome.message)
        elif type(outcome) is Legacy:
            self._receive_legacy(outcome)

    def _start(self, work: Work) -> None:
        if work.id in self._tasks or work.id in self._listeners:
            self._send(error_answer(work.id_json, INVALID_REQUEST, "this id is in use by a request in progress").body)
            return
        item = work.item
        if getattr(item, "inline", False) and not item.is_async and not getattr(item, "wants_context", True):
            # Such a function never waits, so the coroutine ends in its first step.
            try:
                self._server.runner.perform(work, self, None).send(None)
            except StopIteration as done:
                self._send(done.value.body)
            return
        task = asyncio.get_running_loop().create_task(self._perform(work))
        self._tasks[work.id] = task

    async def _perform(self, work: Work) -> None:
        try:
            answer = await self._server.runner.perform(work, self, None)
            self._send(answer.body)
        finally:
            self._tasks.pop(work.id, None)

    def notify(self, message: bytes) -> None:
        """Send a notification of a running request."""
        if not self.is_congested:
            self._send(message)

    async def request(self, question: Question) -> Any:
        """Send a request to a legacy client and wait for its result."""
        if self._session is None:
            raise RuntimeError("a modern request asks for input in its result")
        return await self._session.request(question, self._send)

    def begin_wait(self, task: asyncio.Task[Any]) -> None:
        """Nothing: cancellation comes as a notification."""

    def end_wait(self) -> None:
        """Nothing."""

    def release(self, retry_ms: int) -> None:
        """Nothing: only legacy HTTP has streams to come back to."""

    def _listen(self, listen: Listen) -> None:
        if listen.id in self._tasks or listen.id in self._listeners:
            self._send(error_answer(listen.id_json, INVALID_REQUEST, "this id is in use by a request in progress").body)
            return

        def wake() -> None:
            if listener.is_ending:
                self._end_listener(listen.id, listener)
            else:
                for message in listener.take():
                    self._send(message)

        listener = Listener(listen.accepted, wake=wake, subscription_id=listen.id_json)
        is_accepted = self._server.subscriptions.add(listener)
        if is_recording():
            note_listen(listen, is_accepted=is_accepted)
        if not is_accepted:
            self._send(error_answer(listen.id_json, INTERNAL_ERROR, "too many open streams; try again later").body)
            return
        self._listeners[listen.id] = listener
        self._send(listener.acknowledgement())
        self._server.tasks.watch(listener)

    async def _listen_to_tasks(self, listen: Listen) -> None:
        try:
            listen = await self._server.tasks.admit(listen, None)
        finally:
            self._tasks.pop(listen.id, None)
        self._listen(listen)

    def _end_listener(self, request_id: RequestId, listener: Listener) -> None:
        """Spec: basic/patterns/subscriptions#graceful-closure (SHOULD), basic/patterns/cancellation (MUST)"""
        if self._listeners.pop(request_id, None) is None:
            return
        self._server.subscriptions.remove(listener)
        id_json = id_bytes(request_id)
        self._send(reply_bytes(id_json, closing_result(id_json, self._server.registry.identity_meta)))
        self._send(encode_notification("notifications/cancelled", {"requestId": msgspec.Raw(id_json)}))

    def _notified(self, message: Notification) -> None:
        if message.method != "notifications/cancelled":
            return
        try:
            cancelled = _decode_cancelled(message.params)
        except (msgspec.DecodeError, RecursionError):
            return
        if (task := self._tasks.pop(cancelled.request_id, None)) is not None:
            task.cancel()
        elif (listener := self._listeners.pop(cancelled.request_id, None)) is not None:
            self._server.subscriptions.remove(listener)

    def _receive_legacy(self, outcome: Legacy) -> None:
        from outrider.server.legacy.session import LegacySession

        message = outcome.message
        if isinstance(message, Notification):
            if message.method == "notifications/cancelled":
                self._notified(message)
            elif self._session is not None:
                self._session.notified(message)
            return
        if self._session is None:
            self._session = LegacySession(self._server, self._dispatcher, principal=None)

            def wake() -> None:
                if self._session is not None:
                    for notification in self._session.listener.take():
                        self._send(notification)

            self._session.open_listener(wake)
        answer = self._session.receive(message)
        if type(answer) is Answer:
            self._send(answer.body)
        elif type(answer) is Work:
            self._start(answer)

    def _receive_batch(self, line: bytes, refusal: Answer) -> None:
        """A batch of 2025-03-26: its messages one by one, each answered on its own line."""
        from outrider.server.legacy.session import read_batch

        messages = read_batch(line, self._session.version) if self._session is not None else None
        if messages is None:
            self._send(refusal.body)
            return
        for message in messages:
            if isinstance(message, Malformed):
                self._send(error_answer(None, message.code, f"Invalid message: {message.reason}").body)
            else:
                self._receive_legacy(Legacy(message))

    async def close(self, grace_s: float = _GRACE_S) -> None:
        """The client has closed its end: let running requests finish within `grace_s` seconds, then stop them."""
        for line in self._lines.end():
            if isinstance(line, bytes) and line and not line.isspace():
                self.feed(line + b"\n")
        if self._tasks:
            _, late = await asyncio.wait(set(self._tasks.values()), timeout=grace_s)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=1.0)
        for request_id, listener in list(self._listeners.items()):
            self._end_listener(request_id, listener)
        if self._session is not None:
            self._session.close()


class _Pipe(asyncio.Protocol):
    """Standard input and output on the event loop, with the reader paused while the writer cannot keep up."""

    def __init__(self, server: Server, *, legacy: bool, loop: asyncio.AbstractEventLoop) -> None:
        self.ended = loop.create_future()
        self.reader: asyncio.ReadTransport | None = None
        self.writer: asyncio.WriteTransport | None = None
        self.connection = StdioConnection(server, write=self._write, legacy=legacy)

    def _write(self, data: bytes) -> None:
        if self.writer is not None and not self.writer.is_closing():
            self.writer.write(data)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.ReadTransport):
            self.reader = transport

    def data_received(self, data: bytes) -> None:
        self.connection.feed(data)

    def eof_received(self) -> bool:
        self.finish()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.finish()

    def finish(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def pause_writing(self) -> None:
        self.connection.is_congested = True
        if self.reader is not None:
            self.reader.pause_reading()

    def resume_writing(self) -> None:
        self.connection.is_congested = False
        if self.reader is not None:
            self.reader.resume_reading()


class _WritePipe(asyncio.BaseProtocol):
    def __init__(self, pipe: _Pipe, closed: asyncio.Future[None]) -> None:
        self._pipe = pipe
        self._closed = closed

    def pause_writing(self) -> None:
        self._pipe.pause_writing()

    def resume_writing(self) -> None:
        self._pipe.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        # All is written, or nobody reads any more; the latter is the same end as a closed standard input.
        self._pipe.finish()
        if not self._closed.done():
            self._closed.set_result(None)


def run_stdio(server: Server, *, legacy: bool = True) -> None:
    """Serve standard input and output until the former ends. See `Server.run`."""
    _open_missing_streams()
    # Whatever else the process prints or reads must not meet the messages: they get descriptors of their own, and the well-known ones
    # lead to standard error and to nothing.
    stdin_fd, stdout_fd = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    if sys.stdout is not None:
        sys.stdout.flush()
    os.dup2(2, 1)
    try:
        asyncio.run(_serve_stdio(server, stdin_fd, stdout_fd, legacy=legacy))
    except KeyboardInterrupt:
        sys.exit(130)
    from outrider.server.running import WORKER_THREAD_PREFIX

    deadline = time.monotonic() + _THREAD_GRACE_S
    for thread in threading.enumerate():
        if thread.name.startswith(WORKER_THREAD_PREFIX):
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                # A function that ignores `ctx.cancelled` would keep the process alive after its client has gone.
                logging.shutdown()
                sys.stderr.flush()
                os._exit(0)


def _open_missing_streams() -> None:
    """Gives a process that was started with a closed standard stream an empty one: the next file would take its number."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _is_polled(fd: int) -> bool:
    """Tells whether an event loop can wait for a descriptor: not for files, nor for the null device, which asyncio takes for a terminal."""
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)


async def _serve_stdio(server: Server, stdin_fd: int, stdout_fd: int, *, legacy: bool) -> None:
    loop = asyncio.get_running_loop()
    pipe = _Pipe(server, legacy=legacy, loop=loop)
    written = loop.create_future()
    # Held here, because a transport that refuses a file lets go of it.
    stdin, stdout = os.fdopen(stdin_fd, "rb", 0), os.fdopen(stdout_fd, "wb", 0)
    try:
        writer, _ = await loop.connect_write_pipe(lambda: _WritePipe(pipe, written), stdout)
        writer.set_write_buffer_limits(high=_MAX_UNSENT_BYTES)
        pipe.writer = writer
    except (ValueError, NotImplementedError, OSError):
        # A file, or a platform without pipes on its loop.
        pipe.connection = StdioConnection(server, write=lambda data: _write_all(stdout_fd, data), legacy=legacy)
        written.set_result(None)
    is_read = False
    if _is_polled(stdin_fd):
        with contextlib.suppress(ValueError, NotImplementedError, OSError):
            await loop.connect_read_pipe(lambda: pipe, stdin)
            is_read = True
    if not is_read:
        threading.Thread(target=_read_all, args=(stdin_fd, loop, pipe), daemon=True).start()
    try:
        await pipe.ended
        await pipe.connection.close()
    finally:
        server.close()
        if pipe.writer is not None:
            pipe.writer.close()
            await asyncio.wait((written,), timeout=_GRACE_S)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _read_all(fd: int, loop: asyncio.AbstractEventLoop, pipe: _Pipe) -> None:
    while chunk := os.read(fd, _READ_BYTES):
        loop.call_soon_threadsafe(pipe.data_received, chunk)
    loop.call_soon_threadsafe(pipe.finish)
