"""Starting a server: find it in a file, and serve it over stdio or HTTP.

Decided here: how `FILE.py[:NAME]` leads to a `Server`, which addresses are bound, and the order of a shutdown. Not here: option parsing
(`cli`).
"""

from __future__ import annotations

import importlib.util
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from outrider.errors import ConfigError
from outrider.server.app import Server
from outrider.server.http import HttpOptions

if TYPE_CHECKING:
    import uvicorn

__all__ = ["load_server", "parse_address", "run", "serve_http"]

_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_DEFAULT_PORT: Final = 8000
_SHUTDOWN_S: Final = 10


def load_server(target: str) -> Server:
    """Import a file and find its server.

    Args:
        target: `FILE.py`, whose only `Server` is taken, or `FILE.py:NAME` for the one of that name.

    Raises:
        ConfigError: no such file, no server in it, more than one without a name, or the file failed to import.
    """
    path_text, colon, name = target.rpartition(":")
    # A Windows drive is not a name: C:\server.py
    if not colon or not name.isidentifier() or len(path_text) <= 1:
        path_text, name = target, ""
    path = Path(path_text).resolve()
    if not path.is_file():
        raise ConfigError(f"there is no file {path_text}", source="FILE.py")
    # Not the file's own name: a file called like a library would stand in the library's place.
    module_name = f"outrider_served_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path_text} cannot be imported as Python", source="FILE.py")
    module = importlib.util.module_from_spec(spec)
    # As with `python FILE.py`: neighbours can be imported, and annotations are resolved through the module.
    sys.path.insert(0, str(path.parent))
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigError(f"importing {path_text} failed: {type(error).__name__}: {error}", source=path_text) from error
    if name:
        found = getattr(module, name, None)
        if not isinstance(found, Server):
            raise ConfigError(f"{path_text} has no Server named {name}", source=path_text)
        return found
    servers = {key: value for key, value in vars(module).items() if isinstance(value, Server)}
    distinct = {id(value): key for key, value in servers.items()}
    if len(distinct) != 1:
        names = ", ".join(sorted(servers)) or "none"
        raise ConfigError(
            f"{path_text} must have exactly one Server, or name it as FILE.py:NAME; it has {names}", source=path_text
        )
    return next(iter(servers.values()))


def parse_address(text: str) -> tuple[str, int]:
    """`HOST:PORT`, `:PORT`, `PORT` or `[IPv6]:PORT` as host and port; the host is loopback unless given, port 0 is any free one.

    Raises:
        ConfigError: it is none of these.
    """
    host, _, port_text = text.rpartition(":")
    if not port_text.isdecimal() and host == "":
        host, port_text = port_text, str(_DEFAULT_PORT)
    host = host.strip("[]") or "127.0.0.1"
    if not port_text.isdecimal() or int(port_text) > 65535:
        raise ConfigError(f"{text!r} is not HOST:PORT", source="--http")
    return host, int(port_text)


def run(
    target: str | Server,
    *,
    http: str | None = None,
    path: str = "/mcp",
    legacy: bool = True,
    options: HttpOptions | None = None,
) -> None:
    """Serve until told to stop. Blocks.

    Args:
        target: a server, or where to find it; see `load_server`.
        http: an address for HTTP, see `parse_address`; None for stdio.
        path: the MCP endpoint's path over HTTP.
        legacy: whether clients of the handshake revisions are served too.
        options: see `HttpOptions`.

    Raises:
        ConfigError: the server cannot be found or the address cannot be bound.
    """
    server = load_server(target) if isinstance(target, str) else target
    if http is None:
        server.run(legacy=legacy)
        return
    host, port = parse_address(http)
    serve_http(server, host, port, path=path, legacy=legacy, options=options)


def serve_http(
    server: Server, host: str, port: int, *, path: str = "/mcp", legacy: bool = True, options: HttpOptions | None = None
) -> None:
    """Serve over HTTP on uvicorn, with uvloop where there is one, until SIGINT or SIGTERM. Blocks.

    At the signal no new connection is taken, listen streams are ended in an orderly way, requests in progress have ten seconds.

    Raises:
        ConfigError: the address cannot be bound.
    """
    uvicorn_server = _make_uvicorn(server, path=path, legacy=legacy, options=options)
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror or error}", source="--http") from error
    bound_port = listening.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    print(f"{server.name} serves MCP at http://{shown}:{bound_port}{path}", file=sys.stderr, flush=True)
    if host not in _LOOPBACK:
        print("It is reachable from other machines; see allowed_hosts and authenticate.", file=sys.stderr, flush=True)
    uvicorn_server.run(sockets=[listening])


def _make_uvicorn(server: Server, *, path: str, legacy: bool, options: HttpOptions | None) -> uvicorn.Server:
    import uvicorn

    class StreamEndingServer(uvicorn.Server):
        # uvicorn waits for open responses before it tells the app of the shutdown; listen streams never end by themselves.
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            server.close_streams()
            await super().shutdown(sockets)

    app: Any = server.asgi(path, legacy=legacy, options=options)
    config = uvicorn.Config(
        app,
        loop="auto",
        http="auto",
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=_SHUTDOWN_S,
        server_header=False,
    )
    return StreamEndingServer(config)
