"""Checks of Streamable HTTP: standard headers, statuses, origins, forms of answers, what earlier revisions left behind."""

from __future__ import annotations

import base64
from typing import Any, Final

from outrider.checker.checks import Docket, Phase, check
from outrider.checker.speakers import Answer, Outcome
from outrider.checker.subject import DISCOVER, Subject, encode
from outrider.client.target import HttpTarget
from outrider.errors import HEADER_MISMATCH, INVALID_PARAMS, METHOD_NOT_FOUND
from outrider.protocol.headers import LAST_EVENT_ID, METHOD, NAME, PROTOCOL_VERSION, SESSION_ID

_FOREIGN: Final = "attacker.example"
_NO_SUCH_TOOL: Final = "outrider-check-no-such-tool"
_LARGE_BYTES: Final = 32 << 20
_REFUSALS: Final = frozenset({400, 401, 403, 404, 421})


def _refused(answer: Answer) -> bool:
    """Whether the headers were refused; that the error must be in the body is a rule of its own."""
    return answer.status == 400 and (answer.code == HEADER_MISMATCH or answer.message is None)


def _require_refusal(docket: Docket, requirement_id: str, what: str, answer: Answer) -> None:
    """A header refusal: status and code, and that there is a JSON-RPC error at all."""
    docket.require(_refused(answer), requirement_id, f"{what} got {answer.shown()}", answer)
    if answer.status is not None and answer.status >= 400:
        docket.require(
            answer.error is not None,
            "http.header-mismatch-body",
            f"{what} was refused with {answer.shown()}",
            answer,
        )


@check(
    "http.version-header-missing",
    "http.version-header-mismatch",
    "http.method-header-missing",
    "http.method-header-mismatch",
    "http.method-header-case",
    "http.header-mismatch-body",
)
async def standard_headers_are_validated(subject: Subject, docket: Docket) -> None:
    """server/discover with one of its headers missing or wrong."""
    without_version = await subject.discover(headers={PROTOCOL_VERSION: None})
    if subject.is_dual and not _refused(without_version):
        # A server of both eras may read a request without the header as one of 2025-03-26, under which it fails in its own ways.
        docket.unclear(
            "http.version-header-missing", "a server of both eras may take it for 2025-03-26", without_version
        )
    else:
        _require_refusal(
            docket, "http.version-header-missing", "a request without MCP-Protocol-Version", without_version
        )
    mismatched = await subject.discover(meta=subject.meta("1900-01-01"))
    _require_refusal(docket, "http.version-header-mismatch", "a version header that the body contradicts", mismatched)
    no_method = await subject.discover(headers={METHOD: None})
    _require_refusal(docket, "http.method-header-missing", "a request without Mcp-Method", no_method)
    other_method = await subject.discover(headers={METHOD: "tools/list"})
    _require_refusal(docket, "http.method-header-mismatch", "Mcp-Method: tools/list on server/discover", other_method)
    upper = await subject.discover(headers={METHOD: DISCOVER.upper()})
    _require_refusal(docket, "http.method-header-case", f"Mcp-Method: {DISCOVER.upper()}", upper)


@check("http.header-names-case")
async def header_names_have_no_case(subject: Subject, docket: Docket) -> None:
    """All header names in upper case."""
    headers = subject.headers(DISCOVER)
    changes: dict[str, str | None] = dict.fromkeys(headers)
    changes.update({name.upper(): value for name, value in headers.items()})
    answer = await subject.discover(headers=changes)
    docket.require(
        answer.result is not None or not _answers(subject),
        "http.header-names-case",
        f"with header names in upper case it got {answer.shown()}",
        answer,
    )


def _answers(subject: Subject) -> bool:
    return any(answer.result is not None for answer in subject.discovery)


