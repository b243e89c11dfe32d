"""Reader of obinlog: payloads of a relay log become transactions and DDL again, as the translator gives
them.

In     a payload as `read(offset, size)`, the table definitions of its file; for a table without one (a Go
       drainer's relay) a definition of the table downstream
Out    `RecordHead`, then a `Ddl`, or a `Transaction` in pieces with its rows encoded anew
Holds  of a payload that we wrote, table versions, kinds and ordinals are those that were written, so lanes
       take the rows that they took then; rows hold the same values, not the same bytes
Why    a transaction is one record, whatever its size: it is walked field by field, a piece in memory at once
Never  drops a record or a row that it does not understand: `Corruption` names the commit_ts
Tests  tests/drainer/formats/obinlog/test_writer.py
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NoReturn

from google.protobuf.message import DecodeError

from drainer.changes.statement_effect import action_of
from drainer.txn import DELETE, INSERT, UPDATE, Ddl, TableEvents, TableVersion, Tracked, Transaction
from tidb_binlog.errors import BinlogError, Corruption
from tidb_binlog.foreign_document import UNREADABLE
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.protobuf_fields import LENGTH, MalformedMessage, Read, fields, utf8_text
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import ColumnKind, FieldType, TableInfo
from tidb_binlog.tso import Ts
from tidb_binlog.wire import secondary_binlog_pb2 as pb

PIECE_ROWS: Final = 4000
PIECE_BYTES: Final = 1 << 20
_NO_LIMIT: Final = 1 << 62
_KINDS: Final = {pb.Insert: INSERT, pb.Update: UPDATE, pb.Delete: DELETE}
_HINT: Final = "the record is whole, so it was written like this: compare the versions of the drainers"
_TAG_TABLE, _TAG_MUTATION = 0x0A, 0x22
_TAG_DML, _TAG_DDL, _TAG_ZONE, _TAG_DEFINITION = 0x1A, 0x22, 0x2A, 0x1F4A


@dataclass(slots=True)
class RecordHead:
    """A payload without its rows. `dml` and `ddl` are (offset, size); `definitions` by number, undecoded."""

    commit_ts: Ts = 0
    dml: tuple[int, int] | None = None
    ddl: tuple[int, int] | None = None
    time_zone: str = ""
    definitions: dict[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ForeignTable:
    """What a record says of a table that the file has no definition of. Equal for equal tables."""

    schema: str
    name: str
    columns: tuple[bytes, ...]  # ColumnInfo, undecoded
    keys: tuple[bytes, ...]  # Key, undecoded


Resolve = Callable[[ForeignTable], TableVersion]
"""Blocks; raises `DownstreamError` for a table that is not there or does not fit."""
ToUtc = Callable[[str], str]
"""TIMESTAMP text of the record's time zone to UTC."""


def head(read: Read, size: int) -> RecordHead:
    """Read the head of a payload without its rows. Raises `Corruption`."""
    parsed = RecordHead()
    try:
        for tag, value, at in fields(read, 0, size):
            if tag == 0x10:
                parsed.commit_ts = value
            elif tag == _TAG_DML:
                parsed.dml = (at, value)
            elif tag == _TAG_DDL:
                parsed.ddl = (at, value)
            elif tag == _TAG_ZONE:
                parsed.time_zone = read(at, value).decode("utf-8", "replace")
            elif tag == _TAG_DEFINITION:
                definition = pb.TableDefinition.FromString(read(at, value))
                parsed.definitions[definition.number] = definition.table
    except (MalformedMessage, DecodeError) as error:
        raise Corruption(f"record of {size} bytes is no obinlog: {error}", hint=_HINT) from None
    if not parsed.commit_ts or (parsed.dml is None) == (parsed.ddl is None):
        raise Corruption(
            f"record with commit_ts {parsed.commit_ts} has neither rows nor a DDL, or both", hint=_HINT
        )
    return parsed


def definition(document: bytes) -> TableVersion:
    """A table version as `obinlog.definition_json` wrote it. Raises `Corruption`."""
    try:
        return version_of(json.loads(document))
    except UNREADABLE as error:
        raise Corruption(f"table definition in a relay log cannot be read: {error}", hint=_HINT) from None


def version_of(document: Mapping[str, Any], *, partial: bool = False) -> TableVersion:
    """The same of `obinlog.definition_document`. Raises what `UNREADABLE` names."""
    target = document["target"]
    return TableVersion(
        TableInfo.from_json(document["info"]),
        document["schema"],
        document["name"],
        document["version"],
        None if target is None else (target[0], target[1]),
        frozenset(document["left_out"]),
        partial,
    )


