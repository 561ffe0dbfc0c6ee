"""What every command that takes targets shares: the arguments, and how they become targets and options.

Decided here: the spelling of targets on a command line. Not here: what a target is (`client.target`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from outrider.cli.completion import complete_servers
from outrider.cli.text import count, visible
from outrider.errors import ConfigError
from outrider.protocol.versions import Pin

# The client is loaded when there is something to ask: `--help` and a slip on the command line need none of it.
if TYPE_CHECKING:
    from outrider.catalog.catalog import CatalogOptions
    from outrider.catalog.member import ServerConfig
    from outrider.catalog.sources import Configuration
    from outrider.client.auth.authorizer import Authorizer
    from outrider.client.target import ClientOptions, Target

__all__ = [
    "TargetCommand",
    "asking_options",
    "catalog_options",
    "client_options",
    "config_option",
    "lock_options",
    "locked",
    "named_configs",
    "target_options",
]

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


def config_option(function: F) -> F:
    """The option of commands that look into configuration files."""
    option = click.option(
        "--config",
        "config_files",
        multiple=True,
        metavar="FILE",
        help="Read this file instead of looking for the clients' files.",
    )
    return option(function)


def target_options(function: F) -> F:
    """The arguments that all such commands take."""
    function = click.option("--offline", is_flag=True, help="Ask nobody; show only what is remembered.")(
        asking_options(function)
    )
    return click.argument("targets", nargs=-1, metavar="[TARGET]...", shell_complete=complete_servers)(function)


def asking_options(function: F) -> F:
    """The options of every command that asks servers, however they are named."""
    for decorate in reversed(
        (
            config_option,
            click.option(
                "--header",
                "headers",
                multiple=True,
                metavar="'NAME: VALUE'",
                help="Send this header to the URLs given. Repeatable.",
            ),
            click.option(
                "--env",
                "env",
                multiple=True,
                metavar="NAME=VALUE",
                help="Set this variable for the command given. Repeatable.",
            ),
            click.option("--cwd", metavar="DIR", help="Start the command given in this directory."),
            click.option(
                "--timeout",
                "timeout_s",
                type=click.FloatRange(min=0.1),
                metavar="SECONDS",
                help="The limit for each phase of each server.",
            ),
            click.option(
                "--protocol",
                type=click.Choice([pin.value for pin in Pin]),
                default="auto",
                show_default=True,
                help="Which eras may be spoken.",
            ),
            click.option("--refresh", is_flag=True, help="Ask, even if what is remembered is fresh."),
            click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else."),
            click.option("-v", "--verbose", is_flag=True, help="Show every message on stderr, secrets masked."),
        )
    ):
        function = decorate(function)
    return function


def lock_options(function: F) -> F:
    """The options of commands that can hold a catalog to a lock file."""
    function = click.option(
        "--on-drift",
        type=click.Choice(["block", "warn", "allow"]),
        default="block",
        show_default=True,
        help="What to do about what differs from the lock file.",
    )(function)
    return click.option(
        "--lock", "lock_file", metavar="FILE", help="Hold the servers to this lock file; see `outrider lock`."
    )(function)


def locked(*, lock_file: str | None = None, on_drift: str = "block", **_: Any) -> dict[str, Any]:
    """The arguments of `Catalog` that the options of `lock_options` mean.

    Raises:
        ConfigError: the lock file cannot be used.
    """
    if lock_file is None:
        return {}
    from outrider.catalog.lock import Lock

    return {"lock": Lock.load(lock_file), "on_drift": on_drift}


def named_configs(
    *,
    targets: tuple[str, ...],
    config_files: tuple[str, ...],
    headers: tuple[str, ...],
    env: tuple[str, ...],
    cwd: str | None,
    **_: Any,
) -> tuple[list[ServerConfig], Configuration]:
    """The servers that the command line means: those it names, or everything that is configured.

    Problems with files are told on stderr and cost nothing else.

    Raises:
        ConfigError: a target means nothing, an option's value cannot be used, or nothing is configured at all.
    """
    from outrider.catalog.configs import config_of
    from outrider.catalog.sources import here, load

    argv: tuple[str, ...] = click.get_current_context().meta.get(_COMMAND_KEY, ())
    named: list[str | tuple[str, ...]] = [*targets, *([argv] if argv else [])]
    sent = dict(_split(text, ":", "--header") for text in headers)
    variables = dict(_split(text, "=", "--env") for text in env)
    if variables and not argv:
        raise ConfigError("--env belongs to a command, and none is given", hint="put the command after `--`")
    if sent and not any("://" in text for text in targets):
        raise ConfigError("--header belongs to a URL, and none is given")
    where = here()
    configuration = load(config_files=config_files, targets=named, where=where)
    for problem in configuration.problems:
        if problem.severity == "error" and named:
            raise ConfigError(problem.message, source=problem.source)
        if problem.severity != "note":
            click.echo(
                f"{problem.severity}: {visible(f'{problem.source}: ' if problem.source else '')}{visible(problem.message)}",
                err=True,
            )
    if not configuration.entries:
        looked = sum(1 for file in configuration.files if file.status == "read")
        raise ConfigError(
            f"no server is configured ({count(looked, 'configuration file')} found)",
            hint="name a URL, or a command after `--`; `outrider config` shows where was looked, `outrider demo` needs nothing",
        )
    return [
        _with_options(config_of(entry, where), sent, variables, cwd) for entry in configuration.entries
    ], configuration


def _with_options(config: ServerConfig, headers: dict[str, str], env: dict[str, str], cwd: str | None) -> ServerConfig:
    """Add what the command line gives to the targets it names: headers to URLs, variables and a folder to commands."""
    if headers or env or cwd:
        from outrider.client.target import StdioTarget, parse_target

        resolve = config.resolve

        def resolve_with_options() -> Target:
            target = resolve()
            if isinstance(target, StdioTarget):
                return parse_target(target, env=env, cwd=cwd)
            return parse_target(target, headers=headers)

        config.resolve = resolve_with_options
    return config


def _split(text: str, separator: str, option: str) -> tuple[str, str]:
    name, found, value = text.partition(separator)
    if not found or not name.strip():
        raise ConfigError(
            f"{option} needs the form NAME{separator}VALUE",
            hint=f"the value given for {option} has no {separator!r} after a name",
        )
    return name.strip(), value.strip() if separator == ":" else value


def client_options(
    *, timeout_s: float | None, protocol: str, verbose: bool, offline: bool = False, may_ask: bool = False, **_: Any
) -> ClientOptions:
    """The client options that the command line asks for."""
    from outrider.client.target import ClientOptions

    options: dict[str, Any] = {"pin": Pin(protocol), "offline": offline, "auth": _signed_in()}
    if timeout_s is not None:
        options.update(start_timeout_s=timeout_s, request_timeout_s=timeout_s, list_timeout_s=timeout_s)
    if verbose:
        options["trace"] = _show_message
    if may_ask:
        from outrider.cli.ask import terminal_inputs

        options["inputs"] = terminal_inputs()
    return ClientOptions(**options)


def _signed_in() -> Authorizer | None:
    """What `outrider login` has left; None where nobody has ever signed in, so that nothing needs to be loaded."""
    from outrider.client.auth.store import UserStore, default_folder

    if not default_folder().is_dir():
        return None
    from outrider.client.auth.flow import OAuth

    return OAuth(UserStore())


def catalog_options(*, semantic: bool = False, **given: Any) -> CatalogOptions:
    """The catalog options that the command line asks for: a command asks once and ends, so it does not watch."""
    from outrider.catalog.catalog import CatalogOptions

    return CatalogOptions(client=client_options(**given), watch=False, semantic=semantic)


def _show_message(direction: str, line: str) -> None:
    sys.stderr.write(f"{direction} {visible(line)}\n")
