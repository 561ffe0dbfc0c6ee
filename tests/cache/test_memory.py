"""What callers of the memory can rely on, over every kind of store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from cache.conftest import DEADLINE_S, HandClock, OpenStore
from outrider.cache import EraVerdict, Evidence, Memory, Peer, Source
from outrider.errors import (
    AuthRequired,
    LimitExceeded,
    OutriderError,
    PeerError,
    RemoteProtocolError,
    TimedOut,
    peer_error,
)
from outrider.protocol.freshness import CACHEABLE_METHODS, Policy, RequestKey, Scope, State, request_key
from outrider.protocol.versions import Era

TARGET = "f" * 32
ANN, BEN = Peer(TARGET, "ann" * 10), Peer(TARGET, "ben" * 10)


def key_of(method: str = "tools/list", **params: Any) -> RequestKey:
    key = request_key(method, params)
    assert key is not None
    return key


TOOLS = key_of()


def listed(*names: str, **members: Any) -> bytes:
    return json.dumps(
        {"tools": [{"name": n} for n in names], "ttlMs": 60_000, "cacheScope": "private", **members}
    ).encode()


class Script:
    """Answers in order, the last one for ever; counts the requests."""

    def __init__(self, *answers: bytes | BaseException) -> None:
        self.answers = list(answers)
        self.requests = 0

    async def __call__(self, cursor: str | None = None) -> bytes:
        answer = self.answers[min(self.requests, len(self.answers) - 1)]
        self.requests += 1
        if isinstance(answer, BaseException):
            raise answer
        return answer


class Pages:
    """A server with pages by cursor; a page may be an error."""

    def __init__(self, pages: dict[str | None, bytes | BaseException]) -> None:
        self.pages = pages
        self.cursors: list[str | None] = []

    async def __call__(self, cursor: str | None) -> bytes:
        self.cursors.append(cursor)
        page = self.pages[cursor]
        if isinstance(page, BaseException):
            raise page
        return page


OpenMemory = Callable[..., Memory]


@pytest.fixture
def open_memory_(open_store: OpenStore, hand_clock: HandClock) -> OpenMemory:
    def open_one(**policy: Any) -> Memory:
        return Memory(open_store(), policy=Policy(**policy), clock=hand_clock.clock)

    return open_one


def names(answer: Any) -> list[str]:
    return [tool["name"] for tool in json.loads(answer.value)["tools"]]


# --- freshness through the whole
# ---------------------------------------------------------------------------------------------


async def test_a_fresh_answer_is_not_asked_for_again(open_memory_: OpenMemory, hand_clock: HandClock) -> None:
    """Spec server/utilities/caching#freshness-calculation: until its time is over, to the millisecond."""
    memory, load = open_memory_(), Script(listed("a"), listed("b"))
    first = await memory.fetch(ANN, TOOLS, load)
    assert (first.source, first.freshness.state) == (Source.NETWORK, State.FRESH)
    hand_clock.pass_time(59_999)
    again = await memory.fetch(ANN, TOOLS, load)
    assert (again.source, again.value, load.requests) == (Source.MEMORY, first.value, 1)
    hand_clock.pass_time(1)
    assert names(await memory.fetch(ANN, TOOLS, load)) == ["b"]


async def test_get_never_asks(open_memory_: OpenMemory, hand_clock: HandClock) -> None:
    """Ours: `--offline` shows what is remembered and since when it is stale."""
    memory = open_memory_()
    assert await memory.get(ANN, TOOLS) is None
    assert await memory.get(ANN, None) is None
    await memory.fetch(ANN, TOOLS, Script(listed("a")))
    received_ms = hand_clock.wall_ms
    hand_clock.pass_time(100_000)
    found = await memory.get(ANN, TOOLS)
    assert found is not None
    assert (found.source, found.freshness) == (Source.STALE, (State.EXPIRED, received_ms + 60_000))


async def test_ttl_zero_is_asked_for_every_time_but_kept_for_bad_times(open_memory_: OpenMemory) -> None:
    """Spec server/utilities/caching#time-to-live-ttl-field (SHOULD). Case 66, case 117: also when listChanged was
    promised."""
    memory, load = open_memory_(), Script(listed("a", ttlMs=0), listed("b", ttlMs=0), TimedOut("late"))
    await memory.fetch(ANN, TOOLS, load)
    assert names(await memory.fetch(ANN, TOOLS, load)) == ["b"]
    stale = await memory.fetch(ANN, TOOLS, load)
    assert (names(stale), stale.source) == (["b"], Source.STALE)
    assert isinstance(stale.error, TimedOut)


