"""Where servers come from: the config files of the clients people use already, targets, and code.

`load()` finds and reads everything and never raises; `resolve()` fills in one server's placeholders when it is used. The clients are a
table (`clients`); `docs/config.md` shows it, `docs/design/sources.md` says why it is built this way.
"""

from __future__ import annotations

from outrider.catalog.sources.clients import CLIENTS, Client, Level
from outrider.catalog.sources.configuration import Configuration, FileReport, LocalFiles, here, load
from outrider.catalog.sources.entries import Ignored, Origin, Problem, ServerEntry, Transport, command_entry, url_entry
from outrider.catalog.sources.places import ConfigFile, FileSystem, Surroundings, describe_file, find_config_files
from outrider.catalog.sources.reading import ParsedConfig, read_config, read_servers
from outrider.catalog.sources.resolution import ResolvedTarget, resolve
from outrider.catalog.sources.view import configuration_view

__all__ = [
    "CLIENTS",
    "Client",
    "ConfigFile",
    "Configuration",
    "FileReport",
    "FileSystem",
    "Ignored",
    "Level",
    "LocalFiles",
    "Origin",
    "ParsedConfig",
    "Problem",
    "ResolvedTarget",
    "ServerEntry",
    "Surroundings",
    "Transport",
    "command_entry",
    "configuration_view",
    "describe_file",
    "find_config_files",
    "here",
    "load",
    "read_config",
    "read_servers",
    "resolve",
    "url_entry",
]
