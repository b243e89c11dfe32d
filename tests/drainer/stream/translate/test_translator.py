"""Translator: execution order, ordinals, filters, DDL reasons, and everything that must stop it."""

from __future__ import annotations

from typing import Any

import pytest

from drainer.ddl.policy import NO_DOWNSTREAM_MEANING
from drainer.stream.pull.merged import Merged, Spilled
from drainer.stream.rules.name_pattern import Source
from drainer.stream.rules.row_rule import read_row_rules
from drainer.stream.rules.rule_history import RuleHistory
from drainer.stream.rules.rule_set import Rules
from drainer.stream.rules.table_rules import (
    ColumnRule,
    ColumnRules,
    EventFilter,
    EventRule,
    RouteRule,
    TableFilter,
    TableRouter,
)
from drainer.stream.schema.catalog import TABLE_ID_MAX
from drainer.stream.schema.tracker import SchemaTracker, UnknownTable
from drainer.stream.translate import translator
from drainer.stream.translate.moved_rows import WHOLE_BYTES_MAX
from drainer.stream.translate.row_edit import row_edit
from drainer.stream.translate.translator import Translator
from drainer.txn import DELETE, INSERT, UPDATE, Ddl, TableVersion, Transaction
from tests.drainer.stream.schema.upstream_jobs import Upstream, database, table
from tests.drainer.stream.translate.setting import Setting, ddl, mark_table, rows
from tidb_binlog import binlog
from tidb_binlog.ddl_job import ActionType, JobState
from tidb_binlog.errors import ConfigError, Corruption
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import FLAG_NOT_NULL, FLAG_PRIMARY, TableInfo
from tidb_binlog.wire import binlog_pb2

I, U, D = binlog_pb2.Insert, binlog_pb2.Update, binlog_pb2.DeleteRow  # noqa: E741


def mutation(table_id: int, sequence: list[Any], **rows: Any) -> binlog_pb2.TableMutation:
    """Rows named by kind and number: i0, i1, u0, d0 ..., unless given."""
    return binlog_pb2.TableMutation(
        table_id=table_id,
        sequence=sequence,
        inserted_rows=rows.get("inserts", [b"i%d" % n for n in range(sequence.count(I))]),
        updated_rows=rows.get("updates", [b"u%d" % n for n in range(sequence.count(U))]),
        deleted_rows=rows.get("deletes", [b"d%d" % n for n in range(sequence.count(D))]),
        deleted_ids=rows.get("deleted_ids", []),
        deleted_pks=rows.get("deleted_pks", []),
    )


@pytest.fixture
def s() -> Setting:
    return Setting()


# -- rows -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sequence", "kinds", "order"),
    [
        ([I, I], (INSERT, INSERT), [b"i0", b"i1"]),
        ([U], (UPDATE,), [b"u0"]),
        ([D, D, D], (DELETE, DELETE, DELETE), [b"d0", b"d1", b"d2"]),
        ([U, U, D, I], (UPDATE, UPDATE, DELETE, INSERT), [b"u0", b"u1", b"d0", b"i0"]),
        ([D, I, D, I], (DELETE, INSERT, DELETE, INSERT), [b"d0", b"i0", b"d1", b"i1"]),
        ([I, U, D], (INSERT, UPDATE, DELETE), [b"i0", b"u0", b"d0"]),
        ([D, I] * 50, (DELETE, INSERT) * 50, [b"%c%d" % (kind, n) for n in range(50) for kind in b"di"]),
    ],
)
def test_rows_come_in_execution_order(
    s: Setting, sequence: list[Any], kinds: Any, order: list[bytes]
) -> None:
    for _ in range(2):  # the second time by the kept shape
        (events,) = s.rows(mutation(1, sequence)).tables
        assert (tuple(events.kinds), events.rows) == (kinds, order)


def test_transaction_carries_both_timestamps_and_its_size(s: Setting) -> None:
    merged = rows(mutation(1, [I]), commit_ts=1234)
    item = s.translator.translate(merged)
    assert isinstance(item, Transaction)
    assert (item.start_ts, item.commit_ts, item.size_bytes) == (1000, 1234, len(merged.payload))
    assert (item.last, item.payload) == (True, merged.payload)
    assert (item.tables[0].table.schema, item.tables[0].table.name) == ("Db", "t")


def test_ordinals_count_filtered_rows_too() -> None:
    s = Setting(ignore_table=[("Db", "t")])
    item = s.rows(mutation(4, [I]), mutation(1, [I, I, I]), mutation(2, [U, D]))
    assert [(events.table.name, events.first_ordinal, len(events.rows)) for events in item.tables] == [
        ("u", 4, 2)
    ]


def test_a_filtered_transaction_is_an_empty_one() -> None:
    assert Setting(do_db=["other"]).rows(mutation(1, [I])).tables == ()


def test_system_and_internal_tables_are_left_out() -> None:
    s = Setting(ignore_schemas=["nothing"])
    item = s.rows(mutation(4, [I]), mutation(TABLE_ID_MAX + 7, [I]), mutation(1, [I]))
    assert [(events.table.name, events.first_ordinal) for events in item.tables] == [("t", 2)]


def test_rows_of_a_truncated_id_are_left_out(s: Setting) -> None:
    s.ddl(11, "TRUNCATE TABLE t", table_id=1, info=table(9, "t"))
    item = s.rows(mutation(1, [I]), mutation(9, [I, I]), version=6)
    assert [(events.table.id, events.first_ordinal) for events in item.tables] == [(9, 1)]


