"""Judges what a client sent by the types of the official Python SDK: run by the interpreter of the environment that has it.

Reads one JSON object a line, ``{"version": …, "message": …}``, and writes one line for each: what is wrong with the message under that
protocol version, or nothing. Members that the SDK's types do not know are wrong too, outside of ``_meta`` and a tool's arguments.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from mcp_types import methods
from mcp_types.jsonrpc import jsonrpc_message_adapter
from pydantic import ValidationError

FREE = {"_meta", "arguments"}


def complaint(version: str, message: dict[str, Any]) -> str:
    """What is wrong with a message, or ""."""
    try:
        jsonrpc_message_adapter.validate_python(message, strict=True)
        if "method" not in message:
            return (
                "" if "error" in message or message.get("result") == {} else "a result that the SDK was not asked about"
            )
        method, params = message["method"], message.get("params")
        surface = methods.CLIENT_REQUESTS if "id" in message else methods.CLIENT_NOTIFICATIONS
        model = surface[(method, version)].model_validate(message, by_name=False)
    except KeyError as unknown:
        return f"not a message of {version}: {unknown}"
    except ValidationError as invalid:
        return str(invalid).replace("\n", " ")
    known = model.model_dump(by_alias=True, exclude_unset=True, mode="json").get("params") or {}
    extra = unknown_members(params or {}, known)
    return f"{method} has members that {version} does not know: {extra}" if extra else ""


def unknown_members(sent: Any, known: Any) -> list[str]:
    """The names of members that were sent and that the types dropped."""
    if not isinstance(sent, dict) or not isinstance(known, dict):
        return []
    found = [name for name in sent if name not in known and name not in FREE]
    for name in sent.keys() & known.keys() - FREE:
        found += [f"{name}.{inner}" for inner in unknown_members(sent[name], known[name])]
    return found


for line in sys.stdin:
    record = json.loads(line)
    print(complaint(record["version"], record["message"]), flush=True)
