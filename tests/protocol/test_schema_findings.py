"""Defects of schemas: what excludes a tool, what is only told, and the short cut for the schemas that have none."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import RemoteProtocolError
from outrider.protocol.schema import SchemaLimits
from outrider.protocol.schema_findings import Verdict, check_input_schema, check_output_schema, is_surely_small
from outrider.protocol.schema_validation import Validator
from protocol.schemas import SCHEMAS, STRING, tool, verdict


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "additionalProperties": False},
        tool(a=STRING, b={"type": ["integer", "null"]}, c=True, d={}, e={"type": "array", "items": tool(f=STRING)}),
        tool(a={"$ref": "#/$defs/A"}) | {"$defs": {"A": STRING}},
        tool(a={"$ref": "#/definitions/A"}) | {"definitions": {"A": STRING}},
        {"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {"a": {}, "b": {}}},
        {"type": "object", "title": "x", "description": "é\u2028", "x-own": [1, None]},
        {
            "type": "object",
            "$id": "https://example.com/s",
            "properties": {"a": {"$ref": "#/$defs/A"}},
            "$defs": {"A": {}},
        },
    ],
)
def test_ordinary_schemas_have_no_finding(schema: dict[str, Any]) -> None:
    """Spec server/tools#tool; cases 71 and 73."""
    assert verdict(schema) is None


@pytest.mark.parametrize(
    "schema",
    [
        None,
        True,
        [],
        "object",
        7,
        {},
        {"type": "string"},
        {"type": ["string", "null"]},
        {"type": None, "properties": {}},
        {"anyOf": [{"required": ["a"]}]},
        {"anyOf": []},
        {"oneOf": [{"type": "object"}, {"type": "string"}]},
        {"properties": {"n": {"type": "int"}}},
        {"$schema": "https://json-schema.org/draft/2020-12/schema"},
        tool(n={"type": "int"}),
        tool(n={"type": []}),
        tool(n={"type": ["string", "text"]}),
        tool(n={"type": {"a": 1}}),
        tool(n={"type": None}),
        tool(n="string"),
        tool(n=None),
        tool(n=["string"]),
        tool(n={"items": "string"}),
        tool(n={"anyOf": {"type": "string"}}),
        tool(n={"anyOf": [None]}),
        {"type": "object", "properties": ["a"]},
        {"type": "object", "properties": True},
        {"type": "object", "$defs": {"A": {"type": "float"}}},
        {"type": "object", "dependencies": {"a": "b"}},
    ],
)
def test_a_schema_nobody_could_use_excludes_the_tool(schema: object) -> None:
    """Case 30: one malformed tool costs that tool. Spec server/tools#tool (MUST be a valid JSON Schema object, not null)."""
    assert verdict(schema) is Verdict.EXCLUDE


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": STRING}},
        {"properties": {}},
        {"type": ["object", "null"]},
        {"anyOf": [{"type": "object"}, tool(a=STRING)]},
        {"oneOf": [{"type": "object"}, {"properties": {"a": {}}}]},
        {"allOf": [{"type": "object"}, {"required": ["a"]}]},
        {"$ref": "#/$defs/Args", "$defs": {"Args": tool(a=STRING)}},
    ],
)
def test_a_missing_root_type_is_tolerated_where_only_an_object_is_meant(schema: dict[str, Any]) -> None:
    """Case 73, ours: servers in use leave it out; their authors should know."""
    assert verdict(schema) is Verdict.NOTE


@pytest.mark.parametrize(
    "schema",
    [
        tool(s={"$ref": "#/$defs/Missing"}),
        tool(s={"$ref": "#/$defs/A/properties/b"}) | {"$defs": {"A": {}}},
        tool(s={"$ref": "#nowhere"}),
        tool(s={"$ref": "#/properties/s/~2"}),
        tool(s={"$ref": "#/required/0"}) | {"required": ["s"]},
        tool(s={"$ref": "http://127.0.0.1:1/leak.json"}),
        tool(s={"$ref": "file:///etc/passwd"}),
        tool(s={"$ref": "other.json#/A"}),
        tool(s={"$ref": "http://[bad"}),
        tool(s={"$dynamicRef": "#nowhere"}),
        tool(s={"$ref": "#/x/A"}) | {"x": {"A": {"$ref": "#/x/B"}}},
        tool(s={"items": None}),
        {"type": "object", "properties": None},
    ],
)
def test_a_schema_nobody_can_judge_by_is_listed_and_not_validated(schema: dict[str, Any]) -> None:
    """Case 32; spec basic/index#ref-resolution (SHOULD be rejected rather than treated as permissive)."""
    assert verdict(schema) is Verdict.SKIP_VALIDATION
    with pytest.raises(RemoteProtocolError):
        Validator(schema)


