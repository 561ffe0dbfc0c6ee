"""Checks of `server/discover`, of the metadata that requests and results carry, and of version negotiation."""

from __future__ import annotations

import statistics
from typing import Any, Final

from outrider.checker.checks import Docket, Phase, check
from outrider.checker.speakers import Answer, Outcome
from outrider.checker.subject import DISCOVER, Subject
from outrider.errors import INVALID_PARAMS, UNSUPPORTED_VERSION
from outrider.protocol.meta import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    PROTOCOL_VERSION,
    SERVER_INFO,
    check_key,
    is_reserved_key,
)
from outrider.protocol.versions import LEGACY_VERSIONS, MODERN_VERSIONS

UNKNOWN_VERSION: Final = "1900-01-01"
_LATENCY_MS: Final = 1_000.0
_KNOWN_META: Final = frozenset(
    {
        *(f"io.modelcontextprotocol/{name}" for name in ("serverInfo", "subscriptionId", "related-task")),
        *(f"io.modelcontextprotocol/{name}" for name in ("protocolVersion", "clientInfo", "clientCapabilities")),
        "io.modelcontextprotocol/logLevel",
    }
)
_EXTENSION_META: Final = ("io.modelcontextprotocol/ui", "io.modelcontextprotocol/tasks")
"""Official extensions have keys of their own under the reserved prefix, as `…/ui` or beginning with `…/ui.` or `…/ui/`."""


@check("discover.answers")
async def discovery_is_answered(subject: Subject, docket: Docket) -> None:
    """The two plain requests of the survey."""
    for answer in subject.discovery:
        docket.require(
            answer.result is not None, "discover.answers", f"server/discover was answered by {answer.shown()}", answer
        )


@check(
    "discover.versions",
    "discover.versions-unique",
    "discover.version-in-use",
    "discover.capabilities",
    "discover.capability-objects",
    "discover.capability-flags",
    "discover.result-type",
    "discover.identity",
    "discover.identity-place",
    "discover.instructions",
    "discover.ttl",
    "discover.scope",
)
async def discovery_is_well_formed(subject: Subject, docket: Docket) -> None:
    """Every member of the DiscoverResult."""
    answer = subject.discovery[0] if subject.discovery else None
    result = answer.result if answer else None
    if answer is None or result is None:
        return
    versions = result.get("supportedVersions")
    sound = isinstance(versions, list) and versions and all(isinstance(version, str) for version in versions)
    docket.require(sound, "discover.versions", f"supportedVersions is {_shown(versions)}", answer)
    if sound and isinstance(versions, list):
        docket.require(
            len(set(versions)) == len(versions), "discover.versions-unique", f"it lists {_shown(versions)}", answer
        )
        docket.require(
            subject.version in versions,
            "discover.version-in-use",
            f"it answers under {subject.version} and lists {_shown(versions)}",
            answer,
        )
    capabilities = result.get("capabilities")
    docket.require(
        isinstance(capabilities, dict), "discover.capabilities", f"capabilities is {_shown(capabilities)}", answer
    )
    if isinstance(capabilities, dict):
        _check_capabilities(capabilities, docket, answer)
    docket.require(
        result.get("resultType") == "complete",
        "discover.result-type",
        f"resultType is {_shown(result.get('resultType'))}",
        answer,
    )
    meta = result.get("_meta")
    identity = meta.get(SERVER_INFO) if isinstance(meta, dict) else None
    docket.require(
        isinstance(identity, dict)
        and all(isinstance(identity.get(member), str) and identity[member] for member in ("name", "version")),
        "discover.identity",
        f"_meta has {_shown(identity)} as {SERVER_INFO}",
        answer,
    )
    docket.require(
        "serverInfo" not in result, "discover.identity-place", "serverInfo is a member of the result itself", answer
    )
    docket.require(
        isinstance(result.get("instructions", ""), str),
        "discover.instructions",
        f"instructions is {_shown(result.get('instructions'))}",
        answer,
    )
    docket.require(
        is_ttl(result.get("ttlMs")), "discover.ttl", f"ttlMs is {_shown(result.get('ttlMs', ABSENT))}", answer
    )
    docket.require(
        result.get("cacheScope") in ("public", "private"),
        "discover.scope",
        f"cacheScope is {_shown(result.get('cacheScope', ABSENT))}",
        answer,
    )


