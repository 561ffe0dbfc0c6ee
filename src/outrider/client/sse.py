"""HTTP+SSE, the transport of 2024-11-05, client side: one event stream from the server, a POST for each message to it.

Decided here: how that transport is opened and used. It is tried only after Streamable HTTP was refused with 400, 404 or 405, or when a
configuration says that a URL speaks it. Deprecated since 2025-03-26; nothing else depends on this module.

Spec: 2024-11-05 basic/transports#http-with-sse
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from urllib.parse import urljoin, urlsplit

import aiohttp

from outrider.client.channel import Correlator, Incoming, Outgoing, Reply
from outrider.client.http import HttpConnection, challenge_of
from outrider.client.target import ClientOptions, HttpTarget
from outrider.errors import (
    AuthRequired,
    ConnectionLost,
    HttpRejected,
    OutriderError,
    RemoteProtocolError,
    TransportError,
    Unavailable,
)
from outrider.protocol.framing import EventDecoder, ServerSentEvent
from outrider.protocol.jsonrpc import (
    ErrorReply,
    Message,
    Notification,
    Request,
    ResultReply,
    broken_reply_id,
    decode_messages,
    encode_notification,
)
from outrider.redaction import show_url

__all__ = ["SseChannel"]


class SseChannel:
    """See `Channel`. Open one with `SseChannel.open`."""

    transport = "http+sse"
    stdio = False
    batches = False

    def __init__(self, target: HttpTarget, connection: HttpConnection) -> None:
        self.on_incoming: Callable[[Incoming], None] = lambda _: None
        self.warnings: list[str] = ["the server speaks only the HTTP+SSE transport, deprecated since 2025-03-26"]
        self._target = target
        self._connection = connection
        self._replies = Correlator(target.redact)
        self._endpoint: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._reader: asyncio.Task[None] | None = None

    @property
    def credential_sent(self) -> bool:
        """See `Channel`."""
        return self._connection.credential_sent

    @classmethod
    async def open(cls, target: HttpTarget, options: ClientOptions) -> SseChannel:
        """Open the event stream and wait for the endpoint it names.

        Raises:
            TransportError: the URL does not speak this transport either.
            RemoteProtocolError: it names an endpoint of another origin.
        """
        connection = HttpConnection(target, options)
        channel = cls(target, connection)
        try:
            response = await connection.open("GET", {"Accept": "text/event-stream"})
            if response.status != 200 or response.content_type != "text/event-stream":
                raise await channel._refused(response, "a GET for an event stream")
            channel._reader = asyncio.create_task(channel._read(response), name=f"outrider sse {target.label[:40]}")
            await channel._endpoint
        except BaseException:
            await channel.close()
            raise
        return channel

    async def _refused(self, response: aiohttp.ClientResponse, what: str) -> TransportError:
        status = response.status
        excerpt = await self._connection.excerpt(response)
        message = f"{self._target.label} answered {status} to {what}" + (f": {excerpt[:200]}" if excerpt else "")
        if status in (401, 403):
            asked = challenge_of(response)
            return AuthRequired(
                message,
                status=status,
                challenge=self._target.redact(asked.header),
                credential_sent=self.credential_sent,
                refused=asked.refused,
            )
        if status in (408, 425, 429) or status >= 500:
            return Unavailable(message, status=status)
        return HttpRejected(message, status=status, excerpt=excerpt)

    async def request(self, outgoing: Outgoing) -> Reply:
        """See `Channel.request`. Cancelling sends `notifications/cancelled`, unless the request is not cancellable."""
        future = self._replies.expect(outgoing.id)
        try:
            if not future.done():
                await self.send(outgoing.encoded(), outgoing.headers)
            return Reply(await future)
        except asyncio.CancelledError:
            if outgoing.cancellable and self._replies.failure is None:
                cancelled = encode_notification("notifications/cancelled", {"requestId": outgoing.id})
                task = asyncio.ensure_future(self.send(cancelled, outgoing.headers))
                task.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise
        finally:
            self._replies.forget(outgoing.id)

    async def send(self, message: bytes, headers: Mapping[str, str]) -> None:
        """See `Channel.send`."""
        self._connection.trace(">", message)
        endpoint = await self._endpoint
        response = await self._connection.open(
            "POST", {"Content-Type": "application/json", **headers}, message, url=endpoint
        )
        try:
            if response.status >= 300:
                raise await self._refused(response, "a message")
        finally:
            response.release()

    def strays(self) -> str:
        """See `Channel.strays`."""
        return self._replies.strays()

    def stderr_tail(self) -> tuple[str, ...]:
        """See `Channel.stderr_tail`."""
        return ()

    async def close(self) -> None:
        """See `Channel.close`."""
        self._replies.fail(ConnectionLost("the connection was closed"))
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader])
        if not self._endpoint.done():
            self._endpoint.cancel()
        await self._connection.close()

    async def _read(self, response: aiohttp.ClientResponse) -> None:
        decoder = self._connection.event_decoder()
        failure: OutriderError = ConnectionLost(f"{self._target.label} ended its event stream")
        try:
            await self._read_events(response, decoder)
        except OutriderError as error:
            failure = error
        finally:
            response.close()
            if not self._endpoint.done():
                self._endpoint.set_exception(failure)
                self._endpoint.exception()
            self._replies.fail(failure if isinstance(failure, TransportError) else ConnectionLost(str(failure)))

    async def _read_events(self, response: aiohttp.ClientResponse, decoder: EventDecoder) -> None:
        while (batch := await self._connection.next_events(response, decoder)) is not None:
            for event in batch:
                if event.event == "endpoint":
                    self._adopt_endpoint(event)
                    continue
                self._connection.trace("<", event.data)
                for message in decode_messages(event.data, batches=self.batches):
                    self._take(event.data, message)

    def _take(self, data: bytes, message: Message) -> None:
        if isinstance(message, ResultReply | ErrorReply):
            self._replies.deliver(message)
        elif isinstance(message, Request | Notification):
            self.on_incoming(message)
        elif (request_id := broken_reply_id(data, message)) is not None:
            self._replies.reject(
                request_id,
                RemoteProtocolError(
                    f"the answer cannot be read: {message.reason}",
                    rule="2024-11-05 basic/transports#messages (MUST)",
                ),
            )

    def _adopt_endpoint(self, event: ServerSentEvent) -> None:
        if self._endpoint.done():
            return
        endpoint = urljoin(self._target.url, event.data.decode(errors="replace").strip())
        ours, theirs = urlsplit(self._target.url), urlsplit(endpoint)
        if (ours.scheme, ours.netloc) != (theirs.scheme, theirs.netloc):
            # Our headers, credentials among them, would go to whomever the server names.
            raise RemoteProtocolError(
                f"{self._target.label} names an endpoint of another origin, {show_url(endpoint)}",
                rule="2024-11-05 basic/transports#http-with-sse",
            )
        self._endpoint.set_result(endpoint)
