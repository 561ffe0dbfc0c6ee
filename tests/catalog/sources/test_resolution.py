from __future__ import annotations

import errno
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.files import MemoryFiles, linux, windows
from outrider.catalog.sources import (
    ResolvedTarget,
    ServerEntry,
    Surroundings,
    command_entry,
    find_config_files,
    read_config,
    read_servers,
    resolve,
    url_entry,
)
from outrider.client.target import HttpTarget, StdioTarget, parse_target
from outrider.errors import ConfigError

SECRET = "s3cr3t-value"


def plain(entry: Any) -> ServerEntry:
    (parsed,) = read_servers({"s": entry}, workspace="/home/u/p").entries
    return parsed


def from_file(client: str, content: Any, where: Surroundings | None = None) -> ServerEntry:
    where = where or linux()
    level = "project" if client in ("mcp-json", "opencode", "vscode") else "user"
    file = next(
        file for file in find_config_files(where, clients=[client]) if file.level == level and "*" not in file.path
    )
    (entry,) = read_config((content if isinstance(content, str) else json.dumps(content)).encode(), file).entries
    return entry


def failure(entry: ServerEntry, where: Surroundings | None = None) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        resolve(entry, where or linux())
    assert SECRET not in f"{caught.value} {caught.value.hint} {caught.value.source}"
    return caught.value


def test_placeholders_are_filled_in_everywhere_alike() -> None:
    """Case 41: command, args, env, url and headers."""
    stdio = plain(
        {
            "command": "${SET}/bin",
            "args": ["--t=${SET}"],
            "env": {"K": "${SET}", "M": "${UNSET:-d}", "N": "$SET", "O": "$${SET}"},
            "cwd": "${SET}",
        }
    )
    target = resolve(stdio, linux(SET="v"))
    assert (target.command, target.args, target.cwd) == ("v/bin", ("--t=v",), "/home/u/p/v")
    assert target.env == {"K": "v", "M": "d", "N": "$SET", "O": "${SET}"}
    remote = plain({"url": "https://h/${SET}/mcp", "headers": {"Authorization": "Bearer ${SET}"}})
    target = resolve(remote, linux(SET="v"))
    assert (target.url, target.headers) == ("https://h/v/mcp", {"Authorization": "Bearer v"})


def test_a_missing_variable_is_named_and_costs_its_server_only() -> None:
    """Case 41: all that is missing is said at once; nothing becomes an empty string."""
    entries = read_servers(
        {
            "bad": {"command": "c", "args": ["${ONE}"], "env": {"L": "${TWO}", "M": "${ONE}", "N": "${SET}"}},
            "good": {"command": "c", "env": {"K": "${SET}"}},
        }
    ).entries
    error = failure(entries[0], linux(SET=SECRET))
    assert str(error).endswith('the server "bad" needs the environment variable TWO and the environment variable ONE')
    assert error.hint == "set TWO; set ONE"
    assert resolve(entries[1], linux(SET="v")).env == {"K": "v"}


def test_the_error_says_where_the_entry_stands() -> None:
    """Ours: file and line, to go there and mend it."""
    error = failure(from_file("mcp-json", '{"mcpServers": {\n"s": {"command": "${X}"}}}'))
    assert error.source == "/home/u/p/.mcp.json:2"


def test_a_foreign_placeholder_without_a_value_is_passed_on_as_written() -> None:
    """Case 41: `${i}` in a shell script of a client that expands nothing."""
    entry = from_file("claude-desktop", {"mcpServers": {"s": {"command": "sh", "args": ["-c", "echo ${i} ${SET}"]}}})
    assert resolve(entry, linux(SET="v")).args == ("-c", "echo ${i} v")


def test_workspace_and_home_are_those_of_the_file() -> None:
    """Ours: a project's file speaks about its project, wherever the search started."""
    files = MemoryFiles({"/home/u/p/.git/HEAD": ""})
    where = Surroundings(home="/home/u", cwd="/home/u/p/sub", platform="linux", env={}, files=files)
    content = {
        "servers": {"s": {"command": "${workspaceFolder}/x", "args": ["${userHome}", "${workspaceFolderBasename}"]}}
    }
    file = next(
        file for file in find_config_files(where, clients=["vscode"]) if file.path == "/home/u/p/.vscode/mcp.json"
    )
    (entry,) = read_config(json.dumps(content).encode(), file).entries
    target = resolve(entry, where)
    assert (target.command, target.args) == ("/home/u/p/x", ("/home/u", "p"))


