"""Archives of sysbench's table for replay: their rows follow from each other, and their end is known.

oltp      every row inserted, then transactions of two updates, a delete and an insert of the same id, three
          rows touched for every row that there is: the workload of `sysbench_like`, as large as wanted
distinct  rows that are there: half of them updated, a quarter deleted, a quarter new; no key twice
fold10    rows that are there, each updated ten times
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from drainer.formats import binlog_file, segment_index
from drainer.formats.pb import PbEncoder
from drainer.formats.segment_index import SegmentIndex
from drainer.mysql.connection import Target, connect
from drainer.sink.file import table_definitions as archive_tables
from drainer.txn import DELETE, INSERT, UPDATE, TableEvents, TableVersion, Transaction
from tests.benchmarks.drainer.recorder import text
from tidb_binlog.record import encode_file
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import FLAG_NOT_NULL, FLAG_PRIMARY, LONG, STRING, Column, FieldType, TableInfo

SCHEMA: Final = "sbtest"
TABLES: Final = 4
FIRST_TS: Final = 440_000_000_000_000_000
SEGMENT_BYTES: Final = 32 << 20
TEXTS: Final = 1000
_ROWS_A_STATEMENT: Final = 1000

Row = tuple[int, int, str, str]


def _column(number: int, name: str, tp: int, length: int, flag: int = 0) -> Column:
    charset = "utf8mb4" if tp == STRING else "binary"
    kind = FieldType(tp, FLAG_NOT_NULL | flag, length, charset=charset, collate=f"{charset}_bin")
    return Column(number, name, number - 1, kind)


def _version(number: int) -> TableVersion:
    columns = (
        _column(1, "id", LONG, 11, FLAG_PRIMARY),
        _column(2, "k", LONG, 11),
        _column(3, "c", STRING, 120),
        _column(4, "pad", STRING, 60),
    )
    info = TableInfo(100 + number, f"sbtest{number}", columns, pk_is_handle=True)
    return TableVersion(info, SCHEMA, info.name, 1)


@dataclass
class Rows:
    """What the tables hold, and what a downstream has to hold before the archive."""

    seed: int = 1
    versions: list[TableVersion] = field(default_factory=lambda: [_version(n) for n in range(1, TABLES + 1)])
    tables: list[dict[int, Row]] = field(default_factory=lambda: [{} for _ in range(TABLES)])
    before: list[dict[int, Row]] = field(default_factory=lambda: [{} for _ in range(TABLES)])
    changes: int = 0

    def __post_init__(self) -> None:
        self._random = Random(self.seed)
        self._c = [text(self._random, 10) for _ in range(TEXTS)]
        self._pad = [text(self._random, 5) for _ in range(TEXTS)]
        self._ts = FIRST_TS
        self._encoders = [RowEncoder(version.info) for version in self.versions]

    def row(self, row_id: int) -> Row:
        pick = self._random.randrange
        return row_id, pick(1, 5000), self._c[pick(TEXTS)], self._pad[pick(TEXTS)]

    # -- workloads ---------------------------------------------------------------------------------

    def oltp(self, rows: int) -> Iterator[Transaction]:
        each = rows // TABLES
        for table in range(TABLES):
            for start in range(1, each + 1, 500):
                ids = range(start, min(start + 500, each + 1))
                yield self._transaction(table, [(INSERT, self.row(row_id)) for row_id in ids])
        for _ in range(rows * 3 // 4):
            table = self._random.randrange(TABLES)
            first, second, third = self._random.sample(range(1, each + 1), 3)
            there = self.tables[table]
            _, k, c, pad = there[first]
            changed = (second, there[second][1], self._c[self._random.randrange(TEXTS)], there[second][3])
            yield self._transaction(
                table,
                [
                    (UPDATE, (first, k + 1, c, pad)),
                    (UPDATE, changed),
                    (DELETE, there[third]),
                    (INSERT, self.row(third)),
                ],
            )

    def distinct(self, changes: int) -> Iterator[Transaction]:
        self._load(changes * 3 // 4)
        each = changes // TABLES
        for start in range(0, each, 4):
            for table in range(TABLES):
                yield self._transaction(
                    table, [self._once(table, each, n) for n in range(start, min(start + 4, each))]
                )

    def _once(self, table: int, each: int, number: int) -> tuple[int, Row]:
        """Rows 1 to 3/4 are there: two of four are updated, one is deleted, one is new."""
        group, kind = divmod(number, 4)
        if kind == 3:
            return INSERT, self.row(each + 1 + group)
        row_id = group * 3 + kind + 1
        return (DELETE, self.tables[table][row_id]) if kind == 2 else (UPDATE, self.row(row_id))

    def fold10(self, changes: int) -> Iterator[Transaction]:
        self._load(changes // 10)
        each = changes // 10 // TABLES
        for _ in range(10):
            for start in range(1, each + 1, 4):
                for table in range(TABLES):
                    ids = range(start, min(start + 4, each + 1))
                    yield self._transaction(table, [(UPDATE, self.row(row_id)) for row_id in ids])

    def _load(self, rows: int) -> None:
        for table in range(TABLES):
            for row_id in range(1, rows // TABLES + 2):
                self.tables[table][row_id] = self.before[table][row_id] = self.row(row_id)

    def _transaction(self, table: int, changes: list[tuple[int, Row]]) -> Transaction:
        there = self.tables[table]
        version = self.versions[table]
        encoder = self._encoders[table]
        kinds, rows = [], []
        for kind, row in changes:
            if kind == INSERT:
                rows.append(encoder.insert(row))
            elif kind == UPDATE:
                rows.append(encoder.update(there[row[0]], row))
            else:
                rows.append(encoder.delete(there.pop(row[0])))
            if kind != DELETE:
                there[row[0]] = row
            kinds.append(kind)
        self.changes += len(rows)
        self._ts += 1 << 18
        return Transaction(self._ts - 1, self._ts, (TableEvents(version, kinds, rows, 0),), 0)

    # -- downstream --------------------------------------------------------------------------------

    def create(self, target: Target) -> None:
        """The tables as they are before the archive."""
        connection = connect(target)
        connection.run(b"DROP DATABASE IF EXISTS tidb_binlog")
        connection.run(b"DROP DATABASE IF EXISTS sbtest")
        connection.run(b"CREATE DATABASE sbtest")
        for version, rows in zip(self.versions, self.before, strict=True):
            name = f"sbtest.{version.name}"
            connection.run(
                f"CREATE TABLE {name} (id INT NOT NULL PRIMARY KEY, k INT NOT NULL, c CHAR(120) NOT NULL,"
                " pad CHAR(60) NOT NULL, KEY (k))".encode(),
            )
            values = [f"({row_id},{k},'{c}','{pad}')" for row_id, k, c, pad in rows.values()]
            for at in range(0, len(values), _ROWS_A_STATEMENT):
                some = ",".join(values[at : at + _ROWS_A_STATEMENT])
                connection.run(f"INSERT INTO {name} VALUES {some}".encode())
            connection.commit()
        connection.close()

    def differing(self, target: Target) -> list[str]:
        """Tables that are not as they are at the end of the archive."""
        connection = connect(target)
        found = []
        for version, rows in zip(self.versions, self.tables, strict=True):
            query = f"SELECT COUNT(*), SUM(CRC32(CONCAT_WS(',', id, k, c, pad))) FROM sbtest.{version.name}"
            ((count, total),) = connection.rows(query.encode())
            wanted = sum(zlib.crc32(",".join(map(str, row)).encode()) for row in rows.values())
            if (count, int(total or 0)) != (len(rows), wanted):
                found.append(f"{version.name}: {count} rows, not {len(rows)}, or others")
        connection.close()
        return found


WORKLOADS: Final[dict[str, Callable[[Rows, int], Iterator[Transaction]]]] = {
    "oltp": Rows.oltp,
    "distinct": Rows.distinct,
    "fold10": Rows.fold10,
}


def write(directory: Path, rows: Rows, transactions: Iterator[Transaction]) -> int:
    """An archive with index and definitions; its size."""
    (directory / segment_index.DIRECTORY).mkdir(parents=True)
    encoder, parts, described, number, total = PbEncoder(), [], SegmentIndex(), 0, 0

    def close() -> None:
        name = binlog_file.file_name(number, f"{20260101000000 + number}")
        described.closed = True
        described.count(encoder.take_counts())
        beside = directory / segment_index.DIRECTORY
        (directory / name).write_bytes(b"".join(parts))
        (beside / segment_index.file_name(name)).write_bytes(described.to_json())
        lines = [archive_tables.line(described.first_ts, version) for version in rows.versions]
        (beside / archive_tables.file_name(name)).write_bytes(b"".join(lines))

    for transaction in transactions:
        record = encode_file(encoder.transaction(transaction))
        parts.append(record)
        size = described.size
        described.add(transaction.commit_ts, size, size + len(record), is_ddl=False)
        total += len(record)
        if described.size >= SEGMENT_BYTES:
            close()
            parts, described, number = [], SegmentIndex(), number + 1
    close()
    return total
