"""What Outrider's server does per second, beside its peers and a bare ASGI app, in one run: `python benchmarks/server.py`.

Over HTTP every Python server runs on the same uvicorn with uvloop and httptools; one load generator in a process of its own keeps 32
requests in flight. Over stdio this program is the client. The servers take turns round by round, so that whatever else the machine does
meets all of them; a ratio is taken within each round, and the table shows medians with the extremes. Processor time per request stands
beside the rates, because on a machine that others use too only it can be compared from run to run.

Needs the peers that `./dev setup --peers` installs; those that are not there are left out, and it says so.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import io
import json
import os
import pstats
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from client import (
    OURS,
    PEERS_PYTHON,
    PROGRAMS,
    ROOT,
    STOP_TIMEOUT_S,
    Run,
    compile_ours,
    in_turn,
    machine,
    running,
    say,
    spread,
    versions,
)

SDK, FASTMCP, TYPESCRIPT, BARE = "official SDK", "FastMCP", "TypeScript SDK", "bare ASGI"
NODE_DIRECTORY: Final = ROOT / ".dev" / "node"
NODE: Final = NODE_DIRECTORY / "bin" / "node"
OUR_PYTHON: Final = Path(sys.executable)
SERVERS: Final = {
    OURS: [str(OUR_PYTHON), str(PROGRAMS / "outrider_server.py")],
    BARE: [str(OUR_PYTHON), str(PROGRAMS / "bare_server.py")],
    SDK: [str(PEERS_PYTHON), str(PROGRAMS / "sdk_server.py")],
    FASTMCP: [str(PEERS_PYTHON), str(PROGRAMS / "fastmcp_server.py")],
    TYPESCRIPT: [str(NODE), str(PROGRAMS / "typescript_server.mjs"), str(NODE_DIRECTORY)],
}
CONNECTIONS: Final = 32
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
BUDGETS: Final = {
    "HTTP server/discover": "7 times the SDK (4 on a busy machine), 85 % of a bare ASGI app",
    "HTTP tools/list of 50 tools": "25 times the SDK",
    "HTTP tools/call": "7 times the SDK",
    "stdio start to discover answer": "at most 150 ms",
    "stdio discover, pipelined": "12 times the SDK",
}
META: Final = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def discover_line(number: int) -> bytes:
    """A `server/discover` request as a line."""
    return (
        json.dumps({"jsonrpc": "2.0", "id": number, "method": "server/discover", "params": {"_meta": META}}).encode()
        + b"\n"
    )


@contextmanager
def same_stack() -> Iterator[dict[str, str]]:
    """An environment in which the peers' interpreter finds the same uvloop and httptools as ours."""
    with tempfile.TemporaryDirectory(prefix="outrider-stack-") as place:
        import httptools
        import uvloop

        for package in (httptools, uvloop):
            directory = Path(package.__file__).parent
            (Path(place) / directory.name).symlink_to(directory)
        yield {**os.environ, "PYTHONPATH": place}


