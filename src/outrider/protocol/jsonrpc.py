"""JSON-RPC messages: bytes in, one classified message out; and the four kinds of message rendered to bytes.

Decided here: what counts as a message, which member makes it what kind, and which error a receiver owes for one that is not.
Not here: what methods mean, and correlation of ids (`client`), and validation of params (`server`). Payloads stay `Raw` bytes,
so that a message costs one decoding pass and whoever knows its type decodes the payload once.

`decode_message` never raises: whatever a peer sends is a value. Spec: 2026-07-28 basic/index#messages. Pure.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from outrider.errors import INVALID_REQUEST, PARSE_ERROR

__all__ = [
    "TOO_DEEP",
    "ErrorReply",
    "Malformed",
    "Message",
    "Notification",
    "Request",
    "RequestId",
    "ResultReply",
    "broken_reply_id",
    "decode_message",
    "decode_messages",
    "decode_value",
    "encode_error",
    "encode_notification",
    "encode_request",
    "encode_result",
    "guess_id",
    "is_request_id",
    "messages_within",
    "same_id",
]

RequestId = int | str
"""A request's id. Never null, never a boolean, never a fraction. Spec: 2026-07-28 basic/index#requests (MUST)"""

_ABSENT: Final = Raw(b"")
_BOM: Final = b"\xef\xbb\xbf"


