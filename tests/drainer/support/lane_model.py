"""A tiny row format and a downstream in memory, for tests of the cores between translator and SQL.

Rows: INSERT and DELETE `key=value`, UPDATE `key=value>key=value`. The plan below slices keys from them in
the way `drainer.mysql.literal` does from encoded rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import chain
from typing import Any, cast

from drainer.mysql.rows.causality import Spread, lane_of_table
from drainer.mysql.rows.change import (
    APPEND,
    DROP_ONE,
    KEY,
    OP,
    PUT_INSERT,
    PUT_UPDATE,
    REMOVE,
    REPLACE_ONE,
    ROW,
    SPLIT,
    Chunk,
    Form,
    TableTarget,
)
from drainer.mysql.rows.row_fold import fold
from drainer.txn import TableVersion
from tidb_binlog.late_dataclass import replace
from tidb_binlog.table_info import FLAG_NOT_NULL, FLAG_PRIMARY, LONGLONG, Column, FieldType, TableInfo


class TextPlan:
    """Keys and images of the text rows."""

    has_enum = False
    lane_key_of: Callable[[bytes], bytes] | None = None

    def insert_key(self, row: bytes) -> bytes:
        return row.partition(b"=")[0]

    delete_key = insert_lane_key = delete_lane_key = insert_key

    def update_keys(self, row: bytes) -> tuple[bytes, bytes, int]:
        old, _, new = row.partition(b">")
        return self.insert_key(old), self.insert_key(new), len(old) + 1

    def update_both_keys(self, row: bytes) -> tuple[tuple[bytes, bytes], tuple[bytes, bytes], int]:
        old, new, split = self.update_keys(row)
        return (old, old), (new, new), split

    def under(self, collations: object) -> TextPlan:
        return self

    def update_split(self, row: bytes) -> int:
        return row.index(b">") + 1


class FoldingPlan(TextPlan):
    """Downstream, keys of either case are one."""

    lane_key_of = staticmethod(bytes.lower)

    def insert_lane_key(self, row: bytes) -> bytes:
        return self.insert_key(row).lower()

    delete_lane_key = insert_lane_key

    def update_both_keys(self, row: bytes) -> tuple[tuple[bytes, bytes], tuple[bytes, bytes], int]:
        old, new, split = self.update_keys(row)
        return (old, old.lower()), (new, new.lower()), split


class FoldingParts(FoldingPlan):
    """The same of a key of several columns, which is not made from the exact one."""

    lane_key_of = None


def folding(table_id: int, lanes: int, plan: type[FoldingPlan] = FoldingPlan) -> TableTarget:
    """A table of which keys of either case are one key downstream."""
    plain = table(table_id, keyed=True, pinned=False, lanes=lanes)
    return replace(plain, sql=cast(Any, plan()), spread=Spread.BY_COLLATED_KEY)


def table(table_id: int, *, keyed: bool, pinned: bool, lanes: int, unique: bool = False) -> TableTarget:
    column = Column(1, "id", 0, FieldType(LONGLONG, FLAG_NOT_NULL | FLAG_PRIMARY))
    info = TableInfo(table_id, f"t{table_id}", (column,), pk_is_handle=keyed)
    return TableTarget(
        version=TableVersion(info, "s", info.name, 1),
        sql=cast(Any, TextPlan()),
        spread=Spread.BY_TABLE if pinned or not keyed else Spread.BY_KEY,
        lane=lane_of_table(table_id, lanes),
        name=b"`s`.`t`",
        form=Form.KEYLESS if not keyed else Form.REWRITE if unique else Form.REPLACE,
        fold_id=table_id,
        keyed=keyed,
    )


class Downstream:
    """Tables by id: key -> value for keyed ones, a multiset of rows for the others."""

    def __init__(self) -> None:
        self.keyed: dict[int, dict[bytes, bytes]] = {}
        self.keyless: dict[int, Counter[bytes]] = {}

    def apply(self, chunk: Chunk) -> None:
        """Carry out one lane transaction the way `drainer.mysql.rows.statement` writes it."""
        for net in fold(chunk.changes):
            table_id = net.table.version.id
            if not net.table.keyed:
                self._apply_ordered(self.keyless.setdefault(table_id, Counter()), net.ordered)
                continue
            rows = self.keyed.setdefault(table_id, {})
            for change in net.removals(replaying=False):
                met = rows.pop(change[KEY], None) is not None
                assert met == net.was_there(change[KEY]), "applied twice or in the wrong order"
            for change in chain(*net.writes(replaying=False)):
                image = change[ROW] if change[OP] == PUT_INSERT else change[ROW][change[SPLIT] :]
                key, _, value = image.partition(b"=")
                assert key == change[KEY]
                rows[key] = value

    def _apply_ordered(self, rows: Counter[bytes], changes: list[Any]) -> None:
        for _table, op, _key, row, split in changes:
            if op == APPEND:
                rows[row] += 1
                continue
            old = row if op == DROP_ONE else row[: split - 1]
            assert rows[old] > 0, "a row to drop was not there"
            rows[old] -= 1
            if op == REPLACE_ONE:
                rows[row[split:]] += 1

    def contents(self) -> tuple[Any, Any]:
        return (
            {table_id: rows for table_id, rows in self.keyed.items() if rows},
            {table_id: +rows for table_id, rows in self.keyless.items() if +rows},
        )


__all__ = [
    "PUT_UPDATE",
    "REMOVE",
    "Downstream",
    "FoldingParts",
    "FoldingPlan",
    "TextPlan",
    "folding",
    "table",
]
