"""Asking a person in the terminal for what a server wants to know.

Decided here: how a form is asked, what counts as a secret that a form may not ask for, how a URL is shown. Nothing is opened, fetched or
sent without consent. Spec: 2026-07-28 client/elicitation#security-considerations
"""

from __future__ import annotations

import asyncio
import re
import sys
from typing import Any, Final
from urllib.parse import urlsplit

import click
import msgspec

from outrider.cli.text import visible
from outrider.client.inputs import CANCEL, DECLINE, Elicited, FormRequest, InputHandlers, UrlRequest
from outrider.protocol.schema_validation import Validator

__all__ = ["terminal_inputs"]

_SECRET: Final = re.compile(
    r"(?i)pass(word|phrase|code)|secret|token|api.?key|credential|private.?key|\bpin\b|cvv|card.?number|\bssn\b"
)
_ATTEMPTS: Final = 3


def terminal_inputs() -> InputHandlers:
    """Handlers that ask on the terminal; none if there is no person at one."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return InputHandlers()
    return InputHandlers(form=_ask_form, url=_ask_url)


def _say(text: str = "", **style: Any) -> None:
    click.secho(text, err=True, **style)


async def _ask_form(request: FormRequest) -> Elicited:
    return await asyncio.to_thread(_fill_in, request)


async def _ask_url(request: UrlRequest) -> Elicited:
    return await asyncio.to_thread(_show_url, request)


def _fill_in(request: FormRequest) -> Elicited:
    properties = request.schema.get("properties")
    fields = (
        {name: rule for name, rule in properties.items() if isinstance(rule, dict)}
        if isinstance(properties, dict)
        else {}
    )
    _say(f"\n{visible(request.server)} asks: {visible(request.message)}", bold=True)
    secret = next((name for name, rule in fields.items() if _asks_for_secret(name, rule)), None)
    if secret is not None:
        _say(
            f"It asks for {visible(secret)}, which looks like a secret. A form must not ask for secrets; declined.",
            fg="red",
        )
        return DECLINE
    required = request.schema.get("required")
    needed = set(required) if isinstance(required, list) else set()
    content: dict[str, Any] = {}
    try:
        if not click.confirm("Answer?", default=True, err=True):
            return DECLINE
        for name, rule in fields.items():
            value = _ask_field(name, rule, is_required=name in needed)
            if value is not None:
                content[name] = value
    except click.Abort:
        return CANCEL
    return Elicited("accept", content)


def _asks_for_secret(name: str, rule: dict[str, Any]) -> bool:
    return any(_SECRET.search(str(text)) for text in (name, rule.get("title", ""), rule.get("description", "")))


def _ask_field(name: str, rule: dict[str, Any], *, is_required: bool) -> Any:
    """One field, asked until it fits its schema; None when it is left out."""
    label = visible(str(rule.get("title") or name))
    if rule.get("description"):
        _say(f"  {visible(str(rule['description']))}", dim=True)
    choices = _choices(rule)
    if choices:
        _say("  one of: " + ", ".join(visible(choice) for choice in choices))
    default = rule.get("default")
    for _ in range(_ATTEMPTS):
        shown = "" if default is None else str(default)
        text = click.prompt(
            f"  {label}{'' if is_required else ' (optional)'}", default=shown, show_default=bool(shown), err=True
        )
        if text == "" and default is None:
            if not is_required:
                return None
            _say("  it is required", fg="yellow")
            continue
        value = default if default is not None and text == str(default) else _read(text, rule)
        violations = Validator(rule).check(value)
        if not violations:
            return value
        _say(f"  {'; '.join(visible(str(violation)) for violation in violations[:2])}", fg="yellow")
    raise click.Abort


def _choices(rule: dict[str, Any]) -> list[str]:
    if isinstance(rule.get("items"), dict):
        rule = rule["items"]
    if isinstance(rule.get("enum"), list):
        return [str(value) for value in rule["enum"]]
    options = rule.get("oneOf") or rule.get("anyOf")
    if not isinstance(options, list):
        return []
    return [f"{option.get('const')} ({option.get('title')})" for option in options if isinstance(option, dict)]


def _read(text: str, rule: dict[str, Any]) -> Any:
    """What a person typed, as the field wants it."""
    match rule.get("type"):
        case "boolean":
            return {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}.get(
                text.strip().lower(), text
            )
        case "integer" | "number":
            try:
                return msgspec.json.decode(text)
            except msgspec.DecodeError:
                return text
        case "array":
            return [part.strip() for part in text.split(",") if part.strip()]
        case _:
            return text


def _show_url(request: UrlRequest) -> Elicited:
    host = urlsplit(request.url).hostname or ""
    _say(f"\n{visible(request.server)} asks you to visit a page: {visible(request.message)}", bold=True)
    _say(f"  {visible(request.url)}")
    _say(f"  host: {visible(host)}", bold=True)
    if host.startswith("xn--") or ".xn--" in host or not host.isascii():
        _say("  This host name is written so that it may look like another. Be careful.", fg="red")
    if not request.url.startswith("https://"):
        _say("  This page is not encrypted (http).", fg="yellow")
    _say("  Nothing has been opened. Open it yourself, in a browser you trust, if you want to.")
    try:
        return (
            Elicited("accept")
            if click.confirm("Have you visited it, or will you?", default=False, err=True)
            else DECLINE
        )
    except click.Abort:
        return CANCEL