def ddl(read: Read, head: RecordHead) -> Ddl:
    """The DDL of a payload. Raises `Corruption`."""
    assert head.ddl is not None
    try:
        data = pb.DDLData.FromString(read(*head.ddl))
        if data.HasField("job"):
            return ddl_of(json.loads(data.job))
        schema, table = utf8_text(data.schema_name), utf8_text(data.table_name)
    except (DecodeError, *UNREADABLE) as error:
        raise Corruption(f"DDL with commit_ts {head.commit_ts} cannot be read: {error}", hint=_HINT) from None
    query = data.ddl_query.decode("utf-8", "surrogateescape")
    names = ((schema, table),) if schema else ()
    return Ddl(head.commit_ts, 0, action_of(query), schema, query, names, 0)


def ddl_of(document: dict[str, Any]) -> Ddl:
    """The DDL of `obinlog.ddl_document`. Raises what `UNREADABLE` names."""
    document["tables"] = tuple((schema, table) for schema, table in document["tables"])
    document["instead"] = tuple(document["instead"])
    document["targets"] = tuple((schema, table) for schema, table in document.get("targets", ()))
    document["unread"] = frozenset((schema, table) for schema, table in document.get("unread", ()))
    for key in ("before", "after", "shared"):
        document[key] = tuple(Tracked(**tracked) for tracked in document.get(key, ()))
    return Ddl(**document)


# -- rows -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Table:
    """A `Table` message without its rows."""

    start: int
    stop: int
    schema: str = ""
    name: str = ""
    columns: list[bytes] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    definition: int = 0
    first_ordinal: int = 0


class ObinlogReader:
    """Reads the rows of one file's payloads. Plans are kept as long as the reader."""

    def __init__(self, definitions: Mapping[int, TableVersion], resolve: Resolve) -> None:
        self._definitions = definitions
        self._resolve = resolve
        self._rows: dict[TableVersion, _RowWriter] = {}
        self._readable: set[ForeignTable] = set()

    def transaction(self, read: Read, head: RecordHead, to_utc: ToUtc) -> Transaction:
        """A whole transaction. Raises `Corruption` and what `resolve` raises."""
        (whole,) = self.pieces(read, head, to_utc, rows_max=_NO_LIMIT, bytes_max=_NO_LIMIT)
        return whole

    def pieces(
        self,
        read: Read,
        head: RecordHead,
        to_utc: ToUtc,
        *,
        rows_max: int = PIECE_ROWS,
        bytes_max: int = PIECE_BYTES,
    ) -> Iterator[Transaction]:
        """The pieces of a transaction; at least one. Raises as `transaction`."""
        waiting: Transaction | None = None
        try:
            for events, size in self._gathered(read, head, to_utc, rows_max, bytes_max):
                if waiting is not None:
                    yield waiting
                waiting = Transaction(0, head.commit_ts, events, size, last=False)
        except (MalformedMessage, DecodeError, UnicodeDecodeError) as error:
            _fail(head.commit_ts, str(error))
        if waiting is None:
            waiting = Transaction(0, head.commit_ts, (), 0)
        waiting.last = True
        yield waiting

    def _gathered(
        self, read: Read, head: RecordHead, to_utc: ToUtc, rows_max: int, bytes_max: int
    ) -> Iterator[tuple[tuple[TableEvents, ...], int]]:
        """Events of consecutive tables, as many as make a piece, and their bytes."""
        assert head.dml is not None
        start, size = head.dml
        gathered: list[TableEvents] = []
        ordinal = rows = taken = 0
        for tag, value, at in fields(read, start, start + size):
            if tag != _TAG_TABLE:
                continue
            table = _survey(read, at, at + value)
            ordinal = table.first_ordinal or ordinal
            version = self._version(table, head.commit_ts)
            kinds: list[int] = []
            events = TableEvents(version, kinds, [], ordinal)
            for kind, row in self._rows_of(read, table, version, to_utc):
                kinds.append(kind)
                events.rows.append(row)
                ordinal += 1
                rows += 1
                taken += len(row)
                if rows >= rows_max or taken >= bytes_max:
                    yield (*gathered, events), taken
                    gathered, kinds, rows, taken = [], [], 0, 0
                    events = TableEvents(version, kinds, [], ordinal)
            if events.rows:
                gathered.append(events)
        if gathered:
            yield tuple(gathered), taken

    def _version(self, table: _Table, commit_ts: Ts) -> TableVersion:
        if not table.definition:
            foreign = ForeignTable(table.schema, table.name, tuple(table.columns), tuple(table.keys))
            if foreign not in self._readable:
                _check_texts(foreign)
                self._readable.add(foreign)
            return self._resolve(foreign)
        version = self._definitions.get(table.definition)
        if version is None:
            _fail(
                commit_ts, f"table {table.schema}.{table.name} has a definition that the file does not have"
            )
        return version

    def _rows_of(
        self, read: Read, table: _Table, version: TableVersion, to_utc: ToUtc
    ) -> Iterator[tuple[int, bytes]]:
        """Kind and row of each mutation, in order."""
        writer = self._rows.get(version)
        if writer is None:
            writer = self._rows[version] = _RowWriter(version, table)
        for tag, value, at in fields(read, table.start, table.stop):
            if tag != _TAG_MUTATION:
                continue
            mutation = pb.TableMutation.FromString(read(at, value))
            kind = _KINDS.get(mutation.type)
            if kind is None:
                raise MalformedMessage(f"mutation of type {mutation.type}")
            yield kind, writer.row(kind, mutation, to_utc)


