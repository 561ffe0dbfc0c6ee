"""What is examined: one server, its connections, and everything that was learned from it before and during the checks.

Decided here: how a good request looks in each era, how lists are read, what is kept. Not here: how bytes travel (`speakers`), what an
answer is worth (`checks`).
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from msgspec import UNSET, Struct, UnsetType

from outrider.checker.speakers import ACCEPT, Answer, HttpSpeaker, Outcome, Pace, Speaker, StdioSpeaker
from outrider.client.target import ClientOptions, HttpTarget, StdioTarget, Target
from outrider.errors import LocalProtocolError
from outrider.protocol.headers import PROTOCOL_VERSION as VERSION_HEADER
from outrider.protocol.headers import SESSION_ID, standard_headers
from outrider.protocol.jsonrpc import RequestId
from outrider.protocol.meta import render_request_meta
from outrider.protocol.model import LIST_KINDS, ListKind
from outrider.protocol.versions import LEGACY_VERSIONS, MODERN_VERSIONS, Era

__all__ = ["LegacyHalf", "Listed", "Subject"]

DISCOVER: Final = "server/discover"
INVENTED: Final = "outrider-check-no-such-thing"
"""What no server has: a tool, a prompt, a cursor."""
MODERN: Final = MODERN_VERSIONS[0]
_MAX_PAGES: Final = 40

Json = dict[str, Any]


def encode(message: Any) -> bytes:
    """Any JSON value as one line of bytes."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()


class Listed(Struct):
    """One list, read twice.

    Attributes:
        kind: which list.
        pages: the answers of the first reading.
        items: the items of the first reading, whatever they are.
        ended: whether the first reading came to an end.
        again: the items of the second reading, or None when it failed.
    """

    kind: ListKind
    pages: list[Answer]
    items: list[Any]
    ended: bool
    again: list[Any] | None = None

    def named(self) -> Iterator[tuple[str, Json]]:
        """Each item that is an object, with a label for messages."""
        for position, item in enumerate(self.items):
            if isinstance(item, dict):
                name = item.get(self.kind.identity)
                yield (repr(name) if isinstance(name, str) and name else f"{self.kind.member}[{position}]"), item


class LegacyHalf:
    """A handshake and what follows it, on a connection of its own.

    Attributes:
        opening: the answer to `initialize`.
        session_id: the session that was assigned, or "".
        version: the version that was negotiated, or "".
        confirmed: the answer to `notifications/initialized`, once sent.
    """

    def __init__(self, subject: Subject, speaker: Speaker) -> None:
        self.speaker = speaker
        self.opening: Answer
        self.session_id = ""
        self.version = ""
        self.confirmed: Answer | None = None
        self._subject = subject

    async def open(self, version: str = LEGACY_VERSIONS[0]) -> Answer:
        """Shake hands, proposing `version`."""
        params = {
            "protocolVersion": version,
            "capabilities": {},
            "clientInfo": self._subject.client_info,
        }
        self.opening = await self.ask("initialize", params)
        result = self.opening.result or {}
        self.session_id = self.opening.headers.get(SESSION_ID.lower(), "")
        answered = result.get("protocolVersion")
        self.version = answered if isinstance(answered, str) else ""
        if result:
            self.confirmed = await self.notify("notifications/initialized")
        return self.opening

    @property
    def works(self) -> bool:
        """Whether the handshake was answered with a result."""
        return self.opening.result is not None

    @property
    def capabilities(self) -> Json:
        """What the server declared in the handshake."""
        found = (self.opening.result or {}).get("capabilities")
        return found if isinstance(found, dict) else {}

    def headers(self, changes: Mapping[str, str | None] | None = None) -> dict[str, str]:
        """The headers of a request in this session."""
        headers: dict[str, str | None] = {"Content-Type": "application/json", "Accept": ACCEPT}
        if self.session_id:
            headers[SESSION_ID] = self.session_id
        if self.version in LEGACY_VERSIONS:
            headers[VERSION_HEADER] = self.version
        return {name: value for name, value in {**headers, **(changes or {})}.items() if value is not None}

    async def ask(self, method: str, params: Any = UNSET, *, headers: Mapping[str, str | None] | None = None) -> Answer:
        """Send a request in this session."""
        request_id = self._subject.next_id()
        message = {"jsonrpc": "2.0", "id": request_id, "method": method}
        if params is not UNSET:
            message["params"] = params
        answer = await self.speaker.say(
            encode(message), request_id=request_id, headers=self.headers(headers), legacy=True
        )
        return self._subject.keep(answer)

    async def notify(self, method: str) -> Answer:
        """Send a notification in this session."""
        return await self.speaker.say(encode({"jsonrpc": "2.0", "method": method}), headers=self.headers(), legacy=True)


