"""A small history for crash tests: tables with a key, with a further unique key, without a key; a DDL that
changes a definition alone, and one that reads the table.

`entries` is what a drainer's merger gets; `publish` sends the same through a pump. `expected` is what has to
be downstream at the end.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pumpclient
from drainer.mysql.connection import Target, connect
from drainer.mysql.errors import SessionError
from drainer.stream.pull.merged import Merged
from drainer.txn import DELETE, INSERT, UPDATE
from tests.drainer.support.apply_life import Recording, column
from tidb_binlog import binlog
from tidb_binlog.rowcodec.encoder import RowEncoder, prewrite_value
from tidb_binlog.table_info import FLAG_NOT_NULL, FLAG_PRIMARY, LONG, VARCHAR, Index, IndexColumn, TableInfo

SCHEMA: Final = "d"
KEY: Final = FLAG_NOT_NULL | FLAG_PRIMARY
KEYED = TableInfo(101, "k", (column(1, "id", LONG, KEY), column(2, "v", LONG)), pk_is_handle=True)
WIDER = TableInfo(101, "k", (*KEYED.columns, column(3, "w", LONG)), pk_is_handle=True)
ON_V = Index(1, "v", (IndexColumn("v", 1),), unique=True, primary=False)
UNIQUE = TableInfo(102, "u", KEYED.columns, indexes=(ON_V,), pk_is_handle=True)
KEYLESS = TableInfo(103, "n", (column(1, "a", LONG), column(2, "b", VARCHAR)))
ON_A = Index(1, "a", (IndexColumn("a", 0),), unique=False, primary=False)
INDEXED = TableInfo(103, "n", KEYLESS.columns, indexes=(ON_A,))

Row = tuple[Any, ...]
Event = tuple[TableInfo, Row | None, Row | None]  # table, row before, row after


@dataclass(frozen=True)
class Statement:
    """A DDL and what the table is from then on; None for the database."""

    kind: int
    text: str
    table: TableInfo | None


HISTORY: Final[tuple[Statement | tuple[Event, ...], ...]] = (
    Statement(1, f"CREATE DATABASE `{SCHEMA}`", None),
    Statement(3, "CREATE TABLE `k` (`id` INT PRIMARY KEY, `v` INT)", KEYED),
    Statement(3, "CREATE TABLE `u` (`id` INT PRIMARY KEY, `v` INT, UNIQUE KEY `v` (`v`))", UNIQUE),
    Statement(3, "CREATE TABLE `n` (`a` INT, `b` VARCHAR(64))", KEYLESS),
    (
        (KEYED, None, (1, 1)),
        (KEYED, None, (2, 2)),
        (UNIQUE, None, (1, 1)),
        (UNIQUE, None, (2, 2)),
        (KEYLESS, None, (0, "x")),
        (KEYLESS, None, (0, "x")),
    ),
    (
        (KEYED, (1, 1), (3, 1)),
        (UNIQUE, (1, 1), (1, 9)),
        (UNIQUE, (2, 2), (2, 1)),
        (UNIQUE, (1, 9), (1, 2)),
        (KEYLESS, (0, "x"), (1, "y")),
    ),
    ((KEYED, (2, 2), None), (KEYLESS, (0, "x"), None), (UNIQUE, (2, 1), None), (UNIQUE, None, (5, 1))),
    Statement(5, "ALTER TABLE `k` ADD COLUMN `w` INT", WIDER),
    ((WIDER, None, (2, 5, 6)), (WIDER, (3, 1, None), (3, 7, 8)), (KEYLESS, None, (2, "z"))),
    Statement(7, "ALTER TABLE `n` ADD INDEX `a` (`a`)", INDEXED),
    ((INDEXED, None, (2, "z")), (UNIQUE, (5, 1), (4, 1)), (WIDER, (3, 7, 8), (1, 7, 8))),
    ((INDEXED, (1, "y"), None), (INDEXED, None, (3, "w")), (WIDER, None, (6, 6, 6))),
)


def expected() -> dict[str, list[Row]]:
    """Contents by table after all of it, row by row."""
    rows: dict[str, list[Row]] = {"k": [], "u": [], "n": []}
    for step in HISTORY:
        if isinstance(step, Statement):
            if step.kind == 5:
                rows["k"] = [(*row, None) for row in rows["k"]]
            continue
        for table, old, new in step:
            if old is not None:
                rows[table.name].remove(old)
            if new is not None:
                rows[table.name].append(new)
    return {name: sorted(found) for name, found in rows.items()}


def waits(target: Target) -> bool:
    """Whether a DDL that runs beside the stream is not over, or its table catches up."""
    with connect(target) as connection:
        return bool(connection.rows(b"SELECT 1 FROM tidb_binlog.quarantine"))


def found(target: Target) -> tuple[dict[str, list[Row]], bool]:
    """Contents by table, and the checkpoint's `consistent`."""
    connection = connect(target)
    try:
        rows = {name: sorted(connection.rows(f"SELECT * FROM {SCHEMA}.{name}".encode())) for name in "kun"}
        ((text,),) = connection.rows(b"SELECT checkPoint FROM tidb_binlog.checkpoint")
        return rows, bool(json.loads(text)["consistent"])
    finally:
        connection.close()


