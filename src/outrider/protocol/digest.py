"""Digests of what a server lists, and what differs between two lists.

Decided here: when two tools (prompts, resources …) are the same, and when two lists are. The lock file and the memory
read the same digests. Not here: what a difference means for security. Pure.

Spec: ours
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from outrider.errors import RemoteProtocolError

__all__ = ["LIST_MEMBERS", "Difference", "Listing", "canonical_json", "difference", "digest_json", "read_items"]

LIST_MEMBERS: Final[dict[str, tuple[str, str]]] = {
    "tools/list": ("tools", "name"),
    "prompts/list": ("prompts", "name"),
    "resources/list": ("resources", "uri"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate"),
}
"""For each list method: the result's member that holds the items, and the item's member that identifies it."""

# How msgspec writes a float that may have a shorter spelling as an integer; matching more than those costs only time.
_WHOLE_FLOAT: Final = re.compile(rb"[0-9](?:\.0|e)")


def digest_json(value: Any) -> str:
    """A digest of a JSON value that does not depend on spelling: 64 hex digits (BLAKE2b-256).

    Key order, white space, string escapes and the spelling of whole numbers (1, 1.0, 1e0) make no difference;
    everything else does.

    Args:
        value: decoded JSON: dict, list, str, int, float, bool, None.
    """
    return hashlib.blake2b(canonical_json(value), digest_size=32).hexdigest()


def canonical_json(value: Any) -> bytes:
    """The one spelling of a JSON value that its digest is made of: sorted keys, no white space, whole numbers as integers.

    Args:
        value: decoded JSON.
    """
    encoded = msgspec.json.encode(value, order="deterministic")
    if _WHOLE_FLOAT.search(encoded):
        encoded = msgspec.json.encode(_without_whole_floats(value), order="deterministic")
    return encoded


def _without_whole_floats(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_whole_floats(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_without_whole_floats(v) for v in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def read_items(method: str, result: bytes) -> list[msgspec.Raw]:
    """The items of one page, byte for byte as the server wrote them; [] if the member is absent or null.

    Args:
        method: one of `LIST_MEMBERS`.
        result: the raw JSON of the page's `result`.

    Raises:
        RemoteProtocolError: the result is not an object, or the member is not an array.
    """
    member = LIST_MEMBERS[method][0]
    try:
        raw = msgspec.json.decode(result, type=dict[str, msgspec.Raw]).get(member)
        if raw is None:
            return []
        return msgspec.json.decode(raw, type=list[msgspec.Raw] | None) or []
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"{member} is not a list", rule=method) from error


Identity = tuple[str, int]
"""An item's name (or URI) and how many of the same name came before it: a name given twice is two items."""


class Listing(NamedTuple):
    """The content of a whole list (all pages), independent of order and spelling."""

    digests: dict[Identity, str]
    digest: str
    """64 hex digits over all items."""

    @classmethod
    def of(cls, method: str, items: Iterable[Any]) -> Listing:
        """Digests the items of all pages.

        Args:
            method: one of `LIST_MEMBERS`.
            items: `msgspec.Raw` or decoded JSON, one per item. An item without a usable name is identified by its own
                digest.
        """
        name_member = LIST_MEMBERS[method][1]
        digests: dict[Identity, str] = {}
        seen: dict[str, int] = {}
        for item in items:
            value = msgspec.json.decode(item) if isinstance(item, msgspec.Raw) else item
            digest = digest_json(value)
            name = value.get(name_member) if isinstance(value, dict) else None
            if not isinstance(name, str):
                name = "#" + digest
            nth = seen.get(name, 0)
            seen[name] = nth + 1
            digests[name, nth] = digest
        ordered = sorted([name, nth, digest] for (name, nth), digest in digests.items())
        return cls(digests, digest_json(ordered))


class Difference(NamedTuple):
    """How a list changed. Each is a tuple of names (or URIs), sorted."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    altered: tuple[str, ...]

    def __bool__(self) -> bool:
        """Whether anything changed at all."""
        return bool(self.added or self.removed or self.altered)


def difference(before: Listing, after: Listing) -> Difference:
    """What was added, removed and altered from one list to the next. Order alone is no difference."""
    old, new = before.digests, after.digests
    return Difference(
        tuple(sorted(name for name, _ in new.keys() - old.keys())),
        tuple(sorted(name for name, _ in old.keys() - new.keys())),
        tuple(sorted(name for name, nth in old.keys() & new.keys() if old[name, nth] != new[name, nth])),
    )
