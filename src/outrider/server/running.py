"""Running requests that need an author's function, in either era and for every transport.

Decided here: where a function runs, its time limit, how many run at once, what becomes of what it returns or raises, and how a question
to the client turns into an input-required result. Not here: which request is valid (`dispatch`), what is registered (`app`, `registry`),
and how messages travel (`http`, `stdio`, `legacy`).

A request that needs nothing of an author never comes here.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw

from outrider.errors import INTERNAL_ERROR, INVALID_PARAMS
from outrider.protocol.versions import Era
from outrider.server.content import (
    ToolError,
    WireResult,
    render_prompt_result,
    render_resource_result,
    render_tool_error,
    render_tool_result,
)
from outrider.server.context import Channel, Context, LeaveForInput, RequestRejected, TaskChannel
from outrider.server.dispatch import Answer, Work, error_answer, reply_bytes
from outrider.server.inputs import InputRequest
from outrider.server.registry import Completer, Principal, Prompt, Registry, Resource, ResourceTemplate, Tool
from outrider.server.schemas import InvalidArguments
from outrider.server.spans import perform_traced
from outrider.server.state import StateRejected, StateSeal
from outrider.tracing import is_loaded

__all__ = ["WORKER_THREAD_PREFIX", "Runner", "is_async"]

WORKER_THREAD_PREFIX: Final = "outrider-tool"
_log: Final = logging.getLogger("outrider.server")
_encode: Final = msgspec.json.Encoder().encode
_encode_sorted: Final = msgspec.json.Encoder(order="sorted").encode
_MAX_COMPLETIONS: Final = 100
_MAX_ROUNDS: Final = 16

Perform = Callable[[Work, Channel, Principal | None], Awaitable[Answer]]


class Runner:
    """Runs functions for one server.

    Args:
        registry: what the server offers and says about itself.
        seal: for the states that travel through clients.
        max_concurrent: how many requests may run at once; more are refused as busy.
        request_timeout_s: the longest that a function may take unless it has a limit of its own, in seconds; None for no limit.
        worker_threads: threads for synchronous functions.
        expose_errors: whether the text of an unexpected exception reaches the client.
        traced: whether what runs here is a request, with a span of its own for whoever traces.
    """

    def __init__(
        self,
        registry: Registry,
        seal: StateSeal,
        *,
        max_concurrent: int,
        request_timeout_s: float | None,
        worker_threads: int,
        expose_errors: bool,
        traced: bool = True,
    ) -> None:
        self.registry = registry
        self._seal = seal
        self._max_concurrent = max_concurrent
        self._request_timeout_s = request_timeout_s
        self._worker_threads = worker_threads
        self._expose_errors = expose_errors
        self._traced = traced
        self._running = 0
        self._pool: ThreadPoolExecutor | None = None
        self.perform_as_task: Perform | None = None
        """What performs a work that may become a task; None where there are no tasks."""

    def close(self) -> None:
        """Let go of the worker threads; functions that still run there are not waited for."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)

    def perform(self, work: Work, channel: Channel, principal: Principal | None) -> Coroutine[Any, Any, Answer]:
        """Run the function that a request is about, and answer.

        Cancelling this cancels an async function; a sync one sees `ctx.cancelled`, and its result is dropped.
        """
        performing = self._perform(work, channel, principal)
        meta = work.meta
        # Where nothing is recorded, a context that came is handed on to whatever the function calls.
        if work.is_traced or ((meta.traceparent is not None or meta.baggage is not None) and is_loaded()):
            return perform_traced(work, performing) if self._traced else performing
        return performing

    async def _perform(self, work: Work, channel: Channel, principal: Principal | None) -> Answer:
        if work.as_task and self.perform_as_task is not None:
            return await self.perform_as_task(work, channel, principal)
        if self._running >= self._max_concurrent:
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
                waiting = _Waiting(getattr(item, "timeout_s", None) or self._request_timeout_s, channel)
            if context is None or not (work.legacy or context.may_ask_directly):
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
        if self._expose_errors:
            text = f"{type(error).__name__}: {error}"
        if work.method == "tools/call":
            return self._finish(work, render_tool_error(text))
        return error_answer(work.id_json, INTERNAL_ERROR, text)

    async def _answer_in_rounds(self, work: Work, context: Context) -> Answer:
        """Where questions are asked directly: what a function returns as an `InputRequest` is asked too, and the function runs again."""
        for _ in range(_MAX_ROUNDS):
            try:
                if type(work.item) is Tool:
                    return await self._call_tool(work, work.item, context)
                return await self._answer(work, context)
            except LeaveForInput as needed:
                if not context.asks_directly:
                    raise
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
        value = await self._run(None, partial(item, params, context), is_async=is_async(item))
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
                pool = self._pool = ThreadPoolExecutor(self._worker_threads, thread_name_prefix=WORKER_THREAD_PREFIX)
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
            values = [str(value) for value in await self._run(None, call, is_async=is_async(completer))]
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
                if isinstance(value, str)
            },
            progress_token=meta.progress_token,
            log_level=meta.log_level,
            channel=channel,
            loop=asyncio.get_running_loop(),
            state=state,
            answers=answers,
            task=channel if isinstance(channel, TaskChannel) else None,
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
        import hashlib  # Slow to import, and only what is sealed is bound to a request.

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


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives something to await, seen through partials and callable objects."""
    while isinstance(function, partial):
        function = function.func
    call = getattr(function, "__call__", None)  # noqa: B004 - the attribute itself is looked at
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
