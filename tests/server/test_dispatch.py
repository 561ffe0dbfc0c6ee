"""Which error each defect of a request earns, and in which order defects are told. Pure: no event loop, no transport."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.errors import http_status
from outrider.server import Server
from outrider.server.dispatch import Answer, Dispatcher, Legacy, Listen, Notified, Work
from server.asgi import CAPABILITIES_KEY, VERSION, VERSION_KEY, meta

LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def make(*, legacy: bool = False, listen: bool = True) -> Dispatcher:
    server = Server("s", version="1")
    server.tool(add)
    server.tool(add, name="天気")
    server.tool(add, name="=?base64?QQ==?=")
    server.tool(add, name="=?BASE64?QQ==?=")
    return server.dispatcher(legacy=legacy, listen=listen)


def request(method: str = "tools/list", params: Any = ..., **members: Any) -> bytes:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": meta()} if params is ... else params}
    return json.dumps({**message, **members}).encode()


def lines(method: str, name: str | None = None, version: str = VERSION) -> list[tuple[bytes, bytes]]:
    found = [(b"mcp-protocol-version", version.encode()), (b"mcp-method", method.encode())]
    return found + ([(b"mcp-name", name.encode("latin-1"))] if name is not None else [])


def error_of(body: bytes, headers: list[tuple[bytes, bytes]] | None = None, **options: Any) -> tuple[int, Any, int]:
    """The code, the id (or "absent") and the HTTP status of the error that a message earns."""
    header_map = None if headers is None else dict(headers)
    outcome = make(**options).dispatch(body, headers=headers, header_map=header_map)
    assert isinstance(outcome, Answer)
    reply = json.loads(outcome.body)
    assert reply["jsonrpc"] == "2.0"
    assert outcome.status == http_status(reply["error"]["code"])
    return reply["error"]["code"], reply.get("id", "absent"), outcome.status


@pytest.mark.parametrize(
    ("body", "code", "request_id"),
    [
        (b"", -32700, "absent"),
        (b"{", -32700, "absent"),
        (b"\xff\xfe", -32700, "absent"),
        (b'{"jsonrpc":"2.0","id":1,"method":"\xb0\xa1"}', -32700, "absent"),
        (b"[" * 100_000, -32600, "absent"),
        (b'{"a":' * 100_000, -32700, "absent"),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":NaN}}', -32700, "absent"),
        (b"[]", -32600, "absent"),
        (b"[" + request() + b"]", -32600, "absent"),
        (b"42", -32600, "absent"),
        (b'"ready"', -32600, "absent"),
        (b"null", -32600, "absent"),
        (b"{}", -32600, "absent"),
        (request(jsonrpc="1.0"), -32600, 1),
        (request(jsonrpc=None), -32600, 1),
        (request(id=None), -32600, "absent"),
        (request(id=True), -32600, "absent"),
        (request(id=1.5), -32600, "absent"),
        (request(id=[1]), -32600, "absent"),
        (request(method=5), -32600, 1),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', -32600, "absent"),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}', -32600, "absent"),
    ],
)
def test_bytes_that_are_no_request(body: bytes, code: int, request_id: Any) -> None:
    """Spec: 2026-07-28 basic/index#messages, #error-responses (the id when it could be read)"""
    assert error_of(body)[:2] == (code, request_id)


@pytest.mark.parametrize("request_id", [0, 1, -1, "", "a", "1", 'é\n"', 2**53, 2**63, 10**30, -(10**30)])
def test_id_comes_back_exactly(request_id: Any) -> None:
    """Spec: 2026-07-28 basic/index#responses (MUST be the same)"""
    for body in (
        request("server/discover", id=request_id),
        request("none/such", id=request_id),
        request(params={}, id=request_id),
    ):
        outcome = make().dispatch(body)
        assert isinstance(outcome, Answer)
        answered = json.loads(outcome.body)["id"]
        assert (answered, type(answered)) == (request_id, type(request_id))


def test_number_of_ten_thousand_digits_is_an_error_and_no_more() -> None:
    """Ours: Python refuses to convert it; a client gets an error, not a crash."""
    body = b'{"jsonrpc":"2.0","id":' + b"9" * 10_000 + b',"method":"server/discover","params":{}}'
    assert error_of(body)[0] in (-32700, -32600, -32602)


