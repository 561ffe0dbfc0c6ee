"""What is pinned of a server: its facts and the definition of everything that it lists, part by part, each with a digest. Pure.

Decided here: which parts there are, which members say nothing lasting, and what may not go into a file that is shared: secrets and the
user's own paths. Not here: how the file is written (`document`), what a difference means (`drift`).

Spec: ours
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from outrider.client.listing import Listing
from outrider.client.report import DiscoveryReport
from outrider.protocol.digest import canonical_json, digest_json
from outrider.protocol.model import PROMPTS, RESOURCE_TEMPLATES, RESOURCES, TOOLS, Item, ListKind

__all__ = [
    "KINDS",
    "SERVER",
    "Definition",
    "Portable",
    "ServerPins",
    "key_of",
    "pin_item",
    "pin_server",
]

SERVER: Final = "server"
KINDS: Final[dict[str, ListKind]] = {
    "tool": TOOLS,
    "prompt": PROMPTS,
    "resource": RESOURCES,
    "template": RESOURCE_TEMPLATES,
}
"""What a server lists, by the word for one of it."""


class Definition(Struct, frozen=True):
    """A definition in parts.

    Attributes:
        parts: the value of each part, as JSON-ready values.
        digests: the digest of each part: 64 hex digits that do not depend on spelling or on the order of keys.
        digest: of all parts together.
    """

    parts: dict[str, Any]
    digests: dict[str, str]
    digest: str

    @classmethod
    def of(cls, parts: Mapping[str, Any]) -> Definition:
        """The definition that consists of these parts; null ones count as absent."""
        parts = {name: value for name, value in sorted(parts.items()) if value is not None}
        digests = {name: digest_json(value) for name, value in parts.items()}
        return cls(parts, digests, digest_json(digests))


class ServerPins(Struct, frozen=True):
    """One server, pinned.

    Attributes:
        facts: `target`, `era`, `versions`, `identity.…`, `capabilities.…`, `instructions`.
        items: for each of `KINDS`, the definitions by name (resources by URI, templates by URI template).
        unread: kinds whose list could not be read to its end: what is missing there may still exist.
    """

    facts: Definition
    items: dict[str, dict[str, Definition]]
    unread: tuple[str, ...] = ()

    def only(self, offers: Callable[[str], bool]) -> ServerPins:
        """The same without the tools that are not offered."""
        tools = {name: tool for name, tool in self.items.get("tool", {}).items() if offers(name)}
        return msgspec.structs.replace(self, items={**self.items, "tool": tools})


class Portable:
    """Takes out of a value what must not be shared and differs from one user to the next.

    Secrets of the configuration are masked, wherever a server repeats them; the user's home folder becomes `~`, and so does root's,
    which is somebody's home in every container.

    Args:
        home: the user's home folder, or "".
        redact: masks the secrets of the target in a text.
    """

    def __init__(self, home: str = "", redact: Callable[[str], str] = str) -> None:
        homes = {folder.rstrip("/\\") for folder in (home, "/root")}
        wanted = sorted((folder for folder in homes if len(folder) > 1), key=len, reverse=True)
        self._home = re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, wanted))})(?![\w.-])")
        self._hints = [folder.replace("\\", "\\\\") for folder in wanted]
        self._redact = redact

    def __call__(self, value: Any) -> Any:
        """`value` without all that; the same object if there is nothing to take out."""
        text = canonical_json(value).decode()
        if not any(hint in text for hint in self._hints) and self._redact(text) == text:
            return value
        return self._walk(value)

    def _walk(self, value: Any) -> Any:
        match value:
            case str():
                return self._home.sub("~", self._redact(value))
            case dict():
                return {self._walk(name): self._walk(inner) for name, inner in value.items()}
            case list():
                return [self._walk(inner) for inner in value]
        return value


def pin_server(
    report: DiscoveryReport,
    *,
    target: str,
    portable: Portable,
    offers: Callable[[str], bool] = lambda name: True,
    pin: Callable[[str, Item], Definition] | None = None,
) -> ServerPins:
    """Pin what a discovery found.

    Args:
        report: of a server that answered.
        target: what is started or called, as `describe_target` says it.
        portable: takes out what must not be shared.
        offers: which tools count.
        pin: makes the definition of an item, where definitions are remembered; None for `pin_item`.
    """
    facts: dict[str, Any] = {
        "target": target,
        "era": report.era.value if report.era else None,
        "versions": sorted(report.supported_versions),
        "instructions": report.instructions or None,
    }
    if report.identity is not None:
        facts |= {
            f"identity.{name}": value for name, value in msgspec.to_builtins(report.identity).items() if value != ""
        }
    for name, settings in report.capabilities.items():
        if name == "extensions" and isinstance(settings, dict):
            facts |= {f"capabilities.extensions.{extension}": value for extension, value in settings.items()}
        else:
            facts[f"capabilities.{name}"] = settings
    make = pin or (lambda kind, item: pin_item(kind, item, portable))
    lists: dict[str, Listing[Any] | None] = dict(
        zip(KINDS, (report.tools, report.prompts, report.resources, report.resource_templates), strict=True)
    )
    items = {
        kind: {
            key_of(item, portable): make(kind, item)
            for item in (listing.items if listing is not None else ())
            if is_pinned(kind, item) and (kind != "tool" or offers(item.name))
        }
        for kind, listing in lists.items()
    }
    unread = tuple(kind for kind, listing in lists.items() if listing is not None and not listing.complete)
    return ServerPins(Definition.of(portable(facts)), items, unread)


def is_pinned(kind: str, item: Item) -> bool:
    """Whether an item is pinned at all: files of the user's own machine are data, not part of an offer."""
    return kind != "resource" or not item.identity.lower().startswith("file:")


def key_of(item: Item, portable: Portable) -> str:
    """What an item is called in the lock file."""
    key: str = portable(item.identity)
    return key


def pin_item(kind: str, item: Item, portable: Portable) -> Definition:
    """Pin one listed item. Of a resource, its size and the time of its last change are left out: they change with its contents."""
    parts = item.decoded()
    del parts[KINDS[kind].identity]
    annotations = parts.get("annotations")
    if isinstance(annotations, dict):
        parts["annotations"] = {name: value for name, value in annotations.items() if value is not None} or None
    if kind == "resource":
        parts.pop("size", None)
        if isinstance(parts.get("annotations"), dict):
            parts["annotations"] = {k: v for k, v in parts["annotations"].items() if k != "lastModified"} or None
    return Definition.of(portable(parts))
