"""Everything that is configured, found and put together.

Decided here: which files are read, which of several entries for one server or of one name counts, what the caller's targets select,
and that nothing a disk can do raises. Everything that is not used is said, with the reason. Not here: what a file means (`reading`),
when placeholders are filled in (`resolution`), how it is shown (`view`).
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from outrider.catalog.sources.clients import BY_ID, CLIENTS
from outrider.catalog.sources.entries import (
    Ignored,
    Problem,
    ServerEntry,
    assign_keys,
    command_entry,
    url_entry,
)
from outrider.catalog.sources.places import ConfigFile, Surroundings, describe_file, find_config_files
from outrider.catalog.sources.reading import ParsedConfig, read_config, read_servers
from outrider.catalog.sources.wording import closest, shown
from outrider.errors import ConfigError

__all__ = ["Configuration", "FileReport", "LocalFiles", "here", "load"]

MAX_FILE_BYTES: Final = 16 * 1024 * 1024
"""A config file. The largest in the field are clients' own state files of a few megabytes with the servers somewhere inside."""
_LEVELS: Final = ("given", "local", "project", "user", "system")
_CLIENT_ORDER: Final = {client.id: index for index, client in enumerate(CLIENTS)}

FileStatus = Literal["read", "missing", "unreadable", "broken"]


class FileReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one place.

    Attributes:
        servers: how many entries it holds, used or not.
        message: why it is unreadable or broken, or "".
    """

    file: ConfigFile
    status: FileStatus
    servers: int = 0
    message: str = ""


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """All servers of one user in one place.

    Attributes:
        entries: unique keys, most specific level first, then in the order of the client table; disabled ones are included.
        files: every place that was looked at.
        ignored: entries that are no servers, or that others replace, with the reason.
        problems: what the user should know about files and targets.
    """

    entries: tuple[ServerEntry, ...] = ()
    files: tuple[FileReport, ...] = ()
    ignored: tuple[Ignored, ...] = ()
    problems: tuple[Problem, ...] = ()

    def find(self, name: str) -> list[ServerEntry]:
        """The entries that `name` can mean: the one whose key it is, or else all that are called so."""
        by_key = [entry for entry in self.entries if entry.key == name]
        return by_key or [entry for entry in self.entries if entry.name == name]


class LocalFiles:
    """The disk of this machine."""

    def exists(self, path: str) -> bool:
        """Whether something is at `path`."""
        try:
            return os.path.lexists(path)
        except (OSError, ValueError):
            return False

    def names(self, folder: str) -> list[str]:
        """The names in `folder`, or none."""
        try:
            return os.listdir(folder)
        except (OSError, ValueError):
            return []

    def read(self, path: str, limit_bytes: int) -> bytes:
        """The contents of a regular file; never waits, as opening a pipe would.

        Raises:
            OSError: as the system says; EFBIG above `limit_bytes`, EISDIR for a folder, EINVAL for anything else that is no file.
        """
        # Looked at before it is opened: opening a device can have effects, and on Windows opening a folder is refused as "denied".
        try:
            self._require_file(os.stat(path))
            descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        except ValueError as error:  # a path with a NUL character
            raise OSError(errno.EINVAL, "is not a possible path") from error
        with os.fdopen(descriptor, "rb") as file:
            self._require_file(os.fstat(file.fileno()))
            data = file.read(limit_bytes + 1)
        if len(data) > limit_bytes:
            raise OSError(errno.EFBIG, f"is larger than {limit_bytes // 1024:,} KiB")
        return data

    @staticmethod
    def _require_file(status: os.stat_result) -> None:
        if stat.S_ISDIR(status.st_mode):
            raise OSError(errno.EISDIR, "is a folder")
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "is not a regular file")


def here() -> Surroundings:
    """The surroundings of this process."""
    platform: Literal["linux", "macos", "windows"] = "linux"
    if sys.platform == "win32":
        platform = "windows"
    elif sys.platform == "darwin":
        platform = "macos"
    return Surroundings(
        home=os.path.expanduser("~"), cwd=_working_folder(), platform=platform, env=dict(os.environ), files=LocalFiles()
    )


def _working_folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed under us
        return os.path.expanduser("~")


def load(
    sources: Iterable[str] | None = None,
    *,
    config_files: Sequence[str] = (),
    targets: Sequence[str | Sequence[str]] = (),
    servers: Mapping[str, Any] | None = None,
    where: Surroundings | None = None,
) -> Configuration:
    """Find and read all that is configured. Never raises for anything in a file, in a target or on a disk.

    Args:
        sources: ids of clients whose files to look for. None means all, unless `config_files` or `servers` are given: whoever names
            what to read does not want more.
        config_files: paths of further files.
        targets: what to use, and nothing else: a server's key or name, a URL, a command as a list, a config file's path. None given
            means everything that is found.
        servers: servers from code, by name; see `read_servers`.
        where: the surroundings, or None for those of this process.

    Returns:
        A server defined in several files is one entry. Of entries of the same name in files of the same client the most specific
        counts; of different clients, all do, under different keys.

    Spec: ours
    """
    where = where or here()
    loader = _Loader(where)
    if sources is None and (config_files or servers is not None):
        sources = ()
    loader.read_found(sources, skip=not _needs_names(targets, where) and bool(targets))
    for path in config_files:
        loader.read_given(path)
    if servers is not None:
        loader.add(read_servers(servers, workspace=where.projects()[-1], windows=where.windows))
    return loader.finish(targets)


def _needs_names(targets: Sequence[str | Sequence[str]], where: Surroundings) -> bool:
    return any(isinstance(target, str) and not _is_url(target) and not _is_path(target, where) for target in targets)


def _is_url(target: str) -> bool:
    return target.lower().startswith(("http://", "https://"))


def _is_path(target: str, where: Surroundings) -> bool:
    """Whether a target is meant as a config file: it ends like one. A server called x.json can be addressed by its key."""
    return target.lower().endswith((".json", ".jsonc", ".toml", ".yaml", ".yml"))


class _Loader:
    def __init__(self, where: Surroundings) -> None:
        self._where = where
        self._reports: list[FileReport] = []
        self._entries: list[ServerEntry] = []
        self._ignored: list[Ignored] = []
        self._problems: list[Problem] = []

    def add(self, parsed: ParsedConfig) -> None:
        self._entries.extend(parsed.entries)
        self._ignored.extend(parsed.ignored)
        self._problems.extend(parsed.problems)

    def read_found(self, sources: Iterable[str] | None, *, skip: bool) -> None:
        """Read the files of the clients, and settle entries of one name within each."""
        wanted = list(_CLIENT_ORDER) if sources is None else list(dict.fromkeys(sources))
        for unknown in [source for source in wanted if source not in _CLIENT_ORDER]:
            close = closest(unknown, _CLIENT_ORDER, n=1)
            hint = f'; did you mean "{close[0]}"?' if close else f"; known are {', '.join(_CLIENT_ORDER)}"
            self._problems.append(Problem(severity="error", message=f'there is no client "{shown(unknown)}"{hint}'))
        if skip or not wanted:
            return
        found = find_config_files(self._where, clients=[client for client in _CLIENT_ORDER if client in wanted])
        families: dict[str, list[ConfigFile]] = {}
        for file in found:
            families.setdefault(BY_ID[file.client].family or file.client, []).append(file)
        for files in families.values():
            self._read_family(files)

    def _read_family(self, files: list[ConfigFile]) -> None:
        """Read the files of one client, least specific first, so that the others can be laid over them."""
        raw: dict[str, dict[str, Any]] = {}
        parsed: list[ParsedConfig] = []
        reports: list[FileReport] = []
        for file in reversed(files):
            report, config = self._read(file, raw)
            reports.append(report)
            parsed.append(config)
            raw |= config.raw
        self._reports.extend(reversed(reports))
        parsed.reverse()
        entries = [entry for config in parsed for entry in config.entries]
        ruling = {file.path for file in files if file.rules}
        entries.sort(key=lambda entry: (entry.origin.file not in ruling, entry.origin.level != "local"))
        used: dict[str, ServerEntry] = {}
        for entry in entries:
            winner = used.setdefault(entry.name, entry)
            if winner is entry:
                continue
            if winner.identity() == entry.identity():
                also_in = (*winner.also_in, entry.origin)
                used[entry.name] = msgspec.structs.replace(winner, also_in=also_in)
            else:
                reason = f"is replaced by the one in {winner.origin}"
                self._ignored.append(Ignored(name=entry.name, origin=entry.origin, reason=reason))
        self._entries.extend(_switched(used.values(), parsed))
        for config in parsed:
            self._ignored.extend(config.ignored)
            self._problems.extend(config.problems)

    def read_given(self, path: str) -> None:
        """Read a file that the caller named."""
        report, parsed = self._read(describe_file(path, self._where), {})
        self._reports.append(report)
        if report.status == "missing":
            self._problems.append(Problem(severity="error", message="there is no such file", source=report.file.path))
        self.add(msgspec.structs.replace(parsed, entries=tuple(_switched(parsed.entries, [parsed]))))

    def _read(self, file: ConfigFile, beneath: Mapping[str, Mapping[str, Any]]) -> tuple[FileReport, ParsedConfig]:
        try:
            parsed = read_config(self._where.files.read(file.path, MAX_FILE_BYTES), file, beneath=beneath)
        except FileNotFoundError:
            return FileReport(file=file, status="missing"), ParsedConfig()
        except NotADirectoryError:  # a file where a folder of the path should be: the place does not exist either
            return FileReport(file=file, status="missing"), ParsedConfig()
        except OSError as error:
            message = _REASONS.get(error.errno or 0) or error.strerror or "cannot be read"
            self._problems.append(Problem(severity="error", message=f"the file {message}", source=file.path))
            return FileReport(file=file, status="unreadable", message=message), ParsedConfig()
        except ConfigError as error:
            message = str(error).removeprefix(f"{error.source}: ") + (f"; {error.hint}" if error.hint else "")
            self._problems.append(Problem(severity="error", message=message, source=error.source))
            return FileReport(file=file, status="broken", message=message), ParsedConfig()
        return FileReport(file=file, status="read", servers=len(parsed.entries) + len(parsed.ignored)), parsed

    def finish(self, targets: Sequence[str | Sequence[str]]) -> Configuration:
        """Put everything in order, then select."""
        order = sorted(
            self._entries,
            key=lambda entry: (_LEVELS.index(entry.origin.level), _CLIENT_ORDER.get(entry.origin.client, -1)),
        )
        configured = self._configuration(_with_keys(_merged(order)))
        if not targets:
            return configured
        chosen: dict[str, ServerEntry] = {}
        for target in targets:
            for entry in self._select(target, configured):
                chosen.setdefault(entry.identity() + entry.name, entry)
        # Keys of configured servers stay what they are everywhere; entries made from targets fit in around them.
        configured_ids = {id(entry) for entry in configured.entries}
        kept = [entry for entry in chosen.values() if id(entry) in configured_ids]
        made = [entry for entry in chosen.values() if id(entry) not in configured_ids]
        return self._configuration((*kept, *_with_keys(made, taken=[entry.key for entry in kept])))

    def _configuration(self, entries: Iterable[ServerEntry]) -> Configuration:
        return Configuration(
            entries=tuple(entries),
            files=tuple(self._reports),
            ignored=tuple(self._ignored),
            problems=tuple(self._problems),
        )

    def _select(self, target: str | Sequence[str], configured: Configuration) -> Sequence[ServerEntry]:
        """The entries that one target means; none, and a problem, if it means nothing."""
        workspace = self._where.projects()[-1]
        if not isinstance(target, str):
            if not target:
                self._problems.append(Problem(severity="error", message="an empty command was given as a target"))
                return ()
            return (command_entry(target, workspace=workspace),)
        if _is_url(target):
            try:
                return (url_entry(target, workspace=workspace),)
            except ValueError as error:
                self._problems.append(Problem(severity="error", message=f"a target {error}"))
                return ()
        if found := configured.find(target):
            if len(found) > 1:
                keys = ", ".join(entry.key for entry in found)
                self._problems.append(
                    Problem(severity="error", message=f'"{shown(target)}" is the name of several servers: {keys}')
                )
                return ()
            return found
        if _is_path(target, self._where):
            before = len(self._entries)
            self.read_given(target)
            return _with_keys(_merged(self._entries[before:]))
        names = {entry.key for entry in configured.entries} | {entry.name for entry in configured.entries}
        close = closest(target, names, n=3)
        hint = f"; did you mean {' or '.join(map(shown, close))}?" if close else ""
        if ignored := [one for one in self._ignored if one.name == target]:
            hint = f": the entry in {ignored[0].origin} {ignored[0].reason}"
        self._problems.append(Problem(severity="error", message=f'there is no server "{shown(target)}"{hint}'))
        return ()


_REASONS: Final[Mapping[int, str]] = {
    errno.EACCES: "cannot be read: permission denied",
    errno.EPERM: "cannot be read: permission denied",
    errno.ELOOP: "is a symbolic link that leads to itself",
    errno.ENAMETOOLONG: "has a name that is too long",
}


def _switched(entries: Iterable[ServerEntry], parsed: Sequence[ParsedConfig]) -> list[ServerEntry]:
    """`entries`, switched off where these files' lists of servers say so: the most specific list of allowed ones, and all the others."""
    lists = [one for config in parsed for one in config.lists]
    allowed = [one for one in lists if one.is_allowed][:1]
    switched = list(entries)
    for one in (*(one for one in lists if not one.is_allowed), *allowed):
        switched = [one.switched(entry) for entry in switched]
    return switched


