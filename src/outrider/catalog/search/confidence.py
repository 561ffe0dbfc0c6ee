"""How sure a search is that its best hit serves the query. Pure.

Decided here: what speaks for and against, and how it adds up to a number from 0 to 1, to be compared across queries and catalogs. Not
here: the order of hits (`ranking`), and where "nothing fits" begins (`index`).

The score that orders hits is a share of what the query could reach, which says little of whether it was reached by chance: two words of a
long task are found in some tool of any large catalog. So the same share counts for more if the words are rare here, if there are many,
if further hits score as well, and if few and short texts were searched. `benchmarks/search_fit_confidence.py` fits the weights, each
with the sign that its name promises; `docs/design/search.md` has what they reach.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from .ranking import FEATURES, Corpus, IndexedTool
from .vocabulary import Query

__all__ = ["EVIDENCE", "MEANING", "SIGNS", "evidence", "probability", "sureness"]

EVIDENCE: Final = (
    "score",  # of the best hit
    "agreement",  # the score of the fifth hit
    "pairs",  # neighbours in the query that are neighbours in the tool
    "weight found",  # summed rarity of the words found, in units of that of a word that no tool has
    "rarity",  # mean rarity of the query's known words, in the same unit
    "query length",  # logarithm of the number of words: a long query never reaches much of itself
    "words",  # the number of words: that of a task
    "unknown",  # words that no tool has
    "text length",  # of the best hit
    "catalog size",  # logarithm of the number of tools
)
MEANING: Final = (
    "closeness",  # of the best hit
    "closest",  # of any tool
)
SIGNS: Final = (1, 1, 1, 1, 1, 1, -1, -1, -1, -1, 1, 1)

WEIGHTS: Final = (0.35, 0.31, 1.5, 0.7, 7.0, 2.2, -0.05, -0.2, -0.007, -0.85)
CONSTANT: Final = -6.6
WEIGHTS_WITH_MEANING: Final = (0.23, 0.25, 0.55, 0.7, 6.7, 0.94, 0.0, -0.15, -0.005, -0.93, 0.7, 7.5)
CONSTANT_WITH_MEANING: Final = -6.3

LONGEST_TEXT: Final = 600.0
MOST_UNKNOWN: Final = 20.0
HEAVIEST: Final = 6.0
AGREEING: Final = 4
USUAL_RARITY: Final = 0.54
"""For a query without any known word, which only meaning can serve: its words must not count as common ones."""
_PAIRS: Final = FEATURES.index("pairs")


def evidence(
    query: Query,
    corpus: Corpus,
    tool: IndexedTool,
    features: Sequence[float],
    scores: Sequence[float],
) -> list[float]:
    """The values of `EVIDENCE` for a query whose best hit is `tool`.

    Args:
        query: what was asked.
        corpus: what was searched.
        tool: the best hit.
        features: its values of `ranking.FEATURES`.
        scores: of the hits, best first; at least one.
    """
    vocabulary, terms = corpus.vocabulary, query.terms
    unit = vocabulary.rarity(0)
    found: set[int] = set()
    for word in query.wanted.intersection(tool.words):
        if word in query.matches:
            found.add(query.matches[word][0])
        found.update(query.joins.get(word, ()))
    return [
        scores[0],
        scores[min(AGREEING, len(scores) - 1)],
        features[_PAIRS],
        min(HEAVIEST, sum(terms[term].rarity for term in sorted(found)) / unit),
        sum(term.rarity for term in terms) / len(terms) / unit if terms else USUAL_RARITY,
        math.log(max(1, len(terms))),
        len(terms),
        min(MOST_UNKNOWN, query.unknown_weight / unit),
        min(LONGEST_TEXT, tool.length),
        math.log(vocabulary.tools),
    ]


def sureness(values: Sequence[float]) -> float:
    """The weighted sum of `EVIDENCE`, or of `EVIDENCE` and `MEANING`; 0 where answerable and foreign queries are as many."""
    if len(values) == len(WEIGHTS):
        return sum(map(float.__mul__, WEIGHTS, map(float, values))) + CONSTANT
    return sum(map(float.__mul__, WEIGHTS_WITH_MEANING, map(float, values))) + CONSTANT_WITH_MEANING


def probability(sureness_of_best: float, behind: float) -> float:
    """A number from 0 to 1 for a hit that is `behind` the best one in what hits are ordered by."""
    return 1 / (1 + math.exp(-sureness_of_best + WEIGHTS[0] * behind))