def test_the_table_is_the_same_object_until_a_ddl_changes_it(s: Setting) -> None:
    first = s.rows(mutation(1, [I])).tables[0].table
    assert s.rows(mutation(1, [D])).tables[0].table is first
    s.ddl(5, info=table(1, "t", "id", "c"))
    assert s.rows(mutation(1, [D]), version=6).tables[0].table is not first


def test_rows_of_an_older_schema_version_read_with_the_newest_layout(s: Setting) -> None:
    s.ddl(5, info=table(1, "t", "id", "c"))
    for version in (3, 6, 99):
        transaction = s.rows(mutation(1, [I]), version=version)
        (events,) = transaction.tables
        assert transaction.schema_version == version
        assert [column.name for column in events.table.info.columns] == ["id", "c"]


def test_rows_of_an_older_schema_version_take_its_defaults_whatever_came_before(s: Setting) -> None:
    for default in ("1", "2"):  # versions 6 and 7
        made = table(1, "t", "id", "c")
        made["cols"][1]["origin_default"] = default
        s.ddl(5, info=made)
    for version, default in ((7, "2"), (6, "1"), (7, "2"), (5, "1"), (8, "2")):
        (events,) = s.rows(mutation(1, [I]), version=version).tables
        assert events.table.info.columns[1].origin_default == default


def test_an_empty_prewrite_value_is_an_empty_transaction(s: Setting) -> None:
    message = binlog_pb2.Binlog(tp=binlog_pb2.Commit, start_ts=1, commit_ts=2, prewrite_value=b"")
    item = s.translator.translate(Merged(2, message.SerializeToString()))
    assert isinstance(item, Transaction)
    assert item.tables == ()


# -- what stops it ----------------------------------------------------------------------------------------


def test_unknown_table_names_id_place_and_the_next_command(s: Setting) -> None:
    with pytest.raises(UnknownTable, match=r"commit_ts 1001 .* table id 77 is not known") as caught:
        s.rows(mutation(77, [I]))
    assert "ADMIN SHOW DDL JOBS" in caught.value.hint


def test_rows_of_a_dropped_table_stop(s: Setting) -> None:
    s.ddl(4, "DROP TABLE t", table_id=1, info=table(1, "t"))
    with pytest.raises(UnknownTable, match="table id 1 was dropped at schema version 6"):
        s.rows(mutation(1, [I]), version=6)


def test_commit_without_prewrite_stops(s: Setting) -> None:
    with pytest.raises(Corruption, match="commit without prewrite: binlog with start_ts 5 and commit_ts 6"):
        s.translator.translate(Merged(6, binlog.commit(5, 6, b"k")))


@pytest.mark.parametrize(
    "broken",
    [
        mutation(1, [I, I], inserts=[b"only one"]),
        mutation(1, [I], inserts=[b"one", b"too many"]),
        mutation(1, [I], updates=[b"unannounced"]),
        mutation(1, [I, U], inserts=[b"a", b"b"], updates=[]),
        mutation(1, [D], deletes=[]),
        mutation(1, [], inserts=[b"a"]),
    ],
)
def test_a_sequence_that_does_not_fit_its_rows_stops(s: Setting, broken: binlog_pb2.TableMutation) -> None:
    with pytest.raises(Corruption, match=r"commit_ts 1001, table id 1: its sequence"):
        s.rows(broken)


@pytest.mark.parametrize(
    "obsolete",
    [
        mutation(1, [binlog_pb2.DeleteID], deleted_ids=[4]),
        mutation(1, [binlog_pb2.DeletePK], deleted_pks=[b"k"]),
        mutation(1, [I], deleted_ids=[4]),
        mutation(1, [I, binlog_pb2.DeleteID]),
    ],
)
def test_obsolete_mutations_stop(s: Setting, obsolete: binlog_pb2.TableMutation) -> None:
    with pytest.raises(Corruption, match="obsolete mutation type"):
        s.rows(obsolete)


@pytest.mark.parametrize("tp", [binlog_pb2.PreDDL, binlog_pb2.PostDDL])
def test_obsolete_binlog_types_stop(s: Setting, tp: Any) -> None:
    message = binlog_pb2.Binlog(tp=tp, start_ts=5, commit_ts=6, prewrite_value=b"")
    with pytest.raises(Corruption, match="commit_ts 6 is of obsolete type"):
        s.translator.translate(Merged(6, message.SerializeToString()))
    message.tp = binlog_pb2.Rollback  # the last one that is in use
    assert isinstance(s.translator.translate(Merged(6, message.SerializeToString())), Transaction)


def test_undecodable_payloads_and_rows_stop(s: Setting) -> None:
    with pytest.raises(Corruption, match=r"commit_ts 9 \(2 bytes\) cannot be decoded"):
        s.translator.translate(Merged(9, b"\xff\xff"))
    whole = rows(mutation(1, [I] * 20)).payload
    for cut in range(1, len(whole)):  # truncated anywhere: an error, or what was cut off was optional
        try:
            s.translator.translate(Merged(1001, whole[:cut]))
        except Corruption:
            pass
    torn = binlog_pb2.Binlog(tp=binlog_pb2.Commit, start_ts=5, commit_ts=6, prewrite_value=b"\x12\x7f\x08")
    with pytest.raises(Corruption, match="rows of the binlog with commit_ts 6 cannot be decoded"):
        s.translator.translate(Merged(6, torn.SerializeToString()))


