"""What every test shares: peers on demand, skips that count, and a look for processes left behind."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from fakes.model import fake_model
from fakes.running import fake_http, fake_stdio
from peers.provision import Environment, Service
from peers.registry import Peer, serving

# Properties are judged by what they find, not by how fast a busy machine finds it; in CI every run tries the same examples.
settings.register_profile(
    "unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("unhurried")

# Fixtures that live beside what they run.
__all__ = ["fake_http", "fake_model", "fake_stdio"]

# Servers shared by many tests stay until the session ends, so the look for leaks leaves these processes alone.
KEPT_PROCESSES = pytest.StashKey[set[int]]()
# What a real model did, for the report at the end: its id, the task, the tools that it needs, the answer.
MODEL_REPORT = pytest.StashKey[list[tuple[str, str, frozenset[str], Any]]]()
# How long a process that a test ended may take to be gone.
LEAK_GRACE_S = 10.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--no-skips",
        action="store_true",
        default=os.environ.get("OUTRIDER_NO_SKIPS") == "1",
        help="report every skipped test as failed (also OUTRIDER_NO_SKIPS=1)",
    )
    parser.addoption(
        "--model",
        metavar="URL",
        help="run only the tasks for a model, against this OpenAI-compatible endpoint (key: OPENAI_API_KEY)",
    )
    parser.addoption(
        "--model-id", metavar="ID", help="the model there (also OUTRIDER_MODEL; else the first that it lists)"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[KEPT_PROCESSES] = set()
    # A shell starts background jobs with SIGINT ignored, and every process they start inherits that; the tests of Ctrl-C need it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[MODEL_REPORT] = []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of a real model run alone, and only when one is named: there is nothing to skip where there is no model."""
    wanted = bool(config.getoption("--model"))
    left_out = [item for item in items if (item.get_closest_marker("model") is not None) is not wanted]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Which tools a real model reached."""
    rows = config.stash[MODEL_REPORT]
    if not rows:
        return
    terminalreporter.section(f"what {rows[0][0]} did")
    for _, task, needs, answer in rows:
        reached = set(answer.tools_reached)
        verdict = "all" if reached >= needs else f"{len(reached & needs)} of {len(needs)}"
        more = f", and {', '.join(sorted(reached - needs))}" if reached - needs else ""
        terminalreporter.write_line(
            f"{task:<20} {answer.stopped:<9} needed {', '.join(sorted(needs)) or 'nothing'}: {verdict} reached{more}"
        )
        terminalreporter.write_line(f"{'':<20} {answer.turns} turns, {answer.ledger}; {answer.text[:150]!r}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    # An expected failure is reported as skipped too, but it did run.
    if report.skipped and not hasattr(report, "wasxfail") and item.config.getoption("--no-skips"):
        count_as_failure(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.skipped and collector.config.getoption("--no-skips"):
        count_as_failure(report)
    return report


@pytest.fixture
def model_report(request: pytest.FixtureRequest) -> list[Any]:
    """The rows of the report of what a real model did."""
    return request.config.stash[MODEL_REPORT]


def count_as_failure(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turns a skip into a failure that keeps its reason."""
    reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
    report.outcome = "failed"
    report.longrepr = f"{reason} (skips count as failures in this run)"


@pytest.fixture(autouse=True)
def _no_process_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Ours: a test ends with the child processes with which it began."""
    kept = request.config.stash[KEPT_PROCESSES]
    before = running_children()
    yield
    left = running_children() - before - kept
    survivors = {process: describe(process) for process in outlive(left, LEAK_GRACE_S)}
    for process in survivors:
        os.kill(process, signal.SIGKILL)
    if survivors:
        pytest.fail("left running: " + "; ".join(f"{pid} {what}" for pid, what in survivors.items()))


def running_children() -> set[int]:
    """The processes that this one started and that still run, where the system tells (Linux)."""
    found: set[int] = set()
    for listing in Path("/proc/self/task").glob("*/children"):
        try:
            found.update(int(process) for process in listing.read_text().split())
        except FileNotFoundError:  # The thread ended in between.
            continue
    return {process for process in found if is_running(process) and not belongs_to_python(process)}


def is_running(process: int) -> bool:
    """Tells whether a process has not exited yet; one that nobody waited for counts as exited."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def belongs_to_python(process: int) -> bool:
    """Tells whether a process is one that the multiprocessing module keeps for the life of this process."""
    return "multiprocessing.resource_tracker" in describe(process)


def outlive(processes: set[int], grace_s: float) -> set[int]:
    """Those of some child processes that have not exited when the grace period is over."""
    deadline = time.monotonic() + grace_s
    waiting: dict[int, int] = {}
    for process in processes:
        try:
            waiting[os.pidfd_open(process)] = process
        except ProcessLookupError:
            continue
    try:
        while waiting and (remaining := deadline - time.monotonic()) > 0:
            for descriptor in select.select(list(waiting), [], [], remaining)[0]:
                os.close(descriptor)
                del waiting[descriptor]
        return set(waiting.values())
    finally:
        for descriptor in waiting:
            os.close(descriptor)


def describe(process: int) -> str:
    """The command line of a process, shortened."""
    try:
        command = Path(f"/proc/{process}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return "(gone)"
    return command.replace(b"\0", b" ").decode(errors="replace")[:200]


@pytest.fixture(scope="session")
def environment() -> Callable[[Environment], Environment]:
    """A function that returns an installed environment of peers, or skips the test that asked for it."""

    def require(wanted: Environment) -> Environment:
        if not wanted.is_ready:
            pytest.skip(f"{wanted.name} is not installed, or not in the pinned versions: run ./dev setup --peers")
        return wanted

    return require


@pytest.fixture(scope="session")
def service() -> Callable[[Service], str]:
    """A function that returns the path of a service's program, or skips the test that asked for it."""

    def require(wanted: Service) -> str:
        program = wanted.find()
        if program is None:
            pytest.skip(f"none of {', '.join(wanted.programs)} is installed")
        return program

    return require


@pytest.fixture
def installed_peer(peer: Peer, environment: Callable[[Environment], Environment]) -> Peer:
    """The peer that the test is parametrized with, known to be installed."""
    environment(peer.environment)
    return peer


@pytest.fixture(scope="session")
def _serve_peer(request: pytest.FixtureRequest) -> Iterator[Callable[[Peer], str]]:
    kept = request.config.stash[KEPT_PROCESSES]
    urls: dict[str, str] = {}
    with ExitStack() as stack:

        def serve(peer: Peer) -> str:
            if peer.id not in urls:
                running = stack.enter_context(serving(peer))
                kept.add(running.process.pid)
                urls[peer.id] = running.url
            return urls[peer.id]

        yield serve


@pytest.fixture
def peer_url(installed_peer: Peer, _serve_peer: Callable[[Peer], str]) -> str:
    """The URL of the HTTP peer that the test is parametrized with. It runs until the session ends: do not break it."""
    return _serve_peer(installed_peer)
