"""A tool's schema as a vendor takes it, and a complete account of what is different.

Decided here: how a clean schema (`reading`) is brought under a vendor's rules (`vendors`), in which order meaning is given up, and
which parameter names need an alias. Not here: the way back of arguments (`arguments`). Pure; the source is never changed.

The rule: the model must be able to say every call that was right, so a constraint that a vendor refuses is dropped, not tightened, and is
said in the description instead. Where a vendor's types force a choice, the change says "narrower".

Spec: ours
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
from msgspec import Struct

from outrider.catalog.formats.reading import ANNOTATIONS, Change, CleanSchema, Effect, Node, Path, Seams, merge, ordered
from outrider.catalog.formats.vendors import SchemaRules
from outrider.protocol.schema import KEYWORDS

__all__ = ["Adapted", "NotStrict", "adapt"]


class Adapted(Struct, frozen=True):
    """A schema as a vendor takes it.

    Attributes:
        schema: the schema to send; its root has type "object" and `properties`.
        changes: every difference from the source.
        aliases: the server's names of parameters, by the names that the model sees instead.
        optional: parameters at any depth that may be absent, and unions: `optional` and `unions` count against a vendor's limits.
    """

    schema: Node
    changes: tuple[Change, ...]
    aliases: dict[str, str]
    optional: int = 0
    unions: int = 0


class NotStrict(Exception):
    """The schema cannot be strict without changing its meaning. `str()` says why."""


_TOLD_CHARS: Final = 200
_TOLD_TOTAL_CHARS: Final = 800
_NO_FANCY_PATTERN: Final = re.compile(r"\(\?|\\[1-9bBk]")
# Which keywords bear on values of one type only.
_OF_TYPE: Final[dict[str, frozenset[str]]] = {
    "string": frozenset(
        {"contentEncoding", "contentMediaType", "contentSchema", "format", "maxLength", "minLength", "pattern"}
    ),
    "number": frozenset({"exclusiveMaximum", "exclusiveMinimum", "format", "maximum", "minimum", "multipleOf"}),
    "array": frozenset(
        {"contains", "items", "maxContains", "maxItems", "minContains", "minItems", "prefixItems", "unevaluatedItems"}
        | {"uniqueItems"}
    ),
    "object": frozenset(
        {"additionalProperties", "dependentRequired", "dependentSchemas", "maxProperties", "minProperties"}
        | {"patternProperties", "properties", "propertyNames", "required", "unevaluatedProperties"}
    ),
    "boolean": frozenset(),
    "null": frozenset(),
}
_TYPED: Final = frozenset().union(*_OF_TYPE.values())
_ALL_TYPES: Final = ("string", "number", "boolean", "object", "array", "null")


def adapt(clean: CleanSchema, rules: SchemaRules, *, must_keep_meaning: bool = False) -> Adapted:
    """`clean` under `rules`.

    Args:
        clean: what `read_schema` returned; it is not changed.
        rules: what the vendor takes.
        must_keep_meaning: refuse rather than lose anything; for strict mode.

    Raises:
        NotStrict: `must_keep_meaning`, and the meaning would change or a size is exceeded.
    """
    return _Adapter(clean, rules, must_keep_meaning=must_keep_meaning).adapt()


class _Adapter:
    def __init__(self, clean: CleanSchema, rules: SchemaRules, *, must_keep_meaning: bool) -> None:
        self._clean = clean
        self._rules = rules
        self._must_keep = must_keep_meaning
        self._changes: list[Change] = list(clean.changes)
        if must_keep_meaning:
            for change in self._changes:
                self._refuse_loss(change)
        self._used: dict[str, None] = {}
        self._inlining: list[str] = []
        self._optional = 0
        self._unions = 0
        self._shown: dict[str, str] = {}

    def adapt(self) -> Adapted:
        root = self._flat_root()
        self._shown = self._aliases(root)
        schema = self._node(root, (), required=True, at_root=True)
        schema.setdefault("properties", {})
        definitions: dict[str, Node] = {}
        while len(definitions) < len(self._used):
            name = next(name for name in self._used if name not in definitions)
            self._scope = name
            definitions[name] = self._node(self._clean.definitions[name], ("$defs", name), required=True)
        if definitions:
            schema["$defs"] = definitions
        schema = ordered(schema)
        if self._must_keep:
            self._check_sizes(schema)
        return Adapted(
            schema,
            tuple(dict.fromkeys(self._changes)),
            {shown: own for own, shown in self._shown.items()},
            self._optional,
            self._unions,
        )

    _scope: str | None = None
    """The definition that is being adapted, or None for the root."""

    def _note(self, path: Path, keyword: str, effect: Effect, detail: str) -> None:
        change = Change(("inputSchema", *path), keyword, effect, detail)
        if self._must_keep:
            self._refuse_loss(change)
        self._changes.append(change)

    @staticmethod
    def _refuse_loss(change: Change) -> None:
        if change.is_loss:
            raise NotStrict(str(change))

    def _join(self, a: Node, b: Node, path: Path) -> Node | None:
        """`a` and `b`, both of which hold at `path`, as one schema; None if that cannot be written."""
        seams = Seams()
        merged = merge(a, b, seams)
        if merged is not None:
            self._changes.extend(self._clean.seams(seams, path))
        return merged

    # --- the root ---------------------------------------------------------------------------------------------------------------

    def _flat_root(self) -> Node:
        """The root without the keywords that may not stand there, of type object."""
        root = dict(self._clean.root)
        path: Path = ()
        if root.get("type") != "object":
            self._note(path, "type", Effect.SAME, "arguments are always an object")
            root["type"] = "object"
        told: list[str] = []
        for _ in range(100):  # each round removes one level of composition; depth is bounded by the reader
            choices = [k for k in ("$ref", "allOf", "oneOf", "anyOf") if k in root and self._is_refused(k)]
            if not choices:
                break
            keyword: str = choices[0]
            value = root.pop(keyword)
            parts = [self._dereferenced(part) for part in (value if isinstance(value, list) else [{"$ref": value}])]
            if keyword in ("$ref", "allOf"):
                for part in parts:
                    root = self._both(root, part, path, keyword)
            else:
                root = self._either(root, parts, path, keyword, told)
        for refused in ("const", "enum", "not"):
            if refused in root and refused in self._rules.root_refuses:
                self._drop(root, refused, path, told)
        self._tell(root, told, path)
        return self._clean.remember(root, path)

    def _is_refused(self, keyword: str) -> bool:
        return keyword in self._rules.root_refuses or (keyword == "$ref" and bool(self._rules.root_refuses))

    def _dereferenced(self, node: Node) -> Node:
        seen: set[str] = set()
        while "$ref" in node:
            name = node["$ref"][8:]
            rest = {key: value for key, value in node.items() if key != "$ref"}
            if name in seen:
                return rest
            seen.add(name)
            target = self._clean.definitions[name]
            if rest:
                path = self._clean.path_of(node)
                target = self._join(rest, target, path) or {**rest, "allOf": [*rest.get("allOf", []), target]}
                self._clean.remember(target, path)
            node = target
        return node

    def _both(self, root: Node, part: Node, path: Path, keyword: str) -> Node:
        """`root` and `part` as one object, exactly if that can be said, else without what stands in the way."""
        part = {key: value for key, value in part.items() if key != "type"} if "object" in _types(part) else dict(part)
        merged = self._join(root, part, path)
        if merged is not None:
            self._note(path, keyword, Effect.SAME, "is merged into the root")
            return merged
        self._note(path, keyword, Effect.LOOSER, "is merged into the root, without what cannot be said there")
        out = dict(root)
        for side in (out, part):
            for obstacle in ("additionalProperties", "patternProperties", "unevaluatedProperties"):
                side.pop(obstacle, None)
        for key, value in part.items():
            if key == "properties":
                named = dict(out.get("properties", {}))
                for name, inner in value.items():
                    mine = named.get(name)
                    named[name] = inner if mine is None else self._join(mine, inner, path) or {"allOf": [mine, inner]}
                out["properties"] = named
            elif key == "required":
                out["required"] = list(dict.fromkeys((*out.get("required", ()), *value)))
            elif key in ("allOf", "anyOf", "oneOf") and key not in out:
                out[key] = value
            else:
                out.setdefault(key, value)
        return out

    def _either(self, root: Node, branches: list[Node], path: Path, keyword: str, told: list[str]) -> Node:
        """`root` and one of `branches` as one object with the properties of all of them."""
        flat: list[Node] = []
        pending = list(reversed(branches))
        while pending:
            branch = pending.pop()
            inner = next((k for k in ("anyOf", "oneOf") if k in branch), None)
            if inner is not None and len(pending) + len(flat) < 100:
                rest = {key: value for key, value in branch.items() if key != inner}
                choices = [self._dereferenced(choice) for choice in branch[inner]]
                pending.extend(
                    self._join(rest, choice, path)
                    or {**choice, "properties": {**rest.get("properties", {}), **choice.get("properties", {})}}
                    for choice in reversed(choices)
                )
            elif "object" in _types(branch):
                flat.append(branch)
        if not flat:
            self._note(path, keyword, Effect.LOOSER, "has no choice that is an object")
            return root
        properties: dict[str, list[Node]] = {}
        for branch in flat:
            for part in (branch, *(self._dereferenced(p) for p in branch.get("allOf", ()))):
                for name, inner_schema in part.get("properties", {}).items():
                    options = properties.setdefault(name, [])
                    if not any(_same(inner_schema, option) for option in options):
                        options.append(inner_schema)
        # The root's own schema of a property holds for every choice; what a choice adds to it is lost.
        own = {
            **root.get("properties", {}),
            **{
                name: options[0] if len(options) == 1 else self._clean.remember({"anyOf": options}, path)
                for name, options in properties.items()
                if name not in root.get("properties", {})
            },
        }
        if any(
            name not in branch.get("properties", {}) and branch.get("additionalProperties", True) is not False
            for name in properties
            for branch in flat
        ):
            detail = "a property that one choice names has its shape in all; another choice says nothing of it"
            self._note(path, keyword, Effect.NARROWER, detail)
        out = {**root, "properties": own}
        for obstacle in ("additionalProperties", "patternProperties", "unevaluatedProperties"):
            if obstacle in out:
                self._note(path, obstacle, Effect.LOOSER, f"cannot stand beside a merged {keyword}")
                del out[obstacle]
        needed = [set(branch.get("required", ())) for branch in flat]
        always = set.intersection(*needed) if needed else set()
        required = [*root.get("required", ()), *(n for n in own if n in always and n not in root.get("required", ()))]
        if required:
            out["required"] = required
        sets = [sorted(names - set(required)) for names in needed]
        text = " or ".join("none of them" if not names else " and ".join(names) for names in _distinct(sets))
        if len(sets) > 1 and any(sets) and len(text) <= _TOLD_CHARS:
            told.append(f"{'exactly one of' if keyword == 'oneOf' else 'at least one of'} these is needed: {text}")
        texts = [branch["description"] for branch in flat if isinstance(branch.get("description"), str)]
        for text in texts:
            if len(text) <= _TOLD_CHARS:
                told.append(text)
        self._note(path, keyword, Effect.TOLD, "the choices are merged into one object with the properties of all")
        return out

    # --- aliases ----------------------------------------------------------------------------------------------------------------

    def _aliases(self, root: Node) -> dict[str, str]:
        """The names that the model sees instead of those the vendor refuses. One per name in the whole tool."""
        if self._rules.property_key is None:
            return {}
        accepted = re.compile(self._rules.property_key)
        every = set(_property_names([root, *self._clean.definitions.values()], through_places=True))
        concerned = set(_property_names([root], through_places=False)) if self._rules.only_root_keys else every
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

    # --- one schema -------------------------------------------------------------------------------------------------------------

    def _node(self, node: Node, where: Path, *, required: bool, at_root: bool = False) -> Node:
        """`node` as the vendor takes it.

        Args:
            node: a clean schema.
            where: its place in the source, if it was made here and none is known.
            required: whether every step from the root or the definition to here leads through something that must be there.
            at_root: whether it applies to the arguments themselves.
        """
        path = self._clean.paths.get(id(node), where)
        rules = self._rules
        told: list[str] = []
        out = dict(node)
        if "$ref" in out:
            out = self._reference(out, path, told, required=required, at_root=at_root)
            if set(out) == {"$ref"}:
                return out
        if rules.keywords is not None:
            self._limit(out, path, told)
        self._arrays(out, path)
        renamed = self._rename(out, path, told, at_root=at_root)
        if rules.is_strict:
            self._close(out, path, at_root=at_root)
        origins = {
            name: self._clean.paths.get(id(inner), (*path, "properties", renamed.get(name, name)))
            for name, inner in out.get("properties", {}).items()
        }
        self._children(out, path, required=required, at_root=at_root)
        if rules.requires_all and "properties" in out:
            self._require_all(out, origins, path)
        elif rules.is_strict:
            self._optional += len(set(out.get("properties", {})) - set(out.get("required", ())))
        if "anyOf" in out or isinstance(out.get("type"), list):
            self._unions += 1
        if rules.splits_types and isinstance(out.get("type"), list):
            out = self._split_types(out, path)
        self._tell(out, told, path)
        return ordered(out)

    def _reference(self, out: Node, path: Path, told: list[str], *, required: bool, at_root: bool) -> Node:
        name = out["$ref"][8:]
        rules = self._rules
        is_cycle = self._scope is not None and name in self._clean.recursive.get(self._scope, ())
        rest = {key: value for key, value in out.items() if key != "$ref"}
        if rules.recursion == "none" and self._clean.recursive.get(name):
            self._note(path, "$ref", Effect.LOOSER, "is recursive")
            return rest
        if is_cycle and rules.recursion == "optional" and required:
            self._note(path, "$ref", Effect.LOOSER, "is recursive, and not under a property that may be absent")
            types = _types(self._dereferenced(self._clean.definitions[name]))
            return {**({"type": types[0]} if len(types) == 1 else {}), **rest}
        if at_root and self._shown and rules.only_root_keys:
            # A definition is shared with places where parameters keep their names.
            if name in self._inlining or self._clean.recursive.get(name):
                self._note(path, "$ref", Effect.LOOSER, "cannot be kept where parameters have other names")
                return rest
            merged = self._join(rest, self._clean.definitions[name], path)
            if merged is None or "$ref" in merged:
                self._note(path, "$ref", Effect.LOOSER, "cannot be kept where parameters have other names")
                return rest
            self._note(path, "$ref", Effect.SAME, "is replaced by what it refers to")
            self._clean.remember(merged, path)
            return merged
        if not rest or not rules.ref_stands_alone:
            self._used.setdefault(name)
            return out
        constraints = {key: value for key, value in rest.items() if key not in ANNOTATIONS}
        if constraints:
            merged = None
            if not self._clean.recursive.get(name) and name not in self._inlining:
                merged = self._join(rest, self._dereferenced(self._clean.definitions[name]), path)
            if merged is not None and "$ref" not in merged:
                self._note(path, "$ref", Effect.SAME, "is replaced by what it refers to")
                return self._clean.remember(merged, path)
            for keyword in constraints:
                self._drop(rest, keyword, path, told)
        self._used.setdefault(name)
        self._note(path, "$ref", Effect.SAME, "is put into anyOf, because nothing may stand beside it")
        return {**rest, "anyOf": [self._clean.remember({"$ref": f"#/$defs/{name}"}, path)]}

    def _limit(self, out: Node, path: Path, told: list[str]) -> None:
        """Removes from `out` what the vendor has no word for."""
        keywords = self._rules.keywords
        assert keywords is not None
        for part in out.pop("allOf", ()):
            self._intersect(out, part, path, told)
        if "oneOf" in out and "oneOf" not in keywords:
            branches = out.pop("oneOf")
            if "anyOf" in out:
                self._note(path, "oneOf", Effect.LOOSER, "cannot stand beside anyOf")
            else:
                exclusive = self._are_disjoint(branches)
                effect = Effect.SAME if exclusive else Effect.TOLD
                if not exclusive:
                    told.append("exactly one of the alternatives holds")
                self._note(path, "oneOf", effect, "is written as anyOf")
                out["anyOf"] = branches
        self._enums(out, path, told)
        self._infer_type(out, path)
        if self._rules.splits_types and "enum" in out and isinstance(out.get("type"), str):
            self._keep_null_out(out, path)
        types = _types(out)
        for keyword in [k for k in out if k in _TYPED and "type" in out]:
            if not any(keyword in _OF_TYPE["number" if t == "integer" else t] for t in types):
                self._note(path, keyword, Effect.SAME, "says nothing about a value of this type")
                del out[keyword]
        for bound in ("exclusiveMinimum", "exclusiveMaximum"):
            value = out.get(bound)
            if (
                bound not in keywords
                and types == ["integer"]
                and isinstance(value, int)
                and not isinstance(value, bool)
            ):
                inclusive = bound[9:].lower()
                step, pick = (1, max) if inclusive == "minimum" else (-1, min)
                out[inclusive] = pick(value + step, out.get(inclusive, value + step))
                self._note(path, bound, Effect.SAME, f"is written as {inclusive}")
                self._note(path, inclusive, Effect.SAME, f"takes over {bound}")
                del out[bound]
        rules = self._rules
        if "format" in out and rules.formats is not None and out["format"] not in rules.formats:
            self._drop(out, "format", path, told)
        if rules.max_min_items is not None and out.get("minItems", 0) > rules.max_min_items:
            self._drop(out, "minItems", path, told)
        if "pattern" in out and rules.simple_patterns and _NO_FANCY_PATTERN.search(out["pattern"]):
            self._drop(out, "pattern", path, told)
        if "prefixItems" in out and "prefixItems" not in keywords:
            self._untuple(out, path)
        for keyword in [k for k in out if k not in keywords]:
            self._drop(out, keyword, path, told)
        if "required" in out:
            known = out.get("properties", {})
            missing = [name for name in out["required"] if name not in known]
            if missing:
                out["required"] = [name for name in out["required"] if name in known]
                told.append(f"needs {', '.join(missing)[:100]}")
                self._note(path, "required", Effect.TOLD, "names properties that are not described")
            if not out["required"]:
                del out["required"]

    def _intersect(self, out: Node, part: Node, path: Path, told: list[str]) -> None:
        merged = self._join(out, self._dereferenced(part) if "$ref" in part else part, path)
        if merged is not None and "allOf" not in merged:
            self._note(path, "allOf", Effect.SAME, "is merged into the schema that holds it")
            out.clear()
            out.update(merged)
            return
        value = {"allOf": [part]}
        self._drop(value, "allOf", path, told)

    def _are_disjoint(self, branches: list[Node]) -> bool:
        """Whether no value can match two of `branches`: their types differ, or a property they all need has different values."""
        resolved = [self._dereferenced(branch) for branch in branches]
        types = [{"number" if t == "integer" else t for t in _types(branch)} for branch in resolved]
        if all(not (a & b) for i, a in enumerate(types) for b in types[i + 1 :]):
            return True
        needed = set.intersection(*(set(b.get("required", ())) for b in resolved)) if resolved else set()
        for name in needed:
            values = [_values(branch.get("properties", {}).get(name, {})) for branch in resolved]
            known = [v for v in values if v is not None]
            if len(known) == len(values) and all(not (a & b) for i, a in enumerate(known) for b in known[i + 1 :]):
                return all(set(t) == {"object"} for t in types)
        values = [_values(branch) for branch in resolved]
        known = [v for v in values if v is not None]
        return len(known) == len(values) and all(not (a & b) for i, a in enumerate(known) for b in known[i + 1 :])

    def _enums(self, out: Node, path: Path, told: list[str]) -> None:
        rules = self._rules
        keywords = rules.keywords or frozenset()
        if "const" in out and "const" not in keywords:
            if "enum" not in out:
                self._note(path, "const", Effect.SAME, "is written as an enum of one")
                self._note(path, "enum", Effect.SAME, "stands for const")
                out["enum"] = [out.pop("const")]
            else:
                self._drop(out, "const", path, told)
        if rules.enum_types is None:
            return
        if "const" in out and _kind(out["const"]) not in rules.enum_types:
            self._drop(out, "const", path, told)
        if "enum" not in out:
            return
        options: list[Any] = out["enum"]
        kinds = {_kind(option) for option in options}
        if rules.splits_types and "null" in kinds:
            self._note(path, "enum", Effect.SAME, "null is written as a type")
        if kinds <= rules.enum_types:
            return
        if rules.splits_types and kinds <= rules.enum_types | {"null"}:
            return  # null is split off with the types
        if kinds == {"boolean"} and len(options) == 2:
            self._note(path, "enum", Effect.SAME, "true and false are all values there are")
            if "type" not in out:
                out["type"] = "boolean"
                self._note(path, "type", Effect.SAME, "is that of the values")
            del out["enum"]
            return
        if "type" not in out:
            types = sorted(kinds)
            out["type"] = types[0] if len(types) == 1 else types
            self._note(path, "type", Effect.SAME, "is that of the values")
        self._drop(out, "enum", path, told)

    def _keep_null_out(self, out: Node, path: Path) -> None:
        options = [option for option in out["enum"] if option is not None]
        if len(options) == len(out["enum"]):
            return
        if out["type"] == "null":
            self._note(path, "enum", Effect.SAME, "is all that the type allows")
        elif options:
            out["enum"] = options
            return
        else:
            self._note(path, "enum", Effect.LOOSER, "has no value of the type")
        del out["enum"]

    def _infer_type(self, out: Node, path: Path) -> None:
        if any(keyword in out for keyword in ("type", "anyOf", "$ref")):
            return
        if "enum" in out or "const" in out:
            options = out["enum"] if "enum" in out else [out["const"]]
            kinds = list(dict.fromkeys(_kind(option) for option in options))
            out["type"] = kinds[0] if len(kinds) == 1 else kinds
            self._note(path, "type", Effect.SAME, "is that of the values")
            return
        for kind in ("object", "array"):
            if any(keyword in out for keyword in _OF_TYPE[kind]):
                out["type"] = kind
                self._note(path, "type", Effect.NARROWER, f"is not said; read as {kind}")
                return
        if self._rules.needs_type:
            self._note(path, "type", Effect.NARROWER, "is not said, and must be")

    def _untuple(self, out: Node, path: Path) -> None:
        first = out.pop("prefixItems")
        rest = out.get("items", True)
        self._note(path, "prefixItems", Effect.LOOSER, "positions are merged into items")
        options: list[Node] = []
        for option in [*first, *([rest] if isinstance(rest, dict) else [])]:
            if not any(_same(option, other) for other in options):
                options.append(option)
        if rest is False:
            out["maxItems"] = min(out.get("maxItems", len(first)), len(first))
            self._note(path, "maxItems", Effect.SAME, "stands for the end of the positions")
        self._note(path, "items", Effect.LOOSER, "stand for any position")
        is_free = rest is True or any(not option for option in options)
        out["items"] = {} if is_free else options[0] if len(options) == 1 else {"anyOf": options}
        self._clean.remember(out["items"], path)

    def _arrays(self, out: Node, path: Path) -> None:
        if "type" in out and "array" in _types(out):
            if "items" not in out:
                self._note(path, "items", Effect.SAME, "must be said; {} allows anything")
                out["items"] = self._clean.remember({}, path)
            elif isinstance(out["items"], bool) and (self._rules.keywords is not None or out["items"]):
                if out["items"]:
                    self._note(path, "items", Effect.SAME, "true is written as {}")
                else:
                    limit = len(out.get("prefixItems", ()))
                    out["maxItems"] = min(out.get("maxItems", limit), limit)
                    self._note(path, "items", Effect.SAME, "false is written as maxItems")
                    self._note(path, "maxItems", Effect.SAME, "stands for items: false")
                out["items"] = self._clean.remember({}, path)

    def _rename(self, out: Node, path: Path, told: list[str], *, at_root: bool) -> dict[str, str]:
        """Gives properties their aliases; returns the server's name of each."""
        named: Node = out.get("properties", {})
        scope = self._shown if (at_root or not self._rules.only_root_keys) else {}
        renamed = {scope.get(name, name): name for name in named}
        concerned = [name for name in named if name in scope]
        if not any(name in scope for name in (*named, *out.get("required", ()), *out.get("dependentRequired", ()))):
            return renamed
        for keyword in ("patternProperties", "propertyNames", "unevaluatedProperties"):
            if keyword in out and concerned:
                self._drop(out, keyword, path, told)
        if "properties" in out:
            shown: Node = {}
            for name, inner in named.items():
                alias = scope.get(name, name)
                if alias != name:
                    where = self._clean.paths.get(id(inner), (*path, "properties", name))
                    self._note(where, "", Effect.SAME, f"is called {alias}, because the vendor refuses its name")
                    inner = self._clean.remember(dict(inner), where)
                    self._tell(inner, [f"original name: {name[:100]}"], where)
                shown[alias] = inner
            out["properties"] = shown
        if "required" in out:
            out["required"] = [scope.get(name, name) for name in out["required"]]
        if "dependentRequired" in out:
            out["dependentRequired"] = {
                scope.get(name, name): [scope.get(n, n) for n in names]
                for name, names in out["dependentRequired"].items()
            }
        if "dependentSchemas" in out:
            out["dependentSchemas"] = {scope.get(n, n): inner for n, inner in out["dependentSchemas"].items()}
        if any(name in scope for name in (*node_names(out), *concerned)):
            self._note(path, "required", Effect.SAME, "uses the names that the model sees")
        return renamed

    def _close(self, out: Node, path: Path, *, at_root: bool) -> None:
        types = out.get("type")
        if not ("object" in (types if isinstance(types, list) else [types]) or "properties" in out):
            return
        rest = out.get("additionalProperties")
        if rest not in (None, False) or (rest is None and not out.get("properties") and not at_root):
            self._note(
                path, "additionalProperties", Effect.NARROWER, "properties that are not named are no longer possible"
            )
        elif rest is None:
            self._note(
                path, "additionalProperties", Effect.SAME, "nothing is said of properties that are not named; refused"
            )
        if "patternProperties" in out:
            self._note(path, "patternProperties", Effect.NARROWER, "properties by pattern are not possible")
        out["additionalProperties"] = False
        out.setdefault("properties", {})

    def _children(self, out: Node, path: Path, *, required: bool, at_root: bool) -> None:
        needed = set(out.get("required", ()))
        for keyword, value in list(out.items()):
            here = (*path, keyword)
            if keyword not in KEYWORDS:
                continue
            if keyword == "properties":
                out[keyword] = {
                    name: self._node(inner, (*here, name), required=required and name in needed)
                    for name, inner in value.items()
                }
            elif keyword in ("patternProperties", "dependentSchemas"):
                in_place = at_root and keyword == "dependentSchemas"
                out[keyword] = {
                    name: self._node(inner, (*here, name), required=required, at_root=in_place)
                    for name, inner in value.items()
                }
            elif isinstance(value, list):
                in_place = at_root and keyword != "prefixItems"
                out[keyword] = [
                    self._node(inner, (*here, index), required=required, at_root=in_place)
                    for index, inner in enumerate(value)
                ]
            elif isinstance(value, dict):
                in_place = at_root and keyword in ("if", "then", "else", "not")
                out[keyword] = self._node(value, here, required=required, at_root=in_place)

    def _require_all(self, out: Node, origins: dict[str, Path], path: Path) -> None:
        needed = set(out.get("required", ()))
        shown: Node = {}
        for name, inner in out["properties"].items():
            if name in needed:
                shown[name] = inner
                continue
            where = origins[name]
            if self._takes_null(inner):
                # A server may do one thing for null and another for nothing: only the second could no longer be said.
                if _has_default(inner) or _default_is_told(inner):
                    self._note(
                        where, "", Effect.NARROWER, "takes null and has a default, which could no longer be left out"
                    )
                self._note(where, "", Effect.SAME, "may be null, which stands for absent too")
                shown[name] = inner
            else:
                self._note(where, "", Effect.SAME, "may be absent; sent as null then")
                shown[name] = _nullable(inner)
        out["properties"] = shown
        if list(shown) != out.get("required", []):
            self._note(path, "required", Effect.SAME, "all properties are named; those that may be absent take null")
        if shown:
            out["required"] = list(shown)
        else:
            out["required"] = []

    def _takes_null(self, node: Node, depth: int = 0) -> bool:
        if depth > 20:
            return True
        if "$ref" in node and not self._takes_null(self._clean.definitions[node["$ref"][8:]], depth + 1):
            return False
        types = node.get("type", "null")
        if "null" not in (types if isinstance(types, list) else [types]):
            return False
        if "const" in node and node["const"] is not None:
            return False
        if "enum" in node and not any(option is None for option in node["enum"]):
            return False
        return "anyOf" not in node or any(self._takes_null(branch, depth + 1) for branch in node["anyOf"])

    def _split_types(self, out: Node, path: Path) -> Node:
        """A list of types as anyOf, each with the keywords that bear on it."""
        types: list[str] = out.pop("type")
        branches: list[Node] = []
        if "anyOf" in out:
            known = [_types(branch) for branch in out["anyOf"]]
            if all("type" in branch and set(t) <= set(types) for branch, t in zip(out["anyOf"], known, strict=True)):
                self._note(path, "type", Effect.SAME, "is said in each alternative")
            else:
                self._note(path, "type", Effect.LOOSER, "cannot stand beside anyOf")
            return {key: value for key, value in out.items() if key not in _TYPED and key != "enum"}
        for type_ in types:
            kind = "number" if type_ == "integer" else type_
            branch: Node = {"type": type_}
            branch |= {key: out[key] for key in out if key in _OF_TYPE[kind]}
            if "enum" in out:
                options = [option for option in out["enum"] if _kind(option) == kind]
                if not options:
                    continue
                if kind != "null":
                    branch["enum"] = options
            branches.append(ordered(branch))
        self._note(path, "type", Effect.SAME, "a list of types is written as anyOf")
        rest = {key: value for key, value in out.items() if key not in _TYPED and key != "enum"}
        if len(branches) == 1:
            return {**rest, **branches[0]}
        return {**rest, "anyOf": branches}

    # --- telling ----------------------------------------------------------------------------------------------------------------

    def _drop(self, out: Node, keyword: str, path: Path, told: list[str]) -> None:
        """Removes a keyword; says it in the description if that is short."""
        value = out.pop(keyword)
        if keyword in ("readOnly", "writeOnly", "deprecated", "$comment", "title") or (
            keyword not in KEYWORDS and keyword not in _CONSTRAINTS and keyword not in ANNOTATIONS
        ):
            self._note(path, keyword, Effect.SAME, "says nothing about what may be sent, and has no place there")
            return
        if keyword == "additionalProperties" and value in (True, {}):
            self._note(path, keyword, Effect.SAME, "is so anyway")
            return
        text = f"{keyword}: {_compact(value)}"
        fits = len(text) <= _TOLD_CHARS
        if fits:
            told.append(text)
        if keyword in ANNOTATIONS:
            self._note(
                path,
                keyword,
                Effect.SAME,
                "is said in the description" if fits else "is only a remark; too long to say",
            )
        else:
            self._note(path, keyword, Effect.TOLD if fits else Effect.LOOSER, "is not enforced")

    def _tell(self, out: Node, told: list[str], path: Path) -> None:
        if not told:
            return
        text = "; ".join(dict.fromkeys(told))
        if len(text) > _TOLD_TOTAL_CHARS:
            text = text[: _TOLD_TOTAL_CHARS - 1] + "…"
        own = out.get("description")
        out["description"] = f"{own}\n({text})" if own else f"({text})"
        self._note(path, "description", Effect.SAME, "says what the schema cannot")

    # --- sizes ------------------------------------------------------------------------------------------------------------------

    def _check_sizes(self, schema: Node) -> None:
        rules = self._rules
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
            firsts = [
                next(iter(b.get("properties", {})), None) for b in node.get("anyOf", ()) if b.get("type") == "object"
            ]
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


