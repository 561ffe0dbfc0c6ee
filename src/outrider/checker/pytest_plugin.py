"""The pytest plugin: a fixture that checks a server and fails the test with what is wrong.

    def test_my_server(outrider_check):
        outrider_check(["python", "server.py"], fail_on="should", skip=["http.host"])

Decided here: how a report becomes a failed test. Not here: what is checked (`run`). Nothing of the checker is imported until the fixture
is used.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from outrider.checker.report import CheckReport

__all__ = ["outrider_check"]


@pytest.fixture
def outrider_check() -> Callable[..., CheckReport]:
    """A function that checks a server: `outrider_check(target, *, fail_on="must", skip=(), call=None, headers=None, env=None, cwd=None)`.

    It takes a URL, a command line or a command as a list; fails the test when the server cannot be reached, or when a rule of the level
    `fail_on` ("must", "should" or "never") or a stricter one is broken; and returns the report. It may be used in synchronous and
    asynchronous tests alike; while it runs, a server in the test's own event loop is not served.
    """
    return _check


def _check(
    target: str | Sequence[str],
    *,
    fail_on: str = "must",
    skip: Iterable[str] = (),
    call: Mapping[str, Mapping[str, Any]] | None = None,
    headers: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
) -> CheckReport:
    __tracebackhide__ = True
    from outrider.checker.requirements import Level
    from outrider.checker.run import CheckOptions, check

    level = None if fail_on == "never" else Level(fail_on)
    options = CheckOptions(skip=frozenset(skip), call=tuple((call or {}).items()))
    report = _run_apart(lambda: asyncio.run(check(target, options=options, headers=headers, env=env, cwd=cwd)))
    if report.failure is not None:
        pytest.fail(f"{report.target} could not be checked: {report.failure.message}", pytrace=False)
    broken = report.broken(level) if level is not None else []
    if broken:
        pytest.fail(_explain(report, broken), pytrace=False)
    return report


def _run_apart(work: Callable[[], CheckReport]) -> CheckReport:
    """Run on a thread of its own: the test's may have an event loop already."""
    done: list[CheckReport] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(work())
        except BaseException as error:  # Handed over to the test, whatever it is.
            failed.append(error)

    thread = threading.Thread(target=run, name="outrider check")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return done[0]


def _explain(report: CheckReport, broken: Sequence[Any]) -> str:
    lines = [f"{report.target} breaks {len(broken)} of the rules that it is held to:"]
    for finding in broken:
        rule = finding.requirement
        lines.append(f"- {rule.level.value.upper()} {rule.id}: {rule.rule}")
        lines.append(f"  {finding.message}")
        lines.append(f"  {rule.page} → {rule.fix}")
    return "\n".join(lines)
