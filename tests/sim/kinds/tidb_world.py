"""TiDB's world: sessions of TiDB that write, a PD of three members, and TiKV in three stores below the Pumps.

As in the readers' world; what is true is what TiKV has committed. Sessions do as TiDB: binlog and locks are
prewritten at once, a commit binlog is sent when the primary key is committed, and nobody waits for it, so it
may be missing, as a session may in the middle of anything. Tables are created meanwhile, and written to; a
job comes into the history some time after its commit.

Garbage is collected, up to what sessions that live have open and services hold: primary keys are overwritten
all the time, and how a transaction ended is not to be found any more.

Tests  tests/sim/test_worlds.py
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import drainer
import pumpclient
from pump.watermark import trace_hold
from pumpclient import PumpClient
from tests.fakes.cluster import FakeCluster, Member
from tests.fakes.meta import Kind, MetaWriter
from tests.fakes.mvcc import KeyFailure
from tests.fakes.pd import GC_WORKER, FakeMember, FakePd
from tests.fakes.tikv import FakeTikv
from tests.sim.etcd import HOST
from tests.sim.kinds.readers_world import TABLES, End, Reader, ReadersWorld, Txn
from tests.sim.node import ETCD, in_life, new_life
from tests.sim.ports import START_S
from tests.sim.shrinking import Size
from tests.sim.world import CONVERGES_S
from tidb_binlog import tso
from tidb_binlog.clock import ManualClock
from tidb_binlog.door.http.routes import Routes
from tidb_binlog.errors import BinlogError, Unavailable
from tidb_binlog.rowcodec.encoder import RowEncoder, prewrite_value
from tidb_binlog.rowcodec.keys import record_key
from tidb_binlog.table_info import FLAG_NOT_NULL, FLAG_PRIMARY, LONGLONG, Column, FieldType, TableInfo
from tidb_binlog.tso import Ts
from tidb_binlog.upstream.tidb import TidbUpstream
from tidb_binlog.upstream.tidb.tikv import transactions

_PD_PORT: Final = 2379
_PD_HOSTS: Final = (HOST, "pd-2", "pd-3")
_SCHEMA, _SCHEMA_ID = TABLES[0].split(".")[0], 100
_ID: Final = Column(1, "id", 0, FieldType(LONGLONG, FLAG_NOT_NULL | FLAG_PRIMARY, 20))
_TABLES: Final = tuple(
    TableInfo(number, name.split(".")[1], (_ID,), pk_is_handle=True)
    for number, name in enumerate(TABLES, start=_SCHEMA_ID + 1)
)
_ENCODER: Final = RowEncoder(_TABLES[0])
_JOBS: Final = 90  # of a table whose keys are those of DDL transactions
_TTL_MS: Final = 3000
_HOT: Final = 91  # a table whose few keys are primary, and overwritten all the time
_HOT_KEYS: Final = 4
_AWAY_S: Final = 24 * 3600
_LIFE_S: Final = 30.0
"""Of garbage: ten minutes and more in a real cluster; who holds it, and asks, is as much quicker here."""


class _Clock(ManualClock):
    """Of PD: the world's."""

    def __init__(self, time_s: Callable[[], float]) -> None:
        super().__init__()
        self._time_s = time_s

    def wall_s(self) -> float:
        return START_S + self._time_s()


