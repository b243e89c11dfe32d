"""Debezium JSON: messages in the envelope of Debezium, as its JSON converter writes it.

Out    `before`, `after`, `source`, `op`, `ts_ms`, with or without the schema; a key with the key's columns
Why    an update that changes the key is a delete and an insert, as Debezium's MySQL connector has it
Source Debezium's documentation of its MySQL connector; `commit_ts`, `cluster_id` in `source` and watermarks
       (op `m`) as TiCDC has them. `source.row` is the row's number in its transaction

    value                              JSON                                 schema
    integers                           number                               int16, int32, int64
    BIGINT UNSIGNED                    base64 of a number                   Decimal; int64 with "long"
    DECIMAL                            base64 of the digits as a number     Decimal; string, double on request
    FLOAT, DOUBLE                      number                               float, double
    BIT(1), other BIT                  boolean; base64, low byte first      boolean; Bits
    YEAR                               number                               Year
    DATE                               number of days since 1970            Date
    DATETIME                           milliseconds, beyond 3 digits microseconds    Timestamp, MicroTimestamp
    TIMESTAMP                          string, ISO 8601 in UTC              ZonedTimestamp
    TIME                               number of microseconds               MicroTime
    text                               string; U+FFFD for what is not UTF-8 string
    BINARY, VARBINARY, BLOB            base64                               bytes
    ENUM, SET                          string                               Enum, EnumSet
    JSON                               string that has the document         Json

A date that no calendar has is null, or the beginning of 1970 in a column that cannot be NULL.
"""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from drainer.changes.row_reader import RowReader
from drainer.changes.values import element_text, shown
from drainer.formats.messages.debezium_ddl import (
    WATERMARK_KEY,
    envelope_schema,
    schema_change,
    struct,
    watermark_schema,
)
from drainer.formats.messages.json_rows import (
    COLUMNS,
    NULL,
    JsonColumn,
    JsonRows,
    ToColumn,
    Values,
    binary32_text,
    column_by_type,
    integer_column,
    json_string,
    scaled_digits,
    shown_column,
    unscaled,
    unsigned_column,
)
from drainer.formats.messages.message import KINDS, FormatOptions, Message, allowed
from drainer.formats.messages.told_effect import told_effect
from drainer.txn import DELETE, INSERT, UPDATE, Ddl, TableVersion, Transaction
from tidb_binlog import table_info as ti
from tidb_binlog import tso
from tidb_binlog.rowcodec.codegen import Conversion, Shape
from tidb_binlog.rowcodec.datum import read_duration, read_int
from tidb_binlog.rowcodec.strict import Reader
from tidb_binlog.rowcodec.temporal import datetime_text
from tidb_binlog.rowcodec.time_caches import cached_reader
from tidb_binlog.rowcodec.values import set_text
from tidb_binlog.table_info import Column, ColumnKind, FieldType
from tidb_binlog.tso import Ts
from tidb_binlog.version import DISTRIBUTION, release

Schema = dict[str, Any]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO: Final = timedelta(microseconds=1)
_SIGNED: Final = {ti.TINY: "int16", ti.SHORT: "int16", ti.INT24: "int32", ti.LONG: "int32"}
_UNSIGNED: Final = {ti.TINY: "int16", ti.SHORT: "int32", ti.INT24: "int32", ti.LONG: "int64"}
_DECIMAL_MODES: Final = ("precise", "string", "double")
_UNSIGNED_MODES: Final = ("", "precise", "long")


def _base64(raw: bytes) -> str:
    return f'"{base64.b64encode(raw).decode()}"'


def _micro(packed: int) -> int | None:
    """Microseconds since 1970 of a time; None if no calendar has it."""
    year, month = divmod(packed >> 46, 13)
    day, hour, minute, second = packed >> 41 & 31, packed >> 36 & 31, packed >> 30 & 63, packed >> 24 & 63
    try:
        at = datetime(year, month, day, hour, minute, second, packed & 0xFFFFFF, UTC)
    except ValueError:
        datetime_text(packed, 6)  # raises for what is no time at all
        return None
    return (at - _EPOCH) // _MICRO


