from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.catalog.sources.documents import MAX_DEPTH, parse_document
from outrider.errors import ConfigError

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=30,
)


def value_of(text: str | bytes, format: str = "json") -> object:
    data = text if isinstance(text, bytes) else text.encode("utf-8", errors="surrogatepass")
    return parse_document(data, format=format, source="f").value  # type: ignore[arg-type]


def position_of(text: str | bytes, format: str = "json") -> str:
    with pytest.raises(ConfigError) as caught:
        value_of(text, format)
    return caught.value.source


@given(json_values, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_plain_json_is_read_as_the_standard_library_reads_it(
    value: object, indent: int | str | None, ascii_only: bool
) -> None:
    """Ours: tolerance for comments changes nothing in a file without any."""
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert value_of(text) == json.loads(text)


@given(st.text(alphabet="{}[]\",:/*\n\\ 01-.eEtruefalsn'a\u00e9", max_size=40))
def test_malformed_json_is_an_error_with_a_position_and_nothing_else(text: str) -> None:
    """Ours: whatever the bytes, the outcome is a value or a ConfigError that says file, line and column."""
    try:
        value = value_of(text)
    except ConfigError as error:
        name, line, column = error.source.split(":")
        assert name == "f"
        assert int(line) >= 1
        assert int(column) >= 1
        with pytest.raises(ValueError):
            json.loads(text)
    else:
        try:
            assert json.loads(text) == value
        except ValueError:
            assert not text.strip() or any(token in text for token in ("//", "/*", ",")), (
                "accepted without comments or commas"
            )


@given(st.binary(max_size=60), st.sampled_from(["json", "toml", "yaml"]))
def test_arbitrary_bytes_raise_nothing_but_config_errors(data: bytes, format: str) -> None:
    """Ours: one unreadable file never ends the program."""
    try:
        value_of(data, format)
    except ConfigError:
        pass


@given(st.text(max_size=200), st.sampled_from(["toml", "yaml"]))
def test_arbitrary_text_raises_nothing_but_config_errors(text: str, format: str) -> None:
    """Ours: one unreadable file never ends the program."""
    try:
        value_of(text, format)
    except ConfigError:
        pass


def test_comments_and_trailing_commas_are_allowed() -> None:
    """Case 45: a file as VS Code writes it, with // inside a URL."""
    text = '{ // servers\n "a": {"url": "http://h//x", /* old: 1, */ },\n "b": [1, 2, /* none */ ],\n}\n// end'
    assert value_of(text) == {"a": {"url": "http://h//x"}, "b": [1, 2]}


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ('{"a": 1\n "b": 2}', "f:2:2"),
        ('{"a": nope}', "f:1:7"),
        ("{'a': 1}", "f:1:2"),
        ('{"a": 1', "f:1:1"),
        ('{\n "a": [1, 2', "f:2:7"),
        ('{"a": 1} x', "f:1:10"),
        ("{,}", "f:1:2"),
        ("[1,,2]", "f:1:4"),
        ('{"a": /* 1}', "f:1:7"),
        ('{"a": "x\ny"}', "f:1:9"),
        ('{"a": NaN}', "f:1:7"),
        ('{"a"', "f:1:5"),
        ('{"é": "ü" "x"}', "f:1:11"),
    ],
)
def test_an_error_in_json_has_its_line_and_column(text: str, position: str) -> None:
    """Case 44: the position, in characters, so that the user finds it."""
    assert position_of(text) == position


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf" + '{"ä": 1}'.encode(),
        b"\xff\xfe" + '{"ä": 1}'.encode("utf-16-le"),
        b"\xfe\xff" + '{"ä": 1}'.encode("utf-16-be"),
        '{\r\n"ä"\r\n:\r\n1}\r\n'.encode(),
        '{\r"ä":\r1}'.encode(),
    ],
)
def test_byte_order_marks_utf16_and_line_ends_are_accepted(data: bytes) -> None:
    """Case 44: what PowerShell and old editors write."""
    assert value_of(data) == {"ä": 1}


def test_a_file_that_is_no_utf8_says_where() -> None:
    """Case 44: the position of the first bad byte."""
    assert position_of(b'{\n"a": "\xff"}') == "f:2:7"
    assert position_of('{\n"a": "é"}'.encode("latin-1")) == "f:2:7"
    assert position_of('{"a": 1}'.encode("utf-16-le")) == "f:1:2"


def test_line_ends_do_not_change_line_numbers() -> None:
    """Ours: CRLF and lone CR count as one line each."""
    for newline in ("\n", "\r\n", "\r"):
        text = newline.join(['{"a":', "1,", '"b": {"c": 2},', "oops}"])
        assert position_of(text) == "f:4:1"


def test_members_know_their_line() -> None:
    """Ours: an entry's origin is file and line."""
    document = parse_document(
        b'{\n"mcpServers": {\n  "a": {},\n\n  "b": {"args": [\n"x"]}}}', format="json", source="f"
    )
    assert [document.line(("mcpServers", name)) for name in "ab"] == [3, 5]
    assert document.line(("mcpServers", "b", "args", 0, "deeper", "still")) == 5
    assert document.line(("nothing",)) == 0


