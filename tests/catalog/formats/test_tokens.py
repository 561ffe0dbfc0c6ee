"""What texts cost."""

from __future__ import annotations

import pytest

from outrider.catalog.formats import ToolRef, Vendor, count_tokens, offer

# Definitions, descriptions and text as they occur, with their tokens by Mistral's tekken.
SAMPLES = [
    ("The quick brown fox jumps over the lazy dog.", 10),
    ("lorem ipsum dolor sit amet consectetur adipiscing elit", 9),
    ("https://example.com/a/b?c=d&e=f", 12),
    ("def f(x):\n    return x + 1\n" * 5, 55),
    ("查询天气的工具", 8),
]


@pytest.mark.parametrize(("text", "tokens"), SAMPLES)
def test_an_estimate_is_near(text: str, tokens: int) -> None:
    """Ours: an estimate is right by a third on short texts; on definitions, where errors cancel out, it is much nearer."""
    assert abs(count_tokens(text, Vendor.ANTHROPIC).tokens - tokens) <= max(2, tokens // 3)


@pytest.mark.interop
def test_mistrals_own_tokenizer_counts_where_it_is_installed() -> None:
    """Ours: exact counts where the vendor's tokenizer is there, and the estimate near them."""
    pytest.importorskip("mistral_common")
    definitions = [
        {
            "name": f"tool_{n}",
            "description": "Searches the catalogue for books by title.",
            "parameters": {"type": "object"},
        }
        for n in range(20)
    ]
    exact = count_tokens(definitions, Vendor.MISTRAL)
    assert not exact.is_estimate
    assert abs(count_tokens(definitions, Vendor.ANTHROPIC).tokens - exact.tokens) < exact.tokens / 5


@pytest.mark.parametrize("vendor", [Vendor.ANTHROPIC, Vendor.GEMINI])
def test_a_count_without_the_vendors_tokenizer_says_that_it_is_an_estimate(vendor: Vendor) -> None:
    """Ours: nobody takes an estimate for a bill."""
    count = count_tokens("hello world", vendor)
    assert count.is_estimate
    assert str(count) == "about 2 tokens"


def test_a_counter_that_is_given_counts() -> None:
    """Ours: a local model's own tokenizer can be plugged in."""
    count = count_tokens("hello world", Vendor.OPENAI, counter=len)
    assert (count.tokens, count.is_estimate) == (11, False)


def test_an_offer_knows_its_price_and_nothing_costs_nothing() -> None:
    """Ours: the ledger starts here."""
    tools = [
        (ToolRef("s", f"t{n}"), {"description": "does something useful", "inputSchema": {"type": "object"}})
        for n in range(3)
    ]
    one, three = offer("gemini", tools[:1]).tokens.tokens, offer("gemini", tools).tokens.tokens
    assert 0 < one < three
    assert offer("gemini", []).tokens.tokens == 0
