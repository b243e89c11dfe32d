"""Table learning: lanes learn of a table before its first row, and what they learn is stored first.

Holds   how a table's rows are spread is durable before one of them is with a lane. Where it has to be other
        than it was, all lanes stand at one stored place first. Rows that an earlier life may have dispatched
        are spread as they were then, and written as the table downstream is now
Stops   at a table that takes no rows as it is downstream: all lanes stand before them then, stored
Why     such rows may violate a unique key that was not there then: they go out one transaction at a time

Tests  tests/drainer/checkpoint/test_lane_basis_mariadb.py
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from drainer.checkpoint import lane_basis
from drainer.checkpoint.keeper import CheckpointKeeper
from drainer.checkpoint.lane_basis import LaneBasis, Plan
from drainer.checkpoint.resume import Start
from drainer.mysql.literal.collation import Collation
from drainer.mysql.refusal import CORRECT, Refusal, RowsRefused
from drainer.mysql.rows.causality import Spread
from drainer.mysql.rows.change import Position, TableTarget
from drainer.mysql.rows.table_target import TableUnfit, target_of
from drainer.sink.mysql.lanes import Lanes
from drainer.sink.mysql.target_reader import TableReader
from drainer.txn import Ddl, TableVersion, Transaction
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts

logger = log.get("drainer.table_learning")

Settle = Callable[[Callable[[Any], None]], Awaitable[Position]]
"""Drain all lanes; then store that they stand there, in one transaction with what is given; where it is."""


class TableLearning:
    """Where it is not known what rows of before `start` were dispatched
    by, it is as releases did it that stored nothing."""

    def __init__(
        self,
        tables: TableReader,
        keeper: CheckpointKeeper,
        start: Start,
        lanes: Lanes,
        settle: Settle,
        *,
        rows_may_wait: bool,
    ) -> None:
        self._tables = tables
        self._keeper = keeper
        self._is_recorded = start.basis is not None
        self._basis = LaneBasis(start.basis.tables if start.basis is not None else {})
        self._past_ts = start.past_ts
        self._lanes = lanes
        self._settle = settle
        self._one_by_one = False
        self._rows_may_wait = rows_may_wait

    def goes_alone(self, commit_ts: Ts) -> bool:
        """Whether the lanes are to be drained before and after such a transaction."""
        return self._one_by_one and commit_ts <= self._past_ts

    async def learn(self, transaction: Transaction) -> None:
        """Give the lanes all tables of a transaction that they do not know. `RowsRefused`: one is unfit."""
        lanes = self._lanes.now
        if transaction.commit_ts <= self._past_ts:
            while unknown := lanes.unknown(transaction):
                await self._learn_past(unknown)
            return
        while unknown := lanes.unknown(transaction):
            try:
                targets = await self._keeper.call(self._tables.targets, unknown, len(lanes))
            except TableUnfit as unfit:
                if not self._rows_may_wait:
                    raise
                await self._settle(lambda connection: None)
                raise _refused(unfit, transaction.commit_ts, len(lanes)) from None
            plan = self._basis.plan(targets)
            if plan.other:
                await self._settle_with(plan, targets)
                lanes.forget()  # other tables of the transaction go to the same ones downstream
                continue
            if plan.new:
                await self._keeper.call(self._keeper.store.together, self._writing(plan, targets))
                self._basis.stored(plan)
            spreads = plan.spreads
            lanes.learn(
                lane_basis.spread_as(target, spreads[target.fold_id], len(lanes)) for target in targets
            )

    async def _learn_past(self, unknown: list[TableVersion]) -> None:
        lanes = self._lanes.now
        # The downstream may have a DDL that comes later in the stream.
        past = await self._keeper.call(self._tables.targets_of_the_past, unknown, len(lanes))
        targets = []
        for target in past:
            record = self._basis.of_past(target)
            if not self._is_recorded:
                target = lane_basis.as_version_1(target, len(lanes))
            elif record is not None:
                looser = target.spread in (Spread.BY_TABLE, Spread.BY_COLLATED_KEY)
                if looser and not record.pinned and lane_basis.spread_of(target) != record:
                    logger.warning(
                        "rows of before the start are spread as they were, one transaction at a time",
                        table=target.label,
                        upto_ts=self._past_ts,
                    )
                    self._one_by_one = True
                by: tuple[Collation | None, ...] = ()
                if record.collations:
                    by = await self._keeper.call(self._tables.collations, record.collations)
                target = lane_basis.spread_as(target, record, len(lanes), by)
            targets.append(target)
        lanes.learn(targets)

    async def _settle_with(self, plan: Plan, targets: Iterable[TableTarget]) -> None:
        position = await self._settle(self._writing(plan, targets))
        self._basis.stored(plan)
        tables = sorted({target.label for target in targets if target.fold_id in plan.other})
        logger.info("rows are spread over lanes in another way", tables=tables, commit_ts=position.commit_ts)

    def _writing(self, plan: Plan, targets: Iterable[TableTarget]) -> Callable[[Any], None]:
        store = self._keeper.store
        names = {target.fold_id: target.label for target in targets}
        spreads = {**plan.new, **plan.other}
        return lambda connection: store.basis.put(connection, store.epoch, spreads, names)

    def leave_past(self) -> None:
        """Everything that an earlier life may have dispatched has gone by."""
        self._past_ts = 0
        self._one_by_one = False
        self._lanes.now.forget()

    def passed(self, ddl: Ddl) -> None:
        """It ran: all lanes stand at it, stored, and tables of those names may be others than before."""
        names = {(schema.lower(), table.lower()) for schema, table in ddl.targets or ddl.tables}
        everything = any(not table for _, table in names)
        gone = self._lanes.now.forget(None if everything else names)
        self._basis.settled({target.fold_id for target in gone})

    def settled(self) -> None:
        """All lanes stand at one place, stored, and nothing is stored of any table."""
        self._basis.settled()
        self._lanes.now.forget()


def _refused(unfit: TableUnfit, commit_ts: Ts, lanes: int) -> RowsRefused:
    target = target_of(unfit.version, lanes)
    message = f"rows of {target.label} from commit_ts {commit_ts} on: {unfit.message}"
    refusal = Refusal(target, "", False, commit_ts, commit_ts)
    return RowsRefused(message, hint=unfit.hint or CORRECT, lane=target.lane, refusal=refusal)