def _check_capabilities(capabilities: dict[str, Any], docket: Docket, answer: Answer) -> None:
    for name, value in capabilities.items():
        docket.require(
            isinstance(value, dict), "discover.capability-objects", f"capabilities.{name} is {_shown(value)}", answer
        )
        for flag in ("listChanged", "subscribe"):
            if isinstance(value, dict) and flag in value:
                docket.require(
                    isinstance(value[flag], bool),
                    "discover.capability-flags",
                    f"capabilities.{name}.{flag} is {_shown(value[flag])}",
                    answer,
                )


ABSENT: Final = type("Absent", (), {"__repr__": lambda self: "absent"})()


def _shown(value: object) -> str:
    text = "absent" if value is None else repr(value)
    return text if len(text) <= 120 else f"{text[:119]}…"


def is_ttl(value: object) -> bool:
    """Whether a value is an integer of at least 0; JSON has one number type, so 3e5 is one."""
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return whole and not isinstance(value, bool) and value >= 0  # type: ignore[operator]


@check("discover.versions-true")
async def listed_versions_are_served(subject: Subject, docket: Docket) -> None:
    """One request under each listed version that is modern and known to us."""
    for version in MODERN_VERSIONS:
        if version in subject.supported:
            answer = await subject.discover(version=version)
            docket.require(
                answer.code != UNSUPPORTED_VERSION and answer.outcome is Outcome.REPLY,
                "discover.versions-true",
                f"{version} is listed, and refused with {answer.shown()}",
                answer,
            )


@check("discover.deterministic")
async def discovery_does_not_vary(subject: Subject, docket: Docket) -> None:
    """The two plain requests, each on a connection of its own."""
    results = [answer.result for answer in subject.discovery]
    if len(results) == 2 and results[0] is not None and results[1] is not None:
        different = sorted(
            name
            for name in {*results[0], *results[1]} - {"ttlMs"}
            if results[0].get(name, ABSENT) != results[1].get(name, ABSENT)
        )
        docket.require(
            not different, "discover.deterministic", f"two answers differ in {', '.join(different)}", *subject.discovery
        )


@check("discover.stateless")
async def anything_may_come_first(subject: Subject, docket: Docket) -> None:
    """The first request of a connection is a list, that of another is `server/discover`."""
    first = subject.first
    if first is not None:
        docket.require(
            first.result is not None, "discover.stateless", f"as the first request it got {first.shown()}", first
        )


@check("discover.ignores-unknown-params")
async def unknown_metadata_does_no_harm(subject: Subject, docket: Docket) -> None:
    """A vendor's key and trace context in `_meta`."""
    extra = {
        "com.example/outrider-check": {"any": "value"},
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01",
    }
    answer = await subject.discover(meta=subject.meta(extra=extra))
    docket.require(
        answer.result is not None or not _answers(subject),
        "discover.ignores-unknown-params",
        f"with unknown keys in _meta it got {answer.shown()}",
        answer,
    )


def _answers(subject: Subject) -> bool:
    """Whether a plain `server/discover` is answered; if not, its variations say nothing."""
    return any(answer.result is not None for answer in subject.discovery)


@check("discover.client-info-optional")
async def identity_is_optional(subject: Subject, docket: Docket) -> None:
    """A request that is good but anonymous."""
    if not _answers(subject):
        return
    meta = {key: value for key, value in subject.meta().items() if key != CLIENT_INFO}
    answer = await subject.discover(meta=meta)
    docket.require(
        answer.result is not None,
        "discover.client-info-optional",
        f"without clientInfo it got {answer.shown()}",
        answer,
    )


