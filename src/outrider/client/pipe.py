"""stdio, client side: messages over the standard streams of one process.

Decided here: which lines are messages, which replies go where, and how a request on a shared pipe is cancelled. Not here: the process
itself (`stdio`) and what the messages mean (`opening`, `session`).

Spec: 2026-07-28 basic/transports/stdio
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

from outrider.client.channel import Correlator, Incoming, Outgoing, Reply, call_back
from outrider.client.stdio import StdioProcess
from outrider.client.target import ClientOptions, StdioTarget
from outrider.errors import PARSE_ERROR, ConnectionLost, LimitExceeded, RemoteProtocolError, TransportError
from outrider.protocol.framing import Overflow
from outrider.protocol.jsonrpc import (
    ErrorReply,
    Malformed,
    Message,
    Notification,
    Request,
    ResultReply,
    broken_reply_id,
    decode_messages,
    encode_notification,
    guess_id,
    messages_within,
)
from outrider.protocol.legacy import is_echo

__all__ = ["Pipe"]

_KEPT_NOISE: Final = 5
_NOISE_EXCERPT: Final = 200


class Pipe:
    """See `Channel`. Start one with `Pipe.start`.

    Attributes:
        noise: the first lines on stdout that were no messages, redacted; kept for diagnosis, never taken for an answer.
    """

    transport = "stdio"
    stdio = True
    credential_sent = False
    batches = False

    def __init__(self, target: StdioTarget, options: ClientOptions, process: StdioProcess) -> None:
        self.on_incoming: Callable[[Incoming], None] = lambda _: None
        self.warnings: list[str] = []
        self.noise: list[str] = []
        self._noisy_lines = 0
        self._echoes = False
        self._target = target
        self._options = options
        self._process = process
        self._replies = Correlator(target.redact)
        self._last_output = time.monotonic()
        self._reader = asyncio.create_task(self._read(), name=f"outrider read {target.label[:40]}")

    @classmethod
    async def start(cls, target: StdioTarget, options: ClientOptions) -> Pipe:
        """Start the process.

        Raises:
            ConnectFailed: it cannot be started.
        """
        return cls(target, options, await StdioProcess.start(target, options))

    async def request(self, outgoing: Outgoing) -> Reply:
        """See `Channel.request`. Cancelling sends `notifications/cancelled`."""
        future = await self.begin(outgoing)
        try:
            return Reply(await future)
        except asyncio.CancelledError:
            self._replies.forget(outgoing.id)
            if outgoing.cancellable:
                self._send_soon(encode_notification("notifications/cancelled", {"requestId": outgoing.id}))
            raise

    async def begin(self, outgoing: Outgoing) -> asyncio.Future[ResultReply | ErrorReply]:
        """Send a request and return the future of its reply, for a caller that goes on listening while it does something else.

        Raises:
            ConnectionLost: the process is gone.
        """
        encoded = outgoing.encoded()
        future = self._replies.expect(outgoing.id)
        if not future.done():
            await self.send(encoded, {})
        return future

    def abandon(self, outgoing: Outgoing) -> None:
        """Nobody waits any more for a request that was begun; a late reply is dropped."""
        self._replies.forget(outgoing.id)

    async def send(self, message: bytes, headers: Mapping[str, str]) -> None:
        """See `Channel.send`."""
        self._trace(">", message)
        try:
            await self._process.send(message)
        except ConnectionLost as error:
            # The reader learns the exit code a moment later, and with it says more.
            await asyncio.wait([self._reader], timeout=1.0)
            raise self._replies.failure or error from error

    def _send_soon(self, message: bytes) -> None:
        task = asyncio.ensure_future(self._send_quietly(message))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _send_quietly(self, message: bytes) -> None:
        try:
            await self._process.send(message)
        except TransportError:
            pass

    def strays(self) -> str:
        """See `Channel.strays`."""
        return self._replies.strays() + ("; it sends back what it is sent" if self._echoes else "")

    def quiet_since(self) -> float:
        """When the process last wrote anything, stderr included, on the monotonic clock."""
        return max(self._last_output, self._process.last_output)

    def stderr_tail(self) -> tuple[str, ...]:
        """The last lines of stderr, redacted."""
        return tuple(self._target.redact(line) for line in self._process.stderr_tail())

    async def close(self) -> None:
        """See `Channel.close`. All children of the process are gone when this returns."""
        self._replies.fail(ConnectionLost("the connection was closed"))
        try:
            await self._process.close()
        finally:
            self._reader.cancel()
            await asyncio.wait([self._reader])

    async def _read(self) -> None:
        async for line in self._process.lines():
            self._last_output = time.monotonic()
            if isinstance(line, Overflow):
                request_id = guess_id(line.excerpt)
                too_long = LimitExceeded(
                    f"a message of more than {line.limit} bytes was skipped", rule="ours: one message has a limit"
                )
                if request_id is None or not self._replies.reject(request_id, too_long):
                    self.warnings.append(str(too_long))
                continue
            self._trace("<", line)
            messages = decode_messages(line, batches=self.batches)
            if isinstance(messages[0], Malformed) and len(messages) == 1:
                messages = self._within(line, messages[0])
            for one in messages:
                if isinstance(one, ResultReply | ErrorReply):
                    self._replies.deliver(one)
                elif isinstance(one, Request) and is_echo(one.method):
                    self._echoes = True
                elif isinstance(one, Request | Notification):
                    self.on_incoming(one)
        self._replies.fail(await self._ended())

    def _within(self, line: bytes, verdict: Malformed) -> list[Message]:
        """The messages in a line that is none itself, after keeping a sample of the rest of it."""
        found, noise = messages_within(line) if verdict.code == PARSE_ERROR else ([], line)
        if not found:
            request_id = broken_reply_id(line, verdict)
            if request_id is not None and self._replies.reject(request_id, self._unreadable(verdict.reason)):
                return []
        if noise.strip():
            self._keep_noise(noise)
        return found

    def _unreadable(self, reason: str) -> RemoteProtocolError:
        return RemoteProtocolError(
            f"the answer cannot be read: {reason}", rule="2026-07-28 basic/transports#messages (MUST)"
        )

    def _keep_noise(self, line: bytes) -> None:
        self._noisy_lines += 1
        if len(self.noise) < _KEPT_NOISE:
            self.noise.append(self._target.redact(line.decode(errors="replace"))[:_NOISE_EXCERPT])
        if self._noisy_lines == 1:
            self.warnings.append(
                f"stdout carries lines that are not MCP messages, such as {self.noise[0]!r}; they were skipped"
            )

    async def _ended(self) -> ConnectionLost:
        status = await self._process.wait_exit()
        return ConnectionLost(
            f"the server's process {status}",
            exit_code=status.code,
            stderr_tail=self.stderr_tail(),
            hint="see what it wrote to stderr" if self._process.stderr_tail() else "run the command by hand to see why",
        )

    def _trace(self, direction: str, data: bytes) -> None:
        if self._options.trace is not None:
            call_back(self._options.trace, direction, self._target.redact(data.decode(errors="replace")))
