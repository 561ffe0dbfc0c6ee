"""JSON-RPC messages: whatever comes is classified, and what we send is one line that says what was meant."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outrider.errors import INVALID_REQUEST, PARSE_ERROR
from outrider.protocol.jsonrpc import (
    ErrorReply,
    Malformed,
    Message,
    Notification,
    Request,
    ResultReply,
    broken_reply_id,
    decode_message,
    decode_messages,
    decode_value,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
    guess_id,
    is_request_id,
    messages_within,
    same_id,
)

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
envelopes = st.dictionaries(
    st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "extra"]),
    st.just("2.0") | json_values | st.fixed_dictionaries({"code": json_values, "message": json_values}),
)


def read(text: str | dict[str, Any]) -> Message:
    return decode_message((text if isinstance(text, str) else json.dumps(text)).encode())


def members(message: Message) -> dict[str, Any]:
    """A message's members, payloads decoded."""
    return {
        name: msgspec.json.decode(value) if isinstance(value, msgspec.Raw) and value else value
        for name, value in msgspec.structs.asdict(message).items()
    }


class TestKinds:
    def test_requests_and_notifications(self) -> None:
        """Spec basic/index#requests, #notifications: an id makes the difference."""
        request = read('{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[1]}}')
        assert isinstance(request, Request)
        assert members(request) == {"id": 1, "method": "m", "params": {"a": [1]}}
        notification = read('{"jsonrpc":"2.0","method":"m"}')
        assert isinstance(notification, Notification)
        assert (notification.method, bytes(notification.params)) == ("m", b"")

    def test_replies(self) -> None:
        """Spec basic/index#responses."""
        result = read('{"jsonrpc":"2.0","id":"x","result":null}')
        assert isinstance(result, ResultReply)
        assert members(result) == {"id": "x", "result": None}
        error = read('{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no","data":{"a":1}}}')
        assert isinstance(error, ErrorReply)
        assert (error.id, error.code, error.message, error.decoded_data()) == (1, -32601, "no", {"a": 1})

    @pytest.mark.parametrize("id", [None, 1.5, True, "server-error", {}, []], ids=str)
    def test_a_reply_keeps_any_id(self, id: object) -> None:
        """Case 3, case 4: many servers get it wrong, and who waits must be able to see how."""
        error = read({"jsonrpc": "2.0", "id": id, "error": {"code": 1, "message": "m"}})
        assert isinstance(error, ErrorReply)
        assert error.id == id
        result = read({"jsonrpc": "2.0", "id": id, "result": {}})
        assert isinstance(result, ResultReply)
        assert result.id == id

    def test_a_reply_without_an_id(self) -> None:
        """Spec basic/index#error-responses: left out when the request's id could not be read."""
        error = read('{"jsonrpc":"2.0","error":{"code":-32700,"message":"Parse error"}}')
        assert isinstance(error, ErrorReply)
        assert error.id is None

    def test_an_error_stands_above_a_result(self) -> None:
        """Ours: whoever sends both, and a null result beside an error is common, means the error."""
        assert isinstance(read('{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":1,"message":"m"}}'), ErrorReply)

    def test_a_null_error_is_none(self) -> None:
        """Case 31: null in an optional member reads as absent; earlier revisions of JSON-RPC always sent both members."""
        result = read('{"jsonrpc":"2.0","id":1,"result":{"a":1},"error":null}')
        assert isinstance(result, ResultReply)
        assert members(result) == {"id": 1, "result": {"a": 1}}

    @pytest.mark.parametrize("message", [None, "ABSENT"])
    def test_an_error_without_a_message(self, message: str | None) -> None:
        """Ours: the code is what counts."""
        member = {"code": -32601} if message else {"code": -32601, "message": None}
        error = read({"jsonrpc": "2.0", "id": 1, "error": member})
        assert isinstance(error, ErrorReply)
        assert (error.code, error.message, error.decoded_data()) == (-32601, "", None)


