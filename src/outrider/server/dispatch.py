"""What a server makes of one message: the whole validation of a modern request, in the specification's order, as a pure function.

Decided here: the era of each message, every error that can be told without running an author's function, and the replies that are ready as
bytes. Not here: running functions (`running`), HTTP itself (`http`), and what legacy messages mean (`legacy`).

The order: JSON (-32700), JSON-RPC (-32600), era, the required fields of `_meta` (-32602), the version header against the body (-32020), the
version (-32022), the other headers (-32020), the method (-32601), its parameters (-32602). Both transports use this function. One typed
decoding pass serves a good request; only one that fails it is decoded again, slowly, to find which error it earns.

Pure, but for the visibility rules and the registry that it reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from outrider.errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CLIENT_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    http_status,
)
from outrider.protocol import headers as mcp_headers
from outrider.protocol.jsonrpc import (
    ErrorReply,
    Malformed,
    Notification,
    Request,
    RequestId,
    ResultReply,
    decode_message,
    encode_error,
)
from outrider.protocol.meta import CLIENT_CAPABILITIES, LOG_LEVEL, LOG_LEVELS, PROTOCOL_VERSION, RequestMeta
from outrider.protocol.model import LIST_KINDS
from outrider.protocol.tasks import EXTENSION as TASKS_EXTENSION
from outrider.protocol.tasks import GET as GET_TASK
from outrider.protocol.tasks import declares, required_capabilities
from outrider.protocol.versions import MODERN_VERSIONS
from outrider.server.registry import Principal, Prompt, Registry, Resource, ResourceTemplate

__all__ = [
    "Answer",
    "Dispatcher",
    "Legacy",
    "Listen",
    "ListenFilter",
    "Notified",
    "Outcome",
    "Params",
    "Work",
    "decode_params",
    "error_answer",
    "id_bytes",
    "reply_bytes",
]


class ListenFilter(Struct, rename="camel", gc=False):
    """What a client wants to hear of. Spec: 2026-07-28 basic/patterns/subscriptions#notification-filter"""

    tools_list_changed: bool = False
    prompts_list_changed: bool = False
    resources_list_changed: bool = False
    resource_subscriptions: list[str] | None = None
    task_ids: list[str] | None = None


class _Argument(Struct, gc=False):
    name: str
    value: str


class _CompletionContext(Struct, gc=False):
    arguments: dict[str, str] | None = None


class _Reference(Struct, gc=False):
    type: str
    name: str = ""
    uri: str = ""


class Params(Struct, rename="camel", gc=False):
    """The parameters of every method in one shape, so that one pass decodes any request."""

    meta: RequestMeta | UnsetType = field(default=UNSET, name="_meta")
    name: str | UnsetType = UNSET
    uri: str | UnsetType = UNSET
    task_id: Any = UNSET
    cursor: str | None = None
    arguments: Raw = Raw(b"")
    input_responses: dict[str, Any] | UnsetType = UNSET
    request_state: str | None = None
    notifications: ListenFilter | UnsetType = UNSET
    ref: _Reference | UnsetType = UNSET
    argument: _Argument | UnsetType = UNSET
    context: _CompletionContext | None = None
    level: str | None = None


class _Call(Struct, gc=False):
    id: int | str
    method: str
    jsonrpc: Any = None
    params: Params | None = None


class Answer(Struct, gc=False):
    """A finished reply. `status` is for HTTP."""

    body: bytes
    status: int = 200


class Work(Struct, gc=False):
    """A valid request that runs an author's function.

    Attributes:
        id: the request's id. id_json: the same as JSON.
        method: the method; `item` is what it is about: a Tool, Prompt, Resource, template, or an extension's function.
        params: the decoded parameters; for an extension's method `raw_params` has all of them.
        meta: the request's `_meta`; the required fields are there.
        values: the variables of a resource template.
        version: the protocol version.
        is_traced: whether it is to have a span.
        as_task: whether the function may become a task: the tool allows it, and the client takes tasks.
    """

    id: RequestId
    id_json: bytes
    method: str
    item: Any
    params: Params
    meta: RequestMeta
    version: str
    values: dict[str, str] | None = None
    raw_params: Raw = Raw(b"")
    legacy: bool = False
    is_traced: bool = False
    as_task: bool = False


