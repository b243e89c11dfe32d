"""Replay into a real MariaDB: hard histories and recorded scenarios, on the driver and in Spark's tasks."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.errors import ConnectionLost
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.reading import read
from drainer.reading.archive.decode.records import Changes
from drainer.spark.commands.replay import lines
from drainer.spark.replay.entry import ReplaySummary, replay
from drainer.spark.replay.job import SCHEMA, Bucket, Frozen, Job, LessThere
from drainer.spark.replay.plan import ReplayOptions, job_of, plan
from drainer.spark.replay.run import DdlSteps
from drainer.spark.replay.writer import Phase, Tables, Writer
from drainer.txn import DELETE, INSERT, UPDATE, Ddl, TableEvents, TableVersion, Transaction
from tests.drainer.support.apply_life import clean, cut, differences, run
from tests.drainer.support.relay_world import target_of
from tests.spark.support import kills
from tests.spark.support.growing import KEYLESS, ArchiveWriter, RelayLogWriter, remove_before
from tests.spark.support.mixed_history import FIRST_TS, TRUNCATE, MixedHistory
from tests.spark.support.replay_world import SOURCES
from tidb_binlog.errors import ConfigError, Conflict, Corruption, DownstreamError
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.status.drainer import LackStatus

IN_TASKS = ReplayOptions(small_bytes=0, chunk_rows=40)
HERE = ReplayOptions(chunk_rows=40)
BEYOND = FIRST_TS << 1
SCENARIOS = (
    "basic",
    "charset",
    "ddl-fk",
    "ddl-multischema",
    "ddl-rename-db",
    "ddl-swap",
    "keys",
    "txn",
    "types",
)


LACKS = {
    "ddl": "since job 111 (d1.bg): expression key kg",
    "keys": "since job 147 (keydb.ar): AUTO_RANDOM, which only the upstream has",
}
"""The first of what a MariaDB cannot have, where the source has definitions."""


@pytest.fixture
def target(mariadb: MariaDbServer) -> Iterator[Target]:
    found = target_of(mariadb)
    clean(found)
    yield found
    clean(found)


def archive_of(
    history: MixedHistory, directory: Path, count: int = 300, ddl_at: int = -1, query: str = TRUNCATE
) -> str:
    writer = ArchiveWriter(directory / "archive", 30_000)
    writer.write(history.items(count, ddl_at, query))
    writer.close()
    return str(directory / "archive")


@pytest.mark.parametrize("seed", [1, 2])
def test_hard_history_ends_as_it_was_upstream(target: Target, tmp_path: Path, seed: int) -> None:
    history = MixedHistory(seed)
    archive = archive_of(history, tmp_path, ddl_at=150)
    history.create(target)
    summary = replay(None, archive, target, options=HERE)
    assert history.downstream(target) == history.rows
    assert (summary.ddl, summary.drift, summary.was_done) == (1, 0, False)
    again = replay(None, archive, target, options=HERE)
    assert again.was_done
    assert history.downstream(target) == history.rows


@pytest.mark.parametrize("buckets_max", [9, 8], ids=["blocks", "rows"])
def test_hard_history_through_sparks_tasks(
    spark: SparkSession, target: Target, tmp_path: Path, buckets_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keyless rows, unique values that are exchanged, keys that differ in case: in buckets, in phases. A step
    of very many buckets crosses the shuffle row by row."""
    monkeypatch.setattr("drainer.spark.replay.run.BUCKETS_MAX", buckets_max)
    history = MixedHistory(3)
    archive = archive_of(history, tmp_path)
    history.create(target)
    summary = replay(spark, archive, target, options=IN_TASKS)
    assert history.downstream(target) == history.rows
    assert summary.drift == 0
    assert summary.chunks > 8
    assert run(target, f"SELECT COUNT(DISTINCT bucket), MAX(phase) FROM {SCHEMA}.spark_progress") == [(8, 1)]


