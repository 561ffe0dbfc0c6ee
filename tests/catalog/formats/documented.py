"""What vendors say about tool definitions, as checks. Written from their pages, not from our converter; docs/models.md names the pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs

OPENAI_NAME = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")
GEMINI_NAME = re.compile(r"^[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}$")
ANTHROPIC_PROPERTY = re.compile(r"^[a-zA-Z0-9_.-]{1,64}$")
GEMINI_PROPERTY = re.compile(r"^[a-zA-Z_][a-zA-Z0-9_]{0,63}$")

# "Supported schemas" of the Structured Outputs guide.
OPENAI_STRICT = {
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "enum",
    "const",
    "anyOf",
    "$ref",
    "$defs",
    "description",
    "title",
    "pattern",
    "format",
    "multipleOf",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "minItems",
    "maxItems",
}
OPENAI_FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
# The list at `responseJsonSchema` of the Gemini API reference.
GEMINI = {
    "$id",
    "$defs",
    "$ref",
    "$anchor",
    "type",
    "format",
    "title",
    "description",
    "enum",
    "items",
    "prefixItems",
    "minItems",
    "maxItems",
    "minimum",
    "maximum",
    "anyOf",
    "oneOf",
    "properties",
    "additionalProperties",
    "required",
    "propertyOrdering",
}
# "JSON Schema limitations" of the Structured outputs page.
ANTHROPIC_STRICT = {
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "enum",
    "const",
    "anyOf",
    "allOf",
    "$ref",
    "$defs",
    "definitions",
    "description",
    "title",
    "default",
    "format",
    "minItems",
    "pattern",
}
ANTHROPIC_FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}
PRIMITIVE = (str, int, float, bool, type(None))

LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
ONE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedItems")
NAMED = ("properties", "$defs", "patternProperties", "dependentSchemas", "definitions")


def inside(schema: Any, where: str = "#") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every subschema with where it stands."""
    if not isinstance(schema, dict):
        return
    yield where, schema
    for keyword in LISTS:
        for index, inner in enumerate(schema.get(keyword, ())):
            yield from inside(inner, f"{where}/{keyword}/{index}")
    for keyword in (*ONE, "unevaluatedProperties"):
        yield from inside(schema.get(keyword), f"{where}/{keyword}")
    for keyword in NAMED:
        for name, inner in schema.get(keyword, {}).items():
            yield from inside(inner, f"{where}/{keyword}/{name}")


def types(node: dict[str, Any]) -> list[str]:
    declared = node.get("type", [])
    return declared if isinstance(declared, list) else [declared]


def references(schema: dict[str, Any]) -> Iterator[str]:
    for where, node in inside(schema):
        if "$ref" in node:
            ref = node["$ref"]
            if not re.fullmatch(r"#/\$defs/[A-Za-z0-9_]+", ref) or ref[8:] not in schema.get("$defs", {}):
                yield f"{where}: {ref} leads nowhere"


def recursive(schema: dict[str, Any]) -> set[str]:
    direct = {
        name: {node["$ref"][8:] for _, node in inside(definition) if "$ref" in node}
        for name, definition in schema.get("$defs", {}).items()
    }
    for _ in direct:
        for name in direct:
            direct[name] |= {far for near in list(direct[name]) for far in direct.get(near, ())}
    return {name for name, reached in direct.items() if name in reached}


def no_root(schema: dict[str, Any], refused: tuple[str, ...]) -> Iterator[str]:
    if schema.get("type") != "object":
        yield "#: the root is not of type object"
    yield from (f"#: {keyword} at the root" for keyword in refused if keyword in schema)


def openai(function: dict[str, Any]) -> Iterator[str]:
    if not OPENAI_NAME.fullmatch(function["name"]):
        yield f"name {function['name']!r}"
    if len(function.get("description", "")) > 1024:
        yield "description too long"
    schema = function["parameters"]
    yield from no_root(schema, ("oneOf", "anyOf", "allOf", "enum", "const", "not"))
    yield from references(schema)
    if "properties" not in schema:
        yield "#: object schema missing properties"
    jsonschema_rs.Draft202012Validator(schema)
    for where, node in inside(schema):
        if "array" in types(node) and not isinstance(node.get("items"), dict | bool):
            yield f"{where}: array schema missing items"
    if function.get("strict"):
        yield from openai_strict(schema)


