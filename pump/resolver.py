"""Resolver: asks the upstream what became of prewrites whose end never arrived.

Drives  `resolve_schedule`
Does    reads the prewrites' keys, asks, writes the ends that it learns through the normal path
Why     an open prewrite holds the watermark, and with it every drainer
Stops   abandons the question under way; an end that is not written yet will be asked for after a restart
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from common import binlog, log
from common.clock import Clock
from common.errors import Conflict, Rejected, Unavailable
from common.upstream import Committed, Outcome, RolledBack, TransactionStatus, Undecided
from pump import metrics
from pump.resolve_schedule import ResolveSchedule
from pump.sorter import OpenPrewrite
from pump.storage import Storage, WriteFailed

_TICK_S = 0.05

_logger = log.get("resolver")


class Resolver:
    """Runs beside the storage of one pump."""

    def __init__(
        self,
        storage: Storage,
        transactions: TransactionStatus,
        schedule: ResolveSchedule,
        clock: Clock,
        somebody_waits: Callable[[], bool],
    ) -> None:
        self._storage = storage
        self._transactions = transactions
        self._schedule = schedule
        self._clock = clock
        self._somebody_waits = somebody_waits
        self._unavailable = False

    async def run(self) -> None:
        """Ask and write; until cancelled."""
        while True:
            await self._storage.wait_for_open_prewrites()
            due = self._schedule.due(
                self._storage.open_prewrites(),
                self._clock.monotonic_s(),
                somebody_waits=self._somebody_waits(),
            )
            if due and self._storage.write_failure is None:
                await self._ask(due)
            await asyncio.sleep(_TICK_S)

    async def _ask(self, due: list[OpenPrewrite]) -> None:
        try:
            payloads = await self._storage.read([prewrite.place for prewrite in due])
            keys = [binlog.parse(payload).prewrite_key for payload in payloads]
            questions = [(prewrite.start_ts, key) for prewrite, key in zip(due, keys, strict=True)]
            outcomes = await self._transactions.outcomes(questions)
        except (Unavailable, Conflict, Rejected) as error:
            if not self._unavailable:
                _logger.warning(
                    "upstream does not answer about open prewrites, they hold the watermark",
                    open=self._storage.open_count,
                    oldest_start_ts=due[0].start_ts,
                    error=error,
                )
            self._unavailable = True
            for prewrite in due:
                self._schedule.undecided(prewrite.start_ts, self._clock.monotonic_s())
            return
        if self._unavailable:
            _logger.info("upstream answers about open prewrites again")
        self._unavailable = False
        await asyncio.gather(
            *(self._apply(prewrite, outcome) for prewrite, outcome in zip(due, outcomes, strict=True))
        )

    async def _apply(self, prewrite: OpenPrewrite, outcome: Outcome) -> None:
        start_ts = prewrite.start_ts
        if not self._storage.is_open(start_ts):
            self._schedule.settled(start_ts)
            return
        if isinstance(outcome, Committed) and outcome.commit_ts > start_ts:
            payload = binlog.commit(start_ts, outcome.commit_ts)
            header = binlog.Header(binlog.COMMIT, start_ts, outcome.commit_ts)
            await self._write(start_ts, payload, header, "committed")
        elif isinstance(outcome, RolledBack):
            header = binlog.Header(binlog.ROLLBACK, start_ts, 0)
            await self._write(start_ts, binlog.rollback(start_ts), header, "rolled_back")
        else:
            retry_after_s = outcome.retry_after_s if isinstance(outcome, Undecided) else None
            if retry_after_s is None:
                _logger.error("upstream answers with a commit_ts not above the start_ts", start_ts=start_ts)
            metrics.RESOLVED.labels("undecided").inc()
            self._schedule.undecided(start_ts, self._clock.monotonic_s(), retry_after_s)

    async def _write(self, start_ts: int, payload: bytes, header: binlog.Header, outcome: str) -> None:
        try:
            await self._storage.write(payload, header)
        except WriteFailed as error:
            _logger.warning("end of an open prewrite not written", start_ts=start_ts, error=error)
            self._schedule.undecided(start_ts, self._clock.monotonic_s())
            return
        # Asked again only if the indexer takes long: the record settles it.
        self._schedule.undecided(start_ts, self._clock.monotonic_s(), 5.0)
        metrics.RESOLVED.labels(outcome).inc()
        _logger.info(
            "known txn is committed or rollback from upstream",
            start_ts=start_ts,
            commit_ts=header.commit_ts,
            outcome=outcome,
        )
