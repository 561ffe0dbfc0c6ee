"""Lines and event streams: where messages start and end, in any chunking, and what too long a message does."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import LocalProtocolError
from outrider.protocol.framing import (
    KEEP_ALIVE,
    EventDecoder,
    LineDecoder,
    Overflow,
    ServerSentEvent,
    encode_comment,
    encode_event,
    encode_line,
)

REPLY = '{"jsonrpc":"2.0","id":1,"result":{"name":"café 天気"}}'.encode()


def lines_of(stream: bytes, *, cuts: Sequence[int] = (), max_line_bytes: int = 1000) -> list[bytes | Overflow]:
    decoder = LineDecoder(max_line_bytes=max_line_bytes)
    return [line for chunk in cut(stream, cuts) for line in decoder.feed(chunk)] + decoder.end()


def events_of(
    stream: bytes, *, cuts: Sequence[int] = (), max_event_bytes: int = 1000
) -> list[ServerSentEvent | Overflow]:
    decoder = EventDecoder(max_event_bytes=max_event_bytes)
    return [event for chunk in cut(stream, cuts) for event in decoder.feed(chunk)]


def cut(stream: bytes, cuts: Sequence[int]) -> list[bytes]:
    places = sorted({place % (len(stream) + 1) for place in cuts})
    return [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]


def one_byte_each(stream: bytes) -> list[int]:
    return list(range(1, len(stream)))


def is_one_line(text: str) -> bool:
    return not set(text) & set("\r\n\0")


def data_of(events: list[ServerSentEvent | Overflow]) -> list[bytes]:
    assert all(isinstance(event, ServerSentEvent) for event in events)
    return [event.data for event in events if isinstance(event, ServerSentEvent)]


class TestLines:
    def test_lines_end_at_newlines_and_lose_one_carriage_return(self) -> None:
        """Spec stdio: messages are delimited by newlines. Ours: CRLF is accepted, as Windows servers send it."""
        assert lines_of(b"a\nb\r\nc\r\r\n\n") == [b"a", b"b", b"c\r", b""]

    def test_a_last_line_without_newline_comes_at_the_end(self) -> None:
        """Ours: what a dying server left behind is the best hint of why it died."""
        decoder = LineDecoder()
        assert decoder.feed(b"whole\npart") == [b"whole"]
        assert decoder.end() == [b"part"]
        assert decoder.end() == []

    def test_a_byte_order_mark_before_the_first_message_is_dropped(self) -> None:
        """Case 105: a BOM before the first message; only there, since anywhere else it is content."""
        bom = b"\xef\xbb\xbf"
        stream = bom + REPLY + b"\n" + bom + REPLY + b"\n"
        assert lines_of(stream, cuts=one_byte_each(stream)) == [REPLY, bom + REPLY]

    def test_a_character_cut_between_chunks_survives(self) -> None:
        """Case 105: multi-byte characters split across chunks."""
        stream = REPLY + b"\n"
        for place in range(len(stream)):
            assert lines_of(stream, cuts=[place]) == [REPLY]

    def test_bytes_that_are_not_utf8_are_handed_on_untouched(self) -> None:
        """Case 105: a bad line is one bad message, not the end of the reader."""
        assert lines_of(b'"\xb0\xa1"\n' + REPLY + b"\n") == [b'"\xb0\xa1"', REPLY]

    @pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
    def test_a_line_at_the_limit_passes_and_one_above_it_does_not(self, ending: bytes) -> None:
        """Case 22, case 104: the limit is on the line without its end."""
        fits, too_long = b"x" * 100, b"x" * 101
        for cuts in ([], one_byte_each(fits + ending)):
            assert lines_of(fits + ending, cuts=cuts, max_line_bytes=100) == [fits]
            assert lines_of(too_long + ending, cuts=cuts, max_line_bytes=100) == [Overflow(100, too_long)]

    @pytest.mark.parametrize("size", [65_537, 1024 * 1024, 10 * 1024 * 1024])
    def test_long_lines_below_the_limit_pass(self, size: int) -> None:
        """Case 22: 65,537 bytes, 1 MiB and 10 MiB on one line, whole and in pipe-sized pieces."""
        line = b"y" * size
        cuts = list(range(0, size, 65_536))
        assert lines_of(line + b"\n", max_line_bytes=size) == [line]
        assert lines_of(line + b"\n", cuts=cuts, max_line_bytes=size) == [line]

    def test_a_long_line_in_one_byte_pieces_passes(self) -> None:
        """Case 22: the same split in 1-byte writes."""
        line = b"y" * 65_537
        assert lines_of(line + b"\n", cuts=one_byte_each(line), max_line_bytes=100_000) == [line]

    def test_the_tail_of_a_long_line_never_passes_as_a_message(self) -> None:
        """Case 104: junk above the limit, then a well-formed reply on the same line."""
        assert lines_of(b"x" * 200 + REPLY + b"\n" + REPLY + b"\n", max_line_bytes=100) == [
            Overflow(100, b"x" * 200),
            REPLY,
        ]

    def test_an_endless_line_is_reported_once_and_kept_nowhere(self) -> None:
        """Case 104: bounded buffer; reported at once, because it never ends."""
        decoder = LineDecoder(max_line_bytes=1000)
        reports = [decoder.feed(b"x" * 400) for _ in range(1000)]
        assert reports[:2] == [[], []]
        assert reports[2] == [Overflow(1000, b"x" * 200)]
        assert not any(reports[3:])
        assert decoder.end() == []

    @given(
        st.lists(st.one_of(st.binary(max_size=30), st.sampled_from([b"\r", b"\n", b"\r\n", REPLY]))),
        st.lists(st.integers(min_value=0, max_value=2000)),
    )
    def test_chunking_changes_nothing(self, pieces: list[bytes], cuts: list[int]) -> None:
        """Ours: the result is a function of the bytes, not of how they arrive."""
        stream = b"".join(pieces)
        whole = lines_of(stream, max_line_bytes=25)
        assert without_excerpts(lines_of(stream, cuts=cuts, max_line_bytes=25)) == without_excerpts(whole)

    @given(st.lists(st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5)), st.booleans())
    def test_json_survives_the_round_trip(self, values: list[object], pretty: bool) -> None:
        """Spec stdio (MUST NOT contain embedded newlines): also for JSON that came pretty-printed."""
        messages = [msgspec.json.encode(value) for value in values]
        sent = [msgspec.json.format(message, indent=2) if pretty else message for message in messages]
        lines = lines_of(b"".join(encode_line(message) for message in sent), max_line_bytes=100_000)
        assert [msgspec.json.decode(line) for line in lines if isinstance(line, bytes)] == values

    def test_encoding_replaces_every_kind_of_line_end(self) -> None:
        """Spec stdio (MUST NOT contain embedded newlines)."""
        assert encode_line(b'{\r\n"a":\r1}') == b'{  "a": 1}\n'


class TestEvents:
    def test_one_event(self) -> None:
        """Spec streamable-http: replies arrive as events named "message"."""
        assert events_of(b"event: message\ndata: {}\n\n") == [ServerSentEvent("message", b"{}")]

    @pytest.mark.parametrize(
        ("stream", "expected"),
        [
            (b"data: {}\r\n\r\n", [b"{}"]),
            (b"data: {}\r\r", [b"{}"]),
            (b"data: {}\n\r\n", [b"{}"]),
            (b"data:{}\n\n", [b"{}"]),
            (b"data:  {}\n\n", [b" {}"]),
            (b"data: {\ndata: }\n\n", [b"{\n}"]),
            (b": hello\ndata: {}\n:\n\n", [b"{}"]),
            (b":\r\n\r\ndata: {}\n\n", [b"{}"]),
            (b"data\n\n", [b""]),
            (b"data:\n\n", [b""]),
            (b"data\ndata\n\ndata:", [b"\n"]),
            (b"nonsense: 1\nDATA: no\n data: no\ndata: {}\n\n", [b"{}"]),
            (b"\xef\xbb\xbfdata: {}\n\n", [b"{}"]),
            (b"\xef\xbb\xbf\xef\xbb\xbfdata: {}\n\n", []),
            (b"\n\n\ndata: {}\n\n\n", [b"{}"]),
            (b"data: {}\n", []),
            (b"data: {}", []),
            (b"event: ping\n\n", []),
            (b"data: 1\n\ndata: 2\n\n", [b"1", b"2"]),
            (b"data: a:b: c\n\n", [b"a:b: c"]),
            (b'data: "\xc3\xa9"\n\n', ['"é"'.encode()]),
        ],
    )
    def test_every_form_of_the_grammar(self, stream: bytes, expected: list[bytes]) -> None:
        """Case 21: CRLF, CR, no space, several data lines, comments, empty data, unknown fields, BOM, no last blank line."""
        assert data_of(events_of(stream)) == expected
        assert data_of(events_of(stream, cuts=one_byte_each(stream))) == expected

    def test_names_are_kept_and_reset_after_each_event(self) -> None:
        """Spec WHATWG: the event name holds for one block only, also for a block without data."""
        stream = b"event: endpoint\ndata: /m\n\ndata: {}\n\nevent: lost\n\ndata: {}\n\nevent:\ndata: {}\n\n"
        assert [event.event for event in events_of(stream) if isinstance(event, ServerSentEvent)] == [
            "endpoint",
            "message",
            "message",
            "message",
        ]

    def test_an_event_is_handed_on_at_its_blank_line_even_if_that_is_a_lone_cr(self) -> None:
        """Case 106 (a): the reply is there when its event is, whatever follows."""
        decoder = EventDecoder()
        assert decoder.feed(b"data: {}\r") == []
        assert data_of(decoder.feed(b"\r")) == [b"{}"]
        assert decoder.feed(b"\n") == []
        assert data_of(decoder.feed(b"data: 2\r\n\r\n")) == [b"2"]

    def test_the_last_event_id_is_that_of_the_last_complete_block(self) -> None:
        """Spec WHATWG: ids stick, a NUL voids the field, an empty id resets, a block without data counts, a cut one does not."""
        decoder = EventDecoder()
        first, second = decoder.feed(b"id: 1\ndata: a\n\ndata: b\n\n")
        assert (first, second) == (ServerSentEvent("message", b"a", "1"), ServerSentEvent("message", b"b", "1"))
        decoder.feed(b"id: 2\n")
        assert decoder.last_event_id == "1"
        decoder.feed(b"\n")
        assert decoder.last_event_id == "2"
        decoder.feed(b"id: 3\0\ndata: x\n\n")
        assert decoder.last_event_id == "2"
        decoder.feed(b"id\ndata: x\n\n")
        assert decoder.last_event_id == ""

    def test_retry_is_digits_only_and_bounded(self) -> None:
        """Spec WHATWG: anything but ASCII digits is ignored. Ours: so is a number no clock can wait for."""
        decoder = EventDecoder()
        assert decoder.feed(b"retry: 1500\ndata: a\n\n") == [ServerSentEvent("message", b"a", None, 1500)]
        assert decoder.feed(b"data: b\n\n") == [ServerSentEvent("message", b"b", None, None)]
        for bad in (b"-1", b"1.5", b"", b"1s", "٣".encode(), b"9" * 13, b"9" * 5000):
            decoder.feed(b"retry: " + bad + b"\n\n")
        assert decoder.retry_ms == 1500
        decoder.feed(b"retry: " + b"9" * 12 + b"\n")
        assert decoder.retry_ms == 999_999_999_999

    def test_data_at_the_limit_passes_and_one_byte_above_it_does_not(self) -> None:
        """Case 104: the same kind of limit for SSE bodies; in one line, in several, and without the space."""
        for fits, too_long in [
            (b"data: " + b"x" * 100, b"data: " + b"x" * 101),
            (b"data:" + b"x" * 100, b"data:" + b"x" * 101),
            (b"data: " + b"x" * 50 + b"\ndata: " + b"x" * 49, b"data: " + b"x" * 50 + b"\ndata: " + b"x" * 50),
            (b"data\n" * 100 + b"data", b"data\n" * 101 + b"data"),
        ]:
            after = b"\n\ndata: next\n\n"
            for stream, outcome in ((fits, ServerSentEvent), (too_long, Overflow)):
                for cuts in ([], one_byte_each(stream)):
                    found = events_of(stream + after, cuts=cuts, max_event_bytes=100)
                    assert [type(event) for event in found] == [outcome, ServerSentEvent]
                    assert found[-1] == ServerSentEvent("message", b"next")

    def test_nothing_of_an_over_long_event_passes_for_a_message(self) -> None:
        """Case 104: later data lines of the same event are discarded too, up to its blank line."""
        stream = b"id: 1\ndata: " + b"x" * 300 + b"\ndata: {}\nid: 2\n\ndata: {}\n\n"
        decoder = EventDecoder(max_event_bytes=100)
        found = decoder.feed(stream)
        assert found == [Overflow(100, (b"data: " + b"x" * 300)[:200]), ServerSentEvent("message", b"{}", "2")]

    def test_an_endless_event_is_reported_once_and_kept_nowhere(self) -> None:
        """Case 104: bounded buffer, in an endless line and in endless lines."""
        for chunk in (b"data: " + b"x" * 400, b"data: x\n" * 50):
            decoder = EventDecoder(max_event_bytes=1000)
            reports = [report for _ in range(1000) for report in decoder.feed(chunk)]
            assert [type(report) for report in reports] == [Overflow]

    def test_comments_count_against_no_limit(self) -> None:
        """Spec streamable-http (clients must ignore comments): hours of keep-alives, or one of any length, harm no event."""
        stream = b"data: 1\n" + b":\n" * 5000 + b":" + b"x" * 5000 + b"\ndata: 2\n\n"
        for cuts in ([], list(range(0, len(stream), 7))):
            assert data_of(events_of(stream, cuts=cuts, max_event_bytes=100)) == [b"1\n2"]

    @given(
        st.lists(
            st.sampled_from(
                [
                    b"data: a",
                    b"data",
                    b"data:" + b"x" * 12,
                    b"id: 1",
                    b"event: e",
                    b"retry: 5",
                    b":c",
                    b"x" * 40,
                    b":" * 40,
                    b"\n",
                    b"\n\n",
                    b"\r",
                    b"\r\n",
                    b"\r\n\r\n",
                    b"\xef\xbb\xbf",
                    b"\x00",
                    b" ",
                ]
            )
        ),
        st.lists(st.integers(min_value=0, max_value=500)),
    )
    def test_chunking_changes_nothing(self, pieces: list[bytes], cuts: list[int]) -> None:
        """Ours: the result is a function of the bytes, not of how they arrive."""
        stream = b"".join(pieces)
        whole, chopped = EventDecoder(max_event_bytes=15), EventDecoder(max_event_bytes=15)
        expected = whole.feed(stream)
        found = [event for chunk in cut(stream, cuts) for event in chopped.feed(chunk)]
        assert without_excerpts(found) == without_excerpts(expected)
        assert (chopped.last_event_id, chopped.retry_ms) == (whole.last_event_id, whole.retry_ms)

    @given(
        data=st.binary(max_size=50).filter(lambda data: b"\r" not in data),
        event=st.text(min_size=1, max_size=9).filter(is_one_line),
        id=st.text(max_size=9).filter(is_one_line),
        retry_ms=st.integers(min_value=0, max_value=10**12 - 1),
    )
    def test_what_is_encoded_decodes_to_the_same(self, data: bytes, event: str, id: str, retry_ms: int) -> None:
        """Ours: round trip of every field."""
        stream = encode_event(data, event=event, id=id, retry_ms=retry_ms)
        assert events_of(KEEP_ALIVE + stream) == [ServerSentEvent(event, data, id, retry_ms)]

    def test_line_ends_in_data_arrive_as_line_feeds(self) -> None:
        """Spec WHATWG: a line end in data can only be carried as a new data line."""
        assert data_of(events_of(encode_event(b"a\r\nb\rc\n"))) == [b"a\nb\nc\n"]

    @pytest.mark.parametrize(("event", "id"), [("a\nb", None), (None, "a\rb"), (None, "a\0b")])
    def test_fields_that_would_split_the_stream_are_refused(self, event: str | None, id: str | None) -> None:
        """Case 138: no injection of stream lines through a name or an id."""
        with pytest.raises(LocalProtocolError):
            encode_event(b"{}", event=event, id=id)

    def test_a_comment_is_only_a_comment_whatever_it_holds(self) -> None:
        """Case 138: no injection of an event through a comment."""
        assert encode_comment("one\ndata: two\r\r") == b": one\n: data: two\n: \n: \n\n"
        assert events_of(encode_comment("one\n\ndata: two\n\n")) == []


def without_excerpts(found: list[bytes | Overflow] | list[ServerSentEvent | Overflow]) -> list[object]:
    """An excerpt is taken when the limit is passed, so how much of the message it shows depends on the chunks."""
    return [Overflow if isinstance(item, Overflow) else item for item in found]