# What a relay log gives is what the archive gives: reading/archive/test_archive.py has each scenario in each.
@pytest.mark.parametrize(
    ("scenario", "source"),
    [*((name, "archive") for name in SCENARIOS), *((name, "relay") for name in ("keys", "types", "ddl"))],
)
def test_recorded_scenarios_end_equal_to_tidb(
    target: Target, tmp_path: Path, scenario: str, source: str
) -> None:
    summary = replay(None, str(SOURCES[source](scenario, tmp_path / "archive")), target)
    assert summary.missing[:1] == ((LACKS[scenario],) if source == "relay" and scenario in LACKS else ())
    assert differences(scenario, target) == []


def test_what_the_downstream_lacks_is_printed() -> None:
    summary = ReplaySummary("j", "/a", 1, 2, 1, 1, 1, 1, missing=("since job 7 (d.t): expression key k",))
    assert lines(summary)[-1] == "missing   downstream since job 7 (d.t): expression key k"


@pytest.mark.parametrize("source", ["go-events", "go-relay"])
def test_what_the_go_drainer_wrote_is_replayed_with_the_downstreams_definitions(
    target: Target, tmp_path: Path, source: str
) -> None:
    replay(None, str(SOURCES[source]("txn", tmp_path / "archive")), target)
    assert differences("txn", target) == []


def test_a_range_in_two_parts(target: Target, tmp_path: Path) -> None:
    history = MixedHistory(4)
    archive = archive_of(history, tmp_path)
    history.create(target)
    first = replay(None, archive, target, stop=FIRST_TS + (70 << 20), options=HERE)
    assert history.downstream(target) != history.rows
    replay(None, archive, target, start=first.stop_ts + 1, options=HERE)
    assert history.downstream(target) == history.rows


def test_an_open_range_stays_what_it_was_when_it_began(target: Target, tmp_path: Path) -> None:
    history = MixedHistory(5)
    archive = archive_of(history, tmp_path, 50)
    history.create(target)
    first = replay(None, archive, target, options=HERE)
    writer = ArchiveWriter(tmp_path / "archive", 30_000)
    writer.write(history.items(50))
    writer.close()
    again = replay(None, archive, target, options=HERE)
    assert (again.was_done, again.stop_ts) == (True, first.stop_ts)


class Killed(BaseException):
    """No error that anybody handles."""


def killed_after_chunks(monkeypatch: pytest.MonkeyPatch, number: int, archive: str, target: Target) -> None:
    """A replay that ends when so many of its chunks are committed."""
    left = [number]

    def commit(connection: Connection) -> None:
        connection.commit()
        left[0] -= 1
        if not left[0]:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("drainer.spark.replay.writer.commit", commit)
        with pytest.raises(Killed):
            replay(None, archive, target, stop=BEYOND, options=HERE)


