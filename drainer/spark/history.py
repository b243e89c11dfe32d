"""History: every version of rows, from when to when it was there, and which transaction made it.

Out    a data frame, one row a version: `valid_from` (commit_ts, included) to `valid_to` (commit_ts, excluded;
       null while it lasts), the change that made it, both images
Holds  a change that moves a row to another key ends the version under the old key and begins one under the
       new. What was there before the first change that is read is a version without a beginning
Why    Spark prunes no columns of a Python source and filters late: tables and times are options, which
       skip segments and rows; keys are compared before versions are put in order

In a table without a key a version is an image. Equal rows cannot be told from each other: each change of one
of them ends a version of all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tidb_binlog.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_TEXTS: Final = "map<string,string>"
_KEY_HINT: Final = """write id=5, or {"a": 1, "b": "x"}"""
_KEPT: Final = ("_schema", "_table")
_VERSION: Final = {
    "valid_from": "long",
    "valid_to": "long",
    "from_time": "timestamp",
    "to_time": "timestamp",
    "exists": "boolean",
    "_change_type": "string",
    "_commit_ts": "long",
    "_start_ts": "long",
    "_seq": "long",
    "before": "string",
    "after": "string",
    "_file": "string",
    "_pos": "long",
}
COLUMNS: Final = (*_KEPT, "key", *_VERSION)
"""`key`: its values as JSON texts. `exists`: whether there is a row between the two. All from
`_change_type` on tell of the change at `valid_from`, and are null for what was there before."""


def history(
    spark: SparkSession,
    archive: str,
    table: str,
    key: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Versions of the rows of a table, or of the one with these key values, in their order."""
    given = {**(options or {}), "tables": table}
    changes = spark.read.format("binlog").options(**given).load(archive)
    return versions(changes, key).orderBy("_schema", "_table", "key", "valid_from", "_seq")


def versions(changes: DataFrame, key: Mapping[str, str] | None = None) -> DataFrame:
    """Of any changes with JSON images."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    ends = _ends(changes, key)
    window = Window.partitionBy(*_KEPT, "key").orderBy("_commit_ts", "_seq", "part")
    numbered = ends.select(
        "*",
        f.lead("_commit_ts").over(window).alias("valid_to"),
        f.lead("_commit_timestamp").over(window).alias("to_time"),
        (f.row_number().over(window) == 1).alias("first"),
    )
    here = {
        "valid_from": f.col("_commit_ts"),
        "from_time": f.col("_commit_timestamp"),
        "exists": f.col("begun"),
    }
    former = {
        **{name: f.lit(None) for name in _VERSION},
        "valid_to": f.col("_commit_ts"),
        "to_time": f.col("_commit_timestamp"),
        "exists": f.lit(True),
        "after": f.col("before"),
    }
    begun = f.array(_version(here))
    both = f.array(_version(former), _version(here))
    of_change = f.when(f.col("first") & f.col("ended"), both).otherwise(begun)
    return numbered.select(*_KEPT, "key", f.explode(of_change).alias("version")).select(
        *_KEPT, "key", "version.*"
    )


def _version(columns: Mapping[str, Column]) -> Column:
    from pyspark.sql import functions as f

    by_name = {name: columns[name] if name in columns else f.col(name) for name in _VERSION}
    return f.struct(*(column.cast(_VERSION[name]).alias(name) for name, column in by_name.items()))


def _ends(changes: DataFrame, key: Mapping[str, str] | None) -> DataFrame:
    """One row a change and key: `ended` a version of it, `begun` one."""
    from pyspark.sql import functions as f

    values = f.from_json("key", _TEXTS)
    names = f.map_keys(values)
    former = f.map_filter(f.from_json("before", _TEXTS), lambda name, _: f.array_contains(names, name))
    was, is_ = f.col("before").isNotNull(), f.col("after").isNotNull()
    new = f.when(f.col("key").isNull(), f.coalesce("after", "before")).otherwise(_text(values))
    old = f.when(was & is_, f.when(f.col("key").isNull(), f.col("before")).otherwise(_text(former)))
    keyed = changes.select("*", new.alias("new_key"), old.alias("old_key"))
    moved = f.col("old_key").isNotNull() & (f.col("old_key") != f.col("new_key"))

    def end(name: str, part: int, ended: Column, begun: Column) -> Column:
        return f.struct(
            f.col(name).alias("key"), f.lit(part).alias("part"), ended.alias("ended"), begun.alias("begun")
        )

    gone = end("old_key", 0, f.lit(True), f.lit(False))
    come = end("new_key", 1, f.lit(False), f.lit(True))
    parts = f.when(moved, f.array(gone, come)).otherwise(f.array(end("new_key", 1, was, is_)))
    kept = [name for name in changes.columns if name != "key"]
    ends = keyed.select(*kept, f.explode(parts).alias("of")).select(*kept, "of.*")
    for name, value in (key or {}).items():
        ends = ends.where(f.from_json("key", _TEXTS)[name] == value)
    return ends


def _text(column: Column) -> Column:
    """Equal for equal values, whatever their order."""
    from pyspark.sql import functions as f

    return f.to_json(f.map_from_entries(f.array_sort(f.map_entries(column))))


def parse_key(text: str) -> dict[str, str]:
    """`id=5`, `a=1,b=x`, or JSON. Raises `ConfigError`."""
    if text.lstrip().startswith("{"):
        try:
            document = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"the key cannot be read: {error}", hint=_KEY_HINT) from None
        return {
            name: value if isinstance(value, str) else json.dumps(value) for name, value in document.items()
        }
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name.strip() and mark for name, mark, _ in pairs):
        raise ConfigError(f"{text!r} is no key", hint=_KEY_HINT)
    return {name.strip(): value for name, _, value in pairs}
