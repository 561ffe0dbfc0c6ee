"""A tool's schema, as it is told to a reader."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.cli.parameters import parameters, takes_text

POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer", "minimum": 0}, "next": {"$ref": "#/$defs/P"}},
    "required": ["x"],
}


def told(schema: dict[str, Any]) -> list[str]:
    return [f"{'  ' * line.depth}{line.name}: {line.told}" for line in parameters(schema)]


def test_references_are_followed_and_loops_end() -> None:
    """Ours: readable also where the schema was generated, as most are."""
    schema = {"properties": {"p": {"$ref": "#/$defs/P"}}, "required": ["p"], "$defs": {"P": POINT}}
    assert told(schema) == [
        "p: object, required",
        "  x: integer, required, at least 0",
        "  next: object, optional",
        "    : … as above",
    ]
    assert told({"$ref": "#"}) == []
    assert told({"properties": {"far": {"$ref": "https://example.com/x"}}}) == ["far: see --json, optional"]


def test_what_may_be_null_is_shown_as_what_it_is_otherwise() -> None:
    """Ours: as pydantic writes `Optional`."""
    schema = {
        "properties": {"p": {"anyOf": [{"$ref": "#/$defs/P"}, {"type": "null"}], "default": None}},
        "$defs": {"P": POINT},
    }
    assert told(schema)[:2] == ["p: object or null, optional, default null", "  x: integer, required, at least 0"]


def test_alternatives_of_the_whole_are_shown() -> None:
    """Case 73: composition at the root is no empty list of arguments."""
    schema = {
        "properties": {"id": {"type": "string"}},
        "oneOf": [{"properties": {"kind": {"const": "a"}}, "required": ["kind"]}, {"required": ["id"]}],
        "allOf": [{"properties": {"both": {"type": "boolean"}}, "required": ["both"]}],
    }
    assert told(schema) == [
        "both: boolean, required",
        "id: string, optional",
        ": and one of these forms, 1 of 2:",
        '  kind: always "a", required',
        ": and one of these forms, 2 of 2:",
        "  id: required",
    ]


def test_maps_lists_and_bounds_are_told() -> None:
    """Ours."""
    schema = {
        "properties": {
            "labels": {"type": "object", "additionalProperties": {"type": "integer"}},
            "rows": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}, "maxItems": 3},
            "when": {"type": "string", "format": "date-time"},
            "never": False,
        }
    }
    assert told(schema) == [
        "labels: object, optional",
        "  (any other name): integer, optional",
        "rows: list of list of string, optional, at most 3 items",
        "when: string, optional, date-time",
        "never: not allowed",
    ]


def test_a_schema_that_multiplies_is_told_in_bounds() -> None:
    """Case 125."""
    levels = {f"L{n}": {"properties": {k: {"$ref": f"#/$defs/L{n + 1}"} for k in "abcdefgh"}} for n in range(30)}
    lines = parameters({"$ref": "#/$defs/L0", "$defs": {**levels, "L30": {"type": "string"}}})
    assert len(lines) == 301
    assert lines[-1].told == "… and more; --json has them all"


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, False),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, True),
        ({"$ref": "#/$defs/N"}, False),
        ({"oneOf": [{"$ref": "#/$defs/N"}, {"type": "boolean"}]}, False),
        ({"allOf": [{"type": "number"}, {"minimum": 2}]}, False),
        ({"enum": [1, 2]}, False),
        ({"enum": ["1", "2"]}, True),
        ({"const": True}, False),
        ({"type": ["string", "null"]}, True),
        ({}, True),
        (True, True),
    ],
    ids=str,
)
def test_a_text_is_read_as_json_only_where_no_text_is_allowed(rule: Any, expected: bool) -> None:
    """Ours: `n=5` is a number for `anyOf` of integer and null, as for `integer`."""
    assert takes_text({"properties": {"n": rule}, "$defs": {"N": {"type": "integer"}}}, "n") is expected
    assert takes_text({}, "n")
