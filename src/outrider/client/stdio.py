"""The process behind a stdio server: started, fed, listened to, and ended together with everything it has started.

Decided here: the life of the process from start to last descendant, and how much of its output is kept. Not here: what a line means
(`pipe`), which command to run with which environment (`command`), and the operating system's side of it (`child`).

A process belongs to no task: everything is driven by callbacks of the event loop, so that it can be closed from any task, any number of
times, and a cancelled task never leaves it half closed.

Spec: 2026-07-28 basic/transports/stdio#shutdown (SHOULD), #unexpected-termination
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from outrider.client.child import Child, spawn
from outrider.client.command import child_environment, explain_failure, find_program
from outrider.client.target import ClientOptions, StdioTarget
from outrider.errors import ConnectFailed, ConnectionLost
from outrider.protocol.framing import LineDecoder, Overflow, encode_line
from outrider.redaction import unfilled

__all__ = ["ExitStatus", "StdioProcess"]

_MAX_UNSENT_BYTES: Final = 1 << 18
_MAX_UNREAD_BYTES: Final = 1 << 20
_STDERR_BYTES: Final = 16 * 1024
_STDERR_LINES: Final = 50
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
# A process that closes its output is about to exit. If it has not after this, it is helped.
_EXIT_AFTER_OUTPUT_S: Final = 0.5
_AFTER_KILL_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """How a process ended.

    Attributes:
        code: its exit code; minus the number of the signal that ended it; None if it could not be ended.
        was_mute: it had closed its output and lived on, so that it was ended here: the code is our doing.
    """

    code: int | None
    was_mute: bool = False

    def __str__(self) -> str:
        if self.was_mute:
            return "closed its output without exiting, and was ended"
        if self.code is None:
            return "could not be ended"
        if self.code < 0:
            try:
                return f"was ended by {signal.Signals(-self.code).name}"
            except ValueError:
                return f"was ended by signal {-self.code}"
        # Windows reports what other systems call signals in codes that only their hexadecimal form makes known.
        return f"exited with code {self.code if self.code < 2**31 else hex(self.code)}"


class StdioProcess:
    """A running server process. Start one with `StdioProcess.start`; always `close` it.

    Attributes:
        last_output: when it last wrote anything, on stdout or stderr, on the monotonic clock.
        stderr_bytes: how much it has written to stderr in all.
    """

    def __init__(self, options: ClientOptions) -> None:
        self.last_output = time.monotonic()
        self.stderr_bytes = 0
        self._grace_s = options.shutdown_timeout_s
        self._decoder = LineDecoder(max_line_bytes=options.max_message_bytes)
        self._lines: deque[bytes | Overflow] = deque()
        self._unread_bytes = 0
        self._stdout_ended = False
        self._arrival: asyncio.Future[None] | None = None
        self._stderr = bytearray()
        self._stderr_cut = False
        self._room = asyncio.Event()
        self._exited = asyncio.Event()
        self._status: ExitStatus | None = None
        self._was_mute = False
        self._ending: asyncio.Task[None] | None = None
        self._child: Child

    @classmethod
    async def start(cls, target: StdioTarget, options: ClientOptions) -> StdioProcess:
        """Start the process. There is no moment at which a cancellation could lose it.

        Raises:
            ConnectFailed: it cannot be started; the message says why, the hint what to do.
        """
        environment = child_environment(target.env, ours=os.environ, inherit_all=target.inherit_env)
        process = cls(options)
        try:
            program = find_program(target.argv, environment, target.cwd)
            try:
                process._child = spawn(target.argv, program, env=environment, cwd=target.cwd, listener=process)
            except (OSError, ValueError) as error:
                raise explain_failure(error, target.argv, program) from error
        except ConnectFailed as failure:
            if not target.filled:
                raise
            message, hint = (unfilled(text, target.filled) for text in (str(failure), failure.hint))
            raise ConnectFailed(message, hint=hint) from None
        return process

    # -- talking -------------------------------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """Its process id, which is also that of its process group on POSIX."""
        return self._child.pid

    async def send(self, message: bytes) -> None:
        """Write one message as one line.

        Returns once the process has taken all but a small rest, so that whoever sends much waits for it to read. Cancelling the wait
        does not cut the message: what has begun is written to its end. The output must be read by another task meanwhile, or a process
        that waits for its own output to be read is waited for in vain.

        Raises:
            ConnectionLost: the process no longer reads.
        """
        if self._child.stdin_lost:
            raise self._lost()
        self._child.write(encode_line(message))
        while self._child.unsent > _MAX_UNSENT_BYTES:
            self._room.clear()
            await self._room.wait()
        if self._child.stdin_lost:
            raise self._lost()

    async def lines(self) -> AsyncIterator[bytes | Overflow]:
        """Every line of the output, in order, until it ends. For one task; while nobody reads, the process has to wait.

        Ends with the process even if something that the process started holds its output open.
        """
        while True:
            while self._lines:
                line = self._lines.popleft()
                self._unread_bytes -= _size(line)
                if self._unread_bytes <= _MAX_UNREAD_BYTES // 2:
                    self._child.resume_stdout()
                yield line
            if self._stdout_ended:
                return
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival

    def stderr_tail(self) -> tuple[str, ...]:
        """The last lines of stderr: at most 50, at most 16 KiB in all, not redacted.

        A line whose beginning was lost is left out, so that no half of a secret escapes redaction.
        """
        text = self._stderr.decode(errors="replace")
        lines = _LINE_END.split(text)
        if self._stderr_cut:
            lines[0] = "" if len(lines) > 1 else f"(a line of more than {_STDERR_BYTES} bytes)"
        return tuple(line for line in lines if line.strip())[-_STDERR_LINES:]

    async def wait_exit(self) -> ExitStatus:
        """How the process ended, once it has. After the end of its output this takes seconds at most: it is helped to end."""
        await self._exited.wait()
        assert self._status is not None
        return self._status

    # -- ending --------------------------------------------------------------------------------------------------------------------

    async def close(self) -> ExitStatus:
        """End the process and everything it has started: end of input, then SIGTERM, then SIGKILL, with a grace before each.

        From any task, any number of times; all callers wait for the same end, also one that is cancelled: it is told so afterwards.
        Takes two graces and about a second at most, however the process behaves and whoever holds its pipes.

        Spec: 2026-07-28 basic/transports/stdio#shutdown (SHOULD)
        """
        ending = self._begin_ending()
        cancelled: asyncio.CancelledError | None = None
        while not ending.done():
            try:
                await asyncio.wait([ending])
            except asyncio.CancelledError as error:
                # Whoever cancels must find nothing left when the cancelled task is done; the wait is short in any case.
                cancelled = error
        if cancelled is not None:
            raise cancelled
        if not ending.cancelled():
            ending.result()
        assert self._status is not None
        return self._status

    def _begin_ending(self) -> asyncio.Task[None]:
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._end(), name=f"outrider end {self._child.pid}")
        return self._ending

    async def _end(self) -> None:
        child = self._child
        try:
            child.note_descendants()
            child.close_stdin()
            child.resume_stdout()
            if not await self._exits_within(self._grace_s):
                child.note_descendants()
                child.terminate()
                if not await self._exits_within(self._grace_s):
                    child.kill()
                    await self._exits_within(_AFTER_KILL_S)
            await child.sweep(self._grace_s)
        except asyncio.CancelledError:
            # The event loop is being taken down: no more time to ask.
            child.kill_now()
            raise
        finally:
            child.release()
            if self._status is None:
                self._status = ExitStatus(None)
                self._exited.set()

    async def _exits_within(self, patience_s: float) -> bool:
        try:
            async with asyncio.timeout(patience_s):
                await self._exited.wait()
        except TimeoutError:
            return False
        return True

    def _lost(self) -> ConnectionLost:
        code = self._status.code if self._status is not None else None
        what = (
            f"the server's process {self._status}"
            if self._status is not None
            else "the server's process no longer reads"
        )
        return ConnectionLost(what, exit_code=code)

    # -- what the child tells: see `Listener` --------------------------------------------------------------------------------------

    def on_stdout(self, data: bytes) -> None:
        """See `Listener`."""
        self.last_output = time.monotonic()
        if self._ending is None:
            self._take(self._decoder.feed(data))
            if self._unread_bytes > _MAX_UNREAD_BYTES:
                self._child.pause_stdout()

    def on_stdout_end(self) -> None:
        """See `Listener`."""
        if self._ending is None:
            self._take(self._decoder.end())
            if self._status is None:
                asyncio.get_running_loop().call_later(_EXIT_AFTER_OUTPUT_S, self._end_mute)
        self._stdout_ended = True
        self._take([])

    def _end_mute(self) -> None:
        self._was_mute = self._status is None and self._ending is None
        self._begin_ending()

    def on_stderr(self, data: bytes) -> None:
        """See `Listener`."""
        self.last_output = time.monotonic()
        self.stderr_bytes += len(data)
        self._stderr += data
        if len(self._stderr) > _STDERR_BYTES:
            del self._stderr[:-_STDERR_BYTES]
            self._stderr_cut = True

    def on_stdin_change(self) -> None:
        """See `Listener`."""
        self._room.set()

    def on_exit(self, code: int) -> None:
        """See `Listener`."""
        self._status = ExitStatus(code, self._was_mute)
        self._exited.set()
        self._begin_ending()

    def _take(self, lines: list[bytes | Overflow]) -> None:
        self._lines += lines
        self._unread_bytes += sum(map(_size, lines))
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)


def _size(line: bytes | Overflow) -> int:
    # Empty lines cost memory too.
    return 64 + len(line if isinstance(line, bytes) else line.excerpt)
