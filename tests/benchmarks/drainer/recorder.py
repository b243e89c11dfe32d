"""Makes workloads up: transactions as TiDB writes them, their DDL jobs, and the contents that must come out.

Rows are sequences in table order, the first column is `id` and unique. Timestamps are evenly spaced.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from binlog_playground.arrival import Record
from binlog_playground.check.verify import ExpectedChecksum
from binlog_playground.scenario import Scenario
from drainer.txn import DELETE, INSERT, UPDATE
from tests.rig.workload.job import job_json
from tests.rig.workload.kinds import Kind
from tests.rig.workload.tables import Table
from tidb_binlog import binlog, tso
from tidb_binlog import table_info as ti
from tidb_binlog.ddl_job import ActionType, DdlJob
from tidb_binlog.rowcodec.encoder import RowEncoder, prewrite_value
from tidb_binlog.table_info import TableInfo

SCHEMA: Final = "sbtest"
FIRST_MS: Final = 1_767_225_600_000  # 2026-01-01
CLUSTER_ID: Final = 7_100_000_000_000_000_001
SPACING: Final = 1 << 10
"""Between two timestamps, of which a transaction takes two."""
_DIGITS: Final = "0123456789"

Row = tuple[Any, ...]
Change = tuple["Made", int, bytes]


def char(length: int) -> Kind:
    return Kind(f"CHAR({length})", ti.STRING, "text", 0, length, 0, "utf8mb4", "utf8mb4_bin")


def text(random: Random, groups: int) -> str:
    """Groups of digits, as sysbench fills its columns."""
    return "-".join("".join(random.choices(_DIGITS, k=11)) for _ in range(groups))


@dataclass(slots=True, eq=False)
class Made:
    """A table with its contents by id. Changes are made to the contents and returned encoded."""

    table: Table
    encoder: RowEncoder
    has_rowid: bool
    rows: dict[int, Row] = field(default_factory=dict)

    def insert(self, row: Row) -> Change:
        self.rows[row[0]] = row
        return self, INSERT, self.encoder.insert(row, self._rowid(row))

    def update(self, row: Row) -> Change:
        before = self.rows[row[0]]
        self.rows[row[0]] = row
        return self, UPDATE, self.encoder.update(before, row, self._rowid(row))

    def delete(self, row_id: int) -> Change:
        row = self.rows.pop(row_id)
        return self, DELETE, self.encoder.delete(row, self._rowid(row))

    def _rowid(self, row: Row) -> int | None:
        return row[0] if self.has_rowid else None

    def checksum(self) -> ExpectedChecksum:
        digest = hashlib.sha256()
        for _, values in sorted(self.rows.items()):
            digest.update("\t".join(map(str, values)).encode() + b"\n")
        table = self.table
        return ExpectedChecksum(SCHEMA, table.name, table.column_names, len(self.rows), digest.hexdigest())


class Recorder:
    """Collects the records of one pump. The database is there from the beginning."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.jobs: list[tuple[int, bytes]] = []
        self._made: list[Made] = []
        self._version = 0
        self._ids = itertools.count(1)
        self._timestamps = itertools.count(tso.compose(FIRST_MS), SPACING)
        self._ddl(ActionType.CREATE_SCHEMA, f"CREATE DATABASE {SCHEMA}", None)

    def next_id(self) -> int:
        """A table id."""
        return next(self._ids)

    def create(self, table: Table) -> Made:
        self._ddl(ActionType.CREATE_TABLE, table.create_sql(), table)
        info = TableInfo.from_json(table.info())
        has_rowid = not info.pk_is_handle and not info.is_common_handle
        made = Made(table, RowEncoder(info), has_rowid)
        self._made.append(made)
        return made

    def alter(self, made: Made, kind: int, what: str, table: Table) -> None:
        """The table is `table` from now on, whose rows are as before."""
        made.table = table
        self._ddl(kind, f"ALTER TABLE `{table.name}` {what}", table)

    def transaction(self, changes: Sequence[Change]) -> None:
        """One transaction; changes of a table follow each other."""
        self.records += self.pair(self.value(changes))

    def value(self, changes: Sequence[Change]) -> bytes:
        """A transaction's rows; may be given to `pair` several times."""
        mutations = []
        for made, group in itertools.groupby(changes, key=lambda change: change[0]):
            several = list(group)
            mutations.append((made.table.id, [kind for _, kind, _ in several], [row for *_, row in several]))
        return prewrite_value(self._version, mutations)

    def pair(self, value: bytes) -> tuple[Record, Record]:
        """Prewrite and commit of the next transaction, which are not among `records`."""
        start_ts = next(self._timestamps)
        key = b"t%020d" % start_ts
        return self._pair(start_ts, binlog.prewrite(start_ts, key, value), key)

    def insert_all(self, made: Made, rows: Iterator[Row], a_transaction: int) -> None:
        while several := list(itertools.islice(rows, a_transaction)):
            self.transaction([made.insert(row) for row in several])

    def scenario(self, name: str) -> Scenario:
        return Scenario(
            name=name,
            cluster_id=CLUSTER_ID,
            files=[self.records],
            jobs=self.jobs,
            outcomes={},
            expected=[],
            checksums=[made.checksum() for made in self._made],
        )

    def _pair(self, start_ts: int, prewrite: bytes, key: bytes) -> tuple[Record, Record]:
        commit_ts = next(self._timestamps)
        commit = binlog.commit(start_ts, commit_ts, key)
        return (
            Record(binlog.PREWRITE, start_ts, 0, prewrite),
            Record(binlog.COMMIT, start_ts, commit_ts, commit),
        )

    def _ddl(self, kind: int, query: str, table: Table | None) -> None:
        start_ts = next(self._timestamps)
        self._version += 1
        job = DdlJob(
            id=self.next_id(),
            action=kind,
            schema_id=1_000_000,
            schema_name=SCHEMA,
            table_id=table.id if table else 0,
            table_name=table.name if table else "",
            query=query,
            schema_version=self._version,
        )
        self.jobs.append((job.id, job_json(job, table, start_ts)))
        key = b"ddl%020d" % start_ts
        self.records += self._pair(start_ts, binlog.prewrite_ddl(start_ts, key, query, job.id), key)
