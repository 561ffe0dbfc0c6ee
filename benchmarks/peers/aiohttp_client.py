"""The least that any client on aiohttp does: post bytes, decode JSON into dicts, check nothing. See `driving`."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import aiohttp
import msgspec
from driving import Stopwatch, drive, peak_rss_mb, timed_calls

VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "bare", "version": "0"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
ids = itertools.count(1)


async def ask(session: aiohttp.ClientSession, url: str, method: str) -> dict[str, Any]:
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": next(ids), "method": method, "params": {"_meta": META}})
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": VERSION,
        "Mcp-Method": method,
    }
    async with session.post(url, data=body, headers=headers) as response:
        answer: dict[str, Any] = msgspec.json.decode(await response.read())["result"]
        return answer


def new_session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))


async def calls(url: str, count: int, at_once: int) -> dict[str, Any]:
    async with new_session() as session:
        return await timed_calls(lambda: ask(session, url, "server/discover"), count=count, at_once=at_once)


async def first(url: str) -> dict[str, Any]:
    watch = Stopwatch()
    async with new_session() as session:
        await ask(session, url, "server/discover")
        return watch.read()


async def many(urls: list[str]) -> dict[str, Any]:
    async def one(session: aiohttp.ClientSession, url: str) -> int:
        await ask(session, url, "server/discover")
        return len((await ask(session, url, "tools/list"))["tools"])

    watch = Stopwatch()
    async with new_session() as session:
        tools = sum(await asyncio.gather(*(one(session, url) for url in urls)))
    return {**watch.read(), "tools": tools, "peak_rss_mb": peak_rss_mb()}


drive({"calls": calls, "first": first, "many": many})
