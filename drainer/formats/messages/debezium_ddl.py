"""Debezium DDL: what a DDL did, with the tables as they are after it; schemas of Debezium's messages.

Out    key and value of Debezium's schema change message; Kafka Connect's description of the envelope, its
       source and a schema change
Tests  tests/drainer/formats/messages/test_debezium_json.py
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from drainer.formats.messages.canal_json import java_type, plain_type
from drainer.txn import Ddl, Tracked
from tidb_binlog import table_info as ti
from tidb_binlog.table_info import Column, ColumnKind, TableInfo
from tidb_binlog.type_text import type_text

Schema = dict[str, Any]
WATERMARK_KEY: Final = "watermark.Key"


def schema_of(field: str, kind: str, /, *, optional: bool = False, **more: Any) -> Schema:
    """A field."""
    return {"type": kind, "optional": optional, "field": field, **more}


def several(text: str) -> list[Schema]:
    """Describe fields, each by its name and its type; a question mark where the value may be null."""
    pairs = (entry.split() for entry in text.split(","))
    return [schema_of(field, kind.rstrip("?"), optional=kind.endswith("?")) for field, kind in pairs]


def struct(name: str, fields: Sequence[Schema], *, optional: bool = False, **more: Any) -> Schema:
    """Describe a record."""
    return {"type": "struct", "fields": list(fields), "optional": optional, "name": name, **more}


def array(name: str, items: Schema, *, optional: bool = False) -> Schema:
    """Describe a field with several of the same."""
    return {"type": "array", "items": items, "optional": optional, "field": name}


_SNAPSHOT: Final = schema_of(
    "snapshot",
    "string",
    optional=True,
    name="io.debezium.data.Enum",
    version=1,
    parameters={"allowed": "true,last,false,incremental"},
    default="false",
)
SOURCE: Final = struct(
    "io.debezium.connector.mysql.Source",
    [
        *several("version string, connector string, name string, ts_ms int64"),
        _SNAPSHOT,
        *several(
            "db string, table string?, server_id int64, gtid string?, file string, pos int64, row int32"
        ),
        *several("thread int64?, query string?, commit_ts int64?, cluster_id string?"),
    ],
    field="source",
)
_TRANSACTION: Final = struct(
    "event.block",
    several("id string, total_order int64, data_collection_order int64"),
    optional=True,
    version=1,
    field="transaction",
)
_OP, _TS = several("op string, ts_ms int64?")


def envelope_schema(name: str, fields: Sequence[Schema]) -> Schema:
    """Of the messages of a table, whose full name is given."""
    images = [struct(f"{name}.Value", fields, optional=True, field=image) for image in ("before", "after")]
    return struct(f"{name}.Envelope", [*images, SOURCE, _OP, _TS, _TRANSACTION], version=1)


def watermark_schema(cluster: str) -> Schema:
    """Describe a watermark."""
    return struct(f"{cluster}.watermark.Envelope", [SOURCE, _OP, _TS, _TRANSACTION], version=1)


_TEXT: Final = {"type": "string", "optional": False}
_COLUMN: Final = struct(
    "io.debezium.connector.schema.Column",
    [
        *several("name string, jdbcType int32, nativeType int32?, typeName string, typeExpression string?"),
        *several("charsetName string?, length int32?, scale int32?, position int32, optional boolean?"),
        *several("autoIncremented boolean?, generated boolean?, comment string?"),
        *several("defaultValueExpression string?"),
        array("enumValues", _TEXT, optional=True),
    ],
    version=1,
)
_TABLE: Final = struct(
    "io.debezium.connector.schema.Table",
    [
        *several("defaultCharsetName string?"),
        array("primaryKeyColumnNames", _TEXT, optional=True),
        array("columns", _COLUMN),
        *several("comment string?"),
    ],
    optional=True,
    version=1,
    field="table",
)
_CHANGE: Final = struct(
    "io.debezium.connector.schema.Change", [*several("type string, id string"), _TABLE], version=1
)
SCHEMA_CHANGE_KEY: Final = struct(
    "io.debezium.connector.mysql.SchemaChangeKey", several("databaseName string"), version=1
)
_NAMES: Final = several("id int64, database string, table string")
_NAMED: Final = struct("tidb.ddl.Name", _NAMES)
_AFTER: Final = struct(
    "tidb.ddl.Table",
    [*_NAMES, array("columns", struct("tidb.ddl.Column", several("id int64, name string")))],
)
_MOVED: Final = struct("tidb.ddl.Moved", [{**_NAMED, "field": "from"}, {**_NAMED, "field": "to"}])
_EFFECT: Final = struct(
    "tidb.ddl.Effect",
    [
        *several("kind string"),
        array("tables", _AFTER),
        array("moved", _MOVED),
        array("emptied", _NAMED),
        array("reread", _NAMED),
        *several("everything boolean"),
    ],
    field="ddl",
)
_EXTENSION: Final = struct("tidb.Extension", [*several("commitTs int64"), _EFFECT], field="_tidb")


_SCHEMA_CHANGE: Final = struct(
    "io.debezium.connector.mysql.SchemaChangeValue",
    [
        SOURCE,
        *several("ts_ms int64, databaseName string?, schemaName string?, ddl string?"),
        array("tableChanges", _CHANGE),
        _EXTENSION,
    ],
    version=1,
)


Name = tuple[str, str]


def schema_change(
    ddl: Ddl,
    text: str,
    database: str,
    source: Schema,
    ms: int,
    *,
    effect: Schema,
    with_schema: bool,
) -> tuple[Schema, Schema]:
    """Key and value. `database` is the one that is named, `text` the statement as it is written. `effect` is
    what it does to rows: Debezium's own fields say only what becomes of tables."""
    key: Schema = {"databaseName": database}
    value: Schema = {
        "source": source,
        "ts_ms": ms,
        "databaseName": database,
        "schemaName": None,
        "ddl": text,
        "tableChanges": list(_changes(ddl)),
        "_tidb": {"commitTs": ddl.commit_ts, "ddl": effect},
    }
    if not with_schema:
        return key, value
    return {"schema": SCHEMA_CHANGE_KEY, "payload": key}, {"schema": _SCHEMA_CHANGE, "payload": value}


