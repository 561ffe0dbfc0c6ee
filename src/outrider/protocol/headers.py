"""The HTTP headers of MCP: their names, how a value is carried in one, which tool parameters are mirrored, and the server's check.

Decided here: everything client and server must agree on about headers. Not here: `Accept`, `Authorization` and the other headers of
HTTP itself (the transports), or which protocol version is spoken (`versions`, `negotiation`). Pure.

Spec: 2026-07-28 basic/transports/streamable-http#request-metadata, server/tools#x-mcp-header
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

import msgspec

from outrider.errors import LimitExceeded, LocalProtocolError, RemoteProtocolError
from outrider.protocol.schema import Subschema, render_pointer, subschemas
from outrider.protocol.schema_findings import SchemaFinding, Verdict
from outrider.protocol.tasks import METHODS as TASK_METHODS

__all__ = [
    "ANNOTATION",
    "LAST_EVENT_ID",
    "METHOD",
    "NAME",
    "NAME_SOURCE",
    "PARAM_PREFIX",
    "PROTOCOL_VERSION",
    "SESSION_ID",
    "HeaderFinding",
    "HeaderParam",
    "check_headers",
    "decode_value",
    "encode_value",
    "header_params",
    "param_headers",
    "standard_headers",
]

PROTOCOL_VERSION: Final = "MCP-Protocol-Version"
METHOD: Final = "Mcp-Method"
NAME: Final = "Mcp-Name"
PARAM_PREFIX: Final = "Mcp-Param-"
SESSION_ID: Final = "Mcp-Session-Id"
"""Legacy only: 2025-03-26 to 2025-11-25. Spec: streamable-http#earlier-streamable-http-revisions"""
LAST_EVENT_ID: Final = "Last-Event-ID"
"""Legacy only, as above."""

NAME_SOURCE: Final[dict[str, Literal["name", "uri", "taskId"]]] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    **dict.fromkeys(TASK_METHODS, "taskId"),
}
"""The methods that need `Mcp-Name`, and the member of `params` it mirrors.

Spec: streamable-http#standard-request-headers, io.modelcontextprotocol/tasks#streamable-http-routing-headers (MUST)
"""

ANNOTATION: Final = "x-mcp-header"
MAX_SAFE_INTEGER: Final = 2**53 - 1

_SENTINEL_START: Final = "=?base64?"
_SENTINEL_END: Final = "?="
# A tab may stand inside a field value, but some peers and proxies rewrite it; encoding it is always right.
_PLAIN: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?|")
_CARRIED: Final = re.compile(r"[\x20-\x7e\t]*")
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_DECIMAL: Final = re.compile(r"(-?[0-9]{1,20})(?:\.0{1,20})?")

PrimitiveType: TypeAlias = Literal["string", "integer", "boolean"]


def encode_value(value: str) -> str:
    """`value` as an HTTP field value: as it is where that is safe, otherwise as `=?base64?…?=` over its UTF-8.

    Encoded are: anything outside visible ASCII and inner spaces, white space at an end, and text that looks encoded already. The
    result never holds a control character, so a value cannot add a header.

    Raises:
        LocalProtocolError: `value` holds half a surrogate pair, which no encoding of text carries.

    Spec: 2026-07-28 basic/transports/streamable-http#value-encoding (MUST)
    """
    if _PLAIN.fullmatch(value) and not _looks_encoded(value):
        return value
    try:
        encoded = base64.b64encode(value.encode()).decode("ascii")
    except UnicodeEncodeError as error:
        raise LocalProtocolError("a header value holds half a surrogate pair and cannot be sent") from error
    return f"{_SENTINEL_START}{encoded}{_SENTINEL_END}"


def decode_value(carried: str) -> str:
    """The value that `carried` stands for: the inverse of `encode_value`.

    Raises:
        RemoteProtocolError: `carried` holds a character no field value may hold, or looks encoded and is not canonical base64 of
            UTF-8. Its text does not repeat the value.

    Spec: 2026-07-28 basic/transports/streamable-http#value-encoding, #server-validation (MUST)
    """
    if not _CARRIED.fullmatch(carried):
        raise RemoteProtocolError("a header value holds characters that a header cannot carry", rule=_VALIDATION_RULE)
    if not _looks_encoded(carried):
        return carried
    payload = carried[len(_SENTINEL_START) : -len(_SENTINEL_END)]
    try:
        decoded = base64.b64decode(payload, validate=True)
        # Padding bits that are not zero, or padding after the end, decode too; nobody who encodes correctly sends them.
        if base64.b64encode(decoded).decode("ascii") != payload or len(carried) < len(_SENTINEL_START + _SENTINEL_END):
            raise ValueError("not canonical")
        return decoded.decode()
    except (binascii.Error, ValueError) as error:
        raise RemoteProtocolError("a header value is not valid base64 of UTF-8", rule=_VALIDATION_RULE) from error


def _looks_encoded(text: str) -> bool:
    return text.startswith(_SENTINEL_START) and text.endswith(_SENTINEL_END)


