"""Checks of JSON-RPC: errors, ids, methods that are unknown or gone, and input that is no message."""

from __future__ import annotations

from typing import Any, Final

from outrider.checker.checks import Docket, Phase, check
from outrider.checker.speakers import Answer, Outcome, StdioSpeaker
from outrider.checker.subject import DISCOVER, Subject, encode
from outrider.errors import INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR
from outrider.protocol.headers import PROTOCOL_VERSION

_UNKNOWN_METHOD: Final = "outrider/no-such-method"
_GONE: Final = ("ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe")
_GONE_PARAMS: Final[dict[str, dict[str, Any]]] = {
    "logging/setLevel": {"level": "error"},
    "resources/subscribe": {"uri": "outrider:no-such-resource"},
    "resources/unsubscribe": {"uri": "outrider:no-such-resource"},
}
_MCP_CODES: Final = frozenset({-32020, -32021, -32022})
_TRANSPORT_REFUSALS: Final = frozenset({401, 403, 405, 406, 413, 415, 421, 429})
_DEPTH: Final = 5_000


@check("rpc.unknown-method", "rpc.unknown-method-status")
async def unknown_method(subject: Subject, docket: Docket) -> None:
    """A method that nobody has."""
    answer = await subject.ask(_UNKNOWN_METHOD)
    docket.require(
        answer.code == METHOD_NOT_FOUND, "rpc.unknown-method", f"an unknown method got {answer.shown()}", answer
    )
    if answer.status is not None:
        docket.require(
            answer.status == 404 and answer.error is not None,
            "rpc.unknown-method-status",
            f"an unknown method got {answer.shown()}",
            answer,
        )


@check("rpc.gone-initialize")
async def gone_methods(subject: Subject, docket: Docket) -> None:
    """Methods of earlier revisions with modern metadata."""
    for method in _GONE:
        answer = await subject.ask(method, _GONE_PARAMS.get(method))
        docket.require(answer.code == METHOD_NOT_FOUND, "rpc.gone-initialize", f"{method} got {answer.shown()}", answer)


@check("rpc.result-id")
async def ids_are_echoed(subject: Subject, docket: Docket) -> None:
    """An id that is a text, beside the numbers of all other requests."""
    if subject.is_modern:
        answer = await subject.ask(_plain(subject), request_id="outrider-check-7")
    elif subject.legacy is not None:
        message = {"jsonrpc": "2.0", "id": "outrider-check-7", "method": "ping"}
        answer = subject.keep(
            await subject.legacy.speaker.say(
                encode(message), request_id="outrider-check-7", headers=subject.legacy.headers(), legacy=True
            )
        )
    else:
        return
    docket.require(
        answer.outcome is Outcome.REPLY, "rpc.result-id", f"an id that is a text got {answer.shown()}", answer
    )


def _plain(subject: Subject) -> str:
    return next((method for method, listed in subject.lists.items() if listed.pages[0].result is not None), DISCOVER)


@check("rpc.result-id", "rpc.error-id", "rpc.error-shape", "rpc.reserved-codes", "rpc.jsonrpc", phase=Phase.LAST)
async def every_message(subject: Subject, docket: Docket) -> None:
    """The envelope of every message that was seen."""
    for answer in subject.answers:
        if not subject.is_modern and not answer.legacy:
            continue  # A modern request to a server that never heard of such.
        message = answer.message
        for other in (message, *answer.others):
            if isinstance(other, dict):
                docket.require(
                    other.get("jsonrpc") == "2.0", "rpc.jsonrpc", f"jsonrpc is {other.get('jsonrpc')!r}", answer
                )
        if message is None:
            continue
        requirement_id = "rpc.error-id" if "error" in message else "rpc.result-id"
        received = message.get("id")
        if answer.request_id is not None and not (received is None and _need_not_be_read(subject, answer)):
            docket.require(
                type(received) is type(answer.request_id) and received == answer.request_id,
                requirement_id,
                f"the id {answer.request_id!r} came back as {received!r}",
                answer,
            )
        if "error" in message and message["error"] is not None:
            _check_error(answer, docket)


