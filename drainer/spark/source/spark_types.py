"""Spark types: the schemas of views, as Spark calls them, and back.

Why    what a column is was decided once, for Arrow (`column_types`, the views); Spark's types follow from it
Tests  tests/spark/source/test_source.py
"""

from __future__ import annotations

from inspect import signature
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

# Older releases of PySpark 4 have no choice but UTC.
_ZONE: Final[Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}


def quoted(name: str) -> str:
    """A column's name in an expression of Spark, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def struct_of(schema: pa.Schema) -> StructType:
    """A DATETIME has no zone, and stays so."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def arrow_schema(columns: StructType) -> pa.Schema:
    """What Spark takes batches of, to the letter."""
    return to_arrow_schema(columns, **_ZONE)
