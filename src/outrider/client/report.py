"""The discovery report: everything learned about one target, and why it is believed.

Decided here: the report's shape, in Python and as JSON. The JSON shape is a contract: it carries `schema`, which changes only when a reader
would have to change. Not here: how it is filled (`discover`) and how it looks on a terminal (`cli`).
"""

from __future__ import annotations

import math
from typing import Any, Final

from msgspec import Raw, Struct, to_builtins

from outrider.client.listing import Listing
from outrider.client.opening import Attempt
from outrider.errors import (
    AuthRequired,
    ConnectFailed,
    ConnectionLost,
    NoCommonVersion,
    OutriderError,
    PeerError,
    TimedOut,
)
from outrider.protocol.model import Implementation, Item, Prompt, Quarantined, Resource, ResourceTemplate, Tool
from outrider.protocol.versions import Era

__all__ = ["REPORT_SCHEMA", "DiscoveryReport", "Failure", "estimated_tokens"]

REPORT_SCHEMA: Final = "outrider.report/1"
"""The version of the JSON shape."""

_BYTES_PER_TOKEN: Final = 4.0
"""A rule of thumb that holds within a fifth for English JSON with the usual tokenizers; better numbers need the model's own."""


def estimated_tokens(item: Item) -> int:
    """About how many tokens one listed item costs in a model's context; an estimate from its JSON's length."""
    return math.ceil(memoryview(item.wire).nbytes / _BYTES_PER_TOKEN)


class Failure(Struct, frozen=True, rename="camel"):
    """Why a target could not be discovered.

    Attributes:
        kind: "start" (no process, no connection), "ended" (the process or connection ended), "timeout", "auth" (a credential is needed),
            "version" (no protocol version in common), "refused" (the server answered an error) or "protocol" (it broke the rules).
        message: one sentence without secrets.
        hint: what to do next, or "".
        challenge: for "auth": the WWW-Authenticate header, or "".
        issuer: for "auth": where one signs in, or "" if that could not be found out.
        scopes: for "auth": what one would be asked to allow, as far as the server says.
        exit_code: for "ended": the process's exit code, negative for a signal; or None.
    """

    kind: str
    message: str
    hint: str = ""
    challenge: str = ""
    issuer: str = ""
    scopes: tuple[str, ...] = ()
    exit_code: int | None = None

    @classmethod
    def of(cls, error: OutriderError) -> Failure:
        """The failure that an exception stands for."""
        match error:
            case AuthRequired():
                message = str(error)
                if error.issuer:
                    wanted = f" for {' '.join(error.scopes)[:200]}" if error.scopes else ""
                    message = f"sign-in needed with {error.issuer}{wanted}: {message}"
                return cls("auth", message, error.hint, error.challenge, error.issuer, error.scopes)
            case ConnectionLost():
                return cls("ended", str(error), error.hint, exit_code=error.exit_code)
            case TimedOut():
                return cls("timeout", str(error), error.hint)
            case ConnectFailed():
                return cls("start", str(error), error.hint)
            case NoCommonVersion():
                return cls("version", str(error), error.hint)
            case PeerError():
                return cls("refused", str(error), error.hint)
            case _:
                return cls("protocol", str(error), error.hint)


