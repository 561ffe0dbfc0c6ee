"""Discover one target: open it, ask what it is, read what it lists, and report every step.

Decided here: which lists are asked for (those the capabilities declare), what a failing list costs (that list), and what goes into the
report. Not here: everything about the wire.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final

from outrider.cache.answers import Source
from outrider.cache.memory import Memory
from outrider.client.client import Client
from outrider.client.listing import Listing
from outrider.client.report import DiscoveryReport, Failure
from outrider.client.target import DEFAULTS, ClientOptions, HttpTarget, StdioTarget, Target, parse_target
from outrider.errors import AuthRequired, OutriderError, PeerError, SignInFailed
from outrider.protocol.freshness import hints_of
from outrider.protocol.model import PROMPTS, RESOURCE_TEMPLATES, RESOURCES, TOOLS, ListKind, ServerDescription
from outrider.protocol.versions import Era

__all__ = ["discover", "report_on"]

_LISTS: Final = (
    ("tools", TOOLS, Client.list_tools),
    ("prompts", PROMPTS, Client.list_prompts),
    ("resources", RESOURCES, Client.list_resources),
    ("resource_templates", RESOURCE_TEMPLATES, Client.list_resource_templates),
)
"""The report's lists: its member, what they are lists of, and how they are asked for."""
_LOOK_UP_S: Final = 10.0
"""How long the question where one signs in may hold up a report, in seconds."""


async def discover(
    target: str | Sequence[str] | Target,
    *,
    headers: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    options: ClientOptions | None = None,
    lists: bool = True,
    memory: Memory | None = None,
    refresh: bool = False,
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
        memory: where answers are remembered; None to ask every time. It is not closed here.
        refresh: ask even if everything is remembered and fresh.

    Raises:
        ConfigError: the target cannot be used; nothing was started.
    """
    client = Client(parse_target(target, headers=headers, env=env, cwd=cwd), options or DEFAULTS, memory=memory)
    try:
        return await report_on(client, lists=lists, refresh=refresh)
    finally:
        await client.close()


async def report_on(client: Client, *, lists: bool = True, refresh: bool = False) -> DiscoveryReport:
    """The report on a client's server; like `discover`, with a client that stays open for more."""
    report = _empty_report(client.target)
    started = time.monotonic()
    try:
        if client.remembering is None:
            await client.__aenter__()  # The opening has just asked; asking again would tell nothing new.
            _describe(report, client.server, client.era, client.protocol_version)
        else:
            server = await client.discover(refresh=refresh)
            era = await client.remembering.known_era()
            version = await client.remembering.known_version()
            _describe(report, server, era or client.era, version or client.protocol_version)
        report.timings_ms["open"] = _since(started)
        if lists:
            lists_started = time.monotonic()
            await _read_lists(report, client, refresh=refresh)
            report.timings_ms["lists"] = _since(lists_started)
    except OutriderError as error:
        if isinstance(error, AuthRequired) and not isinstance(error, SignInFailed):
            await _explain(error, client)
        report.failure = Failure.of(error)
    _collect(report, client)
    report.timings_ms["total"] = _since(started)
    return report


async def _explain(error: AuthRequired, client: Client) -> None:
    """Find out where one would sign in, without signing in; that it cannot be found out is no failure of its own.

    Spec: 2026-07-28 basic/authorization/authorization-server-discovery
    """
    target = client.target
    if error.status != 401 or not isinstance(target, HttpTarget) or target.has_authorization:
        return
    from outrider.client.auth.lookup import look_up

    try:
        async with asyncio.timeout(min(_LOOK_UP_S, client.options.start_timeout_s)):
            plan = await look_up(target.url, error.challenge)
    except (OutriderError, TimeoutError):
        return
    error.issuer, error.scopes = plan.server.issuer, plan.challenge.scopes or plan.resource.scopes or ()
    error.hint = f"sign in with: outrider login {target.label}"


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


def _describe(report: DiscoveryReport, server: ServerDescription, era: Era, version: str) -> None:
    report.era = era
    report.protocol_version = version
    report.supported_versions = server.supported_versions
    report.capabilities = server.capabilities
    report.identity = server.identity
    report.instructions = server.instructions
    if era is Era.MODERN:
        hints = hints_of(server.wire)
        report.ttl_ms, report.cache_scope = hints.ttl_ms, hints.scope.value
        report.warnings.extend(f"server/discover: {fault}" for fault in hints.faults)


async def _read_lists(report: DiscoveryReport, client: Client, *, refresh: bool) -> None:
    """Read what the capabilities declare.

    Raises:
        AuthRequired: whoever may look at the server may look at none of its lists without signing in.
    """
    denials: list[AuthRequired] = []

    async def read(member: str, kind: ListKind, reading: Awaitable[Listing[Any]]) -> None:
        setattr(report, member, await _read_list(report, kind, reading, denials))

    readings = [
        read(member, kind, ask(client, refresh=refresh))
        for member, kind, ask in _LISTS
        if kind.capability in report.capabilities
    ]
    if len(readings) == 1:
        await readings[0]
    else:
        async with asyncio.TaskGroup() as group:
            for reading in readings:
                group.create_task(reading)
    if denials and len(denials) == len(readings):
        raise denials[0]


async def _read_list(
    report: DiscoveryReport, kind: ListKind, reading: Awaitable[Listing[Any]], denials: list[AuthRequired]
) -> Listing[Any]:
    """One list; its failure costs this list and a warning, and is among the `denials` if a credential is wanted."""
    try:
        listing = await reading
    except PeerError as error:
        report.warnings.append(
            f"{kind.capability} is declared, but {kind.method} answers error {error.code}: {error.message[:200]}"
        )
        return Listing((), False, (), (), ())
    except OutriderError as error:
        report.warnings.append(f"{kind.method} failed: {error}" + (f"; {error.hint}" if error.hint else ""))
        if isinstance(error, AuthRequired):
            denials.append(error)
        return Listing((), False, (), (), ())
    report.warnings.extend(listing.warnings)
    for entry in listing.quarantined:
        verb = "left out" if entry.excluded else "listed with a flaw"
        report.warnings.append(f"{kind.label}: {entry.item[:100]!r} {verb}: {entry.reason}")
    return listing


def _collect(report: DiscoveryReport, client: Client) -> None:
    """What is known only at the end: the trail, the transport's warnings, and where the answers came from."""
    trail = client.trail
    report.attempts = trail.attempts
    report.era_reason = trail.row
    report.warnings = [*trail.warnings, *report.warnings]
    report.stderr_tail = trail.stderr_tail
    if (channel := client.channel) is not None:
        report.transport = channel.transport
        report.warnings.extend(warning for warning in channel.warnings if warning not in report.warnings)
        report.stderr_tail = channel.stderr_tail()
    described = client.remembering.described if client.remembering is not None else None
    report.received_ms = described.received_ms if described is not None else time.time_ns() // 1_000_000
    if report.failure is not None or described is None:
        return
    listings = (report.tools, report.prompts, report.resources, report.resource_templates)
    sources = {described.source, *(listing.source for listing in listings if listing is not None)}
    # The report is as good as its weakest part.
    report.source = next(source for source in (Source.STALE, Source.NETWORK, Source.MEMORY) if source in sources).value
    if described.error is not None:
        report.stale_because = str(described.error)
