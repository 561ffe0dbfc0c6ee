"""The benchmark of tracing runs; what it finds is never judged here, because tests share their machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "tracing.py"
TIMEOUT_S = 300

pytestmark = pytest.mark.slow


def test_tracing_benchmark_reports_every_measure_in_every_state() -> None:
    """Ours: each measure has a positive value for each state, and says how many times as much it takes."""
    command = [sys.executable, str(SCRIPT), "--rounds", "1", "--count", "100", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert len(result["measures"]) == 5
    for measure in result["measures"]:
        assert set(measure["values"]) == set(measure["timesAsMuch"]) == {"not installed", "API alone", "SDK, in memory"}
        assert min(value for values in measure["values"].values() for value in values) > 0
        assert measure["timesAsMuch"]["not installed"] == 1
