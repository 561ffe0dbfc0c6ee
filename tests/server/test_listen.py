"""Listen streams: acknowledgement, filters, coalescing, the orderly end, and many of them."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest

from outrider.server import HttpOptions, Principal, Server, ServerOptions
from server.asgi import Caller, Exchange

SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"


def make(**options: Any) -> Server:
    server = Server("s", version="1", options=ServerOptions(**options))
    server.tool(lambda: "x", name="t")
    server.prompt(lambda: "x", name="p")
    server.resource("x://watched", lambda: "x", name="w", subscribable=True)
    server.resource("x://items/{id}", lambda id: id, name="i", subscribable=True)
    server.resource("x://still", lambda: "x", name="s")
    return server


EVERYTHING = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourcesListChanged": True,
    "resourceSubscriptions": ["x://watched", "x://items/1", "x://still", "x://none"],
}


async def listen(caller: Caller, wanted: Any, **options: Any) -> Exchange:
    """A listen stream whose acknowledgement has come."""
    exchange = caller.begin("subscriptions/listen", {"notifications": wanted}, **options)
    await exchange.until(lambda response: len(response.events) >= 1)
    return exchange


async def events(exchange: Exchange, count: int) -> list[Any]:
    return (await exchange.until(lambda response: len(response.events) >= count)).events


@pytest.mark.parametrize("request_id", [1, 0, "listen-1", ""])
async def test_acknowledgement_comes_first_and_says_what_is_honoured(request_id: Any) -> None:
    """Spec: 2026-07-28 basic/patterns/subscriptions#acknowledgment (MUST be first, with the id; unsupported types omitted)"""
    exchange = await listen(Caller(make().asgi()), EVERYTHING, id=request_id)
    (first,) = exchange.response.events
    assert first == {
        "jsonrpc": "2.0",
        "method": "notifications/subscriptions/acknowledged",
        "params": {
            "_meta": {SUBSCRIPTION_ID: request_id},
            "notifications": {**EVERYTHING, "resourceSubscriptions": ["x://items/1", "x://watched"]},
        },
    }
    assert exchange.response.headers["x-accel-buffering"] == "no"
    await exchange.disconnect()


async def test_types_that_this_server_lacks_are_not_acknowledged() -> None:
    """Spec: as above."""
    server = Server("s", version="1")
    server.tool(lambda: "x", name="t")
    exchange = await listen(Caller(server.asgi()), EVERYTHING)
    assert exchange.response.events[0]["params"]["notifications"] == {
        "toolsListChanged": True, "resourceSubscriptions": []
    }  # fmt: skip
    await exchange.disconnect()


async def test_each_stream_hears_only_what_it_asked_for() -> None:
    """Spec: 2026-07-28 basic/patterns/subscriptions#opening-a-stream (MUST NOT send others; id on every notification)"""
    server = make()
    caller = Caller(server.asgi())
    wanted = {
        "tools": {"toolsListChanged": True},
        "prompts": {"promptsListChanged": True},
        "resources": {"resourcesListChanged": True},
        "one": {"resourceSubscriptions": ["x://watched"]},
        "none": {},
    }
    streams = {name: await listen(caller, filter_, id=name) for name, filter_ in wanted.items()}
    server.tool(lambda: "x", name="t2")
    server.prompt(lambda: "x", name="p2")
    server.resource("x://new", lambda: "x", name="n")
    server.resource_updated("x://watched")
    server.resource_updated("x://items/1")
    heard = {}
    for name in ("tools", "prompts", "resources", "one"):
        await events(streams[name], 2)
    for name, stream in streams.items():
        heard[name] = [event["method"] for event in stream.response.events[1:]]
        for event in stream.response.events:
            assert event["params"]["_meta"] == {SUBSCRIPTION_ID: name}
        await stream.disconnect()
    assert heard == {
        "tools": ["notifications/tools/list_changed"],
        "prompts": ["notifications/prompts/list_changed"],
        "resources": ["notifications/resources/list_changed"],
        "one": ["notifications/resources/updated"],
        "none": [],
    }
    assert len(server.subscriptions) == 0


async def test_changes_at_one_moment_are_one_notification() -> None:
    """Ours: a hundred tools registered together are one change."""
    server = make()
    exchange = await listen(Caller(server.asgi()), EVERYTHING)
    for number in range(100):
        server.tool(lambda: "x", name=f"new{number}")
    for _ in range(3):
        server.resource_updated("x://watched")
        server.resource_updated("x://items/1")
    found = await events(exchange, 4)
    assert [event["method"].removeprefix("notifications/") for event in found] == [
        "subscriptions/acknowledged", "tools/list_changed", "resources/updated", "resources/updated"
    ]  # fmt: skip
    await exchange.disconnect()


async def test_change_from_another_thread_is_heard() -> None:
    """Ours: tools run in threads, and may change the server."""
    server = make()
    exchange = await listen(Caller(server.asgi()), EVERYTHING)
    thread = threading.Thread(target=lambda: (server.remove_tool("t"), server.resource_updated("x://watched")))
    thread.start()
    thread.join()
    methods = {event["method"] for event in await events(exchange, 3)}
    assert {"notifications/tools/list_changed", "notifications/resources/updated"} <= methods
    await exchange.disconnect()


