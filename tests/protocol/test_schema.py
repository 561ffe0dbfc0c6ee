"""JSON Schema from servers: what excludes a tool, what is only told, where references go, and what one schema may cost."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import LimitExceeded, LocalProtocolError, RemoteProtocolError
from outrider.protocol.schema import (
    DIALECTS,
    KEYWORDS,
    Dialect,
    Holds,
    ReferenceKind,
    SchemaDocument,
    SchemaLimits,
    Subschema,
    Validator,
    Verdict,
    check_input_schema,
    check_output_schema,
    dialect_of,
    render_pointer,
    subschemas,
)

STRING = {"type": "string"}


KEYS = st.sampled_from(
    [
        *KEYWORDS,
        "type",
        "$ref",
        "$dynamicRef",
        "$schema",
        "$id",
        "$anchor",
        "default",
        "enum",
        "A",
        "B",
        "title",
        "required",
    ]
)
VALUES = st.sampled_from(
    [
        None,
        True,
        "string",
        "object",
        "int",
        "#",
        "#/$defs/A",
        "#/definitions/B",
        "#A",
        "http://x/",
        *list(DIALECTS)[:3],
        1,
    ]
) | st.sampled_from([["string", "null"], ["object"], [], ["int"]])
SCHEMAS = st.recursive(
    VALUES, lambda inner: st.dictionaries(KEYS, inner, max_size=4) | st.lists(inner, max_size=3), max_leaves=25
)


def verdict(schema: Any, **limits: int) -> Verdict | None:
    """The verdict on an input schema; the JSON and the decoded form must agree."""
    decoded = check_input_schema(schema, limits=SchemaLimits(**limits))
    raw = check_input_schema(json.dumps(schema).encode(), limits=SchemaLimits(**limits))
    assert raw == decoded
    return decoded.verdict if decoded else None


def places(schema: Any) -> list[str]:
    return [render_pointer(place.path) for place in subschemas(schema)]


def tool(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


class TestWalking:
    def test_every_kind_of_keyword_is_walked_in_document_order(self) -> None:
        """Ours: one table says what holds schemas."""
        schema = {
            "properties": {"a": {"items": {}}, "b": True},
            "anyOf": [{}, {"not": {}}],
            "items": [{}, {}],
            "dependencies": {"a": ["b"], "c": {}},
            "$defs": {"X": {}},
        }
        assert places(schema) == [
            "#",
            "#/properties/a",
            "#/properties/a/items",
            "#/properties/b",
            "#/anyOf/0",
            "#/anyOf/1",
            "#/anyOf/1/not",
            "#/items/0",
            "#/items/1",
            "#/dependencies/c",
            "#/$defs/X",
        ]

    def test_a_name_that_is_spelled_like_a_keyword_is_a_name(self) -> None:
        """Case 127: parameters NAMED `properties`, `items`, `type`, `title`, `$ref`."""
        schema = tool(properties=STRING, items=STRING, type=STRING, title=STRING, **{"$ref": STRING})
        assert places(schema) == [
            "#",
            "#/properties/properties",
            "#/properties/items",
            "#/properties/type",
            "#/properties/title",
            "#/properties/$ref",
        ]
        assert verdict(schema) is None
        assert list(SchemaDocument(schema).references()) == []

    def test_values_are_not_walked(self) -> None:
        """Case 127: inside `default`, `enum`, `const`, `examples` nothing is a keyword."""
        data = {"type": "int", "$ref": "#/nowhere", "properties": []}
        schema = tool(a={"default": data, "enum": [data], "const": data, "examples": [data], "x-own": data})
        assert places(schema) == ["#", "#/properties/a"]
        assert verdict(schema) is None

    # Definitions apply to nothing by themselves, and `contentSchema` is a remark; all others make a validator look inside.
    @pytest.mark.parametrize("keyword", sorted(set(KEYWORDS) - {"$defs", "definitions", "contentSchema"}))
    def test_the_table_agrees_with_a_validator_that_is_not_ours(self, keyword: str) -> None:
        """Ours: the oracle is jsonschema-rs, which refuses to compile a dangling reference exactly where it sees a schema."""
        inner = {"$ref": "#/nowhere"}
        holder: Any = {Holds.SCHEMA: inner, Holds.SCHEMAS: [inner], Holds.SCHEMA_OR_SCHEMAS: inner}.get(
            KEYWORDS[keyword], {"a": inner}
        )
        beside: Any = {
            "if": {"then": {}},
            "then": {"if": True},
            "else": {"if": False},
            "additionalItems": {"items": [True]},
        }
        old = keyword in ("dependencies", "additionalItems")
        compiler = jsonschema_rs.Draft7Validator if old else jsonschema_rs.Draft202012Validator
        with pytest.raises(ValueError, match="nowhere"):
            compiler({keyword: holder} | beside.get(keyword, {}), offline=True)
        assert places({keyword: holder})[1:] in ([f"#/{keyword}"], [f"#/{keyword}/0"], [f"#/{keyword}/a"])

    def test_only_properties_makes_a_place_reachable_by_properties(self) -> None:
        """Spec streamable-http#schema-extension: a chain of `properties` keys and nothing else."""
        schema = tool(a=tool(properties=STRING), b={"items": STRING}, items={"not": tool(c=STRING)})
        reachable = [render_pointer(place.path) for place in subschemas(schema) if place.is_reachable_by_properties]
        assert reachable == [
            "#",
            "#/properties/a",
            "#/properties/a/properties/properties",
            "#/properties/b",
            "#/properties/items",
        ]

    def test_depth_is_bounded_at_the_limit_and_not_one_above(self) -> None:
        """Spec basic/index#composition-keyword-resource-use (SHOULD); case 125."""
        limits = SchemaLimits(max_depth=10)
        for keyword in ("not", "properties", "anyOf"):
            schema: Any = {}
            for depth in range(1, 12):
                schema = {keyword: {"not": schema, "properties": {"a": schema}, "anyOf": [schema]}[keyword]}
                if depth <= 10:
                    assert len(list(subschemas(schema, limits=limits))) == depth + 1
                else:
                    with pytest.raises(LimitExceeded):
                        list(subschemas(schema, limits=limits))

    def test_the_number_of_subschemas_is_bounded_at_the_limit_and_not_one_above(self) -> None:
        """Spec basic/index#composition-keyword-resource-use (SHOULD)."""
        limits = SchemaLimits(max_subschemas=50)
        assert len(list(subschemas({"anyOf": [{}] * 49}, limits=limits))) == 50
        with pytest.raises(LimitExceeded):
            list(subschemas({"anyOf": [{}] * 50}, limits=limits))

    @given(
        st.recursive(
            st.none() | st.booleans() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(sorted(KEYWORDS)), inner),
        )
    )
    def test_any_json_can_be_walked(self, value: Any) -> None:
        """Ours: nothing a server sends raises anything else than our own errors."""
        found = list(subschemas(value))
        assert found[0] == Subschema((), value, isinstance(value, dict | bool))
        assert all(isinstance(place.node, dict | bool) for place in found if place.well_formed)


