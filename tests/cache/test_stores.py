"""The contract of a store, kept by all three."""

from __future__ import annotations

import pytest

from cache.conftest import HandClock, OpenStore
from outrider.cache import Address, InProcessStore, Record, Store
from outrider.cache.sqlite import SqliteStore

TARGET, OTHER = "a" * 32, "b" * 32
MARKS = ("*", f"{TARGET}|tools/list")
HERE = Address(TARGET, "c1", "tools/list", "r1")


def record(tokens: str, clock: HandClock, value: bytes = b'{"tools":[]}', *, keep_ms: int = 60_000) -> Record:
    return Record(value, clock.wall_ms, 1_000, False, tokens, clock.wall_ms + keep_ms, label="demo")


async def put(store: Store, clock: HandClock, address: Address = HERE, value: bytes = b'{"tools":[]}') -> Record:
    kept = record(" ".join(await store.mark(MARKS)), clock, value)
    assert await store.write([(address, kept)], MARKS)
    return kept


async def test_what_was_written_is_read_back(open_store: OpenStore, hand_clock: HandClock) -> None:
    """Ours: byte for byte, with the tokens that are current."""
    store = open_store()
    assert await store.read([HERE], MARKS) == ([None], [None, None])
    value = bytes(range(256)) * 100
    kept = await put(store, hand_clock, value=value)
    for _ in range(2):
        assert await store.read([HERE], MARKS) == ([kept], kept.tokens.split())


async def test_two_addresses_are_read_as_of_one_moment(open_store: OpenStore, hand_clock: HandClock) -> None:
    """Ours: the private and the shared copy, in order, each None if absent."""
    store = open_store()
    shared = HERE._replace(context="")
    kept = await put(store, hand_clock, shared)
    assert (await store.read([HERE, shared], MARKS))[0] == [None, kept]
    own = await put(store, hand_clock, HERE, b"own")
    assert (await store.read([HERE, shared], MARKS))[0] == [own, kept]


async def test_every_part_of_the_address_counts(open_store: OpenStore, hand_clock: HandClock) -> None:
    """Spec server/utilities/caching#cache-key (MUST NOT) and #cache-scope-field (MUST NOT)."""
    store = open_store()
    await put(store, hand_clock)
    others = [
        HERE._replace(target=OTHER),
        HERE._replace(context="c2"),
        HERE._replace(context=""),
        HERE._replace(method="prompts/list"),
        HERE._replace(request="r2"),
    ]
    assert (await store.read(others, MARKS))[0] == [None] * 5


async def test_marks_keep_their_tokens_until_they_are_bumped(open_store: OpenStore) -> None:
    """Ours: a token never comes back."""
    store = open_store()
    first = await store.mark(MARKS)
    assert await store.mark(MARKS) == first
    assert len(set(first)) == 2
    seen = set(first)
    for _ in range(5):
        await store.bump([MARKS[1]])
        token, bumped = await store.mark(MARKS)
        assert token == first[0]
        assert bumped not in seen
        seen.add(bumped)


async def test_bumping_an_unknown_mark_creates_it(open_store: OpenStore) -> None:
    """Ours: what began before has no token to match."""
    store = open_store()
    await store.bump([MARKS[1]])
    assert (await store.read([HERE], MARKS))[1][1] is not None


async def test_an_answer_that_was_overtaken_does_not_replace_a_newer_one(
    open_store: OpenStore, hand_clock: HandClock
) -> None:
    """Case 68: its request began before the invalidation; stored only where there is nothing."""
    store = open_store()
    old_tokens = " ".join(await store.mark(MARKS))
    await store.bump([MARKS[1]])
    overtaken = record(old_tokens, hand_clock, b"old")
    assert not await store.write([(HERE, overtaken)], MARKS)
    assert (await store.read([HERE], MARKS))[0] == [overtaken]
    newer = await put(store, hand_clock, value=b"new")
    assert not await store.write([(HERE, overtaken)], MARKS)
    assert (await store.read([HERE], MARKS))[0] == [newer]


