"""What a search finds, in which order, and why."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from outrider.catalog.search import MatchKind, SearchResult, ToolDocument, ToolIndex


def tool(server: str, name: str, description: str = "", **more: object) -> ToolDocument:
    return ToolDocument(server=server, name=name, description=description, **more)  # type: ignore[arg-type]


def index_of(documents: Iterable[ToolDocument]) -> ToolIndex:
    index = ToolIndex()
    servers: dict[str, list[ToolDocument]] = {}
    for document in documents:
        servers.setdefault(document.server, []).append(document)
    for server, members in servers.items():
        index.replace_server(server, members)
    return index


def names(result: SearchResult) -> list[str]:
    return [f"{hit.document.server}/{hit.document.name}" for hit in result.hits]


FILLER = [tool("filler", f"filler_{number}", f"Does the unrelated thing number {number}") for number in range(200)]
CRM = [
    tool("crm", "search_contacts", "Search the contacts of the address book"),
    tool("crm", "get_company", "Get one company by its id"),
    tool("crm", "addPerson", "Add a person to the address book"),
    tool("crm", "addActivity", "Add an activity such as a call for a person"),
    tool("crm", "delete_person", "Delete a person from the address book"),
]


class TestExactNames:
    @pytest.mark.parametrize(
        "query",
        [
            "zeta_script",
            "Zeta_Script",
            "ZETA_SCRIPT",
            "a/zeta_script",
            "a__zeta_script",
            "A__Zeta_Script",
            "zetaScript",
            "zeta script",
        ],
    )
    def test_a_name_in_any_case_with_or_without_its_server_is_first(self, query: str) -> None:
        """Case 56: also with an empty description."""
        index = index_of([*FILLER, tool("a", "zeta_script"), tool("b", "script", "zeta zeta zeta script a script")])
        first = index.search(query).hits[0]
        assert (first.document.server, first.document.name) == ("a", "zeta_script")
        assert (first.kind, first.score, first.why) == (MatchKind.EXACT, 1.0, "its name was asked for")

    def test_all_servers_with_the_bare_name_are_returned_before_anything_else(self) -> None:
        """Case 56: a bare name that several servers have names all of them."""
        index = index_of(
            [*FILLER, *(tool(server, "fetch", "Fetch a page") for server in "abc"), tool("d", "fetch_all")]
        )
        result = index.search("Fetch", limit=4)
        assert names(result)[:3] == ["a/fetch", "b/fetch", "c/fetch"]

    def test_the_server_in_the_name_decides_between_equal_names(self) -> None:
        """Case 56: a full name means one tool, and the others are not exact."""
        index = index_of(
            [tool("alpha", "fetch", "Fetch"), tool("beta", "fetch", "Fetch"), tool("gamma", "fetch", "Fetch")]
        )
        result = index.search("beta/fetch")
        assert names(result)[0] == "beta/fetch"
        assert [hit.kind for hit in result.hits].count(MatchKind.EXACT) == 1

    def test_the_spelling_that_was_asked_for_comes_before_its_variants(self) -> None:
        """Ours: `get_user` and `getUser` of one server are two tools."""
        index = index_of([tool("a", "getUser"), tool("a", "get_user"), tool("a", "GET-USER")])
        assert names(index.search("get_user"))[0] == "a/get_user"
        assert names(index.search("getUser"))[0] == "a/getUser"

    def test_an_alias_is_a_name(self) -> None:
        """Ours: the name that a model was shown finds the tool, whatever it was made from."""
        index = index_of([*FILLER, tool("srv", "do.it", "Does it", aliases=("mcp_srv_do_it_3f",))])
        assert index.search("mcp_srv_do_it_3f").hits[0].kind is MatchKind.EXACT

    @pytest.mark.parametrize("between", [", ", " ", "\n", "; ", " and ", " | "])
    def test_five_names_in_one_query_find_all_five(self, between: str) -> None:
        """Ours: whatever stands between the names."""
        wanted = ["search_contacts", "get_company", "addPerson", "filler_7", "delete_person"]
        result = index_of([*FILLER, *CRM]).search(between.join(wanted), limit=5)
        assert {hit.document.name for hit in result.hits} == set(wanted)

    def test_names_of_several_words_in_one_query_are_found(self) -> None:
        """Ours: some servers put spaces into names."""
        index = index_of([*FILLER, tool("tv", "New Arrivals"), tool("tv", "Title Details"), tool("tv", "Title")])
        result = index.search("New Arrivals Title Details", limit=2)
        assert {hit.document.name for hit in result.hits} == {"New Arrivals", "Title Details"}

    def test_names_inside_a_sentence_are_found(self) -> None:
        """Ours: an identifier or a quoted name in a sentence is meant as a name."""
        result = index_of([*FILLER, *CRM]).search("first call `addActivity`, then crm/delete_person for me", limit=2)
        assert {hit.document.name for hit in result.hits} == {"addActivity", "delete_person"}

    def test_a_common_word_in_a_sentence_is_not_taken_for_a_name(self) -> None:
        """Ours: two plain words are words, even where tools of these names exist."""
        index = index_of(
            [tool("a", "search"), tool("b", "flights"), tool("c", "find_flight", "Search for flights by date")]
        )
        assert index.search("search flights").hits[0].kind is MatchKind.TERMS

    def test_one_name_for_each_turn_when_a_listed_name_is_on_many_servers(self) -> None:
        """Ours: ten servers with `fetch` do not push out the second name that was asked for."""
        index = index_of([*(tool(f"s{number}", "fetch_page") for number in range(10)), *CRM])
        assert "crm/get_company" in names(index.search("fetch_page, get_company", limit=2))

    def test_a_name_without_letters_is_found(self) -> None:
        """Ours: names of separators only still equal themselves."""
        assert names(index_of([*FILLER, tool("fun", "🔥"), tool("fun", "👋")]).search("🔥"))[0] == "fun/🔥"


class TestWords:
    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ("table record", "bitable_v1_appTableRecord_search"),
            ("create issue", "create_issue"),
            ("http response", "getHTTPResponse"),
            ("users list", "admin.users.list"),
            ("file reading", "read-file"),
        ],
    )
    def test_words_find_the_parts_of_identifiers(self, query: str, expected: str) -> None:
        """Case 57: camelCase, snake_case, dots and hyphens."""
        wanted = [
            "bitable_v1_appTableRecord_search",
            "create_issue",
            "getHTTPResponse",
            "admin.users.list",
            "read-file",
        ]
        index = index_of([*FILLER, *(tool("x", name) for name in wanted)])
        assert names(index.search(query))[0] == f"x/{expected}"

    @pytest.mark.parametrize(
        "query",
        [
            "contacts",
            "contacts for a company",
            "I need the contact of someone at a firm, please look it up in the address book for me",
            'the "contacts" please',
        ],
    )
    def test_natural_language_matches_by_terms_not_as_one_string(self, query: str) -> None:
        """Case 58: one, three or many words, with stop words, plurals and quotes."""
        assert "crm/search_contacts" in names(index_of([*FILLER, *CRM]).search(query, limit=3))

    def test_the_verb_decides_between_tools_for_one_object(self) -> None:
        """Ours: verbs stay in the query."""
        index = index_of([*FILLER, *CRM])
        assert names(index.search("delete a person"))[0] == "crm/delete_person"
        assert names(index.search("add a person"))[0] == "crm/addPerson"

    def test_parameter_descriptions_carry_meaning(self) -> None:
        """Ours: many tools say what they are for only in their arguments."""
        schema = {
            "type": "object",
            "properties": {"q": {"type": "string", "description": "IATA code of the departure airport"}},
        }
        index = index_of([*FILLER, tool("x", "lookup", "Looks it up", input_schema=schema)])
        hit = index.search("departure airport").hits[0]
        assert hit.document.name == "lookup"
        assert {match.fields for match in hit.matched} == {("parameters",)}

    @pytest.mark.parametrize(
        ("description", "query"),
        [
            ("查询天气", "天气"),
            ("показать портфель", "портфель"),
            ("初期化する", "初期化"),
            ("Le café du coin", "café"),
            ("Le café du coin", "CAFE"),
            ("ＡＢＣ の表", "abc"),
            ("部署 docker 容器", "部署docker"),
            ("날씨를 알려준다", "날씨"),
        ],
    )
    def test_other_scripts_are_searched_like_english(self, description: str, query: str) -> None:
        """Case 59: one analysis for index and query."""
        assert names(index_of([*FILLER, tool("x", "t", description)]).search(query)) == ["x/t"]

    def test_a_single_character_finds_what_contains_it(self) -> None:
        """Case 59: no known word falls back to literal text, not to an empty result."""
        result = index_of([*FILLER, tool("x", "t", "查询天气")]).search("气")
        assert (names(result), result.hits[0].kind) == (["x/t"], MatchKind.SUBSTRING)

    def test_a_query_without_words_falls_back_to_literal_text(self) -> None:
        """Case 59: `+=` is not a word, but a description may have it."""
        assert names(index_of([*FILLER, tool("x", "t", "Evaluates x += 1")]).search("+=")) == ["x/t"]

    @pytest.mark.parametrize("query", ["calender event", "calnedar event", "clendar event", "calendarr event"])
    def test_one_typo_in_a_word_is_repaired(self, query: str) -> None:
        """Ours: letters swapped, replaced, missing or doubled."""
        hit = (
            index_of([*FILLER, *CRM, tool("cal", "add_entry", "Creates an event in the calendar")])
            .search(query)
            .hits[0]
        )
        assert hit.document.server == "cal"
        assert any(match.found == "calendar" and match.query == query.split()[0] for match in hit.matched)

    def test_a_known_word_is_never_repaired(self) -> None:
        """Ours: a repair is for words that no tool has."""
        index = index_of(
            [tool("a", "form", "Fill in a form"), *(tool("b", f"from_{n}", "format forms") for n in range(9))]
        )
        assert all(match.found.startswith("form") for hit in index.search("form").hits for match in hit.matched)

    @pytest.mark.parametrize("query", ["web hook", "webhook", "WebHook", "web-hook"])
    def test_compounds_are_found_written_together_or_apart(self, query: str) -> None:
        """Ours: GitHub, git hub and github are one word."""
        index = index_of(
            [*FILLER, tool("x", "register", "Registers a webhook"), tool("y", "web_search", "Search the web")]
        )
        assert names(index.search(query))[0] == "x/register"

    def test_a_server_name_boosts_its_tools_but_does_not_drown_the_rest(self) -> None:
        """Ours: of two equal tools the named server's comes first, yet its unrelated tools stay behind."""
        index = index_of(
            [
                *FILLER,
                tool("github", "list_issues", "List the issues of a repository"),
                tool("gitlab", "list_issues", "List the issues of a repository"),
                *(tool("github", f"thing_{n}", "Something else entirely") for n in range(20)),
            ]
        )
        assert names(index.search("list gitlab issues"))[:2] == ["gitlab/list_issues", "github/list_issues"]
        assert names(index.search("list github issues"))[:2] == ["github/list_issues", "gitlab/list_issues"]

    def test_forks_of_one_tool_do_not_fill_the_page(self) -> None:
        """Ours: diversity across servers."""
        forks = [tool(f"fork{n:02}", "web_search", "Search the web for pages") for n in range(12)]
        index = index_of([*FILLER, *forks, tool("other", "search_pages", "Search the web for pages and rank them")])
        assert "other/search_pages" in names(index.search("search web pages please", limit=5))

    def test_servers_filter_keeps_only_their_tools(self) -> None:
        """Ours: by words, by name, by literal text and in a list alike."""
        index = index_of([tool("a", "fetch", "Fetch += a page"), tool("b", "fetch", "Fetch += a page")])
        for query in ("fetch", "page fetching", "+=", ""):
            assert names(index.search(query, servers={"b", "unknown"})) == ["b/fetch"]
        assert not index.search("fetch", servers=()).hits

    def test_a_name_of_stop_words_is_a_name_like_any_other(self) -> None:
        """Ours: `do_it` weighs nothing as words, and is found all the same."""
        index = index_of([*FILLER, tool("x", "do_it"), tool("x", "what")])
        assert names(index.search("doing", threshold=0)) == ["x/do_it"]
        assert names(index.search("what is it", threshold=0))[0] in {"x/do_it", "x/what"}

    def test_a_schema_of_any_shape_is_read_without_failing(self) -> None:
        """Ours: references are not followed, bounds hold, and what is not a schema is skipped."""
        deep: dict[str, object] = {"description": "innermost"}
        for _ in range(3000):
            deep = {
                "items": deep,
                "properties": {"a": deep, "b": 7},
                "$ref": "http://127.0.0.1:9/never",
                "enum": [1, None, "x"],
            }
        schemas = [
            deep,
            {"properties": ["no"]},
            {"properties": {"type": {"description": "kindness"}}},
            {"anyOf": [{"title": "choice"}]},
        ]
        index = index_of([tool("x", f"t{n}", input_schema=schema) for n, schema in enumerate(schemas)])
        assert names(index.search("kindness")) == ["x/t2"]
        assert names(index.search("choice")) == ["x/t3"]


