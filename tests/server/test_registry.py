"""Lists, pages, capabilities and discover, as a client sees them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from outrider.server import Context, HttpOptions, Principal, Server, ServerOptions
from server.asgi import Caller

FEATURES = ("tools", "prompts", "resources", "templates", "completions", "logging")


def answer() -> str:
    """Answer."""
    return "ok"


def greet(name: str) -> str:
    """Greet."""
    return name


def with_context(ctx: Context) -> str:
    """Use the context."""
    return "ok"


def server_with(*features: str, options: ServerOptions | None = None) -> Server:
    server = Server("s", version="1", options=options)
    if "tools" in features:
        server.tool(answer)
    if "prompts" in features or "completions" in features:
        server.prompt(greet)
    if "resources" in features:
        server.resource("x://one", answer)
    if "templates" in features:
        server.resource("x://{name}", greet)
    if "completions" in features:
        server.completion("greet", "name", lambda value: [value])
    if "logging" in features:
        server.tool(with_context)
    return server


@pytest.mark.parametrize(
    "features", [c for n in range(len(FEATURES) + 1) for c in itertools.combinations(FEATURES, n)], ids="-".join
)
async def test_capabilities_are_exactly_what_is_registered(features: tuple[str, ...]) -> None:
    """Spec: 2026-07-28 server/discover, and the capabilities section of every feature (MUST). Case 26.

    A method answers if and only if its capability is declared; otherwise it does not exist.
    """
    caller = Caller(server_with(*features).asgi())
    declared = (await caller.result("server/discover"))["capabilities"]
    has_tools = "tools" in features or "logging" in features
    has_prompts = "prompts" in features or "completions" in features
    has_resources = "resources" in features or "templates" in features
    assert set(declared) == {
        name
        for name, there in (
            ("tools", has_tools),
            ("prompts", has_prompts),
            ("resources", has_resources),
            ("completions", "completions" in features),
            ("logging", "logging" in features),
        )
        if there
    }
    for method, there in (
        ("tools/list", has_tools),
        ("prompts/list", has_prompts),
        ("resources/list", has_resources),
        ("resources/templates/list", has_resources),
    ):
        response = await caller.call(method)
        assert (response.status == 200) == there
        if not there:
            assert (response.status, response.json["error"]["code"]) == (404, -32601)
    for method, params, there in (
        ("tools/call", {"name": "answer"}, has_tools),
        ("prompts/get", {"name": "greet"}, has_prompts),
        ("resources/read", {"uri": "x://one"}, has_resources),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "a"}},
         "completions" in features),
    ):  # fmt: skip
        response = await caller.call(method, params)
        assert (response.status == 404 and response.json["error"]["code"] == -32601) == (not there)


async def test_change_features_are_declared_only_where_a_stream_can_carry_them() -> None:
    """Spec: 2026-07-28 server/tools#capabilities, server/resources#capabilities. Case 117: never promised, never sent."""
    server = server_with("tools", "prompts")
    server.resource("x://watched", answer, subscribable=True)
    with_streams = (await Caller(server.asgi()).result("server/discover"))["capabilities"]
    assert with_streams["tools"] == with_streams["prompts"] == {"listChanged": True}
    assert with_streams["resources"] == {"subscribe": True, "listChanged": True}
    without = Caller(server.asgi(options=HttpOptions(listen=False)))
    assert (await without.result("server/discover"))["capabilities"] == {"prompts": {}, "resources": {}, "tools": {}}
    assert (await without.error("subscriptions/listen", {"notifications": {}}))[0] == 404
    server.remove_resource("x://watched")
    server.resource("x://still", answer)
    capabilities = (await Caller(server.asgi()).result("server/discover"))["capabilities"]
    assert capabilities["resources"] == {"listChanged": True}


