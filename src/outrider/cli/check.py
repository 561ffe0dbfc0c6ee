"""`outrider check`: judge a server against the specification's requirements; text, JSON, JUnit, SARIF, Markdown.

Decided here: the command's arguments, how a report looks on a terminal, and its exit code. Not here: what is checked (`checker`).
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from outrider.cli import EXIT_CONFIG, EXIT_FAILED, EXIT_FOUND, EXIT_OK, EXIT_SIGN_IN
from outrider.cli.streams import write_json
from outrider.cli.targets import TargetCommand, client_options, named_configs, target_options
from outrider.cli.text import count, visible
from outrider.errors import ConfigError

if TYPE_CHECKING:
    from outrider.checker.report import CheckReport, Finding
    from outrider.checker.requirements import Level

__all__ = ["check"]

_FAIL_ON = ("must", "should", "never")
_STYLE = {"must": "red", "should": "yellow", "may": "cyan", "quality": "cyan"}


@click.command("check", cls=TargetCommand)
@target_options
@click.option("--junit", "junit_file", metavar="FILE", help="Also write the report as JUnit XML.")
@click.option("--sarif", "sarif_file", metavar="FILE", help="Also write the report as SARIF 2.1.0.")
@click.option("--markdown", "markdown_file", metavar="FILE", help="Also write the report as Markdown, with a badge.")
@click.option(
    "--fail-on",
    type=click.Choice(_FAIL_ON),
    default="must",
    show_default=True,
    help="Exit with 3 when a rule of this level or a stricter one is broken.",
)
@click.option("--skip", "skipped", multiple=True, metavar="ID", help="Leave this requirement out. Repeatable.")
@click.option(
    "--baseline", "baseline_file", metavar="FILE", help="What an earlier --json report found broken is known."
)
@click.option(
    "--call", "calls", multiple=True, metavar="NAME[=JSON]", help="Allow this tool to be called, with these arguments."
)
@click.option("--list", "show_list", is_flag=True, help="List all requirements and leave.")
@click.option("--explain", metavar="ID", help="Explain one requirement and leave.")
def check(
    junit_file: str | None,
    sarif_file: str | None,
    markdown_file: str | None,
    fail_on: str,
    skipped: tuple[str, ...],
    baseline_file: str | None,
    calls: tuple[str, ...],
    show_list: bool,
    explain: str | None,
    as_json: bool,
    verbose: bool,
    timeout_s: float | None,
    **given: Any,
) -> int:
    """Judge TARGET against what the specification requires of a server around discovery.

    One server, written with anything, over stdio or HTTP, of either era. Only what a harmless client may send is sent: nothing
    destructive, and no tool is called unless --call allows it.

    Exit code: 0 nothing at the level of --fail-on, 3 something, 1 the server could not be reached, 4 it asks for a sign-in.
    """
    if show_list:
        return _show_list(as_json)
    if explain is not None:
        return _explain(explain, as_json)
    import asyncio

    from outrider.checker.report import read_baseline
    from outrider.checker.run import CheckOptions
    from outrider.checker.run import check as run_check

    configs, _ = named_configs(**given)
    if len(configs) != 1:
        raise ConfigError(
            f"a check is of one server, and {len(configs)} are meant",
            hint="name a URL, a server, or a command after `--`",
        )
    times: dict[str, float] = {}
    if timeout_s is not None:
        times = {"start_timeout_s": timeout_s, "request_timeout_s": min(timeout_s, 10.0)}
    options = CheckOptions(
        call=tuple(_parse_call(text) for text in calls),
        skip=frozenset(skipped),
        client=client_options(timeout_s=timeout_s, verbose=verbose, protocol=given["protocol"]),
        **times,
    )
    known: frozenset[str] = frozenset()
    if baseline_file is not None:
        known = read_baseline(_read(baseline_file), source=baseline_file)
    report = asyncio.run(run_check(configs[0].resolve(), options=options)).against(known)
    level = _level(fail_on)
    _write_files(report, level, junit_file=junit_file, sarif_file=sarif_file, markdown_file=markdown_file)
    if as_json:
        write_json(report.as_json())
    else:
        _print(report)
    return _exit_code(report, level)


def _level(fail_on: str) -> Level | None:
    from outrider.checker.requirements import Level

    return None if fail_on == "never" else Level(fail_on)


def _exit_code(report: CheckReport, level: Level | None) -> int:
    if report.failure is not None:
        return EXIT_SIGN_IN if report.failure.kind == "auth" else EXIT_FAILED
    return EXIT_FOUND if level is not None and report.broken(level) else EXIT_OK


def _parse_call(text: str) -> tuple[str, dict[str, Any]]:
    name, found, arguments = text.partition("=")
    if not found:
        return name, {}
    try:
        value = json.loads(arguments)
    except ValueError as error:
        raise ConfigError(
            f"the arguments of --call {name} are not JSON", hint="such as --call 'add={\"a\":1}'"
        ) from error
    if not isinstance(value, dict):
        raise ConfigError(f"the arguments of --call {name} are not a JSON object")
    return name, value


def _read(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error


def _write_files(
    report: CheckReport,
    level: Level | None,
    *,
    junit_file: str | None,
    sarif_file: str | None,
    markdown_file: str | None,
) -> None:
    from outrider.checker.reports import render_junit, render_markdown, render_sarif

    wanted = (
        (junit_file, partial(render_junit, report, fail_on=level)),
        (sarif_file, partial(render_sarif, report)),
        (markdown_file, partial(render_markdown, report)),
    )
    for file, render in wanted:
        if file is not None:
            try:
                Path(file).write_text(render(), encoding="utf-8")
            except OSError as error:
                raise ConfigError(f"{file} cannot be written: {error.strerror}") from error


# -- the terminal --------------------------------------------------------------------------------------------------------------------


def _print(report: CheckReport) -> None:
    if report.failure is not None:
        click.echo(f"{visible(report.target)} could not be checked: {visible(report.failure.message)}", err=True)
        if report.failure.hint:
            click.echo(f"  → {visible(report.failure.hint)}", err=True)
        return
    head = visible(report.identity) or "a nameless server"
    click.echo(f"{head}, {report.transport}, {' and '.join(report.eras)}, protocol {visible(report.version)}")
    for note in report.notes:
        click.secho(f"note: {visible(note)}", fg="yellow")
    for finding in report.broken(known=True):
        _print_finding(finding)
    unclear = [finding for finding in report.findings if finding.verdict.value == "not verifiable"]
    if unclear:
        click.echo("\nnot verifiable:")
        for finding in unclear:
            click.echo(f"  {finding.requirement.id}: {visible(finding.message)}")
    counts = report.counts()
    summary = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
    click.echo(f"\n{summary}; {count(len(report.findings), 'requirement')} in {report.duration_ms / 1000:.1f} s")
    if any(report.broken(known=True)):
        click.echo("`outrider check --explain ID` says more about one; --json has the evidence")


def _print_finding(finding: Finding) -> None:
    rule = finding.requirement
    label = click.style(f"{rule.level.value.upper():8}", fg=_STYLE[rule.level.value], bold=True)
    known = " (known)" if finding.is_known else ""
    click.echo(f"\n{label}{rule.id}{known}: {rule.rule}")
    click.echo(f"        {visible(finding.message)}")
    click.echo(f"        {rule.page} → {rule.fix}")
    for shown in finding.evidence[:1]:
        for sign, text in ((">", shown.sent), ("<", shown.received)):
            for line in text.splitlines()[:8]:
                click.secho(f"        {sign} {visible(line)[:200]}", dim=True)


def _show_list(as_json: bool) -> int:
    from outrider.checker.requirements import REQUIREMENTS

    if as_json:
        import msgspec

        rows = [msgspec.to_builtins(rule) | {"url": rule.url} for rule in REQUIREMENTS]
        write_json({"schema": "outrider.requirements/1", "requirements": rows})
        return EXIT_OK
    longest = max(len(rule.id) for rule in REQUIREMENTS)
    for rule in REQUIREMENTS:
        click.echo(f"{rule.level.value.upper():8}{rule.id:{longest}}  {rule.rule} ({rule.applies.value})")
    return EXIT_OK


def _explain(requirement_id: str, as_json: bool) -> int:
    from outrider.checker.requirements import REQUIREMENTS, find_requirement

    rule = find_requirement(requirement_id)
    if rule is None:
        import difflib

        near = difflib.get_close_matches(requirement_id, [known.id for known in REQUIREMENTS], 3)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        click.echo(f"Error: there is no requirement {visible(requirement_id)!r}.{hint}", err=True)
        return EXIT_CONFIG
    if as_json:
        import msgspec

        write_json(msgspec.to_builtins(rule) | {"url": rule.url})
        return EXIT_OK
    click.echo(f"{rule.id}: {rule.rule}\n")
    for label, text in (
        ("Level", rule.level.value.upper()),
        ("Applies to", f"servers that are {rule.applies.value}"),
        ("Stands in", f"{rule.page}  {rule.url}".rstrip()),
        ("How it is tried", rule.how),
        ("Why it matters", rule.why),
        ("How to fix it", rule.fix),
    ):
        click.echo(f"{label:16} {text}")
    return EXIT_OK
