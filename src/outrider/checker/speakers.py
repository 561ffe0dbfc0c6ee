"""The server under examination: says to it exactly what a check wants, and keeps what was said and answered as evidence.

Decided here: how raw bytes and headers reach a server over stdio or HTTP, when an answer counts as missing, how fast may be asked, what is
kept of an exchange and how it is redacted. Not here: what to say (`checks`) and what an answer is worth (`checks`, `run`).

Nothing here corrects anything: a header that a check leaves out stays out, and a reply with a wrong id is no reply.
"""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, Protocol

import msgspec
from msgspec import Struct

from outrider.client.http import HttpConnection
from outrider.client.stdio import ExitStatus, StdioProcess
from outrider.client.target import ClientOptions, HttpTarget, StdioTarget
from outrider.errors import ConnectionLost, LimitExceeded, OutriderError
from outrider.protocol.framing import Overflow
from outrider.protocol.jsonrpc import RequestId
from outrider.redaction import Redactor

__all__ = ["Answer", "Exchange", "HttpSpeaker", "Outcome", "Pace", "Speaker", "StdioSpeaker"]

ACCEPT: Final = "application/json, text/event-stream"
_EXCERPT: Final = 1_500
_SHOWN_HEADERS: Final = frozenset(
    {
        "content-type",
        "mcp-session-id",
        "mcp-protocol-version",
        "x-accel-buffering",
        "allow",
        "www-authenticate",
        "retry-after",
        "location",
    }
)
_OUTAGES: Final = frozenset({408, 425, 429, 502, 503, 504})
_STREAM_END_S: Final = 5.0
_STRAY_GRACE_S: Final = 0.25
"""How long a reply without an id may lag behind the reply to a request that was sent after it."""
_MAX_AT_ONCE: Final = 8
_MAX_SPREAD_BYTES: Final = 1 << 18
_MAX_NOISE: Final = 40


class Outcome(StrEnum):
    """What became of something that was said."""

    REPLY = "reply"
    """A JSON-RPC reply, result or error."""
    OTHER = "other"
    """HTTP: an answer that is no reply; stdio: nothing was expected."""
    SILENT = "silent"
    """Nothing within the time allowed."""
    LOST = "lost"
    """The connection or the process ended without an answer."""
    UNREACHABLE = "unreachable"
    """No connection, or an outage that some machine on the way reports."""


class Exchange(Struct, frozen=True):
    """What was sent and what came back, redacted and shortened: the evidence of a finding.

    Attributes:
        sent: over HTTP the request line, the headers that a check decides on, and the body; over stdio the line.
        received: the same of the answer, or a clause in parentheses saying why there is none.
        elapsed_ms: how long it took, in milliseconds.
    """

    sent: str
    received: str
    elapsed_ms: float


class Answer(Struct, frozen=True, kw_only=True):
    """What came back.

    Attributes:
        outcome: what became of it.
        exchange: the evidence.
        request_id: the id that was sent, or None.
        legacy: whether it was said under legacy rules.
        status: the HTTP status; None over stdio.
        headers: the HTTP headers, names in lower case.
        message: the reply as decoded JSON, or None.
        others: what else came in the same exchange, decoded: notifications, or requests of the server's.
        body: the raw body of an HTTP answer that is no event stream.
        stream_faults: what was wrong with the event stream that carried it.
        stream_ended: whether that stream ended after the reply; None if there was none.
    """

    outcome: Outcome
    exchange: Exchange
    request_id: RequestId | None = None
    legacy: bool = False
    status: int | None = None
    headers: Mapping[str, str] = {}
    message: dict[str, Any] | None = None
    others: tuple[Any, ...] = ()
    body: bytes = b""
    stream_faults: tuple[str, ...] = ()
    stream_ended: bool | None = None

    @property
    def result(self) -> dict[str, Any] | None:
        """The result, if the reply has one that is an object."""
        result = self.message.get("result") if self.message else None
        return result if isinstance(result, dict) else None

    @property
    def error(self) -> dict[str, Any] | None:
        """The error, if the reply has one that is an object."""
        error = self.message.get("error") if self.message else None
        return error if isinstance(error, dict) else None

    @property
    def code(self) -> int | None:
        """The error's code, or None."""
        code = self.error.get("code") if self.error else None
        return code if isinstance(code, int) and not isinstance(code, bool) else None

    @property
    def is_stream(self) -> bool:
        """Whether it came as an event stream."""
        return self.headers.get("content-type", "").startswith("text/event-stream")

    def shown(self) -> str:
        """The answer in a few words, for a finding's message."""
        status = f"HTTP {self.status}" if self.status is not None else ""
        if self.outcome is Outcome.REPLY:
            what = f"error {self.code}" if self.code is not None else "an error" if self.error else "a result"
        elif self.outcome is Outcome.OTHER:
            what = "no JSON-RPC reply"
        else:
            what = self.exchange.received.strip("()")
        return f"{status} with {what}" if status else what


