"""`_meta`: what every modern request carries, and which key names are well-formed."""

from __future__ import annotations

import string

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outrider.protocol.meta import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVELS,
    PROTOCOL_VERSION,
    RequestMeta,
    check_extension_id,
    check_key,
    is_reserved_key,
    render_request_meta,
    trace_context_of,
)

LETTERS = set(string.ascii_letters)
ALPHANUMERIC = LETTERS | set(string.digits)


def is_label(label: str) -> bool:
    """Starts with a letter, ends with a letter or digit, with letters, digits and hyphens between."""
    return bool(label) and label[0] in LETTERS and label[-1] in ALPHANUMERIC and set(label) <= ALPHANUMERIC | {"-"}


def is_name(name: str) -> bool:
    """Empty, or alphanumeric at both ends with hyphens, underscores and dots between."""
    return not name or (name[0] in ALPHANUMERIC and name[-1] in ALPHANUMERIC and set(name) <= ALPHANUMERIC | set("-_."))


def is_key(key: str) -> bool:
    """The rules of the specification, word by word."""
    if "/" not in key:
        return bool(key) and is_name(key)
    prefix, _, name = key.rpartition("/")
    return all(is_label(label) for label in prefix.split(".")) and is_name(name)


keys = st.text(alphabet="aZ09-_./é ", max_size=12) | st.from_regex(
    r"[a-z]{1,3}(\.[a-z0-9-]{1,3}){0,2}/[a-z0-9._-]{0,4}", fullmatch=True
)


class TestKeys:
    @given(keys)
    @example("")
    @example("/")
    @example("/name")
    @example("a//b")
    @example("com.example/\n")
    @example("name\n")
    def test_against_the_rules_word_by_word(self, key: str) -> None:
        """Spec basic/index#_meta, key name format (MUST)."""
        assert (check_key(key) is None) == is_key(key)

    @pytest.mark.parametrize(
        "key", ["progressToken", "io.modelcontextprotocol/protocolVersion", "com.example/", "a-b.c9/x.y_z-1"]
    )
    def test_sound_keys(self, key: str) -> None:
        """Spec basic/index#_meta: an empty name after a prefix is sound."""
        assert check_key(key) is None

    @pytest.mark.parametrize(
        ("key", "reserved"),
        [
            ("io.modelcontextprotocol/x", True),
            ("dev.mcp/x", True),
            ("org.modelcontextprotocol.api/x", True),
            ("com.mcp.tools/x", True),
            ("com.example.mcp/x", False),
            ("mcp/x", False),
            ("io.modelcontextprotocol", False),
            ("io.modelcontextprotocolx/x", False),
            ("progressToken", False),
        ],
    )
    def test_prefixes_that_belong_to_mcp(self, key: str, reserved: bool) -> None:
        """Spec basic/index#_meta, prefix: the second label decides; the specification's own examples."""
        assert is_reserved_key(key) is reserved

    def test_extension_identifiers_need_a_prefix(self) -> None:
        """Spec versioning#extension-negotiation (MUST)."""
        assert check_extension_id("com.example/widgets") is None
        assert check_extension_id("widgets") is not None
        assert check_extension_id("com..example/widgets") is not None


class TestTraceContext:
    PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    def test_what_is_well_formed_is_kept(self) -> None:
        """Spec basic/index#_meta, OpenTelemetry trace context."""
        full = {"traceparent": self.PARENT, "tracestate": "a=b,c=d", "baggage": "k=v"}
        assert trace_context_of({**full, "progressToken": 1}) == full

    def test_tracestate_means_nothing_without_its_parent_and_baggage_stands_alone(self) -> None:
        """W3C Trace Context 3.3; W3C Baggage 2."""
        assert trace_context_of({"tracestate": "a=b", "baggage": "k=v"}) == {"baggage": "k=v"}
        assert trace_context_of({"traceparent": "00-0", "tracestate": "a=b"}) == {}

    @pytest.mark.parametrize("key", ["tracestate", "baggage"])
    def test_each_value_is_bounded(self, key: str) -> None:
        """W3C Baggage 3.3.2: 8192 bytes are passed on."""
        kept = trace_context_of({"traceparent": self.PARENT, key: "x" * 8192})
        assert key in kept
        assert key not in trace_context_of({"traceparent": self.PARENT, key: "x" * 8193})

    @given(st.recursive(st.none() | st.integers() | st.text(), st.lists))
    def test_anything_else_is_left_out(self, value: object) -> None:
        """Ours: nothing a peer writes there raises, and nothing but text gets through."""
        for key in ("traceparent", "tracestate", "baggage"):
            kept = trace_context_of({"traceparent": self.PARENT, key: value})
            assert all(isinstance(text, str) and text.isascii() and len(text) <= 8192 for text in kept.values())


class TestRequests:
    def test_the_required_fields_are_always_there(self) -> None:
        """Spec basic/index#_meta, per-request protocol fields (MUST)."""
        assert render_request_meta("2026-07-28", None, {}) == {PROTOCOL_VERSION: "2026-07-28", CLIENT_CAPABILITIES: {}}
        info = {"name": "t", "version": "0"}
        assert render_request_meta("2026-07-28", info, {"roots": {}})[CLIENT_INFO] == info

    def test_further_keys_never_override_the_protocols_own(self) -> None:
        """Ours: a caller's metadata cannot change what the request says about itself."""
        extra = {PROTOCOL_VERSION: "evil", CLIENT_CAPABILITIES: {"sampling": {}}, "traceparent": "00-1"}
        meta = render_request_meta("2026-07-28", None, {}, extra=extra)
        assert meta == {PROTOCOL_VERSION: "2026-07-28", CLIENT_CAPABILITIES: {}, "traceparent": "00-1"}
        assert extra[PROTOCOL_VERSION] == "evil"

    def test_absent_and_null_stay_apart(self) -> None:
        """Case 142: a server owes -32602 for an absent required field, and for one of the wrong type."""
        meta = msgspec.json.decode(b"{}", type=RequestMeta)
        assert meta.protocol_version is msgspec.UNSET
        assert meta.client_capabilities is msgspec.UNSET
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(msgspec.json.encode({PROTOCOL_VERSION: None}), type=RequestMeta)

    def test_what_a_client_renders_a_server_reads(self) -> None:
        """Ours: one fact, one place."""
        rendered = render_request_meta("2026-07-28", {"name": "t"}, {"roots": {}}, extra={"progressToken": 7})
        meta = msgspec.json.decode(msgspec.json.encode(rendered), type=RequestMeta)
        assert (meta.protocol_version, meta.client_capabilities, meta.progress_token) == (
            "2026-07-28",
            {"roots": {}},
            7,
        )

    def test_levels_stand_least_severe_first(self) -> None:
        """Spec server/utilities/logging#log-levels."""
        assert LOG_LEVELS == ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
