"""The sample servers, one program: `python servers.py KIND`. Standard library only, so that each starts in a blink.

They stand for what is out there, not for how a server is written: see `outrider.Server` for that. HTTP kinds print their URL on stdout.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODERN, LEGACY = "2026-07-28", "2025-06-18"
_STRING = {"type": "string"}


def _tool(name: str, description: str, **parameters: str) -> dict[str, Any]:
    properties = {key: {**_STRING, "description": text} for key, text in parameters.items()}
    return {
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": properties, "required": [*properties]},
    }


TOOLS = {
    "modern": [
        _tool("forecast", "The weather of the next days.", city="Where"),
        _tool("tides", "High and low water.", harbour="Which harbour"),
    ],
    "modern-http": [_tool("translate", "Translate a text.", text="What", language="Into which language")],
    "legacy": [
        _tool("read_note", "Read one of your notes.", title="Its title"),
        _tool("add_note", "Write a note.", title="Its title", text="What"),
    ],
    "legacy-http": [_tool("search_books", "Search the library's catalogue.", query="Words of title or author")],
    "exits": [_tool("play", "Play a piece of music.", title="Which one")],
    "silent": [_tool("lamp", "Switch a lamp.", room="Where", state="on or off")],
}
CAPABILITIES: dict[str, Any] = {"tools": {}}


def _error(request: dict[str, Any], code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request.get("id"), "error": {"code": code, "message": message}}


def _result(request: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request.get("id"), "result": result}


def _call(request: dict[str, Any]) -> dict[str, Any]:
    params = request.get("params", {})
    said = ", ".join(f"{key}={value}" for key, value in params.get("arguments", {}).items())
    return {"content": [{"type": "text", "text": f"{params.get('name')} was called with {said or 'nothing'}"}]}


def answer_modern(kind: str, request: dict[str, Any]) -> dict[str, Any]:
    """A modern server's answer."""
    meta = {"io.modelcontextprotocol/serverInfo": {"name": f"sample-{kind}", "version": "1.0"}}
    common = {"resultType": "complete", "_meta": meta}
    cache = {"ttlMs": 3_600_000, "cacheScope": "public"}
    match request["method"]:
        case "server/discover":
            description = {
                "supportedVersions": [MODERN],
                "capabilities": CAPABILITIES,
                "instructions": "Ask for one place at a time.",
            }
            return _result(request, {**common, **description, **cache})
        case "tools/list":
            return _result(request, {**common, "tools": TOOLS[kind], **cache})
        case "tools/call":
            return _result(request, {**common, **_call(request)})
    return _error(request, -32601, "Method not found")


def answer_legacy(kind: str, request: dict[str, Any]) -> dict[str, Any]:
    """A legacy server's answer."""
    match request["method"]:
        case "initialize":
            info = {"name": f"sample-{kind}", "version": "0.9"}
            return _result(request, {"protocolVersion": LEGACY, "capabilities": CAPABILITIES, "serverInfo": info})
        case "ping":
            return _result(request, {})
        case "tools/list":
            return _result(request, {"tools": TOOLS[kind]})
        case "tools/call":
            return _result(request, _call(request))
    return _error(request, -32602, "Invalid request parameters")


def serve_stdio(kind: str) -> None:
    """Speak on the standard streams until the input ends."""
    if kind == "broken":
        sys.stderr.write("Traceback (most recent call last):\nModuleNotFoundError: No module named 'weather_db'\n")
        sys.exit(1)
    if kind == "legacy":
        print("Notes server ready 🚀", flush=True)  # A banner on stdout: wrong, and common.
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        if request["method"] == "server/discover" and kind == "exits":
            sys.stderr.write("error: expected initialize, got server/discover\n")
            sys.exit(1)
        if request["method"] == "server/discover" and kind == "silent":
            continue
        answer = answer_modern if kind == "modern" else answer_legacy
        print(json.dumps(answer(kind, request)), flush=True)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    kind = ""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.kind == "sign-in":
            self._send(401, b"", {"WWW-Authenticate": 'Bearer realm="sample", scope="read"'})
        elif "id" not in request:
            self._send(202, b"")
        elif self.kind == "modern-http":
            self._send(200, json.dumps(answer_modern(self.kind, request)).encode())
        elif request["method"] == "server/discover":
            self._send(
                400,
                json.dumps(
                    {**_error(request, -32600, "Bad Request: Missing session ID"), "id": "server-error"}
                ).encode(),
            )
        else:
            self._send(200, json.dumps(answer_legacy(self.kind, request)).encode())

    def do_GET(self) -> None:
        self._send(405, b"")

    do_DELETE = do_GET

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: the sample's stderr is not for its access log."""


def serve_http(kind: str) -> None:
    """Serve on a free port of this machine until the input ends, whoever started it included."""
    import threading

    server = ThreadingHTTPServer(("127.0.0.1", 0), type("_KindHandler", (_Handler,), {"kind": kind}))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}/mcp", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    chosen = sys.argv[1]
    if chosen in ("modern-http", "legacy-http", "sign-in"):
        serve_http(chosen)
    else:
        serve_stdio(chosen)
