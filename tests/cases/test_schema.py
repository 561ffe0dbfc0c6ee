"""One malformed thing costs that thing: tools, members, schemas and annotations as real servers send them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

import outrider
from cases.expectations import OPTIONS, assert_found, look_at, tool_names
from fakes.running import FakeHttp, FakeStdio
from fakes.scripts import Script, complete, discover_result, error, modern, on, result, tool

NINE = [tool(f"good-{n}") for n in range(9)]
NINE_NAMES = [f"good-{n}" for n in range(9)]


class TestMalformedTools:
    @pytest.mark.parametrize(
        ("tenth", "named"),
        [
            ({"name": "tenth"}, "tenth"),
            ({"name": "tenth", "inputSchema": None}, "tenth"),
            ({"name": "tenth", "inputSchema": {"type": "string"}}, "tenth"),
            ({"name": "tenth", "inputSchema": "object"}, "tenth"),
            ({"name": "tenth", "inputSchema": []}, "tenth"),
            ({"inputSchema": {"type": "object"}}, "tools[9]"),
            ({"name": 7, "inputSchema": {"type": "object"}}, "tools[9]"),
            ({"name": None, "inputSchema": {"type": "object"}}, "tools[9]"),
            ({"name": "", "inputSchema": {"type": "object"}}, "tools[9]"),
            ("tenth", "tools[9]"),
            (None, "tools[9]"),
            ([], "tools[9]"),
            (7, "tools[9]"),
        ],
        ids=lambda value: json.dumps(value)[:40],
    )
    async def test_the_tenth_is_left_out_and_named(self, fake_stdio: FakeStdio, tenth: object, named: str) -> None:
        """Case 30: nine good tools stay, and a warning names the tenth and the reason."""
        report = await look_at(fake_stdio(Script(*modern(tools=[*NINE, tenth]))).command)
        assert_found(report, "modern", *NINE_NAMES)
        assert any(named in warning and "left out" in warning for warning in report.warnings), report.warnings

    @pytest.mark.parametrize(
        "schema",
        [
            {"anyOf": [{"type": "object"}, {"type": "object", "required": ["a"]}]},
            {"properties": {"n": {"type": "int"}}},
            {"$schema": "https://json-schema.org/draft/2020-12/schema"},
            {},
            {"type": "object", "properties": {"n": {"type": "int"}}},
            {"type": "object", "properties": None},
            {"type": "object", "required": None},
            {"type": ["object", "null"]},
            True,
        ],
        ids=lambda value: json.dumps(value)[:40],
    )
    async def test_an_odd_schema_costs_that_tool_at_most(self, fake_stdio: FakeStdio, schema: object) -> None:
        """Case 30: listed with a warning or left out with one, never silently, and never more than the one."""
        report = await look_at(fake_stdio(Script(*modern(tools=[*NINE, tool("tenth", inputSchema=schema)]))).command)
        assert report.ok
        assert tool_names(report)[:9] == NINE_NAMES
        if "tenth" not in tool_names(report):
            assert any("tenth" in warning for warning in report.warnings)

    async def test_nulls_in_optional_members(self, fake_stdio: FakeStdio) -> None:
        """Case 31: read as absent; `nextCursor: null` is the end."""
        nulls = tool(
            "add",
            title=None,
            description=None,
            outputSchema=None,
            annotations={"readOnlyHint": None},
            icons=None,
            _meta=None,
        )
        page = complete(tools=[nulls, tool("echo", annotations=None)], nextCursor=None, _meta=None)
        report = await look_at(fake_stdio(Script(on("tools/list", result(page)), *modern())).command)
        assert_found(report, "modern")
        assert report.tools is not None
        first = report.tools.items[0]
        assert (first.title, first.description, first.annotations, first.output_schema) == ("", "", {}, None)
        assert report.tools.complete

    async def test_nulls_in_a_description(self, fake_stdio: FakeStdio) -> None:
        """Case 31: the same for the answer to `server/discover`."""
        described = discover_result(
            instructions=None,
            _meta=None,
            capabilities={"tools": {"listChanged": None}, "prompts": None, "resources": None},
        )
        report = await look_at(fake_stdio(Script(on("server/discover", result(described)), *modern())).command)
        assert_found(report, "modern")
        assert report.prompts is None
        assert report.resources is None

    @pytest.mark.parametrize("where", ["inputSchema", "outputSchema"])
    async def test_a_reference_that_leads_nowhere(self, fake_stdio: FakeStdio, where: str) -> None:
        """Case 32: the tool is listed; an unusable output schema is ignored with a warning."""
        dangling = {"type": "object", "properties": {"s": {"$ref": "#/$defs/Missing"}}}
        report = await look_at(
            fake_stdio(Script(*modern(tools=[tool("add", **{where: dangling}), tool("echo")]))).command
        )
        assert_found(report, "modern")
        assert report.tools is not None
        if where == "outputSchema":
            assert report.tools.items[0].output_schema is None
        assert any("add" in warning for warning in report.warnings)

    @pytest.mark.parametrize(
        "schema",
        [
            {
                "$defs": {
                    "N": {"type": "object", "properties": {"c": {"type": "array", "items": {"$ref": "#/$defs/N"}}}}
                },
                "type": "object",
                "properties": {"n": {"$ref": "#/$defs/N"}},
            },
            {"type": "object", "properties": {"self": {"$ref": "#"}}},
            {
                "type": "object",
                "properties": {"a": {"$ref": "#/$defs/A"}},
                "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/B"}, {}]}, "B": {"anyOf": [{"$ref": "#/$defs/A"}, {}]}},
            },
            {
                "type": "object",
                "properties": {"x": {"$ref": "#/$defs/a~1b~0c%25"}},
                "$defs": {"a/b~c%": {"type": "string"}},
            },
        ],
        ids=["tree", "self", "mutual", "escapes"],
    )
    async def test_recursive_schemas_are_listed_as_they_are(
        self, fake_stdio: FakeStdio, schema: dict[str, Any]
    ) -> None:
        """Case 72."""
        fake = fake_stdio(Script(*modern(tools=[tool("add", inputSchema=schema, outputSchema=schema), tool("echo")])))
        report = await look_at(fake.command)
        assert_found(report, "modern")
        assert report.tools is not None
        assert report.tools.items[0].input_schema == schema

    @pytest.mark.parametrize(
        "dialect",
        [
            "https://json-schema.org/draft/2020-12/schema",
            "https://json-schema.org/draft/2019-09/schema",
            "http://json-schema.org/draft-07/schema",
            "http://json-schema.org/draft-07/schema#",
            "https://json-schema.org/draft-07/schema#",
            "http://json-schema.org/draft-04/schema#",
            "https://example.com/our-own-dialect",
        ],
    )
    async def test_every_dialect_is_listed(self, fake_stdio: FakeStdio, dialect: str) -> None:
        """Case 79: an unsupported one too."""
        schema = {"$schema": dialect, "type": "object", "properties": {"n": {"type": "integer"}}}
        report = await look_at(
            fake_stdio(Script(*modern(tools=[tool("add", inputSchema=schema), tool("echo")]))).command
        )
        assert_found(report, "modern")


class TestLossless:
    FULL = tool(
        "full",
        title="Full",
        icons=[{"src": "https://example.com/i.png"}],
        annotations={"readOnlyHint": True, "x": 1},
        inputSchema={
            "type": "object",
            "properties": {name: {"type": "string"} for name in ("properties", "items", "type", "title", "$ref")},
            "anyOf": [{"required": ["type"]}, {"required": ["title"]}],
            "x-unknown": {"b": 1, "a": [1.0, 1e400 if False else 1e3]},
        },
        outputSchema={"type": "object", "properties": {"t": {"prefixItems": [{"const": 1}], "format": "uri"}}},
        _meta={"example.com/x": [None, True]},
        **{"x-future": 1},
    )

    async def test_members_we_do_not_know_survive(self, fake_stdio: FakeStdio) -> None:
        """Case 118, case 73, case 127: a tool is what came, and keys keep their order."""
        fake = fake_stdio(Script(*modern(tools=[self.FULL])))
        async with outrider.connect(fake.command, options=OPTIONS) as client:
            (listed,) = (await client.list_tools()).items
        assert listed.decoded() == self.FULL
        assert list(listed.decoded()) == list(self.FULL)
        assert json.loads(bytes(listed.wire)) == self.FULL

    async def test_numbers_keep_their_form(self, fake_stdio: FakeStdio) -> None:
        """Case 118: byte for byte where possible."""
        from fakes.scripts import raw

        exact = '{"name":"n","inputSchema":{"type":"object","maximum":1e2,"x":12345678901234567890123,"y":1.0}}'
        line = f'{{"jsonrpc":"2.0","id":$id,"result":{{"resultType":"complete","tools":[{exact}]}}}}\n'
        fake = fake_stdio(Script(on("tools/list", raw(line)), *modern()))
        async with outrider.connect(fake.command, options=OPTIONS) as client:
            (listed,) = (await client.list_tools()).items
        assert bytes(listed.wire).decode() == exact

    async def test_results_survive_too(self, fake_stdio: FakeStdio) -> None:
        """Case 118: structured content, isError, `_meta` and content of kinds yet to come."""
        answer = {
            "resultType": "complete",
            "content": [{"type": "text", "text": "t", "x": 1}, {"type": "hologram", "data": "…"}],
            "structuredContent": {"b": 1, "a": None},
            "isError": True,
            "_meta": {"example.com/x": 1},
            "x-future": [1],
        }
        fake = fake_stdio(Script(on("tools/call", result(answer)), *modern()))
        async with outrider.connect(fake.command, options=OPTIONS) as client:
            called = await client.call_tool("add")
        assert called.wire == answer
        assert called.is_error
        assert called.structured_content == {"b": 1, "a": None}
        assert [block.type for block in called.content] == ["text", "hologram"]
        assert called.text == "t"

    @pytest.mark.parametrize("value", [None, 0, False, "", [], {}, [1], "text"], ids=json.dumps)
    async def test_structured_content_may_be_any_value(self, fake_stdio: FakeStdio, value: object) -> None:
        """Spec server/tools#structured-content: null is a value, not an absence."""
        answer = {"resultType": "complete", "content": [], "structuredContent": value}
        fake = fake_stdio(Script(on("tools/call", result(answer)), *modern()))
        async with outrider.connect(fake.command, options=OPTIONS) as client:
            called = await client.call_tool("add")
        assert called.has_structured_content
        assert called.structured_content == value