async def test_a_floor_keeps_what_the_server_says_nothing_about(
    open_memory_: OpenMemory, hand_clock: HandClock
) -> None:
    """Ours: off by default, a setting for whoever refetches too much."""
    memory, load = open_memory_(floor_ms=5_000), Script(b'{"tools":[]}')
    await memory.fetch(ANN, TOOLS, load)
    hand_clock.pass_time(4_999)
    await memory.fetch(ANN, TOOLS, load)
    assert load.requests == 1
    hand_clock.pass_time(1)
    await memory.fetch(ANN, TOOLS, load)
    assert load.requests == 2


async def test_refresh_asks_although_the_answer_is_fresh(open_memory_: OpenMemory) -> None:
    """Ours: `--refresh`; what it brings is remembered."""
    memory, load = open_memory_(), Script(listed("a"), listed("b"))
    await memory.fetch(ANN, TOOLS, load)
    assert names(await memory.fetch(ANN, TOOLS, load, refresh=True)) == ["b"]
    assert names(await memory.fetch(ANN, TOOLS, load)) == ["b"]
    assert load.requests == 2


async def test_interim_results_and_retries_are_passed_on_and_not_kept(open_memory_: OpenMemory) -> None:
    """Spec server/utilities/caching#cacheable-results and #cache-key (MUST NOT)."""
    memory = open_memory_()
    read = key_of("resources/read", uri="file:///a")
    interim = Script(b'{"resultType":"input_required","requestState":"s","ttlMs":60000}')
    assert (await memory.fetch(ANN, read, interim)).source is Source.NETWORK
    retry = Script(b'{"resultType":"complete","contents":[],"ttlMs":60000}')
    assert request_key("resources/read", {"uri": "file:///a", "requestState": "s"}) is None
    for _ in range(2):
        await memory.fetch(ANN, None, retry)
    assert retry.requests == 2
    assert await memory.get(ANN, read) is None


async def test_each_page_is_remembered_under_its_cursor(open_memory_: OpenMemory) -> None:
    """Case 112: pages 2 … are not page 1."""
    memory = open_memory_()
    for cursor in ({}, {"cursor": ""}, {"cursor": "2"}):
        await memory.fetch(ANN, key_of(**cursor), Script(listed(str(cursor))))
    for cursor in ({}, {"cursor": ""}, {"cursor": "2"}):
        found = await memory.get(ANN, key_of(**cursor))
        assert found is not None
        assert names(found) == [str(cursor)]


async def test_a_result_too_large_is_passed_on_and_not_kept(open_memory_: OpenMemory) -> None:
    """Ours: at the limit and one above."""
    value = listed("a")
    at_limit, above = open_memory_(max_entry_bytes=len(value)), open_memory_(max_entry_bytes=len(value) - 1)
    await above.fetch(ANN, TOOLS, Script(value))
    assert await above.get(ANN, TOOLS) is None
    await at_limit.fetch(ANN, TOOLS, Script(value))
    assert await at_limit.get(ANN, TOOLS) is not None


async def test_garbage_is_an_error_and_not_kept(open_memory_: OpenMemory) -> None:
    """Ours: with nothing to fall back on it reaches the caller as what it is."""
    memory = open_memory_()
    with pytest.raises(RemoteProtocolError):
        await memory.fetch(ANN, TOOLS, Script(b"[1]"))
    assert await memory.get(ANN, TOOLS) is None


# --- who may see what
# --------------------------------------------------------------------------------------------------------


async def test_a_private_answer_stays_in_its_context(open_memory_: OpenMemory) -> None:
    """Case 65. Spec server/utilities/caching#cache-scope-field (MUST NOT), also with sharing allowed, and for no
    credentials at all."""
    for share in (False, True):
        memory = open_memory_(share_public=share)
        nobody = Peer(TARGET + str(share), "none")
        ann, ben = ANN._replace(target=nobody.target), BEN._replace(target=nobody.target)
        assert names(await memory.fetch(ann, TOOLS, Script(listed("ann")))) == ["ann"]
        for peer in (ben, nobody):
            assert await memory.get(peer, TOOLS) is None
            assert names(await memory.fetch(peer, TOOLS, Script(listed(peer.context)))) == [peer.context]
        found = await memory.get(ann, TOOLS)
        assert found is not None
        assert names(found) == ["ann"]


