"""Words: where they begin and end in any script, and what stands for all inflections of one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.catalog.search.analysis import MAX_WORD_CHARS, STOP_WORDS, compact, fold, split_words, stem


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("appTableRecord", ["app", "table", "record", "apptablerecord"]),
        (
            "bitable_v1_appTableRecord_search",
            ["bitable", "v", "1", "v1", "app", "table", "record", "apptablerecord", "search"],
        ),
        ("getHTTPResponse", ["get", "http", "response", "gethttpresponse"]),
        ("admin.users.list", ["admin", "users", "list"]),
        ("read-file", ["read", "file"]),
        ("create_issue", ["create", "issue"]),
        ("ns/tool:sub", ["ns", "tool", "sub"]),
        ("base64", ["base", "64", "base64"]),
        ("URLs", ["urls"]),
        ("getURLsFor", ["get", "urls", "for", "geturlsfor"]),
        ("OAuth2", ["o", "auth", "2", "oauth", "oauth2"]),
        ("a company's contacts", ["a", "company", "contacts"]),
    ],
)
def test_identifiers_split_at_case_acronym_digit_and_separator_borders(text: str, words: list[str]) -> None:
    """Case 57: split before folding, and keep the whole where the parts say less."""
    assert split_words(text) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("查询天气", ["查询", "询天", "天气"]),
        ("部署docker", ["部署", "docker"]),
        ("初期化する", ["初期", "期化", "化す", "する"]),
        ("показать портфель", ["показать", "портфель"]),
        ("ПоказатьПортфель", ["показать", "портфель", "показатьпортфель"]),
        ("ＡＢＣ", ["abc"]),
        ("café", ["café"]),
        ("cafe\u0301", ["café"]),
        ("Straße", ["strasse"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("天", ["天"]),
    ],
)
def test_words_of_any_script_are_found(text: str, words: list[str]) -> None:
    """Case 59: NFKC and case folding, Unicode letters, pairs for unspaced scripts, a cut between Latin and Han."""
    assert split_words(text) == words


def test_a_machine_made_identifier_is_one_word() -> None:
    """Ours: the parts of a hash are noise that would match other hashes."""
    assert split_words("a1b2c3d4e5f6a7b8") == ["a1b2c3d4e5f6a7b8"]


def test_separators_and_emoji_alone_have_no_words() -> None:
    """Ours: there is nothing to index; the search falls back to literal text."""
    assert split_words("--- ++ 🔥 …") == []


@pytest.mark.parametrize(
    ("inflected", "plain"),
    [
        ("contacts", "contact"),
        ("companies", "company"),
        ("searching", "search"),
        ("deleted", "delete"),
        ("café", "cafe"),
        ("việt", "viet"),
        ("αρχείων", "αρχειων"),  # as it is written in capitals
        ("łódź", "lodz"),
        ("smørrebrød", "smorrebrod"),
        ("ёлка", "елка"),
    ],
)
def test_inflections_and_accents_share_a_stem(inflected: str, plain: str) -> None:
    """Case 58: a plural in the query finds the singular in the name."""
    assert stem(inflected) == stem(plain)


def test_letters_that_only_look_accented_keep_their_marks() -> None:
    """Case 59: й is a letter of its own, and a Devanagari mark is a vowel."""
    assert stem("мой") != stem("мои")
    assert stem("हिन्दी") == "हिन्दी"
    assert stem("ไทย") == "ไทย"
    assert stem("が") != stem("か")


def test_verbs_of_action_are_no_stop_words() -> None:
    """Ours: `delete` against `list` is often the whole question."""
    assert not STOP_WORDS & {
        "get",
        "list",
        "create",
        "delete",
        "update",
        "search",
        "find",
        "send",
        "show",
        "run",
        "use",
    }


@given(st.text(max_size=200))
def test_analysis_never_fails_and_gives_bounded_folded_words(text: str) -> None:
    """Ours: names and descriptions come from untrusted servers."""
    for word in split_words(text):
        assert word
        assert len(word) <= 3 * MAX_WORD_CHARS  # case folding may lengthen a word
        assert stem(word)
        assert split_words(word) or word not in text


@given(st.text(max_size=100))
def test_compact_and_fold_are_idempotent(text: str) -> None:
    """Ours: a key made from a key is the key, otherwise names would be stored and looked up differently."""
    assert fold(fold(text)) == fold(text)
    assert compact(compact(text)) == compact(text)


def test_compact_ignores_case_width_and_separators() -> None:
    """Case 56: `Zeta_Script`, `zeta-script` and "zeta script" are one name."""
    assert {compact(name) for name in ("Zeta_Script", "zeta-script", "zeta script", "ｚｅｔａＳｃｒｉｐｔ")} == {
        "zetascript"
    }


def test_compact_of_separators_alone_is_the_text_itself() -> None:
    """Ours: a tool called 🔥 is found by 🔥 and by nothing else."""
    assert compact(" 🔥 ") == "🔥"
    assert compact("🔥") != compact("👋")
