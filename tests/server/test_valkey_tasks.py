"""Tasks in a real Valkey: the contract of a store, and two processes that serve the same tasks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import outrider
from cache.conftest import ValkeyServer
from outrider import Elicited, FormRequest, InputHandlers
from outrider.errors import ConfigError, StoreError
from outrider.protocol.tasks import Task, TaskStatus
from outrider.server import TaskRecord, TooManyTasks
from outrider.server.valkey_tasks import ValkeyTaskStore
from peers.provision import VALKEY, Service
from server.serving import serving
from server.test_tasks import TAKES, Scene, named, text_of

pytestmark = pytest.mark.service

DEADLINE_S = 30.0
PROGRAM = '''
import asyncio, os
from outrider.server import Context, Server, ServerOptions, TaskOptions
from outrider.server.valkey_tasks import ValkeyTaskStore

options = TaskOptions(store=ValkeyTaskStore(os.environ["TASKS"]), poll_interval_ms=100)
server = Server("s", version="1", options=ServerOptions(tasks=options))
FORM = {"type": "object", "properties": {"name": {"type": "string", "default": "Ada"}}}


@server.tool(task=True)
async def greet(ctx: Context) -> str:
    """Greet whoever answers."""
    answer = await ctx.elicit("Who?", FORM)
    return f"Hello, {answer.content['name']}, from {os.environ['NAME']}"
'''


@pytest.fixture(scope="module")
def valkey(service: Callable[[Service], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    """A server of this module's."""
    server = ValkeyServer(service(VALKEY), tmp_path_factory.mktemp("valkey"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
async def open_store(
    valkey: ValkeyServer, request: pytest.FixtureRequest
) -> AsyncIterator[Callable[..., ValkeyTaskStore]]:
    """Opens stores that see the same tasks, which are those of one test."""
    opened: list[ValkeyTaskStore] = []

    def open_one(**limits: int) -> ValkeyTaskStore:
        opened.append(ValkeyTaskStore(valkey.url, prefix=request.node.name, **limits))
        return opened[-1]

    yield open_one
    for store in opened:
        await store.close()


def record(name: str, owner: str | None = None, **members: Any) -> TaskRecord:
    return TaskRecord(task=Task(task_id=name, status=TaskStatus.WORKING, **members), owner=owner)


async def test_what_is_kept_comes_back_whole(open_store: Callable[..., ValkeyTaskStore]) -> None:
    """Ours: for everybody, until it is replaced; whoever was slower reads again."""
    one, other = open_store(), open_store()
    full = TaskRecord(
        task=Task(
            task_id="a",
            status=TaskStatus.INPUT_REQUIRED,
            status_message="é",
            created_at="then",
            last_updated_at="now",
            ttl_ms=5,
            poll_interval_ms=6,
            input_requests={"k": {"method": "m", "params": {"a": [1, None]}}},
        ),
        owner="ada",
        answers={"k": {"action": "accept"}},
    )
    await one.create(full, keep_s=60)
    assert await other.read("a") == (full, 0)
    with pytest.raises(ValueError, match="once"):
        await other.create(full, keep_s=60)
    assert await other.replace(record("a", "ada"), 0)
    assert not await one.replace(full, 0)
    assert await one.read("a") == (record("a", "ada"), 1)
    assert await one.read("none") is None
    assert not await one.replace(record("none"), 0)


async def test_tasks_are_bounded_in_all_and_for_one_owner(open_store: Callable[..., ValkeyTaskStore]) -> None:
    """Ours: at the limit, and one above it; the limits hold for all processes together."""
    one, other = (open_store(max_tasks=3, max_per_owner=2) for _ in range(2))
    await one.create(record("a", "x"), keep_s=60)
    await other.create(record("b", "x"), keep_s=60)
    with pytest.raises(TooManyTasks):
        await one.create(record("c", "x"), keep_s=60)
    await one.create(record("c"), keep_s=60)
    with pytest.raises(TooManyTasks):
        await other.create(record("d"), keep_s=60)


async def test_expired_tasks_are_gone_and_make_room(open_store: Callable[..., ValkeyTaskStore]) -> None:
    """Ours: the server's own clock decides."""
    store = open_store(max_tasks=1)
    await store.create(record("a"), keep_s=0.05)
    async with asyncio.timeout(DEADLINE_S):
        while await store.read("a"):
            pass
        await store.create(record("b"), keep_s=60)


async def test_who_waits_is_woken_by_another_process(open_store: Callable[..., ValkeyTaskStore]) -> None:
    """Ours: at once, not at the next look."""
    one, other = open_store(), open_store()
    await one.create(record("a"), keep_s=60)
    async with asyncio.timeout(DEADLINE_S):
        waiting = asyncio.create_task(one.changed("a", 0))
        await other.replace(record("a"), 0)
        await waiting
        await one.changed("a", 0)
        await one.changed("none", 0)


async def test_two_servers_serve_the_same_tasks(open_store: Callable[..., ValkeyTaskStore]) -> None:
    """Ours: what the store in memory does for one process, this one does for many."""
    one, other = Scene(open_store()), Scene(open_store())
    task_id = (await one.call("ask_much", who="ada"))["taskId"]
    await other.until_owned(task_id, "ada", lambda task: len(task.get("inputRequests", ())) == 2)
    await other.ask("update", task_id, who="ada", inputResponses={"a": named("A"), "b": named("B")})
    await other.until_owned(task_id, "ada", lambda task: task["status"] == "completed")
    assert text_of(await one.ask("get", task_id, who="ada")) == "A B"
    status, error = await other.error("tasks/get", who="eve", taskId=task_id)
    assert (status, error["code"]) == (400, -32602)
    task_id = (await one.call("work"))["taskId"]
    await one.reached.wait()
    await other.ask("cancel", task_id)
    if one.server.tasks.running:
        await asyncio.wait(one.server.tasks.running)
    assert one.ended == ["cancelled"]


async def test_a_client_starts_at_one_process_and_goes_on_at_another(valkey: ValkeyServer, tmp_path: Path) -> None:
    """Ours: real processes; the answer goes to the one that did not make the task."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")

    async def fill_in(form: FormRequest) -> Elicited:
        return Elicited("accept", form.defaults())

    options = outrider.ClientOptions(inputs=InputHandlers(form=fill_in))
    env = {**os.environ, "TASKS": valkey.url}
    with (
        serving(program, environment={**env, "NAME": "one"}) as one,
        serving(program, environment={**env, "NAME": "two"}) as two,
    ):
        async with asyncio.timeout(60):
            async with outrider.connect(one.url, options=options) as client:
                started = await client.start_tool("greet")
            assert isinstance(started, Task)
            async with outrider.connect(two.url, options=options) as client:
                assert (await client.tasks.wait(started.task_id)).text == "Hello, Ada, from one"


async def test_a_store_that_is_away_costs_an_error_and_no_secret(unused_tcp_port: int) -> None:
    """Ours: a call is refused as busy; what cannot be looked up is an internal error."""
    store = ValkeyTaskStore(f"valkey://user:secret@127.0.0.1:{unused_tcp_port}/0")
    with pytest.raises(StoreError) as caught:
        await store.read("a")
    assert "secret" not in str(caught.value)
    scene = Scene(store)
    status, error = await scene.error("tools/call", name="work")
    assert (status, error["message"]) == (503, "tasks cannot be kept now; try again later")
    status, error = await scene.error("tasks/get", taskId="t")
    assert error["code"] == -32603
    stream = scene.caller.begin("subscriptions/listen", {"notifications": {"taskIds": ["t"]}}, capabilities=TAKES)
    agreed = await stream.until(lambda response: len(response.events) == 1)
    assert agreed.events[0]["params"]["notifications"] == {"taskIds": []}
    await stream.disconnect()
    await store.close()


@pytest.mark.parametrize("url", ["", "nonsense", "http://x"])
async def test_a_url_that_cannot_be_used_is_a_matter_of_configuration(url: str) -> None:
    """Ours."""
    with pytest.raises(ConfigError):
        ValkeyTaskStore(url)