async def test_public_is_shared_by_the_operators_word_only(open_memory_: OpenMemory) -> None:
    """Case 150: servers label everything public; sharing is allowed by the specification and a choice here."""
    public = listed("all", cacheScope="public")
    memory = open_memory_()
    await memory.fetch(ANN, TOOLS, Script(public))
    assert await memory.get(BEN, TOOLS) is None
    shared = Policy(share_public=True)
    assert await memory.get(BEN, TOOLS, policy=shared) is None
    await memory.fetch(ANN, TOOLS, Script(public), policy=shared, refresh=True)
    found = await memory.get(BEN, TOOLS, policy=shared)
    assert found is not None
    assert (names(found), found.scope) == (["all"], Scope.PUBLIC)
    assert await memory.get(BEN, TOOLS) is None


async def test_what_turns_private_is_no_longer_shared(open_memory_: OpenMemory) -> None:
    """Ours: the server has changed its mind, so the copy for everyone goes."""
    memory = open_memory_(share_public=True)
    await memory.fetch(ANN, TOOLS, Script(listed("all", cacheScope="public")))
    await memory.fetch(ANN, TOOLS, Script(listed("ann")), refresh=True)
    assert await memory.get(BEN, TOOLS) is None


async def test_a_list_with_one_private_page_is_private(open_memory_: OpenMemory) -> None:
    """Spec server/utilities/caching#interaction-with-pagination (MUST be the same): where it is not, the safe
    reading."""
    memory = open_memory_(share_public=True)
    server = Pages(
        {
            None: listed("a", nextCursor="2", cacheScope="public"),
            "2": listed("b"),
            "3": listed("c", cacheScope="public"),
        }
    )
    fetched = await memory.fetch_list(ANN, "tools/list", server)
    assert {page.scope for page in fetched.pages} == {Scope.PRIVATE}
    assert await memory.get_list(BEN, "tools/list") is None
    await memory.fetch(ANN, key_of(cursor="3"), lambda: server("3"))
    assert await memory.get(BEN, key_of(cursor="3")) is None


async def test_a_public_list_is_shared_as_a_whole(open_memory_: OpenMemory) -> None:
    """Ours: all pages or none."""
    memory = open_memory_(share_public=True)
    server = Pages({None: listed("a", nextCursor="", cacheScope="public"), "": listed("b", cacheScope="public")})
    await memory.fetch_list(ANN, "tools/list", server)
    shared = await memory.fetch_list(BEN, "tools/list", server)
    assert (shared.source, len(shared.items), len(server.cursors)) == (Source.MEMORY, 2, 2)


# --- failures
# ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [TimedOut("late"), peer_error(-32603, "500"), RemoteProtocolError("garbage"), ConnectionResetError()]
)
async def test_a_failed_refresh_keeps_the_last_good_answer(
    open_memory_: OpenMemory, hand_clock: HandClock, error: Exception
) -> None:
    """Case 67: marked stale, with the error, and asked for again next time. A successful empty list is a real
    change."""
    memory, load = open_memory_(), Script(listed("a", "b"), error, error, listed())
    await memory.fetch(ANN, TOOLS, load)
    hand_clock.pass_time(60_000)
    for requests in (2, 3):
        stale = await memory.fetch(ANN, TOOLS, load)
        assert (names(stale), stale.source, stale.error) == (["a", "b"], Source.STALE, error)
        assert load.requests == requests
    assert names(await memory.fetch(ANN, TOOLS, load)) == []


@pytest.mark.parametrize("status", [401, 403])
async def test_after_401_and_403_nothing_private_is_served_on(
    open_memory_: OpenMemory, hand_clock: HandClock, status: int
) -> None:
    """Case 67: not now, and not when the next attempt merely times out. Other contexts keep theirs."""
    memory = open_memory_()
    denied, late = AuthRequired("no", status=status), TimedOut("late")
    await memory.fetch(ANN, TOOLS, Script(listed("a")))
    await memory.fetch(BEN, TOOLS, Script(listed("b")))
    hand_clock.pass_time(60_000)
    with pytest.raises(AuthRequired):
        await memory.fetch(ANN, TOOLS, Script(denied))
    with pytest.raises(TimedOut):
        await memory.fetch(ANN, TOOLS, Script(late))
    assert await memory.get(ANN, TOOLS) is None
    assert names(await memory.fetch(BEN, TOOLS, Script(late))) == ["b"]


