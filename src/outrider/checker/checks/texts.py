"""Checks of everything that a model reads: what is hidden in it, what it orders, what it is good for."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

from outrider.checker.checks import Docket, check
from outrider.checker.speakers import Answer
from outrider.checker.subject import Subject

_MAX_INSTRUCTIONS: Final = 4_000
_KEPT_CONTROLS: Final = frozenset("\t\n\r")
_JOINERS: Final = frozenset("\u200c\u200d\ufe0e\ufe0f")
_ORDERS: Final = re.compile(
    r"(?i)\b(?:ignore|disregard|forget|override)\b[^.\n]{0,30}\b(?:previous|prior|above|earlier|all|other)\b[^.\n]{0,30}"
    r"\b(?:instructions?|rules?|prompts?|tools?|context)\b"
    r"|</?\s*(?:system|important|instructions?|assistant|secret)\s*>"
    r"|\bdo not (?:tell|inform|mention|reveal|show)\b[^.\n]{0,40}\b(?:the )?user\b"
    r"|\b(?:you must|always) (?:call|use|run) this (?:tool )?(?:first|before)\b"
    r"|\b(?:reveal|print|send|include)\b[^.\n]{0,30}\b(?:system prompt|api[ _-]?keys?|\.ssh|id_rsa|credentials)\b"
)
_PRAISE: Final = re.compile(
    r"(?i)\b(?:best|leading|powerful|amazing|awesome|revolutionary|world-class|cutting-edge|state-of-the-art|seamless(?:ly)?|"
    r"effortless(?:ly)?|ultimate|premier|unparalleled|blazing(?:ly)?[- ]fast|industry-leading|next-generation)\b"
)


@check("text.hidden", "text.injection", "text.instructions-useful")
async def texts_are_honest(subject: Subject, docket: Docket) -> None:
    """Everything that a model reads."""
    instructions = subject.described.get("instructions")
    evidence = subject.discovery[:1] or ((subject.legacy.opening,) if subject.legacy else ())
    for where, text, answers in _texts(subject, instructions, evidence):
        hidden = sorted({f"U+{ord(c):04X}" for c in text if _is_hidden(c)})
        docket.require(not hidden, "text.hidden", f"{where} holds {', '.join(hidden[:5])}", *answers)
        order = _ORDERS.search(text)
        docket.require(not order, "text.injection", f"{where} says {order[0]!r}" if order else "", *answers)
    if isinstance(instructions, str) and instructions:
        words = len(instructions.split())
        praise = len(_PRAISE.findall(instructions))
        docket.require(
            len(instructions) <= _MAX_INSTRUCTIONS and not (praise >= 2 and praise * 15 >= words),
            "text.instructions-useful",
            f"they have {len(instructions):,} characters, and {praise} words of praise",
            *evidence,
        )


def _texts(
    subject: Subject, instructions: object, evidence: tuple[Answer, ...]
) -> Iterator[tuple[str, str, tuple[Answer, ...]]]:
    if isinstance(instructions, str):
        yield "instructions", instructions, evidence
    for listed in subject.lists.values():
        for label, item in listed.named():
            for member in ("name", "title", "description"):
                if isinstance(item.get(member), str):
                    yield f"the {member} of {label}", item[member], (listed.pages[0],)
            schema = item.get("inputSchema")
            properties = schema.get("properties") if isinstance(schema, dict) else None
            for name, part in properties.items() if isinstance(properties, dict) else ():
                if isinstance(part, dict) and isinstance(part.get("description"), str):
                    yield f"the parameter {name!r} of {label}", part["description"], (listed.pages[0],)


def _is_hidden(character: str) -> bool:
    """Controls, bidirectional controls, zero-width and tag characters; not the joiners that emoji and some scripts need."""
    if character in _KEPT_CONTROLS or character in _JOINERS:
        return False
    return unicodedata.category(character) in ("Cc", "Cf", "Co", "Cs")
