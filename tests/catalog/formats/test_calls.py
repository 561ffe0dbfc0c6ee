"""From a model's answer to a server's tool and its arguments."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outrider.catalog.formats import (
    Malformed,
    ModelCall,
    ToolRef,
    UnknownTool,
    Vendor,
    offer,
    read_arguments,
    read_calls,
    restore_arguments,
)

REF = ToolRef("srv", "tool")
NAME = "srv__tool"
SCHEMA = {
    "type": "object",
    "properties": {"$top": {"type": "integer"}, "b": {"type": "string"}, "c": {"type": ["string", "null"]}},
}
CHAT = {"id": "c1", "type": "function", "function": {"name": NAME, "arguments": '{"b":"x"}'}}
OLD = {"role": "assistant", "function_call": {"name": NAME, "arguments": '{"b":"x"}'}}
ITEM = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "c1",
    "name": NAME,
    "arguments": '{"b":"x"}',
    "status": "completed",
}
BLOCK = {"type": "tool_use", "id": "c1", "name": NAME, "input": {"b": "x"}}
CALL = {"id": "c1", "name": NAME, "args": {"b": "x"}}


class Sdk:
    """As objects of the vendors' SDKs are: they turn into dicts when asked."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def model_dump(self) -> Any:
        return self.value


SHAPES = [
    (Vendor.OPENAI, CHAT),
    (Vendor.OPENAI, [CHAT]),
    (Vendor.OPENAI, {"role": "assistant", "content": None, "tool_calls": [CHAT]}),
    (
        Vendor.OPENAI,
        {"choices": [{"message": {"role": "assistant", "tool_calls": [CHAT]}, "finish_reason": "tool_calls"}]},
    ),
    (Vendor.OPENAI, Sdk({"choices": [{"message": {"tool_calls": [CHAT]}}]})),
    (
        Vendor.MISTRAL,
        {"role": "assistant", "tool_calls": [{**CHAT, "function": {"name": NAME, "arguments": {"b": "x"}}}]},
    ),
    (Vendor.OPENAI_RESPONSES, ITEM),
    (Vendor.OPENAI_RESPONSES, {"output": [{"type": "reasoning", "summary": []}, ITEM]}),
    (Vendor.OPENAI_RESPONSES, [Sdk(ITEM)]),
    (Vendor.ANTHROPIC, BLOCK),
    (Vendor.ANTHROPIC, {"role": "assistant", "content": [{"type": "text", "text": "I will"}, BLOCK]}),
    (Vendor.GEMINI, CALL),
    (Vendor.GEMINI, {"functionCall": CALL}),
    (Vendor.GEMINI, {"role": "model", "parts": [{"text": "hm"}, {"functionCall": CALL}]}),
    (Vendor.GEMINI, Sdk({"candidates": [{"content": {"parts": [{"text": None, "function_call": CALL}]}}]})),
]


@pytest.mark.parametrize(("vendor", "message"), SHAPES)
def test_a_call_is_found_in_every_shape_of_an_answer(vendor: Vendor, message: Any) -> None:
    """Ours: a response, its message, its parts, one call; dicts or SDK objects."""
    offered = offer(vendor, [(REF, {"inputSchema": SCHEMA})])
    assert read_calls(vendor, message, offered) == [ModelCall("c1", NAME, REF, {"b": "x"})]


def test_the_function_call_of_old_endpoints_is_read_too() -> None:
    """Ours: compatible servers still answer in the form before tools."""
    offered = offer("openai", [(REF, {"inputSchema": SCHEMA})])
    assert read_calls(Vendor.OPENAI, OLD, offered) == [ModelCall("", NAME, REF, {"b": "x"})]


@pytest.mark.parametrize("vendor", list(Vendor))
@pytest.mark.parametrize(
    "message", [None, "", "text", 7, {}, [], {"content": "text"}, {"choices": [None]}, {"parts": [7]}, {"output": {}}]
)
def test_an_answer_without_calls_has_none(vendor: Vendor, message: Any) -> None:
    """Ours: nothing in a model's answer raises."""
    assert read_calls(vendor, message) == []


def test_parallel_calls_keep_their_order() -> None:
    """Ours: results are paired by position where ids are missing."""
    offered = offer("openai", [(REF, {"inputSchema": SCHEMA})])
    calls = [{**CHAT, "id": f"c{n}"} for n in range(3)]
    assert [call.id for call in read_calls(Vendor.OPENAI, {"tool_calls": calls}, offered)] == ["c0", "c1", "c2"]


def test_an_unknown_name_is_a_call_with_a_problem() -> None:
    """Case 120: unknown is an error with near matches, not an exception."""
    offered = offer("openai", [(REF, {"inputSchema": SCHEMA})])
    (call,) = read_calls(Vendor.OPENAI, {**CHAT, "function": {"name": "srv__tol", "arguments": "{}"}}, offered)
    assert call.tool == UnknownTool("srv__tol", (NAME,))
    assert call.problem == "There is no tool 'srv__tol'. Did you mean srv__tool?"


