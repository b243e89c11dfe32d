"""A Pump of the world: its host with disk and index, and the lives that run on it one after the other."""

from __future__ import annotations

import asyncio
import contextvars
from pathlib import Path
from typing import Final

from pump import program
from pump.config import PumpConfig
from tests.crash.faults.disk import CUTS, ROOT, Disk
from tests.sim.life import LIFE, Life
from tests.sim.ports import PORTS
from tests.sim.scheduling import end_all
from tidb_binlog.observe import log
from tidb_binlog.observe.recent_events import Recorder
from tidb_binlog.process.daemon import Daemon, Notifier

PORT: Final = 8250


def new_life(host: str, disk: Disk | None = None, skew_s: float = 0.0) -> Life:
    life = Life(host, next(PORTS.lives), disk, skew_s)
    PORTS.alive.add(str(life))
    return life


def in_life(life: Life) -> contextvars.Context:
    context = contextvars.Context()
    context.run(LIFE.set, life)
    return context


async def die(life: Life, *, silently: bool = False) -> None:
    """Now, whatever it is in the middle of."""
    life.alive = False
    PORTS.alive.discard(str(life))
    if life.disk is not None:
        life.disk.freeze()
    PORTS.network.drop(life, silently=silently)
    await end_all(life, PORTS.loop.baton)


class PumpNode:
    """`directory`: of its small files, which are durable at once."""

    def __init__(self, name: str, directory: Path, **options: object) -> None:
        self.name = name
        self.address = f"{name}:{PORT}"
        self.disk = Disk()
        self.disk.makedirs(ROOT, exist_ok=True)
        self.life: Life | None = None
        self.closes = False  # an operator has told this life to
        self.has_left = False
        self._directory = directory / name
        self._options = options
        self._process: Daemon | None = None
        self._running: asyncio.Task[int] | None = None

    @property
    def is_up(self) -> bool:
        return self.life is not None and self._running is not None and not self._running.done()

    async def start(self, skew_s: float = 0.0) -> None:
        assert not self.is_up
        if self.life is not None and self.life.alive:  # it ended by itself
            await die(self.life)
        if self.disk.frozen:
            self.disk = self.disk.after_kill()
        self.life = new_life(self.name, self.disk, skew_s)
        settings = PumpConfig(
            node_id=self.name,
            addr=self.address,
            advertise_addr=self.address,
            data_dir=str(self._directory),
            pd_urls="http://etcd:2379",
            upstream="standalone",
            stop_write_at_bytes=0,
            **self._options,  # type: ignore[arg-type]
        )

        async def run() -> int:
            self._process = process = Daemon("pump", log.get("pump"), notifier=Notifier(), reloads=True)
            recorder = Recorder()
            return await process.run(lambda _: program.start(settings, lambda: settings, recorder, process))

        self.closes = False
        PORTS.network.trace(self.name, "starts", str(self.life))
        self._running = PORTS.loop.create_task(run(), context=in_life(self.life))

    async def stop(self) -> int:
        """In order; its exit code."""
        assert self._process is not None
        assert self._running is not None
        assert self.life is not None
        self._process.stop()
        await asyncio.wait({self._running})
        code = self._running.result()
        self._running = None
        await die(self.life)
        return code

    async def kill(self, *, power: bool = False) -> None:
        """The process, or with it the power of the host: the disk keeps what was synced."""
        assert self.life is not None
        PORTS.network.trace(self.name, "is killed", power)
        before = self.disk
        await die(self.life, silently=power)
        rng = PORTS.rng
        if power:
            self.disk = before.after_power_cut(rng.choice(CUTS), rng.randrange(1 << 30))
            if self.name in PORTS.levels:
                PORTS.levels[self.name] = PORTS.levels[self.name].after_power_cut(rng)

    def ended(self) -> int | None:
        """The exit code of a life that has ended by itself."""
        if self._running is None or not self._running.done() or self._running.cancelled():
            return None
        return self._running.result()
