"""`outrider run`: serve a `Server` that is defined in a file."""

from __future__ import annotations

import click

__all__ = ["run"]


@click.command("run")
@click.argument("target", metavar="FILE.py[:NAME]")
@click.option(
    "--http",
    metavar="HOST:PORT",
    help="Serve HTTP at this address instead of stdio; the host is loopback unless given.",
)
@click.option("--path", default="/mcp", show_default=True, help="The MCP endpoint's path over HTTP.")
@click.option("--modern-only", is_flag=True, help="Refuse clients of the handshake revisions (2025-11-25 and older).")
@click.option(
    "--allow-host", multiple=True, metavar="HOST", help="A Host header to accept, such as a proxy's name. Repeatable."
)
@click.option("--allow-origin", multiple=True, metavar="ORIGIN", help="A web page's origin that may call. Repeatable.")
def run(
    target: str,
    http: str | None,
    path: str,
    modern_only: bool,
    allow_host: tuple[str, ...],
    allow_origin: tuple[str, ...],
) -> None:
    """Serve the Server in FILE.py over stdio, or over HTTP with --http.

    Set OUTRIDER_STATE_KEY to the same secret in every process behind one balancer.
    """
    from outrider.server.http import HttpOptions
    from outrider.server.run import run as serve

    options = HttpOptions(allowed_hosts=allow_host, allowed_origins=allow_origin)
    serve(target, http=http, path=path, legacy=not modern_only, options=options)
