"""What a server may ask of a client while it works on a request: a form, a visit to a URL, a model's answer, the roots.

Decided here: how each question is written, which client capability it needs, and how its answer is read. Not here: how question and answer
travel: inside results in the modern era (`context`), as requests in the legacy one (`legacy`). Both use these same values.

Spec: 2026-07-28 client/elicitation, client/sampling, client/roots, basic/patterns/mrtr. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from outrider.server.content import Message
from outrider.server.schemas import FormType, InvalidArguments

__all__ = [
    "Elicit",
    "ElicitUrl",
    "Elicited",
    "InputRequest",
    "InvalidAnswer",
    "ListRoots",
    "Question",
    "Root",
    "Sample",
    "Sampled",
    "WireQuestion",
]


class InvalidAnswer(Exception):
    """The client's answer to a question is not of the shape that the question asked for."""


class Elicited(Struct, frozen=True):
    """The user's answer to a form or a URL.

    Attributes:
        action: "accept", "decline" or "cancel".
        content: the submitted form, checked against the question: a value of the type that was asked for, or a dict when the question was
            a schema; None unless accepted, and always for a URL.
    """

    action: Literal["accept", "decline", "cancel"]
    content: Any = None

    @property
    def accepted(self) -> bool:
        """Whether the user agreed."""
        return self.action == "accept"


class Sampled(Struct, frozen=True):
    """A model's answer, produced by the client.

    Attributes:
        wire: the CreateMessageResult as it came: `role`, `content`, `model`, `stopReason`.
    """

    wire: dict[str, Any]

    @property
    def text(self) -> str:
        """The text of the answer, all text blocks joined; "" when there is none."""
        content = self.wire.get("content")
        blocks = content if isinstance(content, list) else [content]
        return "".join(b["text"] for b in blocks if isinstance(b, dict) and isinstance(b.get("text"), str))


class Root(Struct, frozen=True):
    """A directory or file that the client considers relevant; informational, not a permission."""

    uri: str
    name: str | None = None


_PRIMITIVES: Final = ("string", "integer", "number", "boolean")


def _is_flat(schema: Mapping[str, Any]) -> bool:
    for entry in schema.get("properties", {}).values():
        kind = entry.get("type")
        if kind == "array":
            items = entry.get("items", {})
            if not ("enum" in items or "anyOf" in items):
                return False
        elif kind not in _PRIMITIVES:
            return False
    return True


class Elicit:
    """Ask the user to fill a form.

    Never ask for a password, key or token this way: the form passes through the client. Use `ElicitUrl`.

    Spec: 2026-07-28 client/elicitation#form-mode-elicitation-requests
    """

    method: Final = "elicitation/create"

    def __init__(self, message: str, form: type | Mapping[str, Any]) -> None:
        """Prepare the question.

        Args:
            message: why the input is needed, for the user.
            form: a dataclass, TypedDict or struct with fields of plain types, or a JSON Schema of the restricted kind.

        Raises:
            TypeError: the form is not flat, or has fields other than texts, numbers, booleans and enumerations.
        """
        self.message = message
        self._form = None if isinstance(form, Mapping) else FormType(form)
        self.schema: dict[str, Any] = dict(form) if isinstance(form, Mapping) else FormType(form).schema
        if not _is_flat(self.schema):
            raise TypeError("a form has only texts, numbers, booleans and enumerations as fields")

    @property
    def capability(self) -> dict[str, Any]:
        """What the client must have declared."""
        return {"elicitation": {"form": {}}}

    def params(self) -> dict[str, Any]:
        """The params of the request."""
        return {"mode": "form", "message": self.message, "requestedSchema": self.schema}

    def is_supported(self, capabilities: Mapping[str, Any]) -> bool:
        """Whether the client offers forms; a bare `elicitation` means that it does. Spec: client/elicitation#capabilities"""
        modes = capabilities.get("elicitation")
        return isinstance(modes, dict) and ("form" in modes or "url" not in modes)

    def read(self, answer: Any) -> Elicited:
        """Check the client's answer.

        Raises:
            InvalidAnswer: it has no known action, or accepts with content that does not fit the form.
        """
        action = _action_of(answer)
        if action != "accept":
            return Elicited(action)
        content = answer.get("content")
        if not isinstance(content, dict):
            raise InvalidAnswer("accepted without content")
        if self._form is not None:
            try:
                return Elicited(action, self._form.read(content))
            except InvalidArguments as error:
                raise InvalidAnswer(str(error)) from error
        missing = [name for name in self.schema.get("required", ()) if name not in content]
        if missing:
            raise InvalidAnswer(f"the form lacks {', '.join(missing)}")
        return Elicited(action, content)


class ElicitUrl:
    """Ask the user to visit a URL, for what must not pass through the client: secrets, consent, payment.

    Spec: 2026-07-28 client/elicitation#url-mode-elicitation-requests
    """

    method: Final = "elicitation/create"

    def __init__(self, message: str, url: str, *, elicitation_id: str | None = None) -> None:
        """Prepare the question. `elicitation_id` is sent to 2025-11-25 clients only, which require one."""
        self.message, self.url, self.elicitation_id = message, url, elicitation_id

    @property
    def capability(self) -> dict[str, Any]:
        """What the client must have declared."""
        return {"elicitation": {"url": {}}}

    def params(self) -> dict[str, Any]:
        """The params of the request."""
        return {"mode": "url", "message": self.message, "url": self.url}

    def is_supported(self, capabilities: Mapping[str, Any]) -> bool:
        """Whether the client opens URLs."""
        modes = capabilities.get("elicitation")
        return isinstance(modes, dict) and "url" in modes

    def read(self, answer: Any) -> Elicited:
        """Check the client's answer. Raises InvalidAnswer when it has no known action."""
        return Elicited(_action_of(answer))