_CONSTRAINTS: Final = frozenset(
    {
        "const",
        "dependentRequired",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "maxContains",
        "maxItems",
        "maxLength",
    }
    | {
        "maxProperties",
        "maximum",
        "minContains",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
        "pattern",
    }
    | {"required", "type", "uniqueItems"}
)


def node_names(node: Node) -> Iterator[str]:
    """Property names that `node` speaks of."""
    yield from node.get("properties", {})
    yield from node.get("required", ())


def _compact(value: Any) -> str:
    return msgspec.json.encode(value).decode() if not isinstance(value, str) else value


def _same(a: Any, b: Any) -> bool:
    return bool(msgspec.json.encode(a, order="sorted") == msgspec.json.encode(b, order="sorted"))


def _distinct(lists: list[list[str]]) -> list[list[str]]:
    return [list(item) for item in dict.fromkeys(tuple(names) for names in lists)]


def _types(node: Node) -> list[str]:
    declared = node.get("type")
    if declared is None:
        return list(_ALL_TYPES)
    return list(declared) if isinstance(declared, list) else [declared]


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case int() | float():
            return "number"
        case list() | tuple():
            return "array"
    return "object"


def _values(node: Node) -> set[bytes] | None:
    if "const" in node:
        return {msgspec.json.encode(node["const"], order="sorted")}
    if "enum" in node:
        return {msgspec.json.encode(option, order="sorted") for option in node["enum"]}
    return None


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
    types = _types(node)
    out = {**node, "type": [*types, "null"]}
    if "enum" in node:
        out["enum"] = [*node["enum"], None]
    return ordered(out)


def _property_names(roots: list[Node], *, through_places: bool) -> Iterator[str]:
    """Names under `properties`, everywhere below `roots`, or only where they name parts of the value itself."""
    in_place: Callable[[str], bool] = lambda keyword: keyword in ("if", "then", "else", "not")  # noqa: E731
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
            elif through_places or in_place(keyword):
                stack.append(value)
