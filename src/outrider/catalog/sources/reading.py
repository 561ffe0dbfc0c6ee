"""From the bytes of a config file to the servers in it.

Decided here: which part of a file holds servers, also where it is not the expected one, and what is said about a file without any.
Not here: bytes to values (`documents`), one entry (`fields`), several files (`configuration`).

Pure.
"""

from __future__ import annotations

import ntpath
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from outrider.catalog.sources.clients import BY_ID, PLAIN, PLAIN_CONTAINERS, Client, Level
from outrider.catalog.sources.documents import Document, Path, parse_document
from outrider.catalog.sources.entries import Ignored, Origin, Problem, ServerEntry, assign_keys
from outrider.catalog.sources.fields import EntryReader, Unusable, folded
from outrider.catalog.sources.places import ConfigFile
from outrider.catalog.sources.wording import shown

__all__ = ["ParsedConfig", "read_config", "read_servers"]


class ParsedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What one file holds.

    Attributes:
        entries: in the file's order, keys unique within it.
        raw: the entries as plain dicts by name, for the layers above this file.
        lists: what the file says about servers by name; it holds for all files of the client's family.
    """

    entries: tuple[ServerEntry, ...] = ()
    ignored: tuple[Ignored, ...] = ()
    problems: tuple[Problem, ...] = ()
    raw: dict[str, dict[str, Any]] = {}
    lists: tuple[ServerList, ...] = ()


class ServerList(msgspec.Struct, frozen=True, kw_only=True):
    """Servers that are switched on or off by name.

    Attributes:
        names: as written, or in lower case where the client compares them so.
        is_allowed: whether only these are to be used, or these are not.
        only: id of the row whose servers it is about, or "" for all.
        source: what to tell the user it is.
    """

    names: frozenset[str]
    is_allowed: bool
    only: str
    source: str

    def switched(self, entry: ServerEntry) -> ServerEntry:
        """`entry`, switched off if the list says so."""
        name = entry.name.lower().strip() if BY_ID[entry.origin.client].folded_names else entry.name
        if entry.disabled or self.only not in ("", entry.origin.client) or (name in self.names) is self.is_allowed:
            return entry
        reason = f"not in {self.source}" if self.is_allowed else f"switched off by {self.source}"
        return msgspec.structs.replace(entry, disabled_because=reason)


def read_config(
    data: bytes, file: ConfigFile, *, beneath: Mapping[str, Mapping[str, Any]] | None = None
) -> ParsedConfig:
    """Read the servers of one file.

    Args:
        data: the whole file.
        file: how to read it, from `find_config_files` or `describe_file`.
        beneath: for a client that merges its files, the entries of the less specific ones by name.

    Raises:
        ConfigError: the file is not well-formed; `.source` is "file:line:column". A file that is well-formed but holds nothing usable
            is not an error here: `problems` says so.

    Spec: ours
    """
    document = parse_document(data, format=file.format, source=file.path)
    reader = _FileReader(document, file, beneath or {})
    if document.value is None:
        reader.problem("note" if file.shared else "warning", "the file is empty")
    elif isinstance(document.value, (dict, list)):
        reader.read()
    else:
        reader.problem("error", "expected an object with servers in it")
    return reader.result()


def read_servers(servers: Mapping[str, Any], *, workspace: str = "", windows: bool = False) -> ParsedConfig:
    """Read servers given in code: name to entry, in the spelling of `.mcp.json`, or to a URL, or to a command as a list.

    Spec: ours
    """
    entries = {name: _expanded(value) for name, value in servers.items()}
    file = ConfigFile(path="", client=PLAIN.id, level="given", workspace=workspace, windows=windows)
    reader = _FileReader(Document({"mcpServers": entries}, {}), file, {}, client_id="code")
    reader.container(("mcpServers",), entries, file.level)
    return reader.result()


def _expanded(value: Any) -> Any:
    if isinstance(value, str):
        return {"url": value}
    if isinstance(value, (list, tuple)):
        return {"command": list(value)}
    return dict(value) if isinstance(value, Mapping) else value


class _FileReader:
    def __init__(
        self, document: Document, file: ConfigFile, beneath: Mapping[str, Mapping[str, Any]], *, client_id: str = ""
    ) -> None:
        self.document = document
        self.file = file
        self.client: Client = BY_ID[file.client]
        self._client_id = client_id or file.client
        self._beneath = beneath
        self._entries: list[ServerEntry] = []
        self._ignored: list[Ignored] = []
        self._problems: list[Problem] = []
        self._raw: dict[str, dict[str, Any]] = {}

    def problem(self, severity: Literal["error", "warning", "note"], message: str, path: Path = ()) -> None:
        line = self.document.line(path)
        source = f"{self.file.path}:{line}" if line else self.file.path
        self._problems.append(Problem(severity=severity, message=message, source=source))

    def result(self) -> ParsedConfig:
        lists = tuple(self._server_lists())
        keys = assign_keys([(entry.name, entry.origin.client) for entry in self._entries])
        return ParsedConfig(
            entries=tuple(
                msgspec.structs.replace(entry, key=key) for entry, key in zip(self._entries, keys, strict=True)
            ),
            ignored=tuple(self._ignored),
            problems=tuple(self._problems),
            raw=self._raw,
            lists=lists,
        )

    def _server_lists(self) -> Iterator[ServerList]:
        for switch in self.file.switches:
            for path, value in self._containers(switch.path):
                if switch.kind == "states" and isinstance(value, dict):
                    names = [
                        name
                        for name, state in value.items()
                        if isinstance(state, dict) and state.get("enabled") is False
                    ]
                elif isinstance(value, list):
                    names = [name for name in value if isinstance(name, str)]
                else:
                    self.problem(
                        "warning",
                        f"{_pointed(path) or 'the file'} is not a list of servers' names; it was not used",
                        path,
                    )
                    continue
                if self.client.folded_names:
                    names = [name.lower().strip() for name in names]
                source = f'"{path[-1]}" in {shown(self.file.path, 300)}' if path else shown(self.file.path, 300)
                yield ServerList(
                    names=frozenset(names), is_allowed=switch.kind == "allowed", only=switch.only, source=source
                )

    def read(self) -> None:
        """Read every container of the file."""
        root, file = self.document.value, self.file
        if not file.containers:
            if file.level == "given":
                self.problem(
                    "warning", f"no servers: {self.client.title} only switches servers here that stand in other files"
                )
            return
        found = [
            pair for template in file.containers if "{project}" not in template for pair in self._containers(template)
        ]
        mine = [pair for template in file.containers if "{project}" in template for pair in self._containers(template)]
        if file.client == PLAIN.id and len(found) > 1:
            found = [(path, value) for path, value in found if path != ("mcp",)]  # seen as mcp / servers already
            # Other clients' keys mean other things beside servers: Gemini CLI has "extensions" of another kind.
            found = [pair for pair in found if _holds_servers(pair[1])] or found
        found = [self._inside(path, value) for path, value in found]
        if not found and not mine:
            found = self._elsewhere(root)
        for path, value in found:
            self.container(path, value, file.level)
        for path, value in mine:
            self.container(path, value, "given" if file.level == "given" else "local")
        found += mine
        for path, _ in self.document.repeated if found else ():
            # A container that is there twice loses all of its first servers.
            if any(path[: len(container)] == container[: len(path)] for container, _ in found):
                self.problem("warning", f"the key {_pointed(path)} occurs twice; only the last one counts", path)

    def _elsewhere(self, root: Any) -> list[tuple[Path, Any]]:
        """The containers of a file in which the expected key is missing; says what was found instead."""
        file, is_plain = self.file, self.file.client == PLAIN.id
        if isinstance(root, list):
            found: list[tuple[Path, Any]] = [] if file.shared else [((), root)]
        elif _looks_like_server(root):
            stem = re.split(r"[\\/]", file.path)[-1].rsplit(".", 1)[0]
            return [] if file.shared else [((), {stem: root})]
        else:
            found = self._likely(root)
        expected = [" / ".join(template) for template in (PLAIN_CONTAINERS if is_plain else file.containers[:1])]
        if found and not (is_plain and not found[0][0]):
            self._read_all_the_same(found[0][0])
        if not found and not file.shared:
            keys = ", ".join(shown(str(key), 40) for key in list(root)[:12]) or "none"
            empty = [key for key in expected if self._at(key.split(" / "))]
            why = f"{empty[0]} is empty" if empty else f"none of the keys {', '.join(expected)} is there"
            self.problem("warning", f"no servers: {why}; the top-level keys are: {keys}")
        return found

    def _likely(self, root: Mapping[str, Any]) -> list[tuple[Path, Any]]:
        """Servers that do not stand where this file's client looks: under another's key, one that says servers, or at the top."""
        known = [pair for template in PLAIN_CONTAINERS for pair in self._containers(template)]
        spellings = {folded(template[-1]) for template in PLAIN_CONTAINERS}
        known += [((key,), value) for key, value in root.items() if value is not None and folded(key) in spellings]
        # Among settings of all kinds, only what holds servers is a container.
        if found := [pair for pair in known if not self.file.shared or _holds_servers(pair[1])]:
            return [self._inside(*found[0])]
        if self.file.shared:
            return []
        inner = [((*path, key), value[key]) for path, value in _objects(root) for key in value]
        if found := [pair for pair in inner if _says_servers(str(pair[0][-1])) and _holds_servers(pair[1])]:
            path, value = found[0]
            if isinstance(value, dict):
                value = {key: member for key, member in value.items() if isinstance(member, dict)}
            return [(path, value)]
        members = {key: value for key, value in root.items() if isinstance(value, dict) and not key.startswith("$")}
        return [((), members)] if _holds_servers(members) else []

    def _inside(self, path: Path, value: Any) -> tuple[Path, Any]:
        """The container at `path`, or the one within it: {"mcp": {"mcpServers": …}}."""
        if isinstance(value, dict) and not _holds_servers(value):
            for key, member in value.items():
                if _says_servers(key) and _holds_servers(member):
                    self._read_all_the_same((*path, key))
                    return (*path, key), member
        return path, value

    def _read_all_the_same(self, path: Path) -> None:
        place = f"under {_pointed(path)}" if path else "at the top level"
        if self.file.client == PLAIN.id:
            self.problem("warning", f"the servers {place} were read, where no client looks for them", path)
        else:
            expected = " / ".join(self.file.containers[0])
            self.problem(
                "warning",
                f"{self.client.title} looks for servers under {expected}; those {place} were read all the same",
            )

    def _containers(self, template: Sequence[str]) -> list[tuple[Path, Any]]:
        """Where `template` leads, and what is there: nothing, one container, or one for each spelling of a project's path."""
        if "{project}" not in template:
            container = self._at(template)
            return [] if container is None or container[1] is None else [container]
        index = template.index("{project}")
        projects = self._at(template[:index])
        if projects is None or not isinstance(projects[1], dict):
            return []
        wanted = {self._comparable(folder) for folder in self.file.projects}
        keys = [key for key in projects[1] if self._comparable(key) in wanted]
        return [pair for key in keys for pair in self._containers((*template[:index], key, *template[index + 1 :]))]

    def _comparable(self, folder: str) -> str:
        return ntpath.normcase(ntpath.normpath(folder)) if self.file.windows else posixpath.normpath(folder)

    def _at(self, path: Sequence[str]) -> tuple[Path, Any] | None:
        """The path and value that `path` leads to, where {"a.b": …} counts as {"a": {"b": …}}, as in the settings of editors."""
        value = self.document.value
        if isinstance(value, dict) and len(path) > 1 and ".".join(path) in value:
            return (".".join(path),), value[".".join(path)]
        for key in path:
            if not isinstance(value, dict) or key not in value:
                return None
            value = value[key]
        return tuple(path), value

    def container(self, path: Path, value: Any, level: Level) -> None:
        """Read the servers in one object or array."""
        if isinstance(value, dict):
            members = [(name, (*path, name), raw) for name, raw in value.items()]
            if path == () and len(members) == 1 and members[0][2] is self.document.value:
                members = [(members[0][0], (), members[0][2])]  # the file as a whole is one server
        elif isinstance(value, list):
            members = []
            for index, raw in enumerate(value):
                name = raw.get("name") if isinstance(raw, dict) else None
                name = name if isinstance(name, str) else f"server {index + 1}"
                members.append((name, (*path, index), raw))
        else:
            self.problem("error", f"{_pointed(path)} is not an object of servers", path)
            return
        for name, inner, raw in members:
            self._member(name, inner, raw, level, in_array=isinstance(value, list))

    def _member(self, name: str, path: Path, raw: Any, level: Level, *, in_array: bool) -> None:
        origin = Origin(
            client=self._client_id,
            level=level,
            file=self.file.path,
            line=self.document.line(path),
            pointer="".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path),
            workspace=self.file.workspace,
        )
        try:
            if not isinstance(raw, dict):
                hint = ': write {"url": …} or {"command": …, "args": […]}' if isinstance(raw, str) else ""
                raise Unusable(f"is not an object{hint}", is_error=True)
            if self.client.layered and name in self._beneath:
                raw = _layered(self._beneath[name], raw)
            self._raw[name] = raw
            skipped = frozenset({"name"}) if in_array else frozenset[str]()
            self._entries.append(EntryReader(self.client, name, raw, origin, self.file.windows, skipped).read())
        except Unusable as reason:
            self._ignored.append(Ignored(name=name, origin=origin, reason=str(reason), is_error=reason.is_error))


def _layered(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` laid over `below`: objects are merged member by member, everything else is replaced."""
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        merged[key] = {**under, **value} if isinstance(under, dict) and isinstance(value, dict) else value
    return merged


def _looks_like_server(value: Any) -> bool:
    return isinstance(value, dict) and (
        any(key in value for key in ("command", "cmd", "url", "uri", "httpUrl", "serverUrl"))
        or _looks_like_server(value.get("transport"))
    )


def _holds_servers(value: Any) -> bool:
    """Whether `value` is an object or array with at least one server in it."""
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(map(_looks_like_server, members))


def _says_servers(key: str) -> bool:
    return "mcp" in key.lower() or "server" in key.lower() or "contextprotocol" in key.lower()


def _objects(root: Mapping[str, Any]) -> list[tuple[Path, Mapping[str, Any]]]:
    """`root` and the objects right within it."""
    return [((), root), *(((key,), value) for key, value in root.items() if isinstance(value, dict))]


def _pointed(path: Path) -> str:
    return shown(" / ".join(map(str, path)), 120) or "the file"
