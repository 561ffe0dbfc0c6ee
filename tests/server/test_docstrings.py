"""What a docstring says of a function and its parameters."""

from __future__ import annotations

import pytest

from outrider.server.docstrings import parse_docstring


@pytest.mark.parametrize(
    "docstring",
    [
        "Do it.\n\nAt once.\n\nArgs:\n    a: the first\n        of all\n    b (int): the second\n\nReturns:\n    c: nothing",
        "Do it.\n\nAt once.\n\nParameters\n----------\na : int\n    the first\n    of all\nb\n    the second\n\nReturns\n-------\nc",
        "Do it.\n\nAt once.\n\n:param a: the first\n    of all\n:param int b: the second\n:returns: nothing",
    ],
    ids=["google", "numpy", "rest"],
)
def test_docstring_gives_the_description_and_those_of_parameters(docstring: str) -> None:
    """Ours: the three styles in use."""
    assert parse_docstring(docstring) == ("Do it.\n\nAt once.", {"a": "the first of all", "b": "the second"})


def test_missing_docstring_is_no_description() -> None:
    """Ours."""
    assert parse_docstring(None) == ("", {})
