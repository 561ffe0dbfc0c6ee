"""The developer commands behind ``./dev``: environments, tests, checks, benchmarks, the demo.

Uses the standard library only, because it runs before anything is installed. It owns ``.venv`` (Outrider and what its own
tests import) and asks ``tests/peers/provision.py`` for everything else that the tests talk to.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STATE = ROOT / ".dev"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".outrider-stamp"

# `pip install --group` came with this version.
OLDEST_PIP = (25, 1)
DOWNLOAD_ATTEMPTS = 3
# What the quick check leaves out: whatever is slow or needs something that is not in .venv.
FAST_TESTS = "not slow and not interop and not conformance and not service"


class SetupFailed(Exception):
    """An environment could not be built; the text says which command failed."""


def main(arguments: Sequence[str]) -> int:
    """Runs one developer command and returns its exit code."""
    parser = argparse.ArgumentParser(prog="./dev", description="Outrider's developer commands.", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], about: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=about, description=about, allow_abbrev=False)
        added.set_defaults(run=run)
        return added

    demo_parser = command("demo", demo, "install Outrider into .venv and show it on its bundled sample servers")
    demo_parser.add_argument("arguments", nargs=argparse.REMAINDER, help="passed to `outrider demo`")
    test_parser = command("test", test, "install everything that the tests need and run all of them")
    test_parser.add_argument("--no-skips", action="store_true", help="a skipped test is a failure")
    check_parser = command("check", check, "the quick subset: lint, format, types and the fast tests")
    check_parser.add_argument("--no-skips", action="store_true", help="a skipped test is a failure")
    command("lint", lint, "ruff check and mypy")
    command("format", reformat, "rewrite the code in the project's format")
    bench_parser = command("bench", bench, "run one benchmark of benchmarks/, peers installed")
    bench_parser.add_argument("name", help="file name without .py")
    bench_parser.add_argument("arguments", nargs=argparse.REMAINDER, help="passed to the benchmark")
    setup_parser = command("setup", setup, "only install, so that the tools in .venv/bin can be used directly")
    setup_parser.add_argument("--peers", action="store_true", help="also the peers that the tests talk to")

    def usage(_options: argparse.Namespace) -> int:
        parser.print_help()
        return 0

    command("help", usage, "show this text")

    options, passed_on = parser.parse_known_args(arguments)
    if passed_on and options.command not in {"test", "check"}:
        parser.error(f"unrecognized arguments: {' '.join(passed_on)}")
    options.passed_on = passed_on
    os.chdir(ROOT)
    try:
        return int(options.run(options))
    except SetupFailed as failure:
        print(f"dev: {failure}", file=sys.stderr)
        return 2


def demo(options: argparse.Namespace) -> int:
    """Shows the product, with nothing but its own dependencies installed."""
    install(with_tools=False)
    return run_tool("outrider", "demo", *options.arguments)


def test(options: argparse.Namespace) -> int:
    """Runs the whole suite, a file at a time on each core. Positional and unknown arguments go to pytest."""
    install(with_tools=True)
    if any(argument.split("=")[0] == "--model" for argument in options.passed_on):
        # Tasks for a model need no peers, and report in one process.
        return pytest(options)
    provision_peers()
    return pytest(options, "-n", "auto", "--dist", "loadfile")


def check(options: argparse.Namespace) -> int:
    """Runs what should be green before every commit, and reports all that is not."""
    install(with_tools=True)
    codes = [
        lint(options),
        run_tool("ruff", "format", "--check", "."),
        pytest(options, "-m", FAST_TESTS, "--quiet"),
    ]
    return max(codes)


def lint(_options: argparse.Namespace) -> int:
    """Runs the linter and the type checker."""
    install(with_tools=True)
    return max(run_tool("ruff", "check", "."), run_tool("mypy"))


def reformat(_options: argparse.Namespace) -> int:
    """Formats the code and sorts the imports."""
    install(with_tools=True)
    return max(run_tool("ruff", "check", "--select", "I", "--fix", "."), run_tool("ruff", "format", "."))


def bench(options: argparse.Namespace) -> int:
    """Runs one benchmark; its peers are those of the tests."""
    script = ROOT / "benchmarks" / f"{options.name}.py"
    if not script.is_file():
        known = ", ".join(sorted(path.stem for path in script.parent.glob("[!_]*.py"))) or "none yet"
        raise SetupFailed(f"no benchmark named {options.name!r} (known: {known})")
    install(with_tools=True)
    provision_peers()
    return subprocess.run([PYTHON, script, *options.arguments], check=False).returncode


def setup(options: argparse.Namespace) -> int:
    """Installs, and runs nothing."""
    install(with_tools=True)
    if options.peers:
        provision_peers()
    return 0


def pytest(options: argparse.Namespace, *arguments: str) -> int:
    """Runs pytest with the caller's arguments after ours, so that theirs win."""
    no_skips = ["--no-skips"] if options.no_skips or os.environ.get("OUTRIDER_NO_SKIPS") == "1" else []
    command = [PYTHON, "-m", "pytest", *arguments, *no_skips, *options.passed_on]
    return subprocess.run(command, check=False).returncode


