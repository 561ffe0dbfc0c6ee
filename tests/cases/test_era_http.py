"""Which era a server behind a URL speaks: everything that was ever answered to `server/discover`."""

from __future__ import annotations

import pytest

import outrider
from cases.expectations import OPTIONS, assert_found, look_at, options, steps, tool_names
from fakes.running import FakeHttp, header
from fakes.scripts import (
    HANG,
    HANG_UP,
    RESET,
    STREAM,
    Action,
    Rule,
    Script,
    await_event,
    discover_result,
    error,
    initialize_result,
    legacy,
    modern,
    notify,
    on,
    raw,
    respond,
    result,
    send,
    set_event,
    tool,
)
from outrider import Client, Era
from outrider.client.target import parse_target

VERSIONS_IN_WORDS = (
    "Bad Request: Unsupported protocol version (supported: 2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25)"
)
FOREIGN_ERROR = {"error": {"code": "invalid_payload", "message": "...", "type": "invalid_request_error", "details": []}}
JSON_UTF8 = {"Content-Type": "application/json; charset=utf-8"}
AUTH = {"Authorization": "Bearer good-credential"}


async def assert_handshake_follows(fake_http: FakeHttp, *answer: Action) -> None:
    fake = fake_http(Script(on("server/discover", *answer), *legacy()))
    assert_found(await look_at(fake.url), "legacy")
    assert fake.methods() == ["server/discover", "initialize", "notifications/initialized", "tools/list"]


class TestRefusedProbes:
    @pytest.mark.parametrize("text", ["Bad Request: Missing session ID", VERSIONS_IN_WORDS])
    async def test_400_with_the_id_server_error(self, fake_http: FakeHttp, text: str) -> None:
        """Case 3: one exchange carries one reply, so an error's foreign id tells nothing; the code does."""
        await assert_handshake_follows(fake_http, error(-32600, text, id="server-error", status=400))

    @pytest.mark.parametrize("status", [400, 200])
    @pytest.mark.parametrize("code", [-32600, -32000])
    async def test_an_error_with_a_null_id(self, fake_http: FakeHttp, status: int, code: int) -> None:
        """Case 4: null is what JSON-RPC prescribes when the id could not be read."""
        await assert_handshake_follows(fake_http, error(code, "Missing ID field", id=None, status=status))

    @pytest.mark.parametrize(
        "answer",
        [
            respond(400, json=FOREIGN_ERROR, headers=JSON_UTF8),
            respond(404, text="Invalid session ID"),
            respond(400),
            respond(400, text='{"jsonrpc":"2.0","id":1,"err', headers=JSON_UTF8),
            respond(400, base64="/v8AZA==", headers=JSON_UTF8),
            respond(400, text="[" * 5_000, headers=JSON_UTF8),
            respond(405, headers={"Allow": "GET"}),
            respond(415, text="Unsupported Media Type"),
            respond(406, text="Not Acceptable"),
            respond(422, json={"detail": [{"loc": ["body"], "msg": "field required"}]}),
        ],
        ids=["foreign-json", "plain-404", "empty", "truncated", "not-utf8", "deep", "405", "415", "406", "422"],
    )
    async def test_a_body_that_is_no_json_rpc(self, fake_http: FakeHttp, answer: Action) -> None:
        """Case 6: a 4xx without a recognized modern error leads to `initialize`; reading error bodies never throws."""
        await assert_handshake_follows(fake_http, answer)

    @pytest.mark.parametrize(
        "answer",
        [
            error(-32601, "Method not found"),
            error(-32601, "Method not found", sse=True),
            respond(200, text="<html>welcome</html>", headers={"Content-Type": "text/html"}),
            respond(200, json={"status": "ok"}),
            respond(200, json=[]),
            respond(200),
            respond(202),
            respond(204),
            result({"tools": []}),
            result(None),
            respond(200, text="x", headers={"Content-Encoding": "gzip"}),
        ],
        ids=[
            "json",
            "sse",
            "html",
            "foreign",
            "batch",
            "empty",
            "202",
            "204",
            "other-result",
            "null-result",
            "not-gzip",
        ],
    )
    async def test_2xx_without_a_discover_result(self, fake_http: FakeHttp, answer: Action) -> None:
        """Case 7: the body decides, not the status; anything but a DiscoverResult or a modern error is legacy."""
        await assert_handshake_follows(fake_http, answer)

    async def test_a_stream_that_always_ends_without_an_answer(self, fake_http: FakeHttp) -> None:
        """Case 7, case 106: once may be a bad moment, twice is a 2xx without a usable body."""
        fake = fake_http(Script(on("server/discover", STREAM), *legacy()))
        assert_found(await look_at(fake.url), "legacy")
        assert fake.methods()[:3] == ["server/discover", "server/discover", "initialize"]

    @pytest.mark.parametrize(
        "answer",
        [
            respond(500, text="oops"),
            respond(501, text="oops"),
            error(-32601, "oops", status=500),
            error(-32603, "oops", status=503),
        ],
        ids=["500", "501", "500-method-not-found", "503-internal-error"],
    )
    async def test_a_server_that_breaks_at_everything(
        self, fake_http: FakeHttp, monkeypatch: pytest.MonkeyPatch, answer: Action
    ) -> None:
        """Case 19: a 5xx is no evidence of an era, however often it comes and whatever is in it; the outage is what is reported."""
        monkeypatch.setattr("outrider.client.opening._RETRY_DELAYS_S", (0.01, 0.01))
        fake = fake_http(Script(on("server/discover", answer), *legacy()))
        report = await look_at(fake.url)
        assert report.failure is not None
        assert "oops" in report.failure.message
        assert report.era is None
        assert fake.methods() == ["server/discover"] * 3

    async def test_only_legacy_versions_refused_politely(self, fake_http: FakeHttp) -> None:
        """Case 83: -32022 that lists legacy versions only is followed to the best of them."""
        data = {"supported": ["2025-06-18", "2025-03-26"], "requested": "2026-07-28"}
        fake = fake_http(Script(on("server/discover", error(-32022, "no", data=data, status=400)), *legacy()))
        report = await look_at(fake.url)
        assert_found(report, "legacy")
        assert report.protocol_version == "2025-06-18"
        assert [message["params"]["protocolVersion"] for message in fake.messages("initialize")] == ["2025-06-18"]


