"""The clients whose config files Outrider reads: one table row each.

Decided here: for every client the places of its files, the key the servers are under, how each field is spelt and in which unit, its
placeholder dialect, and what a bare `url` means; each row names where that is documented. Not here: which of the places exist on
this machine (`places`), how a value is read (`entries`), how a placeholder is filled in (`placeholders`).

To add a client, add a row, and a base to `places` if its files lie somewhere new. `docs/config.md` shows the same table to users, and
a test compares the two. Pure data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from outrider.catalog.sources.documents import Format
from outrider.catalog.sources.placeholders import Dialect, Form

__all__ = [
    "BY_ID",
    "CLIENTS",
    "NARROWING",
    "PLAIN",
    "PLAIN_CONTAINERS",
    "Client",
    "Level",
    "Meaning",
    "Place",
    "Platform",
    "Switch",
]

Platform = Literal["linux", "macos", "windows"]

Level = Literal["given", "local", "project", "user", "system"]
"""Who a file speaks for: named by the caller, this user in this project, everybody in this project, this user, this machine."""

Meaning = Literal[
    "command", "args", "env", "env_names", "env_keys", "env_file", "cwd", "url", "http_url", "headers", "header_variables",
    "bearer", "bearer_variable", "type", "disabled", "enabled", "allow", "deny", "start_s", "start_ms", "request_s", "request_ms",
    "transport", "request_options", "kept",
]  # fmt: skip
"""What a field is for. `env_names` copies variables that are set, `env_keys` needs them; `header_variables` maps header to variable;
`transport` and `request_options` are objects around further fields; `kept` is known and means nothing to Outrider."""

ALL_PLATFORMS: Final[tuple[Platform, ...]] = ("linux", "macos", "windows")
UNIX: Final[tuple[Platform, ...]] = ("linux", "macos")


class Switch(msgspec.Struct, frozen=True):
    """A place in a file that switches servers on and off by name.

    Attributes:
        path: the keys that lead to it; "{project}" stands for the path of the current project.
        kind: "allowed" a list of the only names to use, "excluded" a list of names not to use, "states" an object of names, each with an
            object in which `enabled` is false if it is not to be used.
        only: id of the row whose servers it is about, or "" for all of the family.
    """

    path: tuple[str, ...]
    kind: Literal["allowed", "excluded", "states"]
    only: str = ""


class Place(msgspec.Struct, frozen=True):
    """Where a file of a client can lie.

    Attributes:
        level: who the file speaks for.
        path: with "/" between folders; starts with a base of `places` or "{project}"; the last part may be a pattern.
        containers: the keys that lead to the servers, outermost first; "{project}" stands for the path of the current project. () if
            the file only switches servers that stand elsewhere.
        platforms: where the place exists.
        shared: the file holds other settings too, so servers may be absent from it and other keys mean something else.
        format: how it is written, or None for the client's usual format.
        switches: what in it switches servers on and off by name.
        rules: its servers win over those of the same name in every other file of the family.
    """

    level: Level
    path: str
    containers: tuple[tuple[str, ...], ...] = (("mcpServers",),)
    platforms: tuple[Platform, ...] = ALL_PLATFORMS
    shared: bool = False
    format: Format | None = None
    switches: tuple[Switch, ...] = ()
    rules: bool = False


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table.

    Attributes:
        id: stable, lower case.
        title: the name people know.
        places: most specific first; where two files of this client define a server of the same name, the earlier place wins.
        fields: spelling in the file to meaning.
        dialect: the documented placeholder forms.
        untyped_url: what a `url` without a type means to this client.
        typed_http: what type "http" means: exactly that, or HTTP with a fall-back to SSE.
        layered: entries of the same name in several files are merged field by field, not replaced.
        family: rows of one family are one client to the user: in their files too, the first entry of a name replaces the others.
        folded_names: in switches, names are compared without case.
        documented: where the facts of the row come from.
        unconfirmed: what in the row no documentation was found for.
    """

    id: str
    title: str
    places: tuple[Place, ...]
    fields: Mapping[str, Meaning]
    documented: tuple[str, ...]
    format: Format = "json"
    dialect: Dialect = frozenset()
    untyped_url: Literal["auto-http", "sse"] = "auto-http"
    typed_http: Literal["auto-http", "http"] = "http"
    layered: bool = False
    family: str = ""
    folded_names: bool = False
    unconfirmed: tuple[str, ...] = ()


