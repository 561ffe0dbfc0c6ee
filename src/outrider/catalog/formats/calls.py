"""The calls in a model's answer.

Decided here: where each vendor puts a call, and which tool and arguments it means. Not here: whether it may be made, and making it. Pure.

Spec: ours. The shapes are the vendors'; docs/models.md names their pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from outrider.catalog.formats.arguments import Malformed, read_arguments, restore_arguments
from outrider.catalog.formats.naming import ToolRef, UnknownTool
from outrider.catalog.formats.offering import Offered
from outrider.catalog.formats.vendors import Vendor
from outrider.errors import LimitExceeded

__all__ = ["ModelCall", "read_calls"]


class ModelCall(Struct, frozen=True):
    """One call that a model asks for.

    Attributes:
        id: what the result must refer to; "" where the answer has none.
        name: the name as the model wrote it.
        tool: the tool it means, or why it means none.
        arguments: what to send to the server, in its own names, or what is wrong with them.
    """

    id: str
    name: str
    tool: ToolRef | UnknownTool
    arguments: dict[str, Any] | Malformed

    @property
    def problem(self) -> str:
        """What to tell the model instead of calling; "" if the call can be made."""
        if isinstance(self.tool, UnknownTool):
            return str(self.tool)
        return str(self.arguments) if isinstance(self.arguments, Malformed) else ""


def read_calls(vendor: Vendor, message: Any, offered: Offered | None = None) -> list[ModelCall]:
    """The calls in `message`, in its order; [] if there are none.

    Args:
        vendor: whose shape it is.
        message: a response, its message, a list of its parts, or one call: as a dict, or as an object of the vendor's SDK (anything with
            `model_dump`).
        offered: the tools that were sent. Without it every name is unknown and the arguments stay as the model wrote them; for a caller
            with tools of its own.

    Nothing in a model's answer raises: what cannot be read is a call with a problem, or no call.
    """
    calls = []
    for id_, name, raw in _parts(vendor, _plain(message)):
        text = name if isinstance(name, str) else ""
        tool: ToolRef | UnknownTool = offered.resolve(text) if offered is not None else UnknownTool(text)
        arguments = read_arguments(raw)
        if offered is not None and isinstance(tool, ToolRef) and not isinstance(arguments, Malformed):
            entry = offered.entries[tool]
            try:
                arguments = restore_arguments(arguments, entry.input_schema, entry.parameter_aliases)
            except LimitExceeded as error:
                arguments = Malformed(f"The arguments cannot be used: {error}.")
        calls.append(ModelCall(id_ if isinstance(id_, str) else "", text, tool, arguments))
    return calls


def _plain(message: Any) -> Any:
    if isinstance(message, list | tuple):
        return [_plain(part) for part in message]
    dump = getattr(message, "model_dump", None)
    return dump() if callable(dump) and not isinstance(message, Mapping) else message


def _parts(vendor: Vendor, message: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Id, name and raw arguments of each call."""
    match vendor:
        case Vendor.OPENAI | Vendor.MISTRAL:
            yield from _chat(message)
        case Vendor.OPENAI_RESPONSES:
            for item in _items(message, "output"):
                if item.get("type") == "function_call":
                    yield item.get("call_id") or item.get("id"), item.get("name"), item.get("arguments")
        case Vendor.ANTHROPIC:
            for block in _items(message, "content"):
                if block.get("type") == "tool_use":
                    yield block.get("id"), block.get("name"), block.get("input")
        case Vendor.GEMINI:
            yield from _gemini(message)


def _chat(message: Any) -> Iterator[tuple[Any, Any, Any]]:
    for part in _items(message, "choices"):
        inner = part.get("message", part)
        if not isinstance(inner, Mapping):
            continue
        function = inner.get("function")
        if isinstance(function, Mapping):
            yield inner.get("id"), function.get("name"), function.get("arguments")
            continue
        for call in _list(inner.get("tool_calls")):
            yield from _chat(call)
        if isinstance(old := inner.get("function_call"), Mapping):
            yield "", old.get("name"), old.get("arguments")


def _gemini(message: Any) -> Iterator[tuple[Any, Any, Any]]:
    for part in _items(message, "candidates"):
        if isinstance(content := part.get("content"), Mapping):
            part = content
        if "parts" in part:
            yield from _gemini(_list(part["parts"]))
            continue
        call = part.get("functionCall", part.get("function_call"))
        if call is None and "args" in part:
            call = part
        if isinstance(call, Mapping):
            yield call.get("id"), call.get("name"), call.get("args")


def _items(message: Any, holder: str) -> list[Mapping[str, Any]]:
    """The parts under `holder`, or the parts that `message` is."""
    if isinstance(message, Mapping):
        held = message.get(holder)
        message = held if isinstance(held, list | tuple) else [message]
    return [item for item in _list(message) if isinstance(item, Mapping)]


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []
