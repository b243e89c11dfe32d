"""Ports: where the real nodes of a world meet what is simulated. `install` puts it there, for the process.

Everything is found by the life that asks: its clock, disk, index and identity. What is drawn anywhere in the
product comes from the world's seed.
"""

from __future__ import annotations

import functools
import itertools
import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from drainer.checkpoint import lane_table, savepoint, store
from drainer.formats import binlog_directory
from drainer.mysql import addresses, connection, refusal
from drainer.reading.subscribe import named_reader
from drainer.relay import relay_log
from drainer.sink import row_mismatch
from drainer.sink.file import segments
from drainer.sink.mysql import lane
from drainer.stream.pull import spill
from pump import program
from pump.index import index, indexer
from pump.index.recent_commits import RecentCommits
from pump.log import block_cache, log_file, writer
from pump.membership import notify_drainers
from pump.pull import puller
from pump.storage import accepted_losses, data_dir, missing_prewrite
from pump.write import disk_guard
from tests.crash.faults import disk
from tests.sim.downstream import Downstream
from tests.sim.etcd import EtcdStore, SimEndpoint
from tests.sim.level import Database, Level
from tests.sim.life import LIFE
from tests.sim.network import Network, SimHttp, SimRpc, SimServer
from tests.sim.scheduling import QUEUE, THREADING, SimLoop, SimThread, begin, wait_for
from tidb_binlog import backoff, filesystem, rpc
from tidb_binlog.clock import SystemClock
from tidb_binlog.door.http.routes import Routes
from tidb_binlog.etcd import client as etcd_client
from tidb_binlog.etcd import registry as etcd_registry
from tidb_binlog.net import abandonable_thread
from tidb_binlog.net.http_client import HttpClient
from tidb_binlog.process import daemon, process_identity
from tidb_binlog.process.process_identity import ProcessIdentity
from tidb_binlog.serving import listener
from tidb_binlog.tso import Ts
from tidb_binlog.upstream import standalone
from tidb_binlog.upstream.tidb.tikv import tikv

START_S = 1_700_000_000.0
_SYNC_S, _FILED_S, _SLOW_S = 0.01, 0.002, 0.5
_HTTP_S = 5.0


class Ports:
    """What the worlds of a process have in common; `world` is the one that runs."""

    def __init__(self) -> None:
        self.loop: SimLoop
        self.network: Network
        self.store: EtcdStore
        self.downstream: Downstream | None = None
        self.rng = random.Random(0)
        self.levels: dict[str, Level] = {}  # of each host's index
        self.alive: set[str] = set()  # processes, as identities name them
        self.slow: set[str] = set()  # hosts whose disks are
        self.lives = itertools.count(1)
        self.removed: Callable[[str, bytes], None] = lambda host, data: None
        self.filed: Callable[[str, index.Index], None] = lambda host, filed: None
        self.syncing: Callable[[str], None] = lambda host: None
        self.advanced: Callable[[RecentCommits, Ts], None] = lambda recent, watermark: None
        self.indexes: dict[str, index.Index] = {}  # of each host, as its process opened it last

    def enter(
        self, loop: SimLoop, network: Network, store: EtcdStore, downstream: Downstream | None = None
    ) -> None:
        begin(loop)
        self.loop, self.network, self.store, self.rng = loop, network, store, loop.rng
        self.downstream = downstream
        self.levels, self.alive, self.slow, self.lives = {}, set(), set(), itertools.count(1)
        random.seed(loop.rng.random())

    def pause(self, host: str, most_s: float) -> None:
        """What a disk takes, or one that is slow."""
        self.loop.baton.sleep(self.rng.random() * (_SLOW_S if host in self.slow else most_s))


PORTS = Ports()


class _Calls:
    """`os` of modules that write: the disk of the life that calls, and the time that a sync takes."""

    def close(self, descriptor: int) -> None:
        disk.calls.close(descriptor)

    def fdatasync(self, descriptor: int) -> None:
        self._sync("fdatasync", descriptor)

    def fsync(self, descriptor: int) -> None:
        self._sync("fsync", descriptor)

    def unlink(self, path: str) -> None:
        life = LIFE.get()
        found = life.disk.files().get(os.path.basename(path)) if life.disk is not None else None
        (life.disk or os).unlink(path)
        if found is not None and path.endswith(".vlog"):
            PORTS.removed(life.host, bytes(found.data))

    def _sync(self, name: str, descriptor: int) -> None:
        life = LIFE.get()
        PORTS.syncing(life.host)
        PORTS.pause(life.host, _SYNC_S)
        getattr(life.disk or os, name)(descriptor)

    def __getattr__(self, name: str) -> Any:
        return getattr(LIFE.get().disk or os, name)


def _space(path: str) -> SimpleNamespace:
    own = LIFE.get().disk
    assert own is not None
    return SimpleNamespace(f_bavail=own.free, f_frsize=1, f_blocks=disk.FREE)


def _wall_s() -> float:
    return START_S + PORTS.loop.time() + LIFE.get().skew_s


def _monotonic_s() -> float:
    return PORTS.loop.time()


