"""avro: rows in Confluent's wire format, with the schemas that TiCDC documents.

In     transactions of encoded rows; a registry that gives ids to schemas
Out    key and value of each row: a zero byte, four bytes of the schema's id, Avro's binary encoding
Why    a table version has its functions from bytes to bytes; its schemas are registered once for a topic
Never  writes DDL or watermarks: the format has none. A delete has no value; a table without a key is refused

Tests  tests/drainer/formats/messages/test_avro.py
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import fastavro

from drainer.formats.messages.avro_columns import NULL, AvroColumn, AvroColumns, avro_string
from drainer.formats.messages.message import KINDS, FormatOptions, Message
from drainer.mysql.literal.keys import row_key_places
from drainer.mysql.rows.causality import Equality, equality_of_rows
from drainer.txn import DELETE, INSERT, UPDATE, Ddl, TableVersion, Transaction
from tidb_binlog import tso
from tidb_binlog.errors import ConfigError, Rejected
from tidb_binlog.rowcodec.codegen import Conversion
from tidb_binlog.rowcodec.plan import RowReaders
from tidb_binlog.rowcodec.varint import put_svarint
from tidb_binlog.table_info import Column

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
    found: list[str] = []
    for text in names:
        name, number = avro_name(text), 2
        while name in found:
            name, number = f"{avro_name(text)}_{number}", number + 1
        found.append(name)
    return found


class _AvroTable:
    """Encodings of one table version."""

    def __init__(self, version: TableVersion, columns: AvroColumns, options: FormatOptions) -> None:
        self.schema, self.table = version.downstream
        self.columns: list[AvroColumn] = []

        def conversion(column: Column, place: int) -> Conversion:
            self.columns.append(columns.convert(column, place))
            return self.columns[-1].conversion

        self.readers = RowReaders(version.info, conversion, None)
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
        extension = _EXTENSION if options.tidb_extension else ()
        key_schema = self._record(columns, options.cluster, self.key, ())
        value_schema = self._record(columns, options.cluster, self.places, extension)
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
        made = columns.type(kind)
        if kind.not_null:
            return {"name": self._names[place], "type": made}
        return {"default": None, "name": self._names[place], "type": ["null", made]}

    def _functions(self) -> tuple[Callable[[bytes], Any], ...]:
        readers, places = self.readers, self.places
        extra: dict[str, Any] = {"join": b"".join, "NULL": NULL}
        for one in self.columns:
            extra.update(one.names)
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
        tails = self._tails(commit_ts)
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

    def _tails(self, commit_ts: int) -> dict[int, bytes]:
        """The fields after those of the row, by kind."""
        if not self._options.tidb_extension:
            return dict.fromkeys(_OPS, b"")
        times = put_svarint(commit_ts) + put_svarint(tso.physical_ms(commit_ts))
        return {kind: op + times for kind, op in _OPS.items()}

    def ddl(self, ddl: Ddl, text: str) -> None:
        """The format has no such message: a new version of a table has new schemas."""
        return

    def watermark(self, ts: int) -> None:
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
