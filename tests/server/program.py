"""A server that tests start as a process of its own."""

from __future__ import annotations

import asyncio
import os

from outrider.server import Context, Server, ServerOptions

server = Server("program", version="1.0", instructions="A server for tests.", options=ServerOptions(page_size=5))


@server.tool(inline=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
def process() -> int:
    """Which process answers."""
    return os.getpid()


@server.tool
async def steps(ctx: Context) -> str:
    """Report progress four times."""
    for step in range(1, 5):
        ctx.progress(step, 4)
        # Apart, because one of the clients drops progress that it reads in one piece with the result.
        await asyncio.sleep(0.1)
    return "done"


@server.tool
def change() -> str:
    """Add a tool or take it away."""
    if not server.remove_tool("passing"):
        server.tool(process, name="passing")
    return "changed"


@server.tool
async def trip(city: str, ctx: Context) -> str:
    """Ask in two rounds, with a state."""
    ctx.state["rounds"] = [*ctx.state.get("rounds", []), os.getpid()]
    day = await ctx.elicit("Which day?", {"type": "object", "properties": {"day": {"type": "string"}}}, key="day")
    seat = await ctx.elicit("Which seat?", {"type": "object", "properties": {"seat": {"type": "string"}}}, key="seat")
    return f"{city} {day.content['day']} {seat.content['seat']} {ctx.state['rounds']}"


@server.tool
async def wait(seconds: float) -> str:
    """Wait."""
    await asyncio.sleep(seconds)
    return "waited"


for number in range(20):
    server.tool(process, name=f"filler_{number:02}")


@server.resource("memo://greeting", subscribable=True)
def greeting() -> str:
    """A greeting."""
    return "Good day."


@server.prompt
def greet(name: str) -> str:
    """Ask for a greeting."""
    return f"Greet {name}."


if __name__ == "__main__":
    server.run()
