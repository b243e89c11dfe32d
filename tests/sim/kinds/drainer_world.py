"""Drainer's world: sessions on tables of every kind, DDL, a Drainer with its standby, MariaDB.

Drives  the workload of the rig (`tests.rig.workload`), whose model knows what the rows have come to
Holds   healed and drained, the downstream has the model's rows, each once. In every second world the Drainer
        is strict: a row that a statement should touch is there, as often as it should be, or it ends. In
        every second one each DDL that takes long on a large table runs beside the stream. In every second
        one it is of a two-way replication: what it writes is marked, says the server's binary log

Tests  tests/sim/test_worlds.py
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import Callable, Coroutine, Iterator
from http import HTTPStatus
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar

from binlog_playground.check.downstream import Downstream as Tables
from binlog_playground.check.verify import compare
from drainer.checkpoint.value import Checkpoint
from drainer.config.relay_format import FORMATS
from drainer.mysql.errors import SessionError
from pumpclient.publish.publisher import open_publisher
from tests.binary_log import BinlogServer
from tests.crash.faults.disk import ROOT
from tests.rig.workload import tables
from tests.rig.workload.evolution import Evolution, creation
from tests.rig.workload.limits import MARIADB
from tests.rig.workload.model import Model
from tests.rig.workload.session import Writer, run_evolution, run_session
from tests.rig.workload.statistics import RigStatistics
from tests.rig.workload.workload import Mix, Workload
from tests.sim import downstream
from tests.sim.downstream import Downstream
from tests.sim.etcd import HOST
from tests.sim.kinds.other_side import CHANNEL, OTHERS, OtherSide
from tests.sim.life import WORLD, Life
from tests.sim.network import SimHttp
from tests.sim.node import ETCD, DrainerNode, Node, die, in_life, new_life
from tests.sim.ports import PORTS
from tests.sim.shrinking import Size
from tests.sim.world import CONVERGES_S, World
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import BinlogError
from tidb_binlog.tso import Ts
from tidb_binlog.upstream.standalone import StandaloneUpstream

SCHEMA: Final = "shop"
_SHARDED: Final = "shards"
_FIRST_ID: Final = 1000
_REWRITTEN: Final = (
    *("[[syncer.ddl-rule]]", 'kind = "drop table"', 'tbl-name = "temp_*"'),
    *('action = "rewrite"', 'text = "DROP TABLE {db}.{table}"'),  # which is not there a second time
)
T = TypeVar("T")


class DrainerWorld(World):
    may_lose = False

    def __init__(
        self,
        seed: int,
        size: Size,
        directory: Path,
        server: BinlogServer,
        say: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(seed, size, directory, say)
        self.network.steady |= {"app", "operator"}  # the model knows how each transaction ends
        self.downstream = Downstream(
            server, self.network, self.loop, lambda: PORTS.pause(downstream.HOST, 0.002)
        )
        self.downstream.lost_commits = self._draw("lost_commits", (0.0, 0.03))
        self._struck = self._draw("struck", (0.0, 0.1, 0.3))
        self._slow_sessions = self._draw("slow_sessions", (0.0, 0.2))
        self.kinds.append("ddl")
        self.downstream.strike = self._strike
        self.strict = self.rng.random() < 0.5
        self.with_relay = self.rng.random() < 0.5
        self.is_two_way = self.rng.random() < 0.5
        self._other_side: OtherSide | None = None
        server.forget()
        names = ("d1",) if self.with_relay else ("d1", "d2")[: size.readers]
        text = self._configuration(server)
        self.drainers = [DrainerNode(name, directory, text) for name in names]
        self.model = Model(SCHEMA)
        self.statistics = RigStatistics()
        self._random = Random(seed)
        self._done = asyncio.Event()
        self._last_ts: Ts = 0

    def _configuration(self, server: BinlogServer) -> str:
        """With a relay log, or as one of several of which one works at a time."""
        lines = [
            'node-id = "drainer"',
            f'pd-urls = "{ETCD}"',
            "initial-commit-ts = 0",
            f"standby = {'false' if self.with_relay else 'true'}",
            f'start-wait = "{5 if self.with_relay else 600}s"',
            "[syncer]",
            'db-type = "mysql"',
            "disjoint-shards = true",
            f"worker-count = {self.rng.choice((1, 2, 4))}",
            f"txn-batch = {self.rng.choice((3, 50))}",
            f"ddl-beside-rows = {self.rng.choice((0, 10_000))}",
            f"strict = {'true' if self.strict else 'false'}",
            *(("loopback-control = true", f"channel-id = {CHANNEL}") if self.is_two_way else ()),
            *(
                f'[[syncer.table-migrate-rule]]\nsource = {{ schema = "{SCHEMA}", table = "{shard}" }}\n'
                f'target = {{ schema = "{SCHEMA}", table = "{_SHARDED}" }}'
                for shard in tables.SHARDS
            ),
            *(_REWRITTEN if self.rng.random() < 0.5 else ()),
            "[syncer.to]",
            'host = "db"',
            f'user = "{server.drainer_user}"',
            f'password = "{server.password}"',
        ]
        if self.with_relay:
            form, size = self.rng.choice(FORMATS), self.rng.choice((2000, 1 << 20))
            lines += [
                "[syncer.relay]",
                f'log-dir = "{ROOT}/relay"',
                f'format = "{form}"',
                f"max-file-size = {size}",
            ]
        return "\n".join(lines)

    def _with_disks(self) -> list[Node]:
        return [*super()._with_disks(), *(self.drainers if self.with_relay else ())]

    async def _begin(self) -> None:
        await self._begin_drainers("drainer")
        self.apps["app"] = life = new_life("app")
        created = asyncio.Event()
        self.loop.create_task(self._checked(self._work(created)), context=in_life(life))
        await asyncio.wait_for(created.wait(), CONVERGES_S)
        await self._until_stored(self._checkpoint, self._last_ts)
        self.downstream.struck, self.downstream.slow_sessions = self._struck, self._slow_sessions
        self.apps["operator"] = operator = new_life("operator")
        self.loop.create_task(self._checked(self._decide()), context=in_life(operator))

    async def _work(self, created: asyncio.Event) -> None:
        upstream = await self._until(lambda: StandaloneUpstream.connect(ETCD))
        publisher = await self._until(lambda: open_publisher(ETCD))
        ids, clock = itertools.count(_FIRST_ID), SystemClock()
        async with publisher:
            other = OtherSide(publisher, ids, Random(self._random.random()))
            await other.create()
            version = publisher.schema_version
            writer = Writer(publisher, upstream, self.model, self.statistics, ids, version)
            await _create(writer, ids, strict=self.strict)
            self._last_ts = writer.last_commit_ts
            created.set()
            mix = Mix(abandon=0.005, lose_commit=0.02)
            workload = Workload(Random(self._random.random()), self.model, mix)
            evolution = Evolution(Random(self._random.random()), self.model, ids)
            if self.is_two_way:
                self._other_side = other
            is_over = False
            while not is_over:
                await self.rhythm.turn()
                is_over, end_s = self.rhythm.is_last, clock.monotonic_s() + self.rhythm.burst_s
                async with asyncio.TaskGroup() as group:
                    for _ in range(self.size.programs):
                        group.create_task(run_session(writer, workload, 0.3, end_s, clock))
                    if self.is_two_way:
                        group.create_task(other.write(end_s, clock))
                    pause_s = self.rng.choice((1.0, 5.0))
                    if "ddl" not in self.size.without:
                        group.create_task(run_evolution(writer, evolution, pause_s, end_s, clock))
            self._last_ts = max(writer.last_commit_ts, other.last_commit_ts)
            self._done.set()

    async def _decide(self) -> None:
        """What TRUNCATE of one shard takes away is removed by hand, and the DDL skipped."""
        http = SimHttp(self.network, 5.0)
        while True:
            await asyncio.sleep(1.0)
            for drainer in self.drainers:
                with contextlib.suppress(BinlogError, SessionError):
                    page = await http.ask("GET", drainer.address, "/ddl", None)
                    if page.status != HTTPStatus.OK:
                        continue
                    for entry in json.loads(page.body)["data"]["waiting"]:
                        if entry["query"].startswith("TRUNCATE") and "skip" in entry["possible"]:
                            shard = entry["query"].split("`")[1]
                            where = f"WHERE `{tables.SHARD}` = '{shard}'"
                            self.downstream.admin.run(f"DELETE FROM `{SCHEMA}`.`{_SHARDED}` {where}".encode())
                            await http.ask("PUT", drainer.address, f"/ddl/{entry['job_id']}/skip", None)
                            self.counts["decided"] += 1

    async def _until(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        while True:
            try:
                return await work()
            except BinlogError:
                await asyncio.sleep(0.5)

    # -- what goes wrong -------------------------------------------------------------------------------

    def _faults(self) -> tuple[Callable[[], Any], ...]:
        return (
            *(self._kill_pump, self._stop_pump, self._join, self._compact),
            *(self._slow_disk, self._fail_disk, self._fill_disk, self._rot, self._rot_index),
            *(self._slow_etcd, self._cut, self._reset, self._kill_drainer, self._stop_drainer),
            *(self._reset_downstream, self._slow_downstream, self._lose_upstream, self._cut_at_sync),
        )

    def _hosts(self) -> list[str]:
        """Not the application's: its model knows how each transaction ended."""
        return [*super()._hosts(), downstream.HOST]

    def _programs(self) -> list[str]:
        return self._readers()

    def _readers(self) -> list[str]:
        return [drainer.name for drainer in self.drainers]

    async def _lose_upstream(self) -> bool:
        """A Drainer starts without it, and reads its relay log."""
        (drainer, *_) = self.drainers
        if not self.with_relay or self.network.is_cut(drainer.name, HOST):
            return False
        self.network.cut(drainer.name, HOST)
        if drainer.is_up:
            await drainer.kill(power=self.rng.random() < 0.7)
        self.downstream.notice()  # or it is taken for one that works
        await drainer.start()
        self.loop.call_later(self.rhythm.lasts_s(20.0, 60.0), self.network.heal, drainer.name, HOST)
        return True

    def _strike(self, life: Life) -> None:
        for drainer in self.drainers:
            if drainer.life is life:
                self.counts["kill drainer at a DDL"] += 1
                # Not by the life itself, with which it would end in the middle.
                self.loop.create_task(self._checked(drainer.kill()), context=in_life(WORLD))

    def _reset_downstream(self) -> None:
        self.downstream.reset(self.rng.choice(("", "d1", "d2")))

    def _slow_downstream(self) -> None:
        PORTS.slow.add(downstream.HOST)
        self.loop.call_later(self.rhythm.lasts_s(1.0, 5.0), PORTS.slow.discard, downstream.HOST)

    # -- the end ---------------------------------------------------------------------------------------

    async def _end(self) -> None:
        self.downstream.lost_commits = self.downstream.struck = self.downstream.slow_sessions = 0.0
        self.downstream.notice()
        await asyncio.wait_for(self._done.wait(), CONVERGES_S)
        await die(self.apps["app"])

    async def _converge(self) -> None:
        await self._until_stored(self._checkpoint, self._last_ts)
        expected = self.model.expected(dict.fromkeys(tables.SHARDS, _SHARDED))
        contents = Tables(self.downstream.admin).contents(expected)
        contents = {name: table for name, table in contents.items() if name[0] not in OTHERS}
        report = compare(expected, contents, MARIADB)
        self.counts["committed"] += self.statistics.transactions
        self.counts["ddl"] += self.statistics.ddl
        self.counts["rows"] += report.rows_identical
        if report.differences:
            self.breaks(f"downstream differs: {report.differences[0]}")
        if self._other_side is not None:
            self._check_two_way(self._other_side)

    def _check_two_way(self, other: OtherSide) -> None:
        if wrong := other.differs(self.downstream.admin):
            self.breaks(wrong)
        self.counts["came back, marked"] += other.marked
        for names in self.downstream.server.unmarked():
            self.breaks(f"rows of {names} came downstream without a mark")

    def _applied(self) -> dict[str, Ts]:
        """A start goes on from the last of its lanes, or from the checkpoint while something waits."""
        (waiting,) = self.downstream.admin.rows_if_there(b"SELECT 1 FROM tidb_binlog.quarantine LIMIT 1")
        query = b"SELECT applied_ts - (applied_rows<>-1) FROM tidb_binlog.lanes WHERE lane<65536"
        (lanes,) = self.downstream.admin.rows_if_there(query)
        done_ts = min((ts for (ts,) in lanes), default=0)
        return {"drainer": self._checkpoint() if waiting else max(done_ts, self._checkpoint())}

    def _checkpoint(self) -> Ts:
        (rows,) = self.downstream.admin.rows_if_there(b"SELECT checkpoint FROM tidb_binlog.drainer_state")
        return max((Checkpoint.from_json(text).commit_ts for (text,) in rows if text), default=0)


async def _create(writer: Writer, ids: Iterator[int], *, strict: bool) -> None:
    """Where rows that break a key wait, there is a table whose rows do."""
    await writer.create_schema()
    losing = [] if strict else [tables.losing_table(SCHEMA, next(ids))]
    recasting = tables.losing_table(SCHEMA, next(ids), tables.RECASTING)
    pairs = (*tables.shards(SCHEMA, ids), *tables.swapped(SCHEMA, ids))
    for table in (*tables.standing_tables(SCHEMA, ids), *pairs, recasting, *losing):
        await writer.run_ddl(creation(table))
