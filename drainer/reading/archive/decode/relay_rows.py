"""Relay rows: the records of a relay log as rows, our own records and those of a Go drainer.

In     payloads in the order of the file, definitions
Out    DDL, and pieces of transactions as images
Holds  our records bring the definitions of their tables, in the file before they are needed. For a Go
       drainer's those that were given count, then what the record itself says: names, types and unique keys
Tests  tests/drainer/reading/archive/decode/test_reading.py
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from google.protobuf.message import DecodeError

from common.protobuf_fields import Read
from common.table_info import ENUM, FLAG_UNSIGNED, INTEGER_TYPES, LONGLONG, SET, YEAR, Column
from common.wire import secondary_binlog_pb2 as pb
from drainer.formats.obinlog import reader
from drainer.formats.obinlog.reader import ForeignTable, ObinlogReader, RecordHead, ToUtc
from drainer.formats.obinlog.writer import type_name
from drainer.formats.segment_index import UTC
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.images import Images
from drainer.reading.archive.decode.records import Row
from drainer.relay import table_definitions
from drainer.relay.source import to_utc
from drainer.txn import Ddl, TableVersion


class RelayRows:
    """Of one file, from its beginning. `time_zone`: of records that do not say theirs: a Go drainer writes
    its local time."""

    def __init__(self, definitions: Definitions, time_zone: str = UTC) -> None:
        self._definitions = definitions
        self._time_zone = time_zone
        self._numbered: dict[int, TableVersion] = {}
        self._reader = ObinlogReader(self._numbered, self._resolve)
        self._images = Images()
        self._zones: dict[str, ToUtc] = {}
        self._unsigned: dict[tuple[str, str], set[str]] = {}
        self._foreign: dict[tuple[ForeignTable, frozenset[str]], TableVersion] = {}
        self._commit_ts = 0

    def head(self, read: Read, size: int) -> RecordHead:
        """Take the next payload, whether its rows are wanted or not. Raises `Corruption`."""
        found = reader.head(read, size)
        for number, document in found.definitions.items():
            self._numbered[number] = self._definitions.intern(reader.definition(document))
        self._commit_ts = found.commit_ts
        return found

    def ddl(self, read: Read, found: RecordHead) -> Ddl:
        return reader.ddl(read, found)

    def pieces(self, read: Read, found: RecordHead) -> Iterator[tuple[list[tuple[int, list[Row]]], bool]]:
        """Runs of rows with the place of their first one, and whether they are the last ones."""
        zone = self._zones.get(found.time_zone)
        if zone is None:
            zone = self._zones[found.time_zone] = to_utc(found.time_zone or self._time_zone)
        if not found.time_zone:
            self._note_unsigned(read, found)
        for piece in self._reader.pieces(read, found, zone):
            runs = [(events.first_ordinal, self._images.rows(events)) for events in piece.tables]
            yield runs, piece.last

    # -- tables of a Go drainer --------------------------------------------------------------------

    def _resolve(self, table: ForeignTable) -> TableVersion:
        types = {info.name: info.mysql_type for info in map(pb.ColumnInfo.FromString, table.columns)}
        known = self._definitions.find(
            table.schema, table.name, self._commit_ts, list(types), lambda version: _fits(version, types)
        )
        if known is not None:
            return known
        unsigned = frozenset(self._unsigned.get((table.schema, table.name), ()))
        version = self._foreign.get((table, unsigned))
        if version is None:
            info = table_definitions.info_of(table, {}, 0)
            columns = tuple(_as_written(column, unsigned) for column in info.columns)
            version = TableVersion(replace(info, columns=columns), table.schema, table.name, 0)
            version = self._foreign[table, unsigned] = self._definitions.intern(version)
        return version

    def _note_unsigned(self, read: Read, found: RecordHead) -> None:
        """The columns of which a record has unsigned numbers: the description does not say it."""
        assert found.dml is not None
        try:
            data = pb.DMLData.FromString(read(*found.dml))
        except DecodeError:
            return  # the reader finds out where
        for table in data.tables:
            known = self._unsigned.setdefault((table.schema_name, table.table_name), set())
            for mutation in table.mutations:
                for row in (mutation.row, mutation.change_row):
                    known.update(_unsigned_of(table.column_info, row.columns))


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
