"""A stream into a real MariaDB while its archive is written, rotated and thinned out, over four lives."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Target, connect
from drainer.sink.file.segments import ArchiveSegments
from drainer.spark.driver import translated
from drainer.spark.replay import stream_jobs
from drainer.spark.replay.job import Bucket, Frozen, Job
from drainer.spark.replay.stream_apply import ArchiveStream, StreamSettings
from drainer.spark.replay.stream_jobs import Batch
from drainer.txn import Transaction
from tests.drainer.support.apply_life import clean, run
from tests.drainer.support.relay_world import target_of
from tests.spark.support.growing import TABLES, ArchiveWriter, History, RelayLogWriter, remove_before
from tidb_binlog.errors import Conflict, Corruption


@pytest.fixture
def target(mariadb: MariaDbServer) -> Iterator[Target]:
    target = target_of(mariadb)
    clean(target)
    run(target, *TABLES)
    yield target
    clean(target)


def contents(target: Target) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    return (
        list(run(target, "SELECT * FROM d.k ORDER BY id")),
        list(run(target, "SELECT * FROM d.t ORDER BY a, b")),
    )


def expected(history: History) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    return [(key, *row) for key, row in sorted(history.keyed.items())], list(history.keyless)


class Retention:
    """Removes segments that were applied, but the last one of them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.removed = 0

    def applied(self, stop_ts: int) -> None:
        segments = ArchiveSegments(str(self._directory))
        done = [
            index
            for index, name in segments.in_order()
            if (known := segments.index_of(name)) is not None and known.closed and known.last_ts <= stop_ts
        ]
        if done:
            self.removed += remove_before(self._directory, max(done))


class Meanwhile:
    """A writer on a thread of its own: a few transactions whenever a batch is done."""

    def __init__(self, directory: Path, history: History, count: int) -> None:
        self._retention = Retention(directory)
        self._writer = ArchiveWriter(directory, 1200)
        self._history = history
        self._left = count
        self._writer.write(history.items(5))
        self.batches: list[Batch] = []
        self.stream: ArchiveStream | None = None

    def on_batch(self, batch: Batch) -> None:
        self.batches.append(batch)
        self._retention.applied(batch.stop_ts)
        self._left -= 1
        self._writer.write(self._history.items(12 if self._left else 40))
        if not self._left:
            assert self.stream is not None
            self.stream.stop()

    def close(self) -> int:
        self._writer.close()
        return self._retention.removed


def life(
    spark: SparkSession, directory: Path, target: Target, checkpoint: Path, history: History, count: int
) -> Meanwhile:
    """A run that ends after some batches, in the middle of one."""
    meanwhile = Meanwhile(directory, history, count)
    settings = StreamSettings(interval_s=0.05, batch_bytes=6000)
    ready = threading.Event()

    def on_batch(batch: Batch) -> None:
        ready.wait()
        meanwhile.on_batch(batch)

    meanwhile.stream = ArchiveStream(
        spark, str(directory), target, str(checkpoint), settings, on_batch=on_batch
    )
    ready.set()
    meanwhile.stream.wait()
    return meanwhile