def _merged(entries: Sequence[ServerEntry]) -> list[ServerEntry]:
    """One entry per server: the first that is enabled, or the first; the others become places that define it too."""
    groups: dict[str, list[ServerEntry]] = {}
    for entry in entries:
        groups.setdefault(entry.identity(), []).append(entry)
    merged: list[ServerEntry] = []
    for group in groups.values():
        winner = next((entry for entry in group if not entry.disabled), group[0])
        others = [origin for entry in group if entry is not winner for origin in (entry.origin, *entry.also_in)]
        also_in = tuple(dict.fromkeys((*winner.also_in, *others)))
        # What one client calls SSE and another HTTP is tried both ways.
        transport = winner.transport if len({entry.transport for entry in group}) == 1 else "auto-http"
        merged.append(msgspec.structs.replace(winner, also_in=also_in, transport=transport))
    return merged


def _with_keys(entries: Sequence[ServerEntry], *, taken: Iterable[str] = ()) -> list[ServerEntry]:
    """`entries` with keys that are unique among them and `taken`."""
    fixed = [(key, "") for key in taken]
    keys = assign_keys([*fixed, *((entry.name, entry.origin.client) for entry in entries)])[len(fixed) :]
    return [msgspec.structs.replace(entry, key=key) for entry, key in zip(entries, keys, strict=True)]
