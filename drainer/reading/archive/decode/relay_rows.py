"""Relay rows: the records of a relay log as rows, our own records in both formats and those of a Go drainer.

In     payloads in the order of the file, definitions
Out    DDL, and pieces of transactions as images; of binlogs as pumps sent them what went downstream then
Holds  our records bring the definitions of their tables, in the file before they are needed. For a Go
       drainer's those that were given count, then what the record itself says: names, types and unique keys
Tests  tests/drainer/reading/archive/decode/test_reading.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from google.protobuf.message import DecodeError

from drainer.formats.obinlog import reader
from drainer.formats.obinlog.reader import ForeignTable, ObinlogReader, RecordHead, ToUtc
from drainer.formats.obinlog.writer import type_name
from drainer.formats.relay_payload.record import RecordHead as SentHead
from drainer.formats.relay_payload.record import in_memory, is_payload_record, record_head
from drainer.formats.segment_index import UTC
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.images import Images
from drainer.reading.archive.decode.records import Row
from drainer.relay import table_definitions
from drainer.relay.payload_reader import PayloadReader, PayloadReaders
from drainer.relay.record_time import to_utc
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
        self._time_zone = time_zone
        self._numbered: dict[int, TableVersion] = {}
        self._reader = ObinlogReader(self._numbered, self._resolve)
        self._sent = PayloadReaders(definitions.intern)
        self._ddl: Callable[[], Ddl]
        self._pieces: Callable[[], Runs]
        self._images = Images()
        self._zones: dict[str, ToUtc] = {}
        self._unsigned: dict[tuple[str, str], set[str]] = {}
        self._foreign: dict[tuple[ForeignTable, frozenset[str]], TableVersion] = {}
        self._commit_ts = 0

    def see(self, payload: bytes) -> None:
        """The next record, whether it is wanted or not. Raises `Corruption`, `ConfigError`."""
        read, size = in_memory(payload), len(payload)
        if is_payload_record(payload):
            head = record_head(read, size)
            sent = self._sent.of(head)
            self._ddl = lambda: sent.ddl(read, head)
            self._pieces = lambda: self._of_sent(sent, read, head)
            return
        found = reader.head(read, size)
        for number, document in found.definitions.items():
            self._numbered[number] = self._definitions.intern(reader.definition(document))
        self._commit_ts = found.commit_ts
        self._ddl = lambda: reader.ddl(read, found)
        self._pieces = lambda: self._of_obinlog(read, found)

    def lose(self) -> None:
        """Records were passed over: of binlogs as pumps sent them, rules and numbers of definitions may have
        begun anew there. Rows are read by what is noted from here on, or not at all."""
        self._sent = PayloadReaders(self._definitions.intern)

    def ddl(self) -> Ddl:
        """The DDL of the record that was seen last. Raises `Corruption`."""
        return self._ddl()

    def pieces(self) -> Runs:
        """Its rows. Raises `Corruption`, `ConfigError`."""
        return self._pieces()

    def _of_sent(self, sent: PayloadReader, read: Read, head: SentHead) -> Runs:
        large = head.size - head.body > LARGE_BYTES
        for piece in sent.pieces(read, head) if large else (sent.transaction(read, head),):
            yield self._runs(piece), piece.last

    def _runs(self, piece: Transaction) -> list[tuple[int, list[Row]]]:
        return [(events.first_ordinal, self._images.rows(events)) for events in piece.tables]

    def _of_obinlog(self, read: Read, found: RecordHead) -> Runs:
        zone = self._zones.get(found.time_zone)
        if zone is None:
            zone = self._zones[found.time_zone] = to_utc(found.time_zone or self._time_zone)
        if not found.time_zone:
            self._note_unsigned(read, found)
        for piece in self._reader.pieces(read, found, zone):
            yield self._runs(piece), piece.last

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
