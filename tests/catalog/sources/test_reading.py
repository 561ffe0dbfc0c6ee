from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.files import linux, windows
from outrider.catalog.sources import (
    ConfigFile,
    ParsedConfig,
    ServerEntry,
    describe_file,
    find_config_files,
    read_config,
    read_servers,
)
from outrider.catalog.sources.entries import assign_keys
from outrider.errors import ConfigError

FILES = {
    "mcp-json": "/home/u/p/.mcp.json",
    "claude-code": "/home/u/.claude.json",
    "claude-desktop": "/home/u/.config/Claude/claude_desktop_config.json",
    "vscode": "/home/u/p/.vscode/mcp.json",
    "vscode-settings": "/home/u/.config/Code/User/settings.json",
    "cursor": "/home/u/.cursor/mcp.json",
    "windsurf": "/home/u/.codeium/windsurf/mcp_config.json",
    "gemini-cli": "/home/u/.gemini/settings.json",
    "codex": "/home/u/.codex/config.toml",
    "zed": "/home/u/.config/zed/settings.json",
    "goose": "/home/u/.config/goose/config.yaml",
    "librechat": "/home/u/p/librechat.yaml",
    "opencode": "/home/u/p/opencode.jsonc",
    "continue": "/home/u/.continue/config.yaml",
    "cline": "/home/u/.cline/mcp.json",
    "amazon-q": "/home/u/.aws/amazonq/mcp.json",
    "kiro": "/home/u/.kiro/settings/mcp.json",
}


def file_of(client: str) -> ConfigFile:
    return next(file for file in find_config_files(linux()) if file.path == FILES[client])


def read(client: str, content: Any) -> ParsedConfig:
    """Read `content`, text or something to be written as JSON, as the file of `client`."""
    file = describe_file("/x/servers.json", linux()) if client == "plain" else file_of(client)
    return read_config((content if isinstance(content, str) else json.dumps(content)).encode(), file)


def one(client: str, content: Any) -> ServerEntry:
    parsed = read(client, content)
    assert not parsed.ignored, parsed.ignored
    (entry,) = parsed.entries
    return entry


def server(client: str, entry: Any) -> ServerEntry:
    """One entry in the usual container of a JSON client."""
    container: Any = {"s": entry}
    for key in reversed([] if client == "plain" else file_of(client).containers[0]):
        container = {key: container}
    return one(client, {"mcpServers": {"s": entry}} if client == "plain" else container)


def refusal(entry: Any, client: str = "plain") -> str:
    parsed = read(client, {"mcpServers": {"s": entry, "good": {"command": "c"}}})
    assert [good.name for good in parsed.entries] == ["good"], "one bad entry costs that entry"
    (ignored,) = parsed.ignored
    assert ignored.is_error
    assert ignored.name == "s"
    return ignored.reason


def text(template: Any) -> str | None:
    return None if template is None else template.written()


def texts(templates: Any) -> dict[str, str]:
    return {name: template.written() for name, template in templates.items()}


# ---- each client's own format, as its documentation shows it -----------------------------------------------------------------------


def test_mcp_json() -> None:
    """Ours: the format of https://code.claude.com/docs/en/mcp."""
    parsed = read(
        "mcp-json",
        {
            "mcpServers": {
                "db": {"command": "npx", "args": ["-y", "db"], "env": {"URL": "${DB_URL:-x}"}},
                "api": {
                    "type": "http",
                    "url": "${BASE}/mcp",
                    "headers": {"Authorization": "Bearer ${KEY}"},
                    "timeout": 600000,
                },
                "old": {"type": "sse", "url": "https://h/sse"},
                "untyped": {"url": "https://h/mcp"},
            }
        },
    )
    db, api, old, untyped = parsed.entries
    assert (db.transport, text(db.command), [text(a) for a in db.args], texts(db.env)) == (
        "stdio",
        "npx",
        ["-y", "db"],
        {"URL": "${DB_URL:-x}"},
    )
    assert (api.transport, text(api.url), texts(api.headers)) == (
        "http",
        "${BASE}/mcp",
        {"Authorization": "Bearer ${KEY}"},
    )
    assert (api.start_timeout_s, api.request_timeout_s) == (None, 600.0)
    assert (old.transport, untyped.transport) == ("sse", "auto-http")
    assert not any(entry.warnings for entry in parsed.entries)
    assert db.origin.pointer == "/mcpServers/db"


