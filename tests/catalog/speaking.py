"""How models of each vendor call tools, and what each vendor's answers say: for tests that hold for all of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

VENDORS = ("openai", "openai-responses", "anthropic", "gemini", "mistral")


def calling(vendor: str, *calls: tuple[str, Any]) -> Any:
    """A model's message with calls, each a name and arguments; the ids are c1, c2, …."""
    numbered = [(f"c{number}", name, arguments) for number, (name, arguments) in enumerate(calls, 1)]
    match vendor:
        case "openai-responses":
            return {
                "output": [
                    {"type": "function_call", "call_id": id_, "name": name, "arguments": as_text(arguments)}
                    for id_, name, arguments in numbered
                ]
            }
        case "anthropic":
            return {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": id_, "name": name, "input": arguments}
                    for id_, name, arguments in numbered
                ],
            }
        case "gemini":
            return {
                "candidates": [
                    {
                        "content": {
                            "role": "model",
                            "parts": [
                                {"functionCall": {"id": id_, "name": name, "args": arguments}}
                                for id_, name, arguments in numbered
                            ],
                        }
                    }
                ]
            }
        case _:
            return {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": id_, "type": "function", "function": {"name": name, "arguments": as_text(arguments)}}
                    for id_, name, arguments in numbered
                ],
            }


def as_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def answers(vendor: str, messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """The text of each result in the messages to append, in order."""
    match vendor:
        case "openai-responses":
            return [_flat(item["output"]) for item in messages if item["type"] == "function_call_output"]
        case "anthropic":
            return [_flat(block["content"]) for message in messages for block in message["content"]]
        case "gemini":
            return [
                next(iter(part["functionResponse"]["response"].values()))
                for message in messages
                for part in message["parts"]
            ]
        case _:
            return [_flat(message["content"]) for message in messages if message["role"] == "tool"]


def ids(vendor: str, messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Which call each result answers."""
    match vendor:
        case "openai-responses":
            return [item["call_id"] for item in messages]
        case "anthropic":
            return [block["tool_use_id"] for message in messages for block in message["content"]]
        case "gemini":
            return [part["functionResponse"]["id"] for message in messages for part in message["parts"]]
        case _:
            return [message["tool_call_id"] for message in messages if message["role"] == "tool"]


def names(tools: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names in what is sent to any vendor as tools, in order."""
    found: list[str] = []
    for tool in tools:
        if "functionDeclarations" in tool:
            found += names(tool["functionDeclarations"])
        elif isinstance(tool.get("function"), Mapping):
            found.append(tool["function"]["name"])
        else:
            found.append(tool.get("name") or tool["type"])
    return found


def _flat(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content)
