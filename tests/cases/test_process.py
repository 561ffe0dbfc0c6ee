"""The life of server processes: started once, waited for as long as they live, and gone with everything they started."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import time
from pathlib import Path

import pytest

import outrider
from cases.expectations import OPTIONS, assert_found, look_at, options, steps
from fakes.running import PROGRAM, FakeStdio
from fakes.scripts import (
    LINGER,
    NOTHING,
    Action,
    Script,
    close,
    exit_with,
    gate,
    ignore,
    kill,
    legacy,
    modern,
    on,
    spawn,
    stderr,
)
from outrider import OutriderError

SLEEP = "/bin/sleep"
LONG = "100000"


class TestFailedStarts:
    @pytest.mark.parametrize(
        ("command", "words"),
        [
            (["no-such-command-anywhere"], "not found"),
            (["/no/such/file"], "not exist"),
            (["/tmp"], "directory"),
            ([str(PROGRAM)], "not executable"),
        ],
        ids=["unknown", "missing", "directory", "not-executable"],
    )
    async def test_a_command_that_cannot_run(self, command: list[str], words: str) -> None:
        """Case 13: said at once and in words, with what to do."""
        report = await look_at(command)
        assert report.failure is not None
        assert report.failure.kind == "start"
        assert words in report.failure.message
        assert report.failure.hint
        assert report.era is None

    @pytest.mark.parametrize(
        ("actions", "code"),
        [
            ((stderr("ModuleNotFoundError: No module named 'x'\n"), exit_with(1)), 1),
            ((stderr("usage: server [-h]\n"), exit_with(2)), 2),
            ((exit_with(0),), 0),
            ((kill(11),), -11),
        ],
        ids=["exit-1", "exit-2", "exit-0", "sigsegv"],
    )
    async def test_a_process_that_ends_before_it_answers(
        self, fake_stdio: FakeStdio, actions: tuple[Action, ...], code: int
    ) -> None:
        """Case 13: noticed at once; code or signal and the last lines are shown; one more start, no loop."""
        fake = fake_stdio(Script(start=actions))
        started = time.monotonic()
        report = await look_at(fake.command, start_timeout_s=60.0, probe_timeout_s=30.0)
        assert time.monotonic() - started < 25, "the time allowed was waited for instead of the process"
        assert report.failure is not None
        assert (report.failure.kind, report.failure.exit_code) == ("ended", code)
        shown = f"{report.failure.message} {' '.join(report.stderr_tail)}"
        assert ("SIGSEGV" if code < 0 else f"code {code}") in shown
        if code > 0:
            assert actions[0]["stderr"].strip() in shown
        assert fake.spawns == 2
        assert steps(report)[:2] == ["server/discover", "initialize"]

    async def test_output_without_a_server_behind_it(self) -> None:
        """Case 13: a program that is no server at all; its words are kept."""
        report = await look_at(["/bin/sh", "-c", "echo 'ModuleNotFoundError: x' >&2; exit 1"])
        assert report.failure is not None
        assert report.failure.exit_code == 1
        assert report.stderr_tail == ("ModuleNotFoundError: x",)

    async def test_secrets_in_the_last_words_are_masked(self, fake_stdio: FakeStdio) -> None:
        """Case 13, case 69: what a process prints when it dies may be its configuration."""
        fake = fake_stdio(Script(start=[stderr("bad token hunter2-hunter2 in TOKEN\n"), exit_with(1)]))
        target = outrider.StdioTarget(tuple(fake.command), {"TOKEN": "hunter2-hunter2"})
        report = await look_at(target)
        assert report.stderr_tail == ("bad token ••• in TOKEN",)
        assert "hunter2" not in str(report.as_json())

    async def test_a_failed_start_leaves_no_process(self, fake_stdio: FakeStdio) -> None:
        """Case 54: never answers; five times."""
        fake = fake_stdio(Script(on(None, NOTHING), start=[ignore("SIGTERM")], end=[LINGER]))
        for _ in range(5):
            report = await look_at(fake.command, start_timeout_s=0.4, probe_timeout_s=0.2, shutdown_timeout_s=0.1)
            assert not report.ok
        fake.assert_nothing_runs()

    async def test_cancelling_a_start_leaves_no_process(self, fake_stdio: FakeStdio) -> None:
        """Case 54: at whatever moment."""
        fake = fake_stdio(Script(on(None, NOTHING)))
        for delay in range(8):
            task = asyncio.create_task(look_at(fake.command, shutdown_timeout_s=0.2))
            for _ in range(delay):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        running = asyncio.create_task(look_at(fake.command, shutdown_timeout_s=0.2))
        await fake.wait_for("received")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        fake.assert_nothing_runs()

    async def test_a_start_that_fails_once(self, fake_stdio: FakeStdio) -> None:
        """Case 40: nothing about a failed start is kept; the next look finds a good server, whatever failed the first."""
        fake = fake_stdio(Script(on(None, exit_with(1), spawn=1), on(None, exit_with(1), spawn=2), *modern()))
        first = await look_at(fake.command)
        assert not first.ok
        assert_found(await look_at(fake.command), "modern")


class TestSlowStarts:
    async def test_a_busy_server_is_not_a_silent_one(self, fake_stdio: FakeStdio) -> None:
        """Case 33: as long as something comes on stderr, the probe is waited for longer than its own limit."""
        fake = fake_stdio(
            Script(
                on(
                    "server/discover",
                    stderr("npm warn deprecated\n"),
                    gate("more"),
                    stderr("npm warn deprecated\n"),
                    gate("done"),
                    *modern()[0].do,
                ),
                *modern(),
            )
        )
        task = asyncio.create_task(look_at(fake.command, probe_timeout_s=2.0, start_timeout_s=60.0))
        await fake.wait_for("received")
        fake.open_gate("more")
        fake.open_gate("done")
        report = await task
        assert_found(report, "modern")
        assert fake.spawns == 1
        assert "npm warn deprecated" in report.stderr_tail

    async def test_the_start_has_a_budget_of_its_own(self, fake_stdio: FakeStdio) -> None:
        """Case 33: not the request's time limit."""
        fake = fake_stdio(Script(*legacy(), start=[gate("installed")]))
        task = asyncio.create_task(
            look_at(fake.command, probe_timeout_s=0.2, request_timeout_s=0.1, start_timeout_s=60)
        )
        await fake.wait_for("spawned")
        # The probe's window passes while nothing reads the input; the handshake is waiting there too.
        await asyncio.wait([task], timeout=0.7)
        fake.open_gate("installed")
        assert_found(await task, "legacy")
        assert fake.spawns == 1

    async def test_the_default_is_generous(self) -> None:
        """Case 33: at least 30 s, for servers that are installed on first use."""
        assert outrider.ClientOptions().start_timeout_s >= 30


