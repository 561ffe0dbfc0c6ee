"""From a function, or from a definition that exists already, to an item of the registry.

Decided here: what a function's signature and docstring become on the wire, which definitions are refused, and what handshake clients see
of them. Not here: which options an author has (`app`), the schemas of parameters and results (`schemas`), lists of items (`registry`), and
calling (`running`). No I/O.

Spec: 2026-07-28 server/tools#tool, server/prompts, server/resources
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal

import msgspec

from outrider.protocol.headers import header_params
from outrider.protocol.schema_findings import SchemaFinding, Verdict, check_input_schema, check_output_schema
from outrider.protocol.schema_validation import Validator
from outrider.server.content import CONTENT_TYPES
from outrider.server.context import Context
from outrider.server.docstrings import parse_docstring
from outrider.server.inputs import InputRequest
from outrider.server.registry import Prompt, Resource, ResourceTemplate, TaskSupport, Tool, Visibility
from outrider.server.running import is_async
from outrider.server.schemas import OutputType, Parameters
from outrider.server.templates import UriTemplate

__all__ = [
    "prompt_of_definition",
    "prompt_of_function",
    "resource_of_definition",
    "resource_of_function",
    "tool_of_definition",
    "tool_of_function",
]

_log: Final = logging.getLogger("outrider.server")
_encode: Final = msgspec.json.Encoder().encode
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+")


def tool_of_function(
    function: Callable[..., Any],
    *,
    name: str | None,
    title: str | None,
    description: str | None,
    annotations: Mapping[str, Any] | None,
    extra: Mapping[str, Any] | None,
    inline: bool,
    visible_to: Visibility | None,
    timeout_s: float | None,
    task: TaskSupport | None,
) -> Tool:
    """The tool that a function is; the options are those of `Server.tool`.

    Raises:
        TypeError: a parameter has no JSON form. ValueError: the name is not allowed.
    """
    parameters, definition = _read(function, name, title, description)
    output = OutputType.of(function, plain_types=(*CONTENT_TYPES, InputRequest))
    definition["inputSchema"] = parameters.schema
    if output is not None:
        definition["outputSchema"] = output.schema
    if annotations:
        definition["annotations"] = dict(annotations)
    definition.update(extra or {})
    _require_tool_name(definition)
    return _tool(
        definition,
        function,
        parameters=parameters,
        output=output,
        inline=inline,
        visible_to=visible_to,
        timeout_s=timeout_s,
        task=task,
    )


def tool_of_definition(
    definition: Mapping[str, Any],
    call: Callable[[dict[str, Any], Context], Any],
    *,
    validate: bool,
    visible_to: Visibility | None,
    timeout_s: float | None,
    task: TaskSupport | None,
) -> Tool:
    """The tool that a definition describes; the options are those of `Server.add_tool_definition`.

    Raises:
        ValueError: the name or a schema is not allowed.
    """
    name = _require_tool_name(definition)
    schema, output_schema = definition.get("inputSchema"), definition.get("outputSchema")
    for finding in (check_input_schema(schema), check_output_schema(output_schema) if output_schema else None):
        if finding is not None and finding.verdict is not Verdict.NOTE:
            raise ValueError(f"tool {name!r}: {finding.where} {finding.message}")
    return _tool(
        dict(definition),
        call,
        check_arguments=_argument_checker(schema) if validate else None,
        visible_to=visible_to,
        timeout_s=timeout_s,
        task=task,
    )


def _tool(
    definition: dict[str, Any],
    function: Callable[..., Any],
    *,
    parameters: Parameters | None = None,
    output: OutputType | None = None,
    check_arguments: Callable[[Any], Sequence[str]] | None = None,
    inline: bool = False,
    visible_to: Visibility | None,
    timeout_s: float | None,
    task: TaskSupport | None,
) -> Tool:
    name = definition["name"]
    mirrored = header_params(definition["inputSchema"])
    if isinstance(mirrored, SchemaFinding):
        raise ValueError(f"tool {name!r}: {mirrored.where} {mirrored.message}")
    legacy = dict(definition)
    output_schema = definition.get("outputSchema")
    if output_schema is not None and output_schema.get("type") != "object":
        # Before 2026-07-28 a structured result is an object.
        del legacy["outputSchema"]
    return Tool(
        key=name,
        wire=_encode(definition),
        legacy_wire=_encode(legacy),
        visible_to=visible_to,
        function=function,
        parameters=parameters,
        output=output,
        check_arguments=check_arguments,
        is_async=is_async(function),
        inline=inline,
        wants_context=parameters is None or parameters.injected is not None,
        mirrored=mirrored,
        timeout_s=timeout_s,
        task=task,
    )


def prompt_of_function(
    function: Callable[..., Any],
    *,
    name: str | None,
    title: str | None,
    description: str | None,
    extra: Mapping[str, Any] | None,
    inline: bool,
    visible_to: Visibility | None,
) -> Prompt:
    """The prompt that a function is; the options are those of `Server.prompt`.

    Raises:
        TypeError: a parameter has no JSON form.
    """
    parameters, definition = _read(function, name, title, description)
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
    return _prompt(definition, function, parameters, inline=inline, visible_to=visible_to)


def prompt_of_definition(
    definition: Mapping[str, Any], get: Callable[[dict[str, str], Context], Any], *, visible_to: Visibility | None
) -> Prompt:
    """The prompt that a definition describes; the options are those of `Server.add_prompt_definition`."""
    return _prompt(definition, get, None, inline=False, visible_to=visible_to)


def _prompt(
    definition: Mapping[str, Any],
    function: Callable[..., Any],
    parameters: Parameters | None,
    *,
    inline: bool,
    visible_to: Visibility | None,
) -> Prompt:
    wire = _encode(definition)
    return Prompt(
        key=definition["name"],
        wire=wire,
        legacy_wire=wire,
        visible_to=visible_to,
        function=function,
        parameters=parameters,
        description=definition.get("description") or "",
        is_async=is_async(function),
        inline=inline,
        completers={},
    )


def resource_of_function(
    uri: str,
    function: Callable[..., Any],
    *,
    name: str | None,
    title: str | None,
    description: str | None,
    mime_type: str | None,
    extra: Mapping[str, Any] | None,
    ttl_ms: int,
    scope: Literal["public", "private"],
    subscribable: bool,
    inline: bool,
    visible_to: Visibility | None,
) -> Resource | ResourceTemplate:
    """The resource, or for a URI with `{variables}` the template, that a function is; the options are those of `Server.resource`.

    Raises:
        ValueError: the URI is not absolute, or the template is not supported.
        TypeError: parameters and variables differ.
    """
    if ":" not in uri or not uri.partition(":")[0].replace("+", "").replace("-", "").replace(".", "").isalnum():
        raise ValueError(f"{uri!r} is not an absolute URI")
    if ttl_ms < 0:
        raise ValueError("a time to live is at least 0 ms")
    parameters, described = _read(function, name, title, description)
    template = UriTemplate(uri) if "{" in uri else None
    definition = {"uri" if template is None else "uriTemplate": uri, **described}
    if mime_type:
        definition["mimeType"] = mime_type
    definition.update(extra or {})
    if template is not None:
        variables, known = set(template.names), set(parameters.names)
        if unknown := (variables - known) | (set(parameters.required) - variables):
            raise TypeError(f"{uri}: variables and parameters differ in {', '.join(sorted(unknown))}")
    elif parameters.required:
        raise TypeError(f"{uri}: a resource without variables has no parameters to fill")
    return _resource(
        uri,
        template,
        definition,
        function=function,
        parameters=parameters,
        mime_type=mime_type,
        ttl_ms=ttl_ms,
        scope=scope,
        subscribable=subscribable,
        inline=inline,
        visible_to=visible_to,
    )


def resource_of_definition(
    definition: Mapping[str, Any],
    read: Callable[[str, Context], Any],
    *,
    ttl_ms: int,
    scope: Literal["public", "private"],
    subscribable: bool,
    visible_to: Visibility | None,
) -> Resource | ResourceTemplate:
    """The resource or template that a definition describes; the options are those of `Server.add_resource_definition`.

    Raises:
        ValueError: the template is not supported.
    """
    text = definition.get("uriTemplate")
    return _resource(
        definition["uri"] if text is None else text,
        # Values go to somebody who checks them; they become no path here.
        None if text is None else UriTemplate(text, allow_dot_segments=True),
        definition,
        function=read,
        parameters=None,
        mime_type=definition.get("mimeType"),
        ttl_ms=ttl_ms,
        scope=scope,
        subscribable=subscribable,
        inline=False,
        visible_to=visible_to,
    )


def _resource(
    key: str,
    template: UriTemplate | None,
    definition: Mapping[str, Any],
    *,
    function: Callable[..., Any],
    scope: Literal["public", "private"],
    visible_to: Visibility | None,
    **members: Any,
) -> Resource | ResourceTemplate:
    wire = _encode(definition)
    members |= {
        "key": key,
        "wire": wire,
        "legacy_wire": wire,
        "visible_to": visible_to,
        "function": function,
        "is_async": is_async(function),
        # What is shown to some callers only is not for a shared cache.
        "scope": "private" if visible_to is not None else scope,
    }
    return Resource(**members) if template is None else ResourceTemplate(**members, template=template, completers={})


def _read(
    function: Callable[..., Any], name: str | None, title: str | None, description: str | None
) -> tuple[Parameters, dict[str, Any]]:
    """A function's parameters, and the members that the definitions of all kinds begin with."""
    text, documented = parse_docstring(function.__doc__)
    parameters = Parameters(function, injected_type=Context, descriptions=documented)
    definition: dict[str, Any] = {"name": name or _name_of(function)}
    if title:
        definition["title"] = title
    if description or text:
        definition["description"] = description or text
    return parameters, definition


def _name_of(function: Callable[..., Any]) -> str:
    while isinstance(function, partial):
        function = function.func
    name = getattr(function, "__name__", type(function).__name__)
    if name == "<lambda>":
        raise ValueError("a lambda needs a name=")
    return name


def _require_tool_name(definition: Mapping[str, Any]) -> str:
    name = definition.get("name")
    if not isinstance(name, str) or not 1 <= len(name) <= 128:
        raise ValueError("a tool's name has 1 to 128 characters")
    if not _PLAIN_NAME.fullmatch(name):
        _log.warning("tool %r: some clients and models only take names of letters, digits, `_`, `-` and `.`", name)
    return name


def _argument_checker(schema: Any) -> Callable[[Any], Sequence[str]]:
    validator: Validator | None = None

    def check(arguments: Any) -> Sequence[str]:
        # Compiled at the first call: a gateway registers thousands of tools and calls a few.
        nonlocal validator
        if validator is None:
            validator = Validator(schema)
        return [str(violation) for violation in validator.check(arguments)[:10]]

    return check
