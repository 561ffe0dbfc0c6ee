"""The documentation is true: its code runs, its links lead somewhere, its lists of commands are the commands.

`docs/server.md` tells one story in several blocks; `tests/server/test_docs.py` runs it.
"""

from __future__ import annotations

import ast
import importlib
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cli.user import DEADLINE_S, User, sample
from fakes.running import FakeHttp
from fakes.scripts import Script, modern
from outrider.cli import _COMMANDS

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

# What a reader has to fill in, waits for something, or needs a model or another program: read here, not run.
NOT_RUN = ("…", "async for", "Agent(", "outrider_check", "adapters")

SERVER = '''
import outrider

server = outrider.Server("demo", version="1.0")


@server.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


server.run()
'''

RUNNER = """
import ast, asyncio, sys
import outrider
source = open(sys.argv[1], encoding="utf-8").read()
code = compile(source, sys.argv[1], "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
running = eval(code, {"__name__": "__main__", "outrider": outrider})
if running is not None:
    asyncio.run(running)
"""


def blocks() -> Iterator[Any]:
    """Every Python block of every page, with its place as the test's id."""
    for page in PAGES:
        found = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        for number, source in enumerate(found, 1):
            yield pytest.param(page, source, id=f"{page.name}-{number}")


def runnable() -> Iterator[Any]:
    for block in blocks():
        page, source = block.values
        if page.name != "server.md" and not any(mark in source for mark in NOT_RUN):
            yield block


@pytest.fixture
def user(tmp_path: Path) -> User:
    """Somebody who tries what they read."""
    return User(tmp_path)


def test_there_is_code_to_run() -> None:
    """Ours: the tests below test something."""
    assert len(list(runnable())) >= 4


@pytest.mark.parametrize(("page", "source"), [*blocks()])
def test_code_is_python_and_names_what_exists(page: Path, source: str) -> None:
    """Ours: every block compiles, and every name of ours in it can be imported."""
    tree = compile(
        source.replace("…", "..."),
        str(page),
        "exec",
        flags=ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
        dont_inherit=True,
    )
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("outrider"):
            module = imported(node.module or "")
            if module is None:
                continue
            for name in node.names:
                assert hasattr(module, name.name), name.name
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "outrider":
            assert hasattr(importlib.import_module("outrider"), node.attr), node.attr


def imported(name: str) -> ModuleType | None:
    """A module of ours, or None if it needs another package that is not here, as an adapter does."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if (error.name or "outrider").startswith("outrider"):
            raise
        return None


@pytest.mark.parametrize(("page", "source"), [*runnable()])
def test_code_runs(page: Path, source: str, user: User, fake_http: FakeHttp) -> None:
    """Ours: as it stands, beside a server.py with a tool `add`, and a server where example.com is written."""
    if "https://example.com/mcp" in source:
        source = source.replace("https://example.com/mcp", fake_http(Script(*modern())).url)
    user.configure({"weather": sample("modern")})
    (user.project / "server.py").write_text(SERVER, encoding="utf-8")
    (user.project / "block.py").write_text(source, encoding="utf-8")
    (user.project / "runner.py").write_text(RUNNER, encoding="utf-8")
    path = f"{Path(sys.executable).parent}:{user.env['PATH']}"
    process = user.start([sys.executable, "runner.py", "block.py"], PATH=path)
    try:
        _, err = process.communicate(timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    assert process.returncode == 0, err


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Ours: files exist, and headings where a link names one."""
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


def without_code(page: Path) -> str:
    return re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """What the headings of a page are called in links."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ +(.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_the_table_of_commands_is_complete() -> None:
    """Ours: docs/cli.md names each command that there is, and no other."""
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (`outrider .*?) \|(?!`)", text.replace("\\|", "/"), re.MULTILINE)
    named = [name for cell in cells for name in re.findall(r"`(?:outrider )?(\w+)", cell)]
    assert sorted(named) == sorted(_COMMANDS)


def test_the_reference_of_the_command_line_is_up_to_date() -> None:
    """Ours: `python scripts/cli_reference.py` writes it anew."""
    script = runpy.run_path(str(ROOT / "scripts" / "cli_reference.py"))
    assert script["REFERENCE"].read_text(encoding="utf-8") == script["render"](), "run scripts/cli_reference.py"
