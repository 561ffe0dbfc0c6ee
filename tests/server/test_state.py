"""Sealed request states."""

from __future__ import annotations

import base64

import pytest

from outrider.server.state import StateRejected, StateSeal

KEY = "a secret of at least sixteen bytes"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_state_comes_back_under_its_binding() -> None:
    """Spec: 2026-07-28 basic/patterns/mrtr (requestState is meaningful to the server only)"""
    seal = StateSeal([KEY])
    state = seal.seal({"round": 2}, b"binding")
    assert seal.open(state, b"binding") == {"round": 2}


def test_state_shows_nothing_of_its_content() -> None:
    """Ours: a client cannot read what the server thinks."""
    state = StateSeal([KEY]).seal({"secret": "squirrel"}, b"b")
    assert b"squirrel" not in base64.urlsafe_b64decode(state + "==")


def test_any_change_is_refused() -> None:
    """Spec: 2026-07-28 basic/patterns/mrtr#server-requirements-basic-workflow (MUST reject state that fails verification)"""
    seal = StateSeal([KEY], clock=Clock())
    state = seal.seal({"n": 1}, b"b")
    for position in range(len(state)):
        for letter in "ADwz09-_ é\n=":
            changed = state[:position] + letter + state[position + 1 :]
            # The last letter of base64 may differ without a difference in the bytes.
            if _decoded(changed) != _decoded(state):
                with pytest.raises(StateRejected):
                    seal.open(changed, b"b")


def _decoded(state: str) -> bytes | None:
    try:
        return base64.b64decode(state + "=" * (-len(state) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return None


@pytest.mark.parametrize("state", ["", "A", "AAAA", "AQ", "not base64!", "x" * 100, "A" * 100_000])
def test_foreign_text_is_refused(state: str) -> None:
    """Spec: as above; whatever a client sends is attacker-controlled."""
    with pytest.raises(StateRejected):
        StateSeal([KEY]).open(state, b"b")


def test_state_of_another_request_or_caller_is_refused() -> None:
    """Spec: as above (SHOULD bind to the principal and the request)"""
    seal = StateSeal([KEY])
    with pytest.raises(StateRejected, match="another request or caller"):
        seal.open(seal.seal(1, b"mine"), b"yours")


def test_state_expires() -> None:
    """Spec: as above (SHOULD have a short expiry); valid until just before the limit, refused at it."""
    clock = Clock()
    seal = StateSeal([KEY], ttl_s=60, clock=clock)
    state = seal.seal(1, b"b")
    clock.now += 59.9
    assert seal.open(state, b"b") == 1
    clock.now += 0.1
    with pytest.raises(StateRejected, match="expired"):
        seal.open(state, b"b")


def test_processes_with_one_key_open_each_others_states() -> None:
    """Ours: what makes several processes one server."""
    assert StateSeal([KEY]).open(StateSeal([KEY]).seal(1, b"b"), b"b") == 1
    with pytest.raises(StateRejected):
        StateSeal().open(StateSeal().seal(1, b"b"), b"b")


def test_key_is_rotated_by_putting_the_new_one_first() -> None:
    """Ours: old states open until the old key is taken away."""
    new = "another secret of sixteen bytes or more"
    old_state = StateSeal([KEY]).seal(1, b"b")
    assert StateSeal([new, KEY]).open(old_state, b"b") == 1
    with pytest.raises(StateRejected):
        StateSeal([KEY]).open(StateSeal([new, KEY]).seal(1, b"b"), b"b")


def test_short_key_is_refused() -> None:
    """Ours: at the limit and one below."""
    StateSeal(["x" * 16])
    with pytest.raises(ValueError, match="16 bytes"):
        StateSeal(["x" * 15])
