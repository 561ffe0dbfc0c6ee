from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.files import linux, macos, windows
from outrider.catalog.sources import Configuration, LocalFiles, Surroundings, find_config_files, load
from outrider.catalog.sources.configuration import MAX_FILE_BYTES, here

CURSOR_USER = "/home/u/.cursor/mcp.json"
CURSOR_PROJECT = "/home/u/p/.cursor/mcp.json"
CLAUDE = "/home/u/.claude.json"


def servers(**entries: Any) -> str:
    return json.dumps({"mcpServers": entries})


def command(name: str = "c", **more: Any) -> dict[str, Any]:
    return {"command": name, **more}


def keys(configuration: Configuration) -> list[str]:
    return [entry.key for entry in configuration.entries]


def errors(configuration: Configuration) -> list[str]:
    return [problem.message for problem in configuration.problems if problem.severity == "error"]


def on_disk(folder: Path, **env: str) -> Surroundings:
    (folder / "home").mkdir(exist_ok=True)
    (folder / "project" / ".git").mkdir(parents=True, exist_ok=True)
    return Surroundings(
        home=str(folder / "home"), cwd=str(folder / "project"), platform="linux", env=env, files=LocalFiles()
    )


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# ---- several files ----------------------------------------------------------------------------------------------------------------


def test_nothing_configured_is_an_empty_configuration_that_says_where_it_looked() -> None:
    """Ours: `outrider config` shows every place."""
    configuration = load(where=linux())
    assert (configuration.entries, configuration.ignored, configuration.problems) == ((), (), ())
    assert {report.status for report in configuration.files} == {"missing"}
    assert len(configuration.files) == len(find_config_files(linux()))


def test_the_same_server_in_several_files_is_one_server() -> None:
    """Ours: recognised across clients, dialects and names of header or field."""
    where = linux(
        {
            CLAUDE: servers(gh={"command": "npx", "args": ["gh"], "env": {"T": "${T}"}}),
            CURSOR_USER: servers(github={"command": "npx", "args": ["gh"], "env": {"T": "${env:T}"}}),
            "/home/u/p/opencode.json": json.dumps(
                {"mcp": {"hub": {"type": "local", "command": ["npx", "gh"], "environment": {"T": "{env:T}"}}}}
            ),
        }
    )
    (entry,) = load(where=where).entries
    assert (entry.name, entry.origin.client) == ("hub", "opencode")
    assert [origin.client for origin in entry.also_in] == ["claude-code", "cursor"]


def test_a_server_that_is_on_anywhere_is_on() -> None:
    """Ours: switched off in one client, it is still wanted in another."""
    where = linux({CLAUDE: servers(a=command()), CURSOR_PROJECT: servers(a=command(disabled=True))})
    (entry,) = load(where=where).entries
    assert (entry.disabled, entry.origin.client) == (False, "claude-code")
    where = linux({CLAUDE: servers(a=command(disabled=True)), CURSOR_PROJECT: servers(a=command(disabled=True))})
    (entry,) = load(where=where).entries
    assert entry.disabled


def test_different_servers_of_one_name_are_both_there() -> None:
    """Ours: the more specific one keeps the plain key."""
    where = linux({CLAUDE: servers(gh=command("a")), CURSOR_PROJECT: servers(gh=command("b"))})
    configuration = load(where=where)
    assert [(entry.key, entry.origin.client) for entry in configuration.entries] == [
        ("gh", "cursor"),
        ("gh-claude-code", "claude-code"),
    ]


def test_within_a_client_the_more_specific_file_wins() -> None:
    """Ours: project before user, and what is replaced is said."""
    where = linux(
        {CURSOR_USER: servers(gh=command("user"), mine=command()), CURSOR_PROJECT: servers(gh=command("project"))}
    )
    configuration = load(where=where)
    assert [(entry.key, entry.origin.level) for entry in configuration.entries] == [("gh", "project"), ("mine", "user")]
    (ignored,) = configuration.ignored
    assert (ignored.name, ignored.origin.file, ignored.is_error) == ("gh", CURSOR_USER, False)
    assert CURSOR_PROJECT in ignored.reason


