"""`outrider discover` as a user meets it."""

from __future__ import annotations

import pytest

from cli.user import User, entry, sample
from fakes.running import FakeHttp, FakeStdio, header
from fakes.scripts import LINGER, Script, discover_result, exit_with, legacy, modern, on, respond, result, stderr, tool

EVIL = "\x1b[2J\x1b]0;x\x07\u202e\u200b\U000e0001\rgone\x1b]8;;http://evil\x07link"
"""Case 70: repaints, renames the window, turns the text round, hides, overwrites, links."""


def lines_fit(text: str, columns: int) -> None:
    """Nothing is wider than the terminal, and nothing ends in spaces."""
    for line in text.splitlines():
        assert line == line.rstrip(), repr(line)
        assert len(line) <= columns, repr(line)


def assert_harmless(text: str) -> None:
    assert not {c for c in text if (ord(c) < 0x20 and c not in "\n\t") or c in "\x7f\u202e\u200b\U000e0001"}


class TestTargets:
    def test_without_a_target_every_configured_server_is_discovered(self, user: User, fake_http: FakeHttp) -> None:
        """Ours: the files of several clients, each in its own spelling; the table names each server."""
        fake = fake_http(Script(*modern()))
        user.configure({"weather": sample("modern")})
        user.configure({"remote": {"type": "http", "url": fake.url}}, ".vscode/mcp.json", "servers")
        user.configure({"notes": sample("legacy")}, ".cursor/mcp.json")
        done = user.run("discover")
        assert done.code == 0, done.err
        rows = {line.split()[0]: line.split() for line in done.out.splitlines() if " 20" in line}
        assert rows["weather"][1:4] == ["modern", "2026-07-28", "2"]
        assert rows["remote"][1:4] == ["modern", "2026-07-28", "2"]
        assert rows["notes"][1:4] == ["legacy", "2025-06-18", "2"]
        lines_fit(done.out, 80)

    def test_a_narrow_terminal_loses_columns_and_no_half_of_a_number(self, user: User) -> None:
        """Ours: what a server is and whether it works is shown before what it costs."""
        user.configure({"weather": sample("modern"), "gone": {"command": "/no/such"}})
        wide = user.run("discover", columns=80).out.split()
        assert wide[:5] == ["target", "speaks", "tools", "tokens", "ms"]
        narrow = user.run("discover", columns=52).out
        assert narrow.split()[:3] == ["target", "speaks", "tools"]
        assert "…" not in narrow.partition("✗")[0]
        assert "tools" not in user.run("discover", columns=40).out

    def test_names_choose_among_the_configured_servers(self, user: User) -> None:
        """Ours: one name, one page; nothing else is started."""
        user.configure({"weather": sample("modern"), "broken": sample("broken")})
        done = user.run("discover", "weather")
        assert done.code == 0
        assert done.out.startswith("sample-modern 1.0  modern 2026-07-28\n")
        assert "forecast" in done.out
        lines_fit(done.out, 80)

    def test_a_misspelt_name_is_answered_with_the_nearest(self, user: User) -> None:
        """Ours: exit code 2, nothing on stdout."""
        user.configure({"weather": sample("modern")})
        done = user.run("discover", "weathr")
        assert (done.code, done.out) == (2, "")
        assert "did you mean weather?" in done.err

    def test_a_command_and_urls_are_discovered_together(
        self, user: User, fake_http: FakeHttp, fake_stdio: FakeStdio
    ) -> None:
        """Ours: reports in the order of the targets, the command last."""
        one, two = fake_http(Script(*modern())), fake_http(Script(*legacy()))
        command = fake_stdio(Script(*modern(tools=[tool("only")])))
        shown = user.run("discover", one.url, two.url, "--json", "--", *command.command).json
        assert shown["schema"] == "outrider.reports/1"
        assert [report["target"] for report in shown["reports"][:2]] == [one.url, two.url]
        assert [report["era"] for report in shown["reports"]] == ["modern", "legacy", "modern"]
        assert [item["name"] for item in shown["reports"][2]["tools"]["items"]] == ["only"]

    def test_what_follows_the_dashes_is_never_our_option(self, user: User, fake_stdio: FakeStdio) -> None:
        """Ours: `--json` of the command stays with the command."""
        fake = fake_stdio(Script(*modern()))
        done = user.run("discover", "--", *fake.command, "--json", "--offline")
        assert done.code == 0
        assert done.out.startswith("fake 1  modern")
        assert "--json --offline" in " ".join(done.out.split())

    def test_one_target_is_one_report_as_json(self, user: User, fake_stdio: FakeStdio) -> None:
        """Ours: docs/report.md; --no-lists leaves the lists out."""
        fake = fake_stdio(Script(*modern()))
        shown = user.run("discover", "--json", "--", *fake.command).json
        assert shown["schema"] == "outrider.report/1"
        assert (shown["ok"], shown["transport"], shown["source"]) == (True, "stdio", "network")
        assert shown["identity"] == {"name": "fake", "version": "1", "selfReported": True}
        assert shown["tools"]["count"] == 2
        assert "tools/list" in fake.methods()
        bare = fake_stdio(Script(*modern()))
        assert user.run("discover", "--no-lists", "--json", "--", *bare.command).json["ok"]
        assert "tools/list" not in bare.methods()

    def test_nothing_configured_says_what_to_do(self, user: User) -> None:
        """Ours: exit code 2 and the three ways on."""
        done = user.run("discover", "--json")
        assert (done.code, done.out) == (2, "")
        assert "no server is configured (0 configuration files found)" in done.err
        assert "outrider demo" in done.err

    def test_a_disabled_server_is_shown_and_costs_nothing(self, user: User, fake_stdio: FakeStdio) -> None:
        """Ours: switched off is no failure."""
        fake = fake_stdio(Script(*modern()))
        user.configure({"off": entry(fake.command, disabled=True), "weather": sample("modern")})
        done = user.run("discover")
        assert done.code == 0
        assert any(line.split()[0] == "off" and line.endswith("disabled") for line in done.out.splitlines() if line)
        page = user.run("discover", "off")
        assert page.code == 0
        assert page.out.splitlines()[1] == '✗ disabled: switched off by "disabled"'
        assert "How we know" not in page.out
        assert fake.spawns == 0


