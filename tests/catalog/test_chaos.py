"""Servers come, go, change their lists, hang and die in any order: nothing is left, and no reader sees half an update."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outrider.catalog.catalog import Catalog, CatalogOptions
from outrider.client.target import ClientOptions, StdioTarget
from outrider.errors import ConfigError, OutriderError

SERVERS = Path(__file__).resolve().parents[2] / "src" / "outrider" / "samples" / "servers.py"
KINDS = ("modern", "legacy", "exits", "silent", "broken")
NAMES = ("one", "two", "three")
OPTIONS = CatalogOptions(
    client=ClientOptions(probe_timeout_s=0.2, start_timeout_s=10.0, shutdown_timeout_s=0.5),
    memory="memory:",
    idle_s=0.05,
)
DEADLINE_S = 90.0

STEP = st.one_of(
    st.tuples(st.just("add"), st.sampled_from(NAMES), st.sampled_from(KINDS)),
    st.tuples(st.just("remove"), st.sampled_from(NAMES), st.just("")),
    st.tuples(st.just("reconfigure"), st.sampled_from(NAMES), st.sampled_from(KINDS)),
    st.tuples(st.just("refresh"), st.sampled_from(NAMES), st.just("")),
    st.tuples(st.just("call"), st.sampled_from(NAMES), st.just("")),
    st.tuples(st.just("ready"), st.just(""), st.just("")),
    st.tuples(st.just("turn"), st.just(""), st.just("")),
)


def target(kind: str) -> StdioTarget:
    return StdioTarget((sys.executable, "-I", "-S", str(SERVERS), kind))


async def take(catalog: Catalog, step: tuple[str, str, str]) -> None:
    """One step; only errors of the documented kinds may come out of it."""
    action, name, kind = step
    try:
        match action:
            case "add":
                await catalog.add(name, target(kind))
            case "remove":
                await catalog.remove(name)
            case "reconfigure":
                await catalog.reconfigure(name, target(kind))
            case "refresh":
                # In the background, so that later steps meet it half-way.
                catalog._members[name].refresh_soon(force=True) if name in catalog._members else None
            case "call":
                tools = [tool for tool in catalog.tools if tool.id.server == name]
                if tools:
                    await catalog.call(tools[0].id, {"title": "x", "text": "y", "city": "z"}, timeout_s=20.0)
            case "ready":
                await catalog.ready(0.3)
            case _:
                await asyncio.sleep(0)
    except (ConfigError, OutriderError):
        pass


def assert_consistent(catalog: Catalog) -> None:
    """A snapshot is whole: every tool belongs to a server of the same snapshot, in order."""
    snapshot = catalog.snapshot
    shown = [str(tool.id) for tool in snapshot.tools]
    assert shown == sorted(shown)
    assert {tool.id.server for tool in snapshot.tools} <= set(snapshot.servers)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEP, min_size=3, max_size=14))
def test_chaos_leaves_nothing_behind(steps: list[tuple[str, str, str]]) -> None:
    """Ours: no process, no task, no descriptor; the fixture that looks for processes watches too."""

    async def run() -> None:
        async with asyncio.timeout(DEADLINE_S):
            async with Catalog({"one": target("modern")}, options=OPTIONS) as catalog:
                for step in steps:
                    await take(catalog, step)
                    assert_consistent(catalog)
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, left

    before = descriptors()
    asyncio.run(run())
    assert descriptors() <= before
