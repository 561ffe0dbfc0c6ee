"""A server on the official Python SDK 2.x that tells which span its own would be the child of."""

from mcp.server import MCPServer
from opentelemetry import trace

server = MCPServer("sdk", version="1.0")


@server.tool()
def parent() -> str:
    """The context that the SDK took from the request: with OpenTelemetry's API alone, its span is the remote parent."""
    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}-{context.span_id:016x}"


server.run("stdio")