class TestMalformed:
    @pytest.mark.parametrize(
        ("text", "code", "id"),
        [
            ("", PARSE_ERROR, None),
            ("{", PARSE_ERROR, None),
            ("nonsense", PARSE_ERROR, None),
            ('{"jsonrpc":"2.0","id":1,"result":{}} trailing', PARSE_ERROR, None),
            ('{"jsonrpc":"2.0","id":1,"method":"m","params":' + "[" * 5_000 + "]" * 5_000 + "}", PARSE_ERROR, None),
            ('{"jsonrpc":"2.0","id":1,"result":' + "[" * 5_000 + "]" * 4_999 + "}", PARSE_ERROR, None),
            ('{"jsonrpc":"2.0","id":1,"result":' + "[" * 5_000 + "]" * 5_001 + "}", PARSE_ERROR, None),
            ("[" * 5_000 + "]" * 5_000, INVALID_REQUEST, None),
            ("42", INVALID_REQUEST, None),
            ('"ready"', INVALID_REQUEST, None),
            ("null", INVALID_REQUEST, None),
            ("[]", INVALID_REQUEST, None),
            ('[{"jsonrpc":"2.0","id":1,"method":"m"}]', INVALID_REQUEST, None),
            ("{}", INVALID_REQUEST, None),
            ('{"jsonrpc":"1.0","id":1,"method":"m"}', INVALID_REQUEST, 1),
            ('{"jsonrpc":2.0,"id":"a","method":"m"}', INVALID_REQUEST, "a"),
            ('{"id":1,"method":"m"}', INVALID_REQUEST, 1),
            ('{"jsonrpc":"2.0","id":1}', INVALID_REQUEST, 1),
            ('{"jsonrpc":"2.0","id":1,"method":7}', INVALID_REQUEST, 1),
            ('{"jsonrpc":"2.0","id":null,"method":"m"}', INVALID_REQUEST, None),
            ('{"jsonrpc":"2.0","id":1.0,"method":"m"}', INVALID_REQUEST, None),
            ('{"jsonrpc":"2.0","id":true,"method":"m"}', INVALID_REQUEST, None),
            ('{"jsonrpc":"2.0","id":[1],"method":"m"}', INVALID_REQUEST, None),
            ('{"jsonrpc":"2.0","id":1,"error":"no"}', INVALID_REQUEST, 1),
            ('{"jsonrpc":"2.0","id":1,"error":{"code":"x","message":"m"}}', INVALID_REQUEST, 1),
            ('{"jsonrpc":"2.0","id":1,"error":{}}', INVALID_REQUEST, 1),
            ('{"jsonrpc":"2.0","id":1,"error":null}', INVALID_REQUEST, 1),
        ],
        ids=lambda value: str(value)[:50],
    )
    def test_what_is_no_message(self, text: str, code: int, id: object) -> None:
        """Spec JSON-RPC 2.0 #error_object: -32700 for what cannot be parsed, -32600 for what is no message; with the id if there is one."""
        message = read(text)
        assert isinstance(message, Malformed)
        assert (message.code, message.id) == (code, id)
        assert message.reason

    def test_bytes_that_are_not_utf8(self) -> None:
        """Spec transports#messages (MUST): also inside payloads that nobody has looked into yet."""
        message = decode_message(b'{"jsonrpc":"2.0","id":1,"result":{"t":"\xb0\xa1"}}')
        assert isinstance(message, Malformed)
        assert message.code == PARSE_ERROR

    def test_the_reason_repeats_nothing(self) -> None:
        """Ours: it goes to logs and to the peer; the input may hold secrets."""
        for text in ('{"jsonrpc":"SECRET","id":1}', '"SECRET"', "SECRET", '{"jsonrpc":"2.0","id":1,"error":"SECRET"}'):
            message = read(text)
            assert isinstance(message, Malformed)
            assert "SECRET" not in message.reason

    @given(st.binary())
    @example(b"\xef\xbb\xbf")
    @example(b'{"jsonrpc":"2.0","id":' + b"9" * 5_000 + b',"result":{}}')
    @example(b'{"jsonrpc":"2.0","id":1,"error":{"code":' + b"9" * 5_000 + b"}}")
    @example(b"\\ud800" * 10)
    def test_no_bytes_raise(self, data: bytes) -> None:
        """Ours: whatever a peer sends is a value."""
        assert isinstance(decode_message(data), Message)
        guess_id(data)
        decode_value(data)

    @given(envelopes)
    def test_no_object_raises(self, envelope: dict[str, Any]) -> None:
        """Ours: nor whatever it puts into the members."""
        message = read(envelope)
        assert isinstance(message, Message)
        if isinstance(message, Request):
            assert is_request_id(message.id)
        if envelope.get("jsonrpc") != "2.0":
            assert isinstance(message, Malformed)


