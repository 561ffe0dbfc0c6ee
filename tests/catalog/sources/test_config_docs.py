"""`docs/config.md` shows the table of clients; `python tests/catalog/sources/test_config_docs.py` writes that part of it anew."""

from __future__ import annotations

import re
from pathlib import Path

from fakes.files import MemoryFiles
from outrider.catalog.sources import CLIENTS, Client, Surroundings, find_config_files
from outrider.catalog.sources.clients import Meaning, Platform
from outrider.catalog.sources.placeholders import Form

PAGE = Path(__file__).parents[3] / "docs" / "config.md"
BEGIN, END = "<!-- clients: generated -->\n", "<!-- clients: end -->\n"

PLATFORMS: dict[Platform, Surroundings] = {
    "linux": Surroundings(home="/~", cwd="/PROJECT", platform="linux", env={}, files=MemoryFiles({})),
    "macos": Surroundings(home="/~", cwd="/PROJECT", platform="macos", env={}, files=MemoryFiles({})),
    "windows": Surroundings(
        home=r"C:\%USERPROFILE%",
        cwd=r"C:\PROJECT",
        platform="windows",
        env={"APPDATA": r"C:\%APPDATA%", "LOCALAPPDATA": r"C:\%LOCALAPPDATA%", "ProgramData": r"C:\%ProgramData%"},
        files=MemoryFiles({}, "\\"),
    ),
}
TITLES = {"linux": "Linux", "macos": "macOS", "windows": "Windows"}
FORMATS = {"json": "JSON with comments", "toml": "TOML", "yaml": "YAML"}
FORMS: dict[Form, str] = {
    "braced": "`${VAR}`",
    "default": "`${VAR:-text}`",
    "env": "`${env:VAR}`",
    "places": "`${workspaceFolder}`, `${workspaceFolderBasename}`, `${userHome}`, `${/}`",
    "bare": "`$VAR`",
    "percent": "`%VAR%` (Windows)",
    "secrets": "`${{ secrets.VAR }}`",
    "curly": "`{env:VAR}`, `{file:path}`",
    "dollar-file": "`${file:path}`",
    "handlebars": "`{{NAME}}` (known to the client alone)",
}
MEANINGS: dict[Meaning, str] = {
    "command": "the command",
    "args": "its arguments",
    "env": "variables",
    "env_names": "names of variables to take over if set",
    "env_keys": "names of variables that must be set",
    "env_file": "a file of variables",
    "cwd": "the folder to run in",
    "url": "the URL",
    "http_url": "the URL, Streamable HTTP",
    "headers": "headers",
    "header_variables": "headers whose values are names of variables",
    "bearer": "a bearer token",
    "bearer_variable": "the variable that holds a bearer token",
    "type": "the transport",
    "disabled": "switched off",
    "enabled": "switched on",
    "allow": "the only tools to offer",
    "deny": "tools not to offer",
    "start_s": "limit for the start, seconds",
    "start_ms": "limit for the start, milliseconds",
    "request_s": "limit for a request, seconds",
    "request_ms": "limit for a request, milliseconds",
    "transport": "an object around type, command, url …",
    "request_options": "an object around headers",
}


def places_of(client: Client, platform: Platform) -> list[tuple[str, str]]:
    """(level, path) of each place, in the spelling of the page."""
    files = find_config_files(PLATFORMS[platform], clients=[client.id])
    return [(file.level, re.sub(r"^(/(?=~|PROJECT)|C:\\(?=%|PROJECT))", "", file.path)) for file in files]


def section(client: Client) -> str:
    lines = [f"### {client.title}", ""]
    containers = {" / ".join(container) for place in client.places for container in place.containers}
    lines += [
        f"{FORMATS[client.format]}; servers under {', '.join(f'`{container}`' for container in sorted(containers))}.",
        "",
    ]
    lines += ["| level | platform | file |", "| --- | --- | --- |"]
    rows: dict[tuple[str, str], list[str]] = {}
    for platform in PLATFORMS:
        for level, path in places_of(client, platform):
            rows.setdefault((level, path), []).append(TITLES[platform])
    lines += [f"| {level} | {', '.join(platforms)} | `{path}` |" for (level, path), platforms in rows.items()]
    used = {spelling: meaning for spelling, meaning in client.fields.items() if meaning != "kept"}
    fields = ", ".join(
        f"`{spelling}`" + (f" ({MEANINGS[meaning]})" if spelling != meaning else "")
        for spelling, meaning in used.items()
    )
    kept = ", ".join(f"`{spelling}`" for spelling, meaning in client.fields.items() if meaning == "kept")
    lines += ["", f"Fields: {fields}."]
    if kept:
        lines += ["", f"Known and not acted on: {kept}."]
    switches = {
        (" / ".join(switch.path), place.path.rpartition("/")[2].removeprefix("{gemini-").removesuffix("}"))
        for place in client.places
        for switch in place.switches
    }
    if switches:
        named = (f"`{path}`" if path else f"the file `{name}`" for path, name in sorted(switches))
        lines += ["", "Switched on and off by name: " + ", ".join(dict.fromkeys(named)) + "."]
    forms = ", ".join(text for form, text in FORMS.items() if form in client.dialect)
    lines += ["", f"Placeholders: {forms or 'none documented'}."]
    meaning = {"sse": "means HTTP+SSE", "auto-http": "means Streamable HTTP, then HTTP+SSE"}[client.untyped_url]
    lines += ["", f"A `url` without a type {meaning}."]
    lines += ["", "Documented in: " + "; ".join(client.documented) + "."]
    if client.unconfirmed:
        lines += ["", "Not confirmed: " + "; ".join(client.unconfirmed) + "."]
    return "\n".join(lines) + "\n"


def generated() -> str:
    return BEGIN + "\n" + "\n".join(section(client) for client in CLIENTS) + "\n" + END


def test_the_page_shows_every_client_as_the_table_has_it() -> None:
    """Ours: docs are tested; after a change of the table run this file as a program."""
    page = PAGE.read_text(encoding="utf-8")
    assert page[page.index(BEGIN) : page.index(END) + len(END)] == generated()


def test_every_row_names_its_sources() -> None:
    """Ours: no row is a guess: a page or a repository's file for each, and what is not confirmed is said."""
    for client in CLIENTS:
        assert client.documented
        assert all(
            "http" in source or re.search(r"[\w-]+/[\w-]+ \S+\.\w+|docs/", source) for source in client.documented
        ), client.id


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(text[: text.index(BEGIN)] + generated() + text[text.index(END) + len(END) :], encoding="utf-8")
