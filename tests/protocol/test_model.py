"""What a client reads of a server: nothing but RemoteProtocolError for what cannot be used, and nothing lost of what can."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import RemoteProtocolError
from outrider.protocol.model import (
    LIST_KINDS,
    PROMPTS,
    RESOURCE_TEMPLATES,
    RESOURCES,
    TOOLS,
    ListKind,
    ListPage,
    Prompt,
    Resource,
    ResourceTemplate,
    Tool,
    read_description,
    read_initialize,
    read_page,
)
from outrider.protocol.results import read_result
from protocol.schemas import SCHEMAS

SERVER_INFO = "io.modelcontextprotocol/serverInfo"
CALLS = ("tools/call", "resources/read", "prompts/get", "completion/complete")

NAMES = [
    *(
        "resultType",
        "supportedVersions",
        "capabilities",
        "_meta",
        "instructions",
        "protocolVersion",
        "serverInfo",
        "name",
    ),
    *("tools", "prompts", "resources", "resourceTemplates", "nextCursor", "uri", "uriTemplate", "inputSchema", "type"),
    *("content", "isError", "structuredContent", "contents", "messages", "role", "completion", "values", "total"),
    *("hasMore", "inputRequests", "requestState", "method", "arguments", "annotations", "outputSchema", SERVER_INFO),
]
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["complete", "input_required", "object", "text", "user", "2026-07-28", "name", ""])
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=15,
)


def raw(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def page_of(kind: ListKind, *items: Any, **members: Any) -> ListPage:
    return read_page(kind, raw({kind.member: list(items), **members}))


def tool(name: str = "t", **members: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **members}


def tools_of(page: ListPage) -> list[Tool]:
    return [item for item in page.items if isinstance(item, Tool)]


def refusals(readers: Iterable[Callable[[], object]]) -> list[RemoteProtocolError]:
    """What the readers that cannot read raise; anything but a refusal passes through."""
    found = []
    for read in readers:
        try:
            read()
        except RemoteProtocolError as refusal:
            found.append(refusal)
    return found


class TestAnything:
    @given(json_values)
    def test_every_reader_reads_or_refuses(self, value: Any) -> None:
        """Ours: nothing a peer sends may raise anything else."""
        payload = raw(value)
        readers = [
            lambda: read_description(payload),
            lambda: read_initialize(payload),
            *(lambda kind=kind: read_page(kind, payload) for kind in LIST_KINDS),
            *(lambda method=method: read_result(method, payload) for method in CALLS),
        ]
        for refusal in refusals(readers):
            assert str(refusal)
            assert refusal.rule
            assert len(refusal.excerpt) <= 200

    @given(st.binary(max_size=50))
    def test_bytes_too(self, payload: bytes) -> None:
        """Ours."""
        readers = (
            lambda: read_description(payload),
            lambda: read_page(TOOLS, payload),
            lambda: read_result("tools/call", payload),
        )
        assert all(map(str, refusals(readers)))

    @given(st.sampled_from(LIST_KINDS), st.lists(json_values, max_size=5))
    def test_a_page_loses_no_item_without_a_word(self, kind: ListKind, items: list[Any]) -> None:
        """Case 30: listed or set aside with a reason, one by one; sound neighbours stay."""
        identity = {kind.identity: "x"}
        sound = tool("sound") if kind is TOOLS else {"name": "sound", **identity}
        page = page_of(kind, *items, sound)
        excluded = [entry for entry in page.quarantined if entry.excluded]
        assert len(page.items) + len(excluded) == len(items) + 1
        assert page.items[-1].decoded() == sound
        assert all(entry.item and entry.reason for entry in page.quarantined)

    @given(st.dictionaries(st.text(max_size=5), json_values, max_size=4))
    def test_an_item_is_what_came(self, extra: dict[str, Any]) -> None:
        """Case 118: members we do not know survive, in their order."""
        sent = {**extra, "name": "t", "inputSchema": {"type": "object"}}
        sent.pop("outputSchema", None)
        (item,) = page_of(TOOLS, sent).items
        assert item.decoded() == sent
        assert list(item.decoded()) == list(sent)


class TestTools:
    @given(SCHEMAS, st.none() | SCHEMAS, st.none() | st.dictionaries(st.text(max_size=5), json_values), json_values)
    def test_reading_in_one_pass_never_changes_what_is_read(
        self, inputs: Any, outputs: Any, annotations: dict[str, Any] | None, title: Any
    ) -> None:
        """Ours: a tool is the same, and what is amiss with it, whether or not it is looked at member by member."""
        sent = tool(inputSchema=inputs, outputSchema=outputs, annotations=annotations, title=title)
        # With so many brackets somewhere, nobody can say at a glance that the schemas are small.
        quick, slow = (page_of(TOOLS, entry) for entry in (sent, {**sent, "x": [[]] * 500}))
        assert quick.quarantined == slow.quarantined
        read = [
            [(found.name, found.title, found.description, found.annotations, found.has_output_schema) for found in page]
            for page in (tools_of(quick), tools_of(slow))
        ]
        assert read[0] == read[1]


class TestDescriptions:
    def test_a_whole_one(self) -> None:
        """Spec server/discover#discoverresult."""
        wire = {
            "resultType": "complete",
            "supportedVersions": ["2026-07-28", "x"],
            "capabilities": {"tools": {}, "extensions": {"com.example/x": {"a": 1}}},
            "instructions": "Do.",
            "_meta": {
                SERVER_INFO: {"name": "n", "version": "1", "title": "T", "websiteUrl": "https://e/", "future": 1}
            },
            "future": 1,
        }
        server = read_description(raw(wire))
        assert server.supported_versions == ("2026-07-28", "x")
        assert server.extensions == {"com.example/x": {"a": 1}}
        assert (server.instructions, server.wire, server.warnings) == ("Do.", wire, ())
        assert server.identity is not None
        assert (server.identity.name, server.identity.title, server.identity.website_url) == ("n", "T", "https://e/")

    @pytest.mark.parametrize("kind", ["input_required", "", 7, [], {}])
    def test_an_unknown_result_type_is_no_description(self, kind: object) -> None:
        """Spec basic/index#resulttype (MUST)."""
        with pytest.raises(RemoteProtocolError):
            read_description(raw({"resultType": kind, "supportedVersions": [], "capabilities": {}}))

    @pytest.mark.parametrize(
        ("declared", "read"),
        [({}, {}), (True, {}), ({"listChanged": True}, {"listChanged": True}), (None, None), (False, None)],
    )
    def test_what_counts_as_declared(self, declared: object, read: object) -> None:
        """Case 31: null and false are not declared; true is a common slip for {}."""
        server = read_description(raw({"supportedVersions": [], "capabilities": {"tools": declared}}))
        assert server.capabilities.get("tools") == read

    def test_an_identity_in_the_wrong_place(self) -> None:
        """Ours: read, with a warning."""
        server = read_description(raw({"supportedVersions": [], "capabilities": {}, "serverInfo": {"name": "n"}}))
        assert server.identity is not None
        assert any("serverInfo" in warning for warning in server.warnings)

    def test_a_handshake_in_the_same_shape(self) -> None:
        """Spec 2025-11-25 lifecycle#initialization; ours: both eras are read as one."""
        version, server = read_initialize(
            raw(
                {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "n", "version": None},
                }
            )
        )
        assert (version, server.supported_versions) == ("2025-06-18", ("2025-06-18",))
        assert server.identity is not None
        assert (server.identity.name, server.identity.version) == ("n", "")
        with pytest.raises(RemoteProtocolError):
            read_initialize(raw({"capabilities": {}}))


