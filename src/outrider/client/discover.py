"""Discover one target: open it, ask what it is, read what it lists, and report every step.

Decided here: which lists are asked for (those the capabilities declare), what a failing list costs (that list), and what goes into the
report. Not here: everything about the wire.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from outrider.client.client import Client, Listing
from outrider.client.report import DiscoveryReport, Failure
from outrider.client.target import ClientOptions, StdioTarget, Target, parse_target
from outrider.errors import OutriderError, PeerError
from outrider.protocol.freshness import read_hints
from outrider.protocol.model import PROMPTS, RESOURCE_TEMPLATES, RESOURCES, TOOLS, ListKind
from outrider.protocol.versions import Era

__all__ = ["discover"]


async def discover(
    target: str | Sequence[str] | Target,
    *,
    headers: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    options: ClientOptions | None = None,
    lists: bool = True,
) -> DiscoveryReport:
    """Find out what an MCP server is and what it can do.

    Whatever the server does, this returns a report; a server that fails is reported with what was tried and the first real cause.
    Everything that was started is ended before it returns, also when the caller cancels.

    Args:
        target: a URL, a command as a list or a string, or a ready target.
        headers: sent with every request, for URLs.
        env: variables for the process, for commands.
        cwd: the working directory, for commands.
        options: limits and identity.
        lists: also read the lists that the server declares.

    Raises:
        ConfigError: the target cannot be used; nothing was started.
    """
    client = Client(parse_target(target, headers=headers, env=env, cwd=cwd), options or ClientOptions())
    report = _empty_report(client.target)
    started = time.monotonic()
    try:
        async with client:
            report.timings_ms["open"] = _since(started)
            _describe(report, client)
            if lists:
                lists_started = time.monotonic()
                await _read_lists(report, client)
                report.timings_ms["lists"] = _since(lists_started)
            _collect(report, client)
    except OutriderError as error:
        report.failure = Failure.of(error)
        _collect(report, client)
    report.timings_ms["total"] = _since(started)
    return report


def _empty_report(target: Target) -> DiscoveryReport:
    return DiscoveryReport(
        target=target.label,
        transport="stdio" if isinstance(target, StdioTarget) else "streamable-http",
        attempts=[],
        warnings=[],
        timings_ms={},
        capabilities={},
    )


def _since(moment: float) -> float:
    return round((time.monotonic() - moment) * 1000, 1)


def _describe(report: DiscoveryReport, client: Client) -> None:
    server = client.server
    report.era = client.era
    report.era_reason = client.trail.row
    report.protocol_version = client.protocol_version
    report.supported_versions = server.supported_versions
    report.capabilities = server.capabilities
    report.identity = server.identity
    report.instructions = server.instructions
    if client.era is Era.MODERN:
        hints = read_hints(msgspec.json.encode(server.wire))
        report.ttl_ms, report.cache_scope = hints.ttl_ms, hints.scope.value
        report.warnings.extend(f"server/discover: {fault}" for fault in hints.faults)
    if client.channel is not None:
        report.transport = client.channel.transport


async def _read_lists(report: DiscoveryReport, client: Client) -> None:
    async def tools() -> None:
        report.tools = await _read_list(report, TOOLS, client.list_tools)

    async def prompts() -> None:
        report.prompts = await _read_list(report, PROMPTS, client.list_prompts)

    async def resources() -> None:
        report.resources = await _read_list(report, RESOURCES, client.list_resources)

    async def resource_templates() -> None:
        report.resource_templates = await _read_list(report, RESOURCE_TEMPLATES, client.list_resource_templates)

    wanted = {"tools": (tools,), "prompts": (prompts,), "resources": (resources, resource_templates)}
    async with asyncio.TaskGroup() as group:
        for capability, readers in wanted.items():
            if capability in report.capabilities:
                for reader in readers:
                    group.create_task(reader())


async def _read_list(
    report: DiscoveryReport, kind: ListKind, read: Callable[[], Awaitable[Listing[Any]]]
) -> Listing[Any]:
    """One list; its failure costs this list and a warning."""
    try:
        listing = await read()
    except PeerError as error:
        report.warnings.append(
            f"{kind.capability} is declared, but {kind.method} answers error {error.code}: {error.message[:200]}"
        )
        return Listing((), False, (), (), ())
    except OutriderError as error:
        report.warnings.append(f"{kind.method} failed: {error}")
        return Listing((), False, (), (), ())
    report.warnings.extend(listing.warnings)
    for entry in listing.quarantined:
        verb = "left out" if entry.excluded else "listed with a flaw"
        report.warnings.append(f"{kind.label}: {entry.item[:100]!r} {verb}: {entry.reason}")
    return listing


def _collect(report: DiscoveryReport, client: Client) -> None:
    trail = client.trail
    report.attempts = trail.attempts
    report.warnings = [*trail.warnings, *report.warnings]
    report.stderr_tail = trail.stderr_tail
    if (channel := client.channel) is not None:
        report.warnings.extend(warning for warning in channel.warnings if warning not in report.warnings)
        report.stderr_tail = channel.stderr_tail()