def _action_of(answer: Any) -> Literal["accept", "decline", "cancel"]:
    action = answer.get("action") if isinstance(answer, dict) else None
    for known in ("accept", "decline", "cancel"):
        if action == known:
            return known
    raise InvalidAnswer("not an answer to an elicitation: it has no known action")


class Sample:
    """Ask the client for a model's answer.

    Sampling is deprecated since 2026-07-28; prefer a model provider's own interface in new servers.

    Spec: 2026-07-28 client/sampling
    """

    method: Final = "sampling/createMessage"

    def __init__(
        self, messages: str | Sequence[Message | Mapping[str, Any]], *, max_tokens: int, **options: Any
    ) -> None:
        """Prepare the question.

        Args:
            messages: the conversation, or a text for a single user message.
            max_tokens: the most that may be generated.
            options: further params in their wire names: systemPrompt, temperature, stopSequences, modelPreferences, tools, toolChoice, …
        """
        self.messages = (Message.user(messages),) if isinstance(messages, str) else tuple(messages)
        self.max_tokens, self.options = max_tokens, options

    @property
    def capability(self) -> dict[str, Any]:
        """What the client must have declared."""
        return {"sampling": {"tools": {}} if "tools" in self.options or "toolChoice" in self.options else {}}

    def params(self) -> dict[str, Any]:
        """The params of the request."""
        return {"messages": self.messages, "maxTokens": self.max_tokens, **self.options}

    def is_supported(self, capabilities: Mapping[str, Any]) -> bool:
        """Whether the client samples, and with tools when the question has some."""
        sampling = capabilities.get("sampling")
        return isinstance(sampling, dict) and self.capability["sampling"].keys() <= sampling.keys()

    def read(self, answer: Any) -> Sampled:
        """Check the client's answer. Raises InvalidAnswer when it is not a message with content."""
        if not isinstance(answer, dict) or not isinstance(answer.get("content"), (dict, list)):
            raise InvalidAnswer("not an answer to a sampling request: it has no content")
        return Sampled(answer)


class ListRoots:
    """Ask for the directories and files that the client considers relevant. Roots are deprecated since 2026-07-28.

    Spec: 2026-07-28 client/roots
    """

    method: Final = "roots/list"

    @property
    def capability(self) -> dict[str, Any]:
        """What the client must have declared."""
        return {"roots": {}}

    def params(self) -> dict[str, Any]:
        """The params of the request."""
        return {}

    def is_supported(self, capabilities: Mapping[str, Any]) -> bool:
        """Whether the client has roots."""
        return isinstance(capabilities.get("roots"), dict)

    def read(self, answer: Any) -> tuple[Root, ...]:
        """Check the client's answer. Raises InvalidAnswer when it is not a list of roots."""
        try:
            return msgspec.convert(answer["roots"], tuple[Root, ...])
        except (TypeError, KeyError, msgspec.ValidationError) as error:
            raise InvalidAnswer("not an answer to roots/list: it has no list of roots") from error


class WireQuestion:
    """A question in wire form that is passed on as it is, as a gateway does; its answer is not looked at.

    Spec: 2026-07-28 basic/patterns/mrtr#inputrequests
    """

    def __init__(self, method: str, params: Mapping[str, Any]) -> None:
        """Take over a request that a server put into an input-required result.

        Raises:
            ValueError: it is none of the three that clients answer.
        """
        if method not in (Elicit.method, Sample.method, ListRoots.method):
            raise ValueError(f"{method!r} is no request that a client answers")
        self.method, self._params = method, dict(params)

    @property
    def capability(self) -> dict[str, Any]:
        """What the client must have declared."""
        if self.method == Elicit.method:
            return {"elicitation": {"url": {}} if self._params.get("mode") == "url" else {"form": {}}}
        if self.method == ListRoots.method:
            return {"roots": {}}
        return {"sampling": {"tools": {}} if self._params.keys() & {"tools", "toolChoice"} else {}}

    def params(self) -> dict[str, Any]:
        """The params of the request."""
        return self._params

    def is_supported(self, capabilities: Mapping[str, Any]) -> bool:
        """Whether the client declared what it needs; a bare `elicitation` means forms."""
        ((name, parts),) = self.capability.items()
        declared = capabilities.get(name)
        if not isinstance(declared, dict):
            return False
        return parts.keys() <= declared.keys() or ("form" in parts and "url" not in declared)

    def read(self, answer: Any) -> Any:
        """The answer as it came."""
        return answer


Question = Elicit | ElicitUrl | Sample | ListRoots | WireQuestion


class InputRequest(Struct, frozen=True):
    """Return it to ask the client for input in full control; `ctx.ask` and its relatives are usually simpler.

    Attributes:
        questions: by key; empty to only hand out a state, as when shedding load.
        state: replaces `ctx.state`, or None to keep it.
    """

    questions: Mapping[str, Question] = {}
    state: dict[str, Any] | None = None