@pytest.mark.parametrize(
    ("rows_version", "column_version", "early"), [(6, 6, True), (7, 6, True), (5, 6, False), (7, 0, False)]
)
@pytest.mark.parametrize("large", [False, True])
def test_rows_that_had_an_added_column_before_its_binlog_are_told(
    s: Setting, rows_version: int, column_version: int, early: bool, large: bool
) -> None:
    """A multi-schema change adds its columns before it drops others, and its binlog comes at its end."""
    if large:
        list(s.translator.pieces(spilled(mutation(1, [I]), version=rows_version)))
    else:
        s.rows(mutation(1, [I]), version=rows_version)
    s.rows(mutation(1, [I]), version=5)  # of a transaction that began before
    s.rows(mutation(2, [I]), version=99)
    sub_jobs = [{"type": 5, "schema_version": column_version}, {"type": 6, "schema_version": 9}]
    item = s.ddl(61, info=table(1, "t", "id", "c"), sub_jobs=sub_jobs)
    assert bool(item.early) == early
    assert not s.ddl(61, info=table(1, "t", "id", "c"), sub_jobs=sub_jobs).early


@pytest.mark.parametrize(
    ("start_ts", "column_version", "early"), [(99, 6, True), (100, 6, False), (99, 0, False)]
)
def test_rows_that_an_earlier_life_had_may_have_come_too_early(
    s: Setting, start_ts: int, column_version: int, early: bool
) -> None:
    s.translator = Translator(s.tracker, Rules(), after_ts=100)
    sub_jobs = [{"type": 5, "schema_version": column_version}, {"type": 6, "schema_version": 9}]
    assert bool(s.ddl(61, info=table(1, "t", "id"), sub_jobs=sub_jobs, start_ts=start_ts).early) == early


@pytest.mark.parametrize(
    ("rows_version", "start_ts", "kind", "early"),
    [
        (8, 2000, 1, True),
        (7, 2000, 1, False),
        (7, 3000, 1, True),  # or of another DDL since it began
        (6, 3000, 1, False),
        (9, 2000, 2, False),
    ],
)
def test_rows_that_are_in_the_next_range_before_the_binlog_of_drop_partition_are_told(
    s: Setting, rows_version: int, start_ts: int, kind: int, early: bool
) -> None:
    """TiDB makes three versions of its schema of it: rows of the range go into the next from the first on."""
    s.ddl(17, info=table(2, "u"))  # commit_ts 2001, version 6
    s.rows(mutation(1, [I]), version=rows_version)
    s.up.count += 3
    item = s.ddl(20, info=table(1, "t", partition={"type": kind}), start_ts=start_ts)
    assert (item.schema_version, bool(item.early)) == (10, early)


@pytest.mark.parametrize(("rows_version", "early"), [(6, False), (7, True)])
def test_a_release_that_makes_fewer_versions_of_drop_partition_gives_no_false_alarm(
    s: Setting, rows_version: int, early: bool
) -> None:
    s.ddl(17, info=table(2, "u"))  # version 6
    s.rows(mutation(1, [I]), version=rows_version)
    assert bool(s.ddl(20, info=table(1, "t", partition={"type": 1}), start_ts=3000).early) == early


@pytest.mark.parametrize(
    ("late", "lives", "left_out"), [(True, 1, True), (False, 1, False), (False, 2, True)]
)
def test_rows_that_came_after_a_truncate_are_told_when_the_table_comes_back(
    s: Setting, late: bool, lives: int, left_out: bool
) -> None:
    """A TiDB that had not learned of it yet put them where FLASHBACK finds them."""
    s.ddl(11, "TRUNCATE TABLE t", table_id=1, info=table(9, "t"))
    if late:
        s.rows(mutation(1, [I]), version=5)
    if lives == 2:  # of an earlier one it is not known
        s.translator = Translator(s.tracker, Rules(), after_ts=100)
    assert not s.ddl(11, "TRUNCATE TABLE t", table_id=9, info=table(10, "t")).early
    assert bool(s.ddl(25, "FLASHBACK TABLE t TO u", table_id=1, info=table(1, "u")).early) == left_out
    assert not s.ddl(11, "TRUNCATE TABLE u", table_id=1, info=table(12, "u")).early


def test_a_table_that_comes_back_with_partitions_of_before_its_drop_is_told(s: Setting) -> None:
    """A DROP that waits for a TRUNCATE PARTITION has a table as it was before that, and so has FLASHBACK."""

    def parted(name: str, *ids: int) -> dict[str, Any]:
        return table(5, name, partition={"type": 1, "definitions": [{"id": number} for number in ids]})

    for back, told in ((9, True), (8, False)):
        s.ddl(3, "CREATE TABLE p ..", table_id=5, info=parted("p", 7, 9))
        assert not s.ddl(21, "ALTER TABLE p TRUNCATE PARTITION p1", table_id=5, info=parted("p", 7, 8)).early
        assert not s.ddl(4, "DROP TABLE p", table_id=5).early
        assert bool(s.ddl(25, "FLASHBACK TABLE p TO q", table_id=5, info=parted("q", 7, back)).early) == told
        assert not s.ddl(4, "DROP TABLE q", table_id=5).early


def test_a_ddl_without_its_job_stops(s: Setting) -> None:
    job = s.up.job(5, info=table(1, "t"))
    with pytest.raises(Corruption, match=f"commit_ts 2001 came without its job {job.id}"):
        s.translator.translate(ddl(job)._replace(job=None))


# -- DDL -----------------------------------------------------------------------------------------


