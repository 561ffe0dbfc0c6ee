"""From what is configured, in files or in code, to the servers of a catalog.

Decided here: what may be given in code, and that a placeholder is filled in when a server is used and not before. Not here: how entries are
read (`sources`), and what a server is then (`member`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from outrider.catalog.member import ServerConfig
from outrider.catalog.sources import ServerEntry, Surroundings, resolve
from outrider.catalog.sources.description import describe_target
from outrider.catalog.sources.entries import assign_keys
from outrider.catalog.sources.reading import read_servers
from outrider.client.target import HttpTarget, Target
from outrider.errors import ConfigError

__all__ = ["config_of", "configs_from_code"]


def config_of(entry: ServerEntry, where: Surroundings) -> ServerConfig:
    """A configured entry as the catalog takes it; its placeholders are filled in when it is used."""
    return ServerConfig(
        entry.key,
        lambda: resolve(entry, where).target(),
        name=entry.name,
        disabled_because=entry.disabled_because,
        allow=entry.allow_tools,
        deny=entry.deny_tools,
        start_timeout_s=entry.start_timeout_s,
        request_timeout_s=entry.request_timeout_s,
        warnings=entry.warnings,
        is_given=entry.origin.client == "command-line",
        target=describe_target(
            url=entry.url.text or "" if entry.url is not None else None,
            argv=(template.text for template in (entry.command, *entry.args) if template is not None),
        ),
    )


def configs_from_code(
    servers: Mapping[str, str | Sequence[str] | Target | Mapping[str, Any]], where: Surroundings
) -> list[ServerConfig]:
    """The configurations of servers given in code, in their order; a key follows from its server's name alone.

    Args:
        servers: by name, a URL, a command as one word or as a list, a target, or a mapping as in a configuration file.
        where: the surroundings in which placeholders are filled in.

    Raises:
        ConfigError: one of them cannot be used.
    """
    written = {name: _as_entry(target) for name, target in servers.items() if not isinstance(target, Target)}
    parsed = read_servers(written, workspace=where.projects()[-1], windows=where.windows)
    entries = {entry.name: entry for entry in parsed.entries}
    unusable = {ignored.name: ignored for ignored in parsed.ignored}
    configs = []
    for name, target in servers.items():
        if name in unusable:
            raise ConfigError(f"the server {name!r} cannot be used: it {unusable[name].reason}")
        (key,) = assign_keys([(name, "code")])
        configs.append(
            _config_of_target(key, name, target)
            if isinstance(target, Target)
            else config_of(replace(entries[name], key=key), where)
        )
    return configs


def _as_entry(target: Any) -> Any:
    """What a configuration file would hold for it; anything else stays as it is, for the reader to refuse."""
    if isinstance(target, str):
        return {"url": target} if "://" in target else {"command": target}
    return {"command": list(target)} if isinstance(target, Sequence) and not isinstance(target, bytes) else target


def _config_of_target(key: str, name: str, target: Target) -> ServerConfig:
    described = describe_target(url=target.url) if isinstance(target, HttpTarget) else describe_target(argv=target.argv)
    return ServerConfig(key, lambda: target, name=name, label=target.label, target=described)
