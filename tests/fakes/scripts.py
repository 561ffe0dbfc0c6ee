"""The vocabulary of the scripted servers: rules, actions, and ready-made servers of both eras.

A script is a list of rules; the first that fits what came in says what to do::

    Script(
        on("server/discover", error(-32602, "Invalid request parameters")),
        *legacy(tools=[tool("add")]),
    )

is a legacy server that refuses the probe in its own way. Ready-made rules stand last, so that the particular ones come first. What no
rule fits is answered like a server that does not know it: -32601 for a request, nothing for a notification, 405 for other HTTP requests.

Texts may hold placeholders: ``$id`` and ``$version`` of the request being answered, ``$name``, ``$cursor``, ``$token`` (its progress
token), ``$count`` (how often this rule was used) and ``$pid``. A text that consists of one becomes its value, whatever its type.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

Action = dict[str, Any]
"""One thing to do: its name with its argument first, options after it."""

MODERN = "2026-07-28"
LEGACY = "2025-11-25"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What to do about what came in, and when it fits.

    Attributes:
        method: the JSON-RPC method, or None for any message and for requests without one.
        do: the actions, in order.
        times: it fits only so often, or None for always.
        spawn: it fits only in the process that was started as the first, second, … of the script.
        after: it fits only when this method has been received before.
        params: members that the message's params must have, at any depth.
        has: a member that the message must have, such as ``result``.
        http: the HTTP method.
        path: the HTTP path, with its query.
        headers: regular expressions that HTTP headers must match as a whole; None for one that must be absent.
    """

    method: str | None
    do: Sequence[Action]
    times: int | None = None
    spawn: int | None = None
    after: str | None = None
    params: Mapping[str, Any] | None = None
    has: str | None = None
    http: str | None = None
    path: str | None = None
    headers: Mapping[str, str | None] = field(default_factory=dict)


class Script:
    """Rules in order of precedence, and what to do without being asked.

    Args:
        rules: the rules.
        start: actions at the start, before anything is read (stdio).
        end: actions when the input has ended (stdio). After them the process exits with 0.
    """

    def __init__(self, *rules: Rule, start: Sequence[Action] = (), end: Sequence[Action] = ()) -> None:
        self.rules = rules
        self.start = start
        self.end = end

    def as_json(self, http: Mapping[str, Any] | None) -> dict[str, Any]:
        """The script as the program reads it; ``http`` says where to listen, or None for stdio."""
        return {"rules": [asdict(rule) for rule in self.rules], "start": self.start, "end": self.end, "http": http}

    def gates(self) -> set[str]:
        """The names of all gates in the script."""
        return _gates([*(action for rule in self.rules for action in rule.do), *self.start, *self.end])


def _gates(actions: Sequence[Action]) -> set[str]:
    found: set[str] = set()
    for action in actions:
        found.update(name for key in ("gate", "after_gate") if (name := action.get(key)) is not None)
        found |= _gates(action.get("do", ()))
    return found


def on(method: str | None, *do: Action, **conditions: Any) -> Rule:
    """A rule; see `Rule` for the conditions."""
    return Rule(method=method, do=do, **conditions)


# --- actions of both transports -------------------------------------------------------------------------------------------------------


def result(value: Any, **options: Any) -> Action:
    """Answers with a result. Options: ``id`` for another id; over HTTP ``status``, ``headers``, ``sse=True`` for an event stream."""
    return {"result": value, **options}


_ABSENT: Any = object()


def error(code: Any, message: Any = "no", *, data: Any = _ABSENT, **options: Any) -> Action:
    """Answers with an error; options as for `result`."""
    value = {"code": code, "message": message}
    return {"error": value if data is _ABSENT else {**value, "data": data}, **options}


def send(message: Any) -> Action:
    """Sends any JSON value as one line, or as one event of the open stream."""
    return {"send": message}


def notify(method: str, **params: Any) -> Action:
    """Sends a notification."""
    return send({"jsonrpc": "2.0", "method": method, "params": params})


def raw(text: str) -> Action:
    """Writes a text as it is."""
    return {"raw": text}


def raw_bytes(data: bytes) -> Action:
    """Writes bytes as they are."""
    return {"bytes": base64.b64encode(data).decode()}


def repeat(text: str, times: int) -> Action:
    """Writes a text very often."""
    return {"repeat": text, "times": times}


def split(size: int) -> Action:
    """From now on, what is written goes out in pieces of so many bytes."""
    return {"split": size}


def gate(name: str) -> Action:
    """Waits until the test opens a gate."""
    return {"gate": name}


def note(value: Any) -> Action:
    """Tells the test something."""
    return {"note": value}


NOTHING: Action = note("nothing to do")
"""No answer."""

# --- actions over stdio ---------------------------------------------------------------------------------------------------------------

LINGER: Action = {"linger": True}
"""Does nothing for ever; the input is not even read."""


def stderr(text: str, times: int = 1) -> Action:
    """Writes to the standard error stream."""
    return {"stderr": text, "times": times}


def exit_with(code: int) -> Action:
    """Ends the process."""
    return {"exit": code}