# An escaped backslash is skipped, so that `\\\\ud800`, a backslash and five letters, is left alone; then a pair, then a lone half.
_SURROGATES: Final = re.compile(
    rb"(\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
# Strings are skipped; what is left of these words is no JSON.
_CONSTANTS: Final = re.compile(rb'("(?:[^"\\]|\\.)*")|-?\b(?:NaN|Infinity)\b')
_MESSAGE_START: Final = re.compile(rb'\{\s*"(?:jsonrpc|id|method|params|result|error)"\s*:')
_TRAILING: Final = re.compile(r"trailing characters \(byte (\d+)\)")
_MAX_WITHIN: Final = 1_000
_MAX_MISSES: Final = 16
_ID_IN_BYTES: Final = re.compile(rb'"id"\s*:\s*(?:([0-9]{1,18})|"([A-Za-z0-9._-]{1,100})")\s*[,}]')


class Request(Struct, frozen=True, gc=False):
    """A request. `params` is the member's JSON bytes, empty when absent."""

    id: RequestId
    method: str
    params: Raw = _ABSENT


class Notification(Struct, frozen=True, gc=False):
    """A one-way message. `params` is the member's JSON bytes, empty when absent."""

    method: str
    params: Raw = _ABSENT


class ResultReply(Struct, frozen=True, gc=False):
    """A successful answer. `id` is what the peer sent, of any JSON type: compare it with `same_id`."""

    id: Any
    result: Raw


class ErrorReply(Struct, frozen=True, gc=False):
    """An error answer. `id` is what the peer sent, of any JSON type, None when null or absent."""

    id: Any
    code: int
    message: str
    data: Raw = _ABSENT

    def decoded_data(self) -> Any:
        """The `data` member as Python values, or None when it is absent or cannot be decoded."""
        value = decode_value(self.data)
        return None if isinstance(value, Malformed) else value


class Malformed(Struct, frozen=True, gc=False):
    """Bytes that are not a JSON-RPC message.

    Attributes:
        code: the error a server owes for them: PARSE_ERROR or INVALID_REQUEST.
        reason: what is wrong, for people; holds nothing of the input.
        id: the id to answer with, when one could be read.
        is_reply: whether it was meant as an error reply to the request with that id.
    """

    code: int
    reason: str
    id: RequestId | None = None
    is_reply: bool = False


Message = Request | Notification | ResultReply | ErrorReply | Malformed

_BATCH: Final = Malformed(INVALID_REQUEST, "a batch")


class _Envelope(Struct, gc=False):
    # `Any` where JSON-RPC wants a certain type: a wrong one is our verdict to word, not the decoder's.
    jsonrpc: Any = None
    id: Any = UNSET
    method: Any = UNSET
    params: Raw = _ABSENT
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class _ErrorMember(Struct, gc=False):
    code: int
    message: str | None = None
    data: Raw = _ABSENT


_decode_envelope: Final = msgspec.json.Decoder(_Envelope).decode
_decode_error_member: Final = msgspec.json.Decoder(_ErrorMember).decode
_decode_any: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode


_MAX_NESTING: Final = 400
"""What is left of a reply that is nested more deeply than the decoder goes: three times what a schema may have."""
TOO_DEEP: Final = b'"nested too deeply"'
"""What stands in a reply for what was nested too deeply."""
_MAX_FLATTENED_BYTES: Final = 1024 * 1024
_LIST_DEPTH: Final = 3
"""Of a list of the result, {"result": {"tools": [ … ]}}, counted in brackets."""
_BRACKETS: Final = re.compile(rb'[\[\]{}]|"(?:[^"\\]|\\.)*+"', re.DOTALL)


def is_request_id(value: object) -> bool:
    """Whether `value` may be a request's id: a string or an integer. Spec: 2026-07-28 basic/index#requests (MUST)"""
    return type(value) is int or type(value) is str


def same_id(sent: RequestId, received: object) -> bool:
    """Whether a reply's id answers the request whose id is `sent`.

    A digit string is taken for our own number, because servers that keep ids as text exist; nothing else is guessed.

    Spec: 2026-07-28 basic/index#responses (MUST), with that one tolerance of ours.
    """
    if type(received) is type(sent):
        return received == sent
    return type(sent) is int and type(received) is str and received == str(sent)


def decode_message(data: bytes | bytearray | memoryview) -> Message:
    """Classify one JSON-RPC message.

    Args:
        data: exactly one message, UTF-8; a byte order mark before it is skipped.

    Returns:
        The message, or `Malformed` for anything else: bytes that are not UTF-8 or not JSON, JSON nested deeper than the decoder's
        limit, a value that is not an object, a batch, or an object that is neither request, notification nor reply.
    """
    if not isinstance(data, bytes):
        data = bytes(data)
    if data.startswith(_BOM):
        data = data[3:]
    if not data.isascii():
        # Payloads are kept as raw bytes, which the decoder skips without looking at their encoding.
        try:
            data.decode()
        except UnicodeDecodeError as error:
            return Malformed(PARSE_ERROR, f"not UTF-8: invalid byte at position {error.start}")
    try:
        try:
            envelope = _decode_envelope(data)
        except msgspec.DecodeError as error:
            envelope = _mended(data, error)
        except RecursionError:
            envelope = _flattened(data)
    except msgspec.ValidationError:
        return _BATCH if data.lstrip()[:1] == b"[" else Malformed(INVALID_REQUEST, "a JSON value that is not an object")
    except msgspec.DecodeError as error:
        return Malformed(PARSE_ERROR, f"not JSON: {error}")
    except RecursionError:
        return Malformed(PARSE_ERROR, "JSON nested too deeply")
    message_id = envelope.id
    known_id = message_id if is_request_id(message_id) else None
    if envelope.jsonrpc != "2.0":
        return Malformed(INVALID_REQUEST, 'the member "jsonrpc" is not "2.0"', known_id)
    method = envelope.method
    if method is not UNSET:
        if type(method) is not str:
            return Malformed(INVALID_REQUEST, 'the member "method" is not a string', known_id)
        if message_id is UNSET:
            return Notification(method, envelope.params)
        if known_id is None:
            return Malformed(INVALID_REQUEST, 'the member "id" is neither a string nor an integer')
        return Request(known_id, method, envelope.params)
    reply_id = None if message_id is UNSET else message_id
    # `"error": null` beside a result is how earlier revisions of JSON-RPC say that there is none.
    if not isinstance(envelope.error, UnsetType) and bytes(envelope.error) != b"null":
        try:
            error_member = _decode_error_member(envelope.error)
        except (msgspec.DecodeError, RecursionError):
            return Malformed(
                INVALID_REQUEST, 'the member "error" is not an object with an integer code', known_id, True
            )
        return ErrorReply(reply_id, error_member.code, error_member.message or "", error_member.data)
    if not isinstance(envelope.result, UnsetType):
        return ResultReply(reply_id, envelope.result)
    is_reply = not isinstance(envelope.error, UnsetType)
    return Malformed(INVALID_REQUEST, "neither a method, a result nor an error", known_id, is_reply)


def _without_lone_surrogates(data: bytes) -> bytes:
    r"""`data` with each escape such as `\ud800` that pairs with no other replaced by the escape of U+FFFD.

    JSON's grammar allows them and no text can hold them; without this, one such description would cost a whole list.
    """
    return _SURROGATES.sub(lambda match: match[0] if match[1] else rb"\ufffd", data)


def _flattened(data: bytes) -> _Envelope:
    """The envelope of a reply that is nested too deeply, without what is too deep: one tool would else cost the list.

    A member of a list in the result that is too deep becomes a text, which is no tool, prompt or resource, so that it is left out as any
    other that is none; elsewhere the text stands for what is too deep. A request is refused, and so is a large reply: looking at
    every bracket takes time.

    Raises:
        RecursionError: it cannot be had.
    """
    if len(data) > _MAX_FLATTENED_BYTES:
        raise RecursionError
    kept: list[bytes] = []
    depth = position = 0
    cut_at = 0  # the depth around what is too deep, while in it
    start = 0  # of the member of a list, while in one
    in_list = False
    for token in _BRACKETS.finditer(data):
        if token[0] in (b"[", b"{"):
            depth += 1
            if depth == _LIST_DEPTH:
                in_list = token[0] == b"["
            elif depth == _LIST_DEPTH + 1:
                start = token.start()
            elif depth == _MAX_NESTING and not cut_at:
                cut_at, from_ = (_LIST_DEPTH, start) if in_list else (depth - 1, token.start())
                kept += data[position:from_], TOO_DEEP
        elif token[0] in (b"]", b"}"):
            depth -= 1
            if cut_at and depth == cut_at:
                cut_at, position = 0, token.end()
    if depth or not kept:
        raise RecursionError
    envelope = _decode_envelope(b"".join((*kept, data[position:])))
    if envelope.method is not UNSET:
        raise RecursionError
    return envelope


def _mended(data: bytes, error: msgspec.DecodeError) -> _Envelope:
    """The envelope of a message whose JSON is wrong in a way that costs one value; `error` if it cannot be had.

    `NaN` and `Infinity`, which several languages write and no JSON knows, are null in a reply: one default of one tool would else cost
    the list. A request with them is refused, as any other that is not JSON.
    """
    mended = _without_lone_surrogates(data)
    if mended != data:
        try:
            return _decode_envelope(mended)
        except msgspec.DecodeError:
            pass
    nulled = _CONSTANTS.sub(lambda match: match[1] or b"null", mended)
    if nulled == mended:
        raise error
    envelope = _decode_envelope(nulled)
    if envelope.method is not UNSET:
        raise error
    return envelope


def decode_messages(data: bytes, *, batches: bool) -> list[Message]:
    """Like `decode_message`; where there are `batches`, the messages of one.

    Spec: 2025-03-26 basic#batching (MUST support receiving); no other revision has them.
    """
    message = decode_message(data)
    if batches and message == _BATCH and (found := messages_within(data)[0]):
        return found
    return [message]


def messages_within(data: bytes) -> tuple[list[Message], bytes]:
    """The messages in a line that is none itself, and what else stands in it.

    A print without a newline stands before a message, or behind it, as the colour codes of terminals do; two messages are glued together.
    A line that is JSON is not to be searched: what a log entry quotes was not said.
    """
    found: list[Message] = []
    noise: list[bytes] = []
    position = failures = 0
    while len(found) < _MAX_WITHIN and (start := _MESSAGE_START.search(data, position)):
        noise.append(data[position : start.start()])
        end = _object_end(data, start.start())
        message = decode_message(data[start.start() : end]) if end else None
        if end and message is not None and not isinstance(message, Malformed):
            found.append(message)
            position = end
            continue
        # Each miss has read to the end of the line: only a few are worth it.
        failures += 1
        if failures > _MAX_MISSES:
            position = start.start()
            break
        noise.append(data[start.start() : start.start() + 1])
        position = start.start() + 1
    noise.append(data[position:])
    return found, b"".join(noise)


def _object_end(data: bytes, start: int) -> int:
    """The offset behind the JSON object that starts at `start`; 0 if there is no whole one."""
    try:
        _decode_envelope(memoryview(data)[start:])
    except msgspec.DecodeError as error:
        trailing = _TRAILING.search(str(error))
        return start + int(trailing[1]) - 1 if trailing else 0  # it counts from 1
    except RecursionError:
        return 0
    return len(data)


def guess_id(data: bytes) -> RequestId | None:
    """The id that broken bytes may have been meant to answer, or None: only good for failing that request early."""
    match = _ID_IN_BYTES.search(data)
    if match is None:
        return None
    return int(match[1]) if match[1] else match[2].decode()


def broken_reply_id(data: bytes, verdict: Malformed) -> RequestId | None:
    """The id of the request that `data`, which is no message, seems meant to answer: broken JSON, or an error in a form of its own.

    None for anything else, such as a batch or a line of a log: that is noise.
    """
    if verdict.is_reply:
        return verdict.id
    return guess_id(data) if verdict.code == PARSE_ERROR else None


def decode_value(payload: Raw | bytes) -> Any:
    """A payload as Python values: None when it is empty, `Malformed` when it cannot be decoded, as with a lone surrogate."""
    if not payload:
        return None
    try:
        return _decode_any(payload)
    except (msgspec.DecodeError, RecursionError) as error:
        return Malformed(PARSE_ERROR, f"cannot be decoded: {error}")


def encode_request(request_id: RequestId, method: str, params: Any) -> bytes:
    """A request as one line of JSON without the newline. `params` is a mapping, a struct, or `Raw` bytes."""
    return _encode({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


def encode_notification(method: str, params: Any = None) -> bytes:
    """A notification as one line of JSON without the newline; no `params` member when `params` is None."""
    if params is None:
        return _encode({"jsonrpc": "2.0", "method": method})
    return _encode({"jsonrpc": "2.0", "method": method, "params": params})


def encode_result(request_id: RequestId, result: Any) -> bytes:
    """A successful reply as one line of JSON without the newline. `result` is a mapping, a struct, or `Raw` bytes."""
    return _encode({"jsonrpc": "2.0", "id": request_id, "result": result})


def encode_error(request_id: RequestId | None, code: int, message: str, data: Any = None) -> bytes:
    """An error reply as one line of JSON without the newline.

    Args:
        request_id: the request's id, or None when it could not be read: the member is then left out.
        code: the JSON-RPC error code.
        message: one sentence for people.
        data: the error's `data` member, or None for none.

    Spec: 2026-07-28 basic/index#error-responses (MUST)
    """
    error = {"code": code, "message": message} if data is None else {"code": code, "message": message, "data": data}
    if request_id is None:
        return _encode({"jsonrpc": "2.0", "error": error})
    return _encode({"jsonrpc": "2.0", "id": request_id, "error": error})
