"""Keeping secrets out of everything a person or a model reads: errors, reports, transcripts, logs.

Decided here: which parts of a URL may be shown, which configured values are secrets, how each is masked. Redaction always comes before
truncation, so that no cut leaves half a secret. Not here: where texts are shown. Pure.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

__all__ = ["MASK", "Redactor", "secrets_of", "show_command", "show_url", "unfilled"]

MASK: Final = "•••"
"""What stands in the place of a secret."""

_SPEAKS_OF_A_SECRET: Final = (
    r"(?:key|token|secret|passw|passwd|pwd|auth|bearer|credential|cookie|session|signature|private|dsn)"
)
_SECRET_NAME: Final = re.compile(rf"(?i){_SPEAKS_OF_A_SECRET}")
# Fewer words than for a variable: many options only choose a session or a private mode.
_SECRET_OPTION: Final = re.compile(
    r"(?i)(--?[\w.-]*(?:key|token|secret|passw|pwd|auth|bearer|credential|cookie|header|dsn)[\w.-]*)(?:=(.*))?", re.S
)
# `docker run -e API_KEY=…` and `--env=API_KEY=…` are how many servers are configured.
_SECRET_ASSIGNMENT: Final = re.compile(rf"(?i)((?:--?[\w.-]+=)?[\w.-]*{_SPEAKS_OF_A_SECRET}[\w.-]*)=(.*)", re.S)
_OPTION: Final = re.compile(r"-[A-Za-z]|--[A-Za-z][\w-]*(?:=.*)?", re.S)
_LONG_ENOUGH: Final = 6
_LONG_ENOUGH_IF_NAMED: Final = 3
_HARMLESS_HEADERS: Final = frozenset({"accept", "accept-language", "user-agent", "content-type"})


def show_url(url: str) -> str:
    """A URL as it may be shown: scheme, host, port and path; never user, password, query or fragment."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "(a malformed URL)"
    if ":" in host:
        host = f"[{host}]"
    place = f"{host}:{port}{parts.path}" if port else f"{host}{parts.path}"
    return f"{parts.scheme}://{place}" if parts.scheme else place


def show_command(argv: Iterable[str]) -> str:
    """A command line as it may be shown: values whose option or variable speaks of a secret are masked, URLs are shortened."""
    return " ".join(shown for shown, _ in _arguments(argv))


def unfilled(shown: str, filled: Mapping[str, str]) -> str:
    """`shown`, from `show_url` or `show_command`, with placeholders such as `${TOKEN}` in the place of what was filled in for them."""
    if not filled:
        return shown
    for value in sorted(secrets_of(filled=filled) & filled.keys(), key=len, reverse=True):
        # A host is shown in lower case, whatever was configured.
        shown = re.sub(re.escape(value), filled[value].replace("\\", r"\\"), shown, flags=re.IGNORECASE)
    return shown


def _arguments(argv: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each argument as it may be shown, with the secret that it holds, or ""."""
    value_follows = False
    for argument in argv:
        if value_follows and not _OPTION.fullmatch(argument):
            value_follows = False
            yield MASK, argument
            continue
        match = _SECRET_OPTION.fullmatch(argument) or _SECRET_ASSIGNMENT.fullmatch(argument)
        value_follows = match is not None and match[2] is None
        if match is not None and match[2] is not None:
            yield f"{match[1]}={MASK}", match[2]
        elif "://" in argument:
            yield show_url(argument), ""
        else:
            yield argument if argument and not re.search(r"\s", argument) else repr(argument), ""


def secrets_of(
    *,
    url: str = "",
    headers: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    argv: Iterable[str] = (),
    filled: Mapping[str, str] | None = None,
) -> set[str]:
    """The values of a target's configuration that must never be shown.

    All configured header values and the parts of a URL that `show_url` drops; environment values whose name speaks of a secret, or
    that are six characters or longer; arguments that `show_command` masks; values that were filled in, given with their placeholders, by
    the rule for environment values. Values shorter than three characters cannot be masked
    without making every text unreadable, and are left alone.
    """
    found: set[str] = set()
    if any(mark in url for mark in "@?#"):
        try:
            parts = urlsplit(url)
        except ValueError:
            parts = urlsplit("")
        found.update(unquote(part) for part in (parts.username, parts.password) if part)
        found.update(part for part in (parts.username, parts.password, parts.query, parts.fragment) if part)
        found.update(value for _, value in parse_qsl(parts.query))
    for name, value in (headers or {}).items():
        if name.lower() not in _HARMLESS_HEADERS:
            found.add(value.strip())
            found.update(value.split())
            found |= _basic_credentials(value)
    for name, value in [*(env or {}).items(), *((name, value) for value, name in (filled or {}).items())]:
        if len(value) >= (_LONG_ENOUGH_IF_NAMED if _SECRET_NAME.search(name) else _LONG_ENOUGH):
            found.add(value)
    argv = tuple(argv)
    found.update(secret for _, secret in _arguments(argv))
    for argument in argv:
        if "://" in argument:
            found |= secrets_of(url=argument)
    return {
        value
        for value in found
        if len(value) >= _LONG_ENOUGH_IF_NAMED and value.lower() not in ("bearer", "basic", "true", "false")
    }


def _basic_credentials(value: str) -> set[str]:
    """User and password of an HTTP Basic credential, which a server may repeat in the clear."""
    scheme, _, encoded = value.strip().partition(" ")
    if scheme.lower() != "basic":
        return set()
    try:
        pair = base64.b64decode(encoded.strip(), validate=True).decode()
    except ValueError:
        return set()
    return {pair, *pair.split(":", 1)}


class Redactor:
    """Masks known secrets, in each of the forms they travel in, in any text.

    Args:
        secrets: the values to mask; see `secrets_of`.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """From now on mask these values too: a token is had only after its target is known."""
        forms: set[str] = set(self._forms)
        for secret in secrets:
            encoded = secret.encode(errors="surrogatepass")
            forms.update(
                (
                    secret,
                    quote(encoded, safe=""),
                    base64.b64encode(encoded).decode(),
                    repr(secret)[1:-1],
                    json.dumps(secret)[1:-1],
                    json.dumps(secret, ensure_ascii=False)[1:-1],
                )
            )
        ordered = sorted(
            (form for form in forms if len(form) >= _LONG_ENOUGH_IF_NAMED), key=lambda form: (-len(form), form)
        )
        self._forms = frozenset(forms)
        self._pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def __call__(self, text: str) -> str:
        """`text` with every known secret masked."""
        return self._pattern.sub(MASK, text) if self._pattern is not None else text