class TestMemory:
    def test_a_second_time_nothing_is_started_and_refresh_asks(self, user: User, fake_stdio: FakeStdio) -> None:
        """Ours: remembered for ten minutes if the server says nothing; --refresh asks in any case."""
        fake = fake_stdio(Script(*modern()))
        target = ("--json", "--", *fake.command)
        assert user.run("discover", *target).json["source"] == "network"
        assert user.run("discover", *target).json["source"] == "memory"
        assert fake.spawns == 1
        assert user.run("discover", "--refresh", *target).json["source"] == "network"
        assert fake.spawns == 2
        page = user.run("discover", "--offline", "--", *fake.command)
        assert page.code == 0
        assert "remembered since" in page.out
        assert "handshake" not in page.out, "it is modern"

    def test_offline_asks_nobody(self, user: User, fake_stdio: FakeStdio) -> None:
        """Ours: an unknown server is a failure that says why, at once."""
        fake = fake_stdio(Script(*modern()))
        done = user.run("discover", "--offline", "--json", "--", *fake.command)
        assert done.code == 1
        assert "--offline" in done.json["failure"]["hint"]
        assert fake.spawns == 0


class TestFailures:
    def test_a_broken_server_costs_its_own_row_and_tells_its_last_words(self, user: User) -> None:
        """Ours: exit code 1; the reason and the end of stderr stand below the table."""
        user.configure({"weather": sample("modern"), "broken": sample("broken")})
        done = user.run("discover")
        assert done.code == 1
        assert "✗ broken  the server's process exited with code 1" in done.out
        assert "stderr: ModuleNotFoundError: No module named 'weather_db'" in done.out
        assert "modern 2026-07-28" in done.out
        lines_fit(done.out, 80)

    def test_sign_in_alone_has_an_exit_code_of_its_own(self, user: User, fake_http: FakeHttp) -> None:
        """Ours: 4 if nothing but sign-in is missing, 1 beside any other failure."""
        fake = fake_http(Script(on(None, respond(401, headers={"WWW-Authenticate": 'Bearer realm="x"'}))))
        assert user.run("discover", fake.url).code == 4
        user.configure({"broken": sample("broken")})
        assert user.run("discover", fake.url, "broken").code == 1

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("--env", "A=B"), "--env belongs to a command"),
            (("--header", "A: B"), "--header belongs to a URL"),
            (("http://127.0.0.1:1/", "--header", "SECRET"), "--header needs the form NAME:VALUE"),
            (("--env", "SECRET", "--", "true"), "--env needs the form NAME=VALUE"),
            (("--",), "a command must follow `--`"),
            (("--protocol", "newest"), "is not one of"),
            (("nowhere.json",), "nowhere.json"),
            (("http://[bad/",), "is not a URL"),
        ],
    )
    def test_a_command_line_that_cannot_be_used_is_explained(
        self, user: User, arguments: tuple[str, ...], message: str
    ) -> None:
        """Ours: exit code 2, the reason on stderr, nothing on stdout, no value repeated."""
        user.configure({"weather": sample("modern")})
        done = user.run("discover", *arguments)
        assert (done.code, done.out) == (2, ""), done
        assert message in done.err
        assert "SECRET" not in done.err

    def test_a_folder_that_does_not_exist_is_named(self, user: User) -> None:
        """Ours: --cwd."""
        done = user.run("discover", "--cwd", "/nonexistent", "--", "true")
        assert done.code == 1
        assert "the working directory '/nonexistent' does not exist" in done.out

    def test_a_slow_server_ends_with_the_time_out_that_was_asked_for(self, user: User, fake_stdio: FakeStdio) -> None:
        """Ours: --timeout; the process is gone afterwards."""
        fake = fake_stdio(Script(start=[LINGER]))
        done = user.run("discover", "--timeout", "0.3", "--json", "--", *fake.command)
        assert done.code == 1
        assert done.json["failure"]["kind"] == "timeout"
        fake.assert_nothing_runs()


