"""What a conversation's tools cost: definitions, results, calls, time. Pure."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field, to_builtins

__all__ = ["Ledger", "ServerCost"]


class ServerCost(Struct):
    """What one server's calls cost: how many, how many failed, how long they took in seconds."""

    calls: int = 0
    failures: int = 0
    seconds: float = 0.0


class Ledger(Struct):
    """The bill of one conversation. All token counts are of `method`, which says whether they are estimates.

    Attributes:
        method: what counted the tokens: a tokenizer's name, or "estimate".
        requests: how often definitions were sent to the model.
        definition_tokens: tokens of definitions, over all requests.
        result_tokens: tokens of results given to the model.
        all_tokens: about what the definitions would have cost if every tool of the catalog had been sent each time, by their size on the
            wire.
        searches: how often the catalog was searched for the model.
        refused: calls that were not made.
        servers: by server key.
        remembered: servers whose tools came from memory at the start, without asking them.
    """

    method: str = "estimate"
    requests: int = 0
    definition_tokens: int = 0
    result_tokens: int = 0
    all_tokens: int = 0
    searches: int = 0
    refused: int = 0
    servers: dict[str, ServerCost] = field(default_factory=dict)
    remembered: int = 0

    @property
    def calls(self) -> int:
        """How many calls were made."""
        return sum(cost.calls for cost in self.servers.values())

    def called(self, server: str, seconds: float, *, failed: bool) -> None:
        """A call was made."""
        cost = self.servers.setdefault(server, ServerCost())
        cost.calls += 1
        cost.failures += failed
        cost.seconds += seconds

    def as_json(self) -> dict[str, Any]:
        """The bill as JSON-ready values."""
        value: dict[str, Any] = to_builtins(self)
        return {**value, "calls": self.calls}

    def __str__(self) -> str:
        about = "about " if self.method == "estimate" else ""
        saved = self.all_tokens - self.definition_tokens
        parts = [
            f"{self.calls:,} {'call' if self.calls == 1 else 'calls'}",
            f"{about}{self.definition_tokens:,} tokens of definitions in {self.requests:,} requests",
        ]
        if saved > 0:
            parts.append(f"about {saved:,} fewer than with all tools")
        parts.append(f"{about}{self.result_tokens:,} tokens of results")
        return ", ".join(parts)
