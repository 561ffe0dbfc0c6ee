"""HTTP itself: who is let in, statuses, media types, bodies, paths, browsers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from outrider.server import HttpOptions, Principal, Server, Unauthorized
from server.asgi import DEADLINE_S, Caller, meta


def make(**options: Any) -> Any:
    server = Server("s", version="1")

    @server.tool
    async def echo(text: str) -> str:
        return text

    http = options.pop("http", {})
    return server.asgi(options=HttpOptions(**http), **options)


DISCOVER = {"mcp-protocol-version": "2026-07-28", "mcp-method": "server/discover"}
BODY = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta()}}).encode()


@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH", "HEAD"])
async def test_other_methods_are_not_allowed(method: str, legacy: bool) -> None:
    """Spec: 2026-07-28 streamable-http#earlier-streamable-http-revisions (SHOULD 405, also for GET and DELETE without a session)"""
    response = await Caller(make(legacy=legacy)).start(b"", method=method).finish()
    assert response.status == 405
    assert "POST" in response.headers["allow"]


@pytest.mark.parametrize(
    ("content_type", "accepted"),
    [
        ("application/json", True),
        ("application/json; charset=utf-8", True),
        ("Application/JSON", True),
        ("text/plain", False),
        ("application/x-www-form-urlencoded", False),
        ("application/json-seq", False),
        (None, False),
    ],
)
async def test_body_must_be_declared_as_json(content_type: str | None, accepted: bool) -> None:
    """Ours: 415; a form post from a web page needs no preflight, so it must not get in."""
    response = await Caller(make()).start(BODY, headers={**DISCOVER, "content-type": content_type}).finish()
    assert response.status == (200 if accepted else 415)


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("application/json, text/event-stream", 200),
        ("text/event-stream, application/json", 200),
        ("TEXT/EVENT-STREAM;q=0.5, Application/Json;q=0.9", 200),
        ("*/*", 200),
        ("application/*", 200),
        ("application/json", 200),
        (None, 200),
        ("text/html", 406),
        ("text/event-stream", 406),
        ("application/json;q=0, text/event-stream;q=0.0", 406),
        ("", 406),
    ],
)
async def test_accept_is_read_as_http_has_it(accept: str | None, status: int) -> None:
    """Case 16: case, order, q-values and wildcards; 406 only for who does not take JSON, which most answers are."""
    response = await Caller(make()).start(BODY, headers={**DISCOVER, "accept": accept}).finish()
    assert response.status == status


async def test_listen_needs_an_event_stream() -> None:
    """Ours: a stream cannot be sent as JSON."""
    status, error = await Caller(make()).error(
        "subscriptions/listen", {"notifications": {}}, headers={"accept": "application/json"}
    )
    assert (status, "event-stream" in error["message"]) == (406, True)


@pytest.mark.parametrize(
    ("address", "host", "allowed_hosts", "allowed"),
    [
        ("127.0.0.1", "localhost:8000", (), True),
        ("127.0.0.1", "LOCALHOST", (), True),
        ("127.0.0.1", "[::1]:8000", (), True),
        ("::1", "127.0.0.1", (), True),
        ("127.0.0.1", "evil.example.com", (), False),
        ("127.0.0.1", "localhost.evil.example.com", (), False),
        ("127.0.0.1", "127.0.0.1.evil.example.com", (), False),
        ("127.0.0.1", None, (), False),
        ("10.0.0.5", "anything.example.com", (), True),
        ("10.0.0.5", "mcp.example.com:443", ("mcp.example.com",), True),
        ("10.0.0.5", "other.example.com", ("mcp.example.com",), False),
        ("127.0.0.1", "mcp.example.com", ("mcp.example.com",), True),
        ("127.0.0.1", "localhost", ("mcp.example.com",), False),
    ],
)
async def test_host_header_guards_local_servers(
    address: str, host: str | None, allowed_hosts: tuple[str, ...], allowed: bool
) -> None:
    """Ours: DNS rebinding reaches a loopback address under a foreign name; the default refuses it. Case 89."""
    caller = Caller(make(http={"allowed_hosts": allowed_hosts}), address=address)
    response = await caller.start(BODY, headers={**DISCOVER, "host": host}).finish()
    assert response.status == (200 if allowed else 421)