@functools.cache
def _times(kind: ColumnKind, fsp: int, not_null: bool) -> tuple[Reader, dict[bytes, Any]]:
    """One cache for all columns that show times alike."""
    unit = {ColumnKind.DATE: 86_400_000_000, ColumnKind.DATETIME: 1 if fsp > 3 else 1000}.get(kind)

    def show(packed: int) -> str:
        micro = _micro(packed)
        if micro is None:
            nothing = "0" if unit else '"1970-01-01T00:00:00Z"'
            return nothing if not_null else NULL
        if unit:
            return str(micro // unit)
        return f'"{datetime_text(packed, fsp).replace(" ", "T")}Z"'

    return cached_reader(show)


def _time(column: Column) -> JsonColumn:
    kind = column.type
    read, cache = _times(kind.kind, kind.fsp, kind.not_null)
    return JsonColumn(column, Conversion(Shape.TIME, "", read, {"NULL": NULL}, cache=cache, null="NULL"))


def _micro_of_ns(ns: int) -> str:
    return str(ns // 1000 if ns >= 0 else -(-ns // 1000))


def _bits(field_type: FieldType) -> Callable[[int], str]:
    width = (max(field_type.flen, 1) + 7) // 8

    def show(value: int) -> str:
        if field_type.flen <= 1:
            return "true" if value else "false"
        return _base64(value.to_bytes(max(width, (value.bit_length() + 7) // 8), "little"))

    return show


def _set(field_type: FieldType) -> Callable[[int], str]:
    return lambda mask: json_string(set_text(field_type, mask))


def _enum(field_type: FieldType) -> Callable[[int], str]:
    return lambda number: json_string(element_text(field_type, number) or "")


_INTEGER: Final = integer_column(str, "")
_NULLABLE_UNSIGNED: Final = shown_column(str, Shape.UNSIGNED, "str(u)")


def _unsigned(column: Column) -> JsonColumn:
    if column.type.not_null:
        return JsonColumn(column, Conversion(Shape.UNSIGNED, "u", read_int))
    return _NULLABLE_UNSIGNED(column)


def _duration(column: Column) -> JsonColumn:
    return JsonColumn(
        column, Conversion(Shape.CALL, "", shown(read_duration, _micro_of_ns), {"NULL": NULL}, null="NULL")
    )


_COLUMNS: Final[dict[ColumnKind, ToColumn]] = {
    **COLUMNS,
    ColumnKind.SIGNED: _INTEGER,
    ColumnKind.YEAR: _INTEGER,
    ColumnKind.UNSIGNED: _unsigned,
    ColumnKind.BIT: column_by_type(_bits),
    ColumnKind.ENUM: column_by_type(_enum),
    ColumnKind.SET: column_by_type(_set),
    ColumnKind.FLOAT: shown_column(binary32_text),
    ColumnKind.DOUBLE: shown_column(repr),
    ColumnKind.BINARY: shown_column(_base64, Shape.BYTES, "in_base64(s)", in_base64=_base64),
    ColumnKind.DATE: _time,
    ColumnKind.DATETIME: _time,
    ColumnKind.TIMESTAMP: _time,
    ColumnKind.TIME: _duration,
}

_NAMED_TYPES: Final = {
    ColumnKind.YEAR: ("int32", "io.debezium.time.Year"),
    ColumnKind.DATE: ("int32", "io.debezium.time.Date"),
    ColumnKind.TIMESTAMP: ("string", "io.debezium.time.ZonedTimestamp"),
    ColumnKind.TIME: ("int64", "io.debezium.time.MicroTime"),
    ColumnKind.JSON: ("string", "io.debezium.data.Json"),
    ColumnKind.ENUM: ("string", "io.debezium.data.Enum"),
    ColumnKind.SET: ("string", "io.debezium.data.EnumSet"),
}
_PLAIN_TYPES: Final = {
    ColumnKind.FLOAT: "float",
    ColumnKind.DOUBLE: "double",
    ColumnKind.TEXT: "string",
    ColumnKind.BINARY: "bytes",
}


def _wrapped(value: int) -> str:
    return str(value - (1 << 64) if value >> 63 else value)


def _precise(value: int) -> str:
    return _base64(unscaled(value))


class DebeziumColumns:
    """How columns are written, as the options say."""

    def __init__(self, options: FormatOptions) -> None:
        self._decimal, self._large = options.decimal, options.bigint_unsigned
        options.check("debezium-json", _DECIMAL_MODES, _UNSIGNED_MODES)

    def convert(self, column: Column, place: int) -> JsonColumn:
        """Choose how a column is written."""
        kind, scale = column.type, column.type.fsp
        if kind.kind is ColumnKind.DECIMAL and self._decimal == "precise":
            return shown_column(lambda text: _base64(unscaled(scaled_digits(text, scale))))(column)
        if kind.kind is ColumnKind.DECIMAL and self._decimal == "double":
            return shown_column(lambda text: repr(float(text)))(column)
        if kind.kind is ColumnKind.UNSIGNED and kind.tp == ti.LONGLONG:
            wrapped = self._large == "long"
            return unsigned_column(column, _wrapped if wrapped else _precise, f"large{column.id}")
        return _COLUMNS[kind.kind](column)

    def field(self, column: Column) -> Schema:
        """The column's field in the schema of its row."""
        kind = column.type
        return {**self._type(kind), "optional": not kind.not_null, "field": column.name}

    def _type(self, kind: FieldType) -> Schema:
        if kind.kind in _PLAIN_TYPES:
            return {"type": _PLAIN_TYPES[kind.kind]}
        if kind.kind in _NAMED_TYPES:
            name, semantic = _NAMED_TYPES[kind.kind]
            schema: Schema = {"type": name, "name": semantic, "version": 1}
            if kind.elems:
                schema["parameters"] = {"allowed": allowed(kind)}
            return schema
        if kind.kind is ColumnKind.DATETIME:
            semantic = "MicroTimestamp" if kind.fsp > 3 else "Timestamp"
            return {"type": "int64", "name": f"io.debezium.time.{semantic}", "version": 1}
        if kind.kind is ColumnKind.BIT:
            if kind.flen <= 1:
                return {"type": "boolean"}
            length = {"length": str(kind.flen)}
            return {"type": "bytes", "name": "io.debezium.data.Bits", "version": 1, "parameters": length}
        if kind.kind is ColumnKind.DECIMAL:
            if self._decimal != "precise":
                return {"type": self._decimal}
            return _decimal_type(kind.fsp, kind.flen if kind.flen > 0 else 10)
        return self._integer_type(kind)

    def _integer_type(self, kind: FieldType) -> Schema:
        if kind.tp == ti.LONGLONG and kind.unsigned and self._large != "long":
            return _decimal_type(0, 20)
        return {"type": (_UNSIGNED if kind.unsigned else _SIGNED).get(kind.tp, "int64")}


def _decimal_type(scale: int, precision: int) -> Schema:
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    name = "org.apache.kafka.connect.data.Decimal"
    return {"type": "bytes", "name": name, "version": 1, "parameters": parameters}


_PLANS_MAX: Final = 10_000
_OPS: Final = {INSERT: "c", UPDATE: "u", DELETE: "d"}
_READ: Final = {INSERT: "r"}

# (row before, row after, key) as JSON; None: the key changed
_Parts = tuple[str, str, str]


def dumped(document: Any) -> str:
    """Write a document without blanks."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


class _DebeziumTable:
    """Messages of one table version."""

    def __init__(self, version: TableVersion, columns: DebeziumColumns, options: FormatOptions) -> None:
        self.schema, self.table = version.downstream
        self.rows = rows = JsonRows(version, columns.convert)
        self.keyed = bool(rows.key)
        self.source = f'"db":{json_string(self.schema)},"table":{json_string(self.table)}'
        name = f"{options.cluster}.{self.schema}.{self.table}"
        fields = {place: columns.field(rows.columns[place].column) for place in rows.places}
        self.start = self.end = self.key_start = self.key_end = ""
        if options.with_schema:
            key = struct(f"{name}.Key", [fields[place] for place in rows.key])
            self.key_start, self.key_end = f'{{"schema":{dumped(key)},"payload":', "}"
            schema = envelope_schema(name, list(fields.values()))
            self.start, self.end = f'{{"schema":{dumped(schema)},"payload":', "}"
        self.make = self._functions()

    def _functions(self) -> tuple[Callable[[bytes], Any], ...]:
        rows, readers = self.rows, self.rows.readers
        places, names = rows.places, rows.names
        new, old, key = (rows.source(*each) for each in (("v", places), ("o", places), ("v", rows.key)))
        update = [f"if {rows.key_changed()}: return None"] if rows.key else []
        update.append(f"return f'{{{{{old}}}}}', f'{{{{{new}}}}}', f'{{{{{key}}}}}'")
        return (
            readers.of_insert(
                places,
                [f"return NULL, f'{{{{{new}}}}}', f'{{{{{key}}}}}'"],
                lambda row: self._parts(INSERT, row),
                extra=names,
            ),
            readers.of_update(places, places, update, lambda row: self._parts(UPDATE, row), extra=names),
            readers.of_delete(
                places,
                [f"return f'{{{{{new}}}}}', NULL, f'{{{{{key}}}}}'"],
                lambda row: self._parts(DELETE, row),
                extra=names,
            ),
        )

    def _parts(self, kind: int, row: bytes) -> _Parts | None:
        """The same from any row, by the strict reader."""
        before, after = self.rows.images(kind, row)
        if before is not None and after is not None and self.rows.key_of(before) != self.rows.key_of(after):
            return None
        return self._image(before, after)

    def _image(self, before: Values | None, after: Values | None) -> _Parts:
        rows = self.rows
        key = before if after is None else after
        assert key is not None
        old, new = (
            NULL if image is None else f"{{{rows.text(image, rows.places)}}}" for image in (before, after)
        )
        return old, new, f"{{{rows.text(key, rows.key)}}}"

    def halves(self, row: bytes) -> tuple[tuple[int, _Parts], tuple[int, _Parts]]:
        """An update that changes the key, as a delete and an insert."""
        before, after = self.rows.images(UPDATE, row)
        return (DELETE, self._image(before, None)), (INSERT, self._image(None, after))


class DebeziumJson:
    """The format. Plans of table versions are found by identity."""

    def __init__(self, options: FormatOptions) -> None:
        self._options = options
        self._reader = RowReader()
        self._columns = DebeziumColumns(options)
        self._tables: dict[TableVersion, _DebeziumTable] = {}
        cluster = json_string(options.cluster)
        self._source = (
            f'{{"version":{json_string(release())},"connector":{json_string(DISTRIBUTION)},"name":{cluster},'
            '"ts_ms":'
        )
        self._cluster_id = f'"cluster_id":{cluster}}}'

    def rows(self, transaction: Transaction) -> Iterator[Message]:
        """One message a row; an update that changes the key is two."""
        commit_ts, ops = transaction.commit_ts, _READ if transaction.snapshot else _OPS
        ms = tso.physical_ms(commit_ts)
        for events in transaction.tables:
            table = self._tables.get(events.table) or self._table(events.table)
            make, start, end, keyed = table.make, table.start, table.end, table.keyed
            fold = table.rows.fold
            head = self._source_head(ms, table.source, "true" if transaction.snapshot else "false")
            tail, when = self._source_tail(commit_ts), f',"ts_ms":{ms},"transaction":null}}{end}'
            seq = events.first_ordinal
            for event, row in zip(events.kinds, events.rows, strict=True):
                parts = make[event](row)
                for kind, (before, after, key) in (
                    ((event, parts),) if parts is not None else table.halves(row)
                ):
                    value = (
                        f'{start}{{"before":{before},"after":{after},"source":{head}{seq}{tail},'
                        f'"op":"{ops[kind]}"{when}'
                    )
                    row_key = f"{table.key_start}{key}{table.key_end}".encode() if keyed else None
                    yield Message(
                        table.schema,
                        table.table,
                        row_key,
                        value.encode(),
                        commit_ts,
                        seq,
                        KINDS[kind],
                        row_key and fold(row_key),
                    )
                seq += 1

    def ddl(self, ddl: Ddl, text: str) -> Message:
        """A schema change with the tables as they are after it, and what it does to rows."""
        schema, table = (ddl.targets or ddl.tables or ((ddl.schema, ""),))[-1]
        source = json.loads(self._source_of(ddl.commit_ts, schema, table))
        ms = tso.physical_ms(ddl.commit_ts)
        effect = told_effect(self._reader.ddl(ddl))
        key, value = schema_change(
            ddl, text, schema, source, ms, effect=effect, with_schema=self._options.with_schema
        )
        key_bytes, value_bytes = (dumped(each).encode("utf-8", "surrogateescape") for each in (key, value))
        return Message(schema, table, key_bytes, value_bytes, ddl.commit_ts, 0, "ddl")

    def watermark(self, ts: Ts) -> Message:
        """Debezium has no such message."""
        payload: Any = {
            "source": json.loads(self._source_of(ts, "", "")),
            "op": "m",
            "ts_ms": tso.physical_ms(ts),
            "transaction": None,
        }
        key: Any = {}
        if self._options.with_schema:
            cluster = self._options.cluster
            payload = {"schema": watermark_schema(cluster), "payload": payload}
            key = {"schema": struct(f"{cluster}.{WATERMARK_KEY}", []), "payload": {}}
        return Message("", "", dumped(key).encode(), dumped(payload).encode(), ts, 0, "watermark")

    def handle_key(self, transaction: Transaction, message: Message, location: str = "") -> None:
        """Debezium's envelope has no such form."""
        return

    def _source_head(self, ms: int, source: str, snapshot: str = "false") -> str:
        place = '"server_id":0,"gtid":null,"file":"","pos":0,"row":'
        return f'{self._source}{ms},"snapshot":"{snapshot}",{source},{place}'

    def _source_tail(self, ts: Ts) -> str:
        return f',"thread":0,"query":null,"commit_ts":{ts},{self._cluster_id}'

    def _source_of(self, ts: Ts, schema: str, table: str) -> str:
        names = f'"db":{json_string(schema)},"table":{json_string(table)}'
        return f"{self._source_head(tso.physical_ms(ts), names)}0{self._source_tail(ts)}"

    def _table(self, version: TableVersion) -> _DebeziumTable:
        if len(self._tables) >= _PLANS_MAX:
            self._tables.clear()
        table = self._tables[version] = _DebeziumTable(version, self._columns, self._options)
        return table
