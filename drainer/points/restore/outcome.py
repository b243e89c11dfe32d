"""Outcome: what a restore did and what was compared, in words or as one JSON object.

In     counts
Out    lines
Tests  tests/drainer/points/restore/test_restoring.py
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from tidb_binlog.time_text import utc


@dataclass(slots=True)
class Outcome:
    """`rows` of the image that this run took up, `changes` of the archive; lanes pass over those that they
    have applied. `upto_ts`: the destination has all up to it. `compared`: rows of the destination that were
    compared; `not_compared`: tables and columns that were not, at last. `drift`: rows that the archive
    changes and that were not there as they should be, by table."""

    job: str
    begin_ts: int
    stop_ts: int
    tables: int = 0
    rows: int = 0
    changes: int = 0
    ddl: int = 0
    upto_ts: int = 0
    finished: bool = False
    seconds: float = 0.0
    compared: int = 0
    not_compared: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    drift: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        return not (self.different or self.drift)

    def to_json(self) -> str:
        found: dict[str, Any] = asdict(self)
        found["upto_time"] = utc(self.upto_ts) if self.upto_ts else ""
        return json.dumps(found, ensure_ascii=False)

    def planned(self) -> list[str]:
        """Of what would be done."""
        upto = f" up to commit_ts {self.upto_ts} ({utc(self.upto_ts)})" if self.upto_ts else ""
        return [
            *self.notes,
            f"{self.rows:,} rows of {self.tables:,} tables, then {self.changes:,} row changes and"
            f" {self.ddl:,} DDL{upto}. Nothing was written.",
        ]

    def lines(self) -> list[str]:
        found = [
            f"{self.rows:,} rows of {self.tables:,} tables from the image, {self.changes:,} row changes and"
            f" {self.ddl:,} DDL from the archive in {self.seconds:.1f} s"
        ]
        if self.compared:
            found.append(f"{self.compared:,} rows of the image were compared with the destination")
        found += [f"different: {line}" for line in self.different]
        found += [
            f"different: {count:,} rows of {name} were not there as the archive says"
            for name, count in sorted(self.drift.items())
        ]
        found += [f"not compared: {line}" for line in self.not_compared]
        found += self.notes
        if self.finished:
            state = "equal to what image and archive come to"
            if not self.is_equal:
                state = f"NOT {state}"
            elif not self.compared:
                state = "no row was compared"
            elif self.not_compared:
                state += ", as far as compared"
            found.append(f"restored up to commit_ts {self.upto_ts} ({utc(self.upto_ts)}), {state}")
        else:
            found.append("stopped before the end: the same command goes on from here")
        return found
