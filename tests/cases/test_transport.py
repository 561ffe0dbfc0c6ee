"""Getting messages through: noise, sizes, encodings, ids, event streams, sessions, headers, addresses."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import outrider
from cases.expectations import OPTIONS, assert_found, look_at, options
from fakes.running import FakeHttp, FakeStdio, header
from fakes.scripts import (
    HANG,
    HANG_UP,
    NOTHING,
    RESET,
    STREAM,
    Action,
    Rule,
    Script,
    complete,
    discover_result,
    error,
    legacy,
    modern,
    notify,
    on,
    raw,
    raw_bytes,
    repeat,
    respond,
    result,
    send,
    split,
    tool,
)
from outrider import PeerError, TimedOut, TransportError

DISCOVERED = json.dumps({"jsonrpc": "2.0", "id": "$id", "result": discover_result()}).replace('"$id"', "$id")


def reply(value: Any) -> str:
    """A reply to the request being answered, as text."""
    return json.dumps({"jsonrpc": "2.0", "id": "$id", "result": value}, ensure_ascii=False).replace('"$id"', "$id")


class TestIds:
    WRONG = [9999, 0, None, 1.5, True, [1], {"id": 1}, "9999", "", "１"]  # noqa: RUF012

    async def test_our_number_as_a_text_is_accepted(self, fake_stdio: FakeStdio, fake_http: FakeHttp) -> None:
        """Case 5: servers that keep ids as text exist."""
        as_text = raw(DISCOVERED.replace("$id", '"$id"') + "\n")
        assert_found(await look_at(fake_stdio(Script(on("server/discover", as_text), *modern())).command), "modern")
        body = respond(text=DISCOVERED.replace("$id", '"$id"'), headers={"Content-Type": "application/json"})
        assert_found(await look_at(fake_http(Script(on("server/discover", body), *modern())).url), "modern")

    async def test_a_reply_with_another_id_is_no_answer(self, fake_stdio: FakeStdio) -> None:
        """Case 5: over a pipe it is set aside, and the request fails at its deadline, saying so."""
        wrong = {f"tool-{n}": id for n, id in enumerate(self.WRONG)}
        rules = [on("tools/call", result({"content": []}, id=id), params={"name": name}) for name, id in wrong.items()]
        fake = fake_stdio(Script(*rules, *modern()))
        async with outrider.connect(fake.command, options=OPTIONS) as client:
            calls = (client.call_tool(name, timeout_s=2.0) for name in wrong)
            for outcome in await asyncio.gather(*calls, return_exceptions=True):
                assert isinstance(outcome, TimedOut)
                assert "answered with unknown id" in str(outcome)
            assert len(await client.list_tools()) == 2

    async def test_the_probe_too(self, fake_stdio: FakeStdio) -> None:
        """Case 5: replies of no use are no era evidence; the report says what came."""
        fake = fake_stdio(Script(on(None, result(discover_result(), id=9999))))
        report = await look_at(fake.command, probe_timeout_s=0.5, start_timeout_s=4.0)
        assert report.failure is not None
        assert "answered with unknown id" in report.failure.message

    async def test_a_reply_without_an_id(self, fake_stdio: FakeStdio) -> None:
        """Case 5."""
        fake = fake_stdio(Script(on("tools/call", send({"jsonrpc": "2.0", "result": {"content": []}})), *modern()))
        async with outrider.connect(fake.command, options=OPTIONS) as client:
            with pytest.raises(TimedOut, match="answered with unknown id null"):
                await client.call_tool("add", timeout_s=2.0)

    @pytest.mark.parametrize("reply", [{"id": None}, {}], ids=["null", "absent"])
    async def test_an_error_without_an_id_answers_the_only_request_there_is(
        self, fake_stdio: FakeStdio, reply: dict[str, None]
    ) -> None:
        """Case 4, over a pipe: it is how a server says that it could not read the id; nobody waits for a window to pass."""
        refusal = send({"jsonrpc": "2.0", **reply, "error": {"code": -32600, "message": "Invalid Request"}})
        fake = fake_stdio(Script(on("server/discover", refusal), *legacy()))
        report = await look_at(fake.command, probe_timeout_s=60.0)
        assert_found(report, "legacy")
        assert "error -32600" in report.attempts[0].observed

    async def test_the_first_of_two_replies_counts(self, fake_stdio: FakeStdio) -> None:
        """Case 5."""
        first, second = ({"content": [{"type": "text", "text": text}]} for text in ("first", "second"))
        fake = fake_stdio(Script(on("tools/call", result(first), result(second)), *modern()))
        async with outrider.connect(fake.command, options=OPTIONS) as client:
            assert [(await client.call_tool("add")).text for _ in range(3)] == ["first"] * 3

    @pytest.mark.parametrize("wrong", [9999, None, "x", 1.5], ids=str)
    async def test_over_http_it_fails_at_once(self, fake_http: FakeHttp, wrong: object) -> None:
        """Case 5: one exchange carries one reply, so there is nothing left to wait for."""
        fake = fake_http(Script(on("tools/call", result({"content": []}, id=wrong)), *modern()))
        async with outrider.connect(fake.url, options=OPTIONS) as client:
            with pytest.raises(outrider.RemoteProtocolError, match="unknown id"):
                await client.call_tool("add")


class TestBrokenErrors:
    BROKEN = (
        {"code": "BAD_REQUEST", "message": "m"},
        {"code": -32000, "message": {"text": "m"}},
        {"message": "m"},
        "no",
        [],
    )

    @pytest.mark.parametrize("broken", BROKEN, ids=json.dumps)
    @pytest.mark.parametrize("transport", ["stdio", "http", "sse"])
    async def test_an_error_in_a_form_of_its_own_fails_its_request_at_once(
        self, fake_stdio: FakeStdio, fake_http: FakeHttp, transport: str, broken: Any
    ) -> None:
        """Case 6: foreign error envelopes with our id; nobody waits for the deadline, and the server stays."""
        answer = {"error": broken} if transport != "sse" else {"error": broken, "sse": True}
        script = Script(on("tools/call", answer, *([HANG] if transport == "sse" else [])), *modern())
        target = fake_stdio(script).command if transport == "stdio" else fake_http(script).url
        async with outrider.connect(target, options=OPTIONS) as client:
            with pytest.raises(outrider.OutriderError) as failure:
                await client.call_tool("add")
            assert not isinstance(failure.value, TimedOut)
            assert len(await client.list_tools()) == 2

    @pytest.mark.parametrize("broken", BROKEN, ids=json.dumps)
    async def test_such_an_answer_to_the_probe_leads_to_the_handshake(self, fake_stdio: FakeStdio, broken: Any) -> None:
        """Case 1, case 6: at once, on the same process."""
        fake = fake_stdio(Script(on("server/discover", {"error": broken}), *legacy()))
        assert_found(await look_at(fake.command, probe_timeout_s=15.0), "legacy")
        assert fake.spawns == 1

    async def test_a_result_beside_a_null_error(self, fake_stdio: FakeStdio) -> None:
        """Case 31: as servers of earlier JSON-RPC revisions send it."""
        rules = [Rule(method=rule.method, do=[{**action, "error": None} for action in rule.do]) for rule in modern()]
        assert_found(await look_at(fake_stdio(Script(*rules)).command), "modern")


NOISE = {
    "banner": raw("Server started on stdio 🚀\n"),
    "empty": raw("\n\r\n   \n"),
    "npm": raw("> pkg@1.0.0 start\n> node .\n"),
    "colour": raw("\x1b[32minfo\x1b[0m ready\n"),
    "text": raw('"ready"\n'),
    "array": raw("[]\n"),
    "number": raw("42\nnull\ntrue\n"),
    "object": raw('{"level":"info","msg":"ready"}\n'),
    "not-utf8": raw_bytes(b"\xb0\xa1\xff\n"),
    "nul": raw_bytes(b"\0\0\0\n"),
    "batch": raw('[{"jsonrpc":"2.0","id":1,"result":{}}]\n'),
    "wrong-version": raw('{"jsonrpc":"1.0","id":1,"result":{}}\n'),
    "many-lines": repeat("debug: still here\n", 5_000),
}


class TestNoise:
    @pytest.mark.parametrize("kind", NOISE)
    async def test_lines_that_are_no_messages_are_skipped(self, fake_stdio: FakeStdio, kind: str) -> None:
        """Case 20: noise is neither an answer nor era evidence, wherever it stands."""
        noise = NOISE[kind]
        rules = [Rule(method=rule.method, do=[noise, *rule.do, noise]) for rule in modern()]
        fake = fake_stdio(Script(*rules, start=[noise]))
        report = await look_at(fake.command)
        assert_found(report, "modern")
        assert fake.methods() == ["server/discover", "tools/list"]
        if kind != "empty":
            assert any("stdout" in warning for warning in report.warnings)
        assert len(str(report.warnings)) < 5_000

    async def test_a_message_glued_to_noise_is_found(self, fake_stdio: FakeStdio) -> None:
        """Case 20: a print without a newline stands in front of it."""
        rules = [Rule(method=rule.method, do=[raw("loading... {50%} "), *rule.do]) for rule in legacy()]
        assert_found(await look_at(fake_stdio(Script(*rules)).command), "legacy")

    @pytest.mark.parametrize(
        ("before", "behind"),
        [("\x1b[32m", "\x1b[0m\n"), ("", " done\n"), ('{"jsonrpc":"2.0","method":"notifications/x"}', "\n"), ("", "")],
        ids=["colour", "behind", "glued", "no-line-end"],
    )
    async def test_whatever_stands_around_a_message(self, fake_stdio: FakeStdio, before: str, behind: str) -> None:
        """Case 20: colour codes end behind it; another message stands on its line; its line ends with the next one."""
        fake = fake_stdio(Script(on("server/discover", raw(before + DISCOVERED + behind)), *modern()))
        assert_found(await look_at(fake.command, probe_timeout_s=20.0 if behind else 0.3), "modern")

    async def test_a_message_that_a_log_entry_quotes_was_not_said(self, fake_stdio: FakeStdio) -> None:
        """Case 20: a line that is JSON is not searched."""
        quote = send({"level": "debug", "sent": {"jsonrpc": "2.0", "id": 1, "result": {}}})
        fake = fake_stdio(Script(on("server/discover", quote, result(discover_result())), *modern()))
        assert_found(await look_at(fake.command), "modern")

    async def test_a_program_that_sends_back_what_it_is_sent(self) -> None:
        """Case 146: our own requests are not the server's, and are not answered; the report says what it is."""
        report = await look_at(["cat"], probe_timeout_s=0.2, start_timeout_s=1.5)
        assert report.failure is not None
        assert report.failure.kind == "timeout"
        assert "it sends back what it is sent" in report.failure.message
        assert report.failure.hint == "is this command an MCP server?"

    @pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18"])
    async def test_batches_are_read_in_the_one_revision_that_has_them(
        self, fake_stdio: FakeStdio, version: str
    ) -> None:
        """Spec 2025-03-26 basic#batching (MUST support receiving)."""
        note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}
        batch = send([note, {"jsonrpc": "2.0", "id": "$id", "result": {"tools": [tool("in_batch")]}}])
        fake = fake_stdio(Script(on("tools/list", batch), *legacy(version=version)))
        report = await look_at(fake.command, list_timeout_s=5.0 if version == "2025-03-26" else 0.3)
        assert [t.name for t in report.tools or ()] == (["in_batch"] if version == "2025-03-26" else [])

    async def test_batches_over_http(self, fake_http: FakeHttp) -> None:
        """Spec 2025-03-26 basic/transports#sending-messages-to-the-server."""
        batch = respond(
            200, text='[{"jsonrpc":"2.0","id":3,"result":{"tools":[]}}]', headers={"Content-Type": "application/json"}
        )
        fake = fake_http(Script(on("tools/list", batch), *legacy(version="2025-03-26")))
        report = await look_at(fake.url)
        assert report.failure is None
        assert not any("tools/list" in warning for warning in report.warnings)

    @pytest.mark.parametrize("era", ["modern", "legacy"])
    async def test_messages_before_the_answer_are_not_the_answer(self, fake_stdio: FakeStdio, era: str) -> None:
        """Case 146: dispatch by id; what a server says or asks of its own accord is not what was waited for."""
        chatter = [
            notify("notifications/message", level="info", data="starting"),
            notify("notifications/progress", progressToken=1, progress=0.5),
            notify("notifications/of-a-later-revision"),
            send({"jsonrpc": "2.0", "id": 1, "method": "a/question", "params": {}}),
        ]
        rules = [
            Rule(method=rule.method, do=[*chatter, *rule.do], after=rule.after)
            for rule in (modern() if era == "modern" else legacy())
        ]
        fake = fake_stdio(Script(*rules))
        report = await look_at(fake.command)
        assert_found(report, era)
        answers = [message for message in fake.messages() if "method" not in message]
        if era == "modern":
            assert answers == []
            assert any("a/question" in warning for warning in report.warnings)
        else:
            assert {answer["error"]["code"] for answer in answers} == {-32601}


