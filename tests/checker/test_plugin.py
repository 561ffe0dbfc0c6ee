"""The pytest plugin, in a pytest of its own."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path


def run_pytest(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_server.py").write_text(text)
    # The plugin may be installed under its name, or not: blocked and loaded by module, it is there exactly once.
    plugins = ("-p", "no:outrider", "-p", "outrider.checker.pytest_plugin", "-p", "no:cacheprovider")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        check=False,
    )


def test_fixture_passes_a_good_server_and_returns_the_report(model_command: list[str], tmp_path: Path) -> None:
    """Ours: a test may look at the report."""
    target = [*model_command, "stdio", "modern", "none"]
    done = run_pytest(
        tmp_path,
        f"def test_it(outrider_check):\n    assert outrider_check({target!r}, fail_on='should').eras == ('modern',)\n",
    )
    assert done.returncode == 0, done.stdout


def test_fixture_fails_with_the_findings(model_command: list[str], tmp_path: Path) -> None:
    """Ours: the failure says what is wrong and how to mend it, without a traceback of ours."""
    target = [*model_command, "stdio", "modern", "discover.ttl"]
    done = run_pytest(
        tmp_path,
        f"def test_it(outrider_check):\n    outrider_check({target!r})\n"
        f"def test_skip(outrider_check):\n    outrider_check({target!r}, skip=['discover.ttl'])\n",
    )
    assert done.returncode == 1
    assert "1 failed, 1 passed" in done.stdout
    assert "MUST discover.ttl" in done.stdout
    assert "pytest_plugin.py" not in done.stdout


def test_fixture_fails_when_nothing_answers(tmp_path: Path) -> None:
    """Ours: a server that is not there is not a good one."""
    done = run_pytest(tmp_path, "def test_it(outrider_check):\n    outrider_check('http://127.0.0.1:9/mcp')\n")
    assert done.returncode == 1
    assert "could not be checked" in done.stdout


def test_installing_gives_pytest_the_plugin() -> None:
    """Ours: the fixture is there without a line of configuration."""
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["entry-points"]["pytest11"] == {"outrider": "outrider.checker.pytest_plugin"}
