"""Opening a server: from a target to a session, driving the era table and the handshake table.

Decided here: how long each answer is waited for, when a process is started again, how often an outage is retried, and what is written into
the trail that explains it all. Not here: what an answer means (`protocol.negotiation`, `protocol.legacy`).

The era is found out with `server/discover` and `initialize` only: no request of the user's is ever replayed.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from outrider.client.channel import Channel, Outgoing, Reply
from outrider.client.legacy_session import LegacySession
from outrider.client.session import ModernSession, Session
from outrider.client.spans import request_span, with_trace
from outrider.client.target import ClientOptions, HttpTarget, StdioTarget, Target
from outrider.errors import (
    HEADER_MISMATCH,
    MODERN_CODES,
    AuthRequired,
    ConnectFailed,
    ConnectionLost,
    HttpRejected,
    LimitExceeded,
    NoCommonVersion,
    OutriderError,
    PeerError,
    RemoteProtocolError,
    StreamEnded,
    TimedOut,
    TransportError,
    Unavailable,
    named_versions,
    peer_error,
)
from outrider.protocol.headers import standard_headers
from outrider.protocol.jsonrpc import ErrorReply, ResultReply
from outrider.protocol.legacy import after_initialize
from outrider.protocol.meta import render_request_meta
from outrider.protocol.model import ServerDescription, read_description, read_initialize
from outrider.protocol.negotiation import Decision, Kind, Observed, Step, decide
from outrider.protocol.versions import Era, pick_version
from outrider.tracing import outside

__all__ = ["Attempt", "Trail", "open_session"]

_DISCOVER: Final = "server/discover"
_FALLBACK_STATUSES: Final = frozenset({400, 404, 405})
_RETRY_DELAYS_S: Final = (0.25, 0.5, 1.0, 2.0)
_CONNECT_RETRIES: Final = 2
"""A refused connection is retried less often than a busy server: it seldom heals, and somebody is waiting."""
_MAX_QUIET_WINDOWS: Final = 3
"""However chatty its stderr, a server that has not answered after this many windows is offered the handshake."""
_FIRST_PROCESS_SHARE: Final = 2 / 3
"""How much of the start time the first process may use before it is started again."""


class Attempt(Struct, frozen=True):
    """One step on the way to a session.

    Attributes:
        step: what was done, such as "server/discover under 2026-07-28".
        observed: what came back, redacted.
        conclusion: what was concluded from it.
        elapsed_ms: how long it took, in milliseconds.
    """

    step: str
    observed: str
    conclusion: str
    elapsed_ms: float


class Trail:
    """Everything that was tried, in order, for reports.

    Attributes:
        attempts: the steps.
        warnings: what was wrong without being fatal.
        stderr_tail: the last lines the process wrote to stderr, redacted; () for a URL.
        storable: whether the era that was found may be remembered.
        row: the row of the era table that decided, or "".
    """

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.warnings: list[str] = []
        self.stderr_tail: tuple[str, ...] = ()
        self.storable = False
        self.row = ""


async def open_session(target: Target, options: ClientOptions, trail: Trail, *, assume: Era | None = None) -> Session:
    """Open `target` and find out which era it speaks.

    Args:
        target: where to.
        options: limits and identity.
        trail: is filled with every step, also when this fails.
        assume: an era known from before: LEGACY skips the probe, and the probe follows only if the handshake is refused.

    Raises:
        OutriderError: no session could be had; the first real cause, with the trail telling the rest. Nothing is left running.
    """
    driver = _Driver(target, options, trail)
    try:
        async with asyncio.timeout(options.start_timeout_s):
            return await driver.run(assume)
    except TimeoutError as error:
        await driver.abandon()
        raise driver.timed_out() from error
    except BaseException:
        await driver.abandon()
        raise


def _hint_about_silence(strays: str) -> str:
    if "sends back" in strays:
        return "is this command an MCP server?"
    return "raise the time-out if the server starts slowly"


class _Seen(Struct):
    """An observation with what it was read from."""

    observed: Observed
    text: str
    failure: OutriderError | None = None
    reply: Reply | None = None
    version: str = ""
    description: ServerDescription | None = None


class _Driver:
    def __init__(self, target: Target, options: ClientOptions, trail: Trail) -> None:
        self._target = target
        self._options = options
        self._trail = trail
        self._ours = options.pin.versions()
        self._ids = itertools.count(1)
        self._started = time.monotonic()
        self._channel: Channel | None = None
        self._late: tuple[Outgoing, asyncio.Future[ResultReply | ErrorReply]] | None = None
        self._probes = 0
        self._probe_answered = False
        self._handshakes = 0
        self._respawned = False
        self._retries = 0
        self._then_sse = False
        self._seen: _Seen | None = None
        self._causes: list[OutriderError] = []
        self._legacy: LegacySession | None = None
        self._strays = ""

    # -- the course of things ------------------------------------------------------------------------------------------------------

    async def run(self, assume: Era | None) -> Session:
        if isinstance(self._target, HttpTarget) and self._target.sse:
            return await self._run_sse()
        first = self._first_step(assume)
        decision = first
        while True:
            match decision.step:
                case Step.PROBE_AGAIN:
                    decision = await self._probe(decision)
                case Step.INITIALIZE:
                    decision = await self._initialize(decision)
                case Step.RESPAWN:
                    if self._respawned:
                        raise self._failure(decision)
                    await self._respawn()
                    decision = await self._initialize(decision)
                case Step.RETRY:
                    await self._pause_before_retry(decision)
                    decision, self._probes, self._handshakes = first, 0, 0
                case Step.USE:
                    return await self._use(decision)
                case Step.AUTHENTICATE | Step.FAIL:
                    if self._sse_is_worth_a_try():
                        return await self._run_sse()
                    raise self._failure(decision)

    def _first_step(self, assume: Era | None) -> Decision:
        modern, legacy = pick_version(self._ours, era=Era.MODERN), pick_version(self._ours, era=Era.LEGACY)
        if modern is None or (assume is Era.LEGACY and legacy is not None):
            return Decision(era=Era.LEGACY, step=Step.INITIALIZE, version=legacy or "", storable=True)
        return Decision(era=None, step=Step.PROBE_AGAIN, version=modern)

    async def _probe(self, decision: Decision) -> Decision:
        params = {
            "_meta": render_request_meta(
                decision.version, self._options.client_info, self._options.declared_capabilities()
            )
        }
        headers = {} if self._is_stdio else standard_headers(_DISCOVER, params, decision.version)
        outgoing = Outgoing(next(self._ids), _DISCOVER, params, headers, cancellable=False)
        self._probes += 1
        seen = await self._ask(outgoing, decision.version, repeated=self._probes > 1)
        self._probe_answered = seen.observed.kind not in (Kind.ENDED, Kind.SILENT, Kind.UNAVAILABLE)
        verdict = decide(seen.observed)
        self._then_sse, self._trail.row = verdict.then_sse, verdict.row
        self._note(f"{_DISCOVER} under {decision.version}", seen, verdict)
        return verdict

    async def _initialize(self, decision: Decision) -> Decision:
        self._handshakes += 1
        version = decision.version
        channel = await self._open_channel(f"initialize proposing {version}")
        if channel is None:
            return decide(self._require_seen().observed)
        if self._legacy is None or self._legacy.channel is not channel:
            self._legacy = LegacySession(channel, self._options, self._ids, self._target.label)
        outgoing = self._legacy.initialize_request(version)
        seen = await self._ask(
            outgoing, version, repeated=self._handshakes > 1, listen_for_probe=decision.keep_listening
        )
        if seen.reply is not None and seen.observed.kind is Kind.DESCRIBED and seen.version == "":
            verdict = decide(seen.observed)  # The probe was answered after all.
            self._trail.row = verdict.row
            self._note(f"late answer to {_DISCOVER}", seen, verdict)
            return verdict
        verdict = after_initialize(seen.observed, answered_version=seen.version, probed=self._probe_answered)
        if verdict.step is Step.USE:
            # The verdict is as good as its weaker half: a handshake that followed a denial or an HTTP silence is not remembered.
            verdict = replace(verdict, storable=decision.storable)
        self._note(f"initialize proposing {version}", seen, verdict)
        return verdict

    async def _use(self, decision: Decision) -> Session:
        seen, channel = self._require_seen(), self._channel
        assert channel is not None
        self._trail.storable, self._trail.warnings = (
            decision.storable,
            [*self._trail.warnings, *(seen.description.warnings if seen.description else ())],
        )
        if decision.era is Era.MODERN:
            return ModernSession(channel, self._options, decision.version, seen.description, self._ids)
        assert self._legacy is not None and seen.description is not None and seen.reply is not None  # noqa: PT018
        await self._legacy.confirm(decision.version, seen.description, seen.reply)
        return self._legacy

    async def _respawn(self) -> None:
        self._respawned = True
        if self._channel is not None:
            await self._close_channel()
        self._late = None
        self._handshakes = 0

    async def _pause_before_retry(self, decision: Decision) -> None:
        seen = self._require_seen()
        limit = _CONNECT_RETRIES if isinstance(seen.failure, ConnectFailed) else len(_RETRY_DELAYS_S)
        if self._retries >= limit:
            raise self._failure(decision)
        wait_s = _RETRY_DELAYS_S[self._retries]
        if isinstance(seen.failure, Unavailable) and seen.failure.retry_after_s is not None:
            wait_s = max(wait_s, seen.failure.retry_after_s)
        if wait_s > self._remaining_s():
            raise self._failure(decision)
        self._retries += 1
        await asyncio.sleep(wait_s)

    async def _run_sse(self) -> Session:
        from outrider.client.sse import SseChannel

        assert isinstance(self._target, HttpTarget)
        await self._close_channel()
        version = pick_version(self._ours, era=Era.LEGACY)
        if version is None:
            raise NoCommonVersion(self._ours, ())
        started = time.monotonic()
        try:
            with outside():
                self._channel = await SseChannel.open(self._target, self._options)
        except OutriderError as error:
            self._add_attempt("GET for HTTP+SSE", str(error), "not that transport either", started)
            if self._causes:
                raise self._causes[0] from error
            raise
        self._add_attempt("GET for HTTP+SSE", "an event stream with an endpoint", "legacy, HTTP+SSE", started)
        self._trail.warnings.extend(self._channel.warnings)
        decision = await self._initialize(
            Decision(era=Era.LEGACY, step=Step.INITIALIZE, version=version, storable=True)
        )
        if decision.step is Step.INITIALIZE:
            decision = await self._initialize(decision)
        if decision.step is not Step.USE:
            raise self._failure(decision)
        return await self._use(decision)

    def _sse_is_worth_a_try(self) -> bool:
        seen = self._require_seen().observed
        return (
            not self._is_stdio
            and self._handshakes > 0
            and (self._then_sse or not self._probes)
            and seen.kind in (Kind.ERROR, Kind.REJECTED)
            and seen.status in _FALLBACK_STATUSES
        )

    # -- asking and reading --------------------------------------------------------------------------------------------------------

    @property
    def _is_stdio(self) -> bool:
        return isinstance(self._target, StdioTarget)

    async def _open_channel(self, step: str) -> Channel | None:
        """The open channel, opened if need be; None when that failed and was noted."""
        if self._channel is None:
            if isinstance(self._target, StdioTarget):
                from outrider.client.pipe import Pipe

                # The process lives on, and what it says later belongs to no request of now.
                with outside():
                    self._channel = await Pipe.start(self._target, self._options)
            else:
                from outrider.client.http import HttpChannel

                self._channel = HttpChannel(self._target, self._options)
        return self._channel

    async def _ask(self, outgoing: Outgoing, version: str, *, repeated: bool, listen_for_probe: bool = False) -> _Seen:
        with request_span(self._target, outgoing.method, outgoing.params, version=version) as operation:
            outgoing = with_trace(outgoing, operation)
            seen = await self._asked(outgoing, version, repeated=repeated, listen_for_probe=listen_for_probe)
            if seen.failure is not None:
                operation.failed(seen.failure)
            return seen

    async def _asked(self, outgoing: Outgoing, version: str, *, repeated: bool, listen_for_probe: bool) -> _Seen:
        base = Observed(
            kind=Kind.SILENT,
            stdio=self._is_stdio,
            asked=version,
            repeated=repeated,
            ours=self._ours,
            credential_sent=isinstance(self._target, HttpTarget) and self._target.has_credential,
        )
        started = time.monotonic()
        try:
            if self._is_stdio:
                seen = await self._ask_pipe(outgoing, base, listen_for_probe)
            else:
                seen = await self._ask_http(outgoing, base)
        except OutriderError as error:
            if self._is_stdio and isinstance(error, ConnectFailed):
                self._add_attempt("start the process", str(error), "it cannot be started", started)
                raise
            seen = _Seen(self._observe_failure(error, base), str(error), error)
        if seen.failure is not None:
            self._causes.append(seen.failure)
        self._seen, self._asked_at = seen, started
        return seen

    async def _ask_http(self, outgoing: Outgoing, base: Observed) -> _Seen:
        channel = await self._open_channel("")
        assert channel is not None
        is_probe = outgoing.method == _DISCOVER
        # An HTTP server that is silent on the probe still deserves the handshake within the time allowed.
        window_s = (
            min(2 * self._options.probe_timeout_s, self._options.start_timeout_s / 3)
            if is_probe
            else self._remaining_s()
        )
        try:
            async with asyncio.timeout(window_s):
                reply = await channel.request(outgoing)
        except TimeoutError:
            if not is_probe and self._remaining_s() <= 0:
                raise
            return self._silence(base, window_s, channel)
        return self._read(outgoing, reply, base)

    async def _ask_pipe(self, outgoing: Outgoing, base: Observed, listen_for_probe: bool) -> _Seen:
        from outrider.client.pipe import Pipe

        channel = await self._open_channel("")
        assert isinstance(channel, Pipe)
        started = time.monotonic()
        future = await channel.begin(outgoing)
        is_probe = outgoing.method == _DISCOVER
        window_s = min(self._options.probe_timeout_s, self._options.start_timeout_s / 3)
        last_moment = started + _MAX_QUIET_WINDOWS * window_s
        if not is_probe:
            share = 1.0 if self._respawned else _FIRST_PROCESS_SHARE
            last_moment = self._started + share * self._options.start_timeout_s
        while True:
            now = time.monotonic()
            until = min(max(started, channel.quiet_since()) + window_s, last_moment) if is_probe else last_moment
            if now >= until:
                if is_probe:
                    self._late = (outgoing, future)
                else:
                    channel.abandon(outgoing)
                return self._silence(base, now - started, channel)
            waiting = {future}
            if listen_for_probe and self._late is not None:
                waiting.add(self._late[1])
            await asyncio.wait(waiting, timeout=until - now, return_when=asyncio.FIRST_COMPLETED)
            if listen_for_probe and self._late is not None and self._late[1].done():
                late = self._read_late(base)
                if late is not None:
                    channel.abandon(outgoing)
                    return late
            if future.done():
                return self._read(outgoing, Reply(future.result()), base)

    def _read_late(self, base: Observed) -> _Seen | None:
        """The late answer to the probe if it proves the server modern, else None."""
        assert self._late is not None
        outgoing, future = self._late
        self._late = None
        if future.exception() is not None:
            return None
        self._probe_answered = True
        seen = self._read(
            outgoing, Reply(future.result()), replace(base, asked=pick_version(self._ours, era=Era.MODERN) or "")
        )
        return seen if seen.observed.kind is Kind.DESCRIBED and decide(seen.observed).step is Step.USE else None

    def _silence(self, base: Observed, waited_s: float, channel: Channel) -> _Seen:
        error = TimedOut(
            f"no answer within {waited_s:.1f} s{channel.strays()}",
            phase="start",
            timeout_s=waited_s,
            hint=_hint_about_silence(channel.strays()),
        )
        return _Seen(base, str(error), error)

    def _read(self, outgoing: Outgoing, reply: Reply, base: Observed) -> _Seen:
        message, status = reply.message, reply.status
        if isinstance(message, ErrorReply):
            error = peer_error(message.code, self._target.redact(message.message), message.decoded_data())
            error.status = status
            supported = error.data.get("supported") if isinstance(error.data, dict) else None
            versions = named_versions(supported)
            is_outage = status is not None and (status >= 500 or status == 429) and message.code not in MODERN_CODES
            kind = Kind.UNAVAILABLE if is_outage else Kind.ERROR
            observed = replace(base, kind=kind, code=message.code, versions=versions, status=status)
            via = f" with HTTP {status}" if status not in (None, 200) else ""
            return _Seen(observed, f"error {message.code}{via}: {error.message[:200]}", error)
        try:
            if outgoing.method == _DISCOVER:
                description = read_description(message.result)
                observed = replace(base, kind=Kind.DESCRIBED, versions=description.supported_versions, status=status)
                text = f"a DiscoverResult; versions {', '.join(description.supported_versions) or 'none'}"
                return _Seen(observed, self._target.redact(text)[:300], None, reply, "", description)
            version, description = read_initialize(message.result)
        except RemoteProtocolError as error:
            # A result of no use says no more than a body of no use.
            return _Seen(replace(base, kind=Kind.REJECTED, status=status or 200), str(error), error)
        observed = replace(base, kind=Kind.DESCRIBED, versions=(version,), status=status)
        return _Seen(observed, f"an InitializeResult; version {version[:40]}", None, reply, version, description)

    def _observe_failure(self, error: OutriderError, base: Observed) -> Observed:
        match error:
            case AuthRequired():
                return replace(
                    base, kind=Kind.DENIED, status=error.status, code=error.code, credential_sent=error.credential_sent
                )
            case HttpRejected():
                return replace(base, kind=Kind.REJECTED, status=error.status)
            case Unavailable():
                return replace(base, kind=Kind.UNAVAILABLE, status=error.status)
            case ConnectionLost() if self._is_stdio:
                return replace(base, kind=Kind.ENDED)
            case StreamEnded() if self._retries:
                # Once may be a bad moment. Twice, it is all that this server answers.
                return replace(base, kind=Kind.REJECTED, status=200)
            case LimitExceeded() | RemoteProtocolError():
                return replace(base, kind=Kind.REJECTED, status=200)
            case TransportError():
                return replace(base, kind=Kind.UNAVAILABLE)
            case _:
                raise error

    # -- explaining ----------------------------------------------------------------------------------------------------------------

    def _note(self, step: str, seen: _Seen, verdict: Decision) -> None:
        taken_for = f"{verdict.era}, " if verdict.era else ""
        self._add_attempt(
            step, seen.text, f"{verdict.row}: {taken_for}{verdict.step} {verdict.version}".rstrip(), self._asked_at
        )

    def _add_attempt(self, step: str, observed: str, conclusion: str, started: float) -> None:
        self._trail.attempts.append(Attempt(step, observed, conclusion, round((time.monotonic() - started) * 1000, 1)))

    def _failure(self, decision: Decision) -> OutriderError:
        """The first real cause, with what the user can do about it."""
        seen = self._require_seen()
        observed, last = seen.observed, seen.failure
        if observed.kind is Kind.DESCRIBED or (decision.era is Era.LEGACY and last is None):
            return NoCommonVersion(self._ours, observed.versions)
        if isinstance(last, PeerError) and observed.versions and decision.era is Era.MODERN:
            return NoCommonVersion(self._ours, observed.versions)
        if isinstance(last, PeerError) and last.code == HEADER_MISMATCH:
            last.hint = "the request carried the headers; something on the way, such as a proxy, drops or rewrites MCP-* headers"
            return last
        if pick_version(self._ours, era=Era.LEGACY) is None and decision.era is Era.LEGACY:
            return NoCommonVersion(self._ours, ("only legacy revisions",))
        for cause in self._causes:
            if isinstance(cause, AuthRequired):
                if last is not cause and last is not None:
                    cause.hint = f"{cause.hint}; the legacy handshake was tried too: {last}"
                return cause
        # What a process said when it died explains more than our own impatience.
        for cause in self._causes:
            if isinstance(cause, ConnectionLost):
                return cause
        return last or self._causes[0]

    def timed_out(self) -> OutriderError:
        """The failure when the time for opening is over."""
        strays = self._strays
        limit = self._options.start_timeout_s
        self._add_attempt("waiting", f"nothing within {limit:g} s in all{strays}", "given up", self._started)
        # A refused probe is how a legacy server shows itself, no reason why nothing came after it.
        for cause in self._causes:
            if isinstance(cause, AuthRequired | ConnectFailed | ConnectionLost | Unavailable):
                return cause
        return TimedOut(
            f"no usable answer within {limit:g} s{strays}",
            phase="start",
            timeout_s=limit,
            hint=_hint_about_silence(strays),
        )

    def _require_seen(self) -> _Seen:
        assert self._seen is not None
        return self._seen

    def _remaining_s(self) -> float:
        return self._started + self._options.start_timeout_s - time.monotonic()

    async def _close_channel(self) -> None:
        if self._channel is None:
            return
        channel = self._channel
        # Forgotten only when it is closed: a time-out in the middle of this must still find it.
        await channel.close()
        self._channel, self._legacy = None, None
        self._collect(channel)

    async def abandon(self) -> None:
        """Leave nothing running."""
        if self._legacy is not None and self._channel is self._legacy.channel:
            channel, legacy, self._channel, self._legacy = self._channel, self._legacy, None, None
            await legacy.close()
            self._collect(channel)
        await self._close_channel()

    def _collect(self, channel: Channel) -> None:
        """Keep what a channel that is being given up knows."""
        self._strays = channel.strays() or self._strays
        self._trail.warnings.extend(warning for warning in channel.warnings if warning not in self._trail.warnings)
        self._trail.stderr_tail = channel.stderr_tail() or self._trail.stderr_tail
