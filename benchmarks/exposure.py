"""What showing all tools costs against showing a search for them, and whether the search finds what tasks need.

    python benchmarks/exposure.py --data DIR [--json]

DIR has a directory for each set, as for `benchmarks/search.py`. Tokens are those of the definitions in each request, as `openai` takes them
(or `anthropic`, `--vendor`), by the tokenizer at hand; the method is printed. The tools are those of real MCP servers, whole servers until
the number is reached.

A task of livemcpbench counts as reachable if all tools that its annotators used are among the hits of two calls of `search_tools`. Three
kinds of caller are compared: one that searches once with the whole task, one that writes what a model wrote in the published run (its first
two searches), and one that splits the task as the annotators did, five queries a call at most."""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from outrider.catalog.catalog import _document
from outrider.catalog.conversation import Conversation
from outrider.catalog.formats import Vendor, count_tokens, offer
from outrider.catalog.search import SearchResult, ToolIndex
from outrider.catalog.snapshot import ServerState, ServerView, Snapshot
from outrider.protocol.model import TOOLS, Tool, read_page

SIZES: Final = (10, 100, 500, 2_800)
SETS: Final = ("livemcpbench", "azure_mcp", "toucan_mcp")
SEARCHES: Final = 2
HITS: Final = 5


class Shelf:
    """A catalog whose servers are known and never asked: what a conversation reads of one."""

    def __init__(self, views: Iterable[ServerView]) -> None:
        self.snapshot = Snapshot(1, views)
        self.servers = self.snapshot.servers
        self.tools = self.snapshot.tools
        self._index = ToolIndex()
        for key, view in self.servers.items():
            self._index.replace_server(key, (_document(view, tool) for tool in view.tools))

    def search(self, query: str | Sequence[str], *, limit: int, servers: Any = None) -> SearchResult:
        return self._index.search(query, limit=limit, servers=servers)

    async def ready(self, timeout_s: float | None = None, *, servers: Any = None) -> Snapshot:
        return self.snapshot


def load(data: Path, sets: Sequence[str], limit: int | None = None) -> list[ServerView]:
    """Whole servers, in the order of the files, until so many tools are there; the last server may be cut."""
    by_server: dict[str, list[dict[str, Any]]] = {}
    total = 0
    for name in sets:
        for line in (data / name / "tools.jsonl").read_text(encoding="utf-8").splitlines():
            if limit is not None and total >= limit:
                break
            entry = json.loads(line)
            definition = {
                "name": entry["name"],
                "description": entry.get("description") or "",
                "inputSchema": {"type": "object", **(entry.get("input_schema") or {})},
            }
            by_server.setdefault(entry["server"], []).append(definition)
            total += 1
    return [
        ServerView(key=key, name=key, state=ServerState.REMEMBERED, tools=read(definitions))
        for key, definitions in by_server.items()
    ]


def read(definitions: list[dict[str, Any]]) -> tuple[Tool, ...]:
    page = read_page(TOOLS, msgspec.json.encode({"tools": definitions}))
    return tuple(item for item in page.items if isinstance(item, Tool))


async def costs(data: Path, vendor: Vendor, size: int) -> dict[str, Any]:
    """Tokens of both ways, and what one search of the usual kind adds."""
    shelf = Shelf(load(data, SETS, size))
    definitions: list[Any] = []
    tools = [(tool.id, tool.tool) for tool in shelf.tools]
    # In pieces: what an API takes at most is not the question here.
    for start in range(0, len(tools), 100):
        definitions += offer(vendor, tools[start : start + 100]).tools
    talk = Conversation(shelf, vendor, mode="search")  # type: ignore[arg-type]
    surface = count_tokens(talk.tools, vendor)
    queries = {"queries": ["create an issue", "read a file", "search the web"]}
    call = {"id": "c", "type": "function", "function": {"name": "search_tools", "arguments": json.dumps(queries)}}
    if vendor is Vendor.ANTHROPIC:
        message: Any = {"content": [{"type": "tool_use", "id": "c", "name": "search_tools", "input": queries}]}
    else:
        message = {"role": "assistant", "tool_calls": [call]}
    found = count_tokens(await talk.answer(message), vendor).tokens
    everything = sum(count_tokens(definition, vendor).tokens for definition in definitions)
    return {
        "tools": len(tools),
        "servers": len(shelf.servers),
        "all": everything,
        "search": surface.tokens,
        "oneSearch": found,
        "ratio": round(everything / surface.tokens, 1),
        "method": surface.method,
    }


