"""The forms of a check report that machines read: JUnit, SARIF, Markdown with a badge.

Decided here: what each form calls a broken rule. Not here: the report itself and its JSON (`report`), the terminal (`cli.check`). Pure.
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

import msgspec

from outrider._version import __version__
from outrider.checker.checks import Verdict
from outrider.checker.report import CheckReport, Finding
from outrider.checker.requirements import REQUIREMENTS, Level

__all__ = ["badge_url", "render_junit", "render_markdown", "render_sarif"]

_SARIF_LEVEL: Final = {Level.MUST: "error", Level.SHOULD: "warning", Level.MAY: "note", Level.QUALITY: "note"}
# What XML 1.0 cannot hold, escaped or not.
_NOT_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _evidence(finding: Finding) -> str:
    return "\n\n".join(f"> {shown.sent}\n< {shown.received}" for shown in finding.evidence)


def _xml(text: str) -> str:
    return escape(_NOT_XML.sub("\ufffd", text))


def _attribute(text: str) -> str:
    return quoteattr(_NOT_XML.sub("\ufffd", text))


def render_junit(report: CheckReport, *, fail_on: Level | None) -> str:
    """The report as JUnit XML: a test case for each requirement.

    Args:
        report: the report.
        fail_on: rules as binding as this one or more are failures when broken; None for none. The others are told in `system-out`.
    """
    failing = report.broken(fail_on) if fail_on is not None else []
    skipped = [*report.of(Verdict.NOT_APPLICABLE), *report.of(Verdict.NOT_VERIFIABLE)]
    errors = 1 if report.failure is not None else 0
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuites name="outrider check" tests="{len(report.findings) + errors}" failures="{len(failing)}" '
        f'errors="{errors}" skipped="{len(skipped)}" time="{report.duration_ms / 1000:.3f}">',
        f'<testsuite name={_attribute(report.target)} tests="{len(report.findings) + errors}" failures="{len(failing)}" '
        f'errors="{errors}" skipped="{len(skipped)}" time="{report.duration_ms / 1000:.3f}">',
    ]
    if report.failure is not None:
        lines.append(
            f'<testcase classname="outrider.check" name="connect"><error message={_attribute(report.failure.message)}/></testcase>'
        )
    for finding in report.findings:
        rule = finding.requirement
        group = rule.id.partition(".")[0]
        lines.append(
            f'<testcase classname="outrider.check.{group}" name={_attribute(f"{rule.id}: {rule.rule}")} '
            f'time="{finding.elapsed_ms / 1000:.3f}">'
        )
        if finding in failing:
            detail = f"{finding.message}\n{rule.page}\n{rule.url}\nFix: {rule.fix}\n\n{_evidence(finding)}"
            lines.append(
                f'<failure type="{rule.level.value}" message={_attribute(finding.message)}>{_xml(detail)}</failure>'
            )
        elif finding in skipped:
            lines.append(f"<skipped message={_attribute(f'{finding.verdict.value}: {finding.message}')}/>")
        elif finding.is_broken:
            lines.append(f"<system-out>{_xml(f'{finding.verdict.value}: {finding.message}')}</system-out>")
        lines.append("</testcase>")
    lines += ["</testsuite>", "</testsuites>"]
    return "\n".join(lines) + "\n"


def render_sarif(report: CheckReport) -> str:
    """The report as SARIF 2.1.0: a rule for each requirement, a result for each that is broken or not verifiable."""
    indexes = {requirement.id: position for position, requirement in enumerate(REQUIREMENTS)}
    results: list[dict[str, Any]] = []
    for finding in (*report.broken(known=True), *report.of(Verdict.NOT_VERIFIABLE)):
        rule = finding.requirement
        result: dict[str, Any] = {
            "ruleId": rule.id,
            "ruleIndex": indexes[rule.id],
            "kind": "fail" if finding.is_broken else "review",
            "level": _SARIF_LEVEL[rule.level] if finding.is_broken else "none",
            "message": {"text": finding.message or rule.rule},
            # A server has no file; consoles that insist on a place get the target as a logical one, and a stand-in as the physical one.
            "locations": [
                {
                    "physicalLocation": {"artifactLocation": {"uri": "mcp-server"}, "region": {"startLine": 1}},
                    "logicalLocations": [{"fullyQualifiedName": report.target, "kind": "module"}],
                }
            ],
            "partialFingerprints": {"requirement/v1": rule.id},
            "properties": {
                "evidence": [{"sent": shown.sent, "received": shown.received} for shown in finding.evidence],
                "page": rule.page,
            },
        }
        if finding.is_known:
            result["baselineState"] = "unchanged"
        results.append(result)
    rules = [
        {
            "id": rule.id,
            "shortDescription": {"text": rule.rule},
            "fullDescription": {"text": rule.why},
            "help": {"text": f"{rule.fix}\n{rule.page}"},
            **({"helpUri": rule.url} if rule.url else {}),
            "defaultConfiguration": {"level": _SARIF_LEVEL[rule.level]},
            "properties": {"level": rule.level.value, "appliesTo": rule.applies.value},
        }
        for rule in REQUIREMENTS
    ]
    run: dict[str, Any] = {
        "tool": {"driver": {"name": "outrider check", "version": __version__, "rules": rules}},
        "invocations": [
            {
                "executionSuccessful": report.failure is None,
                "toolExecutionNotifications": [
                    {"level": "note", "message": {"text": text}}
                    for text in (*report.notes, *([report.failure.message] if report.failure else []))
                ],
            }
        ],
        "results": results,
    }
    sarif = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}
    return msgspec.json.format(msgspec.json.encode(sarif)).decode() + "\n"


def badge_url(report: CheckReport) -> str:
    """The address of a badge that says how the server did."""
    must, should = len(report.broken(Level.MUST, known=True)), len(report.broken(Level.SHOULD, known=True))
    if report.failure is not None:
        text, colour = "unreachable", "lightgrey"
    elif must:
        text, colour = f"{must} MUST broken", "red"
    elif should:
        text, colour = f"{should} SHOULD broken", "yellow"
    else:
        text, colour = f"{len(report.of(Verdict.PASS))} rules kept", "brightgreen"
    return f"https://img.shields.io/badge/MCP_check-{quote(text.replace('-', '--').replace(' ', '_'))}-{colour}"


def _cell(text: str) -> str:
    """A text for one cell of a table: nothing of it is markup."""
    text = "".join(character if character.isprintable() else f"\\u{ord(character):04x}" for character in text)
    return re.sub(r"([\\`*_{}\[\]<>|#!~])", r"\\\1", text)


def _code(text: str) -> str:
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}text\n{text}\n{fence}"


def render_markdown(report: CheckReport) -> str:
    """The report as Markdown: a badge, the numbers, what is broken (worst first) with its evidence, what could not be told."""
    counts = report.counts()
    lines = [f"# MCP check of {_cell(report.target)}", "", f"![MCP check]({badge_url(report)})", ""]
    if report.failure is not None:
        return "\n".join([*lines, f"It could not be checked: {_cell(report.failure.message)}", ""])
    spoken = " and ".join(report.eras)
    lines += [
        f"{_cell(report.identity) or 'A nameless server'}, {report.transport}, {spoken}, protocol {_cell(report.version)}.",
        "",
        "| " + " | ".join(counts) + " |",
        "| " + " | ".join("---:" for _ in counts) + " |",
        "| " + " | ".join(map(str, counts.values())) + " |",
        "",
    ]
    lines += [f"> {_cell(note)}\n" for note in report.notes]
    broken = report.broken(known=True)
    if broken:
        lines += ["## Broken rules", "", "| level | rule | what is wrong |", "| --- | --- | --- |"]
        for finding in broken:
            rule = finding.requirement
            name = f"[{rule.id}]({rule.url})" if rule.url else rule.id
            known = " (known)" if finding.is_known else ""
            lines.append(
                f"| {rule.level.value.upper()}{known} | {name}: {_cell(rule.rule)} | {_cell(finding.message)} |"
            )
        lines.append("")
        for finding in broken:
            rule = finding.requirement
            lines += [f"### {rule.id}", "", f"{_cell(rule.why)} **Fix:** {_cell(rule.fix)}", ""]
            for shown in finding.evidence:
                lines += ["Sent:", "", _code(shown.sent), "", "Received:", "", _code(shown.received), ""]
    else:
        lines += ["No rule is broken.", ""]
    unclear = report.of(Verdict.NOT_VERIFIABLE)
    if unclear:
        lines += ["## Not verifiable", ""]
        lines += [f"- {finding.requirement.id}: {_cell(finding.message)}" for finding in unclear]
        lines.append("")
    return "\n".join(lines)
