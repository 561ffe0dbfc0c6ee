"""Parameter names that a vendor refuses, and the names that the model sees instead.

Decided here: which names need an alias, what it is, and where it is put. Not here: the way back (`arguments`). Pure.

Spec: ours
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from typing import Any

from outrider.catalog.formats.account import Account
from outrider.catalog.formats.clean import Effect, Node, Path
from outrider.protocol.schema import KEYWORDS

__all__ = ["aliases", "rename"]


def aliases(account: Account, root: Node) -> dict[str, str]:
    """The names that the model sees instead of those the vendor refuses. One per name in the whole tool."""
    if account.rules.property_key is None:
        return {}
    accepted = re.compile(account.rules.property_key)
    every = set(_property_names([root, *account.clean.definitions.values()], through_places=True))
    concerned = set(_property_names([root], through_places=False)) if account.rules.only_root_keys else every
    taken = set(every)
    shown: dict[str, str] = {}
    for name in sorted(name for name in concerned if not accepted.fullmatch(name)):
        alias = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_")[:55]
        if not re.match(r"[A-Za-z_]", alias):
            alias = f"p_{alias}".rstrip("_")
        if alias in taken:
            digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=5).digest()
            alias = f"{alias[:55]}_{base64.b32encode(digest).decode().lower()}"
        while alias in taken:
            alias += "_"
        shown[name] = alias
        taken.add(alias)
    return shown


def rename(account: Account, out: Node, path: Path, told: list[str], shown: dict[str, str]) -> dict[str, str]:
    """Gives the properties of `out` their aliases, by `shown`; returns the server's name of each."""
    named: Node = out.get("properties", {})
    renamed = {shown.get(name, name): name for name in named}
    concerned = [name for name in named if name in shown]
    if not any(name in shown for name in (*named, *out.get("required", ()), *out.get("dependentRequired", ()))):
        return renamed
    for keyword in ("patternProperties", "propertyNames", "unevaluatedProperties"):
        if keyword in out and concerned:
            account.drop(out, keyword, path, told)
    if "properties" in out:
        properties: Node = {}
        for name, inner in named.items():
            alias = shown.get(name, name)
            if alias != name:
                where = account.clean.paths.get(id(inner), (*path, "properties", name))
                account.note(where, "", Effect.SAME, f"is called {alias}, because the vendor refuses its name")
                inner = account.clean.remember(dict(inner), where)
                account.tell(inner, [f"original name: {name[:100]}"], where)
            properties[alias] = inner
        out["properties"] = properties
    if "required" in out:
        out["required"] = [shown.get(name, name) for name in out["required"]]
    if "dependentRequired" in out:
        out["dependentRequired"] = {
            shown.get(name, name): [shown.get(n, n) for n in names] for name, names in out["dependentRequired"].items()
        }
    if "dependentSchemas" in out:
        out["dependentSchemas"] = {shown.get(n, n): inner for n, inner in out["dependentSchemas"].items()}
    if any(name in shown for name in (*_names(out), *concerned)):
        account.note(path, "required", Effect.SAME, "uses the names that the model sees")
    return renamed


def _names(node: Node) -> Iterator[str]:
    """Property names that `node` speaks of."""
    yield from node.get("properties", {})
    yield from node.get("required", ())


def _property_names(roots: list[Node], *, through_places: bool) -> Iterator[str]:
    """Names under `properties`, everywhere below `roots`, or only where they name parts of the value itself."""
    stack: list[Any] = list(roots)
    while stack:
        node = stack.pop()
        if not isinstance(node, dict):
            continue
        yield from node.get("properties", {})
        for keyword, value in node.items():
            if keyword not in KEYWORDS:
                continue
            if keyword in ("properties", "patternProperties"):
                if through_places:
                    stack.extend(value.values())
            elif keyword == "dependentSchemas":
                stack.extend(value.values())
            elif isinstance(value, list):
                if through_places or keyword != "prefixItems":
                    stack.extend(value)
            elif through_places or keyword in ("if", "then", "else", "not"):
                stack.append(value)
