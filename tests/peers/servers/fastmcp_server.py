"""A sample server on FastMCP, 3.x or 4.x as installed: ``python fastmcp_server.py stdio|http|sse``."""

import sys

from fastmcp import FastMCP
from listening import serve

server = FastMCP("fastmcp", version="1.0", instructions="Adds and echoes.")


@server.tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool
def echo(text: str) -> str:
    """Says the same again."""
    return text


@server.prompt
def greet(name: str) -> str:
    """Asks for a greeting."""
    return f"Greet {name}."


@server.resource("memo://greeting", mime_type="text/plain")
def greeting() -> str:
    """A greeting."""
    return "Good day."


match sys.argv[1]:
    case "stdio":
        server.run("stdio", show_banner=False)
    case "http":
        serve(server.http_app(path="/mcp"), "/mcp")
    case "sse":
        serve(server.http_app(path="/sse", transport="sse"), "/sse")
