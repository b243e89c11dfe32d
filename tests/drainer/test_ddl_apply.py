"""DDL downstream: run once whatever happens, the shape decides, refusals stop with everything named."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from common.errors import DownstreamError
from common.table_info import LONG, VARCHAR, Column, FieldType, TableInfo
from deploy.playground.mariadb import MariaDbServer
from drainer.checkpoint import Intent
from drainer.ddl_apply import DdlRunner, shape, statement_of, touches_database
from drainer.sink import mysql
from drainer.txn import Ddl, TableVersion


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("CREATE DATABASE `a`", True),
        ("create schema if not exists a", True),
        ("/*T! x */ DROP DATABASE a", True),
        ("ALTER DATABASE a CHARSET utf8mb4", True),
        ("CREATE TABLE `database` (a INT)", False),
        ("DROP TABLE t", False),
    ],
)
def test_touches_database(query: str, expected: bool) -> None:
    assert touches_database(query) is expected


def test_each_job_of_a_multiple_drop_drops_its_own_table() -> None:
    many = Ddl(100, 7, 4, "d", "DROP TABLE `a`, `b`;", (("d", "b"),), 5)
    assert statement_of(many) == b"DROP TABLE IF EXISTS `d`.`b`"
    one = Ddl(100, 7, 4, "d", "DROP TABLE `a,b`;", (("d", "a,b"),), 5)
    assert statement_of(one) == b"DROP TABLE `a,b`;"
    other = Ddl(100, 7, 5, "d", "ALTER TABLE `a` ADD (x INT, y INT);", (("d", "a"),), 5)
    assert statement_of(other) == other.query.encode()


class Schema:
    """A tracked schema with one table `d.t(id INT, name VARCHAR)` in utf8mb4_bin."""

    def __init__(self, *columns: Column) -> None:
        self._table = TableVersion(TableInfo(1, "t", columns), "d", "t", 1)

    def table_named(self, schema: str, name: str) -> TableVersion | None:
        return self._table if (schema, name) == ("d", "t") else None

    def database_collation(self, schema: str) -> tuple[str, str] | None:
        return ("utf8mb4", "utf8mb4_bin") if schema == "d" else None


ID = Column(1, "id", 0, FieldType(LONG))
NAME = Column(2, "name", 1, FieldType(VARCHAR, charset="utf8mb4", collate="utf8mb4_bin"))


@pytest.fixture
def target(mariadb: MariaDbServer) -> Iterator[mysql.Target]:
    target = mysql.Target(mariadb.host, mariadb.port, mariadb.user, mariadb.password)
    yield target
    run(target, "DROP DATABASE IF EXISTS d")


def run(target: mysql.Target, *statements: str) -> list[tuple[object, ...]]:
    connection = mysql.connect(target)
    try:
        for statement in statements[:-1]:
            mysql.run(connection, statement.encode())
        found = mysql.rows(connection, statements[-1].encode())
        connection.commit()
        return found
    finally:
        connection.close()


def ddl(query: str, *, schema: str = "d", tables: tuple[tuple[str, str], ...] = (("d", "t"),)) -> Ddl:
    return Ddl(100, 7, 3, schema, query, tables, 5)


@pytest.mark.integration
class TestRunner:
    def test_shape_decides_whether_a_statement_had_run(self, target: mysql.Target) -> None:
        run(target, "CREATE DATABASE d", "CREATE TABLE d.t (id INT)")
        runner = DdlRunner(target, Schema(ID, NAME))
        change = ddl("ALTER TABLE `t` ADD `name` VARCHAR(10)")
        intent = Intent(100, 7, change.query, runner.before(change))
        assert not runner.had_run(intent, change)
        runner.run(change)
        assert runner.had_run(intent, change)

    def test_auto_increment_is_no_shape(self, target: mysql.Target) -> None:
        run(target, "CREATE DATABASE d", "CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY)")
        connection = mysql.connect(target)
        before = shape(connection, [("d", "t"), ("d", ""), ("d", "gone"), ("gone", "")])
        mysql.run(connection, b"INSERT INTO d.t VALUES (77)")
        connection.commit()
        assert shape(connection, [("d", "t"), ("d", ""), ("d", "gone"), ("gone", "")]) == before
        assert before["d.gone"] is None
        assert before["gone."] is None
        connection.close()

    def test_a_missing_database_is_created(self, target: mysql.Target) -> None:
        DdlRunner(target, Schema(ID)).run(ddl("CREATE TABLE `t` (`id` INT)"))
        assert run(target, "SELECT COUNT(*) FROM d.t") == [(0,)]
        ((_, text),) = run(target, "SHOW CREATE DATABASE d")
        assert "utf8mb4_bin" in str(text)

    def test_text_columns_get_the_upstreams_collation(self, target: mysql.Target) -> None:
        """`CHARSET=utf8mb4` alone would be case-insensitive downstream: 'a' and 'A' must not collide."""
        run(target, "CREATE DATABASE d CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")
        query = "CREATE TABLE `t` (`id` INT, `name` VARCHAR(10) UNIQUE) CHARSET=utf8mb4"
        DdlRunner(target, Schema(ID, NAME)).run(ddl(query))
        assert run(target, "INSERT INTO d.t VALUES (1,'a'),(2,'A')", "SELECT COUNT(*) FROM d.t") == [(2,)]

    def test_a_refusal_names_job_place_statement_and_reason(self, target: mysql.Target) -> None:
        run(target, "CREATE DATABASE d", "CREATE TABLE d.t (id INT)")
        with pytest.raises(DownstreamError) as raised:
            DdlRunner(target, Schema(ID)).run(ddl("ALTER TABLE `t` ADD KEY e ((lower(id)))"))
        text = str(raised.value)
        assert "job 7" in text
        assert "commit_ts 100" in text
        assert "1064" in text
        assert "lower(id)" in text
        assert raised.value.hint
        assert raised.value.exit_code == 7

    def test_already_done_compares_columns(self, target: mysql.Target) -> None:
        run(target, "CREATE DATABASE d", "CREATE TABLE d.t (id INT)")
        change = ddl("ALTER TABLE `t` ADD `name` VARCHAR(10)")
        assert DdlRunner(target, Schema(ID)).already_done(change)
        assert not DdlRunner(target, Schema(ID, NAME)).already_done(change)


def test_login_refused_is_said_without_the_password(mariadb: MariaDbServer) -> None:
    wrong = mysql.Target(mariadb.host, mariadb.port, mariadb.user, "s3cret-wrong")
    with pytest.raises(DownstreamError) as raised:
        mysql.connect(wrong)
    assert "refused the login" in str(raised.value)
    assert "s3cret" not in str(raised.value)
    assert "s3cret" not in repr(wrong)
    assert raised.value.exit_code == 7


def test_values_are_masked_in_server_texts() -> None:
    import pymysql

    error = pymysql.err.IntegrityError(1062, "Duplicate entry 'secret-''row' for key 'PRIMARY'")
    assert "secret" not in mysql.safe_text(error)
    assert mysql.safe_text(error).startswith("1062: ")
