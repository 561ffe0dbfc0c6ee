"""Checks of what a server offers: lists, caching hints, capabilities, subscriptions, tools, resources, prompts and the texts about them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Any, Final

from outrider.checker.checks import Docket, check
from outrider.checker.checks.discovery import is_ttl
from outrider.checker.speakers import Answer, Outcome
from outrider.checker.subject import Json, Listed, Subject, encode
from outrider.client.target import HttpTarget
from outrider.errors import INVALID_PARAMS, METHOD_NOT_FOUND, OutriderError
from outrider.protocol.headers import header_params
from outrider.protocol.meta import SUBSCRIPTION_ID, check_extension_id
from outrider.protocol.model import LIST_KINDS, PROMPTS, TOOLS
from outrider.protocol.schema import ReferenceKind, SchemaDocument, dialect_of
from outrider.protocol.schema_findings import SchemaFinding, Verdict, check_input_schema, check_output_schema
from outrider.protocol.schema_validation import Validator

_INVENTED: Final = "outrider-check-no-such-thing"
_THIRTY_DAYS_MS: Final = 30 * 86_400_000
_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_PROVIDER_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S*")
_BUDGET_TOKENS: Final = 20_000
_MAX_SCHEMA_BYTES: Final = 32_768
_MAX_INSTRUCTIONS: Final = 4_000
_KEPT_CONTROLS: Final = frozenset("\t\n\r")
_JOINERS: Final = frozenset("\u200c\u200d\ufe0e\ufe0f")
_ORDERS: Final = re.compile(
    r"(?i)\b(?:ignore|disregard|forget|override)\b[^.\n]{0,30}\b(?:previous|prior|above|earlier|all|other)\b[^.\n]{0,30}"
    r"\b(?:instructions?|rules?|prompts?|tools?|context)\b"
    r"|</?\s*(?:system|important|instructions?|assistant|secret)\s*>"
    r"|\bdo not (?:tell|inform|mention|reveal|show)\b[^.\n]{0,40}\b(?:the )?user\b"
    r"|\b(?:you must|always) (?:call|use|run) this (?:tool )?(?:first|before)\b"
    r"|\b(?:reveal|print|send|include)\b[^.\n]{0,30}\b(?:system prompt|api[ _-]?keys?|\.ssh|id_rsa|credentials)\b"
)
_PRAISE: Final = re.compile(
    r"(?i)\b(?:best|leading|powerful|amazing|awesome|revolutionary|world-class|cutting-edge|state-of-the-art|seamless(?:ly)?|"
    r"effortless(?:ly)?|ultimate|premier|unparalleled|blazing(?:ly)?[- ]fast|industry-leading|next-generation)\b"
)


# -- lists ---------------------------------------------------------------------------------------------------------------------------


@check("capability.lists", "list.ends", "list.cursor-type", "list.stable-order", "list.unique")
async def lists_are_sound(subject: Subject, docket: Docket) -> None:
    """Every declared list, read twice."""
    is_listed = "resources/list" in subject.lists
    for method, listed in subject.lists.items():
        first = listed.pages[0]
        if method == "resources/templates/list" and is_listed and first.error is not None:
            continue  # The capability promises resources/list; templates are one way to add to it.
        docket.require(
            all(page.result is not None for page in listed.pages)
            and isinstance((first.result or {}).get(listed.kind.member), list),
            "capability.lists",
            f"{listed.kind.capability} is declared, and {method} got {_worst(listed).shown()}",
            _worst(listed),
        )
        for page in listed.pages:
            cursor = (page.result or {}).get("nextCursor", "")
            docket.require(
                isinstance(cursor, str), "list.cursor-type", f"the nextCursor of {method} is {cursor!r}", page
            )
        if first.result is None:
            continue
        docket.require(
            listed.ended,
            "list.ends",
            f"{method} repeats a cursor or goes on after {len(listed.pages)} pages",
            listed.pages[-1],
        )
        if not listed.ended:
            continue
        names = _names(listed, listed.items)
        doubled = sorted({name for name in names if names.count(name) > 1})
        docket.require(not doubled, "list.unique", f"{method} has {', '.join(doubled[:5])} more than once", first)
        if listed.again is not None:
            again = _names(listed, listed.again)
            if sorted(names) == sorted(again):
                docket.require(
                    names == again, "list.stable-order", f"{method} has another order the second time", first
                )


def _worst(listed: Listed) -> Answer:
    return next((page for page in listed.pages if page.result is None), listed.pages[0])


def _names(listed: Listed, items: list[Any]) -> list[str]:
    return [str(item.get(listed.kind.identity)) for item in items if isinstance(item, dict)]


@check("list.invalid-cursor", "list.params-cursor-type")
async def invalid_cursors_are_refused(subject: Subject, docket: Docket) -> None:
    """A cursor that the server never gave, and a number."""
    for method, listed in subject.lists.items():
        if listed.pages[0].result is None:
            continue
        for requirement_id, cursor in (("list.invalid-cursor", _INVENTED), ("list.params-cursor-type", 7)):
            answer = await _ask(subject, method, {"cursor": cursor})
            docket.require(
                answer.code == INVALID_PARAMS
                or (requirement_id == "list.params-cursor-type" and answer.error is not None and answer.code != -32603),
                requirement_id,
                f"{method} with the cursor {cursor!r} got {answer.shown()}",
                answer,
            )


async def _ask(subject: Subject, method: str, params: Json) -> Answer:
    """A request in the era of the server."""
    if subject.is_modern:
        return await subject.ask(method, params)
    assert subject.legacy is not None
    return await subject.legacy.ask(method, params)


# -- caching -------------------------------------------------------------------------------------------------------------------------


@check("cache.list-ttl", "cache.list-scope", "cache.same-scope", "cache.useful-ttl", "cache.reasonable-ttl")
async def lists_have_hints(subject: Subject, docket: Docket) -> None:
    """Every page of every list."""
    for answer in subject.discovery[:1]:
        _check_reasonable(answer, "server/discover", docket)
    for method, listed in subject.lists.items():
        scopes = []
        for page in listed.pages:
            result = page.result
            if result is None:
                continue
            docket.require(
                is_ttl(result.get("ttlMs")), "cache.list-ttl", f"the ttlMs of {method} is {result.get('ttlMs')!r}", page
            )
            docket.require(
                result.get("cacheScope") in ("public", "private"),
                "cache.list-scope",
                f"the cacheScope of {method} is {result.get('cacheScope')!r}",
                page,
            )
            scopes.append(result.get("cacheScope"))
            _check_reasonable(page, method, docket)
        if len(scopes) > 1:
            docket.require(
                len(set(map(repr, scopes))) == 1,
                "cache.same-scope",
                f"the pages of {method} are {', '.join(map(repr, scopes))}",
                *listed.pages[:3],
            )
        declared = subject.capabilities.get(listed.kind.capability)
        announced = isinstance(declared, dict) and declared.get("listChanged") is True
        if listed.again == listed.items and not announced:
            zero = [page for page in listed.pages if (page.result or {}).get("ttlMs") == 0]
            docket.require(
                not zero, "cache.useful-ttl", f"the ttlMs of {method} is 0, and it did not change", *zero[:1]
            )


def _check_reasonable(answer: Answer, method: str, docket: Docket) -> None:
    ttl = (answer.result or {}).get("ttlMs")
    if is_ttl(ttl):
        docket.require(
            ttl <= _THIRTY_DAYS_MS,  # type: ignore[operator]
            "cache.reasonable-ttl",
            f"the ttlMs of {method} is {ttl}",
            answer,
        )


@check("cache.public-varies")
async def public_is_the_same_for_all(subject: Subject, docket: Docket) -> None:
    """Public lists once more without the credential."""
    target = subject.target
    if not isinstance(target, HttpTarget) or not target.headers:
        return
    anonymous = await subject.connect_without_credential()
    for method, listed in subject.lists.items():
        result = listed.pages[0].result
        if result is None or result.get("cacheScope") != "public":
            continue
        answer = await subject.ask(method, on=anonymous)
        if answer.result is not None:
            docket.require(
                answer.result.get(listed.kind.member) == result.get(listed.kind.member),
                "cache.public-varies",
                f"{method} is public and differs without the credential",
                listed.pages[0],
                answer,
            )
        else:
            docket.unclear("cache.public-varies", f"without the credential {method} got {answer.shown()}", answer)


# -- capabilities --------------------------------------------------------------------------------------------------------------------


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


# -- tools ---------------------------------------------------------------------------------------------------------------------------


@check(
    "tool.name",
    "tool.name-form",
    "tool.input-schema",
    "tool.schema-valid",
    "tool.schema-dialect",
    "tool.schema-refs",
    "tool.schema-size",
    "tool.header-annotation",
    "tool.output-schema",
    "tool.optional-nulls",
    "tool.description",
    "tool.description-unique",
    "tool.provider-names",
    "tool.token-budget",
)
async def tools_are_sound(subject: Subject, docket: Docket) -> None:
    """Every listed tool."""
    listed = subject.lists.get(TOOLS.method)
    if listed is None or not listed.items:
        return
    page = listed.pages[0]
    descriptions: dict[str, str] = {}
    for position, item in enumerate(listed.items):
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            name = item.get("name") if isinstance(item, dict) else item
            docket.breach("tool.name", f"tools[{position}] has the name {name!r}", page)
    for label, tool in listed.named():
        name = tool.get("name")
        if isinstance(name, str):
            docket.keep("tool.name")
            docket.require(_TOOL_NAME.fullmatch(name), "tool.name-form", f"{label} is not of that form", page)
            if _TOOL_NAME.fullmatch(name):
                sound = _PROVIDER_NAME.fullmatch(name)
                docket.require(sound, "tool.provider-names", f"{label} would have to be renamed", page)
        _check_nulls(label, tool, docket, page)
        _check_schemas(label, tool, docket, page)
        description = tool.get("description")
        described = isinstance(description, str) and description.strip()
        docket.require(described, "tool.description", f"{label} has none", page)
        if described and isinstance(description, str):
            docket.require(
                description not in descriptions,
                "tool.description-unique",
                f"{descriptions.get(description)} and {label} have the same",
                page,
            )
            descriptions.setdefault(description, label)
    tokens = sum(len(encode(tool)) for tool in listed.items) // 4
    docket.require(
        tokens <= _BUDGET_TOKENS, "tool.token-budget", f"{len(listed.items)} tools cost about {tokens:,} tokens", page
    )


def _check_nulls(label: str, tool: Json, docket: Docket, page: Answer) -> None:
    nulls: list[str] = [
        member
        for member in ("title", "description", "annotations", "icons", "outputSchema", "_meta")
        if member in tool and tool[member] is None
    ]
    annotations = tool.get("annotations")
    if isinstance(annotations, dict):
        nulls += [f"annotations.{name}" for name, value in annotations.items() if value is None]
    docket.require(not nulls, "tool.optional-nulls", f"{label} has null as {', '.join(nulls)}", page)


def _check_schemas(label: str, tool: Json, docket: Docket, page: Answer) -> None:
    for member in ("inputSchema", "outputSchema"):
        schema = tool.get(member)
        if member == "outputSchema":
            if schema is None:
                continue
            docket.require(isinstance(schema, dict), "tool.output-schema", f"that of {label} is {schema!r}"[:120], page)
            finding = check_output_schema(schema)
        else:
            docket.require(
                isinstance(schema, dict) and schema.get("type") == "object",
                "tool.input-schema",
                f"that of {label} {_input_fault(schema)}",
                page,
            )
            finding = check_input_schema(schema)
        if not isinstance(schema, dict):
            continue
        size = len(encode(schema))
        too_large = finding is not None and finding.verdict is Verdict.EXCLUDE and "more than" in finding.message
        docket.require(
            size <= _MAX_SCHEMA_BYTES and not too_large,
            "tool.schema-size",
            f"the {member} of {label} has {size:,} bytes"
            + (f" and {finding.message}" if too_large and finding else ""),
            page,
        )
        docket.require(
            dialect_of(schema) is not None,
            "tool.schema-dialect",
            f"the {member} of {label} names {schema.get('$schema')!r}",
            page,
        )
        if too_large or dialect_of(schema) is None:
            continue
        _check_references(f"the {member} of {label}", schema, docket, page)
        fault = _schema_fault(schema, finding)
        if "regex" in fault or "pattern" in fault.lower():
            # Engines differ in what they understand of ECMA 262; that ours does not is no proof.
            docket.unclear("tool.schema-valid", f"the {member} of {label}: {fault}")
        else:
            docket.require(not fault, "tool.schema-valid", f"the {member} of {label}: {fault}", page)
        if member == "inputSchema":
            annotated = header_params(schema)
            if isinstance(annotated, SchemaFinding):
                docket.breach("tool.header-annotation", f"{label}: {annotated.where} {annotated.message}", page)
            elif annotated:
                docket.keep("tool.header-annotation")


def _input_fault(schema: Any) -> str:
    if not isinstance(schema, dict):
        return "is absent" if schema is None else f"is {schema!r}"[:80]
    return f"has the type {schema.get('type')!r}"


def _check_references(what: str, schema: Json, docket: Docket, page: Answer) -> None:
    try:
        references = list(SchemaDocument(schema).references())
    except OutriderError:
        return
    for _, text, reference in references:
        docket.require(
            reference.kind is ReferenceKind.LOCAL,
            "tool.schema-refs",
            f"{what} refers to {text[:80]!r}, which is {reference.kind}",
            page,
        )


def _schema_fault(schema: Json, finding: SchemaFinding | None) -> str:
    """What makes a schema invalid in its dialect, or ""."""
    if finding is not None and finding.verdict is Verdict.EXCLUDE and "object" not in finding.message:
        return f"{finding.where} {finding.message}"
    if any(reference.kind is not ReferenceKind.LOCAL for _, _, reference in SchemaDocument(schema).references()):
        return ""  # A finding of its own.
    try:
        Validator(schema)
    except OutriderError as error:
        return str(error)
    return ""


@check("tool.unknown")
async def unknown_tool(subject: Subject, docket: Docket) -> None:
    """A tool that nobody has."""
    if TOOLS.method not in subject.lists:
        return
    answer = await subject.ask("tools/call", {"name": _INVENTED, "arguments": {}})
    is_error = answer.error is not None or (answer.result is not None and answer.result.get("isError") is True)
    docket.require(is_error, "tool.unknown", f"a call of {_INVENTED} got {answer.shown()}", answer)


@check("tool.call-result", "tool.structured-result")
async def allowed_calls(subject: Subject, docket: Docket) -> None:
    """The tools that the user allows to be called."""
    for name, arguments in subject.call:
        tool = next((tool for _, tool in _tools(subject) if tool.get("name") == name), None)
        if tool is None:
            docket.unclear("tool.call-result", f"there is no tool {name!r}")
            continue
        params: Json = {"name": name, "arguments": arguments}
        answer = await _call(subject, tool, params)
        result = answer.result
        docket.require(
            result is not None
            and (result.get("resultType") == "input_required" or isinstance(result.get("content"), list)),
            "tool.call-result",
            f"{name} got {answer.shown()}",
            answer,
        )
        schema = tool.get("outputSchema")
        if result is None or not isinstance(schema, dict) or result.get("isError") is True or "content" not in result:
            continue
        if "structuredContent" not in result:
            docket.breach(
                "tool.structured-result", f"{name} has an outputSchema and gave no structured content", answer
            )
            continue
        try:
            violations = Validator(schema).check(result["structuredContent"])
        except OutriderError as error:
            docket.unclear("tool.structured-result", f"the outputSchema of {name} cannot be used: {error}")
            continue
        docket.require(
            not violations, "tool.structured-result", f"{name}: {violations[0] if violations else ''}", answer
        )


async def _call(subject: Subject, tool: Json, params: Json) -> Answer:
    from outrider.protocol.headers import param_headers

    annotated = header_params(tool.get("inputSchema"))
    headers = {} if isinstance(annotated, SchemaFinding) else param_headers(annotated, params["arguments"])
    if subject.is_modern:
        return await subject.ask("tools/call", params, headers=headers)
    return await _ask(subject, "tools/call", params)


def _tools(subject: Subject) -> Iterator[tuple[str, Json]]:
    listed = subject.lists.get(TOOLS.method)
    return listed.named() if listed else iter(())


# -- texts ---------------------------------------------------------------------------------------------------------------------------


@check("text.hidden", "text.injection", "text.instructions-useful")
async def texts_are_honest(subject: Subject, docket: Docket) -> None:
    """Everything that a model reads."""
    instructions = subject.described.get("instructions")
    evidence = subject.discovery[:1] or ((subject.legacy.opening,) if subject.legacy else ())
    for where, text, answers in _texts(subject, instructions, evidence):
        hidden = sorted({f"U+{ord(c):04X}" for c in text if _is_hidden(c)})
        docket.require(not hidden, "text.hidden", f"{where} holds {', '.join(hidden[:5])}", *answers)
        order = _ORDERS.search(text)
        docket.require(not order, "text.injection", f"{where} says {order[0]!r}" if order else "", *answers)
    if isinstance(instructions, str) and instructions:
        words = len(instructions.split())
        praise = len(_PRAISE.findall(instructions))
        docket.require(
            len(instructions) <= _MAX_INSTRUCTIONS and not (praise >= 2 and praise * 15 >= words),
            "text.instructions-useful",
            f"they have {len(instructions):,} characters, and {praise} words of praise",
            *evidence,
        )


def _texts(
    subject: Subject, instructions: object, evidence: tuple[Answer, ...]
) -> Iterator[tuple[str, str, tuple[Answer, ...]]]:
    if isinstance(instructions, str):
        yield "instructions", instructions, evidence
    for listed in subject.lists.values():
        for label, item in listed.named():
            for member in ("name", "title", "description"):
                if isinstance(item.get(member), str):
                    yield f"the {member} of {label}", item[member], (listed.pages[0],)
            schema = item.get("inputSchema")
            properties = schema.get("properties") if isinstance(schema, dict) else None
            for name, part in properties.items() if isinstance(properties, dict) else ():
                if isinstance(part, dict) and isinstance(part.get("description"), str):
                    yield f"the parameter {name!r} of {label}", part["description"], (listed.pages[0],)


def _is_hidden(character: str) -> bool:
    """Controls, bidirectional controls, zero-width and tag characters; not the joiners that emoji and some scripts need."""
    if character in _KEPT_CONTROLS or character in _JOINERS:
        return False
    return unicodedata.category(character) in ("Cc", "Cf", "Co", "Cs")


# -- resources and prompts -----------------------------------------------------------------------------------------------------------


@check("resource.uri", "template.form", "prompt.name")
async def items_are_sound(subject: Subject, docket: Docket) -> None:
    """Every listed resource, template and prompt."""
    for method, requirement_id in (
        ("resources/list", "resource.uri"),
        ("resources/templates/list", "template.form"),
        ("prompts/list", "prompt.name"),
    ):
        listed = subject.lists.get(method)
        for position, item in enumerate(listed.items if listed else ()):
            fault = _item_fault(method, item)
            docket.require(
                not fault, requirement_id, f"{method}[{position}] {fault}", *(listed.pages[:1] if listed else ())
            )


def _item_fault(method: str, item: Any) -> str:
    if not isinstance(item, dict):
        return f"is {item!r}"[:80]
    if not isinstance(item.get("name"), str):
        return f"has the name {item.get('name')!r}"
    if method == "resources/list":
        uri = item.get("uri")
        return "" if isinstance(uri, str) and _URI.fullmatch(uri) else f"has the uri {uri!r}"
    if method == "resources/templates/list":
        template = item.get("uriTemplate")
        return "" if isinstance(template, str) and template else f"has the uriTemplate {template!r}"
    arguments = item.get("arguments", [])
    if not isinstance(arguments, list):
        return f"has {arguments!r} as arguments"[:80]
    unnamed = [part for part in arguments if not isinstance(part, dict) or not isinstance(part.get("name"), str)]
    return f"has the argument {unnamed[0]!r}"[:80] if unnamed else ""


@check("resource.read", "cache.read-hints")
async def listed_resource_is_readable(subject: Subject, docket: Docket) -> None:
    """One read of the first listed resource."""
    listed = subject.items("resources/list")
    uri = next((resource["uri"] for resource in listed if not _item_fault("resources/list", resource)), None)
    if uri is None:
        return
    answer = await _ask(subject, "resources/read", {"uri": uri})
    result = answer.result
    if result is not None and result.get("resultType") == "input_required":
        return
    if answer.error is not None:
        docket.unclear("resource.read", f"resources/read of {uri!r} got {answer.shown()}", answer)
        return
    contents = (result or {}).get("contents")
    sound = isinstance(contents, list) and all(
        isinstance(part, dict)
        and isinstance(part.get("uri"), str)
        and (isinstance(part.get("text"), str) or isinstance(part.get("blob"), str))
        for part in contents
    )
    docket.require(sound, "resource.read", f"resources/read of {uri!r} got {answer.shown()}", answer)
    if result is not None and subject.is_modern:
        docket.require(
            is_ttl(result.get("ttlMs")) and result.get("cacheScope") in ("public", "private"),
            "cache.read-hints",
            f"it has the ttlMs {result.get('ttlMs')!r} and the cacheScope {result.get('cacheScope')!r}",
            answer,
        )


@check("resource.unknown", "prompt.unknown")
async def unknown_things(subject: Subject, docket: Docket) -> None:
    """A resource and a prompt that nobody has."""
    if "resources/list" in subject.lists:
        answer = await subject.ask("resources/read", {"uri": f"outrider:{_INVENTED}"})
        docket.require(
            answer.code == INVALID_PARAMS, "resource.unknown", f"an unknown resource got {answer.shown()}", answer
        )
    if PROMPTS.method in subject.lists:
        answer = await subject.ask("prompts/get", {"name": _INVENTED})
        docket.require(
            answer.code == INVALID_PARAMS, "prompt.unknown", f"an unknown prompt got {answer.shown()}", answer
        )
