"""From Python types to JSON Schema and back: what a function accepts, how its arguments are read, what it returns.

Decided here: which annotations are understood, the schema each gives (2020-12), how a wrong argument is explained to the model that sent
it, and when a return annotation becomes an output schema. Not here: how a returned value becomes content (`content`), and checking of
schemas that an author wrote by hand (`protocol.schema_findings`).

msgspec does the work: the parameters of a function become the fields of one struct, and a call's arguments are read and checked in one
decoding pass. Three things it lacks are added: pydantic models, constraints in the `annotated_types` vocabulary, and unions of several
object types. Pure, but for what an author's own pydantic validators do.
"""

from __future__ import annotations

import copy
import difflib
import enum
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Meta, Raw, Struct

__all__ = ["FormType", "InvalidArguments", "Mirrored", "OutputType", "Parameters", "encode_json", "parse_docstring"]

_MAX_PROBLEMS: Final = 10
_MAX_SHOWN_CHARS: Final = 80


class Mirrored:
    """Marks a tool parameter to be mirrored into the HTTP header `Mcp-Param-{name}`: `Annotated[str, Mirrored("Region")]`.

    Only for strings, integers and booleans that are no secret: intermediaries see the value.

    Spec: 2026-07-28 server/tools#x-mcp-header
    """

    def __init__(self, name: str) -> None:
        self.name = name


class InvalidArguments(Exception):
    """A call's arguments do not fit the function.

    Attributes:
        problems: one sentence each, naming the argument, what was expected and what came; at most ten.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class _AcceptsAny(type):
    def __instancecheck__(cls, instance: object) -> bool:
        # msgspec checks what a hook returned; the value is of a member's type, which the hook has just checked.
        return True


class _AnyOf(metaclass=_AcceptsAny):
    """Stands for a union that msgspec cannot decode by itself, such as two dataclasses; the subclass made per union has the members."""

    members: tuple[Any, ...] = ()


def _is_pydantic_model(annotation: object) -> bool:
    return (
        isinstance(annotation, type)
        and hasattr(annotation, "model_validate")
        and hasattr(annotation, "model_json_schema")
    )


def _read_custom(annotation: Any, value: Any) -> Any:
    """The `dec_hook`: a ValueError or TypeError from here becomes a finding that names the place."""
    if _is_pydantic_model(annotation):
        try:
            return annotation.model_validate(value)
        except ValueError as error:
            raise ValueError(_pydantic_wording(error)) from error
    if isinstance(annotation, type) and issubclass(annotation, _AnyOf):
        reasons = []
        for member in annotation.members:
            try:
                return msgspec.convert(value, member, dec_hook=_read_custom)
            except msgspec.ValidationError as error:
                reasons.append(str(error))
        raise ValueError("fits none of the alternatives: " + "; ".join(reasons))
    if isinstance(annotation, type) and issubclass(annotation, PurePath):
        if not isinstance(value, str):
            raise ValueError("Expected `str`")
        return annotation(value)
    raise NotImplementedError


def _pydantic_wording(error: Any) -> str:
    if not hasattr(error, "errors"):
        return str(error)
    return "; ".join(f"{'.'.join(map(str, e['loc'])) or 'value'}: {e['msg']}" for e in error.errors(include_url=False))


def _write_custom(value: Any) -> Any:
    """The `enc_hook`: what msgspec cannot write by itself."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, PurePath):
        return str(value)
    raise NotImplementedError(f"a {type(value).__name__} cannot be written as JSON")


def _describe_custom(mode: Literal["validation", "serialization"], annotation: Any) -> dict[str, Any]:
    """The `schema_hook`: what msgspec cannot describe by itself."""
    if _is_pydantic_model(annotation):
        schema: dict[str, Any] = annotation.model_json_schema(ref_template="#/$defs/{model}", mode=mode)
        return schema
    if isinstance(annotation, type) and issubclass(annotation, _AnyOf):
        return {"anyOf": [_schema_of(member, mode) for member in annotation.members]}
    if isinstance(annotation, type) and issubclass(annotation, PurePath):
        return {"type": "string", "format": "path"}
    raise NotImplementedError


