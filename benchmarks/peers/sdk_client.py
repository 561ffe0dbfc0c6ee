"""The client of the official Python SDK 2.x under measurement, used as its documentation shows. See `driving`."""

from __future__ import annotations

import asyncio
from typing import Any

from driving import Stopwatch, drive, peak_rss_mb, timed_calls
from mcp import Client
from mcp_types import DiscoverResult
from mcp_types.version import LATEST_MODERN_VERSION


async def calls(url: str, count: int, at_once: int) -> dict[str, Any]:
    async with Client(url) as client:

        async def discover() -> DiscoverResult:
            # What `session.discover()` does; that one remembers its first answer and would measure nothing.
            return DiscoverResult.model_validate(await client.session.send_discover(LATEST_MODERN_VERSION))

        return await timed_calls(discover, count=count, at_once=at_once)


async def first(url: str) -> dict[str, Any]:
    watch = Stopwatch()
    async with Client(url) as client:
        assert client.protocol_version == LATEST_MODERN_VERSION
        return watch.read()


async def many(urls: list[str]) -> dict[str, Any]:
    async def one(url: str) -> int:
        async with Client(url) as client:
            return len((await client.list_tools()).tools)

    watch = Stopwatch()
    tools = sum(await asyncio.gather(*map(one, urls)))
    return {**watch.read(), "tools": tools, "peak_rss_mb": peak_rss_mb()}


drive({"calls": calls, "first": first, "many": many})
