"""Debezium schema changes: what a DDL did, with the tables as they are after it.

In     a DDL with the tracked definitions before and after it
Out    key and value of Debezium's schema change message
Tests  tests/drainer/formats/messages/test_debezium_json.py
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drainer.formats.messages.canal_columns import java_type, plain_type
from drainer.formats.messages.debezium_schema import SCHEMA_CHANGE, SCHEMA_CHANGE_KEY, Schema
from drainer.txn import Ddl, Tracked
from tidb_binlog import table_info as ti
from tidb_binlog.table_info import Column, ColumnKind, TableInfo
from tidb_binlog.type_text import type_text

Name = tuple[str, str]


def schema_change(
    ddl: Ddl, text: str, database: str, source: Schema, ms: int, *, with_schema: bool
) -> tuple[Schema, Schema]:
    """Key and value. `database` is the one that is named, `text` the statement as it is written."""
    key: Schema = {"databaseName": database}
    value: Schema = {
        "source": source,
        "ts_ms": ms,
        "databaseName": database,
        "schemaName": None,
        "ddl": text,
        "tableChanges": list(_changes(ddl)),
    }
    if not with_schema:
        return key, value
    return {"schema": SCHEMA_CHANGE_KEY, "payload": key}, {"schema": SCHEMA_CHANGE, "payload": value}


def _changes(ddl: Ddl) -> Iterator[Schema]:
    """Tables only: Debezium says nothing of views."""
    names = dict(zip(ddl.tables, ddl.targets, strict=True)) if ddl.targets else {}
    before = {one.id: one for one in ddl.before if _is_table(one)}
    after = {one.id: one for one in ddl.after if _is_table(one)}
    by_name = {(one.schema, one.name) for one in after.values()}
    for table_id, gone in before.items():
        if table_id not in after and (gone.schema, gone.name) not in by_name:
            yield {"type": "DROP", "id": _quoted(_name(gone, names)), "table": None}
    for table_id, now in after.items():
        was = before.get(table_id)
        name = _name(now, names)
        shown = _quoted(name)
        if was is not None and _name(was, names) != name:
            shown = f"{shown},{_quoted(_name(was, names))}"
        made = was is None and (now.schema, now.name) not in {(o.schema, o.name) for o in before.values()}
        yield {"type": "CREATE" if made else "ALTER", "id": shown, "table": _table(now)}


def _is_table(tracked: Tracked) -> bool:
    return tracked.document.get("view") is None and tracked.document.get("sequence") is None


def _name(tracked: Tracked, names: dict[Name, Name]) -> Name:
    here = (tracked.schema, tracked.name)
    return names.get(here, here)


def _quoted(name: Name) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in name)


def _table(tracked: Tracked) -> Schema:
    info = TableInfo.from_json(tracked.document)
    ordered = [
        column
        for column in sorted(info.columns, key=lambda column: column.offset)
        if column.state == ti.SchemaState.PUBLIC and not column.hidden
    ]
    comments = {one["id"]: one.get("comment") or None for one in tracked.document.get("cols") or ()}
    return {
        "defaultCharsetName": info.charset,
        "primaryKeyColumnNames": _primary_key(info),
        "columns": [
            _column(column, position, comments.get(column.id)) for position, column in enumerate(ordered, 1)
        ],
        "comment": tracked.document.get("comment") or None,
    }


def _primary_key(info: TableInfo) -> list[str]:
    if info.handle_column is not None:
        return [info.handle_column.name]
    index = info.primary_index
    return [part.name for part in index.columns] if index is not None else []


def _column(column: Column, position: int, comment: str | None) -> dict[str, Any]:
    kind = column.type
    known = kind.kind is not ColumnKind.UNKNOWN
    sized = kind.tp in (ti.VARCHAR, ti.VAR_STRING, ti.STRING, ti.DECIMAL, ti.BIT)
    return {
        "name": column.name,
        "jdbcType": java_type(kind),
        "nativeType": None,
        "typeName": plain_type(kind).upper() if known else f"UNKNOWN {kind.tp}",
        "typeExpression": type_text(kind).upper() if known and not kind.elems else None,
        "charsetName": kind.charset if kind.charset not in ("", "binary") else None,
        "length": kind.flen if sized and kind.flen >= 0 else None,
        "scale": kind.fsp if kind.tp == ti.DECIMAL else None,
        "position": position,
        "optional": not kind.not_null,
        "autoIncremented": bool(kind.flag & ti.FLAG_AUTO_INCREMENT),
        "generated": bool(column.generated),
        "comment": comment,
        "defaultValueExpression": column.default,
        "enumValues": [f"'{element}'" for element in kind.elems] or None,
    }