async def test_an_entry_found_expired_stays_so(open_store: OpenStore, hand_clock: HandClock) -> None:
    """Ours: and only that entry, not one that has replaced it."""
    store = open_store()
    kept = await put(store, hand_clock)
    await store.expire(HERE, kept.received_ms - 1)
    assert (await store.read([HERE], MARKS))[0] == [kept]
    await store.expire(HERE, kept.received_ms)
    assert (await store.read([HERE], MARKS))[0] == [kept._replace(expired=True)]
    again = await put(store, hand_clock)
    assert (await store.read([HERE], MARKS))[0] == [again]


async def test_drop_takes_what_matches_and_nothing_else(open_store: OpenStore, hand_clock: HandClock) -> None:
    """Ours: any combination of target, context and method."""
    store = open_store()
    addresses = [
        Address(t, c, m, "r") for t in (TARGET, OTHER) for c in ("c1", "c2") for m in ("tools/list", "prompts/list")
    ]
    for address in addresses:
        await put(store, hand_clock, address)

    async def left() -> set[Address]:
        found = (await store.read(addresses, MARKS))[0]
        return {address for address, kept in zip(addresses, found, strict=True) if kept}

    assert await store.drop(TARGET, context="c1", method="tools/list") == 1
    assert await left() == set(addresses) - {addresses[0]}
    assert await store.drop(TARGET, context="c2") == 2
    assert await store.drop(OTHER, method="prompts/list") == 2
    assert await store.drop("nobody") == 0
    await store.write_fact("f", b"1", 60_000)
    assert await store.drop() == 3
    assert await left() == set()
    assert await store.read_fact("f") is None
    assert (await store.read([HERE], MARKS))[1] == [None, None]
    assert await store.entries() == []


async def test_a_lease_has_one_holder_and_an_end(open_store: OpenStore, hand_clock: HandClock) -> None:
    """Ours: the holder may renew and release; nobody else can."""
    store = open_store()
    assert await store.lease("l", "one", 60_000)
    assert await store.lease("l", "one", 60_000)
    assert not await store.lease("l", "two", 60_000)
    assert await store.lease("other", "two", 60_000)
    await store.release("l", "two")
    assert not await store.lease("l", "two", 60_000)
    await store.release("l", "one")
    assert await store.lease("l", "two", 60_000)


@pytest.mark.parametrize("kind", ["in-process", "sqlite"])
async def test_a_lease_of_a_crashed_holder_ends_by_itself(kind: str, hand_clock: HandClock, tmp_path: object) -> None:
    """Ours: at its time, and if the clock is set back, at once."""
    store: Store = (
        InProcessStore(clock=lambda: hand_clock.wall_ms)
        if kind == "in-process"
        else SqliteStore(f"{tmp_path}/m.sqlite3", clock=lambda: hand_clock.wall_ms)
    )
    try:
        assert await store.lease("l", "crashed", 2_000)
        hand_clock.pass_time(1_999)
        assert not await store.lease("l", "two", 2_000)
        hand_clock.pass_time(1)
        assert await store.lease("l", "two", 2_000)
        hand_clock.jump(-3_600_000)
        assert await store.lease("l", "three", 2_000)
    finally:
        await store.close()


async def test_facts_are_kept_and_dropped(open_store: OpenStore) -> None:
    """Ours: small values beside the answers."""
    store = open_store()
    assert await store.read_fact("f") is None
    await store.write_fact("f", b"\x00one", 60_000)
    await store.write_fact("f", b"\x00two", 60_000)
    await store.write_fact("g", b"three", 60_000)
    assert await store.read_fact("f") == b"\x00two"
    await store.drop_fact("f")
    await store.drop_fact("never")
    assert await store.read_fact("f") is None
    assert await store.read_fact("g") == b"three"


