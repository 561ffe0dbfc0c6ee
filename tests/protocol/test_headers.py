"""MCP's HTTP headers: the coding of values, mirrored parameters, and the server's comparison of headers and body."""

from __future__ import annotations

import base64
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import LocalProtocolError, RemoteProtocolError
from outrider.protocol.headers import (
    MAX_SAFE_INTEGER,
    HeaderParam,
    check_headers,
    decode_value,
    encode_value,
    header_params,
    param_headers,
    standard_headers,
)
from outrider.protocol.schema_findings import SchemaFinding, Verdict

VERSION = "2026-07-28"
REGION = HeaderParam("Mcp-Param-Region", ("region",), "string")
COUNT = HeaderParam("Mcp-Param-Count", ("options", "count"), "integer")
DRY = HeaderParam("Mcp-Param-Dry", ("dry",), "boolean")


def lines(headers: dict[str, str], *more: tuple[str, str]) -> list[tuple[bytes, bytes]]:
    """Header lines as an ASGI server hands them on."""
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in [*headers.items(), *more]]


def call_lines(name: str, *more: tuple[str, str]) -> list[tuple[bytes, bytes]]:
    return lines(standard_headers("tools/call", {"name": name}, VERSION), ("Host", "x"), ("Accept", "*/*"), *more)


def checked(headers: list[tuple[bytes, bytes]], name: str = "t", **arguments: Any) -> str | None:
    finding = check_headers(
        headers, method="tools/call", name=name, version=VERSION, params=(REGION, COUNT, DRY), arguments=arguments
    )
    return finding.message if finding else None


class TestValues:
    @pytest.mark.parametrize(
        ("value", "carried"),
        [
            ("us-west1", "us-west1"),
            ("a b", "a b"),
            ("", ""),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
            ("=?base64?=", "=?base64?PT9iYXNlNjQ/PQ==?="),
            ("=?BASE64?QQ==?=", "=?BASE64?QQ==?="),
            ("=?base64?half", "=?base64?half"),
            ("a\tb", "=?base64?YQli?="),
            ("\x7f", "=?base64?fw==?="),
        ],
    )
    def test_values_are_encoded_where_they_must_be_and_only_there(self, value: str, carried: str) -> None:
        """Spec streamable-http#value-encoding, with its own examples; case 93."""
        assert encode_value(value) == carried
        assert decode_value(carried) == value

    @given(st.text())
    def test_every_text_survives_and_nothing_unsafe_is_sent(self, value: str) -> None:
        """Spec streamable-http#value-encoding (MUST); case 138: no line end, no control character, ever."""
        carried = encode_value(value)
        assert decode_value(carried) == value
        assert carried.isascii()
        assert all(character.isprintable() for character in carried)
        assert carried == carried.strip()

    @given(st.text(alphabet="=?base64QA /+\t\x00é", max_size=20))
    def test_decoding_returns_text_or_refuses(self, carried: str) -> None:
        """Ours: whatever a peer sends is a value or a RemoteProtocolError."""
        with suppress(RemoteProtocolError):
            assert encode_value(decode_value(carried)) in (carried, encode_value(carried))

    @pytest.mark.parametrize(
        "carried",
        [
            "=?base64?SGVsbG8?=",  # no padding
            "=?base64?SGVs!!!bG8=?=",
            "=?base64?QQ===?=",
            "=?base64?QR==?=",  # bits left over
            "=?base64?QQ==QQ==?=",
            "=?base64?_-8=?=",  # the alphabet of URLs
            "=?base64?/w==?=",  # not UTF-8
            "=?base64?7aCA?=",  # half a surrogate pair
            "=?base64? QQ==?=",
            "=?base64?=",
            "caf\xe9",
            "a\x00b",
            "a\r\nHost: evil",
        ],
    )
    def test_what_is_not_exactly_right_is_refused(self, carried: str) -> None:
        """Spec streamable-http#server-validation (a header value contains invalid characters); case 93: a bad base64 value."""
        with pytest.raises(RemoteProtocolError):
            decode_value(carried)

    def test_an_empty_payload_is_the_empty_text(self) -> None:
        """Spec streamable-http#value-encoding: base64 of nothing is nothing."""
        assert decode_value("=?base64??=") == ""

    def test_half_a_surrogate_pair_is_our_own_callers_mistake(self) -> None:
        """Ours: refused before anything is sent."""
        with pytest.raises(LocalProtocolError):
            encode_value("\ud800")


