"""New names that could be taken for those of another server. Pure.

Decided here: which names are compared, and how grave it is. Names are compared by what they look like (`characters.skeleton`), never by
what a server says of itself alone.

Spec: ours
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from outrider.catalog.lock.drift import SEVERITIES, Drift, Kind, Severity
from outrider.catalog.lock.pins import SERVER, ServerPins
from outrider.characters import skeleton

__all__ = ["find_imitations"]


_MAX_ALIKE: Final = 20


class _Known(NamedTuple):
    server: str
    what: str
    name: str


def find_imitations(
    key: str, before: ServerPins | None, after: ServerPins, others: dict[str, ServerPins]
) -> Iterator[Drift]:
    """The names that are new in a server and look like names of others.

    Args:
        key: of the server.
        before: what was approved of it, or None if it is new itself.
        after: what it offers now.
        others: the other servers that are approved, by key.
    """
    old = before.items.get("tool", {}) if before is not None else {}
    new = sorted(after.items.get("tool", {}).keys() - old.keys())
    if before is not None and not new and _called(after) == _called(before):
        return  # By far the most frequent case, and the others would all have to be looked at.
    known = _index(others)
    same: dict[str, list[str]] = {}
    for name in new:
        alike = known.get(skeleton(name), [])
        equal = {other.server for other in alike if other.name == name and other.what == "tool"}
        for server in sorted(equal):
            same.setdefault(server, []).append(name)
        if alike and not equal:
            # One is enough, and the number of pairs would be the servers' to choose.
            yield min(
                (_alike(key, "tool", name, other) for other in alike[:_MAX_ALIKE]),
                key=lambda drift: SEVERITIES.index(drift.severity),
            )
    for server, names in sorted(same.items()):
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        what = "a new tool has the name" if len(names) == 1 else f"{len(names)} new tools have the names"
        message = f"{what} of {'one' if len(names) == 1 else 'those'} of {server}: {shown}"
        yield Drift(key, Kind.IMITATION, Severity.UNREVIEWED, SERVER, "", "", message, None, names)
    yield from _server(key, before, after, known)


def _server(key: str, before: ServerPins | None, after: ServerPins, known: dict[str, list[_Known]]) -> Iterator[Drift]:
    was = _called(before) if before is not None else None
    names = {} if before is not None else {"key": key}
    called = _called(after)
    if called and called != was:
        names["name"] = called
    for part, name in names.items():
        for other in known.get(skeleton(name), ()):
            # Two servers of one make, each with the name of the make, are told once.
            if other.what == SERVER and not (part == "name" and names.get("key") and skeleton(key) == skeleton(name)):
                yield _alike(key, SERVER, "", other, shown=name)


def _alike(key: str, item: str, name: str, other: _Known, *, shown: str = "") -> Drift:
    shown = shown or name
    if shown == other.name:
        severity, how = Severity.UNREVIEWED, "is also the name of"
    elif _plain(shown) == _plain(other.name):
        severity, how = Severity.UNREVIEWED, "differs only in case or separators from"
    else:
        severity, how = Severity.DANGEROUS, "is made to look like"
    whose = (
        f"the tool {other.server}/{other.name}" if other.what == "tool" else f"the server {other.server} ({other.name})"
    )
    return Drift(key, Kind.IMITATION, severity, item, name, "name", f"{shown} {how} {whose}", None, shown)


def _index(others: dict[str, ServerPins]) -> dict[str, list[_Known]]:
    known: dict[str, list[_Known]] = {}
    for server, pins in sorted(others.items()):
        for name in sorted(pins.items.get("tool", {})):
            known.setdefault(skeleton(name), []).append(_Known(server, "tool", name))
        # A key is mostly what the server calls itself; that is one name then, and the one with its capitals.
        for look, name in {skeleton(name): name for name in (server, _called(pins)) if name}.items():
            known.setdefault(look, []).append(_Known(server, SERVER, name))
    return known


def _called(pins: ServerPins) -> str:
    name = pins.facts.parts.get("identity.name")
    return name if isinstance(name, str) else ""


def _plain(name: str) -> str:
    return re.sub(r"[-_. /:]", "", name).casefold()