@check("discover.latency", phase=Phase.FIRST)
async def discovery_is_fast(subject: Subject, docket: Docket) -> None:
    """The median of five requests, one after the other."""
    if subject.is_modern and _answers(subject):
        answers = [await subject.discover() for _ in range(5)]
    elif subject.legacy is not None and subject.legacy.works:
        answers = [await subject.legacy.ask("ping") for _ in range(5)]
    else:
        return
    median_ms = statistics.median(answer.exchange.elapsed_ms for answer in answers)
    docket.require(
        median_ms <= _LATENCY_MS, "discover.latency", f"the median of five is {median_ms:.0f} ms", answers[-1]
    )


# -- metadata of requests ------------------------------------------------------------------------------------------------------------


@check("meta.missing", "meta.missing-version", "meta.missing-capabilities", "meta.status")
async def metadata_is_required(subject: Subject, docket: Docket) -> None:
    """Requests with good headers that lack `_meta`, or one of its two required fields."""
    good = subject.meta()
    variations: tuple[tuple[str, str, Any], ...] = (
        ("meta.missing", "without _meta", None),
        ("meta.missing", "with an empty _meta", {}),
        ("meta.missing-version", "without protocolVersion", {**_only(good, CLIENT_CAPABILITIES, CLIENT_INFO)}),
        ("meta.missing-capabilities", "without clientCapabilities", {**_only(good, PROTOCOL_VERSION, CLIENT_INFO)}),
    )
    for requirement_id, what, meta in variations:
        answer = await subject.ask(_plain_method(subject), meta=meta)
        if requirement_id == "meta.missing" and subject.is_dual and subject.is_stdio and answer.error is not None:
            docket.keep(
                requirement_id
            )  # Without a handshake and without metadata it belongs to neither era: any error will do.
        elif requirement_id == "meta.missing" and subject.is_dual and subject.is_stdio:
            docket.unclear(requirement_id, "a server of both eras may take it for a legacy request", answer)
        else:
            docket.require(
                answer.code == INVALID_PARAMS, requirement_id, f"a request {what} got {answer.shown()}", answer
            )
        if answer.status is not None and answer.error is not None:
            docket.require(answer.status == 400, "meta.status", f"a request {what} got {answer.shown()}", answer)


def _only(meta: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in meta.items() if key in keys}


def _plain_method(subject: Subject) -> str:
    """A method that is served without parameters."""
    return next((method for method, listed in subject.lists.items() if listed.pages[0].result is not None), DISCOVER)


@check("meta.identity-everywhere", "meta.key-names", "meta.reserved-keys", phase=Phase.LAST)
async def metadata_of_results(subject: Subject, docket: Docket) -> None:
    """Every `_meta` of every answer so far."""
    identified = any(_identity_of(answer) is not None for answer in subject.discovery)
    for answer in subject.answers:
        if answer.legacy:
            continue
        if answer.result is not None and identified and answer not in subject.discovery:
            docket.require(
                _identity_of(answer) is not None,
                "meta.identity-everywhere",
                f"a result without {SERVER_INFO}: {_method_of(answer)}",
                answer,
            )
        for message in (answer.message, *answer.others):
            for place, key in _meta_keys(message):
                fault = check_key(key)
                docket.require(fault is None, "meta.key-names", f"{place} has the key {key!r}: {fault}", answer)
                docket.require(
                    not is_reserved_key(key) or key in _KNOWN_META or key.startswith(_EXTENSION_META),
                    "meta.reserved-keys",
                    f"{place} has the key {key!r}, which MCP does not define",
                    answer,
                )


def _identity_of(answer: Answer) -> Any:
    meta = (answer.result or {}).get("_meta")
    return meta.get(SERVER_INFO) if isinstance(meta, dict) else None


def _method_of(answer: Answer) -> str:
    sent = answer.exchange.sent
    start = sent.find('"method":"')
    return sent[start + 10 : sent.find('"', start + 10)] if start >= 0 else "a request"


