"""What a client reads of a server: its description, and the items it lists.

Decided here: which members of a peer's answer are required, what stands in for the optional ones, and what is set aside. Not here: what a
call results in (`results`), how answers travel (`client`), what may be remembered (`freshness`), and whether a schema is sound
(`schema_findings`).

Two rules shape every class. Lossless: each value keeps what arrived (`wire`), so members we do not know survive. Isolation: a malformed
item of a list is set aside with a reason and its neighbours stay. A null optional member reads as absent.

Wire names are the specification's; attributes are their snake_case forms. Spec: 2026-07-28 schema. Pure.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Final

import msgspec
from msgspec import Raw, Struct

from outrider.errors import RemoteProtocolError
from outrider.protocol.jsonrpc import TOO_DEEP
from outrider.protocol.meta import SERVER_INFO
from outrider.protocol.schema_findings import (
    PlainInput,
    PlainOutput,
    Verdict,
    check_input_schema,
    check_output_schema,
    is_surely_small,
)

__all__ = [
    "LIST_KINDS",
    "PROMPTS",
    "RESOURCES",
    "RESOURCE_TEMPLATES",
    "TOOLS",
    "Implementation",
    "Item",
    "ListKind",
    "ListPage",
    "Prompt",
    "Quarantined",
    "Resource",
    "ResourceTemplate",
    "ServerDescription",
    "Tool",
    "decode_object",
    "read_description",
    "read_initialize",
    "read_page",
    "text_of",
]


class Implementation(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Name and version a peer reports of itself: for display, never for a decision."""

    name: str
    version: str = ""
    title: str | None = None
    description: str | None = None
    website_url: str | None = None
    icons: list[dict[str, Any]] | None = None


class ServerDescription(Struct, frozen=True):
    """What a server is: the answer to `server/discover`, or a legacy handshake's answer in the same shape.

    Attributes:
        supported_versions: the protocol versions it names, in its order; for a legacy server the one that was negotiated.
        capabilities: its ServerCapabilities as they came.
        identity: self-reported name and version, or None.
        instructions: its guidance for a model, or "".
        wire: the whole result, decoded.
        warnings: what was wrong with the answer without making it unusable.
    """

    supported_versions: tuple[str, ...]
    capabilities: dict[str, Any]
    identity: Implementation | None
    instructions: str
    wire: dict[str, Any]
    warnings: tuple[str, ...] = ()

    def as_discover_result(self) -> dict[str, Any]:
        """The description in the shape of a DiscoverResult, whichever handshake it came from."""
        result: dict[str, Any] = {"supportedVersions": list(self.supported_versions), "capabilities": self.capabilities}
        if self.instructions:
            result["instructions"] = self.instructions
        if self.identity is not None:
            result["_meta"] = {SERVER_INFO: self.identity}
        return result

    @property
    def extensions(self) -> dict[str, Any]:
        """Extension identifiers with their settings. Spec: 2026-07-28 basic/versioning#extension-negotiation"""
        extensions = self.capabilities.get("extensions")
        return extensions if isinstance(extensions, dict) else {}


class Item(Struct, frozen=True, gc=False):
    """One entry of a list, read from `wire`, its JSON bytes as they came.

    What is read from JSON refers to nothing outside of it, so no item can be part of a loop: the collector has none of them to look at,
    and a catalog has tens of thousands.
    """

    name: str
    title: str
    description: str
    wire: Raw

    @property
    def identity(self) -> str:
        """What makes it unique in its list: its name, or for resources the URI or template."""
        return self.name

    def decoded(self) -> dict[str, Any]:
        """The entry as it came, every member, as new Python values at each call."""
        value: dict[str, Any] = msgspec.json.decode(self.wire)
        return value


