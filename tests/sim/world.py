"""World: a cluster, who uses it, what goes wrong, and what must hold all the while.

Runs    Pumps as their program puts them together, publishers, readers by name; for `FAULTS_S` seconds with
        faults, then healed
Holds   (checked at each event, in the order of the numbers of the reliability invariants)
        a transaction that etcd says is committed comes to every reader, whatever died, and none else does;
        each comes once, in the order of commit_ts, and what was committed before a later one came has come
        before it; no Pump ends by an error; healed, all has arrived in `CONVERGES_S`, and transactions of
        programs that live commit
Out     `Broken` names the promise; a seed repeats it to the byte

Tests  tests/sim/test_worlds.py
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import gc
import hashlib
import itertools
import logging
import random
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import drainer
import pumpclient
from pumpclient import OutcomeUnknown, Publisher, column
from tests.sim.etcd import HOST, EtcdStore
from tests.sim.life import LIFE, Life
from tests.sim.network import Network, SimHttp
from tests.sim.ports import PORTS
from tests.sim.pump_node import PumpNode, die, in_life, new_life
from tests.sim.scheduling import SimLoop
from tidb_binlog.errors import BinlogError
from tidb_binlog.upstream.standalone.layout import TXN, decode_entry
from tidb_binlog.upstream_port import Committed

FAULTS_S: Final = 40.0
CONVERGES_S: Final = 120.0
TABLES: Final = ("shop.orders", "shop.items")
_ENDPOINT: Final = "http://etcd:2379"


class Broken(AssertionError):
    """A promise was not kept."""


class End(enum.Enum):
    """What a publisher knows of a transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    UNKNOWN = "unknown"
    NOT_COMMITTED = "not committed"


@dataclass
class Txn:
    """`number` is the key of its rows."""

    number: int
    began_s: float
    end: End = End.OPEN
    commit_ts: int = 0


@dataclass
class Reader:
    """A program that keeps its position with its rows: what it `has`, numbers by commit_ts, is there once."""

    name: str
    life: Life | None = None
    position: int = 0
    has: dict[int, list[int]] = field(default_factory=dict)
    begun: asyncio.Event = field(default_factory=asyncio.Event)