@check("http.name-header-missing", "http.name-header-mismatch", "http.name-header-encoded", "http.header-mismatch-body")
async def name_header_is_validated(subject: Subject, docket: Docket) -> None:
    """Something that may be read, with Mcp-Name missing, wrong, and encoded."""
    method, params = _something_to_name(subject)
    name = str(next(iter(params.values())))
    missing = await subject.ask(method, params, headers={NAME: None})
    mismatch = await subject.ask(method, params, headers={NAME: "something-else"})
    is_invented = name == _NO_SUCH_TOOL
    for requirement_id, what, answer in (
        ("http.name-header-missing", f"{method} without Mcp-Name", missing),
        ("http.name-header-mismatch", f"{method} of {name} with Mcp-Name: something-else", mismatch),
    ):
        if is_invented and answer.code in (INVALID_PARAMS, METHOD_NOT_FOUND):
            docket.unclear(
                requirement_id, "there is nothing harmless to name, and an unknown tool is refused anyway", answer
            )
        else:
            _require_refusal(docket, requirement_id, what, answer)
    sentinel = f"=?base64?{base64.b64encode(name.encode()).decode()}?="
    encoded = await subject.ask(method, params, headers={NAME: sentinel})
    docket.require(
        encoded.code != HEADER_MISMATCH and encoded.outcome is Outcome.REPLY,
        "http.name-header-encoded",
        f"{method} with Mcp-Name: {sentinel} got {encoded.shown()}",
        encoded,
    )


def _something_to_name(subject: Subject) -> tuple[str, dict[str, Any]]:
    """A resource or a prompt to read, or else a tool that does not exist: no tool may be called."""
    for resource in subject.items("resources/list"):
        if isinstance(resource, dict) and isinstance(resource.get("uri"), str):
            return "resources/read", {"uri": resource["uri"]}
    for prompt in subject.items("prompts/list"):
        if isinstance(prompt, dict) and isinstance(prompt.get("name"), str):
            return "prompts/get", {"name": prompt["name"]}
    return "tools/call", {"name": _NO_SUCH_TOOL}


@check("http.unknown-param-header", "http.ignores-session-id", "http.ignores-last-event-id")
async def foreign_headers_are_ignored(subject: Subject, docket: Docket) -> None:
    """Headers that mean nothing to this request."""
    if not _answers(subject):
        return
    for requirement_id, name, value in (
        ("http.unknown-param-header", "Mcp-Param-Outrider", "check"),
        ("http.ignores-session-id", SESSION_ID, "outrider-check-no-such-session"),
        ("http.ignores-last-event-id", LAST_EVENT_ID, "outrider-check-1"),
    ):
        answer = await subject.discover(headers={name: value})
        if requirement_id == "http.ignores-session-id" and subject.is_dual and answer.result is None:
            docket.unclear(requirement_id, "the advice is for servers of this revision only", answer)
        else:
            docket.require(answer.result is not None, requirement_id, f"with {name} it got {answer.shown()}", answer)


@check("http.origin", "http.host")
async def foreign_origins_are_refused(subject: Subject, docket: Docket) -> None:
    """A web page of another origin, and a host name that is not the server's."""
    origin = f"http://{_FOREIGN}"
    answer = await _good(subject, {"Origin": origin})
    is_local = isinstance(subject.target, HttpTarget) and subject.target.is_loopback
    if answer.status != 403 and not is_local:
        docket.unclear(
            "http.origin", f"{origin} got {answer.shown()}; the server may allow every origin on purpose", answer
        )
    else:
        docket.require(answer.status == 403, "http.origin", f"with Origin: {origin} it got {answer.shown()}", answer)
    if is_local:
        answer = await _good(subject, {"Host": _FOREIGN})
        docket.require(
            answer.status in _REFUSALS, "http.host", f"with Host: {_FOREIGN} it got {answer.shown()}", answer
        )


async def _good(subject: Subject, headers: dict[str, str | None]) -> Answer:
    """A good request of the server's era with other headers: `server/discover`, or `initialize`."""
    if subject.is_modern:
        return await subject.discover(headers=headers)
    assert subject.legacy is not None
    params = {"protocolVersion": subject.legacy.version, "capabilities": {}, "clientInfo": subject.client_info}
    return await subject.legacy.ask("initialize", params, headers={**headers, SESSION_ID: None, PROTOCOL_VERSION: None})


@check("http.accept")
async def accept_is_understood(subject: Subject, docket: Docket) -> None:
    """Other spellings of the same wish."""
    for accept in ("text/event-stream;q=0.5, application/json", "*/*"):
        answer = await _good(subject, {"Accept": accept})
        docket.require(
            answer.result is not None or (subject.is_modern and not _answers(subject)),
            "http.accept",
            f"with Accept: {accept} it got {answer.shown()}",
            answer,
        )


