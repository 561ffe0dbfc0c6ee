"""Tasks for a model with tools: the same for the scripted model of the tests and for any real one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fakes.model import Turn, call, say
from fakes.scripts import Script, complete, modern, on, result, tool


def _schema(*required: str, **properties: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {"type": "string", "description": text} for name, text in properties.items()},
        "required": list(required),
    }


def _answers(name: str, text: str) -> Any:
    return on("tools/call", result(complete(content=[{"type": "text", "text": text}])), params={"name": name})


def servers() -> dict[str, Script]:
    """The servers of all tasks, by key."""
    tracker = [
        tool("list_issues", description="Lists the open issues of the project.", inputSchema=_schema()),
        tool(
            "create_issue",
            description="Opens a new issue.",
            inputSchema=_schema("title", title="one line", body="details"),
        ),
    ]
    people = [
        tool(
            "find_person",
            description="Finds a person's customer number by name.",
            inputSchema=_schema("name", name="the name"),
        )
    ]
    shop = [
        tool(
            "list_orders",
            description="Lists a customer's orders.",
            inputSchema=_schema("customer", customer="the customer number"),
        )
    ]
    weather = [
        tool(
            "forecast", description="Tells tomorrow's weather in a city.", inputSchema=_schema("city", city="the city")
        )
    ]
    return {
        "tracker": Script(
            _answers("list_issues", "1: Login fails on Fridays\n2: Logo is blurred"),
            _answers("create_issue", "Opened #3"),
            *modern(tools=tracker),
        ),
        "people": Script(_answers("find_person", "Ada Lovelace has customer number 4711"), *modern(tools=people)),
        "shop": Script(_answers("list_orders", "One order: an analytical engine, shipped"), *modern(tools=shop)),
        "weather": Script(_answers("forecast", "Rain, 7 degrees"), *modern(tools=weather)),
    }


@dataclass(frozen=True)
class Task:
    """A task, the tools that it needs, and how a good model goes about it.

    Attributes:
        name: for reports.
        prompt: what is asked.
        needs: the tools of servers that should be reached; none if nothing fits.
        mode: how tools are shown.
        good: the turns of a model that does it well.
    """

    name: str
    prompt: str
    needs: frozenset[str]
    mode: Any = "all"
    good: tuple[Turn, ...] = field(default=())


TASKS = (
    Task(
        "one call",
        "Which issues are open?",
        frozenset({"tracker/list_issues"}),
        good=(call(("tracker__list_issues", {})), say("Two: login, logo.")),
    ),
    Task(
        "arguments",
        "Open an issue with the title 'Search is slow'.",
        frozenset({"tracker/create_issue"}),
        good=(call(("tracker__create_issue", {"title": "Search is slow"})), say("It is #3.")),
    ),
    Task(
        "two at once",
        "How is the weather tomorrow in Oslo and in Rome?",
        frozenset({"weather/forecast"}),
        good=(
            call(("weather__forecast", {"city": "Oslo"}), ("weather__forecast", {"city": "Rome"})),
            say("Rain in both."),
        ),
    ),
    Task(
        "one after the other",
        "What has Ada Lovelace ordered?",
        frozenset({"people/find_person", "shop/list_orders"}),
        good=(
            call(("people__find_person", {"name": "Ada Lovelace"})),
            call(("shop__list_orders", {"customer": "4711"})),
            say("An analytical engine."),
        ),
    ),
    Task(
        "by search",
        "What has Ada Lovelace ordered?",
        frozenset({"people/find_person", "shop/list_orders"}),
        mode="search",
        good=(
            call(("search_tools", {"queries": ["find a person", "list orders of a customer"]})),
            call(("call_tool", {"name": "people__find_person", "arguments": {"name": "Ada Lovelace"}})),
            call(("call_tool", {"name": "shop__list_orders", "arguments": {"customer": "4711"}})),
            say("An analytical engine."),
        ),
    ),
    Task(
        "nothing fits",
        "Book a table for two in a restaurant tonight.",
        frozenset(),
        mode="search",
        good=(call(("search_tools", {"queries": ["book a restaurant table"]})), say("I have no tool for that.")),
    ),
)