def epoch(target: Target, *, caught_up: bool = False) -> int:
    """Of the drainer that works there; 0 for none. `caught_up`: 0 while a lane is ahead of its checkpoint."""
    connection = connect(target)
    try:
        ((text,),) = connection.rows(b"SELECT checkPoint FROM tidb_binlog.checkpoint")
        ((highest,),) = connection.rows(b"SELECT MAX(applied_ts) FROM tidb_binlog.lanes")
    except (SessionError, ValueError):  # there is no table, or nothing in it
        return 0
    finally:
        connection.close()
    document = json.loads(text)
    return 0 if caught_up and document["commitTS"] < highest else int(document["epoch"])


def job_of(number: int, statement: Statement) -> bytes:
    if statement.table is None:
        job = pumpclient.create_database_job(number, 5, SCHEMA, schema_version=number)
    else:
        job = pumpclient.create_table_job(number, 5, SCHEMA, statement.table, schema_version=number)
    document = json.loads(job)
    return json.dumps({**document, "type": statement.kind, "query": statement.text}).encode()


def row_of(event: Event) -> tuple[int, bytes]:
    """(kind, encoded row)"""
    table, old, new = event
    encoder, rowid = RowEncoder(table), None if table.pk_is_handle else 1
    if old is None:
        assert new is not None
        return INSERT, encoder.insert(new, rowid=rowid)
    if new is None:
        return DELETE, encoder.delete(old, rowid=rowid)
    return UPDATE, encoder.update(old, new, rowid=rowid)


def recording() -> Recording:
    """The history as a merger hands it on."""
    jobs: list[bytes] = []
    entries: list[Merged] = []
    version = 0
    for number, step in enumerate(HISTORY, start=1):
        ts = 1000 + 10 * number
        commit = binlog.commit(ts, ts + 1, b"k")
        if isinstance(step, Statement):
            jobs.append(job_of(number, step))
            version = number
            payload = binlog.join(binlog.prewrite_ddl(ts, b"k", step.text, job_id=number), commit)
            entries.append(Merged(ts + 1, payload, json.loads(jobs[-1])))
            continue
        tables: dict[int, list[tuple[int, bytes]]] = {}
        for event in step:
            tables.setdefault(event[0].id, []).append(row_of(event))
        value = prewrite_value(
            version,
            [(of, [kind for kind, _ in rows], [row for _, row in rows]) for of, rows in tables.items()],
        )
        entries.append(Merged(ts + 1, binlog.join(binlog.prewrite(ts, b"k", value), commit)))
    return Recording(4712, jobs, entries)


async def publish(
    endpoint: str, steps: Sequence[Statement | Sequence[Event]] = HISTORY, first: int = 1
) -> None:
    """Send a history to the pumps; all of it is acknowledged when this returns. `first`: number of the first
    step, where others went before."""
    async with await pumpclient.open_publisher(endpoint) as publisher:
        for number, step in enumerate(steps, first):
            if isinstance(step, Statement):
                await publisher.ddl(job_of(number, step), step.text)
                continue
            async with publisher.transaction(ttl_s=300.0) as transaction:
                for event in step:
                    kind, row = row_of(event)
                    add = (transaction.insert, transaction.update, transaction.delete)[kind]
                    add(event[0].id, row)
        await publisher.flush()
