"""What an author's function may return, and the result that each becomes.

Decided here: the content blocks and results of tools, prompts and resources as values, and how any other returned value is turned into
them. Not here: envelopes, caching hints and identity (`running`), and the schema of structured content (`schemas`).

Wire names are the specification's; attributes are their snake_case forms. Every block is a msgspec struct, so that it is written without
a copy. Spec: 2026-07-28 server/tools#tool-result, server/prompts#data-types, server/resources#resource-contents. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from outrider.server.annotations import encode_json
from outrider.server.schemas import OutputType

__all__ = [
    "CONTENT_TYPES",
    "Annotations",
    "Audio",
    "Contents",
    "Embedded",
    "Image",
    "Link",
    "Message",
    "PromptReply",
    "ResourceReply",
    "Text",
    "ToolError",
    "ToolReply",
    "WireResult",
    "render_prompt_result",
    "render_resource_result",
    "render_tool_error",
    "render_tool_result",
]


class _Wire(Struct, frozen=True, omit_defaults=True, rename="camel"):
    pass


class Annotations(_Wire, frozen=True, omit_defaults=True, rename="camel"):
    """Hints for a client about a block or resource: for whom, how important (0.0 to 1.0), changed when (ISO 8601)."""

    audience: tuple[Literal["user", "assistant"], ...] | None = None
    priority: float | None = None
    last_modified: str | None = None


class Text(_Wire, frozen=True, omit_defaults=True, rename="camel", tag_field="type", tag="text"):
    """A text block."""

    text: str
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = field(default=None, name="_meta")


class Image(_Wire, frozen=True, omit_defaults=True, rename="camel", tag_field="type", tag="image"):
    """An image. `data` is the file's bytes; they are base64-encoded on the wire."""

    data: bytes
    mime_type: str
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = field(default=None, name="_meta")


class Audio(_Wire, frozen=True, omit_defaults=True, rename="camel", tag_field="type", tag="audio"):
    """A sound. `data` is the file's bytes; they are base64-encoded on the wire."""

    data: bytes
    mime_type: str
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = field(default=None, name="_meta")


class Link(_Wire, frozen=True, omit_defaults=True, rename="camel", tag_field="type", tag="resource_link"):
    """A link to a resource that the client may read later; `size` in bytes."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = field(default=None, name="_meta")


class Contents(_Wire, frozen=True, omit_defaults=True, rename="camel"):
    """One piece of a resource: exactly one of `text` and `blob` (bytes, base64-encoded on the wire)."""

    uri: str
    mime_type: str | None = None
    text: str | None = None
    blob: bytes | None = None
    meta: dict[str, Any] | None = field(default=None, name="_meta")

    def __post_init__(self) -> None:
        if (self.text is None) == (self.blob is None):
            raise ValueError("a piece of a resource has either text or blob")


class Embedded(_Wire, frozen=True, omit_defaults=True, rename="camel", tag_field="type", tag="resource"):
    """A resource's contents inside a result."""

    resource: Contents
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = field(default=None, name="_meta")


Block = Text | Image | Audio | Link | Embedded
_BLOCKS: Final = (Text, Image, Audio, Link, Embedded)


class Message(_Wire, frozen=True, omit_defaults=True, rename="camel"):
    """One message of a prompt, or of a sampling request."""

    role: Literal["user", "assistant"]
    content: Block

    @classmethod
    def user(cls, content: str | Block) -> Message:
        """A message of the user; a string becomes a text block."""
        return cls("user", Text(content) if isinstance(content, str) else content)

    @classmethod
    def assistant(cls, content: str | Block) -> Message:
        """A message of the assistant; a string becomes a text block."""
        return cls("assistant", Text(content) if isinstance(content, str) else content)


class ToolReply(Struct, frozen=True):
    """A tool's result with every part under the author's control.

    Attributes:
        content: blocks, or a text.
        structured: any JSON value for `structuredContent`, or UNSET for none.
        is_error: the tool failed in a way that a model can react to.
        meta: the result's `_meta`, or None.
    """

    content: Sequence[Block] | str = ()
    structured: Any | UnsetType = UNSET
    is_error: bool = False
    meta: dict[str, Any] | None = None


class PromptReply(Struct, frozen=True):
    """A prompt's result with its own description."""

    messages: Sequence[Message]
    description: str | None = None


class ResourceReply(Struct, frozen=True):
    """A resource's contents with caching hints of their own.

    Attributes:
        contents: one or more pieces.
        ttl_ms: how long a client may take them for fresh, in milliseconds, 0 or more; None for the server's default.
        scope: "public" only when no reader's identity changes them; None for the server's default.
    """

    contents: Sequence[Contents]
    ttl_ms: int | None = None
    scope: Literal["public", "private"] | None = None


class WireResult(Struct, frozen=True):
    """A result in wire form that is passed on as it is, unknown members included, as a gateway does.

    Attributes:
        members: the result's members; values may be `msgspec.Raw`. `resultType` and the server's identity are added when missing.
    """

    members: dict[str, Any]


class ToolError(Exception):
    """Raise it in a tool to tell the model what went wrong; its text becomes the content of an `isError` result.

    Spec: 2026-07-28 server/tools#error-handling
    """