async def test_kind_that_fills_later_can_be_promised() -> None:
    """Ours: a gateway has no tools until its back ends answer. Case 29."""
    caller = Caller(Server("s", version="1", options=ServerOptions(offers=("tools",))).asgi())
    assert (await caller.result("server/discover"))["capabilities"] == {"tools": {"listChanged": True}}
    assert (await caller.result("tools/list"))["tools"] == []
    assert (await caller.error("tools/call", {"name": "x"}))[1]["code"] == -32602
    with pytest.raises(ValueError, match="unknown dragons"):
        Server("s", version="1", options=ServerOptions(offers=("dragons",)))


async def test_discover_changes_with_the_registry_and_only_then() -> None:
    """Ours: encoded once, never stale."""
    server = server_with("tools")
    caller = Caller(server.asgi())
    first = (await caller.call("server/discover")).body
    assert (await caller.call("server/discover")).body == first
    server.prompt(greet)
    assert "prompts" in (await caller.result("server/discover"))["capabilities"]
    server.remove_prompt("greet")
    assert (await caller.call("server/discover")).body == first


async def test_discover_says_what_the_author_said() -> None:
    """Spec: 2026-07-28 server/discover#discoverresult"""
    options = ServerOptions(
        identity={"title": "Shown"}, extensions={"com.example/x": {"depth": 2}}, discover_ttl_ms=1234
    )
    server = Server("name", version="2.5", instructions="Use it.", options=options)
    result = await Caller(server.asgi(legacy=False)).result("server/discover")
    assert result == {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"extensions": {"com.example/x": {"depth": 2}}},
        "instructions": "Use it.",
        "ttlMs": 1234,
        "cacheScope": "public",
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "name", "version": "2.5", "title": "Shown"}},
    }
    both = await Caller(server.asgi()).result("server/discover")
    assert both["supportedVersions"] == ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]


async def test_identity_can_be_switched_off() -> None:
    """Spec: 2026-07-28 basic/index#_meta (unless specifically configured not to)"""
    server = server_with("tools", options=ServerOptions(identify=False))
    caller = Caller(server.asgi())
    for method, params in (("server/discover", None), ("tools/list", None), ("tools/call", {"name": "answer"})):
        assert "_meta" not in await caller.result(method, params)


async def test_logging_is_declared_while_something_can_log() -> None:
    """Spec: 2026-07-28 server/utilities/logging#capabilities (MUST declare): derived, and taken back."""
    server = server_with("logging", "prompts")
    caller = Caller(server.asgi())
    assert "logging" in (await caller.result("server/discover"))["capabilities"]
    server.remove_tool("with_context")
    assert "logging" not in (await caller.result("server/discover"))["capabilities"]


def test_name_that_many_clients_refuse_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """Spec: 2026-07-28 server/tools#tool-names (SHOULD); at the limits of length, and one above."""
    server = Server("s", version="1")
    server.tool(answer, name="plain.name-1_X")
    assert not caplog.text
    server.tool(answer, name="天気")
    assert "天気" in caplog.text
    server.tool(answer, name="x" * 128)
    for name in ("", "x" * 129):
        with pytest.raises(ValueError, match="1 to 128"):
            server.add_tool_definition({"name": name, "inputSchema": {"type": "object"}}, lambda a, c: "")


@pytest.mark.parametrize("bad", ["noprefix", "com..example/x", "-a.b/x", "com.example/-x", ""])
def test_extension_identifier_follows_the_key_rules(bad: str) -> None:
    """Spec: 2026-07-28 basic/versioning#extension-negotiation (MUST)"""
    with pytest.raises(ValueError, match="extension"):
        Server("s", version="1", options=ServerOptions(extensions={bad: {}}))


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("s", "")])
def test_name_and_version_are_required(name: str, version: str) -> None:
    """Ours: a server that cannot be told apart helps nobody."""
    with pytest.raises(ValueError, match="name and a version"):
        Server(name, version=version)


def numbered(server: Server, numbers: Any) -> None:
    for number in numbers:
        server.tool(answer, name=f"tool_{number:03}")


async def pages(caller: Caller, **options: Any) -> list[list[str]]:
    found, cursor = [], None
    while True:
        result = await caller.result("tools/list", {} if cursor is None else {"cursor": cursor}, **options)
        found.append([tool["name"] for tool in result["tools"]])
        cursor = result.get("nextCursor")
        if cursor is None:
            return found