async def test_reader_who_does_not_read_costs_a_set_and_not_a_queue() -> None:
    """Ours: ten thousand changes while a client does not read become one notification, and others are served meanwhile."""
    server = make()
    app = server.asgi()
    stuck = asyncio.Event()
    sent: list[bytes] = []
    blocked = asyncio.Event()

    async def receive() -> Any:
        if body:
            return {"type": "http.request", "body": body.pop(), "more_body": False}
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))
        if b"list_changed" in sent[-1]:
            blocked.set()
            await stuck.wait()

    probe = Caller(app)
    scope_holder: dict[str, Any] = {}
    real = probe.app
    probe.app = lambda scope, r, s: scope_holder.update(scope) or asyncio.sleep(0)
    exchange = probe.begin("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    body = [exchange._chunks[0]]
    await exchange.finish()
    task = asyncio.create_task(real(scope_holder, receive, send))
    async with asyncio.timeout(30):
        while len(sent) < 2:
            await asyncio.sleep(0)
        server.remove_tool("t")
        await blocked.wait()
        for number in range(10_000):
            server.tool(lambda: "x", name="flap") if number % 2 else server.remove_tool("flap")
            if number % 1000 == 0:
                await asyncio.sleep(0)
        before = len(sent)
        stuck.set()
        while len(sent) < before + 1:
            await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)
    assert len(sent) == before + 1
    task.cancel()
    await asyncio.wait((task,))


async def test_server_ends_streams_in_an_orderly_way() -> None:
    """Spec: 2026-07-28 basic/patterns/subscriptions#graceful-closure (SHOULD)"""
    server = make()
    caller = Caller(server.asgi())
    streams = [await listen(caller, EVERYTHING, id=number) for number in range(3)]
    server.close_streams()
    for number, stream in enumerate(streams):
        response = await stream.finish()
        assert response.is_complete
        last = response.events[-1]
        assert last["id"] == number
        assert last["result"]["resultType"] == "complete"
        assert last["result"]["_meta"][SUBSCRIPTION_ID] == number
        assert last["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "s"
    assert len(server.subscriptions) == 0


async def test_asgi_servers_own_shutdown_is_orderly_too() -> None:
    """Ours: an ASGI server that cancels what is left lets the client know that the end was meant."""
    exchange = await listen(Caller(make().asgi()), EVERYTHING)
    task = exchange.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()
    assert exchange.response.events[-1]["result"]["resultType"] == "complete"
    assert exchange.response.is_complete


async def test_quiet_stream_is_kept_alive() -> None:
    """Spec: 2026-07-28 streamable-http#receiving-messages (encouraged)"""
    exchange = await listen(Caller(make().asgi(options=HttpOptions(keep_alive_s=0.01))), EVERYTHING)
    response = await exchange.until(lambda r: r.body.count(b":\n\n") >= 3)
    assert len(response.events) == 1
    await exchange.disconnect()


async def test_watching_needs_permission_to_read() -> None:
    """Ours: who may not read a resource does not learn when it changes."""
    server = make()
    server.resource("x://secret", lambda: "x", name="secret", subscribable=True, visible_to=lambda who: who is not None)
    wanted = {"resourceSubscriptions": ["x://secret"]}
    stranger = await listen(Caller(server.asgi()), wanted)
    assert stranger.response.events[0]["params"]["notifications"] == {"resourceSubscriptions": []}
    known = await listen(Caller(server.asgi(authenticate=lambda scope: Principal("ann"))), wanted)
    assert known.response.events[0]["params"]["notifications"] == wanted
    await stranger.disconnect()
    await known.disconnect()


async def test_streams_beyond_the_limit_are_refused() -> None:
    """Ours: at the limit and one above; one that ends makes room."""
    caller = Caller(make(max_listeners=2).asgi())
    first, second = await listen(caller, EVERYTHING), await listen(caller, EVERYTHING)
    status, error = await caller.error("subscriptions/listen", {"notifications": {}})
    assert (status, error["code"]) == (503, -32603)
    await first.disconnect()
    third = await listen(caller, EVERYTHING)
    await second.disconnect()
    await third.disconnect()


async def test_ten_thousand_streams_hear_a_change_and_leave_nothing_behind() -> None:
    """Ours: many idle streams are cheap, and when they are gone they are gone."""
    server = make()
    caller = Caller(server.asgi())
    count = 10_000
    gc.collect()
    before = len(gc.get_objects())
    streams = [caller.begin("subscriptions/listen", {"notifications": EVERYTHING}, id=n) for n in range(count)]
    for stream in streams:
        await stream.until(lambda response: b"acknowledged" in response.body)
    assert len(server.subscriptions) == count
    server.remove_tool("t")
    for stream in streams:
        await stream.until(lambda response: b"tools/list_changed" in response.body)
    for stream in streams:
        await stream.disconnect()
    assert len(server.subscriptions) == 0
    assert not server.subscriptions._by_uri
    del streams, stream
    gc.collect()
    assert len(gc.get_objects()) - before < count
