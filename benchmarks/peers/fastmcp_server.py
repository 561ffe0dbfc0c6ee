"""FastMCP's server for `benchmarks/server.py`: `python fastmcp_server.py TOOLS stdio|http`."""

from __future__ import annotations

import sys

from fastmcp import FastMCP
from serving import many_tools, serve

server = FastMCP("bench", version="1.0", instructions="Adds numbers.")


@server.tool
async def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


for tool in many_tools(int(sys.argv[1]) - 1):
    server.tool(tool)

if sys.argv[2] == "stdio":
    server.run("stdio", show_banner=False)
else:
    serve(server.http_app(path="/mcp"))
