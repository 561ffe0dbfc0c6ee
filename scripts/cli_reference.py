"""Writes docs/cli-reference.md from what `--help` of every command says: `python scripts/cli_reference.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from outrider.cli import cli

REFERENCE = Path(__file__).resolve().parents[1] / "docs" / "cli-reference.md"
COLUMNS = 100


def commands(command: click.Command, parent: click.Context | None, name: str) -> Iterator[click.Context]:
    """A command and all below it, each as a context of a terminal that is the same everywhere."""
    context = click.Context(command, parent, info_name=name, terminal_width=COLUMNS, max_content_width=COLUMNS)
    context.help_option_names = ["-h", "--help"]
    yield context
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            if found is not None and not found.hidden:
                yield from commands(found, context, below)


def render() -> str:
    """The whole page."""
    parts = [
        "# Every command and option",
        "Written by `scripts/cli_reference.py`. What the commands are for: [cli.md](cli.md).",
    ]
    for context in commands(cli, None, "outrider"):
        text = "\n".join(line.rstrip() for line in context.command.get_help(context).splitlines())
        parts.append(f"## {context.command_path}\n\n```text\n{text}\n```")
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    REFERENCE.write_text(render(), encoding="utf-8")
    print(f"{REFERENCE} written")