@pytest.mark.parametrize(
    ("address", "origin", "options", "allowed"),
    [
        ("127.0.0.1", "http://localhost:3000", {}, True),
        ("127.0.0.1", "http://127.0.0.1", {}, True),
        ("127.0.0.1", "http://evil.example.com", {}, False),
        ("127.0.0.1", "http://localhost.evil.example.com", {}, False),
        ("127.0.0.1", "null", {}, False),
        ("127.0.0.1", "file://localhost", {}, False),
        ("127.0.0.1", "", {}, False),
        ("127.0.0.1", "http://localhost", {"allowed_origins": ("https://app.example.com",)}, False),
        ("10.0.0.5", "http://localhost", {}, False),
        ("10.0.0.5", "https://app.example.com", {"allowed_origins": ("https://app.example.com",)}, True),
        ("10.0.0.5", "https://app.example.com.evil", {"allowed_origins": ("https://app.example.com",)}, False),
        ("10.0.0.5", "https://any.example", {"allowed_origins": ("*",)}, True),
    ],
)
@pytest.mark.parametrize("method", ["POST", "OPTIONS", "GET"])
async def test_invalid_origin_is_forbidden(
    address: str, origin: str, options: dict[str, Any], allowed: bool, method: str
) -> None:
    """Spec: 2026-07-28 streamable-http#security--endpoint (MUST 403). Case 89."""
    caller = Caller(make(http=options), address=address)
    response = await caller.start(BODY, method=method, headers={**DISCOVER, "origin": origin}).finish()
    assert (response.status == 403) == (not allowed)
    assert response.headers.get("access-control-allow-origin") == (origin if allowed else None)
    if not allowed:
        assert "id" not in response.json


async def test_preflight_allows_every_header_that_a_client_may_need() -> None:
    """Case 90: a modern call from a browser must not fail where a legacy one passes."""
    server = Server("s", version="1")

    server.add_tool_definition(
        {
            "name": "g",
            "inputSchema": {"type": "object", "properties": {"r": {"type": "string", "x-mcp-header": "Region"}}},
        },
        lambda arguments, ctx: "",
    )
    headers = {"origin": "http://localhost:3000", "access-control-request-method": "POST"}
    response = await Caller(server.asgi()).start(b"", method="OPTIONS", headers=headers).finish()
    assert response.status == 204
    allowed = {name.strip() for name in response.headers["access-control-allow-headers"].split(",")}
    assert {
        "content-type",
        "mcp-protocol-version",
        "mcp-method",
        "mcp-name",
        "mcp-param-region",
        "authorization",
    } <= allowed
    assert "POST" in response.headers["access-control-allow-methods"]
    assert response.headers["vary"] == "origin"


@pytest.mark.parametrize("status", [401, 403])
async def test_caller_who_is_refused_gets_the_challenge(status: int) -> None:
    """Spec: 2026-07-28 basic/authorization (401 with WWW-Authenticate)"""

    async def authenticate(scope: Any) -> Principal:
        raise Unauthorized('Bearer resource_metadata="https://x/y"', status=status)

    caller = Caller(make(authenticate=authenticate, http={"max_body_bytes": 1}))
    # The body is not even read, or this one would be too large.
    for method in ("POST", "GET"):
        response = await caller.start(BODY, method=method, headers=DISCOVER).finish()
        assert response.status == status
        assert response.headers["www-authenticate"] == 'Bearer resource_metadata="https://x/y"'


