"""Frames: changes of an archive as pandas and polars have them, and asked by SQL.

Out    a DataFrame, or DuckDB's relation
Holds  what a query names is taken into DuckDB once, so that it may be named twice. What cannot be read of the
       archive is told as by every other reader, not in an error of DuckDB's
Needs  the extra of its name: pandas, polars, duckdb

Tests  tests/drainer/reading/archive/test_frames.py
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tidb_binlog.errors import ConfigError

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa

CHANGES: Final = "changes"


def library(name: str) -> Any:
    """A package. Raises `ConfigError` that says how to get it."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{error.name} is not installed", hint=f"pip install 'tidb-binlog[{name}]'"
        ) from None


def pandas_frame(reader: pa.RecordBatchReader) -> pd.DataFrame:
    """A column of each column of an image ("after.id"). By Arrow's types integers beside nulls stay exact."""
    pandas = library("pandas")
    frame: pd.DataFrame = reader.read_all().flatten().to_pandas(types_mapper=pandas.ArrowDtype)
    return frame


def polars_frame(reader: pa.RecordBatchReader) -> pl.DataFrame:
    """Images are structs."""
    frame: pl.DataFrame = library("polars").from_arrow(reader.read_all())
    return frame


def query(text: str, changes: Callable[[str], pa.RecordBatchReader]) -> duckdb.DuckDBPyRelation:
    """What DuckDB answers. `changes` reads those of a table, or of all ("")."""
    engine = library("duckdb")
    connection: duckdb.DuckDBPyConnection = engine.connect()
    try:
        named = {
            (schema.lower(), table.lower()): (schema, table) for schema, table in _tables(connection, text)
        }
        for schema, table in named.values():
            source, target = changes(f"{schema}.{table}" if schema else ""), _quoted(table)
            if schema:
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_quoted(schema)}")
                target = f"{_quoted(schema)}.{target}"
            connection.register("batch", source.schema.empty_table())
            connection.execute(f"CREATE TABLE {target} AS SELECT * FROM batch")
            for batch in source:
                connection.register("batch", batch)
                connection.execute(f"INSERT INTO {target} SELECT * FROM batch")
            connection.unregister("batch")
        return connection.sql(text)
    except engine.Error as error:
        hint = f"name tables as database.table, or those of all as {CHANGES}"
        raise ConfigError(f"the query cannot be answered: {error}", hint=hint) from None


def _tables(connection: duckdb.DuckDBPyConnection, text: str) -> Iterator[tuple[str, str]]:
    """Schema and name of each table that a SELECT names, by DuckDB's own parser; "" and `changes`."""
    ((parsed,),) = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchall()
    waiting: list[Any] = [json.loads(parsed)]
    if waiting[0].get("error"):
        raise ConfigError(
            f"the query cannot be answered: {waiting[0]['error_message']}", hint="write a SELECT"
        )
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            waiting += node.values()
            if node.get("type") == "BASE_TABLE":
                catalog, schema, table = (node[f"{part}_name"] for part in ("catalog", "schema", "table"))
                if not catalog and (schema or table.lower() == CHANGES):
                    yield schema, table


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
