"""Checks of tools: their definitions and schemas, and the calls that are allowed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from outrider.checker.checks import Docket, check
from outrider.checker.speakers import Answer
from outrider.checker.subject import INVENTED, Json, Subject, encode
from outrider.errors import OutriderError
from outrider.protocol.headers import header_params, param_headers
from outrider.protocol.model import TOOLS
from outrider.protocol.schema import ReferenceKind, SchemaDocument, dialect_of
from outrider.protocol.schema_findings import SchemaFinding, Verdict, check_input_schema, check_output_schema
from outrider.protocol.schema_validation import Validator

_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_PROVIDER_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_BUDGET_TOKENS: Final = 20_000
_MAX_SCHEMA_BYTES: Final = 32_768


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
    answer = await subject.ask("tools/call", {"name": INVENTED, "arguments": {}})
    is_error = answer.error is not None or (answer.result is not None and answer.result.get("isError") is True)
    docket.require(is_error, "tool.unknown", f"a call of {INVENTED} got {answer.shown()}", answer)


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
    annotated = header_params(tool.get("inputSchema"))
    headers = {} if isinstance(annotated, SchemaFinding) else param_headers(annotated, params["arguments"])
    if subject.is_modern:
        return await subject.ask("tools/call", params, headers=headers)
    return await subject.ask_in_its_era("tools/call", params)


def _tools(subject: Subject) -> Iterator[tuple[str, Json]]:
    listed = subject.lists.get(TOOLS.method)
    return listed.named() if listed else iter(())
