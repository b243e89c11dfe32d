"""Kills processes with -9 at random moments, starts them again, and keeps up what died in between.

Drives  the cluster's processes, by the pids it started
Owns    the random choice of victim and moment (seeded)
Stops   at the moment given, with every process started again
Never   touches etcd: it stands for the database's own storage, which is not what is tested here
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Final

from common.clock import Clock
from deploy.playground.cluster import Cluster
from deploy.playground.replay import Replay
from deploy.playground.statistics import Statistics
from deploy.playground.supervisor import Process

PAUSE_S: Final = (2.0, 6.0)
DOWN_S: Final = (0.1, 1.5)
WATCH_S: Final = 0.2
RESTART_AFTER_S: Final = 0.5
DEATHS_IN_A_ROW_MAX: Final = 10
REPLAY_KILLS: Final = 5


class Keeper:
    """Watches the children: a death stops the run, or under chaos is answered with a restart.

    Under chaos a process may end because another one was killed (a Drainer without its downstream, say); a
    service manager would start it again, and so does the keeper. One that dies again and again, each time
    within a few seconds, stops the run.
    """

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
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


async def run_chaos(
    cluster: Cluster, random: Random, statistics: Statistics, end_s: float, clock: Clock
) -> None:
    """Kill and restart Pumps, the Drainer and MariaDB until `end_s` (monotonic)."""
    assert cluster.drainer is not None
    victims: list[Process] = [node.process for node in cluster.nodes]
    assert cluster.mariadb.process is not None
    victims.append(cluster.mariadb.process)
    while True:
        pause_s = random.uniform(*PAUSE_S)
        if clock.monotonic_s() + pause_s > end_s:
            return
        await asyncio.sleep(pause_s)
        victim = random.choice(victims)
        victim.kill()
        statistics.kills += 1
        await asyncio.sleep(random.uniform(*DOWN_S))
        if not victim.is_running:
            victim.start()


async def run_replay_kills(
    cluster: Cluster, replay: Replay, random: Random, statistics: Statistics, report: Callable[[str], None]
) -> None:
    """Kill the Drainer, a Pump, or both at moments spread over a replay; each is started again."""
    assert cluster.drainer is not None
    moments = sorted(random.randrange(replay.total) for _ in range(REPLAY_KILLS))
    for number, moment in enumerate(moments):
        while replay.sent < moment:  # noqa: ASYNC110 - as close to the moment as can be
            await asyncio.sleep(0.001)
        pump = random.choice(cluster.pumps)
        victims = ([cluster.drainer], [pump], [cluster.drainer, pump])[number % 3]
        replay.gate.clear()
        for node in victims:
            node.process.kill()
            statistics.kills += 1
        report(f"killed {' and '.join(node.name for node in victims)} after {replay.sent} records")
        await asyncio.sleep(random.uniform(0.05, 0.3))
        for node in victims:
            node.process.start()
        for node in victims:
            await cluster.until_ready(node)
        replay.gate.set()
