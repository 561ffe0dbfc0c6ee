"""The course of a check: permissions, patience, broken networks, secrets, baselines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fakes.running import FakeHttp, FakeStdio
from fakes.scripts import LEGACY, Script, legacy, on, respond, tool
from outrider.checker.checks import CHECKS, Verdict
from outrider.checker.report import CheckReport, read_baseline
from outrider.checker.requirements import REQUIREMENTS, Level, find_requirement
from outrider.checker.run import CheckOptions, check
from outrider.errors import ConfigError

QUICK = CheckOptions(skip=frozenset({"http.large-body"}))


@asynccontextmanager
async def relay(url: str, *, break_after: int) -> AsyncIterator[str]:
    """A proxy on the way to a server that breaks for good once so many pieces have been sent to the server."""
    host, _, path = url.removeprefix("http://").partition("/")
    address, port = host.split(":")
    sent = 0
    writers: list[asyncio.StreamWriter] = []
    tasks: set[asyncio.Task[None]] = set()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counts: bool) -> None:
        nonlocal sent
        try:
            while data := await reader.read(65_536):
                sent += counts
                if sent > break_after:
                    for broken in writers:
                        broken.transport.abort()
                    return
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        if sent > break_after:
            writer.transport.abort()
            return
        theirs, ours = await asyncio.open_connection(address, int(port))
        writers.append(ours)
        tasks.add(asyncio.create_task(copy(reader, ours, counts=True)))
        tasks.add(asyncio.create_task(copy(theirs, writer, counts=False)))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/{path}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)
        await server.wait_closed()


def test_every_requirement_is_decided_by_a_check() -> None:
    """Ours: no rule is in the table that nothing tries, and no check rules on what is not in it."""
    decided = {requirement_id for known in CHECKS for requirement_id in known.ids}
    assert decided == {requirement.id for requirement in REQUIREMENTS}


async def test_no_tool_is_called_without_permission(model_url: str) -> None:
    """Ours: tools have effects; without --call none that exists is called."""
    report = await check(f"{model_url}/modern/tool.call-result/silent", options=QUICK)
    assert report.finding("tool.call-result").verdict is Verdict.NOT_APPLICABLE


async def test_call_of_a_tool_that_is_not_there_is_not_verifiable(model_url: str) -> None:
    """Ours: a permission for nothing proves nothing."""
    options = CheckOptions(skip=QUICK.skip, call=(("nothing", {}),))
    report = await check(f"{model_url}/modern/none", options=options)
    assert report.finding("tool.call-result").verdict is Verdict.NOT_VERIFIABLE


async def test_skipped_requirement_is_said_and_not_passed(model_url: str) -> None:
    """Ours: what is left out never counts as kept."""
    options = CheckOptions(skip=QUICK.skip | {"http.get"})
    report = await check(f"{model_url}/modern/http.get", options=options)
    finding = report.finding("http.get")
    assert (finding.verdict, finding.message) == (Verdict.NOT_VERIFIABLE, "skipped on request")


async def test_unknown_requirement_cannot_be_skipped(model_url: str) -> None:
    """Ours: a misspelt id would silently skip nothing."""
    with pytest.raises(ConfigError, match=r"no\.such"):
        await check(f"{model_url}/modern/none", options=CheckOptions(skip=frozenset({"no.such"})))


@pytest.mark.parametrize("break_after", [1, 4, 9, 20, 40, 60])
async def test_network_that_breaks_is_not_held_against_the_server(break_after: int, model_url: str) -> None:
    """Ours: a broken network says so instead of failing the server."""
    async with relay(f"{model_url}/modern/none", break_after=break_after) as url:
        report = await check(url, options=CheckOptions(skip=QUICK.skip, request_timeout_s=10))
    assert report.failure is not None or report.notes
    assert {finding.requirement.id: finding.message for finding in report.broken(Level.SHOULD)} == {}


async def test_server_that_is_not_there_is_a_failure_and_no_finding() -> None:
    """Ours: nothing can be said about what could not be reached."""
    report = await check("http://127.0.0.1:9/mcp", options=CheckOptions(start_timeout_s=5))
    assert report.failure is not None
    assert report.failure.kind == "start"
    assert report.findings == ()


async def test_server_that_wants_a_sign_in_says_so(fake_http: FakeHttp) -> None:
    """Ours: a sign-in is no breach of anything."""
    fake = fake_http(Script(on(None, respond(401, headers={"WWW-Authenticate": "Bearer"}))))
    report = await check(fake.url, options=QUICK)
    assert report.failure is not None
    assert report.failure.kind == "auth"


async def test_deadline_leaves_the_rest_not_verifiable(model_command: list[str]) -> None:
    """Ours: what was not tried in time is said, and never counted as pass."""
    target = [*model_command, "stdio", "modern", "stdio.start-time"]
    report = await check(target, options=CheckOptions(deadline_s=0.5))
    assert any("deadline" in note for note in report.notes)
    assert report.of(Verdict.PASS) == []


async def test_process_that_cannot_start_is_a_failure() -> None:
    """Ours: as for a URL where nobody listens."""
    report = await check(["/nowhere/to/be/found"])
    assert report.failure is not None
    assert report.failure.kind == "start"


async def test_legacy_server_with_its_own_answers_has_no_false_failure(fake_stdio: FakeStdio) -> None:
    """Ours: what a legacy server makes of modern requests is not judged."""
    fake = fake_stdio(Script(*legacy(tools=[tool("add")], version=LEGACY)))
    report = await check(fake.command, options=CheckOptions(request_timeout_s=5))
    assert report.eras == ("legacy",)
    assert report.of(Verdict.FAIL) == []


async def test_secrets_do_not_reach_the_report(model_url: str) -> None:
    """Ours: evidence is redacted."""
    secret = "s3cr3t-t0k3n-value"
    report = await check(
        f"{model_url}/modern/http.get?key={secret}",
        options=CheckOptions(skip=QUICK.skip),
        headers={"Authorization": f"Bearer {secret}"},
    )
    assert report.findings
    assert secret not in json.dumps(report.as_json())


async def test_baseline_makes_broken_rules_known(model_url: str) -> None:
    """Ours: a baseline takes what is known out of the count, and nothing else."""
    report = await check(f"{model_url}/modern/http.get", options=QUICK)
    assert [finding.requirement.id for finding in report.broken(Level.SHOULD)] == ["http.get"]
    known = read_baseline(json.dumps(report.as_json()))
    assert "http.get" in known
    assert report.against(known).broken() == []
    assert [f.requirement.id for f in report.against(known).broken(Level.SHOULD, known=True)] == ["http.get"]
    assert report.against({"http.delete"}).broken() == report.broken()


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema":"other/1","findings":[]}', '{"schema":"outrider.check/1"}']
)
def test_baseline_that_is_no_report_is_refused(text: str) -> None:
    """Ours: an empty file would make everything new again without a word."""
    with pytest.raises(ConfigError):
        read_baseline(text)


async def test_levels_decide_what_counts(model_url: str) -> None:
    """Ours: MUST counts at both levels, SHOULD at one, quality at none."""
    counts: dict[str, tuple[int, int, int]] = {}
    for mutation in ("http.origin", "http.get", "http.host"):
        report: CheckReport = await check(f"{model_url}/modern/{mutation}/levels", options=QUICK)
        counts[mutation] = (
            len(report.broken(Level.MUST)),
            len(report.broken(Level.SHOULD)),
            len([finding for finding in report.broken() if finding.requirement.id == mutation]),
        )
    assert counts == {"http.origin": (1, 1, 1), "http.get": (0, 1, 1), "http.host": (0, 0, 1)}


def test_unknown_requirement_is_not_found() -> None:
    """Ours: asking for an id that is not there is answered with None."""
    assert find_requirement("no.such") is None
