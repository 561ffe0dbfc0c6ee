"""`outrider ask`: a task in words, done by a model with the tools of every server.

Decided here: how an agent looks on a terminal, who is asked before a call, where model, key and endpoint come from. Not here: the loop
(`catalog.agent`).

The model's words go to stdout, everything else to stderr, so that an answer can be piped on.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from outrider.cli import EXIT_FAILED, EXIT_OK, EXIT_SIGN_IN, explain
from outrider.cli.targets import TargetCommand, catalog_options, lock_options, locked, named_configs, target_options
from outrider.cli.text import clip, count, visible
from outrider.cli.tools import tell_drifts
from outrider.errors import ConfigError

if TYPE_CHECKING:
    from outrider.catalog.agent import Agent, AgentEvent, Answer
    from outrider.catalog.conversation import CallEvent
    from outrider.catalog.guards import CallRequest
    from outrider.catalog.model import OpenAIModel

__all__ = ["ask"]

T = TypeVar("T")

_MODEL: Final = "OUTRIDER_MODEL"
_BASE_URL: Final = "OPENAI_BASE_URL"
_KEY: Final = "OPENAI_API_KEY"
_STOPPED: Final = {
    "turns": "the limit of turns was reached before the task was done",
    "loop": "the model made the same calls again and again",
    "empty": "the model gave no answer",
    "overflow": "the conversation does not fit into the model's context",
}


@click.command("ask", cls=TargetCommand)
@click.argument("prompt", required=False)
@target_options
@lock_options
@click.option("--model", envvar=_MODEL, metavar="ID", help=f"The model's id at the endpoint. [env: {_MODEL}]")
@click.option(
    "--base-url", envvar=_BASE_URL, metavar="URL", help=f"The endpoint, with its /v1. [env: {_BASE_URL}; OpenAI]"
)
@click.option(
    "--api-key-env",
    metavar="NAME",
    default=_KEY,
    show_default=True,
    help="The environment variable that holds the key.",
)
@click.option(
    "--max-turns", type=click.IntRange(1, 1_000), default=25, show_default=True, help="How often the model is asked."
)
@click.option(
    "--mode",
    type=click.Choice(["auto", "all", "search"]),
    default="auto",
    show_default=True,
    help="Show the model all tools, or only a search for them.",
)
@click.option(
    "--context-tokens",
    type=click.IntRange(min=1_000),
    default=128_000,
    show_default=True,
    help="The model's context, which decides what auto means.",
)
@click.option("--allow", multiple=True, metavar="PATTERN", help="Only these tools, such as 'github/*'. Repeatable.")
@click.option("--deny", multiple=True, metavar="PATTERN", help="Not these tools. Repeatable.")
@click.option("--read-only", is_flag=True, help="Only tools whose server says that they change nothing.")
@click.option("--yes", is_flag=True, help="Make every call without asking.")
@click.option("--no-stream", is_flag=True, help="Ask for whole replies, for endpoints that cannot stream tool calls.")
def ask(
    prompt: str | None,
    model: str | None,
    base_url: str | None,
    api_key_env: str,
    as_json: bool,
    **given: Any,
) -> int:
    """Let a model do what PROMPT says, with the tools of the servers given or of all that are configured.

    Without PROMPT, or with `-`, a conversation begins on a terminal, or the prompt is read from a pipe. Before a call you are asked, unless
    its server says that the tool only reads (a hint, no proof), or --yes is given. The bill stands at the end, on stderr.

    \b
        export OPENAI_API_KEY=…  OUTRIDER_MODEL=…
        outrider ask "which of my issues are overdue?"
        outrider ask "add 2 and 3" --base-url http://localhost:11434/v1 --model qwen3 -- python server.py
    """
    from outrider.catalog.model import ModelFailed, OpenAIModel

    if not model:
        raise ConfigError("no model is named", hint=f"use --model, or set {_MODEL}")
    if as_json and prompt is None and sys.stdin.isatty():
        raise ConfigError("--json answers one prompt, and none is given")
    if prompt == "-" or (prompt is None and not sys.stdin.isatty()):
        prompt = sys.stdin.read()
        if not prompt.strip():
            raise ConfigError("the prompt is empty")
    key = os.environ.get(api_key_env)
    if api_key_env != _KEY and not key:
        raise ConfigError(f"the environment variable {api_key_env} is not set")
    client = OpenAIModel(model, base_url=base_url, api_key=key, stream=not given["no_stream"])
    try:
        return asyncio.run(_interruptible(_work(prompt, client, as_json, given)))
    except ModelFailed as error:
        explain(error)
        return EXIT_SIGN_IN if error.kind == "auth" else EXIT_FAILED


async def _work(prompt: str | None, client: OpenAIModel, as_json: bool, given: dict[str, Any]) -> int:
    from outrider.catalog.agent import Agent, AgentOptions
    from outrider.catalog.catalog import Catalog
    from outrider.catalog.guards import Guards

    configs, _ = named_configs(**given)
    screen = _Screen(silent=as_json)
    guards = Guards(
        allow=given["allow"] or None,
        deny=given["deny"],
        read_only=given["read_only"],
        confirm=None if given["yes"] else _Consent(screen),
        call_timeout_s=given["timeout_s"],
    )
    options = AgentOptions(max_turns=given["max_turns"], mode=given["mode"], context_tokens=given["context_tokens"])
    catalog_of = Catalog(configs, options=catalog_options(**given, may_ask=not as_json), **locked(**given))
    async with client, catalog_of as catalog:
        if given["refresh"]:
            await catalog.refresh()
        agent = Agent(catalog, client, options=options, guards=guards, on_event=screen.show)
        if prompt is None:
            return await _converse(agent, screen)
        answer = await agent.run(prompt)
        _tell_missing(catalog)
        if as_json:
            click.echo(json.dumps(_as_json(answer, agent), ensure_ascii=False, indent=2))
        else:
            screen.end(answer)
        return EXIT_OK if answer.stopped == "answered" else EXIT_FAILED


async def _converse(agent: Agent, screen: _Screen) -> int:
    """Prompt after prompt until the input ends. Ctrl-C ends an answer, and at the prompt the conversation."""
    from outrider.catalog.model import ModelFailed

    click.echo("Ask away; an empty line or Ctrl-D ends.", err=True)
    while True:
        click.secho("\n› ", nl=False, err=True, bold=True)
        line = await _read_line()
        if not line.strip():
            return EXIT_OK
        running = asyncio.current_task()
        assert running is not None
        try:
            screen.end(await agent.run(line.strip()))
        except asyncio.CancelledError:
            running.uncancel()
            screen.line("interrupted", fg="yellow")
        except ModelFailed as error:
            explain(error)


def _as_json(answer: Answer, agent: Agent) -> dict[str, Any]:
    assert agent.conversation is not None
    return {
        "schema": "outrider.ask/1",
        "answer": answer.text,
        "stopped": answer.stopped,
        "turns": answer.turns,
        "mode": agent.conversation.mode,
        "calls": [
            {
                "name": call.name,
                "arguments": dict(call.arguments),
                "state": call.state,
                "seconds": round(call.seconds, 3),
                **({"reason": call.text} if call.state != "done" else {}),
            }
            for call in answer.calls
        ],
        "usage": {"inputTokens": answer.input_tokens, "outputTokens": answer.output_tokens},
        "ledger": answer.ledger.as_json(),
    }


def _tell_missing(catalog: Any) -> None:
    for view in catalog.servers.values():
        if view.failure is not None and view.failure.kind != "disabled":
            click.echo(f"! {visible(view.name)}: {visible(view.failure.message)}", err=True)
    tell_drifts(catalog)


class _Screen:
    """The transcript of an agent: words on stdout as they come, everything else on stderr."""

    def __init__(self, *, silent: bool) -> None:
        self._silent = silent
        self._in_line = False
        self._is_live = sys.stderr.isatty()

    def show(self, event: AgentEvent) -> None:
        """Show one event."""
        match event.kind:
            case "text" if not self._silent:
                click.echo(visible(event.text, one_line=False), nl=False)
                self._in_line = True
            case "call" if event.call is not None:
                self._call(event.call)
            case "retry":
                self.line(f"{event.text}; trying again in {event.seconds:.0f} s", fg="yellow")
            case "notice":
                self.line(event.text, fg="yellow")

    def _call(self, call: CallEvent) -> None:
        arguments = clip(visible(json.dumps(dict(call.arguments), ensure_ascii=False)), 100)
        match call.state:
            case "began":
                if self._is_live:
                    self.line(f"→ {visible(call.name)} {arguments}", fg="cyan")
            case "done":
                told = (
                    f"{visible(call.name)} in {call.seconds:.1f} s"
                    if self._is_live
                    else f"{visible(call.name)} {arguments}"
                )
                self.line(f"✓ {told}", fg="green")
            case _:
                self.line(f"✗ {visible(call.name)} {arguments}: {clip(visible(call.text), 200)}", fg="red")

    def line(self, text: str, **style: Any) -> None:
        """A line of its own on stderr, whatever stands before it."""
        if self._in_line:
            click.echo()
            self._in_line = False
        click.secho(visible(text), err=True, **style)

    def end(self, answer: Answer) -> None:
        """The end of the words, why there is no answer if there is none, and the bill."""
        if self._in_line:
            click.echo()
            self._in_line = False
        if answer.stopped != "answered":
            self.line(_STOPPED[answer.stopped], fg="red")
        counted = f"; {answer.input_tokens:,} tokens in, {answer.output_tokens:,} out" if answer.input_tokens else ""
        click.secho(f"{count(answer.turns, 'turn')}, {answer.ledger}{counted}", err=True, dim=True)


class _Consent:
    """Asks on the terminal before a call, once for each tool if the user wants that."""

    def __init__(self, screen: _Screen) -> None:
        self._screen = screen
        self._always: set[str] = set()

    async def __call__(self, request: CallRequest) -> bool:
        """Whether the call may be made."""
        if request.tool.annotations.get("readOnlyHint") is True or request.name in self._always:
            return True
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            self._screen.line(
                f"{request.name} was not called: nobody is here to agree to it; --yes agrees to every call", fg="yellow"
            )
            return False
        self._screen.line(f"Call {request.name}?", bold=True)
        self._screen.line(f"  {json.dumps(dict(request.arguments), ensure_ascii=False)}")
        if request.hints:
            self._screen.line(f"  {request.hints}", dim=True)
        while True:
            click.secho("  yes, no, or always for this tool [y/n/a]: ", nl=False, err=True)
            match (await _read_line()).strip().lower():
                case "y" | "yes":
                    return True
                case "a" | "always":
                    self._always.add(request.name)
                    return True
                case "n" | "no" | "":
                    return False


async def _read_line() -> str:
    """A line that a person types, "" at the end of the input. Waiting for it stops nothing else, and can be cancelled."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    try:
        loop.add_reader(sys.stdin.fileno(), _wake, ready)
    except (NotImplementedError, PermissionError):
        # Not on Windows, and not for plain files; there a thread reads.
        return await asyncio.to_thread(sys.stdin.readline)
    try:
        # A terminal hands out whole lines.
        await ready
    finally:
        loop.remove_reader(sys.stdin.fileno())
    return sys.stdin.readline()


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


async def _interruptible(work: Coroutine[Any, Any, T]) -> T:
    """`work`, cancelled by each Ctrl-C. A prompt in the middle of it then ends like everything else, and processes are ended in order."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    interrupt: Callable[[], object] = task.cancel
    try:
        loop.add_signal_handler(signal.SIGINT, interrupt)
    except NotImplementedError:
        return await task
    try:
        return await task
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        loop.remove_signal_handler(signal.SIGINT)