def _changes(ddl: Ddl) -> Iterator[Schema]:
    """Tables only: Debezium says nothing of views."""
    names = dict(zip(ddl.tables, ddl.targets, strict=True)) if ddl.targets else {}
    before = {tracked.id: tracked for tracked in ddl.before if _is_table(tracked)}
    after = {tracked.id: tracked for tracked in ddl.after if _is_table(tracked)}
    by_name = {(tracked.schema, tracked.name) for tracked in after.values()}
    for table_id, gone in before.items():
        if table_id not in after and (gone.schema, gone.name) not in by_name:
            yield {"type": "DROP", "id": _quoted(_name(gone, names)), "table": None}
    for table_id, now in after.items():
        was = before.get(table_id)
        name = _name(now, names)
        shown = _quoted(name)
        if was is not None and _name(was, names) != name:
            shown = f"{shown},{_quoted(_name(was, names))}"
        is_new = was is None and (now.schema, now.name) not in {(o.schema, o.name) for o in before.values()}
        yield {"type": "CREATE" if is_new else "ALTER", "id": shown, "table": _table(now)}


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
    comments = {entry["id"]: entry.get("comment") or None for entry in tracked.document.get("cols") or ()}
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
    has_type = kind.kind is not ColumnKind.UNKNOWN
    sized = kind.tp in (ti.VARCHAR, ti.VAR_STRING, ti.STRING, ti.DECIMAL, ti.BIT)
    return {
        "name": column.name,
        "jdbcType": java_type(kind),
        "nativeType": None,
        "typeName": plain_type(kind).upper() if has_type else f"UNKNOWN {kind.tp}",
        "typeExpression": type_text(kind).upper() if has_type and not kind.elems else None,
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
