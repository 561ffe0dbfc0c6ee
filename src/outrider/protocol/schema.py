"""JSON Schema as servers send it: where its subschemas are, where its references go, whether a tool with it can be offered.

Decided here: which keywords hold schemas (one table, `KEYWORDS`, for every dialect in use), how a local `$ref` is resolved, which
dialect a schema declares, which defects exclude a tool and which are only told, and how much work one schema may cost. Not here:
`x-mcp-header` (`headers`), or the translation for model providers. Pure: nothing is fetched and no file is read, whatever a
reference says.

A schema comes from a server and is not trusted. Every walk is iterative and bounded in depth, in subschemas, and in the number of
subschemas that would remain if each reference were replaced by its target.

Spec: 2026-07-28 basic/index#json-schema-usage, server/tools#tool
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias
from urllib.parse import unquote, urldefrag, urljoin

import msgspec

from outrider.errors import LimitExceeded, LocalProtocolError, RemoteProtocolError

if TYPE_CHECKING:
    import jsonschema_rs

__all__ = [
    "DIALECTS",
    "KEYWORDS",
    "LIMITS",
    "Dialect",
    "Holds",
    "Reference",
    "ReferenceKind",
    "SchemaDocument",
    "SchemaFinding",
    "SchemaLimits",
    "Subschema",
    "Validator",
    "Verdict",
    "Violation",
    "check_input_schema",
    "check_output_schema",
    "dialect_of",
    "is_shallow",
    "render_pointer",
    "subschemas",
]

Path: TypeAlias = tuple[str | int, ...]
"""Steps from the root: keywords, names and indexes, such as `("properties", "n", "anyOf", 0)`."""


class Holds(Enum):
    """What stands behind a keyword, as far as schemas go."""

    SCHEMA = "a schema"
    SCHEMAS = "a list of schemas"
    NAMED = "schemas by name"
    SCHEMA_OR_SCHEMAS = "a schema or a list of schemas"
    NAMED_OR_NAMES = "schemas, or lists of names, by name"


KEYWORDS: Final[dict[str, Holds]] = {
    "properties": Holds.NAMED,
    "patternProperties": Holds.NAMED,
    "additionalProperties": Holds.SCHEMA,
    "unevaluatedProperties": Holds.SCHEMA,
    "propertyNames": Holds.SCHEMA,
    "items": Holds.SCHEMA_OR_SCHEMAS,  # a list up to 2019-09
    "prefixItems": Holds.SCHEMAS,
    "additionalItems": Holds.SCHEMA,  # up to 2019-09
    "unevaluatedItems": Holds.SCHEMA,
    "contains": Holds.SCHEMA,
    "allOf": Holds.SCHEMAS,
    "anyOf": Holds.SCHEMAS,
    "oneOf": Holds.SCHEMAS,
    "not": Holds.SCHEMA,
    "if": Holds.SCHEMA,
    "then": Holds.SCHEMA,
    "else": Holds.SCHEMA,
    "dependentSchemas": Holds.NAMED,
    "dependencies": Holds.NAMED_OR_NAMES,  # up to draft-07
    "contentSchema": Holds.SCHEMA,
    "$defs": Holds.NAMED,
    "definitions": Holds.NAMED,  # up to draft-07, and still common
}
"""Every keyword that holds schemas, 2020-12 and older dialects together. All others hold values, in which nothing is a keyword.

