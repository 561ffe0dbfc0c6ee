"""What a server offers: tools, resources, resource templates, prompts and completions; and from these, what it says about itself.

Decided here: the order of lists, their pages and cursors, who sees what, caching scope, and which capabilities follow from what is
registered. Not here: calling anything (`running`), and the wire around a result (`dispatch`).

Every answer that does not depend on the caller is kept as bytes and made again only after a change. Items are sorted by name and a cursor
names the last item of its page, so that all processes of a fleet answer with the same bytes and understand each other's cursors.

Spec: 2026-07-28 server/discover, server/utilities/pagination, server/utilities/caching. No I/O; safe to change from any thread.
"""

from __future__ import annotations

import base64
import logging
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from outrider.protocol.headers import HeaderParam
from outrider.protocol.meta import SERVER_INFO, check_extension_id
from outrider.protocol.model import PROMPTS, RESOURCE_TEMPLATES, RESOURCES, TOOLS, ListKind
from outrider.protocol.tasks import EXTENSION as TASKS_EXTENSION
from outrider.server.schemas import OutputType, Parameters
from outrider.server.templates import UriTemplate

__all__ = [
    "Completer",
    "Principal",
    "Prompt",
    "Registry",
    "Resource",
    "ResourceTemplate",
    "TaskSupport",
    "Tool",
    "Visibility",
]

_log: Final = logging.getLogger("outrider.server")
_encode: Final = msgspec.json.Encoder().encode
_KINDS: Final = (TOOLS, PROMPTS, RESOURCES, RESOURCE_TEMPLATES)
_MAX_VIEWS: Final = 64


@dataclass(frozen=True, slots=True)
class Principal:
    """Who makes a request, as the author's own authentication established it.

    Attributes:
        id: a stable identifier; it binds what is sealed for this caller.
        scopes: what the caller may do, in the author's own words.
        claims: anything else that tools want to know.
    """

    id: str
    scopes: frozenset[str] = frozenset()
    claims: Mapping[str, Any] = field(default_factory=dict)


Visibility = Callable[[Principal | None], bool]
"""Whether a caller sees and may use an item; None is a caller who is not known."""

Completer = Callable[..., Any]
"""`(value)` or `(value, arguments)` to the suggestions for one argument, best first; sync or async."""