class Subject:
    """One server under examination.

    Attributes:
        target: where it is.
        era: the era that a client would conclude.
        is_modern: whether modern requests are served.
        version: the modern version in use.
        main: the connection that most is said on.
        spare: stdio: a process for what may break one; over HTTP the same as `main`.
        legacy: the legacy half, or None when there is none.
        discovery: two answers to `server/discover`, the second on another connection; () for a legacy server.
        first: the answer to the first request of a connection, a list or `server/discover`.
        lists: every list that the server declares, by method.
        refused_handshake: the error that a modern-only server answered to `initialize`, or None.
        legacy_tools: the names of the tools that the legacy half lists, or None.
        answers: every answer to a request so far, for what holds of all of them.
        assumed: the capabilities that a modern server without a readable `server/discover` was seen to have.
        probe: stdio: what a legacy process made of `server/discover` before the handshake, or None.
        start_ms: stdio: from the start of a process to its first answer.
        call: tools that may be called, with their arguments.
    """

    def __init__(
        self,
        target: Target,
        client: ClientOptions,
        pace: Pace,
        *,
        timeout_s: float,
        call: tuple[tuple[str, Json], ...] = (),
    ) -> None:
        self.target = target
        self.client_info: Any = client.client_info
        self.call = call
        self.era: Era | None = None
        self.is_modern = False
        self.version = MODERN
        self.main: Speaker
        self.spare: Speaker
        self.legacy: LegacyHalf | None = None
        self.refused_handshake: Answer | None = None
        self.discovery: tuple[Answer, ...] = ()
        self.first: Answer | None = None
        self.lists: dict[str, Listed] = {}
        self.legacy_tools: list[Any] | None = None
        self.answers: list[Answer] = []
        self.assumed: Json = {}
        self.probe: Answer | None = None
        self.start_ms: float | None = None
        self._client = client
        self._pace = pace
        self._timeout_s = timeout_s
        self._ids = itertools.count(1)
        self._speakers: list[Speaker] = []
        self._ready: list[Speaker] = []

    # -- connections ---------------------------------------------------------------------------------------------------------------

    @property
    def is_stdio(self) -> bool:
        """Whether it is a process of ours."""
        return isinstance(self.target, StdioTarget)

    @property
    def is_dual(self) -> bool:
        """Whether both eras are served."""
        return self.is_modern and self.legacy is not None

    async def connect(self) -> Speaker:
        """A connection of its own: a process over stdio, a pool over HTTP. Closed with the subject.

        Raises:
            ConnectFailed: the process cannot be started.
        """
        speaker: Speaker
        if self._ready:
            return self._ready.pop()
        if isinstance(self.target, HttpTarget):
            speaker = HttpSpeaker(self.target, self._client, self._pace, self._timeout_s)
        else:
            speaker = await StdioSpeaker.start(self.target, self._client, self._pace, self._timeout_s)
        self._speakers.append(speaker)
        return speaker

    async def start_ahead(self, number: int) -> None:
        """Over stdio, start so many processes at once, for `connect` to hand out: they start side by side, not one after the other.

        Raises:
            ConnectFailed: the process cannot be started.
        """
        if self.is_stdio:
            self._ready = [await self.connect() for _ in range(number)]

    async def connect_without_credential(self) -> Speaker:
        """A connection to the same URL without any of the configured headers."""
        assert isinstance(self.target, HttpTarget)
        speaker = HttpSpeaker(HttpTarget(self.target.url), self._client, self._pace, self._timeout_s)
        self._speakers.append(speaker)
        return speaker

    @property
    def processes(self) -> list[StdioSpeaker]:
        """Every process that was started."""
        return [speaker for speaker in self._speakers if isinstance(speaker, StdioSpeaker)]

    @property
    def speakers(self) -> list[Speaker]:
        """Every connection that was opened."""
        return list(self._speakers)

    # -- asking --------------------------------------------------------------------------------------------------------------------

    def next_id(self) -> int:
        """An id that was not used before."""
        return next(self._ids)

    def keep(self, answer: Answer) -> Answer:
        """Remember an answer for the checks that look at all of them."""
        self.answers.append(answer)
        return answer

    def meta(self, version: str | None = None, extra: Mapping[str, Any] | None = None) -> Json:
        """The `_meta` of a good request, with further keys."""
        return render_request_meta(version or self.version, self.client_info, {}, extra=extra)

    def message(
        self, method: str, params: Json | None = None, *, meta: Any = UNSET, request_id: RequestId | None = None
    ) -> Json:
        """A request as a JSON object. `meta` None leaves `_meta` out; without params and `_meta` there is no `params`."""
        shown = dict(params or {})
        if meta is not None:
            shown["_meta"] = self.meta() if meta is UNSET else meta
        message: Json = {"jsonrpc": "2.0", "id": self.next_id() if request_id is None else request_id, "method": method}
        if shown:
            message["params"] = shown
        return message

    def headers(
        self,
        method: str,
        params: Json | None = None,
        version: str | None = None,
        changes: Mapping[str, str | None] | None = None,
    ) -> dict[str, str]:
        """The headers of a good modern request, with some of them changed, or left out where the change is None."""
        try:
            standard: dict[str, str] = standard_headers(method, params, version or self.version)
        except LocalProtocolError:
            standard = {VERSION_HEADER: version or self.version, "Mcp-Method": method}
        headers: dict[str, str | None] = {"Content-Type": "application/json", "Accept": ACCEPT, **standard}
        return {name: value for name, value in {**headers, **(changes or {})}.items() if value is not None}

    async def ask(
        self,
        method: str,
        params: Json | None = None,
        *,
        meta: Json | UnsetType | None = UNSET,
        version: str | None = None,
        headers: Mapping[str, str | None] | None = None,
        request_id: RequestId | None = None,
        on: Speaker | None = None,
        until: Callable[[Any], bool] | None = None,
        timeout_s: float | None = None,
    ) -> Answer:
        """Send a modern request that is good but for what the arguments change.

        Args:
            method: the method.
            params: its params without `_meta`.
            meta: `_meta`; UNSET for a good one, None for none.
            version: the version in both places, instead of the one in use.
            headers: header changes; None as a value leaves a header out.
            request_id: the id; a new number by default.
            on: the connection; the main one by default.
            until: see `Speaker.say`.
            timeout_s: see `Speaker.say`.
        """
        if meta is UNSET and version is not None:
            meta = self.meta(version)
        message = self.message(method, params, meta=meta, request_id=request_id)
        answer = await (on or self.main).say(
            encode(message),
            request_id=message["id"],
            headers=self.headers(method, params, version, headers),
            until=until,
            timeout_s=timeout_s,
        )
        return self.keep(answer)

    async def ask_in_its_era(self, method: str, params: Json) -> Answer:
        """A request that means the same in both eras, in the one that the server speaks."""
        if self.is_modern:
            return await self.ask(method, params)
        assert self.legacy is not None
        return await self.legacy.ask(method, params)

    async def discover(self, **changes: Any) -> Answer:
        """A `server/discover`, good but for the changes; see `ask`."""
        return await self.ask(DISCOVER, **changes)

    # -- what is known -------------------------------------------------------------------------------------------------------------

    @property
    def described(self) -> Json:
        """The result of `server/discover`, or of `initialize` for a legacy server; {} if there is none."""
        if self.is_modern:
            return (self.discovery[0].result if self.discovery else None) or {}
        return (self.legacy.opening.result if self.legacy else None) or {}

    @property
    def capabilities(self) -> Json:
        """What the server declares; {} when that cannot be read."""
        found = self.described.get("capabilities")
        return found if isinstance(found, dict) else self.assumed

    @property
    def assumes_capabilities(self) -> bool:
        """Whether what the server declares cannot be read, so that nothing can be held against it."""
        return not isinstance(self.described.get("capabilities"), dict)

    @property
    def supported(self) -> list[str]:
        """The versions that `server/discover` lists, as far as they are strings."""
        found = self.described.get("supportedVersions")
        return [version for version in found if isinstance(version, str)] if isinstance(found, list) else []

    def items(self, method: str) -> list[Any]:
        """The items of a list; [] if it is not offered."""
        listed = self.lists.get(method)
        return listed.items if listed else []

    async def read_list(self, kind: ListKind, ask: Callable[[str, Json], Any]) -> Listed:
        """All pages of a list, within limits."""
        listed = Listed(kind, [], [], False)
        params: Json = {}
        cursors: set[str] = set()
        while len(listed.pages) < _MAX_PAGES:
            page: Answer = await ask(kind.method, params)
            listed.pages.append(page)
            found = (page.result or {}).get(kind.member)
            listed.items += found if isinstance(found, list) else []
            cursor = (page.result or {}).get("nextCursor")
            if not isinstance(cursor, str):
                listed.ended = True
                break
            if cursor in cursors:
                break
            cursors.add(cursor)
            params = {"cursor": cursor}
        return listed

    async def read_lists(self) -> None:
        """Every list that is declared, twice."""
        for kind in LIST_KINDS:
            if kind.capability not in self.capabilities:
                continue
            ask: Callable[[str, Json], Any] = self.ask
            if not self.is_modern:
                assert self.legacy is not None
                ask = self.legacy.ask
            listed = await self.read_list(kind, ask)
            if listed.pages[0].result is not None and listed.ended:
                again = await self.read_list(kind, ask)
                listed.again = again.items if again.ended and again.pages[0].result is not None else None
            self.lists[kind.method] = listed

    @property
    def reachable(self) -> bool:
        """Whether the server was reached at all, as far as the answers so far tell."""
        return any(answer.outcome in (Outcome.REPLY, Outcome.OTHER) for answer in self.answers)

    async def revive(self) -> None:
        """Start new processes in the place of those that did not survive what was said to them.

        Raises:
            ConnectFailed: that is not possible any more.
        """
        if isinstance(self.spare, StdioSpeaker) and self.spare.has_ended:
            self.spare = await self.connect()
        if (
            not self.is_modern
            and self.legacy is not None
            and isinstance(self.main, StdioSpeaker)
            and self.main.has_ended
        ):
            self.main = self.legacy.speaker = await self.connect()
            await self.legacy.open()

    async def close(self) -> None:
        """End every connection."""
        async with asyncio.TaskGroup() as group:
            for speaker in self._speakers:
                group.create_task(speaker.close())
