"""Anything at any point: random cuts, random bytes, random order, over both transports. The client stays in time and in shape."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import outrider
from cases.expectations import options
from fakes.running import Fake
from fakes.scripts import (
    HANG,
    HANG_UP,
    LINGER,
    NOTHING,
    RESET,
    STREAM,
    Action,
    Rule,
    Script,
    close,
    error,
    exit_with,
    kill,
    legacy,
    modern,
    on,
    raw,
    raw_bytes,
    respond,
    result,
    send,
    split,
    stderr,
)
from outrider import OutriderError

PATIENCE = options(
    start_timeout_s=1.5, probe_timeout_s=0.2, request_timeout_s=0.5, list_timeout_s=0.5, shutdown_timeout_s=0.1
)
# Start, one list and one call with their limits, and the end; far more than that on a machine that is busy.
DEADLINE_S = 60.0

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)
NOTIFICATIONS = [
    "progress",
    "message",
    "cancelled",
    "tools/list_changed",
    "subscriptions/acknowledged",
    "resources/updated",
    "of-a-later-revision",
]
ids = st.sampled_from(["$id", 0, 1, 2, 3, 9999, "1", None, 1.5, True, {}])
member_names = st.sampled_from(
    [
        "jsonrpc",
        "id",
        "method",
        "params",
        "result",
        "error",
        "code",
        "message",
        "data",
        "supportedVersions",
        "capabilities",
        "tools",
        "nextCursor",
        "resultType",
        "content",
        "protocolVersion",
        "name",
        "inputSchema",
        "_meta",
        "type",
        "text",
    ]
)
shaped = st.recursive(
    json_values | st.sampled_from(["2.0", "2026-07-28", "2025-11-25", "complete", "tools/list", "ping", "object"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(member_names, inner, max_size=5),
    max_leaves=12,
)
messages = st.one_of(
    st.builds(lambda id, value: {"jsonrpc": "2.0", "id": id, "result": value}, ids, shaped),
    st.builds(lambda id, value: {"jsonrpc": "2.0", "id": id, "error": value}, ids, shaped),
    st.builds(
        lambda id, code, data: {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "m", "data": data}},
        ids,
        st.sampled_from([-32601, -32602, -32020, -32021, -32022, 0, 2**70]),
        shaped,
    ),
    st.builds(
        lambda id, method, params: {"jsonrpc": "2.0", "id": id, "method": method, "params": params},
        ids,
        st.sampled_from(["ping", "roots/list", "x"]),
        shaped,
    ),
    st.builds(
        lambda method, params: {"jsonrpc": "2.0", "method": method, "params": params},
        st.sampled_from([f"notifications/{name}" for name in NOTIFICATIONS]),
        shaped,
    ),
    shaped,
)
well_formed = st.sampled_from([action for rule in (*modern(), *legacy()) for action in rule.do])
bytes_actions = st.binary(max_size=200).map(raw_bytes)
line_actions = st.one_of(
    messages.map(send),
    well_formed,
    bytes_actions,
    st.builds(lambda message, cut: raw(json.dumps(message)[:cut]), messages, st.integers(0, 200)),
    st.just(raw("\n")),
)
stdio_actions = st.one_of(
    line_actions,
    st.builds(split, st.integers(1, 50)),
    st.just(stderr("boo\n", 200)),
    st.just(NOTHING),
    st.sampled_from([exit_with(0), exit_with(1), kill(9), close("stdout"), LINGER]),
)
headers = st.sampled_from(
    [
        {},
        {"Content-Type": "application/json"},
        {"Content-Type": "text/event-stream"},
        {"Content-Type": ""},
        {"Mcp-Session-Id": "s"},
        {"Retry-After": "0"},
        {"Location": "/mcp"},
        {"Content-Encoding": "gzip"},
    ]
)
statuses = st.sampled_from([200, 202, 204, 301, 307, 400, 401, 403, 404, 405, 406, 418, 421, 429, 500, 503])
http_answers = st.one_of(
    st.builds(
        lambda status, headers, message: [respond(status, headers=headers, json=message)], statuses, headers, messages
    ),
    st.builds(
        lambda status, headers, text: [respond(status, headers=headers, text=text)],
        statuses,
        headers,
        st.text(max_size=50),
    ),
    st.builds(
        lambda answer, status: [{**answer, "status": status} if "respond" not in answer else answer],
        well_formed,
        statuses,
    ),
    st.builds(
        lambda actions, ending: [STREAM, *actions, *ending],
        st.lists(line_actions | st.builds(split, st.integers(1, 50)), max_size=4),
        st.sampled_from([[], [HANG], [HANG_UP], [RESET]]),
    ),
    st.binary(max_size=100).map(lambda data: [{"bare": data.decode("latin-1")}, HANG_UP]),
    st.sampled_from(
        [
            [HANG],
            [RESET],
            [HANG_UP],
            [result({}, sse=True)],
            [error(-32022, "no", data={"supported": ["2025-11-25"]}, status=400)],
        ]
    ),
)
METHODS = ["server/discover", "initialize", "notifications/initialized", "tools/list", "tools/call", None]


def rules_from(actions: st.SearchStrategy[list[Action]]) -> st.SearchStrategy[list[Rule]]:
    """A few rules of chaos, each for one method and often only for a while."""
    return st.lists(
        st.builds(
            lambda method, do, times: on(method, *do, times=times),
            st.sampled_from(METHODS),
            actions,
            st.sampled_from([1, 2, None]),
        ),
        min_size=1,
        max_size=4,
    )


async def use(target: Any) -> None:
    """Everything that a user might do; the only thing that may be raised is an OutriderError."""
    report = await outrider.discover(target, options=PATIENCE)
    json.dumps(report.as_json(), default=lambda raw_json: bytes(raw_json).decode())
    try:
        async with outrider.connect(target, options=PATIENCE) as client:
            for attempt in (lambda: client.list_tools(), lambda: client.call_tool("add"), lambda: listen(client)):
                try:
                    await attempt()
                except OutriderError:
                    pass
    except OutriderError:
        pass


async def listen(client: outrider.Client) -> None:
    async with client.listen(tools=True, timeout_s=0.2):
        pass


def survive(work: Callable[[], Awaitable[None]]) -> None:
    """Runs one conversation in a loop of its own, in which nothing may be left and nothing may go wrong unseen."""
    troubles: list[dict[str, Any]] = []

    async def supervised() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, trouble: troubles.append(trouble))
        async with asyncio.timeout(DEADLINE_S):
            await work()
        # What was closed may need a few turns of the loop to be gone.
        for _ in range(50):
            if len(asyncio.all_tasks()) == 1:
                break
            await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1, asyncio.all_tasks()

    asyncio.run(supervised())
    assert not troubles, troubles


CHAOS = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@pytest.mark.slow
class TestChaos:
    @CHAOS
    @given(rules=rules_from(st.lists(stdio_actions, max_size=4)), era=st.sampled_from([modern(), legacy(), ()]))
    def test_a_process_that_does_anything(self, rules: list[Rule], era: tuple[Rule, ...]) -> None:
        """Ours: it ends in time, with a report or an OutriderError, and no process is left."""
        fake = Fake(Script(*rules, *era))
        try:
            survive(lambda: use(fake.command))
            fake.assert_nothing_runs()
        finally:
            fake.close()

    @CHAOS
    @given(rules=rules_from(http_answers), era=st.sampled_from([modern(), legacy(session="s-1"), legacy(), ()]))
    def test_a_url_that_does_anything(self, rules: list[Rule], era: tuple[Rule, ...]) -> None:
        """Ours: it ends in time, with a report or an OutriderError."""
        fake = Fake(Script(*rules, *era), {"host": "127.0.0.1", "port": 0, "certificate": None})
        try:
            fake.serve("127.0.0.1", "/mcp")
            survive(lambda: use(fake.url))
        finally:
            fake.close()
