"""Schema tracker: every kind of job, history and pending jobs, versions and defaults."""

from __future__ import annotations

from typing import Any

import pytest

from drainer.stream.schema.catalog import TABLE_ID_MAX
from drainer.stream.schema.tracker import SchemaTracker, UnknownTable
from tests.drainer.stream.schema.upstream_jobs import (
    Upstream,
    database,
    table,
    with_default,
)
from tidb_binlog.ddl_job import DdlJob
from tidb_binlog.errors import Corruption


@pytest.fixture
def up() -> Upstream:
    return Upstream()


@pytest.fixture
def tracker(up: Upstream) -> SchemaTracker:
    """Db (1000) with t (1), u (2); other (2000)."""
    found = SchemaTracker()
    found.apply(up.create_database())
    found.apply(up.create_database(2000, "other"))
    found.apply(up.create(table(1, "t")))
    found.apply(up.create(table(2, "u")))
    return found


def columns(tracker: SchemaTracker) -> list[str]:
    return [column.name for column in tracker._catalog.tables[1].current.table().info.columns]


def names(tracker: SchemaTracker, *ids: int) -> list[str]:
    found = [tracker.table_for(table_id, tracker.version) for table_id in ids]
    return [f"{one.schema}.{one.name}" for one in found]


# -- databases ------------------------------------------------------------------------------------------


def test_database_create_alter_drop(up: Upstream, tracker: SchemaTracker) -> None:
    assert tracker.database_collation("DB") == ("utf8mb4", "utf8mb4_bin")
    change = tracker.apply(up.job(26, db=database(1000, "Db", "latin1", "latin1_bin")))
    assert (change.schema, change.tables) == ("Db", (("Db", ""),))
    assert tracker.database_collation("db") == ("latin1", "latin1_bin")
    change = tracker.apply(up.job(2, db=database(1000, "Db")))
    assert (change.schema, change.tables) == ("", (("Db", ""),))
    assert tracker.database_collation("db") is None
    with pytest.raises(UnknownTable, match="table id 1 was dropped at schema version 6"):
        tracker.table_for(1, 9)


def test_altering_a_database_keeps_its_tables_for_the_drop(up: Upstream, tracker: SchemaTracker) -> None:
    tracker.apply(up.job(26, db=database(1000, "Db", "latin1", "latin1_bin")))
    tracker.apply(up.job(2, db=database(1000, "Db")))
    for table_id in (1, 2):
        with pytest.raises(UnknownTable):
            tracker.table_for(table_id, 9)


def test_flashback_database_brings_tables_back_under_its_new_name(
    up: Upstream, tracker: SchemaTracker
) -> None:
    tracker.apply(up.job(2, db=database(1000, "Db")))
    recovered = [{"RecoverTabsInfo": [{"TableInfo": table(1, "t")}, {"TableInfo": table(2, "u")}]}, 1]
    change = tracker.apply(up.job(63, db=database(1000, "again"), raw_args=recovered))
    assert change.tables == (("again", ""),)
    assert names(tracker, 1, 2) == ["again.t", "again.u"]


# -- tables -----------------------------------------------------------------------------------------------


def test_create_and_drop(up: Upstream, tracker: SchemaTracker) -> None:
    assert names(tracker, 1) == ["Db.t"]
    change = tracker.apply(up.job(4, table_id=1, info=table(1, "t")))
    assert (change.schema, change.tables) == ("Db", (("Db", "t"),))
    with pytest.raises(UnknownTable, match="table id 1 was dropped"):
        tracker.table_for(1, 9)
    with pytest.raises(UnknownTable, match="table id 77 is not known"):
        tracker.table_for(77, 9)


def test_create_or_replace_view_takes_the_old_views_place(up: Upstream, tracker: SchemaTracker) -> None:
    tracker.apply(up.job(21, info=table(8, "v", view={})))
    tracker.apply(up.job(21, info=table(9, "v", view={})))
    assert tracker.table_named("db", "V").id == 9  # type: ignore[union-attr]
    with pytest.raises(UnknownTable):
        tracker.table_for(8, 9)


