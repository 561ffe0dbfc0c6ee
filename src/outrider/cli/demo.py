"""`outrider demo`: start bundled sample servers of every kind as real processes, and discover them all at once."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import click

import outrider.samples
from outrider.cli import EXIT_FAILED, EXIT_OK
from outrider.cli.discover import discover_all, show_reports, write_reports
from outrider.client.report import DiscoveryReport
from outrider.client.target import ClientOptions, HttpTarget, StdioTarget, Target
from outrider.errors import ConnectFailed
from outrider.protocol.versions import Era

__all__ = ["demo"]

_SERVERS = Path(outrider.samples.__file__).with_name("servers.py")

# What is shown, and what a correct discovery finds. A server that fails as it should is a success of the demo.
_SAMPLES = (
    ("modern, stdio", "modern", Era.MODERN),
    ("modern, HTTP", "modern-http", Era.MODERN),
    ("legacy, stdio", "legacy", Era.LEGACY),
    ("legacy, HTTP", "legacy-http", Era.LEGACY),
    ("exits on the probe", "exits", Era.LEGACY),
    ("never answers the probe", "silent", Era.LEGACY),
    ("wants a sign-in", "sign-in", None),
    ("broken", "broken", None),
)
_HTTP_KINDS = frozenset({"modern-http", "legacy-http", "sign-in"})
_OPTIONS = ClientOptions(probe_timeout_s=2.0, start_timeout_s=30.0)


@click.command("demo")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
def demo(as_json: bool) -> int:
    """Start sample servers of every kind and discover them all: modern and legacy, over stdio and HTTP, and several that misbehave.

    Nothing needs to be configured, nothing is left running. The exit code says whether each was found to be what it is.
    """
    reports = asyncio.run(_run(progress=not as_json))
    if as_json:
        write_reports(reports)
    else:
        show_reports(reports, names=[name for name, _, _ in _SAMPLES])
        click.echo()
        click.echo("Try one alone, with every step and why:")
        click.echo(f"  outrider discover -- {Path(sys.executable).name} {_SERVERS} silent")
    return (
        EXIT_OK
        if all(report.era == era for report, (_, _, era) in zip(reports, _SAMPLES, strict=True))
        else EXIT_FAILED
    )


async def _run(*, progress: bool) -> list[DiscoveryReport]:
    async with AsyncExitStack() as stack:
        targets = await asyncio.gather(*(_start(kind, stack) for _, kind, _ in _SAMPLES))
        return await discover_all(targets, _OPTIONS, progress=progress)


async def _start(kind: str, stack: AsyncExitStack) -> Target:
    """A sample's target; HTTP samples are started here, stdio ones by whoever discovers them."""
    argv = (sys.executable, "-I", str(_SERVERS), kind)
    if kind not in _HTTP_KINDS:
        return StdioTarget(argv)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe)
    stack.push_async_callback(_stop, process)
    if process.stdout is None or not (url := (await process.stdout.readline()).decode().strip()):
        raise ConnectFailed(f"the sample server {kind} did not start")
    return HttpTarget(url)


async def _stop(process: asyncio.subprocess.Process) -> None:
    """End a sample: it ends when its input does, and is killed if not."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(2.0):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