class Pace:
    """Keeps checks from asking too fast and too much at once.

    Args:
        per_second: the most messages a second, or None for as fast as answers come.
    """

    def __init__(self, per_second: float | None) -> None:
        self._gap_s = 1 / per_second if per_second else 0.0
        self._next = 0.0
        self.slots = asyncio.Semaphore(_MAX_AT_ONCE)

    async def wait(self) -> None:
        """Returns when the next message may go."""
        now = time.monotonic()
        due = max(self._next, now)
        self._next = due + self._gap_s
        if due > now:
            await asyncio.sleep(due - now)


class Speaker(Protocol):
    """One connection to the server."""

    async def say(
        self,
        body: bytes,
        *,
        request_id: RequestId | None = None,
        headers: Mapping[str, str] | None = None,
        verb: str = "POST",
        legacy: bool = False,
        until: Callable[[Any], bool] | None = None,
        timeout_s: float | None = None,
    ) -> Answer:
        """Say something and wait for the answer; never raises for what the server does.

        Args:
            body: the bytes of the message.
            request_id: the id whose reply is waited for; None for a message that gets none.
            headers: over HTTP: all headers of the request but those of the connection. Ignored over stdio.
            verb: over HTTP: the method.
            legacy: marks the answer.
            until: what else ends the wait, given each notification as it comes.
            timeout_s: how long to wait, in seconds; None for the default.
        """
        ...

    async def close(self) -> None:
        """End the connection."""
        ...


def _decode(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.UNSET


def _cut(text: str) -> str:
    return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}… ({len(text):,} characters)"