def _identity(token: str) -> ProcessIdentity:
    life = LIFE.get()
    return ProcessIdentity(life.host, life.number, life.host, str(life), token)


def _is_gone(identity: ProcessIdentity) -> bool:
    return identity.space == LIFE.get().host and identity.started not in PORTS.alive


async def _listen(settings: Any, services: Sequence[Any], routes: Routes, **_: Any) -> SimServer:
    return PORTS.network.listen(settings.listen, services, routes)


async def _serve(services: Sequence[Any], routes: Routes, host: str, port: int, **_: Any) -> SimServer:
    return PORTS.network.listen(f"{host}:{port or 9000 + LIFE.get().number}", services, routes)


async def _ask(
    client: HttpClient, method: str, address: str, path: str, body: bytes | None = None, headers: Any = None
) -> Any:
    return await SimHttp(PORTS.network, _HTTP_S).ask(method, address, path, body)


def _open_index(path: str, **_: Any) -> index.Index:
    life = LIFE.get()
    level = PORTS.levels.setdefault(life.host, Level())
    pause = functools.partial(PORTS.pause, life.host, _FILED_S)
    opened = index.Index(Database(level, life, pause, lambda: PORTS.filed(life.host, opened)), path)
    PORTS.indexes[life.host] = opened
    return opened


_SET_ASIDE = data_dir.DataDir.set_aside


def _set_aside(own: data_dir.DataDir, name: str, suffix: str) -> str:
    if name == "kv":
        PORTS.levels.pop(LIFE.get().host, None)
    return _SET_ASIDE(own, name, suffix)


@connection.own_errors()
def _open_session(target: connection.Target) -> connection.Connection:
    assert PORTS.downstream is not None
    return PORTS.downstream.open(target)


def _drawn(bits: int) -> str:
    return f"{PORTS.rng.getrandbits(bits):x}"


_advance = RecentCommits.advance


def _advanced(recent: RecentCommits, watermark: Ts) -> None:
    _advance(recent, watermark)
    PORTS.advanced(recent, watermark)


def install() -> None:
    """For as long as the process lives."""
    RecentCommits.advance = _advanced  # type: ignore[method-assign]
    for module in (writer, indexer):
        module.threading, module.queue = THREADING, QUEUE  # type: ignore[attr-defined]
    for module in (log_file, block_cache, accepted_losses, missing_prewrite, spill, abandonable_thread):
        module.threading = THREADING  # type: ignore[attr-defined]
    for module in (log_file, filesystem, binlog_directory, segments, savepoint, spill):
        module.os = _Calls()  # type: ignore[attr-defined]
    disk_guard.os = SimpleNamespace(statvfs=_space)  # type: ignore[attr-defined]
    filesystem.lock = lambda descriptor: True  # type: ignore[assignment]
    filesystem.unlock = lambda descriptor: None  # type: ignore[assignment]
    data_dir.DataDir.value_path = property(lambda self: f"{disk.ROOT}/value")  # type: ignore[assignment]
    data_dir.DataDir.set_aside = _set_aside  # type: ignore[method-assign]
    index.Index.open = staticmethod(_open_index)  # type: ignore[method-assign, assignment]
    SystemClock.wall_s = staticmethod(_wall_s)  # type: ignore[assignment]
    SystemClock.monotonic_s = staticmethod(_monotonic_s)  # type: ignore[assignment]
    program.boot_s = _monotonic_s
    process_identity.current, process_identity.is_gone = _identity, _is_gone
    process_identity.boot = lambda: str(LIFE.get())
    backoff.random = SimpleNamespace(Random=lambda: random.Random(PORTS.rng.random()))  # type: ignore[attr-defined]
    drawn = SimpleNamespace(
        token_hex=lambda size: _drawn(8 * size), randbelow=lambda below: PORTS.rng.randrange(below)
    )
    for module in (etcd_registry, standalone):
        module.secrets = drawn  # type: ignore[attr-defined]
    etcd_client.Client = lambda address, **_: SimEndpoint(PORTS.store, address)  # type: ignore[misc, assignment]
    rpc.Client = lambda address, **options: SimRpc(PORTS.network, address, **options)  # type: ignore[misc, assignment]
    notify_drainers.Client = tikv.Client = rpc.Client  # type: ignore[misc]
    HttpClient.ask = _ask  # type: ignore[method-assign, assignment]
    listener.listen, listener.check_free = _listen, lambda settings: None  # type: ignore[assignment]
    named_reader.serve = _serve  # type: ignore[assignment]
    named_reader.own_address = lambda towards: LIFE.get().host  # type: ignore[assignment]
    puller._addresses = lambda hosts: Counter(host.rpartition(":")[0] for host in hosts)
    _install_drainer()
    daemon.SIGNALS = ()  # type: ignore[misc]
    daemon.settle = lambda: None


def _install_drainer() -> None:
    for module in (lane, relay_log, row_mismatch, addresses, lane_table, store):
        module.threading = THREADING  # type: ignore[attr-defined]
    lane.Lane.__bases__ = (SimThread,)
    refusal.wait = wait_for  # type: ignore[assignment]
    connection._opened = _open_session
