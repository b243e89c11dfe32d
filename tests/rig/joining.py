"""Joining: tables whose rows nobody published join a Drainer that runs, while faults come.

Drives  what `begin` does, but with the Drainer first: it has the tables, empty, and an operator asks it again
        and again to load some of them, slowly or fast, until the faults have ended and each has joined
Holds   a load that was asked for is carried out whatever dies, unless the downstream was put back meanwhile
Never   asks for a table that has joined once the faults are over: what they did to it has to be seen
"""

from __future__ import annotations

import asyncio
import itertools
import json
import urllib.request
from collections.abc import Collection, Iterator
from contextlib import suppress
from random import Random
from typing import Any, Final

from binlog_playground.application import SCHEMA
from binlog_playground.cluster.cluster import http_request
from binlog_playground.cluster.mariadb import MariaDbServer
from tests.rig.begin import Begin
from tests.rig.chaos import Chaos
from tests.rig.cluster import RELOAD_S, RigCluster
from tests.rig.workload.application import Application
from tests.rig.workload.application_writer import ApplicationWriter
from tests.rig.workload.statistics import RigStatistics
from tidb_binlog.clock import Clock
from tidb_binlog.errors import Unavailable

RATES: Final = (0, 300, 1000)
"""Rows a second of a load; 0: as fast as it goes."""
PAUSE_S: Final = (0.0, 2.0)
WATCH_S: Final = 0.05
TAKEN_S: Final = 600.0
"""Of one load, whatever dies meanwhile: more, and it does not go on."""


class Joining(Begin):
    """One run on one cluster."""

    async def _write_and_load(
        self, writer: ApplicationWriter, server: MariaDbServer, application: Application, ids: Iterator[int]
    ) -> None:
        names = list(writer.model.tables)
        await self.cluster.prepare_faults()
        await self.cluster.start_routed_drainer({}, sections=self._source(server, application))
        await self._drain(writer.last_commit_ts)
        self._phase = "tables join beside random transactions, DDL and faults"
        self._keeper.restarts = True
        clock, done = self._clock, asyncio.Event()
        faults = Chaos(self.cluster, writer, Random(self._random.random()), self.statistics, refuses=False)
        joins = Joins(self.cluster, names, faults, Random(self._random.random()), self.statistics, clock)
        self.statistics.started_s = clock.monotonic_s()
        end_s = self.statistics.started_s + self.options.seconds
        async with asyncio.TaskGroup() as group:
            for work in self._sessions(writer, ids):
                group.create_task(self._in_turns(work, done))
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(faults.run(end_s, clock))
                    both.create_task(joins.run(end_s))
                await joins.finish()
            finally:
                done.set()
        self.statistics.ended_s = clock.monotonic_s()


class Joins:
    """The operator. `waiting`: tables that are not known to have joined."""

    def __init__(
        self,
        cluster: RigCluster,
        names: Collection[str],
        faults: Chaos,
        random: Random,
        statistics: RigStatistics,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._names = list(names)
        self._faults = faults
        self._random = random
        self._statistics = statistics
        self._clock = clock
        self.waiting = set(names)

    async def run(self, end_s: float) -> None:
        """Loads of tables that joined before, too, until `end_s` (monotonic)."""
        while self._clock.monotonic_s() < end_s:
            await asyncio.sleep(self._random.uniform(*PAUSE_S))
            chosen = self._random.sample(self._names, self._random.randint(1, 3))
            await self._join(chosen, self._random.choice(RATES))

    async def finish(self) -> None:
        """Those that are left, without faults."""
        for again in itertools.count():
            if not self.waiting:
                return
            if again > 1:
                raise Unavailable(f"{', '.join(sorted(self.waiting))} did not join, and nothing failed")
            await self._join(sorted(self.waiting), 0)

    async def _join(self, names: Collection[str], rate: int) -> None:
        end_s, moves = self._clock.monotonic_s() + TAKEN_S, self._faults.moves
        query = f"?replace=1&rate={rate}" if rate else "?replace=1"
        body = ",".join(f"{SCHEMA}.{name}" for name in names).encode()
        is_asked, said = False, ""
        while self._clock.monotonic_s() < end_s:
            with suppress(Unavailable):  # it is down, or its downstream
                if not is_asked:
                    said = str(await self._ask("PUT", query, body))
                    is_asked = True
                elif not (said := (await self._ask("GET"))["data"]["joining"]):
                    break
            await asyncio.sleep(WATCH_S)
        else:
            raise Unavailable(f"{body.decode()} did not join within {TAKEN_S:g} s: {said}")
        if self._faults.moves != moves or moves % 2:  # what was asked for may have been forgotten with it
            return
        self._statistics.faults["joined"] += len(names)
        self.waiting.difference_update(names)

    async def _ask(self, method: str, query: str = "", body: bytes | None = None) -> Any:
        assert self._cluster.drainer is not None
        url = f"http://{self._cluster.drainer.address}/load{query}"
        request = urllib.request.Request(url, method=method, data=body)
        return json.loads(await asyncio.to_thread(http_request, request, RELOAD_S))
