"""`outrider login`, `logout`, `whoami`: signing in at servers that demand it, for all other commands.

Decided here: what a person is told and asked. Not here: the steps of signing in (`client.auth`).
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from outrider.cli import EXIT_OK, EXIT_SIGN_IN
from outrider.cli.streams import write_json
from outrider.cli.targets import named_configs
from outrider.cli.text import visible
from outrider.errors import ConfigError, TransportError

if TYPE_CHECKING:
    from outrider.client.auth.flow import OAuthClient
    from outrider.client.auth.store import Grant, UserStore
    from outrider.client.target import HttpTarget

__all__ = ["login", "logout", "whoami"]

SIGNED_IN_SCHEMA = "outrider.signed-in/1"
_SECRET_VARIABLE = "OUTRIDER_CLIENT_SECRET"
_KEY_VARIABLE = "OUTRIDER_CLIENT_KEY_FILE"

_config_option = click.option(
    "--config", "config_files", multiple=True, metavar="FILE", help="Look for the server's name in this file."
)


@click.command("login")
@click.argument("target")
@_config_option
@click.option(
    "--no-browser", is_flag=True, help="Show the page's address instead of opening it: sign in on any machine."
)
@click.option(
    "--client-id", default="", metavar="ID", help="A client registered beforehand, or the URL of its metadata document."
)
@click.option("--scope", "scopes", multiple=True, metavar="SCOPE", help="Ask for this scope too. Repeatable.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=1),
    default=600.0,
    metavar="SECONDS",
    help="How long you may take.",
)
def login(
    target: str,
    config_files: tuple[str, ...],
    no_browser: bool,
    client_id: str,
    scopes: tuple[str, ...],
    timeout_s: float,
) -> int:
    """Sign in at TARGET, a URL or the name of a configured server; all other commands use that from then on.

    A browser is opened at the page of the server's authorization server. Where there is none, and with --no-browser, the page's address is
    shown: open it anywhere, and paste the address that the browser ends at, even if it says that nothing is to be seen there.

    The secret of a client that has one is read from OUTRIDER_CLIENT_SECRET, or its private key from the file that OUTRIDER_CLIENT_KEY_FILE
    names.
    """
    from outrider.client.auth.store import UserStore

    server = _server(target, config_files)
    grant = asyncio.run(_login(server, UserStore(), no_browser, client_id, scopes, timeout_s))
    if grant is None:
        click.echo(f"{server.label} asks nobody to sign in.")
        return EXIT_OK
    click.echo(f"Signed in at {visible(server.label)} with {visible(grant.issuer)}.")
    if grant.granted:
        click.echo(f"Allowed: {visible(' '.join(grant.granted))}")
    return EXIT_OK


async def _login(
    server: HttpTarget, store: UserStore, no_browser: bool, client_id: str, scopes: tuple[str, ...], timeout_s: float
) -> Grant | None:
    from outrider.client.auth.authorizer import Challenge
    from outrider.client.auth.browser import Browser, open_system_browser
    from outrider.client.auth.flow import OAuth
    from outrider.client.client import Client
    from outrider.client.target import ClientOptions

    paste = _paste if sys.stdin.isatty() or no_browser else None
    agent = Browser(_show_page, open_page=None if no_browser else open_system_browser, paste=paste, timeout_s=timeout_s)
    auth = OAuth(store, client=_client(client_id, scopes), agent=agent, start_anew=True)
    client = Client(server, ClientOptions(auth=auth))
    try:
        async with client:
            pass
    finally:
        await client.close()
    if auth.grant(server.url) is None and await _is_protected(server):
        # It lets everybody look at what it is, and asks only for what it does.
        await auth.sign_in(server.url, Challenge(401))
    return auth.grant(server.url)


async def _is_protected(server: HttpTarget) -> bool:
    """Whether a server that refused nothing says all the same where one signs in."""
    from outrider.client.auth.lookup import look_up

    try:
        await look_up(server.url)
    except TransportError:
        return False
    return True


def _client(client_id: str, scopes: tuple[str, ...]) -> OAuthClient:
    from outrider.client.auth.flow import OAuthClient

    key_file, key = os.environ.get(_KEY_VARIABLE, ""), ""
    if key_file:
        try:
            with open(key_file, encoding="ascii") as file:
                key = file.read()
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"the private key cannot be read: {type(error).__name__}", source=_KEY_VARIABLE
            ) from error
    if client_id.startswith("https://"):
        return OAuthClient(metadata_url=client_id, scopes=scopes)
    return OAuthClient(client_id, os.environ.get(_SECRET_VARIABLE, ""), key, scopes=scopes)


def _show_page(url: str, opened: bool) -> None:
    if opened:
        click.echo("Your browser is open at the sign-in page. If it is not, open this address yourself:", err=True)
    else:
        click.echo("Open this address in a browser:", err=True)
    # In full: whoever signs in must see where the browser goes. It holds no secret, only digests of ours.
    click.echo(f"\n  {visible(url)}\n", err=True)
    if not opened:
        click.echo("If the browser ends at a page that it cannot show, paste that page's address here:", err=True)


async def _paste() -> str:
    """One line of standard input, read without keeping the process alive when the browser is faster.

    asyncio's own pipes would leave the terminal in non-blocking mode, for the shell as well.
    """
    loop, line = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()
    descriptor, read = sys.stdin.fileno(), bytearray()

    def readable() -> None:
        data = os.read(descriptor, 65_536)
        read.extend(data)
        if not data or len(read) > 65_536:
            loop.remove_reader(descriptor)  # No more input of use: only the browser is left.
        elif b"\n" in read and not line.done():
            line.set_result(read.decode(errors="replace"))

    try:
        loop.add_reader(descriptor, readable)
    except (OSError, ValueError, NotImplementedError):  # A file, nothing, or a system without the means.
        await asyncio.Event().wait()
    try:
        return str(await line)
    finally:
        loop.remove_reader(descriptor)


@click.command("logout")
@click.argument("target")
@_config_option
def logout(target: str, config_files: tuple[str, ...]) -> int:
    """Forget the sign-in at TARGET, and give its tokens back where the authorization server takes them."""
    from outrider.client.auth.flow import OAuth
    from outrider.client.auth.store import UserStore

    server = _server(target, config_files)
    was_there = asyncio.run(OAuth(UserStore()).sign_out(server.url))
    click.echo(
        f"Signed out at {visible(server.label)}." if was_there else f"Nobody was signed in at {visible(server.label)}."
    )
    return EXIT_OK


@click.command("whoami")
@click.argument("target", required=False)
@_config_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
def whoami(target: str | None, config_files: tuple[str, ...], as_json: bool) -> int:
    """Where you are signed in, with which authorization server, for what and until when; never the tokens.

    With a TARGET, exit code 4 says that nobody is signed in there.
    """
    from outrider.client.auth.store import UserStore

    grants = UserStore().grants()
    if target is not None:
        url = _server(target, config_files).url
        grants = [grant for grant in grants if grant.url == url]
    if as_json:
        write_json({"schema": SIGNED_IN_SCHEMA, "signedIn": [_as_json(grant) for grant in grants]})
    elif not grants:
        click.echo("Nobody is signed in there." if target is not None else "You are signed in nowhere.")
    else:
        for grant in grants:
            click.echo(
                f"{visible(_shown_url(grant))}\n  with {visible(grant.issuer)} as client {visible(grant.client.client_id)}"
            )
            click.echo(
                f"  allowed: {visible(' '.join(grant.granted)) or 'what the server gives by default'}; {_validity(grant)}"
            )
    return EXIT_SIGN_IN if target is not None and not grants else EXIT_OK


def _as_json(grant: Grant) -> dict[str, Any]:
    return {
        "target": _shown_url(grant),
        "issuer": grant.issuer,
        "clientId": grant.client.client_id,
        "scopes": list(grant.granted),
        "expiresAtMs": None if grant.expires_at is None else int(grant.expires_at * 1000),
        "renewable": bool(grant.refresh_token),
    }


def _shown_url(grant: Grant) -> str:
    from outrider.redaction import show_url

    return show_url(grant.url)


def _validity(grant: Grant) -> str:
    if grant.refresh_token:
        return "renewed by itself"
    if grant.expires_at is None:
        return "until the server says otherwise"
    left_s = grant.expires_at - time.time()
    return f"for another {left_s / 60:.0f} min" if left_s > 0 else "expired: sign in again"


def _server(target: str, config_files: tuple[str, ...]) -> HttpTarget:
    """The one URL that a command line names, directly or by a configured server's name."""
    from outrider.client.target import HttpTarget

    configs, _ = named_configs(targets=(target,), config_files=config_files, headers=(), env=(), cwd=None)
    if len(configs) != 1:
        raise ConfigError(f"{target!r} names {len(configs)} servers", hint="name one of them")
    server = configs[0].resolve()
    if not isinstance(server, HttpTarget):
        raise ConfigError(
            f"{server.label} is a command: it takes its credentials from its environment", hint="give them with env"
        )
    if server.has_authorization:
        raise ConfigError(
            f"{server.label} is configured with an Authorization header, which goes before any sign-in",
            hint="remove the header from the configuration",
        )
    return server
