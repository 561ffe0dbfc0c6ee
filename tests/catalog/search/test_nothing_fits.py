"""When the answer is that nothing fits: hand-made catalogs, foreign queries, and queries in other words than the tools'."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from outrider.catalog.search import MatchKind, ToolDocument, ToolIndex
from outrider.catalog.search.confidence import (
    EVIDENCE,
    MEANING,
    SIGNS,
    WEIGHTS,
    WEIGHTS_WITH_MEANING,
    probability,
    sureness,
)


def tool(server: str, name: str, description: str = "", *parameters: str) -> ToolDocument:
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in parameters}}
    return ToolDocument(server=server, name=name, description=description, input_schema=schema)


def index_of(tools: Iterable[ToolDocument]) -> ToolIndex:
    index = ToolIndex()
    servers: dict[str, list[ToolDocument]] = {}
    for document in tools:
        servers.setdefault(document.server, []).append(document)
    for server, members in servers.items():
        index.replace_server(server, members)
    return index


OFFICE = [
    tool("calendar", "create_event", "Create an event in the calendar, with its time and guests", "title", "start"),
    tool("calendar", "list_events", "List the events of a day or a week", "from", "to"),
    tool("mail", "send_email", "Send an email to one or several people", "to", "subject", "body"),
    tool("mail", "search_messages", "Find messages by words, sender or date", "query"),
    tool("tracker", "create_issue", "Create an issue in a project", "project", "title", "body"),
    tool("tracker", "close_issue", "Close an issue, with a comment", "id", "comment"),
    tool("weather", "get_forecast", "Weather forecast for a place in the coming days", "place", "days"),
    tool("files", "read_file", "Read a text file", "path"),
    tool("files", "delete_file", "Delete a file or an empty folder", "path"),
    tool("db", "run_query", "Run an SQL query against the warehouse and give back its rows", "sql"),
]
FOREIGN = [
    "translate this poem into Portuguese",
    "play some jazz in the kitchen",
    "what is the square root of 1764",
    "order two pizzas with extra cheese",
    "how many calories does a banana have",
]


@pytest.mark.parametrize("query", FOREIGN)
def test_a_foreign_query_gets_nothing_fits_and_the_nearest_servers(query: str) -> None:
    """Case 58: not the least bad tools, but that nothing fits, and where one could look."""
    result = index_of(OFFICE).search(query)
    assert (result.nothing_fits, result.hits) == (True, ())
    assert 1 <= len(result.nearest_servers) <= 5
    assert set(result.nearest_servers) <= {document.server for document in OFFICE}


@pytest.mark.parametrize(
    ("query", "server"),
    [
        ("will it rain in Paris this week, what is the weather", "weather"),
        ("write an email to my landlord about the broken heating", "mail"),
        ("I found a bug in the login page of the shop, please file an issue about it", "tracker"),
        ("remove this file", "files"),
        ("which events do I have on Friday?", "calendar"),
        ("get the rows of the orders table with SQL", "db"),
    ],
)
def test_a_query_in_other_words_is_served(query: str, server: str) -> None:
    """Case 58: one telling word among many others is enough."""
    result = index_of(OFFICE).search(query)
    assert not result.nothing_fits
    assert server in {hit.document.server for hit in result.hits}


@pytest.mark.parametrize("document", OFFICE, ids=lambda document: document.name)
def test_an_exact_name_always_fits(document: ToolDocument) -> None:
    """Case 56: whatever the threshold, alone or with the server's key, also inside a foreign sentence."""
    index = index_of(OFFICE)
    for query in (document.name, f"{document.server}/{document.name}", f"bake a cake with `{document.name}`"):
        result = index.search(query, threshold=1.0)
        assert (result.hits[0].document, result.hits[0].kind) == (document, MatchKind.EXACT)