async def test_a_401_takes_all_of_the_context_and_a_403_only_what_was_asked(open_memory_: OpenMemory) -> None:
    """Ours: 401 says the credential is worth nothing, 403 that it is not enough for this."""
    memory = open_memory_()
    other = key_of("prompts/list")
    await memory.fetch(ANN, other, Script(b'{"prompts":[],"ttlMs":60000}'))
    with pytest.raises(AuthRequired):
        await memory.fetch(ANN, TOOLS, Script(AuthRequired("no", status=403)))
    assert await memory.get(ANN, other) is not None
    with pytest.raises(AuthRequired):
        await memory.fetch(ANN, TOOLS, Script(AuthRequired("who", status=401)))
    assert await memory.get(ANN, other) is None


async def test_a_failure_is_not_remembered(open_memory_: OpenMemory) -> None:
    """Case 40: a server that fails once and is well a moment later is asked at once."""
    memory, load = open_memory_(), Script(TimedOut("starting"), listed("a"))
    with pytest.raises(TimedOut):
        await memory.fetch(ANN, TOOLS, load)
    assert names(await memory.fetch(ANN, TOOLS, load)) == ["a"]


async def test_stale_while_revalidate_answers_at_once_and_asks_behind(
    open_memory_: OpenMemory, hand_clock: HandClock
) -> None:
    """Ours: a setting; within its window only, and never for what was declared changed."""
    memory, asked, load = open_memory_(stale_while_revalidate_ms=10_000), asyncio.Event(), Script(listed("b"))

    async def signalling() -> bytes:
        try:
            return await load()
        finally:
            asked.set()

    await memory.fetch(ANN, TOOLS, Script(listed("a")))
    hand_clock.pass_time(70_000)
    assert names(await memory.fetch(ANN, TOOLS, signalling)) == ["a"]
    async with asyncio.timeout(DEADLINE_S):
        await asked.wait()
        while names(await memory.fetch(ANN, TOOLS, signalling)) != ["b"]:
            await asyncio.sleep(0)
    assert load.requests == 1
    await memory.invalidate(TARGET, "tools/list")
    assert names(await memory.fetch(ANN, TOOLS, Script(listed("c")))) == ["c"]
    hand_clock.pass_time(70_001)
    assert names(await memory.fetch(ANN, TOOLS, Script(listed("d")))) == ["d"]
    await memory.close()


# --- invalidation
# ------------------------------------------------------------------------------------------------------------


async def test_a_notification_makes_a_fresh_answer_stale_at_once(open_memory_: OpenMemory) -> None:
    """Spec server/utilities/caching#interaction-with-notifications: all pages, all contexts, and only what it is
    about."""
    memory = open_memory_()
    stale = [(ANN, TOOLS), (BEN, TOOLS), (ANN, key_of(cursor="2"))]
    kept = [(ANN, key_of("prompts/list")), (ANN._replace(target="other"), TOOLS)]
    for peer, key in stale + kept:
        await memory.fetch(peer, key, Script(listed("a")))
    assert await memory.notified(TARGET, "notifications/tools/list_changed") == ("tools/list",)
    assert await memory.notified(TARGET, "notifications/progress", {}) == ()
    for peer, key in stale:
        found = await memory.get(peer, key)
        assert found is not None
        assert found.freshness.state is State.INVALIDATED
    for peer, key in kept:
        found = await memory.get(peer, key)
        assert found is not None
        assert found.freshness.fresh


async def test_an_update_is_about_one_resource(open_memory_: OpenMemory) -> None:
    """Spec server/utilities/caching#interaction-with-notifications, by URI."""
    memory = open_memory_()
    uris = ["file:///a/one", "file:///a/two", "file:///a/"]
    for uri in uris:
        await memory.fetch(ANN, key_of("resources/read", uri=uri), Script(b'{"contents":[],"ttlMs":60000}'))
    await memory.notified(TARGET, "notifications/resources/updated", {"uri": "file:///a/one"})

    async def fresh() -> list[bool]:
        found = [await memory.get(ANN, key_of("resources/read", uri=uri)) for uri in uris]
        return [one is not None and one.freshness.fresh for one in found]

    assert await fresh() == [False, True, False]
    await memory.notified(TARGET, "notifications/resources/updated", {"uri": 7})
    assert await fresh() == [False, False, False]


async def test_an_answer_overtaken_by_a_notification_is_returned_and_not_fresh(open_memory_: OpenMemory) -> None:
    """Case 68: the request began before the change."""
    memory, began, release = open_memory_(), asyncio.Event(), asyncio.Event()

    async def slow() -> bytes:
        began.set()
        await release.wait()
        return listed("old", ttlMs=600_000)

    async with asyncio.timeout(DEADLINE_S):
        asking = asyncio.create_task(memory.fetch(ANN, TOOLS, slow))
        await began.wait()
        await memory.notified(TARGET, "notifications/tools/list_changed")
        # Who asks after the notification must not be given the old answer, although a request is under way.
        assert names(await memory.fetch(ANN, TOOLS, Script(listed("new")))) == ["new"]
        release.set()
        old = await asking
    assert (names(old), old.source, old.freshness.state) == (["old"], Source.NETWORK, State.INVALIDATED)
    found = await memory.get(ANN, TOOLS)
    assert found is not None
    assert (names(found), found.freshness.fresh) == (["new"], True)


