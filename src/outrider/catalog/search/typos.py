"""One typo: which known words are another word but for a letter or two. Pure.

Decided here: what counts as a typo, and how the words are found that differ by one. Not here: which words are worth a repair, and
which of several is meant (`vocabulary`).

There are about 500 spellings one typo away from a word, and looking all of them up was a third of what a long query cost. But a typo
leaves alone what stands before it, or what stands behind it: the word is cut where few known words have its beginning, and those
that have its beginning or its end are compared with it. That takes two sorted lists, sixteen bytes a word. A table of what is left
of each word without one of its letters would be faster still, and a fifth of the size of all the rest.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Container, Sequence
from operator import itemgetter
from typing import Final

__all__ = ["Spellings"]

COMPARED: Final = 24
"""So many words are compared in the time that it takes to try all letters at one place."""
SORTED_TOGETHER: Final = 500
"""So many new words are sorted together with the old ones; fewer are put where they belong one by one."""

_LATIN: Final = "abcdefghijklmnopqrstuvwxyz"
_CYRILLIC: Final = "абвгдежзийклмнопрстуфхцчшщъыьэюяёіїєґ"
_GREEK: Final = "αβγδεζηθικλμνξοπρσςτυφχψω"
_LAST: Final = "\U0010ffff"
_reversed: Final[Callable[[str], str]] = itemgetter(slice(None, None, -1))


class Spellings:
    """The words of a growing list, to be searched for those one typo away from another word. Not thread-safe."""

    def __init__(self, words: Sequence[str], known: Container[str]) -> None:
        """Search `words`, each there once, as they are at each search; words may be added at the end.

        Args:
            words: the list.
            known: the same words, for quick look-ups.
        """
        self._words, self._known = words, known
        self._by_beginning: list[str] = []
        self._by_end: list[str] = []

    def one_typo_away(self, word: str) -> list[str]:
        """The words from which `word` arises by two letters swapped, one too many, one missing or one replaced.

        Args:
            word: letters only, at least one.

        Returns:
            Words other than `word`, in no particular order, some perhaps twice.
        """
        self.sort_new()
        starts, ends = self._by_beginning, self._by_end
        cut, first, last = 0, 0, len(starts)
        while last - first > COMPARED and cut < len(word):
            cut += 1
            first = bisect_left(starts, word[:cut], first, last)
            last = bisect_left(starts, word[:cut] + _LAST, first, last)
        alphabet = _alphabet(word[0])
        lengths = range(len(word) - 1, len(word) + 2)
        alike = [other for other in starts[first:last] if len(other) in lengths]
        found = [other for other in alike if _is_one_typo(word, other, cut, alphabet)]
        if not cut:
            return found
        # A typo before the cut leaves what is behind it, but for two letters swapped across.
        tried = [_swapped(word, cut - 1)]
        tail = _reversed(word[cut:])
        first = bisect_left(ends, tail, key=_reversed)
        last = bisect_left(ends, tail + _LAST, first, key=_reversed)
        if last - first <= COMPARED * cut:
            alike = [other for other in ends[first:last] if len(other) in lengths]
            found += [other for other in alike if _is_one_typo(word, other, 0, alphabet)]
        else:
            tried += [other for place in range(cut) for other in _typos_at(place, word, alphabet)]
        return found + [other for other in tried if other in self._known and other != word]

    def sort_new(self) -> None:
        """Sort in what was added: tens of milliseconds for a new catalog. Without it, the next search for a typo does so first."""
        new = self._words[len(self._by_beginning) :]
        if len(new) < SORTED_TOGETHER:
            for word in new:
                insort(self._by_beginning, word)
                insort(self._by_end, word, key=_reversed)
        else:
            self._by_beginning += new
            self._by_beginning.sort()
            self._by_end += new
            self._by_end.sort(key=_reversed)


def _alphabet(first: str) -> str:
    """The letters that may be missing or replaced in a word that begins with `first`."""
    if first.isascii():
        return _LATIN
    return _CYRILLIC if first in _CYRILLIC else _GREEK if first in _GREEK else ""


def _swapped(word: str, place: int) -> str:
    return word[:place] + word[place + 1 : place + 2] + word[place : place + 1] + word[place + 2 :]


def _typos_at(place: int, word: str, alphabet: str) -> list[str]:
    """What one typo at `place` can have made `word` of."""
    head, tail, rest = word[:place], word[place:], word[place + 1 :]
    made = [_swapped(word, place), head + rest, *[head + letter + tail for letter in alphabet]]
    # A wrong first letter is rare, and "fine", "mine", "line" are different words.
    return [*made, *[head + letter + rest for letter in alphabet]] if place else made


def _is_one_typo(word: str, other: str, place: int, alphabet: str) -> bool:
    """Whether one typo makes `other` into `word`, of a length that differs by one at most and with the same letters before `place`."""
    longer = len(other) - len(word)
    end = len(word) if longer > 0 else len(other)
    while place < end and word[place] == other[place]:
        place += 1
    if longer < 0:
        return word[place + 1 :] == other[place:]
    if place == len(other):
        return False
    if longer > 0:
        return word[place:] == other[place + 1 :] and other[place] in alphabet
    if word[place + 1 :] == other[place + 1 :]:
        return place > 0 and other[place] in alphabet
    return _swapped(word, place) == other
