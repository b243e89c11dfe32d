"""Stream jobs: what the downstream knows of streams that write into it.

In      rows of `spark_jobs`, one for each batch that is under way or was the last one of its stream
Holds   a batch is begun by the stream that did the one before: neither a copy of an older checkpoint nor a
        second stream over the same archive writes rows that are there already
Why     a query starts at the beginning again when its checkpoint is lost or another directory is given; Spark
        cannot know what is downstream
Tests   tests/spark/replay/test_stream_apply.py, tests/spark/live/test_take_over.py
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from drainer.checkpoint.stream_row import stream_name
from drainer.mysql.connection import Connection
from drainer.mysql.errors import NoSuchTable
from drainer.mysql.literal.quoting import string_literal
from drainer.spark.replay.job import JOBS, LEFT_OUT, PROGRESS, Frozen, findings_of
from tidb_binlog.errors import Conflict
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import Ts

_PREFIX = "stream-"


@dataclass(frozen=True, slots=True)
class Batch:
    """One that is done. `rows`: keys written. `lag_s`: how old its last transaction was then."""

    number: int
    start_ts: Ts
    stop_ts: Ts
    rows: int
    ddl: int
    drift: int
    seconds: float
    lag_s: float


def job_of(query: str, batch: int) -> str:
    """Of a batch of the query with that id."""
    return f"{_prefix_of(query)}{batch}"


def _prefix_of(query: str) -> str:
    return f"{_PREFIX}{query.replace('-', '')}-"


def check(
    connection: Connection,
    query: str,
    batch: int,
    archive: str,
    start_ts: Ts,
    tables: tuple[str, ...],
) -> None:
    """Whether this batch is the next one, or the last one again. Raises `Conflict`."""
    prefix = _prefix_of(query)
    for job, frozen in _jobs(connection):
        if job.startswith(prefix):
            last = int(job.removeprefix(prefix))
            if batch < last:
                raise Conflict(
                    f"this checkpoint is at batch {batch}, but batch {last} of the query is downstream: it is"
                    " an older copy",
                    hint=f"use the newer one, or a new directory with --start {frozen.stop + 1}",
                )
        elif frozen.archive == archive and frozen.tables == tables and start_ts <= frozen.stop:
            raise Conflict(
                f"another stream applied {archive} up to {frozen.stop}, and this one begins at {start_ts}",
                hint=f"use its checkpoint directory, or begin after it: --start {frozen.stop + 1}",
            )


def is_done(connection: Connection, query: str, batch: int) -> bool:
    """Whether a batch is downstream as a whole, though its query may not know it."""
    where = b" WHERE done AND job=" + string_literal(job_of(query, batch))
    return bool(_rows(connection, b"SELECT job FROM " + JOBS + where))


def forget(connection: Connection, query: str, batch: int) -> None:
    """What came before this batch, which is done: it never comes again."""
    prefix = _prefix_of(query)
    older = [job for job, _ in _jobs(connection) if job.startswith(prefix) and job != job_of(query, batch)]
    _delete(connection, older)


def _delete(connection: Connection, jobs: Iterable[str]) -> None:
    for job in jobs:
        for table in (PROGRESS, LEFT_OUT, JOBS):
            connection.run(b"DELETE FROM " + table + b" WHERE job=" + string_literal(job))
        findings_of(job).forget(connection)
    connection.commit()


def _jobs(connection: Connection) -> list[tuple[str, Frozen]]:
    rows = _rows(connection, b"SELECT job, frozen FROM " + JOBS + b" WHERE job LIKE 'stream-%'")
    return [(str(job), Frozen.from_json(text)) for job, text in rows]


def _rows(connection: Connection, query: bytes) -> list[tuple[Any, ...]]:
    """Nothing if nothing was ever written."""
    try:
        return list(connection.rows(query))
    except NoSuchTable:
        return []
    finally:
        connection.rollback()


@dataclass(frozen=True, slots=True)
class LiveJobs:
    """Names of the batches of a stream from Pumps: by where they begin, so the next one is known from the
    checkpoint alone."""

    prefix: str

    @classmethod
    def of(cls, cluster_id: int, checkpoint_schema: str) -> LiveJobs:
        """Of the stream that owns this checkpoint."""
        return cls(f"{stream_name(cluster_id, checkpoint_schema)}-")

    def job_at(self, position: Ts) -> str:
        """The batch that begins after a position."""
        return f"{self.prefix}{position}"

    def forget_before(self, connection: Connection, position: Ts) -> None:
        """Batches that ended at or below it never come again."""
        pattern = string_literal(self.prefix.replace("_", "\\_") + "%")
        names = [
            str(job)
            for (job,) in _rows(connection, b"SELECT job FROM " + JOBS + b" WHERE job LIKE " + pattern)
        ]
        _delete(connection, [job for job in names if int(job.removeprefix(self.prefix)) < position])
