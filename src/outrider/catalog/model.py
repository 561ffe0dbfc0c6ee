"""Asking a model: one request, one reply, behind a protocol that any client can fulfil; and the client for compatible endpoints.

Decided here: how a streamed reply is put together, and which failures may be tried again. Not here: what to do about a reply (`agent`).
The OpenAI SDK is imported when a client is made; nothing else needs it.

Spec: ours. The shapes are those of OpenAI Chat Completions.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Literal, Protocol

from msgspec import Struct

from outrider.errors import ConfigError, OutriderError

__all__ = ["FailureKind", "ModelClient", "ModelFailed", "ModelReply", "OpenAIModel"]

FailureKind = Literal["busy", "dropped", "overflow", "auth", "refused"]

_TIMEOUT_S: Final = 600.0
_CONNECT_TIMEOUT_S: Final = 15.0
_NO_KEY: Final = "none"
_OVERFLOW: Final = re.compile(
    r"(?i)context.{0,20}(length|window|size|limit)|maximum context|prompt is too long|too many (input )?tokens|"
    r"input is too long|exceeds?.{0,40}(context|token limit)|reduce the length"
)
_OPENAI_URL: Final = "https://api.openai.com/v1"


class ModelFailed(OutriderError):
    """A model did not answer.

    Attributes:
        kind: "busy" (rate limit or a passing failure of the endpoint), "dropped" (the connection or the stream ended early), "overflow"
            (the conversation does not fit the model's context), "auth" (the key), or "refused" (the endpoint does not take the request).
        retry_after_s: how long the endpoint asks to wait, in seconds, or None.
    """

    def __init__(self, message: str, *, kind: FailureKind, retry_after_s: float | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.kind = kind
        self.retry_after_s = retry_after_s

    @property
    def may_pass(self) -> bool:
        """Whether the same request may succeed a little later."""
        return self.kind in ("busy", "dropped")


class ModelReply(Struct, frozen=True):
    """What a model answered.

    Attributes:
        text: what it says, "" if it only calls tools.
        message: the whole message, to be appended to the conversation as it is.
        finish: why it ended: "stop", "tool_calls", "length", "content_filter", or the endpoint's own word.
        input_tokens, output_tokens: what the endpoint counted, 0 if it does not say.
    """

    text: str
    message: dict[str, Any]
    finish: str = "stop"
    input_tokens: int = 0
    output_tokens: int = 0


class ModelClient(Protocol):
    """Whatever can ask a model that speaks in Chat Completions messages."""

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        *,
        may_call: bool,
        on_text: Callable[[str], None],
    ) -> ModelReply:
        """Ask once.

        Args:
            messages: the conversation.
            tools: definitions to send along; none if it is empty.
            may_call: whether the model may call them in this turn.
            on_text: told each piece of text as it comes.

        Raises:
            ModelFailed: there is no whole reply. Cancelling ends the request.
        """
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


class OpenAIModel:
    """A model at any endpoint that is compatible with OpenAI Chat Completions. Use it as `async with`, or `close` it.

    Args:
        model: the model's id at the endpoint.
        base_url: the endpoint, up to and with its `/v1`; None for `OPENAI_BASE_URL`, or OpenAI itself.
        api_key: the key; None for `OPENAI_API_KEY`. Endpoints other than OpenAI may do without.
        stream: whether replies are streamed; False for endpoints that cannot do that together with tools.
        extra: further members of each request, such as `{"temperature": 0}`.

    Raises:
        ConfigError: the SDK is not installed, or OpenAI is asked without a key.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        stream: bool = True,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        try:
            import openai
        except ImportError as error:
            raise ConfigError(
                "the OpenAI SDK, which talks to the model, is not installed",
                hint="pip install 'outrider-mcp[ask]'",
            ) from error
        self.model = model
        self.base_url = (base_url or os.environ.get("OPENAI_BASE_URL") or _OPENAI_URL).rstrip("/")
        key = api_key or os.environ.get("OPENAI_API_KEY")
        if not key and self.base_url == _OPENAI_URL:
            raise ConfigError(
                "there is no key for OpenAI",
                hint="set OPENAI_API_KEY, or name another endpoint with OPENAI_BASE_URL or --base-url",
            )
        self._openai = openai
        self._stream = stream
        self._extra = dict(extra or {})
        self._wants_usage = True
        # Retries are the agent's: it tells the user, and knows what a half-streamed reply is worth.
        self._client = openai.AsyncOpenAI(
            api_key=key or _NO_KEY,
            base_url=self.base_url,
            max_retries=0,
            timeout=openai.Timeout(_TIMEOUT_S, connect=_CONNECT_TIMEOUT_S),
        )

    async def __aenter__(self) -> OpenAIModel:
        """Nothing is opened before the first request."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; see `close`."""
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        *,
        may_call: bool = True,
        on_text: Callable[[str], None] = lambda text: None,
    ) -> ModelReply:
        """Ask once; see `ModelClient.complete`."""
        request: dict[str, Any] = {"model": self.model, "messages": list(messages), **self._extra}
        if tools:
            request["tools"] = list(tools)
            if not may_call:
                request["tool_choice"] = "none"
        try:
            if not self._stream:
                return _whole(await self._client.chat.completions.create(**request), on_text)
            return await self._streamed(request, on_text)
        except self._openai.OpenAIError as error:
            if self._wants_usage and self._stream and "stream_options" in str(error):
                self._wants_usage = False
                return await self.complete(messages, tools, may_call=may_call, on_text=on_text)
            raise self._failure(error) from error

    async def _streamed(self, request: dict[str, Any], on_text: Callable[[str], None]) -> ModelReply:
        options: dict[str, Any] = {"stream_options": {"include_usage": True}} if self._wants_usage else {}
        reply = _Assembly(on_text)
        async with await self._client.chat.completions.create(**request, stream=True, **options) as stream:
            try:
                async for chunk in stream:
                    reply.add(chunk.model_dump())
            except self._openai.OpenAIError:
                raise
            except Exception as error:
                # The SDK passes on whatever its HTTP client raises in the middle of a stream.
                raise ModelFailed("the model's answer broke off", kind="dropped") from error
        return reply.finished()

    def _failure(self, error: Exception) -> ModelFailed:
        openai = self._openai
        text = _message_of(error)
        if isinstance(error, openai.APITimeoutError):
            return ModelFailed("the model did not answer in time", kind="dropped")
        if isinstance(error, openai.APIConnectionError):
            return ModelFailed(
                f"there is no connection to {self.base_url}",
                kind="dropped",
                hint="check --base-url, and whether the server runs",
            )
        if not isinstance(error, openai.APIStatusError):
            kind: FailureKind = "overflow" if _OVERFLOW.search(text) else "busy"
            return ModelFailed(f"the model failed: {text}", kind=kind)
        status = error.status_code
        if status in (401, 403):
            return ModelFailed(
                f"{self.base_url} refuses the key ({status})", kind="auth", hint="check the key and its variable"
            )
        if status == 413 or (status in (400, 422, 500) and _OVERFLOW.search(text)):
            return ModelFailed(f"the conversation is too long for {self.model}: {text}", kind="overflow")
        if status in (408, 409, 425, 429) or status >= 500:
            return ModelFailed(
                f"the model is busy ({status}): {text}", kind="busy", retry_after_s=_retry_after(error.response.headers)
            )
        hint = "is the model's id right, and does it take tools?" if status in (400, 404, 422) else ""
        return ModelFailed(f"{self.base_url} does not take the request ({status}): {text}", kind="refused", hint=hint)


