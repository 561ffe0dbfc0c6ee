"""The tools of any MCP server in an agent of the OpenAI Agents SDK, with any model that is compatible with Chat Completions.

pip install 'outrider-mcp[openai-agents]'
OPENAI_API_KEY=… OUTRIDER_MODEL=… python agent_openai_agents.py "add 2 and 3" python server.py
"""

from __future__ import annotations

import asyncio
import os
import sys

from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from openai import AsyncOpenAI

import outrider
from outrider.catalog.adapters.openai_agents import catalog_tools


async def main(prompt: str, command: list[str]) -> None:
    set_tracing_disabled(True)
    model = OpenAIChatCompletionsModel(os.environ["OUTRIDER_MODEL"], AsyncOpenAI())
    async with outrider.Catalog({"tools": command}) as catalog:
        await catalog.ready(30)
        talk = catalog.conversation("openai")
        agent = Agent(name="Assistant", model=model, tools=catalog_tools(catalog, conversation=talk))
        result = await Runner.run(agent, prompt)
        print(result.final_output)
        print(talk.ledger, file=sys.stderr)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
