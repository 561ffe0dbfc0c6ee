"""Servers as they are pinned, from a few words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outrider.catalog.lock import ServerPins
from outrider.catalog.lock.pins import KINDS, Definition

FACTS: dict[str, Any] = {
    "target": "npx weather",
    "era": "modern",
    "versions": ["2026-07-28"],
    "identity.name": "Weather",
    "identity.version": "1.0",
    "capabilities.tools": {},
    "instructions": "One place at a time.",
}
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string", "description": "Where"}}}
FORECAST: dict[str, Any] = {"description": "The weather.", "inputSchema": SCHEMA}


def pinned(facts: Mapping[str, Any] | None = None, **items: Mapping[str, Mapping[str, Any]]) -> ServerPins:
    """A server with these facts instead of the usual ones, and items by kind and name; a tool `forecast` if none are given."""
    items = items or {"tool": {"forecast": FORECAST}}
    return ServerPins(
        Definition.of({**FACTS, **(facts or {})}),
        {kind: {name: Definition.of(parts) for name, parts in items.get(kind, {}).items()} for kind in KINDS},
    )
