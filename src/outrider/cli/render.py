"""How reports look on a terminal: a page for one target, a table for many. Every server text is made visible first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from outrider.cli.text import count, visible
from outrider.client.listing import Listing
from outrider.client.report import DiscoveryReport, estimated_tokens
from outrider.protocol.model import Item

__all__ = ["print_page", "print_table"]

_ERA_STYLE = {"modern": "bold green", "legacy": "bold yellow", "": "bold red"}
_MAX_SHOWN_ITEMS = 200
_MAX_SHOWN_WARNINGS = 50


class _Page:
    """Where everything is printed: a rich console, without the spaces with which it fills up lines."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=False, markup=False, emoji=False)
        self.width = self._console.width

    def print(self, what: RenderableType = "") -> None:
        """Print it, and a line end."""
        with self._console.capture() as captured:
            self._console.print(what)
        # Through click, so that a reader who leaves early is noticed in one way everywhere.
        click.echo("\n".join(line.rstrip() for line in captured.get().split("\n")), nl=False)


def _name(report: DiscoveryReport) -> str:
    identity = report.identity
    if identity is None:
        return ""
    return visible(f"{identity.title or identity.name} {identity.version}".strip())


_WIDE = 110
"""From so many columns on, the table has room for the names servers give themselves and for all lists."""
_GAP = 2
"""The columns that rich puts between two cells of this kind of table: a padding and an invisible line."""
_LEAST_NAME = 12


