"""When two lists are the same, and what differs if they are not."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import RemoteProtocolError
from outrider.protocol.digest import LIST_MEMBERS, Listing, difference, digest_json, read_items
from outrider.protocol.freshness import LIST_METHODS

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def shuffled(value: Any, rng: random.Random) -> Any:
    if isinstance(value, dict):
        keys = list(value)
        rng.shuffle(keys)
        return {k: shuffled(value[k], rng) for k in keys}
    if isinstance(value, list):
        return [shuffled(v, rng) for v in value]
    return value


@given(json_values, st.randoms(use_true_random=False), st.booleans())
def test_spelling_makes_no_difference(value: Any, rng: random.Random, ascii_only: bool) -> None:
    """Ours: key order, white space and escapes are not content."""
    spelled = json.dumps(shuffled(value, rng), ensure_ascii=ascii_only, indent=2)
    assert digest_json(msgspec.json.decode(spelled)) == digest_json(value)


@given(json_values, json_values)
def test_different_content_has_different_digests(one: Any, other: Any) -> None:
    """Ours: 1 and 1.0 are the same number, true is not 1, and "1" is not 1."""

    def canonical(value: Any) -> Any:
        if isinstance(value, bool) or value is None or isinstance(value, str):
            return (type(value).__name__, value)
        if isinstance(value, dict):
            return ("dict", tuple(sorted((k, canonical(v)) for k, v in value.items())))
        if isinstance(value, list):
            return ("list", tuple(canonical(v) for v in value))
        return ("number", value)

    assert (digest_json(one) == digest_json(other)) == (canonical(one) == canonical(other))


@pytest.mark.parametrize(
    ("one", "other"), [(1, 1.0), ([100], [1e2]), ({"a": -3.0}, {"a": -3}), (0, -0.0), (10**16, 1e16)]
)
def test_whole_numbers_have_one_digest(one: Any, other: Any) -> None:
    """Ours: JSON has one number type, and servers rewrite 1 as 1.0."""
    assert digest_json(one) == digest_json(other)


def test_every_list_method_has_a_member_and_an_identity() -> None:
    """Spec schema: the four list results."""
    assert set(LIST_MEMBERS) == LIST_METHODS


def test_items_are_given_byte_for_byte() -> None:
    """Ours: what we do not understand passes through."""
    page = b'{"tools": [ {"name":"a", "x" : 1.0} ,{"name": "\\u0062"}], "nextCursor": "2"}'
    assert [bytes(item) for item in read_items("tools/list", page)] == [
        b'{"name":"a", "x" : 1.0}',
        b'{"name": "\\u0062"}',
    ]
    assert read_items("tools/list", b'{"tools":null}') == []
    assert read_items("tools/list", b"{}") == []


@pytest.mark.parametrize("page", [b"[]", b'{"tools":{}}', b'{"tools":"x"}', b'{"tools":[', b"", b'{"tools":7}'])
def test_what_is_no_list_is_a_remote_error(page: bytes) -> None:
    """Ours: nothing a peer sends raises anything else."""
    with pytest.raises(RemoteProtocolError):
        read_items("tools/list", page)


def test_a_difference_names_what_was_added_removed_and_altered() -> None:
    """Ours: a refetch that changes something says what."""
    before = Listing.of("tools/list", [{"name": "a"}, {"name": "b", "description": "x"}, {"name": "c"}])
    after = Listing.of("tools/list", [{"name": "d"}, {"name": "b", "description": "y"}, {"name": "a"}])
    change = difference(before, after)
    assert (change.added, change.removed, change.altered) == (("d",), ("c",), ("b",))
    assert change
    assert before.digest != after.digest


def test_order_is_no_difference() -> None:
    """Ours: a server that shuffles its list has not changed it."""
    one = Listing.of("resources/list", [{"uri": "a"}, {"uri": "b"}])
    other = Listing.of("resources/list", [{"uri": "b"}, {"uri": "a"}])
    assert one.digest == other.digest
    assert not difference(one, other)


def test_a_name_given_twice_is_two_items() -> None:
    """Ours: a second tool of the same name is something new."""
    one = Listing.of("tools/list", [{"name": "a"}])
    two = Listing.of("tools/list", [{"name": "a"}, {"name": "a", "x": 1}])
    assert difference(one, two).added == ("a",)
    assert difference(two, one).removed == ("a",)


def test_items_without_a_name_are_identified_by_content() -> None:
    """Ours: malformed items count, too; they must not vanish from the digest."""
    before = Listing.of("tools/list", [{"name": 7}, "text", None, {"description": "x"}])
    after = Listing.of("tools/list", [{"name": 7}, None, {"description": "y"}, "text"])
    change = difference(before, after)
    assert len(before.digests) == 4
    assert (len(change.added), len(change.removed), change.altered) == (1, 1, ())


def test_raw_and_decoded_items_have_the_same_digest() -> None:
    """Ours: the lock file digests decoded tools, the memory digests bytes."""
    page = b'{"prompts":[{"name":"p","arguments":[{"name":"x","required":true}]}]}'
    raw = Listing.of("prompts/list", read_items("prompts/list", page))
    assert raw == Listing.of("prompts/list", json.loads(page)["prompts"])