def kill(number: int) -> Action:
    """Ends the process with a signal."""
    return {"kill": number}


def defer(name: str, *do: Action) -> Action:
    """Puts actions off until `run`; they answer the request of now."""
    return {"defer": name, "do": do}


def run(name: str) -> Action:
    """Carries out what was put off."""
    return {"run": name}


def close(stream: str) -> Action:
    """Closes "stdin", "stdout" or "stderr"."""
    return {"close": stream}


def ignore(name: str) -> Action:
    """Ignores a signal, such as "SIGTERM"."""
    return {"ignore": name}


def spawn(*command: str, own_session: bool = False, after_gate: str | None = None) -> Action:
    """Starts another program that holds the same standard streams; in a session of its own, it says ``left``, maybe after a gate."""
    return {"spawn": command, "own_session": own_session, "after_gate": after_gate}


ENVIRONMENT: Action = {"environment": True}
"""Tells the test its environment."""

# --- actions over HTTP ----------------------------------------------------------------------------------------------------------------


def respond(status: int = 200, *, headers: Mapping[str, str] | None = None, **body: Any) -> Action:
    """Answers with a whole HTTP response whose body is ``text``, ``json`` or ``base64``."""
    return {"respond": {"status": status, "headers": dict(headers or {}), **body}}


def head(status: int, **headers: str) -> Action:
    """Begins a response: chunked, unless a length is given. Underscores in names are hyphens."""
    return {"head": status, "headers": {name.replace("_", "-"): value for name, value in headers.items()}}


def bare(text: str) -> Action:
    """Writes to the socket without any framing."""
    return {"bare": text}


STREAM: Action = {"stream": {}}
"""Begins an event stream. What is sent or answered from now on becomes events, and it ends with the last action."""
HANG: Action = {"hang": True}
"""Sends nothing more until the client goes away, which is logged as ``closed``."""
RESET: Action = {"reset": True}
"""Resets the connection."""
HANG_UP: Action = {"close": True}
"""Closes the connection where it stands."""


def set_event(name: str) -> Action:
    """Lets all requests go on that `await_event`."""
    return {"set": name}


def await_event(name: str) -> Action:
    """Waits until another request does `set_event`."""
    return {"await": name}


# --- ready-made servers ---------------------------------------------------------------------------------------------------------------


def tool(name: str, **members: Any) -> dict[str, Any]:
    """A sound tool with any further members."""
    return {"name": name, "description": f"Does {name}.", "inputSchema": {"type": "object"}, **members}


def complete(**members: Any) -> dict[str, Any]:
    """A modern result that may be cached for no time by nobody else."""
    return {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **members}


def discover_result(versions: Sequence[str] = (MODERN,), **members: Any) -> dict[str, Any]:
    """The answer to ``server/discover`` of a server with tools."""
    identity = {"io.modelcontextprotocol/serverInfo": {"name": "fake", "version": "1"}}
    return complete(supportedVersions=list(versions), capabilities={"tools": {}}, _meta=identity) | members


def initialize_result(version: str = "$version", **members: Any) -> dict[str, Any]:
    """The answer to ``initialize`` of a server with tools; it agrees to the version that was proposed."""
    return {
        "protocolVersion": version,
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "fake", "version": "1"},
    } | members


TOOLS = (tool("add"), tool("echo"))
"""The tools of every ready-made server, unless a test wants others."""

CALLED = {"content": [{"type": "text", "text": "called $name"}]}
"""The result of calling any of them."""


def modern(
    *, tools: Sequence[Any] = TOOLS, capabilities: Mapping[str, Any] | None = None, versions: Sequence[str] = (MODERN,)
) -> tuple[Rule, ...]:
    """The rules of a good modern server. ``initialize`` is refused as such servers should, naming the versions."""
    refusal = {"supported": list(versions), "requested": "$version"}
    return (
        on("server/discover", result(discover_result(versions, capabilities=dict(capabilities or {"tools": {}})))),
        on("initialize", error(-32022, "Unsupported protocol version", data=refusal, status=400)),
        on("tools/list", result(complete(tools=list(tools)))),
        on("tools/call", result({"resultType": "complete", **CALLED})),
    )


def legacy(
    *,
    tools: Sequence[Any] = TOOLS,
    capabilities: Mapping[str, Any] | None = None,
    version: str = "$version",
    session: str = "",
) -> tuple[Rule, ...]:
    """The rules of a good legacy server. It does not know ``server/discover``, and serves only after the handshake.

    Over HTTP it answers what it does not know with 400 and hands out ``session`` as its session id, if there is one.
    """
    answer = initialize_result(version, capabilities=dict(capabilities or {"tools": {}}))
    headers = {"Mcp-Session-Id": session} if session else {}
    ready = "notifications/initialized"
    return (
        on("initialize", result(answer, headers=headers)),
        on("ping", result({}), after=ready),
        on("tools/list", result({"tools": list(tools)}), after=ready),
        on("tools/call", result(CALLED), after=ready),
        on("server/discover", error(-32601, "Method not found", status=400)),
        on(None, NOTHING, http="DELETE"),
    )