def test_a_ddl_carries_statement_database_names_and_job(s: Setting) -> None:
    item = s.ddl(5, "ALTER TABLE `t` ADD COLUMN `c` INT;", info=table(1, "t", "id", "c"))
    assert item.query == "ALTER TABLE `t` ADD COLUMN `c` INT;"
    assert (item.schema, item.tables, item.action, item.skip) == ("Db", (("Db", "t"),), 5, "")
    assert (item.commit_ts, item.job_id, item.schema_version) == (2001, 6, 6)
    assert item.job is not None
    assert item.job["id"] == 6


def test_the_statement_is_passed_on_byte_for_byte(s: Setting) -> None:
    item = s.ddl(17, "ALTER TABLE `t` COMMENT = 'x; -- 表';", info=table(1, "t"))
    assert item.query == "ALTER TABLE `t` COMMENT = 'x; -- 表';"


def test_rolled_back_jobs_are_skipped(s: Setting) -> None:
    item = s.ddl(7, info=table(1, "t", "id", "x"), state=3)
    assert "rolled back" in item.skip
    assert item.schema_version == 5
    assert len(s.rows(mutation(1, [I])).tables[0].table.info.columns) == 1


@pytest.mark.parametrize(
    "state", sorted(set(JobState) - {JobState.DONE, JobState.SYNCED, JobState.ROLLBACK_DONE})
)
def test_a_job_that_cannot_have_a_committed_binlog_stops_and_both_are_named(s: Setting, state: int) -> None:
    with pytest.raises(
        Corruption, match=rf"commit_ts 2001 .*job 6 .*add column.* is {JobState(state).words}"
    ):
        s.ddl(5, info=table(1, "t", "id", "x"), state=state)
    assert len(s.rows(mutation(1, [I])).tables[0].table.info.columns) == 1, "nothing was taken of it"


def test_delete_only_records_are_skipped_without_a_job(s: Setting) -> None:
    job = s.up.job(6, info=table(1, "t"))
    item = s.translator.translate(ddl(job, state=1)._replace(job=None))
    assert isinstance(item, Ddl)
    assert item.skip.startswith("delete-only state")
    assert (item.schema_version, item.half_done) == (5, True)


@pytest.mark.parametrize("action", sorted(NO_DOWNSTREAM_MEANING))
def test_actions_without_meaning_downstream_are_left_to_the_policy(s: Setting, action: int) -> None:
    if action == 55:  # of a database
        assert not s.ddl(action, db=database(1000, "Db")).skip
        return
    item = s.ddl(action, info=table(1, "t", "id", "c"))
    assert not item.skip
    assert len(s.rows(mutation(1, [I]), version=6).tables[0].table.info.columns) == 2, "the tracker saw it"


def test_system_databases_are_skipped() -> None:
    s = Setting(ignore_schemas=["nothing"])
    assert s.ddl(5, schema_id=1, info=table(4, "user", "id", "c")).skip == "system schema"
    assert s.ddl(1, "CREATE DATABASE sys", schema_id=6, db=database(6, "sys")).skip == "system schema"


def test_internal_tables_are_skipped(s: Setting) -> None:
    assert s.ddl(3, info=table(TABLE_ID_MAX + 1, "x")).skip == "internal table of the upstream"


def test_filtered_ddl_is_skipped_but_tracked() -> None:
    s = Setting(ignore_table=[("db", "t")])
    assert s.ddl(5, info=table(1, "t", "id", "c")).skip == "filtered"
    s.ddl(14, "RENAME TABLE t TO other.v", schema_id=2000, info=table(1, "v", "id", "c"))
    (events,) = s.rows(mutation(1, [I]), version=7).tables
    assert (events.table.schema, events.table.name, len(events.table.info.columns)) == ("other", "v", 2)


def test_database_ddl_is_filtered_by_database() -> None:
    assert Setting(do_db=["db"]).ddl(1, schema_id=9, db=database(9, "x")).skip == "filtered"
    assert Setting(do_db=["x"]).ddl(1, schema_id=9, db=database(9, "x")).skip == ""


def test_an_unknown_action_is_passed_on(s: Setting) -> None:
    item = s.ddl(999, "ALTER TABLE t NEW THING", info=table(1, "t", "id", "c"))
    assert (item.skip, item.action, item.tables) == ("", 999, (("Db", "t"),))
    without = s.ddl(998, "NEW STATEMENT")
    assert (without.skip, without.tables) == ("", ())


def test_a_ddl_brings_no_pending_job_forward_that_is_still_to_come() -> None:
    up = Upstream()
    jobs = [up.create_database(), up.create(table(1, "t")), up.job(5, info=table(1, "t", "id", "a"))]
    tracker = SchemaTracker.from_history(jobs, schema_version=1)
    translator = Translator(tracker, TableFilter())
    translator.translate(ddl(jobs[1], "CREATE TABLE t (id INT)", commit_ts=18))
    before = translator.translate(rows(mutation(1, [I]), commit_ts=22, version=2))
    assert isinstance(before, Transaction)
    assert len(before.tables[0].table.info.columns) == 1
    translator.translate(ddl(jobs[2], commit_ts=28))
    after = translator.translate(rows(mutation(1, [I]), commit_ts=32, version=3))
    assert isinstance(after, Transaction)
    assert len(after.tables[0].table.info.columns) == 2
    later = up.job(5, info=table(1, "t", "id", "a", "b"))
    translator = Translator(SchemaTracker.from_history(jobs, schema_version=2), TableFilter())
    item = translator.translate(ddl(later, commit_ts=38))
    assert isinstance(item, Ddl)
    assert [len(one.document["cols"]) for one in item.before] == [2], "of a job before it no binlog came"
    translator = Translator(SchemaTracker.from_history(jobs, schema_version=1), TableFilter())
    piece = next(translator.pieces(spilled(mutation(1, [I]), commit_ts=32)))
    assert len(piece.tables[0].table.info.columns) == 2, "a large one brings it to itself, too"


