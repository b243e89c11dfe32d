"""A stream of Spark into a lake dies at random moments, its tasks and Pumps too; each change is there once.

    python -m tests.crash.faults.lake_stream [--form iceberg] [--mode mirror] [--kills N] [--seed N]
        [--peer DIR]

`binlog-spark stream`, two Pumps and etcd are processes. While rows come, change and go, and columns are
added, SIGKILL takes one of them: the command with its JVM, a Python process of its tasks, a Pump, which
begins again. With --peer one of the two Pumps is Go's, of the programs in DIR. After some deaths a life goes
on to the end, and tables are compared with what was published: a changelog change by change; a mirror row by
row. Then more rows come, until so many have died.
Exit status: 0 all comparisons were equal.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import duckdb
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from binlog_playground.cluster import etcd_server
from binlog_playground.cluster.cluster import Node
from binlog_playground.cluster.supervisor import Supervisor
from drainer.config.options import DrainerConfig
from drainer.spark.live.mirror import connector_of
from pumpclient import Publisher, column
from tests.benchmarks.door.pumps import until_ready
from tests.benchmarks.peer.programs import PUMP, programs
from tests.integration.support.subscribed_shop import shop
from tests.pump.support.process import PumpProcess
from tests.spark.support import spark_versions
from tests.spark.support.spark_command import SparkCommand
from tidb_binlog.net.port import free_ports

TABLES: Final = ("orders", "items")
KEYS: Final = 40
ROUND: Final = 4
"""Deaths between two comparisons."""
LIFE_S: Final = 40.0
END_S: Final = 600.0
Row = dict[str, Any]


class Shop:
    """What was published: the rows that there are, and every change in order."""

    def __init__(self, publisher: Publisher, rng: random.Random) -> None:
        self._publisher = publisher
        self._rng = rng
        self._columns = 0
        self.rows: dict[str, dict[int, Row]] = {name: {} for name in TABLES}
        self.changes: dict[str, list[tuple[int, str, Row | None, Row | None]]] = {name: [] for name in TABLES}

    async def change(self) -> None:
        """A transaction of a few rows, now and then a DDL before it."""
        rng = self._rng
        if rng.random() < 0.005:
            self._columns += 1
            name = f"c{self._columns}"
            await self._publisher.add_column(f"shop.{rng.choice(TABLES)}", column(name, "int"))
        made = list[tuple[str, str, Row | None, Row | None]]()
        picked = {(rng.choice(TABLES), rng.randrange(KEYS)) for _ in range(rng.randint(1, 5))}
        async with self._publisher.transaction() as txn:
            for table, key in sorted(picked):
                old = self.rows[table].get(key)
                new = {"id": key, "item": f"{rng.getrandbits(40):x}"}
                if old is None:
                    txn.insert(f"shop.{table}", new)
                    made.append((table, "insert", None, new))
                elif rng.random() < 0.3:
                    txn.delete(f"shop.{table}", old)
                    made.append((table, "delete", old, None))
                else:
                    txn.update(f"shop.{table}", old, new)
                    made.append((table, "update", old, new))
        for table, kind, before, after in made:
            self.changes[table].append((int(txn.commit_ts), kind, before, after))
            if after is None:
                assert before is not None
                del self.rows[table][before["id"]]
            else:
                self.rows[table][after["id"]] = after


class PeerPump:
    """Go's, started and killed as `PumpProcess` is."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def start_and_wait(self) -> None:
        self._node.process.start()
        await until_ready(self._node.process, self._node.address)

    def kill(self) -> None:
        self._node.process.kill()

    def end(self) -> None:
        if self._node.process.is_running:
            self.kill()


