"""The code in docs/auth.md."""

from __future__ import annotations

import re
import types
from pathlib import Path

import pytest

import outrider
from client.auth.conftest import Protected
from fakes.oauth_server import MACHINE_ID, MACHINE_SECRET
from outrider.client.auth import flow
from outrider.client.auth.flow import OAuth
from outrider.client.target import ClientOptions

PAGE = Path(__file__).resolve().parents[3] / "docs" / "auth.md"


@pytest.fixture(scope="module")
def documented() -> types.ModuleType:
    """What all code blocks of the page define, run one after the other."""
    module = types.ModuleType("documented")
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), module.__dict__)
    return module


def test_documented_authorizers_can_be_made(documented: types.ModuleType) -> None:
    """Ours: the code in docs/auth.md works as the text around it says"""

    async def token(*_: str) -> str:
        return "jwt"

    made = [
        documented.auth,
        documented.with_a_key("pem"),
        documented.with_the_platforms_token(token),
        documented.for_a_user_of_an_enterprise(token),
    ]
    assert all(isinstance(each, OAuth) for each in made)


async def test_documented_machine_signs_in(
    documented: types.ModuleType, protected: Protected, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours: with the id that the page leaves open"""

    def named(_: str, secret: str) -> flow.OAuthClient:
        return flow.OAuthClient(MACHINE_ID, secret)

    monkeypatch.setattr(documented, "OAuthClient", named)
    auth = documented.with_a_secret(MACHINE_SECRET)
    async with outrider.connect(protected.mcp, options=ClientOptions(auth=auth)) as client:
        assert len((await client.list_tools()).items) == 1
