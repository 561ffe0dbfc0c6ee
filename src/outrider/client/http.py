"""Streamable HTTP, client side: one POST per message, answered by JSON or by an event stream.

Decided here: how a POST is made and its answer read within limits, redirects, proxies, what each HTTP status becomes. Not here: which
headers a request carries (`protocol.headers`, `session`), and what a status says about the era (`protocol.negotiation`).

The legacy extras (a GET stream, resuming a stream, DELETE) are the last methods of `HttpChannel`; `session` calls them.

Spec: 2026-07-28 basic/transports/streamable-http; 2025-11-25 basic/transports#streamable-http
"""

from __future__ import annotations

import asyncio
import os
import socket
import urllib.request
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urljoin, urlsplit

import aiohttp
import aiohttp.abc
from aiohttp.abc import ResolveResult

from outrider.client.auth.authorizer import Challenge, token_mark
from outrider.client.channel import Incoming, Outgoing, Reply, call_back
from outrider.client.refusals import EXCERPT_BYTES, TRANSIENT_STATUSES, denied, quoted, rejected, unavailable
from outrider.client.target import ClientOptions, HttpTarget
from outrider.errors import (
    AuthRequired,
    ConnectFailed,
    ConnectionLost,
    HttpRejected,
    LimitExceeded,
    RemoteProtocolError,
    StreamEnded,
    TransportError,
)
from outrider.protocol.framing import EventDecoder, Overflow, ServerSentEvent
from outrider.protocol.jsonrpc import (
    ErrorReply,
    Malformed,
    Message,
    Notification,
    Request,
    RequestId,
    ResultReply,
    broken_reply_id,
    decode_message,
    decode_messages,
    same_id,
)
from outrider.redaction import secrets_of, show_url, unfilled

__all__ = ["HttpChannel", "HttpConnection", "LocalhostResolver", "challenge_of", "proxy_for"]

_ACCEPT: Final = "application/json, text/event-stream"
_MAX_REDIRECTS: Final = 3
_NO_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, connect=None, sock_connect=30.0, sock_read=None)
_DEFAULT_RETRY_S: Final = 1.0
_MAX_RETRY_S: Final = 30.0
_MAX_RESUMES: Final = 10
_REPLIES: Final = (ResultReply, ErrorReply)


