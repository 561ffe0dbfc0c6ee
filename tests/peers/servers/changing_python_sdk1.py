"""A server on the official Python SDK 1.x that changes while it runs: ``python changing_python_sdk1.py stdio|http|sse``."""

import sys

from listening import serve
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.lowlevel import NotificationOptions

server = FastMCP("changing-python-sdk1")
# Nothing is announced unless the options say so, and the high-level class never passes any.
options = server._mcp_server.create_initialization_options
server._mcp_server.create_initialization_options = lambda: options(NotificationOptions(tools_changed=True))


@server.tool()
async def grow(name: str, ctx: Context) -> str:
    """Adds a tool of that name and says that the list changed."""
    server.add_tool(lambda: name, name=name, description="Came later.")
    await ctx.session.send_tool_list_changed()
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
    case "sse":
        serve(server.sse_app(), "/sse")
