"""Targets and options: what the user names, checked and made safe to show, and how patient to be with it.

Decided here: which strings are URLs and which are commands, which header values are refused, every limit and time-out with its default.
Not here: config files (`catalog.sources`), and what a target turns out to be (`opening`).
"""

from __future__ import annotations

import base64
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit, urlunsplit

from outrider._version import __version__
from outrider.client.auth.authorizer import Authorizer
from outrider.client.inputs import InputHandlers
from outrider.errors import ConfigError
from outrider.protocol.framing import MAX_MESSAGE_BYTES
from outrider.protocol.versions import Pin
from outrider.redaction import Redactor, secrets_of, show_command, show_url, unfilled

__all__ = ["DEFAULTS", "FRAMING_HEADERS", "ClientOptions", "HttpTarget", "Pin", "StdioTarget", "Target", "parse_target"]

FRAMING_HEADERS: Final = frozenset(
    {"content-length", "transfer-encoding", "te", "trailer", "upgrade", "expect", "keep-alive"}
)
"""Headers that say how a message is carried: set by whoever carries it, or the server waits for what never comes."""
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_LOOPBACK_HOSTS: Final = re.compile(r"localhost|.*\.localhost|127(?:\.\d{1,3}){3}|::1")


@dataclass(frozen=True)
class StdioTarget:
    """A server to start as a process and speak to over its standard streams.

    Attributes:
        argv: the command and its arguments.
        env: variables of this entry's own, laid over the documented base list of inherited ones.
        cwd: the working directory, or None for ours.
        inherit_env: hand on our whole environment instead of the base list.
        filled: values that were filled in for placeholders, each with the placeholder: shown in its place, and masked elsewhere.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    inherit_env: bool = False
    filled: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def label(self) -> str:
        """The command as it may be shown."""
        return unfilled(show_command(self.argv), self.filled)

    @cached_property
    def redact(self) -> Redactor:
        """Masks this target's secrets in any text."""
        return Redactor(secrets_of(env=self.env, argv=self.argv) | secrets_of(filled=self.filled))


@dataclass(frozen=True)
class HttpTarget:
    """A server behind a URL.

    Attributes:
        url: the MCP endpoint, http or https, without user, password and fragment.
        headers: sent with every request to the URL's own origin and never to another; credentials belong here.
        sse: the URL is known to speak the HTTP+SSE transport of 2024-11-05; nothing else is tried.
        filled: values that were filled in for placeholders, each with the placeholder: shown in its place, and masked elsewhere.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    sse: bool = False
    filled: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def label(self) -> str:
        """The URL as it may be shown."""
        return unfilled(show_url(self.url), self.filled)

    @cached_property
    def redact(self) -> Redactor:
        """Masks this target's secrets in any text."""
        return Redactor(secrets_of(url=self.url, headers=self.headers, filled=self.filled))

    @cached_property
    def has_credential(self) -> bool:
        """Whether requests carry a credential: any configured header that names one, or a query string that may."""
        return (
            any(re.search(r"(?i)auth|token|key|cookie|secret|session", name) for name in self.headers)
            or "?" in self.url
        )

    @cached_property
    def has_authorization(self) -> bool:
        """Whether an `Authorization` header is configured: a decision of the user's, whose place no token takes."""
        return any(name.lower() == "authorization" for name in self.headers)

    @cached_property
    def is_loopback(self) -> bool:
        """Whether the host is this machine by its name; such targets never go through a proxy."""
        return bool(_LOOPBACK_HOSTS.fullmatch(urlsplit(self.url).hostname or ""))


Target = StdioTarget | HttpTarget


def _default_client_info() -> dict[str, Any]:
    return {"name": "outrider", "version": __version__}


@dataclass(frozen=True)
class ClientOptions:
    """How patient, how generous and as whom a client speaks. Times are seconds, sizes bytes.

    Attributes:
        start_timeout_s: from starting the process or first request to a known era. Generous, because `npx` and `uvx` may install first.
        probe_timeout_s: how long a server may stay quiet after `server/discover` before the legacy handshake is offered too. Output on
            stderr restarts this clock: a server that is busy starting is not silent.
        request_timeout_s: from one request to its answer.
        list_timeout_s: for one whole list, all pages.
        shutdown_timeout_s: each of the two graces when a process is ended (end of input, then SIGTERM).
        max_message_bytes: the longest single message, after decompression.
        max_list_pages: pages read of one list.
        max_list_items: items kept of one list.
        pin: which eras may be spoken.
        offline: ask nobody; only what is remembered counts.
        client_info: the Implementation sent as ours, or None to send none to modern servers.
        capabilities: further ClientCapabilities to declare, beside those that `inputs` stands for.
        inputs: who answers when a server asks back.
        max_input_rounds: how often one call may ask back before it is given up.
        tasks: take tasks: servers that announce the extension are told with each tool call that they may answer with one.
        task_timeout_s: from a task to its end, unless a call has a limit of its own.
        auth: signs in where servers demand it; None to fail with `AuthRequired`. A configured `Authorization` header goes before it.
        trace: called with a direction (">" out, "<" in, "!" diagnostic) and a redacted line for every message; None for none.
    """

    start_timeout_s: float = 90.0
    probe_timeout_s: float = 5.0
    request_timeout_s: float = 60.0
    list_timeout_s: float = 60.0
    shutdown_timeout_s: float = 2.0
    max_message_bytes: int = MAX_MESSAGE_BYTES
    max_list_pages: int = 1_000
    max_list_items: int = 100_000
    pin: Pin = Pin.AUTO
    offline: bool = False
    client_info: Mapping[str, Any] | None = field(default_factory=_default_client_info)
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    inputs: InputHandlers = field(default_factory=InputHandlers)
    max_input_rounds: int = 10
    tasks: bool = True
    task_timeout_s: float = 3600.0
    auth: Authorizer | None = None
    trace: Callable[[str, str], None] | None = None

    @cached_property
    def asking_nobody(self) -> ClientOptions:
        """The same, but for `offline`."""
        return replace(self, offline=True)

    def declared_capabilities(self) -> dict[str, Any]:
        """The ClientCapabilities of every request: those of the handlers, and the further ones."""
        return {**self.inputs.capabilities(), **self.capabilities}


