"""A stdio server with one bad habit: `python bad_server.py silent|exits|huge|lies`. Standard library only."""

from __future__ import annotations

import json
import sys
from typing import Any

MANY = 20_000
VERSION = "2026-07-28"
COMMON: dict[str, Any] = {"resultType": "complete", "ttlMs": 60_000, "cacheScope": "private"}


def tools(habit: str) -> list[Any]:
    if habit == "huge":
        return [
            {"name": f"tool_{number:05}", "description": "One of far too many.", "inputSchema": {"type": "object"}}
            for number in range(MANY)
        ]
    # What a liar lists has no names, no schemas, and the same name twice.
    return [
        {"name": 7},
        {"inputSchema": None, "name": "x"},
        "no tool at all",
        *[{"name": "twice", "inputSchema": {"type": "object"}}] * 2,
    ]


def answer(habit: str, request: dict[str, Any]) -> dict[str, Any]:
    match request["method"]:
        case "server/discover":
            # The liar announces three lists and has one.
            capabilities = {"tools": {}, "prompts": {}, "resources": {}} if habit == "lies" else {"tools": {}}
            found = {"supportedVersions": [VERSION], "capabilities": capabilities, **COMMON}
        case "tools/list":
            # Nor is there an end to its pages.
            found = {"tools": tools(habit), **COMMON, **({"nextCursor": "again"} if habit == "lies" else {})}
        case _:
            error = {"code": -32601, "message": "Method not found"}
            return {"jsonrpc": "2.0", "id": request["id"], "error": error}
    return {"jsonrpc": "2.0", "id": request["id"], "result": found}


def main(habit: str) -> None:
    if habit == "exits":
        sys.exit("no configuration found")
    for line in sys.stdin:
        request = json.loads(line)
        if habit != "silent" and "id" in request:
            print(json.dumps(answer(habit, request)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
