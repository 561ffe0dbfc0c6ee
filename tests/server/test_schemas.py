"""Types in, JSON Schema out, and arguments back in."""

from __future__ import annotations

import contextlib
import datetime
import enum
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import annotated_types
import jsonschema_rs
import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.server.annotations import Mirrored
from outrider.server.docstrings import parse_docstring
from outrider.server.schemas import FormType, InvalidArguments, OutputType, Parameters


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


@dataclass
class Point:
    x: int
    y: int = 0


@dataclass
class Circle:
    radius: float
    center: Point = field(default_factory=lambda: Point(0))


class Entry(TypedDict):
    key: str
    value: NotRequired[int]


class Record(msgspec.Struct):
    name: str
    tags: list[str] = []


class Inner(pydantic.BaseModel):
    depth: int


class Model(pydantic.BaseModel):
    name: str
    inner: Inner
    size: int = pydantic.Field(default=1, ge=1, description="How many")


class Injected:
    pass


def everything(
    count: int,
    ratio: float,
    text: Annotated[str, "Some text", annotated_types.MinLen(2)],
    point: Point,
    shape: Point | Circle,
    entry: Entry,
    record: Record,
    model: Model,
    color: Color = Color.RED,
    size: Size = Size.SMALL,
    mode: Literal["fast", "slow"] = "fast",
    maybe: str | None = None,
    numbers: list[int] = [1],  # noqa: B006
    when: datetime.date | None = None,
    level: Annotated[int, pydantic.Field(ge=0, le=10, description="Level")] = 3,
    region: Annotated[str, Mirrored("Region")] = "here",
    anything: Any = None,
    path: Path = Path("."),
    *,
    ctx: Injected | None = None,
    flag: bool = False,
) -> list[Point]:
    """Do everything.

    Args:
        count: how many
            there are
        ratio: the ratio
        maybe: perhaps
    """
    return []


def parameters() -> Parameters:
    return Parameters(everything, injected_type=Injected, descriptions=parse_docstring(everything.__doc__)[1])


GOOD: dict[str, Any] = {
    "count": 1,
    "ratio": 0.5,
    "text": "ab",
    "point": {"x": 1},
    "shape": {"radius": 2.0},
    "entry": {"key": "k"},
    "record": {"name": "n"},
    "model": {"name": "m", "inner": {"depth": 1}},
}


def read(function: Any, arguments: Any) -> Any:
    own = Parameters(function)
    return own.call(function, own.read(json.dumps(arguments).encode()))


def problems(function: Any, arguments: Any) -> tuple[str, ...]:
    with pytest.raises(InvalidArguments) as caught:
        read(function, arguments)
    return caught.value.problems


def test_every_supported_type_has_a_valid_2020_12_schema() -> None:
    """Spec: 2026-07-28 basic/index#schema-validation (MUST be valid), judged by a validator that we did not write."""
    schema = parameters().schema
    jsonschema_rs.meta.validate(schema)
    validator = jsonschema_rs.Draft202012Validator(schema)
    assert validator.is_valid(GOOD)
    assert not validator.is_valid({**GOOD, "shape": {"radius": "round"}})
    assert not validator.is_valid({**GOOD, "unknown": 1})


def test_schema_says_what_the_signature_says() -> None:
    """Ours: names, order, required, defaults, descriptions, constraints and the mirrored header are all there."""
    schema = parameters().schema
    properties = schema["properties"]
    assert list(properties)[:3] == ["count", "ratio", "text"]
    assert schema["required"] == ["count", "ratio", "text", "point", "shape", "entry", "record", "model"]
    assert schema["additionalProperties"] is False
    assert properties["count"] == {"description": "how many there are", "type": "integer"}
    assert properties["text"] == {"description": "Some text", "type": "string", "minLength": 2}
    assert properties["maybe"] == {
        "description": "perhaps", "anyOf": [{"type": "string"}, {"type": "null"}], "default": None
    }  # fmt: skip
    assert properties["numbers"]["default"] == [1]
    assert properties["level"] == {
        "description": "Level", "type": "integer", "minimum": 0, "maximum": 10, "default": 3
    }  # fmt: skip
    assert properties["region"]["x-mcp-header"] == "Region"
    assert properties["mode"]["type"] == "string"
    assert schema["$defs"]["Color"]["type"] == "string"
    assert schema["$defs"]["Size"]["type"] == "integer"
    assert schema["$defs"]["Inner"]["properties"]["depth"]["type"] == "integer"
    assert "ctx" not in properties


