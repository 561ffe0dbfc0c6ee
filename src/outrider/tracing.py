"""Tracing: spans and durations of requests by OpenTelemetry's semantic conventions for MCP, and trace context in `_meta`.

Decided here: when OpenTelemetry is used at all, what a span is called and carries, what counts as failed, what is put into `_meta`. Not
here: which requests a client or a server has (`client.spans`, `server.spans`), and which trace context is well-formed (`protocol.meta`).

The only module that imports OpenTelemetry, and only once the process has done so itself: whoever wants spans has configured an SDK, and
without one there is nothing to do. Until then every request costs one look-up.

Spec: 2026-07-28 basic/index#_meta; OpenTelemetry semantic-conventions-genai v0.1.0, docs/gen-ai/mcp.md (status: development).
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from outrider._version import __version__
from outrider.errors import OutriderError, PeerError, TimedOut
from outrider.protocol.jsonrpc import RequestId
from outrider.protocol.meta import TRACE_KEYS

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import Histogram
    from opentelemetry.trace import Span

__all__ = [
    "OTHER",
    "UNTRACED",
    "Operation",
    "client_operation",
    "is_loaded",
    "is_recording",
    "is_used",
    "outside",
    "server_operation",
]

_log: Final = logging.getLogger("outrider.tracing")
_SCOPE: Final = "outrider"
_API: Final = "opentelemetry.trace"
# A provider that is only named in the environment is loaded by OpenTelemetry when it is first asked for one.
_IS_NAMED: Final = any(name in os.environ for name in ("OTEL_PYTHON_TRACER_PROVIDER", "OTEL_PYTHON_METER_PROVIDER"))
_BUCKETS_S: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
_MAX_CHARS: Final = 256
_MAX_MESSAGE_CHARS: Final = 500
_MAX_REDACTED_CHARS: Final = 20_000
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_USER_INFO: Final = re.compile(r"(?i)^([a-z][a-z0-9+.-]*://)[^/?#]*@")
OTHER: Final = "_OTHER"
"""Stands for a method that nobody knows where the name of one becomes the name of a time series."""

_TOOL, _PROMPT, _URI = "gen_ai.tool.name", "gen_ai.prompt.name", "mcp.resource.uri"
_METHOD, _ID = "mcp.method.name", "jsonrpc.request.id"
_ERROR, _STATUS = "error.type", "rpc.response.status_code"
_SUBJECTS: Final = {
    "tools/call": ("name", _TOOL),
    "prompts/get": ("name", _PROMPT),
    "resources/read": ("uri", _URI),
    "resources/subscribe": ("uri", _URI),
    "resources/unsubscribe": ("uri", _URI),
}
# On spans alone: too many values for a time series, or none of its business.
_NOT_MEASURED: Final = frozenset({_URI, _ID, "mcp.session.id", "client.address", "client.port"})

_modules: Final = sys.modules
_api: _Api | None = None
_is_unusable = False


class Operation:
    """One request: current while it is entered, over when it is left. This very class does nothing: nobody traces."""

    def __enter__(self) -> Operation:
        """Make it the context that other spans are made in."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it, as failed if an exception passes through."""

    def meta(self, own: Mapping[str, Any] | None = None) -> Mapping[str, Any] | None:
        """What the request's `_meta` carries beyond the protocol's own: the caller's keys, and the trace context unless they hold one."""
        return own

    def sent(self, request_id: RequestId) -> None:
        """The request goes out under this id."""

    def failed(self, error: BaseException) -> None:
        """The request failed, without an exception that passes through."""

    def refused(self, code: int, message: str) -> None:
        """The answer is a JSON-RPC error."""

    def tool_failed(self) -> None:
        """The answer is a tool's result with `isError`."""

    def finish(self) -> None:
        """End it without having entered it."""


UNTRACED: Final = Operation()


def is_used() -> bool:
    """Whether this process uses OpenTelemetry."""
    return _api is not None or ((_API in _modules or _IS_NAMED) and _load() is not None)


def is_recording() -> bool:
    """Whether this process uses OpenTelemetry, and has configured a provider that does anything."""
    if _api is None and _API not in _modules and not _IS_NAMED:
        return False
    return is_used() and _api is not None and _api.records()


def is_loaded() -> bool:
    """Load OpenTelemetry where it is installed, for a request that brings a trace context; whether it is there."""
    return _load() is not None


def _present() -> _Api | None:
    return _api if is_used() else None


def _load() -> _Api | None:
    global _api, _is_unusable
    if _api is None and not _is_unusable:
        try:
            _api = _Api()
        except ImportError as error:
            _is_unusable = True
            if _API in sys.modules:
                _log.warning("nothing is traced, because this OpenTelemetry cannot be used: %s", error)
    return _api


