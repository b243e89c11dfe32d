"""`lag.idle.1`, `lag.idle.2`, `lag.load`: from a commit's acknowledgement until its row is seen downstream.

A probe transaction each second (under load every 0.3 s) through `pumpclient`; a reader asks MariaDB every
2 ms. The first row of a table, for which the drainer reads its definition downstream and connects a lane, is
told apart. Compared with a direct INSERT and COMMIT into the same MariaDB, from its beginning until the same
reader sees it. Go's pumps with Go's drainer are probed in the same way behind ours, in their own cluster.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from binlog_playground.cluster.cluster import Cluster, Node
from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Connection
from drainer.mysql.errors import NoSuchTable
from pumpclient.publish.publisher import Publisher, open_publisher
from tests.benchmarks.drainer import shop
from tests.benchmarks.measure import cpu_s, peak_rss_mib, percentile
from tests.benchmarks.peer.programs import DRAINER, PUMP, Programs, program, programs
from tests.benchmarks.report import Result, Theirs
from tests.benchmarks.settings import Settings, private_cluster
from tests.rig import ROOT
from tidb_binlog.errors import Unavailable

PROBES_A_SECOND_ASKED: Final = 10  # 60 probes for the 6 s that are the default
PROBES_MIN: Final = 5
IDLE_INTERVAL_S: Final = 0.98
LOAD_INTERVAL_S: Final = 0.28
JITTER_S: Final = 0.04  # or the probes would keep step with timers of the servers
READ_S: Final = 0.002
GIVE_UP_S: Final = 20.0
DIRECT_PROBES: Final = 20
DIRECT_PAUSE_S: Final = 0.02
LOAD_PER_S: Final = 200.0
SETTLE_S: Final = 1.0


class Reader:
    """Asks for the newest row of a table every 2 ms, on a thread and connection of its own."""

    def __init__(self, server: MariaDbServer, table: str) -> None:
        self._connection: Connection = server.connect()
        self._sql = f"SELECT MAX(id) FROM {table}"
        self._condition = threading.Condition()
        self._newest = 0
        self._seen_s = 0.0
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)
        self._thread.start()

    def seen_s(self, number: int) -> float:
        """Wait until row `number` is there; when it was seen (monotonic). Raises `Unavailable`."""
        with self._condition:
            if not self._condition.wait_for(lambda: self._newest >= number, GIVE_UP_S):
                raise Unavailable(f"row {number} is not downstream after {GIVE_UP_S:g} s")
            return self._seen_s

    def close(self) -> None:
        self._ended = True
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        while not self._ended:
            try:
                with self._connection.cursor() as cursor:
                    cursor.execute(self._sql)
                    found = cursor.fetchone()
            except NoSuchTable:  # no such table yet
                found = None
            newest = int(found[0] or 0) if found else 0
            now_s = time.monotonic()
            with self._condition:
                if newest > self._newest:
                    self._newest, self._seen_s = newest, now_s
                    self._condition.notify_all()
            time.sleep(READ_S)


@dataclass(frozen=True, slots=True)
class Lags:
    """Milliseconds of each probe, and what the drainer spent while they were sent."""

    first_ms: float
    probes_ms: list[float]
    direct_ms: list[float]
    seconds: float
    cpu_s: float
    transactions: int
    peak_rss_mib: float

    @property
    def cpu_us(self) -> float:
        """Of a transaction."""
        return self.cpu_s / self.transactions * 1e6


async def send_probes(
    publisher: Publisher, version: int, reader: Reader, count: int, interval_s: float
) -> list[float]:
    """One after the other; the lag in ms of the first, then of so many more."""
    random = Random(1)
    encode = shop.encoder(shop.PROBES)
    lags = []
    for number in range(1, count + 2):
        async with publisher.transaction(ttl_s=10.0, schema_version=version) as one:
            one.insert(shop.PROBES.id, encode.insert((number, number, "probe")))
        acknowledged_s = time.monotonic()
        seen_s = await asyncio.to_thread(reader.seen_s, number)
        lags.append((seen_s - acknowledged_s) * 1000)
        await asyncio.sleep(interval_s + random.random() * JITTER_S)
    return lags


def send_direct(server: MariaDbServer) -> list[float]:
    """The same without us: INSERT and COMMIT into MariaDB; ms from the beginning until seen."""
    connection = server.connect()
    lags = []
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {shop.DIRECT} (id BIGINT PRIMARY KEY, amount BIGINT, note VARCHAR(64))")
        reader = Reader(server, shop.DIRECT)
        try:
            for number in range(1, DIRECT_PROBES + 1):
                began_s = time.monotonic()
                cursor.execute("BEGIN")
                cursor.execute(f"INSERT INTO {shop.DIRECT} VALUES ({number}, {number}, 'probe')")
                cursor.execute("COMMIT")
                lags.append((reader.seen_s(number) - began_s) * 1000)
                time.sleep(DIRECT_PAUSE_S)
        finally:
            reader.close()
    connection.close()
    return lags


async def start_peer(cluster: Cluster, go: Programs, pumps: int) -> Node:
    """Go's pumps, and Go's drainer behind them."""
    for number in range(1, pumps + 1):
        node = go.pump(f"peer-pump-{number}")
        node.process.start()
        await cluster.until_ready(node)
    return await cluster.begin_drainer(go.mysql_drainer(cluster.mariadb))


async def measure(pumps: int, probes: int, per_s: float, peer: Settings | None = None) -> Lags | None:
    """Of ours; of Go's with `peer`, None where these are not to be measured."""
    if peer is not None and program(peer.peer, PUMP) is None:
        return None
    async with private_cluster() as cluster, AsyncExitStack() as stack:
        upstream = await cluster.start_base(None)
        if peer is None:
            await cluster.start_pumps(pumps)
            drainer = await cluster.start_drainer()
        else:
            go = stack.enter_context(programs(peer, DRAINER, cluster.supervisor, cluster.etcd_endpoint))
            if go is None:
                return None
            drainer = await start_peer(cluster, go, pumps)
        async with await open_publisher(cluster.etcd_endpoint) as publisher:
            version = await shop.create(publisher, upstream)
            reader = Reader(cluster.mariadb, f"{shop.SCHEMA}.{shop.PROBES.name}")
            try:
                async with background(cluster, version, per_s) as finish:
                    await asyncio.sleep(SETTLE_S)
                    pid = drainer.process.pid
                    applied = await transactions(drainer)
                    before, before_s = cpu_s(pid), time.monotonic()
                    interval_s = LOAD_INTERVAL_S if per_s else IDLE_INTERVAL_S
                    lags = await send_probes(publisher, version, reader, probes, interval_s)
                    spent, took_s = cpu_s(pid) - before, time.monotonic() - before_s
                    applied = await transactions(drainer) - applied or probes + int(per_s * took_s)
                    await finish()
                direct = await asyncio.to_thread(send_direct, cluster.mariadb)
            finally:
                reader.close()
        return Lags(lags[0], lags[1:], direct, took_s, spent, applied, peak_rss_mib(drainer.process.pid))


