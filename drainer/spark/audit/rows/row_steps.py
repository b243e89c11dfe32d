"""Row steps: what the changes of a transaction do to single rows.

In     `Changes`, numbers of table versions
Out    steps: key of the row, image before and after, each None for no row
Holds  an UPDATE that keeps its key is one step, one that moves it is two: it ends one row and begins another.
       (commit_ts, order) puts all steps of a cluster in order and is the same however often a record is read.
       Of a table without key the key is None
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
    """`key_id` names the columns of the key, 0 for none. `part` 1: the second step of a change."""

    commit_ts: Ts
    order: int
    part: int
    kind: int
    file: str
    pos: int
    schema: str
    table: str
    definition: int
    key_id: int
    key: bytes | None
    before: bytes | None
    after: bytes | None


class _Keys:
    """How rows of one table version are told apart."""

    def __init__(self, version: TableVersion, definition: int) -> None:
        sql = compile_sql(version.info)
        self.definition = definition
        self.schema, self.table = version.downstream
        self.key: Callable[[bytes], bytes] | None = sql.delete_key if sql.key_columns else None
        self.key_id = _id_of(tuple((one.id, one.name) for one in sql.key_columns)) if sql.key_columns else 0


def _id_of(columns: tuple[tuple[int, str], ...]) -> int:
    return int.from_bytes(hashlib.sha256(repr(columns).encode()).digest()[:8], "big") >> 1 or 1


class RowSteps:
    """Makes steps of changes; what it knows of table versions is kept."""

    def __init__(self, number_of: Callable[[TableVersion], int]) -> None:
        self._number_of = number_of
        self._keys: dict[TableVersion, _Keys] = {}

    def of(self, changes: Changes) -> Iterator[RowStep]:
        """Raises `RowError` for an image that has no key."""
        ts, file, pos = changes.commit_ts, changes.file, changes.pos
        for seq, (version, kind, before, after) in enumerate(changes.rows, changes.first_seq):
            keys = self._keys.get(version) or self._prepare(version)
            old = new = None
            if keys.key is not None:
                old = keys.key(before) if before is not None else None
                new = keys.key(after) if after is not None else None
            head = (file, pos, keys.schema, keys.table, keys.definition, keys.key_id)
            if old is None or new is None or old == new:
                key = old if new is None else new
                yield RowStep(ts, 2 * seq, 0, kind, *head, key, before, after)
            else:
                yield RowStep(ts, 2 * seq, 0, kind, *head, old, before, None)
                yield RowStep(ts, 2 * seq + 1, 1, kind, *head, new, None, after)

    def _prepare(self, version: TableVersion) -> _Keys:
        if len(self._keys) >= _PLANS_MAX:
            self._keys.clear()
        try:
            found = _Keys(version, self._number_of(version))
        except RowError as error:
            raise RowError(f"table {'.'.join(version.downstream)}: {error.message}") from None
        self._keys[version] = found
        return found
