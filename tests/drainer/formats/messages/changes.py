"""Transactions that the tests of messages write and read back: recorded ones, and small ones of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drainer.changes.model import Row
from drainer.changes.row_reader import RowReader
from drainer.stream.rules.table_filter import TableFilter
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.translate.translator import Translator
from drainer.txn import Ddl, TableEvents, TableVersion, Transaction
from tests.drainer.support import recorded
from tidb_binlog import tso
from tidb_binlog.rowcodec.encoder import RowEncoder
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
