"""The shape of the package: layers, purity, names, light imports, and documentation of everything public."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import json
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import outrider

SOURCE = Path(outrider.__file__).resolve().parent

# What each part may import, besides itself. Imports point down only.
LAYERS: dict[str, frozenset[str]] = {
    "errors": frozenset(),
    "redaction": frozenset(),
    "characters": frozenset(),
    "protocol": frozenset({"errors"}),
    "tracing": frozenset({"errors", "protocol"}),
    "cache": frozenset({"errors", "redaction", "protocol"}),
    "server": frozenset({"errors", "redaction", "protocol", "tracing", "cache"}),
    "client": frozenset({"errors", "redaction", "protocol", "tracing", "cache"}),
    "catalog": frozenset({"errors", "redaction", "characters", "protocol", "tracing", "cache", "client"}),
    "checker": frozenset({"errors", "redaction", "protocol", "cache", "client"}),
    # Programs for the demo, started as processes of their own; those on our own server import it.
    "samples": frozenset({"errors", "redaction", "protocol", "cache", "server"}),
    "gateway": frozenset({"errors", "redaction", "protocol", "cache", "client", "server", "catalog"}),
}
# Parts that stand above all layers: they assemble, and nothing but the launcher imports them.
TOP = frozenset({"cli", "__init__", "__main__"})

# Whatever reads the world or waits for it. The protocol core is told everything it needs.
IMPURE = frozenset(
    {
        *(
            "asyncio",
            "concurrent",
            "multiprocessing",
            "queue",
            "sched",
            "selectors",
            "signal",
            "subprocess",
            "threading",
        ),
        *("datetime", "time", "zoneinfo"),
        *("http", "socket", "socketserver", "ssl", "urllib.request"),
        *("fileinput", "glob", "io", "logging", "os", "pathlib", "shutil", "sqlite3", "tempfile"),
        *("random", "secrets", "uuid"),
        *("aiohttp", "anyio", "click", "redis", "rich", "tantivy", "uvicorn", "uvloop"),
    }
)
# Modules of this kind collect what nobody found a place for.
FORBIDDEN_NAMES = frozenset({"utils", "util", "helpers", "helper", "common", "shared", "misc", "base"})
# What costs import time and is needed only by some: loaded when first used.
HEAVY = frozenset(
    {
        "aiohttp",
        "authlib",
        "joserfc",
        "keyring",
        "cryptography",
        "opentelemetry",
        "jsonschema_rs",
        "redis",
        "rich",
        "sqlite3",
        "tantivy",
        "uvicorn",
        "yaml",
    }
)


def modules() -> Iterator[tuple[str, Path]]:
    """The dotted name below ``outrider`` and the file of every module, packages named ``package.__init__``."""
    for path in sorted(SOURCE.rglob("*.py")):
        yield ".".join(path.relative_to(SOURCE).with_suffix("").parts), path


MODULES = dict(modules())


def imports(name: str) -> set[str]:
    """The absolute names of everything that a module imports, at the top or inside functions, but not for typing only."""
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    package = ["outrider", *name.split(".")[:-1]]
    found: set[str] = set()
    for node in without_typing_blocks(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*start, *([node.module] if node.module else [])])
            # `from outrider.protocol import framing` imports outrider.protocol.framing.
            found.update(f"{module}.{alias.name}" for alias in node.names)
    return found


def without_typing_blocks(node: ast.AST) -> Iterator[ast.AST]:
    """Every node of a tree except those under ``if TYPE_CHECKING:``."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            for other in child.orelse:
                yield other
                yield from without_typing_blocks(other)
            continue
        yield child
        yield from without_typing_blocks(child)


def part_of(module: str) -> str:
    """The layer that a module below ``outrider`` belongs to."""
    return module.split(".")[0]


