"""What every transport offers to the layer above: send a request and get its reply, hear what comes unasked, close.

Decided here: how replies find their requests on a shared stream, and what becomes of replies that nobody waits for. Not here: bytes and
processes (`pipe`, `http`, `sse`), the meaning of replies (`opening`, `session`).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, runtime_checkable

from msgspec import Struct

from outrider.errors import LocalProtocolError, OutriderError, TransportError
from outrider.protocol.jsonrpc import (
    ErrorReply,
    Notification,
    Request,
    RequestId,
    ResultReply,
    encode_request,
    is_request_id,
    same_id,
)

__all__ = ["Channel", "Correlator", "Incoming", "Outgoing", "Reply", "SessionChannel", "call_back"]

Incoming = Request | Notification
"""What a peer sends on its own account."""

_REMEMBERED_IDS: Final = 1_000
_REMEMBERED_STRAYS: Final = 5


def call_back(callback: Callable[..., object], *arguments: object) -> None:
    """Call a function of the caller's. If it fails, the event loop's exception handler is told, and the connection lives on."""
    try:
        callback(*arguments)
    except Exception as error:
        trouble = {"message": f"the callback {callback!r} failed", "exception": error}
        asyncio.get_running_loop().call_exception_handler(trouble)


class Outgoing(Struct, frozen=True):
    """A request on its way out.

    Attributes:
        id: its id, never used before on this channel.
        method: its method.
        params: its params as they go on the wire, `_meta` included.
        headers: HTTP headers beyond the target's own; without meaning on a pipe.
        cancellable: whether giving up on it is told to the server. Spec: 2025-11-25 basic/utilities/cancellation (initialize MUST NOT)
    """

    id: RequestId
    method: str
    params: Mapping[str, Any]
    headers: Mapping[str, str] = {}
    cancellable: bool = True

    def encoded(self) -> bytes:
        """The request as one line of JSON without the newline.

        Raises:
            LocalProtocolError: the params hold something that JSON cannot.
        """
        try:
            return encode_request(self.id, self.method, self.params)
        except (TypeError, ValueError, RecursionError) as error:
            raise LocalProtocolError(f"the params of {self.method[:100]!r} cannot be sent as JSON: {error}") from error


class Reply(Struct, frozen=True):
    """A reply and the HTTP status that carried it, None on a pipe. `headers` are the response's, with lower-case names."""

    message: ResultReply | ErrorReply
    status: int | None = None
    headers: Mapping[str, str] = {}


class Channel(Protocol):
    """One connection to one server, whatever carries it. Methods may be called from many tasks at once.

    Attributes:
        transport: "stdio", "streamable-http" or "http+sse".
        stdio: whether it is a pipe to a process of ours.
        on_incoming: called for every request and notification of the peer's, in order of arrival; must not block or raise.
        warnings: what the transport had to overlook, for reports.
        batches: whether several messages may come as one JSON array.
    """

    transport: str
    stdio: bool
    batches: bool
    on_incoming: Callable[[Incoming], None]
    warnings: list[str]

    @property
    def credential_sent(self) -> bool:
        """Whether requests carry a credential."""
        ...

    async def request(self, outgoing: Outgoing) -> Reply:
        """Send a request and wait for its reply.

        Cancelling the wait tells the server, in the way of the transport, unless the request is not cancellable.

        Raises:
            TransportError: no reply came; the subclass says why.
            RemoteProtocolError: something came that is not a reply.
        """
        ...

    async def send(self, message: bytes, headers: Mapping[str, str]) -> None:
        """Send a notification, or a reply to a legacy server's request.

        Raises:
            TransportError: it could not be sent.
        """
        ...

    def strays(self) -> str:
        """A clause about replies whose id fits no request, such as "; it answered with unknown id 9999", or ""."""
        ...

    def stderr_tail(self) -> tuple[str, ...]:
        """The last lines a process wrote to stderr, redacted; () for a network connection."""
        ...

    async def close(self) -> None:
        """Close for good and free everything; from any task, any number of times."""
        ...


