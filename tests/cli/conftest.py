"""The user in whose place the commands are run."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.user import User


@pytest.fixture
def user(tmp_path: Path) -> User:
    """Somebody with an empty home."""
    return User(tmp_path)