def test_claude_code_has_servers_of_the_user_and_of_the_current_project() -> None:
    """Ours: ~/.claude.json holds both, and those of other projects, which do not count."""
    parsed = read(
        "claude-code",
        {
            "numStartups": 3,
            "mcpServers": {"mine": {"command": "a"}},
            "projects": {
                "/home/u/p": {"mcpServers": {"here": {"command": "b"}}, "history": []},
                "/home/u/other": {"mcpServers": {"elsewhere": {"command": "c"}}},
            },
        },
    )
    assert [(entry.name, entry.origin.level) for entry in parsed.entries] == [("mine", "user"), ("here", "local")]
    assert parsed.entries[1].origin.pointer == "/projects/~1home~1u~1p/mcpServers/here"
    assert read("claude-code", {"numStartups": 3}) == ParsedConfig()


def test_claude_code_paths_on_windows_are_compared_as_windows_does() -> None:
    """Ours: the project's key is written with either slash and in any case."""
    file = find_config_files(windows(), clients=["claude-code"])[1]
    data = {"projects": {"c:/users/U/p": {"mcpServers": {"here": {"command": "b"}}}}}
    assert [entry.name for entry in read_config(json.dumps(data).encode(), file).entries] == ["here"]


def test_vs_code_with_comments_inputs_and_null_variables() -> None:
    """Ours: microsoft/vscode-docs docs/copilot/reference/mcp-configuration.md; type http falls back to SSE there."""
    entry = one(
        "vscode",
        """{
          // generated
          "inputs": [{"type": "promptString", "id": "k", "description": "Key", "password": true}],
          "servers": {
            "s": {
              "type": "stdio", "command": "npx", "args": ["-y", "${workspaceFolder}"], "cwd": "${workspaceFolder}/sub",
              "env": {"KEY": "${input:k}", "PORT": 8080, "GONE": null}, "envFile": "${workspaceFolder}/.env", "dev": {"watch": "**"},
            },
          },
        }""",
    )
    assert texts(entry.env) == {"KEY": "${input:k}", "PORT": "8080"}
    assert (text(entry.cwd), text(entry.env_file)) == ("${workspaceFolder}/sub", "${workspaceFolder}/.env")
    assert entry.warnings == ()
    assert server("vscode", {"type": "http", "url": "https://h/mcp"}).transport == "auto-http"
    assert server("vscode", {"type": "sse", "url": "https://h/mcp"}).transport == "sse"


@pytest.mark.parametrize(
    "settings", [{"mcp": {"servers": {"s": {"command": "c"}}}}, {"mcp.servers": {"s": {"command": "c"}}}]
)
def test_vs_code_settings_may_hold_servers_nested_or_dotted(settings: Any) -> None:
    """Case 46: the older place, in settings.json."""
    entry = one("vscode-settings", json.dumps({"editor.fontSize": 12} | settings, indent=1))
    assert (entry.name, entry.origin.pointer) in {("s", "/mcp/servers/s"), ("s", "/mcp.servers/s")}
    assert entry.origin.line > 3
    assert read("vscode-settings", {"editor.fontSize": 12}) == ParsedConfig()


def test_cursor() -> None:
    """Ours: https://cursor.com/docs/mcp."""
    entry = server(
        "cursor",
        {"type": "stdio", "command": "uvx", "args": ["x"], "env": {"K": "${env:K}"}, "envFile": ".env", "auth": {}},
    )
    assert (entry.transport, entry.warnings) == ("stdio", ())
    assert server("cursor", {"url": "http://localhost:3000/mcp"}).transport == "auto-http"


def test_windsurf_spells_the_url_its_own_way() -> None:
    """Ours: https://docs.windsurf.com/windsurf/cascade/mcp."""
    entry = server("windsurf", {"serverUrl": "https://h/mcp", "headers": {"A": "${env:T}"}})
    assert (entry.transport, text(entry.url), entry.warnings) == ("auto-http", "https://h/mcp", ())


def test_gemini_cli() -> None:
    """Ours: docs/tools/mcp-server.md; httpUrl is HTTP; url is documented as SSE, and its code tries HTTP first, as we do."""
    parsed = read(
        "gemini-cli",
        {
            "theme": "x",
            "mcp": {"allowed": ["a", "b"], "excluded": ["b"]},
            "mcpServers": {
                "a": {
                    "command": "c",
                    "cwd": "./x",
                    "timeout": 30000,
                    "trust": True,
                    "includeTools": ["x"],
                    "excludeTools": ["y"],
                },
                "b": {"httpUrl": "https://h/mcp", "headers": {"K": "$KEY"}},
                "c": {"url": "https://h/sse"},
                "d": {"url": "https://h/sse", "type": "sse"},
                "e": {"url": "https://h/1", "httpUrl": "https://h/2"},
            },
        },
    )
    a, b, c, d, e = parsed.entries
    assert (a.allow_tools, a.deny_tools, a.request_timeout_s, text(a.cwd)) == (("x",), ("y",), 30.0, "./x")
    assert [entry.transport for entry in (b, c, d, e)] == ["http", "auto-http", "sse", "http"]
    assert text(e.url) == "https://h/2"
    assert "both there" in e.warnings[0]
    assert [(one.names, one.is_allowed) for one in parsed.lists] == [(frozenset("ab"), True), (frozenset("b"), False)]
    assert next(iter(b.headers["K"].references())).name == "KEY"