@runtime_checkable
class SessionChannel(Channel, Protocol):
    """A channel with the extras of legacy Streamable HTTP.

    Attributes:
        resumable: whether a response stream that breaks off is resumed with `Last-Event-ID`.
    """

    resumable: bool

    async def listen_get(self, headers: Mapping[str, str]) -> None:
        """Keep the standing GET stream open and dispatch what comes, until cancelled or refused."""
        ...

    async def delete(self, headers: Mapping[str, str]) -> None:
        """End the session; what the server answers does not matter."""
        ...


class Correlator:
    """Finds the request that a reply on a shared stream belongs to.

    Ids are not reused on a stream, so a reply to a request that was given up is known as such and dropped; only an id that never was is
    worth a warning. Spec: 2026-07-28 basic/index#responses (MUST), basic/patterns/cancellation#behavior-requirements (SHOULD ignore)

    Args:
        redact: masks the target's secrets: an id is a text of the peer's like any other.
    """

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._waiting: dict[RequestId, asyncio.Future[ResultReply | ErrorReply]] = {}
        self._closed: OrderedDict[RequestId, None] = OrderedDict()
        self._strays: list[str] = []
        self._failure: TransportError | None = None

    def expect(self, request_id: RequestId) -> asyncio.Future[ResultReply | ErrorReply]:
        """A future for the reply to `request_id`; already failed when the stream has."""
        future: asyncio.Future[ResultReply | ErrorReply] = asyncio.get_running_loop().create_future()
        if self._failure is not None:
            future.set_exception(self._failure)
        else:
            self._waiting[request_id] = future
        return future

    def forget(self, request_id: RequestId) -> None:
        """Nobody waits for `request_id` any more."""
        self._waiting.pop(request_id, None)
        self._close(request_id)

    def deliver(self, reply: ResultReply | ErrorReply) -> None:
        """Hand a reply to whoever waits for it."""
        request_id = self._match(reply.id)
        if request_id is None and reply.id is None and isinstance(reply, ErrorReply) and len(self._waiting) == 1:
            # What JSON-RPC prescribes for a request whose id could not be read; there is only one that it can be.
            request_id = next(iter(self._waiting))
        future = self._waiting.pop(request_id, None) if request_id is not None else None
        if request_id is None or future is None:
            if request_id not in self._closed and len(self._strays) < _REMEMBERED_STRAYS:
                self._strays.append(_show_id(reply, self._redact))
            return
        self._close(request_id)
        if not future.done():
            future.set_result(reply)

    def reject(self, request_id: RequestId, failure: OutriderError) -> bool:
        """The answer to one request came and is of no use; whether anybody was waiting for it."""
        future = self._waiting.pop(request_id, None)
        if future is None:
            return False
        self._close(request_id)
        if not future.done():
            future.set_exception(failure)
            future.exception()
        return True

    def fail(self, failure: TransportError) -> None:
        """The stream is gone: every waiting request, and each one to come, gets `failure`."""
        if self._failure is None:
            self._failure = failure
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(failure)
                # A request that is being cancelled this very moment never looks at it.
                future.exception()

    @property
    def failure(self) -> TransportError | None:
        """Why the stream is gone, or None while it is not."""
        return self._failure

    def strays(self) -> str:
        """See `Channel.strays`."""
        return f"; it answered with unknown id {', '.join(self._strays)}" if self._strays else ""

    def _match(self, received: object) -> RequestId | None:
        if is_request_id(received) and (received in self._waiting or received in self._closed):
            return received  # type: ignore[return-value]
        # The one tolerance of `same_id`: our number as a digit string.
        if type(received) is str and received.isdecimal() and len(received) < 19:
            number = int(received)
            if same_id(number, received) and (number in self._waiting or number in self._closed):
                return number
        return None

    def _close(self, request_id: RequestId) -> None:
        self._closed[request_id] = None
        if len(self._closed) > _REMEMBERED_IDS:
            self._closed.popitem(last=False)


def _show_id(reply: ResultReply | ErrorReply, redact: Callable[[str], str]) -> str:
    text = redact(repr(reply.id)) if reply.id is not None else "null"
    return text if len(text) <= 40 else text[:37] + "..."
