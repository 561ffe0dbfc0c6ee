"""Bytes to whole messages and back: newline-delimited lines (stdio) and event streams (Streamable HTTP, HTTP+SSE).

Decided here: where a message starts and ends, in any chunking, and what happens to one that is too long. Not here: what a message
means (`jsonrpc`), or whether a line is UTF-8 or JSON at all: lines are handed on as bytes, so one bad line is one bad message.

Both decoders hold at most about their limit in memory, whatever the peer sends, and find back into step after an over-long
message: its rest is thrown away, never taken for a message of its own.

Spec: 2026-07-28 basic/transports/stdio, basic/transports/streamable-http#receiving-messages; the WHATWG event-stream format. Pure.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from outrider.errors import LocalProtocolError

__all__ = [
    "KEEP_ALIVE",
    "MAX_MESSAGE_BYTES",
    "EventDecoder",
    "LineDecoder",
    "Overflow",
    "ServerSentEvent",
    "encode_comment",
    "encode_event",
    "encode_line",
]

MAX_MESSAGE_BYTES: Final = 32 * 1024 * 1024
"""Default limit for one message: above any list or embedded resource seen in use, far below what hurts a machine."""

KEEP_ALIVE: Final = b":\n\n"
"""A comment that keeps an idle event stream from being cut by intermediaries. Spec: streamable-http#receiving-messages."""

_EXCERPT_BYTES: Final = 200
_BOM: Final = b"\xef\xbb\xbf"
_DATA_PREFIX_BYTES: Final = len(b"data: ")
# Twelve digits are thirty years. A longer number is no waiting time, and int() refuses thousands of digits.
_MAX_RETRY_DIGITS: Final = 12
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")


class Overflow(msgspec.Struct, frozen=True):
    """Stands in the place of one message that was longer than the limit and was thrown away.

    It is reported as soon as the limit is passed, not when the message ends: an endless one never does.

    Attributes:
        limit: the limit that was passed, in bytes.
        excerpt: at most the first 200 bytes of the message, to tell a person which one it was.
    """

    limit: int
    excerpt: bytes


