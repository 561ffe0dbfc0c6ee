"""Config files as trees: bytes in, values with line numbers out.

Decided here: how a file is decoded (byte order marks, UTF-16), and how JSON with comments, TOML and YAML become plain dicts, lists
and scalars whose members know their line. A file that cannot be read in full is an error with its position, never a smaller or
empty tree. Not here: which keys mean what (`entries`), where files lie (`clients`).

JSON is read by an own reader. The clients' files are JSON with comments and trailing commas, not JSON5; what is needed beside the
values is the line of every server and of every key that occurs twice, and those no JSON library reports. The reader walks only the
upper levels itself and leaves everything below to the C scanner of the standard library, so a history of several megabytes in the
same file costs milliseconds.

Pure: no file is opened here.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, NoReturn

from outrider.errors import ConfigError

__all__ = ["Document", "Format", "decode_text", "parse_document"]

Format = Literal["json", "toml", "yaml"]

MAX_DEPTH: Final = 100
"""Levels of nesting; the deepest real file seen has eight."""
_TRACKED_LEVELS: Final = 5
"""Levels whose members get a line number: projects / path / mcpServers / name / field is the longest path anybody uses."""
_TRACKED_ARRAY_LEVELS: Final = 3
"""Servers in an array lie at the top, or below mcp / servers; deeper arrays are arguments, or somebody's history."""
_MAX_YAML_NODES: Final = 200_000
"""Nodes and merged members of a YAML file; aliases and merge keys make a few hundred bytes claim millions."""

_MARKS: Final = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))

Path = tuple[str | int, ...]


class Document:
    """A parsed file.

    Attributes:
        value: the root: dict, list, str, int, float, bool or None, nested. An empty file has the value None.
        repeated: (path, line) of every object key that occurs twice in the same object; the last one counts.
    """

    def __init__(self, value: Any, lines: dict[Path, int], repeated: tuple[tuple[Path, int], ...] = ()) -> None:
        self.value = value
        self.repeated = repeated
        self._lines = lines

    def line(self, path: Path) -> int:
        """The 1-based line of the member at `path`, or of the nearest member around it whose line is known; 0 if none is."""
        for length in range(len(path), 0, -1):
            if path[:length] in self._lines:
                return self._lines[path[:length]]
        return 0


def decode_text(data: bytes, *, source: str) -> str:
    """The text of a config file: UTF-8, or UTF-16 where a byte order mark says so; the mark itself is dropped.

    Raises:
        ConfigError: the bytes are neither; `source` gains the position of the first bad byte.

    Spec: ours
    """
    mark, encoding = next((pair for pair in _MARKS if data.startswith(pair[0])), (b"", "utf-8"))
    data = data.removeprefix(mark)
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        before = data[: error.start].decode(encoding, errors="replace")
        position = _position(before, len(before))
        raise ConfigError(
            f"the file is not valid {encoding.upper()}", source=f"{source}:{position}", hint="save it as UTF-8"
        ) from error
    if "\0" in text:
        raise ConfigError(
            "the file contains NUL characters, as UTF-16 without a byte order mark does",
            source=f"{source}:{_position(text, text.index(chr(0)))}",
            hint="save it as UTF-8",
        )
    return text


def parse_document(data: bytes, *, format: Format, source: str) -> Document:
    """Parse the bytes of a config file.

    Args:
        data: the whole file.
        format: "json" includes comments and trailing commas.
        source: the file's name, for errors.

    Raises:
        ConfigError: the file is not well-formed; `.source` is "file:line:column". Nothing else is ever raised.

    Spec: ours
    """
    text = decode_text(data, source=source)
    if not text.strip() or (format == "json" and _JsonReader(text, source).skip(0) == len(text)):
        return Document(None, {})
    parse: Callable[[str, str], Document] = {"json": _parse_json, "toml": _parse_toml, "yaml": _parse_yaml}[format]
    try:
        return parse(text, source)
    except RecursionError as error:
        raise ConfigError(f"nested more than {MAX_DEPTH} levels deep", source=source) from error


def _position(text: str, offset: int) -> str:
    """`offset` as "line:column", both counted from 1, the column in characters."""
    line_start = max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset) if "\n" not in text[:offset] else -1) + 1
    return f"{_line_at(text, offset)}:{offset - line_start + 1}"


