"""What is downstream under a name."""

from __future__ import annotations

from typing import Any, cast

import pytest

from drainer.mysql.connection import Connection
from drainer.points.load.preparing import present


class Server:
    """Has the table `orders`, with a row."""

    def __init__(self, folds: int) -> None:
        self._folds = folds

    def rows(self, query: bytes) -> list[tuple[Any, ...]]:
        if b"lower_case_table_names" in query:
            return [(self._folds,)]
        return [("orders", "BASE TABLE")] if b"information_schema" in query else [(1,)]


@pytest.mark.parametrize(("folds", "is_there"), [(0, False), (1, True), (2, True)])
def test_a_table_of_another_case_is_there_where_the_server_takes_both_for_one(
    folds: int, is_there: bool
) -> None:
    found = present(cast(Connection, Server(folds)), [("shop", "Orders")])
    assert [(name, there.has_rows) for name, there in found.items()] == [
        (("shop", "Orders"), True)
    ] * is_there
