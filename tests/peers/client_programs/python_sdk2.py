"""A client on the official Python SDK 2.x. See README.md beside this file."""

import asyncio
import json
import sys

from mcp import Client, StdioServerParameters


async def perform(client, changed, step):
    arguments = step.get("arguments", {})
    match step:
        case {"call": name}:
            return (await client.call_tool(name, arguments)).content[0].text
        case {"progress": name}:
            seen = []

            async def note(progress, total, message):
                seen.append(progress)

            await client.call_tool(name, arguments, progress_callback=note)
            return seen
        case {"read": uri}:
            return (await client.read_resource(uri)).contents[0].text
        case {"prompt": name}:
            return (await client.get_prompt(name, arguments)).messages[0].content.text
        case {"listen": name} if client.protocol_version == "2025-11-25":
            changed.clear()
            await client.call_tool(name, {})
            await changed.wait()
            return True
        case {"listen": name}:
            async with client.listen(tools_list_changed=True) as subscription:
                await client.call_tool(name, {})
                await anext(aiter(subscription))
                return True
        case _:
            raise ValueError(f"no such step: {step}")


async def main(mode, plan, target):
    server = target[0] if target[0].startswith("http") else StdioServerParameters(command=target[0], args=target[1:])
    changed = asyncio.Event()

    async def note(message):
        if type(message).__name__ == "ToolListChangedNotification":
            changed.set()

    async with Client(server, mode=mode, message_handler=note) as client:
        report = {
            "version": client.protocol_version,
            "server": client.server_info and client.server_info.name,
            "tools": [tool.name for tool in (await client.list_tools()).tools],
            "answers": [await perform(client, changed, step) for step in plan],
        }
    print(json.dumps(report))


asyncio.run(main(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:]))
