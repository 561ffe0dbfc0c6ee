"""The server that all clients are measured against: a bare ASGI app on uvicorn with uvloop, which does next to nothing.

`python raw_server.py PORTS` listens on that many ports of the loopback interface, each of which is a server with 20 tools; prints the
ports as one line of JSON; ends when its input does.
"""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import sys
from typing import Any

import msgspec
import uvicorn

META = {"io.modelcontextprotocol/serverInfo": {"name": "bench", "version": "1.0"}}
COMMON = {"resultType": "complete", "ttlMs": 3_600_000, "cacheScope": "public", "_meta": META}
DISCOVERED = msgspec.json.encode(
    {
        **COMMON,
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {"listChanged": True}},
        "instructions": "Twenty tools that do nothing, for measurements.",
    }
)
TOOLS = [
    {
        "name": f"records_update_{number:02}",
        "title": f"Update record {number}",
        "description": "Changes fields of one record and returns it as it is afterwards. Fields that are not named stay as they are.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "id": {"type": "string", "description": "The record's id"},
                "fields": {"type": "object", "additionalProperties": {"type": "string"}},
                "notify": {"type": "boolean", "default": False},
            },
            "required": ["id", "fields"],
        },
        "annotations": {"readOnlyHint": False, "idempotentHint": True},
    }
    for number in range(20)
]
ANSWERS = {"server/discover": DISCOVERED, "tools/list": msgspec.json.encode({**COMMON, "tools": TOOLS})}
UNKNOWN = b'{"code":-32601,"message":"Method not found"}'


class Asked(msgspec.Struct):
    """What the app looks at in a request."""

    id: msgspec.Raw
    method: str


_decode = msgspec.json.Decoder(Asked).decode
_HEADERS = [(b"content-type", b"application/json")]


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answers the two methods, whatever the path."""
    body = b""
    while True:
        event = await receive()
        body += event.get("body", b"")
        if not event.get("more_body"):
            break
    asked = _decode(body)
    known = ANSWERS.get(asked.method)
    member = b',"result":' if known else b',"error":'
    answer = b"".join((b'{"jsonrpc":"2.0","id":', bytes(asked.id), member, known or UNKNOWN, b"}"))
    headers = [*_HEADERS, (b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200 if known else 404, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


async def serve(ports: int) -> None:
    """Serves until the input ends."""
    # Each port and each connection is an open file, and the usual limit of 1,024 is a soft one.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    listeners = [socket.create_server(("127.0.0.1", 0), backlog=512) for _ in range(ports)]
    # Longer than any pause of a benchmark, so that no client meets a connection that is just being closed.
    config = uvicorn.Config(app, lifespan="off", log_level="warning", access_log=False, timeout_keep_alive=600)
    server = uvicorn.Server(config)
    print(json.dumps([listener.getsockname()[1] for listener in listeners]), flush=True)

    async def stop_at_end_of_input() -> None:
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        server.should_exit = server.force_exit = True

    async with asyncio.TaskGroup() as group:
        group.create_task(stop_at_end_of_input())
        group.create_task(server.serve(sockets=listeners))


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve(int(sys.argv[1])))