# -- rules --------------------------------------------------------------------------------------------------


def routed(*pairs: tuple[str, str, str, str], **more: Any) -> Rules:
    made = (RouteRule(f"rule {n}", Source.of(*pair[:2]), *pair[2:]) for n, pair in enumerate(pairs))
    return Rules(router=TableRouter(made), **more)


def ignoring(*events: str, table: str = "t") -> Rules:
    return Rules(events=EventFilter([(Source.of("db", table), EventRule.of("r", events, ()))]))


def runs(item: Transaction) -> list[tuple[str, tuple[int, ...], list[bytes], int]]:
    return [(one.table.name, tuple(one.kinds), one.rows, one.first_ordinal) for one in item.tables]


def test_ignored_row_kinds_are_taken_out_one_by_one_and_ordinals_stay() -> None:
    item = Setting(rules=ignoring("delete")).rows(mutation(1, [I, D, D, U, I, D]), mutation(2, [D]))
    assert runs(item) == [
        ("t", (INSERT,), [b"i0"], 0),
        ("t", (UPDATE, INSERT), [b"u0", b"i1"], 3),
        ("u", (DELETE,), [b"d0"], 6),
    ]


def test_what_replicates_now_and_whose_statements_run() -> None:
    s = Setting(rules=ignoring("alter table"))
    (t, u) = (s.translator.replicated(table_id) for table_id in (1, 2))
    assert t is not None
    assert u is not None
    assert (t.name, u.name, s.translator.replicated(77), s.translator.replicated(4)) == ("t", "u", None, None)
    drop = (ActionType.DROP_COLUMN, "ALTER TABLE t DROP COLUMN c")
    assert [s.translator.runs(of, *drop) for of in (t, u)] == [False, True]
    assert not Setting(rules=Rules(sync_ddl=False)).translator.runs(u, *drop)


def test_when_nothing_is_left_the_transaction_is_empty_and_in_its_place() -> None:
    assert Setting(rules=ignoring("all dml")).rows(mutation(1, [I, U, D])).tables == ()
    assert Setting(rules=ignoring("insert")).rows(mutation(1, [I])).tables == ()


def test_rows_taken_out_are_still_checked() -> None:
    with pytest.raises(Corruption, match="its sequence"):
        Setting(rules=ignoring("delete")).rows(mutation(1, [D], deletes=[]))


def test_routed_tables_carry_their_target_and_keep_their_identity() -> None:
    s = Setting(rules=routed(("db", "t", "shop", "orders")))
    first, other = (one.table for one in s.rows(mutation(1, [I]), mutation(2, [I])).tables)
    assert (first.target, first.downstream, first.schema) == (("shop", "orders"), ("shop", "orders"), "Db")
    assert (other.target, other.downstream) == (("Db", "u"), ("Db", "u")), "others may be routed there"
    for number in range(3):  # DDL of another table, without rows in between
        s.ddl(5, info=table(2, "u", "id", f"c{number}"))
        s.ddl(5, info=table(2, "u", "id", f"d{number}"))
    assert s.rows(mutation(1, [D]), version=99).tables[0].table is first
    s.ddl(5, info=table(1, "t", "id", "c"))
    changed = s.rows(mutation(1, [D]), version=99).tables[0].table
    assert (changed is first, changed.target) == (False, ("shop", "orders"))
    assert s.translator.route("Db", "t") == ("shop", "orders")


def test_columns_left_out_go_along_with_the_table() -> None:
    rule = ColumnRule.of("`column-rule` 1", "db", "t", ["c"], keep=False)
    s = Setting(rules=Rules(columns=ColumnRules([rule])))
    assert s.rows(mutation(1, [I])).tables[0].table.left_out == frozenset()
    s.ddl(5, info=table(1, "t", "id", "c"))
    (events,) = s.rows(mutation(1, [I]), version=6).tables
    assert events.table.left_out == {2}
    assert events.table.target is None


def row_rules(**rule: Any) -> Rules:
    return Rules(rows=read_row_rules([{"db-name": "db", "tbl-name": "t", **rule}]))


def test_row_rules_edit_rows_and_say_that_some_are_withheld() -> None:
    s = Setting(rules=row_rules(where="id > 1"))
    encoder = RowEncoder(TableInfo.from_json(table(1, "t")))
    low, high = (encoder.insert({"id": number}, 7) for number in (1, 2))
    leaves, enters = (encoder.update(*({"id": number} for number in pair), 7) for pair in ((2, 1), (1, 2)))
    item = s.rows(mutation(1, [I, U, I, U], inserts=[low, high], updates=[leaves, enters]), mutation(2, [I]))
    first, other = item.tables
    assert (first.kinds, first.rows, first.first_ordinal) == (
        [DELETE, INSERT, INSERT],
        [encoder.delete({"id": 2}, 7), high, high],
        1,
    )
    assert (other.first_ordinal, other.table.partial, first.table.partial) == (4, False, True)


