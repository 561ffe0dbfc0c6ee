"""Errors: facts as fields, one sentence without secrets, a class for each code that has one."""

from __future__ import annotations

import pickle

import pytest

from outrider import errors
from outrider.errors import (
    AuthRequired,
    ConfigError,
    HeaderMismatch,
    HttpRejected,
    InputNeeded,
    MissingClientCapability,
    NoCommonVersion,
    OutriderError,
    PeerError,
    RemoteProtocolError,
    TimedOut,
    UnsupportedVersion,
    http_status,
    peer_error,
)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (-32700, 400),
        (-32600, 400),
        (-32602, 400),
        (-32020, 400),
        (-32021, 400),
        (-32022, 400),
        (-32601, 404),
        (-32603, 500),
        (-32000, 200),
        (1, 200),
    ],
)
def test_the_status_a_code_travels_with(code: int, status: int) -> None:
    """Spec streamable-http#server-validation, #protocol-version-header (MUST)."""
    assert http_status(code) == status


def test_codes_have_their_classes() -> None:
    """Ours: what can be acted on can be caught."""
    assert type(peer_error(-32020, "m")) is HeaderMismatch
    assert type(peer_error(-32021, "m")) is MissingClientCapability
    assert type(peer_error(-32022, "m")) is UnsupportedVersion
    assert type(peer_error(-32601, "m")) is PeerError


@pytest.mark.parametrize(
    "data",
    [None, 7, "x", [], {}, {"supported": None}, {"supported": "x", "requested": 7}, {"requiredCapabilities": []}],
)
def test_data_of_any_shape_is_harmless(data: object) -> None:
    """Ours: it came from a peer."""
    refused = peer_error(-32022, "m", data)
    assert isinstance(refused, UnsupportedVersion)
    assert (refused.supported, refused.requested) == ((), "")
    missing = peer_error(-32021, "m", data)
    assert isinstance(missing, MissingClientCapability)
    assert missing.required == {}


def test_facts_of_a_refused_version() -> None:
    """Spec versioning#protocol-version-negotiation: `data.supported` and `data.requested`."""
    refused = peer_error(-32022, "m", {"supported": ["2026-07-28", 7], "requested": "2027-03-01"})
    assert isinstance(refused, UnsupportedVersion)
    assert (refused.supported, refused.requested) == (("2026-07-28",), "2027-03-01")


def every_error() -> list[type[OutriderError]]:
    return [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, OutriderError)]


def test_everything_has_one_root_and_is_exported() -> None:
    """Ours: `except OutriderError` catches all."""
    assert {cls.__name__ for cls in every_error()} <= set(errors.__all__)
    assert len(every_error()) > 15


def test_texts_of_peers_are_cut() -> None:
    """Ours: an error is read by a person."""
    assert len(str(PeerError(1, "x" * 10_000))) < 600
    assert len(RemoteProtocolError("m", excerpt="x" * 10_000).excerpt) == 200
    assert len(HttpRejected("m", status=400, excerpt="x" * 10_000).excerpt) == 200


def test_sentences() -> None:
    """Ours: what happened, and where."""
    assert str(NoCommonVersion(("2026-07-28",), ())) == (
        "no common protocol version: this client speaks 2026-07-28, the server names none"
    )
    assert str(ConfigError("is wrong", source="a.json:3")) == "a.json:3: is wrong"
    needed = InputNeeded("tools/call", {"a": {"method": "elicitation/create"}, "b": {"method": "roots/list"}}, None)
    assert "elicitation/create, roots/list" in str(needed)
    assert TimedOut("m", phase="list", timeout_s=3.0).phase == "list"
    assert AuthRequired("m", status=401, challenge="Bearer").challenge == "Bearer"


@pytest.mark.parametrize("hint", ["", "do this"])
def test_every_error_carries_a_hint(hint: str) -> None:
    """Ours: what to do next is a field, not prose."""
    assert OutriderError("m", hint=hint).hint == hint


def test_errors_say_the_same_in_another_process() -> None:
    """Ours: a gateway's worker may have to hand one on."""
    original = OutriderError("m")
    assert str(pickle.loads(pickle.dumps(original))) == "m"
