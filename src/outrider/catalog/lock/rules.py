"""A JSON Schema as its dialect reads it: which keywords decide anything, and which schemas hold together. Pure.

Decided here: the keywords that are in force in each dialect. Not here: what follows from them (`inclusion`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from outrider.protocol.digest import canonical_json
from outrider.protocol.schema import Dialect, ReferenceKind, SchemaDocument

__all__ = ["CONSTRAINTS", "DIALECT_NAMES", "OPAQUE", "Schemas", "Side"]

_SINCE_04: Final = frozenset(
    {"type", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"}
    | {"pattern", "format", "items", "additionalItems", "minItems", "maxItems", "uniqueItems", "properties", "patternProperties"}
    | {"additionalProperties", "required", "minProperties", "maxProperties", "dependencies", "allOf", "anyOf", "oneOf", "not", "$ref"}
)  # fmt: skip
_SINCE_06: Final = _SINCE_04 | {"const", "contains", "propertyNames"}
_SINCE_07: Final = _SINCE_06 | {"if", "then", "else"}
_SINCE_2019: Final = (_SINCE_07 - {"dependencies"}) | {
    *("dependentRequired", "dependentSchemas", "minContains", "maxContains"),
    *("unevaluatedProperties", "unevaluatedItems", "$recursiveRef"),
}
_IN_FORCE: Final = {
    Dialect.DRAFT_04: _SINCE_04,
    Dialect.DRAFT_06: _SINCE_06,
    Dialect.DRAFT_07: _SINCE_07,
    Dialect.DRAFT_2019_09: _SINCE_2019,
    Dialect.DRAFT_2020_12: (_SINCE_2019 - {"additionalItems", "$recursiveRef"}) | {"prefixItems", "$dynamicRef"},
}
CONSTRAINTS: Final = frozenset().union(*_IN_FORCE.values()) | {"contentEncoding", "contentMediaType", "contentSchema"}
"""Every keyword that can decide whether a value is allowed, in any dialect; the content keywords where somebody enforces them."""

_REPLACES_SIBLINGS: Final = frozenset({Dialect.DRAFT_04, Dialect.DRAFT_06, Dialect.DRAFT_07})
"""Dialects in which nothing beside a `$ref` counts."""

OPAQUE: Final = ("pattern", "format", "contentEncoding", "contentMediaType", "contentSchema")
"""Satisfied only by the very same keyword."""
_MAX_TOGETHER: Final = 40

DIALECT_NAMES: Final = {
    Dialect.DRAFT_04: "http://json-schema.org/draft-04/schema#",
    Dialect.DRAFT_06: "http://json-schema.org/draft-06/schema#",
    Dialect.DRAFT_07: "http://json-schema.org/draft-07/schema#",
    Dialect.DRAFT_2019_09: "https://json-schema.org/draft/2019-09/schema",
}


Schemas = tuple[Any, ...]
"""Schemas that hold for a value together."""


class Side:
    """One of the two documents, read as its dialect says."""

    def __init__(self, root: Any, dialect: Dialect) -> None:
        self._document = SchemaDocument(root if isinstance(root, dict) else {})
        self.dialect = dialect
        self._in_force = _IN_FORCE[dialect] | frozenset(OPAQUE)
        self._rules: dict[int, dict[str, Any]] = {}
        self._spelling: dict[int, bytes | None] = {}
        self._kept: list[Any] = []

    def rules(self, node: dict[str, Any]) -> dict[str, Any]:
        """The keywords of a schema that decide something in its dialect."""
        rules = self._rules.get(id(node))
        if rules is None:
            if self.dialect in _REPLACES_SIBLINGS and "$ref" in node:
                rules = {"$ref": node["$ref"]}
            else:
                rules = {k: v for k, v in node.items() if k in self._in_force and (v is not None or k == "const")}
            self._rules[id(node)] = rules
            self._kept.append(node)  # An id stays this object's only while the object lives.
        return rules

    def is_doubtful(self, node: dict[str, Any]) -> bool:
        """Whether a schema uses keywords of other dialects, which some validators heed and some do not."""
        return any(keyword in CONSTRAINTS and keyword not in self._in_force for keyword in node)

    def spelling(self, node: Any) -> bytes | None:
        """The canonical JSON of a schema, or None if it refers to others and so means more than it says."""
        if id(node) not in self._spelling:
            text = canonical_json(node)
            self._spelling[id(node)] = None if b'Ref"' in text or b'"$ref"' in text else text
            self._kept.append(node)
        return self._spelling[id(node)]

    def together(self, schemas: Iterable[Any]) -> Schemas | None:
        """All schemas that hold for a value if `schemas` do, in-place references and `allOf` followed; None if no value is allowed."""
        found: dict[int, Any] = {}
        waiting = [*schemas]
        while waiting:
            node = waiting.pop()
            if node is False:
                return None
            if not isinstance(node, dict) or id(node) in found or len(found) >= _MAX_TOGETHER:
                continue
            found[id(node)] = node
            self._kept.append(node)
            rules = self.rules(node)
            if isinstance(ref := rules.get("$ref"), str):
                waiting.append(self.target(ref, node))
            if isinstance(parts := rules.get("allOf"), list):
                waiting.extend(parts)
        return tuple(sorted(found.values(), key=id))

    def target(self, ref: str, node: Any) -> Any:
        """What a reference leads to, or None."""
        reference = self._document.resolve(ref, at=node)
        return reference.target if reference.kind is ReferenceKind.LOCAL else None