@pytest.mark.parametrize(
    ("one", "other", "are_one"),
    [
        ("https://h/mcp", "HTTPS://H:443/mcp", True),
        ("http://h", "http://h:80/", True),
        ("http://u:p@h/mcp", "http://u:p@H/mcp", True),
        ("https://h/mcp", "https://h/mcp/", False),
        ("https://h/mcp", "https://h/MCP", False),
        ("https://h/mcp", "http://h/mcp", False),
        ("https://h/mcp", "https://h:8443/mcp", False),
        ("https://h/mcp?a=1", "https://h/mcp?a=2", False),
        ("http://u:p@h/mcp", "http://v:p@h/mcp", False),
    ],
)
def test_urls_are_the_same_as_the_standard_has_it(one: str, other: str, are_one: bool) -> None:
    """Ours: RFC 3986, 6.2.2.1 and 6.2.3: scheme and host without case, default port, empty path."""
    where = linux({CURSOR_USER: servers(a={"url": one}), CLAUDE: servers(b={"url": other})})
    assert len(load(where=where).entries) == (1 if are_one else 2)


def test_the_same_server_twice_in_one_client_is_not_a_replacement() -> None:
    """Ours: nothing is lost, so nothing is reported as lost; but the project's switch counts."""
    where = linux({CURSOR_USER: servers(gh=command("x")), CURSOR_PROJECT: servers(gh=command("x", disabled=True))})
    configuration = load(where=where)
    (entry,) = configuration.entries
    assert (entry.disabled, [origin.file for origin in entry.also_in]) == (True, [CURSOR_USER])
    assert configuration.ignored == ()


def test_clients_that_disagree_about_the_transport_have_both_tried() -> None:
    """Case 47: the same URL, which Cline takes for SSE and Cursor for HTTP."""
    where = linux(
        {
            "/home/u/.cline/mcp.json": servers(a={"url": "https://h"}),
            CURSOR_USER: servers(a={"url": "https://h", "type": "http"}),
        }
    )
    assert [entry.transport for entry in load(where=where).entries] == ["auto-http"]
    assert [entry.transport for entry in load(["cline"], where=where).entries] == ["sse"]


def test_claude_codes_scopes_are_local_before_project_before_user() -> None:
    """Ours: https://code.claude.com/docs/en/mcp; .mcp.json belongs to the same client."""
    claude = {
        "mcpServers": {"a": command("user"), "b": command("user")},
        "projects": {"/home/u/p": {"mcpServers": {"a": command("local")}}},
    }
    where = linux(
        {CLAUDE: json.dumps(claude), "/home/u/p/.mcp.json": servers(a=command("project"), b=command("project"))}
    )
    configuration = load(where=where)
    assert {entry.name: entry.origin.level for entry in configuration.entries} == {"a": "local", "b": "project"}
    assert len(configuration.ignored) == 3


def test_a_project_can_switch_off_a_users_server() -> None:
    """Ours: Kiro's workspace file, and opencode's with one field only."""
    where = linux(
        {
            "/home/u/.kiro/settings/mcp.json": servers(a=command()),
            "/home/u/p/.kiro/settings/mcp.json": servers(a=command(disabled=True)),
            "/home/u/.config/opencode/opencode.json": json.dumps({"mcp": {"b": {"type": "local", "command": ["x"]}}}),
            "/home/u/p/opencode.json": json.dumps({"mcp": {"b": {"enabled": False}}}),
        }
    )
    assert {entry.name: entry.disabled for entry in load(where=where).entries} == {"a": True, "b": True}


def test_gemini_cli_lists_switch_servers_off() -> None:
    """Ours: mcp.allowed and mcp.excluded, wherever they stand."""
    where = linux(
        {
            "/home/u/.gemini/settings.json": json.dumps(
                {"mcp": {"excluded": ["b"], "allowed": ["a", "b"]}, "mcpServers": {"a": command("a")}}
            ),
            "/home/u/p/.gemini/settings.json": servers(b=command("b"), c=command("d")),
        }
    )
    reasons = {entry.name: entry.disabled_because for entry in load(where=where).entries}
    assert reasons == {
        "a": "",
        "b": 'switched off by "excluded" in /home/u/.gemini/settings.json',
        "c": 'not in "allowed" in /home/u/.gemini/settings.json',
    }


