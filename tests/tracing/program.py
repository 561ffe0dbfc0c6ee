"""A traced server that tests start as a process of its own; `SPANS` names the file for its spans, one JSON object a line."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from outrider.server import Context, Server, ToolError

server = Server("traced", version="1.0")


def trace_to(path: str) -> None:
    """Configure OpenTelemetry as an application would."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

    class Lines(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            with open(path, "a", encoding="utf-8") as file:
                for span in spans:
                    file.write(json.dumps(json.loads(span.to_json()), separators=(",", ":")) + "\n")
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(Lines()))
    trace.set_tracer_provider(provider)


if os.environ.get("SPANS"):
    trace_to(os.environ["SPANS"])


def own_span(name: str) -> Any:
    from opentelemetry import trace

    return trace.get_tracer("author").start_as_current_span(name)


@server.tool(inline=True)
def add(a: int, b: int) -> int:
    """Add two numbers on the event loop."""
    return a + b


@server.tool
def in_thread() -> str:
    """Work in a worker thread."""
    with own_span("work in a thread"):
        return "done"


@server.tool
async def in_loop() -> str:
    """Work on the event loop."""
    await asyncio.sleep(0)
    with own_span("work on the loop"):
        return "done"


@server.tool
def fail(secret: str) -> str:
    """Fail."""
    raise ToolError(f"no luck with {secret}")


@server.tool
async def wait() -> str:
    """Never answer."""
    await asyncio.Event().wait()
    return "never"


@server.tool
def seen(ctx: Context) -> dict[str, Any]:
    """The trace context of the request, and whether this process has loaded OpenTelemetry."""
    return {"trace": dict(ctx.trace), "loaded": "opentelemetry.trace" in sys.modules}


@server.tool(task=True)
async def slow() -> str:
    """Work as a task."""
    with own_span("work in a task"):
        return "done at last"


@server.tool
async def ask(ctx: Context) -> str:
    """Ask for something first."""
    given = await ctx.elicit("Which day?", {"type": "object", "properties": {"day": {"type": "string"}}}, key="day")
    return str(given.content["day"])


@server.tool
def change() -> str:
    """Change the list of tools."""
    if not server.remove_tool("passing"):
        server.tool(in_thread, name="passing")
    return "changed"


@server.resource("book://{title}/text")
def text(title: str) -> str:
    """A text."""
    return f"{title}: …"


@server.prompt
def greet(name: str) -> str:
    """Ask for a greeting."""
    return f"Greet {name}."


if __name__ == "__main__":
    server.run()
