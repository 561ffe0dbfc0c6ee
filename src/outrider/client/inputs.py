"""Answering servers that ask back: elicitation, sampling and roots, the same handlers in both eras.

Decided here: which capabilities a set of handlers stands for, how a server's request becomes a call of a handler, and what its answer
must be like before it is sent. Not here: how the request arrives (an interim result in `client`, a request of the server's own in
`legacy_session`), and how a person is asked (`cli`).

Spec: 2026-07-28 basic/patterns/mrtr, client/elicitation, client/sampling, client/roots
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec import Struct

from outrider.errors import INVALID_PARAMS, METHOD_NOT_FOUND, InputNeeded, LocalProtocolError, OutriderError

__all__ = ["CANCEL", "DECLINE", "Elicited", "FormRequest", "InputHandlers", "UrlRequest"]

ELICIT: Final = "elicitation/create"
SAMPLE: Final = "sampling/createMessage"
ROOTS: Final = "roots/list"


class FormRequest(Struct, frozen=True):
    """A form the server wants filled in.

    Attributes:
        message: why, in the server's words: untrusted.
        schema: a flat JSON Schema object of texts, numbers, booleans and choices, as it came.
        server: the target that asks, as it may be shown: a person must see who wants to know.
    """

    message: str
    schema: dict[str, Any]
    server: str

    def defaults(self) -> dict[str, Any]:
        """The fields that have a default, with it. Spec: 2026-07-28 client/elicitation#requested-schema (SHOULD pre-populate)"""
        properties = self.schema.get("properties")
        if not isinstance(properties, dict):
            return {}
        return {
            name: rule["default"] for name, rule in properties.items() if isinstance(rule, dict) and "default" in rule
        }


class UrlRequest(Struct, frozen=True):
    """A page the server wants a person to visit; never fetched and never opened without consent.

    Attributes:
        message: why, in the server's words: untrusted.
        url: the full URL, to be shown before consent.
        server: the target that asks, as it may be shown.
    """

    message: str
    url: str
    server: str


class Elicited(Struct, frozen=True):
    """A person's answer: `action` is "accept", "decline" or "cancel"; `content` holds the form's fields on accept."""

    action: str
    content: Mapping[str, Any] | None = None


DECLINE: Final = Elicited("decline")
CANCEL: Final = Elicited("cancel")


class UnfitRequest(OutriderError):
    """A server's request that cannot be handed to a handler. `code` is the JSON-RPC error a legacy server is answered with."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class InputHandlers:
    """Who answers when a server asks. What has no handler is not declared, and so may not be asked.

    Attributes:
        form: fills in a form.
        url: shows a URL, and tells whether the person agreed to visit it.
        sample: runs a model; gets the params of `sampling/createMessage`, returns a CreateMessageResult.
        roots: returns the Root objects, each `{"uri": "file://…", "name"?: str}`.
        sampling_tools: the `sample` handler understands tools in sampling requests.
    """

    form: Callable[[FormRequest], Awaitable[Elicited]] | None = None
    url: Callable[[UrlRequest], Awaitable[Elicited]] | None = None
    sample: Callable[[dict[str, Any]], Awaitable[Mapping[str, Any]]] | None = None
    roots: Callable[[], Awaitable[Sequence[Mapping[str, Any]]]] | None = None
    sampling_tools: bool = False

    def capabilities(self) -> dict[str, Any]:
        """The ClientCapabilities these handlers stand for. Spec: 2026-07-28 client/elicitation#capabilities (MUST declare)"""
        declared: dict[str, Any] = {}
        elicitation: dict[str, Any] = {
            mode: {} for mode, handler in (("form", self.form), ("url", self.url)) if handler is not None
        }
        if elicitation:
            declared["elicitation"] = elicitation
        if self.sample is not None:
            declared["sampling"] = {"tools": {}} if self.sampling_tools else {}
        if self.roots is not None:
            declared["roots"] = {}
        return declared

    def can_answer(self, method: str) -> bool:
        """Whether there is a handler for a server's request."""
        match method:
            case "elicitation/create":
                return self.form is not None or self.url is not None
            case "sampling/createMessage":
                return self.sample is not None
            case "roots/list":
                return self.roots is not None
        return False

    async def answer_all(
        self, asking: str, requests: Mapping[str, Any], state: str | None, server: str
    ) -> dict[str, Any]:
        """The results for all requests of an interim result, or of a task, by their keys.

        Args:
            asking: the method that the server asks before it answers.
            requests: `{"method": str, "params": {…}}` by key.
            state: what goes back with the answers, for the error.
            server: the target that asks, as it may be shown.

        Raises:
            InputNeeded: one of them has no handler; nobody was asked for it and what follows.
        """
        answers = {}
        for key, request in requests.items():
            method, params = request["method"], request.get("params")
            if not self.can_answer(method):
                raise InputNeeded(asking, dict(requests), state)
            answers[key] = await self.answer(method, params if isinstance(params, dict) else {}, server)
        return answers

    async def answer(self, method: str, params: Mapping[str, Any], server: str) -> dict[str, Any]:
        """The result for one request of a server's.

        Args:
            method: `elicitation/create`, `sampling/createMessage` or `roots/list`.
            params: its params.
            server: the target that asks, as it may be shown.

        Raises:
            UnfitRequest: no handler, or params that cannot be read.
            LocalProtocolError: the handler's own answer does not fit what was asked.
        """
        if method == ROOTS and self.roots is not None:
            return {"roots": [dict(root) for root in await self.roots()]}
        if method == SAMPLE and self.sample is not None:
            return dict(await self.sample(dict(params)))
        if method == ELICIT and params.get("mode", "form") == "url" and self.url is not None:
            return await self._visit(params, server)
        if method == ELICIT and params.get("mode", "form") == "form" and self.form is not None:
            return await self._fill_in(params, server)
        raise UnfitRequest(METHOD_NOT_FOUND, f"this client does not offer {method[:100]}")

    async def _visit(self, params: Mapping[str, Any], server: str) -> dict[str, Any]:
        url, message = params.get("url"), params.get("message")
        if not isinstance(url, str) or not isinstance(message, str) or not url.startswith(("https://", "http://")):
            raise UnfitRequest(INVALID_PARAMS, "an elicitation by URL needs a message and an http or https URL")
        assert self.url is not None
        return {"action": (await self.url(UrlRequest(message, url, server))).action}

    async def _fill_in(self, params: Mapping[str, Any], server: str) -> dict[str, Any]:
        schema, message = params.get("requestedSchema"), params.get("message")
        if not isinstance(schema, dict) or not isinstance(message, str):
            raise UnfitRequest(INVALID_PARAMS, "an elicitation by form needs a message and a requestedSchema")
        assert self.form is not None
        elicited = await self.form(FormRequest(message, schema, server))
        if elicited.action != "accept":
            return {"action": elicited.action}
        content = dict(elicited.content or {})
        _require_fit(content, schema)
        return {"action": "accept", "content": content}


def _require_fit(content: dict[str, Any], schema: dict[str, Any]) -> None:
    """Spec: 2026-07-28 client/elicitation#security-considerations (SHOULD validate against the schema)"""
    from outrider.protocol.schema_validation import Validator

    violations = Validator(schema).check(content)
    if violations:
        told = "; ".join(map(str, violations[:3]))
        raise LocalProtocolError(f"the form was not filled in as asked: {told}", hint="answer again, or decline")
