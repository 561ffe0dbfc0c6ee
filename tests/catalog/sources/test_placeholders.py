from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.catalog.sources.placeholders import Form, Scope, Template, input_variable, literal, parse_template
from outrider.catalog.sources.wording import closest, shown

ALL_FORMS = frozenset(get_args(Form))
CLAUDE = frozenset({"braced", "default"})

dialects = st.frozensets(st.sampled_from(sorted(ALL_FORMS)))
noisy_text = st.text(alphabet="${}%:-_/ \"'\\SETUNabc.envfileinputsecrets1é\n", max_size=60) | st.lists(
    st.sampled_from(
        ["${SET}", "${UNSET}", "${UNSET:-d}", "$SET", "$${SET}", "${env:SET}", "{env:SET}", "{file:x}", "${file:x}", "%SET%",
         "${{ secrets.SET }}", "${input:i}", "${workspaceFolder}", "{{SET}}", "${", "}", "${a:-${b:-", "text"]
    )
).map("".join)  # fmt: skip


def filled(text: str, dialect: frozenset[Form] = CLAUDE, *, windows: bool = False, **env: str) -> tuple[str, list[str]]:
    scope = Scope(env, workspace="/w/proj", home="/h", windows=windows)
    return scope.fill(parse_template(text, dialect, windows=windows)), scope.missing


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("${SET}", "v"),
        ("--t=${SET}", "--t=v"),
        ("https://h/${SET}/mcp", "https://h/v/mcp"),
        ("${UNSET:-d}", "d"),
        ("${SET:-d}", "v"),
        ("${UNSET:-}", ""),
        ("${UNSET:-http://x:1/y}", "http://x:1/y"),
        ("${UNSET:-${SET}}", "v"),
        ("${UNSET:-${ALSO:-x}y}z", "xyz"),
        ("${UNSET:-a}b}", "ab}"),
        ("$SET", "$SET"),
        ("$${SET}", "${SET}"),
        ("a$${SET}b${SET}c", "a${SET}bvc"),
        ("100%", "100%"),
        ("${}", "${}"),
        ("${1abc}", "${1abc}"),
        ("${", "${"),
        ("{SET}", "{SET}"),
        ("", ""),
    ],
)
def test_the_claude_dialect(text: str, result: str) -> None:
    """Case 41: ${VAR} and ${VAR:-default} everywhere, $VAR nowhere, $${ for a literal one."""
    assert filled(text, SET="v") == (result, [])


def test_a_missing_variable_is_named_and_is_never_an_empty_string() -> None:
    """Case 41: a missing variable without a default is said, once per variable."""
    assert filled("${UNSET} ${OTHER} ${UNSET}") == (
        "${UNSET} ${OTHER} ${UNSET}",
        ["the environment variable UNSET", "the environment variable OTHER"],
    )


def test_a_variable_that_is_set_to_nothing_is_set() -> None:
    """Case 41: the default stands in for a variable that is not set, as Claude Code documents it."""
    assert filled("[${EMPTY:-d}]", EMPTY="") == ("[]", [])


@pytest.mark.parametrize(
    ("form", "text", "result"),
    [
        ("env", "${env:SET}", "v"),
        ("env", "Bearer ${env:SET}!", "Bearer v!"),
        ("bare", "$SET/x", "v/x"),
        ("bare", "$SETTER", "$SETTER"),
        ("curly", "{env:SET}", "v"),
        ("secrets", "${{ secrets.SET }}", "v"),
        ("secrets", "${{secrets.SET}}", "v"),
        ("places", "${workspaceFolder}/x", "/w/proj/x"),
        ("places", "${workspaceFolderBasename}", "proj"),
        ("places", "${userHome}${/}y${pathSeparator}", "/h/y/"),
    ],
)
def test_the_forms_of_the_other_clients(form: Form, text: str, result: str) -> None:
    """Ours: each form as its client documents it."""
    value, missing = filled(text, frozenset({form}), SET="v")
    assert value == result
    assert missing == (["the environment variable SETTER"] if "SETTER" in text else [])


def test_percent_signs_count_on_windows_only() -> None:
    """Ours: Gemini CLI expands %VAR% on Windows; elsewhere it is a part of URLs."""
    percent = frozenset[Form]({"percent"})
    assert filled("%SET%/%20", percent, windows=True, SET="v") == ("v/%20", [])
    assert filled("%SET%", percent, SET="v") == ("%SET%", [])


def test_names_of_variables_have_no_case_on_windows() -> None:
    """Ours: `${env:Path}` finds PATH there, and nowhere else."""
    form = frozenset[Form]({"env"})
    assert filled("${env:Path}", form, windows=True, PATH="v") == ("v", [])
    assert filled("${env:ProgramFiles(x86)}", form, windows=True, **{"ProgramFiles(x86)": "v"}) == ("v", [])
    assert filled("${env:Path}", form, PATH="v") == ("${env:Path}", ["the environment variable Path"])


