"""What a call results in: content, structured values, prompts, resources, completions, or a question back.

Decided here: which members of a result are required, and which kinds of results there are. Not here: what a server is and lists (`model`),
tasks (`tasks`), and whether structured content fits its schema (`schema_validation`).

Lossless: each value keeps what arrived (`wire`), so members we do not know survive. A null optional member reads as absent.

Spec: 2026-07-28 schema, basic/index#resulttype. Pure.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from outrider.errors import RemoteProtocolError
from outrider.protocol.model import decode_object, text_of
from outrider.protocol.tasks import RESULT_TYPE, TASK_METHODS, Task, read_task

__all__ = [
    "Completion",
    "ContentBlock",
    "InputRequired",
    "PromptMessage",
    "PromptResult",
    "ResourceResult",
    "ToolResult",
    "read_result",
    "read_tool_result",
]


class ContentBlock(Struct, frozen=True):
    """One block of content: text, image, audio, a resource, a link to one, or a kind we do not know.

    Spec: 2026-07-28 server/tools#tool-result

    Attributes:
        type: "text", "image", "audio", "resource", "resource_link", or the peer's own word.
        wire: the block as it came, decoded.
    """

    type: str
    wire: dict[str, Any]

    def _text(self, key: str) -> str | None:
        value = self.wire.get(key)
        return value if isinstance(value, str) else None

    @property
    def text(self) -> str | None:
        """The text of a text block."""
        return self._text("text")

    @property
    def data(self) -> str | None:
        """The base64 payload of an image or audio block."""
        return self._text("data")

    @property
    def mime_type(self) -> str | None:
        """The media type, where the block names one."""
        return self._text("mimeType")

    @property
    def uri(self) -> str | None:
        """The URI of a resource link."""
        return self._text("uri")

    @property
    def resource(self) -> dict[str, Any] | None:
        """The embedded resource of a resource block."""
        value = self.wire.get("resource")
        return value if isinstance(value, dict) else None


class _Result(Struct, frozen=True):
    """What every result has: `wire`, the result as it came, decoded."""

    wire: dict[str, Any]

    def meta(self) -> dict[str, Any]:
        """The result's `_meta`, or {}."""
        meta = self.wire.get("_meta")
        return meta if isinstance(meta, dict) else {}


class ToolResult(_Result, frozen=True):
    """The outcome of a tool call. Spec: 2026-07-28 server/tools#tool-result

    Attributes:
        content: the blocks, in order.
        is_error: the tool itself reports failure; the content says why, for the model to act on.
    """

    content: tuple[ContentBlock, ...]
    is_error: bool

    @property
    def has_structured_content(self) -> bool:
        """Whether `structuredContent` came along; it may be any JSON value, null included."""
        return "structuredContent" in self.wire

    @property
    def structured_content(self) -> Any:
        """The structured value, None when there is none: ask `has_structured_content` to tell it from null."""
        return self.wire.get("structuredContent")

    @property
    def text(self) -> str:
        """All text blocks, one after the other, each on its own line."""
        return "\n".join(block.text for block in self.content if block.text is not None)


class ResourceResult(_Result, frozen=True):
    """The contents of a resource, each `{"uri": str, "text" or "blob": str, …}`. Spec: 2026-07-28 server/resources#reading-resources"""

    contents: tuple[dict[str, Any], ...]


class PromptMessage(Struct, frozen=True):
    """One message of a prompt: who speaks ("user" or "assistant"), and one block of content."""

    role: str
    content: ContentBlock


class PromptResult(_Result, frozen=True):
    """A prompt filled in. Spec: 2026-07-28 server/prompts#getting-a-prompt"""

    description: str
    messages: tuple[PromptMessage, ...]


class Completion(_Result, frozen=True):
    """Suggestions for an argument: `values`, how many exist in all (None: unknown), and whether there are more.

    Spec: 2026-07-28 server/utilities/completion
    """

    values: tuple[str, ...]
    total: int | None
    has_more: bool


class InputRequired(_Result, frozen=True):
    """An interim result: the server wants input before it can finish. Spec: 2026-07-28 basic/patterns/mrtr#inputrequiredresult

    Attributes:
        input_requests: request objects `{"method": str, "params": {…}}` under keys the server chose.
        request_state: an opaque string to send back unchanged, or None when there is none.
    """

    input_requests: dict[str, dict[str, Any]]
    request_state: str | None


def _read_block(value: object, what: str) -> ContentBlock:
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise RemoteProtocolError(f"{what} is not an object with a type", rule="server/tools#tool-result")
    return ContentBlock(value["type"], value)


