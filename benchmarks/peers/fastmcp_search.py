"""FastMCP's BM25 search under measurement: one JSON request on stdin, one JSON answer on stdout. See `../search.py`.

Its index class is used directly. A search through FastMCP's transform also hashes the whole catalog for each query; that is left out.

Request: `{"catalogs": [{"tools": [...], "queries": [...]}], "sizes": [...], "timed": [...]}`, each tool `[name, description, schema]`;
`timed` are queries for the first catalog, repeated up to each size. Answer: `{"ranked": [[[position]]], "latency": {size: [ms]}}`.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import cycle, islice
from typing import Any

from fastmcp.server.transforms.search.base import _extract_searchable_text
from fastmcp.server.transforms.search.bm25 import _BM25Index
from fastmcp.tools.base import Tool

HITS = 10


def text_of(tool: list[Any]) -> str:
    name, description, schema = tool
    # Names that FastMCP would warn about are set afterwards; the text is what its own extraction makes of the tool.
    return _extract_searchable_text(Tool.model_construct(name=name, description=description, parameters=schema or {}))


def index_of(texts: list[str]) -> _BM25Index:
    index = _BM25Index()
    index.build(texts)
    return index


def latencies_ms(index: _BM25Index, queries: list[str]) -> list[float]:
    taken = []
    for query in queries:
        start = time.perf_counter()
        index.query(query, HITS)
        taken.append((time.perf_counter() - start) * 1000)
    return taken


request = json.load(sys.stdin)
catalogs = [[text_of(tool) for tool in catalog["tools"]] for catalog in request["catalogs"]]
ranked = []
for texts, catalog in zip(catalogs, request["catalogs"], strict=True):
    index = index_of(texts)
    ranked.append([index.query(query, HITS) for query in catalog["queries"]])
latency = {}
for size in request["sizes"]:
    index = index_of(list(islice(cycle(catalogs[0]), size)))
    # Long lists are asked fewer questions: each takes a second there.
    latency[size] = latencies_ms(index, request["timed"][: max(6, min(60, 300_000 // size))])
json.dump({"ranked": ranked, "latency": latency}, sys.stdout)
