"""A server's requests, for tracing: the parent in `_meta`, how each travelled, and what was answered.

Decided here: which answers are failures, and where a request's span begins and ends. Not here: what a span is (`outrider.tracing`).

What is answered from bytes is recorded when it is done, because nothing of the author's runs in it; a function runs inside its request's
span. Called only once something is traced, so what is decoded here a second time costs nobody else anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, field

from outrider import tracing
from outrider.errors import INTERNAL_ERROR
from outrider.protocol.jsonrpc import RequestId
from outrider.protocol.meta import PROTOCOL_VERSION, trace_context, trace_context_of
from outrider.server.dispatch import Answer, Listen, Outcome, Work
from outrider.server.registry import Prompt, Tool
from outrider.tracing import Operation

__all__ = ["arrived_over_http", "dispatch_traced", "note_answer", "note_listen", "perform_traced", "question_span"]

_MAX_CHARS: Final = 256
_PIPE: Final[Mapping[str, str | int]] = MappingProxyType({"network.transport": "pipe"})
_way: Final[ContextVar[Mapping[str, str | int]]] = ContextVar("outrider_way", default=_PIPE)


class _Named(Struct, rename="camel"):
    """What a request is about, whatever else is wrong with it."""

    meta: Any = field(name="_meta", default=None)
    name: Any = None
    uri: Any = None
    ref: Any = None


class _Call(Struct):
    id: int | str
    method: str
    params: Raw = Raw(b"")


class _Error(Struct):
    code: int
    message: str = ""


class _Result(Struct, rename="camel"):
    is_error: Any = False


class _Reply(Struct):
    error: _Error | None = None
    result: _Result | None = None


_decode_call: Final = msgspec.json.Decoder(_Call).decode
_decode_named: Final = msgspec.json.Decoder(_Named).decode
_decode_reply: Final = msgspec.json.Decoder(_Reply).decode


def arrived_over_http(scope: Mapping[str, Any], header_map: Mapping[bytes, bytes]) -> None:
    """For what follows in this task: the request came in this HTTP exchange."""
    way: dict[str, str | int] = {"network.transport": "tcp", "network.protocol.name": "http"}
    if version := scope.get("http_version"):
        way["network.protocol.version"] = str(version)
    client = scope.get("client")
    if client and client[0]:
        way["client.address"], way["client.port"] = client[0], client[1] or 0
    session_id = header_map.get(b"mcp-session-id")
    if session_id:
        way["mcp.session.id"] = session_id[:_MAX_CHARS].decode("latin-1")
    _way.set(way)


def dispatch_traced(dispatch: Callable[..., Outcome], body: bytes, **how: Any) -> Outcome:
    """`Dispatcher.dispatch`, with a record of what it answers by itself. What is no request is not recorded."""
    started = time.perf_counter_ns()
    outcome = dispatch(body, **how)
    if isinstance(outcome, Answer):
        try:
            call = _decode_call(body)
        except (msgspec.DecodeError, RecursionError, ValueError):
            return outcome
        note_answer(call.id, call.method, call.params, outcome, started)
    elif isinstance(outcome, Work):
        outcome.is_traced = True
    return outcome


def note_answer(
    request_id: RequestId, method: str, raw_params: Raw, answer: Answer, started: int, *, version: str = ""
) -> None:
    """Record a request that was answered without running a function.

    Args:
        request_id: its id.
        method: its method.
        raw_params: its params, which may be anything.
        answer: what it gets.
        started: when it was looked at, as `time.perf_counter_ns` tells it.
        version: the legacy session's protocol version; "" for a modern request, which says its own.
    """
    try:
        params = _decode_named(raw_params) if raw_params else _Named()
    except (msgspec.DecodeError, RecursionError, ValueError):
        params = _Named()
    meta = params.meta if isinstance(params.meta, dict) else {}
    error = _read(answer).error
    operation = tracing.server_operation(
        method,
        {"name": params.name, "uri": params.uri, "ref": params.ref},
        _described(version or meta.get(PROTOCOL_VERSION)),
        request_id=request_id,
        carried=trace_context_of(meta),
        known=error is None,
        started=started,
    )
    if error is not None:
        operation.refused(error.code, error.message)
    operation.finish()


def note_listen(listen: Listen, *, is_accepted: bool) -> None:
    """Record the start of a stream of changes: with the acknowledgement its request has been answered, for a trace."""
    operation = tracing.server_operation(
        "subscriptions/listen",
        {},
        _described(listen.meta.protocol_version),
        request_id=listen.id,
        carried=trace_context(listen.meta),
    )
    if not is_accepted:
        operation.refused(INTERNAL_ERROR, "too many open streams; try again later")
    operation.finish()


def question_span(method: str, version: str) -> Operation:
    """The operation for a request that the server makes of a legacy client, inside that of the function that asks."""
    if not tracing.is_used():
        return tracing.UNTRACED
    return tracing.client_operation(method, {}, _described(version))


async def perform_traced(work: Work, performing: Coroutine[Any, Any, Answer]) -> Answer:
    """Run a function inside its request's span."""
    params = work.params
    if isinstance(work.item, Tool | Prompt):
        # As it is registered; of a completion, the prompt whose argument it is about.
        about: dict[str, Any] = {"name": work.item.key, "ref": {"type": "ref/prompt", "name": work.item.key}}
    else:
        about = {"uri": None if params.uri is UNSET else params.uri}
    with tracing.server_operation(
        work.method,
        about,
        _described(work.version),
        request_id=work.id,
        carried=trace_context(work.meta),
    ) as operation:
        answer = await performing
        if operation is not tracing.UNTRACED:
            reply = _read(answer)
            if reply.error is not None:
                operation.refused(reply.error.code, reply.error.message)
            elif work.method == "tools/call" and reply.result is not None and reply.result.is_error is True:
                operation.tool_failed()
        return answer


def _described(version: object) -> dict[str, str | int]:
    return (
        {**_way.get(), "mcp.protocol.version": version[:_MAX_CHARS]} if isinstance(version, str) else dict(_way.get())
    )


def _read(answer: Answer) -> _Reply:
    try:
        return _decode_reply(answer.body)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return _Reply()  # A result in a shape of the author's own.