def killed_life(directory: Path, target: Target, checkpoint: Path, after: int) -> None:
    """The command, killed when a batch after that one is done: the next one is under way."""
    command = ["stream", "--from", str(directory), "--checkpoint", str(checkpoint), "--output", "json"]
    command += ["--to", f"mysql://{target.user}@/?socket={target.socket}", "--interval", "50ms"]
    command += ["--batch-bytes", "2000", "--master", "local[1]", "--conf", "spark.driver.memory=512m"]
    process = subprocess.Popen(
        [sys.executable, "-m", "drainer.spark", *command],
        stdout=subprocess.PIPE,
        env=os.environ | {"BINLOG_SPARK_PASSWORD": target.password},
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert any(json.loads(line)["number"] > after for line in process.stdout)
    finally:
        os.killpg(process.pid, 9)
        process.communicate()


def test_nothing_is_lost_or_doubled_over_three_restarts(
    spark: SparkSession, target: Target, tmp_path: Path
) -> None:
    directory, checkpoint, history = tmp_path / "archive", tmp_path / "checkpoint", History(7, ddl_at=40)
    first = life(spark, directory, target, checkpoint, history, 4)
    removed = first.close()
    killed_life(directory, target, checkpoint, first.batches[-1].number)
    third = life(spark, directory, target, checkpoint, history, 3)
    removed += third.close()
    assert first.stream is not None
    assert third.stream is not None
    assert third.stream.id == first.stream.id
    assert third.batches[0].number > first.batches[-1].number
    last = StreamSettings(once=True)
    done: list[Batch] = []
    ArchiveStream(spark, str(directory), target, str(checkpoint), last, on_batch=done.append).wait()
    assert contents(target) == expected(history)
    assert removed > 3
    assert sum(batch.ddl for batch in [*first.batches, *third.batches, *done]) <= 1
    ((jobs,),) = run(target, "SELECT COUNT(*) FROM tidb_binlog.spark_jobs")
    assert jobs == 1


# -- what the downstream knows ----------------------------------------------------------------------------


def begun(target: Target, job: str, stop: int) -> None:
    frozen = Frozen("/a", "pb", 1, stop, stop, (), 5000, False)
    connection = connect(target)
    Job(connection, job).open(frozen)
    connection.close()


def test_an_older_copy_of_a_checkpoint_and_a_second_stream_are_refused(target: Target) -> None:
    connection = connect(target)
    stream_jobs.check(connection, "q-1", 0, "/a", 0, ())  # nothing was ever written
    for batch in (4, 5):
        begun(target, stream_jobs.job_of("q-1", batch), batch * 100)
    begun(target, "another job", 900)
    for batch in (5, 6):
        stream_jobs.check(connection, "q-1", batch, "/a", 401, ())
    with pytest.raises(Conflict, match=r"batch 4, but batch 5 .*older copy"):
        stream_jobs.check(connection, "q-1", 4, "/a", 301, ())
    with pytest.raises(Conflict, match="another stream applied /a up to 500"):
        stream_jobs.check(connection, "q-2", 0, "/a", 500, ())
    stream_jobs.check(connection, "q-2", 0, "/a", 501, ())
    stream_jobs.check(connection, "q-2", 0, "/b", 1, ())
    assert not stream_jobs.is_done(connection, "q-1", 5)
    run(target, f"UPDATE tidb_binlog.spark_jobs SET done=1 WHERE job='{stream_jobs.job_of('q-1', 5)}'")
    assert stream_jobs.is_done(connection, "q-1", 5)
    bucket_of = functools.partial(Bucket, step=0, phase=0, number=0)
    for batch in (4, 5):
        bucket_of(stream_jobs.job_of("q-1", batch)).note(connection, {"d.k": 1}, {"d.k.b": 2})
    connection.commit()
    stream_jobs.forget(connection, "q-1", 5)
    left = [Job(connection, stream_jobs.job_of("q-1", batch)).findings() for batch in (4, 5)]
    assert left == [({}, {}, ()), ({"d.k": 1}, {"d.k.b": 2}, ())]
    jobs = {job for (job,) in run(target, "SELECT job FROM tidb_binlog.spark_jobs")}
    assert jobs == {stream_jobs.job_of("q-1", 5), "another job"}
    connection.close()


# -- readStream -------------------------------------------------------------------------------------------


def test_changes_of_a_relay_log_come_once_although_some_were_written_anew(
    spark: SparkSession, tmp_path: Path
) -> None:
    history, directory = History(3), tmp_path / "relay"
    writer = RelayLogWriter(directory, 2000)
    items = list(history.items(20))
    writer.write(iter([*items[:10], *items[5:]]))
    found: list[tuple[int, int]] = []
    batches: list[int] = []

    def take(frame: DataFrame, number: int) -> None:
        batches.append(number)
        found.extend((row[0], row[1]) for row in frame.select("_commit_ts", "_seq").collect())

    def once() -> None:
        stream = spark.readStream.format("binlog").option("maxRowsPerTrigger", 40).load(str(directory))
        query = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "c"))
        query.trigger(availableNow=True).start().awaitTermination()

    once()
    assert len(batches) > 1
    more = list(history.items(5))
    writer.write(iter(more))
    writer.close()
    once()
    wanted = [
        (item.commit_ts, seq)
        for item in [*items, *more]
        if isinstance(item, Transaction)
        for seq in range(sum(len(events.rows) for events in item.tables))
    ]
    assert sorted(found) == wanted


def newest(directory: Path) -> int:
    return max(int(path.name.split("-")[1]) for path in directory.glob("binlog-*"))


def test_rows_that_retention_took_end_the_query_with_the_reason(
    spark: SparkSession, target: Target, tmp_path: Path
) -> None:
    directory, history = tmp_path / "archive", History(5)
    writer = ArchiveWriter(directory, 1000)
    writer.write(history.items(20))
    settings, checkpoint = StreamSettings(once=True), str(tmp_path / "c")
    ArchiveStream(spark, str(directory), target, checkpoint, settings).wait()
    # Killed before it said that the batch is done, and what was applied goes: nothing is lost.
    for path in (tmp_path / "c" / "commits").iterdir():
        path.unlink()
    remove_before(directory, newest(directory))
    ArchiveStream(spark, str(directory), target, checkpoint, settings).wait()
    assert contents(target) == expected(history)
    writer.write(history.items(20))
    writer.close()
    remove_before(directory, newest(directory))
    with pytest.raises(Exception, match=r"is gone and was not read to its end") as caught:
        ArchiveStream(spark, str(directory), target, checkpoint, settings).wait()
    assert isinstance(translated(caught.value), Corruption)
