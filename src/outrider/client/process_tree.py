"""A process and everything it starts, so that all of it can be ended.

Decided here: how a process is started so that its whole tree can be found again, how the tree is asked to end and ended, and what becomes
of it when the interpreter exits. Not here: its pipes (`child`), and when it is ended (`stdio`).

On POSIX each server leads a session, and so a process group, of its own: a Ctrl-C in the terminal does not reach it, and a signal to the
group reaches what it started. What has left the group by then (a browser in a session of its own) is found by its parent, on Linux and as
long as that parent runs; a daemon that has cut all ties is left alone. On Windows each server is in a Job Object. If this process is
killed outright, Windows ends the jobs; on POSIX all a server notices is the end of its standard input, which is the protocol's own signal
to exit.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from outrider.client.command import batch_command_line

if TYPE_CHECKING or sys.platform == "win32":
    import ctypes

__all__ = ["ProcessTree"]

_POLL_S: Final = (0.002, 0.1)
_AFTER_KILL_S: Final = 1.0
_AT_EXIT_S: Final = (1.0, 0.5)
_CREATE_SUSPENDED: Final = 0x4


class ProcessTree:
    """A process and everything it started.

    Args:
        argv: the command as configured.
        program: the file to run.
        env: its whole environment.
        cwd: its working directory, or None for ours.

    Attributes:
        popen: the process, with its three pipes.
        pid: its process id.

    Raises:
        OSError, ValueError: the system refused.
    """

    def __init__(self, argv: Sequence[str], program: str, env: Mapping[str, str], cwd: str | None) -> None:
        self._job: _Job | None = None
        command: Sequence[str] | str = [program, *argv[1:]]
        flags = 0
        if sys.platform == "win32":
            flags = _CREATE_SUSPENDED | subprocess.CREATE_NO_WINDOW
            if program.lower().endswith((".bat", ".cmd")):
                command = batch_command_line(program, argv[1:])
        self.popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
            creationflags=flags,
        )
        self.pid = self.popen.pid
        self._descendants: dict[int, str] = {}
        _running.add(self)
        if sys.platform == "win32":
            try:
                self._job = _Job(self.popen)
            except BaseException:
                self.popen.kill()
                raise

    def reap(self) -> int | None:
        """The exit code if the process has ended, and the end of its entry in the process table."""
        return self.popen.poll()

    def note_descendants(self) -> None:
        """Remember what the process has started so far, as far as the system tells."""
        if self.popen.returncode is None:
            # All of them: one that is still in the group may be just about to leave it.
            self._descendants |= {pid: start for pid, start in _descendants(self.pid) if pid != self.pid}

    def signal(self, *, kill: bool) -> None:
        """Ask the whole tree to end, or end it at once. Windows knows no request, so there both are the same."""
        if self._job is not None:
            self._job.terminate()
            return
        number = signal.SIGKILL if kill else signal.SIGTERM
        # Only while the group exists is its number not somebody else's: it does as long as its leader is not reaped or a member runs.
        if self.popen.returncode is None or _group_runs(self.pid):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)
        for pid, start in self._descendants.items():
            with suppress(ProcessLookupError, PermissionError):
                # Whoever is in the group has the signal already, and some programs take a second one for impatience.
                if _start_of(pid) == start and os.getpgid(pid) != self.pid:
                    os.kill(pid, number)

    def is_gone(self) -> bool:
        """Whether nothing of the tree runs any more. Once it says so, the tree is forgotten."""
        if self.popen.poll() is None:
            return False
        if self._job is not None:
            gone = not self._job.is_populated()
        else:
            gone = not (
                _group_runs(self.pid) or any(_start_of(pid) == start for pid, start in self._descendants.items())
            )
        if gone:
            _running.discard(self)
        return gone

    async def sweep(self, grace_s: float) -> None:
        """End what is left of the tree, asking first and waiting `grace_s` seconds for an answer."""
        for kill, patience_s in ((False, grace_s), (True, _AFTER_KILL_S)):
            if self.is_gone():
                return
            self.signal(kill=kill)
            deadline = time.monotonic() + patience_s
            pause = _POLL_S[0]
            while not self.is_gone() and time.monotonic() < deadline:
                await asyncio.sleep(pause)
                pause = min(pause * 2, _POLL_S[1])

    def kill_now(self) -> None:
        """End the whole tree and wait for the process, a moment at most, without an event loop."""
        self.signal(kill=True)
        try:
            self.popen.wait(_AFTER_KILL_S)
        except subprocess.TimeoutExpired:
            return
        if not self.is_gone():
            self.signal(kill=True)


# Every tree that may have something running in it.
_running: set[ProcessTree] = set()


@atexit.register
def _end_all() -> None:
    """Nothing we started outlives the interpreter, whatever became of the event loop: end of input, then SIGTERM, then SIGKILL."""
    trees = [tree for tree in list(_running) if not tree.is_gone()]
    for tree in trees:
        tree.note_descendants()
        if tree.popen.stdin is not None:
            with suppress(OSError):
                tree.popen.stdin.close()
    for patience_s, kill in ((_AT_EXIT_S[0], False), (_AT_EXIT_S[1], True)):
        deadline = time.monotonic() + patience_s
        while (trees := [tree for tree in trees if not tree.is_gone()]) and time.monotonic() < deadline:
            time.sleep(_POLL_S[1] / 10)
        for tree in trees:
            tree.signal(kill=kill)
    for tree in trees:
        tree.kill_now()


if hasattr(os, "register_at_fork"):
    # A forked copy of this process is not the parent of these, and must not end them when it exits.
    os.register_at_fork(after_in_child=_running.clear)


def _group_runs(group: int) -> bool:
    """Whether a process group has a member that runs."""
    with suppress(OSError):
        os.waitpid(-group, os.WNOHANG)  # orphans are ours to reap where we are the first process of a container
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    # A member that ended counts until its parent takes notice, which the first process of many a container never does.
    return not sys.platform.startswith("linux") or any(
        _belongs_and_runs(entry, group) for entry in Path("/proc").glob("[0-9]*")
    )


def _belongs_and_runs(entry: Path, group: int) -> bool:
    fields = _stat(entry)
    return len(fields) > 2 and fields[2] == str(group) and fields[0] not in "ZX"


def _stat(entry: Path) -> list[str]:
    """The fields of a process's `stat` after its name: state, parent, group, … ; [] if it is gone."""
    try:
        return (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _start_of(pid: int) -> str:
    """When a running process was started, which with its id makes it unique; "" if it is gone."""
    fields = _stat(Path("/proc", str(pid)))
    return fields[19] if len(fields) > 19 and fields[0] not in "ZX" else ""


def _descendants(root: int) -> list[tuple[int, str]]:
    """The processes at and below `root`, on Linux: id and start time. Elsewhere none are known."""
    found: list[tuple[int, str]] = []
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        fields = _stat(Path("/proc", str(pid)))
        if len(fields) > 19:
            found.append((pid, fields[19]))
        for children in Path("/proc", str(pid), "task").glob("*/children"):
            try:
                waiting += [int(child) for child in children.read_text().split()]
            except OSError:
                continue
    return found


class _Job:
    """A Windows Job Object that holds one process and all it starts, and ends them when we end, however we end.

    The process must have been created suspended: it starts to run once it is in the job, so that nothing it starts can be outside.
    """

    _kernel32: ctypes.CDLL
    _handle: ctypes.c_void_p

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        if sys.platform != "win32":
            raise NotImplementedError("Job Objects are a Windows facility")
        self._kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
        for name in (
            "CreateJobObjectW",
            "AssignProcessToJobObject",
            "SetInformationJobObject",
            "QueryInformationJobObject",
        ):
            getattr(self._kernel32, name).restype = ctypes.c_void_p if name.startswith("Create") else ctypes.c_int
        self._handle = ctypes.c_void_p(self._kernel32.CreateJobObjectW(None, None))
        # JOBOBJECT_EXTENDED_LIMIT_INFORMATION: LimitFlags stand 16 bytes in, after two 64-bit times, on 32 and 64 bits alike.
        limits = (ctypes.c_uint8 * (144 if ctypes.sizeof(ctypes.c_void_p) == 8 else 112))()
        limits[16:20] = [0x00, 0x20, 0x00, 0x00]  # JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
        self._kernel32.SetInformationJobObject(self._handle, 9, ctypes.byref(limits), len(limits))
        process = ctypes.c_void_p(int(vars(popen)["_handle"]))
        self._kernel32.AssignProcessToJobObject(self._handle, process)
        ctypes.WinDLL("ntdll").NtResumeProcess(process)

    def terminate(self) -> None:
        """End every process in the job."""
        self._kernel32.TerminateJobObject(self._handle, 1)

    def is_populated(self) -> bool:
        """Whether a process of the job runs."""
        # JOBOBJECT_BASIC_ACCOUNTING_INFORMATION: four 64-bit times, then page faults, processes ever, processes active, …
        accounting = (ctypes.c_uint32 * 12)()
        self._kernel32.QueryInformationJobObject(
            self._handle, 1, ctypes.byref(accounting), ctypes.sizeof(accounting), None
        )
        return accounting[10] > 0
