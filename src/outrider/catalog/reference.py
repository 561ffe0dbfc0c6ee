"""Which tool: the key of its server in the catalog, and the server's own name for it. Pure."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

__all__ = ["OWN_SERVER", "ToolRef"]

OWN_SERVER: Final = "_outrider"
"""The key under which Outrider's own tools stand beside those of servers; no server can have it, since keys do not begin with `_`."""


class ToolRef(Struct, frozen=True, order=True):
    """Which tool: what every call is routed by. It is never parsed from a name that a model or a server chose."""

    server: str
    name: str

    def __str__(self) -> str:
        """`server/name`, unique in a catalog: a server key never holds a slash."""
        return f"{self.server}/{self.name}"
