"""What is started or called, in words that may be shared. Pure.

Decided here: which words of a command or an address say what it is and can hold neither a secret nor a path of the user's.

Spec: ours
"""

from __future__ import annotations

import ntpath
import re
from collections.abc import Iterable
from typing import Final

__all__ = ["describe_target"]

_PACKAGE_RUNNERS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("npx", "bunx", "pnpx", "uvx"), ()),
    **dict.fromkeys(("pipx", "uv"), ("run", "tool")),
    **dict.fromkeys(("pnpm", "yarn"), ("dlx", "exec")),
}
"""Programs that fetch and run a package, with their subcommands that stand before its name."""
_TAKES_A_VALUE: Final = re.compile(r"-p|--(?:package|from|with|python|directory|project|index-url|registry|cache)")
_PACKAGE: Final = re.compile(r"@?[\w.-]+(?:/[\w.-]+)?(?:@[\w.^~-]+|==[\w.]+)?")
_PROGRAM: Final = re.compile(
    r"(?i)[\w.-]+\.(?:py|pyz|js|mjs|cjs|ts|mts|rb|sh|pl|php|lua|jar|wasm|exe|ps1|bat|cmd|r|jl|exs?)"
)
_URL: Final = re.compile(r"(?i)(https?)://(?:[^/@?#]*@)?(\[[0-9a-f:.]+\]|[\w.-]+)(:\d+)?(?=[/?#]|$)")


def describe_target(*, url: str | None = None, argv: Iterable[str | None] = ()) -> str:
    """What is started or called, in words that may be shared: no path, no secret, nothing that a variable filled in.

    Of a URL the scheme, host and port; of a command its name and what it runs: a package, a module or a program file.

    Args:
        url: the address, or None for a command.
        argv: the command and its arguments, None for each that holds a placeholder.
    """
    if url is not None:
        match = _URL.match(url)
        return f"{match[1].lower()}://{match[2].lower()}{match[3] or ''}" if match else "an address from a variable"
    words = [*argv]
    if not words or words[0] is None:
        return "a command from a variable"
    command = re.sub(r"(?i)\.(?:exe|cmd|bat)$", "", ntpath.basename(words[0]))
    if re.fullmatch(r"python[\d.]*|py", command):
        command = "python"
    return f"{command} {_what_runs(command, words[1:])}".rstrip()


def _what_runs(command: str, arguments: list[str | None]) -> str:
    if command == "python" and "-m" in arguments[:-1]:
        module = arguments[arguments.index("-m") + 1]
        return f"-m {module}" if module is not None and re.fullmatch(r"[\w.]+", module) else "-m"
    subcommands = _PACKAGE_RUNNERS.get(command)
    skips = False
    for argument in arguments:
        name = ntpath.basename(argument or "")
        if _PROGRAM.fullmatch(name):
            return name
        if subcommands is None or skips or argument is None or argument in subcommands or argument.startswith("-"):
            skips = not skips and argument is not None and _TAKES_A_VALUE.fullmatch(argument) is not None
        else:
            return argument if _PACKAGE.fullmatch(argument) else ""
    return ""
