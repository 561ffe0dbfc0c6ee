"""Connections: proxies, certificates, streams that are resumed, connections that servers close, the oldest transport."""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import outrider
from cases.expectations import OPTIONS, assert_found, look_at
from fakes.running import FakeHttp, header
from fakes.scripts import (
    HANG,
    HANG_UP,
    STREAM,
    Action,
    Rule,
    Script,
    initialize_result,
    legacy,
    modern,
    notify,
    on,
    raw,
    respond,
    tool,
)

AUTH = {"Authorization": "Bearer good-credential"}


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment without proxy variables, for a test to set its own."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return monkeypatch


class TestProxies:
    async def test_a_proxy_of_the_environment_is_used(
        self, fake_http: FakeHttp, no_proxies: pytest.MonkeyPatch
    ) -> None:
        """Ours: standard terms, standard places."""
        proxy = fake_http(Script(*modern()))
        no_proxies.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        assert_found(await look_at("http://server.invalid/mcp", headers=AUTH), "modern")
        assert {record["path"] for record in proxy.received()} == {"http://server.invalid/mcp"}
        assert {header(record, "Host") for record in proxy.received()} == {"server.invalid"}

    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
    async def test_loopback_is_never_asked_through_one(
        self, fake_http: FakeHttp, no_proxies: pytest.MonkeyPatch, host: str
    ) -> None:
        """Ours: a server on this machine is not the proxy's business."""
        fake = fake_http(Script(*modern()))
        no_proxies.setenv("HTTP_PROXY", "http://127.0.0.1:1")
        no_proxies.setenv("ALL_PROXY", "http://127.0.0.1:1")
        assert_found(await look_at(f"http://{host}:{fake.port}/mcp"), "modern")

    async def test_no_proxy_is_honoured(self, fake_http: FakeHttp, no_proxies: pytest.MonkeyPatch) -> None:
        """Ours."""
        proxy = fake_http(Script(*modern()))
        no_proxies.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        no_proxies.setenv("NO_PROXY", "server.invalid")
        report = await look_at("http://server.invalid/mcp")
        assert report.failure is not None
        assert report.failure.kind == "start"
        assert proxy.received() == []

    async def test_a_proxy_that_is_away_is_named_without_its_password(self, no_proxies: pytest.MonkeyPatch) -> None:
        """Case 69, case 19: the proxy is what failed."""
        no_proxies.setenv("HTTP_PROXY", "http://u:SECRET@127.0.0.1:1")
        report = await look_at("http://server.invalid/mcp", start_timeout_s=3.0)
        assert report.failure is not None
        assert "proxy" in report.failure.message
        assert "127.0.0.1:1" in report.failure.message
        assert "SECRET" not in str(report.as_json())

    @pytest.mark.parametrize("value", ["http://[", "not a url", "socks5://127.0.0.1:1", "http://127.0.0.1:99999"])
    async def test_a_proxy_variable_that_makes_no_sense(self, no_proxies: pytest.MonkeyPatch, value: str) -> None:
        """Ours: a report, not a traceback."""
        no_proxies.setenv("HTTP_PROXY", value)
        report = await look_at("http://server.invalid/mcp", start_timeout_s=3.0)
        assert report.failure is not None


