"""One run from start to end: the demo, or the replay of a recorded scenario.

Drives  cluster, replay, sessions, lag probe, chaos, live view, comparison
Owns    the order of these things and what is measured
Stops   all tasks when the work is done or one of them fails; ending processes is the caller's business
Never   compares before the Drainer has passed the last commit
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Final

from binlog_playground.chaos import Chaos, Keeper, decide, run_replay_kills
from binlog_playground.check.downstream import Downstream, quote
from binlog_playground.check.live_view import LiveView, Snapshot
from binlog_playground.check.shown_changes import changes_of
from binlog_playground.check.statistics import Statistics
from binlog_playground.check.verify import ExpectedTable, Report, TableName, compare
from binlog_playground.cluster.cluster import Cluster, Routes
from binlog_playground.lag import LagProbe
from binlog_playground.mirror import Mirror
from binlog_playground.options import Options
from binlog_playground.replay import Replay
from binlog_playground.rule_changes import MOVED, Moving, split
from binlog_playground.scenario import Scenario, load
from binlog_playground.workload import tables
from binlog_playground.workload.evolution import Evolution, creation
from binlog_playground.workload.limits import MARIADB, misplaced
from binlog_playground.workload.model import Model
from binlog_playground.workload.session import Writer, run_evolution, run_rare_endings, run_session
from binlog_playground.workload.workload import Ending, Workload
from binlogctl.cluster import snapshot
from binlogctl.cluster.overview import Overview
from drainer.mysql.errors import SessionError
from pumpclient.publish.publisher import open_publisher
from tidb_binlog import tso
from tidb_binlog.clock import Clock
from tidb_binlog.errors import Unavailable
from tidb_binlog.etcd.client import EtcdClient
from tidb_binlog.etcd.registry import EtcdRegistry

RECORDED: Final = Path(__file__).with_name("recorded") / "basic"
SCHEMA: Final = "playground"
PUMPS: Final = 2
FIRST_ID: Final = 1000  # above every id of a recording
SHOW_S: Final = 0.25
STATUS_S: Final = 0.05
STALLED_S: Final = 60.0
QUIET_S: Final = 5.0
QUIET_CHAOS_S: Final = 20.0
DDL_PAUSE_S: Final = 1.5
SHARDS: Final = "shards"
ROUTES: Final = {(SCHEMA, "shard_1"): SHARDS, (SCHEMA, "shard_2"): SHARDS}
MOVING: Final = (SCHEMA, "moving")
GROWING: Final = (tables.REFUSING, "moving")
RARE_ENDINGS: Final = {Ending.ABANDON: 18.0, Ending.LOSE_COMMIT: 14.0}


class Run:
    """One run on one cluster."""

    def __init__(self, options: Options, cluster: Cluster, view: LiveView, clock: Clock) -> None:
        self.options = options
        self.cluster = cluster
        self.statistics = Statistics()
        self.subscribed: Report | None = None
        """What the comparison of the subscribing program's tables came to."""
        self._view = view
        self._clock = clock
        self._keeper = Keeper(cluster, clock)
        self._random = Random(options.seed)
        self._phase = "setting up"
        self._replaying: Replay | None = None
        self._checkpoint_ts = 0
        self._began_s = clock.monotonic_s()

    async def demo(self) -> Report:
        """Recorded workload, random workload, comparison."""
        scenario = load(RECORDED)
        await self._start(scenario, PUMPS, ROUTES)
        model = Model(SCHEMA)
        async with self._background(_names(scenario)):
            await self._replay(scenario)
            assert self.cluster.upstream is not None
            await self.cluster.upstream.oracle.unpin()
            last_commit_ts = await self._random_workload(model, routes=ROUTES, measures_lag=True)
            if not self.options.chaos:  # with it a pump may be away just now
                await self._show_changes()
            await self._drain(max(last_commit_ts, scenario.last_commit_ts))
            await self._quiet()
            targets = {table: target for (_, table), target in ROUTES.items()}
            expected = [*scenario.expected, *model.expected(targets)]
            if self.options.subscriber:
                await self._compare_mirror([*scenario.expected, *model.expected()])
            return await self._compare(replace(scenario, expected=expected))

    async def _show_changes(self) -> None:
        shown = await changes_of(self.cluster.etcd_endpoint, SCHEMA)
        self._view.say(f"binlogctl tail -tables '{SCHEMA}.*' -from -5s")
        for line in shown:
            self._view.say(f"  {line}")

    async def archive(self) -> Model:
        """Random workload into an archive that is complete and closed then; what its rows have come to."""
        self._view.say(f"starting etcd, {PUMPS} Pumps, an archiving Drainer and MariaDB")
        await self.cluster.start_base(None)
        await self.cluster.start_pumps(PUMPS)
        node = await self.cluster.start_archiver("archiver", '[syncer.to]\nfile-size = "1 MiB"')
        model = Model(SCHEMA)
        async with self._background([]):
            await self._drain(await self._random_workload(model, measures_lag=False))
        node.process.stop()
        return model

    async def replay(self, directory: Path) -> Report:
        """A recorded scenario, comparison."""
        scenario = load(directory)
        await self._start(scenario, len(scenario.files))
        async with self._background(_names(scenario)):
            await self._replay(scenario)
            await self._drain(scenario.last_commit_ts)
            return await self._compare(scenario)

    async def _start(self, scenario: Scenario, pumps: int, routes: Routes = MappingProxyType({})) -> None:
        self._view.say(f"starting etcd, {pumps} Pump(s), a Drainer and MariaDB in {self.cluster.directory}")
        upstream = await self.cluster.start_base(scenario.cluster_id)
        await Replay.prepare(scenario, upstream)
        await self.cluster.start_pumps(pumps)
        if self.options.chaos:
            await self.cluster.prepare_faults()
            if self.cluster.small_disk is None:
                self._view.say("not among the faults: a full disk, which only root can make")
        await self.cluster.start_drainer(routes=routes)
        if self.options.subscriber:
            self.cluster.start_subscriber()
        self._view.say(f"set up in {self._elapsed_s():.1f} s")

    @asynccontextmanager
    async def _background(self, tables_with_rows: Sequence[TableName]) -> AsyncIterator[None]:
        """Watch the processes, show the run, notice the first row; all of it ends with the block."""
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._keeper.run()),
                group.create_task(decide(self.cluster, SCHEMA, SHARDS, self.statistics)),
                group.create_task(self._show()),
                group.create_task(self._note_first_row(tables_with_rows)),
            ]
            yield
            for task in tasks:
                task.cancel()

    async def _replay(self, scenario: Scenario) -> None:
        self._phase = f"recorded workload {scenario.name}"
        assert self.cluster.upstream is not None
        addresses = [node.address for node in self.cluster.pumps]
        replay = Replay(scenario, self.cluster.upstream, addresses)
        began_s = self._clock.monotonic_s()
        self._replaying = replay
        try:
            async with asyncio.TaskGroup() as group:
                if self.options.kill:
                    kills = Random(self.options.seed)
                    group.create_task(
                        run_replay_kills(self.cluster, replay, kills, self.statistics, self._view.say)
                    )
                group.create_task(replay.run())
        finally:
            self._replaying = None
            await replay.close()
        took_s = self._clock.monotonic_s() - began_s
        self.statistics.replayed, self.statistics.replay_s = replay.sent, took_s
        self._view.say(f"recorded workload {scenario.name}: {replay.sent} binlogs sent in {took_s:.1f} s")

    async def _random_workload(
        self, model: Model, *, routes: Routes = MappingProxyType({}), measures_lag: bool
    ) -> int:
        """Tables, sessions, DDL, probes and chaos for the time asked for; the last commit timestamp."""
        assert self.cluster.upstream is not None
        self._phase = "creating tables"
        ids = itertools.count(FIRST_ID)
        async with await open_publisher(self.cluster.etcd_endpoint) as publisher:
            version = publisher.schema_version
            writer = Writer(publisher, self.cluster.upstream, model, self.statistics, ids, version)
            probe_table = await _create_tables(writer, ids)
            if routes:
                await _create_shards(writer, ids)
            moving = await self._prepare_moving(writer, ids, routes) if self.options.chaos else None
            probe = LagProbe(writer, probe_table, self.cluster.mariadb, self._clock)
            await self._drain(writer.last_commit_ts)  # the tables are there: from here on lag is measured
            self._phase = "random workload"
            self._keeper.restarts = self.options.chaos
            self.statistics.started_s = self._clock.monotonic_s()
            end_s = self.statistics.started_s + self.options.seconds
            async with asyncio.TaskGroup() as group:
                reader = group.create_task(probe.read()) if measures_lag else None
                async with asyncio.TaskGroup() as work:
                    self._start_sessions(work, writer, model, ids, end_s)
                    if measures_lag:
                        work.create_task(probe.write(end_s))
                    if moving is not None:
                        for name in GROWING:
                            work.create_task(moving.write(name, end_s, self._clock))
                        work.create_task(moving.change(end_s, self._clock, self.statistics))
                self.statistics.ended_s = self._clock.monotonic_s()
                await publisher.flush(STALLED_S)
                await self._drain(writer.last_commit_ts)
                if reader is not None:
                    reader.cancel()
            return writer.last_commit_ts

    async def _prepare_moving(self, writer: Writer, ids: Iterator[int], routes: Routes) -> Moving:
        """Tables that only a run with faults has."""
        await writer.run_ddl(creation(tables.losing_table(SCHEMA, next(ids))))
        refusing, table = (tables.growing_table(SCHEMA, next(ids), name) for name in GROWING)
        for one in (refusing, table):
            await writer.run_ddl(creation(one))
            writer.model.tables[one.name].reserved = True
        await self._drain(writer.last_commit_ts)
        await asyncio.to_thread(self._create_target, table)
        return Moving(self.cluster, writer, table, routes, Random(self._random.random()))

    def _create_target(self, table: tables.Table) -> None:
        """A reload makes no tables: the code that adds a route does."""
        connection = self.cluster.mariadb.open()
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"CREATE TABLE {quote(SCHEMA)}.{MOVED} LIKE {quote(SCHEMA)}.{table.name}")
        finally:
            connection.close()

    async def _overview(self) -> Overview:
        client = await EtcdClient.connect(self.cluster.etcd_endpoint)
        try:
            return await snapshot.take(EtcdRegistry(client), client, None)
        finally:
            await client.close()

    def _start_sessions(
        self, work: asyncio.TaskGroup, writer: Writer, model: Model, ids: Iterator[int], end_s: float
    ) -> None:
        options, clock = self.options, self._clock
        workload = Workload(Random(self._random.random()), model)
        evolution = Evolution(Random(self._random.random()), model, ids)
        interval_s = options.sessions / options.rate if options.rate else 0.0
        for _ in range(options.sessions):
            work.create_task(run_session(writer, workload, interval_s, end_s, clock))
        work.create_task(run_evolution(writer, evolution, DDL_PAUSE_S, end_s, clock))
        work.create_task(run_rare_endings(writer, workload, RARE_ENDINGS, end_s, clock))
        if options.chaos:
            chaos = Random(self._random.random())
            work.create_task(Chaos(self.cluster, writer, chaos, self.statistics).run(end_s, clock))

    async def _drain(self, last_commit_ts: int) -> None:
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
            elif self._clock.monotonic_s() > moved_s + STALLED_S:
                process = self.cluster.drainer.process
                raise Unavailable(
                    f"the Drainer stands at {stored_ts} for {STALLED_S:g} s, the last commit is"
                    f" {last_commit_ts}: {process.tail(1)}",
                    hint=f"see {process.log}",
                )
            await asyncio.sleep(STATUS_S)

    async def _quiet(self) -> None:
        """No session writes: what does the Drainer say of its lag meanwhile, and is the cluster well?"""
        self._phase = "quiet"
        assert self.cluster.drainer is not None
        end_s = self._clock.monotonic_s() + (QUIET_CHAOS_S if self.options.chaos else QUIET_S)
        while self._clock.monotonic_s() < end_s:
            await asyncio.sleep(STATUS_S)
            with suppress(Unavailable):
                status = await self.cluster.drainer.status()
                self.statistics.quiet_lag_s.append(float(status["LagSeconds"]))
        told = (await self._overview()).troubles
        # What faults have left is told for minutes.
        if troubles := [one for one in told if not (self.options.chaos and one.is_past)]:
            listed = "; ".join(f"{one.node} {one.text}" for one in troubles)
            raise Unavailable(
                f"no session writes, and the cluster is not well: {listed}", hint="see the logs"
            )

    async def _compare(self, scenario: Scenario) -> Report:
        self._phase = "comparing"
        return await asyncio.to_thread(self._compare_now, scenario)

    async def _compare_mirror(self, expected: list[ExpectedTable]) -> None:
        """What the subscribing program has, once it is as far as the Drainer."""
        self._phase = "comparing the subscriber"
        mirror = Mirror(self.cluster.mirror)
        try:
            end_s = self._clock.monotonic_s() + STALLED_S
            while mirror.position < self._checkpoint_ts:
                if self._clock.monotonic_s() > end_s:
                    assert self.cluster.subscriber is not None
                    raise Unavailable(
                        f"the subscriber stands at {mirror.position}, the Drainer is at"
                        f" {self._checkpoint_ts}: {self.cluster.subscriber.tail(1)}",
                        hint=f"see {self.cluster.subscriber.log}",
                    )
                await asyncio.sleep(STATUS_S)
            self.subscribed = compare(expected, mirror.contents(expected))
            self.statistics.subscribed = mirror.changes
        finally:
            mirror.close()

    def _compare_now(self, scenario: Scenario) -> Report:
        connection = self.cluster.mariadb.open()
        try:
            downstream = Downstream(connection)
            if scenario.checksums:
                report = Report(tables=len(scenario.checksums))
                for table in scenario.checksums:
                    difference = downstream.checksum_difference(table)
                    if difference is None:
                        report.rows_identical += table.rows
                    else:
                        report.differences.append(difference)
            else:
                report = self._compare_rows(scenario, downstream)
        finally:
            connection.close()
        report.not_compared = scenario.not_compared
        return report

    @staticmethod
    def _compare_rows(scenario: Scenario, downstream: Downstream) -> Report:
        expected = list(scenario.expected)
        moving = next((table for table in expected if (table.schema, table.name) == MOVING), None)
        if moving is not None:
            expected.remove(moving)
            expected += split(moving, downstream.rows(replace(moving, name=MOVED)))
        return compare(expected, downstream.contents(expected), MARIADB, misplaced(scenario.statements))

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
                    kills=self.statistics.kills,
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
            try:
                status = await self.cluster.drainer.status()
            except Unavailable:
                return
            self._checkpoint_ts = max(self._checkpoint_ts, int(status.get("LastTS", 0)))

    def _checkpoint_age_s(self) -> float:
        if not self._checkpoint_ts:
            return 0.0
        return max(0.0, tso.age_s(self._checkpoint_ts, self._clock.wall_s()))

    def _elapsed_s(self) -> float:
        return self._clock.monotonic_s() - self._began_s


def _names(scenario: Scenario) -> list[TableName]:
    """Tables that have rows in the end."""
    names = [(table.schema, table.name) for table in scenario.expected if table.rows]
    return names + [(table.schema, table.name) for table in scenario.checksums]


async def _create_shards(writer: Writer, ids: Iterator[int]) -> None:
    """And the table of which columns get other types: an archive has no values of a type change."""
    for table in (*tables.shards(SCHEMA, ids), tables.losing_table(SCHEMA, next(ids), tables.RECASTING)):
        await writer.run_ddl(creation(table))


async def _create_tables(writer: Writer, ids: Iterator[int]) -> tables.Table:
    """The database and the standing tables, through DDL binlogs; the probe table."""
    await writer.create_schema()
    for table in tables.standing_tables(SCHEMA, ids):
        await writer.run_ddl(creation(table))
    probe_table = tables.probe_table(SCHEMA, next(ids))
    await writer.run_ddl(creation(probe_table))
    writer.model.tables[probe_table.name].reserved = True
    return probe_table
