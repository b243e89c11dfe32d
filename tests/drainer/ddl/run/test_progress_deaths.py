"""A DDL that dies, or loses its connection, before and after each statement of its: as it is, derived,
rewritten, and with other statements in its place. The next try comes to what an undisturbed run leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from drainer.checkpoint.value import Intent
from drainer.ddl.run.runner import DdlRunner
from drainer.mysql.connection import Connection, Target
from drainer.mysql.errors import ConnectionLost
from drainer.txn import Ddl, Tracked
from tests.drainer.support.apply_life import clean, run
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.table_info import LONG, VARCHAR, Column, FieldType, TableInfo

pytestmark = pytest.mark.integration

ID = Column(1, "id", 0, FieldType(LONG))
C = Column(2, "c", 1, FieldType(LONG))
TEXT = Column(3, "s", 2, FieldType(VARCHAR, flen=10, charset="utf8mb4", collate="utf8mb4_bin"))


class Schema:
    def database_collation(self, schema: str) -> tuple[str, str] | None:
        return ("utf8mb4", "utf8mb4_bin")


def table(name: str, table_id: int, *columns: Column, view: bool = False) -> Tracked:
    document = TableInfo(table_id, name, columns, ()).to_json()
    if view:
        document["view"] = {"view_select": "SELECT 1"}
    return Tracked("d", name, document)


def of_database(name: str) -> dict[str, Any]:
    return {"binlog": {"DBInfo": {"id": 1, "db_name": {"O": name, "L": name}, "charset": "utf8mb4"}}}


def in_x(text: str) -> str:
    return text.replace("DATABASE d", "DATABASE x").replace("d.", "x.")


MADE = ("CREATE DATABASE d", "CREATE TABLE d.t (id INT)", "CREATE TABLE d.u (id INT)")


@dataclass(frozen=True)
class Case:
    made: tuple[str, ...]
    ddl: Ddl
    text: str | None = None
    route: Callable[[str, str], tuple[str, str]] = lambda schema, table: (schema, table)


def ddl(action: int, query: str, before: tuple[Tracked, ...], after: tuple[Tracked, ...], **more: Any) -> Ddl:
    names = tuple(dict.fromkeys((one.schema, one.name) for one in (*before, *after)))
    return Ddl(100, 7, action, "d", query, names, 5, before=before, after=after, **more)


ADD_C = ddl(5, "ALTER TABLE `t` ADD COLUMN `c` INT", (table("t", 1, ID),), (table("t", 1, ID, C),))
MODIFY_C = ddl(12, "ALTER TABLE `t` MODIFY COLUMN `c` INT", (table("t", 1, ID, C),), (table("t", 1, ID, C),))
ADD_TEXT = ddl(5, "ALTER TABLE t ADD COLUMN s VARCHAR(10)", (table("t", 1, ID),), (table("t", 1, ID, TEXT),))
TWO_TABLES_AND_A_VIEW = (table("t", 1, ID), table("u", 2, ID), table("v", 3, ID, view=True))
CASES = {
    "as it is": Case(MADE, ADD_C),
    "as it is, with a rest": Case(("CREATE DATABASE d COLLATE latin1_bin", *MADE[1:]), ADD_TEXT),
    "derived": Case(
        MADE, ddl(5, "ALTER TABLE `t` ADD (`c` INT ANYTHING)", ADD_C.before, ADD_C.after)
    ),
    "rewritten": Case(MADE, ADD_C, "ALTER TABLE `t` ADD COLUMN `c` VARCHAR(100)"),
    "rewritten, a column that was there": Case(
        (*MADE, "ALTER TABLE d.t ADD COLUMN c TINYINT"), MODIFY_C, "ALTER TABLE `t` MODIFY COLUMN `c` TEXT"
    ),
    "drop of a filtered database": Case(
        (*MADE, "CREATE VIEW d.v AS SELECT 1 AS id", "CREATE TABLE d.other (id INT)"),
        ddl(
            ActionType.DROP_SCHEMA, "DROP DATABASE d", TWO_TABLES_AND_A_VIEW, (),
            instead=("DROP VIEW IF EXISTS `d`.`v`", "DROP TABLE IF EXISTS `d`.`t`, `d`.`u`"),
            job=of_database("d"),
        ),
    ),
    "drop of a routed database": Case(
        (*map(in_x, MADE), "CREATE VIEW x.v AS SELECT 1 AS one"),
        ddl(
            ActionType.DROP_SCHEMA, "DROP DATABASE d", TWO_TABLES_AND_A_VIEW, (),
            instead=("DROP VIEW IF EXISTS `x`.`v`", "DROP TABLE IF EXISTS `x`.`t`, `x`.`u`"),
            job=of_database("d"),
        ),
        route=lambda schema, table: ("x", table),
    ),
    "a rename into a database that is made for it": Case(
        MADE,
        ddl(
            ActionType.RENAME_TABLE, "RENAME TABLE d.t TO e.t", (table("t", 1, ID),),
            (Tracked("e", "t", table("t", 1, ID).document),),
            instead=("CREATE DATABASE IF NOT EXISTS `e`", "RENAME TABLE `d`.`t` TO `e`.`t`"),
        ),
    ),
}  # fmt: skip


class Died(ConnectionLost):
    """The connection is gone, at the statement that was counted."""


class Dying:
    """Counts the statements that change something; at the n-th one the connection is lost."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._run = Connection.run
        self.left, self.after = 0, False
        monkeypatch.setattr(Connection, "run", lambda connection, statement: self.run(connection, statement))

    def run(self, connection: Connection, statement: bytes) -> int:
        counts = self.left and not statement.startswith((b"SET ", b"USE "))
        self.left -= bool(counts)
        if counts and not self.left:
            if self.after:
                self._run(connection, statement)
            connection.close()
            raise Died(2013, "Lost connection")
        return self._run(connection, statement)


def contents(target: Target) -> list[tuple[Any, ...]]:
    """All tables with their columns."""
    return run(
        target,
        "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, COLLATION_NAME"
        " FROM information_schema.COLUMNS WHERE TABLE_SCHEMA IN ('d', 'e', 'x')"
        " ORDER BY 1, 2, ORDINAL_POSITION",
    )


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> Dying:
    return Dying(monkeypatch)


@pytest.mark.parametrize("killed", [False, True], ids=["connection lost", "killed"])
@pytest.mark.parametrize("name", CASES)
def test_at_every_statement(name: str, killed: bool, target: Target, dying: Dying) -> None:
    case = CASES[name]
    run(target, *case.made, "SELECT 1")
    DdlRunner(target, Schema(), case.route).run(case.ddl, case.text)
    wanted = contents(target)
    deaths = 0
    for number in range(1, 10):
        for after in (False, True):
            clean(target)
            run(target, *case.made, "SELECT 1")
            runner = DdlRunner(target, Schema(), case.route)
            intent = Intent(100, 7, case.ddl.query, runner.before(case.ddl))
            dying.left, dying.after = number, after
            try:
                runner.run(case.ddl, case.text)
            except Died:
                deaths += 1
                if killed:
                    runner.close()
                    runner = DdlRunner(target, Schema(), case.route)
                if not killed or not runner.had_run(intent, case.ddl, case.text):
                    runner.run(case.ddl, case.text)
            dying.left = 0
            runner.close()
            assert contents(target) == wanted, f"statement {number}, {after=}"
    assert deaths >= 2