def test_a_foreign_form_is_filled_in_if_there_is_a_value_and_left_alone_if_not() -> None:
    """Ours: `sh -c 'echo ${i}'` is a legitimate argument for a client that knows no placeholders."""
    nothing: frozenset[Form] = frozenset()
    assert filled("${SET} ${i}", nothing, SET="v") == ("v ${i}", [])
    assert [reference.foreign for reference in parse_template("${SET}", nothing).references()] == [True]
    assert [reference.foreign for reference in parse_template("${SET}", CLAUDE).references()] == [False]
    assert filled("{env:SET} $SET {{SET}}", nothing, SET="v") == ("{env:SET} $SET {{SET}}", [])


def test_inputs_are_answered_by_the_caller_or_by_a_variable() -> None:
    """Ours: VS Code's ${input:id} would ask; here the answer is given, or asked for by name."""
    template = parse_template("k=${input:api-key}", ())
    assert Scope({}, inputs={"api-key": "v"}).fill(template) == "k=v"
    assert input_variable("api-key") == "OUTRIDER_INPUT_API_KEY"
    assert Scope({"OUTRIDER_INPUT_API_KEY": "v"}).fill(template) == "k=v"
    scope = Scope({})
    scope.fill(template)
    assert scope.missing == ["an answer for the input api-key"]
    assert scope.hints == ["set OUTRIDER_INPUT_API_KEY"]


def test_what_only_the_client_knows_is_said_to_be_so() -> None:
    """Ours: LibreChat's user fields and VS Code's commands have no value here."""
    assert filled("{{LIBRECHAT_USER_ID}}", frozenset({"handlebars"}))[1] == [
        "LIBRECHAT_USER_ID, which only the client knows"
    ]
    assert filled("${command:x.y}", frozenset({"places"}))[1] == ["command x.y, which only the client knows"]


def test_a_value_is_never_searched_for_placeholders() -> None:
    """Ours: a variable that contains ${OTHER} does not reveal OTHER."""
    assert filled("${SET}", SET="${OTHER}", OTHER="secret") == ("${OTHER}", [])


def test_the_same_meaning_has_one_canonical_form() -> None:
    """Ours: the same server written for two clients is recognised."""
    cursor = parse_template("Bearer ${env:T}", {"env"})
    claude = parse_template("Bearer ${T}", CLAUDE)
    opencode = parse_template("Bearer {env:T}", {"curly"})
    assert cursor.canonical == claude.canonical == opencode.canonical
    assert parse_template("$${env:T}", CLAUDE).canonical != parse_template("${env:T}", {"env"}).canonical
    assert literal("${env:T}").canonical != cursor.canonical


@given(noisy_text, dialects, st.booleans())
def test_any_text_is_parsed_and_filled_without_raising(text: str, dialect: frozenset[Form], windows: bool) -> None:
    """Ours: whatever stands in a config file."""
    template = parse_template(text, dialect, windows=windows)
    scope = Scope({"SET": "v"}, workspace="/w", home="/h", windows=windows)
    assert isinstance(scope.fill(template), str)
    assert template.is_literal == (template.text is not None)


@given(noisy_text, dialects)
def test_values_of_variables_that_are_not_named_never_appear(text: str, dialect: frozenset[Form]) -> None:
    """Ours: the environment is full of secrets; only the named variable is read."""
    env = {f"OTHER_{number}": f"<<secret {number}>>" for number in range(5)} | {"SET": "<<set>>"}
    scope = Scope(env, workspace="/w", home="/h")
    template = parse_template(text, dialect)
    result = scope.fill(template)
    assert "<<secret" not in result
    named = {reference.name for reference in template.references()}
    if "SET" not in named:
        assert "<<set>>" not in result
    assert not any("<<" in message for message in (*scope.missing, *scope.hints))


@given(st.text(max_size=80))
def test_a_text_without_placeholder_characters_stays_as_it_is(text: str) -> None:
    """Ours: nothing else has a meaning, in any dialect."""
    plain = "".join(character for character in text if character not in "${}%")
    assert Scope({}).fill(parse_template(plain, ALL_FORMS, windows=True)) == plain


@given(noisy_text)
def test_a_template_remembers_how_it_was_written(text: str) -> None:
    """Ours: what is shown is what stands in the file (but for the escape, which may be shown resolved)."""
    written = parse_template(text, CLAUDE).written()
    assert written.replace("$${", "${") == text.replace("$${", "${").replace("$${", "${")


@pytest.mark.parametrize(
    "text", ["${" * 30_000, "${A:-" * 10_000 + "}" * 10_000, "{{" * 30_000, "${{ secrets." * 8_000, "%a" * 30_000]
)
def test_long_nonsense_is_read_in_linear_time(text: str) -> None:
    """Ours: these took minutes with one search per opening bracket; the suite's own limit is the assertion."""
    assert isinstance(parse_template(text, ALL_FORMS, windows=True), Template)


def test_names_shown_in_messages_have_no_control_characters() -> None:
    """Case 134: names reach log lines and terminals."""
    assert shown("a\nb\x1b[31m") == "a\\x0ab\\x1b[31m"
    assert len(shown("x" * 500)) == 81


def test_what_was_probably_meant_is_found() -> None:
    """Ours: near matches in messages."""
    assert closest("comand", ["args", "command", "cwd"]) == ["command"]
    assert closest("nothing like it", ["args"]) == []
