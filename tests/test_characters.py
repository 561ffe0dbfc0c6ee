"""Characters that hide, and characters that pass for others."""

from __future__ import annotations

import pytest

from outrider.characters import disguised_in, hidden_in, is_hidden, name_of, skeleton


@pytest.mark.parametrize(
    "character", ["\x1b", "\u200b", "\u202e", "\u2066", "\ufeff", "\U000e0041", "\u00ad", "\u2028"]
)
def test_what_hides_is_known(character: str) -> None:
    """Ours: controls, bidirectional overrides, zero-width and tag characters."""
    assert is_hidden(character)
    assert hidden_in(f"a{character}b") == {character}


def test_joiners_that_emoji_need_hide_nothing() -> None:
    """Ours: between Latin letters they do."""
    assert hidden_in("👩\u200d💻 می\u200cخواهم") == frozenset()
    assert hidden_in("pass\u200dword") == {"\u200d"}


def test_words_of_other_scripts_are_no_disguise() -> None:
    """Ours: only letters among Latin ones are."""
    assert disguised_in("Прогноз погоды в Москве") == frozenset()
    assert disguised_in("Zażółć w København, 10 μs") == frozenset()
    assert disguised_in("p\u0430ssword") == {"\u0430"}
    assert name_of("\u0430") == "U+0430 CYRILLIC SMALL LETTER A"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("create_issue", "createIssue"),
        ("paypal", "p\u0430yp\u0430l"),
        ("list_items", "1ist_items"),
        ("SOS", "5O5"),
        ("modern", "modem"),
        ("naïve", "naive"),
        ("ＡＢＣ", "abc"),
        ("admin", "adm\u200bin"),
        ("\u0391lpha", "Alpha"),
    ],
)
def test_names_that_look_alike_have_one_skeleton(one: str, other: str) -> None:
    """Ours."""
    assert skeleton(one) == skeleton(other)


def test_other_names_keep_theirs() -> None:
    """Ours."""
    assert len({skeleton(name) for name in ("read", "reads", "write", "читать", "読む", "add_note", "add_node")}) == 7
