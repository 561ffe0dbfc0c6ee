"""The one session that a client keeps: opened when it is first needed, and again when it is lost.

Decided here: which era is tried first, when a broken connection or a doubtful era leads to a new session, when somebody is asked to sign
in, and for whose identity answers are remembered from then on. Not here: how a session is opened (`opening`), what it puts on the wire
(`session`, `legacy_session`), which requests are sent again (`sending`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from outrider.cache.answers import Peer
from outrider.cache.memory import Memory
from outrider.client.auth.authorizer import Challenge
from outrider.client.opening import Trail, open_session
from outrider.client.remembering import Remembering, peer_of
from outrider.client.session import Change, Session
from outrider.client.spans import request_span
from outrider.client.target import ClientOptions, HttpTarget, Target
from outrider.errors import (
    AuthRequired,
    ConnectionLost,
    LocalProtocolError,
    Offline,
    OutriderError,
    SignInFailed,
    UnsupportedVersion,
)
from outrider.protocol.versions import Era, pick_version

__all__ = ["MAX_SIGN_INS", "AnotherIdentity", "KeptSession"]

T = TypeVar("T")

MAX_SIGN_INS: Final = 2
"""For one request: once for want of any credential, once for want of a scope.

Spec: 2026-07-28 basic/authorization#step-up-authorization-flow (SHOULD limit)
"""
_MAX_RESTARTS: Final = 3
_RESTART_WINDOW_S: Final = 60.0


def _named_era(error: OutriderError) -> Era | None:
    """The era to begin with after a version was refused: legacy if the server names no other, else None."""
    if (
        not isinstance(error, UnsupportedVersion)
        or not error.supported
        or pick_version(error.supported, era=Era.MODERN)
    ):
        return None
    return Era.LEGACY if pick_version(error.supported, era=Era.LEGACY) else None


class AnotherIdentity(AuthRequired):
    """Somebody signed in while an answer was on its way."""

    def __init__(self) -> None:
        super().__init__("somebody signed in meanwhile", status=401)


class KeptSession:
    """A server's session, for any number of tasks at once.

    Args:
        target: where to.
        options: limits and identity.
        memory: where answers and the era are remembered; None to ask every time.
        peer: whose answers these are; None to take the target's own fingerprint and credentials.
        assume: the era to try first; corrected if it turns out wrong.
        on_change: called with each change the server announces, after it has been taken note of.
        on_log: called with the params of each log message.

    Attributes:
        trail: how the server was opened, last time.
        current: the session, or None while there is none.
        remembering: what is remembered of the server for the present identity, or None without a memory.
    """

    def __init__(
        self,
        target: Target,
        options: ClientOptions,
        *,
        memory: Memory | None,
        peer: Peer | None,
        assume: Era | None,
        on_change: Callable[[Change], None],
        on_log: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self.trail = Trail()
        self.current: Session | None = None
        self._target, self._options, self._peer = target, options, peer
        self._on_change, self._on_log = on_change, on_log
        self.remembering = None if memory is None else Remembering(memory, peer or self._present_peer())
        self._era = assume
        self._opening = asyncio.Lock()
        self._opening_task: asyncio.Task[Session] | None = None
        self._closed = False
        self._restarts: list[float] = []

    # -- open and closed -----------------------------------------------------------------------------------------------------------

    async def opened(self) -> Session:
        """The session, opened if there is none.

        Raises:
            OutriderError: it cannot be opened; `trail` tells every step.
        """
        if self.current is not None:
            return self.current
        async with self._opening:
            if self.current is None:
                if self._closed:
                    raise LocalProtocolError("the client is closed")
                # A task of its own, so that `close` can end it; whoever cancels the waiting cancels the task.
                self._opening_task = asyncio.create_task(self._open(), name="outrider open")
                try:
                    self.current = await self._opening_task
                except asyncio.CancelledError:
                    task = asyncio.current_task()
                    if self._closed and task is not None and not task.cancelling():
                        raise LocalProtocolError("the client was closed while it was being opened") from None
                    raise
                finally:
                    self._opening_task = None
            return self.current

    async def _open(self) -> Session:
        """Open the server, with the era that is remembered as the first guess, and remember the era that is found."""
        if self._options.offline:
            raise Offline(f"{self._target.label} was not asked", hint="leave out --offline to ask it")
        assume = self._era
        if assume is None and self.remembering is not None:
            assume = await self.remembering.assumed_era()

        async def attempt() -> Session:
            self.trail = Trail()
            return await open_session(self._target, self._options, self.trail, assume=assume)

        session = await self.with_sign_in(attempt)
        session.on_change = self._changed
        session.on_log = self._on_log
        session.trace = lambda method, params: request_span(
            self._target, method, params, version=session.version, session_id=session.session_id
        )
        self._era = session.era
        try:
            if self.remembering is not None and self.trail.storable:
                await self.remembering.learned(session, self.trail)
        except BaseException:
            await session.close()
            raise
        return session

    async def close(self) -> None:
        """End the session for good, also one that is just being opened; from any task, any number of times."""
        self._closed = True
        if self._opening_task is not None:
            self._opening_task.cancel()
        await self.rest()

    async def rest(self) -> None:
        """End the session; whoever needs it next opens it again."""
        async with self._opening:
            session, self.current = self.current, None
        if session is not None:
            await session.close()

    async def reopened_after(self, lost: Session, error: ConnectionLost) -> Session:
        """Put a new session in the place of one whose connection is gone.

        Raises:
            ConnectionLost: `error`, when the client is closed or the server was lost too often of late.

        Spec: 2026-07-28 basic/transports/stdio#unexpected-termination (SHOULD)
        """
        now = time.monotonic()
        self._restarts = [moment for moment in self._restarts if now - moment < _RESTART_WINDOW_S]
        if self._closed or len(self._restarts) >= _MAX_RESTARTS:
            raise error
        async with self._opening:
            if self.current is lost:
                self._restarts.append(now)
                self.current = None
                await lost.close()
        return await self.opened()

    async def reconsidered(self, doubted: Session, error: OutriderError) -> Session | None:
        """Ask the server once more which era it speaks; the new session if that has changed, else None.

        A server that refuses the version of its own description and names legacy ones only is taken at its last word.

        Spec: 2026-07-28 basic/versioning#backward-compatibility-with-initialization-based-versions (re-probe when the assumption fails)
        """
        async with self._opening:
            if self.current is doubted:
                self.current, self._era = None, _named_era(error)
                if self.remembering is not None:
                    await self.remembering.forget_era()
                await doubted.close()
        session = await self.opened()
        return session if (session.era, session.version) != (doubted.era, doubted.version) else None

    async def known_era(self) -> Era:
        """The era, without opening the server if it is remembered."""
        era = self._era
        if era is None and self.remembering is not None:
            era = await self.remembering.known_era()
        return era or (await self.opened()).era

    def _changed(self, change: Change) -> None:
        if self.remembering is not None:
            self.remembering.changed(change)
        self._on_change(change)

    # -- who is signed in ----------------------------------------------------------------------------------------------------------

    async def with_sign_in(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """`attempt`, and again each time that somebody has signed in because the server demanded it.

        What was refused for want of a credential was not carried out: it may be sent again, whatever it does.

        Raises:
            AuthRequired: nobody can sign in, or it was tried `MAX_SIGN_INS` times. SignInFailed: it was tried.
        """
        for _ in range(MAX_SIGN_INS):
            try:
                return await attempt()
            except AuthRequired as error:
                if not await self._signed_in(error):
                    raise
        return await attempt()

    async def _signed_in(self, error: AuthRequired) -> bool:
        """Let somebody sign in where a server demands it, outside of all time limits; whether it is worth asking once more."""
        auth, target = self._options.auth, self._target
        if (
            auth is None
            or not isinstance(target, HttpTarget)
            or target.has_authorization
            or isinstance(error, SignInFailed)
        ):
            return False
        if not await auth.sign_in(target.url, Challenge(error.status, error.challenge, error.refused)):
            return False
        if self.remembering is not None and self._peer is None:
            # Whoever is signed in now must neither see nor fill what is remembered for somebody else.
            self.remembering = Remembering(self.remembering.memory, self._present_peer())
        return True

    def _present_peer(self) -> Peer:
        auth, target = self._options.auth, self._target
        if auth is None or not isinstance(target, HttpTarget) or target.has_authorization:
            return peer_of(target)
        return peer_of(target, signed_in=auth.context(target.url))

    def as_same(
        self, remembering: Remembering, load: Callable[..., Awaitable[bytes]]
    ) -> Callable[..., Awaitable[bytes]]:
        """`load`, unless somebody signs in meanwhile: then the answer is not for the identity that it would be remembered for.

        Raises:
            AnotherIdentity: from the returned function, in the place of such an answer.
        """

        async def load_as_same(*arguments: Any) -> bytes:
            answer = await load(*arguments)
            if self.remembering is not remembering:
                raise AnotherIdentity
            return answer

        return load_as_same
