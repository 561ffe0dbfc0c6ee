"""The few tools that stand for a whole catalog: search, describe, call, and read on in a long result.

Decided here: their names, their words, what their arguments mean. Not here: what they do (`conversation`). Pure.

The words are as short as they are because they go out with every request: all of them together cost at most 600 tokens with any vendor.
Spec: ours
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from outrider.catalog.formats.arguments import Malformed, read_arguments
from outrider.catalog.reference import OWN_SERVER, ToolRef

__all__ = [
    "CALL",
    "DESCRIBE",
    "FIND",
    "READ",
    "SEARCH",
    "SURFACE_NAMES",
    "Call",
    "Search",
    "described",
    "surface_ref",
    "whole_number",
]

DEFAULT_HITS: Final = 8
MAX_HITS: Final = 20
MAX_QUERIES: Final = 5

_QUERIES: Final[dict[str, Any]] = {
    "type": "array",
    "items": {"type": "string"},
    "description": "1 to 5 short queries, one per step of the task",
}

SEARCH: Final[dict[str, Any]] = {
    "name": "search_tools",
    "description": "Find tools by what they do. Several small queries find more than one long one. "
    "Then use call_tool; describe_tools shows the arguments.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "queries": _QUERIES,
            "limit": {"type": "integer", "description": "hits per query, 8 by default"},
            "detail": {
                "type": "string",
                "enum": ["names", "brief", "full"],
                "description": "brief by default; full includes schemas",
            },
        },
        "required": ["queries"],
    },
}
"""Search, where found tools are called with `CALL`."""

FIND: Final[dict[str, Any]] = {
    "name": "search_tools",
    "description": "Find tools by what they do. Several small queries find more than one long one. "
    "What is found can then be called by its name.",
    "inputSchema": {"type": "object", "properties": {"queries": _QUERIES}, "required": ["queries"]},
}
"""Search, where the vendor loads what is found."""

DESCRIBE: Final[dict[str, Any]] = {
    "name": "describe_tools",
    "description": "Show what tools take: description and JSON Schema of the arguments.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "names": {"type": "array", "items": {"type": "string"}, "description": "tool names from search_tools"}
        },
        "required": ["names"],
    },
}

CALL: Final[dict[str, Any]] = {
    "name": "call_tool",
    "description": "Call a tool found with search_tools.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "tool name from search_tools"},
            "arguments": {"type": "object", "description": "arguments that fit the tool's schema", "properties": {}},
        },
        "required": ["name"],
    },
}

READ: Final[dict[str, Any]] = {
    "name": "read_result",
    "description": "Read on in a result that was cut.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "result": {"type": "string", "description": "the result's id"},
            "start": {"type": "integer", "description": "the first character to show"},
        },
        "required": ["result", "start"],
    },
}
"""Shown only once there is a result that was cut."""

SURFACE_NAMES: Final = frozenset(definition["name"] for definition in (SEARCH, DESCRIBE, CALL, READ))


def surface_ref(definition: dict[str, Any]) -> ToolRef:
    """The identity of one of these tools."""
    return ToolRef(OWN_SERVER, definition["name"])


class Search(Struct, frozen=True):
    """What `search_tools` was asked for.

    Attributes:
        queries: 1 to 5 texts.
        limit: hits for each of them.
        detail: "names", "brief" or "full".
    """

    queries: tuple[str, ...]
    limit: int
    detail: str

    @classmethod
    def read(cls, arguments: dict[str, Any]) -> Search | None:
        """The search that a model's arguments mean, or None if they hold no query. What can be understood is not refused."""
        queries = _texts(arguments, "queries", "query")
        if not queries:
            return None
        limit = min(max(whole_number(arguments.get("limit"), DEFAULT_HITS), 1), MAX_HITS)
        detail = arguments.get("detail")
        return cls(queries[:MAX_QUERIES], limit, detail if detail in ("names", "full") else "brief")


class Call(Struct, frozen=True):
    """What `call_tool` was asked for.

    Attributes:
        name: of the tool to call, as the model wrote it.
        arguments: for it.
    """

    name: str
    arguments: dict[str, Any]

    @classmethod
    def read(cls, arguments: dict[str, Any]) -> Call | str:
        """The call that a model's arguments mean, or what is wrong with them. The arguments may be a JSON text of an object."""
        name = arguments.get("name")
        if not isinstance(name, str) or not name:
            return "call_tool needs the name of a tool"
        inner = read_arguments(arguments.get("arguments"))
        return str(inner) if isinstance(inner, Malformed) else cls(name, inner)


def described(arguments: dict[str, Any]) -> tuple[str, ...]:
    """The names that `describe_tools` was asked for."""
    return _texts(arguments, "names", "name")[:MAX_HITS]


def whole_number(value: Any, otherwise: int) -> int:
    """A number that a model wrote, if it is one; some write 8.0."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) else otherwise


def _texts(arguments: dict[str, Any], *names: str) -> tuple[str, ...]:
    """A list of texts under one of several names; a single text is a list of one."""
    for name in names:
        value = arguments.get(name)
        if isinstance(value, str):
            return (value,)
        if isinstance(value, list):
            return tuple(text for text in value if isinstance(text, str))
    return ()