META_DEFECTS: list[tuple[Any, int]] = [
    ({}, -32602),
    (None, -32602),
    ([], -32602),
    ({"_meta": None}, -32602),
    ({"_meta": []}, -32602),
    ({"_meta": {}}, -32602),
    ({"_meta": {CAPABILITIES_KEY: {}}}, -32602),
    ({"_meta": {VERSION_KEY: VERSION}}, -32602),
    ({"_meta": {VERSION_KEY: VERSION, CAPABILITIES_KEY: None}}, -32602),
    ({"_meta": {VERSION_KEY: VERSION, CAPABILITIES_KEY: []}}, -32602),
    ({"_meta": {VERSION_KEY: 20260728, CAPABILITIES_KEY: {}}}, -32602),
    ({"_meta": {VERSION_KEY: None, CAPABILITIES_KEY: {}}}, -32602),
    ({"_meta": meta(**{LOG_LEVEL_KEY: "loud"})}, -32602),
    ({"_meta": meta(**{LOG_LEVEL_KEY: 5})}, -32602),
    ({"_meta": meta(progressToken=1.5)}, -32602),
    ({"_meta": meta("2025-06-18")}, -32022),
    ({"_meta": meta("99")}, -32022),
    ({"_meta": meta("")}, -32022),
]


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize(("params", "code"), META_DEFECTS)
def test_request_metadata_is_required(params: Any, code: int, legacy: bool) -> None:
    """Spec: 2026-07-28 basic/index#_meta, per-request protocol fields (MUST -32602, HTTP 400). Case 142."""
    for method in ("server/discover", "tools/list", "none/such"):
        body = request(method, params)
        assert error_of(body, legacy=legacy) == (code, 1, 400)
        assert error_of(
            body, lines(method, version=VERSION if code == -32602 else params["_meta"][VERSION_KEY]), legacy=legacy
        ) == (code, 1, 400)


def test_params_may_be_absent_only_to_be_told_what_is_missing() -> None:
    """Spec: as above."""
    assert error_of(b'{"jsonrpc":"2.0","id":1,"method":"server/discover"}') == (-32602, 1, 400)


def test_client_info_is_optional_and_untouched() -> None:
    """Spec: 2026-07-28 basic/index#_meta (not required; servers make nothing depend on it). Case 142."""
    for info in ({"name": "c", "version": "1"}, {"odd": 1}, None, "x", []):
        body = request("server/discover", {"_meta": meta(**{"io.modelcontextprotocol/clientInfo": info})})
        outcome = make().dispatch(body)
        assert isinstance(outcome, Answer)
        assert "result" in json.loads(outcome.body)


@pytest.mark.parametrize("requested", ["2025-06-18", "2027-01-01", "99", ""])
def test_unsupported_version_names_what_is_supported(requested: str) -> None:
    """Spec: 2026-07-28 basic/versioning#protocol-version-negotiation (MUST list)"""
    for legacy in (False, True):
        outcome = make(legacy=legacy).dispatch(request(params={"_meta": meta(requested)}))
        assert isinstance(outcome, Answer)
        data = json.loads(outcome.body)["error"]["data"]
        assert data["requested"] == requested
        assert data["supported"][0] == VERSION
        assert (len(data["supported"]) > 1) == legacy


HEADER_DEFECTS = [
    ([], "nothing"),
    (lines("tools/list")[:1], "no method"),
    (lines("tools/list")[1:], "no version"),
    (lines("TOOLS/LIST"), "another case"),
    (lines("tools/call"), "another method"),
    (lines("tools/list", version="2025-11-25"), "a legacy version"),
    (lines("tools/list", version="v999"), "another version"),
    ([*lines("tools/list"), (b"mcp-method", b"tools/list")], "the method twice"),
    ([*lines("tools/list"), (b"mcp-method", b"tools/call")], "two methods"),
]


