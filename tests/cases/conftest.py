"""Every case ends within a deadline: a client that hangs is the most common defect of all."""

from __future__ import annotations

import asyncio
import functools
import inspect
from pathlib import Path
from typing import Any

import pytest

CASE_DEADLINE_S = 90.0
"""Far above what any case takes on a busy machine."""

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        is_case = item.path.is_relative_to(HERE) and isinstance(item, pytest.Function)
        if is_case and inspect.iscoroutinefunction(item.obj):
            item.obj = with_deadline(item.obj)


def with_deadline(test: Any) -> Any:
    """The test, failing instead of hanging."""

    @functools.wraps(test)
    async def limited(*arguments: Any, **fixtures: Any) -> None:
        async with asyncio.timeout(CASE_DEADLINE_S):
            await test(*arguments, **fixtures)

    return limited
