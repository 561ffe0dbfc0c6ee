"""Typos: the words that are one letter away, among words that grow more."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.catalog.search import ToolDocument, ToolIndex
from outrider.catalog.search.typos import COMPARED, SORTED_TOGETHER, Spellings

LATIN = "abcdefghijklmnopqrstuvwxyz"
CYRILLIC = "абвгдежзийклмнопрстуфхцчшщъыьэюяёіїєґ"
GREEK = "αβγδεζηθικλμνξοπρσςτυφχψω"


def all_typos(word: str) -> set[str]:
    """What one typo can have made `word` of, spelled out: the definition, without any search."""
    alphabet = next((letters for letters in (LATIN, CYRILLIC, GREEK) if word[0] in letters), "")
    cuts = [(word[:place], word[place:]) for place in range(len(word) + 1)]
    swapped = {head + tail[1] + tail[0] + tail[2:] for head, tail in cuts if len(tail) > 1}
    dropped = {head + tail[1:] for head, tail in cuts if tail}
    added = {head + letter + tail for head, tail in cuts for letter in alphabet}
    replaced = {head + letter + tail[1:] for head, tail in cuts if head and tail for letter in alphabet}
    return swapped | dropped | added | replaced


class Words:
    """A list of words as the vocabulary keeps it, and the table that is asked."""

    def __init__(self) -> None:
        self.list: list[str] = []
        self.known: set[str] = set()
        self.table = Spellings(self.list, self.known)

    def add(self, words: set[str]) -> None:
        self.list += sorted(words - self.known, key=lambda word: (len(word), word[::-1]))
        self.known |= words

    def check(self, word: str) -> None:
        assert set(self.table.one_typo_away(word)) == (all_typos(word) & self.known) - {word}


@pytest.mark.parametrize("letters", ["abé1", "яаё", "αβς", "天日"])
@settings(max_examples=50)
@given(data=st.data())
def test_every_word_one_typo_away_is_found_and_no_other(letters: str, data: st.DataObject) -> None:
    """Ours: in few words and in many, and after words have been added."""
    words = Words()
    spelled = st.text(letters, min_size=1, max_size=6)
    asked = st.text(letters.strip("1"), min_size=1, max_size=6)
    for _ in range(3):
        words.add(data.draw(st.sets(spelled, max_size=3 * COMPARED)))
        for word in data.draw(st.lists(asked, min_size=1, max_size=5)):
            words.check(word)


def test_many_words_with_the_same_beginning_and_the_same_end_are_told_apart() -> None:
    """Ours: thousands of words, where neither the beginning nor the end of a word leaves few to compare."""
    chance = random.Random(1)
    words = Words()
    made = {
        "inter" + "".join(chance.choice("abcde") for _ in range(chance.randint(1, 5))) + "ation" for _ in range(2_000)
    }
    assert len(made) > SORTED_TOGETHER
    words.add(made)
    for word in chance.sample(sorted(made), 60):
        place = chance.randrange(len(word))
        for typo in (
            word[:place] + word[place + 1 :],
            word[:place] + chance.choice(LATIN) + word[place:],
            word[:place] + chance.choice(LATIN) + word[place + 1 :],
            word[:place] + word[place : place + 2][::-1] + word[place + 2 :],
        ):
            words.check(typo)


def test_a_word_that_came_after_a_search_is_a_repair_and_one_that_went_is_none() -> None:
    """Case 64: what was sorted for one search is not all there is for the next."""
    index = ToolIndex()
    index.replace_server("other", [ToolDocument(server="other", name="list_issues")])
    assert index.search("calendr").nothing_fits
    index.replace_server("cal", [ToolDocument(server="cal", name="add_entry", description="Into the calendar")])
    (hit,) = index.search("calendr", threshold=0).hits
    assert [match.found for match in hit.matched] == ["calendar"]
    index.remove_server("cal")
    assert index.search("calendr").nothing_fits
