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

from typing import Any, Final

from drainer.checkpoint.lane_table import LaneTable
from drainer.checkpoint.store import SIDE_LANES
from drainer.ddl.quarantine.entry import ROWS, Entry, Floor, name_of
from drainer.ddl.quarantine.release import ReleaseDependencies
from drainer.ddl.quarantine.store import Decided
from drainer.mysql.refusal import RowsRefused
from drainer.mysql.rows.causality import Spread
from drainer.mysql.rows.change import Position
from tidb_binlog.clock import Clock

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
        noted = Decided(number, entry.job_id, entry.since_ms, "downstream", WAIT, outcome=entry.reason)
        dependencies.table.put(connection, entry)
        dependencies.table.decided(connection, noted)

    await keeper.call(keeper.store.together, work)


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
    version = refusal.table.version
    names = {name_of(version.schema, version.name), name_of(*version.downstream)}
    applied = max(position, Position(last_ddl.commit_ts), key=Position.order_key)
    return Entry(
        job_id=ROWS + number,
        commit_ts=refusal.last_ts,
        floor=Floor(applied.complete_ts, last_ddl.schema_version),
        tables=dict.fromkeys(sorted(names), applied.complete_ts + 1),
        position=applied,
        query="",
        reason=refused.message,
        since_ms=int(clock.wall_s() * 1000),
    )