async def test_entries_are_listed_without_content(open_store: OpenStore, hand_clock: HandClock) -> None:
    """Ours: for people."""
    store = open_store()
    await put(store, hand_clock, value=b"x" * 1000)
    [summary] = await store.entries()
    assert (summary.address, summary.size_bytes, summary.label) == (HERE, 1000, "demo")
    assert (summary.received_ms, summary.ttl_ms, summary.public) == (hand_clock.wall_ms, 1_000, False)


async def test_all_pages_are_written_or_none(open_store: OpenStore, hand_clock: HandClock) -> None:
    """Case 111: a list is replaced as a whole."""
    store = open_store()
    tokens = " ".join(await store.mark(MARKS))
    pages = [(HERE._replace(request=f"p{n}"), record(tokens, hand_clock, b"%d" % n)) for n in range(3)]
    assert await store.write(pages, MARKS)
    assert [kept and kept.value for kept in (await store.read([a for a, _ in pages], MARKS))[0]] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("open_store", ["sqlite", pytest.param("valkey", marks=pytest.mark.service)], indirect=True)
async def test_two_instances_share_entries_marks_leases_and_facts(open_store: OpenStore, hand_clock: HandClock) -> None:
    """Ours: what one process writes or bumps, the other sees with its next read."""
    one, two = open_store(), open_store()
    assert one.shared
    kept = await put(one, hand_clock)
    assert await two.read([HERE], MARKS) == ([kept], kept.tokens.split())
    await two.bump([MARKS[1]])
    tokens = await one.mark(MARKS)
    assert tokens[1] not in kept.tokens
    await one.write_fact("f", b"1", 60_000)
    assert await two.read_fact("f") == b"1"
    assert await one.lease("l", "one", 60_000)
    assert not await two.lease("l", "two", 60_000)
    assert await two.drop(TARGET) == 1
    assert (await one.read([HERE], ("*",)))[0] == [None]


async def test_close_may_be_repeated(open_store: OpenStore, hand_clock: HandClock) -> None:
    """Ours: idempotent, before and after use."""
    store = open_store()
    await store.close()
    await put(store, hand_clock)
    await store.close()
    await store.close()


async def test_the_process_store_is_bounded_by_entries_and_bytes(hand_clock: HandClock) -> None:
    """Ours: what was used least recently goes first, at the limit and one above."""
    store = InProcessStore(max_entries=3, max_bytes=10_000, clock=lambda: hand_clock.wall_ms)
    addresses = [HERE._replace(request=str(n)) for n in range(4)]
    for address in addresses[:3]:
        await put(store, hand_clock, address)
    await store.read([addresses[0]], MARKS)
    await put(store, hand_clock, addresses[3])
    assert [kept is not None for kept in (await store.read(addresses, MARKS))[0]] == [True, False, True, True]
    await put(store, hand_clock, addresses[1], b"x" * 9_000)
    assert [kept is not None for kept in (await store.read(addresses, MARKS))[0]] == [False, True, False, False]


async def test_the_sqlite_store_is_bounded_by_entries_and_bytes(hand_clock: HandClock, tmp_path: object) -> None:
    """Ours: a process's first write sweeps; what was received first, and what is of no more use, goes."""
    path = f"{tmp_path}/m.sqlite3"

    async def written_by_a_process(addresses: list[Address], **bounds: int) -> set[str]:
        store = SqliteStore(path, clock=lambda: hand_clock.wall_ms, **bounds)
        for address in addresses:
            hand_clock.pass_time(1)
            await put(store, hand_clock, address, b"x" * 100)
        left = {summary.address.request for summary in await store.entries()}
        await store.close()
        return left

    some = [HERE._replace(request=str(n)) for n in range(20)]
    assert len(await written_by_a_process(some)) == 20
    assert await written_by_a_process(some[-1:], max_entries=10) == {str(n) for n in range(11, 20)}
    assert len(await written_by_a_process(some[-1:], max_bytes=500)) == 4
    hand_clock.pass_time(60_000)
    assert await written_by_a_process(some[:1]) == {"0"}
