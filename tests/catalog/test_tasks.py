"""Whole tasks: by a scripted model in every run, and by any real one with `./dev test --model URL`."""

from __future__ import annotations

import os
from typing import Any

import pytest

from catalog.tasks import TASKS, Task, servers
from catalog.test_conversation import opened
from fakes.model import MakeModel
from fakes.running import FakeStdio
from outrider.catalog.agent import Agent, AgentOptions, Answer
from outrider.catalog.model import OpenAIModel

LIVE_DEADLINE_S = 600.0


async def solve(task: Task, fake_stdio: FakeStdio, model: OpenAIModel, **options: float) -> Answer:
    """A task done by an agent with all servers of the tasks."""
    commands = {key: fake_stdio(script).command for key, script in servers().items()}
    async with opened(commands) as catalog, model:
        return await Agent(catalog, model, options=AgentOptions(mode=task.mode, max_turns=12, **options)).run(
            task.prompt
        )


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
async def test_a_good_model_reaches_the_tools_that_a_task_needs(
    fake_stdio: FakeStdio, fake_model: MakeModel, task: Task
) -> None:
    """Ours: every task can be done with what the agent shows and says."""
    model = fake_model(*task.good)
    answer = await solve(task, fake_stdio, OpenAIModel("scripted", base_url=model.url))
    assert answer.stopped == "answered"
    assert set(answer.tools_reached) == task.needs
    assert answer.ledger.refused == 0


@pytest.mark.model
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
async def test_a_real_model_comes_to_an_end(
    request: pytest.FixtureRequest,
    fake_stdio: FakeStdio,
    monkeypatch: pytest.MonkeyPatch,
    model_report: list[Any],
    task: Task,
) -> None:
    """Ours: whatever the model does, the loop ends with an answer or a reason. Which tools it reached is for a person to judge."""
    monkeypatch.setattr("catalog.test_conversation.DEADLINE_S", LIVE_DEADLINE_S)
    url = request.config.getoption("--model")
    name = request.config.getoption("--model-id") or os.environ.get("OUTRIDER_MODEL") or await first_model(url)
    answer = await solve(task, fake_stdio, OpenAIModel(name, base_url=url))
    model_report.append((name, task.name, task.needs, answer))
    assert answer.turns >= 1
    assert answer.text.strip() or answer.stopped != "answered"


async def first_model(url: str) -> str:
    """The first model that an endpoint lists: right for local servers with a single one."""
    import openai

    async with openai.AsyncOpenAI(base_url=url, api_key=os.environ.get("OPENAI_API_KEY", "none")) as client:
        async for model in client.models.list():
            return model.id
    pytest.fail(f"{url} lists no model; name one with --model-id")