def _fields(*same: str, **spelt: Meaning) -> dict[str, Meaning]:
    """The six fields that nearly everybody spells alike, those of `same` that are known but unused, and those of `spelt`."""
    usual: tuple[Meaning, ...] = ("command", "args", "env", "url", "headers", "type")
    kept: dict[str, Meaning] = dict.fromkeys(same, "kept")
    return {meaning: meaning for meaning in usual} | kept | spelt


def _dialect(*forms: Form) -> Dialect:
    return frozenset(forms)


_VSCODE_SETTINGS: Final = (("mcp", "servers"),)
_OPENCODE: Final = (("mcp",),)
_CODEX: Final = (("mcp_servers",),)
_CLAUDE_REJECTED: Final = (Switch(("disabledMcpjsonServers",), "excluded", only="mcp-json"),)
_CLAUDE_PROJECT: Final = (
    Switch(("projects", "{project}", "disabledMcpServers"), "excluded"),
    Switch(("projects", "{project}", "disabledMcpjsonServers"), "excluded", only="mcp-json"),
)
_GEMINI: Final = (Switch(("mcp", "allowed"), "allowed"), Switch(("mcp", "excluded"), "excluded"))
_Q_AGENT: Final = "aws/amazon-q-developer-cli docs/agent-format.md, docs/agent-file-locations.md"

