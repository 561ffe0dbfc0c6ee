"""Characters that deceive: those that hide or repaint text, and those that pass for others.

Decided here: which characters a reader does not see, and when two names look alike. Not here: how a text is shown (`cli.text`). Pure.

Spec: ours; the look-alikes follow Unicode Technical Standard 39, as far as they pass for ASCII letters and digits.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

__all__ = ["disguised_in", "hidden_in", "is_hidden", "name_of", "skeleton"]

_SEEN: Final = frozenset("\t\n")
_HIDDEN: Final = frozenset({0x00AD, 0x034F, 0x061C, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180E, 0x3164, 0xFEFF, 0xFFA0})
_HIDING_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def is_hidden(character: str) -> bool:
    """Whether a character repaints a terminal or hides text: controls, bidirectional overrides, zero-width and tag characters."""
    return (unicodedata.category(character) in _HIDING_CATEGORIES and character not in _SEEN) or ord(
        character
    ) in _HIDDEN


# What each row's letters look like, capitals apart from small letters because they differ. NFKC has been applied before, so that
# full-width, mathematical and ligature forms need no row.
_LOOK_ALIKES: Final = {
    "A": "АΑᎪ", "B": "ВΒᏴ", "C": "СϹᏟ", "D": "ᎠԀ", "E": "ЕΕᎬ", "F": "Ϝ", "G": "ԌᏀ", "H": "НΗᎻ", "I": "ІΙӀ", "J": "ЈᎫ",
    "K": "КΚᏦ", "L": "ᏞԼ", "M": "МΜᎷ", "N": "Ν", "O": "ОΟՕ", "P": "РΡᏢ", "Q": "Ԛ", "S": "ЅՏᏚ", "T": "ТΤᎢ", "V": "ѴᏙ",
    "W": "ԜᎳ", "X": "ХΧ", "Y": "УΥҮ", "Z": "ΖᏃ",
    "a": "аαɑᴀ", "b": "вьβʙ", "c": "сϲᴄ", "d": "ԁđᴅ", "e": "еεҽєᴇ", "f": "ꜰ", "g": "ɡɢց", "h": "һнհħʜ", "i": "іιıɩɪᎥ",
    "j": "јյᴊ", "k": "кκᴋ", "l": "ӏłʟǀ∣", "m": "мᴍ", "n": "пոηɴ", "o": "оοօøσᴏ", "p": "рρᴘ", "q": "ԛգ", "r": "гʀ",
    "s": "ѕꜱ", "t": "тτŧᴛ", "u": "υսμᴜʋ", "v": "νѵᴠ", "w": "ԝωաᴡ", "x": "хχ", "y": "уүγʏ", "z": "ᴢ", "3": "зӡ",
}  # fmt: skip
_ASCII_OF: Final = {ord(other): plain for plain, others in _LOOK_ALIKES.items() for other in others}
# Letters that Polish, Danish or Turkish need are no disguise in a text, nor is the mu of microseconds.
_DISGUISES: Final = frozenset(
    point for point in _ASCII_OF if not unicodedata.name(chr(point), "").startswith("LATIN") and chr(point) != "μ"
)
# Within ASCII, after letters have become small.
_ALIKE: Final = str.maketrans({"0": "o", "1": "l", "i": "l", "|": "l", "5": "s"})
_PAIRS: Final = (("rn", "m"), ("vv", "w"))


def skeleton(name: str) -> str:
    """What a name looks like at a glance: names with equal skeletons can be taken for each other.

    Case, separators, accents, hidden characters, compatibility forms, look-alikes of other scripts, and 0/O, 1/l/I, 5/S make no
    difference.
    """
    text = unicodedata.normalize("NFKC", name).translate(_ASCII_OF)
    # Decomposed only now: a letter with a stroke has no decomposition, one with an accent has.
    decomposed = unicodedata.normalize("NFD", text).translate(_ASCII_OF).casefold()
    plain = "".join(character for character in decomposed if character.isalnum() or character == "|").translate(_ALIKE)
    for pair, single in _PAIRS:
        plain = plain.replace(pair, single)
    return plain


_JOINERS: Final = frozenset("\u200c\u200d")
_WORD: Final = re.compile(r"[^\W_]+")


def hidden_in(text: str) -> frozenset[str]:
    """The hidden characters of a text, but for joiners after a letter or sign that is not ASCII: emoji and some scripts need them."""
    if text.isascii() and text.isprintable():
        return frozenset()
    return frozenset(
        character
        for before, character in zip(" " + text, text, strict=False)
        if is_hidden(character) and not (character in _JOINERS and not before.isascii())
    )


def disguised_in(text: str) -> frozenset[str]:
    """The letters of other scripts that pass for ASCII, in words that have ASCII letters too."""
    if text.isascii():
        return frozenset()
    return frozenset(
        character
        for word in _WORD.findall(text)
        if any(other.isascii() and other.isalpha() for other in word)
        for character in word
        if ord(character) in _DISGUISES
    )


def name_of(character: str) -> str:
    """A character for people who cannot see it: `U+200B ZERO WIDTH SPACE`."""
    return f"U+{ord(character):04X} {unicodedata.name(character, '')}".rstrip()