class TestSizes:
    @pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 1 << 20, 10 << 20])
    async def test_long_lines_are_read_whole(self, fake_stdio: FakeStdio, size: int) -> None:
        """Case 22: no small built-in limit."""
        big = result(complete(tools=[tool("add", description="x" * size), tool("echo")]))
        report = await look_at(fake_stdio(Script(on("tools/list", big), *modern())).command)
        assert_found(report, "modern")
        assert report.tools is not None
        assert len(report.tools.items[0].description) == size

    async def test_long_lines_in_many_writes(self, fake_stdio: FakeStdio) -> None:
        """Case 22: the same, byte by byte, with a character cut in two."""
        big = result(complete(tools=[tool("add", description="é" * 32_769), tool("echo")]))
        report = await look_at(fake_stdio(Script(on("tools/list", split(1), big), *modern())).command)
        assert_found(report, "modern")
        assert report.tools is not None
        assert report.tools.items[0].description == "é" * 32_769

    @pytest.mark.parametrize("as_events", [False, True])
    async def test_large_answers_over_http(self, fake_http: FakeHttp, as_events: bool) -> None:
        """Case 22: the same over HTTP, as JSON and as an event stream."""
        big = result(complete(tools=[tool("add", description="é" * (5 << 20)), tool("echo")]), sse=as_events)
        assert_found(await look_at(fake_http(Script(on("tools/list", big), *modern())).url), "modern")

    async def test_one_message_above_the_limit_fails_that_request(self, fake_stdio: FakeStdio) -> None:
        """Case 22: the reader finds back into step at the next newline."""
        limit = 100_000
        big = result(complete(tools=[tool("add", description="x" * limit)]))
        fake = fake_stdio(Script(on("tools/list", big, times=1), *modern()))
        async with outrider.connect(fake.command, options=options(max_message_bytes=limit)) as client:
            with pytest.raises(outrider.OutriderError):
                await client.list_tools(timeout_s=0.5)
            assert len(await client.list_tools()) == 2

    @pytest.mark.parametrize("as_events", [False, True])
    async def test_one_message_above_the_limit_over_http(self, fake_http: FakeHttp, as_events: bool) -> None:
        """Case 22, case 104: the limit counts after decompression, and costs one request."""
        limit = 100_000
        big = result(complete(tools=[tool("add", description="x" * limit)]), sse=as_events)
        fake = fake_http(Script(on("tools/list", big, times=1), *modern()))
        async with outrider.connect(fake.url, options=options(max_message_bytes=limit)) as client:
            with pytest.raises(outrider.RemoteProtocolError, match=str(limit)):
                await client.list_tools()
            assert len(await client.list_tools()) == 2


