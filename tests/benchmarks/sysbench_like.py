"""A workload like the recorded one, made up: for a machine that does not have the recording.

4 tables of 5,000 rows (id, k, c, pad), then 15,000 transactions of one index update, one other update, one
delete and one insert of the same id. Encoded as TiDB does, with its DDL jobs; the final contents are known.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from common import binlog, tso
from common import table_info as ti
from common.rowcodec.encoder import RowEncoder, prewrite_value
from common.table_info import TableInfo
from deploy.playground.job import CREATE_SCHEMA, CREATE_TABLE, Job, job_json
from deploy.playground.scenario import ExpectedChecksum, Record, Scenario
from deploy.playground.tables import HANDLE, INT, Kind, Table, new_table
from drainer.txn import DELETE, INSERT, UPDATE

SCHEMA: Final = "sbtest"
TABLES: Final = 4
ROWS: Final = 5000
TRANSACTIONS: Final = 15_000
LOAD_ROWS: Final = 500
FIRST_MS: Final = 1_767_225_600_000  # 2026-01-01
CLUSTER_ID: Final = 7_100_000_000_000_000_001
_DIGITS: Final = "0123456789"


def _char(length: int) -> Kind:
    return Kind(f"CHAR({length})", ti.STRING, "text", 0, length, 0, "utf8mb4", "utf8mb4_bin")


Row = tuple[int, int, str, str]


@dataclass(slots=True)
class _Made:
    """A table on the way: definition, encoder, contents."""

    table: Table
    encoder: RowEncoder
    rows: dict[int, Row] = field(default_factory=dict)


class _Recorder:
    def __init__(self) -> None:
        self.records: list[Record] = []
        self.jobs: list[tuple[int, bytes]] = []
        self.version = 0
        self._ids = itertools.count(1)
        self._timestamps = itertools.count(tso.compose(FIRST_MS), 1 << 10)

    def next_id(self) -> int:
        return next(self._ids)

    def _pair(self, start_ts: int, prewrite: bytes, key: bytes) -> None:
        commit_ts = next(self._timestamps)
        self.records.append(Record(binlog.PREWRITE, start_ts, 0, prewrite))
        commit = binlog.commit(start_ts, commit_ts, key)
        self.records.append(Record(binlog.COMMIT, start_ts, commit_ts, commit))

    def ddl(self, kind: int, query: str, table: Table | None) -> None:
        start_ts = next(self._timestamps)
        self.version += 1
        job = Job(
            id=self.next_id(),
            kind=kind,
            schema_id=1_000_000,
            schema=SCHEMA,
            table_id=table.id if table else 0,
            table_name=table.name if table else "",
            query=query,
            schema_version=self.version,
        )
        self.jobs.append((job.id, job_json(job, table, start_ts)))
        key = b"ddl%020d" % start_ts
        self._pair(start_ts, binlog.prewrite_ddl(start_ts, key, query, job.id), key)

    def rows(self, table_id: int, kinds: list[int], rows: list[bytes]) -> None:
        start_ts = next(self._timestamps)
        key = b"t%020d" % start_ts
        value = prewrite_value(self.version, [(table_id, kinds, rows)])
        self._pair(start_ts, binlog.prewrite(start_ts, key, value), key)


def make(seed: int = 1, transactions: int = TRANSACTIONS) -> Scenario:
    """The whole workload; the same for the same arguments."""
    random = Random(seed)
    recorder = _Recorder()
    recorder.ddl(CREATE_SCHEMA, f"CREATE DATABASE {SCHEMA}", None)
    made = [_load(recorder, number, random) for number in range(1, TABLES + 1)]
    for _ in range(transactions):
        _transaction(recorder, random.choice(made), random)
    return Scenario(
        name="sysbench-like",
        cluster_id=CLUSTER_ID,
        files=[recorder.records],
        jobs=recorder.jobs,
        outcomes={},
        expected=[],
        checksums=[_checksum(one) for one in made],
    )


def _text(random: Random, groups: int) -> str:
    return "-".join("".join(random.choices(_DIGITS, k=11)) for _ in range(groups))


def _load(recorder: _Recorder, number: int, random: Random) -> _Made:
    columns = (("id", INT), ("k", INT), ("c", _char(120)), ("pad", _char(60)))
    table = new_table(
        recorder.next_id(), SCHEMA, f"sbtest{number}", columns, primary=("id",), storage=HANDLE
    ).with_index(f"k_{number}", (("k", -1),), unique=False)
    recorder.ddl(CREATE_TABLE, table.create_sql(), table)
    one = _Made(table, RowEncoder(TableInfo.from_json(table.info())))
    ids: Iterator[int] = iter(range(1, ROWS + 1))
    while chunk := list(itertools.islice(ids, LOAD_ROWS)):
        encoded = []
        for row_id in chunk:
            row = (row_id, random.randrange(1, ROWS), _text(random, 10), _text(random, 5))
            one.rows[row_id] = row
            encoded.append(one.encoder.insert(row))
        recorder.rows(table.id, [INSERT] * len(encoded), encoded)
    return one


def _transaction(recorder: _Recorder, one: _Made, random: Random) -> None:
    encoder, rows = one.encoder, one.rows
    first, second, third = random.sample(range(1, ROWS + 1), 3)
    encoded: list[bytes] = []

    def update(row_id: int, new: Row) -> None:
        encoded.append(encoder.update(rows[row_id], new))
        rows[row_id] = new

    row_id, k, c, pad = rows[first]
    update(first, (row_id, k + 1, c, pad))
    row_id, k, c, pad = rows[second]
    update(second, (row_id, k, _text(random, 10), pad))
    encoded.append(encoder.delete(rows[third]))
    rows[third] = (third, random.randrange(1, ROWS), _text(random, 10), _text(random, 5))
    encoded.append(encoder.insert(rows[third]))
    recorder.rows(one.table.id, [UPDATE, UPDATE, DELETE, INSERT], encoded)


def _checksum(one: _Made) -> ExpectedChecksum:
    digest = hashlib.sha256()
    values: tuple[Any, ...]
    for _, values in sorted(one.rows.items()):
        digest.update("\t".join(map(str, values)).encode() + b"\n")
    table = one.table
    return ExpectedChecksum(SCHEMA, table.name, table.column_names, len(one.rows), digest.hexdigest())
