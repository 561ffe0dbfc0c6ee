"""The benchmark of the client runs; what it finds is never judged here, because tests share their machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from peers.provision import PYTHON_MODERN

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "benchmarks" / "client.py"
TINY = ("--rounds", "1", "--calls", "64", "--servers", "3")
TIMEOUT_S = 300

pytestmark = pytest.mark.slow


def run_benchmark(*arguments: str) -> str:
    """What one run with tiny counts writes on stdout."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *TINY, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_client_benchmark_reports_every_measure_as_json() -> None:
    """Ours: each measure has a positive value for each contender that is installed, with machine and versions beside them."""
    result = json.loads(run_benchmark("--json"))
    measures = {measure["name"]: measure for measure in result["measures"]}
    contenders = {"Outrider", "bare aiohttp", *(["official SDK"] if PYTHON_MODERN.is_ready else [])}
    for name in ("discover calls, 32 at once", "another client, first answer", "3 servers of 20 tools, peak memory"):
        assert set(measures[name]["values"]) == contenders
        assert set(measures[name]["ratios"]) == contenders - {"Outrider"}
    assert "Outrider" in measures["import"]["values"]
    values = [value for measure in measures.values() for one in measure["values"].values() for value in one]
    assert min(values) > 0
    assert result["machine"]["cores"] > 0
    assert len(result["machine"]["loadAverage"]) == len(result["loadAverageAfter"]) == 3
    assert result["versions"]["outrider-mcp"]


def test_client_benchmark_shows_a_table() -> None:
    """Ours: without --json, a Markdown table whose rows all have as many cells as its head."""
    lines = [line for line in run_benchmark("--only", "many").splitlines() if line.startswith("|")]
    assert lines[0].startswith("| what | unit | Outrider |")
    assert len(lines) == 5
    assert {line.count("|") for line in lines} == {lines[0].count("|")}