class TestOneProcess:
    async def test_a_server_with_a_lock_is_started_once(self, tmp_path: Path) -> None:
        """Case 38: probe and service use one process; it is ended by end of input, so it can clean up."""
        lock, log = tmp_path / "server.lock", tmp_path / "log"
        command = [sys.executable, "-I", "-S", str(PROGRAM.with_name("locking.py")), str(lock), str(log)]
        for count in (1, 2, 3):
            assert_found(await look_at(command), "legacy", "only")
            assert [line.split()[0] for line in log.read_text().splitlines()] == ["start", "end"] * count
            assert not lock.exists()

    async def test_a_respawn_waits_for_the_first_to_be_gone(self, tmp_path: Path, fake_stdio: FakeStdio) -> None:
        """Case 38: whoever dies on the probe is reaped before the next one starts."""
        fake = fake_stdio(Script(on("server/discover", close("stdout"), LINGER), *legacy(), start=[ignore("SIGTERM")]))
        assert_found(await look_at(fake.command, shutdown_timeout_s=0.2), "legacy")
        assert fake.spawns == 2

    @pytest.mark.parametrize("era", [modern(), legacy()], ids=["modern", "legacy"])
    async def test_many_requests_share_it(self, fake_stdio: FakeStdio, era: tuple[object, ...]) -> None:
        """Case 38: a client shared by many tasks speaks over one pipe."""
        fake = fake_stdio(Script(*era))
        async with outrider.connect(fake.command, options=OPTIONS) as client:
            results = await asyncio.gather(*(client.call_tool(f"tool-{n}") for n in range(50)))
        assert [answer.text for answer in results] == [f"called tool-{n}" for n in range(50)]
        assert fake.spawns == 1


