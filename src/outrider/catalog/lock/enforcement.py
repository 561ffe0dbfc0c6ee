"""What a catalog does about drift: withhold, warn, or let through, when it lists and again when something is called.

Decided here: which drift costs what. Whatever was not approved is withheld by itself; a server as a whole is withheld only for what makes
it another server: an identity or capability that nobody approved. A definition is decoded and digested once, however often it is listed.
Not here: how drift is graded (`drift`), when servers are asked (`catalog.member`). Pure.

Spec: ours
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from outrider.catalog.lock.document import Lock
from outrider.catalog.lock.drift import Drift, Kind, Severity
from outrider.catalog.lock.grading import grade
from outrider.catalog.lock.pins import (
    KINDS,
    SERVER,
    Definition,
    Portable,
    is_pinned,
    key_of,
    pin_item,
    pin_server,
)
from outrider.client.report import DiscoveryReport
from outrider.errors import ConfigError, NotApproved
from outrider.protocol.model import Item

__all__ = ["ACTIONS", "Action", "Enforcement", "Judgement", "ServerPolicy"]

_log = logging.getLogger("outrider.catalog")

Action = Literal["block", "warn", "allow"]
ACTIONS: Final[tuple[Action, ...]] = ("block", "warn", "allow")
"""What to do about drift, the strictest first."""

_BLOCKING: Final = frozenset({Kind.IDENTITY, Kind.CAPABILITY, Kind.NEW})
_GRAVE: Final = frozenset({Severity.DANGEROUS, Severity.UNREVIEWED})


class Enforcement(Struct, frozen=True):
    """How a lock is enforced.

    Attributes:
        lock: what was approved.
        listing: what is done about drift in what a server lists.
        call: what is done about it when something is called.
    """

    lock: Lock
    listing: Action = "block"
    call: Action = "block"

    def __post_init__(self) -> None:
        """Check the actions.

        Raises:
            ConfigError: an action is none of "block", "warn" and "allow".
        """
        for action in (self.listing, self.call):
            if action not in ACTIONS:
                raise ConfigError(f"{str(action)[:40]!r} cannot be done about drift", hint=f"use {', '.join(ACTIONS)}")


class Judgement(Struct, frozen=True):
    """What became of a discovery.

    Attributes:
        report: the report, without instructions that were not approved, if they are withheld.
        lists: what may be listed, in the order of `KINDS`.
        drifts: every difference, the gravest first.
        warnings: a sentence for each, unless drift is let through.
    """

    report: DiscoveryReport
    lists: tuple[tuple[Any, ...], ...]
    drifts: tuple[Drift, ...]
    warnings: tuple[str, ...]


class ServerPolicy:
    """The lock as it concerns one server.

    Args:
        enforcement: what to do.
        key: of the server.
        target: what is started or called, as `describe_target` says it.
        portable: takes out what is not in a lock file; called once it is needed.
        offers: which tools the configuration offers.
    """

    def __init__(
        self,
        enforcement: Enforcement,
        key: str,
        *,
        target: str,
        portable: Callable[[], Portable],
        offers: Callable[[str], bool],
    ) -> None:
        self.call = enforcement.call
        self._lock = enforcement.lock
        self._listing = enforcement.listing
        self._key = key
        self._target = target
        self._make_portable = portable
        self._portable: Portable | None = None
        self._offers = offers
        self._definitions: dict[tuple[str, bytes], Definition] = {}
        self._known: dict[tuple[str, bytes], Definition] = {}
        self._server: Drift | None = None
        self._items: dict[tuple[str, str], Drift] = {}

    def judge(self, report: DiscoveryReport, lists: tuple[tuple[Any, ...], ...]) -> Judgement:
        """Compare a discovery with what was approved.

        Args:
            report: of a server that answered.
            lists: what would be listed, in the order of `KINDS`.
        """
        portable = self._ready()
        self._known, self._definitions = self._definitions, {}
        pins = pin_server(report, target=self._target, portable=portable, offers=self._offers, pin=self._pinned)
        drifts = grade(self._lock, self._key, pins, offers=self._offers)
        self._server = next((d for d in drifts if d.item == SERVER and _costs_the_server(d)), None)
        self._items = {(d.item, d.name): d for d in reversed(drifts) if d.item != SERVER}
        if self._listing == "block":
            lists = tuple(
                tuple(item for item in items if self._found(kind, item) is None)
                for kind, items in zip(KINDS, lists, strict=True)
            )
            if self._server is not None or any(d.part == "instructions" for d in drifts):
                report = msgspec.structs.replace(report, instructions="")
        warnings = () if self._listing == "allow" else tuple(self._told(drift) for drift in drifts)
        return Judgement(report, lists, drifts, warnings)

    def check_listed(self, kind: str, item: Item) -> Drift | None:
        """How an item, as it is listed at this moment, differs from what was approved; or None."""
        if self._server is not None:
            return self._server
        key = key_of(item, self._ready())
        pins = self._lock.servers.get(self._key)
        approved = pins.items[kind].get(key) if pins is not None else None
        now = self._pinned(kind, item)
        if approved is not None and approved.digest == now.digest:
            return None
        return self._items.get((kind, key)) or Drift(
            self._key,
            Kind.NEW if approved is None else Kind.OTHER,
            Severity.UNREVIEWED,
            kind,
            key,
            "",
            "was not there when the server was approved" if approved is None else "changed a moment ago",
        )

    def missing(self, kind: str, name: str, why: str) -> Drift:
        """The drift that stands for an item which cannot be compared now."""
        return Drift(self._key, Kind.REMOVED, Severity.BREAKING, kind, name, "", why)

    def refuse(self, drift: Drift | None) -> None:
        """Do what is to be done about a call of something that differs.

        Raises:
            NotApproved: it is withheld.
        """
        if drift is None or self.call == "allow":
            return
        if self.call == "warn":
            _log.warning("%s is used although it differs from the lock file: %s", drift.subject, drift)
            return
        raise NotApproved(
            f"{drift.subject[:200]} is withheld, because it is not what was approved: {drift.kind} ({drift.severity})",
            detail=drift.message,
            hint=f"look at it with `outrider verify`, approve it with `outrider lock --update {self._key}`",
        )

    def drift_of(self, kind: str, identity: str) -> Drift | None:
        """What was found about an item when the server was last discovered: a tool or prompt by name, a resource by URI."""
        return self._server or self._items.get((kind, self._ready()(identity)))

    def _ready(self) -> Portable:
        if self._portable is None:
            self._portable = self._make_portable()
        return self._portable

    def _found(self, kind: str, item: Item) -> Drift | None:
        if self._server is not None:
            return self._server
        return self._items.get((kind, key_of(item, self._ready()))) if is_pinned(kind, item) else None

    def _pinned(self, kind: str, item: Item) -> Definition:
        wire = kind, bytes(item.wire)
        definition = self._definitions.get(wire) or self._known.get(wire) or pin_item(kind, item, self._ready())
        self._definitions[wire] = definition
        return definition

    def _told(self, drift: Drift) -> str:
        is_withheld = self._listing == "block" and (
            (drift.item in KINDS and drift.kind is not Kind.REMOVED)
            or drift.part == "instructions"
            or _costs_the_server(drift)
        )
        return f"{'withheld: ' if is_withheld else 'differs from the lock file: '}{drift}"


def _costs_the_server(drift: Drift) -> bool:
    return drift.item == SERVER and drift.kind in _BLOCKING and drift.severity in _GRAVE