class Tool(Item, frozen=True):
    """A tool. `annotations` are hints from an untrusted server; null ones are left out. Spec: 2026-07-28 server/tools#tool"""

    annotations: dict[str, Any]
    has_output_schema: bool = False
    """Whether a usable `outputSchema` came along."""

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments, decoded anew at each access: keep it rather than ask twice."""
        value: dict[str, Any] = self.decoded()["inputSchema"]
        return value

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """The JSON Schema of `structuredContent`, or None when there is none that can be used; decoded anew at each access."""
        value: dict[str, Any] | None = self.decoded()["outputSchema"] if self.has_output_schema else None
        return value


class Prompt(Item, frozen=True):
    """A prompt and its arguments, each `{"name": str, "description"?: str, "required"?: bool}`. Spec: 2026-07-28 server/prompts#prompt"""

    arguments: tuple[dict[str, Any], ...]


class Resource(Item, frozen=True):
    """A resource. Spec: 2026-07-28 server/resources#resource"""

    uri: str
    mime_type: str

    @property
    def identity(self) -> str:
        """Its URI."""
        return self.uri


class ResourceTemplate(Item, frozen=True):
    """A URI template (RFC 6570) for resources. Spec: 2026-07-28 server/resources#resource-templates"""

    uri_template: str
    mime_type: str

    @property
    def identity(self) -> str:
        """Its URI template."""
        return self.uri_template


class ListKind(Struct, frozen=True):
    """One of the four lists: where it is asked for, where its items stand, and what announces that it changed.

    Attributes:
        label: plural noun for people.
        method: the list request.
        member: the result's member that holds the items.
        capability: the server capability that must be declared before asking.
        identity: the wire member that makes an item unique within its server.
        changed: the notification that the list changed.
        listen: the field of a listen filter that asks for that notification.
    """

    label: str
    method: str
    member: str
    capability: str
    identity: str
    changed: str
    listen: str


TOOLS: Final = ListKind(
    "tools", "tools/list", "tools", "tools", "name", "notifications/tools/list_changed", "toolsListChanged"
)
PROMPTS: Final = ListKind(
    "prompts", "prompts/list", "prompts", "prompts", "name", "notifications/prompts/list_changed", "promptsListChanged"
)
RESOURCES: Final = ListKind(
    "resources",
    "resources/list",
    "resources",
    "resources",
    "uri",
    "notifications/resources/list_changed",
    "resourcesListChanged",
)
RESOURCE_TEMPLATES: Final = ListKind(
    "resource templates",
    "resources/templates/list",
    "resourceTemplates",
    "resources",
    "uriTemplate",
    "notifications/resources/list_changed",
    "resourcesListChanged",
)
LIST_KINDS: Final = (TOOLS, PROMPTS, RESOURCES, RESOURCE_TEMPLATES)


class Quarantined(Struct, frozen=True):
    """An item, or part of one, that was set aside.

    Attributes:
        item: its name, or its position such as "tools[3]" when it has none.
        reason: what is wrong with it, for people.
        excluded: whether the item is left out altogether; False means that it is listed without the faulty part.
    """

    item: str
    reason: str
    excluded: bool = True


class ListPage(Struct, frozen=True):
    """One page of a list.

    Attributes:
        items: the sound items, in the server's order.
        next_cursor: where the next page begins, or None at the end. "" is a cursor like any other.
        quarantined: what was set aside and why.
        meta: the page's members other than its items: `ttlMs`, `cacheScope`, `_meta`, ….
        is_cut: more pages were announced in a way in which nobody can ask for them.
    """

    items: tuple[Item, ...]
    next_cursor: str | None
    quarantined: tuple[Quarantined, ...]
    meta: dict[str, Any]
    is_cut: bool = False


def decode_object(payload: Raw | bytes, what: str) -> dict[str, Any]:
    """The JSON object in `payload`; `what` says to people what it is.

    Raises:
        RemoteProtocolError: there is none.
    """
    try:
        value = msgspec.json.decode(payload) if payload else None
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"{what} cannot be decoded: {error}", rule="basic/transports#messages") from error
    if not isinstance(value, dict):
        raise RemoteProtocolError(
            f"{what} is not a JSON object", rule="basic/index#responses", excerpt=_excerpt(payload)
        )
    return value


def _excerpt(payload: Raw | bytes) -> str:
    return bytes(memoryview(payload)[:200]).decode(errors="replace")


