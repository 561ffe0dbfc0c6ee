"""What a server author uses: `Server`, what its functions may return, and what they may ask of a client.

Follow a request through `http` or `stdio`, `dispatch`, `registry`, `running`, `schemas` and `context`; see `docs/design/server.md`.

A server over stdio starts without the HTTP transport: its names are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.server.annotations import Mirrored
from outrider.server.app import Server, ServerOptions
from outrider.server.content import (
    Annotations,
    Audio,
    Contents,
    Embedded,
    Image,
    Link,
    Message,
    PromptReply,
    ResourceReply,
    Text,
    ToolError,
    ToolReply,
    WireResult,
)
from outrider.server.context import Context, RequestRejected
from outrider.server.inputs import (
    Elicit,
    Elicited,
    ElicitUrl,
    InputRequest,
    ListRoots,
    Root,
    Sample,
    Sampled,
    WireQuestion,
)
from outrider.server.registry import Principal, TaskSupport
from outrider.server.task_store import MemoryTaskStore, TaskRecord, TaskStore, TooManyTasks
from outrider.server.tasks import TaskOptions

if TYPE_CHECKING:
    from outrider.server.http import HttpOptions, Unauthorized

__all__ = [
    "Annotations",
    "Audio",
    "Contents",
    "Context",
    "Elicit",
    "ElicitUrl",
    "Elicited",
    "Embedded",
    "HttpOptions",
    "Image",
    "InputRequest",
    "Link",
    "ListRoots",
    "MemoryTaskStore",
    "Message",
    "Mirrored",
    "Principal",
    "PromptReply",
    "RequestRejected",
    "ResourceReply",
    "Root",
    "Sample",
    "Sampled",
    "Server",
    "ServerOptions",
    "TaskOptions",
    "TaskRecord",
    "TaskStore",
    "TaskSupport",
    "Text",
    "TooManyTasks",
    "ToolError",
    "ToolReply",
    "Unauthorized",
    "WireQuestion",
    "WireResult",
]


def __getattr__(name: str) -> object:
    if name not in ("HttpOptions", "Unauthorized"):
        raise AttributeError(f"module 'outrider.server' has no attribute {name!r}")
    from outrider.server import http

    value = getattr(http, name)
    globals()[name] = value
    return value
