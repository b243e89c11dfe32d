"""`drain.sysbench`: a pump full of binlogs, a drainer that starts, a MariaDB that has nothing yet.

The rate is row changes by the time from before the first applied row to the last one, DDL in between
included. Compared with the drainer's own statements, ready-made, sent to the same MariaDB in the same run.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Final

import pymysql

from common.errors import DownstreamError, Unavailable
from deploy.playground.cluster import Cluster, Node
from deploy.playground.downstream import Downstream
from deploy.playground.mariadb import MariaDbServer
from deploy.playground.replay import Replay
from deploy.playground.scenario import Scenario, load
from drainer.checkpoint import DEFAULT_SCHEMA
from drainer.sink import mysql
from tests.benchmarks import ready_made, sysbench_like
from tests.benchmarks.measure import StatusPage, cpu_s, peak_rss_mib, percentile
from tests.benchmarks.ready_made import Plan, Sent
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings, private_cluster
from tests.benchmarks.stored import fill

ROUNDS: Final = 3
PUMP: Final = "pump-1"
SAMPLE_S: Final = 0.005
STATUS_S: Final = 0.1
LANES: Final = f"SELECT applied_ts FROM {DEFAULT_SCHEMA}.lanes ORDER BY lane"
DEADLINE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One look: where the lanes are, and the CPU seconds of drainer, pump and MariaDB so far."""

    at_s: float
    lanes: tuple[int, ...]
    cpu_s: tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Drained:
    """One round. `last_s`: from the last DDL to the end; CPU seconds of the whole."""

    seconds: float
    last_s: float
    cpu_s: tuple[float, ...]


def reset(server: MariaDbServer, scenario: Scenario) -> None:
    """A downstream that has seen nothing."""
    connection = server.open()
    try:
        with connection.cursor() as cursor:
            for schema in {DEFAULT_SCHEMA, *(table.schema for table in scenario.checksums)}:
                cursor.execute(f"DROP DATABASE IF EXISTS `{schema}`")
    finally:
        connection.close()


def verify(server: MariaDbServer, scenario: Scenario) -> None:
    """Raises `DownstreamError` if a table differs from what it must be."""
    connection = server.open()
    try:
        downstream = Downstream(connection)
        for table in scenario.checksums:
            difference = downstream.checksum_difference(table)
            if difference is not None:
                raise DownstreamError(f"contents differ: {difference}")
    finally:
        connection.close()


class Observer:
    """Looks at the lanes' rows in MariaDB, which costs the drainer nothing; its status page says the end."""

    def __init__(self, node: Node, pids: tuple[int, int, int], server: MariaDbServer) -> None:
        self._node = node
        self._pids = pids
        self._connection = server.open()
        self._page = StatusPage(node.status_url)

    def run(self, last_ts: int) -> list[Sample]:
        """Until everything is applied. Raises `Unavailable`, or `ProcessDied` if the drainer ends."""
        samples: list[Sample] = []
        end_s = time.monotonic() + DEADLINE_S
        next_status_s = 0.0
        while True:
            cpu = (cpu_s(self._pids[0]), cpu_s(self._pids[1]), cpu_s(self._pids[2]))
            samples.append(Sample(time.monotonic(), self._lanes(), cpu))
            if samples[-1].at_s > next_status_s:
                if self._is_done(last_ts):
                    return samples
                next_status_s = samples[-1].at_s + STATUS_S
            if samples[-1].at_s > end_s:
                why = self._node.process.tail(2)
                raise Unavailable(f"the drainer did not finish in {DEADLINE_S:g} s", hint=why)
            time.sleep(SAMPLE_S)

    def close(self) -> None:
        self._page.close()
        self._connection.close()

    def _lanes(self) -> tuple[int, ...]:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(LANES)
                return tuple(int(row[0]) for row in cursor.fetchall())
        except pymysql.MySQLError:  # the table is not there yet
            return ()

    def _is_done(self, last_ts: int) -> bool:
        try:
            return int(self._page.document()["AppliedTS"]) >= last_ts
        except Unavailable:  # it starts
            if not self._node.process.is_running:
                raise self._node.process.death() from None
            return False


def evaluate(samples: list[Sample], plan: Plan) -> Drained:
    stretches = plan.with_rows
    begin = last_before(samples, stretches[0].first_ts)
    last = last_before(samples, stretches[-1].first_ts)
    # Lanes stand still from the moment when everything was applied.
    end = next(sample for sample in samples if sample.lanes == samples[-1].lanes)
    cpu = tuple(after - before for before, after in zip(begin.cpu_s, end.cpu_s, strict=True))
    return Drained(end.at_s - begin.at_s, end.at_s - last.at_s, cpu)


