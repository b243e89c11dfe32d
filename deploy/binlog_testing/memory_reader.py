"""Memory reader: a reader with a name, whose position is kept for as long as the cluster lives.

Holds   one program a name at a time; a position never falls
Waits   `reach`, on any thread, until a reader has done everything up to a timestamp

Tests  tests/deploy/binlog_testing/test_cluster.py
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from drainer.points.load.contents import Source, contents_of
from drainer.points.rows.snapshot_position import SnapshotPosition, begun, key_of
from drainer.reading.subscribe.named_reader import NameTaken
from drainer.reading.subscribe.reader_position import NotGiven, ReaderPosition
from drainer.stream.rules.rule_set import Rules
from drainer.stream.schema.tracker import SchemaTracker
from drainer.txn import INSERT, TableEvents, Transaction
from pumpclient.publish.row_values import row_values
from tidb_binlog.errors import BinlogError
from tidb_binlog.late_dataclass import replace
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.tso import Ts


class MemoryReaders:
    """Positions by name."""

    def __init__(self) -> None:
        self.stored: dict[str, Ts] = {}
        self.snapshots: dict[str, str] = {}
        self._open: set[str] = set()
        self._moved = threading.Condition()

    def open(self, name: str) -> MemoryReader:
        """Raises `NameTaken`."""
        with self._moved:
            if name in self._open:
                raise NameTaken(
                    f"the name {name} is another program's in this cluster",
                    hint="close its stream, or give this reader another name",
                )
            self._open.add(name)
        return MemoryReader(name, self)

    def store(self, name: str, position: ReaderPosition) -> None:
        """A reader has done everything up to here."""
        with self._moved:
            self.stored[name] = max(self.stored.get(name, 0), position.position)
            self.snapshots[name] = position.snapshot
            self._moved.notify_all()

    def leave(self, name: str) -> None:
        """The name is free again."""
        with self._moved:
            self._open.discard(name)

    def reach(self, name: str, ts: Ts, timeout_s: float) -> None:
        """Wait until it has done everything up to `ts`. Raises `TimeoutError`."""
        with self._moved:
            if not self._moved.wait_for(lambda: self.stored.get(name, 0) >= ts, timeout_s):
                at = self.stored.get(name, 0)
                raise TimeoutError(
                    f"after {timeout_s:g} s the reader {name} has done everything up to {at}, not {ts}: does"
                    " it read, and say done()?"
                )


class MemoryReader:
    """A `Presence`."""

    ended: BinlogError | None = None
    unbroken: int | None = 0

    def __init__(self, name: str, readers: MemoryReaders) -> None:
        self._name = name
        self._readers = readers
        self._position: ReaderPosition | None = None

    @property
    def stored_ts(self) -> Ts:
        return self._readers.stored.get(self._name, 0)

    @property
    def stored_snapshot(self) -> str:
        return self._readers.snapshots.get(self._name, "")

    def begin(
        self, ts: Ts, notify: Callable[[], Awaitable[None]], snapshot: SnapshotPosition | None = None
    ) -> None:
        self._position = ReaderPosition(ts, snapshot)

    @property
    def _begun(self) -> ReaderPosition:
        if self._position is None:
            raise NotGiven("nothing was given yet", hint="read the stream first")
        return self._position

    def given(self, ts: Ts, snapshot: SnapshotPosition | None = None) -> None:
        self._begun.given(ts, snapshot)

    def passed(self, ts: Ts) -> None:
        self._begun.passed(ts)
        self._readers.store(self._name, self._begun)

    def done(self, ts: Ts, snapshot: str = "") -> None:
        self._begun.done(ts, snapshot)
        self._readers.store(self._name, self._begun)

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def store(self) -> bool:
        return True

    async def close(self) -> None:
        self._readers.leave(self._name)


# Memory snapshot: the rows of a cluster in memory at one timestamp, for a stream that begins with them.
# Holds   as `drainer.points.rows` gives them: tables in the order of their names, some rows at a time with
#         the position after them; the same timestamp can be read again, by another program too

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
