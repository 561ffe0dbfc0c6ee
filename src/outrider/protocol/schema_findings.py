"""What is wrong with a tool's schema, and what that means for the tool.

Decided here: which defects exclude a tool and which are only told, and how the usual schema, which has none, is told apart at the price of
decoding it. Not here: where subschemas and references are (`schema`), or whether a value matches (`schema_validation`). Pure.

Spec: 2026-07-28 server/tools#tool, basic/index#json-schema-usage
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Final, ForwardRef, Literal, Required, TypeAlias, TypedDict, get_args

import msgspec

from outrider.errors import LimitExceeded
from outrider.protocol.schema import (
    DIALECTS,
    KEYWORDS,
    LIMITS,
    REFERENCE_KEYWORDS,
    Dialect,
    Holds,
    Path,
    ReferenceKind,
    SchemaDocument,
    SchemaLimits,
    Subschema,
    dialect_of,
    is_shallow,
    render_pointer,
)

__all__ = [
    "PlainInput",
    "PlainOutput",
    "SchemaFinding",
    "Verdict",
    "check_input_schema",
    "check_output_schema",
    "is_surely_small",
    "schema_findings",
]

_TypeName: TypeAlias = Literal["string", "number", "integer", "boolean", "object", "array", "null"]
_TYPES: Final = get_args(_TypeName)


class Verdict(StrEnum):
    """What a defect of a schema means for the tool that has it."""

    EXCLUDE = "exclude"
    """The tool cannot be offered: no client or model provider could use it, and many would drop the server for it."""
    SKIP_VALIDATION = "skip_validation"
    """The tool is offered; arguments are not checked before a call, because nobody could say what the schema means."""
    NOTE = "note"
    """The tool is offered as if nothing were wrong; its author should know."""


class SchemaFinding(msgspec.Struct, frozen=True):
    """One defect of a schema.

    Attributes:
        verdict: what it means for the tool.
        where: a JSON pointer fragment to the place, such as `#/properties/n`.
        message: what is wrong there, one clause, without values from the schema that could be long.
    """

    verdict: Verdict
    where: str
    message: str


_SEVERITY: Final = {Verdict.EXCLUDE: 2, Verdict.SKIP_VALIDATION: 1, Verdict.NOTE: 0}


def check_input_schema(schema: Any, *, limits: SchemaLimits = LIMITS) -> SchemaFinding | None:
    """The gravest defect of a tool's `inputSchema`, or None.

    A structural check for listing, not a validation against the dialect's meta-schema (`schema_validation` does that, for the few tools
    that are called): what stands where a schema must stand, type names, references, and size.

    Args:
        schema: the schema, decoded, or as JSON in `bytes` or `msgspec.Raw`. JSON is faster for the usual case: 2,000 schemas in
            some tens of milliseconds.
        limits: what counts as too large.

    Spec: 2026-07-28 server/tools#tool (MUST be a valid JSON Schema object, not null); the leniency for a missing root type is ours.
    """
    return _check(schema, limits, root_is_object=True)


def check_output_schema(schema: Any, *, limits: SchemaLimits = LIMITS) -> SchemaFinding | None:
    """The gravest defect of a tool's `outputSchema`, or None. Its root may have any type.

    The tool stays whatever is found; for any verdict but NOTE its output schema is better ignored.

    Spec: 2026-07-28 server/tools#output-schema
    """
    return _check(schema, limits, root_is_object=False)


def _check(schema: Any, limits: SchemaLimits, *, root_is_object: bool) -> SchemaFinding | None:
    if isinstance(schema, (bytes, msgspec.Raw)):
        raw = bytes(schema)
        if not raw:
            return SchemaFinding(Verdict.EXCLUDE, "#", "is missing")
        if _is_plain(raw, limits, root_is_object=root_is_object):
            return None
        try:
            schema = msgspec.json.decode(raw)
        except RecursionError:
            return SchemaFinding(Verdict.EXCLUDE, "#", "is nested too deeply to be read")
        except (msgspec.DecodeError, UnicodeDecodeError):
            return SchemaFinding(Verdict.EXCLUDE, "#", "is not JSON")
    worst: SchemaFinding | None = None
    for finding in schema_findings(schema, limits, root_is_object=root_is_object):
        if worst is None or _SEVERITY[finding.verdict] > _SEVERITY[worst.verdict]:
            worst = finding
        if worst.verdict is Verdict.EXCLUDE:
            break
    return worst


def schema_findings(schema: Any, limits: SchemaLimits, *, root_is_object: bool) -> Iterator[SchemaFinding]:
    """Every defect of `schema`, in no particular order of gravity.

    Args:
        schema: the schema, decoded.
        limits: what counts as too large.
        root_is_object: whether it must describe an object, as an `inputSchema` must.
    """
    if not isinstance(schema, dict):
        if not (isinstance(schema, bool) and not root_is_object):
            yield SchemaFinding(Verdict.EXCLUDE, "#", f"is {_json_kind(schema)}, not a JSON Schema object")
        return
    if not is_shallow(schema, limits.max_json_depth):
        yield SchemaFinding(Verdict.EXCLUDE, "#", f"is more than {limits.max_json_depth} levels deep")
        return
    try:
        document = SchemaDocument(schema, limits=limits)
    except LimitExceeded as limit:
        yield SchemaFinding(Verdict.EXCLUDE, "#", str(limit))
        return
    if root_is_object:
        yield from _root_type_findings(document)
    known_dialect = dialect_of(schema) is not None
    if not known_dialect:
        yield SchemaFinding(Verdict.SKIP_VALIDATION, "#/$schema", "names a JSON Schema dialect that is not supported")
    for place in document.places:
        # In an unknown dialect a keyword may mean anything, so only the bounds hold.
        if known_dialect:
            yield from _place_findings(place)
    for path, ref, reference in document.references():
        if reference.kind is not ReferenceKind.LOCAL:
            message = f"refers to {ref[:100]!r}, which is {reference.kind}"
            yield SchemaFinding(Verdict.SKIP_VALIDATION, render_pointer(path), message)
    if _expanded(document, limits.max_expanded) > limits.max_expanded:
        message = f"stands for more than {limits.max_expanded} subschemas once its references are followed"
        yield SchemaFinding(Verdict.EXCLUDE, "#", message)


def _root_type_findings(document: SchemaDocument) -> Iterator[SchemaFinding]:
    root = document.root
    declared = root.get("type")
    if declared == "object":
        return
    if isinstance(declared, list) and "object" in declared:
        yield SchemaFinding(Verdict.NOTE, "#/type", "allows more than the object that arguments always are")
    elif declared is not None:
        yield SchemaFinding(Verdict.EXCLUDE, "#/type", "is not `object`, so that no arguments can match")
    elif _describes_object(document, root):
        yield SchemaFinding(Verdict.NOTE, "#", "has no `type` at its root; read as `object`")
    else:
        yield SchemaFinding(Verdict.EXCLUDE, "#", "has no `type`, and nothing in it says that it is an object")


def _describes_object(document: SchemaDocument, schema: Any, *, depth: int = 4) -> bool:
    if not isinstance(schema, dict) or depth == 0:
        return False
    if "type" in schema:
        return bool(schema["type"] == "object")
    if isinstance(schema.get("properties"), dict):
        return True
    for keyword, quantifier in (("anyOf", all), ("oneOf", all), ("allOf", any)):
        branches = schema.get(keyword) or ()
        if isinstance(branches, list) and quantifier(
            _describes_object(document, branch, depth=depth - 1) for branch in branches
        ):
            return True
    ref = schema.get("$ref")
    return isinstance(ref, str) and _describes_object(
        document, document.resolve(ref, at=schema).target, depth=depth - 1
    )


def _place_findings(place: Subschema) -> Iterator[SchemaFinding]:
    if not place.well_formed:
        message = f"is {_json_kind(place.node)}, where {_expected(place.path)} must stand"
        yield SchemaFinding(Verdict.EXCLUDE, render_pointer(place.path), message)
    if not isinstance(place.node, dict):
        return
    if not _is_type(place.node.get("type", "string")):
        where = render_pointer((*place.path, "type"))
        yield SchemaFinding(Verdict.EXCLUDE, where, "is not a JSON Schema type name or a list of them")
    for keyword, value in place.node.items():
        if value is None and (keyword in KEYWORDS or keyword in REFERENCE_KEYWORDS):
            where = render_pointer((*place.path, keyword))
            yield SchemaFinding(Verdict.SKIP_VALIDATION, where, "is null; read as absent")
        elif keyword in REFERENCE_KEYWORDS and not isinstance(value, str):
            where = render_pointer((*place.path, keyword))
            yield SchemaFinding(Verdict.SKIP_VALIDATION, where, f"is {_json_kind(value)}, not a reference")


def _expected(path: Path) -> str:
    holds = KEYWORDS.get(str(path[-1])) if path else None
    return holds.value if holds else "a schema"


def _is_type(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(name, str) and name in _TYPES for name in value)
    return isinstance(value, str) and value in _TYPES


def _json_kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case int() | float():
            return "a number"
        case list() | tuple():
            return "a list"
        case dict():
            return "an object"
    return type(value).__name__


def _expanded(document: SchemaDocument, limit: int) -> int:
    """How many subschemas the root stands for once every local reference is replaced by its target, loops cut; stops at `limit`."""
    sizes: dict[int, int] = {}
    root = document.root
    open_nodes = {id(root)}
    stack: list[tuple[Any, Iterator[tuple[Path, Any]], list[int]]] = [(root, document.links(root), [1])]
    while True:
        node, links, size = stack[-1]
        for _, target in links:
            if not isinstance(target, dict) or id(target) in open_nodes:
                size[0] += 1
            elif id(target) in sizes:
                size[0] += sizes[id(target)]
            else:
                open_nodes.add(id(target))
                stack.append((target, document.links(target), [1]))
                break
        else:
            stack.pop()
            sizes[id(node)] = size[0]
            open_nodes.discard(id(node))
            if size[0] > limit or not stack:
                return size[0]
            stack[-1][2][0] += size[0]


# --- the fast path: msgspec's decoder proves in C that an ordinary schema has nothing to find -------------------------------------

_TypeNames: TypeAlias = Annotated[list[_TypeName], msgspec.Meta(min_length=1)]
# In draft-04, `id` changes what references mean.
_PlainDialect: TypeAlias = Literal[tuple(uri for uri, dialect in DIALECTS.items() if dialect != Dialect.DRAFT_04)]  # type: ignore[valid-type]
_NoValue: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=0)]


def _shape(name: str, *, may_refer: bool, **others: Any) -> Any:
    """A dictionary type that accepts exactly the well-formed schemas: built from the keyword table, so that the two cannot disagree.

    What has the type `_NoValue` must be absent: with it, decoding fails and the schema takes the slow path, as with everything
    else that is not plainly right. Dictionaries, for a schema has few of the fifty keywords: a struct would have room for them all.

    Args:
        name: of this module's constant for the schemas within.
        may_refer: whether `$ref` may occur.
        others: keywords whose values have other types at the root than within.
    """
    holds = {
        Holds.SCHEMA: ForwardRef(f"{name} | bool"),
        Holds.SCHEMAS: ForwardRef(f"list[{name} | bool]"),
        Holds.NAMED: ForwardRef(f"dict[str, {name} | bool]"),
        Holds.SCHEMA_OR_SCHEMAS: ForwardRef(f"{name} | bool | list[{name} | bool]"),
        Holds.NAMED_OR_NAMES: ForwardRef(f"dict[str, {name} | bool | list[Any]]"),
    }
    fields: dict[str, Any] = {"type": _TypeName | _TypeNames, "$schema": _PlainDialect}
    fields |= {keyword: holds[held] for keyword, held in KEYWORDS.items()}
    fields |= dict.fromkeys((*REFERENCE_KEYWORDS, "$id"), _NoValue)
    if may_refer:
        fields["$ref"] = str
    make: Any = TypedDict  # A function, as type checkers do not know it.
    return make(name, fields | others, total=False)


_Plain = _shape("_Plain", may_refer=False)
_Linked = _shape("_Linked", may_refer=True)
_PLAIN_REFERENCE: Final = re.compile(rb'"\$ref"\s*:\s*"#/(?:\$defs|(definitions))/([A-Za-z0-9_.-]+)"')


PlainInput: Any = _shape("_Plain", may_refer=False, type=Required[Literal["object"]])
"""The type of an `inputSchema` without a reference in which there is nothing to find, if it `is_surely_small`."""
PlainOutput: Any = _Plain
"""The same for an `outputSchema`."""


@cache
def _plain_decoder(linked: bool, root_is_object: bool) -> msgspec.json.Decoder[Any]:
    if linked:
        root = {"type": Required[Literal["object"]]} if root_is_object else {}
        return msgspec.json.Decoder(_shape("_Linked", may_refer=True, **root))
    return msgspec.json.Decoder(PlainInput if root_is_object else PlainOutput)


def is_surely_small(raw: bytes, limits: SchemaLimits = LIMITS) -> bool:
    """Whether no schema that stands somewhere in this JSON can be deeper or have more subschemas than the limits allow."""
    size = len(raw)
    # A subschema takes at least three bytes.
    if size > 3 * limits.max_subschemas:
        return False
    # A level of depth takes at least one bracket. Most schemas are too short to be too deep: two brackets to a level of JSON, and seven
    # bytes to a level of schemas, `{"if":}`.
    if size <= 2 * limits.max_json_depth and size <= 7 * limits.max_depth:
        return True
    braces = raw.count(b"{")
    return braces <= limits.max_depth and braces + raw.count(b"[") <= limits.max_json_depth


def _is_plain(raw: bytes, limits: SchemaLimits, *, root_is_object: bool) -> bool:
    """Whether `raw` certainly has nothing to find: well formed, a known dialect, small, and no references but to its definitions."""
    if not is_surely_small(raw, limits):
        return False
    # A chain of definitions that share r references can multiply what they stand for by 3 ** (r / 3) at most.
    # A key may be written with escapes, and then counting the references misses it.
    references = raw.count(b'"$ref"')
    if references and (
        b"\\u" in raw or (raw.count(b"{") + 2 * references) * 3 ** (references / 3) > limits.max_expanded
    ):
        return False
    try:
        root = _plain_decoder(references > 0, root_is_object).decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    if not references:
        return True
    targets = _PLAIN_REFERENCE.findall(raw)
    if len(targets) != references:
        return False
    defs, definitions = root.get("$defs", {}), root.get("definitions", {})
    return all(name.decode() in (definitions if old else defs) for old, name in targets)