def last_before(samples: list[Sample], commit_ts: int) -> Sample:
    """The last look at which no lane had applied the commit."""
    return next(
        sample for sample in reversed(samples) if all(applied < commit_ts for applied in sample.lanes)
    )


class Bench:
    """A cluster whose pump holds the workload."""

    def __init__(self, cluster: Cluster, scenario: Scenario, plan: Plan) -> None:
        self.cluster = cluster
        self.scenario = scenario
        self.plan = plan
        self.drained: list[Drained] = []
        self.sent: list[Sent] = []
        self.limit_cpu_s: list[float] = []

    async def fill(self) -> None:
        cluster, scenario = self.cluster, self.scenario
        upstream = await cluster.start_base(scenario.cluster_id)
        await Replay.prepare(scenario, upstream)
        (records,) = scenario.files
        await fill(cluster.directory / PUMP, PUMP, scenario.cluster_id, records)
        # Above every commit: a time mark of the pump must not have the timestamp of a transaction.
        await upstream.oracle.pin(scenario.last_commit_ts + 1)
        await cluster.start_pumps(1)  # it serves from its files, as for a drainer that was away for long
        drainer = await cluster.start_drainer()
        await asyncio.to_thread(drainer.process.stop)

    async def drain(self) -> None:
        cluster, server = self.cluster, self.cluster.mariadb
        reset(server, self.scenario)
        node = cluster.drainer
        assert node is not None
        assert server.process is not None
        node.process.start()
        pids = (node.process.pid, cluster.pumps[0].process.pid, server.process.pid)
        observer = Observer(node, pids, server)
        try:
            samples = await asyncio.to_thread(observer.run, self.scenario.last_commit_ts)
        finally:
            observer.close()
        self.drained.append(evaluate(samples, self.plan))
        self.peak_rss_mib = peak_rss_mib(node.process.pid)
        self.pump_rss_mib = peak_rss_mib(pids[1])
        await asyncio.to_thread(node.process.stop)
        await asyncio.to_thread(verify, server, self.scenario)

    def limit(self) -> None:
        server = self.cluster.mariadb
        assert server.process is not None
        reset(server, self.scenario)
        target = mysql.Target(server.host, server.port, server.user, server.password)
        before_s = cpu_s(server.process.pid)
        self.sent.append(ready_made.send(self.plan, target))
        self.limit_cpu_s.append(cpu_s(server.process.pid) - before_s)
        verify(server, self.scenario)

    def result(self, source: str) -> Result:
        rows = self.plan.rows
        last_rows = self.plan.with_rows[-1].rows
        rate = rows / percentile([one.seconds for one in self.drained], 0.5)
        last_rate = last_rows / percentile([one.last_s for one in self.drained], 0.5)
        limit = rows / percentile([one.seconds for one in self.sent], 0.5)
        last_limit = last_rows / percentile([one.last_s for one in self.sent], 0.5)
        costs = [percentile([one.cpu_s[at] for one in self.drained], 0.5) / rows * 1e6 for at in range(3)]
        limit_cost = percentile(self.limit_cpu_s, 0.5) / rows * 1e6
        rounds = ", ".join(f"{rows / one.seconds:,.0f}" for one in self.drained)
        return Result(
            name="drain.sysbench",
            value=rate,
            unit="changes/s",
            cpu_us_per_unit=costs[0],
            p50_ms=None,
            p99_ms=None,
            peak_rss_mib=self.peak_rss_mib,
            compared_to=f"the same statements ready-made, {limit:,.0f}/s",
            ratio=rate / limit,
            note=(
                f"{source}, {rows:,} row changes, rounds {rounds}/s; transactions behind the last DDL alone"
                f" {last_rate:,.0f}/s (ready-made {last_limit:,.0f}/s); CPU us a change: drainer"
                f" {costs[0]:.1f}, pump {costs[1]:.1f}, MariaDB {costs[2]:.1f} (ready-made {limit_cost:.1f});"
                f" peak MiB: drainer {self.peak_rss_mib:.0f}, pump {self.pump_rss_mib:.0f}; contents verified"
            ),
        )


async def measure(settings: Settings) -> Result:
    scenario = sysbench_like.make() if settings.recording is None else load(settings.recording)
    plan = ready_made.prepare(scenario)
    async with private_cluster() as cluster:
        bench = Bench(cluster, scenario, plan)
        await bench.fill()
        for _ in range(ROUNDS):
            await bench.drain()
            await asyncio.to_thread(bench.limit)
        return bench.result("made up" if settings.recording is None else "recorded")


def run(settings: Settings) -> Result:
    return asyncio.run(measure(settings))