async def test_pages_cover_the_list_in_order_without_gaps() -> None:
    """Spec: 2026-07-28 server/utilities/pagination; at the page size and one above."""
    for count in (1, 9, 10, 11, 25):
        server = Server("s", version="1", options=ServerOptions(page_size=10))
        numbered(server, reversed(range(count)))
        found = await pages(Caller(server.asgi()))
        assert [name for page in found for name in page] == [f"tool_{n:03}" for n in range(count)]
        assert len(found) == -(-count // 10)


async def test_order_and_bytes_do_not_depend_on_registration_order() -> None:
    """Spec: 2026-07-28 server/tools#capabilities (SHOULD be deterministic). Ours: the same bytes from every process."""
    first, second = (Server("s", version="1", options=ServerOptions(page_size=4)) for _ in range(2))
    numbered(first, range(10))
    numbered(second, [7, 3, 9, 0, 1, 2, 8, 4, 6, 5])
    cursor = None
    for _ in range(3):
        params = {} if cursor is None else {"cursor": cursor}
        a = (await Caller(first.asgi()).call("tools/list", params)).body
        b = await Caller(second.asgi()).call("tools/list", params)
        assert a == b.body
        cursor = b.json["result"].get("nextCursor")


async def test_cursor_stays_good_while_the_list_changes() -> None:
    """Ours: a cursor names a position among names, so an insertion before it shifts nothing."""
    server = Server("s", version="1", options=ServerOptions(page_size=2))
    numbered(server, [10, 20, 30, 40])
    caller = Caller(server.asgi())
    cursor = (await caller.result("tools/list"))["nextCursor"]
    server.remove_tool("tool_020")
    numbered(server, [5])
    result = await caller.result("tools/list", {"cursor": cursor})
    assert [tool["name"] for tool in result["tools"]] == ["tool_030", "tool_040"]


@pytest.mark.parametrize("cursor", ["", "x", "dG9vbHM", "cHJvbXB0czphbnN3ZXI", "é", "////", "A" * 10_000])
async def test_unknown_cursor_is_invalid_params(cursor: str) -> None:
    """Spec: 2026-07-28 server/utilities/pagination#error-handling (SHOULD). Case 51: an empty one too."""
    status, error = await Caller(server_with("tools").asgi()).error("tools/list", {"cursor": cursor})
    assert (status, error["code"]) == (400, -32602)


async def test_list_that_depends_on_the_caller_is_private_on_every_page() -> None:
    """Spec: 2026-07-28 server/utilities/caching (one scope for all pages, MUST). Case 150: private by construction."""
    server = Server("s", version="1", options=ServerOptions(page_size=2))
    numbered(server, range(5))
    server.tool(answer, name="zz_admin", visible_to=lambda who: who is not None and "admin" in who.scopes)
    callers: dict[str, Principal] = {"root": Principal("root", frozenset({"admin"})), "guest": Principal("guest")}

    def authenticate(scope: Any) -> Principal | None:
        return callers.get(dict(scope["headers"]).get(b"authorization", b"").decode())

    caller = Caller(server.asgi(authenticate=authenticate))
    cursor, scopes = None, set()
    for _ in range(3):
        result = await caller.result("tools/list", {} if cursor is None else {"cursor": cursor})
        scopes.add(result["cacheScope"])
        cursor = result.get("nextCursor")
    assert scopes == {"private"}
    as_root, as_guest = ({"headers": {"authorization": who}} for who in ("root", "guest"))
    assert (await pages(caller, **as_root))[-1] == ["tool_004", "zz_admin"]
    assert (await pages(caller, **as_guest))[-1] == ["tool_004"]
    assert (await pages(caller))[-1] == ["tool_004"]
    assert (await caller.result("tools/call", {"name": "zz_admin"}, **as_root))["isError"] is False
    assert (await caller.error("tools/call", {"name": "zz_admin"}, **as_guest))[1][
        "message"
    ] == "Unknown tool: zz_admin"
    server.remove_tool("zz_admin")
    assert (await caller.result("tools/list"))["cacheScope"] == "public"


async def test_broken_visibility_rule_hides() -> None:
    """Ours: a rule that raises must not show what it was to hide."""
    server = server_with("tools")
    server.tool(answer, name="hidden", visible_to=lambda who: 1 / 0 > 0)
    caller = Caller(server.asgi())
    assert [tool["name"] for tool in (await caller.result("tools/list"))["tools"]] == ["answer"]
    assert (await caller.error("tools/call", {"name": "hidden"}))[0] == 400


async def test_views_by_caller_are_bounded() -> None:
    """Ours: a thousand callers who each see something else do not fill the memory."""
    server = Server("s", version="1")
    for number in range(12):
        server.tool(
            answer, name=f"t{number}", visible_to=lambda who, n=number: bool(int(who.id) >> n & 1) if who else False
        )
    caller = Caller(server.asgi(authenticate=lambda scope: Principal(dict(scope["headers"])[b"x-who"].decode())))
    for who in range(300):
        result = await caller.result("tools/list", headers={"x-who": str(who)})
        assert len(result["tools"]) == who.bit_count()
    (shelf,) = (shelf for kind, shelf in server.registry._shelves.items() if kind.member == "tools")
    assert len(shelf._views) <= 64


def test_name_can_be_taken_once_unless_replaced() -> None:
    """Ours: two functions of one name are a mistake, not a silent replacement."""
    server = server_with("tools")
    with pytest.raises(ValueError, match="registered already"):
        server.tool(answer)
    server.tool(greet, name="answer", replace=True)
    assert list(server.registry.tools) == ["answer"]


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "array"}, "inputSchema"),
        ({"type": "object", "properties": {"a": {"type": 5}}}, "a"),
        ({"type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}}, "header"),
        ({"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A B"}}}, "header"),
        ({"type": "object", "properties": {"a": {"$ref": "https://example.com/x.json"}}}, "ref"),
    ],
)
def test_definition_that_clients_must_reject_is_refused_at_registration(schema: Any, why: str) -> None:
    """Spec: 2026-07-28 server/tools#x-mcp-header, basic/index#schema-validation. Case 94: the author hears of it first."""
    with pytest.raises(ValueError, match="tool 'bad'"):
        Server("s", version="1").add_tool_definition({"name": "bad", "inputSchema": schema}, lambda a, c: "")