@pytest.mark.parametrize("name", MODULES)
def test_imports_point_down_only(name: str) -> None:
    """Ours: cli > gateway > catalog, checker > server, client > cache > protocol > errors; server and client are strangers,
    and checker knows neither server nor catalog, because it must be able to judge us.
    """
    part = part_of(name)
    if part in TOP or part.startswith("_"):
        return
    assert part in LAYERS, f"{part} is in no layer: give it one in LAYERS, or list it in TOP"
    used = {imported.split(".")[1] for imported in imports(name) if imported.startswith("outrider.")}
    # Names such as `outrider.__version__` live in leaf modules that anything may read.
    above = {other for other in used - LAYERS[part] - {part} if other in LAYERS or other in TOP}
    assert not above, f"{name} imports {', '.join(sorted(above))}"


@pytest.mark.parametrize("name", [name for name in MODULES if part_of(name) == "protocol"])
def test_protocol_core_is_pure(name: str) -> None:
    """Ours: what the specification says is decided without an event loop, a clock, a socket, a file or a dice."""
    used = imports(name)
    impure = {bad for bad in IMPURE for module in used if module == bad or module.startswith(f"{bad}.")}
    assert not impure, f"{name} imports {', '.join(sorted(impure))}"
    for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
        assert not isinstance(node, ast.AsyncFunctionDef | ast.Await), f"{name}:{node.lineno} is asynchronous"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"open", "print", "input"}, f"{name}:{node.lineno} calls {node.func.id}"


def test_one_module_knows_opentelemetry() -> None:
    """Ours: it is an extra, and its conventions still change; what depends on it is in one place."""
    known = {name for name in MODULES if any(module.split(".")[0] == "opentelemetry" for module in imports(name))}
    assert known == {"tracing"}


@pytest.mark.parametrize("name", MODULES)
def test_module_names_say_what_is_inside(name: str) -> None:
    """Ours: no dumping grounds."""
    assert not FORBIDDEN_NAMES & set(name.split("."))


def test_import_of_the_package_is_light() -> None:
    """Ours: ``import outrider`` loads no HTTP stack, no search engine, no terminal library."""
    script = "import json, sys, outrider; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout)
    assert not HEAVY & set(loaded)


@pytest.mark.parametrize("command", ["discover", "tools", "call", "check", "lock"])
def test_help_of_a_command_loads_neither_client_nor_event_loop(command: str) -> None:
    """Ours: whoever asks how a command is spelt has nothing to wait for."""
    script = (
        "import json, sys\nfrom outrider.cli import cli\n"
        "cli.main([sys.argv[1], '--help'], standalone_mode=False)\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script, command], capture_output=True, check=True)
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert not loaded & {*HEAVY, "asyncio", "outrider.client", "outrider.catalog"}


def importable() -> list[str]:
    """Every module that can be imported here, by its full name."""
    return ["outrider", *(found.name for found in pkgutil.walk_packages(outrider.__path__, "outrider."))]


@pytest.mark.parametrize("name", [name for name in importable() if not name.endswith("__main__")])
def test_everything_public_is_documented(name: str) -> None:
    """Ours: a module says what it decides, and every name in its ``__all__`` has a docstring, methods included."""
    module = importlib.import_module(name)
    assert module.__doc__, f"{name} has no docstring"
    undocumented = [
        label
        for public in getattr(module, "__all__", [])
        for label, documented in docstrings(module, public)
        if not documented
    ]
    assert not undocumented, ", ".join(undocumented)


def docstrings(module: ModuleType, public: str) -> Iterator[tuple[str, bool]]:
    """A public name, and the public methods of a class of ours, each with whether it has a docstring."""
    value = getattr(module, public)
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        return  # Constants and type aliases have no docstring at run time.
    yield public, has_docstring(value)
    if not inspect.isclass(value) or not value.__module__.startswith("outrider"):
        return
    for name, member in vars(value).items():
        if name.startswith("_"):
            continue
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if inspect.isfunction(function):
            yield f"{public}.{name}", has_docstring(function) or overrides(value, name)


def has_docstring(value: object) -> bool:
    """Tells whether a docstring was written, as opposed to the signature that dataclasses put there."""
    text = inspect.getdoc(value) or ""
    return bool(text) and not text.startswith(f"{getattr(value, '__name__', '')}(")


def overrides(owner: type, name: str) -> bool:
    """Tells whether a method's meaning is documented where it is first declared."""
    return any(getattr(vars(parent).get(name), "__doc__", None) for parent in owner.__mro__[1:])
