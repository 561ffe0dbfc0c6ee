"""The index: which tools there are, under which names and words, and how a search runs.

Decided here: what of a tool is indexed and how much of it, how candidates are found, what counts as an exact name, which typos are
repaired, how several names or several queries share one result, and when nothing fits. Not here: words (`analysis`), the worth of
a match (`ranking`), values (`document`). Pure but for tantivy, which holds its postings in memory.

tantivy proposes candidates from one field of stems, in which a word occurs as often as its field is worth; everything that the
result depends on beyond that is computed here from statistics of the live tools only. Its own statistics count deleted tools until
it merges, which depends on history; ours do not, so equal catalogs give equal answers.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice, zip_longest
from operator import itemgetter
from typing import Any, Final

import msgspec

from .analysis import fold, split_words
from .confidence import COMPANY, evidence, probability, sureness
from .document import MatchKind, SearchHit, SearchResult, TermMatch, ToolDocument
from .engine import CandidateEngine
from .names import NameTable
from .ranking import FEATURES, MEANING_WEIGHT, WEIGHTS, Corpus, IndexedTool, features, linear
from .semantic import QUERY_CHARS, Embedder, VectorTable, text_to_embed
from .vocabulary import Query

__all__ = ["ToolIndex"]

# Words kept of each field, in the order of FIELDS. A server is untrusted: one tool must not outweigh the catalog.
WORD_LIMITS: Final = (32, 32, 400, 100, 600, 60, 24, 60)
TEXT_LIMIT: Final = 20_000
"""Characters read of one field."""
SCHEMA_NODES: Final = 600
"""Subschemas read of one tool; the walk is breadth first, so that the outer parameters come first."""
REPEATS: Final = (3, 2, 2, 1, 1, 1, 2, 1)
"""How often tantivy is given each word, by field: `FIELD_WEIGHTS` in whole numbers."""

QUERY_LIMIT: Final = 12_000
"""Characters of a query that are read."""
QUERIES_LIMIT: Final = 32
"""Queries of one search that are read."""
TERM_LIMIT: Final = 40
"""Words of a query that look for candidates: those of the greatest weight."""
CANDIDATES: Final = 24
"""Tools that are ranked against each other: 100 do not rank better in the measurements."""
COMPACTED: Final = 5_000
"""Removed tools beyond the number of live ones before the index is built anew."""
ENUMERATED: Final = 12
SUBSTRING_LIMIT: Final = 200
NEAREST: Final = 5
SIBLINGS_COUNTED: Final = 4
DEFAULT_THRESHOLD: Final = 0.145
"""Where not quite 3 % of the queries that a catalog serves are turned away; see `docs/design/search.md` for the whole curve."""
SUBSTRING_CONFIDENCE: Final = 0.5

JOIN_BOOST: Final = 1.5
"""What a spelling in one word is worth to tantivy, where the query has it in two: about both of them."""
SAME_SERVER_PENALTY: Final = 0.1
SAME_NAME_PENALTY: Final = 0.3
"""What each better placed tool of the same server, or of the same name, takes from a score (the best are between 5 and 12):
forks of one server, or one big server, do not fill the page while others fit as well."""

_log: Final = logging.getLogger("outrider.catalog")

_SIBLINGS: Final = FEATURES.index("siblings")
_COVERED: Final = FEATURES.index("covered")
# What a field is called in an explanation.
_SHOWN_FIELDS: Final = ("name", "title", "description", "parameters", "parameters", "tags", "server", "server")


class ToolIndex:
    """Tools of many servers, to be searched by words, by names and by typos of them.

    A search sees each server's tools as they were after some `replace_server`, never half of them; calls may come from several
    threads. The same tools give the same result whatever the order in which servers came and went.

    Spec: ours
    """

    def __init__(self, embedder: Embedder | None = None) -> None:
        """An empty index.

        Args:
            embedder: ranks by closeness in meaning as well, such as `MiniLM()`; None for words alone. New tools count with their
                words until `embed` has been called.
        """
        self._embedder = embedder
        self._lock = threading.RLock()
        self._clear()

    def _clear(self) -> None:
        self._corpus = Corpus()
        self._names = NameTable()
        self._engine = CandidateEngine()
        self._documents: list[ToolDocument | None] = []
        self._tools: list[IndexedTool | None] = []
        self._servers: dict[str, tuple[int, list[int]]] = {}
        self._groups = 0
        self._vectors = VectorTable(self._embedder.dimensions) if self._embedder else None

    def use(self, embedder: Embedder | None) -> None:
        """Rank by closeness in meaning with `embedder` from now on, or by words alone if it is None.

        Tools count with their words until `embed` has been called.

        Spec: ours
        """
        vectors = VectorTable(embedder.dimensions) if embedder else None
        with self._lock:
            self._embedder, self._vectors = embedder, vectors

    def __len__(self) -> int:
        """The number of tools."""
        return self._corpus.vocabulary.tools

    @property
    def servers(self) -> tuple[str, ...]:
        """The keys of the servers that have tools here, sorted."""
        return tuple(sorted(self._servers))

    def replace_server(self, server: str, documents: Iterable[ToolDocument]) -> None:
        """Make `documents` the tools of `server`, in place of those it had.

        Nothing changes if iterating `documents` raises.

        Args:
            server: the server's key; it stands for the `server` of each document.
            documents: its tools, in any order.

        Spec: ours
        """
        fresh = sorted(documents, key=lambda document: document.name)
        with self._lock:
            self._replace(server, fresh, self._forget(server))

    def _replace(self, server: str, fresh: Sequence[ToolDocument], vectors: Mapping[str, Any]) -> None:
        if fresh:
            group = self._groups
            self._groups += 1
            numbers = []
            for document in fresh:
                number = len(self._documents)
                fields = self._fields(document)
                tool = IndexedTool(fields, group, self._corpus.vocabulary.stem_of)
                numbers.append(number)
                self._documents.append(document)
                self._tools.append(tool)
                self._corpus.count(tool, 1)
                self._names.add_tool(server, document.name, document.aliases, number)
                self._engine.add(number, group, self._engine_text(fields))
                # A list that changed in one place does not cost the embedding of all of it.
                if self._vectors is not None and vectors and (text := text_to_embed(document)) in vectors:
                    self._vectors.put(number, vectors[text])
            self._names.add_server(server, fresh[0].server_title)
            self._servers[server] = (group, numbers)

    def remove_server(self, server: str) -> None:
        """Forget the tools of `server`; nothing happens if it has none.

        Spec: ours
        """
        with self._lock:
            self._forget(server)

    def _forget(self, server: str) -> dict[str, Any]:
        """Remove a server; what is returned are the vectors of its tools by their text."""
        group, numbers = self._servers.pop(server, (-1, []))
        vectors: dict[str, Any] = {}
        if not numbers:
            return vectors
        self._names.remove_server(server, self._document(numbers[0]).server_title)
        for number in numbers:
            document = self._document(number)
            self._names.remove_tool(server, document.name, document.aliases, number)
            self._corpus.count(self._tool(number), -1)
            self._documents[number] = self._tools[number] = None
            if self._vectors is not None and (vector := self._vectors.take(number)) is not None:
                vectors[text_to_embed(document)] = vector
        self._engine.remove(group)
        if len(self._documents) > 2 * len(self) + COMPACTED:
            self._compact()
        return vectors

    def _compact(self) -> None:
        """Drop what removed tools left behind: their numbers, words that nobody has, tantivy's dead entries."""
        servers = {server: [self._document(n) for n in numbers] for server, (_, numbers) in self._servers.items()}
        vectors = self._vectors
        known = {
            server: {
                text_to_embed(self._document(n)): vector for n in numbers if (vector := vectors.take(n)) is not None
            }
            for server, (_, numbers) in (self._servers.items() if vectors is not None else ())
            if vectors is not None
        }
        self._clear()
        for server, documents in servers.items():
            self._replace(server, documents, known.get(server, {}))

    def embed(self, most: int | None = None) -> int:
        """Embed tools that have no vector yet. Slow work, for a background thread; searches go on meanwhile.

        Args:
            most: the most tools to embed, or None for all.

        Returns:
            The number of tools still without a vector; 0 if the index has no embedder.

        Spec: ours
        """
        embedder, vectors = self._embedder, self._vectors
        if embedder is None or vectors is None:
            return 0
        with self._lock:
            waiting = (
                (number, document)
                for number, document in enumerate(self._documents)
                if document is not None and number not in vectors
            )
            chosen = list(islice(waiting, most))
        texts = list(dict.fromkeys(text_to_embed(document) for _, document in chosen))  # forks share their texts
        rows = dict(zip(texts, embedder.embed(texts), strict=True)) if texts else {}
        with self._lock:
            if self._vectors is not vectors:
                return self.embed(most)  # compacted meanwhile: other numbers
            for number, document in chosen:
                if self._documents[number] is document:
                    vectors.put(number, rows[text_to_embed(document)])
            return len(self) - len(vectors)

    def _document(self, number: int) -> ToolDocument:
        document = self._documents[number]
        assert document is not None
        return document

    def _tool(self, number: int) -> IndexedTool:
        tool = self._tools[number]
        assert tool is not None
        return tool

    def _fields(self, document: ToolDocument) -> list[list[int]]:
        parameters, parameter_texts, values = _schema_texts(document.input_schema)
        texts = (
            document.name,
            document.title,
            document.description,
            parameters,
            parameter_texts,
            f"{values} {' '.join(document.tags)}",
            f"{document.server} {document.server_title}",
            document.server_description,
        )
        intern = self._corpus.vocabulary.intern
        return [intern(split_words(text[:TEXT_LIMIT])[:limit]) for text, limit in zip(texts, WORD_LIMITS, strict=True)]

    def _engine_text(self, fields: Sequence[Sequence[int]]) -> str:
        vocabulary = self._corpus.vocabulary
        stem_of, spellings = vocabulary.stem_of, vocabulary.stem_spellings
        stems: list[str] = []
        for words, repeat in zip(fields, REPEATS, strict=True):
            stems += [spellings[stem_of[word]] for word in words] * repeat
        return " ".join(stems)

    def search(
        self,
        query: str | Sequence[str],
        *,
        limit: int = 10,
        offset: int = 0,
        servers: Collection[str] | None = None,
        threshold: float | None = None,
    ) -> SearchResult:
        """The tools that serve a query, best first.

        Args:
            query: words, names or a whole task, in any language; or several queries, whose best hits take turns. An empty
                query lists the tools in order of server and name. What is beyond 12,000 characters is not read.
            limit: the most hits to return, at least 1.
            offset: hits to skip, for the next page.
            servers: only tools of these servers, or None for all.
            threshold: score from 0 to 1 that the best hit must reach, or else nothing fits; None for the default, which was
                measured; 0 for whatever there is.

        Raises:
            ValueError: `limit` below 1 or `offset` below 0.

        Spec: ours
        """
        if limit < 1 or offset < 0:
            raise ValueError(f"limit must be at least 1 and offset at least 0, not {limit} and {offset}")
        queries = [query] if isinstance(query, str) else list(dict.fromkeys(query))[:QUERIES_LIMIT]
        queries = [text for text in queries if text.strip()]
        with self._lock:
            chosen = self._servers.keys() if servers is None else self._servers.keys() & set(servers)
            if not queries:
                return self._list(sorted(chosen), limit, offset)
            groups = None if servers is None else {self._servers[server][0] for server in chosen}
            rankings = [self._rank(text[:QUERY_LIMIT], limit + offset, groups) for text in queries]
            return self._result(
                _take_turns(rankings), limit, offset, DEFAULT_THRESHOLD if threshold is None else threshold
            )

    def _list(self, servers: Sequence[str], limit: int, offset: int) -> SearchResult:
        numbers = [number for server in servers for number in self._servers[server][1]]
        page = numbers[offset : offset + limit]
        hits = tuple(SearchHit(self._document(number), 0.0, MatchKind.LISTED) for number in page)
        return SearchResult(hits=hits, total=len(numbers))

    def _rank(self, text: str, depth: int, groups: Collection[int] | None) -> list[_Ranked]:
        """All that is known about one query: named tools first, then candidates by score."""
        named = self._named(text, groups)
        query = self._corpus.vocabulary.parse(text, most_terms=TERM_LIMIT)
        ranked = self._score(query, max(CANDIDATES, depth), groups, None if named else self._closeness(text))
        self._judge(ranked)
        if named:
            first = set(named)
            return [
                *(_Ranked(number, 0.0, MatchKind.EXACT, query, confidence=1.0) for number in named),
                *(entry for entry in ranked if entry.number not in first),
            ]
        return ranked or self._literal(text, query, groups)

    def _closeness(self, text: str) -> Any:
        """How close in meaning each number's tool is to `text`, or None without an embedder or before anything is embedded."""
        if self._embedder is None or not self._vectors:
            return None
        try:
            return self._vectors.closeness(self._embedder.embed([text[:QUERY_CHARS]])[0])
        except Exception as problem:
            # Whatever a model's package raises: the words have found something, too.
            _log.warning("the semantic search failed, words alone are searched: %s", type(problem).__name__)
            self.use(None)
            return None

    def _named(self, text: str, groups: Collection[int] | None) -> list[int]:
        turns: list[list[int]] = []
        for piece, numbers in self._names.find(text):
            asked = fold(piece)
            members = [number for number in numbers if groups is None or self._tool(number).group in groups]
            # Of one name in several spellings, the spelling that was asked for is first.
            members.sort(key=self._order)
            members.sort(key=lambda number: self._is_spelled(asked, number), reverse=True)
            turns.append(members)
        return list(dict.fromkeys(number for turn in zip_longest(*turns) for number in turn if number is not None))

    def _is_spelled(self, asked: str, number: int) -> bool:
        """Whether the folded `asked` is the tool's name, alias, or name behind a server's, separators included."""
        document = self._document(number)
        return asked.endswith(fold(document.name)) or asked in map(fold, document.aliases)

    def _order(self, number: int) -> tuple[str, str]:
        document = self._document(number)
        return document.server, document.name

    def _score(self, query: Query, limit: int, groups: Collection[int] | None, closeness: Any = None) -> list[_Ranked]:
        spellings = self._corpus.vocabulary.stem_spellings
        stem_of = self._corpus.vocabulary.stem_of
        # tantivy multiplies by a rarity of its own.
        wanted = {spellings[term.stem]: term.weight / term.rarity for term in query.terms}
        for word in query.joins:
            wanted.setdefault(spellings[stem_of[word]], JOIN_BOOST)
        numbers = self._engine.search(wanted.items(), limit=limit, order=self._order, groups=groups)
        # Batch after batch, so that a longer page begins with the shorter one.
        batches = [numbers[start : start + CANDIDATES] for start in range(0, len(numbers), CANDIDATES)]
        if closeness is not None and self._vectors is not None:
            among = None if groups is None else self._numbers_of(groups)
            close = self._vectors.nearest(closeness, CANDIDATES, among)
            batches = [list(dict.fromkeys([*(batches[0] if batches else ()), *close])), *batches[1:]]
            batches[1:] = [[number for number in batch if number not in batches[0]] for batch in batches[1:]]
        return [entry for batch in batches for entry in self._score_batch(query, batch, closeness)]

    def _judge(self, ranked: Sequence[_Ranked]) -> None:
        """Say of each hit of one query how sure it is: the best from all that is known, the others by how far they are behind it."""
        if not ranked:
            return
        best = sureness(self._evidence(ranked))
        for entry in ranked:
            entry.confidence = probability(best, ranked[0].worth - entry.worth)

    def _evidence(self, ranked: Sequence[_Ranked]) -> list[float]:
        best = ranked[0]
        hits = ranked[:COMPANY]
        tools, scores = [self._tool(entry.number) for entry in hits], [entry.score for entry in hits]
        values = evidence(best.query, self._corpus, tools, best.features, scores)
        if best.similarity is not None:
            values += (best.similarity, max(entry.similarity or 0.0 for entry in ranked))
        return values

    def _numbers_of(self, groups: Collection[int]) -> list[int]:
        return [number for group, numbers in self._servers.values() if group in groups for number in numbers]

    def _score_batch(self, query: Query, numbers: Sequence[int], closeness: Any) -> list[_Ranked]:
        similarities = self._similarities(numbers, closeness)
        by_group: dict[int, list[_Ranked]] = {}
        for number, similarity in zip(numbers, similarities, strict=True):
            tool = self._tool(number)
            vector = features(tool, query, self._corpus)
            kind = MatchKind.TERMS if vector[_COVERED] else MatchKind.MEANING
            entry = _Ranked(number, linear(vector), kind, query, vector, similarity)
            by_group.setdefault(tool.group, []).append(entry)
        ranked: list[_Placed] = []
        for group, members in by_group.items():
            siblings = sum(sorted([entry.score for entry in members])[-SIBLINGS_COUNTED:]) / SIBLINGS_COUNTED
            for entry in members:
                entry.score += WEIGHTS[_SIBLINGS] * siblings
                document = self._document(entry.number)
                # Rounded: in the last bits a score may depend on the machine, and the order must not.
                ranked.append((-round(entry.worth, 6), document.server, document.name, group, entry))
        ranked.sort(key=_IN_ORDER)
        return _spread(ranked)

    def _similarities(self, numbers: Sequence[int], closeness: Any) -> list[float] | list[None]:
        """The closeness of each number's tool; for those not embedded yet, that of an average candidate."""
        vectors = self._vectors
        if closeness is None or vectors is None:
            return [None] * len(numbers)
        known = [float(closeness[number]) for number in numbers if number in vectors]
        usual = sum(known) / len(known) if known else 0.0
        return [float(closeness[number]) if number in vectors else usual for number in numbers]

    def _literal(self, text: str, query: Query, groups: Collection[int] | None) -> list[_Ranked]:
        """Tools whose name, title or description contains the query as it stands: a scan, for queries without known words."""
        needle = fold(text)[:SUBSTRING_LIMIT]
        found = []
        for number, document in enumerate(self._documents):
            if document is None or (groups is not None and self._tool(number).group not in groups):
                continue
            for place, field in enumerate((document.name, document.title, document.description[:TEXT_LIMIT])):
                if needle in fold(field):
                    found.append((place, *self._order(number), number))
                    break
        found.sort()
        return [
            _Ranked(number, 0.0, MatchKind.SUBSTRING, query, confidence=SUBSTRING_CONFIDENCE) for *_, number in found
        ]

    def _result(self, ranked: list[_Ranked], limit: int, offset: int, threshold: float) -> SearchResult:
        page = tuple(self._hit(entry) for entry in ranked[offset : offset + limit])
        if ranked and max(entry.confidence for entry in ranked) >= threshold:
            return SearchResult(hits=page, total=len(ranked))
        nearest = dict.fromkeys(self._document(entry.number).server for entry in ranked)
        nearest.update(dict.fromkeys(self.servers if not ranked else ()))
        return SearchResult(
            nothing_fits=True, nearest=page, nearest_servers=tuple(nearest)[:NEAREST], total=len(ranked)
        )

    def _hit(self, entry: _Ranked) -> SearchHit:
        return SearchHit(self._document(entry.number), round(entry.confidence, 4), entry.kind, self._explain(entry))

    def _explain(self, entry: _Ranked) -> tuple[TermMatch, ...]:
        tool, vocabulary = self._tool(entry.number), self._corpus.vocabulary
        matches, joins, terms = entry.query.matches, entry.query.joins, entry.query.terms
        found: dict[int, tuple[int, int]] = {}
        for word in sorted(entry.query.wanted.intersection(tool.words), key=vocabulary.spellings.__getitem__):
            place = tool.places[tool.words.index(word)]
            if word in matches:
                term, _, is_exact = matches[word]
                other, places = found.get(term, (word, 0))
                found[term] = (word if is_exact else other, places | place)
            for term in joins.get(word, ()):
                found.setdefault(term, (word, place))
        return tuple(
            TermMatch(terms[term].word, vocabulary.spellings[word], _shown_fields(places))
            for term, (word, places) in sorted(found.items())
        )


