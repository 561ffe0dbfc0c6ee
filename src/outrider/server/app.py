"""`Server`: what an author writes against, and the running of requests that need the author's functions.

Decided here: how functions are registered, where they run, their time limit, what becomes of what they return or raise, and how a
question to the client turns into an input-required result. Not here: which request is valid (`dispatch`), lists and capabilities
(`registry`), transports (`http`, `stdio`).

A request that needs nothing of an author never comes here.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import inspect
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, overload

import msgspec
from msgspec import UNSET, Raw

from outrider.errors import INTERNAL_ERROR, INVALID_PARAMS
from outrider.protocol import headers as mcp_headers
from outrider.protocol.model import PROMPTS, RESOURCE_TEMPLATES, RESOURCES, TOOLS
from outrider.protocol.schema import (
    SchemaFinding,
    Validator,
    Verdict,
    check_input_schema,
    check_output_schema,
)
from outrider.protocol.versions import LEGACY_VERSIONS, MODERN_VERSIONS, Era
from outrider.server.content import (
    CONTENT_TYPES,
    ToolError,
    WireResult,
    render_prompt_result,
    render_resource_result,
    render_tool_error,
    render_tool_result,
)
from outrider.server.context import Channel, Context, LeaveForInput, RequestRejected
from outrider.server.dispatch import Answer, Dispatcher, Work, error_answer, reply_bytes
from outrider.server.inputs import InputRequest
from outrider.server.registry import (
    Completer,
    Principal,
    Prompt,
    Registry,
    Resource,
    ResourceTemplate,
    Tool,
    Visibility,
)
from outrider.server.schemas import InvalidArguments, OutputType, Parameters, parse_docstring
from outrider.server.state import StateRejected, StateSeal
from outrider.server.subscriptions import Subscriptions
from outrider.server.templates import UriTemplate

if TYPE_CHECKING:
    from outrider.server.http import Authenticate, Endpoint, HttpOptions

__all__ = ["Server", "ServerOptions"]

_log: Final = logging.getLogger("outrider.server")
_encode: Final = msgspec.json.Encoder().encode
_encode_sorted: Final = msgspec.json.Encoder(order="sorted").encode
_MAX_COMPLETIONS: Final = 100
_MAX_ROUNDS: Final = 16
WORKER_THREAD_PREFIX: Final = "outrider-tool"
_F = TypeVar("_F", bound=Callable[..., Any])
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+")
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
        self._seal = StateSeal(keys, ttl_s=options.state_ttl_s)
        self._running = 0
        self._pool: ThreadPoolExecutor | None = None

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
                replace=replace,
            )
        text, documented = parse_docstring(function.__doc__)
        parameters = Parameters(function, injected_type=Context, descriptions=documented)
        output = OutputType.of(function, plain_types=(*CONTENT_TYPES, InputRequest))
        definition: dict[str, Any] = {"name": name or _name_of(function)}
        if title:
            definition["title"] = title
        if description or text:
            definition["description"] = description or text
        definition["inputSchema"] = parameters.schema
        if output is not None:
            definition["outputSchema"] = output.schema
        if annotations:
            definition["annotations"] = dict(annotations)
        definition.update(extra or {})
        self._add_tool(
            definition,
            function,
            parameters=parameters,
            output=output,
            inline=inline,
            visible_to=visible_to,
            timeout_s=timeout_s,
            replace=replace,
        )
        return function

    def add_tool_definition(
        self,
        definition: Mapping[str, Any],
        call: Callable[[dict[str, Any], Context], Any],
        *,
        validate: bool = True,
        visible_to: Visibility | None = None,
        timeout_s: float | None = None,
        replace: bool = False,
    ) -> None:
        """Register a tool whose definition is written by hand or comes from elsewhere; all its members are kept as they are.

        Args:
            definition: the tool in wire names, with `name` and `inputSchema`.
            call: called with the arguments object and the context; sync functions run in a worker thread.
            validate: whether arguments are checked against `inputSchema` before the call.
            visible_to: as for `tool`.
            timeout_s: as for `tool`.
            replace: as for `tool`.

        Raises:
            ValueError: the name or a schema is not allowed, or the name is taken.
        """
        self._add_tool(
            dict(definition),
            call,
            parameters=None,
            output=None,
            inline=False,
            visible_to=visible_to,
            timeout_s=timeout_s,
            replace=replace,
            validate=validate,
        )

    def _add_tool(
        self,
        definition: dict[str, Any],
        function: Callable[..., Any],
        *,
        parameters: Parameters | None,
        output: OutputType | None,
        inline: bool,
        visible_to: Visibility | None,
        timeout_s: float | None,
        replace: bool,
        validate: bool = False,
    ) -> None:
        name = definition.get("name")
        if not isinstance(name, str) or not 1 <= len(name) <= 128:
            raise ValueError("a tool's name has 1 to 128 characters")
        if not _PLAIN_NAME.fullmatch(name):
            _log.warning("tool %r: some clients and models only take names of letters, digits, `_`, `-` and `.`", name)
        check: Callable[[Any], Sequence[str]] | None = None
        if parameters is None:
            schema = definition.get("inputSchema")
            findings = [
                check_input_schema(schema),
                check_output_schema(s) if (s := definition.get("outputSchema")) else None,
            ]
            for finding in findings:
                if finding is not None and finding.verdict is not Verdict.NOTE:
                    raise ValueError(f"tool {name!r}: {finding.where} {finding.message}")
            if validate:
                check = _argument_checker(schema)
        mirrored = mcp_headers.header_params(definition["inputSchema"])
        if isinstance(mirrored, SchemaFinding):
            raise ValueError(f"tool {name!r}: {mirrored.where} {mirrored.message}")
        legacy = dict(definition)
        output_schema = definition.get("outputSchema")
        if output_schema is not None and output_schema.get("type") != "object":
            # Before 2026-07-28 a structured result is an object.
            del legacy["outputSchema"]
        self.registry.add(
            Tool(
                key=name,
                wire=_encode(definition),
                legacy_wire=_encode(legacy),
                visible_to=visible_to,
                function=function,
                parameters=parameters,
                output=output,
                check_arguments=check,
                is_async=_is_async(function),
                inline=inline,
                wants_context=parameters is None or parameters.injected is not None,
                mirrored=mirrored,
                timeout_s=timeout_s,
            ),
            replace=replace,
        )

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
        text, documented = parse_docstring(function.__doc__)
        parameters = Parameters(function, injected_type=Context, descriptions=documented)
        definition: dict[str, Any] = {"name": name or _name_of(function)}
        if title:
            definition["title"] = title
        if description or text:
            definition["description"] = description or text
        if parameters.names:
            definition["arguments"] = [
                {
                    "name": argument,
                    **({"description": d} if (d := parameters.descriptions.get(argument)) else {}),
                    "required": argument in parameters.required,
                }
                for argument in parameters.names
            ]
        definition.update(extra or {})
        wire = _encode(definition)
        self.registry.add(
            Prompt(
                key=definition["name"],
                wire=wire,
                legacy_wire=wire,
                visible_to=visible_to,
                function=function,
                parameters=parameters,
                description=definition.get("description", ""),
                is_async=_is_async(function),
                inline=inline,
                completers={},
            ),
            replace=replace,
        )
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
        wire = _encode(definition)
        self.registry.add(
            Prompt(
                key=definition["name"],
                wire=wire,
                legacy_wire=wire,
                visible_to=visible_to,
                function=get,
                parameters=None,
                description=definition.get("description") or "",
                is_async=_is_async(get),
                inline=False,
                completers={},
            ),
            replace=replace,
        )

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
        if ":" not in uri or not uri.partition(":")[0].replace("+", "").replace("-", "").replace(".", "").isalnum():
            raise ValueError(f"{uri!r} is not an absolute URI")
        if ttl_ms < 0:
            raise ValueError("a time to live is at least 0 ms")
        text, documented = parse_docstring(function.__doc__)
        parameters = Parameters(function, injected_type=Context, descriptions=documented)
        is_template = "{" in uri
        definition: dict[str, Any] = {"uriTemplate" if is_template else "uri": uri, "name": name or _name_of(function)}
        if title:
            definition["title"] = title
        if description or text:
            definition["description"] = description or text
        if mime_type:
            definition["mimeType"] = mime_type
        definition.update(extra or {})
        wire = _encode(definition)
        common: dict[str, Any] = {
            "key": uri,
            "wire": wire,
            "legacy_wire": wire,
            "visible_to": visible_to,
            "function": function,
            "parameters": parameters,
            "mime_type": mime_type,
            "is_async": _is_async(function),
            "inline": inline,
            "ttl_ms": ttl_ms,
            # What is shown to some callers only is not for a shared cache.
            "scope": "private" if visible_to is not None else scope,
            "subscribable": subscribable,
        }
        if is_template:
            template = UriTemplate(uri)
            variables, known = set(template.names), set(parameters.names)
            if unknown := (variables - known) | (set(parameters.required) - variables):
                raise TypeError(f"{uri}: variables and parameters differ in {', '.join(sorted(unknown))}")
            self.registry.add(ResourceTemplate(**common, template=template, completers={}), replace=replace)
        else:
            if parameters.required:
                raise TypeError(f"{uri}: a resource without variables has no parameters to fill")
            self.registry.add(Resource(**common), replace=replace)
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
        wire = _encode(definition)
        common: dict[str, Any] = {
            "wire": wire,
            "legacy_wire": wire,
            "visible_to": visible_to,
            "function": read,
            "parameters": None,
            "mime_type": definition.get("mimeType"),
            "is_async": _is_async(read),
            "inline": False,
            "ttl_ms": ttl_ms,
            "scope": "private" if visible_to is not None else scope,
            "subscribable": subscribable,
        }
        text = definition.get("uriTemplate")
        if text is None:
            self.registry.add(Resource(key=definition["uri"], **common), replace=replace)
        else:
            # Values go to somebody who checks them; they become no path here.
            template = UriTemplate(text, allow_dot_segments=True)
            self.registry.add(ResourceTemplate(key=text, **common, template=template, completers={}), replace=replace)

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
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)

    async def perform(self, work: Work, channel: Channel, principal: Principal | None) -> Answer:
        """Run the function that a request is about, and answer.

        Cancelling this cancels an async function; a sync one sees `ctx.cancelled`, and its result is dropped.
        """
        options = self.options
        if self._running >= options.max_concurrent:
            busy = error_answer(work.id_json, INTERNAL_ERROR, "the server is busy; try again later")
            return Answer(busy.body, 503)
        self._running += 1
        item = work.item
        context: Context | None = None
        waiting: _Waiting | None = None
        try:
            parameters = getattr(item, "parameters", None)
            if parameters is None or parameters.injected is not None or work.params.request_state is not None:
                context = self._context(work, channel, principal)
            if not getattr(item, "inline", False) or item.is_async:
                waiting = _Waiting(getattr(item, "timeout_s", None) or options.request_timeout_s, channel)
            if not work.legacy or context is None:
                return await (
                    self._call_tool(work, item, context) if type(item) is Tool else self._answer(work, context)
                )
            return await self._answer_in_rounds(work, context)
        except LeaveForInput as needed:
            return self._ask(work, context, needed, principal)
        except BaseExceptionGroup as group:
            # A question asked inside a TaskGroup leaves through it.
            if (inside := group.subgroup(LeaveForInput)) is not None:
                return self._ask(work, context, _first(inside), principal)
            return self._failed(work, group)
        except RequestRejected as rejected:
            return error_answer(work.id_json, rejected.code, rejected.message, rejected.data)
        except asyncio.CancelledError:
            if waiting is None or not waiting.has_expired:
                raise
            waiting.task.uncancel()
            text = f"{work.method} took longer than the limit of {waiting.limit_s:g} s and was stopped"
            _log.warning("%s", text)
            if work.method == "tools/call":
                return self._finish(work, render_tool_error(text))
            return error_answer(work.id_json, INTERNAL_ERROR, text)
        except ToolError as error:
            # Of a prompt or resource; a tool's own becomes a result where it is called.
            return error_answer(work.id_json, INTERNAL_ERROR, str(error))
        except Exception as error:
            return self._failed(work, error)
        finally:
            if waiting is not None:
                waiting.end()
            if context is not None:
                context.cancel()
            self._running -= 1

    def _failed(self, work: Work, error: BaseException) -> Answer:
        _log.error("%s %s failed", work.method, getattr(work.item, "key", ""), exc_info=error)
        text = f"{work.method} failed unexpectedly; the server's log says why"
        if self.options.expose_errors:
            text = f"{type(error).__name__}: {error}"
        if work.method == "tools/call":
            return self._finish(work, render_tool_error(text))
        return error_answer(work.id_json, INTERNAL_ERROR, text)

    async def _answer_in_rounds(self, work: Work, context: Context) -> Answer:
        """For a legacy client: what a function returns as an `InputRequest` is asked by requests, and the function runs again."""
        for _ in range(_MAX_ROUNDS):
            try:
                if type(work.item) is Tool:
                    return await self._call_tool(work, work.item, context)
                return await self._answer(work, context)
            except LeaveForInput as needed:
                context.answers = {**context.answers, **await context.request_answers(needed.questions)}
        raise RuntimeError(f"{work.method} asked for input more than {_MAX_ROUNDS} times")

    async def _answer(self, work: Work, context: Context | None) -> Answer:
        item = work.item
        if work.method == "completion/complete":
            return await self._complete(work, item)
        if type(item) is Prompt:
            try:
                given = msgspec.json.decode(work.params.arguments or b"{}", type=dict[str, str] | None) or {}
                if item.parameters is None:
                    call = partial(item.function, given, context)
                else:
                    call = partial(item.parameters.call, item.function, item.parameters.read_strings(given), context)
            except InvalidArguments as error:
                raise RequestRejected(INVALID_PARAMS, str(error)) from error
            except (msgspec.DecodeError, RecursionError) as error:
                raise RequestRejected(INVALID_PARAMS, "params.arguments is not an object of texts") from error
            value = await self._run(item, call)
            if isinstance(value, (InputRequest, WireResult)):
                return self._special(work, context, value)
            return self._finish(work, render_prompt_result(value, item.description))
        if isinstance(item, (Resource, ResourceTemplate)):
            uri = "" if work.params.uri is UNSET else work.params.uri
            try:
                if item.parameters is None:
                    call = partial(item.function, uri, context)
                else:
                    variables = item.parameters.read_strings(work.values or {})
                    call = partial(item.parameters.call, item.function, variables, context)
            except InvalidArguments as error:
                raise RequestRejected(INVALID_PARAMS, "Resource not found", {"uri": uri}) from error
            value = await self._run(item, call)
            if isinstance(value, WireResult) and not work.legacy:
                # Results of this method must say how long they are good. Spec: server/utilities/caching#cacheable-results (MUST)
                value = WireResult({"ttlMs": item.ttl_ms, "cacheScope": item.scope, **value.members})
            if isinstance(value, (InputRequest, WireResult)):
                return self._special(work, context, value)
            members, ttl_ms, scope = render_resource_result(value, uri, item.mime_type)
            hints = b',"ttlMs":%d,"cacheScope":%s' % (
                item.ttl_ms if ttl_ms is None else max(0, ttl_ms),
                _encode(scope or item.scope),
            )
            return self._finish(work, members, hints=b"" if work.legacy else hints)
        params = msgspec.json.decode(work.raw_params) if work.raw_params else {}
        value = await self._run(None, partial(item, params, context), is_async=_is_async(item))
        return self._special(
            work, context, value if isinstance(value, (InputRequest, WireResult)) else WireResult(value or {})
        )

    async def _call_tool(self, work: Work, tool: Tool, context: Context | None) -> Answer:
        raw = work.params.arguments
        parameters = tool.parameters
        try:
            if parameters is None:
                values = msgspec.json.decode(raw) if raw else {}
                values = {} if values is None else values
                if not isinstance(values, dict):
                    raise InvalidArguments(["the arguments must be an object"])
                if tool.check_arguments is not None and (problems := tool.check_arguments(values)):
                    raise InvalidArguments(problems)
                value = await self._run(tool, partial(tool.function, values, context))
            else:
                arguments = parameters.read(raw)
                if tool.is_async:
                    value = await parameters.call(tool.function, arguments, context)
                elif tool.inline:
                    value = parameters.call(tool.function, arguments, context)
                else:
                    value = await self._run(tool, partial(parameters.call, tool.function, arguments, context))
        except InvalidArguments as error:
            return self._finish(work, render_tool_error(f"Invalid arguments for {tool.key}: {error}"))
        except (msgspec.DecodeError, RecursionError):
            return error_answer(work.id_json, INVALID_PARAMS, "params.arguments cannot be decoded")
        except ToolError as error:
            return self._finish(work, render_tool_error(str(error)))
        if isinstance(value, (InputRequest, WireResult)):
            return self._special(work, context, value)
        output = tool.output
        if work.legacy and output is not None and output.schema.get("type") != "object":
            output = None
        try:
            members, meta = render_tool_result(value, output)
        except ValueError as error:
            _log.error("tool %s: %s", tool.key, error)
            return error_answer(work.id_json, INTERNAL_ERROR, f"tool {tool.key} returned what it must not")
        return self._finish(work, members, meta=meta)

    async def _run(self, item: Any, call: Callable[[], Any], *, is_async: bool | None = None) -> Any:
        if item.is_async if is_async is None else is_async:
            return await call()
        if item is not None and item.inline:
            value = call()
        else:
            pool = self._pool
            if pool is None:
                pool = self._pool = ThreadPoolExecutor(
                    self.options.worker_threads, thread_name_prefix=WORKER_THREAD_PREFIX
                )
            loop = asyncio.get_running_loop()
            value = await loop.run_in_executor(pool, contextvars.copy_context().run, call)
        # A lambda or a partial over a coroutine function looks synchronous.
        return await value if hasattr(value, "__await__") else value

    async def _complete(self, work: Work, item: Any) -> Answer:
        argument = work.params.argument
        completers: Mapping[str, Completer] = getattr(item, "completers", {})
        completer = completers.get(argument.name) if argument is not UNSET else None
        values: list[str] = []
        if completer is not None and argument is not UNSET:
            given = (work.params.context.arguments if work.params.context else None) or {}
            takes_arguments = len(inspect.signature(completer).parameters) > 1
            call = partial(completer, argument.value, given) if takes_arguments else partial(completer, argument.value)
            values = [str(value) for value in await self._run(None, call, is_async=_is_async(completer))]
        completion = {
            "values": values[:_MAX_COMPLETIONS],
            "total": len(values),
            "hasMore": len(values) > _MAX_COMPLETIONS,
        }
        return self._finish(work, b'"completion":' + _encode(completion))

    def _finish(
        self, work: Work, members: bytes, *, meta: Mapping[str, Any] | None = None, hints: bytes = b""
    ) -> Answer:
        if work.legacy:
            tail = b',"_meta":' + _encode(meta) if meta else b""
            return Answer(reply_bytes(work.id_json, b"{" + members + tail + b"}"))
        tail = (
            b',"_meta":' + _encode({**meta, **self.registry.identity_meta}) if meta else self.registry.identity_member
        )
        return Answer(reply_bytes(work.id_json, b'{"resultType":"complete",' + members + hints + tail + b"}"))

    def _special(self, work: Work, context: Context | None, value: InputRequest | WireResult) -> Answer:
        if isinstance(value, InputRequest):
            if context is None:
                raise RuntimeError("a function that asks for input needs a Context parameter")
            if value.state is not None:
                context.state.clear()
                context.state.update(value.state)
            context.require(value.questions)
            raise LeaveForInput(value.questions)
        wire = dict(value.members)
        own = wire.pop("_meta", None)
        meta = {**(own if isinstance(own, dict) else {}), **({} if work.legacy else self.registry.identity_meta)}
        if work.legacy:
            wire.pop("resultType", None)
        else:
            wire.setdefault("resultType", "complete")
        if meta:
            wire["_meta"] = meta
        return Answer(reply_bytes(work.id_json, _encode(wire)))

    # Input from the client

    def _context(self, work: Work, channel: Channel, principal: Principal | None) -> Context:
        meta, params = work.meta, work.params
        answers = {} if params.input_responses is UNSET else params.input_responses
        state: dict[str, Any] = {}
        if params.request_state is not None and not work.legacy:
            try:
                kept = self._seal.open(params.request_state, self._binding(work, principal))
            except StateRejected as error:
                raise RequestRejected(INVALID_PARAMS, str(error)) from error
            state = kept["state"]
            answers = {**kept["answers"], **answers}
        info = meta.client_info
        return Context(
            request_id=work.id,
            method=work.method,
            principal=principal,
            protocol_version=work.version,
            era=Era.LEGACY if work.legacy else Era.MODERN,
            client_capabilities={} if meta.client_capabilities is UNSET else meta.client_capabilities,
            client_info=_decoded_object(info) if info is not UNSET else None,
            trace={
                key: value
                for key, value in (
                    ("traceparent", meta.traceparent),
                    ("tracestate", meta.tracestate),
                    ("baggage", meta.baggage),
                )
                if value is not None
            },
            progress_token=meta.progress_token,
            log_level=meta.log_level,
            channel=channel,
            loop=asyncio.get_running_loop(),
            state=state,
            answers=answers,
        )

    def _ask(self, work: Work, context: Context | None, needed: LeaveForInput, principal: Principal | None) -> Answer:
        """An input-required result. Spec: 2026-07-28 basic/patterns/mrtr (MUST have requests or a state)"""
        if context is None or work.method not in ("tools/call", "prompts/get", "resources/read") or work.legacy:
            raise RuntimeError(f"{work.method} cannot ask for input")
        result: dict[str, Any] = {"resultType": "input_required"}
        if needed.questions:
            result["inputRequests"] = {
                key: {"method": question.method, "params": question.params()}
                for key, question in needed.questions.items()
            }
        if context.used_answers or context.state or not needed.questions:
            kept = {"answers": context.used_answers, "state": context.state}
            result["requestState"] = self._seal.seal(kept, self._binding(work, principal))
        if self.registry.identity_meta:
            result["_meta"] = self.registry.identity_meta
        return Answer(reply_bytes(work.id_json, _encode(result)))

    @staticmethod
    def _binding(work: Work, principal: Principal | None) -> bytes:
        params = work.params
        target = params.uri if work.method == "resources/read" else params.name
        try:
            arguments = msgspec.json.decode(params.arguments) if params.arguments else None
        except (msgspec.DecodeError, RecursionError):
            arguments = None
        # Arguments in a canonical form: a client that comes back need not write them in the same order.
        salient = [principal.id if principal else None, work.method, None if target is UNSET else target, arguments]
        return hashlib.sha256(_encode_sorted(salient)).digest()


class _Waiting:
    """The time limit of a function, and the channel's watch over the connection: both only start when the function waits.

    A function that answers in its first step, as most asynchronous ones on a benchmark and many in life, costs one callback that is
    cancelled before it runs.
    """

    __slots__ = ("_channel", "_handle", "_loop", "_timer", "has_expired", "limit_s", "task")

    def __init__(self, limit_s: float | None, channel: Channel) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a function that may wait runs in a task")
        self.task = task
        self.limit_s = limit_s or 0.0
        self.has_expired = False
        self._channel = channel
        self._loop = task.get_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._handle: asyncio.Handle | None = self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._handle = None
        if self.limit_s:
            self._timer = self._loop.call_later(self.limit_s, self._expire)
        self._channel.begin_wait(self.task)

    def _expire(self) -> None:
        self.has_expired = True
        self.task.cancel()

    def end(self) -> None:
        """The function is done."""
        if self._handle is not None:
            self._handle.cancel()
            return
        if self._timer is not None:
            self._timer.cancel()
        self._channel.end_wait()


def _first(group: BaseExceptionGroup[LeaveForInput]) -> LeaveForInput:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner


def _decoded_object(raw: Raw) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _name_of(function: Callable[..., Any]) -> str:
    while isinstance(function, partial):
        function = function.func
    name = getattr(function, "__name__", type(function).__name__)
    if name == "<lambda>":
        raise ValueError("a lambda needs a name=")
    return name


def _is_async(function: Callable[..., Any]) -> bool:
    while isinstance(function, partial):
        function = function.func
    call = getattr(function, "__call__", None)  # noqa: B004 - the attribute itself is looked at
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _argument_checker(schema: Any) -> Callable[[Any], Sequence[str]]:
    validator: Validator | None = None

    def check(arguments: Any) -> Sequence[str]:
        # Compiled at the first call: a gateway registers thousands of tools and calls a few.
        nonlocal validator
        if validator is None:
            validator = Validator(schema)
        return [str(violation) for violation in validator.check(arguments)[:10]]

    return check
