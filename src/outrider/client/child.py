"""One process and its three pipes, as callbacks: the part of the stdio transport that is different on each operating system.

Decided here: how the pipes are read and written without blocking the event loop, and how the end of the process is noticed. Not here: how
it is started and what else ends with it (`process_tree`), when it is ended, and what its output is (`stdio`).
"""

from __future__ import annotations

import asyncio
import os
import queue
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, Final, Protocol

from outrider.client.process_tree import ProcessTree

__all__ = ["Child", "Listener", "PipedChild", "ThreadedChild", "spawn"]

# The capacity of a pipe, and below what allocators hand out page by page.
_READ_BYTES: Final = 1 << 16
# What a dead process left in a pipe. A pipe holds less, unless something that outlived the process goes on writing into it.
_DRAIN_BYTES: Final = 1 << 20
_DRAIN_S: Final = 0.5
_READS_AHEAD: Final = 16


class Listener(Protocol):
    """Who hears what a child does; every method is called in the event loop and must neither block nor raise."""

    def on_stdout(self, data: bytes) -> None:
        """The process wrote to its standard output."""

    def on_stdout_end(self) -> None:
        """It closed its standard output, or is gone and everything it wrote has been handed on. Called once."""

    def on_stderr(self, data: bytes) -> None:
        """The process wrote to its standard error."""

    def on_stdin_change(self) -> None:
        """Less is waiting to be written than before, or nothing can be written any more."""

    def on_exit(self, code: int) -> None:
        """The process ended, after everything it wrote was handed on: its exit code, or minus the number of the signal."""


class Child(Protocol):
    """A running process.

    Attributes:
        pid: its process id.
        unsent: bytes that wait to be written to its standard input.
        stdin_lost: whether nothing can be written any more.
    """

    pid: int
    unsent: int
    stdin_lost: bool

    def write(self, data: bytes) -> None:
        """Write to the standard input, all of it, in order, as fast as the process reads. Never blocks."""

    def close_stdin(self) -> None:
        """End the standard input. What is unsent is dropped if the process does not read."""

    def pause_stdout(self) -> None:
        """Let the process wait before it can write more."""

    def resume_stdout(self) -> None:
        """Go on reading."""

    def note_descendants(self) -> None:
        """Remember what the process has started so far, as far as the system tells, for `terminate`, `kill` and `sweep`."""

    def terminate(self) -> None:
        """Ask the whole tree to end."""

    def kill(self) -> None:
        """End the whole tree at once."""

    def kill_now(self) -> None:
        """`kill`, and wait for the process without the event loop, a moment at most: for when the loop is being taken down."""

    async def sweep(self, grace_s: float) -> None:
        """After the process itself has ended: end what is left of its tree, asking first."""

    def release(self) -> None:
        """Let go of the pipes, whoever else may hold their other ends."""


def spawn(argv: Sequence[str], program: str, *, env: Mapping[str, str], cwd: str | None, listener: Listener) -> Child:
    """Start a process and begin to read from it. Without suspension points, so that no cancellation can part it from its owner.

    Args:
        argv: the command as configured.
        program: the file to run.
        env: its whole environment.
        cwd: its working directory, or None for ours.
        listener: who hears of it.

    Raises:
        OSError, ValueError: the system refused.
    """
    if sys.platform == "win32":
        return ThreadedChild(argv, program, env=env, cwd=cwd, listener=listener)
    return PipedChild(argv, program, env=env, cwd=cwd, listener=listener)