async def transactions(drainer: Node) -> int:
    """How many it has applied; Go's does not say."""
    return int((await drainer.status()).get("Transactions", 0))


@asynccontextmanager
async def background(cluster: Cluster, version: int, per_s: float) -> AsyncIterator[Callable[[], Any]]:
    """The application, if `per_s` is above 0. Yields what ends it and tells how much it committed."""
    if not per_s:

        async def nothing() -> int:
            return 0

        yield nothing
        return
    arguments = [sys.executable, "-m", "tests.benchmarks.drainer.application", cluster.etcd_endpoint]
    process = await asyncio.create_subprocess_exec(
        *arguments, str(version), str(per_s), stdin=PIPE, stdout=PIPE, cwd=ROOT
    )
    try:
        await _line(process)

        async def finish() -> int:
            assert process.stdin is not None
            process.stdin.close()
            return int((await _line(process))["committed"])

        yield finish
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _line(process: Process) -> dict[str, Any]:
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise Unavailable("the background application ended early")
    document: dict[str, Any] = json.loads(line)
    return document


async def compared(name: str, what: str, pumps: int, per_s: float, settings: Settings) -> Result:
    """Ours, then Go's."""
    probes = max(PROBES_MIN, min(600, int(settings.seconds * PROBES_A_SECOND_ASKED)))
    lags = await measure(pumps, probes, per_s)
    assert lags is not None
    theirs = await measure(pumps, probes, per_s, settings)
    p50, p99 = (percentile(lags.probes_ms, fraction) for fraction in (0.5, 0.99))
    direct = percentile(lags.direct_ms, 0.5)
    note = (
        f"{what}, {probes} probes, the table's first row {lags.first_ms:.0f} ms,"
        f" {lags.transactions / lags.seconds:.0f} transactions/s applied meanwhile;"
        f" drainer CPU {lags.cpu_s / lags.seconds:.1%} of a core, in the table per transaction"
    )
    if theirs is not None:
        note += f"; Go's p99 {percentile(theirs.probes_ms, 0.99):.0f} ms"
    return Result(
        name=name,
        value=p50,
        unit="ms",
        cpu_us_per_unit=lags.cpu_us,
        p50_ms=p50,
        p99_ms=p99,
        peak_rss_mib=lags.peak_rss_mib,
        compared_to=f"direct INSERT and COMMIT until seen, {direct:.1f} ms",
        ratio=p50 / direct,
        note=note,
        theirs=theirs and Theirs(percentile(theirs.probes_ms, 0.5), theirs.cpu_us),
    )


def idle_1(settings: Settings) -> Result:
    return asyncio.run(compared("lag.idle.1", "one quiet pump", 1, 0, settings))


def idle_2(settings: Settings) -> Result:
    return asyncio.run(compared("lag.idle.2", "two quiet pumps", 2, 0, settings))


def load(settings: Settings) -> Result:
    return asyncio.run(compared("lag.load", "two pumps", 2, LOAD_PER_S, settings))
