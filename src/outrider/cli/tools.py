"""`outrider tools`, `search`, `show` and `call`: the catalog on the command line."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import click

from outrider.cli import EXIT_FAILED, EXIT_OK
from outrider.cli.completion import complete_arguments, complete_servers, complete_tools
from outrider.cli.results import SaveFailed, save_files, show_result
from outrider.cli.streams import write_json
from outrider.cli.targets import (
    TargetCommand,
    asking_options,
    catalog_options,
    lock_options,
    locked,
    named_configs,
    target_options,
)
from outrider.cli.text import clip, count, visible
from outrider.errors import ConfigError, OutriderError

__all__ = ["call", "search", "show", "tools"]

T = TypeVar("T")

_LONGEST_WAIT_S = 60.0
_USUAL_WAIT_S = 10.0
"""For those who look for one tool: a server that never answers must not keep them from what the others have."""
_SILENT_S = 1.0
_FLAWS_TOLD = 3


def _with_catalog(work: Callable[[Any], Awaitable[T]], **given: Any) -> T:
    """Open the catalog that the command line means, wait for its servers, do the work, end everything."""
    import asyncio

    from outrider.catalog.catalog import Catalog

    lock = locked(**given)
    configs, _ = named_configs(**given)

    async def run() -> T:
        async with Catalog(configs, options=catalog_options(**given), **lock) as catalog:
            if given["refresh"]:
                await catalog.refresh()
            return await work(catalog)

    return asyncio.run(run())


def _told_state(catalog: Any) -> None:
    """On stderr: which servers could not be considered, and why."""
    for view in catalog.servers.values():
        if view.failure is not None and view.failure.kind != "disabled":
            rest = "; what was remembered is shown" if view.tools else ""
            click.echo(f"! {visible(view.name)}: {visible(view.failure.message)}{rest}", err=True)
        elif view.is_pending:
            click.echo(f"! {visible(view.name)} has not answered yet", err=True)
    tell_drifts(catalog)


def _tell_flaws(catalog: Any) -> None:
    """On stderr: which tools were left out or are not as they should be, and which lists are old ones; a few for each server."""
    for view in catalog.servers.values():
        flaws = [
            warning
            for warning in view.warnings
            if warning.startswith(("tools: ", "tools/list ", "the configuration names "))
        ]
        for flaw in flaws[:_FLAWS_TOLD]:
            click.echo(f"! {visible(view.name)}: {visible(flaw)}", err=True)
        if len(flaws) > _FLAWS_TOLD:
            more = count(len(flaws) - _FLAWS_TOLD, "more warning")
            click.echo(f"! {visible(view.name)}: {more}; `outrider discover {visible(view.key)}` has them", err=True)


def tell_drifts(catalog: Any) -> None:
    """On stderr: each thing that differs from the lock file, if one is enforced and drift is not let through."""
    for view in catalog.servers.values():
        # Of each thing the gravest: `outrider verify` tells the rest.
        gravest = {drift.subject: str(drift) for drift in reversed(view.drifts)}
        for warning in view.warnings:
            if any(warning.endswith(drift) for drift in gravest.values()):
                click.echo(f"! {visible(warning)}", err=True)


def _state_as_json(catalog: Any) -> list[dict[str, Any]]:
    from msgspec import to_builtins

    return [
        {
            "key": view.key,
            "name": view.name,
            "state": view.state.value,
            "failure": None if view.failure is None else {"kind": view.failure.kind, "message": view.failure.message},
            "tools": len(view.tools),
            "estimatedTokens": view.tokens,
            "warnings": list(view.warnings),
            "drifts": to_builtins(view.drifts),
        }
        for view in catalog.servers.values()
    ]


@click.command("tools", cls=TargetCommand)
@target_options
@lock_options
def tools(as_json: bool, **given: Any) -> int:
    """List the tools of each server, with about how many tokens each costs in a model's context."""

    async def work(catalog: Any) -> int:
        snapshot = await _ready(catalog, given["timeout_s"] or _LONGEST_WAIT_S)
        if as_json:
            from msgspec import Raw

            listed = [
                {"name": str(tool_id), "server": tool_id.server, "tool": Raw(bytes(tool.wire))}
                for tool_id, tool in snapshot.tools
            ]
            write_json({"schema": "outrider.tools/1", "servers": _state_as_json(catalog), "tools": listed})
            return EXIT_FAILED if snapshot.failed or snapshot.pending else EXIT_OK
        from outrider.client.report import estimated_tokens

        columns = _columns()
        for view in snapshot.servers.values():
            if not view.tools:
                continue
            click.secho(
                f"{visible(view.name)}  ({count(len(view.tools), 'tool')}, about {view.tokens:,} tokens)", bold=True
            )
            wide = min(max(len(tool.name) for tool in view.tools), 44)
            for tool in view.tools:
                name = clip(visible(tool.name), wide)
                text = clip(visible(tool.description or tool.title), max(columns - wide - 12, 20))
                click.echo(
                    f"  {click.style(name.ljust(wide), fg='cyan')}  {estimated_tokens(tool):>6,}  {text}".rstrip()
                )
            click.echo()
        click.echo(
            f"{count(len(snapshot.tools), 'tool')} of {count(len(snapshot.servers), 'server')}, about {snapshot.tokens:,} tokens in all"
        )
        _told_state(catalog)
        _tell_flaws(catalog)
        return EXIT_FAILED if snapshot.failed or snapshot.pending else EXIT_OK

    return _with_catalog(work, **given)