class LineDecoder:
    r"""Cuts a byte stream into lines.

    A line ends with LF; one CR before it belongs to the line end. A byte order mark at the very start of the stream is dropped.
    Empty lines are handed on like any other.

    Args:
        max_line_bytes: the longest line handed on, without its line end.

    Spec: 2026-07-28 basic/transports/stdio (messages are delimited by newlines); the limit and the leniency are ours.
    """

    __slots__ = ("_discarding", "_first", "_limit", "_pending")

    def __init__(self, *, max_line_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._limit = max_line_bytes
        self._pending = bytearray()
        self._discarding = False
        self._first = True

    def feed(self, chunk: bytes) -> list[bytes | Overflow]:
        """The lines that `chunk` completes, in order, with an `Overflow` in the place of each one that is too long."""
        done: list[bytes | Overflow] = []
        *complete, rest = chunk.split(b"\n")
        for line in complete:
            if self._discarding:
                self._discarding = False
                continue
            if self._pending:
                self._pending += line
                line = bytes(self._pending)
                self._pending.clear()
            self._finish_line(line, done)
        if rest and not self._discarding:
            self._pending += rest
            pending = self._pending
            # One byte above the limit may yet turn out to be the CR of the line end.
            if len(pending) > self._limit + 1 or (len(pending) > self._limit and pending[-1] != 0x0D):
                done.append(Overflow(self._limit, bytes(pending[:_EXCERPT_BYTES])))
                pending.clear()
                self._discarding = True
                self._first = False
        return done

    def end(self) -> list[bytes | Overflow]:
        """What the end of the stream completes: a last line without its newline, if there is one.

        A server that dies in the middle of a line leaves half a message; it is handed on because it is the best hint of why.
        """
        done: list[bytes | Overflow] = []
        if self._pending:
            line = bytes(self._pending)
            self._pending.clear()
            self._finish_line(line, done)
        return done

    def _finish_line(self, line: bytes, done: list[bytes | Overflow]) -> None:
        if line.endswith(b"\r"):
            line = line[:-1]
        if len(line) > self._limit:
            done.append(Overflow(self._limit, line[:_EXCERPT_BYTES]))
        else:
            done.append(line.removeprefix(_BOM) if self._first else line)
        self._first = False


def encode_line(message: bytes) -> bytes:
    r"""One JSON message as one line, with its newline.

    Line ends inside JSON can only be white space between tokens (inside a string they are escaped), so they become spaces: a
    message that came pretty-printed from another server can be passed on without decoding it.

    Spec: 2026-07-28 basic/transports/stdio (MUST NOT contain embedded newlines)
    """
    if b"\n" in message:
        message = message.replace(b"\n", b" ")
    if b"\r" in message:
        message = message.replace(b"\r", b" ")
    return message + b"\n"


class ServerSentEvent(msgspec.Struct, frozen=True, gc=False):
    """One event of a stream.

    Attributes:
        event: the event's name; "message" if the stream gives none.
        data: the data lines, joined by newlines.
        id: the last event id of the stream at this event, or None if it has had none. It may come from an earlier event.
        retry_ms: the reconnection time that this event's block set, in milliseconds, or None.
    """

    event: str
    data: bytes
    id: str | None = None
    retry_ms: int | None = None


class EventDecoder:
    """Cuts an event stream into events, by the whole WHATWG grammar.

    An event is complete at its blank line; one that the stream's end cuts off is never handed on.

    Args:
        max_event_bytes: the longest data of one event, and the longest single line, that is kept. A comment may be longer: it is
            skipped. For anything else that is longer the event is thrown away up to its blank line.

    Attributes:
        last_event_id: what a reconnection sends as `Last-Event-ID`: the last id whose event block was completed, or None.
            An event thrown away for its size counts, or a reconnection would get it again and again.
        retry_ms: the reconnection time the server last asked for, in milliseconds, or None.

    Spec: 2026-07-28 basic/transports/streamable-http#receiving-messages; the limit is ours.
    """

    __slots__ = (
        "_data",
        "_discarding_event",
        "_discarding_line",
        "_event",
        "_id",
        "_limit",
        "_pending",
        "_retry",
        "_start",
        "_swallow_lf",
        "last_event_id",
        "retry_ms",
    )

    def __init__(self, *, max_event_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self.last_event_id: str | None = None
        self.retry_ms: int | None = None
        self._limit = max_event_bytes
        self._start: bytes | None = b""  # the first bytes, until it is known whether they are a BOM
        self._swallow_lf = False  # the last chunk ended in CR: an LF at the start of the next belongs to it
        self._pending = bytearray()
        self._discarding_line = False
        self._discarding_event = False
        self._data: bytes | bytearray | None = None
        self._event = b""
        self._id: str | None = None
        self._retry: int | None = None

    def feed(self, chunk: bytes) -> list[ServerSentEvent | Overflow]:
        """The events that `chunk` completes, in order, with an `Overflow` in the place of each one that is too long."""
        done: list[ServerSentEvent | Overflow] = []
        if self._start is not None:
            self._start += chunk
            if len(self._start) < len(_BOM) and _BOM.startswith(self._start):
                return done
            chunk, self._start = self._start.removeprefix(_BOM), None
        if not chunk:
            return done
        if self._swallow_lf:
            self._swallow_lf = False
            chunk = chunk.removeprefix(b"\n")
        if b"\r" in chunk:
            self._swallow_lf = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *complete, rest = chunk.split(b"\n")
        for line in complete:
            if self._discarding_line:
                self._discarding_line = False
                continue
            if self._pending:
                self._pending += line
                line = bytes(self._pending)
                self._pending.clear()
            if not line:
                self._dispatch(done)
            elif len(line) > self._limit + _DATA_PREFIX_BYTES:
                self._skip_long_line(line, done)
            else:
                self._field(line, done)
        if rest and not self._discarding_line:
            self._pending += rest
            if len(self._pending) > self._limit + _DATA_PREFIX_BYTES:
                self._discarding_line = True
                self._skip_long_line(bytes(self._pending[:_EXCERPT_BYTES]), done)
                self._pending.clear()
        return done

    def _field(self, line: bytes, done: list[ServerSentEvent | Overflow]) -> None:
        if line.startswith(b"data:"):
            self._add_data(line[6:] if line.startswith(b"data: ") else line[5:], done)
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            self._event = value
        elif name == b"id":
            if b"\0" not in value:
                self._id = value.decode("utf-8", "replace")
        elif name == b"retry":
            if value.isdigit() and len(value) <= _MAX_RETRY_DIGITS:
                self._retry = self.retry_ms = int(value)
        elif name == b"data":
            self._add_data(b"", done)

    def _add_data(self, value: bytes, done: list[ServerSentEvent | Overflow]) -> None:
        if self._discarding_event:
            return
        if self._data is None:
            self._data = value
        else:
            # One growing buffer: a list of a million empty lines would weigh many times what the limit counts.
            if isinstance(self._data, bytes):
                self._data = bytearray(self._data)
            self._data += b"\n"
            self._data += value
        if len(self._data) > self._limit:
            self._overflow(bytes(self._data[:_EXCERPT_BYTES]), done)

    def _dispatch(self, done: list[ServerSentEvent | Overflow]) -> None:
        if self._id is not None:
            self.last_event_id = self._id
        if self._data is not None:
            event = self._event.decode("utf-8", "replace") if self._event else "message"
            done.append(ServerSentEvent(event, bytes(self._data), self.last_event_id, self._retry))
            self._data = None
        self._event = b""
        self._retry = None
        self._discarding_event = False

    def _skip_long_line(self, start: bytes, done: list[ServerSentEvent | Overflow]) -> None:
        if not start.startswith(b":") and not self._discarding_event:
            self._overflow(start, done)

    def _overflow(self, start: bytes, done: list[ServerSentEvent | Overflow]) -> None:
        done.append(Overflow(self._limit, start[:_EXCERPT_BYTES]))
        self._data = None
        self._discarding_event = True


def encode_event(data: bytes, *, event: str | None = None, id: str | None = None, retry_ms: int | None = None) -> bytes:
    """One event as bytes, with its blank line.

    Args:
        data: the payload; line ends in it (LF, CR or both) arrive as LF.
        event: the event's name, or None for the default, "message".
        id: the event id, or None to leave the stream's last id as it is.
        retry_ms: the reconnection time to ask for, or None.

    Raises:
        LocalProtocolError: `event` or `id` holds a line end, or `id` a NUL: neither can be carried.
    """
    head = b""
    if event is not None:
        head += b"event: " + _one_line("event", event) + b"\n"
    if id is not None:
        if "\0" in id:
            raise LocalProtocolError("an event id cannot hold a NUL character")
        head += b"id: " + _one_line("id", id) + b"\n"
    if retry_ms is not None:
        head += b"retry: %d\n" % retry_ms
    if b"\n" in data or b"\r" in data:
        return head + b"".join(b"data: " + line + b"\n" for line in _LINE_END.split(data)) + b"\n"
    return head + b"data: " + data + b"\n\n"


def encode_comment(text: str) -> bytes:
    """A comment line that a person reading the stream sees and a client ignores; each line of `text` becomes one."""
    return b"".join(b": " + line + b"\n" for line in _LINE_END.split(text.encode())) + b"\n"


def _one_line(field: str, value: str) -> bytes:
    if "\n" in value or "\r" in value:
        raise LocalProtocolError(f"an event's {field} cannot hold a line end")
    return value.encode()
