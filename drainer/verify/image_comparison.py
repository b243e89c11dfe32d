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
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import IO, Any, Final
from zlib import crc32

from common.clock import Clock, SystemClock
from common.errors import ConfigError, Corruption, DownstreamError
from common.rowcodec.plan import TablePlan
from common.rowcodec.row_error import RowError
from common.table_info import STRING, Column, ColumnKind
from drainer.chunks.chunk import Chunk
from drainer.image.manifest import Manifest, TableImage
from drainer.image.parquet_reader import TableReader
from drainer.reading.subscribe.table_choice import TablePattern
from drainer.sink.mysql.column_match import Dialect, DownstreamTable, KeyPart, UniqueKey
from drainer.sink.mysql.connection import Connection, Target, connect
from drainer.sink.mysql.errors import SessionError, safe_text
from drainer.sink.mysql.sql_literal.downstream_column import DownstreamColumn
from drainer.sink.mysql.sql_literal.plan import compile_sql
from drainer.sink.mysql.sql_literal.quoting import qualified
from drainer.sink.mysql.table_reader import read_table
from drainer.verify import canonical
from drainer.verify.checksum import row_queries
from drainer.verify.chunk_comparison import part_of
from drainer.verify.compared_table import DOWNSTREAM, ComparedTable, compared_table
from drainer.verify.result import OnDifference, TableResult, Verification
from drainer.verify.row_differences import Printed, RowComparison
from drainer.verify.table_work import TableWork, Wanted
from drainer.verify.verifying import Progress

ROWS_A_PART: Final = 40_000
PARTS_MAX: Final = 512
_LENGTH_BYTES: Final = 4
_TYPES: Final = {
    ColumnKind.SIGNED: "bigint",
    ColumnKind.UNSIGNED: "bigint",
    ColumnKind.YEAR: "year",
    ColumnKind.BIT: "bit",
    ColumnKind.FLOAT: "float",
    ColumnKind.DOUBLE: "double",
    ColumnKind.DECIMAL: "decimal",
    ColumnKind.TEXT: "varchar",
    ColumnKind.BINARY: "varbinary",
    ColumnKind.ENUM: "enum",
    ColumnKind.SET: "set",
    ColumnKind.DATE: "date",
    ColumnKind.DATETIME: "datetime",
    ColumnKind.TIMESTAMP: "timestamp",
    ColumnKind.TIME: "time",
    ColumnKind.JSON: "json",
}
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
                        self._compare(image, work, connection, describing)
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
            work.absent, work.rows_absent = "downstream has no such table", image.rows
            return
        reader = TableReader(self.directory, image)
        how = compared_table([_described(reader)], there, edited=True)
        if isinstance(how, str):
            work.refusal = how
            return
        work.take(how)
        work.is_cut = True
        began_s = self.clock.monotonic_s()
        count = min(PARTS_MAX, image.rows // ROWS_A_PART + 1)
        rows = RowComparison(how.pairs, how.key)
        with ExitStack() as ends:
            upstream, downstream = (ends.enter_context(Parts(count, how)) for _ in range(2))
            upstream.take(_image_rows(reader, how))
            (query,) = row_queries(how, DOWNSTREAM, b"")
            downstream.take(connection.stream_printed(query))
            for number in range(count):
                ours, theirs = list(upstream.rows(number)), list(downstream.rows(number))
                part = part_of(len(ours), len(theirs), rows.differences(ours, theirs))
                for one in part.differences if self.on_difference is not None else ():
                    self.on_difference(work.so_far(), one)  # type: ignore[misc]
                chunk = Chunk(number)
                work.chunks.append(chunk)
                work.found(chunk, part, 0.0)
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


class Parts:
    """Rows of one side, parted by what identifies them; files without a name."""

    def __init__(self, count: int, how: ComparedTable) -> None:
        self._files = [_file() for _ in range(count)]
        places = how.key or range(len(how.pairs))
        self._identity = [(place, how.pairs[place].form) for place in places]

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            file.close()

    def take(self, rows: Iterable[Printed]) -> None:
        files, count = self._files, len(self._files)
        for row in rows:
            key = canonical.pack([canonical.of_server(row[place], form) for place, form in self._identity])
            packed = canonical.pack(row)
            files[crc32(key) % count].write(len(packed).to_bytes(_LENGTH_BYTES, "big") + packed)

    def rows(self, number: int) -> Iterator[Printed]:
        """Once, after all were taken."""
        file = self._files[number]
        file.seek(0)
        while head := file.read(_LENGTH_BYTES):
            yield tuple(canonical.unpack(file.read(int.from_bytes(head, "big"))))


def _file() -> IO[bytes]:
    return tempfile.TemporaryFile()


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
        )
        for one in sorted(info.columns, key=lambda column: column.offset)
        if one.is_writable
    ]
    key = compile_sql(info).key_columns
    keys = (UniqueKey("PRIMARY", tuple(KeyPart(one.name) for one in key)),) if key else ()
    table = reader.table
    return DownstreamTable(table.schema, table.table, tuple(columns), keys, dialect=Dialect.TIDB)


def _type(column: Column) -> str:
    kind = column.type.kind
    if kind not in _TYPES:
        return "unknown"
    return _OF_FIXED_LENGTH.get(kind, _TYPES[kind]) if column.type.tp == STRING else _TYPES[kind]


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