def test_pieces_of_a_large_transaction_are_edited_alike() -> None:
    s = Setting(rules=row_rules(where="id > 1"))
    encoder = RowEncoder(TableInfo.from_json(table(1, "t")))
    inserts = [encoder.insert({"id": number % 3}, 7) for number in range(9000)]
    mutated = mutation(1, [I] * len(inserts), inserts=inserts)
    whole = s.rows(mutated)
    pieces = list(s.translator.pieces(spilled(mutated)))
    assert len(pieces) > 1
    assert pieces[-1].last
    found = [
        (events.first_ordinal + place, row)
        for piece in pieces
        for events in piece.tables
        for place, row in enumerate(events.rows)
    ]
    assert found == [(events.first_ordinal, events.rows[0]) for events in whole.tables]
    assert len(found) == 3000


def test_masks_alone_withhold_nothing() -> None:
    s = Setting()
    s.ddl(5, info=table(1, "t", "id", "c"))
    s.translator.replace_rules(row_rules(mask={"c": "null"}))
    info = TableInfo.from_json(table(1, "t", "id", "c"))
    encoder = RowEncoder(info)
    (events,) = s.rows(mutation(1, [D], deletes=[encoder.delete({"id": 1, "c": 2}, 7)]), version=6).tables
    assert events.rows == [encoder.delete({"id": 1, "c": None}, 7)]
    assert not events.table.partial


def test_a_rule_for_a_column_that_a_table_lacks_is_refused_where_the_table_is_known() -> None:
    missing = r"`row-rule` 1: where names column c, which Db\.t does not have"
    with pytest.raises(ConfigError, match=missing):
        Setting(rules=row_rules(where="c = 1"))
    s = Setting()
    with pytest.raises(ConfigError, match=missing):
        s.translator.replace_rules(row_rules(where="c = 1"))
    assert s.rows(mutation(1, [I])).tables[0].rows == [b"i0"]


def test_a_ddl_that_takes_a_column_of_a_rule_stops_the_rows_after_it() -> None:
    s = Setting()
    s.ddl(5, info=table(1, "t", "id", "c"))
    s.translator.replace_rules(row_rules(where="c = 1"))
    s.ddl(5, info=table(1, "t", "id", "d"))
    with pytest.raises(
        ConfigError, match=r"`row-rule` 1: where names column c, which Db\.t does not have"
    ) as raised:
        s.rows(mutation(1, [I]), version=99)
    assert "it has id, d" in raised.value.hint
    assert s.rows(mutation(2, [I]), version=99).tables[0].rows == [b"i0"], "other tables go on"
    s.translator.replace_rules(row_rules(where="d = 1"))
    assert s.rows(mutation(2, [I]), version=99).tables


def test_row_rules_are_not_about_mark_tables_or_system_tables() -> None:
    rule = {"db-name": "~.*", "tbl-name": "~.*", "where": "zz = 1"}
    rules = Rules(rows=read_row_rules([rule]))
    for schema, name in (("retl", "_drainer_repl_mark"), ("mysql", "user")):
        assert row_edit(rules, TableVersion(mark_table(), schema, name, 1)) is None
    with pytest.raises(ConfigError, match="names column zz"):
        row_edit(rules, TableVersion(mark_table(), "db", "marks", 1))


def test_rules_are_replaced_from_the_next_binlog_on() -> None:
    s = Setting()
    assert len(s.rows(mutation(1, [I])).tables) == 1
    s.translator.replace_rules(Rules(names=TableFilter(ignore_table=[("db", "t")])))
    assert s.rows(mutation(1, [I])).tables == ()
    s.translator.replace_rules(routed(("db", "", "shop", "")))
    assert s.rows(mutation(1, [I])).tables[0].table.downstream == ("shop", "t")


def test_eras_of_an_earlier_life_are_where_they_were_until_other_rules_are_taken() -> None:
    first, *later = (routed(("db", "t", "shop", name)) for name in ("a", "b", "c"))
    history = RuleHistory.since(0, first)
    for after_ts, rules in zip((10, 20), later, strict=True):
        history = history.followed_by(after_ts, rules)

    def target_at(commit_ts: int, *, large: bool = False) -> tuple[str, str]:
        of_t = mutation(1, [I])
        item = (
            next(s.translator.pieces(spilled(of_t, commit_ts=commit_ts)))
            if large
            else s.translator.translate(rows(of_t, commit_ts=commit_ts, version=9))
        )
        assert isinstance(item, Transaction)
        return item.tables[0].table.downstream

    for large in (False, True):
        s = Setting()
        s.translator.replay(history)
        for commit_ts in (5, 10, 11, 15, 20, 21, 30):
            expected = history.at(commit_ts).router.route("db", "t")
            assert target_at(commit_ts, large=large) == s.translator.route("db", "t") == expected
    s.translator.replay(history)
    s.translator.take_rules(later[0])
    assert target_at(30) == ("shop", "b")


def test_rules_that_contradict_each_other_for_a_table_are_refused_and_the_old_ones_stay() -> None:
    s = Setting(rules=routed(("db", "t", "shop", "orders")))
    with pytest.raises(ConfigError, match=r"Db\.u is routed .*rule 0 .* and rule 1"):
        s.translator.replace_rules(routed(("db", "?", "a", ""), ("*", "u", "b", "")))
    assert s.rows(mutation(1, [I])).tables[0].table.downstream == ("shop", "orders")
    with pytest.raises(ConfigError, match=r"Db\.u"):
        Setting(rules=routed(("db", "?", "a", ""), ("*", "u", "b", "")))
    rule = ColumnRule.of("rule", "db", "t", ["c"], keep=False)
    with pytest.raises(ConfigError, match="two column rules"):
        s.translator.replace_rules(Rules(columns=ColumnRules([rule, rule])))


