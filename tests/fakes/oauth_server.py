"""A real authorization server and an MCP server that it protects, in a process of their own.

Run as ``python oauth_server.py``; prints one line of JSON with both URLs. The authorization server is authlib's: the code grant with PKCE,
refresh tokens that work once, client credentials, dynamic registration, revocation. A person consents by pressing a button in a page.
The MCP server speaks 2026-07-28, takes tokens of that server that were made out for it, and wants more scopes for a call than for a list.

``POST /control`` of the authorization server takes ``{"revoke_access": true}`` and ``{"echo_token": true}`` (the MCP server then repeats
the token in what it refuses); ``GET /control`` gives what was asked so far, and every secret that must be seen nowhere.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from typing import Any, ClassVar
from urllib.parse import unquote, urlencode

from authlib.integrations.flask_oauth2 import AuthorizationServer, ResourceProtector
from authlib.oauth2 import OAuth2Error
from authlib.oauth2.rfc6749 import AuthorizationCodeMixin, ClientMixin, TokenMixin, grants
from authlib.oauth2.rfc6750 import BearerTokenValidator, InsufficientScopeError
from authlib.oauth2.rfc7009 import RevocationEndpoint
from authlib.oauth2.rfc7591 import ClientRegistrationEndpoint
from authlib.oauth2.rfc7636 import CodeChallenge
from flask import Flask, Response, jsonify, redirect, request
from werkzeug.serving import make_server

os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"  # The loopback interface only.

SCOPES = ("files:read", "files:write", "offline_access")
MACHINE_ID, MACHINE_SECRET = "machine", "machine secret:%+"


class Client(ClientMixin):
    def __init__(self, client_id: str, secret: str, metadata: dict[str, Any]) -> None:
        self.client_id, self.client_secret, self.metadata = client_id, secret, metadata
        self.client_info = {"client_id": client_id, **({"client_secret": secret} if secret else {})}
        self.client_metadata = metadata

    def get_client_id(self) -> str:
        return self.client_id

    def get_default_redirect_uri(self) -> str:
        return str(self.metadata["redirect_uris"][0])

    def get_allowed_scope(self, scope: str | None) -> str:
        return " ".join(s for s in (scope or "").split() if s in SCOPES)

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return redirect_uri in self.metadata.get("redirect_uris", ())

    def check_client_secret(self, client_secret: str) -> bool:
        # Spec: RFC 6749 2.3.1: form-encoded in the Basic header, which authlib leaves as it is.
        return bool(self.client_secret) and unquote(client_secret) == self.client_secret

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return bool(self.metadata.get("token_endpoint_auth_method", "client_secret_basic") == method)

    def check_response_type(self, response_type: str) -> bool:
        return response_type in self.metadata.get("response_types", ())

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type in self.metadata.get("grant_types", ())


class Code(AuthorizationCodeMixin):
    def __init__(self, **facts: Any) -> None:
        self.__dict__.update(facts)

    def get_redirect_uri(self) -> str:
        return str(self.redirect_uri)  # type: ignore[attr-defined]

    def get_scope(self) -> str:
        return str(self.scope)  # type: ignore[attr-defined]


class Token(TokenMixin):
    def __init__(self, facts: dict[str, Any], client: Client, resource: str) -> None:
        self.access_token, self.refresh_token = facts["access_token"], facts.get("refresh_token", "")
        self.scope, self.expires_at = facts.get("scope", ""), time.time() + facts["expires_in"]
        self.client, self.resource = client, resource
        self.revoked = self.refresh_revoked = False

    def check_client(self, client: Client) -> bool:
        return self.client is client

    def get_scope(self) -> str:
        return str(self.scope)

    def get_expires_in(self) -> float:
        return self.expires_at - time.time()

    def is_expired(self) -> bool:
        return self.expires_at < time.time()

    def is_revoked(self) -> bool:
        return self.revoked

    def get_user(self) -> str:
        return "demo"

    def get_client(self) -> Client:
        return self.client


CLIENTS: dict[str, Client] = {
    MACHINE_ID: Client(MACHINE_ID, MACHINE_SECRET, {"grant_types": ["client_credentials"]}),
}
CODES: dict[str, Code] = {}
TOKENS: list[Token] = []
LOG: list[dict[str, Any]] = []
CONTROL: dict[str, Any] = {}
URLS: dict[str, str] = {}


class CodeGrant(grants.AuthorizationCodeGrant):
    TOKEN_ENDPOINT_AUTH_METHODS: ClassVar = ["none", "client_secret_basic", "client_secret_post"]

    def save_authorization_code(self, code: str, request: Any) -> None:
        form = request.form
        CODES[code] = Code(
            code=code,
            client_id=request.client.client_id,
            redirect_uri=request.payload.redirect_uri,
            scope=request.payload.scope,
            code_challenge=form.get("code_challenge"),
            code_challenge_method=form.get("code_challenge_method"),
            resource=form.get("resource"),
        )

    def query_authorization_code(self, code: str, client: Client) -> Code | None:
        found = CODES.get(code)
        return found if found is not None and found.client_id == client.client_id else None  # type: ignore[attr-defined]

    def delete_authorization_code(self, authorization_code: Code) -> None:
        del CODES[authorization_code.code]  # type: ignore[attr-defined]

    def authenticate_user(self, authorization_code: Code) -> str:
        return "demo"


class RefreshGrant(grants.RefreshTokenGrant):
    TOKEN_ENDPOINT_AUTH_METHODS: ClassVar = ["none", "client_secret_basic", "client_secret_post"]
    INCLUDE_NEW_REFRESH_TOKEN = True

    def authenticate_refresh_token(self, refresh_token: str) -> Token | None:
        found = next((t for t in TOKENS if t.refresh_token == refresh_token), None)
        if found is not None and found.refresh_revoked:
            # Used twice: somebody has stolen it. Spec: OAuth 2.1 4.3.1
            for token in TOKENS:
                token.revoked = token.refresh_revoked = True
            return None
        return found

    def authenticate_user(self, refresh_token: Token) -> str:
        return "demo"

    def revoke_old_credential(self, refresh_token: Token) -> None:
        refresh_token.refresh_revoked = True


class Registration(ClientRegistrationEndpoint):
    def authenticate_token(self, request: Any) -> bool:
        return True  # Open registration.

    def get_server_metadata(self) -> dict[str, Any]:
        return metadata()

    def save_client(self, client_info: dict[str, Any], client_metadata: dict[str, Any], request: Any) -> Client:
        public = client_metadata.get("token_endpoint_auth_method") == "none"
        client = Client(client_info["client_id"], "" if public else client_info["client_secret"], dict(client_metadata))
        CLIENTS[client.client_id] = client
        return client


class Revocation(RevocationEndpoint):
    CLIENT_AUTH_METHODS: ClassVar = ["none", "client_secret_basic", "client_secret_post"]

    def query_token(self, token_string: str, token_type_hint: str | None) -> Token | None:
        return next((t for t in TOKENS if token_string in (t.access_token, t.refresh_token)), None)

    def revoke_token(self, token: Token, request: Any) -> None:
        token.revoked = token.refresh_revoked = True


def save_token(token: dict[str, Any], request: Any) -> None:
    TOKENS.append(Token(token, request.client, request.form.get("resource", "")))


issuer = Flask("issuer")
issuer.config.update(OAUTH2_REFRESH_TOKEN_GENERATOR=True)
oauth = AuthorizationServer(issuer, query_client=CLIENTS.get, save_token=save_token)
oauth.register_grant(CodeGrant, [CodeChallenge(required=True)])
oauth.register_grant(RefreshGrant)
oauth.register_grant(grants.ClientCredentialsGrant)
oauth.register_endpoint(Registration)
oauth.register_endpoint(Revocation)


def metadata() -> dict[str, Any]:
    base = URLS["issuer"]
    return {
        "issuer": base,
        "authorization_endpoint": f"{base}/authorize",
        "token_endpoint": f"{base}/token",
        "registration_endpoint": f"{base}/register",
        "revocation_endpoint": f"{base}/revoke",
        "response_types_supported": ["code"],
        "grant_types_supported": ["authorization_code", "refresh_token", "client_credentials"],
        "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "client_secret_post"],
        "code_challenge_methods_supported": ["S256"],
        "scopes_supported": list(SCOPES),
        "authorization_response_iss_parameter_supported": True,
    }


@issuer.get("/.well-known/oauth-authorization-server")
def well_known() -> Response:
    return jsonify(metadata())


@issuer.route("/authorize", methods=["GET", "POST"])
def authorize() -> Any:
    LOG.append({"at": "authorize", "method": request.method, **request.values})
    if request.method == "GET":
        try:
            grant = oauth.get_consent_grant(end_user="demo")
        except OAuth2Error as error:
            return jsonify(dict(error.get_body())), 400
        hidden = "".join(f'<input type=hidden name="{k}" value="{v}">' for k, v in request.args.items())
        return (
            f"<title>Consent</title><p id=who>{grant.client.client_id} wants {request.args.get('scope', '')}</p>"
            f"<form method=post action=/authorize>{hidden}<button id=allow name=allow value=yes>Allow</button></form>"
        )
    allowed = request.form.get("allow") == "yes"
    response = oauth.create_authorization_response(grant_user="demo" if allowed else None)
    target = response.headers["Location"]
    return redirect(f"{target}{'&' if '?' in target else '?'}{urlencode({'iss': URLS['issuer']})}")


@issuer.post("/token")
def token() -> Any:
    LOG.append({"at": "token", **{k: v for k, v in request.form.items() if k in ("grant_type", "resource", "scope")}})
    return oauth.create_token_response()


@issuer.post("/register")
def register() -> Any:
    LOG.append({"at": "register", **request.get_json()})
    return oauth.create_endpoint_response(ClientRegistrationEndpoint.ENDPOINT_NAME)


@issuer.post("/revoke")
def revoke() -> Any:
    LOG.append({"at": "revoke"})
    return oauth.create_endpoint_response(RevocationEndpoint.ENDPOINT_NAME)


@issuer.route("/control", methods=["GET", "POST"])
def control() -> Response:
    if request.method == "POST":
        CONTROL.update(request.get_json())
        if request.get_json().get("revoke_access"):
            for each in TOKENS:
                each.revoked = True
    secrets_now = [s for t in TOKENS for s in (t.access_token, t.refresh_token) if s] + list(CODES)
    return jsonify({"log": LOG, "secrets": secrets_now, "live": sum(not t.revoked for t in TOKENS)})


class Validator(BearerTokenValidator):
    def authenticate_token(self, token_string: str) -> Token | None:
        return next((t for t in TOKENS if t.access_token == token_string and t.resource == URLS["mcp"]), None)


protected = Flask("mcp")
protector = ResourceProtector()
protector.register_token_validator(Validator())


@protected.get("/.well-known/oauth-protected-resource/mcp")
def resource_metadata() -> Response:
    return jsonify(resource=URLS["mcp"], authorization_servers=[URLS["issuer"]], scopes_supported=["files:read"])


@protected.post("/mcp")
def mcp() -> Any:
    message = request.get_json()
    method, scope = message["method"], "files:write" if message["method"] == "tools/call" else "files:read"
    LOG.append({"at": "mcp", "method": method, "authorized": "Authorization" in request.headers})
    place = f'resource_metadata="{URLS["mcp"].replace("/mcp", "/.well-known/oauth-protected-resource/mcp")}"'
    try:
        protector.acquire_token([scope])
    except InsufficientScopeError:
        return Response(
            status=403, headers={"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{scope}", {place}'}
        )
    except OAuth2Error:
        told = request.headers.get("Authorization", "") if CONTROL.get("echo_token") else ""
        return Response(f"refused {told}", 401, {"WWW-Authenticate": f'Bearer scope="{scope}", {place}'})
    server = {"io.modelcontextprotocol/serverInfo": {"name": "protected", "version": "1"}}
    fresh = {"resultType": "complete", "ttlMs": 60_000, "cacheScope": "private"}
    match method:
        case "server/discover":
            result: dict[str, Any] = {
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}},
                "_meta": server,
                **fresh,
            }
        case "tools/list":
            result = {"tools": [{"name": "write", "inputSchema": {"type": "object"}}], **fresh}
        case "tools/call":
            result = {"content": [{"type": "text", "text": "written"}], "resultType": "complete"}
        case _:
            return jsonify(jsonrpc="2.0", id=message["id"], error={"code": -32601, "message": "Method not found"}), 404
    return jsonify(jsonrpc="2.0", id=message["id"], result=result)


def main() -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    servers = {
        name: make_server("127.0.0.1", 0, app, threaded=True) for name, app in (("issuer", issuer), ("mcp", protected))
    }
    URLS["issuer"] = f"http://127.0.0.1:{servers['issuer'].server_port}"
    URLS["mcp"] = f"http://127.0.0.1:{servers['mcp'].server_port}/mcp"
    for server in servers.values():
        threading.Thread(target=server.serve_forever, daemon=True).start()
    print(json.dumps(URLS), flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
