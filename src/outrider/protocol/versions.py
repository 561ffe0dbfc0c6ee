"""Protocol versions, the era each belongs to, and how one is chosen.

Decided here: which revisions Outrider speaks, in which order it prefers them, and which era each is. A version is an opaque string
looked up in one table: it is never compared as a date, so an unknown "2027-…" is neither modern nor legacy, only unknown.

Spec: 2026-07-28 basic/versioning#terminology. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

__all__ = ["LEGACY_VERSIONS", "MODERN_VERSIONS", "VERSIONS", "Era", "Pin", "era_of", "pick_version"]


class Era(StrEnum):
    """How a revision carries its metadata."""

    MODERN = "modern"
    """Per request, in `_meta` (2026-07-28 and later)."""
    LEGACY = "legacy"
    """Per session, by an `initialize` handshake (2025-11-25 and earlier)."""


VERSIONS: Final[dict[str, Era]] = {
    "2026-07-28": Era.MODERN,
    "2025-11-25": Era.LEGACY,
    "2025-06-18": Era.LEGACY,
    "2025-03-26": Era.LEGACY,
    "2024-11-05": Era.LEGACY,
}
"""Every revision Outrider implements, most preferred first. To add a revision, add a row."""

MODERN_VERSIONS: Final = tuple(version for version, era in VERSIONS.items() if era is Era.MODERN)
LEGACY_VERSIONS: Final = tuple(version for version, era in VERSIONS.items() if era is Era.LEGACY)


class Pin(StrEnum):
    """Which eras a client may speak."""

    AUTO = "auto"
    MODERN = "modern"
    LEGACY = "legacy"

    def versions(self) -> tuple[str, ...]:
        """The protocol versions this choice allows, best first."""
        if self is Pin.AUTO:
            return tuple(VERSIONS)
        return MODERN_VERSIONS if self is Pin.MODERN else LEGACY_VERSIONS


def era_of(version: str) -> Era | None:
    """The era of `version`, or None for a revision that Outrider does not implement."""
    return VERSIONS.get(version)


def pick_version(offered: Iterable[str], *, era: Era | None = None, excluding: Iterable[str] = ()) -> str | None:
    """The version we like best among those the peer offers, or None if there is none in common.

    Args:
        offered: what the peer says it supports, in any order, with any unknown entries.
        era: only versions of this era, or None for any.
        excluding: versions not to choose, such as one the peer has just refused.

    Spec: 2026-07-28 basic/versioning#protocol-version-negotiation (SHOULD)
    """
    theirs, refused = set(offered), set(excluding)
    for version, version_era in VERSIONS.items():
        if version in theirs and version not in refused and era in (None, version_era):
            return version
    return None
