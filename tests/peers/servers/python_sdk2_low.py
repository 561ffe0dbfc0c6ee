"""A sample server on the official Python SDK 2.x, its low-level class: ``python python_sdk2_low.py stdio|http``."""

import asyncio
import sys

from listening import serve
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolResult,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListToolsResult,
    Prompt,
    PromptArgument,
    PromptMessage,
    ReadResourceResult,
    Resource,
    TextContent,
    TextResourceContents,
    Tool,
)

NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


async def list_tools(ctx, params):
    return ListToolsResult(
        tools=[
            Tool(name="add", description="Adds two numbers.", input_schema=NUMBERS),
            Tool(name="echo", description="Says the same again.", input_schema=TEXT),
        ]
    )


async def call_tool(ctx, params):
    arguments = params.arguments or {}
    text = str(arguments["a"] + arguments["b"]) if params.name == "add" else arguments["text"]
    return CallToolResult(content=[TextContent(type="text", text=text)])


async def list_prompts(ctx, params):
    name = PromptArgument(name="name", required=True)
    return ListPromptsResult(prompts=[Prompt(name="greet", description="Asks for a greeting.", arguments=[name])])


async def get_prompt(ctx, params):
    text = TextContent(type="text", text=f"Greet {params.arguments['name']}.")
    return GetPromptResult(messages=[PromptMessage(role="user", content=text)])


async def list_resources(ctx, params):
    return ListResourcesResult(resources=[Resource(uri="memo://greeting", name="greeting", mime_type="text/plain")])


async def read_resource(ctx, params):
    return ReadResourceResult(contents=[TextResourceContents(uri=params.uri, mime_type="text/plain", text="Good day.")])


server = Server(
    "python-sdk2-low",
    version="1.0",
    on_list_tools=list_tools,
    on_call_tool=call_tool,
    on_list_prompts=list_prompts,
    on_get_prompt=get_prompt,
    on_list_resources=list_resources,
    on_read_resource=read_resource,
)


async def serve_stdio() -> None:
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


match sys.argv[1]:
    case "stdio":
        asyncio.run(serve_stdio())
    case "http":
        serve(server.streamable_http_app(), "/mcp")
