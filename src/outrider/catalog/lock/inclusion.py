"""Whether every value that one JSON Schema allows is allowed by another: proved, or not known. Pure.

Decided here: when inclusion is certain. A "yes" is a proof: what is not understood in the narrower schema is left out of account, what is
not understood in the wider one makes the answer "not known". Not here: what that means to who calls the tool (`schemas`).

Why it ends with the right answer on recursive schemas: a pair that comes up again deeper in the value may be taken for proved, since
values are finite; one that comes up again at the same place may not.

Spec: ours; keywords as in JSON Schema 2020-12 and the dialects that `protocol.schema` knows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from outrider.catalog.lock.rules import DIALECT_NAMES, OPAQUE, Schemas, Side
from outrider.errors import LimitExceeded, OutriderError
from outrider.protocol.digest import canonical_json
from outrider.protocol.schema import Dialect, dialect_of, subschemas
from outrider.protocol.schema_validation import Validator

__all__ = ["Effort", "is_included"]

_TYPES: Final[dict[str, frozenset[str]]] = {
    **{name: frozenset({name}) for name in ("null", "boolean", "object", "array", "string", "integer")},
    "number": frozenset({"integer", "fraction"}),
}
_ALL_TYPES: Final = frozenset().union(*_TYPES.values())
_NUMBERS: Final = _TYPES["number"]
_APPLIES: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), _NUMBERS),
    **dict.fromkeys(("minLength", "maxLength", "pattern"), _TYPES["string"]),
    **dict.fromkeys(
        ("items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains", "unevaluatedItems"),
        _TYPES["array"],
    ),
    **dict.fromkeys(
        ("properties", "patternProperties", "additionalProperties", "required", "minProperties", "maxProperties", "propertyNames"),
        _TYPES["object"],
    ),
    **dict.fromkeys(
        ("dependencies", "dependentRequired", "dependentSchemas", "unevaluatedProperties"), _TYPES["object"]
    ),
}  # fmt: skip
_LIMITS: Final = {
    "minLength": 1, "minItems": 1, "minProperties": 1, "maxLength": -1, "maxItems": -1, "maxProperties": -1,
}  # fmt: skip
_BY_VALUE: Final = frozenset({"type", "enum", "const", "pattern", *_LIMITS} | {"multipleOf"} | {"minimum", "maximum"})

_MAX_STEPS: Final = 6_000
_MAX_DEPTH: Final = 60
_MAX_CHOICES: Final = 40


class Effort:
    """How much work a proof may still cost, in steps of some tens of microseconds. Shared by proofs that belong together."""

    def __init__(self, steps: int = _MAX_STEPS) -> None:
        self._left = steps

    def spend(self) -> None:
        """Take one step.

        Raises:
            LimitExceeded: none is left.
        """
        self._left -= 1
        if self._left < 0:
            raise LimitExceeded("the schemas cannot be compared with a bounded effort")


def is_included(narrow: Any, wide: Any, *, effort: Effort | None = None) -> bool:
    """Whether every value that `narrow` allows is certainly allowed by `wide`. False means that it could not be shown.

    Args:
        narrow: a decoded JSON Schema: a dict or a bool.
        wide: another one.
        effort: what the proof may cost; None for the usual.
    """
    if wide is True or narrow is False:
        return True
    dialect = dialect_of(narrow)
    if dialect is None or dialect is not dialect_of(wide):
        return False
    try:
        if _changes_dialect(narrow) or _changes_dialect(wide):
            return False
        prover = _Prover(Side(narrow, dialect), Side(wide, dialect), effort or Effort())
        return prover.included((narrow,), wide, 0)
    except (OutriderError, RecursionError):
        return False


def _changes_dialect(schema: Any) -> bool:
    return any(place.path and isinstance(place.node, dict) and "$schema" in place.node for place in subschemas(schema))


class _Prover:
    """Proves inclusion of schemas of one document in schemas of another.

    Methods take the depth of the place in the value, and the narrower side as the schemas that hold there together.
    """

    def __init__(self, narrow: Side, wide: Side, effort: Effort, inverse: _Prover | None = None) -> None:
        self._narrow = narrow
        self._wide = wide
        self._open: dict[tuple[tuple[int, ...], int], int] = {}
        self._effort = effort
        self._inverse = inverse

    @property
    def _reversed(self) -> _Prover:
        if self._inverse is None:
            self._inverse = _Prover(self._wide, self._narrow, self._effort, self)
        return self._inverse

    def included(self, given: Schemas, wanted: Any, depth: int) -> bool:
        """Whether every value that all of `given` allow is allowed by `wanted`."""
        if wanted is True or wanted == {}:
            return True
        self._effort.spend()
        known = self._narrow.together(given)
        if known is None:
            return True
        if not isinstance(wanted, dict) or depth > _MAX_DEPTH:
            return False
        spelling = self._wide.spelling(wanted)
        if spelling is not None and any(self._narrow.spelling(node) == spelling for node in known):
            return True
        if self._wide.is_doubtful(wanted):
            return False
        key = (tuple(map(id, known)), id(wanted))
        before = self._open.get(key)
        if before is not None:
            return depth > before
        self._open[key] = depth
        try:
            types = self._types(known)
            return not types or self._by_rules(known, types, wanted, depth) or self._by_cases(known, wanted, depth)
        finally:
            del self._open[key]

    def _by_rules(self, known: Schemas, types: frozenset[str], wanted: dict[str, Any], depth: int) -> bool:
        rules = self._wide.rules(wanted)
        return all(
            not types & _APPLIES.get(keyword, _ALL_TYPES) or self._implied(known, types, wanted, rules, keyword, depth)
            for keyword in rules
        )

    def _by_cases(self, known: Schemas, wanted: dict[str, Any], depth: int) -> bool:
        """Try each alternative of the narrower side by itself."""
        for cases in self._cases(known):
            if 0 < len(cases) <= _MAX_CHOICES:
                return all(self.included((*known, case), wanted, depth) for case in cases)
        return False

    def _cases(self, known: Schemas) -> Iterator[list[Any]]:
        """Alternatives of which one must hold. One that has been chosen already is not offered again."""
        chosen = {id(node) for node in known}
        for node in known:
            rules = self._narrow.rules(node)
            for keyword in ("anyOf", "oneOf"):
                branches = rules.get(keyword)
                if isinstance(branches, list) and not any(id(branch) in chosen for branch in branches):
                    yield branches
        values = self._values(known)
        if values is not None:
            if len(values) > 1:
                yield [{"enum": [value]} for value in values]
            return
        types = self._types(known)
        if 1 < len(types) < len(_ALL_TYPES):
            names = [name for name in _TYPES if name != "number" and name in types]
            if "fraction" in types:
                names = [*(name for name in names if name != "integer"), "number"]
            if len(names) > 1:
                yield [{"type": name} for name in names]

    # -- what is known of the narrower side ------------------------------------------------------------------------------------------

    def _each(self, known: Schemas, keyword: str) -> Iterator[Any]:
        """The values of a keyword on the narrower side."""
        for node in known:
            rules = self._narrow.rules(node)
            if keyword in rules:
                yield rules[keyword]

    def _values(self, known: Schemas) -> list[Any] | None:
        """The only values there can be, or None if they are not listed."""
        listed = [values for values in self._each(known, "enum") if isinstance(values, list)]
        listed += [[value] for value in self._each(known, "const")]
        if not listed:
            return None
        fewest = min(listed, key=len)
        others = [{canonical_json(value) for value in values} for values in listed if values is not fewest]
        return [value for value in fewest if all(canonical_json(value) in other for other in others)]

    def _types(self, known: Schemas) -> frozenset[str]:
        types = _ALL_TYPES
        for declared in self._each(known, "type"):
            types &= _expanded(declared)
        values = self._values(known)
        if values is not None:
            types &= frozenset().union(*(_types_of(value) for value in values))
        return types

    # -- one keyword of the wider side -----------------------------------------------------------------------------------------------

    def _implied(
        self,
        known: Schemas,
        types: frozenset[str],
        node: dict[str, Any],
        rules: dict[str, Any],
        keyword: str,
        depth: int,
    ) -> bool:
        wanted = rules[keyword]
        if keyword in _BY_VALUE and (values := self._values(known)) is not None:
            return self._values_fit(values, keyword, rules)
        match keyword:
            case "enum" | "const":
                return False  # Weighed above where the possible values are known.
            case "type":
                return types <= _expanded(wanted, otherwise=frozenset())
            case "minimum" | "exclusiveMinimum":
                return self._is_bounded(known, rules, "minimum", "exclusiveMinimum", 1)
            case "maximum" | "exclusiveMaximum":
                return self._is_bounded(known, rules, "maximum", "exclusiveMaximum", -1)
            case "multipleOf":
                return (
                    _is_number(wanted)
                    and wanted > 0
                    and any(_is_multiple(step, wanted) for step in self._each(known, keyword))
                )
            case _ if keyword in _LIMITS:
                sign = _LIMITS[keyword]
                if not _is_number(wanted):
                    return False
                return (sign > 0 and wanted <= 0) or any(
                    _is_number(limit) and sign * limit >= sign * wanted for limit in self._each(known, keyword)
                )
            case "uniqueItems":
                return wanted is False or (
                    wanted is True and any(value is True for value in self._each(known, keyword))
                )
            case _ if keyword in OPAQUE:
                return any(canonical_json(value) == canonical_json(wanted) for value in self._each(known, keyword))
            case "required":
                return isinstance(wanted, list) and _names(wanted) <= self._required(known)
            case "properties" | "patternProperties" | "additionalProperties":
                return self._properties_fit(known, rules, keyword, depth)
            case "items" | "prefixItems" | "additionalItems":
                return self._items_fit(known, rules, depth)
            case "allOf":
                return isinstance(wanted, list) and all(self.included(known, part, depth) for part in wanted)
            case "$ref":
                target = self._wide.target(wanted, node) if isinstance(wanted, str) else None
                return target is not None and self.included(known, target, depth)
            case "anyOf":
                return isinstance(wanted, list) and any(self.included(known, branch, depth) for branch in wanted)
            case "oneOf":
                return isinstance(wanted, list) and self._is_one_of(known, wanted, depth)
            case "not":
                return any(self._reversed.included((wanted,), inner, depth) for inner in self._each(known, "not"))
            case "propertyNames":
                return self.included(tuple(self._each(known, keyword)), wanted, depth + 1)
            case "contains":
                return self._contains(known, rules, depth)
            case "minContains" | "maxContains":
                return "contains" in rules  # weighed there
            case "if":
                return self._is_conditional(known, rules, depth)
            case "then" | "else":
                return True  # weighed with `if`, nothing without it
            case "dependentRequired" | "dependentSchemas" | "dependencies":
                return isinstance(wanted, dict) and all(
                    self._depends(known, keyword, name, then, depth) for name, then in wanted.items()
                )
        return wanted is True or wanted == {}  # unevaluated…: only what forbids nothing; $dynamicRef: never

    def _values_fit(self, values: list[Any], keyword: str, rules: dict[str, Any]) -> bool:
        """Whether each of the only possible values satisfies a keyword, as the validator says."""
        rule = {keyword: rules[keyword]}
        if keyword in ("minimum", "maximum"):
            exclusive = f"exclusive{keyword.capitalize()}"
            rule |= {exclusive: rules[exclusive]} if rules.get(exclusive) is True else {}
        if self._wide.dialect is not Dialect.DRAFT_2020_12:
            rule["$schema"] = DIALECT_NAMES[self._wide.dialect]
        validator = Validator(rule)
        return all(not validator.check(value) for value in values)

    def _is_bounded(self, known: Schemas, rules: dict[str, Any], plain: str, exclusive: str, sign: int) -> bool:
        wanted = _bounds(rules, plain, exclusive, sign)
        if wanted is None:
            return False
        there = [bound for node in known for bound in _bounds(self._narrow.rules(node), plain, exclusive, sign) or ()]
        return all(any(bound >= want for bound in there) for want in wanted)

    def _required(self, known: Schemas) -> set[str]:
        return set().union(*(_names(names) for names in self._each(known, "required") if isinstance(names, list)))

    def _property(self, known: Schemas, name: str) -> Schemas:
        """What is known to hold for the member of that name."""
        found = []
        for node in known:
            rules = self._narrow.rules(node)
            properties = rules.get("properties")
            if isinstance(properties, dict) and name in properties:
                found.append(properties[name])
            elif not rules.get("patternProperties") and "additionalProperties" in rules:
                found.append(rules["additionalProperties"])
        return tuple(found)

    def _properties_fit(self, known: Schemas, rules: dict[str, Any], keyword: str, depth: int) -> bool:
        wanted = rules[keyword]
        if keyword == "properties":
            return isinstance(wanted, dict) and all(
                self.included(self._property(known, name), schema, depth + 1) for name, schema in wanted.items()
            )
        if keyword == "patternProperties":
            patterns = [value for value in self._each(known, keyword) if isinstance(value, dict)]
            return isinstance(wanted, dict) and all(
                schema is True
                or any(self.included((each[pattern],), schema, depth + 1) for each in patterns if pattern in each)
                for pattern, schema in wanted.items()
            )
        named, patterned = rules.get("properties") or {}, rules.get("patternProperties") or {}
        if wanted is True or wanted == {}:
            return True
        if not isinstance(named, dict) or not isinstance(patterned, dict):
            return False
        return any(
            self._rest_fits(known, self._narrow.rules(node), wanted, frozenset(named), frozenset(patterned), depth)
            for node in known
        )

    def _rest_fits(
        self,
        known: Schemas,
        rules: dict[str, Any],
        wanted: Any,
        named: frozenset[str],
        patterned: frozenset[str],
        depth: int,
    ) -> bool:
        """Whether every member that the wider side does not name is as it wants the rest to be, by what one schema says."""
        properties, patterns = rules.get("properties") or {}, rules.get("patternProperties") or {}
        if "additionalProperties" not in rules or not isinstance(properties, dict) or not isinstance(patterns, dict):
            return False
        return (
            self.included((rules["additionalProperties"],), wanted, depth + 1)
            and all(self.included(self._property(known, name), wanted, depth + 1) for name in properties.keys() - named)
            and all(
                self.included((schema,), wanted, depth + 1)
                for pattern, schema in patterns.items()
                if pattern not in patterned
            )
        )

    def _items_fit(self, known: Schemas, rules: dict[str, Any], depth: int) -> bool:
        wanted = _sequence(rules, self._wide.dialect)
        lists = [_sequence(self._narrow.rules(node), self._narrow.dialect) for node in known]
        if wanted is None:
            return False
        usable = [each for each in lists if each is not None]
        longest = max([len(first) for first, _ in (*usable, wanted)])
        most = min([limit for limit in self._each(known, "maxItems") if _is_number(limit)], default=math.inf)
        for position in range(longest + 1):
            if position >= most:
                return True
            there = tuple(_item(each, position) for each in usable)
            if not self.included(there, _item(wanted, position), depth + 1):
                return False
        return True

    def _is_one_of(self, known: Schemas, wanted: list[Any], depth: int) -> bool:
        types = [self._reversed._types((branch,)) if isinstance(branch, dict) else _ALL_TYPES for branch in wanted]
        if all(not one & other for number, one in enumerate(types) for other in types[:number]):
            return any(self.included(known, branch, depth) for branch in wanted)  # no value fits two of them
        return any(
            isinstance(there, list) and self._same_branches(there, wanted, depth)
            for there in self._each(known, "oneOf")
        )

    def _same_branches(self, there: list[Any], wanted: list[Any], depth: int) -> bool:
        """Whether each branch of one side means exactly what a branch of the other does."""
        if len(there) != len(wanted) or len(wanted) > _MAX_CHOICES:
            return False
        left = [*there]
        for branch in wanted:
            same = next((one for one in left if self._means_the_same(one, branch, depth)), None)
            if same is None:
                return False
            left.remove(same)
        return True

    def _means_the_same(self, one: Any, other: Any, depth: int) -> bool:
        return self.included((one,), other, depth) and self._reversed.included((other,), one, depth)

    def _contains(self, known: Schemas, rules: dict[str, Any], depth: int) -> bool:
        least, most = rules.get("minContains", 1), rules.get("maxContains", math.inf)
        if not _is_number(least) or not _is_number(most):
            return False
        if least <= 0 and most == math.inf:
            return True
        for node in known:
            there = self._narrow.rules(node)
            if "contains" not in there:
                continue
            fewest, many = there.get("minContains", 1), there.get("maxContains", math.inf)
            if not _is_number(fewest) or not _is_number(many):
                continue
            enough = fewest >= least and self.included((there["contains"],), rules["contains"], depth + 1)
            few = most == math.inf or (
                many <= most and self._reversed.included((rules["contains"],), there["contains"], depth + 1)
            )
            if (enough or least <= 0) and few:
                return True
        return False

    def _is_conditional(self, known: Schemas, rules: dict[str, Any], depth: int) -> bool:
        then, otherwise = rules.get("then", True), rules.get("else", True)
        if then is True and otherwise is True:
            return True
        for node in known:
            there = self._narrow.rules(node)
            if (
                "if" in there
                and self._means_the_same(there["if"], rules["if"], depth)
                and self.included((*known, there.get("then", True)), then, depth)
                and self.included((*known, there.get("else", True)), otherwise, depth)
            ):
                return True
        return False

    def _depends(self, known: Schemas, keyword: str, name: str, then: Any, depth: int) -> bool:
        there = [value[name] for value in self._each(known, keyword) if isinstance(value, dict) and name in value]
        if isinstance(then, list):
            if keyword == "dependentSchemas":
                return False
            needed = self._required(known).union(*(_names(names) for names in there if isinstance(names, list)))
            return _names(then) <= needed
        if keyword == "dependentRequired":
            return False
        return self.included((*known, *(schema for schema in there if not isinstance(schema, list))), then, depth)


def _expanded(declared: Any, otherwise: frozenset[str] = _ALL_TYPES) -> frozenset[str]:
    """The types that a `type` names, fractions apart from whole numbers; `otherwise` if it is malformed."""
    names = declared if isinstance(declared, list) else [declared]
    if not names or not all(isinstance(name, str) and name in _TYPES for name in names):
        return otherwise
    return frozenset().union(*(_TYPES[name] for name in names))


def _types_of(value: Any) -> frozenset[str]:
    match value:
        case None:
            return _TYPES["null"]
        case bool():
            return _TYPES["boolean"]
        case str():
            return _TYPES["string"]
        case list():
            return _TYPES["array"]
        case dict():
            return _TYPES["object"]
    # 1.0 is an integer or not, as the dialect says.
    return _TYPES["integer"] if isinstance(value, int) else _NUMBERS


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_multiple(step: Any, wanted: Any) -> bool:
    if not _is_number(step):
        return False
    if isinstance(step, int) and isinstance(wanted, int):
        return step % wanted == 0
    return bool(step == wanted)  # Fractions are not exact: only the same one is certain.


def _bounds(rules: dict[str, Any], plain: str, exclusive: str, sign: int) -> list[tuple[float, bool]] | None:
    """Bounds so that the greater one is the tighter one; None if one is malformed. In draft-04 a flag makes the bound exclusive."""
    found = []
    limit: Any = rules.get(plain)
    strict: Any = rules.get(exclusive)
    if plain in rules:
        if not _is_number(limit):
            return None
        found.append((sign * limit, strict is True))
    if exclusive in rules and not isinstance(strict, bool):
        if not _is_number(strict):
            return None
        found.append((sign * strict, True))
    return found


def _names(value: list[Any]) -> set[str]:
    return {name for name in value if isinstance(name, str)}


def _sequence(rules: dict[str, Any], dialect: Dialect) -> tuple[list[Any], Any] | None:
    """The schemas of the first items and of the rest; None if they cannot be read."""
    items = rules.get("items", True)
    if dialect is Dialect.DRAFT_2020_12:
        first, rest = rules.get("prefixItems", []), items
    elif isinstance(items, list):
        first, rest = items, rules.get("additionalItems", True)
    else:
        first, rest = [], items
    return (first, rest) if isinstance(first, list) and isinstance(rest, dict | bool) else None


def _item(sequence: tuple[list[Any], Any], position: int) -> Any:
    first, rest = sequence
    return first[position] if position < len(first) else rest
