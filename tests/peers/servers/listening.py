"""How the Python sample servers serve HTTP: on a port that the system chooses, announced on standard output."""

import asyncio
import socket

import uvicorn


def serve(app, path: str) -> None:
    """Serves an ASGI app on loopback until the process is ended, after printing ``listening on URL``."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}{path}", flush=True)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    asyncio.run(server.serve(sockets=[listener]))
