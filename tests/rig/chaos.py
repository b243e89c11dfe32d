"""Chaos: breaks things at random times, and keeps up what died in between: processes killed or frozen,
connections reset, Pumps that join and leave, the downstream read-only, the disk under the relay log full, a
program with a wrong clock, rows that the downstream refuses. And the operator, who decides about DDL and rows
that wait.

Drives  the cluster's processes, by the pids it started; the proxy in front of MariaDB; the small disk
Owns    the random choice of fault and time (seeded)
Stops   at the time given, with every process running and every fault taken back
Never   breaks etcd while a session works: it stands for the database's own storage, whose loss the sessions
        would have to survive, not what is tested here. Sessions pause until it is back
Tests   tests/rig/test_rig.py
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from random import Random
from typing import Final

from binlog_playground.cluster.cluster import http_get
from binlog_playground.cluster.supervisor import Process
from binlog_playground.replay import Replay
from binlog_playground.run import PUMPS
from drainer.mysql.errors import SessionError
from tests.rig.cluster import RELOAD_S, RigCluster, http_put
from tests.rig.workload.session import Writer
from tests.rig.workload.statistics import RigStatistics
from tests.rig.workload.tables import REFUSING, SHARD
from tidb_binlog import tso
from tidb_binlog.clock import Clock, ManualClock, SystemClock
from tidb_binlog.errors import Corruption, Unavailable
from tidb_binlog.upstream.standalone import StandaloneUpstream

PAUSE_S: Final = (1.5, 5.0)
DOWN_S: Final = (0.1, 1.5)
FROZEN_S: Final = (0.5, 6.0)
AWAY_S: Final = (0.5, 3.0)
PUMPS_MAX: Final = 4
LEAVES_S: Final = 20.0
WATCH_S: Final = 0.2
OLD_S: Final = (1.0, 4.0)
RESTART_AFTER_S: Final = 0.5
DEATHS_IN_A_ROW_MAX: Final = 10
CLOCK_MOVES_MAX_S: Final = 3600.0
REPLAY_KILLS: Final = 5
EXECUTOR_LOOKS: Final = 200
DRIVERS_SHARE: Final = 0.25


class ConflictingClocks(Corruption):
    """The cluster's clock followed a wrong one."""