def _line_at(text: str, offset: int) -> int:
    newlines = text.count("\n", 0, offset)
    return newlines + 1 if newlines or "\n" in text else text.count("\r", 0, offset) + 1


# ---- JSON with comments and trailing commas ---------------------------------------------------------------------------------------

_BLANK: Final = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)


_BLANK_STARTS: Final = frozenset(" \t\r\n/")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


_decoder: Any = json.JSONDecoder(parse_constant=_refuse_constant)
_scan_once: Final[Callable[[str, int], tuple[Any, int]]] = _decoder.scan_once
"""One JSON value at an offset, and the offset behind it: the decoder's own scanner, in C, which unlike `raw_decode` says where a
value that does not start at all was expected."""


_SCANNER_WORDS: Final = (
    ("Invalid \\escape", "a backslash in a string must be doubled", 'write "C:\\\\Users" for C:\\Users'),
    ("Invalid control character", "a line break, tab or other control character stands in a string", r"write \n or \t"),
    ("Unterminated string", "the string that starts here never ends", ""),
    ("Invalid \\u", "\\u must be followed by four hexadecimal digits", r'write "C:\\Users" for C:\Users'),
)
"""What the standard library's scanner says, what is said instead, and what to do about it."""


def _misplaced(text: str, offset: int) -> str:
    """A clause about the character at `offset`, if it is one that people mistake for something else, or cannot see."""
    found = text[offset : offset + 1]
    if found == "#":
        return "; comments start with //"
    if found and found in "'‘’“”„«»":
        return '; strings need straight double quotes (")'
    if found and found not in "\r\n" and not (found.isprintable() and not found.isspace()):
        return f"; an invisible character, U+{ord(found):04X}, is there: delete it"
    word = re.match(r"[A-Za-z_$][\w$]*", text[offset : offset + 100])
    if word and word[0].lower() in ("true", "false", "null", "none", "undefined"):
        return "; the words of JSON are true, false and null"
    return ""


def _parse_json(text: str, source: str) -> Document:
    reader = _JsonReader(text, source)
    value, end = reader.value(reader.skip(0), (), fast=True)
    end = reader.skip(end)
    if end < len(text):
        reader.fail("unexpected text after the end of the value", end)
    return Document(value, reader.lines, tuple(reader.repeated))


