"""Net effects: what thousands of changes of one table do to its keys, each a whole number, found at once.

In     changes as arrays, in their order
Out    record batches of effects, one a key, as `operations` and `fold` have them
Holds  the result is what `Operations` gives of the same changes, up to how effects are cut into pieces
Why    of a key that changes often only the last image is ever read
Tests  tests/spark/effects/test_pb_effects.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from drainer.mysql.literal.image_sql_plan import ImageSqlPlan
from drainer.mysql.literal.plan import compile_sql
from drainer.mysql.rows.change import PUT_INSERT, PUT_UPDATE, REMOVE
from drainer.reading.archive.columns.pb_arrays import Numbers
from drainer.spark.effects.batches import ARROW, digit_places
from drainer.spark.effects.operations import ORDER_STEP, table_id
from drainer.txn import DELETE, INSERT, TableVersion
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.rowcodec.row_error import UnsupportedTable
from tidb_binlog.table_info import INTEGER_TYPES, Column

_OPERATIONS: Final = np.array([PUT_INSERT, PUT_UPDATE, REMOVE], np.int64)


@dataclass(frozen=True, slots=True)
class KindImages:
    """Changes of one kind: which they are, and the new or only images of some, by place among these."""

    chosen: Numbers
    images: Callable[[Numbers], pa.Array]


@dataclass(frozen=True, slots=True)
class KeyChanges:
    """Changes of one table, none of which moves its key. `keys`: of 64 bits, with a sign or without."""

    kinds: Numbers
    keys: Numbers
    ts: Numbers
    seq: Numbers
    parts: Sequence[KindImages]


def number_key(version: TableVersion) -> Column | None:
    """The column of a key that is one whole number."""
    try:
        sql = compile_sql(version.info, kind=ImageSqlPlan)
    except UnsupportedTable:
        return None
    if not sql.key_columns or not sql.key_is_literal:
        return None
    column = sql.key_columns[0]
    return column if column.type.tp in INTEGER_TYPES else None


def net_effects(
    changes: KeyChanges, version: TableVersion, definition: int, buckets: int, *, unsigned: bool
) -> Iterator[pa.RecordBatch]:
    """One a key: by the first and the last change of it."""
    kinds, keys, seq = changes.kinds, changes.keys, changes.seq
    order = np.argsort(keys, kind="stable")  # changes are in their order
    in_order = keys[order]
    starts = np.flatnonzero(np.concatenate(([True], in_order[1:] != in_order[:-1])))
    stops = np.concatenate((starts[1:], [len(order)]))
    first, last = order[starts], order[stops - 1]
    births = (kinds == INSERT).astype(np.int64)
    reborn = np.add.reduceat(births[order], starts) > births[first]
    numbers = seq * ORDER_STEP + _OPERATIONS[kinds]
    for part in changes.parts:
        kind = int(kinds[part.chosen[0]])
        mine = np.flatnonzero(kinds[last] == kind)
        if not len(mine):
            continue
        mine = mine[np.argsort(last[mine])]  # images are cut out in the order of the buffer
        begun, ended = first[mine], last[mine]
        count, table = len(mine), table_id(version)
        some = keys[ended] if unsigned else keys[ended].view(np.int64)
        columns: list[Any] = [
            digit_places(some, table, buckets),
            np.full(count, table, np.int64),
            pa.array(some).cast(pa.string()).cast(pa.binary()),
            changes.ts[begun],
            numbers[begun],
            pa.nulls(count, pa.binary()),
            changes.ts[ended],
            numbers[ended],
            np.full(count, definition, np.int64),
            pa.nulls(count, pa.binary())
            if kind == DELETE
            else part.images(np.searchsorted(part.chosen, ended)),
            reborn[mine],
            np.zeros(count, np.int64),
        ]
        arrays = [
            column if isinstance(column, pa.Array) else pa.array(column, field.type)
            for column, field in zip(columns, ARROW, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=ARROW)
