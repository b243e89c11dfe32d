"""Table copy: how the rows of one table go from here to there, decided once for all its chunks.

In     the table upstream and downstream as the servers describe them, its definition, its rules
Out    the key it is cut by, the queries that read a chunk, what an INSERT names
Holds  servers write the literals of rows themselves (`literal_rows`) where that is exact and nobody has to
       see the rows; else rows take the Drainer's own way: encoded, ruled, rendered
Tests   tests/drainer/points/load/test_load.py
"""

from __future__ import annotations

from typing import Final

from drainer.mysql.chunks.chunk import Chunk
from drainer.mysql.chunks.cut_key import CutKey, key_to_compare, key_to_copy
from drainer.mysql.chunks.literal_rows import LiteralSelect
from drainer.mysql.chunks.splitter import Splitter
from drainer.mysql.chunks.table_size import TableSize
from drainer.mysql.chunks.value_rows import ValueSelect
from drainer.mysql.errors import NOT_ALLOWED, StatementRefused, safe_text
from drainer.mysql.rows.change import Form, TableTarget
from drainer.mysql.rows.column_match import DownstreamTable
from drainer.mysql.rows.dialect import Dialect
from drainer.mysql.rows.table_target import target_of
from drainer.points.load.contents import Source
from tidb_binlog.errors import DownstreamError, Rejected
from tidb_binlog.late_dataclass import dataclass, replace

CHUNK_ROWS_MAX: Final = 20_000
CHUNK_ROWS_MIN: Final = 100
CHUNK_BYTES: Final = 3 << 20
ALTERED: Final = frozenset({1054, 1072, 1146, 1176})
"""No such column, table or key: it was there when the load looked."""
AGAIN: Final = "run the same command again: it goes on where it stopped"
_GROWTH: Final = 1.3  # from a row as it is stored to its literal


@dataclass(frozen=True, slots=True)
class TableCopy:
    """`number` is the table's in the stored progress. `fast` None: its rows take the Drainer's way.
    `parts_alike`: the conditions of its chunks mean the same rows downstream. `has_others`: rows that are not
    the load's may be there, and stay."""

    number: int
    source: Source
    here: DownstreamTable
    downstream: DownstreamTable
    target: TableTarget
    key: CutKey
    parts_alike: bool
    fast: LiteralSelect | None
    slow: ValueSelect
    size: TableSize
    sync_mode: int
    has_others: bool = False

    @classmethod
    def of(
        cls,
        number: int,
        source: Source,
        here: DownstreamTable,
        downstream: DownstreamTable,
        size: TableSize,
        sync_mode: int,
        *,
        has_others: bool = False,
    ) -> TableCopy:
        """Raises `DownstreamError` where the table downstream cannot take the rows, `NotAsPublished` where
        the one upstream is not what its definition says."""
        info = source.version.info
        target = target_of(source.version, 1, downstream, sync_mode=sync_mode)
        check_columns(source, here)
        changed = set() if source.edit is None else {column.name.lower() for column in info.columns}
        hidden = here.dialect is Dialect.TIDB and not (info.pk_is_handle or info.is_common_handle)
        alike = key_to_compare(here, downstream, changed)
        key = (
            key_to_copy(here, hidden_rowid=True) if hidden else alike if alike.columns else key_to_copy(here)
        )
        sql = target.sql
        fast = None
        if source.edit is None and not target.fillers:
            fast = LiteralSelect.of(sql.stored_columns, here, downstream, key)
        return cls(
            number,
            source,
            here,
            downstream,
            replace(target, form=Form.REWRITE, gentle=False) if target.keyed else target,
            key,
            bool(alike.columns) and alike == key and target.keyed,
            fast,
            ValueSelect.of(info, here, key),
            size,
            sync_mode,
            has_others,
        )

    @property
    def head(self) -> bytes:
        """Of an INSERT of literals."""
        return b"INSERT INTO " + self.target.name + b" (" + self.target.sql.column_list + b") VALUES "

    @property
    def splitter(self) -> Splitter:
        return Splitter(self.here, self.key, rows_wanted(self.size))

    @property
    def writes_at_once(self) -> bool:
        """Whether a chunk is one transaction whatever its size: nothing else would tell its rows apart, where
        the table cannot be emptied for a second try."""
        return bool(self.key.columns) or self.source.shared or self.has_others

    def removal(self, chunk: Chunk) -> bytes:
        """DELETE of the chunk's rows downstream."""
        return b"DELETE FROM " + self.target.name + chunk.where()


def check_columns(source: Source, here: DownstreamTable) -> None:
    """Raises `NotAsPublished` where upstream does not show all that is to be copied."""
    carried = (column for column in source.version.info.columns if column.id not in source.version.left_out)
    lacking = [column.name for column in carried if column.is_writable and not here.column(column.name)]
    if lacking:
        raise NotAsPublished(
            f"upstream table {here.label} shows no column {', '.join(lacking)}, which its definition has",
            hint="GRANT SELECT on the whole table to the user of [syncer.from]; or, if the column is not"
            " there, publish what was done to the table; then run the same command again",
        )


def rows_wanted(size: TableSize) -> int:
    """Of a chunk, so that it is one statement, and one transaction."""
    if not size.rows or not size.size_bytes:
        return CHUNK_ROWS_MAX
    of_row = size.size_bytes / size.rows * _GROWTH
    return max(CHUNK_ROWS_MIN, min(CHUNK_ROWS_MAX, int(CHUNK_BYTES / of_row)))


class NotAsPublished(DownstreamError):
    """A table upstream and its published definition are not the same now. They may be a moment later."""


def summed(row: bytes, table: bytes, chunk: Chunk) -> bytes:
    """Query of a chunk's checksum, over the literal that a server makes of each row: how many rows there are,
    of how many it makes one, the sum."""
    digest = b"CAST(CONV(LEFT(SHA2(%b,256),15),16,10) AS UNSIGNED)" % row
    is_array = b"LEFT(%b,1)='('" % row
    return b"SELECT COUNT(*),SUM(%b),SUM(%b) FROM %b%b" % (is_array, digest, table, chunk.where())


def unreadable(label: str, error: StatementRefused) -> NotAsPublished | Rejected:
    """For what the upstream refused to read of a table."""
    said = safe_text(error)
    if error.number in ALTERED:
        return NotAsPublished(
            f"upstream table {label} was altered after the load's moment: {said}", hint=AGAIN
        )
    rights = "check the rights of the user in [syncer.from]"
    return Rejected(
        f"the upstream does not let {label} be read: {said}",
        hint=f"{rights if error.number in NOT_ALLOWED else 'correct it there'}, then {AGAIN}",
    )