class PipedChild:
    """A `Child` on POSIX: its pipes are watched by the event loop itself, its end by a descriptor where there is one (Linux)."""

    def __init__(
        self, argv: Sequence[str], program: str, *, env: Mapping[str, str], cwd: str | None, listener: Listener
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._tree = ProcessTree(argv, program, env, cwd)
        self.pid = self._tree.pid
        self.unsent = 0
        self.stdin_lost = False
        popen = self._tree.popen
        assert popen.stdin is not None
        assert popen.stdout is not None
        assert popen.stderr is not None
        self._stdin, self._stdout, self._stderr = popen.stdin, popen.stdout, popen.stderr
        self._backlog = bytearray()
        self._stdout_open = self._stderr_open = True
        self._paused = False
        self._exited = False
        try:
            for pipe in (self._stdin, self._stdout, self._stderr):
                os.set_blocking(pipe.fileno(), False)
            self._loop.add_reader(self._stdout.fileno(), self._read_stdout)
            self._loop.add_reader(self._stderr.fileno(), self._read_stderr)
            self._exit_fd = self._watch_exit()
        except BaseException:
            self._tree.kill_now()
            raise

    # -- standard input ------------------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """See `Child.write`."""
        if self.stdin_lost:
            return
        if not self._backlog:
            try:
                written = os.write(self._stdin.fileno(), data)
            except BlockingIOError:
                written = 0
            except OSError:
                self._lose_stdin()
                return
            if written == len(data):
                return
            data = data[written:]
            self._loop.add_writer(self._stdin.fileno(), self._write_more)
        self._backlog += data
        self.unsent = len(self._backlog)

    def _write_more(self) -> None:
        try:
            written = os.write(self._stdin.fileno(), memoryview(self._backlog)[:_READ_BYTES])
        except BlockingIOError:
            return
        except OSError:
            self._lose_stdin()
            return
        del self._backlog[:written]
        self.unsent = len(self._backlog)
        if not self._backlog:
            self._loop.remove_writer(self._stdin.fileno())
        self._listener.on_stdin_change()

    def close_stdin(self) -> None:
        """See `Child.close_stdin`."""
        self._lose_stdin()

    def _lose_stdin(self) -> None:
        if self.stdin_lost:
            return
        self.stdin_lost = True
        self.unsent = 0
        if self._backlog:
            self._backlog.clear()
            self._loop.remove_writer(self._stdin.fileno())
        self._stdin.close()
        self._listener.on_stdin_change()

    # -- standard output and error -------------------------------------------------------------------------------------------------

    def pause_stdout(self) -> None:
        """See `Child.pause_stdout`."""
        if self._stdout_open and not self._paused:
            self._paused = True
            self._loop.remove_reader(self._stdout.fileno())

    def resume_stdout(self) -> None:
        """See `Child.resume_stdout`."""
        if self._stdout_open and self._paused:
            self._paused = False
            self._loop.add_reader(self._stdout.fileno(), self._read_stdout)

    def _read_stdout(self) -> None:
        data = _read_now(self._stdout)
        if data:
            self._listener.on_stdout(data)
        elif data is not None:
            self._close_stdout()

    def _read_stderr(self) -> None:
        data = _read_now(self._stderr)
        if data:
            self._listener.on_stderr(data)
        elif data is not None:
            self._close_stderr()

    def _close_stdout(self) -> None:
        if self._stdout_open:
            self._loop.remove_reader(self._stdout.fileno())
            self._stdout_open = False
            self._stdout.close()
            self._listener.on_stdout_end()

    def _close_stderr(self) -> None:
        if self._stderr_open:
            self._loop.remove_reader(self._stderr.fileno())
            self._stderr_open = False
            self._stderr.close()

    # -- the end -------------------------------------------------------------------------------------------------------------------

    def _watch_exit(self) -> int:
        try:
            exit_fd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # not Linux, an old one, or a sandbox without it
            threading.Thread(target=self._wait_in_thread, name=f"outrider wait {self.pid}", daemon=True).start()
            return -1
        self._loop.add_reader(exit_fd, self._on_exit)
        return exit_fd

    def _wait_in_thread(self) -> None:
        try:
            self._tree.popen.wait()
        finally:
            try:
                self._loop.call_soon_threadsafe(self._on_exit)
            except RuntimeError:  # The loop is closed; what is left to do is done at interpreter exit.
                pass

    def _on_exit(self) -> None:
        if self._exited:
            return
        code = self._tree.reap()
        if code is None:
            return
        self._exited = True
        if self._exit_fd >= 0:
            self._loop.remove_reader(self._exit_fd)
            os.close(self._exit_fd)
        # All it wrote is in the pipes by now. They may never end: whatever it started holds them too.
        for is_open, pipe, hand_on in (
            (self._stderr_open, self._stderr, self._listener.on_stderr),
            (self._stdout_open, self._stdout, self._listener.on_stdout),
        ):
            drained = 0
            while is_open and drained < _DRAIN_BYTES and (data := _read_now(pipe)):
                drained += len(data)
                hand_on(data)
        self.release()
        self._listener.on_exit(code)

    def note_descendants(self) -> None:
        """See `Child.note_descendants`."""
        self._tree.note_descendants()

    def terminate(self) -> None:
        """See `Child.terminate`."""
        self._tree.signal(kill=False)

    def kill(self) -> None:
        """See `Child.kill`."""
        self._tree.signal(kill=True)

    def kill_now(self) -> None:
        """See `Child.kill_now`."""
        self._tree.kill_now()
        if not self._loop.is_closed():
            self._on_exit()

    async def sweep(self, grace_s: float) -> None:
        """See `Child.sweep`."""
        await self._tree.sweep(grace_s)

    def release(self) -> None:
        """See `Child.release`."""
        self._lose_stdin()
        self._close_stderr()
        self._close_stdout()


def _read_now(pipe: IO[bytes]) -> bytes | None:
    """What a pipe holds: b"" at its end, None if there is nothing yet."""
    try:
        return os.read(pipe.fileno(), _READ_BYTES)
    except BlockingIOError:
        return None
    except OSError:
        return b""


class ThreadedChild:
    """A `Child` on Windows, where an event loop cannot watch ordinary pipes: a thread for each pipe and one for the end.

    It works everywhere, so that it can be tested everywhere.
    """

    def __init__(
        self, argv: Sequence[str], program: str, *, env: Mapping[str, str], cwd: str | None, listener: Listener
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._tree = ProcessTree(argv, program, env, cwd)
        self.pid = self._tree.pid
        self.unsent = 0
        self.stdin_lost = False
        popen = self._tree.popen
        assert popen.stdin is not None
        assert popen.stdout is not None
        assert popen.stderr is not None
        self._stdin = popen.stdin
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._may_read = threading.Event()
        self._may_read.set()
        self._released = False
        self._stdout_ended = False
        self._readers = [
            self._start(self._read, popen.stdout, self._on_stdout, self._may_read),
            self._start(self._read, popen.stderr, self._on_stderr, None),
        ]
        self._start(self._write_all)
        self._start(self._wait)

    def write(self, data: bytes) -> None:
        """See `Child.write`."""
        if not self.stdin_lost:
            self.unsent += len(data)
            self._outgoing.put(data)

    def close_stdin(self) -> None:
        """See `Child.close_stdin`."""
        if not self.stdin_lost:
            self.stdin_lost = True
            self.unsent = 0
            self._outgoing.put(None)
            self._listener.on_stdin_change()

    def pause_stdout(self) -> None:
        """See `Child.pause_stdout`. The one read that may be under way still arrives."""
        self._may_read.clear()

    def resume_stdout(self) -> None:
        """See `Child.resume_stdout`."""
        self._may_read.set()

    def note_descendants(self) -> None:
        """See `Child.note_descendants`."""
        self._tree.note_descendants()

    def terminate(self) -> None:
        """See `Child.terminate`. Windows knows no request, so there it is `kill`."""
        self._tree.signal(kill=False)

    def kill(self) -> None:
        """See `Child.kill`."""
        self._tree.signal(kill=True)

    def kill_now(self) -> None:
        """See `Child.kill_now`."""
        self._tree.kill_now()

    async def sweep(self, grace_s: float) -> None:
        """See `Child.sweep`."""
        await self._tree.sweep(grace_s)

    def release(self) -> None:
        """See `Child.release`. A thread that reads a pipe which something else holds open ends with that."""
        self.close_stdin()
        self._released = True
        self._may_read.set()
        self._on_stdout(b"")

    # -- the threads ---------------------------------------------------------------------------------------------------------------

    def _start(self, work: Callable[..., None], *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=work, args=arguments, name=f"outrider {work.__name__} {self.pid}", daemon=True)
        thread.start()
        return thread

    def _call(self, function: Callable[..., None], *arguments: object) -> bool:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # The loop is closed; what is left to do is done at interpreter exit.
            return False
        return True

    def _read(self, pipe: IO[bytes], hand_on: Callable[[bytes], None], may_read: threading.Event | None) -> None:
        # A busy event loop is not fed faster than it eats.
        slots = threading.Semaphore(_READS_AHEAD)

        def hand_on_and_make_room(data: bytes) -> None:
            slots.release()
            hand_on(data)

        with pipe:
            while not self._released:
                if may_read is not None:
                    may_read.wait()
                slots.acquire()
                try:
                    data = os.read(pipe.fileno(), _READ_BYTES)
                except OSError:
                    break
                if not data or not self._call(hand_on_and_make_room, data):
                    break
        self._call(hand_on, b"")

    def _write_all(self) -> None:
        with suppress(OSError), self._stdin:
            while (data := self._outgoing.get()) is not None:
                view = memoryview(data)
                while view:
                    view = view[os.write(self._stdin.fileno(), view) :]
                self._call(self._on_written, len(data))
        self._call(self._on_stdin_closed)

    def _wait(self) -> None:
        code = self._tree.popen.wait()
        # What it wrote is read by then, unless something that outlived it holds the pipes; that is not waited for.
        self._may_read.set()
        for reader in self._readers:
            reader.join(_DRAIN_S)
        self._call(self._on_exit, code)

    # -- back in the event loop ----------------------------------------------------------------------------------------------------

    def _on_stdout(self, data: bytes) -> None:
        if self._stdout_ended:
            return
        if data:
            self._listener.on_stdout(data)
        else:
            self._stdout_ended = True
            self._listener.on_stdout_end()

    def _on_stderr(self, data: bytes) -> None:
        if data and not self._released:
            self._listener.on_stderr(data)

    def _on_written(self, count: int) -> None:
        if not self.stdin_lost:
            self.unsent -= count
            self._listener.on_stdin_change()

    def _on_stdin_closed(self) -> None:
        if not self.stdin_lost:
            self.stdin_lost = True
            self.unsent = 0
            self._listener.on_stdin_change()

    def _on_exit(self, code: int) -> None:
        self._tree.reap()
        self.release()
        self._listener.on_exit(code)
