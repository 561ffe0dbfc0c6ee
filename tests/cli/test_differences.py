"""How differences look: every line is there, whichever way they are found."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.cli import differences
from outrider.cli.text import revealed

LINES = st.lists(st.sampled_from(["a", "b", "c"]), max_size=6)


@settings(max_examples=60, deadline=None)
@given(LINES, LINES, st.sampled_from([0, 600]))
def test_both_sides_can_be_read_off_a_difference(old: list[str], new: list[str], bound: int) -> None:
    """Ours: without the lines of the other side, each is what it was; long ones are not compared line by line."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(differences, "_MAX_ALIGNED", bound)
        found = list(differences._difference("\n".join(["x", *old]), "\n".join(["x", *new])))
    assert [line for sign, line in found if sign != "+"] == ["x", *old]
    assert [line for sign, line in found if sign != "-"] == ["x", *new]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a b", "a b"),
        ("a\u200bb\x1b[2J", "a\\u200bb\\x1b[2J"),
        ("a\tb", "a\\x09b"),
        (" a  ", "\\x20a\\x20\\x20"),
        ("a\u00a0b", "a\\xa0b"),
        ("a" + " " * 400 + "b", "a\\x20×400b"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_nothing_in_a_line_is_hidden(text: str, shown: str) -> None:
    """Ours: spaces at the ends, long runs and unusual ones included."""
    assert revealed(text) == shown
