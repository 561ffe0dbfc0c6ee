"""Names that models see."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.formats.documented import GEMINI_NAME, OPENAI_NAME
from outrider.catalog.formats import Aliases, ToolRef, UnknownTool, shown_name

REFS = st.builds(ToolRef, st.text(max_size=30), st.text(max_size=150))
# Near misses: what tells one name from another is lost by every simple clean-up.
CLOSE = st.builds(
    ToolRef,
    st.sampled_from(["a", "a_", "a__b", "a-b", "a_b", "A_b", "a.b", "a b", "", "_a", "é", "1a"]),
    st.sampled_from(["x", "_x", "b__x", "x_", "x.", "x-y", "x_y", "x y", "天気", "", "x_aaaaaaaa", "x_22222222"]),
)


@given(REFS)
def test_every_shown_name_is_one_that_every_vendor_takes(ref: ToolRef) -> None:
    """Ours: one alphabet and length for all vendors, so that a conversation can move."""
    assert OPENAI_NAME.fullmatch(shown_name(ref))
    assert GEMINI_NAME.fullmatch(shown_name(ref))


@given(st.lists(st.one_of(CLOSE, REFS), unique=True, max_size=12))
def test_two_tools_never_share_a_name_and_every_name_leads_back(refs: list[ToolRef]) -> None:
    """Ours: aliases are collision-free and reversible."""
    aliases = Aliases(refs)
    assert not aliases.refused
    assert len(aliases) == len(refs)
    assert {aliases.resolve(shown_name(ref)) for ref in refs} == set(refs)


@given(st.lists(CLOSE, unique=True), st.randoms(use_true_random=False))
def test_the_order_in_which_servers_answer_changes_nothing(refs: list[ToolRef], shuffle: random.Random) -> None:
    """Ours: a name is a function of its tool."""
    other = list(refs)
    shuffle.shuffle(other)
    assert dict(Aliases(refs)) == dict(Aliases(other))
    assert list(Aliases(refs)) == list(Aliases(other))


@pytest.mark.parametrize(
    "name", ["n" * 63, "n" * 64, "n" * 65, "n" * 128, "n" * 200, "admin.tools.list", "a/b", "查询", "1st"]
)
def test_long_and_foreign_names_get_an_alias_and_the_original_is_called(name: str) -> None:
    """Case 75: provider rules are narrower than MCP's; the original name goes into the call."""
    aliases = Aliases([ToolRef("srv", name)])
    (shown,) = aliases
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", shown)
    assert aliases.resolve(shown) == ToolRef("srv", name)
    assert aliases.resolve(name) == ToolRef("srv", name)


def test_servers_that_become_equal_after_cleaning_stay_apart() -> None:
    """Case 77: unique names, never the first match."""
    refs = [ToolRef(server, "x") for server in ("my-server", "my_server", "My.Server", "my server")]
    aliases = Aliases(refs)
    assert len(set(aliases)) == 4
    assert {aliases[name] for name in aliases} == set(refs)


def test_a_plain_name_is_kept_readable() -> None:
    """Ours: where both parts are plain, nothing is hidden behind a digest."""
    assert shown_name(ToolRef("github", "create_issue")) == "github__create_issue"


def test_a_tool_named_like_an_alias_cannot_pass_for_another_tool() -> None:
    """Ours: digests can be computed by anyone, so a name that looks like one gets its own."""
    victim = ToolRef("a.b", "pay")
    imitation = ToolRef("a_b", shown_name(victim).removeprefix("a_b__"))
    assert shown_name(imitation) != shown_name(victim)
    assert Aliases([victim, imitation]).resolve(shown_name(victim)) == victim


def test_a_bare_name_on_two_servers_is_ambiguous_and_names_both() -> None:
    """Case 120: ambiguity is an error listing the full names."""
    aliases = Aliases([ToolRef("one", "x"), ToolRef("two", "x"), ToolRef("two", "y")])
    assert aliases.resolve("x") == UnknownTool("x", ("one__x", "two__x"), is_ambiguous=True)
    assert aliases.resolve("y") == ToolRef("two", "y")
    assert "one__x" in str(aliases.resolve("x"))


def test_an_unknown_name_comes_with_near_ones() -> None:
    """Case 120: unknown is an error with near matches."""
    aliases = Aliases([ToolRef("github", "create_issue"), ToolRef("github", "list_issues"), ToolRef("slack", "post")])
    unknown = aliases.resolve("github__create_isue")
    assert isinstance(unknown, UnknownTool)
    assert unknown.near[0] == "github__create_issue"
    assert aliases.resolve("nothing like it") == UnknownTool("nothing like it")


MANGLED = (
    "Create_Issue", "createIssue", "create-issue", " create_issue ", "GIT-HUB__CREATE_ISSUE", "git_hub__create_issue", "github.createIssue",
    "git-hub/create_issue", "functions.git-hub__create_issue", "functions.create_issue:0", "default_api.create_issue",
    "mcp__git-hub__create_issue", "create_issue<|channel|>json", "create_issue()",
)  # fmt: skip


@pytest.mark.parametrize("name", MANGLED)
def test_a_name_that_a_model_has_mangled_means_the_one_tool_it_can_mean(name: str) -> None:
    """Case 120: case, punctuation and what models wrap around a name are no reason for another turn."""
    table = Aliases([ToolRef("git-hub", "create_issue"), ToolRef("git-hub", "list_issues"), ToolRef("fs", "read_file")])
    assert table.resolve(name) == ToolRef("git-hub", "create_issue")


def test_a_mangled_name_of_several_tools_means_none() -> None:
    """Case 120: ambiguity is an error that lists the full names; an exact name is never ambiguous with a mangled one."""
    table = Aliases([ToolRef("a", "find"), ToolRef("b", "Find"), ToolRef("c", "f-ind")])
    assert table.resolve("find") == ToolRef("a", "find")
    assert table.resolve("FIND") == UnknownTool("FIND", ("a__find", "b__Find", "c__f-ind"), is_ambiguous=True)
    for nothing in ("", "___", "()", "functions.", "<|x|>"):
        assert isinstance(table.resolve(nothing), UnknownTool)
