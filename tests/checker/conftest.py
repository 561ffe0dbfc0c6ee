"""The model server, running."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().with_name("model_server.py")


@pytest.fixture(scope="session")
def model_command() -> list[str]:
    """The command of the model server, without its arguments; isolated and without site packages, so that it is up at once."""
    return [sys.executable, "-I", "-S", str(PROGRAM)]


@pytest.fixture(scope="module")
def model_url(model_command: list[str]) -> Iterator[str]:
    """The model server over HTTP; `/FLAVOUR/MUTATION` is to be added."""
    with subprocess.Popen(
        [*model_command, "http"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.stdin.close()
            process.wait(10)