class TestLenience:
    def test_a_byte_order_mark_is_skipped(self) -> None:
        """Case 105."""
        assert isinstance(decode_message(b'\xef\xbb\xbf{"jsonrpc":"2.0","method":"m"}'), Notification)

    @pytest.mark.parametrize("kind", [bytearray, memoryview])
    def test_any_buffer_will_do(self, kind: Any) -> None:
        """Ours."""
        assert isinstance(decode_message(kind(b'{"jsonrpc":"2.0","method":"m"}')), Notification)

    @pytest.mark.parametrize(
        ("text", "read_as"),
        [
            (r"\ud800", "\ufffd"),
            (r"a\ud83d", "a\ufffd"),
            (r"\udc00x", "\ufffdx"),
            (r"\ud83d\ude00\ud83d", "😀\ufffd"),
            (r"\ud83d\ud83d\ude00", "\ufffd😀"),
            (r"\\ud800 \ud800", "\\ud800 \ufffd"),
            (r"\\\ud800", "\\\ufffd"),
            (r"\uD800\uD800", "\ufffd\ufffd"),
        ],
    )
    def test_half_a_surrogate_pair_costs_one_character(self, text: str, read_as: str) -> None:
        """Case 105: JSON's grammar allows the escape and no text can hold it; neighbours stay as they are."""
        message = read(f'{{"jsonrpc":"2.0","id":1,"result":{{"t":"{text}"}}}}')
        assert isinstance(message, ResultReply)
        assert msgspec.json.decode(message.result) == {"t": read_as}

    def test_whole_pairs_are_kept_byte_for_byte(self) -> None:
        """Ours: payloads pass through unchanged."""
        payload = rb'{"t":"\ud83d\ude00 \\ud800 \u00e9"}'
        message = decode_message(b'{"jsonrpc":"2.0","id":1,"result":' + payload + b"}")
        assert isinstance(message, ResultReply)
        assert bytes(message.result) == payload

    def test_the_tolerance_of_ids(self) -> None:
        """Case 5: our number as a digit string, nothing else."""
        assert same_id(1, 1)
        assert same_id(1, "1")
        assert same_id("a", "a")
        for received in (1.0, True, "01", " 1", "1.0", "１", None, [1]):
            assert not same_id(1, received)
        assert not same_id("1", 1)

    @given(json_values)
    def test_what_may_be_an_id(self, value: object) -> None:
        """Spec basic/index#requests (MUST): a string or an integer; never null, a boolean or a fraction."""
        assert is_request_id(value) == (
            isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))
        )

    @pytest.mark.parametrize(
        ("data", "id"),
        [
            (b'{"jsonrpc":"2.0","id":7,"result":{"t":"\xb0', 7),
            (b'{"id" : "abc" , "jsonrpc":', "abc"),
            (b'{"jsonrpc":"2.0","id":1', None),
            (b'{"jsonrpc":"2.0","id":-1}', None),
            (b'{"jsonrpc":"2.0","id":1.5}', None),
            (b'{"jsonrpc":"2.0","id":null}', None),
            (b'{"id":' + b"9" * 5_000 + b"}", None),
        ],
    )
    def test_the_id_of_broken_bytes(self, data: bytes, id: object) -> None:
        """Case 105: enough to fail the request that they were meant to answer."""
        assert guess_id(data) == id

    @pytest.mark.parametrize(
        ("data", "id"),
        [
            (b'{"jsonrpc":"2.0","id":7,"result":{"t":"\xb0"}}', 7),
            (b'{"jsonrpc":"2.0","id":7,"error":{"code":"BAD","message":"m"}}', 7),
            (b'{"jsonrpc":"2.0","id":"x","error":"no"}', "x"),
            (b'{"jsonrpc":"2.0","id":null,"error":"no"}', None),
            (b'{"id":7,"level":"error","error":"log line"}', None),
            (b'[{"jsonrpc":"2.0","id":7,"result":{}}]', None),
            (b'{"jsonrpc":"2.0","id":7}', None),
        ],
    )
    def test_which_request_a_broken_reply_was_meant_for(self, data: bytes, id: object) -> None:
        """Case 5, case 105: that request fails at once; everything else is noise."""
        verdict = decode_message(data)
        assert isinstance(verdict, Malformed)
        assert broken_reply_id(data, verdict) == id


