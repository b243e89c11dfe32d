"""One connection, made when it is needed and dropped after any error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace

import pytest

from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.errors import ConnectionLost, SessionError, StatementRefused, TransientError
from drainer.mysql.rows.change import PUT_INSERT
from drainer.mysql.rows.row_fold import fold
from drainer.mysql.rows.statement import statements
from drainer.mysql.rows.table_target import target_of
from drainer.mysql.session import DownstreamSession, run
from drainer.mysql.session_mode import DEFAULT, SessionMode
from drainer.txn import TableVersion
from tests.common.rowcodec.tables import key, kind, table
from tidb_binlog.errors import Conflict, Unavailable
from tidb_binlog.rowcodec.encoder import RowEncoder

pytestmark = pytest.mark.integration


@pytest.fixture
def session(target: Target) -> Iterator[DownstreamSession]:
    session = DownstreamSession(target)
    yield session
    session.close()


def test_it_is_one_connection_as_long_as_nothing_fails(session: DownstreamSession) -> None:
    assert session.current is None
    with session.connection() as first, session.connection() as second:
        assert first is second is session.open() is session.current


@pytest.mark.parametrize("error", [Conflict("ours"), KeyError(1), StatementRefused(1064, "syntax")])
def test_any_error_drops_it(session: DownstreamSession, error: Exception) -> None:
    first = session.open()
    with pytest.raises(type(error)), session.connection():
        raise error
    assert session.current is None
    with pytest.raises(ConnectionLost):
        first.run(b"DO 1")
    assert session.open().rows(b"SELECT 1") == [(1,)]


def test_what_prepares_it_is_done_on_every_connection_and_may_forbid_it(target: Target) -> None:
    prepared: list[Connection] = []
    allowed = True

    def prepare(connection: Connection) -> None:
        prepared.append(connection)
        if not allowed:
            raise Conflict("a newer one is at work")

    session = DownstreamSession(target, prepare)
    first = session.open()
    assert session.open() is first
    session.close()
    second = session.open()
    assert prepared == [first, second]
    session.close()
    allowed = False
    with pytest.raises(Conflict):
        session.open()
    assert session.current is None
    with pytest.raises(ConnectionLost):
        prepared[-1].run(b"DO 1")


def test_it_is_kept_where_a_roll_back_is_enough(session: DownstreamSession, target: Target) -> None:
    assert not session.roll_back(), "there is nothing to keep"
    first = session.open()
    assert session.roll_back()
    assert session.current is first
    with connect(target) as other:
        other.run(b"KILL CONNECTION %d" % first.session_id)
    assert not session.roll_back()
    assert session.current is None


DEADLOCK = b"SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO=1213, MESSAGE_TEXT='deadlock'"


@pytest.mark.parametrize(("statement", "error"), [(DEADLOCK, TransientError), (b"SELEC", StatementRefused)])
def test_it_is_strict_again_after_an_error_among_lax_values(
    session: DownstreamSession, statement: bytes, error: type[SessionError]
) -> None:
    connection = session.open()
    ((strict,),) = connection.rows(b"SELECT @@SESSION.sql_mode")
    with pytest.raises(error):
        connection.run_lax(statement, DEFAULT)
    assert session.roll_back()
    assert session.open().rows(b"SELECT @@SESSION.sql_mode") == [(strict,)]


@pytest.mark.parametrize(
    ("row", "number"),
    [
        ("0,'abc',1,7", 0),
        ("0,x'80',1,7", 1366),
        ("0,'abcd',1,7", 1265),
        ("0,'abc',NULL,7", 1048),
        ("0,'abc',1,300", 1264),
    ],
)
def test_no_other_value_than_that_of_an_enum_is_changed_among_lax_ones(
    session: DownstreamSession, row: str, number: int
) -> None:
    connection = session.open()
    connection.run(b"CREATE DATABASE d")
    connection.run(b"CREATE TABLE d.lax (E ENUM('a','e'), e1 VARCHAR(3), n INT NOT NULL, t TINYINT)")
    try:
        statement = f"INSERT INTO d.lax VALUES (1,'x',1,1),{','.join([f'({row})'] * 70)}".encode()
        if not number:
            assert connection.run_lax(statement, DEFAULT, ["e"]) == 71
            assert connection.rows(b"SELECT SUM(E=0) FROM d.lax") == [(70,)]
        else:
            with pytest.raises(StatementRefused) as refused:
                connection.run_lax(statement, DEFAULT, ["e"])
            assert refused.value.number in (number, 1406)
            assert connection.run_lax(statement, DEFAULT) == 71
        assert b"STRICT" in str(connection.rows(b"SELECT @@SESSION.sql_mode")).encode()
    finally:
        connection.run(b"DROP DATABASE d")


def test_a_row_with_an_enum_without_element_and_a_text_that_is_none_is_refused(
    session: DownstreamSession,
) -> None:
    """A TiDB that skips its check of UTF-8 has both; the text became a question mark, and nothing said so."""
    info = table(("id", key("bigint")), ("e", kind("enum", elems=("a",))), ("s", kind("varchar", flen=9)))
    version = target_of(TableVersion(info, "d", "t", 1), 1)
    connection = session.open()
    connection.run(b"CREATE DATABASE d")
    try:
        connection.run(b"CREATE TABLE d.t (id BIGINT PRIMARY KEY, e ENUM('a'), s VARCHAR(9))")
        for number, text in ((1, "fits"), (2, b"\x80")):
            row = RowEncoder(info).insert((number, 0, text))
            change = (version, PUT_INSERT, b"%d" % number, row, 0)
            (statement,) = statements(fold([change]), 1 << 20, replaying=False)
            assert statement.lax
            with nullcontext() if number == 1 else pytest.raises(StatementRefused, match="Incorrect string"):
                assert run(connection, statement, DEFAULT) == 1
    finally:
        connection.run(b"DROP DATABASE d")


def test_it_is_closed_where_it_cannot_be_made_strict(session: DownstreamSession) -> None:
    connection = session.open()
    with pytest.raises(StatementRefused, match="SELEC"):
        connection.run_lax(b"SELEC", SessionMode("NO_SUCH_MODE"))
    assert not session.roll_back()


def test_another_target_counts_from_the_next_connection_on(
    session: DownstreamSession, target: Target
) -> None:
    first = session.open()
    session.target = replace(target, socket="", host="127.0.0.1", port=1)
    assert session.open() is first
    session.close()
    session.close()
    with pytest.raises(Unavailable):
        session.open()
