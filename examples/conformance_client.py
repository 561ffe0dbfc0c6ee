"""The client that the official conformance suite drives: `conformance_client.py URL`.

The suite names the scenario, and for some of them gives a context, in its own environment variables. Everything here goes through the
public API; a scenario's function does what a user of a client would do, and the suite's server watches how it is done.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

import outrider
from outrider.client.auth.flow import (
    ClientCredentials,
    EnterpriseManaged,
    OAuth,
    OAuthClient,
    WorkloadIdentity,
)

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")


async def look_around(client: outrider.Client) -> None:
    """List the tools, and nothing else."""
    await client.list_tools()


async def add_numbers(client: outrider.Client) -> None:
    """List the tools and call the one that adds."""
    await client.list_tools()
    result = await client.call_tool("add_numbers", {"a": 5, "b": 3})
    print(result.text)


async def one_of_each(client: outrider.Client) -> None:
    """Every kind of request that carries standard headers."""
    for tool in (await client.list_tools()).items:
        await client.call_tool(tool.name)
    for resource in (await client.list_resources()).items:
        await client.read_resource(resource.uri)
    for prompt in (await client.list_prompts()).items:
        await client.get_prompt(prompt.name)


async def calls_of_context(client: outrider.Client) -> None:
    """List the tools, then make the calls that the suite asks for."""
    await client.list_tools()
    for call in CONTEXT["toolCalls"]:
        await client.call_tool(call["name"], call["arguments"])


async def call_every_tool(client: outrider.Client) -> None:
    """Call each tool that is listed: those with invalid annotations must not be."""
    for tool in (await client.list_tools()).items:
        await client.call_tool(tool.name, {"region": "us-west1"})


async def echo_a_schema(client: outrider.Client) -> None:
    """Give a tool's schema back as it came."""
    tools = {tool.name: tool for tool in (await client.list_tools()).items}
    await client.call_tool("json_schema_echo", {"schema": tools["json_schema_2020_12_tool"].input_schema})


async def reconnect(client: outrider.Client) -> None:
    """Call a tool whose answer comes only after the stream was resumed."""
    await client.list_tools()
    await client.call_tool("test_reconnection")


async def answer_with_defaults(client: outrider.Client) -> None:
    """Call a tool that asks back by a form whose fields all have defaults."""
    await client.list_tools()
    await client.call_tool("test_client_elicitation_defaults")


async def ask_back(client: outrider.Client) -> None:
    """Call tools that ask back, with state, without it, and one that does not."""
    listed = {tool.name for tool in (await client.list_tools()).items}
    wanted = ("test_mrtr_echo_state", "test_mrtr_unrelated", "test_mrtr_no_state", "test_mrtr_no_result_type")
    await asyncio.gather(*(client.call_tool(name) for name in wanted if name in listed or not listed))


async def fill_in(form: outrider.FormRequest) -> outrider.Elicited:
    """Accept every form, with its defaults, and yes where there is none."""
    properties = form.schema.get("properties", {})
    confirmed = {name: True for name, rule in properties.items() if rule.get("type") == "boolean"}
    return outrider.Elicited("accept", {**confirmed, **form.defaults()})


async def use_the_tool(client: outrider.Client) -> None:
    """List the tools and call the only one: what follows signing in."""
    await client.list_tools()
    await client.call_tool("test-tool")


class Redirected:
    """A user agent without a user: the suite's authorization server consents at once, by redirecting back."""

    async def start(self, preferred: str) -> str:
        """Nobody listens there: the address is read from the redirect."""
        return preferred or "http://127.0.0.1:33418/callback"

    async def visit(self, url: str, state: str) -> str:
        """Where the authorization server redirects to."""
        async with aiohttp.ClientSession() as session, session.get(url, allow_redirects=False) as response:
            return response.headers["Location"]

    async def close(self) -> None:
        """Nothing to give back."""


async def told(value: str) -> str:
    """A value that a machine would get from its platform."""
    return value


def authorizer() -> OAuth | None:
    """How this scenario signs in."""
    if not SCENARIO.startswith("auth/"):
        return None
    client = OAuthClient(
        client_id=CONTEXT.get("client_id", ""),
        client_secret=CONTEXT.get("client_secret", ""),
        private_key_pem=CONTEXT.get("private_key_pem", ""),
        signing_algorithm=CONTEXT.get("signing_algorithm", "ES256"),
        metadata_url="https://conformance-test.local/client-metadata.json",
    )
    match SCENARIO:
        case "auth/client-credentials-jwt" | "auth/client-credentials-basic":
            return OAuth(client=client, machine=ClientCredentials())
        case "auth/wif-jwt-bearer":
            return OAuth(client=client, machine=WorkloadIdentity(lambda issuer: told(CONTEXT["valid_jwt"])))
        case "auth/enterprise-managed-authorization":
            enterprise = EnterpriseManaged(
                lambda: told(CONTEXT["idp_id_token"]), CONTEXT["idp_token_endpoint"], CONTEXT["idp_client_id"]
            )
            return OAuth(client=client, machine=enterprise)
    return OAuth(client=client, agent=Redirected())


SCENARIOS: dict[str, Callable[[outrider.Client], Awaitable[None]]] = {
    "tools_call": add_numbers,
    "http-standard-headers": one_of_each,
    "http-custom-headers": calls_of_context,
    "http-invalid-tool-headers": call_every_tool,
    "json-schema-2020-12-preservation": echo_a_schema,
    "sse-retry": reconnect,
    "elicitation-sep1034-client-defaults": answer_with_defaults,
    "sep-2322-client-request-state": ask_back,
}


async def main(url: str) -> None:
    """Run the scenario against the suite's server."""
    options = outrider.ClientOptions(inputs=outrider.InputHandlers(form=fill_in), auth=authorizer())
    async with outrider.connect(url, options=options) as client:
        await SCENARIOS.get(SCENARIO, use_the_tool if SCENARIO.startswith("auth/") else look_around)(client)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