def test_a_repeated_key_is_noted_and_the_last_one_counts() -> None:
    """Ours: two servers of one name in one file are a mistake that the user is told about."""
    document = parse_document(b'{"a": 1,\n"a": 2}', format="json", source="f")
    assert document.value == {"a": 2}
    assert document.repeated == ((("a",), 2),)
    document = parse_document(b"a: 1\nb: 2\na: 3\n", format="yaml", source="f")
    assert document.value == {"a": 3, "b": 2}
    assert document.repeated == ((("a",), 3),)


def test_an_empty_file_is_none_and_not_an_empty_object() -> None:
    """Case 45: an empty file is told apart from one without servers."""
    for data in (b"", b" \n", b"\xef\xbb\xbf", b"// nothing but a comment", b"/* a */\n// b\n"):
        assert value_of(data) is None


@pytest.mark.parametrize("opener", ["[", '{"a":', "[{"])
@pytest.mark.parametrize("format", ["json", "yaml"])
def test_nesting_has_a_limit(opener: str, format: str) -> None:
    """Ours: a file of brackets costs an error, not the stack."""
    assert position_of(opener * 100_000, format).startswith("f")


def test_nesting_up_to_the_limit_is_read() -> None:
    """Ours: the limit itself is allowed, one more is not."""
    assert value_of("[" * MAX_DEPTH + "]" * MAX_DEPTH) is not None
    assert value_of("[" * MAX_DEPTH + "]" * MAX_DEPTH, "yaml") is not None
    deep = "[/**/" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)
    assert position_of(deep)
    assert position_of("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "yaml")


def test_a_number_of_absurd_length_is_an_error() -> None:
    """Ours: Python refuses to convert it, which must not surface as another exception."""
    assert position_of('{"a": ' + "9" * 10_000 + "}") == "f:1:7"
    assert position_of("a = " + "9" * 10_000, "toml").startswith("f")
    assert value_of("a: " + "9" * 10_000, "yaml") == {"a": "9" * 10_000}


def test_toml_errors_have_a_position_and_tables_a_line() -> None:
    """Ours: Codex's file is TOML."""
    assert position_of("a = 1\nb = \n", "toml") == "f:2:5"
    assert position_of("[a\n", "toml") == "f:1:3"
    text = b'x = 1\r\n[mcp_servers.a]\r\ncommand = "c"\r\n\r\n[mcp_servers."b.c"]\r\nargs = ["[mcp_servers.no]"]\r\n'
    document = parse_document(text, format="toml", source="f")
    assert document.line(("mcp_servers", "a")) == 2
    assert document.line(("mcp_servers", "a", "command")) == 3
    assert document.line(("mcp_servers", "b.c")) == 5


def test_yaml_errors_have_a_position_and_entries_a_line() -> None:
    """Ours: the files of Goose, LibreChat and Continue are YAML."""
    assert position_of("a:\n\tb: 1", "yaml") == "f:2:1"
    assert position_of("a: [1", "yaml").startswith("f:")
    assert position_of("a: 1\n---\nb: 2", "yaml") == "f:2:1"
    assert position_of("a: *nobody", "yaml") == "f:1:4"
    document = parse_document(b"x: 1\nmcpServers:\n  a: {command: c}\n  b:\n    url: u\n", format="yaml", source="f")
    assert [document.line(("mcpServers", name)) for name in "ab"] == [3, 4]


def test_yaml_scalars_are_those_of_yaml() -> None:
    """Ours: those of YAML 1.2, which the clients read; a date or an unknown tag stays text."""
    text = "a: True\nb: 1\nc: 1.5\nd: ~\ne: 'true'\nf: 2020-01-01\ng: !secret x\nh: !!int abc\n1: one\ni: !!int 0x10\n"
    assert value_of(text, "yaml") == {
        "a": True, "b": 1, "c": 1.5, "d": None, "e": "true", "f": "2020-01-01", "g": "x", "h": "abc", "1": "one", "i": 16,
    }  # fmt: skip


@pytest.mark.parametrize(
    "word", ["NO", "yes", "off", "22:22", "0755", "1.10", "1_000", "0o17", "0x1F", "1e3", ".5", "+5", "007", "=", "<"]
)
def test_yaml_words_that_only_an_older_yaml_reads_as_values_stay_as_they_are_written(word: str) -> None:
    """Case 41: a country, a port mapping, a version or a file mode among the variables of a server."""
    assert value_of(f"a: {word}\nb: [{word}]", "yaml") == {"a": word, "b": [word]}


def test_yaml_anchors_and_merges_work_and_cannot_explode() -> None:
    """Ours: aliases are followed; a file that multiplies itself is refused, or costs no more than it is long."""
    assert value_of("base: &b {x: 1, y: 2}\na: {<<: *b, y: 3}\nc: *b", "yaml") == {
        "base": {"x": 1, "y": 2}, "a": {"x": 1, "y": 3}, "c": {"x": 1, "y": 2},
    }  # fmt: skip
    assert "part of" in error_of("a: &a [*a]", "yaml")
    laughs = "a0: &a0 {k: v}\n" + "".join(
        f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}\n" for i in range(1, 60)
    )
    assert isinstance(value_of(laughs, "yaml"), dict)
    wide = (
        "a: &a {"
        + ", ".join(f"k{i}: 1" for i in range(2000))
        + "}\n"
        + "".join(f"b{i}: {{<<: *a}}\n" for i in range(200))
    )
    assert "200,000" in error_of(wide, "yaml")


def error_of(text: str, format: str) -> str:
    with pytest.raises(ConfigError) as caught:
        value_of(text, format)
    return str(caught.value)