class TestExplanations:
    def test_each_hit_says_which_words_matched_where(self) -> None:
        """Ours: why a tool is in the result is part of the result."""
        hit = index_of([*FILLER, *CRM]).search("searching contacts").hits[0]
        assert [(match.query, match.found, match.fields) for match in hit.matched] == [
            ("searching", "search", ("name", "description")),
            ("contacts", "contacts", ("name", "description")),
        ]
        assert hit.why == "searching→search in name and description, contacts in name and description"

    def test_scores_fall_from_hit_to_hit_between_zero_and_one(self) -> None:
        """Ours: a score can be compared across queries. Diversity may swap near equals only."""
        scores = [hit.score for hit in index_of([*FILLER, *CRM]).search("add a person to the address book").hits]
        assert all(0 <= score <= 1 for score in scores)
        assert scores[0] == max(scores)


class TestNothingFits:
    def test_unrelated_queries_get_no_hits_but_the_nearest_servers(self) -> None:
        """Case 58: when nothing matches, say so and offer server names."""
        index = index_of([*FILLER, *CRM])
        result = index.search("what is the weather like on the moons of Jupiter this coming weekend, any thing known?")
        assert result.nothing_fits
        assert not result.hits
        assert result.nearest_servers[0] == "filler"
        assert result.nearest[0].document.server == "filler"

    def test_a_query_without_any_known_word_offers_servers_too(self) -> None:
        """Case 58: even if nothing is near."""
        result = index_of([*FILLER, *CRM]).search("xyzzyplugh")
        assert (result.nothing_fits, result.hits, result.nearest_servers) == (True, (), ("crm", "filler"))

    def test_a_threshold_of_zero_returns_what_there_is(self) -> None:
        """Ours: the caller decides how sure is sure enough."""
        index = index_of([*FILLER, *CRM])
        query = "what is the weather like on the moons of Jupiter this coming weekend, any thing known?"
        assert index.search(query, threshold=0).hits
        assert index.search("delete person", threshold=1.01).nothing_fits

    def test_an_exact_name_always_fits(self) -> None:
        """Case 56: whatever the threshold."""
        assert index_of([*FILLER, *CRM]).search("filler_3", threshold=1).hits[0].document.name == "filler_3"

    def test_an_empty_index_says_that_nothing_fits(self) -> None:
        """Ours: nothing configured is not an error."""
        assert ToolIndex().search("anything").nothing_fits
        assert not ToolIndex().search("").hits