def _meta_keys(message: Any) -> list[tuple[str, str]]:
    """Every key of every `_meta` in a message, with where it stands; not those inside schemas and arguments, which are the user's."""
    found: list[tuple[str, str]] = []
    stack: list[tuple[str, Any]] = [("the message", message)]
    while stack:
        place, value = stack.pop()
        if isinstance(value, dict):
            for name, inner in value.items():
                if name == "_meta" and isinstance(inner, dict):
                    found += [(f"{place}._meta".removeprefix("the message."), key) for key in inner]
                elif name not in ("inputSchema", "outputSchema", "structuredContent", "data"):
                    stack.append((f"{place}.{name}".removeprefix("the message."), inner))
        elif isinstance(value, list):
            stack += [(f"{place}[{position}]", inner) for position, inner in enumerate(value[:1_000])]
    return found


# -- version negotiation -------------------------------------------------------------------------------------------------------------


@check(
    "version.unknown",
    "version.supported",
    "version.requested",
    "version.status",
    "version.per-request",
    phase=Phase.FIRST,
)
async def unknown_version_is_refused(subject: Subject, docket: Docket) -> None:
    """A version that never was, then a good request on the same connection."""
    answer = await subject.discover(version=UNKNOWN_VERSION)
    docket.require(
        answer.code == UNSUPPORTED_VERSION,
        "version.unknown",
        f"a request under {UNKNOWN_VERSION} got {answer.shown()}",
        answer,
    )
    if answer.code == UNSUPPORTED_VERSION and answer.error is not None:
        data = answer.error.get("data")
        data = data if isinstance(data, dict) else {}
        supported = data.get("supported")
        sound = isinstance(supported, list) and supported and all(isinstance(version, str) for version in supported)
        docket.require(sound, "version.supported", f"data.supported is {_shown(supported)}", answer)
        if sound and isinstance(supported, list) and subject.supported:
            docket.require(
                set(subject.supported) <= set(supported),
                "version.supported",
                f"data.supported is {_shown(supported)}, supportedVersions is {_shown(subject.supported)}",
                answer,
                *subject.discovery[:1],
            )
        docket.require(
            data.get("requested") == UNKNOWN_VERSION,
            "version.requested",
            f"data.requested is {_shown(data.get('requested'))}, and {UNKNOWN_VERSION} was asked for",
            answer,
        )
        if answer.status is not None:
            docket.require(answer.status == 400, "version.status", f"the refusal came as {answer.shown()}", answer)
    if _answers(subject):
        following = await subject.discover()
        docket.require(
            following.result is not None,
            "version.per-request",
            f"after the refused version a good request got {following.shown()}",
            answer,
            following,
        )


@check("version.odd-values")
async def odd_versions_are_refused(subject: Subject, docket: Docket) -> None:
    """An empty version and a number."""
    for value in ("", 99):
        meta = {**subject.meta(), PROTOCOL_VERSION: value}
        answer = await subject.discover(meta=meta, headers={"MCP-Protocol-Version": str(value) or subject.version})
        # Over HTTP a header cannot say the same as a number, so a header mismatch is as good an answer.
        docket.require(
            (answer.error is not None and answer.code != -32603)
            or (answer.status is not None and 400 <= answer.status < 500),
            "version.odd-values",
            f"with protocolVersion {value!r} it got {answer.shown()}",
            answer,
        )


@check("version.legacy-in-meta")
async def legacy_version_is_not_modern(subject: Subject, docket: Docket) -> None:
    """A legacy version in modern metadata."""
    version = next((version for version in LEGACY_VERSIONS if version not in subject.supported), None)
    if version is None:
        return
    answer = await subject.discover(version=version)
    docket.require(
        answer.result is None,
        "version.legacy-in-meta",
        f"server/discover under {version}, which supportedVersions lacks, got {answer.shown()}",
        answer,
    )


@check("version.initialize-names-versions")
async def initialize_is_refused_with_versions(subject: Subject, docket: Docket) -> None:
    """What a modern-only server says to an old client."""
    refusal = subject.refused_handshake
    if refusal is None:
        return
    text = str(refusal.error or "") + refusal.body.decode(errors="replace")
    docket.require(
        any(version in text for version in subject.supported or MODERN_VERSIONS),
        "version.initialize-names-versions",
        f"initialize got {refusal.shown()}, which names none of its versions",
        refusal,
    )
