"""The official SDK's server for `benchmarks/server.py`: `python sdk_server.py TOOLS stdio|http`."""

from __future__ import annotations

import sys

from mcp.server import MCPServer
from serving import many_tools, serve

server = MCPServer("bench", version="1.0", instructions="Adds numbers.")


@server.tool()
async def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


for tool in many_tools(int(sys.argv[1]) - 1):
    server.tool()(tool)

if sys.argv[2] == "stdio":
    server.run("stdio")
else:
    serve(server.streamable_http_app())
