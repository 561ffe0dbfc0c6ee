"""Servers are not trusted: floods, bombs, references to the network, secrets in what is shown, calls that must run once."""

from __future__ import annotations

import json
import resource
import socket

import pytest

import outrider
from cases.expectations import OPTIONS, assert_found, look_at, options
from fakes.running import FakeHttp, FakeStdio
from fakes.scripts import (
    HANG,
    RESET,
    STREAM,
    Action,
    Script,
    discover_result,
    error,
    exit_with,
    legacy,
    modern,
    note,
    on,
    raw,
    repeat,
    respond,
    stderr,
    tool,
)
from outrider import ConfigError, OutriderError

MIB = 1 << 20


def peak_mib() -> float:
    """The highest memory use of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.slow
class TestFloods:
    """Case 104: bounded memory, whatever comes."""

    @pytest.mark.parametrize("start", ['{"a":"', "no json at all ", '{"jsonrpc":"2.0","id":1,"result":{"x":"'])
    async def test_a_line_without_end(self, fake_stdio: FakeStdio, start: str) -> None:
        """Case 104: the buffer is bounded; what follows the next newline is read again."""
        before = peak_mib()
        fake = fake_stdio(
            Script(
                on("server/discover", raw(start), repeat("x", 64 * MIB), raw('"}}\n'), *modern()[0].do),
                *modern(),
            )
        )
        report = await look_at(fake.command, max_message_bytes=MIB)
        assert peak_mib() - before < 40
        # Where the flood pretended to be the answer, the server has had its turn; the flood is never taken for a description.
        assert report.ok or report.failure is not None
        if report.ok:
            assert_found(report, "modern")
        fake.assert_nothing_runs()

    async def test_a_message_on_the_same_line_as_junk_above_the_limit(self, fake_stdio: FakeStdio) -> None:
        """Case 104: the tail of a line that was too long is no message of its own."""
        hidden = json.dumps({"jsonrpc": "2.0", "id": 1, "result": discover_result(["2025-06-18"])})
        fake = fake_stdio(
            Script(on("server/discover", repeat("x", 9 * MIB), raw(hidden + "\n"), *modern()[0].do), *modern())
        )
        report = await look_at(fake.command, max_message_bytes=MIB)
        assert_found(report, "modern")
        assert any(str(MIB) in warning for warning in report.warnings)

    async def test_a_flood_that_never_stops(self, fake_stdio: FakeStdio) -> None:
        """Case 104: the start ends in time and takes the process with it."""
        before = peak_mib()
        fake = fake_stdio(Script(on(None, repeat("x" * 65_536, 1 << 24))))
        report = await look_at(
            fake.command, max_message_bytes=MIB, start_timeout_s=1.5, probe_timeout_s=0.4, shutdown_timeout_s=0.2
        )
        assert not report.ok
        assert peak_mib() - before < 40
        fake.assert_nothing_runs()

    async def test_messages_faster_than_anyone_reads(self, fake_stdio: FakeStdio) -> None:
        """Case 104: a flood of well-formed notifications."""
        line = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x" * 900}}) + "\n"
        before = peak_mib()
        fake = fake_stdio(Script(on("tools/list", repeat(line, 60_000), *modern()[2].do), *modern()))
        assert_found(await look_at(fake.command), "modern")
        assert peak_mib() - before < 40

    async def test_a_flood_on_stderr(self, fake_stdio: FakeStdio) -> None:
        """Case 104: the same limit of memory; a line without end is not kept whole."""
        before = peak_mib()
        flood = stderr("x" * 1024, 100 * 1024)
        fake = fake_stdio(Script(*modern(), start=[flood]))
        report = await look_at(fake.command)
        assert_found(report, "modern")
        assert sum(map(len, report.stderr_tail)) < 100_000
        assert peak_mib() - before < 40

    @pytest.mark.parametrize(
        "answer",
        [
            (STREAM, raw("data: "), repeat("x", 64 * MIB), raw("\n\n")),
            (STREAM, raw(": "), repeat("x", 64 * MIB), raw("\n\n")),
            ({"head": 200, "headers": {"Content-Type": "application/json"}}, raw('{"a":"'), repeat("x", 64 * MIB)),
            ({"head": 400, "headers": {"Content-Type": "text/html"}}, repeat("x", 64 * MIB)),
            ({"head": 401, "headers": {"Content-Type": "text/html"}}, repeat("x", 64 * MIB)),
            ({"head": 503, "headers": {"Content-Type": "text/html"}}, repeat("x", 64 * MIB)),
        ],
        ids=["event", "comment", "json", "400", "401", "503"],
    )
    async def test_bodies_without_end(self, fake_http: FakeHttp, answer: tuple[Action, ...]) -> None:
        """Case 104: JSON, events, comments, and the bodies of errors."""
        before = peak_mib()
        fake = fake_http(Script(on(None, *answer)))
        report = await look_at(fake.url, max_message_bytes=MIB, start_timeout_s=10.0)
        assert not report.ok
        assert peak_mib() - before < 40

    async def test_a_compressed_bomb(self, fake_http: FakeHttp) -> None:
        """Case 104: the limit counts after decompression."""
        import base64
        import gzip

        bomb = base64.b64encode(gzip.compress(b'{"jsonrpc":"2.0","id":2,"result":"' + b"x" * (100 * MIB))).decode()
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        fake = fake_http(Script(on("tools/list", respond(base64=bomb, headers=headers)), *modern()))
        before = peak_mib()
        async with outrider.connect(fake.url, options=options(max_message_bytes=MIB)) as client:
            with pytest.raises(outrider.RemoteProtocolError, match=str(MIB)):
                await client.list_tools()
        assert peak_mib() - before < 80


class TestBombs:
    @pytest.mark.parametrize(
        "bad",
        [
            "[" * 10_000 + "]" * 10_000,
            '{"name":"bad","inputSchema":{"type":"object"'
            + ',"properties":{"p":{"type":"object"' * 5_000
            + "}}" * 5_000
            + "}}",
            '{"name":"bad","inputSchema":{"type":"object","default":' + "[" * 10_000 + "]" * 10_000 + "}}",
        ],
        ids=["no-tool", "schema", "value"],
    )
    async def test_nesting_that_overflows_parsers_costs_that_tool(self, fake_stdio: FakeStdio, bad: str) -> None:
        """Case 125: 10,000 levels in a reply; that tool is left out and named, and the others of its list stay."""
        tools = ",".join([json.dumps(tool("add")), bad, json.dumps(tool("echo"))])
        fake = fake_stdio(
            Script(on("tools/list", raw(f'{{"jsonrpc":"2.0","id":$id,"result":{{"tools":[{tools}]}}}}\n')), *modern())
        )
        report = await look_at(fake.command)
        assert [listed.name for listed in report.tools or ()] == ["add", "echo"]
        assert "tools: 'tools[1]' left out: is nested too deeply" in report.warnings

    async def test_nesting_that_overflows_parsers_over_http(self, fake_http: FakeHttp) -> None:
        """Case 125: a large reply is not looked through; the request fails, and the server stays."""
        filler = '"x":"' + "[" * 1_100_000 + '",'
        deep = '{"jsonrpc":"2.0","id":$id,"result":{' + filler + '"tools":[' + "[" * 10_000 + "]" * 10_000 + "]}}"
        body = respond(text=deep, headers={"Content-Type": "application/json"})
        fake = fake_http(Script(on("tools/list", body, times=1), *modern()))
        async with outrider.connect(fake.url, options=OPTIONS) as client:
            with pytest.raises(OutriderError):
                await client.list_tools()
            assert len(await client.list_tools()) == 2

    async def test_a_schema_that_doubles_at_every_level(self, fake_stdio: FakeStdio) -> None:
        """Case 125: 2 kB that become gigabytes when inlined; nobody inlines, and the other tools are there at once."""
        levels = {f"L{n}": {"anyOf": [{"$ref": f"#/$defs/L{n + 1}"}, {"$ref": f"#/$defs/L{n + 1}"}]} for n in range(31)}
        levels["L31"] = {"type": "string"}
        bomb = {"type": "object", "properties": {"x": {"$ref": "#/$defs/L0"}}, "$defs": levels}
        fake = fake_stdio(Script(*modern(tools=[tool("add"), tool("bomb", inputSchema=bomb), tool("echo")])))
        report = await look_at(fake.command)
        assert report.ok
        assert {"add", "echo"} <= {listed.name for listed in report.tools or ()}

    async def test_a_deep_schema_costs_that_tool_at_most(self, fake_stdio: FakeStdio) -> None:
        """Case 125: 400 levels of nesting."""
        deep = '{"type":"object","properties":{"x":' * 200 + "{}" + "}}" * 200
        tools = f'{json.dumps(tool("add"))},{{"name":"deep","inputSchema":{deep}}},{json.dumps(tool("echo"))}'
        line = f'{{"jsonrpc":"2.0","id":$id,"result":{{"resultType":"complete","tools":[{tools}]}}}}\n'
        fake = fake_stdio(Script(on("tools/list", raw(line)), *modern()))
        report = await look_at(fake.command)
        assert report.ok
        assert {"add", "echo"} <= {listed.name for listed in report.tools or ()}
        assert any("deep" in warning for warning in report.warnings)


class TestReferences:
    @pytest.mark.parametrize("where", ["inputSchema", "outputSchema"])
    @pytest.mark.parametrize("keyword", ["$ref", "$schema", "$id", "$dynamicRef"])
    async def test_nothing_is_fetched(self, fake_stdio: FakeStdio, where: str, keyword: str) -> None:
        """Case 124: no URI in a schema is ever dereferenced (MUST NOT), nor is a file read; a listener sees no connection."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/leak.json"
            schemas = [
                {"type": "object", keyword: url},
                {"type": "object", "properties": {"x": {keyword: url}}},
                {"type": "object", "properties": {"x": {keyword: "file:///etc/passwd"}}},
            ]
            odd = [tool(f"odd-{n}", **{where: schema}) for n, schema in enumerate(schemas)]
            fake = fake_stdio(Script(*modern(tools=[tool("add"), *odd])))
            async with outrider.connect(fake.command, options=OPTIONS) as client:
                listed = await client.list_tools()
                assert listed.items[0].name == "add"
                for item in listed.items:
                    await client.call_tool(item.name, {"x": 1})
            with pytest.raises(BlockingIOError):
                listener.accept()