encode_json: Final = msgspec.json.Encoder(enc_hook=_write_custom).encode
"""Any value an author may return, as JSON bytes: builtins, dataclasses, structs, enums, dates, pydantic models, paths."""


def _hoist_definitions(schema: Any, found: dict[str, Any]) -> Any:
    """Move every nested `$defs` to `found`, because references are written against the root; and name the type of enumerations.

    Several model providers refuse an `enum` without a `type`.
    """
    if isinstance(schema, dict):
        values = schema.get("enum")
        if isinstance(values, list) and "type" not in schema:
            if all(isinstance(value, str) for value in values):
                schema = {"type": "string", **schema}
            elif all(type(value) is int for value in values):
                schema = {"type": "integer", **schema}
        schema = dict(schema)
        for name, definition in schema.pop("$defs", {}).items():
            moved = _hoist_definitions(definition, found)
            if found.setdefault(name, moved) != moved:
                raise TypeError(f"two different types named {name!r} in one signature: rename one of them")
        return {key: _hoist_definitions(value, found) for key, value in schema.items()}
    if isinstance(schema, list):
        return [_hoist_definitions(entry, found) for entry in schema]
    return schema


def _schema_of(annotation: Any, mode: Literal["validation", "serialization"]) -> dict[str, Any]:
    """The schema of a (normalised) annotation, self-contained: its own type inlined, all others under `$defs`."""
    (schema,), components = msgspec.json.schema_components(
        [annotation], schema_hook=partial(_describe_custom, mode), ref_template="#/$defs/{name}"
    )
    definitions: dict[str, Any] = {}
    schema = _hoist_definitions(schema, definitions)
    for name, component in components.items():
        definitions.setdefault(name, _hoist_definitions(component, definitions))
    reference = schema.get("$ref", "")
    if reference.startswith("#/$defs/") and len(schema) == 1:
        name = reference.removeprefix("#/$defs/")
        root = dict(definitions[name])
        if not _mentions(definitions, reference):
            del definitions[name]
        schema = root
    if definitions:
        schema["$defs"] = {name: definitions[name] for name in sorted(definitions)}
    return dict(schema)


def _mentions(schema: Any, reference: str) -> bool:
    if isinstance(schema, dict):
        return schema.get("$ref") == reference or any(_mentions(value, reference) for value in schema.values())
    return isinstance(schema, list) and any(_mentions(entry, reference) for entry in schema)


_CONSTRAINTS: Final = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern")


def _meta_of(mark: Any) -> Meta | None:
    """One entry of an `Annotated` as a msgspec Meta: ours, a plain string, or `annotated_types`/pydantic's by its attributes."""
    if isinstance(mark, Meta):
        return mark
    if isinstance(mark, str):
        return Meta(description=mark)
    if isinstance(mark, Mirrored):
        return Meta(extra_json_schema={"x-mcp-header": mark.name})
    values: dict[str, Any] = {
        name: value
        for name in _CONSTRAINTS
        if isinstance(value := getattr(mark, name, None), (int, float, str)) and not isinstance(value, bool)
    }
    if values.get("min_length") == 0:
        del values["min_length"]
    for attribute in ("description", "documentation"):
        if isinstance(text := getattr(mark, attribute, None), str):
            values["description"] = text
    if isinstance(examples := getattr(mark, "examples", None), list):
        values["examples"] = examples
    return Meta(**values) if values else None


def _normalise(annotation: Any) -> Any:
    """The annotation in msgspec's vocabulary, with the same meaning."""
    if isinstance(annotation, typing.TypeAliasType if hasattr(typing, "TypeAliasType") else ()):
        return _normalise(annotation.__value__)
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *marks = get_args(annotation)
        flat: list[Any] = []
        for mark in marks:
            # pydantic's Field() keeps its constraints in a list of such marks, and a few marks are groups of others.
            flat.append(mark)
            if isinstance(group := getattr(mark, "metadata", None), list):
                flat.extend(group)
        metas = [meta for mark in flat if (meta := _meta_of(mark)) is not None]
        inner = _normalise(inner)
        return Annotated[(inner, *metas)] if metas else inner
    if origin in (Union, types.UnionType):
        members = tuple(_normalise(member) for member in get_args(annotation))
        union: Any = Union[members]  # noqa: UP007 - only known here
        return union if _decodable(union) else _AcceptsAny("_AnyOf", (_AnyOf,), {"members": members})
    if origin is not None and origin is not Literal and (arguments := get_args(annotation)):
        renewed = tuple(_normalise(argument) if argument is not Ellipsis else argument for argument in arguments)
        if renewed != arguments:
            return origin[renewed]
    return annotation


