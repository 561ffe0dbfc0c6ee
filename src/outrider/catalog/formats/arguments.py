"""A model's arguments as the tool's own schema wants them.

Decided here: which text counts as arguments, which aliases of parameters become the server's names again, and which nulls stand for
"absent". Not here: whether the arguments are valid (`protocol.schema_validation`). Pure.

Everything is decided by the ORIGINAL schema: null stays where that allows it. Spec: ours
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from outrider.errors import LimitExceeded
from outrider.protocol.schema import ReferenceKind, SchemaDocument, is_shallow

__all__ = ["Malformed", "read_arguments", "restore_arguments"]

_MAX_DEPTH: Final = 100
_MAX_STEPS: Final = 200_000
_RULE: Final = "arguments of a call"
# Strings are skipped; then a comma that nothing but a closing bracket follows.
_COMMAS: Final = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', re.DOTALL)
_FENCE: Final = re.compile(r"\s*```[a-z]{0,10}\s(.*?)```\s*", re.DOTALL)
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}


class Malformed(Struct, frozen=True):
    """Arguments that cannot be used. `reason` tells the model what to correct."""

    reason: str

    def __str__(self) -> str:
        return self.reason


def read_arguments(raw: Any) -> dict[str, Any] | Malformed:
    """The arguments that a model wrote: an object, or a JSON string of an object. Nothing, or null, is an empty object.

    Line breaks inside strings, commas before a closing bracket and a Markdown fence are overlooked; they have one possible meaning. A
    string inside that string or object stays a string: what looks like JSON there may be text that the tool wants.
    """
    if raw is None or (isinstance(raw, str) and not raw.strip()):
        return {}
    if isinstance(raw, str):
        try:
            raw = _decoded(raw)
        except (ValueError, RecursionError) as error:
            return Malformed(f"The arguments are not valid JSON: {str(error)[:200]}. Send one JSON object.")
    if raw is None:
        return {}
    if not isinstance(raw, Mapping):
        kind = {str: "text", list: "a list", bool: "a boolean", type(None): "null"}.get(type(raw), "a number")
        return Malformed(f"The arguments are {kind}, not a JSON object.")
    if not all(isinstance(name, str) for name in raw):
        return Malformed("The arguments have a name that is not text.")
    return dict(raw)


def _decoded(text: str) -> Any:
    """The value of a JSON text as models write it; ValueError if it has none."""
    if fenced := _FENCE.fullmatch(text):
        text = fenced[1]
    try:
        return msgspec.json.decode(text.encode("utf-8", "surrogatepass"))
    except msgspec.DecodeError as error:
        try:
            mended = _COMMAS.sub(lambda match: match[1] or "", text)
            return json.loads(mended, strict=False, parse_constant=_refuse_constant)
        except ValueError:
            raise error from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def restore_arguments(
    arguments: dict[str, Any], schema: dict[str, Any], aliases: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """`arguments` with the server's names of parameters, and without the nulls that stand for "absent".

    Args:
        arguments: what the model sent; it is not changed.
        schema: the tool's own `inputSchema`.
        aliases: the server's names by those that the model saw.

    Returns:
        New arguments. Where no alternative of the schema fits, null and names are judged by all alternatives together; the result may be
        invalid, as the arguments were.

    Raises:
        LimitExceeded: the arguments are nested too deeply, or matching them would take too long.
    """
    if not is_shallow(arguments, _MAX_DEPTH - 1):  # The arguments themselves are a level.
        raise LimitExceeded(f"the arguments are more than {_MAX_DEPTH} levels deep", rule=_RULE)
    restored = _Restorer(schema, aliases or {}).restore(arguments)
    assert isinstance(restored, dict)
    return restored


class _Restorer:
    def __init__(self, schema: dict[str, Any], aliases: Mapping[str, str]) -> None:
        self._document = SchemaDocument(schema)
        self._aliases = aliases
        self._steps = 0

    def restore(self, value: Any) -> Any:
        return self._at(self._document.root, value)

    def _step(self) -> None:
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise LimitExceeded("matching the arguments with their schema would take too long", rule=_RULE)

    def _at(self, node: Any, value: Any) -> Any:
        self._step()
        if not isinstance(node, dict) or not isinstance(value, dict | list):
            return value
        views = self._views(node, value)
        if isinstance(value, list):
            out = []
            for index, item in enumerate(value):
                for view in views:
                    item = self._at(_item_schema(view, index), item)
                out.append(item)
            return out
        return self._object(views, value)

    def _object(self, views: list[dict[str, Any]], value: dict[str, Any]) -> dict[str, Any]:
        restored: dict[str, Any] = {}
        for name, inner in value.items():
            own = self._aliases.get(name, name)
            if own != name and (name in _declared(views) or own not in _declared(views)):
                own = name
            schemas = [view["properties"][own] for view in views if own in _properties(view)]
            if not schemas:
                schemas = [
                    view["additionalProperties"] for view in views if isinstance(view.get("additionalProperties"), dict)
                ]
            elif (
                inner is None
                and not any(own in _required(view) for view in views)
                and not all(self._may_accept(schema, None) for schema in schemas)
            ):
                continue
            for schema in schemas:
                inner = self._at(schema, inner)
            restored[own] = inner
        return restored

    def _views(self, node: dict[str, Any], value: Any) -> list[dict[str, Any]]:
        """The schemas that apply to `value` where `node` does: `node`, what it refers to, and the alternative that fits."""
        views: list[dict[str, Any]] = []
        seen: set[int] = set()
        stack: list[Any] = [node]
        while stack:
            here = stack.pop()
            self._step()
            if not isinstance(here, dict) or id(here) in seen:
                continue
            seen.add(id(here))
            views.append(here)
            stack.extend(self._targets(here))
            stack.extend(_list(here, "allOf"))
            stack.extend(here.get(keyword) for keyword in ("then", "else"))
            dependent = here.get("dependentSchemas")
            stack.extend(dependent.values() if isinstance(dependent, dict) else ())
            for keyword in ("anyOf", "oneOf"):
                branches = [
                    branch for branch in _list(here, keyword) if isinstance(branch, dict) and id(branch) not in seen
                ]
                fitting = next((b for b in branches if self._may_accept(b, self._at(b, value))), None)
                stack.extend([fitting] if fitting is not None else branches)
        return views

    def _targets(self, node: dict[str, Any]) -> list[Any]:
        targets = []
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            if isinstance(ref := node.get(keyword), str):
                reference = self._document.resolve(ref, at=node)
                if reference.kind is ReferenceKind.LOCAL:
                    targets.append(reference.target)
        return targets

    def _may_accept(self, node: Any, value: Any, trail: frozenset[int] = frozenset()) -> bool:
        """False if `value` certainly does not match, judged by structure, types and listed values."""
        self._step()
        if not isinstance(node, dict):
            return node is not False
        if id(node) in trail:
            return True
        inside = trail | {id(node)}
        declared = node.get("type")
        if declared is not None:
            types = declared if isinstance(declared, list) else [declared]
            if not any(_is_of(value, name) for name in types):
                return False
        if "const" in node and not _equal(node["const"], value):
            return False
        options = node.get("enum")
        if isinstance(options, list) and options and not any(_equal(option, value) for option in options):
            return False
        in_place = [*self._targets(node), *_list(node, "allOf")]
        if not all(self._may_accept(part, value, inside) for part in in_place):
            return False
        for keyword in ("anyOf", "oneOf"):
            branches = _list(node, keyword)
            if branches and not any(self._may_accept(branch, value, inside) for branch in branches):
                return False
        if isinstance(value, dict):
            return self._may_accept_object(node, value)
        if isinstance(value, list):
            return all(self._may_accept(_item_schema(node, index), item) for index, item in enumerate(value))
        return True

    def _may_accept_object(self, node: dict[str, Any], value: dict[str, Any]) -> bool:
        if any(name not in value for name in _required(node)):
            return False
        known = _properties(node)
        is_closed = node.get("additionalProperties") is False and not node.get("patternProperties")
        for name, inner in value.items():
            if name in known:
                if not self._may_accept(known[name], inner):
                    return False
            elif is_closed:
                return False
        return True


def _properties(node: dict[str, Any]) -> dict[str, Any]:
    named = node.get("properties")
    return named if isinstance(named, dict) else {}


def _declared(views: list[dict[str, Any]]) -> set[str]:
    return {name for view in views for name in _properties(view)}


def _required(node: dict[str, Any]) -> list[str]:
    return [name for name in _list(node, "required") if isinstance(name, str)]


def _list(node: dict[str, Any], keyword: str) -> list[Any]:
    value = node.get(keyword)
    return value if isinstance(value, list) else []


def _item_schema(node: dict[str, Any], index: int) -> Any:
    first = node.get("prefixItems")
    rest = node.get("items")
    if isinstance(rest, list):
        first, rest = rest, node.get("additionalItems")
    if isinstance(first, list) and index < len(first):
        return first[index]
    return rest if rest is not None else True


def _is_of(value: Any, name: Any) -> bool:
    known = _TYPES.get(name) if isinstance(name, str) else None
    if known is None:
        return True  # not a type that anyone could check
    if isinstance(value, bool):
        return bool(name == "boolean")
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return bool(isinstance(value, known))


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, bool) != isinstance(b, bool):
        return False
    return bool(a == b)
