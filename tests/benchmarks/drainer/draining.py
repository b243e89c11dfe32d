"""Pump full, drainer starts, observe: what all benchmarks of a drainer's rate do.

A rate is row changes by the time from before the first applied row to the last one, DDL in between included.
It is compared with the drainer's own statements, ready-made, sent to the same MariaDB in the same run, in
turns; and so with Go's drainer, which reads the same pump, in the safe mode of its first minutes. Contents
are verified after every round of each.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Final

from binlog_playground.check.downstream import Downstream
from binlog_playground.cluster.cluster import Cluster, Node
from binlog_playground.cluster.mariadb import MariaDbServer
from binlog_playground.replay import Replay
from binlog_playground.scenario import Scenario
from drainer.checkpoint.store import DEFAULT_SCHEMA, SIDE_LANES
from drainer.mysql.connection import Target
from drainer.mysql.errors import SessionError
from tests.benchmarks.drainer import ready_made
from tests.benchmarks.drainer.ready_made import Plan, Sent
from tests.benchmarks.drainer.stored import fill
from tests.benchmarks.drainer.workloads import Backlog
from tests.benchmarks.measure import StatusPage, cpu_s, peak_rss_mib, percentile
from tests.benchmarks.peer.programs import DRAINER, programs
from tests.benchmarks.report import Result, Theirs
from tests.benchmarks.settings import Settings, private_cluster
from tidb_binlog import tso
from tidb_binlog.errors import DownstreamError, Unavailable

ROUNDS: Final = 3
PUMP: Final = "pump-1"
SAMPLE_S: Final = 0.005
STATUS_S: Final = 0.1
LANES: Final = f"SELECT applied_ts FROM {DEFAULT_SCHEMA}.lanes WHERE lane < {SIDE_LANES} ORDER BY lane"
DEADLINE_S: Final = 60.0
PEER_DEADLINE_S: Final = 300.0
MOVE_S: Final = 1.0
MOVE: Final = tso.compose(4000)


@dataclass(frozen=True, slots=True)
class Progress:
    """How a drainer's progress is seen. `done`: what its status page calls what it has applied."""

    sql: str
    done: str


OURS: Final = Progress(LANES, "AppliedTS")
PEER: Final = Progress(
    "SELECT SUM(ROWS_CHANGED) FROM information_schema.TABLE_STATISTICS"
    f" WHERE TABLE_SCHEMA NOT IN ('{DEFAULT_SCHEMA}', 'mysql') HAVING SUM(ROWS_CHANGED) > 0",
    "LastTS",
)
"""It has no position that moves with each transaction: the server counts its row changes."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One look: where the lanes are, and the CPU seconds of drainer, pump and MariaDB so far."""

    at_s: float
    lanes: tuple[int, ...]
    cpu_s: tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Drained:
    """One round. `last_s`: from the last DDL to the end; CPU seconds of the whole; peaks in MiB.

    `first_row_s`: from exec until a lane had moved over the first row.
    """

    seconds: float
    last_s: float
    first_row_s: float
    cpu_s: tuple[float, ...]
    peak_rss_mib: float
    pump_rss_mib: float


def reset(server: MariaDbServer, scenario: Scenario) -> None:
    """A downstream that has seen nothing."""
    connection = server.open()
    try:
        with connection.cursor() as cursor:
            for schema in {DEFAULT_SCHEMA, *(table.schema for table in scenario.checksums)}:
                cursor.execute(f"DROP DATABASE IF EXISTS `{schema}`")
    finally:
        connection.close()


def count_changes(server: MariaDbServer, *, counted: bool) -> None:
    """The server counts changes of each table from now on, or no more: it costs a little."""
    connection = server.open()
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"SET GLOBAL userstat = {int(counted)}")
            cursor.execute("FLUSH TABLE_STATISTICS")
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


@asynccontextmanager
async def going_on(cluster: Cluster) -> AsyncIterator[None]:
    """The clock that stands moves: Go's drainer says where it is when it stores that, which takes a mark of
    time that is 3 s behind the one before."""
    assert cluster.upstream is not None
    oracle = cluster.upstream.oracle

    async def move() -> None:
        while True:
            await asyncio.sleep(MOVE_S)
            await oracle.pin(await oracle.timestamp() + MOVE)

    moving = asyncio.create_task(move())
    try:
        yield
    finally:
        moving.cancel()
        await asyncio.gather(moving, return_exceptions=True)


