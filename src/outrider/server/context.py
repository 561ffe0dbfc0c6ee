"""What a function sees of the request it works for, and what it can say or ask meanwhile.

Decided here: the interface that authors use, which notifications are sent at all, and how a question to the client turns into an
answer, into leaving the function, or into a request of our own. Not here: how messages travel (`http`, `stdio`, `legacy`), and sealing
(`state`).

Spec: 2026-07-28 basic/patterns/progress, basic/patterns/mrtr, server/utilities/logging.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

from outrider.errors import INVALID_PARAMS, MISSING_CLIENT_CAPABILITY
from outrider.protocol.jsonrpc import encode_notification
from outrider.protocol.meta import LOG_LEVELS
from outrider.protocol.versions import Era
from outrider.server.inputs import (
    Elicit,
    Elicited,
    ElicitUrl,
    InvalidAnswer,
    ListRoots,
    Question,
    Root,
    Sample,
    Sampled,
)
from outrider.server.registry import Principal

__all__ = ["Channel", "Context", "LeaveForInput", "RequestRejected", "TaskChannel"]

_T = TypeVar("_T")
_LEVEL_RANK: Final = {level: rank for rank, level in enumerate(LOG_LEVELS)}


class RequestRejected(Exception):
    """Raise it to answer the request with a JSON-RPC error instead of a result.

    In a tool, prefer `ToolError`: models see tool errors, but seldom protocol errors.

    Attributes:
        code: a JSON-RPC code; own ones stand outside -32768…-32000.
        message: one sentence, shown to the client.
        data: any JSON value, or None.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


class LeaveForInput(BaseException):
    """Leaves a function whose question the client has not answered yet. Not an error: do not catch it.

    A BaseException so that an author's `except Exception` lets it pass.
    """

    def __init__(self, questions: Mapping[str, Question]) -> None:
        super().__init__("input from the client is needed")
        self.questions = questions


class Channel(Protocol):
    """Where messages that belong to a request go while it is worked on."""

    def notify(self, message: bytes) -> None:
        """Send a notification; drop it when the client reads too slowly. Called on the event loop."""

    async def request(self, question: Question) -> Any:
        """Send a request to a legacy client and wait for its result."""

    def begin_wait(self, task: asyncio.Task[Any]) -> None:
        """The request's function, which runs in `task`, has not answered at once: from now on a closed connection matters."""

    def end_wait(self) -> None:
        """It has answered or failed."""

    def release(self, retry_ms: int) -> None:
        """Let a legacy HTTP client go and come back for the rest; elsewhere nothing."""


class TaskChannel(ABC):
    """The `Channel` of a function that is, or may become, a task.

    Attributes:
        task_id: the task's identifier, drawn before there is one.
        asks_first: whether questions travel in results until the function itself makes the task.
    """

    task_id: str
    asks_first: bool

    @property
    @abstractmethod
    def has_begun(self) -> bool:
        """Whether there is a task."""

    @abstractmethod
    async def begin(self) -> None:
        """Make the task, if there is none yet."""

    @abstractmethod
    async def ask(self, questions: Mapping[str, Question]) -> dict[str, Any]:
        """Put questions into the task and wait for the raw answers, by the same keys."""

    @abstractmethod
    def say(self, message: str) -> None:
        """Tell what the task is doing. Called on the event loop."""