class TestQueries:
    @pytest.mark.parametrize("query", ["", "  \n", []])
    def test_an_empty_query_lists_everything_in_order_and_pages(self, query: str) -> None:
        """Case 58: empty query lists, paged."""
        index = index_of([*FILLER, *CRM])
        pages = [index.search(query, limit=50, offset=offset) for offset in range(0, 250, 50)]
        listed = [name for page in pages for name in names(page)]
        assert listed == sorted(listed)
        assert len(listed) == len(index) == pages[0].total == 205
        assert pages[0].hits[0].kind is MatchKind.LISTED
        assert not pages[0].nothing_fits

    def test_pages_of_a_search_continue_one_another(self) -> None:
        """Ours: a later page repeats nothing and leaves nothing out."""
        index = index_of([*FILLER, *CRM])
        query = "unrelated thing of the address book"
        whole = names(index.search(query, limit=100, threshold=0))
        pages = [names(index.search(query, limit=20, offset=offset, threshold=0)) for offset in range(0, 100, 20)]
        assert [name for page in pages for name in page] == whole
        assert len(set(whole)) == 100

    def test_several_queries_take_turns(self) -> None:
        """Ours: the best hit of each query is on the page."""
        result = index_of([*FILLER, *CRM]).search(
            ["delete person", "company by id", "unrelated thing number 9"], limit=3
        )
        assert {hit.document.name for hit in result.hits} == {"delete_person", "get_company", "filler_9"}

    def test_a_text_of_ten_thousand_characters_is_a_query(self) -> None:
        """Case 58: long task texts work."""
        text = (
            "Last week we spoke about many different matters. " * 190
            + "Please delete the person from the address book."
        )
        assert 9_000 < len(text) < 10_000
        assert names(index_of([*FILLER, *CRM]).search(text, threshold=0))[0] == "crm/delete_person"

    @pytest.mark.parametrize(
        "query",
        [
            "(a+)+$",
            r"^(?:[\s\S]*)*\x00",
            "(",
            "a" * 100_000,
            "( " * 50_000,
            "ab " * 40_000,
            "\x00",
            "\ud800",
            "getA" * 25_000,
        ],
    )
    def test_hostile_queries_are_only_text(self, query: str) -> None:
        """Case 121: no pattern of the caller is ever compiled, and length is bounded."""
        index = index_of([*FILLER, *CRM, tool("x", "long", "a" * 50_000 + "!")])
        result = index.search(query)
        assert result.nothing_fits is not bool(result.hits)

    @pytest.mark.parametrize(("limit", "offset"), [(0, 0), (-1, 0), (1, -1)])
    def test_impossible_pages_are_the_callers_mistake(self, limit: int, offset: int) -> None:
        """Ours: rather than an empty page that looks like an answer."""
        with pytest.raises(ValueError, match="limit must be at least 1"):
            ToolIndex().search("x", limit=limit, offset=offset)


