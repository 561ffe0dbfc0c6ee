"""Schemas that broke others, for every vendor."""

from __future__ import annotations

import json
from typing import Any

import pytest

from catalog.formats.documented import complaints, inside
from outrider.catalog.formats import Offered, ToolRef, Vendor, offer

VENDORS = pytest.mark.parametrize("vendor", list(Vendor))
REF = ToolRef("srv", "tool")


def made(vendor: Vendor, schema: Any, **more: Any) -> Offered:
    offered = offer(vendor, [(REF, {"name": "tool", "description": "d", "inputSchema": schema})], **more)
    assert not complaints(vendor, offered.tools)
    return offered


def shown(vendor: Vendor, schema: Any, **more: Any) -> dict[str, Any]:
    tool = made(vendor, schema, **more).tools[0]
    if vendor is Vendor.GEMINI:
        return tool["functionDeclarations"][0]["parametersJsonSchema"]
    return tool["input_schema"] if vendor is Vendor.ANTHROPIC else tool.get("function", tool)["parameters"]


@VENDORS
@pytest.mark.parametrize("where", ["$defs", "definitions"])
def test_definitions_come_along(vendor: Vendor, where: str) -> None:
    """Case 71: definitions are carried or put in place; nothing dangles."""
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": f"#/{where}/A"}},
        where: {"A": {"type": "string", "enum": ["x", "y"]}},
    }
    assert '"enum": ["x", "y"' in json.dumps(shown(vendor, schema))


@VENDORS
def test_a_reference_to_another_property_is_followed(vendor: Vendor) -> None:
    """Case 71: references to `#/properties/x` too."""
    schema = {
        "type": "object",
        "required": ["a", "b"],
        "properties": {"a": {"type": "integer", "minimum": 1}, "b": {"$ref": "#/properties/a"}},
    }
    assert shown(vendor, schema)["properties"]["b"] == {"type": "integer", "minimum": 1}


LOOP = {
    "$defs": {"N": {"type": "object", "properties": {"c": {"type": "array", "items": {"$ref": "#/$defs/N"}}}}},
    "type": "object",
    "properties": {"n": {"$ref": "#/$defs/N"}},
}
ODD_REFERENCES = [
    LOOP,
    {"type": "object", "properties": {"self": {"$ref": "#"}}},
    {
        "$ref": "#/$defs/A",
        "$defs": {
            "A": {"type": "object", "properties": {"b": {"$ref": "#/$defs/B"}}},
            "B": {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}},
        },
    },
    {"type": "object", "properties": {"x": {"$ref": "#/$defs/a~1b~0c%25"}}, "$defs": {"a/b~c%": {"type": "string"}}},
    {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/A"}},
        "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}},
    },
    {
        "type": "object",
        "required": ["n"],
        "properties": {"n": {"$ref": "#/$defs/N"}},
        "$defs": {"N": {"type": "object", "properties": {"n": {"$ref": "#/$defs/N"}}, "required": ["n"]}},
    },
]


@VENDORS
@pytest.mark.parametrize("strict", ["auto", True])
@pytest.mark.parametrize("schema", ODD_REFERENCES, ids=range(len(ODD_REFERENCES)))
def test_recursion_ends(vendor: Vendor, schema: dict[str, Any], strict: Any) -> None:
    """Case 72: cycles are kept as references or cut; the tool stays."""
    assert not made(vendor, schema, strict=strict).left_out


ROOTS = [
    {
        "type": "object",
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
    },
    {
        "anyOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"type": "object", "properties": {"b": {"type": "integer"}}},
        ]
    },
    {
        "oneOf": [{"$ref": "#/$defs/A"}, {"type": "null"}],
        "type": "object",
        "$defs": {"A": {"type": "object", "properties": {"a": {"type": "string"}}}},
    },
    {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}},
            {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]},
        ]
    },
    {"properties": {"a": {"type": "string"}}},
]


@VENDORS
@pytest.mark.parametrize("schema", ROOTS, ids=range(len(ROOTS)))
def test_composition_at_the_root_is_merged(vendor: Vendor, schema: dict[str, Any]) -> None:
    """Case 73: merged for the provider, the original is kept for the way back; never fatal."""
    offered = made(vendor, schema)
    assert "a" in shown(vendor, schema)["properties"]
    assert offered.entries[REF].input_schema == schema