def test_passed_over_transactions_are_empty_whatever_is_in_them() -> None:
    s = Setting(rules=Rules(passed_over=frozenset({1001, 2001, 9})))
    assert s.rows(mutation(1, [I])).tables == ()
    assert s.rows(mutation(77, [I])).tables == ()
    broken = s.translator.translate(Merged(9, b"\xff\xff"))
    assert isinstance(broken, Transaction)
    assert (broken.commit_ts, broken.tables) == (9, ())
    with pytest.raises(UnknownTable):
        s.translator.translate(rows(mutation(77, [I]), commit_ts=1002))


def test_a_ddl_passed_over_still_counts_for_the_schema() -> None:
    s = Setting(rules=Rules(passed_over=frozenset({2001})))
    assert s.ddl(5, info=table(1, "t", "id", "c")).skip == "listed in ignore-txn-commit-ts"
    assert len(s.rows(mutation(1, [I]), version=6).tables[0].table.info.columns) == 2
    without_job = s.translator.translate(ddl(s.up.job(5, info=table(1, "t")))._replace(job=None))
    assert isinstance(without_job, Ddl)
    assert without_job.skip == "listed in ignore-txn-commit-ts"


def test_without_sync_ddl_the_schema_is_still_tracked() -> None:
    s = Setting(rules=Rules(sync_ddl=False))
    item = s.ddl(5, info=table(1, "t", "id", "c"))
    assert (item.skip, item.tables) == ("sync-ddl is false", (("Db", "t"),))
    assert len(s.rows(mutation(1, [I]), version=6).tables[0].table.info.columns) == 2


def test_verdicts_of_the_ddl_filter_are_in_the_ddl() -> None:
    s = Setting(rules=Rules(names=TableFilter(ignore_table=[("db", "t")])))
    item = s.ddl(14, "RENAME TABLE t TO v", info=table(1, "v"))
    assert "its rows so far are not downstream" in item.refused
    assert not item.skip
    s = Setting(rules=routed(("db", "*", "shop", "")))
    item = s.ddl(14, "RENAME TABLE t TO v", info=table(1, "v"))
    assert item.instead == ("RENAME TABLE `shop`.`t` TO `shop`.`v`",)
    batch = s.ddl(60, "", infos=[table(11, "x"), table(12, "y")])
    assert (batch.skip, batch.tables) == ("", (("Db", "x"), ("Db", "y")))


def test_a_ddl_says_which_other_tables_it_would_touch_and_of_which_it_may_speak() -> None:
    s = Setting(rules=routed(("db", "?", "shop", "all"), disjoint_shards=True))
    item = s.ddl(5, info=table(1, "t", "id", "c"))
    assert (item.targets, [one.name for one in item.shared], item.apart) == ((("shop", "all"),), ["u"], True)
    assert "Db.u" in s.ddl(4, "DROP TABLE t", table_id=1).refused, "its rows would go as well"
    filtered = Setting(
        rules=routed(("db", "?", "shop", "all"), names=TableFilter(ignore_table=[("db", "t")]))
    )
    item = filtered.ddl(5, info=table(1, "t", "id", "c"))
    assert (item.skip, item.targets, item.shared) == ("filtered", (), ())
    assert item.unread == {("Db", "t")}
    s = Setting(do_table=[("db", "t")])
    item = s.ddl(2, "DROP DATABASE Db", db=database(1000, "Db"))
    assert ([one.name for one in item.before], item.unread) == (["t"], frozenset())


# -- marks --------------------------------------------------------------------------------------------------

OURS, THEIRS = 7, 8


class Marked(Setting):
    """With the mark table (90) of two-way replication, and rules on top."""

    def __init__(self, **more: Any) -> None:
        super().__init__(rules=Rules(channel_id=OURS, own_schemas=frozenset({"tidb_binlog"}), **more))
        self.info = mark_table()
        self.tracker.apply(self.up.create_database(3000, "retl"))
        self.tracker.apply(self.up.create(self.info.to_json(), schema_id=3000))
        self.tracker.apply(self.up.create_database(4000, "tidb_binlog"))
        self.tracker.apply(self.up.create(table(91, "lanes"), schema_id=4000))

    def mark(self, kind: int, channel: int) -> binlog_pb2.TableMutation:
        encoder, row = RowEncoder(self.info), (1, channel, 1, "")
        if kind == I:
            return mutation(90, [I], inserts=[encoder.insert(row)])
        if kind == U:
            return mutation(90, [U], updates=[encoder.update(row, (1, channel, 2, ""))])
        return mutation(90, [D], deletes=[encoder.delete(row)])


@pytest.mark.parametrize("kind", [I, U, D])
@pytest.mark.parametrize("names", [{}, {"ignore_schemas": ["retl"]}])
def test_a_transaction_with_our_mark_is_dropped_whole(kind: int, names: dict[str, Any]) -> None:
    s = Marked(names=TableFilter(**names))
    for mutations in ([s.mark(kind, OURS), mutation(1, [I])], [mutation(1, [I]), s.mark(kind, OURS)]):
        item = s.rows(*mutations, version=9)
        assert (item.tables, item.commit_ts) == ((), 1001)
    assert s.translator.looped == 2


def test_marks_of_other_channels_are_rows_like_others_unless_filtered() -> None:
    s = Marked()
    item = s.rows(mutation(1, [I]), s.mark(U, THEIRS), version=9)
    assert [one.table.name for one in item.tables] == ["t", "_drainer_repl_mark"]
    s = Marked(names=TableFilter(ignore_schemas=["retl"]))
    assert [one.table.name for one in s.rows(mutation(1, [I]), s.mark(U, THEIRS), version=9).tables] == ["t"]
    assert s.translator.looped == 0


