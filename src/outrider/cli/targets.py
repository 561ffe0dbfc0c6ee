"""What every command that takes targets shares: the arguments, and how they become targets and options.

Decided here: the spelling of targets on a command line. Not here: what a target is (`client.target`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from outrider.cli.text import visible
from outrider.client.target import ClientOptions, Pin, Target, parse_target
from outrider.errors import ConfigError

__all__ = ["TargetCommand", "client_options", "named_targets", "target_options"]

F = TypeVar("F", bound=Callable[..., Any])

_COMMAND_KEY = "outrider.command"


class TargetCommand(click.Command):
    """A command whose arguments may end in `-- COMMAND ARGS`; what follows the dashes is never taken for an option of ours."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Set the command after `--` aside, then parse the rest."""
        if "--" in args:
            position = args.index("--")
            ctx.meta[_COMMAND_KEY] = tuple(args[position + 1 :])
            if not ctx.meta[_COMMAND_KEY]:
                ctx.fail("a command must follow `--`")
            args = args[:position]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """The usage line, with the command."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND ARGS...]"]


def target_options(function: F) -> F:
    """The arguments that all such commands take."""
    for decorate in reversed(
        (
            click.argument("targets", nargs=-1, metavar="[TARGET]..."),
            click.option(
                "--header",
                "headers",
                multiple=True,
                metavar="'NAME: VALUE'",
                help="Send this header to the URLs. Repeatable.",
            ),
            click.option(
                "--env",
                "env",
                multiple=True,
                metavar="NAME=VALUE",
                help="Set this variable for the command. Repeatable.",
            ),
            click.option("--cwd", metavar="DIR", help="Start the command in this directory."),
            click.option(
                "--timeout",
                "timeout_s",
                type=click.FloatRange(min=0.1),
                metavar="SECONDS",
                help="The limit for each phase of each target.",
            ),
            click.option(
                "--protocol",
                type=click.Choice([pin.value for pin in Pin]),
                default="auto",
                show_default=True,
                help="Which eras may be spoken.",
            ),
            click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else."),
            click.option("-v", "--verbose", is_flag=True, help="Show every message on stderr, secrets masked."),
        )
    ):
        function = decorate(function)
    return function


def named_targets(
    *, targets: tuple[str, ...], headers: tuple[str, ...], env: tuple[str, ...], cwd: str | None, **_: Any
) -> list[tuple[str, Target]]:
    """The targets on the command line, each with the name it is shown under.

    Raises:
        ConfigError: one of them, or an option's value, cannot be used.
    """
    command: tuple[str, ...] = click.get_current_context().meta.get(_COMMAND_KEY, ())
    sent = dict(_split(text, ":", "--header") for text in headers)
    variables = dict(_split(text, "=", "--env") for text in env)
    found: list[tuple[str, Target]] = []
    for text in targets:
        if "://" not in text:
            raise ConfigError(
                f"{visible(text)!r} is not a URL",
                hint=f"to start a command, write: outrider discover -- {visible(text)}",
            )
        target = parse_target(text, headers=sent)
        found.append((target.label, target))
    if command:
        target = parse_target(command, env=variables, cwd=cwd)
        found.append((target.label, target))
    if not found:
        raise ConfigError("no target", hint="name a URL, or a command after `--`; `outrider demo` shows both")
    return found


def _split(text: str, separator: str, option: str) -> tuple[str, str]:
    name, found, value = text.partition(separator)
    if not found or not name.strip():
        raise ConfigError(
            f"{option} needs the form NAME{separator}VALUE",
            hint=f"the value given for {option} has no {separator!r} after a name",
        )
    return name.strip(), value.strip() if separator == ":" else value


def client_options(*, timeout_s: float | None, protocol: str, verbose: bool, **_: Any) -> ClientOptions:
    """The client options that the command line asks for."""
    options: dict[str, Any] = {"pin": Pin(protocol)}
    if timeout_s is not None:
        options.update(start_timeout_s=timeout_s, request_timeout_s=timeout_s, list_timeout_s=timeout_s)
    if verbose:
        options["trace"] = _show_message
    return ClientOptions(**options)


def _show_message(direction: str, line: str) -> None:
    sys.stderr.write(f"{direction} {visible(line)}\n")
