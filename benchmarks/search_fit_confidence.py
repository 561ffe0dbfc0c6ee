"""Fits how sure the search is of its best hit: `python benchmarks/search_fit_confidence.py --data DIR [--semantic]`. Needs numpy and scipy.

Learns on the tuning half of the queries of `search.py`: a logistic regression that tells queries of a set from queries of the others, every
set weighing the same, each weight with the sign that its name promises. Prints the weights, and what share of both kinds gets "nothing
fits" on the other half, with the threshold that turns away 3 % of the answerable ones of the tuning half; then the same for weights and
threshold that were fitted without the set: `outrider.catalog.search.confidence` has the fit in round numbers.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy
from scipy.optimize import minimize
from search import CROWDED, Set, index_of, is_reported, load, same_domain
from search_fit import family

from outrider.catalog.search.confidence import EVIDENCE, MEANING, SIGNS
from outrider.catalog.search.index import CANDIDATES, TERM_LIMIT

OWN: Final = 800
STRANGERS: Final = 160
"""Queries of one set that are asked of itself, and of each other set."""
SHRINKAGE: Final = 3e-4
TURNED_AWAY: Final = 0.03


class Asked:
    """What speaks for the best hit of each query that was asked of one set."""

    def __init__(self, one: Set, sets: Sequence[Set], semantic: bool) -> None:
        chance = random.Random(5)
        index = index_of(one.documents, semantic)
        index.search("first search commits")
        asked = [(query, True) for query in chance.sample(one.queries, min(OWN, len(one.queries)))]
        for other in sets:
            if not same_domain(other.name, one.name):
                asked += [(q, False) for q in chance.sample(other.queries, min(STRANGERS, len(other.queries)))]
        rows, marks = [], []
        for query, is_own in asked:
            text = query["text"]
            if index._named(text, None):
                continue
            # The insides of the index: a fit needs what no caller needs.
            parsed = index._corpus.vocabulary.parse(text, most_terms=TERM_LIMIT)
            ranked = index._score(parsed, CANDIDATES, None, index._closeness(text))
            if ranked:
                rows.append(index._evidence(ranked))
                marks.append((is_own, is_reported(query, "reported")))
        self.rows = numpy.array(rows)
        self.is_own, self.is_reported = numpy.array(marks).T


def fit(parts: Sequence[tuple[Any, Any]], signs: Any) -> Any:
    """Weights, the last of them the constant."""
    x = numpy.concatenate([rows for rows, _ in parts])
    y = numpy.concatenate([is_own for _, is_own in parts]).astype(float)
    share = numpy.concatenate(
        [numpy.where(own, 0.5 / own.mean(), 0.5 / (1 - own.mean())) / own.size for _, own in parts]
    )
    share /= share.sum()
    centre, spread = x.mean(0), x.std(0)
    z = (x - centre) / spread

    def loss(weights: Any) -> tuple[float, Any]:
        total = z @ weights[:-1] + weights[-1]
        slope = share * (1 / (1 + numpy.exp(-total)) - y)
        value = (share * (numpy.logaddexp(0, total) - y * total)).sum() + SHRINKAGE * (weights[:-1] ** 2).sum()
        return value, numpy.append(z.T @ slope + 2 * SHRINKAGE * weights[:-1], slope.sum())

    bounds = [(0, None) if sign > 0 else (None, 0) for sign in signs] + [(None, None)]
    found = minimize(loss, numpy.zeros(x.shape[1] + 1), jac=True, method="L-BFGS-B", bounds=bounds).x
    weights = found[:-1] / spread
    return numpy.append(weights, found[-1] - weights @ centre)


def sure(weights: Any, rows: Any) -> Any:
    return rows @ weights[:-1] + weights[-1]


def threshold_of(weights: Any, parts: Sequence[tuple[Any, Any]]) -> float:
    """Where `TURNED_AWAY` of the answerable queries are, every set weighing the same."""
    answerable = [sure(weights, rows[own]) for rows, own in parts]
    low, high = -50.0, 50.0
    for _ in range(50):
        middle = (low + high) / 2
        if numpy.mean([(values < middle).mean() for values in answerable]) <= TURNED_AWAY:
            low = middle
        else:
            high = middle
    return low


def turned_away(weights: Any, threshold: float, rows: Any, own: Any) -> tuple[float, float]:
    values = sure(weights, rows) < threshold
    return round(100 * values[own].mean(), 1), round(100 * values[~own].mean(), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="directory of the sets")
    parser.add_argument("--semantic", action="store_true", help="with the semantic ranker of outrider[semantic]")
    options = parser.parse_args()
    sets = [one for one in load(options.data, "all")[0] if not one.name.endswith(CROWDED)]
    asked = {one.name: Asked(one, sets, options.semantic) for one in sets}
    names = (*EVIDENCE, *MEANING)[: next(iter(asked.values())).rows.shape[1]]
    tuned = {name: (one.rows[~one.is_reported], one.is_own[~one.is_reported]) for name, one in asked.items()}
    other = {name: (one.rows[one.is_reported], one.is_own[one.is_reported]) for name, one in asked.items()}
    whole = {name: (one.rows, one.is_own) for name, one in asked.items()}
    weights = fit(list(tuned.values()), SIGNS[: len(names)])
    for name, weight in zip((*names, "constant"), weights, strict=True):
        print(f"{name:20}{weight:9.3f}")
    threshold = threshold_of(weights, list(tuned.values()))
    print(f"{'threshold':20}{threshold:9.3f}\n\n{'turned away, percent':28}{'other half':^18}{'left out':^18}")
    for name in asked:
        kept = [part for one, part in whole.items() if family(one) != family(name)]
        without = fit(kept, SIGNS[: len(names)])
        cells = (
            *turned_away(weights, threshold, *other[name]),
            *turned_away(without, threshold_of(without, kept), *whole[name]),
        )
        print(f"{name:28}" + "".join(f"{cell:9.1f}" for cell in cells))
        other[name] = cells  # type: ignore[assignment]
    print(f"{'average':28}" + "".join(f"{numpy.mean(column):9.1f}" for column in zip(*other.values(), strict=True)))


if __name__ == "__main__":
    main()
