"""How well and how fast the catalog's search finds tools: `python benchmarks/search.py [--data DIR] [--json] [--semantic]`.

DIR has a directory for each set: `tools.jsonl` (`id`, `server`, `name`, `description`, `input_schema`, …) and `queries.jsonl` (`id`,
`kind`, `text`, `relevant`, and optionally `relevant_groups`, lists of which any member counts). A set without queries is a crowd of
distractors: the sets of real MCP servers are searched alone and within that crowd.

"Nothing fits" is measured with the queries of the other sets. A query from elsewhere need not be about nothing in the catalog: the sets
overlap in weather, films, maths. `search_foreign.json` says of 30 queries from each other set, read one by one beside the likeliest
tools, whether the catalog serves them, in part, or not at all. The `unanswerable` ones are those that it does not serve, and those that
nobody has read; `foreign` are all of them.

The ranking was tuned on the queries whose id hashes to an even number; what is reported are the others (`--queries all` for all). Each
set counts once in the average, however many queries it has. Ranks are those without a threshold; what the threshold costs is printed
below. Peers see the same texts: SQLite FTS5 as it comes, and FastMCP's BM25 index from the peers that `./dev setup --peers` installs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import platform
import random
import re
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final

from outrider.catalog.search import MatchKind, MiniLM, ToolDocument, ToolIndex

ROOT: Final = Path(__file__).resolve().parent.parent
PEERS_PYTHON: Final = ROOT / ".dev" / "python-modern" / "bin" / "python"
FASTMCP: Final = ROOT / "benchmarks" / "peers" / "fastmcp_search.py"
FOREIGN: Final = ROOT / "benchmarks" / "search_foreign.json"
PEER_TIMEOUT_S: Final = 300.0

HITS: Final = 10
METRICS: Final = ("recall@1", "recall@5", "recall@10", "mrr", "ndcg@10")
AVERAGED: Final = ("livemcpbench", "azure_mcp", "stabletoolbench", "sealtools", "metatool", "bfcl")
IN_A_CROWD: Final = ("livemcpbench", "azure_mcp")
CROWD: Final = "toucan_mcp"
CROWDED: Final = "+crowd"

NAMES_A_SET: Final = 60
STRANGERS_A_SET: Final = 30
SIZES: Final = (1_000, 10_000, 100_000)
TIMED_QUERIES: Final = 200
FASTMCP_CROWDED: Final = 100
"""FastMCP answers at most so many queries of a crowded set: each costs it a tenth of a second."""

Metrics = dict[str, float]


@dataclass
class Set:
    """A catalog and the queries that are asked of it."""

    name: str
    tools: list[Mapping[str, Any]]
    queries: list[Mapping[str, Any]]
    documents: list[ToolDocument] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.documents = [document_of(tool) for tool in self.tools]


def document_of(tool: Mapping[str, Any]) -> ToolDocument:
    return ToolDocument(
        server=tool["server"],
        name=tool["name"],
        title=(tool.get("annotations") or {}).get("title") or "",
        description=tool.get("description") or "",
        input_schema=tool.get("input_schema"),
        aliases=(tool["id"],),
        server_title=tool.get("server_title") or "",
        server_description=tool.get("server_description") or "",
    )


def read_lines(path: Path) -> list[Mapping[str, Any]]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def is_reported(query: Mapping[str, Any], which: str) -> bool:
    odd = hashlib.sha256(query["id"].encode()).digest()[0] & 1
    return which == "all" or bool(odd) == (which == "reported")


def load(directory: Path, which: str) -> tuple[list[Set], list[Mapping[str, Any]]]:
    """The sets with queries, the crowded ones behind the plain ones, and the crowd."""
    crowd = read_lines(directory / CROWD / "tools.jsonl")
    sets = []
    for folder in sorted(path for path in directory.iterdir() if path.is_dir()):
        queries = [query for query in read_lines(folder / "queries.jsonl") if is_reported(query, which)]
        if queries:
            sets.append(Set(folder.name, read_lines(folder / "tools.jsonl"), queries))
    for plain in [one for one in sets if one.name in IN_A_CROWD and crowd]:
        own = {tool["id"] for tool in plain.tools}
        crowded = [*plain.tools, *(tool for tool in crowd if tool["id"] not in own)]
        sets.append(Set(plain.name + CROWDED, crowded, plain.queries))
    return sets, crowd


def metrics_of(ranked: Sequence[str], query: Mapping[str, Any]) -> Metrics:
    """The measures of one ranking, in percent. A group is found once, by the first of its members."""
    groups = query.get("relevant_groups") or [[identifier] for identifier in query["relevant"]]
    missing = dict(enumerate(map(set, groups)))
    first = gain = 0.0
    found_by: list[int] = []
    for rank, identifier in enumerate(ranked[:HITS], 1):
        found = [number for number, members in missing.items() if identifier in members]
        for number in found:
            del missing[number]
            found_by.append(rank)
        if found:
            gain += 1 / math.log2(rank + 1)
            first = first or 1 / rank
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(len(groups), HITS) + 1))
    recall = {f"recall@{depth}": sum(rank <= depth for rank in found_by) / len(groups) for depth in (1, 5, 10)}
    return {name: 100 * value for name, value in {**recall, "mrr": first, "ndcg@10": gain / ideal}.items()}


def mean(rows: Iterable[Metrics]) -> Metrics:
    kept = list(rows)
    return {name: round(statistics.fmean(row[name] for row in kept), 1) for name in METRICS}


def summary(
    one: Set, rankings: Sequence[Sequence[str]], asked: Sequence[Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    queries = one.queries if asked is None else asked
    rows = [metrics_of(ranked, query) for ranked, query in zip(rankings, queries, strict=True)]
    kinds: dict[str, list[Metrics]] = {}
    for row, query in zip(rows, queries, strict=True):
        kinds.setdefault(query.get("kind", ""), []).append(row)
    result: dict[str, Any] = {**mean(rows), "tools": len(one.tools), "queries": len(rows)}
    if len(kinds) > 1:
        result["kinds"] = {kind: {**mean(members), "queries": len(members)} for kind, members in sorted(kinds.items())}
    return result


def average(results: Mapping[str, Any]) -> Metrics:
    counted = [name for name in results if name.removesuffix(CROWDED) in AVERAGED]
    return mean(results[name] for name in (counted or results))


def index_of(documents: Iterable[ToolDocument], semantic: bool) -> ToolIndex:
    index = new_index(semantic)
    add(index, documents)
    index.embed()
    return index


def new_index(semantic: bool) -> ToolIndex:
    return ToolIndex(MiniLM() if semantic else None)


def add(index: ToolIndex, documents: Iterable[ToolDocument]) -> list[str]:
    servers: dict[str, list[ToolDocument]] = {}
    for document in documents:
        servers.setdefault(document.server, []).append(document)
    for server, members in servers.items():
        index.replace_server(server, members)
    return list(servers)


def asked(index: ToolIndex, queries: Iterable[Mapping[str, Any]]) -> tuple[list[list[str]], list[float]]:
    """For each query the ids of the hits, best first, and the score of the surest."""
    found = [index.search(query["text"], limit=HITS, threshold=0).hits for query in queries]
    ranked = [[hit.document.aliases[0] for hit in hits] for hits in found]
    return ranked, [max((hit.score for hit in hits), default=0.0) for hits in found]


# ---------------------------------------------------------------------------------------------------------------- peers


def text_of(document: ToolDocument) -> str:
    """What the peers are given: name, description, names and descriptions of parameters, server."""
    parts = [document.name, document.description, document.server, document.server_title]
    waiting: list[Any] = [document.input_schema]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, dict):
            continue
        for name, member in (node.get("properties") or {}).items():
            parts.append(name)
            if isinstance(member, dict) and isinstance(member.get("description"), str):
                parts.append(member["description"])
            waiting.append(member)
        waiting.append(node.get("items"))
    return " ".join(parts)


def full_text_search(texts: Iterable[str]) -> Callable[[str], list[int]]:
    database = sqlite3.connect(":memory:")
    database.execute("create virtual table tools using fts5(text)")
    database.executemany("insert into tools values (?)", ((text,) for text in texts))

    def search(query: str) -> list[int]:
        words = " OR ".join(f'"{word}"' for word in dict.fromkeys(re.findall(r"\w+", query)))
        if not words:
            return []
        rows = database.execute("select rowid from tools where tools match ? order by rank limit ?", (words, HITS))
        return [rowid - 1 for (rowid,) in rows]

    return search


def asked_of_fastmcp(one: Set) -> Sequence[Mapping[str, Any]]:
    if not one.name.endswith(CROWDED):
        return one.queries
    return random.Random(13).sample(one.queries, min(FASTMCP_CROWDED, len(one.queries)))


def start_fastmcp(sets: Sequence[Set], crowd: Sequence[Mapping[str, Any]], sizes: Sequence[int]) -> Any:
    """FastMCP's process at work on the sets, or None where it is not installed."""
    if not PEERS_PYTHON.exists():
        return None
    request = {
        "catalogs": [
            {
                "tools": [[tool["name"], tool.get("description"), tool.get("input_schema")] for tool in tools],
                "queries": queries,
            }
            for tools, queries in [
                (crowd or sets[0].tools, []),
                *((one.tools, [q["text"] for q in asked_of_fastmcp(one)]) for one in sets),
            ]
        ],
        "sizes": list(sizes),
        "timed": timed_queries(sets),
    }
    process = subprocess.Popen(
        [PEERS_PYTHON, str(FASTMCP)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(request))
    process.stdin.close()
    process.stdin = None
    return process


# ------------------------------------------------------------------------------------------------------------- measures


def exact_names(index: ToolIndex, one: Set, chance: random.Random) -> dict[str, Any]:
    """How often a name comes first, in any case, with or without its server; and how many of five names are found."""
    chosen = chance.sample(one.documents, min(NAMES_A_SET, len(one.documents)))
    asked = right = 0
    for document in chosen:
        bare = document.name
        spellings = [bare, bare.upper(), bare.lower()]
        full = [f"{document.server}/{bare}", f"{document.server}__{bare}".upper(), document.aliases[0]]
        for query in [*spellings, *full]:
            first = index.search(query, limit=1).hits[0]
            same = first.document.name.casefold() == bare.casefold()
            asked += 1
            right += (
                first.kind is MatchKind.EXACT
                and same
                and (query in spellings or first.document.server == document.server)
            )
    found = wanted = 0
    by_name = list({document.name.casefold(): document for document in one.documents}.values())
    for turn in range(NAMES_A_SET):
        five = chance.sample(by_name, min(5, len(by_name)))
        query = (" ", ", ")[turn % 2].join(document.name for document in five)
        hits = {hit.document.name.casefold() for hit in index.search(query, limit=5).hits}
        wanted += len(five)
        found += sum(document.name.casefold() in hits for document in five)
    return {"first": round(100 * right / asked, 2), "five_names_recall@5": round(100 * found / wanted, 2)}


def strangers_of(one: Set, sets: Sequence[Set]) -> list[tuple[Mapping[str, Any], bool]]:
    """Queries of other sets, and whether `one` serves them, at least in part, by `search_foreign.json`."""
    read = json.loads(FOREIGN.read_text(encoding="utf-8")).get(one.name, {})
    served = {*read.get("served", ()), *read.get("partly", ())}

    def lot(query: Mapping[str, Any]) -> bytes:
        return hashlib.sha256(f"{one.name} {query['id']}".encode()).digest()

    others = [other for other in sets if not same_domain(other.name, one.name)]
    return [(q, q["id"] in served) for other in others for q in sorted(other.queries, key=lot)[:STRANGERS_A_SET]]


def turned_away(scores: Sequence[float], threshold: float) -> float:
    return 100 * sum(score < threshold for score in scores) / len(scores) if scores else 0.0


def nothing_fits(sets: Mapping[str, Mapping[str, Sequence[float]]], default: float) -> dict[str, Any]:
    """What share of each kind of query gets "nothing fits", per set and per threshold, each set counting once.

    Args:
        sets: by name of the set and kind of query, the scores of the surest hits.
        default: the threshold that the figures per set are for.
    """
    ladder = sorted({*(step / 50 for step in range(1, 40)), default})

    def shares(scores: Mapping[str, Sequence[float]], threshold: float) -> dict[str, float]:
        return {kind: turned_away(values, threshold) for kind, values in scores.items()}

    def rounded(row: Mapping[str, float]) -> dict[str, float]:
        return {kind: round(share, 1) for kind, share in row.items()}

    curve = []
    for threshold in ladder:
        rows = [shares(scores, threshold) for scores in sets.values()]
        means = {kind: statistics.fmean(row[kind] for row in rows) for kind in rows[0]}
        curve.append({"threshold": round(threshold, 3), **rounded(means)})
    return {
        "default": default,
        "sets": {
            name: {
                **rounded(shares(scores, default)),
                "queries": {kind: len(values) for kind, values in scores.items()},
            }
            for name, scores in sets.items()
        },
        "curve": curve,
    }


def timed_queries(sets: Sequence[Set]) -> list[str]:
    chance = random.Random(7)
    texts = [query["text"] for one in sets if not one.name.endswith(CROWDED) for query in one.queries]
    return chance.sample(texts, min(TIMED_QUERIES, len(texts)))


def resident_mb() -> float:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return math.nan
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def percentile_95(values: Sequence[float]) -> float:
    return sorted(values)[min(len(values) - 1, math.ceil(0.95 * len(values)) - 1)]


def latencies_ms(search: Callable[[str], object], queries: Iterable[str]) -> list[float]:
    taken = []
    for query in queries:
        start = time.perf_counter()
        search(query)
        taken.append((time.perf_counter() - start) * 1000)
    return taken


def at_size(
    size: int, documents: Sequence[ToolDocument], queries: Sequence[str], semantic: bool, peers: bool
) -> dict[str, float]:
    """Build time, memory and latency with `size` tools; beyond what there is, the same tools on further servers."""
    tools = [
        document if copy == 0 else renamed(document, copy)
        for position, document in enumerate(islice(cycle(documents), size))
        for copy in (position // len(documents),)
    ]
    before = resident_mb()
    start = time.perf_counter()
    processor = time.process_time()
    index = index_of(tools, semantic)
    index.search("first search commits")
    built = time.perf_counter() - start
    result = {"build_s": round(built, 2), "build_cpu_s": round(time.process_time() - processor, 2)}
    result["memory_mb"] = round(resident_mb() - before, 1)
    for query in queries[: TIMED_QUERIES // 4]:
        index.search(query)
    taken = latencies_ms(index.search, queries)
    result |= {"p50_ms": round(statistics.median(taken), 2), "p95_ms": round(percentile_95(taken), 2)}
    start = time.perf_counter()
    index.replace_server(tools[0].server, [tools[0]])
    index.search("changed")
    result["change_ms"] = round((time.perf_counter() - start) * 1000, 1)
    if peers:
        full_text = full_text_search(map(text_of, tools))
        result["fts5_p95_ms"] = round(
            percentile_95(latencies_ms(full_text, queries[: max(20, min(100, 1_000_000 // size))])), 2
        )
    return result


def renamed(document: ToolDocument, copy: int) -> ToolDocument:
    return ToolDocument(
        server=f"{document.server}-{copy}",
        name=document.name,
        title=document.title,
        description=document.description,
        input_schema=document.input_schema,
        server_title=document.server_title,
        server_description=document.server_description,
    )


def measure(options: argparse.Namespace) -> dict[str, Any]:
    peers = not options.json
    started = time.perf_counter()
    if not options.data.is_dir():
        raise SystemExit(f"there is no directory {options.data}: name the one that has the sets with --data")
    sets, crowd = load(options.data, options.queries)
    if not sets:
        raise SystemExit(f"no set with queries in {options.data}")
    fastmcp = start_fastmcp(sets, crowd, options.sizes) if peers else None
    results: dict[str, Any] = {}
    rivals: dict[str, dict[str, Any]] = {"FTS5": {}} if peers else {}
    names: dict[str, Any] = {}
    sure: dict[str, dict[str, list[float]]] = {}
    chance = random.Random(11)
    crowded = new_index(options.semantic)
    if crowd:
        add(crowded, map(document_of, crowd))
        crowded.embed()
    for one in sets:
        if one.name.endswith(CROWDED):
            # The crowd is there already: what comes and goes are the servers of the set.
            index = crowded
            mine = {document.server for document in one.documents[: len(one.documents) - len(crowd)]}
            guests = add(index, [document for document in one.documents if document.server in mine])
            index.embed()
        else:
            index, guests = index_of(one.documents, options.semantic), []
        ranked, best = asked(index, one.queries)
        results[one.name] = summary(one, ranked)
        if not guests:
            names[one.name] = exact_names(index, one, chance)
            strangers = strangers_of(one, sets)
            foreign = asked(index, [query for query, _ in strangers])[1]
            nothing = [score for score, (_, is_served) in zip(foreign, strangers, strict=True) if not is_served]
            sure[one.name] = {"answerable": best, "unanswerable": nothing, "foreign": foreign}
        for server in guests:
            crowded.remove_server(server)
            crowded.replace_server(server, [d for d in map(document_of, crowd) if d.server == server])
        if peers:
            full_text = full_text_search(map(text_of, one.documents))
            rivals["FTS5"][one.name] = summary(
                one, [[one.tools[row]["id"] for row in full_text(q["text"])] for q in one.queries]
            )
    documents = [document_of(tool) for tool in crowd] or sets[0].documents
    queries = timed_queries(sets)
    sizes = {size: at_size(size, documents, queries, options.semantic, peers) for size in options.sizes}
    if fastmcp is not None:
        answer = json.loads(fastmcp.communicate(timeout=PEER_TIMEOUT_S)[0])
        rivals["FastMCP"] = {
            one.name: summary(one, [[one.tools[row]["id"] for row in rows] for rows in ranked], asked_of_fastmcp(one))
            for one, ranked in zip(sets, answer["ranked"][1:], strict=True)
        }
        for size, taken in answer["latency"].items():
            sizes[int(size)]["fastmcp_p95_ms"] = round(percentile_95(taken), 1)
    from outrider.catalog.search.index import DEFAULT_THRESHOLD

    return {
        "average": average(results),
        **results,
        "names": names,
        "nothing_fits": nothing_fits(sure, DEFAULT_THRESHOLD),
        "sizes": {str(size): values for size, values in sizes.items()},
        "peers": {name: {"average": average(values), **values} for name, values in rivals.items()},
        "run": {
            "queries": options.queries,
            "semantic": options.semantic,
            "seconds": round(time.perf_counter() - started, 1),
            "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
            "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}",
        },
    }


def same_domain(one: str, other: str) -> bool:
    """Whether queries of one set are likely to be served by the other: the same, within a crowd, or another edition of it."""
    return one.endswith(CROWDED) or other.startswith(one.split("_beta")[0]) or one.startswith(other.split("_beta")[0])


# --------------------------------------------------------------------------------------------------------------- output


def show(result: Mapping[str, Any]) -> None:
    columns = {"Outrider": result, **result["peers"]}
    sets = [name for name, value in result.items() if isinstance(value, dict) and "recall@1" in value]
    print(f"{'':34}" + "".join(f"{name:^35}" for name in columns))
    print(f"{'set':28}{'tools':>6}" + "   R@1   R@5  R@10   MRR  nDCG     " * len(columns))
    for name in [*sets[1:], sets[0]]:
        cells = ["".join(f"{column[name][metric]:6.1f}" for metric in METRICS) + " " * 5 for column in columns.values()]
        print(f"{name:28}{result[name].get('tools', ''):>6}" + "".join(cells))
        for kind, values in result[name].get("kinds", {}).items():
            print(f"  {kind:32}" + "".join(f"{values[metric]:6.1f}" for metric in METRICS))
    for name in ("FTS5", "FastMCP"):
        if name not in result["peers"]:
            print(f"{name}: not installed (./dev setup --peers)")
    if "FastMCP" in result["peers"]:
        print(f"FastMCP: at most {FASTMCP_CROWDED} queries of a crowded set")
    print("\nexact names, percent        first    five names in one query, recall@5")
    for name, values in result["names"].items():
        print(f"{name:28}{values['first']:5.1f}    {values['five_names_recall@5']:5.1f}")
    fits = result["nothing_fits"]
    print('\n"nothing fits", percent of queries   of the set   about nothing in it   of other sets')
    kinds = ("answerable", "unanswerable", "foreign")
    for name, values in fits["sets"].items():
        print(
            f"{name:38}" + "".join(f"{values[kind]:{width}.1f}" for kind, width in zip(kinds, (9, 18, 17), strict=True))
        )
    for step in fits["curve"]:
        mark = "   <- default" if step["threshold"] == round(fits["default"], 3) else ""
        if mark or round(step["threshold"] * 50) % 2 == 0:
            cells = "".join(f"{step[kind]:{width}.1f}" for kind, width in zip(kinds, (9, 18, 17), strict=True))
            print(f"threshold {step['threshold']:<28}{cells}{mark}")
    print("\ntools       " + "".join(f"{size:>12}" for size in result["sizes"]))
    for row in dict.fromkeys(row for values in result["sizes"].values() for row in values):
        print(f"{row:16}" + "".join(f"{values.get(row, math.nan):12}" for values in result["sizes"].values())[4:])
    run = result["run"]
    print(f"\n{run['queries']} queries, {run['seconds']} s, load {run['load']}, {run['machine']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--data",
        type=Path,
        default=Path("../shared/toolsearch"),
        help="directory of the sets (default: %(default)s, a folder beside the checkout)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object, without the peers")
    parser.add_argument("--semantic", action="store_true", help="with the semantic ranker of outrider[semantic]")
    parser.add_argument(
        "--queries", choices=("reported", "tuned", "all"), default="reported", help="by hash of their id"
    )
    parser.add_argument(
        "--sizes", type=int, nargs="*", default=list(SIZES), help="numbers of tools to measure speed with"
    )
    options = parser.parse_args()
    result = measure(options)
    if options.json:
        json.dump(result, sys.stdout)
        print()
    else:
        show(result)


if __name__ == "__main__":
    main()
