"""How tools reach a model: all of them, or a way to search them.

Decided here: which definitions stand in the next request and in what order, when all tools are too many, and which tools a conversation may
use at all. Not here: the words of the search surface (`surface`), the vendors' forms (`formats`), and what becomes of calls
(`conversation`).

Spec: ours; docs/2026-07-28 client best practices
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from outrider.catalog.formats import RULES, Aliases, Offered, ToolRef, Vendor, count_tokens, offer
from outrider.catalog.guards import Guards
from outrider.catalog.reference import OWN_SERVER
from outrider.catalog.snapshot import CatalogTool, Snapshot
from outrider.catalog.surface import CALL, DESCRIBE, FIND, READ, SEARCH, surface_ref
from outrider.client.report import estimated_tokens
from outrider.errors import LocalProtocolError

if TYPE_CHECKING:
    from outrider.catalog.catalog import Catalog

__all__ = ["Exposure", "Mode", "Seen"]

Mode: TypeAlias = Literal["auto", "all", "search", "native"]
"""What a model is shown; see `Conversation`."""

_NATIVE: Final = (Vendor.OPENAI_RESPONSES, Vendor.ANTHROPIC)


class Seen(NamedTuple):
    """A snapshot, what of it may be used, and the names of that."""

    snapshot: Snapshot
    tools: list[CatalogTool]
    aliases: Aliases


class Exposure:
    """What one model is shown. New tools are appended and never sorted in, and no definition changes: vendors cache the prompt's beginning.

    Args:
        catalog: where tools come from.
        vendor: whose form.
        mode: see `Conversation`.
        budget: the tokens that definitions may take in the mode "auto".
        guards: which tools are offered.
        strict: as for `formats.offer`.
        servers: only these servers, by key; None for all.

    Attributes:
        mode: the mode in use, never "auto".
        servers: as given.
        offered: the definitions with their accounts.

    Raises:
        LocalProtocolError: "native", and the vendor has no such thing.
    """

    def __init__(
        self,
        catalog: Catalog,
        vendor: Vendor,
        mode: Mode,
        *,
        budget: float,
        guards: Guards,
        strict: Literal["auto"] | bool,
        servers: Iterable[str] | None,
    ) -> None:
        if mode == "native" and vendor not in _NATIVE:
            raise LocalProtocolError(
                f"{RULES[vendor].label} does not load tools by itself",
                hint='use the mode "search" there, or "native" with openai-responses or anthropic',
            )
        self.mode: Literal["all", "search", "native"] = "all" if mode == "auto" else mode
        self.servers = None if servers is None else frozenset(servers)
        self._catalog, self._vendor, self._guards, self._strict = catalog, vendor, guards, strict
        self._budget = budget if mode == "auto" else None
        self._shown: dict[ToolRef, Any] = {}
        self._loaded: dict[ToolRef, None] = {}
        self._seen: Seen | None = None
        if self.mode == "search":
            self._show_search()
        elif self.mode == "native" and vendor is Vendor.ANTHROPIC:
            self._shown[surface_ref(FIND)] = FIND
        self.offered = self._offer()
        self.update()

    # -- what may be used ------------------------------------------------------------------------------------------------------------

    def look(self) -> Seen:
        """The catalog as this model may see it, worked out once for each snapshot."""
        snapshot = self._catalog.snapshot
        if self._seen is None or self._seen.snapshot is not snapshot:
            tools = [
                tool
                for tool in snapshot.tools
                if self.may_use(tool.id.server) and self._guards.offers(str(tool.id), tool.tool)
            ]
            self._seen = Seen(snapshot, tools, Aliases(tool.id for tool in tools))
        return self._seen

    def may_use(self, server: str) -> bool:
        """Whether a server's tools are for this model."""
        return self.servers is None or server in self.servers

    # -- what is shown ---------------------------------------------------------------------------------------------------------------

    @property
    def shown_servers(self) -> list[str]:
        """The servers whose tools are shown, in the order in which they came."""
        return list(dict.fromkeys(ref.server for ref in self._shown if ref.server != OWN_SERVER))

    def update(self) -> None:
        """Append what has appeared, as far as the mode shows it."""
        before = len(self._shown)
        if self.mode == "all" or (self.mode == "native" and self._vendor is Vendor.ANTHROPIC):
            new = [tool for tool in self.look().tools if tool.id not in self._shown]
            if self._is_too_much(new):
                self.mode = "search"
                self._show_search()
            else:
                self._shown.update((tool.id, tool.tool) for tool in new)
        if len(self._shown) == before:
            return
        offered = self._offer()
        if self._budget is not None and self.mode == "all" and not before and offered.tokens.tokens > self._budget:
            # The quick look took it for less than the vendor's form of it is.
            self.mode, self._shown = "search", {}
            self._show_search()
            offered = self._offer()
        self.offered = offered

    def show_reading(self) -> None:
        """Show `read_result` from now on."""
        if surface_ref(READ) not in self._shown:
            self._shown[surface_ref(READ)] = READ
            self.offered = self._offer()

    def load(self, refs: Iterable[ToolRef]) -> None:
        """Note that the vendor loads these tools, because they were found."""
        self._loaded.update(dict.fromkeys(refs))

    def load_unshown(self, tools: Iterable[CatalogTool]) -> list[dict[str, Any]]:
        """The definitions of found tools, for a vendor that loads them from an answer rather than from the request."""
        found = {tool.id: tool.tool for tool in tools}
        self._shown.update((ref, tool) for ref, tool in found.items() if ref not in self._shown)
        self.offered = self._offer()
        self.load(found)
        by_ref = dict(self._definitions())
        return [{**by_ref[ref], "defer_loading": True} for ref in found if ref in by_ref]

    def sent(self) -> list[dict[str, Any]]:
        """Exactly what to send with the next request."""
        if self.mode != "native":
            return self.offered.tools
        if self._vendor is Vendor.ANTHROPIC:
            # At least one tool must not be deferred: ours are not. Spec: ours; the vendor's "Tool search tool" page
            return [
                definition if ref.server == OWN_SERVER else {**definition, "defer_loading": True}
                for ref, definition in self._definitions()
            ]
        own = [definition for ref, definition in self._definitions() if ref.server == OWN_SERVER]
        search = {"type": "tool_search", "execution": "client", "description": FIND["description"]}
        return [{**search, "parameters": FIND["inputSchema"]}, *own]

    def tokens_of(self, sent: list[dict[str, Any]]) -> int:
        """The tokens of what enters the model's context: deferred definitions do not, until they are found."""
        if self.mode == "native":
            sent = [definition for definition in sent if not definition.get("defer_loading")]
            sent += [definition for ref, definition in self._definitions() if ref in self._loaded]
        return count_tokens(sent, self._vendor).tokens if sent else 0

    def _definitions(self) -> Iterable[tuple[ToolRef, dict[str, Any]]]:
        return zip(self.offered.entries, self.offered.tools, strict=True)

    def _show_search(self) -> None:
        for definition in (SEARCH, DESCRIBE, CALL):
            self._shown.setdefault(surface_ref(definition), definition)

    def _is_too_much(self, new: list[CatalogTool]) -> bool:
        """Whether more than the budget or the vendor's number would be shown with `new`. Measured by the size on the wire, which is
        quick; converting thousands of tools only to throw them away is not.
        """
        if self._budget is None or not new:
            return False
        shown = [tool for ref, tool in self._shown.items() if ref.server != OWN_SERVER]
        most = RULES[self._vendor].max_tools
        # One place stays free for read_result.
        if most is not None and len(shown) + len(new) >= most:
            return True
        return sum(map(estimated_tokens, shown)) + sum(estimated_tokens(tool.tool) for tool in new) > self._budget

    def _offer(self) -> Offered:
        return offer(self._vendor, self._shown.items(), strict=self._strict)