def run_tool(name: str, *arguments: str) -> int:
    """Runs a program of the virtual environment with the terminal attached."""
    return subprocess.run([VENV / "bin" / name, *arguments], check=False).returncode


def install(*, with_tools: bool) -> None:
    """Makes .venv hold the project, and its test tools if asked, as pyproject.toml says now.

    Does nothing when the stamp shows that this was done before for the same pyproject.toml. An existing .venv is kept and
    added to, never rebuilt while it works.
    """
    wanted = wanted_stamp()
    if wanted_is_installed(wanted, with_tools=with_tools):
        return
    with locked():
        if wanted_is_installed(wanted, with_tools=with_tools):
            return
        say("setting up .venv")
        if not works(PYTHON):
            create_venv()
        upgrade_pip()
        group = ["--group", "dev"] if with_tools else []
        download([PYTHON, "-m", "pip", "install", "--quiet", "--editable", ".", *group])
        STAMP.write_text(f"{wanted} {'tools' if with_tools else 'project'}\n", encoding="ascii")


def wanted_stamp() -> str:
    """A digest of what decides the content of .venv."""
    digest = hashlib.sha256()
    for part in (ROOT / "pyproject.toml", ROOT / "src" / "outrider" / "_version.py"):
        digest.update(part.read_bytes())
    return digest.hexdigest()


def wanted_is_installed(wanted: str, *, with_tools: bool) -> bool:
    """Tells whether .venv holds what is wanted; one with the tools also serves those who need only the project."""
    try:
        digest, level = STAMP.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return False
    return digest == wanted and (level == "tools" or not with_tools) and PYTHON.exists()


def works(python: Path) -> bool:
    """Tells whether an interpreter starts and is new enough (a moved or upgraded system Python leaves broken links)."""
    probe = "import pip, sys; sys.exit(sys.version_info < (3, 11))"
    try:
        return subprocess.run([python, "-c", probe], check=False, capture_output=True).returncode == 0
    except OSError:
        return False


def create_venv() -> None:
    """Creates .venv, installing Debian's venv package first where that is what is missing and can be had."""
    attempt = [sys.executable, "-m", "venv", "--clear", str(VENV)]
    if subprocess.run(attempt, check=False, capture_output=True).returncode == 0:
        return
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    if os.geteuid() == 0 and Path("/usr/bin/apt-get").exists():
        subprocess.run(["apt-get", "update", "-qq"], check=False)
        subprocess.run(["apt-get", "install", "-y", "-qq", package], check=False)
    again = subprocess.run(attempt, check=False, capture_output=True, text=True)
    if again.returncode != 0:
        raise SetupFailed(f"python -m venv failed (on Debian, install {package}):\n{again.stdout}{again.stderr}")


def upgrade_pip() -> None:
    """Brings pip to a version that knows dependency groups."""
    probe = f"import pip, sys; sys.exit(tuple(map(int, pip.__version__.split('.')[:2])) < {OLDEST_PIP})"
    if subprocess.run([PYTHON, "-c", probe], check=False).returncode != 0:
        oldest = ".".join(map(str, OLDEST_PIP))
        download([PYTHON, "-m", "pip", "install", "--quiet", "--upgrade", f"pip>={oldest}"])


def download(command: Sequence[str | Path]) -> None:
    """Runs a command that needs a package index, again after a pause when it fails."""
    environment = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    for attempt in range(1, DOWNLOAD_ATTEMPTS + 1):
        done = subprocess.run(command, check=False, env=environment, stdout=sys.stderr)
        if done.returncode == 0:
            return
        if attempt < DOWNLOAD_ATTEMPTS:
            say(f"attempt {attempt} of {DOWNLOAD_ATTEMPTS} failed, trying again")
            time.sleep(5 * attempt)
    raise SetupFailed(f"failed {DOWNLOAD_ATTEMPTS} times: {' '.join(map(str, command))}")


def provision_peers() -> None:
    """Installs the other implementations and services that the tests talk to. Failures show there, test by test."""
    with locked():
        subprocess.run([sys.executable, ROOT / "tests" / "peers" / "provision.py"], check=False, stdout=sys.stderr)


@contextmanager
def locked() -> Iterator[None]:
    """Keeps two runs at once from installing into the same environments."""
    STATE.mkdir(exist_ok=True)
    with (STATE / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("waiting for another ./dev to finish installing")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def say(text: str) -> None:
    """Tells the person what takes time."""
    print(f"dev: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
