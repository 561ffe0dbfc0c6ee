"""`outrider cache`: look at what is remembered, and clear it."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import click

from outrider.cli.text import clip, count, visible
from outrider.errors import StoreError

__all__ = ["cache"]


@click.group("cache")
def cache() -> None:
    """Look at what is remembered of servers, and clear it. Secrets are never part of it."""


@cache.command("path")
def show_path() -> None:
    """Where it is kept."""
    from outrider.cache.sqlite import default_path

    click.echo(default_path())


@cache.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
def list_entries(as_json: bool) -> int:
    """Every remembered answer: of which server, to which request, since when."""
    entries = asyncio.run(_entries())
    if as_json:
        import msgspec

        shown = {"schema": "outrider.cache/1", "entries": entries}
        click.echo(msgspec.json.format(msgspec.json.encode(shown)).decode())
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
    """How much is remembered, of how many servers."""
    entries = asyncio.run(_entries())
    stats = {
        "schema": "outrider.cache-stats/1",
        "servers": len({entry["target"] for entry in entries}),
        "entries": len(entries),
        "bytes": sum(entry["bytes"] for entry in entries),
    }
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(stats)).decode())
    else:
        servers, answers = count(stats["servers"], "server"), count(stats["entries"], "answer")
        click.echo(f"{answers} of {servers}, {stats['bytes']:,} bytes")
    return 0


@cache.command("show")
@click.argument("server")
def show_entries(server: str) -> int:
    """What is remembered of the servers whose target contains SERVER: an id from `list --json`, or part of a URL or command."""
    found = [entry for entry in asyncio.run(_entries()) if server == entry["target"] or server in entry["label"]]
    if not found:
        click.echo(f"Nothing is remembered of {visible(server)!r}.", err=True)
        return 1
    for entry in found:
        since = datetime.fromtimestamp(entry["receivedMs"] / 1000).isoformat(" ", "seconds")
        click.echo(
            f"{visible(entry['label'])}\n  {entry['method']}\n  received {since}, time to live {entry['ttlMs']:,} ms, {entry['scope']}"
        )
    return 0


@cache.command("clear")
@click.argument("server", required=False)
def clear(server: str | None) -> int:
    """Forget everything, or what is known of the servers whose target contains SERVER."""
    click.echo(f"{count(asyncio.run(_clear(server)), 'answer')} forgotten.")
    return 0


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
            raise StoreError(f"nothing is remembered of {server!r}", hint="`outrider cache list` shows what is")
        return sum([await memory.forget(target) for target in sorted(targets)])
