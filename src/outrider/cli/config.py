"""`outrider config`: which configuration files were looked for, and how each entry was read."""

from __future__ import annotations

from typing import Any

import click

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
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode({"schema": "outrider.config/1", **view})).decode())
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
        if server["state"] != "ready":
            click.echo(f"    {server['state']}: {visible(server['reason'] or '')}")
            if server["hint"]:
                click.echo(f"    → {visible(server['hint'])}")
        for warning in server["warnings"]:
            click.echo(f"    ! {visible(warning)}")
    if not view["servers"]:
        click.echo("  none")
    for title, lines in (
        ("Ignored", [f"{one['name']}: {one['reason']}" for one in view["ignored"]]),
        ("Problems", [f"{one['severity']}: {one['source']}: {one['message']}" for one in view["problems"]]),
    ):
        if lines:
            click.echo()
            click.secho(title, bold=True)
            for line in lines:
                click.echo(f"  {visible(line)}")


def _started(server: dict[str, Any]) -> str:
    what = server["url"] if server["url"] else " ".join(server["command"] or ())
    return visible(f"{server['transport']}  {what}")
