"""Run: the rig's, from start to end: the demo on tables of every kind and under faults, a replay, an archive.

Drives  what the playground's run does, sessions of the model, chaos
Never   compares before the Drainer has passed the last commit
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, Final

from binlog_playground.application import SCHEMA
from binlog_playground.check.downstream import Downstream, quote
from binlog_playground.check.live_view import LiveView
from binlog_playground.check.verify import ExpectedTable, Report, TableName, compare
from binlog_playground.replay import Replay
from binlog_playground.run import PUMPS, RECORDED, STALLED_S, STATUS_S, LagProbe, Run, tables_with_rows
from binlog_playground.scenario import Scenario, load
from pumpclient.publish.publisher import open_publisher
from tests.rig.chaos import Chaos, Keeper, decide, run_replay_kills
from tests.rig.cluster import RigCluster, Routes
from tests.rig.mirror import Mirror
from tests.rig.options import RigOptions
from tests.rig.rule_changes import MOVED, Moving, split
from tests.rig.workload import tables
from tests.rig.workload.evolution import Evolution, creation
from tests.rig.workload.limits import MARIADB, misplaced
from tests.rig.workload.model import Model
from tests.rig.workload.session import (
    Writer,
    run_evolution,
    run_large,
    run_probe,
    run_rare_endings,
    run_session,
)
from tests.rig.workload.statistics import RigStatistics
from tests.rig.workload.workload import Ending, Workload
from tidb_binlog.clock import Clock
from tidb_binlog.errors import Unavailable

FIRST_ID: Final = 1000  # above every id of a recording
QUIET_CHAOS_S: Final = 20.0
DDL_PAUSE_S: Final = 1.5
DDL_TRANSACTIONS: Final = 60
"""Between two DDL at least: a stream of Spark has a batch for each."""
SHARDS: Final = "shards"
ROUTES: Final = {(SCHEMA, "shard_1"): SHARDS, (SCHEMA, "shard_2"): SHARDS}
SPARK_ROUTES: Final = ROUTES | {(SCHEMA, name): f"routed_{name}" for name in ("no_key", "evolving")}
"""A stream takes no other rules while it runs: some tables have another name from the beginning."""
MOVING: Final = (SCHEMA, "moving")
GROWING: Final = (tables.REFUSING, "moving")
RARE_ENDINGS: Final = {Ending.ABANDON: 18.0, Ending.LOSE_COMMIT: 14.0}
LARGE: Final = 4000
"""Statements; of a stream of Spark it is about as many rows as it writes at once, and more."""
LARGE_EVERY_S: Final = 7.0
SPARK_STARTS_S: Final = 900.0
"""Three JVMs on a machine that has other work, and again after each kill."""


class RigRun(Run):
    """One run on one cluster."""

    options: RigOptions
    cluster: RigCluster
    statistics: RigStatistics

    def __init__(self, options: RigOptions, cluster: RigCluster, view: LiveView, clock: Clock) -> None:
        super().__init__(options, cluster, view, clock)
        self.statistics = RigStatistics()
        self.subscribed: Report | None = None
        """What the comparison of the subscribing program's tables came to."""
        self._keeper = Keeper(cluster, clock)
        self._routes: Routes = {}
        """Those that the Drainer starts with."""
        if options.spark:
            self._stalled_s = SPARK_STARTS_S

    async def demo(self) -> Report:
        """Recorded workload, random workload, comparison."""
        self._routes = SPARK_ROUTES if self.options.spark else ROUTES
        if self.options.spark and self.options.chaos:
            # The recording is the same in each run, without faults, and takes Spark longer than all the rest.
            scenario = Scenario("none", 0, [], [], {}, [])
            await self._start_empty()
        else:
            scenario = load(RECORDED)
            await self._start(scenario, PUMPS)
        model = Model(SCHEMA)
        async with self._background(tables_with_rows(scenario)):
            if scenario.files:
                await self._replay(scenario)
                assert self.cluster.upstream is not None
                await self.cluster.upstream.oracle.unpin()
            last_commit_ts = await self._model_workload(model, routes=self._routes, measures_lag=True)
            if not self.options.chaos:  # with it a pump may be away just now
                await self._show_changes()
            await self._drain(max(last_commit_ts, scenario.last_commit_ts))
            if self.options.chaos:
                await self._quiet(QUIET_CHAOS_S, past_too=False)
            else:
                await self._quiet()
            targets = {table: target for (_, table), target in self._routes.items()}
            expected = [*scenario.expected, *model.expected(targets)]
            if self.options.subscriber:
                await self._compare_mirror([*scenario.expected, *model.expected()])
            return await self._compare(replace(scenario, expected=expected))

    async def archive(self) -> Model:
        """Random workload into an archive that is complete and closed then; what its rows have come to."""
        self._view.say(f"starting etcd, {PUMPS} Pumps, an archiving Drainer and MariaDB")
        await self.cluster.start_base(None)
        await self.cluster.start_pumps(PUMPS)
        node = await self.cluster.start_archiver("archiver", '[syncer.to]\nfile-size = "1 MiB"')
        model = Model(SCHEMA)
        async with self._background([]):
            await self._drain(await self._model_workload(model, measures_lag=False))
        node.process.stop()
        return model

    async def replay(self, directory: Path) -> Report:
        """A recorded scenario, comparison."""
        scenario = load(directory)
        await self._start(scenario, len(scenario.files))
        async with self._background(tables_with_rows(scenario)):
            await self._replay(scenario)
            await self._drain(scenario.last_commit_ts)
            return await self._compare(scenario)

    async def _start_empty(self) -> None:
        await self.cluster.start_base(None)
        await self.cluster.start_pumps(PUMPS)
        await self._start_drainer()

    async def _start_drainer(self) -> None:
        if self.options.chaos:
            await self.cluster.prepare_faults()
            if self.cluster.small_disk is None:
                self._view.say("not among the faults: a full disk, which only root can make")
        if self.options.spark:
            await self.cluster.start_stream(self.options.spark, self._routes)
        else:
            await self.cluster.start_routed_drainer(self._routes)
        if self.options.subscriber:
            self.cluster.start_subscriber()

    def _jobs(self, names: Sequence[TableName]) -> list[Coroutine[Any, Any, None]]:
        return [*super()._jobs(names), decide(self.cluster, SCHEMA, SHARDS, self.statistics)]

    async def _watch(self) -> None:
        await self._keeper.run()

    async def _send(self, replay: Replay) -> None:
        async with asyncio.TaskGroup() as group:
            if self.options.kill:
                kills = Random(self.options.seed)
                group.create_task(
                    run_replay_kills(self.cluster, replay, kills, self.statistics, self._view.say)
                )
            group.create_task(replay.run())

    async def _model_workload(
        self, model: Model, *, routes: Routes = MappingProxyType({}), measures_lag: bool
    ) -> int:
        """Tables, sessions, DDL, probes and chaos for the time asked for; the last commit timestamp."""
        assert self.cluster.upstream is not None
        self._phase = "creating tables"
        ids = itertools.count(FIRST_ID)
        async with await open_publisher(self.cluster.etcd_endpoint) as publisher:
            version = publisher.schema_version
            writer = Writer(publisher, self.cluster.upstream, model, self.statistics, ids, version)
            probe = self._probe(writer, await _create_tables(writer, ids))
            if routes:
                await _create_shards(writer, ids, swaps=bool(self.options.spark))
            moving = await self._prepare_moving(writer, ids, routes) if self.options.chaos else None
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
                        if not self.options.spark:  # it takes a reload
                            work.create_task(moving.change(end_s, self._clock, self.statistics))
                self.statistics.ended_s = self._clock.monotonic_s()
                await publisher.flush(STALLED_S)
                await self._drain(writer.last_commit_ts)
                if reader is not None:
                    reader.cancel()
            return writer.last_commit_ts

    def _probe(self, writer: Writer, table: tables.Table) -> LagProbe:
        async def send(number: int, sent_at: str) -> bool:
            return await run_probe(writer, table, number, sent_at)

        name = f"{quote(table.schema)}.{quote(table.name)}"
        return LagProbe(send, name, self.statistics.lag_s, self.cluster.mariadb, self._clock)

    async def _prepare_moving(self, writer: Writer, ids: Iterator[int], routes: Routes) -> Moving:
        """Tables that only a run with faults has."""
        if not self.options.spark:
            await writer.run_ddl(creation(tables.losing_table(SCHEMA, next(ids))))
        refusing, moving = (tables.growing_table(SCHEMA, next(ids), name) for name in GROWING)
        for table in (refusing, moving):
            await writer.run_ddl(creation(table))
            writer.model.tables[table.name].reserved = True
        await self._drain(writer.last_commit_ts)
        await asyncio.to_thread(self._create_target, moving)
        return Moving(self.cluster, writer, moving, routes, Random(self._random.random()))

    def _create_target(self, table: tables.Table) -> None:
        """A reload makes no tables: the code that adds a route does."""
        connection = self.cluster.mariadb.open()
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"CREATE TABLE {quote(SCHEMA)}.{MOVED} LIKE {quote(SCHEMA)}.{table.name}")
        finally:
            connection.close()

    def _start_sessions(
        self, work: asyncio.TaskGroup, writer: Writer, model: Model, ids: Iterator[int], end_s: float
    ) -> None:
        options, clock = self.options, self._clock
        workload = Workload(Random(self._random.random()), model)
        evolution = Evolution(Random(self._random.random()), model, ids)
        interval_s = options.sessions / options.rate if options.rate else 0.0
        for _ in range(options.sessions):
            work.create_task(run_session(writer, workload, interval_s, end_s, clock))
        pause_s = max(DDL_PAUSE_S, DDL_TRANSACTIONS / options.rate if options.rate else 0.0)
        work.create_task(run_evolution(writer, evolution, pause_s, end_s, clock))
        work.create_task(run_rare_endings(writer, workload, RARE_ENDINGS, end_s, clock))
        if options.chaos:
            work.create_task(run_large(writer, workload, LARGE, LARGE_EVERY_S, end_s, clock))
            chaos = Random(self._random.random())
            faults = Chaos(self.cluster, writer, chaos, self.statistics)
            work.create_task(faults.run(end_s, clock))

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

    def _compare_rows(self, scenario: Scenario, downstream: Downstream) -> Report:
        if scenario.checksums:
            report = Report(tables=len(scenario.checksums))
            for checksum in scenario.checksums:
                difference = downstream.checksum_difference(checksum)
                if difference is None:
                    report.rows_identical += checksum.rows
                else:
                    report.differences.append(difference)
            return report
        expected = list(scenario.expected)
        moving = next((table for table in expected if (table.schema, table.name) == MOVING), None)
        if moving is not None:
            expected.remove(moving)
            expected += split(moving, downstream.rows(replace(moving, name=MOVED)))
        return compare(expected, downstream.contents(expected), MARIADB, misplaced(scenario.statements))


async def _create_shards(writer: Writer, ids: Iterator[int], *, swaps: bool) -> None:
    """And the table of which columns get other types: an archive has no values of a type change. `swaps`: two
    more that take each other's name again and again."""
    swapped = tables.swapped(SCHEMA, ids) if swaps else ()
    recasting = tables.losing_table(SCHEMA, next(ids), tables.RECASTING)
    for table in (*tables.shards(SCHEMA, ids), recasting, *swapped):
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
