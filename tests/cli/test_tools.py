"""`outrider tools`, `search`, `show` and `call` as a user meets them."""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

import pytest

from cli.user import DEADLINE_S, User, entry, sample
from fakes.running import Fake, FakeStdio
from fakes.scripts import LINGER, Script, complete, exit_with, modern, notify, on, result, tool

IMAGE = base64.b64encode(b"\x89PNG\r\n\x1a\n....").decode()
TYPED = tool(
    "book",
    description="Book a table in a restaurant.",
    inputSchema={
        "type": "object",
        "properties": {
            "people": {"type": "integer", "description": "How many"},
            "outside": {"type": "boolean", "default": False},
            "name": {"type": "string"},
            "wishes": {"type": "array", "items": {"type": "string"}},
            "where": {"type": "object", "properties": {"city": {"type": "string"}}},
            "kind": {"enum": ["lunch", "dinner"]},
        },
        "required": ["people"],
        "additionalProperties": False,
    },
)


def called(**members: Any) -> dict[str, Any]:
    return {"resultType": "complete", "content": [], **members}


def sent(fake: Fake) -> list[Any]:
    """The arguments of each call that arrived."""
    return [message["params"].get("arguments") for message in fake.messages("tools/call")]


@pytest.fixture
def booking(user: User, fake_stdio: FakeStdio) -> Fake:
    """A configured server with one tool of many types."""
    fake = fake_stdio(Script(*modern(tools=[TYPED])))
    user.configure({"tables": entry(fake.command)})
    return fake


class TestTools:
    def test_tools_are_grouped_by_server_with_their_cost(self, user: User) -> None:
        """Ours: each server, each tool with its tokens, the sum; aligned, within 80 columns."""
        user.configure({"weather": sample("modern"), "notes": sample("legacy")})
        done = user.run("tools")
        assert done.code == 0
        lines = done.out.splitlines()
        assert lines[0].startswith("notes  (2 tools, about ")
        assert [line.split()[0] for line in lines if line.startswith("  ")] == [
            "add_note",
            "read_note",
            "forecast",
            "tides",
        ]
        assert lines[-1].startswith("4 tools of 2 servers, about ")
        assert all(line == line.rstrip() and len(line) <= 80 for line in lines)

    def test_a_tool_that_is_left_out_is_named(self, user: User, fake_stdio: FakeStdio) -> None:
        """Case 30: on stderr, a few for each server; all of them in JSON; the others are listed."""
        bad = [tool(f"bad{number}", inputSchema=None) for number in range(5)]
        user.configure({"a": entry(fake_stdio(Script(*modern(tools=[TYPED, *bad]))).command)})
        done = user.run("tools")
        assert (done.code, "book" in done.out, "bad" in done.out) == (0, True, False)
        assert "! a: tools: 'bad0' left out: inputSchema # is null, not a JSON Schema object" in done.err.splitlines()
        assert done.err.splitlines()[-1] == "! a: 2 more warnings; `outrider discover a` has them"
        assert len(user.run("tools", "--json").json["servers"][0]["warnings"]) == 5

    def test_one_is_not_many(self, user: User, booking: Fake) -> None:
        """Ours: singular and plural."""
        lines = user.run("tools").out.splitlines()
        assert lines[0].startswith("tables  (1 tool, about ")
        assert lines[-1].startswith("1 tool of 1 server, about ")

    def test_json_has_tools_as_they_came_and_every_server(self, user: User, booking: Fake) -> None:
        """Ours: `outrider.tools/1`; a failed server is in it, and the exit code is 1."""
        user.configure({"tables": entry(booking.command), "broken": sample("broken")})
        done = user.run("tools", "--json")
        assert done.code == 1
        assert done.json["schema"] == "outrider.tools/1"
        assert [(one["name"], one["server"], one["tool"]) for one in done.json["tools"]] == [
            ("tables/book", "tables", TYPED)
        ]
        states = {one["key"]: (one["state"], one["failure"] and one["failure"]["kind"]) for one in done.json["servers"]}
        assert states == {"broken": ("failed", "ended"), "tables": ("ready", None)}

    def test_offline_shows_what_is_remembered_and_waits_for_nobody(self, user: User, booking: Fake) -> None:
        """Ours: a server that was never asked is a failure, told at once."""
        user.run("tools")
        user.configure({"tables": entry(booking.command), "new": entry(["outrider-test-never-started"])})
        done = user.run("tools", "--offline")
        assert done.code == 1
        assert "tables  (1 tool" in done.out
        assert "! new: outrider-test-never-started was not asked" in done.err
        assert booking.spawns == 1

    def test_a_server_that_does_not_answer_in_time_is_named(self, user: User, fake_stdio: FakeStdio) -> None:
        """Ours: what is there is shown; exit code 1."""
        slow = fake_stdio(Script(start=[LINGER]))
        user.configure({"weather": sample("modern"), "slow": entry(slow.command)})
        user.run("discover", "weather")
        done = user.run("tools", "--timeout", "1")
        assert done.code == 1
        assert "forecast" in done.out
        assert "! slow" in done.err


