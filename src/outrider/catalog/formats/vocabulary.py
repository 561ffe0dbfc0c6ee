"""What one schema says, in the words that a vendor has.

Decided here: how keywords and kinds of values that a vendor does not know are written with those it knows, and which are given up. Not
here: where schemas stand and what refers to them (`adaptation`). Pure.

Spec: ours
"""

from __future__ import annotations

import re
from typing import Any, Final

from outrider.catalog.formats.account import Account
from outrider.catalog.formats.clean import Effect, Node, Path, ordered
from outrider.catalog.formats.kinds import OF_TYPE, TYPED, kind_of, types_of, values_of
from outrider.catalog.formats.merging import is_same

__all__ = ["complete_arrays", "limit", "split_types"]

_NO_FANCY_PATTERN: Final = re.compile(r"\(\?|\\[1-9bBk]")


def limit(account: Account, out: Node, path: Path, told: list[str]) -> None:
    """Removes from `out` what the vendor has no word for."""
    keywords = account.rules.keywords
    assert keywords is not None
    for part in out.pop("allOf", ()):
        _intersect(account, out, part, path, told)
    if "oneOf" in out and "oneOf" not in keywords:
        branches = out.pop("oneOf")
        if "anyOf" in out:
            account.note(path, "oneOf", Effect.LOOSER, "cannot stand beside anyOf")
        else:
            exclusive = _are_disjoint(account, branches)
            effect = Effect.SAME if exclusive else Effect.TOLD
            if not exclusive:
                told.append("exactly one of the alternatives holds")
            account.note(path, "oneOf", effect, "is written as anyOf")
            out["anyOf"] = branches
    _enums(account, out, path, told)
    _infer_type(account, out, path)
    if account.rules.splits_types and "enum" in out and isinstance(out.get("type"), str):
        _keep_null_out(account, out, path)
    types = types_of(out)
    for keyword in [k for k in out if k in TYPED and "type" in out]:
        if not any(keyword in OF_TYPE["number" if t == "integer" else t] for t in types):
            account.note(path, keyword, Effect.SAME, "says nothing about a value of this type")
            del out[keyword]
    for bound in ("exclusiveMinimum", "exclusiveMaximum"):
        value = out.get(bound)
        if bound not in keywords and types == ["integer"] and isinstance(value, int) and not isinstance(value, bool):
            inclusive = bound[9:].lower()
            step, pick = (1, max) if inclusive == "minimum" else (-1, min)
            out[inclusive] = pick(value + step, out.get(inclusive, value + step))
            account.note(path, bound, Effect.SAME, f"is written as {inclusive}")
            account.note(path, inclusive, Effect.SAME, f"takes over {bound}")
            del out[bound]
    rules = account.rules
    if "format" in out and rules.formats is not None and out["format"] not in rules.formats:
        account.drop(out, "format", path, told)
    if rules.max_min_items is not None and out.get("minItems", 0) > rules.max_min_items:
        account.drop(out, "minItems", path, told)
    if "pattern" in out and rules.simple_patterns and _NO_FANCY_PATTERN.search(out["pattern"]):
        account.drop(out, "pattern", path, told)
    if "prefixItems" in out and "prefixItems" not in keywords:
        _untuple(account, out, path)
    for keyword in [k for k in out if k not in keywords]:
        account.drop(out, keyword, path, told)
    if "required" in out:
        known = out.get("properties", {})
        missing = [name for name in out["required"] if name not in known]
        if missing:
            out["required"] = [name for name in out["required"] if name in known]
            told.append(f"needs {', '.join(missing)[:100]}")
            account.note(path, "required", Effect.TOLD, "names properties that are not described")
        if not out["required"]:
            del out["required"]


def _intersect(account: Account, out: Node, part: Node, path: Path, told: list[str]) -> None:
    merged = account.join(out, account.dereferenced(part) if "$ref" in part else part, path)
    if merged is not None and "allOf" not in merged:
        account.note(path, "allOf", Effect.SAME, "is merged into the schema that holds it")
        out.clear()
        out.update(merged)
        return
    value = {"allOf": [part]}
    account.drop(value, "allOf", path, told)


def _are_disjoint(account: Account, branches: list[Node]) -> bool:
    """Whether no value can match two of `branches`: their types differ, or a property they all need has different values."""
    resolved = [account.dereferenced(branch) for branch in branches]
    types = [{"number" if t == "integer" else t for t in types_of(branch)} for branch in resolved]
    if all(not (a & b) for i, a in enumerate(types) for b in types[i + 1 :]):
        return True
    needed = set.intersection(*(set(b.get("required", ())) for b in resolved)) if resolved else set()
    for name in needed:
        values = [values_of(branch.get("properties", {}).get(name, {})) for branch in resolved]
        known = [v for v in values if v is not None]
        if len(known) == len(values) and all(not (a & b) for i, a in enumerate(known) for b in known[i + 1 :]):
            return all(set(t) == {"object"} for t in types)
    values = [values_of(branch) for branch in resolved]
    known = [v for v in values if v is not None]
    return len(known) == len(values) and all(not (a & b) for i, a in enumerate(known) for b in known[i + 1 :])


