"""Quarantine set-up: the quarantine and what it works with, put together for one MySQL sink.

Drives  nothing
Owns    what a release lane takes from the sink: settings, the downstream, the way tables are read

Tests  tests/drainer/ddl/quarantine/test_controller.py
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from drainer.checkpoint.keeper import CheckpointKeeper
from drainer.checkpoint.store import SIDE_LANES, CheckpointStore
from drainer.ddl.derive.derive import same_names
from drainer.ddl.derive.values import Route
from drainer.ddl.policy import Policy
from drainer.ddl.quarantine.controller import QuarantineController, unlogged
from drainer.ddl.quarantine.early_drop import EarlyDrops, UpstreamJobs
from drainer.ddl.quarantine.entry import Entry
from drainer.ddl.quarantine.log import Frozen, Schema
from drainer.ddl.quarantine.release import ReleaseDependencies
from drainer.ddl.quarantine.shards import Shards, Sharing
from drainer.ddl.quarantine.store import QuarantineTable, ReleaseTable
from drainer.ddl.quarantine.waiting_tables import Quarantine
from drainer.ddl.run.runner import DdlRunner
from drainer.mysql.connection import Target
from drainer.mysql.rows.change import Position
from drainer.sink.mysql.lane import LaneSettings
from drainer.sink.mysql.lane_set import LaneSet
from drainer.sink.mysql.target_reader import TableReader
from drainer.txn import Ddl
from tidb_binlog.clock import Clock
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import Ts


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a starting drainer finds. `last_number` is that of the last decision."""

    table: QuarantineTable
    entries: tuple[Entry, ...]
    last_number: int


def load_waiting(store: CheckpointStore, *, foreign: bool) -> Waiting:
    """Blocking, after `store.start`: the entries that wait, which are this drainer's from now on.

    `foreign`: another program has written the checkpoint since; what waited is given up, and comes again.
    """
    lanes = store.lane_table()
    table = QuarantineTable(lanes.schema, lanes.cluster_id, lanes.epoch)
    entries: list[Entry] = []
    numbers: list[int] = []

    def work(connection: Any) -> None:
        entries[:] = table.claim_entries(connection, foreign=foreign)
        numbers[:] = [table.last_number(connection)]

    store.together(work)
    return Waiting(table, tuple(entries), numbers[0])


@dataclass(frozen=True, slots=True)
class QuarantineSetup:
    """`runner_for` makes a runner that sees schema and routes as they were after one DDL; `bytes_max` may
    wait; `route` gives where tables go now, `sharing` which others go there, if that is known. `jobs`: of an
    upstream that can be asked. `held`: an operator has paused all that is written.
    """

    waiting: Waiting
    policy: Policy
    schema: Schema
    runner_for: Callable[[Frozen], DdlRunner]
    data_dir: str
    bytes_max: int
    jobs: UpstreamJobs | None = None
    route: Callable[[], Route] = lambda: same_names
    sharing: Sharing | None = None
    held: Callable[[], bool] = lambda: False


def open_quarantine(
    plan: QuarantineSetup,
    highest_ts: Ts,
    pending_ts: Ts,
    keeper: CheckpointKeeper,
    target: Target,
    settings: LaneSettings,
    tables: TableReader,
    clock: Clock,
    *,
    on_change: Callable[[], None] = lambda: None,
    log_kept: Callable[[Ddl], Awaitable[None]] = unlogged,
) -> QuarantineController:
    """`tables` is release's own; `highest_ts`, `pending_ts`: see `Quarantine`; the rest as of the
    controller. From here on the keeper holds the checkpoint below what waits."""

    def make_lanes(
        position: Position,
        table: ReleaseTable,
        on_progress: Callable[[], None],
        on_failed: Callable[[BaseException], None],
    ) -> LaneSet:
        return LaneSet(
            (position,),
            target,
            table,
            settings,
            clock,
            safe_mode=keeper.safe_mode,
            whole=False,
            on_progress=on_progress,
            on_failed=on_failed,
            first=SIDE_LANES,
        )

    def dependencies(on_freed: Callable[[], None], numbers: itertools.count[int]) -> ReleaseDependencies:
        return ReleaseDependencies(
            keeper,
            plan.waiting.table,
            make_lanes,
            tables.targets,
            plan.runner_for,
            clock,
            numbers,
            on_freed,
            Shards(waiting, plan.sharing).in_the_way,
            plan.held,
        )

    waiting = Quarantine(plan.waiting.entries, highest_ts, pending_ts)
    quarantine = QuarantineController(
        plan.waiting.table,
        plan.waiting.last_number,
        waiting,
        plan.schema,
        dependencies,
        plan.policy,
        plan.data_dir,
        plan.bytes_max,
        plan.route,
        on_change,
        log_kept,
    )
    keeper.floor = lambda: quarantine.floor
    return quarantine


def open_early(
    plan: QuarantineSetup,
    keeper: CheckpointKeeper,
    runner: DdlRunner,
    clock: Clock,
) -> EarlyDrops | None:
    """None where no upstream can be asked. It works on the runner's session, on the keeper's thread, and is
    given its controller before any row goes out."""
    if plan.jobs is None:
        return None
    return EarlyDrops(plan.jobs, keeper, runner, plan.waiting.table, clock)
