"""Configuration files as people really leave them: each client's dialect, slips of the pen, and what is said about them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fakes.files import linux, windows
from outrider.catalog.sources import Configuration, ServerEntry, Surroundings, load, resolve
from outrider.errors import ConfigError

SERVER = {"command": "c"}
PLACES = {
    "mcp-json": "/home/u/p/.mcp.json",
    "claude-desktop": "/home/u/.config/Claude/claude_desktop_config.json",
    "vscode-settings": "/home/u/.config/Code/User/settings.json",
    "cursor": "/home/u/.cursor/mcp.json",
    "windsurf": "/home/u/.codeium/windsurf/mcp_config.json",
    "gemini-cli": "/home/u/.gemini/settings.json",
    "codex": "/home/u/.codex/config.toml",
    "zed": "/home/u/.config/zed/settings.json",
    "librechat": "/home/u/p/librechat.yaml",
    "opencode": "/home/u/p/opencode.json",
    "plain": "/home/u/servers.json",
}


def configured(client: str, content: Any, **env: str) -> tuple[Configuration, Surroundings]:
    """What is found where `content` is the only file, that of `client`."""
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    where = linux({PLACES[client]: text}, **env)
    return load(config_files=[PLACES[client]] if client == "plain" else (), where=where), where


def entry_of(client: str, entry: Any, **env: str) -> tuple[ServerEntry, Surroundings]:
    """The one entry of a file with `mcpServers`."""
    configuration, where = configured(client, {"mcpServers": {"s": entry}}, **env)
    assert not configuration.ignored, configuration.ignored
    (found,) = configuration.entries
    return found, where


def complaint(client: str, content: Any) -> str:
    """What is said about a file of which nothing can be read."""
    configuration, _ = configured(client, content)
    assert configuration.entries == ()
    (problem,) = configuration.problems
    assert problem.severity == "error"
    return f"{problem.source.removeprefix(PLACES[client])}: {problem.message}"


class TestWhereServersStand:
    @pytest.mark.parametrize(
        ("client", "content", "said"),
        [
            ("codex", '[mcpServers.s]\ncommand = "c"', "Codex looks for servers under mcp_servers"),
            ("codex", '[mcp-servers.s]\ncommand = "c"', "those under mcp-servers were read all the same"),
            ("zed", {"mcpServers": {"s": SERVER}}, "Zed looks for servers under context_servers"),
            ("opencode", {"mcpServers": {"s": SERVER}}, "opencode looks for servers under mcp"),
            ("opencode", {"mcp": {"servers": {"s": SERVER}}}, "those under mcp / servers were read"),
            ("vscode-settings", {"mcpServers": {"s": SERVER}}, "VS Code looks for servers under mcp / servers"),
            ("gemini-cli", {"servers": {"s": SERVER}}, "Gemini CLI looks for servers under mcpServers"),
            (
                "claude-desktop",
                {"mcp": {"servers": {"s": SERVER}}},
                "Claude Desktop looks for servers under mcpServers",
            ),
            ("cursor", {"MCPServers": {"s": SERVER}}, "Cursor looks for servers under mcpServers"),
            ("plain", {"mcp": {"mcpServers": {"s": SERVER}}}, "the servers under mcp / mcpServers were read"),
            ("plain", {"mcpServer": {"s": SERVER}}, "the servers under mcpServer were read"),
            ("plain", {"amp.mcpServers": {"s": SERVER}}, "the servers under amp.mcpServers were read"),
            (
                "plain",
                {"tools": {"mcp-servers": [{"name": "s", **SERVER}]}},
                "the servers under tools / mcp-servers were read",
            ),
        ],
    )
    def test_another_key_is_read_with_a_warning(self, client: str, content: Any, said: str) -> None:
        """Case 46: the known spellings are accepted in every file, settings of all kinds included; silence helps nobody."""
        configuration, _ = configured(client, content)
        assert [entry.name for entry in configuration.entries] == ["s"]
        assert any(said in problem.message for problem in configuration.problems), configuration.problems

    @pytest.mark.parametrize(
        "content", [{"servers": {"a": 1}}, {"mcp": {"inputs": []}}, {"extensions": {"x": {"enabled": True}}}]
    )
    def test_settings_that_are_called_alike_are_no_servers(self, content: Any) -> None:
        """Case 46: among settings of all kinds, only what holds servers is read as servers."""
        for client in ("gemini-cli", "claude-desktop", "vscode-settings"):
            configuration, _ = configured(client, content)
            assert (configuration.entries, configuration.ignored, configuration.problems) == ((), (), ())

    def test_servers_at_the_top_stand_beside_other_keys(self) -> None:
        """Case 46: a version, a list of inputs, and one bad entry cost the others nothing."""
        configuration, _ = configured("plain", {"version": 1, "inputs": [], "s": SERVER, "bad": {"type": "x"}})
        assert [entry.name for entry in configuration.entries] == ["s"]
        assert [one.name for one in configuration.ignored] == ["bad"]

    def test_keys_that_mean_something_else_beside_the_servers(self) -> None:
        """Case 46: of several known keys, those count that hold servers."""
        settings = {
            "mcpServers": {"s": SERVER},
            "extensions": {"disabled": ["x"]},
            "servers": 3,
            "mcp": {"allowed": ["s"]},
        }
        configuration, _ = configured("plain", settings)
        assert [entry.name for entry in configuration.entries] == ["s"]
        assert (configuration.ignored, configuration.problems) == ((), ())

    def test_what_describes_a_server_beside_its_entry_is_no_server(self) -> None:
        """Case 46: the manifest of a packed server."""
        manifest = {"name": "x", "server": {"type": "node", "entry_point": "x.js", "mcp_config": SERVER}}
        configuration, _ = configured("plain", manifest)
        assert [entry.name for entry in configuration.entries] == ["mcp_config"]
        assert configuration.ignored == ()

    def test_a_container_that_is_there_twice_is_said(self) -> None:
        """Case 45: the servers of the first one are lost to every reader of JSON."""
        configuration, _ = configured(
            "cursor", '{"mcpServers": {"a": {"command": "c"}},\n"mcpServers": {"b": {"command": "d"}}}'
        )
        assert [entry.name for entry in configuration.entries] == ["b"]
        assert [problem.message for problem in configuration.problems] == [
            "the key mcpServers occurs twice; only the last one counts"
        ]

    def test_a_container_that_is_null_is_called_empty(self) -> None:
        """Case 46: not `none of the keys is there` about a key that is."""
        configuration, _ = configured("plain", {"mcpServers": None})
        assert "mcpServers is empty" in configuration.problems[0].message


class TestBrokenFiles:
    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ('{"mcpServers": {"s": {"command": "C:\\Users\\x"}}}', ":1:37: a backslash in a string must be doubled"),
            ('{\n“mcpServers”: {}}', ":2:1: expected a property name in double quotes; strings need straight double quotes"),
            ('{\n\u00a0"mcpServers": {}}', ":2:1: expected a property name in double quotes; an invisible character, U+00A0"),
            ('{\n# servers\n"mcpServers": {}}', ":2:1: expected a property name in double quotes; comments start with //"),
            ('{"mcpServers": {"s": {"disabled": True}}}', "the words of JSON are true, false and null"),
            ('{"mcpServers": {"s": {"timeout": NaN}}}', "NaN is not a JSON value"),
            ('{"mcpServers": {"s": {"command": "c', ":1:34: the string that starts here never ends"),
            ('{"mcpServers": {"s": {"command": "a\tb"}}}', "a line break, tab or other control character stands in a string"),
        ],
    )  # fmt: skip
    def test_what_is_wrong_in_json_is_said_in_words_that_help(self, text: str, said: str) -> None:
        """Case 45: with the position, and what people mistake or cannot see is named."""
        assert said in complaint("cursor", text)

    @pytest.mark.parametrize(
        ("client", "text", "said"),
        [
            ("librechat", "mcpServers:\n\ts: {}", ":2:1: a tab cannot indent YAML; indent with blanks"),
            ("librechat", "mcpServers: {s: {command: @x/y}}", "cannot start with '@'; put the value in single quotes"),
            ("librechat", 'mcpServers: {s: {command: "C:\\Users"}}', "put a Windows path in single quotes"),
            ("codex", '[mcp_servers.s]\ncommand = "C:\\Users"', "a Windows path belongs in single quotes"),
            ("codex", "[mcp_servers.s]\n[mcp_servers.s]", ":2:15: Cannot declare mcp_servers.s twice"),
        ],
    )
    def test_what_is_wrong_in_yaml_and_toml_is_said_with_what_to_do(self, client: str, text: str, said: str) -> None:
        """Case 45: no word of the libraries' own that a user could not know."""
        assert said in complaint(client, text)

    def test_blanks_around_a_command_are_none_of_its_name(self) -> None:
        """Case 13: "the command 'npx ' was not found" helps nobody."""
        entry, _ = entry_of("cursor", {"command": " npx\n"})
        assert entry.command is not None
        assert entry.command.text == "npx"

    def test_a_path_whose_backslashes_were_read_as_escapes_is_pointed_out(self) -> None:
        """Case 43: `C:\\tools\\new` is well-formed JSON, with a tab and a line break in it."""
        entry, _ = entry_of("cursor", {"command": "C:\tools\new\\x.exe"})
        assert "holds a control character" in entry.warnings[0]


