"""Debezium JSON: messages in the envelope of Debezium, as its JSON converter writes it.

In     transactions of encoded rows, DDL, watermarks
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

from drainer.formats.messages.debezium_ddl import (
    WATERMARK_KEY,
    envelope_schema,
    schema_change,
    struct,
    watermark_schema,
)
from drainer.formats.messages.json_rows import (
    NULL,
    JsonColumn,
    JsonRows,
    Values,
    decimal_column,
    document_column,
    float_column,
    integer_column,
    json_string,
    scaled_digits,
    shown,
    string_column,
    text_column,
    unscaled,
)
from drainer.formats.messages.message import KINDS, FormatOptions, Message
from drainer.txn import DELETE, INSERT, UPDATE, Ddl, TableVersion, Transaction
from tidb_binlog import table_info as ti
from tidb_binlog import tso
from tidb_binlog.errors import ConfigError
from tidb_binlog.rowcodec.codegen import Conversion, Shape
from tidb_binlog.rowcodec.datum import read_bytes, read_double, read_duration, read_int, read_unsigned
from tidb_binlog.rowcodec.decimals import read_decimal
from tidb_binlog.rowcodec.strict import Reader
from tidb_binlog.rowcodec.temporal import datetime_text
from tidb_binlog.rowcodec.time_caches import cached_reader
from tidb_binlog.rowcodec.values import set_text
from tidb_binlog.table_info import Column, ColumnKind, FieldType
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


def _duration(column: Column) -> JsonColumn:
    return text_column(
        column, shown(read_duration, lambda ns: str(ns // 1000 if ns >= 0 else -(-ns // 1000)))
    )


def _bit(column: Column) -> JsonColumn:
    width = (max(column.type.flen, 1) + 7) // 8

    def show(value: int) -> str:
        if column.type.flen <= 1:
            return "true" if value else "false"
        return _base64(value.to_bytes(max(width, (value.bit_length() + 7) // 8), "little"))

    return text_column(column, shown(read_unsigned, show))


def _named(column: Column) -> JsonColumn:
    kind, elements = column.type, column.type.elems

    def show(number: int) -> str:
        if kind.kind is ColumnKind.ENUM:
            return json_string(elements[number - 1]) if 0 < number <= len(elements) else '""'
        return json_string(set_text(kind, number))

    return text_column(column, shown(read_unsigned, show))


def _binary(column: Column) -> JsonColumn:
    conversion = Conversion(
        Shape.BYTES,
        "in_base64(s)",
        shown(read_bytes, _base64),
        {"NULL": NULL, "in_base64": _base64},
        null="NULL",
    )
    return JsonColumn(column, conversion)


def _integer(column: Column) -> JsonColumn:
    return integer_column(column, str, "")


def _unsigned(column: Column) -> JsonColumn:
    if column.type.not_null:
        return JsonColumn(column, Conversion(Shape.UNSIGNED, "u", read_int))
    return text_column(column, shown(read_int, str), Shape.UNSIGNED, "str(u)")


def _large(column: Column, show: Callable[[int], str]) -> JsonColumn:
    """BIGINT UNSIGNED: a number until it is written, since it may come out of the handle."""
    name = f"large{column.id}"
    conversion = Conversion(Shape.UNSIGNED, "u", read_int)
    piece = f"{{{name}(<v>)}}" if column.type.not_null else f"{{NULL if <v> is None else {name}(<v>)}}"
    return JsonColumn(column, conversion, piece, show, {name: show})


_COLUMNS: Final[dict[ColumnKind, Callable[[Column], JsonColumn]]] = {
    ColumnKind.SIGNED: _integer,
    ColumnKind.YEAR: _integer,
    ColumnKind.UNSIGNED: _unsigned,
    ColumnKind.BIT: _bit,
    ColumnKind.ENUM: _named,
    ColumnKind.SET: _named,
    ColumnKind.FLOAT: float_column,
    ColumnKind.DOUBLE: lambda column: text_column(column, shown(read_double, repr)),
    ColumnKind.TEXT: string_column,
    ColumnKind.BINARY: _binary,
    ColumnKind.DATE: _time,
    ColumnKind.DATETIME: _time,
    ColumnKind.TIMESTAMP: _time,
    ColumnKind.TIME: _duration,
    ColumnKind.JSON: document_column,
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


class DebeziumColumns:
    """How columns are written, as the options say."""

    def __init__(self, options: FormatOptions) -> None:
        self._decimal, self._large = options.decimal, options.bigint_unsigned
        _check("decimal", self._decimal, _DECIMAL_MODES)
        _check("bigint-unsigned", self._large, _UNSIGNED_MODES)

    def convert(self, column: Column, place: int) -> JsonColumn:
        kind = column.type
        if kind.kind is ColumnKind.DECIMAL:
            if self._decimal == "string":
                return decimal_column(column)
            precise = self._decimal == "precise"
            scale = kind.fsp

            def show(text: str) -> str:
                return _base64(unscaled(scaled_digits(text, scale))) if precise else repr(float(text))

            return text_column(column, shown(read_decimal, show))
        if kind.kind is ColumnKind.UNSIGNED and kind.tp == ti.LONGLONG:
            if self._large == "long":
                return _large(column, lambda value: str(value - (1 << 64) if value >> 63 else value))
            return _large(column, lambda value: _base64(unscaled(value)))
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
            found: Schema = {"type": name, "name": semantic, "version": 1}
            if kind.elems:
                found["parameters"] = {"allowed": ",".join(one.replace(",", "\\,") for one in kind.elems)}
            return found
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


def _check(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        words = ", ".join(repr(one) for one in known if one)
        raise ConfigError(f"{name} = {value!r} is no mode of debezium-json", hint=f"use one of {words}")


_PLANS_MAX: Final = 10_000
_OPS: Final = {INSERT: "c", UPDATE: "u", DELETE: "d"}

# (row before, row after, key) as JSON; None: the key changed
_Parts = tuple[str, str, str]


def dumped(document: Any) -> str:
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
        commit_ts = transaction.commit_ts
        ms = tso.physical_ms(commit_ts)
        for events in transaction.tables:
            table = self._tables.get(events.table) or self._table(events.table)
            make, start, end, keyed = table.make, table.start, table.end, table.keyed
            fold = table.rows.fold
            head = self._source_head(ms, table.source)
            tail, when = self._source_tail(commit_ts), f',"ts_ms":{ms},"transaction":null}}{end}'
            seq = events.first_ordinal
            for event, row in zip(events.kinds, events.rows, strict=True):
                parts = make[event](row)
                for kind, (before, after, key) in (
                    ((event, parts),) if parts is not None else table.halves(row)
                ):
                    value = (
                        f'{start}{{"before":{before},"after":{after},"source":{head}{seq}{tail},'
                        f'"op":"{_OPS[kind]}"{when}'
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
        """A schema change with the tables as they are after it."""
        schema, table = (ddl.targets or ddl.tables or ((ddl.schema, ""),))[-1]
        source = json.loads(self._source_of(ddl.commit_ts, schema, table))
        ms = tso.physical_ms(ddl.commit_ts)
        key, value = schema_change(ddl, text, schema, source, ms, with_schema=self._options.with_schema)
        key_bytes, value_bytes = (dumped(each).encode("utf-8", "surrogateescape") for each in (key, value))
        return Message(schema, table, key_bytes, value_bytes, ddl.commit_ts, 0, "ddl")

    def watermark(self, ts: int) -> Message | None:
        """Only with `tidb_extension`: Debezium has no such message."""
        if not self._options.tidb_extension:
            return None
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

    def _source_head(self, ms: int, source: str) -> str:
        place = '"server_id":0,"gtid":null,"file":"","pos":0,"row":'
        return f'{self._source}{ms},"snapshot":"false",{source},{place}'

    def _source_tail(self, ts: int) -> str:
        return f',"thread":0,"query":null,"commit_ts":{ts},{self._cluster_id}'

    def _source_of(self, ts: int, schema: str, table: str) -> str:
        names = f'"db":{json_string(schema)},"table":{json_string(table)}'
        return f"{self._source_head(tso.physical_ms(ts), names)}0{self._source_tail(ts)}"

    def _table(self, version: TableVersion) -> _DebeziumTable:
        if len(self._tables) >= _PLANS_MAX:
            self._tables.clear()
        table = self._tables[version] = _DebeziumTable(version, self._columns, self._options)
        return table
