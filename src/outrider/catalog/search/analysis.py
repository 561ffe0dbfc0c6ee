"""Text to words: one analysis for what is indexed and for what is asked.

Decided here: where a word begins and ends, its folded form, its stem, and which English words carry no topic. Not here: what a
match is worth (`ranking`), or where words are stored (`index`). Pure; stemming borrows tantivy's English stemmer, loaded at first use.

The order matters. Text is NFKC-normalised, cut into runs of letters, digits and marks, and a run is cut at case, acronym, digit and
script borders *before* it is folded: afterwards `appTableRecord` is one opaque word. A run that had borders is kept whole too, so
that "GitHub" is found by "github" and by "git hub". Runs of Han, Kana, Hangul and of the scripts that write without spaces become
overlapping pairs. Everything is linear in the length of the text: there is no user-supplied pattern and no backtracking.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from typing import Final

__all__ = ["STOP_WORDS", "compact", "fold", "split_words", "stem"]

MAX_PARTS: Final = 8
"""A run with more borders than this is an identifier made by a machine (a hash, base64); only the whole of it is a word."""
MAX_WORD_CHARS: Final = 64
"""Longer words are cut: nobody types them, and they would fill the vocabulary."""

_FUNCTION_WORDS: Final = """
    a about all also am an and any are as at be been but by can could did do does for from had has have he her
    hi him his how i if in into is it its just like me might more most my need no not of on or our out over
    please she should so some such than that the their them then there these they this to too up us very want
    was we were what when where which while who whom why will with would you your