class Listen(Struct, gc=False):
    """A request for a stream of change notifications; `accepted` is what this server will send, if the tasks are the caller's."""

    id: RequestId
    id_json: bytes
    accepted: ListenFilter
    meta: RequestMeta


class Legacy(Struct, gc=False):
    """A message of the handshake era, for the legacy adapter."""

    message: Request | Notification | ResultReply | ErrorReply


class Notified(Struct, gc=False):
    """A modern notification."""

    message: Notification


Outcome = Answer | Work | Listen | Legacy | Notified

_encode: Final = msgspec.json.Encoder().encode
_decode_call: Final = msgspec.json.Decoder(_Call).decode
decode_params: Final = msgspec.json.Decoder(Params).decode
_decode_members: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_meta: Final = msgspec.json.Decoder(RequestMeta).decode
_LISTS: Final = frozenset(kind.method for kind in LIST_KINDS)
_VERSION_HEADER: Final = mcp_headers.PROTOCOL_VERSION.lower().encode()
_METHOD_HEADER: Final = mcp_headers.METHOD.lower().encode()
_NAME_HEADER: Final = mcp_headers.NAME.lower().encode()
_NAME_SOURCE: Final = mcp_headers.NAME_SOURCE
_MODERN_HEADER_VALUES: Final = frozenset(version.encode() for version in MODERN_VERSIONS)
_MAX_SUBSCRIPTIONS: Final = 1000
_MAX_TASKS: Final = 100
_META_KEYS: Final = (PROTOCOL_VERSION, CLIENT_CAPABILITIES)


def id_bytes(request_id: RequestId) -> bytes:
    """A request's id as JSON; integers of any size."""
    return b"%d" % request_id if type(request_id) is int else _encode(request_id)


def reply_bytes(id_json: bytes, result: bytes) -> bytes:
    """A successful reply around a result that is JSON already."""
    return b"".join((b'{"jsonrpc":"2.0","id":', id_json, b',"result":', result, b"}"))


def error_answer(id_json: bytes | None, code: int, message: str, data: Any = None) -> Answer:
    """An error reply; the id is left out when there is none."""
    request_id: Any = None if id_json is None else Raw(id_json)
    return Answer(encode_error(request_id, code, message, data), http_status(code))


