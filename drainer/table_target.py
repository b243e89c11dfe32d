"""Builds the lanes' view of a table version: compiled SQL plan, key kind, lane."""

from __future__ import annotations

from drainer.causality import key_index, lane_of_table, row_key, spread
from drainer.change import TableTarget
from drainer.sink import mysql
from drainer.sql_literal import compile_sql
from drainer.txn import TableVersion


def target_of(version: TableVersion, lanes: int) -> TableTarget:
    """Compile everything that lanes need to apply rows of this table version."""
    info = version.info
    key = row_key(info)
    own = key_index(info)
    return TableTarget(
        version=version,
        sql=compile_sql(info),
        spread=spread(info),
        lane=lane_of_table(info.id, lanes),
        name=mysql.qualified(version.schema, version.name),
        keyed=bool(key),
        has_other_unique_keys=any(index is not own for index in info.unique_indexes),
    )