def read_tool_result(wire: dict[str, Any]) -> ToolResult:
    """Read the decoded result of a tool call, as it stands in an answer or in a completed task.

    Raises:
        RemoteProtocolError: it is not of that shape, or of another result type.

    Spec: 2026-07-28 server/tools#tool-result
    """
    if wire.get("resultType") not in (None, "complete"):
        raise _unknown_type("tools/call", wire)
    blocks = wire.get("content")
    if blocks is None and "structuredContent" in wire:
        blocks = []
    if blocks is None and "toolResult" in wire:  # The shape of 2024-10-07, still sent by a few legacy servers.
        return ToolResult(
            wire,
            (ContentBlock("text", {"type": "text", "text": msgspec.json.encode(wire["toolResult"]).decode()}),),
            False,
        )
    if not isinstance(blocks, list):
        raise RemoteProtocolError("the answer to tools/call has no list of content", rule="server/tools#tool-result")
    content = tuple(_read_block(block, f"content[{position}]") for position, block in enumerate(blocks))
    return ToolResult(wire, content, wire.get("isError") is True)


def _read_resource_result(wire: dict[str, Any]) -> ResourceResult:
    contents = wire.get("contents")
    if not isinstance(contents, list) or not all(isinstance(entry, dict) for entry in contents):
        raise RemoteProtocolError(
            "the answer to resources/read has no list of contents", rule="server/resources#reading-resources"
        )
    return ResourceResult(wire, tuple(contents))


def _read_prompt_result(wire: dict[str, Any]) -> PromptResult:
    entries = wire.get("messages")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise RemoteProtocolError(
            "the answer to prompts/get has no list of messages", rule="server/prompts#getting-a-prompt"
        )
    messages = tuple(
        PromptMessage(text_of(entry.get("role")), _read_block(entry.get("content"), f"messages[{position}].content"))
        for position, entry in enumerate(entries)
    )
    return PromptResult(wire, text_of(wire.get("description")), messages)


def _read_completion(wire: dict[str, Any]) -> Completion:
    completion = wire.get("completion")
    values = completion.get("values") if isinstance(completion, dict) else None
    if (
        not isinstance(completion, dict)
        or not isinstance(values, list)
        or not all(isinstance(value, str) for value in values)
    ):
        raise RemoteProtocolError(
            "the answer to completion/complete has no list of values", rule="server/utilities/completion"
        )
    total = completion.get("total")
    return Completion(wire, tuple(values), total if type(total) is int else None, completion.get("hasMore") is True)


_RESULT_READERS: Final = {
    "tools/call": read_tool_result,
    "resources/read": _read_resource_result,
    "prompts/get": _read_prompt_result,
    "completion/complete": _read_completion,
}


def read_result(method: str, payload: Raw | bytes, *, may_be_task: bool = False) -> _Result | Task:
    """Read the result of a call: ToolResult, ResourceResult, PromptResult or Completion by method, or InputRequired, or a Task.

    Args:
        method: the request's method.
        payload: the result's JSON.
        may_be_task: whether the request declared that it takes tasks.

    Raises:
        RemoteProtocolError: the result is not of the shape its method promises, or of an unknown result type. A task that was not
            declared, or that answers a method without tasks, is one of these.

    Spec: 2026-07-28 basic/index#resulttype, io.modelcontextprotocol/tasks#capability-negotiation (MUST)
    """
    wire = decode_object(payload, f"the answer to {method}")
    result_type = wire.get("resultType")
    if result_type in (None, "complete"):
        return _RESULT_READERS[method](wire)
    if result_type == "input_required":
        requests, state = wire.get("inputRequests"), wire.get("requestState")
        requests = requests if isinstance(requests, dict) else {}
        if not all(
            isinstance(entry, dict) and isinstance(entry.get("method"), str) for entry in requests.values()
        ) or not (requests or isinstance(state, str)):
            raise RemoteProtocolError(
                f"the answer to {method} asks for input in a form that cannot be read", rule="basic/patterns/mrtr"
            )
        return InputRequired(wire, requests, state if isinstance(state, str) else None)
    if result_type == RESULT_TYPE and may_be_task and method in TASK_METHODS:
        return read_task(wire, f"the answer to {method}", detailed=False)
    raise _unknown_type(method, wire)


def _unknown_type(method: str, wire: dict[str, Any]) -> RemoteProtocolError:
    kind = str(wire.get("resultType"))[:40]
    unasked = ", which this request did not allow" if kind == RESULT_TYPE else ""
    return RemoteProtocolError(
        f"the answer to {method} has the unknown result type {kind!r}{unasked}", rule="basic/index#resulttype"
    )
