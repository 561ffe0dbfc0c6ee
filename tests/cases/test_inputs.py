"""Servers that ask back, in both eras, against scripted servers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

import outrider
from cases.expectations import options
from fakes.running import FakeHttp, FakeStdio
from fakes.scripts import CALLED, Script, legacy, modern, on, result, send
from outrider import Elicited, FormRequest, InputHandlers, InputNeeded, UrlRequest
from outrider.errors import LocalProtocolError, RemoteProtocolError

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "default": "Ada"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
}
FORM = {
    "method": "elicitation/create",
    "params": {"mode": "form", "message": "Who are you?", "requestedSchema": SCHEMA},
}
DONE = result({"resultType": "complete", **CALLED})


def asks(requests: Mapping[str, Any] | None = None, state: str | None = None, **more: Any) -> dict[str, Any]:
    """An interim result."""
    interim: dict[str, Any] = {"resultType": "input_required", **more}
    if requests is not None:
        interim["inputRequests"] = requests
    if state is not None:
        interim["requestState"] = state
    return result(interim)


async def accept_defaults(form: FormRequest) -> Elicited:
    return Elicited("accept", form.defaults())


class TestRounds:
    async def test_the_answer_goes_back_with_a_new_id_and_the_state_as_it_came(self, fake_http: FakeHttp) -> None:
        """Spec basic/patterns/mrtr#client-requirements-basic-workflow (MUST)."""
        state = ' {"opaque": "état \\u0000"}='
        fake = fake_http(
            Script(on("tools/call", asks({"who": FORM}, state), times=1), on("tools/call", DONE), *modern())
        )
        inputs = InputHandlers(form=accept_defaults)
        async with outrider.connect(fake.url, options=options(inputs=inputs)) as client:
            outcome = await client.call_tool("add", {"a": 1})
        assert outcome.text == "called add"
        first, second = fake.messages("tools/call")
        assert first["id"] != second["id"]
        assert "inputResponses" not in first["params"]
        assert "requestState" not in first["params"]
        assert second["params"]["requestState"] == state
        assert second["params"]["inputResponses"] == {"who": {"action": "accept", "content": {"name": "Ada"}}}
        assert second["params"]["arguments"] == {"a": 1}

    async def test_state_alone_is_retried_at_once_and_no_state_is_invented(self, fake_http: FakeHttp) -> None:
        """Spec basic/patterns/mrtr: without inputRequests MAY retry; without requestState MUST NOT send one."""
        fake = fake_http(
            Script(
                on("tools/call", asks(state="s"), times=1),
                on("tools/call", asks({"who": FORM}), times=1),
                on("tools/call", DONE),
                *modern(),
            )
        )
        async with outrider.connect(fake.url, options=options(inputs=InputHandlers(form=accept_defaults))) as client:
            await client.call_tool("add")
        _, second, third = (message["params"] for message in fake.messages("tools/call"))
        assert second["requestState"] == "s"
        assert "inputResponses" not in second
        assert "requestState" not in third
        assert "inputResponses" in third

    async def test_capabilities_are_those_of_the_handlers(self, fake_http: FakeHttp) -> None:
        """Spec client/elicitation#capabilities (MUST declare): on each request, and nothing more."""

        async def visit(_: UrlRequest) -> Elicited:
            return outrider.Elicited("decline")

        fake = fake_http(Script(*modern()))
        async with outrider.connect(fake.url, options=options(inputs=InputHandlers(url=visit))) as client:
            await client.list_tools()
        for message in fake.messages():
            declared = message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
            assert declared == {"elicitation": {"url": {}}}

    async def test_without_a_handler_the_caller_learns_what_was_asked(self, fake_http: FakeHttp) -> None:
        """Ours: InputNeeded carries the requests and the state."""
        fake = fake_http(Script(on("tools/call", asks({"who": FORM}, "s")), *modern()))
        async with outrider.connect(fake.url, options=options()) as client:
            with pytest.raises(InputNeeded) as caught:
                await client.call_tool("add")
        assert caught.value.input_requests == {"who": FORM}
        assert caught.value.request_state == "s"
        assert len(fake.messages("tools/call")) == 1

    async def test_a_server_that_asks_for_ever_is_given_up(self, fake_http: FakeHttp) -> None:
        """Ours: rounds are bounded."""
        fake = fake_http(Script(on("tools/call", asks({"who": FORM})), *modern()))
        inputs = InputHandlers(form=accept_defaults)
        async with outrider.connect(fake.url, options=options(inputs=inputs, max_input_rounds=3)) as client:
            with pytest.raises(RemoteProtocolError, match="3 rounds"):
                await client.call_tool("add")
        assert len(fake.messages("tools/call")) == 4

    async def test_an_answer_that_does_not_fit_the_form_is_not_sent(self, fake_http: FakeHttp) -> None:
        """Spec client/elicitation#security-considerations (SHOULD validate)."""

        async def lie(_: FormRequest) -> Elicited:
            return Elicited("accept", {"name": "Ada", "age": "old"})

        fake = fake_http(Script(on("tools/call", asks({"who": FORM})), *modern()))
        async with outrider.connect(fake.url, options=options(inputs=InputHandlers(form=lie))) as client:
            with pytest.raises(LocalProtocolError, match="age"):
                await client.call_tool("add")
        assert len(fake.messages("tools/call")) == 1

    async def test_declining_is_an_answer(self, fake_http: FakeHttp) -> None:
        """Spec client/elicitation#response-actions."""

        async def decline(_: FormRequest) -> Elicited:
            return Elicited("decline")

        fake = fake_http(Script(on("tools/call", asks({"who": FORM}), times=1), on("tools/call", DONE), *modern()))
        async with outrider.connect(fake.url, options=options(inputs=InputHandlers(form=decline))) as client:
            await client.call_tool("add")
        assert fake.messages("tools/call")[1]["params"]["inputResponses"] == {"who": {"action": "decline"}}

    @pytest.mark.parametrize(
        "interim", [asks(), asks({"who": "no object"}), asks({"who": {"params": {}}}), result({"resultType": "other"})]
    )
    async def test_an_interim_result_that_cannot_be_read_is_an_error(self, fake_http: FakeHttp, interim: Any) -> None:
        """Spec basic/index#resulttype (MUST be considered invalid), basic/patterns/mrtr."""
        fake = fake_http(Script(on("tools/call", interim), *modern()))
        async with outrider.connect(fake.url, options=options(inputs=InputHandlers(form=accept_defaults))) as client:
            with pytest.raises(RemoteProtocolError):
                await client.call_tool("add")

    async def test_parallel_calls_keep_their_states_apart(self, fake_http: FakeHttp) -> None:
        """Spec basic/patterns/mrtr (MUST NOT be used for any other request)."""
        fake = fake_http(
            Script(
                on("tools/call", asks({"who": FORM}, "of add"), params={"name": "add"}, times=1),
                on("tools/call", DONE),
                *modern(),
            )
        )
        async with outrider.connect(fake.url, options=options(inputs=InputHandlers(form=accept_defaults))) as client:
            await asyncio.gather(client.call_tool("add"), client.call_tool("echo"))
        for message in fake.messages("tools/call"):
            if message["params"]["name"] == "echo":
                assert "requestState" not in message["params"]


