"""What servers that nobody here wrote send unasked, and what `outrider discover` shows of each of them.

The plain calls of the library against every peer are in `test_client.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

import outrider
import outrider.samples
from outrider import Change, Era, Progress
from peers.provision import NODE, PYTHON_LEGACY, PYTHON_MODERN, Environment
from peers.registry import HTTP_PEERS, PEERS, SERVERS, STDIO_PEERS, Call, Peer, serving

pytestmark = pytest.mark.interop

# Far above what anything here takes on a busy machine; a test that hangs fails instead.
DEADLINE_S = 120.0
SAMPLES = Path(outrider.samples.__file__).with_name("servers.py")


def changing(environment: Environment, era: str, transport: str, *arguments: str) -> Peer:
    """A server whose tool `grow` adds a tool, and whose tool `count` reports progress."""
    return Peer(
        id=f"{Path(arguments[0]).stem}-{transport}",
        environment=environment,
        era=era,  # type: ignore[arg-type]
        transport=transport,  # type: ignore[arg-type]
        arguments=arguments,
        tools=frozenset({"count", "grow"}),
        call=Call("count", {"steps": 3}, "3"),
    )


SDK2 = str(SERVERS / "changing_python_sdk2.py")
SDK1 = str(SERVERS / "changing_python_sdk1.py")
TYPESCRIPT = str(SERVERS / "changing_typescript_sdk2.mjs")
CHANGING = (
    changing(PYTHON_MODERN, "modern", "stdio", SDK2, "stdio"),
    changing(PYTHON_MODERN, "modern", "http", SDK2, "http"),
    changing(NODE, "modern", "stdio", TYPESCRIPT, str(NODE.path)),
    changing(PYTHON_LEGACY, "legacy", "stdio", SDK1, "stdio"),
    changing(PYTHON_LEGACY, "legacy", "http", SDK1, "http"),
    changing(PYTHON_LEGACY, "legacy", "sse", SDK1, "sse"),
)
EVERYTHING = tuple(peer for peer in PEERS if peer.id.startswith("npm-everything"))


@pytest.fixture
def target(installed_peer: Peer) -> Iterator[str | list[str]]:
    """A peer of the test's own: changing it disturbs nobody."""
    if installed_peer.transport == "stdio":
        yield installed_peer.command
        return
    with serving(installed_peer) as running:
        yield running.url


@asynccontextmanager
async def connected(target: str | list[str], peer: Peer) -> AsyncIterator[outrider.Client]:
    """A client of a peer, found to be of the era it is."""
    async with asyncio.timeout(DEADLINE_S), outrider.connect(target) as client:
        assert client.era == Era(peer.era)
        yield client


# -- what comes unasked ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("peer", CHANGING, ids=str)
async def test_progress_arrives_in_order_and_before_the_answer(peer: Peer, target: str | list[str]) -> None:
    """Spec: 2026-07-28 basic/patterns/progress (the token finds its request), and 2025-11-25 basic/utilities/progress."""
    seen: list[Progress] = []
    async with connected(target, peer) as client:
        result = await client.call_tool("count", {"steps": 3}, on_progress=seen.append)
        assert result.content[0].text == "3"
        assert [(step.progress, step.total, step.message) for step in seen] == [
            (1, 3, "step 1"),
            (2, 3, "step 2"),
            (3, 3, "step 3"),
        ]


@pytest.mark.parametrize("peer", EVERYTHING, ids=str)
async def test_progress_of_a_long_operation_arrives(peer: Peer, target: str | list[str]) -> None:
    """Spec: 2025-11-25 basic/utilities/progress, from the reference server over each of its transports."""
    seen: list[float] = []
    async with connected(target, peer) as client:
        result = await client.call_tool(
            "trigger-long-running-operation",
            {"duration": 0.1, "steps": 4},
            on_progress=lambda progress: seen.append(progress.progress),
        )
        assert result.content[0].text == "Long running operation completed. Duration: 0.1 seconds, Steps: 4."
        assert seen == [1, 2, 3, 4]


@pytest.mark.parametrize("peer", CHANGING, ids=str)
async def test_change_of_the_tool_list_is_heard(peer: Peer, target: str | list[str]) -> None:
    """Spec: 2026-07-28 basic/patterns/subscriptions; 2025-11-25 server/tools#list-changed-notification."""
    async with connected(target, peer) as client:
        assert {tool.name for tool in await client.list_tools()} == peer.tools
        async with client.listen(tools=True) as changes:
            assert changes.granted.tools
            assert (await client.call_tool("grow", {"name": "latecomer"})).content[0].text == "grown"
            assert await anext(changes) == Change("tools")
        assert {tool.name for tool in await client.list_tools()} == peer.tools | {"latecomer"}