def test_what_a_merged_root_no_longer_says_is_in_its_description() -> None:
    """Case 73: the model still learns that one of the two is needed."""
    assert "a or b" in shown(Vendor.ANTHROPIC, ROOTS[0])["description"]
    assert [str(loss) for loss in made(Vendor.ANTHROPIC, ROOTS[0]).entries[REF].losses] == [
        "#/inputSchema/anyOf: the choices are merged into one object with the properties of all (told)"
    ]


DIALECTS = [
    "",
    "https://json-schema.org/draft/2020-12/schema",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft-07/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-04/schema#",
    "https://example.com/mine",
]


@VENDORS
@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_is_offered_alike(vendor: Vendor, dialect: str) -> None:
    """Case 79: no dialect drops the tool."""
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    declared = {"$schema": dialect, **schema} if dialect else schema
    assert made(vendor, declared).tools == made(vendor, schema).tools


@VENDORS
def test_what_draft_4_says_is_said_in_new_words(vendor: Vendor) -> None:
    """Case 79 and 127: a boolean exclusiveMinimum and a list of items mean what they meant."""
    schema = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": "object",
        "properties": {
            "n": {"type": "integer", "minimum": 0, "exclusiveMinimum": True},
            "t": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}], "additionalItems": False},
        },
        "required": ["n", "t"],
    }
    n = shown(vendor, schema)["properties"]["n"]
    assert n == (
        {"type": "integer", "minimum": 1} if vendor is Vendor.GEMINI else {"type": "integer", "exclusiveMinimum": 0}
    )


@VENDORS
@pytest.mark.parametrize(
    "ref", ["http://127.0.0.1:9/leak.json", "file:///etc/passwd", "#/$defs/Missing", "other.json#/A"]
)
def test_references_out_of_the_schema_are_cut_not_followed(vendor: Vendor, ref: str) -> None:
    """Case 124 and 32: nothing is fetched; the tool stays, and the account says what is gone."""
    offered = made(
        vendor, {"type": "object", "properties": {"a": {"$ref": ref, "description": "x"}, "b": {"type": "string"}}}
    )
    assert any(loss.keyword == "$ref" for loss in offered.entries[REF].losses)
    assert ref not in json.dumps(offered.tools)