async def test_doubt_makes_stale_once_in_a_while(open_memory_: OpenMemory, hand_clock: HandClock) -> None:
    """Spec server/utilities/caching#freshness-calculation (MAY). Ours: a model that keeps calling wrongly causes no
    storm."""
    memory, load = open_memory_(), Script(listed("a"))
    await memory.fetch(ANN, TOOLS, load)
    assert await memory.doubt(TARGET, "tools/call", -32000) == ()
    assert await memory.doubt(TARGET, "tools/call", -32602) == ("tools/list",)
    await memory.fetch(ANN, TOOLS, load)
    assert load.requests == 2
    assert await memory.doubt(TARGET, "tools/call", -32602) == ()
    await memory.fetch(ANN, TOOLS, load)
    assert load.requests == 2
    hand_clock.pass_time(60_000)
    assert await memory.doubt(TARGET, "tools/call", -32602) == ("tools/list",)


async def test_watchers_hear_what_went_stale(open_memory_: OpenMemory) -> None:
    """Ours: so that a gateway can tell its own clients."""
    memory = open_memory_()
    heard: list[tuple[str, str]] = []
    memory.watch(lambda target, method: heard.append((target, method)))
    await memory.notified(TARGET, "notifications/resources/list_changed")
    await memory.invalidate(TARGET, "resources/read", "file:///a/b/c")
    assert heard == [(TARGET, "resources/list"), (TARGET, "resources/templates/list"), (TARGET, "resources/read")]


# --- whole lists
# -------------------------------------------------------------------------------------------------------------


async def test_a_list_is_fetched_page_by_page_and_then_remembered(open_memory_: OpenMemory) -> None:
    """Spec server/utilities/pagination (MUST NOT): an empty cursor is not the end. Case 112: listed twice, fetched
    once."""
    memory = open_memory_()
    server = Pages(
        {None: listed("a", nextCursor=""), "": listed("b", nextCursor="x"), "x": listed("c", nextCursor=None)}
    )
    fetched = await memory.fetch_list(ANN, "tools/list", server)
    assert [json.loads(bytes(item))["name"] for item in fetched.items] == ["a", "b", "c"]
    assert (fetched.source, fetched.difference, server.cursors) == (Source.NETWORK, None, [None, "", "x"])
    again = await memory.fetch_list(ANN, "tools/list", server)
    assert (again.source, again.items, len(server.cursors)) == (Source.MEMORY, fetched.items, 3)


async def test_one_stale_page_refetches_the_whole_list(open_memory_: OpenMemory, hand_clock: HandClock) -> None:
    """Case 111: pages with different times to live; a consistent list begins at the beginning."""
    memory = open_memory_()
    server = Pages({None: listed("a", nextCursor="2"), "2": listed("b", ttlMs=1_000)})
    first = await memory.fetch_list(ANN, "tools/list", server)
    assert first.hints(hand_clock.wall_ms) == (1_000, Scope.PRIVATE)
    hand_clock.pass_time(1_000)
    server.pages = {None: listed("new", nextCursor="9"), "9": listed("a", "b")}
    second = await memory.fetch_list(ANN, "tools/list", server)
    assert [json.loads(bytes(item))["name"] for item in second.items] == ["new", "a", "b"]
    assert second.difference is not None
    assert (second.difference.added, second.difference.removed, second.difference.altered) == (("new",), (), ())


async def test_half_a_list_is_not_a_list(open_memory_: OpenMemory) -> None:
    """Case 111: a failure on page 3 leaves the known list as it was, stale; without one, the error is the answer."""
    memory = open_memory_()
    good = {None: listed("a", nextCursor="2"), "2": listed("b", nextCursor="3"), "3": listed("c")}
    server = Pages(dict(good))
    server.pages["3"] = TimedOut("late")
    with pytest.raises(TimedOut):
        await memory.fetch_list(ANN, "tools/list", server)
    assert await memory.get_list(ANN, "tools/list") is None
    server.pages = dict(good)
    known = await memory.fetch_list(ANN, "tools/list", server)
    await memory.notified(TARGET, "notifications/tools/list_changed")
    server.pages = {None: listed("new", "a", nextCursor="2"), "2": listed("b", nextCursor="3"), "3": TimedOut("late")}
    stale = await memory.fetch_list(ANN, "tools/list", server)
    assert (stale.items, stale.source) == (known.items, Source.STALE)
    assert isinstance(stale.error, TimedOut)
    server.pages["3"] = listed("c")
    assert len((await memory.fetch_list(ANN, "tools/list", server)).items) == 4