One table for all dialects: reading a keyword that a dialect does not know costs a bound or a warning, never correctness of a call.
"""

_REFERENCE_KEYWORDS: Final = ("$ref", "$dynamicRef", "$recursiveRef")
# Keywords whose schemas apply to the same value, not to a part of it. Definitions apply to nothing until they are referred to.
_IN_PLACE: Final = frozenset(
    {"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"}
)
_DEFINITIONS: Final = frozenset({"$defs", "definitions"})
_TYPES: Final = ("string", "number", "integer", "boolean", "object", "array", "null")


class Dialect(StrEnum):
    """The dialects Outrider validates with."""

    DRAFT_2020_12 = "2020-12"
    DRAFT_2019_09 = "2019-09"
    DRAFT_07 = "draft-07"
    DRAFT_06 = "draft-06"
    DRAFT_04 = "draft-04"


_DIALECT_URIS: Final = {
    "json-schema.org/draft/2020-12/schema": Dialect.DRAFT_2020_12,
    "json-schema.org/draft/2019-09/schema": Dialect.DRAFT_2019_09,
    "json-schema.org/draft-07/schema": Dialect.DRAFT_07,
    "json-schema.org/draft-06/schema": Dialect.DRAFT_06,
    "json-schema.org/draft-04/schema": Dialect.DRAFT_04,
}
DIALECTS: Final[dict[str, Dialect]] = {
    f"{scheme}://{uri}{hash_}": dialect
    for uri, dialect in _DIALECT_URIS.items()
    for scheme in ("https", "http")
    for hash_ in ("", "#")
}
"""`$schema` values by dialect: http and https, with and without the trailing `#`, as generators write them."""


@dataclass(frozen=True, slots=True)
class SchemaLimits:
    """How much work one schema may cost.

    Attributes:
        max_depth: levels of schemas inside schemas.
        max_json_depth: levels of JSON, counting values that are no schemas too.
        max_subschemas: subschemas in the document.
        max_expanded: subschemas there would be if every local reference were replaced by its target, loops cut.
        max_evaluations: subschemas that checking one value may evaluate, estimated before it starts.
    """

    max_depth: int = 128
    max_json_depth: int = 400
    max_subschemas: int = 20_000
    max_expanded: int = 200_000
    max_evaluations: int = 20_000_000


LIMITS: Final = SchemaLimits()
"""Generous: the largest tool schemas seen have some thousand subschemas and a dozen levels; the largest budget is about a second."""


class Subschema(msgspec.Struct, frozen=True, gc=False):
    """One place where a schema stands.

    Attributes:
        path: how to get there from the root.
        node: what stands there: a dict or a bool. Anything else is not a schema.
        well_formed: whether `node` can be a schema there. False also for a keyword whose holder has the wrong shape, such as
            `properties` with a list; `node` is then that holder.
    """

    path: Path
    node: Any
    well_formed: bool

    @property
    def is_reachable_by_properties(self) -> bool:
        """Whether only `properties` leads from the root to here, as in `properties/a/properties/b`."""
        return len(self.path) % 2 == 0 and all(step == "properties" for step in self.path[::2])


def subschemas(schema: Any, *, limits: SchemaLimits = LIMITS) -> Iterator[Subschema]:
    """Every place in `schema` where a schema stands, itself first, in document order; references are not followed.

    The root is at depth 0.

    Knows a keyword from a name: below `properties`, an entry called `items` or `$ref` is a parameter. A keyword whose value is
    null is passed over, as if it were absent.

    Raises:
        LimitExceeded: the schema is deeper or has more subschemas than `limits` allow.
    """
    stack = [(Subschema((), schema, isinstance(schema, dict | bool)), 0)]
    count = 0
    while stack:
        here, depth = stack.pop()
        count += 1
        if count > limits.max_subschemas:
            raise LimitExceeded(f"has more than {limits.max_subschemas} subschemas", rule=_RESOURCE_RULE)
        if depth > limits.max_depth:
            raise LimitExceeded(f"is more than {limits.max_depth} levels deep", rule=_RESOURCE_RULE)
        yield here
        if isinstance(here.node, dict) and here.well_formed:
            inner = [(Subschema(here.path + path, node, ok), depth + 1) for path, node, ok in _children(here.node)]
            stack.extend(reversed(inner))


def _children(node: dict[str, Any]) -> Iterator[tuple[Path, Any, bool]]:
    for keyword, value in node.items():
        holds = KEYWORDS.get(keyword)
        if holds is None or value is None:
            continue
        if holds is Holds.SCHEMA or (holds is Holds.SCHEMA_OR_SCHEMAS and not isinstance(value, list)):
            yield (keyword,), value, isinstance(value, dict | bool)
        elif holds is Holds.SCHEMAS or holds is Holds.SCHEMA_OR_SCHEMAS:
            if not isinstance(value, list):
                yield (keyword,), value, False
                continue
            for index, inner in enumerate(value):
                yield (keyword, index), inner, isinstance(inner, dict | bool)
        elif not isinstance(value, dict):
            yield (keyword,), value, False
        else:
            for name, inner in value.items():
                if holds is Holds.NAMED_OR_NAMES and isinstance(inner, list):
                    continue
                yield (keyword, name), inner, isinstance(inner, dict | bool)


def render_pointer(path: Path) -> str:
    """`path` as a JSON pointer fragment for a person, such as `#/properties/n`; at most 200 characters."""
    pointer = "#" + "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)
    return pointer if len(pointer) <= 200 else pointer[:199] + "…"


def dialect_of(schema: Any) -> Dialect | None:
    """The dialect `schema` declares, 2020-12 if it declares none, or None for one Outrider does not know.

    Spec: 2026-07-28 basic/index#schema-dialect (defaults to 2020-12)
    """
    declared = schema.get("$schema") if isinstance(schema, Mapping) else None
    if declared is None:
        return Dialect.DRAFT_2020_12
    return DIALECTS.get(declared) if isinstance(declared, str) else None


class ReferenceKind(StrEnum):
    """Where a reference leads."""

    LOCAL = "local"
    """Into the same document."""
    EXTERNAL = "external"
    """Out of the document: to the network, a file, or a name nobody defined. Never followed."""
    DANGLING = "dangling"
    """Into the same document, where nothing stands."""


@dataclass(frozen=True, slots=True)
class Reference:
    """What a `$ref` means.

    Attributes:
        kind: where it leads.
        target: the schema it leads to, if `kind` is LOCAL.
    """

    kind: ReferenceKind
    target: Any = None


class SchemaDocument:
    """One schema with its references: resolves them inside the document and knows the loops.

    Args:
        root: the decoded schema, a dict. It must not change afterwards.
        limits: bounds of the first walk over it.

    Raises:
        LimitExceeded: the schema is deeper or has more subschemas than `limits` allow.
    """

    def __init__(self, root: dict[str, Any], *, limits: SchemaLimits = LIMITS) -> None:
        self.root = root
        self.places: list[Subschema] = list(subschemas(root, limits=limits))
        self._id_keyword = "id" if dialect_of(root) is Dialect.DRAFT_04 else "$id"
        self._resources: dict[str, Any] = {"": root}
        self._anchors: dict[tuple[str, str], Any] = {}
        self._base: dict[int, str] = {}
        self._index(self.places, base="")
        self._add_targets_elsewhere(limits)

    def resolve(self, ref: str, *, at: Any = None) -> Reference:
        """Where `ref` leads.

        Args:
            ref: the reference as it is written: a JSON pointer (`#/$defs/A`, with its escapes), an anchor (`#a`), or a URI.
            at: the subschema it stands in, which decides what it is relative to inside an embedded resource; None for the root.
        """
        base = self._base.get(id(at), self._base.get(id(self.root), ""))
        uri, fragment = (base, ref[1:]) if ref.startswith("#") else _join(base, ref)
        resource = self._resources.get(uri)
        if resource is None:
            return Reference(ReferenceKind.EXTERNAL)
        fragment = unquote(fragment, errors="replace")
        is_anchor = fragment and not fragment.startswith("/")
        target = self._anchors.get((uri, fragment)) if is_anchor else _point(resource, fragment)
        if not isinstance(target, dict | bool):
            return Reference(ReferenceKind.DANGLING)
        return Reference(ReferenceKind.LOCAL, target)

    def references(self) -> Iterator[tuple[Path, str, Reference]]:
        """Every reference in the document: the path of the schema it stands in, its text, and where it leads."""
        for place in self.places:
            if isinstance(place.node, dict):
                for keyword in _REFERENCE_KEYWORDS:
                    ref = place.node.get(keyword)
                    if isinstance(ref, str):
                        yield place.path, ref, self.resolve(ref, at=place.node)

    def links(self, node: Any) -> Iterator[tuple[Path, Any]]:
        """The schemas that take part when `node` is applied to a value: those inside it, and the targets of local references.

        Definitions are not among them: they take part only through a reference.

        Yields:
            The path from `node` (for a reference just its keyword) and the schema.
        """
        if not isinstance(node, dict):
            return
        for keyword in _REFERENCE_KEYWORDS:
            ref = node.get(keyword)
            if isinstance(ref, str):
                reference = self.resolve(ref, at=node)
                if reference.kind is ReferenceKind.LOCAL:
                    yield (keyword,), reference.target
        for path, inner, well_formed in _children(node):
            if well_formed and path[0] not in _DEFINITIONS:
                yield path, inner

    def _add_targets_elsewhere(self, limits: SchemaLimits) -> None:
        """Adds schemas that stand in no schema position but are referred to, such as `#/components/schemas/A`."""
        position = 0
        while position < len(self.places):
            place = self.places[position]
            position += 1
            for keyword, target in self.links(place.node):
                if isinstance(target, dict) and id(target) not in self._base:
                    start = (*place.path, *keyword)
                    added = [
                        Subschema(start + inner.path, inner.node, inner.well_formed)
                        for inner in subschemas(target, limits=limits)
                    ]
                    self._index(added, base=self._base[id(place.node)])
                    self.places += added
                    if len(self.places) > limits.max_subschemas:
                        raise LimitExceeded(f"has more than {limits.max_subschemas} subschemas", rule=_RESOURCE_RULE)

    def _index(self, places: list[Subschema], *, base: str) -> None:
        bases: dict[Path, str] = {}
        for place in places:
            node, path = place.node, place.path
            # The holder of a place is the nearest place above it: one or two steps up.
            here = next((bases[path[:-up]] for up in (1, 2) if len(path) >= up and path[:-up] in bases), base)
            if isinstance(node, dict):
                own = node.get(self._id_keyword)
                if isinstance(own, str):
                    if own.startswith("#"):  # how dialects up to draft-07 write an anchor
                        self._anchors.setdefault((here, own[1:]), node)
                    else:
                        here = _join(here, own)[0]
                        self._resources.setdefault(here, node)
                for keyword in ("$anchor", "$dynamicAnchor"):
                    if isinstance(anchor := node.get(keyword), str):
                        self._anchors.setdefault((here, anchor), node)
                self._base.setdefault(id(node), here)
            bases[path] = here


_ARRAY_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")
_BAD_ESCAPE: Final = re.compile(r"~(?![01])")


def _point(document: Any, pointer: str) -> Any:
    if not pointer:
        return document
    if _BAD_ESCAPE.search(pointer):
        return None
    here = document
    for step in pointer[1:].split("/"):
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(here, dict) and step in here:
            here = here[step]
        elif isinstance(here, list) and _ARRAY_INDEX.fullmatch(step) and int(step) < len(here):
            here = here[int(step)]
        else:
            return None
    return here


def _join(base: str, uri: str) -> tuple[str, str]:
    """`uri` made absolute, and its fragment."""
    try:
        return urldefrag(urljoin(base, uri))
    except ValueError:  # such as an unclosed bracket in the host
        return uri, ""


class Verdict(StrEnum):
    """What a defect of a schema means for the tool that has it."""

    EXCLUDE = "exclude"
    """The tool cannot be offered: no client or model provider could use it, and many would drop the server for it."""
    SKIP_VALIDATION = "skip_validation"
    """The tool is offered; arguments are not checked before a call, because nobody could say what the schema means."""
    NOTE = "note"
    """The tool is offered as if nothing were wrong; its author should know."""


@dataclass(frozen=True, slots=True)
class SchemaFinding:
    """One defect of a schema.

    Attributes:
        verdict: what it means for the tool.
        where: a JSON pointer fragment to the place, such as `#/properties/n`.
        message: what is wrong there, one clause, without values from the schema that could be long.
    """

    verdict: Verdict
    where: str
    message: str


_VALIDITY_RULE: Final = "2026-07-28 basic/index#schema-validation"
_RESOURCE_RULE: Final = "2026-07-28 basic/index#composition-keyword-resource-use"
_SEVERITY: Final = {Verdict.EXCLUDE: 2, Verdict.SKIP_VALIDATION: 1, Verdict.NOTE: 0}


def check_input_schema(schema: Any, *, limits: SchemaLimits = LIMITS) -> SchemaFinding | None:
    """The gravest defect of a tool's `inputSchema`, or None.

    A structural check for listing, not a validation against the dialect's meta-schema (`Validator` does that, for the few tools
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
    if isinstance(schema, bytes | msgspec.Raw):
        if _is_plain(bytes(schema), limits, root_is_object=root_is_object):
            return None
        try:
            schema = msgspec.json.decode(schema)
        except RecursionError:
            return SchemaFinding(Verdict.EXCLUDE, "#", "is nested too deeply to be read")
        except (msgspec.DecodeError, UnicodeDecodeError):
            return SchemaFinding(Verdict.EXCLUDE, "#", "is not JSON")
    worst: SchemaFinding | None = None
    for finding in _findings(schema, limits, root_is_object=root_is_object):
        if worst is None or _SEVERITY[finding.verdict] > _SEVERITY[worst.verdict]:
            worst = finding
        if worst.verdict is Verdict.EXCLUDE:
            break
    return worst


