"""Runs scenarios of the official conformance suite and turns its result files into something a person can act on.

By hand, with one scenario, several separated by commas, or ``required`` for all that a version requires::

    python tests/conformance/run.py server tools-list 2026-07-28 http://127.0.0.1:8000/mcp
    python tests/conformance/run.py client required 2026-07-28 python examples/conformance_client.py

The suite's exit code is not the verdict here: it is 0 for a scenario that it skipped and, against a server, for one with warnings.
The verdict is its ``checks.json``: at least one check, no FAILURE, and no WARNING (a SHOULD that we do not meet).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests"))  # For those who run this file.

from peers.provision import NODE  # noqa: E402

Side = Literal["client", "server"]

SUITE = NODE.path / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
PRELOADED = Path(__file__).resolve().with_name("close_at_once.cjs")
# Far above what any scenario takes on a busy machine; it bounds one that hangs.
SCENARIO_TIMEOUT_S = 180.0
SUITE_TIMEOUT_S = 600.0
CLIENT_TIMEOUT_S = 90.0


@dataclass(frozen=True, slots=True)
class Check:
    """One line of a scenario's verdict, as the suite wrote it."""

    id: str
    name: str
    status: Literal["SUCCESS", "FAILURE", "WARNING", "SKIPPED", "INFO"]
    description: str
    error: str
    details: Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one scenario.

    Attributes:
        scenario: Its name.
        spec_version: The protocol version that it ran at.
        checks: All its checks; empty if it did not run.
        exit_code: The suite's, or None if it did not end in time.
        output: What the suite printed.
        client_output: What the client under test printed, standard error last.
    """

    scenario: str
    spec_version: str
    checks: tuple[Check, ...]
    exit_code: int | None
    output: str
    client_output: str = ""

    @property
    def objections(self) -> tuple[Check, ...]:
        """The checks that were not met."""
        return tuple(check for check in self.checks if check.status in {"FAILURE", "WARNING"})

    @property
    def passed(self) -> bool:
        """Whether the scenario ran, ended in time, and found nothing to object to."""
        ran = any(check.status == "SUCCESS" for check in self.checks)
        return ran and self.exit_code is not None and not self.objections

    def explain(self) -> str:
        """The verdict in words: the checks that were not met, or why there are none."""
        title = f"{self.scenario} at {self.spec_version}: "
        if self.passed:
            return f"{title}{sum(check.status == 'SUCCESS' for check in self.checks)} checks passed"
        if self.exit_code is None:
            reason = "did not end in time"
        elif not self.checks:
            reason = f"did not run (exit code {self.exit_code})"
        elif not self.objections:
            reason = "checked nothing"
        else:
            reason = f"{len(self.objections)} of {len(self.checks)} checks not met"
        lines = [title + reason]
        for check in self.objections:
            lines.append(f"  {check.status} {check.id}: {check.error or check.description}")
            lines.append(f"    {json.dumps(check.details, ensure_ascii=False)[:1500]}")
        if not self.objections:
            lines.extend(f"  | {line}" for line in self.output.splitlines()[-20:])
        lines.extend(f"  client | {line}" for line in self.client_output.splitlines()[-20:])
        return "\n".join(lines)


def run_server_scenario(scenario: str, spec_version: str, url: str) -> Outcome:
    """Lets the suite act as a client of the server at ``url``, on the loopback interface."""
    return _run("server", scenario, spec_version, ["--url", url, *_forced("server", scenario, spec_version)])


def run_server_scenarios(spec_version: str, url: str) -> dict[str, Outcome]:
    """Lets the suite run everything that applies at a version, in one process, which is several times faster than one by one.

    Returns what came of each scenario by its name. One that did not come to an end is missing.
    """
    return _run_suite("all", spec_version, url, ["--spec-version", spec_version])


def run_server_extensions(url: str) -> dict[str, Outcome]:
    """The same for the extensions, which belong to no version and stand in a suite of the suite's with what else is not settled."""
    return _run_suite("pending", "no version", url, [])


def _run_suite(name: str, spec_version: str, url: str, options: Sequence[str]) -> dict[str, Outcome]:
    with tempfile.TemporaryDirectory(prefix="outrider-conformance-") as directory:
        arguments = ["server", "--suite", name, *options, "--url", url, "--output-dir", directory]
        exit_code, output = _suite(arguments, SUITE_TIMEOUT_S)
        outcomes = {}
        for file in Path(directory).glob("server-*/checks.json"):
            scenario = re.sub(r"-\d{4}-\d\d-\d\dT[\d-]+Z$", "", file.parent.name.removeprefix("server-"))
            outcomes[scenario] = Outcome(scenario, spec_version, tuple(_read_checks(file)), exit_code, output)
        return outcomes


