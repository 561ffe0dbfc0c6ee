"""Fits how sure the search is of its best hit: `python benchmarks/search_fit_confidence.py --data DIR [--semantic]`. Needs numpy and scipy.

Learns on the tuning half of the queries of `search.py` to tell queries of a set from queries of the others, every set weighing the same,
each weight with the sign that its name promises. First a logistic regression; from there, what matters at the threshold alone: the share of
foreign queries that get through and the share of answerable ones turned away, each of the latter counting `COST` times, with the
step at the threshold smoothed. The sum is scaled so that its logistic curve is a probability again. Prints the weights, and what share of
both kinds gets "nothing fits" on the other half, with the threshold that turns away 3 % of the answerable ones of the tuning half; then the
same for weights and threshold that were fitted without the set: `outrider.catalog.search.confidence` has the fit in round numbers.
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

OWN: Final = 1600
STRANGERS: Final = 400
"""Queries of one set that are asked of itself, and of each other set."""
SHRINKAGE: Final = 3e-4
COST: Final = 4.0
SOFTNESS: Final = 0.7
"""Of the step at the threshold, in units of the logistic regression's sum."""
LOYALTY: Final = 3e-3
"""What straying from the logistic regression costs: the last errors of one set are not worth much."""
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
    own = numpy.concatenate([is_own for _, is_own in parts])
    centre, spread = x.mean(0), x.std(0) + 1e-9
    z = (x - centre) / spread
    bounds = [(0, None) if sign > 0 else (None, 0) for sign in signs] + [(None, None)]

    def minimal(loss: Any, start: Any) -> Any:
        return minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x

    even = shares(parts, 1.0)

    def likelihood(weights: Any) -> tuple[float, Any]:
        total = z @ weights[:-1] + weights[-1]
        slope = even * (1 / (1 + numpy.exp(-total)) - own)
        value = (even * (numpy.logaddexp(0, total) - own * total)).sum() + SHRINKAGE * (weights[:-1] ** 2).sum()
        return value, numpy.append(z.T @ slope + 2 * SHRINKAGE * weights[:-1], slope.sum())

    logistic = minimal(likelihood, numpy.zeros(x.shape[1] + 1))
    logistic[-1] -= threshold_of(logistic, [((rows - centre) / spread, is_own) for rows, is_own in parts])
    costs, wrong = shares(parts, COST), numpy.where(own, -1.0, 1.0)

    def errors(weights: Any) -> tuple[float, Any]:
        total = z @ weights[:-1] + weights[-1]
        mistaken = 1 / (1 + numpy.exp(-numpy.clip(wrong * total / SOFTNESS, -40, 40)))
        slope = costs * mistaken * (1 - mistaken) * wrong / SOFTNESS
        away = weights[:-1] - logistic[:-1]
        value = (costs * mistaken).sum() + LOYALTY * (away**2).sum()
        return value, numpy.append(z.T @ slope + 2 * LOYALTY * away, slope.sum())

    sharp = minimal(errors, logistic)
    total = z @ sharp[:-1] + sharp[-1]

    def calibration(line: Any) -> tuple[float, Any]:
        value = line[0] * total + line[1]
        slope = even * (1 / (1 + numpy.exp(-value)) - own)
        return (even * (numpy.logaddexp(0, value) - own * value)).sum(), numpy.array(
            [(slope * total).sum(), slope.sum()]
        )

    scale, shift = minimize(calibration, numpy.array([1.0, 0.0]), jac=True, method="L-BFGS-B").x
    weights = scale * sharp[:-1] / spread
    return numpy.append(weights, scale * sharp[-1] + shift - weights @ centre)


def shares(parts: Sequence[tuple[Any, Any]], cost: float) -> Any:
    """What each row weighs: every set alike, and in it foreign queries 1 and answerable ones `cost` together."""
    rows = numpy.concatenate([numpy.where(own, cost / own.sum(), 1 / (~own).sum()) for _, own in parts])
    return rows / rows.sum()


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