class Observer:
    """Looks at the lanes' rows in MariaDB, which costs the drainer nothing; its status page says the end."""

    def __init__(
        self,
        node: Node,
        pids: tuple[int, int, int],
        server: MariaDbServer,
        deadline_s: float,
        progress: Progress = OURS,
    ) -> None:
        self._progress = progress
        self._node = node
        self._pids = pids
        self._deadline_s = deadline_s
        self._connection = server.open()
        self._page = StatusPage(node.status_url)

    def run(self, last_ts: int) -> list[Sample]:
        """Until everything is applied. Raises `Unavailable`, or `ProcessDied` if the drainer ends."""
        samples: list[Sample] = []
        end_s = time.monotonic() + self._deadline_s
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
                raise Unavailable(f"the drainer did not finish in {self._deadline_s:g} s", hint=why)
            time.sleep(SAMPLE_S)

    def close(self) -> None:
        self._page.close()
        self._connection.close()

    def _lanes(self) -> tuple[int, ...]:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(self._progress.sql)
                return tuple(int(row[0]) for row in cursor.fetchall())
        except SessionError:  # the table is not there yet
            return ()

    def _is_done(self, last_ts: int) -> bool:
        try:
            return int(self._page.document().get(self._progress.done, 0)) >= last_ts
        except Unavailable:  # it starts
            if not self._node.process.is_running:
                raise self._node.process.death() from None
            return False


def last_before(samples: list[Sample], commit_ts: int) -> Sample:
    """The last look at which no lane had applied the commit."""
    return next(
        sample for sample in reversed(samples) if all(applied < commit_ts for applied in sample.lanes)
    )


def first_behind(samples: list[Sample], commit_ts: int) -> Sample:
    """The first look at which a lane had applied the commit."""
    return next(sample for sample in samples if any(applied >= commit_ts for applied in sample.lanes))


@dataclass(slots=True)
class Rounds:
    """What was measured of one way to drain, and of Go's; of the limit for `sent`."""

    drained: list[Drained] = field(default_factory=list)
    theirs: list[Drained] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    limit_cpu_s: list[float] = field(default_factory=list)

    def median(self, figure: Callable[[Drained], float]) -> float:
        return percentile([figure(one) for one in self.drained], 0.5)

    @property
    def peak_rss_mib(self) -> float:
        return max(one.peak_rss_mib for one in self.drained)


class Bench:
    """A cluster whose pump holds the workload. Drainers with and without more options take turns."""

    def __init__(self, cluster: Cluster, scenario: Scenario, plan: Plan, deadline_s: float) -> None:
        self.cluster = cluster
        self.scenario = scenario
        self.plan = plan
        self._deadline_s = deadline_s
        self._last_ts = scenario.last_commit_ts

    async def fill(self, more: Backlog | None) -> None:
        cluster, scenario = self.cluster, self.scenario
        upstream = await cluster.start_base(scenario.cluster_id)
        await Replay.prepare(scenario, upstream)
        (records,) = scenario.files
        if more is not None:
            self._last_ts = more.last_ts
        stored = itertools.chain(records, more or ())
        await fill(cluster.directory / PUMP, PUMP, scenario.cluster_id, stored)
        # Above every commit: a time mark of the pump must not have the timestamp of a transaction.
        await upstream.oracle.pin(self._last_ts + 1)
        await cluster.start_pumps(1)  # it serves from its files, as for a drainer that was away for long

    async def drainer(self, name: str = "drainer", syncer: str = "") -> Node:
        """A drainer with more lines of [syncer], not running."""
        node = await self.cluster.start_drainer(name, syncer)
        await asyncio.to_thread(node.process.stop)
        return node

    async def drain(self, node: Node, progress: Progress = OURS) -> Drained:
        server = self.cluster.mariadb
        reset(server, self.scenario)
        count_changes(server, counted=progress is PEER)
        assert server.process is not None
        began_s = time.monotonic()
        node.process.start()
        pids = (node.process.pid, self.cluster.pumps[0].process.pid, server.process.pid)
        deadline_s = self._deadline_s if progress is OURS else PEER_DEADLINE_S
        observer = Observer(node, pids, server, deadline_s, progress)
        try:
            async with nullcontext() if progress is OURS else going_on(self.cluster):
                samples = await asyncio.to_thread(observer.run, self._last_ts)
        finally:
            observer.close()
        peaks = peak_rss_mib(pids[0]), peak_rss_mib(pids[1])
        await asyncio.to_thread(node.process.stop)
        await asyncio.to_thread(verify, server, self.scenario)
        return self._evaluate(samples, began_s, progress, *peaks)

    def _evaluate(
        self, samples: list[Sample], began_s: float, progress: Progress, peak: float, pump_peak: float
    ) -> Drained:
        stretches = self.plan.with_rows
        first, later = (stretches[at].first_ts if progress is OURS else 1 for at in (0, -1))
        begin, last = last_before(samples, first), last_before(samples, later)
        first_row_s = first_behind(samples, first).at_s - began_s
        # Lanes stand still from the moment when everything was applied.
        end = next(sample for sample in samples if sample.lanes == samples[-1].lanes)
        cpu = tuple(after - before for before, after in zip(begin.cpu_s, end.cpu_s, strict=True))
        return Drained(end.at_s - begin.at_s, end.at_s - last.at_s, first_row_s, cpu, peak, pump_peak)

    @contextmanager
    def peer(self, settings: Settings, syncer: str = "") -> Iterator[Node | None]:
        """Go's drainer into the same MariaDB, not running; None where it is not to be measured."""
        cluster = self.cluster
        with programs(settings, DRAINER, cluster.supervisor, cluster.etcd_endpoint) as go:
            yield None if go is None else go.mysql_drainer(cluster.mariadb, syncer)

    def limit(self, rounds: Rounds) -> None:
        server = self.cluster.mariadb
        assert server.process is not None
        reset(server, self.scenario)
        target = Target(server.host, server.port, server.user, server.password)
        before_s = cpu_s(server.process.pid)
        rounds.sent.append(ready_made.send(self.plan, target))
        rounds.limit_cpu_s.append(cpu_s(server.process.pid) - before_s)
        verify(server, self.scenario)


