"""Given up: constraints that the upstream no longer checks, though the binlog that drops them is to come.

In     a table's definition as its rows are read, the definition that a later job leaves or is at now, and a
       constraint of the downstream
Out    whether the upstream holds it no more
Why    TiDB drops an index in steps: from delete-only on nothing is checked, and the job's binlog comes at its
       end. Rows of between break the key downstream. A job that has come so far is never rolled back

A unique key downstream is guaranteed by a unique index upstream on the same columns or some of them. Only
public ones count. Columns go by their ids, names may have changed.
Tests  tests/drainer/ddl/quarantine/test_early_drop.py
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import Any, Final

from tidb_binlog.ddl_job import ActionType
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.table_info import SchemaState, TableInfo

_ENDS_CHECKS: Final = frozenset(
    {
        ActionType.DROP_COLUMN,
        ActionType.DROP_COLUMNS,
        ActionType.DROP_CHECK_CONSTRAINT,
        ActionType.ALTER_CHECK_CONSTRAINT,
        ActionType.MULTI_SCHEMA_CHANGE,
    }
)


class Kind(Enum):
    UNIQUE = auto()
    CHECK = auto()


@dataclass(frozen=True, slots=True)
class Constraint:
    """Of the downstream. `columns`: of a unique key, in lower case; empty where it has an expression."""

    kind: Kind
    name: str
    columns: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Later:
    """The next definition of a table: what a job leaves, or is at. `document` is TableInfo as JSON."""

    job_id: int
    action: int
    document: dict[str, Any]
    query: str = ""


def is_given_up(constraint: Constraint, before: TableInfo, later: Later) -> bool:
    """Whether it held for rows of `before` and does not for those of `later`."""
    if constraint.kind is Kind.CHECK:
        return later.action in _ENDS_CHECKS and not _is_checked(later.document, constraint.name)
    after = TableInfo.from_json(later.document)
    if not constraint.columns:
        was = {index.id for index in before.unique_indexes if index.name.lower() == constraint.name.lower()}
        return bool(was) and not was & {index.id for index in after.unique_indexes}
    names = {column.id: column.name.lower() for column in before.columns}
    called = {column.name.lower(): names.get(column.id, column.name.lower()) for column in after.columns}
    held = (frozenset(called.get(name, name) for name in columns) for columns in _unique(after))
    return _guaranteed(constraint, _unique(before)) and not _guaranteed(constraint, held)


def _guaranteed(constraint: Constraint, unique: Iterable[frozenset[str]]) -> bool:
    return any(columns <= constraint.columns for columns in unique)


def _unique(info: TableInfo) -> list[frozenset[str]]:
    """Columns, in lower case, of each key that is checked."""
    keys = [frozenset(part.name.lower() for part in index.columns) for index in info.unique_indexes]
    handle = info.handle_column
    return keys if handle is None else [*keys, frozenset({handle.name.lower()})]


def _is_checked(document: dict[str, Any], name: str) -> bool:
    for entry in document.get("constraint_info") or ():
        called = entry.get("constraint_name") or entry.get("name") or {}
        if str(called.get("O") or "").lower() == name.lower():
            return int(entry.get("state") or 0) == SchemaState.PUBLIC and bool(entry.get("enforced", True))
    return False
