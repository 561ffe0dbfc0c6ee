"""What Outrider's client costs, beside the official SDK's client and a bare aiohttp loop, in one run: `python benchmarks/client.py`.

All clients talk to one server process, `peers/raw_server.py`. Each runs in a process of its own, and they take turns round by round, so
that whatever else the machine does meets all of them. A ratio is taken within each round; the table shows medians with the extremes.
Processor seconds stand beside wall time, because on a machine that others use too only they can be compared from run to run.

Needs the peers that `./dev setup --peers` installs; without them the rows about the SDK and FastMCP are left out, and it says so.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
PROGRAMS: Final = ROOT / "benchmarks" / "peers"
PEERS_PYTHON: Final = ROOT / ".dev" / "python-modern" / "bin" / "python"
STOP_TIMEOUT_S: Final = 10.0
PATIENCE_SERVERS: Final = 200
"""With more servers than this the SDK is measured once: it takes many seconds, and nobody doubts the outcome."""

OURS, SDK, BARE, FASTMCP = "Outrider", "official SDK", "bare aiohttp", "FastMCP"
CLIENTS: Final = {
    OURS: (Path(sys.executable), "outrider_client.py"),
    BARE: (Path(sys.executable), "aiohttp_client.py"),
    SDK: (PEERS_PYTHON, "sdk_client.py"),
}
# What the packages are called in Python and on PyPI. Ours is installed from this directory.
PACKAGES: Final = {OURS: ("outrider", str(ROOT)), SDK: ("mcp", "mcp"), FASTMCP: ("fastmcp", "fastmcp")}
# The names are loaded when they are used first, so importing the package alone is only half the truth.
IN_FULL: Final = "from outrider import connect, discover; import outrider.client.http"


@dataclass
class Measure:
    """One row of the result.

    Attributes:
        name: What is measured.
        unit: Of the values, such as "ms".
        more_is_better: Whether a ratio above 1 in our favour is ours divided by theirs.
        target: The budget, in words.
        values: Contender to its values, one per round.
    """

    name: str
    unit: str
    more_is_better: bool = False
    target: str = ""
    values: dict[str, list[float]] = field(default_factory=dict)

    def add(self, contender: str, value: float) -> None:
        self.values.setdefault(contender, []).append(value)

    def ratios(self, contender: str) -> list[float]:
        """How many times better ours is than a contender, round by round; below 1 where ours is worse."""
        pairs = zip(self.values.get(OURS, []), self.values.get(contender, []), strict=False)
        return [ours / theirs if self.more_is_better else theirs / ours for ours, theirs in pairs if ours and theirs]

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "unit": self.unit,
            "moreIsBetter": self.more_is_better,
            "target": self.target,
            "values": self.values,
            "medians": {contender: statistics.median(values) for contender, values in self.values.items()},
            "ratios": {
                contender: {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}
                for contender in self.values
                if contender != OURS and (ratios := self.ratios(contender))
            },
        }


class Run:
    """All measures of one run, in the order in which they came up."""

    def __init__(self) -> None:
        self.measures: dict[str, Measure] = {}

    def add(self, contender: str, value: float, name: str, unit: str, *, more: bool = False, target: str = "") -> None:
        self.measures.setdefault(name, Measure(name, unit, more, target)).add(contender, value)


class Program:
    """A process that answers a line of JSON with a line of JSON."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._process.args!r} ended; its error output is above")
        return json.loads(line)

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = self.read()
        return answer


