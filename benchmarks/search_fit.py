"""Fits the weights of the search's features: `python benchmarks/search_fit.py --data DIR`. Needs numpy and scipy.

Learns on the tuning half of the queries of `search.py`: a listwise softmax over the candidates of each query, every set weighing the same,
no weight below zero. Prints the weights, what they and the built-in ones reach on the other half, and what weights fitted on
all other sets reach on each set, which is the number to trust: `outrider.catalog.search.ranking` has the fit in round numbers.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy
from scipy.optimize import minimize
from search import HITS, METRICS, Set, index_of, is_reported, load, mean, metrics_of

from outrider.catalog.search.index import TERM_LIMIT
from outrider.catalog.search.ranking import FEATURES, WEIGHTS, features

CANDIDATES: Final = 40
SHRINKAGE: Final = 0.03
SIBLINGS: Final = FEATURES.index("siblings")


class Asked:
    """A query with the features of its candidates, and which of those are right."""

    def __init__(self, query: Mapping[str, Any], identifiers: list[str], vectors: list[list[float]]) -> None:
        self.query = query
        self.identifiers = identifiers
        self.vectors = numpy.array(vectors).reshape(-1, len(FEATURES))
        right = {member for group in query.get("relevant_groups") or [query["relevant"]] for member in group}
        self.right = numpy.array([float(identifier in right) for identifier in identifiers])


def candidates(one: Set) -> list[Asked]:
    # The insides of the index: a fit needs what no caller needs.
    index = index_of(one.documents, semantic=False)
    index.search("first search commits")
    vocabulary = index._corpus.vocabulary
    result = []
    for query in one.queries:
        parsed = vocabulary.parse(query["text"], most_terms=TERM_LIMIT)
        wanted = [(vocabulary.stem_spellings[term.stem], term.weight / term.rarity) for term in parsed.terms]
        numbers = index._engine.search(wanted, limit=CANDIDATES)
        vectors = [features(index._tool(number), parsed, index._corpus) for number in numbers]
        result.append(Asked(query, [index._document(number).aliases[0] for number in numbers], vectors))
    return result


def fit(sets: Sequence[Sequence[Asked]]) -> Any:
    vectors, targets, starts, shares, position = [], [], [], [], 0
    for members in sets:
        learnable = [asked for asked in members if asked.right.any()]
        for asked in learnable:
            vectors.append(asked.vectors)
            targets.append(asked.right / asked.right.sum())
            starts.append(position)
            shares.append(1 / len(learnable))
            position += len(asked.right)
    x, y = numpy.concatenate(vectors), numpy.concatenate(targets)
    owner = numpy.repeat(numpy.arange(len(starts)), numpy.diff([*starts, position]))
    share, spread = numpy.array(shares)[owner], x.std(0)

    def loss(weights: Any) -> tuple[float, Any]:
        scores = x @ weights
        scores = scores - numpy.maximum.reduceat(scores, starts)[owner]
        exponents = numpy.exp(scores)
        sums = numpy.add.reduceat(exponents, starts)[owner]
        value = -(share * y * (scores - numpy.log(sums))).sum() + SHRINKAGE * ((weights * spread) ** 2).sum()
        return value, x.T @ (share * (exponents / sums - y)) + 2 * SHRINKAGE * weights * spread**2

    # Siblings depend on the weights; the share of it is set by hand.
    bounds = [(0, 0) if place == SIBLINGS else (0, None) for place in range(len(FEATURES))]
    return minimize(loss, numpy.zeros(len(FEATURES)), jac=True, method="L-BFGS-B", bounds=bounds).x


def judged(weights: Any, members: Sequence[Asked]) -> dict[str, float]:
    rows = []
    for asked in members:
        order = numpy.argsort(-(asked.vectors @ weights), kind="stable")[:HITS]
        rows.append(metrics_of([asked.identifiers[place] for place in order], asked.query))
    return mean(rows)


def family(name: str) -> str:
    return name.partition("_")[0].partition("+")[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="directory of the sets")
    sets = {one.name: candidates(one) for one in load(parser.parse_args().data, "all")[0]}
    tuned = {name: [asked for asked in members if is_reported(asked.query, "tuned")] for name, members in sets.items()}
    others = {
        name: [asked for asked in members if is_reported(asked.query, "reported")] for name, members in sets.items()
    }
    fitted = fit(list(tuned.values()))
    for feature, weight, built_in in zip(FEATURES, fitted, WEIGHTS, strict=True):
        print(f"{feature:20}{weight:8.2f}   built in {built_in:5.2f}")
    for title, weights in (("fitted", fitted), ("built in", numpy.array(WEIGHTS))):
        print(f"{title:10} on the other half", mean(judged(weights, members) for members in others.values()))
    rows = []
    for name, members in sets.items():
        rows.append(judged(fit([held for other, held in sets.items() if family(other) != family(name)]), members))
        print(f"left out: {name:24}", {metric: rows[-1][metric] for metric in METRICS})
    print("left out, average", mean(rows))


if __name__ == "__main__":
    main()
