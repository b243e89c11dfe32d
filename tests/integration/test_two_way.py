"""Two clusters replicate into each other under load: no loop, nothing filtered wrongly, equal at the end.

Each cluster has its own etcd, pump and MariaDB, whose binary log a bridge publishes; one drainer leads from
each cluster into the other one's MariaDB. So what a drainer writes, marks included, comes out of the
database that it writes to, as it would with TiDB.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import pumpclient
from binlog_playground.cluster.cluster import Cluster, Node, http_get
from tests.binary_log import BinlogServer
from tests.integration.support.row_bridge import RowBridge
from tests.waiting import PATIENCE_S, until, until_here
from tidb_binlog.clock import SystemClock
from tidb_binlog.net.port import LOOPBACK, free_ports

pytestmark = pytest.mark.integration

CHANNEL, FOREIGN_CHANNEL = 5, 99
TRANSACTIONS, LANES = 100, 2
TABLES = {
    "app.plain": "CREATE TABLE app.plain (id BIGINT PRIMARY KEY, side INT, v INT, text VARCHAR(40))",
    "app.pair": "CREATE TABLE app.pair (a BIGINT, b VARCHAR(20), v INT, PRIMARY KEY (a, b))",
}


class Side(Cluster):
    """A cluster whose drainer writes into another one."""

    def __init__(self, number: int) -> None:
        super().__init__(SystemClock())
        self.number = number
        self.mariadb = BinlogServer()
        self.rng = random.Random(number)
        self.written = 0

    async def start_upstream(self) -> None:
        await self.start_base(7_000_000_000_000_000_000 + self.number)
        await self.start_pumps(1)
        self.publisher = await pumpclient.open_publisher(self.etcd_endpoint)
        await self.publisher.start()
        self.bridge = RowBridge(self.mariadb, self.publisher)

    def prepare_drainer(self, other: Side, *, sync_ddl: bool) -> Node:
        (port,) = free_ports(1)
        config = self.directory / "drainer.toml"
        config.write_text(
            f"initial-commit-ts = 0\n[syncer]\nworker-count = {LANES}\nsync-ddl = {str(sync_ddl).lower()}\n"
            f"loopback-control = true\nchannel-id = {CHANNEL}\n[syncer.to]\nhost = '{LOOPBACK}'\n"
            f"port = {other.mariadb.port}\nuser = '{other.mariadb.drainer_user}'\n"
            f"password = '{other.mariadb.password}'\n"
        )
        address = f"{LOOPBACK}:{port}"
        arguments = [f"--config={config}", "--node-id=drainer", f"--addr={address}"]
        arguments += [f"--pd-urls={self.etcd_endpoint}", f"--data-dir={self.directory / 'drainer'}"]
        process = self._python("drainer", "drainer", arguments)
        self.drainer = Node("drainer", process, address, f"http://{address}/status")
        return self.drainer

    def sql(self, *statements: str) -> list[Any]:
        """Rows of the last one; everything in one transaction. CREATE ends one."""
        connection = self.mariadb.connect(10.0)
        try:
            connection.autocommit(False)
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                found = list(cursor.fetchall())
            connection.commit()
            return found
        finally:
            connection.close()

    def contents(self) -> dict[str, list[Any]]:
        return {name: self.sql(f"SELECT * FROM {name} ORDER BY 1, 2") for name in TABLES}

    def has_tables(self) -> bool:
        found = self.sql("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema='app'")
        return bool(found[0][0] == len(TABLES))

    def write(self) -> None:
        """One application transaction on this side's own rows."""
        number = self.rng.randrange(60) * 2 + self.number
        text = f"side {self.number} no {self.written}"
        statements = [
            f"REPLACE INTO app.plain VALUES ({number}, {self.number}, {self.written}, '{text}')",
            f"UPDATE app.plain SET v = v + 1 WHERE id < {number} AND side = {self.number} LIMIT 3",
            f"REPLACE INTO app.pair VALUES ({number}, 'x{self.written % 3}', {self.written})",
            f"DELETE FROM app.pair WHERE a = {number + 2 * self.rng.randrange(4)} AND b = 'x1'",
        ]
        self.sql(*statements)
        self.written += 1

    async def load(self) -> None:
        for _ in range(TRANSACTIONS):
            await asyncio.to_thread(self.write)

    def metric(self, name: str) -> float:
        assert self.drainer is not None
        text = http_get(f"http://{self.drainer.address}/metrics").decode()
        found = re.search(rf"^{name} (\S+)$", text, re.M)
        assert found, name
        return float(found[1])


