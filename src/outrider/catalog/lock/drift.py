"""Every difference between what was approved and what is offered now, with its kind and its grade. Pure.

Decided here: the grades. What can change what a model does, or what a person agrees to, is graded higher than what can only make a call
fail. Not here: how schemas compare (`schemas`), which names imitate others (`imitation`), what is done about it (`enforcement`).

Spec: ours; the default values of hints are 2026-07-28 schema#toolannotations
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec import Struct

from outrider.catalog.lock.pins import KINDS, SERVER, Definition, ServerPins
from outrider.catalog.lock.schemas import Direction, SchemaChange, compare_schemas
from outrider.characters import disguised_in, hidden_in, name_of

__all__ = ["SEVERITIES", "Drift", "Kind", "Severity", "compare_servers", "in_order"]


class Severity(StrEnum):
    """How much a difference matters."""

    DANGEROUS = "dangerous"
    """It can deceive, or it lowers a guard: hidden characters, a flipped hint, an imitated name, another identity."""
    UNREVIEWED = "unreviewed"
    """Words that nobody has approved reach a model, or something new can be done."""
    BREAKING = "breaking"
    """What worked may fail."""
    NOTICE = "notice"
    """None of these."""


SEVERITIES: Final = tuple(Severity)
"""The gravest first."""


class Kind(StrEnum):
    """What differs."""

    NEW = "new"
    REMOVED = "removed"
    WORDING = "wording"
    SCHEMA_NARROWED = "schema narrowed"
    SCHEMA_WIDENED = "schema widened"
    SCHEMA_BOTH = "schema narrowed and widened"
    SCHEMA_CHANGED = "schema changed"
    SCHEMA_REWRITTEN = "schema rewritten"
    ANNOTATION = "annotation"
    CAPABILITY = "capability"
    IDENTITY = "identity"
    VERSIONS = "versions"
    IMITATION = "imitation"
    OTHER = "other"


class Drift(Struct, frozen=True, rename="camel"):
    """One difference.

    Attributes:
        server: the key of the server.
        kind: what differs.
        severity: how much that matters.
        item: "server", "tool", "prompt", "resource" or "template".
        name: of the item; "" for the server itself.
        part: which part of its definition, or "" for all of it.
        message: one sentence for people. It may repeat what a server wrote, so it is not to be shown raw.
        before: what was approved, as JSON-ready values; None for nothing.
        after: what is offered now, likewise.
    """

    server: str
    kind: Kind
    severity: Severity
    item: str
    name: str
    part: str
    message: str
    before: Any = None
    after: Any = None

    @property
    def subject(self) -> str:
        """What it is about: `tool weather/forecast`, or `server weather`."""
        return f"{self.item} {self.server}/{self.name}" if self.name else f"{self.item} {self.server}"

    def __str__(self) -> str:
        return f"{self.subject}: {self.message} ({self.kind}, {self.severity})"


def in_order(drifts: Iterator[Drift] | list[Drift]) -> tuple[Drift, ...]:
    """The gravest first, and the server's own before those of its items."""
    return tuple(
        sorted(drifts, key=lambda d: (SEVERITIES.index(d.severity), d.item != SERVER, d.item, d.name, d.part, d.kind))
    )


def compare_servers(key: str, before: ServerPins, after: ServerPins) -> list[Drift]:
    """How one server differs from what was approved of it, imitations aside.

    Args:
        key: of the server.
        before: what was approved.
        after: what it offers now. What is missing from a list that was not read to its end does not count as removed.
    """
    drifts: list[Drift] = []
    for part, old, new in _changed(before.facts, after.facts):
        drifts.append(_fact(key, part, old, new))
    for kind in KINDS:
        old_items, new_items = before.items.get(kind, {}), after.items.get(kind, {})
        for name in sorted(old_items.keys() | new_items.keys()):
            if name not in new_items:
                if kind not in after.unread:
                    drifts.append(_removed(key, kind, name, old_items[name]))
            elif name not in old_items:
                drifts.append(_added(key, kind, name, new_items[name]))
            elif old_items[name].digest != new_items[name].digest:
                for part, old, new in _changed(old_items[name], new_items[name]):
                    drifts += _part(Drift(key, Kind.OTHER, Severity.NOTICE, kind, name, part, "", old, new))
    return drifts


def _changed(before: Definition, after: Definition) -> Iterator[tuple[str, Any, Any]]:
    for part in sorted(before.digests.keys() | after.digests.keys()):
        if before.digests.get(part) != after.digests.get(part):
            yield part, before.parts.get(part), after.parts.get(part)


def _graded(drift: Drift, kind: Kind, severity: Severity, message: str) -> Drift:
    return msgspec.structs.replace(drift, kind=kind, severity=severity, message=message)


# -- deceit in texts -----------------------------------------------------------------------------------------------------------------