def test_queries_without_spaces_between_words_are_judged_like_others() -> None:
    """Case 59: in Chinese, what is served is found and what is foreign is not."""
    index = index_of(
        [
            tool("tianqi", "查询天气", "查询一个城市未来几天的天气预报", "城市"),
            tool("youjian", "发送邮件", "给一个人发送电子邮件", "收件人"),
            tool("rili", "新建日程", "在日历中新建一个日程", "时间"),
        ]
    )
    assert index.search("北京明天的天气怎么样").hits[0].document.server == "tianqi"
    assert index.search("给老板发一封邮件").hits[0].document.server == "youjian"
    for foreign in ("播放一首爵士乐", "把这首诗翻译成法语"):
        assert index.search(foreign).nothing_fits


def test_one_tool_is_judged_like_many() -> None:
    """Ours: with one tool, every word it has is one that all tools have."""
    index = index_of(OFFICE[:1])
    assert index.search("schedule a meeting in my calendar").hits[0].document is OFFICE[0]
    foreign = index.search("play some jazz")
    assert (foreign.nothing_fits, foreign.nearest_servers) == (True, ("calendar",))


def test_no_tools_fit_nothing() -> None:
    """Ours: and there is no nearest server."""
    result = ToolIndex().search("anything at all")
    assert (result.nothing_fits, result.hits, result.nearest_servers) == (True, (), ())


def test_what_fits_still_fits_among_twenty_thousand() -> None:
    """Ours: a crowd makes chance matches likelier, and a query for one of its tools no less sure."""
    topics = ["invoices", "parcels", "sensors", "tickets", "meters", "recipes", "ledgers", "permits"]
    crowd = (
        tool(f"s{number % 400}", f"do_{number + 30_000}", f"Handles {topics[number % 8]} of branch {number % 1000}")
        for number in range(20_000)
    )
    index = index_of([*OFFICE, *crowd])
    assert index.search("write an email to my landlord about the broken heating").hits[0].document.name == "send_email"
    assert index.search("create_event").hits[0].document.name == "create_event"
    for foreign in FOREIGN:
        assert index.search(foreign).nothing_fits


def test_the_threshold_decides_and_nothing_else_changes() -> None:
    """Ours: 0 gives whatever there is, in the order that a search below the threshold has it as nearest."""
    index = index_of(OFFICE)
    query = "create a picture of a dragon over a castle"
    everything, strict = index.search(query, threshold=0), index.search(query, threshold=1.0)
    assert not everything.nothing_fits
    assert strict.nearest == everything.hits


def test_scores_fall_in_the_order_of_hits() -> None:
    """Ours: but for those that were moved back for being near repetitions."""
    hits = index_of(OFFICE).search("create an issue with a title in the project", threshold=0).hits
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_each_weight_has_the_sign_that_its_name_promises() -> None:
    """Ours: evidence for a tool never speaks against it, in catalogs that nobody measured either."""
    assert len(WEIGHTS) == len(EVIDENCE)
    assert len(WEIGHTS_WITH_MEANING) == len(EVIDENCE) + len(MEANING) == len(SIGNS)
    for weights in (WEIGHTS, WEIGHTS_WITH_MEANING):
        assert all(weight * sign >= 0 for weight, sign in zip(weights, SIGNS, strict=False))


def test_more_evidence_makes_surer() -> None:
    """Ours: and a hit behind the best is never surer than that."""
    some = [4.0, 3.0, 0.0, 0.6, 1.5, 0.4, 1.0, 0.5, 0.7, 1.0, 60.0, 6.0]
    assert len(some) == len(EVIDENCE)
    for place, sign in enumerate(SIGNS[: len(some)]):
        more = [value + sign * (index == place) for index, value in enumerate(some)]
        assert sureness(more) > sureness(some)
    assert (
        0 < probability(-50.0, 3.0) < probability(0.0, 1.0) < probability(0.0, 0.0) == 0.5 < probability(50.0, 0.0) <= 1
    )