class Dispatcher:
    """Dispatch for one transport of one server.

    Args:
        registry: what the server offers.
        versions: what it speaks here, most preferred first; legacy ones are in it exactly when `legacy` is true.
        listen: whether the transport carries listen streams.
        legacy: whether messages of the handshake era are handed on instead of refused.
        methods: an extension's request methods, by name.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        versions: tuple[str, ...],
        listen: bool,
        legacy: bool,
        methods: Mapping[str, Any],
    ) -> None:
        self.registry = registry
        self.versions = versions
        self.listen = listen
        self.legacy = legacy
        self._methods = methods
        # Version to the header's bytes.
        self._modern = {version: version.encode() for version in versions if version in MODERN_VERSIONS}
        self._discover_tail = b""
        self._discover_revision = -1

    def dispatch(
        self,
        body: bytes,
        *,
        headers: Sequence[tuple[bytes, bytes]] | None = None,
        header_map: Mapping[bytes, bytes] | None = None,
        principal: Principal | None = None,
        in_session: bool = False,
    ) -> Outcome:
        """Decide about one message.

        Args:
            body: exactly one message.
            headers: over HTTP, every header line with lower-case names; None on transports without headers.
            header_map: the same as a mapping, of which the last line of a name wins.
            principal: who makes the request.
            in_session: whether a legacy handshake covers this message, so that one without modern `_meta` is legacy.

        Spec: 2026-07-28 basic/index, basic/versioning, basic/transports/streamable-http#server-validation (MUST)
        """
        try:
            call = _decode_call(body)
        except (msgspec.DecodeError, RecursionError, ValueError):
            return self._dispatch_carefully(body, headers, header_map, principal, in_session)
        params = call.params
        if call.jsonrpc != "2.0" or params is None:
            return self._dispatch_carefully(body, headers, header_map, principal, in_session)
        meta = params.meta
        if meta is UNSET or (version := meta.protocol_version) is UNSET or meta.client_capabilities is UNSET:
            return self._dispatch_carefully(body, headers, header_map, principal, in_session)
        method = call.method
        request_id = call.id
        id_json = b"%d" % request_id if type(request_id) is int else _encode(request_id)
        carried = self._modern.get(version)
        if carried is None:
            return self._refuse_version(id_json, version, headers, header_map)
        if meta.log_level is not None and meta.log_level not in LOG_LEVELS:
            return error_answer(id_json, INVALID_PARAMS, f"{LOG_LEVEL} is not a log level")
        # The usual request's headers are exactly the body's words, once each; the full check is for all others.
        if header_map is not None and (
            header_map.get(_METHOD_HEADER) != method.encode()
            or header_map.get(_VERSION_HEADER) != carried
            or len(header_map) != len(headers or ())
            or method in _NAME_SOURCE
        ):
            refused = self._check_headers(id_json, method, params, version, headers or (), header_map)
            if refused is not None:
                return refused
        if method == "server/discover":
            return Answer(b'{"jsonrpc":"2.0","id":' + id_json + self._discovered())
        if method in _LISTS and self.registry.offers_list(method):
            page = self.registry.page(method, params.cursor, principal)
            if page is None:
                return error_answer(id_json, INVALID_PARAMS, "the cursor is not one of this server's")
            return Answer(reply_bytes(id_json, page))
        if method == "subscriptions/listen":
            return self._listen(request_id, id_json, params, meta, principal)
        work = Work(request_id, id_json, method, None, params, meta, version)
        refused = (
            self._find_tool(work, principal, headers)
            if method == "tools/call"
            else self.find_target(work, principal, body)
        )
        return refused if refused is not None else work

    def _discovered(self) -> bytes:
        """All of the reply to `server/discover` after its id, encoded once per change of the registry."""
        revision = self.registry.revision
        if revision != self._discover_revision:
            result = self.registry.discover(self.versions, listen=self.listen)
            self._discover_tail = b',"result":' + result + b"}"
            self._discover_revision = revision
        return self._discover_tail

    def find_target(self, work: Work, principal: Principal | None, body: bytes) -> Answer | None:
        """Fill in what a request is about, for every method but the lists; an error when there is no such thing. Both eras use it."""
        method, params, id_json = work.method, work.params, work.id_json
        registry = self.registry
        if method == "tools/call":
            return self._find_tool(work, principal, None)
        if method == "prompts/get" and registry.offers_list("prompts/list"):
            prompt = registry.prompts.get(params.name) if params.name is not UNSET else None
            if prompt is None or not prompt.is_visible(principal):
                return self._unknown(id_json, "name", "prompt", params.name)
            work.item = prompt
            return None
        if method == "resources/read" and registry.offers_list("resources/list"):
            if params.uri is UNSET:
                return error_answer(id_json, INVALID_PARAMS, "params.uri is missing")
            found = registry.find_resource(params.uri, principal)
            if found is None:
                return error_answer(id_json, INVALID_PARAMS, "Resource not found", {"uri": params.uri})
            work.item, work.values = found
            return None
        if method == "completion/complete" and registry.offers_completions():
            return self._find_completion(work, principal)
        extension = self._methods.get(method)
        if extension is not None:
            work.item = extension
            work.raw_params = _decode_members(body).get("params", Raw(b""))
            return None
        return error_answer(id_json, METHOD_NOT_FOUND, f"Method not found: {method[:100]}")

    def _find_tool(
        self, work: Work, principal: Principal | None, headers: Sequence[tuple[bytes, bytes]] | None
    ) -> Answer | None:
        params = work.params
        tool = self.registry.tools.get(params.name) if params.name is not UNSET else None
        if tool is None or not (tool.visible_to is None or tool.is_visible(principal)):
            if not self.registry.offers_list("tools/list"):
                return error_answer(work.id_json, METHOD_NOT_FOUND, "Method not found: tools/call")
            return self._unknown(work.id_json, "name", "tool", params.name)
        if headers is not None and tool.mirrored:
            try:
                arguments = msgspec.json.decode(params.arguments or b"{}")
            except (msgspec.DecodeError, RecursionError):
                return error_answer(work.id_json, INVALID_PARAMS, "params.arguments cannot be decoded")
            finding = mcp_headers.check_headers(
                headers,
                method=work.method,
                name=tool.key,
                version=work.version,
                params=tool.mirrored,
                arguments=arguments if isinstance(arguments, dict) else {},
            )
            if finding is not None:
                return error_answer(work.id_json, HEADER_MISMATCH, finding.message)
        work.item = tool
        if tool.task is not None:
            # Older revisions have no extensions, whatever their clients declare.
            work.as_task = not work.legacy and declares(work.meta.client_capabilities)
            if tool.task.required and not work.as_task:
                text = f"tool {tool.key} runs only as a task, for clients with the capability {TASKS_EXTENSION}"
                return error_answer(work.id_json, MISSING_CLIENT_CAPABILITY, text, required_capabilities())
        return None

    @staticmethod
    def _unknown(id_json: bytes, member: str, what: str, name: str | UnsetType) -> Answer:
        if name is UNSET:
            return error_answer(id_json, INVALID_PARAMS, f"params.{member} is missing")
        return error_answer(id_json, INVALID_PARAMS, f"Unknown {what}: {str(name)[:200]}")

    def _find_completion(self, work: Work, principal: Principal | None) -> Answer | None:
        params, id_json = work.params, work.id_json
        ref = params.ref
        if ref is UNSET or params.argument is UNSET:
            return error_answer(id_json, INVALID_PARAMS, "params.ref and params.argument are required")
        item: Prompt | ResourceTemplate | Resource | None = None
        if ref.type == "ref/prompt":
            item = self.registry.prompts.get(ref.name)
        elif ref.type == "ref/resource":
            item = self.registry.templates.get(ref.uri) or self.registry.resources.get(ref.uri)
        else:
            return error_answer(id_json, INVALID_PARAMS, "params.ref.type is neither ref/prompt nor ref/resource")
        if item is None or not item.is_visible(principal):
            return self._unknown(id_json, "ref", "reference", ref.name or ref.uri)
        work.item = item
        return None

    def _listen(
        self, request_id: RequestId, id_json: bytes, params: Params, meta: RequestMeta, principal: Principal | None
    ) -> Outcome:
        if not self.listen:
            return error_answer(id_json, METHOD_NOT_FOUND, "Method not found: subscriptions/listen")
        wanted = params.notifications
        if wanted is UNSET:
            return error_answer(id_json, INVALID_PARAMS, "params.notifications is missing")
        uris = wanted.resource_subscriptions
        if uris is not None and len(uris) > _MAX_SUBSCRIPTIONS:
            return error_answer(id_json, INVALID_PARAMS, f"at most {_MAX_SUBSCRIPTIONS} resources per listen request")
        task_ids = wanted.task_ids if GET_TASK in self._methods else None
        if task_ids is not None and (params.meta is UNSET or not declares(params.meta.client_capabilities)):
            text = f"listening to tasks needs the client capability {TASKS_EXTENSION}"
            return error_answer(id_json, MISSING_CLIENT_CAPABILITY, text, required_capabilities())
        if task_ids is not None and len(task_ids) > _MAX_TASKS:
            return error_answer(id_json, INVALID_PARAMS, f"at most {_MAX_TASKS} tasks per listen request")
        offers = self.registry.offers_list
        accepted = ListenFilter(
            wanted.tools_list_changed and offers("tools/list"),
            wanted.prompts_list_changed and offers("prompts/list"),
            wanted.resources_list_changed and offers("resources/list"),
            [uri for uri in dict.fromkeys(uris) if self.registry.can_subscribe(uri, principal)] if uris else None,
            None if task_ids is None else list(dict.fromkeys(task_ids)),
        )
        return Listen(request_id, id_json, accepted, meta)

    def _name_source(self, method: str) -> str | None:
        """The member of params that `Mcp-Name` mirrors. An extension's methods have none on servers without the extension."""
        source = _NAME_SOURCE.get(method)
        return source if source != "taskId" or method in self._methods else None

    def _check_headers(
        self,
        id_json: bytes,
        method: str,
        params: Params,
        version: str,
        headers: Sequence[tuple[bytes, bytes]],
        header_map: Mapping[bytes, bytes],
    ) -> Answer | None:
        source = self._name_source(method)
        value: str | None = None
        if source is not None:
            named = params.uri if source == "uri" else params.name if source == "name" else params.task_id
            if not isinstance(named, str):
                return error_answer(id_json, INVALID_PARAMS, f"params.{source} is missing or not a text")
            value = named
        if (
            value is not None
            and header_map.get(_NAME_HEADER) == value.encode()
            and value.isascii()
            and not value.startswith("=?")
            and header_map.get(_METHOD_HEADER) == method.encode()
            and header_map.get(_VERSION_HEADER) == self._modern[version]
            and len(header_map) == len(headers)
        ):
            return None
        finding = mcp_headers.check_headers(headers, method=method, name=value, version=version)
        return None if finding is None else error_answer(id_json, HEADER_MISMATCH, finding.message)

    def _refuse_version(
        self,
        id_json: bytes | None,
        version: str,
        headers: Sequence[tuple[bytes, bytes]] | None,
        header_map: Mapping[bytes, bytes] | None,
    ) -> Answer:
        if header_map is not None and header_map.get(_VERSION_HEADER, version.encode()).strip() != version.encode():
            message = f"Header mismatch: {mcp_headers.PROTOCOL_VERSION} is not the version in the request's _meta"
            return error_answer(id_json, HEADER_MISMATCH, message)
        return error_answer(
            id_json,
            UNSUPPORTED_VERSION,
            "Unsupported protocol version",
            {"supported": self.versions, "requested": version[:100]},
        )

    def _dispatch_carefully(
        self,
        body: bytes,
        headers: Sequence[tuple[bytes, bytes]] | None,
        header_map: Mapping[bytes, bytes] | None,
        principal: Principal | None,
        in_session: bool,
    ) -> Outcome:
        """The same decisions for a message that is not a well-formed modern request, one at a time."""
        try:
            message = decode_message(body)
        except ValueError:
            # An integer of more digits than Python converts.
            message = Malformed(PARSE_ERROR, "a number has too many digits")
        if isinstance(message, Malformed):
            id_json = None if message.id is None else id_bytes(message.id)
            return error_answer(id_json, message.code, f"Invalid message: {message.reason}")
        if isinstance(message, (ResultReply, ErrorReply)):
            if self.legacy and in_session:
                return Legacy(message)
            return error_answer(None, INVALID_REQUEST, "a client sends requests and notifications, not responses")
        if isinstance(message, Notification):
            modern_header = header_map is not None and header_map.get(_VERSION_HEADER) in _MODERN_HEADER_VALUES
            if self.legacy and not modern_header and (in_session or header_map is not None):
                return Legacy(message)
            return Notified(message)
        id_json = id_bytes(message.id)
        try:
            members = _decode_members(message.params) if message.params else {}
            raw_meta = members.get("_meta")
            meta_members = _decode_members(raw_meta) if raw_meta is not None else {}
        except (msgspec.DecodeError, RecursionError):
            if self._is_legacy(message.method, {}, header_map, in_session):
                return Legacy(message)
            return error_answer(id_json, INVALID_PARAMS, "params, or its _meta, is not an object")
        if self._is_legacy(message.method, meta_members, header_map, in_session):
            return Legacy(message)
        if message.method == "initialize" and PROTOCOL_VERSION not in meta_members:
            # Old clients show little but the message: it has to say what would work. Spec: basic/versioning (SHOULD)
            requested = _text(members.get("protocolVersion"))
            return error_answer(
                id_json,
                UNSUPPORTED_VERSION,
                f"This server has no initialize handshake; it speaks MCP {', '.join(self.versions)}",
                {"supported": self.versions, "requested": requested[:100]},
            )
        for key in _META_KEYS:
            if key not in meta_members:
                return error_answer(id_json, INVALID_PARAMS, f"params._meta lacks {key}")
        if _kind(meta_members[PROTOCOL_VERSION]) != "string" or _kind(meta_members[CLIENT_CAPABILITIES]) != "object":
            return error_answer(
                id_json, INVALID_PARAMS, f"{PROTOCOL_VERSION} is a string and {CLIENT_CAPABILITIES} an object"
            )
        try:
            _decode_meta(raw_meta or b"{}")
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            return error_answer(id_json, INVALID_PARAMS, f"Invalid params._meta: {str(error)[:300]}")
        version = _text(meta_members[PROTOCOL_VERSION])
        if version not in self._modern:
            return self._refuse_version(id_json, version, headers, header_map)
        if header_map is not None:
            source = self._name_source(message.method)
            name = _text(members.get(source)) if source else None
            finding = mcp_headers.check_headers(headers or (), method=message.method, name=name, version=version)
            if finding is not None:
                return error_answer(id_json, HEADER_MISMATCH, finding.message)
        if not self._knows(message.method):
            return error_answer(id_json, METHOD_NOT_FOUND, f"Method not found: {message.method[:100]}")
        try:
            decode_params(message.params)
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            return error_answer(id_json, INVALID_PARAMS, f"Invalid params: {_in_params(error)}")
        return error_answer(id_json, INVALID_REQUEST, "the request cannot be read")

    def _knows(self, method: str) -> bool:
        if method in _LISTS:
            return self.registry.offers_list(method)
        owner = {"tools/call": "tools/list", "prompts/get": "prompts/list", "resources/read": "resources/list"}.get(
            method
        )
        if owner is not None:
            return self.registry.offers_list(owner)
        if method == "completion/complete":
            return self.registry.offers_completions()
        return (
            method == "server/discover" or (method == "subscriptions/listen" and self.listen) or method in self._methods
        )

    def _is_legacy(
        self,
        method: str,
        meta_members: Mapping[str, Any],
        header_map: Mapping[bytes, bytes] | None,
        in_session: bool,
    ) -> bool:
        """The era of a request, decided by how it presents itself, never by its method alone.

        Spec: 2026-07-28 basic/versioning#backward-compatibility-with-initialization-based-versions
        """
        if not self.legacy or any(key in meta_members for key in _META_KEYS):
            return False
        if header_map is not None and header_map.get(_VERSION_HEADER) in _MODERN_HEADER_VALUES:
            return False
        if method == "server/discover":
            return False
        return method == "initialize" or in_session or (method == "ping" and header_map is None)


def _text(raw: Raw | None) -> str:
    try:
        value = msgspec.json.decode(raw) if raw else ""
    except (msgspec.DecodeError, RecursionError, ValueError):
        return ""
    return value if isinstance(value, str) else ""


def _kind(raw: Raw) -> str:
    first = bytes(raw).lstrip()[:1]
    return {b'"': "string", b"{": "object"}.get(first, "other")


def _in_params(error: Exception) -> str:
    return str(error).replace("`$.", "`params.").replace("`$`", "`params`")[:300]
