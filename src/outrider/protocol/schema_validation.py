"""Whether a value matches its schema, and how it differs.

Decided here: how much work checking one value may cost, found before it starts because nothing can interrupt it, and how a difference is
told to a person or a model. Not here: whether the schema can be used at all (`schema_findings`). Pure: the checking itself is
jsonschema-rs, which is kept from the network and from files.

Spec: 2026-07-28 basic/index#json-schema-usage
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from outrider.errors import LimitExceeded, LocalProtocolError, RemoteProtocolError
from outrider.protocol.schema import (
    LIMITS,
    REFERENCE_KEYWORDS,
    RESOURCE_RULE,
    Dialect,
    Path,
    SchemaDocument,
    SchemaLimits,
    dialect_of,
)
from outrider.protocol.schema_findings import Verdict, schema_findings

if TYPE_CHECKING:
    import jsonschema_rs

__all__ = ["Validator", "Violation"]

_VALIDITY_RULE: Final = "2026-07-28 basic/index#schema-validation"
# Keywords whose schemas apply to the same value, not to a part of it.
_IN_PLACE: Final = frozenset(
    {"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies", *REFERENCE_KEYWORDS}
)


class Violation(msgspec.Struct, frozen=True):
    """One way in which a value does not match its schema, for a person or a model to correct.

    Attributes:
        path: how to get to the value at fault: property names and indexes; () for the value itself.
        expected: what the schema wants there, such as "integer" or "at most 10".
        got: what is there, at most 80 characters of JSON, or "nothing".
    """

    path: Path
    expected: str
    got: str

    def __str__(self) -> str:
        where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path).lstrip(".")
        return f"{where or 'the value'}: expected {self.expected}, got {self.got}"


_MAX_VIOLATIONS: Final = 20
_MAX_VALUE_DEPTH: Final = 200
# Every violation of every branch costs an object; above this much work only the verdict is asked for.
_DETAILED_EVALUATIONS: Final = 10_000
_BACKTRACK_LIMIT: Final = 50_000
_PATTERN_BYTES: Final = 1 << 20
_COST_CEILING: Final = 10**15
_EXCERPT_CHARS: Final = 80


class Validator:
    """Checks values against one schema, in the dialect it declares, without network or file access.

    `format` is not enforced: servers use it as a remark, as 2020-12 does by default.

    Args:
        schema: the schema, decoded, or as JSON in `bytes` or `msgspec.Raw`.
        limits: bounds for the schema and for checking one value.

    Raises:
        RemoteProtocolError: the schema cannot be used: it is not valid in its dialect, declares an unknown one, or refers to
            something outside itself. Nothing may be said about values then, neither that they match nor that they do not.

    Spec: 2026-07-28 basic/index#implementation-requirements (MUST), #ref-resolution (MUST NOT dereference; SHOULD reject)
    """

    def __init__(self, schema: Any, *, limits: SchemaLimits = LIMITS) -> None:
        import jsonschema_rs  # a large extension module that discovery alone never needs

        if isinstance(schema, bytes | msgspec.Raw):
            try:
                schema = msgspec.json.decode(schema)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise RemoteProtocolError("the schema is not JSON that can be read", rule=_VALIDITY_RULE) from error
        for finding in schema_findings(schema, limits, root_is_object=False):
            if finding.verdict is not Verdict.NOTE:
                raise RemoteProtocolError(
                    f"the schema cannot be used: {finding.where} {finding.message}", rule=_VALIDITY_RULE
                )
        dialect = dialect_of(schema)
        assert dialect is not None
        compilers = {
            Dialect.DRAFT_2020_12: jsonschema_rs.Draft202012Validator,
            Dialect.DRAFT_2019_09: jsonschema_rs.Draft201909Validator,
            Dialect.DRAFT_07: jsonschema_rs.Draft7Validator,
            Dialect.DRAFT_06: jsonschema_rs.Draft6Validator,
            Dialect.DRAFT_04: jsonschema_rs.Draft4Validator,
        }
        try:
            self._compiled = compilers[dialect](
                schema,
                validate_formats=False,
                offline=True,
                pattern_options=jsonschema_rs.FancyRegexOptions(
                    backtrack_limit=_BACKTRACK_LIMIT, size_limit=_PATTERN_BYTES
                ),
            )
        except (ValueError, jsonschema_rs.ReferencingError) as error:
            raise RemoteProtocolError(
                f"the schema is not valid {dialect}: {str(error).splitlines()[0][:200]}", rule=_VALIDITY_RULE
            ) from error
        self._cost = _Cost(SchemaDocument(schema, limits=limits)) if isinstance(schema, dict) else None
        self._max_evaluations = limits.max_evaluations

    def check(self, value: Any) -> tuple[Violation, ...]:
        """How `value` differs from the schema: at most 20 violations, () if it matches.

        Raises:
            LimitExceeded: `value` nests too deeply, or checking it would take too long (a schema can be written so that the work
                doubles with each level of the value).
            LocalProtocolError: `value` is not JSON.
        """
        evaluations = self._estimate(value)
        try:
            if self._compiled.is_valid(value):
                return ()
            if evaluations > _DETAILED_EVALUATIONS:
                return (Violation((), "a value that matches its schema", _excerpt(value)),)
            return tuple(_violation(error) for error in islice(self._compiled.iter_errors(value), _MAX_VIOLATIONS))
        except (ValueError, TypeError) as error:
            raise LocalProtocolError(f"the value is not JSON: {str(error)[:200]}") from error

    def _estimate(self, value: Any) -> int:
        level, depth, evaluations = [value], 0, 0
        while level:
            if depth > _MAX_VALUE_DEPTH:
                raise LimitExceeded(f"the value is more than {_MAX_VALUE_DEPTH} levels deep", rule=RESOURCE_RULE)
            if self._cost is not None:
                evaluations += len(level) * self._cost.at(depth)
                if evaluations > self._max_evaluations:
                    raise LimitExceeded("checking the value against its schema would take too long", rule=RESOURCE_RULE)
            level = [
                inner
                for outer in level
                if isinstance(outer, dict | list)
                for inner in (outer.values() if isinstance(outer, dict) else outer)
            ]
            depth += 1
        return evaluations


class _Cost:
    """An upper bound on how many subschemas are evaluated at one place of a value, by the place's depth.

    Branches at one place add up; below it, the worst property or index counts, since each place is reached by one. A loop of
    references that stays at one place is cut where it closes.
    """

    def __init__(self, document: SchemaDocument) -> None:
        self._root = id(document.root)
        self._in_place: dict[int, list[int]] = {}
        self._below: dict[int, list[list[int]]] = {}
        reached = [document.root]
        while reached:
            node = reached.pop()
            if id(node) not in self._in_place:
                reached += self._add(document, node)
        self._order = self._in_place_first()
        self._levels: list[dict[int, int]] = []

    def at(self, depth: int) -> int:
        """The bound for one place `depth` levels below the root of the value."""
        while len(self._levels) <= depth:
            above = self._levels[-1] if self._levels else {}
            own = 0 if self._levels else 1
            level: dict[int, int] = {}
            if own or any(above.values()):
                for node in self._order:
                    here = own + sum(level.get(target, 0) for target in self._in_place[node])
                    below = max(sum(above.get(target, 0) for target in choice) for choice in self._below[node])
                    level[node] = min(here + below, _COST_CEILING)
            self._levels.append(level)
        return self._levels[depth].get(self._root, 0)

    def _add(self, document: SchemaDocument, node: dict[str, Any]) -> list[dict[str, Any]]:
        """Notes what `node` applies where; returns the schemas that take part."""
        in_place: list[int] = []
        named: dict[str | int, list[int]] = {}
        unnamed: list[list[int]] = [[]]
        always: list[int] = []
        targets: list[dict[str, Any]] = []
        for path, target in document.links(node):
            if not isinstance(target, dict):
                continue
            targets.append(target)
            keyword = path[0]
            if keyword in _IN_PLACE:
                in_place.append(id(target))
            elif keyword == "properties" or (keyword in ("items", "prefixItems") and len(path) == 2):
                named.setdefault(path[1], []).append(id(target))
            elif keyword in ("additionalProperties", "items", "additionalItems"):  # only for what is not named
                unnamed.append([id(target)])
            else:
                always.append(id(target))
        self._in_place[id(node)] = in_place
        self._below[id(node)] = [[*choice, *always] for choice in (*named.values(), *unnamed)]
        return targets

    def _in_place_first(self) -> list[int]:
        """All schemas, each after those it applies in place."""
        order: list[int] = []
        seen: set[int] = set()
        stack = [(node, False) for node in self._in_place]
        while stack:
            node, finished = stack.pop()
            if finished:
                order.append(node)
            elif node not in seen:
                seen.add(node)
                stack.append((node, True))
                stack.extend((target, False) for target in self._in_place[node])
        return order


_NO_MORE_PROPERTIES: Final = "no properties but the ones the schema names"
_EXPECTED: Final = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "minProperties": "at least {} properties",
    "maxProperties": "at most {} properties",
    "const": "{}",
    "pattern": "text that matches the pattern {}",
    "uniqueItems": "items that all differ",
    "contains": "an item of the kind the schema asks for",
    "anyOf": "a value that matches at least one of the alternatives",
    "oneOf": "a value that matches exactly one of the alternatives",
    "falseSchema": "nothing: no value is allowed here",
}


def _violation(error: jsonschema_rs.ValidationError) -> Violation:
    keyword, limit, path = error.kind.name, error.kind.value, tuple(error.instance_path)
    got = _excerpt(error.instance)
    match keyword:
        case "type":
            expected = " or ".join(limit) if isinstance(limit, list) else str(limit)
        case "required":
            return Violation((*path, limit), "a value: it is required", "nothing")
        case "enum":
            expected = (
                "one of " + ", ".join(_excerpt(option) for option in limit[:10]) + (", …" if len(limit) > 10 else "")
            )
        case "falseSchema" if error.schema_path[-1:] == ["additionalProperties"]:
            expected = _NO_MORE_PROPERTIES
        case "additionalProperties" | "unevaluatedProperties":
            expected = _NO_MORE_PROPERTIES
            got = ", ".join(str(name)[:40] for name in limit[:5]) + (", …" if len(limit) > 5 else "")
        case _:
            expected = _EXPECTED.get(keyword, f"a value that satisfies `{keyword}`").replace("{}", _excerpt(limit))
    return Violation(path, expected, got)


def _excerpt(value: Any) -> str:
    match value:
        case str():
            text = msgspec.json.encode(value[:_EXCERPT_CHARS]).decode()
            return (
                text
                if len(text) <= _EXCERPT_CHARS and len(value) <= _EXCERPT_CHARS
                else text[: _EXCERPT_CHARS - 1] + "…"
            )
        case list() | tuple():
            return f"a list of {len(value)}"
        case dict():
            return f"an object with {len(value)} properties"
        case None | bool():
            return str(msgspec.json.encode(value), "ascii")
        case int() | float():
            return f"{value:.6g}" if isinstance(value, float) or abs(value) > 10**20 else str(value)
    return str(value)[:_EXCERPT_CHARS]
