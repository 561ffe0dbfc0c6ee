"""Many servers as one: opened at once from what is remembered, refreshed in the background, searched, called.

Decided here: which servers there are, when readers wait, how calls are routed. Not here: one server's life (`member`), names and order
(`snapshot`), what search finds (`search`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, overload

from outrider.cache.memory import Memory, open_memory
from outrider.catalog.configs import config_of, configs_from_code
from outrider.catalog.member import Member, ServerConfig
from outrider.catalog.reference import ToolRef
from outrider.catalog.snapshot import CatalogTool, ServerView, Snapshot, UnknownTool
from outrider.catalog.sources import Configuration, here, load
from outrider.client.session import ProgressCallback
from outrider.client.target import ClientOptions, Target
from outrider.client.tasks import TaskCallback
from outrider.errors import ConfigError, LocalProtocolError
from outrider.protocol.freshness import Policy
from outrider.protocol.results import PromptResult, ResourceResult, ToolResult

if TYPE_CHECKING:
    from outrider.catalog.conversation import Conversation
    from outrider.catalog.embedding import BackgroundEmbedding
    from outrider.catalog.lock import Lock
    from outrider.catalog.lock.enforcement import Action, Enforcement, ServerPolicy
    from outrider.catalog.search import SearchResult, ToolDocument, ToolIndex

__all__ = ["Catalog", "CatalogOptions"]

Watcher = Callable[[Snapshot], None]

_DEFAULT_WAIT_S: Final = 10.0


@dataclass(frozen=True)
class CatalogOptions:
    """How a catalog behaves.

    Attributes:
        client: limits and identity for every server's client.
        floor_s: how long an answer counts as fresh if its server says 0 or nothing, in seconds. Most servers do; taken literally, every
            start would start every process. 0 takes them literally.
        idle_s: after so many seconds without use, a server's process or connection ends; its tools stay.
        watch: listen for announced changes while a server is connected.
        poll_s: ask every server anew about so often, in seconds; None not to poll. Off by default: lists are asked for when they are used.
        max_opening: how many servers are being asked at the same time.
        semantic: search by meaning as well as by words, with the extra `semantic`. A thread loads the model at the first search and
            embeds the tools, some hundred a second; until it is done, and if it cannot be done, words alone count.
        memory: where answers are remembered, as for `outrider.cache.memory.open_memory`; None for the user's cache folder.
    """

    client: ClientOptions = field(default_factory=ClientOptions)
    floor_s: float = 600.0
    idle_s: float = 300.0
    watch: bool = True
    poll_s: float | None = None
    max_opening: int = 64
    semantic: bool = False
    memory: str | Path | None = None

    def policy(self) -> Policy:
        """The freshness policy these options mean."""
        return Policy(floor_ms=int(self.floor_s * 1000))


class Catalog:
    """Many servers as one. Use it as `async with Catalog(…) as catalog` or `async with Catalog.open() as catalog`.

    Entering returns at once with what is remembered; what is not fresh is asked for in the background. `snapshot` is always there and
    never half updated; `ready` waits for what is still under way.

    Args:
        servers: from code: by name, a URL, a command as a list, a target, or a mapping as in a configuration file; or ready configs.
        options: limits, freshness, memory.
        memory: a memory to share, which is then not closed here; None to open the one that the options name.
        configuration: servers from configuration files, as `outrider.catalog.sources.load` gives them.
        lock: what was approved, as `outrider.catalog.lock.Lock.load` reads it; None to take everything as it comes.
        on_drift: what is done about what differs from it: "block" withholds it, "warn" warns, "allow" only notes it in `ServerView.drifts`.
        on_drift_call: the same for calls, for which the server is asked for its tools once more; None for `on_drift`.
    """

    def __init__(
        self,
        servers: Mapping[str, str | Sequence[str] | Target | Mapping[str, Any]] | Iterable[ServerConfig] = (),
        *,
        options: CatalogOptions | None = None,
        memory: Memory | None = None,
        configuration: Configuration | None = None,
        lock: Lock | None = None,
        on_drift: Action = "block",
        on_drift_call: Action | None = None,
    ) -> None:
        self.options = options or CatalogOptions()
        self.configuration = configuration
        self._where = here()
        self._enforcement: Enforcement | None = None
        if lock is not None:
            from outrider.catalog.lock.enforcement import Enforcement

            self._enforcement = Enforcement(lock, on_drift, on_drift_call or on_drift)
        self._configs: dict[str, ServerConfig] = {}
        if configuration is not None:
            for entry in configuration.entries:
                self._add_config(config_of(entry, self._where))
        if isinstance(servers, Mapping):
            servers = configs_from_code(servers, self._where)
        for config in servers:
            self._add_config(config)
        self._given_memory = memory
        self._memory: Memory | None = None
        self._members: dict[str, Member] = {}
        self._snapshot = Snapshot(0, ())
        self._generation = 0
        self._is_dirty = False
        self._watchers: list[Watcher] = []
        self._changed = asyncio.Event()
        self._index: ToolIndex | None = None
        self._embedding: BackgroundEmbedding | None = None
        self._indexed: dict[str, ServerView] = {}
        self._gate = asyncio.Semaphore(self.options.max_opening)
        self._is_open = False
        self._conversations: dict[str, tuple[dict[str, Any], Conversation]] = {}

    @classmethod
    def open(
        cls,
        *,
        config_files: Sequence[str] = (),
        targets: Sequence[str | Sequence[str]] = (),
        options: CatalogOptions | None = None,
        memory: Memory | None = None,
        lock: Lock | None = None,
        on_drift: Action = "block",
    ) -> Catalog:
        """The catalog of everything that is configured for the user and the project.

        Args:
            config_files: read these instead of looking for the clients' files.
            targets: only these servers: keys, names, URLs, commands or files.
            options: limits, freshness, memory.
            memory: a memory to share.
            lock: what was approved, or None.
            on_drift: what is done about what differs from it: "block", "warn" or "allow".

        A file or entry that cannot be used is told in `catalog.configuration` and costs nothing else.
        """
        configuration = load(config_files=config_files, targets=targets)
        return cls(configuration=configuration, options=options, memory=memory, lock=lock, on_drift=on_drift)

    def _add_config(self, config: ServerConfig) -> None:
        if config.key in self._configs:
            raise ConfigError(
                f"there are two servers with the key {config.key!r}", hint="give one of them another name"
            )
        self._configs[config.key] = config

    # -- life ----------------------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Catalog:
        """Publish what is remembered, and begin to ask for the rest."""
        self._memory = self._given_memory or open_memory(self.options.memory, policy=self.options.policy())
        self._is_open = True
        try:
            for config in self._configs.values():
                self._members[config.key] = self._member(config)
            await self._start(self._members.values())
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; see `close`."""
        await self.close()

    async def close(self) -> None:
        """End every process, connection and task of every server, all at the same time. Any number of times."""
        self._is_open = False
        if self._embedding is not None:
            await self._embedding.close()
        members, self._members = list(self._members.values()), {}
        await asyncio.gather(*(member.close() for member in members), return_exceptions=True)
        memory, self._memory = self._memory, None
        if memory is not None and memory is not self._given_memory:
            await memory.close()

    def _member(self, config: ServerConfig) -> Member:
        assert self._memory is not None
        return Member(
            config,
            self.options.client,
            self._memory,
            gate=self._gate,
            idle_s=self.options.idle_s,
            watch=self.options.watch,
            poll_s=self.options.poll_s,
            publish=self._published,
            policy=self._policy(config),
        )

    def _policy(self, config: ServerConfig) -> ServerPolicy | None:
        if self._enforcement is None:
            return None
        from outrider.catalog.lock.enforcement import ServerPolicy
        from outrider.catalog.lock.pins import Portable

        return ServerPolicy(
            self._enforcement,
            config.key,
            target=config.target,
            portable=lambda: Portable(self._where.home, config.resolve().redact),
            offers=config.offers,
        )

    async def _start(self, members: Iterable[Member]) -> None:
        """Recall everything first: it is quick, and readers then have something; then ask for what is not fresh."""
        members = list(members)
        fresh = await asyncio.gather(*(member.recall() for member in members))
        self._is_dirty = True
        if not self.options.client.offline:
            for member, is_fresh in zip(members, fresh, strict=True):
                if not is_fresh:
                    member.refresh_soon()

    def _published(self, _: ServerView) -> None:
        self._is_dirty = True
        self._changed.set()
        for watcher in self._watchers:
            watcher(self.snapshot)

    # -- reading -------------------------------------------------------------------------------------------------------------------

    @property
    def snapshot(self) -> Snapshot:
        """The catalog as it is now; the object never changes."""
        if self._is_dirty:
            self._is_dirty = False
            self._generation += 1
            self._snapshot = Snapshot(self._generation, (member.view for member in self._members.values()))
        return self._snapshot

    @property
    def tools(self) -> tuple[CatalogTool, ...]:
        """All tools as known now, by server key and name."""
        return self.snapshot.tools

    @property
    def servers(self) -> Mapping[str, ServerView]:
        """All servers as known now, by key."""
        return self.snapshot.servers

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Call `watcher` with each new snapshot; it must not block. Returns a function that ends this."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher) if watcher in self._watchers else None

    async def ready(self, timeout_s: float | None = None, *, servers: Iterable[str] | None = None) -> Snapshot:
        """Wait until no server is pending, or the time is over; which of the two, the snapshot's `pending` says.

        Args:
            timeout_s: how long to wait, in seconds; None for as long as the servers' own limits allow.
            servers: keys of the servers to wait for; None for all.
        """
        wanted = set(servers) if servers is not None else None
        try:
            async with asyncio.timeout(timeout_s):
                while any(wanted is None or key in wanted for key in self.snapshot.pending):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass
        return self.snapshot

    async def refresh(self, servers: Iterable[str] | None = None) -> Snapshot:
        """Ask servers anew, whatever is remembered and whenever they would be tried next; wait for all of them.

        Args:
            servers: their keys; None for all.
        """
        members = list(self._members.values()) if servers is None else [self._require_member(key) for key in servers]
        await asyncio.gather(*(member.refresh_soon(force=True) for member in members))
        return self.snapshot

    def pinned(self) -> Lock:
        """What the servers that have answered offer now, as a lock file keeps it; of a catalog without a lock, since one withholds."""
        from outrider.catalog.lock import Lock, Portable, pin_server

        servers = {}
        for key, view in self.servers.items():
            if view.report is not None and view.failure is None:
                config = self._configs[key]
                portable = Portable(self._where.home, config.resolve().redact)
                servers[key] = pin_server(view.report, target=config.target, portable=portable, offers=config.offers)
        return Lock(servers)

    # -- searching -----------------------------------------------------------------------------------------------------------------

    def search(
        self, query: str | Sequence[str], *, limit: int = 10, servers: Iterable[str] | None = None, **how: Any
    ) -> SearchResult:
        """Find tools, as known now, best first, each with the reason why.

        Args:
            query: what is wanted: names, a description, a whole task; or several queries.
            limit: how many hits at the most.
            servers: only tools of these servers, by key.
            how: further arguments of `ToolIndex.search`.
        """
        return self._up_to_date_index().search(
            query, limit=limit, servers=None if servers is None else frozenset(servers), **how
        )

    def _up_to_date_index(self) -> ToolIndex:
        """The index for the present snapshot: only servers whose tools changed are indexed again."""
        if self._index is None:
            from outrider.catalog.search import ToolIndex

            self._index = ToolIndex()
            if self.options.semantic:
                from outrider.catalog.embedding import BackgroundEmbedding

                self._embedding = BackgroundEmbedding(self._index)
        views, is_changed = self.snapshot.servers, False
        for key in self._indexed.keys() - views.keys():
            self._index.remove_server(key)
            del self._indexed[key]
        for key, view in views.items():
            known = self._indexed.get(key)
            if known is None or known.tools is not view.tools or known.instructions != view.instructions:
                self._index.replace_server(key, (_document(view, tool) for tool in view.tools))
                self._indexed[key] = view
                is_changed = True
        if is_changed and self._embedding is not None:
            self._embedding.catch_up()
        return self._index

    async def find(
        self, query: str | Sequence[str], *, limit: int = 10, wait_s: float = _DEFAULT_WAIT_S, **how: Any
    ) -> tuple[SearchResult, Snapshot]:
        """Like `search`, after waiting a bounded time for servers that are still connecting, and for tools that are still being embedded.

        Returns:
            The result, and the snapshot it was found in, whose `pending` and `failed` say which servers could not be considered.
        """
        started = time.monotonic()
        snapshot = await self.ready(wait_s)
        self._up_to_date_index()
        if self._embedding is not None:
            await self._embedding.ready(max(0.0, wait_s - (time.monotonic() - started)))
        return self.search(query, limit=limit, **how), snapshot

    # -- using ---------------------------------------------------------------------------------------------------------------------

    @overload
    async def call(
        self,
        tool: str | ToolRef,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout_s: float | None = None,
        meta: Mapping[str, Any] | None = None,
        on_progress: ProgressCallback | None = None,
        on_task: TaskCallback | None = None,
    ) -> ToolResult: ...

    @overload
    async def call(self, tool: Mapping[str, Any] | list[Any]) -> list[dict[str, Any]]: ...

    async def call(
        self,
        tool: str | ToolRef | Mapping[str, Any] | list[Any],
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout_s: float | None = None,
        meta: Mapping[str, Any] | None = None,
        on_progress: ProgressCallback | None = None,
        on_task: TaskCallback | None = None,
    ) -> ToolResult | list[dict[str, Any]]:
        """Call a tool by its shown name, its unique bare name, or its reference; its server is started if need be.

        A model's own message or tool call, in the shape of a vendor that was given tools with `tools_for`, is taken too: then the answer is
        the messages to append, as from `answer`.

        Raises:
            UnknownTool, AmbiguousTool: the name means none, or several.
            NotApproved: it differs from what the lock file says.
            OutriderError: what the call itself raises.
        """
        if not isinstance(tool, str | ToolRef):
            return await self._answer_whichever(tool)
        found = await self.resolve(tool)
        member = self._require_member(found.id.server)
        await member.require_approved(found.id.name)
        return await member.use(
            lambda client: client.call_tool(
                found.id.name, arguments, timeout_s=timeout_s, meta=meta, on_progress=on_progress, on_task=on_task
            )
        )

    async def _answer_whichever(self, message: Any) -> list[dict[str, Any]]:
        """Answer a model's message in the shape of whichever vendor reads calls in it."""
        for _, conversation in self._conversations.values():
            if conversation.calls(message):
                return await conversation.answer(message)
        if not self._conversations:
            raise LocalProtocolError("no model was given tools", hint="call tools_for first, and send what it returns")
        return []

    async def resolve(self, tool: str | ToolRef) -> CatalogTool:
        """The tool that a name means. An unknown one is looked for again after servers that are still pending have answered.

        Raises:
            UnknownTool, AmbiguousTool: the name means none, or several.
            NotApproved: the lock file withholds it.
        """
        try:
            return self.snapshot.resolve(tool)
        except UnknownTool:
            ref = tool if isinstance(tool, ToolRef) else ToolRef(*tool.partition("/")[::2])
            server = ref.server
            self._refuse_withheld(server, "tool", ref.name)
            if server in self._members:
                # The list may have changed since it was read. Spec: 2026-07-28 server/utilities/caching#freshness-calculation (MAY)
                await self.refresh([server])
            elif self.snapshot.pending:
                await self.ready(_DEFAULT_WAIT_S)
            self._refuse_withheld(server, "tool", ref.name)
            return self.snapshot.resolve(tool)

    def _refuse_withheld(self, server: str, kind: str, identity: str) -> None:
        policy = self._members[server].policy if server in self._members else None
        if policy is not None:
            policy.refuse(policy.drift_of(kind, identity))

    async def read_resource(self, server: str, uri: str, *, timeout_s: float | None = None) -> ResourceResult:
        """Read a resource of a server, by its key."""
        self._refuse_withheld(server, "resource", uri)
        return await self._require_member(server).use(lambda client: client.read_resource(uri, timeout_s=timeout_s))

    async def get_prompt(
        self, server: str, name: str, arguments: Mapping[str, str] | None = None, *, timeout_s: float | None = None
    ) -> PromptResult:
        """Fill in a prompt of a server, by its key."""
        self._refuse_withheld(server, "prompt", name)
        return await self._require_member(server).use(
            lambda client: client.get_prompt(name, arguments, timeout_s=timeout_s)
        )

    # -- for a model ---------------------------------------------------------------------------------------------------------------

    def conversation(self, vendor: str, **how: Any) -> Conversation:
        """Tools for one conversation with one model: what to send, and what to do with its calls.

        Args:
            vendor: "openai" (and every compatible endpoint), "openai-responses", "anthropic", "gemini" or "mistral".
            how: further arguments of `Conversation`: mode, context_tokens, guards, ….
        """
        from outrider.catalog.conversation import Conversation

        return Conversation(self, vendor, **how)

    def tools_for(self, vendor: str, **how: Any) -> list[dict[str, Any]]:
        """Exactly what to send to a model as its tools; `answer` then takes the model's message.

        A shorthand for programs with a single conversation per vendor: the first call opens it, further ones with the same arguments go
        on with it. Everybody else uses `conversation`.
        """
        known = self._conversations.get(vendor)
        if known is None or known[0] != how:
            known = self._conversations[vendor] = (how, self.conversation(vendor, **how))
        return known[1].tools

    async def answer(self, vendor: str, message: Any) -> list[dict[str, Any]]:
        """Make the calls of a model's message and give back the messages to append; [] if it calls nothing.

        Raises:
            LocalProtocolError: the model was not given any tools with `tools_for`.
        """
        known = self._conversations.get(vendor)
        if known is None:
            raise LocalProtocolError(
                f"no tools were given to {vendor}", hint="call tools_for first, and send what it returns"
            )
        return await known[1].answer(message)

    # -- changing the set of servers -----------------------------------------------------------------------------------------------

    async def add(self, name: str, target: str | Sequence[str] | Target | Mapping[str, Any]) -> str:
        """Add a server while the catalog is open; its key.

        Raises:
            ConfigError: it cannot be used, or its key is taken.
        """
        (config,) = configs_from_code({name: target}, self._where)
        self._add_config(config)
        member = self._members[config.key] = self._member(config)
        await self._start([member])
        self._published(member.view)
        return config.key

    async def remove(self, key: str) -> None:
        """Remove a server and end everything it has running.

        Raises:
            ConfigError: there is none of that key.
        """
        member = self._require_member(key)
        del self._members[key], self._configs[key]
        self._published(member.view)
        await member.close()

    async def reconfigure(self, name: str, target: str | Sequence[str] | Target | Mapping[str, Any]) -> str:
        """Put another target in a server's place; its key. What was remembered of the old one is not taken for the new one's."""
        (config,) = configs_from_code({name: target}, self._where)
        if config.key in self._members:
            await self.remove(config.key)
        return await self.add(name, target)

    def _require_member(self, key: str) -> Member:
        member = self._members.get(key)
        if member is None:
            import difflib

            near = difflib.get_close_matches(key, self._members, 3)
            known = ", ".join(near or sorted(self._members)[:10]) or "none"
            raise ConfigError(f"there is no server {key[:100]!r}", hint=f"known servers: {known}")
        return member


def _document(view: ServerView, tool: Any) -> ToolDocument:
    from outrider.catalog.search import ToolDocument

    identity = view.identity
    return ToolDocument(
        server=view.key,
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema,
        server_title=(identity.title or identity.name) if identity is not None else "",
        server_description=view.instructions,
    )
