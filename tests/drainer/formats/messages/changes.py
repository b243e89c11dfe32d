"""Transactions that the tests of messages write and read back: recorded ones, and small ones of their own."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from typing import Any

import fastavro

from drainer.changes.model import Row
from drainer.changes.row_reader import RowReader
from drainer.stream.rules.table_rules import TableFilter
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.translate.translator import Translator
from drainer.txn import Ddl, TableEvents, TableVersion, Transaction
from tests.common.rowcodec.tables import binary, key, kind, table
from tests.drainer.support import recorded
from tidb_binlog import tso
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.rowcodec.values import EnumValue, SetValue
from tidb_binlog.table_info import TableInfo

COMMIT_MS = 1_700_000_000_125
COMMIT_TS = tso.compose(COMMIT_MS, 7)


def items(scenario: str) -> Iterator[Transaction | Ddl]:
    translator = Translator(SchemaTracker(), TableFilter())
    return map(translator.translate, recorded.merged(scenario))


def transaction(version: TableVersion, *changes: tuple[int, Any], first: int = 0) -> Transaction:
    """Of (kind, values) pairs; an update has the values before and after."""
    encoder = RowEncoder(version.info)
    makers = (encoder.insert, lambda pair, rowid: encoder.update(*pair, rowid), encoder.delete)
    rows = [makers[kind](values, 1) for kind, values in changes]
    events = TableEvents(version, tuple(kind for kind, _ in changes), rows, first)
    return Transaction(COMMIT_TS - 1, COMMIT_TS, (events,), 100)


def version(info: TableInfo, **more: Any) -> TableVersion:
    return TableVersion(info, "shop", "orders", 7, **more)


def effects(reader: RowReader, item: Transaction) -> Iterator[tuple[Row, int]]:
    """The rows of a transaction and their numbers, each update that changes the key as delete and insert."""
    for events in item.tables:
        for seq, row in enumerate(reader.rows(events), events.first_ordinal):
            before, after, key = row.before, row.after, row.table.key
            if before and after and [before[name] for name in key] != [after[name] for name in key]:
                yield Row(row.table, "delete", before, None), seq
                yield Row(row.table, "insert", None, after), seq
            else:
                yield row, seq


class Subjects:
    """A registry in memory; ids are those of schemas, over all subjects."""

    def __init__(self) -> None:
        self.schemas: list[str] = []
        self.asked: list[str] = []

    def register(self, subject: str, schema: str) -> int:
        self.asked.append(subject)
        fastavro.parse_schema(json.loads(schema))  # as a registry does
        if schema not in self.schemas:
            self.schemas.append(schema)
        return 1000 + self.schemas.index(schema)

    def read(self, data: bytes) -> tuple[Any, Any]:
        """(schema, record) of a key or value."""
        assert data[0] == 0
        schema = json.loads(self.schemas[int.from_bytes(data[1:5], "big") - 1000])
        stream = io.BytesIO(data[5:])
        record = fastavro.schemaless_reader(stream, fastavro.parse_schema(schema), None)
        assert not stream.read(), "bytes after the record"
        return schema, record


def binary32(value: float) -> float:
    found: float = struct.unpack(">f", struct.pack(">f", value))[0]
    return found


def comparable(value: Any) -> Any:
    """What JSON cannot hold is there as what stands for it."""
    if isinstance(value, EnumValue | SetValue):
        return value.number, str(value)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


EVERYTHING = table(
    ("id", key("bigint", unsigned=True)),
    ("it's {odd} \"\\ 日本", kind("varchar", flen=20, not_null=True)),
    ("tiny", kind("tinyint", unsigned=True, not_null=True)),
    ("small", kind("smallint", unsigned=True)),
    ("amount", kind("decimal", flen=10, decimal=2)),
    ("ratio", kind("float", not_null=True)),
    ("raw", binary("varchar", flen=20)),
    ("state", kind("enum", elems=("new", "it's"), not_null=True)),
    ("flags", kind("set", elems=("a", "b"))),
    ("at", kind("timestamp", decimal=3)),
    ("took", kind("time")),
    ("doc", kind("json")),
    ("bits", kind("bit", flen=10)),
)


VERSION = version(EVERYTHING)


ROW = [
    *(2**64 - 1, "'{\"\\\n\u2028é😀", 200, 40000, "-1.50", 1.1, bytes(range(256)), 2, 3),
    *("2024-02-29 01:02:03.500", "-10:00:01", '{"a": [1, "b"]}', 5),
]


NULLS = [1, "", 0, None, None, -0.0, None, 1, None, None, None, None, None]


def replace_version(item: Transaction) -> Transaction:
    item.tables[0].table = VERSION
    return item