class _JsonReader:
    def __init__(self, text: str, source: str) -> None:
        self._text = text
        self._source = source
        self._newline = "\n" if "\n" in text else "\r"
        self._counted = (
            0,
            1,
        )  # offset and line of the last look-up: members come in order, so each newline is counted once
        self.lines: dict[Path, int] = {}
        self.repeated: list[tuple[Path, int]] = []

    def fail(self, message: str, offset: int, hint: str = "") -> NoReturn:
        raise ConfigError(message, source=f"{self._source}:{_position(self._text, offset)}", hint=hint)

    def skip(self, offset: int) -> int:
        """The offset of the next character that is neither blank nor comment."""
        if self._text[offset : offset + 1] not in _BLANK_STARTS:
            return offset
        match = _BLANK.match(self._text, offset)
        end = match.end() if match else offset
        if self._text.startswith("/*", end):
            self.fail("a comment starts here and never ends", end)
        return end

    def value(self, offset: int, path: Path, *, fast: bool) -> tuple[Any, int]:
        """The value that starts at `offset`, and the offset behind it.

        `fast` is False inside a part that the strict scanner has already refused: trying again at every level would be quadratic.
        """
        text = self._text
        opener = text[offset : offset + 1]
        if not opener:
            self.fail("the file ends where a value is expected", offset)
        if len(path) >= MAX_DEPTH:
            self.fail(f"nested more than {MAX_DEPTH} levels deep", offset)
        if opener not in "{[":
            return self._scalar(offset)
        if fast and len(path) >= (_TRACKED_LEVELS if opener == "{" else _TRACKED_ARRAY_LEVELS):
            try:
                return _scan_once(text, offset)
            except (ValueError, StopIteration):
                fast = False
        return self._object(offset, path, fast=fast) if opener == "{" else self._array(offset, path, fast=fast)

    def _scalar(self, offset: int) -> tuple[Any, int]:
        try:
            return _scan_once(self._text, offset)
        except json.JSONDecodeError as error:
            for scanner, message, hint in _SCANNER_WORDS:
                if error.msg.startswith(scanner):
                    self.fail(message, error.pos, hint)
            self.fail(error.msg[:1].lower() + error.msg[1:].removesuffix(" at"), error.pos)
        except StopIteration:
            found = self._text[offset]
            if found in ",}]":
                self.fail(f"expected a value before {found!r}", offset)
            self.fail(f"expected a value{_misplaced(self._text, offset)}", offset)
        except ValueError as error:
            reason = str(error)[:60]
            self.fail(reason if reason.endswith("is not a JSON value") else f"not a JSON value ({reason})", offset)

    def _object(self, offset: int, path: Path, *, fast: bool) -> tuple[dict[str, Any], int]:
        text, start = self._text, offset
        members: dict[str, Any] = {}
        tracked = len(path) < _TRACKED_LEVELS
        offset = self.skip(offset + 1)
        while True:
            if text.startswith("}", offset):
                return members, offset + 1
            if not text.startswith('"', offset):
                if offset >= len(text):
                    self.fail("the object that starts here never ends", start)
                self.fail(f"expected a property name in double quotes{_misplaced(text, offset)}", offset)
            key_offset = offset
            key, offset = self._scalar(offset)
            offset = self.skip(offset)
            if not text.startswith(":", offset):
                self.fail("expected ':' after the property name", offset)
            inner = (*path, key)
            if tracked:
                line = self._line(key_offset)
                if key in members:
                    self.repeated.append((inner, line))
                self.lines[inner] = line
            members[key], offset = self.value(self.skip(offset + 1), inner, fast=fast)
            offset = self._separator(offset, "}", start)

    def _array(self, offset: int, path: Path, *, fast: bool) -> tuple[list[Any], int]:
        text, start = self._text, offset
        items: list[Any] = []
        tracked = len(path) < _TRACKED_LEVELS
        offset = self.skip(offset + 1)
        while True:
            if text.startswith("]", offset):
                return items, offset + 1
            if offset >= len(text):
                self.fail("the array that starts here never ends", start)
            inner = (*path, len(items))
            if tracked:
                self.lines[inner] = self._line(offset)
            item, offset = self.value(offset, inner, fast=fast)
            items.append(item)
            offset = self._separator(offset, "]", start)

    def _separator(self, offset: int, closer: str, start: int) -> int:
        offset = self.skip(offset)
        if self._text.startswith(",", offset):
            return self.skip(offset + 1)
        if self._text.startswith(closer, offset):
            return offset
        if offset >= len(self._text):
            self.fail(f"the {'object' if closer == '}' else 'array'} that starts here never ends", start)
        return self.fail(f"expected ',' or {closer!r}{_misplaced(self._text, offset)}", offset)

    def _line(self, offset: int) -> int:
        known, line = self._counted
        if offset >= known:
            line += self._text.count(self._newline, known, offset)
        else:
            line = _line_at(self._text, offset)
        self._counted = (offset, line)
        return line


# ---- TOML -------------------------------------------------------------------------------------------------------------------------

_TOML_AT: Final = re.compile(r"\(at (?:line (\d+), column (\d+)|end of document)\)")
_TOML_TUPLE: Final = re.compile(r"\((?:'[^']*',? ?)+\)")
_TOML_HEADER: Final = re.compile(r"^[ \t]*\[\[?(.+?)\]\]?[ \t]*(?:#.*)?$")
_TOML_KEY: Final = re.compile(r"^[ \t]*([A-Za-z0-9_\-.\"' ]+?)[ \t]*=")