class TestSecrets:
    def everything(self, report: outrider.DiscoveryReport, seen: list[str]) -> str:
        return (
            json.dumps(report.as_json(), default=lambda raw_json: bytes(raw_json).decode())
            + repr(report)
            + "".join(seen)
        )

    @pytest.mark.parametrize("status", [200, 400, 401, 403, 404, 500, 503, 302, 307])
    async def test_nothing_of_a_url_or_header_is_shown(self, fake_http: FakeHttp, status: int) -> None:
        """Case 69: user, password, query, fragment and header values; also when the server repeats them in an error body."""
        repeated = "SECRET1-user SECRET2-query SECRET5-header"
        answer = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": repeated, "data": {"echo": repeated}}}
        headers = {"WWW-Authenticate": f'Bearer realm="{repeated}"', "Location": f"/x?{repeated}".replace(" ", "+")}
        for body in ({"json": answer}, {"text": "z" * 195 + repeated}):
            fake = fake_http(Script(on(None, respond(status, headers=headers, **body))))
            seen: list[str] = []
            report = await look_at(
                f"http://SECRET1-user:SECRET1-user@127.0.0.1:{fake.port}/mcp?api_key=SECRET2-query#SECRET3-fragment",
                headers={"X-Custom": "SECRET5-header"},
                trace=lambda direction, line, seen=seen: seen.append(line),
                start_timeout_s=1.5,
            )
            assert not report.ok
            shown = self.everything(report, seen)
            # The fragment is never sent, so the server cannot know it.
            for secret in ("SECRET1-user", "SECRET2-query", "SECRET5-header"):
                assert secret[:9] not in shown, (secret, shown)

    async def test_nothing_of_a_refused_connection_is_shown(self) -> None:
        """Case 69: the very first request."""
        report = await look_at(
            "http://SECRET1-user:SECRET1-user@127.0.0.1:1/mcp?api_key=SECRET2-query#SECRET3-fragment"
        )
        assert report.target == "http://127.0.0.1:1/mcp"
        assert "SECRET" not in self.everything(report, [])

    async def test_nothing_of_an_environment_is_shown(self, fake_stdio: FakeStdio) -> None:
        """Case 69: a server that prints its environment to stderr, to stdout and into an error."""
        fake = fake_stdio(
            Script(
                on("server/discover", error(-32000, "no SECRET4-env"), stderr("env TOKEN=SECRET4-env\n")),
                on("initialize", error(-32000, "SECRET4-env"), exit_with(1)),
                start=[raw("TOKEN=SECRET4-env\n"), stderr("x" * 20_000 + "SECRET4-env\n")],
            )
        )
        seen: list[str] = []
        target = outrider.StdioTarget((*fake.command, "--token", "SECRET5-header"), {"TOKEN": "SECRET4-env"})
        report = await look_at(target, trace=lambda direction, line: seen.append(line))
        assert not report.ok
        assert "SECRET4" not in self.everything(report, seen)
        assert "SECRET5" not in self.everything(report, seen)

    async def test_a_header_that_cannot_be_sent_is_refused_without_its_value(self) -> None:
        """Case 69, case 138: CR and LF in a value; nothing is sent."""
        for value in ("Bearer SECRET5\n", "a\r\nHost: SECRET5", "SECRET5\0"):
            with pytest.raises(ConfigError) as refused:
                await look_at("http://127.0.0.1:1/mcp", headers={"Authorization": value})
            assert "SECRET5" not in f"{refused.value} {refused.value.hint}"

    @pytest.mark.parametrize("name", ["Content-Length", "transfer-encoding", "Expect", "Upgrade"])
    async def test_a_header_that_frames_the_message_is_refused(self, name: str) -> None:
        """Case 138: a configured length makes a server wait for ever, or read another request out of this one."""
        with pytest.raises(ConfigError, match="set by HTTP itself"):
            await look_at("http://127.0.0.1:1/mcp", headers={name: "5"})


