"""Checks of resources, resource templates and prompts."""

from __future__ import annotations

import re
from typing import Any, Final

from outrider.checker.checks import Docket, check
from outrider.checker.checks.discovery import is_ttl
from outrider.checker.subject import INVENTED, Subject
from outrider.errors import INVALID_PARAMS
from outrider.protocol.model import PROMPTS

_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S*")


@check("resource.uri", "template.form", "prompt.name")
async def items_are_sound(subject: Subject, docket: Docket) -> None:
    """Every listed resource, template and prompt."""
    for method, requirement_id in (
        ("resources/list", "resource.uri"),
        ("resources/templates/list", "template.form"),
        ("prompts/list", "prompt.name"),
    ):
        listed = subject.lists.get(method)
        for position, item in enumerate(listed.items if listed else ()):
            fault = _item_fault(method, item)
            docket.require(
                not fault, requirement_id, f"{method}[{position}] {fault}", *(listed.pages[:1] if listed else ())
            )


def _item_fault(method: str, item: Any) -> str:
    if not isinstance(item, dict):
        return f"is {item!r}"[:80]
    if not isinstance(item.get("name"), str):
        return f"has the name {item.get('name')!r}"
    if method == "resources/list":
        uri = item.get("uri")
        return "" if isinstance(uri, str) and _URI.fullmatch(uri) else f"has the uri {uri!r}"
    if method == "resources/templates/list":
        template = item.get("uriTemplate")
        return "" if isinstance(template, str) and template else f"has the uriTemplate {template!r}"
    arguments = item.get("arguments", [])
    if not isinstance(arguments, list):
        return f"has {arguments!r} as arguments"[:80]
    unnamed = [part for part in arguments if not isinstance(part, dict) or not isinstance(part.get("name"), str)]
    return f"has the argument {unnamed[0]!r}"[:80] if unnamed else ""


@check("resource.read", "cache.read-hints")
async def listed_resource_is_readable(subject: Subject, docket: Docket) -> None:
    """One read of the first listed resource."""
    listed = subject.items("resources/list")
    uri = next((resource["uri"] for resource in listed if not _item_fault("resources/list", resource)), None)
    if uri is None:
        return
    answer = await subject.ask_in_its_era("resources/read", {"uri": uri})
    result = answer.result
    if result is not None and result.get("resultType") == "input_required":
        return
    if answer.error is not None:
        docket.unclear("resource.read", f"resources/read of {uri!r} got {answer.shown()}", answer)
        return
    contents = (result or {}).get("contents")
    sound = isinstance(contents, list) and all(
        isinstance(part, dict)
        and isinstance(part.get("uri"), str)
        and (isinstance(part.get("text"), str) or isinstance(part.get("blob"), str))
        for part in contents
    )
    docket.require(sound, "resource.read", f"resources/read of {uri!r} got {answer.shown()}", answer)
    if result is not None and subject.is_modern:
        docket.require(
            is_ttl(result.get("ttlMs")) and result.get("cacheScope") in ("public", "private"),
            "cache.read-hints",
            f"it has the ttlMs {result.get('ttlMs')!r} and the cacheScope {result.get('cacheScope')!r}",
            answer,
        )


@check("resource.unknown", "prompt.unknown")
async def unknown_things(subject: Subject, docket: Docket) -> None:
    """A resource and a prompt that nobody has."""
    if "resources/list" in subject.lists:
        answer = await subject.ask("resources/read", {"uri": f"outrider:{INVENTED}"})
        docket.require(
            answer.code == INVALID_PARAMS, "resource.unknown", f"an unknown resource got {answer.shown()}", answer
        )
    if PROMPTS.method in subject.lists:
        answer = await subject.ask("prompts/get", {"name": INVENTED})
        docket.require(
            answer.code == INVALID_PARAMS, "prompt.unknown", f"an unknown prompt got {answer.shown()}", answer
        )