def text_of(value: object) -> str:
    """An optional text; "" for anything else."""
    return value if isinstance(value, str) else ""


def _strings_of(value: object) -> tuple[str, ...] | None:
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        return None
    return tuple(value)


def read_description(payload: Raw | bytes) -> ServerDescription:
    """Read the result of `server/discover`.

    Raises:
        RemoteProtocolError: it is not a DiscoverResult: not an object, of an unknown or unfinished result type, or without a list of
            version strings. Missing or odd optional parts are warnings instead.

    Spec: 2026-07-28 server/discover#discoverresult, basic/index#resulttype
    """
    wire = decode_object(payload, "the answer to server/discover")
    result_type = wire.get("resultType")
    if result_type not in (None, "complete"):
        raise RemoteProtocolError(
            f"the answer to server/discover has the unknown result type {str(result_type)[:40]!r}",
            rule="basic/index#resulttype",
        )
    named = wire.get("supportedVersions")
    versions = tuple(version for version in named if isinstance(version, str)) if isinstance(named, list) else ()
    if not isinstance(named, list) or (named and not versions):
        raise RemoteProtocolError(
            "the answer to server/discover has no list of supportedVersions",
            rule="server/discover#discoverresult",
            excerpt=_excerpt(payload),
        )
    warnings = []
    if len(versions) < len(named):
        warnings.append("supportedVersions holds what is not a version; it was left out")
    if "resultType" not in wire:
        warnings.append("the answer to server/discover has no resultType; read as complete")
    meta = wire.get("_meta")
    identity = _identity(meta.get(SERVER_INFO) if isinstance(meta, dict) else None)
    if identity is None and (identity := _identity(wire.get("serverInfo"))):
        warnings.append("serverInfo stands beside _meta instead of inside it")
    return ServerDescription(versions, *_common_description(wire, identity, warnings))


def read_initialize(payload: Raw | bytes) -> tuple[str, ServerDescription]:
    """Read the result of a legacy `initialize`: the version the server chose, and its description in the modern shape.

    Raises:
        RemoteProtocolError: it is not an InitializeResult: not an object, or without a protocolVersion.

    Spec: 2025-11-25 basic/lifecycle#initialization
    """
    wire = decode_object(payload, "the answer to initialize")
    version = wire.get("protocolVersion")
    if not isinstance(version, str):
        raise RemoteProtocolError(
            "the answer to initialize has no protocolVersion",
            rule="2025-11-25 basic/lifecycle#initialization",
            excerpt=_excerpt(payload),
        )
    warnings: list[str] = []
    identity = _identity(wire.get("serverInfo"))
    if identity is None:
        warnings.append("the answer to initialize has no usable serverInfo")
    return version, ServerDescription((version,), *_common_description(wire, identity, warnings))


def _identity(value: object) -> Implementation | None:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    try:
        if None in value.values():
            value = {name: member for name, member in value.items() if member is not None}
        return msgspec.convert(value, Implementation)
    except msgspec.ValidationError:
        return Implementation(value["name"], text_of(value.get("version")))


def _common_description(
    wire: dict[str, Any], identity: Implementation | None, warnings: list[str]
) -> tuple[dict[str, Any], Implementation | None, str, dict[str, Any], tuple[str, ...]]:
    capabilities = wire.get("capabilities")
    if not isinstance(capabilities, dict):
        warnings.append("capabilities is missing or not an object; read as none")
        capabilities = {}
    # A capability set to null or false is not declared; `true` is a common slip for {}.
    sound = {
        name: ({} if value is True else value) for name, value in capabilities.items() if value not in (None, False)
    }
    instructions = wire.get("instructions")
    if instructions is not None and not isinstance(instructions, str):
        warnings.append("instructions is not a string; ignored")
    return sound, identity, text_of(instructions), wire, tuple(warnings)


class _WireTool(Struct, rename="camel", gc=False):
    name: Any = None
    title: Any = None
    description: Any = None
    input_schema: Raw = Raw(b"")
    output_schema: Raw = Raw(b"")
    annotations: Any = None


