"""The `outrider` command: an argument tree whose commands are short calls into the library.

Decided here: which commands exist, how errors become messages and exit codes. A command's module is imported only when it is used, so that
`outrider --help` stays instant.

Exit codes: 0 all well, 1 some target failed, 2 usage or configuration, 3 a check or verify found something or a lock file
withholds what was called, 4 sign-in needed, 130 Ctrl-C; 128 and the signal's number for another signal that ends a program.
"""

from __future__ import annotations

import importlib
import sys

import click

from outrider._version import __version__
from outrider.cli.streams import EndingSignals, give_up_stdout, prepare_streams, wants_colour
from outrider.cli.text import visible
from outrider.errors import AuthRequired, ConfigError, NotApproved, OutriderError

__all__ = ["EXIT_CONFIG", "EXIT_FAILED", "EXIT_FOUND", "EXIT_OK", "EXIT_SIGN_IN", "main"]

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_CONFIG = 2
EXIT_FOUND = 3
EXIT_SIGN_IN = 4
EXIT_INTERRUPTED = 130

_COMMANDS = {
    "discover": (
        "outrider.cli.discover",
        "What each server is: era, versions, capabilities, lists, and how that is known.",
    ),
    "tools": ("outrider.cli.tools", "The tools of all servers, with what each costs in a model's context."),
    "search": ("outrider.cli.tools", "Find the tools that fit a query."),
    "show": ("outrider.cli.tools", "One tool in full."),
    "call": ("outrider.cli.tools", "Call a tool."),
    "check": ("outrider.cli.check", "Judge a server against the specification's requirements."),
    "lock": ("outrider.cli.lock", "Write down what servers offer; approve what has changed."),
    "verify": ("outrider.cli.lock", "Compare what servers offer with the lock file, and grade every difference."),
    "login": ("outrider.cli.login", "Sign in at a server that demands it."),
    "logout": ("outrider.cli.login", "Forget a sign-in."),
    "whoami": ("outrider.cli.login", "Where you are signed in."),
    "ask": ("outrider.cli.ask_model", "Let a model do a task with the tools of all servers."),
    "run": ("outrider.cli.run", "Serve a Server that is defined in a file, over stdio or HTTP."),
    "config": ("outrider.cli.config", "Which configuration files and servers were found, and how each was read."),
    "cache": ("outrider.cli.cache", "What is remembered; look at it, clear it."),
    "demo": ("outrider.cli.demo", "The whole thing on bundled sample servers, with nothing configured."),
}
"""Command name → module that holds a click command of the same name, and the line for `--help`."""


class _LazyGroup(click.Group):
    """A group that imports a command's module when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, in the order of the table."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now."""
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(_COMMANDS[cmd_name][0]), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in _COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command to run; an unknown name is answered with the nearest ones."""
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], _COMMANDS, 2)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            ctx.fail(f"there is no command {visible(args[0])!r}.{hint}")
        return super().resolve_command(ctx, args)


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="outrider")
def cli() -> None:
    """Find out what any MCP server can do.

    A TARGET is a URL, the name of a configured server, a configuration file, or a command after `--`. Without one, every server
    is meant that the configuration files of the user's MCP clients name.

    \b
        outrider discover
        outrider discover https://example.com/mcp
        outrider discover -- npx -y @modelcontextprotocol/server-everything
        outrider search "create an issue"
    """


def main(args: list[str] | None = None) -> None:
    """The console script: run the command, explain any error, exit with the documented code."""
    prepare_streams()
    with EndingSignals() as signals:
        code = _run(args)
    sys.exit(128 + signals.received if signals.received else code)


def _run(args: list[str] | None) -> int:
    try:
        return _run_command(args)
    except KeyboardInterrupt:
        _tell("Interrupted.")
        return EXIT_INTERRUPTED
    except OSError as error:
        # Of a file it is said where it is opened. What is left is the output: a full disk behind `>`, a terminal that has gone.
        give_up_stdout()
        what = visible(str(error.filename)) if error.filename is not None else "the output"
        _tell(f"Error: {what} cannot be used: {(error.strerror or str(error)).lower()}")
        return EXIT_FAILED


def _tell(text: str) -> None:
    try:
        click.echo(text, err=True)
    except OSError:  # nobody is left to be told
        pass


def _run_command(args: list[str] | None) -> int:
    stdout = sys.stdout
    try:
        result = cli.main(args, prog_name="outrider", standalone_mode=False, color=wants_colour())
        return result if isinstance(result, int) else EXIT_OK
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.Abort:  # What click makes of Ctrl-C, after a line end of its own.
        click.echo("Interrupted.", err=True)
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except ConfigError as error:
        explain(error)
        return EXIT_CONFIG
    except AuthRequired as error:
        explain(error)
        return EXIT_SIGN_IN
    except NotApproved as error:
        explain(error)
        return EXIT_FOUND
    except OutriderError as error:
        explain(error)
        return EXIT_FAILED
    except SystemExit:
        if sys.stdout is not stdout:
            # click has replaced it, because its reader has gone, as with `| head`: nobody is left to tell, and nothing went wrong.
            return EXIT_OK
        raise


def explain(error: OutriderError) -> None:
    """Write an error to stderr: what happened, and what to do next."""
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)  # progress may stand there
    click.echo(f"Error: {visible(str(error))}", err=True)
    if isinstance(error, NotApproved) and error.detail:
        click.echo(f"  {visible(error.detail)}", err=True)
    if error.hint:
        click.echo(f"  → {visible(error.hint)}", err=True)