@click.command("search", cls=TargetCommand)
@click.argument("query")
@target_options
@lock_options
@click.option(
    "-n", "--limit", type=click.IntRange(1, 100), default=10, show_default=True, help="How many hits at the most."
)
@click.option(
    "--semantic",
    is_flag=True,
    help="Search by meaning as well; needs outrider-mcp[semantic] and some seconds to begin.",
)
def search(query: str, limit: int, as_json: bool, **given: Any) -> int:
    """Find the tools that fit QUERY: a name, a few words, or a whole task.

    Each hit comes with the reason. If nothing fits, that is said, with the nearest servers; the exit code is then 1.
    """

    async def work(catalog: Any) -> int:
        for wait_s in _patience(given["timeout_s"]):
            await _ready(catalog, wait_s, _server_of(query, catalog))
            # Nobody is waited for any more, but for what `--semantic` has to prepare.
            result, snapshot = await catalog.find(query, limit=limit, wait_s=wait_s if given["semantic"] else 0.0)
            if result.hits or not snapshot.pending:
                break
        if as_json:
            hits = [_hit_as_json(hit) for hit in result.hits]
            nearest = [_hit_as_json(hit) for hit in result.nearest]
            write_json(
                {
                    "schema": "outrider.search/1",
                    "query": query,
                    "hits": hits,
                    "nothingFits": result.nothing_fits,
                    "nearest": nearest,
                    "nearestServers": list(result.nearest_servers),
                    "pending": list(snapshot.pending),
                    "failed": list(snapshot.failed),
                }
            )
            return EXIT_OK if result.hits else EXIT_FAILED
        for hit in result.hits:
            _show_hit(hit)
        if not result.hits:
            click.echo("Nothing fits." if snapshot.tools else "There are no tools.")
            if result.nearest:
                click.echo("Nearest, though below the threshold:")
                for hit in result.nearest[:3]:
                    _show_hit(hit)
            if result.nearest_servers:
                click.echo(f"Nearest servers: {visible(', '.join(result.nearest_servers))}")
        _told_state(catalog)
        return EXIT_OK if result.hits else EXIT_FAILED

    return _with_catalog(work, **given)


def _hit_as_json(hit: Any) -> dict[str, Any]:
    document = hit.document
    return {
        "name": f"{document.server}/{document.name}",
        "score": round(hit.score, 4),
        "why": hit.why,
        "description": document.description,
    }


def _show_hit(hit: Any) -> None:
    document = hit.document
    click.echo(f"{hit.score:5.2f}  {click.style(visible(f'{document.server}/{document.name}'), fg='cyan')}")
    if document.description or document.title:
        click.echo(f"       {clip(visible(document.description or document.title), max(_columns() - 8, 20))}")
    click.secho(f"       {visible(hit.why)}", dim=True)


