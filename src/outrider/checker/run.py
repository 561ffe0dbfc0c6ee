"""Running all checks on one target.

Decided here: in which order connections are opened and checks run, which requirements apply, how rulings become verdicts, and what a broken
network or a passed deadline means. Not here: what a check does (`checks`), and how a report looks (`reports`).

Only what a harmless client may send is sent; a tool is called only if `CheckOptions.call` names it.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from outrider.checker.checks import CHECKS, Check, Docket, Phase, Ruling, Verdict
from outrider.checker.checks.process import EXIT_S
from outrider.checker.report import CheckReport, Finding
from outrider.checker.requirements import REQUIREMENTS, Applies, Level, Requirement, find_requirement
from outrider.checker.speakers import Answer, Exchange, Outcome, Pace
from outrider.checker.subject import DISCOVER, LegacyHalf, Subject
from outrider.client.opening import Trail, open_session
from outrider.client.report import Failure
from outrider.client.session import Session
from outrider.client.target import ClientOptions, HttpTarget, Target, parse_target
from outrider.errors import AuthRequired, ConfigError, ConnectFailed, OutriderError
from outrider.protocol.model import LIST_KINDS, TOOLS
from outrider.protocol.versions import Era

__all__ = ["CheckOptions", "check"]

# In the order in which findings of one phase are made.
_MODULES: Final = (
    *("process", "discovery", "messages", "http"),
    *("lists", "capabilities", "tools", "texts", "resources"),
    "legacy",
)
for _module in _MODULES:
    importlib.import_module(f"outrider.checker.checks.{_module}")

_REMOTE_PER_SECOND: Final = 20.0
_PROBE_TIMEOUT_S: Final = 5.0
_LATE_S: Final = 1.0


@dataclass(frozen=True)
class CheckOptions:
    """How patient a check is, and what it may do.

    Attributes:
        call: tools that may be called, each with its arguments. Without them no tool is.
        skip: ids of requirements to leave out.
        start_timeout_s: from starting the process or the first request to a known era, in seconds.
        request_timeout_s: from one message to its answer, in seconds; after it a request counts as unanswered.
        deadline_s: for the whole check, in seconds; what has not been tried by then is not verifiable.
        per_second: the most messages a second; None for 20 to another machine and no limit to this one.
        client: how the server is opened; its times are overruled by those here.
    """

    call: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    skip: frozenset[str] = frozenset()
    start_timeout_s: float = 60.0
    request_timeout_s: float = 10.0
    deadline_s: float = 120.0
    per_second: float | None = None
    client: ClientOptions = field(default_factory=ClientOptions)


async def check(
    target: str | Sequence[str] | Target,
    *,
    options: CheckOptions | None = None,
    headers: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
) -> CheckReport:
    """Judge a server against the specification's requirements around discovery.

    Args:
        target: a URL, a command, or a ready target; see `client.target.parse_target`.
        options: patience and permissions.
        headers: for URLs: sent with every request.
        env: for commands: further variables.
        cwd: for commands: the working directory.

    Returns:
        The report. A server that cannot be reached is a report with `failure`, not an exception. Cancelling ends every connection.

    Raises:
        ConfigError: the target or an option means nothing.

    Spec: ours
    """
    options = options or CheckOptions()
    unknown = [name for name in options.skip if find_requirement(name) is None]
    if unknown:
        raise ConfigError(f"there is no requirement {unknown[0]!r}", hint="`outrider check --list` shows all")
    parsed = parse_target(target, headers=headers, env=env, cwd=cwd)
    return await _Run(parsed, options).run()


class _Run:
    def __init__(self, target: Target, options: CheckOptions) -> None:
        self._options = options
        self._target = target
        client = options.client
        self._client = ClientOptions(
            start_timeout_s=options.start_timeout_s,
            probe_timeout_s=client.probe_timeout_s,
            request_timeout_s=options.request_timeout_s,
            shutdown_timeout_s=EXIT_S,
            max_message_bytes=client.max_message_bytes,
            client_info=client.client_info,
            trace=client.trace,
        )
        is_near = not isinstance(target, HttpTarget) or target.is_loopback
        per_second = options.per_second or (None if is_near else _REMOTE_PER_SECOND)
        self._subject = Subject(
            target,
            self._client,
            Pace(per_second),
            timeout_s=options.request_timeout_s,
            call=tuple((name, dict(arguments)) for name, arguments in options.call),
        )
        self._docket = Docket()
        self._elapsed_ms: dict[str, float] = {}
        self._tried: set[str] = set()
        self._notes: list[str] = []
        self._network = ""

    async def run(self) -> CheckReport:
        started = time.monotonic()
        report = CheckReport(
            target=self._target.label, transport="streamable-http" if isinstance(self._target, HttpTarget) else "stdio"
        )
        subject = self._subject
        try:
            async with asyncio.timeout(self._options.deadline_s):
                report.failure = await self._survey()
                if report.failure is None:
                    await self._run_checks()
        except TimeoutError:
            self._notes.append(f"the deadline of {self._options.deadline_s:g} s passed before everything was tried")
        finally:
            await subject.close()
        report.duration_ms = (time.monotonic() - started) * 1000
        if report.failure is None:
            report.eras = tuple(
                era for era, spoken in (("modern", subject.is_modern), ("legacy", subject.legacy is not None)) if spoken
            )
            report.version = (
                subject.version if subject.is_modern else (subject.legacy.version if subject.legacy else "")
            )
            report.identity = _identity(subject)
            report.findings = tuple(self._find(requirement) for requirement in REQUIREMENTS)
        report.notes = tuple(self._notes)
        return report

    # -- what the server is --------------------------------------------------------------------------------------------------------

    async def _survey(self) -> Failure | None:
        """Find out the era, read what everything else needs; returns why that is impossible."""
        subject = self._subject
        trail = Trail()
        session: Session | None = None
        cause: OutriderError | None = None
        try:
            session = await open_session(self._target, self._client, trail)
        except (AuthRequired, ConnectFailed) as error:
            return Failure.of(error)
        except OutriderError as error:
            cause = error
        transport = session.channel.transport if session is not None else ""
        if session is not None:
            subject.era = session.era
            subject.is_modern = session.era is Era.MODERN
            subject.version = session.version if subject.is_modern else subject.version
            description = session.description
            await session.close()
        else:
            description = None
        try:
            # A modern server needs one more, for its legacy half; each needs one for a handshake under an unknown version.
            await subject.start_ahead(4 if subject.is_modern else 3)
            subject.main = await subject.connect()
            subject.spare = await subject.connect() if subject.is_stdio else subject.main
        except ConnectFailed as error:
            return Failure.of(error)
        if subject.is_stdio and trail.attempts and session is not None:
            subject.start_ms = trail.attempts[0].elapsed_ms
        if transport == "http+sse":
            return Failure(
                "protocol",
                f"{self._target.label} speaks the HTTP+SSE transport of 2024-11-05, which was replaced in 2025-03-26",
                "checks are for stdio and Streamable HTTP; offer one of them",
            )
        if not subject.is_modern and (session is None or not subject.is_stdio):
            await self._look_for_modern_lists()
        if session is None and not subject.is_modern:
            assert cause is not None
            return Failure.of(cause)
        if subject.is_modern:
            capabilities = description.capabilities if description is not None else {}
            await self._survey_modern("tools" in capabilities or "tools" in subject.assumed)
        else:
            await self._survey_legacy()
        await subject.read_lists()
        return None

    async def _look_for_modern_lists(self) -> None:
        """A modern server whose `server/discover` is broken is still one."""
        subject = self._subject
        for kind in LIST_KINDS[:3]:
            answer = await subject.ask(kind.method, on=subject.spare)
            if answer.result is not None and "resultType" in answer.result:
                subject.is_modern = True
                subject.assumed[kind.capability] = {}

    async def _survey_modern(self, has_tools: bool) -> None:
        subject = self._subject
        subject.first = await (subject.ask(TOOLS.method) if has_tools else subject.discover())
        other = subject.spare if subject.is_stdio else await subject.connect()
        first = await subject.discover()
        subject.discovery = (first, await subject.discover(on=other))
        speaker = await subject.connect() if subject.is_stdio else subject.main
        half = LegacyHalf(subject, speaker)
        opening = await half.open()
        if not half.works:
            subject.answers.remove(opening)
            subject.refused_handshake = opening if opening.outcome in (Outcome.REPLY, Outcome.OTHER) else None
            return
        subject.legacy = half
        if "tools" in half.capabilities:
            listed = await subject.read_list(TOOLS, half.ask)
            subject.legacy_tools = listed.items if listed.pages[0].result is not None else None

    async def _survey_legacy(self) -> None:
        subject = self._subject
        subject.legacy = LegacyHalf(subject, subject.main)
        if subject.is_stdio:
            subject.answers.clear()
            subject.probe = await self._probe_legacy_process()
            subject.answers.clear()
        await subject.legacy.open()

    async def _probe_legacy_process(self) -> Answer:
        """What a fresh process makes of `server/discover`.

        It is silent only if it answers the handshake and still not the probe: without any answer it may just be starting.
        """
        subject = self._subject
        probe = asyncio.ensure_future(subject.ask(DISCOVER, on=subject.spare, timeout_s=self._options.start_timeout_s))
        try:
            done, _ = await asyncio.wait([probe], timeout=_PROBE_TIMEOUT_S)
            if not done:
                await LegacyHalf(subject, subject.spare).open()
                await asyncio.wait([probe], timeout=_LATE_S)
            if probe.done():
                return probe.result()
        finally:
            probe.cancel()
        shown = Exchange("server/discover before initialize", "(no answer, while initialize was answered)", 0.0)
        return Answer(outcome=Outcome.SILENT, exchange=shown)

    # -- the checks ----------------------------------------------------------------------------------------------------------------

    def _applies(self, requirement: Requirement) -> bool:
        subject = self._subject
        http, stdio = not subject.is_stdio, subject.is_stdio
        modern, legacy = subject.is_modern, subject.legacy is not None
        return {
            Applies.ANY: True,
            Applies.HTTP: http,
            Applies.STDIO: stdio,
            Applies.MODERN: modern,
            Applies.MODERN_HTTP: modern and http,
            Applies.MODERN_STDIO: modern and stdio,
            Applies.LEGACY: legacy,
            Applies.LEGACY_HTTP: legacy and http,
            Applies.LEGACY_STDIO: legacy and stdio,
        }[requirement.applies]

    def _wanted(self, check: Check) -> bool:
        requirements = [find_requirement(requirement_id) for requirement_id in check.ids]
        return any(
            requirement is not None and requirement.id not in self._options.skip and self._applies(requirement)
            for requirement in requirements
        )

    async def _run_checks(self) -> None:
        for phase in Phase:
            if phase is Phase.LAST:
                await self._look_at_the_network()
            wanted = [check for check in CHECKS if check.phase is phase and self._wanted(check)]
            if phase is Phase.MAIN:
                async with asyncio.TaskGroup() as group:
                    for check in wanted:
                        group.create_task(self._run_check(check))
            else:
                for check in wanted:
                    if phase is Phase.HOSTILE:
                        await self._subject.revive()
                    await self._run_check(check)

    async def _run_check(self, check: Check) -> None:
        started = time.monotonic()
        await check.run(self._subject, self._docket)
        elapsed_ms = (time.monotonic() - started) * 1000
        for requirement_id in check.ids:
            self._elapsed_ms[requirement_id] = self._elapsed_ms.get(requirement_id, 0.0) + elapsed_ms
            self._tried.add(requirement_id)

    async def _look_at_the_network(self) -> None:
        """One good request at the end: if it fails, silence before it is no proof of anything."""
        subject = self._subject
        if subject.is_stdio:
            return
        answer: Answer
        if subject.is_modern:
            answer = await subject.discover()
        else:
            assert subject.legacy is not None
            answer = await subject.legacy.ask("ping")
        if answer.outcome in (Outcome.UNREACHABLE, Outcome.SILENT, Outcome.LOST):
            self._network = answer.shown()
            self._notes.append(
                f"at the end the server could not be reached any more ({self._network}); what went unanswered before is not held against it"
            )

    # -- verdicts ------------------------------------------------------------------------------------------------------------------

    def _find(self, requirement: Requirement) -> Finding:
        ruling = self._docket.rulings.get(requirement.id, Ruling())
        elapsed_ms = self._elapsed_ms.get(requirement.id, 0.0)
        evidence = tuple(ruling.evidence)

        def finding(verdict: Verdict, message: str = "") -> Finding:
            return Finding(requirement, verdict, message, evidence, elapsed_ms)

        if requirement.id in self._options.skip:
            return finding(Verdict.NOT_VERIFIABLE, "skipped on request")
        if not self._applies(requirement):
            return finding(Verdict.NOT_APPLICABLE, f"it is about servers that are {requirement.applies.value}")
        if ruling.breaches and ruling.rests_on_silence and self._network:
            return finding(Verdict.NOT_VERIFIABLE, f"the network broke: {self._network}")
        if ruling.breaches:
            verdict = Verdict.FAIL if requirement.level is Level.MUST else Verdict.WARN
            return finding(verdict, "; ".join(ruling.breaches))
        if ruling.doubts:
            return finding(Verdict.NOT_VERIFIABLE, "; ".join(ruling.doubts))
        if ruling.kept:
            return Finding(requirement, Verdict.PASS, "", (), elapsed_ms)
        if requirement.id not in self._tried:
            return finding(Verdict.NOT_VERIFIABLE, "it was not tried: the time was up")
        return finding(Verdict.NOT_APPLICABLE, "there was nothing that it is about")


def _identity(subject: Subject) -> str:
    described = subject.described
    meta = described.get("_meta")
    found = described.get("serverInfo")
    if subject.is_modern:
        found = meta.get("io.modelcontextprotocol/serverInfo") if isinstance(meta, dict) else None
    if not isinstance(found, dict):
        return ""
    return " ".join(str(found[key]) for key in ("name", "version") if isinstance(found.get(key), str))[:200]