class TestFields:
    @pytest.mark.parametrize(
        ("spelling", "transport"),
        [
            ("httpStream", "http"), ("http-stream", "http"), ("streaming-http", "http"), ("httpStreamable", "http"), ("HTTPS", "http"),
            ("StreamableHTTPTransport", "http"), ("http+sse", "sse"), ("HTTP with SSE", "sse"), ("server-sent-events", "sse"),
            ("sse-transport", "sse"), ("", "auto-http"),
        ],
    )  # fmt: skip
    def test_every_way_to_write_a_transport(self, spelling: str, transport: str) -> None:
        """Case 47: the spellings of other frameworks mean the same transports, whatever the order of the words."""
        entry, _ = entry_of("cursor", {"type": spelling, "url": "http://h/mcp"})
        assert entry.transport == transport

    @pytest.mark.parametrize(
        ("value", "off"), [("yes", True), ("disabled", True), (2, True), ("off", False), (0, False), ("", False)]
    )
    def test_a_switch_that_is_no_boolean_says_how_it_was_read(self, value: Any, off: bool) -> None:
        """Ours: what does not say no says yes, for whoever writes `disabled` does not want a start."""
        entry, _ = entry_of("cursor", {**SERVER, "disabled": value})
        assert entry.disabled is off
        assert entry.warnings == (f'"disabled" is not a boolean; it was read as {"true" if off else "false"}',)

    @pytest.mark.parametrize("key", ["isActive", "isEnabled"])
    def test_the_switches_of_other_applications_are_honoured(self, key: str) -> None:
        """Ours: spellings that can only take something away count in every file."""
        assert entry_of("plain", {**SERVER, key: False})[0].disabled
        assert not entry_of("plain", {**SERVER, key: True})[0].disabled

    @pytest.mark.parametrize(("client", "seconds"), [("mcp-json", 30.0), ("gemini-cli", 30.0)])
    def test_a_time_limit_in_quotes_is_a_number(self, client: str, seconds: float) -> None:
        """Case 33: an override must really reach the server."""
        entry, _ = entry_of(client, {**SERVER, "timeout": "30000"})
        assert entry.request_timeout_s == seconds
        assert entry.warnings == ('"timeout" is a number in quotes; it was read as a number',)

    @pytest.mark.parametrize(
        ("url", "said"),
        [
            ("localhost:3000/mcp", "has no http:// or https://"),
            ("example.com:443", "has no http:// or https://"),
            ("ws://h/x", 'it starts with "ws:"'),
            ("http://h:99999/mcp", "has a port that is not a number from 0 to 65535"),
        ],
    )
    def test_what_is_wrong_with_a_url(self, url: str, said: str) -> None:
        """Case 47: said of what people forget, not of what the standard calls it."""
        configuration, _ = configured("cursor", {"mcpServers": {"s": {"url": url}}})
        assert said in configuration.ignored[0].reason

    @pytest.mark.parametrize(
        ("entry", "said"),
        [
            ({"URL": "http://h"}, '"URL" is there, which should be "url"'),
            ({"COMMAND": "c"}, '"COMMAND" is there, which should be "command"'),
            ({"config": SERVER}, "its keys are: config"),
            ({}, "it is empty"),
            ({**SERVER, "args": "-y pkg"}, "write each argument as a string of its own"),
            ("http://h/mcp", 'write {"url": …}'),
            ({"url": "http://h", "headers": {"content-length": "5"}}, "is set by HTTP itself; leave it out"),
        ],
    )
    def test_an_entry_that_cannot_be_used_says_what_is_there(self, entry: Any, said: str) -> None:
        """Case 46: case and dashes are no reason not to see what was meant."""
        configuration, _ = configured("cursor", {"mcpServers": {"s": entry}})
        assert said in configuration.ignored[0].reason


