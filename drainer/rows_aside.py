"""Rows aside: a table whose rows the downstream refuses for good waits, and all others go on.

In     the refusal, the rooms of a pipeline whose tasks have ended
Out    an entry of the quarantine, durable
Why    lanes have more rows of the table in their queues, above the refused one. Nothing of that is taken
       apart: the entry says up to where the table is applied, all is pulled again from the checkpoint, and a
       new start keeps what is above
"""

from __future__ import annotations

from typing import Any, Final

from common.clock import Clock
from drainer.change import Position
from drainer.quarantine import ROWS, Entry, Floor, name_of
from drainer.quarantine_release import Rooms
from drainer.quarantine_table import Decided
from drainer.refusal import RowsRefused
from drainer.takeover import place

WAIT: Final = "wait"
"""Besides what operators decide, in the list of decisions."""


async def set_aside(rooms: Rooms, refused: RowsRefused) -> None:
    """Durable when it returns."""
    keeper, number = rooms.keeper, next(rooms.numbers)

    def work(connection: Any) -> None:
        position = keeper.store.lane_table().position(connection, refused.lane)
        floor = Floor(keeper.schema_ts, keeper.schema_version)
        entry = rows_entry(refused, number, position, floor, rooms.clock)
        noted = Decided(number, entry.job_id, entry.since_ms, "downstream", WAIT, outcome=entry.reason)
        rooms.table.put(connection, entry)
        rooms.table.decided(connection, noted)

    await keeper.call(keeper.store.together, work)


def rows_entry(refused: RowsRefused, number: int, position: Position, last_ddl: Floor, clock: Clock) -> Entry:
    """`position`: of the lane that all rows of the table go through. `last_ddl`: where all lanes were drained
    last, and nothing of the table was left.

    The table waits under its name upstream, and whatever else is routed to its target with it.
    """
    refusal = refused.refusal
    version = refusal.table.version
    names = {name_of(version.schema, version.name), name_of(*version.downstream)}
    reached = max(position, Position(last_ddl.commit_ts), key=place)
    return Entry(
        job_id=ROWS + number,
        commit_ts=refusal.last_ts,
        floor=Floor(reached.complete_ts, last_ddl.schema_version),
        tables=dict.fromkeys(sorted(names), reached.complete_ts + 1),
        position=reached,
        query="",
        reason=refused.message,
        since_ms=int(clock.wall_s() * 1000),
    )
