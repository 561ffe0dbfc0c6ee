"""Texts for a terminal: what servers write is made visible and harmless before it is shown.

Decided here: which characters may reach a terminal, and how columns are cut. JSON output does not come through here: it keeps what arrived.
"""

from __future__ import annotations

import re
import unicodedata

from outrider.characters import is_hidden

__all__ = ["clip", "count", "revealed", "visible", "width"]


_LONG_SPACES = re.compile(r" {9,}")


def visible(text: str, *, one_line: bool = True) -> str:
    r"""`text` with every character that could repaint a terminal or hide something written as an escape such as `\x1b`.

    Args:
        text: anything a server sent.
        one_line: also turn line ends and runs of white space into single spaces.
    """
    if one_line:
        text = " ".join(text.split(" ")) if text.isascii() and text.isprintable() else " ".join(text.split())
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(c) if is_hidden(c) else c for c in text)


def revealed(text: str) -> str:
    """`text`, one line of a difference, with all that a reader would not see.

    Besides what `visible` shows, these are tabs, spaces at an end, long runs of spaces, and every space that is not the usual one.
    """
    text = _LONG_SPACES.sub(lambda run: f"\\x20×{len(run[0])}", text)
    if text != text.strip(" "):
        text = (
            "\\x20" * (len(text) - len(text.lstrip(" ")))
            + text.strip(" ")
            + "\\x20" * (len(text) - len(text.rstrip(" ")))
        )
    return "".join(_escape(c) if is_hidden(c) or (c.isspace() and c != " ") else c for c in text)


def _escape(character: str) -> str:
    point = ord(character)
    if point < 0x100:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


def width(text: str) -> int:
    """How many terminal columns `text` takes."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def clip(text: str, columns: int) -> str:
    """`text` in at most `columns` columns, with an ellipsis where it was cut."""
    if width(text) <= columns:
        return text
    kept, used = [], 0
    for character in text:
        used += width(character)
        if used > columns - 1:
            break
        kept.append(character)
    return "".join(kept).rstrip() + "…"


def count(number: int, singular: str, plural: str = "") -> str:
    """A number with its noun: "1 tool", "2 tools"."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"
