"""`outrider discover`: one or many targets at once; a page for one, a table for many, one JSON object on request."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from outrider.cli import EXIT_FAILED, EXIT_OK, EXIT_SIGN_IN
from outrider.cli.streams import write_json
from outrider.cli.targets import TargetCommand, catalog_options, named_configs, target_options
from outrider.cli.text import count, visible
from outrider.errors import ConfigError

# The client and asyncio are loaded when there is something to discover: `--help` and a slip on the command line need neither.
if TYPE_CHECKING:
    from outrider.catalog.member import ServerConfig
    from outrider.client.report import DiscoveryReport
    from outrider.client.target import ClientOptions, Target

__all__ = ["discover", "discover_all", "discover_configs", "exit_code", "show_reports"]

REPORTS_SCHEMA = "outrider.reports/1"
_MAX_AT_ONCE = 64


@click.command("discover", cls=TargetCommand)
@target_options
@click.option("--no-lists", is_flag=True, help="Ask what the server is, but do not read its lists.")
def discover(no_lists: bool, as_json: bool, refresh: bool, **given: Any) -> int:
    """Find out what each TARGET is: era, versions, capabilities, extensions, identity, lists, tokens, cache, and why.

    A TARGET is a URL, the name of a configured server, or a configuration file; a command comes after `--`. Without one, every server is
    discovered that the user's and the project's configuration files name. A page is shown for one, a table for several.

    An answer counts as fresh for as long as its server says, and for ten minutes if it says nothing; --refresh asks in any case.
    """
    import asyncio

    configs, _ = named_configs(**given)
    reports = asyncio.run(discover_configs(configs, refresh=refresh, lists=not no_lists, progress=not as_json, **given))
    if as_json:
        write_reports(reports)
    else:
        show_reports(
            reports, names=[_shown_name(config, report) for config, report in zip(configs, reports, strict=True)]
        )
    return exit_code(reports)


def _shown_name(config: ServerConfig, report: DiscoveryReport) -> str:
    """A configured server's name; for what the command line itself names, the target: two URLs of one host are two rows."""
    return visible(report.target if config.is_given else config.name)


async def discover_configs(
    configs: Sequence[ServerConfig], *, refresh: bool, lists: bool, progress: bool, **given: Any
) -> list[DiscoveryReport]:
    """Discover what the command line means, with memory; reports in the order of the configs. A disabled server is a failure too."""
    from outrider.cache.memory import open_memory
    from outrider.client.discover import discover as discover_one
    from outrider.client.report import DiscoveryReport, Failure

    options = catalog_options(**given)
    async with open_memory(options.memory, policy=options.policy()) as memory:

        async def one(config: ServerConfig) -> DiscoveryReport:
            try:
                if config.disabled_because:
                    raise ConfigError(f"disabled: {config.disabled_because}")
                target = config.resolve()
            except ConfigError as error:
                failure = Failure("disabled" if config.disabled_because else "config", str(error), error.hint)
                return DiscoveryReport(target=config.label or config.name, transport="", failure=failure)
            client_options = config.options(options.client)
            report = await discover_one(target, options=client_options, lists=lists, memory=memory, refresh=refresh)
            report.warnings.extend(config.warnings)
            return report

        return await _all_at_once([partial(one, config) for config in configs], progress)


async def discover_all(
    targets: Sequence[Target], options: ClientOptions, *, progress: bool = False
) -> list[DiscoveryReport]:
    """Discover all targets at the same time, without memory; reports in the order of the targets."""
    from outrider.client.discover import discover as discover_one

    return await _all_at_once([partial(discover_one, target, options=options) for target in targets], progress)


async def _all_at_once(
    work: Sequence[Callable[[], Coroutine[Any, Any, DiscoveryReport]]], progress: bool
) -> list[DiscoveryReport]:
    """Run everything at the same time; one slow server delays nothing but its own row."""
    import asyncio

    gate = asyncio.Semaphore(_MAX_AT_ONCE)

    async def one(start: Callable[[], Coroutine[Any, Any, DiscoveryReport]]) -> DiscoveryReport:
        async with gate:
            report = await start()
        done()
        return report

    with _progress(len(work), progress) as done:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(start)) for start in work]
    return [task.result() for task in tasks]


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


def write_reports(reports: Sequence[DiscoveryReport]) -> None:
    """One JSON object on stdout: the report of a single target, or `{"schema", "reports"}` for several."""
    if len(reports) == 1:
        shown: dict[str, Any] = reports[0].as_json()
    else:
        shown = {"schema": REPORTS_SCHEMA, "reports": [report.as_json() for report in reports]}
    write_json(shown)


def exit_code(reports: Sequence[DiscoveryReport]) -> int:
    """0 if every target was discovered, 4 if nothing but sign-in is missing, else 1."""
    kinds = {report.failure.kind for report in reports if report.failure is not None} - {"disabled"}
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