def test_an_input_makes_the_server_need_an_answer() -> None:
    """Ours: VS Code would ask; we say what is needed and how to give it."""
    entry = from_file("vscode", {"servers": {"s": {"command": "c", "env": {"K": "${input:api-key}"}}}})
    error = failure(entry)
    assert "an answer for the input api-key" in str(error)
    assert error.hint == "set OUTRIDER_INPUT_API_KEY"
    assert resolve(entry, linux(OUTRIDER_INPUT_API_KEY="v")).env == {"K": "v"}
    assert resolve(entry, linux(), inputs={"api-key": "w"}).env == {"K": "w"}


def test_codex_bearer_is_needed_and_its_other_variables_are_not() -> None:
    """Ours: bearer_token_env_var must be set; env_vars and env_http_headers are taken over if they are."""
    text = (
        '[mcp_servers.s]\nurl = "https://h/mcp"\nbearer_token_env_var = "T"\nenv_http_headers = { X = "XV", Y = "YV" }'
    )
    entry = from_file("codex", text)
    assert "the environment variable T" in str(failure(entry))
    assert resolve(entry, linux(T="t", XV="x")).headers == {"Authorization": "Bearer t", "X": "x"}
    entry = from_file(
        "codex", '[mcp_servers.s]\ncommand = "c"\nargs = ["echo ${HOME}", "$HOME"]\nenv_vars = ["A", "B"]'
    )
    target = resolve(entry, linux(A="a"))
    assert (target.env, target.args) == ({"A": "a"}, ("echo ${HOME}", "$HOME"))


def test_goose_secrets_are_needed() -> None:
    """Ours: Goose keeps env_keys in the keyring, which is not ours to open."""
    entry = from_file("goose", "extensions:\n  s: {type: stdio, cmd: c, args: [], env_keys: [K], enabled: true}\n")
    assert "the environment variable K" in str(failure(entry))
    assert resolve(entry, linux(K="v")).env == {"K": "v"}


def test_a_file_reference_is_read_relative_to_the_config_file() -> None:
    """Ours: opencode's {file:path}; blanks around the contents do not count."""
    files = {"/home/u/p/.opencode/keys/k": f"{SECRET}\n", "/home/u/.k": "home"}
    content = {
        "mcp": {"s": {"type": "remote", "url": "https://h", "headers": {"A": "{file:keys/k}", "B": "{file:~/.k}"}}}
    }
    entry = from_file("opencode", content)
    assert resolve(entry, linux(files)).headers == {"A": SECRET, "B": "home"}
    error = failure(entry, linux({"/home/u/.k": "x"}))
    assert "the file keys/k (no such file or directory)" in str(error)
    binary = failure(entry, linux({"/home/u/.k": "x", "/home/u/p/.opencode/keys/k": b"\xff\x00"}))
    assert "is not a text file" in str(binary)
    denied = failure(
        entry,
        linux({"/home/u/.k": "x", "/home/u/p/.opencode/keys/k": PermissionError(errno.EACCES, "Permission denied")}),
    )
    assert "permission denied" in str(denied)
    assert failure(entry, linux({"/home/u/.k": "x", "/home/u/p/.opencode/keys/k": b"x" * 65_537}))
    assert resolve(entry, linux({"/home/u/.k": "x", "/home/u/p/.opencode/keys/k": b"x" * 65_536})).headers["B"] == "x"


def test_an_environment_file_lies_under_the_entrys_own_variables() -> None:
    """Ours: VS Code's envFile."""
    env_file = "# comment\nA=1\nexport B = 'two words' \nC=\"3\"\nD=4 # note\nE=\nnot an assignment\n"
    entry = from_file(
        "vscode", {"servers": {"s": {"command": "c", "envFile": "${workspaceFolder}/.env", "env": {"A": "own"}}}}
    )
    target = resolve(entry, linux({"/home/u/p/.env": env_file}))
    assert target.env == {"A": "own", "B": "two words", "C": "3", "D": "4", "E": ""}
    assert "the environment file /home/u/p/.env (no such file or directory)" in str(failure(entry))


