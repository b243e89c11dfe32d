"""Image comparison: whether a downstream has the rows of an image, without the upstream that it was made of.

Drives  the Parquet files of the image, one session downstream at one moment
In      the directory of an image, the downstream
Out     `Verification`, as of two servers
Holds   rows of both sides are parted into files by a hash of their key, then compared part by part: memory
        does not grow with tables, and neither side needs an order. What the downstream computes is not in an
        image and is not compared. Nothing says that the downstream stands where the image was made: a
        checkpoint that is elsewhere is noted
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Final

from drainer.changes import canonical
from drainer.compare.verify.checksum import count_queries, row_queries
from drainer.compare.verify.chunk_comparison import part_of
from drainer.compare.verify.compared_table import DOWNSTREAM, ComparedTable, compared_table
from drainer.compare.verify.result import OnDifference, TableResult, Verification
from drainer.compare.verify.row_differences import Printed
from drainer.compare.verify.row_parts import PartedComparison, SideRows
from drainer.compare.verify.table_work import TableWork, Wanted
from drainer.compare.verify.verifying import REFUSALS, Progress, lacking, said, seen_whole
from drainer.mysql.chunks.chunk import Chunk, check_rows
from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.errors import SessionError, safe_text
from drainer.mysql.literal.downstream_column import DownstreamColumn
from drainer.mysql.literal.plan import compile_sql
from drainer.mysql.literal.quoting import qualified
from drainer.mysql.rows.column_match import Dialect, DownstreamTable, KeyPart, UniqueKey
from drainer.mysql.table_reader import read_table
from drainer.points.image.manifest import Manifest, TableImage
from drainer.points.image.parquet_reader import TableReader
from drainer.reading.subscribe.table_choice import TablePattern
from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.errors import ConfigError, Corruption, DownstreamError
from tidb_binlog.rowcodec.plan import TablePlan
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.table_info import STRING, Column, ColumnKind

_TYPES: Final = {
    **dict.fromkeys((ColumnKind.SIGNED, ColumnKind.UNSIGNED), "bigint"),
    ColumnKind.TEXT: "varchar",
    ColumnKind.BINARY: "varbinary",
}
"""Others are called as information_schema calls them."""
_OF_FIXED_LENGTH: Final = {ColumnKind.TEXT: "char", ColumnKind.BINARY: "binary"}


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
        began_s = self.clock.wall_s()
        manifest = Manifest.load(self.directory)
        works = [(one, TableWork(_wanted(one))) for one in manifest.tables if self._is_selected(one)]
        if not works:
            raise ConfigError(f"the image {self.directory} has no such table", hint="see its manifest.json")
        with closing(connect(replace(self.target, read_timeout_s=None))) as connection:
            try:
                notes = self._notes(connection, manifest)
                with closing(connect(self.target)) as describing:
                    connection.run(b"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                    connection.run(b"START TRANSACTION WITH CONSISTENT SNAPSHOT")
                    for image, work in works:
                        try:
                            self._compare(image, work, connection, describing)
                        except REFUSALS as error:  # of this table
                            work.refusal = said(error)
                        self._say(work, [one for _, one in works])
            except SessionError as error:
                raise DownstreamError(
                    f"the downstream cannot be compared: {safe_text(error)}",
                    hint="the user of [syncer.to] needs SELECT on every table",
                ) from None
        tables: tuple[TableResult, ...] = tuple(work.result() for _, work in works)
        return Verification(
            f"image {self.directory}",
            repr(self.target),
            manifest.commit_ts,
            0,
            began_s,
            self.clock.wall_s(),
            tables,
            notes=notes,
        )

    def _is_selected(self, image: TableImage) -> bool:
        names = [one for one in self.selected if one.fits(image.schema, image.table)]
        if any(one.takes_out for one in names):
            return False
        return bool(names) or all(one.takes_out for one in self.selected)

    def _notes(self, connection: Connection, manifest: Manifest) -> tuple[str, ...]:
        (rows,) = connection.rows_if_there(b"SELECT checkPoint FROM " + qualified(self.schema, "checkpoint"))
        connection.rollback()
        for (text,) in rows:
            try:
                at = int(json.loads(text)["commitTS"])
            except (ValueError, KeyError, TypeError):
                continue
            if at != manifest.commit_ts:
                return (f"the downstream's checkpoint is at {at}, the image at {manifest.commit_ts}",)
        return ()

    def _compare(
        self, image: TableImage, work: TableWork, connection: Connection, describing: Connection
    ) -> None:
        there = read_table(describing, image.schema, image.table)
        if there is None:
            work.refusal = lacking(work, "downstream", describing, [work.wanted.downstream])
            work.rows_absent = image.rows if work.absent else 0
            return
        reader = TableReader(self.directory, image)
        how = seen_whole(describing, compared_table([_described(reader)], there, edited=True))
        if isinstance(how, str):
            work.refusal = how
            return
        work.take(how)
        work.is_cut = True
        began_s = self.clock.monotonic_s()
        with closing(SideRows(how)) as upstream, closing(SideRows(how)) as downstream:
            upstream.take(_image_rows(reader, how))
            check_rows(f"the image of {how.label}", upstream.count, image.rows)
            (query,) = count_queries(how, DOWNSTREAM, b"")
            ((count,),) = connection.printed(query)
            (query,) = row_queries(how, DOWNSTREAM, b"")
            downstream.take(connection.stream_printed(query))
            check_rows(f"downstream {how.label}", downstream.count, int(count or 0))
            comparison = PartedComparison(how, keep_all=self.on_difference is not None)
            part = part_of(upstream.count, downstream.count, comparison.compare(upstream, downstream))
        if self.on_difference is not None:
            for one in part.all():
                self.on_difference(work.so_far(), one)
        work.chunks.append(Chunk(0))
        work.found(work.chunks[0], part, 0.0)
        work.seconds = self.clock.monotonic_s() - began_s

    def _say(self, work: TableWork, works: Sequence[TableWork]) -> None:
        if self.on_progress is None:
            return
        done = [one for one in works if one.is_settled and (one.is_cut or one.absent or one.refusal)]
        rows = sum(one.rows for one in works)
        expected = sum(one.wanted.rows_expected for one in works)
        wrong = sum(bool(one.wrong) for one in works)
        self.on_progress(
            Progress(work.wanted.label, len(done), len(works), len(done), rows, expected, wrong, 0)
        )


def _wanted(image: TableImage) -> Wanted:
    name = (image.schema, image.table)
    return Wanted((name,), name, rows_expected=image.rows)


def _described(reader: TableReader) -> DownstreamTable:
    """A table of an image as a server would describe it."""
    info = reader.version.info
    columns = [
        DownstreamColumn(
            one.name,
            _type(one),
            digits=max(one.type.decimal, 0),
            nullable=not one.type.not_null,
            full_type=f"{_type(one)}({','.join(map(_quoted, one.type.elems))})",
        )
        for one in sorted(info.columns, key=lambda column: column.offset)
        if one.is_writable
    ]
    key = compile_sql(info).key_columns
    keys = (UniqueKey("PRIMARY", tuple(KeyPart(one.name) for one in key)),) if key else ()
    table = reader.table
    return DownstreamTable(table.schema, table.table, tuple(columns), keys, dialect=Dialect.TIDB)


def _quoted(element: str) -> str:
    return "'" + element.replace("'", "''") + "'"


def _type(column: Column) -> str:
    kind = column.type.kind
    found = _TYPES.get(kind, kind.value)
    return _OF_FIXED_LENGTH.get(kind, found) if column.type.tp == STRING else found


def _image_rows(reader: TableReader, how: ComparedTable) -> Iterator[Printed]:
    """As a server prints them. Raises `Corruption`."""
    plan = TablePlan(reader.version.info)
    places = {column.name.lower(): place for place, column in enumerate(plan.columns)}
    shown: list[tuple[int, Callable[[Any], bytes]]] = [
        (places[pair.name.lower()], canonical.OF_IMAGE[pair.form]) for pair in how.pairs
    ]
    try:
        for group in reader.groups():
            for image in reader.images(group):
                values = plan.decode_delete(image)
                yield tuple(None if values[place] is None else show(values[place]) for place, show in shown)
    except RowError as error:
        raise Corruption(
            f"a row of {reader.table.shown} in the image cannot be read: {error.message}"
        ) from None