class TestOptionsReachTheServer:
    def test_headers_variables_and_pins_are_used(self, user: User, fake_http: FakeHttp, fake_stdio: FakeStdio) -> None:
        """Ours: --header to URLs, --env to the command, --protocol to both."""
        remote = fake_http(Script(*modern()))
        assert user.run("discover", remote.url, "--header", "X-Team: rocket").code == 0
        assert {header(record, "x-team") for record in remote.received()} == {"rocket"}
        both = fake_stdio(Script(*legacy()))
        assert user.run("discover", "--protocol", "legacy", "--env", "A=1", "--", *both.command).code == 0
        assert both.methods()[0] == "initialize"


class TestUntrustedTexts:
    def test_control_characters_reach_no_terminal_and_stay_in_json(self, user: User, fake_stdio: FakeStdio) -> None:
        """Case 70: on a page, in a table, in warnings and stderr; JSON keeps what arrived."""
        described = discover_result(
            instructions=EVIL, _meta={"io.modelcontextprotocol/serverInfo": {"name": EVIL, "version": "1"}}
        )
        rules = (on("server/discover", result(described)), *modern(tools=[tool("t", description=EVIL, title=EVIL)]))
        evil = fake_stdio(Script(*rules, start=[stderr(EVIL + "\n")]))
        page = user.run("discover", "-v", "--", *evil.command)
        assert page.code == 0
        assert_harmless(page.everything)
        assert r"\x1b[2J" in page.out
        user.configure({"evil": entry(evil.command), "dead": entry(["sh", "-c", "printf '\\033[2J' >&2; exit 3"])})
        table = user.run("discover", columns=140)
        assert_harmless(table.everything)
        assert r"stderr: \x1b[2J" in table.out
        for command in ("tools", "search t", "show evil/t"):
            assert_harmless(user.run(*command.split()).everything)
        items = user.run("discover", "evil", "--json").json["tools"]["items"]
        assert items[0]["description"] == EVIL

    def test_secrets_are_in_no_output(self, user: User, fake_stdio: FakeStdio, fake_http: FakeHttp) -> None:
        """Case 69: userinfo, query, fragment, variables, headers; in errors, transcript, JSON, stderr and what is remembered."""
        url = "http://u:SECRET1@127.0.0.1:1/mcp?api_key=SECRET2#SECRET3"
        fake = fake_stdio(Script(start=[stderr("the token is SECRET4-long\n"), exit_with(1)]))
        elsewhere = fake_http(Script(on(None, respond(403, text="no page /SECRET8-long/mcp"))))
        echo = fake_http(Script(on(None, respond(403, text="you sent Bearer SECRET5-long"))))
        outputs = [
            user.run("discover", "-v", url, "--timeout", "5").everything,
            user.run("discover", "-v", "--json", url, "--timeout", "5").everything,
            user.run("discover", "-v", "--env", "TOKEN=SECRET4-long", "--", *fake.command).everything,
            user.run("discover", "-v", "--json", "--env", "TOKEN=SECRET4-long", "--", *fake.command).everything,
            user.run("discover", "-v", echo.url, "--header", "Authorization: Bearer SECRET5-long").everything,
            user.run("discover", "--json", echo.url, "--header", "Authorization: Bearer SECRET5-long\n").everything,
        ]
        user.configure(
            {
                "a": {"url": url, "headers": {"X-Key": "SECRET6-long"}},
                "b": entry(["x"], env={"T": "SECRET7"}),
                "c": {"url": elsewhere.url.replace("/mcp", "/${IN_PATH}/mcp")},
                "d": entry([*fake.command, "${IN_ARGUMENT}"], env={"TOKEN": "SECRET4-long"}),
                "e": {"command": "/no/${IN_ARGUMENT}/such"},
            }
        )
        filled = {"IN_PATH": "SECRET8-long", "IN_ARGUMENT": "SECRET9-long"}
        outputs += [
            user.run(*command.split(), **filled).everything for command in ("discover -v", "discover --json", "tools")
        ]
        outputs += [user.run("config", *more).everything for more in ((), ("--json",))]
        outputs += [user.run(command, "--offline").everything for command in ("discover", "tools")]
        outputs.append(user.run("cache", "list", "--json").everything)
        for output in outputs:
            assert output
            assert "SECRET" not in output
        assert "the token is •••" in outputs[2]
        kept = [path for path in user.home.rglob("*") if path.is_file() and path.name != ".mcp.json"]
        assert kept
        assert not [path for path in kept if b"SECRET" in path.read_bytes()]

    def test_the_transcript_is_on_stderr(self, user: User, fake_stdio: FakeStdio) -> None:
        """Ours: -v shows each message and its direction, and leaves stdout alone."""
        fake = fake_stdio(Script(*modern()))
        done = user.run("discover", "-v", "--json", "--", *fake.command)
        assert done.json["ok"]
        told = done.err.splitlines()
        assert told[0].startswith('> {"jsonrpc":"2.0"')
        assert '"server/discover"' in told[0]
        assert told[1].startswith("< ")
