"""Run: the demo from start to end.

Owns    the order of these things and what is measured
Stops   all tasks when the work is done or one of them fails; ending processes is the caller's business
Never   compares before the Drainer has passed the last commit
Tests   tests/deploy/binlog_playground/test_run.py
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, Final

from binlog_playground.application import PROBE, SCHEMA, Application
from binlog_playground.check.downstream import Downstream, quote
from binlog_playground.check.live_view import LiveView, Snapshot
from binlog_playground.check.shown_changes import changes_of
from binlog_playground.check.statistics import Statistics
from binlog_playground.check.verify import Report, TableName, compare
from binlog_playground.cluster.cluster import Cluster
from binlog_playground.cluster.mariadb import MariaDbServer
from binlog_playground.options import Options
from binlog_playground.replay import Replay
from binlog_playground.scenario import Scenario, load
from binlogctl.cluster import snapshot
from drainer.mysql.connection import Connection
from drainer.mysql.errors import NoSuchTable, SessionError
from pumpclient.publish.publisher import open_publisher
from tidb_binlog import tso
from tidb_binlog.clock import Clock
from tidb_binlog.cluster.overview import Overview
from tidb_binlog.errors import Unavailable
from tidb_binlog.etcd.client import EtcdClient
from tidb_binlog.etcd.registry import EtcdRegistry
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.tso import Ts

RECORDED: Final = Path(__file__).with_name("recorded") / "basic"
PUMPS: Final = 2
SHOW_S: Final = 0.25
STATUS_S: Final = 0.05
WATCH_S: Final = 0.2
STALLED_S: Final = 60.0
QUIET_S: Final = 5.0


class Run:
    """One run on one cluster."""

    def __init__(self, options: Options, cluster: Cluster, view: LiveView, clock: Clock) -> None:
        self.options = options
        self.cluster = cluster
        self.statistics = Statistics()
        self._view = view
        self._clock = clock
        self._random = Random(options.seed)
        self._phase = "setting up"
        self._replaying: Replay | None = None
        """What is on its way while the recorded workload is."""
        self._checkpoint_ts = 0
        """The largest that the Drainer has told."""
        self._stalled_s = STALLED_S
        self._began_s = clock.monotonic_s()

    async def demo(self) -> Report:
        """Recorded workload, random workload, comparison."""
        scenario = load(RECORDED)
        await self._start(scenario, PUMPS)
        async with self._background(tables_with_rows(scenario)):
            await self._replay(scenario)
            assert self.cluster.upstream is not None
            await self.cluster.upstream.oracle.unpin()
            application = await self._random_workload()
            await self._show_changes()
            await self._drain(max(application.last_commit_ts, scenario.last_commit_ts))
            await self._quiet()
            expected = [*scenario.expected, *application.expected()]
            return await self._compare(replace(scenario, expected=expected))

    async def _random_workload(self) -> Application:
        """Tables, sessions, DDL and probes for the time asked for, until all of it is downstream."""
        options, clock = self.options, self._clock
        self._phase = "creating tables"
        async with await open_publisher(self.cluster.etcd_endpoint) as publisher:
            application = Application(publisher, self.statistics, clock, self._random, options.sessions)
            await application.create()
            table = f"{quote(SCHEMA)}.{quote(PROBE)}"
            probe = LagProbe(application.probe, table, self.statistics.lag_s, self.cluster.mariadb, clock)
            await self._drain(application.last_commit_ts)  # from here on lag is measured
            self._phase = "random workload"
            self.statistics.started_s = clock.monotonic_s()
            end_s = self.statistics.started_s + options.seconds
            interval_s = options.sessions / options.rate if options.rate else 0.0
            async with asyncio.TaskGroup() as group:
                reader = group.create_task(probe.read())
                async with asyncio.TaskGroup() as work:
                    for number in range(options.sessions):
                        work.create_task(application.session(number, interval_s, end_s))
                    work.create_task(application.change_schema(end_s))
                    work.create_task(probe.write(end_s))
                self.statistics.ended_s = clock.monotonic_s()
                await publisher.flush(STALLED_S)
                await self._drain(application.last_commit_ts)
                reader.cancel()
        return application

    async def _show_changes(self) -> None:
        changes = await changes_of(self.cluster.etcd_endpoint, SCHEMA)
        self._view.say(f"binlogctl tail -tables '{SCHEMA}.*' -from -5s")
        for line in changes:
            self._view.say(f"  {line}")

    async def _start(self, scenario: Scenario, pumps: int) -> None:
        self._view.say(f"starting etcd, {pumps} Pump(s), a Drainer and MariaDB in {self.cluster.directory}")
        upstream = await self.cluster.start_base(scenario.cluster_id)
        await Replay.prepare(scenario, upstream)
        await self.cluster.start_pumps(pumps)
        await self._start_drainer()
        self._view.say(f"set up in {self._elapsed_s():.1f} s")

    async def _start_drainer(self) -> None:
        await self.cluster.start_drainer()

    @asynccontextmanager
    async def _background(self, tables: Sequence[TableName]) -> AsyncIterator[None]:
        """Watch the processes, show the run, notice the first row; all of it ends with the block."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(job) for job in self._jobs(tables)]
            yield
            for task in tasks:
                task.cancel()

    def _jobs(self, tables: Sequence[TableName]) -> list[Coroutine[Any, Any, None]]:
        return [self._watch(), self._show(), self._note_first_row(tables)]

    async def _watch(self) -> None:
        """Raises `ProcessDied` for a process that ends by itself."""
        while True:
            for process in self.cluster.supervisor.dead():
                raise process.death()
            await asyncio.sleep(WATCH_S)

    async def _replay(self, scenario: Scenario) -> None:
        self._phase = f"recorded workload {scenario.name}"
        assert self.cluster.upstream is not None
        addresses = [node.address for node in self.cluster.pumps]
        self._replaying = replay = Replay(scenario, self.cluster.upstream, addresses)
        began_s = self._clock.monotonic_s()
        try:
            await self._send(replay)
        finally:
            self._replaying = None
            await replay.close()
        took_s = self._clock.monotonic_s() - began_s
        self.statistics.replayed, self.statistics.replay_s = replay.sent, took_s
        self._view.say(f"recorded workload {scenario.name}: {replay.sent} binlogs sent in {took_s:.1f} s")

    async def _send(self, replay: Replay) -> None:
        await replay.run()

    async def _drain(self, last_commit_ts: Ts) -> None:
        """Wait until the checkpoint has passed the last commit; `Unavailable` if it stands still."""
        self._phase = "draining"
        assert self.cluster.drainer is not None
        seen: tuple[int, ...] = ()
        moved_s = self._clock.monotonic_s()
        while True:
            try:
                status = await self.cluster.drainer.status()
            except Unavailable:
                status = {}
            stored_ts = int(status.get("LastTS", 0))
            self._checkpoint_ts = max(self._checkpoint_ts, stored_ts)
            if stored_ts >= last_commit_ts:
                return
            now = (stored_ts, int(status.get("AppliedTS", 0)), int(status.get("Rows", 0)))
            if now != seen:
                seen, moved_s = now, self._clock.monotonic_s()
            elif self._clock.monotonic_s() > moved_s + self._stalled_s:
                process = self.cluster.drainer.process
                raise Unavailable(
                    f"the Drainer stands at {stored_ts} for {self._stalled_s:g} s, the last commit is"
                    f" {last_commit_ts}: {process.tail(1)}",
                    hint=f"see {process.log}",
                )
            await asyncio.sleep(STATUS_S)

    async def _quiet(self, seconds: float = QUIET_S, *, past_too: bool = True) -> None:
        """No session writes: what does the Drainer say of its lag meanwhile, and is the cluster well?

        `past_too`: troubles that are told for minutes after they have ended count as well.
        """
        self._phase = "quiet"
        assert self.cluster.drainer is not None
        end_s = self._clock.monotonic_s() + seconds
        while self._clock.monotonic_s() < end_s:
            await asyncio.sleep(STATUS_S)
            with suppress(Unavailable):
                status = await self.cluster.drainer.status()
                self.statistics.quiet_lag_s.append(float(status["LagSeconds"]))
        troubles = (await self._overview()).troubles
        if listed := "; ".join(f"{t.node} {t.text}" for t in troubles if past_too or not t.is_past):
            raise Unavailable(
                f"no session writes, and the cluster is not well: {listed}", hint="see the logs"
            )

    async def _overview(self) -> Overview:
        client = await EtcdClient.connect(self.cluster.etcd_endpoint)
        try:
            return await snapshot.take(EtcdRegistry(client), client, None)
        finally:
            await client.close()

    async def _compare(self, scenario: Scenario) -> Report:
        self._phase = "comparing"
        return await asyncio.to_thread(self._compare_now, scenario)

    def _compare_now(self, scenario: Scenario) -> Report:
        connection = self.cluster.mariadb.open()
        try:
            report = self._compare_rows(scenario, Downstream(connection))
        finally:
            connection.close()
        report.not_compared = scenario.not_compared
        return report

    def _compare_rows(self, scenario: Scenario, downstream: Downstream) -> Report:
        return compare(scenario.expected, downstream.contents(scenario.expected))

    async def _note_first_row(self, names: Sequence[TableName]) -> None:
        """Note when the first replicated row can be read downstream."""
        if not names:
            return
        sql = f"SELECT 1 FROM {quote(names[0][0])}.{quote(names[0][1])} LIMIT 1"
        while not await asyncio.to_thread(self._has_row, sql):  # noqa: ASYNC110 - no event says so
            await asyncio.sleep(STATUS_S)
        self.statistics.first_row_s = self._elapsed_s()
        self._view.say(f"first replicated row after {self.statistics.first_row_s:.1f} s")

    def _has_row(self, sql: str) -> bool:
        try:
            connection = self.cluster.mariadb.connect()
            try:
                with connection.cursor() as cursor:
                    return bool(cursor.execute(sql))
            finally:
                connection.close()
        except SessionError:  # no such table yet
            return False

    async def _show(self) -> None:
        while True:
            await self._read_checkpoint()
            rates = self.statistics.rates(self._clock.monotonic_s())
            self._view.show(
                Snapshot(
                    phase=self._phase_text(),
                    elapsed_s=self._elapsed_s(),
                    transactions_per_s=rates[0],
                    rows_per_s=rates[1],
                    transactions=self.statistics.transactions,
                    rows=self.statistics.rows,
                    ddl=self.statistics.ddl,
                    lag_p50_ms=self.statistics.lag_ms(0.5),
                    lag_p99_ms=self.statistics.lag_ms(0.99),
                    checkpoint_ts=self._checkpoint_ts,
                    checkpoint_age_s=self._checkpoint_age_s(),
                    processes=self.cluster.supervisor.states(),
                )
            )
            await asyncio.sleep(SHOW_S)

    def _phase_text(self) -> str:
        if self._replaying is None:
            return self._phase
        return f"{self._phase}, {self._replaying.sent} of {self._replaying.total} binlogs"

    async def _read_checkpoint(self) -> None:
        if self.cluster.drainer is not None:
            with suppress(Unavailable):
                status = await self.cluster.drainer.status()
                self._checkpoint_ts = max(self._checkpoint_ts, int(status.get("LastTS", 0)))

    def _checkpoint_age_s(self) -> float:
        if not self._checkpoint_ts:
            return 0.0
        return max(0.0, tso.age_s(self._checkpoint_ts, self._clock.wall_s()))

    def _elapsed_s(self) -> float:
        return self._clock.monotonic_s() - self._began_s


def tables_with_rows(scenario: Scenario) -> list[TableName]:
    """Tables that have rows in the end."""
    names = [(table.schema, table.name) for table in scenario.expected if table.rows]
    return names + [(table.schema, table.name) for table in scenario.checksums]


# Lag: how long after its commit was acknowledged a row can be read downstream. A probe transaction writes the
# next row of its own table at a fixed pace, through the same Pumps, queues and lanes as everything else; a
# reader on a connection of its own asks MariaDB for the newest row while one is awaited. What is measured is
# what an application downstream would see, polling included (a few ms).

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