def test_truncate_moves_to_a_new_id_and_remembers_the_old_one(up: Upstream, tracker: SchemaTracker) -> None:
    change = tracker.apply(up.job(11, table_id=1, info=table(5, "t")))
    assert change.tables == (("Db", "t"),)
    assert names(tracker, 5) == ["Db.t"]
    assert tracker.is_truncated(1)
    assert not tracker.is_truncated(5)
    tracker.apply(up.job(25, table_id=1, info=table(1, "t_before")))  # FLASHBACK TABLE t TO t_before
    assert not tracker.is_truncated(1)
    assert names(tracker, 1, 5) == ["Db.t_before", "Db.t"]


def test_batch_create_makes_every_table(up: Upstream, tracker: SchemaTracker) -> None:
    change = tracker.apply(up.job(60, infos=[table(11, "x"), table(12, "y")]))
    assert change.tables == (("Db", "x"), ("Db", "y"))
    assert names(tracker, 11, 12) == ["Db.x", "Db.y"]


def test_identity_lasts_until_the_table_changes(up: Upstream, tracker: SchemaTracker) -> None:
    before, other = tracker.table_for(1, 4), tracker.table_for(2, 4)
    assert tracker.table_for(1, 4) is before
    tracker.apply(up.job(5, info=table(1, "t", "id", "c")))
    assert tracker.table_for(1, 9) is not before
    assert tracker.table_for(2, 9) is other


def test_an_unknown_action_with_a_table_updates_it_and_without_one_changes_nothing(
    up: Upstream, tracker: SchemaTracker
) -> None:
    change = tracker.apply(up.job(999, info=table(1, "t", "id", "new")))
    assert change.tables == (("Db", "t"),)
    assert [column.name for column in tracker.table_for(1, 9).info.columns] == ["id", "new"]
    assert tracker.apply(up.job(998)).tables == ()


def test_partitioning_that_changes_the_id_is_followed(up: Upstream, tracker: SchemaTracker) -> None:
    tracker.apply(up.job(71, table_id=1, info=table(21, "t", partitions=(22, 23))))
    assert names(tracker, 21) == ["Db.t"]
    assert tracker.table_named("Db", "t").id == 21  # type: ignore[union-attr]


def test_internal_tables_are_not_tracked(up: Upstream, tracker: SchemaTracker) -> None:
    tracker.apply(up.create(table(TABLE_ID_MAX + 1, "tidb_ddl_job")))
    assert tracker.table_named("Db", "tidb_ddl_job") is None


def test_a_table_of_an_unknown_database_takes_the_jobs_name(up: Upstream) -> None:
    tracker = SchemaTracker()
    tracker.apply(up.job(3, schema_id=5, schema_name="elder", info=table(1, "t")))
    assert names(tracker, 1) == ["elder.t"]


def test_mysql_exists_without_a_job(up: Upstream) -> None:
    tracker = SchemaTracker()
    tracker.apply(up.create(table(4, "user"), schema_id=1))
    assert names(tracker, 4) == ["mysql.user"]


def test_a_job_without_its_definition_is_corruption(up: Upstream, tracker: SchemaTracker) -> None:
    with pytest.raises(Corruption, match=r"DDL job 5 \(create table\) has no definition"):
        tracker.apply(up.job(3))
    with pytest.raises(Corruption, match="definition without name"):
        tracker.apply(up.job(3, info={"id": 3}))


def test_a_definition_is_read_when_its_rows_come(up: Upstream, tracker: SchemaTracker) -> None:
    """A broken definition in a long history does not stop a drainer that never gets rows of it."""
    tracker.apply(up.create({**table(9, "odd"), "cols": [{"id": 1}]}))
    with pytest.raises(Corruption, match="odd"):
        tracker.table_for(9, 9)


# -- names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "current"),
    [
        ("RENAME TABLE t TO other.t", "Db"),
        ("RENAME TABLE Db.t TO other.t", "Db"),
        ("RENAME TABLE db.t TO t", "other"),
        ("ALTER TABLE Db.t RENAME TO t", "other"),
        ("ALTER TABLE t RENAME other.t", "Db"),
        ("", "Db"),
    ],
)
def test_rename_runs_where_its_unqualified_name_belongs(
    up: Upstream, tracker: SchemaTracker, query: str, current: str
) -> None:
    change = tracker.apply(up.job(14, schema_id=2000, info=table(1, "t"), query=query))
    assert change.schema == current
    assert change.tables == (("Db", "t"), ("other", "t"))
    assert names(tracker, 1) == ["other.t"]
    tracker.apply(up.job(2, db=database(1000, "Db")))
    assert names(tracker, 1) == ["other.t"], "it left its database before that was dropped"