class TestValues:
    def test_values_that_cannot_be_decoded(self) -> None:
        """Ours: a value too."""
        assert isinstance(decode_value(rb'"\ud800"'), Malformed)
        assert isinstance(decode_value(b"[" * 5_000 + b"]" * 5_000), Malformed)
        assert decode_value(b"") is None
        assert ErrorReply(1, 1, "m", msgspec.Raw(rb'"\ud800"')).decoded_data() is None


class TestEncoding:
    @given(id=st.integers(-(2**53), 2**53) | st.text(), method=st.text(), params=json_values)
    def test_what_we_encode_is_read_back_the_same(self, id: int | str, method: str, params: Any) -> None:
        """Ours: round trip of all four kinds."""
        request = decode_message(encode_request(id, method, params))
        assert isinstance(request, Request)
        assert members(request) == {"id": id, "method": method, "params": params}
        result = decode_message(encode_result(id, params))
        assert isinstance(result, ResultReply)
        assert members(result) == {"id": id, "result": params}
        notification = decode_message(encode_notification(method, params))
        assert isinstance(notification, Notification)
        error = decode_message(encode_error(id, -32000, method, params))
        assert isinstance(error, ErrorReply)
        assert (error.id, error.code, error.message, error.decoded_data()) == (id, -32000, method, params)

    @given(method=st.text(), params=json_values)
    def test_one_message_is_one_line(self, method: str, params: Any) -> None:
        """Spec stdio (MUST NOT contain embedded newlines)."""
        for encoded in (
            encode_request(1, method, params),
            encode_result(1, params),
            encode_notification(method, params),
        ):
            assert b"\n" not in encoded
            assert b"\r" not in encoded

    def test_absent_members_are_left_out(self) -> None:
        """Spec basic/index#error-responses (MUST): no id when it could not be read; no null members."""
        assert json.loads(encode_error(None, -32700, "Parse error")) == {
            "jsonrpc": "2.0",
            "error": {"code": -32700, "message": "Parse error"},
        }
        assert json.loads(encode_notification("m")) == {"jsonrpc": "2.0", "method": "m"}
        assert json.loads(encode_error(0, 1, "m")) == {"jsonrpc": "2.0", "id": 0, "error": {"code": 1, "message": "m"}}


@pytest.mark.parametrize("depth", [2_000, 50_000])
def test_a_reply_that_is_nested_too_deeply_loses_what_is_too_deep(depth: int) -> None:
    """Case 125: of a list in the result the member, elsewhere the value; brackets in strings are no nesting."""
    deep, text = "[" * depth + "]" * depth, r"]]}\"\\"
    listed = f'{{"tools":[{{"name":"a"}},{{"name":"b","x":{deep}}},{{"name":"{text}"}}],"next":"c"}}'
    reply = read(f'{{"jsonrpc":"2.0","id":1,"result":{listed}}}')
    assert isinstance(reply, ResultReply)
    assert decode_value(reply.result) == {
        "tools": [{"name": "a"}, "nested too deeply", {"name": ']]}"\\'}],
        "next": "c",
    }
    reply = read(f'{{"jsonrpc":"2.0","id":1,"result":{{"a":1,"structured":{{"deep":{deep}}}}}}}')
    assert isinstance(reply, ResultReply)
    value = decode_value(reply.result)
    assert value["a"] == 1
    for _ in range(396):
        value = value["structured"]["deep"] if isinstance(value, dict) else value[0]
    assert value == ["nested too deeply"]


