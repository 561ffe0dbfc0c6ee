"""The account of what a vendor's rules cost: every difference, and what the model is told instead.

Decided here: when a keyword that is dropped is said in the description, and which changes strict mode refuses. Not here: why something is
changed (`flattening`, `aliases`, `vocabulary`, `closing`, `adaptation`). Pure.

Spec: ours
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from outrider.catalog.formats.clean import ANNOTATIONS, Change, CleanSchema, Effect, Node, Path
from outrider.catalog.formats.merging import join
from outrider.catalog.formats.vendors import SchemaRules
from outrider.protocol.schema import KEYWORDS

__all__ = ["TOLD_CHARS", "Account", "NotStrict"]

TOLD_CHARS: Final = 200
"""The most that one keyword or choice may add to a description."""
_TOLD_TOTAL_CHARS: Final = 800
_CONSTRAINTS: Final = frozenset(
    {"const", "enum", "type"}
    | {"exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"}
    | {"maxLength", "minLength", "pattern"}
    | {"maxContains", "maxItems", "minContains", "minItems", "uniqueItems"}
    | {"dependentRequired", "maxProperties", "minProperties", "required"}
)


class NotStrict(Exception):
    """The schema cannot be strict without changing its meaning. `str()` says why."""


class Account:
    """One schema on its way under a vendor's rules.

    Args:
        clean: the schema; it is not changed.
        rules: what the vendor takes.
        must_keep_meaning: refuse rather than lose anything.

    Attributes:
        changes: every difference from the source so far.

    Raises:
        NotStrict: from here and every method that notes a change: the meaning would change and must not.
    """

    def __init__(self, clean: CleanSchema, rules: SchemaRules, *, must_keep_meaning: bool) -> None:
        self.clean = clean
        self.rules = rules
        self.must_keep_meaning = must_keep_meaning
        self.changes: list[Change] = []
        for change in clean.changes:
            self._add(change)

    def _add(self, change: Change) -> None:
        if self.must_keep_meaning and change.is_loss:
            raise NotStrict(str(change))
        self.changes.append(change)

    def note(self, path: Path, keyword: str, effect: Effect, detail: str) -> None:
        """Notes a change to the keyword at `path`, "" for all that is there."""
        self._add(Change(("inputSchema", *path), keyword, effect, detail))

    def join(self, a: Node, b: Node, path: Path) -> Node | None:
        """`a` and `b`, both of which hold at `path`, as one schema; None if that cannot be written."""
        return join(self.clean, a, b, path, self.changes)

    def dereferenced(self, node: Node) -> Node:
        """`node` with what it refers to in the place of its reference."""
        seen: set[str] = set()
        while "$ref" in node:
            name = node["$ref"][8:]
            rest = {key: value for key, value in node.items() if key != "$ref"}
            if name in seen:
                return rest
            seen.add(name)
            target = self.clean.definitions[name]
            if rest:
                path = self.clean.path_of(node)
                target = self.join(rest, target, path) or {**rest, "allOf": [*rest.get("allOf", []), target]}
                self.clean.remember(target, path)
            node = target
        return node

    def drop(self, out: Node, keyword: str, path: Path, told: list[str]) -> None:
        """Removes a keyword; says it in the description if that is short."""
        value = out.pop(keyword)
        if keyword in ("readOnly", "writeOnly", "deprecated", "$comment", "title") or (
            keyword not in KEYWORDS and keyword not in _CONSTRAINTS and keyword not in ANNOTATIONS
        ):
            self.note(path, keyword, Effect.SAME, "says nothing about what may be sent, and has no place there")
            return
        if keyword == "additionalProperties" and value in (True, {}):
            self.note(path, keyword, Effect.SAME, "is so anyway")
            return
        text = f"{keyword}: {_compact(value)}"
        fits = len(text) <= TOLD_CHARS
        if fits:
            told.append(text)
        if keyword in ANNOTATIONS:
            self.note(
                path,
                keyword,
                Effect.SAME,
                "is said in the description" if fits else "is only a remark; too long to say",
            )
        else:
            self.note(path, keyword, Effect.TOLD if fits else Effect.LOOSER, "is not enforced")

    def tell(self, out: Node, told: list[str], path: Path) -> None:
        """Adds what the schema cannot say to its description."""
        if not told:
            return
        text = "; ".join(dict.fromkeys(told))
        if len(text) > _TOLD_TOTAL_CHARS:
            text = text[: _TOLD_TOTAL_CHARS - 1] + "…"
        own = out.get("description")
        out["description"] = f"{own}\n({text})" if own else f"({text})"
        self.note(path, "description", Effect.SAME, "says what the schema cannot")


def _compact(value: Any) -> str:
    return msgspec.json.encode(value).decode() if not isinstance(value, str) else value