class HttpSpeaker:
    """Speaks over one pool of HTTP connections. See `Speaker`."""

    def __init__(self, target: HttpTarget, options: ClientOptions, pace: Pace, timeout_s: float) -> None:
        self._target = target
        self._connection = HttpConnection(target, options)
        self._pace = pace
        self._timeout_s = timeout_s

    async def say(
        self,
        body: bytes,
        *,
        request_id: RequestId | None = None,
        headers: Mapping[str, str] | None = None,
        verb: str = "POST",
        legacy: bool = False,
        until: Callable[[Any], bool] | None = None,
        timeout_s: float | None = None,
    ) -> Answer:
        """See `Speaker.say`. A connection that cannot be had is tried once more."""
        answer = await self._say_once(body, request_id, headers or {}, verb, legacy, until, timeout_s)
        if answer.outcome in (Outcome.LOST, Outcome.UNREACHABLE):
            answer = await self._say_once(body, request_id, headers or {}, verb, legacy, until, timeout_s)
        return answer

    async def _say_once(
        self,
        body: bytes,
        request_id: RequestId | None,
        headers: Mapping[str, str],
        verb: str,
        legacy: bool,
        until: Callable[[Any], bool] | None,
        timeout_s: float | None,
    ) -> Answer:
        await self._pace.wait()
        async with self._pace.slots:
            started = time.monotonic()
            reading = _Reading(request_id, until)
            trouble, outcome = "", Outcome.OTHER
            try:
                async with asyncio.timeout(timeout_s or self._timeout_s):
                    await self._exchange(verb, headers, body, reading)
            except TimeoutError:
                trouble, outcome = f"no answer within {timeout_s or self._timeout_s:g} s", Outcome.SILENT
            except LimitExceeded as error:
                trouble = str(error)
            except ConnectionLost as error:
                trouble, outcome = str(error), Outcome.LOST
            except OutriderError as error:
                trouble, outcome = str(error), Outcome.UNREACHABLE
            if reading.reply is not None:
                outcome = Outcome.REPLY
            elif outcome is Outcome.OTHER and reading.status in _OUTAGES:
                outcome = Outcome.UNREACHABLE
            elapsed_ms = (time.monotonic() - started) * 1000
        if reading.stopped:
            outcome, trouble = Outcome.OTHER, ""
        return Answer(
            outcome=outcome,
            exchange=Exchange(self._show_sent(verb, headers, body), self._show_received(reading, trouble), elapsed_ms),
            request_id=request_id,
            legacy=legacy,
            status=reading.status,
            headers=reading.headers,
            message=reading.reply,
            others=tuple(reading.others),
            body=reading.body,
            stream_faults=tuple(reading.faults),
            stream_ended=reading.ended,
        )

    async def _exchange(self, verb: str, headers: Mapping[str, str], body: bytes, reading: _Reading) -> None:
        # Above a mebibyte aiohttp wants to be fed from a file, so that the event loop is not blocked meanwhile.
        fed: Any = io.BytesIO(body) if len(body) > 1 << 20 else body
        response = await self._connection.open(verb, headers, fed if verb == "POST" else None)
        try:
            reading.status = response.status
            reading.headers = {name.lower(): value for name, value in response.headers.items()}
            if response.content_type != "text/event-stream":
                reading.take_body(
                    await self._connection.read_body(response, self._connection.options.max_message_bytes)
                )
                return
            decoder = self._connection.event_decoder()
            reading.ended = False
            if verb != "POST":
                return  # A standing stream: that it was opened is all there is to know.
            while (events := await self._connection.next_events(response, decoder)) is not None:
                for event in events:
                    reading.take_event(event.data)
                if reading.is_done:
                    break
            else:
                reading.ended = True
            if reading.reply is not None and not reading.ended:
                try:
                    async with asyncio.timeout(_STREAM_END_S):
                        while (events := await self._connection.next_events(response, decoder)) is not None:
                            for event in events:
                                reading.take_event(event.data)
                    reading.ended = True
                except TimeoutError:
                    pass
        finally:
            if reading.ended is False:
                response.close()
            else:
                response.release()

    def _show_sent(self, verb: str, headers: Mapping[str, str], body: bytes) -> str:
        lines = [f"{verb} {self._target.label}", *(f"{name}: {value}" for name, value in headers.items())]
        text = "\n".join(lines) + (f"\n\n{body.decode(errors='replace')}" if verb == "POST" else "")
        return _cut(self._target.redact(text))

    def _show_received(self, reading: _Reading, trouble: str) -> str:
        if reading.status is None:
            return f"({trouble})"
        lines = [f"HTTP {reading.status}"]
        lines += [f"{name}: {value}" for name, value in reading.headers.items() if name in _SHOWN_HEADERS]
        text = "\n".join(lines) + "\n\n" + reading.shown.decode(errors="replace")
        return _cut(self._target.redact(text.strip())) + (f"\n({trouble})" if trouble else "")

    async def close(self) -> None:
        """See `Speaker.close`."""
        await self._connection.close()


class _Reading:
    """One HTTP answer as it comes in."""

    def __init__(self, request_id: RequestId | None, until: Callable[[Any], bool] | None) -> None:
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.reply: dict[str, Any] | None = None
        self.others: list[Any] = []
        self.faults: list[str] = []
        self.body = b""
        self.shown = b""
        self.ended: bool | None = None
        self.stopped = False
        self._request_id = request_id
        self._until = until

    @property
    def is_done(self) -> bool:
        return self.reply is not None or self.stopped

    def take_body(self, data: bytes) -> None:
        self.body = self.shown = data
        message = _decode(data)
        # One exchange carries one reply, whatever its id: a wrong one is a finding of its own.
        if isinstance(message, dict) and ("result" in message or "error" in message):
            self.reply = message

    def take_event(self, data: bytes) -> None:
        if len(self.shown) < _EXCERPT:
            self.shown += b"data: " + data + b"\n"
        message = _decode(data)
        if message is msgspec.UNSET:
            self.faults.append(f"an event's data is not JSON: {data[:60]!r}")
        elif not isinstance(message, dict):
            self.faults.append("an event holds something else than one message")
        elif self.reply is None and "method" not in message and ("result" in message or "error" in message):
            self.reply = message
        else:
            if self.reply is not None:
                self.faults.append("an event follows the reply")
            self.others.append(message)
            if self._until is not None and self._until(message):
                self.stopped = True


