"""The checks: functions that try one requirement or a group of them on a subject and write down what they find.

Decided here: how a check is registered, and how it writes down what it finds. Not here: which checks run when, and how rulings become
verdicts (`run`).

A check never raises for what a server does. What it cannot tell, it says: `Docket.unclear`. A requirement about which a check says
nothing is not applicable: what the rule is about was not there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import IntEnum, StrEnum
from typing import Final

from msgspec import Struct, field

from outrider.checker.speakers import Answer, Exchange, Outcome
from outrider.checker.subject import Subject

__all__ = ["CHECKS", "Check", "Docket", "Phase", "Ruling", "Verdict", "check"]

_MAX_MESSAGES: Final = 6
_MAX_EVIDENCE: Final = 4


class Verdict(StrEnum):
    """What was found about one requirement."""

    PASS = "pass"
    FAIL = "fail"
    """A MUST is broken."""
    WARN = "warn"
    """A SHOULD, a MAY or a rule of quality is broken."""
    NOT_APPLICABLE = "not applicable"
    NOT_VERIFIABLE = "not verifiable"


class Phase(IntEnum):
    """When a check runs. Checks of one phase may run at the same time."""

    FIRST = 0
    """Alone and on idle connections: what measures times."""
    MAIN = 1
    HOSTILE = 2
    """One after the other: what may break a connection."""
    LAST = 3
    """After everything has been said: what looks at all answers, and what ends connections."""


class Ruling(Struct):
    """What one check found about one requirement."""

    kept: int = 0
    breaches: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    evidence: list[Exchange] = field(default_factory=list)
    rests_on_silence: bool = False


class Docket:
    """Where checks write down what they find."""

    def __init__(self) -> None:
        self.rulings: dict[str, Ruling] = {}

    def _ruling(self, requirement_id: str) -> Ruling:
        return self.rulings.setdefault(requirement_id, Ruling())

    def keep(self, requirement_id: str) -> None:
        """The rule was tried, and is kept."""
        self._ruling(requirement_id).kept += 1

    def breach(self, requirement_id: str, message: str, *answers: Answer) -> None:
        """The rule is broken: what is wrong, with the evidence."""
        ruling = self._ruling(requirement_id)
        if message not in ruling.breaches and len(ruling.breaches) <= _MAX_MESSAGES:
            ruling.breaches.append(message if len(ruling.breaches) < _MAX_MESSAGES else "and more")
        for answer in answers:
            if len(ruling.evidence) < _MAX_EVIDENCE and answer.exchange not in ruling.evidence:
                ruling.evidence.append(answer.exchange)
        if any(answer.outcome in (Outcome.SILENT, Outcome.LOST) for answer in answers):
            ruling.rests_on_silence = True

    def unclear(self, requirement_id: str, why: str, *answers: Answer) -> None:
        """The rule could not be tried, or the answer does not tell."""
        ruling = self._ruling(requirement_id)
        if why not in ruling.doubts:
            ruling.doubts.append(why)
        ruling.evidence += [answer.exchange for answer in answers if len(ruling.evidence) < _MAX_EVIDENCE]

    def require(self, kept: object, requirement_id: str, message: str, *answers: Answer) -> None:
        """`keep` if the condition is true, otherwise `breach`; `unclear` if an answer is missing because nobody could be reached."""
        if kept:
            self.keep(requirement_id)
        elif unreached := [answer for answer in answers if answer.outcome is Outcome.UNREACHABLE]:
            self.unclear(requirement_id, f"the server could not be reached: {unreached[0].shown()}", *unreached)
        else:
            self.breach(requirement_id, message, *answers)


CheckFunction = Callable[[Subject, Docket], Awaitable[None]]


class Check(Struct, frozen=True):
    """A check and the requirements that it decides."""

    ids: tuple[str, ...]
    phase: Phase
    run: CheckFunction


CHECKS: Final[list[Check]] = []
"""Every check, in the order of registration; filled by importing the modules beside this one."""


def check(*ids: str, phase: Phase = Phase.MAIN) -> Callable[[CheckFunction], CheckFunction]:
    """Register a check for the requirements with these ids."""

    def register(function: CheckFunction) -> CheckFunction:
        CHECKS.append(Check(ids, phase, function))
        return function

    return register
