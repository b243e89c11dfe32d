"""Rule changes: a table whose target downstream changes while its rows come, and what it must end as.

Drives  the Drainer's configuration file and its reload, now and then kill -9 after it
Holds   every row is in exactly one of the two tables, whichever the rules were when it came
Why     what a lane has applied was applied by the rules of then: taken for the rules of now, rows would be
        left out or come twice
Tests   tests/rig/workload/test_model.py
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Final

from binlog_playground.check.verify import ExpectedTable, Row
from tests.rig.cluster import RigCluster, Routes
from tests.rig.workload.model import Transaction
from tests.rig.workload.session import Writer
from tests.rig.workload.statistics import RigStatistics
from tests.rig.workload.tables import Table
from tests.rig.workload.workload import Ending, Plan
from tidb_binlog.clock import Clock
from tidb_binlog.errors import Unavailable

MOVED: Final = "moved"
ROW_EVERY_S: Final = 0.02
PAUSE_S: Final = (1.5, 5.0)
KILLED: Final = 0.15
TAKEN_S: Final = 180.0


class Moving:
    """`routes`: those that stay. The target has to be there downstream already."""

    def __init__(
        self, cluster: RigCluster, writer: Writer, table: Table, routes: Routes, random: Random
    ) -> None:
        self._cluster = cluster
        self._writer = writer
        self._table = table
        self._routes = routes
        self._random = random

    async def write(self, name: str, end_s: float, clock: Clock) -> None:
        """A row of a growing table at a time until `end_s` (monotonic)."""
        state = self._writer.model.tables[name]
        while clock.monotonic_s() < end_s:
            transaction = Transaction()
            transaction.insert(state, (state.last_row_id + 1, "as the rules of its time"))
            await self._writer.run(Plan(transaction, Ending.COMMIT))
            await asyncio.sleep(ROW_EVERY_S)

    async def change(self, end_s: float, clock: Clock, statistics: RigStatistics) -> None:
        """Change the route back and forth until `end_s`."""
        drainer = self._cluster.drainer
        assert drainer is not None
        moves = False
        while clock.monotonic_s() + PAUSE_S[1] < end_s:
            await asyncio.sleep(self._random.uniform(*PAUSE_S))
            moves = not moves
            more = {(self._table.schema, self._table.name): MOVED} if moves else {}
            self._cluster.write_routes(drainer.name, {**self._routes, **more})
            statistics.faults["rules changed"] += 1
            if self._random.random() < KILLED:  # the next start reads them
                drainer.process.kill()
                statistics.killed(drainer.name)
                if not drainer.process.is_running:
                    drainer.process.start()
                continue
            with suppress(Unavailable):  # it is down, or its downstream: the next start or reload takes them
                await self._cluster.reload_drainer()
        end_s += TAKEN_S
        while True:  # one that was refused is said until another one is taken
            try:
                return await self._cluster.reload_drainer()
            except Unavailable:
                if clock.monotonic_s() > end_s:
                    raise
            await asyncio.sleep(PAUSE_S[0])


def split(table: ExpectedTable, moved: Sequence[Row]) -> tuple[ExpectedTable, ExpectedTable]:
    """What each of the two tables must hold, if `moved` is what there is in the second one."""
    there = frozenset(moved)
    return (
        replace(table, rows=[row for row in table.rows if row not in there]),
        replace(table, name=MOVED, rows=[row for row in table.rows if row in there]),
    )