class TestPlaceholders:
    @pytest.mark.parametrize("client", ["mcp-json", "claude-desktop", "cursor", "plain"])
    @pytest.mark.parametrize("written", ["${UNSET}", "${env:UNSET}", "Bearer ${UNSET}"])
    @pytest.mark.parametrize("field", ["env", "args", "headers", "url"])
    def test_a_missing_variable_disables_its_server_in_every_dialect(
        self, client: str, written: str, field: str
    ) -> None:
        """Case 41: no server is sent `${API_KEY}`, whichever client's spelling stands in whichever client's file."""
        if field == "url" or (field == "args" and " " in written):
            written = "http://h/" + written.split()[-1]
        entry = {
            "env": {**SERVER, "env": {"K": written}},
            "args": {**SERVER, "args": [f"--t={written}"]},
            "headers": {"url": "http://h", "headers": {"Authorization": written}},
            "url": {"url": written},
        }[field]
        found, where = entry_of(client, entry)
        with pytest.raises(ConfigError, match="needs the environment variable UNSET") as caught:
            resolve(found, where)
        assert caught.value.hint == "set UNSET"

    @pytest.mark.parametrize(
        ("written", "filled"),
        [
            ("${env:UNSET:-d}", "d"), ("${env:SET:-d}", "v"), ("${UNSET:-${env:SET}}", "v"), ("${env:UNSET:-${ALSO_UNSET:-deep}}", "deep"),
            ("${UNSET:-}", ""), ("${UNSET:-a:b}", "a:b"),
        ],
    )  # fmt: skip
    def test_defaults_in_every_spelling(self, written: str, filled: str) -> None:
        """Case 41: a default has one possible meaning, nested or not."""
        for client in ("mcp-json", "cursor", "claude-desktop"):
            found, where = entry_of(client, {**SERVER, "env": {"K": written}}, SET="v")
            assert resolve(found, where).env == {"K": filled}

    @pytest.mark.parametrize("client", ["mcp-json", "claude-desktop", "cursor", "windsurf", "gemini-cli", "plain"])
    def test_arguments_see_the_entrys_own_variables(self, client: str) -> None:
        """Case 41: `mcp-remote` with its header in an argument and its token in `env`, as its users are told to write it."""
        args = ["mcp-remote", "https://h/mcp", "--header", "Authorization: Bearer ${TOKEN}"]
        found, where = entry_of(client, {"command": "npx", "args": args, "env": {"TOKEN": "${MINE:-t}"}}, TOKEN="other")
        assert resolve(found, where).args[-1] == "Authorization: Bearer t"

    def test_headers_see_the_entrys_own_variables(self) -> None:
        """Case 41: and a URL's server gets no process and so no variables."""
        found, where = entry_of("cursor", {"url": "http://h", "env": {"T": "t"}, "headers": {"X": "${T}"}})
        target = resolve(found, where)
        assert (target.headers, target.env) == ({"X": "t"}, {})

    def test_a_variable_may_refer_to_the_outer_one_of_its_name(self) -> None:
        """Case 42: `"PATH": "${PATH}:/opt"` is no loop."""
        found, where = entry_of(
            "mcp-json", {**SERVER, "args": ["${PATH}"], "env": {"PATH": "${PATH}:/opt"}}, PATH="/bin"
        )
        target = resolve(found, where)
        assert (target.env, target.args) == ({"PATH": "/bin:/opt"}, ("/bin:/opt",))

    @pytest.mark.parametrize("written", ["${MY-VAR}", "${env.KEY}", "${{ env.KEY }}", "{{KEY}}", "${KEY:text}"])
    def test_what_only_looks_like_a_placeholder_is_pointed_out(self, written: str) -> None:
        """Case 41: it reaches the server as it stands, and that is said before the 401 says it."""
        found, where = entry_of("cursor", {"url": "http://h", "headers": {"Authorization": f"Bearer {written}"}})
        assert "holds something like a placeholder" in found.warnings[0]
        assert resolve(found, where).headers["Authorization"] == f"Bearer {written}"

    @pytest.mark.parametrize(
        ("line", "value"),
        [
            ("K='a # b' # note", "a # b"), ('K="a # b"\t# note', "a # b"), ("K=a#b # note", "a#b"), ('K="one\\ntwo"', "one\ntwo"),
            ('K="one\r\ntwo"', "one\ntwo"), (r'K="C:\tools\x"', r"C:\tools\x"), ('K="say \\"x\\""', 'say "x"'), ("  export K = v ", "v"),
            ('K="unterminated', '"unterminated'), ("K=a=b", "a=b"), ("K=", ""), ("# K=no\nK=yes", "yes"), ("K='${X}'", "${X}"),
        ],
    )  # fmt: skip
    def test_lines_of_an_environment_file(self, line: str, value: str) -> None:
        """Case 41: as the libraries of the clients read them; a byte order mark and Windows line ends change nothing."""
        entry = {"servers": {"s": {**SERVER, "envFile": "${workspaceFolder}/.env"}}}
        files = {"/home/u/p/.vscode/mcp.json": json.dumps(entry), "/home/u/p/.env": f"\ufeffA=1\r\n{line}\r\nZ=2\r\n"}
        where = linux(files)
        (found,) = load(where=where).entries
        assert resolve(found, where).env == {"A": "1", "K": value, "Z": "2"}

    def test_names_have_no_case_on_windows_among_the_entrys_own_either(self) -> None:
        """Case 43: `${token}` finds TOKEN there."""
        text = json.dumps({"mcpServers": {"s": {**SERVER, "args": ["${token}"], "env": {"TOKEN": "t"}}}})
        where = windows({"C:\\x\\servers.json": text})
        (found,) = load(config_files=["C:\\x\\servers.json"], where=where).entries
        assert resolve(found, where).args == ("t",)
