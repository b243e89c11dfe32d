"""Segment index: what readers want to know of a file of an archive without reading it.

    <archive>/index/<name of the segment>.json

Out    JSON: first and last commit_ts, rows by table and kind, numbers of records, places every MiB or so, the
       cluster, the time zone of TIMESTAMP values; a checksum of all of it, which older releases neither write
       nor read
Holds  it describes the first `size` bytes of the segment, whole records; what lies after them is to be read.
       Programs that do not know it read the segments as if it were not there
Tests  tests/drainer/sink/file/test_archive.py

`time_zone` is "UTC" where every record is ours, and "" where a Go drainer may have written some: it writes
its own local time and does not say which.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from tidb_binlog import checked
from tidb_binlog.foreign_document import UNREADABLE
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.tso import Ts

FORMAT: Final = 1
STRIDE: Final = 1 << 20
DIRECTORY: Final = "index"
UTC: Final = "UTC"
_KINDS: Final = ("inserts", "updates", "deletes")


def file_name(segment: str) -> str:
    """Of the index of a segment, in `DIRECTORY`."""
    return f"{segment}.json"


@dataclass(slots=True)
class SegmentIndex:
    """`places`: (commit_ts, offset) of the first record of every `STRIDE` bytes. `rows`: INSERT, UPDATE and
    DELETE rows by (schema, table) as archived. `closed`: the segment gets no more. `definitions`: so many are
    beside it at least."""

    cluster_id: int = 0
    time_zone: str = UTC
    size: int = 0
    first_ts: Ts = 0
    last_ts: Ts = 0
    transactions: int = 0
    ddl: int = 0
    rows: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    places: list[tuple[int, int]] = field(default_factory=list)
    closed: bool = False
    definitions: int = 0

    def add(self, commit_ts: Ts, offset: int, end: int, *, is_ddl: bool) -> None:
        """The next record: from `offset` to `end`."""
        if not self.size:
            self.first_ts = commit_ts
        if not self.places or offset - self.places[-1][1] >= STRIDE:
            self.places.append((commit_ts, offset))
        if commit_ts > self.last_ts:
            self.last_ts = commit_ts
        self.size = end
        if is_ddl:
            self.ddl += 1
        else:
            self.transactions += 1

    def count(self, rows: Mapping[tuple[str, str], Iterable[int]]) -> None:
        """Rows of records that were added."""
        for name, counts in rows.items():
            totals = self.rows.setdefault(name, [0, 0, 0])
            for kind, number in enumerate(counts):
                totals[kind] += number

    def to_json(self) -> bytes:
        """Write it as a file has it."""
        document = {
            "format": FORMAT,
            "cluster_id": self.cluster_id,
            "time_zone": self.time_zone,
            "size": self.size,
            "closed": self.closed,
            "first_commit_ts": self.first_ts,
            "last_commit_ts": self.last_ts,
            "transactions": self.transactions,
            "ddl": self.ddl,
            "tables": [
                {"schema": schema, "table": table, **dict(zip(_KINDS, counts, strict=True))}
                for (schema, table), counts in sorted(self.rows.items())
            ],
            "places": self.places,
            "definitions": self.definitions,
        }
        return checked.document(document)

    @classmethod
    def from_json(cls, data: bytes) -> SegmentIndex | None:
        """None for what is not whole or of another format: the segment has all of it."""
        try:
            document = checked.read_document(data)
            if document["format"] != FORMAT:
                return None
            return cls(
                cluster_id=int(document["cluster_id"]),
                time_zone=str(document["time_zone"]),
                size=int(document["size"]),
                first_ts=int(document["first_commit_ts"]),
                last_ts=int(document["last_commit_ts"]),
                transactions=int(document["transactions"]),
                ddl=int(document["ddl"]),
                rows={(table["schema"], table["table"]): _counts(table) for table in document["tables"]},
                places=[(int(ts), int(offset)) for ts, offset in document["places"]],
                closed=bool(document["closed"]),
                definitions=int(document.get("definitions", 0)),
            )
        except UNREADABLE:
            return None


def _counts(document: Mapping[str, Any]) -> list[int]:
    return [int(document[kind]) for kind in _KINDS]
