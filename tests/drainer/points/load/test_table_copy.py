"""What is said of a table that the upstream refuses to read."""

from __future__ import annotations

import pytest

from drainer.mysql.errors import StatementRefused
from drainer.points.load.table_copy import NotAsPublished, unreadable
from tidb_binlog.errors import Rejected


@pytest.mark.parametrize("number", [1054, 1072, 1146, 1176])
def test_what_was_altered_may_be_right_a_moment_later(number: int) -> None:
    error = unreadable("shop.orders", StatementRefused(number, "it is not there"))
    assert isinstance(error, NotAsPublished)
    assert "upstream table shop.orders was altered" in error.message


def test_what_is_not_allowed_stays_so() -> None:
    error = unreadable("shop.orders", StatementRefused(1142, "SELECT command denied"))
    assert isinstance(error, Rejected)
    assert error.message == "the upstream does not let shop.orders be read: 1142: SELECT command denied"
    assert error.hint.startswith("check the rights of the user in [syncer.from]")
