"""Histories in which a column or key is dropped while rows that need it still come."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from drainer.mysql.connection import Target
from drainer.stream.pull.merged import Merged
from drainer.stream.schema.given_up import Later
from drainer.txn import INSERT
from tests.crash.small_run import Statement, job_of
from tests.drainer.support.apply_life import Recording, column, run
from tidb_binlog import binlog
from tidb_binlog.rowcodec.encoder import RowEncoder, prewrite_value
from tidb_binlog.table_info import (
    FLAG_NOT_NULL,
    FLAG_PRIMARY,
    LONG,
    Index,
    IndexColumn,
    SchemaState,
    TableInfo,
)
from tidb_binlog.upstream_port import SchemaAt, UnderWay

KEY = FLAG_NOT_NULL | FLAG_PRIMARY

ID, U, V = column(1, "id", LONG, KEY), column(2, "u", LONG), column(3, "v", LONG)

ON_U = Index(1, "k", (IndexColumn("u", 1),), unique=True, primary=False)

FULL = TableInfo(101, "t", (ID, U, V), indexes=(ON_U,), pk_is_handle=True)

FREE = replace(FULL, indexes=())

NARROW = replace(FULL, columns=(ID, replace(V, offset=1)), indexes=())

Row = tuple[int | None, ...]

CREATE = (
    Statement(1, "CREATE DATABASE `d`", None),
    Statement(3, "CREATE TABLE `t` (`id` INT PRIMARY KEY, `u` INT, `v` INT, UNIQUE KEY `k` (`u`))", FULL),
)

DROP_INDEX = Statement(8, "ALTER TABLE `t` DROP INDEX `k`", FREE)


class History:
    """Jobs of a recording; `now`: the one that is under way."""

    def __init__(self, jobs: Sequence[bytes], now: UnderWay | None = None) -> None:
        self.jobs, self.now, self.asked = jobs, now, 0

    async def job(self, job_id: int) -> bytes | None:
        return next((job for job in self.jobs if json.loads(job)["id"] == job_id), None)

    async def pages(self, after_id: int = 0) -> AsyncIterator[list[bytes]]:
        self.asked += 1
        yield [job for job in self.jobs if json.loads(job)["id"] > after_id]

    async def schema_at(self, ts: int) -> SchemaAt | None:
        return None

    async def under_way(self, *, table_id: int = 0, job_id: int = 0) -> UnderWay | None:
        return self.now


HALF = object()
"""The binlog of a column that is on its way out, of the job that comes next."""


def recording(
    *steps: Statement | Sequence[Row] | object,
    create: Sequence[Statement] = CREATE,
    full: TableInfo = FULL,
) -> Recording:
    """DDL, and transactions that insert rows; what has no `u` any more is written without."""
    jobs: list[bytes] = []
    entries: list[Merged] = []
    version = 0
    all_steps = (*create, *steps)
    for number, step in enumerate(all_steps, start=1):
        ts = 1000 + 10 * number
        commit = binlog.commit(ts, ts + 1, b"k")
        if isinstance(step, Statement):
            document = json.loads(job_of(number, step))
            document["table_id"] = step.table.id if step.table else 0
            jobs.append(json.dumps(document).encode())
            version = number
            payload = binlog.join(binlog.prewrite_ddl(ts, b"k", step.text, job_id=number), commit)
            entries.append(Merged(ts + 1, payload, document))
            continue
        if step is HALF:
            later = next(
                at for at, one in enumerate(all_steps, 1) if at > number and isinstance(one, Statement)
            )
            query = all_steps[later - 1].text  # type: ignore[attr-defined]
            first = binlog.prewrite_ddl(ts, b"k", query, job_id=later, schema_state=SchemaState.DELETE_ONLY)
            entries.append(Merged(ts + 1, binlog.join(first, commit)))
            continue
        assert isinstance(step, list)
        rows = [
            RowEncoder(full if len(row) == 3 else NARROW).insert(
                row, rowid=None if full.pk_is_handle else 100 * number + place
            )
            for place, row in enumerate(step)
        ]
        value = prewrite_value(version, [(full.id, [INSERT] * len(rows), rows)])
        entries.append(Merged(ts + 1, binlog.join(binlog.prewrite(ts, b"k", value), commit)))
    return Recording(4712, jobs, entries)


def contents(target: Target) -> list[Any]:
    return sorted(run(target, "SELECT id, v FROM d.t"))


def keys(target: Target) -> set[str]:
    return {row[2] for row in run(target, "SHOW INDEX FROM d.t")}


def decided(target: Target) -> list[Any]:
    return run(target, "SELECT job_id, decision, outcome FROM tidb_binlog.ddl_decisions ORDER BY number")


WINDOW = ([(1, 1, 1)], [(2, 1, 2)], [(3, 1, 3), (4, 2, 4)], [(5, 2, 5)])

EARLY = [(7, "early", "ran, before its job's DDL")]


def later(info: TableInfo, action: int = 8) -> Later:
    return Later(7, action, info.to_json())
