"""The server's documentation runs."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from outrider.server import Server
from server.asgi import Caller

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def documented() -> Any:
    """What all code blocks of docs/server.md define, run one after the other."""
    text = (DOCS / "server.md").read_text(encoding="utf-8")
    module = ModuleType("documented_server")
    # Annotations are resolved through the module.
    sys.modules[module.__name__] = module
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, "docs/server.md", "exec"), module.__dict__)
    yield module
    del sys.modules[module.__name__]


async def test_documented_server_does_what_is_said(documented: Any) -> None:
    """Ours: the code in docs/server.md works as the text around it says."""
    assert isinstance(documented.server, Server)
    caller = Caller(documented.app, host="library.example")
    headers = {"authorization": "Bearer secret"}
    assert (await caller.call("server/discover")).status == 401
    discovered = await caller.result("server/discover", headers=headers)
    assert set(discovered["capabilities"]) == {"tools", "resources", "prompts", "logging", "extensions"}
    found = await caller.result("tools/call", {"name": "search", "arguments": {"query": "du"}}, headers=headers)
    assert found["structuredContent"] == [{"title": "Dune", "year": 1965}]
    empty = await caller.result("tools/call", {"name": "search", "arguments": {"query": " "}}, headers=headers)
    assert (empty["isError"], empty["content"][0]["text"]) == (True, "The query is empty. Give at least one word.")
    read = await caller.result("resources/read", {"uri": "book://Dune/text"}, headers=headers)
    assert read["contents"][0]["text"] == "Dune: …"
    imported = await caller.call(
        "tools/call", {"name": "import_books", "arguments": {"folder": "f"}}, headers=headers, progressToken=1
    )
    assert len(imported.events) == 4
    assert imported.last["result"]["content"][0]["text"] == "imported for ann"
    borrow = {"name": "borrow", "arguments": {"title": "Dune"}}
    asked = await caller.result("tools/call", borrow, headers=headers, capabilities={"elicitation": {}})
    assert asked["inputRequests"]["loan"]["params"]["message"] == "Borrow Dune?"
    answers = {"inputResponses": {"loan": {"action": "accept", "content": {}}}}
    done = await caller.result("tools/call", {**borrow, **answers}, headers=headers, capabilities={"elicitation": {}})
    assert done["content"][0]["text"] == "Borrowed for 14 days."
    takes = {"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}
    scan = {"name": "scan", "arguments": {"shelf": "A"}}
    created = await caller.result("tools/call", scan, headers=headers, capabilities=takes)
    about = {"taskId": created["taskId"]}

    async def reached(status: str) -> Any:
        store = documented.server.tasks.store
        async with asyncio.timeout(30):
            while True:
                _, revision = await store.read(created["taskId"])
                task = await caller.result("tasks/get", about, headers=headers, capabilities=takes)
                if task["status"] == status:
                    return task
                await store.changed(created["taskId"], revision)

    asking = await reached("input_required")
    assert asking["statusMessage"] == "book 3 of 3"
    kept = {key: {"action": "decline"} for key in asking["inputRequests"]}
    await caller.result("tasks/update", {**about, "inputResponses": kept}, headers=headers, capabilities=takes)
    assert (await reached("completed"))["result"]["content"][0]["text"] == "scanned A, decline"


def test_documents_mention_only_what_exists() -> None:
    """Ours: options and methods named in backticks are there."""
    import outrider.server as package
    from outrider.server import Context, HttpOptions, ServerOptions

    text = (DOCS / "server.md").read_text(encoding="utf-8")
    for name in re.findall(r"`ctx\.(\w+)", text):
        assert (
            hasattr(Context, name) or f"self.{name}" in Path(sys.modules[Context.__module__].__file__ or "").read_text()
        )
    for name in re.findall(r"`server\.(\w+)", text):
        assert hasattr(Server, name) or name == "discover"
    options = {*HttpOptions.__dataclass_fields__, *ServerOptions.__dataclass_fields__}
    for name in re.findall(r"\(`(\w+_(?:s|ms)|\w+_errors)`\)", text):
        assert name in options, name
    for name in re.findall(r"`([A-Z]\w+)`", text):
        if name not in {
            "ValkeyTaskStore",
            "Literal",
            "Enum",
            "TypedDict",
            "Annotated",
            "Meta",
            "Field",
            "Host",
            "OUTRIDER_STATE_KEY",
        }:
            assert hasattr(package, name), name
