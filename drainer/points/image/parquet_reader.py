"""Parquet reader: the files of an image as encoded rows, whoever wrote them.

Out    images of its rows (`drainer.reading.archive.decode.images`), by row group, always in one order
Holds  a value that its column could not hold is read from the column `INVALID`. Fewer or more rows than the
       manifest says are damage, and so are pages that differ from their checksums
Tests  tests/drainer/points/image/test_parquet.py
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyarrow import parquet

from drainer.points.image.columns import ROW, notes_name
from drainer.points.image.manifest import TableImage
from drainer.reading.archive.columns.column_types import Family, family_of
from drainer.txn import TableVersion
from tidb_binlog.errors import Corruption
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.rowcodec.datum import NULL_DATUM
from tidb_binlog.rowcodec.json_encode import put_document
from tidb_binlog.rowcodec.put import put_value
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.rowcodec.varint import put_svarint
from tidb_binlog.table_info import Column, FieldType

T = TypeVar("T")
BATCH_ROWS: Final = 4_000
_TIMES_KEPT: Final = 20_000
_EMPTY: Final = b"\x00"
_HINT: Final = "the image is damaged: make it anew"
_ERRORS: Final = (pa.ArrowException, OSError, KeyError, ValueError, TypeError, OverflowError)


@dataclass(frozen=True, slots=True)
class Group:
    """A row group of a file of the table."""

    name: str
    number: int
    rows: int


class TableReader:
    """Rows of one table. `version`: as the image defines it."""

    def __init__(self, directory: str, table: TableImage) -> None:
        self.table = table
        self.version: TableVersion = table.version
        self._image, self._place = directory, table.place(directory)
        self._checked = ""
        ordered = sorted(self.version.info.columns, key=lambda column: column.offset)
        self._notes = notes_name(self.version)
        self._columns = [_ColumnReader(column) for column in ordered if column.is_writable]

    def groups(self) -> list[Group]:
        """All of them. Raises `Corruption`, also where their rows are not as many as the manifest says."""
        groups = [
            Group(name, number, footer.row_group(number).num_rows)
            for name in self.table.names(self._image)
            for footer in (self._footer(name),)
            for number in range(footer.num_row_groups)
        ]
        rows = sum(group.rows for group in groups)
        if rows != self.table.rows:
            raise Corruption(
                f"{self._place.shown} has {rows} rows, and the manifest says {self.table.rows}",
                hint=_HINT,
            )
        return groups

    def batches(self, group: Group) -> Iterator[pa.RecordBatch]:
        """Columns of the table and `INVALID`. Raises `Corruption`."""
        names = [*(column.name for column in self._columns), self._notes]
        try:
            if self._checked != group.name:
                self.table.check(self._image, group.name)
                self._checked = group.name
            with self._place.native(group.name) as source:
                file = parquet.ParquetFile(
                    source, coerce_int96_timestamp_unit="us", page_checksum_verification=True
                )
                yield from file.iter_batches(BATCH_ROWS, row_groups=[group.number], columns=names)
        except _ERRORS as error:
            raise self._damage(group, error) from None

    def images(self, group: Group) -> Iterator[bytes]:
        """Its rows. Raises `Corruption`."""
        for batch in self.batches(group):
            try:
                yield from self._encoded(batch)
            except _ERRORS as error:
                raise self._damage(group, error) from None

    def rows(self, group: Group, read: Callable[[bytes], T]) -> Iterator[T]:
        """What `read` makes of them, which may raise `RowError`. Raises `Corruption`."""
        for image in self.images(group):
            try:
                yield read(image)
            except RowError as error:
                raise self._damage(group, error) from None

    def _footer(self, name: str) -> parquet.FileMetaData:
        try:
            with self._place.native(name) as source:
                return parquet.read_metadata(source)
        except _ERRORS as error:
            raise self._damage(Group(name, 0, 0), error) from None

    def _damage(self, group: Group, error: BaseException) -> Corruption:
        what = f"{self._place.path_of(group.name)}: row group {group.number}"
        return Corruption(f"{what}: {str(error) or type(error).__name__:.200}", hint=_HINT)

    def _encoded(self, batch: pa.RecordBatch) -> list[bytes]:
        if not self._columns:
            return [_EMPTY] * batch.num_rows
        notes = [None if note is None else json.loads(note) for note in batch.column(self._notes).to_pylist()]
        noted = [(row, note) for row, note in enumerate(notes) if note is not None]
        parts = [column.pairs(batch, noted) for column in self._columns]
        return [b"".join(pairs) for pairs in zip(*parts, strict=True)]


class _ColumnReader:
    """Pairs of column id and datum."""

    def __init__(self, column: Column) -> None:
        self.name = column.name
        self._type = column.type
        self._head = b"\x08" + put_svarint(column.id)
        self._null = self._head + NULL_DATUM
        self._put = _putting(column.type)
        self._plain = _PLAIN.get(family_of(column.type), lambda array: array)
        self._key = f"{ROW}.{column.name}"

    def pairs(self, batch: pa.RecordBatch, noted: list[tuple[int, dict[str, Any]]]) -> list[bytes]:
        head, null, put = self._head, self._null, self._put
        values = self._plain(batch.column(self.name)).to_pylist()
        pairs = [null if value is None else head + put(value) for value in values]
        for row, note in noted:
            if self._key in note:
                pairs[row] = head + put_value(self._type, self._noted(note[self._key]))
        return pairs

    def _noted(self, text: Any) -> Any:
        """A value that the column of the file could not hold."""
        if isinstance(text, dict):
            return base64.b64decode(text["base64"])
        return int(text) if family_of(self._type) is Family.NAMED else text


def _putting(kind: FieldType) -> Callable[[Any], bytes]:
    """How a value becomes a datum. Values that come again are not made twice."""
    family = family_of(kind)
    if family is Family.INTEGER:
        return lambda value: put_value(kind, int(value))
    if family is Family.JSON:
        return lambda text: put_document(json.loads(text, parse_int=_number))
    if family in (Family.DATE, Family.DATETIME, Family.TIME, Family.NAMED):
        return lru_cache(maxsize=_TIMES_KEPT)(lambda value: put_value(kind, value))
    return lambda value: put_value(kind, value)


def _number(text: str) -> int | float:
    """A double without a fraction is printed as an integer; of 0 that would lose the sign."""
    return -0.0 if text == "-0" else int(text)


def _times(array: pa.Array) -> pa.Array:
    return array.cast(pa.duration("us")) if pa.types.is_int64(array.type) else array


_PLAIN: Final[dict[Family, Callable[[pa.Array], pa.Array]]] = {
    Family.TIME: _times,
    Family.TEXT: lambda array: array.cast(pa.binary()),
}