def _decodable(annotation: Any) -> bool:
    try:
        msgspec.json.Decoder(annotation, dec_hook=_read_custom)
    except TypeError:
        return False
    return True


def _unwrap(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, partial):
        function = function.func
    if not inspect.isroutine(function) and not inspect.isclass(function) and callable(function):
        return type(function).__call__
    return function


def _type_hints(function: Callable[..., Any]) -> dict[str, Any]:
    target = _unwrap(function)
    try:
        return typing.get_type_hints(target, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"{getattr(target, '__qualname__', target)}: the annotation names {error.name!r}, which cannot be found; "
            "types used in a signature must be importable from the function's module"
        ) from error


# Nothing about these can be wrong, and most parameters are of them.
_PLAIN_TYPES: Final = (str, int, float, bool, Any)
_JSON_NAMES: Final = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "null": "null",
    "object": "an object",
    "array": "an array",
}
_MSGSPEC_EXPECTED: Final = re.compile(r"^Expected `([^`]*)`(?:, got `([^`]*)`)?")


def _wording(error: Exception) -> str:
    """A finding of the decoder in the words of JSON, with the place below the argument."""
    text, _, path = str(error).partition(" - at `$")
    text = _MSGSPEC_EXPECTED.sub(
        lambda m: "expected " + " or ".join(_JSON_NAMES.get(name.strip(), name.strip()) for name in m[1].split("|")),
        text,
    )
    place = path.rstrip("`")
    return f"{text} (at {place.lstrip('.')})" if place else text


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _MAX_SHOWN_CHARS else text[: _MAX_SHOWN_CHARS - 1] + "…"


def _with_integers(value: Any) -> Any:
    """The value with every integral float as an integer: `1.0` is an integer to JSON Schema, and languages without integers send it."""
    if type(value) is float:
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    if type(value) is list:
        return [_with_integers(entry) for entry in value]
    if type(value) is dict:
        return {key: _with_integers(entry) for key, entry in value.items()}
    return value


