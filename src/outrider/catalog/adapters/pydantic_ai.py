"""The catalog as a toolset of pydantic-ai (`pip install 'outrider-mcp[pydantic-ai]'`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outrider.catalog.adapters import bound_tools, call_bound
from outrider.catalog.conversation import Conversation

if TYPE_CHECKING:
    from outrider.catalog.catalog import Catalog

__all__ = ["catalog_toolset"]


def catalog_toolset(catalog: Catalog, *, id: str = "outrider", **how: Any) -> Any:
    """A toolset for `pydantic_ai.Agent(…, toolsets=[…])`. It is asked before each request, so tools that appear later are offered too.

    Args:
        catalog: an open catalog; wait for `ready` first, or servers may be missing from the first request.
        id: the toolset's id, unique in an agent.
        how: arguments of `Conversation`: mode, context_tokens, guards, servers, ….

    Returns:
        An `AbstractToolset`. Its attribute `conversation` has the ledger.
    """
    from pydantic_ai.tools import ToolDefinition
    from pydantic_ai.toolsets.abstract import AbstractToolset, ToolsetTool
    from pydantic_core import SchemaValidator, core_schema

    # Arguments are judged by the tool's server, which knows its schema best.
    anything = SchemaValidator(core_schema.any_schema())

    class CatalogToolset(AbstractToolset[Any]):
        """The tools of one conversation."""

        def __init__(self) -> None:
            self.conversation = Conversation(catalog, "openai", **how)

        @property
        def id(self) -> str:
            """The toolset's id."""
            return id

        async def get_tools(self, ctx: Any) -> dict[str, Any]:
            """What is offered now, by name."""
            return {
                tool.name: ToolsetTool(
                    toolset=self,
                    tool_def=ToolDefinition(
                        name=tool.name,
                        description=tool.description,
                        parameters_json_schema=tool.parameters,
                        strict=True if tool.is_strict else None,
                    ),
                    max_retries=0,
                    args_validator=anything,
                )
                # The framework tells the model of every new tool, so the one for long results is there from the start.
                for tool in bound_tools(self.conversation, is_fixed=True)
            }

        async def get_instructions(self, ctx: Any) -> str | None:
            """What the servers say about themselves, labelled."""
            return self.conversation.instructions() or None

        async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any) -> str:
            """The result as labelled text."""
            return await call_bound(self.conversation, name, tool_args)

    return CatalogToolset()
