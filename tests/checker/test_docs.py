"""The user guide lists every requirement as the table has it, and names no option that the command lacks."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml

import outrider
from outrider.checker.requirements import REQUIREMENTS, Applies, Level
from outrider.checker.run import check as run_check
from outrider.cli.check import check as command

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "check.md"
LIST = re.compile(r"(<!-- requirements: [^\n]*-->\n).*(<!-- end of requirements -->)", re.S)


def rendered() -> str:
    lines = ["| level | id | rule | applies to | where |", "| --- | --- | --- | --- | --- |"]
    for rule in REQUIREMENTS:
        where = f"[{rule.page}]({rule.url})" if rule.url else rule.page
        text = rule.rule.replace("|", "\\|")
        lines.append(f"| {rule.level.value.upper()} | `{rule.id}` | {text} | {rule.applies.value} | {where} |")
    return "\n".join(lines) + "\n"


def test_guide_lists_every_requirement() -> None:
    """Ours: the list in the guide is generated from the table."""
    guide = GUIDE.read_text(encoding="utf-8")
    wanted = LIST.sub(lambda match: match[1] + rendered() + match[2], guide)
    if os.environ.get("OUTRIDER_WRITE_DOCS"):
        GUIDE.write_text(wanted, encoding="utf-8")
        guide = wanted
    assert guide == wanted, "renew it with OUTRIDER_WRITE_DOCS=1"


def test_guide_names_every_option_of_the_command() -> None:
    """Ours: what the guide says can be typed, and what can be typed for checks is in the guide."""
    guide = GUIDE.read_text(encoding="utf-8")
    options = {name for parameter in command.params for name in parameter.opts if name.startswith("--")}
    named = set(re.findall(r"--[a-z][a-z-]+", guide.split("## Requirements")[0]))
    assert named <= options
    assert {
        "--fail-on",
        "--skip",
        "--baseline",
        "--call",
        "--junit",
        "--sarif",
        "--markdown",
        "--list",
        "--explain",
    } <= named


def test_requirements_are_complete_and_unique() -> None:
    """Ours: ids are unique and short, every text is there, and each rule that binds says where it stands."""
    ids = [rule.id for rule in REQUIREMENTS]
    assert len(set(ids)) == len(ids) >= 90
    for rule in REQUIREMENTS:
        assert re.fullmatch(r"[a-z]+\.[a-z0-9-]+", rule.id)
        assert all((rule.rule, rule.page, rule.how, rule.why, rule.fix)), rule.id
        assert rule.rule.endswith("."), rule.id
        if rule.level in (Level.MUST, Level.SHOULD):
            assert rule.url.startswith("https://modelcontextprotocol.io/specification/"), rule.id
    assert {rule.applies for rule in REQUIREMENTS} >= {Applies.MODERN, Applies.LEGACY, Applies.STDIO, Applies.HTTP}


@pytest.mark.parametrize("name", ["check-mcp-server.yml", "pre-commit-config.yaml"])
def test_examples_for_ci_use_options_that_exist(name: str) -> None:
    """Ours: what is copied works; the files are YAML, and every option before `--` is one of the command's."""
    text = (GUIDE.parents[1] / "examples" / "ci" / name).read_text(encoding="utf-8")
    assert isinstance(yaml.safe_load(text), dict)
    found = re.search(r"outrider check(.*?) -- ", " ".join(text.split()))
    assert found is not None
    options = {option for parameter in command.params for option in parameter.opts}
    named = set(re.findall(r"--[a-z-]+", found[1]))
    assert named
    assert named <= options


def test_the_library_offers_what_the_guide_shows() -> None:
    """Ours: `outrider.check` is the checker's own, loaded when it is first used."""
    assert outrider.check is run_check
    assert {"check", "CheckOptions", "CheckReport"} <= set(outrider.__all__)
