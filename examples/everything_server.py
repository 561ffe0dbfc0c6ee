"""A server with everything: what the official conformance suite asks for, and a tour of what `Server` can do.

outrider run examples/everything_server.py --http 127.0.0.1:8000
"""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass
from typing import Annotated, Any

from outrider.server import (
    Audio,
    Contents,
    Context,
    Elicit,
    Embedded,
    Image,
    InputRequest,
    ListRoots,
    Message,
    Mirrored,
    RequestRejected,
    Sample,
    Server,
    ServerOptions,
    TaskOptions,
    TaskSupport,
    Text,
    ToolError,
)

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
WAV = base64.b64decode("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAD//w==")

server = Server(
    "everything",
    version="1.0.0",
    instructions="Every feature of MCP, each in its simplest form. Call test_simple_text to see that the server is there.",
    options=ServerOptions(tasks=TaskOptions(poll_interval_ms=200)),
)


# Content


@server.tool(inline=True)
def test_simple_text() -> str:
    """Answer with a text."""
    return "This is a simple text response for testing."


@server.tool(inline=True)
def test_image_content() -> Image:
    """Answer with an image."""
    return Image(PNG, "image/png")


@server.tool(inline=True)
def test_audio_content() -> Audio:
    """Answer with a sound."""
    return Audio(WAV, "audio/wav")


@server.tool(inline=True)
def test_embedded_resource() -> Embedded:
    """Answer with a resource."""
    return Embedded(Contents("test://embedded-resource", "text/plain", text="This is an embedded resource content."))


@server.tool(inline=True)
def test_multiple_content_types() -> list[Text | Image | Embedded]:
    """Answer with a text, an image and a resource."""
    return [
        Text("Multiple content types test:"),
        Image(PNG, "image/png"),
        Embedded(Contents("test://mixed-content-resource", "application/json", text='{"test":"data","value":123}')),
    ]


@server.tool(inline=True)
def test_error_handling() -> str:
    """Fail in the way a model can read."""
    raise ToolError("This tool intentionally returns an error for testing")


@dataclass
class Weather:
    """The weather at a place."""

    temperature: float
    conditions: str


@server.tool
def get_weather(
    city: Annotated[str, "Name of the city"],
    fahrenheit: Annotated[bool, "Degrees Fahrenheit instead of Celsius"] = False,
) -> Weather:
    """Answer with structured content: the weather that it always is."""
    return Weather(72.0 if fahrenheit else 22.2, f"sunny in {city}")


# What a function says while it works


@server.tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Report progress three times."""
    for progress in (0, 50, 100):
        ctx.progress(progress, 100, f"Completed step {progress} of 100")
        await asyncio.sleep(0.05)
    return "Tool with progress completed"


@server.tool
async def test_tool_with_logging(ctx: Context) -> str:
    """Log three messages to the client."""
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        ctx.log("info", text)
        await asyncio.sleep(0.05)
    return "Tool with logging executed successfully"


@server.tool
async def test_logging_tool(ctx: Context) -> str:
    """Log a message to a client that asked for it."""
    ctx.log("info", "working")
    return "Logged"


@server.tool
async def test_reconnection(ctx: Context) -> str:
    """Let a legacy HTTP client go and come back for the result."""
    ctx.let_client_poll(retry_ms=500)
    await asyncio.sleep(0.1)
    return "Reconnection test completed successfully"


# What a function asks the client for: the same calls in both eras


@dataclass
class UserDetails:
    """What test_elicitation asks for."""

    username: Annotated[str, "User's response"]
    email: Annotated[str, "User's email address"]


@server.tool
async def test_sampling(prompt: str, ctx: Context) -> str:
    """Ask the client's model."""
    answer = await ctx.sample(prompt, max_tokens=100)
    return f"LLM response: {answer.text}"


@server.tool
async def test_elicitation(message: str, ctx: Context) -> str:
    """Ask the user for a name and an address."""
    answer = await ctx.elicit(message, UserDetails)
    return f"User response: action={answer.action}, content={answer.content}"


async def _ask_form(ctx: Context, message: str, properties: dict[str, Any]) -> str:
    answer = await ctx.elicit(message, {"type": "object", "properties": properties, "required": []})
    return f"Elicitation completed: action={answer.action}, content={answer.content}"