def test_codex_is_toml_without_placeholders() -> None:
    """Ours: codex-rs/config/src/mcp_types.rs."""
    parsed = read(
        "codex",
        """
model = "x"
[mcp_servers.local]
command = "npx"
args = ["-y", "a"]
cwd = "/x"
env = { "A" = "1" }
env_vars = ["B", { name = "C", source = "local" }, { name = "D", source = "remote" }]
startup_timeout_sec = 20.5
tool_timeout_sec = 30
enabled_tools = ["x"]
disabled_tools = ["y"]
required = true
[mcp_servers.remote]
url = "https://h/mcp"
bearer_token_env_var = "TOKEN"
http_headers = { X = "1" }
env_http_headers = { Y = "YVAR" }
startup_timeout_ms = 1500
enabled = false
""",
    )
    local, remote = parsed.entries
    assert (texts(local.env), local.copied_env) == ({"A": "1"}, ("B", "C"))
    assert (local.start_timeout_s, local.request_timeout_s) == (20.5, 30.0)
    assert (local.allow_tools, local.deny_tools) == (("x",), ("y",))
    assert local.warnings == ("the variable D would come from a remote environment; it was left out",)
    assert set(remote.headers) == {"X", "Y", "Authorization"}
    assert remote.headers["Authorization"].written() == "Bearer ${TOKEN}"
    assert (remote.start_timeout_s, remote.disabled_because) == (1.5, 'switched off by "enabled"')
    assert remote.origin.line == 14


def test_zed_old_and_new_commands_and_extensions() -> None:
    """Ours: https://zed.dev/docs/ai/mcp, and the object form of earlier versions."""
    parsed = read(
        "zed",
        """{ "theme": "One", "context_servers": {
          "new": {"source": "custom", "enabled": false, "command": "c", "args": ["a"], "env": {}, "timeout": 90},
          "old": {"command": {"path": "c", "args": ["a"], "env": {"K": "v"}}, "settings": {}},
          "http": {"url": "https://h/mcp", "headers": {"A": "b"}},
          "ext": {"source": "extension", "settings": {"k": "v"}},
        } }""",
    )
    new, old, http = parsed.entries
    assert (new.disabled, new.request_timeout_s) == (True, 90.0)
    assert (text(old.command), [text(a) for a in old.args], texts(old.env)) == ("c", ["a"], {"K": "v"})
    assert http.transport == "auto-http"
    (ext,) = parsed.ignored
    assert (ext.is_error, ext.reason) == (False, "is started by a Zed extension, which alone knows the command")


def test_goose() -> None:
    """Ours: crates/goose/src/agents/extension.rs; headers take variables from the extension's own envs first."""
    parsed = read(
        "goose",
        """
GOOSE_MODEL: x
extensions:
  developer: {type: builtin, name: developer, enabled: true, bundled: true, timeout: 300}
  todo: {type: platform, name: todo, enabled: true}
  local: {type: stdio, name: local, cmd: uvx, args: [x], envs: {A: b}, env_keys: [SECRET], enabled: true, timeout: 120, available_tools: []}
  web: {type: streamable_http, uri: "https://h/mcp", envs: {T: abc}, env_keys: [U], headers: {X: "$T-${U}"},
        enabled: false, available_tools: [a]}
""",
    )
    local, web = parsed.entries
    assert (texts(local.env), local.allow_tools, local.request_timeout_s) == (
        {"A": "b", "SECRET": "${SECRET}"},
        None,
        120.0,
    )
    assert (web.transport, web.disabled, web.allow_tools, web.headers["X"].written()) == (
        "http",
        True,
        ("a",),
        "$T-${U}",
    )
    assert texts(web.env) == {"T": "abc", "U": "${U}"}
    assert [(ignored.name, ignored.is_error) for ignored in parsed.ignored] == [("developer", False), ("todo", False)]
    assert (local.warnings, web.warnings) == ((), ())