class TestSearch:
    def test_hits_come_with_score_and_reason(self, user: User) -> None:
        """Ours: best first, exit code 0; the same as JSON."""
        user.configure({"weather": sample("modern"), "notes": sample("legacy")})
        done = user.run("search", "read a note")
        assert done.code == 0
        first = done.out.splitlines()[0].split()
        assert first[1] == "notes/read_note"
        assert 0 < float(first[0]) <= 1
        shown = user.run("search", "read a note", "--json", "-n", "1").json
        assert shown["schema"] == "outrider.search/1"
        assert [hit["name"] for hit in shown["hits"]] == ["notes/read_note"]
        assert shown["hits"][0]["why"]
        assert shown["nothingFits"] is False

    def test_a_typing_error_is_repaired(self, user: User) -> None:
        """Ours."""
        user.configure({"weather": sample("modern"), "notes": sample("legacy")})
        assert "weather/forecast" in user.run("search", "forcast").out

    def test_nothing_fits_is_an_answer(self, user: User) -> None:
        """Ours: said in words, in JSON and in the exit code."""
        user.configure({"weather": sample("modern"), "notes": sample("legacy")})
        done = user.run("search", "xylophone quartet")
        assert done.code == 1
        assert done.out.startswith("Nothing fits.\n")
        shown = user.run("search", "xylophone quartet", "--json")
        assert (shown.code, shown.json["hits"], shown.json["nothingFits"]) == (1, [], True)

    def test_a_server_that_is_missing_is_said(self, user: User) -> None:
        """Case 60: "nothing fits" is never the whole answer when a server could not be asked."""
        user.configure({"weather": sample("modern"), "broken": sample("broken")})
        done = user.run("search", "xylophone")
        assert "! broken: the server's process exited with code 1" in done.err
        assert user.run("search", "xylophone", "--json").json["failed"] == ["broken"]
        assert user.run("search", "xylophone", "broken").out == "There are no tools.\n"

    def test_how_many_is_checked(self, user: User) -> None:
        """Ours: exit code 2."""
        assert user.run("search", "x", "-n", "0").code == 2


IMPATIENT = (
    "import sys\nfrom outrider.cli import main, tools\n"
    "tools._USUAL_WAIT_S, tools._LONGEST_WAIT_S = 0.5, 1e6\n"
    "main(sys.argv[1:])\n"
)


@pytest.mark.parametrize("command", [("search", "book"), ("show", "book"), ("call", "book", "people=1")], ids=" ".join)
def test_a_server_that_never_answers_keeps_nobody_from_what_the_others_have(
    user: User, booking: Fake, fake_stdio: FakeStdio, command: tuple[str, ...]
) -> None:
    """Case 23, case 60: it is waited for only where nothing was found without it, and is named."""
    silent = fake_stdio(Script(start=[LINGER]))
    user.configure({"tables": entry(booking.command), "silent": entry(silent.command)})
    process = user.start([sys.executable, "-c", IMPATIENT, *command])
    out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, "book" in out) == (0, True), err
    assert ("! silent has not answered yet" in err) is (command[0] == "search")
    silent.assert_nothing_runs()


