"""Many servers at once, and what bad ones cost the good ones: `python benchmarks/catalog.py [--json]`.

Opens a catalog of real stdio processes and of HTTP servers (one process that serves many ports, `peers/raw_server.py`), first alone,
then beside four bad ones: one that never answers, one that exits, one that lists 20,000 tools, one that lies. Measured is the time
until all good ones are ready. Then it is opened a second time, in a process of its own, with everything remembered; and the memory
that an idle remembered server takes there is the growth in resident memory between a catalog of one and a catalog of all HTTP servers.

The stdio servers are built with the official SDK where `./dev setup --peers` has installed it, otherwise they are the bundled samples.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from client import compile_ours
from outrider.catalog.catalog import Catalog, CatalogOptions
from outrider.catalog.snapshot import ServerState
from outrider.client.target import ClientOptions

ROOT: Final = Path(__file__).resolve().parent.parent
PEERS: Final = ROOT / "benchmarks" / "peers"
SDK: Final = ROOT / ".dev" / "python-modern" / "bin" / "python"
SAMPLES: Final = ROOT / "src" / "outrider" / "samples" / "servers.py"
BAD: Final = ("silent", "exits", "huge", "lies")
DEADLINE_S: Final = 300.0
IS_GOOD: Final = (ServerState.READY, ServerState.REMEMBERED)


def stdio_servers(count: int) -> dict[str, Any]:
    """So many commands, each another server by its environment."""
    command = (
        [str(SDK), str(ROOT / "tests" / "peers" / "servers" / "python_sdk2_high.py"), "stdio"]
        if SDK.exists()
        else [sys.executable, "-I", "-S", str(SAMPLES), "modern"]
    )
    return {
        f"stdio-{number:03}": {"command": command[0], "args": command[1:], "env": {"NUMBER": str(number)}}
        for number in range(count)
    }


def bad_servers() -> dict[str, Any]:
    return {f"bad-{habit}": [sys.executable, "-I", "-S", str(PEERS / "bad_server.py"), habit] for habit in BAD}


@contextmanager
def http_servers(count: int) -> Iterator[dict[str, Any]]:
    """So many URLs, served until the block ends."""
    if not count:
        yield {}
        return
    process = subprocess.Popen(
        [sys.executable, str(PEERS / "raw_server.py"), str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        ports = json.loads(process.stdout.readline())
        yield {f"http-{number:03}": f"http://127.0.0.1:{port}/mcp" for number, port in enumerate(ports)}
    finally:
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def resident_kb() -> int:
    """This process's memory now (Linux), or its peak elsewhere."""
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


async def until_ready(servers: dict[str, Any], memory: Path, good: set[str]) -> dict[str, Any]:
    """Open a catalog; the times until the good ones are ready, and what the bad ones were by then."""
    options = CatalogOptions(client=ClientOptions(), memory=memory, max_opening=len(servers))
    began = time.perf_counter()
    async with asyncio.timeout(DEADLINE_S), Catalog(servers, options=options) as catalog:
        opened_s = time.perf_counter() - began
        changed = asyncio.Event()
        catalog.watch(lambda _: changed.set())
        while not all(catalog.servers[key].state in IS_GOOD for key in good):
            changed.clear()
            await changed.wait()
        ready_s = time.perf_counter() - began
        if good != set(servers):
            # The flood may still be on its way when the others are ready.
            while catalog.servers["bad-huge"].is_pending or catalog.servers["bad-exits"].is_pending:
                changed.clear()
                await changed.wait()
        views = catalog.servers
        return {
            "openedSeconds": opened_s,
            "readySeconds": ready_s,
            "tools": sum(len(view.tools) for key, view in views.items() if key in good),
            "bad": {key: [view.state.value, len(view.tools)] for key, view in views.items() if key not in good},
            "idleKilobytes": resident_kb(),
        }


def in_new_process(servers: dict[str, Any], memory: Path, good: set[str]) -> dict[str, Any]:
    """The same in a process of its own, so that nothing but what is remembered is known."""
    job = json.dumps({"servers": servers, "memory": str(memory), "good": sorted(good)})
    done = subprocess.run([sys.executable, __file__, "--job"], input=job, capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def run_job() -> None:
    job = json.load(sys.stdin)
    print(json.dumps(asyncio.run(until_ready(job["servers"], Path(job["memory"]), set(job["good"])))))


def measure(stdio: int, http: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, http_servers(http) as remote:
        good = {**stdio_servers(stdio), **remote}
        alone = in_new_process(good, Path(folder, "alone.db"), set(good))
        second = in_new_process(good, Path(folder, "alone.db"), set(good))
        result = {"alone": alone, "secondStart": second}
        if http > 1:
            one = dict([next(iter(remote.items()))])
            least = in_new_process(one, Path(folder, "alone.db"), set(one))
            most = in_new_process(remote, Path(folder, "alone.db"), set(remote))
            grown = most["idleKilobytes"] - least["idleKilobytes"]
            result["kilobytesPerIdleServer"] = grown / (http - 1)
        result["besideBadOnes"] = in_new_process({**good, **bad_servers()}, Path(folder, "beside.db"), set(good))
    return {
        "servers": {"stdio": stdio, "http": http, "bad": list(BAD), "builtWithTheOfficialSdk": SDK.exists()},
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()},
        **result,
    }


def show(result: dict[str, Any]) -> None:
    servers = result["servers"]
    kind = "built with the official SDK" if servers["builtWithTheOfficialSdk"] else "samples"
    print(f"{servers['stdio']} stdio servers ({kind}) and {servers['http']} HTTP servers at once\n")
    print("| what | opened, s | all good ones ready, s | tools |")
    print("| --- | ---: | ---: | ---: |")
    for name, key in (
        ("first start, alone", "alone"),
        ("first start, beside four bad ones", "besideBadOnes"),
        ("second start, all remembered", "secondStart"),
    ):
        row = result[key]
        print(f"| {name} | {row['openedSeconds']:.3f} | {row['readySeconds']:.3f} | {row['tools']:,} |")
    ratio = result["besideBadOnes"]["readySeconds"] / result["alone"]["readySeconds"]
    print(f"\nbad ones cost the others a factor of {ratio:.2f} (they use the same processors)")
    for key, (state, tools) in result["besideBadOnes"]["bad"].items():
        print(f"  {key}: {state}, {tools:,} tools")
    if "kilobytesPerIdleServer" in result:
        print(f"memory per idle remembered server: {result['kilobytesPerIdleServer']:.0f} kB (target: below 200)")


def main() -> None:
    parser = argparse.ArgumentParser(description="Many servers at once, good and bad.")
    parser.add_argument("--stdio", type=int, default=50, help="how many stdio servers")
    parser.add_argument("--http", type=int, default=500, help="how many HTTP servers")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--job", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        run_job()
        return
    compile_ours()
    result = measure(arguments.stdio, arguments.http)
    if arguments.json:
        print(json.dumps(result, indent=2))
    else:
        show(result)


if __name__ == "__main__":
    main()
