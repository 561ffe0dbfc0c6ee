"""Outrider, the discovery layer for MCP.

`discover` says what any MCP server is; `connect` talks to one, the same way in both eras; `Server` is one. Everything here is loaded when
it is first used: importing the package costs no HTTP stack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider._version import __version__

if TYPE_CHECKING:
    from outrider.catalog.agent import Agent, AgentOptions
    from outrider.catalog.catalog import Catalog, CatalogOptions
    from outrider.catalog.guards import Guards
    from outrider.catalog.lock import Lock
    from outrider.checker.report import CheckReport
    from outrider.checker.run import CheckOptions, check
    from outrider.client.client import Client, connect
    from outrider.client.discover import discover
    from outrider.client.inputs import Elicited, FormRequest, InputHandlers, UrlRequest
    from outrider.client.listing import Listing
    from outrider.client.report import DiscoveryReport
    from outrider.client.session import Change, Progress
    from outrider.client.target import ClientOptions, HttpTarget, Pin, StdioTarget
    from outrider.errors import (
        AuthRequired,
        ConfigError,
        InputNeeded,
        LocalProtocolError,
        NoCommonVersion,
        NotApproved,
        OutriderError,
        PeerError,
        RemoteProtocolError,
        TimedOut,
        TransportError,
    )
    from outrider.protocol.versions import Era
    from outrider.server.app import Server, ServerOptions
    from outrider.server.content import ToolError
    from outrider.server.context import Context

_HOMES = {
    "CheckOptions": "outrider.checker.run",
    "CheckReport": "outrider.checker.report",
    "check": "outrider.checker.run",
    "Client": "outrider.client.client",
    "Listing": "outrider.client.listing",
    "connect": "outrider.client.client",
    "discover": "outrider.client.discover",
    "Agent": "outrider.catalog.agent",
    "AgentOptions": "outrider.catalog.agent",
    "Guards": "outrider.catalog.guards",
    "Lock": "outrider.catalog.lock",
    "Catalog": "outrider.catalog.catalog",
    "CatalogOptions": "outrider.catalog.catalog",
    "Elicited": "outrider.client.inputs",
    "FormRequest": "outrider.client.inputs",
    "InputHandlers": "outrider.client.inputs",
    "UrlRequest": "outrider.client.inputs",
    "DiscoveryReport": "outrider.client.report",
    "Change": "outrider.client.session",
    "Progress": "outrider.client.session",
    "ClientOptions": "outrider.client.target",
    "HttpTarget": "outrider.client.target",
    "Pin": "outrider.client.target",
    "StdioTarget": "outrider.client.target",
    "Era": "outrider.protocol.versions",
    "Server": "outrider.server.app",
    "ServerOptions": "outrider.server.app",
    "ToolError": "outrider.server.content",
    "Context": "outrider.server.context",
    "AuthRequired": "outrider.errors",
    "ConfigError": "outrider.errors",
    "InputNeeded": "outrider.errors",
    "LocalProtocolError": "outrider.errors",
    "NoCommonVersion": "outrider.errors",
    "NotApproved": "outrider.errors",
    "OutriderError": "outrider.errors",
    "PeerError": "outrider.errors",
    "RemoteProtocolError": "outrider.errors",
    "TimedOut": "outrider.errors",
    "TransportError": "outrider.errors",
}

__all__ = [
    "Agent",
    "AgentOptions",
    "AuthRequired",
    "Catalog",
    "CatalogOptions",
    "Change",
    "CheckOptions",
    "CheckReport",
    "Client",
    "ClientOptions",
    "ConfigError",
    "Context",
    "DiscoveryReport",
    "Elicited",
    "Era",
    "FormRequest",
    "Guards",
    "HttpTarget",
    "InputHandlers",
    "InputNeeded",
    "Listing",
    "LocalProtocolError",
    "Lock",
    "NoCommonVersion",
    "NotApproved",
    "OutriderError",
    "PeerError",
    "Pin",
    "Progress",
    "RemoteProtocolError",
    "Server",
    "ServerOptions",
    "StdioTarget",
    "TimedOut",
    "ToolError",
    "TransportError",
    "UrlRequest",
    "__version__",
    "check",
    "connect",
    "discover",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'outrider' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