class _Item(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    wire: bytes
    legacy_wire: bytes
    visible_to: Visibility | None = None

    def is_visible(self, principal: Principal | None) -> bool:
        if self.visible_to is None:
            return True
        try:
            return bool(self.visible_to(principal))
        except Exception:
            # A broken rule must not show what it was to hide.
            _log.exception("the visibility rule of %r failed; it stays hidden", self.key)
            return False


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSupport:
    """How a tool runs as a task, for clients that take tasks.

    Attributes:
        required: whether other clients are refused (-32021). Otherwise they wait for the result as with any tool.
        after_s: a call is answered with its result if the function is done within so many seconds, and with a task if not, or as soon as
            the function asks something; 0 for a task at once. None leaves it to the function: until it awaits `ctx.to_task()`, its
            questions travel in results, and if it returns before, there is no task.
        poll_interval_ms: how often clients are told to ask, in milliseconds; None for the server's own interval.
    """

    required: bool = False
    after_s: float | None = 0.0
    poll_interval_ms: int | None = None

    def __post_init__(self) -> None:
        """Refuse what clients could not follow."""
        if (self.after_s is not None and self.after_s < 0) or (
            self.poll_interval_ms is not None and self.poll_interval_ms < 1
        ):
            raise ValueError("after_s is at least 0; a poll interval is at least 1 ms")

    @classmethod
    def of(cls, given: TaskSupport | bool | Literal["required"]) -> TaskSupport | None:
        """What an author wrote, or None for a tool that is never a task."""
        if isinstance(given, cls):
            return given
        if given == "required":
            return cls(required=True)
        if isinstance(given, bool):
            return cls() if given else None
        raise ValueError(f"task is True, False, 'required' or a TaskSupport, not {given!r}")


class Tool(_Item, frozen=True, kw_only=True):
    """A tool. `read` decodes and checks arguments; a tool without `parameters` takes the checked object as it is."""

    function: Callable[..., Any]
    parameters: Parameters | None
    output: OutputType | None
    check_arguments: Callable[[Any], Sequence[str]] | None
    is_async: bool
    inline: bool
    wants_context: bool
    mirrored: tuple[HeaderParam, ...] = ()
    timeout_s: float | None = None
    task: TaskSupport | None = None


class Prompt(_Item, frozen=True, kw_only=True):
    """A prompt. Without `parameters` the function takes the arguments object and the context."""

    function: Callable[..., Any]
    parameters: Parameters | None
    description: str
    is_async: bool
    inline: bool
    completers: Mapping[str, Completer]


class Resource(_Item, frozen=True, kw_only=True):
    """A resource with a fixed URI. `function` takes nothing, or the context; without `parameters` the URI and the context."""

    function: Callable[..., Any]
    parameters: Parameters | None
    mime_type: str | None
    is_async: bool
    inline: bool
    ttl_ms: int
    scope: Literal["public", "private"]
    subscribable: bool


class ResourceTemplate(_Item, frozen=True, kw_only=True):
    """Resources whose URIs fit a template; `function` takes its variables; without `parameters` the URI and the context."""

    template: UriTemplate
    function: Callable[..., Any]
    parameters: Parameters | None
    mime_type: str | None
    is_async: bool
    inline: bool
    ttl_ms: int
    scope: Literal["public", "private"]
    subscribable: bool
    completers: Mapping[str, Completer]


class _Shelf:
    """The items of one kind, and their list rendered as pages."""

    def __init__(self, kind: ListKind, page_size: int, ttl_ms: int, identity_member: bytes) -> None:
        self.kind = kind
        self._ttl_ms, self._identity_member = ttl_ms, identity_member
        self.items: dict[str, Any] = {}
        self._page_size = page_size
        self._keys: list[str] | None = None
        # (the visible keys or None for all, legacy) -> (cursor or None -> page)
        self._views: dict[tuple[tuple[str, ...] | None, bool], dict[str | None, bytes]] = {}
        self._private: bool | None = None

    def changed(self) -> None:
        # What follows from the items is found out when it is asked for: ten thousand are registered one by one.
        self._keys = None
        self._views = {}
        self._private = None

    @property
    def private(self) -> bool:
        """Whether the list depends on who asks."""
        private = self._private
        if private is None:
            private = self._private = any(item.visible_to is not None for item in list(self.items.values()))
        return private

    def keys(self) -> list[str]:
        keys = self._keys
        if keys is None:
            keys = self._keys = sorted(self.items)
        return keys

    def page(self, cursor: str | None, principal: Principal | None, *, legacy: bool) -> bytes | None:
        """One page as a result; None for a cursor that is not ours. It is put together once per change, not per request."""
        visible: tuple[str, ...] | None = None
        if self.private:
            visible = tuple(key for key in self.keys() if self.items[key].is_visible(principal))
        views = self._views
        pages = views.get((visible, legacy))
        if pages is None:
            if len(views) >= _MAX_VIEWS:
                views.pop(next(iter(views)))
            pages = views[(visible, legacy)] = {}
        page = pages.get(cursor)
        if page is not None:
            return page
        keys: Sequence[str] = self.keys() if visible is None else visible
        start = 0
        if cursor is not None:
            last = self._read_cursor(cursor)
            if last is None:
                return None
            start = bisect_right(keys, last)
        shown = keys[start : start + self._page_size]
        items = self.items
        parts = [items[key].legacy_wire if legacy else items[key].wire for key in shown if key in items]
        members = b'"' + self.kind.member.encode() + b'":[' + b",".join(parts) + b"]"
        if start + self._page_size < len(keys):
            members += b',"nextCursor":' + _encode(self._write_cursor(shown[-1]))
        if legacy:
            page = b"{" + members + b"}"
        else:
            scope = b"private" if self.private else b"public"
            hints = b',"ttlMs":%d,"cacheScope":"%s"' % (self._ttl_ms, scope)
            page = b'{"resultType":"complete",' + members + hints + self._identity_member + b"}"
        # Only positions that we hand out are kept: any other cursor a caller may invent is answered but not remembered.
        if cursor is None or (start and keys[start - 1] == self._read_cursor(cursor)):
            pages[cursor] = page
        return page

    def _write_cursor(self, key: str) -> str:
        return base64.urlsafe_b64encode(f"{self.kind.member}:{key}".encode()).decode().rstrip("=")

    def _read_cursor(self, cursor: str) -> str | None:
        try:
            text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
        except ValueError:
            return None
        member, colon, key = text.partition(":")
        return key if colon and member == self.kind.member else None


class Registry:
    """Everything one server offers.

    Attributes:
        tools: by name. prompts: by name. resources: by URI. templates: by URI template. Read them; change them with the methods.
    """

    def __init__(
        self,
        *,
        identity: Mapping[str, Any],
        instructions: str | None,
        identify: bool,
        offers: Iterable[str],
        extensions: Mapping[str, Mapping[str, Any]],
        page_size: int,
        list_ttl_ms: int,
        discover_ttl_ms: int,
    ) -> None:
        """See `Server`, which passes these on."""
        for identifier in extensions:
            if finding := check_extension_id(identifier):
                raise ValueError(f"extension {identifier!r}: {finding}")
        self._offers = frozenset(offers)
        if unknown := self._offers - {"tools", "prompts", "resources", "completions", "logging"}:
            raise ValueError(f"offers: unknown {', '.join(sorted(unknown))}")
        self._identity = dict(identity)
        self._instructions = instructions
        self._extensions = {identifier: dict(settings) for identifier, settings in sorted(extensions.items())}
        self._discover_ttl_ms = discover_ttl_ms
        self._lock = threading.Lock()
        self.identity_meta: Mapping[str, Any] = {SERVER_INFO: self._identity} if identify else {}
        """What every result's `_meta` says about the server; empty when identity is switched off."""
        self.identity_member = b',"_meta":' + _encode(self.identity_meta) if identify else b""
        """The `_meta` member of every result that has no `_meta` of its own, with its comma; empty when identity is switched off."""
        self._shelves = {kind: _Shelf(kind, page_size, list_ttl_ms, self.identity_member) for kind in _KINDS}
        self.tools: dict[str, Tool] = self._shelves[TOOLS].items
        self.prompts: dict[str, Prompt] = self._shelves[PROMPTS].items
        self.resources: dict[str, Resource] = self._shelves[RESOURCES].items
        self.templates: dict[str, ResourceTemplate] = self._shelves[RESOURCE_TEMPLATES].items
        self._by_method = {kind.method: self._shelves[kind] for kind in _KINDS}
        self.revision = 0
        """Grows with every change: who keeps something made of the registry sees by it that it is out of date."""
        self.changed: Callable[[ListKind], None] = lambda kind: None

    @property
    def identity(self) -> Mapping[str, Any]:
        """The server's Implementation."""
        return self._identity

    @property
    def instructions(self) -> str | None:
        """Guidance for a model."""
        return self._instructions

    @property
    def mirrored_headers(self) -> tuple[str, ...]:
        """The `Mcp-Param-*` names that tools use, for CORS."""
        return tuple(sorted({param.header for tool in list(self.tools.values()) for param in tool.mirrored}))

    def add(self, item: Tool | Prompt | Resource | ResourceTemplate, *, replace: bool = False) -> None:
        """Register an item.

        Raises:
            ValueError: its name is taken and `replace` is false.
        """
        shelf = self._shelf_of(item)
        with self._lock:
            if not replace and item.key in shelf.items:
                raise ValueError(f"{item.key!r} is registered already among the {shelf.kind.label}")
            shelf.items[item.key] = item
            self._refresh(shelf)
        self.changed(shelf.kind)

    def remove(self, kind: ListKind, key: str) -> bool:
        """Take an item away; False when there was none of that name."""
        shelf = self._shelves[kind]
        with self._lock:
            if shelf.items.pop(key, None) is None:
                return False
            self._refresh(shelf)
        self.changed(shelf.kind)
        return True

    def replace_completer(self, kind: ListKind, key: str, item: Prompt | ResourceTemplate) -> None:
        """Put an item with other completers in the place of the old one; nothing that a list shows has changed."""
        with self._lock:
            self._shelves[kind].items[key] = item
            self.revision += 1

    def _shelf_of(self, item: object) -> _Shelf:
        kinds: dict[type, ListKind] = {
            Tool: TOOLS,
            Prompt: PROMPTS,
            Resource: RESOURCES,
            ResourceTemplate: RESOURCE_TEMPLATES,
        }
        return self._shelves[kinds[type(item)]]

    def _refresh(self, shelf: _Shelf) -> None:
        shelf.changed()
        self.revision += 1

    def capabilities(self, *, listen: bool, legacy: bool = False) -> dict[str, Any]:
        """What the server can do, as ServerCapabilities.

        Args:
            listen: whether the transport can carry change notifications to this client.
            legacy: for the answer to `initialize`: extensions stay out, which those revisions do not know.

        Spec: 2026-07-28 server/discover, and the capabilities section of each feature (MUST)
        """
        found: dict[str, Any] = {}
        if self._may_log() or "logging" in self._offers:
            found["logging"] = {}
        if self.offers_completions():
            found["completions"] = {}
        changing = {"listChanged": True} if listen else {}
        if self.prompts or "prompts" in self._offers:
            found["prompts"] = dict(changing)
        if self.resources or self.templates or "resources" in self._offers:
            every: list[Resource | ResourceTemplate] = [*self.resources.values(), *self.templates.values()]
            subscribable = any(resource.subscribable for resource in every)
            found["resources"] = {**({"subscribe": True} if listen and subscribable else {}), **changing}
        if self.tools or "tools" in self._offers:
            found["tools"] = dict(changing)
        extensions = self._extensions
        if any(tool.task is not None for tool in self.tools.values()):
            extensions = dict(sorted({TASKS_EXTENSION: {}, **extensions}.items()))
        if extensions and not legacy:
            found["extensions"] = extensions
        return found

    def discover(self, versions: tuple[str, ...], *, listen: bool) -> bytes:
        """The DiscoverResult for a transport that speaks `versions`. Spec: 2026-07-28 server/discover#discoverresult"""
        body: dict[str, Any] = {
            "resultType": "complete",
            "supportedVersions": versions,
            "capabilities": self.capabilities(listen=listen),
        }
        if self._instructions is not None:
            body["instructions"] = self._instructions
        body["ttlMs"] = self._discover_ttl_ms
        body["cacheScope"] = "public"
        return _encode(body)[:-1] + self.identity_member + b"}"

    def _may_log(self) -> bool:
        """Whether a registered function can send log messages: exactly those that get a context can."""
        others: list[Prompt | Resource | ResourceTemplate] = [
            *self.prompts.values(),
            *self.resources.values(),
            *self.templates.values(),
        ]
        return any(tool.wants_context for tool in self.tools.values()) or any(
            item.parameters is None or item.parameters.injected is not None for item in others
        )

    def offers_completions(self) -> bool:
        """Whether `completion/complete` exists on this server."""
        if "completions" in self._offers or any(prompt.completers for prompt in self.prompts.values()):
            return True
        return any(template.completers for template in self.templates.values())

    def offers_list(self, method: str) -> bool:
        """Whether a list method exists on this server: its kind is registered or promised. Spec: basic/index#error-codes"""
        if method == TOOLS.method:
            return bool(self.tools) or "tools" in self._offers
        if method == PROMPTS.method:
            return bool(self.prompts) or "prompts" in self._offers
        return bool(self.resources) or bool(self.templates) or "resources" in self._offers

    def page(
        self, method: str, cursor: str | None, principal: Principal | None, *, legacy: bool = False
    ) -> bytes | None:
        """The result of a list request, or None when the cursor is not one of ours.

        Spec: 2026-07-28 server/utilities/pagination, server/utilities/caching#interaction-with-pagination (one scope for all pages, MUST)
        """
        return self._by_method[method].page(cursor, principal, legacy=legacy)

    def find_resource(
        self, uri: str, principal: Principal | None
    ) -> tuple[Resource | ResourceTemplate, dict[str, str]] | None:
        """What serves `uri` to this caller, with the template's values; None when nothing does."""
        resource = self.resources.get(uri)
        if resource is not None:
            return (resource, {}) if resource.is_visible(principal) else None
        for key in self._shelves[RESOURCE_TEMPLATES].keys():  # noqa: SIM118 - sorted keys, not a dict's
            template = self.templates.get(key)
            values = template.template.match(uri) if template else None
            if template and values is not None and template.is_visible(principal):
                return template, values
        return None

    def can_subscribe(self, uri: str, principal: Principal | None) -> bool:
        """Whether this caller may be told when the resource at `uri` changes."""
        found = self.find_resource(uri, principal)
        return found is not None and found[0].subscribable
