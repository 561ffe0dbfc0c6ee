"""Checks of stdio: what stands on stdout and stderr, start and end of the process."""

from __future__ import annotations

from typing import Final

from outrider.checker.checks import Docket, Phase, check
from outrider.checker.speakers import SPREAD, Answer, Exchange, Outcome, StdioSpeaker
from outrider.checker.subject import Subject, encode

_STDERR_BYTES: Final = 64 * 1024
_START_MS: Final = 5_000.0
EXIT_S: Final = 5.0
"""How long a process may take to exit after the end of its input."""


@check("stdio.start-time", phase=Phase.FIRST)
async def starts_quickly(subject: Subject, docket: Docket) -> None:
    """From the start of the process to its first answer."""
    was_silent = subject.probe is not None and subject.probe.outcome is Outcome.SILENT
    if subject.start_ms is not None and not was_silent:
        docket.require(
            subject.start_ms <= _START_MS,
            "stdio.start-time",
            f"the first answer came after {subject.start_ms / 1000:.1f} s",
        )


@check("stdio.stderr-volume", phase=Phase.HOSTILE)
async def stderr_is_used_sparingly(subject: Subject, docket: Docket) -> None:
    """What was written before anything malformed was sent: complaints about that are fair."""
    volume = max((process.stderr_bytes for process in subject.processes), default=0)
    docket.require(volume <= _STDERR_BYTES, "stdio.stderr-volume", f"{volume:,} bytes were written to stderr")


@check("stdio.cancel", phase=Phase.HOSTILE)
async def stray_cancellation_does_no_harm(subject: Subject, docket: Docket) -> None:
    """A cancellation of a request that never was, then a good request."""
    params = {"requestId": "outrider-check-no-such-request"}
    message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
    sent = await subject.spare.say(encode(message))
    answer = await subject.discover(on=subject.spare)
    docket.require(
        answer.outcome is Outcome.REPLY, "stdio.cancel", f"after it a good request got {answer.shown()}", sent, answer
    )


@check("stdio.survives-probe", "stdio.answers-probe")
async def probe_is_survived(subject: Subject, docket: Docket) -> None:
    """What `server/discover` before the handshake did to a legacy process."""
    probe = subject.probe
    if probe is None:
        return
    docket.require(
        probe.outcome is not Outcome.LOST, "stdio.survives-probe", f"after server/discover {probe.shown()}", probe
    )
    if probe.outcome is not Outcome.LOST:
        docket.require(
            probe.outcome is Outcome.REPLY, "stdio.answers-probe", f"server/discover got {probe.shown()}", probe
        )


@check("stdio.stdout", "stdio.newlines", "stdio.eof", "stdio.exit-code", phase=Phase.LAST)
async def streams_and_end(subject: Subject, docket: Docket) -> None:
    """Every line of stdout so far; then the input of the main process ends."""
    for process in subject.processes:
        for line in process.noise:
            requirement_id = "stdio.newlines" if line.startswith(SPREAD) else "stdio.stdout"
            docket.breach(requirement_id, line.removeprefix(SPREAD), _stdout(line))
    for requirement_id in ("stdio.stdout", "stdio.newlines"):
        docket.keep(requirement_id)
    main = subject.main
    if not isinstance(main, StdioSpeaker):
        return
    if main.has_ended:
        docket.unclear("stdio.eof", "the process had ended before its input did")
        return
    status, elapsed_s = await main.end()
    in_time = elapsed_s <= EXIT_S and (status.code or 0) >= 0
    docket.require(in_time, "stdio.eof", f"after the end of its input it {status} after {elapsed_s:.1f} s")
    if in_time:
        docket.require(status.code == 0, "stdio.exit-code", f"it {status}")


def _stdout(line: str) -> Answer:
    return Answer(outcome=Outcome.OTHER, exchange=Exchange("(stdout)", line, 0.0))
