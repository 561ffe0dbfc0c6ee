"""A client on the official Python SDK 1.x, which knows only the handshake. See README.md beside this file."""

import asyncio
import json
import sys
from contextlib import asynccontextmanager

from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamablehttp_client


@asynccontextmanager
async def connect(target):
    if target[0].startswith("http"):
        async with streamablehttp_client(target[0]) as (reader, writer, _session_id):
            yield reader, writer
    else:
        async with stdio_client(StdioServerParameters(command=target[0], args=target[1:])) as streams:
            yield streams


async def perform(session, changed, step):
    arguments = step.get("arguments", {})
    match step:
        case {"call": name}:
            return (await session.call_tool(name, arguments)).content[0].text
        case {"progress": name}:
            seen = []

            async def note(progress, total, message):
                seen.append(progress)

            await session.call_tool(name, arguments, progress_callback=note)
            return seen
        case {"read": uri}:
            return (await session.read_resource(uri)).contents[0].text
        case {"prompt": name}:
            return (await session.get_prompt(name, arguments)).messages[0].content.text
        case {"listen": name}:
            changed.clear()
            await session.call_tool(name, {})
            await changed.wait()
            return True
        case _:
            raise ValueError(f"no such step: {step}")


async def main(plan, target):
    changed = asyncio.Event()

    async def note(message):
        if type(getattr(message, "root", None)).__name__ == "ToolListChangedNotification":
            changed.set()

    async with connect(target) as (reader, writer), ClientSession(reader, writer, message_handler=note) as session:
        welcome = await session.initialize()
        report = {
            "version": welcome.protocolVersion,
            "server": welcome.serverInfo.name,
            "tools": [tool.name for tool in (await session.list_tools()).tools],
            "answers": [await perform(session, changed, step) for step in plan],
        }
    print(json.dumps(report))


asyncio.run(main(json.loads(sys.argv[2]), sys.argv[3:]))
