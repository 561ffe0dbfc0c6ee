"""What a match is worth: the same for the same tools, to the last bit."""

from __future__ import annotations

import random

from outrider.catalog.search.ranking import FIELDS, Corpus, IndexedTool, features

WORDS = [first + second for first in ("ba", "do", "ki", "lu", "me", "po", "ra") for second in ("nal", "ster", "vic")]


def corpus_of(tools: list[list[list[str]]]) -> tuple[Corpus, list[IndexedTool]]:
    corpus, indexed = Corpus(), []
    for fields in tools:
        tool = IndexedTool(list(map(corpus.vocabulary.intern, fields)), 0, corpus.vocabulary.stem_of)
        corpus.count(tool, 1)
        indexed.append(tool)
    return corpus, indexed


def test_a_match_is_worth_the_same_whichever_tools_came_first() -> None:
    """Ours: sums are made in the order of the text; in the order of a set they would differ in the last bit, and a page with them."""
    chance = random.Random(3)
    tools = [[chance.choices(WORDS, k=chance.randint(1, 9)) for _ in FIELDS] for _ in range(40)]
    queries = [" ".join(chance.choices(WORDS, k=9)) for _ in range(20)]
    (forth, numbered), (back, reverse) = corpus_of(tools), corpus_of(tools[::-1])
    for text in queries:
        one, other = (corpus.vocabulary.parse(text, most_terms=40) for corpus in (forth, back))
        assert [features(tool, one, forth) for tool in numbered] == [
            features(tool, other, back) for tool in reversed(reverse)
        ]


def test_what_a_name_weighs_is_that_of_the_tools_there_are_now() -> None:
    """Case 64: a weight that was summed up for one search is not that of the next, after tools have come or gone."""
    plain = [["list"], [], ["one"], [], [], [], [], []]
    alone, (tool,) = corpus_of([[["list", "issues"], [], ["several", "issues"], [], [], [], [], []]])

    def asked() -> list[float]:
        return features(tool, alone.vocabulary.parse("issues", most_terms=40), alone)

    first = asked()
    more = [IndexedTool(list(map(alone.vocabulary.intern, plain)), 1, alone.vocabulary.stem_of) for _ in range(9)]
    for other in more:
        alone.count(other, 1)
    together, (same, *_) = corpus_of(
        [[["list", "issues"], [], ["several", "issues"], [], [], [], [], []], *[plain] * 9]
    )
    assert asked() == features(same, together.vocabulary.parse("issues", most_terms=40), together) != first
    for other in more:
        alone.count(other, -1)
    assert asked() == first
