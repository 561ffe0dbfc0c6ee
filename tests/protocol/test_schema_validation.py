"""Values against schemas: what is told of a difference, and what checking one may cost."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given

from outrider.errors import LimitExceeded, LocalProtocolError, RemoteProtocolError
from outrider.protocol.schema import SchemaLimits
from outrider.protocol.schema_findings import check_input_schema, check_output_schema
from outrider.protocol.schema_validation import Validator
from protocol.schemas import SCHEMAS, STRING, tool


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


@pytest.mark.parametrize(
    ("declared", "schema", "bad"),
    [
        ("http://json-schema.org/draft-04/schema#", {"minimum": 1, "exclusiveMinimum": True}, 1),
        ("http://json-schema.org/draft-07/schema#", {"items": [{"type": "string"}]}, [1]),
        (
            "https://json-schema.org/draft/2019-09/schema",
            {"items": [{"type": "string"}], "additionalItems": False},
            ["a", 1],
        ),
        ("https://json-schema.org/draft/2020-12/schema", {"prefixItems": [{"type": "string"}]}, [1]),
        ("http://json-schema.org/draft-06/schema", {"exclusiveMinimum": 1}, 1),
    ],
)
def test_values_are_checked_in_the_dialect_that_is_declared(declared: str, schema: dict[str, Any], bad: object) -> None:
    """Spec basic/index#implementation-requirements (MUST validate according to their declared dialect)."""
    validator = Validator({"$schema": declared, "properties": {"v": schema}})
    assert [violation.path[0] for violation in validator.check({"v": bad})] == ["v"]


@given(SCHEMAS)
def test_what_has_no_finding_can_be_walked_and_compiled_or_is_refused(inner: Any) -> None:
    """Ours: a validator exists, or says why not; it never raises anything else."""
    schema = {"type": "object", "properties": {"A": inner}}
    with suppress(RemoteProtocolError):
        Validator(schema).check({"A": {"B": [1, "x", None]}})


def test_nothing_is_ever_fetched(listener: socket.socket) -> None:
    """Case 124; spec basic/index#ref-resolution (MUST NOT dereference network URIs); no file either."""
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/leak.json"
    for schema in (
        tool(a={"$ref": url}),
        tool(a={"$ref": f"{url}#/A"}),
        tool(a={"$dynamicRef": url}),
        tool(a=STRING) | {"$schema": url},
        tool(a={"$ref": "leak.json"}) | {"$id": url},
        tool(a={"$ref": "file:///etc/passwd"}),
        tool(a={"$schema": url, "$id": "https://example.com/inner", "type": "string"}),
        tool(a={"$ref": "#/x"}) | {"x": {"$ref": url}},
    ):
        check_input_schema(schema)
        check_output_schema(json.dumps(schema).encode())
        with suppress(RemoteProtocolError):
            Validator(schema).check({"a": "x"})
    with pytest.raises(BlockingIOError):
        listener.accept()


@pytest.mark.parametrize(
    ("schema", "value", "told"),
    [
        ({"type": "integer"}, "x", 'the value: expected integer, got "x"'),
        ({"type": ["integer", "null"]}, "x", 'the value: expected null or integer, got "x"'),
        ({"required": ["city"]}, {}, "city: expected a value: it is required, got nothing"),
        ({"enum": ["a", None, 1]}, 2, 'the value: expected one of "a", null, 1, got 2'),
        ({"enum": list(range(50))}, -1, "the value: expected one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …, got -1"),
        ({"const": "a"}, [1], 'the value: expected "a", got a list of 1'),
        ({"minimum": 3}, 2, "the value: expected at least 3, got 2"),
        ({"maxLength": 3}, "x" * 500, f'the value: expected at most 3 characters, got "{"x" * 78}…'),
        ({"pattern": "^a"}, "b", 'the value: expected text that matches the pattern "^a", got "b"'),
        (
            {"properties": {"c": {}}, "additionalProperties": False},
            {"a": 1, "b": 2},
            "the value: expected no properties but the ones the schema names, got a, b",
        ),
        (
            {"properties": {"f": {"items": {"properties": {"name": STRING}}}}},
            {"f": [{"name": "x"}, {"name": {}}]},
            "f[1].name: expected string, got an object with 0 properties",
        ),
        (
            {"anyOf": [STRING, {"type": "null"}]},
            1,
            "the value: expected a value that matches at least one of the alternatives, got 1",
        ),
        (
            {"additionalProperties": False},
            {"a": 1},
            "the value: expected no properties but the ones the schema names, got 1",
        ),
        (False, True, "the value: expected nothing: no value is allowed here, got true"),
    ],
)
def test_a_violation_says_where_what_was_expected_and_what_was_there(schema: Any, value: Any, told: str) -> None:
    """Ours: written for the person or the model that has to correct the value."""
    assert [str(violation) for violation in Validator(schema).check(value)] == [told]


