"""Outcome delivery: pumps learn the ends of transactions in the background; the upstream forgets them then.

Owns    one short task per end
Stops   `close` waits for `drain_s` seconds, then abandons what is left: pumps ask the upstream
Never   forgets an end that no pump has
Tests   tests/pumpclient/publish/test_publisher_leftovers.py
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from pumpclient.publish.upstream_port import Transactions
from pumpclient.tasks import Background, Pauses
from tidb_binlog.errors import BinlogError, Conflict
from tidb_binlog.tso import Ts

logger: Final = logging.getLogger("pumpclient")

RECORD_PAUSE_S: Final = 1.0
DELIVERIES_MAX: Final = 10_000
"""Ends being delivered at once; past it an end is not sent and its pump asks the upstream."""

Sending = Coroutine[Any, Any, bool]
"""Sends an end to the pump that has the prewrite; whether it has the end now."""


class OutcomeDelivery:
    """Of one publisher."""

    def __init__(self, transactions: Transactions, pauses: Pauses, stopping: asyncio.Event) -> None:
        self._transactions = transactions
        self._pauses = pauses
        self._stopping = stopping
        self._deliveries = Background()

    def report(self, start_ts: Ts, sending: Sending | None) -> None:
        """An end that the upstream has. `sending` is None where no pump has the prewrite."""
        if self._full(sending):
            return
        self._deliveries.spawn(self._deliver(start_ts, sending), "pumpclient end")

    def report_decided(self, start_ts: Ts, sending: Sending | None, done: Callable[[int], None]) -> bool:
        """A commit that only the application's database has: it is written down in the upstream as well.
        `done` is called when that or the pump has it. False, and nothing done, when too much is under way.
        """
        if self._full(sending):
            return False
        self._deliveries.spawn(self._deliver_decided(start_ts, sending, done), "pumpclient end")
        return True

    async def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until every end begun so far was delivered or given up; False when time ran out first."""
        return await self._deliveries.wait(timeout_s)

    async def close(self, drain_s: float) -> None:
        """End what does not end by itself in time."""
        await self.flush(drain_s)
        await self._deliveries.end()

    def _full(self, sending: Sending | None) -> bool:
        if len(self._deliveries) < DELIVERIES_MAX:
            return False
        if sending is not None:
            sending.close()
        logger.warning("%d ends are being delivered already: one is left to the pump", DELIVERIES_MAX)
        return True

    async def _deliver(self, start_ts: Ts, sending: Sending | None) -> None:
        if sending is None or await sending:
            await self._forget(start_ts)

    async def _deliver_decided(
        self, start_ts: Ts, sending: Sending | None, done: Callable[[int], None]
    ) -> None:
        """Whichever is possible first makes the lease needless; an end that a pump has need not be kept."""
        record = asyncio.get_running_loop().create_task(self._record(start_ts))
        record.add_done_callback(lambda _: done(start_ts))
        try:
            delivered = sending is None or await sending
            if sending is None or not delivered:
                await record
        finally:
            record.cancel()
            await asyncio.gather(record, return_exceptions=True)
        if delivered:
            await self._forget(start_ts)

    async def _record(self, start_ts: Ts) -> None:
        while True:
            try:
                await self._transactions.decide(start_ts, committed=True)
                return
            except Conflict as error:
                logger.error("%s", error)
                return
            except BinlogError as error:
                logger.warning("the end of transaction %d is not written down yet: %s", start_ts, error)
            if self._stopping.is_set():
                return
            await self._pauses.pause(RECORD_PAUSE_S, self._stopping)

    async def _forget(self, start_ts: Ts) -> None:
        """Drop the entry that answers for it."""
        try:
            await self._transactions.forget(start_ts)
        except BinlogError as error:
            logger.warning("the entry of transaction %d stays in the upstream: %s", start_ts, error)