async def test_definition_written_by_hand_is_listed_byte_for_byte() -> None:
    """Ours: nothing that an author or another server wrote is lost. Case 118."""
    definition = {
        "name": "raw",
        "x-future": {"b": 1, "a": [2]},
        "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "x-more": True},
        "annotations": {"readOnlyHint": True},
        "_meta": {"com.example/k": 1},
    }
    server = Server("s", version="1")
    server.add_tool_definition(definition, lambda arguments, ctx: f"n={arguments.get('n')}")
    caller = Caller(server.asgi())
    (tool,) = (await caller.result("tools/list"))["tools"]
    assert tool == definition
    assert list(tool) == list(definition)
    assert (await caller.result("tools/call", {"name": "raw", "arguments": {"n": 3}}))["content"][0]["text"] == "n=3"
    wrong = await caller.result("tools/call", {"name": "raw", "arguments": {"n": "x"}})
    assert wrong["isError"] is True
    assert "n: expected integer" in wrong["content"][0]["text"]


@pytest.mark.parametrize("method", ["tools/list", "prompts/list", "resources/list", "resources/templates/list"])
async def test_every_list_carries_caching_hints(method: str) -> None:
    """Spec: 2026-07-28 server/utilities/caching#cacheable-results (MUST)"""
    options = ServerOptions(list_ttl_ms=777)
    server = server_with("tools", "prompts", "resources", "templates", options=options)
    result = await Caller(server.asgi()).result(method)
    assert (result["ttlMs"], result["cacheScope"], result["resultType"]) == (777, "public", "complete")
