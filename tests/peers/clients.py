"""Clients that nobody here wrote, to be pointed at a server of ours: the official SDKs', in each of their modes.

``tests/peers/client_programs/README.md`` says what a plan may contain and what a report looks like::

    @pytest.mark.interop
    @pytest.mark.parametrize("client", CLIENTS, ids=str)
    async def test_something(client: RealClient, environment) -> None:
        environment(client.environment)
        report = await run_client(client, [url], [{"call": "add", "arguments": {"a": 1, "b": 2}}])
        assert report["version"] == client.version
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from peers.provision import NODE, PYTHON_LEGACY, PYTHON_MODERN, Environment

PROGRAMS = Path(__file__).resolve().parent / "client_programs"
# Far above what a plan takes on a busy machine; it bounds one that hangs.
CLIENT_TIMEOUT_S = 120.0

MODERN, LEGACY = "2026-07-28", "2025-11-25"


@dataclass(frozen=True, slots=True)
class RealClient:
    """A client program and how it is told to negotiate.

    Attributes:
        id: Unique, and readable in a test's name.
        environment: Where it is installed.
        program: What follows the interpreter on its command line.
        mode: ``auto`` probes first, ``legacy`` only knows the handshake, a version is insisted on.
        version: What it ends up speaking with a server that knows both eras.
    """

    id: str
    environment: Environment
    program: tuple[str, ...]
    mode: Literal["auto", "legacy", "2026-07-28"]
    version: str

    def __str__(self) -> str:
        return self.id


_PYTHON_SDK2 = (PYTHON_MODERN, (str(PROGRAMS / "python_sdk2.py"),))
_PYTHON_SDK1 = (PYTHON_LEGACY, (str(PROGRAMS / "python_sdk1.py"),))
_TYPESCRIPT = (NODE, (str(PROGRAMS / "typescript_sdk2.mjs"), str(NODE.path)))

CLIENTS: tuple[RealClient, ...] = (
    RealClient("python-sdk2-auto", *_PYTHON_SDK2, "auto", MODERN),
    RealClient("python-sdk2-pinned", *_PYTHON_SDK2, "2026-07-28", MODERN),
    RealClient("python-sdk2-legacy", *_PYTHON_SDK2, "legacy", LEGACY),
    RealClient("python-sdk1", *_PYTHON_SDK1, "legacy", LEGACY),
    RealClient("typescript-sdk2-auto", *_TYPESCRIPT, "auto", MODERN),
    RealClient("typescript-sdk2-pinned", *_TYPESCRIPT, "2026-07-28", MODERN),
    RealClient("typescript-sdk2-legacy", *_TYPESCRIPT, "legacy", LEGACY),
)


class ClientFailed(Exception):
    """A client did not carry out its plan; the text has its output."""


async def run_client(
    client: RealClient, target: Sequence[str], plan: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Lets a client carry out a plan against a server and returns its report.

    Args:
        client: A row of the table, installed.
        target: A URL alone, or a command and its arguments.
        plan: Steps as in README.md; without any, the client connects and lists tools.

    Raises:
        ClientFailed: if it does not succeed within ``CLIENT_TIMEOUT_S``.
    """
    interpreter = client.environment.node if client.environment is NODE else client.environment.python
    process = await asyncio.create_subprocess_exec(
        interpreter,
        *client.program,
        client.mode,
        json.dumps(list(plan)),
        *target,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(CLIENT_TIMEOUT_S):
            output, errors = await process.communicate()
    except TimeoutError:
        raise ClientFailed(f"{client.id} did not finish within {CLIENT_TIMEOUT_S:g} s") from None
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode != 0:
        raise ClientFailed(f"{client.id} exited with {process.returncode}\n{errors.decode(errors='replace')[-4000:]}")
    report: dict[str, Any] = json.loads(output)
    return report
