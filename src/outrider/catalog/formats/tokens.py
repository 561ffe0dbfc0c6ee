"""How many tokens a text costs.

Decided here: which tokenizer counts, and how the count is estimated without one. Every count says which of the two it is. No network:
a tokenizer whose vocabulary is not on this machine counts as not installed.

Spec: ours
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from outrider.catalog.formats.vendors import Vendor

__all__ = ["TokenCount", "count_tokens"]


class TokenCount(Struct, frozen=True):
    """A number of tokens.

    Attributes:
        tokens: the number.
        method: what counted: "tiktoken o200k_base", "mistral-common tekken", "given" for a counter of the caller's, or "estimate".
    """

    tokens: int
    method: str

    @property
    def is_estimate(self) -> bool:
        """Whether no tokenizer of the vendor was at hand."""
        return self.method == "estimate"

    def __str__(self) -> str:
        return f"about {self.tokens} tokens" if self.is_estimate else f"{self.tokens} tokens"


_VOCABULARY: Final = "o200k_base"
_VOCABULARY_URL: Final = "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"
# Runs that byte-pair tokenizers of today's vendors split alike: words with their leading space, up to three digits, punctuation.
_PIECE: Final = re.compile(r" ?[A-Za-z]+|[0-9]{1,3}| ?[^\sA-Za-z0-9\x80-\U0010ffff]+|[\x80-\U0010ffff]|\s+")
_WORD_PIECE: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def count_tokens(value: Any, vendor: Vendor, *, counter: Callable[[str], int] | None = None) -> TokenCount:
    """The tokens of `value`.

    Vendors do not publish how they lay tool definitions out for their models, so the JSON text is counted: right for comparing, and a
    little high as a bill.

    Args:
        value: text, or JSON of any shape, counted as compact JSON.
        vendor: whose tokenizer to use: tiktoken's for both OpenAI vendors if it and its vocabulary are on this machine, mistral-common's
            for Mistral if that is installed. The others publish none that works without their service.
        counter: counts instead, such as a local model's own tokenizer.
    """
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    if counter is not None:
        return TokenCount(counter(text), "given")
    if vendor in (Vendor.OPENAI, Vendor.OPENAI_RESPONSES) and (encode := _tiktoken()) is not None:
        return TokenCount(len(encode(text)), f"tiktoken {_VOCABULARY}")
    if vendor is Vendor.MISTRAL and (encode := _tekken()) is not None:
        return TokenCount(len(encode(text)), "mistral-common tekken")
    return TokenCount(_estimate(text), "estimate")


@cache
def _tiktoken() -> Callable[[str], list[int]] | None:
    """The encoder of tiktoken, if that needs no download."""
    if importlib.util.find_spec("tiktoken") is None:
        return None
    # Where tiktoken keeps what it has downloaded, by its own rules.
    folder = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    where = Path(folder) if folder else Path(tempfile.gettempdir()) / "data-gym-cache"
    if not (where / hashlib.sha1(_VOCABULARY_URL.encode(), usedforsecurity=False).hexdigest()).exists():
        return None
    import tiktoken  # type: ignore[import-not-found,unused-ignore]

    encoding = tiktoken.get_encoding(_VOCABULARY)
    return lambda text: list(encoding.encode_ordinary(text))


@cache
def _tekken() -> Callable[[str], list[int]] | None:
    """The encoder of mistral-common, which brings its vocabulary along."""
    if importlib.util.find_spec("mistral_common") is None:
        return None
    from mistral_common.tokens.tokenizers.mistral import (  # type: ignore[import-not-found,unused-ignore]
        MistralTokenizer,
    )

    tokenizer = MistralTokenizer.v3(is_tekken=True).instruct_tokenizer.tokenizer
    return lambda text: list(tokenizer.encode(text, bos=False, eos=False))


def _estimate(text: str) -> int:
    """Tokens of `text` by the look of it: within 8 % of Mistral's tokenizer on each of eight public catalogs of definitions."""
    total = 0.0
    for piece in _PIECE.findall(text):
        first = piece.lstrip(" ")[:1]
        if first.isascii() and first.isalpha():
            # A word or a part of a camelCase name is one token, or one for every seven letters.
            total += sum(1 + max(0, len(part) - 4) // 7 for part in _WORD_PIECE.findall(piece))
        elif first and ord(first) >= 0x80:
            total += 0.8
        elif first.isdigit() or not first:
            total += 1
        else:
            total += 0.5 + len(piece) / 4
    return round(total)
