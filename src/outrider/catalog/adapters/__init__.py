"""The catalog as the native tools of agent frameworks: pydantic-ai, openai-agents, LangChain.

Decided here: what such a tool is, whatever the framework: a definition, and a function from arguments to text. A module for each framework
makes its own kind of tool of that; it imports the framework when it is used. Exposure, guards, paging and the ledger are those of a
`Conversation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from outrider.catalog.conversation import Conversation

__all__ = ["BoundTool", "bound_tools", "call_bound"]


class BoundTool(Struct, frozen=True):
    """A tool of a conversation, as any framework needs it.

    Attributes:
        conversation: whose tool it is.
        name: for the model.
        description: for the model.
        parameters: the JSON Schema of its arguments, as the model is shown it.
        is_strict: whether `parameters` is written for vendors that hold the model to it.
    """

    conversation: Conversation
    name: str
    description: str
    parameters: dict[str, Any]
    is_strict: bool

    async def call(self, arguments: Mapping[str, Any] | str) -> str:
        """The result as labelled text, an error included; see `call_bound`."""
        return await call_bound(self.conversation, self.name, arguments)


def bound_tools(conversation: Conversation, *, is_fixed: bool) -> list[BoundTool]:
    """The tools of a conversation for "openai", in its order.

    Args:
        conversation: of the vendor "openai", whose definitions are what frameworks adapt to other vendors.
        is_fixed: whether the framework asks only once. Then the tool that reads on in long results is there from the start.

    What is asked for counts as one request in the ledger.
    """
    if is_fixed:
        conversation.show_reading()
    tools = []
    for definition in conversation.tools:
        function = definition["function"]
        tools.append(
            BoundTool(
                conversation,
                function["name"],
                function["description"],
                function["parameters"],
                bool(function.get("strict", False)),
            )
        )
    return tools


async def call_bound(conversation: Conversation, name: str, arguments: Mapping[str, Any] | str) -> str:
    """Call a tool of a conversation by the model's name for it.

    Args:
        conversation: of the vendor "openai".
        name: any name that the conversation understands.
        arguments: an object, or the JSON text that the model wrote.

    Returns:
        The text for the model: the labelled result, or `Error: …` with what is wrong. Nothing a server or a model does raises.
    """
    written = arguments if isinstance(arguments, str) else msgspec.json.encode(dict(arguments)).decode()
    call = {"id": "call", "type": "function", "function": {"name": name, "arguments": written}}
    messages = await conversation.answer(call)
    return str(messages[0]["content"])