def certificate_for(host: str, directory: Path) -> Path:
    """A self-signed certificate with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = directory / f"{host}.pem"
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + private)
    return path


class TestCertificates:
    async def test_one_that_nobody_vouches_for(self, fake_http: FakeHttp, tmp_path: Path) -> None:
        """Case 19: refused, with the reason and what to do; nothing was sent, and no era is concluded."""
        fake = fake_http(Script(*modern()), certificate=certificate_for("localhost", tmp_path))
        report = await look_at(f"https://localhost:{fake.port}/mcp", headers=AUTH)
        assert report.failure is not None
        assert "certificate" in report.failure.message
        assert "SSL_CERT_FILE" in report.failure.hint
        assert report.era is None
        assert fake.received() == []

    @pytest.mark.parametrize("host", ["localhost", "other.example"])
    async def test_one_that_the_user_trusts(self, fake_http: FakeHttp, tmp_path: Path, host: str) -> None:
        """Ours: SSL_CERT_FILE is honoured, for the host that the certificate names."""
        certificate = certificate_for(host, tmp_path)
        fake = fake_http(Script(*modern()), certificate=certificate)
        # In a process of its own: the variable is read once, as by most programs.
        program = (
            "import asyncio, json, outrider, sys\n"
            "report = asyncio.run(outrider.discover(sys.argv[1]))\n"
            "print(json.dumps([report.ok, report.failure and report.failure.message]))\n"
        )
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program, f"https://localhost:{fake.port}/mcp"),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "SSL_CERT_FILE": str(certificate)},
        )
        output, _ = await process.communicate()
        found, message = json.loads(output)
        if host == "localhost":
            assert found, message
        else:
            assert "certificate" in message
            assert fake.received() == []

    async def test_plain_http_on_a_tls_port_and_the_reverse(self, fake_http: FakeHttp, tmp_path: Path) -> None:
        """Ours: a report, not a traceback."""
        secure = fake_http(Script(*modern()), certificate=certificate_for("localhost", tmp_path))
        plain = fake_http(Script(*modern()))
        for url in (f"http://localhost:{secure.port}/mcp", f"https://localhost:{plain.port}/mcp"):
            report = await look_at(url, start_timeout_s=3.0)
            assert report.failure is not None
            assert report.era is None


class TestResuming:
    def interrupted(self, *first: Action) -> Rule:
        """A legacy list whose stream ends early, after an event with an id."""
        return on("tools/list", STREAM, raw("id: e-1\nretry: 10\ndata:\n\n"), *first)

    def rest(self, *actions: Action, **conditions: Any) -> Rule:
        """What a GET with the id of that event gets."""
        return on(None, *actions, http="GET", headers={"Last-Event-ID": "e-1"}, **conditions)

    def listed(self) -> Action:
        """The answer to the list, which a GET cannot know the id of."""
        return raw(
            'id: e-2\ndata: {"jsonrpc":"2.0","id":3,"result":{"tools":[{"name":"late","inputSchema":{"type":"object"}}]}}\n\n'
        )

    @pytest.mark.parametrize("ending", [(), (HANG_UP,)], ids=["in-order", "hung-up"])
    async def test_a_stream_that_ended_early_is_taken_up_again(
        self, fake_http: FakeHttp, ending: tuple[Action, ...]
    ) -> None:
        """Spec 2025-11-25 transports#resumability-and-redelivery: a GET with Last-Event-ID, in the same session."""
        fake = fake_http(Script(self.interrupted(*ending), self.rest(STREAM, self.listed()), *legacy(session="s-1")))
        assert_found(await look_at(fake.url), "legacy", "late")
        (resumed,) = [record for record in fake.received() if record["http"] == "GET"]
        assert header(resumed, "Mcp-Session-Id") == "s-1"
        assert header(resumed, "Accept") == "text/event-stream"
        assert len(fake.received("tools/list")) == 1

    async def test_as_often_as_it_takes(self, fake_http: FakeHttp) -> None:
        """Spec 2025-11-25 transports#sending-messages-to-the-server: a server may close and expect the client back."""
        empty = self.rest(STREAM, raw("retry: 10\n\n"), times=2)
        fake = fake_http(Script(self.interrupted(), empty, self.rest(STREAM, self.listed()), *legacy(session="s-1")))
        assert_found(await look_at(fake.url), "legacy", "late")

    async def test_a_stream_that_cannot_be_taken_up(self, fake_http: FakeHttp) -> None:
        """Ours: an error of that request, in finite time; the session lives."""
        fake = fake_http(
            Script(on("tools/call", *self.interrupted().do), self.rest(respond(404)), *legacy(session="s-1"))
        )
        async with outrider.connect(fake.url, options=OPTIONS) as client:
            with pytest.raises(outrider.TransportError):
                await client.call_tool("add")
            assert len(await client.list_tools()) == 2
        assert len(fake.received("tools/call")) == 1

    async def test_a_server_that_promises_for_ever(self, fake_http: FakeHttp) -> None:
        """Ours: the number of returns is bounded."""
        fake = fake_http(
            Script(
                on("tools/call", *self.interrupted().do), self.rest(STREAM, raw("retry: 1\n\n")), *legacy(session="s-1")
            )
        )
        async with outrider.connect(fake.url, options=OPTIONS) as client:
            with pytest.raises(outrider.TransportError):
                await client.call_tool("add")
        assert len([record for record in fake.received() if record["http"] == "GET"]) <= 20

    async def test_modern_streams_are_never_taken_up(self, fake_http: FakeHttp) -> None:
        """Spec 2026-07-28 streamable-http#earlier-streamable-http-revisions: ids mean nothing any more."""
        fake = fake_http(Script(on("tools/call", *self.interrupted().do), self.rest(STREAM, self.listed()), *modern()))
        async with outrider.connect(fake.url, options=OPTIONS) as client:
            with pytest.raises(outrider.TransportError):
                await client.call_tool("add")
        assert {record["http"] for record in fake.received()} == {"POST"}