@contextmanager
def running(python: Path, program: str, *arguments: str) -> Iterator[Program]:
    """Runs one of the programs beside this one until the block ends; its input is closed then, and it ends."""
    with subprocess.Popen(
        [str(python), str(PROGRAMS / program), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Program(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def servers(count: int) -> Iterator[list[str]]:
    """The URLs of `count` servers, all in one process."""
    with running(Path(sys.executable), "raw_server.py", str(count)) as server:
        yield [f"http://127.0.0.1:{port}/mcp" for port in server.read()]


def in_turn(contenders: Sequence[str], round_number: int) -> list[str]:
    """The contenders, beginning with another one each round."""
    shift = round_number % len(contenders)
    return [*contenders[shift:], *contenders[:shift]]


def measure_calls(run: Run, contenders: Sequence[str], rounds: int, count: int) -> None:
    """How many `server/discover` calls a client makes when 32 tasks share it, and how soon a new client has its first answer."""
    with ExitStack() as stack:
        (url,) = stack.enter_context(servers(1))
        for number in range(rounds):
            for name in in_turn(contenders, number):
                with running(*CLIENTS[name]) as client:
                    client.read()
                    cold = client.ask(do="first", url=url)
                    warm = [client.ask(do="first", url=url) for _ in range(10)]
                    # As long a run for each: the SDK would need ten times the time for the same number.
                    calls = client.ask(do="calls", url=url, count=count // 8 if name == SDK else count, at_once=32)
                say(f"round {number + 1}, calls: {name}: {calls['calls'] / calls['seconds']:,.0f}/s")
                add = run.add
                add(
                    name,
                    calls["calls"] / calls["seconds"],
                    "discover calls, 32 at once",
                    "per second",
                    more=True,
                    target="at least 7 times the SDK",
                )
                add(
                    name,
                    calls["calls"] / calls["cpu_seconds"],
                    "discover calls, 32 at once, per processor second",
                    "per CPU second",
                    more=True,
                )
                for label, times, target in (
                    ("first client in a process, first answer", [cold], ""),
                    ("another client, first answer", warm, "at most 2 ms"),
                ):
                    add(name, 1e3 * statistics.median(t["seconds"] for t in times), label, "ms", target=target)
                    cpu_ms = 1e3 * statistics.median(t["cpu_seconds"] for t in times)
                    add(name, cpu_ms, f"{label}, processor time", "CPU ms")


def measure_many(run: Run, contenders: Sequence[str], rounds: int, count: int, budgets: Mapping[str, str]) -> None:
    """How long a new process takes to discover and list many servers at once, and how much memory it ever holds."""
    what = f"{count} servers of 20 tools"
    with servers(count) as urls:
        for number in range(rounds):
            for name in in_turn(contenders, number):
                if name == SDK and count > PATIENCE_SERVERS and number:
                    continue
                with running(*CLIENTS[name]) as client:
                    client.read()
                    # One server first, so that nobody's sweep pays for code that is loaded when first used.
                    client.ask(do="many", urls=urls[:1])
                    swept = client.ask(do="many", urls=urls)
                if swept["tools"] != 20 * count:
                    raise SystemExit(f"{name} found {swept['tools']} tools on {what}")
                say(f"round {number + 1}, {what}: {name}: {swept['seconds']:.2f} s, {swept['peak_rss_mb']:.0f} MB")
                run.add(name, 1e3 * swept["seconds"], what, "ms", target=budgets.get("time", ""))
                run.add(name, 1e3 * swept["cpu_seconds"], f"{what}, processor time", "CPU ms")
                run.add(name, swept["peak_rss_mb"], f"{what}, peak memory", "MB", target=budgets.get("memory", ""))


def measure_imports(run: Run, rounds: int) -> None:
    """What importing costs before anything is done: processor time and modules."""
    statements = {name: (python_of(name), f"import {package}") for name, (package, _) in PACKAGES.items()}
    for number in range(rounds + 1):
        for name, (python, statement) in statements.items():
            if not python.exists():
                continue
            cpu_ms, modules = import_cost(python, statement)
            if number:  # The first round only fills the disk cache.
                run.add(name, cpu_ms, "import", "CPU ms", target="at most 120 ms")
                run.add(name, modules, "modules loaded by the import", "modules")
        cpu_ms, modules = import_cost(Path(sys.executable), IN_FULL)
        if number:
            run.add(OURS, cpu_ms, "import of the whole client and its HTTP stack", "CPU ms")
            run.add(OURS, modules, "modules of the whole client and its HTTP stack", "modules")
            run.add(OURS, command_cost("discover", "--help"), "`outrider discover --help`", "CPU ms")


def import_cost(python: Path, statement: str) -> tuple[float, int]:
    """Processor time in ms, and how many modules came in, for one statement in a new interpreter."""
    program = (
        "import sys, time\nbefore, started = len(sys.modules), time.process_time()\n"
        f"{statement}\nprint(1e3 * (time.process_time() - started), len(sys.modules) - before)"
    )
    done = subprocess.run([str(python), "-c", program], check=True, capture_output=True, text=True)
    cpu_ms, modules = done.stdout.split()
    return float(cpu_ms), int(modules)


def command_cost(*arguments: str) -> float:
    """Processor time in ms of one whole run of the command, interpreter included."""
    before = os.times()
    program = "from outrider.cli import main; main()"
    subprocess.run([sys.executable, "-c", program, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return 1e3 * (after.children_user + after.children_system - before.children_user - before.children_system)


def measure_sizes(run: Run) -> None:
    """What an installation in a new environment takes, and how many packages it brings."""
    for name, (_, requirement) in PACKAGES.items():
        say(f"installing {requirement} into a new environment")
        with tempfile.TemporaryDirectory(prefix="outrider-size-") as place:
            venv.create(place, with_pip=True, symlinks=True)
            python = Path(place) / "bin" / "python"
            library = next((Path(place) / "lib").glob("python*/site-packages"))
            pip_size, pip_packages = size_mb(library), distributions(library)
            subprocess.run(
                [str(python), "-m", "pip", "install", "--quiet", "--no-compile", requirement], check=True, stdout=2
            )
            run.add(name, size_mb(library) - pip_size, "installed size, without bytecode", "MB", target="at most 60 MB")
            run.add(name, distributions(library) - pip_packages, "packages installed", "packages", target="at most 28")
            shutil.rmtree(place, ignore_errors=True)


def size_mb(directory: Path) -> float:
    """The bytes in a directory's files, in MB."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) / 1e6


def distributions(library: Path) -> int:
    """How many packages are installed in a site-packages directory."""
    return len(list(library.glob("*.dist-info")))


def compile_ours() -> None:
    """Compile our own modules, as an installer does with the peers'.

    Where the environment forbids Python to keep bytecode, every start would else compile ours anew, and cost half as much again.
    """
    compileall.compile_dir(ROOT / "src", quiet=1)


def python_of(name: str) -> Path:
    """The interpreter of the environment that a package is installed in."""
    return Path(sys.executable) if name == OURS else PEERS_PYTHON


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    return {
        "cpu": processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "loadAverage": [round(load, 2) for load in os.getloadavg()],
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def processor() -> str:
    """The processor's own name, where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """The versions of what was measured."""
    program = "import importlib.metadata as m, sys; print(*(f'{n} {m.version(n)}' for n in sys.argv[1:]), sep='\\n')"
    found = {}
    for python, names in ((Path(sys.executable), ("outrider-mcp", "aiohttp")), (PEERS_PYTHON, ("mcp", "fastmcp"))):
        if python.exists():
            done = subprocess.run([str(python), "-c", program, *names], check=True, capture_output=True, text=True)
            found.update(dict(line.split() for line in done.stdout.splitlines()))
    return found


def show(value: float) -> str:
    """A number with as many digits as it deserves."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def spread(values: Sequence[float]) -> str:
    """A median with the extremes, or the value alone where it never changed."""
    shown = show(statistics.median(values))
    return shown if min(values) == max(values) else f"{shown} ({show(min(values))} to {show(max(values))})"


def table(run: Run) -> str:
    """The result as a Markdown table."""
    columns = [
        name for name in (OURS, SDK, BARE, FASTMCP) if any(name in measure.values for measure in run.measures.values())
    ]
    compared = [name for name in columns if name in (SDK, BARE)]
    lines = [
        "| "
        + " | ".join(["what", "unit", *columns, *(f"times better than {name}" for name in compared), "budget"])
        + " |",
        "| --- | --- |" + " ---: |" * (len(columns) + len(compared)) + " --- |",
    ]
    for measure in run.measures.values():
        cells = [spread(measure.values[name]) if name in measure.values else "" for name in columns]
        ratios = [spread(ratios) if (ratios := measure.ratios(name)) else "" for name in compared]
        lines.append("| " + " | ".join([measure.name, measure.unit, *cells, *ratios, measure.target]) + " |")
    return "\n".join(lines)


def say(text: str) -> None:
    """Tells the person what takes time."""
    print(text, file=sys.stderr, flush=True)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Outrider's client beside its peers.")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured (default 5)")
    parser.add_argument("--calls", type=int, default=8_000, help="calls per round of the calls measure (default 8,000)")
    parser.add_argument(
        "--servers", default="100,500", help="sizes of the many-servers measure, with commas (default 100,500)"
    )
    parser.add_argument("--only", choices=("calls", "many", "imports"), help="one part instead of all three")
    parser.add_argument("--size", action="store_true", help="also install each into a new environment; needs a network")
    parser.add_argument("--json", action="store_true", dest="as_json", help="one JSON object on stdout, no table")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = parse_arguments(arguments)
    contenders = [name for name, (python, _) in CLIENTS.items() if python.exists()]
    if SDK not in contenders:
        say("The official SDK is not installed, so it is left out: run ./dev setup --peers")
    compile_ours()
    run, before = Run(), machine()
    if chosen.only in (None, "calls"):
        measure_calls(run, contenders, chosen.rounds, chosen.calls)
    for count in map(int, chosen.servers.split(",")) if chosen.only in (None, "many") else ():
        budgets = {
            100: {"time": "20 times faster than the SDK, within 3 times of bare aiohttp", "memory": "under 80 MB"},
            500: {"time": "at most 700 ms", "memory": "at most 80 MB"},
        }.get(count, {})
        measure_many(run, contenders, chosen.rounds, count, budgets)
    if chosen.only in (None, "imports"):
        measure_imports(run, chosen.rounds)
    if chosen.size:
        measure_sizes(run)
    after = machine()
    if chosen.as_json:
        result = {
            "schema": "outrider.benchmark/1",
            "machine": before,
            "loadAverageAfter": after["loadAverage"],
            "versions": versions(),
            "settings": {"rounds": chosen.rounds, "calls": chosen.calls, "servers": chosen.servers},
            "measures": [measure.as_json() for measure in run.measures.values()],
        }
        print(json.dumps(result, indent=2))
        return
    print(f"{before['cpu']}, {before['cores']} cores, Python {before['python']}, {before['system']}, {before['time']}")
    print(f"Load average {before['loadAverage'][0]} before, {after['loadAverage'][0]} after")
    print(", ".join(f"{name} {version}" for name, version in versions().items()))
    print()
    print(table(run))


if __name__ == "__main__":
    main()