def test_librechat_reads_an_untyped_url_as_sse() -> None:
    """Ours: packages/data-provider/src/mcp.ts."""
    parsed = read(
        "librechat",
        """
version: 1.2.1
mcpServers:
  everything:
    url: http://localhost:3001/sse
  web:
    type: streamable-http
    url: https://h/mcp
    timeout: 60000
    initTimeout: 10000
    headers: {X-User: "{{LIBRECHAT_USER_ID}}", X-Key: "${KEY}"}
    serverInstructions: true
  ws: {type: websocket, url: "ws://h"}
""",
    )
    everything, web = parsed.entries
    assert everything.transport == "sse"
    assert (web.transport, web.request_timeout_s, web.start_timeout_s) == ("http", 60.0, 10.0)
    assert "WebSocket" in parsed.ignored[0].reason


def test_opencode() -> None:
    """Ours: https://opencode.ai/docs/mcp-servers; the command is a list, variables are called environment."""
    parsed = read(
        "opencode",
        """{ "$schema": "https://opencode.ai/config.json", "mcp": {
            "a": {"type": "local", "command": ["npx", "-y", "x"], "environment": {"K": "{env:K}"}, "enabled": false, "timeout": 5000},
            "b": {"type": "remote", "url": "https://h/mcp", "headers": {"A": "{file:~/.key}"}, "oauth": {}}, }, }""",
    )
    a, b = parsed.entries
    assert (text(a.command), [text(x) for x in a.args], a.disabled, a.start_timeout_s) == (
        "npx",
        ["-y", "x"],
        True,
        5.0,
    )
    assert b.transport == "auto-http"
    assert [reference.kind for reference in b.headers["A"].references()] == ["file"]
    assert (a.warnings, b.warnings) == ((), ())


def test_continue_keeps_servers_in_an_array() -> None:
    """Ours: docs/reference.mdx and packages/config-yaml."""
    parsed = read(
        "continue",
        """
name: My Config
mcpServers:
  - name: SQLite
    command: uvx
    args: [mcp-sqlite]
    cwd: /x
    env: {K: "${{ secrets.K }}"}
    connectionTimeout: 8000
  - name: Linear
    type: sse
    url: https://h/sse
    apiKey: ${{ secrets.T }}
  - name: Web
    type: streamable-http
    url: https://h/mcp
    requestOptions: {headers: {A: b}, verifySsl: false}
""",
    )
    sqlite, linear, web = parsed.entries
    assert (sqlite.key, sqlite.start_timeout_s, sqlite.origin.pointer) == ("sqlite", 8.0, "/mcpServers/0")
    assert (linear.transport, linear.headers["Authorization"].canonical) == ("sse", "Bearer ${env:T}")
    assert (web.transport, texts(web.headers)) == ("http", {"A": "b"})
    assert not any(entry.warnings for entry in parsed.entries)


def test_cline_flat_and_nested_and_an_untyped_url_is_sse() -> None:
    """Ours: docs/mcp/mcp-overview.mdx and sdk/packages/core/src/extensions/mcp/config-loader.ts."""
    parsed = read(
        "cline",
        {
            "mcpServers": {
                "a": {"command": "c", "autoApprove": ["x"], "disabled": False, "timeout": 60},
                "b": {"url": "https://h/x"},
                "c": {"type": "streamableHttp", "url": "https://h/x"},
                "d": {
                    "transport": {"type": "streamableHttp", "url": "https://h/y", "headers": {"A": "b"}},
                    "disabled": True,
                },
                "e": {"transportType": "http", "url": "https://h/z"},
            }
        },
    )
    assert [entry.transport for entry in parsed.entries] == ["stdio", "sse", "http", "http", "http"]
    a, _, _, d, _ = parsed.entries
    assert (a.request_timeout_s, a.allow_tools) == (60.0, None), (
        "autoApprove spares a question, it does not narrow anything"
    )
    assert (d.disabled, texts(d.headers)) == (True, {"A": "b"})


def test_amazon_q_and_kiro() -> None:
    """Ours: custom_tool.rs and https://kiro.dev/docs/mcp/configuration."""
    q = server(
        "amazon-q", {"type": "http", "url": "https://h/mcp", "timeout": 120000, "disabled": True, "oauthScopes": []}
    )
    assert (q.transport, q.request_timeout_s, q.disabled) == ("http", 120.0, True)
    kiro = server(
        "kiro",
        {
            "command": "c",
            "args": [],
            "env": {"K": "${K}"},
            "disabled": False,
            "autoApprove": ["*"],
            "disabledTools": ["x"],
        },
    )
    assert (kiro.deny_tools, kiro.allow_tools, kiro.warnings) == (("x",), None, ())


# ---- containers -------------------------------------------------------------------------------------------------------------------

SERVER = {"command": "c"}


