"""A client's requests, for tracing: how each travels, and what its answer says.

Decided here: which attributes follow from a target. Not here: what a span is (`outrider.tracing`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw, Struct

from outrider import tracing
from outrider.client.channel import Outgoing
from outrider.client.target import HttpTarget, Target
from outrider.protocol.jsonrpc import RequestId
from outrider.protocol.meta import trace_context_of
from outrider.tracing import UNTRACED, Operation

__all__ = ["answer_span", "note_result", "request_span", "with_trace"]

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class _ToolResult(Struct, rename="camel"):
    is_error: Any = False


_decode_tool_result: Final = msgspec.json.Decoder(_ToolResult).decode


def request_span(
    target: Target, method: str, params: Mapping[str, Any], *, version: str = "", session_id: str = ""
) -> Operation:
    """The operation for a request that is about to be sent to a target.

    Args:
        target: whom it goes to.
        method: its method.
        params: its params.
        version: the protocol version it is made under, or "".
        session_id: the legacy HTTP session that it belongs to, or "".
    """
    if not tracing.is_used():
        return UNTRACED
    attributes = _way_to(target)
    if version:
        attributes["mcp.protocol.version"] = version
    if session_id:
        attributes["mcp.session.id"] = session_id[:256]
    return tracing.client_operation(method, params, attributes, redact=target.redact)


def answer_span(
    request_id: RequestId, method: str, params: Mapping[str, Any], *, stdio: bool, version: str
) -> Operation:
    """The operation for a request that a legacy server makes of us; only what a handler answers."""
    if not tracing.is_used():
        return UNTRACED
    way: dict[str, str | int] = (
        {"network.transport": "pipe"} if stdio else {"network.transport": "tcp", "network.protocol.name": "http"}
    )
    meta = params.get("_meta")
    carried = trace_context_of(meta) if isinstance(meta, dict) else {}
    return tracing.server_operation(
        method, {}, {**way, "mcp.protocol.version": version}, request_id=request_id, carried=carried
    )


def with_trace(outgoing: Outgoing, operation: Operation) -> Outgoing:
    """A request whose `_meta` also carries the trace context, if there is any."""
    operation.sent(outgoing.id)
    own = outgoing.params.get("_meta")
    meta = operation.meta(own)
    return outgoing if meta is own else msgspec.structs.replace(outgoing, params={**outgoing.params, "_meta": meta})


def note_result(operation: Operation, method: str, result: Raw) -> None:
    """Note what a result says of itself: a tool's may say that the tool failed."""
    if operation is UNTRACED or method != "tools/call":
        return
    try:
        is_error = _decode_tool_result(result).is_error
    except (msgspec.DecodeError, RecursionError):
        return  # Whoever asked is told what is wrong with it.
    if is_error is True:
        operation.tool_failed()


def _way_to(target: Target) -> dict[str, str | int]:
    if not isinstance(target, HttpTarget):
        return {"network.transport": "pipe"}
    url = urlsplit(target.url)
    return {
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "server.address": url.hostname or "",
        "server.port": url.port or _DEFAULT_PORTS.get(url.scheme, 0),
    }
