"""Rows entry: a table whose rows the downstream refuses for good waits, and all others are replicated.

Out    an entry of the quarantine, durable
Why    lanes have more rows of the table in their queues, after the refused one. None of that is kept: the
       entry says up to where the table is applied, all is pulled again from the checkpoint, and a new start
       keeps what comes after it

A table whose rows go through several lanes is applied up to where the last of them is. Of what comes after
that, other lanes have applied a part, which comes once more: such a table has one unique key, so rows written
again in order lead to the same contents.

Tests  tests/drainer/ddl/quarantine/test_waiting_tables_model.py,tests/drainer/sink/mysql/test_refused_rows.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from drainer.checkpoint.lane_table import LaneTable
from drainer.checkpoint.store import SIDE_LANES
from drainer.ddl.quarantine.entry import ROWS, Entry, Floor, name_of
from drainer.ddl.quarantine.release import ReleaseDependencies
from drainer.ddl.quarantine.store import Decided, QuarantineTable
from drainer.mysql.refusal import RowsRefused
from drainer.mysql.rows.causality import Spread
from drainer.mysql.rows.change import Position
from drainer.txn import TableVersion
from tidb_binlog.clock import Clock
from tidb_binlog.tso import Ts

WAIT: Final = "wait"
"""Besides what operators decide, in the list of decisions."""


async def quarantine_rows(dependencies: ReleaseDependencies, refused: RowsRefused) -> None:
    """Durable when it returns."""
    keeper, number = dependencies.keeper, next(dependencies.numbers)

    def work(connection: Any) -> None:
        position = reached(keeper.store.lane_table(), connection, refused)
        # A lane that has nothing is moved by the checkpoint alone.
        position = max(position, Position(keeper.store.stored_ts), key=Position.order_key)
        floor = Floor(keeper.schema_ts, keeper.schema_version)
        entry = rows_entry(refused, number, position, floor, dependencies.clock)
        put_rows(dependencies.table, connection, entry)

    await keeper.call(keeper.store.together, work)


def put_rows(table: QuarantineTable, connection: Any, entry: Entry) -> None:
    """In the caller's transaction: its tables wait, and the list of decisions says so."""
    number = entry.job_id - ROWS
    table.put(connection, entry)
    table.decided(
        connection, Decided(number, entry.job_id, entry.since_ms, "downstream", WAIT, outcome=entry.reason)
    )


def reached(lanes: LaneTable, connection: Any, refused: RowsRefused) -> Position:
    """Up to where all rows of the table are applied, in the caller's transaction."""
    if refused.refusal.table.spread is Spread.BY_TABLE:
        return lanes.position(connection, refused.lane)
    return lanes.lowest(connection, SIDE_LANES)


def rows_entry(refused: RowsRefused, number: int, position: Position, last_ddl: Floor, clock: Clock) -> Entry:
    """`position`: up to where all rows of the table are applied. `last_ddl`: where all lanes were drained
    last, and nothing of the table was left.

    The table waits under its name upstream, and whatever else is routed to its target with it.
    """
    refusal = refused.refusal
    applied = max(position, Position(last_ddl.commit_ts), key=Position.order_key)
    versions, last_ts = [refusal.table.version], refusal.last_ts
    return entry_of_rows(versions, last_ts, refused.message, number, applied, last_ddl, clock)


def entry_of_rows(
    versions: Sequence[TableVersion],
    last_ts: Ts,
    reason: str,
    number: int,
    applied: Position,
    last_ddl: Floor,
    clock: Clock,
) -> Entry:
    """Of tables with one target."""
    upstream = ((version.schema, version.name) for version in versions)
    names = {name_of(*name) for name in (*upstream, *(version.downstream for version in versions))}
    return Entry(
        job_id=ROWS + number,
        commit_ts=last_ts,
        floor=Floor(applied.complete_ts, last_ddl.schema_version),
        tables=dict.fromkeys(sorted(names), applied.complete_ts + 1),
        position=applied,
        query="",
        reason=reason,
        since_ms=int(clock.wall_s() * 1000),
    )
