"""Which constraint rows break, and the wait for the answer whether it is still there."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest

from drainer.mysql.errors import session_error
from drainer.mysql.refusal import answer, refusal_of
from drainer.mysql.rows.table_target import target_of
from drainer.txn import TableVersion
from tidb_binlog.table_info import LONG, Column, FieldType, TableInfo

TABLE = target_of(TableVersion(TableInfo(1, "t", (Column(1, "id", 0, FieldType(LONG)),)), "d", "t", 1), 1)


@pytest.mark.parametrize(
    ("number", "text", "name", "is_check"),
    [
        (1062, "Duplicate entry 'a' for key 't.u'", "t.u", False),
        (1062, "Duplicate entry 'a' for key 'u'", "u", False),
        (4025, "CONSTRAINT `c` failed for `d`.`t`", "c", True),
    ],
)
def test_the_constraint_is_named(number: int, text: str, name: str, is_check: bool) -> None:
    found = refusal_of(session_error((number, text)), TABLE, 5, 9)
    assert found is not None
    assert (found.name, found.is_check, found.first_ts, found.last_ts) == (name, is_check, 5, 9)
    assert found.is_about("U") is not is_check
    assert not found.is_about("other")


def test_whatever_else_is_refused_of_a_table_is_told_apart_by_its_number() -> None:
    for number in (1030, 1048, 1064, 1105, 1142, 1143, 1197, 1264, 1292, 1366, 1406, 1526, 1690, 3140, 8025):
        found = refusal_of(session_error((number, "no")), TABLE, 5, 9)
        assert found is not None
        assert (found.name, found.what, found.last_ts) == ("", number, 9)
        assert not found.is_about(""), "no key of the table's"


def test_what_any_table_would_get_is_no_refusal() -> None:
    for number in (0, 1045, 1227, 1665, 1205, 2013):
        assert refusal_of(session_error((number, "no")), TABLE, 5, 9) is None
    assert refusal_of(session_error(("packet sequence",)), TABLE, 5, 9) is None
    assert refusal_of(session_error((1062, "Duplicate entry 'a' for key 'u'")), None, 5, 9) is None


@pytest.mark.parametrize("gone", [True, False])
def test_an_answer_is_taken_as_it_is(gone: bool) -> None:
    asked: Future[bool] = Future()
    asked.set_result(gone)
    assert answer(asked, threading.Event()) is gone


def test_a_lane_that_ends_waits_for_no_answer() -> None:
    asked: Future[bool] = Future()
    abandoned = threading.Event()
    abandoned.set()
    assert answer(asked, abandoned) is False
    assert asked.cancelled()