@pytest.mark.parametrize(("headers", "why"), HEADER_DEFECTS, ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize("legacy", [False, True])
def test_headers_must_say_what_the_body_says(headers: list[tuple[bytes, bytes]], why: str, legacy: bool) -> None:
    """Spec: 2026-07-28 basic/transports/streamable-http#server-validation (MUST 400, -32020). Cases 85, 139."""
    assert error_of(request(), headers, legacy=legacy) == (-32020, 1, 400)


@pytest.mark.parametrize(
    ("name", "header", "fits"),
    [
        ("add", "add", True),
        ("add", "  add\t", True),
        ("add", "=?base64?YWRk?=", True),
        ("add", None, False),
        ("add", "delete_all", False),
        ("add", "ADD", False),
        ("天気", "=?base64?5aSp5rCX?=", True),
        ("天気", "=?base64?5aSp5rCX", False),
        ("天気", "天気".encode().decode("latin-1"), False),
        ("=?base64?QQ==?=", "=?base64?PT9iYXNlNjQ/UVE9PT89?=", True),
        ("=?base64?QQ==?=", "=?base64?QQ==?=", False),
        ("=?BASE64?QQ==?=", "=?BASE64?QQ==?=", True),
        ("add", "=?base64?YWR!?=", False),
        ("add", "=?base64?YWRk", False),
    ],
)
def test_name_header_is_decoded_before_it_is_compared(name: str, header: str | None, fits: bool) -> None:
    """Spec: 2026-07-28 basic/transports/streamable-http#value-encoding (MUST). Case 93."""
    body = request("tools/call", {"_meta": meta(), "name": name, "arguments": {"a": 1, "b": 2}})
    headers = lines("tools/call", header)
    outcome = make().dispatch(body, headers=headers, header_map=dict(headers))
    if fits:
        assert isinstance(outcome, Work)
        assert outcome.item.key == name
    else:
        assert isinstance(outcome, Answer)
        assert json.loads(outcome.body)["error"]["code"] == -32020


def test_transports_without_headers_need_none() -> None:
    """Spec: 2026-07-28 basic/transports/stdio#request-metadata"""
    outcome = make().dispatch(request())
    assert isinstance(outcome, Answer)
    assert "result" in json.loads(outcome.body)


def test_defects_are_told_in_the_order_of_the_specification() -> None:
    """Ours: JSON-RPC before `_meta`, `_meta` before the version, the version before other headers, headers before the method, the
    method before its parameters.
    """
    wrong_headers = [(b"mcp-method", b"x/y")]
    bad_version = {"_meta": meta("99"), "cursor": 5}
    assert error_of(request("none/such", {"cursor": 5}, jsonrpc="1"), wrong_headers)[0] == -32600
    assert error_of(request("none/such", {"cursor": 5}), wrong_headers)[0] == -32602
    assert error_of(request("none/such", bad_version), wrong_headers)[0] == -32022
    assert error_of(request("none/such", {"_meta": meta(), "cursor": 5}), wrong_headers)[0] == -32020
    assert error_of(request("none/such", {"_meta": meta(), "cursor": 5}), lines("none/such"))[0] == -32601
    assert error_of(request("tools/list", {"_meta": meta(), "cursor": 5}), lines("tools/list"))[0] == -32602
    # A header that contradicts the body's version is told before the version itself is judged.
    assert error_of(request(params=bad_version), lines("tools/list"))[0] == -32020


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("none/such", {}, -32601),
        ("initialize", {"protocolVersion": "2025-11-25"}, -32601),
        ("ping", {}, -32601),
        ("logging/setLevel", {"level": "info"}, -32601),
        ("resources/subscribe", {"uri": "x://y"}, -32601),
        ("prompts/list", {}, -32601),
        ("prompts/get", {"name": "x"}, -32601),
        ("completion/complete", {}, -32601),
        ("tools/list", {"cursor": 5}, -32602),
        ("tools/list", {"cursor": "forged"}, -32602),
        ("tools/call", {}, -32602),
        ("tools/call", {"name": 5}, -32602),
        ("tools/call", {"name": "missing"}, -32602),
        ("tools/call", {"name": "add", "inputResponses": None}, -32602),
        ("tools/call", {"name": "add", "inputResponses": []}, -32602),
        ("tools/call", {"name": "add", "requestState": 5}, -32602),
        ("subscriptions/listen", {}, -32602),
        ("subscriptions/listen", {"notifications": []}, -32602),
        ("subscriptions/listen", {"notifications": {"toolsListChanged": "yes"}}, -32602),
        ("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["x"] * 1001}}, -32602),
    ],
)
@pytest.mark.parametrize("legacy", [False, True])
def test_method_and_parameters(method: str, params: dict[str, Any], code: int, legacy: bool) -> None:
    """Spec: 2026-07-28 basic/index#error-codes, basic/transports/streamable-http#protocol-version-header (404 for -32601, MUST). Case 86.

    A modern request is modern whatever its method, also on a server that serves both eras.
    """
    body = request(method, {"_meta": meta(), **params})
    status = 404 if code == -32601 else 400
    assert error_of(body, legacy=legacy) == (code, 1, status)


def test_listen_without_streams_is_no_method() -> None:
    """Ours: where no stream can be kept open, nothing pretends it can. Case 117."""
    body = request("subscriptions/listen", {"_meta": meta(), "notifications": {"toolsListChanged": True}})
    assert error_of(body, listen=False)[0] == -32601
    assert isinstance(make().dispatch(body), Listen)


