"""Checks of lists: pages and cursors, order, and caching hints."""

from __future__ import annotations

from typing import Any, Final

from outrider.checker.checks import Docket, check
from outrider.checker.checks.discovery import is_ttl
from outrider.checker.speakers import Answer
from outrider.checker.subject import INVENTED, Listed, Subject
from outrider.client.target import HttpTarget
from outrider.errors import INVALID_PARAMS

_THIRTY_DAYS_MS: Final = 30 * 86_400_000


@check("capability.lists", "list.ends", "list.cursor-type", "list.stable-order", "list.unique")
async def lists_are_sound(subject: Subject, docket: Docket) -> None:
    """Every declared list, read twice."""
    is_listed = "resources/list" in subject.lists
    for method, listed in subject.lists.items():
        first = listed.pages[0]
        if method == "resources/templates/list" and is_listed and first.error is not None:
            continue  # The capability promises resources/list; templates are one way to add to it.
        docket.require(
            all(page.result is not None for page in listed.pages)
            and isinstance((first.result or {}).get(listed.kind.member), list),
            "capability.lists",
            f"{listed.kind.capability} is declared, and {method} got {_worst(listed).shown()}",
            _worst(listed),
        )
        for page in listed.pages:
            cursor = (page.result or {}).get("nextCursor", "")
            docket.require(
                isinstance(cursor, str), "list.cursor-type", f"the nextCursor of {method} is {cursor!r}", page
            )
        if first.result is None:
            continue
        docket.require(
            listed.ended,
            "list.ends",
            f"{method} repeats a cursor or goes on after {len(listed.pages)} pages",
            listed.pages[-1],
        )
        if not listed.ended:
            continue
        names = _names(listed, listed.items)
        doubled = sorted({name for name in names if names.count(name) > 1})
        docket.require(not doubled, "list.unique", f"{method} has {', '.join(doubled[:5])} more than once", first)
        if listed.again is not None:
            again = _names(listed, listed.again)
            if sorted(names) == sorted(again):
                docket.require(
                    names == again, "list.stable-order", f"{method} has another order the second time", first
                )


def _worst(listed: Listed) -> Answer:
    return next((page for page in listed.pages if page.result is None), listed.pages[0])


def _names(listed: Listed, items: list[Any]) -> list[str]:
    return [str(item.get(listed.kind.identity)) for item in items if isinstance(item, dict)]


@check("list.invalid-cursor", "list.params-cursor-type")
async def invalid_cursors_are_refused(subject: Subject, docket: Docket) -> None:
    """A cursor that the server never gave, and a number."""
    for method, listed in subject.lists.items():
        if listed.pages[0].result is None:
            continue
        for requirement_id, cursor in (("list.invalid-cursor", INVENTED), ("list.params-cursor-type", 7)):
            answer = await subject.ask_in_its_era(method, {"cursor": cursor})
            docket.require(
                answer.code == INVALID_PARAMS
                or (requirement_id == "list.params-cursor-type" and answer.error is not None and answer.code != -32603),
                requirement_id,
                f"{method} with the cursor {cursor!r} got {answer.shown()}",
                answer,
            )


@check("cache.list-ttl", "cache.list-scope", "cache.same-scope", "cache.useful-ttl", "cache.reasonable-ttl")
async def lists_have_hints(subject: Subject, docket: Docket) -> None:
    """Every page of every list."""
    for answer in subject.discovery[:1]:
        _check_reasonable(answer, "server/discover", docket)
    for method, listed in subject.lists.items():
        scopes = []
        for page in listed.pages:
            result = page.result
            if result is None:
                continue
            docket.require(
                is_ttl(result.get("ttlMs")), "cache.list-ttl", f"the ttlMs of {method} is {result.get('ttlMs')!r}", page
            )
            docket.require(
                result.get("cacheScope") in ("public", "private"),
                "cache.list-scope",
                f"the cacheScope of {method} is {result.get('cacheScope')!r}",
                page,
            )
            scopes.append(result.get("cacheScope"))
            _check_reasonable(page, method, docket)
        if len(scopes) > 1:
            docket.require(
                len(set(map(repr, scopes))) == 1,
                "cache.same-scope",
                f"the pages of {method} are {', '.join(map(repr, scopes))}",
                *listed.pages[:3],
            )
        declared = subject.capabilities.get(listed.kind.capability)
        announced = isinstance(declared, dict) and declared.get("listChanged") is True
        if listed.again == listed.items and not announced:
            zero = [page for page in listed.pages if (page.result or {}).get("ttlMs") == 0]
            docket.require(
                not zero, "cache.useful-ttl", f"the ttlMs of {method} is 0, and it did not change", *zero[:1]
            )


def _check_reasonable(answer: Answer, method: str, docket: Docket) -> None:
    ttl = (answer.result or {}).get("ttlMs")
    if is_ttl(ttl):
        docket.require(
            ttl <= _THIRTY_DAYS_MS,  # type: ignore[operator]
            "cache.reasonable-ttl",
            f"the ttlMs of {method} is {ttl}",
            answer,
        )


@check("cache.public-varies")
async def public_is_the_same_for_all(subject: Subject, docket: Docket) -> None:
    """Public lists once more without the credential."""
    target = subject.target
    if not isinstance(target, HttpTarget) or not target.headers:
        return
    anonymous = await subject.connect_without_credential()
    for method, listed in subject.lists.items():
        result = listed.pages[0].result
        if result is None or result.get("cacheScope") != "public":
            continue
        answer = await subject.ask(method, on=anonymous)
        if answer.result is not None:
            docket.require(
                answer.result.get(listed.kind.member) == result.get(listed.kind.member),
                "cache.public-varies",
                f"{method} is public and differs without the credential",
                listed.pages[0],
                answer,
            )
        else:
            docket.unclear("cache.public-varies", f"without the credential {method} got {answer.shown()}", answer)
