"""Epochs: which schema changes a replay runs."""

from __future__ import annotations

from drainer.changes.statement_effect import pb_ddl
from drainer.reading.archive.files.selection import Selection
from drainer.spark.replay.epochs import is_wanted


def test_a_statement_without_names_is_run_whatever_tables_are_replayed() -> None:
    """Leaving it out would be silent."""
    selection = Selection(tables=("shop.orders",))
    for query, wanted in {
        b"use `shop`; ALTER SOMETHING strange;": True,
        b"use `shop`; CREATE TABLE orders (a INT);": True,
        b"use `shop`; CREATE TABLE other (a INT);": False,
        b"DROP DATABASE shop;": False,
    }.items():
        assert is_wanted(pb_ddl(5, query), selection) == wanted
