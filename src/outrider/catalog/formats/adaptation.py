"""A tool's schema as a vendor takes it, and a complete account of what is different.

Decided here: in which order meaning is given up, what becomes of references and definitions, and how what stands below a schema
is reached. Not here: how a schema becomes clean (`reading`), the vendors' rules (`vendors`), the single steps (`flattening` of the root,
`vocabulary`, `aliases` of parameters, `closing` for strict mode), the `account` of all that, and the way back of arguments (`arguments`).
Pure; the source is never changed.

The rule: the model must be able to say every call that was right, so a constraint that a vendor refuses is dropped, not tightened, and is
said in the description instead. Where a vendor's types force a choice, the change says "narrower".

Spec: ours
"""

from __future__ import annotations

from msgspec import Struct

from outrider.catalog.formats.account import Account
from outrider.catalog.formats.aliases import aliases, rename
from outrider.catalog.formats.clean import ANNOTATIONS, Change, CleanSchema, Effect, Node, Path, ordered
from outrider.catalog.formats.closing import close, require_all, require_sizes
from outrider.catalog.formats.flattening import flat_root
from outrider.catalog.formats.kinds import types_of
from outrider.catalog.formats.vendors import SchemaRules
from outrider.catalog.formats.vocabulary import complete_arrays, limit, split_types
from outrider.protocol.schema import KEYWORDS

__all__ = ["Adapted", "adapt"]


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


def adapt(clean: CleanSchema, rules: SchemaRules, *, must_keep_meaning: bool = False) -> Adapted:
    """`clean` under `rules`.

    Args:
        clean: what `read_schema` returned; it is not changed.
        rules: what the vendor takes.
        must_keep_meaning: refuse rather than lose anything; for strict mode.

    Raises:
        NotStrict: `must_keep_meaning`, and the meaning would change or a size is exceeded.
    """
    return _Adapter(Account(clean, rules, must_keep_meaning=must_keep_meaning)).adapt()


class _Adapter:
    def __init__(self, account: Account) -> None:
        self._account = account
        self._clean = account.clean
        self._rules = account.rules
        self._shown: dict[str, str] = {}
        self._used: dict[str, None] = {}
        self._scope: str | None = None  # the definition that is being adapted, or None for the root
        self._optional = 0
        self._unions = 0

    def adapt(self) -> Adapted:
        root = flat_root(self._account)
        self._shown = aliases(self._account, root)
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
        if self._account.must_keep_meaning:
            require_sizes(schema, self._rules)
        return Adapted(
            schema,
            tuple(dict.fromkeys(self._account.changes)),
            {shown: own for own, shown in self._shown.items()},
            self._optional,
            self._unions,
        )

    def _node(self, node: Node, where: Path, *, required: bool, at_root: bool = False) -> Node:
        """`node` as the vendor takes it.

        Args:
            node: a clean schema.
            where: its place in the source, if it was made here and none is known.
            required: whether every step from the root or the definition to here leads through something that must be there.
            at_root: whether it applies to the arguments themselves.
        """
        path = self._clean.paths.get(id(node), where)
        rules, account = self._rules, self._account
        told: list[str] = []
        out = dict(node)
        if "$ref" in out:
            out = self._reference(out, path, told, required=required, at_root=at_root)
            if set(out) == {"$ref"}:
                return out
        if rules.keywords is not None:
            limit(account, out, path, told)
        complete_arrays(account, out, path)
        shown = self._shown if at_root or not rules.only_root_keys else {}
        renamed = rename(account, out, path, told, shown)
        if rules.is_strict:
            close(account, out, path, at_root=at_root)
        origins = {
            name: self._clean.paths.get(id(inner), (*path, "properties", renamed.get(name, name)))
            for name, inner in out.get("properties", {}).items()
        }
        self._children(out, path, required=required, at_root=at_root)
        if rules.requires_all and "properties" in out:
            require_all(account, out, origins, path)
        elif rules.is_strict:
            self._optional += len(set(out.get("properties", {})) - set(out.get("required", ())))
        if "anyOf" in out or isinstance(out.get("type"), list):
            self._unions += 1
        if rules.splits_types and isinstance(out.get("type"), list):
            out = split_types(account, out, path)
        account.tell(out, told, path)
        return ordered(out)

    def _reference(self, out: Node, path: Path, told: list[str], *, required: bool, at_root: bool) -> Node:
        name = out["$ref"][8:]
        rules, account = self._rules, self._account
        is_cycle = self._scope is not None and name in self._clean.recursive.get(self._scope, ())
        rest = {key: value for key, value in out.items() if key != "$ref"}
        if rules.recursion == "none" and self._clean.recursive.get(name):
            account.note(path, "$ref", Effect.LOOSER, "is recursive")
            return rest
        if is_cycle and rules.recursion == "optional" and required:
            account.note(path, "$ref", Effect.LOOSER, "is recursive, and not under a property that may be absent")
            types = types_of(account.dereferenced(self._clean.definitions[name]))
            return {**({"type": types[0]} if len(types) == 1 else {}), **rest}
        if at_root and self._shown and rules.only_root_keys:
            # A definition is shared with places where parameters keep their names.
            if self._clean.recursive.get(name):
                account.note(path, "$ref", Effect.LOOSER, "cannot be kept where parameters have other names")
                return rest
            merged = account.join(rest, self._clean.definitions[name], path)
            if merged is None or "$ref" in merged:
                account.note(path, "$ref", Effect.LOOSER, "cannot be kept where parameters have other names")
                return rest
            account.note(path, "$ref", Effect.SAME, "is replaced by what it refers to")
            self._clean.remember(merged, path)
            return merged
        if not rest or not rules.ref_stands_alone:
            self._used.setdefault(name)
            return out
        constraints = {key: value for key, value in rest.items() if key not in ANNOTATIONS}
        if constraints:
            merged = None
            if not self._clean.recursive.get(name):
                merged = account.join(rest, account.dereferenced(self._clean.definitions[name]), path)
            if merged is not None and "$ref" not in merged:
                account.note(path, "$ref", Effect.SAME, "is replaced by what it refers to")
                return self._clean.remember(merged, path)
            for keyword in constraints:
                account.drop(rest, keyword, path, told)
        self._used.setdefault(name)
        account.note(path, "$ref", Effect.SAME, "is put into anyOf, because nothing may stand beside it")
        return {**rest, "anyOf": [self._clean.remember({"$ref": f"#/$defs/{name}"}, path)]}

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
