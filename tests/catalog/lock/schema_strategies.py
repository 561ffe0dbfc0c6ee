"""Small schemas, small edits of them, and values that have a chance to fit: for properties that an independent validator judges."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

NAMES = st.sampled_from(["a", "b", "c"])
SMALL = st.integers(0, 3)
TYPES = st.sampled_from(["string", "number", "integer", "boolean", "object", "array", "null"])
SCALARS = st.sampled_from([None, True, False, 0, 1, 2, 3, 1.5, 1.0, "", "a", "b", "ab", "abc"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=5
)


def _keywords(inner: st.SearchStrategy[Any], draft: str) -> dict[str, st.SearchStrategy[Any]]:
    schemas = st.lists(inner, min_size=1, max_size=2)
    found = {
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
        "enum": st.lists(SCALARS, min_size=1, max_size=3, unique_by=repr),
        "minimum": SMALL,
        "maximum": SMALL,
        "multipleOf": st.integers(1, 4),
        "minLength": SMALL,
        "maxLength": SMALL,
        "pattern": st.sampled_from(["^a", "b$"]),
        "minItems": SMALL,
        "maxItems": SMALL,
        "uniqueItems": st.booleans(),
        "minProperties": SMALL,
        "maxProperties": SMALL,
        "required": st.lists(NAMES, min_size=1, max_size=2, unique=True),
        "properties": st.dictionaries(NAMES, inner, min_size=1, max_size=2),
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "b"]), inner, min_size=1, max_size=2),
        "additionalProperties": inner,
        "items": inner,
        "allOf": schemas,
        "anyOf": schemas,
        "oneOf": schemas,
        "not": inner,
        "$ref": st.sampled_from(["#", "#/$defs/d"]),
    }
    if draft != "2020-12":
        found["dependencies"] = st.dictionaries(NAMES, inner | st.lists(NAMES, max_size=2, unique=True), max_size=2)
        found["items"] = inner | schemas
        found["additionalItems"] = inner
    if draft != "draft-04":
        found |= {
            "const": SCALARS,
            "contains": inner,
            "propertyNames": inner,
            "exclusiveMinimum": SMALL,
            "exclusiveMaximum": SMALL,
        }
    else:
        found |= {"exclusiveMinimum": st.booleans(), "exclusiveMaximum": st.booleans()}
    if draft in ("draft-07", "2020-12"):
        found |= {"if": inner, "then": inner, "else": inner}
    if draft == "2020-12":
        found |= {
            "prefixItems": schemas,
            "minContains": SMALL,
            "maxContains": SMALL,
            "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, max_size=2, unique=True), max_size=2),
            "dependentSchemas": st.dictionaries(NAMES, inner, max_size=2),
            "unevaluatedProperties": inner,
            "unevaluatedItems": inner,
        }
    return found


def _node(inner: st.SearchStrategy[Any], draft: str) -> st.SearchStrategy[Any]:
    keywords = _keywords(inner, draft)
    return st.lists(st.sampled_from(sorted(keywords)), min_size=1, max_size=3, unique=True).flatmap(
        lambda names: st.fixed_dictionaries({name: keywords[name] for name in names})
    )


def schemas(draft: str) -> st.SearchStrategy[dict[str, Any]]:
    """Schemas of a dialect, with one definition that they may refer to."""
    leaf: st.SearchStrategy[Any] = st.builds(dict) | st.fixed_dictionaries({"type": TYPES})
    if draft != "draft-04":
        leaf |= st.booleans()
    inner = st.recursive(leaf, lambda below: _node(below, draft), max_leaves=4)
    return st.tuples(_node(inner, draft), inner).map(lambda pair: {**pair[0], "$defs": {"d": pair[1]}})


@st.composite
def pairs(draw: st.DrawFn, draft: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two schemas, mostly the same but for an edit or two."""
    before = draw(schemas(draft))
    if draw(st.integers(0, 4)) == 0:
        return before, draw(schemas(draft))
    after = copy.deepcopy(before)
    keywords = _keywords(st.builds(dict) | st.fixed_dictionaries({"type": TYPES}), draft)
    for _ in range(draw(st.integers(1, 2))):
        node = draw(st.sampled_from(_nodes(after)))
        keyword = draw(st.sampled_from(sorted(keywords)))
        if keyword in node and draw(st.booleans()):
            del node[keyword]
        else:
            node[keyword] = draw(keywords[keyword])
    return before, after


def _nodes(schema: Any) -> list[dict[str, Any]]:
    """The schema, and what stands directly in its keywords that hold schemas."""
    found = [schema]
    for keyword, value in schema.items():
        if keyword in ("properties", "patternProperties", "$defs", "dependentSchemas"):
            found += [inner for inner in value.values() if isinstance(inner, dict)]
        elif keyword in ("items", "additionalProperties", "not", "contains", "if", "then", "else", "propertyNames"):
            found += [value] if isinstance(value, dict) else []
        elif keyword in ("allOf", "anyOf", "oneOf", "prefixItems"):
            found += [inner for inner in value if isinstance(inner, dict)]
    return found
