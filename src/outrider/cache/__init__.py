"""What was discovered, remembered: stores (in process, SQLite, Valkey), single flight, fingerprints, era verdicts, and
`Memory` in front.

Which rules apply is decided in `outrider.protocol.freshness`. Nothing heavy is imported before it is used: sqlite3 with
the first `SqliteStore`, redis with the first `ValkeyStore`.
"""

from __future__ import annotations

from outrider.cache.answers import EraVerdict, Evidence, Peer, Recalled, RecalledList, Source
from outrider.cache.fingerprint import Fingerprinter
from outrider.cache.flight import SingleFlight
from outrider.cache.memory import Memory, open_memory
from outrider.cache.store import Address, InProcessStore, Record, Store, Summary

__all__ = [
    "Address",
    "EraVerdict",
    "Evidence",
    "Fingerprinter",
    "InProcessStore",
    "Memory",
    "Peer",
    "Recalled",
    "RecalledList",
    "Record",
    "SingleFlight",
    "Source",
    "Store",
    "Summary",
    "open_memory",
]
