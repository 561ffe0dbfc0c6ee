"""`Server`: what an author writes against.

Decided here: what can be registered, with which options. Not here: what a function or definition becomes on the wire (`definitions`), which
request is valid (`dispatch`), lists and capabilities (`registry`), running functions (`running`), and transports (`http`, `stdio`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, overload

from msgspec.structs import replace

from outrider.protocol.model import PROMPTS, RESOURCE_TEMPLATES, RESOURCES, TOOLS
from outrider.protocol.versions import LEGACY_VERSIONS, MODERN_VERSIONS
from outrider.server.context import Context
from outrider.server.definitions import (
    prompt_of_definition,
    prompt_of_function,
    resource_of_definition,
    resource_of_function,
    tool_of_definition,
    tool_of_function,
)
from outrider.server.dispatch import Dispatcher
from outrider.server.registry import Completer, Prompt, Registry, ResourceTemplate, TaskSupport, Tool, Visibility
from outrider.server.running import Runner
from outrider.server.state import StateSeal
from outrider.server.subscriptions import Subscriptions
from outrider.server.tasks import TaskOptions, Tasks

if TYPE_CHECKING:
    from outrider.server.http import Authenticate, Endpoint, HttpOptions

__all__ = ["Server", "ServerOptions"]

_F = TypeVar("_F", bound=Callable[..., Any])
STATE_KEY_VARIABLE: Final = "OUTRIDER_STATE_KEY"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """How a server behaves, apart from what it offers.

    Attributes:
        identity: further members of the server's Implementation: `title`, `description`, `websiteUrl`, `icons`, in wire names.
        identify: whether results name the server in their `_meta`.
        extensions: identifier to settings of the extensions that the author implements.
        offers: kinds ("tools", "prompts", "resources", "completions", "logging") to declare although nothing of the kind is
            registered yet, for a server whose lists fill later.
        page_size: items per page of a list.
        list_ttl_ms: how long clients may take a list for fresh, in milliseconds. A listening client hears of changes at once.
        discover_ttl_ms: the same for the answer to `server/discover`.
        state_keys: secrets (16 bytes or more) that seal `requestState`, the newest first. Processes behind one balancer need the
            same. When empty, `OUTRIDER_STATE_KEY` is read, and without that every process draws its own.
        state_ttl_s: how long a client may take over its answers, in seconds.
        request_timeout_s: the longest that a function may take, in seconds; None for no limit.
        max_concurrent: requests that run functions at the same time; more are refused as busy.
        max_listeners: open listen streams and legacy sessions; more are refused as busy.
        worker_threads: threads for synchronous functions.
        expose_errors: whether the text of an unexpected exception reaches the client. Off, because it may name internals.
        tasks: how tasks are kept and run; see `TaskOptions`.
    """

    identity: Mapping[str, Any] | None = None
    identify: bool = True
    extensions: Mapping[str, Mapping[str, Any]] | None = None
    offers: Iterable[str] = ()
    page_size: int = 500
    list_ttl_ms: int = 300_000
    discover_ttl_ms: int = 300_000
    state_keys: Sequence[str | bytes] = ()
    state_ttl_s: float = 3600.0
    request_timeout_s: float | None = 300.0
    max_concurrent: int = 1000
    max_listeners: int = 20_000
    worker_threads: int = 40
    expose_errors: bool = False
    tasks: TaskOptions = field(default_factory=TaskOptions)


class Server:
    """An MCP server.

    Register typed functions, then serve: `run()` speaks stdio, `asgi()` is an app for any ASGI server or framework. Both may be used,
    several times, and everything may be registered and removed while serving.
    """

    def __init__(
        self, name: str, *, version: str, instructions: str | None = None, options: ServerOptions | None = None
    ) -> None:
        """Make a server that offers nothing yet.

        Args:
            name: the server's name, for people and logs.
            version: the server's own version.
            instructions: guidance for a model on how to use the server.
            options: everything else; see `ServerOptions`.

        Raises:
            ValueError: no name or version, or an option that breaks a rule of the specification.
        """
        if not name or not version:
            raise ValueError("a server needs a name and a version")
        self.options = options = options or ServerOptions()
        if options.page_size < 1 or options.list_ttl_ms < 0 or options.discover_ttl_ms < 0:
            raise ValueError("page_size is at least 1; a time to live is at least 0 ms")
        self.registry = Registry(
            identity={"name": name, "version": version, **(options.identity or {})},
            instructions=instructions,
            identify=options.identify,
            offers=options.offers,
            extensions=options.extensions or {},
            page_size=options.page_size,
            list_ttl_ms=options.list_ttl_ms,
            discover_ttl_ms=options.discover_ttl_ms,
        )
        self.subscriptions = Subscriptions(options.max_listeners)
        self.registry.changed = self.subscriptions.list_changed
        self._methods: dict[str, Callable[..., Any]] = {}
        keys = options.state_keys or ((key,) if (key := os.environ.get(STATE_KEY_VARIABLE)) else None)
        seal = StateSeal(keys, ttl_s=options.state_ttl_s)
        self.runner = Runner(
            self.registry,
            seal,
            max_concurrent=options.max_concurrent,
            request_timeout_s=options.request_timeout_s,
            worker_threads=options.worker_threads,
            expose_errors=options.expose_errors,
        )
        self.tasks = Tasks(options.tasks, self.registry, seal, expose_errors=options.expose_errors)
        self.runner.perform_as_task = self.tasks.call

    @property
    def name(self) -> str:
        """The server's name."""
        name: str = self.registry.identity["name"]
        return name

    # Registration. A decorator's options are what one item has on the wire; bundling them would only hide them.

    @overload
    def tool(self, function: _F, /) -> _F: ...
    @overload
    def tool(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: Mapping[str, Any] | None = None,
        extra: Mapping[str, Any] | None = None,
        inline: bool = False,
        visible_to: Visibility | None = None,
        timeout_s: float | None = None,
        task: TaskSupport | bool | Literal["required"] = False,
        replace: bool = False,
    ) -> Callable[[_F], _F]: ...
    def tool(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: Mapping[str, Any] | None = None,
        extra: Mapping[str, Any] | None = None,
        inline: bool = False,
        visible_to: Visibility | None = None,
        timeout_s: float | None = None,
        task: TaskSupport | bool | Literal["required"] = False,
        replace: bool = False,
    ) -> Any:
        """Register a function as a tool; a decorator with or without options, or a call.

        The parameters become the input schema, a return annotation with a structure the output schema, the docstring the description. A
        parameter annotated `Context` gets the request's context.

        Args:
            function: the function, sync or async.
            name: the tool's name; the function's by default. Letters, digits, `_`, `-` and `.`, 1 to 128 characters.
            title: a name for people.
            description: what the tool does, for the model.
            annotations: behaviour hints in wire names, such as `{"readOnlyHint": True}`.
            extra: further members of the definition: `icons`, `_meta`, …
            inline: run a sync function on the event loop instead of a worker thread. Only for one that never blocks.
            visible_to: who sees and may call it. Makes every list of tools private.
            timeout_s: a time limit of its own, in seconds.
            task: whether it runs as a task for clients that take tasks: True, "required" to refuse all others, or a `TaskSupport`.
            replace: take the place of a tool with this name.

        Raises:
            TypeError: a parameter has no JSON form. ValueError: the name is not allowed or taken.
        """
        if function is None:
            return partial(
                self.tool,
                name=name,
                title=title,
                description=description,
                annotations=annotations,
                extra=extra,
                inline=inline,
                visible_to=visible_to,
                timeout_s=timeout_s,
                task=task,
                replace=replace,
            )
        tool = tool_of_function(
            function,
            name=name,
            title=title,
            description=description,
            annotations=annotations,
            extra=extra,
            inline=inline,
            visible_to=visible_to,
            timeout_s=timeout_s,
            task=TaskSupport.of(task),
        )
        self._add_tool(tool, replace=replace)
        return function

    def add_tool_definition(
        self,
        definition: Mapping[str, Any],
        call: Callable[[dict[str, Any], Context], Any],
        *,
        validate: bool = True,
        visible_to: Visibility | None = None,
        timeout_s: float | None = None,
        task: TaskSupport | bool | Literal["required"] = False,
        replace: bool = False,
    ) -> None:
        """Register a tool whose definition is written by hand or comes from elsewhere; all its members are kept as they are.

        Args:
            definition: the tool in wire names, with `name` and `inputSchema`.
            call: called with the arguments object and the context; sync functions run in a worker thread.
            validate: whether arguments are checked against `inputSchema` before the call.
            visible_to: as for `tool`.
            timeout_s: as for `tool`.
            task: as for `tool`.
            replace: as for `tool`.

        Raises:
            ValueError: the name or a schema is not allowed, or the name is taken.
        """
        support = TaskSupport.of(task)
        tool = tool_of_definition(
            definition, call, validate=validate, visible_to=visible_to, timeout_s=timeout_s, task=support
        )
        self._add_tool(tool, replace=replace)

    def _add_tool(self, tool: Tool, *, replace: bool) -> None:
        if tool.task is not None:
            # An author who speaks the extension on their own keeps their methods.
            for method, serve in self.tasks.methods.items():
                self._methods.setdefault(method, serve)
        self.registry.add(tool, replace=replace)

    def remove_tool(self, name: str) -> bool:
        """Take a tool away; False when there was none of that name."""
        return self.registry.remove(TOOLS, name)

    def prompt(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        extra: Mapping[str, Any] | None = None,
        inline: bool = False,
        visible_to: Visibility | None = None,
        replace: bool = False,
    ) -> Any:
        """Register a function as a prompt; a decorator with or without options, or a call.

        Its parameters are the prompt's arguments. They arrive as text and are converted to their annotated types. It returns a text,
        messages, or a `PromptReply`. Options as for `tool`.
        """
        if function is None:
            return partial(
                self.prompt,
                name=name,
                title=title,
                description=description,
                extra=extra,
                inline=inline,
                visible_to=visible_to,
                replace=replace,
            )
        prompt = prompt_of_function(
            function,
            name=name,
            title=title,
            description=description,
            extra=extra,
            inline=inline,
            visible_to=visible_to,
        )
        self.registry.add(prompt, replace=replace)
        return function

    def add_prompt_definition(
        self,
        definition: Mapping[str, Any],
        get: Callable[[dict[str, str], Context], Any],
        *,
        visible_to: Visibility | None = None,
        replace: bool = False,
    ) -> None:
        """Register a prompt whose definition is written by hand or comes from elsewhere; all its members are kept as they are.

        Args:
            definition: the prompt in wire names, with `name`.
            get: called with the arguments and the context; returns what a prompt's function may return. It checks the arguments itself.
            visible_to: as for `tool`.
            replace: as for `tool`.
        """
        self.registry.add(prompt_of_definition(definition, get, visible_to=visible_to), replace=replace)

    def remove_prompt(self, name: str) -> bool:
        """Take a prompt away; False when there was none of that name."""
        return self.registry.remove(PROMPTS, name)

    def resource(
        self,
        uri: str,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        extra: Mapping[str, Any] | None = None,
        ttl_ms: int = 0,
        scope: Literal["public", "private"] = "private",
        subscribable: bool = False,
        inline: bool = False,
        visible_to: Visibility | None = None,
        replace: bool = False,
    ) -> Any:
        """Register a function as a resource, or, when the URI has `{variables}`, as a resource template; a decorator or a call.

        Args:
            uri: the URI, or a template whose variables are the function's parameters; see `UriTemplate`.
            function: returns text, bytes, any JSON value, `Contents` or a `ResourceReply`.
            name: a name for lists; the function's by default.
            title: a name for people.
            description: what it is; the docstring by default.
            mime_type: the type of the contents.
            extra: further members of the definition: `size`, `annotations`, `icons`, …
            ttl_ms: how long clients may take the contents for fresh, in milliseconds.
            scope: "public" promises that the contents are the same for every caller.
            subscribable: whether `resource_updated` will be called when the contents change.
            inline: as for `tool`.
            visible_to: as for `tool`.
            replace: as for `tool`.

        Raises:
            ValueError: the URI is not absolute, the template is not supported, or the URI is taken.
            TypeError: parameters and variables differ.
        """
        if function is None:
            return partial(
                self.resource,
                uri,
                name=name,
                title=title,
                description=description,
                mime_type=mime_type,
                extra=extra,
                ttl_ms=ttl_ms,
                scope=scope,
                subscribable=subscribable,
                inline=inline,
                visible_to=visible_to,
                replace=replace,
            )
        resource = resource_of_function(
            uri,
            function,
            name=name,
            title=title,
            description=description,
            mime_type=mime_type,
            extra=extra,
            ttl_ms=ttl_ms,
            scope=scope,
            subscribable=subscribable,
            inline=inline,
            visible_to=visible_to,
        )
        self.registry.add(resource, replace=replace)
        return function

    def add_resource(self, uri: str, contents: str | bytes, **options: Any) -> None:
        """Register fixed contents as a resource; options as for `resource`. They are public and fresh for five minutes by default."""
        options = {"name": uri, "scope": "public", "ttl_ms": 300_000, "inline": True, **options}
        self.resource(uri, lambda: contents, **options)

    def add_resource_definition(
        self,
        definition: Mapping[str, Any],
        read: Callable[[str, Context], Any],
        *,
        ttl_ms: int = 0,
        scope: Literal["public", "private"] = "private",
        subscribable: bool = False,
        visible_to: Visibility | None = None,
        replace: bool = False,
    ) -> None:
        """Register a resource or a template whose definition is written by hand or comes from elsewhere, kept as it is.

        Args:
            definition: in wire names, with `uri` or `uriTemplate`.
            read: called with the URI and the context; returns what a resource's function may return.
            ttl_ms: as for `resource`.
            scope: as for `resource`.
            subscribable: as for `resource`.
            visible_to: as for `tool`.
            replace: as for `tool`.

        Raises:
            ValueError: the template is not supported.
        """
        resource = resource_of_definition(
            definition, read, ttl_ms=ttl_ms, scope=scope, subscribable=subscribable, visible_to=visible_to
        )
        self.registry.add(resource, replace=replace)

    def remove_resource(self, uri: str) -> bool:
        """Take a resource or a resource template away; False when there was none."""
        return self.registry.remove(RESOURCES, uri) or self.registry.remove(RESOURCE_TEMPLATES, uri)

    def completion(self, owner: str, argument: str, function: Completer | None = None, /) -> Any:
        """Register a function that suggests values for an argument of a prompt (by name) or a template (by URI template).

        It is called with what the user has typed, and with the other arguments so far if it takes a second parameter; it returns the
        suggestions, best first.

        Raises:
            ValueError: no such prompt or template, or it has no such argument.
        """
        if function is None:
            return partial(self.completion, owner, argument)
        kind, item = PROMPTS, self.registry.prompts.get(owner)
        found: Prompt | ResourceTemplate | None = item
        if found is None:
            kind, found = RESOURCE_TEMPLATES, self.registry.templates.get(owner)
        if found is None or (found.parameters is not None and argument not in found.parameters.names):
            raise ValueError(f"there is no prompt or template {owner!r} with an argument {argument!r}")
        self.registry.replace_completer(
            kind, owner, replace(found, completers={**found.completers, argument: function})
        )
        return function

    def method(self, name: str, function: Callable[[dict[str, Any], Context], Any] | None = None, /) -> Any:
        """Register a request method of an extension: called with the params object and the context, it returns the result's members."""
        if function is None:
            return partial(self.method, name)
        self._methods[name] = function
        return function

    def resource_updated(self, uri: str) -> None:
        """Tell the clients that watch this resource that it changed. From any thread; never waits."""
        self.subscriptions.resource_updated(uri)

    # Serving

    def dispatcher(self, *, legacy: bool, listen: bool) -> Dispatcher:
        """The dispatch of a transport."""
        return Dispatcher(
            self.registry,
            versions=MODERN_VERSIONS + (LEGACY_VERSIONS if legacy else ()),
            listen=listen,
            legacy=legacy,
            methods=self._methods,
        )

    def asgi(
        self,
        path: str = "/mcp",
        *,
        legacy: bool = True,
        authenticate: Authenticate | None = None,
        options: HttpOptions | None = None,
    ) -> Endpoint:
        """The server as a plain ASGI app, for any ASGI server, or mounted in any framework.

        The app keeps nothing between modern requests: run as many processes as you like, with one `state_keys` for all.

        Args:
            path: where the MCP endpoint is, below the place where the app is mounted.
            legacy: whether clients of the handshake revisions are served too. Their sessions live in one process.
            authenticate: from the ASGI scope to the caller; see `Authenticate`. None lets everyone in, as nobody in particular.
            options: limits, allowed hosts and origins, and the rest; see `HttpOptions`.
        """
        from outrider.server.http import Endpoint, HttpOptions

        return Endpoint(self, path=path, legacy=legacy, authenticate=authenticate, options=options or HttpOptions())

    def run(self, *, legacy: bool = True) -> None:
        """Speak stdio until standard input ends. Blocks.

        While it runs, whatever the process prints to standard output goes to standard error: only messages may stand on the former.

        Args:
            legacy: whether clients of the handshake revisions are served too.
        """
        from outrider.server.stdio import run_stdio

        run_stdio(self, legacy=legacy)

    def close_streams(self) -> None:
        """End every listen stream in an orderly way, as at a shutdown. From any thread."""
        self.subscriptions.end_all()

    def close(self) -> None:
        """End the streams and let go of the worker threads; functions that still run there are not waited for."""
        self.close_streams()
        self.tasks.close()
        self.runner.close()
