"""What the words of a query are there for: its subject, the talk around it, or a value that a tool would be given.

Decided here: which words belong to asking as such, and which parts of a text are examples and arguments. Not here: what such a word
still weighs (`vocabulary`). Pure.

"Could you please provide detailed information about the order with the ID 'A-42/red'?" is about orders. "Provide", "detailed" and
"information" stand in every second request, and "red" is found in tools that have nothing to do with it, so both count less: where
they counted in full, talk and values made up most of what queries about nothing in the catalog were found by.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import cache, lru_cache
from typing import Final

from .analysis import split_words, stem

__all__ = ["Role", "roles"]


class Role(IntEnum):
    """What a word of a query is there for."""

    SUBJECT = 0
    TALK = 1
    VALUE = 2


# English that people wrap a request in, whatever it is about. No verbs of action and no nouns that a tool could be for.
_TALK: Final = """
    ask assist assistance curious dear explain give gave given hello help helpful hey interested know let look looking need needed
    please provide provided request require required see seek tell thank thanks try trying understand wish wonder

    certain each else especially even every exact exactly few less lot many much multiple only other others particular particularly
    quite rather really several single specific specifically various whole

    accordance according addition additional additionally along already another based because besides both due either ensure
    finally first following follow further furthermore however include included includes including instead moreover next otherwise
    perhaps regarding related respectively since still subsequently through thus together use used using via way well whether
    within without yet

    current currently latest now recent recently soon today upcoming

    appropriate available best better comprehensive desired detailed different essential exciting favorite good great important
    necessary new nice possible potential proper properly relevant right suitable useful valuable

    anything called detail details everything example examples id idea information kind name named number one part person something
    sort stuff thing things titled tool tools two type

    allow bring come doing done get getting go going got having involve keep make made making plan planning put start take work
    working
"""

_VALUE: Final = re.compile(
    r"""(?<!\w)(?:
      <(?!\s)[^<>\n]{1,80}(?<!\s)> | \{[^{}\n]{1,80}\}                            # a placeholder
    | "[^"\n]{1,200}" | “[^”\n]{1,200}” | `[^`\n]{1,200}`                        # what is quoted
    | '[^'\n]{2,200}'(?!\w) | ‘[^’\n]{2,200}’(?!\w)
    | \d[\w:.,/-]*                                                            # a number, a date
    | [A-Za-z_-]{1,64}\d{3}[\w-]*                                             # an identifier, counted up
    | [A-Za-z][A-Za-z0-9+.-]{1,20}://\S{1,2000}                               # an address
    | (?<![\w.+-])[\w.+-]{1,64}@[\w.-]{1,255}
    | (?<!\S)(?:~|\.{1,2}|[A-Za-z]:)?[/\\][^\s/\\]{1,255}[/\\]\S{1,1000}       # a path of a file
    )""",
    re.VERBOSE,
)


@cache
def _talk() -> frozenset[str]:
    return frozenset(stem(word) for word in _TALK.split())


@lru_cache(maxsize=4096)
def _is_talk(word: str) -> bool:
    # Its stem is found out once: most of a query is words that were in another one.
    return stem(word) in _talk()


def roles(text: str, words: set[str]) -> dict[str, Role]:
    """The role of each of `words` that is no subject of `text`; none if there would be no subject left.

    Args:
        text: a query.
        words: its words, as `split_words` gives them, without function words.

    Spec: ours
    """
    plain, found = _VALUE.subn(" ", text)
    stated = words.intersection(split_words(plain)) if found else words
    subject = {word for word in stated if not _is_talk(word)}
    if not subject:
        return {}
    return {word: Role.TALK if word in stated else Role.VALUE for word in words - subject}
