"""A person at a terminal: a home of their own, a project they stand in, and the `outrider` command as a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import outrider.samples

SAMPLES = Path(outrider.samples.__file__).with_name("servers.py")
# Only a test that fails waits so long.
DEADLINE_S = 120.0


def sample(kind: str) -> dict[str, Any]:
    """The configuration entry of a bundled sample server."""
    return {"command": sys.executable, "args": ["-I", "-S", str(SAMPLES), kind]}


def entry(command: list[str], **members: Any) -> dict[str, Any]:
    """The configuration entry of a command."""
    return {"command": command[0], "args": command[1:], **members}


@dataclass(frozen=True)
class Done:
    """What came of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What is on stdout, which is one JSON value and nothing else."""
        return json.loads(self.out)

    @property
    def everything(self) -> str:
        return self.out + self.err


class User:
    """Runs commands in a project folder; nothing of the real user's home is read or written.

    Attributes:
        home: their home folder, cache and configuration included.
        project: the folder they stand in.
    """

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.project = self.home / "project"
        self.project.mkdir(parents=True)
        # No proxies, no XDG folders, no colours: what the person who runs the tests has set is not the test's.
        self.env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8", "PYTHONUTF8": "1"}

    def configure(self, servers: Mapping[str, Any], path: str = ".mcp.json", key: str = "mcpServers") -> Path:
        """Write a configuration file, by default the project's."""
        file = self.project / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({key: servers}), encoding="utf-8")
        return file

    def command(self, *arguments: str | Path) -> list[str]:
        return [sys.executable, "-m", "outrider", *map(str, arguments)]

    def start(self, argv: list[str], *, stdin: int = subprocess.DEVNULL, **env: str) -> subprocess.Popen[str]:
        """Start a program as this user does."""
        return subprocess.Popen(
            argv,
            cwd=self.project,
            env={**self.env, "COLUMNS": "80", **env},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )

    def run(self, *arguments: str | Path, columns: int = 80, **env: str) -> Done:
        """Run an `outrider` command to its end."""
        process = self.start(self.command(*arguments), COLUMNS=str(columns), **env)
        try:
            out, err = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
            process.wait()
        assert "Traceback (most recent call last)" not in err.replace("stderr: Traceback", ""), err
        return Done(process.returncode, out, err)
