"""MCP's order of steps, as tables."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.client.auth.steps import (
    Bearer,
    Pending,
    ResourceMetadata,
    ServerMetadata,
    canonical_url,
    check_response,
    choose_auth_method,
    choose_issuer,
    choose_registration,
    choose_scopes,
    parse_bearer,
    read_resource_metadata,
    read_server_metadata,
    registration_request,
    require_pkce,
    require_secure,
    resource_metadata_urls,
    server_metadata_urls,
    step_up,
)
from outrider.errors import SignInFailed

URL = "https://mcp.example/public/mcp"
ISSUER = "https://as.example/tenant"
METADATA: dict[str, Any] = {
    "issuer": ISSUER,
    "authorization_endpoint": "https://as.example/authorize",
    "token_endpoint": "https://as.example/token",
    "code_challenge_methods_supported": ["S256"],
}


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", Bearer()),
        ("Bearer", Bearer()),
        ('Bearer resource_metadata="https://a/b", scope="x y"', Bearer("https://a/b", ("x", "y"))),
        ("bearer SCOPE=x,error=insufficient_scope", Bearer("", ("x",), "insufficient_scope")),
        ('Basic realm="a, Bearer scope=\\"evil\\"", Bearer scope="good"', Bearer("", ("good",))),
        ('Negotiate dG9rZW4=, Bearer scope="x"', Bearer("", ("x",))),
        ('DPoP algs="ES256", scope="x", Bearer error="invalid_token"', Bearer("", ("x",), "", True)),
        ('Digest realm="x", dpop error="use_dpop_nonce"', Bearer("", (), "use_dpop_nonce", True)),
        ('Bearer scope="first", scope="second"', Bearer("", ("first",))),
        ('Bearer realm="x",scope="a b a"', Bearer("", ("a", "b"))),
        ('Bearer scope="a\x01b ok"', Bearer("", ("ok",))),
        ('Digest realm="x"', Bearer()),
    ],
)
def test_challenge_is_read(header: str, expected: Bearer) -> None:
    """Spec: RFC 9110 11.6.1, RFC 9728 5.1"""
    assert parse_bearer(header) == expected


@given(st.text(max_size=300))
def test_no_challenge_breaks_the_reader(header: str) -> None:
    """Ours: whatever a server sends in its header is read or passed over."""
    parse_bearer(f"Bearer {header}")
    parse_bearer(header)


def test_metadata_of_the_resource_is_looked_for_in_order() -> None:
    """Spec: authorization-server-discovery#protected-resource-metadata-discovery-requirements (MUST)"""
    told = Bearer(resource_metadata="https://mcp.example/elsewhere.json")
    assert resource_metadata_urls(URL, told) == ("https://mcp.example/elsewhere.json",)
    root = "https://mcp.example/.well-known/oauth-protected-resource"
    assert resource_metadata_urls(URL, Bearer()) == (f"{root}/public/mcp", root)
    assert resource_metadata_urls("https://mcp.example/", Bearer()) == (root,)


@pytest.mark.parametrize(
    ("issuer", "places"),
    [
        (
            "https://as.example/tenant",
            (
                "https://as.example/.well-known/oauth-authorization-server/tenant",
                "https://as.example/.well-known/openid-configuration/tenant",
                "https://as.example/tenant/.well-known/openid-configuration",
            ),
        ),
        (
            "https://as.example",
            (
                "https://as.example/.well-known/oauth-authorization-server",
                "https://as.example/.well-known/openid-configuration",
            ),
        ),
        (
            "https://as.example/",
            (
                "https://as.example/.well-known/oauth-authorization-server",
                "https://as.example/.well-known/openid-configuration",
            ),
        ),
    ],
)
def test_metadata_of_the_authorization_server_is_looked_for_in_order(issuer: str, places: tuple[str, ...]) -> None:
    """Spec: authorization-server-discovery#authorization-server-metadata-discovery (MUST)"""
    assert server_metadata_urls(issuer) == places


