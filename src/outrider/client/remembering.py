"""What a client remembers of its server: the description, the lists, the era.

Decided here: under which key each is remembered, what counts as evidence for an era, and which notification makes what stale. Not here:
how long an answer is fresh (`protocol.freshness`) and where it is kept (`cache`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from outrider.cache.answers import EraVerdict, Evidence, Peer, Recalled, RecalledList
from outrider.cache.fingerprint import Fingerprinter
from outrider.cache.memory import Memory
from outrider.client.opening import Trail
from outrider.client.session import Change, Session
from outrider.client.target import StdioTarget, Target
from outrider.protocol.freshness import request_key
from outrider.protocol.versions import Era

__all__ = ["Remembering", "peer_of"]

_DISCOVER: Final = "server/discover"
_METHODS_OF: Final = {
    "tools": ("tools/list",),
    "prompts": ("prompts/list",),
    "resources": ("resources/list", "resources/templates/list"),
    "resource": ("resources/read",),
}

_fingerprinter: Fingerprinter | None = None


def peer_of(target: Target, fingerprinter: Fingerprinter | None = None, *, signed_in: str = "") -> Peer:
    """The identity of a target and of the credentials it is used with.

    Everything configured counts for both: an edited command, URL, variable or header is another target.

    Args:
        target: the target, with all placeholders filled in.
        fingerprinter: None for the user's own key.
        signed_in: what tells the identity that is signed in from others, or "" for none; see `Authorizer.context`.
    """
    global _fingerprinter
    if fingerprinter is None:
        fingerprinter = _fingerprinter = _fingerprinter or Fingerprinter.for_user()
    if isinstance(target, StdioTarget):
        env = {**target.env, **({"": "inherit"} if target.inherit_env else {})}
        fingerprint = fingerprinter.stdio(target.argv[0], target.argv[1:], env, target.cwd)
        return Peer(
            fingerprint,
            fingerprinter.context({f"env:{name}": value for name, value in target.env.items()}),
            target.label,
        )
    fingerprint = fingerprinter.http(target.url, target.headers)
    return Peer(
        fingerprint,
        fingerprinter.context(
            {
                **{f"header:{name}": value for name, value in target.headers.items()},
                **({"oauth": signed_in} if signed_in else {}),
            }
        ),
        target.label,
    )


class Remembering:
    """One server's share of a memory.

    Attributes:
        memory: the memory.
        peer: the server's identity in it.
        described: the last answer about the server, with where it came from; None before the first.
    """

    def __init__(self, memory: Memory, peer: Peer) -> None:
        self.memory = memory
        self.peer = peer
        self.described: Recalled | None = None
        self._verdict: EraVerdict | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def _known(self) -> EraVerdict | None:
        if self._verdict is None:
            self._verdict = await self.memory.era(self.peer.target)
        return self._verdict

    async def assumed_era(self) -> Era | None:
        """The era to try first, or None to ask: unknown, or known so long that it is time to ask again."""
        verdict = self._verdict = await self.memory.era(self.peer.target)
        return verdict.era if verdict is not None and not verdict.due else None

    async def known_era(self) -> Era | None:
        """The remembered era, however old."""
        verdict = await self._known()
        return verdict.era if verdict is not None else None

    async def known_version(self) -> str:
        """The protocol version that was in use last, or ""."""
        verdict = await self._known()
        return verdict.version if verdict is not None else ""

    async def learned(self, session: Session, trail: Trail) -> None:
        """Remember the era of a server that has answered."""
        evidence = Evidence.DISCOVER_RESULT if session.era is Era.MODERN else Evidence.HANDSHAKE
        self._verdict = EraVerdict(era=session.era, evidence=evidence, version=session.version, detail=trail.row)
        await self.memory.remember_era(self.peer.target, self._verdict)

    async def forget_era(self) -> None:
        """The era turned out wrong, and nothing better is known yet."""
        await self.memory.forget_era(self.peer.target)

    async def doubt(self, method: str, code: int) -> None:
        """A refusal of `method` with a JSON-RPC `code` may mean that what is remembered is out of date."""
        await self.memory.doubt(self.peer.target, method, code)

    async def discover(self, load: Callable[[], Awaitable[bytes]], *, refresh: bool) -> Recalled:
        """The server's description in the shape of a DiscoverResult."""
        self.described = await self.memory.fetch(self.peer, request_key(_DISCOVER), load, refresh=refresh)
        return self.described

    async def list(
        self,
        method: str,
        load_page: Callable[[str | None], Awaitable[bytes]],
        version: str,
        capabilities: Mapping[str, Any],
        *,
        refresh: bool,
    ) -> RecalledList:
        """All pages of a list."""
        return await self.memory.fetch_list(
            self.peer, method, load_page, version=version, capabilities=capabilities, refresh=refresh
        )

    def changed(self, change: Change) -> None:
        """The server announced a change: what is remembered of it is stale from now on."""
        for method in _METHODS_OF[change.what]:
            task = asyncio.ensure_future(self.memory.invalidate(self.peer.target, method, change.uri or None))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def settle(self) -> None:
        """Wait until all announced changes have been taken note of."""
        if self._tasks:
            await asyncio.wait(self._tasks)
