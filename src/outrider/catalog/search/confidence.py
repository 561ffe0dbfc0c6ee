"""How sure a search is that its best hit serves the query. Pure.

Decided here: what speaks for and against, and how it adds up to a number from 0 to 1, to be compared across queries and catalogs. Not
here: the order of hits (`ranking`), what of a query is its subject (`wording`), and where "nothing fits" begins (`index`).

The score that orders hits is a share of what the query could reach, which says little of whether it was reached by chance: two words of a
long task are found in some tool of any large catalog. So the same share counts for more if the words are rare here, if they are
what the query is about, if other tools have them together as well, and if few and short texts were searched.
`benchmarks/search_fit_confidence.py` fits the weights, each with the sign that its name promises; `docs/design/search.md` has what
they reach.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Final

from .ranking import FEATURES, IN_NAME, Corpus, IndexedTool, found_terms
from .vocabulary import Query
from .wording import Role

__all__ = ["COMPANY", "EVIDENCE", "MEANING", "SIGNS", "evidence", "probability", "sureness"]

EVIDENCE: Final = (
    "score",  # of the best hit
    "agreement",  # the score of the fifth hit
    "pairs",  # neighbours in the query that are neighbours in the tool
    "rarity",  # mean rarity of the query's known words, in units of that of a word that no tool has
    "query length",  # logarithm of the number of known words: a long query never reaches much of itself
    "covered",  # share of the subject, by rarity, that the tool has; what no tool has counts as missing
    "exact",  # summed rarity of the subject's words that the tool has as they were asked for
    "named",  # summed rarity of the subject's words in the tool's name
    "company",  # logarithm of the pairs of the subject's words that the tool has and another hit has together, too
    "unknown",  # the subject's words that no tool has
    "text length",  # of the best hit
    "catalog size",  # logarithm of the number of tools
)
MEANING: Final = (
    "closeness",  # of the best hit
    "closest",  # of any tool
)
SIGNS: Final = (1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, 1, 1)

WEIGHTS: Final = (0.17, 0.23, 2.1, 6.8, 0.78, 2.5, 0.51, 0.44, 0.58, -0.17, -0.008, -0.97)
CONSTANT: Final = -2.75
WEIGHTS_WITH_MEANING: Final = (0.12, 0.155, 1.44, 6.6, 0.31, 1.7, 0.43, 0.07, 0.55, -0.09, -0.005, -0.84, 1.9, 6.5)
CONSTANT_WITH_MEANING: Final = -4.97

LONGEST_TEXT: Final = 600.0
MOST_UNKNOWN: Final = 20.0
AGREEING: Final = 4
COMPANY: Final = 12
"""Hits that are looked at, the best among them."""
USUAL_RARITY: Final = 0.54
"""For a query without any known word, which only meaning can serve: its words must not count as common ones."""
_PAIRS: Final = FEATURES.index("pairs")


def evidence(
    query: Query, corpus: Corpus, tools: Sequence[IndexedTool], features: Sequence[float], scores: Sequence[float]
) -> list[float]:
    """The values of `EVIDENCE` for a query.

    Args:
        query: what was asked.
        corpus: what was searched.
        tools: the hits, best first; at least one, and not more than `COMPANY` are looked at.
        features: the values of `ranking.FEATURES` of the best hit.
        scores: of the hits.
    """
    vocabulary, terms = corpus.vocabulary, query.terms
    unit = vocabulary.rarity(0)
    best = tools[0]
    subject = {term: match for term, match in found_terms(best, query).items() if terms[term].role is Role.SUBJECT}
    covered = exact = named = 0.0
    for term, (places, is_exact) in sorted(subject.items()):
        rarity = terms[term].rarity
        covered += rarity
        exact += rarity * is_exact
        named += rarity if places & IN_NAME else 0.0
    asked = sum([term.rarity for term in terms if term.role is Role.SUBJECT]) + query.unknown_weight
    return [
        scores[0],
        scores[min(AGREEING, len(scores) - 1)],
        features[_PAIRS],
        sum([term.rarity for term in terms]) / len(terms) / unit if terms else USUAL_RARITY,
        math.log(max(1, len(terms))),
        covered / asked if asked else 0.0,
        exact / unit,
        named / unit,
        math.log1p(_company(subject.keys(), [found_terms(tool, query) for tool in tools[1:COMPANY]])),
        min(MOST_UNKNOWN, query.unknown_weight / unit),
        min(LONGEST_TEXT, best.length),
        math.log(vocabulary.tools),
    ]


def _company(terms: Iterable[int], others: Sequence[Mapping[int, object]]) -> int:
    """How many pairs of `terms` some of the others has both of."""
    having = [sum(1 << place for place, other in enumerate(others) if term in other) for term in terms]
    return sum(left & right != 0 for left, right in combinations(having, 2))


def sureness(values: Sequence[float]) -> float:
    """The weighted sum of `EVIDENCE`, or of `EVIDENCE` and `MEANING`; 0 where answerable and foreign queries are as many."""
    if len(values) == len(WEIGHTS):
        return sum(map(float.__mul__, WEIGHTS, map(float, values))) + CONSTANT
    return sum(map(float.__mul__, WEIGHTS_WITH_MEANING, map(float, values))) + CONSTANT_WITH_MEANING


def probability(sureness_of_best: float, behind: float) -> float:
    """A number from 0 to 1 for a hit that is `behind` the best one in what hits are ordered by."""
    return 1 / (1 + math.exp(-sureness_of_best + WEIGHTS[0] * behind))