class TestEncoding:
    async def test_bytes_that_are_not_utf8_cost_one_message(self, fake_stdio: FakeStdio) -> None:
        """Case 105: a description in CP949; the reader lives on."""
        bad = raw_bytes(b'{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"\xb0\xa1"}]}}\n')
        fake = fake_stdio(Script(on("tools/list", bad, times=1), *modern()))
        async with outrider.connect(fake.command, options=OPTIONS) as client:
            with pytest.raises(outrider.OutriderError):
                await client.list_tools(timeout_s=0.5)
            assert len(await client.list_tools()) == 2

    async def test_bytes_that_are_not_utf8_over_http(self, fake_http: FakeHttp) -> None:
        """Case 105."""
        bad = respond(
            base64="eyJqc29ucnBjIjoiMi4wIiwiaWQiOjIsInJlc3VsdCI6eyJ0b29scyI6W3sibmFtZSI6IrChIn1dfX0=",
            headers={"Content-Type": "application/json"},
        )
        fake = fake_http(Script(on("tools/list", bad, times=1), *modern()))
        async with outrider.connect(fake.url, options=OPTIONS) as client:
            with pytest.raises(outrider.OutriderError):
                await client.list_tools()
            assert len(await client.list_tools()) == 2

    async def test_a_lone_surrogate_costs_one_character(self, fake_stdio: FakeStdio) -> None:
        r"""Case 105: ``"\ud800"`` is JSON that no text can hold; it reads as the replacement character."""
        tools = complete(tools=[tool("add"), tool("odd", description="SURROGATE"), tool("echo")])
        line = reply(tools).replace("SURROGATE", "\\ud800")
        report = await look_at(fake_stdio(Script(on("tools/list", raw(line + "\n")), *modern())).command)
        assert_found(report, "modern", "add", "odd", "echo")

    async def test_a_byte_order_mark_before_the_first_message(self, fake_stdio: FakeStdio, fake_http: FakeHttp) -> None:
        """Case 105."""
        assert_found(await look_at(fake_stdio(Script(*modern(), start=[raw_bytes(b"\xef\xbb\xbf")])).command), "modern")
        body = respond(text="\ufeff" + DISCOVERED, headers={"Content-Type": "application/json"})
        assert_found(await look_at(fake_http(Script(on("server/discover", body), *modern())).url), "modern")

    async def test_windows_line_ends(self, fake_stdio: FakeStdio) -> None:
        """Case 20: CRLF."""
        assert_found(
            await look_at(fake_stdio(Script(on("server/discover", raw(DISCOVERED + "\r\n")), *modern())).command),
            "modern",
        )