def test_a_range_that_ends_in_the_future_stays_what_it_was_when_it_began(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last chunk would have more rows after the archive has grown, and be taken for written."""
    history = MixedHistory(13)
    archive = archive_of(history, tmp_path, 10)
    history.create(target)
    then = history.rows
    killed_after_chunks(monkeypatch, 1, archive, target)
    writer = ArchiveWriter(tmp_path / "archive", 30_000)
    writer.write(history.items(20))
    writer.close()
    done = replay(None, archive, target, stop=BEYOND, options=HERE)
    assert done.resumed
    assert history.downstream(target) == then
    replay(None, archive, target, start=done.stop_ts + 1, options=HERE)
    assert history.downstream(target) == history.rows


def test_a_job_whose_files_are_gone_does_not_go_on(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its chunks would be other ones. When it is done, the files are not needed."""
    history = MixedHistory(14)
    writer = ArchiveWriter(tmp_path / "archive", 3000)
    writer.write(history.items(60, 20))
    writer.close()
    archive, copy = str(tmp_path / "archive"), tmp_path / "copy"
    shutil.copytree(archive, copy)
    history.create(target)
    killed_after_chunks(monkeypatch, 1, archive, target)
    assert remove_before(tmp_path / "archive", 1) == 1
    with pytest.raises(Corruption, match="segment 0 is gone, where this job began"):
        replay(None, archive, target, stop=BEYOND, options=HERE)
    shutil.copytree(copy, archive, dirs_exist_ok=True)
    replay(None, archive, target, stop=BEYOND, options=HERE)
    assert history.downstream(target) == history.rows
    assert remove_before(tmp_path / "archive", 5) == 5
    assert replay(None, archive, target, stop=BEYOND, options=HERE).was_done


@pytest.mark.parametrize("in_tasks", [False, True])
def test_what_all_lives_of_a_job_have_found_is_told(
    target: Target, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, *, in_tasks: bool
) -> None:
    """Texts are counted with the rows, and what a DDL left out is stored before it counts as done."""
    run(target, "CREATE DATABASE d", "CREATE TABLE d.t (a INT, b VARCHAR(64) CHARACTER SET latin1)")
    version, encoder = TableVersion(KEYLESS, "d", "t", 1), RowEncoder(KEYLESS)
    writer = ArchiveWriter(tmp_path / "archive", 30_000)
    for number, text in enumerate(("日", "é", "本", "x")):
        rows = [encoder.insert((number, text), number)]
        events = TableEvents(version, (INSERT,), rows, 0)
        writer.write(iter([Transaction(FIRST_TS, FIRST_TS + number + 1, (events,), 100)]))
    writer.close()
    archive, options = str(tmp_path / "archive"), replace(IN_TASKS if in_tasks else HERE, chunk_rows=1)
    if in_tasks:
        replay(spark, archive, target, options=options)
    else:
        monkeypatch.setattr("tests.spark.replay.test_entry.HERE", options)
        killed_after_chunks(monkeypatch, 1, archive, target)
        job = job_of(archive, 0, BEYOND, options)
        lack = LackStatus(job_id=7, commit_ts=5, tables=["d.t"], missing=["key k"])
        DdlSteps.of_archive(target, job).runner.missing.append(lack)
    stop = 0 if in_tasks else BEYOND
    for was_done in (in_tasks, True):
        summary = replay(spark, archive, target, stop=stop, options=options)
        assert (summary.was_done, summary.texts) == (was_done, {"d.t.b": 2})
        told = ["texts     d.t.b: 2 values are not in its character set"]
        if not in_tasks:
            told.append("missing   downstream since job 7 (d.t): key k")
        assert lines(summary)[4:] == told


@pytest.mark.parametrize("options", [HERE, IN_TASKS], ids=["here", "in tasks"])
def test_rows_without_a_key_that_go_while_a_column_is_dropped(
    target: Target, tmp_path: Path, spark: SparkSession, options: ReplayOptions
) -> None:
    """TiDB writes their old images without the column; other buckets bring the rows in the same step."""
    run(target, "CREATE DATABASE d", "CREATE TABLE d.t (a INT, b VARCHAR(64))")
    version, whole = TableVersion(KEYLESS, "d", "t", 1), RowEncoder(KEYLESS)
    partly = RowEncoder(replace(KEYLESS, columns=KEYLESS.columns[1:]))
    changes = [(INSERT, whole.insert((number, f"b{number}"), number)) for number in range(60)]
    changes.append((INSERT, whole.insert((None, "b4"), 60)))
    for number in range(60):
        if number % 2 == 0:
            changes.append((DELETE, partly.delete((f"b{number}",), number)))
        elif number % 4 == 1:
            changes.append((UPDATE, partly.update((f"b{number}",), (f"c{number}",), number)))
    writer = RelayLogWriter(tmp_path / "relay", 30_000)
    for ts, (kind, row) in enumerate(changes, FIRST_TS + 1):
        writer.write(iter([Transaction(ts - 1, ts, (TableEvents(version, (kind,), [row], 0),), 100)]))
    drop = Ddl(FIRST_TS + 500, 1, 6, "d", "ALTER TABLE d.t DROP COLUMN a", (("d", "t"),), 2)
    writer.write(iter([drop]))
    writer.close()
    summary = replay(spark, str(tmp_path / "relay"), target, options=replace(options, chunk_rows=5))
    left = ["b4", *(f"{'c' if number % 4 == 1 else 'b'}{number}" for number in range(1, 60, 2))]
    assert [text for (text,) in run(target, "SELECT b FROM d.t ORDER BY b")] == sorted(left)
    assert summary.drift == 0


def test_a_job_is_not_taken_for_another_one(target: Target, tmp_path: Path) -> None:
    history = MixedHistory(6)
    archive = archive_of(history, tmp_path, 50)
    history.create(target)
    replay(None, archive, target, job="one", options=HERE)
    with pytest.raises(Conflict, match="begun for something else: start was"):
        replay(None, archive, target, job="one", start=FIRST_TS + 5, options=HERE)
    with pytest.raises(Conflict, match="chunk_rows was 40, now 41"):
        replay(None, archive, target, job="one", options=replace(HERE, chunk_rows=41))
    for name, text in (("damage", "report"), ("time-zone", "Asia/Tokyo")):
        with pytest.raises(Conflict, match=f"{name.replace('-', '_')} was .*, now '{text}'"):
            replay(None, archive, target, job="one", options=replace(HERE, source={name: text}))


def test_a_job_has_one_driver_at_a_time(target: Target, tmp_path: Path) -> None:
    history = MixedHistory(7)
    archive = archive_of(history, tmp_path, 20)
    history.create(target)
    other = connect(target)
    Job(other, "one").claim()
    with pytest.raises(Conflict, match="being worked on"):
        replay(None, archive, target, job="one", options=HERE)
    other.close()


def test_which_tables_are_written_apart_is_decided_once_a_step(target: Target) -> None:
    """A table that is altered downstream between two lives of a job would change which removals are in which
    chunk, and those in a chunk that is written would be lost."""
    connection = connect(target)
    job = Job(connection, "one")
    job.open(Frozen("a", "pb", 0, 9, 0, (), 5, safe=False))
    assert job.settle({3, 1}) == {1, 3}
    assert job.settle({1, 2, 3}) == {1, 3}
    job.reach(1)
    assert job.settle(set()) == set()
    assert job.settle({2}) == set()
    connection.close()


def test_a_server_that_has_not_begun_a_step_takes_none_of_its_chunks(target: Target) -> None:
    """It went back in time: what comes before them is not there either."""
    connection = connect(target)
    job = Job(connection, "one")
    job.open(Frozen("a", "pb", 0, 9, 0, (), 5, safe=False))
    assert Bucket("one", 0, 0, 3).next_chunk(connection) == 0
    for bucket in (Bucket("one", 1, 0, 3), Bucket("two", 0, 0, 3)):
        with pytest.raises(LessThere, match=r"went back in time: step . of job (one|two) has not begun"):
            bucket.next_chunk(connection)
    with (
        contextlib.closing(Writer(target, Tables(Definitions(), {}), safe=False)) as writer,
        pytest.raises(LessThere, match="chunk 0 of one is not there, and chunk 1 comes next"),
    ):
        writer.write(Bucket("one", 0, 0, 3), 1, Phase.ALL, [])
    job.reach(1)
    assert Bucket("one", 1, 0, 3).next_chunk(connection) == 0
    connection.close()


@pytest.mark.parametrize("checkpoint", [20, 29])
def test_what_a_drainer_wrote_again_into_another_file_is_not_replayed_twice(
    target: Target, tmp_path: Path, checkpoint: int
) -> None:
    """Everything after its checkpoint; where that is the last transaction alone, nothing goes back."""
    history = MixedHistory(16)
    items = list(history.items(40))
    history.create(target)
    for some in (items[:30], items[checkpoint:]):
        writer = RelayLogWriter(tmp_path, 1000)
        writer.write(iter(some))
        writer.close()
    made = plan(None, str(tmp_path), 0, 0, HERE)
    found = [
        record.commit_ts
        for part in made.tasks[0].slices
        for record in read(made.location, part, made.selection, made.definitions)
        if isinstance(record, Changes)
    ]
    assert found == [item.commit_ts for item in items]
    replay(None, str(tmp_path), target, options=HERE)
    assert history.downstream(target) == history.rows


def test_files_in_the_wrong_order_are_no_repetition(target: Target, tmp_path: Path) -> None:
    items = list(MixedHistory(17).items(20))
    for some in (items[10:], items[:10]):
        writer = RelayLogWriter(tmp_path, 1000)
        writer.write(iter(some))
        writer.close()
    with pytest.raises(Corruption, match="was not there before"):
        replay(None, str(tmp_path), target, options=HERE)


def test_dry_run_writes_nothing(target: Target, tmp_path: Path) -> None:
    history = MixedHistory(8)
    archive = archive_of(history, tmp_path, 100, ddl_at=50)
    summary = replay(None, archive, target, dry_run=True, options=HERE)
    assert (summary.dry_run, summary.ddl, summary.changes) == (True, 1, history.changes)
    assert run(target, f"SHOW DATABASES LIKE '{SCHEMA}'") == []


def test_a_table_that_is_missing_downstream_is_named(target: Target, tmp_path: Path) -> None:
    history = MixedHistory(9)
    archive = archive_of(history, tmp_path, 50)
    history.create(target)
    run(target, "DROP TABLE d.t", "SELECT 1")
    with pytest.raises(DownstreamError, match=r"d\.t does not exist downstream"):
        replay(None, archive, target, options=HERE)
    replay(None, archive, target, options=replace(HERE, tables=("d.n", "d.k", "d.u")))


def test_a_ddl_that_is_refused_can_be_left_out(target: Target, tmp_path: Path) -> None:
    """The job goes on where it stopped."""
    history = MixedHistory(12)
    archive = archive_of(history, tmp_path, 100, 50, "ALTER TABLE d.n ADD INDEX f ((LOWER(b)))")
    history.create(target)
    with pytest.raises(DownstreamError, match="LOWER") as refused:
        replay(None, archive, target, options=HERE)
    commit_ts = int(str(refused.value).partition("commit_ts ")[2].partition(" ")[0])
    summary = replay(None, archive, target, options=replace(HERE, skip_ddl=frozenset({commit_ts})))
    assert summary.resumed
    assert history.downstream(target) == history.rows


def test_safe_replay_of_what_is_there_already(target: Target, tmp_path: Path) -> None:
    history = MixedHistory(10)
    archive = archive_of(history, tmp_path, 100)
    history.create(target)
    replay(None, archive, target, job="one", options=HERE)
    run(target, "TRUNCATE TABLE d.k", "SELECT 1")  # a multiset knows no rows that are there already
    replay(None, archive, target, job="two", options=replace(HERE, safe=True))
    assert history.downstream(target) == history.rows


def test_a_value_log_is_refused(target: Target, tmp_path: Path) -> None:
    (tmp_path / "000000.vlog").write_bytes(b"")
    with pytest.raises(ConfigError, match="value log"):
        replay(None, str(tmp_path), target)


def test_a_connection_that_is_lost_again_and_again(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a COMMIT without an answer as well as before one."""
    history = MixedHistory(11)
    archive = archive_of(history, tmp_path)
    history.create(target)
    calls = [0]

    def commit(connection: Connection) -> None:
        calls[0] += 1
        if calls[0] % 3 != 1:
            connection.commit()
        if calls[0] % 3 != 0:
            cut(connection)
            raise ConnectionLost(2013, "Lost connection")

    monkeypatch.setattr("drainer.spark.replay.writer.commit", commit)
    replay(None, archive, target, options=replace(HERE, chunk_rows=100))
    assert history.downstream(target) == history.rows
    assert calls[0] > 9


def test_killed_at_random_moments_it_goes_on_where_it_stopped(mariadb: MariaDbServer, tmp_path: Path) -> None:
    """The driver; for Spark's tasks `python -m tests.spark.support.kills`."""
    assert kills.one(mariadb, tmp_path, 1, spark=False, within_s=0.6) >= 1
    clean(target_of(mariadb))
