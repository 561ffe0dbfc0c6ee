"""What the catalog shows: immutable views of servers, composed into immutable snapshots; and how names become tools.

Decided here: the order of everything, the shown names, and what a name means. Pure.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from outrider.catalog.reference import ToolRef
from outrider.client.report import DiscoveryReport, Failure, estimated_tokens
from outrider.errors import OutriderError
from outrider.protocol.model import Implementation, Prompt, Resource, ResourceTemplate, Tool
from outrider.protocol.versions import Era

if TYPE_CHECKING:
    from outrider.catalog.lock.drift import Drift

__all__ = [
    "AmbiguousTool",
    "CatalogTool",
    "ServerState",
    "ServerView",
    "Snapshot",
    "UnknownTool",
]


class UnknownTool(OutriderError):
    """No server of the catalog has a tool of that name.

    Attributes:
        name: what was asked for.
        near: shown names that look like it, nearest first.
        unseen: which servers could not be looked at, and so might have it, as a sentence; or "".
    """

    def __init__(self, name: str, near: tuple[str, ...], unseen: str = "") -> None:
        super().__init__(
            f"there is no tool {name[:200]!r}" + (f"; {unseen}" if unseen else ""),
            hint=f"did you mean {', '.join(near)}?" if near else "search the catalog for what it should do",
        )
        self.name = name
        self.near = near
        self.unseen = unseen


class AmbiguousTool(OutriderError):
    """Several servers have a tool of that bare name.

    Attributes:
        name: what was asked for.
        candidates: the shown names that it can mean.
    """

    def __init__(self, name: str, candidates: tuple[str, ...]) -> None:
        super().__init__(f"{name[:200]!r} is a tool of several servers", hint=f"use one of {', '.join(candidates)}")
        self.name = name
        self.candidates = candidates


class CatalogTool(NamedTuple):
    """A tool with its identity."""

    id: ToolRef
    tool: Tool


class ServerState(StrEnum):
    """How far a server is."""

    CONFIGURED = "configured"
    """Known by its configuration only."""
    REMEMBERED = "remembered"
    """Known from before; not connected."""
    CONNECTING = "connecting"
    """Being asked now; what is remembered is shown meanwhile."""
    READY = "ready"
    """Asked in this run, and all is well."""
    FAILED = "failed"
    """Could not be asked; what is remembered is shown, if anything is."""
    DISABLED = "disabled"
    """Switched off by its configuration."""


class ServerView(Struct, frozen=True, kw_only=True):
    """What is known of one server at one moment.

    Attributes:
        key: its id in the catalog: 1 to 48 characters of a-z, 0-9, hyphen and underscore.
        name: as it is called in the configuration.
        state: how far it is.
        label: its target as it may be shown.
        report: the last discovery with an answer in it, or None.
        failure: why it failed, or why it is disabled; None otherwise.
        next_try_s: how many seconds after the failure it is tried again, or None for not by itself.
        tools: those that may be offered, by name; allow and deny lists have been applied.
        prompts, resources, resource_templates: by name or URI.
        warnings: what was wrong, configuration included.
        drifts: how it differs from the lock file, the gravest first; () without one.
    """

    key: str
    name: str
    state: ServerState
    label: str = ""
    report: DiscoveryReport | None = None
    failure: Failure | None = None
    next_try_s: float | None = None
    tools: tuple[Tool, ...] = ()
    prompts: tuple[Prompt, ...] = ()
    resources: tuple[Resource, ...] = ()
    resource_templates: tuple[ResourceTemplate, ...] = ()
    warnings: tuple[str, ...] = ()
    drifts: tuple[Drift, ...] = ()

    @property
    def era(self) -> Era | None:
        """The era it speaks, as far as known."""
        return self.report.era if self.report is not None else None

    @property
    def identity(self) -> Implementation | None:
        """What it calls itself: for display only."""
        return self.report.identity if self.report is not None else None

    @property
    def instructions(self) -> str:
        """Its guidance for a model, or ""."""
        return self.report.instructions if self.report is not None else ""

    @property
    def capabilities(self) -> dict[str, Any]:
        """Its ServerCapabilities as they came."""
        return self.report.capabilities if self.report is not None else {}

    @property
    def tokens(self) -> int:
        """About how many tokens its tools cost in a model's context."""
        return sum(map(estimated_tokens, self.tools))

    @property
    def is_pending(self) -> bool:
        """Whether more may be known of it in a moment."""
        return self.state in (ServerState.CONFIGURED, ServerState.CONNECTING)


