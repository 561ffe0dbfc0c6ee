"""The catalog as tools of the OpenAI Agents SDK (`pip install 'outrider-mcp[openai-agents]'`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outrider.catalog.adapters import BoundTool, bound_tools
from outrider.catalog.conversation import Conversation

if TYPE_CHECKING:
    from outrider.catalog.catalog import Catalog

__all__ = ["catalog_tools"]


def catalog_tools(catalog: Catalog, *, conversation: Conversation | None = None, **how: Any) -> list[Any]:
    """Tools for `agents.Agent(…, tools=[…])`.

    Args:
        catalog: an open catalog; wait for `ready` first: the list is made once.
        conversation: a conversation for "openai" to use, for instance to read its ledger; None for a new one.
        how: arguments of a new `Conversation`: mode, context_tokens, guards, servers, ….

    Returns:
        `FunctionTool`s. Tools of servers that come later are reached by search, in the mode "search".
    """
    from agents import FunctionTool

    talk = conversation or Conversation(catalog, "openai", **how)

    def native(tool: BoundTool) -> Any:
        async def invoke(context: Any, arguments: str) -> str:
            return await tool.call(arguments)

        return FunctionTool(
            name=tool.name,
            description=tool.description,
            params_json_schema=tool.parameters,
            on_invoke_tool=invoke,
            strict_json_schema=tool.is_strict,
        )

    return [native(tool) for tool in bound_tools(talk, is_fixed=True)]
