"""Operations: what changes of rows do to the keys of tables, several of one key taken together.

Out    net effects per (table, key): the first and the last operation of what was taken together
Holds  the result of taking effects together does not depend on how changes were cut into pieces: effects of
       pieces are put together by order alone (`fold`), and give what one piece would have given
Why    a key that changes ten times costs one row in the shuffle, not ten; what is written of a row is the
       last image, what must be removed before follows from the first operation
Tests  tests/spark/effects/test_fold.py

An operation is numbered by its change's place in the transaction; an UPDATE that moves its key is two, the
removal of the old key and the row that moved to the new one. Numbers of operations are those of
`drainer.mysql.rows.change`. Of a table without key the key is the image as SQL text, so that equal rows are
one key, and the effect is how many such rows come (or go, below zero).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from drainer.mysql.literal.image_sql_plan import ImageSqlPlan
from drainer.mysql.literal.plan import compile_sql
from drainer.mysql.rows.causality import fold_id_of
from drainer.mysql.rows.change import APPEND, DROP_ONE, PUT_INSERT, PUT_MOVED, PUT_UPDATE, REMOVE, REMOVE_OLD
from drainer.reading.archive.decode.records import Changes
from drainer.txn import DELETE, INSERT, TableVersion
from tidb_binlog.errors import Corruption
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.tso import Ts

ORDER_STEP: Final = 16  # an order number is seq * 16 + part * 8 + operation
_SECOND: Final = 8
OPERATION: Final = 7


def table_id(version: TableVersion) -> int:
    """One number for all versions of a table downstream, whatever id and version they have."""
    schema, name = version.downstream
    return fold_id_of(0, (schema, name))


class RowEffect(NamedTuple):
    """What becomes of a key. `first_order` and `last_order` end in the operation.

    `before`: the image before the first operation, where it is needed. `image`: of the last one; None for a
    removal whose key says all, where no image before is needed. `reborn`: a row came to the key that was
    there before. `times`: of a table without key, how many such rows come.
    """

    table: int
    key: bytes
    first_ts: Ts
    first_order: int
    before: bytes | None
    last_ts: Ts
    last_order: int
    definition: int
    image: bytes | None
    reborn: bool
    times: int


@dataclass(slots=True)
class _Table:
    """What is needed of a table version, and its table's effects: by key what follows it in `RowEffect`."""

    table: int
    definition: int
    key: Callable[[bytes], bytes]
    keyed: bool
    keeps_before: bool
    key_is_all: bool
    effects: dict[bytes, list[Any]] = field(repr=False)


class Operations:
    """Takes changes together, in commit order, until they are asked for.

    `before_of`: tables whose former images are needed; None: all.
    """

    def __init__(
        self, number_of: Callable[[TableVersion], int], before_of: frozenset[int] | None = frozenset()
    ) -> None:
        self._number_of = number_of
        self._before_of = before_of
        self._tables: dict[TableVersion, _Table] = {}
        self._effects: dict[int, dict[bytes, list[Any]]] = {}
        self._last_ts = 0
        self.changes = 0
        """Changes since the last `take`."""
        self.size = 0
        """Bytes of images that are held, roughly."""
        self.digits: set[int] = set()
        """Tables whose keys are whole numbers."""

    @property
    def keys(self) -> int:
        return sum(map(len, self._effects.values()))

    def add(self, changes: Changes) -> None:
        """Raises `RowError` for an image that cannot be right, `Corruption` for changes out of order."""
        ts, order = changes.commit_ts, changes.first_seq * ORDER_STEP
        rows = changes.rows
        if ts < self._last_ts:
            raise Corruption(
                f"{changes.file}: offset {changes.pos}: commit_ts {ts} comes after {self._last_ts}",
                hint="audit the archive: its transactions are not in order",
            )
        self._last_ts = ts
        self.changes += len(rows)
        tables = self._tables
        for version, kind, before, after in rows:
            table = tables.get(version) or self._prepare(version)
            if not table.keyed:
                self._add_keyless(table, ts, order, before, after)
            elif kind == INSERT:
                assert after is not None
                self._put(table, table.key(after), ts, order | PUT_INSERT, None, after)
            elif kind == DELETE:
                assert before is not None
                self._remove(table, table.key(before), ts, order | REMOVE, before)
            else:
                assert before is not None
                assert after is not None
                old, new = table.key(before), table.key(after)
                if old == new:
                    self._put(table, new, ts, order | PUT_UPDATE, before, after)
                else:
                    self._remove(table, old, ts, order | REMOVE_OLD, before)
                    self._put(table, new, ts, order | _SECOND | PUT_MOVED, None, after)
            order += ORDER_STEP

    def take(self) -> dict[int, dict[bytes, list[Any]]]:
        """All effects, and forget them: by table and key what follows those in `RowEffect`."""
        taken, self._effects = self._effects, {}
        for table in self._tables.values():
            table.effects = self._effects.setdefault(table.table, {})
        self.changes = self.size = 0
        return taken

    def _prepare(self, version: TableVersion) -> _Table:
        sql = compile_sql(version.info, kind=ImageSqlPlan)
        number = table_id(version)
        keyed = bool(sql.key_columns)
        if keyed and sql.key_is_literal:
            self.digits.add(number)
        table = self._tables[version] = _Table(
            number,
            self._number_of(version),
            sql.delete_key if keyed else sql.insert_literals,
            keyed,
            self._before_of is None or number in self._before_of,
            keyed and sql.key_is_literal,
            self._effects.setdefault(number, {}),
        )
        return table

    def _put(self, table: _Table, key: bytes, ts: Ts, order: int, before: bytes | None, after: bytes) -> None:
        effect = table.effects.get(key)
        if effect is None:
            kept = before if table.keeps_before else None
            table.effects[key] = [ts, order, kept, ts, order, table.definition, after, False, 0]
            self.size += len(after)
            return
        effect[3:7] = ts, order, table.definition, after
        if order & OPERATION <= PUT_MOVED:
            effect[7] = True

    def _remove(self, table: _Table, key: bytes, ts: Ts, order: int, before: bytes) -> None:
        effect = table.effects.get(key)
        image = None if table.key_is_all and not table.keeps_before else before
        if effect is None:
            kept = before if table.keeps_before else None
            table.effects[key] = [ts, order, kept, ts, order, table.definition, image, False, 0]
            self.size += len(before)
        else:
            effect[3:7] = ts, order, table.definition, image

    def _add_keyless(
        self, table: _Table, ts: Ts, order: int, before: bytes | None, after: bytes | None
    ) -> None:
        for image, operation, count in ((before, DROP_ONE, -1), (after, _SECOND | APPEND, 1)):
            if image is None:
                continue
            key, number = table.key(image), order | operation
            effect = table.effects.get(key)
            if effect is None:
                table.effects[key] = [ts, number, None, ts, number, table.definition, image, False, count]
                self.size += len(image)
            else:
                effect[3:7] = ts, number, table.definition, image
                effect[8] += count


def effects_in_order(taken: Mapping[int, Mapping[bytes, list[Any]]]) -> Iterator[RowEffect]:
    """As one list, tables and keys in order of first appearance."""
    for table, effects in taken.items():
        for key, effect in effects.items():
            yield RowEffect(table, key, *effect)
