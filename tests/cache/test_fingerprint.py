"""What makes two targets, or two contexts, the same; and the key that keeps secrets out of digests."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from outrider.cache import Fingerprinter
from outrider.errors import ConfigError

PRINTS = Fingerprinter(b"k" * 32)


def test_each_part_of_a_command_makes_another_target(tmp_path: Path) -> None:
    """Case 114: command, arguments, environment, folder."""
    prints = [
        PRINTS.stdio("demo"),
        PRINTS.stdio("demo2"),
        PRINTS.stdio("demo", ["a"]),
        PRINTS.stdio("demo", ["a", "b"]),
        PRINTS.stdio("demo", ["b", "a"]),
        PRINTS.stdio("demo", ["ab"]),
        PRINTS.stdio("demo", [], {"A": "1"}),
        PRINTS.stdio("demo", [], {"A": "2"}),
        PRINTS.stdio("demo", [], {"B": "1"}),
        PRINTS.stdio("demo", [], None, tmp_path),
        PRINTS.http("http://demo"),
        PRINTS.context(),
    ]
    assert len(set(prints)) == len(prints)
    assert PRINTS.stdio("demo", [], {"A": "1", "B": "2"}) == PRINTS.stdio("demo", (), {"B": "2", "A": "1"}, os.getcwd())


def test_each_part_of_an_http_target_makes_another() -> None:
    """Case 114: URL and headers; spelling that means the same is the same."""
    prints = [
        PRINTS.http("https://h/mcp"),
        PRINTS.http("http://h/mcp"),
        PRINTS.http("https://h/mcp/"),
        PRINTS.http("https://h/MCP"),
        PRINTS.http("https://h/mcp?key=1"),
        PRINTS.http("https://h:8443/mcp"),
        PRINTS.http("https://u:p@h/mcp"),
        PRINTS.http("https://h/mcp", {"X-Team": "a"}),
        PRINTS.http("https://h/mcp", {"X-Team": "b"}),
        PRINTS.http("https://h/mcp", [("X-Team", "a"), ("X-Team", "b")]),
    ]
    assert len(set(prints)) == len(prints)
    same = ["HTTPS://H/mcp", "https://h:443/mcp", "https://h/mcp#part"]
    assert {PRINTS.http(url) for url in same} == {prints[0]}
    assert PRINTS.http("https://h/mcp", {"x-team": " a "}) == prints[7]
    assert PRINTS.http("http://[::1]:80/") == PRINTS.http("http://[::1]")
    assert PRINTS.http("http://h:notaport/") != PRINTS.http("http://h/")


@pytest.mark.parametrize("as_argument", [False, True], ids=["command", "script"])
def test_an_upgraded_program_is_a_new_target(tmp_path: Path, as_argument: bool) -> None:
    """Ours: resolved path, size, time of change and inode of the command's file, and of a script among the
    arguments."""
    program = tmp_path / "server.py"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)

    def fingerprint() -> str:
        if as_argument:
            return PRINTS.stdio(sys.executable, ["-u", "server.py"], cwd=tmp_path)
        return PRINTS.stdio("server.py", env={"PATH": str(tmp_path)})

    first = fingerprint()
    assert fingerprint() == first
    program.write_text("#!/bin/sh\nexit\n")
    second = fingerprint()
    os.utime(program, ns=(1, 1))
    third = fingerprint()
    newer = tmp_path / "newer"
    newer.write_text("#!/bin/sh\nexit\n")
    newer.chmod(0o755)
    os.utime(newer, ns=(1, 1))
    newer.replace(program)
    fourth = fingerprint()
    program.unlink()
    assert len({first, second, third, fourth, fingerprint()}) == 5


def test_data_files_among_the_arguments_may_change(tmp_path: Path) -> None:
    """Ours: a database that the server writes does not make it another server each time."""
    database = tmp_path / "data.db"
    database.write_text("1")
    before = PRINTS.stdio("demo", ["--db", str(database)])
    database.write_text("22")
    assert PRINTS.stdio("demo", ["--db", str(database)]) == before


def test_every_credential_makes_another_context() -> None:
    """Case 65: header, custom header, environment, client certificate; none at all is a context of its own."""
    contexts = [
        PRINTS.context(),
        PRINTS.context({"header:authorization": "Bearer a"}),
        PRINTS.context({"header:authorization": "Bearer b"}),
        PRINTS.context({"header:x-api-key": "Bearer a"}),
        PRINTS.context({"env:TOKEN": "Bearer a"}),
        PRINTS.context({"header:authorization": "Bearer a", "client-certificate": "d"}),
        PRINTS.context([("header:authorization", "Bearer a"), ("header:authorization", "Bearer a")]),
    ]
    assert len(set(contexts)) == len(contexts)
    assert PRINTS.context({"Header:Authorization": "Bearer a"}) == contexts[1]


@pytest.mark.parametrize(
    "make",
    [
        lambda p: p.http("http://h", {"A": "s3cret"}),
        lambda p: p.stdio("c", [], {"A": "s3cret"}),
        lambda p: p.context({"a": "s3cret"}),
    ],
)
def test_a_digest_gives_no_secret_away(make: Callable[[Fingerprinter], str]) -> None:
    """Ours: nobody without the key can test a guess, and nothing shows the key."""
    mine, other = make(PRINTS), make(Fingerprinter(b"o" * 32))
    assert mine != other
    assert len(mine) == 32
    assert set(mine) <= set("0123456789abcdef")
    assert mine != hashlib.blake2b(b"s3cret", digest_size=16).hexdigest()
    assert "kkkk" not in repr(PRINTS)
    assert make(Fingerprinter(b"k" * 32)) == mine


def test_undecodable_names_have_fingerprints(tmp_path: Path) -> None:
    """Ours: the operating system hands over bytes that are no text."""
    odd = os.fsdecode(b"\xff\xfe")
    assert PRINTS.stdio("demo", [odd]) != PRINTS.stdio("demo", [odd + odd])


def test_keys_have_a_least_length_and_no_longest() -> None:
    """Ours: at the limit and one below."""
    assert Fingerprinter(b"k" * 16).context() != Fingerprinter(b"k" * 100).context()
    with pytest.raises(ConfigError):
        Fingerprinter(b"k" * 15)


def test_the_key_is_created_once_and_for_its_owner_only(tmp_path: Path) -> None:
    """Ours: mode 0600, in a folder made with 0700; the same for everyone who comes later."""
    path = tmp_path / "config" / "outrider" / "memory.key"
    first = Fingerprinter.for_user(path).context()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert path.stat().st_size == 32
    assert Fingerprinter.for_user(path).context() == first
    assert [entry.name for entry in path.parent.iterdir()] == ["memory.key"]


def test_a_damaged_key_is_replaced(tmp_path: Path) -> None:
    """Ours: cut short by a full disk, it protects nothing any more."""
    path = tmp_path / "memory.key"
    path.write_bytes(b"short")
    first = Fingerprinter.for_user(path).context()
    assert path.stat().st_size == 32
    assert Fingerprinter.for_user(path).context() == first


def test_without_a_place_for_the_key_there_is_one_for_this_process(tmp_path: Path) -> None:
    """Ours: a folder that cannot be made costs the memory across restarts, nothing else."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    path = blocked / "memory.key"
    assert Fingerprinter.for_user(path).context() != Fingerprinter.for_user(path).context()


def test_processes_that_start_together_agree_on_one_key(tmp_path: Path) -> None:
    """Ours: exactly one of them creates it, and none reads half of it."""
    path = tmp_path / "new" / "memory.key"
    code = (
        "import sys, pathlib; from outrider.cache.fingerprint import Fingerprinter; sys.stdin.readline();"
        f"print(Fingerprinter.for_user(pathlib.Path({str(path)!r})).context())"
    )
    starters = [
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    for starter in starters:
        assert starter.stdin is not None
        starter.stdin.write("go\n")
        starter.stdin.flush()
    printed = {starter.communicate(timeout=60)[0] for starter in starters}
    assert len(printed) == 1
    assert len(printed.pop().strip()) == 32
