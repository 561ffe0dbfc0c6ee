from __future__ import annotations

import pytest

from fakes.files import MemoryFiles, linux, macos, windows
from outrider.catalog.sources import CLIENTS, Surroundings, describe_file, find_config_files

LINUX = {
    "mcp-json": ["/home/u/p/.mcp.json"],
    "claude-code": [
        "/etc/claude-code/managed-mcp.json",
        "/home/u/.claude.json",
        "/home/u/p/.claude/settings.local.json",
        "/home/u/p/.claude/settings.json",
        "/home/u/.claude/settings.json",
    ],
    "claude-desktop": ["/home/u/.config/Claude/claude_desktop_config.json"],
    "vscode": [
        "/home/u/p/.vscode/mcp.json",
        "/home/u/p/.vscode/settings.json",
        "/home/u/.config/Code/User/mcp.json",
        "/home/u/.config/Code/User/settings.json",
        "/home/u/.config/Code - Insiders/User/mcp.json",
        "/home/u/.config/Code - Insiders/User/settings.json",
    ],
    "copilot": ["/home/u/p/.github/mcp.json", "/home/u/.copilot/mcp-config.json"],
    "cursor": ["/home/u/p/.cursor/mcp.json", "/home/u/.cursor/mcp.json"],
    "windsurf": ["/home/u/.codeium/windsurf/mcp_config.json", "/home/u/.codeium/mcp_config.json"],
    "gemini-cli": [
        "/etc/gemini-cli/settings.json",
        "/home/u/p/.gemini/settings.json",
        "/home/u/.gemini/settings.json",
        "/etc/gemini-cli/system-defaults.json",
        "/home/u/.gemini/mcp-server-enablement.json",
    ],
    "codex": ["/home/u/p/.codex/config.toml", "/home/u/.codex/config.toml", "/etc/codex/config.toml"],
    "zed": ["/home/u/p/.zed/settings.json", "/home/u/.config/zed/settings.json"],
    "goose": ["/home/u/.config/goose/config.yaml"],
    "librechat": ["/home/u/p/librechat.yaml"],
    "opencode": [
        "/etc/opencode/opencode.json*",
        "/home/u/.opencode/opencode.json",
        "/home/u/.opencode/opencode.jsonc",
        "/home/u/p/.opencode/opencode.json",
        "/home/u/p/.opencode/opencode.jsonc",
        "/home/u/p/opencode.json",
        "/home/u/p/opencode.jsonc",
        "/home/u/.config/opencode/opencode.json",
        "/home/u/.config/opencode/opencode.jsonc",
        "/home/u/.config/opencode/config.json",
    ],
    "continue": [
        "/home/u/p/.continue/mcpServers/*.yaml",
        "/home/u/p/.continue/mcpServers/*.yml",
        "/home/u/p/.continue/mcpServers/*.json",
        "/home/u/.continue/mcpServers/*.yaml",
        "/home/u/.continue/mcpServers/*.yml",
        "/home/u/.continue/mcpServers/*.json",
        "/home/u/.continue/config.yaml",
    ],
    "cline": [
        "/home/u/.cline/data/settings/cline_mcp_settings.json",
        "/home/u/.cline/mcp.json",
        "/home/u/.config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
    ],
    "amazon-q": [
        "/home/u/p/.amazonq/cli-agents/*.json",
        "/home/u/p/.amazonq/default.json",
        "/home/u/p/.amazonq/mcp.json",
        "/home/u/.aws/amazonq/cli-agents/*.json",
        "/home/u/.aws/amazonq/default.json",
        "/home/u/.aws/amazonq/mcp.json",
    ],
    "kiro": [
        "/home/u/p/.kiro/agents/*.json",
        "/home/u/p/.kiro/settings/mcp.json",
        "/home/u/.kiro/agents/*.json",
        "/home/u/.kiro/settings/mcp.json",
    ],
}

MACOS = {
    client: [path.replace("/home/u", "/Users/u") for path in paths] for client, paths in LINUX.items()
} | {
    "claude-code": [
        "/Library/Application Support/ClaudeCode/managed-mcp.json",
        "/Users/u/.claude.json",
        "/Users/u/p/.claude/settings.local.json",
        "/Users/u/p/.claude/settings.json",
        "/Users/u/.claude/settings.json",
    ],
    "claude-desktop": ["/Users/u/Library/Application Support/Claude/claude_desktop_config.json"],
    "vscode": [
        "/Users/u/p/.vscode/mcp.json",
        "/Users/u/p/.vscode/settings.json",
        "/Users/u/Library/Application Support/Code/User/mcp.json",
        "/Users/u/Library/Application Support/Code/User/settings.json",
        "/Users/u/Library/Application Support/Code - Insiders/User/mcp.json",
        "/Users/u/Library/Application Support/Code - Insiders/User/settings.json",
    ],
    "gemini-cli": [
        "/Library/Application Support/GeminiCli/settings.json",
        "/Users/u/p/.gemini/settings.json",
        "/Users/u/.gemini/settings.json",
        "/Library/Application Support/GeminiCli/system-defaults.json",
        "/Users/u/.gemini/mcp-server-enablement.json",
    ],
    "opencode": [
        "/Library/Application Support/opencode/opencode.json*",
        *[path.replace("/home/u", "/Users/u") for path in LINUX["opencode"][1:]],
    ],
    "cline": [
        "/Users/u/.cline/data/settings/cline_mcp_settings.json",
        "/Users/u/.cline/mcp.json",
        "/Users/u/Library/Application Support/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
    ],
}  # fmt: skip