class TestClosedConnections:
    async def test_a_server_that_closes_after_every_answer(self, fake_http: FakeHttp) -> None:
        """Ours: with a header that says so, every request finds a connection of its own."""
        rules = [
            Rule(
                method=rule.method,
                do=[{**action, "headers": {"Connection": "close"}} for action in rule.do] + [HANG_UP],
            )
            for rule in modern()
        ]
        fake = fake_http(Script(*rules))
        async with outrider.connect(fake.url, options=OPTIONS) as client:
            for _ in range(5):
                assert len(await client.list_tools()) == 2
                assert (await client.call_tool("add")).text == "called add"
        assert len(fake.received("tools/call")) == 5

    async def test_lists_survive_a_server_that_closes_without_a_word(self, fake_http: FakeHttp) -> None:
        """Case 106: what changes nothing is simply asked again."""
        rules = [Rule(method=rule.method, do=[*rule.do, HANG_UP]) for rule in modern()]
        fake = fake_http(Script(*rules))
        async with outrider.connect(fake.url, options=OPTIONS) as client:
            for _ in range(5):
                assert len(await client.list_tools()) == 2

    @pytest.mark.parametrize(
        "answer", [respond(202), respond(200), respond(204), respond(200, json={}), respond(200, text="ok")]
    )
    async def test_what_a_notification_is_answered_with(self, fake_http: FakeHttp, answer: Action) -> None:
        """Case 12: 202, 200 or 204, with a body or without."""
        fake = fake_http(Script(on("notifications/initialized", answer), *legacy(session="s-1")))
        assert_found(await look_at(fake.url), "legacy")

    async def test_a_notification_that_is_never_answered_delays_nothing_for_ever(self, fake_http: FakeHttp) -> None:
        """Ours: the time allowed for the start holds."""
        fake = fake_http(Script(on("notifications/initialized", HANG), *legacy(session="s-1")))
        report = await look_at(fake.url, start_timeout_s=1.5)
        assert report.failure is None or report.failure.kind == "timeout"


class TestOldestTransport:
    def server(self, endpoint: str, *then: Action) -> Script:
        return Script(
            on(None, respond(405), http="POST", path="/mcp"),
            on(None, STREAM, raw(f"event: endpoint\ndata: {endpoint}\n\n"), *then, HANG, http="GET"),
            on("initialize", respond(202)),
        )

    @pytest.mark.parametrize("where", ["http://127.0.0.1:1/messages", "//evil.invalid/x", "https://127.0.0.1/x"])
    async def test_an_endpoint_of_another_origin_is_refused(self, fake_http: FakeHttp, where: str) -> None:
        """Ours: our credentials would go to whomever the server names."""
        fake = fake_http(self.server(where))
        report = await look_at(fake.url, headers=AUTH)
        assert report.failure is not None
        assert any("another origin" in attempt.observed for attempt in report.attempts)

    async def test_an_endpoint_that_never_comes(self, fake_http: FakeHttp) -> None:
        """Ours: the time allowed for the start holds."""
        fake = fake_http(Script(on(None, respond(405), http="POST"), on(None, STREAM, HANG, http="GET")))
        report = await look_at(fake.url, start_timeout_s=1.5)
        assert report.failure is not None

    @pytest.mark.parametrize("garbage", ["", "http://[", "\x00", "x" * 100_000])
    async def test_an_endpoint_that_is_no_url(self, fake_http: FakeHttp, garbage: str) -> None:
        """Ours: a report, not a traceback."""
        fake = fake_http(self.server(garbage))
        report = await look_at(fake.url, start_timeout_s=2.0)
        assert report.failure is not None

    async def test_a_stream_that_ends_in_the_handshake(self, fake_http: FakeHttp) -> None:
        """Case 106: at once."""
        fake = fake_http(
            Script(
                on(None, respond(405), http="POST", path="/mcp"),
                on(None, STREAM, raw("event: endpoint\ndata: /messages\n\n"), {"await": "asked"}, HANG_UP, http="GET"),
                on("initialize", {"set": "asked"}, path="/messages"),
            )
        )
        report = await look_at(fake.url)
        assert report.failure is not None

    async def test_a_url_that_is_known_to_speak_it(self, fake_http: FakeHttp) -> None:
        """Ours: a configuration may say so; nothing else is tried."""
        answer = {"jsonrpc": "2.0", "id": 1, "result": initialize_result("2024-11-05")}
        tools = {"jsonrpc": "2.0", "id": 2, "result": {"tools": [tool("old")]}}
        fake = fake_http(
            Script(
                on(
                    None,
                    STREAM,
                    raw("event: endpoint\ndata: /messages?s=1\n\n"),
                    {"await": "asked"},
                    {"send": answer},
                    {"await": "listed"},
                    notify("notifications/tools/list_changed"),
                    {"send": tools},
                    HANG,
                    http="GET",
                ),
                on("initialize", {"set": "asked"}),
                on("tools/list", {"set": "listed"}),
            )
        )
        report = await look_at(outrider.HttpTarget(fake.url, AUTH, sse=True))
        assert_found(report, "legacy", "old")
        assert "server/discover" not in fake.methods()
        assert all(header(record, "Authorization") == AUTH["Authorization"] for record in fake.received())
        assert {record["path"] for record in fake.received() if record["http"] == "POST"} == {"/messages?s=1"}
