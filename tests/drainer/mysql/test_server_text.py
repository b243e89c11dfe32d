"""Text of the downstream that is no UTF-8 is read as what it is: it ends nothing, wherever it comes from."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from drainer.checkpoint.value import Intent
from drainer.ddl.run import downstream_schema as ddl_present
from drainer.ddl.run import fingerprint as ddl_shape
from drainer.ddl.run import progress as ddl_progress
from drainer.ddl.run.runner import DdlRunner, Refused
from drainer.mysql.connection import Target, connect
from drainer.mysql.errors import SessionError, safe_text
from drainer.mysql.table_reader import read_table
from drainer.txn import Ddl, Tracked
from tidb_binlog.table_info import LONG, VARCHAR, Column, FieldType, TableInfo

pytestmark = pytest.mark.integration

RAW = bytes(range(1, 39)) + bytes(range(40, 92)) + bytes(range(93, 256))  # no quote, no backslash
ID = Column(1, "id", 0, FieldType(LONG))
RAW_COLUMN = Column(2, "raw", 1, FieldType(VARCHAR, flen=300, charset="binary", collate="binary"))
NEW = Column(3, "new", 2, FieldType(LONG))
NAME = ("d", "t")


class Schema:
    def database_collation(self, schema: str) -> tuple[str, str] | None:
        return None


def table(*columns: Column) -> Tracked:
    return Tracked(*NAME, TableInfo(1, "t", columns, ()).to_json())


@pytest.fixture
def connection(target: Target) -> Any:
    with connect(target) as connection:
        connection.run(b"CREATE DATABASE d")
        yield connection


def create(connection: Any, raw: bytes) -> None:
    connection.run(
        b"CREATE TABLE d.t (id INT PRIMARY KEY COMMENT '\xff', raw VARBINARY(300) NOT NULL DEFAULT '%b',"
        b" fixed BINARY(3) DEFAULT '\xe9\xe8\xe7', CHECK (raw <> '\xff')) COMMENT='a\xff'" % raw,
    )


def test_a_table_with_such_a_default_takes_ddl_over_a_crash(target: Target, connection: Any) -> None:
    create(connection, RAW)
    ddl = Ddl(
        100, 7, 5, "d", "ALTER TABLE t ADD COLUMN `new` INT", (NAME,), 5,
        before=(table(ID, RAW_COLUMN),), after=(table(ID, RAW_COLUMN, NEW),),
    )  # fmt: skip
    runner = DdlRunner(target, Schema())
    intent = Intent.from_json(Intent(100, 7, ddl.query, runner.before(ddl)).to_json())
    assert not runner.had_run(intent, ddl, None)
    added = "ALTER TABLE `d`.`t` ADD COLUMN `new` int NULL AFTER `raw`"
    assert runner.run(ddl).statements == (added,)
    assert runner.had_run(intent, ddl, None)
    runner.close()


def test_shapes_tell_such_octets_apart(connection: Any) -> None:
    server = ddl_present.server_of(connection)
    create(connection, b"\xff")
    first = ddl_shape.read(connection, [NAME], server)
    connection.run(b"ALTER TABLE d.t MODIFY raw VARBINARY(300) NOT NULL DEFAULT '\xfe'")
    assert ddl_shape.read(connection, [NAME], server) != first


def test_every_place_that_reads_definitions(target: Target, connection: Any) -> None:
    create(connection, RAW)
    assert read_table(connection, *NAME) is not None
    present = ddl_present.read(connection, NAME, ddl_present.server_of(connection))
    assert present is not None
    connection.run(
        b"CREATE TABLE d.p (id VARBINARY(9)) PARTITION BY LIST COLUMNS (id)"
        b" (PARTITION p0 VALUES IN ('\xff'), PARTITION p1 VALUES IN ('a'))",
    )
    parted = ddl_present.read(connection, ("d", "p"), ddl_present.server_of(connection))
    assert parted is not None
    assert parted.partitions == ("p0", "p1")
    connection.run(b"CREATE VIEW d.v AS SELECT '\xff' AS x, id FROM d.t WHERE raw <> _binary'\xfe'")
    assert ddl_shape.read(connection, [("d", "v")], ddl_present.server_of(connection))["d.v"]


def test_a_refusal_with_such_octets_is_said(target: Target, connection: Any) -> None:
    create(connection, b"\xff\xfe\x80")
    with pytest.raises(SessionError) as raised:
        connection.run(b"INSERT INTO d.t (id, raw) VALUES (1, '\xff')")
    assert "CONSTRAINT_1" in safe_text(raised.value)
    query = b"ALTER TABLE d.t ADD KEY (`\xff`)".decode("utf-8", "surrogateescape")
    runner = DdlRunner(target, Schema())
    with pytest.raises(Refused, match=r"job 7"):
        runner.run(Ddl(100, 7, 7, "d", query, (NAME,), 5))
    runner.close()
    connection.rows(b"SHOW WARNINGS")


@pytest.mark.parametrize("octets", [b"\xff", "é".encode() + b"\xe9\xe8\xe7", b"\xe4\xb8", b"?\xf0\x9f"])
def test_a_statement_with_such_octets_is_waited_for(target: Target, connection: Any, octets: bytes) -> None:
    """It still runs in a session whose connection was lost."""
    statement = b"DO SLEEP(1) + (b'1' = '%b')" % octets
    with connect(target) as other:
        thread = threading.Thread(target=other.run, args=(statement,))
        thread.start()
        look = b"SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE 'DO SLEEP%'"
        while connection.rows(look) == [(0,)]:
            time.sleep(0.01)
        ddl_progress.wait_for(connection, [statement.decode("utf-8", "surrogateescape")])
        assert connection.rows(look) == [(0,)]
        thread.join()