def openai_strict(schema: dict[str, Any]) -> Iterator[str]:
    for where, node in inside(schema):
        yield from (f"{where}: {keyword} in strict mode" for keyword in node if keyword not in OPENAI_STRICT)
        if "$ref" in node:
            if set(node) != {"$ref"}:
                yield f"{where}: $ref with siblings"
            continue
        if not ("type" in node or "anyOf" in node):
            yield f"{where}: no type"
        if "object" in types(node) or "properties" in node:
            if node.get("additionalProperties") is not False:
                yield f"{where}: additionalProperties is not false"
            if sorted(node.get("required", [])) != sorted(node.get("properties", {})):
                yield f"{where}: required does not name every property"
        if "format" in node and node["format"] not in OPENAI_FORMATS:
            yield f"{where}: format {node['format']}"
        if not all(isinstance(option, PRIMITIVE) for option in node.get("enum", ())):
            yield f"{where}: enum of objects"
    if sum(len(node.get("properties", {})) for _, node in inside(schema)) > 5000:
        yield "more than 5,000 properties"
    if sum(len(node.get("enum", ())) for _, node in inside(schema)) > 1000:
        yield "more than 1,000 enum values"
    if max(where.count("/properties/") for where, _ in inside(schema)) > 10:
        yield "more than 10 levels"


def anthropic(tool: dict[str, Any]) -> Iterator[str]:
    if not OPENAI_NAME.fullmatch(tool["name"]):
        yield f"name {tool['name']!r}"
    schema = tool["input_schema"]
    yield from no_root(schema, ("oneOf", "anyOf", "allOf"))
    yield from references(schema)
    jsonschema_rs.Draft202012Validator(schema)
    for name in schema.get("properties", {}):
        if not ANTHROPIC_PROPERTY.fullmatch(name):
            yield f"property {name!r}"
    if not tool.get("strict"):
        return
    if recursive(schema):
        yield "recursive"
    for where, node in inside(schema):
        yield from (f"{where}: {keyword} in strict mode" for keyword in node if keyword not in ANTHROPIC_STRICT)
        if ("object" in types(node) or "properties" in node) and node.get("additionalProperties") is not False:
            yield f"{where}: additionalProperties is not false"
        if "format" in node and node["format"] not in ANTHROPIC_FORMATS:
            yield f"{where}: format {node['format']}"
        if node.get("minItems", 0) > 1:
            yield f"{where}: minItems above 1"
        if not all(isinstance(option, PRIMITIVE) for option in node.get("enum", ())):
            yield f"{where}: enum of complex values"
        if re.search(r"\(\?[=!<]|\\b|\\B|\\[1-9]", node.get("pattern", "")):
            yield f"{where}: pattern"


def gemini(declaration: dict[str, Any]) -> Iterator[str]:
    if not GEMINI_NAME.fullmatch(declaration["name"]):
        yield f"name {declaration['name']!r}"
    if not declaration.get("description"):
        yield "no description"
    schema = declaration.get("parametersJsonSchema")
    if schema is None:
        return
    yield from no_root(schema, ("oneOf", "anyOf", "allOf"))
    yield from references(schema)
    if not schema.get("properties") and not schema.get("additionalProperties"):
        yield "properties should be non-empty"
    jsonschema_rs.Draft202012Validator(schema)
    for where, node in inside(schema):
        yield from (f"{where}: {keyword}" for keyword in node if keyword not in GEMINI)
        if "$ref" in node and any(not keyword.startswith("$") for keyword in node):
            yield f"{where}: $ref with siblings"
        if isinstance(node.get("type"), list):
            yield f"{where}: list of types"
        if "array" in types(node) and "items" not in node:
            yield f"{where}: missing items"
        if ("properties" in node or "required" in node) and types(node) != ["object"]:
            yield f"{where}: properties only allowed for OBJECT"
        if "items" in node and types(node) != ["array"]:
            yield f"{where}: items only allowed for ARRAY"
        yield from (
            f"{where}: {n!r} is required, not defined"
            for n in node.get("required", ())
            if n not in node.get("properties", {})
        )
        for option in node.get("enum", ()):
            if not isinstance(option, str | int | float) or isinstance(option, bool):
                yield f"{where}: enum value {option!r}"
        for name in node.get("properties", {}):
            if not GEMINI_PROPERTY.fullmatch(name):
                yield f"{where}: property {name!r}"
    yield from cycles(schema)