def print_table(reports: Sequence[DiscoveryReport], names: Sequence[str]) -> None:
    """A row per target, then the reasons of those that failed."""
    console = _Page()
    is_wide = console.width >= _WIDE
    numbers = ("tools", "prompts", "resources", "tokens", "ms") if is_wide else ("tools", "tokens", "ms")
    rows: list[list[Text]] = []
    for report, name in zip(reports, names, strict=True):
        era = report.era.value if report.era else ""
        speaks = Text.assemble((era, _ERA_STYLE[era]), f" {report.protocol_version}") if era else Text("—")
        counts = [_count_of(report.tools)]
        if is_wide:
            counts += [_count_of(report.prompts), _count_of(report.resources)]
        tokens, total_ms = f"{report.tokens:,}" if report.ok else "—", f"{report.timings_ms.get('total', 0):,.0f}"
        itself = [Text(_name(report) or "—")] if is_wide else []
        rows.append([Text(name), *itself, speaks, *map(Text, (*counts, tokens, total_ms)), _verdict(report)])
    headings = ["target", *(["calls itself"] if is_wide else []), "speaks", *numbers, ""]
    widths = [max(cell_len(heading), *(row[n].cell_len for row in rows)) for n, heading in enumerate(headings)]
    for dispensable in (
        "ms",
        "tokens",
        "tools",
    ):  # numbers that are cut are of no use; on a narrow terminal they go one by one
        if min(widths[0], _LEAST_NAME) + sum(widths[1:]) + _GAP * (len(headings) - 1) + 2 <= console.width:
            break
        column = headings.index(dispensable)
        for cells in (headings, widths, *rows):
            del cells[column]
    # Rich would shorten every column a little; versions and numbers are of no use when cut, names are.
    flexible = 2 if is_wide else 1
    room = console.width - sum(widths[flexible:]) - _GAP * (len(headings) - 1) - 2
    if is_wide:
        widths[1] = min(widths[1], max(_LEAST_NAME, room - widths[0], room * 2 // 5))
        room -= widths[1]
    widths[0] = min(widths[0], max(_LEAST_NAME, room))
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True, header_style="bold")
    for heading, width in zip(headings, widths, strict=True):
        justify: JustifyMethod = "right" if heading in numbers else "left"
        table.add_column(heading, justify=justify, width=width, overflow="ellipsis", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    for report, name in zip(reports, names, strict=True):
        if report.failure is not None and report.failure.kind != "disabled":
            console.print(Text.assemble(("✗ ", "bold red"), (name, "bold"), "  ", visible(report.failure.message)))
            if report.failure.hint:
                console.print(Padding(Text(f"→ {visible(report.failure.hint)}"), (0, 0, 0, 2), expand=False))
            for line in report.stderr_tail[-3:]:
                console.print(Padding(Text(f"stderr: {visible(line)}", "dim"), (0, 0, 0, 2), expand=False))
    flawed = sum(1 for report in reports if report.ok and report.warnings)
    if flawed:
        console.print(Text(f"{count(flawed, 'server')} with warnings; name one alone to read them.", "dim"))


def _verdict(report: DiscoveryReport) -> Text:
    if report.failure is not None:
        if report.failure.kind == "disabled":
            return Text("disabled", "dim")
        return Text("sign in" if report.failure.kind == "auth" else report.failure.kind, "red")
    word = {"memory": "ok, remembered", "stale": "stale"}.get(report.source, "ok")
    if report.warnings and report.source == "network":
        word = count(len(report.warnings), "warning")
    return Text(word, "yellow" if report.warnings or report.source == "stale" else "green")


def _count_of(listing: Listing[Any] | None) -> str:
    if listing is None:
        return "—"
    return f"{len(listing):,}" if listing.complete else f"{len(listing):,}+"


def print_page(report: DiscoveryReport) -> None:
    """Everything about one target, most important first."""
    console = _Page()
    era = report.era.value if report.era else ""
    heading = Text.assemble((_name(report) or visible(report.target), "bold"))
    if era:
        heading.append(f"  {era}", _ERA_STYLE[era])
        heading.append(f" {report.protocol_version}")
    console.print(heading)
    if report.failure is not None:
        console.print(Text(f"✗ {visible(report.failure.message)}", "bold red"))
        if report.failure.hint:
            console.print(Text(f"→ {visible(report.failure.hint)}"))
    console.print(_facts(report))
    if report.instructions:
        _section(console, "Instructions", Text(visible(report.instructions, one_line=False)))
    for title, listing in (
        ("Tools", report.tools),
        ("Prompts", report.prompts),
        ("Resources", report.resources),
        ("Resource templates", report.resource_templates),
    ):
        if listing is not None and (listing.items or not listing.complete):
            tokens = sum(map(estimated_tokens, listing.items))
            more = "" if listing.complete else ", incomplete"
            _section(console, f"{title} ({len(listing):,}, about {tokens:,} tokens{more})", _items(listing.items))
    if report.attempts:
        _section(console, "How we know", _attempts(report))
    if report.warnings:
        shown = report.warnings[:_MAX_SHOWN_WARNINGS]
        rest = len(report.warnings) - len(shown)
        lines = [Text(f"! {visible(warning)}", "yellow") for warning in shown]
        if rest:
            lines.append(Text(f"… and {rest} more; --json has them all", "dim"))
        _section(console, "Warnings", Group(*lines))
    if report.stderr_tail:
        _section(
            console,
            "The last it wrote to stderr",
            Group(*(Text(visible(line), "dim") for line in report.stderr_tail[-10:])),
        )


def _section(console: _Page, title: str, body: RenderableType) -> None:
    console.print()
    console.print(Text(title, "bold"))
    console.print(Padding(body, (0, 0, 0, 2), expand=False))


def _facts(report: DiscoveryReport) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("target", Text(visible(report.target)))
    if report.transport:
        table.add_row("transport", report.transport)
    if report.era is not None:
        table.add_row("because", Text(report.era_reason or "found before, and remembered"))
        table.add_row("speaks", Text(visible(", ".join(report.supported_versions)) or "nothing it names"))
        table.add_row("can", Text(_capabilities(report)))
        if report.extensions:
            table.add_row("extensions", Text(visible(", ".join(report.extensions))))
        table.add_row("cache", _cache(report))
        table.add_row("answer", Text(_source(report)))
        table.add_row("context cost", f"about {report.tokens:,} tokens")
    timings = ", ".join(f"{phase} {value:,.0f} ms" for phase, value in report.timings_ms.items())
    if timings:
        table.add_row("took", timings)
    return table


def _capabilities(report: DiscoveryReport) -> str:
    parts = []
    for name, settings in report.capabilities.items():
        if name in ("extensions", "experimental"):
            continue
        flags = {"listChanged": "announces changes", "subscribe": "updates on subscription"}
        told = [text for flag, text in flags.items() if isinstance(settings, dict) and settings.get(flag) is True]
        parts.append(f"{name} ({', '.join(told)})" if told else name)
    return visible(", ".join(parts)) or "nothing it declares"


def _cache(report: DiscoveryReport) -> str:
    if report.ttl_ms <= 0:
        return "not at all (no time to live)"
    seconds = report.ttl_ms / 1000
    return f"{seconds:,.0f} s, {report.cache_scope}" if seconds >= 1 else f"{report.ttl_ms} ms, {report.cache_scope}"


def _source(report: DiscoveryReport) -> str:
    """Where the answer came from, and since when it is known."""
    since = datetime.fromtimestamp(report.received_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    match report.source:
        case "memory":
            # Most servers say nothing of it; an answer of theirs is kept for a while all the same.
            return f"remembered since {since}, " + ("still fresh" if report.ttl_ms > 0 else "not long ago")
        case "stale":
            because = f": {visible(report.stale_because)}" if report.stale_because else ""
            return f"remembered since {since}, no longer fresh{because}"
        case _:
            return "from the server, just now"


def _items(items: Sequence[Item]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=44)
    table.add_column(overflow="ellipsis", no_wrap=True)
    for item in items[:_MAX_SHOWN_ITEMS]:
        table.add_row(Text(visible(item.identity), "cyan"), Text(visible(item.description or item.title)))
    if len(items) > _MAX_SHOWN_ITEMS:
        table.add_row(Text(f"… {len(items) - _MAX_SHOWN_ITEMS:,} more", "dim"), Text("--json has them all", "dim"))
    return table


def _attempts(report: DiscoveryReport) -> RenderableType:
    rows: Iterable[tuple[str, str, str, float]] = (
        (a.step, a.observed, a.conclusion, a.elapsed_ms) for a in report.attempts
    )
    lines: list[RenderableType] = []
    for number, (step, observed, conclusion, elapsed_ms) in enumerate(rows, 1):
        lines.append(Text.assemble(f"{number}. ", (visible(step), "bold"), f"  {elapsed_ms:,.0f} ms"))
        lines.append(Padding(Text(f"got  {visible(observed)}"), (0, 0, 0, 3), expand=False))
        lines.append(Padding(Text(f"so   {visible(conclusion)}"), (0, 0, 0, 3), expand=False))
    return Group(*lines)