@check("http.get", "http.delete")
async def earlier_verbs(subject: Subject, docket: Docket) -> None:
    """GET and DELETE as clients of earlier revisions send them."""
    version = {PROTOCOL_VERSION: subject.version}

    for verb in ("GET", "DELETE"):
        requirement_id = f"http.{verb.lower()}"
        headers = {"Accept": "text/event-stream", **version}
        answer = await subject.main.say(b"", headers=headers, verb=verb)
        if subject.is_dual and answer.status != 405:
            docket.unclear(requirement_id, "the advice is for servers of this revision only", answer)
        else:
            docket.require(answer.status == 405, requirement_id, f"{verb} got {answer.shown()}", answer)


@check("http.notification")
async def notifications_are_accepted_or_refused(subject: Subject, docket: Docket) -> None:
    """A notification that no server acts on: the end of a request that never was."""
    method = "notifications/cancelled"
    message = {
        "jsonrpc": "2.0",
        "method": method,
        "params": {"requestId": "outrider-check-no-such-request", "_meta": subject.meta()},
    }
    answer = await subject.main.say(encode(message), headers=subject.headers(method))
    sound = (answer.status == 202 and not answer.body and not answer.is_stream) or (
        answer.status is not None and answer.status >= 400
    )
    docket.require(
        sound,
        "http.notification",
        f"a notification got {answer.shown()}" + (f" and a body of {len(answer.body)} bytes" if answer.body else ""),
        answer,
    )


@check("http.large-body", phase=Phase.HOSTILE)
async def large_bodies_are_bounded(subject: Subject, docket: Docket) -> None:
    """A good request with 32 MiB of padding, for servers on this machine only: the network is not ours to fill."""
    if not (isinstance(subject.target, HttpTarget) and subject.target.is_loopback):
        docket.unclear("http.large-body", "not tried on a server that is not on this machine")
        return
    padding = b'"' + b"x" * _LARGE_BYTES + b'"'
    body = encode(subject.message(DISCOVER, {"padding": "@"})).replace(b'"@"', padding)
    answer = await subject.main.say(body, headers=subject.headers(DISCOVER))
    following = await _good(subject, {})
    # A server that refuses early may close the connection while the body is still being sent.
    docket.require(
        answer.outcome is not Outcome.SILENT and following.outcome is Outcome.REPLY,
        "http.large-body",
        f"a body of 32 MiB got {answer.shown()}, the next request {following.shown()}",
        following,
    )


@check(
    "http.content-type",
    "http.buffering",
    "http.stream-form",
    "http.stream-ends",
    "http.head-status",
    "http.session-id",
    phase=Phase.LAST,
)
async def forms_of_answers(subject: Subject, docket: Docket) -> None:
    """Every HTTP answer so far."""
    for answer in subject.answers:
        if answer.status is None or (not subject.is_modern and not answer.legacy):
            continue
        content_type = answer.headers.get("content-type", "").split(";")[0].strip().lower()
        if answer.message is not None and answer.status < 300:
            docket.require(
                content_type in ("application/json", "text/event-stream"),
                "http.content-type",
                f"a reply came as {content_type or 'nothing'}",
                answer,
            )
        if answer.is_stream:
            for fault in answer.stream_faults:
                docket.breach("http.stream-form", fault, answer)
            docket.keep("http.stream-form")
            if not answer.legacy:
                docket.require(
                    answer.headers.get("x-accel-buffering", "").lower() == "no",
                    "http.buffering",
                    "an event stream without X-Accel-Buffering: no",
                    answer,
                )
                if answer.message is not None:
                    docket.require(
                        answer.stream_ended,
                        "http.stream-ends",
                        "the stream went on for seconds after the reply",
                        answer,
                    )
        if answer.result is not None and not answer.legacy:
            docket.require(answer.status == 200, "http.head-status", f"a result came with {answer.status}", answer)
        if not answer.legacy and answer.result is not None:
            docket.require(
                SESSION_ID.lower() not in answer.headers,
                "http.session-id",
                "a modern request was answered with a session id",
                answer,
            )
