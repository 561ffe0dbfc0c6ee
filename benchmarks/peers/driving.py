"""How a benchmark drives a client in a process of its own: one JSON request per line in, one JSON answer per line out.

Standard library only, because it runs in the environment of each client. Every request runs on an event loop of its own, so that no idle
connection survives from one measurement to the next.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

__all__ = ["Stopwatch", "drive", "peak_rss_mb", "timed_calls"]


def drive(measures: Mapping[str, Callable[..., Awaitable[dict[str, Any]]]]) -> None:
    """Serves requests such as `{"do": "calls", "url": …}` until the input ends; `do` names the measure, the rest are its arguments."""
    print(json.dumps({"ready": sorted(measures)}), flush=True)
    for line in sys.stdin:
        arguments = json.loads(line)
        measure = measures[arguments.pop("do")]
        gc.collect()
        print(json.dumps(asyncio.run(measure(**arguments))), flush=True)


class Stopwatch:
    """Measures from its creation: wall time, and this process's processor time, which other people's processes disturb far less."""

    def __init__(self) -> None:
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def read(self) -> dict[str, float]:
        """Both times so far, in seconds."""
        wall, cpu = time.perf_counter(), time.process_time()
        return {"seconds": wall - self._wall, "cpu_seconds": cpu - self._cpu}


async def timed_calls(call: Callable[[], Awaitable[object]], *, count: int, at_once: int) -> dict[str, Any]:
    """Makes about `count` calls from `at_once` tasks, after two calls of each task that do not count."""

    async def run(times: int) -> None:
        async def repeat() -> None:
            for _ in range(times):
                await call()

        await asyncio.gather(*(repeat() for _ in range(at_once)))

    await run(2)
    each = max(1, count // at_once)
    watch = Stopwatch()
    await run(each)
    return {"calls": each * at_once, **watch.read()}


def peak_rss_mb() -> float:
    """The most memory this process ever held, in MB.

    Read from the process's own memory map where the system tells: `getrusage` also counts what the parent held when it forked.
    """
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) / 1024
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)