def test_a_finding_says_where_and_what() -> None:
    """Case 30: a warning that names the reason."""
    finding = check_input_schema(tool(**{"a/b": {"items": {"type": "int"}}}))
    assert finding is not None
    assert finding.where == "#/properties/a~1b/items/type"
    assert "type name" in finding.message
    long = check_input_schema(tool(**{"x" * 10_000: {"type": "int"}}))
    assert long is not None
    assert len(long.where) == 200


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"\xff", b'{"type":"object"', b'"\xff"', b"[" * 100_000, b'{"not":' * 100_000]
)
def test_bytes_that_are_no_json_exclude_the_tool(raw: bytes) -> None:
    """Case 125: 10,000 nested arrays overflow no parser here."""
    finding = check_input_schema(raw)
    assert finding is not None
    assert finding.verdict is Verdict.EXCLUDE


def test_deep_values_are_bounded_at_the_limit_and_not_one_above() -> None:
    """Case 125: depth counts in values too, where no schema is."""
    nested: Any = []
    for _ in range(17):
        nested = [nested]  # 18 lists below two objects
    assert verdict({"type": "object", "properties": {}, "default": nested}, max_json_depth=18) is None
    assert verdict({"type": "object", "properties": {}, "default": [nested]}, max_json_depth=18) is Verdict.EXCLUDE


def test_a_schema_bomb_excludes_the_tool() -> None:
    """Case 125: thirty levels of two references each stand for a billion subschemas."""
    defs: dict[str, Any] = {f"L{n}": {"anyOf": [{"$ref": f"#/$defs/L{n + 1}"}] * 2} for n in range(30)}
    schema = tool(a={"$ref": "#/$defs/L0"}) | {"$defs": defs | {"L30": {}}}
    assert verdict(schema) is Verdict.EXCLUDE
    with pytest.raises(RemoteProtocolError):
        Validator(schema)


def test_what_references_stand_for_is_bounded_at_the_limit_and_not_one_above() -> None:
    """Spec basic/index#composition-keyword-resource-use (SHOULD)."""
    # root + a + (B + two times (reference + C)) = 2 + 1 + 4
    schema = tool(a={"$ref": "#/$defs/B"}) | {"$defs": {"B": {"anyOf": [{"$ref": "#/$defs/C"}] * 2}, "C": {}}}
    assert verdict(schema, max_expanded=7) is None
    assert verdict(schema, max_expanded=6) is Verdict.EXCLUDE


def test_recursive_references_are_fine() -> None:
    """Case 72: a tree, the root itself, two that refer to each other."""
    node = tool(c={"type": "array", "items": {"$ref": "#/$defs/N"}})
    assert verdict(tool(n={"$ref": "#/$defs/N"}) | {"$defs": {"N": node}}) is None
    assert verdict({"type": "object", "$ref": "#"}) is None
    assert verdict({"$ref": "#"}) is Verdict.EXCLUDE
    pair = {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}
    assert verdict(tool(a={"$ref": "#/$defs/A"}) | {"$defs": pair}) is None


def test_many_schemas_that_refer_to_each_other_end() -> None:
    """Case 72, case 125: thirty definitions, each referring to all."""
    names = [f"D{n}" for n in range(30)]
    defs = {name: {"anyOf": [{"$ref": f"#/$defs/{other}"} for other in names]} for name in names}
    assert verdict(tool(a={"$ref": "#/$defs/D0"}) | {"$defs": defs}) in (None, Verdict.EXCLUDE)


def test_output_schemas_may_have_any_root_type() -> None:
    """Spec server/tools#output-schema: any JSON value. Case 32: an unusable one is told, and the tool stays."""
    for schema in ({"type": "array", "items": STRING}, {"type": "string"}, {}, True, {"anyOf": [STRING]}):
        assert check_output_schema(schema) is None
        assert check_output_schema(json.dumps(schema).encode()) is None
    dangling = check_output_schema(tool(s={"$ref": "#/$defs/Missing"}))
    assert dangling is not None
    assert dangling.verdict is Verdict.SKIP_VALIDATION
    assert check_output_schema(None) is not None


def test_json_is_surely_small_up_to_the_limits_and_not_one_above() -> None:
    """Ours: by its length where that is enough, else by its brackets."""
    deep = b'{"if":' * 3 + b"{}" + b"}" * 3
    assert is_surely_small(deep, SchemaLimits(max_depth=4, max_json_depth=100))
    assert not is_surely_small(deep, SchemaLimits(max_depth=3, max_json_depth=100))
    lists = b"[" * 20 + b"]" * 20
    assert is_surely_small(lists, SchemaLimits(max_depth=100, max_json_depth=20))
    assert not is_surely_small(b"[" + lists + b"]", SchemaLimits(max_depth=100, max_json_depth=20))
    assert is_surely_small(b"x" * 30, SchemaLimits(max_subschemas=10))
    assert not is_surely_small(b"x" * 31, SchemaLimits(max_subschemas=10))


@given(SCHEMAS, st.booleans())
def test_the_short_cut_never_changes_the_answer(inner: Any, as_root: bool) -> None:
    """Ours: JSON and decoded form give the same finding, and no input raises."""
    schema = inner if as_root else {"type": "object", "properties": {"A": inner}, "$defs": {"A": {}, "B": inner}}
    raw = msgspec.json.encode(schema)
    assert check_input_schema(raw) == check_input_schema(schema)
    assert check_output_schema(raw) == check_output_schema(schema)