class TestResultTypes:
    async def test_an_absent_result_type_is_complete(self, fake_stdio: FakeStdio) -> None:
        """Case 66, case 99: as are absent caching hints, which the report names."""
        bare = discover_result()
        for name in ("resultType", "ttlMs", "cacheScope"):
            del bare[name]
        fake = fake_stdio(
            Script(
                on("server/discover", result(bare)),
                on("tools/list", result({"tools": [tool("add"), tool("echo")]})),
                on("tools/call", result({"content": []})),
                *modern(),
            )
        )
        report = await look_at(fake.command)
        assert_found(report, "modern")
        assert (report.ttl_ms, report.cache_scope) == (0, "private")
        assert any("ttlMs" in warning for warning in report.warnings)
        async with outrider.connect(fake.command, options=OPTIONS) as client:
            assert (await client.call_tool("add")).content == ()

    @pytest.mark.parametrize("ttl", [-1, "300000", 1.5, 1e15, True, None, {}], ids=str)
    async def test_hints_that_make_no_sense(self, fake_stdio: FakeStdio, ttl: object) -> None:
        """Case 66: never a failure, never an endless life."""
        odd = discover_result(ttlMs=ttl, cacheScope="shared")
        report = await look_at(fake_stdio(Script(on("server/discover", result(odd)), *modern())).command)
        assert_found(report, "modern")
        assert 0 <= report.ttl_ms <= 7 * 86_400_000
        assert report.cache_scope == "private"

    @pytest.mark.parametrize("kind", ["task", "", 7, {}], ids=str)
    async def test_an_unknown_result_type_is_invalid(self, fake_stdio: FakeStdio, kind: object) -> None:
        """Spec basic/index#resulttype (MUST): not read as if it were complete."""
        answer = {"resultType": kind, "content": [{"type": "text", "text": "no"}]}
        fake = fake_stdio(Script(on("tools/call", result(answer)), *modern()))
        async with outrider.connect(fake.command, options=OPTIONS) as client:
            with pytest.raises(outrider.RemoteProtocolError):
                await client.call_tool("add")

    async def test_an_answer_that_asks_for_input(self, fake_stdio: FakeStdio) -> None:
        """Spec basic/patterns/mrtr: with nobody here to give it, the caller is told what is asked."""
        asked = {"key": {"method": "elicitation/create", "params": {"message": "Sure?"}}}
        answer = {"resultType": "input_required", "inputRequests": asked, "requestState": "opaque"}
        fake = fake_stdio(Script(on("tools/call", result(answer)), *modern()))
        async with outrider.connect(fake.command, options=OPTIONS) as client:
            with pytest.raises(outrider.InputNeeded) as needed:
                await client.call_tool("add")
        assert needed.value.input_requests == asked
        assert needed.value.request_state == "opaque"

    @pytest.mark.parametrize(
        "answer",
        [
            None,
            7,
            "x",
            [],
            {},
            {"content": None},
            {"content": {}},
            {"content": ["x"]},
            {"content": [{}]},
            {"content": [{"type": 7}]},
        ],
        ids=json.dumps,
    )
    async def test_results_of_the_wrong_shape(self, fake_stdio: FakeStdio, answer: object) -> None:
        """Ours: an error of its own, for that call."""
        fake = fake_stdio(Script(on("tools/call", result(answer)), *modern()))
        async with outrider.connect(fake.command, options=OPTIONS) as client:
            with pytest.raises(outrider.RemoteProtocolError):
                await client.call_tool("add")
            assert len(await client.list_tools()) == 2

    @pytest.mark.parametrize(
        "answer", [None, 7, [], {}, {"tools": None}, {"tools": {}}, {"tools": "x"}], ids=json.dumps
    )
    async def test_lists_of_the_wrong_shape_cost_that_list(self, fake_stdio: FakeStdio, answer: object) -> None:
        """Case 26, case 30: the server is still described."""
        report = await look_at(fake_stdio(Script(on("tools/list", result(answer)), *modern())).command)
        assert report.ok
        assert report.era == "modern"
        assert tool_names(report) == []
        assert any("tools/list" in warning for warning in report.warnings)


