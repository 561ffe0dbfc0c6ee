"""How a difference between what was approved and what is offered now looks on a terminal: in full, with nothing hidden.

Decided here: lines, signs and colours. Every character that a reader would not see, or would take for another, is written out. Not here:
what differs and how grave that is (`catalog.lock`).
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Final

import click

from outrider.catalog.lock import Drift, Severity
from outrider.characters import name_of
from outrider.cli.text import revealed, visible

__all__ = ["print_drift", "print_offer"]

_COLOURS: Final = {Severity.DANGEROUS: "red", Severity.UNREVIEWED: "magenta", Severity.BREAKING: "yellow"}
_MAX_NAMED: Final = 12
_MAX_ALIGNED: Final = 600
"""So many lines are still compared one by one: the work can grow with their cube."""


def print_drift(drift: Drift, *, in_full: bool) -> None:
    """Show one difference.

    Args:
        drift: the difference.
        in_full: also what it was and what it is.
    """
    grade = click.style(f"{drift.severity.value:<11}", fg=_COLOURS.get(drift.severity), bold=True)
    click.echo(f"  {grade}{visible(drift.subject)}: {visible(drift.message)} ({drift.kind.value})")
    if in_full:
        _print_lines(_difference(drift.before, drift.after))
        strange = _strange(drift.before, drift.after)
        if strange:
            more = f" and {len(strange) - _MAX_NAMED} more" if len(strange) > _MAX_NAMED else ""
            click.echo(f"      ! new characters: {', '.join(map(name_of, strange[:_MAX_NAMED]))}{more}")


def print_offer(title: str, parts: dict[str, Any]) -> None:
    """Show a definition that is new, in full."""
    click.secho(f"  {visible(title)}", fg="cyan")
    _print_lines(("+", line) for line in _lines(parts))


def _print_lines(lines: Iterable[tuple[str, str]]) -> None:
    for sign, line in lines:
        colour = {"+": "green", "-": "red"}.get(sign)
        click.secho(f"      {sign} {line}".rstrip(), fg=colour, dim=sign == " ")


def _difference(before: Any, after: Any) -> Iterator[tuple[str, str]]:
    old, new = list(_lines(before)), list(_lines(after))
    first = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))
    common, old, new = old[:first], old[first:], new[first:]
    last = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(old[::-1], new[::-1], strict=False)))
    rest, old, new = old[len(old) - last :], old[: len(old) - last], new[: len(new) - last]
    yield from ((" ", line) for line in common)
    if len(old) + len(new) <= _MAX_ALIGNED:
        yield from _aligned(old, new)
    else:
        yield from _signed(old, new)
    yield from ((" ", line) for line in rest)


def _aligned(old: list[str], new: list[str]) -> Iterator[tuple[str, str]]:
    for what, begin, end, start, stop in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if what == "equal":
            yield from ((" ", line) for line in old[begin:end])
        else:
            yield from _signed(old[begin:end], new[start:stop])


def _signed(old: list[str], new: list[str]) -> Iterator[tuple[str, str]]:
    yield from (("-", line) for line in old)
    yield from (("+", line) for line in new)


def _lines(value: Any, indent: str = "") -> Iterator[str]:
    """A value in lines: members by name, texts as they read, everything with its hidden characters written out."""
    match value:
        case None if not indent:
            return
        case dict():
            # Sorted: what was approved comes from the file, where the order of the server is not kept.
            for name, inner in sorted(value.items()):
                label = f"{indent}{revealed(name)}:"
                if isinstance(inner, dict | list) and inner:
                    yield label
                    yield from _lines(inner, indent + "  ")
                elif isinstance(inner, str) and "\n" in inner:
                    yield label
                    yield from (f"{indent}  {revealed(line)}" for line in inner.split("\n"))
                else:
                    yield f"{label} {_scalar(inner)}"
        case list():
            for inner in value:
                if isinstance(inner, dict) and inner:
                    yield f"{indent}-"
                    yield from _lines(inner, indent + "  ")
                else:
                    yield f"{indent}- {_scalar(inner)}"
        case str():
            yield from (indent + revealed(line) for line in value.split("\n"))
        case _:
            yield indent + _scalar(value)


def _scalar(value: Any) -> str:
    import msgspec

    if isinstance(value, str) and value:
        return revealed(value)
    return revealed(msgspec.json.encode(value).decode())


def _strange(before: Any, after: Any) -> list[str]:
    """Characters that are new, and not what a keyboard has."""
    return sorted({character for character in _text(after) if not character.isascii()} - set(_text(before)))


def _text(value: Any) -> str:
    match value:
        case str():
            return value
        case dict():
            return "".join(_text(part) for pair in value.items() for part in pair)
        case list():
            return "".join(map(_text, value))
    return ""
