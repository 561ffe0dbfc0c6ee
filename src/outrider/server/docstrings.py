"""What a docstring says of a function and of its parameters.

Decided here: which styles are understood. Not here: where the texts go (`definitions`, `schemas`). Pure.
"""

from __future__ import annotations

import inspect
import re
from typing import Final

__all__ = ["parse_docstring"]

_SECTION: Final = re.compile(
    r"^(args|arguments|parameters|params|returns?|yields?|raises|examples?|notes?|see also|attributes)\s*:?\s*$", re.I
)
_GOOGLE_ENTRY: Final = re.compile(r"^(\s*)\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_NUMPY_ENTRY: Final = re.compile(r"^(\w+)\s*(?::.*)?$")
_REST_ENTRY: Final = re.compile(r"^\s*:param\s+(?:[^:]*\s)?(\w+)\s*:\s*(.*)$")


def parse_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """Split a docstring into its description and its parameters' descriptions.

    Google's (`Args:`), NumPy's (`Parameters` underlined) and reStructuredText's (`:param x:`) styles are understood.

    Returns:
        The text up to the first section, and parameter name to one-line description.
    """
    lines = inspect.cleandoc(text or "").splitlines()
    description: list[str] = []
    parameters: dict[str, str] = {}
    section: str | None = None
    numpy_style = False
    entry: str | None = None
    entry_indent = 0
    for position, line in enumerate(lines):
        heading = _SECTION.match(line)
        underline = lines[position + 1].strip() if position + 1 < len(lines) else ""
        is_numpy_heading = bool(heading) and len(underline) > 2 and set(underline) == {"-"}
        if heading and (line.rstrip().endswith(":") or is_numpy_heading):
            section, numpy_style, entry = heading[1].lower(), is_numpy_heading, None
            continue
        if rest := _REST_ENTRY.match(line):
            section, entry, entry_indent = "params", rest[1], len(line) - len(line.lstrip())
            parameters[entry] = rest[2].strip()
            continue
        if section is None:
            if line.lstrip().startswith((":return", ":raise", ":type", ":rtype")):
                section = "other"
                continue
            description.append(line)
            continue
        if not section.startswith(("arg", "param")) or set(line.strip()) == {"-"}:
            continue
        indent = len(line) - len(line.lstrip())
        if numpy_style and indent == 0 and (named := _NUMPY_ENTRY.match(line)):
            entry, entry_indent = named[1], 0
            parameters[entry] = ""
        elif not numpy_style and (entry is None or indent <= entry_indent) and (named := _GOOGLE_ENTRY.match(line)):
            entry, entry_indent = named[2], len(named[1])
            parameters[entry] = named[3].strip()
        elif entry is not None and line.strip() and not line.lstrip().startswith(":"):
            parameters[entry] = f"{parameters[entry]} {line.strip()}".strip()
        elif line.lstrip().startswith(":"):
            entry = None
    return "\n".join(description).strip(), {name: text for name, text in parameters.items() if text}