def test_gemini_cli_remembers_what_its_commands_switched_off() -> None:
    """Ours: mcp-server-enablement.json, which `gemini mcp disable` writes in lower case; other settings named alike mean nothing."""
    states = {"files": {"enabled": False}, "web": {"enabled": True}, "other": {"enabled": False}}
    where = linux(
        {
            "/home/u/.gemini/settings.json": json.dumps(
                {
                    "mcpServers": {"Files": command("a"), "web": command("b"), "ui": command("c")},
                    "ui": {"enabled": False},
                }
            ),
            "/home/u/.gemini/mcp-server-enablement.json": json.dumps(states),
        }
    )
    configuration = load(where=where)
    assert {entry.name: entry.disabled_because for entry in configuration.entries} == {
        "Files": "switched off by /home/u/.gemini/mcp-server-enablement.json",
        "web": "",
        "ui": "",
    }
    assert configuration.problems == ()


@pytest.mark.parametrize("home", ["/home/u", "/home/u/.config/claude"], ids=["usual", "moved"])
def test_servers_that_are_switched_off_in_claude_code_are_off(home: str) -> None:
    """Ours: its dialog's list for this project, and the lists that reject servers of a project's own file, and those only."""
    folder = "/home/u/.claude" if home == "/home/u" else home
    where = linux(
        {
            f"{home}/.claude.json": json.dumps(
                {
                    "mcpServers": {
                        "mine": command("a"),
                        "both": command("b"),
                        "kept": command("c"),
                        "theirs2": command("d"),
                    },
                    "projects": {
                        "/home/u/p": {
                            "disabledMcpServers": ["mine", "plugin:x:y"],
                            "disabledMcpjsonServers": ["theirs"],
                            "enabledMcpjsonServers": ["theirs3"],
                        },
                        "/home/u/other": {"disabledMcpServers": ["kept"]},
                    },
                }
            ),
            "/home/u/p/.mcp.json": servers(
                theirs=command("e"), theirs3=command("f"), theirs4=command("g"), mine2=command("h")
            ),
            "/home/u/p/.claude/settings.local.json": json.dumps({"disabledMcpjsonServers": ["theirs4", "kept"]}),
            f"{folder}/settings.json": json.dumps(
                {"disabledMcpjsonServers": ["theirs2"], "mcpServers": {"no": command("z")}}
            ),
        },
        **({} if home == "/home/u" else {"CLAUDE_CONFIG_DIR": home}),
    )
    configuration = load(where=where)
    off = {entry.name: entry.disabled_because for entry in configuration.entries if entry.disabled}
    assert off == {
        "mine": f'switched off by "disabledMcpServers" in {home}/.claude.json',
        "theirs": f'switched off by "disabledMcpjsonServers" in {home}/.claude.json',
        "theirs4": 'switched off by "disabledMcpjsonServers" in /home/u/p/.claude/settings.local.json',
    }
    assert {entry.name for entry in configuration.entries if not entry.disabled} == {
        "both", "kept", "theirs2", "theirs3", "mine2",
    }  # fmt: skip
    assert configuration.problems == ()


def test_a_managed_server_of_claude_code_wins_over_every_other() -> None:
    """Ours: as its documentation ranks them, before the user's own for this project."""
    where = linux(
        {
            "/etc/claude-code/managed-mcp.json": servers(a=command("managed")),
            "/home/u/p/.mcp.json": servers(a=command("project")),
            CLAUDE: json.dumps({"projects": {"/home/u/p": {"mcpServers": {"a": command("local")}}}}),
        }
    )
    (entry,) = load(where=where).entries
    assert entry.command is not None
    assert entry.command.text == "managed"
    assert len(load(where=where).ignored) == 2


def test_a_file_given_by_name_keeps_its_own_switches() -> None:
    """Ours: narrowing counts however a file was found; a file that holds nothing else says so."""
    where = linux(
        {
            "/x/.gemini/settings.json": json.dumps({"mcp": {"excluded": ["A"]}, "mcpServers": {"a": command()}}),
            "/x/.claude/settings.json": json.dumps({"disabledMcpjsonServers": ["a"]}),
            "/x/p/.gemini/settings.json": json.dumps({"mcp": {"excluded": {"a": 1}}, "mcpServers": {"b": command()}}),
        }
    )
    (entry,) = load(config_files=["/x/.gemini/settings.json"], where=where).entries
    assert entry.disabled_because == 'switched off by "excluded" in /x/.gemini/settings.json'
    empty = load(config_files=["/x/.claude/settings.json"], where=where)
    assert [problem.message for problem in empty.problems] == [
        "no servers: Claude Code only switches servers here that stand in other files"
    ]
    odd = load(config_files=["/x/p/.gemini/settings.json"], where=where)
    assert [problem.message for problem in odd.problems] == [
        "mcp / excluded is not a list of servers' names; it was not used"
    ]
    assert not odd.entries[0].disabled