@pytest.mark.parametrize(
    "content",
    [
        {"mcpServers": {"s": SERVER}},
        {"servers": {"s": SERVER}},
        {"mcp": {"servers": {"s": SERVER}}},
        {"mcp.servers": {"s": SERVER}},
        {"mcp": {"s": SERVER}},
        {"context_servers": {"s": SERVER}},
        {"mcp_servers": {"s": SERVER}},
        {"extensions": {"s": SERVER}},
        {"mcpServers": [{"name": "s", **SERVER}]},
        [{"name": "s", **SERVER}],
        {"s": SERVER},
        {"$schema": "x", "s": SERVER},
    ],
)
def test_a_plain_file_may_keep_its_servers_under_any_known_key(content: Any) -> None:
    """Case 46: the same server, in every place where clients keep it."""
    entry = one("plain", content)
    assert (entry.name, text(entry.command)) == ("s", "c")


def test_a_file_that_is_one_server_is_called_like_the_file() -> None:
    """Ours: as in Continue's folder of servers."""
    file = describe_file("/x/sqlite.json", linux())
    (entry,) = read_config(b'{"command": "c"}', file).entries
    assert (entry.name, entry.origin.pointer) == ("sqlite", "")


def test_a_file_with_none_of_the_keys_says_which_it_has() -> None:
    """Case 46: `no servers` alone helps nobody."""
    (problem,) = read("plain", {"tools": {"s": "x"}, "other": 1}).problems
    assert problem.severity == "warning"
    assert "tools, other" in problem.message
    assert "mcpServers" in problem.message


@pytest.mark.parametrize("content", [{"mcpServers": {"s": SERVER}}, {"s": SERVER}])
def test_a_clients_file_with_another_clients_key_is_read_with_a_warning(content: Any) -> None:
    """Case 46: a snippet for Claude pasted into VS Code's file, which VS Code itself would not see."""
    parsed = read("vscode", content)
    assert [entry.name for entry in parsed.entries] == ["s"]
    assert "VS Code looks for servers under servers" in parsed.problems[0].message


def test_settings_without_servers_are_not_a_problem() -> None:
    """Ours: most settings files have none."""
    for client in ("gemini-cli", "zed", "vscode-settings", "claude-desktop"):
        assert read(client, {"some": {"command": "x"}, "url": "y"}) == ParsedConfig()


def test_an_empty_container_and_an_empty_file() -> None:
    """Case 45: nothing configured is not the same as nothing readable."""
    assert read("cursor", {"mcpServers": {}}) == ParsedConfig()
    assert read("librechat", "mcpServers:\n") == ParsedConfig()
    (problem,) = read("cursor", "").problems
    assert (problem.severity, problem.message) == ("warning", "the file is empty")


@pytest.mark.parametrize("content", ["3", '"x"', '{"mcpServers": 3}', '{"mcpServers": "x"}'])
def test_a_container_that_is_none_is_an_error(content: str) -> None:
    """Ours: never taken for an empty one."""
    parsed = read("cursor", content)
    assert parsed.entries == ()
    assert [problem.severity for problem in parsed.problems] == ["error"]


def test_a_broken_file_is_an_error_with_its_position() -> None:
    """Case 44: file, line and column."""
    with pytest.raises(ConfigError) as caught:
        read("cursor", '{"mcpServers": {\n  "s": {"command": "c"}\n  "t": {}\n}}')
    assert caught.value.source == "/home/u/.cursor/mcp.json:3:3"


def test_a_name_that_occurs_twice_is_said() -> None:
    """Ours: JSON keeps the last one; the user should know."""
    parsed = read("cursor", '{"mcpServers": {"s": {"command": "a"},\n "s": {"command": "b"}}}')
    assert [text(entry.command) for entry in parsed.entries] == ["b"]
    (problem,) = parsed.problems
    assert (problem.severity, problem.source) == ("warning", "/home/u/.cursor/mcp.json:2")
    assert "mcpServers / s occurs twice" in problem.message


# ---- entries ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spelling", ["http", "streamableHttp", "streamable-http", "streamable_http", "Streamable HTTP", "HTTP"]
)
def test_all_spellings_of_streamable_http_are_one_transport(spelling: str) -> None:
    """Case 47."""
    assert server("plain", {"url": "http://h/mcp", "type": spelling}).transport == "http"