DEFAULTS: Final = ClientOptions()
"""The options of whoever gives none."""


def parse_target(
    target: str | Sequence[str] | Target,
    *,
    headers: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
) -> Target:
    """The target that `target` names.

    Args:
        target: a URL; a command line as one string, split as a POSIX shell would but run without one; a command as a sequence; or a
            ready target, returned as it is when nothing is added.
        headers: for URLs.
        env: for commands.
        cwd: for commands.

    Raises:
        ConfigError: it is neither, or a header cannot be sent. The message never holds a header's value.
    """
    if isinstance(target, HttpTarget):
        return _http_target(target.url, {**target.headers, **(headers or {})}, sse=target.sse, filled=target.filled)
    if isinstance(target, StdioTarget):
        return replace(target, env={**target.env, **(env or {})}, cwd=str(cwd) if cwd else target.cwd)
    if isinstance(target, str):
        if re.match(r"(?i)https?://", target.strip()):
            return _http_target(target.strip(), headers or {})
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", target):
            raise ConfigError(
                f"the scheme of {show_url(target)} is not one MCP is spoken over", hint="use an http:// or https:// URL"
            )
        if re.fullmatch(r"(?:localhost|[\w-]+(?:\.[\w-]+)+|\[[0-9a-f:]+\])(?::\d+)(?:/\S*)?", target.strip(), re.I):
            raise ConfigError(
                f"{show_url('//' + target.strip())!r} has no scheme",
                hint=f"did you mean http://{show_url('//' + target.strip())} ?",
            )
        try:
            argv = tuple(shlex.split(target))
        except ValueError as error:
            raise ConfigError(f"the command cannot be split: {error}", hint="give it as a list") from error
    else:
        try:
            argv = tuple(os.fspath(part) for part in target)
        except TypeError as error:
            raise ConfigError("a command is a sequence of texts", hint="turn numbers into texts") from error
    if not argv or not argv[0]:
        raise ConfigError("the target is empty", hint="name a URL or a command")
    if headers:
        raise ConfigError(
            "headers belong to a URL, and the target is a command", hint="pass secrets to a command with env"
        )
    return StdioTarget(argv, dict(env or {}), str(cwd) if cwd else None)


def _http_target(
    url: str, headers: Mapping[str, str], *, sse: bool = False, filled: Mapping[str, str] | None = None
) -> HttpTarget:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        # The error's own text may quote half a password: a slash in one makes a port of what stands before it.
        raise ConfigError(
            "the target is not a URL: its host or port cannot be read",
            hint="percent-encode what is special in a user name or password",
        ) from error
    if not host:
        raise ConfigError(f"{show_url(url)} names no host")
    if re.search(r"[\x00-\x20\x7f]", url):
        raise ConfigError(f"the URL of host {host} holds a space or a control character", hint="percent-encode it")
    sound: dict[str, str] = {}
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ConfigError(f"{name!r} is not a header name")
        if name.lower() in FRAMING_HEADERS:
            raise ConfigError(f"the header {name} is set by HTTP itself and cannot be configured", hint="leave it out")
        if re.search(r"[\x00-\x08\x0a-\x1f\x7f]", value) or not _is_latin1(value):
            raise ConfigError(
                f"the value of header {name} holds a control or non-Latin-1 character",
                hint="check for a stray line end",
            )
        # Header names are one whatever their case: what comes later replaces what was there.
        sound = {known: kept for known, kept in sound.items() if known.lower() != name.lower()}
        sound[name] = value.strip(" \t")
    if parts.username is not None and not any(name.lower() == "authorization" for name in sound):
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        sound["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    netloc = f"[{host}]" if ":" in host else host
    if port is not None:
        netloc += f":{port}"
    return HttpTarget(
        urlunsplit((parts.scheme.lower(), netloc, parts.path or "/", parts.query, "")), sound, sse, filled or {}
    )


def _is_latin1(value: str) -> bool:
    try:
        value.encode("latin-1")
    except UnicodeEncodeError:
        return False
    return True
