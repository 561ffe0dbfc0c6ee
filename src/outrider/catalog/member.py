"""One server of the catalog: remembered, refreshed, watched, called, and ended when idle.

Decided here: when a server is asked, how often, when it is tried again and when its process may end. What it knows is published as one
`ServerView` at a time. Not here: how a server is discovered (`client.discover`) and how views are composed (`catalog`).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace as replace_options
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec.structs import replace

from outrider.cache.answers import Source
from outrider.cache.memory import Memory
from outrider.catalog.snapshot import ServerState, ServerView
from outrider.client.client import Client
from outrider.client.discover import report_on
from outrider.client.listing import Listing
from outrider.client.report import DiscoveryReport, Failure
from outrider.client.session import Change
from outrider.client.target import ClientOptions, Target
from outrider.errors import ConfigError, LocalProtocolError, OutriderError, PeerError
from outrider.protocol.freshness import poll_delay_ms
from outrider.protocol.versions import Era
from outrider.tracing import outside

if TYPE_CHECKING:
    from outrider.catalog.lock.drift import Drift
    from outrider.catalog.lock.enforcement import ServerPolicy

__all__ = ["Member", "ServerConfig"]

T = TypeVar("T")
_log = logging.getLogger("outrider.catalog")

_FIRST_RETRY_S: Final = 2.0
_LAST_RETRY_S: Final = 300.0
_MAX_UNKNOWN: Final = 8
_TRANSIENT: Final = frozenset({"ended", "timeout", "start", "protocol", "refused"})
_LASTING_STREAM_S: Final = 60.0
"""A stream that lived so long was cut for its age, not for a fault: the next one may follow soon."""
_LISTENED: Final = ("tools", "prompts", "resources")


class ServerConfig:
    """A server as the catalog is given it.

    Args:
        key: its id in the catalog.
        name: as people call it.
        resolve: makes the target, filling in placeholders now and not before; raises ConfigError if it cannot.
        label: how it may be shown before it is resolved.
        disabled_because: why it is not to be used, or "".
        allow: the only tools to offer, or None for all.
        deny: tools not to offer; wins over `allow`.
        start_timeout_s: its own limit for getting ready, or None.
        request_timeout_s: its own limit for one request, or None.
        warnings: what was odd about its configuration.
        is_given: it is named by a URL or a command on the command line rather than by a configuration.
        target: what is started or called, as a lock file may say it; see `sources.description`.
    """

    def __init__(
        self,
        key: str,
        resolve: Callable[[], Target],
        *,
        name: str = "",
        label: str = "",
        disabled_because: str = "",
        allow: tuple[str, ...] | None = None,
        deny: tuple[str, ...] = (),
        start_timeout_s: float | None = None,
        request_timeout_s: float | None = None,
        warnings: tuple[str, ...] = (),
        is_given: bool = False,
        target: str = "",
    ) -> None:
        self.key = key
        self.name = name or key
        self.resolve = resolve
        self.label = label
        self.disabled_because = disabled_because
        self.allow = allow
        self.deny = deny
        self.start_timeout_s = start_timeout_s
        self.request_timeout_s = request_timeout_s
        self.warnings = warnings
        self.is_given = is_given
        self.target = target

    def offers(self, tool: str) -> bool:
        """Whether the allow and deny lists let a tool through."""
        return tool not in self.deny and (self.allow is None or tool in self.allow)

    def unknown_tools(self, listing: Listing[Any] | None) -> list[str]:
        """A warning for each name in the lists that is no tool of the server: a misspelt one offers what was to be withheld."""
        if listing is None or not listing.complete:
            return []
        known = {tool.name for tool in listing.items}
        lists = (("offer", self.allow or ()), ("leave out", self.deny))
        return [
            f"the configuration names {name[:100]!r} as a tool to {what}, and the server has none of that name"
            for what, names in lists
            for name in names
            if name not in known
        ][:_MAX_UNKNOWN]

    def options(self, base: ClientOptions) -> ClientOptions:
        """The client options with this server's own limits."""
        changes: dict[str, Any] = {}
        if self.start_timeout_s is not None:
            changes["start_timeout_s"] = self.start_timeout_s
        if self.request_timeout_s is not None:
            changes["request_timeout_s"] = self.request_timeout_s
        return replace_options(base, **changes) if changes else base