def test_without_loopback_control_marks_are_rows_like_others() -> None:
    s = Marked()
    s.translator.replace_rules(Rules())
    assert len(s.rows(mutation(1, [I]), s.mark(U, OURS), version=9).tables) == 2


def test_checkpoints_of_drainers_do_not_replicate_with_loopback_control() -> None:
    s = Marked()
    assert s.rows(mutation(91, [U]), mutation(1, [I]), version=9).tables[0].table.name == "t"
    assert s.ddl(5, schema_id=4000, info=table(91, "lanes", "id", "c")).skip == "filtered"


# -- large transactions -----------------------------------------------------------------------------------


def spilled(*mutations: binlog_pb2.TableMutation, commit_ts: int = 1001, version: int = 9) -> Spilled:
    payload = rows(*mutations, commit_ts=commit_ts, version=version).payload

    def read(offset: int, size: int) -> bytes:
        return payload[offset : offset + size]

    return Spilled(commit_ts, 1000, len(payload), 0, 0, read)


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where tables may have one target."""
    monkeypatch.setattr(translator, "WHOLE_BYTES_MAX", 0)


@pytest.mark.usefixtures("in_pieces")
def test_large_transactions_go_through_the_same_rules() -> None:
    mutations = [mutation(4, [I]), mutation(1, [I, D, U, D, D, I]), mutation(2, [D, I] * 5000)]
    for rules in (Rules(), ignoring("delete", table="*"), routed(("db", "t", "shop", "orders"))):
        s = Setting(rules=rules)
        whole = s.rows(*mutations, version=9)
        pieces = list(s.translator.pieces(spilled(*mutations)))
        assert len(pieces) > 2
        assert [piece.last for piece in pieces] == [False] * (len(pieces) - 1) + [True]
        assert _flat(pieces) == _flat([whole])


@pytest.mark.usefixtures("in_pieces")
@pytest.mark.parametrize("enters", [[I, U], [I], [U]])
def test_a_table_that_rows_only_leave_comes_first_where_tables_may_be_one_downstream(
    enters: list[Any],
) -> None:
    """TiDB tells tables in any order: a row that moves to another one would come before it goes."""
    moved = [mutation(2, enters), mutation(1, [D, D]), mutation(2, [D]), mutation(1, [D])]
    for rules, order in (
        (Rules(), ["u", "t", "u", "t"]),
        (routed(("db", "*", "db", "one")), ["t", "t", "u", "u"]),
    ):
        s = Setting(rules=rules)
        whole = s.rows(*moved, version=9)
        assert [events.table.name for events in whole.tables] == order
        ordinals = [events.first_ordinal for events in whole.tables]
        assert ordinals == sorted(ordinals)
        assert _flat(list(s.translator.pieces(spilled(*moved)))) == _flat([whole])


@pytest.mark.parametrize("limit", [0, WHOLE_BYTES_MAX])
def test_rows_that_move_both_ways_go_before_they_come(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same in a whole transaction and in what is read of it in pieces."""
    monkeypatch.setattr(translator, "WHOLE_BYTES_MAX", limit)
    s = Setting(rules=routed(("db", "*", "db", "one")))
    for number, name in enumerate("tu", 1):
        made = table(number, name, pk_is_handle=True)
        made["cols"][0]["type"] = made["cols"][0]["type"] | {"Flag": FLAG_NOT_NULL | FLAG_PRIMARY}
        s.ddl(5, table_id=number, info=made)
    sql = RowEncoder(TableInfo.from_json(made))
    gone, come = ([make((number,)) for number in (1, 2)] for make in (sql.delete, sql.insert))
    moved = [
        mutation(number, [I, D], inserts=[come[number - 1]], deletes=[gone[2 - number]]) for number in (1, 2)
    ]
    whole = s.rows(*moved, version=9)
    assert [row for _, _, _, row in _flat([whole])] == [gone[1], gone[0], come[0], come[1]]
    pieces = list(s.translator.pieces(spilled(*moved)))
    assert _flat(pieces) == _flat([whole])
    assert not any(piece.payload for piece in pieces), "what lies on disk is not held"


def _flat(pieces: list[Transaction]) -> list[Any]:
    return [
        (one.table, one.first_ordinal + place, kind, row)
        for piece in pieces
        for one in piece.tables
        for place, (kind, row) in enumerate(zip(one.kinds, one.rows, strict=True))
    ]


@pytest.mark.parametrize("ignored", [(), ("retl",)])
def test_a_large_transaction_with_our_mark_is_one_empty_piece(ignored: tuple[str, ...]) -> None:
    s = Marked(names=TableFilter(ignore_schemas=ignored))
    (piece,) = s.translator.pieces(spilled(mutation(1, [I] * 9000), s.mark(U, OURS)))
    assert (piece.tables, piece.last, piece.commit_ts, s.translator.looped) == ((), True, 1001, 1)
    kept = list(s.translator.pieces(spilled(mutation(1, [I] * 9000), s.mark(U, THEIRS))))
    assert sum(len(one.rows) for piece in kept for one in piece.tables) == 9001 - len(ignored)
    s.translator.replace_rules(Rules(passed_over=frozenset({1001})))
    (over,) = s.translator.pieces(spilled(mutation(1, [I] * 9000)))
    assert over.tables == ()