class Context:
    """Ask for it with a parameter annotated `Context`; the client does not see that parameter.

    Attributes:
        request_id: the JSON-RPC id of the request.
        method: the request's method, such as "tools/call".
        principal: who makes the request, or None when that is not known.
        protocol_version: the version this request is made under. era: its era.
        client_capabilities: what the client declared, in the wire's shape; untrusted.
        client_info: what the client says it is, in the wire's shape, or None; for display only.
        trace: the W3C trace context of the request: `traceparent`, `tracestate`, `baggage`, those that are there.
        state: a JSON object of the author's own that is kept, sealed, between the rounds of a request that asks for input.
        answers: the client's raw answers so far, by key; untrusted.
    """

    def __init__(
        self,
        *,
        request_id: int | str,
        method: str,
        principal: Principal | None,
        protocol_version: str,
        era: Era,
        client_capabilities: Mapping[str, Any],
        client_info: Mapping[str, Any] | None,
        trace: Mapping[str, str],
        progress_token: int | str | None,
        log_level: str | None,
        channel: Channel,
        loop: asyncio.AbstractEventLoop,
        state: dict[str, Any],
        answers: Mapping[str, Any],
        task: TaskChannel | None = None,
    ) -> None:
        """Made by the server."""
        self.request_id, self.method, self.principal = request_id, method, principal
        self.protocol_version, self.era = protocol_version, era
        self.client_capabilities, self.client_info, self.trace = client_capabilities, client_info, trace
        self.state, self.answers = state, answers
        self.used_answers: dict[str, Any] = {}
        self._progress_token = progress_token
        self._log_rank = _LEVEL_RANK.get(log_level, len(LOG_LEVELS)) if log_level else len(LOG_LEVELS)
        self._channel = channel
        self._task = task
        self._loop = loop
        self._loop_thread = threading.get_ident()
        self._last_progress: float | None = None
        self._asked = 0
        self._cancelled = threading.Event()

    @property
    def cancelled(self) -> bool:
        """Whether the client gave up or the time is over. Functions in a worker thread look at it now and then and return."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Called by the server when the work is no longer wanted."""
        self._cancelled.set()

    @property
    def task_id(self) -> str | None:
        """The identifier of the task that this function is, or None when it is none."""
        return self._task.task_id if self._task is not None and self._task.has_begun else None

    @property
    def may_ask_directly(self) -> bool:
        """Whether a question may be put and awaited, now or later, instead of leaving the function."""
        return self.era is Era.LEGACY or self._task is not None

    @property
    def asks_directly(self) -> bool:
        """Whether a question is put and awaited, instead of leaving the function."""
        return self.era is Era.LEGACY or self._is_or_becomes_task

    @property
    def _is_or_becomes_task(self) -> bool:
        return self._task is not None and (self._task.has_begun or not self._task.asks_first)

    async def to_task(self) -> bool:
        """Answer the client with a task now, if the tool may be one and the client takes it; the function goes on either way.

        Returns:
            Whether this function is a task.

        Raises:
            RequestRejected: too many tasks are kept already.

        Spec: io.modelcontextprotocol/tasks#task-creation (SHOULD ask what is asked by results before)
        """
        if self._task is None:
            return False
        await self._task.begin()
        return True

    def status(self, message: str) -> None:
        """Tell people what this task is doing; the latest message is shown. Without a task, nothing happens.

        Never waits and may be called from any thread. Spec: io.modelcontextprotocol/tasks#tasks, statusMessage
        """
        task = self._task
        if task is None or not task.has_begun or self._cancelled.is_set():
            return
        if threading.get_ident() == self._loop_thread:
            task.say(message)
        else:
            self._loop.call_soon_threadsafe(task.say, message)

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the client how far the work is. Nothing is sent unless the client asked for it. In a task it becomes the status message.

        Args:
            progress: how much is done; a value that is not greater than the last one is not sent.
            total: how much there is, if known.
            message: a text for people.

        Never waits and may be called from any thread. Spec: 2026-07-28 basic/patterns/progress (MUST increase)
        """
        if self.task_id is not None:
            self.status(message or (f"{progress:g}" if total is None else f"{progress:g} of {total:g}"))
            return
        if self._progress_token is None or self._cancelled.is_set():
            return
        if self._last_progress is not None and progress <= self._last_progress:
            return
        self._last_progress = progress
        params: dict[str, Any] = {"progressToken": self._progress_token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        self._notify(encode_notification("notifications/progress", params))

    def log(self, level: str, data: Any, *, logger: str | None = None) -> None:
        """Send a log message to the client. Nothing is sent unless the request asked for this level or a lower one.

        Args:
            level: one of debug, info, notice, warning, error, critical, alert, emergency.
            data: any JSON value; never a secret.
            logger: the name of the source, or None.

        Never waits and may be called from any thread. Logging to clients is deprecated since 2026-07-28; prefer Python's logging.

        Raises:
            ValueError: the level is not one of these.

        Spec: 2026-07-28 server/utilities/logging (MUST NOT send unrequested)
        """
        rank = _LEVEL_RANK.get(level)
        if rank is None:
            raise ValueError(f"{level!r} is not a log level; they are {', '.join(LOG_LEVELS)}")
        if rank < self._log_rank or self._cancelled.is_set():
            return
        params = {"level": level, "data": data} if logger is None else {"level": level, "logger": logger, "data": data}
        self._notify(encode_notification("notifications/message", params))

    def _notify(self, message: bytes) -> None:
        if threading.get_ident() == self._loop_thread:
            self._channel.notify(message)
        else:
            self._loop.call_soon_threadsafe(self._channel.notify, message)

    def let_client_poll(self, retry_ms: int) -> None:
        """Close the connection of a 2025-11-25 HTTP client, which then comes back for the result; for long work behind impatient proxies.

        Elsewhere nothing happens: the modern era has no resumption. Spec: 2025-11-25 basic/transports#sending-messages-to-the-server (MAY)

        Args:
            retry_ms: how long the client should wait before it comes back, in milliseconds.
        """
        if threading.get_ident() == self._loop_thread:
            self._channel.release(retry_ms)
        else:
            self._loop.call_soon_threadsafe(self._channel.release, retry_ms)

    def supports(self, question: Question) -> bool:
        """Whether this client declared what the question needs."""
        return question.is_supported(self.client_capabilities)

    async def ask(self, questions: Mapping[str, Question]) -> dict[str, Any]:
        """Ask the client several things at once.

        In the modern era the function is left here when an answer is missing, and runs again from its top when the client comes back with
        the answers: whatever stands before a question runs once per round. In the legacy era the questions are sent and awaited, and in a
        task they are shown and awaited.

        Args:
            questions: by a key of the author's choice that stays the same from round to round.

        Returns:
            The answers by key: `Elicited`, `Sampled`, or a tuple of `Root`.

        Raises:
            RequestRejected: the client did not declare the capability (-32021), or its answer is malformed (-32602).

        Spec: 2026-07-28 basic/patterns/mrtr (MUST NOT ask for what is not declared)
        """
        self.require(questions)
        if self.era is Era.LEGACY:
            replies = await self.request_answers(questions)
            return {key: _read(questions[key], key, reply) for key, reply in replies.items()}
        found = {key: self.answers[key] for key in questions if key in self.answers}
        answers = {key: _read(questions[key], key, answer) for key, answer in found.items()}
        self.used_answers |= found
        missing = {key: question for key, question in questions.items() if key not in found}
        if missing:
            if not self._is_or_becomes_task:
                raise LeaveForInput(missing)
            replies = await self.request_answers(missing)
            answers |= {key: _read(question, key, replies[key]) for key, question in missing.items()}
        return {key: answers[key] for key in questions}

    def require(self, questions: Mapping[str, Question]) -> None:
        """Refuse the request unless the client declared what every question needs.

        Raises:
            RequestRejected: -32021, with what is missing. Spec: 2026-07-28 basic/index#_meta (MUST)
        """
        for question in questions.values():
            if not self.supports(question):
                raise RequestRejected(
                    MISSING_CLIENT_CAPABILITY,
                    f"this request needs the client capability {next(iter(question.capability))}",
                    {"requiredCapabilities": question.capability},
                )

    async def request_answers(self, questions: Mapping[str, Question]) -> dict[str, Any]:
        """Ask a legacy client by requests, or through the task, and wait for the raw answers. Used by the server."""
        if self._task is not None:
            await self._task.begin()
            return await self._task.ask(questions)
        tasks = [self._loop.create_task(self._channel.request(question)) for question in questions.values()]
        try:
            # Not a TaskGroup: an author is to see the one error, not a group with it inside.
            replies = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        return dict(zip(questions, replies, strict=True))

    async def _ask_one(self, question: Question, key: str | None) -> Any:
        self._asked += 1
        key = key or f"input_{self._asked}"
        return (await self.ask({key: question}))[key]

    async def elicit(self, message: str, form: type | Mapping[str, Any], *, key: str | None = None) -> Elicited:
        """Ask the user to fill a form; see `Elicit` and `ask`. `key` names the question between rounds; by default its position does."""
        answer: Elicited = await self._ask_one(Elicit(message, form), key)
        return answer

    async def elicit_url(self, message: str, url: str, *, key: str | None = None) -> Elicited:
        """Ask the user to visit a URL; see `ElicitUrl` and `ask`. Accepting means that the user agreed, not that the visit is over."""
        answer: Elicited = await self._ask_one(ElicitUrl(message, url), key)
        return answer

    async def sample(self, messages: Any, *, max_tokens: int, key: str | None = None, **options: Any) -> Sampled:
        """Ask the client for a model's answer; see `Sample` and `ask`."""
        answer: Sampled = await self._ask_one(Sample(messages, max_tokens=max_tokens, **options), key)
        return answer

    async def list_roots(self, *, key: str | None = None) -> tuple[Root, ...]:
        """Ask the client for its roots; see `ListRoots` and `ask`."""
        answer: tuple[Root, ...] = await self._ask_one(ListRoots(), key)
        return answer

    def from_thread(self, function: Callable[..., Awaitable[_T]], *args: Any, **options: Any) -> _T:
        """Run one of the awaitable methods from a function in a worker thread: `ctx.from_thread(ctx.elicit, "Sure?", Form)`."""
        if threading.get_ident() == self._loop_thread:
            raise RuntimeError("from_thread would block the event loop here; await the method instead")

        async def run() -> _T:
            return await function(*args, **options)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()


def _read(question: Question, key: str, answer: Any) -> Any:
    try:
        return question.read(answer)
    except InvalidAnswer as error:
        raise RequestRejected(INVALID_PARAMS, f"the input response {key!r} is invalid: {error}") from error
