"""Builds the lanes' view of a table version: compiled SQL plan, key kind, lane."""

from __future__ import annotations

from drainer.causality import lane_of_table, other_unique_indexes, spread
from drainer.change import TableTarget
from drainer.sink import mysql
from drainer.sql_literal import compile_sql
from drainer.txn import TableVersion


def target_of(version: TableVersion, lanes: int) -> TableTarget:
    """Compile everything that lanes need to apply rows of this table version."""
    info = version.info
    sql = compile_sql(info)
    return TableTarget(
        version=version,
        sql=sql,
        spread=spread(info, sql.key_columns, sql.key_index),
        lane=lane_of_table(info.id, lanes),
        name=mysql.qualified(version.schema, version.name),
        keyed=bool(sql.key_columns),
        has_other_unique_keys=bool(other_unique_indexes(info, sql.key_index)),
    )