class Campaign:
    """One lake, from its beginning."""

    def __init__(self, directory: Path, endpoint: str, form: str, mode: str, rng: random.Random) -> None:
        self._directory = directory
        self._endpoint = endpoint
        self._form, self._mode = form, mode
        self._rng = rng
        self._lake = directory / "lake"
        self._variables: dict[str, str] | None = None
        self._settings = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
        if mode == "mirror":
            self._variables = dict(spark_versions.environ("4.1"))
            packages = connector_of(DrainerConfig(db_type=form)).packages
            self._settings |= spark_versions.jars("4.1", *packages)
        self.pumps: list[PumpProcess | PeerPump] = [self._pump(f"p{number}") for number in (1, 2)]
        self.log = directory / "log"

    @property
    def words(self) -> str:
        """What it is about."""
        peer = ", one Pump is Go's" if any(isinstance(process, PeerPump) for process in self.pumps) else ""
        return f"{self._form} {self._mode}{peer}"

    def _pump(self, name: str) -> PumpProcess:
        flags = (f"-node-id={name}", "-heartbeat-interval=200ms")
        return PumpProcess(self._directory / name, self._endpoint, lambda: free_ports(1)[0], *flags)

    def _begin(self, *more: str) -> SparkCommand:
        to = f"{self._form}://{self._lake}"
        argv = ["stream", "--from", f"pumps://{self._endpoint}", "--to", to, "--mode", self._mode]
        argv += ["--start", "1", "--interval", "50ms", "--master", "local[2]", *more]
        argv += ["--small", self._rng.choice(["0", "0", "4KiB"])]  # by tasks, or by the driver alone
        argv += [f"--conf={key}={text}" for key, text in self._settings.items()]
        return SparkCommand(argv, self.log, variables=self._variables)

    async def die(self) -> str:
        """One death, some time after a life has begun; whose it was."""
        whose = self._rng.choice(["command", "command", "task", "pump"])
        command = self._begin()
        try:
            await asyncio.sleep(self._rng.uniform(1.0, LIFE_S))
            if whose == "task":
                for pid in command.workers()[:1]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                await asyncio.sleep(self._rng.uniform(0.0, LIFE_S / 4))
            elif whose == "pump":
                process = self._rng.choice(self.pumps)
                process.kill()
                await asyncio.sleep(self._rng.uniform(0.0, 5.0))
                await process.start_and_wait()
                await asyncio.sleep(self._rng.uniform(0.0, LIFE_S / 4))
            assert command.process.poll() is None, self.log.read_text()[-4000:]
        finally:
            command.kill_all()
        return whose

    async def finish(self) -> None:
        """A life that comes to the end of what there is."""
        command = self._begin("--once")
        try:
            assert await asyncio.to_thread(command.process.wait, END_S) == 0, self.log.read_text()[-4000:]
        finally:
            command.kill_all()

    def check(self, shop: Shop) -> int:
        """How many rows were compared. Raises `AssertionError`."""
        for table in TABLES:
            rows = self._read(table)
            if self._mode == "mirror":
                found = {row["id"]: _known(row) for row in rows}
                assert len(found) == len(rows), f"{table}: a key is there twice"
                assert found == shop.rows[table], table
                continue
            rows.sort(key=lambda row: (row["_commit_ts"], row["_seq"]))
            numbers = [(row["_commit_ts"], row["_seq"]) for row in rows]
            assert len(set(numbers)) == len(numbers), f"{table}: a change is there twice"
            changes = [
                (row["_commit_ts"], row["_kind"], _known(row["before"]), _known(row["after"])) for row in rows
            ]
            assert sorted(changes, key=str) == sorted(shop.changes[table], key=str), table
        return sum(len(self._read(table)) for table in TABLES)

    def _read(self, table: str) -> list[Row]:
        if self._form == "delta":
            arrow = DeltaTable(str(self._lake / "shop" / table)).to_pyarrow_table()
        else:
            uri = f"sqlite:///{self._lake}/catalog.db"
            with contextlib.closing(load_catalog("lake", type="sql", uri=uri)) as catalog:
                arrow = catalog.load_table(("shop", table)).scan().to_arrow()
        relation = duckdb.from_arrow(arrow)
        names = relation.columns
        return [dict(zip(names, row, strict=True)) for row in relation.fetchall()]


def _known(row: Row | None) -> Row | None:
    """Without the columns that were added, which nobody fills."""
    return None if row is None else {name: row[name] for name in ("id", "item")}


async def run(directory: Path, form: str, mode: str, kills: int, seed: int, peer: Path | None) -> None:
    """Until so many have died. Raises `AssertionError`."""
    etcd, rng = etcd_server.EtcdServer.start(directory / "etcd"), random.Random(seed)
    campaign = Campaign(directory, etcd.endpoint, form, mode, rng)
    supervisor = Supervisor(directory / "peer")
    (directory / "peer").mkdir()
    with contextlib.ExitStack() as ends:
        ends.callback(etcd.stop)
        ends.callback(supervisor.kill_all)
        if peer is not None:
            settings = SimpleNamespace(peer=peer)
            go = ends.enter_context(programs(settings, PUMP, supervisor, etcd.endpoint))  # type: ignore[arg-type]
            assert go is not None, f"{peer} has no {PUMP}"
            campaign.pumps[1] = PeerPump(go.pump())
        await _until_dead(campaign, etcd.endpoint, kills, seed)


async def _until_dead(campaign: Campaign, endpoint: str, kills: int, seed: int) -> None:
    try:
        for process in campaign.pumps:
            await process.start_and_wait()
        publisher = await shop(endpoint)
        model = Shop(publisher, random.Random(seed))
        killed = 0
        while killed < kills:
            dead = list[str]()
            stopping = asyncio.Event()
            writing = asyncio.create_task(_write(model, stopping))
            for _ in range(min(ROUND, kills - killed)):
                dead.append(await campaign.die())
            stopping.set()
            await writing
            killed += len(dead)
            await campaign.finish()
            rows = await asyncio.to_thread(campaign.check, model)
            words = f"{campaign.words}, seed {seed}: {killed} deaths ({', '.join(dead)}), {rows} rows"
            print(f"{words}, each once", flush=True)
        await publisher.close()
    finally:
        for process in campaign.pumps:
            process.end()


async def _write(model: Shop, stopping: asyncio.Event) -> None:
    while not stopping.is_set():
        await model.change()
        await asyncio.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--form", choices=("delta", "iceberg"), default="delta")
    parser.add_argument("--mode", choices=("changelog", "mirror"), default="changelog")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--peer", type=Path, help="directory of Go's programs")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(run(Path(name), chosen.form, chosen.mode, chosen.kills, chosen.seed, chosen.peer))


if __name__ == "__main__":
    main()
