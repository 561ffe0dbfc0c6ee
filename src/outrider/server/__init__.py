"""What a server author uses: `Server`, what its functions may return, and what they may ask of a client.

Follow a request through `http` or `stdio`, `dispatch`, `registry`, `running`, `schemas` and `context`; see `docs/design/server.md`.
"""

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
from outrider.server.http import HttpOptions, Unauthorized
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
from outrider.server.registry import Principal

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
    "Text",
    "ToolError",
    "ToolReply",
    "Unauthorized",
    "WireQuestion",
    "WireResult",
]