def test_a_leading_tilde_is_the_home_folder() -> None:
    """Ours: no program starts with a tilde, and no shell is there to replace it."""
    target = resolve(plain({"command": "~/bin/x", "cwd": "~", "args": ["~/y"]}), linux())
    assert (target.command, target.cwd, target.args) == ("/home/u/bin/x", "/home/u", ("~/y",))


def test_paths_and_variables_follow_windows_there() -> None:
    """Case 43: nothing is joined into one string, backslashes stay."""
    entry = from_file(
        "vscode",
        {"servers": {"s": {"command": "npx", "args": ["C:\\Program Files\\x", "a&b", "${env:path}"], "cwd": "sub"}}},
        windows(),
    )
    target = resolve(entry, windows(PATH="v"))
    assert target.args == ("C:\\Program Files\\x", "a&b", "v")
    assert target.cwd == r"C:\Users\u\p\sub"


@pytest.mark.parametrize("value", ["a\r\nHost: evil", "a\nb", "\x00"])
def test_a_header_that_becomes_impossible_is_refused_without_its_value(value: str) -> None:
    """Case 138: the line break may come from the variable."""
    entry = plain({"url": "https://h", "headers": {"X": "${V}"}})
    error = failure(entry, linux(V=f"{SECRET}{value}"))
    assert "the value of the header X contains a line break" in str(error)


@pytest.mark.parametrize(
    ("value", "fault"),
    [("file:///etc", "not an http"), ("", "no http://"), ("http://h /", "blanks"), ("http://", "no host")],
)
def test_a_url_that_becomes_impossible_is_refused(value: str, fault: str) -> None:
    """Ours: checked once all is filled in."""
    assert fault in str(failure(plain({"url": "${V}"}), linux(V=value)))


def test_values_no_process_can_be_given_are_refused() -> None:
    """Ours: the operating system would raise something less helpful."""
    assert "NUL" in str(failure(plain({"command": "c", "args": ["${V}"]}), linux(V=f"{SECRET}\0")))
    assert "NUL" in str(failure(plain({"command": "c", "env": {"A": "${V}"}}), linux(V="\0")))
    assert "is empty" in str(failure(plain({"command": "${V}"}), linux(V=" ")))


def test_the_fingerprint_covers_everything_that_is_started_or_called() -> None:
    """Case 114: command, args, env values, url, headers and cwd; not the name, not the time limits."""
    base = {"command": "c", "args": ["a"], "env": {"A": "1"}, "cwd": "/x"}
    variants: list[Any] = [
        base,
        base | {"command": "d"},
        base | {"args": ["b"]},
        base | {"args": ["a", "a"]},
        base | {"env": {"A": "2"}},
        base | {"env": {}},
        base | {"cwd": "/y"},
        {"url": "https://h"},
        {"url": "https://h/2"},
        {"url": "https://h", "headers": {"A": "1"}},
        {"url": "https://h", "headers": {"A": "2"}},
    ]
    prints = [resolve(plain(variant), linux()).fingerprint for variant in variants]
    assert len(set(prints)) == len(prints)
    one, other = read_servers({"x": base | {"disabled": True}, "y": base}).entries
    assert resolve(one, linux()).fingerprint == resolve(other, linux()).fingerprint == prints[0]
    with_variable = plain({"command": "c", "env": {"A": "${V}"}})
    assert resolve(with_variable, linux(V="1")).fingerprint != resolve(with_variable, linux(V="2")).fingerprint
    spelt = plain({"url": "https://h", "headers": {"a": "1"}})
    assert resolve(spelt, linux()).fingerprint == prints[9], "header names have no case"


def test_a_target_shows_no_value() -> None:
    """Ours: a traceback or a debug line prints reprs."""
    target = resolve(plain({"url": "https://h", "headers": {"A": SECRET}}), linux())
    assert SECRET not in repr(target)
    assert isinstance(target, ResolvedTarget)