def _survey(read: Read, start: int, stop: int) -> _Table:
    table = _Table(start, stop)
    for tag, value, at in fields(read, start, stop):
        if tag == 0x0A:
            table.schema = read(at, value).decode()
        elif tag == 0x12:
            table.name = read(at, value).decode()
        elif tag == 0x1A:
            table.columns.append(read(at, value))
        elif tag == 0x2A:
            table.keys.append(read(at, value))
        elif tag == 0x1F48:
            table.definition = value
        elif tag == 0x1F50:
            table.first_ordinal = value
        elif tag & 7 == LENGTH and tag != _TAG_MUTATION:
            raise MalformedMessage(f"table with a field {tag >> 3}")
    return table


def _check_texts(table: ForeignTable) -> None:
    """Raises `MalformedMessage`."""
    for column in map(pb.ColumnInfo.FromString, table.columns):
        utf8_text(column.name), utf8_text(column.mysql_type)
    for key in map(pb.Key.FromString, table.keys):
        for name in (key.name, *key.column_names):
            utf8_text(name)


class _RowWriter:
    """Rows of one table version from messages: values by column name, then the row encoder."""

    def __init__(self, version: TableVersion, table: _Table) -> None:
        types = {column.name: column.type for column in version.info.columns}
        names = [utf8_text(pb.ColumnInfo.FromString(info).name) for info in table.columns]
        self._label = f"{table.schema}.{table.name}"
        self._columns = [(name, _value_of(types[name]) if name in types else None) for name in names]
        self._zoned = {name for name in names if name in types and types[name].kind is ColumnKind.TIMESTAMP}
        self._encoder = RowEncoder(version.info)

    def row(self, kind: int, mutation: pb.TableMutation, to_utc: ToUtc) -> bytes:
        """Encode a row anew."""
        values = self._values(mutation.row, to_utc)
        try:
            if kind == INSERT:
                return self._encoder.insert(values, 1)
            if kind == DELETE:
                return self._encoder.delete(values, 1)
            return self._encoder.update(self._values(mutation.change_row, to_utc), values, 1)
        except BinlogError as error:
            raise MalformedMessage(f"row of {self._label}: {error}") from None

    def _values(self, row: pb.Row, to_utc: ToUtc) -> dict[str, Any]:
        if len(row.columns) != len(self._columns):
            raise MalformedMessage(
                f"row of {self._label} has {len(row.columns)} of {len(self._columns)} columns"
            )
        values: dict[str, Any] = {}
        for column, (name, value_of) in zip(row.columns, self._columns, strict=True):
            if value_of is None:
                continue
            try:
                value = None if column.is_null else value_of(column)
                values[name] = to_utc(value) if value is not None and name in self._zoned else value
            except UNREADABLE:
                raise MalformedMessage(
                    f"column {name} of {self._label} has a value of another type"
                ) from None
        return values


def _value_of(field_type: FieldType) -> Callable[[pb.Column], Any]:
    """How a column's value lies in a message."""
    return _VALUES.get(field_type.kind, _any)


def _document(text: bytes) -> Any:
    """JSON for the row encoder: as text, except where that would lose the sign of a zero."""
    if b"-0" not in text:
        return text.decode()
    document = json.loads(text, parse_int=lambda digits: -0.0 if digits == "-0" else int(digits))
    return text.decode() if isinstance(document, str) else document


def _integer(column: pb.Column) -> int:
    return column.uint64_value if column.HasField("uint64_value") else column.int64_value


def _any(column: pb.Column) -> Any:
    """In the order in which readers expect it; a string that is not UTF-8 comes as bytes."""
    if column.HasField("string_value"):
        return column.string_value
    if column.HasField("bytes_value"):
        return column.bytes_value
    if column.HasField("double_value"):
        return column.double_value
    return _integer(column)


def _fail(commit_ts: Ts, what: str) -> NoReturn:
    raise Corruption(f"transaction with commit_ts {commit_ts} of the relay log: {what}", hint=_HINT) from None


_VALUES: Final[dict[ColumnKind, Callable[[pb.Column], Any]]] = {
    ColumnKind.SIGNED: _integer,
    ColumnKind.UNSIGNED: _integer,
    ColumnKind.YEAR: lambda column: int(column.string_value),
    ColumnKind.BIT: lambda column: int.from_bytes(column.bytes_value, "big"),
    ColumnKind.JSON: lambda column: _document(column.bytes_value),
}