class World:
    """One seed. `say` gets what happens, line by line."""

    def __init__(self, seed: int, directory: Path, say: Callable[[str], None] | None = None) -> None:
        self.rng = random.Random(seed)
        self.loop = SimLoop(self.rng)
        self.directory = directory
        self.hash = hashlib.sha256()
        self._say = say
        self.network = Network(self.loop, self.trace)
        self.network.slow_share = self.rng.choice((0.005, 0.05, 0.2))
        self.network.slow_s = self.rng.choice((0.3, 3.0))
        self.store = EtcdStore(self.network)
        self.pumps: dict[str, PumpNode] = {}
        self.readers = [Reader("reader-1"), Reader("reader-2")]
        self.apps: dict[str, Life] = {}
        self.txns: dict[int, Txn] = {}
        self.committed: list[int] = []  # commit_ts of what etcd says is, ascending
        self.store.on_put = self._decided
        faults: tuple[Callable[[], Any], ...] = (
            *(self._kill_pump, self._stop_pump, self._close, self._join, self._kill_reader, self._kill_app),
            *(self._cut, self._reset, self._compact, self._slow_disk),
        )
        # A world of its own kind: some faults often, some never.
        self._weights = {fault: self.rng.choice((0, 1, 5)) for fault in faults} | {self._kill_pump: 2}
        self.healed_s = 0.0  # from then on nothing goes wrong any more
        self.counts: Counter[str] = Counter()
        self._numbers = itertools.count(1)
        self._broken: asyncio.Future[None] | None = None

    def trace(self, *what: object) -> None:
        line = f"{self.loop.time():.6f} " + " ".join(map(str, what))
        self.hash.update(line.encode() + b"\n")
        if self._say is not None:
            self._say(line)

    def run(self) -> None:
        """Raises `Broken`."""
        PORTS.enter(self.loop, self.network, self.store)
        logged = _Logged(self.trace)
        gc.collect()
        gc.disable()  # when it comes is a matter of addresses, and it ends generators
        with logged, asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        self._broken = self.loop.create_future()
        story = asyncio.ensure_future(self._story())
        await asyncio.wait({story, self._broken}, return_when=asyncio.FIRST_COMPLETED)
        try:
            if self._broken.done():
                self._broken.result()
            await story
        finally:
            story.cancel()
            lives = [pump.life for pump in self.pumps.values()] + [reader.life for reader in self.readers]
            for life in [*lives, *self.apps.values()]:
                if life is not None and life.alive:
                    await die(life)

    def breaks(self, promise: str) -> None:
        """From anywhere: the world ends with it."""
        assert self._broken is not None
        if not self._broken.done():
            self._broken.set_exception(Broken(f"{promise} (at {self.loop.time():.3f} s)"))

    # -- the story -------------------------------------------------------------------------------------

    async def _story(self) -> None:
        for number in range(1, 3):
            await self._add_pump(f"p{number}")
        await self._founded()
        for number in range(1, 4):
            self._start_app(f"app-{number}")
        for reader in self.readers:  # known from the start: a Pump that leaves waits for them
            self._start_reader(reader)
            await reader.begun.wait()
        end_s = self.loop.time() + FAULTS_S
        while self.loop.time() < end_s:
            await asyncio.sleep(self.rng.expovariate(1.0))
            await self._fault()
            await self._look_after()
        await self._heal()
        await self._converge()

    async def _add_pump(self, name: str) -> None:
        pump = PumpNode(
            name,
            self.directory,
            heartbeat_interval_s=self.rng.choice((0.5, 2.0)),
            segment_bytes=self.rng.choice((4096, 1 << 20)),
            index_queue_bytes=self.rng.choice((1024, 1 << 20)),
            recent_bytes=self.rng.choice((2048, 1 << 20)),
        )
        self.pumps[name] = pump
        await pump.start()

    async def _founded(self) -> None:
        """The tables are there."""
        life = new_life("founder")

        async def found() -> None:
            while True:
                with contextlib.suppress(BinlogError):
                    async with await pumpclient.open_publisher(_ENDPOINT) as publisher:
                        await publisher.create_database("shop", if_not_exists=True)
                        for table in TABLES:
                            id_column = column("id", "bigint", nullable=False)
                            await publisher.create_table(
                                table, [id_column], primary_key=["id"], if_not_exists=True
                            )
                        return
                await asyncio.sleep(0.5)

        await self.loop.create_task(found(), context=in_life(life))
        await die(life)
        self.committed.clear()  # DDL that changes nothing comes to nobody

    def _decided(self, key: bytes, value: bytes) -> None:
        """Transactions that etcd has decided: what is true, whatever their programs know."""
        if key.startswith(TXN) and isinstance(entry := decode_entry(key, value), Committed):
            at = bisect_left(self.committed, entry.commit_ts)
            if self.committed[at : at + 1] != [entry.commit_ts]:
                self.committed.insert(at, entry.commit_ts)
                self.counts["committed"] += 1

    # -- who uses it -----------------------------------------------------------------------------------

    def _start_app(self, host: str) -> None:
        self.apps[host] = life = new_life(host)
        self.loop.create_task(self._checked(self._write(host)), context=in_life(life))

    async def _checked(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except BinlogError as error:
            self.trace("a program ends", type(error).__name__, error.message)
        except Exception as error:
            self.breaks(f"a program got {error!r}")

    async def _write(self, host: str) -> None:
        while True:
            try:
                async with await pumpclient.open_publisher(_ENDPOINT) as publisher:
                    while True:
                        await self._transaction(publisher)
                        await asyncio.sleep(self.rng.expovariate(5.0))
            except BinlogError as error:
                self.trace(host, "opens anew", type(error).__name__, error.message)
            await asyncio.sleep(0.5)

    async def _transaction(self, publisher: Publisher) -> None:
        number = next(self._numbers)
        self.txns[number] = record = Txn(number, self.loop.time())
        table = TABLES[number % len(TABLES)]
        gives_up = self.rng.random() < 0.1
        try:
            async with publisher.transaction() as txn:
                txn.insert(table, {"id": number})
                await asyncio.sleep(self.rng.choice((0.0, 0.01, 0.5, 5.0)))
                if gives_up:
                    raise _GivesUp
        except _GivesUp:
            record.end = End.NOT_COMMITTED
        except OutcomeUnknown:
            record.end = End.UNKNOWN
        except BinlogError as error:
            record.end = End.NOT_COMMITTED
            if 0 < self.healed_s < record.began_s:
                self.breaks(f"{number} did not commit though nothing is wrong: {error}")
        else:
            record.end, record.commit_ts = End.COMMITTED, int(txn.commit_ts)
            if record.commit_ts not in self.committed:
                self.breaks(f"{number} was said to be committed at {record.commit_ts}, and is not")
        self.trace(number, record.end.value, record.commit_ts)

    def _start_reader(self, reader: Reader) -> None:
        reader.life = new_life(reader.name)
        read = self._checked(self._read(reader))
        self.loop.create_task(read, context=in_life(reader.life))

    async def _read(self, reader: Reader) -> None:
        while True:
            try:
                start: int | str = reader.position or "oldest"
                async with drainer.subscribe(
                    _ENDPOINT,
                    name=reader.name,
                    start=start,
                    upstream="standalone",
                    spill_dir=str(self.directory),
                ) as stream:
                    reader.begun.set()
                    async for change in stream:
                        self._came(reader, change)
                        if self.rng.random() < 0.5:
                            await stream.done(change)
            except BinlogError as error:
                self.trace(reader.name, "opens anew", type(error).__name__, error.message)
                if isinstance(error, drainer.BinlogsLost | drainer.OutOfOrder):
                    self.breaks(f"{reader.name} was told: {error}")
            await asyncio.sleep(0.5)

    def _came(self, reader: Reader, change: drainer.Transaction | drainer.Ddl) -> None:
        """Rows and position in one step."""
        commit_ts = change.commit_ts
        if commit_ts <= reader.position:
            self.breaks(f"{reader.name} was given {commit_ts} behind its position {reader.position}")
        after = bisect_right(self.committed, reader.position)
        missing = self.committed[after : bisect_left(self.committed, commit_ts)]
        if missing:
            self.breaks(f"{reader.name} was given {commit_ts} without {missing}, committed before it came")
        reader.position = commit_ts
        if isinstance(change, drainer.Ddl):
            return
        if commit_ts not in self.committed:
            self.breaks(f"{reader.name} was given {commit_ts}, which did not commit")
        reader.has[commit_ts] = numbers = [int(row.key_values[0]) for row in change.rows]
        self.trace(reader.name, "has", numbers, commit_ts)
        for number in numbers:
            record = self.txns[number]
            if record.end is End.NOT_COMMITTED or record.commit_ts not in (0, commit_ts):
                self.breaks(f"{reader.name} was given {number} at {commit_ts}; its program knows {record}")

    # -- what goes wrong -------------------------------------------------------------------------------

    async def _fault(self) -> None:
        (fault,) = self.rng.choices(list(self._weights), list(self._weights.values()))
        name = fault.__name__.strip("_")
        done = fault()
        if asyncio.iscoroutine(done):
            done = await done
        if done is not False:
            self.counts[name] += 1

    def _up(self) -> list[PumpNode]:
        return [pump for pump in self.pumps.values() if pump.is_up]

    async def _kill_pump(self) -> bool:
        up = self._up()
        if not up:
            return False
        await self.rng.choice(up).kill(power=self.rng.random() < 0.5)
        return True

    async def _stop_pump(self) -> bool:
        up = self._up()
        if not up:
            return False
        pump = self.rng.choice(up)
        self.trace(pump.name, "is told to stop")
        stopping = asyncio.ensure_future(pump.stop())
        await asyncio.wait({stopping}, timeout=60.0)
        if not stopping.done():
            self.breaks(f"{pump.name} does not stop")
        elif stopping.result() not in _ENDS:
            self.breaks(f"{pump.name} stopped with {stopping.result()}")
        return True

    def _hosts(self) -> list[str]:
        readers = [reader.name for reader in self.readers]
        return [HOST, *self.pumps, *readers, *self.apps]

    def _cut(self) -> None:
        a, b = self.rng.sample(self._hosts(), 2)
        self.trace("cut", a, b)
        self.network.cut(a, b)
        self.loop.call_later(self.rng.choice((0.2, 3.0, 20.0)), self.network.heal, a, b)

    def _reset(self) -> None:
        a, b = self.rng.sample(self._hosts(), 2)
        self.trace("reset", a, b)
        self.network.reset(a, b)

    async def _kill_reader(self) -> None:
        reader = self.rng.choice(self.readers)
        assert reader.life is not None
        self.trace(reader.name, "is killed")
        await die(reader.life)
        self._start_reader(reader)

    async def _kill_app(self) -> None:
        host = self.rng.choice(list(self.apps))
        self.trace(host, "is killed")
        await die(self.apps[host])
        for record in self.txns.values():
            if record.end is End.OPEN:
                record.end = End.UNKNOWN  # others' are still open; they say so themselves in the end
        self._start_app(host)

    def _compact(self) -> None:
        self.store.compact()

    def _slow_disk(self) -> None:
        host = self.rng.choice(list(self.pumps))
        PORTS.slow.add(host)
        self.loop.call_later(self.rng.choice((1.0, 5.0)), PORTS.slow.discard, host)

    async def _join(self) -> bool:
        if len(self.pumps) >= _PUMPS_MAX:
            return False
        if self.rng.random() < 0.5:  # whoever is not told of it must not be passed over
            reader = self.rng.choice(self.readers).name
            self.network.cut(HOST, reader)
            self.loop.call_later(self.rng.choice((1.0, 8.0, 15.0)), self.network.heal, HOST, reader)
        await self._add_pump(f"p{len(self.pumps) + 1}")
        return True

    async def _close(self) -> bool:
        """An operator has a Pump leave for good."""
        staying = [pump for pump in self._up() if not pump.closes]
        if len(staying) < _PUMPS_MIN:
            return False
        pump = self.rng.choice(staying)
        pump.closes = True
        self.trace(pump.name, "is told to close")
        with contextlib.suppress(BinlogError):
            page = await SimHttp(self.network, 5.0).ask(
                "PUT", pump.address, f"/state/{pump.name}/close", None
            )
            self.trace(pump.name, "answers", page.status, page.body)
        return True

    async def _look_after(self) -> None:
        """What supervises the nodes starts those that are down, sooner or later."""
        for pump in self.pumps.values():
            code = pump.ended()
            if code is not None and code not in _ENDS:
                self.breaks(f"{pump.name} ended by itself with {code}")
            if code == 0:
                pump.has_left = True  # nobody has told it to stop: it is closed
            if not (pump.is_up or pump.has_left) and self.rng.random() < 0.5:
                await pump.start(self.rng.choice((0.0, 0.0, 0.5, -0.5)))

    # -- the end ---------------------------------------------------------------------------------------

    async def _heal(self) -> None:
        self.trace("healed")
        self.network.heal_all()
        PORTS.slow.clear()
        await self._start_all()
        await asyncio.sleep(15.0)  # leases of before have run out, pauses have ended
        self.healed_s = self.loop.time()
        await asyncio.sleep(5.0)
        for life in self.apps.values():
            await die(life)

    async def _start_all(self) -> None:
        for pump in self.pumps.values():
            if pump.is_up or pump.has_left:
                continue
            code = pump.ended()
            if code is not None and code not in _ENDS:
                self.breaks(f"{pump.name} ended with {code} though nothing is wrong")
            pump.has_left = code == 0
            if not pump.has_left:
                await pump.start()

    async def _converge(self) -> None:
        end_s = self.loop.time() + CONVERGES_S
        while self.loop.time() < end_s:
            await self._start_all()
            await asyncio.sleep(1.0)
            if all(set(self.committed) <= set(reader.has) for reader in self.readers):
                break
        else:
            for reader in self.readers:
                missing = sorted(set(self.committed) - set(reader.has))
                self.breaks(f"{reader.name} still has no {missing[:5]} of {len(missing)}")
        one, other = self.readers
        if one.has != other.has:
            self.breaks("two readers have different histories")


_LOGGERS: Final = ("tidb_binlog", "pumpclient")
_PUMPS_MIN, _PUMPS_MAX = 3, 4
_ENDS: Final = (0, 3)
"""Exit codes in which nothing is wrong: stopped, and a peer that was away for too long at the start."""


class _Logged(logging.Handler):
    """What nodes and programs log is a part of the trace."""

    def __init__(self, trace: Callable[..., None]) -> None:
        super().__init__(logging.INFO)
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        self._trace(LIFE.get(), record.levelname, self.format(record))

    def __enter__(self) -> None:
        for name in _LOGGERS:
            logger = logging.getLogger(name)
            logger.setLevel(logging.INFO)
            logger.propagate = False
            logger.addHandler(self)

    def __exit__(self, *_: object) -> None:
        for name in _LOGGERS:
            logging.getLogger(name).removeHandler(self)


class _GivesUp(Exception):
    """The program rolls back."""