class Parameters:
    """What a function accepts from a client: its schema, and the way from a call's arguments to a call.

    Attributes:
        schema: the JSON Schema of the arguments object, closed (`additionalProperties` is false).
        names: the parameters that clients fill, in the order of the signature.
        required: those without a default.
        descriptions: parameter name to text, for those that have one.
        injected: the parameter that takes the injected object, or None.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        injected_type: type | None = None,
        descriptions: Mapping[str, str] | None = None,
    ) -> None:
        """Read the signature.

        Args:
            function: any callable whose parameters have names.
            injected_type: a parameter annotated with this type is not the client's; at most one.
            descriptions: texts for parameters whose annotation has none, as from a docstring.

        Raises:
            TypeError: a parameter cannot be described: `*args`, `**kwargs`, or a type without a JSON form.
        """
        hints = _type_hints(function)
        self.injected: str | None = None
        self._keyword_only = False
        self._injected_position = -1
        fields: list[tuple[str, Any, Any]] = []
        label = getattr(_unwrap(function), "__qualname__", repr(function))
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise TypeError(f"{label}: a client cannot fill *{parameter.name}; name every parameter")
            annotation = hints.get(parameter.name, Any)
            if injected_type is not None and _is_or_holds(annotation, injected_type):
                self.injected, self._injected_position = parameter.name, len(fields)
                self._keyword_only |= parameter.kind is parameter.KEYWORD_ONLY
                continue
            self._keyword_only |= parameter.kind is parameter.KEYWORD_ONLY
            fields.append(self._field(label, parameter, annotation, (descriptions or {}).get(parameter.name)))
        self._types = {name: annotation for name, annotation, _ in fields}
        self.names = tuple(self._types)
        self.required = tuple(name for name, _, default in fields if default is NODEFAULT)
        self._struct = msgspec.defstruct(
            "Arguments", fields, kw_only=True, forbid_unknown_fields=True, module=__name__, gc=True
        )
        try:
            self._decoder = msgspec.json.Decoder(self._struct, dec_hook=_read_custom)
            self.schema = _schema_of(self._struct, "validation")
        except (TypeError, NotImplementedError) as error:
            raise TypeError(f"{label}: {error}") from error
        self.schema.pop("title", None)
        if not fields:
            self.schema.pop("properties", None)
        self.schema.pop("required", None) if not self.required else None
        properties = self.schema.get("properties", {})
        self.descriptions = {name: prop["description"] for name, prop in properties.items() if "description" in prop}

    @staticmethod
    def _field(
        label: str, parameter: inspect.Parameter, annotation: Any, description: str | None
    ) -> tuple[str, Any, Any]:
        default = NODEFAULT if parameter.default is parameter.empty else parameter.default
        if (
            type(default).__name__ == "FieldInfo"
        ):  # pydantic's Field() as a default: both the constraints and the default.
            field_info, default = default, getattr(default, "default", NODEFAULT)
            annotation = Annotated[annotation, field_info]
            default = NODEFAULT if default is Ellipsis or type(default).__name__ == "PydanticUndefinedType" else default
        annotation = _normalise(annotation)
        if default is None and not _accepts_none(annotation):
            annotation = annotation | None
        if annotation not in _PLAIN_TYPES:
            try:
                if not _decodable(annotation):
                    raise TypeError(f"the type {annotation!r} has no JSON form")
                own_description = "description" in _schema_of(annotation, "validation")
            except (TypeError, NotImplementedError) as error:
                raise TypeError(f"{label}: parameter {parameter.name!r}: {error}") from error
        else:
            own_description = False
        if description and not own_description:
            annotation = Annotated[annotation, Meta(description=description)]
        if default is not NODEFAULT and not isinstance(default, (str, int, float, bool, type(None), enum.Enum, tuple)):
            # A mutable default belongs to each call alone; msgspec copies empty ones only.
            annotation = Annotated[annotation, Meta(extra_json_schema={"default": _as_builtins(default)})]
            default = msgspec.field(default_factory=partial(copy.deepcopy, default))
        return parameter.name, annotation, default

    def read(self, arguments: Raw | bytes) -> Struct:
        """Decode and check a call's arguments.

        Args:
            arguments: the JSON bytes of the arguments object; empty or `null` for none.

        Raises:
            InvalidArguments: they do not fit, with every problem found.
        """
        try:
            return self._decoder.decode(arguments or b"{}")
        except (msgspec.DecodeError, RecursionError):
            return self._read_carefully(arguments)

    def _read_carefully(self, arguments: Raw | bytes) -> Struct:
        try:
            values = msgspec.json.decode(arguments)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidArguments([f"the arguments cannot be decoded: {error}"]) from error
        if values is None:
            values = {}
        if not isinstance(values, dict):
            raise InvalidArguments([f"the arguments must be an object, got {_shown(values)}"])
        try:
            return self._decoder.decode(msgspec.json.encode(_with_integers(values)))
        except msgspec.ValidationError as error:
            raise InvalidArguments(self._problems(values, error, strict=True)) from error

    def read_strings(self, arguments: Mapping[str, str]) -> Struct:
        """Check arguments that can only be strings, as those of prompts and URI templates, and convert them to the annotated types.

        Raises:
            InvalidArguments: they do not fit, with every problem found.
        """
        try:
            return msgspec.convert(dict(arguments), self._struct, strict=False, dec_hook=_read_custom)
        except msgspec.ValidationError as error:
            raise InvalidArguments(self._problems(arguments, error, strict=False)) from error

    def _problems(self, values: Mapping[str, Any], error: Exception, *, strict: bool) -> list[str]:
        problems = [f"missing required argument `{name}`" for name in self.required if name not in values]
        for name, value in values.items():
            if name not in self._types:
                near = difflib.get_close_matches(name, self.names, 1)
                hint = f"did you mean `{near[0]}`?" if near else f"accepted are {', '.join(self.names) or 'none'}"
                problems.append(f"unknown argument `{name[:_MAX_SHOWN_CHARS]}`: {hint}")
                continue
            try:
                msgspec.convert(
                    _with_integers(value), self._types[name], strict=strict, str_keys=True, dec_hook=_read_custom
                )
            except msgspec.ValidationError as finding:
                problems.append(f"argument `{name}`: {_wording(finding)}, got {_shown(value)}")
        # What only the whole struct shows is rare; better the decoder's words than none.
        return problems[:_MAX_PROBLEMS] or [_wording(error)]

    def call(self, function: Callable[..., Any], arguments: Struct, injected: Any = None) -> Any:
        """Call `function` with checked arguments, and with `injected` where it asks for it."""
        if self._keyword_only:
            named = msgspec.structs.asdict(arguments)
            if self.injected is not None:
                named[self.injected] = injected
            return function(**named)
        values = msgspec.structs.astuple(arguments)
        if self.injected is None:
            return function(*values)
        position = self._injected_position
        return function(*values[:position], injected, *values[position:])


def _as_builtins(value: Any) -> Any:
    return msgspec.json.decode(encode_json(value))


def _accepts_none(annotation: Any) -> bool:
    if annotation is Any or annotation is None or annotation is type(None):
        return True
    if get_origin(annotation) is Annotated:
        return _accepts_none(get_args(annotation)[0])
    if isinstance(annotation, type) and issubclass(annotation, _AnyOf):
        return any(_accepts_none(member) for member in annotation.members)
    return get_origin(annotation) in (Union, types.UnionType) and any(_accepts_none(m) for m in get_args(annotation))


def _is_or_holds(annotation: Any, wanted: type) -> bool:
    if isinstance(annotation, type) and issubclass(annotation, wanted):
        return True
    origin = get_origin(annotation)
    if origin is Annotated or origin in (Union, types.UnionType):
        return any(_is_or_holds(argument, wanted) for argument in get_args(annotation))
    return False


class FormType:
    """An object type whose value a client fills in: its schema, and the way from the answer to a value.

    Attributes:
        schema: its JSON Schema, with references resolved and `null` beside a field's type left out: a field is given or left out.
    """

    def __init__(self, form: Any) -> None:
        """Take over a dataclass, TypedDict, struct or pydantic model. Raises TypeError when it has no JSON form."""
        self._type = _normalise(form)
        try:
            schema = _schema_of(self._type, "validation")
        except (TypeError, NotImplementedError) as error:
            raise TypeError(f"{form!r} cannot be a form: {error}") from error
        if schema.get("type") != "object" or not schema.get("properties"):
            raise TypeError(f"{form!r} cannot be a form: it is not an object with named fields")
        definitions = schema.get("$defs", {})
        self.schema: dict[str, Any] = {
            "type": "object",
            "properties": {name: _flattened(e, definitions) for name, e in schema.get("properties", {}).items()},
        }
        if "required" in schema:
            self.schema["required"] = schema["required"]

    def read(self, value: Any) -> Any:
        """Check what was filled in and build the value. Raises InvalidArguments when it does not fit."""
        try:
            return msgspec.convert(_with_integers(value), self._type, dec_hook=_read_custom)
        except msgspec.ValidationError as error:
            raise InvalidArguments([_wording(error)]) from error


def _flattened(entry: dict[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    reference = entry.get("$ref", "").removeprefix("#/$defs/")
    if reference:
        entry = {**definitions.get(reference, {}), **{k: v for k, v in entry.items() if k != "$ref"}}
    alternatives = [branch for branch in entry.get("anyOf", ()) if branch != {"type": "null"}]
    if len(alternatives) == 1:
        rest = {k: v for k, v in entry.items() if k != "anyOf"}
        return _flattened({**alternatives[0], **rest}, definitions)
    return {k: v for k, v in entry.items() if k != "default" or v is not None}


class OutputType:
    """What a function's return annotation promises: a schema for `structuredContent`, and a check that the promise is kept.

    Attributes:
        schema: the JSON Schema of the returned value.
    """

    def __init__(self, annotation: Any) -> None:
        """Take over a normalised return annotation. Use `of`."""
        self._type = annotation
        self._plain = annotation if annotation in (int, float, bool) else None
        self.schema = _schema_of(annotation, "serialization")
        self.schema.pop("title", None)

    @classmethod
    def of(cls, function: Callable[..., Any], *, plain_types: tuple[type, ...]) -> OutputType | None:
        """The output type of `function`, or None when its results have no declared structure.

        None for: no annotation, Any, None, str (a text is content, not structure), any of `plain_types` alone, in a list or beside
        others in a union, and types without a JSON form.
        """
        annotation = _type_hints(function).get("return", Any)
        if annotation in (Any, None, type(None), str, object):
            return None
        if _holds_any(annotation, plain_types):
            return None
        try:
            annotation = _normalise(annotation)
            return cls(annotation) if _decodable(annotation) else None
        except (TypeError, NotImplementedError):
            return None

    def check(self, value: Any, encoded: bytes) -> str | None:
        """What is wrong with a returned value, or None when it is what was promised.

        Args:
            value: what the function returned.
            encoded: the same as JSON.

        Spec: 2026-07-28 server/tools#output-schema (MUST)
        """
        if self._plain is not None and type(value) is self._plain:
            return None
        try:
            msgspec.json.decode(encoded, type=self._type, dec_hook=_read_custom)
        except msgspec.ValidationError as error:
            return _wording(error)
        return None


def _holds_any(annotation: Any, wanted: tuple[type, ...]) -> bool:
    if isinstance(annotation, type) and not get_args(annotation):
        return issubclass(annotation, wanted)
    return any(_holds_any(argument, wanted) for argument in get_args(annotation) if argument is not Ellipsis)


_SECTION: Final = re.compile(
    r"^(args|arguments|parameters|params|returns?|yields?|raises|examples?|notes?|see also|attributes)\s*:?\s*$", re.I
)
_GOOGLE_ENTRY: Final = re.compile(r"^(\s*)\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_NUMPY_ENTRY: Final = re.compile(r"^(\w+)\s*(?::.*)?$")
_REST_ENTRY: Final = re.compile(r"^\s*:param\s+(?:[^:]*\s)?(\w+)\s*:\s*(.*)$")


def parse_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """Split a docstring into its description and its parameters' descriptions.

    Google's (`Args:`), NumPy's (`Parameters` underlined) and reStructuredText's (`:param x:`) styles are understood.

    Returns:
        The text up to the first section, and parameter name to one-line description.
    """
    lines = inspect.cleandoc(text or "").splitlines()
    description: list[str] = []
    parameters: dict[str, str] = {}
    section: str | None = None
    numpy_style = False
    entry: str | None = None
    entry_indent = 0
    for position, line in enumerate(lines):
        heading = _SECTION.match(line)
        underline = lines[position + 1].strip() if position + 1 < len(lines) else ""
        is_numpy_heading = bool(heading) and len(underline) > 2 and set(underline) == {"-"}
        if heading and (line.rstrip().endswith(":") or is_numpy_heading):
            section, numpy_style, entry = heading[1].lower(), is_numpy_heading, None
            continue
        if rest := _REST_ENTRY.match(line):
            section, entry, entry_indent = "params", rest[1], len(line) - len(line.lstrip())
            parameters[entry] = rest[2].strip()
            continue
        if section is None:
            if line.lstrip().startswith((":return", ":raise", ":type", ":rtype")):
                section = "other"
                continue
            description.append(line)
            continue
        if not section.startswith(("arg", "param")) or set(line.strip()) == {"-"}:
            continue
        indent = len(line) - len(line.lstrip())
        if numpy_style and indent == 0 and (named := _NUMPY_ENTRY.match(line)):
            entry, entry_indent = named[1], 0
            parameters[entry] = ""
        elif not numpy_style and (entry is None or indent <= entry_indent) and (named := _GOOGLE_ENTRY.match(line)):
            entry, entry_indent = named[2], len(named[1])
            parameters[entry] = named[3].strip()
        elif entry is not None and line.strip() and not line.lstrip().startswith(":"):
            parameters[entry] = f"{parameters[entry]} {line.strip()}".strip()
        elif line.lstrip().startswith(":"):
            entry = None
    return "\n".join(description).strip(), {name: text for name, text in parameters.items() if text}