def event_forms() -> dict[str, list[Action]]:
    """One answer in every form that the event-stream grammar allows."""
    halves = DISCOVERED.replace(', "result"', '\n"result"'.replace("\n", ",\n"), 1)
    first, second = halves.split("\n")
    log = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}})
    return {
        "lf": [raw(f"data: {DISCOVERED}\n\n")],
        "crlf": [raw(f"data: {DISCOVERED}\r\n\r\n")],
        "cr": [raw(f"data: {DISCOVERED}\r\r")],
        "crlf-cut": [raw(f"data: {DISCOVERED}\r"), raw("\n\r"), raw("\n")],
        "no-space": [raw(f"data:{DISCOVERED}\n\n")],
        "several-data-lines": [raw(f"data: {first}\ndata: {second}\n\n")],
        "comments": [raw(f": keep-alive\n\n:\n\n: another\ndata: {DISCOVERED}\n: end\n\n")],
        "empty-data": [raw(f"id: 0\nretry: 100\ndata:\n\ndata: {DISCOVERED}\n\n")],
        "named": [raw(f"event: message\ndata: {DISCOVERED}\n\n")],
        "fields": [raw(f"id: 7\nretry: 5000\nunknown: x\ndata: {DISCOVERED}\n\n")],
        "bom": [raw(f"\ufeffdata: {DISCOVERED}\n\n")],
        "bytewise": [split(1), raw(f"\ufeff: é\r\n\r\nevent: message\r\ndata: {DISCOVERED}\r\n\r\n")],
        "after-log": [raw(f"data: {log}\n\n"), raw(f"data: {DISCOVERED}\n\n")],
        "unknown-event": [raw('event: ping\ndata: {"t":1}\n\n'), raw(f"data: {DISCOVERED}\n\n")],
        "stays-open": [raw(f"data: {DISCOVERED}\n\n"), HANG],
        "garbage-event": [raw("data: not json\n\n"), raw(f"data: {DISCOVERED}\n\n")],
    }