async def test_a_refused_cursor_starts_the_list_again_once(open_memory_: OpenMemory) -> None:
    """Case 111. Spec server/utilities/caching#interaction-with-pagination (SHOULD): discard all pages, begin at the
    beginning."""
    memory = open_memory_()
    server = Pages({None: listed("a", nextCursor="2"), "2": peer_error(-32602, "what cursor?")})
    with pytest.raises(PeerError):
        await memory.fetch_list(ANN, "tools/list", server)
    assert server.cursors == [None, "2", None, "2"]

    async def recovering(cursor: str | None) -> bytes:
        return await server(cursor) if len(server.cursors) < 6 else listed("z")

    recovered = await memory.fetch_list(ANN, "tools/list", recovering)
    assert [json.loads(bytes(item))["name"] for item in recovered.items] == ["z"]


async def test_a_refused_cursor_discards_all_pages(open_memory_: OpenMemory) -> None:
    """Spec server/utilities/caching#interaction-with-pagination (SHOULD), for callers that page by hand."""
    memory = open_memory_()
    await memory.fetch(ANN, TOOLS, Script(listed("a", nextCursor="2")))
    with pytest.raises(PeerError):
        await memory.fetch(ANN, key_of(cursor="2"), Script(peer_error(-32602, "what cursor?")))
    assert await memory.get(ANN, TOOLS) is None


async def test_an_unchanged_list_keeps_its_bytes_and_order(open_memory_: OpenMemory, hand_clock: HandClock) -> None:
    """Ours: a server that shuffles and respells its list has not changed it; also for the next process."""
    memory = open_memory_()
    first = await memory.fetch_list(
        ANN,
        "tools/list",
        Pages({None: b'{"tools":[{"name":"a","n":1}],"nextCursor":"2","ttlMs":60000}', "2": listed("b")}),
    )
    hand_clock.pass_time(60_000)
    shuffled = b'{"tools":[{"name":"b"},{"n":1.0,"name":"\\u0061"}],"ttlMs":30000}'
    second = await memory.fetch_list(ANN, "tools/list", Pages({None: shuffled}))
    assert second.difference is not None
    assert not second.difference
    assert second.items == first.items
    assert second.listing.digest == first.listing.digest
    assert second.hints(hand_clock.wall_ms) == (30_000, Scope.PRIVATE)
    remembered = await memory.get_list(ANN, "tools/list")
    assert remembered is not None
    assert (remembered.items, remembered.source) == (first.items, Source.MEMORY)


async def test_cursors_in_a_circle_and_without_end_are_stopped(open_memory_: OpenMemory) -> None:
    """Ours: times and counts are bounded, at the limit and one above."""
    memory = open_memory_(max_pages=3)
    with pytest.raises(RemoteProtocolError):
        await memory.fetch_list(ANN, "tools/list", Pages({None: listed(nextCursor="1"), "1": listed(nextCursor="1")}))
    pages: dict[str | None, bytes | BaseException] = {
        None: listed(nextCursor="1"),
        "1": listed(nextCursor="2"),
        "2": listed(),
    }
    assert len((await memory.fetch_list(ANN, "tools/list", Pages(pages))).pages) == 3
    with pytest.raises(LimitExceeded):
        await memory.fetch_list(BEN, "tools/list", Pages({**pages, "2": listed(nextCursor="3"), "3": listed()}))


@pytest.mark.parametrize("page", [b'{"resultType":"input_required"}', b'{"tools":{}}', b'{"nextCursor":7,"tools":[]}'])
async def test_what_is_no_page_spoils_the_list_only(open_memory_: OpenMemory, page: bytes) -> None:
    """Ours: an error of the peer's, and the known list stands in."""
    memory = open_memory_()
    with pytest.raises(RemoteProtocolError):
        await memory.fetch_list(ANN, "tools/list", Pages({None: page}))
    known = await memory.fetch_list(ANN, "tools/list", Pages({None: listed("a")}))
    stale = await memory.fetch_list(ANN, "tools/list", Pages({None: page}), refresh=True)
    assert (stale.items, stale.source) == (known.items, Source.MEMORY if stale.freshness.fresh else Source.STALE)


