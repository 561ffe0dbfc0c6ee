"""A disk in memory, for everything that takes a `FileSystem`."""

from __future__ import annotations

import errno
from collections.abc import Mapping

from outrider.catalog.sources import Surroundings


class MemoryFiles:
    """Files by absolute path; a value that is an OSError is raised when the file is read."""

    def __init__(self, files: Mapping[str, str | bytes | OSError], separator: str = "/") -> None:
        self._files = dict(files)
        self._separator = separator

    def exists(self, path: str) -> bool:
        return any(name == path or name.startswith(path + self._separator) for name in self._files)

    def names(self, folder: str) -> list[str]:
        below = folder + self._separator
        return sorted({name[len(below) :].split(self._separator)[0] for name in self._files if name.startswith(below)})

    def read(self, path: str, limit_bytes: int) -> bytes:
        content = self._files.get(path, FileNotFoundError(errno.ENOENT, "No such file or directory"))
        if isinstance(content, OSError):
            raise content
        data = content.encode() if isinstance(content, str) else content
        if len(data) > limit_bytes:
            raise OSError(errno.EFBIG, "is too large")
        return data


def linux(files: Mapping[str, str | bytes | OSError] | None = None, **env: str) -> Surroundings:
    """A user "u" on Linux, in the project /home/u/p, which is a repository."""
    return Surroundings(
        home="/home/u",
        cwd="/home/u/p",
        platform="linux",
        env=env,
        files=MemoryFiles({"/home/u/p/.git/HEAD": "", **(files or {})}),
    )


def macos(files: Mapping[str, str | bytes | OSError] | None = None, **env: str) -> Surroundings:
    """A user "u" on macOS, in the project /Users/u/p, which is a repository."""
    return Surroundings(
        home="/Users/u",
        cwd="/Users/u/p",
        platform="macos",
        env=env,
        files=MemoryFiles({"/Users/u/p/.git/HEAD": "", **(files or {})}),
    )


def windows(files: Mapping[str, str | bytes | OSError] | None = None, **env: str) -> Surroundings:
    r"""A user "u" on Windows, in the project C:\Users\u\p, which is a repository."""
    return Surroundings(
        home=r"C:\Users\u",
        cwd=r"C:\Users\u\p",
        platform="windows",
        env={"APPDATA": r"C:\Users\u\AppData\Roaming", "ProgramData": r"C:\ProgramData", **env},
        files=MemoryFiles({r"C:\Users\u\p\.git\HEAD": "", **(files or {})}, separator="\\"),
    )