def cycles(schema: dict[str, Any]) -> Iterator[str]:
    """Cyclic references may only be used within non-required properties: without those, following references must end."""

    def needed(node: Any) -> Iterator[str]:
        if not isinstance(node, dict):
            return
        if "$ref" in node:
            yield node["$ref"][8:]
        for name, inner in node.get("properties", {}).items():
            if name in node.get("required", ()):
                yield from needed(inner)
        for keyword in LISTS:
            for inner in node.get(keyword, ()):
                yield from needed(inner)
        for keyword in ("items", "additionalProperties"):
            yield from needed(node.get(keyword))

    edges = {name: set(needed(definition)) for name, definition in schema.get("$defs", {}).items()}
    for _ in edges:
        for name in edges:
            edges[name] |= {far for near in list(edges[name]) for far in edges.get(near, ())}
    yield from (f"$defs/{name} needs itself" for name in edges if name in edges[name])


def mistral(function: dict[str, Any]) -> Iterator[str]:
    if not OPENAI_NAME.fullmatch(function["name"]):
        yield f"name {function['name']!r}"
    schema = function["parameters"]
    yield from no_root(schema, ("oneOf", "anyOf", "allOf"))
    yield from references(schema)
    if "properties" not in schema:
        yield "#: no properties"
    jsonschema_rs.Draft7Validator(schema)  # what mistral-common checks


def complaints(vendor: str, tools: list[dict[str, Any]]) -> list[str]:
    """What the vendor would refuse in `tools`."""
    found: list[str] = []
    if vendor.startswith("openai") and len(tools) > 128:
        found.append("more than 128 tools")
    if vendor == "openai":
        for tool in tools:
            assert set(tool) == {"type", "function"}
            assert tool["type"] == "function"
            found += openai(tool["function"])
    elif vendor == "openai-responses":
        for tool in tools:
            assert tool["type"] == "function"
            assert isinstance(tool["strict"], bool)  # required, and true if absent
            found += openai(tool)
    elif vendor == "anthropic":
        for tool in tools:
            assert set(tool) <= {"name", "description", "input_schema", "strict"}
            found += anthropic(tool)
        strict = [tool["input_schema"] for tool in tools if tool.get("strict")]
        if len(strict) > 20:
            found.append("more than 20 strict tools")
        optional = sum(
            len(set(node.get("properties", {})) - set(node.get("required", ())))
            for s in strict
            for _, node in inside(s)
        )
        if optional > 24:
            found.append("more than 24 optional parameters in strict tools")
        unions = sum("anyOf" in node or isinstance(node.get("type"), list) for s in strict for _, node in inside(s))
        if unions > 16:
            found.append("more than 16 unions in strict tools")
    elif vendor == "gemini":
        assert len(tools) <= 1
        declarations = [d for tool in tools for d in tool["functionDeclarations"]]
        if len(declarations) > 512:
            found.append("more than 512 declarations")
        for declaration in declarations:
            assert set(declaration) <= {"name", "description", "parametersJsonSchema"}
            found += gemini(declaration)
    else:
        for tool in tools:
            assert tool["type"] == "function"
            found += mistral(tool["function"])
    return found
