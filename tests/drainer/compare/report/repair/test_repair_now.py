"""Repair now: while programs write and a stream is applied what differs becomes equal, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import replace
from typing import Any

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.compare.report.repair import repair_now as repair_now_module
from drainer.compare.report.repair.fenced_moment import FencedMoment, fenced_moment, lock_lanes
from drainer.compare.report.repair.repair_now import Mended, ToMend, repair_now
from drainer.compare.verify.compared_table import ComparedTable, compared_table
from drainer.compare.verify.result import Kind, RowDifference
from drainer.mysql.connection import Target, connect
from drainer.mysql.mark import NAME, Mark
from drainer.mysql.mark_table import open_marks
from drainer.mysql.table_reader import read_table
from drainer.points.snapshot.drainer_hold import HeldAt
from pumpclient.testing import MemoryCluster
from tests.drainer.points.snapshot.writers import WRITERS, World
from tests.drainer.support.apply_life import run
from tidb_binlog.errors import Unavailable

pytestmark = pytest.mark.integration
_ALTER = "ALTER TABLE app.t ADD b VARCHAR(20) INVISIBLE DEFAULT 'x'"


class Bed:
    """Programs that write, a stream that brings it, and tables that nothing brings."""

    def __init__(self, server: MariaDbServer, target: Target) -> None:
        memory = MemoryCluster(["pump"])
        self.world = World(server, target, memory)
        self.target = target
        self._upstream: Any = memory.upstream
        run(target, _ALTER, "SELECT 1")

    def open_moment(self) -> AbstractAsyncContextManager[FencedMoment]:
        return fenced_moment(self.world.settings, self._upstream, self.world.drainer)

    def compared(self, table: str) -> ComparedTable:
        with closing(connect(self.target)) as connection:
            above, below = read_table(connection, "app", table), read_table(connection, "d", table)
        assert above
        assert below
        found = compared_table([above], below)
        assert isinstance(found, ComparedTable)
        return found

    async def repaired(self, table: str, rows: Sequence[RowDifference]) -> Mended:
        return await repair_now([(self.compared(table), to_mend(*rows))], self.open_moment)

    async def written(self) -> None:
        """Each program has gone on."""
        had = len(self.world.committed)
        while len(self.world.committed) < had + WRITERS:
            await asyncio.sleep(0.001)

    async def do(self, *statements: str) -> list[tuple[Any, ...]]:
        return await asyncio.to_thread(run, self.target, *statements)


@pytest.fixture
async def bed(mariadb: MariaDbServer, target: Target) -> Bed:
    return Bed(mariadb, target)


def to_mend(*rows: RowDifference) -> ToMend:
    made = ToMend()
    for row in rows:
        made.add(row)
    return made


def keyed(kind: Kind, key: int) -> RowDifference:
    """As a comparison may have seen it some time ago: the values do not matter."""
    up = None if kind is Kind.EXTRA else (b"%d" % key, b"'old'")
    down = None if kind is Kind.MISSING else (b"%d" % key, b"'older'")
    return RowDifference((b"%d" % key,), kind, up, down, ("b",) if up and down else ())


async def test_rows_become_equal_while_the_stream_goes_on(bed: Bed) -> None:
    async with bed.world.running():
        while int((await bed.do("SELECT COUNT(*) FROM d.t"))[0][0]) < 12:
            await asyncio.sleep(0.002)
        some = sorted(int(a) for (a,) in await bed.do("SELECT a FROM d.t"))[:7]
        gone, odd, right = some[:3], some[3:6], some[6]
        await bed.do(
            f"DELETE FROM d.t WHERE a IN ({','.join(map(str, gone))})",
            f"UPDATE d.t SET b='X' WHERE a IN ({','.join(map(str, odd))})",
            "INSERT INTO d.t VALUES (-1,'x'),(-2,NULL)",
            "SELECT 1",
        )
        wanted = [
            *(keyed(Kind.MISSING, key) for key in gone),
            *(keyed(Kind.CHANGED, key) for key in odd),
            keyed(Kind.EXTRA, -1),
            keyed(Kind.EXTRA, -2),
            keyed(Kind.CHANGED, right),
            keyed(Kind.EXTRA, 1 << 30),
        ]
        mended = await bed.repaired("t", wanted)
        assert (mended.rows, mended.settled, mended.left) == (8, 2, [])
        again = await bed.repaired("t", wanted)
        assert (again.rows, again.settled) == (0, 10)
        await bed.written()
        moment = await bed.world.moment()
        with moment.upstream.session() as above, moment.downstream.session() as below:
            upstream = above.rows(b"SELECT a, b FROM app.t ORDER BY a")
            assert upstream == below.rows(b"SELECT a, b FROM d.t ORDER BY a")
        await moment.close()


async def test_mended_rows_are_marked_for_two_way_replication(bed: Bed) -> None:
    target = replace(bed.target, mark=Mark(7))
    open_marks(target)
    bed.world.settings = replace(bed.world.settings, loopback_control=True, channel_id=7)
    async with bed.world.running():
        await bed.do("INSERT INTO d.t VALUES (-1,'x')", "SELECT 1")
        assert (await bed.repaired("t", [keyed(Kind.EXTRA, -1)])).rows == 1
    marks = await bed.do(f"SELECT SUM(val) FROM {NAME.decode()} WHERE channel_id=7")
    assert int(marks[0][0]) > 0


async def test_no_row_is_committed_downstream_until_the_repair_is(bed: Bed) -> None:
    async with bed.world.running():
        async with bed.open_moment() as moment:
            highest = "SELECT MAX(applied_ts) FROM tidb_binlog.lanes WHERE lane < 65536"
            before = await bed.do(highest)
            await bed.written()
            assert await bed.do(highest) == before
            assert int(before[0][0]) <= moment.ts
            moment.connection.commit()
        while await bed.do(highest) == before:
            await asyncio.sleep(0.001)


async def test_rows_that_exchanged_unique_values_and_rows_without_a_key(bed: Bed) -> None:
    await bed.do(
        "CREATE TABLE app.s (id INT PRIMARY KEY, code VARCHAR(9) UNIQUE)",
        "INSERT INTO app.s VALUES (1,'c1'),(2,'c2'),(3,'c3')",
        "CREATE TABLE app.k (v VARCHAR(9) COLLATE utf8mb4_general_ci, n FLOAT)",
        "INSERT INTO app.k VALUES ('a',1.1),('a',1.1),('b',NULL)",
        "SELECT 1",
    )
    async with bed.world.running():
        await bed.do(
            "CREATE TABLE d.s (id INT PRIMARY KEY, code VARCHAR(9) UNIQUE, remark INT AS (id) VIRTUAL)",
            "INSERT INTO d.s (id, code) VALUES (1,'c2'),(2,'c1'),(3,'c3')",
            "CREATE TABLE d.k LIKE app.k",
            "INSERT INTO d.k VALUES ('a',1.1),('A',1.1),('b',NULL),('b',NULL),('b',NULL)",
            "SELECT 1",
        )
        swapped = [keyed(Kind.CHANGED, 1), keyed(Kind.CHANGED, 2)]
        assert (await bed.repaired("s", swapped)).rows == 2
        first = b"1.100000023841858"
        wanted = [
            RowDifference((), Kind.MISSING, (b"'a'", first), None, copies=(2, 1)),
            RowDifference((), Kind.EXTRA, None, (b"'A'", first), copies=(0, 1)),
            RowDifference((), Kind.EXTRA, None, (b"'b'", b"NULL"), copies=(1, 3)),
        ]
        assert (await bed.repaired("k", wanted)).left == []
        assert await bed.do("SELECT id, code FROM d.s ORDER BY id") == [(1, "c1"), (2, "c2"), (3, "c3")]
        there = "SELECT HEX(v), n FROM d.k ORDER BY v, n"
        assert await bed.do(there) == [("61", 1.1), ("61", 1.1), ("62", None)]


async def test_what_was_mended_is_looked_at_again(bed: Bed) -> None:
    """A trigger downstream writes something else into one row; a time of the server's is left alone."""
    await bed.do(
        "CREATE TABLE app.m (id INT PRIMARY KEY, v INT, at DATETIME(6) DEFAULT '2020-01-01')",
        "INSERT INTO app.m (id, v) VALUES (1,1),(2,2)",
        "SELECT 1",
    )
    async with bed.world.running():
        await bed.do(
            "CREATE TABLE d.m (id INT PRIMARY KEY, v INT, at DATETIME(6) DEFAULT '2020-01-01'"
            " ON UPDATE CURRENT_TIMESTAMP(6))",
            "INSERT INTO d.m (id, v) VALUES (1,10),(2,20)",
            "CREATE TRIGGER d.other BEFORE UPDATE ON d.m FOR EACH ROW SET NEW.v=IF(NEW.id=2, 5, NEW.v)",
            "SELECT 1",
        )
        mended = await bed.repaired("m", [keyed(Kind.CHANGED, 1), keyed(Kind.CHANGED, 2)])
        assert await bed.do("SELECT id, v, YEAR(at) FROM d.m ORDER BY id") == [(1, 1, 2020), (2, 5, 2020)]
    assert (mended.rows, mended.left) == (1, ["d.m: 1 rows: they differ as well after they were written"])


