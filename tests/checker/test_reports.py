"""The forms of a report: each is well-formed, says the same, and cannot be broken by what a server writes."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree

import pytest

from outrider.checker.checks import Verdict
from outrider.checker.report import REPORT_SCHEMA, CheckReport, Finding
from outrider.checker.reports import badge_url, render_junit, render_markdown, render_sarif
from outrider.checker.requirements import REQUIREMENTS, Level, find_requirement
from outrider.checker.speakers import Exchange
from outrider.client.report import Failure

HOSTILE = 'a | b ]]> <script> "quoted" & \x1b[31m \x00 ``` `x` <!-- [link](http://attacker.example) \ud800 end'


def report(**broken: str) -> CheckReport:
    """A report in which everything is kept but the requirements named (with `_` for `.` and `-` kept)."""
    wrong = {name.replace("__", ".").replace("_", "-"): text for name, text in broken.items()}
    findings = []
    for rule in REQUIREMENTS:
        if rule.id in wrong:
            verdict = Verdict.FAIL if rule.level is Level.MUST else Verdict.WARN
            evidence = (Exchange("POST /mcp", wrong[rule.id], 1.5),)
            findings.append(Finding(rule, verdict, wrong[rule.id], evidence, 2.0))
        elif rule.id == "rpc.batch":
            findings.append(Finding(rule, Verdict.NOT_VERIFIABLE, "the answer does not tell"))
        else:
            findings.append(Finding(rule, Verdict.PASS))
    return CheckReport(
        target="http://127.0.0.1/mcp",
        transport="streamable-http",
        eras=("modern",),
        version="2026-07-28",
        identity="server 1.0",
        findings=tuple(findings),
        duration_ms=1234.0,
    )


def failed() -> CheckReport:
    return CheckReport(
        target="http://127.0.0.1/mcp", transport="streamable-http", failure=Failure("start", "no connection")
    )


def test_broken_rules_come_worst_first() -> None:
    """Ours: MUST before SHOULD before quality."""
    found = report(text__hidden="c", http__get="b", http__origin="a").broken()
    assert [finding.requirement.id for finding in found] == ["http.origin", "http.get", "text.hidden"]


def test_json_has_a_version_and_every_requirement() -> None:
    """Ours: the shape is a contract."""
    shown = json.loads(json.dumps(report(http__origin="a").as_json()))
    assert shown["schema"] == REPORT_SCHEMA
    assert [entry["id"] for entry in shown["findings"]] == [rule.id for rule in REQUIREMENTS]
    entry = next(entry for entry in shown["findings"] if entry["id"] == "http.origin")
    assert (entry["verdict"], entry["level"], entry["message"]) == ("fail", "must", "a")
    assert entry["evidence"] == [{"sent": "POST /mcp", "received": "a", "elapsedMs": 1.5}]


@pytest.mark.parametrize(("fail_on", "failures"), [(None, 0), (Level.MUST, 1), (Level.SHOULD, 2)])
def test_junit_counts_what_fails(fail_on: Level | None, failures: int) -> None:
    """Ours: a test case for each requirement, a failure for each at the level that counts."""
    root = ElementTree.fromstring(
        render_junit(report(http__origin="a", http__get="b", http__host="c"), fail_on=fail_on)
    )
    suite = root[0]
    assert int(suite.attrib["tests"]) == len(suite) == len(REQUIREMENTS)
    assert int(suite.attrib["failures"]) == len(suite.findall("testcase/failure")) == failures
    assert int(suite.attrib["skipped"]) == len(suite.findall("testcase/skipped")) == 1


def test_junit_of_an_unreachable_server_is_an_error() -> None:
    """Ours: a dashboard must not show it as green."""
    suite = ElementTree.fromstring(render_junit(failed(), fail_on=Level.MUST))[0]
    assert suite.attrib["errors"] == "1"
    assert suite.find("testcase/error") is not None


def test_junit_survives_hostile_texts() -> None:
    """Ours: what a server writes is text in the report and nothing else."""
    root = ElementTree.fromstring(render_junit(report(http__origin=HOSTILE), fail_on=Level.MUST))
    failure = root.find(".//failure")
    assert failure is not None
    assert '<script> "quoted" &' in failure.attrib["message"]
    assert "end" in (failure.text or "")


def test_sarif_names_rules_and_results() -> None:
    """Ours: SARIF 2.1.0 as code scanning reads it: rules with indexes, levels, a place and a fingerprint for each result."""
    sarif = json.loads(render_sarif(report(http__origin="a", http__get="b", http__host="c")))
    assert sarif["version"] == "2.1.0"
    run = sarif["runs"][0]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == [rule.id for rule in REQUIREMENTS]
    shown = {result["ruleId"]: result for result in run["results"]}
    assert {name: (r["kind"], r["level"]) for name, r in shown.items()} == {
        "http.origin": ("fail", "error"),
        "http.get": ("fail", "warning"),
        "http.host": ("fail", "note"),
        "rpc.batch": ("review", "none"),
    }
    for name, result in shown.items():
        assert rules[result["ruleIndex"]]["id"] == name
        assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        assert result["partialFingerprints"]


def test_sarif_of_an_unreachable_server_says_so() -> None:
    """Ours: no result is not the same as no finding."""
    run = json.loads(render_sarif(failed()))["runs"][0]
    assert run["invocations"][0]["executionSuccessful"] is False
    assert run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"] == "no connection"


def test_sarif_survives_hostile_texts() -> None:
    """Ours: as above; half a surrogate pair is no JSON text."""
    hostile = HOSTILE.replace("\ud800", "")
    result = json.loads(render_sarif(report(http__origin=hostile)))["runs"][0]["results"][0]
    assert result["message"]["text"] == hostile


def test_markdown_escapes_what_servers_write() -> None:
    """Ours: no cell breaks the table, no text becomes a link, markup or a hidden comment."""
    page = render_markdown(report(http__origin=HOSTILE))
    row = next(line for line in page.splitlines() if line.startswith("| MUST"))
    assert row.count(" | ") == 2
    assert "<script>" not in row
    assert r"\[link\]" in row
    assert "\x1b" not in row
    assert "````text" in page  # The fence of the evidence is longer than any in it.


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (report(http__origin="a"), "1_MUST_broken-red"),
        (report(http__get="a"), "1_SHOULD_broken-yellow"),
        (report(http__host="a"), "rules_kept-brightgreen"),
        (failed(), "unreachable-lightgrey"),
    ],
)
def test_badge_says_the_worst(shown: CheckReport, text: str) -> None:
    """Ours: red for a MUST, yellow for a SHOULD, grey where nothing can be said."""
    assert badge_url(shown).endswith(text)


def test_each_requirement_says_where_it_stands() -> None:
    """Ours: a rule of an older revision leads to that revision's page."""
    rule = find_requirement("legacy.ping")
    assert rule is not None
    assert rule.url == "https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/ping"
