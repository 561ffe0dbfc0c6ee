"""Outrider's server and client under measurement, in one state of tracing: `traced.py none|api|sdk`. See `driving`."""

from __future__ import annotations

import asyncio
import importlib
import sys
from typing import Any

from driving import Stopwatch, drive, timed_calls
from load import request
from serving import many_tools

import outrider
import outrider.client.http  # Loaded at the first URL otherwise; every state is measured after its imports.
from outrider.server.stdio import StdioConnection

STATE = sys.argv[1]
CLEAR = [lambda: None]
if STATE == "none":
    # As where it is not installed.
    sys.modules["opentelemetry"] = None  # type: ignore[assignment]
elif STATE == "api":
    importlib.import_module("opentelemetry.trace")
elif STATE == "sdk":
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    CLEAR = [exporter.clear]


def make_server() -> outrider.Server:
    server = outrider.Server("bench", version="1.0", instructions="Adds numbers.")

    async def add(a: int, b: int) -> int:
        """Adds two numbers."""
        return a + b

    for tool in (add, *many_tools(49)):
        server.tool(tool)
    return server


async def app(method: str, count: int) -> dict[str, Any]:
    """Requests to the ASGI app, without any HTTP server."""
    served = make_server().asgi("/mcp")
    head, _, body = request("http://127.0.0.1:1/mcp", method).partition(b"\r\n\r\n")
    lines = [line.split(b": ", 1) for line in head.split(b"\r\n")[1:]]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/mcp",
        "headers": [(name.lower(), value) for name, value in lines],
        "server": ("127.0.0.1", 1),
        "client": ("127.0.0.1", 2),
        "http_version": "1.1",
    }
    message = {"type": "http.request", "body": body, "more_body": False}

    async def receive() -> Any:
        return message

    async def send(message: Any) -> None:
        pass

    async def spin(times: int) -> None:
        for number in range(times):
            await served(scope, receive, send)
            if number % 100 == 0:
                # Callbacks that were cancelled leave the loop's queue.
                await asyncio.sleep(0)
        CLEAR[0]()

    await spin(count // 10)
    watch = Stopwatch()
    await spin(count)
    return {"calls": count, **watch.read()}


async def stdio(method: str, count: int) -> dict[str, Any]:
    """Requests to a stdio connection, a hundred in each chunk, without any pipe."""
    connection = StdioConnection(make_server(), write=lambda _: None)
    _, _, body = request("http://127.0.0.1:1/mcp", method).partition(b"\r\n\r\n")
    chunk = (body + b"\n") * 100
    connection.feed(chunk)
    watch = Stopwatch()
    for _ in range(count // 100):
        connection.feed(chunk)
        CLEAR[0]()
    return {"calls": count // 100 * 100, **watch.read()}


async def calls(url: str, count: int) -> dict[str, Any]:
    """Discover calls of the client, 32 at once."""
    async with outrider.connect(url) as client:
        done = await timed_calls(client.discover, count=count, at_once=32)
    CLEAR[0]()
    return done


drive({"app": app, "stdio": stdio, "calls": calls})