class _PlainTool(Struct, rename="camel", gc=False):
    """A tool with nothing amiss, for which one pass is enough; any other is looked at member by member."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    input_schema: PlainInput
    output_schema: PlainOutput | None = None
    title: Any = None
    description: Any = None
    annotations: dict[str, Any] | None = None


_decode_wire_tool: Final = msgspec.json.Decoder(_WireTool).decode
_decode_any: Final = msgspec.json.Decoder().decode
# Lists stay undecoded item by item.
_decode_members: Final = msgspec.json.Decoder(
    dict[str, list[Raw] | dict[str, Any] | str | int | float | bool | None]
).decode


def read_page(kind: ListKind, payload: Raw | bytes) -> ListPage:
    """Read one page of a list; malformed items are set aside one by one.

    Raises:
        RemoteProtocolError: the page as a whole cannot be read: not an object, an unknown result type, or without its list of items.

    Spec: 2026-07-28 server/utilities/pagination#response-format
    """
    what = f"the answer to {kind.method}"
    try:
        meta: dict[str, Any] = _decode_members(payload)
        entries = meta.pop(kind.member, None)
        for name, value in meta.items():
            if isinstance(value, list):
                meta[name] = [_decode_any(item) for item in value]
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError(
            f"{what} has no readable list of {kind.label}: {error}",
            rule="server/utilities/pagination#response-format",
            excerpt=_excerpt(payload),
        ) from error
    if not isinstance(entries, list):
        raise RemoteProtocolError(
            f"{what} has no list of {kind.label}",
            rule="server/utilities/pagination#response-format",
            excerpt=_excerpt(payload),
        )
    if meta.get("resultType", "complete") not in (None, "complete"):
        raise RemoteProtocolError(f"{what} has an unknown result type", rule="basic/index#resulttype")
    items: list[Item] = []
    quarantined: list[Quarantined] = []
    cursor, is_cut = _next_cursor(meta.get("nextCursor"), quarantined)
    read = _READERS[kind.method]
    for position, entry in enumerate(entries):
        # In bytes of its own: an item that is kept must not keep its whole page.
        item = read(bytes(entry), position, quarantined)
        if item is not None:
            items.append(item)
    return ListPage(tuple(items), cursor, tuple(quarantined), meta, is_cut)


def _next_cursor(cursor: object, quarantined: list[Quarantined]) -> tuple[str | None, bool]:
    """The next page's cursor, or None at the end, and whether there are more pages that nobody can ask for.

    Servers that count their pages give numbers, and take texts; for one of these, 0 and false are the end.
    """
    if cursor is None or isinstance(cursor, str):
        return cursor, False
    if type(cursor) is int and cursor:
        quarantined.append(Quarantined("nextCursor", "a number; sent back as a text", excluded=False))
        return str(cursor), False
    quarantined.append(Quarantined("nextCursor", "not a string; the list ends here", excluded=False))
    return None, cursor not in (0, False)


def _read_tool(wire: bytes, position: int, quarantined: list[Quarantined]) -> Tool | None:
    plain = _plain_tool(wire)
    if plain is not None:
        return plain
    try:
        tool = _decode_wire_tool(wire)
    except (msgspec.DecodeError, RecursionError) as error:
        quarantined.append(Quarantined(_place(TOOLS, position), _not_decoded(wire, error)))
        return None
    name = tool.name
    if not isinstance(name, str) or not name:
        quarantined.append(Quarantined(_place(TOOLS, position), "name is missing or not a string"))
        return None
    finding = check_input_schema(tool.input_schema)
    if finding is not None:
        excluded = finding.verdict is Verdict.EXCLUDE
        quarantined.append(Quarantined(name, f"inputSchema {finding.where} {finding.message}", excluded=excluded))
        if excluded:
            return None
    has_output = bool(tool.output_schema) and bytes(tool.output_schema) != b"null"
    if has_output and (finding := check_output_schema(tool.output_schema)) is not None:
        has_output = finding.verdict is Verdict.NOTE
        consequence = "" if has_output else "; ignored"
        quarantined.append(
            Quarantined(name, f"outputSchema {finding.where} {finding.message}{consequence}", excluded=False)
        )
    annotations = tool.annotations
    if not isinstance(annotations, dict):
        if annotations is not None:
            quarantined.append(Quarantined(name, "annotations is not an object; ignored", excluded=False))
        annotations = None
    return _tool(tool, wire, annotations, has_output_schema=has_output)


@cache
def _plain_tool_decoder() -> msgspec.json.Decoder[_PlainTool]:
    return msgspec.json.Decoder(_PlainTool)  # A large one, and who serves reads no tools.


def _plain_tool(wire: bytes) -> Tool | None:
    """The tool if there is certainly nothing amiss with it, else None."""
    if not is_surely_small(wire):
        return None
    try:
        tool = _plain_tool_decoder().decode(wire)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return _tool(tool, wire, tool.annotations, has_output_schema=tool.output_schema is not None)


def _tool(
    tool: _WireTool | _PlainTool, wire: bytes, annotations: dict[str, Any] | None, *, has_output_schema: bool
) -> Tool:
    if annotations is None:
        annotations = {}
    elif None in annotations.values():
        annotations = {key: value for key, value in annotations.items() if value is not None}
    return Tool(tool.name, text_of(tool.title), text_of(tool.description), Raw(wire), annotations, has_output_schema)


def _place(kind: ListKind, position: int) -> str:
    """How an item without a name is called."""
    return f"{kind.member}[{position}]"


def _not_decoded(wire: bytes, error: Exception) -> str:
    return "is nested too deeply" if wire == TOO_DEEP else f"cannot be decoded: {error}"


def _decode_item(wire: bytes, kind: ListKind, position: int, quarantined: list[Quarantined]) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(wire)
    except (msgspec.DecodeError, RecursionError) as error:
        quarantined.append(Quarantined(_place(kind, position), _not_decoded(wire, error)))
        return None
    if not isinstance(value, dict) or not isinstance(value.get(kind.identity), str) or not value[kind.identity]:
        quarantined.append(Quarantined(_place(kind, position), f"{kind.identity} is missing or not a string"))
        return None
    return value


def _read_prompt(wire: bytes, position: int, quarantined: list[Quarantined]) -> Prompt | None:
    value = _decode_item(wire, PROMPTS, position, quarantined)
    if value is None:
        return None
    entries = value.get("arguments")
    arguments = (
        tuple(a for a in entries if isinstance(a, dict) and isinstance(a.get("name"), str))
        if isinstance(entries, list)
        else ()
    )
    if entries is not None and (not isinstance(entries, list) or len(arguments) != len(entries)):
        quarantined.append(
            Quarantined(value["name"], "arguments that are not objects with a name are ignored", excluded=False)
        )
    return Prompt(value["name"], text_of(value.get("title")), text_of(value.get("description")), Raw(wire), arguments)


def _read_resource(wire: bytes, position: int, quarantined: list[Quarantined]) -> Resource | None:
    value = _decode_item(wire, RESOURCES, position, quarantined)
    if value is None:
        return None
    name = text_of(value.get("name")) or value["uri"]
    return Resource(
        name,
        text_of(value.get("title")),
        text_of(value.get("description")),
        Raw(wire),
        value["uri"],
        text_of(value.get("mimeType")),
    )


def _read_resource_template(wire: bytes, position: int, quarantined: list[Quarantined]) -> ResourceTemplate | None:
    value = _decode_item(wire, RESOURCE_TEMPLATES, position, quarantined)
    if value is None:
        return None
    name = text_of(value.get("name")) or value["uriTemplate"]
    return ResourceTemplate(
        name,
        text_of(value.get("title")),
        text_of(value.get("description")),
        Raw(wire),
        value["uriTemplate"],
        text_of(value.get("mimeType")),
    )


_READERS: Final = {
    TOOLS.method: _read_tool,
    PROMPTS.method: _read_prompt,
    RESOURCES.method: _read_resource,
    RESOURCE_TEMPLATES.method: _read_resource_template,
}