class TestAuthentication:
    @pytest.mark.parametrize("status", [401, 403])
    async def test_without_a_credential_it_is_no_verdict(self, fake_http: FakeHttp, status: int) -> None:
        """Case 14: the challenge reaches the user, no handshake is tried, no era is concluded."""
        challenge = 'Bearer resource_metadata="http://127.0.0.1/.well-known/oauth-protected-resource"'
        fake = fake_http(Script(on(None, respond(status, headers={"WWW-Authenticate": challenge}))))
        report = await look_at(fake.url)
        assert report.failure is not None
        assert (report.failure.kind, report.failure.challenge) == ("auth", challenge)
        assert report.failure.hint
        assert report.era is None
        assert fake.methods() == ["server/discover"]

    async def test_a_gateway_that_denies_only_the_probe(self, fake_http: FakeHttp) -> None:
        """Case 15: with a credential, the handshake is tried once before the credential is blamed; nothing is stored."""
        denial = respond(
            401,
            headers={"WWW-Authenticate": "Bearer"},
            json={"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "Method not found"}},
        )
        fake = fake_http(Script(on("server/discover", denial), *legacy()))
        assert_found(await look_at(fake.url, headers=AUTH), "legacy")
        assert all(header(record, "Authorization") == AUTH["Authorization"] for record in fake.received())
        async with outrider.connect(fake.url, headers=AUTH, options=OPTIONS) as client:
            assert not client.trail.storable

    async def test_a_credential_that_is_refused_everywhere(self, fake_http: FakeHttp) -> None:
        """Case 15: both answers are reported, as an authentication failure, and the handshake is tried exactly once."""
        fake = fake_http(Script(on(None, respond(401, text="expired"))))
        report = await look_at(fake.url, headers=AUTH)
        assert report.failure is not None
        assert report.failure.kind == "auth"
        assert fake.methods() == ["server/discover", "initialize"]
        assert steps(report) == ["server/discover", "initialize"]
        assert report.era is None

    @pytest.mark.parametrize("answer", [respond(421, text="Invalid Host header")])
    async def test_a_host_check_is_no_verdict(self, fake_http: FakeHttp, answer: Action) -> None:
        """Case 89: the text is shown, and no era is concluded."""
        fake = fake_http(Script(on(None, answer)))
        report = await look_at(fake.url)
        assert report.failure is not None
        assert "Invalid Host header" in report.failure.message
        assert report.era is None
        assert fake.methods() == ["server/discover"]

    async def test_no_origin_is_sent(self, fake_http: FakeHttp) -> None:
        """Case 89, case 90: we are no browser. A server that refuses every Origin serves us, and no preflight is made."""
        refused = error(-32000, "Forbidden origin", id=None, status=403)
        fake = fake_http(Script(on(None, refused, headers={"Origin": ".*"}), *modern()))
        assert_found(await look_at(fake.url), "modern")
        assert {record["http"] for record in fake.received()} == {"POST"}


class TestWhatIsSaid:
    @pytest.mark.parametrize(
        ("answer", "said", "hint"),
        [
            (respond(200, text="<!doctype html><html><head><title>My &amp; App</title>"), "a web page: My & App", "often end in /mcp"),
            (respond(404, text="<html><body><h1>Not Found</h1><p>nginx"), "a web page: Not Found", "often end in /mcp"),
            (respond(407), "answered 407", "the proxy wants a user and a password"),
            (respond(403, text="<html><title>Just a moment...</title>"), "a web page: Just a moment...", "a firewall or an allow-list"),
            (respond(401, headers={"WWW-Authenticate": 'Basic realm="x"'}), "answered 401", "USER:PASSWORD@HOST"),
            (respond(429, headers={"Retry-After": "3600"}), "answered 429", "try again in 3600 s"),
            (respond(429, headers={"Retry-After": "Wed, 21 Oct 2099 07:28:00 GMT"}), "answered 429", "try again in 3600 s"),
            (respond(302, headers={"Location": "/login"}), "redirects with 302", "if one signs in there"),
            (respond(308), "does not say where", ""),
        ],
        ids=["page", "no-page", "proxy", "firewall", "basic", "seconds", "date", "login", "nowhere"],
    )  # fmt: skip
    async def test_what_came_and_what_to_do(self, fake_http: FakeHttp, answer: Action, said: str, hint: str) -> None:
        """Case 6, case 17, case 19, case 89: a page is quoted by its title, and the hint is about the status."""
        report = await look_at(fake_http(Script(on(None, answer))).url, start_timeout_s=5.0)
        assert report.failure is not None
        assert said in report.failure.message
        assert hint in report.failure.hint
        assert "<" not in report.failure.message

    @pytest.mark.parametrize("status", [401, 403])
    async def test_a_server_that_shows_itself_and_not_its_lists(self, fake_http: FakeHttp, status: int) -> None:
        """Case 14: "connected, 0 tools" would hide that somebody must sign in."""
        fake = fake_http(Script(on("tools/list", respond(status, headers={"WWW-Authenticate": "Bearer"})), *modern()))
        report = await look_at(fake.url)
        assert report.failure is not None
        assert (report.failure.kind, report.era) == ("auth", Era.MODERN)
        assert "outrider login" in report.failure.hint

    @pytest.mark.parametrize("status", [400, 404, 405, 500])
    async def test_a_server_that_refuses_the_notification_and_serves_all_the_same(
        self, fake_http: FakeHttp, status: int
    ) -> None:
        """Case 12: the next request tells whether the handshake is done."""
        fake = fake_http(Script(on("notifications/initialized", respond(status)), *legacy()))
        report = await look_at(fake.url)
        assert_found(report, "legacy")
        assert any("notifications/initialized was refused" in warning for warning in report.warnings)


class TestAcceptance:
    @pytest.mark.parametrize("era", [modern(), legacy()], ids=["modern", "legacy"])
    async def test_both_media_types_are_accepted(self, fake_http: FakeHttp, era: tuple[Rule, ...]) -> None:
        """Case 16: every POST accepts JSON and event streams, both spelled out, whatever the era."""
        refused = error(-32600, "Not Acceptable", id="server-error", status=406)
        fake = fake_http(Script(*era))
        assert (await look_at(fake.url)).ok
        for record in fake.received():
            accepted = [part.split(";")[0].strip() for part in (header(record, "Accept") or "").split(",")]
            assert {"application/json", "text/event-stream"} <= set(accepted)
            assert header(record, "Content-Type") == "application/json"
        strict = fake_http(
            Script(on(None, refused, headers={"Accept": r"(?!.*application/json.*text/event-stream).*"}), *modern())
        )
        assert_found(await look_at(strict.url), "modern")

    async def test_406_for_everything_is_shown_as_such(self, fake_http: FakeHttp) -> None:
        """Case 16: the status and the server's words reach the user."""
        fake = fake_http(Script(on(None, respond(406, text="client must accept text/event-stream"))))
        report = await look_at(fake.url)
        assert report.failure is not None
        assert "406" in report.failure.message
        assert "client must accept" in report.failure.message


class TestRedirects:
    @pytest.mark.parametrize("status", [307, 308])
    async def test_same_origin_is_followed_with_method_body_and_credential(
        self, fake_http: FakeHttp, status: int
    ) -> None:
        """Case 17."""
        moved = respond(status, headers={"Location": "/mcp/"})
        fake = fake_http(Script(on(None, moved, path="/mcp"), *modern()))
        assert_found(await look_at(fake.url, headers=AUTH), "modern")
        arrived = [record for record in fake.received() if record["path"] == "/mcp/"]
        assert [record["message"]["method"] for record in arrived] == ["server/discover", "tools/list"]
        assert all(header(record, "Authorization") == AUTH["Authorization"] for record in arrived)

    @pytest.mark.parametrize("status", [301, 302, 303])
    async def test_a_redirect_that_would_lose_the_body_is_reported(self, fake_http: FakeHttp, status: int) -> None:
        """Case 17: the new URL is named, so that the user can put it into the configuration; no era is concluded."""
        fake = fake_http(
            Script(on(None, respond(status, headers={"Location": "/elsewhere?key=1"}), path="/mcp"), *modern())
        )
        report = await look_at(fake.url)
        assert report.failure is not None
        assert f":{fake.port}/elsewhere" in report.failure.message + report.failure.hint
        assert "key=1" not in report.failure.message + report.failure.hint
        assert report.era is None
        assert [record["path"] for record in fake.received()] == ["/mcp"]

    async def test_another_origin_never_sees_the_credential(self, fake_http: FakeHttp) -> None:
        """Case 17: not followed at all; the user decides."""
        other = fake_http(Script(*modern()))
        fake = fake_http(Script(on(None, respond(307, headers={"Location": other.url}))))
        report = await look_at(fake.url, headers=AUTH)
        assert report.failure is not None
        assert other.url in report.failure.message + report.failure.hint
        assert other.received() == []

    async def test_a_loop_ends(self, fake_http: FakeHttp) -> None:
        """Case 17: after a few hops."""
        there, back = (respond(307, headers={"Location": path}) for path in ("/b", "/mcp"))
        fake = fake_http(Script(on(None, there, path="/mcp"), on(None, back, path="/b")))
        report = await look_at(fake.url)
        assert report.failure is not None
        assert len(fake.received()) <= 5

    @pytest.mark.parametrize("location", ["", "http://[", "http://127.0.0.1:99999/", "ftp://127.0.0.1/mcp", "\x7f"])
    async def test_a_location_that_leads_nowhere(self, fake_http: FakeHttp, location: str) -> None:
        """Case 17: whatever stands in Location, the outcome is a report."""
        fake = fake_http(Script(on(None, respond(307, headers={"Location": location}))))
        report = await look_at(fake.url)
        assert report.failure is not None


class TestOutages:
    @pytest.mark.parametrize(
        "answer",
        [
            respond(502, text="<html>bad gateway</html>", headers={"Content-Type": "text/html"}),
            respond(503),
            respond(500, text="oops"),
            respond(429, headers={"Retry-After": "1"}),
            RESET,
            HANG_UP,
        ],
        ids=["502", "503", "500", "429", "reset", "hang-up"],
    )
    async def test_one_bad_moment_is_waited_out(self, fake_http: FakeHttp, answer: Action) -> None:
        """Case 19: no era evidence, no handshake; the probe is simply made again."""
        fake = fake_http(Script(on("server/discover", answer, times=1), *modern()))
        assert_found(await look_at(fake.url), "modern")
        assert fake.methods() == ["server/discover", "server/discover", "tools/list"]

    async def test_a_legacy_server_after_a_bad_moment(self, fake_http: FakeHttp) -> None:
        """Case 19: the outage does not colour what comes after it."""
        fake = fake_http(Script(on("server/discover", respond(503), times=1), *legacy()))
        assert_found(await look_at(fake.url), "legacy")

    async def test_an_outage_that_lasts_is_reported_as_one(self, fake_http: FakeHttp) -> None:
        """Case 19: within the time allowed, with status and text, and without a word about eras."""
        fake = fake_http(Script(on(None, respond(503, text="maintenance"))))
        report = await look_at(fake.url, start_timeout_s=3.0)
        assert report.failure is not None
        assert "503" in report.failure.message
        assert "maintenance" in report.failure.message
        assert report.era is None
        assert set(fake.methods()) == {"server/discover"}

    async def test_a_refused_connection_is_reported_with_its_addresses(self, fake_http: FakeHttp) -> None:
        """Case 19: nothing listens there."""
        fake = fake_http(Script())
        fake.stop()
        report = await look_at(fake.url)
        assert report.failure is not None
        assert (report.failure.kind, report.era) == ("start", None)
        assert f"127.0.0.1:{fake.port}" in report.failure.message


class TestModernErrors:
    async def test_a_server_that_insists_on_the_headers(self, fake_http: FakeHttp) -> None:
        """Case 85: the probe carries the standard headers, equal to its body."""
        strict = {"Mcp-Method": "server/discover", "MCP-Protocol-Version": "2026-07-28"}
        good = on("server/discover", result(discover_result()), headers=strict)
        bad = on("server/discover", error(-32020, "Header mismatch", status=400))
        assert_found(await look_at(fake_http(Script(good, bad, *modern())).url), "modern")

    async def test_headers_that_are_lost_on_the_way(self, fake_http: FakeHttp) -> None:
        """Case 85, case 91: -32020 twice for a right request names the proxy as suspect; no handshake."""
        fake = fake_http(Script(on("server/discover", error(-32020, "Header mismatch", status=400)), *legacy()))
        report = await look_at(fake.url)
        assert report.failure is not None
        assert "proxy" in report.failure.hint
        assert fake.methods() == ["server/discover", "server/discover"]

    async def test_headers_that_are_lost_once(self, fake_http: FakeHttp) -> None:
        """Case 91: one proxy of several."""
        lost = on("server/discover", error(-32020, "Header mismatch", status=400), times=1)
        assert_found(await look_at(fake_http(Script(lost, *modern())).url), "modern")

    async def test_404_with_method_not_found_costs_that_method(self, fake_http: FakeHttp) -> None:
        """Case 86: an optional method is not there; server, era and the other lists stay."""
        fake = fake_http(Script(*modern(capabilities={"tools": {}, "prompts": {}})))
        report = await look_at(fake.url)
        assert_found(report, "modern")
        assert report.prompts is not None
        assert len(report.prompts) == 0
        assert any("prompts/list" in warning for warning in report.warnings)
        assert sorted(fake.methods()) == ["prompts/list", "server/discover", "tools/list"]

    @pytest.mark.parametrize("code", [-32021, -32022])
    async def test_modern_errors_never_lead_to_a_handshake(self, fake_http: FakeHttp, code: int) -> None:
        """Case 85: a recognized modern error is proof of the era; there is nothing to negotiate by handshake."""
        fake = fake_http(Script(on("server/discover", error(code, "no", status=400)), *legacy()))
        report = await look_at(fake.url)
        assert report.failure is not None
        assert "initialize" not in fake.methods()


class TestSilence:
    @pytest.mark.parametrize("answer", [(HANG,), (STREAM, raw(": nothing\n\n"), HANG)], ids=["silent", "empty-stream"])
    async def test_a_probe_that_is_never_answered(self, fake_http: FakeHttp, answer: tuple[Action, ...]) -> None:
        """Case 87: the handshake follows within the budget, and the verdict is not stored."""
        fake = fake_http(Script(on("server/discover", *answer), *legacy()))
        async with outrider.connect(fake.url, options=options(probe_timeout_s=0.3)) as client:
            assert client.era is Era.LEGACY
            assert not client.trail.storable
            assert [tool.name for tool in (await client.list_tools()).items] == ["add", "echo"]
        # Giving up means closing the response: that is how this transport cancels.
        assert [record["request"] for record in await fake.wait_for("closed")] == [1]

    async def test_a_server_that_never_answers_anything(self, fake_http: FakeHttp) -> None:
        """Case 87: the time allowed for the start holds."""
        fake = fake_http(Script(on(None, HANG)))
        report = await look_at(fake.url, probe_timeout_s=0.3, start_timeout_s=2.0)
        assert report.failure is not None
        assert (report.failure.kind, report.era) == ("timeout", None)


class TestStaleVerdicts:
    async def test_a_server_that_contradicts_its_own_description(self, fake_http: FakeHttp) -> None:
        """Case 10: it describes itself as modern, refuses every modern request, and names legacy versions; its last word counts."""
        refusal = error(
            -32022, "no", data={"supported": ["2025-11-25", "2025-06-18"], "requested": "2026-07-28"}, status=400
        )
        modern_only = on("tools/list", refusal, headers={"MCP-Protocol-Version": "2026-07-28"})
        fake = fake_http(Script(modern_only, on("server/discover", result(discover_result())), *legacy()))
        report = await look_at(fake.url)
        assert tool_names(report) == ["add", "echo"]

    async def test_legacy_was_remembered_and_the_server_is_modern_now(self, fake_http: FakeHttp) -> None:
        """Case 39: the handshake is refused, so the probe is made after all."""
        fake = fake_http(Script(*modern()))
        async with Client(parse_target(fake.url), OPTIONS, assume=Era.LEGACY) as client:
            assert client.era is Era.MODERN
            assert len(await client.list_tools()) == 2

    @pytest.mark.parametrize(
        "refusal", [respond(404), respond(405), respond(400, text="no"), error(-32601, "Method not found", status=404)]
    )
    async def test_however_the_handshake_is_refused(self, fake_http: FakeHttp, refusal: Action) -> None:
        """Case 39: a modern-only server need not be polite about `initialize`."""
        fake = fake_http(Script(on("initialize", refusal), *modern()))
        async with Client(parse_target(fake.url), OPTIONS, assume=Era.LEGACY) as client:
            assert client.era is Era.MODERN

    async def test_modern_was_remembered_and_the_server_is_legacy_now(self, fake_http: FakeHttp) -> None:
        """Case 39: the other direction, as after a downgrade."""
        fake = fake_http(Script(*legacy()))
        async with Client(parse_target(fake.url), OPTIONS, assume=Era.MODERN) as client:
            assert client.era is Era.LEGACY
            assert len(await client.list_tools()) == 2

    async def test_verdicts_with_evidence_may_be_stored(self, fake_http: FakeHttp) -> None:
        """Case 39: an answer backs them."""
        for script, era in ((Script(*modern()), Era.MODERN), (Script(*legacy()), Era.LEGACY)):
            async with outrider.connect(fake_http(script).url, options=OPTIONS) as client:
                assert client.era is era
                assert client.trail.storable


class TestHttpWithSse:
    @pytest.mark.parametrize("status", [400, 404, 405])
    async def test_the_oldest_transport_is_the_last_resort(self, fake_http: FakeHttp, status: int) -> None:
        """Spec streamable-http#httpsse-transport-2024-11-05: after 400, 404 or 405 to POSTs, a GET may open a stream that names
        an endpoint. Answers come on that stream, whatever else comes before them.
        """
        handshake = initialize_result("2024-11-05")
        fake = fake_http(
            Script(
                on(None, respond(status), http="POST", path="/mcp"),
                on(
                    None,
                    STREAM,
                    raw("event: endpoint\ndata: /messages\n\n"),
                    await_event("initialize"),
                    send({"jsonrpc": "2.0", "id": 3, "result": handshake}),
                    await_event("tools"),
                    notify("notifications/message", level="info", data="hello"),
                    send({"jsonrpc": "2.0", "id": 4, "result": {"tools": [tool("old_tool")]}}),
                    HANG,
                    http="GET",
                ),
                on("initialize", set_event("initialize"), path="/messages"),
                on("tools/list", set_event("tools"), path="/messages"),
            )
        )
        report = await look_at(fake.url)
        assert_found(report, "legacy", "old_tool")
        assert report.transport == "http+sse"
        assert report.protocol_version == "2024-11-05"
        assert fake.methods()[-3:] == ["initialize", "notifications/initialized", "tools/list"]

    async def test_a_failure_there_names_the_first_refusal(self, fake_http: FakeHttp) -> None:
        """Ours: what the user reads is the first real cause; the attempts tell the rest."""
        fake = fake_http(Script(on(None, respond(404, text="no such page"))))
        report = await look_at(fake.url)
        assert report.failure is not None
        assert "no such page" in report.failure.message
        assert steps(report) == ["server/discover", "initialize", "GET"]
