"""Two schemas as one.

Decided here: when two clean schemas that hold together can be written as one that means the same, and how. Not here: what to do where they
cannot (`reading`, `adaptation`). Pure.

Spec: ours
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Struct

from outrider.catalog.formats.clean import Change, CleanSchema, Effect, Node, Path, ordered

__all__ = ["is_same", "join"]


def join(clean: CleanSchema, a: Node, b: Node, path: Path, changes: list[Change]) -> Node | None:
    """One clean schema that accepts what both `a` and `b` accept, or None where that cannot be written without `allOf`.

    Args:
        clean: what both belong to; it learns where the schemas that are made here stand.
        a: a clean schema; its title stays where both have one.
        b: a clean schema.
        path: where both hold.
        changes: receives what is different.
    """
    seams = _Seams()
    merged = _merge(a, b, seams)
    if merged is None:
        return None
    for node, origin in seams.made:
        clean.remember(node, clean.paths.get(id(origin), path))
    for node, keyword in seams.joined:
        where = ("inputSchema", *clean.paths.get(id(node), path))
        changes.append(Change(where, keyword, Effect.SAME, "is said twice; what both allow stays"))
    return merged


class _Seams(Struct):
    """Where two schemas became one.

    Attributes:
        joined: schemas and their keywords that both sides had, with different values.
        made: new schemas, each with the one whose place it takes.
    """

    joined: list[tuple[Node, str]] = msgspec.field(default_factory=list)
    made: list[tuple[Node, Node]] = msgspec.field(default_factory=list)


def _merge(a: Node, b: Node, seams: _Seams) -> Node | None:
    """See `join`; `seams` is worthless if the result is None."""
    if not _are_separable(a, b):
        return None
    out = dict(a)
    for keyword, theirs in b.items():
        if keyword not in out or is_same(out[keyword], theirs):
            out.setdefault(keyword, theirs)
            continue
        rule = _MERGES.get(keyword)
        both = rule(out[keyword], theirs, seams) if rule else None
        if both is None:
            return None
        if keyword != "properties":
            seams.joined.append((a, keyword))
        out[keyword] = both
    if "type" in out and isinstance(out["type"], list) and len(out["type"]) == 1:
        out["type"] = out["type"][0]
    out = ordered(out)
    seams.made.append((out, a))
    return out


def _are_separable(a: Node, b: Node) -> bool:
    """Whether no keyword of one changes what a keyword of the other means."""
    for mine, theirs in ((a, b), (b, a)):
        if any(keyword in mine for keyword in ("unevaluatedProperties", "unevaluatedItems")) and theirs:
            return False
        is_open = is_same(mine.get("additionalProperties", True), True) or mine.get("additionalProperties") == {}
        if not is_open or "patternProperties" in mine:
            names = set(theirs.get("properties", {}))
            if not names <= set(mine.get("properties", {})) or "patternProperties" in theirs:
                return False
        if "prefixItems" in mine and ("items" in theirs or "prefixItems" in theirs):
            return False
        if "contains" in mine and any(k in theirs for k in ("contains", "minContains", "maxContains")):
            return False
        if "if" in mine and "if" in theirs:
            return False
    if "additionalProperties" in a and "additionalProperties" in b:
        return set(a.get("properties", {})) == set(b.get("properties", {}))
    return True


def is_same(a: Any, b: Any) -> bool:
    """Whether two JSON values are equal; 1 and 1.0, or 1 and true, are not."""
    return bool(msgspec.json.encode(a, order="sorted") == msgspec.json.encode(b, order="sorted"))


def _merge_types(a: Any, b: Any, seams: _Seams) -> list[str] | None:
    mine, theirs = (set(t) if isinstance(t, list) else {t} for t in (a, b))
    both = mine & theirs
    for one, other in ((mine, theirs), (theirs, mine)):
        if "integer" in one and "number" in other:
            both.add("integer")
    return sorted(both) or None


def _merge_properties(a: Node, b: Node, seams: _Seams) -> Node:
    out = dict(a)
    for name, theirs in b.items():
        mine = out.get(name)
        if mine is None:
            out[name] = theirs
        elif not is_same(mine, theirs):
            both = _merge(mine, theirs, seams)
            if both is None:
                both = {"allOf": [mine, theirs]}
                seams.made.append((both, mine))
            out[name] = both
    return out


def _merge_required(a: list[str], b: list[str], seams: _Seams) -> list[str]:
    return list(dict.fromkeys((*a, *b)))


def _merge_dependent_required(a: Node, b: Node, seams: _Seams) -> Node:
    return {name: _merge_required(a.get(name, []), b.get(name, []), seams) for name in dict.fromkeys((*a, *b))}


def _merge_enums(a: list[Any], b: list[Any], seams: _Seams) -> list[Any] | None:
    theirs = {msgspec.json.encode(option, order="sorted") for option in b}
    return [option for option in a if msgspec.json.encode(option, order="sorted") in theirs] or None


def _merge_schemas(a: Any, b: Any, seams: _Seams) -> Node | None:
    return _merge(a, b, seams) if isinstance(a, dict) and isinstance(b, dict) else None


def _merge_text(a: str, b: str, seams: _Seams) -> str:
    return a if b in a else f"{a}\n{b}"


_MERGES: Final[dict[str, Callable[[Any, Any, _Seams], Any]]] = {
    "type": _merge_types,
    "properties": _merge_properties,
    "required": _merge_required,
    "dependentRequired": _merge_dependent_required,
    "enum": _merge_enums,
    "items": _merge_schemas,
    "propertyNames": _merge_schemas,
    "additionalProperties": _merge_schemas,
    "description": _merge_text,
    "title": lambda a, b, seams: a,
    "allOf": lambda a, b, seams: [*a, *b],
    "uniqueItems": lambda a, b, seams: True,
    **dict.fromkeys(
        ("minimum", "exclusiveMinimum", "minItems", "minLength", "minProperties"), lambda a, b, seams: max(a, b)
    ),
    **dict.fromkeys(
        ("maximum", "exclusiveMaximum", "maxItems", "maxLength", "maxProperties"), lambda a, b, seams: min(a, b)
    ),
}
