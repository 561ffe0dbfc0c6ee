"""`outrider cache`: look at what is remembered, and clear it."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import click

from outrider.cli.streams import write_json
from outrider.cli.text import clip, count, visible
from outrider.errors import StoreError

__all__ = ["cache"]


@click.group("cache")
def cache() -> None:
    """Look at what is remembered of servers, and clear it. Secrets are never part of it."""


@cache.command("path")
def show_path() -> None:
    """Tell where it is kept."""
    from outrider.cache.sqlite import default_path

    click.echo(default_path())


@cache.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
def list_entries(as_json: bool) -> int:
    """List every remembered answer.

    Each line says since when it is known, to which request it is the answer, how large it is, and of which server.
    """
    entries = asyncio.run(_entries())
    if as_json:
        write_json({"schema": "outrider.cache/1", "entries": entries})
        return 0
    for entry in entries:
        since = datetime.fromtimestamp(entry["receivedMs"] / 1000).strftime("%Y-%m-%d %H:%M")
        click.echo(
            f"{since}  {entry['method']:<26}  {entry['bytes']:>9,} B  {clip(visible(entry['label'] or entry['target']), 60)}"
        )
    if not entries:
        click.echo("Nothing is remembered.")
    return 0


@cache.command("stats")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
def show_stats(as_json: bool) -> int:
    """Tell how much is remembered."""
    entries = asyncio.run(_entries())
    stats = {
        "schema": "outrider.cache-stats/1",
        "servers": len({entry["target"] for entry in entries}),
        "entries": len(entries),
        "bytes": sum(entry["bytes"] for entry in entries),
    }
    if as_json:
        write_json(stats)
    else:
        servers, answers = count(stats["servers"], "server"), count(stats["entries"], "answer")
        click.echo(f"{answers} of {servers}, {stats['bytes']:,} bytes")
    return 0


@cache.command("show")
@click.argument("server")
def show_entries(server: str) -> int:
    """Show what is remembered of a server.

    SERVER is part of its URL or command, or an id from `list --json`.
    """
    found = [entry for entry in asyncio.run(_entries()) if server == entry["target"] or server in entry["label"]]
    if not found:
        raise _unknown(server)
    for entry in found:
        since = datetime.fromtimestamp(entry["receivedMs"] / 1000).isoformat(" ", "seconds")
        click.echo(
            f"{visible(entry['label'])}\n  {entry['method']}\n  received {since}, time to live {entry['ttlMs']:,} ms, {entry['scope']}"
        )
    return 0


@cache.command("clear")
@click.argument("server", required=False)
def clear(server: str | None) -> int:
    """Forget everything, or one server.

    SERVER is part of its URL or command, or an id from `list --json`.
    """
    click.echo(f"{count(asyncio.run(_clear(server)), 'answer')} forgotten.")
    return 0


def _unknown(server: str) -> StoreError:
    return StoreError(f"nothing is remembered of {server!r}", hint="`outrider cache list` shows what is")


async def _entries() -> list[dict[str, Any]]:
    from outrider.cache.memory import open_memory

    async with open_memory() as memory:
        return [
            {
                "target": summary.address.target,
                "label": summary.label,
                "method": summary.address.method,
                "receivedMs": summary.received_ms,
                "ttlMs": summary.ttl_ms,
                "scope": "public" if summary.public else "private",
                "bytes": summary.size_bytes,
            }
            for summary in await memory.entries()
        ]


async def _clear(server: str | None) -> int:
    from outrider.cache.memory import open_memory

    async with open_memory() as memory:
        if server is None:
            return await memory.forget()
        summaries = await memory.entries()
        targets = {s.address.target for s in summaries if server == s.address.target or server in s.label}
        if not targets:
            raise _unknown(server)
        return sum([await memory.forget(target) for target in sorted(targets)])
