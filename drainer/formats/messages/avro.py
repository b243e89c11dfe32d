"""Avro: rows in Confluent's wire format, with the schemas that TiCDC documents.

Out    key and value of each row: a zero byte, four bytes of the schema's id, Avro's binary encoding
Why    a table version has its functions from bytes to bytes; its schemas are registered once for a topic
       Avro's long and string are what rows hold: a zigzag varint, a length as one with bytes after it. So
       most values are slices of the row; the tag of a value that may be NULL takes the place of the flag
Never  writes DDL or watermarks: the format has none. A delete has no value; a table without a key is refused
Tests  tests/drainer/formats/messages/test_avro.py

    value                        Avro
    integers, YEAR               int, long; INT UNSIGNED long
    BIGINT UNSIGNED              string; long on request, which turns values above 2**63 negative
    DECIMAL                      bytes, logical type decimal; string on request
    FLOAT, DOUBLE                double
    BIT                          bytes, high byte first
    dates and times, JSON        string; TIMESTAMP in UTC
    text, ENUM, SET              string; U+FFFD for what is not UTF-8
    BINARY, VARBINARY, BLOB      bytes
"""

from __future__ import annotations

import functools
import io
import json
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import fastavro

from drainer.changes.values import shown_conversion
from drainer.formats.messages.json_rows import scaled_digits, unscaled
from drainer.formats.messages.message import KINDS, FormatOptions, Message, allowed
from drainer.mysql.literal.keys import row_key_places
from drainer.mysql.rows.causality import Equality, equality_of_rows
from drainer.txn import DELETE, INSERT, UPDATE, Ddl, TableVersion, Transaction
from tidb_binlog import table_info as ti
from tidb_binlog import tso
from tidb_binlog.errors import ConfigError, Rejected
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.rowcodec.codegen import Conversion, Shape
from tidb_binlog.rowcodec.datum import (
    NULL_DATUM,
    read_bytes,
    read_int,
)
from tidb_binlog.rowcodec.plan import RowReaders
from tidb_binlog.rowcodec.values import set_text
from tidb_binlog.rowcodec.varint import INT64_END, UINT64_END, put_svarint
from tidb_binlog.table_info import Column, ColumnKind, FieldType
from tidb_binlog.tso import Ts

Schema = dict[str, Any]
NULL: Final = NULL_DATUM
"""Index 0 of a union with null is the byte that a row has for NULL."""
_VALUE: Final = b"\x02"  # index 1 of it
_DECIMAL_MODES: Final = ("precise", "string")
_UNSIGNED_MODES: Final = ("", "string", "long")
_little_double: Final = struct.Struct("<d").pack


@functools.lru_cache(maxsize=65536)
def _length(size: int) -> bytes:
    return put_svarint(size)


def avro_bytes(raw: bytes) -> bytes:
    """Encode bytes: their length, then themselves."""
    return _length(len(raw)) + raw


def avro_string(text: str) -> bytes:
    """Encode a text."""
    return avro_bytes(text.encode())


def avro_long(value: int) -> bytes:
    """Encode an integer."""
    return put_svarint(value)


@dataclass(frozen=True, slots=True)
class AvroColumn:
    """How values of one column are encoded.

    `piece` is an expression of the whole encoding with `{v}` for the local of a reader; `show` encodes what
    the strict reader gives, without the tag of a union.
    """

    column: Column
    conversion: Conversion
    piece: str
    show: Callable[[Any], bytes]
    names: Mapping[str, Any] = field(default_factory=dict)

    def encoded(self, value: Any) -> bytes:
        """Encode a value, or NULL."""
        if self.column.type.not_null:
            return self.show(value)
        return NULL if value is None else _VALUE + self.show(value)


