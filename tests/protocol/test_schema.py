"""JSON Schema from servers: where subschemas are, which dialect is meant, where references lead."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import LimitExceeded, RemoteProtocolError
from outrider.protocol.schema import (
    KEYWORDS,
    Dialect,
    Holds,
    ReferenceKind,
    SchemaDocument,
    SchemaLimits,
    Subschema,
    dialect_of,
    render_pointer,
    subschemas,
)
from outrider.protocol.schema_findings import Verdict
from outrider.protocol.schema_validation import Validator
from protocol.schemas import STRING, tool, verdict


def places(schema: Any) -> list[str]:
    return [render_pointer(place.path) for place in subschemas(schema)]


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
