"""What an error means is decided by its number; row values stay out of texts."""

from __future__ import annotations

import pytest

from drainer.mysql.errors import (
    ConnectionLost,
    NoSuchTable,
    StatementRefused,
    TransientError,
    Trouble,
    broken_check,
    broken_key,
    final_error,
    safe_text,
    session_error,
    trouble_of,
)
from tidb_binlog.errors import Unavailable


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ((2013, "Lost connection"), ConnectionLost),
        ((1927, "Connection was killed"), ConnectionLost),
        ((1213, "Deadlock"), TransientError),
        ((9007, "Write conflict"), TransientError),
        ((1049, "Unknown database 'd'"), NoSuchTable),
        ((1146, "Table 'd.t' doesn't exist"), NoSuchTable),
        ((1062, "Duplicate entry"), StatementRefused),
        (("Already closed",), StatementRefused),
        ((), StatementRefused),
    ],
)
def test_what_a_number_means(arguments: tuple[object, ...], kind: type[Exception]) -> None:
    error = session_error(arguments)
    assert type(error) is kind
    assert error.args == arguments
    assert error.number == (arguments[0] if len(arguments) > 1 else 0)
    assert isinstance(error, TransientError) is (trouble_of(error) is not None)


def test_what_is_none_of_a_session_does_not_pass() -> None:
    assert trouble_of(ValueError("ours")) is None
    assert trouble_of(Unavailable("another")) is Trouble.CONNECTION
    assert safe_text(Unavailable("away", hint="wait")) == "away (wait)"


def test_a_final_error_masks_row_values() -> None:
    refused = final_error(session_error((1062, "Duplicate entry 'a' for key 'u'")), "storing")
    assert refused.message == "storing: downstream says 1062: Duplicate entry '...' for key 'u'"


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
    error = session_error((code, text))
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
    error = session_error((code, text))
    assert (broken_key(error), broken_check(error)) == (key, check)