class TestDialects:
    @pytest.mark.parametrize("hash_", ["", "#"])
    @pytest.mark.parametrize("scheme", ["http", "https"])
    @pytest.mark.parametrize(
        ("uri", "dialect"),
        [
            ("json-schema.org/draft/2020-12/schema", Dialect.DRAFT_2020_12),
            ("json-schema.org/draft/2019-09/schema", Dialect.DRAFT_2019_09),
            ("json-schema.org/draft-07/schema", Dialect.DRAFT_07),
            ("json-schema.org/draft-06/schema", Dialect.DRAFT_06),
            ("json-schema.org/draft-04/schema", Dialect.DRAFT_04),
        ],
    )
    def test_every_spelling_of_a_known_dialect_is_understood(
        self, scheme: str, uri: str, hash_: str, dialect: Dialect
    ) -> None:
        """Case 79: http and https, with and without the trailing `#`."""
        schema = tool(a=STRING) | {"$schema": f"{scheme}://{uri}{hash_}"}
        assert dialect_of(schema) is dialect
        assert verdict(schema) is None
        assert [violation.path for violation in Validator(schema).check({"a": 1})] == [("a",)]

    def test_no_declaration_means_2020_12(self) -> None:
        """Spec basic/index#schema-dialect (defaults to 2020-12)."""
        assert dialect_of({"type": "object"}) is Dialect.DRAFT_2020_12

    @pytest.mark.parametrize(
        "declared", ["http://json-schema.org/schema#", "https://example.com/dialect", "", 7, ["x"]]
    )
    def test_an_unknown_dialect_is_listed_and_not_validated(self, declared: object) -> None:
        """Case 79; spec basic/index#implementation-requirements (handle unsupported dialects gracefully)."""
        schema = tool(a={"type": "whatever-it-means-there"}) | {"$schema": declared}
        assert dialect_of(schema) is None
        assert verdict(schema) is Verdict.SKIP_VALIDATION
        with pytest.raises(RemoteProtocolError):
            Validator(schema)

    @pytest.mark.parametrize(
        ("declared", "schema", "bad"),
        [
            ("http://json-schema.org/draft-04/schema#", {"minimum": 1, "exclusiveMinimum": True}, 1),
            ("http://json-schema.org/draft-07/schema#", {"items": [{"type": "string"}]}, [1]),
            (
                "https://json-schema.org/draft/2019-09/schema",
                {"items": [{"type": "string"}], "additionalItems": False},
                ["a", 1],
            ),
            ("https://json-schema.org/draft/2020-12/schema", {"prefixItems": [{"type": "string"}]}, [1]),
            ("http://json-schema.org/draft-06/schema", {"exclusiveMinimum": 1}, 1),
        ],
    )
    def test_values_are_checked_in_the_dialect_that_is_declared(
        self, declared: str, schema: dict[str, Any], bad: object
    ) -> None:
        """Spec basic/index#implementation-requirements (MUST validate according to their declared dialect)."""
        validator = Validator({"$schema": declared, "properties": {"v": schema}})
        assert [violation.path[0] for violation in validator.check({"v": bad})] == ["v"]


