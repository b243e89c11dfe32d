"""DDL downstream: run once whatever happens, the shape decides, what is refused is derived or named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.checkpoint.value import Intent
from drainer.ddl.run.plan import statement_of
from drainer.ddl.run.runner import DdlRunner, Refused
from drainer.mysql.connection import Target, connect
from drainer.mysql.errors import StatementRefused, safe_text
from drainer.txn import Ddl, Tracked
from tests.drainer.support.apply_life import run
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.errors import Unavailable
from tidb_binlog.table_info import LONG, VARCHAR, Column, FieldType, Index, IndexColumn, TableInfo


def test_each_job_of_a_multiple_drop_drops_its_own_table() -> None:
    many = Ddl(100, 7, 4, "d", "DROP TABLE `a`, `b`;", (("d", "b"),), 5)
    assert statement_of(many) == b"DROP TABLE IF EXISTS `d`.`b`"
    both = Ddl(100, 7, 4, "d", "DROP TABLE `a`, `b`;", (("d", "a"), ("d", "b")), 5)
    assert statement_of(both) == both.query.encode()
    other = Ddl(100, 7, 5, "d", "ALTER TABLE `a` ADD (x INT, y INT);", (("d", "a"),), 5)
    assert statement_of(other) == other.query.encode()


class Schema:
    """A tracked schema with the database `d` in utf8mb4_bin."""

    def database_collation(self, schema: str) -> tuple[str, str] | None:
        return ("utf8mb4", "utf8mb4_bin") if schema == "d" else None


ID = Column(1, "id", 0, FieldType(LONG))
NAME = Column(2, "name", 1, FieldType(VARCHAR, flen=10, charset="utf8mb4", collate="utf8mb4_bin"))
LOWER = Column(3, "_V$_e_0", 2, FieldType(VARCHAR, charset="utf8mb4"), generated="lower(`name`)", hidden=True)


def table(*columns: Column, indexes: tuple[Index, ...] = (), name: str = "t", table_id: int = 1) -> Tracked:
    return Tracked("d", name, TableInfo(table_id, name, columns, indexes).to_json())


@pytest.fixture
def runner(target: Target) -> Iterator[DdlRunner]:
    runner = DdlRunner(target, Schema())
    yield runner
    runner.close()


def ddl(
    query: str,
    *,
    action: int = ActionType.CREATE_TABLE,
    before: tuple[Tracked, ...] = (),
    after: tuple[Tracked, ...] = (),
    job: dict[str, Any] | None = None,
    commit_ts: int = 100,
) -> Ddl:
    names = tuple(dict.fromkeys((one.schema, one.name) for one in (*before, *after))) or (("d", "t"),)
    return Ddl(commit_ts, 7, action, "d", query, names, 5, job=job, before=before, after=after)


ADD_NAME = ddl(
    "ALTER TABLE `t` ADD COLUMN `name` VARCHAR(10)", action=5, before=(table(ID),), after=(table(ID, NAME),)
)


@pytest.mark.integration
class TestRunner:
    def test_shape_decides_whether_a_statement_had_run(self, target: Target, runner: DdlRunner) -> None:
        run(target, "CREATE DATABASE d", "CREATE TABLE d.t (id INT)")
        intent = Intent(100, 7, ADD_NAME.query, runner.before(ADD_NAME))
        assert not runner.had_run(intent, ADD_NAME, None)
        (statement,) = runner.run(ADD_NAME).statements
        assert statement.startswith("ALTER TABLE `d`.`t` ADD COLUMN `name` varchar(10) CHARACTER SET utf8mb4")
        assert runner.had_run(intent, ADD_NAME, None)

    def test_a_missing_database_is_created(self, target: Target, runner: DdlRunner) -> None:
        runner.run(ddl("CREATE TABLE `t` (`id` INT)", after=(table(ID),)))
        assert run(target, "SELECT COUNT(*) FROM d.t") == [(0,)]
        ((_, text),) = run(target, "SHOW CREATE DATABASE d")
        assert "utf8mb4_bin" in str(text)

    def test_text_columns_get_the_upstreams_collation(self, target: Target, runner: DdlRunner) -> None:
        """`CHARSET=utf8mb4` alone would be case-insensitive downstream: 'a' and 'A' must not collide."""
        run(target, "CREATE DATABASE d CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")
        query = "CREATE TABLE `t` (`id` INT, `name` VARCHAR(10) UNIQUE) CHARSET=utf8mb4"
        unique = Index(1, "name", (IndexColumn("name", 1),), unique=True, primary=False)
        assert not runner.run(ddl(query, after=(table(ID, NAME, indexes=(unique,)),))).missing
        assert run(target, "INSERT INTO d.t VALUES (1,'a'),(2,'A')", "SELECT COUNT(*) FROM d.t") == [(2,)]

    def test_what_cannot_be_had_is_named_and_the_rest_is_done(
        self, target: Target, runner: DdlRunner
    ) -> None:
        """The text itself is refused as a whole: MariaDB has no expression keys."""
        run(target, "CREATE DATABASE d", "CREATE TABLE d.t (id INT, name VARCHAR(10) COLLATE utf8mb4_bin)")
        expression = Index(1, "e", (IndexColumn("_V$_e_0", 2),), unique=False, primary=False)
        plain = Index(2, "k", (IndexColumn("id", 0),), unique=False, primary=False)
        ran = runner.run(
            ddl(
                "ALTER TABLE `t` ADD KEY `e`((LOWER(`name`))), ADD KEY `k`(`id`)",
                action=ActionType.MULTI_SCHEMA_CHANGE,
                before=(table(ID, NAME),),
                after=(table(ID, NAME, LOWER, indexes=(expression, plain)),),
            )
        )
        assert ran.missing == ("expression key e",)
        assert ran.statements == ("ALTER TABLE `d`.`t` ADD KEY `k` (`id`)",)

    def test_a_refusal_names_job_place_statement_and_reason(self, target: Target, runner: DdlRunner) -> None:
        run(target, "CREATE DATABASE d", "CREATE TABLE d.t (id INT)")
        with pytest.raises(Refused) as raised:
            runner.run(ddl("ALTER TABLE `t` ADD KEY e ((lower(id)))", action=7))
        text = str(raised.value)
        assert "job 7 (add index)" in text
        assert "commit_ts 100" in text
        assert "d.t" in text
        assert "1064" in text
        assert "lower(id)" in text
        assert raised.value.hint
        assert (raised.value.exit_code, raised.value.code, raised.value.kind) == (7, 1064, "add index")

    def test_what_is_not_in_the_binlog_is_never_run_downstream(self, runner: DdlRunner) -> None:
        """FLASHBACK CLUSTER would turn back the downstream's own tables, the checkpoint among them."""
        back = ddl("FLASHBACK CLUSTER TO TIMESTAMP '2023-01-01'", action=ActionType.FLASHBACK_CLUSTER)
        with pytest.raises(Refused, match="rows of every table went back in time"):
            runner.run(back)

    def test_a_rewritten_text_is_run_as_it_is(self, target: Target, runner: DdlRunner) -> None:
        run(target, "CREATE DATABASE d", "CREATE TABLE d.t (id INT)")
        text = "ALTER TABLE t ADD COLUMN name TEXT"
        assert runner.run(ADD_NAME, text).statements == (text,)
        with pytest.raises(Refused, match="1060"):
            runner.run(ADD_NAME, text)
        assert run(
            target,
            "SELECT column_type FROM information_schema.columns WHERE column_name='name'"
            " AND table_schema='d'",
        ) == [("text",)]

    def test_already_done_compares_what_the_ddl_changed(self, target: Target, runner: DdlRunner) -> None:
        run(target, "CREATE DATABASE d", "CREATE TABLE d.t (id INT)")
        assert not runner.already_done(ADD_NAME)
        runner.run(ADD_NAME)
        assert runner.already_done(ADD_NAME)
        emptied = table(ID, NAME, table_id=2)
        truncate = ddl("TRUNCATE t", action=11, before=(table(ID, NAME),), after=(emptied,))
        assert not runner.already_done(truncate), "rows may still be there"
        drop = ddl("DROP TABLE t", action=4, before=(emptied,))
        assert not runner.already_done(drop)
        runner.run(drop)
        assert runner.already_done(drop)

    def test_a_table_that_was_never_there_is_dropped_in_peace(self, runner: DdlRunner) -> None:
        assert runner.run(ddl("DROP TABLE t", action=4, before=(table(ID),))) is not None

    def test_the_jobs_sql_mode_counts(self, target: Target, runner: DdlRunner) -> None:
        """`MODIFY e SMALLINT` upstream clipped 70000 under sql_mode ''; under a strict mode it is refused."""
        run(target, "CREATE DATABASE d", "CREATE TABLE d.t (id INT)", "INSERT INTO d.t VALUES (70000)")
        small = Column(9, "id", 0, FieldType(2))
        sides = {"before": (table(ID),), "after": (table(small),), "action": 12}
        query = "ALTER TABLE `t` MODIFY COLUMN `id` SMALLINT"
        strict = {"reorg_meta": {"sql_mode": 1436549152, "location": {"name": "UTC", "offset": 0}}}
        with pytest.raises(Refused, match="1264"):
            runner.run(ddl(query, job=strict, **sides))  # type: ignore[arg-type]
        runner.run(ddl(query, job={"reorg_meta": {"sql_mode": 0}}, **sides))  # type: ignore[arg-type]
        assert run(target, "SELECT id FROM d.t") == [(32767,)]

    def test_rows_older_than_a_column_get_what_they_have_upstream(
        self, target: Target, runner: DdlRunner
    ) -> None:
        """The default is the time of the DDL upstream, not the time at which it runs."""
        run(target, "CREATE DATABASE d", "CREATE TABLE d.t (id INT)", "INSERT INTO d.t VALUES (1)")
        made = Column(
            2, "made", 1, FieldType(12, decimal=0), default="CURRENT_TIMESTAMP",
            origin_default="2020-02-03 04:05:06",
        )  # fmt: skip
        query = "ALTER TABLE `t` ADD COLUMN `made` DATETIME DEFAULT CURRENT_TIMESTAMP"
        runner.run(ddl(query, action=5, before=(table(ID),), after=(table(ID, made),)))
        found = run(target, "INSERT INTO d.t (id) VALUES (2)", "SELECT CAST(made AS CHAR) FROM d.t")
        assert found[0] == ("2020-02-03 04:05:06",)
        assert not str(found[1][0]).startswith("2020")

    def test_a_timestamps_default_is_that_of_the_upstreams_time_zone(
        self, target: Target, runner: DdlRunner
    ) -> None:
        """The statement says 08:00 in the zone of its session, the definition the same instant in UTC."""
        at = Column(
            2, "at", 1, FieldType(7, flag=1, decimal=0), default="2022-01-01 00:00:00",
            origin_default="2022-01-01 00:00:00",
        )  # fmt: skip
        run(target, "CREATE DATABASE d", "CREATE TABLE d.t (id INT)", "INSERT INTO d.t VALUES (1)")
        query = "ALTER TABLE `t` ADD COLUMN `at` TIMESTAMP NOT NULL DEFAULT '2022-01-01 08:00:00'"
        runner.run(ddl(query, action=5, before=(table(ID),), after=(table(ID, at),)))
        assert run(target, "SELECT CAST(`at` AS CHAR) FROM d.t") == [("2022-01-01 00:00:00",)]

    def test_routed_tables_are_derived_under_their_names(self, target: Target) -> None:
        runner = DdlRunner(target, Schema(), lambda schema, table: ("d", table and f"{table}_copy"))
        runner.run(ddl("CREATE TABLE `t` (`id` INT)", after=(table(ID),)))
        runner.run(ADD_NAME)
        found = run(target, "SELECT table_name, column_name FROM information_schema.columns"
                            " WHERE table_schema='d' ORDER BY ordinal_position")  # fmt: skip
        assert found == [("t_copy", "id"), ("t_copy", "name")]
        runner.close()


