"""Recordings made by hand: statements and transactions, one after the other."""

from __future__ import annotations

import json
from typing import Any

from drainer.stream.pull.merged import Merged
from tests.crash.small_run import Event, Statement, job_of, row_of
from tests.drainer.support.apply_life import Recording
from tidb_binlog import binlog
from tidb_binlog.rowcodec.encoder import prewrite_value
from tidb_binlog.table_info import TableInfo


def recording(*steps: Statement | list[Event]) -> Recording:
    """Each step in a transaction of its own, 1011, 1021, ..."""
    jobs: list[bytes] = []
    entries: list[Merged] = []
    for number, step in enumerate(steps, start=1):
        ts = 1000 + 10 * number
        commit = binlog.commit(ts, ts + 1, b"k")
        if isinstance(step, Statement):
            jobs.append(job_of(number, step))
            payload = binlog.join(binlog.prewrite_ddl(ts, b"k", step.text, job_id=number), commit)
            entries.append(Merged(ts + 1, payload, json.loads(jobs[-1])))
            continue
        tables: dict[int, list[tuple[int, bytes]]] = {}
        for event in step:
            tables.setdefault(event[0].id, []).append(row_of(event))
        value = prewrite_value(
            len(jobs),
            [(of, [kind for kind, _ in rows], [row for _, row in rows]) for of, rows in tables.items()],
        )
        entries.append(Merged(ts + 1, binlog.join(binlog.prewrite(ts, b"k", value), commit)))
    return Recording(4712, jobs, entries)


def inserts(table: TableInfo, *rows: tuple[Any, ...]) -> list[Event]:
    return [(table, None, row) for row in rows]
