"""JSON Schema as servers send it: where its subschemas are and where its references lead.

Decided here: which keywords hold schemas (one table, `KEYWORDS`, for every dialect in use), which dialect a schema declares, how a
reference is resolved, and how much work one schema may cost. Not here: what a defect means for the tool (`schema_findings`), whether
a value matches (`schema_validation`), `x-mcp-header` (`headers`), or the translation for model providers. Pure: nothing is fetched and
no file is read, whatever a reference says.

A schema comes from a server and is not trusted. Every walk is iterative and bounded in depth and in subschemas.

Spec: 2026-07-28 basic/index#json-schema-usage
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import Enum, StrEnum
from typing import Any, Final, TypeAlias
from urllib.parse import unquote, urldefrag, urljoin

import msgspec

from outrider.errors import LimitExceeded

__all__ = [
    "DEFINITIONS",
    "DIALECTS",
    "KEYWORDS",
    "LIMITS",
    "REFERENCE_KEYWORDS",
    "RESOURCE_RULE",
    "Dialect",
    "Holds",
    "Path",
    "Reference",
    "ReferenceKind",
    "SchemaDocument",
    "SchemaLimits",
    "Subschema",
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

REFERENCE_KEYWORDS: Final = ("$ref", "$dynamicRef", "$recursiveRef")
"""Keywords that hold a reference."""
DEFINITIONS: Final = frozenset({"$defs", "definitions"})
"""Keywords whose schemas apply to nothing until they are referred to."""
RESOURCE_RULE: Final = "2026-07-28 basic/index#composition-keyword-resource-use"
"""Why work is bounded."""


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


class SchemaLimits(msgspec.Struct, frozen=True):
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
            raise LimitExceeded(f"has more than {limits.max_subschemas} subschemas", rule=RESOURCE_RULE)
        if depth > limits.max_depth:
            raise LimitExceeded(f"is more than {limits.max_depth} levels deep", rule=RESOURCE_RULE)
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


class Reference(msgspec.Struct, frozen=True):
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
                for keyword in REFERENCE_KEYWORDS:
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
        for keyword in REFERENCE_KEYWORDS:
            ref = node.get(keyword)
            if isinstance(ref, str):
                reference = self.resolve(ref, at=node)
                if reference.kind is ReferenceKind.LOCAL:
                    yield (keyword,), reference.target
        for path, inner, well_formed in _children(node):
            if well_formed and path[0] not in DEFINITIONS:
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
                        raise LimitExceeded(f"has more than {limits.max_subschemas} subschemas", rule=RESOURCE_RULE)

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