"""
STOP_WORDS: Final = frozenset(_FUNCTION_WORDS.split())
"""English words that say nothing about the topic. No verbs of action: "delete" or "list" is often the whole question."""

_ASCII_RUN: Final = re.compile(r"[A-Za-z0-9]+(?:'[a-z]+)?")
_ASCII_PART: Final = re.compile(r"[A-Z]{2,}s(?![a-z])|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_ASCII_LETTERS: Final = re.compile(r"[A-Za-z]+")

_ASCII_SEPARATORS: Final = bytes(code for code in range(128) if not chr(code).isalnum())

# Scripts written without spaces between words, by the first word of the character's Unicode name.
_UNSPACED: Final = frozenset(
    {"CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN"}
)
_SEPARATOR, _UPPER, _LETTER, _DIGIT, _MARK, _PAIRED = range(6)


@lru_cache(maxsize=8192)
def _character_class(character: str) -> int:
    category = unicodedata.category(character)
    if category[0] == "M":
        return _MARK
    if category[0] == "N":
        return _DIGIT
    if category[0] != "L":
        # The prolonged sound mark and iteration marks are letters already; nothing else outside L, M and N builds words.
        return _SEPARATOR
    if unicodedata.name(character, "").partition(" ")[0] in _UNSPACED:
        return _PAIRED
    return _UPPER if category in ("Lu", "Lt") else _LETTER


def fold(text: str) -> str:
    """`text` in the form in which names are compared: NFKC, case folded, outer white space dropped.

    Spec: ours
    """
    if text.isascii():
        return text.strip().lower()
    # Folding can undo the normal form, and normalising can undo the folding: twice is enough (UAX 15).
    for _ in range(2):
        text = unicodedata.normalize("NFKC", text).casefold()
    return unicodedata.normalize("NFKC", text).strip()


def compact(text: str) -> str:
    """`text` folded and without any separator, so that `createIssue`, `create_issue` and "create issue" are equal.

    A text of separators only (a name such as "🔥") is returned folded: it must still equal itself.

    Spec: ours
    """
    folded = fold(text)
    if folded.isascii():
        # Deleting from bytes is ten times as fast as translating a string, and every search compacts its query.
        return folded.encode("ascii").translate(None, _ASCII_SEPARATORS).decode("ascii") or folded
    return fold("".join(_unicode_runs(folded))) or folded


def split_words(text: str) -> list[str]:
    """The words of `text` in order, folded: parts of identifiers, followed by the whole where the parts say less.

    "getHTTPResponse" gives get, http, response, gethttpresponse; "查询天气" gives 查询, 询天, 天气.

    Spec: ours
    """
    words: list[str] = []
    if text.isascii():
        for run in _ASCII_RUN.findall(text):
            words += _split_ascii_run(run)
        return words
    for run in _unicode_runs(unicodedata.normalize("NFKC", text)):
        words += _split_ascii_run(run) if run.isascii() else _split_unicode_run(run)
    return words


@lru_cache(maxsize=65536)
def _split_ascii_run(run: str) -> tuple[str, ...]:
    run, _, _ = run.partition("'")  # "company's", "I'm": what follows the apostrophe is never a topic
    whole = run.lower()[:MAX_WORD_CHARS]
    parts = [part.lower()[:MAX_WORD_CHARS] for part in _ASCII_PART.findall(run)]
    if len(parts) < 2:
        return (whole,)
    if len(parts) > MAX_PARTS:
        return (whole,)
    letters = [word.lower() for word in _ASCII_LETTERS.findall(run)]
    # "OAuth2": o, auth, 2, and also oauth and oauth2. A single letter alone is noise unless it is all there is.
    extra = [word for word in letters if word not in parts and len(word) > 1]
    return tuple(dict.fromkeys([*parts, *extra, whole]))


def _unicode_runs(text: str) -> list[str]:
    runs: list[str] = []
    start = -1
    for position, character in enumerate(text):
        kind = _character_class(character)
        if kind != _SEPARATOR and not (kind == _MARK and start < 0):
            if start < 0:
                start = position
        elif start >= 0:
            runs.append(text[start:position])
            start = -1
    if start >= 0:
        runs.append(text[start:])
    return runs


@lru_cache(maxsize=65536)
def _split_unicode_run(run: str) -> tuple[str, ...]:
    parts: list[str] = []
    mixed = False
    for kind, part in _script_parts(run):
        mixed = mixed or kind == _PAIRED
        if kind == _PAIRED and len(part) > 1:
            parts += (part[i : i + 2] for i in range(len(part) - 1))
        else:
            parts.append(part.casefold()[:MAX_WORD_CHARS])
    if mixed or len(parts) < 2:
        return tuple(parts)
    whole = run.casefold()[:MAX_WORD_CHARS]
    return tuple(dict.fromkeys([*parts, whole])) if len(parts) <= MAX_PARTS else (whole,)


def _script_parts(run: str) -> list[tuple[int, str]]:
    """Maximal pieces of one kind (letters, digits, unspaced script); a lower-to-upper border also cuts."""
    pieces: list[tuple[int, str]] = []
    start, kind, previous = 0, -1, -1
    for position, character in enumerate(run):
        here = _character_class(character)
        if here == _MARK:
            continue
        family = _LETTER if here == _UPPER else here
        camel = here == _UPPER and previous == _LETTER
        if kind >= 0 and (family != kind or camel):
            pieces.append((kind, run[start:position]))
            start = position
        kind, previous = family, here
    pieces.append((kind, run[start:]))
    return pieces


_PLAIN_LETTERS: Final = str.maketrans(
    {
        "ł": "l",
        "ø": "o",
        "đ": "d",
        "ð": "d",
        "þ": "th",
        "æ": "ae",
        "œ": "oe",
        "ı": "i",
        "ħ": "h",
        "ŋ": "n",
        "ŧ": "t",
        "ё": "е",
    }
)
"""Letters that do not decompose, and what people write for them whose keyboard lacks them; ё is written as е by most who have it."""


def _without_accents(word: str) -> str:
    """A folded word as it is written in haste or in capitals: Latin and Greek letters without marks.

    Nowhere else is a mark left out: in Devanagari or Thai it is a vowel, and й is not и.
    """
    bare: list[str] = []
    for character in unicodedata.normalize("NFD", word.translate(_PLAIN_LETTERS)):
        if unicodedata.combining(character) and bare and (bare[-1].isascii() or "\u0370" <= bare[-1] <= "\u03ff"):
            continue
        bare.append(character)
    return unicodedata.normalize("NFC", "".join(bare))


_stem_word: Callable[[str], list[str]] | None = None


def stem(word: str) -> str:
    """The form that stands for all inflections of a folded word; for non-English words, the word without accents.

    Spec: ours
    """
    global _stem_word
    if not word.isascii():
        if word.isalpha() and len(word) <= 2:
            return word
        word = _without_accents(word)
        if not word.isascii():
            return word
    if len(word) < 3:
        return word
    if _stem_word is None:
        import tantivy  # loaded late: 17 MB that `import outrider` must not pay for

        builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.raw()).filter(tantivy.Filter.stemmer("english"))
        _stem_word = builder.build().analyze
    return _stem_word(word)[0]
