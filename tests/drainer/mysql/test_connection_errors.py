"""Every error of PyMySQL leaves a connection as one of our own, with the number and text of the server."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pymysql
import pytest

from drainer.mysql.connection import Away, Connection, own_error, own_errors
from drainer.mysql.errors import (
    NUMBERS,
    CommitUnknown,
    ConnectionLost,
    SessionError,
    StatementRefused,
    TransientError,
    Trouble,
    trouble_of,
)
from tests.cases import case
from tidb_binlog.errors import Unavailable

err = pymysql.err
CLASSES = [kind for _, kind in inspect.getmembers(err, inspect.isclass) if issubclass(kind, err.MySQLError)]


def test_classes() -> None:
    for error, trouble in [
        (err.OperationalError(2013, "Lost connection"), Trouble.CONNECTION),
        (err.OperationalError(2006, "gone away"), Trouble.CONNECTION),
        (err.InterfaceError(0, ""), Trouble.CONNECTION),
        (err.InternalError("Packet sequence number wrong - got 3 expected 1"), Trouble.CONNECTION),
        (ConnectionResetError(104, "reset"), Trouble.CONNECTION),
        (TimeoutError("timed out"), Trouble.CONNECTION),
        (err.OperationalError(1053, "shutdown"), Trouble.RESTART),
        (err.OperationalError(1290, "--read-only"), Trouble.READ_ONLY),
        (err.InternalError(1836, "read only"), Trouble.READ_ONLY),
        (err.OperationalError(1040, "Too many connections"), Trouble.CONNECTIONS),
        (Away("away", hint="", code=1040), Trouble.CONNECTIONS),
        (Away("away", hint="", code=2003), Trouble.CONNECTION),
        (Unavailable("another"), Trouble.CONNECTION),
        (err.OperationalError(1213, "Deadlock"), Trouble.LOCK),
        (err.OperationalError(1205, "Lock wait"), Trouble.LOCK),
        (err.OperationalError(1180, "commit"), Trouble.COMMIT),
        (err.InternalError(9007, "Write conflict"), Trouble.STORE),
        (err.InternalError(8028, "schema is changed"), Trouble.STORE),
        (err.IntegrityError(1062, "Duplicate"), None),
        (err.ProgrammingError(1146, "no table"), None),
        (err.OperationalError(1054, "no column"), None),
        (err.DataError(1264, "out of range"), None),
        (err.DataError(1366, "incorrect"), None),
        (err.ProgrammingError(1064, "syntax"), None),
        (err.OperationalError(1153, "packet"), None),
        (ValueError("ours"), None),
    ]:
        with case(error, trouble):
            own = own_error(error) if isinstance(error, err.MySQLError | OSError) else error
            assert trouble_of(own) is trouble


@pytest.mark.parametrize("kind", [*CLASSES, OSError, ConnectionResetError, TimeoutError])
def test_every_class_is_mapped_with_its_number_and_text(kind: type[Exception]) -> None:
    for number in (0, 1, 1062, 1146, *(number for numbers in NUMBERS.values() for number in numbers)):
        with pytest.raises(SessionError) as raised, own_errors():
            raise kind(number, "text")
        own = raised.value
        assert (own.number, own.text, str(own)) == (number, "text", f"({number}, 'text')")
        assert type(own.__cause__) in (kind, type(kind(number, "text")))  # OSError has subclasses by number
        assert isinstance(own, StatementRefused) is not isinstance(own, TransientError)


def test_there_are_as_many_classes_as_the_library_had_when_they_were_mapped() -> None:
    assert {kind.__name__ for kind in CLASSES} == {
        *("MySQLError", "Warning", "Error", "InterfaceError", "DatabaseError", "DataError"),
        *("OperationalError", "IntegrityError", "InternalError", "ProgrammingError", "NotSupportedError"),
    }


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(KeyError), own_errors():
        raise KeyError(1)


CALLS: dict[str, Callable[[Connection], object]] = {
    "run": lambda connection: connection.run(b"DO 1"),
    "rows": lambda connection: connection.rows(b"SELECT 1"),
    "rows_if_there": lambda connection: connection.rows_if_there(b"SELECT 1"),
    "rows_by_name": lambda connection: connection.rows_by_name(b"SELECT 1"),
    "printed": lambda connection: connection.printed(b"SELECT 1"),
    "stream_printed": lambda connection: list(connection.stream_printed(b"SELECT 1")),
    "begin": lambda connection: connection.begin(),
    "commit": lambda connection: connection.commit(),
    "rollback": lambda connection: connection.rollback(),
    "next_result": lambda connection: connection.next_result(),
    "autocommit": lambda connection: connection.autocommit(True),
    "connect": lambda connection: connection.connect(),
}


@pytest.mark.parametrize("name", CALLS)
def test_whatever_is_asked_of_a_lost_connection(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = Connection(host="127.0.0.1", port=1, defer_connect=True)
    connection.server_status = 0
    monkeypatch.setattr(connection, "_read_query_result", _no_socket)
    with pytest.raises(ConnectionLost) as raised:
        CALLS[name](connection)
    assert isinstance(raised.value, CommitUnknown) is (name == "commit")
    connection.close()
    connection.close()


def _no_socket(**_: object) -> None:
    raise err.InterfaceError(0, "")