class TidbWorld(ReadersWorld):
    upstream = "tidb"
    converges_s = 600.0 + CONVERGES_S  # TiDB may have drawn a start_ts, and be about to lock: for ten minutes

    def __init__(
        self, seed: int, size: Size, directory: Path, say: Callable[[str], None] | None = None
    ) -> None:
        super().__init__(seed, size, directory, say)
        self.cluster = FakeCluster(clock=_Clock(self.loop.time))
        self.cluster.split(*(record_key(table.id, 0) for table in _TABLES))
        self.tikv = FakeTikv(self.cluster)
        self.pd = FakePd(self.cluster, None)
        self._meta = MetaWriter(self.cluster.put, Kind())
        self._tables = list(_TABLES)
        self._ddl: dict[Ts, str] = {}  # by commit_ts
        self.lost = self._draw("lost_answers", (0.0, 0.05))  # of TiKV's answers
        self._collects = self._draw("garbage", (False, True, True))
        self._open: set[Ts] = set()  # start_ts of transactions of sessions that live, as TiDB tells PD
        # A Pump that is away for longer may find no trace, and waits for a person, who is not here.
        hold_s = _AWAY_S if size.hours else 180
        trace_hold.RENEW_S, trace_hold.TTL_S = 3.0, hold_s  # type: ignore[misc]
        transactions.FRESH_S = _LIFE_S / 2  # type: ignore[misc]

    def _begin_upstream(self) -> None:
        self.cluster.members = [
            Member(f"pd-{number}", 10 + number, (f"http://{host}:{_PD_PORT}",))
            for number, host in enumerate(_PD_HOSTS, start=1)
        ]
        self.cluster.leader = self.cluster.members[0]
        for member, host in zip(self.cluster.members, _PD_HOSTS, strict=True):
            server = FakeMember(self.pd, member, _PD_PORT)
            self.pd.members.append(server)
            self._serve(host, f"{host}:{_PD_PORT}", server.service())
        for store in self.cluster.stores.values():
            self._serve(store.address.split(":")[0], store.address, self.tikv.service(store.id))
        self._create_tables()
        if self._collects:
            self._collect()

    def _serve(self, host: str, address: str, service: Any) -> None:
        in_life(new_life(host)).run(self.network.listen, address, [service], Routes())

    def _create_tables(self) -> None:
        """Before there were Pumps."""
        jobs = [pumpclient.create_database_job(1, _SCHEMA_ID, _SCHEMA, schema_version=1)] + [
            pumpclient.create_table_job(number, _SCHEMA_ID, _SCHEMA, table, schema_version=number)
            for number, table in enumerate(_TABLES, start=2)
        ]
        self._meta.found_cluster()
        for text in jobs:
            job = json.loads(text)
            job["start_ts"], job["real_start_ts"], commit_ts, job["binlog"]["FinishedTS"] = (
                self.cluster.ts(1000) for _ in range(4)
            )
            self._meta.run(job, commit_ts)

    async def _founded(self) -> None:
        """The tables are."""

    def _collect(self) -> None:
        """Garbage, as far as sessions and services let TiDB's worker."""
        old_ts = tso.from_wall_s(self.cluster.clock.wall_s() - _LIFE_S)
        wanted = max(min([old_ts, *(ts - 1 for ts in self._open)]), self.cluster.gc_safe_point)
        self.cluster.service_safe_points[GC_WORKER] = (wanted, math.inf)
        before_ts = self.cluster.gc_safe_point
        self.counts["garbage collected"] += self.cluster.collect(wanted) > before_ts
        self.loop.call_later(3.0, self._collect)

    # -- sessions --------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        await super()._begin()
        self._start_app("ddl")

    async def _write(self, host: str) -> None:
        while True:
            try:
                async with contextlib.AsyncExitStack() as ends:
                    upstream = await TidbUpstream.connect(ETCD)
                    ends.push_async_callback(upstream.close)
                    client = await ends.enter_async_context(await pumpclient.connect(ETCD))
                    while True:
                        await self.rhythm.turn()
                        if host == "ddl":
                            await asyncio.sleep(self.rng.expovariate(0.3))
                            async with self._begun(upstream) as start_ts:
                                await self._create(client, upstream, start_ts)
                            continue
                        async with self._begun(upstream) as start_ts:
                            await self._session(client, upstream, start_ts)
                        await asyncio.sleep(self.rng.expovariate(5.0))
            except BinlogError as error:
                self.trace(host, "opens anew", type(error).__name__, error.message)
            await asyncio.sleep(0.5)

    @contextlib.asynccontextmanager
    async def _begun(self, upstream: TidbUpstream) -> AsyncIterator[Ts]:
        """TiDB tells of it for as long as the session lives."""
        start_ts = await upstream.oracle.timestamp()
        self._open.add(start_ts)
        try:
            yield start_ts
        finally:
            self._open.discard(start_ts)

    async def _session(self, client: PumpClient, upstream: TidbUpstream, start_ts: Ts) -> None:
        number = next(self._numbers)
        self.txns[number] = record = Txn(number, self.loop.time())
        tables = self.rng.sample(self._tables, 2)
        keys = [
            record_key(_HOT, self.rng.randrange(_HOT_KEYS)),
            *(record_key(table.id, number) for table in tables),
        ]
        value = prewrite_value(
            1 + len(self._tables), [(table.id, (0,), (_ENCODER.insert((number,)),)) for table in tables]
        )
        try:
            await self._prewritten(client.write_prewrite(start_ts, keys[0], value), start_ts, keys)
            await asyncio.sleep(self.rng.choice((0.0, 0.01, 0.5, 5.0)))
            if self.rng.random() < 0.1:
                raise _RolledBack
            commit_ts = await self._committed(upstream, start_ts, keys[0])
        except _RolledBack as error:
            record.end = End.NOT_COMMITTED
            if 0 < self.healed_s < record.began_s and str(error) and self.loop.time() - record.began_s < 2.0:
                self.breaks(f"{number} did not commit though nothing is wrong: {error}")
            await self._roll_back(client, start_ts, keys)
        except Unavailable:
            record.end = End.UNKNOWN
            if self.rng.random() < 0.5:  # TiDB says so of whatever ended with an error
                await client.write_rollback(start_ts, keys[0])
            raise
        else:
            record.end, record.commit_ts = End.COMMITTED, commit_ts
            self.loop.create_task(self._finish(client, start_ts, commit_ts, keys))
        self.trace(number, record.end.value, record.commit_ts)

    async def _create(self, client: PumpClient, upstream: TidbUpstream, start_ts: Ts) -> None:
        """A table; once more by the next one if it fails."""
        number = len(self._tables)
        table = replace(_TABLES[0], id=_TABLES[0].id + number, name=f"more_{number}")
        query = f"CREATE TABLE `{table.name}` (`id` BIGINT PRIMARY KEY)"
        key = record_key(_JOBS, start_ts)

        def public(commit_ts: Ts) -> None:
            text = pumpclient.create_table_job(
                2 + number, _SCHEMA_ID, _SCHEMA, table, schema_version=2 + number
            )
            job = json.loads(text) | {
                "query": query,
                "start_ts": commit_ts - 1,
                "real_start_ts": commit_ts - 1,
            }
            job["binlog"]["FinishedTS"] = commit_ts + tso.compose(self.rng.choice((1, 1000, 10_000)))
            self._meta.run(job, commit_ts)
            self._tables.append(table)
            self._ddl[commit_ts] = query

        try:
            binlog = client.write_ddl_prewrite(start_ts, key, query, job_id=2 + number)
            await self._prewritten(binlog, start_ts, [key])
            commit_ts = await self._committed(upstream, start_ts, key, public)
        except _RolledBack:
            await self._roll_back(client, start_ts, [key])
        else:
            self.counts["ddl"] += 1
            self.loop.create_task(self._finish(client, start_ts, commit_ts, [key]))

    async def _roll_back(self, client: PumpClient, start_ts: Ts, keys: list[bytes]) -> None:
        roll_back = self._at(keys, lambda: self.cluster.roll_back(start_ts, *keys))
        await asyncio.gather(roll_back, client.write_rollback(start_ts, keys[0]), return_exceptions=True)

    async def _prewritten(self, binlog: Coroutine[Any, Any, bool], start_ts: Ts, keys: list[bytes]) -> None:
        """Binlog and locks at once. Raises `_RolledBack` where one of them is not there."""
        later = self.rng.choice((0, start_ts + 1))  # a lock's min_commit_ts may be pushed by who asks, or not

        def lock() -> None:
            values: dict[bytes, bytes | None] = dict.fromkeys(keys, b"row")
            self.cluster.prewrite(values, start_ts=start_ts, ttl_ms=_TTL_MS, min_commit_ts=later)

        done = await asyncio.gather(
            binlog,
            self._at(keys, lock, after_s=self.rng.choice((0.0, 0.0, 0.0, 0.0, 8.0))),
            return_exceptions=True,
        )
        for error in done:
            if isinstance(error, KeyFailure) and error.error.HasField("locked"):
                raise _RolledBack
            if isinstance(error, BinlogError | KeyFailure):
                raise _RolledBack(error)
            if isinstance(error, BaseException):
                raise error

    async def _committed(
        self,
        upstream: TidbUpstream,
        start_ts: Ts,
        primary: bytes,
        also: Callable[[Ts], None] = lambda _: None,
    ) -> Ts:
        """The primary key, and `also` with it. Raises `_RolledBack`; `Unavailable` where nobody says."""
        while True:
            commit_ts = await upstream.oracle.timestamp()

            def commit(commit_ts: Ts = commit_ts) -> None:
                self.cluster.commit(start_ts, primary, commit_ts=commit_ts)
                self._commits(start_ts, commit_ts)
                also(commit_ts)

            try:
                await self._at([primary], commit)
            except KeyFailure as failure:
                if failure.error.abort != "CommitTsExpired":
                    raise _RolledBack(failure.error.abort or failure.error.retryable) from None
            else:
                return commit_ts

    async def _finish(self, client: PumpClient, start_ts: Ts, commit_ts: Ts, keys: list[bytes]) -> None:
        """Nobody waits for it."""
        if self.rng.random() < 0.1:
            self.counts["commit binlog never sent"] += 1
        else:
            await client.write_commit(start_ts, commit_ts, keys[0])
        if keys[1:]:
            with contextlib.suppress(Unavailable, KeyFailure):
                await self._at(
                    keys[1:], lambda: self.cluster.commit(start_ts, *keys[1:], commit_ts=commit_ts)
                )

    def _came(self, reader: Reader, change: drainer.Transaction | drainer.Ddl) -> None:
        super()._came(reader, change)
        if isinstance(change, drainer.Ddl) and self._ddl.get(change.commit_ts) != change.query:
            self.breaks(f"{reader.name} was given {change.query}, which is not what was run")

    async def _at(self, keys: list[bytes], work: Callable[[], object], after_s: float = 0.0) -> None:
        """Done by the store that leads the first key."""
        await asyncio.sleep(after_s)
        leader = self.cluster.region_of(keys[0]).leader
        if leader is None:
            raise Unavailable("the region has no leader")

        async def run() -> None:
            work()

        await self.network.call(self.cluster.stores[leader.store_id].address.split(":")[0], run)
        if self.rng.random() < self.lost:
            self.counts["answer of TiKV lost"] += 1
            raise Unavailable("the connection broke")

    # -- what goes wrong -------------------------------------------------------------------------------

    def _faults(self) -> tuple[Callable[[], Any], ...]:
        return *super()._faults(), self._elect, self._move_region, self._split_region

    def _hosts(self) -> list[str]:
        stores = (store.address.split(":")[0] for store in self.cluster.stores.values())
        return [*super()._hosts(), *_PD_HOSTS[1:], *stores]

    def _elect(self) -> None:
        """PD has no leader for a while, and then another one."""
        self.pd.elect(None)
        self.loop.call_later(self.rhythm.lasts_s(0.1, 3.0), self.pd.elect, self.rng.choice(self.pd.members))

    def _move_region(self) -> None:
        key = self._key()
        self.cluster.move_leader(key, None)
        store_id = self.rng.choice(list(self.cluster.stores))
        self.loop.call_later(self.rhythm.lasts_s(0.0, 2.0), self.cluster.move_leader, key, store_id)

    def _split_region(self) -> None:
        self.cluster.split(self._key())

    async def _heal(self) -> None:
        for region in list(self.cluster.regions):
            if region.leader is None:  # it was split meanwhile
                self.cluster.move_leader(region.start_key, self.rng.choice(list(self.cluster.stores)))
        self.pd.elect(self.pd.members[0])
        self.lost = 0.0
        await super()._heal()

    def _key(self) -> bytes:
        return record_key(self.rng.choice(self._tables).id, self.rng.randrange(1, max(2, len(self.txns))))


class _RolledBack(Exception):
    """Said why, unless it is meant."""
