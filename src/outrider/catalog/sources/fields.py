"""How the fields of one entry are read.

Decided here: what each field's value may look like, which transport an entry means, what makes an entry unusable and what is merely
odd. One bad entry costs that entry. Not here: how fields are spelt (`clients`), and the entry itself (`entries`).

No message contains a value from a file: a header, a variable or an argument may be a secret. Names are shown.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from outrider.catalog.sources.clients import CLIENTS, NARROWING, PLAIN, Client, Meaning
from outrider.catalog.sources.entries import Origin, ServerEntry, Transport, header_fault, url_fault
from outrider.catalog.sources.placeholders import Reference, Template, parse_template, variable
from outrider.catalog.sources.wording import closest, is_text, shown

__all__ = ["EntryReader", "Unusable", "folded"]


class Unusable(Exception):
    """The entry cannot be used; the text says why, as the end of a sentence about it."""

    def __init__(self, reason: str, *, is_error: bool) -> None:
        super().__init__(reason)
        self.is_error = is_error


_TRANSPORTS: Final[Mapping[str, Transport]] = {
    "stdio": "stdio", "local": "stdio", "http": "http", "streamable-http": "http", "sse": "sse", "remote": "auto-http",
}  # fmt: skip
"""The spellings of `type` that are proposed to users."""
_STREAMABLE: Final = re.compile(r"(?:https?|stream(?:able|ing|ed)?)+")
_OLD_HTTP: Final = re.compile(r"(?:http(?:with)?)?(?:sse|serversentevents?|eventstream)(?:http)?")


def _transport(spelling: str) -> Transport | None:
    """What a `type` means, whatever its case, its punctuation and the order of its words: `httpStream`, `Streamable_HTTP`, `http+sse`."""
    plain = re.sub(r"[^a-z]", "", spelling.lower()).removesuffix("transport")
    if plain in _TRANSPORTS:
        return _TRANSPORTS[plain]
    if _OLD_HTTP.fullmatch(plain):
        return "sse"
    return "http" if _STREAMABLE.fullmatch(plain) else None


_NO: Final = frozenset({"", "false", "no", "off", "0", "0.0", "n", "f", "none", "never", "[]", "{}"})
"""What a switch that is no boolean says if it says no."""
_BUILT_IN: Final = frozenset({"builtin", "platform", "frontend", "inlinepython"})
_SPELLINGS: Final[Mapping[str, Meaning]] = {
    spelling: meaning for client in CLIENTS for spelling, meaning in client.fields.items() if meaning != "kept"
} | {
    "transport": "type",
    "transportType": "type",
    "environment": "env",
    "workingDirectory": "cwd",
    "working_dir": "cwd",
    "arguments": "args",
}
_LIMITS: Final[Mapping[Meaning, str]] = {
    "start_s": "the limit for the start, in seconds", "start_ms": "the limit for the start, in milliseconds",
    "request_s": "the limit for a request, in seconds", "request_ms": "the limit for a request, in milliseconds",
}  # fmt: skip
"""Meanings that have no usual spelling."""
_USUAL: Final = frozenset({"command", "args", "env", "cwd", "url", "headers", "type", *NARROWING})
_LOOKS_LIKE_PLACEHOLDER: Final = re.compile(
    r"(?<!\$)\$\{[\w.:|/ -]{1,100}\}|\$\{\{[\w.: -]{1,100}\}\}|\{\{[\w.: -]{1,100}\}\}"
)
_LOST_BACKSLASH: Final = re.compile(r"^[A-Za-z]:[^\n]{0,200}?[\t\n\r\f\b]")
"""A Windows path in which `\\t` or `\\n` was read as an escape."""
_MAX_TIMEOUT_S: Final = 86_400.0


class EntryReader:
    """Reads one entry of a client's file; made for that entry, used once."""

    def __init__(
        self, client: Client, name: str, raw: Mapping[str, Any], origin: Origin, windows: bool, skipped: frozenset[str]
    ) -> None:
        self._client = client
        self._name = name
        self._origin = origin
        self._windows = windows
        self._warnings: list[str] = []
        self._unknown_hints: list[str] = []
        self._values: dict[Meaning, tuple[str, Any]] = {}
        self._raw = raw
        self._collect(raw, skipped)

    def _warn(self, message: str) -> None:
        if message not in self._warnings:
            self._warnings.append(message)

    def _refuse(self, reason: str) -> Unusable:
        return Unusable(reason, is_error=True)

    def _collect(self, raw: Mapping[str, Any], skipped: frozenset[str] = frozenset()) -> None:
        """Sort the fields by meaning."""
        for key, value in raw.items():
            meaning = self._client.fields.get(key) or NARROWING.get(key)
            if value is None or key in skipped or key.startswith(("_", "$", "//")):
                continue
            if key == "tools" and not isinstance(value, list):
                continue  # a list is the tools to offer, to those who know it; an object is settings of single tools
            if meaning is None:
                self._unknown(key)
            elif meaning in ("transport", "type") and isinstance(value, dict):
                self._collect(value)
            elif meaning == "transport":
                self._unknown(key)
            elif meaning == "request_options":
                headers = value.get("headers") if isinstance(value, dict) else None
                if headers is not None:
                    self._values.setdefault("headers", ("headers", headers))
            elif meaning != "kept":
                if self._client.id == PLAIN.id and key not in _USUAL:
                    usual = _LIMITS.get(meaning) or f'"{_canonical_spelling(meaning)}"'
                    self._warn(f'read "{key}" as {usual}')
                if meaning in self._values and self._values[meaning][1] != value:
                    self._warn(
                        f'"{self._values[meaning][0]}" and "{key}" mean the same and differ; "{key}" is not used'
                    )
                self._values.setdefault(meaning, (key, value))

    def _unknown(self, key: str) -> None:
        own = self._client.fields
        candidates = [*own, *NARROWING, *_SPELLINGS]
        near = [known for known in candidates if folded(known) == folded(key)] or closest(
            key, candidates, n=1, cutoff=0.75
        )
        meaning = _SPELLINGS.get(key) or (_SPELLINGS.get(near[0]) if near and near[0] not in own else None)
        suggestion = next((spelling for spelling, other in own.items() if meaning and other == meaning), None)
        if suggestion is None and near and (near[0] in own or near[0] in NARROWING):
            suggestion = near[0]
        hint = f'; did you mean "{suggestion}"?' if suggestion else ""
        title = "" if self._client.id == PLAIN.id else f" to {self._client.title}"
        if key == "timeout" and self._client.id == PLAIN.id:
            hint = ": it is seconds to some clients and milliseconds to others"
        self._warn(f'the key "{shown(key, 40)}" means nothing{title}{hint}')
        if suggestion:
            self._unknown_hints.append(f'"{shown(key, 40)}" is there, which should be "{suggestion}"')

    def _take(self, meaning: Meaning) -> Any:
        return self._values[meaning][1] if meaning in self._values else None

    def _spelt(self, meaning: Meaning) -> str:
        return self._values[meaning][0] if meaning in self._values else _canonical_spelling(meaning)

    def _template(self, value: Any, what: str, *, is_argument: bool = False) -> Template:
        """A scalar as a template; numbers become text, as every client makes them.

        `${i}` in an argument of several words may be a shell's own. Anywhere else it is nothing but a placeholder, whoever's: sent as it
        stands, it would be refused as a bad credential.
        """
        if isinstance(value, bool):
            self._warn(f"{what} is a boolean; it was read as text")
            value = "true" if value else "false"
        if isinstance(value, (int, float)):
            value = str(value)
        if not isinstance(value, str):
            raise self._refuse(f"{what} is not a string")
        if "\0" in value:
            raise self._refuse(f"{what} contains a NUL character")
        if not is_text(value):
            raise self._refuse(f"{what} contains half a character (a lone surrogate)")
        template = parse_template(value, self._client.dialect, windows=self._windows)
        if is_argument and re.search(r"\s", value):
            return template
        written = {reference.written for reference in template.references()}
        if any(found not in written for found in _LOOKS_LIKE_PLACEHOLDER.findall(value)):
            self._warn(
                f"{what} holds something like a placeholder that no client documents; it is passed on as it is written"
            )
        foreign = [
            part for part in template.parts if isinstance(part, Reference) and part.kind == "env" and part.foreign
        ]
        for part in foreign:
            self._warn(
                f"{self._client.title} documents no such placeholder for {shown(part.name, 40)}; it is filled in all the same"
            )
        return Template(
            tuple(msgspec.structs.replace(part, foreign=False) if part in foreign else part for part in template.parts)
        )

    def read(self) -> ServerEntry:
        """The entry.

        Raises:
            Unusable: it is none, or not one that Outrider can use.
        """
        kind = self._kind()
        command, args, command_env = self._command()
        url = self._url()
        if command is not None and url is not None:
            raise self._refuse("has both a command and a URL: remove the one that is not meant")
        if command is None and url is None:
            raise self._nothing_to_start()
        env = {**command_env, **self._env()}
        headers = self._headers()
        entry = ServerEntry(
            key="",
            name=self._name,
            transport="stdio" if url is None else self._remote(kind),
            origin=self._origin,
            command=command,
            args=args,
            env=env,
            copied_env=self._copied_env() if url is None else (),
            env_file=self._optional("env_file") if url is None else None,
            cwd=self._optional("cwd") if url is None else None,
            url=url,
            headers=headers if url is not None else {},
            disabled_because=self._disabled(),
            allow_tools=self._allowed(),
            deny_tools=self._names("deny") or (),
            start_timeout_s=self._seconds("start_s", "start_ms"),
            request_timeout_s=self._seconds("request_s", "request_ms"),
        )
        self._check_kind(kind, entry)
        self._note_foreign(entry)
        return msgspec.structs.replace(entry, warnings=tuple(self._warnings))

    def _kind(self) -> Transport | None:
        """The transport that the entry's type names, or None if it names none."""
        value = self._take("type")
        if value is None:
            return None
        if not isinstance(value, str):
            raise self._refuse(f'"{self._spelt("type")}" is not a string')
        if not value.strip():
            self._warn(f'"{self._spelt("type")}" is empty')
            return None
        plain = re.sub(r"[-_ ]", "", value.lower())
        if plain in _BUILT_IN:
            raise Unusable(
                f"is part of {self._client.title} itself, not a server that others can reach", is_error=False
            )
        if plain in ("websocket", "ws", "wss"):
            raise Unusable("is reached by WebSocket, which MCP does not define", is_error=True)
        transport = _transport(value)
        if transport is None:
            close = closest(value.lower(), _TRANSPORTS, n=1)
            hint = (
                f', did you mean "{close[0]}"?' if close else '; known are "stdio", "http", "streamable-http" and "sse"'
            )
            raise self._refuse(f'has the unknown {self._spelt("type")} "{shown(value, 30)}"{hint}')
        return transport

    def _remote(self, kind: Transport | None) -> Transport:
        if "http_url" in self._values:
            return "http"
        if kind in (None, "stdio"):
            return self._client.untyped_url if kind is None else "auto-http"
        if kind == "http":
            return self._client.typed_http
        return kind or "auto-http"

    def _check_kind(self, kind: Transport | None, entry: ServerEntry) -> None:
        if kind is not None and (kind == "stdio") != (entry.transport == "stdio"):
            given = "a URL" if entry.url is not None else "a command"
            self._warn(f'the {self._spelt("type")} "{kind}" does not fit {given}; it was not followed')
        no_effect: tuple[Meaning, ...] = ("headers", "bearer", "bearer_variable", "header_variables")
        if entry.url is not None:
            no_effect = ("args", "cwd", "env_file")
        for meaning in no_effect:
            if meaning in self._values:
                what = "a URL" if entry.url is not None else "a command"
                self._warn(f'"{self._spelt(meaning)}" has no effect on {what}')
        text = entry.command.text if entry.command is not None else None
        if any(
            template is not None and _LOST_BACKSLASH.search(template.literals())
            for template in (entry.command, *entry.args)
        ):
            self._warn(
                "a path holds a control character, as C:\\tools does where its backslash is not doubled: write C:\\\\tools"
            )
        if (
            text
            and not entry.args
            and re.search(r"\s-|^\S+\.?\S*\s+\S+$", text)
            and "/" not in text
            and "\\" not in text
        ):
            self._warn("the command contains blanks and there are no args: it is started as one program of that name")

    def _nothing_to_start(self) -> Unusable:
        if self._client.id == "zed" and (self._raw.get("source") == "extension" or "settings" in self._raw):
            return Unusable("is started by a Zed extension, which alone knows the command", is_error=False)
        hint = f" ({self._unknown_hints[0]})" if self._unknown_hints else self._keys_there()
        if self._client.layered and self._values.keys() <= {"enabled", "disabled", "allow", "deny"}:
            return Unusable("changes a server that no file read before it defines", is_error=False)
        return self._refuse(f'has neither "{_own(self._client, "command")}" nor "{_own(self._client, "url")}"{hint}')

    def _keys_there(self) -> str:
        keys = ", ".join(shown(key, 40) for key in list(self._raw)[:8])
        return f" (its keys are: {keys})" if keys else " (it is empty)"

    def _command(self) -> tuple[Template | None, tuple[Template, ...], dict[str, Template]]:
        """The command, its arguments, and variables given inside it: from a string, a list, or an object with path, args and env."""
        value, args, env = self._take("command"), self._take("args"), None
        if isinstance(value, dict):
            inner = value
            value, env = inner.get("path", inner.get("command")), inner.get("env")
            args = inner.get("args") if args is None else args
        listed: list[Any] = []
        if isinstance(value, list):
            if not value:
                raise self._refuse(f'"{self._spelt("command")}" is an empty list')
            value, *listed = value
        if isinstance(value, str):
            value = value.strip()  # no program's name ends in a blank
        if value is None or value == "":
            return None, (), {}
        if args is not None and not isinstance(args, list):
            hint = ': write each argument as a string of its own, ["-y", "package"]' if isinstance(args, str) else ""
            raise self._refuse(f'"{self._spelt("args")}" is not a list{hint}')
        command = self._template(value, f'"{self._spelt("command")}"')
        templates = tuple(
            self._template(argument, "an argument", is_argument=True) for argument in (*listed, *(args or ()))
        )
        return command, templates, self._variables(env) if env is not None else {}

    def _env(self) -> dict[str, Template]:
        env = self._variables(self._take("env")) if "env" in self._values else {}
        for name in self._names("env_keys") or ():
            env.setdefault(name, variable(name))
        return env

    def _variables(self, value: Any) -> dict[str, Template]:
        if not isinstance(value, dict):
            raise self._refuse(f'"{self._spelt("env")}" is not an object of variables')
        env: dict[str, Template] = {}
        for name, text in value.items():
            if not name or "=" in name or "\0" in name or not is_text(name):
                self._warn(f'the variable name "{shown(name, 40)}" is not possible; it was left out')
            elif text is not None:
                env[name] = self._template(text, f"the variable {shown(name, 40)}")
        return env

    def _copied_env(self) -> tuple[str, ...]:
        value = self._take("env_names")
        if value is None:
            return ()
        names: list[str] = []
        for item in value if isinstance(value, list) else [value]:
            name = item.get("name") if isinstance(item, dict) else item
            if not isinstance(name, str):
                raise self._refuse(f'"{self._spelt("env_names")}" is not a list of names')
            if isinstance(item, dict) and item.get("source") == "remote":
                self._warn(f"the variable {shown(name, 40)} would come from a remote environment; it was left out")
                continue
            names.append(name)
        return tuple(names)

    def _url(self) -> Template | None:
        if "http_url" in self._values and "url" in self._values:
            self._warn(f'"{self._spelt("http_url")}" and "{self._spelt("url")}" are both there; the first one is used')
        meaning: Meaning = "http_url" if "http_url" in self._values else "url"
        value = self._take(meaning)
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            raise self._refuse(f'"{self._spelt(meaning)}" is not a string')
        template = self._template(value.strip(), f'"{self._spelt(meaning)}"')
        if (text := template.text) is not None and (fault := url_fault(text)):
            raise self._refuse(f'"{self._spelt(meaning)}" {fault}')
        return template

    def _headers(self) -> dict[str, Template]:
        value = self._take("headers")
        if value is not None and not isinstance(value, dict):
            raise self._refuse(f'"{self._spelt("headers")}" is not an object of headers')
        headers = {
            name: self._template(text, f"the header {shown(name, 40)}")
            for name, text in (value or {}).items()
            if text is not None
        }
        variables = self._take("header_variables")
        if variables is not None and not (
            isinstance(variables, dict) and all(isinstance(name, str) for name in variables.values())
        ):
            raise self._refuse(f'"{self._spelt("header_variables")}" is not an object of variable names')
        headers |= {name: variable(source, default="") for name, source in (variables or {}).items()}
        if "bearer" in self._values:
            key = self._template(self._take("bearer"), f'"{self._spelt("bearer")}"')
            headers["Authorization"] = Template(("Bearer ", *key.parts))
        if "bearer_variable" in self._values:
            name = self._take("bearer_variable")
            if not isinstance(name, str) or not name:
                raise self._refuse(f'"{self._spelt("bearer_variable")}" is not the name of a variable')
            headers["Authorization"] = variable(name, prefix="Bearer ")
        for name, template in headers.items():
            if fault := header_fault(name, template.literals()):
                raise self._refuse(f"cannot be called: {fault}")
        return headers

    def _optional(self, meaning: Meaning) -> Template | None:
        value = self._take(meaning)
        return None if value is None or value == "" else self._template(value, f'"{self._spelt(meaning)}"')

    def _disabled(self) -> str:
        switches: tuple[tuple[Meaning, bool], ...] = (("disabled", True), ("enabled", False))
        for meaning, off in switches:
            value = self._take(meaning)
            if value is None:
                continue
            if not isinstance(value, bool):
                value = str(value).strip().lower() not in _NO
                self._warn(f'"{self._spelt(meaning)}" is not a boolean; it was read as {"true" if value else "false"}')
            if value is off:
                return f'switched off by "{self._spelt(meaning)}"'
        return ""

    def _allowed(self) -> tuple[str, ...] | None:
        names = self._names("allow")
        if names is not None and ("*" in names or (not names and self._client.id == "goose")):
            return None  # to Goose, and to nobody else, an empty list means all
        return names

    def _names(self, meaning: Meaning) -> tuple[str, ...] | None:
        value = self._take(meaning)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(name, str) and is_text(name) for name in value):
            raise self._refuse(f'"{self._spelt(meaning)}" is not a list of names')
        return tuple(value)

    def _seconds(self, in_seconds: Meaning, in_milliseconds: Meaning) -> float | None:
        for meaning, unit in ((in_seconds, 1.0), (in_milliseconds, 1000.0)):
            value = self._take(meaning)
            if value is None:
                continue
            if isinstance(value, str) and re.fullmatch(r"\s*\d{1,15}(?:\.\d{1,15})?\s*", value):
                self._warn(f'"{self._spelt(meaning)}" is a number in quotes; it was read as a number')
                value = float(value)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
                unit_name = "seconds" if unit == 1.0 else "milliseconds"
                self._warn(f'"{self._spelt(meaning)}" is not a positive number of {unit_name}; it was not used')
                continue
            return min(value, _MAX_TIMEOUT_S * unit) / unit
        return None

    def _note_foreign(self, entry: ServerEntry) -> None:
        foreign = {
            reference.name for template in entry.templates() for reference in template.references() if reference.foreign
        }
        for name in sorted(foreign):
            self._warn(
                f"{self._client.title} documents no such placeholder for {shown(name, 40)}: "
                "it is filled in if there is a value, and left as it is written if not"
            )


def folded(key: str) -> str:
    """`key` without what people vary: case, dashes and underscores."""
    return re.sub(r"[-_ ]", "", key.lower())


def _own(client: Client, meaning: Meaning) -> str:
    """How the client spells a field."""
    return next(
        (spelling for spelling, other in client.fields.items() if other == meaning), _canonical_spelling(meaning)
    )


def _canonical_spelling(meaning: Meaning) -> str:
    return {"allow": "includeTools", "deny": "excludeTools", "http_url": "url", "env_file": "envFile"}.get(
        meaning, meaning
    )
