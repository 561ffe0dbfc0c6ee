"""Schemas for the tests of all that reads schemas."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from outrider.protocol.schema import DIALECTS, KEYWORDS, SchemaLimits
from outrider.protocol.schema_findings import Verdict, check_input_schema

STRING = {"type": "string"}

KEYS = st.sampled_from(
    [
        *KEYWORDS,
        "type",
        "$ref",
        "$dynamicRef",
        "$schema",
        "$id",
        "$anchor",
        "default",
        "enum",
        "A",
        "B",
        "title",
        "required",
    ]
)
VALUES = st.sampled_from(
    [
        None,
        True,
        "string",
        "object",
        "int",
        "#",
        "#/$defs/A",
        "#/definitions/B",
        "#A",
        "http://x/",
        *list(DIALECTS)[:3],
        1,
    ]
) | st.sampled_from([["string", "null"], ["object"], [], ["int"]])
SCHEMAS = st.recursive(
    VALUES, lambda inner: st.dictionaries(KEYS, inner, max_size=4) | st.lists(inner, max_size=3), max_leaves=25
)


def verdict(schema: Any, **limits: int) -> Verdict | None:
    """The verdict on an input schema; the JSON and the decoded form must agree."""
    decoded = check_input_schema(schema, limits=SchemaLimits(**limits))
    raw = check_input_schema(json.dumps(schema).encode(), limits=SchemaLimits(**limits))
    assert raw == decoded
    return decoded.verdict if decoded else None


def tool(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}