@VENDORS
@pytest.mark.parametrize(
    ("pattern", "stays"), [("^[a-z]+$", True), (r"^\p{L}+$", True), ("(?!x)y", True), ("(", False), ("*a", False)]
)
def test_a_pattern_that_is_none_is_left_out(vendor: Vendor, pattern: str, stays: bool) -> None:
    """Case 30, for what goes out: a vendor that checks schemas would refuse the whole request."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
    offered = made(vendor, {**schema, "patternProperties": {pattern: {"type": "string"}}})
    told = {loss.detail for loss in offered.entries[REF].losses}
    assert ("is not a regular expression" not in told) is stays
    assert ("holds what is not a regular expression" not in told) is stays
    if not stays:
        assert json.dumps(pattern) not in json.dumps(offered.tools)


@VENDORS
@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef", "$recursiveRef"])
@pytest.mark.parametrize("value", [5, ["#"], {}, True])
def test_a_reference_that_is_no_text_costs_itself(vendor: Vendor, keyword: str, value: Any) -> None:
    """Case 32: the tool stays, wherever the reference stands; the account says what is gone."""
    for schema in ({"type": "object", keyword: value}, {"type": "object", "properties": {"a": {keyword: value}}}):
        offered = made(vendor, schema)
        assert any(loss.keyword == keyword for loss in offered.entries[REF].losses)
        assert keyword not in json.dumps(offered.tools)


@VENDORS
def test_a_bomb_does_not_explode(vendor: Vendor) -> None:
    """Case 125: what doubles with each level is left out, or stays as small as it came."""
    levels: dict[str, Any] = {
        f"L{i}": {"anyOf": [{"$ref": f"#/$defs/L{i + 1}"}, {"$ref": f"#/$defs/L{i + 1}"}]} for i in range(30)
    }
    schema = {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/L0"}},
        "$defs": {**levels, "L30": {"type": "string"}},
    }
    good = (ToolRef("srv", "good"), {"name": "good", "inputSchema": {"type": "object"}})
    offered = offer(vendor, [(REF, {"name": "tool", "inputSchema": schema}), good])
    assert ToolRef("srv", "good") in offered.entries
    assert len(json.dumps(offered.tools)) < 20_000
    deep: Any = {"type": "string"}
    for _ in range(10_000):
        deep = {"type": "array", "items": deep}
    offered = offer(vendor, [(REF, {"name": "t", "inputSchema": {"type": "object", "properties": {"a": deep}}}), good])
    assert [left.ref for left in offered.left_out] == [REF]
    assert list(offered.entries) == [ToolRef("srv", "good")]


KEYWORDS = [
    {"type": "array"},
    {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]},
    {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]},
    {"type": ["string", "null"]},
    {"type": ["object", "null"], "properties": {"a": {"type": "string"}}},
    {"type": ["array", "string"], "items": {"type": "string"}},
    {"const": "x"},
    {"const": None},
    {"enum": ["a", None, 1, True]},
    {"type": "string", "enum": ["a", None]},
    {"type": "number", "exclusiveMinimum": 0},
    {"type": "string", "format": "uri"},
    {"type": "object"},
    {"type": "object", "additionalProperties": {"type": "integer"}},
    {"not": {"type": "string"}},
    {"oneOf": [{"type": "string"}, {"type": "integer"}]},
    {"if": {"const": 1}, "then": {"type": "integer"}},
    {"type": "str"},
    {"type": "made up"},
    {},
    True,
]


@VENDORS
@pytest.mark.parametrize("strict", ["auto", True])
@pytest.mark.parametrize("inner", KEYWORDS, ids=json.dumps)
def test_one_tool_per_keyword(vendor: Vendor, inner: Any, strict: Any) -> None:
    """Case 127: arrays without items, tuples, unions, const, format: adapted on a copy."""
    schema = {"type": "object", "properties": {"p": inner}, "required": ["p"]}
    before = json.dumps(schema)
    assert "p" in shown(vendor, schema, strict=strict)["properties"]
    assert json.dumps(schema) == before


@VENDORS
def test_parameters_named_like_keywords_are_parameters(vendor: Vendor) -> None:
    """Case 127: walkers know a keyword from a name."""
    names = ["properties", "items", "type", "title", "required", "enum", "anyOf", "description", "default", "format"]
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": names}
    assert {name: inner["type"] for name, inner in shown(vendor, schema)["properties"].items()} == dict.fromkeys(
        names, "string"
    )


@VENDORS
def test_one_bad_tool_of_ten_costs_that_tool(vendor: Vendor) -> None:
    """Case 30: the nine stay; the tenth is left out with a reason that names it."""
    bad = [
        None,
        [],
        "x",
        {"type": "string"},
        {"anyOf": [{"type": "string"}]},
        {"$schema": "https://json-schema.org/draft/2020-12/schema"},
    ]
    good = [(ToolRef("srv", f"t{n}"), {"name": f"t{n}", "inputSchema": {"type": "object"}}) for n in range(9)]
    for schema in bad:
        offered = offer(vendor, [*good, (REF, {"name": "tool", "inputSchema": schema})])
        assert len(offered.entries) == 9
        assert [left.ref for left in offered.left_out] == [REF]
        assert str(offered.left_out[0]).startswith("srv/tool is left out: its inputSchema")


def test_text_that_is_not_unicode_costs_one_tool() -> None:
    """Ours: half a surrogate cannot be sent; the rest can."""
    schema = {"type": "object", "properties": {"a": {"description": "\ud800", "type": "string"}}}
    offered = offer(
        "openai",
        [(REF, {"name": "t", "inputSchema": schema}), (ToolRef("s", "b"), {"inputSchema": {"type": "object"}})],
    )
    assert list(offered.entries) == [ToolRef("s", "b")]


def test_more_tools_than_a_vendor_takes_are_reported_not_dropped_in_silence() -> None:
    """Case 61: limits are reported, never applied silently."""
    tools = [(ToolRef("s", f"t{n}"), {"inputSchema": {"type": "object"}}) for n in range(130)]
    assert [left.ref.name for left in offer("openai", tools).left_out] == ["t128", "t129"]
    assert not offer("anthropic", tools).left_out


@pytest.mark.parametrize(("chars", "is_cut"), [(1024, False), (1025, True)])
def test_a_description_is_cut_where_the_vendor_would_refuse_it(chars: int, is_cut: bool) -> None:
    """Ours: at the limit it stays, one above it is cut and said to be."""
    offered = offer("openai", [(REF, {"description": "d" * chars, "inputSchema": {"type": "object"}})])
    assert len(offered.tools[0]["function"]["description"]) == 1024
    assert any(change.path == ("description",) for change in offered.entries[REF].losses) is is_cut


def test_members_without_a_place_are_accounted_for() -> None:
    """Case 118: what a vendor has no place for is lost only for the model, and said to be."""
    wire = {
        "name": "tool",
        "title": "T",
        "description": "d",
        "inputSchema": {"type": "object"},
        "outputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
        "icons": None,
        "_meta": {"a": 1},
        "x-future": 1,
    }
    offered = offer("openai", [(REF, wire)])
    assert {loss.path[0] for loss in offered.entries[REF].losses} == {
        "title",
        "outputSchema",
        "annotations",
        "_meta",
        "x-future",
    }


def test_strict_where_the_schema_allows_it_without_another_meaning() -> None:
    """Ours: optional becomes a union with null, every object is closed, and the tool says strict."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "integer"}, "c": {"enum": ["x"]}},
        "required": ["a"],
    }
    function = made(Vendor.OPENAI, schema).tools[0]["function"]
    assert function["strict"] is True
    assert function["parameters"] == {
        "type": "object",
        "properties": {
            "a": {"type": "string"},
            "b": {"type": ["integer", "null"]},
            "c": {"type": ["string", "null"], "enum": ["x", None]},
        },
        "required": ["a", "b", "c"],
        "additionalProperties": False,
    }
    assert not made(Vendor.OPENAI, schema).losses
    assert "strict" not in made(Vendor.OPENAI, schema, strict=False).tools[0]["function"]
    assert "strict" not in made(Vendor.ANTHROPIC, schema).tools[0]
    assert made(Vendor.ANTHROPIC, schema, strict=True).tools[0]["strict"] is True


