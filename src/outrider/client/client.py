"""The client: the same calls for both eras and every transport.

Decided here: what each call asks for, how the server's own questions are answered on the way, and how tool parameters come to be mirrored
into headers. Not here: when the server is opened and signed in to (`keeping`), which requests are sent again and how long each may take
(`sending`), what the two eras put on the wire (`session`, `legacy_session`), how a list is read through its pages (`listing`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec import Raw

from outrider.cache.answers import Peer
from outrider.cache.memory import Memory
from outrider.client.channel import Channel, call_back
from outrider.client.keeping import MAX_SIGN_INS, AnotherIdentity, KeptSession
from outrider.client.listing import CutOff, Gathering, Listing
from outrider.client.opening import Trail
from outrider.client.remembering import Remembering
from outrider.client.sending import Request, send
from outrider.client.session import Change, ProgressCallback, Session, Subscription, Wanted
from outrider.client.target import DEFAULTS, ClientOptions, StdioTarget, Target, parse_target
from outrider.client.tasks import TaskCallback, Tasks
from outrider.errors import (
    HeaderMismatch,
    LocalProtocolError,
    MissingClientCapability,
    OutriderError,
    RemoteProtocolError,
    TimedOut,
)
from outrider.protocol.headers import ANNOTATION, HeaderParam, header_params, param_headers
from outrider.protocol.model import (
    PROMPTS,
    RESOURCE_TEMPLATES,
    RESOURCES,
    TOOLS,
    Item,
    ListKind,
    Prompt,
    Quarantined,
    Resource,
    ResourceTemplate,
    ServerDescription,
    Tool,
    read_description,
)
from outrider.protocol.results import Completion, InputRequired, PromptResult, ResourceResult, ToolResult, read_result
from outrider.protocol.schema_findings import SchemaFinding
from outrider.protocol.tasks import Task, declares
from outrider.protocol.versions import Era

__all__ = ["Client", "connect"]

T = TypeVar("T", bound=Item)

_LOOKED_THROUGH_AT_ONCE: Final = 64


def connect(
    target: str | Sequence[str] | Target,
    *,
    headers: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    options: ClientOptions | None = None,
) -> Client:
    """Prepare a client for one server: `async with outrider.connect(…) as client`.

    Args:
        target: a URL, a command as a list or a string, or a ready target.
        headers: sent with every request, for URLs.
        env: variables for the process, for commands.
        cwd: the working directory, for commands.
        options: limits and identity.

    Raises:
        ConfigError: the target cannot be used; nothing was started.
    """
    return Client(parse_target(target, headers=headers, env=env, cwd=cwd), options or DEFAULTS)


class Client:
    """One server. Any number of tasks may use it at once; leaving its context ends everything it started.

    Every method raises `OutriderError` and nothing else for what a server does: `PeerError` when it answers an error, `TransportError`
    when no answer comes, `RemoteProtocolError` when the answer breaks the rules.

    With a `memory`, the client is opened only when something must be asked: what is remembered and fresh costs no process and no
    connection. Use `client.discover()` and the lists without entering the context, and `close` at the end.

    Args:
        target: where to.
        options: limits and identity.
        memory: where answers and the era are remembered; None to ask every time. It is not closed with the client.
        peer: whose answers these are, for the memory; None to take the target's own fingerprint and credentials.
        assume: the era to try first, known from elsewhere; corrected if it turns out wrong.

    Attributes:
        on_change: called with each `Change` the server announces; must not block.
        on_log: called with the params of each log message.
        tasks: for those who keep a task's identifier; `call_tool` needs it not.
    """

    def __init__(
        self,
        target: Target,
        options: ClientOptions,
        *,
        memory: Memory | None = None,
        peer: Peer | None = None,
        assume: Era | None = None,
    ) -> None:
        self.target = target
        self.options = options
        self.on_change: Callable[[Change], None] = lambda _: None
        self.on_log: Callable[[Mapping[str, Any]], None] = lambda _: None
        self._kept = KeptSession(
            target,
            options,
            memory=memory,
            peer=peer,
            assume=assume,
            on_change=lambda change: call_back(self.on_change, change),
            on_log=lambda params: call_back(self.on_log, params),
        )
        self._mirrored: dict[str, tuple[HeaderParam, ...]] = {}
        self.tasks = Tasks(self)

    # -- life ----------------------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Client:
        """Open the server: start the process or reach the URL, and find out the era.

        Raises:
            OutriderError: it cannot be opened; `trail` tells every step.
        """
        await self._kept.opened()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close; see `close`."""
        await self.close()

    async def close(self) -> None:
        """End sessions, streams and processes, also one that is just being opened; from any task, any number of times."""
        await self._kept.close()

    async def rest(self) -> None:
        """End the process or connection, as when it has been idle for long; the next request opens it again."""
        await self._kept.rest()

    @property
    def trail(self) -> Trail:
        """How the server was opened, last time."""
        return self._kept.trail

    @property
    def era(self) -> Era:
        """The era the server speaks."""
        return self._require_session().era

    @property
    def protocol_version(self) -> str:
        """The protocol version in use."""
        return self._require_session().version

    @property
    def server(self) -> ServerDescription:
        """What the server said of itself when it was opened."""
        description = self._require_session().description
        if description is None:  # pragma: no cover - only sessions with an assumed era have none
            raise LocalProtocolError("the server has not been asked yet; call discover()")
        return description

    @property
    def remembering(self) -> Remembering | None:
        """What is remembered of this server, or None without a memory."""
        return self._kept.remembering

    @property
    def channel(self) -> Channel | None:
        """What carries the session, or None when there is none."""
        return self._kept.current.channel if self._kept.current is not None else None

    def _require_session(self) -> Session:
        if self._kept.current is None:
            raise LocalProtocolError("the client is not open", hint="use it as `async with connect(…) as client`")
        return self._kept.current

    # -- requests ------------------------------------------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        timeout_s: float | None = None,
        is_safe: bool = False,
        headers: Mapping[str, str] | None = None,
        meta: Mapping[str, Any] | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> Raw:
        """Send any request; the named methods below are built on it.

        Args:
            method: the JSON-RPC method.
            params: its params without the protocol's own `_meta` fields.
            timeout_s: how long to wait, in seconds; None for the options' `request_timeout_s`.
            is_safe: the request changes nothing, so it may be sent a second time if the connection broke.
            headers: further HTTP headers.
            meta: further `_meta` keys, such as trace context.
            on_progress: called for each progress notification, each of which restarts the clock.

        Returns:
            The result's JSON bytes.
        """
        limit = self.options.request_timeout_s if timeout_s is None else timeout_s
        return await send(self._kept, Request(method, params, limit, is_safe, headers, meta, on_progress))

    async def _result(
        self, method: str, params: Mapping[str, Any], *, is_safe: bool, may_be_task: bool = False, **how: Any
    ) -> Any:
        """Make a call, and answer what the server asks back, until it has an answer of its own, or a task.

        Each round is a request by itself: a new id, the original params, the answers, and the state exactly as it came.

        Spec: 2026-07-28 basic/patterns/mrtr#client-requirements-basic-workflow (MUST)
        """
        asked: Mapping[str, Any] = params
        for _ in range(self.options.max_input_rounds + 1):
            answer = await self.request(method, asked, is_safe=is_safe, **how)
            result = read_result(method, answer, may_be_task=may_be_task)
            if not isinstance(result, InputRequired):
                return result
            asked = {**params, **await self._answers(method, result)}
        raise RemoteProtocolError(
            f"the server still asks for input after {self.options.max_input_rounds} rounds of {method}",
            rule="basic/patterns/mrtr",
        )

    async def _answers(self, method: str, interim: InputRequired) -> dict[str, Any]:
        """The members that a retry adds to the original params."""
        requests, state = interim.input_requests, interim.request_state
        answers = await self.options.inputs.answer_all(method, requests, state, self.target.label)
        added: dict[str, Any] = {"inputResponses": answers} if requests else {}
        if interim.request_state is not None:
            added["requestState"] = interim.request_state
        return added

    # -- the calls -----------------------------------------------------------------------------------------------------------------

    async def discover(self, *, timeout_s: float | None = None, refresh: bool = False) -> ServerDescription:
        """What the server is: `server/discover`, or for a legacy server what its handshake said.

        Args:
            timeout_s: how long to wait for the request, in seconds.
            refresh: ask even if a fresh answer is remembered.

        Spec: 2026-07-28 server/discover
        """
        if self._kept.remembering is None:
            session = await self._kept.opened()
            if session.era is Era.MODERN:
                session.description = read_description(await self._ask_discover(timeout_s))
            return self.server
        for _ in range(MAX_SIGN_INS):
            remembering = self._kept.remembering
            load = self._kept.as_same(remembering, lambda: self._described(timeout_s))
            try:
                return read_description((await remembering.discover(load, refresh=refresh)).value)
            except AnotherIdentity:
                pass
        return read_description(await self._described(timeout_s))

    async def _ask_discover(self, timeout_s: float | None) -> Raw:
        return await self.request("server/discover", {}, timeout_s=timeout_s, is_safe=True)

    async def _described(self, timeout_s: float | None) -> bytes:
        """The description's JSON, from the opening itself where that has just asked."""
        was_open = self._kept.current is not None
        session = await self._kept.opened()
        if session.era is Era.MODERN and was_open:
            return bytes(await self._ask_discover(timeout_s))
        description = session.description
        if description is None:  # pragma: no cover - opening always asks
            raise LocalProtocolError("the server has not described itself")
        return msgspec.json.encode(description.wire if session.era is Era.MODERN else description.as_discover_result())

    async def list_tools(self, *, timeout_s: float | None = None, refresh: bool = False) -> Listing[Tool]:
        """All tools, through all pages. Over modern HTTP, tools with an invalid `x-mcp-header` are left out with a warning.

        Args:
            timeout_s: how long the whole list may take, in seconds; None for the options' `list_timeout_s`.
            refresh: ask even if a fresh list is remembered.

        Spec: 2026-07-28 server/tools#listing-tools
        """
        listing: Listing[Tool] = await self._listing(TOOLS, timeout_s, refresh=refresh)
        if isinstance(self.target, StdioTarget) or await self._kept.known_era() is Era.LEGACY:
            return listing
        return self._with_mirrored_headers(listing)

    async def list_prompts(self, *, timeout_s: float | None = None, refresh: bool = False) -> Listing[Prompt]:
        """All prompts, through all pages; see `list_tools`."""
        return await self._listing(PROMPTS, timeout_s, refresh=refresh)

    async def list_resources(self, *, timeout_s: float | None = None, refresh: bool = False) -> Listing[Resource]:
        """All resources, through all pages; see `list_tools`."""
        return await self._listing(RESOURCES, timeout_s, refresh=refresh)

    async def list_resource_templates(
        self, *, timeout_s: float | None = None, refresh: bool = False
    ) -> Listing[ResourceTemplate]:
        """All resource templates, through all pages; see `list_tools`."""
        return await self._listing(RESOURCE_TEMPLATES, timeout_s, refresh=refresh)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout_s: float | None = None,
        meta: Mapping[str, Any] | None = None,
        on_progress: ProgressCallback | None = None,
        on_task: TaskCallback | None = None,
    ) -> ToolResult:
        """Call a tool. It is sent once: no failure makes it run twice.

        The one repetition is after -32020, with which a server refuses headers before it looks at the call: the tool list is read anew and
        the call made with the headers it now asks for.

        A server that answers with a task is asked for it until it is over. Whoever cancels this call cancels the task.

        Args:
            name: the tool's own name at this server.
            arguments: its arguments; None for none.
            timeout_s: how long to wait, in seconds; None for the options' `request_timeout_s`, and `task_timeout_s` for a task.
            meta: further `_meta` keys.
            on_progress: called for each progress notification; tasks send none.
            on_task: see `TaskCallback`.

        Raises:
            InputNeeded: the server wants input first.
            TaskCancelled: the call became a task, and that was cancelled.

        Spec: 2026-07-28 server/tools#calling-tools, basic/transports/streamable-http#client-behavior
        """
        answer = await self.start_tool(name, arguments, timeout_s=timeout_s, meta=meta, on_progress=on_progress)
        if isinstance(answer, ToolResult):
            return answer
        return await self.tasks.finish(answer, timeout_s=timeout_s, on_task=on_task)

    async def start_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout_s: float | None = None,
        meta: Mapping[str, Any] | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> ToolResult | Task:
        """Call a tool, and return with the first answer: a result, or a task to `client.tasks.wait` for. Options as for `call_tool`."""
        may_be_task = await self.takes_tasks()
        params = {"name": name, "arguments": dict(arguments or {})}
        headers = param_headers(self._mirrored.get(name, ()), params["arguments"])  # type: ignore[arg-type]

        async def call() -> ToolResult | Task:
            result = await self._result(
                "tools/call",
                params,
                is_safe=False,
                may_be_task=may_be_task,
                timeout_s=timeout_s,
                headers=headers,
                meta=meta,
                on_progress=on_progress,
            )
            return cast("ToolResult | Task", result)

        try:
            return await call()
        except MissingClientCapability as error:
            # Refused unread, for want of what this server did not announce when it was asked.
            if may_be_task or not declares(error.required) or not await self._takes_tasks_by_now():
                raise
            may_be_task = True
        except HeaderMismatch:
            await self.list_tools()
            headers = param_headers(self._mirrored.get(name, ()), params["arguments"])  # type: ignore[arg-type]
        try:
            return await call()
        except HeaderMismatch as error:
            error.hint = "the headers fit the tool's present schema; something on the way, such as a proxy, drops or rewrites them"
            raise

    async def takes_tasks(self) -> bool:
        """Whether both sides take tasks: the server announces the extension, and the options allow it."""
        session = await self._kept.opened()
        if session.description is None and session.era is Era.MODERN and self.options.tasks:
            # Opened from memory. That the server cannot be asked is no reason against a call.
            with suppress(OutriderError):
                session.description = await self.discover()
        return session.takes_tasks

    async def _takes_tasks_by_now(self) -> bool:
        description = await self.discover(refresh=True)
        session = await self._kept.opened()
        session.description = description
        return session.takes_tasks

    async def read_resource(self, uri: str, *, timeout_s: float | None = None) -> ResourceResult:
        """Read a resource. Spec: 2026-07-28 server/resources#reading-resources"""
        return cast(
            ResourceResult, await self._result("resources/read", {"uri": uri}, is_safe=True, timeout_s=timeout_s)
        )

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, timeout_s: float | None = None
    ) -> PromptResult:
        """Fill in a prompt. Spec: 2026-07-28 server/prompts#getting-a-prompt"""
        params: dict[str, Any] = {"name": name}
        if arguments:
            params["arguments"] = dict(arguments)
        return cast(PromptResult, await self._result("prompts/get", params, is_safe=True, timeout_s=timeout_s))

    async def complete(
        self,
        ref: Mapping[str, str],
        argument: str,
        value: str,
        *,
        context: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Completion:
        """Ask for completions of one argument.

        Args:
            ref: `{"type": "ref/prompt", "name": …}` or `{"type": "ref/resource", "uri": …}`.
            argument: the argument's name.
            value: what has been typed so far.
            context: arguments that are already settled.
            timeout_s: how long to wait, in seconds.

        Spec: 2026-07-28 server/utilities/completion
        """
        params: dict[str, Any] = {"ref": dict(ref), "argument": {"name": argument, "value": value}}
        if context:
            params["context"] = {"arguments": dict(context)}
        return cast(Completion, await self._result("completion/complete", params, is_safe=True, timeout_s=timeout_s))

    @asynccontextmanager
    async def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resources: bool = False,
        uris: Sequence[str] = (),
        task_ids: Sequence[str] = (),
        timeout_s: float | None = None,
    ) -> AsyncIterator[Subscription]:
        """Listen for changes: `async with client.listen(tools=True) as changes: async for change in changes: …`.

        In the modern era this is one `subscriptions/listen` stream; in the legacy era `resources/subscribe` and the notifications the
        server sends of its own accord. `changes.granted` says what the server agreed to.

        Args:
            tools: changes of the list of tools.
            prompts: changes of the list of prompts.
            resources: changes of the list of resources.
            uris: updates of these resources.
            task_ids: news of these tasks, from servers that send them; `client.tasks.get` tells how one stands.
            timeout_s: how long to wait for the server's agreement, in seconds; the stream itself has no limit.

        Spec: 2026-07-28 basic/patterns/subscriptions
        """
        session = await self._kept.opened()
        limit = self.options.request_timeout_s if timeout_s is None else timeout_s

        async def subscribed() -> Subscription:
            try:
                async with asyncio.timeout(limit):
                    return await session.subscribe(Wanted(tools, prompts, resources, tuple(uris), tuple(task_ids)))
            except TimeoutError as error:
                raise TimedOut(
                    f"the server did not agree to a subscription within {limit:g} s", timeout_s=limit
                ) from error

        subscription = await self._kept.with_sign_in(subscribed)
        async with subscription:
            yield subscription

    # -- lists ---------------------------------------------------------------------------------------------------------------------

    async def _listing(self, kind: ListKind, timeout_s: float | None, *, refresh: bool) -> Listing[Any]:
        limit = self.options.list_timeout_s if timeout_s is None else timeout_s
        gathering = Gathering(kind, self.options)

        async def ask(cursor: str | None) -> bytes:
            params = {} if cursor is None else {"cursor": cursor}
            return bytes(await self.request(kind.method, params, timeout_s=limit, is_safe=True))

        try:
            async with asyncio.timeout(limit):
                if self._kept.remembering is None:
                    await gathering.read_all(ask)
                    return gathering.listing()
                version = await self._kept.remembering.known_version() or (await self._kept.opened()).version
                remembering = self._kept.remembering
                reading = self._kept.as_same(remembering, gathering.reading(ask))
                capabilities = self.options.declared_capabilities()
                recalled = await remembering.list(kind.method, reading, version, capabilities, refresh=refresh)
                return gathering.recalled(recalled)
        except AnotherIdentity:
            return await self._listing(kind, timeout_s, refresh=refresh)
        except CutOff:
            pass
        except TimeoutError as error:
            session = self._kept.current
            strays = session.channel.strays() if session is not None else ""
            message = f"{kind.method} was not complete within {limit:g} s{strays}"
            if not gathering.pages:
                raise TimedOut(message, phase="list", timeout_s=limit, hint="allow more time for lists") from error
            gathering.cut_off(f"{message}; {len(gathering.items)} {kind.label} kept")
        return gathering.listing()

    def _with_mirrored_headers(self, listing: Listing[Tool]) -> Listing[Tool]:
        """Learn which parameters each tool wants mirrored, and leave out the tools that ask for it wrongly.

        Spec: 2026-07-28 server/tools#x-mcp-header (MUST exclude, SHOULD warn)
        """
        mirrored: dict[str, tuple[HeaderParam, ...]] = {}
        excluded: list[Quarantined] = []
        for tool in _mentioning(ANNOTATION.encode(), listing.items):
            found = header_params(tool.input_schema)
            if isinstance(found, SchemaFinding):
                excluded.append(Quarantined(tool.name, f"x-mcp-header at {found.where} {found.message}"))
            elif found:
                mirrored[tool.name] = found
        self._mirrored = mirrored
        if not excluded:
            return listing
        names = {quarantined.item for quarantined in excluded}
        items = tuple(tool for tool in listing.items if tool.name not in names)
        return msgspec.structs.replace(listing, items=items, quarantined=(*listing.quarantined, *excluded))


def _mentioning(text: bytes, tools: Sequence[Tool]) -> Iterator[Tool]:
    """The tools in whose JSON `text` stands: few, so that many are looked through at once."""
    for start in range(0, len(tools), _LOOKED_THROUGH_AT_ONCE):
        some = tools[start : start + _LOOKED_THROUGH_AT_ONCE]
        if text in b"\n".join([tool.wire for tool in some]):
            yield from (tool for tool in some if text in bytes(tool.wire))
