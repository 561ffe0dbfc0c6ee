"""The scripted servers themselves: whoever tests with them must be able to rely on them."""

from __future__ import annotations

import http.client
import json
import subprocess

import pytest

from fakes.running import Fake, FakeHttp, FakeStdio, header
from fakes.scripts import (
    HANG_UP,
    STREAM,
    Script,
    defer,
    error,
    exit_with,
    gate,
    legacy,
    modern,
    note,
    notify,
    on,
    raw,
    respond,
    result,
    run,
    split,
)


def ask(fake: Fake, *messages: object) -> list[object]:
    """Starts a stdio fake, sends messages, ends the input, and returns everything it wrote, line by line."""
    lines = "".join(json.dumps(message) + "\n" for message in messages)
    done = subprocess.run(fake.command, input=lines.encode(), stdout=subprocess.PIPE, timeout=30, check=False)
    return [json.loads(line) for line in done.stdout.splitlines()]


def request(id: object, method: str, **params: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def post(fake: Fake, message: object, **headers: str) -> tuple[int, bytes, str | None]:
    connection = http.client.HTTPConnection("127.0.0.1", fake.port, timeout=30)
    try:
        connection.request("POST", "/mcp", json.dumps(message), headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.getheader("Content-Type")
    finally:
        connection.close()


class TestStdio:
    def test_the_first_rule_that_fits_answers_and_placeholders_are_filled(self, fake_stdio: FakeStdio) -> None:
        """Ours."""
        fake = fake_stdio(
            Script(
                on("a", result({"which": "first", "again": "$id"}), times=1),
                on("a", result({"which": "second", "text": "called $name"}), params={"name": "x"}),
                on("b", error(-1, "no", data=None), note("b came"), after="a"),
            )
        )
        answers = ask(fake, request("i", "b"), request(7, "a"), request(8, "a", name="x"), request(9, "b"))
        assert answers == [
            {"jsonrpc": "2.0", "id": "i", "error": {"code": -32601, "message": "Method not found"}},
            {"jsonrpc": "2.0", "id": 7, "result": {"which": "first", "again": 7}},
            {"jsonrpc": "2.0", "id": 8, "result": {"which": "second", "text": "called x"}},
            {"jsonrpc": "2.0", "id": 9, "error": {"code": -1, "message": "no", "data": None}},
        ]
        assert fake.methods() == ["b", "a", "a", "b"]
        assert fake.notes() == ["b came"]
        assert [record["kind"] for record in fake.log()][-1] == "eof"

    def test_deferred_answers_keep_their_request(self, fake_stdio: FakeStdio) -> None:
        """Ours."""
        fake = fake_stdio(
            Script(on("slow", defer("late", result({"of": "$id"}))), on("quick", result({}), run("late"), raw("!\n")))
        )
        done = subprocess.run(
            fake.command,
            input=b'{"id":1,"method":"slow"}\n{"id":2,"method":"quick"}\n',
            stdout=subprocess.PIPE,
            timeout=30,
            check=False,
        )
        first, second, third = done.stdout.splitlines()
        assert [json.loads(first)["id"], json.loads(second), third] == [
            2,
            {"jsonrpc": "2.0", "id": 1, "result": {"of": 1}},
            b"!",
        ]

    def test_each_start_is_counted_and_gates_hold(self, fake_stdio: FakeStdio) -> None:
        """Ours."""
        fake = fake_stdio(Script(on("a", exit_with(3), spawn=1), on("a", gate("go"), split(3), result({}), spawn=2)))
        fake.open_gate("go")
        assert ask(fake, request(1, "a")) == []
        assert ask(fake, request(1, "a")) == [{"jsonrpc": "2.0", "id": 1, "result": {}}]
        assert fake.spawns == 2
        assert [record["code"] for record in fake.log("exit")] == [3]

    def test_the_ready_made_servers_speak_their_era(self, fake_stdio: FakeStdio) -> None:
        """Ours."""
        listing = request(2, "tools/list")
        (discovered, tools) = ask(fake_stdio(Script(*modern())), request(1, "server/discover"), listing)
        assert discovered["result"]["supportedVersions"] == ["2026-07-28"]
        assert [tool["name"] for tool in tools["result"]["tools"]] == ["add", "echo"]
        initialize = request(1, "initialize", protocolVersion="2025-06-18")
        answers = ask(
            fake_stdio(Script(*legacy())), listing, initialize, request(3, "notifications/initialized"), listing
        )
        assert [answer["error"]["code"] if "error" in answer else "ok" for answer in answers] == [
            -32601,
            "ok",
            -32601,
            "ok",
        ]
        assert answers[1]["result"]["protocolVersion"] == "2025-06-18"


class TestHttp:
    def test_rules_see_verb_path_and_headers(self, fake_http: FakeHttp) -> None:
        """Ours."""
        fake = fake_http(
            Script(
                on("a", respond(401, headers={"WWW-Authenticate": "Bearer"}), headers={"authorization": None}),
                on("a", result({"yes": True}), headers={"Authorization": "Bearer .*"}),
                on(None, respond(204), http="GET", path="/other"),
            )
        )
        assert post(fake, request(1, "a")) == (401, b"", None)
        status, body, content_type = post(fake, request(1, "a"), Authorization="Bearer x")
        assert (status, json.loads(body)["result"], content_type) == (200, {"yes": True}, "application/json")
        assert post(fake, request(1, "b"))[0] == 404
        assert post(fake, {"jsonrpc": "2.0", "method": "notifications/x"})[0] == 202
        assert header(fake.received("a")[1], "authorization") == "Bearer x"

    def test_streams_and_broken_streams(self, fake_http: FakeHttp) -> None:
        """Ours."""
        fake = fake_http(
            Script(
                on("a", STREAM, notify("notifications/message", level="info"), result({})),
                on("b", result({}, sse=True)),
                on("c", STREAM, raw("data: half"), HANG_UP),
            )
        )
        status, body, content_type = post(fake, request(1, "a"))
        assert (status, content_type) == (200, "text/event-stream")
        assert [json.loads(event[6:]).get("id") for event in body.split(b"\n\n") if event] == [None, 1]
        assert post(fake, request(2, "b"))[1].startswith(b'data: {"jsonrpc"')
        with pytest.raises(http.client.IncompleteRead) as broken:
            post(fake, request(3, "c"))
        assert broken.value.partial == b"data: half"