@pytest.mark.parametrize(
    "inner",
    [
        {"type": "object"},
        {"type": "string", "minLength": 2},
        {"type": "array"},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": ["string", "null"], "default": "x"},
        {},
    ],
    ids=json.dumps,
)
def test_not_strict_where_the_meaning_would_change(inner: Any) -> None:
    """Ours: free-form objects, constraints strict mode has no word for, and a default that null would hide keep a tool loose."""
    offered = made(Vendor.OPENAI, {"type": "object", "properties": {"p": inner}})
    assert "strict" not in offered.tools[0]["function"]
    assert offered.entries[REF].not_strict
    assert offered.tools[0]["function"]["parameters"]["properties"]["p"].get("minLength") == inner.get("minLength")


def test_a_vendors_budget_for_strict_tools_is_kept() -> None:
    """Ours: Anthropic takes 20 strict tools and 24 optional parameters in them; the others go out as ordinary tools."""
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
    tools = [(ToolRef("s", f"t{n}"), {"inputSchema": schema}) for n in range(30)]
    offered = offer("anthropic", tools, strict=True)
    assert sum("strict" in tool for tool in offered.tools) == 12
    assert not complaints("anthropic", offered.tools)


@pytest.mark.parametrize("vendor", [Vendor.ANTHROPIC, Vendor.GEMINI])
def test_parameter_names_that_a_vendor_refuses_get_aliases(vendor: Vendor) -> None:
    """Ours: an alias that can be read, the original in its description, and `required` follows."""
    schema = {
        "type": "object",
        "properties": {"$top": {"type": "integer"}, "top": {"type": "string"}, "名前": {}},
        "required": ["$top"],
    }
    offered = made(vendor, schema)
    aliases = offered.entries[REF].parameter_aliases
    assert set(aliases.values()) == {"$top", "名前"}
    parameters = shown(vendor, schema)
    (shown_top,) = (alias for alias, own in aliases.items() if own == "$top")
    assert parameters["required"] == [shown_top]
    assert "original name: $top" in parameters["properties"][shown_top]["description"]


def test_a_draft_7_schema_goes_out_without_old_words() -> None:
    """Case 127: a tuple of draft 7 is a tuple of 2020-12."""
    schema = {
        "type": "object",
        "properties": {"t": {"type": "array", "items": [{"type": "string"}]}},
        "dependencies": {"t": ["u"]},
    }
    parameters = shown(Vendor.ANTHROPIC, schema)
    assert parameters["properties"]["t"]["prefixItems"] == [{"type": "string"}]
    assert parameters["dependentRequired"] == {"t": ["u"]}
    assert not any("dependencies" in node for _, node in inside(parameters))
