"""What tracing costs a request: `python benchmarks/tracing.py`.

Three states: without OpenTelemetry, with its API alone, and with an SDK that keeps spans in memory.
Each is a process of its own, and they take turns round by round, so that whatever else the machine does meets all of them. Processor
time is compared, within each round: first the state where OpenTelemetry cannot be imported, and what the others take more.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from client import Run, in_turn, machine, running, say, servers, spread, versions

NONE, API, SDK = "not installed", "API alone", "SDK, in memory"
STATES: Final = {NONE: "none", API: "api", SDK: "sdk"}
UNIT: Final = "CPU us per request"


def measure(run: Run, rounds: int, count: int) -> None:
    """Every measure in every state."""
    python = Path(sys.executable)
    with ExitStack() as stack:
        (url,) = stack.enter_context(servers(1))
        programs = {name: stack.enter_context(running(python, "traced.py", state)) for name, state in STATES.items()}
        for program in programs.values():
            program.read()
        asked = {
            "server/discover in the app": {"do": "app", "method": "server/discover", "count": count},
            "tools/list of 50 tools in the app": {"do": "app", "method": "tools/list", "count": count},
            "tools/call in the app": {"do": "app", "method": "tools/call", "count": count},
            "stdio discover, pipelined": {"do": "stdio", "method": "server/discover", "count": count},
            "client discover over HTTP": {"do": "calls", "url": url, "count": count},
        }
        for number in range(rounds):
            for what, wanted in asked.items():
                for name in in_turn(list(STATES), number):
                    done = programs[name].ask(**wanted)
                    run.add(name, 1e6 * done["cpu_seconds"] / done["calls"], what, UNIT)
            say(f"round {number + 1} of {rounds} done")


def more(run: Run, what: str, name: str) -> list[float]:
    """How many times as much a state takes as the first one, round by round."""
    values = run.measures[what].values
    return [state / none for state, none in zip(values[name], values[NONE], strict=True)]


def table(run: Run) -> str:
    """The result as a Markdown table."""
    others = [name for name in STATES if name != NONE]
    lines = [
        "| " + " | ".join(["what", "unit", *STATES, *(f"{name}, times as much" for name in others)]) + " |",
        "| --- | --- |" + " ---: |" * (len(STATES) + len(others)),
    ]
    for what, row in run.measures.items():
        cells = [spread(row.values[name]) for name in STATES]
        lines.append(
            "| " + " | ".join([what, UNIT, *cells, *(spread(more(run, what, name)) for name in others)]) + " |"
        )
    return "\n".join(lines)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure what tracing costs a request.")
    parser.add_argument("--rounds", type=int, default=7, help="how often each is measured (default 7)")
    parser.add_argument("--count", type=int, default=3000, help="requests in one measurement (default 3000)")
    parser.add_argument("--json", action="store_true", dest="as_json", help="one JSON object on stdout, no table")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = parse_arguments(arguments)
    run, before = Run(), machine()
    measure(run, chosen.rounds, chosen.count)
    after = machine()
    if chosen.as_json:
        result: dict[str, Any] = {
            "schema": "outrider.benchmark/1",
            "machine": before,
            "loadAverageAfter": after["loadAverage"],
            "versions": versions(),
            "settings": {"rounds": chosen.rounds, "count": chosen.count},
            "measures": [
                {
                    "name": what,
                    "unit": UNIT,
                    "values": row.values,
                    "timesAsMuch": {name: statistics.median(more(run, what, name)) for name in STATES},
                }
                for what, row in run.measures.items()
            ],
        }
        print(json.dumps(result, indent=2))
        return
    print(f"{before['cpu']}, {before['cores']} cores, Python {before['python']}, {before['system']}, {before['time']}")
    print(f"Load average {before['loadAverage'][0]} before, {after['loadAverage'][0]} after")
    print()
    print(table(run))


if __name__ == "__main__":
    main()
