"""Told effect: what a DDL does to rows, as a message says it.

Out    the field `ddl` of `_tidb`, one document in all formats of JSON
Tests  tests/drainer/formats/messages/test_told_effect.py
"""

from __future__ import annotations

from typing import Any

from drainer.changes.model import Ddl, Table


def told_effect(change: Ddl) -> dict[str, Any]:
    """What it does to rows. Tables and columns have their ids, which stay when names change."""

    def names(table: Table) -> dict[str, Any]:
        return {"id": table.id, "database": table.schema, "table": table.name}

    def columns(table: Table) -> list[dict[str, Any]]:
        return [{"id": column.id, "name": column.name} for column in table.columns]

    effect = change.effect
    return {
        "kind": change.kind,
        "tables": [{**names(table), "columns": columns(table)} for table in change.after],
        "moved": [{"from": names(old), "to": names(new)} for old, new in effect.moved],
        "emptied": [names(table) for table in effect.emptied],
        "reread": [names(table) for table in effect.reread],
        "everything": effect.everything,
    }