class TestEventStreams:
    @pytest.mark.parametrize("form", event_forms())
    async def test_every_form_of_the_grammar(self, fake_http: FakeHttp, form: str) -> None:
        """Case 21, case 106: done when the message with the request's id has arrived, even if the stream stays open."""
        fake = fake_http(Script(on("server/discover", STREAM, *event_forms()[form]), *modern()))
        assert_found(await look_at(fake.url), "modern")

    @pytest.mark.parametrize("content_type", ["text/event-stream; charset=utf-8", "Text/Event-Stream"])
    async def test_the_media_type_in_other_spellings(self, fake_http: FakeHttp, content_type: str) -> None:
        """Case 21."""
        answer = respond(text=f"data: {DISCOVERED}\n\n", headers={"Content-Type": content_type})
        assert_found(await look_at(fake_http(Script(on("server/discover", answer), *modern())).url), "modern")

    ENDINGS = {  # noqa: RUF012
        "closed": [STREAM, notify("notifications/message", level="info"), notify("notifications/progress")],
        "half-an-event": [STREAM, raw('data: {"jsonrpc":"2.0",'), RESET],
        "no-blank-line": [STREAM, raw('data: {"jsonrpc":"2.0","id":3,"result":{"content":[]}}\n')],
        "hung-up": [STREAM, HANG_UP],
        "reset": [RESET],
    }

    @pytest.mark.parametrize("ending", ENDINGS)
    async def test_a_stream_that_ends_without_the_answer_fails_at_once(self, fake_http: FakeHttp, ending: str) -> None:
        """Case 106: as a transport error; a tool call is never sent twice, and `Last-Event-ID` is never sent."""
        fake = fake_http(Script(on("tools/call", *self.ENDINGS[ending]), *modern()))
        async with outrider.connect(fake.url, options=OPTIONS) as client:
            with pytest.raises(TransportError):
                await client.call_tool("add")
            assert len(await client.list_tools()) == 2
        assert len(fake.received("tools/call")) == 1
        assert all(header(record, "Last-Event-ID") is None for record in fake.received())

    @pytest.mark.parametrize("ending", ENDINGS)
    async def test_a_list_may_be_asked_again(self, fake_http: FakeHttp, ending: str) -> None:
        """Case 106: it changes nothing."""
        fake = fake_http(Script(on("tools/list", *self.ENDINGS[ending], times=1), *modern()))
        assert_found(await look_at(fake.url), "modern")


