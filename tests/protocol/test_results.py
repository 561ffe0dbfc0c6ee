"""What calls result in, as a client reads it."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.errors import RemoteProtocolError
from outrider.protocol.results import Completion, InputRequired, PromptResult, ResourceResult, ToolResult, read_result
from protocol.test_model import CALLS, raw


def test_a_tool_result() -> None:
    """Spec server/tools#tool-result."""
    blocks = [
        {"type": "text", "text": "a"},
        {"type": "image", "data": "AA==", "mimeType": "image/png"},
        {"type": "resource_link", "uri": "memo://a", "name": "a"},
        {"type": "resource", "resource": {"uri": "memo://a", "text": "t"}},
        {"type": "text", "text": "b"},
        {"type": "future"},
    ]
    result = read_result("tools/call", raw({"content": blocks, "isError": True, "_meta": {"x": 1}}))
    assert isinstance(result, ToolResult)
    assert (result.text, result.is_error, result.meta()) == ("a\nb", True, {"x": 1})
    assert [block.wire for block in result.content] == blocks
    assert (result.content[1].data, result.content[1].mime_type) == ("AA==", "image/png")
    assert result.content[2].uri == "memo://a"
    assert result.content[3].resource == {"uri": "memo://a", "text": "t"}
    assert result.content[5].text is None
    assert not result.has_structured_content


def test_structured_content_alone() -> None:
    """Ours: a server that leaves out the text for older clients."""
    result = read_result("tools/call", raw({"structuredContent": None}))
    assert isinstance(result, ToolResult)
    assert (result.content, result.has_structured_content, result.structured_content) == ((), True, None)


def test_the_oldest_shape() -> None:
    """Ours: `toolResult` of 2024-10-07, still sent by a few legacy servers."""
    result = read_result("tools/call", raw({"toolResult": {"a": 1}}))
    assert isinstance(result, ToolResult)
    assert result.text == '{"a":1}'


@pytest.mark.parametrize("value", ["true", 1, None, False])
def test_only_true_is_an_error(value: object) -> None:
    """Ours: nothing else is guessed."""
    result = read_result("tools/call", raw({"content": [], "isError": value}))
    assert isinstance(result, ToolResult)
    assert not result.is_error


def test_other_results() -> None:
    """Spec server/resources, server/prompts, server/utilities/completion."""
    read = read_result("resources/read", raw({"contents": [{"uri": "a", "blob": "AA=="}]}))
    assert isinstance(read, ResourceResult)
    assert read.contents == ({"uri": "a", "blob": "AA=="},)
    filled = read_result("prompts/get", raw({"messages": [{"role": "user", "content": {"type": "text", "text": "x"}}]}))
    assert isinstance(filled, PromptResult)
    assert (filled.description, filled.messages[0].role, filled.messages[0].content.text) == ("", "user", "x")
    completion = read_result("completion/complete", raw({"completion": {"values": ["a"], "total": True, "hasMore": 1}}))
    assert isinstance(completion, Completion)
    assert (completion.values, completion.total, completion.has_more) == (("a",), None, False)


@pytest.mark.parametrize("method", CALLS)
def test_input_that_is_asked_for(method: str) -> None:
    """Spec basic/patterns/mrtr#inputrequiredresult: requests, a state to send back, or both."""
    asked = {"k": {"method": "roots/list"}}
    result = read_result(method, raw({"resultType": "input_required", "inputRequests": asked}))
    assert isinstance(result, InputRequired)
    assert (result.input_requests, result.request_state) == (asked, None)
    result = read_result(method, raw({"resultType": "input_required", "requestState": "s"}))
    assert isinstance(result, InputRequired)
    assert (result.input_requests, result.request_state) == ({}, "s")


@pytest.mark.parametrize(
    "members",
    [{}, {"inputRequests": {}}, {"inputRequests": {"k": 7}}, {"inputRequests": {"k": {}}}, {"requestState": 7}],
)
def test_input_that_nobody_could_give(members: dict[str, Any]) -> None:
    """Spec basic/patterns/mrtr."""
    with pytest.raises(RemoteProtocolError):
        read_result("tools/call", raw({"resultType": "input_required", **members}))


def test_depth_is_bounded() -> None:
    """Case 125: a refusal, never a stack that overflows."""
    deep = b'{"content":' + b"[" * 10_000 + b"]" * 10_000 + b"}"
    with pytest.raises(RemoteProtocolError):
        read_result("tools/call", deep)
