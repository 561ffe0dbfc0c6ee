"""Types of values: which a schema allows, and which keywords bear on them.

Pure.

Spec: JSON Schema 2020-12
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from outrider.catalog.formats.clean import Node

__all__ = ["OF_TYPE", "TYPED", "kind_of", "types_of", "values_of"]

OF_TYPE: Final[dict[str, frozenset[str]]] = {
    "string": frozenset(
        {"contentEncoding", "contentMediaType", "contentSchema", "format", "maxLength", "minLength", "pattern"}
    ),
    "number": frozenset({"exclusiveMaximum", "exclusiveMinimum", "format", "maximum", "minimum", "multipleOf"}),
    "array": frozenset(
        {"contains", "items", "maxContains", "maxItems", "minContains", "minItems", "prefixItems", "unevaluatedItems"}
        | {"uniqueItems"}
    ),
    "object": frozenset(
        {"additionalProperties", "dependentRequired", "dependentSchemas", "maxProperties", "minProperties"}
        | {"patternProperties", "properties", "propertyNames", "required", "unevaluatedProperties"}
    ),
    "boolean": frozenset(),
    "null": frozenset(),
}
"""The keywords that bear on values of a type, and on no others. "number" stands for "integer" too."""
TYPED: Final = frozenset().union(*OF_TYPE.values())
"""Keywords that bear on values of one type only."""
_ALL_TYPES: Final = ("string", "number", "boolean", "object", "array", "null")


def types_of(node: Node) -> list[str]:
    """The types that `node` declares, or all."""
    declared = node.get("type")
    if declared is None:
        return list(_ALL_TYPES)
    return list(declared) if isinstance(declared, list) else [declared]


def kind_of(value: Any) -> str:
    """The type of a value; "number" for an integer too."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case int() | float():
            return "number"
        case list() | tuple():
            return "array"
    return "object"


def values_of(node: Node) -> set[bytes] | None:
    """The values that `node` lists, as canonical JSON; None if it lists none."""
    if "const" in node:
        return {msgspec.json.encode(node["const"], order="sorted")}
    if "enum" in node:
        return {msgspec.json.encode(option, order="sorted") for option in node["enum"]}
    return None
