"""URI templates (RFC 6570) used backwards: does a URI fit, and which values does it carry?

Decided here: which expressions a resource template may hold, how each matches, and which values are refused for safety. Matching takes time
linear in the URI: a variable stops at the character that follows it in the template, and only one may run across slashes.

Understood: `{name}` (within one path segment), `{+name}` (anything), `{/name}`, `{/name*}`, `{?a,b}` and `{&a}` at the end. Pure.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl, unquote

__all__ = ["UriTemplate"]

_EXPRESSION: Final = re.compile(r"\{([^{}]*)\}")
_INNER: Final = re.compile(r"([+/?&]?)([A-Za-z_][A-Za-z0-9_]*(?:,[A-Za-z_][A-Za-z0-9_]*)*)(\*?)")
_MAX_URI_CHARS: Final = 8192


class UriTemplate:
    """A resource template's URI.

    Attributes:
        text: the template as written.
        names: its variables in order.
    """

    def __init__(self, text: str, *, allow_dot_segments: bool = False) -> None:
        """Parse a template.

        Args:
            text: the template.
            allow_dot_segments: accept values with a `..` segment. Leave it off wherever a value becomes part of a file's path.

        Raises:
            ValueError: an expression that cannot be matched backwards, or would be ambiguous.
        """
        self.text = text
        self._allow_dot_segments = allow_dot_segments
        names: list[str] = []
        query: list[str] = []
        pattern = ""
        spanning = 0
        position = 0
        for found in _EXPRESSION.finditer(text):
            literal, position = text[position : found.start()], found.end()
            inner = _INNER.fullmatch(found[1])
            if inner is None:
                raise ValueError(f"the template expression {found[0]} is not supported")
            operator, listed, exploded = inner[1], inner[2].split(","), inner[3]
            if query and operator not in ("?", "&"):
                raise ValueError(f"{found[0]}: nothing but {{?…}} and {{&…}} can follow a query")
            pattern += re.escape(literal)
            names += listed
            following = text[position : position + 1]
            if operator in ("?", "&"):
                query += listed
                continue
            if len(listed) > 1 or (following == "{" and text[position + 1 : position + 2] not in ("/", "?", "&")):
                raise ValueError(f"{found[0]}: two variables without a character between them are ambiguous")
            if operator == "+" or exploded:
                spanning += 1
                pattern += ("/" if operator == "/" else "") + "(.+)"
            else:
                stop = following if following not in ("", "{") else ""
                pattern += ("/" if operator == "/" else "") + f"([^/?#{re.escape(stop)}]+)"
        if spanning > 1:
            raise ValueError(f"{text}: only one variable may run across slashes")
        if query and position < len(text):
            raise ValueError(f"{text}: nothing can follow a query expression")
        if len(set(names)) != len(names):
            raise ValueError(f"{text}: a variable stands twice")
        self.names = tuple(names)
        self._query = frozenset(query)
        self._path_names = tuple(name for name in names if name not in self._query)
        self._pattern = re.compile(pattern + re.escape(text[position:]), re.DOTALL)

    def match(self, uri: str) -> dict[str, str] | None:
        """The decoded values that `uri` carries, or None when it does not fit.

        Query variables may be missing; any other member of the query makes it not fit.
        """
        if len(uri) > _MAX_URI_CHARS:
            return None
        path, question, rest = uri.partition("?") if self._query else (uri, "", "")
        found = self._pattern.fullmatch(path)
        if found is None:
            return None
        values: dict[str, str] = {}
        try:
            for name, value in zip(self._path_names, found.groups(), strict=True):
                values[name] = unquote(value, errors="strict")
            if question:
                for name, value in parse_qsl(rest, keep_blank_values=True, strict_parsing=True, errors="strict"):
                    if name not in self._query or name in values:
                        return None
                    values[name] = value
        except ValueError:
            return None
        if not self._allow_dot_segments and not all(map(_is_harmless, values.values())):
            return None
        return values


def _is_harmless(value: str) -> bool:
    """Whether a value cannot leave a directory it is appended to. Spec: server/resources#security-considerations (MUST)"""
    return "\0" not in value and ".." not in value.replace("\\", "/").split("/")