def _need_not_be_read(subject: Subject, answer: Answer) -> bool:
    """Whether a request was refused by its HTTP headers, or under rules that it was not made for, so that its id need not be known."""
    if answer.status is None:
        return False
    is_modern = f"{PROTOCOL_VERSION}: {subject.version}".lower() in answer.exchange.sent.lower()
    return answer.status in _TRANSPORT_REFUSALS or ((answer.legacy or not is_modern) and answer.status >= 400)


def _check_error(answer: Answer, docket: Docket) -> None:
    error = answer.error or {}
    docket.require(
        answer.code is not None and isinstance(error.get("message"), str),
        "rpc.error-shape",
        f"the error has the code {error.get('code')!r} and the message {error.get('message')!r}",
        answer,
    )
    code = answer.code
    if code is not None and not answer.legacy:
        reserved = -32099 <= code <= -32020 and code not in _MCP_CODES
        docket.require(
            not reserved and code not in (-32002, -32042),
            "rpc.reserved-codes",
            f"the error has the code {code}",
            answer,
        )


# -- input that is no message --------------------------------------------------------------------------------------------------------


async def _say_broken(subject: Subject, body: bytes) -> tuple[Answer, Answer]:
    """Send bytes, then a good request on the same connection."""
    legacy = None if subject.is_modern else subject.legacy
    good_id = subject.next_id()
    if legacy is None:
        good = subject.message(DISCOVER, request_id=good_id)
        headers = subject.headers(DISCOVER)
    else:
        good = {"jsonrpc": "2.0", "id": good_id, "method": "ping"}
        headers = legacy.headers()
    speaker = subject.spare if legacy is None else legacy.speaker
    if isinstance(speaker, StdioSpeaker):
        return await speaker.say_unreadable(body, encode(good), good_id)
    broken = await speaker.say(body, headers=headers, legacy=legacy is not None)
    following = await speaker.say(encode(good), request_id=good_id, headers=headers, legacy=legacy is not None)
    return broken, following


def _survives(docket: Docket, requirement_id: str, what: str, broken: Answer, following: Answer) -> bool:
    lost = following.outcome in (Outcome.LOST, Outcome.SILENT, Outcome.UNREACHABLE)
    if lost:
        docket.require(False, requirement_id, f"after {what} a good request got {following.shown()}", broken, following)
    return not lost


@check("rpc.parse-error", phase=Phase.HOSTILE)
async def broken_json(subject: Subject, docket: Docket) -> None:
    """A body or line that is not JSON."""
    broken, following = await _say_broken(subject, b'{"jsonrpc":"2.0","id":')
    if _survives(docket, "rpc.parse-error", "broken JSON", broken, following):
        docket.require(broken.code == PARSE_ERROR, "rpc.parse-error", f"broken JSON got {broken.shown()}", broken)


@check("rpc.invalid-request", phase=Phase.HOSTILE)
async def no_request(subject: Subject, docket: Docket) -> None:
    """JSON that is neither request nor notification."""
    broken, following = await _say_broken(subject, b'{"jsonrpc":"2.0","foo":"bar"}')
    if _survives(docket, "rpc.invalid-request", "an object without method", broken, following):
        docket.require(
            broken.code == INVALID_REQUEST,
            "rpc.invalid-request",
            f"an object without method got {broken.shown()}",
            broken,
        )


@check("rpc.batch", phase=Phase.HOSTILE)
async def batch(subject: Subject, docket: Docket) -> None:
    """A list with one good request."""
    body = encode([subject.message(DISCOVER)])
    broken, following = await _say_broken(subject, body)
    if _survives(docket, "rpc.batch", "a batch", broken, following):
        executed = broken.result is not None or (broken.body.lstrip()[:1] == b"[" and b'"result"' in broken.body)
        executed = executed or (broken.body == b"[" and '"result"' in broken.exchange.received)
        docket.require(not executed, "rpc.batch", f"a batch was executed: {broken.shown()}", broken)


@check("rpc.deep-json", phase=Phase.HOSTILE)
async def deep_json(subject: Subject, docket: Docket) -> None:
    """Params nested thousands of levels deep."""
    nested = b"[" * _DEPTH + b"]" * _DEPTH
    message = encode(subject.message(DISCOVER, {"deep": "@"})).replace(b'"@"', nested)
    broken, following = await _say_broken(subject, message)
    if _survives(docket, "rpc.deep-json", f"JSON {_DEPTH} levels deep", broken, following):
        docket.keep("rpc.deep-json")
