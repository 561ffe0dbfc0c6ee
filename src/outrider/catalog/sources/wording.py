"""Words from config files in messages: made fit to be shown, and what was probably meant by them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["closest", "is_text", "shown"]


def shown(text: str, limit: int = 80) -> str:
    """`text` from a config file, fit to stand in one line of a message: no control characters, at most `limit` characters."""
    visible = "".join(
        character if character.isprintable() else f"\\x{ord(character):02x}" for character in text[: limit + 1]
    )
    return visible if len(text) <= limit else visible[:limit] + "…"


def closest(text: str, candidates: Iterable[str], n: int = 3, cutoff: float = 0.6) -> list[str]:
    """At most `n` of `candidates` that `text` could be a misspelling of, the nearest first."""
    import difflib  # slow to import, and needed only when something is wrong

    return difflib.get_close_matches(text, list(candidates), n=n, cutoff=cutoff)


def is_text(text: str) -> bool:
    """Whether `text` can be written as UTF-8: JSON can spell half of a surrogate pair, which nothing else can take."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
