"""The tools of any MCP server bound to a LangChain chat model.

pip install 'outrider-mcp[langchain]' langchain-openai
OPENAI_API_KEY=… OUTRIDER_MODEL=… python agent_langchain.py "add 2 and 3" python server.py
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI

import outrider
from outrider.catalog.adapters.langchain import catalog_tools


async def main(prompt: str, command: list[str]) -> None:
    async with outrider.Catalog({"tools": command}) as catalog:
        await catalog.ready(30)
        talk = catalog.conversation("openai")
        tools = {tool.name: tool for tool in catalog_tools(catalog, conversation=talk)}
        model = ChatOpenAI(model=os.environ["OUTRIDER_MODEL"]).bind_tools(list(tools.values()))
        messages: list[Any] = [HumanMessage(prompt)]
        while True:
            reply = await model.ainvoke(messages)
            messages.append(reply)
            if not reply.tool_calls:
                break
            messages += await asyncio.gather(*(tools[call["name"]].ainvoke(call) for call in reply.tool_calls))
        print(reply.content)
        print(talk.ledger, file=sys.stderr)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
