"""One request, until it has an answer or none is to be had.

Decided here: which requests are sent again after a broken connection or an answer of the wrong era, and what time each may take. Not here:
how a session is opened again, and signing in (`keeping`), and what to ask (`client`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Raw, Struct

from outrider.client.keeping import KeptSession
from outrider.client.session import Progress, ProgressCallback, Session
from outrider.client.spans import note_result
from outrider.errors import MODERN_CODES, ConnectionLost, HttpRejected, PeerError, TimedOut, UnsupportedVersion
from outrider.protocol.versions import Era

__all__ = ["Request", "send"]

_PROGRESS_PATIENCE: Final = 10
"""Progress restarts a call's clock, up to this many times its limit.

Spec: 2026-07-28 basic/patterns/cancellation#timeouts (MAY, SHOULD cap)
"""


class Request(Struct, frozen=True):
    """What to ask, and how.

    Attributes:
        method: the JSON-RPC method.
        params: its params without the protocol's own `_meta` fields.
        timeout_s: how long each attempt may take, in seconds.
        is_safe: the request changes nothing, so it may be sent a second time if the connection broke.
        headers: further HTTP headers.
        meta: further `_meta` keys.
        on_progress: called for each progress notification, each of which restarts the clock.
    """

    method: str
    params: Mapping[str, Any]
    timeout_s: float
    is_safe: bool = False
    headers: Mapping[str, str] | None = None
    meta: Mapping[str, Any] | None = None
    on_progress: ProgressCallback | None = None


async def send(kept: KeptSession, request: Request) -> Raw:
    """The answer to `request`: the result's JSON bytes.

    Raises:
        OutriderError: there is none; see `Client`.
    """
    session = await kept.opened()
    try:
        return await kept.with_sign_in(lambda: _answer(session, request))
    except ConnectionLost as error:
        # A lost process is replaced in any case; only what cannot do harm twice is asked again.
        again = await kept.reopened_after(session, error) if session.channel.stdio else session
        if not request.is_safe:
            raise
    except (HttpRejected, PeerError) as error:
        if not _contradicts(session.era, error):
            if kept.remembering is not None and isinstance(error, PeerError):
                await kept.remembering.doubt(request.method, error.code)
            raise
        changed = await kept.reconsidered(session, error)
        if changed is None or not request.is_safe:
            raise
        again = changed
    return await kept.with_sign_in(lambda: _answer(again, request))


async def _answer(session: Session, request: Request) -> Raw:
    """The answer to one attempt, which is one span for whoever traces, in the time that it may take."""
    limit, on_progress = request.timeout_s, request.on_progress
    with session.trace(request.method, request.params) as operation:
        try:
            async with asyncio.timeout(limit) as clock:
                result = await session.call(
                    request.method,
                    request.params,
                    headers=request.headers,
                    meta=operation.meta(request.meta),
                    on_progress=None if on_progress is None else _restarting(clock, limit, on_progress),
                    on_sent=operation.sent,
                )
        except TimeoutError as error:
            raise TimedOut(
                f"{request.method} got no answer within {limit:g} s{session.channel.strays()}",
                phase="request",
                timeout_s=limit,
                hint="allow more time, or ask whether the server is overloaded",
            ) from error
        note_result(operation, request.method, result)
        return result


def _restarting(clock: asyncio.Timeout, limit: float, on_progress: ProgressCallback) -> ProgressCallback:
    """`on_progress`, which also gives the call its time anew."""
    loop = asyncio.get_running_loop()
    last_moment = loop.time() + _PROGRESS_PATIENCE * limit

    def progressed(progress: Progress) -> None:
        if not clock.expired():
            clock.reschedule(min(loop.time() + limit, last_moment))
        on_progress(progress)

    return progressed


def _contradicts(era: Era, error: HttpRejected | PeerError) -> bool:
    """Whether an answer is one that a server of this era would not give."""
    if isinstance(error, HttpRejected):
        return era is Era.MODERN and error.status in (400, 404, 405, 406, 415)
    if era is Era.LEGACY:
        return error.code in MODERN_CODES
    return isinstance(error, UnsupportedVersion) or (
        error.code not in MODERN_CODES and "session" in error.message.lower()
    )
