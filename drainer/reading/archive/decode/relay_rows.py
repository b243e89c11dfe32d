"""Relay rows: the records of a relay log as rows, our own records in both formats and those of a Go drainer.

In     payloads in the order of the file, definitions
Out    DDL, and pieces of transactions as images; of binlogs as pumps sent them what went downstream then
Holds  our records bring the definitions of their tables, in the file before they are needed. For a Go
       drainer's those that were given count, then what the record itself says: names, types and unique keys
Tests  tests/drainer/reading/archive/decode/test_reading.py
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from google.protobuf.message import DecodeError

from drainer.formats.obinlog import reader
from drainer.formats.obinlog.reader import ForeignTable
from drainer.formats.obinlog.writer import type_name
from drainer.formats.relay_payload import in_memory
from drainer.formats.segment_index import UTC
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.images import Images
from drainer.reading.archive.decode.records import Row
from drainer.relay import table_definitions
from drainer.relay.record_readers import RecordReader, RecordReaders
from drainer.txn import Ddl, TableVersion, Transaction
from tidb_binlog.protobuf_fields import Read
from tidb_binlog.table_info import ENUM, FLAG_UNSIGNED, INTEGER_TYPES, LONGLONG, SET, YEAR, Column
from tidb_binlog.wire import secondary_binlog_pb2 as pb

LARGE_BYTES: Final = 4 << 20
"""A larger transaction is decoded in pieces."""
Runs = Iterator[tuple[list[tuple[int, list[Row]]], bool]]
"""Runs of rows with the place of their first one, and whether they are the last ones."""


class RelayRows:
    """Of one file, from its beginning: `see` for every record, then perhaps `ddl` or `pieces` for it.

    `time_zone`: of records that do not say theirs: a Go drainer writes its local time.
    """

    def __init__(self, definitions: Definitions, time_zone: str = UTC) -> None:
        self._definitions = definitions
        self._readers = RecordReaders(self._resolve, definitions.intern, time_zone)
        self._images = Images()
        # The record that was seen last.
        self._read: Read
        self._size = self._commit_ts = 0
        self._reader: RecordReader
        # Of tables of a Go drainer: columns that have had unsigned numbers, what was made of descriptions.
        self._unsigned: dict[tuple[str, str], set[str]] = {}
        self._foreign: dict[tuple[ForeignTable, frozenset[str]], TableVersion] = {}

    def see(self, payload: bytes) -> None:
        """The next record, whether it is wanted or not. Raises `Corruption`, `ConfigError`."""
        self._read, self._size = in_memory(payload), len(payload)
        self._commit_ts, self._reader = self._readers.of(self._read, self._size)

    def lose(self) -> None:
        """Records before the next one were passed over."""
        self._readers.lose()

    def ddl(self) -> Ddl:
        """The DDL of the record that was seen last. Raises `Corruption`."""
        item = self._reader.item(self._read, self._size)
        assert isinstance(item, Ddl)
        return item

    def pieces(self) -> Runs:
        """Its rows. Raises `Corruption`, `ConfigError`."""
        read, size = self._read, self._size
        if not self._reader.own:
            self._note_unsigned(read, size)
        large = size > LARGE_BYTES
        for piece in self._reader.pieces(read, size) if large else (self._reader.item(read, size),):
            assert isinstance(piece, Transaction)
            yield [(events.first_ordinal, self._images.rows(events)) for events in piece.tables], piece.last

    # -- tables of a Go drainer --------------------------------------------------------------------

    def _resolve(self, table: ForeignTable) -> TableVersion:
        types = {info.name: info.mysql_type for info in map(pb.ColumnInfo.FromString, table.columns)}
        defined = self._definitions.find(
            table.schema, table.name, self._commit_ts, list(types), lambda version: _fits(version, types)
        )
        if defined is not None:
            return defined
        unsigned = frozenset(self._unsigned.get((table.schema, table.name), ()))
        version = self._foreign.get((table, unsigned))
        if version is None:
            info = table_definitions.info_of(table, {}, 0)
            columns = tuple(_as_written(column, unsigned) for column in info.columns)
            version = TableVersion(replace(info, columns=columns), table.schema, table.name, 0)
            version = self._foreign[table, unsigned] = self._definitions.intern(version)
        return version

    def _note_unsigned(self, read: Read, size: int) -> None:
        """The columns of which a record has unsigned numbers: the description does not say it."""
        head = reader.head(read, size)
        assert head.dml is not None
        try:
            data = pb.DMLData.FromString(read(*head.dml))
        except DecodeError:
            return  # the reader finds out where
        for table in data.tables:
            names = self._unsigned.setdefault((table.schema_name, table.table_name), set())
            for mutation in table.mutations:
                for row in (mutation.row, mutation.change_row):
                    names.update(_unsigned_of(table.column_info, row.columns))


def _fits(version: TableVersion, types: Mapping[str, str]) -> bool:
    writable = [column for column in version.info.columns if column.is_writable]
    return all(type_name(column.type) == types[column.name] for column in writable)


def _unsigned_of(infos: Sequence[pb.ColumnInfo], columns: Sequence[pb.Column]) -> Iterator[str]:
    for info, column in zip(infos, columns, strict=False):
        if column.HasField("uint64_value"):
            yield info.name


def _as_written(column: Column, unsigned: frozenset[str]) -> Column:
    """ENUM and SET are numbers in a record, and their names are not known."""
    kind = column.type
    if kind.tp in (ENUM, SET):
        return replace(column, type=replace(kind, tp=LONGLONG, flag=kind.flag | FLAG_UNSIGNED))
    if kind.tp in INTEGER_TYPES and kind.tp != YEAR and column.name in unsigned:
        return replace(column, type=replace(kind, flag=kind.flag | FLAG_UNSIGNED))
    return column
