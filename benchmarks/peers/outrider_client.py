"""Outrider's client under measurement. See `driving`."""

from __future__ import annotations

import asyncio
from typing import Any

from driving import Stopwatch, drive, peak_rss_mb, timed_calls

import outrider
import outrider.client.http  # Loaded at the first URL otherwise; all clients are measured after their imports.


async def calls(url: str, count: int, at_once: int) -> dict[str, Any]:
    async with outrider.connect(url) as client:
        return await timed_calls(client.discover, count=count, at_once=at_once)


async def first(url: str) -> dict[str, Any]:
    watch = Stopwatch()
    async with outrider.connect(url) as client:
        assert client.server.supported_versions
        return watch.read()


async def many(urls: list[str]) -> dict[str, Any]:
    watch = Stopwatch()
    reports = await asyncio.gather(*map(outrider.discover, urls))
    times = watch.read()
    tools = sum(len(report.tools or ()) for report in reports)
    return {**times, "tools": tools, "peak_rss_mb": peak_rss_mb()}


# The names are loaded when first used; all clients are measured after their imports.
assert outrider.connect
assert outrider.discover
drive({"calls": calls, "first": first, "many": many})
