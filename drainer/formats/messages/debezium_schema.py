"""Debezium schemas: Kafka Connect's description of the envelope, its source and a schema change.

In     the fields of a row
Out    schemas as JSON documents
Tests  tests/drainer/formats/messages/test_debezium_json.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

Schema = dict[str, Any]
WATERMARK_KEY: Final = "watermark.Key"


def one(field: str, kind: str, /, *, optional: bool = False, **more: Any) -> Schema:
    """A field."""
    return {"type": kind, "optional": optional, "field": field, **more}


def struct(name: str, fields: Sequence[Schema], *, optional: bool = False, **more: Any) -> Schema:
    return {"type": "struct", "fields": list(fields), "optional": optional, "name": name, **more}


def array(name: str, items: Schema, *, optional: bool = False) -> Schema:
    return {"type": "array", "items": items, "optional": optional, "field": name}


_SNAPSHOT: Final = one(
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
        one("version", "string"),
        one("connector", "string"),
        one("name", "string"),
        one("ts_ms", "int64"),
        _SNAPSHOT,
        one("db", "string"),
        one("table", "string", optional=True),
        one("server_id", "int64"),
        one("gtid", "string", optional=True),
        one("file", "string"),
        one("pos", "int64"),
        one("row", "int32"),
        one("thread", "int64", optional=True),
        one("query", "string", optional=True),
        one("commit_ts", "int64", optional=True),
        one("cluster_id", "string", optional=True),
    ],
    field="source",
)
_TRANSACTION: Final = struct(
    "event.block",
    [one("id", "string"), one("total_order", "int64"), one("data_collection_order", "int64")],
    optional=True,
    version=1,
    field="transaction",
)
_OP: Final = one("op", "string")
_TS: Final = one("ts_ms", "int64", optional=True)


def envelope_schema(name: str, fields: Sequence[Schema]) -> Schema:
    """Of the messages of a table, whose full name is given."""
    images = [struct(f"{name}.Value", fields, optional=True, field=image) for image in ("before", "after")]
    return struct(f"{name}.Envelope", [*images, SOURCE, _OP, _TS, _TRANSACTION], version=1)


def watermark_schema(cluster: str) -> Schema:
    return struct(f"{cluster}.watermark.Envelope", [SOURCE, _OP, _TS, _TRANSACTION], version=1)


_TEXT: Final = {"type": "string", "optional": False}
_COLUMN: Final = struct(
    "io.debezium.connector.schema.Column",
    [
        one("name", "string"),
        one("jdbcType", "int32"),
        one("nativeType", "int32", optional=True),
        one("typeName", "string"),
        one("typeExpression", "string", optional=True),
        one("charsetName", "string", optional=True),
        one("length", "int32", optional=True),
        one("scale", "int32", optional=True),
        one("position", "int32"),
        one("optional", "boolean", optional=True),
        one("autoIncremented", "boolean", optional=True),
        one("generated", "boolean", optional=True),
        one("comment", "string", optional=True),
        one("defaultValueExpression", "string", optional=True),
        array("enumValues", _TEXT, optional=True),
    ],
    version=1,
)
_TABLE: Final = struct(
    "io.debezium.connector.schema.Table",
    [
        one("defaultCharsetName", "string", optional=True),
        array("primaryKeyColumnNames", _TEXT, optional=True),
        array("columns", _COLUMN),
        one("comment", "string", optional=True),
    ],
    optional=True,
    version=1,
    field="table",
)
_CHANGE: Final = struct(
    "io.debezium.connector.schema.Change", [one("type", "string"), one("id", "string"), _TABLE], version=1
)
SCHEMA_CHANGE_KEY: Final = struct(
    "io.debezium.connector.mysql.SchemaChangeKey", [one("databaseName", "string")], version=1
)
SCHEMA_CHANGE: Final = struct(
    "io.debezium.connector.mysql.SchemaChangeValue",
    [
        SOURCE,
        one("ts_ms", "int64"),
        one("databaseName", "string", optional=True),
        one("schemaName", "string", optional=True),
        one("ddl", "string", optional=True),
        array("tableChanges", _CHANGE),
    ],
    version=1,
)