ROAMING = r"C:\Users\u\AppData\Roaming"
WINDOWS = {
    client: [path.replace("/home/u", r"C:\Users\u").replace("/", "\\") for path in paths] for client, paths in LINUX.items()
} | {
    "claude-code": [
        r"C:\Program Files\ClaudeCode\managed-mcp.json",
        r"C:\Users\u\.claude.json",
        r"C:\Users\u\p\.claude\settings.local.json",
        r"C:\Users\u\p\.claude\settings.json",
        r"C:\Users\u\.claude\settings.json",
    ],
    "claude-desktop": [
        ROAMING + r"\Claude\claude_desktop_config.json",
        r"C:\Users\u\AppData\Local\Packages\Claude_pzs8sxrjxfjjc\LocalCache\Roaming\Claude\claude_desktop_config.json",
    ],
    "vscode": [
        r"C:\Users\u\p\.vscode\mcp.json",
        r"C:\Users\u\p\.vscode\settings.json",
        ROAMING + r"\Code\User\mcp.json",
        ROAMING + r"\Code\User\settings.json",
        ROAMING + r"\Code - Insiders\User\mcp.json",
        ROAMING + r"\Code - Insiders\User\settings.json",
    ],
    "gemini-cli": [
        r"C:\ProgramData\gemini-cli\settings.json",
        r"C:\Users\u\p\.gemini\settings.json",
        r"C:\Users\u\.gemini\settings.json",
        r"C:\ProgramData\gemini-cli\system-defaults.json",
        r"C:\Users\u\.gemini\mcp-server-enablement.json",
    ],
    "codex": [
        r"C:\Users\u\p\.codex\config.toml",
        r"C:\Users\u\.codex\config.toml",
        r"C:\ProgramData\OpenAI\Codex\config.toml",
    ],
    "zed": [r"C:\Users\u\p\.zed\settings.json", ROAMING + r"\Zed\settings.json"],
    "goose": [ROAMING + r"\Block\goose\config\config.yaml"],
    "opencode": [
        r"C:\ProgramData\opencode\opencode.json*",
        *[path.replace("/home/u", r"C:\Users\u").replace("/", "\\") for path in LINUX["opencode"][1:]],
    ],
    "cline": [
        r"C:\Users\u\.cline\data\settings\cline_mcp_settings.json",
        r"C:\Users\u\.cline\mcp.json",
        ROAMING + r"\Code\User\globalStorage\saoudrizwan.claude-dev\settings\cline_mcp_settings.json",
    ],
}  # fmt: skip


def paths(where: Surroundings, client: str) -> list[str]:
    return [file.path for file in find_config_files(where, clients=[client])]


@pytest.mark.parametrize("client", [client.id for client in CLIENTS])
def test_every_client_has_its_documented_places_on_every_platform(client: str) -> None:
    """Ours: the places that docs/config.md names, on the three platforms, from one machine."""
    assert paths(linux(), client) == LINUX[client]
    assert paths(macos(), client) == MACOS[client]
    assert paths(windows(), client) == WINDOWS[client]


@pytest.mark.parametrize(
    ("client", "variable", "value", "expected"),
    [
        ("codex", "CODEX_HOME", "/x", "/x/config.toml"),
        ("gemini-cli", "GEMINI_CLI_HOME", "/x", "/x/.gemini/settings.json"),
        ("goose", "GOOSE_PATH_ROOT", "/x", "/x/config/config.yaml"),
        ("goose", "XDG_CONFIG_HOME", "/x", "/x/goose/config.yaml"),
        ("zed", "XDG_CONFIG_HOME", "/x", "/x/zed/settings.json"),
        ("zed", "FLATPAK_XDG_CONFIG_HOME", "/x", "/x/zed/settings.json"),
        ("vscode", "XDG_CONFIG_HOME", "/x", "/x/Code/User/mcp.json"),
        ("opencode", "XDG_CONFIG_HOME", "/x", "/x/opencode/opencode.json"),
        ("opencode", "OPENCODE_CONFIG", "/x/y.json", "/x/y.json"),
        ("continue", "CONTINUE_GLOBAL_DIR", "/x", "/x/config.yaml"),
        ("cline", "CLINE_DIR", "/x", "/x/data/settings/cline_mcp_settings.json"),
        ("cline", "CLINE_DATA_DIR", "/x", "/x/settings/cline_mcp_settings.json"),
        ("cline", "CLINE_MCP_SETTINGS_PATH", "/x/y.json", "/x/y.json"),
        ("librechat", "CONFIG_PATH", "conf/l.yaml", "/home/u/p/conf/l.yaml"),
    ],
)
def test_variables_move_the_files_of_their_clients(client: str, variable: str, value: str, expected: str) -> None:
    """Ours: the variables that the clients themselves obey."""
    assert expected in paths(linux(**{variable: value}), client)


