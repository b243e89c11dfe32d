"""Logged: one record of the value log, as everything behind the log sees it.

The indexer files it under its timestamp, the sorter decides from it, both in log order. The payload itself
travels only where it is needed.
"""

from __future__ import annotations

from typing import NamedTuple

from common.binlog import PREWRITE
from pump.log.value_pointer import ValuePointer


class Logged(NamedTuple):
    """Type and timestamps of a payload, and the place of its record."""

    tp: int
    start_ts: int
    commit_ts: int
    place: ValuePointer

    @property
    def index_ts(self) -> int:
        """Timestamp under which the index files it; 0 (a real rollback) is not filed."""
        return self.start_ts if self.tp == PREWRITE else self.commit_ts

    @property
    def is_mark(self) -> bool:
        """A time mark (fake binlog): both timestamps are equal."""
        return self.start_ts == self.commit_ts and self.tp != PREWRITE