REPLY = '{"jsonrpc": "2.0", "id": 1, "result": {"a": "x{y"}}'
NOTICE = '{ "method": "notifications/x", "jsonrpc": "2.0" }'


class TestMessagesWithin:
    @pytest.mark.parametrize(
        ("line", "kinds", "noise"),
        [
            (f"loading...{REPLY}", [ResultReply], "loading..."),
            (f"{REPLY} done", [ResultReply], "done"),
            (f"\x1b[32m{REPLY}\x1b[0m", [ResultReply], "\x1b[32m\x1b[0m"),
            (f"{NOTICE}{REPLY}", [Notification, ResultReply], ""),
            (f'{{"a": 1}} {{50%}} {NOTICE} | {REPLY}|', [Notification, ResultReply], '{"a": 1} {50%} | |'),
            (f'{{"id": 1, {REPLY}', [ResultReply], '{"id": 1, '),
            ("Server started", [], "Server started"),
            ('{"id": ' * 40 + REPLY, [], '{"id": ' * 40 + REPLY),
            ("", [], ""),
        ],
    )  # fmt: skip
    def test_prints_and_glue_around_messages(self, line: str, kinds: list[type], noise: str) -> None:
        """Case 20: before, behind and between; what is not found costs a bounded effort."""
        found, rest = messages_within(line.encode())
        assert [type(message) for message in found] == kinds
        assert rest.decode() == noise

    @given(st.binary(max_size=60), st.lists(st.sampled_from([REPLY, NOTICE]), max_size=3))
    def test_any_bytes_may_stand_between(self, junk: bytes, messages: list[str]) -> None:
        """Case 20: nothing raises, and nothing of the line is both a message and noise."""
        line = junk.join(message.encode() for message in messages)
        found, rest = messages_within(line)
        assert len(found) <= len(messages)
        assert len(rest) <= len(line)

    def test_a_batch_is_read_where_there_are_batches(self) -> None:
        """Spec 2025-03-26 basic#batching (MUST support receiving); elsewhere it is no message."""
        batch = f"[{NOTICE}, {REPLY}]".encode()
        assert [type(message) for message in decode_messages(batch, batches=True)] == [Notification, ResultReply]
        assert [type(message) for message in decode_messages(batch, batches=False)] == [Malformed]
        for nothing in (b"[]", b"[1, 2]", b'["a"]', b"{}", b"["):
            assert [type(message) for message in decode_messages(nothing, batches=True)] == [Malformed]
        assert [type(message) for message in decode_messages(REPLY.encode(), batches=True)] == [ResultReply]


class TestWordsThatAreNoJson:
    @pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
    def test_they_are_null_in_a_reply(self, word: str) -> None:
        """Ours: several languages write them; one default of one tool would else cost the whole list."""
        reply = read(
            f'{{"jsonrpc": "2.0", "id": 1, "result": {{"a": {word}, "b": "say {word}, \\"{word}", "c": [1, {word}]}}}}'
        )
        assert members(reply)["result"] == {"a": None, "b": f'say {word}, "{word}', "c": [1, None]}

    def test_they_are_refused_in_a_request(self) -> None:
        """Spec JSON-RPC 4.2: the server owes a parse error."""
        message = read('{"jsonrpc": "2.0", "id": 1, "method": "x", "params": {"a": NaN}}')
        assert isinstance(message, Malformed)
        assert message.code == PARSE_ERROR