def client_operation(
    method: str,
    params: Mapping[str, Any],
    attributes: Mapping[str, str | int],
    *,
    redact: Callable[[str], str] = str,
) -> Operation:
    """A request that is about to be sent.

    Args:
        method: its method.
        params: its params, for the name of what it is about; arguments are not looked at.
        attributes: how it travels, and the protocol version.
        redact: masks secrets in what the peer says of an error.
    """
    if (api := _present()) is None:
        return UNTRACED
    if not api.records():
        carried = api.inject(None)
        return _Passing(api, None, carried) if carried else UNTRACED
    subject = _subject(method, params)
    described = {_METHOD: _short(method), **subject, **attributes}
    labels = {key: value for key, value in described.items() if key not in _NOT_MEASURED}
    return _Traced(api, _name(method, subject), described, labels, is_client=True, redact=redact)


def server_operation(
    method: str,
    params: Mapping[str, Any],
    attributes: Mapping[str, str | int],
    *,
    request_id: RequestId,
    carried: Mapping[str, str],
    known: bool = True,
    started: int | None = None,
) -> Operation:
    """A request that has come.

    Args:
        method: its method.
        params: its `name`, `uri` or `ref`, for the name of what it is about.
        attributes: how it travelled, and the protocol version.
        request_id: its id.
        carried: the trace context in its `_meta`, well-formed; see `protocol.meta.trace_context`.
        known: whether what it asks for exists. If not, the peer's words name neither a span nor a time series.
        started: when it was looked at, as `time.perf_counter_ns` tells it; None for just now.
    """
    if (api := _present()) is None:
        return UNTRACED
    if not api.records():
        return _Passing(api, api.extract(carried), {}) if carried else UNTRACED
    subject = _subject(method, params)
    described = {_METHOD: _short(method), _ID: _short(str(request_id)), **subject, **attributes}
    labels = {key: value for key, value in described.items() if key not in _NOT_MEASURED}
    name = _name(method, subject)
    if not known:
        name = method if method in _KNOWN_METHODS else OTHER
        labels = {_METHOD: name, **{key: value for key, value in attributes.items() if key.startswith("network.")}}
    return _Traced(api, name, described, labels, is_client=False, carried=carried, started=started)


@contextmanager
def outside() -> Iterator[None]:
    """What is started in here outlives the request that starts it, and belongs to no trace."""
    if (api := _present()) is None:
        yield
        return
    token = api.context.attach(api.context.Context())
    try:
        yield
    finally:
        api.context.detach(token)


_KNOWN_METHODS: Final = frozenset(
    {
        *_SUBJECTS,
        *("server/discover", "initialize", "ping", "logging/setLevel", "completion/complete", "subscriptions/listen"),
        *("tools/list", "prompts/list", "resources/list", "resources/templates/list"),
    }
)


def _subject(method: str, params: Mapping[str, Any]) -> dict[str, str]:
    """What a request is about, by attribute."""
    member, key = _SUBJECTS.get(method, ("", ""))
    named = params.get(member) if member else None
    if method == "completion/complete" and isinstance(ref := params.get("ref"), Mapping):
        named, key = (ref.get("name"), _PROMPT) if ref.get("type") == "ref/prompt" else (None, "")
    if not isinstance(named, str):
        return {"gen_ai.operation.name": "execute_tool"} if method == "tools/call" else {}
    if key == _URI:
        return {_URI: _short(_show_uri(named))}
    return {key: _short(named), **({"gen_ai.operation.name": "execute_tool"} if key == _TOOL else {})}


def _name(method: str, subject: Mapping[str, str]) -> str:
    target = subject.get(_TOOL) or subject.get(_PROMPT)
    return f"{_short(method)} {target}" if target else _short(method)


def _show_uri(uri: str) -> str:
    """A resource's URI without what may be secret in it: the user, and what a template filled in as a query."""
    return _USER_INFO.sub(r"\1", uri[: 4 * _MAX_CHARS].partition("#")[0].partition("?")[0])


def _short(text: str, limit: int = _MAX_CHARS) -> str:
    text = _CONTROL.sub(" ", text[: 2 * limit])
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _failure(error: BaseException) -> tuple[str, str]:
    """The `error.type` of an exception, one of few, and what it says."""
    message = str(error) if isinstance(error, OutriderError) else ""
    if isinstance(error, asyncio.CancelledError):
        return "cancelled", ""
    if isinstance(error, TimedOut):
        return "timeout", message
    status = getattr(error, "status", None)
    if isinstance(status, int):
        return str(status), message
    return f"{type(error).__module__}.{type(error).__qualname__}", message


