"""What goes into a lock file, and what must not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from outrider.catalog.lock import Portable, pin_server
from outrider.catalog.sources.description import describe_target
from outrider.client.listing import Listing
from outrider.client.report import DiscoveryReport
from outrider.protocol.model import RESOURCES, TOOLS, ListKind, read_page
from outrider.redaction import Redactor


def listed(kind: ListKind, *items: dict[str, Any], complete: bool = True) -> Listing[Any]:
    page = read_page(kind, msgspec.json.encode({kind.member: items}))
    return Listing(page.items, complete, page.quarantined, (), ())


@pytest.mark.parametrize(
    ("argv", "described"),
    [
        (["npx", "-y", "@scope/server@1.2"], "npx @scope/server@1.2"),
        (["/usr/bin/npx", "--package", "x", "server-x"], "npx server-x"),
        (["uvx", "--from", "git+https://token@host/x", "mcp-x"], "uvx mcp-x"),
        (["uv", "--directory", "/home/me/x", "run", "serve"], "uv serve"),
        (["/home/me/.venv/bin/python3.12", "-I", "/home/me/server.py", "--key", "s3cret"], "python server.py"),
        (["python", "-m", "my.server", "postgres://u:p@h/d"], "python -m my.server"),
        (["C:\\Users\\me\\node.exe", "C:\\Users\\me\\index.mjs"], "node index.mjs"),
        (["docker", "run", "-e", "TOKEN=abc", "image"], "docker"),
        (["/home/me/bin/my-server", "sk-abc"], "my-server"),
        (["npx", None, "x"], "npx x"),
        (["npx", "-y", "s3cret!key"], "npx"),
        ([None, "x"], "a command from a variable"),
        ([], "a command from a variable"),
    ],
)
def test_a_command_is_described_without_paths_and_secrets(argv: list[str | None], described: str) -> None:
    """Ours: what runs, so that another program under the same name is noticed."""
    assert describe_target(argv=argv) == described


@pytest.mark.parametrize(
    ("url", "described"),
    [
        ("https://user:pass@Host.example:8443/secret/path?key=1#f", "https://host.example:8443"),
        ("http://[::1]:80/mcp", "http://[::1]:80"),
        ("", "an address from a variable"),
    ],
)
def test_an_address_is_described_by_its_host(url: str, described: str) -> None:
    """Ours: paths hold keys at more than one vendor."""
    assert describe_target(url=url) == described


def test_secrets_and_the_home_folder_stay_out() -> None:
    """Ours: wherever a server repeats them; two users get the same pins."""

    def pins_of(home: str, secret: str) -> Any:
        report = DiscoveryReport(
            target="x",
            transport="stdio",
            instructions=f"Files are in {home}/data, the key is {secret}.",
            tools=listed(
                TOOLS,
                {"name": "read", "inputSchema": {"type": "object", "properties": {"p": {"default": f"{home}/x"}}}},
                {"name": "other", "description": f"not {home}s, nor /data{home}", "inputSchema": {"type": "object"}},
            ),
        )
        return pin_server(report, target="x", portable=Portable(home, Redactor([secret])))

    pins = pins_of("/home/me", "s3cr3t")
    assert pins == pins_of("/home/me", "another")
    assert pins.facts.parts["instructions"] == "Files are in ~/data, the key is •••."
    assert pins.items["tool"]["read"].parts["inputSchema"]["properties"]["p"] == {"default": "~/x"}
    assert pins.items["tool"]["other"].parts["description"] == "not /home/mes, nor /data/home/me"


def test_what_lasts_of_a_resource_is_pinned() -> None:
    """Ours: not the user's own files, not sizes and times, which are those of contents."""
    report = DiscoveryReport(
        target="x",
        transport="stdio",
        resources=listed(
            RESOURCES,
            {"uri": "file:///home/me/a.txt", "name": "a"},
            {"uri": "ui://panel", "name": "panel", "size": 5, "annotations": {"lastModified": "2026", "priority": 1}},
        ),
        tools=listed(TOOLS, {"name": "a", "title": None, "inputSchema": {"type": "object"}}, complete=False),
    )
    pins = pin_server(report, target="x", portable=Portable())
    assert {uri: one.parts for uri, one in pins.items["resource"].items()} == {
        "ui://panel": {"name": "panel", "annotations": {"priority": 1}}
    }
    assert pins.items["tool"]["a"].parts == {"inputSchema": {"type": "object"}}
    assert pins.unread == ("tool",)