@pytest.mark.parametrize(
    "resource",
    [
        URL,
        "https://mcp.example",
        "https://mcp.example/",
        "https://mcp.example/public",
        "HTTPS://MCP.example:443/public/mcp",
    ],
)
def test_resource_that_contains_the_server_is_accepted(resource: str) -> None:
    """Spec: RFC 9728 3.3; the root's metadata names the root"""
    found = read_resource_metadata({"resource": resource, "authorization_servers": [ISSUER]}, URL)
    assert found == ResourceMetadata(resource, (ISSUER,))


@pytest.mark.parametrize(
    "resource",
    [
        None,
        "https://evil.example/public/mcp",
        "http://mcp.example/public/mcp",
        "https://mcp.example:8443/public/mcp",
        "https://mcp.example/pub",
        "https://mcp.example/public/mcp/more",
        "https://user@mcp.example/public/mcp",
        "https://mcp.example/public/mcp#part",
        "https://mcp.example/public/mcp?tenant=other",
        "https://[broken",
    ],
)
def test_another_resource_is_rejected(resource: str | None) -> None:
    """Spec: RFC 9728 3.3 (MUST NOT use): a server must not have tokens made out that are good elsewhere"""
    with pytest.raises(SignInFailed):
        read_resource_metadata({"resource": resource, "authorization_servers": [ISSUER]}, URL)


def test_resource_without_authorization_server_is_rejected() -> None:
    """Spec: authorization-server-discovery#authorization-server-location (MUST contain at least one)"""
    for servers in (None, [], "https://as.example", [1]):
        with pytest.raises(SignInFailed):
            read_resource_metadata({"resource": URL, "authorization_servers": servers}, URL)


@pytest.mark.parametrize(
    "named", ["https://as.example/tenant/", "https://AS.example/tenant", "https://evil.example", None, 1]
)
def test_metadata_of_another_issuer_is_rejected(named: object) -> None:
    """Spec: RFC 8414 3.3 (MUST be identical); no normalization of any kind"""
    with pytest.raises(SignInFailed):
        read_server_metadata({**METADATA, "issuer": named}, ISSUER)


@pytest.mark.parametrize(
    "name", ["authorization_endpoint", "token_endpoint", "registration_endpoint", "revocation_endpoint"]
)
@pytest.mark.parametrize(
    "url",
    [
        "http://as.example/x",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "//as.example/x",
        "https://u:p@as.example/x",
        "https://as.example/\nx",
        "https:\\\\as.example",
        "https://",
        "https://[x",
        7,
    ],
)
def test_endpoint_that_is_not_secure_is_rejected(name: str, url: object) -> None:
    """Spec: security-considerations#communication-security (MUST be https)"""
    with pytest.raises(SignInFailed):
        read_server_metadata({**METADATA, name: url}, ISSUER)


@pytest.mark.parametrize(
    "url", ["http://localhost:1/x", "http://127.0.0.1/x", "http://[::1]/x", "https://as.example/x"]
)
def test_own_machine_needs_no_encryption(url: str) -> None:
    """Spec: OAuth 2.1 1.5"""
    assert require_secure(url, "it") == url


@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint"])
@pytest.mark.parametrize("url", ["http://127.0.0.1:8080/admin", "https://localhost/x"])
def test_public_server_has_no_endpoint_on_our_machine(name: str, url: str) -> None:
    """Ours: no browser is sent to this machine's own services on somebody else's word"""
    with pytest.raises(SignInFailed):
        read_server_metadata({**METADATA, name: url}, ISSUER)


@pytest.mark.parametrize("issuer", ["https://as.example?tenant=a", "https://as.example/#x"])
def test_issuer_is_only_an_address(issuer: str) -> None:
    """Spec: RFC 8414 2 (no query or fragment)"""
    with pytest.raises(SignInFailed):
        read_server_metadata({**METADATA, "issuer": issuer}, issuer)


@pytest.mark.parametrize("methods", [None, [], ["plain"], "S256"])
def test_no_sign_in_without_pkce(methods: object) -> None:
    """Spec: security-considerations#authorization-code-protection (MUST refuse to proceed)"""
    require_pkce(read_server_metadata(METADATA, ISSUER))
    server = read_server_metadata({**METADATA, "code_challenge_methods_supported": methods}, ISSUER)
    with pytest.raises(SignInFailed):
        require_pkce(server)


