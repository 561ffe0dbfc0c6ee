"""Targets: what is a URL and what a command, which headers can be sent, and what may be shown of each."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.client.target import ClientOptions, HttpTarget, Pin, StdioTarget, parse_target
from outrider.errors import ConfigError
from outrider.protocol.versions import LEGACY_VERSIONS, MODERN_VERSIONS, VERSIONS


class TestUrls:
    @pytest.mark.parametrize(
        ("given_url", "url"),
        [
            ("https://example.com/mcp", "https://example.com/mcp"),
            ("  https://example.com/mcp\n", "https://example.com/mcp"),
            ("HTTPS://Example.com/Path", "https://example.com/Path"),
            ("http://example.com", "http://example.com/"),
            ("http://[::1]:8000/mcp", "http://[::1]:8000/mcp"),
            ("http://h/mcp?a=1&b=2#part", "http://h/mcp?a=1&b=2"),
            ("http://h/a%20b", "http://h/a%20b"),
        ],
    )
    def test_what_is_asked_for(self, given_url: str, url: str) -> None:
        """Ours: the endpoint, without the fragment, which is never sent."""
        target = parse_target(given_url)
        assert isinstance(target, HttpTarget)
        assert target.url == url

    def test_user_and_password_become_a_credential(self) -> None:
        """Ours: as browsers and curl do; the URL is free of them."""
        target = parse_target("https://al%20ice:p%40ss@example.com/mcp")
        assert isinstance(target, HttpTarget)
        assert target.url == "https://example.com/mcp"
        assert target.headers == {"Authorization": "Basic YWwgaWNlOnBAc3M="}
        assert target.has_credential
        assert target.redact("al ice p@ss YWwgaWNlOnBAc3M=") == "••• ••• •••"
        explicit = parse_target("https://u:p@example.com/", headers={"authorization": "Bearer x-y-z"})
        assert isinstance(explicit, HttpTarget)
        assert explicit.headers == {"authorization": "Bearer x-y-z"}

    @pytest.mark.parametrize(
        "target",
        [
            "ftp://h/mcp",
            "ws://h/mcp",
            "localhost:8000/mcp",
            "example.com:443",
            "[::1]:8000/mcp",
            "http://",
            "http:///mcp",
            "http://[::1/mcp",
            "http://h:port/mcp",
            "http://h:99999/mcp",
            "http://h/a b",
            "http://h/a\tb",
            "",
            "   ",
            '"unbalanced',
            [],
            [""],
        ],
        ids=repr,
    )
    def test_what_names_no_target(self, target: str | list[str]) -> None:
        """Ours: refused in words before anything is started."""
        with pytest.raises(ConfigError) as refused:
            parse_target(target)
        assert str(refused.value)

    @pytest.mark.parametrize(
        "url",
        ["http://user:SECRET/x@host/", "http://u:SECRET@h:port/", "http://h/mcp?key=SECRET x", "ftp://u:SECRET@h/"],
    )
    def test_refusals_hold_no_secret(self, url: str) -> None:
        """Case 69: a slash in a password makes a port of it, and the error must not name it."""
        with pytest.raises(ConfigError) as refused:
            parse_target(url)
        assert "SECRET" not in f"{refused.value} {refused.value.hint}"

    @given(st.text(max_size=40))
    def test_no_text_raises_anything_else(self, text: str) -> None:
        """Ours."""
        for candidate in (text, f"http://{text}", f"https://h/{text}"):
            try:
                target = parse_target(candidate)
            except ConfigError:
                continue
            assert target.label is not None
            assert target.redact("x") is not None

    @pytest.mark.parametrize(
        ("url", "loopback"),
        [
            ("http://localhost:1/", True),
            ("http://LOCALHOST/", True),
            ("http://app.localhost/", True),
            ("http://127.0.0.1/", True),
            ("http://127.1.2.3/", True),
            ("http://[::1]/", True),
            ("http://localhost.example.com/", False),
            ("http://127.0.0.1.example.com/", False),
            ("http://10.0.0.1/", False),
        ],
    )
    def test_which_hosts_are_this_machine(self, url: str, loopback: bool) -> None:
        """Ours: those never go through a proxy."""
        target = parse_target(url)
        assert isinstance(target, HttpTarget)
        assert target.is_loopback is loopback


class TestHeaders:
    @pytest.mark.parametrize(
        "value", ["SECRET\n", "a\r\nHost: SECRET", "SECRET\0", "\x1bSECRET", "SECRET天", "SECRET\x7f"]
    )
    def test_a_value_that_cannot_be_sent_is_refused_without_being_shown(self, value: str) -> None:
        """Case 138."""
        with pytest.raises(ConfigError) as refused:
            parse_target("http://h/", headers={"X-Key": value})
        assert "X-Key" in str(refused.value)
        assert "SECRET" not in f"{refused.value} {refused.value.hint}"

    @pytest.mark.parametrize("name", ["", "a b", "a:", "a\r\nb", "é", "a\n"])
    def test_a_name_that_is_none(self, name: str) -> None:
        """Case 138."""
        with pytest.raises(ConfigError):
            parse_target("http://h/", headers={name: "x"})

    def test_white_space_around_a_value_is_dropped(self) -> None:
        """Ours: it has no meaning in HTTP, and some servers count it."""
        target = parse_target("http://h/", headers={"X": " \tv w "})
        assert isinstance(target, HttpTarget)
        assert target.headers == {"X": "v w"}

    def test_names_are_one_whatever_their_case(self) -> None:
        """Ours: what is added replaces what was there; no credential is sent twice."""
        target = parse_target(
            HttpTarget("http://h/", {"Authorization": "Bearer old", "X": "1"}), headers={"authorization": "Bearer new"}
        )
        assert isinstance(target, HttpTarget)
        assert {name.lower(): value for name, value in target.headers.items()} == {
            "authorization": "Bearer new",
            "x": "1",
        }
        assert len(target.headers) == 2

    @pytest.mark.parametrize(
        ("url", "headers", "has"),
        [
            ("http://h/", {}, False),
            ("http://h/", {"X-Tenant": "a"}, False),
            ("http://h/", {"Authorization": "Bearer x"}, True),
            ("http://h/", {"X-Api-Key": "x"}, True),
            ("http://h/?key=x", {}, True),
        ],
    )
    def test_what_counts_as_a_credential(self, url: str, headers: dict[str, str], has: bool) -> None:
        """Case 14, case 15: it decides what a 401 means."""
        target = parse_target(url, headers=headers)
        assert isinstance(target, HttpTarget)
        assert target.has_credential is has


class TestCommands:
    def test_a_line_is_split_as_a_shell_would(self) -> None:
        """Ours: but no shell runs it, so nothing is expanded."""
        target = parse_target("python 'my server.py' --x=$HOME a\\ b ; rm")
        assert isinstance(target, StdioTarget)
        assert target.argv == ("python", "my server.py", "--x=$HOME", "a b", ";", "rm")

    def test_a_sequence_is_taken_as_it_is(self) -> None:
        """Ours: also one whose command looks like a URL's host."""
        target = parse_target(["localhost:8000", "a b"], env={"A": "1"}, cwd=Path("/tmp"))
        assert target == StdioTarget(("localhost:8000", "a b"), {"A": "1"}, "/tmp")

    def test_paths_are_texts(self) -> None:
        """Ours: `["python", Path("server.py")]` is how people write it."""
        assert parse_target(["python", Path("/srv/server.py")]) == StdioTarget(("python", "/srv/server.py"))  # type: ignore[list-item]

    def test_arguments_that_are_no_texts(self) -> None:
        """Ours: a ConfigError like any other."""
        with pytest.raises(ConfigError):
            parse_target(["python", 8000])  # type: ignore[list-item]

    def test_headers_do_not_belong_to_a_command(self) -> None:
        """Ours: silence would hide that they are never sent."""
        with pytest.raises(ConfigError):
            parse_target(["python"], headers={"Authorization": "x"})

    def test_additions_to_a_ready_target(self) -> None:
        """Ours: they win."""
        ready = StdioTarget(("x",), {"A": "1", "B": "2"}, "/a", inherit_env=True)
        assert parse_target(ready) == ready
        assert parse_target(ready, env={"A": "3"}, cwd="/b") == StdioTarget(
            ("x",), {"A": "3", "B": "2"}, "/b", inherit_env=True
        )

    def test_what_is_shown(self) -> None:
        """Case 69."""
        target = StdioTarget(("srv", "--token", "abcdef"), {"API_KEY": "uvwxyz"})
        assert target.label == "srv --token •••"
        assert target.redact("abcdef uvwxyz") == "••• •••"


class TestOptions:
    def test_what_a_pin_allows(self) -> None:
        """Ours: a pinned era is spoken alone."""
        assert Pin.AUTO.versions() == tuple(VERSIONS)
        assert Pin.MODERN.versions() == MODERN_VERSIONS
        assert Pin.LEGACY.versions() == LEGACY_VERSIONS

    def test_the_defaults(self) -> None:
        """Case 33, case 22: generous to starts and to large answers; no capability is declared that nobody serves."""
        options = ClientOptions()
        assert options.start_timeout_s >= 30
        assert options.probe_timeout_s >= 3
        assert options.max_message_bytes >= 16 * 1024 * 1024
        assert options.capabilities == {}
        assert options.client_info is not None
        assert options.client_info["name"] == "outrider"
