"""The tools of any MCP server in a pydantic-ai agent.

pip install 'outrider-mcp[pydantic-ai]' pydantic-ai-slim[openai]
OPENAI_API_KEY=… OUTRIDER_MODEL=… python agent_pydantic_ai.py "add 2 and 3" python server.py
"""

from __future__ import annotations

import asyncio
import os
import sys

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel

import outrider
from outrider.catalog.adapters.pydantic_ai import catalog_toolset


async def main(prompt: str, command: list[str]) -> None:
    async with outrider.Catalog({"tools": command}) as catalog:
        await catalog.ready(30)
        toolset = catalog_toolset(catalog)
        agent = Agent(OpenAIChatModel(os.environ["OUTRIDER_MODEL"]), toolsets=[toolset])
        result = await agent.run(prompt)
        print(result.output)
        print(toolset.conversation.ledger, file=sys.stderr)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