class Member:
    """A server of the catalog.

    Args:
        config: what is configured.
        options: limits and identity of the client.
        memory: where it is remembered.
        gate: bounds how many servers are being asked at the same time.
        idle_s: after so many seconds without use, its process or connection ends.
        watch: listen for changes while connected.
        poll_s: ask anew about so often, for servers that announce nothing; None never. Spread at random, and rarer while nothing changes.
        publish: called with each new view; must not block.
        policy: what the lock file says of it, or None if none is enforced.

    Attributes:
        view: what is known now.
    """

    def __init__(
        self,
        config: ServerConfig,
        options: ClientOptions,
        memory: Memory,
        *,
        gate: asyncio.Semaphore,
        idle_s: float,
        watch: bool,
        poll_s: float | None,
        publish: Callable[[ServerView], None],
        policy: ServerPolicy | None = None,
    ) -> None:
        self.config = config
        self.policy = policy
        state = ServerState.DISABLED if config.disabled_because else ServerState.CONFIGURED
        failure = Failure("disabled", config.disabled_because) if config.disabled_because else None
        self.view = ServerView(
            key=config.key, name=config.name, state=state, label=config.label, failure=failure, warnings=config.warnings
        )
        self._options = config.options(options)
        self._memory = memory
        self._gate = gate
        self._idle_s = idle_s
        self._watch = watch
        self._poll_s = poll_s
        self._quiet_polls = 0
        self._publish = publish
        self._client: Client | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._dirty = False
        self._users = 0
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._watcher: asyncio.Task[None] | None = None
        self._retry_s = _FIRST_RETRY_S
        self._closed = False
        self._tasks: set[asyncio.Task[Any]] = set()

    # -- knowing -------------------------------------------------------------------------------------------------------------------

    async def recall(self) -> bool:
        """Publish what is remembered, without asking the server; whether that is fresh and nothing needs to be asked."""
        if self.view.state is ServerState.DISABLED:
            return True
        try:
            target = self.config.resolve()
        except ConfigError as error:
            self._fail(Failure("config", str(error), error.hint), None)
            return True  # Asking would tell nothing new.
        client = Client(target, self._options.asking_nobody, memory=self._memory)
        report = await report_on(client)
        await client.close()
        self._set(label=target.label)
        if report.failure is not None:
            if self._options.offline:
                # Nobody is going to ask: a reader who waited for more would wait in vain.
                self._set(state=ServerState.FAILED, failure=report.failure)
            return False
        self._adopt(report, ServerState.REMEMBERED)
        return report.source == "memory"

    def refresh_soon(self, *, force: bool = False) -> asyncio.Task[None]:
        """Ask the server in the background, unless that is already under way; the task never raises."""
        self._dirty = self._dirty or force
        if self._refreshing is None or self._refreshing.done():
            self._cancel_timer("retry")
            if self.view.state is not ServerState.DISABLED and not self._closed:
                # At once, not when the task first runs: who waits for pending servers right now must wait for this one.
                self._set(state=ServerState.CONNECTING)
            self._refreshing = asyncio.create_task(self._refresh(force), name=f"outrider refresh {self.config.key}")
        return self._refreshing

    async def _refresh(self, force: bool) -> None:
        if self.view.state is ServerState.DISABLED or self._closed:
            return
        while True:
            self._dirty = False
            self._set(state=ServerState.CONNECTING)
            try:
                report = await self._discover(force)
            except ConfigError as error:
                self._fail(Failure("config", str(error), error.hint), None)
                return
            except Exception as error:  # One server must never cost the others anything, whatever goes wrong.
                _log.exception("discovering %s failed in an unforeseen way", self.config.key)
                self._fail(Failure("internal", f"{type(error).__name__}: {error}", "please report this"), None)
                return
            if report.failure is not None:
                self._fail(report.failure, report)
                return
            is_whole = not any(_has_failed(listing) or _stands_in(listing) for listing in _listings(report))
            if is_whole:
                self._retry_s = _FIRST_RETRY_S
            before = self.view.tools
            self._adopt(report, ServerState.READY if report.source == "network" else ServerState.REMEMBERED)
            self._quiet_polls = self._quiet_polls + 1 if self.view.tools == before else 0
            if not self._dirty:
                self._touch()
                self._poll_later()
                self._watch_if_wanted()
                if not is_whole:
                    # It is there, but a list of it was late or refused: what it offers must not stay hidden for good.
                    self._retry_later()
                return
            force = True

    async def _discover(self, force: bool) -> DiscoveryReport:
        client = self._opened_client()
        self._users += 1
        try:
            async with self._gate:
                if client.remembering is not None:
                    await client.remembering.settle()
                return await report_on(client, refresh=force)
        finally:
            self._users -= 1

    def _opened_client(self) -> Client:
        if self._closed:
            raise LocalProtocolError("the catalog is closed")
        if self._client is None:
            client = Client(self.config.resolve(), self._options, memory=self._memory)
            client.on_change = self._changed
            self._client = client
        return self._client

    def _adopt(self, report: DiscoveryReport, state: ServerState) -> None:
        tools = sorted(_items(report.tools), key=lambda tool: tool.name)
        lists: dict[str, tuple[Any, ...]] = {
            "tools": tuple(tool for tool in tools if self.config.offers(tool.name)),
            "prompts": tuple(sorted(_items(report.prompts), key=lambda prompt: prompt.name)),
            "resources": tuple(sorted(_items(report.resources), key=lambda resource: resource.uri)),
            "resource_templates": tuple(
                sorted(_items(report.resource_templates), key=lambda template: template.uri_template)
            ),
        }
        for name, listing in zip(lists, _listings(report), strict=True):
            if _has_failed(listing):
                lists[name] = getattr(self.view, name)  # What is known of it is better than nothing.
        drifts: tuple[Drift, ...] = ()
        warnings = (*self.config.warnings, *self.config.unknown_tools(report.tools), *report.warnings)
        if self.policy is not None:
            judged = self.policy.judge(report, tuple(lists.values()))
            report, drifts, warnings = judged.report, judged.drifts, (*warnings, *judged.warnings)
            lists = dict(zip(lists, judged.lists, strict=True))
        self._set(
            state=state,
            report=report,
            failure=None,
            next_try_s=None,
            **lists,
            warnings=warnings,
            drifts=drifts,
        )

    def _fail(self, failure: Failure, report: DiscoveryReport | None) -> None:
        wait_s = None
        is_missing_command = failure.kind == "start" and report is not None and report.transport == "stdio"
        if failure.kind in _TRANSIENT and not is_missing_command and not self._closed:
            wait_s = self._retry_later()
        self._set(state=ServerState.FAILED, failure=failure, next_try_s=wait_s, report=self.view.report or report)

    def _retry_later(self) -> float:
        """Ask anew after a while that doubles each time; returns how long, in seconds."""
        wait_s = self._retry_s * random.uniform(0.8, 1.2)
        self._retry_s = min(self._retry_s * 2, _LAST_RETRY_S)
        self._start_timer("retry", wait_s, lambda: self.refresh_soon(force=True))
        return wait_s

    def _set(self, **changes: Any) -> None:
        view = replace(self.view, **changes)
        if view != self.view:
            self.view = view
            self._publish(view)

    # -- changing ------------------------------------------------------------------------------------------------------------------

    def _changed(self, change: Change) -> None:
        if change.what != "resource" and not self._closed:
            self._dirty = True
            self.refresh_soon()

    def _watch_if_wanted(self) -> None:
        if not self._watch or self._client is None or self._client.channel is None or self._watcher is not None:
            return
        announced = {name: self._announces(name) for name in _LISTENED}
        if self._client.era is Era.MODERN and any(announced.values()):
            with outside():
                self._watcher = asyncio.create_task(
                    self._listen(self._client, announced), name=f"outrider watch {self.config.key}"
                )

    def _announces(self, capability: str) -> bool:
        settings = self.view.capabilities.get(capability)
        return isinstance(settings, dict) and settings.get("listChanged") is True

    async def _listen(self, client: Client, wanted: dict[str, bool]) -> None:
        """Keep a listen stream open; whatever may have changed between two of them is fetched."""
        loop, pause_s = asyncio.get_running_loop(), _FIRST_RETRY_S
        while True:
            began = loop.time()
            try:
                async with client.listen(
                    tools=wanted["tools"], prompts=wanted["prompts"], resources=wanted["resources"]
                ) as changes:
                    async for _ in changes:
                        pass  # `on_change` has already been told.
            except PeerError as error:
                # It announces what it cannot deliver: its lists are asked for by their time to live, like anybody's.
                _log.debug("%s refuses to be listened to: %s", self.config.key, error)
                return
            except OutriderError as error:
                _log.debug("listening to %s ended: %s", self.config.key, error)
            if loop.time() - began > _LASTING_STREAM_S:
                pause_s = _FIRST_RETRY_S
            # Random, so that a balancer that cuts a thousand streams at once does not get them all back at once.
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))
            pause_s = min(pause_s * 2, _LAST_RETRY_S)
            self.refresh_soon(force=True)

    def _poll_later(self) -> None:
        """Spec: 2026-07-28 server/utilities/caching#freshness-calculation (MUST apply jitter and backoff when polling)"""
        if self._poll_s is not None and not self._closed:
            delay_ms = poll_delay_ms(int(self._poll_s * 1000), quiet_rounds=self._quiet_polls, spread=random.random())
            self._start_timer("poll", delay_ms / 1000, lambda: self.refresh_soon(force=True))

    # -- using ---------------------------------------------------------------------------------------------------------------------

    async def use(self, work: Callable[[Client], Awaitable[T]]) -> T:
        """Do something with the server's client, starting the server if need be.

        Raises:
            OutriderError: what the client raises; and `LocalProtocolError` for a disabled server.
        """
        if self.view.state is ServerState.DISABLED:
            raise LocalProtocolError(f"the server {self.config.name} is disabled: {self.config.disabled_because}")
        client = self._opened_client()
        self._users += 1
        try:
            return await work(client)
        finally:
            self._users -= 1
            self._touch()
            self._watch_if_wanted()

    async def require_approved(self, tool: str) -> None:
        """See that a tool, as the server lists it at this moment, is the one that was approved; nothing to do without a lock file.

        Raises:
            NotApproved: it is not, or that cannot be found out.
            OutriderError: the server cannot be asked.
        """
        policy = self.policy
        if policy is None or policy.call == "allow" or self.view.state is ServerState.DISABLED:
            return
        if self.view.state is not ServerState.READY and not self._options.offline:
            # What it says of itself is as old as its tools. Not awaited directly: who waits may be cancelled, the refresh goes on.
            await asyncio.wait([self.refresh_soon(force=True)])
        policy.refuse(policy.drift_of("tool", tool))
        try:
            listing = await self.use(lambda client: client.list_tools(refresh=not self._options.offline))
        except OutriderError:
            if policy.call == "warn":
                return  # The call itself will tell.
            raise
        if listing.source is not Source.NETWORK and not self._options.offline:
            policy.refuse(policy.missing("tool", tool, "its server does not list its tools now"))
            return
        found = next((listed for listed in listing.items if listed.name == tool), None)
        if found is None:
            policy.refuse(policy.missing("tool", tool, "its server lists it no longer"))
            return
        drift = policy.check_listed("tool", found)
        if drift is not None:
            self.refresh_soon(force=True)  # The others of its list may differ too.
        policy.refuse(drift)

    def _touch(self) -> None:
        """Used just now: the idle clock starts again."""
        if not self._closed and self._client is not None and self._client.channel is not None:
            self._start_timer("idle", self._idle_s, self._rest_soon)

    def _rest_soon(self) -> None:
        if self._users or self._closed:
            return
        task = asyncio.create_task(self._rest(), name=f"outrider rest {self.config.key}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _rest(self) -> None:
        await self._stop_watching()
        if self._client is not None and not self._users:
            await self._client.rest()
            if self.view.state is ServerState.READY:
                self._set(state=ServerState.REMEMBERED)

    # -- ending --------------------------------------------------------------------------------------------------------------------

    def _start_timer(self, name: str, delay_s: float, call: Callable[[], Any]) -> None:
        self._cancel_timer(name)
        with outside():
            self._timers[name] = asyncio.get_running_loop().call_later(delay_s, call)

    def _cancel_timer(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    async def _stop_watching(self) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.cancel()
            await asyncio.wait([watcher])

    async def close(self) -> None:
        """End everything this server has running. Any number of times."""
        self._closed = True
        for name in list(self._timers):
            self._cancel_timer(name)
        if self._refreshing is not None and not self._refreshing.done():
            self._refreshing.cancel()
            await asyncio.wait([self._refreshing])
        if self._tasks:
            # They are ending a process already: cutting that short would leave it half ended.
            await asyncio.wait(set(self._tasks))
        await self._stop_watching()
        client, self._client = self._client, None
        if client is not None:
            await client.close()


def _items(listing: Listing[T] | None) -> tuple[T, ...]:  # type: ignore[type-var]
    return listing.items if listing is not None else ()


def _listings(report: DiscoveryReport) -> tuple[Listing[Any] | None, ...]:
    """In the order of the view's lists."""
    return report.tools, report.prompts, report.resources, report.resource_templates


def _stands_in(listing: Listing[Any] | None) -> bool:
    """Whether a list is what was remembered, because it could not be had anew."""
    return listing is not None and listing.source is Source.STALE


def _has_failed(listing: Listing[Any] | None) -> bool:
    """Whether a list could not be read at all: the report stands for that with an empty one that is not complete."""
    return listing is not None and not listing.complete and not listing.items
