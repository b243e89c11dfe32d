"""A stream of Spark into a lake dies at random moments, its tasks and Pumps too; each change is there once.

    python -m tests.crash.faults.lake_stream [--form iceberg] [--mode mirror] [--kills N] [--seed N]
        [--peer DIR]

`binlog-spark stream`, two Pumps and etcd are processes. While rows come, change and go, a few or thousands in
a transaction, with a key or (into a changelog) without, under the name upstream or a routed one, and DDL of
every kind that a program publishes, SIGKILL takes some of them: Python processes of its tasks, executors,
Pumps, which begin again; and at last the command with its JVM. Most lives are ended once they have done a
batch: to begin takes longer than all else. With --peer one of the two Pumps is Go's, of the programs in DIR.
After some lives one goes on to the end, and tables are compared with what was published: a changelog change
by change; a mirror row by row. Then more rows come, until so many commands have died.
The last line is JSON: what died, what was published and compared.
Exit status: 0 all comparisons were equal. A signal ends it with all its processes.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from binlog_playground.cluster import etcd_server
from binlog_playground.cluster.cluster import Node
from binlog_playground.cluster.supervisor import Supervisor
from binlog_playground.program import INTERRUPTED, SIGNALS
from drainer.config.options import DrainerConfig
from drainer.spark.live.mirror import connector_of
from pumpclient import Publisher, column
from tests.benchmarks.door.pumps import until_ready
from tests.benchmarks.peer.programs import PUMP, programs
from tests.integration.support.subscribed_shop import shop
from tests.pump.support.process import PumpProcess
from tests.spark.support import spark_home, spark_versions
from tests.spark.support.spark_command import SparkCommand, executors, executors_start_as
from tidb_binlog.net.port import free_ports

ORDERS: Final = "shop.orders"
ROUTED: Final = "shop.items"
KEYLESS: Final = "shop.log"
PLACES: Final = {ROUTED: "market.goods"}
KEYS: Final = 40
LARGE: Final = range(KEYS, 6000)
LARGE_ROWS: Final = 2500
DDL_SHARE: Final = 0.01
LARGE_SHARE: Final = 0.004
SHORT_LIVED_MAX: Final = 3
ROUND: Final = 4
"""Deaths between two comparisons."""
EARLY_SHARE: Final = 0.2
"""Of lives that may end before they have done anything."""
PAUSE_MAX_S: Final = 6.0
BESIDE_MAX: Final = 4
"""Deaths of others in a life."""
LIFE_TRANSACTIONS: Final = {"changelog": 600, "mirror": 150}
"""Published in a life at most, as many as on a quiet machine: where all starts slowly, more would be work for
the next lives, and no more faults. A mirror takes a MERGE for each table between two DDL: seconds of CPU."""
END_S: Final = 300.0
"""Without a line of a batch."""
EXECUTORS: Final = "local-cluster[2,1,512]"
JAVA: Final = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Lives are short: half of the CPU of the first MERGEs was of compiling them for a long one."""
Row = dict[str, Any]
Change = tuple[int, str, Row | None, Row | None]


