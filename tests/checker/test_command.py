"""`outrider check` as a user types it: output, files, exit codes."""

from __future__ import annotations

import asyncio
import json
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from fakes.running import FakeHttp
from fakes.scripts import Script, on, respond
from outrider.checker.requirements import REQUIREMENTS


async def run(*arguments: str, cwd: Path) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the command."""
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("outrider")),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=cwd,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, out.decode(), err.decode()


async def check_model(
    mutation: str, *options: str, command: list[str], cwd: Path, flavour: str = "modern"
) -> tuple[int, str, str]:
    return await run("check", *options, "--", *command, "stdio", flavour, mutation, cwd=cwd)


@pytest.mark.parametrize(
    ("mutation", "fail_on", "code"),
    [
        ("none", "must", 0),
        ("none", "should", 0),
        ("discover.ttl", "must", 3),
        ("discover.ttl", "never", 0),
        ("discover.identity", "must", 0),
        ("discover.identity", "should", 3),
        ("tool.description", "should", 0),
    ],
)
async def test_exit_code_follows_the_level(
    mutation: str, fail_on: str, code: int, model_command: list[str], tmp_path: Path
) -> None:
    """Ours: 3 when a rule at the level is broken; quality never."""
    found, out, err = await check_model(mutation, "--fail-on", fail_on, command=model_command, cwd=tmp_path)
    assert (found, err) == (code, ""), out
    assert (mutation in out) == (mutation != "none")


async def test_json_is_one_object_and_nothing_else(model_command: list[str], tmp_path: Path) -> None:
    """Ours: stdout is the report, for machines."""
    code, out, _ = await check_model("discover.ttl", "--json", command=model_command, cwd=tmp_path)
    report = json.loads(out)
    assert code == 3
    assert [entry["id"] for entry in report["findings"] if entry["verdict"] == "fail"] == ["discover.ttl"]


async def test_files_are_written_beside_the_text(model_command: list[str], tmp_path: Path) -> None:
    """Ours: one run, all forms."""
    files = ("--junit", "j.xml", "--sarif", "s.json", "--markdown", "m.md")
    code, out, _ = await check_model("discover.ttl", *files, command=model_command, cwd=tmp_path)
    assert code == 3
    assert "MUST" in out
    assert ElementTree.parse(tmp_path / "j.xml").find(".//failure") is not None
    assert json.loads((tmp_path / "s.json").read_text())["version"] == "2.1.0"
    assert "discover.ttl" in (tmp_path / "m.md").read_text()


async def test_baseline_takes_what_is_known_out_of_the_exit_code(model_command: list[str], tmp_path: Path) -> None:
    """Ours: only what is new fails."""
    _, out, _ = await check_model("discover.ttl", "--json", command=model_command, cwd=tmp_path)
    (tmp_path / "baseline.json").write_text(out)
    options = ("--baseline", "baseline.json")
    code, out, _ = await check_model("discover.ttl", *options, command=model_command, cwd=tmp_path)
    assert code == 0
    assert "(known)" in out
    code, _, _ = await check_model("discover.scope", *options, command=model_command, cwd=tmp_path)
    assert code == 3


async def test_allowed_tool_is_called(model_command: list[str], tmp_path: Path) -> None:
    """Ours: --call, with arguments as JSON."""
    code, out, _ = await check_model(
        "tool.structured-result", "--call", 'add={"a":1,"b":2}', command=model_command, cwd=tmp_path
    )
    assert code == 3
    assert "tool.structured-result" in out


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("check", "--explain", "discover.ttl"), 0, "How to fix it"),
        (("check", "--explain", "discover.ttll"), 2, "Did you mean discover.ttl"),
        (("check", "http://127.0.0.1:9/mcp", "--skip", "no.such"), 2, "no.such"),
        (("check", "http://127.0.0.1:9/mcp", "--call", "add=1"), 2, "not a JSON object"),
        (("check", "http://127.0.0.1:9/mcp", "--baseline", "absent.json"), 2, "cannot be read"),
        (("check", "http://127.0.0.1:9/mcp", "http://127.0.0.1:10/mcp"), 2, "one server"),
        (("check", "http://127.0.0.1:9/mcp", "--timeout", "5"), 1, "could not be checked"),
    ],
)
async def test_usage_is_explained(arguments: tuple[str, ...], code: int, text: str, tmp_path: Path) -> None:
    """Ours: an error says what happened and what to do, with the documented code."""
    found, out, err = await run(*arguments, cwd=tmp_path)
    assert found == code, err
    assert text in out + err
    assert "Traceback" not in err


async def test_list_shows_every_requirement(tmp_path: Path) -> None:
    """Ours: the table is the documentation."""
    code, out, _ = await run("check", "--list", cwd=tmp_path)
    assert code == 0
    assert len(out.splitlines()) == len(REQUIREMENTS)
    code, out, _ = await run("check", "--list", "--json", cwd=tmp_path)
    assert [row["id"] for row in json.loads(out)["requirements"]] == [rule.id for rule in REQUIREMENTS]


async def test_server_that_wants_a_sign_in_has_its_own_exit_code(fake_http: FakeHttp, tmp_path: Path) -> None:
    """Ours: 4, as everywhere."""
    fake = fake_http(Script(on(None, respond(401, headers={"WWW-Authenticate": "Bearer"}))))
    code, _, err = await run("check", fake.url, cwd=tmp_path)
    assert code == 4
    assert "could not be checked" in err
    code, out, _ = await run("check", "--json", fake.url, cwd=tmp_path)
    assert code == 4
    assert json.loads(out)["failure"]["kind"] == "auth"
