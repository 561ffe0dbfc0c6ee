"""The benchmark of the server runs; what it finds is never judged here, because tests share their machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from peers.provision import NODE, PYTHON_MODERN

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "server.py"
TIMEOUT_S = 600

pytestmark = pytest.mark.slow


def test_server_benchmark_reports_every_measure_as_json() -> None:
    """Ours: each measure has a positive value for each contender that is installed."""
    tiny = ("--rounds", "1", "--seconds", "0.2", "--json")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *tiny], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    measures = {measure["name"]: measure for measure in result["measures"]}
    peers = {
        *(["official SDK", "FastMCP"] if PYTHON_MODERN.is_ready else []),
        *(["TypeScript SDK"] if NODE.is_ready else []),
    }
    assert set(measures["HTTP server/discover"]["values"]) == {"Outrider", "bare ASGI", *peers}
    assert set(measures["stdio discover, pipelined"]["values"]) == {"Outrider", *peers}
    assert "Outrider" in measures["tools/call in the app alone"]["values"]
    assert min(value for m in measures.values() for value in m["values"]["Outrider"]) > 0
    assert result["machine"]["cores"] > 0