class TestStandardHeaders:
    def test_each_method_with_a_name_carries_it(self) -> None:
        """Spec streamable-http#standard-request-headers (MUST)."""
        common = {"MCP-Protocol-Version": VERSION}
        assert standard_headers("server/discover", None, VERSION) == common | {"Mcp-Method": "server/discover"}
        for method, member in (("tools/call", "name"), ("prompts/get", "name"), ("resources/read", "uri")):
            expected = common | {"Mcp-Method": method, "Mcp-Name": "=?base64?5aSp5rCX?="}
            assert standard_headers(method, {member: "天気", "other": "x"}, VERSION) == expected

    @pytest.mark.parametrize(
        ("method", "params", "version"),
        [
            ("tools/call", {}, VERSION),
            ("tools/call", {"name": 7}, VERSION),
            ("tools/call", None, VERSION),
            ("resources/read", {"name": "x"}, VERSION),
            ("a\r\nHost: evil", {}, VERSION),
            ("tools/list", {}, "2026\n"),
        ],
    )
    def test_what_cannot_be_carried_is_refused_before_it_is_sent(
        self, method: str, params: dict[str, Any] | None, version: str
    ) -> None:
        """Case 138: no injection through a method or a version."""
        with pytest.raises(LocalProtocolError):
            standard_headers(method, params, version)


