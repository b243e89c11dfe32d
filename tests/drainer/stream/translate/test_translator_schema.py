"""Translator and the tracked schema: which tables there are, up to which id, and as of which DDL."""

from __future__ import annotations

from drainer.stream.pull.merged import Spilled
from drainer.stream.rules.rule_set import Rules
from drainer.stream.schema.catalog import TABLE_ID_MAX
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.translate.translator import Translator
from drainer.txn import Transaction
from tests.drainer.stream.schema.upstream_jobs import Upstream, table
from tests.drainer.stream.translate.setting import Setting, rows
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.wire import binlog_pb2


def insert(table_id: int) -> binlog_pb2.TableMutation:
    return binlog_pb2.TableMutation(table_id=table_id, sequence=[binlog_pb2.Insert], inserted_rows=[b"row"])


def test_rows_of_a_known_table_bring_a_pending_ddl_of_it_to_them() -> None:
    """Its binlog did not come: rows of its version have its columns, whether they are many or few."""
    up = Upstream()
    jobs = [up.create_database(), up.create(table(1, "t")), up.job(5, info=table(1, "t", "id", "a"))]
    merged = rows(insert(1), commit_ts=25, version=3)
    large = Spilled(25, 1000, len(merged.payload), 0, 0, lambda at, size: merged.payload[at : at + size])
    for form in (merged, large):
        translator = Translator(SchemaTracker.from_history(jobs, schema_version=2), Rules())
        if isinstance(form, Spilled):
            (item,) = translator.pieces(form)
        else:
            item = translator.translate(form)  # type: ignore[assignment]
        assert isinstance(item, Transaction)
        assert [column.name for column in item.tables[0].table.info.columns] == ["id", "a"]


def test_all_tables_are_named_whether_they_replicate_or_not() -> None:
    named = Setting(do_table=[("Db", "t")]).translator.names()
    assert sorted(named) == [("Db", "t"), ("Db", "u"), ("mysql", "user")]


def test_the_largest_id_of_a_table_is_not_one_of_the_upstreams_own() -> None:
    for above, skip in ((0, ""), (1, "internal table of the upstream")):
        s = Setting()
        made = s.ddl(
            ActionType.CREATE_TABLE, "CREATE TABLE v (id INT)", info=table(TABLE_ID_MAX + above, "v")
        )
        assert made.skip == skip
        assert [one.table.name for one in s.rows(insert(TABLE_ID_MAX + above), version=6).tables] == (
            [] if above else ["v"]
        )


def test_a_ddl_that_takes_a_table_out_of_a_system_database_is_not_skipped() -> None:
    s = Setting()
    query = "RENAME TABLE mysql.user TO Db.moved"
    moved = s.ddl(ActionType.RENAME_TABLE, query, info=table(4, "moved"))
    assert set(moved.tables) == {("mysql", "user"), ("Db", "moved")}
    assert moved.skip == ""


def test_without_routes_no_table_shares_a_target() -> None:
    assert Setting().translator.sharing([("Db", "t")]) == ()