def test_a_star_among_the_tools_to_offer_is_all_of_them() -> None:
    """Ours: as GitHub Copilot writes it; an empty list is none."""
    where = linux(
        {
            "/home/u/.copilot/mcp-config.json": servers(
                a=command("a", type="local", tools=["*"]),
                b=command("b", tools=["x"]),
                c=command("c", tools=[]),
                d=command("d"),
            )
        }
    )
    allowed = {entry.name: entry.allow_tools for entry in load(where=where).entries}
    assert allowed == {"a": None, "b": ("x",), "c": (), "d": None}
    assert load(where=where).entries[0].transport == "stdio"


def test_folders_of_opencode_count_over_its_files() -> None:
    """Ours: .opencode in the project and in the home folder, and OPENCODE_CONFIG_DIR, in the order in which it merges them."""
    files = (
        "/d/opencode.json",
        "/home/u/.opencode/opencode.jsonc",
        "/home/u/p/.opencode/opencode.json",
        "/home/u/p/opencode.json",
    )
    found = {}
    for file in reversed(files):
        found[file] = json.dumps({"mcp": {"a": {"type": "local", "command": [file]}}})
        (entry,) = load(where=linux(found, OPENCODE_CONFIG_DIR="/d")).entries
        assert entry.command is not None
        assert entry.command.text == file


def test_lines_are_counted_once_in_a_file_of_one_line() -> None:
    """Ours: twenty thousand servers written without a line end are read in a time that grows with the file, not with its square."""
    many = servers(**{f"s{number}": {"command": "c", "args": [str(number)]} for number in range(20_000)})
    (report,) = load(config_files=["/many.json"], where=linux({"/many.json": many})).files
    assert report.servers == 20_000
    (broken,) = load(
        config_files=["/cr.json"], where=linux({"/cr.json": '{"mcpServers":\r{"a":\r{"command":[]}}}'})
    ).ignored
    assert broken.origin.line == 2


def test_order_and_keys_are_the_same_every_time() -> None:
    """Ours: same files, same bytes to a model."""
    files = {
        CLAUDE: servers(z=command("1"), a=command("2")),
        CURSOR_PROJECT: servers(m=command("3")),
        CURSOR_USER: servers(b=command("4")),
    }
    assert (
        keys(load(where=linux(files))) == ["m", "z", "a", "b"] == keys(load(where=linux(dict(reversed(files.items())))))
    )


def test_sources_narrow_the_search() -> None:
    """Ours: only the named clients' files are looked at."""
    where = linux({CLAUDE: servers(a=command()), CURSOR_USER: servers(b=command("d"))})
    assert keys(load(["cursor"], where=where)) == ["b"]
    assert load([], where=where).files == ()
    assert 'there is no client "cursr"; did you mean "cursor"?' in errors(load(["cursr"], where=where))


def test_named_files_and_servers_in_code_replace_the_search() -> None:
    """Ours: whoever names what to read does not want more, unless he says so."""
    where = linux({CLAUDE: servers(a=command("1")), "/x/mine.json": servers(b=command("2"))})
    assert keys(load(config_files=["/x/mine.json"], where=where)) == ["b"]
    assert keys(load(servers={"c": ["prog"]}, where=where)) == ["c"]
    assert keys(load(["claude-code"], config_files=["/x/mine.json"], servers={"c": ["prog"]}, where=where)) == [
        "b",
        "c",
        "a",
    ]
    assert errors(load(config_files=["/x/none.json"], where=where)) == ["there is no such file"]


# ---- targets ----------------------------------------------------------------------------------------------------------------------


