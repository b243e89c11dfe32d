"""What lanes are told of tables that fit, that do not fit any more, and that are not there."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from drainer.mysql.connection import Target
from drainer.mysql.rows.causality import Spread
from drainer.mysql.rows.column_match import FULL
from drainer.sink.mysql.target_reader import TableReader
from drainer.stream.pull.merged import Merged
from drainer.txn import INSERT, TableVersion
from tests.drainer.support.apply_life import Life, Recording, column, create_job, created, run, stored_ts
from tidb_binlog import binlog
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.errors import Corruption, DownstreamError, Unavailable
from tidb_binlog.rowcodec.encoder import RowEncoder, prewrite_value
from tidb_binlog.table_info import (
    FLAG_NOT_NULL,
    FLAG_PRIMARY,
    LONG,
    VARCHAR,
    Index,
    IndexColumn,
    TableInfo,
)

pytestmark = pytest.mark.integration

ADD_INDEX = 7
A, B = column(1, "a", LONG), column(2, "b", LONG)
NARROW, WIDE = (TableInfo(7, "n", columns) for columns in ((A,), (A, B)))


def test_rows_of_the_past_may_be_of_columns_that_are_gone(target: Target) -> None:
    run(target, "CREATE DATABASE d", "CREATE TABLE d.n (a INT)", "CREATE TABLE d.Fits (a INT, b INT)")
    gone, fits, absent = (
        TableVersion(TableInfo(number, name, WIDE.columns), "d", name, 1)
        for number, name in enumerate(("n", "fits", "absent"), 7)
    )
    reader = TableReader(target, sync_mode=FULL)
    with pytest.raises(DownstreamError, match="b"):
        reader.targets([fits, gone], 4)
    found = reader.targets_of_the_past([gone, fits, absent], 4)
    assert [one.version for one in found] == [gone, fits, absent]
    assert [one.sql.column_list for one in found] == [b"`a`,`b`"] * 3
    assert [one.name for one in found] == [b"`d`.`n`", b"`d`.`Fits`", b"`d`.`absent`"], (
        "what is there is read"
    )
    reader.close()


def test_a_server_that_is_away_is_no_table_of_the_past(target: Target) -> None:
    reader = TableReader(replace(target, port=1), sync_mode=FULL)
    with pytest.raises(Unavailable):
        reader.targets_of_the_past([TableVersion(WIDE, "d", "n", 1)], 4)


KEYED = TableInfo(
    9, "k", WIDE.columns, (Index(1, "PRIMARY", (IndexColumn("a", 0),), unique=True, primary=True),)
)


def test_what_a_collation_takes_for_equal_is_asked_once_and_known_by_its_label(target: Target) -> None:
    run(
        target,
        "CREATE DATABASE d",
        "CREATE TABLE d.k (a VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY, b INT)",
        "CREATE TABLE d.n (a VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY, b INT)",
        "CREATE TABLE d.czech (a VARCHAR(9) COLLATE utf8mb4_czech_ci PRIMARY KEY, b INT)",
    )
    text = column(1, "a", VARCHAR, FLAG_NOT_NULL | FLAG_PRIMARY)
    text = replace(text, type=replace(text.type, charset="utf8mb4", collate="utf8mb4_bin"))
    index = Index(1, "PRIMARY", (IndexColumn("a", 0),), unique=True, primary=True)
    reader = TableReader(target, sync_mode=FULL)
    k, n, czech = (
        reader.targets([TableVersion(TableInfo(7, name, (text, B), (index,)), "d", name, 1)], 4)[0]
        for name in ("k", "n", "czech")
    )
    assert [one.spread for one in (k, n, czech)] == [
        Spread.BY_COLLATED_KEY, Spread.BY_COLLATED_KEY, Spread.BY_TABLE
    ]  # fmt: skip
    assert k.collations[0] is n.collations[0]
    assert k.collations[0] is not None
    label = k.collations[0].label
    another = TableReader(target, sync_mode=FULL)
    found = another.collations([label, ""])
    assert found[0] is not None
    assert (found[0].label, found[1]) == (label, None)
    for other in (f"{label}0", "utf8mb4_czech_ci 1"):
        with pytest.raises(Corruption, match="compares text otherwise") as raised:
            another.collations([other])
        assert "stop it gracefully" in raised.value.hint
    reader.close()
    another.close()


@pytest.mark.parametrize("engine", ["MyISAM", "Aria", "MEMORY"])
def test_tables_without_transactions_are_refused_without_a_key_and_told_of_with_one(
    target: Target, engine: str, caplog: pytest.LogCaptureFixture
) -> None:
    run(
        target,
        "CREATE DATABASE d",
        f"CREATE TABLE d.n (a INT, b INT) ENGINE={engine}",
        f"CREATE TABLE d.k (a INT PRIMARY KEY, b INT) ENGINE={engine}",
    )
    keyless, keyed = TableVersion(WIDE, "d", "n", 1), TableVersion(KEYED, "d", "k", 1)
    reader = TableReader(target, sync_mode=FULL)
    for read in (reader.targets, reader.targets_of_the_past):
        with pytest.raises(DownstreamError, match=f"d.n has no key, and is of {engine}") as raised:
            read([keyless], 4)
        assert "ALTER TABLE `d`.`n` ENGINE=InnoDB" in raised.value.hint
        (found,) = read([keyed], 4)
        assert found.repeats, "a batch of which a part stayed comes again"
    assert sum("no transactions" in record.getMessage() for record in caplog.records) == 1
    run(target, "ALTER TABLE d.n ENGINE=InnoDB", "ALTER TABLE d.k ENGINE=InnoDB")
    assert [one.repeats for one in reader.targets([keyless, keyed], 4)] == [False, False]
    reader.close()


def row(commit_ts: int, info: TableInfo, schema_version: int) -> Merged:
    encoded = RowEncoder(info).insert(dict.fromkeys((one.name for one in info.columns), commit_ts), rowid=1)
    value = prewrite_value(schema_version, [(info.id, [INSERT], [encoded])])
    start_ts = commit_ts - 1
    payload = binlog.join(binlog.prewrite(start_ts, b"k", value), binlog.commit(start_ts, commit_ts, b"k"))
    return Merged(commit_ts, payload)


async def test_rows_come_again_that_were_applied_before_their_column_went(target: Target) -> None:
    """While something waits, a start reads from before it, through a change that the downstream has had."""
    waits = TableInfo(5, "waits", (A,))
    refused = create_job(
        replace(waits, indexes=(Index(1, "u", (IndexColumn("a", 0),), unique=True, primary=False),)),
        job_id=11,
        schema_version=3,
    )
    refused |= {"type": ADD_INDEX, "query": "ALTER TABLE `waits` ADD UNIQUE KEY `u` (`a`)"}
    dropped = create_job(NARROW, job_id=12, schema_version=4)
    dropped |= {"type": ActionType.DROP_COLUMN, "query": "ALTER TABLE `n` DROP COLUMN `b`"}
    jobs = [create_job(waits), create_job(WIDE, job_id=10, schema_version=2), refused, dropped]
    entries = [created(jobs[0], 900), created(jobs[1], 950), row(1000, waits, 2), created(refused, 1100)]
    entries += [row(1200, WIDE, 3), created(dropped, 1300), row(1400, NARROW, 4)]
    recording = Recording(4711, [json.dumps(job).encode() for job in jobs], entries)
    first = Life(Recording(4711, recording.jobs, entries[:3]), target)
    assert await first.run()
    run(target, "INSERT INTO d.waits VALUES (1000)")  # a row of another program: the key is refused
    assert await Life(recording, target).run()
    assert stored_ts(target) < 1100
    assert run(target, "SELECT * FROM d.n ORDER BY a") == [(1200,), (1400,)]
    again = Life(recording, target)
    assert again.sink.start_ts < 1100, "what waits is read again, and what follows it"
    again.recording.entries.append(row(1500, NARROW, 4))
    assert await again.run()
    assert run(target, "SELECT * FROM d.n ORDER BY a") == [(1200,), (1400,), (1500,)]


def test_a_filtered_ddl_leaves_out_the_column_that_it_kept_away(
    target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    run(target, "CREATE DATABASE d", "CREATE TABLE d.n (a INT)")
    reader = TableReader(target, sync_mode=FULL)
    version = TableVersion(TableInfo(7, "n", WIDE.columns), "d", "n", 1)
    with pytest.raises(DownstreamError, match="has no column b"):
        reader.targets([version], 4)
    for _ in range(2):
        (told,) = reader.targets([replace(version, ddl_filtered=True)], 4)
    assert told.sql.column_list == b"`a`"
    (record,) = caplog.records
    assert "binlog-filter-rule" in record.getMessage(), "once"
    reader.close()