@pytest.mark.parametrize("chunks", [1, 3, 50])
async def test_body_is_limited_in_size(chunks: int) -> None:
    """Ours: 413 one byte above the limit, in one piece or many, declared or not."""
    limit = len(BODY) + 10
    caller = Caller(make(http={"max_body_bytes": limit}))
    for size, status in ((limit, 200), (limit + 1, 413)):
        body = BODY + b" " * (size - len(BODY))
        step = -(-size // chunks)
        pieces = [body[start : start + step] for start in range(0, size, step)]
        assert (await caller.start(list(pieces), headers=DISCOVER).finish()).status == status
        declared = {**DISCOVER, "content-length": str(size)}
        assert (await caller.start(list(pieces), headers=declared).finish()).status == status


@pytest.mark.parametrize("length", ["-1", "x", "1" * 5000, "²"])
async def test_nonsense_as_content_length_is_not_believed(length: str) -> None:
    """Ours: what arrives counts."""
    response = await Caller(make()).start(BODY, headers={**DISCOVER, "content-length": length}).finish()
    assert response.status in (200, 413)


async def test_body_that_does_not_come_is_given_up() -> None:
    """Ours: 408; a client that sends half a request holds nothing for ever."""
    app = make(http={"body_timeout_s": 0.01})
    sent: list[Any] = []
    chunks = [{"type": "http.request", "body": b"{", "more_body": True}]

    async def receive() -> Any:
        if not chunks:
            await asyncio.Event().wait()
        return chunks.pop()

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": headers, "server": ("127.0.0.1", 1)}
    async with asyncio.timeout(DEADLINE_S):
        await app(scope, receive, send)
    assert sent[0]["status"] == 408


async def test_client_that_leaves_while_sending_gets_nothing() -> None:
    """Ours: no answer is written to a connection that has gone."""
    app = make()
    messages = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    sent: list[Any] = []

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": headers, "server": ("127.0.0.1", 1)}
    await app(scope, receive, send)
    assert sent == []


@pytest.mark.parametrize(
    ("path", "root_path", "status"),
    [
        ("/mcp", "", 200),
        ("/mcp/", "", 200),
        ("/api/mcp", "/api", 200),
        ("/", "", 404),
        ("/mcp/x", "", 404),
        ("/mcpx", "", 404),
    ],
)
async def test_endpoint_is_found_wherever_it_is_mounted(path: str, root_path: str, status: int) -> None:
    """Ours: mountable at any path, with or without a final slash. Case 17: never a redirect."""
    response = await Caller(make()).start(BODY, path=path, root_path=root_path, headers=DISCOVER).finish()
    assert response.status == status


async def test_endpoint_can_be_the_root() -> None:
    """Ours: `asgi("/")` for those who mount it exactly where it is to be."""
    response = await Caller(make(path="/")).start(BODY, path="/", headers=DISCOVER).finish()
    assert response.status == 200


async def test_health_is_apart_from_the_endpoint() -> None:
    """Ours: a balancer asks by GET, under whatever name it likes, and learns nothing else."""
    caller = Caller(make())
    response = await caller.start(b"", method="GET", path="/health", headers={"host": "balancer"}).finish()
    assert (response.status, response.json) == (200, {"status": "ok"})
    assert (await caller.start(b"", method="POST", path="/health").finish()).status == 404
    without = Caller(make(http={"health_path": None}))
    assert (await without.start(b"", method="GET", path="/health").finish()).status == 404


@pytest.mark.parametrize("method", ["notifications/cancelled", "notifications/other"])
async def test_notification_is_accepted_without_a_body(method: str) -> None:
    """Spec: 2026-07-28 streamable-http#sending-messages (MUST 202)"""
    for legacy in (True, False):
        response = await Caller(make(legacy=legacy)).send({"jsonrpc": "2.0", "method": method})
        assert (response.status, response.body) == (202, b"")


async def test_response_from_a_client_is_refused() -> None:
    """Spec: 2026-07-28 streamable-http#sending-messages (clients MUST NOT send responses; MUST be an error status)"""
    response = await Caller(make()).send({"jsonrpc": "2.0", "id": 1, "result": {}})
    assert (response.status, response.json["error"]["code"]) == (400, -32600)


async def test_modern_answers_have_no_session_and_ignore_one() -> None:
    """Spec: 2026-07-28 streamable-http#earlier-streamable-http-revisions (SHOULD ignore, never mint)"""
    headers = {"mcp-session-id": "x", "last-event-id": "1-1"}
    response = await Caller(make(legacy=False)).call("server/discover", headers=headers)
    assert response.status == 200
    assert "mcp-session-id" not in response.headers
    response = await Caller(make()).call("server/discover", headers=headers)
    assert response.status == 200


@pytest.mark.parametrize(
    ("value", "header", "fits"),
    [
        ("eu", "eu", True),
        ("eu", None, False),
        ("eu", "us", False),
        (None, None, True),
        (None, "eu", False),
        ("天", "=?base64?5aSp?=", True),
        ("eu", "=?base64?ZXU?=", False),
        ("a\r\nx: y", "=?base64?YQ0KeDogeQ==?=", True),
    ],
)
async def test_mirrored_parameter_must_agree_with_the_body(value: str | None, header: str | None, fits: bool) -> None:
    """Spec: 2026-07-28 streamable-http#server-behavior-for-custom-headers (MUST 400, -32020)"""
    server = Server("s", version="1")
    server.add_tool_definition(
        {
            "name": "t",
            "inputSchema": {
                "type": "object",
                "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
            },
        },
        lambda arguments, ctx: "ok",
        validate=False,
    )
    params = {"name": "t", "arguments": {"region": value}}
    response = await Caller(server.asgi()).call(
        "tools/call", params, headers={"mcp-param-region": header, "mcp-param-unknown": "ignored"}
    )
    if fits:
        assert response.status == 200
    else:
        assert (response.status, response.json["error"]["code"]) == (400, -32020)
        assert not value or value not in response.json["error"]["message"]


async def test_lifespan_is_answered() -> None:
    """Ours: servers that announce start and stop are satisfied; the stop ends the streams."""
    app = make()
    messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    sent: list[str] = []

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await app({"type": "lifespan"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_websocket_is_refused() -> None:
    """Ours: there is no such transport."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await make()({"type": "websocket"}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1003}]
