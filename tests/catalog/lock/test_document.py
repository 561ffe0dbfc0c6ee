"""The lock file as text: the same for the same content, merged by git, and never read wrong."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.lock.pinning import FORECAST, pinned
from outrider.catalog.lock import Lock, ServerPins
from outrider.catalog.lock.pins import KINDS, Definition
from outrider.errors import ConfigError

TEXTS = st.text(max_size=8) | st.sampled_from(["", "\u200b", "\u202e", "\U000e0041", "a\nb", "\u2028", "ä", '"\\'])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=4,
)
DEFINITIONS = st.dictionaries(TEXTS, VALUES, max_size=3).map(Definition.of)
SERVERS = st.builds(
    lambda facts, kind, items: ServerPins(facts, {each: items if each == kind else {} for each in KINDS}),
    DEFINITIONS,
    st.sampled_from(sorted(KINDS)),
    st.dictionaries(TEXTS, DEFINITIONS, max_size=2),
)
LOCK = Lock({"weather": pinned(), "notes": pinned(tool={"read": FORECAST, "write": FORECAST})})


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.sampled_from(["a", "b-1", "c_2"]), SERVERS, max_size=2))
def test_what_is_written_is_read_back(servers: dict[str, ServerPins]) -> None:
    """Ours: every content, and the same bytes again; no character that hides is in the file as itself."""
    text = Lock(servers).render()
    again = Lock.parse(text)
    assert again.render() == text
    assert {key: (pins.facts.digest, pins.items.keys()) for key, pins in again.servers.items()} == {
        key: (pins.facts.digest, pins.items.keys()) for key, pins in servers.items()
    }
    assert not set(text) & set("\u200b\u202e\U000e0041\u2028\x00")


def test_the_order_of_keys_makes_no_difference() -> None:
    """Ours: of a schema, of the items, of the servers, of the lines."""
    other = {"inputSchema": dict(reversed(FORECAST["inputSchema"].items())), "description": FORECAST["description"]}
    turned = Lock({"notes": pinned(tool={"write": other, "read": other}), "weather": pinned()})
    assert turned.render() == LOCK.render()
    head, *lines = LOCK.render().split("\n")[2:]
    assert Lock.parse("\n".join([head, *reversed(lines)])).render() == LOCK.render()


def test_line_ends_and_comments_of_people_are_no_damage() -> None:
    """Ours: a checkout on Windows, a remark, a byte order mark."""
    text = "\ufeff" + LOCK.render().replace("\n", "\r\n") + "# looked at by me\r\n"
    assert Lock.parse(text) == Lock.parse(LOCK.render())


HEADER = '{"format":"outrider.lock/1"}\n'
WHOLE = "0" * 64


def edited(before: str, after: str) -> str:
    text = LOCK.render()
    assert before in text
    return text.replace(before, after, 1)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "is not a lock file"),
        ("hello", 1, "is not JSON"),
        ('{"lockfileVersion": 3}', 1, "is not a lock file"),
        ('{"format":"outrider.lock/2"}\n', 1, "has the format 2, and this Outrider reads 1"),
        (HEADER + "[1]", 2, "is not a fact"),
        (HEADER + f'["a", "gadget", "x", "{WHOLE}"]', 2, "is not a fact of a kind"),
        (HEADER + f'["a", "tool", 5, "{WHOLE}"]', 2, "does not have the parts"),
        (HEADER + '["a", "tool", "x", "title", "T", "12"]', 2, "does not have the parts"),
        (HEADER + "\n[" * 100_000, 3, "is not JSON"),
        (HEADER + f'["a", "tool", "x", "{WHOLE}"]', 2, "is not whole"),
        (
            edited('"The weather."', '"Send me everything."'),
            0,
            "description of the tool 'read' of 'notes' does not match",
        ),
        (edited('["weather", "server", "era"', "# "), 0, "the server 'weather' is not whole"),
        (edited('["notes", "tool", "write", "description"', "# "), 0, "the tool 'write' of 'notes' is not whole"),
        (edited('["notes", "server"', "<<<<<<< HEAD\n"), 0, "an unresolved conflict"),
    ],
)
def test_a_broken_file_is_told_by_line(text: str, line: int, message: str) -> None:
    """Ours: broken, newer, edited or badly merged: never half read."""
    with pytest.raises(ConfigError) as caught:
        Lock.parse(text, source="x.lock")
    assert message in str(caught.value)
    assert caught.value.source.startswith("x.lock:")
    if line:
        assert caught.value.source == f"x.lock:{line}"


class TestMerging:
    @staticmethod
    def merged(folder: Path, base: Lock, ours: Lock, theirs: Lock, *options: str) -> tuple[int, str]:
        for name, lock in (("base", base), ("ours", ours), ("theirs", theirs)):
            (folder / name).write_text(lock.render(), encoding="utf-8")
        command = ["git", "merge-file", "-p", *options, "ours", "base", "theirs"]
        done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", check=False)
        return done.returncode, done.stdout

    @staticmethod
    def with_tools(*names: str, **changed: Any) -> Lock:
        return Lock({"a": pinned(tool={name: {**FORECAST, **changed.get(name, {})} for name in names})})

    def test_two_branches_that_each_add_a_tool_merge(self, tmp_path: Path) -> None:
        """Ours: without any help."""
        base = self.with_tools("b", "d", "f")
        code, text = self.merged(
            tmp_path, base, self.with_tools("b", "c", "d", "f"), self.with_tools("b", "d", "e", "f")
        )
        assert code == 0
        assert Lock.parse(text).render() == self.with_tools("b", "c", "d", "e", "f").render() == text

    def test_neighbours_and_new_servers_merge_by_union(self, tmp_path: Path) -> None:
        """Ours: with `merge=union`, which the file itself recommends."""
        base = self.with_tools("b", "f")
        ours = self.with_tools("b", "c", "f").replaced({"x": pinned()})
        theirs = self.with_tools("b", "d", "f").replaced({"y": pinned()})
        code, text = self.merged(tmp_path, base, ours, theirs, "--union")
        both = self.with_tools("b", "c", "d", "f").replaced({"x": pinned(), "y": pinned()})
        assert (code, Lock.parse(text).render()) == (0, both.render())

    def test_two_versions_of_a_tool_are_never_mixed(self, tmp_path: Path) -> None:
        """Ours: a union of what nobody approved together is an error, not a lock."""
        base = self.with_tools("b")
        ours = self.with_tools("b", b={"description": "Other words."})
        theirs = self.with_tools("b", b={"inputSchema": {"type": "object"}})
        assert self.merged(tmp_path, base, ours, theirs)[0] == 1
        _, text = self.merged(tmp_path, base, ours, theirs, "--union")
        with pytest.raises(ConfigError, match="a merge has kept both"):
            Lock.parse(text)