def test_login_refused_is_said_without_the_password(mariadb: MariaDbServer) -> None:
    from tidb_binlog.errors import DownstreamError

    wrong = Target(mariadb.host, mariadb.port, mariadb.user, "s3cret-wrong")
    with pytest.raises(DownstreamError) as raised:
        connect(wrong)
    assert "refused the login" in str(raised.value)
    assert "s3cret" not in str(raised.value)
    assert "s3cret" not in repr(wrong)
    assert raised.value.exit_code == 7


def test_values_are_masked_in_server_texts() -> None:

    error = StatementRefused(1062, "Duplicate entry 'secret-''row' for key 'PRIMARY'")
    assert "secret" not in safe_text(error)
    assert safe_text(error).startswith("1062: ")


def test_a_refusal_names_the_database_where_there_is_one() -> None:
    assert (
        str(Refused(ADD_NAME, "no")).partition("; ")[2].startswith(f"statement in `{ADD_NAME.schema}`: ALTER")
    )
    nowhere = replace(ADD_NAME, schema="", query="CREATE DATABASE d")
    assert str(Refused(nowhere, "no")).partition("; ")[2].startswith("statement: CREATE DATABASE d")


def test_no_progress_of_a_server_that_is_away() -> None:
    runner = DdlRunner(Target("127.0.0.1", 1, "nobody", ""), Schema())
    assert runner.progress(ADD_NAME) == ""
    with pytest.raises(Unavailable):
        runner.before(ADD_NAME)
