"""From a configured command to what the operating system is asked to run: its environment, its file, its command line.

Decided here: which of our environment variables a server inherits, where its program is looked for, what a person is told if it cannot
be run, and how a batch file is called on Windows. Not here: running it (`child`).
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from outrider.errors import ConnectFailed
from outrider.redaction import show_command

__all__ = ["BASE_NAMES", "batch_command_line", "child_environment", "explain_failure", "find_program"]

BASE_NAMES: Final = frozenset(
    {
        # who and where the user is
        *("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"),
        # locale, time zone, temporary files
        *("LANG", "LANGUAGE", "TEMP", "TMP", "TMPDIR", "TZ"),
        # proxies and certificates, without which nothing is reachable in many offices
        *("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"),
        *(
            "CURL_CA_BUNDLE",
            "NIX_SSL_CERT_FILE",
            "NODE_EXTRA_CA_CERTS",
            "REQUESTS_CA_BUNDLE",
            "SSL_CERT_DIR",
            "SSL_CERT_FILE",
        ),
        # where a window can be opened: servers that drive a browser
        *("DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY"),
        # where the container engine is: servers started by `docker run`
        *("DOCKER_CERT_PATH", "DOCKER_CONFIG", "DOCKER_CONTEXT", "DOCKER_HOST", "DOCKER_TLS_VERIFY"),
        # where version managers keep programs: their shims on PATH do not work without
        *(
            "ASDF_DATA_DIR",
            "ASDF_DIR",
            "BUN_INSTALL",
            "FNM_DIR",
            "JAVA_HOME",
            "MISE_DATA_DIR",
            "NVM_DIR",
            "PYENV_ROOT",
            "VOLTA_HOME",
        ),
        # macOS
        "__CF_USER_TEXT_ENCODING",
        # Windows, which starts hardly any program without
        *(
            "ALLUSERSPROFILE",
            "APPDATA",
            "COMMONPROGRAMFILES",
            "COMPUTERNAME",
            "COMSPEC",
            "HOMEDRIVE",
            "HOMEPATH",
            "LOCALAPPDATA",
        ),
        *(
            "NUMBER_OF_PROCESSORS",
            "OS",
            "PATHEXT",
            "PROCESSOR_ARCHITECTURE",
            "PROGRAMDATA",
            "PROGRAMFILES",
            "PROGRAMFILES(X86)",
        ),
        *("PROGRAMW6432", "PUBLIC", "SYSTEMDRIVE", "SYSTEMROOT", "USERDOMAIN", "USERNAME", "USERPROFILE", "WINDIR"),
    }
)
"""The variables a server inherits besides `LC_*` and `XDG_*`. Proxy variables count in lower case too.

