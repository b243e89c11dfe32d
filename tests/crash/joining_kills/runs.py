"""Death of a drainer while tables join it, at commands that it sends downstream.

A program writes all the while, and may alter a table that joins. The drainer is killed with -9 right before
or after a command, and started again; once nothing joins any more, the downstream has to be equal. In some
runs the load is given up: then nothing of it is left, and the tables have what comes afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Final

from binlog_playground.cluster.mariadb import MariaDbServer
from tests.crash.faults.statement_proxy import StatementProxy
from tests.integration.support.joining_scene import JOINING, Program, Scene, scene
from tests.waiting import PATIENCE_S
from tidb_binlog.late_dataclass import dataclass

ROWS: Final = 300
DRAWN_MAX: Final = 160
"""Commands of a start and a load of these tables are some more."""


@dataclass(frozen=True, slots=True)
class Death:
    """At the `number`-th command of a life, `passes`: right after it."""

    number: int
    passes: bool


@dataclass(frozen=True, slots=True)
class Story:
    """One run. `alters`: the program adds a column once so many commands were sent, 0: it does not.
    `gives_up`: so many commands after a start the load is given up, 0: it is not."""

    deaths: Sequence[Death]
    alters: int = 0
    gives_up: int = 0
    seed: int = 1


def drawn(seed: int) -> Story:
    draw = random.Random(seed)
    deaths = [Death(draw.randint(1, DRAWN_MAX), draw.random() < 0.5) for _ in range(draw.randint(1, 3))]
    alters, gives_up = (draw.choice((0, draw.randint(1, DRAWN_MAX))) for _ in range(2))
    return Story(deaths, alters, gives_up, seed)


class Kills:
    """One run after the other. `seen` counts commands at which it died, by first word."""

    def __init__(self, etcd: str, mariadb: MariaDbServer, free_port: Callable[[], int]) -> None:
        self._etcd, self._mariadb, self._free_port = etcd, mariadb, free_port
        self.seen: Counter[str] = Counter()
        self.given_up = 0
        self._proxy, self._gives_up = StatementProxy(mariadb.host, mariadb.port), 0

    async def run(self, story: Story, directory: Path) -> int:
        """How often it died."""
        proxy, self._gives_up = self._proxy, story.gives_up
        before = self.seen.total()
        opened = scene(
            self._etcd,
            self._mariadb,
            self._free_port,
            directory,
            rows=ROWS,
            seed=story.seed,
            port=proxy.port,
        )
        try:
            async with opened as (world, program):
                async with _writing(program, proxy, story.alters):
                    for death in story.deaths:
                        await self._die(world, proxy, death)
                    given_up = await self._join(world, threading.Event())
                if given_up:
                    self.given_up += 1
                    await world.has_what_comes(program)
                    self._gives_up = 0
                    await self._join(world, threading.Event())
                await world.is_equal()
                return self.seen.total() - before
        finally:
            self._proxy.close()

    async def _join(self, world: Scene, killed: threading.Event) -> bool:
        """Until the tables have joined, or are not to (true), or it is killed."""
        end_s, asked, given_up, said = time.monotonic() + PATIENCE_S, False, False, ""
        while not killed.is_set():
            with contextlib.suppress(OSError, ValueError):
                if self._gives_up and self._proxy.commands >= self._gives_up:
                    code, answer = await asyncio.to_thread(world.ask, "/load", "DELETE")
                    given_up, said = given_up or code == 200, str(answer)
                if not asked and not given_up:
                    code, answer = await asyncio.to_thread(world.ask, "/load?replace=1", "PUT", JOINING)
                    asked, said = code == 200, str(answer)
                elif not (joins := await asyncio.to_thread(world.joins)):
                    return given_up
                else:
                    said = str(joins)
            assert time.monotonic() < end_s, said
            await asyncio.sleep(0.02)
        return False

    async def _die(self, world: Scene, proxy: StatementProxy, death: Death) -> None:
        """The drainer dies, unless nothing joins any more before that, and there is another one."""
        assert world.drainer is not None
        killed, pid = threading.Event(), world.drainer.pid

        def kill() -> None:
            os.kill(pid, signal.SIGKILL)
            killed.set()

        proxy.arm(death.number, passes=death.passes, on_strike=kill)
        await self._join(world, killed)
        at = proxy.at.decode(errors="replace")
        proxy.arm(0)  # after that it is killed, or is not
        if killed.is_set():
            self.seen[at.split(" ")[0] or "(no text)"] += 1
            await asyncio.to_thread(world.drainer.wait)
            world.start()


@contextlib.asynccontextmanager
async def _writing(program: Program, proxy: StatementProxy, alters: int) -> AsyncIterator[None]:
    ends = False

    async def write() -> None:
        left = alters
        while not ends:
            await program.write()
            if left and proxy.commands >= left:
                await program.add_column()
                left = 0

    task = asyncio.create_task(write())
    try:
        yield
    finally:
        ends = True
        await task
        await program.publisher.flush()
