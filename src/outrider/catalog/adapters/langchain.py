"""The catalog as tools of LangChain (`pip install 'outrider-mcp[langchain]'`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outrider.catalog.adapters import BoundTool, bound_tools
from outrider.catalog.conversation import Conversation

if TYPE_CHECKING:
    from outrider.catalog.catalog import Catalog

__all__ = ["catalog_tools"]


def catalog_tools(catalog: Catalog, *, conversation: Conversation | None = None, **how: Any) -> list[Any]:
    """Tools for `model.bind_tools(…)`, LangChain agents and LangGraph.

    Args:
        catalog: an open catalog; wait for `ready` first: the list is made once.
        conversation: a conversation for "openai" to use, for instance to read its ledger; None for a new one.
        how: arguments of a new `Conversation`: mode, context_tokens, guards, servers, ….

    Returns:
        `BaseTool`s that work asynchronously (`ainvoke`). Tools of servers that come later are reached by search, in the mode "search".
    """
    from langchain_core.tools import BaseTool

    talk = conversation or Conversation(catalog, "openai", **how)

    class CatalogTool(BaseTool):
        """One tool. A class of its own because a parameter may be called like something LangChain passes itself."""

        bound: Any

        def _run(self, *args: Any, **kwargs: Any) -> str:
            raise NotImplementedError("tools of a catalog work asynchronously: use ainvoke")

        def _to_args_and_kwargs(
            self, tool_input: Any, tool_call_id: str | None
        ) -> tuple[tuple[Any, ...], dict[str, Any]]:
            return (tool_input,), {}

        async def _arun(self, arguments: Any, **kwargs: Any) -> str:
            bound: BoundTool = self.bound
            return await bound.call(arguments)

    return [
        CatalogTool(name=tool.name, description=tool.description, args_schema=tool.parameters, bound=tool)
        for tool in bound_tools(talk, is_fixed=True)
    ]
