"""What is read of a table downstream, on a real MariaDB."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.errors import TransientError
from drainer.mysql.literal.downstream_column import DownstreamColumn
from drainer.mysql.rows.column_match import DownstreamTable, KeyPart, UniqueKey
from drainer.mysql.rows.dialect import Dialect
from drainer.mysql.table_reader import columns_of, keys_of, read_table
from drainer.relay import downstream_definitions
from tests.fakes.tidb_sql import tidb_sql
from tidb_binlog.errors import DownstreamError
from tidb_binlog.table_info import WHOLE_COLUMN

pytestmark = pytest.mark.integration


TIDB = SimpleNamespace(dialect=Dialect.TIDB)


class Server:
    def __init__(self, target: Target) -> None:
        self.target = target
        self.connection: Connection = connect(target)

    def run(self, *texts: str) -> None:
        for text in texts:
            self.connection.run(text.encode())

    def read(self, name: str, schema: str = "Look") -> DownstreamTable | None:
        return read_table(self.connection, schema, name)

    def found(self, name: str, schema: str = "Look") -> DownstreamTable:
        found = self.read(name, schema)
        assert found is not None
        return found


@pytest.fixture
def server(mariadb: MariaDbServer) -> Iterator[Server]:
    made = Server(Target(mariadb.host, mariadb.port, mariadb.user, mariadb.password))
    made.run("DROP DATABASE IF EXISTS Look", "CREATE DATABASE Look")
    yield made
    made.run("DROP DATABASE Look")
    made.connection.close()


def test_columns_and_keys(server: Server) -> None:
    server.run(
        "CREATE TABLE Look.T (Id INT AUTO_INCREMENT PRIMARY KEY, a VARCHAR(20) CHARACTER SET latin1 NOT NULL,"
        " b INT AS (c+1) VIRTUAL, c INT, d INT AS (c+1) STORED, e DECIMAL(10,4) NOT NULL,"
        " f DATETIME(3) DEFAULT NOW(3), j JSON, k VARBINARY(30) NOT NULL, UNIQUE z(a(3), c), UNIQUE y(k))"
    )
    table = server.found("T")
    columns = {column.name: column for column in table.columns}
    assert list(columns) == ["Id", "a", "b", "c", "d", "e", "f", "j", "k"]
    counts = DownstreamColumn("Id", "int", nullable=False, full_type="int(11)", fills_null=True)
    assert columns["Id"] == counts
    assert (columns["a"].charset, columns["a"].length, columns["a"].has_default) == ("latin1", 20, False)
    assert [name for name in columns if columns[name].generated] == ["b", "d"]
    assert (columns["e"].digits, columns["f"].digits, columns["c"].nullable) == (4, 3, True)
    assert [name for name in columns if columns[name].checks_json] == ["j"]
    assert table.unique_keys == (
        UniqueKey("PRIMARY", (KeyPart("Id"),)),
        UniqueKey("y", (KeyPart("k"),)),
        UniqueKey("z", (KeyPart("a", 3), KeyPart("c"))),
    )
    assert (table.may_have_triggers, table.referenced) == (False, False)
    assert (table.engine, table.dialect) == ("InnoDB", Dialect.MARIADB)


def test_a_tidb_lists_a_table_twice_without_lengths_of_keys_and_with_what_another_has(
    server: Server, mariadb: MariaDbServer
) -> None:
    keys = "UNIQUE z(a(3), Id)"
    server.run(f"CREATE TABLE Look.T (Id INT(5) ZEROFILL PRIMARY KEY, a VARCHAR(20) NOT NULL, {keys})")
    server.run("CREATE TABLE Look.old_T (Id BIGINT, gone INT, a VARCHAR(9), UNIQUE u (Id))")
    with tidb_sql(mariadb) as target:
        connection = connect(target)
        table = read_table(connection, "look", "t")
        (defined,) = downstream_definitions.read(connection, lambda *name: name == ("Look", "T"))
        server.run("ALTER TABLE Look.T RENAME Look.other")
        assert read_table(connection, "Look", "T") is None
        connection.close()
    assert table is not None
    assert [column.name for column in table.columns] == ["Id", "a"]
    assert table.unique_keys == (
        UniqueKey("PRIMARY", (KeyPart("Id"),)),
        UniqueKey("z", (KeyPart("a", 3), KeyPart("Id"))),
    )
    assert [column.name for column in defined.info.columns] == ["Id", "a"]
    assert [[(part.name, part.length) for part in index.columns] for index in defined.info.indexes] == [
        [("Id", WHOLE_COLUMN)],
        [("a", 3), ("Id", WHOLE_COLUMN)],
    ]


def test_a_tidb_whose_table_changes_meanwhile_is_to_be_asked_again() -> None:
    answers: list[list[tuple[Any, ...]]] = [[("a", "int(11)", "NO", None)], [("b", "int(11)", None, "NO")]]
    cursor = SimpleNamespace(connection=TIDB, execute=lambda *_: None, fetchall=lambda: answers.pop(0))
    with pytest.raises(TransientError, match=r"d\.t was changed while it was read"):
        columns_of(cursor, "", ("d", "t"), Dialect.TIDB)


def test_a_tidb_lists_a_year_as_unsigned_and_does_not_show_it_so() -> None:
    listed = [("y", "year(4) unsigned", "YES", None), ("b", "bit(1) unsigned", "YES", None)]
    shown = [("y", "year(4)", None, "YES"), ("b", "bit(1)", None, "YES")]
    answers = [listed, shown]
    cursor = SimpleNamespace(connection=TIDB, execute=lambda *_: None, fetchall=lambda: answers.pop(0))
    assert columns_of(cursor, "", ("d", "t"), Dialect.TIDB) == listed


def test_an_expression_of_a_key_in_a_tidb_has_no_column() -> None:
    names = ("Key_name", "Seq_in_index", "Column_name", "Sub_part", "Non_unique", "Visible", "Expression")
    rows = [("e", 1, "NULL", None, 0, "NO", "`a` + 1"), ("e", 2, "NULL", 3, 0, "NO", None)]
    description = [(name,) for name in names]
    cursor = SimpleNamespace(execute=lambda *_: None, description=description, fetchall=lambda: rows)
    parts = keys_of(cursor, "", ("d", "t"), Dialect.TIDB)
    assert [(part[2], part[5]) for part in parts] == [(None, "NO"), ("NULL", "NO")]


def test_names_in_any_case(server: Server) -> None:
    server.run("CREATE TABLE Look.`Order` (id INT)")
    for schema, name in (("Look", "Order"), ("look", "ORDER"), ("LOOK", "order")):
        assert server.found(name, schema).label == "Look.Order"
    assert server.read("nothing") is None
    server.run("CREATE TABLE Look.`ORDER` (id INT)")
    assert server.found("ORDER").name == "ORDER"
    with pytest.raises(
        DownstreamError, match=r"Look\.order may be any of Look\.(Order|ORDER), Look\.(ORDER|Order)"
    ):
        server.read("order")


def test_triggers_and_references(server: Server) -> None:
    server.run(
        "CREATE TABLE Look.parent (id INT PRIMARY KEY)",
        "CREATE TABLE Look.child (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES Look.parent(id))",
        "CREATE TABLE Look.watched (id INT PRIMARY KEY)",
        "CREATE TRIGGER Look.w BEFORE INSERT ON Look.watched FOR EACH ROW SET @a=1",
        "CREATE TABLE Look.`odd-name` (id INT PRIMARY KEY)",
        "CREATE TABLE Look.`a b.é日Ü`(id INT PRIMARY KEY)",
        "CREATE TABLE Look.`x y` (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES Look.`a b.é日Ü`(id))",
    )
    assert (server.found("parent").referenced, server.found("child").referenced) == (True, False)
    assert (server.found("watched").may_have_triggers, server.found("child").may_have_triggers) == (
        True,
        False,
    )
    odd = [server.found(name).referenced for name in ("odd-name", "a b.é日Ü", "x y")]
    assert odd == [False, True, False]


def test_what_an_account_may_not_see_is_taken_for_there(server: Server) -> None:
    server.run(
        "CREATE TABLE Look.t (id INT PRIMARY KEY)",
        "CREATE OR REPLACE USER few@'%' IDENTIFIED BY 'f'",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON Look.* TO few@'%'",
    )
    few = Server(replace(server.target, user="few", password="f"))
    assert (few.found("t").may_have_triggers, few.found("t").referenced) == (True, True)
    few.connection.close()
    server.run("GRANT TRIGGER ON `Look`.* TO few@'%'", "GRANT PROCESS ON *.* TO few@'%'")
    few = Server(replace(server.target, user="few", password="f"))
    assert (few.found("t").may_have_triggers, few.found("t").referenced) == (False, False)
    few.connection.close()
    server.run("DROP USER few@'%'")