CONTENT_TYPES: Final = (*_BLOCKS, ToolReply, PromptReply, ResourceReply, WireResult, Message, Contents, Raw)
"""Types that are results already: a return annotation with one of them promises no structured content."""

_encode: Final = msgspec.json.Encoder().encode


def _blocks_of(content: Sequence[Block] | str) -> bytes:
    return _encode((Text(content),) if isinstance(content, str) else tuple(content))


def render_tool_error(text: str) -> bytes:
    """The members of a tool result that says what went wrong."""
    return b'"content":[{"type":"text","text":' + _encode(text) + b'}],"isError":true'


def render_tool_result(value: Any, output: OutputType | None) -> tuple[bytes, dict[str, Any] | None]:
    """A returned value as the members of a CallToolResult, without braces, and the `_meta` it brings.

    A text or blocks are content. Anything else becomes text content with its JSON, and structured content when the tool has declared
    an output type.

    Args:
        value: what the function returned.
        output: what the return annotation promised, or None.

    Raises:
        ValueError: the value breaks the promise, or cannot be written as JSON.

    Spec: 2026-07-28 server/tools#structured-content (SHOULD repeat it as text), #output-schema (MUST conform)
    """
    if isinstance(value, ToolReply):
        return _render_reply(value), value.meta
    if output is None and (content := _render_content(value)) is not None:
        return content + b',"isError":false', None
    try:
        encoded = encode_json(value)
    except (TypeError, NotImplementedError, ValueError, RecursionError) as error:
        raise ValueError(f"the returned value cannot be written as JSON: {error}") from error
    members = b'"content":[{"type":"text","text":' + _encode(encoded.decode()) + b"}]"
    if output is None:
        return members + b',"isError":false', None
    if finding := output.check(value, encoded):
        raise ValueError(f"the returned value is not what the return annotation promises: {finding}")
    return members + b',"structuredContent":' + encoded + b',"isError":false', None


def _render_content(value: Any) -> bytes | None:
    if type(value) is str:
        return b'"content":[{"type":"text","text":' + _encode(value) + b"}]"
    if value is None:
        return b'"content":[]'
    if isinstance(value, _BLOCKS):
        return b'"content":[' + _encode(value) + b"]"
    if isinstance(value, (list, tuple)) and value and all(isinstance(entry, (*_BLOCKS, str)) for entry in value):
        return b'"content":' + _encode(tuple(Text(entry) if isinstance(entry, str) else entry for entry in value))
    return None


def _render_reply(reply: ToolReply) -> bytes:
    content = reply.content
    structured = b""
    if reply.structured is not UNSET:
        encoded = encode_json(reply.structured)
        structured = b',"structuredContent":' + encoded
        content = content or encoded.decode()
    return (
        b'"content":'
        + _blocks_of(content)
        + structured
        + (b',"isError":true' if reply.is_error else b',"isError":false')
    )


def render_prompt_result(value: Any, description: str) -> bytes:
    """A returned value as the members of a GetPromptResult: a text is one user message; messages are themselves.

    Raises:
        ValueError: the value is none of these.
    """
    if isinstance(value, PromptReply):
        description, value = value.description or description, value.messages
    if isinstance(value, (str, *_BLOCKS)):
        value = (Message.user(value),)
    elif isinstance(value, Message):
        value = (value,)
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"a prompt returns text or messages, not {type(value).__name__}")
    messages = tuple(Message.user(entry) if isinstance(entry, (str, *_BLOCKS)) else entry for entry in value)
    if not all(isinstance(entry, (Message, dict)) for entry in messages):
        raise ValueError("a prompt returns text or messages")
    members = b'"messages":' + _encode(messages)
    return b'"description":' + _encode(description) + b"," + members if description else members


def render_resource_result(value: Any, uri: str, mime_type: str | None) -> tuple[bytes, int | None, str | None]:
    """A returned value as the members of a ReadResourceResult, and its own caching hints (None where it has none).

    A text or bytes are one piece; anything without a text form of its own is written as JSON.

    Raises:
        ValueError: the value cannot be written as JSON.
    """
    ttl_ms: int | None = None
    scope: str | None = None
    if isinstance(value, ResourceReply):
        ttl_ms, scope, value = value.ttl_ms, value.scope, value.contents
    if isinstance(value, Contents):
        value = (value,)
    if isinstance(value, (list, tuple)) and value and all(isinstance(entry, Contents) for entry in value):
        return b'"contents":' + _encode(tuple(value)), ttl_ms, scope
    if isinstance(value, str):
        piece = Contents(uri, mime_type or "text/plain", text=value)
    elif isinstance(value, (bytes, bytearray, memoryview)):
        piece = Contents(uri, mime_type or "application/octet-stream", blob=bytes(value))
    else:
        try:
            piece = Contents(uri, mime_type or "application/json", text=encode_json(value).decode())
        except (TypeError, NotImplementedError, ValueError, RecursionError) as error:
            raise ValueError(f"the returned value cannot be written as JSON: {error}") from error
    return b'"contents":' + _encode((piece,)), ttl_ms, scope
