"""`outrider discover`: one or many targets at once; a page for one, a table for many, one JSON object on request."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from outrider.cli import EXIT_FAILED, EXIT_OK, EXIT_SIGN_IN
from outrider.cli.targets import TargetCommand, client_options, named_targets, target_options
from outrider.cli.text import count, visible
from outrider.client.report import DiscoveryReport
from outrider.client.target import ClientOptions, Target

__all__ = ["discover", "discover_all", "exit_code", "show_reports"]

REPORTS_SCHEMA = "outrider.reports/1"


@click.command("discover", cls=TargetCommand)
@target_options
@click.option("--no-lists", is_flag=True, help="Ask what the server is, but do not read its lists.")
def discover(no_lists: bool, as_json: bool, **given: Any) -> int:
    """Find out what each TARGET is: era, versions, capabilities, extensions, identity, lists, tokens, cache, and why.

    A TARGET is a URL; a command comes after `--`. A page is shown for one target, a table for several.
    """
    targets = named_targets(**given)
    reports = asyncio.run(
        discover_all(
            [target for _, target in targets], client_options(**given), lists=not no_lists, progress=not as_json
        )
    )
    if as_json:
        write_json(reports)
    else:
        show_reports(reports)
    return exit_code(reports)


async def discover_all(
    targets: Sequence[Target], options: ClientOptions, *, lists: bool = True, progress: bool = False
) -> list[DiscoveryReport]:
    """Discover all targets at the same time; reports in the order of the targets. One slow target delays nothing but its own row."""
    from outrider.client.discover import discover as discover_one

    reports: list[DiscoveryReport | None] = [None] * len(targets)

    async def one(position: int, target: Target, done: Callable[[], None]) -> None:
        reports[position] = await discover_one(target, options=options, lists=lists)
        done()

    with _progress(len(targets), progress) as done:
        async with asyncio.TaskGroup() as group:
            for position, target in enumerate(targets):
                group.create_task(one(position, target, done))
    return [report for report in reports if report is not None]


class _progress:
    """A line on stderr that counts finished targets, when stderr is a terminal and there is something to wait for."""

    def __init__(self, total: int, wanted: bool) -> None:
        self._total = total
        self._shown = wanted and sys.stderr.isatty()
        self._done = 0

    def __enter__(self) -> Callable[[], None]:
        self._write()
        return self._step

    def __exit__(self, *_: object) -> None:
        if self._shown:
            click.echo("\r\x1b[K", nl=False, err=True)

    def _step(self) -> None:
        self._done += 1
        self._write()

    def _write(self) -> None:
        if self._shown:
            click.echo(f"\r\x1b[K{self._done} of {count(self._total, 'server')} answered …", nl=False, err=True)


def write_json(reports: Sequence[DiscoveryReport]) -> None:
    """One JSON object on stdout: the report of a single target, or `{"schema", "reports"}` for several."""
    import msgspec

    if len(reports) == 1:
        shown: dict[str, Any] = reports[0].as_json()
    else:
        shown = {"schema": REPORTS_SCHEMA, "reports": [report.as_json() for report in reports]}
    click.echo(msgspec.json.format(msgspec.json.encode(shown)).decode())


def exit_code(reports: Sequence[DiscoveryReport]) -> int:
    """0 if every target was discovered, 4 if nothing but sign-in is missing, else 1."""
    kinds = {report.failure.kind for report in reports if report.failure is not None}
    if not kinds:
        return EXIT_OK
    return EXIT_SIGN_IN if kinds == {"auth"} else EXIT_FAILED


def show_reports(reports: Sequence[DiscoveryReport], *, names: Sequence[str] = ()) -> None:
    """A page for one report, a table for several with the reasons of failure below."""
    from outrider.cli.render import print_page, print_table

    if len(reports) == 1:
        print_page(reports[0])
        return
    print_table(reports, names or [visible(report.target) for report in reports])