def run_client_scenario(scenario: str, spec_version: str, command: Sequence[str]) -> Outcome:
    """Lets the suite act as a server for a client, started as ``command`` followed by a URL.

    The client finds the scenario's name, the version to speak and, for some scenarios, what to do in the environment variables
    MCP_CONFORMANCE_SCENARIO, MCP_CONFORMANCE_PROTOCOL_VERSION and MCP_CONFORMANCE_CONTEXT (JSON).
    """
    timeout = str(int(CLIENT_TIMEOUT_S * 1000))
    arguments = ["--command", shlex.join(command), "--timeout", timeout]
    return _run("client", scenario, spec_version, [*arguments, *_forced("client", scenario, spec_version)])


def _forced(side: Side, scenario: str, spec_version: str) -> list[str]:
    """Extensions belong to no version, and the suite would skip them at any."""
    return ["--force"] if scenario in unscored_scenarios(side, spec_version) else []


@cache
def required_scenarios(side: Side, spec_version: str) -> frozenset[str]:
    """What the suite says a protocol version requires of one side."""
    return frozenset(_requirements(spec_version)[f"{side} scenarios"])


@cache
def unscored_scenarios(side: Side, spec_version: str) -> frozenset[str]:
    """What the suite also runs at a protocol version but requires of nobody."""
    listed = _requirements(spec_version)["run and reported, but never scored"]
    return frozenset(entry.removesuffix(f" [{side}]") for entry in listed if entry.endswith(f" [{side}]"))


@cache
def _requirements(spec_version: str) -> dict[str, list[str]]:
    """The entries of the suite's list of requirements, by the heading that they stand under."""
    listing = subprocess.run(
        [NODE.node, SUITE, "list", "--requirements", spec_version],
        capture_output=True,
        text=True,
        check=True,
        timeout=SCENARIO_TIMEOUT_S,
    )
    found: dict[str, list[str]] = {}
    heading = ""
    for line in listing.stdout.splitlines():
        if line and not line.startswith(" "):
            heading = line.partition(" (test against")[0].rstrip(":").lower()
        elif line.strip().startswith("- "):
            found.setdefault(heading, []).append(line.strip().removeprefix("- "))
    return found


def _run(side: Side, scenario: str, spec_version: str, arguments: Sequence[str]) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="outrider-conformance-") as directory:
        chosen = [side, "--scenario", scenario, "--spec-version", spec_version, "--output-dir", directory]
        exit_code, output = _suite([*chosen, *arguments], SCENARIO_TIMEOUT_S)
        results = Path(directory)
        return Outcome(
            scenario,
            spec_version,
            tuple(check for file in results.rglob("checks.json") for check in _read_checks(file)),
            exit_code,
            output,
            "".join(file.read_text(encoding="utf-8") for name in CLIENT_FILES for file in results.rglob(name)),
        )


def _suite(arguments: Sequence[str], timeout_s: float) -> tuple[int | None, str]:
    """Runs the suite and returns its exit code, None if it had to be ended, and all that it printed."""
    process = subprocess.Popen(
        [str(NODE.node), "--require", str(PRELOADED), str(SUITE), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        # With its group, because a client under test is its child.
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return None, output
    return process.returncode, output


CLIENT_FILES = ("stdout.txt", "stderr.txt")


def _read_checks(file: Path) -> list[Check]:
    return [
        Check(
            id=entry["id"],
            name=entry["name"],
            status=entry["status"],
            description=entry["description"],
            error=entry.get("errorMessage") or "",
            details=entry.get("details"),
        )
        for entry in json.loads(file.read_text(encoding="utf-8"))
    ]


def main(arguments: Sequence[str]) -> int:
    """Runs scenarios as the command line says, prints each verdict, and returns 1 if one failed."""
    if len(arguments) < 4 or arguments[0] not in ("client", "server"):
        print(__doc__, file=sys.stderr)
        return 2
    side: Side = "client" if arguments[0] == "client" else "server"
    names, spec_version, *subject = arguments[1:]
    scenarios = sorted(required_scenarios(side, spec_version)) if names == "required" else names.split(",")
    failed = 0
    for scenario in scenarios:
        if side == "server":
            outcome = run_server_scenario(scenario, spec_version, subject[0])
        else:
            outcome = run_client_scenario(scenario, spec_version, subject)
        failed += not outcome.passed
        print("ok  " if outcome.passed else "FAIL", outcome.explain(), flush=True)
    print(f"{len(scenarios) - failed} of {len(scenarios)} scenarios passed")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