@pytest.mark.parametrize("peer", [peer for peer in CHANGING if peer.era == "modern"], ids=str)
async def test_what_was_not_asked_for_is_not_granted(peer: Peer, target: str | list[str]) -> None:
    """Spec: 2026-07-28 basic/patterns/subscriptions: the acknowledgment says what the server agreed to, no more than was asked."""
    async with connected(target, peer) as client, client.listen(tools=True) as changes:
        assert not changes.granted.prompts
        assert not changes.granted.resources
        assert not changes.granted.uris


@pytest.mark.parametrize("peer", EVERYTHING, ids=str)
async def test_update_of_a_subscribed_resource_is_heard(peer: Peer, target: str | list[str]) -> None:
    """Spec: 2025-11-25 server/resources#subscriptions, from the reference server over each of its transports."""
    uri = "demo://resource/static/document/features.md"
    async with connected(target, peer) as client, client.listen(uris=[uri]) as changes:
        assert changes.granted.uris == (uri,)
        await client.call_tool("toggle-subscriber-updates")
        assert await anext(changes) == Change("resource", uri)
        await client.call_tool("toggle-subscriber-updates")


# -- the command -----------------------------------------------------------------------------------------------------------------------


Run = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
def run_outrider(tmp_path: Path) -> Run:
    """Runs the command, with nothing remembered or configured, and returns its exit code, stdout and stderr."""
    # The output is wide enough for a whole URL.
    homes = {name: str(tmp_path) for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")}
    variables = os.environ | homes | {"COLUMNS": "200"}

    async def run(*arguments: str) -> tuple[int, str, str]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "from outrider.cli import main; main()", *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=variables,
            cwd=tmp_path,
        )
        try:
            async with asyncio.timeout(DEADLINE_S):
                output, errors = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise
        assert process.returncode is not None
        return process.returncode, output.decode(), errors.decode()

    return run


def judge(peer: Peer, report: dict[str, Any]) -> None:
    """Compares a report with the peer's row."""
    assert report["ok"] is True, report["failure"]
    assert report["failure"] is None
    assert report["era"] == peer.era, report["attempts"]
    assert report["transport"] == {"stdio": "stdio", "http": "streamable-http", "sse": "http+sse"}[peer.transport]
    assert report["protocolVersion"] == ("2026-07-28" if peer.era == "modern" else "2025-11-25")
    assert report["identity"]["name"]
    assert {tool["name"] for tool in report["tools"]["items"]} == peer.tools
    assert report["tools"]["count"] == len(peer.tools)
    assert report["tools"]["complete"] is True
    assert report["tools"]["quarantined"] == []
    assert report["tokens"]["estimated"] > 0
    if peer.prompt is not None:
        assert peer.prompt[0] in {prompt["name"] for prompt in report["prompts"]["items"]}
    if peer.resource is not None:
        assert peer.resource in {resource["uri"] for resource in report["resources"]["items"]}


@pytest.mark.parametrize("peer", STDIO_PEERS, ids=str)
async def test_command_reports_a_stdio_peer_as_json(run_outrider: Run, peer: Peer, installed_peer: Peer) -> None:
    """Ours: one JSON object with era, tools, prompts and resources, nothing else on stdout, and exit code 0."""
    code, output, errors = await run_outrider("discover", "--json", "--", *installed_peer.command)
    assert code == 0, errors
    judge(peer, json.loads(output))


@pytest.mark.parametrize("peer", HTTP_PEERS, ids=str)
async def test_command_reports_an_http_peer_as_json(run_outrider: Run, peer: Peer, peer_url: str) -> None:
    """Ours: one JSON object with era, tools, prompts and resources, nothing else on stdout, and exit code 0."""
    code, output, errors = await run_outrider("discover", peer_url, "--json")
    assert code == 0, errors
    judge(peer, json.loads(output))


@pytest.fixture
def all_urls(environment: Callable[[Environment], Environment], _serve_peer: Callable[[Peer], str]) -> dict[str, Peer]:
    """Every HTTP peer by its URL, all running."""
    for peer in HTTP_PEERS:
        environment(peer.environment)
    return {_serve_peer(peer): peer for peer in HTTP_PEERS}