class StdioSpeaker:
    """Speaks to one process of its own. See `Speaker`; start one with `StdioSpeaker.start`.

    Attributes:
        noise: lines of stdout that are no messages, redacted; at most 40.
        strays: decoded messages that answer no request of ours.
        started: when the process was started, on the monotonic clock.
    """

    def __init__(
        self, target: StdioTarget, process: StdioProcess, pace: Pace, *, timeout_s: float, start_timeout_s: float
    ) -> None:
        self.noise: list[str] = []
        self.strays: list[Any] = []
        self.started = time.monotonic()
        self._redact: Redactor = target.redact
        self._process = process
        self._pace = pace
        self._timeout_s = timeout_s
        # Until it has said anything, a process may still be starting, or be installed; nothing may be concluded from its silence.
        self._first_timeout_s = max(timeout_s, start_timeout_s)
        self._has_spoken = False
        self._waiting: dict[RequestId, asyncio.Future[dict[str, Any]]] = {}
        self._watchers: dict[RequestId, tuple[list[Any], Callable[[Any], bool] | None]] = {}
        self._ended: str = ""
        self._noise_before = 0
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, target: StdioTarget, options: ClientOptions, pace: Pace, timeout_s: float) -> StdioSpeaker:
        """Start the process.

        Raises:
            ConnectFailed: it cannot be started.
        """
        process = await StdioProcess.start(target, options)
        return cls(target, process, pace, timeout_s=timeout_s, start_timeout_s=options.start_timeout_s)

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return bool(self._ended)

    @property
    def stderr_bytes(self) -> int:
        """How much the process has written to stderr so far."""
        return self._process.stderr_bytes

    async def say(
        self,
        body: bytes,
        *,
        request_id: RequestId | None = None,
        headers: Mapping[str, str] | None = None,
        verb: str = "POST",
        legacy: bool = False,
        until: Callable[[Any], bool] | None = None,
        timeout_s: float | None = None,
    ) -> Answer:
        """See `Speaker.say`. With `until`, the wait ends at the notification that it accepts."""
        await self._pace.wait()
        async with self._pace.slots:
            started = time.monotonic()
            others: list[Any] = []
            future: asyncio.Future[dict[str, Any]] | None = None
            if request_id is not None and not self._ended:
                future = asyncio.get_running_loop().create_future()
                self._waiting[request_id] = future
                self._watchers[request_id] = (others, until)
            message: dict[str, Any] | None = None
            limit_s = timeout_s or (self._timeout_s if self._has_spoken else self._first_timeout_s)
            outcome, received = Outcome.OTHER, "(nothing is expected)"
            try:
                if self._ended:
                    outcome, received = Outcome.LOST, f"({self._ended})"
                else:
                    await self._process.send(body)
                    if future is not None:
                        async with asyncio.timeout(limit_s):
                            message = await future
            except TimeoutError:
                outcome, received = Outcome.SILENT, f"(no answer within {limit_s:g} s)"
                message = self._claim_error_without_id()
            except OutriderError as error:
                outcome, received = Outcome.LOST, f"({error})"
            finally:
                if request_id is not None:
                    self._waiting.pop(request_id, None)
                    self._watchers.pop(request_id, None)
            elapsed_ms = (time.monotonic() - started) * 1000
        if message is not None:
            is_reply = "result" in message or "error" in message
            outcome = Outcome.REPLY if is_reply else Outcome.OTHER
            received = msgspec.json.encode(message).decode()
            message = message if is_reply else None
        sent = body.decode(errors="replace")
        return Answer(
            outcome=outcome,
            exchange=Exchange(_cut(self._redact(sent)), _cut(self._redact(received)), elapsed_ms),
            request_id=request_id,
            legacy=legacy,
            message=message,
            others=tuple(others),
        )

    async def say_unreadable(self, body: bytes, then: bytes, then_id: RequestId) -> tuple[Answer, Answer]:
        """Say something that cannot be correlated, then a good request.

        Returns:
            What came without a usable id before the good request's reply (or a moment after it), as if it were the reply; and that reply.
        """
        first = len(self.strays)
        unanswered = await self.say(body)
        following = await self.say(then, request_id=then_id)
        if len(self.strays) == first and following.outcome is Outcome.REPLY:
            await asyncio.sleep(_STRAY_GRACE_S)
        for stray in self.strays[first:]:
            if (isinstance(stray, dict) and ("error" in stray or "result" in stray)) or isinstance(stray, list):
                shown = _cut(self._redact(msgspec.json.encode(stray).decode()))
                return (
                    Answer(
                        outcome=Outcome.REPLY if isinstance(stray, dict) else Outcome.OTHER,
                        exchange=Exchange(unanswered.exchange.sent, shown, unanswered.exchange.elapsed_ms),
                        message=stray if isinstance(stray, dict) else None,
                        body=b"[" if isinstance(stray, list) else b"",
                    ),
                    following,
                )
        shown = "(nothing; the next request was answered)" if following.message else following.exchange.received
        silent = Answer(
            outcome=Outcome.SILENT,
            exchange=Exchange(unanswered.exchange.sent, shown, following.exchange.elapsed_ms),
        )
        return silent, following

    async def _read(self) -> None:
        pending = b""
        async for line in self._process.lines():
            if isinstance(line, Overflow):
                self._keep_noise("a line longer than the limit")
                continue
            message = _decode(line)
            if message is msgspec.UNSET or not isinstance(message, dict | list):
                pending = self._take_noise(pending, line)
                continue
            pending = b""
            self._has_spoken = True
            self._take(message)
        status = await self._process.wait_exit()
        self._ended = f"the process {status}"
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(OutriderError(self._ended))

    def _take_noise(self, pending: bytes, line: bytes) -> bytes:
        """Keeps a line that is no message, or finds that it is the end of one that began lines before; returns what may go on."""
        if not pending:
            self._noise_before = len(self.noise)
        together = pending + line + b"\n"
        whole = _decode(together) if pending and line.rstrip().endswith(b"}") else msgspec.UNSET
        if isinstance(whole, dict) and "jsonrpc" in whole:
            del self.noise[self._noise_before :]
            self._keep_noise(f"{SPREAD}{together[:80].decode(errors='replace')!r}")
            self._take(whole)
            return b""
        self._keep_noise(self._redact(line.decode(errors="replace"))[:200])
        is_open = pending or line.lstrip().startswith(b"{")
        return together if is_open and len(together) < _MAX_SPREAD_BYTES else b""

    def _claim_error_without_id(self) -> dict[str, Any] | None:
        """The oldest error without an id that nobody has claimed: more likely than not the answer to what went unanswered."""
        for stray in self.strays:
            if isinstance(stray, dict) and stray.get("error") is not None and stray.get("id") is None:
                self.strays.remove(stray)
                return stray
        return None

    def _keep_noise(self, text: str) -> None:
        if len(self.noise) < _MAX_NOISE:
            self.noise.append(text)

    def _take(self, message: Any) -> None:
        if isinstance(message, dict) and "method" not in message:
            request_id = message.get("id")
            if isinstance(request_id, str) and request_id.isdecimal() and request_id not in self._waiting:
                request_id = int(request_id)  # Wrong, and a finding; but plainly meant.
            if isinstance(request_id, int | str) and request_id in self._waiting:
                future = self._waiting.pop(request_id)
                if not future.done():
                    future.set_result(message)
                return
        self.strays.append(message)
        if isinstance(message, dict) and "method" in message:
            for waiting_id, (others, until) in list(self._watchers.items()):
                others.append(message)
                if until is not None and until(message) and waiting_id in self._waiting:
                    self._waiting.pop(waiting_id).set_result(message)

    async def close(self) -> None:
        """See `Speaker.close`."""
        await self.end()

    async def end(self) -> tuple[ExitStatus, float]:
        """End the input and wait for the process: how it ended, and after how many seconds."""
        started = time.monotonic()
        status = await self._process.close()
        elapsed_s = time.monotonic() - started
        await asyncio.wait([self._reader])
        return status, elapsed_s


SPREAD: Final = "a message spread over several lines: "
"""How a line of noise begins that was part of a message written with line breaks."""
