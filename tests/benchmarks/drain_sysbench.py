"""`drain.sysbench`: a pump full of binlogs, a drainer that starts, a MariaDB that has nothing yet.

The rate is row changes by the time from before the first applied row to the last one, DDL in between
included. Compared with the drainer's own statements, ready-made, sent to the same MariaDB in the same run.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Final

from common.errors import DownstreamError, Unavailable
from deploy.playground.cluster import Cluster, Node
from deploy.playground.downstream import Downstream
from deploy.playground.mariadb import MariaDbServer
from deploy.playground.replay import Replay
from deploy.playground.scenario import Scenario, load
from drainer.sink import mysql
from tests.benchmarks import ready_made, sysbench_like
from tests.benchmarks.measure import StatusPage, cpu_s, peak_rss_mib, percentile
from tests.benchmarks.ready_made import Plan, Sent
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings, private_cluster
from tests.benchmarks.stored import fill

ROUNDS: Final = 3
PUMP: Final = "pump-1"
SAMPLE_S: Final = 0.01
DEADLINE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the drainer; CPU seconds of drainer, pump and MariaDB so far."""

    at_s: float
    applied_ts: int
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
            for schema in {"tidb_binlog", *(table.schema for table in scenario.checksums)}:
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


def observe(node: Node, pids: tuple[int, int, int], last_ts: int) -> list[Sample]:
    """Look at the drainer until everything is applied."""
    page = StatusPage(node.status_url)
    samples: list[Sample] = []
    end_s = time.monotonic() + DEADLINE_S
    try:
        while not samples or samples[-1].applied_ts < last_ts:
            if time.monotonic() > end_s:
                why = node.process.tail(2)
                raise Unavailable(f"the drainer did not finish in {DEADLINE_S:g} s", hint=why)
            try:
                applied_ts = int(page.document()["AppliedTS"])
            except Unavailable:  # it starts
                if not node.process.is_running:
                    raise node.process.death() from None
            else:
                cpu = (cpu_s(pids[0]), cpu_s(pids[1]), cpu_s(pids[2]))
                samples.append(Sample(time.monotonic(), applied_ts, cpu))
            time.sleep(SAMPLE_S)
    finally:
        page.close()
    return samples


def evaluate(samples: list[Sample], plan: Plan) -> Drained:
    stretches = plan.with_rows
    begin = last_before(samples, stretches[0].first_ts)
    last = last_before(samples, stretches[-1].first_ts)
    end = samples[-1]
    cpu = tuple(after - before for before, after in zip(begin.cpu_s, end.cpu_s, strict=True))
    return Drained(end.at_s - begin.at_s, end.at_s - last.at_s, cpu)


def last_before(samples: list[Sample], commit_ts: int) -> Sample:
    """The last look at which the commit was not applied; the first look if it always was."""
    return next((sample for sample in reversed(samples) if sample.applied_ts < commit_ts), samples[0])


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

    async def drain(self) -> None:
        cluster, server = self.cluster, self.cluster.mariadb
        reset(server, self.scenario)
        if cluster.drainer is None:
            await cluster.start_drainer()
        else:
            cluster.drainer.process.start()
        assert cluster.drainer is not None
        assert server.process is not None
        node = cluster.drainer
        pids = (node.process.pid, cluster.pumps[0].process.pid, server.process.pid)
        samples = await asyncio.to_thread(observe, node, pids, self.scenario.last_commit_ts)
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
