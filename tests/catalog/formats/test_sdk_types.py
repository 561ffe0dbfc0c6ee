"""What we make, read by the vendors' own SDK types. Needs openai, anthropic, google-genai, mistralai and mistral-common."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from outrider.catalog.formats import (
    CallFailed,
    ModelCall,
    ResultOptions,
    ToolRef,
    Vendor,
    offer,
    read_calls,
    render_results,
)
from outrider.protocol.results import read_result

pytestmark = pytest.mark.interop

REF = ToolRef("srv", "tool")
SCHEMA = {
    "type": "object",
    "properties": {
        "q": {"type": "string", "minLength": 1},
        "$top": {"type": ["integer", "null"], "exclusiveMinimum": 0, "default": 3},
        "node": {"$ref": "#/$defs/Node"},
        "pair": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}]},
        "kind": {"oneOf": [{"const": "a"}, {"const": 1}]},
    },
    "required": ["q"],
    "$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}},
}
STRICT = {"type": "object", "properties": {"q": {"type": "string"}, "n": {"type": "integer"}}, "required": ["q"]}
NONE = {"type": "object"}
TOOLS = [
    (ToolRef("srv", f"tool{n}"), {"description": "d", "inputSchema": schema})
    for n, schema in enumerate((SCHEMA, STRICT, NONE))
]
CALL = ModelCall("abcdefghi", "srv__tool0", ToolRef("srv", "tool0"), {})
OUTCOME: Any = read_result(
    "tools/call",
    msgspec.json.encode(
        {
            "content": [
                {"type": "text", "text": "hi"},
                {"type": "image", "mimeType": "image/png", "data": base64.b64encode(b"\x89PNG fake").decode()},
            ],
            "structuredContent": {"a": [1]},
        }
    ),
)


def messages(vendor: Vendor) -> list[dict[str, Any]]:
    return render_results(vendor, [(CALL, OUTCOME), (CALL, CallFailed("no"))], ResultOptions(images=True))


def test_openai_chat() -> None:
    """Ours: the SDK's types of tools and messages take ours, and its answer is read."""
    pytest.importorskip("openai")
    from openai.types.chat import ChatCompletion, ChatCompletionMessageParam, ChatCompletionToolParam
    from pydantic import TypeAdapter

    offered = offer("openai", TOOLS)
    TypeAdapter(list[ChatCompletionToolParam]).validate_python(offered.tools)
    TypeAdapter(list[ChatCompletionMessageParam]).validate_python(messages(Vendor.OPENAI))
    answer = ChatCompletion.model_validate(
        {
            "id": "x",
            "created": 1,
            "model": "m",
            "object": "chat.completion",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "tool_calls",
                    "message": {
                        "role": "assistant",
                        "content": None,
                        "tool_calls": [
                            {
                                "id": "c",
                                "type": "function",
                                "function": {"name": "srv__tool1", "arguments": '{"q":"x","n":null}'},
                            }
                        ],
                    },
                }
            ],
        }
    )
    (call,) = read_calls(Vendor.OPENAI, answer, offered)
    assert (call.tool, call.arguments) == (ToolRef("srv", "tool1"), {"q": "x"})


def test_openai_responses() -> None:
    """Ours: the SDK's types of tools and input items take ours, and its items are read."""
    pytest.importorskip("openai")
    from openai.types.responses import FunctionToolParam, ResponseFunctionToolCall
    from openai.types.responses.response_input_param import FunctionCallOutput
    from pydantic import TypeAdapter

    offered = offer("openai-responses", TOOLS)
    TypeAdapter(list[FunctionToolParam]).validate_python(offered.tools)
    TypeAdapter(list[FunctionCallOutput]).validate_python(messages(Vendor.OPENAI_RESPONSES))
    item = ResponseFunctionToolCall(type="function_call", call_id="c", name="srv__tool0", arguments='{"q":"x"}')
    assert read_calls(Vendor.OPENAI_RESPONSES, item, offered)[0].arguments == {"q": "x"}


def test_anthropic() -> None:
    """Ours: the SDK's types of tools and messages take ours, and its blocks are read."""
    pytest.importorskip("anthropic")
    from anthropic.types import MessageParam, ToolParam, ToolUseBlock
    from pydantic import TypeAdapter

    offered = offer("anthropic", TOOLS, strict=True)
    TypeAdapter(list[ToolParam]).validate_python(offered.tools)
    TypeAdapter(list[MessageParam]).validate_python(messages(Vendor.ANTHROPIC))
    block = ToolUseBlock(type="tool_use", id="c", name="srv__tool0", input={"q": "x", "top": 2})
    assert read_calls(Vendor.ANTHROPIC, [block], offered)[0].arguments == {"q": "x", "$top": 2}


def test_gemini() -> None:
    """Ours: the SDK's models of tools and contents take ours, its JSON Schema model knows every keyword, and its answer is read."""
    pytest.importorskip("google.genai")
    from google.genai import types

    offered = offer("gemini", TOOLS)
    (tool,) = (types.Tool.model_validate(tool) for tool in offered.tools)
    assert tool.function_declarations is not None
    assert [declaration.name for declaration in tool.function_declarations] == [
        "srv__tool0",
        "srv__tool1",
        "srv__tool2",
    ]
    # The SDK's model forbids members it does not know. It has no prefixItems, which the API has.
    schema = dict(offered.tools[0]["functionDeclarations"][0]["parametersJsonSchema"])
    schema["properties"] = {name: inner for name, inner in schema["properties"].items() if name != "pair"}
    types.JSONSchema.model_validate(schema)
    for content in messages(Vendor.GEMINI):
        types.Content.model_validate(content)
    part = types.Part(function_call=types.FunctionCall(id="c", name="srv__tool0", args={"q": "x", "top": 2}))
    answer = types.GenerateContentResponse(
        candidates=[types.Candidate(content=types.Content(role="model", parts=[part]))]
    )
    assert read_calls(Vendor.GEMINI, answer, offered) == [
        ModelCall("c", "srv__tool0", ToolRef("srv", "tool0"), {"q": "x", "$top": 2})
    ]


def test_mistral() -> None:
    """Ours: the SDK's models of tools and messages take ours; so do the checks that Mistral's own server code uses."""
    pytest.importorskip("mistralai")
    pytest.importorskip("mistral_common")
    from mistral_common.protocol.instruct.tool_calls import Tool as CheckedTool
    from mistral_common.protocol.instruct.validator import MistralRequestValidator
    from mistralai.client import models

    offered = offer("mistral", TOOLS, strict=True)
    for tool in offered.tools:
        models.Tool.model_validate(tool)
    MistralRequestValidator()._validate_tools([CheckedTool.model_validate(tool) for tool in offered.tools])
    for message in messages(Vendor.MISTRAL):
        models.ToolMessage.model_validate(message)
    call = models.ToolCall(id="abcdefghi", function=models.FunctionCall(name="srv__tool0", arguments={"q": "x"}))
    answer = models.AssistantMessage(content="", tool_calls=[call])
    assert read_calls(Vendor.MISTRAL, answer, offered)[0].arguments == {"q": "x"}
