"""The tasks extension: what a task is, which status may follow which, how one is read, and how often it is asked for.

Decided here: the shapes, the table of statuses, what of a server's task is believed and what bounds it has, and the time between two
polls. Not here: polling itself (`client.tasks`), keeping and running tasks (`server.tasks`), and the older, experimental tasks of
2025-11-25, which are another protocol under the same name and are not spoken.

Spec: io.modelcontextprotocol/tasks (SEP-2663). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from outrider.errors import LimitExceeded, LocalProtocolError, RemoteProtocolError

__all__ = [
    "CANCEL",
    "DEFAULT_POLL_MS",
    "EXTENSION",
    "GET",
    "MAX_INPUT_REQUESTS",
    "MAX_POLL_MS",
    "MAX_TASK_ID_CHARS",
    "MAX_TTL_MS",
    "METHODS",
    "MIN_POLL_MS",
    "NOTIFICATION",
    "RESULT_TYPE",
    "TASK_METHODS",
    "TRANSITIONS",
    "UPDATE",
    "Task",
    "TaskStatus",
    "declares",
    "moved",
    "poll_delay_s",
    "read_task",
    "render_task",
    "required_capabilities",
]

EXTENSION: Final = "io.modelcontextprotocol/tasks"
GET: Final = "tasks/get"
UPDATE: Final = "tasks/update"
CANCEL: Final = "tasks/cancel"
METHODS: Final = (GET, UPDATE, CANCEL)
NOTIFICATION: Final = "notifications/tasks"
RESULT_TYPE: Final = "task"
TASK_METHODS: Final = frozenset({"tools/call"})
"""The requests that may be answered with a task. Spec: #supported-methods"""

MAX_TASK_ID_CHARS: Final = 1_000
"""Over HTTP the identifier travels in a header too, and servers seldom take more than 8,000 bytes of those."""
MAX_INPUT_REQUESTS: Final = 100
MAX_TTL_MS: Final = 10 * 365 * 24 * 3600 * 1000
"""A longer life reads as this one: what a server says must not overflow a clock."""
MIN_POLL_MS: Final = 100
MAX_POLL_MS: Final = 5 * 60 * 1000
DEFAULT_POLL_MS: Final = 500
_SLOWEST_DEFAULT_MS: Final = 10_000
_RULE: Final = "io.modelcontextprotocol/tasks"


class TaskStatus(StrEnum):
    """Where a task stands. Spec: #task-status"""

    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """Whether nothing follows."""
        return not TRANSITIONS[self]


_TERMINAL: Final = frozenset({TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELLED})
TRANSITIONS: Final[Mapping[TaskStatus, frozenset[TaskStatus]]] = {
    TaskStatus.WORKING: frozenset({TaskStatus.WORKING, TaskStatus.INPUT_REQUIRED}) | _TERMINAL,
    TaskStatus.INPUT_REQUIRED: frozenset({TaskStatus.INPUT_REQUIRED, TaskStatus.WORKING}) | _TERMINAL,
    TaskStatus.COMPLETED: frozenset(),
    TaskStatus.FAILED: frozenset(),
    TaskStatus.CANCELLED: frozenset(),
}
"""What may follow each status; staying is progress within it. Spec: #task-status, state diagram"""


class Task(Struct, frozen=True, kw_only=True):
    """A task as its server tells it.

    Attributes:
        task_id: the server's name for it, and the only key to it: keep it as secret as what it works on.
        status: where it stands.
        status_message: what is going on, for people, or "". Of a server: untrusted.
        created_at: when it was created, ISO 8601, or "" if the server does not say.
        last_updated_at: when it last changed, likewise.
        ttl_ms: how long from its creation the server keeps it, in milliseconds; None for no limit.
        poll_interval_ms: how long the server wants to be left alone between two polls, in milliseconds, or None.
        input_requests: what the server asks while the status is `input_required`, `{"method": str, "params": {…}}` by key.
        result: the result of a completed task, as the request would have had it; None before.
        error: the JSON-RPC error of a failed task, `{"code": int, "message": str, "data"?: …}`; None otherwise.
    """

    task_id: str
    status: TaskStatus
    status_message: str = ""
    created_at: str = ""
    last_updated_at: str = ""
    ttl_ms: int | None = None
    poll_interval_ms: int | None = None
    input_requests: Mapping[str, Any] = {}
    result: Any = None
    error: Mapping[str, Any] | None = None


def declares(capabilities: Any) -> bool:
    """Whether client or server capabilities, in the wire's shape, declare the extension. The older `tasks` capability does not count.

    Spec: #capability-negotiation, #backwards-compatibility (MUST treat as non-declaring)
    """
    extensions = capabilities.get("extensions") if isinstance(capabilities, dict) else None
    return isinstance(extensions, dict) and isinstance(extensions.get(EXTENSION), dict)


def required_capabilities() -> dict[str, Any]:
    """The `data` of the error for a client that does not declare the extension. Spec: #capability-negotiation (MUST)"""
    return {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}


