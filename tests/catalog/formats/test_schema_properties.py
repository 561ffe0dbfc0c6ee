"""What holds for every schema, vendor by vendor."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from hypothesis import example, given, note, settings
from hypothesis import strategies as st

from catalog.formats.documented import complaints
from catalog.formats.generated import accepted, junk, model_side, schemas, unaccounted, values
from outrider.catalog.formats import Effect, Offered, ToolRef, Vendor, offer, read_calls
from outrider.errors import OutriderError
from outrider.protocol.schema_validation import Validator

REF = ToolRef("srv", "tool")
# More in a search for faults: OUTRIDER_EXAMPLES=2000.
searched = settings(max_examples=int(os.environ.get("OUTRIDER_EXAMPLES", "25")))
VENDORS = pytest.mark.parametrize("vendor", list(Vendor))
STRICT = st.sampled_from(["auto", True, False])


def offered(vendor: Vendor, schema: dict[str, Any], strict: Any) -> Offered:
    return offer(vendor, [(REF, {"name": "tool", "description": "d", "inputSchema": schema})], strict=strict)


def outgoing(made: Offered) -> dict[str, Any]:
    tool = made.tools[0]
    if made.vendor is Vendor.GEMINI:
        return tool["functionDeclarations"][0].get("parametersJsonSchema", {"type": "object"})
    if made.vendor is Vendor.ANTHROPIC:
        return tool["input_schema"]
    return tool.get("function", tool)["parameters"]


def called(made: Offered, arguments: dict[str, Any]) -> dict[str, Any]:
    name = made.entries[REF].name
    message = {
        Vendor.ANTHROPIC: {"content": [{"type": "tool_use", "id": "1", "name": name, "input": arguments}]},
        Vendor.GEMINI: {"parts": [{"functionCall": {"name": name, "args": arguments}}]},
        Vendor.OPENAI_RESPONSES: {
            "output": [{"type": "function_call", "call_id": "1", "name": name, "arguments": arguments}]
        },
    }.get(made.vendor, {"tool_calls": [{"id": "1", "function": {"name": name, "arguments": arguments}}]})
    (call,) = read_calls(made.vendor, message, made)
    assert call.tool == REF
    assert isinstance(call.arguments, dict)
    return call.arguments


def is_usable(schema: dict[str, Any]) -> bool:
    try:
        Validator(schema)
    except OutriderError:
        return False
    return True


@VENDORS
@searched
@given(schema=schemas(), strict=STRICT)
def test_what_goes_out_keeps_the_vendors_documented_rules(vendor: Vendor, schema: dict[str, Any], strict: Any) -> None:
    """Ours: every outgoing definition validates against rules taken from the vendor's documentation."""
    made = offered(vendor, schema, strict)
    assert not made.left_out
    assert not complaints(vendor, made.tools)


@VENDORS
@searched
@given(schema=junk(), strict=STRICT)
def test_any_value_in_any_place_of_a_schema_costs_itself(vendor: Vendor, schema: dict[str, Any], strict: Any) -> None:
    """Case 30, for what goes out: one tool with a keyword of the wrong type never costs a request."""
    assert not complaints(vendor, offered(vendor, schema, strict).tools)


IDLE = {"allOf": [{"properties": {"a": {"type": "string"}}}, {"type": "string"}]}


@VENDORS
@searched
@given(schema=schemas(), strict=STRICT)
@example(schema={"type": "object", "properties": {"b": IDLE}, "additionalProperties": False}, strict="auto")
def test_every_difference_is_in_the_account(vendor: Vendor, schema: dict[str, Any], strict: Any) -> None:
    """Ours: the loss report is complete: whatever differs from the source is in it."""
    made = offered(vendor, schema, strict)
    entry = made.entries[REF]
    note(f"{outgoing(made)}\n" + "\n".join(map(str, entry.changes)))
    assert not list(unaccounted(schema, outgoing(made), entry.parameter_aliases, entry.changes))


@VENDORS
@searched
@given(data=st.data(), schema=schemas(), strict=STRICT)
def test_the_model_can_say_every_valid_call_and_it_comes_back_valid(
    vendor: Vendor, data: Any, schema: dict[str, Any], strict: Any
) -> None:
    """Ours: arguments valid for the original, written as the model must write them, are accepted by what it was shown, and come back
    to arguments that the original accepts.
    """
    arguments = data.draw(values(schema, schema))
    if not isinstance(arguments, dict) or not accepted(schema, arguments):
        return
    made = offered(vendor, schema, strict)
    entry = made.entries[REF]
    shown = outgoing(made)
    said = model_side(arguments, shown, shown, {own: alias for alias, own in entry.parameter_aliases.items()})
    note(f"{shown}\n{said}\n" + "\n".join(map(str, entry.changes)))
    if not any(change.effect is Effect.NARROWER for change in entry.changes):
        assert accepted(shown, said)
    back = called(made, said)
    note(str(back))
    assert accepted(schema, back)


@VENDORS
@searched
@given(data=st.data(), schema=schemas(), strict=STRICT)
def test_without_a_loss_whatever_the_shown_schema_accepts_comes_back_valid(
    vendor: Vendor, data: Any, schema: dict[str, Any], strict: Any
) -> None:
    """Ours: a change called "same" is the same: values made from the shown schema come back to values the original accepts."""
    made = offered(vendor, schema, strict)
    entry = made.entries[REF]
    if any(change.is_loss for change in entry.changes) or not is_usable(schema):
        return
    shown = outgoing(made)
    said = data.draw(values(shown, shown))
    if not isinstance(said, dict) or not accepted(shown, said):
        return
    back = called(made, said)
    note(f"{shown}\n{said}\n{back}\n" + "\n".join(map(str, entry.changes)))
    assert accepted(schema, back)


@VENDORS
@searched
@given(schema=schemas())
def test_the_same_tool_is_the_same_bytes_whatever_order_its_server_writes_keys_in(
    vendor: Vendor, schema: dict[str, Any]
) -> None:
    """Ours: same servers, same bytes, so that prompt caches hit; and the source is not touched."""
    before = json.dumps(schema)
    backwards = {key: schema[key] for key in reversed(list(schema))}
    first, second = offered(vendor, schema, "auto"), offered(vendor, backwards, "auto")
    assert json.dumps(first.tools) == json.dumps(second.tools)
    assert json.dumps(schema) == before
