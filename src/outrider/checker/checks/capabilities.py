"""Checks of what a server declares: capabilities that are true, subscriptions, completions, extensions."""

from __future__ import annotations

import re
from typing import Any, Final

from outrider.checker.checks import Docket, check
from outrider.checker.speakers import Outcome
from outrider.checker.subject import Json, Subject, encode
from outrider.errors import METHOD_NOT_FOUND
from outrider.protocol.meta import SUBSCRIPTION_ID, check_extension_id
from outrider.protocol.model import LIST_KINDS

_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"


@check("capability.not-declared")
async def nothing_undeclared(subject: Subject, docket: Docket) -> None:
    """The lists that are not declared."""
    if subject.assumes_capabilities:
        return
    for kind in LIST_KINDS:
        if kind.capability in subject.capabilities:
            continue
        answer = await subject.ask(kind.method)
        found = (answer.result or {}).get(kind.member)
        docket.require(
            not found,
            "capability.not-declared",
            f"{kind.capability} is not declared, and {kind.method} has items",
            answer,
        )


@check("capability.listen", "capability.listen-filter")
async def subscriptions_work(subject: Subject, docket: Docket) -> None:
    """A subscription to everything that is declared to announce changes, ended once it is acknowledged."""
    declared = {
        kind.listen: True
        for kind in LIST_KINDS
        if isinstance(subject.capabilities.get(kind.capability), dict)
        and subject.capabilities[kind.capability].get("listChanged") is True
    }
    if not declared:
        return
    connection = await subject.connect() if not subject.is_stdio else subject.main
    request_id = subject.next_id()

    def is_for_us(message: Any) -> bool:
        return isinstance(message, dict) and _subscription(message) in (request_id, str(request_id), None)

    answer = await subject.ask(
        "subscriptions/listen",
        {"notifications": declared},
        request_id=request_id,
        on=connection,
        until=is_for_us,
    )
    if subject.is_stdio:
        cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}}
        await connection.say(encode(cancelled))
    first = next((message for message in answer.others if is_for_us(message)), None)
    acknowledged = isinstance(first, dict) and first.get("method") == _ACKNOWLEDGED
    docket.require(
        acknowledged and isinstance(first, dict) and _subscription(first) == request_id,
        "capability.listen",
        f"subscriptions/listen got {first.get('method') if isinstance(first, dict) else answer.shown()}"
        + (
            ""
            if not acknowledged or not isinstance(first, dict)
            else f" with the subscription id {_subscription(first)!r}"
        ),
        answer,
    )
    if acknowledged and isinstance(first, dict):
        params = first.get("params")
        granted = params.get("notifications") if isinstance(params, dict) else None
        extra = (
            [key for key, value in granted.items() if value and key not in declared]
            if isinstance(granted, dict)
            else []
        )
        docket.require(
            isinstance(granted, dict) and not extra,
            "capability.listen-filter",
            f"it acknowledged {granted!r} where {declared!r} was asked for",
            answer,
        )


def _subscription(message: Json) -> Any:
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return meta.get(SUBSCRIPTION_ID) if isinstance(meta, dict) else None


@check("capability.completions")
async def completions_are_true(subject: Subject, docket: Docket) -> None:
    """A completion of a prompt's argument, or of a template's variable."""
    reference: Json | None = None
    name = ""
    for prompt in subject.items("prompts/list"):
        arguments = prompt.get("arguments") if isinstance(prompt, dict) else None
        if isinstance(arguments, list) and arguments and isinstance(arguments[0], dict):
            reference, name = {"type": "ref/prompt", "name": prompt.get("name")}, str(arguments[0].get("name"))
            break
    else:
        for template in subject.items("resources/templates/list"):
            uri = template.get("uriTemplate") if isinstance(template, dict) else None
            if isinstance(uri, str) and (variable := re.search(r"\{[+#./;?&]?([A-Za-z0-9_]+)", uri)):
                reference, name = {"type": "ref/resource", "uri": uri}, variable[1]
                break
    if reference is None or subject.assumes_capabilities:
        return
    params = {"ref": reference, "argument": {"name": name, "value": ""}}
    answer = await subject.ask("completion/complete", params)
    if "completions" in subject.capabilities:
        docket.require(
            answer.code != METHOD_NOT_FOUND and answer.outcome is Outcome.REPLY,
            "capability.completions",
            f"completions is declared, and completion/complete got {answer.shown()}",
            answer,
        )
    else:
        docket.require(
            answer.result is None,
            "capability.completions",
            "completions is not declared, and completion/complete got a result",
            answer,
        )


@check("extension.ids", "extension.settings")
async def extensions_are_well_formed(subject: Subject, docket: Docket) -> None:
    """Every entry of capabilities.extensions."""
    extensions = subject.capabilities.get("extensions")
    if not isinstance(extensions, dict):
        return
    for identifier, settings in extensions.items():
        fault = check_extension_id(identifier)
        docket.require(fault is None, "extension.ids", f"{identifier!r}: {fault}", *subject.discovery[:1])
        docket.require(
            isinstance(settings, dict),
            "extension.settings",
            f"the settings of {identifier!r} are {settings!r}",
            *subject.discovery[:1],
        )
