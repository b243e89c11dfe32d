"""Job metrics: what a command of binlog-spark did, for Prometheus, which cannot scrape what has ended.

In      `--metrics`: a file `*.prom` in the directory of node_exporter's textfile collector, or a Pushgateway
Out     the same text in both: when it began and ended, its exit code, its rows; a stream's batches and lag
Drives  a thread that writes every `INTERVAL_S`, and once more at the end
Holds   label `name` is the file's, or the command's at a Pushgateway: jobs of one host stay apart
Never   fails the command: what cannot be written is said once

Tests  tests/spark/local/test_job_metrics.py
"""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from typing import TYPE_CHECKING, Final

from tidb_binlog import tso
from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.errors import BinlogError
from tidb_binlog.filesystem import replace_file
from tidb_binlog.observe import log, metrics

if TYPE_CHECKING:
    from drainer.spark.replay.stream_jobs import Batch

SUFFIX: Final = ".prom"
INTERVAL_S: Final = 15.0
DEADLINE_S: Final = 3.0
FAILED: Final = 2
"""Exit code of an error that carries none."""

_OURS: Final = re.compile(r"(?:# \w+ )?binlog_spark_")
_logger = log.get("job_metrics")

_LABELS: Final = ("command", "name")
BEGAN: Final = metrics.gauge(
    "binlog_spark_job_start_seconds", "When the command began, seconds since 1970.", _LABELS
)
RUNNING: Final = metrics.gauge("binlog_spark_job_running_count", "1 while the command runs.", _LABELS)
SECONDS: Final = metrics.gauge(
    "binlog_spark_job_duration_seconds", "How long it ran, or has run until now.", _LABELS
)
SUCCESS: Final = metrics.gauge(
    "binlog_spark_job_last_success_seconds", "When it ended with exit code 0, seconds since 1970.", _LABELS
)
EXIT_CODE: Final = metrics.gauge(
    "binlog_spark_job_exit_code", "How it ended; 16 and more: what an audit found.", _LABELS
)
ROWS: Final = metrics.gauge("binlog_spark_job_rows", "Rows that a replay or an export wrote.", _LABELS)
BYTES: Final = metrics.gauge("binlog_spark_job_read_bytes", "Bytes of the archive in its range.", _LABELS)
DRIFT: Final = metrics.gauge(
    "binlog_spark_job_drift_rows", "Rows downstream that were not as they should be.", _LABELS
)
BATCHES: Final = metrics.counter("binlog_spark_stream_batches_total", "Batches that are applied.", _LABELS)
STREAM_ROWS: Final = metrics.counter("binlog_spark_stream_rows_total", "Keys that batches wrote.", _LABELS)
STREAM_DDL: Final = metrics.counter("binlog_spark_stream_ddl_total", "DDL that batches ran.", _LABELS)
STREAM_DRIFT: Final = metrics.counter(
    "binlog_spark_stream_drift_rows_total", "Rows downstream that were not as batches expected them.", _LABELS
)
STREAM_LAG: Final = metrics.gauge(
    "binlog_spark_stream_lag_seconds", "Age of the last transaction of a batch when it was applied.", _LABELS
)
STREAM_POSITION: Final = metrics.gauge(
    "binlog_spark_stream_position_milliseconds", "Time of the last transaction applied, since 1970.", _LABELS
)
STREAM_BATCH_SECONDS: Final = metrics.histogram(
    "binlog_spark_stream_batch_seconds", "Time of a batch.", _LABELS, [0.1 * 2**n for n in range(12)]
)
_ALL: Final = (
    *(BEGAN, RUNNING, SECONDS, SUCCESS, EXIT_CODE, ROWS, BYTES, DRIFT, BATCHES),
    *(STREAM_ROWS, STREAM_DDL, STREAM_DRIFT, STREAM_LAG, STREAM_POSITION, STREAM_BATCH_SECONDS),
)


class Job:
    """A command that runs. What it did is noted whether or not it is published."""

    def __init__(self, command: str, name: str) -> None:
        self._labels = (command, name)
        self.exit_code = FAILED
        """Until the command has come to its end."""

    def note(self, *, rows: int, read_bytes: int | None = None, drift: int | None = None) -> None:
        """What it did, known at its end."""
        ROWS.labels(*self._labels).set(rows)
        if read_bytes is not None:
            BYTES.labels(*self._labels).set(read_bytes)
        if drift is not None:
            DRIFT.labels(*self._labels).set(drift)

    def note_batch(self, batch: Batch) -> None:
        """A batch of a stream that is downstream."""
        BATCHES.labels(*self._labels).inc()
        STREAM_ROWS.labels(*self._labels).inc(batch.rows)
        STREAM_DDL.labels(*self._labels).inc(batch.ddl)
        STREAM_DRIFT.labels(*self._labels).inc(batch.drift)
        STREAM_LAG.labels(*self._labels).set(max(batch.lag_s, 0.0))
        STREAM_POSITION.labels(*self._labels).set(tso.physical_ms(batch.stop_ts))
        STREAM_BATCH_SECONDS.labels(*self._labels).observe(batch.seconds)

    def begin(self, wall_s: float) -> None:
        for metric in _ALL:
            metric.clear()  # what an earlier command of this process published is no part of this one
        BEGAN.labels(*self._labels).set(wall_s)
        RUNNING.labels(*self._labels).set(1)

    def has_run(self, seconds: float) -> None:
        SECONDS.labels(*self._labels).set(seconds)

    def end(self, wall_s: float) -> None:
        RUNNING.labels(*self._labels).set(0)
        EXIT_CODE.labels(*self._labels).set(self.exit_code)
        if self.exit_code == 0:
            SUCCESS.labels(*self._labels).set(wall_s)


def text() -> bytes:
    """Ours alone: node_exporter has process metrics of its own, and takes no name twice."""
    lines = metrics.exposition().decode().splitlines()
    return "".join(f"{line}\n" for line in lines if _OURS.match(line)).encode()


def name_of(where: str, command: str) -> str:
    return os.path.basename(where).removesuffix(SUFFIX) if where.endswith(SUFFIX) else command


@contextmanager
def published(where: str, command: str, clock: Clock | None = None) -> Iterator[Job]:
    """Publish while the block runs, and at its end. `where` "": nothing is published."""
    clock = clock or SystemClock()
    job = Job(command, name_of(where, command))
    if not where:
        yield job
        return
    write = _writer(where, command)
    began_s = clock.monotonic_s()
    ended, said = threading.Event(), threading.Event()

    def publish() -> None:
        job.has_run(clock.monotonic_s() - began_s)
        try:
            write()
        except (OSError, ValueError, HTTPException) as error:
            if not said.is_set():
                _logger.warning("metrics cannot be written", to=where, error=error)
            said.set()

    def repeat() -> None:
        publish()
        while not ended.wait(INTERVAL_S):
            publish()

    job.begin(clock.wall_s())
    thread = threading.Thread(target=repeat, name="job-metrics", daemon=True)
    thread.start()
    try:
        yield job
    except BinlogError as error:
        job.exit_code = error.exit_code
        raise
    finally:
        ended.set()
        thread.join()
        job.end(clock.wall_s())
        publish()


def _writer(where: str, command: str) -> Callable[[], None]:
    """What brings the text to a file or a Pushgateway. Raises `OSError`, `ValueError`, `HTTPException`."""
    if where.endswith(SUFFIX):
        path = os.path.abspath(where)
        return lambda: replace_file(path, text(), mode=0o644)  # another user's collector reads it
    instance = f"{command}@{socket.gethostname()}"
    return lambda: metrics.push(where, instance, text(), DEADLINE_S)