async def test_tables_whose_rows_are_others_by_rules_are_left_to_the_file(bed: Bed) -> None:
    async with bed.world.running():
        edited = replace(bed.compared("t"), is_edited=True)
        mended = await repair_now([(edited, to_mend(keyed(Kind.CHANGED, 1)))], bed.open_moment)
    assert (mended.rows, mended.settled) == (0, 0)
    assert "row rules make its rows" in mended.left[0]


@pytest.mark.parametrize("waits", ["app.t", "app"])
async def test_rows_of_a_table_that_waits_are_left_alone(bed: Bed, waits: str) -> None:
    @contextlib.asynccontextmanager
    async def waiting() -> AsyncIterator[FencedMoment]:
        async with bed.open_moment() as moment:
            yield replace(moment, waiting=(waits,))

    async with bed.world.running():
        mended = await repair_now([(bed.compared("t"), to_mend(keyed(Kind.CHANGED, 1)))], waiting)
    assert (mended.rows, mended.settled) == (0, 0)
    assert "wait for a decision" in mended.left[0]


async def test_more_than_fits_into_memory_is_left_to_the_file(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair_now_module, "BYTES_MAX", 100)
    wide = RowDifference((b"1",), Kind.CHANGED, (b"1", b"x" * 1000), (b"1", b"y" * 1000), ("b",))
    assert to_mend(wide, wide).rows == [replace(wide, upstream=None, downstream=None)] * 2
    keyless = replace(wide, key=(), copies=(1, 0), downstream=None)
    wanted = to_mend(keyless, keyless)
    assert (wanted.rows, wanted.too_many) == ([], True)
    async with bed.world.running():
        mended = await repair_now([(bed.compared("t"), wanted)], bed.open_moment)
    assert mended.rows == 0
    assert "-repair FILE has no limit" in mended.left[0]


async def test_a_drainer_that_took_over_or_went_on_is_noticed(bed: Bed) -> None:
    life = bed.world.life
    async with bed.world.running():
        pass
    cluster = int((await bed.do("SELECT cluster_id FROM tidb_binlog.drainer_state"))[0][0])
    ((highest,),) = await bed.do("SELECT MAX(applied_ts) FROM tidb_binlog.lanes WHERE lane < 65536")

    def locked(ts: int, epoch: int) -> None:
        with closing(connect(bed.target)) as connection:
            lock_lanes(connection, "tidb_binlog", HeldAt("token", ts, cluster, epoch, ()))

    locked(int(highest), life.store.epoch)
    with pytest.raises(Unavailable, match="rows above"):
        locked(int(highest) - 1, life.store.epoch)
    with pytest.raises(Unavailable, match="took over"):
        locked(int(highest), life.store.epoch - 1)
