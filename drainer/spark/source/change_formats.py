"""Change formats: the view `changes` in the forms that other systems have for changes.

    as_cdf        Delta's change data feed: an UPDATE is two rows, before and after it
    as_debezium   Debezium's envelope: before, after, op, source, ts_ms

In     a frame of the view `changes`, its images as JSON or typed
Out    a frame; one row a change stays in the order (_commit_version, _seq)
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

CONNECTOR = "tidb-binlog"


def as_cdf(changes: DataFrame) -> DataFrame:
    """`_change_type` insert, update_preimage, update_postimage, delete; `_commit_version` is the commit_ts.

    Typed images become the table's columns, images in JSON the column `row`.
    """
    kind = sql.col("_change_type")
    is_update = kind == "update"
    halves = sql.when(
        is_update,
        sql.array(
            sql.struct(sql.lit("update_preimage").alias("kind"), sql.col("before").alias("row")),
            sql.struct(sql.lit("update_postimage").alias("kind"), sql.col("after").alias("row")),
        ),
    ).otherwise(
        sql.array(
            sql.struct(kind.alias("kind"), sql.coalesce(sql.col("after"), sql.col("before")).alias("row"))
        )
    )
    typed = changes.schema["after"].dataType.typeName() == "struct"
    return changes.select("*", sql.explode(halves).alias("_half")).select(
        *(["_half.row.*"] if typed else ["_half.row"]),
        sql.col("_half.kind").alias("_change_type"),
        sql.col("_commit_ts").alias("_commit_version"),
        "_commit_timestamp",
        "_seq",
        "_schema",
        "_table",
    )


def as_debezium(changes: DataFrame) -> DataFrame:
    """`op` c, u or d; `source` names database, table and place; `ts_ms` is when it was committed."""
    kind = sql.col("_change_type")
    op = sql.when(kind == "insert", "c").when(kind == "update", "u").otherwise("d")
    ts_ms = sql.shiftright(sql.col("_commit_ts"), 18)
    source = sql.struct(
        sql.lit(CONNECTOR).alias("connector"),
        ts_ms.alias("ts_ms"),
        sql.col("_schema").alias("db"),
        sql.col("_table").alias("table"),
        sql.col("_commit_ts").alias("commit_ts"),
        sql.col("_start_ts").alias("start_ts"),
        sql.col("_seq").alias("seq"),
        sql.col("_file").alias("file"),
        sql.col("_pos").alias("pos"),
    )
    return changes.select("before", "after", op.alias("op"), source.alias("source"), ts_ms.alias("ts_ms"))
