"""`outrider call` of a tool that answers with a task."""

from __future__ import annotations

import signal

from cli.user import DEADLINE_S, User, entry
from fakes.running import FakeStdio
from fakes.scripts import Script, modern, on, result

TAKES_TASKS = {"tools": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}
TASK = {
    "taskId": "t-1",
    "status": "working",
    "createdAt": "2026-07-28T10:00:00Z",
    "lastUpdatedAt": "2026-07-28T10:00:00Z",
    "ttlMs": 60_000,
    "pollIntervalMs": 100,
}
CREATED = on("tools/call", result({"resultType": "task", **TASK}))
WORKING = on("tasks/get", result({"resultType": "complete", **TASK}))
CANCELLED = on("tasks/cancel", result({"resultType": "complete"}))
MODERN = modern(capabilities=TAKES_TASKS)


async def test_ctrl_c_cancels_the_task(user: User, fake_stdio: FakeStdio) -> None:
    """Ours: exit code 130, and the server hears of it."""
    fake = fake_stdio(Script(CREATED, WORKING, CANCELLED, *MODERN))
    user.configure({"fake": entry(fake.command)})
    process = user.start(user.command("call", "fake/add"))
    try:
        await fake.wait_for("received", "tasks/get")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert [message["params"]["taskId"] for message in fake.messages("tasks/cancel")] == ["t-1"]


def test_a_timeout_is_for_the_whole_task(user: User, fake_stdio: FakeStdio) -> None:
    """Ours: `--timeout` ends the waiting and the task, and says how it stood."""
    fake = fake_stdio(Script(CREATED, WORKING, CANCELLED, *MODERN))
    user.configure({"fake": entry(fake.command)})
    user.run("tools")
    done = user.run("call", "fake/add", "--timeout", "2")
    assert done.code == 1
    assert "the task was not over within 2 s; its status is working" in done.err
    assert len(fake.messages("tasks/cancel")) == 1