# --- many askers
# -------------------------------------------------------------------------------------------------------------


async def all_wait(memory: Memory, askers: int) -> None:
    """Until so many wait for one request: with a store behind a socket they come one after the other."""
    while sum(flight.waiters for flight in memory._flights._flights.values()) < askers:
        await asyncio.sleep(0)


async def test_twenty_askers_cause_one_request_and_the_first_may_leave(open_memory_: OpenMemory) -> None:
    """Case 152: nobody owns the request; the first asker's cancellation is its own."""
    memory, began, release = open_memory_(), asyncio.Event(), asyncio.Event()
    requests = 0

    async def slow() -> bytes:
        nonlocal requests
        requests += 1
        began.set()
        await release.wait()
        return listed("a")

    async with asyncio.timeout(DEADLINE_S):
        askers = [asyncio.create_task(memory.fetch(ANN, TOOLS, slow)) for _ in range(20)]
        await began.wait()
        await all_wait(memory, 20)
        askers[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await askers[0]
        release.set()
        answers = await asyncio.gather(*askers[1:])
    assert requests == 1
    assert {names(answer)[0] for answer in answers} == {"a"}


async def test_a_failure_reaches_all_who_wait_and_is_forgotten(open_memory_: OpenMemory) -> None:
    """Case 152."""
    memory, release = open_memory_(), asyncio.Event()
    requests = 0

    async def failing() -> bytes:
        nonlocal requests
        requests += 1
        await release.wait()
        raise TimedOut("late")

    async with asyncio.timeout(DEADLINE_S):
        askers = [asyncio.create_task(memory.fetch(ANN, TOOLS, failing)) for _ in range(20)]
        await all_wait(memory, 20)
        release.set()
        outcomes = await asyncio.gather(*askers, return_exceptions=True)
    assert requests == 1
    assert all(isinstance(outcome, TimedOut) for outcome in outcomes)
    assert names(await memory.fetch(ANN, TOOLS, Script(listed("a")))) == ["a"]


async def test_contexts_do_not_share_a_request(open_memory_: OpenMemory) -> None:
    """Case 65, 152: one request per context, also while both are under way."""
    memory, release = open_memory_(), asyncio.Event()

    def loading(name: str) -> Callable[[], Awaitable[bytes]]:
        async def load() -> bytes:
            await release.wait()
            return listed(name)

        return load

    async with asyncio.timeout(DEADLINE_S):
        asking = [asyncio.create_task(memory.fetch(p, TOOLS, loading(p.context))) for p in (ANN, BEN)]
        await asyncio.sleep(0)
        release.set()
        assert [names(answer) for answer in await asyncio.gather(*asking)] == [[ANN.context], [BEN.context]]


# --- eras
# --------------------------------------------------------------------------------------------------------------------

LEGACY = EraVerdict(era=Era.LEGACY, evidence=Evidence.HANDSHAKE, version="2025-06-18", detail="answered initialize")
MODERN = EraVerdict(era=Era.MODERN, evidence=Evidence.DISCOVER_RESULT, version="2026-07-28")


async def test_an_era_is_remembered_with_its_evidence_and_date(open_memory_: OpenMemory, hand_clock: HandClock) -> None:
    """Spec basic/versioning#backward-compatibility-with-initialization-based-versions (MAY persist)."""
    memory = open_memory_()
    assert await memory.era(TARGET) is None
    assert await memory.remember_era(TARGET, LEGACY)
    known = await memory.era(TARGET)
    assert known is not None
    assert (known.era, known.evidence, known.version, known.detail) == (
        Era.LEGACY,
        Evidence.HANDSHAKE,
        "2025-06-18",
        LEGACY.detail,
    )
    assert (known.learned_ms, known.due) == (hand_clock.wall_ms, False)
    assert await memory.era("another") is None
    await memory.forget_era(TARGET)
    assert await memory.era(TARGET) is None


@pytest.mark.parametrize("evidence", [e for e in Evidence if not e.is_answer])
async def test_what_is_no_answer_settles_no_era(open_memory_: OpenMemory, evidence: Evidence) -> None:
    """Case 39: never time-outs, authentication answers or 5xx; what was known stays."""
    memory = open_memory_()
    await memory.remember_era(TARGET, MODERN)
    assert not await memory.remember_era(TARGET, EraVerdict(era=Era.LEGACY, evidence=evidence))
    known = await memory.era(TARGET)
    assert known is not None
    assert known.era is Era.MODERN


async def test_a_legacy_server_is_asked_again_after_a_day(open_memory_: OpenMemory, hand_clock: HandClock) -> None:
    """Case 39: at the horizon and one before; a modern verdict has none; a clock set back makes it due."""
    memory = open_memory_()
    await memory.remember_era(TARGET, LEGACY)
    await memory.remember_era("m", MODERN)

    async def due(target: str = TARGET) -> bool:
        known = await memory.era(target)
        assert known is not None
        return known.due

    hand_clock.pass_time(86_399_999)
    assert not await due()
    hand_clock.pass_time(1)
    assert await due()
    assert not await due("m")
    await memory.remember_era(TARGET, LEGACY)
    assert not await due()
    hand_clock.jump(-90_000_000)
    assert await due()


async def test_a_contradicted_era_is_corrected_in_both_directions(open_memory_: OpenMemory) -> None:
    """Case 39: and what the other server said is no longer fresh."""
    memory = open_memory_()
    for before, after in ((LEGACY, MODERN), (MODERN, LEGACY)):
        await memory.remember_era(TARGET, before)
        for method in CACHEABLE_METHODS:
            await memory.fetch(ANN, key_of(method), Script(listed("a")), refresh=True)
        await memory.remember_era(TARGET, before)
        found = await memory.get(ANN, TOOLS)
        assert found is not None
        assert found.freshness.fresh
        await memory.remember_era(TARGET, after)
        known = await memory.era(TARGET)
        assert known is not None
        assert known.era is after.era
        for method in CACHEABLE_METHODS:
            found = await memory.get(ANN, key_of(method))
            assert found is not None
            assert found.freshness.state is State.INVALIDATED


async def test_an_era_record_of_another_version_is_no_record(open_memory_: OpenMemory) -> None:
    """Ours: a newer Outrider may have written something we cannot read."""
    memory = open_memory_()
    await memory.remember_era(TARGET, LEGACY)
    await memory.store.write_fact(f"era|{TARGET}", b'{"era":"post-modern"}', 60_000)
    assert await memory.era(TARGET) is None


# --- upkeep
# ------------------------------------------------------------------------------------------------------------------


async def test_forgetting_takes_answers_and_era(open_memory_: OpenMemory) -> None:
    """Ours: `outrider cache clear`, for one target or for all."""
    memory = open_memory_()
    other = ANN._replace(target="other", label="Other")
    for peer in (ANN, other):
        await memory.fetch(peer, TOOLS, Script(listed("a")))
        await memory.remember_era(peer.target, LEGACY)
    assert await memory.forget(TARGET) == 1
    assert await memory.get(ANN, TOOLS) is None
    assert await memory.era(TARGET) is None
    assert [entry.label for entry in await memory.entries()] == ["Other"]
    assert await memory.era("other") is not None
    assert await memory.forget() == 1
    assert await memory.entries() == []
    assert await memory.era("other") is None
    assert (await memory.fetch(ANN, TOOLS, Script(listed("b")))).freshness.fresh


async def test_counts_say_what_happened(open_memory_: OpenMemory) -> None:
    """Ours: `outrider cache stats`."""
    memory = open_memory_()
    await memory.fetch(ANN, TOOLS, Script(listed("a")))
    await memory.fetch(ANN, TOOLS, Script(listed("a")))
    await memory.invalidate(TARGET, "tools/list")
    await memory.get(ANN, TOOLS)
    assert (memory.counts.hits, memory.counts.misses, memory.counts.loads, memory.counts.stale) == (1, 1, 1, 1)
    assert memory.counts.failures == 0


async def test_a_clock_set_back_makes_everything_stale_once(open_memory_: OpenMemory, hand_clock: HandClock) -> None:
    """Ours: the age of what is known is unknown; what is fetched afterwards is fresh again."""
    memory, load = open_memory_(), Script(listed("a"))
    await memory.fetch(ANN, TOOLS, load)
    hand_clock.pass_time(120_000)
    hand_clock.jump(-90_000)
    found = await memory.get(ANN, TOOLS)
    assert found is not None
    assert not found.freshness.fresh
    await memory.fetch(ANN, TOOLS, load)
    assert (await memory.fetch(ANN, TOOLS, load)).source is Source.MEMORY
    assert load.requests == 2


async def test_errors_hold_no_secret(open_memory_: OpenMemory) -> None:
    """Ours: whatever the memory raises is an OutriderError of the loader's own making."""
    memory = open_memory_()
    with pytest.raises(OutriderError) as caught:
        await memory.fetch(ANN, TOOLS, Script(b"SECRET"))
    assert "SECRET" not in str(caught.value)