class Snapshot:
    """The catalog at one moment. It never changes; the next one is another object.

    Args:
        generation: counts the changes of content, so that equal generations mean equal content.
        servers: the views, by key.
    """

    def __init__(self, generation: int, servers: Iterable[ServerView]) -> None:
        self.generation = generation
        self.servers: Mapping[str, ServerView] = {view.key: view for view in sorted(servers, key=lambda view: view.key)}

    @cached_property
    def tools(self) -> tuple[CatalogTool, ...]:
        """All tools, by server key and name."""
        return tuple(
            CatalogTool(ToolRef(view.key, tool.name), tool) for view in self.servers.values() for tool in view.tools
        )

    @cached_property
    def _by_id(self) -> dict[ToolRef, Tool]:
        return dict(self.tools)

    @cached_property
    def _by_bare_name(self) -> dict[str, tuple[ToolRef, ...]]:
        found: dict[str, list[ToolRef]] = {}
        for tool_id, _ in self.tools:
            found.setdefault(tool_id.name, []).append(tool_id)
        return {name: tuple(ids) for name, ids in found.items()}

    @property
    def tokens(self) -> int:
        """About how many tokens all tools cost in a model's context."""
        return sum(view.tokens for view in self.servers.values())

    def tool(self, tool_id: ToolRef) -> Tool | None:
        """The tool of that identity, or None."""
        return self._by_id.get(tool_id)

    def resolve(self, name: str | ToolRef) -> CatalogTool:
        """The tool that a name means: `server/name`, or a bare name that only one server has.

        Raises:
            UnknownTool: none; the error names near ones.
            AmbiguousTool: several servers have it.
        """
        if isinstance(name, ToolRef):
            tool_id = name
        else:
            server, slash, bare = name.partition("/")
            tool_id = ToolRef(server, bare)
            if not slash or tool_id not in self._by_id:
                candidates = self._by_bare_name.get(name, ())
                if len(candidates) > 1:
                    raise AmbiguousTool(name, tuple(str(candidate) for candidate in candidates))
                if candidates:
                    tool_id = candidates[0]
        tool = self._by_id.get(tool_id)
        if tool is None:
            shown = str(name) if isinstance(name, ToolRef) else name
            raise UnknownTool(shown, self.near(shown), self._unseen(tool_id, shown))
        return CatalogTool(tool_id, tool)

    def _unseen(self, tool_id: ToolRef, name: str) -> str:
        """Why the tool may be there all the same: it is not to be offered, or servers could not be looked at: the one named, or any."""
        for server in self.servers.values():
            asked = tool_id.name if server.key == tool_id.server else name
            listing = server.report.tools if server.report is not None else None
            if listing is not None and any(tool.name == asked for tool in listing.items):
                return f"the server {server.key} has it, and the tool lists of the configuration or the lock file withhold it"
        if (view := self.servers.get(tool_id.server)) is not None:
            if view.failure is not None:
                what = "is not used" if view.state is ServerState.DISABLED else "could not be asked"
                return f"the server {view.key} {what}: {view.failure.message[:300]}"
            return f"the server {view.key} has not answered yet" if view.is_pending else ""
        told = ((self.failed, "could not be asked"), (self.pending, "has not answered yet"))
        return "; ".join(
            f"{', '.join(keys[:5])}{f' and {len(keys) - 5} more' if len(keys) > 5 else ''} {what}"
            for keys, what in told
            if keys
        )

    def near(self, name: str, limit: int = 3) -> tuple[str, ...]:
        """Shown names that look like `name`, nearest first."""
        bare = name.rpartition("/")[2].lower()[:128]
        scored: list[tuple[float, str]] = []
        matcher = difflib.SequenceMatcher(autojunk=False)
        matcher.set_seq2(bare)
        for tool_id, _ in self.tools:
            matcher.set_seq1(tool_id.name.lower()[:128])
            if matcher.real_quick_ratio() > 0.6 and matcher.quick_ratio() > 0.6 and (ratio := matcher.ratio()) > 0.6:
                scored.append((-ratio, str(tool_id)))
        return tuple(shown for _, shown in sorted(scored)[:limit])

    @property
    def pending(self) -> tuple[str, ...]:
        """Keys of the servers of which more may be known in a moment."""
        return tuple(view.key for view in self.servers.values() if view.is_pending)

    @property
    def failed(self) -> tuple[str, ...]:
        """Keys of the servers that could not be asked."""
        return tuple(view.key for view in self.servers.values() if view.state is ServerState.FAILED)