def test_swap_of_two_names(up: Upstream, tracker: SchemaTracker) -> None:
    change = tracker.apply(
        up.job(
            47,
            infos=[table(1, "tmp"), table(2, "t"), table(1, "u")],
            info=table(1, "u"),
            query="RENAME TABLE t TO tmp, u TO t, tmp TO u",
        )
    )
    assert names(tracker, 1, 2) == ["Db.u", "Db.t"]
    assert tracker.table_named("Db", "tmp") is None
    assert tracker.table_named("Db", "t").id == 2  # type: ignore[union-attr]
    assert change.schema == "Db"
    assert change.tables == (("Db", "t"), ("Db", "tmp"), ("Db", "u"))


@pytest.mark.parametrize("raw_args", [None, [[1000, 1000], [2000, 1000], [], [1, 2]]])
def test_several_renames_across_databases(up: Upstream, tracker: SchemaTracker, raw_args: Any) -> None:
    """From the job's arguments where they are kept, else from the statement."""
    change = tracker.apply(
        up.job(
            47,
            schema_id=1000,
            infos=[table(1, "t"), table(2, "v")],
            query="RENAME TABLE t TO OTHER.t, Db.u TO v",
            raw_args=raw_args,
        )
    )
    assert names(tracker, 1, 2) == ["other.t", "Db.v"]
    assert change.schema == "Db"
    assert change.tables == (("Db", "t"), ("other", "t"), ("Db", "u"), ("Db", "v"))


def test_exchange_partition_swaps_ids(up: Upstream, tracker: SchemaTracker) -> None:
    tracker.apply(up.create(table(30, "parts", partitions=(31, 32)), schema_id=2000))
    change = tracker.apply(up.job(42, table_id=1, info=table(30, "parts", partitions=(1, 32))))
    assert names(tracker, 30, 31) == ["other.parts", "Db.t"]
    assert tracker.table_for(31, 9).info.id == 31
    assert change.tables == (("other", "parts"), ("Db", "t"))
    with pytest.raises(UnknownTable):
        tracker.table_for(1, 9)
    tracker.apply(up.job(42, table_id=31, info=table(30, "parts", partitions=(31, 32))))
    assert names(tracker, 1) == ["Db.t"]


# -- versions and defaults -----------------------------------------------------------------------------------


def test_old_rows_get_the_newest_layout_with_the_defaults_of_their_time(
    up: Upstream, tracker: SchemaTracker
) -> None:
    tracker.apply(up.job(5, info=with_default(1, "5", "id", "c")))  # version 5
    tracker.apply(up.job(15, info=with_default(1, "6", "id", "c")))  # version 6
    newest = tracker.table_for(1, 6)
    assert newest.info.columns[1].origin_default == "6"
    old = tracker.table_for(1, 4)
    assert [column.name for column in old.info.columns] == ["id", "c"]
    assert old.info.columns[1].origin_default == "5"
    assert tracker.table_for(1, 5) is old
    assert tracker.table_for(1, 3).info.columns[1].origin_default == "5"


def test_rows_that_lag_by_many_definitions_get_the_defaults_of_their_time(
    up: Upstream, tracker: SchemaTracker
) -> None:
    """However many came since, and with only the defaults kept that changed."""
    tracker.apply(up.job(5, info=with_default(1, "5", "id", "c")))  # version 5
    for _ in range(30):
        tracker.apply(up.job(17, info=with_default(1, "5", "id", "c")))  # up to version 35
    tracker.apply(up.job(15, info=with_default(1, "6", "id", "c")))  # version 36
    for _ in range(30):
        tracker.apply(up.job(17, info=with_default(1, "6", "id", "c")))
    for version, default in ((4, "5"), (20, "5"), (35, "5"), (36, "6"), (60, "6")):
        assert tracker.table_for(1, version).info.columns[1].origin_default == default, version
    assert sum(map(len, tracker._catalog.tables[1].old_defaults.values())) == 1


