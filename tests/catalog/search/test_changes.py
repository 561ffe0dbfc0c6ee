"""The index under change: servers come, go and change their tools, and every answer is that of the present."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outrider.catalog.search.index as index_module
from outrider.catalog.search import SearchResult, ToolDocument, ToolIndex

WORDS = ["alpha", "beta", "gamma", "delta", "list", "delete", "issue", "issues", "weather", "webhook"]


def documents(server: str, seed: int) -> list[ToolDocument]:
    return [
        ToolDocument(
            server=server,
            name=f"{WORDS[(seed + n) % 10]}_{WORDS[(seed * 3 + n * 7) % 10]}",
            description=" ".join(WORDS[(seed * n + k) % 10] for k in range(6)),
        )
        for n in range(seed % 5 + 1)
    ]


def outline(result: SearchResult) -> list[object]:
    return [
        [(hit.document, hit.score, hit.kind, hit.matched) for hit in (*result.hits, *result.nearest)],
        result.nothing_fits,
        result.nearest_servers,
        result.total,
    ]


def test_replaced_tools_are_found_and_removed_ones_are_not() -> None:
    """Case 64: the index is never older than the catalog."""
    index = ToolIndex()
    old, new = (ToolDocument(server="s", name=name) for name in ("a_old", "b_new"))
    index.replace_server("s", [old])
    assert index.search("a_old").hits[0].document is old
    index.replace_server("s", [new])
    assert index.search("a_old").nothing_fits
    assert index.search("old").nothing_fits
    assert index.search("b_new").hits[0].document is new
    index.remove_server("s")
    index.remove_server("s")
    assert index.search("b_new").nothing_fits
    assert (len(index), index.servers) == (0, ())


def test_changing_the_list_that_was_given_changes_nothing() -> None:
    """Case 64: the index holds a snapshot, not the caller's list."""
    given_list = [ToolDocument(server="s", name="first")]
    index = ToolIndex()
    index.replace_server("s", given_list)
    given_list[0] = ToolDocument(server="s", name="second")
    assert index.search("first").hits
    assert index.search("second").nothing_fits


def test_a_replacement_that_fails_leaves_the_old_tools() -> None:
    """Ours: half an update is never seen."""

    def failing() -> Iterator[ToolDocument]:
        yield ToolDocument(server="s", name="half")
        raise RuntimeError("the list broke off")

    index = ToolIndex()
    index.replace_server("s", [ToolDocument(server="s", name="whole")])
    with pytest.raises(RuntimeError, match="broke off"):
        index.replace_server("s", failing())
    assert index.search("whole").hits
    assert index.search("half").nothing_fits


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.sampled_from("pqrst"), st.integers(0, 30) | st.none()), max_size=14),
    st.lists(st.sampled_from([*WORDS, "wether", "web hook"]), min_size=1, max_size=4).map(" ".join),
    st.booleans(),
)
def test_history_does_not_matter(changes: list[tuple[str, int | None]], query: str, search_between: bool) -> None:
    """Ours: equal catalogs give equal answers, whatever came and went before, in whichever order."""
    index = ToolIndex()
    present: dict[str, int] = {}
    for server, seed in changes:
        if seed is None:
            index.remove_server(server)
            present.pop(server, None)
        else:
            index.replace_server(server, documents(server, seed))
            present[server] = seed
        if search_between:
            index.search(query)
    fresh = ToolIndex()
    for server in sorted(present, reverse=True):
        fresh.replace_server(server, documents(server, present[server]))
    assert outline(index.search(query, threshold=0)) == outline(fresh.search(query, threshold=0))
    assert outline(index.search("")) == outline(fresh.search(""))


def test_equal_tools_beyond_those_that_are_ranked_are_chosen_by_their_names() -> None:
    """Ours: of ninety tools that fit alike, the same are seen whichever came first, and a longer page begins with the shorter one."""
    servers = [f"fork-{number:02}" for number in range(90)]
    tools = {server: [ToolDocument(server=server, name="alpha_list", description="Lists alphas")] for server in servers}
    pages = []
    for turn in (servers, servers[::-1], [*servers[40:], *servers[:40]]):
        index = ToolIndex()
        for server in turn:
            index.replace_server(server, tools[server])
        pages.append([outline(index.search("list the alphas", limit=limit, threshold=0))[0] for limit in (5, 30, 90)])
        short, longer, whole = pages[-1]
        assert short == longer[:5]
        assert longer == whole[:30]
    assert pages[0] == pages[1] == pages[2]


def test_many_replacements_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: what removed tools left behind is dropped, and the answers stay the same."""
    monkeypatch.setattr(index_module, "COMPACTED", 20)
    index = ToolIndex()
    index.replace_server("steady", [ToolDocument(server="steady", name="steady_tool", description="Always there")])
    for turn in range(40):
        index.replace_server("busy", documents("busy", turn))
        assert index.search("steady_tool").hits[0].document.server == "steady"
    assert len(index._documents) < 2 * len(index) + 40
    fresh = ToolIndex()
    fresh.replace_server("busy", documents("busy", 39))
    fresh.replace_server("steady", [ToolDocument(server="steady", name="steady_tool", description="Always there")])
    assert outline(index.search("alpha issue", threshold=0)) == outline(fresh.search("alpha issue", threshold=0))


def test_a_reader_in_another_thread_sees_one_state_or_the_other() -> None:
    """Ours: a search never sees half of a server."""
    index = ToolIndex()
    states = [
        [ToolDocument(server="s", name=f"{state}_{n}", description="shared words") for n in range(20)] for state in "ab"
    ]
    index.replace_server("s", states[0])
    stop = threading.Event()
    seen: list[set[str]] = []

    def read() -> None:
        while not stop.is_set():
            seen.append({hit.document.name[0] for hit in index.search("shared words", limit=20, threshold=0).hits})

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for turn in range(30):
            index.replace_server("s", states[turn % 2])
    finally:
        stop.set()
        reader.join(timeout=30)
    assert not reader.is_alive()
    assert all(len(letters) == 1 for letters in seen)


def test_importing_the_search_does_not_import_tantivy() -> None:
    """Ours: `import outrider` must stay light; tantivy is loaded with the first tool."""
    program = "import sys, outrider.catalog.search; sys.exit('tantivy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0