def tool(annotated: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": annotated}


class TestAnnotations:
    def test_properties_at_any_level_are_found(self) -> None:
        """Spec streamable-http#schema-extension: nested properties are permitted."""
        schema = tool(
            {
                "region": {"type": "string", "x-mcp-header": "Region"},
                "options": tool({"count": {"type": "integer", "x-mcp-header": "Count"}}),
                "dry": {"type": "boolean", "x-mcp-header": "Dry"},
                "plain": {"type": "string"},
            }
        )
        assert header_params(schema) == (REGION, COUNT, DRY)
        assert header_params(msgspec.json.encode(schema)) == (REGION, COUNT, DRY)

    def test_the_json_form_reads_escaped_keys_too(self) -> None:
        """Ours: the short cut over raw JSON must not be a way around the rule."""
        raw = rb'{"type":"object","properties":{"r":{"type":"string","x\u002dmcp-header":"A B"}}}'
        assert isinstance(header_params(raw), SchemaFinding)

    def test_no_annotation_is_no_parameter(self) -> None:
        """Spec streamable-http: the annotation is optional."""
        assert header_params(tool({"a": {"type": "string"}})) == ()
        assert header_params(b'{"type":"object"}') == ()
        assert header_params(None) == ()

    def test_a_name_or_a_value_is_no_annotation(self) -> None:
        """Case 127: a parameter NAMED like a keyword, and data inside `default`, `enum`, `examples`, is not a keyword."""
        schema = tool(
            {
                "x-mcp-header": {"type": "string"},
                "properties": {"type": "string", "x-mcp-header": "Props"},
                "d": {"type": "object", "default": {"x-mcp-header": "A B"}, "examples": [{"x-mcp-header": ""}]},
            }
        )
        assert header_params(schema) == (HeaderParam("Mcp-Param-Props", ("properties",), "string"),)

    @pytest.mark.parametrize(
        "token", ["", "A B", "X\r\nY", "X:", "Ä", "A\x00", "a/b", "(a)", 7, None, True, ["A"], {"a": 1}]
    )
    def test_a_value_that_is_no_header_name_excludes_the_tool(self, token: object) -> None:
        """Spec server/tools#x-mcp-header (MUST); case 94."""
        finding = header_params(tool({"a": {"type": "string", "x-mcp-header": token}}))
        assert isinstance(finding, SchemaFinding)
        assert (finding.verdict, finding.where) == (Verdict.EXCLUDE, "#/properties/a/x-mcp-header")

    @pytest.mark.parametrize("token", ["A", "a-b_c.d", "!#$%&'*+-.^_`|~09Az", "Method", "1"])
    def test_every_token_character_is_allowed(self, token: str) -> None:
        """Spec server/tools#x-mcp-header: RFC 9110 token syntax."""
        params = header_params(tool({"a": {"type": "string", "x-mcp-header": token}}))
        assert params == (HeaderParam(f"Mcp-Param-{token}", ("a",), "string"),)

    @pytest.mark.parametrize("second", ["Region", "region", "REGION"])
    def test_the_same_name_twice_excludes_the_tool(self, second: str) -> None:
        """Spec server/tools#x-mcp-header: case-insensitively unique (MUST); case 94."""
        schema = tool(
            {
                "a": {"type": "string", "x-mcp-header": "Region"},
                "b": tool({"c": {"type": "string", "x-mcp-header": second}}),
            }
        )
        assert isinstance(header_params(schema), SchemaFinding)

    @pytest.mark.parametrize("type_", ["number", "object", "array", "null", ["string", "null"], ["string"], None, 1])
    def test_only_primitive_parameters_can_be_mirrored(self, type_: object) -> None:
        """Spec server/tools#x-mcp-header: integer, string, boolean only (MUST); case 94."""
        assert isinstance(header_params(tool({"a": {"type": type_, "x-mcp-header": "A"}})), SchemaFinding)
        assert isinstance(header_params(tool({"a": {"x-mcp-header": "A"}})), SchemaFinding)

    ANNOTATED: dict[str, Any] = {"type": "string", "x-mcp-header": "A"}  # noqa: RUF012

    @pytest.mark.parametrize(
        "schema",
        [
            {"type": "object", "x-mcp-header": "A"},
            tool({"a": {"type": "array", "items": ANNOTATED}}),
            tool({"a": {"type": "array", "prefixItems": [ANNOTATED]}}),
            tool({"a": {"type": "array", "contains": tool({"b": ANNOTATED})}}),
            tool({"a": {"anyOf": [ANNOTATED]}}),
            {"type": "object", "oneOf": [tool({"a": ANNOTATED})]},
            {"type": "object", "allOf": [tool({"a": ANNOTATED})]},
            {"type": "object", "not": tool({"a": ANNOTATED})},
            {"type": "object", "if": tool({"a": ANNOTATED}), "then": {}, "else": {}},
            {"type": "object", "then": tool({"a": ANNOTATED})},
            {"type": "object", "else": tool({"a": ANNOTATED})},
            {"type": "object", "$defs": {"A": ANNOTATED}, "properties": {"a": {"$ref": "#/$defs/A"}}},
            {"type": "object", "$defs": {"unused": tool({"a": ANNOTATED})}},
            {"type": "object", "definitions": {"properties": ANNOTATED}},
            {"type": "object", "patternProperties": {"^a": ANNOTATED}},
            {"type": "object", "additionalProperties": ANNOTATED},
            {"type": "object", "dependentSchemas": {"a": tool({"a": ANNOTATED})}},
            {"type": "object", "dependencies": {"a": tool({"a": ANNOTATED})}},
            {"type": "object", "propertyNames": ANNOTATED},
        ],
    )
    def test_an_annotation_anywhere_else_excludes_the_tool(self, schema: dict[str, Any]) -> None:
        """Spec streamable-http#schema-extension: statically reachable by `properties` only (MUST)."""
        assert isinstance(header_params(schema), SchemaFinding)

    def test_a_schema_too_deep_to_search_excludes_the_tool(self) -> None:
        """Case 125: bounds; an annotation nobody can look for could be anywhere."""
        schema: dict[str, Any] = {}
        for _ in range(10_000):
            schema = {"properties": {"a": schema}}
        assert isinstance(header_params(schema), SchemaFinding)
        assert isinstance(header_params(b'{"x-mcp-header":' * 10_000 + b"1" + b"}" * 10_000), SchemaFinding)


class TestMirroring:
    def test_values_are_mirrored_by_their_type(self) -> None:
        """Spec streamable-http#value-encoding: strings as they are, integers in decimal, booleans in lower case."""
        arguments = {"region": "us-west1", "options": {"count": -7}, "dry": False, "other": "x"}
        assert param_headers((REGION, COUNT, DRY), arguments) == {
            "Mcp-Param-Region": "us-west1",
            "Mcp-Param-Count": "-7",
            "Mcp-Param-Dry": "false",
        }
        assert param_headers((REGION, COUNT, DRY), {"region": "a\r\nb", "options": {"count": 42.0}, "dry": True}) == {
            "Mcp-Param-Region": "=?base64?" + base64.b64encode(b"a\r\nb").decode() + "?=",
            "Mcp-Param-Count": "42",
            "Mcp-Param-Dry": "true",
        }

    @pytest.mark.parametrize(
        "arguments", [{}, None, {"region": None, "options": None}, {"options": {}}, {"options": 7}, {"region": []}]
    )
    def test_what_has_no_value_has_no_header(self, arguments: dict[str, Any] | None) -> None:
        """Spec streamable-http#server-behavior-for-custom-headers, table: null or absent is omitted (MUST); case 95."""
        assert param_headers((REGION, COUNT, DRY), arguments) == {}

    def test_whole_numbers_are_mirrored_up_to_the_safe_range_and_not_one_above(self) -> None:
        """Spec server/tools#x-mcp-header: within -(2**53)+1 to 2**53-1 (MUST)."""
        for edge in (MAX_SAFE_INTEGER, -MAX_SAFE_INTEGER):
            assert param_headers((COUNT,), {"options": {"count": edge}}) == {"Mcp-Param-Count": str(edge)}
        for beyond in (MAX_SAFE_INTEGER + 1, -MAX_SAFE_INTEGER - 1, 10**5000, 1e300):
            with pytest.raises(LocalProtocolError):
                param_headers((COUNT,), {"options": {"count": beyond}})

    @given(
        region=st.none() | st.text(),
        count=st.none() | st.integers(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER),
        dry=st.none() | st.booleans(),
        name=st.text(),
    )
    def test_what_the_client_sends_the_server_accepts(
        self, region: str | None, count: int | None, dry: bool | None, name: str
    ) -> None:
        """Ours: both halves are one rule."""
        arguments = {"region": region, "options": {"count": count}, "dry": dry}
        headers = call_lines(name, *param_headers((REGION, COUNT, DRY), arguments).items())
        assert checked(headers, name, **arguments) is None


class TestServerCheck:
    def test_header_names_are_compared_without_case(self) -> None:
        """Spec streamable-http#case-sensitivity (MUST)."""
        headers = [(b"mcp-PROTOCOL-version", VERSION.encode()), (b"MCP-METHOD", b"tools/call"), (b"Mcp-Name", b"t")]
        assert checked(headers) is None
        headers[1] = (b"MCP-METHOD", b"Tools/Call")
        assert checked(headers) is not None

    @pytest.mark.parametrize("missing", [b"mcp-protocol-version", b"mcp-method", b"mcp-name"])
    def test_each_standard_header_is_required(self, missing: bytes) -> None:
        """Spec streamable-http#server-validation (MUST)."""
        message = checked([line for line in call_lines("t") if line[0] != missing])
        assert message is not None
        assert "missing" in message
        assert missing.decode() in message.lower()

    def test_a_method_without_a_name_needs_none(self) -> None:
        """Spec streamable-http#standard-request-headers: `Mcp-Name` is for three methods."""
        headers = lines(standard_headers("tools/list", None, VERSION))
        assert check_headers(headers, method="tools/list", name=None, version=VERSION) is None

    @pytest.mark.parametrize(
        ("header", "value"),
        [
            ("Mcp-Name", "harmless"),
            ("Mcp-Name", "=?base64?QQ?="),
            ("Mcp-Name", "caf\xe9"),
            ("Mcp-Name", ""),
            ("Mcp-Method", "tools/list"),
            ("Mcp-Method", "=?base64?dG9vbHMvY2FsbA==?="),
            ("MCP-Protocol-Version", "2025-06-18"),
        ],
    )
    def test_a_header_that_says_something_else_is_refused(self, header: str, value: str) -> None:
        """Spec streamable-http#server-validation (MUST); case 139: a policy proxy believed the header."""
        headers = lines(standard_headers("tools/call", {"name": "delete_all"}, VERSION) | {header: value})
        assert checked(headers, "delete_all") is not None

    @pytest.mark.parametrize("name", ["天気", " padded", "a\nb", "=?base64?QQ==?=", "=?BASE64?QQ==?="])
    def test_encoded_names_are_decoded_before_comparing(self, name: str) -> None:
        """Spec streamable-http#value-encoding (MUST); case 93."""
        assert checked(call_lines(name), name) is None

    def test_a_name_that_looks_encoded_must_come_encoded(self) -> None:
        """Case 93: a tool really named like the sentinel; unencoded it means something else."""
        headers = [line if line[0] != b"mcp-name" else (b"mcp-name", b"=?base64?QQ==?=") for line in call_lines("A")]
        assert checked(headers, "A") is None
        assert checked(headers, "=?base64?QQ==?=") is not None

    def test_a_header_that_comes_twice_is_refused(self) -> None:
        """Ours: readers that take the first line and readers that take the last must not see two requests."""
        for repeated in (("mcp-name", "t"), ("Mcp-Method", "tools/call"), ("mcp-protocol-version", VERSION)):
            assert checked(call_lines("t", repeated)) is not None
        twice = [("mcp-param-region", "r"), ("Mcp-Param-Region", "r")]
        assert checked(call_lines("t", *twice), region="r") is not None
        unknown = [("mcp-param-other", "1"), ("mcp-param-other", "2"), ("x", "1"), ("x", "2")]
        assert checked(call_lines("t", *unknown)) is None

    def test_unknown_parameter_headers_are_ignored(self) -> None:
        """Spec streamable-http#server-behavior-for-custom-headers (MUST)."""
        assert checked(call_lines("t", ("Mcp-Param-Other", "caf\xe9"), ("Mcp-Session-Id", "s"))) is None

    @pytest.mark.parametrize(
        ("arguments", "headers"),
        [
            ({"region": "r"}, []),
            ({"region": "r"}, [("Mcp-Param-Region", "other")]),
            ({"region": "r"}, [("Mcp-Param-Region", "=?base64?cg=?=")]),
            ({"region": "\xe9"}, [("Mcp-Param-Region", "\xe9")]),
            ({"region": "TRUE"}, [("Mcp-Param-Region", "true")]),
            ({}, [("Mcp-Param-Region", "r")]),
            ({"region": None}, [("Mcp-Param-Region", "")]),
            ({"region": ["r"]}, [("Mcp-Param-Region", "r")]),
            ({"options": {"count": 42}}, [("Mcp-Param-Count", "43")]),
            ({"options": {"count": 42}}, [("Mcp-Param-Count", "42.5")]),
            ({"options": {"count": 42}}, [("Mcp-Param-Count", "4.2e1")]),
            ({"options": {"count": 42}}, [("Mcp-Param-Count", "0x2A")]),
            ({"options": {"count": 42}}, [("Mcp-Param-Count", "٤٢")]),
            ({"options": {"count": 42}}, [("Mcp-Param-Count", "9" * 5000)]),
            ({"options": {"count": 2**53}}, [("Mcp-Param-Count", str(2**53))]),
            ({"dry": True}, [("Mcp-Param-Dry", "True")]),
            ({"dry": True}, [("Mcp-Param-Dry", "1")]),
        ],
    )
    def test_a_mirrored_parameter_that_differs_is_refused(
        self, arguments: dict[str, Any], headers: list[tuple[str, str]]
    ) -> None:
        """Spec streamable-http#server-behavior-for-custom-headers (MUST): present and equal on both sides, or on neither."""
        carried = [
            (name, value.encode().decode("latin-1") if not value.isascii() else value) for name, value in headers
        ]
        message = checked(call_lines("t", *carried), **arguments)
        assert message is not None
        assert "other" not in message

    @pytest.mark.parametrize(
        ("count", "carried"),
        [(42, "42.0"), (42, "42.000"), (-7, "-7"), (0, "-0"), (42.0, "42"), (42, "=?base64?NDI=?=")],
    )
    def test_whole_numbers_are_compared_as_numbers(self, count: float, carried: str) -> None:
        """Spec streamable-http#server-validation (SHOULD compare numerically)."""
        assert checked(call_lines("t", ("Mcp-Param-Count", carried)), options={"count": count}) is None

    def test_an_argument_that_cannot_be_mirrored_needs_no_header(self) -> None:
        """Ours: the arguments' own validation names that mistake."""
        assert checked(call_lines("t"), region={"not": "a text"}, options={"count": 1.5}) is None
