"""The process behind a stdio server: start, talk, end; with real processes, on every way a child can be watched."""

from __future__ import annotations

import asyncio
import json
import os
import select
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from outrider.client import stdio
from outrider.client.child import PipedChild, ThreadedChild
from outrider.client.stdio import ExitStatus, StdioProcess
from outrider.client.target import ClientOptions, StdioTarget
from outrider.errors import ConnectFailed, ConnectionLost
from outrider.protocol.framing import Overflow

PROGRAM = Path(__file__).parents[1] / "fakes" / "process.py"
# Without site packages it starts twice as fast.
PYTHON = (sys.executable, "-I", "-S")
SOURCE = Path(stdio.__file__).parents[2]
DEADLINE_S = 60.0
PATIENT = ClientOptions(shutdown_timeout_s=30.0)
HASTY = ClientOptions(shutdown_timeout_s=0.2)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the fakes use POSIX signals")


@pytest.fixture(params=["piped", "without-pidfd", "threaded"])
def flavour(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each way to watch a child: as on Linux, as on other POSIX systems, and as on Windows."""
    kind = str(request.param)
    if kind == "threaded":
        monkeypatch.setattr(stdio, "spawn", ThreadedChild)
    else:
        monkeypatch.setattr(stdio, "spawn", PipedChild)
    if kind == "without-pidfd":
        monkeypatch.delattr(os, "pidfd_open")
    return kind


def target(*habit: str, **more: Any) -> StdioTarget:
    return StdioTarget((*PYTHON, str(PROGRAM), *habit), **more)


@asynccontextmanager
async def running(*habit: str, options: ClientOptions = PATIENT, **more: Any) -> AsyncIterator[StdioProcess]:
    process = await StdioProcess.start(target(*habit, **more), options)
    try:
        async with asyncio.timeout(DEADLINE_S):
            yield process
    finally:
        await process.close()


async def next_line(lines: Any) -> bytes:
    line = await anext(lines)
    assert isinstance(line, bytes)
    return line


async def soon(awaitable: Awaitable[Any]) -> Any:
    async with asyncio.timeout(DEADLINE_S):
        return await awaitable


async def stderr_says(process: StdioProcess, text: str) -> str:
    """The first line of stderr that holds `text`, once there is one."""
    heard, hear = asyncio.Event(), process.on_stderr

    def on_stderr(data: bytes) -> None:
        hear(data)
        heard.set()

    setattr(process, "on_stderr", on_stderr)  # noqa: B010
    async with asyncio.timeout(DEADLINE_S):
        while True:
            for line in process.stderr_tail():
                if text in line:
                    return line
            await heard.wait()
            heard.clear()


# Taken before any test hides it.
_pidfd_open = os.pidfd_open


@contextmanager
def watching(pid: int) -> Iterator[Callable[[], bool]]:
    """A function that tells whether a process has ended, waiting for it until the deadline."""
    descriptor = _pidfd_open(pid)
    try:
        yield lambda: bool(select.select([descriptor], [], [], DEADLINE_S)[0])
    finally:
        os.close(descriptor)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.usefixtures("flavour")
class TestTalking:
    async def test_messages_go_out_and_come_back_as_lines(self) -> None:
        """Spec stdio#sending-messages, #receiving-messages: one message a line."""
        async with running("echo") as process:
            lines = process.lines()
            for message in (b'{"id":1}', "é天".encode(), b""):
                await process.send(message)
                assert await next_line(lines) == message

    async def test_a_message_over_several_lines_is_sent_as_one(self) -> None:
        """Spec stdio (MUST NOT contain embedded newlines)."""
        async with running("echo") as process:
            await process.send(b'{\n  "id": 1\r\n}')
            assert await next_line(process.lines()) == b'{   "id": 1  }'

    @pytest.mark.parametrize(
        ("size", "piece"), [(65_537, 65_537), (1 << 20, 1 << 20), (10 << 20, 1 << 20), (65_537, 1)]
    )
    async def test_long_lines_arrive_whole(self, size: int, piece: int) -> None:
        """Case 22: 65,537 bytes, 1 MiB, 10 MiB, and the same in 1-byte writes."""
        async with running("long-line", str(size), str(piece)) as process:
            lines = process.lines()
            assert len(await next_line(lines)) == size
            assert await next_line(lines) == b"last"

    async def test_a_line_above_the_limit_costs_only_itself(self) -> None:
        """Case 22, case 104: reported, thrown away to its end, and the next line is a message again."""
        options = ClientOptions(max_message_bytes=100_000, shutdown_timeout_s=30)
        async with running("long-line", str(50 << 20), str(1 << 20), options=options) as process:
            lines = process.lines()
            assert await anext(lines) == Overflow(100_000, b"x" * 200)
            assert await next_line(lines) == b"last"

    @pytest.mark.parametrize("size", [6_187, 70_000, 3_000_000])
    async def test_stderr_is_read_all_the_time(self, size: int) -> None:
        """Case 37: a server that writes more to stderr than a pipe holds still answers."""
        async with running("errors", str(size)) as process:
            assert await next_line(process.lines()) == b"done"

    async def test_what_is_kept_of_stderr_is_bounded(self) -> None:
        """Case 104: the same kind of limit for stderr, in many lines and in one."""
        async with running("errors", "1000000") as process:
            assert await next_line(process.lines()) == b"done"
            assert len(process.stderr_tail()) == 50
        assert set(process.stderr_tail()) == {"e" * 99}
        async with running("one-long-error", "1000000") as process:
            await stderr_says(process, "ready")
            assert process.stderr_tail() == ("ready",)

    async def test_a_line_of_stderr_that_lost_its_beginning_is_not_shown(self) -> None:
        """Case 69: a secret that was cut in half would pass redaction."""
        async with running("exit", "1", "s" * 20_000) as process:
            await process.wait_exit()
        assert process.stderr_tail() == ()
        async with running("exit", "1", "first", "s" * 16_375, "last") as process:
            await process.wait_exit()
        assert process.stderr_tail() == ("s" * 16_375, "last")

    async def test_a_process_nobody_listens_to_has_to_wait(self) -> None:
        """Case 104: a flood without a reader is held in the pipe, not in our memory; nothing of it is lost."""
        line = "f" * 999
        async with running("until-blocked", line) as process:
            told = await stderr_says(process, "blocked after")
            written = int(told.rsplit(" ", 1)[1])
            assert written < 8 << 20
            lines, count = process.lines(), 0
            async for received in lines:
                if received == b"last":
                    break
                assert received == line.encode()
                count += 1
            assert count == -(-written // 1000) or count == written // 1000 + 1

    async def test_a_sender_waits_for_a_process_that_does_not_read(self) -> None:
        """Ours: back-pressure, so that a stuck server does not fill our memory."""
        async with running("deaf-until-told") as process:
            lines = process.lines()
            assert await next_line(lines) == b"deaf"
            sending = asyncio.create_task(process.send(b"a" * 5_000_000))
            await asyncio.sleep(0)
            assert not sending.done()
            os.kill(process.pid, signal.SIGUSR1)
            await soon(sending)
            assert await next_line(lines) == b"5000001 a a"

    async def test_a_cancelled_sender_does_not_cut_its_message(self) -> None:
        """Ours: half a line would be glued to the next message."""
        async with running("deaf-until-told") as process:
            lines = process.lines()
            assert await next_line(lines) == b"deaf"
            sending = asyncio.create_task(process.send(b"a" * 1_000_000))
            await asyncio.sleep(0)
            sending.cancel()
            await asyncio.wait([sending])
            os.kill(process.pid, signal.SIGUSR1)
            await soon(process.send(b"b"))
            assert await next_line(lines) == b"1000001 a a"
            assert await next_line(lines) == b"2 b b"

    async def test_many_senders_do_not_mix_their_messages(self) -> None:
        """Ours: one client is shared by many tasks."""
        async with running("deaf-until-told") as process:
            lines = process.lines()
            assert await next_line(lines) == b"deaf"
            letters = "abcdefghij"
            async with asyncio.TaskGroup() as tasks:
                for letter in letters:
                    tasks.create_task(process.send(letter.encode() * 200_000))
                os.kill(process.pid, signal.SIGUSR1)
                received = [await next_line(lines) for _ in letters]
            assert sorted(received) == [f"200001 {letter} {letter}".encode() for letter in letters]

    async def test_a_sender_that_waits_learns_of_the_end(self) -> None:
        """Case 13: the end of the process ends the wait at once."""
        async with running("deaf-until-told", options=HASTY) as process:
            assert await next_line(process.lines()) == b"deaf"
            sending = asyncio.create_task(process.send(b"a" * 5_000_000))
            await asyncio.sleep(0)
            os.kill(process.pid, signal.SIGKILL)
            with pytest.raises(ConnectionLost):
                await soon(sending)


@pytest.mark.usefixtures("flavour")
class TestEndingByItself:
    @pytest.mark.parametrize(
        ("habit", "status", "text"),
        [
            (["exit", "1", "ModuleNotFoundError: x"], ExitStatus(1), "exited with code 1"),
            (["exit", "0"], ExitStatus(0), "exited with code 0"),
            (["die"], ExitStatus(-signal.SIGSEGV), "was ended by SIGSEGV"),
        ],
    )
    async def test_the_end_is_noticed_at_once_with_its_cause(
        self, habit: list[str], status: ExitStatus, text: str
    ) -> None:
        """Case 13: exit code or signal, and the last lines of stderr."""
        async with running(*habit) as process:
            assert [line async for line in process.lines()] == []
            assert await process.wait_exit() == status
            assert str(status) == text
            assert process.stderr_tail() == tuple(habit[2:])
            with pytest.raises(ConnectionLost) as lost:
                await process.send(b"{}")
            assert lost.value.exit_code == status.code

    async def test_nothing_written_before_the_end_is_lost(self) -> None:
        """Ours: an answer followed by a crash is still an answer."""
        async with running("exit-after-answer") as process:
            await process.send(b"go")
            assert [line async for line in process.lines()] == [f"{number:0200}".encode() for number in range(1000)]
            assert await process.wait_exit() == ExitStatus(7)
            assert process.stderr_tail() == ("last words",)

    async def test_a_process_that_only_closes_its_output_is_ended(self) -> None:
        """Spec stdio#shutdown: closing its output is the server's way to end the connection."""
        async with running("close-output", options=HASTY) as process:
            assert [line async for line in process.lines()] == [b"ready"]
            status = await process.wait_exit()
            assert status.code is not None
            assert str(status) == "closed its output without exiting, and was ended", "the signal was ours"

    async def test_what_it_leaves_behind_ends_with_it(self) -> None:
        """Case 52, case 55: the wrapper is gone, its child holds the pipes and ignores everything."""
        async with running("parent", "exit", options=HASTY) as process:
            lines = process.lines()
            other = int(sorted([await next_line(lines), await next_line(lines)])[0])
            with watching(other) as ended:
                await process.send(b"go")
                assert await anext(lines, None) is None
                assert await process.wait_exit() == ExitStatus(0)
                assert await asyncio.to_thread(ended)


@pytest.mark.usefixtures("flavour")
class TestBeingEnded:
    async def test_a_process_that_heeds_the_end_of_its_input_gets_no_signal(self, tmp_path: Path) -> None:
        """Spec stdio#shutdown (SHOULD: close the input, wait); case 38: the lock is gone, so the next start works."""
        for _ in range(2):
            process = await StdioProcess.start(target("lock", str(tmp_path / "lock")), PATIENT)
            assert await soon(next_line(process.lines())) == b"ready"
            assert await soon(process.close()) == ExitStatus(0)
            assert process.stderr_tail() == ()

    async def test_one_that_does_not_is_asked_by_signal(self, tmp_path: Path) -> None:
        """Spec stdio#shutdown: SIGTERM comes before SIGKILL."""
        note = tmp_path / "note"
        process = await StdioProcess.start(target("heed-term", str(note)), ClientOptions(shutdown_timeout_s=4.0))
        assert await soon(next_line(process.lines())) == b"ready"
        assert await soon(process.close()) == ExitStatus(0)
        assert note.read_text() == "asked"

    async def test_one_that_ignores_that_too_is_killed(self) -> None:
        """Case 55: trap TERM and ignore the end of input; the total is bounded."""
        process = await StdioProcess.start(target("stubborn"), HASTY)
        assert await soon(next_line(process.lines())) == b"ready"
        assert await soon(process.close()) == ExitStatus(-signal.SIGKILL)

    async def test_a_stopped_process_is_killed(self) -> None:
        """Ours: a process that is stopped takes notice of nothing but SIGKILL."""
        async with running("echo", options=HASTY) as process:
            os.kill(process.pid, signal.SIGSTOP)
            assert await soon(process.close()) == ExitStatus(-signal.SIGKILL)

    @pytest.mark.parametrize("then", ["wait", "stay"])
    @pytest.mark.parametrize("kind", ["parent", "parent-of-session"])
    async def test_everything_it_started_ends_with_it(self, kind: str, then: str) -> None:
        """Case 52: grandchildren that ignore the end of input and SIGTERM, in its process group or in a session of their own."""
        async with running(kind, then, options=HASTY) as process:
            lines = process.lines()
            other = int(sorted([await next_line(lines), await next_line(lines)])[0])
            with watching(other) as ended:
                await soon(process.close())
                assert await asyncio.to_thread(ended)

    async def test_a_shell_around_the_server_makes_no_difference(self) -> None:
        """Case 52: `sh -c` with a server that ignores the end of its input."""
        inner = shlex.join([*PYTHON, str(PROGRAM), "stubborn-child"])
        wrapped = StdioTarget(("sh", "-c", f"{inner} & echo $!; wait"))
        process = await StdioProcess.start(wrapped, HASTY)
        lines = process.lines()
        other = int(sorted([await soon(next_line(lines)), await soon(next_line(lines))])[0])
        with watching(other) as ended:
            await soon(process.close())
            assert await asyncio.to_thread(ended)

    async def test_closing_is_for_any_task_any_number_of_times(self) -> None:
        """Case 132: idempotent, from several tasks at once, and again afterwards."""
        process = await StdioProcess.start(target("stubborn"), HASTY)
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
            closers = [tasks.create_task(process.close()) for _ in range(5)]
        assert len({closer.result() for closer in closers}) == 1
        assert await process.close() == closers[0].result()

    async def test_cancelling_who_closes_does_not_stop_the_closing(self) -> None:
        """Case 132: a cancelled task leaves nothing half closed."""
        process = await StdioProcess.start(target("stubborn"), HASTY)
        with watching(process.pid) as ended:
            closer = asyncio.create_task(process.close())
            await asyncio.sleep(0)
            closer.cancel()
            await asyncio.wait([closer])
            assert closer.cancelled()
            assert (await soon(process.wait_exit())).code is not None
            assert ended()
        await soon(process.close())

    async def test_a_reader_and_a_sender_end_with_the_closing(self) -> None:
        """Ours: nobody waits for a process that is being ended."""
        process = await StdioProcess.start(target("stubborn"), HASTY)
        lines = process.lines()
        assert await soon(next_line(lines)) == b"ready"
        reading = asyncio.create_task(anext(lines, None))
        sending = asyncio.create_task(process.send(b"x" * 5_000_000))
        await asyncio.sleep(0)
        await soon(process.close())
        assert await soon(reading) is None
        with pytest.raises(ConnectionLost):
            await soon(sending)

    async def test_many_end_at_once(self) -> None:
        """Case 55: all servers in parallel; nothing of them is left, descriptors included."""
        warm = await StdioProcess.start(target("stubborn"), HASTY)
        await soon(warm.close())
        before = open_descriptors()
        processes = [await StdioProcess.start(target("stubborn" if n % 2 else "echo"), HASTY) for n in range(20)]
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.gather(*(process.close() for process in processes))
            for thread in threading.enumerate():
                if thread.name.startswith("outrider"):  # it lets go of its pipe a moment later
                    await asyncio.to_thread(thread.join, DEADLINE_S)
        assert open_descriptors() == before

    async def test_failed_starts_leave_nothing(self) -> None:
        """Case 54: reconnect five times to a server that never answers."""
        for _ in range(5):
            process = await StdioProcess.start(target("stubborn"), HASTY)
            starting = asyncio.create_task(next_line(process.lines()))
            await asyncio.sleep(0)
            starting.cancel()
            await soon(process.close())
            assert (await process.wait_exit()).code is not None


class TestStarting:
    async def test_the_environment_is_the_base_list_and_the_entrys_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Case 137: the keys of the user are not for every server."""
        monkeypatch.setenv("OTHER_KEY", "x")
        monkeypatch.setenv("LC_ALL", "C.UTF-8")
        monkeypatch.setenv("https_proxy", "http://proxy:1")
        async with running("environment", env={"OWN_KEY": "y", "HOME": "/elsewhere"}) as process:
            told = json.loads(await next_line(process.lines()))["env"]
        assert "OTHER_KEY" not in told
        assert told["OWN_KEY"] == "y"
        assert told["HOME"] == "/elsewhere"
        assert told["PATH"] == os.environ["PATH"]
        assert told["LC_ALL"] == "C.UTF-8"
        assert told["https_proxy"] == "http://proxy:1"

    async def test_the_whole_environment_is_handed_on_when_asked_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Case 137: an option to inherit all."""
        monkeypatch.setenv("OTHER_KEY", "x")
        async with running("environment", inherit_env=True, env={"OWN_KEY": "y"}) as process:
            told = json.loads(await next_line(process.lines()))["env"]
        assert (told["OTHER_KEY"], told["OWN_KEY"]) == ("x", "y")

    async def test_it_runs_in_its_directory_and_in_a_session_of_its_own(self, tmp_path: Path) -> None:
        """Case 52: its own process group, which a Ctrl-C in our terminal does not reach."""
        async with running("environment", cwd=str(tmp_path)) as process:
            told = json.loads(await next_line(process.lines()))
        assert told["cwd"] == str(tmp_path)
        assert told["session"] == told["group"] == process.pid

    async def test_a_relative_command_is_relative_to_its_directory(self, tmp_path: Path) -> None:
        """Ours: as a shell in that directory would find it."""
        script = tmp_path / "server.sh"
        script.write_text("#!/bin/sh\necho here\n")
        script.chmod(0o755)
        for argv, env in ((("./server.sh",), {}), (("server.sh",), {"PATH": f"{tmp_path}:/bin"})):
            process = await StdioProcess.start(StdioTarget(argv, env, str(tmp_path)), PATIENT)
            assert await soon(next_line(process.lines())) == b"here"
            await soon(process.close())

    async def test_what_cannot_be_started_says_why(self, tmp_path: Path) -> None:
        """Case 13: `nope`, a directory, a file without x bit, and what else there is."""
        plain = tmp_path / "plain.py"
        plain.write_text("print('hello')\n")
        garbage = tmp_path / "garbage"
        garbage.write_bytes(b"\0\1\2\3garbage")
        no_interpreter = tmp_path / "no-interpreter"
        no_interpreter.write_text("#!/nowhere/python\n")
        windows = tmp_path / "windows"
        windows.write_bytes(b"#!/bin/sh\r\necho\r\n")
        for script in (garbage, no_interpreter, windows):
            script.chmod(0o755)
        path = {"PATH": f"/usr/bin:{tmp_path}"}
        cases: Sequence[tuple[StdioTarget, str, str]] = [
            (StdioTarget(("nope",), path), "'nope' was not found", f"searched was PATH=/usr/bin:{tmp_path}"),
            (StdioTarget(("npx", "-y", "x"), {"PATH": str(tmp_path)}), "'npx' was not found", "install Node.js"),
            (StdioTarget(("nope",), {"PATH": ""}), "was not found", "PATH=(empty)"),
            (StdioTarget(("npx -y x",), path), "was not found", "give the arguments separately"),
            (StdioTarget(("./nope",)), "does not exist", "looked for"),
            (StdioTarget(("~/server",)), "does not exist", "write the path out"),
            (StdioTarget((str(tmp_path),)), "is a directory", "inside it"),
            (StdioTarget((str(plain),)), "is not executable", "python3 plain.py"),
            (StdioTarget(("plain.py",), path), "is not executable", "chmod +x"),
            (StdioTarget((str(garbage),)), "is not a program for this machine", "#!/bin/sh"),
            (StdioTarget((str(no_interpreter),)), "the interpreter", "'#!/nowhere/python'"),
            (StdioTarget((str(windows),)), "the interpreter", "Windows line ends"),
            (StdioTarget(("sh",), cwd=str(tmp_path / "nowhere")), "does not exist", "cwd"),
            (StdioTarget(("sh",), cwd=str(plain)), "is not a directory", "cwd"),
            (StdioTarget(("sh", "a\0b")), "NUL", "configuration"),
            (StdioTarget(("sh", "x" * 4_000_000)), "too long", "shorten"),
            (StdioTarget(("sh",), {"A=B": "1"}), "was not started", ""),
        ]
        for wanted, message, hint in cases:
            with pytest.raises(ConnectFailed) as failed:
                await StdioProcess.start(wanted, PATIENT)
            assert message in str(failed.value)
            assert hint in failed.value.hint

    async def test_a_failed_start_holds_no_descriptor(self, tmp_path: Path) -> None:
        """Case 54: nothing is left of a start that failed late."""
        garbage = tmp_path / "garbage"
        garbage.write_bytes(b"\0\1\2\3")
        garbage.chmod(0o755)
        before = open_descriptors()
        for _ in range(5):
            with pytest.raises(ConnectFailed):
                await StdioProcess.start(StdioTarget((str(garbage),)), PATIENT)
        assert open_descriptors() == before

    def test_it_works_in_another_event_loop(self) -> None:
        """Ours: uvloop, which gateways use."""

        async def talk() -> bytes:
            async with running("echo") as process:
                await process.send(b"x" * 3_000_000)
                return await next_line(process.lines())

        assert len(uvloop.run(talk())) == 3_000_000

    def test_it_works_in_a_thread(self) -> None:
        """Ours: an event loop need not run in the main thread, where signals arrive."""
        results: list[ExitStatus] = []

        async def talk() -> None:
            async with running("exit", "5") as process:
                results.append(await process.wait_exit())

        thread = threading.Thread(target=lambda: asyncio.run(talk()))
        thread.start()
        thread.join(DEADLINE_S)
        assert results == [ExitStatus(5)]


SCRIPT = """
import asyncio, os, select, signal, sys
from outrider.client.stdio import StdioProcess
from outrider.client.target import ClientOptions, StdioTarget

async def start(habit):
    command = (sys.executable, "-I", "-S", {program!r}, *habit)
    process = await StdioProcess.start(StdioTarget(command), ClientOptions(shutdown_timeout_s=0.2))
    lines = process.lines()
    first = [await anext(lines) for _ in range(2 if habit[0] == "parent" else 1)]
    print(process.pid, min(first).decode() if habit[0] == "parent" else process.pid, flush=True)
    return process
"""


class TestOurOwnEnd:
    """However this process ends, what it started ends too."""

    def ends(self, body: str, *, then: Callable[[subprocess.Popen[bytes]], None] = lambda _: None) -> None:
        """Runs a program of ours until it has told the ids of its processes, ends it, and waits for theirs to end."""
        code = SCRIPT.format(program=str(PROGRAM)) + body
        with subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
        ) as ours:
            assert ours.stdin is not None
            assert ours.stdout is not None
            told = ours.stdout.readline().split()
            assert len(told) == 2, ours.communicate()[1].decode()
            with watching(int(told[0])) as server_ended, watching(int(told[1])) as other_ended:
                then(ours)
                ours.stdin.close()  # which is what the program waits for
                assert ours.wait(DEADLINE_S) is not None
                assert server_ended()
                assert other_ended()

    @pytest.mark.parametrize("habit", [["stubborn"], ["parent", "stay"], ["parent", "wait"]])
    def test_a_program_that_forgets_to_close(self, habit: list[str]) -> None:
        """Case 52: on every path, also when the event loop is gone and nobody closed."""
        self.ends(f"asyncio.run(start({habit}))\nsys.stdin.read()\n")

    def test_a_program_that_ends_while_its_server_ends(self) -> None:
        """Case 52: the wrapper is gone, its child is not, and the event loop is taken down before anybody could look."""
        self.ends(
            "async def main():\n"
            "    process = await start(['parent', 'exit'])\n"
            "    sys.stdin.read()\n"
            "    process._child.write(b'go')\n"
            "    assert select.select([os.pidfd_open(process.pid)], [], [], 60)[0]\n"
            "asyncio.run(main())\n"
        )

    def test_a_program_that_fails(self) -> None:
        """Case 52: an exception ends the program in the middle."""
        self.ends(
            "async def main():\n    await start(['stubborn'])\n    sys.stdin.read()\n    1 / 0\nasyncio.run(main())\n"
        )

    @pytest.mark.parametrize("presses", [1, 2])
    def test_control_c(self, presses: int) -> None:
        """Case 52, case 132: Ctrl-C while it talks, and again while it closes."""

        def press(ours: subprocess.Popen[bytes]) -> None:
            assert ours.stdout is not None
            for _ in range(presses):
                ours.send_signal(signal.SIGINT)
                assert ours.stdout.readline() in (b"closing\n", b"")

        self.ends(
            "async def main():\n"
            "    process = await start(['parent', 'stay'])\n"
            "    try:\n"
            "        await asyncio.Event().wait()\n"
            "    finally:\n"
            "        print('closing', flush=True)\n"
            "        await process.close()\n"
            "asyncio.run(main())\n",
            then=press,
        )

    def test_control_c_while_it_starts(self) -> None:
        """Case 54: cancellation before anybody has the process in hand."""
        self.ends(
            "async def main():\n"
            "    process = await start(['stubborn'])\n"
            "    asyncio.current_task().cancel()\n"
            "    again = await start(['stubborn'])\n"
            "try:\n"
            "    asyncio.run(main())\n"
            "except asyncio.CancelledError:\n"
            "    pass\n"
        )

    def test_a_program_that_is_killed_outright(self) -> None:
        """Ours: nothing can be done then; what the server notices is the end of its input."""
        self.ends(
            "async def main():\n"
            "    await start(['environment'])\n"
            "    await asyncio.Event().wait()\n"
            "asyncio.run(main())\n",
            then=lambda ours: ours.kill(),
        )

    def test_a_forked_copy_of_us_ends_nothing(self) -> None:
        """Ours: a fork is not the parent of our servers."""
        self.ends(
            "async def main():\n"
            "    process = await start(['stubborn'])\n"
            "    child = os.fork()\n"
            "    if not child:\n"
            "        import atexit; atexit._run_exitfuncs()\n"
            "        os._exit(0)\n"
            "    assert os.waitpid(child, 0)[1] == 0\n"
            "    os.kill(process.pid, 0)\n"
            "    assert open(f'/proc/{process.pid}/stat').read().rpartition(')')[2].split()[0] in 'SR'\n"
            "    await process.close()\n"
            "asyncio.run(main())\n"
        )


def test_an_interpreter_that_ends_has_nothing_to_say_of_processes_that_ended_before() -> None:
    """Case 52: several, whose end nobody has noticed."""
    script = (
        "import os, sys\n"
        "from outrider.client.process_tree import ProcessTree\n"
        "trees = [ProcessTree([sys.executable, '-ISc', ''], sys.executable, os.environ, None) for _ in range(3)]\n"
        "for tree in trees:\n"
        "    os.waitid(os.P_PID, tree.pid, os.WEXITED | os.WNOWAIT)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