def test_targets_select_by_key_name_url_command_and_file() -> None:
    """Ours: what the command line takes."""
    where = linux(
        {
            CLAUDE: servers(**{"My Files": command("1"), "gh": command("2"), "x": command("3")}),
            "/home/u/p/more.json": servers(b=command("4")),
        }
    )
    assert keys(load(targets=["My Files"], where=where)) == ["my-files"]
    assert keys(load(targets=["my-files", "gh"], where=where)) == ["my-files", "gh"]
    configuration = load(targets=["https://example.com/mcp", ["python", "s.py"], "more.json", "gh", "gh"], where=where)
    assert keys(configuration) == ["gh", "example-com", "python", "b"]
    assert configuration.problems == ()


def test_targets_that_need_no_name_read_no_client_files() -> None:
    """Ours: `outrider discover URL` is not slowed down, or spoilt, by what else is configured."""
    configuration = load(targets=["https://h/mcp", ["x"]], where=linux({CLAUDE: "broken {"}))
    assert (configuration.files, configuration.problems) == ((), ())


def test_an_unknown_name_says_what_was_meant_or_why_it_is_not_there() -> None:
    """Ours: near matches, and entries that were given up."""
    where = linux({CLAUDE: servers(github=command(), bad={"command": "c", "url": "http://h"})})
    assert errors(load(targets=["gihtub"], where=where)) == ['there is no server "gihtub"; did you mean github?']
    assert "has both a command and a URL" in errors(load(targets=["bad"], where=where))[0]
    assert load(targets=["nothing like it at all"], where=where).entries == ()


def test_a_name_of_several_servers_is_no_choice() -> None:
    """Ours: the keys to choose from are said."""
    where = linux({CLAUDE: servers(**{"Gh x": command("a")}), CURSOR_USER: servers(**{"Gh x": command("b")})})
    assert errors(load(targets=["Gh x"], where=where)) == ['"Gh x" is the name of several servers: gh-x, gh-x-cursor']
    assert keys(load(targets=["gh-x-cursor"], where=where)) == ["gh-x-cursor"]


@pytest.mark.parametrize("target", ["http://", "https://h h", [], "missing.json"])
def test_a_target_that_is_none_is_a_problem_and_not_an_exception(target: Any) -> None:
    """Ours: never an exception out of load."""
    configuration = load(targets=[target], where=linux())
    assert configuration.entries == ()
    assert len(errors(configuration)) == 1


# ---- disks ------------------------------------------------------------------------------------------------------------------------


def test_a_broken_file_is_an_error_with_its_position_and_stays_as_it_is(tmp_path: Path) -> None:
    """Case 44: one desktop client replaced such a file with defaults."""
    path = write(tmp_path / "home/.cursor/mcp.json", b"\xef\xbb\xbf{\n  oops\n}")
    write(tmp_path / "home/.claude.json", servers(a=command()))
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    configuration = load(where=on_disk(tmp_path))
    (problem,) = configuration.problems
    assert (problem.severity, problem.source) == ("error", f"{path}:2:3")
    assert [report.status for report in configuration.files if report.file.path == str(path)] == ["broken"]
    assert keys(configuration) == ["a"], "one broken file costs that file"
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def test_files_with_marks_and_other_encodings_are_read(tmp_path: Path) -> None:
    """Case 44, 45: what editors and PowerShell leave behind."""
    text = '{ // mine\r\n "mcpServers": {"ä": {"command": "c"},},\r\n}'
    for number, data in enumerate(
        (
            b"\xef\xbb\xbf" + text.encode(),
            b"\xff\xfe" + text.encode("utf-16-le"),
            b"\xfe\xff" + text.encode("utf-16-be"),
        )
    ):
        path = write(tmp_path / f"{number}.json", data)
        (entry,) = load(config_files=[str(path)], where=on_disk(tmp_path)).entries
        assert (entry.name, entry.origin.line) == ("ä", 2)


