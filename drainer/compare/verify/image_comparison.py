"""Image comparison: whether a downstream has the rows of an image, without the upstream that it was made of.

Drives  `Verifying`, with the Parquet files of the image in the upstream's place
Holds   a table is one chunk, whose rows are parted into files by a hash of their key: memory does not grow
        with tables, and neither side needs an order. What the downstream computes is not in an image and is
        not compared. Nothing says that the downstream stands where the image was made: a checkpoint that is
        elsewhere is noted
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Final

from drainer.compare.verify.column_pairs import ColumnPair
from drainer.compare.verify.result import OnDifference, Verification
from drainer.compare.verify.row_differences import Printed
from drainer.compare.verify.row_source import Rows, Session, Side, Sides, StoredSide, printer, snapshot
from drainer.compare.verify.table_work import Request, is_selected
from drainer.compare.verify.verifying import Pace, Progress, Verifying
from drainer.mysql.chunks.chunk import Chunk, check_rows
from drainer.mysql.connection import Target, connect
from drainer.mysql.errors import SessionError, safe_text
from drainer.mysql.literal.downstream_column import DownstreamColumn
from drainer.mysql.literal.plan import compile_sql
from drainer.mysql.literal.quoting import qualified
from drainer.mysql.rows.column_match import DownstreamTable, KeyPart, UniqueKey
from drainer.mysql.rows.dialect import Dialect
from drainer.points.image.manifest import Manifest, TableImage
from drainer.points.image.parquet_reader import TableReader
from drainer.reading.subscribe.table_choice import TablePattern
from drainer.txn import TableVersion
from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.errors import ConfigError, DownstreamError
from tidb_binlog.late_dataclass import dataclass, field, replace
from tidb_binlog.rowcodec.plan import TablePlan
from tidb_binlog.table_info import STRING, Column, ColumnKind
from tidb_binlog.tso import Ts

_TYPES: Final = {
    **dict.fromkeys((ColumnKind.SIGNED, ColumnKind.UNSIGNED), "bigint"),
    ColumnKind.TEXT: "varchar",
    ColumnKind.BINARY: "varbinary",
}
"""Others are called as information_schema calls them."""
_OF_FIXED_LENGTH: Final = {ColumnKind.TEXT: "char", ColumnKind.BINARY: "binary"}
_AT_ONCE: Final = Pace(workers=1, retries=0, moment_s=float("inf"))


@dataclass
class ImageVerification:
    """`schema`: where the downstream's checkpoint is. Blocks."""

    target: Target
    directory: str
    schema: str
    selected: Sequence[TablePattern] = ()
    on_difference: OnDifference | None = None
    on_progress: Callable[[Progress], None] | None = None
    clock: Clock = field(default_factory=SystemClock)

    def run(self) -> Verification:
        """Raises `ConfigError`, `Corruption`, `DownstreamError`, `Unavailable`."""
        manifest = Manifest.load(self.directory)
        tables = {
            (table.schema, table.table): _ImageTable(self.directory, table)
            for table in manifest.tables
            if is_selected([(table.schema, table.table)], self.selected)
        }
        if not tables:
            raise ConfigError(f"the image {self.directory} has no such table", hint="see its manifest.json")
        listed = [
            Request(
                (name,), name, rows_expected=table.image.rows, rows_known=table.image.rows, edited=(table,)
            )
            for name, table in tables.items()
        ]

        def open_moment() -> Sides:
            below = snapshot(replace(self.target, read_timeout_s=None), 1)
            return Sides(
                manifest.commit_ts, StoredSide(tables), Side(self.target, below.session), below.close
            )

        verifying = Verifying(
            open_moment, lambda _: listed, _AT_ONCE, self.on_difference, self.on_progress, clock=self.clock
        )
        try:
            return verifying.run(f"image {self.directory}", repr(self.target), self._notes(manifest))
        except SessionError as error:
            raise DownstreamError(
                f"the downstream cannot be compared: {safe_text(error)}",
                hint="the user of [syncer.to] needs SELECT on every table",
            ) from None

    def _notes(self, manifest: Manifest) -> tuple[str, ...]:
        with closing(connect(self.target)) as connection:
            (rows,) = connection.rows_if_there(
                b"SELECT checkPoint FROM " + qualified(self.schema, "checkpoint")
            )
        for (text,) in rows:
            try:
                at = int(json.loads(text)["commitTS"])
            except (ValueError, KeyError, TypeError):
                continue
            if at != manifest.commit_ts:
                return (f"the downstream's checkpoint is at {at}, the image at {manifest.commit_ts}",)
        return ()


@dataclass(frozen=True, slots=True)
class _ImageTable:
    """See `StoredTable`."""

    directory: str
    image: TableImage
    changed: None = None

    def described(self) -> DownstreamTable:
        """Raises `Corruption`."""
        return described(TableReader(self.directory, self.image).version)

    def reader(self, table: DownstreamTable, pairs: Sequence[ColumnPair], session: Session, ts: Ts) -> Rows:
        """See `SourceTable`."""
        reader = TableReader(self.directory, self.image)
        plan = TablePlan(reader.version.info)
        shown = printer(plan, [(pair.name, pair.form) for pair in pairs])

        def read(chunk: Chunk) -> Iterator[Printed]:
            count = 0
            for group in reader.groups():
                for row in reader.rows(group, plan.decode_delete):
                    yield shown(row)
                    count += 1
            check_rows(f"the image of {self.image.shown}", count, self.image.rows)

        return read


def described(version: TableVersion) -> DownstreamTable:
    """A table of an image as a server would describe it."""
    info = version.info
    columns = [
        DownstreamColumn(
            column.name,
            _type(column),
            digits=max(column.type.decimal, 0),
            nullable=not column.type.not_null,
            full_type=f"{_type(column)}({','.join(map(_quoted, column.type.elems))})",
        )
        for column in sorted(info.columns, key=lambda column: column.offset)
        if column.is_writable
    ]
    key = compile_sql(info).key_columns
    keys = (UniqueKey("PRIMARY", tuple(KeyPart(column.name) for column in key)),) if key else ()
    return DownstreamTable(version.schema, version.name, tuple(columns), keys, dialect=Dialect.TIDB)


def _quoted(element: str) -> str:
    return "'" + element.replace("'", "''") + "'"


def _type(column: Column) -> str:
    kind = column.type.kind
    name = _TYPES.get(kind, kind.value)
    return _OF_FIXED_LENGTH.get(kind, name) if column.type.tp == STRING else name