class TestLegacy:
    async def test_the_same_handlers_serve_the_servers_own_requests(self, fake_stdio: FakeStdio) -> None:
        """Ours: forms, roots and sampling of a legacy server; ids of the two directions are separate."""

        async def roots() -> Sequence[Mapping[str, Any]]:
            return [{"uri": "file:///tmp", "name": "tmp"}]

        async def sample(params: dict[str, Any]) -> Mapping[str, Any]:
            return {"role": "assistant", "content": {"type": "text", "text": params["messages"][0]}, "model": "m"}

        requests = [
            send({"jsonrpc": "2.0", "id": 1, "method": "roots/list"}),
            send({"jsonrpc": "2.0", "id": 2, "method": "elicitation/create", "params": FORM["params"]}),
            send({"jsonrpc": "2.0", "id": "x", "method": "sampling/createMessage", "params": {"messages": ["hi"]}}),
            send({"jsonrpc": "2.0", "id": 3, "method": "elicitation/create", "params": {"message": 7}}),
            send({"jsonrpc": "2.0", "id": 4, "method": "other/thing"}),
        ]
        fake = fake_stdio(Script(on("tools/call", *requests, result(CALLED)), *legacy()))
        inputs = InputHandlers(form=accept_defaults, roots=roots, sample=sample)
        async with outrider.connect(fake.command, options=options(inputs=inputs)) as client:
            await client.call_tool("add")
            await fake.wait_for("received", None, count=9)
        replies = {message["id"]: message for message in fake.messages() if "method" not in message}
        assert replies[1]["result"] == {"roots": [{"uri": "file:///tmp", "name": "tmp"}]}
        assert replies[2]["result"] == {"action": "accept", "content": {"name": "Ada"}}
        assert replies["x"]["result"]["content"]["text"] == "hi"
        assert replies[3]["error"]["code"] == -32602
        assert replies[4]["error"]["code"] == -32601
        (opening,) = fake.messages("initialize")
        assert opening["params"]["capabilities"] == {"elicitation": {"form": {}}, "sampling": {}, "roots": {}}

    async def test_a_handler_that_fails_is_an_error_reply(self, fake_stdio: FakeStdio) -> None:
        """Ours: the server is told, and the connection lives on."""

        async def fail(_: FormRequest) -> Elicited:
            raise LocalProtocolError("nobody is here")

        ask = send({"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": FORM["params"]})
        fake = fake_stdio(Script(on("tools/call", ask, result(CALLED)), *legacy()))
        async with outrider.connect(fake.command, options=options(inputs=InputHandlers(form=fail))) as client:
            await client.call_tool("add")
            await fake.wait_for("received", None, count=5)
            assert len(await client.list_tools()) == 2
        (reply,) = [message for message in fake.messages() if "method" not in message]
        assert reply["error"]["code"] == -32603