None of them is there to hold a secret, but a proxy URL with a password in it is handed on.
"""

_BASE_PREFIXES: Final = ("LC_", "XDG_")
_PROXY_NAMES: Final = frozenset({"all_proxy", "https_proxy", "http_proxy", "no_proxy"})
_SHOWN_PATH_CHARS: Final = 600


def child_environment(
    own: Mapping[str, str], *, ours: Mapping[str, str], inherit_all: bool = False, windows: bool = os.name == "nt"
) -> dict[str, str]:
    """The environment of a server.

    Args:
        own: the entry's own variables; they win.
        ours: the environment of this process.
        inherit_all: hand on all of `ours` instead of the base list.
        windows: whether names differ by more than case, as they do everywhere but there.

    Spec: ours. An environment is where people keep keys, and a server needs only its own.
    """
    environment = {
        name: value
        for name, value in ours.items()
        if inherit_all
        or name in BASE_NAMES
        or name.startswith(_BASE_PREFIXES)
        or name in _PROXY_NAMES
        or (windows and name.upper() in BASE_NAMES)
    }
    if windows:
        replaced = {name.upper() for name in own}
        environment = {name: value for name, value in environment.items() if name.upper() not in replaced}
    environment.update(own)
    return environment


def find_program(
    argv: Sequence[str], environment: Mapping[str, str], cwd: str | None, *, windows: bool = os.name == "nt"
) -> str:
    """The absolute path of the program that `argv[0]` names, looked for as the server itself would look for it.

    A name is looked for along the server's own PATH; a path is relative to its working directory.

    Raises:
        ConnectFailed: it cannot be run; the message says what is wrong, the hint where it was looked for and what to do.
    """
    program = argv[0]
    if cwd is not None and not Path(cwd).is_dir():
        problem = "is not a directory" if Path(cwd).exists() else "does not exist"
        raise ConnectFailed(f"the working directory {cwd!r} {problem}", hint="correct `cwd`")
    if "\0" in "".join(argv):
        raise ConnectFailed("the command holds a NUL character", hint="correct the configuration")
    if windows:
        named = program if Path(program).name == program else str(Path(cwd or ".", program))
        found = shutil.which(named, path=_path_of(environment))
        if found is None:
            raise _not_found(program, environment)
        return str(Path(found).absolute())
    if "/" in program:
        path = Path(cwd or ".", program).absolute()
        _require_runnable(program, path)
        return str(path)
    unusable: ConnectFailed | None = None
    for directory in os.get_exec_path(environment):
        path = Path(cwd or ".", directory, program).absolute()
        if path.exists():
            try:
                _require_runnable(program, path)
            except ConnectFailed as error:
                unusable = unusable or error
            else:
                return str(path)
    raise unusable or _not_found(program, environment)


def _require_runnable(program: str, path: Path) -> None:
    if not path.exists():
        if program.startswith("~"):
            raise ConnectFailed(f"{program!r} does not exist", hint="no shell expands `~` here: write the path out")
        raise ConnectFailed(f"{program!r} does not exist", hint=_spaces_hint(program) or f"looked for {path}")
    if path.is_dir():
        raise ConnectFailed(f"{program!r} is a directory, not a program", hint="name the program inside it")
    if not os.access(path, os.X_OK):
        interpreter = {".py": "python3", ".js": "node", ".mjs": "node", ".ts": "npx tsx", ".sh": "sh"}.get(path.suffix)
        advice = f"run it as `{interpreter} {path.name}`, or allow it with" if interpreter else "allow it with"
        raise ConnectFailed(f"{program!r} is not executable", hint=f"{advice} `chmod +x`: {path}")


def _not_found(program: str, environment: Mapping[str, str]) -> ConnectFailed:
    searched = _path_of(environment)
    if len(searched) > _SHOWN_PATH_CHARS:
        searched = searched[:_SHOWN_PATH_CHARS] + "…"
    advice = {
        "npx": "install Node.js",
        "npm": "install Node.js",
        "node": "install Node.js",
        "uvx": "install uv",
        "uv": "install uv",
        "bunx": "install Bun",
        "docker": "install Docker",
        "python": "try python3",
    }.get(program, "give its full path")
    hint = _spaces_hint(program) or f"{advice}, or set PATH for it; searched was PATH={searched or '(empty)'}"
    return ConnectFailed(f"the command {program!r} was not found", hint=hint)


def _spaces_hint(program: str) -> str:
    return "the command holds spaces: give the arguments separately" if " " in program else ""


def _path_of(environment: Mapping[str, str]) -> str:
    return next((value for name, value in environment.items() if name.upper() == "PATH"), "")


def explain_failure(error: OSError | ValueError, argv: Sequence[str], program: str) -> ConnectFailed:
    """What a person is told when the operating system refused to run `program`, although the file is there."""
    name = argv[0]
    if isinstance(error, OSError):
        if error.errno == errno.ENOENT:
            return ConnectFailed(
                f"the interpreter that {name!r} names in its first line was not found", hint=_first_line(program)
            )
        if error.errno in (errno.ENOEXEC, getattr(errno, "EBADARCH", -1)):
            return ConnectFailed(
                f"{name!r} is not a program for this machine", hint="a script needs a first line such as `#!/bin/sh`"
            )
        if error.errno == errno.EACCES:
            return ConnectFailed(
                f"{name!r} may not be executed", hint=f"check the permissions of {program} and its interpreter"
            )
        if error.errno == errno.E2BIG:
            return ConnectFailed(f"the arguments and environment of {name!r} are too long", hint="shorten them")
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM):
            return ConnectFailed(
                f"{name!r} was not started, because a limit of this machine is reached: {error.strerror}",
                hint="start fewer servers at once, or raise the limit",
            )
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return ConnectFailed(f"{show_command(argv)} was not started: {reason}")


def _first_line(program: str) -> str:
    try:
        with open(program, "rb") as file:
            line = file.readline(200)
    except OSError:
        return "check its first line"
    shown = line.rstrip(b"\n").decode(errors="replace")
    advice = "; the file has Windows line ends: convert them" if line.endswith(b"\r\n") else ""
    return f"its first line is {shown!r}{advice}"


# Whatever else stands in an argument makes the command interpreter of Windows do something with it.
_PLAIN_ARGUMENT: Final = re.compile(r"[A-Za-z0-9#$*+\-./:?@\\_]+")


def batch_command_line(program: str, arguments: Sequence[str]) -> str:
    """The command line that runs a batch file on Windows with exactly these arguments.

    Batch files are run by `cmd.exe`, which has its own idea of quotes and expands `%NAME%` even inside them. Quotes are doubled, which
    both it and the C runtime of the program behind the batch file read as one; each percent sign is followed by the expansion of an
    empty substring of a variable, which leaves a percent sign that starts no name.

    Raises:
        ConnectFailed: an argument holds a line end, which no quoting carries.
    """
    return 'cmd.exe /e:ON /v:OFF /d /c "' + " ".join([f'"{program}"', *map(_batch_argument, arguments)]) + '"'


def _batch_argument(argument: str) -> str:
    if re.search(r"[\r\n]", argument):
        raise ConnectFailed(
            "an argument holds a line end, which a batch file cannot be given", hint="name the program behind it"
        )
    if _PLAIN_ARGUMENT.fullmatch(argument) and not argument.endswith("\\"):
        return argument
    # Backslashes count only before a quote, where the C runtime halves them.
    quoted = re.sub(r'(\\*)"', r'\1\1""', argument)
    quoted = re.sub(r"(\\+)$", r"\1\1", quoted)
    return '"' + quoted.replace("%", "%%cd:~,%") + '"'