class TestHeaders:
    NAMES = {  # noqa: RUF012
        "天気": "=?base64?5aSp5rCX?=",
        " padded": "=?base64?IHBhZGRlZA==?=",
        "a\nb": "=?base64?YQpi?=",
        "=?base64?QQ==?=": "=?base64?PT9iYXNlNjQ/UVE9PT89?=",
        "=?BASE64?QQ==?=": "=?BASE64?QQ==?=",
        "=?base64?!!?=": "=?base64?PT9iYXNlNjQ/ISE/PQ==?=",
        "plain-name": "plain-name",
    }

    @pytest.mark.parametrize(("name", "carried"), NAMES.items())
    async def test_names_that_a_header_cannot_carry(self, fake_http: FakeHttp, name: str, carried: str) -> None:
        """Case 93: encoded, also literals that look encoded; the body keeps the name as it is."""
        fake = fake_http(Script(*modern(tools=[tool(name)])))
        async with outrider.connect(fake.url, options=OPTIONS) as client:
            (listed,) = (await client.list_tools()).items
            await client.call_tool(listed.name)
        (called,) = fake.received("tools/call")
        assert header(called, "Mcp-Name") == carried
        assert called["message"]["params"]["name"] == name

    async def test_a_resource_and_a_prompt_name_themselves_too(self, fake_http: FakeHttp) -> None:
        """Spec streamable-http#standard-request-headers (MUST)."""
        fake = fake_http(
            Script(
                on("resources/read", result(complete(contents=[{"uri": "$name", "text": "t"}]))),
                on("prompts/get", result(complete(messages=[]))),
                *modern(),
            )
        )
        async with outrider.connect(fake.url, options=OPTIONS) as client:
            await client.read_resource("memo://天気")
            await client.get_prompt("greet", {"name": "Ada"})
        assert header(fake.received("resources/read")[0], "Mcp-Name") == "=?base64?bWVtbzovL+Wkqeawlw==?="
        assert header(fake.received("prompts/get")[0], "Mcp-Name") == "greet"

    MIRRORED = tool(
        "issue_write",
        inputSchema={
            "type": "object",
            "properties": {
                "owner": {"type": "string", "x-mcp-header": "owner"},
                "count": {"type": "integer", "x-mcp-header": "Count"},
                "deep": {"type": "object", "properties": {"flag": {"type": "boolean", "x-mcp-header": "Flag"}}},
            },
        },
    )

    async def test_mirrored_parameters(self, fake_http: FakeHttp) -> None:
        """Case 95, case 138: null and absent arguments have no header; others are encoded so that no value adds a header."""
        fake = fake_http(Script(*modern(tools=[self.MIRRORED])))
        async with outrider.connect(fake.url, options=OPTIONS) as client:
            await client.list_tools()
            await client.call_tool("issue_write", {"owner": "a\r\nX-Evil: 1", "count": 42, "deep": {"flag": True}})
            await client.call_tool("issue_write", {"owner": None, "count": 3.0})
            await client.call_tool("issue_write")
        first, second, third = fake.received("tools/call")
        assert header(first, "Mcp-Param-owner") == "=?base64?YQ0KWC1FdmlsOiAx?="
        assert header(first, "X-Evil") is None
        assert (header(first, "Mcp-Param-Count"), header(first, "Mcp-Param-Flag")) == ("42", "true")
        assert (header(second, "Mcp-Param-owner"), header(second, "Mcp-Param-Count")) == (None, "3")
        assert not any(name.lower().startswith("mcp-param-") for name, _ in third["headers"])

    async def test_a_call_without_a_list_learns_the_headers(self, fake_http: FakeHttp) -> None:
        """Case 95: on -32020 the list is read anew, the headers built, and the call made once more."""
        bare = on("tools/call", error(-32020, "Header mismatch", status=400), headers={"Mcp-Param-owner": None})
        fake = fake_http(Script(bare, *modern(tools=[self.MIRRORED])))
        async with outrider.connect(fake.url, options=OPTIONS) as client:
            answer = await client.call_tool("issue_write", {"owner": "me"})
        assert answer.text == "called issue_write"
        assert fake.methods() == ["server/discover", "tools/call", "tools/list", "tools/call"]

    async def test_an_annotation_that_changed_in_between(self, fake_http: FakeHttp) -> None:
        """Case 95."""
        renamed = json.loads(json.dumps(self.MIRRORED).replace('"x-mcp-header": "owner"', '"x-mcp-header": "Owner-2"'))
        fake = fake_http(
            Script(
                on("tools/list", result(complete(tools=[self.MIRRORED])), times=1),
                on("tools/call", error(-32020, "Header mismatch", status=400), headers={"Mcp-Param-Owner-2": None}),
                *modern(tools=[renamed]),
            )
        )
        async with outrider.connect(fake.url, options=OPTIONS) as client:
            await client.list_tools()
            assert (await client.call_tool("issue_write", {"owner": "me"})).text == "called issue_write"
        assert header(fake.received("tools/call")[-1], "Mcp-Param-owner") is None

    async def test_two_refusals_of_a_right_call_end_it(self, fake_http: FakeHttp) -> None:
        """Case 91: headers are lost on the way; the error says so, and there is no third call."""
        fake = fake_http(Script(on("tools/call", error(-32020, "Header mismatch", status=400)), *modern()))
        async with outrider.connect(fake.url, options=OPTIONS) as client:
            with pytest.raises(PeerError) as refused:
                await client.call_tool("add")
        assert "proxy" in refused.value.hint
        assert len(fake.received("tools/call")) == 2

    async def test_every_request_carries_the_version_it_is_made_under(self, fake_http: FakeHttp) -> None:
        """Spec streamable-http#protocol-version-header (MUST): equal to the version in `_meta`."""
        fake = fake_http(Script(*modern()))
        async with outrider.connect(fake.url, options=OPTIONS) as client:
            await client.list_tools()
            await client.call_tool("add")
        for record in fake.received():
            message = record["message"]
            assert header(record, "MCP-Protocol-Version") == "2026-07-28"
            assert message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
            assert header(record, "Mcp-Method") == message["method"]

    async def test_legacy_requests_carry_no_modern_fields(self, fake_http: FakeHttp) -> None:
        """Spec 2025-11-25 transports#protocol-version-header: the negotiated version, and the session, after the handshake."""
        fake = fake_http(Script(*legacy(session="s-1")))
        async with outrider.connect(fake.url, options=OPTIONS) as client:
            await client.list_tools()
            await client.call_tool("add")
        by_method = {(record["message"] or {}).get("method") or record["http"]: record for record in fake.received()}
        for method in ("notifications/initialized", "tools/list", "tools/call", "DELETE"):
            assert header(by_method[method], "MCP-Protocol-Version") == "2025-11-25"
            assert header(by_method[method], "Mcp-Session-Id") == "s-1"
        assert header(by_method["initialize"], "Mcp-Session-Id") is None
        assert "_meta" not in by_method["tools/list"]["message"].get("params", {})
        assert header(by_method["tools/list"], "Mcp-Method") is None