class TestHeaderAnnotations:
    BAD = {  # noqa: RUF012
        "empty": {"type": "string", "x-mcp-header": ""},
        "space": {"type": "string", "x-mcp-header": "A B"},
        "crlf": {"type": "string", "x-mcp-header": "X\r\nY"},
        "number": {"type": "number", "x-mcp-header": "N"},
        "object": {"type": "object", "x-mcp-header": "O"},
        "not-a-text": {"type": "string", "x-mcp-header": 7},
        "under-items": {"type": "array", "items": {"type": "string", "x-mcp-header": "I"}},
        "under-anyof": {"anyOf": [{"type": "string", "x-mcp-header": "I"}]},
    }

    def bad_tool(self, kind: str) -> dict[str, Any]:
        properties = (
            {"p": self.BAD[kind]}
            if kind != "twice"
            else {
                "a": {"type": "string", "x-mcp-header": "Region"},
                "b": {"type": "string", "x-mcp-header": "region"},
            }
        )
        return tool("bad", inputSchema={"type": "object", "properties": properties})

    @pytest.mark.parametrize("kind", [*BAD, "twice"])
    async def test_over_http_the_tool_is_left_out_with_a_warning(self, fake_http: FakeHttp, kind: str) -> None:
        """Case 94: that tool (MUST), named with the reason (SHOULD); the others stay."""
        fake = fake_http(Script(*modern(tools=[tool("add"), self.bad_tool(kind), tool("echo")])))
        report = await look_at(fake.url)
        assert_found(report, "modern")
        assert any("bad" in warning and "x-mcp-header" in warning for warning in report.warnings), report.warnings

    async def test_over_http_it_is_found_among_many(self, fake_http: FakeHttp) -> None:
        """Case 94: wherever in the list it stands."""
        names = [f"tool-{number:03}" for number in range(200)]
        tools = [{**self.bad_tool("space"), "name": name} if name == "tool-130" else tool(name) for name in names]
        report = await look_at(fake_http(Script(*modern(tools=tools))).url)
        assert tool_names(report) == [name for name in names if name != "tool-130"]

    @pytest.mark.parametrize("kind", [*BAD, "twice"])
    async def test_over_stdio_the_annotation_means_nothing(self, fake_stdio: FakeStdio, kind: str) -> None:
        """Case 94: the tool is listed (MAY ignore)."""
        report = await look_at(
            fake_stdio(Script(*modern(tools=[tool("add"), self.bad_tool(kind), tool("echo")]))).command
        )
        assert_found(report, "modern", "add", "bad", "echo")


