"""Checks of the handshake era, of legacy servers and of the legacy half of those that serve both."""

from __future__ import annotations

import re
from typing import Final

from outrider.checker.checks import Docket, Phase, check
from outrider.checker.checks.discovery import UNKNOWN_VERSION
from outrider.checker.speakers import Outcome
from outrider.checker.subject import LegacyHalf, Subject
from outrider.errors import METHOD_NOT_FOUND
from outrider.protocol.headers import PROTOCOL_VERSION, SESSION_ID
from outrider.protocol.versions import LEGACY_VERSIONS

_SESSION_ID: Final = re.compile(r"[\x21-\x7e]+")


@check("legacy.initialize", "legacy.version", "legacy.identity", "legacy.initialized-202", "legacy.session-id-form")
async def handshake(subject: Subject, docket: Docket) -> None:
    """The handshake of the survey."""
    legacy = subject.legacy
    if legacy is None:
        return
    opening = legacy.opening
    docket.require(legacy.works, "legacy.initialize", f"initialize got {opening.shown()}", opening)
    result = opening.result
    if result is None:
        return
    docket.require(
        result.get("protocolVersion") in LEGACY_VERSIONS,
        "legacy.version",
        f"protocolVersion is {result.get('protocolVersion')!r}",
        opening,
    )
    identity = result.get("serverInfo")
    named = isinstance(identity, dict) and all(isinstance(identity.get(key), str) for key in ("name", "version"))
    docket.require(
        named and isinstance(result.get("capabilities"), dict),
        "legacy.identity",
        f"serverInfo is {identity!r}, capabilities is {result.get('capabilities')!r}"[:200],
        opening,
    )
    confirmed = legacy.confirmed
    if confirmed is not None and not subject.is_stdio:
        docket.require(
            confirmed.status == 202 and not confirmed.body.strip(),
            "legacy.initialized-202",
            f"notifications/initialized got {confirmed.shown()}",
            confirmed,
        )
    if legacy.session_id:
        docket.require(
            _SESSION_ID.fullmatch(legacy.session_id),
            "legacy.session-id-form",
            f"the session id has {len(legacy.session_id)} characters, not all of them visible ASCII",
            opening,
        )


@check("legacy.version-fallback")
async def unknown_version_falls_back(subject: Subject, docket: Docket) -> None:
    """A handshake that proposes a version that never was, in a session of its own."""
    if subject.legacy is None or not subject.legacy.works:
        return
    speaker = await subject.connect() if subject.is_stdio else subject.main
    other = LegacyHalf(subject, speaker)
    answer = await other.open(UNKNOWN_VERSION)
    docket.require(
        other.version in LEGACY_VERSIONS,
        "legacy.version-fallback",
        f"initialize under {UNKNOWN_VERSION} got {answer.shown()}"
        + (f" with the version {other.version!r}" if answer.result else ""),
        answer,
    )


@check("legacy.ping", "legacy.unknown-method")
async def legacy_basics(subject: Subject, docket: Docket) -> None:
    """A ping, and a method that nobody has."""
    legacy = subject.legacy
    if legacy is None or not legacy.works:
        return
    ping = await legacy.ask("ping")
    docket.require(ping.result is not None, "legacy.ping", f"ping got {ping.shown()}", ping)
    unknown = await legacy.ask("outrider/no-such-method", {})
    docket.require(
        unknown.code == METHOD_NOT_FOUND, "legacy.unknown-method", f"an unknown method got {unknown.shown()}", unknown
    )


@check("legacy.session-unknown", "legacy.session-missing", "legacy.version-header")
async def legacy_http(subject: Subject, docket: Docket) -> None:
    """Requests with a session that is unknown or missing, and with a version that is."""
    legacy = subject.legacy
    if legacy is None or not legacy.works or subject.is_stdio:
        return
    if legacy.session_id:
        unknown = await legacy.ask("ping", headers={SESSION_ID: "outrider-check-no-such-session"})
        docket.require(
            unknown.status == 404, "legacy.session-unknown", f"an unknown session got {unknown.shown()}", unknown
        )
        missing = await legacy.ask("ping", headers={SESSION_ID: None})
        docket.require(
            missing.status == 400, "legacy.session-missing", f"a ping without a session got {missing.shown()}", missing
        )
    version = await legacy.ask("ping", headers={PROTOCOL_VERSION: UNKNOWN_VERSION})
    docket.require(
        version.status == 400,
        "legacy.version-header",
        f"{PROTOCOL_VERSION}: {UNKNOWN_VERSION} got {version.shown()}",
        version,
    )


@check("legacy.session-ended")
async def ended_session_is_unknown(subject: Subject, docket: Docket) -> None:
    """A session of its own, ended on request, and a ping in it."""
    if subject.legacy is None or not subject.legacy.session_id or subject.is_stdio:
        return
    half = LegacyHalf(subject, subject.main)
    await half.open()
    if not half.session_id:
        return
    ended = await half.speaker.say(b"", headers=half.headers({"Content-Type": None}), verb="DELETE", legacy=True)
    if ended.status is None or ended.status >= 300:
        return
    ping = await half.ask("ping")
    docket.require(
        ping.status == 404,
        "legacy.session-ended",
        f"a ping in a session that was ended got {ping.shown()}",
        ended,
        ping,
    )


@check("dual.same-tools")
async def both_eras_offer_the_same(subject: Subject, docket: Docket) -> None:
    """The names of the tools in both eras."""
    if subject.legacy_tools is None or "tools/list" not in subject.lists:
        return

    def names(items: list[object]) -> set[str]:
        return {str(item.get("name")) for item in items if isinstance(item, dict)}

    different = names(subject.legacy_tools) ^ names(subject.items("tools/list"))
    docket.require(not different, "dual.same-tools", f"only one era lists {', '.join(sorted(different)[:5])}")


@check("dual.independent", phase=Phase.HOSTILE)
async def eras_do_not_mix(subject: Subject, docket: Docket) -> None:
    """A handshake where modern requests have been answered before."""
    if not subject.is_dual:
        return
    half = LegacyHalf(subject, subject.spare)
    answer = await half.open()
    docket.require(half.works, "dual.independent", f"after modern requests, initialize got {answer.shown()}", answer)
    if half.works and answer.outcome is Outcome.REPLY:
        ping = await half.ask("ping")
        docket.require(ping.result is not None, "dual.independent", f"after both, a ping got {ping.shown()}", ping)