def test_a_url_without_a_type_is_http_first() -> None:
    """Case 47: Streamable HTTP, then the older transport. Spec: 2026-07-28 basic/transports/streamable-http#http-sse-transport."""
    assert server("plain", {"url": "http://h/mcp"}).transport == "auto-http"
    assert server("plain", {"url": "http://h/mcp", "type": "sse"}).transport == "sse"


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"url": "http://h", "command": "c"}, "has both a command and a URL"),
        ({}, 'has neither "command" nor "url"'),
        ({"command": ""}, "has neither"),
        ({"args": ["x"]}, "has neither"),
        ({"url": "http://h", "type": "htp"}, 'unknown type "htp", did you mean "http"'),
        ({"url": "http://h", "type": "carrier pigeon"}, "known are"),
        ({"url": "http://h", "type": 3}, "is not a string"),
        ({"url": "h/mcp"}, "has no http:// or https://"),
        ({"url": "unix:///tmp/x"}, 'starts with "unix:"'),
        ({"url": "ws://h"}, "is not an http or https URL"),
        ({"url": "http://h /x"}, "blanks or control characters"),
        ({"url": "http:///x"}, "names no host"),
        ({"url": "http://h:port"}, "has a port that is not a number"),
        ({"url": 3}, "is not a string"),
        ({"command": []}, "is an empty list"),
        ({"command": {"args": ["x"]}}, "has neither"),
        ({"command": "c", "args": "-y x"}, '"args" is not a list'),
        ({"command": "c", "args": [{}]}, "an argument is not a string"),
        ({"command": "c", "args": ["a\0b"]}, "NUL"),
        ({"command": "c", "env": ["A=b"]}, "is not an object of variables"),
        ({"command": "c", "env": {"A": ["b"]}}, "the variable A is not a string"),
        ({"url": "http://h", "headers": ["A: b"]}, "is not an object of headers"),
        ({"url": "http://h", "headers": {"A b": "c"}}, 'header name "A b" is not possible'),
        ({"url": "http://h", "headers": {"": "c"}}, "header name"),
        ({"command": "c", "includeTools": "x"}, "is not a list of names"),
        ("http://h", "is not an object"),
        (None, "is not an object"),
        (["c"], "is not an object"),
    ],
)
def test_what_makes_an_entry_unusable(entry: Any, reason: str) -> None:
    """Case 47, and ours: the entry alone is lost, with a reason the user can act on."""
    assert reason in refusal(entry)


@pytest.mark.parametrize("value", ["a\r\nHost: evil", "a\nb", "a\rb", "a\x00b", "a\x7fb"])
def test_a_header_value_with_a_line_break_is_refused_without_being_repeated(value: str) -> None:
    """Case 138."""
    reason = refusal({"url": "http://h", "headers": {"X": value}})
    assert "evil" not in reason
    assert "X" in reason
    assert "\n" not in reason


def test_a_key_that_means_nothing_is_said_with_what_was_meant() -> None:
    """Case 46: `transport` for type, `environment` for env."""
    entry = server("cursor", {"url": "http://h", "transport": "sse", "environment": {"A": "b"}, "comand": "x"})
    assert entry.transport == "auto-http"
    assert entry.env == {}
    assert entry.warnings == (
        'the key "transport" means nothing to Cursor; did you mean "type"?',
        'the key "environment" means nothing to Cursor; did you mean "env"?',
        'the key "comand" means nothing to Cursor; did you mean "command"?',
    )


def test_a_plain_file_may_use_any_clients_spelling_and_is_told_so() -> None:
    """Case 46: there is no client that would ignore it."""
    entry = server(
        "plain", {"httpUrl": "http://h/mcp", "environment": {}, "transport": "streamable-http", "timeout": 5}
    )
    assert (entry.transport, text(entry.url)) == ("http", "http://h/mcp")
    assert 'read "environment" as "env"' in entry.warnings
    assert any("timeout" in warning and "milliseconds" in warning for warning in entry.warnings)
    assert entry.request_timeout_s is None


def test_an_entry_without_a_command_names_the_misspelt_key() -> None:
    """Case 46: the reason and the cure in one sentence."""
    parsed = read("cursor", {"mcpServers": {"s": {"comand": "x"}}})
    assert parsed.ignored[0].reason == 'has neither "command" nor "url" ("comand" is there, which should be "command")'


def test_keys_that_are_comments_are_silent() -> None:
    """Ours: people comment in JSON by way of keys."""
    assert server("cursor", {"command": "c", "//": "x", "_note": "y", "$schema": "z"}).warnings == ()


@pytest.mark.parametrize(
    ("entry", "disabled"),
    [
        ({"disabled": True}, True),
        ({"disabled": False}, False),
        ({"enabled": False}, True),
        ({"enabled": True}, False),
        ({"disabled": "true"}, True),
        ({"enabled": "no"}, True),
        ({"disabled": None}, False),
    ],
)
@pytest.mark.parametrize("client", ["cursor", "claude-desktop", "plain", "kiro"])
def test_a_switched_off_server_is_off_whatever_its_client_documents(client: str, entry: Any, disabled: bool) -> None:
    """Ours: whoever writes it does not want the server started."""
    assert server(client, {"command": "c"} | entry).disabled is disabled


