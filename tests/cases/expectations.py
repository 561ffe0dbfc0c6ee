"""How the cases look at a server, and what they say when it was discovered right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import outrider
from outrider import ClientOptions, DiscoveryReport

OPTIONS = ClientOptions(
    start_timeout_s=60.0, probe_timeout_s=20.0, request_timeout_s=30.0, list_timeout_s=30.0, shutdown_timeout_s=1.0
)
"""Long enough for any machine. A case in which something is to time out says so, with a time of its own."""


def options(**changes: Any) -> ClientOptions:
    """`OPTIONS` with changes."""
    return replace(OPTIONS, **changes)


async def look_at(target: Any, *, headers: dict[str, str] | None = None, **changes: Any) -> DiscoveryReport:
    """Discovers a target, with changed options if need be. Never raises for what a server does."""
    return await outrider.discover(target, headers=headers, options=options(**changes))


def tool_names(report: DiscoveryReport) -> list[str]:
    """The names of the listed tools, in order."""
    return [tool.name for tool in report.tools.items] if report.tools is not None else []


def assert_found(report: DiscoveryReport, era: str, *tools: str) -> None:
    """The server was discovered with this era and these tools; by default those of the ready-made servers."""
    assert report.failure is None, report
    assert report.era == era, report
    assert tool_names(report) == list(tools or ("add", "echo")), report


def steps(report: DiscoveryReport) -> list[str]:
    """The first word of every step that was taken."""
    return [attempt.step.split()[0] for attempt in report.attempts]
