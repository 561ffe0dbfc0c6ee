"""Where config files lie: the table's places on one machine, for one user, in one project.

Decided here: which folders the table's bases stand for on Linux, macOS and Windows, which variables move them, how far up a project's
files are looked for, and whose file a path that the user names is. Not here: the places themselves (`clients`).

No file is opened here; folders are listed through the `FileSystem` that is passed in, so the result is a function of `Surroundings`.
"""

from __future__ import annotations

import fnmatch
import ntpath
import posixpath
import re
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

import msgspec

from outrider.catalog.sources.clients import (
    BY_ID,
    CLIENTS,
    PLAIN,
    PLAIN_CONTAINERS,
    Client,
    Level,
    Place,
    Platform,
    Switch,
)
from outrider.catalog.sources.documents import Format

__all__ = ["ConfigFile", "FileSystem", "Surroundings", "describe_file", "find_config_files"]


class FileSystem(Protocol):
    """The little that finding and reading config files needs of a disk. No method raises anything but OSError."""

    def exists(self, path: str) -> bool:
        """Whether something is at `path`; False also when that cannot be told."""

    def names(self, folder: str) -> list[str]:
        """The names in `folder`, in any order; none if it does not exist or cannot be listed."""

    def read(self, path: str, limit_bytes: int) -> bytes:
        """The contents of a regular file; OSError with EFBIG if there are more than `limit_bytes`."""


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """Where a search takes place.

    Attributes:
        home: the user's home folder.
        cwd: the folder the search starts from.
        platform: "linux", "macos" or "windows"; decides places and path syntax.
        env: the environment variables that move files (and, later, fill placeholders).
        files: the disk.
    """

    home: str
    cwd: str
    platform: Platform
    env: Mapping[str, str]
    files: FileSystem

    @property
    def windows(self) -> bool:
        """Whether paths and variable names follow the rules of Windows."""
        return self.platform == "windows"

    def projects(self) -> tuple[str, ...]:
        """The folders whose project-level files count: from `cwd` up to the one that holds `.git`; only `cwd` outside a repository."""
        path = ntpath if self.windows else posixpath
        folders = [self.cwd]
        for _ in range(64):
            if self.files.exists(path.join(folders[-1], ".git")):
                return tuple(folders)
            parent = path.dirname(folders[-1])
            if not parent or parent == folders[-1]:
                break
            folders.append(parent)
        return (self.cwd,)


class ConfigFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that may hold servers, and how to read it.

    Attributes:
        path: absolute, in the syntax of its platform; a pattern that matched nothing stays as it is.
        client: the row's id.
        level: who the file speaks for.
        workspace: what `${workspaceFolder}` stands for in it.
        projects: the folders that a "{project}" container may name.
    """

    path: str
    client: str
    level: Level
    format: Format = "json"
    containers: tuple[tuple[str, ...], ...] = PLAIN_CONTAINERS
    shared: bool = False
    switches: tuple[Switch, ...] = ()
    rules: bool = False
    workspace: str = ""
    projects: tuple[str, ...] = ()
    windows: bool = False


def _bases(where: Surroundings) -> dict[str, str]:
    """The folders and files that `Place.path` can start with; "" for one that an unset variable would have to name."""
    env, home = where.env, where.home
    appdata = env.get("APPDATA") or f"{home}/AppData/Roaming"
    appsupport = f"{home}/Library/Application Support"
    xdg = env.get("XDG_CONFIG_HOME") or f"{home}/.config"
    editors = {"linux": xdg, "macos": appsupport, "windows": appdata}[where.platform]
    goose_root = env.get("GOOSE_PATH_ROOT", "")
    goose = f"{appdata}/Block/goose/config" if where.windows else f"{xdg}/goose"
    cline_data = env.get("CLINE_DATA_DIR") or (env.get("CLINE_DIR") or f"{home}/.cline") + "/data"
    claude = env.get("CLAUDE_CONFIG_DIR", "")
    gemini_system = (
        env.get("GEMINI_CLI_SYSTEM_SETTINGS_PATH")
        or {
            "linux": "/etc/gemini-cli/settings.json",
            "macos": "/Library/Application Support/GeminiCli/settings.json",
            "windows": "C:/ProgramData/gemini-cli/settings.json",
        }[where.platform]
    )
    zed = {
        "linux": (env.get("FLATPAK_XDG_CONFIG_HOME") or xdg) + "/zed",
        "macos": f"{home}/.config/zed",
        "windows": f"{appdata}/Zed",
    }
    return {
        "home": home,
        "appdata": appdata,
        "appsupport": appsupport,
        "config": xdg,
        "xdg": xdg,
        "programdata": env.get("ProgramData") or env.get("PROGRAMDATA") or "C:/ProgramData",
        "vscode": f"{editors}/Code/User",
        "vscode-insiders": f"{editors}/Code - Insiders/User",
        "gemini": env.get("GEMINI_CLI_HOME") or home,
        "gemini-system": gemini_system,
        "gemini-defaults": env.get("GEMINI_CLI_SYSTEM_DEFAULTS_PATH")
        or re.split(r"[^/\\]*$", gemini_system)[0] + "system-defaults.json",
        "claude": claude or f"{home}/.claude",
        "claude-home": claude or home,
        "claude-store": (env.get("LOCALAPPDATA") or f"{home}/AppData/Local")
        + "/Packages/Claude_pzs8sxrjxfjjc/LocalCache/Roaming",
        "copilot": env.get("COPILOT_HOME") or f"{home}/.copilot",
        "codex": env.get("CODEX_HOME") or f"{home}/.codex",
        "continue": env.get("CONTINUE_GLOBAL_DIR") or f"{home}/.continue",
        "zed": zed[where.platform],
        "goose": f"{goose_root}/config" if goose_root else goose,
        "librechat": env.get("CONFIG_PATH", "") if env.get("CONFIG_PATH", "").endswith((".yaml", ".yml")) else "",
        "opencode-file": env.get("OPENCODE_CONFIG", ""),
        "opencode-folder": env.get("OPENCODE_CONFIG_DIR", ""),
        "cline-file": env.get("CLINE_MCP_SETTINGS_PATH") or f"{cline_data}/settings/cline_mcp_settings.json",
    }


def find_config_files(where: Surroundings, *, clients: Iterable[str] | None = None) -> list[ConfigFile]:
    """Every place where a client's file could lie, most specific first for each client, whether or not it exists.

    A place that is a pattern becomes the files that match it, or one `ConfigFile` with the pattern if none does. The same path is
    listed once, for the client that comes first.

    Args:
        where: the surroundings; nothing else is looked at.
        clients: ids of the rows to use, or None for all.

    Raises:
        KeyError: an id in `clients` is not in the table.

    Spec: ours
    """
    rows = CLIENTS if clients is None else tuple(BY_ID[client] for client in clients)
    bases, projects = _bases(where), where.projects()
    files: dict[str, ConfigFile] = {}
    for client in rows:
        for place in client.places:
            if where.platform not in place.platforms:
                continue
            for folder in projects if "{project}" in place.path else projects[:1]:
                for path in _paths(place.path, bases | {"project": folder}, where):
                    files.setdefault(
                        path.casefold() if where.windows else path,
                        ConfigFile(
                            path=path,
                            client=client.id,
                            level=place.level,
                            format=place.format or client.format,
                            containers=place.containers,
                            shared=place.shared,
                            switches=place.switches,
                            rules=place.rules,
                            workspace=folder if place.level == "project" else projects[-1],
                            projects=projects,
                            windows=where.windows,
                        ),
                    )
    return list(files.values())


def _paths(template: str, bases: Mapping[str, str], where: Surroundings) -> list[str]:
    """The paths a place stands for: none if its base is not there, one, or those that match a pattern in its last part."""
    path = ntpath if where.windows else posixpath
    if template.startswith("{"):
        base, _, rest = template[1:].partition("}")
        if not bases[base]:
            return []
        template = bases[base] + rest
    full = path.normpath(path.join(where.cwd, template))
    folder, name = path.split(full)
    if "*" not in name:
        return [full]
    matches = sorted(found for found in where.files.names(folder) if fnmatch.fnmatchcase(found, name))
    return [path.join(folder, found) for found in matches] or [full]


_SUFFIXES: Final[Mapping[str, Format]] = {".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}


def describe_file(path: str, where: Surroundings) -> ConfigFile:
    """How to read a file that the user named: as its client's if its name says whose it is, as a plain file otherwise.

    Args:
        path: absolute or relative to `where.cwd`.
        where: decides the syntax of paths, and which places are whose.

    Spec: ours
    """
    syntax = ntpath if where.windows else posixpath
    full = syntax.normpath(syntax.join(where.cwd, path))
    for file in find_config_files(where):
        if file.path == full:
            return msgspec.structs.replace(file, level="given", shared=False)
    parts = full.replace("\\", "/").split("/")
    projects = where.projects()
    best: tuple[int, bool] = (0, False)
    found: tuple[Client, Place] | None = None
    for client in CLIENTS:
        for place in client.places:
            # What follows the base: .cursor/mcp.json, Claude/claude_desktop_config.json. One name alone, such as mcp.json or
            # config.toml, says nothing about whose file it is, but for a few that nobody else uses.
            tail = place.path.partition("}/")[2].split("/")
            if len(tail) < 2 or len(parts) < len(tail) or not all(map(fnmatch.fnmatchcase, parts[-len(tail) :], tail)):
                if parts[-1] not in _TELLING_NAMES or parts[-1] != tail[-1]:
                    continue
                tail = tail[-1:]
            if (rank := (len(tail), place.path.startswith("{project}/") and place.path.count("/") == len(tail))) > best:
                best, found = rank, (client, place)
    if found is not None:
        client, place = found
        workspace = projects[-1]
        if "{project}" in place.path:
            workspace = full
            for _ in range(best[0]):
                workspace = syntax.dirname(workspace)
        return ConfigFile(
            path=full,
            client=client.id,
            level="given",
            format=place.format or client.format,
            containers=place.containers,
            switches=place.switches,
            workspace=workspace,
            projects=projects,
            windows=where.windows,
        )
    format = _SUFFIXES.get(syntax.splitext(full)[1].lower(), "json")
    return ConfigFile(
        path=full,
        client=PLAIN.id,
        level="given",
        format=format,
        workspace=projects[-1],
        projects=projects,
        windows=where.windows,
    )


_TELLING_NAMES: Final = frozenset(
    {
        ".mcp.json",
        ".claude.json",
        "claude_desktop_config.json",
        "opencode.json",
        "opencode.jsonc",
        "librechat.yaml",
        "cline_mcp_settings.json",
    }
)