def test_client_registered_beforehand_stays_with_its_server() -> None:
    """Spec: client-registration#authorization-server-binding (SHOULD surface an error)"""
    assert choose_issuer(["a", "b"], bound="b") == "b"
    with pytest.raises(SignInFailed):
        choose_issuer(["https://new.example"], bound="https://old.example")


def test_server_used_last_is_used_again() -> None:
    """Ours: of several authorization servers that one which knows the user already"""
    assert choose_issuer(["a", "b"], known="b") == "b"
    assert choose_issuer(["a", "b"], known="gone") == "a"


@pytest.mark.parametrize(
    ("client_id", "document", "takes_documents", "registers", "expected"),
    [
        ("id", "https://us/doc", True, True, "given"),
        ("", "https://us/doc", True, True, "document"),
        ("", "https://us/doc", False, True, "dynamic"),
        ("", "", True, True, "dynamic"),
    ],
)
def test_registration_follows_the_order(
    client_id: str, document: str, takes_documents: bool, registers: bool, expected: str
) -> None:
    """Spec: client-registration (SHOULD)"""
    server = ServerMetadata(
        ISSUER, "t", registration_endpoint="r" if registers else "", takes_metadata_documents=takes_documents
    )
    assert choose_registration(server, client_id=client_id, metadata_url=document) == expected


def test_without_any_registration_the_user_is_told() -> None:
    """Spec: client-registration, fourth choice"""
    with pytest.raises(SignInFailed) as raised:
        choose_registration(ServerMetadata(ISSUER, "t"), client_id="", metadata_url="https://us/doc")
    assert "--client-id" in raised.value.hint


def test_client_registers_as_native_with_refresh_tokens() -> None:
    """Spec: client-registration#application-type-and-redirect-uri-constraints (MUST), index#refresh-tokens (SHOULD)"""
    request = registration_request(ServerMetadata(ISSUER, "t"), "http://127.0.0.1:1/callback", ())
    assert request["application_type"] == "native"
    assert request["grant_types"] == ["authorization_code", "refresh_token"]
    assert "scope" not in request


@pytest.mark.parametrize(
    ("offered", "has_secret", "has_key", "told", "expected"),
    [
        (("none",), True, False, "", "none"),
        (("client_secret_post", "client_secret_basic"), True, False, "", "client_secret_basic"),
        (("client_secret_post",), True, False, "", "client_secret_post"),
        (("client_secret_basic",), False, False, "", "none"),
        (("client_secret_basic",), True, False, "client_secret_post", "client_secret_post"),
        (("private_key_jwt",), False, True, "", "private_key_jwt"),
        ((), True, False, "", "client_secret_basic"),
    ],
)
def test_authentication_fits_both_sides(
    offered: tuple[str, ...], has_secret: bool, has_key: bool, told: str, expected: str
) -> None:
    """Spec: RFC 8414 2, RFC 7591 2"""
    assert choose_auth_method(offered, has_secret=has_secret, has_key=has_key, told=told) == expected


@pytest.mark.parametrize(
    ("challenged", "named", "wanted", "before", "known", "expected"),
    [
        (("a",), ("b", "c"), (), (), (), ("a",)),
        ((), ("b", "c"), (), (), (), ("b", "c")),
        ((), None, (), (), (), ()),
        ((), (), (), (), (), ()),
        (("a",), ("b",), (), ("old",), (), ("old", "a")),
        ((), ("b",), ("w",), (), (), ("w",)),
        (("a",), None, ("w",), (), (), ("a", "w")),
        (("a",), None, (), (), ("a", "offline_access"), ("a", "offline_access")),
        ((), None, (), (), ("offline_access",), ()),
    ],
)
def test_scopes_are_chosen(
    challenged: tuple[str, ...],
    named: tuple[str, ...] | None,
    wanted: tuple[str, ...],
    before: tuple[str, ...],
    known: tuple[str, ...],
    expected: tuple[str, ...],
) -> None:
    """Spec: index#scope-selection-strategy (SHOULD), #refresh-tokens (MAY add offline_access where it is known)"""
    resource, server = ResourceMetadata(URL, (ISSUER,), named), ServerMetadata(ISSUER, "t", scopes=known)
    chosen = choose_scopes(Bearer(scopes=challenged), resource, server, wanted=wanted, before=before, offline=True)
    assert chosen == expected