@lru_cache(maxsize=256)
def _shown_fields(places: int) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for field, name in enumerate(_SHOWN_FIELDS) if places >> field & 1))


class _Ranked(msgspec.Struct):
    number: int
    score: float
    kind: MatchKind
    query: Query
    features: list[float] = []
    similarity: float | None = None
    confidence: float = 0.0

    @property
    def worth(self) -> float:
        """What it is ordered by: words and, if known, meaning."""
        return self.score if self.similarity is None else self.score + MEANING_WEIGHT * self.similarity


_Placed = tuple[float, str, str, int, _Ranked]
"""An entry behind what it is ordered by, worth (negative), server and name, and its group."""
_IN_ORDER: Final = itemgetter(0, 1, 2)


def _spread(ranked: Sequence[_Placed]) -> list[_Ranked]:
    """The same entries, those of servers and names that were there already moved back a little."""
    servers: dict[int, int] = {}
    names: dict[str, int] = {}
    waiting = list(ranked)
    spread: list[_Ranked] = []
    while waiting:
        best, best_score = 0, -math.inf
        for place, (negative, _, name, group, _) in enumerate(waiting):
            if -negative <= best_score:
                break  # penalties only lower a score, and what follows has no higher one
            score = -negative - (SAME_SERVER_PENALTY * servers.get(group, 0) + SAME_NAME_PENALTY * names.get(name, 0))
            if score > best_score:
                best, best_score = place, score
        _, _, name, group, entry = waiting.pop(best)
        servers[group] = servers.get(group, 0) + 1
        names[name] = names.get(name, 0) + 1
        spread.append(entry)
    return spread


