"""Closeness in meaning for a catalog's search, prepared beside it: in a thread, never on the event loop.

Decided here: when the model is loaded, when tools are embedded, and what happens if that fails (searches go on with words alone, and one
warning says why). Not here: what is embedded and how (`search.semantic`), what closeness is worth (`search.ranking`).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from outrider.catalog.search import Embedder, MiniLM, ToolIndex
from outrider.errors import OutriderError

__all__ = ["BackgroundEmbedding"]

_log: Final = logging.getLogger("outrider.catalog")

BATCH: Final = 32
"""Tools embedded before the thread looks whether it is to stop: about a tenth of a second."""


class BackgroundEmbedding:
    """Keeps the tools of an index embedded, by a thread that lives while there is something to do.

    Spec: ours
    """

    def __init__(self, index: ToolIndex, load: Callable[[], Embedder] = MiniLM) -> None:
        """Nothing happens until `catch_up`.

        Args:
            index: whose tools are embedded; it searches by words until they are.
            load: makes the embedder. Called in the thread: importing the model's packages takes most of a second.
        """
        self._index = index
        self._load = load
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_loaded = False
        self._is_stopped = False
        self._has_work = False
        self._idle = threading.Event()
        self._idle.set()

    def catch_up(self) -> None:
        """Embed what is new in the index; returns at once, whether or not the thread is at work already."""
        with self._lock:
            if self._is_stopped:
                return
            self._has_work = True
            if self._thread is None:
                self._idle.clear()
                # A daemon: a program that ends without closing its catalog does not wait for thousands of tools.
                self._thread = threading.Thread(target=self._work, name="outrider-embedding", daemon=True)
                self._thread.start()

    async def ready(self, timeout_s: float | None = None) -> bool:
        """Wait until everything is embedded, or has failed; whether that was so before `timeout_s` seconds were over."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._idle.is_set():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            # In slices, so that the thread of a waiter that was cancelled is free again soon.
            await asyncio.to_thread(self._idle.wait, 0.2 if left is None else min(left, 0.2))
        return True

    async def close(self) -> None:
        """End the thread after the batch that it is at. Any number of times."""
        with self._lock:
            self._is_stopped = True
            thread = self._thread
        if thread is not None:
            await asyncio.to_thread(thread.join)

    def _work(self) -> None:
        try:
            while self._takes_work():
                if not self._is_loaded:
                    self._index.use(self._load())
                    self._is_loaded = True
                while not self._is_stopped and self._index.embed(BATCH):
                    pass
        except Exception as problem:
            # Whatever a model's package raises: search by meaning is an addition, and nobody waits for this thread's exception.
            self._index.use(None)
            with self._lock:
                self._is_stopped = True
                self._thread = None
            told = f"{problem} ({problem.hint})" if isinstance(problem, OutriderError) else type(problem).__name__
            _log.warning("the semantic search is not available, words alone are searched: %s", told)
        finally:
            self._idle.set()

    def _takes_work(self) -> bool:
        with self._lock:
            if self._has_work and not self._is_stopped:
                self._has_work = False
                return True
            self._thread = None
            self._idle.set()
            return False
