"""What is configured, as data for a screen: every file, every server, how each was read, and what was left out and why.

Decided here: what of a configuration may be shown. Variables and headers are shown by name, commands and URLs with everything that
could be a secret masked; a placeholder is shown as it is written, for it is the opposite of a secret. Not here: layout and colours.
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import urlsplit

from outrider.catalog.sources.clients import BY_ID
from outrider.catalog.sources.configuration import Configuration, FileReport
from outrider.catalog.sources.entries import Origin, ServerEntry
from outrider.catalog.sources.placeholders import Template
from outrider.catalog.sources.places import Surroundings
from outrider.catalog.sources.resolution import resolve
from outrider.catalog.sources.wording import shown
from outrider.errors import ConfigError
from outrider.redaction import MASK

__all__ = ["configuration_view", "masked_command", "masked_url"]

_SECRET_NAME: Final = re.compile(
    r"token|key|secret|passw|pwd|auth|credential|bearer|cookie|session|signature|\bpat\b", re.IGNORECASE
)
_SECRET_SHAPE: Final = re.compile(
    r"^(?:sk-|pk-|rk_|ghp_|gho_|ghs_|github_pat_|glpat-|xox[a-z]-|AKIA|AIza|eyJ|hf_|npm_)"
    r"|^(?=[^/@.]*\d)(?=[^/@.]*[A-Za-z])[A-Za-z0-9_\-+=~]{20,}$"
)
"""What a secret looks like on its own: a known prefix, or twenty and more letters and digits mixed."""
_ASSIGNED_SECRET: Final = re.compile(
    rf"([\w.\-]*(?:{_SECRET_NAME.pattern})[\w.\-]*\s*[=:]\s*)(?:(?:bearer|basic)\s+)?\S+", re.IGNORECASE
)
_URL: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.\-]*://[^\s\"']+")
_WORD: Final = re.compile(r"[^\s=:,;\"'/]+")


def configuration_view(configuration: Configuration, where: Surroundings) -> dict[str, Any]:
    """The data behind `outrider config`: JSON values only, no secret, same order every time.

    Returns:
        `files`: client, path, level, status ("read", "missing", "unreadable", "broken"), servers (a count), message.
        `servers`: key, name, transport, state ("ready", "disabled", "unresolved"), reason and hint for the last two, command or url,
            cwd, env (names), headers (names), tools (allow, deny), start_timeout_s, request_timeout_s, origin, also_in, warnings.
        `ignored`: name, origin, reason, error (whether it was meant to be a server).
        `problems`: severity, message, source.

    Spec: ours
    """
    return {
        "files": [_file(report) for report in configuration.files],
        "servers": [_server(entry, where) for entry in configuration.entries],
        "ignored": [
            {"name": shown(one.name), "origin": _origin(one.origin), "reason": one.reason, "error": one.is_error}
            for one in configuration.ignored
        ],
        "problems": [
            {"severity": problem.severity, "message": problem.message, "source": shown(problem.source, 4096)}
            for problem in configuration.problems
        ],
    }


def _file(report: FileReport) -> dict[str, Any]:
    return {
        "client": report.file.client,
        "title": BY_ID[report.file.client].title,
        "path": shown(report.file.path, 4096),
        "level": report.file.level,
        "status": report.status,
        "servers": report.servers,
        "message": report.message,
    }


def _server(entry: ServerEntry, where: Surroundings) -> dict[str, Any]:
    state, reason, hint = "ready", "", ""
    if entry.disabled:
        state, reason = "disabled", entry.disabled_because
    else:
        try:
            resolve(entry, where)
        except ConfigError as error:
            state, reason, hint = "unresolved", str(error).removeprefix(f"{error.source}: "), error.hint
    return {
        "key": entry.key,
        "name": shown(entry.name),
        "transport": entry.transport,
        "state": state,
        "reason": reason,
        "hint": hint,
        "command": masked_command(entry),
        "url": None if entry.url is None else masked_url(entry.url.written()),
        "cwd": None if entry.cwd is None else entry.cwd.written(),
        "env": sorted({*entry.env, *entry.copied_env}),
        "headers": sorted(entry.headers),
        "tools": {
            "allow": None if entry.allow_tools is None else list(entry.allow_tools),
            "deny": list(entry.deny_tools),
        },
        "start_timeout_s": entry.start_timeout_s,
        "request_timeout_s": entry.request_timeout_s,
        "origin": _origin(entry.origin),
        "also_in": [_origin(origin) for origin in entry.also_in],
        "warnings": list(entry.warnings),
    }


def _origin(origin: Origin) -> dict[str, Any]:
    return {
        "client": origin.client,
        "level": origin.level,
        "file": shown(origin.file, 4096),
        "line": origin.line or None,
        "pointer": shown(origin.pointer, 300),
    }


def masked_command(entry: ServerEntry) -> list[str] | None:
    """The command and its arguments as written, with what could be a secret masked; None for a server that has a URL."""
    if entry.command is None:
        return None
    words = [shown(entry.command.written(), 200)]
    previous = ""
    for argument in entry.args:
        words.append(_masked_argument(argument, previous))
        previous = argument.written()
    return words


def _masked_argument(argument: Template, previous: str) -> str:
    """One argument: placeholders as written, the text around them masked where a name or its own shape says that it is secret."""
    named = previous.startswith("-") and "=" not in previous and bool(_SECRET_NAME.search(previous))
    shown_parts: list[str] = []
    for part in argument.parts:
        if not isinstance(part, str):
            shown_parts.append(part.written)
        elif named and not part.startswith("-"):
            shown_parts.append(MASK)
        else:
            text = _URL.sub(lambda match: masked_url(match[0]), part)
            text = _ASSIGNED_SECRET.sub(rf"\1{MASK}", text)
            shown_parts.append(_WORD.sub(lambda match: MASK if _SECRET_SHAPE.search(match[0]) else match[0], text))
    return shown("".join(shown_parts), 200)


def masked_url(url: str) -> str:
    """`url` without user, password, values of the query, fragment, and parts of the path that look like a secret."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return MASK
    user = f"{MASK}@" if "@" in parts.netloc else ""
    path = "/".join(MASK if _SECRET_SHAPE.search(step) and "${" not in step else step for step in parts.path.split("/"))
    query = "&".join(
        name + (f"={MASK}" if equals else "")
        for name, equals, _ in (pair.partition("=") for pair in parts.query.split("&"))
    )
    scheme = f"{parts.scheme}://" if parts.scheme else ""
    return shown(f"{scheme}{user}{host}{path}{'?' if query else ''}{query}{'#' + MASK if parts.fragment else ''}", 300)
