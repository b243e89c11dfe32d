"""Lag: how long after its commit was acknowledged a row can be read downstream.

A probe transaction writes the next row of its own table at a fixed pace, through the same Pumps, queues and
lanes as everything else; a reader on a connection of its own asks MariaDB for the newest row while one is
awaited. What is measured is what an application downstream would see, polling included (a few ms).

Tests  tests/deploy/binlog_playground/test_run.py
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Connection
from drainer.mysql.errors import NoSuchTable, SessionError
from tidb_binlog.clock import Clock
from tidb_binlog.late_dataclass import dataclass, field

PROBE_INTERVAL_S = 0.05
READ_INTERVAL_S = 0.005
RECONNECT_S = 0.1


@dataclass(slots=True)
class LagProbe:
    """Writes probes and notes when they arrive."""

    send: Callable[[int, str], Awaitable[bool]]
    """Commit the row with a number, and the text of the time; False: it did not commit."""
    table: str
    """The table of probes, quoted; its numbers are in `id`."""
    lag_s: list[float]
    """Gets a sample for each probe that has arrived, in seconds."""
    server: MariaDbServer
    clock: Clock
    _awaited: deque[tuple[int, float]] = field(default_factory=deque)
    """Number, and when its commit was acknowledged, of probes that have not arrived."""
    _sent: asyncio.Event = field(default_factory=asyncio.Event)
    """Set whenever there is something in `_awaited`."""
    _connection: Connection | None = None

    async def write(self, end_s: float) -> None:
        """Send probes until `end_s` (monotonic)."""
        number = 0
        while (now_s := self.clock.monotonic_s()) < end_s:
            number += 1
            sent_at = datetime.fromtimestamp(self.clock.wall_s(), UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
            if not await self.send(number, sent_at):
                # Its lease ran out (a Pump was down for long): the row id is used up, the number too.
                continue
            self._awaited.append((number, self.clock.monotonic_s()))
            self._sent.set()
            await asyncio.sleep(max(0.0, PROBE_INTERVAL_S - (self.clock.monotonic_s() - now_s)))

    async def read(self) -> None:
        """Watch the probes arrive; runs until cancelled."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, "lag") as thread:
            try:
                while True:
                    if not self._awaited:
                        self._sent.clear()
                        await self._sent.wait()
                    newest = await loop.run_in_executor(thread, self._newest)
                    seen_s = self.clock.monotonic_s()
                    while self._awaited and self._awaited[0][0] <= newest:
                        self.lag_s.append(seen_s - self._awaited.popleft()[1])
                    await asyncio.sleep(READ_INTERVAL_S if newest >= 0 else RECONNECT_S)
            finally:
                thread.submit(self._disconnect)

    def _newest(self) -> int:
        """Number of the newest probe downstream, 0 for none yet, -1 while it cannot be read."""
        try:
            if self._connection is None:
                self._connection = self.server.connect(timeout_s=1.0, read_timeout=5)
            with self._connection.cursor() as cursor:
                cursor.execute(f"SELECT MAX(id) FROM {self.table}")
                row = cursor.fetchone()
            return int(row[0] or 0) if row else 0
        except NoSuchTable:  # the table is not there yet
            return 0
        except SessionError:
            self._disconnect()
            return -1

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None