CLIENTS: Final[tuple[Client, ...]] = (
    Client(
        id="mcp-json",
        title=".mcp.json",
        family="claude-code",
        places=(Place("project", "{project}/.mcp.json"),),
        fields=_fields("headersHelper", "oauth", "alwaysLoad", timeout="request_ms"),
        dialect=_dialect("braced", "default"),
        documented=("https://code.claude.com/docs/en/mcp (project scope, environment variable expansion, timeout)",),
        unconfirmed=("headersHelper and alwaysLoad are known from reports only; they are not acted on",),
    ),
    Client(
        id="claude-code",
        title="Claude Code",
        places=(
            Place("system", "/Library/Application Support/ClaudeCode/managed-mcp.json", platforms=("macos",), rules=True),
            Place("system", "C:/Program Files/ClaudeCode/managed-mcp.json", platforms=("windows",), rules=True),
            Place("system", "/etc/claude-code/managed-mcp.json", platforms=("linux",), rules=True),
            Place(
                "user", "{claude-home}/.claude.json", (("mcpServers",), ("projects", "{project}", "mcpServers")),
                shared=True, switches=_CLAUDE_PROJECT,
            ),
            Place("project", "{project}/.claude/settings.local.json", (), shared=True, switches=_CLAUDE_REJECTED),
            Place("project", "{project}/.claude/settings.json", (), shared=True, switches=_CLAUDE_REJECTED),
            Place("user", "{claude}/settings.json", (), shared=True, switches=_CLAUDE_REJECTED),
        ),
        fields=_fields("headersHelper", "oauth", "alwaysLoad", timeout="request_ms"),
        dialect=_dialect("braced", "default"),
        documented=(
            "https://code.claude.com/docs/en/mcp (scopes, environment variable expansion, timeout, managed-mcp.json)",
            "https://code.claude.com/docs/en/settings (disabledMcpjsonServers, CLAUDE_CONFIG_DIR)",
        ),
        unconfirmed=(
            "disabledMcpServers, which the client's own dialog writes, is known from files in use",
            "that managed servers are the only ones there, and lists of allowed and denied servers, are not acted on",
        ),
    ),
    Client(
        id="claude-desktop",
        title="Claude Desktop",
        places=(
            Place("user", "{appsupport}/Claude/claude_desktop_config.json", platforms=("macos",), shared=True),
            Place("user", "{appdata}/Claude/claude_desktop_config.json", platforms=("windows",), shared=True),
            Place("user", "{claude-store}/Claude/claude_desktop_config.json", platforms=("windows",), shared=True),
            Place("user", "{config}/Claude/claude_desktop_config.json", platforms=("linux",), shared=True),
        ),
        fields=_fields(),
        documented=("https://modelcontextprotocol.io/docs/develop/build-server (file, command, args, env; macOS and Windows)",),
        unconfirmed=(
            "the place on Linux, for which there is no official build", "the place of the packaged app on Windows, known from reports",
            "url and headers in this file",
        ),
    ),
    Client(
        id="vscode",
        title="VS Code",
        places=(
            Place("project", "{project}/.vscode/mcp.json", (("servers",),)),
            Place("project", "{project}/.vscode/settings.json", _VSCODE_SETTINGS, shared=True),
            Place("user", "{vscode}/mcp.json", (("servers",),)),
            Place("user", "{vscode}/settings.json", _VSCODE_SETTINGS, shared=True),
            Place("user", "{vscode-insiders}/mcp.json", (("servers",),)),
            Place("user", "{vscode-insiders}/settings.json", _VSCODE_SETTINGS, shared=True),
        ),
        fields=_fields("dev", "sandbox", "sandboxEnabled", "gallery", "version", "oauth", cwd="cwd", envFile="env_file"),
        dialect=_dialect("env", "places"),
        typed_http="auto-http",
        documented=(
            "microsoft/vscode-docs docs/agents/reference/mcp-configuration.md, docs/reference/variables-reference.md",
            "microsoft/vscode src/vs/workbench/contrib/mcp/common/mcpConfiguration.ts (cwd, env values, settings.json section)",
        ),
        unconfirmed=("gallery, version and oauth are known from files in use; they are not acted on",),
    ),
    Client(
        id="copilot",
        title="GitHub Copilot CLI",
        places=(Place("project", "{project}/.github/mcp.json"), Place("user", "{copilot}/mcp-config.json")),
        fields=_fields(cwd="cwd", tools="allow", timeout="request_ms"),
        dialect=_dialect("braced", "default"),
        documented=(
            "https://docs.github.com/en/copilot/how-tos/copilot-cli/customize-copilot/add-mcp-servers (files, tools)",
            "https://code.visualstudio.com/docs/agents/reference/mcp-configuration (the portable format, COPILOT_HOME)",
        ),
        unconfirmed=("placeholders, and that timeout limits a request",),
    ),
    Client(
        id="cursor",
        title="Cursor",
        places=(Place("project", "{project}/.cursor/mcp.json"), Place("user", "{home}/.cursor/mcp.json")),
        fields=_fields("auth", envFile="env_file"),
        dialect=_dialect("env", "places"),
        documented=("https://cursor.com/docs/mcp (files, fields, config interpolation)",),
        unconfirmed=("the auth object is not acted on", "${workspaceFolderBasename} and ${pathSeparator} are taken over from VS Code"),
    ),
    Client(
        id="windsurf",
        title="Windsurf",
        places=(
            Place("user", "{home}/.codeium/windsurf/mcp_config.json"),
            Place("user", "{home}/.codeium/mcp_config.json"),
        ),
        fields=_fields("registry", serverUrl="url"),
        dialect=_dialect("env", "dollar-file"),
        documented=("https://docs.windsurf.com/windsurf/cascade/mcp, https://docs.windsurf.com/plugins/cascade/mcp",),
        unconfirmed=("${file:…} is known from a secondary source only",),
    ),
    Client(
        id="gemini-cli",
        title="Gemini CLI",
        places=(
            Place("system", "{gemini-system}", shared=True, switches=_GEMINI),
            Place("project", "{project}/.gemini/settings.json", shared=True, switches=_GEMINI),
            Place("user", "{gemini}/.gemini/settings.json", shared=True, switches=_GEMINI),
            Place("system", "{gemini-defaults}", shared=True, switches=_GEMINI),
            Place("user", "{gemini}/.gemini/mcp-server-enablement.json", (), shared=True, switches=(Switch((), "states"),)),
        ),
        fields=_fields(
            "trust", "description", "oauth", "authProviderType", "targetAudience", "targetServiceAccount", "extension", "tcp",
            cwd="cwd", httpUrl="http_url", timeout="request_ms", includeTools="allow", excludeTools="deny",
        ),
        dialect=_dialect("braced", "default", "bare", "percent"),
        layered=True,
        folded_names=True,
        documented=(
            "google-gemini/gemini-cli docs/tools/mcp-server.md, docs/reference/configuration.md (url is documented as SSE)",
            "google-gemini/gemini-cli packages/core/src/tools/mcp-client.ts (a url without type tries HTTP, then SSE)",
            "google-gemini/gemini-cli packages/cli/src/config/settings.ts (system files), src/config/mcp/mcpServerEnablement.ts (switches)",
        ),
    ),
    Client(
        id="codex",
        title="Codex",
        format="toml",
        places=(
            Place("project", "{project}/.codex/config.toml", _CODEX, shared=True),
            Place("user", "{codex}/config.toml", _CODEX, shared=True),
            Place("system", "/etc/codex/config.toml", _CODEX, platforms=UNIX, shared=True),
            Place("system", "{programdata}/OpenAI/Codex/config.toml", _CODEX, platforms=("windows",), shared=True),
        ),
        fields={
            "command": "command", "args": "args", "env": "env", "env_vars": "env_names", "cwd": "cwd", "url": "url",
            "http_headers": "headers", "env_http_headers": "header_variables", "bearer_token_env_var": "bearer_variable",
            "enabled": "enabled", "enabled_tools": "allow", "disabled_tools": "deny", "startup_timeout_sec": "start_s",
            "startup_timeout_ms": "start_ms", "tool_timeout_sec": "request_s", "required": "kept", "scopes": "kept", "oauth": "kept",
            "oauth_resource": "kept", "name": "kept", "tools": "kept", "default_tools_approval_mode": "kept",
            "supports_parallel_tool_calls": "kept", "experimental_environment": "kept",
        },
        layered=True,
        documented=(
            "openai/codex docs/config.md, codex-rs/config/src/mcp_types.rs, src/loader/mod.rs (system files)",
            "https://developers.openai.com/codex/config-basic (layers; a project's file counts in trusted projects)",
        ),
    ),
    Client(
        id="zed",
        title="Zed",
        places=(
            Place("project", "{project}/.zed/settings.json", (("context_servers",),), shared=True),
            Place("user", "{zed}/settings.json", (("context_servers",),), shared=True),
        ),
        fields=_fields("source", "settings", "remote", "oauth", enabled="enabled", timeout="request_s"),
        layered=True,
        documented=(
            "https://zed.dev/docs/ai/mcp",
            "zed-industries/zed crates/settings_content/src/project.rs (fields, seconds), crates/paths/src/paths.rs (places)",
        ),
    ),
    Client(
        id="goose",
        title="Goose",
        format="yaml",
        places=(Place("user", "{goose}/config.yaml", (("extensions",),), shared=True),),
        fields={
            "type": "type", "cmd": "command", "args": "args", "envs": "env", "env_keys": "env_keys", "uri": "url", "headers": "headers",
            "enabled": "enabled", "timeout": "request_s", "available_tools": "allow", "name": "kept", "display_name": "kept",
            "description": "kept", "bundled": "kept", "config": "kept", "version": "kept", "code": "kept", "dependencies": "kept",
        },
        dialect=_dialect("braced", "bare"),
        documented=(
            "https://block.github.io/goose/docs/guides/config-files",
            "block/goose crates/goose/src/agents/extension.rs, extension_manager.rs (fields, seconds, placeholders in headers)",
            "block/goose crates/goose/src/config/paths.rs (GOOSE_PATH_ROOT)",
        ),
    ),
    Client(
        id="librechat",
        title="LibreChat",
        format="yaml",
        places=(Place("project", "{librechat}", shared=True), Place("project", "{project}/librechat.yaml", shared=True)),
        fields=_fields(
            "title", "description", "startup", "iconPath", "sseReadTimeout", "chatMenu", "serverInstructions", "requiresOAuth", "oauth",
            "oauth_headers", "apiKey", "obo", "customUserVars", "stderr", "proxy",
            timeout="request_ms", initTimeout="start_ms",
        ),
        dialect=_dialect("braced", "handlebars"),
        untyped_url="sse",
        documented=(
            "https://www.librechat.ai/docs/configuration/librechat_yaml/object_structure/mcp_servers",
            "danny-avila/LibreChat packages/data-provider/src/mcp.ts (a url without type is SSE), src/utils.ts (${VAR})",
        ),
        unconfirmed=("CONFIG_PATH as the variable that names another file",),
    ),
    Client(
        id="opencode",
        title="opencode",
        places=(
            Place("system", "/Library/Application Support/opencode/opencode.json*", _OPENCODE, platforms=("macos",), shared=True),
            Place("system", "{programdata}/opencode/opencode.json*", _OPENCODE, platforms=("windows",), shared=True),
            Place("system", "/etc/opencode/opencode.json*", _OPENCODE, platforms=("linux",), shared=True),
            Place("user", "{opencode-folder}/opencode.json", _OPENCODE, shared=True),
            Place("user", "{opencode-folder}/opencode.jsonc", _OPENCODE, shared=True),
            Place("user", "{home}/.opencode/opencode.json", _OPENCODE, shared=True),
            Place("user", "{home}/.opencode/opencode.jsonc", _OPENCODE, shared=True),
            Place("project", "{project}/.opencode/opencode.json", _OPENCODE, shared=True),
            Place("project", "{project}/.opencode/opencode.jsonc", _OPENCODE, shared=True),
            Place("project", "{project}/opencode.json", _OPENCODE, shared=True),
            Place("project", "{project}/opencode.jsonc", _OPENCODE, shared=True),
            Place("user", "{opencode-file}", _OPENCODE, shared=True),
            Place("user", "{xdg}/opencode/opencode.json", _OPENCODE, shared=True),
            Place("user", "{xdg}/opencode/opencode.jsonc", _OPENCODE, shared=True),
            Place("user", "{xdg}/opencode/config.json", _OPENCODE, shared=True),
        ),
        fields=_fields("oauth", environment="env", cwd="cwd", enabled="enabled", timeout="start_ms"),
        dialect=_dialect("curly"),
        layered=True,
        documented=(
            "https://opencode.ai/docs/mcp-servers, https://opencode.ai/docs/config (places, precedence, variables)",
            "anomalyco/opencode packages/opencode/src/config/mcp.ts, variable.ts, config.ts (.opencode folders, OPENCODE_CONFIG_DIR)",
        ),
        unconfirmed=("whether timeout limits calls as well as fetching the tools: the page and the code differ; read as the latter",),
    ),
    Client(
        id="continue",
        title="Continue",
        format="yaml",
        places=(
            Place("project", "{project}/.continue/mcpServers/*.yaml"),
            Place("project", "{project}/.continue/mcpServers/*.yml"),
            Place("project", "{project}/.continue/mcpServers/*.json", format="json"),
            Place("user", "{continue}/mcpServers/*.yaml"),
            Place("user", "{continue}/mcpServers/*.yml"),
            Place("user", "{continue}/mcpServers/*.json", format="json"),
            Place("user", "{continue}/config.yaml", shared=True),
        ),
        fields=_fields(
            "name", "serverName", "faviconUrl", "sourceFile", "sourceSlug",
            cwd="cwd", envFile="env_file", apiKey="bearer", requestOptions="request_options", connectionTimeout="start_ms",
        ),
        dialect=_dialect("secrets", "braced"),
        documented=(
            "continuedev/continue docs/reference.mdx, docs/customize/deep-dives/mcp.mdx, docs/cli/configuration.mdx (secrets)",
            "continuedev/continue packages/config-yaml/src/schemas/mcp/index.ts (fields)",
            "continuedev/continue core/context/mcp/MCPConnection.ts, core/context/mcp/json/loadJsonMcpConfigs.ts (milliseconds, apiKey)",
        ),
        unconfirmed=("secrets are looked up in the environment only, not in the .env files or the hub",),
    ),
    Client(
        id="cline",
        title="Cline",
        places=(
            Place("user", "{cline-file}"),
            Place("user", "{home}/.cline/mcp.json"),
            Place("user", "{vscode}/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
        ),
        fields=_fields(
            "autoApprove", "alwaysAllow", "remoteConfigured", "oauth", "oauthClient", "metadata",
            cwd="cwd", transportType="type", transport="transport", timeout="request_s",
        ),
        dialect=_dialect("env"),
        untyped_url="sse",
        documented=(
            "cline/cline docs/mcp/mcp-overview.mdx (a url without type is SSE), docs/getting-started/config.mdx",
            "cline/cline sdk/packages/shared/src/storage/paths.ts, src/mcp.ts (seconds), apps/vscode/src/services/mcp/schemas.ts",
        ),
    ),
    Client(
        id="amazon-q",
        title="Amazon Q Developer",
        places=(
            Place("project", "{project}/.amazonq/cli-agents/*.json", shared=True),
            Place("project", "{project}/.amazonq/default.json", shared=True),
            Place("project", "{project}/.amazonq/mcp.json"),
            Place("user", "{home}/.aws/amazonq/cli-agents/*.json", shared=True),
            Place("user", "{home}/.aws/amazonq/default.json", shared=True),
            Place("user", "{home}/.aws/amazonq/mcp.json"),
        ),
        fields=_fields("autoApprove", "oauthScopes", "oauth", timeout="request_ms", disabled="disabled"),
        dialect=_dialect("env"),
        documented=(
            _Q_AGENT,
            "aws/amazon-q-developer-cli crates/chat-cli/src/cli/chat/tools/custom_tool.rs, src/mcp_client/client.rs (${env:VAR})",
            "https://docs.aws.amazon.com/amazonq/latest/qdeveloper-ug/mcp-ide.html (default.json, mcp.json)",
        ),
        unconfirmed=("the tools list of an agent, which narrows its servers, is not acted on",),
    ),
    Client(
        id="kiro",
        title="Kiro",
        places=(
            Place("project", "{project}/.kiro/agents/*.json", shared=True),
            Place("project", "{project}/.kiro/settings/mcp.json"),
            Place("user", "{home}/.kiro/agents/*.json", shared=True),
            Place("user", "{home}/.kiro/settings/mcp.json"),
        ),
        fields=_fields(
            "autoApprove", "oauth", "oauthScopes", "redirectUri", timeout="request_ms", disabled="disabled", disabledTools="deny",
        ),
        dialect=_dialect("braced"),
        documented=(
            "https://kiro.dev/docs/mcp/configuration, https://kiro.dev/docs/cli/mcp/configuration",
            "https://kiro.dev/docs/cli/custom-agents/configuration-reference (agents, milliseconds)",
        ),
        unconfirmed=("agents written as Markdown are not read", "the tools list of an agent, which narrows its servers, is not acted on"),
    ),
)  # fmt: skip
"""Every client, in the order in which a server found in several of them is attributed."""

NARROWING: Final[Mapping[str, Meaning]] = {
    "disabled": "disabled", "enabled": "enabled", "isActive": "enabled", "isEnabled": "enabled",
    "disabledTools": "deny", "excludeTools": "deny", "disabled_tools": "deny",
    "includeTools": "allow", "enabledTools": "allow", "enabled_tools": "allow",
}  # fmt: skip
"""Spellings that can only take something away. They are honoured in every file: whoever writes `disabled` does not want a start."""

PLAIN: Final = Client(
    id="plain",
    title="a plain file",
    places=(),
    fields={
        **{
            spelling: meaning
            for is_kept in (True, False)
            for client in CLIENTS
            for spelling, meaning in client.fields.items()
            if spelling not in ("timeout", "apiKey") and (meaning == "kept") is is_kept
        },
        **NARROWING,
        "transport": "type",
    },
    dialect=frozenset({"braced", "default", "env", "places"}),
    documented=("ours: any file given by --config that is no client's, and servers given in code",),
)
"""The row for files that belong to nobody: every spelling of every client, but `timeout` and `apiKey`, which would need a guess."""

PLAIN_CONTAINERS: Final = (
    ("mcpServers",), ("servers",), ("mcp", "servers"), ("mcp_servers",), ("context_servers",), ("mcp",), ("extensions",),
)  # fmt: skip
"""The keys under which any client keeps servers."""

BY_ID: Final = {client.id: client for client in (*CLIENTS, PLAIN)}