@click.command("show", cls=TargetCommand)
@click.argument("tool", shell_complete=complete_tools)
@target_options
@lock_options
def show(tool: str, as_json: bool, **given: Any) -> int:
    """Show TOOL in full: what it does, its arguments, its schema as it came."""

    async def work(catalog: Any) -> int:
        found = await _resolved(catalog, tool, given["timeout_s"])
        if as_json:
            from msgspec import Raw

            write_json(
                {
                    "schema": "outrider.tool/1",
                    "name": str(found.id),
                    "server": found.id.server,
                    "tool": Raw(bytes(found.tool.wire)),
                }
            )
            return EXIT_OK
        from outrider.client.report import estimated_tokens

        click.secho(visible(str(found.id)), bold=True)
        if found.tool.title:
            click.echo(visible(found.tool.title))
        if found.tool.description:
            click.echo(visible(found.tool.description, one_line=False))
        click.echo()
        click.secho("Arguments", bold=True)
        _show_parameters(found.tool.input_schema)
        if (output := found.tool.output_schema) is not None:
            click.secho("Structured result", bold=True)
            _show_parameters(output)
        if found.tool.annotations:
            hints = ", ".join(f"{name}={value}" for name, value in found.tool.annotations.items())
            click.echo(f"hints of the server, unverified: {visible(hints)}")
        click.echo(f"about {estimated_tokens(found.tool):,} tokens; --json shows it as it came")
        return EXIT_OK

    return _with_catalog(work, **given)


def _patience(timeout_s: float | None) -> tuple[float, ...]:
    """How long to wait for servers before looking, and how long again if nothing was found and some have not answered."""
    return (timeout_s,) if timeout_s is not None else (_USUAL_WAIT_S, _LONGEST_WAIT_S - _USUAL_WAIT_S)


async def _ready(catalog: Any, wait_s: float, servers: tuple[str, ...] | None = None) -> Any:
    """Wait for servers; who has to wait long is told for whom, on a terminal."""
    import asyncio

    waiting = asyncio.ensure_future(catalog.ready(wait_s, servers=servers))
    try:
        await asyncio.wait((waiting,), timeout=_SILENT_S)
        if waiting.done() or not sys.stderr.isatty():
            return await waiting
        names = [visible(view.name) for view in catalog.servers.values() if view.is_pending]
        click.echo(f"\r\x1b[Kwaiting for {clip(', '.join(names), max(_columns() - 16, 20))} …", nl=False, err=True)
        try:
            return await waiting
        finally:
            click.echo("\r\x1b[K", nl=False, err=True)
    finally:
        waiting.cancel()


async def _resolved(catalog: Any, tool: str, timeout_s: float | None) -> Any:
    """The tool of that name: of the server that it names, or of those that have answered after a while."""
    first, *more = _patience(timeout_s)
    snapshot = await _ready(catalog, first, _server_of(tool, catalog))
    for wait_s in more:
        if snapshot.pending and not _is_known(snapshot, tool):
            snapshot = await _ready(catalog, wait_s, _server_of(tool, catalog))
    return await catalog.resolve(tool)


def _is_known(snapshot: Any, tool: str) -> bool:
    from outrider.catalog.snapshot import AmbiguousTool, UnknownTool

    try:
        snapshot.resolve(tool)
    except UnknownTool:
        return False
    except AmbiguousTool:
        return True
    return True


def _server_of(tool: str, catalog: Any) -> tuple[str, ...] | None:
    """The server to wait for, if the name says which."""
    server = tool.partition("/")[0]
    return (server,) if server in catalog.servers else None


def _show_parameters(schema: dict[str, Any]) -> None:
    from outrider.cli.parameters import parameters

    lines = parameters(schema)
    for line in lines:
        indent = "  " + "    " * line.depth
        name = f"{click.style(visible(line.name), fg='cyan')}  " if line.name else ""
        click.echo(f"{indent}{name}{visible(line.told)}")
        if line.description:
            click.echo(f"{indent}  {visible(line.description)}")
    if not lines:
        click.echo("  none")