def test_a_value_that_matches_has_no_violation() -> None:
    """Spec basic/index#schema-validation; `format` is a remark."""
    validator = Validator(json.dumps(tool(a={"type": "string", "format": "email"}, b={"type": "integer"})).encode())
    assert validator.check({"a": "no address", "b": 1.0, "c": None}) == ()


def test_violations_are_bounded() -> None:
    """Ours: a thousand mistakes are told as twenty."""
    assert len(Validator({"items": STRING}).check(list(range(1000)))) == 20


@pytest.mark.parametrize("pattern", ["^(?:[\\s\\S]*)*\\x00", "(a+)+$", "(?=a)(a+)+$", "(a|a)*(?<!x)$"])
def test_no_pattern_takes_long(pattern: str) -> None:
    """Case 121: catastrophic backtracking; the answer comes, whatever it is."""
    assert len(Validator({"pattern": pattern}).check("a" * 5000 + "b" + "a" * 5000 + "b")) <= 1


@pytest.mark.parametrize(
    "schema", [{"pattern": "("}, {"required": "a"}, {"minimum": "1"}, {"pattern": "(((a{1000}){1000}){1000})"}]
)
def test_a_schema_that_is_not_valid_in_its_dialect_is_refused(schema: dict[str, Any]) -> None:
    """Spec basic/index#schema-validation (MUST be valid according to their dialect)."""
    with pytest.raises(RemoteProtocolError):
        Validator(schema)


def test_references_that_never_end_are_no_trap() -> None:
    """Case 72: `{"$ref":"#"}` and A to B to A apply to nothing but themselves."""
    pair = {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}
    assert Validator({"$ref": "#"}).check({"a": [1]}) == ()
    assert Validator({"$ref": "#/$defs/A", "$defs": pair}).check({"a": [1]}) == ()


def test_a_tree_is_checked_to_its_leaves() -> None:
    """Case 72: a recursive schema over a value of some depth."""
    node = {
        "type": "object",
        "properties": {"c": {"type": "array", "items": {"$ref": "#/$defs/N"}}, "v": {"type": "integer"}},
    }
    validator = Validator({"$ref": "#/$defs/N", "$defs": {"N": node}})
    value: dict[str, Any] = {"v": "x"}
    for _ in range(40):
        value = {"v": 1, "c": [value, value] if value.get("v") == "x" else [value]}
    assert [violation.path[-1] for violation in validator.check(value)] == ["v", "v"]


def test_work_that_doubles_with_each_level_is_refused_before_it_starts() -> None:
    """Spec basic/index#composition-keyword-resource-use (SHOULD): a time budget, as a bound known beforehand."""
    again = {"properties": {"c": {"$ref": "#/$defs/N"}}, "required": ["c", "x"]}
    validator = Validator({"$ref": "#/$defs/N", "$defs": {"N": {"anyOf": [again, again, again]}}})
    value: dict[str, Any] = {}
    for _ in range(10):
        value = {"c": value}
    (violation,) = validator.check(value)
    assert violation.expected == "a value that matches its schema"
    for _ in range(10):
        value = {"c": value}
    with pytest.raises(LimitExceeded):
        validator.check(value)


def test_evaluations_are_bounded_at_the_limit_and_not_one_above() -> None:
    """Ours: a list of n strings costs n + 1."""
    schema = {"items": STRING}
    assert Validator(schema, limits=SchemaLimits(max_evaluations=6)).check(["a"] * 5) == ()
    with pytest.raises(LimitExceeded):
        Validator(schema, limits=SchemaLimits(max_evaluations=6)).check(["a"] * 6)


def test_values_are_bounded_in_depth_at_the_limit_and_not_one_above() -> None:
    """Case 125: the validator recurses, so the value must not be deeper than any stack."""
    validator = Validator({"items": {"$ref": "#"}})
    value: Any = 1
    for _ in range(200):
        value = [value]
    assert validator.check(value) == ()
    with pytest.raises(LimitExceeded):
        validator.check([value])


@pytest.mark.parametrize("value", [object(), {1: 2}, {"a": {1, 2}}, b"x"])
def test_a_value_that_is_no_json_is_our_own_callers_mistake(value: object) -> None:
    """Ours."""
    with pytest.raises(LocalProtocolError):
        Validator(tool(a={"items": STRING}) | {"additionalProperties": STRING}).check(value)
