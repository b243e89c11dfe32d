"""The private MariaDB, and that what is in it is read exactly."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from binlog_playground.check.downstream import Downstream
from binlog_playground.check.verify import ColumnForm, ExpectedTable, compare
from binlog_playground.cluster.mariadb import MariaDbServer
from tests.rig.workload import tables
from tests.rig.workload.model import Model
from tests.rig.workload.values import shown
from tests.rig.workload.workload import Workload
from tidb_binlog.errors import Unavailable

pytestmark = pytest.mark.integration


@pytest.fixture
def database(mariadb: MariaDbServer) -> Iterator[str]:
    name = "reading"
    connection = mariadb.connect()
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name}")
        yield name
        with connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE {name}")
    finally:
        connection.close()


def test_start_kill_restart_stop(tmp_path: Path) -> None:
    server = MariaDbServer()
    server.start(tmp_path / "db")
    try:
        connection = server.connect()
        with connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE kept")
            cursor.execute("CREATE TABLE kept.t (id INT PRIMARY KEY)")
            cursor.execute("INSERT INTO kept.t VALUES (1)")
        connection.close()
        server.kill()
        with pytest.raises(Unavailable, match="does not answer"):
            server.ping()
        server.restart()
        connection = server.connect()
        with connection.cursor() as cursor:
            cursor.execute("SELECT * FROM kept.t")
            assert cursor.fetchall() == ((1,),)
        connection.close()
    finally:
        server.stop()
    assert server.process is not None
    assert server.process.state == "stopped"


def test_only_the_private_user_gets_in(mariadb: MariaDbServer) -> None:
    stranger = MariaDbServer(mariadb.port)
    with pytest.raises(Unavailable, match="Access denied"):
        stranger.ping()


@pytest.mark.parametrize("table", tables.standing_tables("reading", itertools.count(1)), ids=lambda t: t.name)
def test_values_are_read_back_exactly(mariadb: MariaDbServer, database: str, table: tables.Table) -> None:
    workload = Workload(Random(4), Model(database))
    model = Model(database)
    state = model.add(table)
    row_ids = itertools.count(1)
    connection = mariadb.connect(database=database)
    try:
        with connection.cursor() as cursor:
            cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
            cursor.execute(table.create_sql())
            for _ in range(300):
                row = workload.random_row(table)
                marks = ", ".join(["%s"] * len(row))
                texts = [
                    value if isinstance(value, bytes | int | None) else shown(column.kind, value)
                    for column, value in zip(table.columns, row, strict=True)
                ]
                if cursor.execute(f"INSERT IGNORE INTO {table.name} VALUES ({marks})", texts) == 1:
                    state.put(next(row_ids), row)
        expected = model.expected()
        report = compare(expected, Downstream(mariadb.connect()).contents(expected))
        assert report.equal, report.differences[0]
        assert report.rows_identical == len(state) > 25
    finally:
        connection.close()


def test_tables_of_the_system_are_no_difference_and_views_are_left_out(
    mariadb: MariaDbServer, database: str
) -> None:
    connection = mariadb.connect(database=database)
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id INT)")
        cursor.execute("CREATE VIEW v AS SELECT 1 AS one")
        cursor.execute("CREATE SEQUENCE s")
    found = Downstream(connection).tables()
    connection.close()
    assert found == {("reading", "t"): ("id",)}


def test_zerofill_bit_float_and_zero_are_shown_as_recorded(mariadb: MariaDbServer, database: str) -> None:
    connection = mariadb.connect(database=database)
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE t (z INT(8) ZEROFILL, d DECIMAL(12,3) ZEROFILL, b BIT(64), f FLOAT, g FLOAT(7,3),"
            " n DOUBLE, m DOUBLE(20,5), y YEAR, l VARCHAR(9) CHARACTER SET latin1)"
        )
        cursor.execute("INSERT INTO t VALUES (42, 1.5, ~0, 1.1, -9999.999, '-0', 0.1, 0, 'é')")
    forms = ("int", "dec", "uint", "double", "double", "double", "double", "int", "text")
    columns = tuple(ColumnForm(name, form) for name, form in zip("zdbfgnmyl", forms, strict=True))
    rows = Downstream(connection).rows(ExpectedTable(database, "t", columns, (), []))
    connection.close()
    assert rows == [
        ("42", "1.500", str(2**64 - 1), "1.100000023841858", "-9999.9990234375", "0.0", "0.1", "0", "é")
    ]


def test_it_runs_as_the_user_who_starts_it(mariadb: MariaDbServer) -> None:
    assert mariadb.process is not None
    assert os.stat(f"/proc/{mariadb.process.pid}").st_uid == os.geteuid()
