"""A schema in clean form, and what a difference from the source is.

Decided here: what a change does to the meaning, and the canonical order of keywords. Not here: how a schema becomes clean (`reading`), how
two become one (`merging`), and how one is brought under a vendor's rules (`adaptation`). Pure.

Spec: ours
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, TypeAlias

from msgspec import Struct

from outrider.protocol.schema import Path, render_pointer

__all__ = ["ANNOTATIONS", "Change", "CleanSchema", "Effect", "Node", "Path", "ordered"]

Node: TypeAlias = dict[str, Any]


class Effect(StrEnum):
    """What a change does to the meaning."""

    SAME = "same"
    """Other words, same meaning: every call that was right is still possible, and nothing more."""
    TOLD = "told"
    """No longer enforced by the schema, but its description says it."""
    LOOSER = "looser"
    """Dropped: the model is no longer told."""
    NARROWER = "narrower"
    """Calls that the server would take are no longer possible."""


class Change(Struct, frozen=True):
    """One difference between a tool as its server sent it and as a model sees it.

    Attributes:
        path: where, in the server's definition: `("inputSchema", "properties", "n")`, or `("title",)`. Everything below is meant too.
        keyword: the keyword there that differs, or "" for the whole.
        effect: what that does to the meaning.
        detail: one clause for people.
    """

    path: Path
    keyword: str
    effect: Effect
    detail: str

    @property
    def is_loss(self) -> bool:
        """Whether the meaning changed."""
        return self.effect is not Effect.SAME

    def __str__(self) -> str:
        where = render_pointer((*self.path, self.keyword) if self.keyword else self.path)
        return f"{where}: {self.detail} ({self.effect})"


ANNOTATIONS: Final = frozenset(
    {
        "$comment",
        "contentEncoding",
        "contentMediaType",
        "contentSchema",
        "default",
        "deprecated",
        "description",
        "example",
    }
    | {"examples", "format", "readOnly", "title", "writeOnly"}
)
"""Keywords that say something about a value and refuse none."""

# Canonical order of keywords, so that the same schema is the same bytes whatever order its server writes it in.
_FIRST: Final = (
    "type",
    "title",
    "description",
    "const",
    "enum",
    "format",
    "pattern",
    "default",
    "$ref",
    "anyOf",
    "oneOf",
)
_LAST: Final = ("allOf", "prefixItems", "items", "properties", "required", "additionalProperties", "$defs")
_ORDER: Final = {keyword: position for position, keyword in enumerate((*_FIRST, *_LAST))}


class CleanSchema(Struct):
    """A schema in clean form.

    Attributes:
        root: the schema, without its definitions.
        definitions: the schemas that `#/$defs/NAME` refers to.
        recursive: for each definition, the definitions that lead back to it through references, itself included if it does.
        paths: where each clean schema stands in the source, by its id; what was built from several parts has the first's.
        changes: what differs from the source so far.
    """

    root: Node
    definitions: dict[str, Node]
    recursive: dict[str, frozenset[str]]
    paths: dict[int, Path]
    changes: list[Change]
    kept: list[Node]
    """Every schema in `paths`, so that no id is used twice."""

    def path_of(self, node: Node) -> Path:
        """Where `node` stands in the source."""
        return self.paths.get(id(node), ())

    def remember(self, node: Node, path: Path) -> Node:
        """Notes where `node` comes from."""
        self.paths[id(node)] = path
        self.kept.append(node)
        return node


def ordered(node: Node) -> Node:
    """`node` with its keywords in canonical order, those we do not know last and by name."""
    return {key: node[key] for key in sorted(node, key=lambda keyword: (_ORDER.get(keyword, len(_ORDER)), keyword))}