def reach(data: Path) -> dict[str, Any]:
    """The shares of tools and of tasks that two searches reach, by caller and by hits for each query."""
    views = load(data, ["livemcpbench"])
    lines = (data / "livemcpbench" / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    tasks = [row for row in map(json.loads, lines) if row["kind"] == "task"]
    crowd = [view for view in load(data, ["toucan_mcp"]) if view.key not in {own.key for own in views}]
    report: dict[str, Any] = {"tasks": len(tasks)}
    for place, shelf in (("alone", Shelf(views)), ("inCrowd", Shelf([*views, *crowd]))):
        report[place] = {"tools": len(shelf.tools)}
        for caller, searches in {
            "wholeTask": lambda task: [[task["text"]]],
            "asAModelSearched": lambda task: [[one["text"]] for one in task["llm_searches"][:SEARCHES]],
            "stepByStep": lambda task: [task["steps"][:5], task["steps"][5:10]],
        }.items():
            found = [_found(shelf, searches(task), task) for task in tasks]
            report[place][caller] = {
                "toolsReached": round(sum(share for share, _ in found) / len(found), 3),
                "tasksReachable": round(sum(whole for _, whole in found) / len(found), 3),
            }
    return report


def _found(shelf: Shelf, searches: list[list[str]], task: dict[str, Any]) -> tuple[float, bool]:
    hits = {
        f"{hit.document.server}/{hit.document.name}"
        for queries in searches
        for query in queries
        for hit in shelf.search(query, limit=HITS).hits
    }
    groups = task.get("relevant_groups") or [[tool] for tool in task["relevant"]]
    reached = sum(bool(hits & set(group)) for group in groups)
    return reached / len(groups), reached == len(groups)


def show(report: dict[str, Any]) -> None:
    print(f"Tokens of definitions in each request, {report['vendor']}, counted by: {report['costs'][0]['method']}\n")
    print("| tools | servers | all | search | times less | one search of three queries adds |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    for row in report["costs"]:
        print(
            f"| {row['tools']:,} | {row['servers']:,} | {row['all']:,} | {row['search']:,} | {row['ratio']:,} | {row['oneSearch']:,} |"
        )
    reached = report["reach"]
    print(f"\n{reached['tasks']} tasks of livemcpbench, two calls of search_tools, five hits for each query\n")
    print("| the caller | among | tools reached | tasks with all tools reached |")
    print("| --- | ---: | ---: | ---: |")
    words = {
        "wholeTask": "searches once, with the whole task",
        "asAModelSearched": "writes a model's first two searches",
        "stepByStep": "one query for each step",
    }
    for place in ("alone", "inCrowd"):
        for caller, name in words.items():
            value = reached[place][caller]
            print(
                f"| {name} | {reached[place]['tools']:,} tools | {value['toolsReached']:.0%} | {value['tasksReachable']:.0%} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="directory of the sets")
    parser.add_argument("--vendor", type=Vendor, choices=list(Vendor), default=Vendor.OPENAI)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args()
    if not (options.data / SETS[0] / "tools.jsonl").is_file():
        sys.exit(f"there are no catalogs in {options.data}; name their directory with --data")
    report = {
        "python": platform.python_version(),
        "vendor": options.vendor.value,
        "costs": [asyncio.run(costs(options.data, options.vendor, size)) for size in SIZES],
        "reach": reach(options.data),
    }
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        show(report)


if __name__ == "__main__":
    main()
