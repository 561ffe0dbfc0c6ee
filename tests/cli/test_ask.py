"""`outrider ask` as its users meet it: a process, a scripted model, scripted servers, pipes and terminals."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fakes.model import HANG, FakeModel, MakeModel, call, fail, say
from fakes.running import Fake, FakeStdio
from fakes.scripts import Script, gate, modern, on, tool

DEADLINE_S = 60.0
COMMAND = (sys.executable, "-c", "from outrider.cli import main; main()")
READING = tool("look", description="Looks something up.", annotations={"readOnlyHint": True})
WRITING = tool("write", description="Writes something.")


@pytest.fixture
def surroundings(tmp_path: Path) -> dict[str, str]:
    """An environment in which nothing is configured or remembered, and no model is named."""
    homes = {name: str(tmp_path) for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "OUTRIDER_"))}
    return {**kept, **homes, "COLUMNS": "200"}


class Ran:
    """What a finished command left."""

    def __init__(self, code: int, output: str, errors: str) -> None:
        self.code, self.output, self.errors = code, output, errors

    @property
    def json(self) -> Any:
        return json.loads(self.output)


Ask = Callable[..., Ran]


@pytest.fixture
def ask(surroundings: Mapping[str, str], tmp_path: Path) -> Ask:
    """Runs `outrider ask` with pipes."""

    def run(*arguments: str, model: FakeModel | None = None, text: str = "", **env: str) -> Ran:
        named = {"OPENAI_BASE_URL": model.url, "OUTRIDER_MODEL": "scripted"} if model else {}
        done = subprocess.run(
            [*COMMAND, "ask", *arguments],
            input=text.encode(),
            capture_output=True,
            env={**surroundings, **named, **env},
            cwd=tmp_path,
            timeout=DEADLINE_S,
            check=False,
        )
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


class Terminal:
    """A command that runs on a terminal of its own."""

    def __init__(self, arguments: list[str], env: Mapping[str, str], cwd: Path) -> None:
        self._descriptor, inner = pty.openpty()
        self.process = subprocess.Popen(
            [*COMMAND, *arguments], stdin=inner, stdout=inner, stderr=inner, env=env, cwd=cwd, start_new_session=True
        )
        os.close(inner)
        self.shown = ""

    def wait_for(self, text: str) -> None:
        """Waits until a text is shown that was not waited for before."""
        end = time.monotonic() + DEADLINE_S
        while text not in self.shown:
            assert select.select([self._descriptor], [], [], max(0.0, end - time.monotonic()))[0], self.shown
            try:
                data = os.read(self._descriptor, 65_536)
            except OSError:
                data = b""
            assert data, f"it has ended without {text!r}: {self.shown}"
            self.shown += data.decode(errors="replace")
        self.shown = self.shown.partition(text)[2]

    def type(self, text: str) -> None:
        """Types something."""
        os.write(self._descriptor, text.encode())

    def interrupt(self) -> None:
        """Presses Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def end(self) -> int:
        """Waits for the end; the exit code."""
        try:
            while os.read(self._descriptor, 65_536):
                pass
        except OSError:
            pass
        return self.process.wait(DEADLINE_S)

    def close(self) -> None:
        """Ends it, if it has not ended."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._descriptor)


OnTerminal = Callable[..., Terminal]


@pytest.fixture
def on_terminal(surroundings: Mapping[str, str], tmp_path: Path) -> Iterator[OnTerminal]:
    """Starts `outrider ask` on a terminal."""
    with ExitStack() as stack:

        def start(*arguments: str, model: FakeModel) -> Terminal:
            env = {**surroundings, "OPENAI_BASE_URL": model.url, "OUTRIDER_MODEL": "scripted", "TERM": "xterm"}
            terminal = Terminal(["ask", *arguments], env, tmp_path)
            stack.callback(terminal.close)
            return terminal

        yield start


def target(fake: Fake) -> list[str]:
    return ["--", *fake.command]


class TestPipes:
    def test_the_answer_is_on_stdout_and_the_rest_on_stderr(
        self, ask: Ask, fake_stdio: FakeStdio, fake_model: MakeModel
    ) -> None:
        """Ours: an answer can be piped on; calls and the bill are for people."""
        fake = fake_stdio(Script(*modern(tools=[READING])))
        model = fake_model(call(("look", {"q": "x"})), say("It is 42."))
        ran = ask("What is it?", *target(fake), model=model)
        assert (ran.code, ran.output) == (0, "It is 42.\n"), ran.errors
        assert "✓ " in ran.errors
        assert '/look {"q": "x"}' in ran.errors
        assert "2 turns, 1 call," in ran.errors
        assert "tokens of definitions" in ran.errors
        fake.assert_nothing_runs()

    def test_json_is_one_object_and_nothing_else(self, ask: Ask, fake_stdio: FakeStdio, fake_model: MakeModel) -> None:
        """Ours: answer, why it ended, every call, usage, ledger."""
        fake = fake_stdio(Script(*modern(tools=[READING])))
        model = fake_model(call(("look", {"q": "x"}), ("nowhere", {})), say("It is 42."))
        ran = ask("What is it?", "--json", *target(fake), model=model)
        value = ran.json
        assert ran.code == 0
        assert value["schema"] == "outrider.ask/1"
        assert (value["answer"], value["stopped"], value["turns"], value["mode"]) == ("It is 42.", "answered", 2, "all")
        assert sorted(one["state"] for one in value["calls"]) == ["done", "refused"]
        assert value["ledger"]["calls"] == 1
        assert value["usage"]["inputTokens"] > 0

    def test_without_anyone_to_agree_only_reading_tools_are_called(
        self, ask: Ask, fake_stdio: FakeStdio, fake_model: MakeModel
    ) -> None:
        """Ours: a tool whose server does not hint that it only reads needs consent; --yes gives it."""
        fake = fake_stdio(Script(*modern(tools=[READING, WRITING])))
        turns = (call(("look", {}), ("write", {})), say("Done."))
        ran = ask("Write", *target(fake), model=fake_model(*turns))
        assert "nobody is here to agree" in ran.errors
        assert [one["params"]["name"] for one in fake.messages("tools/call")] == ["look"]
        ran = ask("Write", "--yes", *target(fake), model=fake_model(*turns))
        assert ran.code == 0
        assert sorted(one["params"]["name"] for one in fake.messages("tools/call")) == ["look", "look", "write"]

    def test_tools_can_be_closed(self, ask: Ask, fake_stdio: FakeStdio, fake_model: MakeModel) -> None:
        """Ours: --deny, --allow and --read-only decide what the model sees."""
        fake = fake_stdio(Script(*modern(tools=[READING, WRITING])))
        for option in (["--read-only"], ["--deny", "*/write"], ["--allow", "*/look"]):
            model = fake_model(say("Well."))
            ask("Go", *option, *target(fake), model=model)
            (one,) = model.requests[0]["tools"]
            assert one["function"]["name"].endswith("look")

    def test_the_prompt_can_come_from_a_pipe(self, ask: Ask, fake_stdio: FakeStdio, fake_model: MakeModel) -> None:
        """Ours: with `-` or with nothing."""
        fake = fake_stdio(Script(*modern()))
        for arguments in (["-"], []):
            model = fake_model(say("Read."))
            assert ask(*arguments, *target(fake), model=model, text="A long prompt\n").output == "Read.\n"
            assert model.requests[0]["messages"][-1]["content"] == "A long prompt\n"
        assert ask("-", *target(fake), model=fake_model(), text=" \n").code == 2

    def test_model_endpoint_and_key_come_from_options_too(
        self, ask: Ask, fake_stdio: FakeStdio, fake_model: MakeModel
    ) -> None:
        """Ours: options win over the environment, and the key is named by its variable, never given."""
        fake = fake_stdio(Script(*modern()))
        model = fake_model(say("Yes."), key="sk-my-key")
        options = ["--model", "other", "--base-url", model.url, "--api-key-env", "MY_KEY"]
        ran = ask("Go", *options, *target(fake), MY_KEY="sk-my-key", OUTRIDER_MODEL="unused", OPENAI_API_KEY="unused")
        assert ran.output == "Yes.\n", ran.errors
        assert model.requests[0]["model"] == "other"

    @pytest.mark.parametrize(
        ("arguments", "env", "says"),
        [
            ([], {}, "no model is named"),
            (["--model", "m"], {}, "no key for OpenAI"),
            (["--model", "m", "--api-key-env", "MISSING"], {}, "MISSING is not set"),
        ],
    )
    def test_what_is_missing_is_said_before_anything_starts(
        self, ask: Ask, fake_stdio: FakeStdio, arguments: list[str], env: dict[str, str], says: str
    ) -> None:
        """Ours: exit code 2, what to do, and no process."""
        fake = fake_stdio(Script(*modern()))
        ran = ask("Go", *arguments, *target(fake), **env)
        assert ran.code == 2
        assert says in ran.errors
        assert fake.spawns == 0

    @pytest.mark.parametrize(("failure", "code"), [(fail(401), 4), (fail(404, "no such model"), 1)])
    def test_a_model_that_cannot_be_asked_is_explained(
        self, ask: Ask, fake_stdio: FakeStdio, fake_model: MakeModel, failure: Any, code: int
    ) -> None:
        """Ours: one message, a hint, no traceback, no secret."""
        fake = fake_stdio(Script(*modern()))
        ran = ask("Go", *target(fake), model=fake_model(failure), OPENAI_API_KEY="sk-very-secret")
        assert ran.code == code
        assert "Error: " in ran.errors
        assert "→ " in ran.errors
        assert "Traceback" not in ran.errors
        assert "secret" not in ran.errors

    def test_no_answer_is_said_and_fails(self, ask: Ask, fake_stdio: FakeStdio, fake_model: MakeModel) -> None:
        """Ours: exit code 1 at the limit of turns."""
        fake = fake_stdio(Script(*modern(tools=[READING])))
        model = fake_model(*[call(("look", {"n": number})) for number in range(5)])
        ran = ask("Go", "--max-turns", "2", *target(fake), model=model)
        assert ran.code == 1
        assert "limit of turns" in ran.errors

    def test_what_a_model_or_a_tool_writes_cannot_repaint_the_terminal(
        self, ask: Ask, fake_stdio: FakeStdio, fake_model: MakeModel
    ) -> None:
        """Case 70: controls become visible."""
        fake = fake_stdio(Script(*modern(tools=[READING])))
        model = fake_model(call(("look", {"x": "\x1b[2J\u202e"})), say("\x1b]0;evil\x07Hello\u200b"))
        ran = ask("Go", *target(fake), model=model)
        assert "\x1b" not in ran.output + ran.errors
        assert "\u202e" not in ran.errors
        assert "Hello" in ran.output


class TestTerminal:
    def test_a_call_is_asked_about(self, on_terminal: OnTerminal, fake_stdio: FakeStdio, fake_model: MakeModel) -> None:
        """Ours: no, yes, and always for this tool; with the arguments."""
        fake = fake_stdio(Script(*modern(tools=[READING, WRITING])))
        turns = [call(("write", {"n": number})) for number in range(4)]
        terminal = on_terminal("Write", *target(fake), model=fake_model(*turns, say("All written.")))
        for answer in ("n", "what?", "y", "a"):
            terminal.wait_for("[y/n/a]: ")
            terminal.type(f"{answer}\n")
        terminal.wait_for("All written.")
        assert terminal.end() == 0
        assert [one["params"]["arguments"]["n"] for one in fake.messages("tools/call")] == [1, 2, 3]
        fake.assert_nothing_runs()

    def test_a_conversation_goes_on_until_an_empty_line(
        self, on_terminal: OnTerminal, fake_stdio: FakeStdio, fake_model: MakeModel
    ) -> None:
        """Ours: without a prompt; the model sees what was said before."""
        fake = fake_stdio(Script(*modern(tools=[READING])))
        model = fake_model(call(("look", {})), say("First answer."), fail(400, "odd"), say("Third answer."))
        terminal = on_terminal(*target(fake), model=model)
        for prompt, shown in (("one", "First answer."), ("two", "odd"), ("three", "Third answer.")):
            terminal.wait_for("› ")
            terminal.type(f"{prompt}\n")
            terminal.wait_for(shown)
        terminal.wait_for("› ")
        terminal.type("\n")
        assert terminal.end() == 0
        said = [message["content"] for message in model.requests[-1]["messages"] if message["role"] == "user"]
        assert said == ["one", "two", "three"]

    @pytest.mark.parametrize("where", ["model", "tool", "question"])
    def test_ctrl_c_ends_everything_in_order(
        self, on_terminal: OnTerminal, fake_stdio: FakeStdio, fake_model: MakeModel, where: str
    ) -> None:
        """Ours: exit code 130 and no process left, whether a model, a tool or a person is being waited for."""
        fake = fake_stdio(Script(on("tools/call", gate("never")), *modern(tools=[READING, WRITING])))
        first = {"model": HANG, "tool": call(("look", {})), "question": call(("write", {}))}[where]
        terminal = on_terminal("Go", *target(fake), model=fake_model(first, say("Never.")))
        terminal.wait_for({"model": "Let me see", "tool": "→ ", "question": "[y/n/a]: "}[where])
        if where == "tool":
            asyncio.run(fake.wait_for("received", "tools/call"))
        terminal.interrupt()
        assert terminal.end() == 130
        fake.open_gate("never")
        fake.assert_nothing_runs()

    def test_ctrl_c_in_a_conversation_ends_the_answer_only(
        self, on_terminal: OnTerminal, fake_stdio: FakeStdio, fake_model: MakeModel
    ) -> None:
        """Ours: the next prompt goes on; Ctrl-C there ends."""
        fake = fake_stdio(Script(*modern(tools=[READING])))
        terminal = on_terminal(*target(fake), model=fake_model(HANG, say("Here again.")))
        terminal.wait_for("› ")
        terminal.type("one\n")
        terminal.wait_for("Let me see")
        terminal.interrupt()
        terminal.wait_for("interrupted")
        terminal.wait_for("› ")
        terminal.type("two\n")
        terminal.wait_for("Here again.")
        terminal.wait_for("› ")
        terminal.interrupt()
        assert terminal.end() == 130
        fake.assert_nothing_runs()