def standard_headers(method: str, params: Mapping[str, Any] | None, version: str) -> dict[str, str]:
    """The headers every modern POST of a request carries.

    Args:
        method: the JSON-RPC method.
        params: its `params`, or None.
        version: the protocol version that `_meta` names.

    Raises:
        LocalProtocolError: the method needs `Mcp-Name` and `params` has no text to put there, or `method` or `version` is not
            plain text: these two headers have no encoded form.

    Spec: 2026-07-28 basic/transports/streamable-http#standard-request-headers, #protocol-version-header (MUST)
    """
    headers = _named_headers(method, version).copy()
    source = NAME_SOURCE.get(method)
    if source is not None:
        name = (params or {}).get(source)
        if not isinstance(name, str):
            raise LocalProtocolError(f"{method} needs a text as params.{source}")
        headers[NAME] = encode_value(name)
    return headers


@lru_cache(maxsize=256)
def _named_headers(method: str, version: str) -> dict[str, str]:
    headers = {PROTOCOL_VERSION: version, METHOD: method}
    for header, value in headers.items():
        if not _PLAIN.fullmatch(value):
            raise LocalProtocolError(f"{header} cannot carry what was asked for: it is not plain ASCII text")
    return headers


class HeaderParam(msgspec.Struct, frozen=True):
    """One tool parameter that is mirrored into a header.

    Attributes:
        header: the whole header name, such as `Mcp-Param-Region`.
        path: the names that lead from the arguments to the value, such as `("target", "region")`.
        type: the parameter's type.
    """

    header: str
    path: tuple[str, ...]
    type: PrimitiveType


def header_params(input_schema: Any) -> tuple[HeaderParam, ...] | SchemaFinding:
    """The parameters that a tool's `x-mcp-header` annotations mirror, or what makes the tool unusable over HTTP.

    A finding means: exclude this tool over Streamable HTTP, with a warning; over stdio annotations have no effect.

    Args:
        input_schema: the tool's `inputSchema`, decoded, or as JSON in `bytes` or `msgspec.Raw` (faster for the usual schema, which
            has no annotation).

    Spec: 2026-07-28 server/tools#x-mcp-header, basic/transports/streamable-http#schema-extension (MUST)
    """
    if isinstance(input_schema, bytes | msgspec.Raw):
        raw = bytes(input_schema)
        if ANNOTATION.encode() not in raw and b"\\u" not in raw:
            return ()
        try:
            input_schema = msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return SchemaFinding(Verdict.EXCLUDE, "#", "is not JSON that can be read")
    found: dict[str, HeaderParam] = {}
    try:
        for place in subschemas(input_schema):
            if not isinstance(place.node, dict) or ANNOTATION not in place.node:
                continue
            param = _header_param(place)
            if isinstance(param, HeaderParam) and param.header.lower() in found:
                param = "names the same header as another parameter"
            if isinstance(param, str):
                return SchemaFinding(Verdict.EXCLUDE, render_pointer((*place.path, ANNOTATION)), param)
            found[param.header.lower()] = param
    except LimitExceeded as limit:
        return SchemaFinding(Verdict.EXCLUDE, "#", str(limit))
    return tuple(found.values())


def _header_param(place: Subschema) -> HeaderParam | str:
    """The parameter annotated at `place`, or what is wrong with the annotation."""
    token, type_ = place.node[ANNOTATION], place.node.get("type")
    if not place.path or not place.is_reachable_by_properties:
        return "is at a place that is not a property reached by `properties` alone"
    if not isinstance(token, str):
        return "is not a text"
    if not _TOKEN.fullmatch(token):
        return "is not a valid header name"
    if type_ not in ("string", "integer", "boolean"):
        return "is on a parameter that is not declared as a string, an integer or a boolean"
    return HeaderParam(PARAM_PREFIX + token, tuple(str(name) for name in place.path[1::2]), type_)


def param_headers(params: Iterable[HeaderParam], arguments: Mapping[str, Any] | None) -> dict[str, str]:
    """The headers that mirror `arguments`: one for each parameter with a value.

    A parameter that is absent or null has no header. Nor has one whose value is no text, whole number or boolean: the server's own
    validation of the arguments names that mistake better than a header could.

    Raises:
        LocalProtocolError: a whole number is outside ±(2**53 - 1), which the specification forbids here.

    Spec: 2026-07-28 basic/transports/streamable-http#client-behavior, #value-encoding (MUST)
    """
    headers: dict[str, str] = {}
    for param in params:
        value = _value_at(arguments, param.path)
        if _is_integer(value) and not -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
            raise LocalProtocolError(
                f"argument {'.'.join(param.path)} is mirrored into a header and must be within ±(2**53 - 1)",
                hint="send a smaller number; larger ones do not survive every peer",
            )
        rendered = _render_value(value)
        if rendered is not None:
            headers[param.header] = encode_value(rendered)
    return headers


def _value_at(arguments: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if not isinstance(arguments, Mapping):
            return None
        arguments = arguments.get(name)
    return arguments


def _is_integer(value: Any) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value.is_integer())


