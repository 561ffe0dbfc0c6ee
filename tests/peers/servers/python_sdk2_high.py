"""A sample server on the official Python SDK 2.x, its high-level class: ``python python_sdk2_high.py stdio|http|sse``."""

import sys

from listening import serve
from mcp.server import MCPServer

server = MCPServer("python-sdk2-high", version="1.0", instructions="Adds and echoes.")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
def echo(text: str) -> str:
    """Says the same again."""
    return text


@server.prompt()
def greet(name: str) -> str:
    """Asks for a greeting."""
    return f"Greet {name}."


@server.resource("memo://greeting", mime_type="text/plain")
def greeting() -> str:
    """A greeting."""
    return "Good day."


match sys.argv[1]:
    case "stdio":
        server.run("stdio")
    case "http":
        serve(server.streamable_http_app(), "/mcp")
    case "sse":
        serve(server.sse_app(), "/sse")