class TestInputSchemas:
    @pytest.mark.parametrize(
        "schema",
        [
            {"type": "object"},
            {"type": "object", "additionalProperties": False},
            tool(a=STRING, b={"type": ["integer", "null"]}, c=True, d={}, e={"type": "array", "items": tool(f=STRING)}),
            tool(a={"$ref": "#/$defs/A"}) | {"$defs": {"A": STRING}},
            tool(a={"$ref": "#/definitions/A"}) | {"definitions": {"A": STRING}},
            {"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {"a": {}, "b": {}}},
            {"type": "object", "title": "x", "description": "é\u2028", "x-own": [1, None]},
            {
                "type": "object",
                "$id": "https://example.com/s",
                "properties": {"a": {"$ref": "#/$defs/A"}},
                "$defs": {"A": {}},
            },
        ],
    )
    def test_ordinary_schemas_have_no_finding(self, schema: dict[str, Any]) -> None:
        """Spec server/tools#tool; cases 71 and 73."""
        assert verdict(schema) is None

    @pytest.mark.parametrize(
        "schema",
        [
            None,
            True,
            [],
            "object",
            7,
            {},
            {"type": "string"},
            {"type": ["string", "null"]},
            {"type": None, "properties": {}},
            {"anyOf": [{"required": ["a"]}]},
            {"anyOf": []},
            {"oneOf": [{"type": "object"}, {"type": "string"}]},
            {"properties": {"n": {"type": "int"}}},
            {"$schema": "https://json-schema.org/draft/2020-12/schema"},
            tool(n={"type": "int"}),
            tool(n={"type": []}),
            tool(n={"type": ["string", "text"]}),
            tool(n={"type": {"a": 1}}),
            tool(n={"type": None}),
            tool(n="string"),
            tool(n=None),
            tool(n=["string"]),
            tool(n={"items": "string"}),
            tool(n={"anyOf": {"type": "string"}}),
            tool(n={"anyOf": [None]}),
            {"type": "object", "properties": ["a"]},
            {"type": "object", "properties": True},
            {"type": "object", "$defs": {"A": {"type": "float"}}},
            {"type": "object", "dependencies": {"a": "b"}},
        ],
    )
    def test_a_schema_nobody_could_use_excludes_the_tool(self, schema: object) -> None:
        """Case 30: one malformed tool costs that tool. Spec server/tools#tool (MUST be a valid JSON Schema object, not null)."""
        assert verdict(schema) is Verdict.EXCLUDE

    @pytest.mark.parametrize(
        "schema",
        [
            {"properties": {"a": STRING}},
            {"properties": {}},
            {"type": ["object", "null"]},
            {"anyOf": [{"type": "object"}, tool(a=STRING)]},
            {"oneOf": [{"type": "object"}, {"properties": {"a": {}}}]},
            {"allOf": [{"type": "object"}, {"required": ["a"]}]},
            {"$ref": "#/$defs/Args", "$defs": {"Args": tool(a=STRING)}},
        ],
    )
    def test_a_missing_root_type_is_tolerated_where_only_an_object_is_meant(self, schema: dict[str, Any]) -> None:
        """Case 73, ours: servers in use leave it out; their authors should know."""
        assert verdict(schema) is Verdict.NOTE

    @pytest.mark.parametrize(
        "schema",
        [
            tool(s={"$ref": "#/$defs/Missing"}),
            tool(s={"$ref": "#/$defs/A/properties/b"}) | {"$defs": {"A": {}}},
            tool(s={"$ref": "#nowhere"}),
            tool(s={"$ref": "#/properties/s/~2"}),
            tool(s={"$ref": "#/required/0"}) | {"required": ["s"]},
            tool(s={"$ref": "http://127.0.0.1:1/leak.json"}),
            tool(s={"$ref": "file:///etc/passwd"}),
            tool(s={"$ref": "other.json#/A"}),
            tool(s={"$ref": "http://[bad"}),
            tool(s={"$dynamicRef": "#nowhere"}),
            tool(s={"$ref": "#/x/A"}) | {"x": {"A": {"$ref": "#/x/B"}}},
            tool(s={"items": None}),
            {"type": "object", "properties": None},
        ],
    )
    def test_a_schema_nobody_can_judge_by_is_listed_and_not_validated(self, schema: dict[str, Any]) -> None:
        """Case 32; spec basic/index#ref-resolution (SHOULD be rejected rather than treated as permissive)."""
        assert verdict(schema) is Verdict.SKIP_VALIDATION
        with pytest.raises(RemoteProtocolError):
            Validator(schema)

    def test_a_finding_says_where_and_what(self) -> None:
        """Case 30: a warning that names the reason."""
        finding = check_input_schema(tool(**{"a/b": {"items": {"type": "int"}}}))
        assert finding is not None
        assert finding.where == "#/properties/a~1b/items/type"
        assert "type name" in finding.message
        long = check_input_schema(tool(**{"x" * 10_000: {"type": "int"}}))
        assert long is not None
        assert len(long.where) == 200

    @pytest.mark.parametrize(
        "raw", [b"", b"{", b"\xff", b'{"type":"object"', b'"\xff"', b"[" * 100_000, b'{"not":' * 100_000]
    )
    def test_bytes_that_are_no_json_exclude_the_tool(self, raw: bytes) -> None:
        """Case 125: 10,000 nested arrays overflow no parser here."""
        finding = check_input_schema(raw)
        assert finding is not None
        assert finding.verdict is Verdict.EXCLUDE

    def test_deep_values_are_bounded_at_the_limit_and_not_one_above(self) -> None:
        """Case 125: depth counts in values too, where no schema is."""
        nested: Any = []
        for _ in range(17):
            nested = [nested]  # 18 lists below two objects
        assert verdict({"type": "object", "properties": {}, "default": nested}, max_json_depth=18) is None
        assert verdict({"type": "object", "properties": {}, "default": [nested]}, max_json_depth=18) is Verdict.EXCLUDE

    def test_a_schema_bomb_excludes_the_tool(self) -> None:
        """Case 125: thirty levels of two references each stand for a billion subschemas."""
        defs: dict[str, Any] = {f"L{n}": {"anyOf": [{"$ref": f"#/$defs/L{n + 1}"}] * 2} for n in range(30)}
        schema = tool(a={"$ref": "#/$defs/L0"}) | {"$defs": defs | {"L30": {}}}
        assert verdict(schema) is Verdict.EXCLUDE
        with pytest.raises(RemoteProtocolError):
            Validator(schema)

    def test_what_references_stand_for_is_bounded_at_the_limit_and_not_one_above(self) -> None:
        """Spec basic/index#composition-keyword-resource-use (SHOULD)."""
        # root + a + (B + two times (reference + C)) = 2 + 1 + 4
        schema = tool(a={"$ref": "#/$defs/B"}) | {"$defs": {"B": {"anyOf": [{"$ref": "#/$defs/C"}] * 2}, "C": {}}}
        assert verdict(schema, max_expanded=7) is None
        assert verdict(schema, max_expanded=6) is Verdict.EXCLUDE

    def test_recursive_references_are_fine(self) -> None:
        """Case 72: a tree, the root itself, two that refer to each other."""
        node = tool(c={"type": "array", "items": {"$ref": "#/$defs/N"}})
        assert verdict(tool(n={"$ref": "#/$defs/N"}) | {"$defs": {"N": node}}) is None
        assert verdict({"type": "object", "$ref": "#"}) is None
        assert verdict({"$ref": "#"}) is Verdict.EXCLUDE
        pair = {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}
        assert verdict(tool(a={"$ref": "#/$defs/A"}) | {"$defs": pair}) is None

    def test_many_schemas_that_refer_to_each_other_end(self) -> None:
        """Case 72, case 125: thirty definitions, each referring to all."""
        names = [f"D{n}" for n in range(30)]
        defs = {name: {"anyOf": [{"$ref": f"#/$defs/{other}"} for other in names]} for name in names}
        assert verdict(tool(a={"$ref": "#/$defs/D0"}) | {"$defs": defs}) in (None, Verdict.EXCLUDE)

    def test_output_schemas_may_have_any_root_type(self) -> None:
        """Spec server/tools#output-schema: any JSON value. Case 32: an unusable one is told, and the tool stays."""
        for schema in ({"type": "array", "items": STRING}, {"type": "string"}, {}, True, {"anyOf": [STRING]}):
            assert check_output_schema(schema) is None
            assert check_output_schema(json.dumps(schema).encode()) is None
        dangling = check_output_schema(tool(s={"$ref": "#/$defs/Missing"}))
        assert dangling is not None
        assert dangling.verdict is Verdict.SKIP_VALIDATION
        assert check_output_schema(None) is not None

    @given(SCHEMAS, st.booleans())
    def test_the_short_cut_never_changes_the_answer(self, inner: Any, as_root: bool) -> None:
        """Ours: JSON and decoded form give the same finding, and no input raises."""
        schema = inner if as_root else {"type": "object", "properties": {"A": inner}, "$defs": {"A": {}, "B": inner}}
        raw = msgspec.json.encode(schema)
        assert check_input_schema(raw) == check_input_schema(schema)
        assert check_output_schema(raw) == check_output_schema(schema)

    @given(SCHEMAS)
    def test_what_has_no_finding_can_be_walked_and_compiled_or_is_refused(self, inner: Any) -> None:
        """Ours: a validator exists, or says why not; it never raises anything else."""
        schema = {"type": "object", "properties": {"A": inner}}
        with suppress(RemoteProtocolError):
            Validator(schema).check({"A": {"B": [1, "x", None]}})


class TestReferences:
    DOCUMENT = SchemaDocument(
        {
            "$defs": {
                "A": {"type": "string", "$anchor": "anchored"},
                "a/b": {"title": "slash"},
                "c~d": {"title": "tilde"},
                "e%f": {"title": "percent"},
                "": {"title": "empty"},
                "list": {"anyOf": [{"title": "first"}, {"title": "second"}]},
                "embedded": {
                    "$id": "https://example.com/inner",
                    "$defs": {"I": {"title": "inner"}},
                    "items": {"$ref": "#/$defs/I"},
                },
                "yes": True,
            },
            "elsewhere": {"S": {"title": "elsewhere", "properties": {"deep": {"title": "deep"}}}},
            "properties": {"s": {"$ref": "#/elsewhere/S"}},
        }
    )

    @pytest.mark.parametrize(
        ("ref", "title"),
        [
            ("#/$defs/a~1b", "slash"),
            ("#/$defs/c~0d", "tilde"),
            ("#/$defs/e%25f", "percent"),
            ("#/%24defs/a~1b", "slash"),
            ("#/$defs/", "empty"),
            ("#/$defs/list/anyOf/1", "second"),
            ("#/elsewhere/S/properties/deep", "deep"),
            ("https://example.com/inner#/$defs/I", "inner"),
        ],
    )
    def test_pointers_and_their_escapes_are_followed(self, ref: str, title: str) -> None:
        """Case 72: pointer escapes `~0 ~1 %25`."""
        reference = self.DOCUMENT.resolve(ref)
        assert reference.kind is ReferenceKind.LOCAL
        assert reference.target["title"] == title

    def test_the_root_and_anchors_and_booleans_are_targets(self) -> None:
        """Spec JSON Schema 2020-12: `#`, `$anchor`, and boolean schemas."""
        assert self.DOCUMENT.resolve("#").target is self.DOCUMENT.root
        assert self.DOCUMENT.resolve("").target is self.DOCUMENT.root
        assert self.DOCUMENT.resolve("#anchored").target["type"] == "string"
        assert self.DOCUMENT.resolve("#/$defs/yes").target is True

    def test_a_reference_inside_an_embedded_resource_is_relative_to_it(self) -> None:
        """Spec JSON Schema 2020-12: `$id` changes what `#` means below it."""
        embedded = self.DOCUMENT.root["$defs"]["embedded"]
        assert self.DOCUMENT.resolve("#/$defs/I", at=embedded["items"]).target["title"] == "inner"
        assert self.DOCUMENT.resolve("#/$defs/I").kind is ReferenceKind.DANGLING

    @pytest.mark.parametrize(
        "ref", ["#/$defs/B", "#/$defs/list/anyOf/2", "#/$defs/list/anyOf/-1", "#/$defs/list/anyOf/01"]
    )
    def test_a_place_where_nothing_stands_is_dangling(self, ref: str) -> None:
        """Case 32."""
        assert self.DOCUMENT.resolve(ref).kind is ReferenceKind.DANGLING

    @pytest.mark.parametrize(
        "ref", ["x.json", "/x", "https://example.com/other#/$defs/A", "urn:x:y", "file:///etc/passwd", "http://[x"]
    )
    def test_what_is_elsewhere_is_external(self, ref: str) -> None:
        """Case 124: told apart, never fetched."""
        assert self.DOCUMENT.resolve(ref).kind is ReferenceKind.EXTERNAL

    def test_anchors_of_old_dialects_are_ids_that_start_with_a_hash(self) -> None:
        """Spec draft-07: `$id` with only a fragment; draft-04: `id`."""
        old = SchemaDocument({"definitions": {"A": {"$id": "#a", "title": "A"}}})
        assert old.resolve("#a").target["title"] == "A"
        oldest = SchemaDocument(
            {"$schema": "http://json-schema.org/draft-04/schema#", "definitions": {"A": {"id": "#a", "title": "A"}}}
        )
        assert oldest.resolve("#a").target["title"] == "A"

    def test_schemas_that_only_references_reach_are_part_of_the_document(self) -> None:
        """Ours: `#/components/schemas/A` is in use, and what stands there must not escape the bounds."""
        titles = [place.node.get("title") for place in self.DOCUMENT.places if isinstance(place.node, dict)]
        assert titles.count("elsewhere") == 1
        assert titles.count("deep") == 1


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


class TestValidation:
    def test_nothing_is_ever_fetched(self, listener: socket.socket) -> None:
        """Case 124; spec basic/index#ref-resolution (MUST NOT dereference network URIs); no file either."""
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/leak.json"
        for schema in (
            tool(a={"$ref": url}),
            tool(a={"$ref": f"{url}#/A"}),
            tool(a={"$dynamicRef": url}),
            tool(a=STRING) | {"$schema": url},
            tool(a={"$ref": "leak.json"}) | {"$id": url},
            tool(a={"$ref": "file:///etc/passwd"}),
            tool(a={"$schema": url, "$id": "https://example.com/inner", "type": "string"}),
            tool(a={"$ref": "#/x"}) | {"x": {"$ref": url}},
        ):
            check_input_schema(schema)
            check_output_schema(json.dumps(schema).encode())
            with suppress(RemoteProtocolError):
                Validator(schema).check({"a": "x"})
        with pytest.raises(BlockingIOError):
            listener.accept()

    @pytest.mark.parametrize(
        ("schema", "value", "told"),
        [
            ({"type": "integer"}, "x", 'the value: expected integer, got "x"'),
            ({"type": ["integer", "null"]}, "x", 'the value: expected null or integer, got "x"'),
            ({"required": ["city"]}, {}, "city: expected a value: it is required, got nothing"),
            ({"enum": ["a", None, 1]}, 2, 'the value: expected one of "a", null, 1, got 2'),
            ({"enum": list(range(50))}, -1, "the value: expected one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …, got -1"),
            ({"const": "a"}, [1], 'the value: expected "a", got a list of 1'),
            ({"minimum": 3}, 2, "the value: expected at least 3, got 2"),
            ({"maxLength": 3}, "x" * 500, f'the value: expected at most 3 characters, got "{"x" * 78}…'),
            ({"pattern": "^a"}, "b", 'the value: expected text that matches the pattern "^a", got "b"'),
            (
                {"properties": {"c": {}}, "additionalProperties": False},
                {"a": 1, "b": 2},
                "the value: expected no properties but the ones the schema names, got a, b",
            ),
            (
                {"properties": {"f": {"items": {"properties": {"name": STRING}}}}},
                {"f": [{"name": "x"}, {"name": {}}]},
                "f[1].name: expected string, got an object with 0 properties",
            ),
            (
                {"anyOf": [STRING, {"type": "null"}]},
                1,
                "the value: expected a value that matches at least one of the alternatives, got 1",
            ),
            (
                {"additionalProperties": False},
                {"a": 1},
                "the value: expected no properties but the ones the schema names, got 1",
            ),
            (False, True, "the value: expected nothing: no value is allowed here, got true"),
        ],
    )
    def test_a_violation_says_where_what_was_expected_and_what_was_there(
        self, schema: Any, value: Any, told: str
    ) -> None:
        """Ours: written for the person or the model that has to correct the value."""
        assert [str(violation) for violation in Validator(schema).check(value)] == [told]

    def test_a_value_that_matches_has_no_violation(self) -> None:
        """Spec basic/index#schema-validation; `format` is a remark."""
        validator = Validator(json.dumps(tool(a={"type": "string", "format": "email"}, b={"type": "integer"})).encode())
        assert validator.check({"a": "no address", "b": 1.0, "c": None}) == ()

    def test_violations_are_bounded(self) -> None:
        """Ours: a thousand mistakes are told as twenty."""
        assert len(Validator({"items": STRING}).check(list(range(1000)))) == 20

    @pytest.mark.parametrize("pattern", ["^(?:[\\s\\S]*)*\\x00", "(a+)+$", "(?=a)(a+)+$", "(a|a)*(?<!x)$"])
    def test_no_pattern_takes_long(self, pattern: str) -> None:
        """Case 121: catastrophic backtracking; the answer comes, whatever it is."""
        assert len(Validator({"pattern": pattern}).check("a" * 5000 + "b" + "a" * 5000 + "b")) <= 1

    @pytest.mark.parametrize(
        "schema", [{"pattern": "("}, {"required": "a"}, {"minimum": "1"}, {"pattern": "(((a{1000}){1000}){1000})"}]
    )
    def test_a_schema_that_is_not_valid_in_its_dialect_is_refused(self, schema: dict[str, Any]) -> None:
        """Spec basic/index#schema-validation (MUST be valid according to their dialect)."""
        with pytest.raises(RemoteProtocolError):
            Validator(schema)

    def test_references_that_never_end_are_no_trap(self) -> None:
        """Case 72: `{"$ref":"#"}` and A to B to A apply to nothing but themselves."""
        pair = {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}
        assert Validator({"$ref": "#"}).check({"a": [1]}) == ()
        assert Validator({"$ref": "#/$defs/A", "$defs": pair}).check({"a": [1]}) == ()

    def test_a_tree_is_checked_to_its_leaves(self) -> None:
        """Case 72: a recursive schema over a value of some depth."""
        node = {
            "type": "object",
            "properties": {"c": {"type": "array", "items": {"$ref": "#/$defs/N"}}, "v": {"type": "integer"}},
        }
        validator = Validator({"$ref": "#/$defs/N", "$defs": {"N": node}})
        value: dict[str, Any] = {"v": "x"}
        for _ in range(40):
            value = {"v": 1, "c": [value, value] if value.get("v") == "x" else [value]}
        assert [violation.path[-1] for violation in validator.check(value)] == ["v", "v"]

    def test_work_that_doubles_with_each_level_is_refused_before_it_starts(self) -> None:
        """Spec basic/index#composition-keyword-resource-use (SHOULD): a time budget, as a bound known beforehand."""
        again = {"properties": {"c": {"$ref": "#/$defs/N"}}, "required": ["c", "x"]}
        validator = Validator({"$ref": "#/$defs/N", "$defs": {"N": {"anyOf": [again, again, again]}}})
        value: dict[str, Any] = {}
        for _ in range(10):
            value = {"c": value}
        (violation,) = validator.check(value)
        assert violation.expected == "a value that matches its schema"
        for _ in range(10):
            value = {"c": value}
        with pytest.raises(LimitExceeded):
            validator.check(value)

    def test_evaluations_are_bounded_at_the_limit_and_not_one_above(self) -> None:
        """Ours: a list of n strings costs n + 1."""
        schema = {"items": STRING}
        assert Validator(schema, limits=SchemaLimits(max_evaluations=6)).check(["a"] * 5) == ()
        with pytest.raises(LimitExceeded):
            Validator(schema, limits=SchemaLimits(max_evaluations=6)).check(["a"] * 6)

    def test_values_are_bounded_in_depth_at_the_limit_and_not_one_above(self) -> None:
        """Case 125: the validator recurses, so the value must not be deeper than any stack."""
        validator = Validator({"items": {"$ref": "#"}})
        value: Any = 1
        for _ in range(200):
            value = [value]
        assert validator.check(value) == ()
        with pytest.raises(LimitExceeded):
            validator.check([value])

    @pytest.mark.parametrize("value", [object(), {1: 2}, {"a": {1, 2}}, b"x"])
    def test_a_value_that_is_no_json_is_our_own_callers_mistake(self, value: object) -> None:
        """Ours."""
        with pytest.raises(LocalProtocolError):
            Validator(tool(a={"items": STRING}) | {"additionalProperties": STRING}).check(value)
