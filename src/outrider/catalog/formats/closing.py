"""What strict mode wants: objects that are closed, parameters that are all there, and sizes within the vendor's bounds.

Decided here: when closing an object changes its meaning, how "may be absent" is said, and when a schema is too large. Not here: which
losses strict mode refuses (`account`). Pure.

Spec: ours
"""

from __future__ import annotations

from typing import Any

from outrider.catalog.formats.account import Account, NotStrict
from outrider.catalog.formats.clean import Effect, Node, Path, ordered
from outrider.catalog.formats.kinds import types_of
from outrider.catalog.formats.vendors import SchemaRules

__all__ = ["close", "require_all", "require_sizes"]


def close(account: Account, out: Node, path: Path, *, at_root: bool) -> None:
    """Shuts an object against properties that are not named."""
    types = out.get("type")
    if not ("object" in (types if isinstance(types, list) else [types]) or "properties" in out):
        return
    rest = out.get("additionalProperties")
    if rest not in (None, False) or (rest is None and not out.get("properties") and not at_root):
        account.note(
            path, "additionalProperties", Effect.NARROWER, "properties that are not named are no longer possible"
        )
    elif rest is None:
        account.note(
            path, "additionalProperties", Effect.SAME, "nothing is said of properties that are not named; refused"
        )
    if "patternProperties" in out:
        account.note(path, "patternProperties", Effect.NARROWER, "properties by pattern are not possible")
    out["additionalProperties"] = False
    out.setdefault("properties", {})


def require_all(account: Account, out: Node, origins: dict[str, Path], path: Path) -> None:
    """Names all properties as required; one that may be absent takes null. `origins` are their places in the source."""
    needed = set(out.get("required", ()))
    shown: Node = {}
    for name, inner in out["properties"].items():
        if name in needed:
            shown[name] = inner
            continue
        where = origins[name]
        if _takes_null(account, inner):
            # A server may do one thing for null and another for nothing: only the second could no longer be said.
            if _has_default(inner) or _default_is_told(inner):
                account.note(
                    where, "", Effect.NARROWER, "takes null and has a default, which could no longer be left out"
                )
            account.note(where, "", Effect.SAME, "may be null, which stands for absent too")
            shown[name] = inner
        else:
            account.note(where, "", Effect.SAME, "may be absent; sent as null then")
            shown[name] = _nullable(inner)
    out["properties"] = shown
    if list(shown) != out.get("required", []):
        account.note(path, "required", Effect.SAME, "all properties are named; those that may be absent take null")
    if shown:
        out["required"] = list(shown)
    else:
        out["required"] = []


def _takes_null(account: Account, node: Node, depth: int = 0) -> bool:
    if depth > 20:
        return True
    if "$ref" in node and not _takes_null(account, account.clean.definitions[node["$ref"][8:]], depth + 1):
        return False
    types = node.get("type", "null")
    if "null" not in (types if isinstance(types, list) else [types]):
        return False
    if "const" in node and node["const"] is not None:
        return False
    if "enum" in node and not any(option is None for option in node["enum"]):
        return False
    return "anyOf" not in node or any(_takes_null(account, branch, depth + 1) for branch in node["anyOf"])


def require_sizes(schema: Node, rules: SchemaRules) -> None:
    """Refuses a schema that is larger than the vendor takes in strict mode.

    Raises:
        NotStrict: it is.
    """
    properties = enums = chars = 0
    deepest = 0
    stack: list[tuple[Any, int]] = [(schema, 1)]
    while stack:
        node, depth = stack.pop()
        if not isinstance(node, dict):
            continue
        deepest = max(deepest, depth)
        options = [*node.get("enum", ()), *([node["const"]] if "const" in node else ())]
        enums += len(options)
        chars += sum(len(option) for option in options if isinstance(option, str))
        if len(node.get("enum", ())) > 250 and sum(len(str(option)) for option in node["enum"]) > 15_000:
            raise NotStrict("one enum has more than 250 values and 15,000 characters")
        firsts = [next(iter(b.get("properties", {})), None) for b in node.get("anyOf", ()) if b.get("type") == "object"]
        if rules.requires_all and len(set(firsts)) < len(firsts):
            raise NotStrict("two alternatives are objects with the same first property")
        for name, inner in {**node.get("properties", {}), **node.get("$defs", {})}.items():
            chars += len(name)
            stack.append((inner, depth + 1))
        properties += len(node.get("properties", {}))
        stack.extend((branch, depth) for branch in node.get("anyOf", ()))
        stack.append((node.get("items"), depth + 1))
    for what, have, most in (
        ("levels", deepest, rules.max_depth),
        ("properties", properties, rules.max_properties),
        ("enum values", enums, rules.max_enum_values),
        ("characters of names and values", chars, rules.max_name_chars),
    ):
        if most is not None and have > most:
            raise NotStrict(f"it has {have} {what}, and the vendor takes {most} in a strict tool")


def _has_default(node: Node) -> bool:
    return node.get("default") is not None


def _default_is_told(node: Node) -> bool:
    text = node.get("description", "")
    return "default: " in text and "default: null" not in text


def _nullable(node: Node) -> Node:
    """`node`, and null."""
    if set(node) == {"$ref"} or "anyOf" in node or "const" in node:
        annotations = {key: value for key, value in node.items() if key in ("title", "description")}
        rest = {key: value for key, value in node.items() if key not in annotations}
        branches = rest["anyOf"] if set(rest) == {"anyOf"} else [rest]
        return ordered({**annotations, "anyOf": [*branches, {"type": "null"}]})
    types = types_of(node)
    out = {**node, "type": [*types, "null"]}
    if "enum" in node:
        out["enum"] = [*node["enum"], None]
    return ordered(out)
