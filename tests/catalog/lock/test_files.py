"""The lock file on disk: never half written, never written over."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from catalog.lock.pinning import pinned
from outrider.catalog.lock import Lock, change_lock
from outrider.errors import ConfigError

LOCK = Lock({"a": pinned()})

ADDER = """
import sys
from pathlib import Path
from catalog.lock.pinning import pinned
from outrider.catalog.lock import Lock, change_lock
for number in range(5):
    change_lock(Path(sys.argv[1]), lambda now: (now or Lock()).replaced({f"{sys.argv[2]}-{number}": pinned()}))
"""


def test_writing_the_same_writes_nothing(tmp_path: Path) -> None:
    """Ours: and what is written is read back."""
    path = tmp_path / "outrider.lock"
    assert change_lock(path, lambda now: LOCK)
    assert not change_lock(path, lambda now: LOCK)
    assert Lock.load(path) == LOCK
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: the old file stands, and nothing else is left."""
    path = tmp_path / "outrider.lock"
    change_lock(path, lambda now: LOCK)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match="cannot be written: No space left"):
        change_lock(path, lambda now: Lock())
    assert Lock.load(path) == LOCK
    assert list(tmp_path.iterdir()) == [path]


def test_two_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    """Ours: each builds on what the other has written."""
    path = tmp_path / "outrider.lock"
    tests = Path(__file__).resolve().parents[2]
    writers = [
        subprocess.Popen([sys.executable, "-c", ADDER, str(path), name], env={**os.environ, "PYTHONPATH": str(tests)})
        for name in ("x", "y")
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    assert set(Lock.load(path).servers) == {f"{name}-{number}" for name in ("x", "y") for number in range(5)}


def test_mode_and_link_are_kept(tmp_path: Path) -> None:
    """Ours: a shared file stays shared, a link stays a link."""
    real = tmp_path / "real"
    change_lock(real, lambda now: Lock())
    assert stat.S_IMODE(real.stat().st_mode) & 0o600 == 0o600
    real.chmod(0o640)
    link = tmp_path / "outrider.lock"
    link.symlink_to(real)
    change_lock(link, lambda now: LOCK)
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert Lock.load(real) == LOCK


@pytest.mark.parametrize("content", [None, b"\n\xff\xfe", b"{}"])
def test_what_cannot_be_used_is_told_and_left(tmp_path: Path, content: bytes | None) -> None:
    """Ours: nothing is written over a file that cannot be read."""
    path = tmp_path / "outrider.lock"
    if content is None:
        with pytest.raises(ConfigError, match="there is no lock file"):
            Lock.load(path)
        return
    path.write_bytes(content)

    def never(now: Any) -> Lock:
        raise AssertionError

    with pytest.raises(ConfigError):
        change_lock(path, never)
    assert path.read_bytes() == content


def test_a_folder_that_does_not_exist_is_told(tmp_path: Path) -> None:
    """Ours."""
    with pytest.raises(ConfigError, match="cannot be written"):
        change_lock(tmp_path / "none" / "outrider.lock", lambda now: LOCK)
