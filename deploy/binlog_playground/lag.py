"""Lag probe: how long after its commit was acknowledged a row can be read downstream.

A probe transaction writes the next row of its own table at a fixed pace, through the same Pumps, queues and
lanes as everything else; a reader on a connection of its own asks MariaDB for the newest row while one is
awaited. What is measured is what an application downstream would see, polling included (a few ms).

Tests  tests/deploy/binlog_playground/test_run.py
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from binlog_playground.cluster.mariadb import MariaDbServer
from binlog_playground.workload.session import Writer, probe_plan
from binlog_playground.workload.tables import Table
from drainer.mysql.connection import Connection
from drainer.mysql.errors import NoSuchTable, SessionError
from tidb_binlog.clock import Clock

PROBE_INTERVAL_S = 0.05
READ_INTERVAL_S = 0.005
RECONNECT_S = 0.1
ROWS_KEPT = 20


class LagProbe:
    """Writes probes and notes when they arrive; samples go into the writer's statistics (seconds)."""

    def __init__(self, writer: Writer, table: Table, server: MariaDbServer, clock: Clock) -> None:
        self._writer = writer
        self._table = table
        self._server = server
        self._clock = clock
        self._awaited: deque[tuple[int, float]] = deque()
        self._something = asyncio.Event()
        self._connection: Connection | None = None
        self._thread = ThreadPoolExecutor(1, "lag")

    async def write(self, end_s: float) -> None:
        """Send probes until `end_s` (monotonic)."""
        number = 0
        while (now_s := self._clock.monotonic_s()) < end_s:
            number += 1
            sent_at = datetime.fromtimestamp(self._clock.wall_s(), UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
            plan = probe_plan(self._writer.model, self._table, number, sent_at, ROWS_KEPT)
            if not await self._writer.run(plan):
                # Its lease ran out (a Pump was down for long): the row id is used up, the number too.
                continue
            self._awaited.append((number, self._clock.monotonic_s()))
            self._something.set()
            await asyncio.sleep(max(0.0, PROBE_INTERVAL_S - (self._clock.monotonic_s() - now_s)))

    async def read(self) -> None:
        """Watch the probes arrive; runs until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                if not self._awaited:
                    self._something.clear()
                    await self._something.wait()
                newest = await loop.run_in_executor(self._thread, self._newest)
                seen_s = self._clock.monotonic_s()
                while self._awaited and self._awaited[0][0] <= newest:
                    self._writer.statistics.lag_s.append(seen_s - self._awaited.popleft()[1])
                await asyncio.sleep(READ_INTERVAL_S if newest >= 0 else RECONNECT_S)
        finally:
            self._thread.shutdown(wait=True)
            if self._connection is not None:
                self._connection.close()

    def _newest(self) -> int:
        """Number of the newest probe downstream, 0 for none yet, -1 while it cannot be read."""
        try:
            if self._connection is None:
                self._connection = self._server.connect(timeout_s=1.0, read_timeout=5)
            with self._connection.cursor() as cursor:
                cursor.execute(f"SELECT MAX(id) FROM `{self._table.schema}`.`{self._table.name}`")
                found = cursor.fetchone()
            return int(found[0] or 0) if found else 0
        except NoSuchTable:  # the table is not there yet
            return 0
        except SessionError:
            if self._connection is not None:
                self._connection.close()
            self._connection = None
            return -1
