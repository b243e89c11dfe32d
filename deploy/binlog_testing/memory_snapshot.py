"""Memory snapshot: the rows of a cluster in memory at one timestamp, for a stream that begins with them.

Holds   as `drainer.points.rows` gives them: tables in the order of their names, some rows at a time with the
        position after them; the same timestamp can be read again, by another program too

Tests   tests/deploy/binlog_testing/test_snapshot.py
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from drainer.points.load.contents import Source, contents_of
from drainer.points.rows.snapshot_position import SnapshotPosition, begun, key_of
from drainer.stream.rules.rule_set import Rules
from drainer.stream.schema.tracker import SchemaTracker
from drainer.txn import INSERT, TableEvents, Transaction
from pumpclient.publish.row_values import row_values
from tidb_binlog.late_dataclass import replace
from tidb_binlog.rowcodec.encoder import RowEncoder

CHUNK_ROWS: Final = 10
Rows = Mapping[str, Sequence[dict[str, Any]]]
"""By database.table."""


class MemorySnapshot:
    """A `Before`. `rows`: of all tables, at `position.ts`."""

    def __init__(
        self, rows: Rows, tracker: SchemaTracker, rules: Rules, position: SnapshotPosition, cluster_id: int
    ) -> None:
        sources = [source for source in contents_of(tracker, rules).tables if source.copies]
        self._sources = sorted(sources, key=lambda source: key_of(source.name))
        self.begin = begun(self._sources, position, position.ts, cluster_id)
        self.is_empty = not self._sources
        self._chunks = self._all_chunks(rows)

    async def next(self) -> tuple[Transaction, SnapshotPosition] | None:
        return next(self._chunks, None)

    async def close(self) -> None:
        """Nothing is open."""

    def _all_chunks(self, rows: Rows) -> Iterator[tuple[Transaction, SnapshotPosition]]:
        place = self.begin
        for number, source in enumerate(self._sources, 1):
            key = key_of(source.name)
            if key < place.table:
                continue
            at = int(place.chunk) if key == place.table else 0
            encoded = list(_encoded(source, rows.get(source.label, ()), place.ts))
            is_last_table = number == len(self._sources)
            while at < len(encoded) or (is_last_table and not place.is_end):
                chunk = encoded[at : at + CHUNK_ROWS]
                at += len(chunk)
                is_end = is_last_table and at == len(encoded)
                events = TableEvents(source.version, [INSERT] * len(chunk), chunk, place.rows)
                place = replace(place, rows=place.rows + len(chunk), table=key, chunk=str(at), is_end=is_end)
                tables = (events,) if chunk else ()
                yield Transaction(place.ts, place.ts, tables, 0, snapshot=place.text()), place


def _encoded(source: Source, rows: Sequence[dict[str, Any]], ts: int) -> Iterator[bytes]:
    encoder = RowEncoder(source.version.info)
    for rowid, row in enumerate(rows, 1):
        insert = encoder.insert(row_values(source.version.info, row, old=True), rowid)
        event = (INSERT, insert) if source.edit is None else source.edit.event(INSERT, insert, ts)
        if event is not None:
            yield event[1]
