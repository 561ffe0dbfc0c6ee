"""A bare ASGI app that answers from bytes and understands nothing: the most that any server on this HTTP stack can do.

`python bare_server.py TOOLS http`, for `benchmarks/server.py`. The answers are Outrider's own, so that all move the same bytes.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec
from serving import many_tools, serve

from outrider.server import Server


def answers() -> dict[bytes, bytes]:
    """The answer to each method, as bytes."""
    server = Server("bench", version="1.0", instructions="Adds numbers.")

    @server.tool
    async def add(a: int, b: int) -> int:
        """Adds two numbers."""
        return a + b

    for tool in many_tools(int(sys.argv[1]) - 1):
        server.tool(tool)
    dispatcher = server.dispatcher(legacy=True, listen=True)
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    found = {}
    for method in ("server/discover", "tools/list"):
        body = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": meta}})
        found[method.encode()] = dispatcher.dispatch(body).body
    identity = server.registry.identity_member
    found[b"tools/call"] = (
        b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[{"type":"text","text":"3"}],'
        b'"structuredContent":3,"isError":false' + identity + b"}}"
    )
    return found


ANSWERS = answers()


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answers a POST by its Mcp-Method header."""
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    await receive()
    body = ANSWERS[dict(scope["headers"])[b"mcp-method"]]
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


serve(app)