def moved(task: Task, status: TaskStatus, now: str, **changes: Any) -> Task:
    """The task one step later.

    Args:
        task: as it is.
        status: the status that follows.
        now: the time, ISO 8601.
        changes: other attributes that change with it.

    Raises:
        LocalProtocolError: this status cannot follow that one.
    """
    if status not in TRANSITIONS[task.status]:
        raise LocalProtocolError(f"a task that is {task.status} does not become {status}")
    if status is not TaskStatus.INPUT_REQUIRED:
        changes = {"input_requests": {}, **changes}
    return replace(task, status=status, last_updated_at=now, **changes)


def render_task(task: Task, *, detailed: bool) -> dict[str, Any]:
    """The task's members in wire names.

    Args:
        task: the task.
        detailed: with what its status brings (requests, result or error), as in answers to `tasks/get` and in notifications; without it,
            the task as the answer to the request that created it.

    Spec: #tasks, #task-creation
    """
    members: dict[str, Any] = {"taskId": task.task_id, "status": task.status.value}
    if task.status_message:
        members["statusMessage"] = task.status_message
    members |= {"createdAt": task.created_at, "lastUpdatedAt": task.last_updated_at, "ttlMs": task.ttl_ms}
    if task.poll_interval_ms is not None:
        members["pollIntervalMs"] = task.poll_interval_ms
    if detailed:
        if task.status is TaskStatus.INPUT_REQUIRED:
            members["inputRequests"] = task.input_requests
        elif task.status is TaskStatus.COMPLETED:
            members["result"] = task.result
        elif task.status is TaskStatus.FAILED:
            members["error"] = task.error
    return members


def read_task(wire: Mapping[str, Any], what: str, *, detailed: bool) -> Task:
    """Read a task that a server sent.

    What decides about the next step must be sound: the identifier, the status, and what a detailed task's status brings. The rest is for
    people and for patience: what cannot be read of it reads as absent, and what is absurd is capped.

    Args:
        wire: the decoded members.
        what: where it stood, for errors, such as "the answer to tasks/get".
        detailed: whether requests, result or error must be there.

    Raises:
        RemoteProtocolError: it cannot be acted on.
        LimitExceeded: an identifier too long for a header, or too many questions at once.
    """
    task_id, word = wire.get("taskId"), wire.get("status")
    if not isinstance(task_id, str) or not task_id:
        raise RemoteProtocolError(f"{what} has no taskId", rule=_RULE)
    if len(task_id) > MAX_TASK_ID_CHARS:
        raise LimitExceeded(f"{what} has a taskId of more than {MAX_TASK_ID_CHARS} characters", rule=_RULE)
    try:
        status = TaskStatus(str(word))
    except ValueError:
        raise RemoteProtocolError(f"{what} has the unknown status {str(word)[:40]!r}", rule=_RULE) from None
    requests: Mapping[str, Any] = {}
    result, error = None, None
    if detailed and status is TaskStatus.INPUT_REQUIRED:
        requests = _read_requests(wire.get("inputRequests"), what)
    elif detailed and status is TaskStatus.COMPLETED:
        result = wire.get("result")
        if not isinstance(result, dict):
            raise RemoteProtocolError(f"{what} has completed without a result", rule=_RULE)
    elif detailed and status is TaskStatus.FAILED:
        error = _read_error(wire.get("error"), what)
    return Task(
        task_id=task_id,
        status=status,
        status_message=_text(wire.get("statusMessage")),
        created_at=_text(wire.get("createdAt"))[:64],
        last_updated_at=_text(wire.get("lastUpdatedAt"))[:64],
        ttl_ms=_milliseconds(wire.get("ttlMs"), MAX_TTL_MS),
        poll_interval_ms=_milliseconds(wire.get("pollIntervalMs"), MAX_POLL_MS),
        input_requests=requests,
        result=result,
        error=error,
    )


def _read_requests(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict) or not all(
        isinstance(request, dict) and isinstance(request.get("method"), str) for request in value.values()
    ):
        raise RemoteProtocolError(f"{what} asks for input in a form that cannot be read", rule=_RULE)
    if len(value) > MAX_INPUT_REQUESTS:
        raise LimitExceeded(f"{what} asks more than {MAX_INPUT_REQUESTS} things at once", rule=_RULE)
    return value


def _read_error(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict) or type(value.get("code")) is not int:
        raise RemoteProtocolError(f"{what} has failed without an error", rule=_RULE)
    return {**value, "message": _text(value.get("message"))}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _milliseconds(value: Any, most: int) -> int | None:
    # Some languages write whole numbers as 5000.0; NaN compares false with everything.
    if not isinstance(value, int | float) or isinstance(value, bool) or not value >= 0:
        return None
    return most if value >= most else int(value)


def poll_delay_s(poll_interval_ms: int | None, polls: int) -> float:
    """How long to wait before the next poll, in seconds.

    Args:
        poll_interval_ms: what the server wants, in milliseconds; None or 0 if it does not say, or says nothing usable.
        polls: how many polls have been made, from 0.

    The server's interval holds between 0.1 s and 5 minutes. Without one the first polls are half a second apart, later ones up to 10 s.

    Spec: #task-polling (SHOULD respect)
    """
    if not poll_interval_ms:
        return min(DEFAULT_POLL_MS * 1.5 ** min(polls, 20), _SLOWEST_DEFAULT_MS) / 1000
    return min(max(poll_interval_ms, MIN_POLL_MS), MAX_POLL_MS) / 1000
