"""A tool's schema for a reader: each argument with its type, its bounds and what it is for.

Decided here: how a schema is put into words. References into the schema are followed; what two alternatives have in common is not worked
out. Not here: the schema as it came (`outrider show --json`), whether arguments fit it (`protocol.schema_validation`).

A schema comes from a server: depth, branches and lines are bounded, and nothing is shown raw.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from outrider.cli.text import visible
from outrider.errors import LimitExceeded
from outrider.protocol.schema import SchemaDocument

__all__ = ["Parameter", "parameters", "takes_text"]

_DEPTH: Final = 4
"""Objects within objects that are shown; the deepest that anybody fills in by hand has three."""
_BRANCHES: Final = 8
_LINES: Final = 300
_VALUES: Final = 12
_JSON_TYPES: Final = {
    str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object", type(None): "null",
}  # fmt: skip
_BOUNDS: Final = (
    ("format", "{}"),
    ("minimum", "at least {}"),
    ("exclusiveMinimum", "more than {}"),
    ("maximum", "at most {}"),
    ("exclusiveMaximum", "less than {}"),
    ("multipleOf", "a multiple of {}"),
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
    ("pattern", "matching {}"),
    ("minItems", "at least {} items"),
    ("maxItems", "at most {} items"),
)


class Parameter(msgspec.Struct, frozen=True):
    """One line of the list.

    Attributes:
        depth: how many objects it stands in.
        name: of the argument; "" for a line that is only a remark.
        told: type, whether it is required, bounds, default; or the remark.
        description: the server's own words, or "".
    """

    depth: int
    name: str
    told: str
    description: str = ""


def parameters(schema: dict[str, Any]) -> list[Parameter]:
    """The arguments that `schema` describes, nested ones below the one they belong to; [] if it describes none."""
    lines: list[Parameter] = []
    for line in _Reader(schema).members(schema, 0, ()):
        if len(lines) >= _LINES:
            lines.append(Parameter(0, "", "… and more; --json has them all"))
            break
        lines.append(line)
    return lines


def takes_text(schema: dict[str, Any], name: str) -> bool:
    """Whether the argument `name` may be a string, as far as its schema says what it may be; if not, a text is to be read as JSON."""
    reader = _Reader(schema)
    properties = reader.merged(schema).get("properties")
    kinds = reader.kinds(properties.get(name)) if isinstance(properties, dict) else None
    return kinds is None or "string" in kinds


class _Reader:
    def __init__(self, schema: dict[str, Any]) -> None:
        try:
            self._document: SchemaDocument | None = SchemaDocument(schema)
        except LimitExceeded:
            self._document = None

    def _followed(self, rule: Any) -> dict[str, Any]:
        """`rule` without references: what it refers to, and what stands beside the reference."""
        seen: set[str] = set()
        beside: dict[str, Any] = {}
        while isinstance(rule, dict):
            ref = rule.get("$ref")
            beside = {**rule, **beside}
            if not isinstance(ref, str) or ref in seen or self._document is None:
                return beside
            seen.add(ref)
            target = self._document.resolve(ref, at=rule).target
            if not isinstance(target, dict):
                return beside
            del beside["$ref"]
            rule = target
        return beside

    def merged(self, rule: Any, nesting: int = 0) -> dict[str, Any]:
        """`rule` with all that every value must fit, `allOf` included, as one schema."""
        merged = self._followed(rule)
        parts = merged.get("allOf")
        if not isinstance(parts, list) or nesting >= _DEPTH:
            return merged
        properties = dict(merged["properties"]) if isinstance(merged.get("properties"), dict) else {}
        required = _names(merged.get("required"))
        for part in parts[:_BRANCHES]:
            below = self.merged(part, nesting + 1)
            if isinstance(below.get("properties"), dict):
                properties = {**below["properties"], **properties}
            required += _names(below.get("required"))
            merged = {**below, **merged}
        if properties:
            merged["properties"] = properties
        return {**merged, "required": required}

    def kinds(self, rule: Any, nesting: int = 0) -> set[str] | None:
        """The JSON types that a value may have; None if it may have any."""
        rule = self.merged(rule)
        found: set[str] | None = None
        if isinstance(kind := rule.get("type"), (str, list)):
            found = {kind} if isinstance(kind, str) else set(_names(kind))
        values = [rule["const"]] if "const" in rule else rule.get("enum")
        if isinstance(values, list):
            of_values = {_JSON_TYPES.get(type(value), "object") for value in values}
            found = of_values if found is None else found & of_values or found
        for branches in (rule.get("anyOf"), rule.get("oneOf")):
            if isinstance(branches, list) and nesting < _DEPTH and len(branches) <= _VALUES:
                some = [self.kinds(branch, nesting + 1) for branch in branches]
                if None not in some:
                    of_branches = set().union(*(kinds for kinds in some if kinds is not None))
                    found = of_branches if found is None else found & of_branches or found
        return found

    def members(self, schema: Any, depth: int, above: tuple[int, ...]) -> Iterator[Parameter]:
        """The members of the objects that fit `schema`."""
        rule = self.merged(schema)
        needed = set(_names(rule.get("required")))
        properties = rule.get("properties")
        if isinstance(properties, dict):
            for name, member in properties.items():
                yield from self._member(name, member, name in needed, depth, above)
            needed -= properties.keys()
        for name in sorted(needed):
            yield Parameter(depth, name, "required")
        rest = rule.get("additionalProperties")
        if isinstance(rest, dict) and rest:
            yield from self._member("(any other name)", rest, False, depth, above)
        for keyword, words in (("oneOf", "and one of these forms"), ("anyOf", "and at least one of these forms")):
            branches = self._object_branches(rule.get(keyword))
            for number, branch in enumerate(branches, 1):
                yield Parameter(depth, "", f"{words}, {number} of {len(branches)}:")
                yield from self.members(branch, depth + 1, above) if depth < _DEPTH else ()

    def _object_branches(self, branches: Any) -> list[dict[str, Any]]:
        """Those alternatives that say something about members."""
        followed = [self.merged(branch) for branch in branches[:_BRANCHES]] if isinstance(branches, list) else []
        return [
            branch
            for branch in followed
            if isinstance(branch.get("properties"), dict) or _names(branch.get("required"))
        ]

    def _member(
        self, name: str, member: Any, is_required: bool, depth: int, above: tuple[int, ...]
    ) -> Iterator[Parameter]:
        if member is False:
            yield Parameter(depth, name, "not allowed")
            return
        rule = self.merged(member)
        told = [self._kind(rule), "required" if is_required else "optional"]
        told += [words.format(_plain(rule[keyword])) for keyword, words in _BOUNDS if _is_bound(rule.get(keyword))]
        if "default" in rule:
            told.append(f"default {_json(rule['default'])}")
        text = rule.get("description") or rule.get("title")
        yield Parameter(depth, name, ", ".join(told), text if isinstance(text, str) else "")
        inner = self._inner(rule)
        if inner is None or depth >= _DEPTH:
            return
        identity = id(inner.get("properties"))
        if identity in above:
            yield Parameter(depth + 1, "", "… as above")
        else:
            yield from self.members(inner, depth + 1, (*above, identity))

    def _inner(self, rule: dict[str, Any]) -> dict[str, Any] | None:
        """The schema of the object that a value is, or holds: directly, as a list's items, or beside null."""
        for _ in range(_DEPTH):
            if isinstance(rule.get("properties"), dict) or (
                isinstance(rule.get("additionalProperties"), dict) and self._kind(rule) == "object"
            ):
                return rule
            if isinstance(rule.get("items"), dict):
                rule = self.merged(rule["items"])
                continue
            branches = rule.get("anyOf") or rule.get("oneOf")
            some = (
                [b for b in map(self.merged, branches[:_BRANCHES]) if b.get("type") != "null"]
                if isinstance(branches, list)
                else []
            )
            if not some:
                return None
            if len(some) > 1:
                return {"oneOf": some} if self._object_branches(some) else None
            rule = some[0]
        return None

    def _kind(self, rule: dict[str, Any], nesting: int = 0) -> str:
        if isinstance(values := rule.get("enum"), list):
            return "one of " + ", ".join(map(_plain, values[:_VALUES])) + (" …" if len(values) > _VALUES else "")
        if "const" in rule:
            return f"always {_json(rule['const'])}"
        kind = rule.get("type")
        if kind == "array" or (kind is None and "items" in rule):
            items = self.merged(rule["items"]) if isinstance(rule.get("items"), dict) else {}
            return f"list of {self._kind(items, nesting + 1)}" if items and nesting < _DEPTH else "list"
        if isinstance(kind, str):
            return kind
        if isinstance(kind, list):
            return " or ".join(map(str, kind))
        branches = rule.get("anyOf") or rule.get("oneOf")
        if isinstance(branches, list) and nesting < _DEPTH:
            kinds = [
                self._kind(self.merged(branch), nesting + 1)
                for branch in branches[:_BRANCHES]
                if isinstance(branch, dict)
            ]
            return " or ".join(dict.fromkeys(kinds)) or "anything"
        if isinstance(rule.get("properties"), dict):
            return "object"
        return "see --json" if "$ref" in rule else "anything"


def _names(value: Any) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


def _is_bound(value: Any) -> bool:
    return isinstance(value, (str, int, float)) and not isinstance(value, bool)


def _plain(value: Any) -> str:
    return visible(value) if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 200 else f"{text[:200]}…"