class _Api:
    """OpenTelemetry, and what the providers that are configured now have given us."""

    def __init__(self) -> None:
        from opentelemetry import context, metrics, propagate, trace

        self.context, self.trace, self._metrics, self._propagate = context, trace, metrics, propagate
        self._tracers: Any = None
        self._meters: Any = None
        self._records = False
        self.tracer: Any = None
        self.client_duration: Histogram
        self.server_duration: Histogram

    def records(self) -> bool:
        """Whether somebody has configured a provider that does anything."""
        tracers, meters = self.trace.get_tracer_provider(), self._metrics.get_meter_provider()
        if tracers is not self._tracers or meters is not self._meters:
            self.tracer = tracers.get_tracer(_SCOPE, __version__)
            meter = meters.get_meter(_SCOPE, __version__)
            self.client_duration = _duration(meter, "client", "The time from sending a request to its answer.")
            self.server_duration = _duration(meter, "server", "The time from receiving a request to its answer.")
            self._records = _does_something(tracers) or _does_something(meters)
            # Last, because event loops in other threads look at these first.
            self._tracers, self._meters = tracers, meters
        return self._records

    def inject(self, context: Context | None) -> dict[str, str]:
        """What the configured propagators carry of a context, as far as MCP has a place for it."""
        carrier: dict[str, str] = {}
        self._propagate.inject(carrier, context)
        return {key: value for key in TRACE_KEYS if (value := carrier.get(key))} if carrier else carrier

    def extract(self, carried: Mapping[str, str]) -> Context:
        """The current context with what a request carries."""
        return self._propagate.extract(carried, self.context.get_current())


def _duration(meter: Any, side: str, description: str) -> Histogram:
    name = f"mcp.{side}.operation.duration"
    try:
        made: Histogram = meter.create_histogram(
            name, unit="s", description=description, explicit_bucket_boundaries_advisory=_BUCKETS_S
        )
    except TypeError:  # A meter from before there was such advice.
        made = meter.create_histogram(name, unit="s", description=description)
    return made


def _does_something(provider: object) -> bool:
    """The API's own providers, which stand in until one is configured, do nothing."""
    return not type(provider).__module__.startswith(("opentelemetry.trace", "opentelemetry.metrics"))


class _Passing(Operation):
    """A request where nothing is recorded, but somebody else's trace goes on.

    Args:
        api: OpenTelemetry.
        context: what is current meanwhile, or None to leave that as it is.
        carried: what the request's `_meta` carries.
    """

    def __init__(self, api: _Api, context: Context | None, carried: Mapping[str, str]) -> None:
        self._api, self._context, self._carried = api, context, carried
        self._token: Any = None

    def __enter__(self) -> Operation:
        if self._context is not None:
            self._token = self._api.context.attach(self._context)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            self._api.context.detach(self._token)

    def meta(self, own: Mapping[str, Any] | None = None) -> Mapping[str, Any] | None:
        if not own:
            return self._carried
        return own if "traceparent" in own else {**self._carried, **own}


class _Traced(_Passing):
    """A request with a span and a duration."""

    def __init__(
        self,
        api: _Api,
        name: str,
        attributes: Mapping[str, str | int],
        labels: dict[str, str | int],
        *,
        is_client: bool,
        redact: Callable[[str], str] = str,
        carried: Mapping[str, str] | None = None,
        started: int | None = None,
    ) -> None:
        trace = api.trace
        parent = api.extract(carried) if carried else None
        now = time.perf_counter_ns()
        self._started = now if started is None else started
        self._span: Span = api.tracer.start_span(
            name,
            context=parent,
            kind=trace.SpanKind.CLIENT if is_client else trace.SpanKind.SERVER,
            attributes=attributes,
            links=_ambient(api) if carried and "traceparent" in carried else [],
            start_time=None if started is None else time.time_ns() - (now - started),
        )
        context = trace.set_span_in_context(self._span, parent)
        super().__init__(api, context, api.inject(context) if is_client else {})
        self._labels, self._redact, self._has_failed = labels, redact, False
        self._duration = api.client_duration if is_client else api.server_duration

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if error is not None:
            self.failed(error)
        self.finish()

    def sent(self, request_id: RequestId) -> None:
        self._span.set_attribute(_ID, _short(str(request_id)))

    def failed(self, error: BaseException) -> None:
        if isinstance(error, PeerError):
            self.refused(error.code, error.message)
        else:
            self._fail(*_failure(error))

    def refused(self, code: int, message: str) -> None:
        text = _short(str(code))
        self._span.set_attribute(_STATUS, text)
        # A peer could invent codes without end; those of JSON-RPC and MCP are few.
        self._labels[_STATUS] = text if -32768 <= code <= -32000 else OTHER
        self._fail(text, message, label=self._labels[_STATUS])

    def tool_failed(self) -> None:
        self._fail("tool_error", "")

    def _fail(self, error_type: str, message: str, *, label: str | int = "") -> None:
        if self._has_failed:
            return
        self._has_failed = True
        self._labels[_ERROR] = label or error_type
        self._span.set_attribute(_ERROR, error_type)
        # Cut to what is shown only when nothing secret is left to be cut in half.
        shown = _short(self._redact(message[:_MAX_REDACTED_CHARS]), _MAX_MESSAGE_CHARS)
        self._span.set_status(self._api.trace.StatusCode.ERROR, shown or None)

    def finish(self) -> None:
        elapsed_s = (time.perf_counter_ns() - self._started) / 1e9
        self._duration.record(elapsed_s, self._labels, self._context)
        self._span.end()


def _ambient(api: _Api) -> list[Any]:
    """A link to the span that the transport has of its own, if it has one."""
    ambient = api.trace.get_current_span().get_span_context()
    return [api.trace.Link(ambient)] if ambient.is_valid else []