def _message_of(error: Exception) -> str:
    body = getattr(error, "body", None)
    if isinstance(body, Mapping):
        inner = body.get("error", body)
        if isinstance(inner, Mapping) and isinstance(inner.get("message"), str):
            return f"{inner['message'][:500]} {inner.get('code') or ''}".strip()
    return str(error)[:500]


def _retry_after(headers: Mapping[str, str]) -> float | None:
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return max(0.0, float(headers[name]) * unit_s)
        except (KeyError, ValueError):
            continue
    return None


def _whole(completion: Any, on_text: Callable[[str], None]) -> ModelReply:
    """A reply that came in one piece."""
    value = completion.model_dump() if hasattr(completion, "model_dump") else {}
    choices = value.get("choices") or []
    if not choices:
        raise ModelFailed("the endpoint answered without a choice", kind="busy")
    message = choices[0].get("message") or {}
    text = message.get("content") or ""
    if text:
        on_text(text)
    calls = [_as_call(call) for call in message.get("tool_calls") or [] if call.get("function")]
    usage = value.get("usage") or {}
    return ModelReply(
        text,
        _assistant(text, calls),
        choices[0].get("finish_reason") or "stop",
        usage.get("prompt_tokens") or 0,
        usage.get("completion_tokens") or 0,
    )


def _as_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    named = {"name": function.get("name") or "", "arguments": function.get("arguments") or ""}
    return {"id": call.get("id") or "", "type": "function", "function": named}


def _assistant(text: str, calls: list[dict[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if calls:
        for call in calls:
            # Without an id results could not be told apart; a few local servers give none. Nine letters and digits suit every endpoint.
            call["id"] = call["id"] or uuid.uuid4().hex[:9]
        message["tool_calls"] = calls
    elif not text:
        message["content"] = ""
    return message


class _Assembly:
    """Puts a streamed reply together, whatever way the endpoint splits it."""

    def __init__(self, on_text: Callable[[str], None]) -> None:
        self._on_text = on_text
        self._text: list[str] = []
        self._calls: list[dict[str, Any]] = []
        self._slots: dict[int, int] = {}
        self._finish = ""
        self._usage: Mapping[str, Any] = {}

    def add(self, chunk: Mapping[str, Any]) -> None:
        """Take one event of the stream."""
        self._usage = chunk.get("usage") or self._usage
        for choice in (chunk.get("choices") or [])[:1]:
            delta = choice.get("delta") or {}
            if text := delta.get("content"):
                self._text.append(text)
                self._on_text(text)
            for part in delta.get("tool_calls") or []:
                self._add_call(part)
            self._finish = choice.get("finish_reason") or self._finish

    def _add_call(self, part: Mapping[str, Any]) -> None:
        function = part.get("function") or {}
        name, arguments, id_ = function.get("name") or "", function.get("arguments") or "", part.get("id") or ""
        index = part.get("index")
        slot = self._slots.get(index) if isinstance(index, int) else (len(self._calls) - 1 if not id_ else None)
        # Some endpoints number every call 0; another id then means another call.
        if slot is not None and slot >= 0 and id_ and self._calls[slot]["id"] not in ("", id_):
            slot = None
        if slot is None or slot < 0:
            slot = len(self._calls)
            self._calls.append({"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
            if isinstance(index, int):
                self._slots[index] = slot
        call = self._calls[slot]
        call["id"] = call["id"] or id_
        known = call["function"]
        if name != known["name"]:
            known["name"] += name
        known["arguments"] += arguments if isinstance(arguments, str) else ""

    def finished(self) -> ModelReply:
        """The reply.

        Raises:
            ModelFailed: the stream ended before the reply did.
        """
        if not self._finish:
            raise ModelFailed("the model's answer broke off", kind="dropped")
        text = "".join(self._text)
        return ModelReply(
            text,
            _assistant(text, self._calls),
            self._finish,
            self._usage.get("prompt_tokens") or 0,
            self._usage.get("completion_tokens") or 0,
        )
