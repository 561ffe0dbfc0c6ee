"""What a match is worth: the features of a (query, tool) pair and the weights that add them up.

Decided here: how the candidates that the inverted index proposes are ordered. Not here: where words come from (`analysis`), how
candidates are found and names looked up (`index`), how sure we are of the best of them (`confidence`). Pure.

All features are fractions of what the query could reach at most, so that one set of weights holds for catalogs of 10 and of 100,000
tools. All weights are positive, since each feature is evidence *for* a tool: free signs fitted the tuned sets better and fell
apart on sets left out. `docs/design/search.md` has the measurements; `benchmarks/search_fit.py` fits weights like these, which are
rounded and rank as well as any fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Final

from .vocabulary import Query, Vocabulary

__all__ = [
    "FEATURES",
    "FIELDS",
    "FIELD_QUARTERS",
    "MEANING_WEIGHT",
    "WEIGHTS",
    "Corpus",
    "IndexedTool",
    "features",
    "found_terms",
    "linear",
]

FIELDS: Final = ("name", "title", "description", "parameters", "parameter texts", "tags", "server", "server texts")
"""The texts of a tool, in the order in which their words are given."""
NAME, TITLE, DESCRIPTION, PARAMETERS, PARAMETER_TEXTS, TAGS, SERVER, SERVER_TEXTS = range(len(FIELDS))

FIELD_QUARTERS: Final = (10, 6, 6, 4, 3, 3, 8, 2)
"""What one occurrence counts, by field, in quarters: a word in the name is worth two and a half in the parameters."""

FEATURES: Final = (
    "bm25",  # BM25F over stems plus over exact forms
    "parameter_texts",  # share of the query's weight that the descriptions of parameters have
    "covered",  # share of the query's weight that the tool has in any field
    "covered_count",  # the same with all words alike
    "label",  # share of the tool's own name (or title, if better) that the query mentions
    "server",  # share of the server's name that the query mentions
    "opening",  # share of the first words of the description
    "summary",  # share of the first sentences of the description
    "parameters",  # share of the parameter names
    "pairs",  # neighbours in the query that are neighbours in the tool
    "phrase",  # the whole name stands in the query, in order
    "rarest",  # has the rarest known word of the query
    "siblings",  # other candidates of the same server score well too
)
WEIGHTS: Final = (1.8, 1.0, 3.9, 1.3, 1.9, 1.4, 0.9, 1.2, 0.6, 1.1, 0.3, 0.4, 0.2)

MEANING_WEIGHT: Final = 6.0
"""What closeness in meaning, from -1 to 1, adds to a score. Between 6 and 12 the measures hardly change."""

K1: Final = 1.5
B: Final = 0.75
OPENING_WORDS: Final = 8
SUMMARY_WORDS: Final = 30
ORDERED_WORDS: Final = 30
"""Words of a description in which neighbours are looked for."""
IN_NAME, IN_TITLE, IN_SERVER, IN_PARAMETERS, IN_PARAMETER_TEXTS = (
    1 << field for field in (NAME, TITLE, SERVER, PARAMETERS, PARAMETER_TEXTS)
)
_IN_PARTS: Final = IN_NAME | IN_TITLE | IN_SERVER | IN_PARAMETERS | IN_PARAMETER_TEXTS
# From the places of a word to whether it is in a field, for all words of a tool at once.
_HAS_SERVER, _HAS_PARAMETERS = (bytes([places & bit for places in range(256)]) for bit in (IN_SERVER, IN_PARAMETERS))


class Corpus:
    """What ranking knows of the collection as a whole.

    Attributes:
        vocabulary: the words of the live tools.
        length: sum of their weighted lengths.
    """

    def __init__(self) -> None:
        self.vocabulary = Vocabulary()
        self.length = 0.0

    def count(self, tool: IndexedTool, sign: int) -> None:
        """Take `tool` into the statistics (`sign` 1), or out of them (-1)."""
        self.vocabulary.count(tool.words, sign)
        self.length += sign * tool.length


class IndexedTool:
    """A tool as word ids, laid out so that ranking touches each distinct word once.

    Attributes:
        group: what the engine removes it by.
        words: the distinct words.
        quarters: for each of them, its occurrences weighted by field, in quarters, at most 255.
        places: for each of them, a bit for each field that has it.
        opening: the stems of name, title and the first `ORDERED_WORDS` words of the description, in order.
        name_end, title_end: where the title and the description begin in `opening`.
        length: number of words weighted by field.
    """

    __slots__ = (
        "generation",
        "group",
        "length",
        "masses",
        "name_end",
        "opening",
        "places",
        "quarters",
        "title_end",
        "words",
    )

    def __init__(self, fields: Sequence[Sequence[int]], group: int, stem_of: Sequence[int]) -> None:
        # One entry a word: the quarters, and in the lower eight bits the fields.
        entries: dict[int, int] = {}
        length = 0
        for field, words in enumerate(fields):
            quarters, bit = FIELD_QUARTERS[field], 1 << field
            length += quarters * len(words)
            step = quarters << 8
            for word in words:
                entries[word] = entries.get(word, 0) + step | bit
        self.group = group
        self.words = tuple(entries)
        self.quarters = bytes([min(entry >> 8, 255) for entry in entries.values()])
        self.places = bytes([entry & 255 for entry in entries.values()])
        opening = (*fields[NAME], *fields[TITLE], *fields[DESCRIPTION][:ORDERED_WORDS])
        self.opening = tuple(map(stem_of.__getitem__, opening))
        self.name_end = len(fields[NAME])
        self.title_end = self.name_end + len(fields[TITLE])
        self.length = length / 4
        self.generation = -1
        self.masses: tuple[float, ...] = ()

    def refresh(self, vocabulary: Vocabulary) -> None:
        """Bring `masses` up to date: the summed rarity of each part whose share is a feature."""
        mass, stem_of = vocabulary.mass, vocabulary.stem_of
        opening, name_end, title_end = self.opening, self.name_end, self.title_end
        self.masses = (
            mass(opening[:name_end]),
            mass(opening[name_end:title_end]),
            mass(opening[title_end : title_end + OPENING_WORDS]),
            mass(opening[title_end : title_end + SUMMARY_WORDS]),
            *[
                mass(map(stem_of.__getitem__, compress(self.words, self.places.translate(has_field))))
                for has_field in (_HAS_SERVER, _HAS_PARAMETERS)
            ],
        )
        self.generation = vocabulary.generation


def features(tool: IndexedTool, query: Query, corpus: Corpus) -> list[float]:
    """The values of `FEATURES` for one tool, `siblings` left at 0 since it needs the other candidates.

    This runs for every candidate of every search: it is written for speed.
    """
    if not query.terms:
        return [0.0] * len(FEATURES)
    vocabulary = corpus.vocabulary
    if tool.generation != vocabulary.generation:
        tool.refresh(vocabulary)
    terms, positions, matches = query.terms, query.positions, query.matches
    joins, joined_stems, pairs = query.joins, query.joined_stems, query.pairs
    occurrences: dict[int, float] = {}
    exact_occurrences: dict[int, float] = {}
    places: dict[int, int] = {}
    words, quarters, tool_places = tool.words, tool.quarters, tool.places
    # Intersecting with a tuple of shared integers is four times as fast as looking each of its words up from here. Then in the order
    # of the tool: sums in the order of a set, which is that of the ids, would depend on which tools came first.
    for position in sorted(map(words.index, query.wanted.intersection(words))):
        word, weight, place = words[position], quarters[position], tool_places[position]
        if word in matches:
            term, share, is_exact = matches[word]
            if term in occurrences:
                occurrences[term] += weight * share
                places[term] |= place
            else:
                occurrences[term], places[term] = weight * share, place
            if is_exact:
                exact_occurrences[term] = weight
        if word in joins:
            for term in joins[word]:
                occurrences[term] = occurrences.get(term, 0.0) + weight
                places[term] = places.get(term, 0) | place
    norm = 4 * K1 * (1 - B + B * tool.length * vocabulary.tools / (corpus.length or 1))
    bm25 = covered = in_parameters = rarest = name = title = server = parameters = 0.0
    for term, count in occurrences.items():
        entry, place = terms[term], places[term]
        rarity, asked = entry.rarity, entry.weight
        bm25 += asked * count * (K1 + 1) / (count + norm)
        if term in exact_occurrences:
            exact = exact_occurrences[term]
            bm25 += entry.exact_weight * exact * (K1 + 1) / (exact + norm)
        covered += asked
        if rarity > rarest:
            rarest = rarity
        if not place & _IN_PARTS:
            continue  # in the description only, as most are
        if place & IN_NAME:
            name += rarity
        if place & IN_TITLE:
            title += rarity
        if place & IN_SERVER:
            server += rarity
        if place & IN_PARAMETERS:
            parameters += rarity
        if place & IN_PARAMETER_TEXTS:
            in_parameters += asked
    opening, name_end, title_end = tool.opening, tool.name_end, tool.title_end
    opening_end, summary_end = title_end + OPENING_WORDS, title_end + SUMMARY_WORDS
    in_opening: set[int] = set()
    in_summary: set[int] = set()
    neighbours: set[tuple[int, int]] = set()
    last, last_position = -1, -2
    for position, term in [(index, positions[stem]) for index, stem in enumerate(opening) if stem in positions]:
        if last_position == position - 1 and (last, term) in pairs:
            neighbours.add((last, term))
        last, last_position = term, position
        if title_end <= position < summary_end:
            in_summary.add(term)
            if position < opening_end:
                in_opening.add(term)
    for stem in joined_stems.keys() & opening if joined_stems else ():
        if len(joined_stems[stem]) == 2:
            neighbours.add(joined_stems[stem])  # type: ignore[arg-type]
    name_mass, title_mass, opening_mass, summary_mass, server_mass, parameters_mass = tool.masses
    total = query.weight
    named = _share(name, name_mass) if name else 0.0
    return [
        bm25 / total,
        in_parameters / total,
        covered / total,
        len(occurrences) / len(terms),
        max(named, _share(title, title_mass)) if title else named,
        _share(server, server_mass) if server else 0.0,
        _share(sum([terms[term].rarity for term in in_opening]), opening_mass) if in_opening else 0.0,
        _share(sum([terms[term].rarity for term in in_summary]), summary_mass) if in_summary else 0.0,
        _share(parameters, parameters_mass) if parameters else 0.0,
        sum([terms[left].weight + terms[right].weight for left, right in neighbours]) / total,
        1.0 if named >= 1.0 and name_end > 1 and _stands_in(opening[:name_end], query.stems) else 0.0,
        1.0 if rarest >= query.rarest else 0.0,
        0.0,
    ]


def found_terms(tool: IndexedTool, query: Query) -> dict[int, tuple[int, bool]]:
    """The terms of `query` that `tool` has: position to (a bit for each field that has it, whether in the form that was asked for)."""
    matches, joins = query.matches, query.joins
    found: dict[int, tuple[int, bool]] = {}
    for word in query.wanted.intersection(tool.words):
        place = tool.places[tool.words.index(word)]
        if word in matches:
            term, _, is_exact = matches[word]
            places, was_exact = found.get(term, (0, False))
            found[term] = (places | place, was_exact or is_exact)
        for term in joins.get(word, ()):
            places, was_exact = found.get(term, (0, False))
            found[term] = (places | place, was_exact)
    return found


def _share(part: float, whole: float) -> float:
    # A joined spelling can cover more than the word it stands for; a name of stop words only weighs nothing ("do_it", asked "doing").
    return min(1.0, part / whole) if whole else 0.0


def _stands_in(name: tuple[int, ...], stems: Sequence[int]) -> bool:
    length = len(name)
    return any(
        stems[start] == name[0] and tuple(stems[start : start + length]) == name
        for start in range(len(stems) - length + 1)
    )


def linear(values: Sequence[float]) -> float:
    """The weighted sum of a feature vector: what candidates are ordered by."""
    return sum(map(float.__mul__, WEIGHTS, values))
