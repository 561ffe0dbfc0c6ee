"""Versions: which are spoken, which era each is, and how one is chosen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.protocol.versions import LEGACY_VERSIONS, MODERN_VERSIONS, VERSIONS, Era, era_of, pick_version

offers = st.lists(st.sampled_from([*VERSIONS, "2027-03-01", "1999-01-01", "", "draft", "2026-07-28 "]))


def test_the_table_of_revisions() -> None:
    """Spec versioning#terminology: 2026-07-28 is modern; the four revisions before it are legacy."""
    assert MODERN_VERSIONS == ("2026-07-28",)
    assert LEGACY_VERSIONS == ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
    assert tuple(VERSIONS) == MODERN_VERSIONS + LEGACY_VERSIONS


@pytest.mark.parametrize("version", ["2027-03-01", "2026-07-27", "1.0", "", "2026-07-28 ", "２０２６-07-28"])
def test_an_unknown_version_has_no_era(version: str) -> None:
    """Case 155: a version is looked up, never compared as a date."""
    assert era_of(version) is None
    assert pick_version([version]) is None


def test_the_order_of_an_offer_does_not_matter() -> None:
    """Ours: we choose what we like best, so that both orders lead to the same conversation."""
    assert pick_version(["2025-03-26", "2025-11-25", "2025-06-18"]) == "2025-11-25"
    assert pick_version(["2025-03-26", "2026-07-28"]) == "2026-07-28"


@given(offered=offers, refused=offers, era=st.sampled_from([None, *Era]))
def test_the_choice_is_the_best_that_is_left(offered: list[str], refused: list[str], era: Era | None) -> None:
    """Spec versioning#protocol-version-negotiation (SHOULD): of what both speak, the one we like best."""
    left = [
        version
        for version in VERSIONS
        if version in offered and version not in refused and era in (None, era_of(version))
    ]
    assert pick_version(offered, era=era, excluding=refused) == (left[0] if left else None)
