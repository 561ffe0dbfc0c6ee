"""tantivy as the source of candidates: which tools share the most telling words with a query.

Decided here: how texts are handed over and when they are committed. tantivy is imported with the first tool, not with this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

__all__ = ["CandidateEngine"]

WRITER_BYTES: Final = 15_000_000
"""tantivy's least. The writer is closed after each commit: an idle catalog has no thread and no buffer."""
BULK_WRITER_BYTES: Final = 60_000_000
BULK: Final = 5_000
SPARE: Final = 8
"""Entries that are looked at beyond those asked for, to see whether the last one has equals."""
MOST_EQUAL: Final = 500
"""Of more equal entries than about this many, some are not looked at: one tool listed ten thousand times costs no search its time."""


class CandidateEngine:
    """An inverted index over prepared texts (words between single spaces), grouped for removal. Not thread-safe.

    Additions and removals take effect together at the next search.
    """

    def __init__(self) -> None:
        self._index: Any = None
        self._searcher: Any = None
        self._added: list[tuple[int, int, str]] = []
        self._removed: set[int] = set()

    def add(self, number: int, group: int, text: str) -> None:
        """Add an entry, known as `number` in results; a group is what `remove` takes away."""
        self._added.append((number, group, text))

    def remove(self, group: int) -> None:
        """Remove every entry of a group."""
        self._removed.add(group)

    def search(
        self,
        terms: Iterable[tuple[str, float]],
        *,
        limit: int,
        order: Callable[[int], Any],
        groups: Iterable[int] | None = None,
    ) -> list[int]:
        """Numbers of the entries with the highest weighted BM25, best first.

        Args:
            terms: words and what each is worth.
            limit: the most numbers to return, at least 1.
            order: what equal entries are ordered by, given their number. tantivy takes the one that it was given first.
            groups: only entries of these, or None for all.
        """
        self._commit()
        if self._searcher is None:
            return []
        import tantivy

        schema, query = self._schema, tantivy.Query
        should = tantivy.Occur.Should
        clauses = [
            (should, query.boost_query(query.term_query(schema, "text", word, "freq"), weight))
            for word, weight in terms
        ]
        if not clauses:
            return []
        wanted = query.boolean_query(clauses)
        if groups is not None:
            members = query.const_score_query(query.term_set_query(schema, "group", list(groups)), 0.0)
            wanted = query.boolean_query([(tantivy.Occur.Must, wanted), (tantivy.Occur.Must, members)])
        looked_at = limit + SPARE
        hits = self._searcher.search(wanted, looked_at, count=False).hits
        while len(hits) == looked_at < limit + MOST_EQUAL and hits[-1][0] == hits[limit - 1][0]:
            looked_at *= 4  # the last one that counts is equal to more than were seen
            hits = self._searcher.search(wanted, looked_at, count=False).hits
        scores, addresses = [score for score, _ in hits], [address for _, address in hits]
        numbers = self._searcher.fast_field_values("number", addresses)
        if len(set(scores)) < len(scores):
            places = sorted(range(len(numbers)), key=lambda place: (-scores[place], order(numbers[place])))
            numbers = [numbers[place] for place in places]
        return numbers[:limit]  # type: ignore[no-any-return]

    def _commit(self) -> None:
        if not self._added and not self._removed:
            return
        import tantivy

        if self._index is None:
            builder = tantivy.SchemaBuilder()
            builder.add_text_field("text", tokenizer_name="prepared", index_option="freq")
            builder.add_unsigned_field("number", fast=True)
            builder.add_unsigned_field("group", indexed=True)
            self._schema = builder.build()
            self._index = tantivy.Index(self._schema)
            prepared = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build()
            self._index.register_tokenizer("prepared", prepared)
        writer = self._index.writer(BULK_WRITER_BYTES if len(self._added) > BULK else WRITER_BYTES, 1)
        for group in self._removed:
            # Not by term: tantivy-py takes the number for a signed one and deletes nothing.
            writer.delete_documents_by_query(tantivy.Query.term_query(self._schema, "group", group))
        for number, group, text in self._added:
            if group in self._removed:
                continue
            entry = tantivy.Document()
            entry.add_text("text", text)
            entry.add_unsigned("number", number)
            entry.add_unsigned("group", group)
            writer.add_document(entry)
        writer.commit()
        writer.wait_merging_threads()
        self._index.reload()
        self._searcher = self._index.searcher()
        self._added.clear()
        self._removed.clear()