class Shop:
    """What was published: the rows that there are, by key or row id, and every change in order."""

    def __init__(self, publisher: Publisher, rng: random.Random) -> None:
        self._publisher = publisher
        self._rng = rng
        self._numbers = itertools.count(1)
        self._columns: dict[str, list[str]] = {}  # that were added
        self._indexes: dict[str, list[str]] = {}
        self._short_lived: list[str] = []
        self.rows: dict[str, dict[int, Row]] = {ORDERS: {}, ROUTED: {}}
        self.changes = collections.defaultdict[str, list[Change]](list)
        self.ddl = collections.Counter[str]()
        self.transactions = 0

    async def begin(self, *, keyless: bool) -> None:
        if keyless:
            await self._publisher.create_table(KEYLESS, [column("id", "int"), column("item", "varchar(40)")])
            self.rows[KEYLESS] = {}

    async def change(self) -> None:
        """A transaction, now and then a DDL before it."""
        rng, tables = self._rng, sorted(self.rows)
        if rng.random() < DDL_SHARE:
            await self._change_schema()
            tables = sorted(self.rows)
        picked = {(rng.choice(tables), rng.randrange(KEYS)) for _ in range(rng.randint(1, 5))}
        if rng.random() < LARGE_SHARE:
            picked |= {(rng.choice(tables), key) for key in rng.sample(LARGE, LARGE_ROWS)}
        made = list[tuple[str, int, str, Row | None, Row | None]]()
        async with self._publisher.transaction() as txn:
            for table, key in sorted(picked):
                old, row_id = self.rows[table].get(key), key + 1 if table == KEYLESS else None
                new = {
                    "id": rng.randrange(3) if table == KEYLESS else key,
                    "item": f"{rng.getrandbits(40):x}",
                }
                new |= {name: rng.choice((None, rng.randrange(99))) for name in self._columns.get(table, ())}
                if old is None:
                    txn.insert(table, new, rowid=row_id)
                    made.append((table, key, "insert", None, new))
                elif rng.random() < 0.3:
                    txn.delete(table, old, rowid=row_id)
                    made.append((table, key, "delete", old, None))
                else:
                    txn.update(table, old, new, rowid=row_id)
                    made.append((table, key, "update", old, new))
        self.transactions += 1
        for table, key, kind, before, after in made:
            self.changes[table].append((int(txn.commit_ts), kind, before, after))
            if after is None:
                del self.rows[table][key]
            else:
                self.rows[table][key] = after

    async def _change_schema(self) -> None:
        rng, short = self._rng, self._short_lived
        if short and rng.random() < 0.4:
            await self._change_table(rng.choice(short))
        elif len(short) < SHORT_LIVED_MAX and rng.random() < 0.5:
            await self._create()
        else:
            await self._change_columns(rng.choice(sorted(self.rows)))

    async def _change_columns(self, table: str) -> None:
        publisher, number, rows = self._publisher, next(self._numbers), self.rows[table]
        columns, indexes = (each.setdefault(table, []) for each in (self._columns, self._indexes))
        forms = ["add column", "add column with a default", "add index"]
        form = self._rng.choice([*forms, *["drop column"] * bool(columns), *["drop index"] * bool(indexes)])
        self.ddl[form] += 1
        if form == "drop column":
            await publisher.drop_column(table, name := columns.pop(0))
            self.rows[table] = {
                key: {each: value for each, value in row.items() if each != name} for key, row in rows.items()
            }
        elif form == "add index":
            await publisher.add_index(table, f"k{number}", ["item"])
            indexes.append(f"k{number}")
        elif form == "drop index":
            await publisher.drop_index(table, indexes.pop())
        else:
            default = 7 if form.endswith("default") else None
            text = None if default is None else str(default)
            await publisher.add_column(table, column(f"c{number}", "int", default=text))
            columns.append(f"c{number}")
            self.rows[table] = {key: row | {f"c{number}": default} for key, row in rows.items()}

    async def _create(self) -> None:
        publisher, number = self._publisher, next(self._numbers)
        table, form = f"shop.t{number}", "create table"
        if self._rng.random() < 0.3:
            table, form = f"d{number}.t", "create database"
            await publisher.create_database(f"d{number}")
        columns = [column("id", "int", nullable=False), column("item", "varchar(40)")]
        await publisher.create_table(table, columns, primary_key=["id"])
        self.ddl[form] += 1
        self.rows[table] = {}
        self._short_lived.append(table)

    async def _change_table(self, table: str) -> None:
        publisher, (schema, _, _) = self._publisher, table.partition(".")
        drop = "drop table" if schema == "shop" else "drop database"
        form = self._rng.choice(["truncate table", "rename table", drop])
        self.ddl[form] += 1
        if form == "truncate table":
            await publisher.truncate_table(table)
            self.rows[table] = {}
            return
        self._short_lived.remove(table)
        if form == "rename table":
            name = f"t{next(self._numbers)}"
            await publisher.rename_table(table, name)
            self._short_lived.append(f"{schema}.{name}")
            new = f"{schema}.{name}"
            self.rows[new] = self.rows.pop(table)
            self._columns[new] = self._columns.pop(table, [])
            self._indexes[new] = self._indexes.pop(table, [])
        else:
            await (publisher.drop_table(table) if schema == "shop" else publisher.drop_database(schema))
            del self.rows[table]


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
        self._form, self.mode = form, mode
        self._rng = rng
        self._lake = directory / "lake"
        self._variables = os.environ | JAVA
        self.kills = collections.Counter[str]()
        self._config = directory / "stream.toml"
        source, target = (name.split(".") for name in (ROUTED, PLACES[ROUTED]))
        self._config.write_text(
            f'addr = "127.0.0.1:{free_ports(1)[0]}"\npd-urls = "{endpoint}"\n'
            f'data-dir = "{directory}/stream"\n[syncer]\ndb-type = "{form}"\n'
            f'[syncer.to]\nwarehouse = "{self._lake}"\n'
            f'[[syncer.table-migrate-rule]]\nsource = {{ schema = "{source[0]}", table = "{source[1]}" }}\n'
            f'target = {{ schema = "{target[0]}", table = "{target[1]}" }}\n'
        )
        self._settings = {
            "spark.driver.memory": "1g",
            "spark.executor.memory": "512m",
            "spark.sql.shuffle.partitions": "2",
        }
        if mode == "mirror":
            self._variables = spark_home.environ("4.1") | JAVA
            packages = connector_of(DrainerConfig(db_type=form)).packages
            self._settings |= spark_versions.jars("4.1", *packages)
        self._settings |= executors_start_as(self._variables)
        self.pumps: list[PumpProcess | PeerPump] = [self._pump(f"p{number}") for number in (1, 2)]
        self.log = directory / "log"
        self._said_before = 0  # bytes of the log, when the life began
        self.lives = 0

    @property
    def words(self) -> str:
        """What it is about."""
        peer = ", one Pump is Go's" if any(isinstance(process, PeerPump) for process in self.pumps) else ""
        return f"{self._form} {self.mode}{peer}"

    def _pump(self, name: str) -> PumpProcess:
        flags = (f"-node-id={name}", "-heartbeat-interval=200ms")
        return PumpProcess(self._directory / name, self._endpoint, lambda: free_ports(1)[0], *flags)

    def _begin(self, master: str, *more: str) -> SparkCommand:
        argv = ["stream", "--config", str(self._config), "--mode", self.mode]
        argv += ["--start", "1", "--interval", "50ms", "--master", master, *more]
        argv += ["--small", self._rng.choice(["0", "0", "4KiB"])]  # by tasks, or by the driver alone
        argv += [f"--conf={key}={text}" for key, text in self._settings.items()]
        return SparkCommand(argv, self.log, variables=self._variables)

    async def die(self) -> None:
        """The command, some time after a life has begun, and mostly other processes of it before."""
        rng = self._rng
        has_executors, is_early = rng.random() < 0.5, rng.random() < EARLY_SHARE
        self._said_before = self.log.stat().st_size if self.log.exists() else 0
        self.lives += 1
        command = self._begin(EXECUTORS if has_executors else "local[2]")
        try:
            if not is_early:
                await self._until_batch(command)
            for _ in range(rng.randint(0, BESIDE_MAX)):
                await asyncio.sleep(rng.uniform(0.0, PAUSE_MAX_S))
                await self._kill_beside(command, rng.choice(["task", "executor", "pump"]))
            await asyncio.sleep(rng.uniform(0.0, PAUSE_MAX_S))
            assert command.process.poll() is None, self.log.read_text()[-4000:]
        finally:
            command.kill_all()
        self.kills["command"] += 1

    async def _kill_beside(self, command: SparkCommand, whose: str) -> None:
        """One of those that there are now."""
        rng = self._rng
        if whose == "pump":
            process = rng.choice(self.pumps)
            process.kill()
            self.kills[whose] += 1
            await asyncio.sleep(rng.uniform(0.0, PAUSE_MAX_S / 2))
            await process.start_and_wait()
            return
        pids = executors(command.process.pid) if whose == "executor" else command.workers()
        if pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rng.choice(pids), signal.SIGKILL)
                self.kills[whose] += 1

    async def _until_batch(self, command: SparkCommand) -> None:
        """It has done one; or there is nothing left to do, which it does not say."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                while command.process.poll() is None and not self._said_batch():
                    await asyncio.sleep(0.2)

    def _said_batch(self) -> bool:
        with self.log.open("rb") as file:
            file.seek(self._said_before)
            return b"batch " in file.read()

    async def finish(self) -> None:
        """A life that comes to the end of what there is."""
        command = self._begin("local[2]", "--once")
        try:
            assert await asyncio.to_thread(self._end_of, command) == 0, self.log.read_text()[-4000:]
        finally:
            command.kill_all()

    def _end_of(self, command: SparkCommand) -> int:
        """Its exit status. A mirror takes a MERGE between two DDL: what it has to do may take long."""
        size = -1
        while True:
            try:
                return command.process.wait(END_S)
            except subprocess.TimeoutExpired:
                if size == (size := self.log.stat().st_size):
                    raise

    def check(self, shop: Shop) -> int:
        """How many rows were compared. Raises `AssertionError`."""
        count = 0
        for table in sorted({*shop.changes, *shop.rows}):
            rows = self._read(PLACES.get(table, table))
            if self.mode == "mirror":
                there = [_known(row) for row in rows]
                must = [_known(row) for row in shop.rows.get(table, {}).values()]
            else:
                numbers = [(row["_commit_ts"], row["_seq"]) for row in rows]
                assert len(set(numbers)) == len(numbers), f"{table}: a change is there twice"
                there = [
                    _change(row["_commit_ts"], row["_kind"], row["before"], row["after"]) for row in rows
                ]
                must = [_change(*change) for change in shop.changes[table]]
            found, wanted = collections.Counter(there), collections.Counter(must)
            lost, more = wanted - found, found - wanted
            words = f"{lost.total()} lost, such as {list(lost)[:2]}; {more.total()} more: {list(more)[:2]}"
            assert found == wanted, f"{table}: {words}"
            count += len(rows)
        return count

    def _read(self, table: str) -> list[Row]:
        schema, name = table.split(".")
        if self._form == "delta":
            place = str(self._lake / schema / name)
            if not DeltaTable.is_deltatable(place):
                return []
            arrow = DeltaTable(place).to_pyarrow_table()
        else:
            uri = f"sqlite:///{self._lake}/catalog.db"
            with contextlib.closing(load_catalog("lake", type="sql", uri=uri)) as catalog:
                if not catalog.table_exists((schema, name)):
                    return []
                arrow = catalog.load_table((schema, name)).scan().to_arrow()
        return arrow.to_pylist()  # type: ignore[no-any-return]


def _known(row: Row | None) -> str:
    """Of a row what is not null: a changelog has columns that came later, and those that went."""
    return str(sorted((name, value) for name, value in (row or {}).items() if value is not None))


def _change(commit_ts: int, kind: str, before: Row | None, after: Row | None) -> str:
    return f"{commit_ts} {kind} {_known(before)} {_known(after)}"


async def run(directory: Path, form: str, mode: str, kills: int, seed: int, peer: Path | None) -> None:
    """Until so many commands have died. Raises `AssertionError`."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for number in SIGNALS:
        loop.add_signal_handler(number, task.cancel)
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
        await model.begin(keyless=campaign.mode == "changelog")
        killed = rows = 0
        while killed < kills:
            some = min(ROUND, kills - killed)
            stopping = asyncio.Event()
            writing = asyncio.create_task(_write(model, campaign, stopping))
            for _ in range(some):
                await campaign.die()
            stopping.set()
            await writing
            killed += some
            await campaign.finish()
            rows = await asyncio.to_thread(campaign.check, model)
            words = f"{campaign.words}, seed {seed}: {dict(campaign.kills)} died, {rows} rows"
            print(f"{words}, each once", flush=True)
        await publisher.close()
        told = {"equal": True, "kills": campaign.kills, "transactions": model.transactions, "ddl": model.ddl}
        changes = sum(map(len, model.changes.values()))
        print(json.dumps(told | {"rows": changes, "rows_identical": rows}))
    finally:
        for process in campaign.pumps:
            process.end()


async def _write(model: Shop, campaign: Campaign, stopping: asyncio.Event) -> None:
    while not stopping.is_set():
        if model.transactions < campaign.lives * LIFE_TRANSACTIONS[campaign.mode]:
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
        try:
            asyncio.run(run(Path(name), chosen.form, chosen.mode, chosen.kills, chosen.seed, chosen.peer))
        except asyncio.CancelledError:
            sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
