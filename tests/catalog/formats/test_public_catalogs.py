"""Thousands of real definitions, for every vendor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from catalog.formats.documented import complaints
from outrider.catalog.formats import RULES, ToolRef, Vendor, offer

# A sample is part of the project. Where the whole sets stand beside the checkout, all of them are tried too.
SAMPLE = Path(__file__).resolve().parent / "definitions" / "sample" / "tools.jsonl"
WHOLE_SETS = Path(__file__).resolve().parents[4] / "shared" / "toolsearch"
FILES = [SAMPLE, *sorted(WHOLE_SETS.glob("*/tools.jsonl"))]
QUICK = {"sample", "livemcpbench", "azure_mcp"}


# Asking for strict tools makes a difference only to vendors that have them and do not mark them by themselves.
WAYS = [(vendor, "auto") for vendor in Vendor] + [
    (vendor, True) for vendor, rules in RULES.items() if rules.strict is not None and not rules.is_strict_by_default
]
# Sixteen thousand definitions much like the others': all of them in the usual way, every eighth batch in the other.
LARGE = {"toucan_mcp"}


def batches(path: Path, size: int = 128) -> list[list[tuple[ToolRef, dict[str, Any]]]]:
    tools = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
        entry = json.loads(line)
        wire = {"name": entry["name"], "description": entry.get("description"), "inputSchema": entry["input_schema"]}
        # A list may name a tool twice; every definition is tried.
        tools.append((ToolRef(f"s{number}", entry["name"]), wire))
    return [tools[start : start + size] for start in range(0, len(tools), size)]


@pytest.mark.parametrize(("vendor", "strict"), WAYS, ids=lambda value: str(value))
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[] if path.parent.name in QUICK else [pytest.mark.slow]) for path in FILES],
    ids=[path.parent.name for path in FILES],
)
def test_every_definition_of_the_public_catalogs_is_one_the_vendor_takes(
    path: Path, vendor: Vendor, strict: Any
) -> None:
    """Ours: real catalogs convert for every vendor without one tool left out, and what goes out keeps the vendor's own rules."""
    for batch in batches(path)[:: 8 if strict is True and path.parent.name in LARGE else 1]:
        offered = offer(vendor, batch, strict=strict)
        assert not offered.left_out
        assert not complaints(vendor, offered.tools)
        assert list(offered.entries) == [ref for ref, _ in batch]
