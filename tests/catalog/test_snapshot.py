"""Names, order and immutability of what the catalog shows."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.catalog.reference import ToolRef
from outrider.catalog.snapshot import AmbiguousTool, ServerState, ServerView, Snapshot, UnknownTool
from outrider.protocol.model import TOOLS, Tool, read_page


def tools(*names: str) -> tuple[Tool, ...]:
    entries = [{"name": name, "inputSchema": {"type": "object"}, "x-future": 1} for name in names]
    page = read_page(TOOLS, msgspec.json.encode({"tools": entries}))
    return tuple(item for item in page.items if isinstance(item, Tool))


def view(key: str, *names: str, **members: Any) -> ServerView:
    return ServerView(key=key, name=key, state=ServerState.READY, tools=tools(*names), **members)


def test_a_bare_name_on_one_server_means_that_tool() -> None:
    """Case 120."""
    snapshot = Snapshot(1, [view("a", "search"), view("b", "fetch")])
    assert snapshot.resolve("fetch").id == ToolRef("b", "fetch")


def test_a_bare_name_on_two_servers_is_an_error_that_lists_the_full_names() -> None:
    """Case 24, case 120: never the first match."""
    snapshot = Snapshot(1, [view("a", "search"), view("b", "search")])
    with pytest.raises(AmbiguousTool) as caught:
        snapshot.resolve("search")
    assert caught.value.candidates == ("a/search", "b/search")
    assert snapshot.resolve("b/search").id == ToolRef("b", "search")


def test_an_unknown_name_is_answered_with_near_ones() -> None:
    """Case 120."""
    snapshot = Snapshot(1, [view("a", "create_issue", "list_issues"), view("b", "weather")])
    with pytest.raises(UnknownTool) as caught:
        snapshot.resolve("creat_issue")
    assert caught.value.near[0] == "a/create_issue"
    assert "a/create_issue" in caught.value.hint


def test_a_tool_whose_own_name_has_a_slash_is_found_by_its_full_and_its_bare_name() -> None:
    """Ours: a server key never holds a slash, so the first one ends it."""
    snapshot = Snapshot(1, [view("a", "x/y"), view("x", "z")])
    assert snapshot.resolve("a/x/y").id == ToolRef("a", "x/y")
    assert snapshot.resolve("x/y").id == ToolRef("a", "x/y")


@given(st.permutations(["a", "b", "c", "d"]))
def test_order_does_not_depend_on_which_server_answered_first(order: list[str]) -> None:
    """Case 25: same servers, same bytes."""
    shown = [str(tool.id) for tool in Snapshot(1, [view(key, "one", "two") for key in order]).tools]
    assert shown == sorted(shown)


@given(st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=8, unique=True))
def test_every_shown_name_leads_back_to_its_tool(names: list[str]) -> None:
    """Ours: shown names are collision-free and reversible, whatever tools are called."""
    snapshot = Snapshot(1, [view("a", *names), view("b", *names)])
    shown = [str(tool.id) for tool in snapshot.tools]
    assert len(set(shown)) == len(shown)
    for tool in snapshot.tools:
        assert snapshot.resolve(str(tool.id)).id == tool.id


def test_unknown_members_of_a_tool_survive() -> None:
    """Case 118."""
    (found,) = Snapshot(1, [view("a", "x")]).tools
    assert found.tool.decoded()["x-future"] == 1
