"""The command as a whole, and `config`, `cache` and `demo`, as a user meets them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli.user import DEADLINE_S, User, entry, sample
from fakes.running import FakeStdio
from fakes.scripts import LINGER, Script, legacy, modern, tool
from outrider.cli import _COMMANDS
from outrider.cli.streams import wants_colour

INTERRUPTIBLE = (
    "import signal, sys\n"
    # Whoever runs the tests in the background has made all its children deaf to Ctrl-C.
    "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "from outrider.cli import main\n"
    "main(sys.argv[1:])\n"
)


class TestConfig:
    def test_each_file_and_server_is_shown_and_nothing_is_started(self, user: User, fake_stdio: FakeStdio) -> None:
        """Ours: also where a file is missing, on request."""
        fake = fake_stdio(Script(*modern()))
        file = user.configure({"a": entry(fake.command), "off": {"command": "x", "disabled": True}})
        done = user.run("config")
        assert done.code == 0
        assert f"  {file}  (mcp-json, project): 2 servers" in done.out
        assert "places without a file; --all shows them" in done.out
        assert 'disabled: switched off by "disabled"' in done.out
        everything = user.run("config", "--all").out
        assert "--all" not in everything
        assert ".cursor/mcp.json  (cursor, user): missing" in everything
        assert fake.spawns == 0

    def test_it_is_said_where_an_entry_stands_and_how_it_was_read(self, user: User) -> None:
        """Ours: the name behind a derived key, every file, limits and tool lists; of variables and headers the names alone."""
        both = {"command": "x", "env": {"TOKEN": "s3cret"}}
        file = user.configure({"天気": {**both, "disabledTools": ["b"], "timeout": 1500}, "no": {"command": []}})
        other = user.configure({"t": both}, ".cursor/mcp.json")
        lines = [line.strip() for line in user.run("config").out.splitlines()]
        for line in (
            f'"天気" in {file}:1 (mcp-json, project)',
            f"also in {other}:1 (cursor, project)",
            "variables: TOKEN",
            "not these tools: b",
            "limits: request 1.5 s",
            f'no in {file}:1 (mcp-json, project): "command" is an empty list',
        ):
            assert line in lines
        assert "s3cret" not in user.run("config").everything

    def test_json_has_a_stable_shape(self, user: User) -> None:
        """Ours: `outrider.config/1`."""
        user.configure({"a": sample("modern")})
        shown = user.run("config", "--json").json
        assert shown["schema"] == "outrider.config/1"
        assert {"files", "servers", "ignored", "problems"} < set(shown)
        assert [(server["key"], server["state"]) for server in shown["servers"]] == [("a", "ready")]

    def test_a_broken_file_is_shown_with_its_line_and_costs_nothing_else(self, user: User) -> None:
        """Ours: exit code 2 here; `discover` warns and goes on with the rest."""
        user.configure({"weather": sample("modern")})
        broken = user.configure({}, ".cursor/mcp.json")
        broken.write_text('{"mcpServers":\n {"a": ')
        done = user.run("config")
        assert done.code == 2
        assert f"error: {broken}:2:" in done.out
        assert "weather" in done.out
        discovered = user.run("discover", "--json")
        assert discovered.json["ok"]
        assert str(broken) in discovered.err

    def test_a_file_that_is_named_and_not_there_is_an_error(self, user: User) -> None:
        """Ours."""
        done = user.run("config", "--config", "nowhere.json")
        assert done.code == 2
        assert "there is no such file" in done.out


class TestCache:
    def test_what_is_remembered_can_be_looked_at_and_cleared(self, user: User, fake_stdio: FakeStdio) -> None:
        """Ours: empty, then one server with two answers, then empty again."""
        fake = fake_stdio(Script(*modern()))
        assert user.run("cache", "list").out == "Nothing is remembered.\n"
        assert user.run("discover", "--", *fake.command).code == 0
        shown = user.run("cache", "list", "--json").json
        assert shown["schema"] == "outrider.cache/1"
        assert sorted(one["method"] for one in shown["entries"]) == ["server/discover", "tools/list"]
        assert user.run("cache", "stats").out.startswith("2 answers of 1 server, ")
        stats = user.run("cache", "stats", "--json").json
        assert (stats["schema"], stats["servers"], stats["entries"]) == ("outrider.cache-stats/1", 1, 2)
        assert "tools/list" in user.run("cache", "show", fake.directory.name).out
        assert user.run("cache", "clear", fake.directory.name).out == "2 answers forgotten.\n"
        assert user.run("cache", "clear").out == "0 answers forgotten.\n"

    @pytest.mark.parametrize("command", ["show", "clear"])
    def test_an_unknown_server_is_said(self, user: User, command: str) -> None:
        """Ours: exit code 1, and where to look."""
        done = user.run("cache", command, "nowhere")
        assert (done.code, done.out) == (1, "")
        assert "nothing is remembered of 'nowhere'" in done.err
        assert "outrider cache list" in done.err

    def test_it_is_kept_in_the_users_own_folder(self, user: User) -> None:
        """Ours: nobody else may read it."""
        user.run("discover", "--no-lists", "--", *[sample("modern")["command"], *sample("modern")["args"]])
        path = Path(user.run("cache", "path").out.strip())
        assert path.is_relative_to(user.home)
        assert path.stat().st_mode & 0o077 == 0


def test_demo_finds_each_kind_of_server_to_be_what_it_is(user: User) -> None:
    """Ours: nothing needs to be configured, nothing is left running; within 80 columns."""
    done = user.run("demo")
    assert done.code == 0, done
    found = {line[1:25].strip(): line[25:].split() for line in done.out.splitlines() if line.startswith(" ")}
    assert found["modern, stdio"][0] == found["modern, HTTP"][0] == "modern"
    for name in ("legacy, stdio", "legacy, HTTP", "exits on the probe", "never answers the probe"):
        assert found[name][0] == "legacy", name
    assert found["wants a sign-in"][-2:] == ["sign", "in"]
    assert found["broken"][-1] == "ended"
    table = done.out.split("\n\n")[0]
    assert all(line == line.rstrip() and len(line) <= 80 for line in table.splitlines())


class TestTheCommand:
    @pytest.mark.parametrize("name", sorted(_COMMANDS))
    def test_every_command_explains_itself(self, user: User, name: str) -> None:
        """Ours: a usage line, a sentence, its options; no line of it is cut or too wide."""
        done = user.run(name, "--help")
        assert done.code == 0
        assert done.out.startswith(f"Usage: outrider {name} ")
        assert "--help" in done.out
        assert "..." not in done.out.replace("ARGS...", "").replace("]...", "")
        prose = [line for line in done.out.splitlines() if "outrider " not in line]
        assert max(map(len, prose)) <= 80

    def test_the_list_of_commands_is_complete(self, user: User) -> None:
        """Ours: and -h does the same."""
        done = user.run("-h")
        assert done.code == 0
        listed = [line.split()[0] for line in done.out.partition("Commands:")[2].splitlines() if line[:3].strip()]
        assert listed == list(_COMMANDS)

    def test_an_unknown_command_is_answered_with_the_nearest(self, user: User) -> None:
        """Ours: exit code 2; what was typed cannot repaint the terminal."""
        done = user.run("discvoer")
        assert (done.code, done.out) == (2, "")
        assert "there is no command 'discvoer'. Did you mean discover?" in done.err
        assert "\x1b" not in user.run("\x1b[2J").err

    def test_the_version_is_told(self, user: User) -> None:
        """Ours."""
        assert user.run("--version").out.startswith("outrider, version ")

    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_completion_is_there_for_every_shell(self, user: User, shell: str) -> None:
        """Ours: docs/cli.md."""
        process = user.start([*user.command()], _OUTRIDER_COMPLETE=f"{shell}_source")
        script, _ = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0
        assert "_OUTRIDER_COMPLETE" in script

    def test_completion_names_the_commands(self, user: User) -> None:
        """Ours."""
        done = user.run(_OUTRIDER_COMPLETE="bash_complete", COMP_WORDS="outrider s", COMP_CWORD="1")
        assert done.out.split() == ["plain,search", "plain,show"]

    def test_completion_knows_servers_tools_and_arguments_and_asks_nobody(
        self, user: User, fake_stdio: FakeStdio
    ) -> None:
        """Ours: from configuration and memory; what a shell would trip over is not proposed; errors propose nothing."""
        schema = {"type": "object", "properties": {"people": {"type": "integer"}, "name": {"type": "string"}}}
        tools = [tool("book", inputSchema=schema), tool("two words"), tool("$(rm)"), tool("look")]
        fake = fake_stdio(Script(*modern(tools=tools)))
        user.configure({"tables": entry(fake.command), "off": {"command": "x", "disabled": True}})

        def proposed(*words: str) -> list[str]:
            typed = " ".join(("outrider", *words))
            done = user.run(_OUTRIDER_COMPLETE="bash_complete", COMP_WORDS=typed, COMP_CWORD=str(len(words)))
            assert (done.code, done.err) == (0, "")
            return [line.removeprefix("plain,") for line in done.out.split()]

        assert proposed("call", "") == []
        assert user.run("tools").code == 0
        spawns = fake.spawns
        assert proposed("tools", "") == ["tables"]
        assert proposed("show", "") == ["tables/book", "tables/look"]
        assert proposed("call", "bo") == ["book"]
        assert proposed("call", "book", "name=x", "") == ["people:="]
        assert proposed("call", "unknown", "") == []
        (user.project / ".mcp.json").write_text("{")
        assert proposed("call", "") == []
        assert fake.spawns == spawns

    def test_a_reader_who_leaves_early_is_no_failure(self, user: User) -> None:
        """Ours: as with `| head -1`; nothing is said about it."""
        user.configure({f"s{number}": {"command": "x" * 1000} for number in range(90)})
        process = user.start(user.command("config"))
        assert process.stdout is not None
        assert process.stdout.read(5) == "Files"
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
        process.stderr.close()
        assert process.wait(DEADLINE_S) == 0

    @pytest.mark.parametrize("command", ["discover", "tools"])
    async def test_ctrl_c_ends_every_process(self, user: User, fake_stdio: FakeStdio, command: str) -> None:
        """Case 52: one that is silent, one that works; exit code 130, a word, no traceback."""
        silent, good = fake_stdio(Script(start=[LINGER])), fake_stdio(Script(*legacy()))
        user.configure({"silent": entry(silent.command), "good": entry(good.command)})
        process = user.start([sys.executable, "-c", INTERRUPTIBLE, command])
        await silent.wait_for("spawned")
        await good.wait_for("received", "tools/list")
        process.send_signal(signal.SIGINT)
        out, err = await asyncio.to_thread(process.communicate, timeout=DEADLINE_S)
        assert process.returncode == 130, err
        assert (out, err.strip()) == ("", "Interrupted.")
        silent.assert_nothing_runs()
        good.assert_nothing_runs()

    @pytest.mark.parametrize("times", [1, 2])
    async def test_a_signal_that_ends_the_program_ends_every_process_too(
        self, user: User, fake_stdio: FakeStdio, times: int
    ) -> None:
        """Case 52: as `timeout` (twice) and supervisors send it, to a server that does not mind the end of its input."""
        silent = fake_stdio(Script(start=[LINGER], end=[LINGER]))
        user.configure({"silent": entry(silent.command)})
        process = user.start(user.command("tools"))
        await silent.wait_for("spawned")
        for _ in range(times):
            process.send_signal(signal.SIGTERM)
        _, err = await asyncio.to_thread(process.communicate, timeout=DEADLINE_S)
        assert process.returncode == 128 + signal.SIGTERM, err
        assert err.strip() == "Interrupted."
        silent.assert_nothing_runs()

    @pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
    @pytest.mark.parametrize("command", [["config"], ["config", "--json"], ["--help"]], ids="-".join)
    def test_an_output_that_cannot_be_written_is_an_error_and_no_traceback(
        self, user: User, command: list[str]
    ) -> None:
        """Ours: as on a full disk."""
        with open("/dev/full", "w") as full:
            process = subprocess.run(
                user.command(*command),
                cwd=user.project,
                env=user.env,
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert process.returncode == 1
        assert process.stderr == "Error: the output cannot be used: no space left on device\n"

    def test_a_terminal_that_lacks_a_character_gets_an_escape_and_json_is_utf_8(self, user: User) -> None:
        """Ours: a terminal's encoding costs nothing but the character."""
        user.configure({"天気": {"command": "naïve"}})
        env = {"PYTHONUTF8": "0", "PYTHONIOENCODING": "latin-1"}
        process = subprocess.run(
            user.command("config"), cwd=user.project, env={**user.env, **env}, capture_output=True, check=True
        )
        assert "stdio  naïve".encode("latin-1") in process.stdout
        process = subprocess.run(
            user.command("config", "--json"), cwd=user.project, env={**user.env, **env}, capture_output=True, check=True
        )
        assert json.loads(process.stdout.decode("utf-8"))["servers"][0]["name"] == "天気"

    @pytest.mark.parametrize(
        ("env", "wanted"), [({}, None), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, None), ({"TERM": "dumb"}, False)]
    )
    def test_colours_can_be_refused(
        self, monkeypatch: pytest.MonkeyPatch, env: dict[str, str], wanted: bool | None
    ) -> None:
        """Ours: see https://no-color.org; the commands write through one context, which is told."""
        for name in ("NO_COLOR", "TERM"):
            monkeypatch.delenv(name, raising=False)
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        assert wants_colour() is wanted

    def test_json_is_the_only_thing_on_stdout(self, user: User) -> None:
        """Ours: of every command that has --json."""
        user.configure({"weather": sample("modern")})
        for command in ("discover", "tools", "search tide", "show tides", "config", "cache list", "cache stats"):
            assert "schema" in json.loads(user.run(*command.split(), "--json").out), command
