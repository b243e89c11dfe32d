"""Lane set: the lanes of a number that stays as it is, and what decides which change goes to which.

Owns    the lanes; another number of lanes is another lane set, made at a drained point
Holds   `resolved_ts` never passes a change that is not committed downstream
Stops   `finish` after what is queued is committed, `abandon` at once; then `join`

Tests  tests/drainer/sink/mysql/test_mysql_sink_mariadb.py, tests/drainer/sink/mysql/test_mysql_sink_modes.py
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from drainer import metrics
from drainer.checkpoint.lane_table import LaneTable
from drainer.checkpoint.safe_mode import SafeMode
from drainer.mysql.connection import Target
from drainer.mysql.errors import Trouble
from drainer.mysql.rows.change import Chunk, Position, TableTarget
from drainer.sink.mysql.dispatcher import Dispatcher
from drainer.sink.mysql.lane import Lane, LaneSettings
from drainer.sink.mysql.lane_work import trace_queued
from drainer.sink.mysql.progress import Progress
from drainer.txn import TableVersion, Transaction
from tidb_binlog.clock import Clock
from tidb_binlog.observe import trace
from tidb_binlog.status.drainer import LaneStatus
from tidb_binlog.tso import Ts

for _trouble in Trouble:  # a series that begins with its first retry has no rate
    metrics.LANE_RETRIES.labels(_trouble.value)


class LaneSet:
    """`safe_mode`: which rows may be downstream already. `whole`: transactions are never cut.

    Lanes are numbered from `first` on. The stream begins after `after_ts`, if not after the last lane.
    `on_progress`, `on_failed` and `on_table_changed` (downstream: targets are outdated) are called on the
    event loop.
    """

    def __init__(
        self,
        positions: Sequence[Position],
        target: Target,
        table: LaneTable,
        settings: LaneSettings,
        clock: Clock,
        *,
        safe_mode: SafeMode,
        whole: bool,
        on_progress: Callable[[], None],
        on_failed: Callable[[BaseException], None],
        first: int = 0,
        on_table_changed: Callable[[], None] = lambda: None,
        after_ts: Ts | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_progress = on_progress
        self._failed = on_failed
        self._table_changed = on_table_changed
        self._dispatcher = Dispatcher(positions, whole=whole)
        done_ts = min(position.complete_ts for position in positions)
        self._progress = Progress(len(positions), done_ts if after_ts is None else after_ts)
        self._first = first
        self._working = self._samples = 0
        self.lanes = [
            Lane(
                number,
                target,
                table,
                settings,
                clock,
                self._on_committed,
                self._on_failed,
                self._on_table_changed,
            )
            for number in range(first, first + len(positions))
        ]
        for lane in self.lanes:
            lane.safe_mode = safe_mode
            metrics.QUEUE_BYTES.labels(str(lane.number)).set_function(lane.queue_size)

    def __len__(self) -> int:
        return len(self.lanes)

    def start(self) -> None:
        for lane in self.lanes:
            lane.start()

    # -- the event loop's side -------------------------------------------------------------------

    def knows(self, transaction: Transaction) -> bool:
        """Whether it can be dispatched as things are."""
        return self._dispatcher.knows(transaction)

    def unknown(self, transaction: Transaction) -> list[TableVersion]:
        """Tables for which `learn` must be called before `dispatch`."""
        return self._dispatcher.unknown(transaction)

    def learn(self, targets: Iterable[TableTarget]) -> None:
        for target in targets:
            self._dispatcher.learn(target)

    def forget(self, names: Collection[tuple[str, str]] | None = None) -> list[TableTarget]:
        """Tables downstream (None: all; else lower case names) may have changed; what was known of them."""
        return self._dispatcher.forget(names)

    @property
    def reached(self) -> Position:
        """Where the lanes stand when they have done all that was cut."""
        return self._dispatcher.reached

    def dispatch(self, transaction: Transaction) -> int:
        """Cut a transaction (or a piece of one); the number of its row events."""
        return self._dispatcher.dispatch(transaction)

    def cut(self) -> list[tuple[int, Chunk]]:
        """Everything dispatched so far, by lane."""
        self._samples += len(self.lanes)
        self._working += self._progress.working
        return self._dispatcher.take()

    def offer(self, cut: list[tuple[int, Chunk]], upto_ts: Ts) -> None:
        """Give the lanes what was cut: every change at or below `upto_ts`, and maybe more."""
        for lane, chunk in cut:
            self._progress.sent(lane, chunk.sequence, chunk.first_ts)
            trace_queued(self.lanes[lane].number, chunk)
            self.lanes[lane].offer(chunk)
        self._progress.dispatched(upto_ts)

    def hand_over(self, upto_ts: Ts) -> None:
        """Give the lanes everything dispatched so far."""
        self.offer(self.cut(), upto_ts)

    def change_settings(self, settings: LaneSettings) -> None:
        """From the next batch of each lane on."""
        for lane in self.lanes:
            lane.change_settings(settings)

    @property
    def has_room(self) -> bool:
        return all(lane.has_room for lane in self.lanes)

    def busy(self) -> float:
        """Part of the lanes that still had work when more came, since this was asked last; 0 to 1."""
        share = self._working / self._samples if self._samples else 0.0
        self._working = self._samples = 0
        return share

    @property
    def drained(self) -> bool:
        return self._progress.idle

    @property
    def resolved_ts(self) -> Ts:
        """Everything at or below it is applied."""
        return self._progress.resolved_ts

    def states(self) -> list[LaneStatus]:
        return [lane.state() for lane in self.lanes]

    async def end(self, *, drained: bool) -> None:
        """End the threads; what is queued is lost unless everything is drained."""
        for lane in self.lanes:
            if drained:
                lane.finish()
            else:
                lane.abandon()
        for lane in self.lanes:
            if lane.is_alive():
                await asyncio.to_thread(lane.join, 5.0)
            metrics.QUEUE_BYTES.remove(str(lane.number))

    # -- the lanes' side -------------------------------------------------------------------------

    def _on_committed(self, lane: int, sequence: int, rows: int) -> None:
        metrics.LANE_BATCH_ROWS.observe(rows)
        self._report(self._committed, lane, sequence)

    def _committed(self, lane: int, sequence: int) -> None:
        self._progress.committed(lane - self._first, sequence)
        if trace.is_on():
            trace.moment("committed", "progress", lane=lane, resolved_ts=self.resolved_ts)
        self._on_progress()

    def _on_failed(self, lane: int, error: BaseException) -> None:
        self._report(self._failed, error)

    def _on_table_changed(self) -> None:
        self._report(self._table_changed)

    def _report(self, function: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(function, *arguments)
