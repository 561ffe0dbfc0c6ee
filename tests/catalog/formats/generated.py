"""Random schemas with random values that they accept, and the differences between two schemas, for properties of the formats."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from hypothesis import strategies as st

from outrider.errors import OutriderError
from outrider.protocol.schema_validation import Validator

NAMES = st.sampled_from(
    [
        "a",
        "b",
        "c",
        "items",
        "type",
        "$ref",
        "properties",
        "required",
        "$top",
        "x y",
        "名前",
        "a.b",
        "q" * 70,
        "_a",
        "1st",
        "x-y",
    ]
)
TEXTS = st.sampled_from(["", "x", "abc", "hello world", "2026-01-01", "é"])
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-3, 12), st.sampled_from([0.5, 2.0]), TEXTS)
REFS = ["Leaf", "Thing", "Node", "Choice"]


def remarks() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {},
        optional={"description": st.sampled_from(["what it is", "d"]), "title": st.sampled_from(["T", "Long title"])},
    )


@st.composite
def leaves(draw: Any) -> Any:
    kind = draw(st.integers(0, 13))
    out: dict[str, Any] = draw(remarks())
    match kind:
        case 0 | 1:
            limits = {
                "minLength": st.integers(0, 2),
                "maxLength": st.integers(3, 20),
                "pattern": st.sampled_from(["^[a-z]", "o", "(?=h)h"]),
                "format": st.sampled_from(["date-time", "uri", "email", "color", "date"]),
                "default": TEXTS,
                "examples": st.just(["x"]),
            }
            out |= {"type": "string", **draw(st.fixed_dictionaries({}, optional=limits))}
        case 2 | 3:
            bounds = {
                "minimum": st.integers(-3, 2),
                "maximum": st.integers(3, 9),
                "exclusiveMinimum": st.integers(-4, 1),
                "exclusiveMaximum": st.integers(4, 9),
                "multipleOf": st.just(1),
                "default": st.integers(0, 3),
            }
            out |= {
                "type": draw(st.sampled_from(["integer", "number"])),
                **draw(st.fixed_dictionaries({}, optional=bounds)),
            }
        case 4:
            out["type"] = draw(st.sampled_from(["boolean", "null"]))
        case 5:
            out["enum"] = draw(st.lists(SCALARS, min_size=1, max_size=4, unique_by=json.dumps))
        case 6:
            out |= {"type": "string", "enum": draw(st.lists(TEXTS, min_size=1, max_size=3, unique=True))}
        case 7:
            out["const"] = draw(st.one_of(SCALARS, st.just({"a": 1}), st.just([1])))
        case 8:
            out["type"] = draw(
                st.lists(st.sampled_from(["string", "integer", "null", "boolean"]), min_size=1, max_size=3, unique=True)
            )
            if draw(st.booleans()):
                out["maxLength"] = 6
        case 9:
            return draw(st.sampled_from([True, {}]))
        case 10 | 11:
            out["$ref"] = f"#/$defs/{draw(st.sampled_from(REFS))}"
        case 12:
            out |= {"x-vendor": 1, "deprecated": True, "type": "string", "readOnly": False}
        case 13:
            out |= {"type": "string", "contentEncoding": "base64"}
    return out


@st.composite
def objects(draw: Any, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    named = draw(st.dictionaries(NAMES, inner, max_size=3))
    out: dict[str, Any] = {"type": "object", **draw(remarks()), "properties": named}
    if named and draw(st.booleans()):
        out["required"] = draw(st.lists(st.sampled_from(sorted(named)), unique=True, min_size=1))
    match draw(st.integers(0, 11)):
        case 0 | 1 | 2:
            out["additionalProperties"] = False
        case 3:
            out["additionalProperties"] = draw(st.sampled_from([True, {"type": "string"}]))
        case 4:
            out["patternProperties"] = {"^p_": {"type": "integer"}}
        case 5:
            out["maxProperties"] = 5
        case 6 if named:
            out["dependentRequired"] = {min(named): sorted(named)[:2]}
        case 7 if named:
            out["if"] = {"required": [min(named)]}
            out["then"] = {"minProperties": 1}
        case 8:
            del out["type"]
    return out


@st.composite
def composites(draw: Any, inner: st.SearchStrategy[Any]) -> Any:
    out: dict[str, Any] = {}
    match draw(st.integers(0, 9)):
        case 0 | 1 | 2:
            return draw(objects(inner))
        case 3:
            out |= {"type": "array", "items": draw(inner), **draw(remarks())}
            out |= draw(
                st.fixed_dictionaries({}, optional={"minItems": st.integers(0, 2), "uniqueItems": st.just(True)})
            )
        case 4:
            out |= {"type": "array", "prefixItems": draw(st.lists(inner, min_size=1, max_size=2))}
            if draw(st.booleans()):
                out["items"] = draw(st.one_of(st.just(False), inner))
        case 5:
            out = draw(st.sampled_from([{"type": "array"}, {"type": "object"}, {"type": ["array", "null"]}]))
        case 6:
            out[draw(st.sampled_from(["anyOf", "oneOf"]))] = draw(st.lists(inner, min_size=1, max_size=3))
            out |= draw(remarks())
        case 7:
            out["allOf"] = draw(st.lists(st.one_of(objects(inner), leaves()), min_size=1, max_size=2))
            out |= draw(remarks())
        case 8:
            out = {**draw(objects(inner)), "type": ["object", "null"]}
        case 9:
            out = {"not": {"type": "string", "maxLength": 1}}
    return out


def parts() -> st.SearchStrategy[Any]:
    return st.recursive(leaves(), composites, max_leaves=5)


@st.composite
def schemas(draw: Any) -> dict[str, Any]:
    """Schemas of arguments: valid 2020-12, with references, loops, compositions and parameters named like keywords."""
    inner = parts()
    root: dict[str, Any] = draw(objects(inner))
    root["type"] = "object"
    match draw(st.integers(0, 9)):
        case 0:
            names = sorted(root["properties"])
            if names:
                root["anyOf"] = [{"required": [names[0]]}, {"required": names[-1:]}]
        case 1:
            root[draw(st.sampled_from(["anyOf", "oneOf"]))] = draw(st.lists(objects(inner), min_size=1, max_size=2))
        case 2:
            root["allOf"] = draw(st.lists(objects(inner), min_size=1, max_size=2))
        case 3:
            root["additionalProperties"] = False
    root["$defs"] = {
        "Leaf": draw(leaves().filter(lambda leaf: leaf is True or "$ref" not in leaf)),
        "Thing": draw(objects(leaves().filter(lambda leaf: leaf is True or "$ref" not in leaf))),
        "Node": {
            "type": "object",
            "properties": {
                "v": {"type": "string"},
                "next": {"$ref": "#/$defs/Node"},
                "all": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
            },
            "required": draw(st.sampled_from([["v"], [], ["all"]])),
        },
        "Choice": {
            "oneOf": [
                {"type": "object", "properties": {"k": {"const": k}, "n": {"type": "integer"}}, "required": ["k"]}
                for k in "ab"
            ]
        },
    }
    return root


KEYWORDS = st.sampled_from(
    re.findall(
        r"\S+",
        """$ref $dynamicRef $id id $schema $anchor $defs definitions type properties patternProperties additionalProperties items
        prefixItems additionalItems contains required dependentRequired dependentSchemas dependencies allOf anyOf oneOf not if
        then else enum const default examples description title format pattern minLength maximum exclusiveMinimum multipleOf
        maxItems uniqueItems minProperties propertyNames unevaluatedProperties nullable readOnly deprecated discriminator
        contentEncoding $comment""",
    )
)


def junk() -> st.SearchStrategy[dict[str, Any]]:
    """Schemas in which any JSON value stands in any place."""
    odd = st.sampled_from(
        ["#", "#/", "#/$defs/a", "string", "object", "http://x", "(", "~2", "http://json-schema.org/draft-04/schema#"]
    )
    values = st.recursive(
        SCALARS | odd | st.just(10**30),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(KEYWORDS, inner, max_size=4)
            | st.dictionaries(NAMES, inner, max_size=3)
        ),
        max_leaves=14,
    )
    return st.dictionaries(KEYWORDS, values, max_size=5).map(lambda schema: {"type": "object", **schema})


def resolve(node: Any, root: dict[str, Any]) -> Any:
    return root["$defs"][node["$ref"][8:]]


@st.composite
def values(draw: Any, node: Any, root: dict[str, Any], depth: int = 0) -> Any:
    """A value that `node` probably accepts, without properties that nobody declares."""
    if not isinstance(node, dict):
        return draw(SCALARS)
    if "$ref" in node:
        rest = {key: inner for key, inner in node.items() if key != "$ref"}
        target = resolve(node, root)
        return draw(values({**target, **rest} if isinstance(target, dict) else rest, root, depth))
    if "const" in node:
        return node["const"]
    if "enum" in node:
        return draw(st.sampled_from(node["enum"]))
    for keyword in ("anyOf", "oneOf"):
        if node.get(keyword):
            branch = draw(st.sampled_from(node[keyword]))
            chosen = branch if isinstance(branch, dict) else {}
            chosen = {**chosen, **(resolve(chosen, root) if "$ref" in chosen else {})}
            return draw(values(together({k: v for k, v in node.items() if k != keyword}, chosen), root, depth))
    if node.get("allOf"):
        merged = {key: inner for key, inner in node.items() if key != "allOf"}
        for part in node["allOf"]:
            part = part if isinstance(part, dict) else {}
            merged = together(merged, {**part, **(resolve(part, root) if "$ref" in part else {})})
        merged.pop("$ref", None)
        return draw(values(merged, root, depth))
    kinds = node.get("type", "object" if "properties" in node else "any")
    kind = draw(st.sampled_from(kinds)) if isinstance(kinds, list) else kinds
    match kind:
        case "string":
            return draw(TEXTS)
        case "integer":
            return draw(st.integers(-3, 9))
        case "number":
            return draw(st.one_of(st.integers(-3, 9), st.sampled_from([0.5, 2.0])))
        case "boolean":
            return draw(st.booleans())
        case "null":
            return None
        case "array":
            first = node.get("prefixItems", [])
            length = draw(st.integers(len(first), 3)) if depth < 4 else len(first)
            rest = node.get("items", True)
            return [draw(values(first[i] if i < len(first) else rest, root, depth + 1)) for i in range(length)]
        case "object":
            out = {}
            for name, inner in node.get("properties", {}).items():
                if name in node.get("required", ()) or (depth < 4 and draw(st.booleans())):
                    out[name] = draw(values(inner, root, depth + 1))
            if isinstance(node.get("additionalProperties"), dict) and draw(st.booleans()):
                out["extra"] = draw(values(node["additionalProperties"], root, depth + 1))
            return out
    return draw(SCALARS)


def together(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """Roughly both."""
    return {
        **a,
        **b,
        **(
            {"properties": {**a.get("properties", {}), **b.get("properties", {})}}
            if "properties" in a or "properties" in b
            else {}
        ),
        **(
            {"required": [*a.get("required", ()), *b.get("required", ())]} if "required" in a or "required" in b else {}
        ),
        **({"allOf": [*a.get("allOf", ()), *b.get("allOf", ())]} if "allOf" in a or "allOf" in b else {}),
    }


def accepted(schema: dict[str, Any], value: Any) -> bool:
    validator = compiled(json.dumps(schema))
    try:
        return validator is not None and not validator.check(value)
    except OutriderError:
        return False


@lru_cache(maxsize=256)
def compiled(schema: str) -> Validator | None:
    try:
        return Validator(json.loads(schema))
    except OutriderError:
        return None


def model_side(value: Any, node: Any, root: dict[str, Any], names: dict[str, str]) -> Any:
    """`value` as a model would write it under the schema that it was shown: with aliases, and null for what is absent but required."""
    if not isinstance(node, dict) or not isinstance(value, dict | list):
        return value
    views: list[dict[str, Any]] = []
    stack = [node]
    while stack:
        view = stack.pop()
        if not isinstance(view, dict) or any(view is other for other in views):
            continue
        views.append(view)
        if "$ref" in view:
            stack.append(resolve(view, root))
        stack.extend(view.get("allOf", ()))
        stack.extend(view[k] for k in ("then", "else") if k in view)
        for keyword in ("anyOf", "oneOf"):
            branches = view.get(keyword, [])
            fitting = [
                b
                for b in branches
                if accepted({"$defs": root.get("$defs", {}), "allOf": [b]}, model_side(value, b, root, names))
            ]
            stack.extend(fitting[:1])
    if isinstance(value, list):
        out = []
        for index, item in enumerate(value):
            for view in views:
                first = view.get("prefixItems", [])
                item = model_side(item, first[index] if index < len(first) else view.get("items"), root, names)
            out.append(item)
        return out
    declared = {name for view in views for name in view.get("properties", {})}
    said: dict[str, Any] = {}
    for name, inner in value.items():
        shown = names.get(name, name)
        shown = shown if shown in declared else name
        for view in views:
            if shown in view.get("properties", {}):
                inner = model_side(inner, view["properties"][shown], root, names)
        said[shown] = inner
    for view in views:
        for name in view.get("required", ()):
            inner = view.get("properties", {}).get(name)
            if (
                name not in said
                and inner is not None
                and accepted({"$defs": root.get("$defs", {}), "allOf": [inner]}, None)
            ):
                said[name] = None
    return said


# --- differences ----------------------------------------------------------------------------------------------------------------

Fact = tuple[tuple[str, ...], str, str]
IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
IN_PLACE = ("if", "then", "else", "not")
SILENT = {"$defs", "definitions", "$schema", "properties", "items", "prefixItems", "$ref"}


def facts(
    schema: dict[str, Any], names: dict[str, str] | None = None, max_steps: int = 5
) -> tuple[set[Fact], dict[tuple[str | int, ...], set[tuple[str, ...]]]]:
    """Everything a schema says, by the place in a VALUE that it is about: wherever references and compositions put it.

    Args:
        schema: the schema.
        names: the server's names of properties by those that stand in the schema.
        max_steps: how deep into values.

    Returns:
        The facts, and for every place in the schema the places in values that it is about.
    """
    names = names or {}
    said: set[Fact] = set()
    about: dict[tuple[str | int, ...], set[tuple[str, ...]]] = {}
    seen: set[tuple[int, tuple[str, ...]]] = set()
    stack: list[tuple[Any, tuple[str | int, ...], tuple[str, ...]]] = [(schema, (), ())]
    while stack:
        node, path, place = stack.pop()
        about.setdefault(path, set()).add(place)
        if not isinstance(node, dict) or (id(node), place) in seen or len(place) > max_steps:
            continue
        seen.add((id(node), place))

        def say(keyword: str, value: Any, place: tuple[str, ...] = place) -> None:
            said.add((place, keyword, json.dumps(value, sort_keys=True)))

        for keyword, value in node.items():
            if keyword == "$ref":
                stack.append((resolve(node, schema), ("$defs", value[8:]), place))
            elif keyword == "properties":
                for name, inner in value.items():
                    stack.append((inner, (*path, keyword, names.get(name, name)), (*place, names.get(name, name))))
            elif keyword in IN_PLACE_LISTS:
                for index, inner in enumerate(value):
                    stack.append((inner, (*path, keyword, index), place))
            elif keyword in IN_PLACE:
                say(keyword, True)
                stack.append((value, (*path, keyword), (*place, f"<{keyword}>")))
            elif keyword == "items" and isinstance(value, dict):
                stack.append((value, (*path, keyword), (*place, "[]")))
            elif keyword == "items" and value is False:
                say("items", False)
            elif keyword == "prefixItems":
                say(keyword, len(value))
                for index, inner in enumerate(value):
                    stack.append((inner, (*path, keyword, index), (*place, "[]")))
            elif keyword == "additionalProperties" and isinstance(value, dict):
                stack.append((value, (*path, keyword), (*place, "*")))
            elif keyword == "patternProperties":
                for name, inner in value.items():
                    say(keyword, name)
                    stack.append((inner, (*path, keyword, name), (*place, f"/{name}/")))
            elif keyword == "type":
                for name in value if isinstance(value, list) else [value]:
                    say("type", name)
            elif keyword == "const":
                say("enum", value)
            elif keyword in ("enum", "required"):
                for option in value:
                    say(keyword, names.get(option, option) if keyword == "required" else option)
            elif keyword == "description":
                for text in value.split("\n"):
                    say(keyword, text)
            elif keyword == "dependentRequired":
                for name, needed in value.items():
                    say(keyword, [names.get(name, name), sorted(names.get(n, n) for n in needed)])
            elif keyword not in SILENT:
                say(keyword, value)
    return said, about


def unaccounted(
    source: dict[str, Any], outcome: dict[str, Any], aliases: dict[str, str], changes: Any
) -> Iterator[str]:
    """Differences between what two schemas say that no change tells of."""
    before, about = facts(source)
    after, _ = facts(outcome, aliases)
    told = []
    for change in changes:
        if change.path[:1] == ("inputSchema",):
            is_idle = "says nothing about a value of this type" in change.detail
            told.append((about.get(tuple(change.path[1:]), set()), change.keyword, change.is_loss, is_idle))
    for place, keyword, value in sorted(before ^ after):
        for places, said, is_loss, is_idle in told:
            group = {"const": "enum", "exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}.get(said, said)
            exact = place in places
            below = any(place[: len(p)] == p for p in places)
            # A rewriting covers its own keyword at its own place. A loss of a part covers all that the part said.
            if (exact and said in (keyword, "")) or (exact and group == keyword):
                break
            if (
                is_loss
                and below
                and (
                    said in (*IN_PLACE_LISTS, *IN_PLACE, "$ref", "", "prefixItems", "patternProperties")
                    or said == keyword
                )
            ):
                break
            # The properties of a text, say: what stands below them can be said of no value.
            if (
                is_idle
                and below
                and not exact
                and said in ("properties", "items", "additionalProperties", "prefixItems")
            ):
                break
            if is_loss and below and said in ("additionalProperties", "items", "dependentSchemas", "propertyNames"):
                break
        else:
            yield f"{'lost' if (place, keyword, value) in before else 'new'}: {'/'.join(place) or '(root)'} {keyword} {value}"