def test_step_up_asks_for_the_union_and_gives_up_when_nothing_is_new() -> None:
    """Spec: index#step-up-authorization-flow (union; SHOULD limit)"""
    refused = Bearer(scopes=("b",), error="insufficient_scope")
    assert step_up(("a",), refused) == ("a", "b")
    assert step_up(("a", "b"), refused) is None
    assert step_up((), Bearer(error="insufficient_scope")) is None
    assert step_up((), Bearer(scopes=("b",), error="invalid_token")) is None


def pending(sends_issuer: bool = True) -> Pending:
    return Pending("state-1", "verifier", ISSUER, "http://127.0.0.1:1/callback", sends_issuer)


def answer(**parameters: str) -> str:
    from urllib.parse import urlencode

    return f"http://127.0.0.1:1/callback?{urlencode(parameters)}"


@pytest.mark.parametrize(
    ("promised", "issuer", "accepted"),
    [
        (True, ISSUER, True),
        (True, None, False),
        (True, f"{ISSUER}/", False),
        (True, "HTTPS://as.example/tenant", False),
        (True, "https://evil.example", False),
        (False, ISSUER, True),
        (False, "https://evil.example", False),
        (False, None, True),
        (False, "", False),
    ],
)
def test_issuer_of_the_response_is_compared_to_the_letter(promised: bool, issuer: str | None, accepted: bool) -> None:
    """Spec: index#authorization-response-validation (MUST, all four rows, no normalization)"""
    parameters = {"code": "c", "state": "state-1", **({} if issuer is None else {"iss": issuer})}
    if accepted:
        assert check_response(pending(promised), answer(**parameters)) == "c"
    else:
        with pytest.raises(SignInFailed):
            check_response(pending(promised), answer(**parameters))


def test_error_of_another_server_is_not_shown() -> None:
    """Spec: index#authorization-response-validation (MUST NOT display)"""
    with pytest.raises(SignInFailed) as raised:
        check_response(pending(), answer(error="call +1 555", state="state-1", iss="https://evil.example"))
    assert "555" not in str(raised.value)
    with pytest.raises(SignInFailed) as raised:
        check_response(pending(), answer(error="call +1 555", state="other", iss=ISSUER))
    assert "555" not in str(raised.value)
    with pytest.raises(SignInFailed, match="access_denied"):
        check_response(pending(), answer(error="access_denied", state="state-1", iss=ISSUER))


@pytest.mark.parametrize("state", ["", "state-2", "state-1 ", None])
def test_response_to_another_request_is_discarded(state: str | None) -> None:
    """Spec: security-considerations#open-redirection (SHOULD discard)"""
    parameters = {"code": "c", "iss": ISSUER, **({} if state is None else {"state": state})}
    with pytest.raises(SignInFailed):
        check_response(pending(), answer(**parameters))


def test_repeated_parameters_are_not_chosen_from() -> None:
    """Spec: RFC 6749 3.1 (MUST NOT repeat)"""
    with pytest.raises(SignInFailed):
        check_response(pending(), answer(code="c", state="state-1", iss=ISSUER) + "&state=state-1")


@pytest.mark.parametrize(
    "response", ["http://[broken?state=state-1", answer(state="state-1") + "&a=b" * 200, "", "nonsense"]
)
def test_response_that_cannot_be_read_is_discarded(response: str) -> None:
    """Ours: a pasted address may be anything"""
    with pytest.raises(SignInFailed):
        check_response(pending(), response)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("HTTPS://MCP.Example/", "https://mcp.example"),
        ("https://mcp.example:443/mcp?key=secret#x", "https://mcp.example/mcp"),
        ("https://mcp.example:8443", "https://mcp.example:8443"),
        ("http://[::1]:80/Mcp/", "http://[::1]/Mcp/"),
    ],
)
def test_server_has_one_canonical_name(url: str, expected: str) -> None:
    """Spec: index#canonical-server-uri; a query may hold a secret and names nothing"""
    assert canonical_url(url) == expected