def test_what_is_no_readable_file_is_a_problem(tmp_path: Path) -> None:
    """Ours: a folder, a link to itself, a pipe, a file that is too large, a file where a folder should be."""
    home = tmp_path / "home"
    (home / ".cursor/mcp.json").mkdir(parents=True)
    (home / ".claude.json").symlink_to(home / ".claude.json")
    (home / ".codeium/windsurf").mkdir(parents=True)
    os.mkfifo(home / ".codeium/windsurf/mcp_config.json")
    write(home / ".kiro", "a file")
    with open(write(home / ".aws/amazonq/mcp.json", ""), "wb") as sparse:
        sparse.truncate(50 * 1024 * 1024)
    configuration = load(where=on_disk(tmp_path))
    messages = {os.path.relpath(problem.source, home): problem.message for problem in configuration.problems}
    assert messages == {
        ".cursor/mcp.json": "the file is a folder",
        ".claude.json": "the file is a symbolic link that leads to itself",
        ".codeium/windsurf/mcp_config.json": "the file is not a regular file",
        ".aws/amazonq/mcp.json": "the file is larger than 16,384 KiB",
    }
    statuses = {os.path.relpath(report.file.path, home): report.status for report in configuration.files}
    assert statuses[".kiro/settings/mcp.json"] == "missing"
    assert statuses[".claude.json"] == "unreadable"


def test_a_file_of_the_largest_size_is_read_and_one_byte_more_is_not(tmp_path: Path) -> None:
    """Ours: the limit itself is allowed."""
    content = servers(a=command()).encode()
    path = write(tmp_path / "x.json", content + b" " * (MAX_FILE_BYTES - len(content)))
    assert keys(load(config_files=[str(path)], where=on_disk(tmp_path))) == ["a"]
    with path.open("ab") as file:
        file.write(b" ")
    assert errors(load(config_files=[str(path)], where=on_disk(tmp_path))) == ["the file is larger than 16,384 KiB"]


def test_a_file_that_may_not_be_read_is_a_problem() -> None:
    """Ours: permissions (not tried on disk, for root may read anything)."""
    configuration = load(
        where=linux({CURSOR_USER: PermissionError(errno.EACCES, "Permission denied"), CLAUDE: servers(a=command())})
    )
    assert errors(configuration) == ["the file cannot be read: permission denied"]
    assert keys(configuration) == ["a"]


def test_a_file_that_vanishes_is_missing() -> None:
    """Ours: between listing a folder and reading its files."""
    where = linux({"/home/u/.continue/mcpServers/a.yaml": FileNotFoundError(errno.ENOENT, "gone")})
    configuration = load(where=where)
    assert (configuration.entries, configuration.problems) == ((), ())


@pytest.mark.parametrize(
    "error", [OSError(errno.EIO, "Input/output error"), OSError(), TimeoutError(errno.ETIMEDOUT, "timed out")]
)
def test_any_error_of_a_disk_is_a_problem_of_that_file(error: OSError) -> None:
    """Ours: network folders fail in many ways."""
    configuration = load(where=linux({CURSOR_USER: error, CLAUDE: servers(a=command())}))
    assert len(errors(configuration)) == 1
    assert keys(configuration) == ["a"]


def test_paths_that_are_impossible_are_problems(tmp_path: Path) -> None:
    """Ours: names with NUL, or too long for the system."""
    for path in ("a\0b.json", "x" * 300 + ".json"):
        configuration = load(config_files=[path], where=on_disk(tmp_path))
        assert len(errors(configuration)) == 1


def test_the_surroundings_of_this_process_work() -> None:
    """Ours: without arguments, the real disk and environment; whatever is there, nothing is raised."""
    where = here()
    assert where.platform in ("linux", "macos", "windows")
    assert isinstance(load(where=where), Configuration)


def test_the_other_platforms_are_loaded_alike() -> None:
    """Ours: the same configuration, found at each platform's places."""
    desktop = servers(a=command())
    assert keys(
        load(where=macos({"/Users/u/Library/Application Support/Claude/claude_desktop_config.json": desktop}))
    ) == ["a"]
    assert keys(load(where=windows({r"C:\Users\u\AppData\Roaming\Claude\claude_desktop_config.json": desktop}))) == [
        "a"
    ]


PLACES = [file.path for file in find_config_files(linux())]
CONTENTS = [
    servers(a=command()),
    servers(**{"../x": command("2"), "b": {}}),
    "mcpServers: [{name: x, command: y}]",
    "[mcp_servers.x]\ncommand='y'",
    "{",
    "",
]


@given(st.dictionaries(st.sampled_from(PLACES), st.binary(max_size=80) | st.sampled_from(CONTENTS), max_size=12))
def test_any_contents_of_any_files_load(files: dict[str, str | bytes]) -> None:
    """Ours: never an exception, always unique keys."""
    configuration = load(where=linux(files))
    assert len(set(keys(configuration))) == len(configuration.entries)
