"""The test harness itself: skips that count, processes left behind, and the developer commands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_S = 60.0

LEAVES_A_PROCESS = """
    import subprocess
    def test_it():
        subprocess.Popen(["sleep", "600"])
"""
TIDIES_UP_LATE = """
    import subprocess
    def test_it():
        subprocess.Popen(["cat"], stdin=subprocess.PIPE).stdin.close()
"""
SKIPS = """
    import pytest
    def test_it():
        pytest.skip("no such thing here")
"""
SKIPS_AS_A_WHOLE = """
    import pytest
    pytest.importorskip("no_such_module")
    def test_it():
        pass
"""
FAILS_AS_EXPECTED = """
    import pytest
    @pytest.mark.xfail(strict=True)
    def test_it():
        assert False
"""


def run_pytest(directory: Path, source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs one module of tests under this project's conftest and configuration, in a process of its own."""
    module = directory / "test_sample.py"
    module.write_text("\n".join(line[4:] for line in source.splitlines()), encoding="utf-8")
    quiet = ["-q", "-p", "no:cacheprovider", "-W", "ignore::ResourceWarning"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        "pyproject.toml",
        "-p",
        "conftest",
        *quiet,
        *arguments,
        str(module),
    ]
    environment = {name: value for name, value in os.environ.items() if name != "OUTRIDER_NO_SKIPS"}
    environment["PYTHONPATH"] = str(ROOT / "tests")
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


@pytest.mark.slow
def test_process_left_running_fails_the_test(tmp_path: Path) -> None:
    """Ours: every child process is gone when a test ends; the failure names what stayed."""
    result = run_pytest(tmp_path, LEAVES_A_PROCESS)
    assert result.returncode == 1
    assert "left running" in result.stdout
    assert "sleep 600" in result.stdout


@pytest.mark.slow
def test_process_that_ends_on_its_own_after_the_test_is_fine(tmp_path: Path) -> None:
    """Ours: what was asked to end gets a moment to do so."""
    result = run_pytest(tmp_path, TIDIES_UP_LATE)
    assert result.returncode == 0, result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("source", [SKIPS, SKIPS_AS_A_WHOLE], ids=["test", "module"])
def test_skip_is_a_failure_with_no_skips(source: str, tmp_path: Path) -> None:
    """Ours: --no-skips fails what would have been skipped, and keeps the reason."""
    lenient = run_pytest(tmp_path, source)
    assert "1 skipped" in lenient.stdout
    strict = run_pytest(tmp_path, source, "--no-skips")
    assert strict.returncode != 0
    assert "skips count as failures" in strict.stdout
    assert "no such thing here" in strict.stdout or "no_such_module" in strict.stdout


@pytest.mark.slow
def test_expected_failure_is_no_skip(tmp_path: Path) -> None:
    """Ours: --no-skips leaves tests alone that ran and failed as expected."""
    result = run_pytest(tmp_path, FAILS_AS_EXPECTED, "--no-skips")
    assert result.returncode == 0, result.stdout


def test_dev_needs_nothing_but_a_python() -> None:
    """Ours: ./dev runs with an empty environment and no virtual environment active."""
    minimal = {"PATH": os.defpath, "OUTRIDER_PYTHON": os.path.realpath(sys.executable)}
    result = subprocess.run(
        ["./dev", "help"], cwd=ROOT, env=minimal, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "test" in result.stdout


def test_dev_names_the_benchmarks_there_are() -> None:
    """Ours: a wrong name is answered with the right ones, and exit code 2."""
    result = subprocess.run(
        ["./dev", "bench", "no_such_benchmark"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert result.returncode == 2
    assert "no benchmark named 'no_such_benchmark'" in result.stderr