class Keeper:
    """Watches the children: a death stops the run, or under chaos is answered with a restart.

    Under chaos a process may end because another one was killed (a Drainer without its downstream, say); a
    service manager would start it again, and so does the keeper. One that dies again and again, each time
    within a few seconds, stops the run.
    """

    def __init__(self, cluster: RigCluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._deaths: dict[str, list[float]] = {}
        self.restarts = False

    async def run(self) -> None:
        """Until cancelled; raises `ProcessDied`."""
        while True:
            for process in self._cluster.supervisor.dead():
                if not self.restarts:
                    raise process.death()
                now_s = self._clock.monotonic_s()
                recent = [at_s for at_s in self._deaths.get(process.name, []) if at_s > now_s - 20.0]
                self._deaths[process.name] = [*recent, now_s]
                if len(recent) >= DEATHS_IN_A_ROW_MAX:
                    raise process.death()
                await asyncio.sleep(RESTART_AFTER_S)
                if process.died:
                    process.start()
            await asyncio.sleep(WATCH_S)


async def decide(cluster: RigCluster, schema: str, target: str, statistics: RigStatistics) -> None:
    """What TRUNCATE of one shard takes away is removed by hand, and the DDL skipped; rows that are refused
    are let in and tried again; until cancelled."""
    while True:
        await asyncio.sleep(WATCH_S)
        if cluster.drainer is None:
            continue
        url = f"http://{cluster.drainer.address}/ddl"
        try:
            for one in json.loads(await asyncio.to_thread(http_get, url))["data"]["waiting"]:
                if one["query"].startswith("TRUNCATE") and "skip" in one["possible"]:
                    shard = one["query"].split("`")[1]
                    statement = f"DELETE FROM `{schema}`.`{target}` WHERE `{SHARD}` = '{shard}'"
                    verb = "skip"
                elif one["tables"] == [f"{schema}.{REFUSING}"] and "retry" in one["possible"]:
                    statement = f"ALTER TABLE `{schema}`.`{REFUSING}` DROP CONSTRAINT IF EXISTS refuses"
                    verb = "retry"
                else:
                    continue
                await asyncio.to_thread(_run, cluster, statement)
                await asyncio.to_thread(http_put, f"{url}/{one['job_id']}/{verb}", RELOAD_S)
                statistics.faults["decided"] += 1
        except (Unavailable, SessionError):  # it is down, or its downstream
            continue


def _run(cluster: RigCluster, *statements: str) -> None:
    with closing(cluster.mariadb.open()) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


class Chaos:
    """One fault after the other. `faults` has how often each comes, relative to the others. `refuses`: rows,
    too, which what writes downstream keeps apart. `moves`: of the downstream back in time, odd during one."""

    def __init__(
        self,
        cluster: RigCluster,
        writer: Writer,
        random: Random,
        statistics: RigStatistics,
        *,
        refuses: bool = True,
    ) -> None:
        assert cluster.drainer is not None
        assert cluster.mariadb.process is not None
        self._cluster = cluster
        self._schema = writer.model.schema
        self._writer = writer
        self._random = random
        self._statistics = statistics
        self._nodes: list[Process] = [node.process for node in cluster.nodes]
        if cluster.subscriber is not None:
            self._nodes.append(cluster.subscriber)
        self._mariadb = cluster.mariadb.process
        self.moves = 0
        self._faults: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (5, self._kill),
            (1, self._clock_jumps),
            (3, self._freeze),
            (2, self._cut_connections),
            (1, self._stall_connections),
            (1, self._read_only),
            (1, self._etcd_killed),
            (1, self._etcd_frozen),
            (1, self._put_back),
            (1, self._pump_joins),
            (1, self._pump_leaves),
        ]
        if refuses:
            self._faults.append((3, self._rows_refused))
        if cluster.small_disk is not None:
            self._faults.append((1, self._disk_full))
        if cluster.streams:
            self._faults.append((2, self._driver_killed))
        if cluster.has_executors:
            self._faults.append((6, self._jvm_killed))

    async def run(self, end_s: float, clock: Clock) -> None:
        """Until `end_s` (monotonic)."""
        weights = [weight for weight, _ in self._faults]
        while True:
            pause_s = self._random.uniform(*PAUSE_S)
            if clock.monotonic_s() + pause_s + FROZEN_S[1] > end_s:
                return
            await asyncio.sleep(pause_s)
            ((_, fault),) = self._random.choices(self._faults, weights)
            await fault()

    def _count(self, what: str) -> None:
        self._statistics.faults[what] += 1

    async def _kill(self) -> None:
        victim = self._random.choice([*self._nodes, self._mariadb])
        victim.kill()
        self._statistics.killed(victim.name)
        await asyncio.sleep(self._random.uniform(*DOWN_S))
        if not victim.is_running:
            victim.start()

    async def _jvm_killed(self) -> None:
        """An executor, which a driver that has just started has not yet, or now and then the driver's JVM."""
        wants_driver = self._random.random() < DRIVERS_SHARE
        for _ in range(EXECUTOR_LOOKS):
            executors, drivers = self._cluster.jvms()
            if victims := drivers if wants_driver else executors:
                with suppress(ProcessLookupError):
                    os.kill(self._random.choice(victims), signal.SIGKILL)
                    self._statistics.killed("driver's JVM" if wants_driver else "executor")
                return
            await asyncio.sleep(WATCH_S)

    async def _driver_killed(self) -> None:
        """Alone: its JVM and its tasks go on until they notice, beside the next one's."""
        assert self._cluster.drainer is not None
        process = self._cluster.drainer.process
        if not process.is_running:  # the keeper starts it again
            return
        self._cluster.leave_behind()
        process.signal(signal.SIGKILL)
        self._statistics.killed("driver")
        while process.is_running:
            await asyncio.sleep(WATCH_S)
        process.start()

    async def _freeze(self) -> None:
        victim = self._random.choice([*self._nodes, self._mariadb])
        await self._frozen(victim)

    async def _frozen(self, victim: Process) -> None:
        self._count("frozen")
        victim.signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(self._random.uniform(*FROZEN_S))
        finally:
            victim.signal(signal.SIGCONT)

    async def _cut_connections(self) -> None:
        if self._cluster.proxy is not None and self._cluster.proxy.reset():
            self._count("connections reset")

    async def _stall_connections(self) -> None:
        proxy = self._cluster.proxy
        if proxy is None:
            return
        self._count("connections stalled")
        proxy.stall()
        try:
            await asyncio.sleep(self._random.uniform(*AWAY_S))
        finally:
            proxy.reset()
            proxy.flow()

    async def _read_only(self) -> None:
        if not await asyncio.to_thread(self._set_read_only, True):
            return
        self._count("read-only")
        try:
            await asyncio.sleep(self._random.uniform(*AWAY_S))
        finally:
            while self._mariadb.is_running and not await asyncio.to_thread(self._set_read_only, False):
                await asyncio.sleep(WATCH_S)

    def _set_read_only(self, value: bool) -> bool:
        try:
            connection = self._cluster.mariadb.open(2.0, read_timeout=10.0)
        except Unavailable:
            return False
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"SET GLOBAL read_only={int(value)}")
        except SessionError:
            return False
        finally:
            connection.close()
        return True

    async def _rows_refused(self) -> None:
        """One table takes no further row; `decide` ends that once the Drainer says that it waits."""
        table, check = f"`{self._schema}`.`{REFUSING}`", "ADD CONSTRAINT IF NOT EXISTS refuses CHECK (id < 0)"
        statements = ("SET check_constraint_checks=0", f"ALTER TABLE {table} {check}")
        with suppress(Unavailable, SessionError):
            await asyncio.to_thread(_run, self._cluster, *statements)
            self._count("rows refused")

    async def _etcd_killed(self) -> None:
        etcd = self._cluster.etcd
        assert etcd is not None
        async with self._writer.paused():
            self._count("etcd killed")
            etcd.kill()
            await asyncio.sleep(self._random.uniform(*AWAY_S))
            etcd.start()
            await self._cluster.until_etcd_answers()

    async def _etcd_frozen(self) -> None:
        assert self._cluster.etcd is not None
        async with self._writer.paused():
            await self._frozen(self._cluster.etcd)
            await self._cluster.until_etcd_answers()

    async def _pump_joins(self) -> None:
        pumps = self._cluster.pumps
        if len(pumps) < PUMPS_MAX:
            self._count("Pump joined")
            await self._cluster.start_pumps(1)
            self._nodes.append(pumps[-1].process)

    async def _pump_leaves(self) -> None:
        """It ends by itself, once everyone has what it holds; that may be long after the fault."""
        pumps = self._cluster.pumps
        if len(pumps) <= PUMPS:
            return
        pump = self._random.choice(pumps)
        processes = self._cluster.supervisor.processes
        processes.remove(pump.process)  # its end is no death
        try:
            await asyncio.to_thread(http_put, f"http://{pump.address}/state/{pump.name}/close", RELOAD_S)
            async with asyncio.timeout(LEAVES_S):
                while pump.process.is_running:
                    await asyncio.sleep(WATCH_S)
        except (Unavailable, TimeoutError):
            processes.append(pump.process)
        else:
            pumps.remove(pump)
            self._nodes.remove(pump.process)
            self._count("Pump left")

    async def _clock_jumps(self) -> None:
        """A program whose clock is days ahead or behind draws timestamps: no other program may follow it."""
        upstream = self._cluster.upstream
        assert upstream is not None
        off_s = self._random.choice((-8, 8, 400)) * 86_400.0
        before = await upstream.oracle.timestamp()
        try:
            wrong = await StandaloneUpstream.connect(
                self._cluster.etcd_endpoint, clock=ManualClock(SystemClock().wall_s() + off_s)
            )
        except Unavailable:
            return
        try:
            drawn = [await wrong.oracle.timestamp() for _ in range(10)]
        except Unavailable:
            return
        finally:
            await wrong.close()
        self._count("clock jumped")
        after = await upstream.oracle.timestamp()
        if sorted({before, *drawn, after}) != [before, *drawn, after]:
            raise ConflictingClocks(f"timestamps do not rise: {before}, {drawn}, {after}")
        if (moved_s := tso.physical_s(after) - tso.physical_s(before)) > CLOCK_MOVES_MAX_S:
            raise ConflictingClocks(f"one process moved the cluster's clock by {moved_s:.0f} s")

    async def _put_back(self) -> None:
        """The downstream fails over to a copy that is some seconds old."""
        self._count("put back")
        self.moves += 1
        data, copy = (self._cluster.mariadb.directory / name for name in ("data", "copy"))
        await self._while_down(lambda: shutil.copytree(data, copy))
        await asyncio.sleep(self._random.uniform(*OLD_S))
        await self._while_down(lambda: (shutil.rmtree(data), copy.rename(data)))
        self.moves += 1

    async def _while_down(self, work: Callable[[], object]) -> None:
        self._mariadb.kill()  # asked to end: it is not started again meanwhile
        try:
            await asyncio.to_thread(work)
        finally:
            self._mariadb.start()

    async def _disk_full(self) -> None:
        disk = self._cluster.small_disk
        assert disk is not None
        self._count("disk full")
        await asyncio.to_thread(disk.fill)
        try:
            await asyncio.sleep(self._random.uniform(*AWAY_S))
        finally:
            disk.clear()


async def run_replay_kills(
    cluster: RigCluster,
    replay: Replay,
    random: Random,
    statistics: RigStatistics,
    report: Callable[[str], None],
) -> None:
    """Kill the Drainer, a Pump, or both at points spread over a replay; each is started again."""
    assert cluster.drainer is not None
    kill_points = sorted(random.randrange(replay.total) for _ in range(REPLAY_KILLS))
    for number, kill_point in enumerate(kill_points):
        while replay.sent < kill_point:
            await asyncio.sleep(0.001)
        pump = random.choice(cluster.pumps)
        victims = ([cluster.drainer], [pump], [cluster.drainer, pump])[number % 3]
        replay.gate.clear()
        for node in victims:
            node.process.kill()
            statistics.killed(node.name)
        report(f"killed {' and '.join(node.name for node in victims)} after {replay.sent} records")
        await asyncio.sleep(random.uniform(0.05, 0.3))
        for node in victims:
            node.process.start()
        for node in victims:
            await cluster.until_ready(node)
        replay.gate.set()