class TestShow:
    def test_arguments_are_told_readably(self, user: User, booking: Fake) -> None:
        """Ours: type, need, default, choices and nested members; the raw schema as JSON."""
        done = user.run("show", "book")
        assert done.code == 0
        told = [" ".join(line.split()) for line in done.out.splitlines()]
        assert told[0] == "tables/book"
        for line in (
            "people integer, required",
            "How many",
            "outside boolean, optional, default false",
            "wishes list of string, optional",
            "where object, optional",
            "city string, optional",
            "kind one of lunch, dinner, optional",
        ):
            assert line in told
        shown = user.run("show", "tables/book", "--json").json
        assert (shown["schema"], shown["name"], shown["tool"]) == ("outrider.tool/1", "tables/book", TYPED)

    def test_a_name_of_two_servers_is_told_apart(self, user: User, fake_stdio: FakeStdio) -> None:
        """Ours: the full names are offered."""
        user.configure({name: entry(fake_stdio(Script(*modern())).command) for name in ("a", "b")})
        done = user.run("show", "add")
        assert done.code == 1
        assert "use one of a/add, b/add" in done.err

    def test_a_tool_that_may_be_there_all_the_same_is_not_just_unknown(self, user: User) -> None:
        """Case 120: which servers could not be asked, and why the one that was named could not."""
        user.configure({"gone": {"command": "/no/such"}, "off": {"command": "x", "disabled": True}})
        assert "the server gone could not be asked: '/no/such' does not exist" in user.run("show", "gone/x").err
        assert 'the server off is not used: switched off by "disabled"' in user.run("call", "off/x").err
        assert "there is no tool 'x'; gone could not be asked" in user.run("show", "x").err

    @pytest.mark.parametrize(("name", "near"), [("bok", "tables/book"), ("tables/boook", "tables/book")])
    def test_an_unknown_name_is_answered_with_near_ones(self, user: User, booking: Fake, name: str, near: str) -> None:
        """Ours."""
        done = user.run("show", name)
        assert (done.code, done.out) == (1, "")
        assert f"did you mean {near}?" in done.err