@pytest.fixture
def dead_url() -> Iterator[str]:
    """A URL at which nobody listens; the port stays taken, so that nobody else will."""
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/mcp"


@pytest.fixture
async def sign_in_url() -> AsyncIterator[str]:
    """A server that wants a credential."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, str(SAMPLES), "sign-in", stdin=pipe, stdout=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    yield (await process.stdout.readline()).decode().strip()
    process.stdin.close()
    await process.wait()


async def test_command_shows_all_http_peers_in_one_table(run_outrider: Run, all_urls: dict[str, Peer]) -> None:
    """Ours: a row for each target in the order given, with its era, and exit code 0."""
    code, output, errors = await run_outrider("discover", *all_urls)
    assert code == 0, errors
    rows = [cells for line in output.splitlines() if {"modern", "legacy"} & set(cells := line.split())]
    assert [next(cell for cell in row if cell in ("modern", "legacy")) for row in rows] == [
        peer.era for peer in all_urls.values()
    ]
    for row, peer in zip(rows, all_urls.values(), strict=True):
        assert str(len(peer.tools)) in row
    assert "\x1b" not in output


async def test_command_reports_several_peers_as_one_json_object(run_outrider: Run, all_urls: dict[str, Peer]) -> None:
    """Ours: the reports stand in the order of the targets, each complete."""
    code, output, errors = await run_outrider("discover", "--json", *all_urls)
    assert code == 0, errors
    reports = json.loads(output)["reports"]
    for report, peer in zip(reports, all_urls.values(), strict=True):
        judge(peer, report)


async def test_one_dead_server_fails_the_run_and_costs_the_others_nothing(
    run_outrider: Run, all_urls: dict[str, Peer], dead_url: str
) -> None:
    """Ours: exit code 1, the dead one explained, every other report whole."""
    code, output, _ = await run_outrider("discover", "--json", "--timeout", "60", dead_url, *all_urls)
    assert code == 1
    dead, *others = json.loads(output)["reports"]
    assert dead["ok"] is False
    assert dead["era"] is None
    assert dead["failure"]["kind"] == "start"
    for report, peer in zip(others, all_urls.values(), strict=True):
        judge(peer, report)


async def test_dead_server_is_explained_below_the_table(
    run_outrider: Run, dead_url: str, all_urls: dict[str, Peer]
) -> None:
    """Ours: exit code 1; the row says in which phase it failed, and the reason and what to do stand below."""
    code, output, _ = await run_outrider("discover", dead_url, next(iter(all_urls)))
    assert code == 1
    assert [line.split()[-1] for line in output.splitlines() if "—" in line] == ["start"]
    assert f"no connection to {dead_url}" in output
    assert "Connection refused" in output
    assert "is the server running?" in output


async def test_missing_sign_in_has_its_own_exit_code(run_outrider: Run, sign_in_url: str) -> None:
    """Ours: exit code 4 when nothing but a credential is missing."""
    code, output, _ = await run_outrider("discover", sign_in_url, "--json")
    assert code == 4
    assert json.loads(output)["failure"]["kind"] == "auth"


async def test_sign_in_beside_another_failure_is_an_ordinary_failure(
    run_outrider: Run, sign_in_url: str, dead_url: str
) -> None:
    """Ours: exit code 1 when signing in would not be enough."""
    code, output, _ = await run_outrider("discover", sign_in_url, dead_url, "--json")
    assert code == 1
    assert [report["failure"]["kind"] for report in json.loads(output)["reports"]] == ["auth", "start"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["not-a-url"],
        ["--no-such-option", "http://127.0.0.1/mcp"],
        ["ftp://127.0.0.1/mcp"],
        ["http://127.0.0.1/mcp", "--header", "no colon"],
        ["http://127.0.0.1/mcp", "--timeout", "never"],
        ["--"],
    ],
    ids=["no URL", "unknown option", "scheme", "header", "time-out", "no command"],
)
async def test_unusable_command_line_is_exit_code_2(run_outrider: Run, arguments: list[str]) -> None:
    """Ours: exit code 2, one explanation on stderr without a traceback, nothing on stdout."""
    code, output, errors = await run_outrider("discover", *arguments)
    assert code == 2
    assert output == ""
    assert "Error" in errors
    assert "Traceback" not in errors