def test_a_resolved_server_is_what_the_client_takes() -> None:
    """Ours: the catalog hands it on; a url that means SSE stays one."""
    stdio = resolve(plain({"command": "c", "args": ["a"], "env": {"A": "1"}, "cwd": "/x"}), linux()).target()
    assert stdio == StdioTarget(("c", "a"), {"A": "1"}, "/x")
    remote = resolve(plain({"url": "https://h/mcp", "headers": {"A": "1"}}), linux()).target()
    assert remote == HttpTarget("https://h/mcp", {"A": "1"})
    sse = resolve(plain({"type": "sse", "url": "https://u:p@h/sse"}), linux()).target()
    assert isinstance(sse, HttpTarget)
    assert (sse.url, sse.sse, list(sse.headers)) == ("https://h/sse", True, ["Authorization"])


def test_the_value_of_a_placeholder_is_shown_nowhere() -> None:
    """Ours: a label, which is remembered on disk, has the placeholder; what a server repeats is masked; folders stay readable."""
    env = {"PATH_KEY": SECRET, "REGION": "region-1", "HOME": "/home/u"}
    url = resolve(plain({"url": "https://h/${PATH_KEY}/mcp", "headers": {"A": "${PATH_KEY}"}}), linux(**env)).target()
    assert url.label == "https://h/${PATH_KEY}/mcp"
    assert SECRET not in url.redact(f"no such page: /{SECRET}/mcp") + repr(url.label)
    args = ["${HOME}/x", "${REGION}", "--key", "${PATH_KEY}", "${workspaceFolder}/y", "${UNSET:-plain}"]
    stdio = resolve(plain({"command": "c", "args": args}), linux(**env)).target()
    assert stdio.label == "c /home/u/x ${REGION} --key ••• /home/u/p/y plain"
    assert stdio.redact(f"{SECRET} in region-1 of /home/u") == "••• in ••• of /home/u"
    again = parse_target(stdio, env={"B": "1"})
    assert again.label == stdio.label
    assert stdio == StdioTarget(("c", "/home/u/x", "region-1", "--key", SECRET, "/home/u/p/y", "plain"))


def test_bytes_that_are_no_text_reach_a_process_and_no_url() -> None:
    """Ours: POSIX variables and paths are bytes, which Python keeps as lone surrogates."""
    assert resolve(plain({"command": "c", "args": ["${V}"]}), linux(V="\udcff")).args == ("\udcff",)
    assert "no text" in str(failure(plain({"url": "https://h/${V}"}), linux(V="\udcff")))


def test_a_header_that_cannot_be_carried_is_refused() -> None:
    """Ours: HTTP headers are Latin-1; the value is not repeated."""
    error = failure(plain({"url": "https://h", "headers": {"X": "${V}"}}), linux(V=f"{SECRET}日本"))
    assert "the value of the header X contains a character that headers cannot carry" in str(error)
    assert resolve(plain({"url": "https://h", "headers": {"X": "é"}}), linux()).headers == {"X": "é"}


def test_targets_of_the_command_line_are_taken_literally() -> None:
    """Ours: the shell has expanded what was to be expanded."""
    target = resolve(
        command_entry(["/usr/bin/python3", "s.py", "${X}", "$Y", "{env:Z}"]), linux(X="no", Y="no", Z="no")
    )
    assert (target.name, target.command, target.args) == (
        "python3",
        "/usr/bin/python3",
        ("s.py", "${X}", "$Y", "{env:Z}"),
    )
    target = resolve(url_entry("https://example.com/mcp?x=${X}"), linux(X="no"))
    assert (target.key, target.url, target.transport) == ("example-com", "https://example.com/mcp?x=${X}", "auto-http")
    with pytest.raises(ValueError, match="is not an http"):
        url_entry("ftp://h")


@given(
    st.dictionaries(st.sampled_from(["A", "B", "C"]), st.text(max_size=20)),
    st.text(alphabet="${}:-ABC /\n", max_size=30),
)
def test_any_values_give_a_target_or_a_config_error(env: dict[str, str], text: str) -> None:
    """Ours: whatever is in the environment and in the file."""
    for entry in (
        {"command": "c" + text, "args": [text], "env": {"X": text}, "cwd": text},
        {"url": "http://h/" + text, "headers": {"X": text}},
    ):
        for parsed in read_servers({"s": entry}).entries:
            with suppress(ConfigError):
                assert isinstance(resolve(parsed, linux(**env)), ResolvedTarget)