@server.tool
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Ask with a default for every primitive type."""
    return await _ask_form(
        ctx,
        "Please review and update the form fields with defaults",
        {
            "name": {"type": "string", "description": "User name", "default": "John Doe"},
            "age": {"type": "integer", "description": "User age", "default": 30},
            "score": {"type": "number", "description": "User score", "default": 95.5},
            "status": {
                "type": "string",
                "description": "User status",
                "enum": ["active", "inactive", "pending"],
                "default": "active",
            },
            "verified": {"type": "boolean", "description": "Verification status", "default": True},
        },
    )


@server.tool
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Ask with every form of enumeration."""
    titled = [
        {"const": f"value{n}", "title": f"{word} Option"} for n, word in enumerate(("First", "Second", "Third"), 1)
    ]
    options = ["option1", "option2", "option3"]
    return await _ask_form(
        ctx,
        "Please select options from the enum fields",
        {
            "untitledSingle": {"type": "string", "description": "Select one option", "enum": options},
            "titledSingle": {"type": "string", "description": "Select one option with titles", "oneOf": titled},
            "legacyEnum": {
                "type": "string",
                "description": "Select one option (legacy)",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            "untitledMulti": {
                "type": "array",
                "description": "Select multiple options",
                "items": {"type": "string", "enum": options},
            },
            "titledMulti": {
                "type": "array",
                "description": "Select multiple options with titles",
                "items": {"anyOf": titled},
            },
        },
    )


@server.tool
async def test_missing_capability(ctx: Context) -> str:
    """Need a client that samples."""
    return (await ctx.sample("Say hello.", max_tokens=10)).text


@server.tool
async def test_streaming_elicitation(ctx: Context) -> str:
    """Ask the user to confirm."""
    answer = await ctx.elicit("Go on?", {"type": "object", "properties": {"ok": {"type": "boolean"}}}, key="confirm")
    return f"The user said {answer.action}"


def _form(name: str, kind: str = "string") -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": kind}}, "required": [name]}


@server.tool
async def test_input_required_result_elicitation(ctx: Context) -> str:
    """Greet the user by the name that they give."""
    answer = await ctx.elicit("What is your name?", _form("name"), key="user_name")
    return f"Hello, {answer.content['name']}!" if answer.accepted else "Hello, whoever you are!"


@server.tool
async def test_input_required_result_sampling(ctx: Context) -> str:
    """Ask the client's model for a capital."""
    answer = await ctx.sample("What is the capital of France?", max_tokens=100, key="capital_question")
    return f"The model says: {answer.text}"


@server.tool
async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Name the client's roots."""
    roots = await ctx.list_roots(key="client_roots")
    return "Roots: " + (", ".join(root.uri for root in roots) or "none")


@server.tool
async def test_input_required_result_request_state(ctx: Context) -> str:
    """Keep a state between two rounds."""
    if ctx.answers and ctx.state.get("asked") is not True:
        raise ToolError("The state did not come back")
    ctx.state["asked"] = True
    answer = await ctx.elicit("Please confirm", _form("ok", "boolean"), key="confirm")
    return f"state-ok: {answer.action}"


@server.tool
async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Ask for three things at once."""
    ctx.state["asked"] = 3
    answers = await ctx.ask(
        {
            "user_name": Elicit("What is your name?", _form("name")),
            "greeting": Sample("Generate a greeting", max_tokens=50),
            "client_roots": ListRoots(),
        }
    )
    name = answers["user_name"].content["name"] if answers["user_name"].accepted else "nobody"
    return f"{answers['greeting'].text} {name}, with {len(answers['client_roots'])} roots"


@server.tool
async def test_input_required_result_multi_round(ctx: Context) -> str:
    """Ask for a name, then for a colour."""
    ctx.state["round"] = 1
    name = await ctx.elicit("Step 1: What is your name?", _form("name"), key="step1")
    ctx.state["round"] = 2
    color = await ctx.elicit("Step 2: What is your favorite color?", _form("color"), key="step2")
    return f"{name.content} and {color.content}"


@server.tool
async def test_input_required_result_tampered_state(ctx: Context) -> str:
    """Hand out a state that must come back as it is."""
    ctx.state["secret"] = "not for the client"
    answer = await ctx.elicit("Please confirm", _form("ok", "boolean"), key="confirm")
    return f"The state is intact: {answer.action}"


@server.tool
async def test_input_required_result_capabilities(ctx: Context) -> str | InputRequest:
    """Ask only for what the client can give."""
    questions = {
        "user_name": Elicit("What is your name?", _form("name")),
        "capital_question": Sample("What is the capital of France?", max_tokens=100),
    }
    possible = {key: question for key, question in questions.items() if ctx.supports(question)}
    return f"Asked {len(await ctx.ask(possible))} things"


# Tasks: work that a client need not wait for


@server.tool(inline=True)
def greet(name: str) -> str:
    """Greet somebody, at once."""
    return f"Hello, {name}!"


@server.tool(task=True)
async def slow_compute(ctx: Context, seconds: float = 1.0, label: str = "") -> str:
    """Take a while, as a task for clients that take tasks."""
    ctx.status(f"computing {label}")
    await asyncio.sleep(min(max(seconds, 0.0), 60.0))
    return f"Computed {label} in {seconds:g} s"


@server.tool(task="required")
async def failing_job() -> str:
    """Fail in the way a model can read, after a while."""
    await asyncio.sleep(0.1)
    raise ToolError("This job intentionally fails")


@server.tool(task=True)
async def protocol_error_job() -> str:
    """Fail with a protocol error."""
    raise RequestRejected(-32000, "This job intentionally breaks the request")


@server.tool(task=True)
async def confirm_delete(filename: str, ctx: Context) -> str:
    """Ask the user while the task goes on."""
    answer = await ctx.elicit(f"Delete {filename}?", _form("confirm", "boolean"))
    return f"Deleted {filename}" if answer.accepted and answer.content["confirm"] else f"Kept {filename}"


@server.tool(task=True)
async def multi_input(ctx: Context) -> str:
    """Ask the user two things at once; the answers may come one by one."""
    answers = await ctx.ask(
        {
            "name": Elicit("What is your name?", _form("name")),
            "confirm": Elicit("Go on?", _form("confirm", "boolean")),
        }
    )
    return ", ".join(f"{key}: {answer.action}" for key, answer in answers.items())


@server.tool(task=TaskSupport(required=True, after_s=None))
async def test_tool_with_task(ctx: Context) -> str:
    """Ask for a name first, and become a task only then."""
    answer = await ctx.elicit("What is your name?", _form("name"), key="user_name")
    await ctx.to_task()
    return f"Done for {answer.content['name'] if answer.accepted else 'nobody'}"


# Schemas and headers


@server.tool(inline=True)
def test_custom_header(region: Annotated[str, Mirrored("Region")]) -> str:
    """Repeat an argument that clients also send in a header.

    Args:
        region: where the work is to be done.
    """
    return f"region={region}"


server.add_tool_definition(
    {
        "name": "json_schema_2020_12_tool",
        "description": "A tool whose schema uses what 2020-12 has.",
        "inputSchema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": {
                "address": {
                    "$anchor": "addressDef",
                    "type": "object",
                    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
                }
            },
            "properties": {
                "name": {"type": "string"},
                "address": {"$ref": "#/$defs/address"},
                "contactMethod": {"type": "string", "enum": ["phone", "email"]},
                "phone": {"type": "string"},
                "email": {"type": "string"},
            },
            "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
            "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
            "then": {"required": ["phone"]},
            "else": {"required": ["email"]},
            "additionalProperties": False,
        },
    },
    lambda arguments, ctx: f"Received {sorted(arguments)}",
)


# A list that changes while it is served


def _passing_tool() -> str:
    """Come and go."""
    return "I am here"


def _passing_prompt() -> str:
    """Come and go."""
    return "I am here"


@server.tool
def test_trigger_tool_change() -> str:
    """Add a tool, or take it away again."""
    if not server.remove_tool("passing_tool"):
        server.tool(_passing_tool, name="passing_tool")
    return "The list of tools has changed"


@server.tool
def test_trigger_prompt_change() -> str:
    """Add a prompt, or take it away again."""
    if not server.remove_prompt("passing_prompt"):
        server.prompt(_passing_prompt, name="passing_prompt")
    return "The list of prompts has changed"


@server.tool
def test_trigger_resource_update() -> str:
    """Say that the watched resource has changed."""
    server.resource_updated("test://watched-resource")
    return "The watched resource has changed"


# Prompts


@server.prompt(inline=True)
def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@server.prompt(inline=True)
def test_prompt_with_arguments(
    arg1: Annotated[str, "First test argument"], arg2: Annotated[str, "Second test argument"]
) -> str:
    """A prompt with two arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.completion("test_prompt_with_arguments", "arg1")
def complete_arg1(value: str) -> list[str]:
    """Suggest what starts like the value."""
    return [word for word in ("test", "testing", "tested", "other") if word.startswith(value)]


@server.prompt(inline=True)
def test_prompt_with_embedded_resource(resourceUri: Annotated[str, "URI of the resource to embed"]) -> list[Message]:
    """A prompt with a resource."""
    return [
        Message.user(Embedded(Contents(resourceUri, "text/plain", text="Embedded resource content for testing."))),
        Message.user("Please process the embedded resource above."),
    ]


@server.prompt(inline=True)
def test_prompt_with_image() -> list[Message]:
    """A prompt with an image."""
    return [Message.user(Image(PNG, "image/png")), Message.user("Please analyze the image above.")]


@server.prompt
async def test_input_required_result_prompt(ctx: Context) -> str:
    """A prompt that asks for its context."""
    answer = await ctx.elicit("What context should the prompt use?", _form("context"), key="user_context")
    return f"Consider this context: {answer.content['context'] if answer.accepted else 'none'}"


# Resources


server.add_resource(
    "test://static-text",
    "This is the content of the static text resource.",
    name="Static text",
    description="A text that never changes",
    mime_type="text/plain",
)
server.add_resource(
    "test://static-binary", PNG, name="Static image", description="An image that never changes", mime_type="image/png"
)


@server.resource("test://watched-resource", name="Watched resource", mime_type="text/plain", subscribable=True)
def watched_resource() -> str:
    """A text that clients may watch."""
    return "Watch me."


@server.resource("test://template/{id}/data", name="Template", mime_type="application/json")
def template_data(id: str) -> dict[str, Any]:
    """Data by its number."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


if __name__ == "__main__":
    server.run()