def _parse_toml(text: str, source: str) -> Document:
    import tomllib

    try:
        value = tomllib.loads(text.replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        place = _TOML_AT.search(message)
        position = f"{place[1]}:{place[2]}" if place and place[1] else _position(text, len(text.rstrip()))
        message = _TOML_TUPLE.sub(_dotted, _TOML_AT.sub("", message).strip()) or "not valid TOML"
        hint = "a Windows path belongs in single quotes" if re.search("hex|escape", message, re.IGNORECASE) else ""
        raise ConfigError(message, source=f"{source}:{position}", hint=hint) from error
    except ValueError as error:  # an integer of more digits than Python converts
        raise ConfigError("not valid TOML (a number is too long)", source=source) from error
    lines: dict[Path, int] = {}
    table: Path = ()
    for number, line in enumerate(text.splitlines(), start=1):
        # A line inside a multi-line string can look like a header: it may then name a path that does not exist, which is harmless,
        # or win over the real one, which is why the first line seen for a path stays.
        if header := _TOML_HEADER.match(line):
            table = _toml_path(header[1])
            lines.setdefault(table, number)
        elif key := _TOML_KEY.match(line):
            lines.setdefault(table + _toml_path(key[1]), number)
    lines.pop((), None)
    return Document(value, lines)


def _dotted(keys: re.Match[str]) -> str:
    """A path as TOML writes it, in place of a tuple of Python's in a message of the library's."""
    return ".".join(re.findall(r"'([^']*)'", keys[0]))


def _toml_path(dotted: str) -> Path:
    """The path that a dotted TOML key names, with the quoting rules of TOML itself."""
    import tomllib

    try:
        node: Any = tomllib.loads(f"{dotted} = 0")
    except ValueError:
        return ()
    path: list[str] = []
    while isinstance(node, dict) and node:
        key, node = next(iter(node.items()))
        path.append(key)
    return tuple(path)


# ---- YAML -------------------------------------------------------------------------------------------------------------------------


def _parse_yaml(text: str, source: str) -> Document:
    import yaml

    try:
        return _YamlBuilder(yaml, source).build(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        position = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        message, hint = error.problem or error.context or "not valid YAML", ""
        if "cannot start any token" in message and mark is not None:
            found = text.splitlines()[mark.line][mark.column]
            message = (
                "a tab cannot indent YAML" if found == "\t" else f"a value without quotes cannot start with {found!r}"
            )
            hint = "indent with blanks" if found == "\t" else "put the value in single quotes"
        elif "escape" in message or "hexdecimal" in message:
            message, hint = "a backslash in double quotes must be doubled", "put a Windows path in single quotes"
        raise ConfigError(message, source=f"{source}{position}", hint=hint) from error
    except yaml.YAMLError as error:
        raise ConfigError("not valid YAML (a character that YAML does not allow)", source=source) from error


_YAML_WORDS: Final = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_YAML_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,30})(?:\.[0-9]{1,30})?")


