"""Two processes behind a round-robin balancer are one server; when one is killed, only what it was working on is lost."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from peers.provision import NGINX, Service
from server.asgi import meta
from server.serving import START_TIMEOUT_S, STOP_TIMEOUT_S, Served, serving

pytestmark = pytest.mark.service

CONFIGURATION = """
daemon off;
worker_processes 1;
pid {directory}/nginx.pid;
error_log stderr;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    upstream servers {{
        server 127.0.0.1:{first} max_fails=0;
        server 127.0.0.1:{second} max_fails=0;
        keepalive 8;
    }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://servers;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $http_host;
            add_header X-Upstream $upstream_addr always;
        }}
    }}
}}
"""


class Balanced:
    """The balancer in front of two servers, and a client of it."""

    def __init__(self, port: int, servers: tuple[Served, Served]) -> None:
        self.port, self.servers = port, servers
        self.upstreams: list[str] = []

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=STOP_TIMEOUT_S)

    def begin(self, connection: http.client.HTTPConnection, method: str, params: Any = None) -> None:
        own = {**(params or {}), "_meta": meta(capabilities={"elicitation": {}})}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": own})
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": method,
        }
        if name := (params or {}).get("uri" if method == "resources/read" else "name"):
            headers["Mcp-Name"] = name
        connection.request("POST", "/mcp", body, headers)

    def send(self, method: str, params: Any = None) -> bytes:
        """One request on a connection of its own; the answer as it came."""
        connection = self.connect()
        try:
            self.begin(connection, method, params)
            response = connection.getresponse()
            body = response.read()
            assert response.status == 200, body
            self.upstreams.append(response.headers["X-Upstream"].rpartition(", ")[2])
            return body
        finally:
            connection.close()

    def result(self, method: str, params: Any = None) -> Any:
        return json.loads(self.send(method, params))["result"]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


@pytest.fixture
def balanced(tmp_path: Path, service: Callable[[Service], str]) -> Iterator[Balanced]:
    program = service(NGINX)
    environment = {**os.environ, "OUTRIDER_STATE_KEY": "a secret that both processes know"}
    with serving(environment=environment) as first, serving(environment=environment) as second:
        port = free_port()
        configuration = tmp_path / "nginx.conf"
        configuration.write_text(
            CONFIGURATION.format(directory=tmp_path, port=port, first=first.port, second=second.port)
        )
        with subprocess.Popen([program, "-p", str(tmp_path), "-c", str(configuration)]) as nginx:
            try:
                deadline = time.monotonic() + START_TIMEOUT_S
                while True:
                    assert nginx.poll() is None, "nginx ended"
                    assert time.monotonic() < deadline, "nginx did not listen in time"
                    with contextlib.suppress(ConnectionRefusedError):
                        socket.create_connection(("127.0.0.1", port), timeout=STOP_TIMEOUT_S).close()
                        break
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        nginx.wait(0.02)
                yield Balanced(port, (first, second))
            finally:
                nginx.terminate()
                nginx.wait(STOP_TIMEOUT_S)


def trip(balanced: Balanced, city: str) -> str:
    """A call that asks twice: three requests."""
    arguments = {"name": "trip", "arguments": {"city": city}}
    answers = {"day": {"day": "Monday"}, "seat": {"seat": "1A"}}
    result = balanced.result("tools/call", arguments)
    while result["resultType"] == "input_required":
        (key,) = result["inputRequests"]
        responses = {key: {"action": "accept", "content": answers[key]}}
        retry = {**arguments, "requestState": result["requestState"], "inputResponses": responses}
        result = balanced.result("tools/call", retry)
    text: str = result["content"][0]["text"]
    return text


def names(balanced: Balanced) -> list[str]:
    """All tools, page by page."""
    found: list[str] = []
    cursor: dict[str, Any] = {}
    while True:
        page = balanced.result("tools/list", cursor)
        found += [tool["name"] for tool in page["tools"]]
        if "nextCursor" not in page:
            return found
        cursor = {"cursor": page["nextCursor"]}


def test_every_request_may_land_on_another_process(balanced: Balanced) -> None:
    """Spec: 2026-07-28 basic/index#statelessness (MUST NOT rely on prior requests): lists, calls and rounds of input alternate."""
    assert balanced.send("server/discover") == balanced.send("server/discover")
    listed = names(balanced)
    assert len(listed) == 26
    assert listed == sorted(set(listed))
    pids = {balanced.result("tools/call", {"name": "process"})["structuredContent"] for _ in range(4)}
    assert pids == {served.process.pid for served in balanced.servers}
    text = trip(balanced, "Rome")
    assert text.startswith("Rome Monday 1A ")
    assert len(set(json.loads(text.partition("1A ")[2]))) == 2
    assert balanced.result("resources/read", {"uri": "memo://greeting"})["contents"][0]["text"] == "Good day."
    assert len(set(balanced.upstreams)) == 2
    assert all(here != there for here, there in zip(balanced.upstreams, balanced.upstreams[1:], strict=False))


def test_killed_process_takes_only_its_own_work_along(balanced: Balanced) -> None:
    """Spec: as above (SHOULD NOT require the same process): one process is killed between two rounds and in the middle of a call."""
    first = balanced.result("tools/call", {"name": "trip", "arguments": {"city": "Oslo"}})
    working = [balanced.connect() for _ in range(4)]
    for connection in working:
        balanced.begin(connection, "tools/call", {"name": "wait", "arguments": {"seconds": 5}})
    # Both processes have begun: each has answered something that was sent after.
    for _ in range(2):
        balanced.result("tools/call", {"name": "process"})
    balanced.servers[0].process.kill()
    balanced.servers[0].process.wait(STOP_TIMEOUT_S)
    retry = {
        "name": "trip",
        "arguments": {"city": "Oslo"},
        "requestState": first["requestState"],
        "inputResponses": {"day": {"action": "accept", "content": {"day": "Friday"}}},
    }
    assert list(balanced.result("tools/call", retry)["inputRequests"]) == ["seat"]
    assert len(names(balanced)) == 26
    for city in ("Rome", "Paris", "Lima"):
        assert trip(balanced, city).startswith(f"{city} Monday 1A ")
    statuses = []
    for connection in working:
        response = connection.getresponse()
        response.read()
        statuses.append(response.status)
        connection.close()
    assert statuses.count(200) == 2
    assert statuses.count(502) == 2


def test_stream_passes_the_balancer_event_by_event(balanced: Balanced) -> None:
    """Spec: 2026-07-28 streamable-http#receiving-messages (X-Accel-Buffering): the balancer does not hold events back."""
    connection = balanced.connect()
    balanced.begin(connection, "subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    response = connection.getresponse()
    assert b"acknowledged" in response.readline()
    response.readline()
    for _ in range(2):
        balanced.result("tools/call", {"name": "change"})
    assert b"tools/list_changed" in response.readline()
    connection.close()
