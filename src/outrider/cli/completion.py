"""What a shell proposes: servers, tools and a tool's arguments, from configuration and memory.

Decided here: nobody is asked and nothing is started for a press of the Tab key, and nothing that goes wrong is shown there. A name that a
shell would have to quote in more than one way is not proposed. Not here: commands and options, which click proposes by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from outrider.cli.text import clip, visible

__all__ = ["complete_arguments", "complete_servers", "complete_tools"]

_MOST: Final = 500
_HELP_COLUMNS: Final = 60


def complete_servers(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The servers that are configured and not switched off."""
    try:
        entries = [entry for entry in _configuration(ctx).entries if not entry.disabled]
    except Exception:  # whatever is wrong with the configuration: the command itself will say it
        return []
    return _items(((entry.key, "" if entry.name == entry.key else entry.name) for entry in entries), incomplete)


def complete_tools(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The tools that are remembered: full names, and bare ones where nothing else is meant."""
    try:
        tools = _remembered(ctx).tools
    except Exception:
        return []
    bare: dict[str, int] = {}
    for tool_id, _ in tools:
        bare[tool_id.name] = bare.get(tool_id.name, 0) + 1
    proposed = [(str(tool_id), tool.description or tool.title) for tool_id, tool in tools]
    if incomplete and "/" not in incomplete:
        proposed += [(i.name, tool.description or tool.title) for i, tool in tools if bare[i.name] == 1]
    return _items(proposed, incomplete)


def complete_arguments(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The arguments of the tool that stands on the command line and are not there yet."""
    if "=" in incomplete:
        return []
    from outrider.cli.parameters import parameters, takes_text

    try:
        schema = _remembered(ctx).resolve(ctx.params["tool"]).tool.input_schema
    except Exception:
        return []
    given = {text.partition("=")[0].removesuffix(":") for text in ctx.params.get("arguments") or ()}
    lines = [line for line in parameters(schema) if not line.depth and line.name and line.name not in given]
    return _items(
        ((f"{line.name}=" if takes_text(schema, line.name) else f"{line.name}:=", line.told) for line in lines),
        incomplete,
    )


def _items(proposed: Iterable[tuple[str, str]], incomplete: str) -> list[CompletionItem]:
    sound = (
        (value, text)
        for value, text in proposed
        if value.startswith(incomplete)
        and not any(c.isspace() or c in "\\'\"`$;&|<>(){}*?!#~" or not c.isprintable() for c in value)
    )
    items = [CompletionItem(value, help=clip(visible(text), _HELP_COLUMNS) or None) for value, text in sound]
    return items[:_MOST]


def _configuration(ctx: click.Context) -> Any:
    from outrider.catalog.sources import here, load

    return load(config_files=tuple(ctx.params.get("config_files") or ()), where=here())


def _remembered(ctx: click.Context) -> Any:
    """What is known of all servers without asking any."""
    import asyncio

    from outrider.catalog.catalog import Catalog, CatalogOptions
    from outrider.client.target import ClientOptions

    async def read() -> Any:
        options = CatalogOptions(client=ClientOptions(offline=True), watch=False)
        async with Catalog(configuration=_configuration(ctx), options=options) as catalog:
            return await catalog.ready(2.0)

    return asyncio.run(read())