class _YamlBuilder:
    """Builds values from parser events, without recursion.

    The stock loaders compose a tree of nodes recursively (in C, where deep nesting ends the process) and copy merged mappings
    before anything can count them; a config file must not be able to do either.
    """

    def __init__(self, yaml: Any, source: str) -> None:
        self._yaml = yaml
        self._source = source
        self._constructor = yaml.constructor.SafeConstructor()
        self._anchors: dict[str, Any] = {}
        self._open: list[int] = []
        self._nodes = 0
        self.lines: dict[Path, int] = {}
        self.repeated: list[tuple[Path, int]] = []

    def build(self, text: str) -> Document:
        loader = getattr(self._yaml, "CSafeLoader", self._yaml.SafeLoader)
        events = iter(self._yaml.parse(text, Loader=loader))
        root: Any = None
        documents = 0
        for event in events:
            if isinstance(event, self._yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self._fail("the file holds more than one YAML document", event)
            elif not isinstance(
                event, (self._yaml.StreamStartEvent, self._yaml.StreamEndEvent, self._yaml.DocumentEndEvent)
            ):
                root = self._node(event, events)
        return Document(root, self.lines, tuple(self.repeated))

    def _fail(self, message: str, event: Any) -> NoReturn:
        mark = event.start_mark
        raise ConfigError(message, source=f"{self._source}:{mark.line + 1}:{mark.column + 1}")

    def _node(self, event: Any, events: Iterator[Any]) -> Any:
        """The value that starts with `event`; takes the events up to its end."""
        yaml = self._yaml
        root, _ = self._leaf(event)
        if not isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            return root
        # One frame per open collection: the collection, its path, the pending key of a mapping (or None), and its anchor's id.
        stack: list[tuple[Any, Path, list[Any]]] = [(root, (), [])]
        self._open.append(id(root))
        for event in events:
            container, path, pending = stack[-1]
            if isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
                stack.pop()
                self._open.pop()
                if isinstance(container, dict):
                    self._merge(container, event)
                if not stack:
                    return root
                continue
            value, opens = self._leaf(event)
            inner: Path
            if isinstance(container, list):
                inner = (*path, len(container))
                self._note(inner, event)
                container.append(value)
            elif not pending:
                if opens or isinstance(value, (dict, list)):
                    self._fail(
                        "a mapping's key must be a plain value; put text that starts with { or [ in quotes", event
                    )
                key = value if isinstance(value, str) else self._key_text(event, value)
                pending.append(key)
                inner = (*path, key)
                if key in container and key != "<<":
                    self.repeated.append((inner, event.start_mark.line + 1))
                self._note(inner, event)
                continue
            else:
                key = pending.pop()
                inner = (*path, key)
                if key == "<<" and "<<" in container:  # two merge keys: both count, the first wins like in one list
                    container[key] = [*self._as_list(container[key]), *self._as_list(value)]
                else:
                    container[key] = value
            if opens:
                if len(stack) >= MAX_DEPTH:
                    self._fail(f"nested more than {MAX_DEPTH} levels deep", event)
                stack.append((value, inner, []))
                self._open.append(id(value))
        return self._fail("the file ends inside a value", event)

    def _leaf(self, event: Any) -> tuple[Any, bool]:
        """The value of `event`, and whether it is a collection that further events will fill."""
        yaml = self._yaml
        self._count(1, event)
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                self._fail(f"nothing is anchored as {event.anchor!r} above this line", event)
            value = self._anchors[event.anchor]
            if id(value) in self._open:
                self._fail(f"the alias {event.anchor!r} refers to the value it is part of", event)
            return value, False
        opens = True
        value = None
        if isinstance(event, yaml.MappingStartEvent):
            value = {}
        elif isinstance(event, yaml.SequenceStartEvent):
            value = []
        else:
            value, opens = self._scalar(event), False
        if event.anchor:
            self._anchors[event.anchor] = value
        return value, opens

    def _scalar(self, event: Any) -> Any:
        """The value of a scalar by the core schema of YAML 1.2, which the clients' readers follow.

        To YAML 1.1, the library's own, the country `NO` is false and the port mapping `22:22` a number in base sixty. A number that is
        written in another way than it would be printed (`1.10`, `0755`) stays text: it is wanted as a variable or an argument.
        """
        yaml, text = self._yaml, event.value
        tag = event.tag
        if tag is None or tag == "!":
            if not event.implicit[0]:
                return text
            if text in _YAML_WORDS:
                return _YAML_WORDS[text]
            if _YAML_NUMBER.fullmatch(text):
                number = float(text) if "." in text else int(text)
                return number if str(number) == text else text
            return text
        if tag.rsplit(":", 1)[-1] not in ("int", "float", "bool", "null"):
            return text
        try:
            return self._constructor.construct_object(yaml.ScalarNode(tag, text))
        except (ValueError, yaml.YAMLError):  # "!!int abc", or more digits than Python converts
            return text

    @staticmethod
    def _key_text(event: Any, value: Any) -> str:
        return str(event.value) if hasattr(event, "value") else str(value)

    @staticmethod
    def _as_list(value: Any) -> list[Any]:
        return value if isinstance(value, list) else [value]

    def _merge(self, mapping: dict[str, Any], event: Any) -> None:
        """Apply YAML 1.1 merge keys: members that the mapping has itself win, then earlier merged mappings."""
        if "<<" not in mapping:
            return
        for merged in self._as_list(mapping.pop("<<")):
            if isinstance(merged, dict):
                self._count(len(merged), event)
                for key, value in merged.items():
                    mapping.setdefault(key, value)

    def _count(self, nodes: int, event: Any) -> None:
        self._nodes += nodes
        if self._nodes > _MAX_YAML_NODES:
            self._fail(f"more than {_MAX_YAML_NODES:,} values, aliases and merges counted", event)

    def _note(self, path: Path, event: Any) -> None:
        if len(path) <= _TRACKED_LEVELS:
            self.lines[path] = event.start_mark.line + 1