def test_without_a_difference_old_rows_share_the_newest_version(up: Upstream, tracker: SchemaTracker) -> None:
    tracker.apply(up.job(17, info=table(1, "t", comment="x")))
    assert tracker.table_for(1, 2) is tracker.table_for(1, 9)


# -- once each, rolled back, pending ---------------------------------------------------------------


def test_rolled_back_jobs_change_nothing_but_are_named(up: Upstream, tracker: SchemaTracker) -> None:
    change = tracker.apply(up.job(7, info=table(1, "t", "id", "never"), state=3))
    assert change.tables == (("Db", "t"),)
    assert len(tracker.table_for(1, 9).info.columns) == 1
    assert tracker.version == 4


def test_a_job_is_applied_once(up: Upstream, tracker: SchemaTracker) -> None:
    truncate = up.job(11, table_id=1, info=table(5, "t"))
    tracker.apply(truncate)
    tracker.apply(up.job(5, info=table(5, "t", "id", "c")))
    generation = tracker.generation
    assert tracker.apply(truncate).tables == (("Db", "t"),)
    assert tracker.generation == generation
    assert len(tracker.table_for(5, 9).info.columns) == 2


def test_a_repeated_rename_still_tells_the_old_name(up: Upstream, tracker: SchemaTracker) -> None:
    rename = up.job(14, schema_id=2000, info=table(1, "t"), query="RENAME TABLE t TO other.t")
    first = tracker.apply(rename)
    assert tracker.apply(rename) == first


def history(up: Upstream) -> list[DdlJob]:
    up.create_database()
    up.create(table(1, "t"))
    up.job(5, info=table(1, "t", "id", "a"))
    up.job(7, info=table(1, "t", "id", "x"), state=3)
    up.job(5, info=table(1, "t", "id", "a", "b"))
    up.create(table(2, "u"))
    return up.jobs


def test_history_up_to_a_schema_version_or_a_time(up: Upstream) -> None:
    jobs = history(up)
    assert columns(SchemaTracker.from_history(reversed(jobs), schema_version=3)) == ["id", "a"]
    assert columns(SchemaTracker.from_history(jobs, finished_ts=30)) == ["id", "a"]
    assert columns(SchemaTracker.from_history(jobs, finished_ts=29)) == ["id"]
    assert SchemaTracker.from_history(jobs).version == 0
    assert columns(SchemaTracker.from_history(jobs, schema_version=99)) == ["id", "a", "b"]


def test_a_pending_job_is_applied_when_its_binlog_comes(up: Upstream) -> None:
    jobs = history(up)
    tracker = SchemaTracker.from_history(jobs, schema_version=2)
    tracker.catch_up(25, 2)
    assert columns(tracker) == ["id"]
    tracker.apply(jobs[2])
    assert columns(tracker) == ["id", "a"]
    tracker.catch_up(45, 3)
    assert columns(tracker) == ["id", "a"]


def test_a_pending_job_whose_binlog_cannot_come_any_more_is_applied(up: Upstream) -> None:
    jobs = history(up)
    by_time = SchemaTracker.from_history(jobs, schema_version=2)
    by_time.catch_up(30, 2)
    assert columns(by_time) == ["id"], "its binlog may have just this commit_ts"
    by_time.catch_up(31, 2)
    assert columns(by_time) == ["id", "a"]
    by_version = SchemaTracker.from_history(jobs, schema_version=2)
    by_version.catch_up(12, 5)
    assert columns(by_version) == ["id", "a", "b"]


def test_a_multi_schema_change_is_not_brought_forward_by_its_version(up: Upstream) -> None:
    """Its rows carry the last version before its binlog is committed."""
    up.create_database()
    up.create(table(1, "t"))
    up.job(61, info=table(1, "t", "id", "a"))
    tracker = SchemaTracker.from_history(up.jobs, schema_version=2)
    tracker.catch_up(29, 3)
    assert columns(tracker) == ["id"]


def test_rows_of_a_table_that_only_the_history_knows_resolve(up: Upstream) -> None:
    """The start lies between the commit of CREATE TABLE and its entry in the history."""
    tracker = SchemaTracker.from_history(history(up), finished_ts=59)
    assert tracker.table_for(2, 6).name == "u"


def test_a_history_that_cannot_be_read_is_corruption() -> None:
    with pytest.raises(Corruption):
        SchemaTracker.from_history([b"{}"])