@contextmanager
def serving(command: Sequence[str], tools: int, environment: dict[str, str]) -> Iterator[tuple[str, int]]:
    """A server over HTTP: its URL and its process."""
    with subprocess.Popen(
        [*command, str(tools), "http"], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            if not url:
                raise SystemExit(f"{command!r} ended; its error output is above")
            yield url, process.pid
        finally:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()


def cpu_seconds(pid: int) -> float:
    """What a process has used of the processor so far; 0 where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def measure_http(
    run: Run, contenders: Sequence[str], rounds: int, seconds: float, tools: int, methods: Sequence[str]
) -> None:
    """Rates and processor time of several methods, for servers with so many tools."""
    with ExitStack() as stack:
        environment = stack.enter_context(same_stack())
        load = stack.enter_context(running(OUR_PYTHON, "load.py"))
        load.read()
        servers = {name: stack.enter_context(serving(SERVERS[name], tools, environment)) for name in contenders}
        for number in range(rounds):
            for method in methods:
                what = f"HTTP {method}" + (f" of {tools} tool{'s' * (tools > 1)}" if method == "tools/list" else "")
                for name in in_turn(contenders, number):
                    url, pid = servers[name]
                    wanted = {
                        "do": "load",
                        "url": url,
                        "method": method,
                        "connections": CONNECTIONS,
                        "seconds": seconds,
                    }
                    before = cpu_seconds(pid)
                    done = load.ask(**wanted)
                    used = cpu_seconds(pid) - before
                    rate = done["answers"] / done["seconds"]
                    say(f"round {number + 1}, {what}: {name}: {rate:,.0f}/s")
                    run.add(name, rate, what, "per second", more=True, target=BUDGETS.get(what, ""))
                    if used:
                        # The generator's warm-up is in both, so it cancels out where ratios are taken.
                        run.add(
                            name, 1e6 * used / max(1, done["answers"]), f"{what}, processor time", "CPU us per request"
                        )


@contextmanager
def piped(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A server over stdio, with fifty tools."""
    with subprocess.Popen([*command, "50", "stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()


def measure_stdio(run: Run, contenders: Sequence[str], rounds: int, seconds: float) -> None:
    """Start to first answer, one request after the other, and a thousand at once."""
    for number in range(rounds):
        for name in in_turn(contenders, number):
            started = time.perf_counter()
            with piped(SERVERS[name]) as process:
                assert process.stdin is not None
                assert process.stdout is not None
                send, receive = process.stdin, process.stdout
                send.write(discover_line(0))
                send.flush()
                if b'"supportedVersions"' not in receive.readline():
                    raise SystemExit(f"{name} did not answer server/discover over stdio")
                first = time.perf_counter() - started
                add = run.add
                add(
                    name,
                    1e3 * first,
                    "stdio start to discover answer",
                    "ms",
                    target=BUDGETS["stdio start to discover answer"],
                )
                if used := cpu_seconds(process.pid):
                    add(name, 1e3 * used, "stdio start to discover answer, processor time", "CPU ms")
                count, started = 0, time.perf_counter()
                while time.perf_counter() - started < seconds:
                    send.write(discover_line(count))
                    send.flush()
                    receive.readline()
                    count += 1
                sequential = count / (time.perf_counter() - started)
                add(name, sequential, "stdio discover, one after the other", "per second", more=True)
                burst = b"".join(discover_line(n) for n in range(1000))
                count, before, started = 0, cpu_seconds(process.pid), time.perf_counter()
                while time.perf_counter() - started < seconds:
                    send.write(burst)
                    send.flush()
                    for _ in range(1000):
                        receive.readline()
                    count += 1000
                pipelined = count / (time.perf_counter() - started)
                what = "stdio discover, pipelined"
                add(name, pipelined, what, "per second", more=True, target=BUDGETS[what])
                if used := cpu_seconds(process.pid) - before:
                    add(name, 1e6 * used / count, f"{what}, processor time", "CPU us per request")
            say(f"round {number + 1}, stdio: {name}: {1e3 * first:.0f} ms, {sequential:,.0f}/s, {pipelined:,.0f}/s")


def measure_app(run: Run, rounds: int) -> None:
    """What our ASGI app takes by itself, called without any HTTP server: the rest of a request's time is the HTTP server's."""
    sys.path.insert(0, str(PROGRAMS))
    from load import request
    from serving import many_tools

    from outrider.server import Server

    server = Server("bench", version="1.0", instructions="Adds numbers.")

    @server.tool
    async def add(a: int, b: int) -> int:
        """Adds two numbers."""
        return a + b

    for tool in many_tools(49):
        server.tool(tool)
    app = server.asgi("/mcp")

    async def spin(method: str, count: int) -> float:
        head, _, body = request("http://127.0.0.1:1/mcp", method).partition(b"\r\n\r\n")
        lines = [line.split(b": ", 1) for line in head.split(b"\r\n")[1:]]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/mcp",
            "headers": [(name.lower(), value) for name, value in lines],
            "server": ("127.0.0.1", 1),
        }
        message = {"type": "http.request", "body": body, "more_body": False}

        async def receive() -> Any:
            return message

        async def send(message: Any) -> None:
            pass

        started = time.process_time()
        for number in range(count):
            await app(scope, receive, send)
            if number % 100 == 0:
                # Callbacks that were cancelled leave the loop's queue.
                await asyncio.sleep(0)
        return 1e6 * (time.process_time() - started) / count

    for _ in range(rounds):
        for method in ("server/discover", "tools/list", "tools/call"):
            asyncio.run(spin(method, 500))
            run.add(OURS, asyncio.run(spin(method, 5000)), f"{method} in the app alone", "CPU us per request")
    profile = cProfile.Profile()
    profile.enable()
    asyncio.run(spin("tools/call", 5000))
    profile.disable()
    text = io.StringIO()
    pstats.Stats(profile, stream=text).strip_dirs().sort_stats("tottime").print_stats(15)
    say("Where a call's time goes inside the app:\n" + text.getvalue().partition("List reduced")[2])


def table(run: Run, columns: Sequence[str]) -> str:
    """The result as a Markdown table."""
    compared = [name for name in columns if name != OURS]
    lines = [
        "| " + " | ".join(["what", "unit", *columns, *(f"× {name}" for name in compared), "budget"]) + " |",
        "| --- | --- |" + " ---: |" * (len(columns) + len(compared)) + " --- |",
    ]
    for measure in run.measures.values():
        cells = [spread(measure.values[name]) if name in measure.values else "" for name in columns]
        ratios = [spread(ratios) if (ratios := measure.ratios(name)) else "" for name in compared]
        lines.append("| " + " | ".join([measure.name, measure.unit, *cells, *ratios, measure.target]) + " |")
    return "\n".join(lines)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Outrider's server beside its peers.")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured (default 5)")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long one measurement takes (default 1)")
    parser.add_argument("--only", choices=("http", "stdio", "app"), help="one part instead of all three")
    parser.add_argument("--json", action="store_true", dest="as_json", help="one JSON object on stdout, no table")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = parse_arguments(arguments)
    contenders = [name for name, command in SERVERS.items() if Path(command[0]).exists()]
    for missing in [name for name in SERVERS if name not in contenders]:
        say(f"The {missing} is not installed, so it is left out: run ./dev setup --peers")
    compile_ours()
    run, before = Run(), machine()
    if chosen.only in (None, "http"):
        everything = ("server/discover", "tools/list", "tools/call")
        measure_http(run, contenders, chosen.rounds, chosen.seconds, 50, everything)
        for tools in (1, 500):
            measure_http(run, contenders, chosen.rounds, chosen.seconds, tools, ("tools/list",))
    if chosen.only in (None, "app"):
        measure_app(run, chosen.rounds)
    if chosen.only in (None, "stdio"):
        piping = [name for name in contenders if name != BARE]
        measure_stdio(run, piping, chosen.rounds, chosen.seconds)
    after = machine()
    if chosen.as_json:
        result: dict[str, Any] = {
            "schema": "outrider.benchmark/1",
            "machine": before,
            "loadAverageAfter": after["loadAverage"],
            "versions": versions(),
            "settings": {"rounds": chosen.rounds, "seconds": chosen.seconds, "connections": CONNECTIONS},
            "measures": [measure.as_json() for measure in run.measures.values()],
        }
        print(json.dumps(result, indent=2))
        return
    print(f"{before['cpu']}, {before['cores']} cores, Python {before['python']}, {before['system']}, {before['time']}")
    print(f"Load average {before['loadAverage'][0]} before, {after['loadAverage'][0]} after")
    print(", ".join(f"{name} {version}" for name, version in versions().items()))
    print()
    print(table(run, contenders))


if __name__ == "__main__":
    main()
