"""The root of a schema, where some vendors take nothing but an object with properties.

Decided here: how references and compositions at the root become one flat object, and what is lost by it. Not here: what stands below
(`adaptation`). Pure.

Spec: ours
"""

from __future__ import annotations

from typing import Final

from outrider.catalog.formats.account import TOLD_CHARS, Account
from outrider.catalog.formats.clean import Effect, Node, Path
from outrider.catalog.formats.kinds import types_of
from outrider.catalog.formats.merging import is_same
from outrider.catalog.formats.vendors import SchemaRules

__all__ = ["flat_root"]

# What would say of the properties of all parts what one part says of its own.
_OBSTACLES: Final = ("additionalProperties", "patternProperties", "unevaluatedProperties")


def flat_root(account: Account) -> Node:
    """The root without the keywords that may not stand there, of type object."""
    root = dict(account.clean.root)
    path: Path = ()
    if root.get("type") != "object":
        account.note(path, "type", Effect.SAME, "arguments are always an object")
        root["type"] = "object"
    told: list[str] = []
    for _ in range(100):  # each round removes one level of composition; depth is bounded by the reader
        choices = [k for k in ("$ref", "allOf", "oneOf", "anyOf") if k in root and _is_refused(account.rules, k)]
        if not choices:
            break
        keyword: str = choices[0]
        value = root.pop(keyword)
        parts = [account.dereferenced(part) for part in (value if isinstance(value, list) else [{"$ref": value}])]
        if keyword in ("$ref", "allOf"):
            for part in parts:
                root = _both(account, root, part, path, keyword)
        else:
            root = _either(account, root, parts, path, keyword, told)
    for refused in ("const", "enum", "not"):
        if refused in root and refused in account.rules.root_refuses:
            account.drop(root, refused, path, told)
    account.tell(root, told, path)
    return account.clean.remember(root, path)


def _is_refused(rules: SchemaRules, keyword: str) -> bool:
    return keyword in rules.root_refuses or (keyword == "$ref" and bool(rules.root_refuses))


def _both(account: Account, root: Node, part: Node, path: Path, keyword: str) -> Node:
    """`root` and `part` as one object, exactly if that can be said, else without what stands in the way."""
    part = {key: value for key, value in part.items() if key != "type"} if "object" in types_of(part) else dict(part)
    merged = account.join(root, part, path)
    if merged is not None:
        account.note(path, keyword, Effect.SAME, "is merged into the root")
        return merged
    account.note(path, keyword, Effect.LOOSER, "is merged into the root, without what cannot be said there")
    out = dict(root)
    for side in (out, part):
        for obstacle in _OBSTACLES:
            side.pop(obstacle, None)
    for key, value in part.items():
        if key == "properties":
            named = dict(out.get("properties", {}))
            for name, inner in value.items():
                mine = named.get(name)
                named[name] = inner if mine is None else account.join(mine, inner, path) or {"allOf": [mine, inner]}
            out["properties"] = named
        elif key == "required":
            out["required"] = list(dict.fromkeys((*out.get("required", ()), *value)))
        elif key in ("allOf", "anyOf", "oneOf") and key not in out:
            out[key] = value
        else:
            out.setdefault(key, value)
    return out


def _either(account: Account, root: Node, branches: list[Node], path: Path, keyword: str, told: list[str]) -> Node:
    """`root` and one of `branches` as one object with the properties of all of them."""
    choices = _object_choices(account, branches, path)
    if not choices:
        account.note(path, keyword, Effect.LOOSER, "has no choice that is an object")
        return root
    shapes = _shapes(account, choices)
    # The root's own schema of a property holds for every choice; what a choice adds to it is lost.
    own = {
        **root.get("properties", {}),
        **{
            name: options[0] if len(options) == 1 else account.clean.remember({"anyOf": options}, path)
            for name, options in shapes.items()
            if name not in root.get("properties", {})
        },
    }
    if any(
        name not in choice.get("properties", {}) and choice.get("additionalProperties", True) is not False
        for name in shapes
        for choice in choices
    ):
        detail = "a property that one choice names has its shape in all; another choice says nothing of it"
        account.note(path, keyword, Effect.NARROWER, detail)
    out = {**root, "properties": own}
    for obstacle in _OBSTACLES:
        if obstacle in out:
            account.note(path, obstacle, Effect.LOOSER, f"cannot stand beside a merged {keyword}")
            del out[obstacle]
    needs = [set(choice.get("required", ())) for choice in choices]
    always = set.intersection(*needs)
    required = [*root.get("required", ()), *(n for n in own if n in always and n not in root.get("required", ()))]
    if required:
        out["required"] = required
    needed = [tuple(sorted(names - set(required))) for names in needs]
    text = " or ".join(" and ".join(names) or "none of them" for names in dict.fromkeys(needed))
    if len(needed) > 1 and any(needed) and len(text) <= TOLD_CHARS:
        told.append(f"{'exactly one of' if keyword == 'oneOf' else 'at least one of'} these is needed: {text}")
    descriptions = [choice.get("description") for choice in choices]
    told.extend(text for text in descriptions if isinstance(text, str) and len(text) <= TOLD_CHARS)
    account.note(path, keyword, Effect.TOLD, "the choices are merged into one object with the properties of all")
    return out


def _object_choices(account: Account, branches: list[Node], path: Path) -> list[Node]:
    """Those of `branches` that an object can match, with the choices inside them as choices of their own."""
    flat: list[Node] = []
    pending = list(reversed(branches))
    while pending:
        branch = pending.pop()
        inner = next((k for k in ("anyOf", "oneOf") if k in branch), None)
        if inner is not None and len(pending) + len(flat) < 100:
            rest = {key: value for key, value in branch.items() if key != inner}
            choices = [account.dereferenced(choice) for choice in branch[inner]]
            pending.extend(
                account.join(rest, choice, path)
                or {**choice, "properties": {**rest.get("properties", {}), **choice.get("properties", {})}}
                for choice in reversed(choices)
            )
        elif "object" in types_of(branch):
            flat.append(branch)
    return flat


def _shapes(account: Account, choices: list[Node]) -> dict[str, list[Node]]:
    """The different schemas that `choices` have for each property."""
    shapes: dict[str, list[Node]] = {}
    for choice in choices:
        for part in (choice, *(account.dereferenced(p) for p in choice.get("allOf", ()))):
            for name, schema in part.get("properties", {}).items():
                options = shapes.setdefault(name, [])
                if not any(is_same(schema, option) for option in options):
                    options.append(schema)
    return shapes
