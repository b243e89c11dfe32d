"""Statements with which an application makes the model's changes in a database of its own. Pure.

In     one row change
Out    SQL with places for values, and the values
Holds  a statement changes exactly one row: the one with the primary key, or without one a row of these values
Why    a server takes `ab` and `ab ` for one text, so values of a table without a key are compared as bytes
Tests  tests/rig/workload/test_application.py
"""

from __future__ import annotations

from tests.rig.workload.kinds import Value
from tests.rig.workload.model import DELETE, INSERT, Change, Row
from tests.rig.workload.tables import Column, Table

Statement = tuple[str, tuple[Value, ...]]


def statement(change: Change) -> Statement:
    """The statement of one change."""
    table = f"`{change.table.schema}`.`{change.table.name}`"
    if change.kind == INSERT:
        assert change.new is not None
        return insertion(change.table, [change.new])
    assert change.old is not None
    where, found = _where(change.table, change.old)
    if change.kind == DELETE:
        return f"DELETE FROM {table} WHERE {where}", found
    assert change.new is not None
    pairs = zip(change.table.columns, change.old, change.new, strict=True)
    changed = [(column.name, new) for column, old, new in pairs if old != new]
    settings = ", ".join(f"`{name}` = %s" for name, _ in changed)
    return f"UPDATE {table} SET {settings} WHERE {where}", (*(value for _, value in changed), *found)


def insertion(table: Table, rows: list[Row]) -> Statement:
    """One INSERT of several rows."""
    names = ", ".join(f"`{name}`" for name in table.column_names)
    places = f"({', '.join(['%s'] * len(table.columns))})"
    text = f"INSERT INTO `{table.schema}`.`{table.name}` ({names}) VALUES {', '.join([places] * len(rows))}"
    return text, tuple(value for row in rows for value in row)


def _where(table: Table, row: Row) -> Statement:
    if table.primary:
        found = tuple(row[table.position(name)] for name in table.primary)
        return " AND ".join(f"`{name}` = %s" for name in table.primary), found
    parts = [_same(column, value) for column, value in zip(table.columns, row, strict=True)]
    return " AND ".join(text for text, _ in parts) + " LIMIT 1", tuple(value for _, value in parts)


def _same(column: Column, value: Value) -> tuple[str, Value]:
    """What is true of exactly this value, to the last byte."""
    if value is None or isinstance(value, bytes):
        return f"`{column.name}` <=> %s", value
    return f"CAST(CAST(`{column.name}` AS CHAR) AS BINARY) <=> %s", str(value).encode()
