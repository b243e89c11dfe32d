"""Nodes of the world: a host, and the lives of a process that run on it one after the other."""

from __future__ import annotations

import asyncio
import contextvars
from pathlib import Path
from typing import Final

from drainer import program as drainer_program
from drainer.config.options import ENV_PREFIX, DrainerConfig
from pump import program as pump_program
from pump.config import PumpConfig
from tests.crash.faults.disk import CUTS, ROOT, Disk
from tests.sim.life import LIFE, Life
from tests.sim.ports import PORTS
from tests.sim.rot import Rot
from tests.sim.scheduling import end_all
from tidb_binlog.config import loading
from tidb_binlog.observe import log
from tidb_binlog.observe.recent_events import Recorder
from tidb_binlog.process.daemon import EXIT_FAILURE, Daemon, Notifier

FLOOR: Final = 1 << 20
"""Free bytes below which a Pump takes no prewrites."""
PUMP_PORT: Final = 8250
DRAINER_PORT: Final = 8249
ETCD: Final = "http://etcd:2379"


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
    if PORTS.downstream is not None:
        PORTS.downstream.drop(life, silently=silently)


class Node:
    """Its host has a disk. `ends`: exit codes in which nothing is wrong."""

    ends: frozenset[int]

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.address = f"{name}:{port}"
        self.disk = Disk()
        self.disk.makedirs(ROOT, exist_ok=True)
        self.rot = Rot()
        self.life: Life | None = None
        self.has_left = False  # for good
        self._process: Daemon | None = None
        self._running: asyncio.Task[int] | None = None

    def may_end(self, code: int) -> bool:
        """By a call to its disk that failed, too."""
        return code in self.ends or (code == EXIT_FAILURE and bool(self.disk.struck))

    @property
    def is_up(self) -> bool:
        return self.life is not None and self._running is not None and not self._running.done()

    async def start(self, skew_s: float = 0.0) -> None:
        assert not self.is_up
        if self.life is not None and self.life.alive:  # it ended by itself
            await die(self.life)
        self.life = self._new_life(skew_s)
        self._process = None
        PORTS.network.trace(self.name, "starts", str(self.life))
        self._running = PORTS.loop.create_task(self._run(), context=in_life(self.life))

    def _new_life(self, skew_s: float) -> Life:
        if self.disk.frozen:
            self.disk = self.disk.after_kill()
        return new_life(self.name, self.disk, skew_s)

    async def _run(self) -> int:
        self._process = Daemon(type(self).__name__, log.get(self.name), notifier=Notifier(), reloads=True)
        return await self._process.run(self._serve)

    async def _serve(self, process: Daemon) -> None:
        raise NotImplementedError

    async def stop(self) -> int | None:
        """In order; its exit code, None if it is killed meanwhile."""
        assert self._running is not None
        assert self.life is not None
        while self._process is None and self.is_up:
            await asyncio.sleep(0.0)
        if self._process is None:
            return None
        self._process.stop()
        await asyncio.wait({self._running})
        if self._running.cancelled():
            return None
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
        if power:
            rng = PORTS.rng
            self.disk = before.after_power_cut(rng.choice(CUTS), rng.randrange(1 << 30))
            if self.name in PORTS.levels:
                PORTS.levels[self.name] = PORTS.levels[self.name].after_power_cut(rng)

    def ended(self) -> int | None:
        """The exit code of a life that has ended by itself."""
        if self._running is None or not self._running.done() or self._running.cancelled():
            return None
        return self._running.result()


class PumpNode(Node):
    """Its host has an index, too. `directory`: of its small files, which are durable at once."""

    ends = frozenset({0, 3})  # stopped, and a peer that was away for too long at the start

    def __init__(self, name: str, directory: Path, **options: object) -> None:
        super().__init__(name, PUMP_PORT)
        self.closes = False  # an operator has told this life to
        self._directory = directory / name
        self._options = options

    @property
    def log_files(self) -> list[str]:
        return [name for name in self.disk.files() if name.endswith(".vlog")]

    def _new_life(self, skew_s: float) -> Life:
        self.closes = False
        return super()._new_life(skew_s)

    async def _serve(self, process: Daemon) -> None:
        settings = PumpConfig(
            node_id=self.name,
            addr=self.address,
            advertise_addr=self.address,
            data_dir=str(self._directory),
            pd_urls=ETCD,
            stop_write_at_bytes=FLOOR,
            **self._options,  # type: ignore[arg-type]
        )
        await pump_program.start(settings, lambda: settings, Recorder(), process)


class DrainerNode(Node):
    """`text`: its configuration, without what is its own. `data_dir`: where it is not on the disk, what is in
    it is durable at once."""

    ends = frozenset({0, 3, 5})  # and another one has its name, or took over

    def __init__(self, name: str, directory: Path, text: str, data_dir: str = "") -> None:
        super().__init__(name, DRAINER_PORT)
        self._file = directory / f"{name}.toml"
        self._text = f'addr = "{self.address}"\ndata-dir = "{data_dir or directory / name}"\n{text}'

    async def _serve(self, process: Daemon) -> None:
        self._file.touch(mode=0o600)
        self._file.write_text(self._text)

        def read() -> DrainerConfig:
            arguments = [f"--config={self._file}", "--upstream=standalone"]
            return loading.load(DrainerConfig, arguments, {}, program="drainer", env_prefix=ENV_PREFIX)

        settings = read()
        drainer_program.make_data_dir(settings.data_dir)
        await drainer_program.serve(settings, read, Recorder(), process)
