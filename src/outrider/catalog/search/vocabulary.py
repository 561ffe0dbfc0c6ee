"""The words that the tools of the index have, how many tools have each, and which of them a query means.

Decided here: what makes two words the same (stem, closed-up spelling, one repaired typo), and what a query word weighs. Not here: which
words are the subject of a query (`wording`). Pure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from .analysis import STOP_WORDS, split_words, stem
from .typos import Spellings
from .wording import Role, roles

__all__ = ["Query", "QueryTerm", "Vocabulary"]

REPAIRS_LIMIT: Final = 8
"""Unknown words of one query for which a repair is sought; a long text in another language must not cost seconds."""
SHORTEST_REPAIRED: Final = 4
REPAIR_SHARE: Final = 0.6
"""What an occurrence of the repaired word counts, against 1 for the word that was asked for."""

ASIDE_SHARE: Final = 0.5
"""What a word counts that is not of the query's subject."""


class QueryTerm(msgspec.Struct):
    """A distinct word of a query that some tool has.

    Attributes:
        word: as asked, folded.
        stem: id of the stem.
        rarity: inverse document frequency of the stem.
        weight: rarity times the square root of the number of times the query has it, less for a repaired word and for one that is
            not of the query's subject.
        exact_weight: the same for the exact form; 0 if no tool has that.
        role: what the query has it for.
    """

    word: str
    stem: int
    rarity: float
    weight: float
    exact_weight: float
    role: Role = Role.SUBJECT


class Query(msgspec.Struct):
    """A text as a query against one state of a vocabulary.

    Attributes:
        terms: the words that tools have.
        positions: stem id to position in `terms`.
        matches: word id to (position in `terms`, share of an occurrence that it counts, whether it is the exact form).
        joins: word id to the positions of the terms that are that word when written together.
        joined_stems: the same by stem id.
        wanted: the word ids of `matches` and `joins`.
        pairs: pairs of term positions that are neighbours in the text.
        weight: sum of the weights of `terms`.
        unknown_weight: sum of the weights that the subject's words without a match would have if one tool had them.
        rarest: the rarity of the rarest term.
        stems: the ids of the known stems in the order of the text.
    """

    terms: list[QueryTerm]
    positions: dict[int, int]
    matches: dict[int, tuple[int, float, bool]]
    joins: dict[int, tuple[int, ...]]
    joined_stems: dict[int, tuple[int, ...]]
    wanted: frozenset[int]
    pairs: set[tuple[int, int]]
    weight: float
    unknown_weight: float
    rarest: float
    stems: list[int]