class TestPages:
    def test_cursors(self) -> None:
        """Case 31, case 51: null is the end, "" is not, and a number is sent back as a text, anything else ends the list with a word."""
        assert page_of(TOOLS).next_cursor is None
        assert page_of(TOOLS, nextCursor=None).next_cursor is None
        assert page_of(TOOLS, nextCursor="").next_cursor == ""
        for cursor, following, is_cut in (
            (7, "7", False),
            (0, None, False),
            (False, None, False),
            ({}, None, True),
            (1.5, None, True),
        ):
            page = page_of(TOOLS, tool(), nextCursor=cursor)
            assert (page.next_cursor, page.is_cut) == (following, is_cut)
            assert [entry.item for entry in page.quarantined] == ["nextCursor"]
            assert len(page.items) == 1

    def test_hints_are_kept(self) -> None:
        """Spec server/utilities/caching: for whoever remembers the page."""
        assert page_of(TOOLS, tool(), ttlMs=5, cacheScope="public", _meta={"a": 1}).meta == {
            "ttlMs": 5,
            "cacheScope": "public",
            "_meta": {"a": 1},
        }

    @pytest.mark.parametrize(
        "payload",
        [
            b"",
            b"null",
            b"[]",
            b"{}",
            b'{"tools":null}',
            b'{"tools":{}}',
            b'{"tools":[',
            b'{"tools":[],"resultType":"x"}',
        ],
    )
    def test_what_is_no_page(self, payload: bytes) -> None:
        """Spec pagination#response-format."""
        with pytest.raises(RemoteProtocolError):
            read_page(TOOLS, payload)

    def test_tools(self) -> None:
        """Case 31, case 32."""
        full = tool(
            "a",
            title="A",
            description="d",
            annotations={"readOnlyHint": True, "x": None},
            outputSchema={"type": "object"},
        )
        page = page_of(TOOLS, full, tool("b", title=7, description=None, annotations=[], outputSchema=None))
        first, second = page.items
        assert isinstance(first, Tool)
        assert isinstance(second, Tool)
        assert (first.title, first.description, first.annotations) == ("A", "d", {"readOnlyHint": True})
        assert (first.input_schema, first.output_schema) == ({"type": "object"}, {"type": "object"})
        assert (second.title, second.description, second.annotations, second.output_schema) == ("", "", {}, None)
        assert [(entry.item, entry.excluded) for entry in page.quarantined] == [("b", False)]

    def test_prompts_resources_and_templates(self) -> None:
        """Spec server/prompts#prompt, server/resources#resource, #resource-templates."""
        (prompt,) = page_of(PROMPTS, {"name": "p", "arguments": [{"name": "a"}, {"x": 1}, 7]}).items
        assert isinstance(prompt, Prompt)
        assert prompt.arguments == ({"name": "a"},)
        (resource,) = page_of(RESOURCES, {"uri": "memo://a", "mimeType": "text/plain"}).items
        assert isinstance(resource, Resource)
        assert (resource.uri, resource.name, resource.mime_type) == ("memo://a", "memo://a", "text/plain")
        (template,) = page_of(RESOURCE_TEMPLATES, {"uriTemplate": "memo://{x}", "name": "n"}).items
        assert isinstance(template, ResourceTemplate)
        assert (template.uri_template, template.name) == ("memo://{x}", "n")

    @pytest.mark.parametrize("kind", LIST_KINDS, ids=lambda kind: kind.label)
    def test_an_item_without_what_makes_it_unique(self, kind: ListKind) -> None:
        """Case 30."""
        page = page_of(kind, {"title": "x"}, {kind.identity: 7}, {kind.identity: ""})
        assert page.items == ()
        assert [entry.item for entry in page.quarantined] == [f"{kind.member}[{n}]" for n in range(3)]

    def test_the_four_lists(self) -> None:
        """Spec pagination#operations-supporting-pagination, subscriptions#notification-filter."""
        assert [(kind.method, kind.capability, kind.changed, kind.listen) for kind in LIST_KINDS] == [
            ("tools/list", "tools", "notifications/tools/list_changed", "toolsListChanged"),
            ("prompts/list", "prompts", "notifications/prompts/list_changed", "promptsListChanged"),
            ("resources/list", "resources", "notifications/resources/list_changed", "resourcesListChanged"),
            ("resources/templates/list", "resources", "notifications/resources/list_changed", "resourcesListChanged"),
        ]

    def test_depth_is_bounded(self) -> None:
        """Case 125: a refusal, never a stack that overflows."""
        page = read_page(
            TOOLS, b'{"tools":[' + raw(tool("a")) + b',{"name":"deep","inputSchema":' + b"[" * 900 + b"]" * 900 + b"}]}"
        )
        assert [item.name for item in page.items] == ["a"]

    def test_items_keep_their_bytes_after_the_page_is_gone(self) -> None:
        """Ours: an item does not hold the whole page in memory, nor point into freed memory."""
        payload = bytearray(raw({"tools": [tool("a", description="x" * 100)]}))
        (item,) = read_page(TOOLS, msgspec.Raw(bytes(payload))).items
        payload[:] = b" " * len(payload)
        assert item.decoded()["description"] == "x" * 100
