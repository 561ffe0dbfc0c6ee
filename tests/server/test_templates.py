"""URI templates used backwards."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.server.templates import UriTemplate


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("test://template/{id}/data", "test://template/123/data", {"id": "123"}),
        ("test://template/{id}/data", "test://template//data", None),
        ("test://template/{id}/data", "test://template/1/2/data", None),
        ("db://{table}-{row}", "db://users-7-b", {"table": "users", "row": "7-b"}),
        ("file:///{+path}", "file:///a/b/c.txt", {"path": "a/b/c.txt"}),
        ("file:///{+path}/raw", "file:///a/b/raw", {"path": "a/b"}),
        ("x://h{/kind}", "x://h/cats", {"kind": "cats"}),
        ("x://h{/rest*}", "x://h/a/b", {"rest": "a/b"}),
        ("x://h/{id}{?page,size}", "x://h/1?size=5", {"id": "1", "size": "5"}),
        ("x://h/{id}{?page,size}", "x://h/1", {"id": "1"}),
        ("x://h/{id}{?page,size}", "x://h/1?other=5", None),
        ("x://h/{id}{?page}", "x://h/1?page=1&page=2", None),
        ("x://h/{name}", "x://h/caf%C3%A9", {"name": "café"}),
        ("x://h/{name}", "x://h/%FF", None),
        ("x://h.i/{name}", "x://hxi/a", None),
    ],
)
def test_template_matches(template: str, uri: str, values: dict[str, str] | None) -> None:
    """Spec: RFC 6570 backwards, as far as it is unambiguous."""
    assert UriTemplate(template).match(uri) == values


@pytest.mark.parametrize("path", ["../etc/passwd", "a/../../b", "a%2F..%2Fb", "..", "a/..%5Cb", "a%00b"])
def test_value_that_could_leave_a_directory_does_not_match(path: str) -> None:
    """Spec: 2026-07-28 server/resources#security-considerations (MUST prevent directory traversal)"""
    assert UriTemplate("file:///{+path}").match(f"file:///{path}") is None


def test_dot_segments_can_be_allowed() -> None:
    """Ours: for values that never become a path."""
    assert UriTemplate("x://{+q}", allow_dot_segments=True).match("x://a/../b") == {"q": "a/../b"}


@pytest.mark.parametrize(
    "bad", ["x://{a}{b}", "x://{+a}/{+b}", "x://{a}/{a}", "x://{#a}", "x://{a:3}", "x://{?a}/b", "x://{}", "x://{a,b}"]
)
def test_template_that_cannot_be_matched_is_refused(bad: str) -> None:
    """Ours: said at registration, not by a wrong answer later."""
    with pytest.raises(ValueError):
        UriTemplate(bad)


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=30))
def test_any_encoded_value_comes_back(value: str) -> None:
    """Ours: a round trip, but for values that could leave a directory."""
    found = UriTemplate("x://h/{v}/end").match(f"x://h/{quote(value, safe='')}/end")
    harmless = "\0" not in value and ".." not in value.replace("\\", "/").split("/")
    assert found == ({"v": value} if harmless else None)


def test_matching_is_linear_in_hostile_uris() -> None:
    """Ours: a variable stops at the next literal's character, so no backtracking multiplies; the longest accepted URI ends at once."""
    template = UriTemplate("x://{a}-{b}-{c}-{d}-{e}/end")
    assert template.match("x://" + "-" * 8000) is None
    assert template.match("x://" + "a-" * 4000) is None
    assert template.match("x://" + "a" * 1_000_000) is None