class DiscoveryReport(Struct, kw_only=True):
    """What one target is, what it can do, and how that is known.

    Attributes:
        target: the target as it may be shown: a URL without its secrets, or a command line with them masked.
        transport: "stdio", "streamable-http" or "http+sse".
        era: the era the server speaks, or None when that could not be found out.
        era_reason: the row of the era table that decided, or "".
        protocol_version: the version in use, or "".
        supported_versions: the versions the server names.
        capabilities: its ServerCapabilities as they came.
        identity: what it calls itself: self-reported, never verified.
        instructions: its guidance for a model, or "".
        ttl_ms: how long the answer to `server/discover` may be taken for fresh, in milliseconds; 0 for not at all.
        cache_scope: "public" or "private".
        tools, prompts, resources, resource_templates: the lists, or None where the server declares no such capability.
        attempts: every step, in order.
        warnings: what was wrong without being fatal.
        stderr_tail: the last lines a process wrote to stderr.
        timings_ms: "open" (until the era was known), "lists", "total".
        failure: why there is no more, or None when all went well.
        source: "network", "memory" (remembered and fresh) or "stale" (remembered, no longer fresh, and the server could not be asked).
        received_ms: when the server said it, in milliseconds since 1970.
        stale_because: why a stale answer had to do, or "".
    """

    target: str
    transport: str
    era: Era | None = None
    era_reason: str = ""
    protocol_version: str = ""
    supported_versions: tuple[str, ...] = ()
    capabilities: dict[str, Any] = {}
    identity: Implementation | None = None
    instructions: str = ""
    ttl_ms: int = 0
    cache_scope: str = "private"
    tools: Listing[Tool] | None = None
    prompts: Listing[Prompt] | None = None
    resources: Listing[Resource] | None = None
    resource_templates: Listing[ResourceTemplate] | None = None
    attempts: list[Attempt] = []
    warnings: list[str] = []
    stderr_tail: tuple[str, ...] = ()
    timings_ms: dict[str, float] = {}
    failure: Failure | None = None
    source: str = "network"
    received_ms: int = 0
    stale_because: str = ""

    @property
    def ok(self) -> bool:
        """Whether the target was discovered."""
        return self.failure is None

    @property
    def extensions(self) -> dict[str, Any]:
        """Extension identifiers with their settings."""
        extensions = self.capabilities.get("extensions")
        return extensions if isinstance(extensions, dict) else {}

    @property
    def tokens(self) -> int:
        """About how many tokens all tool definitions and the instructions cost in a model's context."""
        tools = self.tools.items if self.tools else ()
        return sum(map(estimated_tokens, tools)) + math.ceil(len(self.instructions.encode()) / _BYTES_PER_TOKEN)

    def as_json(self) -> dict[str, Any]:
        """The report as JSON-ready values. Shape: docs/report.md."""
        failure = None if self.failure is None else to_builtins(self.failure)
        lists = {
            "tools": _list_as_json(self.tools),
            "prompts": _list_as_json(self.prompts),
            "resources": _list_as_json(self.resources),
            "resourceTemplates": _list_as_json(self.resource_templates),
        }
        return {
            "schema": REPORT_SCHEMA,
            "target": self.target,
            "ok": self.ok,
            "transport": self.transport,
            "era": self.era.value if self.era else None,
            "eraReason": self.era_reason,
            "protocolVersion": self.protocol_version or None,
            "supportedVersions": list(self.supported_versions),
            "capabilities": self.capabilities,
            "extensions": self.extensions,
            "identity": None if self.identity is None else {**to_builtins(self.identity), "selfReported": True},
            "instructions": self.instructions or None,
            "ttlMs": self.ttl_ms,
            "cacheScope": self.cache_scope,
            "tokens": {"estimated": self.tokens},
            **lists,
            "attempts": [
                {"step": a.step, "observed": a.observed, "conclusion": a.conclusion, "elapsedMs": a.elapsed_ms}
                for a in self.attempts
            ],
            "warnings": list(self.warnings),
            "stderrTail": list(self.stderr_tail),
            "timingsMs": dict(self.timings_ms),
            "failure": failure,
            "source": self.source,
            "receivedMs": self.received_ms,
            "staleBecause": self.stale_because or None,
        }


def _list_as_json(listing: Listing[Any] | None) -> dict[str, Any] | None:
    if listing is None:
        return None
    return {
        "count": len(listing.items),
        "complete": listing.complete,
        "source": listing.source.value,
        "estimatedTokens": sum(map(estimated_tokens, listing.items)),
        # Items as they came: the number forms and unknown members of the server survive.
        "items": [Raw(bytes(item.wire)) for item in listing.items],
        "quarantined": [_quarantined_as_json(entry) for entry in listing.quarantined],
    }


def _quarantined_as_json(entry: Quarantined) -> dict[str, Any]:
    return {"item": entry.item, "reason": entry.reason, "excluded": entry.excluded}