def _enums(account: Account, out: Node, path: Path, told: list[str]) -> None:
    rules = account.rules
    keywords = rules.keywords or frozenset()
    if "const" in out and "const" not in keywords:
        if "enum" not in out:
            account.note(path, "const", Effect.SAME, "is written as an enum of one")
            account.note(path, "enum", Effect.SAME, "stands for const")
            out["enum"] = [out.pop("const")]
        else:
            account.drop(out, "const", path, told)
    if rules.enum_types is None:
        return
    if "const" in out and kind_of(out["const"]) not in rules.enum_types:
        account.drop(out, "const", path, told)
    if "enum" not in out:
        return
    options: list[Any] = out["enum"]
    kinds = {kind_of(option) for option in options}
    if rules.splits_types and "null" in kinds:
        account.note(path, "enum", Effect.SAME, "null is written as a type")
    if kinds <= rules.enum_types:
        return
    if rules.splits_types and kinds <= rules.enum_types | {"null"}:
        return  # null is split off with the types
    if kinds == {"boolean"} and len(options) == 2:
        account.note(path, "enum", Effect.SAME, "true and false are all values there are")
        if "type" not in out:
            out["type"] = "boolean"
            account.note(path, "type", Effect.SAME, "is that of the values")
        del out["enum"]
        return
    if "type" not in out:
        types = sorted(kinds)
        out["type"] = types[0] if len(types) == 1 else types
        account.note(path, "type", Effect.SAME, "is that of the values")
    account.drop(out, "enum", path, told)


def _keep_null_out(account: Account, out: Node, path: Path) -> None:
    options = [option for option in out["enum"] if option is not None]
    if len(options) == len(out["enum"]):
        return
    if out["type"] == "null":
        account.note(path, "enum", Effect.SAME, "is all that the type allows")
    elif options:
        out["enum"] = options
        return
    else:
        account.note(path, "enum", Effect.LOOSER, "has no value of the type")
    del out["enum"]


def _infer_type(account: Account, out: Node, path: Path) -> None:
    if any(keyword in out for keyword in ("type", "anyOf", "$ref")):
        return
    if "enum" in out or "const" in out:
        options = out["enum"] if "enum" in out else [out["const"]]
        kinds = list(dict.fromkeys(kind_of(option) for option in options))
        out["type"] = kinds[0] if len(kinds) == 1 else kinds
        account.note(path, "type", Effect.SAME, "is that of the values")
        return
    for kind in ("object", "array"):
        if any(keyword in out for keyword in OF_TYPE[kind]):
            out["type"] = kind
            account.note(path, "type", Effect.NARROWER, f"is not said; read as {kind}")
            return
    if account.rules.needs_type:
        account.note(path, "type", Effect.NARROWER, "is not said, and must be")


def _untuple(account: Account, out: Node, path: Path) -> None:
    first = out.pop("prefixItems")
    rest = out.get("items", True)
    account.note(path, "prefixItems", Effect.LOOSER, "positions are merged into items")
    options: list[Node] = []
    for option in [*first, *([rest] if isinstance(rest, dict) else [])]:
        if not any(is_same(option, other) for other in options):
            options.append(option)
    if rest is False:
        out["maxItems"] = min(out.get("maxItems", len(first)), len(first))
        account.note(path, "maxItems", Effect.SAME, "stands for the end of the positions")
    account.note(path, "items", Effect.LOOSER, "stand for any position")
    is_free = rest is True or any(not option for option in options)
    out["items"] = {} if is_free else options[0] if len(options) == 1 else {"anyOf": options}
    account.clean.remember(out["items"], path)


def complete_arrays(account: Account, out: Node, path: Path) -> None:
    """Says what an array holds, as all vendors want it said."""
    if "type" in out and "array" in types_of(out):
        if "items" not in out:
            account.note(path, "items", Effect.SAME, "must be said; {} allows anything")
            out["items"] = account.clean.remember({}, path)
        elif isinstance(out["items"], bool) and (account.rules.keywords is not None or out["items"]):
            if out["items"]:
                account.note(path, "items", Effect.SAME, "true is written as {}")
            else:
                limit = len(out.get("prefixItems", ()))
                out["maxItems"] = min(out.get("maxItems", limit), limit)
                account.note(path, "items", Effect.SAME, "false is written as maxItems")
                account.note(path, "maxItems", Effect.SAME, "stands for items: false")
            out["items"] = account.clean.remember({}, path)


def split_types(account: Account, out: Node, path: Path) -> Node:
    """A list of types as anyOf, each with the keywords that bear on it."""
    types: list[str] = out.pop("type")
    branches: list[Node] = []
    if "anyOf" in out:
        known = [types_of(branch) for branch in out["anyOf"]]
        if all("type" in branch and set(t) <= set(types) for branch, t in zip(out["anyOf"], known, strict=True)):
            account.note(path, "type", Effect.SAME, "is said in each alternative")
        else:
            account.note(path, "type", Effect.LOOSER, "cannot stand beside anyOf")
        return {key: value for key, value in out.items() if key not in TYPED and key != "enum"}
    for type_ in types:
        kind = "number" if type_ == "integer" else type_
        branch: Node = {"type": type_}
        branch |= {key: out[key] for key in out if key in OF_TYPE[kind]}
        if "enum" in out:
            options = [option for option in out["enum"] if kind_of(option) == kind]
            if not options:
                continue
            if kind != "null":
                branch["enum"] = options
        branches.append(ordered(branch))
    account.note(path, "type", Effect.SAME, "a list of types is written as anyOf")
    rest = {key: value for key, value in out.items() if key not in TYPED and key != "enum"}
    if len(branches) == 1:
        return {**rest, **branches[0]}
    return {**rest, "anyOf": branches}
