"""`outrider lock` and `verify`: write down what servers offer, and tell every difference since.

Decided here: what may be written without being asked about, when somebody is asked, and the exit codes. Not here: what is pinned and how
differences are graded (`catalog.lock`), how they look (`cli.differences`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click
from msgspec import Struct

from outrider.cli import EXIT_FAILED, EXIT_FOUND, EXIT_OK, EXIT_SIGN_IN
from outrider.cli.streams import write_json
from outrider.cli.targets import TargetCommand, named_configs, target_options
from outrider.cli.text import count, visible
from outrider.errors import ConfigError

if TYPE_CHECKING:
    from outrider.catalog.lock import Drift, Lock, ServerPins
    from outrider.catalog.member import ServerConfig
    from outrider.client.report import DiscoveryReport, Failure

__all__ = ["lock", "verify"]

_FILE: Final = "outrider.lock"
_FAIL_ON: Final = ("dangerous", "unreviewed", "breaking", "notice", "never")

State = Literal["same", "drift", "new", "updated", "added", "removed", "not verifiable", "disabled"]


class _Found(Struct):
    """What was found out about one server."""

    key: str
    name: str
    state: State
    pins: ServerPins | None = None
    drifts: tuple[Drift, ...] = ()
    failure: Failure | None = None
    why: str = ""

    @property
    def shown(self) -> str:
        return visible(self.key)

    def as_json(self) -> dict[str, Any]:
        import msgspec

        failure = None if self.failure is None else {"kind": self.failure.kind, "message": self.failure.message}
        return {
            "key": self.key,
            "name": self.name,
            "state": self.state,
            "failure": failure,
            "drifts": msgspec.to_builtins(self.drifts),
        }


@click.command("lock", cls=TargetCommand)
@target_options
@click.option("--file", "file", metavar="FILE", default=_FILE, show_default=True, help="The lock file.")
@click.option(
    "--update",
    "updates",
    multiple=True,
    metavar="NAME",
    help="Approve what this server offers now, after showing every difference. Repeatable.",
)
@click.option("--yes", is_flag=True, help="Approve without being asked; the differences are shown all the same.")
def lock(file: str, updates: tuple[str, ...], yes: bool, as_json: bool, **given: Any) -> int:
    """Write down what each TARGET offers: identity, era, versions, capabilities, instructions, and every definition, part by part.

    A server that is not in the lock file yet is shown and added. One that differs from it is shown and left as it was approved, with exit
    code 3: look at the difference, then approve it with --update NAME. --update of a server that is no longer configured takes it out.
    Servers are always asked; --offline takes what is remembered.

    \b
        outrider lock
        outrider lock --update github
    """
    from outrider.catalog.lock import change_lock

    path = Path(file)
    old = _read(path)
    if updates and yes is False and (as_json or not sys.stdin.isatty()):
        raise ConfigError(
            "nobody can be asked here whether to approve",
            hint="look at `outrider verify` first, then use --update NAME --yes",
        )
    given, gone = _meant(given, updates, old)
    found = _ask(old, given, progress=not as_json) if given["targets"] or not gone else []
    unknown = [name for name in updates if name not in gone and not any(name in (one.key, one.name) for one in found)]
    if unknown:
        raise ConfigError(f"--update {visible(unknown[0])}: no such server is among those that are meant")
    if not as_json:
        _show_before_writing(found, gone, updates)
    changes = _approved(found, gone, updates, known=old.servers if old is not None else (), yes=yes)

    def change(now: Lock | None) -> Lock:
        return _changed(now, old, changes)

    is_written = bool(changes) and change_lock(path, change)
    if as_json:
        write_json(
            {
                "schema": "outrider.lock/1",
                "file": file,
                "written": is_written,
                "servers": [one.as_json() for one in found],
            }
        )
    else:
        _show_written(file, found, is_written)
    return _exit_code(found, _FAIL_ON.index("notice"))


@click.command("verify", cls=TargetCommand)
@target_options
@click.option("--file", "file", metavar="FILE", default=_FILE, show_default=True, help="The lock file.")
@click.option(
    "--fail-on",
    type=click.Choice(_FAIL_ON),
    default="notice",
    show_default=True,
    help="Exit with 3 when something differs by this grade or a graver one.",
)
def verify(file: str, fail_on: str, as_json: bool, **given: Any) -> int:
    """Compare what each TARGET offers with the lock file, and grade every difference.

    Grades: dangerous (it deceives or lowers a guard), unreviewed (new words or powers), breaking (what worked may fail), notice. Without
    TARGET every configured server is compared. A server that does not answer is "not verifiable", never "removed".
    Servers are always asked; --offline takes what is remembered.

    Exit code: 3 something differs, 1 a server could not be compared, 4 it asks for a sign-in, 0 all is as it was approved.
    """
    from outrider.catalog.lock import Lock

    approved = Lock.load(file)
    found = _ask(approved, given, progress=not as_json)
    absent = [] if given["targets"] else sorted(approved.servers.keys() - {one.key for one in found})
    threshold = _FAIL_ON.index(fail_on)
    if as_json:
        write_json(
            {
                "schema": "outrider.verify/1",
                "file": file,
                "servers": [one.as_json() for one in found],
                "notConfigured": absent,
            }
        )
        return _exit_code(found, threshold)
    for one in found:
        _show_state(one, in_full=True)
    for key in absent:
        click.secho(f"{visible(key)}  is in the lock file and not configured here", dim=True)
    drifts = [drift for one in found for drift in one.drifts]
    same = sum(one.state == "same" for one in found)
    told = f"{count(same, 'server')} as approved, {count(len(drifts), 'difference')}"
    failed = sum(one.state == "not verifiable" for one in found)
    click.echo(told + (f", {failed} not verifiable" if failed else ""))
    if drifts:
        click.echo("`outrider lock --update NAME` approves what a server offers now")
    return _exit_code(found, threshold)


# -- asking --------------------------------------------------------------------------------------------------------------------------


def _read(path: Path) -> Lock | None:
    from outrider.catalog.lock import Lock

    return Lock.load(path) if path.exists() else None


def _meant(given: dict[str, Any], updates: Sequence[str], old: Lock | None) -> tuple[dict[str, Any], list[str]]:
    """The servers to ask, and those that are to be taken out of the lock because nothing configures them."""
    from outrider.catalog.sources import load

    if not updates:
        return given, []
    configuration = load(config_files=given["config_files"])
    known = old.servers if old is not None else {}
    gone = [name for name in updates if name in known and not configuration.find(name)]
    if given["targets"] or click.get_current_context().meta.get("outrider.command"):
        return given, []
    return {**given, "targets": tuple(name for name in updates if name not in gone)}, gone


def _ask(approved: Lock | None, given: dict[str, Any], *, progress: bool) -> list[_Found]:
    """Discover every server that is meant, and compare each with the lock."""
    import asyncio

    from outrider.catalog.lock import Lock
    from outrider.cli.discover import discover_configs

    configs, _ = named_configs(**given)
    asked = {**given, "refresh": not given["offline"]}
    reports = asyncio.run(discover_configs(configs, lists=True, progress=progress, **asked))
    known = approved or Lock()
    return [_compared(config, report, known) for config, report in zip(configs, reports, strict=True)]


def _compared(config: ServerConfig, report: DiscoveryReport, known: Lock) -> _Found:
    from outrider.catalog.lock import Portable, grade, pin_server

    one = _Found(config.key, config.name, "same")
    if report.failure is not None:
        one.failure = report.failure
        one.state = "disabled" if report.failure.kind == "disabled" else "not verifiable"
        one.why = report.failure.message
        return one
    portable = Portable(os.path.expanduser("~"), config.resolve().redact)
    pins = pin_server(report, target=config.target, portable=portable, offers=config.offers)
    one.pins, one.drifts = pins, grade(known, config.key, pins, offers=config.offers)
    one.state = "new" if config.key not in known.servers else "drift" if one.drifts else "same"
    if pins.unread:
        one.why = f"its list of {' and '.join(f'{kind}s' for kind in pins.unread)} could not be read to its end"
        one.state = one.state if one.drifts and one.state == "drift" else "not verifiable"
    return one


# -- approving -----------------------------------------------------------------------------------------------------------------------


def _approved(
    found: Sequence[_Found], gone: Sequence[str], updates: Sequence[str], *, known: Collection[str], yes: bool
) -> dict[str, ServerPins | None]:
    """What is to be written, by key; whoever is asked is asked here."""
    changes: dict[str, ServerPins | None] = {}
    for one in found:
        is_wanted = one.key in updates or one.name in updates
        if one.pins is None:
            continue
        if one.pins.unread:
            # What of it can be seen is not enough to approve it; if it was not approved before, nothing is amiss yet.
            one.drifts = () if one.key not in known else one.drifts
            continue
        if one.state == "new":
            changes[one.key], one.state = one.pins, "added"
        elif one.state == "drift" and is_wanted and _agrees(one.shown, yes):
            changes[one.key], one.state = one.pins, "updated"
    for key in gone:
        if _agrees(f"that {visible(key)} is taken out", yes):
            changes[key] = None
    return changes


def _agrees(what: str, yes: bool) -> bool:
    return yes or click.confirm(f"Approve {what}?", default=False, err=True)


def _changed(now: Lock | None, seen: Lock | None, changes: dict[str, ServerPins | None]) -> Lock:
    """The lock to write, made of the one that stands there at this moment.

    Raises:
        ConfigError: somebody else has changed the same server in the meantime.
    """
    from outrider.catalog.lock import Lock

    present, before = now or Lock(), seen or Lock()
    for key, pins in changes.items():
        there = present.servers.get(key)
        if there != before.servers.get(key) and there != pins:
            raise ConfigError(f"{key} was changed in the lock file meanwhile", hint="run the command again")
    return present.replaced(changes)


# -- telling -------------------------------------------------------------------------------------------------------------------------


def _show_before_writing(found: Sequence[_Found], gone: Sequence[str], updates: Sequence[str]) -> None:
    for one in found:
        if one.state == "new" and one.pins is not None:
            _show_offer(one)
        else:
            _show_state(one, in_full=True)
            if one.state == "drift" and not (one.key in updates or one.name in updates):
                click.echo(f"  left as it was approved; approve it with: outrider lock --update {one.shown}")
    for key in gone:
        click.echo(f"{visible(key)}  is no longer configured")


def _show_offer(one: _Found) -> None:
    """A server that is added: everything that will be in the lock file."""
    from outrider.cli.differences import print_drift, print_offer

    assert one.pins is not None
    counts = ", ".join(count(len(items), kind) for kind, items in one.pins.items.items() if items) or "nothing"
    click.secho(f"{one.shown}  new: {counts}", bold=True)
    print_offer("server", one.pins.facts.parts)
    for kind, items in one.pins.items.items():
        for name, definition in items.items():
            print_offer(f"{kind} {name}", definition.parts)
    for drift in one.drifts:
        if drift.kind.value != "new":
            print_drift(drift, in_full=False)


def _show_state(one: _Found, *, in_full: bool) -> None:
    from outrider.cli.differences import print_drift

    if one.state == "same":
        click.echo(f"{click.style(one.shown, bold=True)}  as approved")
        return
    if one.state in ("not verifiable", "disabled"):
        click.secho(f"{one.shown}  {one.state}: {visible(one.why)}", fg="yellow" if one.state != "disabled" else None)
        if one.failure is not None and one.failure.hint:
            click.echo(f"  → {visible(one.failure.hint)}")
        return
    click.secho(f"{one.shown}  {count(len(one.drifts), 'difference')}", bold=True)
    for drift in one.drifts:
        print_drift(drift, in_full=in_full)
    if one.why:
        click.secho(f"  not verifiable any further: {visible(one.why)}", fg="yellow")


def _show_written(file: str, found: Sequence[_Found], is_written: bool) -> None:
    states = ("added", "updated", "same", "drift", "not verifiable", "disabled")
    words = {"same": "as approved", "drift": "not approved"}
    counted = [(state, sum(one.state == state for one in found)) for state in states]
    told = ", ".join(f"{number} {words.get(state, state)}" for state, number in counted if number)
    what = "written" if is_written else "unchanged" if Path(file).exists() else "not written"
    click.echo(f"{visible(file)} {what}" + (f": {told}" if told else ""))


def _exit_code(found: Sequence[_Found], threshold: int) -> int:
    """3 for an unapproved difference, else 1 or 4 for a server that could not be compared."""
    open_drifts = [drift for one in found if one.state in ("drift", "new", "not verifiable") for drift in one.drifts]
    if (
        any(_FAIL_ON.index(drift.severity.value) <= threshold for drift in open_drifts)
        and threshold < len(_FAIL_ON) - 1
    ):
        return EXIT_FOUND
    failed = [one for one in found if one.state == "not verifiable" or (one.pins is not None and one.pins.unread)]
    if not failed:
        return EXIT_OK
    is_sign_in = all(one.failure is not None and one.failure.kind == "auth" for one in failed)
    return EXIT_SIGN_IN if is_sign_in else EXIT_FAILED
