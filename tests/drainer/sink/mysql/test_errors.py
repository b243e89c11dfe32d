"""What passes by itself is tried again, what does not is refused; row values stay out of texts."""

from __future__ import annotations

import pymysql
import pytest

from common.errors import Unavailable
from drainer.sink.mysql.connection import Away
from drainer.sink.mysql.errors import Trouble, broken_check, broken_key, is_transient, safe_text, trouble_of

err = pymysql.err


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
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
    ],
)
def test_classes(error: BaseException, trouble: Trouble | None) -> None:
    assert trouble_of(error) is trouble
    assert is_transient(error) is (trouble is not None)


@pytest.mark.parametrize(
    ("code", "text", "shown"),
    [
        (1062, "Duplicate entry 'a'b' for key 'c' for key 'uk'", "Duplicate entry '...' for key 'uk'"),
        (1062, "Duplicate entry 'sec\nret' for key 't.u'", "Duplicate entry '...' for key 't.u'"),
        (1366, r"Incorrect string value: '\xE6' for column `d`.`t`.`a` at row 1",
         "Incorrect string value: '...' for column `d`.`t`.`a` at row 1"),
        (1292, "Incorrect datetime value: '2024-13-01' for column `d`.`t`.`a` at row 2",
         "Incorrect datetime value: '...' for column `d`.`t`.`a` at row 2"),
        (1292, "Truncated incorrect DECIMAL value: 'secret'", "Truncated incorrect DECIMAL value: '...'"),
        (1064, "error in your SQL syntax near 'VALUES (1,'secret')' at line 1",
         "error in your SQL syntax near '...' at line 1"),
        (1264, "Out of range value for column 'a' at row 3", "Out of range value for column 'a' at row 3"),
        (1146, "Table 'd.t' doesn't exist", "Table 'd.t' doesn't exist"),
    ],
)  # fmt: skip
def test_values_are_masked_and_names_are_not(code: int, text: str, shown: str) -> None:
    error = err.OperationalError(code, text)
    found = safe_text(error)
    assert "secret" not in found
    assert found == f"{code}: {shown}"
    assert safe_text(error, values=True) == f"{code}: {text}"


@pytest.mark.parametrize(
    ("code", "text", "key", "check"),
    [
        (1062, "Duplicate entry 'a'b' for key 'c' for key 'uk'", "uk", ""),
        (1062, "Duplicate entry '1-\n2' for key 't.u k'", "t.u k", ""),
        (4025, "CONSTRAINT `a``b` failed for `d`.`t`", "", "a`b"),
        (3819, "Check constraint 't_chk_1' is violated.", "", "t_chk_1"),
        (1452, "a foreign key constraint fails (`d`.`t`, CONSTRAINT `f` ...)", "", ""),
        (1062, "something else", "", ""),
    ],
)
def test_the_constraint_that_a_row_breaks(code: int, text: str, key: str, check: str) -> None:
    error = err.IntegrityError(code, text)
    assert (broken_key(error), broken_check(error)) == (key, check)
