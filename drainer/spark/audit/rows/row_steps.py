"""Row steps: what the changes of a transaction do to single rows.

Out    steps: key of the row, image before and after, each None for no row
Holds  an UPDATE that keeps its key is one step, one that moves it is two: it ends one row and begins another.
       (commit_ts, order) puts all steps of a cluster in order and is the same however often a record is read.
       In a table without key each step has a key of its own
Tests  tests/spark/audit/checks/test_chain_rule.py
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from drainer.mysql.literal.plan import compile_sql
from drainer.reading.archive.decode.records import Changes
from drainer.txn import TableVersion
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.tso import Ts

_PLANS_MAX: Final = 10_000


class RowStep(NamedTuple):
    """`key_id` names the columns of the key, 0 for none. `order` is odd for the second step of a change.

    Sorted as they are, the steps of a row stand together, in their order."""

    lineage: int
    key_id: int
    key: bytes
    commit_ts: Ts
    order: int
    definition: int
    before: bytes | None
    after: bytes | None
    file: str
    pos: int


COLUMNS: Final = (
    "lineage long, key_id long, key binary, commit_ts long, order long, definition long, before binary,"
    " after binary, file string, pos long"
)
SORTED: Final = ("lineage", "key_id", "key"), ("commit_ts", "order", "definition", "before", "after")
"""Steps of a row, and their order; of one that is there twice with other contents the larger one is last."""


class _Keys:
    """How rows of one table version are told apart."""

    def __init__(self, version: TableVersion, definition: int) -> None:
        sql = compile_sql(version.info)
        self.definition = definition
        self.name = version.downstream
        self.key: Callable[[bytes], bytes] | None = sql.delete_key if sql.key_columns else None
        self.key_id = (
            _id_of(tuple((column.id, column.name) for column in sql.key_columns)) if sql.key_columns else 0
        )


def _id_of(columns: tuple[tuple[int, str], ...]) -> int:
    return int.from_bytes(hashlib.sha256(repr(columns).encode()).digest()[:8], "big") >> 1 or 1


class RowSteps:
    """Makes steps of changes; what it knows of table versions is kept."""

    def __init__(
        self,
        number_of: Callable[[TableVersion], int],
        lineage_at: Callable[[tuple[str, str], Ts], int] = lambda name, commit_ts: 0,
    ) -> None:
        self._number_of = number_of
        self._lineage_at = lineage_at
        self._keys: dict[TableVersion, _Keys] = {}

    def of(self, changes: Changes) -> Iterator[RowStep]:
        """Raises `RowError` for an image that has no key."""
        ts, file, pos = changes.commit_ts, changes.file, changes.pos
        lineage, last = 0, None
        for seq, (version, _, before, after) in enumerate(changes.rows, changes.first_seq):
            keys = self._keys.get(version) or self._prepare(version)
            if keys is not last:
                lineage, last = self._lineage_at(keys.name, ts), keys
            key_id, definition, order = keys.key_id, keys.definition, 2 * seq
            if keys.key is None:
                key = b"%d,%d" % (ts, order)
                yield RowStep(lineage, key_id, key, ts, order, definition, before, after, file, pos)
                continue
            old = keys.key(before) if before is not None else None
            new = keys.key(after) if after is not None else None
            if old is not None and new is not None and old != new:
                yield RowStep(lineage, key_id, old, ts, order, definition, before, None, file, pos)
                yield RowStep(lineage, key_id, new, ts, order + 1, definition, None, after, file, pos)
            elif (only := old if new is None else new) is not None:
                yield RowStep(lineage, key_id, only, ts, order, definition, before, after, file, pos)

    def _prepare(self, version: TableVersion) -> _Keys:
        if len(self._keys) >= _PLANS_MAX:
            self._keys.clear()
        try:
            keys = _Keys(version, self._number_of(version))
        except RowError as error:
            raise RowError(f"table {'.'.join(version.downstream)}: {error.message}") from None
        self._keys[version] = keys
        return keys
