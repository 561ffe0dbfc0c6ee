"""The lock file: what servers offered when somebody approved it, and every difference since, graded.

In modules: `pins` what is pinned of a server; `document` the file as text; `files` the file on disk; `schemas`, `inclusion` and `rules`
how JSON Schemas compare; `imitation` names that look like others; `drift` the grades; `grading` a server against a lock; `enforcement`
what a catalog does about it. All but `files` are pure.
"""

from __future__ import annotations

from outrider.catalog.lock.document import Lock
from outrider.catalog.lock.drift import SEVERITIES, Drift, Kind, Severity, in_order
from outrider.catalog.lock.files import change_lock
from outrider.catalog.lock.grading import grade
from outrider.catalog.lock.pins import Portable, ServerPins, pin_server

__all__ = [
    "SEVERITIES",
    "Drift",
    "Kind",
    "Lock",
    "Portable",
    "ServerPins",
    "Severity",
    "change_lock",
    "grade",
    "in_order",
    "pin_server",
]