@pytest.mark.parametrize("method", ["notifications/cancelled", "notifications/none/such"])
def test_notification_is_never_answered(method: str) -> None:
    """Spec: 2026-07-28 basic/index#notifications (MUST NOT)"""
    body = json.dumps({"jsonrpc": "2.0", "method": method, "params": "odd"}).encode()
    assert isinstance(make().dispatch(body), Notified)


def initialize(**params: Any) -> bytes:
    return request("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {}, **params})


def test_modern_only_server_names_its_versions_to_a_legacy_client() -> None:
    """Spec: 2026-07-28 basic/versioning#backward-compatibility-with-initialization-based-versions (SHOULD). Case 141."""
    for headers in (None, [(b"content-type", b"application/json")]):
        outcome = make().dispatch(initialize(), headers=headers, header_map=None if headers is None else dict(headers))
        assert isinstance(outcome, Answer)
        error = json.loads(outcome.body)["error"]
        assert (outcome.status, error["code"]) == (400, -32022)
        assert error["data"] == {"supported": [VERSION], "requested": "2025-06-18"}
        assert VERSION in error["message"]


@pytest.mark.parametrize(
    ("body", "headers", "in_session", "is_legacy"),
    [
        (initialize(), None, False, True),
        (initialize(), [], False, True),
        (initialize(), [(b"mcp-protocol-version", b"2025-11-25"), (b"mcp-method", b"initialize")], False, True),
        (initialize(_meta={"progressToken": 1}), None, False, True),
        (initialize(_meta=meta()), None, True, False),
        (initialize(), lines("initialize"), False, False),
        (request("tools/list", {}), None, True, True),
        (request("tools/list", {}), [], True, True),
        (request("tools/list", {}), [], False, False),
        (request("tools/list", {}), None, False, False),
        (request("tools/list", {}), lines("tools/list"), True, False),
        (request("tools/list", {"_meta": {"progressToken": 1}}), None, True, True),
        (request("tools/list"), None, True, False),
        (request("server/discover", {}), None, True, False),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', None, True, True),
        (request("ping", {}), None, False, True),
    ],
)
def test_era_is_decided_per_request(
    body: bytes, headers: list[tuple[bytes, bytes]] | None, in_session: bool, is_legacy: bool
) -> None:
    """Spec: 2026-07-28 basic/versioning#compatibility-matrix: modern `_meta` is served statelessly, `initialize` selects legacy."""
    outcome = make(legacy=True).dispatch(
        body, headers=headers, header_map=None if headers is None else dict(headers), in_session=in_session
    )
    assert isinstance(outcome, Legacy) == is_legacy
    never = make().dispatch(
        body, headers=headers, header_map=None if headers is None else dict(headers), in_session=in_session
    )
    assert not isinstance(never, Legacy)


def test_header_of_an_old_version_does_not_switch_validation_off() -> None:
    """Spec: 2026-07-28 basic/transports/streamable-http#server-validation. Case 139: the body decides, the header must agree."""
    body = request("tools/call", {"_meta": meta(), "name": "add", "arguments": {"a": 1, "b": 2}})
    for in_session in (False, True):
        headers = lines("tools/call", "harmless", version="2025-06-18")
        outcome = make(legacy=True).dispatch(body, headers=headers, header_map=dict(headers), in_session=in_session)
        assert isinstance(outcome, Answer)
        assert json.loads(outcome.body)["error"]["code"] == -32020


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
MEMBERS = st.sampled_from(
    [
        "_meta",
        "name",
        "uri",
        "cursor",
        "arguments",
        "inputResponses",
        "requestState",
        "notifications",
        "ref",
        "argument",
        "context",
    ]
)


@settings(deadline=None)
@given(st.binary(max_size=200), st.booleans(), st.booleans())
def test_any_bytes_get_a_verdict(body: bytes, legacy: bool, in_session: bool) -> None:
    """Ours: nothing that a client sends raises."""
    make(legacy=legacy).dispatch(body, in_session=in_session)
    make(legacy=legacy).dispatch(body, headers=[(b"a", b"b")], header_map={b"a": b"b"}, in_session=in_session)


@settings(deadline=None)
@given(
    st.sampled_from(["server/discover", "tools/list", "tools/call", "subscriptions/listen", "initialize", "x"]),
    st.dictionaries(MEMBERS, JSON, max_size=4) | JSON,
    JSON,
    st.booleans(),
)
def test_any_json_in_any_place_gets_a_verdict(method: str, params: Any, request_id: Any, legacy: bool) -> None:
    """Ours: as above, for messages that get further. An error repeats the id or has none."""
    outcome = make(legacy=legacy).dispatch(request(method, params, id=request_id))
    if isinstance(outcome, Answer):
        assert json.loads(outcome.body).get("id", request_id) == request_id
