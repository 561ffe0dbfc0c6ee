"""Placeholders in configured strings: read once into templates, filled in only when a server is used.

Decided here: which spellings stand for a variable, a file, a folder or an answer of the user, and what happens when one has no
value. A client documents some of them (its *dialect*); a spelling that belongs to another client is *foreign*: it is filled in when
there is a value and may be left as it is written when there is none, because the client in whose file it stands would not touch it
and `sh -c 'echo ${i}'` is a legitimate argument. Not here: where a file's dialect is written down (`clients`), and where a foreign
spelling needs a value all the same (`fields`).

A template keeps what it came from, so it can be shown and compared without any value. No message ever contains a value.

Pure, but for the injected reader of `{file:…}` contents.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Literal

import msgspec

from outrider.catalog.sources.wording import shown

__all__ = ["Dialect", "Form", "Reference", "Scope", "Template", "literal", "parse_template", "variable"]

Form = Literal["braced", "default", "env", "places", "bare", "percent", "secrets", "curly", "dollar-file", "handlebars"]
"""A family of spellings: braced `${VAR}`, default `${VAR:-text}`, env `${env:VAR}`, places `${workspaceFolder}` and its kin, bare
`$VAR`, percent `%VAR%` (on Windows only), secrets `${{ secrets.VAR }}`, curly `{env:VAR}` and `{file:path}`, dollar-file
`${file:path}`, handlebars `{{NAME}}`. `$${` always stands for a literal `${`, and `${input:id}` for an answer of the user."""

Dialect = frozenset[Form]

_MAX_NESTING: Final = 8
_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_BRACED: Final = re.compile(rf"({_NAME})(?::-(.*))?", re.DOTALL)
_SECRETS: Final = re.compile(r"\$\{\{\s*(?:secrets|inputs)\.([\w.\-/]+)\s*\}\}")
_OTHERS: Final = re.compile(
    rf"(?P<curly>\{{(?P<kind>env|file):(?P<curly_name>[^{{}}]+)\}})|(?P<handlebars>\{{\{{\s*(?P<bars_name>[\w.]+)\s*\}}\}})"
    rf"|(?P<bare>\$(?P<bare_name>{_NAME}))|(?P<percent>%(?P<percent_name>[A-Za-z_][\w()]*)%)"
)
_PLACES: Final = {
    "workspaceFolder": "workspace",
    "workspaceRoot": "workspace",
    "cwd": "workspace",
    "workspaceFolderBasename": "workspace-name",
    "userHome": "home",
    "pathSeparator": "separator",
    "/": "separator",
}
_UNMISTAKABLE_PLACES: Final = frozenset({"workspaceFolder", "workspaceFolderBasename", "userHome"})
"""Place names that nobody gives to an environment variable: understood in every file."""


class Reference(msgspec.Struct, frozen=True):
    """One placeholder.

    Attributes:
        kind: "env" an environment variable, "input" an answer the client would ask the user for, "file" the contents of a file,
            "place" a folder or separator, "elsewhere" something only the client itself knows.
        name: the variable, input, path, or place ("workspace", "workspace-name", "home", "separator").
        written: the spelling in the file.
        default: what stands in for a variable that is not set; None if the file gives nothing.
        foreign: the client whose file this is does not document the spelling.
    """

    kind: Literal["env", "input", "file", "place", "elsewhere"]
    name: str
    written: str
    default: Template | None = None
    foreign: bool = False


class Template(msgspec.Struct, frozen=True):
    """A configured string, with its placeholders found but not filled in."""

    parts: tuple[str | Reference, ...] = ()

    @property
    def canonical(self) -> str:
        """One spelling for all dialects: equal if and only if two strings mean the same. May hold a secret: not for display."""
        return "".join(
            part.replace("$", "$$") if isinstance(part, str) else f"${{{part.kind}:{part.name}{_default_text(part)}}}"
            for part in self.parts
        )

    @property
    def is_literal(self) -> bool:
        """Whether there is nothing to fill in."""
        return all(isinstance(part, str) for part in self.parts)

    @property
    def text(self) -> str | None:
        """The string itself if there is nothing to fill in, else None."""
        return "".join(part for part in self.parts if isinstance(part, str)) if self.is_literal else None

    def literals(self) -> str:
        """The fixed text, with every placeholder left out: for checks that hold whatever the values are."""
        return "".join(part for part in self.parts if isinstance(part, str))

    def references(self) -> Iterator[Reference]:
        """Every placeholder, those inside defaults included."""
        for part in self.parts:
            if isinstance(part, Reference):
                yield part
                if part.default is not None:
                    yield from part.default.references()

    def written(self) -> str:
        """The string as it stands in the file."""
        return "".join(part if isinstance(part, str) else part.written for part in self.parts)


def _default_text(reference: Reference) -> str:
    return f":-{reference.default.canonical}" if reference.default is not None else ""


def literal(text: str) -> Template:
    """A template without placeholders, whatever `text` contains."""
    return Template((text,)) if text else Template()


def variable(name: str, *, prefix: str = "", default: str | None = None) -> Template:
    """A template that is `prefix` and the value of one environment variable."""
    reference = Reference("env", name, f"${{{name}}}", None if default is None else literal(default))
    return Template((prefix, reference) if prefix else (reference,))


def parse_template(text: str, dialect: Iterable[Form], *, windows: bool = False) -> Template:
    """Find the placeholders in `text`.

    Args:
        text: any string; this never raises.
        dialect: the forms that the client of the file documents.
        windows: whether `%VAR%` counts, where the dialect has it.

    Spec: ours
    """
    return _parse(text, frozenset(dialect), windows, _MAX_NESTING)


def _parse(text: str, dialect: Dialect, windows: bool, nesting: int) -> Template:
    if "$" not in text and "{" not in text and "%" not in text:
        return literal(text)
    parts: list[str | Reference] = []
    fixed: list[str] = []
    position = 0
    closers = _closers(text)
    while position < len(text):
        found, end = _placeholder(text, position, closers, dialect, windows, nesting)
        if isinstance(found, Reference):
            if fixed:
                parts.append("".join(fixed))
                fixed.clear()
            parts.append(found)
        else:
            fixed.append(found)
        position = end
    if fixed:
        parts.append("".join(fixed))
    return Template(tuple(parts))


_PLAIN: Final = re.compile(r"[^$%{]+")
_BRACKETS: Final = re.compile(r"\$\{|\}")


def _placeholder(
    text: str, position: int, closers: dict[int, int], dialect: Dialect, windows: bool, nesting: int
) -> tuple[str | Reference, int]:
    """The placeholder at `position`, or the fixed text there, and the offset behind it."""
    if plain := _PLAIN.match(text, position):
        return plain[0], plain.end()
    if text.startswith("$${", position):
        return "${", position + 3
    if "secrets" in dialect and (secret := _SECRETS.match(text, position)):
        return Reference("env", secret[1], secret[0]), secret.end()
    if text.startswith("${", position) and (end := closers.get(position)) is not None and nesting:
        inner, written = text[position + 2 : end], text[position : end + 1]
        reference = _braced(inner, written, dialect, windows, nesting)
        return (reference, end + 1) if reference else ("${", position + 2)
    if other := _OTHERS.match(text, position):
        if other["curly"] and "curly" in dialect:
            kind: Literal["env", "file"] = "env" if other["kind"] == "env" else "file"
            return Reference(kind, other["curly_name"].strip(), other[0]), other.end()
        if other["handlebars"] and "handlebars" in dialect:
            return Reference("elsewhere", other["bars_name"], other[0]), other.end()
        if other["bare"] and "bare" in dialect:
            return Reference("env", other["bare_name"], other[0]), other.end()
        if other["percent"] and "percent" in dialect and windows:
            return Reference("env", other["percent_name"], other[0]), other.end()
    return text[position], position + 1


def _closers(text: str) -> dict[int, int]:
    """The offset of the `}` that ends each `${`, for all of them in one pass: looking for each alone would be quadratic."""
    closers: dict[int, int] = {}
    open_at: list[int] = []
    for bracket in _BRACKETS.finditer(text):
        if bracket[0] != "}":
            open_at.append(bracket.start())
        elif open_at:
            closers[open_at.pop()] = bracket.start()
    return closers


def _braced(inner: str, written: str, dialect: Dialect, windows: bool, nesting: int) -> Reference | None:
    """What `${inner}` stands for, or None if it is not a placeholder of anybody."""
    if inner in _PLACES and ("places" in dialect or inner in _UNMISTAKABLE_PLACES):
        return Reference("place", _PLACES[inner], written, foreign="places" not in dialect)
    kind, colon, name = inner.partition(":")
    name = name.strip()
    if colon and name and not name.startswith("-"):
        if kind == "env":
            # Unmistakable in any file. The default is nobody's documented form, and has one possible meaning.
            if match := _BRACED.fullmatch(name):
                return _variable_reference(match, written, dialect, windows, nesting, foreign=False)
            return Reference("env", name, written) if "${" not in name else None
        if kind == "input":
            return Reference("input", name, written)
        if kind == "file" and "dollar-file" in dialect:
            return Reference("file", name, written)
        if kind == "workspaceFolder" and "places" in dialect:
            return Reference("elsewhere", f"the workspace folder named {name}", written)
        if kind in ("config", "command") and "places" in dialect:
            return Reference("elsewhere", f"{kind} {name}", written)
    if (match := _BRACED.fullmatch(inner.strip())) is None:
        return None
    form: Form = "braced" if match[2] is None else "default"
    return _variable_reference(match, written, dialect, windows, nesting, foreign=form not in dialect)


def _variable_reference(
    match: re.Match[str], written: str, dialect: Dialect, windows: bool, nesting: int, *, foreign: bool
) -> Reference:
    default = None if match[2] is None else _parse(match[2], dialect, windows, nesting - 1)
    return Reference("env", match[1], written, default, foreign)


class Scope:
    """The values a template is filled in with, and the record of those that were missing.

    Attributes:
        missing: one phrase for each placeholder without a value, in the order met, such as "the environment variable TOKEN".
        hints: what the user can do about them, in the same order, without repeats.
        filled: every value that was filled in, with its placeholder; folders, separators and defaults are not among them.
    """

    def __init__(
        self,
        env: Mapping[str, str],
        *,
        workspace: str = "",
        home: str = "",
        windows: bool = False,
        inputs: Mapping[str, str] | None = None,
        read_file: Callable[[str], str] | None = None,
    ) -> None:
        """Args: `env` variables, names compared without case on Windows; `inputs` answers by id, beside variables named
        OUTRIDER_INPUT_ID; `read_file` gives a file's text, or raises OSError with a `strerror` that may be shown.
        """
        self._env = env
        self._windows = windows
        self._folded = self._by_capitals(env)
        self._inputs = inputs or {}
        self._read_file = read_file
        name = re.split(r"[\\/]", workspace.rstrip("\\/"))[-1]
        self._places = {
            "workspace": workspace,
            "workspace-name": name,
            "home": home,
            "separator": "\\" if windows else "/",
        }
        self.missing: list[str] = []
        self.hints: list[str] = []
        self.filled: dict[str, str] = {}

    def define(self, variables: Mapping[str, str]) -> None:
        """From now on, `variables` have a value too, and win."""
        if variables:
            self._env = {**self._env, **variables}
            self._folded |= self._by_capitals(variables)

    def _by_capitals(self, variables: Mapping[str, str]) -> dict[str, str]:
        return {name.upper(): value for name, value in variables.items()} if self._windows else {}

    def fill(self, template: Template) -> str:
        """The string with every placeholder that has a value filled in; the others are recorded in `missing`.

        A value is never searched for placeholders again.
        """
        return "".join(part if isinstance(part, str) else self._value(part) for part in template.parts)

    def variable(self, name: str) -> str | None:
        """The value of an environment variable, or None if it is not set."""
        value = self._env.get(name)
        return self._folded.get(name.upper()) if value is None else value

    def _value(self, reference: Reference) -> str:
        value = self._lookup(reference)
        if value is not None:
            if reference.kind != "place":
                self.filled.setdefault(
                    value, reference.written if reference.default is None else f"${{{reference.name}}}"
                )
            return value
        if reference.default is not None:
            return self.fill(reference.default)
        return reference.written

    def _lookup(self, reference: Reference) -> str | None:
        match reference.kind:
            case "env":
                value = self.variable(reference.name)
                if value is None and reference.default is None and not reference.foreign:
                    self._miss(f"the environment variable {shown(reference.name)}", f"set {shown(reference.name)}")
            case "place":
                value = self._places.get(reference.name) or None
                if value is None and not reference.foreign:
                    self._miss(f"the folder behind {reference.written}", "run from inside a project")
            case "input":
                variable_name = input_variable(reference.name)
                value = self._inputs.get(reference.name, self.variable(variable_name))
                if value is None:
                    self._miss(f"an answer for the input {shown(reference.name)}", f"set {variable_name}")
            case "file":
                value = self._contents(reference.name)
            case "elsewhere":
                value = None
                self._miss(
                    f"{shown(reference.name)}, which only the client knows", "write the value, or a variable, instead"
                )
        return value

    def _contents(self, path: str) -> str | None:
        try:
            if self._read_file is None:
                raise OSError(0, "files are not read here")
            return self._read_file(path)
        except OSError as error:
            self._miss(f"the file {shown(path)} ({(error.strerror or 'cannot be read').lower()})", "check the path")
            return None

    def _miss(self, what: str, hint: str) -> None:
        if what not in self.missing:
            self.missing.append(what)
        if hint not in self.hints:
            self.hints.append(hint)


def input_variable(name: str) -> str:
    """The environment variable that answers the input `name`: OUTRIDER_INPUT_ and the name in capitals."""
    return "OUTRIDER_INPUT_" + re.sub(r"[^A-Z0-9]+", "_", name.upper()).strip("_")
