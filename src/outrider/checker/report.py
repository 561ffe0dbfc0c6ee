"""The check report: one finding for each requirement, in Python and as JSON.

Decided here: the report's shape, what counts as broken at which level, how a baseline is read. The JSON shape is a contract: it carries
`schema`, which changes only when a reader would have to change. Not here: the other forms of a report (`reports`). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from outrider.checker.checks import Verdict
from outrider.checker.requirements import Level, Requirement, find_requirement
from outrider.checker.speakers import Exchange
from outrider.client.report import Failure
from outrider.errors import ConfigError

__all__ = ["REPORT_SCHEMA", "CheckReport", "Finding", "read_baseline"]

REPORT_SCHEMA: Final = "outrider.check/1"
"""The version of the JSON shape."""

_LEVELS: Final = (Level.MUST, Level.SHOULD, Level.MAY, Level.QUALITY)


class Finding(Struct, frozen=True):
    """What was found about one requirement.

    Attributes:
        requirement: the rule.
        verdict: what was found.
        message: what is wrong, or why nothing can be said; "" for a rule that is kept.
        evidence: what was sent and received, redacted.
        elapsed_ms: how long the check took that found it, in milliseconds; it may have decided other rules too.
        is_known: whether a baseline has it.
    """

    requirement: Requirement
    verdict: Verdict
    message: str = ""
    evidence: tuple[Exchange, ...] = ()
    elapsed_ms: float = 0.0
    is_known: bool = False

    @property
    def is_broken(self) -> bool:
        """Whether the rule is broken."""
        return self.verdict in (Verdict.FAIL, Verdict.WARN)


class CheckReport(Struct, kw_only=True):
    """The outcome of a check.

    Attributes:
        target: the target as it may be shown.
        transport: "stdio" or "streamable-http".
        eras: the eras that the server speaks, such as ("modern", "legacy"); () if it could not be reached.
        version: the modern protocol version in use, or the legacy one that was negotiated; "" if there is none.
        identity: what the server calls itself: name and version, self-reported.
        findings: one for each requirement, in the order of the table; () if the server could not be reached.
        notes: what a reader of the findings has to know, such as a network that broke on the way.
        failure: why there is nothing more, or None.
        duration_ms: how long it all took, in milliseconds.
    """

    target: str
    transport: str
    eras: tuple[str, ...] = ()
    version: str = ""
    identity: str = ""
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    failure: Failure | None = None
    duration_ms: float = 0.0

    def of(self, verdict: Verdict) -> list[Finding]:
        """The findings with a verdict."""
        return [finding for finding in self.findings if finding.verdict is verdict]

    def broken(self, level: Level | None = None, *, known: bool = False) -> list[Finding]:
        """The rules that are broken, worst first.

        Args:
            level: only those as binding as this one or more; None for all.
            known: also those that the baseline has.
        """
        depth = _LEVELS.index(level) if level is not None else len(_LEVELS)
        found = [
            finding
            for finding in self.findings
            if finding.is_broken
            and _LEVELS.index(finding.requirement.level) <= depth
            and (known or not finding.is_known)
        ]
        return sorted(found, key=lambda finding: _LEVELS.index(finding.requirement.level))

    def finding(self, requirement_id: str) -> Finding:
        """The finding about a requirement.

        Raises:
            KeyError: there is none.
        """
        for finding in self.findings:
            if finding.requirement.id == requirement_id:
                return finding
        raise KeyError(requirement_id)

    def counts(self) -> dict[str, int]:
        """How many findings each verdict has."""
        return {verdict.value: len(self.of(verdict)) for verdict in Verdict}

    def against(self, baseline: Iterable[str]) -> CheckReport:
        """The same report with the broken rules of a baseline marked as known."""
        known = set(baseline)
        findings = tuple(
            replace(finding, is_known=finding.is_broken and finding.requirement.id in known)
            for finding in self.findings
        )
        return replace(self, findings=findings)

    def as_json(self) -> dict[str, Any]:
        """The report as JSON-ready values. Shape: docs/check.md."""
        return {
            "schema": REPORT_SCHEMA,
            "target": self.target,
            "transport": self.transport,
            "eras": list(self.eras),
            "version": self.version or None,
            "identity": self.identity or None,
            "counts": self.counts(),
            "findings": [_finding_as_json(finding) for finding in self.findings],
            "notes": list(self.notes),
            "failure": None if self.failure is None else msgspec.to_builtins(self.failure),
            "durationMs": round(self.duration_ms, 1),
        }


def _finding_as_json(finding: Finding) -> dict[str, Any]:
    rule = finding.requirement
    return {
        "id": rule.id,
        "level": rule.level.value,
        "rule": rule.rule,
        "page": rule.page,
        "url": rule.url,
        "verdict": finding.verdict.value,
        "known": finding.is_known,
        "message": finding.message,
        "evidence": [
            {"sent": shown.sent, "received": shown.received, "elapsedMs": round(shown.elapsed_ms, 1)}
            for shown in finding.evidence
        ],
        "elapsedMs": round(finding.elapsed_ms, 1),
    }


def read_baseline(text: str | bytes, *, source: str = "the baseline") -> frozenset[str]:
    """The ids of the broken rules in an earlier report, written with `--json`.

    Args:
        text: the file's content.
        source: what to call it in errors.

    Raises:
        ConfigError: it is not such a report.
    """
    try:
        report = msgspec.json.decode(text)
        if report["schema"] != REPORT_SCHEMA:
            raise ConfigError(f"{source} has the schema {report['schema']!r}, not {REPORT_SCHEMA!r}")
        broken = [entry["id"] for entry in report["findings"] if entry["verdict"] in (Verdict.FAIL, Verdict.WARN)]
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{source} is not a report of this command", hint="write one with `outrider check TARGET --json`"
        ) from error
    return frozenset(str(name) for name in broken if find_requirement(str(name)) is not None)
