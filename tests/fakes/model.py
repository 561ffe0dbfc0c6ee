"""A scripted model: a program that speaks the OpenAI Chat Completions API over HTTP, and what runs it.

A script is a list of turns; each request takes the next one. Turns are made with `say`, `call`, `fail` … below. Before that, every
request is judged by the rules of the API (roles, every call answered at once and in place, names, no empty content); one that breaks
them gets 400, as the real thing would give it.

As a program it uses the standard library only: ``python -I -S model.py SCRIPT.json``. It writes what happens to its standard output,
one JSON object a line.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

try:
    import pytest
except ImportError:  # As a program it needs none.
    pytest = None  # type: ignore[assignment]

Turn = dict[str, Any]
DEADLINE_S = 30.0

# --- turns ------------------------------------------------------------------------------------------------------------------------------


def say(text: str, **options: Any) -> Turn:
    """Answers with words. Options for all turns: ``finish``, ``drop`` (ends the connection after so many events), ``hang``."""
    return {"text": text, **options}


def call(*calls: tuple[str, Any], text: str = "", **options: Any) -> Turn:
    """Calls tools: each a name and its arguments, an object or the text to send for them.

    Options: ``index=0`` numbers every call 0, ``index=None`` none; ``ids=False`` gives no ids; ``whole=True`` sends each call in one event.
    """
    return {"text": text, "calls": [list(one) for one in calls], **options}


def fail(status: int, message: str = "no", *, code: str | None = None, headers: dict[str, str] | None = None) -> Turn:
    """Answers with an HTTP error."""
    return {"status": status, "error": {"message": message, "code": code, "type": "error"}, "headers": headers or {}}


def broken(message: str) -> Turn:
    """Begins a stream and puts an error into it."""
    return {"text": "Let me ", "error_event": {"message": message}}


HANG: Turn = {"text": "Let me see", "hang": True}
"""Begins an answer and never ends it."""
RESET: Turn = {"reset": True}
"""Resets the connection without an answer."""

OVERFLOW = "This model's maximum context length is 4096 tokens. However, your messages resulted in more."

# --- running it ---------------------------------------------------------------------------------------------------------------------------


class FakeModel:
    """A scripted model in a process of its own.

    Attributes:
        url: the base URL for clients.
    """

    def __init__(self, turns: Sequence[Turn], **server: Any) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="outrider-model-")
        script = Path(self._directory.name) / "script.json"
        script.write_text(json.dumps({"turns": list(turns), **server}), encoding="utf-8")
        command = [sys.executable, "-I", "-S", str(Path(__file__).resolve()), str(script)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._records: list[dict[str, Any]] = []
        self._marks = 0
        self._marks_seen = 0
        self._closed = False
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        port = self.wait_for("listening")[0]["port"]
        self.url = f"http://127.0.0.1:{port}/v1"

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            record = json.loads(line)
            with self._changed:
                if record["kind"] == "mark":
                    self._marks_seen += 1
                else:
                    self._records.append(record)
                self._changed.notify_all()

    def _everything(self) -> list[dict[str, Any]]:
        """All that happened before this call: the program says what it has told once it has read the mark."""
        with self._changed:
            if not self._closed:
                self._marks += 1
                wanted = self._marks
                assert self._process.stdin is not None
                self._process.stdin.write(b"mark\n")
                self._process.stdin.flush()
                assert self._changed.wait_for(lambda: self._marks_seen >= wanted, DEADLINE_S), "the log is not read"
            return list(self._records)

    def wait_for(self, kind: str, count: int = 1) -> list[dict[str, Any]]:
        """Waits until so many things of a kind have happened: ``listening``, ``request``, ``refused``, ``gone``."""

        def found() -> list[dict[str, Any]]:
            return [record for record in self._records if record["kind"] == kind]

        with self._changed:
            assert self._changed.wait_for(lambda: len(found()) >= count, DEADLINE_S), f"in vain: {self._records}"
            return found()

    @property
    def requests(self) -> list[dict[str, Any]]:
        """The bodies of all requests so far."""
        return [record["body"] for record in self._everything() if record["kind"] == "request"]

    @property
    def refusals(self) -> list[str]:
        """Which rules of the API were broken."""
        return [record["why"] for record in self._everything() if record["kind"] == "refused"]

    @property
    def headers(self) -> list[dict[str, str]]:
        """The headers of all requests so far, names in lower case."""
        return [record["headers"] for record in self._everything() if record["kind"] == "request"]

    def close(self) -> None:
        """Ends it."""
        if self._closed:
            return
        self._process.kill()
        self._process.wait()
        self._reader.join(DEADLINE_S)
        self._closed = True
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._directory.cleanup()


MakeModel = Callable[..., FakeModel]

if pytest is not None:

    @pytest.fixture
    def fake_model() -> Iterator[MakeModel]:
        """A function that starts a scripted model: connect to its ``url``. Nothing that it was sent may break the API's rules.

        Options: ``overflow_chars``, above which a request is too long; ``key``, which must be sent; ``refuse_stream_options=True``;
        ``rules=False`` for tests of the rules themselves.
        """
        with contextlib.ExitStack() as stack:
            models: list[FakeModel] = []

            def make(*turns: Turn, **server: Any) -> FakeModel:
                model = FakeModel(turns, **server)
                stack.callback(model.close)
                models.append(model)
                return model

            yield make
            for model in models:
                assert not model.refusals, model.refusals


# --- the program --------------------------------------------------------------------------------------------------------------------------

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_write_lock = threading.Lock()


def tell(kind: str, **values: Any) -> None:
    with _write_lock:
        sys.stdout.write(json.dumps({"kind": kind, **values}) + "\n")
        sys.stdout.flush()


def answer_marks() -> None:
    for _ in sys.stdin:
        tell("mark")


def broken_rule(body: dict[str, Any]) -> str:
    """Which rule of the API a request breaks, or ""."""
    tools = body.get("tools")
    if tools is not None:
        if not isinstance(tools, list) or not tools:
            return "tools: an empty list"
        if len(tools) > 128:
            return "tools: more than 128"
        names = []
        for tool in tools:
            if tool.get("type") != "function" or not isinstance(tool.get("function"), dict):
                return "tools: not a function"
            names.append(tool["function"].get("name"))
            parameters = tool["function"].get("parameters")
            if not isinstance(parameters, dict) or parameters.get("type") != "object":
                return f"tools: {names[-1]}: parameters are not an object"
        if not all(isinstance(name, str) and _NAME.fullmatch(name) for name in names):
            return "tools: a name"
        if len(set(names)) != len(names):
            return "tools: a name twice"
    elif "tool_choice" in body:
        return "tool_choice without tools"
    return broken_order(body.get("messages"))


def broken_order(messages: Any) -> str:
    if not isinstance(messages, list) or not messages:
        return "messages: none"
    open_calls: list[str] = []
    for position, message in enumerate(messages):
        role, content = message.get("role"), message.get("content")
        where = f"messages[{position}]"
        if role == "tool":
            if message.get("tool_call_id") not in open_calls:
                return f"{where}: a result that answers no call"
            open_calls.remove(message["tool_call_id"])
            if not isinstance(content, str):
                return f"{where}: a result that is no text"
            continue
        if open_calls:
            return f"{where}: calls without a result: {open_calls}"
        if role == "system" and position:
            return f"{where}: a system message that is not the first"
        if role not in ("system", "user", "assistant"):
            return f"{where}: role {role!r}"
        if role == "assistant" and message.get("tool_calls"):
            for one in message["tool_calls"]:
                if not one.get("id") or one.get("type") != "function":
                    return f"{where}: a call without an id"
                try:
                    arguments = json.loads(one["function"]["arguments"])
                except (ValueError, KeyError):
                    return f"{where}: arguments that are no JSON"
                if not isinstance(arguments, dict):
                    return f"{where}: arguments that are no object"
            open_calls = [one["id"] for one in message["tool_calls"]]
            if len(set(open_calls)) != len(open_calls):
                return f"{where}: an id twice"
        elif not content:
            return f"{where}: no content"
    return f"the last message leaves calls without a result: {open_calls}" if open_calls else ""


class Script:
    """The turns, handed out one by one."""

    def __init__(self, path: str) -> None:
        with open(path, encoding="utf-8") as file:
            self.server = json.load(file)
        self._turns = list(self.server["turns"])
        self._lock = threading.Lock()
        self.count = 0

    def next(self) -> Turn:
        with self._lock:
            self.count += 1
            if not self._turns:
                return say("The script is over.")
            return {**self._turns.pop(0), "number": self.count}


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    script: Script

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: standard error belongs to the test."""

    def do_GET(self) -> None:
        self._answer(200, {"object": "list", "data": [{"id": "scripted", "object": "model"}]})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        body = json.loads(raw)
        headers = {name.lower(): value for name, value in self.headers.items()}
        tell("request", body=body, headers=headers, path=self.path)
        server = self.script.server
        if self.path != "/v1/chat/completions":
            return self._answer(404, {"error": {"message": f"no {self.path}"}})
        if server.get("key") and headers.get("authorization") != f"Bearer {server['key']}":
            return self._answer(401, {"error": {"message": "Incorrect API key", "code": "invalid_api_key"}})
        if server.get("refuse_stream_options") and "stream_options" in body:
            return self._answer(400, {"error": {"message": "Unknown parameter: stream_options"}})
        if server.get("rules", True) and (why := broken_rule(body)):
            tell("refused", why=why)
            return self._answer(400, {"error": {"message": why, "type": "invalid_request_error"}})
        limit = server.get("overflow_chars")
        if limit and len(json.dumps(body["messages"])) > limit:
            return self._answer(400, {"error": {"message": OVERFLOW, "code": "context_length_exceeded"}})
        return self._turn(self.script.next(), body)

    def _turn(self, turn: Turn, body: dict[str, Any]) -> None:
        if turn.get("reset"):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            self.close_connection = True
            self.connection.close()
            return None
        if "status" in turn:
            return self._answer(turn["status"], {"error": turn["error"]}, turn["headers"])
        usage = {"prompt_tokens": len(json.dumps(body)) // 4, "completion_tokens": 7, "total_tokens": 0}
        if not body.get("stream"):
            return self._answer(200, whole(turn, usage))
        return self._stream(turn, usage if body.get("stream_options") else None)

    def _answer(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        for name, text in {**(headers or {}), "Content-Type": "application/json"}.items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, turn: Turn, usage: Any) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for number, event in enumerate(events(turn, usage)):
                if turn.get("drop") == number:
                    self.close_connection = True
                    return
                self._chunk(f"data: {json.dumps(event)}\n\n")
            if turn.get("hang"):
                self.connection.settimeout(DEADLINE_S)
                # Nothing more is sent; reading tells when the client has gone.
                with contextlib.suppress(OSError):
                    self.connection.recv(1)
                tell("gone")
                self.close_connection = True
                return
            if not turn.get("unfinished"):
                self._chunk("data: [DONE]\n\n")
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            tell("gone")
            self.close_connection = True

    def _chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


def finish_of(turn: Turn) -> str:
    return str(turn.get("finish") or ("tool_calls" if turn.get("calls") else "stop"))


def arguments_of(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def id_of(turn: Turn, number: int) -> str | None:
    return f"call_{turn.get('number', 0)}_{number}" if turn.get("ids", True) else None


def whole(turn: Turn, usage: Any) -> dict[str, Any]:
    """A turn as one JSON answer."""
    calls = [
        {
            "id": id_of(turn, number),
            "type": "function",
            "function": {"name": name, "arguments": arguments_of(arguments)},
        }
        for number, (name, arguments) in enumerate(turn.get("calls", []))
    ]
    message = {"role": "assistant", "content": turn["text"] or None, **({"tool_calls": calls} if calls else {})}
    choice = {"index": 0, "message": message, "finish_reason": finish_of(turn)}
    return {
        "id": "r",
        "object": "chat.completion",
        "created": 0,
        "model": "scripted",
        "choices": [choice],
        "usage": usage,
    }


def events(turn: Turn, usage: Any) -> Iterator[dict[str, Any]]:
    """A turn as events of a stream, words in pieces of five characters, arguments in pieces of seven."""

    def event(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {"id": "r", "object": "chat.completion.chunk", "created": 0, "model": "scripted", "choices": [choice]}

    yield event({"role": "assistant", "content": ""})
    text = turn["text"]
    for start in range(0, len(text), 5):
        yield event({"content": text[start : start + 5]})
    if "error_event" in turn:
        yield {"error": turn["error_event"]}
        return
    for number, (name, arguments) in enumerate(turn.get("calls", [])):
        written = arguments_of(arguments)
        numbered: dict[str, Any] = {"index": turn.get("index", number)}
        first = {**numbered, "id": id_of(turn, number), "type": "function"}
        if turn.get("whole"):
            yield event({"tool_calls": [{**first, "function": {"name": name, "arguments": written}}]})
            continue
        yield event({"tool_calls": [{**first, "function": {"name": name, "arguments": ""}}]})
        for start in range(0, len(written), 7):
            yield event({"tool_calls": [{**numbered, "function": {"arguments": written[start : start + 7]}}]})
    if turn.get("hang"):
        return
    if not turn.get("unfinished"):
        yield event({}, finish_of(turn))
        if usage:
            yield {
                "id": "r",
                "object": "chat.completion.chunk",
                "created": 0,
                "model": "scripted",
                "choices": [],
                "usage": usage,
            }


def main(path: str) -> None:
    Handler.script = Script(path)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=answer_marks, daemon=True).start()
    tell("listening", port=server.server_address[1])
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1])
