"""Redaction: no configured secret is in anything that is shown, in whichever form it travels."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from outrider.redaction import MASK, Redactor, secrets_of, show_command, show_url, unfilled

secrets = st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=3, max_size=30)
texts = st.text(max_size=50)


class TestUrls:
    @pytest.mark.parametrize(
        ("url", "shown"),
        [
            ("https://example.com/mcp", "https://example.com/mcp"),
            ("https://u:SECRET@example.com:8443/a/b?api_key=SECRET&x=1#SECRET", "https://example.com:8443/a/b"),
            ("http://SECRET@[::1]:80/mcp", "http://[::1]:80/mcp"),
            ("http://u:SEC:RET@host/", "http://host/"),
            ("HTTP://Example.COM/Path", "http://example.com/Path"),
            ("http://host:SECRET/", "(a malformed URL)"),
            ("http://[SECRET/", "(a malformed URL)"),
            ("", ""),
        ],
    )
    def test_what_is_shown_of_a_url(self, url: str, shown: str) -> None:
        """Case 69: scheme, host, port and path."""
        assert show_url(url) == shown
        assert "SECRET" not in show_url(url)

    @given(user=secrets, password=secrets, query=secrets, fragment=secrets)
    def test_no_part_that_may_hold_a_secret_is_shown(self, user: str, password: str, query: str, fragment: str) -> None:
        """Case 69."""
        parts = [quote(part, safe="") for part in (user, password, query, fragment)]
        url = f"https://{parts[0]}:{parts[1]}@example.com/mcp?k={parts[2]}#{parts[3]}"
        assert show_url(url) == "https://example.com/mcp"


class TestCommands:
    @pytest.mark.parametrize(
        ("argv", "shown"),
        [
            (["python", "server.py"], "python server.py"),
            (["srv", "--token", "SECRET"], f"srv --token {MASK}"),
            (["srv", "--token=SECRET"], f"srv --token={MASK}"),
            (["srv", "--api-key", "SECRET", "--port", "80"], f"srv --api-key {MASK} --port 80"),
            (["srv", "-H", "--header", "Authorization: SECRET"], f"srv -H --header {MASK}"),
            (["srv", "--password=SECRET\nmore"], f"srv --password={MASK}"),
            (["mcp-remote", "https://u:SECRET@h/mcp?key=SECRET"], "mcp-remote https://h/mcp"),
            (["srv", "a b", ""], "srv 'a b' ''"),
            (["srv", "--token", "--verbose"], "srv --token --verbose"),
        ],
    )
    def test_what_is_shown_of_a_command(self, argv: list[str], shown: str) -> None:
        """Case 69: options that speak of a secret are masked, URLs shortened."""
        assert show_command(argv) == shown
        assert "SECRET" not in show_command(argv)

    @pytest.mark.parametrize(
        "argv",
        [
            ["srv", "--token", "-SECRET-begins-with-a-dash"],
            ["srv", "TOKEN=SECRET-in-an-assignment"],
            ["docker", "run", "-e", "API_KEY=SECRET-in-an-assignment", "image"],
            ["srv", "--env=API_KEY=SECRET"],
            ["curl", "--header=Authorization: Bearer SECRET"],
            ["srv", "postgres://u:SECRET@h/db"],
        ],
        ids=lambda argv: " ".join(argv),
    )
    def test_other_ways_to_pass_a_secret(self, argv: list[str]) -> None:
        """Case 69: as real configurations do."""
        assert "SECRET" not in show_command(argv)
        redact = Redactor(secrets_of(argv=argv))
        assert "SECRET" not in redact(f"cannot start: {' '.join(argv)}").replace("--SECRET", "")


class TestSecrets:
    def test_what_counts_as_one(self) -> None:
        """Case 69: header values, URL parts, environment values, arguments of options that speak of secrets."""
        found = secrets_of(
            url="https://user:pass%21word@h/mcp?api_key=query-secret#frag-ment",
            headers={"Authorization": "Bearer header-secret", "X-Api-Key": "key-secret", "Accept": "application/json"},
            env={"TOKEN": "abc", "HOME": "/root", "LANG": "C", "SOME_PATH": "/usr/local/lib"},
            argv=["srv", "--token", "argument-secret", "--key=other-secret", "plain"],
        )
        for secret in (
            *("user", "pass!word", "pass%21word", "query-secret", "frag-ment", "header-secret", "key-secret"),
            *("Bearer header-secret", "abc", "/usr/local/lib", "argument-secret", "other-secret"),
        ):
            assert secret in found
        for harmless in ("Bearer", "application/json", "C", "plain", "srv", "h"):
            assert harmless not in found

    def test_basic_credentials_are_known_in_the_clear(self) -> None:
        """Case 69: a server may repeat the user name or password that a header carries in base64."""
        value = "Basic " + base64.b64encode(b"alice:s3cret:x").decode()
        assert {"alice", "s3cret:x", "alice:s3cret:x"} <= secrets_of(headers={"Authorization": value})
        assert secrets_of(headers={"Authorization": "Basic !!!"}) == {"Basic !!!", "!!!"}

    @pytest.mark.parametrize("url", ["http://[", "http://u:p@h:port/?k=v", "::::", "http://%zz/"])
    def test_a_malformed_url_raises_nothing(self, url: str) -> None:
        """Ours: whoever describes a failure must not fail."""
        secrets_of(url=url)
        show_url(url)


class TestPlaceholders:
    def test_what_was_filled_in_is_shown_as_it_is_written(self) -> None:
        """Ours: the value of a placeholder is written nowhere; in a host, which is shown in lower case, neither."""
        filled = {"Tenant-7": "${TENANT}", "key-in-path": "{env:KEY}", "8080": "${PORT}"}
        shown = unfilled(show_url("https://Tenant-7.example.com:8080/s/key-in-path/mcp?k=key-in-path"), filled)
        assert shown == "https://${TENANT}.example.com:8080/s/{env:KEY}/mcp"
        assert unfilled(show_command(["x", "--tenant=Tenant-7"]), filled) == "x --tenant=${TENANT}"
        assert unfilled(r"C:\x\keys", {r"x\keys": r"{file:a\1}"}) == r"C:\{file:a\1}"

    def test_it_is_masked_by_the_rule_for_variables(self) -> None:
        """Ours: three characters if the name speaks of a secret, six if not."""
        assert secrets_of(filled={"abc": "${TOKEN}", "def": "${PORT}", "region-1": "${REGION}"}) == {"abc", "region-1"}


class TestRedactor:
    @given(secret=secrets, before=texts, after=texts)
    def test_a_secret_never_passes(self, secret: str, before: str, after: str) -> None:
        """Case 69: as it is, percent-encoded, in base64, and escaped as in a repr or in JSON."""
        assume(secret not in MASK)
        redact = Redactor([secret])
        forms = {
            secret,
            quote(secret, safe=""),
            base64.b64encode(secret.encode()).decode(),
            repr(secret)[1:-1],
            json.dumps(secret)[1:-1],
        }
        for form in forms:
            shown = redact(before + form + after)
            assert MASK in shown
            for other in forms:
                assert other not in shown.replace(MASK, "") or other in before + after or len(other) < 3

    @given(st.sets(secrets, max_size=5), texts)
    def test_masking_once_is_masking_for_good(self, known: set[str], text: str) -> None:
        """Ours: texts pass through several layers."""
        assume(not any(secret in MASK or MASK[0] in secret for secret in known))
        redact = Redactor(known)
        once = redact(text)
        # What masking brings together may look like a secret again; each secret of the text itself is gone.
        assert redact(once).count(MASK) >= once.count(MASK)

    def test_the_longest_secret_goes_first(self) -> None:
        """Ours: no half of a secret that contains another."""
        assert Redactor(["abc", "abcdef"])("x abcdef abc y") == f"x {MASK} {MASK} y"

    def test_without_secrets_texts_stay(self) -> None:
        """Ours."""
        assert Redactor()("as it is") == "as it is"
        assert Redactor([""])("as it is") == "as it is"

    def test_json_forms(self) -> None:
        """Case 69: a secret with quotes and backslashes, inside a JSON text that a server sends back."""
        secret = 'pa"ss\\word/é'
        redact = Redactor([secret])
        for text in (json.dumps(secret), json.dumps(secret, ensure_ascii=False), repr(secret)):
            shown = redact(text)
            assert "word" not in shown, text
