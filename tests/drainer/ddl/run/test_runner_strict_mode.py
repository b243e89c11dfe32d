"""InnoDB's strict mode refuses tables that the upstream takes: the DDL runs without it, and says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from drainer.ddl.run.runner import DdlRunner, Refused
from drainer.mysql.connection import Target
from drainer.txn import Ddl, Tracked
from tests.drainer.support.apply_life import run
from tidb_binlog.table_info import LONG, VARCHAR, Column, FieldType, TableInfo

pytestmark = pytest.mark.integration


class Schema:
    def database_collation(self, schema: str) -> tuple[str, str] | None:
        return ("utf8mb4", "utf8mb4_bin")


def wide(columns: int) -> Tracked:
    kind = FieldType(VARCHAR, flen=50, charset="utf8mb4", collate="utf8mb4_bin")
    made = [Column(1, "id", 0, FieldType(LONG))]
    made += [Column(2 + number, f"c{number}", 1 + number, kind) for number in range(columns)]
    return Tracked("d", "t", TableInfo(1, "t", tuple(made), ()).to_json())


def ddl(query: str) -> Ddl:
    return Ddl(100, 7, 5, "d", query, (("d", "t"),), 5, before=(wide(41),), after=(wide(42),))


@pytest.fixture
def runner(target: Target) -> Iterator[DdlRunner]:
    columns = ", ".join(f"c{number} VARCHAR(50)" for number in range(40))
    made = f"CREATE TABLE d.t (id INT, {columns}) COLLATE utf8mb4_bin"
    run(target, "CREATE DATABASE d", made, "ALTER TABLE d.t ADD COLUMN c40 VARCHAR(50)")
    runner = DdlRunner(target, Schema())
    yield runner
    runner.close()


def strict_mode(runner: DdlRunner) -> list[tuple[Any, ...]]:
    """On the session on which it runs DDL."""
    return runner.on_session(lambda connection, _: connection.rows(b"SELECT @@innodb_strict_mode"))


@pytest.mark.parametrize("text", ["VARCHAR(50)", "VARCHAR(50) ANYTHING"], ids=["as it is", "derived"])
def test_a_row_that_could_be_too_large(
    text: str, target: Target, runner: DdlRunner, caplog: pytest.LogCaptureFixture
) -> None:
    statement = ddl(f"ALTER TABLE `t` ADD COLUMN `c41` {text}")
    assert not runner.run(statement).missing
    assert ("c41",) in run(target, "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_NAME='t'")
    assert "innodb_strict_mode" in caplog.text
    assert strict_mode(runner) == [(1,)]


def test_and_a_text_in_its_place(runner: DdlRunner) -> None:
    text = "ALTER TABLE `t` ADD COLUMN `c41` VARCHAR(60)"
    assert runner.run(ddl("ALTER TABLE `t` ADD COLUMN `c41` VARCHAR(50)"), text).statements == (text,)


def test_what_does_not_fit_without_it_either_is_refused(target: Target, runner: DdlRunner) -> None:
    text = "ALTER TABLE `t` ADD COLUMN `c41` VARCHAR(16000)"
    with pytest.raises(Refused, match="1118"):
        runner.run(ddl("x"), text)
    assert strict_mode(runner) == [(1,)]
