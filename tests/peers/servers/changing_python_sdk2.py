"""A server on the official Python SDK 2.x that changes while it runs: ``python changing_python_sdk2.py stdio|http``."""

import sys

from listening import serve
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

server = MCPServer("changing-python-sdk2", version="1.0")


@server.tool()
async def grow(name: str, ctx: Context) -> str:
    """Adds a tool of that name and says that the list changed."""
    server.add_tool(lambda: name, name=name, description="Came later.")
    await ctx.notify_tools_changed()
    return "grown"


@server.tool()
async def count(steps: int, ctx: Context) -> int:
    """Counts up to a number and reports each step."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
    return steps


match sys.argv[1]:
    case "stdio":
        server.run("stdio")
    case "http":
        serve(server.streamable_http_app(), "/mcp")