class TestCallsRunOnce:
    BROKEN = {  # noqa: RUF012
        "400": (respond(400, text="bad gateway"),),
        "404": (respond(404),),
        "500": (respond(500),),
        "503": (respond(503),),
        "401": (respond(401),),
        "reset": (RESET,),
        "silence": (HANG,),
        "no-json": (respond(200, text="ok"),),
        "-32601": (error(-32601, "Method not found", status=404),),
        "-32022": (error(-32022, "no", data={"supported": ["2025-11-25"]}, status=400),),
    }

    @pytest.mark.parametrize("how", BROKEN)
    @pytest.mark.parametrize("era", ["modern", "legacy"])
    async def test_whatever_answers_a_call_it_runs_once(self, fake_http: FakeHttp, how: str, era: str) -> None:
        """Case 100: eras are decided by `server/discover`; a call is never replayed across eras, transports or connections."""
        rules = modern() if era == "modern" else legacy(session="s-1")
        fake = fake_http(Script(on("tools/call", note("executed"), *self.BROKEN[how]), *rules))
        async with outrider.connect(fake.url, options=OPTIONS) as client:
            with pytest.raises(OutriderError):
                await client.call_tool("add", timeout_s=1.0)
        executed = fake.notes().count("executed")
        # 404 and 400 in a session may mean that the session is over, which the server says before it looks at the call.
        assert executed == 1 or (era == "legacy" and how in ("404", "-32601") and executed == 2)

    async def test_over_a_pipe_too(self, fake_stdio: FakeStdio) -> None:
        """Case 100: the process dies in the middle of a call."""
        fake = fake_stdio(Script(on("tools/call", note("executed"), exit_with(1)), *modern()))
        async with outrider.connect(fake.command, options=OPTIONS) as client:
            with pytest.raises(OutriderError):
                await client.call_tool("add")
        assert fake.notes() == ["executed"]


class TestTexts:
    async def test_control_characters_survive_as_data(self, fake_stdio: FakeStdio) -> None:
        """Case 70: raw in values and JSON; whoever shows them on a terminal escapes them."""
        nasty = "\u001b[2J\u001b]0;x\u0007 \u202e \u200b \U000e0001 \r over \u001b]8;;http://x\u0007link"
        fake = fake_stdio(Script(*modern(tools=[tool("add", description=nasty), tool("echo", title=nasty)])))
        report = await look_at(fake.command)
        assert_found(report, "modern")
        assert report.tools is not None
        assert report.tools.items[0].description == nasty
