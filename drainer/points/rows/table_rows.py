"""Table rows: one table of the upstream's snapshot, cut into chunks, its rows as binlogs would have them.

Holds   rows take the Drainer's own way: read as values, encoded, ruled
Tests   tests/drainer/points/rows/test_snapshot_rows.py, tests/drainer/points/dump/test_dump.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from drainer.mysql.chunks.chunk import Chunk
from drainer.mysql.chunks.cut_key import key_to_copy
from drainer.mysql.chunks.splitter import Splitter
from drainer.mysql.chunks.table_size import TableSize
from drainer.mysql.chunks.value_rows import ValueSelect
from drainer.mysql.connection import Connection
from drainer.mysql.errors import SessionError, StatementRefused, safe_text
from drainer.mysql.rows.column_match import DownstreamTable
from drainer.mysql.rows.dialect import Dialect
from drainer.points.load.contents import Source
from drainer.points.load.table_copy import AGAIN, ALTERED, NotAsPublished, rows_wanted
from drainer.points.snapshot.sessions import SnapshotLost, SnapshotTooOld, UpstreamSnapshot
from drainer.points.worker_pool import Ended
from drainer.txn import INSERT
from tidb_binlog.backoff import Backoff
from tidb_binlog.errors import Corruption, Rejected, Unavailable
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.tso import Ts

TRIES_MAX: Final = 8
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TableRows:
    """`size`: as the upstream estimates it."""

    source: Source
    splitter: Splitter
    select: ValueSelect
    size: TableSize

    @classmethod
    def of(cls, source: Source, here: DownstreamTable, size: TableSize, rows: int = 0) -> TableRows:
        """`rows`: of a chunk; 0: as many as one statement takes. Raises `DownstreamError` for a table that is
        not as its definition says."""
        info = source.version.info
        hidden = here.dialect is Dialect.TIDB and not (info.pk_is_handle or info.is_common_handle)
        key = key_to_copy(here, hidden_rowid=hidden)
        splitter = Splitter(here, key, rows or rows_wanted(size))
        return cls(source, splitter, ValueSelect.of(info, here, key), size)

    def cut(self, snapshot: UpstreamSnapshot, last: Chunk | None) -> Sequence[Chunk]:
        """The next chunks. Raises `SessionError`, `SnapshotLost`."""
        with snapshot.session() as session:
            return self.splitter.next_chunks(session, last)

    def rows(self, session: Connection, chunk: Chunk, ts: Ts) -> Iterator[list[bytes]]:
        """INSERT rows of a chunk, some at a time. Raises `SessionError`, `Corruption`."""
        edit = self.source.edit
        try:
            for rows in self.select.read(session, chunk):
                if edit is None:
                    yield rows
                else:
                    events = (edit.event(INSERT, row, ts) for row in rows)
                    yield [event[1] for event in events if event is not None]
        except RowError as error:
            raise Corruption(f"a row of {self.source.label}: {error.message}") from None


def tried(
    label: str, wait: Callable[[float], bool], work: Callable[..., T], *arguments: object, again: str = AGAIN
) -> T:
    """What passes is tried again, while `wait` returns False; anything else comes in an operator's words.

    Raises `SnapshotLost`, `SnapshotTooOld`, `NotAsPublished`, `Rejected`, `Unavailable`, `Ended`."""
    backoff, tries = Backoff(0.05, 5.0), 0
    while True:
        try:
            return work(*arguments)
        except (SnapshotLost, SnapshotTooOld):
            raise
        except StatementRefused as error:
            what = f"upstream table {label}: {safe_text(error)}"
            if error.number in ALTERED:
                raise NotAsPublished(f"{what}: it was altered after T", hint=again) from None
            raise Rejected(
                what, hint=f"check the rights of the user in [syncer.from], then {again}"
            ) from None
        except SessionError as error:
            tries += 1
            if tries >= TRIES_MAX:
                raise Unavailable(f"upstream: {safe_text(error)}", hint=again) from None
        if wait(backoff.next_s()):
            raise Ended