def _findings(schema: Any, limits: SchemaLimits, *, root_is_object: bool) -> Iterator[SchemaFinding]:
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
        if value is None and (keyword in KEYWORDS or keyword in _REFERENCE_KEYWORDS):
            where = render_pointer((*place.path, keyword))
            yield SchemaFinding(Verdict.SKIP_VALIDATION, where, "is null; read as absent")


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


def is_shallow(value: Any, max_depth: int) -> bool:
    """Whether `value` nests at most `max_depth` lists and objects, found level by level."""
    level = [value]
    for _ in range(max_depth + 1):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return True
    return False


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

_TypeName: TypeAlias = Literal["string", "number", "integer", "boolean", "object", "array", "null"]
_TypeNames: TypeAlias = Annotated[list[_TypeName], msgspec.Meta(min_length=1)]
# In draft-04, `id` changes what references mean.
_PlainDialect: TypeAlias = Literal[tuple(uri for uri, dialect in DIALECTS.items() if dialect != Dialect.DRAFT_04)]  # type: ignore[valid-type]
_NoValue: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=0)]


def _shape(name: str, *, may_refer: bool) -> Any:
    """A struct that accepts exactly the well-formed schemas: built from the keyword table, so that the two cannot disagree.

    What has the type `_NoValue` must be absent: with it, decoding fails and the schema takes the slow path, as with everything
    else that is not plainly right.
    """
    holds = {
        Holds.SCHEMA: f"{name} | bool",
        Holds.SCHEMAS: f"list[{name} | bool]",
        Holds.NAMED: f"dict[str, {name} | bool]",
        Holds.SCHEMA_OR_SCHEMAS: f"{name} | bool | list[{name} | bool]",
        Holds.NAMED_OR_NAMES: f"dict[str, {name} | bool | list[Any]]",
    }
    fields: dict[str, Any] = {"type": _TypeName | _TypeNames, "$schema": _PlainDialect}
    fields |= {keyword: holds[held] for keyword, held in KEYWORDS.items()}
    fields |= dict.fromkeys((*_REFERENCE_KEYWORDS, "$id"), _NoValue)
    if may_refer:
        fields["$ref"] = str
    return msgspec.defstruct(
        name,
        [
            (
                f"f{n}" if keyword not in _DEFINITIONS else keyword.strip("$"),
                type_,
                msgspec.field(name=keyword, default=msgspec.UNSET),
            )
            for n, (keyword, type_) in enumerate(fields.items())
        ],
        module=__name__,
        gc=False,
    )


