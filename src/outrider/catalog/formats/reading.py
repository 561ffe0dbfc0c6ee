"""A tool's schema in one clean form, whatever dialect it came in.

Decided here: how old dialects, local references, malformed keywords and `allOf` are brought into a small form of JSON Schema 2020-12
that means the same, and what was changed on the way. Not here: what such a form consists of (`clean`), when two schemas become one
(`merging`), what a vendor takes (`adaptation`). Pure; nothing is fetched.

The clean form: no booleans in place of schemas but for "nothing more" (`additionalProperties`, `items`, `unevaluated…`); `$ref` only as
`#/$defs/NAME`; definitions only at the root and only those in use; every keyword well formed; no null for "absent".

Spec: ours
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import msgspec

from outrider.catalog.formats.clean import ANNOTATIONS, Change, CleanSchema, Effect, Node, Path, ordered
from outrider.catalog.formats.merging import join
from outrider.errors import OutriderError
from outrider.protocol.schema import (
    KEYWORDS,
    REFERENCE_KEYWORDS,
    Dialect,
    Reference,
    ReferenceKind,
    SchemaDocument,
    dialect_of,
)
from outrider.protocol.schema_validation import Validator

__all__ = ["read_schema"]

_UNSEEN: Final = frozenset(
    {"$schema", "$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary", "$comment"}
)
_OPEN_OR_SHUT: Final = frozenset({"additionalProperties", "items", "unevaluatedItems", "unevaluatedProperties"})
_SIZES: Final = frozenset(
    {"maxContains", "maxItems", "maxLength", "maxProperties", "minContains", "minItems", "minLength", "minProperties"}
)
_NUMBERS: Final = frozenset({"exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"})
_STRINGS: Final = frozenset({"contentEncoding", "contentMediaType", "description", "format", "pattern", "title"})
_MAY_BE_NULL: Final = frozenset({"const", "default", "example"})
_IGNORES_SIBLINGS: Final = frozenset({Dialect.DRAFT_04, Dialect.DRAFT_06, Dialect.DRAFT_07})
_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
# Type names of programming languages that generators let through, and what they stand for.
_FOREIGN_TYPES: Final = {
    **dict.fromkeys(("bool",), "boolean"),
    **dict.fromkeys(("int", "int32", "int64", "long"), "integer"),
    **dict.fromkeys(("float", "double", "decimal"), "number"),
    **dict.fromkeys(("str", "text", "date", "datetime", "uuid"), "string"),
    **dict.fromkeys(("dict", "map", "mapping"), "object"),
    **dict.fromkeys(("list", "tuple", "set"), "array"),
    **dict.fromkeys(("none", "nonetype"), "null"),
}
_NAME: Final = re.compile(r"[^A-Za-z0-9_]+")
_SMALL_BYTES: Final = 60
_MAX_PATTERN: Final = 2_000


def read_schema(schema: dict[str, Any]) -> CleanSchema:
    """`schema` in clean form.

    Raises:
        LimitExceeded: it is deeper or has more subschemas than `protocol.schema.LIMITS` allows.
    """
    return _Reader(schema).read()


class _Reader:
    def __init__(self, schema: dict[str, Any]) -> None:
        self._document = SchemaDocument(schema)
        self._old = dialect_of(schema) in _IGNORES_SIBLINGS
        self._clean = CleanSchema({}, {}, {}, {}, [], [])
        self._source: dict[int, Path] = {}
        for place in self._document.places:
            if isinstance(place.node, dict):
                self._source.setdefault(id(place.node), place.path)
        self._names: dict[int, str] = {}
        self._inlining: list[int] = []
        self._count_uses()

    def read(self) -> CleanSchema:
        root = self._document.root
        self._clean.root = self._node(root, (), inline=True)
        pending = 0
        while pending < len(self._names):  # reading a definition can name further ones
            target, name = list(self._names.items())[pending]
            pending += 1
            node = self._kept_targets[target]
            self._clean.definitions[name] = self._node(node, self._source.get(target, ()))
        self._stop_empty_loops()
        self._clean.recursive = self._loops()
        return self._clean

    # --- references -------------------------------------------------------------------------------------------------------------

    def _count_uses(self) -> None:
        """Finds what is referred to more than once, and where each loop of references can be cut."""
        uses: Counter[int] = Counter()
        targets: dict[int, Node] = {}
        cut: set[int] = set()
        root = self._document.root
        open_, done = {id(root)}, set[int]()
        stack: list[tuple[Node, Iterator[tuple[Path, Any]]]] = [(root, self._document.links(root))]
        while stack:
            node, links = stack[-1]
            for path, target in links:
                if not isinstance(target, dict):
                    continue
                if path[0] in REFERENCE_KEYWORDS:
                    uses[id(target)] += 1
                    targets[id(target)] = target
                    if id(target) in open_:
                        cut.add(id(target))
                if id(target) not in open_ and id(target) not in done:
                    open_.add(id(target))
                    stack.append((target, self._document.links(target)))
                    break
            else:
                stack.pop()
                open_.discard(id(node))
                done.add(id(node))
        self._kept_targets = {
            key: target for key, target in targets.items() if key in cut or (uses[key] > 1 and not _is_small(target))
        }

    def _name(self, target: Node, ref: str) -> str:
        name = self._names.get(id(target))
        if name is None:
            base = _NAME.sub("_", ref.rsplit("/", 1)[-1]).strip("_")[:40] or "root"
            base = base if not base[0].isdigit() else f"d{base}"
            taken = set(self._names.values())
            name = next(n for n in (base, *(f"{base}_{i}" for i in range(2, len(taken) + 3))) if n not in taken)
            self._names[id(target)] = name
        return name

    def _loops(self) -> dict[str, frozenset[str]]:
        direct = {name: set(_references(node)) for name, node in self._clean.definitions.items()}
        reach: dict[str, set[str]] = {}
        for name in direct:
            seen: set[str] = set()
            stack = list(direct[name])
            while stack:
                other = stack.pop()
                if other not in seen:
                    seen.add(other)
                    stack.extend(direct.get(other, ()))
            reach[name] = seen
        return {name: frozenset(o for o in others if name in reach.get(o, ())) for name, others in reach.items()}

    def _stop_empty_loops(self) -> None:
        """Definitions that only refer to each other in a circle say nothing, and some vendors would follow them for ever."""
        for name, node in self._clean.definitions.items():
            seen = {name}
            here = node
            while set(here) == {"$ref"}:
                following = here["$ref"][8:]
                if following in seen:
                    self._note(self._clean.path_of(node), "$ref", Effect.LOOSER, "refers to itself")
                    self._clean.definitions[name] = self._clean.remember({}, self._clean.path_of(node))
                    break
                seen.add(following)
                here = self._clean.definitions[following]

    def _refer(self, node: Node, path: Path, *, inline: bool) -> tuple[Node | None, Node]:
        """What a reference in `node` stands for, in clean form, and `node` without it."""
        keyword = next((k for k in REFERENCE_KEYWORDS if isinstance(node.get(k), str)), None)
        if keyword is None:
            return None, node
        ref: str = node[keyword]
        rest = {key: value for key, value in node.items() if key != keyword}
        if self._old:
            for key in [
                key for key in rest if key not in ANNOTATIONS and key not in ("$defs", "definitions", "$schema")
            ]:
                if key not in _UNSEEN:
                    self._note(path, key, Effect.SAME, "counts for nothing beside a reference in this dialect")
                    del rest[key]
        reference: Reference = self._document.resolve(ref, at=node)
        if reference.kind is not ReferenceKind.LOCAL:
            self._note(path, keyword, Effect.LOOSER, f"leads nowhere: it is {reference.kind}")
            return None, rest
        target = reference.target
        if not isinstance(target, dict):
            self._note(path, keyword, Effect.SAME, "is replaced by what it refers to")
            return self._node(target, path), rest
        if id(target) in self._kept_targets and not inline:
            name = self._name(target, ref)
            if ref != f"#/$defs/{name}" or keyword != "$ref":
                self._note(path, keyword, Effect.SAME, f"is written as #/$defs/{name}")
            return self._clean.remember({"$ref": f"#/$defs/{name}"}, path), rest
        self._note(path, keyword, Effect.SAME, "is replaced by what it refers to")
        if target is node or id(target) in self._inlining or (inline and target is self._document.root):
            return None, rest  # a reference to itself says nothing
        self._inlining.append(id(target))
        read = self._node(target, self._source.get(id(target), path), inline=inline)
        self._inlining.pop()
        return read, rest

    # --- one schema -------------------------------------------------------------------------------------------------------------

    def _note(self, path: Path, keyword: str, effect: Effect, detail: str) -> None:
        self._clean.changes.append(Change(("inputSchema", *path), keyword, effect, detail))

    def _node(self, node: Any, path: Path, *, inline: bool = False) -> Node:
        if not isinstance(node, dict):
            if node is True:
                self._note(path, "", Effect.SAME, "`true` is written as {}")
            elif node is False:
                self._note(path, "", Effect.SAME, "`false` is written as not {}")
                return self._clean.remember({"not": self._clean.remember({}, path)}, path)
            else:
                self._note(path, "", Effect.LOOSER, "is not a schema")
            return self._clean.remember({}, path)
        target, rest = self._refer(node, path, inline=inline)
        out: Node = {}
        parts: list[tuple[str, Node]] = [] if target is None else [("$ref", target)]
        for keyword, value in rest.items():
            if value is None and keyword not in _MAY_BE_NULL:
                self._note(path, keyword, Effect.SAME, "null reads as absent")
            elif keyword in REFERENCE_KEYWORDS and not isinstance(value, str):
                self._note(path, keyword, Effect.LOOSER, "is not a reference")
            elif (
                keyword in _UNSEEN
                or keyword in ("$defs", "definitions")
                or (keyword == "id" and isinstance(value, str))
            ):
                if keyword not in ("$defs", "definitions"):
                    self._note(path, keyword, Effect.SAME, "says nothing about a call")
            elif keyword in KEYWORDS:
                self._schemas(keyword, value, rest, path, out, parts)
            else:
                self._values(keyword, value, rest, path, out)
        for keyword, part in parts:
            out = self._add(out, keyword, part, path)
        return self._clean.remember(ordered(out), path)

    def _add(self, out: Node, keyword: str, part: Node, path: Path) -> Node:
        """`out` and `part` together: as one schema where that means the same."""
        merged = join(self._clean, out, part, path, self._clean.changes)
        if merged is None:
            if keyword in ("anyOf", "oneOf"):
                self._note(path, keyword, Effect.SAME, "a choice of one is written as allOf")
            return {**out, "allOf": [*out.get("allOf", ()), part]}
        if keyword != "$ref":
            self._note(path, keyword, Effect.SAME, "is merged into the schema that holds it")
        self._clean.remember(merged, path)
        return merged

    def _schemas(
        self, keyword: str, value: Any, node: Node, path: Path, out: Node, parts: list[tuple[str, Node]]
    ) -> None:
        here = (*path, keyword)
        match keyword:
            case "properties" | "patternProperties" | "dependentSchemas":
                if not isinstance(value, dict):
                    self._note(path, keyword, Effect.LOOSER, "is not an object")
                    return
                if keyword == "patternProperties" and (unusable := [name for name in value if not _is_pattern(name)]):
                    self._note(path, keyword, Effect.LOOSER, "holds what is not a regular expression")
                    value = {name: inner for name, inner in value.items() if name not in unusable}
                named = {name: self._node(inner, (*here, name)) for name, inner in value.items()}
                if named or keyword == "properties":
                    out[keyword] = {**named, **out.get(keyword, {})}
                else:
                    self._note(path, keyword, Effect.SAME, "is empty")
            case "dependencies":
                self._dependencies(value, path, out)
            case "items" if isinstance(value, list):
                self._note(path, keyword, Effect.SAME, "a list of items is written as prefixItems")
                if value:
                    out["prefixItems"] = [self._node(inner, (*here, i)) for i, inner in enumerate(value)]
            case "additionalItems":
                if isinstance(node.get("items"), list):
                    self._note(path, keyword, Effect.SAME, "is written as items")
                    out["items"] = self._open_or_shut(value, here)
                else:
                    self._note(path, keyword, Effect.SAME, "counts for nothing without a list of items")
            case "allOf" | "anyOf" | "oneOf" | "prefixItems":
                if not isinstance(value, list) or not value:
                    self._note(path, keyword, Effect.LOOSER, "is not a list of schemas")
                    return
                read = [self._node(inner, (*here, i)) for i, inner in enumerate(value)]
                if keyword == "allOf" or (keyword != "prefixItems" and len(read) == 1):
                    parts.extend((keyword, part) for part in read)
                else:
                    out[keyword] = read
            case _ if keyword in _OPEN_OR_SHUT:
                out[keyword] = self._open_or_shut(value, here)
            case _:
                out[keyword] = self._node(value, here)

    def _open_or_shut(self, value: Any, path: Path) -> Any:
        return value if isinstance(value, bool) else self._node(value, path)

    def _dependencies(self, value: Any, path: Path, out: Node) -> None:
        if not isinstance(value, dict):
            self._note(path, "dependencies", Effect.LOOSER, "is not an object")
            return
        self._note(path, "dependencies", Effect.SAME, "is written as dependentRequired and dependentSchemas")
        for name, inner in value.items():
            if isinstance(inner, list):
                out.setdefault("dependentRequired", {})[name] = [n for n in inner if isinstance(n, str)]
            else:
                out.setdefault("dependentSchemas", {})[name] = self._node(inner, (*path, "dependencies", name))

    def _values(self, keyword: str, value: Any, node: Node, path: Path, out: Node) -> None:
        def drop(detail: str, effect: Effect = Effect.LOOSER) -> None:
            self._note(path, keyword, effect, detail)

        match keyword:
            case "type":
                types = self._types(value, path)
                if types:
                    out["type"] = types[0] if len(types) == 1 else types
            case "required":
                if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
                    drop("is not a list of names")
                    return
                known = list(node["properties"]) if isinstance(node.get("properties"), dict) else []
                rank = {name: i for i, name in enumerate(known)}
                names = sorted(set(value), key=lambda name: (rank.get(name, len(rank)), name))
                if names != value:
                    drop("is put into the order of the properties", Effect.SAME)
                if names:
                    out[keyword] = names
            case "enum":
                if not isinstance(value, list) or not value:
                    drop("is not a list of values")
                    return
                distinct = list({msgspec.json.encode(option, order="sorted"): option for option in value}.values())
                if len(distinct) != len(value):
                    drop("names a value twice", Effect.SAME)
                out[keyword] = distinct
            case "exclusiveMinimum" | "exclusiveMaximum" if isinstance(value, bool):
                drop("true or false is how draft 4 says it", Effect.SAME)
                bound = keyword[9:].lower()
                if value and _is_number(node.get(bound)):
                    out[keyword] = node[bound]
                    out.pop(bound, None)
            case "minimum" | "maximum" if node.get(f"exclusive{keyword.capitalize()}") is True and _is_number(value):
                drop("becomes exclusive", Effect.SAME)
            case "dependentRequired":
                if isinstance(value, dict):
                    named = {name: needed for name, inner in value.items() if (needed := _names(inner)) is not None}
                    if len(named) < len(value):
                        drop("holds what is not a list of names")
                    out[keyword] = {**out.get(keyword, {}), **named}
                else:
                    drop("is not an object")
            case "uniqueItems" | "readOnly" | "writeOnly" | "deprecated" if not isinstance(value, bool):
                drop("is neither true nor false")
            case "examples" if not isinstance(value, list):
                drop("is written as a list of one", Effect.SAME)
                out[keyword] = [value]
            case _ if keyword in _NUMBERS and not (_is_number(value) and (keyword != "multipleOf" or value > 0)):
                drop("is not a number that can stand here")
            case _ if keyword in _SIZES and not (_is_number(value) and value >= 0 and value == int(value)):
                drop("is not a count")
            case _ if keyword in _SIZES:
                out[keyword] = int(value)
            case _ if keyword in _STRINGS and not isinstance(value, str):
                drop("is not text")
            case "pattern" if not _is_pattern(value):
                drop("is not a regular expression")
            case "description" | "title" if not value.strip():
                drop("is empty", Effect.SAME)
            case _:
                out[keyword] = value

    def _types(self, value: Any, path: Path) -> list[str]:
        declared = value if isinstance(value, list) else [value]
        types: list[str] = []
        for name in declared:
            if isinstance(name, str) and name in _TYPES:
                types.append(name)
                continue
            known = _FOREIGN_TYPES.get(name.lower()) if isinstance(name, str) else None
            if isinstance(name, str) and name.lower() in _TYPES:
                known = name.lower()
            if known is None:
                self._note(
                    path,
                    "type",
                    Effect.LOOSER,
                    f"{str(name)[:40]!r} is not a type in JSON Schema; any value may stand here",
                )
                return []
            self._note(path, "type", Effect.LOOSER, f"{name!r} is not a type in JSON Schema; read as {known}")
            types.append(known)
        distinct = list(dict.fromkeys(types))
        if distinct != value and [value] != distinct and len(distinct) != len(declared):
            self._note(path, "type", Effect.SAME, "names a type twice")
        elif isinstance(value, list) and len(distinct) == 1:
            self._note(path, "type", Effect.SAME, "a list of one type is written as the type")
        return distinct


def _is_small(target: Node) -> bool:
    return not any(keyword in KEYWORDS for keyword in target) and len(msgspec.json.encode(target)) <= _SMALL_BYTES


@lru_cache(maxsize=1_000)
def _is_pattern(text: str) -> bool:
    """Whether `text` is a regular expression, to Python or as JSON Schema has them. Vendors that check schemas refuse any other."""
    if len(text) > _MAX_PATTERN:
        return True  # its vendor may find out
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError):
        try:
            Validator({"pattern": text})
        except OutriderError:
            return False
    return True


def _names(value: Any) -> list[str] | None:
    """The names in a list, each once; None if it is no list of names."""
    is_list = isinstance(value, list) and all(isinstance(name, str) for name in value)
    return list(dict.fromkeys(value)) if is_list else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _references(node: Any) -> Iterator[str]:
    stack = [node]
    while stack:
        here = stack.pop()
        if isinstance(here, dict):
            ref = here.get("$ref")
            if isinstance(ref, str) and ref.startswith("#/$defs/"):
                yield ref[8:]
            for keyword, value in here.items():
                if keyword in ("properties", "patternProperties", "dependentSchemas"):
                    stack.extend(value.values())
                elif keyword in KEYWORDS:
                    stack.extend(value if isinstance(value, list) else [value])