def test_scalars_that_are_no_strings_are_read_as_text() -> None:
    """Ours: YAML and hand-written JSON have numbers and booleans where strings belong."""
    entry = server("plain", {"command": "c", "args": [1, 1.5, True], "env": {"A": 1, "B": True, "C": None}})
    assert [text(argument) for argument in entry.args] == ["1", "1.5", "true"]
    assert texts(entry.env) == {"A": "1", "B": "true"}
    assert entry.warnings == (
        "an argument is a boolean; it was read as text",
        "the variable B is a boolean; it was read as text",
    )


def test_impossible_variable_names_are_left_out() -> None:
    """Ours: a process cannot be given them; the server can do without."""
    entry = server("plain", {"command": "c", "env": {"": "x", "A=B": "y", "OK": "z"}})
    assert texts(entry.env) == {"OK": "z"}
    assert len(entry.warnings) == 2


@pytest.mark.parametrize("value", [0, -1, "10s", "", "-1", True, []])
def test_a_timeout_that_is_no_positive_number_is_not_used(value: Any) -> None:
    """Ours: a limit of nothing would fail every request."""
    entry = server("cline", {"command": "c", "timeout": value})
    assert entry.request_timeout_s is None
    assert "timeout" in entry.warnings[0]


@pytest.mark.parametrize(
    ("client", "written", "seconds"),
    [("cline", 1e300, 86_400.0), ("windsurf", 5, None), ("amazon-q", 10**400, 86_400.0)],
)
def test_a_timeout_has_a_largest_value(client: str, written: float, seconds: float | None) -> None:
    """Ours: a day; numbers of any size are survived."""
    assert server(client, {"command": "c", "timeout": written}).request_timeout_s == seconds


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "\ud800"},
        {"command": "c", "args": ["\ud800"]},
        {"command": "c", "env": {"A": "\ud800"}},
        {"url": "http://h/\ud800"},
        {"url": "http://h", "headers": {"A": "\ud800"}},
        {"command": "c", "includeTools": ["\ud800"]},
    ],
)
def test_half_a_character_costs_the_entry(entry: Any) -> None:
    """Ours: JSON can spell a lone surrogate; nothing else can take it."""
    assert refusal(entry)
    assert server("plain", {"command": "c", "env": {"\ud800": "x"}}).env == {}
    named = read("plain", {"mcpServers": {"\ud800": {"command": "c"}}}).entries[0]
    assert SAFE.fullmatch(named.key)


def test_a_command_line_in_one_string_is_pointed_out() -> None:
    """Case 43: never split, never joined; said."""
    entry = server("cursor", {"command": "npx -y x"})
    assert text(entry.command) == "npx -y x"
    assert "started as one program" in entry.warnings[0]
    assert server("cursor", {"command": "C:\\Program Files\\x.exe"}).warnings == ()


def test_fields_that_do_not_fit_the_transport_are_pointed_out() -> None:
    """Ours: a type that contradicts the rest is not followed."""
    entry = server("cursor", {"type": "http", "command": "c", "headers": {"A": "b"}})
    assert entry.transport == "stdio"
    assert entry.warnings == (
        'the type "http" does not fit a command; it was not followed',
        '"headers" has no effect on a command',
    )
    assert server("cursor", {"type": "stdio", "url": "http://h", "args": []}).transport == "auto-http"


def test_a_foreign_placeholder_is_pointed_out() -> None:
    """Case 41: `${API_KEY}` in the file of a client that does not expand it."""
    entry = server("cursor", {"command": "c", "env": {"K": "${API_KEY}"}})
    assert "Cursor documents no such placeholder for API_KEY" in entry.warnings[0]
    assert server("kiro", {"command": "c", "env": {"K": "${API_KEY}"}}).warnings == ()


def test_layers_are_merged_where_the_client_merges_them() -> None:
    """Ours: opencode, Codex, Gemini CLI and Zed let a project change one field of a user's server."""
    file = file_of("opencode")
    beneath = {"s": {"type": "local", "command": ["c"], "environment": {"A": "1", "B": "1"}}}
    data = json.dumps({"mcp": {"s": {"enabled": False, "environment": {"B": "2"}}}}).encode()
    (entry,) = read_config(data, file, beneath=beneath).entries
    assert (text(entry.command), texts(entry.env), entry.disabled) == ("c", {"A": "1", "B": "2"}, True)
    (ignored,) = read_config(data.replace(b', "environment": {"B": "2"}', b""), file).ignored
    assert not ignored.is_error