def test_arguments_become_values_of_the_annotated_types() -> None:
    """Ours: one decoding pass gives the function what its signature says."""
    own = parameters()
    seen: dict[str, Any] = {}

    def record(**values: Any) -> None:
        seen.update(values)

    own.call(record, own.read(json.dumps({**GOOD, "when": "2026-07-28", "size": 2}).encode()), "the context")
    assert seen["point"] == Point(1)
    assert seen["shape"] == Circle(2.0)
    assert seen["record"] == Record("n")
    assert seen["model"] == Model(name="m", inner=Inner(depth=1))
    assert seen["color"] is Color.RED
    assert seen["size"] is Size.LARGE
    assert seen["when"] == datetime.date(2026, 7, 28)
    assert seen["path"] == Path(".")
    assert seen["ctx"] == "the context"


def test_function_without_parameters_takes_only_the_empty_object() -> None:
    """Spec: 2026-07-28 server/tools#tool (the recommended form)."""

    def nothing() -> str:
        return "ran"

    assert Parameters(nothing).schema == {"type": "object", "additionalProperties": False}
    assert read(nothing, {}) == "ran"
    assert problems(nothing, {"x": 1}) == ("unknown argument `x`: accepted are none",)


@pytest.mark.parametrize("absent", [b"", b"null", b"{}"])
def test_absent_and_null_arguments_are_none(absent: bytes) -> None:
    """Ours: a client that leaves out `arguments` or sends null means no arguments."""

    def optional(a: int = 5) -> int:
        return a

    own = Parameters(optional)
    assert own.call(optional, own.read(absent)) == 5


def test_every_wrong_argument_is_named_with_what_was_expected_and_what_came() -> None:
    """Ours: a model can correct all its mistakes in one go. Spec: server/tools#error-handling (input validation errors)"""

    def add(a: int, b: int, note: str = "", limit: Annotated[int, msgspec.Meta(le=10)] = 1) -> int:
        return a + b

    assert problems(add, {"a": "five", "nota": "x", "limit": 11}) == (
        "missing required argument `b`",
        'argument `a`: expected an integer, got "five"',
        "unknown argument `nota`: did you mean `note`?",
        "argument `limit`: expected an integer <= 10, got 11",
    )
    assert problems(add, [1, 2]) == ("the arguments must be an object, got [1,2]",)


def test_problem_inside_a_value_is_located() -> None:
    """Ours: the place below the argument is told."""

    def total(points: list[Point]) -> int:
        return 0

    (problem,) = problems(total, {"points": [{"x": 1}, {"x": "one"}]})
    assert "`points`" in problem
    assert "[1].x" in problem


def test_shown_values_are_short() -> None:
    """Ours: a megabyte of wrong argument does not come back."""

    def f(a: int) -> None:
        pass

    (problem,) = problems(f, {"a": "x" * 1_000_000})
    assert len(problem) < 200


def test_number_with_a_zero_fraction_is_an_integer() -> None:
    """Spec: JSON Schema 2020-12: 1.0 is an integer; languages without integers send it."""

    def double(n: int, ns: list[int]) -> int:
        return n * 2 + sum(ns)

    result = read(double, {"n": 2.0, "ns": [3.0]})
    assert (result, type(result)) == (7, int)
    assert "expected an integer" in problems(double, {"n": 2.5, "ns": []})[0]


def test_mutable_default_is_not_shared_between_calls() -> None:
    """Ours: one call's changes never reach another."""

    def collect(item: str, into: list[str] = ["first"]) -> list[str]:  # noqa: B006
        into.append(item)
        return into

    assert read(collect, {"item": "a"}) == ["first", "a"]
    own = Parameters(collect)
    assert own.call(collect, own.read(b'{"item":"a"}')) == ["first", "a"]
    assert own.call(collect, own.read(b'{"item":"b"}')) == ["first", "b"]


def test_pydantic_findings_are_in_words() -> None:
    """Ours: no multi-line dump and no link to a web site reaches the model."""

    def f(model: Model) -> None:
        pass

    (problem,) = problems(f, {"model": {"name": "m"}})
    assert problem.startswith("argument `model`: inner: Field required")
    assert "\n" not in problem
    assert "http" not in problem


def test_text_arguments_are_converted() -> None:
    """Ours: prompts and URI templates can only carry text."""

    def page(number: int, wide: bool = False) -> tuple[int, bool]:
        return number, wide

    own = Parameters(page)
    assert own.call(page, own.read_strings({"number": "3", "wide": "true"})) == (3, True)
    with pytest.raises(InvalidArguments, match="argument `number`: expected an integer"):
        own.read_strings({"number": "three"})