def _render_value(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if _is_integer(value) else None


class HeaderFinding(msgspec.Struct, frozen=True):
    """Why a request's headers are refused: the server answers 400 with error -32020 and `message`.

    Attributes:
        header: the header at fault.
        message: what is wrong. Values of `Mcp-Param-*` headers are not repeated in it: they are a user's data.
    """

    header: str
    message: str


_VALIDATION_RULE: Final = "2026-07-28 basic/transports/streamable-http#server-validation"
_VERSION_KEY: Final = PROTOCOL_VERSION.lower().encode()
_METHOD_KEY: Final = METHOD.lower().encode()
_NAME_KEY: Final = NAME.lower().encode()
_STANDARD_KEYS: Final = frozenset({_VERSION_KEY, _METHOD_KEY, _NAME_KEY})


def check_headers(
    headers: Iterable[tuple[bytes, bytes]],
    *,
    method: str,
    name: str | None,
    version: str,
    params: Sequence[HeaderParam] = (),
    arguments: Mapping[str, Any] | None = None,
) -> HeaderFinding | None:
    """Whether the headers of a modern request say the same as its body: the first finding, or None.

    For requests; what headers a notification needs is not defined.

    Args:
        headers: all header lines as an ASGI scope has them, repeated ones included.
        method: the body's method.
        name: the body's `params.name` or `params.uri` for a method in `NAME_SOURCE`, otherwise None.
        version: the protocol version in the body's `_meta`.
        params: for a tool call, the tool's mirrored parameters. Other `Mcp-Param-*` headers are ignored, as they must be.
        arguments: for a tool call, its arguments.

    Spec: 2026-07-28 basic/transports/streamable-http#server-validation, #server-behavior-for-custom-headers (MUST)
    """
    ours: dict[bytes, bytes] = {}
    for key, value in headers:
        key = key.lower()
        if not key.startswith(b"mcp-"):
            continue
        if key in ours:
            # A reader that takes the first line and one that takes the last would not see the same request.
            repeated = key.decode("latin-1")
            if key in _STANDARD_KEYS or any(param.header.lower() == repeated for param in params):
                return HeaderFinding(repeated, f"Header mismatch: the {repeated} header came more than once")
        ours[key] = value
    return (
        _check_plain(PROTOCOL_VERSION, ours.get(_VERSION_KEY), version)
        or _check_plain(METHOD, ours.get(_METHOD_KEY), method)
        or (None if name is None else _check_name(ours.get(_NAME_KEY), name))
        or next(filter(None, (_check_param(param, ours, arguments) for param in params)), None)
    )


def _check_plain(header: str, carried: bytes | None, expected: str) -> HeaderFinding | None:
    if carried is None:
        return _missing(header)
    if carried.strip(b" \t") == expected.encode("utf-8", "replace"):
        return None
    return _differs(header, carried.decode("latin-1"), expected)


def _check_name(carried: bytes | None, expected: str) -> HeaderFinding | None:
    if carried is None:
        return _missing(NAME)
    try:
        value = decode_value(carried.strip(b" \t").decode("latin-1"))
    except RemoteProtocolError as error:
        return HeaderFinding(NAME, f"Header mismatch: {NAME}: {error}")
    return None if value == expected else _differs(NAME, value, expected)


def _check_param(
    param: HeaderParam, ours: Mapping[bytes, bytes], arguments: Mapping[str, Any] | None
) -> HeaderFinding | None:
    header = param.header
    carried = ours.get(header.lower().encode())
    argument = _value_at(arguments, param.path)
    expected = _render_value(argument)
    if expected is None:
        # Nothing to mirror. A header here would be a value that an intermediary believes and the body does not have.
        return None if carried is None else _param_differs(param)
    if carried is None:
        return _missing(header)
    try:
        value = decode_value(carried.strip(b" \t").decode("latin-1"))
    except RemoteProtocolError as error:
        return HeaderFinding(header, f"Header mismatch: {header}: {error}")
    if param.type == "integer" and _is_integer(argument):
        if not -MAX_SAFE_INTEGER <= argument <= MAX_SAFE_INTEGER:
            return HeaderFinding(header, f"Header mismatch: {header} mirrors a number outside ±(2**53 - 1)")
        decimal = _DECIMAL.fullmatch(value)
        return None if decimal and int(decimal[1]) == argument else _param_differs(param)
    return None if value == expected else _param_differs(param)


def _missing(header: str) -> HeaderFinding:
    return HeaderFinding(header, f"Header mismatch: the {header} header is missing")


def _differs(header: str, carried: str, expected: str) -> HeaderFinding:
    message = f"Header mismatch: {header} header value {carried[:100]!r} does not match body value {expected[:100]!r}"
    return HeaderFinding(header, message)


def _param_differs(param: HeaderParam) -> HeaderFinding:
    message = f"Header mismatch: {param.header} does not match the argument {'.'.join(param.path)[:100]}"
    return HeaderFinding(param.header, message)