class TestShutdown:
    async def test_end_of_input_is_the_first_thing_that_ends_it(self, fake_stdio: FakeStdio) -> None:
        """Case 55: a well-behaved server sees end of input and no signal."""
        fake = fake_stdio(Script(*modern(), end=[{"note": "cleaned up"}]))
        assert_found(await look_at(fake.command), "modern")
        assert fake.notes() == ["cleaned up"]

    @pytest.mark.parametrize("stubborn", [[], [ignore("SIGTERM")]], ids=["heeds-term", "ignores-term"])
    async def test_a_process_that_ignores_end_of_input(self, fake_stdio: FakeStdio, stubborn: list[Action]) -> None:
        """Case 55: asked again with SIGTERM, then killed."""
        fake = fake_stdio(Script(*modern(), start=stubborn, end=[LINGER]))
        assert_found(await look_at(fake.command, shutdown_timeout_s=0.2), "modern")
        fake.assert_nothing_runs()

    @pytest.mark.parametrize("own_session", [False, True], ids=["same-group", "own-session"])
    async def test_a_grandchild_that_holds_the_pipes(self, fake_stdio: FakeStdio, own_session: bool) -> None:
        """Case 55, case 52: nobody waits for the end of a pipe when its process is gone, and the grandchild is ended too."""
        fake = fake_stdio(Script(*modern(), start=[spawn(SLEEP, LONG, own_session=own_session)]))
        assert_found(await look_at(fake.command, shutdown_timeout_s=0.3), "modern")
        assert len(fake.pids()) == 2
        fake.assert_nothing_runs()

    async def test_a_grandchild_that_leaves_at_the_last_moment(self, fake_stdio: FakeStdio) -> None:
        """Case 52: it was still in the group when the end began, and has a session of its own when the signals come."""
        fake = fake_stdio(
            Script(
                *modern(),
                start=[spawn(SLEEP, LONG, own_session=True, after_gate="leave")],
                end=[gate("exit")],
            )
        )

        async def let_it_leave() -> None:
            await fake.wait_for("eof")
            fake.open_gate("leave")
            await fake.wait_for("left")
            fake.open_gate("exit")

        leaving = asyncio.create_task(let_it_leave())
        assert_found(await look_at(fake.command, shutdown_timeout_s=20.0), "modern")
        await leaving
        assert len(fake.pids()) == 2
        fake.assert_nothing_runs()

    async def test_a_parent_that_exits_before_its_grandchild(self, fake_stdio: FakeStdio) -> None:
        """Case 55: the second form; the parent is gone in the middle of a call."""
        fake = fake_stdio(Script(on("tools/call", exit_with(3)), *modern(), start=[spawn(SLEEP, LONG)]))
        async with outrider.connect(fake.command, options=options(shutdown_timeout_s=0.3)) as client:
            with pytest.raises(outrider.TransportError) as lost:
                await client.call_tool("add")
        assert "code 3" in str(lost.value)
        fake.assert_nothing_runs()

    async def test_the_server_behind_a_wrapper(self, fake_stdio: FakeStdio) -> None:
        """Case 52: `sh -c` and `npx` start the real server as their child; it goes with them, although it ignores end of input."""
        fake = fake_stdio(Script(*modern(), start=[ignore("SIGTERM")], end=[LINGER]))
        wrapper = ["/bin/sh", "-c", f"{shlex.join(fake.command)}; exit $?"]
        assert_found(await look_at(wrapper, shutdown_timeout_s=0.2), "modern")
        fake.assert_nothing_runs()

    async def test_an_error_in_the_callers_block_ends_it_too(self, fake_stdio: FakeStdio) -> None:
        """Case 52: on the caller's own crash paths."""
        fake = fake_stdio(Script(*modern(), end=[LINGER]))
        with pytest.raises(ZeroDivisionError):
            async with outrider.connect(fake.command, options=options(shutdown_timeout_s=0.2)):
                1 / 0  # noqa: B018
        fake.assert_nothing_runs()

    async def test_ctrl_c_ends_it_too(self, fake_stdio: FakeStdio) -> None:
        """Case 52, case 132: Ctrl-C in a program that has a server open; the server was in no group that saw the signal."""
        fake = fake_stdio(Script(*modern(), end=[LINGER]))
        program = (
            "import asyncio, outrider, sys\n"
            "async def main():\n"
            f"    options = outrider.ClientOptions(shutdown_timeout_s=0.2)\n"
            f"    async with outrider.connect({fake.command!r}, options=options) as client:\n"
            "        await client.list_tools()\n"
            "        print('ready', flush=True)\n"
            "        await asyncio.Event().wait()\n"
            "asyncio.run(main())\n"
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        process.send_signal(2)
        await process.wait()
        fake.assert_nothing_runs()

    async def test_servers_are_ended_in_parallel(self, fake_stdio: FakeStdio) -> None:
        """Case 55: ten stubborn servers cost what one costs."""
        fakes = [fake_stdio(Script(*modern(), start=[ignore("SIGTERM")], end=[LINGER])) for _ in range(10)]
        clients = [outrider.connect(fake.command, options=options(shutdown_timeout_s=0.5)) for fake in fakes]
        for client in clients:
            await client.__aenter__()
        await asyncio.gather(*(client.close() for client in clients))
        for fake in fakes:
            fake.assert_nothing_runs()


class TestOwnership:
    async def test_closing_from_another_task(self, fake_stdio: FakeStdio) -> None:
        """Case 132: any number of times; whoever waits for an answer gets an error, not a hang."""
        fake = fake_stdio(Script(on("tools/call", NOTHING), *modern()))
        client = await outrider.connect(fake.command, options=OPTIONS).__aenter__()
        call = asyncio.create_task(client.call_tool("add"))
        await fake.wait_for("received", "tools/call")
        await asyncio.gather(*(asyncio.create_task(client.close()) for _ in range(3)))
        with pytest.raises(OutriderError):
            await call
        await client.close()
        with pytest.raises(OutriderError):
            await client.list_tools()

    async def test_one_failing_server_cancels_nobody(self, fake_stdio: FakeStdio) -> None:
        """Case 132: opened together in one gather; errors arrive as values."""
        good = [fake_stdio(Script(*modern())) for _ in range(3)]
        bad = fake_stdio(Script(start=[exit_with(1)]))
        reports = await asyncio.gather(*(look_at(fake.command) for fake in (good[0], bad, *good[1:])))
        assert [report.ok for report in reports] == [True, False, True, True]

    async def test_opened_in_one_task_used_in_another_closed_in_a_third(self, fake_stdio: FakeStdio) -> None:
        """Case 132."""
        fake = fake_stdio(Script(*modern()))
        client = outrider.connect(fake.command, options=OPTIONS)
        await asyncio.create_task(client.__aenter__())
        assert (await asyncio.create_task(client.call_tool("add"))).text == "called add"
        await asyncio.create_task(client.close())
        fake.assert_nothing_runs()

    async def test_a_process_that_dies_is_replaced(self, fake_stdio: FakeStdio) -> None:
        """Spec stdio#unexpected-termination (SHOULD): the list is read from a new process; a call that may have run is not repeated."""
        fake = fake_stdio(Script(on("tools/call", exit_with(1)), on("tools/list", exit_with(1), spawn=2), *modern()))
        async with outrider.connect(fake.command, options=OPTIONS) as client:
            with pytest.raises(OutriderError):
                await client.call_tool("add")
            assert len(await client.list_tools()) == 2
        assert len(fake.received("tools/call")) == 1
        assert fake.spawns == 3

    async def test_a_process_that_always_dies_is_not_started_for_ever(self, fake_stdio: FakeStdio) -> None:
        """Case 13: no endless restart loop."""
        fake = fake_stdio(Script(on("tools/list", exit_with(1)), *modern()))
        async with outrider.connect(fake.command, options=OPTIONS) as client:
            for _ in range(10):
                with pytest.raises(OutriderError):
                    await client.list_tools()
        assert fake.spawns <= 6


class TestEnvironment:
    async def test_only_the_base_list_and_the_entrys_own(
        self, fake_stdio: FakeStdio, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Case 137: no server sees the user's other keys."""
        monkeypatch.setenv("OTHER_KEY", "x-secret-of-another-server")
        monkeypatch.setenv("LC_ALL", "C.UTF-8")
        fake = fake_stdio(Script(*modern(), start=[{"environment": True}]))
        assert (await look_at(outrider.StdioTarget(tuple(fake.command), {"MINE": "1"}))).ok
        (record,) = fake.log("environment")
        seen = record["environment"]
        assert "OTHER_KEY" not in seen
        assert (seen["MINE"], seen["LC_ALL"], seen["PATH"]) == ("1", "C.UTF-8", os.environ["PATH"])

    async def test_all_of_it_when_asked(self, fake_stdio: FakeStdio, monkeypatch: pytest.MonkeyPatch) -> None:
        """Case 137: the option to inherit everything."""
        monkeypatch.setenv("OTHER_KEY", "x")
        fake = fake_stdio(Script(*modern(), start=[{"environment": True}]))
        assert (await look_at(outrider.StdioTarget(tuple(fake.command), inherit_env=True))).ok
        assert fake.log("environment")[0]["environment"]["OTHER_KEY"] == "x"

    async def test_the_working_directory(self, fake_stdio: FakeStdio, tmp_path: Path) -> None:
        """Ours: the entry's own."""
        fake = fake_stdio(Script(*modern(), start=[{"environment": True}]))
        assert (await look_at(outrider.StdioTarget(tuple(fake.command), cwd=str(tmp_path)))).ok
        assert fake.log("environment")[0]["directory"] == str(tmp_path)

    async def test_arguments_arrive_as_they_are(self, fake_stdio: FakeStdio) -> None:
        """Ours: no shell stands in between."""
        odd = ["$HOME", "a b", "'", '"', "*", ";exit", "天気", ""]
        fake = fake_stdio(Script(*modern(), start=[{"environment": True}]))
        assert (await look_at([*fake.command, *odd])).ok
        assert fake.log("environment")[0]["arguments"][2:] == odd