def _take_turns(rankings: list[list[_Ranked]]) -> list[_Ranked]:
    """The best of each ranking, then the second of each, and so on; each tool once."""
    if len(rankings) == 1:
        return rankings[0]
    merged: dict[int, _Ranked] = {}
    for turn in zip_longest(*rankings):
        for entry in turn:
            if entry is not None:
                merged.setdefault(entry.number, entry)
    return list(merged.values())


def _schema_texts(schema: Mapping[str, Any] | None) -> tuple[str, str, str]:
    """Names, descriptions and enumerated values of the arguments. References are not followed."""
    names: list[str] = []
    texts: list[str] = []
    values: list[str] = []
    waiting: deque[Any] = deque([schema])
    for _ in range(SCHEMA_NODES):
        if not waiting:
            break
        node = waiting.popleft()
        if not isinstance(node, Mapping):
            continue
        for key in ("title", "description"):
            if isinstance(text := node.get(key), str) and node is not schema:
                texts.append(text[:TEXT_LIMIT])
        if isinstance(enumerated := node.get("enum"), list):
            values += [value for value in enumerated[:ENUMERATED] if isinstance(value, str)]
        for key in ("properties", "$defs", "definitions"):
            if isinstance(members := node.get(key), Mapping):
                if key == "properties":
                    names += [str(name) for name in members]
                waiting.extend(members.values())
        for key in ("items", "additionalProperties"):
            waiting.append(node.get(key))
        for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
            if isinstance(branches := node.get(key), list):
                waiting.extend(branches)
    return " ".join(names), " ".join(texts), " ".join(values)