def test_servers_in_code_are_entries_urls_or_commands() -> None:
    """Ours: Catalog({...}) takes what .mcp.json takes, and two short forms."""
    parsed = read_servers({"a": {"command": "c"}, "b": "https://h/mcp", "c": ["python", "s.py"], "d": 3})
    assert [entry.transport for entry in parsed.entries] == ["stdio", "auto-http", "stdio"]
    assert [text(argument) for argument in parsed.entries[2].args] == ["s.py"]
    assert {entry.origin.client for entry in parsed.entries} == {"code"}
    assert parsed.ignored[0].name == "d"


def test_an_entry_shows_no_value() -> None:
    """Ours: a traceback or a debug line prints reprs."""
    entry = server("cursor", {"url": "https://u:secret@h/mcp", "headers": {"A": "secret"}})
    assert "secret" not in repr(entry)
    assert "secret" not in str([entry])


# ---- keys -------------------------------------------------------------------------------------------------------------------------

SAFE = re.compile(r"[a-z0-9][a-z0-9_-]{0,47}")
AWKWARD = [
    "my server",
    "a.b",
    "../x",
    "日本",
    "",
    "CON",
    "nul",
    "x" * 200,
    "a\nb",
    "my-server",
    "my_server",
    "My Server",
    "/",
    "..",
    "é",
    "a b",
    "a-b",
]


def keys_of(*names: str) -> list[str]:
    return assign_keys([(name, "cursor") for name in names])


def test_names_that_are_keys_stay_as_they_are() -> None:
    """Ours: the common case is what the user wrote."""
    assert keys_of("github", "my-server", "my_server", "a1") == ["github", "my-server", "my_server", "a1"]
    assert keys_of("GitHub", "My Files", "a.b") == ["github", "my-files", "a-b"]


def test_awkward_names_become_safe_unique_keys() -> None:
    """Case 134."""
    keys = keys_of(*AWKWARD)
    assert len(set(keys)) == len(keys)
    assert all(SAFE.fullmatch(key) for key in keys)
    assert not {"con", "nul"} & set(keys)
    assert keys == keys_of(*AWKWARD)


def test_a_clash_costs_the_derived_names_their_plain_key() -> None:
    """Ours: what is a key already keeps it; the others get a digest, whatever the order."""
    assert keys_of("My Server", "my-server")[1] == "my-server"
    forward, backward = keys_of("My Server", "my server", "my-server"), keys_of("my-server", "my server", "My Server")
    assert forward == backward[::-1]


def test_servers_of_one_name_are_told_apart_by_their_client() -> None:
    """Ours: `github` in two clients, started differently."""
    assert assign_keys([("github", "cursor"), ("github", "vscode"), ("github", "vscode")]) == [
        "github",
        "github-vscode",
        "github-2",
    ]


@given(
    st.lists(
        st.tuples(
            st.text(max_size=60) | st.sampled_from(AWKWARD), st.sampled_from(["cursor", "vscode", "claude-desktop"])
        ),
        max_size=30,
    )
)
def test_any_names_become_safe_unique_keys(names: list[tuple[str, str]]) -> None:
    """Case 134: for every set of names, in every order."""
    keys = assign_keys(names)
    assert len(set(keys)) == len(names)
    assert all(SAFE.fullmatch(key) for key in keys)
    assert assign_keys(names) == keys


@given(st.lists(st.text(max_size=20), unique=True, max_size=12), st.randoms())
def test_keys_of_distinct_names_do_not_depend_on_order(names: list[str], random: Any) -> None:
    """Ours: the order of files decides nothing but which of two equal names comes first."""
    shuffled = list(names)
    random.shuffle(shuffled)
    assert dict(zip(shuffled, keys_of(*shuffled), strict=True)) == dict(zip(names, keys_of(*names), strict=True))


FIELDS = ["command", "args", "env", "url", "headers", "type", "transport", "timeout", "disabled", "cwd", "name", "x"]
plain_text = st.text(alphabet=st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=20)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | plain_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5),
    max_leaves=20,
)


@given(anything, st.sampled_from(sorted(FILES)))
def test_any_value_as_an_entry_is_an_entry_or_a_reason(value: Any, client: str) -> None:
    """Ours: whatever a file holds where a server is expected, one entry at most is lost."""
    file = file_of(client)
    if file.format == "toml":
        return
    container: Any = {"s": value, "good": {"command": "c", "cmd": "c"}}
    for key in reversed(file.containers[0]):
        container = {key: container}
    parsed = read_config(json.dumps(container).encode(), file)
    assert len(parsed.entries) + len(parsed.ignored) == 2
    assert "good" in {entry.name for entry in parsed.entries}
