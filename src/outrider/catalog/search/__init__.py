"""Search over the tools of a catalog: in process, incremental, deterministic; each hit says why it is there.

`ToolIndex` takes `ToolDocument`s by server and answers queries with a `SearchResult`. It knows nothing of the rest of Outrider.
"""

from __future__ import annotations

from .document import MatchKind, SearchHit, SearchResult, TermMatch, ToolDocument
from .index import ToolIndex
from .semantic import Embedder, MiniLM

__all__ = ["Embedder", "MatchKind", "MiniLM", "SearchHit", "SearchResult", "TermMatch", "ToolDocument", "ToolIndex"]
