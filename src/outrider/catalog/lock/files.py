"""The lock file on disk: read whole or not at all, and changed so that nothing is lost.

Decided here: that the old file stands until the new one is complete, and that of two writers each builds on what the other wrote.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from outrider.catalog.lock.document import Lock
from outrider.errors import ConfigError

__all__ = ["change_lock", "read_lock"]

_MAX_BYTES: Final = 256 * 1024 * 1024


def read_lock(path: Path) -> Lock:
    """The lock file at `path`.

    Raises:
        ConfigError: there is none, or it cannot be used.
    """
    text = _read(path)
    if text is None:
        raise ConfigError("there is no lock file", source=str(path), hint="`outrider lock` writes one")
    return Lock.parse(text, source=str(path))


def change_lock(path: Path, change: Callable[[Lock | None], Lock]) -> bool:
    """Change the lock file, or begin one; whether that wrote anything.

    Args:
        path: where it is, or is to be.
        change: makes the new lock from the one that stands there at that moment, None if there is none. What it raises leaves the file
            as it is.

    Raises:
        ConfigError: the present file cannot be used, or nothing can be written there.
    """
    target = Path(os.path.realpath(path))
    try:
        with _alone_in(target.parent):
            text = _read(target, shown=path)
            new = change(None if text is None else Lock.parse(text, source=str(path))).render()
            if new == text:
                return False
            _replace(target, new.encode())
            return True
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", source=str(path)) from error


def _read(path: Path, *, shown: Path | None = None) -> str | None:
    source = str(shown or path)
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", source=source) from error
    if len(data) > _MAX_BYTES:
        raise ConfigError(f"is larger than {_MAX_BYTES >> 20} MiB", source=source)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError("is not UTF-8 text", source=f"{source}:{line}") from error


def _replace(path: Path, data: bytes) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileNotFoundError):
            os.chmod(draft, stat.S_IMODE(path.stat().st_mode))
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Keep other Outriders from changing a lock file in this folder meanwhile, where the system can; it leaves no file behind."""
    try:
        import fcntl
    except ImportError:  # pragma: no cover - no Windows here
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # Some network volumes cannot.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