def test_windows_falls_back_to_the_usual_folder_without_appdata() -> None:
    """Ours: a service or a stripped environment lacks APPDATA."""
    where = Surroundings(home=r"C:\Users\u", cwd=r"C:\w", platform="windows", env={}, files=MemoryFiles({}, "\\"))
    assert ROAMING + r"\Zed\settings.json" in paths(where, "zed")


def test_project_files_are_looked_for_up_to_the_repository() -> None:
    """Ours: from a folder inside a project, the nearest file first; never above the repository."""
    files = MemoryFiles({"/home/u/p/.git/HEAD": ""})
    where = Surroundings(home="/home/u", cwd="/home/u/p/a/b", platform="linux", env={}, files=files)
    assert where.projects() == ("/home/u/p/a/b", "/home/u/p/a", "/home/u/p")
    found = find_config_files(where, clients=["mcp-json"])
    assert [(file.path, file.workspace) for file in found] == [
        ("/home/u/p/a/b/.mcp.json", "/home/u/p/a/b"),
        ("/home/u/p/a/.mcp.json", "/home/u/p/a"),
        ("/home/u/p/.mcp.json", "/home/u/p"),
    ]
    outside = Surroundings(home="/home/u", cwd="/home/u/a/b", platform="linux", env={}, files=MemoryFiles({}))
    assert outside.projects() == ("/home/u/a/b",)


def test_a_place_that_is_a_pattern_becomes_the_files_that_are_there() -> None:
    """Ours: Continue keeps one file per server, Amazon Q one per agent."""
    where = linux(
        {
            "/home/u/.continue/mcpServers/b.yaml": "",
            "/home/u/.continue/mcpServers/a.yaml": "",
            "/home/u/.continue/mcpServers/x.txt": "",
        }
    )
    assert paths(where, "continue")[3:5] == [
        "/home/u/.continue/mcpServers/a.yaml",
        "/home/u/.continue/mcpServers/b.yaml",
    ]


def test_one_path_is_listed_once() -> None:
    """Ours: in the home folder, user and project files are the same files."""
    where = Surroundings(home="/home/u", cwd="/home/u", platform="linux", env={}, files=MemoryFiles({}))
    every = [file.path for file in find_config_files(where)]
    assert len(every) == len(set(every))
    assert every.count("/home/u/.cursor/mcp.json") == 1


def test_finding_is_a_function_of_the_surroundings() -> None:
    """Ours: same inputs, same list, same order."""
    assert find_config_files(linux()) == find_config_files(linux())
    assert len({file.path for file in find_config_files(linux())}) == sum(map(len, LINUX.values()))


@pytest.mark.parametrize(
    ("path", "client", "workspace"),
    [
        ("/x/y/.cursor/mcp.json", "cursor", "/x/y"),
        ("/x/y/.vscode/mcp.json", "vscode", "/x/y"),
        ("/x/y/.mcp.json", "mcp-json", "/x/y"),
        ("/x/y/.codex/config.toml", "codex", "/x/y"),
        ("/x/.kiro/settings/mcp.json", "kiro", "/x"),
        ("/x/claude_desktop_config.json", "claude-desktop", "/home/u/p"),
        ("/x/Claude/claude_desktop_config.json", "claude-desktop", "/home/u/p"),
        ("/home/u/.config/goose/config.yaml", "goose", "/home/u/p"),
        ("/x/cline_mcp_settings.json", "cline", "/home/u/p"),
        ("sub/opencode.jsonc", "opencode", "/home/u/p/sub"),
        ("mcp.json", "plain", "/home/u/p"),
        ("servers.toml", "plain", "/home/u/p"),
    ],
)
def test_a_named_file_is_read_as_its_clients(path: str, client: str, workspace: str) -> None:
    """Ours: --config takes any client's file, wherever it lies."""
    file = describe_file(path, linux())
    assert (file.client, file.level, file.workspace) == (client, "given", workspace)
    assert file.path.startswith("/")


def test_a_plain_files_format_follows_its_ending() -> None:
    """Ours: .toml, .yaml and .yml; everything else is JSON with comments."""
    formats = [describe_file(name, linux()).format for name in ("a.toml", "a.YAML", "a.yml", "a.json", "a.jsonc", "a")]
    assert formats == ["toml", "yaml", "yaml", "json", "json", "json"]


def test_a_named_file_on_windows_has_windows_paths() -> None:
    """Ours: both slashes are understood there."""
    file = describe_file("sub/.cursor/mcp.json", windows())
    assert (file.path, file.client, file.workspace) == (
        r"C:\Users\u\p\sub\.cursor\mcp.json",
        "cursor",
        r"C:\Users\u\p\sub",
    )
