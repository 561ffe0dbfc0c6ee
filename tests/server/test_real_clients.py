"""Legacy clients that nobody here wrote, against a server of ours that only speaks modern versions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from peers.clients import CLIENTS, ClientFailed, RealClient, run_client
from peers.provision import Environment
from server.serving import OUTRIDER, PROGRAM

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("client", [client for client in CLIENTS if client.mode == "legacy"], ids=str)
async def test_legacy_client_learns_what_a_modern_server_speaks(
    client: RealClient, environment: Callable[[Environment], Environment]
) -> None:
    """Spec: 2026-07-28 basic/versioning (SHOULD). Case 141: the name of the version is in the client's own error.

    Over stdio: some clients show nothing of an HTTP answer but its status.
    """
    environment(client.environment)
    with pytest.raises(ClientFailed, match="2026-07-28"):
        await run_client(client, [OUTRIDER, "run", str(PROGRAM), "--modern-only"])
