"""Mark rows: is a transaction one that a drainer of our channel wrote?

In     rows of the mark table `retl._drainer_repl_mark`, still encoded
Out    whether one of them belongs to our channel
Holds  any row event counts: the update at the beginning of a drainer's transaction, the rows written when a
       drainer starts, their removal when it ends. Only rows of the mark table are decoded
Never  takes a row of another channel for ours; a channel_id that is no whole number is `Corruption`
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from drainer.txn import DELETE, INSERT
from tidb_binlog.errors import Corruption
from tidb_binlog.rowcodec import RowError, compile_table
from tidb_binlog.table_info import INTEGER_TYPES, TableInfo
from tidb_binlog.tso import Ts

MARK_SCHEMA: Final = "retl"
MARK_TABLE: Final = "_drainer_repl_mark"
_CHANNEL: Final = "channel_id"


def is_mark_table(schema: str, table: str) -> bool:
    return schema.lower() == MARK_SCHEMA and table.lower() == MARK_TABLE


class MarkRows:
    """Reads rows of one version of the mark table. Raises `Corruption` if it has no usable channel_id."""

    def __init__(self, info: TableInfo, channel_id: int) -> None:
        self._channel_id = channel_id
        self._plan = compile_table(info)
        places = [
            place
            for place, column in enumerate(self._plan.columns)
            if column.name.lower() == _CHANNEL and column.type.tp in INTEGER_TYPES
        ]
        if len(places) != 1:
            raise Corruption(
                f"{MARK_SCHEMA}.{MARK_TABLE} has no column {_CHANNEL} of an integer type",
                hint="drop the table where the rows come from; the drainer that writes there makes it again",
            )
        self._place = places[0]

    def is_ours(self, kinds: Sequence[int], rows: Sequence[bytes], commit_ts: Ts) -> bool:
        """Whether any of the rows carries our channel, in its old or its new image."""
        return any(
            image[self._place] == self._channel_id
            for kind, row in zip(kinds, rows, strict=True)
            for image in self._images(kind, row, commit_ts)
        )

    def _images(self, kind: int, row: bytes, commit_ts: Ts) -> Sequence[tuple[Any, ...]]:
        try:
            if kind == INSERT:
                return (self._plan.decode_insert(row),)
            if kind == DELETE:
                return (self._plan.decode_delete(row),)
            return self._plan.decode_update(row)
        except RowError as error:
            raise Corruption(
                f"mark row of the transaction with commit_ts {commit_ts} cannot be read: {error}",
                hint=f"compare the columns of {MARK_SCHEMA}.{MARK_TABLE} with its rows",
            ) from None