def _tagged(encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    return lambda value: _VALUE + encode(value)


def _encoded(
    encode_of: Callable[[FieldType], Callable[[Any], bytes]],
) -> Callable[[Column, int], AvroColumn]:
    """A kind whose readers give the encoding, with its tag."""

    def make(column: Column, place: int) -> AvroColumn:
        encode = encode_of(column.type)
        if not column.type.not_null:
            encode = _tagged_string if encode is avro_string else _tagged(encode)
        conversion = shown_conversion(column.type, encode, {"NULL": NULL}, "NULL")
        return AvroColumn(column, conversion, "{v}", bytes if column.type.not_null else _without_tag)

    return make


def _without_tag(encoded: bytes) -> bytes:
    return encoded[len(_VALUE) :]


def _signed(column: Column, place: int) -> AvroColumn:
    """The varint as it stands in the row."""
    conversion = Conversion(Shape.SIGNED, "", read_int, {"NULL": NULL}, raw=True, null="NULL")
    piece = "{v}[1:]" if column.type.not_null else "NULL if {v} is NULL else b'\\2' + {v}[1:]"
    return AvroColumn(column, conversion, piece, avro_long)


def _unsigned(show: Callable[[int], bytes], name: str) -> Callable[[Column, int], AvroColumn]:
    def make(column: Column, place: int) -> AvroColumn:
        conversion = Conversion(Shape.UNSIGNED, "u", read_int)
        piece = f"{name}({{v}})"
        if not column.type.not_null:
            piece = f"NULL if {{v}} is None else b'\\2' + {piece}"
        return AvroColumn(column, conversion, piece, show, {name: show})

    return make


def _digits(value: int) -> bytes:
    return avro_bytes(b"%d" % value)


def _wrapped(value: int) -> bytes:
    return avro_long(value - UINT64_END if value >= INT64_END else value)


def _valid(datum: bytes) -> bytes:
    """The datum of a text, or of one with U+FFFD for what is not UTF-8."""
    raw, _ = read_bytes(datum, 0)
    try:
        raw.decode()
    except UnicodeDecodeError:
        return b"\x02" + _text(raw)
    return datum


def _text(raw: bytes) -> bytes:
    return avro_string(raw.decode("utf-8", "replace"))


def _string(column: Column, place: int) -> AvroColumn:
    """The datum as it stands in the row; its flag is the tag of a union."""
    names = {"valid": _valid}
    conversion = Conversion(Shape.BYTES, "", read_bytes, {"NULL": NULL}, raw=True, null="NULL")
    piece = "({v} if {v}.isascii() else valid({v}))" + ("[1:]" if column.type.not_null else "")
    return AvroColumn(column, conversion, piece, _text, names)


def _binary(column: Column, place: int) -> AvroColumn:
    conversion = Conversion(Shape.BYTES, "", read_bytes, {"NULL": NULL}, raw=True, null="NULL")
    return AvroColumn(column, conversion, "{v}[1:]" if column.type.not_null else "{v}", avro_bytes)


def _bits(field_type: FieldType) -> Callable[[int], bytes]:
    width = (max(field_type.flen, 1) + 7) // 8
    return lambda value: avro_bytes(value.to_bytes(max(width, (value.bit_length() + 7) // 8), "big"))


def _enum(field_type: FieldType) -> Callable[[int], bytes]:
    names = [avro_string(""), *(avro_string(element) for element in field_type.elems)]
    return lambda number: names[number if number < len(names) else 0]


def _set(field_type: FieldType) -> Callable[[int], bytes]:
    return lambda mask: avro_string(set_text(field_type, mask))


def _scaled(field_type: FieldType) -> Callable[[str], bytes]:
    scale = field_type.fsp
    return lambda text: avro_bytes(unscaled(scaled_digits(text, scale)))


_tagged_string: Final = _tagged(avro_string)
_STRING: Final = _encoded(lambda field_type: avro_string)
_DOUBLE: Final = _encoded(lambda field_type: _little_double)
_COLUMNS: Final[dict[ColumnKind, Callable[[Column, int], AvroColumn]]] = {
    ColumnKind.SIGNED: _signed,
    ColumnKind.YEAR: _signed,
    ColumnKind.UNSIGNED: _unsigned(avro_long, "long_of"),
    ColumnKind.BIT: _encoded(_bits),
    ColumnKind.ENUM: _encoded(_enum),
    ColumnKind.SET: _encoded(_set),
    ColumnKind.FLOAT: _DOUBLE,
    ColumnKind.DOUBLE: _DOUBLE,
    ColumnKind.TEXT: _string,
    ColumnKind.BINARY: _binary,
    ColumnKind.DATE: _STRING,
    ColumnKind.DATETIME: _STRING,
    ColumnKind.TIMESTAMP: _STRING,
    ColumnKind.TIME: _STRING,
    ColumnKind.JSON: _encoded(lambda field_type: avro_bytes),
}
_TYPES: Final[dict[ColumnKind, tuple[str, str]]] = {
    ColumnKind.YEAR: ("YEAR", "int"),
    ColumnKind.BIT: ("BIT", "bytes"),
    ColumnKind.ENUM: ("ENUM", "string"),
    ColumnKind.SET: ("SET", "string"),
    ColumnKind.FLOAT: ("FLOAT", "double"),
    ColumnKind.DOUBLE: ("DOUBLE", "double"),
    ColumnKind.TEXT: ("TEXT", "string"),
    ColumnKind.BINARY: ("BLOB", "bytes"),
    ColumnKind.DATE: ("DATE", "string"),
    ColumnKind.DATETIME: ("DATETIME", "string"),
    ColumnKind.TIMESTAMP: ("TIMESTAMP", "string"),
    ColumnKind.TIME: ("TIME", "string"),
    ColumnKind.JSON: ("JSON", "string"),
}


class AvroColumns:
    """How columns are encoded, as the options say."""

    def __init__(self, options: FormatOptions) -> None:
        self._decimal, self._large = options.decimal, options.bigint_unsigned
        options.check("avro", _DECIMAL_MODES, _UNSIGNED_MODES)

    def convert(self, column: Column, place: int) -> AvroColumn:
        """Choose how a column is encoded."""
        kind = column.type
        if kind.kind is ColumnKind.DECIMAL:
            return (_STRING if self._decimal == "string" else _encoded(_scaled))(column, place)
        if kind.kind is ColumnKind.UNSIGNED and kind.tp == ti.LONGLONG:
            large = _unsigned(_wrapped, "wrapped") if self._large == "long" else _unsigned(_digits, "digits")
            return large(column, place)
        return _COLUMNS[kind.kind](column, place)

    def type(self, kind: FieldType) -> Schema:
        """Avro's type of a value that is not NULL."""
        if kind.kind is ColumnKind.DECIMAL:
            if self._decimal == "string":
                return _type("DECIMAL", "string")
            precision = kind.flen if kind.flen > 0 else 10
            logical = {"logicalType": "decimal", "precision": precision, "scale": kind.fsp}
            return {**_type("DECIMAL", "bytes"), **logical}
        if kind.kind in _TYPES:
            more = {}
            if kind.kind is ColumnKind.BIT:
                more = {"length": str(max(kind.flen, 1))}
            elif kind.elems:
                more = {"allowed": allowed(kind)}
            return _type(*_TYPES[kind.kind], **more)
        words = " UNSIGNED" if kind.unsigned else ""
        if kind.tp != ti.LONGLONG:
            return _type(f"INT{words}", "long" if kind.unsigned and kind.tp == ti.LONG else "int")
        text = kind.unsigned and self._large != "long"
        return _type(f"BIGINT{words}", "string" if text else "long")


def _type(tidb_type: str, avro_type: str, **more: str) -> Schema:
    return {"connect.parameters": {"tidb_type": tidb_type, **more}, "type": avro_type}


_PLANS_MAX: Final = 10_000
_MAGIC: Final = b"\0"
_NOT_A_NAME: Final = re.compile("[^A-Za-z0-9_]")
_OPS: Final = {INSERT: avro_string("c"), UPDATE: avro_string("u")}
_EXTENSION: Final = (
    {"name": "_tidb_op", "type": "string"},
    {"name": "_tidb_commit_ts", "type": "long"},
    {"name": "_tidb_commit_physical_time", "type": "long"},
)
# (value, key), both without their heads; None: the key changed
_Parts = tuple[bytes, bytes]


class NoKey(Rejected):
    """A table whose deletes this format cannot say."""


def avro_name(text: str) -> str:
    """A name that Avro allows: letters, digits and underscores, no digit first."""
    name = _NOT_A_NAME.sub("_", text)
    return f"_{name}" if not name or name[0].isdigit() else name


def _field_names(names: Iterable[str]) -> list[str]:
    """Names of the fields of a record; those that became the same get numbers."""
    fields: list[str] = []
    for text in names:
        name, number = avro_name(text), 2
        while name in fields:
            name, number = f"{avro_name(text)}_{number}", number + 1
        fields.append(name)
    return fields


class _AvroTable:
    """Encodings of one table version."""

    def __init__(self, version: TableVersion, columns: AvroColumns, options: FormatOptions) -> None:
        self.schema, self.table = version.downstream
        self.columns: list[AvroColumn] = []

        def conversion(column: Column, place: int) -> Conversion:
            self.columns.append(columns.convert(column, place))
            return self.columns[-1].conversion

        self.readers = RowReaders(version.info, conversion)
        layout = self.readers.layout
        self.places = [n for n, column in enumerate(layout.columns) if column.id not in version.left_out]
        self.key = row_key_places(layout, version.left_out)
        if not self.key:
            raise NoKey(
                f"table {self.schema}.{self.table} has no key: avro cannot say which row was deleted",
                hint="give it a primary key, leave it out by a filter, or use canal-json",
            )
        names = _field_names(layout.columns[place].name for place in self.places)
        self._names = dict(zip(self.places, names, strict=True))
        registry, topic = options.registry, options.topic(self.schema, self.table)
        assert registry is not None
        key_schema = self._record(columns, options.cluster, self.key, ())
        value_schema = self._record(columns, options.cluster, self.places, _EXTENSION)
        self.key_head = self._head(registry.register(f"{topic}-key", key_schema))
        self.value_head = self._head(registry.register(f"{topic}-value", value_schema))
        self.fold = self._fold(version, key_schema)
        self.make = self._functions()

    def _fold(self, version: TableVersion, key_schema: str) -> Callable[[bytes], bytes | None]:
        """Of keys without their heads, see `Message.spread`."""
        equality = equality_of_rows(self.readers.layout, version.left_out)
        if equality is not Equality.PADDED:
            return bytes if equality is Equality.EXACT else lambda key: None
        schema = fastavro.parse_schema(json.loads(key_schema))

        def fold(key: bytes) -> bytes:
            values: Any = fastavro.schemaless_reader(io.BytesIO(key), schema, None)
            return repr([v.rstrip(" ") if isinstance(v, str) else v for v in values.values()]).encode()

        return fold

    @staticmethod
    def _head(schema_id: int) -> bytes:
        return _MAGIC + schema_id.to_bytes(4, "big")

    def _record(
        self, columns: AvroColumns, cluster: str, places: Sequence[int], extension: Iterable[Any]
    ) -> str:
        fields: list[Any] = [self._field(columns, place) for place in places]
        record = {
            "name": avro_name(self.table),
            "namespace": f"{avro_name(cluster)}.{avro_name(self.schema)}",
            "type": "record",
            "fields": [*fields, *extension],
        }
        return json.dumps(record, ensure_ascii=False, separators=(",", ":"))

    def _field(self, columns: AvroColumns, place: int) -> dict[str, Any]:
        kind = self.columns[place].column.type
        avro_type = columns.type(kind)
        if kind.not_null:
            return {"name": self._names[place], "type": avro_type}
        return {"default": None, "name": self._names[place], "type": ["null", avro_type]}

    def _functions(self) -> tuple[Callable[[bytes], Any], ...]:
        readers, places = self.readers, self.places
        extra: dict[str, Any] = {"join": b"".join, "NULL": NULL}
        for column in self.columns:
            extra.update(column.names)
        value, key = self._source(places), self._source(self.key)
        result = [f"return join(({value})), join(({key}))"]
        changed = " or ".join(f"o{place} != v{place}" for place in self.key)
        return (
            readers.of_insert(places, result, lambda row: self._parts(INSERT, row), extra=extra),
            readers.of_update(
                self.key,
                places,
                [f"if {changed}: return None", *result],
                lambda row: self._parts(UPDATE, row),
                extra=extra,
            ),
            readers.of_delete(places, result, lambda row: self._parts(DELETE, row), extra=extra),
        )

    def _source(self, places: Iterable[int]) -> str:
        return "".join(f"{self.columns[place].piece.replace('{v}', f'v{place}')}, " for place in places)

    def _parts(self, kind: int, row: bytes) -> _Parts | None:
        """The same from any row, by the strict reader."""
        strict = self.readers.strict
        if kind != UPDATE:
            return self._image(strict.insert(row) if kind == INSERT else strict.delete(row))
        before, after, _ = strict.update(row)
        if any(before[place] != after[place] for place in self.key):
            return None
        return self._image(after)

    def _image(self, values: Sequence[Any]) -> _Parts:
        value, key = (
            b"".join(self.columns[place].encoded(values[place]) for place in places)
            for places in (self.places, self.key)
        )
        return value, key

    def halves(self, row: bytes) -> tuple[tuple[int, _Parts], tuple[int, _Parts]]:
        """An update that changes the key, as a delete and an insert."""
        before, after, _ = self.readers.strict.update(row)
        return (DELETE, self._image(before)), (INSERT, self._image(after))


class Avro:
    """The format. Plans of table versions are found by identity."""

    def __init__(self, options: FormatOptions) -> None:
        if options.registry is None:
            raise ConfigError("format avro needs a schema registry", hint="set schema-registry to its URL")
        self._options = options
        self._columns = AvroColumns(options)
        self._tables: dict[TableVersion, _AvroTable] = {}

    def rows(self, transaction: Transaction) -> Iterator[Message]:
        """One message a row; an update that changes the key is two. Raises what the registry raises."""
        commit_ts = transaction.commit_ts
        tails = self._tails(commit_ts, is_snapshot=bool(transaction.snapshot))
        for events in transaction.tables:
            table = self._tables.get(events.table) or self._table(events.table)
            make, seq = table.make, events.first_ordinal
            for event, row in zip(events.kinds, events.rows, strict=True):
                parts = make[event](row)
                for kind, (value, key) in ((event, parts),) if parts is not None else table.halves(row):
                    yield Message(
                        table.schema,
                        table.table,
                        table.key_head + key,
                        None if kind == DELETE else table.value_head + value + tails[kind],
                        commit_ts,
                        seq,
                        KINDS[kind],
                        table.fold(key),
                    )
                seq += 1

    @staticmethod
    def _tails(commit_ts: Ts, *, is_snapshot: bool) -> dict[int, bytes]:
        """The fields after those of the row, by kind."""
        times = put_svarint(commit_ts) + put_svarint(tso.physical_ms(commit_ts))
        if is_snapshot:
            return {INSERT: avro_string("r") + times}
        return {kind: op + times for kind, op in _OPS.items()}

    def ddl(self, ddl: Ddl, text: str) -> None:
        """The format has no such message: a new version of a table has new schemas."""
        return

    def watermark(self, ts: Ts) -> None:
        """The format has no such message."""
        return

    def handle_key(self, transaction: Transaction, message: Message, location: str = "") -> None:
        """The format has no such message."""
        return

    def _table(self, version: TableVersion) -> _AvroTable:
        if len(self._tables) >= _PLANS_MAX:
            self._tables.clear()
        table = self._tables[version] = _AvroTable(version, self._columns, self._options)
        return table