class TestDescriptions:
    @pytest.mark.parametrize(
        "identity", [None, 7, {}, {"name": 7}, {"name": "x", "version": 7}, {"name": "x", "icons": 7}], ids=json.dumps
    )
    async def test_an_odd_identity_harms_nobody(self, fake_stdio: FakeStdio, identity: object) -> None:
        """Ours: the name is for display; whatever stands there, the server is discovered."""
        described = discover_result(_meta={"io.modelcontextprotocol/serverInfo": identity})
        report = await look_at(fake_stdio(Script(on("server/discover", result(described)), *modern())).command)
        assert_found(report, "modern")
        assert msgspec.json.encode(report.as_json())

    @pytest.mark.parametrize("capabilities", [None, [], "tools", 7], ids=str)
    async def test_capabilities_that_are_no_object(self, fake_stdio: FakeStdio, capabilities: object) -> None:
        """Ours: read as none, with a warning."""
        described = discover_result(capabilities=capabilities)
        report = await look_at(fake_stdio(Script(on("server/discover", result(described)), *modern())).command)
        assert report.ok
        assert report.tools is None
        assert any("capabilities" in warning for warning in report.warnings)

    @pytest.mark.parametrize("versions", [None, "2026-07-28", [], [7], {}], ids=str)
    async def test_versions_that_cannot_be_read_are_no_description(
        self, fake_stdio: FakeStdio, versions: object
    ) -> None:
        """Spec server/discover#discoverresult: without its versions it says nothing."""
        described = discover_result() | {"supportedVersions": versions}
        fake = fake_stdio(Script(on("server/discover", result(described)), *modern()))
        report = await look_at(fake.command)
        assert report.failure is not None

    async def test_one_version_that_is_none_costs_that_version(self, fake_stdio: FakeStdio) -> None:
        """Case 30, of a description: the sound ones count, and a warning says what was left out."""
        described = discover_result(supportedVersions=[7, None, "2026-07-28", {}])
        report = await look_at(fake_stdio(Script(on("server/discover", result(described)), *modern())).command)
        assert_found(report, "modern")
        assert any("supportedVersions" in warning for warning in report.warnings)

    async def test_only_what_is_declared_is_asked_for(self, fake_stdio: FakeStdio) -> None:
        """Case 26."""
        fake = fake_stdio(
            Script(
                on("resources/list", result(complete(resources=[{"uri": "memo://a", "name": "a"}]))),
                on("resources/templates/list", error(-32601, "Method not found")),
                *modern(capabilities={"resources": {}}),
            )
        )
        report = await look_at(fake.command)
        assert report.ok
        assert report.tools is None
        assert report.resources is not None
        assert len(report.resources) == 1
        assert report.resource_templates is not None
        assert len(report.resource_templates) == 0
        assert any("resources/templates/list" in warning for warning in report.warnings)
        assert "tools/list" not in fake.methods()