@pytest.fixture
async def sides() -> AsyncIterator[tuple[Side, Side]]:
    both = (Side(0), Side(1))
    try:
        await asyncio.gather(*(side.start_upstream() for side in both))
        yield both
    finally:
        for side in both:
            if hasattr(side, "publisher"):
                await side.publisher.close(0.1)
            side.stop(at_once=True)
            await side.close()
            side.remove()


async def test_two_clusters_in_both_directions(sides: tuple[Side, Side], tmp_path: Path) -> None:
    one, two = sides
    bridges = [asyncio.create_task(side.bridge.run()) for side in sides]
    drainers = [one.prepare_drainer(two, sync_ddl=True), two.prepare_drainer(one, sync_ddl=False)]
    try:
        one.sql("CREATE DATABASE app", *TABLES.values())
        for drainer in drainers:
            drainer.process.start()
        await asyncio.gather(one.until_ready(drainers[0]), two.until_ready(drainers[1]))
        await until(lambda: asyncio.to_thread(two.has_tables), "tables", beside=bridges)
        await asyncio.gather(one.load(), two.load())
        one.sql(
            f"INSERT INTO retl._drainer_repl_mark VALUES (0, {FOREIGN_CHANNEL}, 1, 'elsewhere')",
            "INSERT INTO app.plain VALUES (1000, 0, 0, 'of a third cluster')",
        )
        two.sql(f"REPLACE INTO app.plain VALUES (1001, 1, 0, '{'x' * 40}')")
        await until(lambda: asyncio.to_thread(_ended, one, two), "equal", beside=bridges)
        contents = one.contents()
        assert contents == two.contents()
        assert {row[1] for row in contents["app.plain"]} == {0, 1}, "rows of both sides"
        await silence(one, two)
        check_marks(one, two)
        for drainer in drainers:
            assert drainer.process.stop(PATIENCE_S) == 0
        assert [row[1] for row in two.sql("SELECT * FROM retl._drainer_repl_mark")] == [FOREIGN_CHANNEL]
        assert one.contents() == two.contents() == contents
    finally:
        for task in bridges:
            task.cancel()
        await asyncio.gather(*bridges, return_exceptions=True)


async def silence(*sides: Side) -> None:
    """Wait until no transaction has come from any database for a second. What turns in circles never ends."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            seen = [_of_application(side) for side in sides]
            await asyncio.sleep(1.0)
            if seen == [_of_application(side) for side in sides]:
                return


def _of_application(side: Side) -> tuple[int, int]:
    return side.bridge.seen["app"], side.bridge.seen["app, marked"]


def _ended(one: Side, two: Side) -> bool:
    return one.contents() == two.contents() and all(
        side.sql("SELECT COUNT(*) FROM app.plain WHERE id >= 1000")[0][0] == 2 for side in (one, two)
    )


def check_marks(one: Side, two: Side) -> None:
    """Every transaction of a drainer is marked, once, in its lane's row; what is marked is dropped."""
    for side, other in ((one, two), (two, one)):
        own = side.written + 1 - (side is one)  # the one with another channel's mark counts as marked
        assert side.bridge.seen["app"] == own, "an unmarked transaction of a drainer, or a lost one"
        marked = side.bridge.seen["app, marked"] - (side is one)
        marks = dict(side.sql(f"SELECT id, val FROM retl._drainer_repl_mark WHERE channel_id={CHANNEL}"))
        assert sorted(marks) == list(range(LANES))
        assert sum(marks.values()) >= marked + LANES
        assert all(value > 5 for value in marks.values()), "every lane counts in its own row"
        until_here(lambda: side.metric("binlog_drainer_loopback_transactions") >= marked)  # noqa: B023
        assert other.metric("binlog_drainer_loopback_marks_missing_total") == 0
        assert side.bridge.seen["checkpoint"] > 0
        stored = other.sql("SELECT clusterID FROM tidb_binlog.checkpoint")
        assert [row[0] for row in stored] == [7_000_000_000_000_000_000 + side.number], "only its own"
    query = f"SELECT channel_info FROM retl._drainer_repl_mark WHERE channel_id={FOREIGN_CHANNEL}"
    assert [side.sql(query) for side in (one, two)] == [[("elsewhere",)]] * 2, (
        "marks of other channels replicate"
    )