class HttpConnection:
    """The connection pool of one target, with its proxy choice and its credentials; what all HTTP transports share.

    Args:
        target: where to; its headers go to its own origin only.
        options: limits, and who signs in.

    Attributes:
        credential_sent: whether requests carry a credential that has not been found to be void.
        signs_in: whether credentials come from signing in.
    """

    def __init__(self, target: HttpTarget, options: ClientOptions) -> None:
        self.target = target
        self.options = options
        self.credential_sent = target.has_credential
        self._auth = None if target.has_authorization else options.auth
        self.signs_in = self._auth is not None
        self._url = target.url
        self._proxy = None if target.is_loopback else proxy_for(target.url)
        self._masked = ""
        self._resolver = LocalhostResolver()
        self._session = aiohttp.ClientSession(
            # Servers are isolated from each other and from earlier runs: no cookies, no .netrc.
            cookie_jar=aiohttp.DummyCookieJar(),
            connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=60, resolver=self._resolver),
            timeout=_NO_TIMEOUT,
            headers={**target.headers, "User-Agent": target.headers.get("User-Agent", "outrider")},
            auto_decompress=True,
        )

    async def open(
        self, method: str, headers: Mapping[str, str], body: bytes | None = None, *, url: str = ""
    ) -> aiohttp.ClientResponse:
        """Send one request, following redirects that keep method, body and origin; the caller releases the response.

        A request that is refused for want of a credential has not been looked at: it is sent once more if there is another credential.

        Raises:
            ConnectFailed, ConnectionLost: no answer.
            HttpRejected: a redirect that is not followed.
            SignInFailed: a credential could not be renewed, and why.
        """
        if self._auth is None:
            return await self._open(method, headers, body, url)
        token = await self._token_headers(method)
        response = await self._open(method, {**headers, **token}, body, url)
        if response.status not in (401, 403):
            return response
        try:
            has_another = await self._auth.on_challenge(self.target.url, challenge_of(response))
            token = await self._token_headers(method)
        except BaseException:
            response.close()
            raise
        if not has_another:
            return response
        response.close()
        return await self._open(method, {**headers, **token}, body, url)

    async def _token_headers(self, method: str) -> Mapping[str, str]:
        """The token's headers; from here on the token is masked wherever this target's texts are shown."""
        assert self._auth is not None
        token = await self._auth.headers(self.target.url, method)
        self.credential_sent = self.target.has_credential or bool(token)
        if (value := token.get("Authorization")) and value != self._masked:
            self.target.redact.learn(secrets_of(headers={"Authorization": value}))
            self._masked = value
        return token

    async def _open(
        self, method: str, headers: Mapping[str, str], body: bytes | None, url: str
    ) -> aiohttp.ClientResponse:
        is_endpoint = not url
        url = url or self._url
        for _ in range(_MAX_REDIRECTS + 1):
            response = await self._open_once(method, url, headers, body)
            if response.status not in (301, 302, 303, 307, 308):
                return response
            response.release()
            url = location = self._followable(response, url)
            if is_endpoint:
                self._url = url  # Each later request would be redirected the same way.
        raise HttpRejected(
            f"{self.target.label} redirects more than {_MAX_REDIRECTS} times",
            status=response.status,
            location=show_url(location),
        )

    async def _open_once(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> aiohttp.ClientResponse:
        try:
            return await self._session.request(
                method, url, data=body, headers=headers, allow_redirects=False, proxy=self._proxy
            )
        except aiohttp.ClientConnectorCertificateError as error:
            raise ConnectFailed(
                f"the certificate of {self.target.label} is not trusted: {error.certificate_error}",
                hint="set SSL_CERT_FILE to the authority's certificate if you trust it",
            ) from error
        except aiohttp.ClientConnectorError as error:
            raise await self._connect_failed(error) from error
        except (aiohttp.ClientError, ValueError, OSError) as error:
            raise ConnectionLost(
                f"{self.target.label} broke the connection off: {self.target.redact(str(error)) or type(error).__name__}"
            ) from error

    def _followable(self, response: aiohttp.ClientResponse, url: str) -> str:
        status = response.status
        if not response.headers.get("Location", "").strip():
            raise HttpRejected(f"{self.target.label} redirects with {status} and does not say where", status=status)
        try:
            location = urljoin(url, response.headers.get("Location", ""))
            shown, old, new = show_url(location), urlsplit(url), urlsplit(location)
        except ValueError as error:
            raise HttpRejected(
                f"{self.target.label} redirects with {status} to something that is not a URL", status=status
            ) from error
        if status not in (307, 308):
            raise HttpRejected(
                f"{self.target.label} redirects with {status}, which would turn the POST into a GET",
                status=status,
                location=shown,
                hint=f"use the URL {shown}"
                if status == 301 or old.path.strip("/") == new.path.strip("/")
                else f"if {shown} is the MCP endpoint, use that URL; if one signs in there, the server wants a credential",
            )
        if (old.scheme, old.netloc) != (new.scheme, new.netloc):
            raise HttpRejected(
                f"{self.target.label} redirects to another origin; credentials are not carried there",
                status=status,
                location=shown,
                hint=f"if you trust it, use the URL {shown}",
            )
        return location

    async def _connect_failed(self, error: aiohttp.ClientConnectorError) -> ConnectFailed:
        parts = urlsplit(self.target.url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        # The event loop words it `Connect call failed (…)`; the system's own words are the ones people know.
        number = error.os_error.errno or 0
        reason = os.strerror(number) if number > 0 else str(error.os_error)
        if self._proxy:
            return ConnectFailed(
                f"no connection to {self.target.label} through the proxy {show_url(self._proxy)}: {reason}"
            )
        try:
            found = await self._resolver.resolve(host, port, socket.AF_UNSPEC)
        except OSError as lookup:
            return ConnectFailed(
                f"the host {unfilled(host, self.target.filled)} is not known: {lookup.strerror}",
                hint="check the spelling and the network",
            )
        tried = ", ".join(f"[{a['host']}]:{port}" if ":" in a["host"] else f"{a['host']}:{port}" for a in found)
        return ConnectFailed(
            f"no connection to {self.target.label} (tried {tried}): {reason}", hint="is the server running?"
        )

    async def read_body(self, response: aiohttp.ClientResponse, limit: int) -> bytes:
        """The whole body, decompressed.

        Raises:
            LimitExceeded: it is longer than `limit` bytes.
            ConnectionLost: it ended early.
        """
        declared = response.content_length
        try:
            if declared is not None and declared <= limit and "Content-Encoding" not in response.headers:
                return await response.read()
            chunks, size = [], 0
            async for chunk in response.content.iter_any():
                size += len(chunk)
                if size > limit:
                    response.close()
                    raise LimitExceeded(
                        f"{self.target.label} answered with more than {limit} bytes",
                        rule="ours: one message has a limit",
                        hint="raise max_message_bytes",
                    )
                chunks.append(chunk)
            return b"".join(chunks)
        except (aiohttp.ClientError, OSError) as error:
            if isinstance(error, aiohttp.ClientPayloadError) and "content-encoding" in str(error).lower():
                raise rejected(
                    self.target.label, response.status, "a body that cannot be decompressed", b"", self.target.redact
                ) from error
            raise ConnectionLost(f"{self.target.label} broke off in the middle of an answer") from error

    async def excerpt(self, response: aiohttp.ClientResponse) -> str:
        """The start of a body that is of no use but for people, redacted."""
        try:
            data = await response.content.read(EXCERPT_BYTES)
        except (aiohttp.ClientError, OSError):
            data = b""
        response.close()
        return quoted(data, self.target.redact)

    async def next_events(
        self, response: aiohttp.ClientResponse, decoder: EventDecoder
    ) -> list[ServerSentEvent] | None:
        """The events with data in the next chunk of a stream, or None at its end; `decoder` keeps what resuming needs.

        Raises:
            LimitExceeded: an event is longer than the limit.
            ConnectionLost: the connection broke; a stream that ends in good order just ends.
        """
        try:
            chunk = await response.content.readany()
        except (aiohttp.ClientError, OSError) as error:
            raise ConnectionLost(f"{self.target.label} broke off in the middle of a stream") from error
        if not chunk:
            return None
        batch = []
        for event in decoder.feed(chunk):
            if isinstance(event, Overflow):
                raise LimitExceeded(
                    f"{self.target.label} sent an event of more than {event.limit} bytes",
                    rule="ours: one message has a limit",
                )
            if event.data:
                batch.append(event)
        return batch

    def event_decoder(self) -> EventDecoder:
        """A decoder for one stream, with this connection's limit."""
        return EventDecoder(max_event_bytes=self.options.max_message_bytes)

    def trace(self, direction: str, data: bytes) -> None:
        """Write a message to the transcript, redacted."""
        if self.options.trace is not None:
            call_back(self.options.trace, direction, self.target.redact(data.decode(errors="replace")))

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()


class HttpChannel:
    """See `Channel`. `resumable` makes broken response streams of legacy servers be resumed with `Last-Event-ID`."""

    transport = "streamable-http"
    stdio = False
    batches = False

    def __init__(self, target: HttpTarget, options: ClientOptions) -> None:
        self.connection = HttpConnection(target, options)
        self.on_incoming: Callable[[Incoming], None] = lambda _: None
        self.warnings: list[str] = []
        self.resumable = False
        self._target = target
        self._strays = ""

    @property
    def credential_sent(self) -> bool:
        """See `Channel`."""
        return self.connection.credential_sent

    async def request(self, outgoing: Outgoing) -> Reply:
        """See `Channel.request`. Cancelling closes the response, which is how this transport cancels."""
        body = outgoing.encoded()
        self.connection.trace(">", body)
        headers = {"Content-Type": "application/json", "Accept": _ACCEPT, **outgoing.headers}
        response = await self.connection.open("POST", headers, body)
        try:
            if response.status < 300 and response.content_type == "text/event-stream":
                return await self._read_stream(response, outgoing.id, outgoing.headers)
            return await self._read_answer(response, outgoing.id)
        finally:
            response.release()

    async def _read_answer(self, response: aiohttp.ClientResponse, request_id: RequestId) -> Reply:
        status = response.status
        data = await self.connection.read_body(response, self.connection.options.max_message_bytes)
        self.connection.trace("<", data)
        messages: list[Message] = (
            decode_messages(data, batches=self.batches) if data else [Malformed(0, "an empty body")]
        )
        message = messages[0]
        if len(messages) > 1 or not isinstance(message, _REPLIES):
            message = _reply_among(messages, request_id)
            for other in messages:
                if isinstance(other, Request | Notification):
                    self.on_incoming(other)
        # One exchange carries one reply: an error's id tells nothing new, and many servers get it wrong.
        usable = isinstance(message, ErrorReply) or (isinstance(message, ResultReply) and status < 300)
        if status in (401, 403):
            raise self._denied(response, data)
        if usable and isinstance(message, ErrorReply) and not _is_outage(status):
            return Reply(message, status, response.headers)
        if status in TRANSIENT_STATUSES or status >= 500:
            raise unavailable(self._target.label, status, response.headers, data, self._target.redact)
        if usable and isinstance(message, ResultReply):
            if not same_id(request_id, message.id):
                unknown = self._target.redact(repr(message.id))[:40]
                self._strays = f"; it answered with unknown id {unknown}"
                raise RemoteProtocolError(
                    f"{self._target.label} answered with unknown id {unknown}",
                    rule="2026-07-28 basic/index#responses (MUST)",
                )
            return Reply(message, status, response.headers)
        reason = "no JSON-RPC reply" if data else "an empty body"
        raise rejected(self._target.label, status, reason, data, self._target.redact)

    async def _read_stream(
        self, response: aiohttp.ClientResponse, request_id: RequestId, headers: Mapping[str, str]
    ) -> Reply:
        last_event_id, retry_s = "", _DEFAULT_RETRY_S
        status, received_headers = response.status, response.headers
        resumes = 0
        while True:
            decoder = self.connection.event_decoder()
            try:
                while (batch := await self.connection.next_events(response, decoder)) is not None:
                    for event in batch:
                        reply = self._take(event.data, request_id)
                        if reply is not None:
                            return Reply(reply, status, received_headers)
                broken: ConnectionLost | None = None
            except ConnectionLost as error:
                broken = error
            finally:
                response.close()
            last_event_id, retry_s = decoder.last_event_id or last_event_id, _retry_s(decoder, retry_s)
            if not self.resumable or not last_event_id or resumes >= _MAX_RESUMES:
                raise broken or StreamEnded(f"{self._target.label} ended the stream before it answered{self._strays}")
            resumes += 1
            await asyncio.sleep(retry_s)
            response = await self.connection.open(
                "GET",
                {**_without_body_headers(headers), "Accept": "text/event-stream", "Last-Event-ID": last_event_id},
            )
            if response.status != 200 or response.content_type != "text/event-stream":
                raise broken or ConnectionLost(
                    f"{self._target.label} answered {response.status} when its stream was to be resumed"
                )

    def _take(self, data: bytes, request_id: RequestId | None) -> ResultReply | ErrorReply | None:
        """Read one event's data: the reply that was waited for, or None after dispatching anything else."""
        self.connection.trace("<", data)
        replies = [self._take_one(data, message, request_id) for message in decode_messages(data, batches=self.batches)]
        return next((reply for reply in replies if reply is not None), None)

    def _take_one(self, data: bytes, message: Message, request_id: RequestId | None) -> ResultReply | ErrorReply | None:
        if isinstance(message, ResultReply | ErrorReply):
            if request_id is not None and (
                same_id(request_id, message.id) or (isinstance(message, ErrorReply) and message.id is None)
            ):
                return message
            self._strays = f"; it answered with unknown id {self._target.redact(repr(message.id))[:40]}"
        elif isinstance(message, Request | Notification):
            self.on_incoming(message)
        elif request_id is not None and broken_reply_id(data, message) == request_id:
            raise RemoteProtocolError(
                f"the answer cannot be read: {message.reason}", rule="2026-07-28 basic/transports#messages (MUST)"
            )
        elif len(self.warnings) < 5:
            self.warnings.append(f"an event that is not a JSON-RPC message was skipped: {message.reason}")
        return None

    async def send(self, message: bytes, headers: Mapping[str, str]) -> None:
        """See `Channel.send`."""
        self.connection.trace(">", message)
        response = await self.connection.open(
            "POST", {"Content-Type": "application/json", "Accept": _ACCEPT, **headers}, message
        )
        try:
            if response.status in (401, 403):
                raise self._denied(response, b"")
            if response.status >= 400:
                excerpt = await self.connection.excerpt(response)
                raise HttpRejected(
                    f"{self._target.label} answered {response.status} to a message",
                    status=response.status,
                    excerpt=excerpt,
                )
        finally:
            # An answer to a notification carries nothing; closing is cheaper than reading what should not be there.
            response.release()

    def strays(self) -> str:
        """See `Channel.strays`."""
        return self._strays

    def stderr_tail(self) -> tuple[str, ...]:
        """See `Channel.stderr_tail`."""
        return ()

    async def close(self) -> None:
        """See `Channel.close`."""
        await self.connection.close()

    async def listen_get(self, headers: Mapping[str, str]) -> None:
        """Legacy: keep the standing GET stream open and dispatch what comes, until cancelled or refused.

        Returns when the server offers no such stream or has ended it for good.

        Spec: 2025-11-25 basic/transports#listening-for-messages-from-the-server
        """
        last_event_id, retry_s = "", _DEFAULT_RETRY_S
        failures = 0
        while failures < _MAX_RESUMES:
            decoder = self.connection.event_decoder()
            resume = {"Last-Event-ID": last_event_id} if last_event_id else {}
            try:
                response = await self.connection.open(
                    "GET", {**_without_body_headers(headers), "Accept": "text/event-stream", **resume}
                )
            except TransportError:
                failures += 1
            else:
                try:
                    if response.status != 200 or response.content_type != "text/event-stream":
                        return
                    while (batch := await self.connection.next_events(response, decoder)) is not None:
                        failures = 0
                        for event in batch:
                            self._take(event.data, None)
                    failures += 1
                except ConnectionLost:
                    failures += 1
                finally:
                    response.close()
            last_event_id, retry_s = decoder.last_event_id or last_event_id, _retry_s(decoder, retry_s)
            await asyncio.sleep(min(retry_s * 2 ** max(0, failures - 1), _MAX_RETRY_S))

    async def delete(self, headers: Mapping[str, str]) -> None:
        """Legacy: end the session. What the server answers does not matter. Spec: 2025-11-25 basic/transports#session-management"""
        try:
            (await self.connection.open("DELETE", _without_body_headers(headers))).close()
        except TransportError:
            pass

    def _denied(self, response: aiohttp.ClientResponse, data: bytes) -> AuthRequired:
        asked, message = challenge_of(response), decode_message(data) if data else None
        return denied(
            self._target.label,
            response.status,
            data,
            self._target.redact,
            challenge=asked.header,
            refused=asked.refused,
            credential_sent=self.credential_sent,
            signs_in=self.connection.signs_in,
            code=message.code if isinstance(message, ErrorReply) else None,
        )


def challenge_of(response: aiohttp.ClientResponse) -> Challenge:
    """What a refusal with 401 or 403 asks for."""
    header = ", ".join(response.headers.getall("WWW-Authenticate", ()))
    sent = response.request_info.headers.get("Authorization", "")
    return Challenge(response.status, header, token_mark(sent), response.headers.get("DPoP-Nonce", ""))


class LocalhostResolver(aiohttp.abc.AbstractResolver):
    """Names to addresses; `localhost` is both loopback addresses, whichever of them the system's files list.

    A server on one family is else not found by a client on the other. Spec: RFC 6761 6.3
    """

    def __init__(self) -> None:
        """No look-up is made yet."""
        self._system = aiohttp.ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """See `AbstractResolver.resolve`."""
        if host != "localhost" and not host.endswith(".localhost"):
            return await self._system.resolve(host, port, family)
        flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        found: list[tuple[socket.AddressFamily, str]] = [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
        return [
            ResolveResult(hostname=host, host=address, port=port, family=kind, proto=0, flags=flags)
            for kind, address in found
            if family in (socket.AF_UNSPEC, kind)
        ]

    async def close(self) -> None:
        """See `AbstractResolver.close`."""
        await self._system.close()


def _reply_among(messages: list[Message], request_id: RequestId) -> Message:
    """The reply to a request among the messages of one body; else any reply, else what is there."""
    replies = [message for message in messages if isinstance(message, _REPLIES)]
    own = (reply for reply in replies if same_id(request_id, reply.id))
    return next(own, replies[0] if replies else messages[0])


def _is_outage(status: int) -> bool:
    """Whether an error body only dresses up an outage: a modern server's own 500 says so with a JSON-RPC internal error."""
    return status in TRANSIENT_STATUSES or status in (502, 503, 504)


def _without_body_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in headers.items()
        if name.lower() not in ("content-type", "accept", "mcp-method", "mcp-name")
    }


def _retry_s(decoder: EventDecoder, default_s: float) -> float:
    return default_s if decoder.retry_ms is None else min(decoder.retry_ms / 1000, _MAX_RETRY_S)


def proxy_for(url: str) -> str | None:
    """The proxy that the environment names for a URL, honouring NO_PROXY."""
    parts = urlsplit(url)
    proxies = urllib.request.getproxies()
    if not proxies or urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    return proxies.get(parts.scheme) or proxies.get("all")