def forgetful(*forgotten: Action, calls: int = 1) -> tuple[Rule, ...]:
    """A legacy server over HTTP that forgets its first session after so many requests."""
    stale = {"Mcp-Session-Id": "s-1"}
    return (
        on("initialize", *(result(legacy()[0].do[0]["result"], headers={"Mcp-Session-Id": "s-1"}),), times=1),
        on("tools/list", result({"tools": [tool("add")]}), headers=stale, times=calls),
        on("tools/list", *forgotten, headers=stale),
        on("tools/call", *forgotten, headers=stale),
        *legacy(session="s-2"),
    )


FORGOTTEN = {
    "404": respond(404, text="session not found"),
    "404-json": error(-32001, "Session not found", id=None, status=404),
    "400": error(-32600, "No valid session ID", id="server-error", status=400),
    "400-handshake": error(-32000, "Bad Request: Server not initialized", id=None, status=400),
    "410": respond(410),
}


class TestSessions:
    @pytest.mark.parametrize("how", FORGOTTEN)
    async def test_a_list_in_an_expired_session_is_read_in_a_new_one(self, fake_http: FakeHttp, how: str) -> None:
        """Case 96: a new `initialize` without the session id, then the list once more."""
        fake = fake_http(Script(*forgetful(FORGOTTEN[how])))
        async with outrider.connect(fake.url, options=OPTIONS) as client:
            assert len(await client.list_tools()) == 1
            assert len(await client.list_tools()) == 2
        again = fake.received("initialize")[1]
        assert header(again, "Mcp-Session-Id") is None
        assert header(fake.received("tools/list")[-1], "Mcp-Session-Id") == "s-2"
        assert fake.methods().count("notifications/initialized") == 2

    @pytest.mark.parametrize("how", FORGOTTEN)
    async def test_a_call_is_repeated_when_it_was_certainly_not_executed(self, fake_http: FakeHttp, how: str) -> None:
        """Case 96: the server refused the session before it looked at the call."""
        fake = fake_http(Script(*forgetful(FORGOTTEN[how])))
        async with outrider.connect(fake.url, options=OPTIONS) as client:
            assert (await client.call_tool("add")).text == "called add"
        assert len(fake.received("tools/call")) == 2

    @pytest.mark.parametrize("answer", [error(-32002, "session expired"), respond(503, text="session lost"), RESET])
    async def test_a_call_that_may_have_run_is_not_repeated(self, fake_http: FakeHttp, answer: Action) -> None:
        """Case 96, case 100: its caller is told; the next request finds a new session."""
        fake = fake_http(Script(*forgetful(answer)))
        async with outrider.connect(fake.url, options=OPTIONS) as client:
            with pytest.raises(outrider.OutriderError):
                await client.call_tool("add")
            assert len(await client.list_tools()) in (1, 2)
        assert len(fake.received("tools/call")) == 1

    async def test_many_requests_in_an_expired_session_share_one_new_one(self, fake_http: FakeHttp) -> None:
        """Case 96: every pending request gets an answer; one handshake serves all."""
        fake = fake_http(Script(*forgetful(FORGOTTEN["404"])))
        async with outrider.connect(fake.url, options=OPTIONS) as client:
            await client.list_tools()
            lists = await asyncio.gather(*(client.list_tools() for _ in range(10)))
        assert [len(listing) for listing in lists] == [2] * 10
        assert len(fake.received("initialize")) == 2

    async def test_a_session_that_cannot_be_renewed_is_an_error(self, fake_http: FakeHttp) -> None:
        """Case 96: no loop."""
        fake = fake_http(
            Script(
                on("initialize", result(legacy()[0].do[0]["result"], headers={"Mcp-Session-Id": "s-$count"})),
                on("tools/list", respond(404, text="session not found")),
                *legacy(),
            )
        )
        async with outrider.connect(fake.url, options=OPTIONS) as client:
            with pytest.raises(TransportError):
                await client.list_tools()
        assert len(fake.received("initialize")) == 2

    async def test_a_session_is_ended_with_delete(self, fake_http: FakeHttp) -> None:
        """Spec 2025-11-25 transports#session-management (SHOULD); what the server answers does not matter."""
        fake = fake_http(Script(on(None, respond(405), http="DELETE"), *legacy(session="s-1")))
        assert_found(await look_at(fake.url), "legacy")
        assert [record["http"] for record in fake.received()].count("DELETE") == 1

    async def test_a_server_that_never_answers_delete_delays_nobody(self, fake_http: FakeHttp) -> None:
        """Ours: the shutdown time holds."""
        fake = fake_http(Script(on(None, HANG, http="DELETE"), *legacy(session="s-1")))
        assert_found(await look_at(fake.url, shutdown_timeout_s=0.3), "legacy")


