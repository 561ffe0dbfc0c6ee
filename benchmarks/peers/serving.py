"""How the benchmark's Python servers serve HTTP, all on the same stack, and the tools that fill their lists.

Standard library and uvicorn only, because it runs in the environment of each.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["many_tools", "serve"]


def many_tools(count: int) -> Iterator[Callable[..., Any]]:
    """Functions of different names with a few parameters each, as real servers have them."""
    for number in range(count):

        async def tool(query: str, limit: int = 10, exact: bool = False) -> str:
            """Searches a collection for records that match a query and returns the best ones, most relevant first."""
            return query

        tool.__name__ = tool.__qualname__ = f"search_collection_{number:03}"
        yield tool


def serve(app: Any) -> None:
    """Serves an ASGI app on loopback with whatever uvicorn finds best, after printing its URL."""
    import uvicorn

    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False)).run(sockets=[listener])
