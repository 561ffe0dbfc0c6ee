"""From a function's signature to JSON Schema and back: what it accepts, how its arguments are read, what it promises to return.

Decided here: how a wrong argument is explained to the model that sent it, and when a return annotation becomes an output schema. Not here:
what a single annotation means (`annotations`), what a docstring says (`docstrings`), how a returned value becomes content (`content`), and
checking of schemas that an author wrote by hand (`protocol.schema_findings`).

msgspec does the work: the parameters of a function become the fields of one struct, and a call's arguments are read and checked in one
decoding pass. Pure, but for what an author's own pydantic validators do.
"""

from __future__ import annotations

import copy
import enum
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final

import msgspec
from msgspec import NODEFAULT, Meta, Raw, Struct

from outrider.server.annotations import (
    accepts_none,
    encode_json,
    has_json_form,
    holds_any,
    is_or_holds,
    normalise,
    read_custom,
    schema_of,
    type_hints,
    unwrap,
)

__all__ = ["FormType", "InvalidArguments", "OutputType", "Parameters"]

_MAX_PROBLEMS: Final = 10
_MAX_SHOWN_CHARS: Final = 80


class InvalidArguments(Exception):
    """A call's arguments do not fit the function.

    Attributes:
        problems: one sentence each, naming the argument, what was expected and what came; at most ten.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


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
        hints = type_hints(function)
        self.injected: str | None = None
        self._keyword_only = False
        self._injected_position = -1
        fields: list[tuple[str, Any, Any]] = []
        label = getattr(unwrap(function), "__qualname__", repr(function))
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise TypeError(f"{label}: a client cannot fill *{parameter.name}; name every parameter")
            annotation = hints.get(parameter.name, Any)
            if injected_type is not None and is_or_holds(annotation, injected_type):
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
            self._decoder = msgspec.json.Decoder(self._struct, dec_hook=read_custom)
            self.schema = schema_of(self._struct, "validation")
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
        annotation = normalise(annotation)
        if default is None and not accepts_none(annotation):
            annotation = annotation | None
        if annotation not in _PLAIN_TYPES:
            try:
                if not has_json_form(annotation):
                    raise TypeError(f"the type {annotation!r} has no JSON form")
                own_description = "description" in schema_of(annotation, "validation")
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
            return msgspec.convert(dict(arguments), self._struct, strict=False, dec_hook=read_custom)
        except msgspec.ValidationError as error:
            raise InvalidArguments(self._problems(arguments, error, strict=False)) from error

    def _problems(self, values: Mapping[str, Any], error: Exception, *, strict: bool) -> list[str]:
        import difflib  # Slow to import, and needed only when something is wrong.

        problems = [f"missing required argument `{name}`" for name in self.required if name not in values]
        for name, value in values.items():
            if name not in self._types:
                near = difflib.get_close_matches(name, self.names, 1)
                hint = f"did you mean `{near[0]}`?" if near else f"accepted are {', '.join(self.names) or 'none'}"
                problems.append(f"unknown argument `{name[:_MAX_SHOWN_CHARS]}`: {hint}")
                continue
            try:
                msgspec.convert(
                    _with_integers(value), self._types[name], strict=strict, str_keys=True, dec_hook=read_custom
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


class FormType:
    """An object type whose value a client fills in: its schema, and the way from the answer to a value.

    Attributes:
        schema: its JSON Schema, with references resolved and `null` beside a field's type left out: a field is given or left out.
    """

    def __init__(self, form: Any) -> None:
        """Take over a dataclass, TypedDict, struct or pydantic model. Raises TypeError when it has no JSON form."""
        self._type = normalise(form)
        try:
            schema = schema_of(self._type, "validation")
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
            return msgspec.convert(_with_integers(value), self._type, dec_hook=read_custom)
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
        self.schema = schema_of(annotation, "serialization")
        self.schema.pop("title", None)

    @classmethod
    def of(cls, function: Callable[..., Any], *, plain_types: tuple[type, ...]) -> OutputType | None:
        """The output type of `function`, or None when its results have no declared structure.

        None for: no annotation, Any, None, str (a text is content, not structure), any of `plain_types` alone, in a list or beside
        others in a union, and types without a JSON form.
        """
        annotation = type_hints(function).get("return", Any)
        if annotation in (Any, None, type(None), str, object):
            return None
        if holds_any(annotation, plain_types):
            return None
        try:
            annotation = normalise(annotation)
            return cls(annotation) if has_json_form(annotation) else None
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
            msgspec.json.decode(encoded, type=self._type, dec_hook=read_custom)
        except msgspec.ValidationError as error:
            return _wording(error)
        return None