class TestServerRequests:
    QUESTION = {"jsonrpc": "2.0", "id": 0, "method": "roots/list"}  # noqa: RUF012
    PING = {"jsonrpc": "2.0", "id": "p", "method": "ping"}  # noqa: RUF012

    async def test_a_legacy_server_that_waits_for_an_answer(self, fake_stdio: FakeStdio) -> None:
        """Case 102: `ping` gets {}, other requests -32601; the two directions number their requests independently."""
        fake = fake_stdio(
            Script(
                on("notifications/initialized", send(self.QUESTION)),
                on(None, send(self.PING), has="error", times=1),
                on("tools/list", NOTHING, times=1),
                on(None, send({"jsonrpc": "2.0", "id": 3, "result": {"tools": [tool("late")]}}), has="result"),
                *legacy(),
            )
        )
        assert_found(await look_at(fake.command), "legacy", "late")
        answers = [message for message in fake.messages() if "method" not in message]
        assert answers[0]["id"] == 0
        assert answers[0]["error"]["code"] == -32601
        assert answers[1:] == [{"jsonrpc": "2.0", "id": "p", "result": {}}]

    async def test_the_same_over_http(self, fake_http: FakeHttp) -> None:
        """Case 102: asked in the stream of a response, answered by a POST of its own."""
        from fakes.scripts import await_event, set_event

        fake = fake_http(
            Script(
                on(
                    "tools/list",
                    STREAM,
                    send(self.QUESTION),
                    send(self.PING),
                    await_event("answered"),
                    legacy()[2].do[0],
                ),
                on(None, set_event("answered"), has="result"),
                *legacy(session="s-1"),
            )
        )
        assert_found(await look_at(fake.url), "legacy")
        answers = {
            record["message"]["id"]: record
            for record in fake.received()
            if "method" not in (record["message"] or {"method": 1})
        }
        assert answers["p"]["message"]["result"] == {}
        assert answers[0]["message"]["error"]["code"] == -32601
        assert all(header(record, "Mcp-Session-Id") == "s-1" for record in answers.values())


class TestAddresses:
    @pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
    async def test_localhost_is_tried_on_both_families(self, fake_http: FakeHttp, host: str) -> None:
        """Case 108: whichever the server listens on."""
        fake = fake_http(Script(*modern()), host=host)
        assert_found(await look_at(f"http://localhost:{fake.port}/mcp"), "modern")

    async def test_a_refusal_lists_the_addresses(self, fake_http: FakeHttp) -> None:
        """Case 108."""
        fake = fake_http(Script())
        fake.stop()
        report = await look_at(f"http://localhost:{fake.port}/mcp")
        assert report.failure is not None
        assert f"127.0.0.1:{fake.port}" in report.failure.message

    async def test_a_host_that_does_not_exist(self) -> None:
        """Case 108: name resolution is named as what failed."""
        report = await look_at("http://no-such-host.invalid/mcp")
        assert report.failure is not None
        assert report.failure.kind == "start"
        assert "no-such-host.invalid" in report.failure.message
