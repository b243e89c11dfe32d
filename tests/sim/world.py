"""World: a cluster, what goes wrong, and what must hold all the while; who uses it says a kind of world.

Runs    Pumps as their program puts them together, and what the kind adds, for some time with
        faults, then healed
Holds   no node ends by an error; one that is told to stop does; in every second world Pumps purge what every
        reader has done, all of it in the end, and nothing else
Out     `Broken` names the promise; a seed repeats it to the byte

Tests  tests/sim/test_worlds.py
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import logging
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from pump.index.index import Index
from pump.index.recent_commits import RecentCommits
from pump.index.store import IndexDamaged
from tests.crash.faults.disk import FREE
from tests.sim import retention
from tests.sim.downstream import Downstream
from tests.sim.etcd import HOST, EtcdStore
from tests.sim.life import LIFE, WORLD, Life
from tests.sim.network import Network, SimHttp
from tests.sim.node import FLOOR, DrainerNode, Node, PumpNode, die, in_life
from tests.sim.ports import PORTS
from tests.sim.retention import Purges
from tests.sim.rhythm import Rhythm
from tests.sim.scheduling import SimLoop
from tests.sim.shrinking import Size
from tidb_binlog.binlog import PREWRITE
from tidb_binlog.errors import BinlogError, Corruption
from tidb_binlog.tso import TS_MAX, Ts
from tidb_binlog.upstream.standalone.layout import TXN, decode_entry
from tidb_binlog.upstream_port import Committed

CONVERGES_S: Final = 120.0
T = TypeVar("T")


class Broken(AssertionError):
    """A promise was not kept."""


class World:
    """One seed, and a size. `say` gets what happens, line by line. `kinds`: what may go wrong in it."""

    upstream = "standalone"
    converges_s = CONVERGES_S
    live_s = 120.0
    """A reader that shows itself less often may lose what it has not done."""
    may_lose = True
    """Whether readers are away for longer than Pumps wait: a Drainer would have to load all anew."""

    def __init__(
        self, seed: int, size: Size, directory: Path, say: Callable[[str], None] | None = None
    ) -> None:
        self.rng = random.Random(seed)
        self.size = size
        self.loop = SimLoop(self.rng)
        self.directory = directory
        self.hash = hashlib.sha256()
        self._say = say
        self.network = Network(self.loop, self.trace)
        self.kinds = [_named(fault) for fault in self._faults()]
        self.network.slow_share = self._draw("slow_messages", (0.005, 0.05, 0.2))
        self.network.slow_s = self.rng.choice((0.3, 3.0))
        self.store = EtcdStore(self.network)
        self.store.on_put = self._put
        self.rhythm = Rhythm(self.rng, size.faults_s, size.hours)
        waits_s = 0.0 if self.may_lose else 2 * size.hours * 3600.0
        self.purges = Purges(self.live_s, self.converges_s, hurries=not size.hours, waits_s=waits_s)
        self.purging = self.rng.random() < 0.5
        self.commits: dict[Ts, Ts] = {}  # by start_ts, of what the upstream says is committed
        self._strikes: set[str] = set()  # Pumps that die at a write to their index, see `_filed`
        self._cuts: set[str] = set()  # hosts whose power goes while their disk writes
        self._commit_tss: set[Ts] = set()
        self._gone: dict[Ts, str] = {}  # prewrites that were purged undecided, and by whom
        self.downstream: Downstream | None = None
        self.pumps: dict[str, PumpNode] = {}
        self.drainers: list[DrainerNode] = []
        self.apps: dict[str, Life] = {}
        # A world of its own kind: some faults often, some never.
        weights = {fault: self.rng.choice((0, 1, 5)) for fault in self._faults()} | {self._kill_pump: 2}
        self._weights = {fault: weights[fault] for fault in weights if _named(fault) not in size.without}
        self._rotten = False  # something was damaged
        self.healed_s = 0.0  # from then on nothing goes wrong any more
        self.counts: Counter[str] = Counter()
        self._broken: asyncio.Future[None] | None = None

    def _draw(self, kind: str, values: Sequence[T]) -> T:
        """One of them for this world. The first is that of one without this kind."""
        self.kinds.append(kind)
        value = self.rng.choice(values)
        return values[0] if kind in self.size.without else value

    def trace(self, *what: object) -> None:
        line = f"{self.loop.time():.6f} " + " ".join(map(str, what))
        self.hash.update(line.encode() + b"\n")
        if self._say is not None:
            self._say(line)

    def _noted(self, record: logging.LogRecord, text: str) -> None:
        """What a node or a program logs."""
        self.trace(LIFE.get(), record.levelname, text)
        said, fields = record.getMessage(), getattr(record, "fields", {})
        never = record.levelname == "ERROR" and said.startswith(_NEVER)
        if never and "start_ts" in fields and self._is_elsewhere(LIFE.get().host, fields["start_ts"]):
            never = False  # this Pump's sync failed: it never said that it has it
        if never or "unexpected error" in text:
            self.breaks(f"{LIFE.get().host} {said}: {text.splitlines()[-1]}")
        error = str(fields.get("error", ""))
        if _BEHIND_DOWNSTREAM in error:
            self.breaks(f"{LIFE.get().host} {said}: {error}")

    def run(self) -> None:
        """Raises `Broken`."""
        PORTS.enter(self.loop, self.network, self.store, self.downstream)
        PORTS.removed, PORTS.filed, PORTS.advanced = self._removed, self._filed, self._advanced
        PORTS.syncing = self._syncing
        logged = _Logged(self._noted)
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
            for life in [*(node.life for node in self._nodes()), *self._lives()]:
                if life is not None and life.alive:
                    await die(life)

    def _nodes(self) -> list[Node]:
        return [*self.pumps.values(), *self.drainers]

    def _lives(self) -> list[Life | None]:
        """Of programs."""
        return list(self.apps.values())

    def breaks(self, promise: str) -> None:
        """From anywhere: the world ends with it."""
        assert self._broken is not None
        if not self._broken.done():
            self._broken.set_exception(Broken(f"{promise} (at {self.loop.time():.3f} s)"))

    # -- the story -------------------------------------------------------------------------------------

    async def _story(self) -> None:
        self._begin_upstream()
        for number in range(1, self.size.pumps + 1):
            await self._add_pump(f"p{number}")
        await self._begin()
        for seconds in self.rhythm.parts():
            if not self.rhythm.busy.is_set():
                gc.collect()  # here it comes at the same moment in each run
            await self._goes_on(seconds)
        await self._heal()
        await self._converge()

    async def _goes_on(self, seconds: float) -> None:
        end_s = self.loop.time() + seconds
        while self.loop.time() < end_s:
            await asyncio.sleep(self.rhythm.pause_s())
            await self._fault()
            await self._look_after()

    def _begin_upstream(self) -> None:
        """What the cluster stands on is there; etcd always is."""

    async def _begin(self) -> None:
        """Who uses it is there."""
        raise NotImplementedError

    async def _end(self) -> None:
        """Healed, nothing more is begun."""
        raise NotImplementedError

    async def _converge(self) -> None:
        """All that was promised has come."""
        raise NotImplementedError

    async def _add_pump(self, name: str) -> None:
        pump = PumpNode(
            name,
            self.directory,
            upstream=self.upstream,
            heartbeat_interval_s=self.rng.choice((2.0, 10.0) if self.size.hours else (0.5, 2.0)),
            index_queue_bytes=self.rng.choice((1024, 1 << 20)),
            recent_bytes=self.rng.choice((2048, 1 << 20)),
            **self.purges.options(self.rng, purges=self.purging),
        )
        self.pumps[name] = pump
        await pump.start()

    async def _begin_drainers(self, *names: str) -> None:
        """`names`: by which Pumps are to know them, if not by those of their hosts."""
        for node in self.drainers:
            await node.start()
        while not all(map(self.purges.knows, names or self._readers())):  # for others they keep nothing
            await asyncio.sleep(0.5)
            await self._start_all()

    async def _checked(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except BinlogError as error:
            self.trace("a program ends", type(error).__name__, error.message)
        except Exception as error:
            self.breaks(f"a program got {error!r}")

    # -- what is looked at -----------------------------------------------------------------------------

    def _put(self, key: bytes, value: bytes) -> None:
        """What is true, whatever programs know: what etcd has decided, and who has shown itself."""
        self.purges.shown(key, self.loop.time())
        if key.startswith(TXN) and isinstance(entry := decode_entry(key, value), Committed):
            self._commits(int(key[len(TXN) :]), entry.commit_ts)

    def _commits(self, start_ts: Ts, commit_ts: Ts) -> None:
        """The upstream says so, perhaps again."""
        if start_ts in self._gone:
            self.breaks(f"{self._gone[start_ts]} purged the prewrite {start_ts} before it committed")
        self.commits[start_ts] = commit_ts
        self._commit_tss.add(commit_ts)

    def _advanced(self, recent: RecentCommits, watermark: Ts) -> None:
        """A Pump's watermark rose: what it would send from memory is what its index has."""
        host, after = LIFE.get().host, recent.floor
        known = {delivery.commit_ts for delivery in recent.after(after, TS_MAX) or ()}
        with contextlib.suppress(IndexDamaged):  # the Pump finds it itself
            stamps = [ts for run, _ in PORTS.indexes[host].runs(after, watermark) for ts in run]
            if missing := [ts for ts in stamps if ts in self._commit_tss and ts not in known]:
                self.breaks(f"{host} does not send {missing}, which it has")

    def _removed(self, host: str, data: bytes) -> None:
        """A Pump's log file."""
        self.counts["files purged"] += 1
        done = self._applied()
        for record in retention.records(data):
            commit_ts = self.commits.get(record.start_ts, 0)
            if commit_ts == 0 and record.tp == PREWRITE:
                self._gone[record.start_ts] = host
            for name, done_ts in done.items():
                if commit_ts > done_ts and not self._is_elsewhere(host, record.start_ts):
                    self._lost(host, name, commit_ts)

    def _is_elsewhere(self, host: str, start_ts: Ts) -> bool:
        """Another Pump has it, too, to which its program went on when this one did not answer."""
        logs = (
            bytes(pump.disk.files()[name].data)
            for pump in self.pumps.values()
            for name in pump.log_files
            if pump.name != host
        )
        return any(record.start_ts == start_ts for data in logs for record in retention.records(data))

    def _lost(self, host: str, name: str, commit_ts: Ts) -> None:
        if self.purges.protects(name, self.loop.time()):
            self.breaks(f"{host} purged {commit_ts}, which {name} has not done")

    def _applied(self) -> dict[str, Ts]:
        """Up to where each reader has done everything."""
        raise NotImplementedError

    async def _purged(self) -> None:
        """What every reader has done goes: the newest file of each Pump is left."""
        began_s, end_s = self.loop.time(), self.loop.time() + self.purges.gone_s
        restarts = False
        while any(len(pump.log_files) > 1 for pump in self._up() if self.purging):
            if not restarts and self.loop.time() > (began_s + end_s) / 2:
                restarts = True  # one that has seen the upstream's clock jump believes no age until then
                for pump in self._up():
                    if len(pump.log_files) > 1:
                        await self._stopped(pump)
                await self._start_all()
            if self.loop.time() > end_s:
                left = {pump.name: pump.log_files for pump in self._up()}
                self.breaks(f"what every reader has done is not purged: {left}")
                return
            await asyncio.sleep(1.0)

    # -- what goes wrong -------------------------------------------------------------------------------

    def _faults(self) -> tuple[Callable[[], Any], ...]:
        return (
            *(self._kill_pump, self._stop_pump, self._close, self._join),
            *(self._cut, self._reset, self._compact, self._slow_disk, self._fail_disk, self._fill_disk),
            *(self._slow_etcd, self._rot, self._rot_index, self._kill_at_index, self._cut_at_sync),
        )

    async def _fault(self) -> None:
        if not any(self._weights.values()):
            return
        (fault,) = self.rng.choices(list(self._weights), list(self._weights.values()))
        done = fault()
        if asyncio.iscoroutine(done):
            done = await done
        if done is not False:
            self.counts[_named(fault)] += 1

    def _with_disks(self) -> list[Node]:
        """That may be slow, fail or be full."""
        return list(self.pumps.values())

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
        await self._stopped(self.rng.choice(up))
        return True

    async def _kill_drainer(self) -> bool:
        up = [node for node in self.drainers if node.is_up]
        if up:
            await self.rng.choice(up).kill(power=self.rng.random() < 0.5)
        return bool(up)

    async def _stop_drainer(self) -> bool:
        up = [node for node in self.drainers if node.is_up]
        if up:
            await self._stopped(self.rng.choice(up))
        return bool(up)

    def _may_end(self, node: Node, code: int) -> bool:
        """By damage, too, a Pump's own, or of which a Pump tells a Drainer; with another code by that of an
        index."""
        damaged = code in (Corruption.exit_code, IndexDamaged.exit_code) and self._rotten
        return node.may_end(code) or (damaged and not self.healed_s)

    async def _kill_or_stop(self, node: Node) -> None:
        if self.rng.random() < 0.5:
            await node.kill(power=self.rng.random() < 0.5)
        else:
            await self._stopped(node)

    async def _stopped(self, node: Node) -> None:
        self.trace(node.name, "is told to stop")
        stopping = asyncio.ensure_future(node.stop())
        await asyncio.wait({stopping}, timeout=60.0)
        if not stopping.done():
            self.breaks(f"{node.name} does not stop")
        elif (code := stopping.result()) is not None and not self._may_end(node, code):
            self.breaks(f"{node.name} stopped with {code}")

    def _hosts(self) -> list[str]:
        """Between any two of which it may be cut."""
        return [HOST, *self.pumps, *self._programs()]

    def _programs(self) -> list[str]:
        """Hosts of programs."""
        return list(self.apps)

    def _readers(self) -> list[str]:
        """Hosts of those who read the stream."""
        raise NotImplementedError

    def _cut(self) -> None:
        a, b = self.rng.sample(self._hosts(), 2)
        self.trace("cut", a, b)
        self.network.cut(a, b)
        self.loop.call_later(self.rhythm.lasts_s(0.2, 3.0, 20.0), self.network.heal, a, b)

    def _reset(self) -> None:
        a, b = self.rng.sample(self._hosts(), 2)
        self.trace("reset", a, b)
        self.network.reset(a, b)

    def _compact(self) -> None:
        self.store.compact()

    def _slow_disk(self) -> None:
        host = self.rng.choice(self._with_disks()).name
        PORTS.slow.add(host)
        self.loop.call_later(self.rhythm.lasts_s(1.0, 5.0), PORTS.slow.discard, host)

    def _fail_disk(self) -> None:
        """One call, when it comes."""
        node, call = self.rng.choice(self._with_disks()), self.rng.choice(_DISK_CALLS)
        self.trace(call, "of", node.name, "fails")
        node.disk.fails.add(call)

    def _kill_at_index(self) -> None:
        self._strikes.add(self.rng.choice(list(self.pumps)))

    def _filed(self, host: str, filed: Index) -> None:
        """A Pump has written to its index. Where that has commits above the watermark which a start does not
        read again, and none above them that it does, some die."""
        pump = self.pumps.get(host)
        if host not in self._strikes or pump is None or not pump.is_up:
            return
        with contextlib.suppress(IndexDamaged):  # the Pump finds it itself
            above = [
                (ts, place < filed.handle)
                for stamps, places in filed.runs(filed.max_commit_ts, TS_MAX)
                for ts, place in zip(stamps, places, strict=True)
                if ts in self._commit_tss
            ]
            if above and above[-1][1]:
                self._strikes.remove(host)
                self.counts["kill pump at its index"] += 1
                kill = self._checked(pump.kill(power=self.rng.random() < 0.2))
                self.loop.create_task(kill, context=in_life(WORLD))

    def _cut_at_sync(self) -> None:
        self._cuts.add(self.rng.choice(self._with_disks()).name)

    def _syncing(self, host: str) -> None:
        """A host has written, and asks its disk for it: some lose their power before that is done."""
        if host not in self._cuts:
            return
        self._cuts.remove(host)
        node = next(node for node in self._with_disks() if node.name == host)
        if node.is_up:
            self.counts["power cut at a sync"] += 1
            self.loop.create_task(self._checked(node.kill(power=True)), context=in_life(WORLD))

    def _fill_disk(self) -> None:
        """To below what prewrites need, or to the last byte."""
        node = self.rng.choice(self._with_disks())
        node.disk.free = self.rng.choice((FLOOR // 2, 0))
        self.trace("disk of", node.name, "has", node.disk.free, "bytes free")
        self.loop.call_later(self.rhythm.lasts_s(2.0, 10.0), self._free_disk, node)

    def _free_disk(self, node: Node) -> None:
        node.disk.free = FREE

    def _slow_etcd(self) -> None:
        """Timestamps are late, and transactions are open for long."""
        self.network.slow_hosts.add(HOST)
        self.loop.call_later(self.rhythm.lasts_s(2.0, 10.0), self.network.slow_hosts.discard, HOST)

    def _rot(self) -> bool:
        """What is synced is damaged, until somebody restores it."""
        node = self.rng.choice(self._with_disks())
        self._rotten = True
        damage = node.rot.strike(node.disk, self.rng, cuts=not node.is_up)
        self.trace(node.name, "has damage:", damage)
        return bool(damage)

    async def _restore(self, node: Node) -> None:
        """A process that runs may have read the damage, and keep what it read."""
        if node.rot.damage and node.is_up:
            await self._kill_or_stop(node)
        node.rot.restore(node.disk)

    def _rot_index(self) -> bool:
        """The log has everything: the next start builds it anew."""
        host = self.rng.choice(list(self.pumps))
        level = PORTS.levels.get(host)
        if level is None or not level.keys:
            return False
        self._rotten = True
        level.rot(self.rng)
        self.trace("index of", host, "has damage")
        return True

    async def _join(self) -> bool:
        if len(self.pumps) >= _PUMPS_MAX:
            return False
        if self.rng.random() < 0.5:  # whoever is not told of it must not be passed over
            reader = self.rng.choice(self._readers())
            self.network.cut(HOST, reader)
            self.loop.call_later(self.rhythm.lasts_s(1.0, 8.0, 15.0), self.network.heal, HOST, reader)
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
        """What supervises the nodes starts those that are down, sooner or later; an operator, those that
        cannot write."""
        for pump in self._up():
            if pump.disk.struck & _WRITES and self.rng.random() < 0.3:
                await self._kill_or_stop(pump)
        for node in self._nodes():
            code = node.ended()
            if node.rot.damage and (code == Corruption.exit_code or self.rng.random() < 0.1):
                self.counts["damage ended a node"] += code == Corruption.exit_code
                await self._restore(node)
            if code is not None and not self._may_end(node, code):
                self.breaks(f"{node.name} ended by itself with {code}")
            if code == 0:
                node.has_left = True  # nobody has told it to stop: it is closed
            if not (node.is_up or node.has_left) and self.rng.random() < 0.5:
                await node.start(self.rng.choice((0.0, 0.0, 0.5, -0.5, 3600.0, -3600.0)))

    # -- the end ---------------------------------------------------------------------------------------

    async def _heal(self) -> None:
        self.trace("healed")
        self.network.heal_all()
        PORTS.slow.clear()
        self.network.slow_hosts.clear()
        self._strikes.clear()
        self._cuts.clear()
        for node in self._with_disks():
            node.disk.fails.clear()
            await self._restore(node)
            self._free_disk(node)
        for level in PORTS.levels.values():
            level.damaged = frozenset()
        for pump in self.pumps.values():
            if pump.is_up and pump.disk.struck & _WRITES:
                await self._kill_or_stop(pump)
        await self._start_all()
        await asyncio.sleep(15.0)  # leases of before have run out, pauses have ended
        await self._start_all()  # what was about to end by what had been wrong
        self.healed_s = self.loop.time()
        await self._end()

    async def _until_stored(self, stored: Callable[[], Ts], upto_ts: Ts) -> None:
        """By Drainers, which may have hours of DDL before them: as long as it moves on."""
        last_ts, moved_s = stored(), self.loop.time()
        while last_ts < upto_ts:
            if self.loop.time() > moved_s + self.converges_s:
                self.breaks(f"the checkpoint is still at {last_ts} of {upto_ts}")
                return
            await self._start_all()
            await asyncio.sleep(1.0)
            if stored() > last_ts:
                last_ts, moved_s = stored(), self.loop.time()

    async def _start_all(self) -> None:
        for node in self._nodes():
            if node.is_up or node.has_left:
                continue
            code = node.ended()
            if code is not None and not self._may_end(node, code):
                self.breaks(f"{node.name} ended with {code} though nothing is wrong")
            node.has_left = code == 0
            if not node.has_left:
                await node.start()


def _named(fault: Callable[[], Any]) -> str:
    return fault.__name__.strip("_")


_NEVER: Final = ("the downstream went back in time", "commit at or below the published watermark")
"""Errors of a promise that was not kept: no server of a world goes back in time, and a Pump that has
passed a prewrite when its commit comes has lost it to readers."""
_LOGGERS: Final = ("tidb_binlog", "pumpclient")
_PUMPS_MIN, _PUMPS_MAX = 3, 4
_WRITES: Final = {"writev", "fdatasync", "fsync", "create"}
"""Of calls to a disk: a log of which one has failed takes nothing until the Pump is started again."""
_DISK_CALLS: Final = (
    *(*("fdatasync",) * 3, *sorted(_WRITES)),
    *("pread", "unlink", "pwrite", "ftruncate", "rename"),
)


_BEHIND_DOWNSTREAM: Final = "are downstream, but the relay log"


class _Logged(logging.Handler):
    """What nodes and programs log is a part of the trace. Whatever ends a node says what it is."""

    def __init__(self, noted: Callable[[logging.LogRecord, str], None]) -> None:
        super().__init__(logging.INFO)
        self._noted = noted

    def emit(self, record: logging.LogRecord) -> None:
        self._noted(record, self.format(record))

    def __enter__(self) -> None:
        for name in _LOGGERS:
            logger = logging.getLogger(name)
            logger.setLevel(logging.INFO)
            logger.propagate = False
            logger.addHandler(self)

    def __exit__(self, *_: object) -> None:
        for name in _LOGGERS:
            logging.getLogger(name).removeHandler(self)
