"""How a JSON Schema changed: its words apart from what it allows, the direction, and the places. Pure.

Decided here: which keywords are words for a reader and which decide what is allowed, whether a schema became wider or narrower as far as
that can be shown (`inclusion`), and how each place is told. Not here: what that means for the server that changed it (`drift`).

Spec: ours
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from itertools import islice
from typing import Any, Final

import msgspec
from msgspec import Struct

from outrider.catalog.lock.inclusion import Effort, is_included
from outrider.catalog.lock.rules import CONSTRAINTS
from outrider.errors import OutriderError
from outrider.protocol.digest import canonical_json
from outrider.protocol.schema import render_pointer, subschemas

__all__ = ["Direction", "SchemaChange", "compare_schemas"]

_WORDS: Final = frozenset(
    {"title", "description", "markdownDescription", "$comment", "default", "examples", "example"}
    | {"enumDescriptions", "enumNames", "deprecationMessage", "errorMessage"}
)
"""Keywords that allow and forbid nothing: a model or a person reads them."""
_NAMED: Final = frozenset({"properties", "patternProperties", "$defs", "definitions"})
_BESIDE: Final = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "if", "then", "else"),
    *("contains", "minContains", "maxContains", "properties", "patternProperties", "prefixItems"),
)
"""What gives other keywords their meaning: they are weighed with it."""
_SENTENCE_CHARS: Final = 60
_EXCERPT_CHARS: Final = 60
_MAX_PLACES: Final = 50

Path = tuple[str | int, ...]


class Direction(StrEnum):
    """What became of the set of allowed values."""

    SAME = "rewritten"
    """Exactly the same values are allowed, written differently."""
    WIDENED = "widened"
    """Whatever was allowed still is, and maybe more."""
    NARROWED = "narrowed"
    """Whatever is allowed was allowed before; something that was may no longer be."""
    BOTH = "narrowed and widened"
    """Narrower in some places and wider in others."""
    CHANGED = "changed"
    """Neither could be shown."""


class SchemaChange(Struct, frozen=True):
    """How one schema became another.

    Attributes:
        direction: of the allowed values; None if only words changed.
        places: each place where what is allowed is written differently, as "#/properties/a: now required".
        words: each place with other words, by its pointer: before and after, None for absent.
        is_extension: all that can go wrong for a caller is that a new optional parameter was given before, as something else.
    """

    direction: Direction | None
    places: tuple[str, ...]
    words: dict[str, tuple[Any, Any]]
    is_extension: bool = False


def compare_schemas(before: Any, after: Any) -> SchemaChange:
    """What changed from one schema to the next.

    Args:
        before: a decoded JSON Schema; True for none, which allows everything.
        after: likewise.
    """
    try:
        (old, old_words), (new, new_words) = _apart(before), _apart(after)
    except OutriderError:  # A size that no listing lets through, but a file may hold it.
        return SchemaChange(Direction.CHANGED, ("#: too large to be compared",), {})
    words = {
        pointer: (old_words.get(pointer), new_words.get(pointer))
        for pointer in sorted(old_words.keys() | new_words.keys())
        if old_words.get(pointer) != new_words.get(pointer)
    }
    if canonical_json(old) == canonical_json(new):
        return SchemaChange(None, (), words)
    effort = Effort()
    shown = _shown(old, new, effort)
    found = list(islice(_Places(old, new, effort).differences(old, new, ()), _MAX_PLACES))
    for pointer, text in _sentences(old, new):
        words.setdefault(pointer, (None, text))
    direction = _direction(shown, found)
    is_extension = direction is Direction.NARROWED and all(
        place.is_extension or place.direction in (Direction.SAME, Direction.WIDENED) for place in found
    )
    return SchemaChange(direction, tuple(str(place) for place in found), words, is_extension)


class _Place(Struct, frozen=True):
    path: Path
    text: str
    direction: Direction
    is_extension: bool = False

    def __str__(self) -> str:
        return f"{render_pointer(self.path)}: {self.text}"


def _direction(shown: Direction, places: list[_Place]) -> Direction:
    there = {place.direction for place in places} - {Direction.SAME}
    if shown is Direction.SAME:
        # A keyword that no validator knows can still mean something to somebody.
        return Direction.CHANGED if Direction.CHANGED in there else shown
    is_clear = Direction.CHANGED not in there and len(places) < _MAX_PLACES
    if shown is Direction.CHANGED and is_clear and (len(there) > 1 or Direction.BOTH in there):
        return Direction.BOTH
    return shown


def _shown(old: Any, new: Any, effort: Effort) -> Direction:
    wider, narrower = is_included(old, new, effort=effort), is_included(new, old, effort=effort)
    if wider and narrower:
        return Direction.SAME
    return Direction.WIDENED if wider else Direction.NARROWED if narrower else Direction.CHANGED


# -- words ---------------------------------------------------------------------------------------------------------------------------


def _apart(schema: Any) -> tuple[Any, dict[str, Any]]:
    """A schema without its words, and the words by where they stand."""
    bare = msgspec.json.decode(msgspec.json.encode(schema))
    words: dict[str, Any] = {}
    for place in list(subschemas(bare)):
        if isinstance(place.node, dict) and place.well_formed:
            for keyword in _WORDS & place.node.keys():
                words[render_pointer((*place.path, keyword))] = place.node.pop(keyword)
    return bare, words


def _sentences(old: Any, new: Any) -> Iterator[tuple[str, str]]:
    """New texts that are read like words though they stand where values and names do."""
    known = set(_texts(old))
    for text in dict.fromkeys(_texts(new)):
        if text not in known and (len(text) > _SENTENCE_CHARS or len(text.split()) > 4):
            yield f"#: the text {msgspec.json.encode(text[:_EXCERPT_CHARS]).decode()}", text


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


# -- places --------------------------------------------------------------------------------------------------------------------------


class _Places:
    """Walks two schemas side by side and tells where they differ.

    Each place is weighed by itself: for a "both" it is enough that some places are narrower and some wider.
    """

    def __init__(self, old: Any, new: Any, effort: Effort) -> None:
        self._effort = effort
        self._old_root = _definitions(old)
        self._new_root = _definitions(new)

    def differences(self, old: Any, new: Any, path: Path) -> Iterator[_Place]:
        """The places where two schemas differ, in the order of their keywords."""
        if _is_same(old, new):
            return
        if not isinstance(old, dict) or not isinstance(new, dict):
            yield _Place(path, f"{_excerpt(old)} → {_excerpt(new)}", self._weigh(old, new))
            return
        for keyword in sorted(old.keys() | new.keys()):
            before, after = old.get(keyword, msgspec.UNSET), new.get(keyword, msgspec.UNSET)
            if _is_same(before, after):
                continue
            here = (*path, keyword)
            if (
                keyword in _NAMED
                and isinstance(before, dict | msgspec.UnsetType)
                and isinstance(after, dict | msgspec.UnsetType)
            ):
                yield from self._named(keyword, before or {}, after or {}, old, new, here)
            elif keyword == "required" and isinstance(before or [], list) and isinstance(after or [], list):
                yield from _required(before or [], after or [], path)
            elif keyword in ("items", "additionalProperties") and isinstance(before, dict) and isinstance(after, dict):
                yield from self.differences(before, after, here)
            else:
                yield self._keyword(keyword, before, after, old, new, here)

    def _named(self, keyword: str, before: Any, after: Any, old: Any, new: Any, path: Path) -> Iterator[_Place]:
        for name in sorted(before.keys() | after.keys()):
            here = (*path, name)
            if name in before and name in after:
                yield from self.differences(before[name], after[name], here)
            elif keyword in ("$defs", "definitions"):
                yield _Place(here, "a new definition" if name in after else "the definition is gone", Direction.SAME)
            elif name in after:
                is_required, direction = name in _list(new, "required"), self._weigh(_rest(old), after[name])
                text = f"a new parameter, {'required' if is_required else 'optional'}"
                if direction is not Direction.WIDENED and not is_required:
                    text += "; anything could be given under this name before"
                yield _Place(here, text, direction, is_extension=not is_required)
            else:
                yield _Place(here, "the parameter is gone", self._weigh(before[name], _rest(new)))

    def _keyword(self, keyword: str, before: Any, after: Any, old: Any, new: Any, path: Path) -> _Place:
        if isinstance(before, list) and isinstance(after, list) and keyword in ("enum", "type"):
            gone = [value for value in before if not any(_is_same(value, other) for other in after)]
            come = [value for value in after if not any(_is_same(value, other) for other in before)]
            parts = [f"no longer {_listed(gone)}"] * bool(gone) + [f"now also {_listed(come)}"] * bool(come)
            text = ", ".join(parts) or "in another order"
        elif before is msgspec.UNSET:
            text = f"now {_excerpt(after)}"
        elif after is msgspec.UNSET:
            text = f"was {_excerpt(before)}, now absent"
        else:
            text = f"{_excerpt(before)} → {_excerpt(after)}"
        if keyword not in CONSTRAINTS:
            return _Place(path, text, Direction.CHANGED)
        common = {k: old[k] for k in _BESIDE if k in old and k in new and _is_same(old[k], new[k])}
        direction = self._weigh(_one(keyword, before, common), _one(keyword, after, common))
        if direction is Direction.CHANGED and keyword == "enum" and "no longer" in text and "also" in text:
            direction = Direction.BOTH
        return _Place(path, text, direction)

    def _weigh(self, old: Any, new: Any) -> Direction:
        """The direction of two schemas taken out of their documents, with the definitions of these."""
        return _shown(
            {**old, **self._old_root} if isinstance(old, dict) else old,
            {**new, **self._new_root} if isinstance(new, dict) else new,
            self._effort,
        )


def _definitions(root: Any) -> dict[str, Any]:
    return {k: root[k] for k in ("$schema", "$defs", "definitions") if k in root} if isinstance(root, dict) else {}


def _one(keyword: str, value: Any, common: dict[str, Any]) -> dict[str, Any]:
    return common if value is msgspec.UNSET else {**common, keyword: value}


def _required(before: list[Any], after: list[Any], path: Path) -> Iterator[_Place]:
    for name in sorted({str(name) for name in [*before, *after]}):
        if name in after and name not in before:
            yield _Place((*path, "properties", name), "now required", Direction.NARROWED)
        elif name in before and name not in after:
            yield _Place((*path, "properties", name), "no longer required", Direction.WIDENED)
    if sorted(map(str, before)) == sorted(map(str, after)):
        yield _Place((*path, "required"), "in another order", Direction.SAME)


def _rest(schema: dict[str, Any]) -> Any:
    """What a schema says of members that it does not name."""
    return True if schema.get("patternProperties") else schema.get("additionalProperties", True)


def _list(schema: dict[str, Any], keyword: str) -> list[Any]:
    value = schema.get(keyword)
    return value if isinstance(value, list) else []


def _is_same(one: Any, other: Any) -> bool:
    if one is msgspec.UNSET or other is msgspec.UNSET:
        return one is other
    return canonical_json(one) == canonical_json(other)


def _listed(values: list[Any]) -> str:
    shown = ", ".join(map(_excerpt, values[:10]))
    return shown + (f" and {len(values) - 10} more" if len(values) > 10 else "")


def _excerpt(value: Any) -> str:
    text = canonical_json(value).decode()
    return text if len(text) <= _EXCERPT_CHARS else text[: _EXCERPT_CHARS - 1] + "…"
