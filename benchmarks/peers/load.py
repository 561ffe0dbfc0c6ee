"""A load generator for `benchmarks/server.py`: as many requests as a server answers, over connections that stay open.

Driven like the other programs here, with `{"do": "load", "url": …, "method": …, "connections": …, "seconds": …}`. It reads no more of an
answer than it must to know where it ends and whether it is a result.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any
from urllib.parse import urlsplit

from driving import drive

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "load", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def request(url: str, method: str) -> bytes:
    """A whole HTTP request, with every header that the specification asks for."""
    params: dict[str, Any] = {"_meta": META}
    named = ""
    if method == "tools/call":
        params.update(name="add", arguments={"a": 1, "b": 2})
        named = "Mcp-Name: add\r\n"
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, separators=(",", ":"))
    parts = urlsplit(url)
    return (
        f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
        f"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n{named}"
        f"Content-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


class Connection(asyncio.Protocol):
    """Sends the same request again whenever its answer is complete."""

    def __init__(self, data: bytes, done: asyncio.Future[None]) -> None:
        self._data, self._done = data, done
        self._buffer = b""
        self._end = -1
        self._is_chunked = False
        self.answers = 0
        self.stopped = False
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.transport.write(self._data)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(error or ConnectionError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._end < 0 and not self._is_chunked:
            head_end = self._buffer.find(b"\r\n\r\n")
            if head_end < 0:
                return
            head = self._buffer[:head_end].lower()
            if not head.startswith(b"http/1.1 200"):
                self._fail(self._buffer)
                return
            length = head.find(b"content-length:")
            if length >= 0:
                self._end = head_end + 4 + int(head[length + 15 :].split(b"\r\n", 1)[0])
            else:
                self._is_chunked = True
        complete = self._buffer.endswith(b"0\r\n\r\n") if self._is_chunked else len(self._buffer) >= self._end
        if not complete:
            return
        if b'"result"' not in self._buffer:
            self._fail(self._buffer)
            return
        self.answers += 1
        self._buffer, self._end, self._is_chunked = b"", -1, False
        if self.stopped:
            if not self._done.done():
                self._done.set_result(None)
        else:
            self.transport.write(self._data)

    def _fail(self, answer: bytes) -> None:
        if not self._done.done():
            self._done.set_exception(RuntimeError(answer[:500].decode(errors="replace")))
        self.transport.close()


async def load(url: str, method: str, connections: int, seconds: float) -> dict[str, Any]:
    """Keep `connections` requests in flight for a time; how many answers came, in what time."""
    loop = asyncio.get_running_loop()
    parts = urlsplit(url)
    data = request(url, method)
    open_connections: list[Connection] = []
    futures: list[asyncio.Future[None]] = []
    for _ in range(connections):
        done: asyncio.Future[None] = loop.create_future()
        connection = Connection(data, done)
        await loop.create_connection(lambda connection=connection: connection, parts.hostname, parts.port)
        open_connections.append(connection)
        futures.append(done)
    # Whatever a server does only once is done by now.
    await asyncio.sleep(min(0.3, seconds / 3))
    before, started = sum(c.answers for c in open_connections), time.perf_counter()
    await asyncio.wait(futures, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    answers, took = sum(c.answers for c in open_connections) - before, time.perf_counter() - started
    for connection in open_connections:
        connection.stopped = True
    await asyncio.gather(*futures)
    for connection in open_connections:
        connection.transport.close()
    return {"answers": answers, "seconds": took}


if __name__ == "__main__":
    import uvloop

    uvloop.install()
    drive({"load": load})