class TestCall:
    def test_values_are_read_as_the_schema_wants_them(self, user: User, booking: Fake) -> None:
        """Ours: KEY=VALUE by type, KEY:=JSON as it is, --args for all of it; later ones win."""
        done = user.run(
            "call", "book", "people=4", "outside=true", "name=42", 'wishes:=["quiet"]', 'where={"city":"Rome"}'
        )
        assert (done.code, done.out) == (0, "called book\n"), done
        assert user.run("call", "tables/book", "--args", '{"people": 1, "name": "x=y"}', "people=2").code == 0
        assert sent(booking) == [
            {"people": 4, "outside": True, "name": "42", "wishes": ["quiet"], "where": {"city": "Rome"}},
            {"people": 2, "name": "x=y"},
        ]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((), "people"),
            (("people=many",), "people"),
            (("people=1", "colour=red"), "colour"),
            (("peeple=1",), "did you mean people by peeple?"),
            (("people=1", "people=2"), "people is given twice"),
            (("people",), "not of the form KEY=VALUE or KEY:=JSON"),
            (("people:={",), "the value of people is not JSON"),
            (("--args", "[1]"), "--arguments is not a JSON object"),
        ],
    )
    def test_bad_arguments_are_refused_before_anything_is_sent(
        self, user: User, booking: Fake, arguments: tuple[str, ...], message: str
    ) -> None:
        """Ours: exit code 2, and which one is wrong."""
        done = user.run("call", "book", *arguments)
        assert (done.code, done.out) == (2, "")
        assert message in done.err
        assert not sent(booking)

    def test_no_check_sends_them_anyway(self, user: User, booking: Fake) -> None:
        """Ours."""
        assert user.run("call", "book", "people=many", "--no-check").code == 0
        assert sent(booking) == [{"people": "many"}]

    def test_an_error_of_the_tool_is_the_exit_code(self, user: User, fake_stdio: FakeStdio) -> None:
        """Ours: 1, said on stderr; the text is still on stdout."""
        failed = called(content=[{"type": "text", "text": "no table left"}], isError=True)
        user.configure({"a": entry(fake_stdio(Script(on("tools/call", result(failed)), *modern())).command)})
        done = user.run("call", "a/add")
        assert (done.code, done.out) == (1, "no table left\n")
        assert "The tool reports an error:" in done.err

    def test_files_are_saved_on_request_under_names_of_ours(self, user: User, fake_stdio: FakeStdio) -> None:
        """Ours: a server chooses neither where a file goes nor what it is called."""
        content = [
            {"type": "image", "mimeType": "image/png", "data": IMAGE},
            {"type": "resource", "resource": {"uri": "file:///../../etc/x", "blob": IMAGE, "mimeType": "../../evil"}},
            {"type": "audio", "mimeType": "audio/wav", "data": "not base64!"},
            {"type": "resource_link", "uri": "note://1", "name": "one"},
        ]
        fake = fake_stdio(Script(on("tools/call", result(called(content=content))), *modern()))
        user.configure({"a": entry(fake.command)})
        told = user.run("call", "a/add").out.splitlines()
        assert told[0] == "[image, image/png, 12 bytes; --save DIR writes it to a file]"
        assert told[2] == "[audio, audio/wav: not valid base64]"
        assert told[3] == "[resource_link note://1]"
        saved = user.run("call", "a/add", "--save", "out")
        assert "saved as out/result-1.png" in saved.out
        files = {path.name: path.read_bytes() for path in (user.project / "out").iterdir()}
        assert files == {"result-1.png": base64.b64decode(IMAGE), "result-2.bin": base64.b64decode(IMAGE)}

    def test_saving_touches_no_file_that_is_there_and_goes_with_json(self, user: User, fake_stdio: FakeStdio) -> None:
        """Ours: the second result lies beside the first; under --json stdout is the result alone."""
        content = [{"type": "audio", "mimeType": "audio/wav", "data": IMAGE}]
        fake = fake_stdio(Script(on("tools/call", result(called(content=content))), *modern()))
        user.configure({"a": entry(fake.command)})
        (user.project / "out").mkdir()
        (user.project / "out" / "result-1.wav").write_text("mine")
        done = user.run("call", "a/add", "--save", "out", "--json")
        assert done.json["result"]["content"] == content
        assert done.err == "saved as out/result-1-2.wav\n"
        assert (user.project / "out" / "result-1.wav").read_text() == "mine"
        assert (user.project / "out" / "result-1-2.wav").read_bytes() == base64.b64decode(IMAGE)

    def test_a_folder_that_cannot_be_used_is_said_and_what_the_tool_said_is_shown(
        self, user: User, fake_stdio: FakeStdio
    ) -> None:
        """Ours: nothing is called if the folder is a file; if writing fails later, the result is not lost."""
        content = [{"type": "text", "text": "here it is"}, {"type": "image", "mimeType": "image/png", "data": IMAGE}]
        fake = fake_stdio(Script(on("tools/call", result(called(content=content))), *modern()))
        user.configure({"a": entry(fake.command)})
        (user.project / "taken").touch()
        done = user.run("call", "a/add", "--save", "taken")
        assert (done.code, done.out, sent(fake)) == (2, "", [])
        assert "--save taken is not a folder" in done.err
        done = user.run("call", "a/add", "--save", "taken/below")
        assert (done.code, done.out.splitlines()[0]) == (1, "here it is")
        assert "could not be saved in taken/below: not a directory" in done.err

    def test_structured_results_are_shown_when_there_is_no_text(self, user: User, fake_stdio: FakeStdio) -> None:
        """Ours: and everything as it came under --json."""
        structured = called(structuredContent={"free": [1, 2]}, content=[{"type": "text", "text": "\n"}])
        user.configure({"a": entry(fake_stdio(Script(on("tools/call", result(structured)), *modern())).command)})
        assert json.loads(user.run("call", "a/add").out) == {"free": [1, 2]}
        shown = user.run("call", "a/add", "--json").json
        assert (shown["schema"], shown["tool"]) == ("outrider.result/1", "a/add")
        assert shown["result"]["structuredContent"] == {"free": [1, 2]}

    def test_progress_disturbs_no_output(self, user: User, fake_stdio: FakeStdio) -> None:
        """Ours: it belongs on a terminal's stderr only."""
        steps = [notify("notifications/progress", progressToken="$token", progress=n, total=3) for n in (1, 2, 3)]
        fake = fake_stdio(Script(on("tools/call", *steps, result(called())), *modern()))
        user.configure({"a": entry(fake.command)})
        done = user.run("call", "a/add", "--json")
        assert (done.code, done.err) == (0, "")
        assert done.json["result"]["content"] == []

    def test_a_server_that_dies_in_a_call_is_a_failure_and_not_called_again(
        self, user: User, fake_stdio: FakeStdio
    ) -> None:
        """Ours: a call is never repeated behind the user's back."""
        fake = fake_stdio(Script(on("tools/call", exit_with(7)), *modern()))
        user.configure({"a": entry(fake.command)})
        done = user.run("call", "a/add")
        assert (done.code, done.out) == (1, "")
        assert "7" in done.err
        assert len(sent(fake)) == 1

    def test_only_the_server_that_is_meant_is_waited_for(self, user: User, fake_stdio: FakeStdio) -> None:
        """Ours: one silent server costs a call of another nothing, and is ended with it."""
        silent = fake_stdio(Script(start=[LINGER]))
        fake = fake_stdio(Script(on("tools/list", result(complete(tools=[TYPED]))), *modern()))
        user.configure({"tables": entry(fake.command), "silent": entry(silent.command)})
        done = user.run("call", "tables/book", "people=1")
        assert (done.code, done.out) == (0, "called book\n")
        silent.assert_nothing_runs()