_Plain = _shape("_Plain", may_refer=False)
_Linked = _shape("_Linked", may_refer=True)
_PLAIN_REFERENCE: Final = re.compile(rb'"\$ref"\s*:\s*"#/(?:\$defs|(definitions))/([A-Za-z0-9_.-]+)"')


@cache
def _plain_decoder(*, linked: bool, root_is_object: bool) -> msgspec.json.Decoder[Any]:
    shape = _Linked if linked else _Plain
    if root_is_object:
        root = msgspec.field(name="type")
        shape = msgspec.defstruct(
            "_Root", [("f0", Literal["object"], root)], bases=(shape,), module=__name__, kw_only=True, gc=False
        )
    return msgspec.json.Decoder(shape)


def _is_plain(raw: bytes, limits: SchemaLimits, *, root_is_object: bool) -> bool:
    """Whether `raw` certainly has nothing to find: well formed, a known dialect, small, and no references but to its definitions."""
    braces, references = raw.count(b"{"), raw.count(b'"$ref"')
    # A subschema takes at least three bytes, and a level of depth at least one bracket.
    if (
        braces > limits.max_depth
        or braces + raw.count(b"[") > limits.max_json_depth
        or len(raw) > 3 * limits.max_subschemas
    ):
        return False
    # A chain of definitions that share r references can multiply what they stand for by 3 ** (r / 3) at most.
    # A key may be written with escapes, and then counting the references misses it.
    if references and (b"\\u" in raw or (braces + 2 * references) * 3 ** (references / 3) > limits.max_expanded):
        return False
    try:
        root = _plain_decoder(linked=references > 0, root_is_object=root_is_object).decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    if not references:
        return True
    targets = _PLAIN_REFERENCE.findall(raw)
    if len(targets) != references:
        return False
    defs, definitions = root.defs or {}, root.definitions or {}
    return all(name.decode() in (definitions if old else defs) for old, name in targets)


# --- validation ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Violation:
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
        for finding in _findings(schema, limits, root_is_object=False):
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
                raise LimitExceeded(f"the value is more than {_MAX_VALUE_DEPTH} levels deep", rule=_RESOURCE_RULE)
            if self._cost is not None:
                evaluations += len(level) * self._cost.at(depth)
                if evaluations > self._max_evaluations:
                    raise LimitExceeded(
                        "checking the value against its schema would take too long", rule=_RESOURCE_RULE
                    )
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
        """Notes what `node` applies where; returns the schemas that takes part."""
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
            if keyword in _IN_PLACE or keyword in _REFERENCE_KEYWORDS:
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
