"""What a model may call, and how much of it.

Decided here: allow and deny lists, the read-only mode, consent, limits of one call and of one conversation. Not here: making the call.
Pure, but for the consent that the caller's function gives.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from outrider.protocol.model import Tool

__all__ = ["CallRequest", "Guards", "Refused"]


class CallRequest(Struct, frozen=True):
    """A call that is about to be made, for whoever consents to it.

    Attributes:
        name: the tool's shown name, `server/tool`.
        tool: its definition. Its annotations are hints of an untrusted server.
        arguments: what will be sent, and to that server only.
    """

    name: str
    tool: Tool
    arguments: Mapping[str, Any]

    @property
    def hints(self) -> str:
        """The server's own hints about the tool, labelled as such; "" if it gives none."""
        told = [
            name.removesuffix("Hint")
            for name, value in self.tool.annotations.items()
            if value is True and name.endswith("Hint")
        ]
        return f"the server says (unverified): {', '.join(told)}" if told else ""


class Refused(Struct, frozen=True):
    """Why a call is not made, one sentence for the model."""

    reason: str


@dataclass(frozen=True)
class Guards:
    """What a model may do.

    Attributes:
        allow: patterns of shown names, such as `github/*` or `*/search_*`; only tools that match one are offered. None for all.
        deny: patterns that win over `allow`.
        read_only: offer only tools whose server hints that they change nothing. A hint is no proof; a tool without it counts as changing.
        confirm: asked before every call; False refuses it. None to ask nobody.
        call_timeout_s: the limit of one call, in seconds; None for the server's own.
        max_calls: how many calls one conversation may make.
        max_result_chars: how much text of one result the model sees at once; the rest is paged.
        max_instruction_chars: how much of each server's instructions the model sees.
    """

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    read_only: bool = False
    confirm: Callable[[CallRequest], Awaitable[bool]] | None = None
    call_timeout_s: float | None = None
    max_calls: int = 200
    max_result_chars: int = 40_000
    max_instruction_chars: int = 2_000

    def offers(self, name: str, tool: Tool) -> bool:
        """Whether a tool may be shown to the model at all."""
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in self.deny):
            return False
        if self.allow is not None and not any(fnmatch.fnmatchcase(name, pattern) for pattern in self.allow):
            return False
        return not self.read_only or tool.annotations.get("readOnlyHint") is True

    async def check(self, request: CallRequest, calls_so_far: int) -> Refused | None:
        """Why a call must not be made, or None. The lists are checked again: a model may name what it was never shown."""
        if not self.offers(request.name, request.tool):
            return Refused("this tool is not available here")
        if calls_so_far >= self.max_calls:
            return Refused(
                f"the limit of {self.max_calls} calls in one conversation is reached; answer with what you have"
            )
        if self.confirm is not None and not await self.confirm(request):
            return Refused("the user did not agree to this call")
        return None