def _deceit(before: Any, after: Any) -> str:
    """What a reader of the new texts would not see, "" if nothing was added that hides."""
    old, new = _all_text(before), _all_text(after)
    hidden = sorted(hidden_in(new) - hidden_in(old))
    disguised = sorted(disguised_in(new) - disguised_in(old))
    found = [f"it hides {_named(hidden)}"] * bool(hidden)
    found += [f"among Latin letters it has {_named(disguised)}"] * bool(disguised)
    return "; ".join(found)


def _all_text(value: Any) -> str:
    match value:
        case str():
            return value
        case dict():
            return "\n".join(f"{_all_text(name)}\n{_all_text(inner)}" for name, inner in value.items())
        case list() | tuple():
            return "\n".join(map(_all_text, value))
    return ""


def _named(characters: list[str]) -> str:
    return ", ".join(map(name_of, characters[:5])) + (f" and {len(characters) - 5} more" if len(characters) > 5 else "")


def _wording(drift: Drift, message: str) -> Drift:
    deceit = _deceit(drift.before, drift.after)
    if deceit:
        return _graded(drift, Kind.WORDING, Severity.DANGEROUS, f"{message}; {deceit}")
    gone = drift.after is None
    return _graded(drift, Kind.WORDING, Severity.NOTICE if gone else Severity.UNREVIEWED, message)


# -- the server itself ---------------------------------------------------------------------------------------------------------------


def _fact(key: str, part: str, before: Any, after: Any) -> Drift:
    drift = Drift(key, Kind.OTHER, Severity.NOTICE, SERVER, "", part, "", before, after)
    group, _, name = part.partition(".")
    change = f"{_short(before)} → {_short(after)}"
    match group:
        case "target":
            return _graded(drift, Kind.IDENTITY, Severity.DANGEROUS, f"another program or address: {change}")
        case "identity":
            severity = _IDENTITY.get(name, Severity.UNREVIEWED)
            if severity is not Severity.NOTICE and _deceit(before, after):
                severity = Severity.DANGEROUS
            return _graded(drift, Kind.IDENTITY, severity, f"its {name} changed: {change}")
        case "capabilities":
            name = name.removeprefix("extensions.")
            if before is None:
                return _graded(drift, Kind.CAPABILITY, Severity.UNREVIEWED, f"the new capability {name}")
            if after is None:
                return _graded(drift, Kind.CAPABILITY, Severity.BREAKING, f"the capability {name} is gone")
            return _graded(drift, Kind.CAPABILITY, Severity.NOTICE, f"the capability {name} changed: {change}")
        case "era":
            severity = Severity.NOTICE if after == "modern" else Severity.BREAKING
            return _graded(drift, Kind.VERSIONS, severity, f"another era: {change}")
        case "versions":
            gone = [version for version in before or [] if version not in (after or [])]
            severity = Severity.BREAKING if gone else Severity.NOTICE
            return _graded(drift, Kind.VERSIONS, severity, f"other protocol versions: {change}")
        case "instructions":
            return _wording(drift, _verb("the instructions to the model", before, after))
    return _graded(drift, Kind.OTHER, Severity.NOTICE, f"{part}: {change}")


_IDENTITY: Final = {
    "name": Severity.DANGEROUS,
    "version": Severity.NOTICE,
    "icons": Severity.NOTICE,
    "websiteUrl": Severity.NOTICE,
}
"""How much a change of each member of the identity matters; title and description are words."""


# -- items as a whole ----------------------------------------------------------------------------------------------------------------


def _added(key: str, kind: str, name: str, definition: Definition) -> Drift:
    deceit = _deceit(None, [name, definition.parts])
    # A resource is data: a model sees it only when somebody reads it.
    severity = Severity.DANGEROUS if deceit else Severity.NOTICE if kind == "resource" else Severity.UNREVIEWED
    message = "was not there when the server was approved" + (f"; {deceit}" if deceit else "")
    return Drift(key, Kind.NEW, severity, kind, name, "", message, None, definition.parts)


def _removed(key: str, kind: str, name: str, definition: Definition) -> Drift:
    severity = Severity.NOTICE if kind == "resource" else Severity.BREAKING
    return Drift(key, Kind.REMOVED, severity, kind, name, "", "is gone", definition.parts, None)


# -- parts of an item ----------------------------------------------------------------------------------------------------------------


def _part(drift: Drift) -> Iterator[Drift]:
    match drift.part:
        case "title" | "description" | "name":
            yield _wording(drift, _verb(f"the {drift.part}", drift.before, drift.after))
        case "inputSchema":
            yield from _schema(drift, "arguments", _schema_of(drift.before), _schema_of(drift.after))
        case "outputSchema":
            yield from _schema(drift, "structured results", _schema_of(drift.before), _schema_of(drift.after))
        case "arguments":
            yield from _schema(drift, "arguments", _prompt_schema(drift.before), _prompt_schema(drift.after))
        case "annotations":
            yield from _annotations(drift, _members(drift.before), _members(drift.after))
        case _:
            yield _graded(
                drift, Kind.OTHER, Severity.NOTICE, f"{drift.part}: {_short(drift.before)} → {_short(drift.after)}"
            )


