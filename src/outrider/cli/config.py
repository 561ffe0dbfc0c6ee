"""`outrider config`: which configuration files were looked for, and how each entry was read."""

from __future__ import annotations

from typing import Any

import click

from outrider.cli.streams import write_json
from outrider.cli.targets import config_option
from outrider.cli.text import count, visible

__all__ = ["config"]


@click.command("config")
@config_option
@click.option("--all", "show_all", is_flag=True, help="Also show the places where no file was.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
def config(config_files: tuple[str, ...], show_all: bool, as_json: bool) -> int:
    """Show each configuration file, each server in it, how it was read, and what was ignored and why. Nothing is started.

    Exit code 2 says that a file, or an entry meant as a server, cannot be used.
    """
    from outrider.catalog.sources import configuration_view, here, load

    where = here()
    view = configuration_view(load(config_files=config_files, where=where), where)
    if as_json:
        write_json({"schema": "outrider.config/1", **view})
    else:
        _show(view, show_all)
    is_broken = any(problem["severity"] == "error" for problem in view["problems"]) or any(
        one["error"] for one in view["ignored"]
    )
    return 2 if is_broken else 0


def _show(view: dict[str, Any], show_all: bool) -> None:
    files = [file for file in view["files"] if show_all or file["status"] != "missing"]
    click.secho("Files", bold=True)
    for file in files:
        told = count(file["servers"], "server") if file["status"] == "read" else file["status"]
        click.echo(f"  {visible(file['path'])}  ({visible(file['client'])}, {file['level']}): {told}")
        if file["message"]:
            click.echo(f"    {visible(file['message'])}")
    missing = len(view["files"]) - len(files)
    if not files:
        click.echo("  none")
    if missing:
        click.echo(f"  {count(missing, 'more place')} without a file; --all shows them")
    click.echo()
    click.secho("Servers", bold=True)
    for server in view["servers"]:
        click.echo(f"  {click.style(server['key'], fg='cyan')}  {_started(server)}")
        for line in _read_as(server):
            click.echo(f"    {visible(line)}")
        if server["state"] != "ready":
            click.echo(f"    {server['state']}: {visible(server['reason'] or '')}")
            if server["hint"]:
                click.echo(f"    → {visible(server['hint'])}")
        for warning in server["warnings"]:
            click.echo(f"    ! {visible(warning)}")
    if not view["servers"]:
        click.echo("  none")
    for title, lines in (
        ("Ignored", [f"{one['name']} in {_place(one['origin'])}: {one['reason']}" for one in view["ignored"]]),
        ("Problems", [f"{one['severity']}: {one['source']}: {one['message']}" for one in view["problems"]]),
    ):
        if lines:
            click.echo()
            click.secho(title, bold=True)
            for line in lines:
                click.echo(f"  {visible(line)}")


def _started(server: dict[str, Any]) -> str:
    what = server["url"] if server["url"] else " ".join(server["command"] or ())
    return f"{server['transport']}  {visible(what)}"


def _read_as(server: dict[str, Any]) -> list[str]:
    """Where a server stands and what else is known of it, each as a line; values of variables and headers are not among it."""
    name = "" if server["name"] == server["key"] else f'"{server["name"]}" '
    places = [_place(origin) for origin in (server["origin"], *server["also_in"])]
    lines = [f"{name}in {places[0]}", *(f"also in {place}" for place in places[1:])]
    if server["cwd"]:
        lines.append(f"started in {server['cwd']}")
    for what in ("env", "headers"):
        if server[what]:
            lines.append(f"{'variables' if what == 'env' else what}: {', '.join(server[what])}")
    if server["tools"]["allow"] is not None:
        lines.append(f"only these tools: {', '.join(server['tools']['allow']) or 'none'}")
    if server["tools"]["deny"]:
        lines.append(f"not these tools: {', '.join(server['tools']['deny'])}")
    limits = [
        f"{what} {server[f'{what}_timeout_s']:g} s" for what in ("start", "request") if server[f"{what}_timeout_s"]
    ]
    if limits:
        lines.append(f"limits: {', '.join(limits)}")
    return lines


def _place(origin: dict[str, Any]) -> str:
    line = f":{origin['line']}" if origin["line"] else ""
    return f"{origin['file']}{line} ({origin['client']}, {origin['level']})"
