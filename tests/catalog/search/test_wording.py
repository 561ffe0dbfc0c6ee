"""What the words of a query are there for: subject, talk, value."""

from __future__ import annotations

import pytest

from outrider.catalog.search.analysis import STOP_WORDS, split_words
from outrider.catalog.search.wording import Role, roles


def asides_of(text: str) -> dict[str, Role]:
    return roles(text, {word for word in split_words(text) if word not in STOP_WORDS})


def subject_of(text: str) -> list[str]:
    asides = asides_of(text)
    return [word for word in split_words(text) if word not in STOP_WORDS and word not in asides]


@pytest.mark.parametrize(
    ("query", "subject"),
    [
        ("Could you please provide detailed information about the order?", ["order"]),
        ("I'm interested in currently available parking spaces", ["parking", "spaces"]),
        ("delete the branch", ["delete", "branch"]),
        ("Tell me the weather", ["weather"]),
        ("Recommending books: which tools are useful?", ["recommending", "books"]),
    ],
)
def test_talk_around_a_request_is_no_subject(query: str, subject: list[str]) -> None:
    """Ours: in every inflection; verbs of action and nouns that a tool could be for are subjects."""
    assert subject_of(query) == subject


@pytest.mark.parametrize(
    ("query", "subject"),
    [
        ('play "red shoes" in the kitchen', ["play", "kitchen"]),
        ("play 'red shoes' in the kitchen, it's nice", ["play", "kitchen"]),
        ("play “red shoes” or ‘blue hats’ in the kitchen", ["play", "kitchen"]),
        ("restart <cluster name> in {resource group}", ["restart"]),
        ("rename `red shoes` at once", ["rename", "once"]),
        ("scan https://example.com/red/shoes?size=42 for malware", ["scan", "malware"]),
        ("write to jane.doe+red@example.com", ["write"]),
        ("summarize /root/red/shoes.md and ~/red/hats", ["summarize"]),
        (r"open C:\red\shoes.txt", ["open"]),
        ("open ./red/shoes.txt", ["open"]),
        ("flights on 2026-11-30 at 10:45 for 1,250.50", ["flights"]),
        ("track parcel AB-77123-X", ["track", "parcel"]),
    ],
)
def test_an_example_value_is_no_subject(query: str, subject: list[str]) -> None:
    """Ours: what a tool would be given says little of which tool it is."""
    assert subject_of(query) == subject


@pytest.mark.parametrize(
    "query",
    [
        "read/write access",
        "upload to s3 or ec2",
        "an mp3 of the rock 'n' roll",
        "the dogs' and cats' food",
        "x < y > z",
    ],
)
def test_what_only_resembles_a_value_is_a_subject(query: str) -> None:
    """Ours: names with a digit, alternatives, apostrophes, comparisons."""
    assert Role.VALUE not in asides_of(query).values()


def test_a_word_that_is_also_said_outside_the_quotes_is_a_subject() -> None:
    """Ours: one plain mention is enough."""
    assert subject_of('send the message "a message for you"') == ["send", "message", "message"]


@pytest.mark.parametrize("query", ['"red shoes"', "https://example.com/red", "help me", "please use 'red shoes'", "42"])
def test_a_query_without_a_subject_is_taken_as_it_stands(query: str) -> None:
    """Ours: all words count alike then."""
    assert asides_of(query) == {}


@pytest.mark.parametrize(
    "hostile",
    [
        "<" * 12_000,
        '"' * 11_999,
        "a" * 12_000,
        "1" * 12_000,
        "a@" * 6_000,
        "/a" * 6_000,
        "a-" * 6_000,
        "{'" * 6_000,
        "x://" * 3_000,
    ],
    ids=["angles", "quotes", "letters", "digits", "signs", "slashes", "dashes", "braces", "addresses"],
)
def test_no_text_takes_long(hostile: str) -> None:
    """Ours: every repetition in the pattern is bounded, or followed by what it cannot contain."""
    asides_of(hostile)
