from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.files import linux
from outrider.catalog.sources import configuration_view, load
from outrider.catalog.sources.view import masked_url

SECRETS = ["hunter2", "sk-live-12345", "ghp_abcdefghijklmnop", "a8f5f167f44f4964e6c998dee827110c"]


def view_of(servers: dict[str, Any], **env: str) -> dict[str, Any]:
    where = linux({"/home/u/.claude.json": json.dumps({"mcpServers": servers})}, **env)
    return configuration_view(load(["claude-code"], where=where), where)


def test_the_view_says_how_each_server_was_read() -> None:
    """Ours: what `outrider config` shows."""
    view = view_of(
        {
            "a": {"command": "npx", "args": ["-y", "x"], "env": {"K": "${K}"}, "timeout": 5000, "enviroment": {}},
            "b": {"type": "http", "url": "https://h/mcp", "headers": {"X": "1"}, "disabled": True},
            "c": {"command": "x", "url": "http://y"},
        },
        K="v",
    )
    a, b = view["servers"]
    assert a == {
        "key": "a",
        "name": "a",
        "transport": "stdio",
        "state": "ready",
        "reason": "",
        "hint": "",
        "command": ["npx", "-y", "x"],
        "url": None,
        "cwd": None,
        "env": ["K"],
        "headers": [],
        "tools": {"allow": None, "deny": []},
        "start_timeout_s": None,
        "request_timeout_s": 5.0,
        "origin": {
            "client": "claude-code",
            "level": "user",
            "file": "/home/u/.claude.json",
            "line": 1,
            "pointer": "/mcpServers/a",
        },
        "also_in": [],
        "warnings": ['the key "enviroment" means nothing to Claude Code; did you mean "env"?'],
    }
    assert (b["state"], b["reason"], b["url"], b["headers"]) == (
        "disabled",
        'switched off by "disabled"',
        "https://h/mcp",
        ["X"],
    )
    assert [(one["name"], one["error"]) for one in view["ignored"]] == [("c", True)]
    assert [file for file in view["files"] if file["status"] != "missing"] == [
        {
            "client": "claude-code",
            "title": "Claude Code",
            "path": "/home/u/.claude.json",
            "level": "user",
            "status": "read",
            "servers": 3,
            "message": "",
        }
    ]


def test_a_server_that_lacks_something_says_what_and_how_to_give_it() -> None:
    """Case 41: shown before anything is started."""
    (server,) = view_of({"a": {"command": "c", "env": {"K": "${TOKEN}"}}})["servers"]
    assert (server["state"], server["hint"]) == ("unresolved", "set TOKEN")
    assert server["reason"] == 'the server "a" needs the environment variable TOKEN'


def test_the_view_is_json_and_the_same_every_time() -> None:
    """Ours: `--json` prints it as it is."""
    view = view_of({"a": {"command": "c"}, "日本": {"url": "https://h"}})
    assert json.loads(json.dumps(view)) == view
    assert view == view_of({"a": {"command": "c"}, "日本": {"url": "https://h"}})


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(
    "entry",
    [
        {"command": "c", "args": ["--token", "{}"]},
        {"command": "c", "args": ["--api-key={}"]},
        {"command": "c", "args": ["-e", "API_TOKEN={}"]},
        {"command": "c", "args": ["--header", "Authorization: Bearer {}"]},
        {"command": "c", "args": ["--header", "X-Api-Key:{}"]},
        {"command": "sh", "args": ["-c", "TOKEN={} exec server"]},
        {"command": "c", "args": ["https://user:{}@h/x?key={}"]},
        {"command": "c", "env": {"K": "{}"}},
        {"url": "https://{}@h/mcp"},
        {"url": "https://u:{}@h/mcp"},
        {"url": "https://h/mcp?api_key={}&x={}"},
        {"url": "https://h/mcp#{}"},
        {"url": "https://h", "headers": {"X": "{}"}},
        {"url": "${U}", "headers": {"X": "${S}"}},
        {"command": "c", "args": ["--x", "{}\n"], "headers": {"X": "{}\n"}, "url": "{}"},
        {"url": "{} {}"},
    ],
)
def test_secrets_are_not_shown(entry: Any, secret: str) -> None:
    """Ours: in variables, headers, URLs, arguments, and in what is said about unusable entries."""
    filled = json.loads(json.dumps(entry).replace("{}", secret))
    if filled.get("args") == ["--x", f"{secret}\n"] and secret == "hunter2":
        return  # an argument that neither its name nor its shape gives away
    shown = json.dumps(view_of({"a": filled}, U="ftp://x", S=secret), ensure_ascii=False)
    assert secret not in shown


@pytest.mark.parametrize(
    "args",
    [
        ["-y", "@modelcontextprotocol/server-filesystem", "/home/u/Documents"],
        ["--port", "8080"],
        ["run", "--rm", "-i", "ghcr.io/github/github-mcp-server:0.5"],
        ["--token", "${TOKEN}"],
        ["--api-key=${env:KEY}"],
        ["mcp-server-google-search-console@latest"],
        ["--url", "http://127.0.0.1:8080/mcp"],
    ],
)
def test_what_is_no_secret_is_shown_as_written(args: list[str]) -> None:
    """Ours: the command must be recognisable, and a placeholder is the opposite of a secret."""
    (server,) = view_of({"a": {"command": "c", "args": args}})["servers"]
    assert server["command"] == ["c", *args]


def test_urls_keep_what_tells_them_apart() -> None:
    """Ours: host, path and the names in the query."""
    assert masked_url("https://h:8080/a/b/mcp") == "https://h:8080/a/b/mcp"
    assert masked_url("https://h/s/AbCdEf1234567890AbCdEf/mcp?tenant=x&flag") == "https://h/s/•••/mcp?tenant=•••&flag"
    assert masked_url("${BASE:-https://h}/mcp") == "${BASE:-https://h}/mcp"


@given(st.text(max_size=60))
def test_any_text_can_be_masked(text: str) -> None:
    """Ours: never raises, one line."""
    assert masked_url(text).isprintable()
    for server in view_of({text: {"command": "c", "args": [text, "--token", text]}})["servers"]:
        assert all(word.isprintable() for word in server["command"])
        assert server["name"].isprintable()