@pytest.mark.parametrize(
    ("raw", "arguments"),
    [
        ('{"a":1}', {"a": 1}),
        ({"a": 1}, {"a": 1}),
        ("", {}),
        (" ", {}),
        (None, {}),
        ("{}", {}),
        ("null", {}),
        ('{"a":[1,2,],}', {"a": [1, 2]}),
        ('{"a":"x,}"}', {"a": "x,}"}),
        ('{"a":"one\ntwo"}', {"a": "one\ntwo"}),
        ('```json\n{"a":1}\n```', {"a": 1}),
    ],
)
def test_arguments_are_an_object_or_a_json_string_of_one(raw: Any, arguments: Any) -> None:
    """Ours: as object, or a JSON string of an object; nothing is an empty object; slips with one meaning are none."""
    assert read_arguments(raw) == arguments


@pytest.mark.parametrize(
    "raw",
    [
        '"{\\"a\\":1}"',
        '"[1]"',
        "[1]",
        '{"a":1}{"b":2}',
        '{"a":1,,}',
        '{"a":True}',
        "7",
        "true",
        '{"a":',
        "{'a':1}",
        '{"a":NaN}',
        "x",
        7,
        [],
        '{"a":1} trailing',
        "[" * 5000,
    ],
)
def test_anything_else_is_malformed_with_a_reason_for_the_model(raw: Any) -> None:
    """Ours: nothing deeper than a string of an object, and nothing that could mean several things, is guessed at."""
    assert isinstance(read_arguments(raw), Malformed)
    assert str(read_arguments(raw)).startswith("The arguments are ")


def test_json_inside_a_string_stays_a_string() -> None:
    """Ours: nothing deeper."""
    assert read_arguments('{"a":"{\\"b\\":1}"}') == {"a": '{"b":1}'}


def test_big_whole_numbers_survive() -> None:
    """Ours: identifiers above 2**53 are not rounded."""
    assert read_arguments('{"a":9007199254740993}') == {"a": 9007199254740993}


def test_aliases_are_undone() -> None:
    """Ours: the server sees its own names."""
    offered = offer("gemini", [(REF, {"inputSchema": SCHEMA})])
    (call,) = read_calls(Vendor.GEMINI, {"functionCall": {"name": NAME, "args": {"top": 3}}}, offered)
    assert call.arguments == {"$top": 3}


def test_null_is_dropped_unless_the_original_allows_it() -> None:
    """Ours: null stands for absent only where the original does not take null."""
    offered = offer("openai", [(REF, {"inputSchema": SCHEMA})])
    arguments = json.dumps({"$top": None, "b": None, "c": None})
    (call,) = read_calls(Vendor.OPENAI, {**CHAT, "function": {"name": NAME, "arguments": arguments}}, offered)
    assert call.arguments == {"c": None}


def test_null_of_a_required_parameter_stays_for_the_server_to_judge() -> None:
    """Ours: dropping it would only change the complaint."""
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    assert restore_arguments({"a": None}, schema) == {"a": None}


def test_null_is_judged_by_the_alternative_that_fits() -> None:
    """Ours: each item of a list by its own alternative."""
    a = {"type": "object", "properties": {"k": {"const": "a"}, "n": {"type": "integer"}}, "required": ["k"]}
    b = {"type": "object", "properties": {"k": {"const": "b"}, "n": {"type": "null"}}, "required": ["k", "n"]}
    schema = {
        "type": "object",
        "properties": {"list": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/A"}, b]}}},
        "$defs": {"A": a},
    }
    arguments = {"list": [{"k": "a", "n": None}, {"k": "b", "n": None}]}
    assert restore_arguments(arguments, schema) == {"list": [{"k": "a"}, {"k": "b", "n": None}]}


def test_null_in_a_free_form_object_stays() -> None:
    """Ours: nobody declared it, so nobody knows better."""
    assert restore_arguments({"meta": {"a": None}}, {"type": "object", "properties": {"meta": {"type": "object"}}}) == {
        "meta": {"a": None}
    }


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_arguments_at_the_depth_limit_are_read_and_one_above_are_refused() -> None:
    """Ours: bounded, whatever the model writes."""
    offered = offer("anthropic", [(REF, {"inputSchema": {"type": "object", "properties": {"a": {}}}})])
    for levels, is_read in ((99, True), (100, False)):
        (call,) = read_calls(Vendor.ANTHROPIC, {**BLOCK, "input": {"a": deep(levels)}}, offered)
        assert isinstance(call.arguments, dict) is is_read


def test_alternatives_inside_alternatives_do_not_explode() -> None:
    """Case 125: matching has a budget; past it the call is refused, not the process stopped."""
    loop = {"type": "object", "properties": {"n": {"$ref": "#/$defs/N"}}, "required": ["never there"]}
    schema = {
        "type": "object",
        "properties": {"n": {"$ref": "#/$defs/N"}},
        "$defs": {"N": {"anyOf": [loop, loop, loop]}},
    }
    value: Any = {}
    for _ in range(40):
        value = {"n": value}
    offered = offer("mistral", [(REF, {"inputSchema": schema})])
    (call,) = read_calls(Vendor.MISTRAL, {**CHAT, "function": {"name": NAME, "arguments": value}}, offered)
    assert isinstance(call.arguments, Malformed)
    assert "too long" in call.problem