@asynccontextmanager
async def filled(
    scenario: Scenario,
    *,
    more: Backlog | None = None,
    durable: bool = False,
    deadline_s: float = DEADLINE_S,
) -> AsyncIterator[Bench]:
    """A bench whose pump is full, of `more` too. `durable`: MariaDB syncs at every commit."""
    plan = ready_made.prepare(scenario)
    async with private_cluster() as cluster:
        cluster.mariadb.durable = durable
        bench = Bench(cluster, scenario, plan, deadline_s)
        await bench.fill(more)
        yield bench


async def measured(
    scenario: Scenario, settings: Settings, *, durable: bool = False, rounds: int = ROUNDS
) -> tuple[Plan, Rounds]:
    """Rounds of draining, of the limit, and of Go's drainer, in turns."""
    found = Rounds()
    async with filled(scenario, durable=durable) as bench:
        node = await bench.drainer()
        with bench.peer(settings) as peer:
            for _ in range(rounds):
                found.drained.append(await bench.drain(node))
                await asyncio.to_thread(bench.limit, found)
                if peer is not None:
                    found.theirs.append(await bench.drain(peer, PEER))
        return bench.plan, found


def costs(plan: Plan, found: Rounds) -> tuple[float, float, float]:
    """CPU microseconds a row change: drainer, pump, MariaDB."""
    one, two, three = (
        percentile([drained.cpu_s[at] for drained in found.drained], 0.5) / plan.rows * 1e6 for at in range(3)
    )
    return one, two, three


def of_peer(rows: int, found: Rounds) -> Theirs | None:
    """Its rate, and CPU of a row change."""
    costs_us = [one.cpu_s[0] / rows * 1e6 for one in found.theirs]
    return Theirs.of([rows / one.seconds for one in found.theirs], costs_us)


def result(name: str, what: str, plan: Plan, found: Rounds) -> Result:
    """The rate of a workload against its ready-made statements."""
    rows, last_rows = plan.rows, plan.with_rows[-1].rows
    rate = rows / found.median(lambda one: one.seconds)
    last_rate = last_rows / found.median(lambda one: one.last_s)
    limit = rows / percentile([one.seconds for one in found.sent], 0.5)
    last_limit = last_rows / percentile([one.last_s for one in found.sent], 0.5)
    drainer, pump, server = costs(plan, found)
    limit_cost = percentile(found.limit_cpu_s, 0.5) / rows * 1e6
    pump_peak = max(one.pump_rss_mib for one in found.drained)
    return Result(
        name=name,
        value=rate,
        unit="changes/s",
        cpu_us_per_unit=drainer,
        peak_rss_mib=found.peak_rss_mib,
        compared_to=f"the same statements ready-made, {limit:,.0f}/s",
        ratio=rate / limit,
        note=(
            f"{what}, {rows:,} row changes, rounds {rates(rows, found.drained)}/s; transactions behind the"
            f" last DDL alone {last_rate:,.0f}/s (ready-made {last_limit:,.0f}/s); CPU us a change: drainer"
            f" {drainer:.1f}, pump {pump:.1f}, MariaDB {server:.1f} (ready-made {limit_cost:.1f});"
            f" {limited_by(plan, found)}; peak MiB: drainer {found.peak_rss_mib:.0f},"
            f" pump {pump_peak:.0f}; contents verified"
        ),
        theirs=of_peer(rows, found),
    )


def rates(rows: int, drained: Iterable[Drained]) -> str:
    return ", ".join(f"{rows / one.seconds:,.0f}" for one in drained)


def limited_by(plan: Plan, found: Rounds) -> str:
    """What the time went to, from the CPU of the three while it lasted."""
    seconds = found.median(lambda one: one.seconds)
    names = ("drainer", "pump", "MariaDB")
    shares = [cost * plan.rows / 1e6 / seconds for cost in costs(plan, found)]
    busiest = max(range(3), key=lambda at: shares[at])
    kind = (
        "waiting (locks, disk, other processes), not CPU"
        if shares[busiest] < 0.7
        else f"the CPU of {names[busiest]}"
    )
    used = ", ".join(f"{name} {share:.0%}" for name, share in zip(names, shares, strict=True))
    return f"limited by {kind} (of a core: {used})"