class Vocabulary:
    """Words and stems with the number of live tools that have them. Ids are positions in the lists and never change.

    Attributes:
        spellings, stem_of, word_frequency: by word id.
        stem_spellings, stem_frequency, is_stop, forms: by stem id; `forms` are the ids of the words with that stem.
        tools: number of live tools.
        generation: changes whenever any of the numbers does.
    """

    def __init__(self) -> None:
        self.spellings: list[str] = []
        self.stem_of: list[int] = []
        self.word_frequency: list[int] = []
        self.stem_spellings: list[str] = []
        self.stem_frequency: list[int] = []
        self.is_stop: list[bool] = []
        self.forms: list[list[int]] = []
        self.tools = 0
        self.generation = 0
        self._rarities: dict[int, float] = {}
        self._masses: dict[int, float] = {}
        self._words: dict[str, int] = {}
        self._stems: dict[str, int] = {}
        self._typos = Spellings(self.spellings, self._words)

    def intern(self, words: Iterable[str]) -> list[int]:
        """The ids of `words`, new ones for those not seen before."""
        known = self._words
        return [known[word] if word in known else self._add(word) for word in words]

    def _add(self, word: str) -> int:
        root = stem(word)
        stem_id = self._stems.get(root)
        if stem_id is None:
            stem_id = self._stems[root] = len(self.forms)
            self.forms.append([])
            self.stem_spellings.append(root)
            self.stem_frequency.append(0)
            self.is_stop.append(root in STOP_WORDS)
        word_id = self._words[word] = len(self.spellings)
        self.spellings.append(word)
        self.forms[stem_id].append(word_id)
        self.stem_of.append(stem_id)
        self.word_frequency.append(0)
        return word_id

    def count(self, words: Sequence[int], sign: int) -> None:
        """Take a tool that has the distinct `words` into the statistics (`sign` 1), or out of them (-1)."""
        frequency, stem_of = self.word_frequency, self.stem_of
        for word in words:
            frequency[word] += sign
        frequency = self.stem_frequency
        for stem_id in {stem_of[word] for word in words}:
            frequency[stem_id] += sign
        self.tools += sign
        self.generation += 1
        self._rarities.clear()
        self._masses.clear()

    def rarity(self, frequency: int) -> float:
        """The BM25 inverse document frequency of what `frequency` of the tools have."""
        # The same few frequencies are asked for again and again.
        known = self._rarities.get(frequency)
        if known is None:
            known = self._rarities[frequency] = math.log(1 + (self.tools - frequency + 0.5) / (frequency + 0.5))
        return known

    def mass(self, stems: Iterable[int]) -> float:
        """The summed rarity of the distinct ones of `stems`, those apart that carry no topic."""
        known = self._masses
        # In their order: a sum in the order of a set could depend on which tools came first.
        return sum([known[stem_id] if stem_id in known else self._mass_of(stem_id) for stem_id in dict.fromkeys(stems)])

    def _mass_of(self, stem_id: int) -> float:
        mass = 0.0 if self.is_stop[stem_id] else self.rarity(self.stem_frequency[stem_id])
        self._masses[stem_id] = mass
        return mass

    def parse(self, text: str, *, most_terms: int) -> Query:
        """What `text` asks for. Words that carry no topic are dropped unless there are no others.

        Args:
            text: of bounded length.
            most_terms: keep only so many terms, those of the greatest weight.
        """
        # At the first query after a change, which waits for tantivy anyway, not at the first one with a typo.
        self._typos.sort_new()
        words = split_words(text)
        content = [word for word in words if word not in STOP_WORDS] or words
        if not content:
            return Query([], {}, {}, {}, {}, frozenset(), set(), 0.0, 0.0, 0.0, [])
        counts = Counter(content)
        asides = roles(text, set(counts))
        live = {word: self._live_stem(word) for word in counts}
        shares = dict.fromkeys(counts, 1.0)
        repairs = 0
        unknown: dict[str, float] = {}
        joined: dict[tuple[str, str], int] = {}
        for left, right in dict.fromkeys(pairwise(content)):
            together = self._live_stem(left + right)
            if together is None:
                continue
            joined[left, right] = together
        for word, stem_id in live.items():
            if stem_id is not None:
                continue
            for pair, together in joined.items():
                if word in pair:
                    live[word] = together  # "word press" where no tool has "press": half a known word is that word
                    break
            else:
                if repairs < REPAIRS_LIMIT:
                    repairs += 1
                    live[word] = self._repair(word)
                    shares[word] = REPAIR_SHARE
            if live[word] is None and word not in asides:
                unknown[word] = self.rarity(0) * math.sqrt(counts[word])
        by_stem: dict[int, QueryTerm] = {}
        for word, times in counts.items():
            stem_id = live[word]
            if stem_id is None:
                continue
            rarity = self.rarity(self.stem_frequency[stem_id])
            emphasis = math.sqrt(times) * (ASIDE_SHARE if word in asides else 1.0)
            weight = rarity * emphasis * shares[word]
            word_id = self._words.get(word)
            exact = self.word_frequency[word_id] if word_id is not None else 0
            exact_weight = self.rarity(exact) * emphasis if exact else 0.0
            term = by_stem.get(stem_id)
            role = asides.get(word, Role.SUBJECT)
            if term is None:
                by_stem[stem_id] = QueryTerm(word, stem_id, rarity, weight, exact_weight, role)
            else:  # two forms of one word: "issue" and "issues"
                term.role = min(term.role, role)
                term.weight = math.hypot(term.weight, weight)
                term.exact_weight = max(term.exact_weight, exact_weight)
        terms = sorted(by_stem.values(), key=lambda term: -term.weight)[:most_terms]
        position = {term.stem: index for index, term in enumerate(terms)}
        matches: dict[int, tuple[int, float, bool]] = {}
        for index, term in enumerate(terms):
            matches.update(dict.fromkeys(self.forms[term.stem], (index, shares[term.word], False)))
        for word in counts:
            if (word_id := self._words.get(word)) in matches:
                matches[word_id] = (*matches[word_id][:2], True)
        joined_stems: dict[int, tuple[int, ...]] = {}
        for (left, right), together in joined.items():
            parts = [part for word in (left, right) if (part := live[word]) is not None and part != together]
            joined_stems.setdefault(together, tuple([position[part] for part in parts if part in position]))
        joins = {form: parts for stem_id, parts in joined_stems.items() for form in self.forms[stem_id]}
        stems = [stem_id for word in content if (stem_id := live[word]) is not None]
        pairs = {(position[a], position[b]) for a, b in pairwise(stems) if a in position and b in position}
        weight, rarest = sum(term.weight for term in terms), max((term.rarity for term in terms), default=0.0)
        wanted = frozenset((*matches, *joins))
        missing = sum(unknown.values())
        return Query(terms, position, matches, joins, joined_stems, wanted, pairs, weight, missing, rarest, stems)

    def _live_stem(self, word: str) -> int | None:
        word_id = self._words.get(word)
        stem_id = self._stems.get(stem(word)) if word_id is None else self.stem_of[word_id]
        return stem_id if stem_id is not None and self.stem_frequency[stem_id] else None

    def _repair(self, word: str) -> int | None:
        """The stem of the most frequent known word that one typo turns into `word`, or None."""
        if len(word) < SHORTEST_REPAIRED or not word.isalpha():
            return None
        known, frequency = self._words, self.word_frequency
        # The first of the most frequent ones, in the order of the spellings: what a tool said first must not decide.
        found = [known[spelling] for spelling in sorted(self._typos.one_typo_away(word))]
        best = max(found, key=frequency.__getitem__, default=None)
        return None if best is None or not frequency[best] else self.stem_of[best]