@pytest.mark.parametrize("star", [lambda *args: None, lambda **options: None])
def test_parameters_without_names_are_refused(star: Any) -> None:
    """Ours: said at registration, not at the first call."""
    with pytest.raises(TypeError, match="name every parameter"):
        Parameters(star)


def test_type_without_a_json_form_is_refused_with_its_parameter() -> None:
    """Ours: the author learns which parameter."""

    class Opaque:
        pass

    def f(x: int, thing: object) -> None:
        pass

    f.__annotations__ = {"x": int, "thing": Opaque}
    with pytest.raises(TypeError, match="parameter 'thing'"):
        Parameters(f)


def test_unknown_name_in_an_annotation_is_explained() -> None:
    """Ours: a local type under postponed annotations cannot be found; the message says what to do."""

    class Local:
        pass

    def f(x: Local) -> None:
        pass

    with pytest.raises(TypeError, match="importable from the function's module"):
        Parameters(f)


def test_methods_partials_and_callable_objects_are_functions_too() -> None:
    """Ours: whatever can be called."""

    class Adder:
        def method(self, a: int) -> int:
            return a + 1

        def __call__(self, a: int, b: int) -> int:
            return a + b

    assert read(Adder().method, {"a": 1}) == 2
    assert read(Adder(), {"a": 1, "b": 2}) == 3


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=5), st.none() | st.booleans() | st.integers() | st.text(), max_size=4))
def test_arguments_that_the_schema_accepts_are_accepted_and_others_are_not(values: dict[str, Any]) -> None:
    """Ours: what we publish and what we check are the same, whatever comes."""

    def f(a: int, b: str | None = None) -> None:
        pass

    own = Parameters(f)
    is_valid = jsonschema_rs.Draft202012Validator(own.schema).is_valid(values)
    try:
        own.read(json.dumps(values).encode())
        accepted = True
    except InvalidArguments:
        accepted = False
    assert accepted == is_valid


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_as_arguments_are_a_value_or_a_problem(raw: bytes) -> None:
    """Ours: nothing else is raised, whatever a client sends."""

    def f(a: int, b: list[Point] | None = None) -> None:
        pass

    own = Parameters(f)
    with contextlib.suppress(InvalidArguments):
        assert own.read(raw).a is not None  # type: ignore[attr-defined]


def returns(annotation: Any) -> OutputType | None:
    def f() -> None:
        pass

    f.__annotations__ = {"return": annotation}
    return OutputType.of(f, plain_types=(Injected,))


@pytest.mark.parametrize("plain", [None, str, Any, Injected, list[Injected], Injected | str, object])
def test_results_without_structure_have_no_output_schema(plain: Any) -> None:
    """Ours: text and content blocks are content, not structure."""
    assert returns(plain) is None


@pytest.mark.parametrize(
    ("annotation", "good", "bad"),
    [
        (int, b"3", b'"3"'),
        (list[Point], b'[{"x":1,"y":2}]', b'[{"y":1}]'),
        (Model, b'{"name":"n","inner":{"depth":1},"size":1}', b'{"name":"n"}'),
        (dict[str, float], b'{"a":1.5}', b"[]"),
        (Color, b'"red"', b'"blue"'),
    ],
)
def test_output_schema_is_what_is_checked(annotation: Any, good: bytes, bad: bytes) -> None:
    """Spec: 2026-07-28 server/tools#output-schema (MUST conform), the same for an independent validator."""
    output = returns(annotation)
    assert output is not None
    validator = jsonschema_rs.Draft202012Validator(output.schema)
    assert validator.is_valid(json.loads(good))
    assert not validator.is_valid(json.loads(bad))
    assert output.check(object(), good) is None
    assert output.check(object(), bad)


def test_form_is_flat_and_without_null() -> None:
    """Spec: 2026-07-28 client/elicitation#requested-schema"""

    @dataclass
    class Details:
        name: str
        color: Color = Color.RED
        age: int | None = None

    Details.__annotations__ = {"name": str, "color": Color, "age": int | None}
    form = FormType(Details)
    assert form.schema == {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "color": {"type": "string", "title": "Color", "enum": ["green", "red"], "default": "red"},
            "age": {"type": "integer"},
        },
        "required": ["name"],
    }
    assert form.read({"name": "Ann", "age": 7.0}) == Details("Ann", Color.RED, 7)
    with pytest.raises(InvalidArguments):
        form.read({"age": 7})