class TestSubject:
    SHOP = (
        tool("shop", "find_order", "Order by its number"),
        tool("shoes", "describe_shoes", "Provide detailed information about red shoes that are available"),
        tool("garden", "cut_hedge", "Cut the hedge of the summer house"),
    )

    @pytest.mark.parametrize(
        "query",
        [
            "provide available information about the order",
            'order "red shoes"',
            "order <red shoes>",
            "order at https://example.com/shoes/available",
            "order for red.shoes@example.com",
        ],
    )
    def test_what_a_query_is_about_outweighs_talk_and_values(self, query: str) -> None:
        """Ours: more of the words of the query are found in the tool that is not meant."""
        assert names(index_of([*self.SHOP, *FILLER]).search(query, threshold=0))[0] == "shop/find_order"

    def test_talk_and_values_still_decide_between_tools_for_the_subject(self) -> None:
        """Ours: they count less, not nothing."""
        orders = [tool("a", "order_hats", "Order hats"), tool("b", "order_shoes", "Order shoes")]
        assert names(index_of([*orders, *FILLER]).search("order 'shoes'"))[0] == "b/order_shoes"
        assert names(index_of([*orders, *FILLER]).search("order 'hats'"))[0] == "a/order_hats"

    def test_a_query_of_talk_and_values_alone_is_searched_as_it_stands(self) -> None:
        """Ours: nothing is left out where nothing would be left."""
        assert names(index_of([*self.SHOP, *FILLER]).search('"red shoes"'))[0] == "shoes/describe_shoes"
