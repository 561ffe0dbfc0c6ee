"""Drives an ASGI app in this process, message by message, as an ASGI server would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from outrider.protocol.headers import NAME_SOURCE, encode_value

VERSION = "2026-07-28"
DEADLINE_S = 30.0
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"


def meta(version: str = VERSION, capabilities: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """The `_meta` of a modern request."""
    return {VERSION_KEY: version, CAPABILITIES_KEY: dict(capabilities or {}), **more}


@dataclass
class Response:
    """What came back so far."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    is_complete: bool = False

    @property
    def json(self) -> Any:
        """The body of a JSON answer."""
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The messages of an event stream, in order."""
        blocks = [block for block in self.body.decode().split("\n\n") if "data: " in block]
        return [
            json.loads("".join(line[6:] for line in block.split("\n") if line.startswith("data: ")) or "null")
            for block in blocks
        ]

    @property
    def last(self) -> Any:
        """The answer itself, whichever way it came."""
        return self.events[-1] if self.headers.get("content-type") == "text/event-stream" else self.json


class Exchange:
    """One HTTP exchange in progress."""

    def __init__(self, app: Any, scope: dict[str, Any], chunks: list[bytes]) -> None:
        self.response = Response()
        self._chunks = chunks
        self._gone = asyncio.Event()
        self._changed = asyncio.Condition()
        self._task = asyncio.get_running_loop().create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self._chunks:
            chunk = self._chunks.pop(0)
            return {"type": "http.request", "body": chunk, "more_body": bool(self._chunks)}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        async with self._changed:
            response = self.response
            if message["type"] == "http.response.start":
                assert not response.status, "started twice"
                response.status = message["status"]
                response.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                assert response.status, "a body before the start"
                assert not response.is_complete, "a body after the end"
                response.body += message.get("body", b"")
                response.is_complete = not message.get("more_body", False)
            self._changed.notify_all()

    async def until(self, condition: Any) -> Response:
        """Wait until `condition(response)` holds."""
        async with asyncio.timeout(DEADLINE_S), self._changed:
            await self._changed.wait_for(lambda: condition(self.response))
        return self.response

    async def finish(self) -> Response:
        """Wait for the end of the exchange."""
        async with asyncio.timeout(DEADLINE_S):
            await self._task
        return self.response

    async def disconnect(self) -> Response:
        """Close the client's end and wait for the app to return."""
        self._gone.set()
        return await self.finish()

    def cancel(self) -> asyncio.Task[Any]:
        """End the exchange as an ASGI server does at its shutdown."""
        self._task.cancel()
        return self._task


class Caller:
    """A client of one app."""

    def __init__(self, app: Any, *, host: str = "127.0.0.1:8000", address: str = "127.0.0.1") -> None:
        self.app, self.host, self.address = app, host, address

    def start(
        self,
        body: bytes | list[bytes],
        *,
        method: str = "POST",
        path: str = "/mcp",
        headers: Mapping[str, str | None] | list[tuple[str, str]] | None = None,
        root_path: str = "",
    ) -> Exchange:
        """Begin an exchange; in a mapping of headers None takes a usual one away."""
        if isinstance(headers, list):
            lines = headers
        else:
            usual: dict[str, str | None] = {
                "host": self.host,
                "content-type": "application/json",
                "accept": "application/json, text/event-stream",
            }
            usual.update(headers or {})
            lines = [(name, value) for name, value in usual.items() if value is not None]
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "root_path": root_path,
            "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in lines],
            "server": (self.address, 8000),
        }
        return Exchange(self.app, scope, body if isinstance(body, list) else [body])

    def begin(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        id: Any = 1,
        meta: Any = ...,
        headers: Mapping[str, str | None] | None = None,
        **meta_options: Any,
    ) -> Exchange:
        """Begin a modern request."""
        own = globals()["meta"](**meta_options) if meta is ... else meta
        body_params = {**(params or {}), "_meta": own}
        body = json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": body_params}).encode()
        mirrored: dict[str, str | None] = {
            "mcp-protocol-version": own.get(VERSION_KEY, VERSION) if isinstance(own, dict) else VERSION,
            "mcp-method": method,
        }
        source = NAME_SOURCE.get(method)
        name = (params or {}).get(source) if source is not None else None
        if isinstance(name, str):
            mirrored["mcp-name"] = encode_value(name)
        return self.start(body, headers={**mirrored, **(headers or {})})

    async def call(self, method: str, params: Mapping[str, Any] | None = None, **options: Any) -> Response:
        """Make a modern request and wait for its end."""
        return await self.begin(method, params, **options).finish()

    async def result(self, method: str, params: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """The result of a modern request that succeeds."""
        response = await self.call(method, params, **options)
        assert response.status == 200, response.body
        return response.last["result"]

    async def error(self, method: str, params: Mapping[str, Any] | None = None, **options: Any) -> tuple[int, Any]:
        """HTTP status and error of a modern request that fails."""
        response = await self.call(method, params, **options)
        return response.status, response.last["error"]

    async def send(self, message: Any, headers: Mapping[str, str | None] | None = None, **options: Any) -> Response:
        """Post a message as it is."""
        return await self.start(json.dumps(message).encode(), headers=headers, **options).finish()
