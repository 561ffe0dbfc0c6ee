"""The benchmark of the catalog runs, and the facts in it hold; its times are never judged here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "benchmarks" / "catalog.py"
TIMEOUT_S = 300
STDIO, HTTP = 3, 8

pytestmark = pytest.mark.slow


def marked_processes(mark: str) -> list[int]:
    """The processes whose environment holds a mark, whoever their parent is by now."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def run_benchmark(mark: str, *arguments: str) -> str:
    counts = ("--stdio", str(STDIO), "--http", str(HTTP))
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *counts, *arguments],
        env={**os.environ, "HOME": mark},  # One of the few variables that reach a server's process.
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_bad_servers_keep_no_good_one_from_being_ready(tmp_path: Path) -> None:
    """Ours: while one never answers, one has exited, one has listed 20,000 tools and one has lied, all others are ready."""
    result: dict[str, Any] = json.loads(run_benchmark(str(tmp_path), "--json"))
    assert result["servers"]["stdio"] == STDIO
    bad = result["besideBadOnes"]["bad"]
    assert bad["bad-silent"] == ["connecting", 0]
    assert bad["bad-exits"] == ["failed", 0]
    assert bad["bad-huge"][0] == "ready"
    assert bad["bad-huge"][1] > 1000
    assert bad["bad-lies"][1] <= 1, "what has no name and no schema is no tool, and one name is one tool"
    tools = {result[run]["tools"] for run in ("alone", "besideBadOnes", "secondStart")}
    assert len(tools) == 1
    assert tools.pop() >= 20 * HTTP + STDIO
    assert not marked_processes(str(tmp_path)), "left running"


def test_the_benchmark_shows_a_table(tmp_path: Path) -> None:
    """Ours: three rows and what the bad ones were."""
    out = run_benchmark(str(tmp_path))
    rows = [line for line in out.splitlines() if line.startswith("|")]
    assert len(rows) == 5
    assert {line.count("|") for line in rows} == {5}
    assert "bad-silent: connecting, 0 tools" in out