@click.command("call", cls=TargetCommand)
@click.argument("tool", shell_complete=complete_tools)
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE | KEY:=JSON]...", shell_complete=complete_arguments)
@click.option("--arguments", "--args", "whole", metavar="JSON", help="All arguments as one JSON object.")
@click.option("--save", metavar="DIR", help="Write images, audio and other files of the result into this folder.")
@click.option("--no-check", is_flag=True, help="Send the arguments without checking them against the tool's schema.")
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="TARGET",
    shell_complete=complete_servers,
    help="Only this server: a URL, a name or a file. Repeatable.",
)
@asking_options
@lock_options
def call(
    tool: str,
    arguments: tuple[str, ...],
    whole: str | None,
    save: str | None,
    no_check: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Call TOOL. KEY=VALUE gives a text, or a number or boolean where the schema wants one; KEY:=JSON gives any value.

    The arguments are checked against the tool's schema before anything is sent. The exit code is 1 if the tool reports an error.
    """
    given["may_ask"] = True
    if save and Path(save).exists() and not Path(save).is_dir():
        raise ConfigError(f"--save {visible(save)} is not a folder", hint="nothing was called; name a folder")

    async def work(catalog: Any) -> int:
        found = await _resolved(catalog, tool, given["timeout_s"])
        schema = found.tool.input_schema
        values = _arguments(whole, arguments, schema)
        if not no_check:
            _check_arguments(str(found.id), values, schema)
        result = await catalog.call(
            found.id,
            values,
            timeout_s=given["timeout_s"],
            on_progress=_show_progress if sys.stderr.isatty() else None,
            on_task=_show_task if sys.stderr.isatty() else None,
        )
        tell_drifts(catalog)
        saved, failure = {}, None
        try:
            saved = save_files(result, Path(save)) if save else {}
        except SaveFailed as failed:  # what the tool said is shown all the same: it may not be had again
            saved, failure = failed.saved, failed
        if as_json:
            for path in saved.values():
                click.echo(f"saved as {visible(str(path))}", err=True)
            write_json({"schema": "outrider.result/1", "tool": str(found.id), "result": result.wire})
        else:
            show_result(result, saved)
        if failure is not None:
            raise failure
        return EXIT_FAILED if result.is_error else EXIT_OK

    return _with_catalog(work, **given)


def _arguments(whole: str | None, pairs: Sequence[str], schema: dict[str, Any]) -> dict[str, Any]:
    import msgspec

    from outrider.cli.parameters import takes_text

    values: dict[str, Any] = {}
    if whole is not None:
        try:
            values = msgspec.json.decode(whole, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise ConfigError(f"--arguments is not a JSON object: {error}") from error
    given: set[str] = set()
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not separator or not name.strip(":"):
            raise ConfigError(f"{visible(pair)!r} is not of the form KEY=VALUE or KEY:=JSON")
        if (key := name.removesuffix(":")) in given:
            raise ConfigError(f"{visible(key)} is given twice", hint=f"write {visible(key)}:=[…] for a list")
        given.add(key)
        if name.endswith(":"):
            try:
                values[name[:-1]] = msgspec.json.decode(text)
            except msgspec.DecodeError as error:
                raise ConfigError(
                    f"the value of {visible(name[:-1])} is not JSON: {error}", hint="write KEY=VALUE for a plain text"
                ) from error
        else:
            values[name] = text if takes_text(schema, name) else _read_text(text)
    return values


def _read_text(text: str) -> Any:
    """A text where no text is allowed: the number, boolean or other value that it spells, else the text itself."""
    import msgspec

    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _check_arguments(tool: str, values: dict[str, Any], schema: dict[str, Any]) -> None:
    from outrider.protocol.schema_validation import Validator

    try:
        problems = Validator(schema).check(values)
    except OutriderError as error:
        click.echo(f"! the arguments were not checked: {visible(str(error))}", err=True)
        return
    if problems:
        told = "; ".join(visible(str(problem)) for problem in problems[:5])
        properties = schema.get("properties")
        known = list(properties) if isinstance(properties, dict) else []
        near = [
            (name, close[0]) for name in values if name not in known and (close := get_close_matches(name, known, 1))
        ]
        meant = "".join(f"did you mean {visible(close)} by {visible(name)}? " for name, close in near)
        raise ConfigError(
            f"the arguments do not fit {visible(tool)}: {told}",
            hint=f"{meant}`outrider show {visible(tool)}` tells what it takes; --no-check sends them anyway",
        )


def _show_progress(progress: Any) -> None:
    total = f" of {progress.total:g}" if progress.total is not None else ""
    click.echo(f"\r\x1b[K{progress.progress:g}{total} {visible(progress.message)}", nl=False, err=True)


def _show_task(task: Any) -> None:
    click.echo(f"\r\x1b[Ktask {visible(task.status.value)}  {visible(task.status_message)}", nl=False, err=True)


def _columns() -> int:
    import shutil

    return shutil.get_terminal_size((100, 24)).columns
