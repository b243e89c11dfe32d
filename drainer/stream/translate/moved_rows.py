"""Moved rows: the order of rows that a transaction moves between tables with one target.

In     row events of a transaction, those of each table together: TiDB tells tables in no order
Out    the same, unless a key has rows of several tables of a target. Then the rows of these tables in another
       order, at the same ordinals: first what ends gone, then what was there and is, then what comes
Holds  changes of one row in one table keep their order. Who takes one after the other ends with what upstream
       has: one of the tables at most has a row of a key then
Why    kinds alone do not tell the order: of a row that came and changed, or went, TiDB tells both. Keys of a
       transaction of any size do not fit into memory, so those of more than `WHOLE_BYTES_MAX` are put in
       order piece by piece
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import chain
from typing import Final

from drainer.mysql.literal.plan import SqlPlan, compile_sql
from drainer.stream.translate.row_filter import REPAIR_HINT
from drainer.txn import DELETE, INSERT, UPDATE, TableEvents, TableVersion
from tidb_binlog.errors import Corruption
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.tso import Ts

WHOLE_BYTES_MAX: Final = 8 << 20
"""Payloads up to here are put in order as a whole by all that read them: positions inside them count."""


def in_order(tables: tuple[TableEvents, ...], commit_ts: Ts) -> tuple[TableEvents, ...]:
    """Tables know their targets. Raises `Corruption` for a row whose key cannot be read."""
    targets: dict[tuple[str, str], list[TableEvents]] = {}
    for events in tables:
        targets.setdefault(events.table.downstream, []).append(events)
    if len(targets) == len(tables):
        return tables
    try:
        ordered = chain.from_iterable(map(_of_target, targets.values()))
        return tuple(sorted(ordered, key=lambda events: events.first_ordinal))
    except RowError as error:
        raise Corruption(
            f"transaction with commit_ts {commit_ts}: {error.message}", hint=REPAIR_HINT
        ) from None


def _of_target(group: list[TableEvents]) -> list[TableEvents]:
    plans = {events.table: _plan(events.table) for events in group} if _may_come_early(group) else {}
    if not plans or not all(plan.key_columns for plan in plans.values()):
        return group
    lives: dict[tuple[TableVersion, bytes], list[int]] = {}  # first and last change of a row
    of_rows: list[list[int]] = []
    holders: dict[bytes, TableVersion] = {}
    is_moved = False
    for events in group:
        table, plan = events.table, plans[events.table]
        for kind, row in zip(events.kinds, events.rows, strict=True):
            old, new = _keys(plan, kind, row)
            life = lives[table, new] = lives.pop((table, old), [kind, kind])
            life[1] = kind
            of_rows.append(life)
            is_moved = is_moved or any(holders.setdefault(key, table) is not table for key in (old, new))
    return _by_rank(group, of_rows) if is_moved else group


def _may_come_early(group: list[TableEvents]) -> bool:
    """Whether rows of a table leave, or change, after rows came to another one."""
    entered: set[TableVersion] = set()
    for events in group:
        kinds = set(events.kinds)
        if kinds != {INSERT} and entered - {events.table}:
            return True
        if kinds != {DELETE}:
            entered.add(events.table)
    return False


@functools.lru_cache(1024)
def _plan(table: TableVersion) -> SqlPlan:
    return compile_sql(table.info)


def _keys(plan: SqlPlan, kind: int, row: bytes) -> tuple[bytes, bytes]:
    if kind == UPDATE:
        return plan.update_keys(row)[:2]
    key = plan.insert_key(row) if kind == INSERT else plan.delete_key(row)
    return key, key


def _by_rank(group: list[TableEvents], lives: Sequence[Sequence[int]]) -> list[TableEvents]:
    rows = [
        (events.first_ordinal + place, events.table, kind, row)
        for events in group
        for place, (kind, row) in enumerate(zip(events.kinds, events.rows, strict=True))
    ]
    ranks = [0 if last == DELETE else 1 + (first == INSERT) for first, last in lives]
    runs: list[TableEvents] = []
    kinds: list[int] = []
    end = -1
    for (ordinal, *_), place in zip(rows, sorted(range(len(rows)), key=ranks.__getitem__), strict=True):
        _, table, kind, row = rows[place]
        if ordinal != end or runs[-1].table is not table:
            kinds = []
            runs.append(TableEvents(table, kinds, [], ordinal))
        kinds.append(kind)
        runs[-1].rows.append(row)
        end = ordinal + 1
    return runs