_KIND_OF: Final = {
    Direction.NARROWED: Kind.SCHEMA_NARROWED,
    Direction.WIDENED: Kind.SCHEMA_WIDENED,
    Direction.BOTH: Kind.SCHEMA_BOTH,
    Direction.CHANGED: Kind.SCHEMA_CHANGED,
    Direction.SAME: Kind.SCHEMA_REWRITTEN,
}


def _schema(drift: Drift, what: str, before: Any, after: Any) -> Iterator[Drift]:
    change = compare_schemas(before, after)
    if change.direction is not None:
        message = f"the schema of its {what} is {change.direction}: {_few(change.places)}"
        yield _graded(
            drift, _KIND_OF[change.direction], _schema_severity(change, is_input=what == "arguments"), message
        )
    if change.words:
        old = {pointer: pair[0] for pointer, pair in change.words.items() if pair[0] is not None}
        new = {pointer: pair[1] for pointer, pair in change.words.items() if pair[1] is not None}
        words = msgspec.structs.replace(drift, before=old or None, after=new or None)
        yield _wording(words, f"the words in the schema of its {what} changed: {_few(tuple(change.words))}")


def _schema_severity(change: SchemaChange, *, is_input: bool) -> Severity:
    """Arguments break when fewer are allowed; results break their readers when more are."""
    harmless = Direction.WIDENED if is_input else Direction.NARROWED
    if change.direction in (harmless, Direction.SAME) or (is_input and change.is_extension):
        return Severity.NOTICE
    return Severity.BREAKING


def _schema_of(value: Any) -> Any:
    return True if value is None else value


def _prompt_schema(arguments: Any) -> Any:
    """The arguments of a prompt as the schema that they mean: texts by name."""
    if not isinstance(arguments, list):
        return True if arguments is not None else {"type": "object", "additionalProperties": False}
    named = {a["name"]: a for a in arguments if isinstance(a, dict) and isinstance(a.get("name"), str)}
    properties = {
        name: {"type": "string", **{k: v for k, v in argument.items() if k not in ("name", "required", "type")}}
        for name, argument in named.items()
    }
    required = [name for name, argument in named.items() if argument.get("required") is True]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


_DEFAULTS: Final = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True}
"""What an absent hint means. Spec: 2026-07-28 schema#toolannotations"""

_FLIPS: Final = {
    ("readOnlyHint", False): (Severity.DANGEROUS, "it no longer says that it only reads"),
    ("readOnlyHint", True): (
        Severity.DANGEROUS,
        "it now says that it only reads: who asks before a change will no longer ask",
    ),
    ("destructiveHint", True): (Severity.DANGEROUS, "it now may destroy what is there"),
    ("destructiveHint", False): (
        Severity.DANGEROUS,
        "it now says that it destroys nothing: who asks before that will no longer ask",
    ),
    ("idempotentHint", False): (Severity.BREAKING, "calling it twice may now do more than calling it once"),
    ("idempotentHint", True): (Severity.NOTICE, "it now says that calling it twice does no more than calling it once"),
    ("openWorldHint", True): (Severity.DANGEROUS, "it now may reach the outside world"),
    ("openWorldHint", False): (Severity.NOTICE, "it now says that it reaches nothing outside"),
}
"""What each hint means once it has this value and had the other."""


def _annotations(drift: Drift, before: dict[str, Any], after: dict[str, Any]) -> Iterator[Drift]:
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old == new and type(old) is type(new):
            continue
        one = msgspec.structs.replace(drift, part=f"annotations.{name}", before=old, after=new)
        if name == "title":
            yield _wording(one, _verb("the title among the annotations", old, new))
        elif drift.item == "tool" and name in _DEFAULTS:
            was, now = (value if isinstance(value, bool) else _DEFAULTS[name] for value in (old, new))
            severity, meaning = Severity.NOTICE, "means the same as before"
            if was != now:
                severity, meaning = _FLIPS[name, now]
            yield _graded(one, Kind.ANNOTATION, severity, f"{name} {_hint(old)} → {_hint(new)}: {meaning}")
        else:
            yield _graded(one, Kind.ANNOTATION, Severity.NOTICE, f"{name}: {_short(old)} → {_short(new)}")


def _members(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _hint(value: Any) -> str:
    return "absent" if value is None else _short(value)


def _verb(what: str, before: Any, after: Any) -> str:
    if before is None:
        return f"{what} {'are' if what.startswith('the instructions') else 'is'} new"
    return (
        f"{what} {'are' if what.startswith('the instructions') else 'is'} gone" if after is None else f"{what} changed"
    )


def _few(texts: tuple[str, ...]) -> str:
    return "; ".join(texts[:4]) + (f"; and {len(texts) - 4} more" if len(texts) > 4 else "")


def _short(value: Any) -> str:
    if value is None:
        return "nothing"
    text = value if isinstance(value, str) else msgspec.json.encode(value, order="deterministic").decode()
    return text if len(text) <= 100 else text[:99] + "…"
