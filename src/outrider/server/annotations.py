"""Python's annotations: which are understood, the schema (2020-12) that each gives, and how values of their types are read and written.

Decided here: what msgspec lacks and is added: pydantic models, constraints in the `annotated_types` vocabulary, unions of several object
types, paths. Not here: the signature of a function and what is told about a wrong argument (`schemas`). Pure, but for what an author's own
pydantic validators do.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from functools import partial
from pathlib import PurePath
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Meta

__all__ = [
    "Mirrored",
    "accepts_none",
    "encode_json",
    "has_json_form",
    "holds_any",
    "is_or_holds",
    "normalise",
    "read_custom",
    "schema_of",
    "type_hints",
    "unwrap",
]


class Mirrored:
    """Marks a tool parameter to be mirrored into the HTTP header `Mcp-Param-{name}`: `Annotated[str, Mirrored("Region")]`.

    Only for strings, integers and booleans that are no secret: intermediaries see the value.

    Spec: 2026-07-28 server/tools#x-mcp-header
    """

    def __init__(self, name: str) -> None:
        self.name = name


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


def read_custom(annotation: Any, value: Any) -> Any:
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
                return msgspec.convert(value, member, dec_hook=read_custom)
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
        return {"anyOf": [schema_of(member, mode) for member in annotation.members]}
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


def schema_of(annotation: Any, mode: Literal["validation", "serialization"]) -> dict[str, Any]:
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


def normalise(annotation: Any) -> Any:
    """The annotation in msgspec's vocabulary, with the same meaning."""
    if isinstance(annotation, typing.TypeAliasType if hasattr(typing, "TypeAliasType") else ()):
        return normalise(annotation.__value__)
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
        inner = normalise(inner)
        return Annotated[(inner, *metas)] if metas else inner
    if origin in (Union, types.UnionType):
        members = tuple(normalise(member) for member in get_args(annotation))
        union: Any = Union[members]  # noqa: UP007 - only known here
        return union if has_json_form(union) else _AcceptsAny("_AnyOf", (_AnyOf,), {"members": members})
    if origin is not None and origin is not Literal and (arguments := get_args(annotation)):
        renewed = tuple(normalise(argument) if argument is not Ellipsis else argument for argument in arguments)
        if renewed != arguments:
            return origin[renewed]
    return annotation


def has_json_form(annotation: Any) -> bool:
    """Whether a normalised annotation is one that values can be read by."""
    try:
        msgspec.json.Decoder(annotation, dec_hook=read_custom)
    except TypeError:
        return False
    return True


def unwrap(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function behind partials and callable objects."""
    while isinstance(function, partial):
        function = function.func
    if not inspect.isroutine(function) and not inspect.isclass(function) and callable(function):
        return type(function).__call__
    return function


def type_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function.

    Raises:
        TypeError: one names what cannot be found.
    """
    target = unwrap(function)
    try:
        return typing.get_type_hints(target, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"{getattr(target, '__qualname__', target)}: the annotation names {error.name!r}, which cannot be found; "
            "types used in a signature must be importable from the function's module"
        ) from error


def accepts_none(annotation: Any) -> bool:
    """Whether None is a value of a normalised annotation."""
    if annotation is Any or annotation is None or annotation is type(None):
        return True
    if get_origin(annotation) is Annotated:
        return accepts_none(get_args(annotation)[0])
    if isinstance(annotation, type) and issubclass(annotation, _AnyOf):
        return any(accepts_none(member) for member in annotation.members)
    return get_origin(annotation) in (Union, types.UnionType) and any(accepts_none(m) for m in get_args(annotation))


def is_or_holds(annotation: Any, wanted: type) -> bool:
    """Whether an annotation is `wanted`, alone or beside others in a union."""
    if isinstance(annotation, type) and issubclass(annotation, wanted):
        return True
    origin = get_origin(annotation)
    if origin is Annotated or origin in (Union, types.UnionType):
        return any(is_or_holds(argument, wanted) for argument in get_args(annotation))
    return False


def holds_any(annotation: Any, wanted: tuple[type, ...]) -> bool:
    """Whether an annotation has one of `wanted` anywhere inside."""
    if isinstance(annotation, type) and not get_args(annotation):
        return issubclass(annotation, wanted)
    return any(holds_any(argument, wanted) for argument in get_args(annotation) if argument is not Ellipsis)
